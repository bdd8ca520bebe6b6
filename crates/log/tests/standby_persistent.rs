//! A standby's log with its ring in mapped memory: persisted there, de-staged in the background,
//! found again after a crash, cut, taken away, promoted. With FRESHET_DAX the temporary directory
//! must be on a DAX file system.

mod gate;
mod stores;

use std::{fs::File, os::unix::fs::FileExt, path::Path, sync::Arc, thread, time::Duration};

use freshet_base::{Fid, Lsn, NodeId, Rid, Term};
use freshet_log::{
    AcceptError, Block, BlockBuilder, BlockError, BlockKind, ForceFence, GroupCommitKind, Log, LogConfig, LogStore,
    Persistence, ReceiveConfig, Receiver, RecordKind, SegmentStore,
    persist::{Medium, Method, PersistenceConfig, recover_buffer, time_around_cache},
};
use freshet_memory::Registered;
use freshet_testing::available;
use gate::{Gate, State};
use stores::{CONFIG, store};

const RING: usize = 64 << 10;
const LENGTH: u64 = 208;

fn persistence(directory: &Path, method: Method) -> PersistenceConfig {
    let path = directory.join("buffer");
    PersistenceConfig { path, owner: NodeId(7), method, delay: Duration::ZERO, delay_per_kib: Duration::ZERO }
}

fn recover(directory: &Path, store: &LogStore, terms: &[(Term, Lsn)]) -> Lsn {
    let tail = store.settle_before_buffer().unwrap();
    recover_buffer(&directory.join("buffer"), NodeId(7), store, &tail, terms, false).unwrap()
}

/// A standby's log on `store`, where a restart finds its end.
fn open_on(directory: &Path, store: LogStore, method: Method, upon_replay: bool) -> (Log, Receiver, Lsn) {
    let end = recover(directory, &store, &[]);
    let config = ReceiveConfig { capacity: RING, upon_replay, ..ReceiveConfig::default() };
    let (log, receiver) =
        Log::receive_with(&config, Persistence::Pmem(store, persistence(directory, method)), end).unwrap();
    let (medium, found) = log.persistent_medium().unwrap();
    assert_eq!(found, method);
    if std::env::var_os("FRESHET_DAX").is_some() {
        assert_eq!(medium, Medium::Dax);
    }
    (log, receiver, end)
}

fn open(directory: &Path) -> (Log, Receiver, Lsn) {
    open_on(directory, store(directory, 1), Method::best().unwrap(), true)
}

fn block_in(at: Lsn, term: u32, stream: u8) -> Vec<u8> {
    let mut builder = BlockBuilder::new();
    builder.begin_in(stream);
    builder.push(None, Fid(1), Rid(at.0), RecordKind::Insert, &[at.0 as u8; LENGTH as usize - 64]).unwrap();
    builder.seal_records();
    builder.finish(at, Term(term), BlockKind::Redo).to_vec()
}

fn batch(from: Lsn, count: u64, term: u32, streams: u64) -> Vec<u8> {
    let block = |number: u64| block_in(from.plus(LENGTH * number), term, (number % streams) as u8);
    (0..count).flat_map(block).collect()
}

/// What replay does with a piece: several threads persist, each its share; then it counts; then it
/// is replayed.
fn persist(log: &Log, from: Lsn, to: Lsn) {
    let middle = Lsn(from.0 + (to.since(from) / LENGTH / 2) * LENGTH);
    thread::scope(|scope| {
        scope.spawn(|| log.persist_share(from, middle));
        log.persist_share(middle, to);
    });
    log.note_persisted(to).unwrap();
}

fn receive(log: &Log, receiver: &mut Receiver, count: u64, term: u32) -> Lsn {
    let from = receiver.received();
    receiver.append(&batch(from, count, term, 1)).unwrap();
    let to = receiver.received();
    persist(log, from, to);
    to
}

