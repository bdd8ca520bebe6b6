//! A log that finds no room, or no descriptor, for its next segment: it says so, waits, and
//! continues when it finds some.

mod gate;

use std::{
    env,
    fs::File,
    process::Command,
    sync::Arc,
    time::{Duration, Instant},
};

use freshet_base::{ClusterId, Fid, Lsn, Rid, Term};
use freshet_log::{
    BlockBuilder, BlockKind, Log, LogConfig, LogStore, RecordKind, SegmentStore, StoreConfig, Writer,
    medium::{FileMedium, Medium, keep_descriptors},
};
use gate::{Gate, State};

const SIZE: u64 = 16 << 10;
const CONFIG: StoreConfig = StoreConfig { cluster: ClusterId(7), segment_size: SIZE };
/// Longer than anything here takes.
const SOON: Duration = Duration::from_secs(60);

fn wait_for(what: &str, done: impl Fn() -> bool) {
    let begun = Instant::now();
    while !done() {
        assert!(begun.elapsed() < SOON, "{what} has not come about");
        std::thread::yield_now();
    }
}

fn open(media: &[Arc<Gate>]) -> LogStore {
    LogStore::of(media.iter().map(|medium| SegmentStore::open(Arc::clone(medium) as _, CONFIG).unwrap()).collect())
}

fn log(store: LogStore, at: Lsn) -> Log {
    let config = LogConfig { capacity: 1 << 20, partition: 4096, ..LogConfig::default() };
    Log::open(config, Some(store), at, Term(1)).unwrap()
}

/// A block of 512 bytes, in the writer's stream; returns where it ends.
fn write(writer: &mut Writer, builder: &mut BlockBuilder) -> Lsn {
    builder.begin_in(writer.stream());
    builder.push(None, Fid(1), Rid(1), RecordKind::Insert, &[7; 512 - 64]).unwrap();
    let length = builder.seal_records();
    assert_eq!(length, 512);
    let reservation = writer.reserve(length).unwrap();
    let (lsn, end) = (reservation.lsn(), reservation.end());
    reservation.fill(builder.finish(lsn, Term(1), BlockKind::Redo)).unwrap();
    end
}

#[test]
fn a_log_without_room_waits_and_goes_on() {
    for (state, streams) in
        [(State::NoNew, 1), (State::NoNew, 2), (State::NoDescriptors, 1), (State::Full, 1), (State::Full, 2)]
    {
        let context = format!("{state:?}, {streams} streams");
        let media: Vec<Arc<Gate>> = (0..streams).map(|_| Arc::default()).collect();
        let store = open(&media);
        store.settle().unwrap();
        let log = log(store.clone(), Lsn(0));
        let mut writers: Vec<Writer> = (0..streams).map(|_| log.writer().unwrap()).collect();
        let mut builder = BlockBuilder::new();
        let mut end = Lsn(0);
        let mut put = |blocks: u64| {
            for block in 0..blocks {
                end = write(&mut writers[block as usize % streams], &mut builder);
            }
            end
        };
        let soon = || Some(Instant::now() + SOON);
        log.wait_durable(put(4), soon()).unwrap();
        assert!(log.has_room() && log.out_of_space().is_none() && !log.is_stalled(), "{context}");
        let before = log.durable();
        media.iter().for_each(|medium| medium.set(state));
        // More than half of each segment: the next one is to be made.
        let some = put(24 * streams as u64);
        wait_for("the lack of room", || !log.has_room());
        let out_of_space = log.out_of_space().expect("it has no room");
        assert!(out_of_space.to_string().contains("waits for room in memory:"), "{context}: {out_of_space}");
        if state != State::Full {
            // What is there is used up to its end, and still no writer may think that there is
            // more.
            log.wait_durable(some, soon()).unwrap();
            assert!(!log.has_room(), "{context}");
        }
        let last = put(40 * streams as u64);
        wait_for("the stall", || log.is_stalled());
        assert!(
            log.out_of_space().is_some_and(|out_of_space| out_of_space.stalled) && log.failure().is_none(),
            "{context}"
        );
        let mut bytes = vec![0; before.0 as usize];
        // Who reads does not wait.
        store.read(Lsn(0), &mut bytes).unwrap();
        assert!(log.durable() < last, "{context}");
        media.iter().for_each(|medium| medium.set(State::Open));
        log.wait_durable(last, soon()).unwrap_or_else(|error| panic!("{context}: {error}"));
        wait_for("room", || log.has_room());
        assert!(log.out_of_space().is_none() && !log.is_stalled() && log.failure().is_none(), "{context}");
        log.wait_durable(put(100), soon()).unwrap();
        drop(writers);
        log.close().unwrap();
        assert_eq!(open(&media).settle().unwrap().end, end, "{context}");
    }
}