/// The log is `[0, end)`, block by block, and nothing else; of the terms that `term` says.
fn check(store: &LogStore, end: Lsn, term: impl Fn(Lsn) -> u32) {
    for at in (0..end.0).step_by(LENGTH as usize).map(Lsn) {
        let mut bytes = [0; LENGTH as usize];
        store.read(at, &mut bytes).unwrap();
        let block = Block::parse(&bytes, at).unwrap();
        assert_eq!((block.header().term, block.records().next().unwrap().header.rid.0), (Term(term(at)), at.0));
    }
}

#[test]
fn what_was_persisted_is_there_after_the_process_ended() {
    for (number, method) in
        available("a buffer that persists", Method::ALL, |it| it.is_available()).into_iter().enumerate()
    {
        for upon_replay in [true, false] {
            let directory = tempfile::tempdir().unwrap();
            let streams = number % 3 + 1;
            let mut known = Lsn(0);
            // Several times around the ring, a part of it, and once more.
            for (round, pieces) in [30, 2, 25].into_iter().enumerate() {
                let store = store(directory.path(), streams);
                let (log, mut receiver, begin) = open_on(directory.path(), store, method, upon_replay);
                assert_eq!(begin, known, "{method}, {streams} streams, upon replay: {upon_replay}");
                let upon_replay = upon_replay && method != Method::Eadr;
                assert_eq!(log.persists_upon_replay(), upon_replay);
                for _ in 0..pieces {
                    let from = receiver.received();
                    let to = from.plus(40 * LENGTH);
                    receiver.wait_room(to).unwrap();
                    receiver.append(&batch(from, 40, 1, streams as u64)).unwrap();
                    if method == Method::Eadr {
                        assert_eq!(log.durable_mark().get(), to, "it is durable when it is received");
                    } else if upon_replay {
                        assert_eq!(log.durable_mark().get(), from, "nobody has persisted it yet");
                        persist(&log, from, to);
                        assert_eq!(log.durable_mark().get(), to);
                    } else {
                        log.durable_mark().wait(to, None).unwrap();
                    }
                    log.note_replayed(to);
                    known = to;
                }
                if round == 1 { log.crash_for_test() } else { log.close().unwrap() }
            }
            let (log, mut receiver, _) = open_on(directory.path(), store(directory.path(), streams), method, true);
            let from = receiver.received();
            receiver.append(&batch(from, 3, 1, streams as u64)).unwrap();
            persist(&log, from, from.plus(2 * LENGTH));
            let counted = if method == Method::Eadr { 3 } else { 2 };
            assert_eq!(log.durable_mark().get(), from.plus(counted * LENGTH));
            log.crash_for_test();
            let store = store(directory.path(), streams);
            let end = recover(directory.path(), &store, &[]);
            assert!(end >= known.plus(2 * LENGTH));
            check(&store, end, |_| 1);
        }
    }
}

/// Persistent, acknowledged, replayed; but the room is not free before the segments have it.
#[test]
fn slow_segments_hold_back_room_and_nothing_else() {
    let directory = tempfile::tempdir().unwrap();
    let gate = Arc::new(Gate::default());
    let store = LogStore::of(vec![SegmentStore::open(Arc::clone(&gate) as _, CONFIG).unwrap()]);
    let (log, mut receiver, _) = open_on(directory.path(), store, Method::best().unwrap(), true);
    gate.set(State::Held);
    let mut end = Lsn(0);
    while end.plus(20 * LENGTH) <= log.free_until() {
        end = receive(&log, &mut receiver, 20, 1);
        log.note_replayed(end);
        assert_eq!(log.durable_mark().get(), end);
    }
    assert_eq!((log.free_until(), log.grant()), (Lsn(RING as u64), Lsn(RING as u64)));
    let mut bytes = [0; LENGTH as usize];
    log.reader().read(Lsn(0), &mut bytes).unwrap();
    assert!(Block::parse(&bytes, Lsn(0)).is_ok(), "what is not in the segments is in the ring");
    gate.set(State::Open);
    receiver.wait_room(end.plus(RING as u64 / 2)).unwrap();
    log.wait_stored(end).unwrap();
    assert_eq!(log.free_until(), end.plus(RING as u64));
    for _ in 0..20 {
        receiver.wait_room(end.plus(20 * LENGTH)).unwrap();
        end = receive(&log, &mut receiver, 20, 1);
        log.note_replayed(end);
    }
    log.close().unwrap();
}

/// The log stops and says why; what it had acknowledged is found when there is room again.
#[test]
fn a_full_disk_stops_the_log_and_loses_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let gate = Arc::new(Gate::default());
    let open_store = || LogStore::of(vec![SegmentStore::open(Arc::clone(&gate) as _, CONFIG).unwrap()]);
    let (log, mut receiver, _) = open_on(directory.path(), open_store(), Method::best().unwrap(), true);
    let mut acknowledged = receive(&log, &mut receiver, 30, 1);
    log.note_replayed(acknowledged);
    log.wait_stored(acknowledged).unwrap();
    gate.set(State::Broken);
    let failure = loop {
        let end = acknowledged.plus(30 * LENGTH);
        if receiver.wait_room(end).is_err() {
            break log.failure().expect("it says why");
        }
        if receiver.append(&batch(acknowledged, 30, 1, 1)).is_ok() {
            log.persist_share(acknowledged, end);
        }
        if let Err(failure) = log.note_persisted(end) {
            break failure;
        }
        acknowledged = log.durable_mark().get();
        log.note_replayed(acknowledged);
    };
    assert!(failure.to_string().contains("does not answer"), "{failure}");
    assert!(log.wait_stored(acknowledged.plus(RING as u64)).is_err(), "nobody waits for ever");
    assert!(log.close().is_err());
    gate.set(State::Open);
    let store = open_store();
    let end = recover(directory.path(), &store, &[]);
    assert!(end >= acknowledged, "{acknowledged} was acknowledged, {end} found");
    check(&store, end, |_| 1);
}

#[test]
fn what_was_cut_does_not_come_back() {
    for stored_first in [false, true] {
        let directory = tempfile::tempdir().unwrap();
        let (log, mut receiver, _) = open(directory.path());
        let end = receive(&log, &mut receiver, 30, 1);
        if stored_first {
            log.wait_stored(end).unwrap();
        }
        // Arrived, and never counted.
        let mut beyond = receiver.writable(end, 2 * LENGTH).unwrap();
        beyond.copy_from(&batch(end, 2, 1, 1));
        let at = Lsn(10 * LENGTH);
        receiver.cut(at).unwrap();
        assert_eq!((log.received().get(), log.durable_mark().get()), (at, at));
        log.crash_for_test();
        // Nothing at all came after the cut.
        let (log, mut receiver, begin) = open(directory.path());
        assert_eq!(begin, at, "stored first: {stored_first}");
        // Blocks of the same lengths as those that were cut, up to one of them.
        let end = receive(&log, &mut receiver, 20, 2);
        receiver.cut(at).unwrap();
        receiver.cut(end).unwrap();
        let end = receive(&log, &mut receiver, 7, 3);
        log.crash_for_test();
        let store = store(directory.path(), 1);
        assert_eq!(recover(directory.path(), &store, &[]), end, "stored first: {stored_first}");
        check(&store, end, |lsn| if lsn < at { 1 } else { 3 });
    }
}

/// The cut finds nothing to cut, but blocks that came and never counted.
#[test]
fn what_never_counted_goes_with_the_next_cut() {
    let directory = tempfile::tempdir().unwrap();
    let (log, mut receiver, _) = open(directory.path());
    let end = receive(&log, &mut receiver, 5, 1);
    receiver.writable(end, 3 * LENGTH).unwrap().copy_from(&batch(end, 3, 1, 1));
    receiver.cut(end).unwrap();
    log.crash_for_test();
    assert_eq!(recover(directory.path(), &store(directory.path(), 1), &[]), end);
}