/// A node that is to end need not have room for what no client was told of.
#[test]
fn a_close_does_not_wait_for_room() {
    let medium = Arc::new(Gate::default());
    let media = [Arc::clone(&medium)];
    let store = open(&media);
    store.settle().unwrap();
    let log = log(store, Lsn(0));
    let (mut writer, mut builder) = (log.writer().unwrap(), BlockBuilder::new());
    medium.set(State::NoNew);
    while writer_is_ahead(&log) {
        write(&mut writer, &mut builder);
    }
    wait_for("the stall", || log.is_stalled());
    drop(writer);
    let failure = log.close().unwrap_err();
    assert!(failure.to_string().contains("no space left"), "{failure}");
    medium.set(State::Open);
    let end = open(&media).settle().unwrap().end;
    assert!(end >= log.durable() && end <= Lsn(SIZE), "{end}");
}

fn writer_is_ahead(log: &Log) -> bool {
    log.reserved() < Lsn(2 * SIZE)
}

#[test]
fn a_standby_without_room_waits_and_goes_on() {
    let medium = Arc::new(Gate::default());
    let media = [Arc::clone(&medium)];
    let store = open(&media);
    store.settle().unwrap();
    let (log, mut receiver) = Log::receive(1 << 20, store, Lsn(0)).unwrap();
    medium.set(State::NoNew);
    let mut builder = BlockBuilder::new();
    let mut at = Lsn(0);
    let mut batch = |until: Lsn| {
        let mut bytes = Vec::new();
        while at < until {
            builder.begin();
            builder.push(None, Fid(1), Rid(1), RecordKind::Insert, &[7; 512 - 64]).unwrap();
            builder.seal_records();
            bytes.extend_from_slice(builder.finish(at, Term(1), BlockKind::Redo));
            at = at.plus(512);
        }
        bytes
    };
    receiver.append(&batch(Lsn(3 * SIZE))).unwrap();
    wait_for("the lack of room", || log.out_of_space().is_some_and(|out_of_space| out_of_space.stalled));
    assert!(log.durable_mark().get() <= Lsn(SIZE) && log.failure().is_none());
    receiver.append(&batch(Lsn(4 * SIZE))).unwrap();
    medium.set(State::Open);
    log.durable_mark().wait(Lsn(4 * SIZE), Some(Instant::now() + SOON)).unwrap();
    wait_for("room", || log.out_of_space().is_none());
    log.close().unwrap();
}

const ROLE: &str = "FRESHET_TEST_ROOM_ROLE";

/// Runs this test once more in a process of its own, whose limits and descriptors are its own.
fn alone(test: &str, role: &str) {
    let child = Command::new(env::current_exe().unwrap())
        .args(["--exact", test, "--nocapture"])
        .env(ROLE, role)
        .output()
        .unwrap();
    let messages = String::from_utf8_lossy(&child.stderr);
    assert!(child.status.success(), "{role}: {messages}");
    println!("{role}: {messages}");
}

/// Takes every descriptor that this process may have.
fn take_all() -> Vec<File> {
    let limit = rustix::process::Rlimit { current: Some(64), maximum: Some(64) };
    rustix::process::setrlimit(rustix::process::Resource::Nofile, limit).unwrap();
    let mut taken = Vec::new();
    while let Ok(file) = File::open("/dev/null") {
        taken.push(file);
    }
    assert!(!taken.is_empty());
    taken
}

/// Connections may have taken all descriptors: the log has some of its own, and where it has none
/// it waits.
#[test]
fn a_log_without_descriptors_goes_on() {
    let name = "a_log_without_descriptors_goes_on";
    let Some(role) = env::var_os(ROLE) else {
        alone(name, "kept");
        alone(name, "given back");
        return;
    };
    let directory = tempfile::tempdir().unwrap();
    let medium: Arc<dyn Medium> = Arc::new(FileMedium::new(directory.path()));
    let store = LogStore::from(SegmentStore::open(medium, CONFIG).unwrap());
    store.settle().unwrap();
    let log = log(store, Lsn(0));
    let (mut writer, mut builder) = (log.writer().unwrap(), BlockBuilder::new());
    let mut put = |segments: u64| {
        let mut end = Lsn(0);
        for _ in 0..segments * SIZE / 512 {
            end = write(&mut writer, &mut builder);
        }
        end
    };
    let soon = || Some(Instant::now() + SOON);
    if role == "kept" {
        keep_descriptors().unwrap();
        let taken = take_all();
        log.wait_durable(put(8), soon()).unwrap();
        // Others that wait for a descriptor have not got those of the log in the meantime.
        drop(taken);
    } else {
        let taken = take_all();
        let end = put(8);
        wait_for("the stall", || log.is_stalled());
        assert!(log.out_of_space().unwrap().to_string().contains("Too many open files"), "{:?}", log.out_of_space());
        drop(taken);
        log.wait_durable(end, soon()).unwrap();
        assert!(log.failure().is_none());
    }
    drop(writer);
    log.close().unwrap();
}