/// Blocks of a deposed primary lie behind those of the new one, which took their place in part.
#[test]
fn blocks_of_a_term_that_does_not_lead_there_are_not_taken() {
    let directory = tempfile::tempdir().unwrap();
    let (log, mut receiver, _) = open(directory.path());
    let end = receive(&log, &mut receiver, 5, 1);
    receiver.writable(end, 3 * LENGTH).unwrap().copy_from(&batch(end, 3, 1, 1));
    let known = receive(&log, &mut receiver, 1, 2);
    log.crash_for_test();
    let store = store(directory.path(), 1);
    assert_eq!(recover(directory.path(), &store, &[(Term(1), Lsn(0)), (Term(2), end)]), known);
    check(&store, known, |lsn| if lsn < end { 1 } else { 2 });
}

fn remote(log: &Log) -> (File, u64) {
    let memory = log.shared_memory();
    let (file, offset) = memory.file().unwrap();
    assert!(memory.file().is_some_and(|(_, offset)| offset > 0), "behind the header of the buffer's file");
    (file.try_clone_to_owned().unwrap().into(), offset)
}

/// The primary writes into the ring itself; then another one leads, and the old one's late writes
/// go nowhere.
#[test]
fn a_persistent_ring_is_written_from_outside_and_taken_away() {
    for method in available("a buffer written from outside", Method::ALL, |it| it.is_available()) {
        let directory = tempfile::tempdir().unwrap();
        let (log, mut receiver, _) = open_on(directory.path(), store(directory.path(), 1), method, true);
        let (deposed, offset) = remote(&log);
        let end = Lsn(20 * LENGTH);
        assert!(log.grant() >= end);
        deposed.write_all_at(&batch(Lsn(0), 22, 1, 1), offset).unwrap();
        receiver.accept(end).unwrap();
        persist(&log, Lsn(0), end);
        receiver.renew().unwrap();
        deposed.write_all_at(&batch(end, 4, 1, 1), offset + end.0).unwrap();
        assert!(receiver.accept(end.plus(LENGTH)).is_err(), "what had come, and never counted, is gone");
        let (present, offset) = remote(&log);
        log.grant();
        let to = end.plus(2 * LENGTH);
        present.write_all_at(&batch(end, 2, 2, 1), offset + end.0).unwrap();
        receiver.accept(to).unwrap();
        persist(&log, end, to);
        log.crash_for_test();
        let store = store(directory.path(), 1);
        assert_eq!(recover(directory.path(), &store, &[]), to, "{method}");
        check(&store, to, |lsn| if lsn < end { 1 } else { 2 });
    }
}

/// A primary that stood still has mapped the ring, and continues when the standby was promoted, or
/// has been restarted.
#[test]
fn a_deposed_writer_reaches_neither_the_next_term_nor_a_restarted_node() {
    let directory = tempfile::tempdir().unwrap();
    let (standby, mut receiver, _) = open(directory.path());
    let (deposed, offset) = remote(&standby);
    let write_old =
        |from: Lsn, count| deposed.write_all_at(&batch(from, count, 1, 1), offset + from.0 % RING as u64).unwrap();
    let began = Lsn(10 * LENGTH);
    standby.grant();
    write_old(Lsn(0), 10);
    receiver.accept(began).unwrap();
    persist(&standby, Lsn(0), began);
    let config = LogConfig { partition: 1 << 10, ..LogConfig::default() };
    standby.promote(receiver, config, Term(2)).unwrap();
    let log = standby;
    let end = commit(&log, 5, 2);
    write_old(began, 20);
    log.crash_for_test();
    drop(log);
    let terms = [(Term(1), Lsn(0)), (Term(2), began)];
    assert_eq!(recover(directory.path(), &store(directory.path(), 1), &terms), end);
    check(&store(directory.path(), 1), end, |at| if at < began { 1 } else { 2 });

    // As a standby of the next primary: nothing is in its ring that this one has not written.
    let (standby, receiver, begin) = open(directory.path());
    assert_eq!(begin, end);
    let (earlier, offset) = remote(&standby);
    standby.crash_for_test();
    drop((standby, receiver));
    let (standby, mut receiver, _) = open(directory.path());
    standby.grant();
    earlier.write_all_at(&batch(end, 3, 2, 1), offset + end.0).unwrap();
    let refused = receiver.accept(end.plus(LENGTH)).unwrap_err();
    assert!(matches!(refused, AcceptError::Block { cause: BlockError::Empty, .. }), "{refused}");
    standby.close().unwrap();
}

fn commit(log: &Log, count: usize, term: u32) -> Lsn {
    let mut writer = log.writer().unwrap();
    let mut end = log.reserved();
    for _ in 0..count {
        writer.throttle().unwrap();
        let reservation = writer.reserve(LENGTH).unwrap();
        end = reservation.end();
        let block = block_in(reservation.lsn(), term, 0);
        reservation.fill(&block).unwrap();
    }
    log.wait_durable(end, None).unwrap();
    end
}

/// It continues as a primary in the same memory, without a restart, and then is a standby again,
/// and a primary by a restart.
#[test]
fn a_standby_becomes_a_primary_in_the_same_memory_and_back() {
    for group_commit in [GroupCommitKind::Pipelined, GroupCommitKind::Passive(ForceFence::Membarrier)] {
        let directory = tempfile::tempdir().unwrap();
        let (standby, mut receiver, _) = open(directory.path());
        let began = receive(&standby, &mut receiver, 12, 1);
        // Received, and not persisted by anybody; and a batch that never came whole.
        receiver.append(&batch(began, 1, 1, 1)).unwrap();
        let began = receiver.received();
        receiver.writable(began, 9 * LENGTH).unwrap().copy_from(&batch(began, 8, 1, 1));
        let config = LogConfig { partition: 1 << 10, group_commit, ..LogConfig::default() };
        standby.promote(receiver, config, Term(2)).unwrap();
        let log = standby;
        assert_eq!((log.start(), log.persistent_medium().unwrap().1), (began, Method::best().unwrap()));
        // Several laps, and a block that ends where one of those that never counted begins.
        let first = commit(&log, 1, 2);
        assert!(first == began.plus(LENGTH));
        log.crash_for_test();
        drop(log);
        let (standby, receiver, begin) = open(directory.path());
        assert_eq!(begin, first, "{group_commit:?}");
        standby.promote(receiver, config, Term(3)).unwrap();
        let log = standby;
        let end = commit(&log, 900, 3);
        log.crash_for_test();
        drop(log);
        let restarted = store(directory.path(), 1);
        assert_eq!(recover(directory.path(), &restarted, &[]), end, "{group_commit:?}");
        let method = persistence(directory.path(), Method::best().unwrap());
        let config = LogConfig { capacity: RING, ..config };
        let log = Log::open(config, Persistence::Pmem(restarted, method), end, Term(4)).unwrap();
        log.begin_term(NodeId(1)).unwrap();
        log.close().unwrap();
        check(&store(directory.path(), 1), end, |at| if at < began { 1 } else { 2 + u32::from(at >= first) });
    }
}

/// The delay is what it says, for the thread that persists: the time of the bytes, divided among
/// the threads.
#[test]
fn the_delay_is_waited_for_by_the_length() {
    let directory = tempfile::tempdir().unwrap();
    let delay_per_kib = Duration::from_micros(500);
    let persistence = PersistenceConfig { delay_per_kib, ..persistence(directory.path(), Method::Eadr) };
    let config = ReceiveConfig { capacity: RING, upon_replay: true, ..ReceiveConfig::default() };
    let store = store(directory.path(), 1);
    let (log, mut receiver) = Log::receive_with(&config, Persistence::Pmem(store, persistence), Lsn(0)).unwrap();
    receiver.append(&batch(Lsn(0), 64, 1, 1)).unwrap();
    let begun = std::time::Instant::now();
    log.persist_share(Lsn(0), Lsn(64 * LENGTH));
    assert!(begun.elapsed() >= Duration::from_micros(13 * 450), "{:?} for 13 KiB", begun.elapsed());
    log.note_persisted(Lsn(64 * LENGTH)).unwrap();
    log.close().unwrap();
    let measured = time_around_cache();
    assert!(measured > Duration::ZERO, "no memory is that fast");
    println!("around the cache a KiB takes {measured:?}");
}
