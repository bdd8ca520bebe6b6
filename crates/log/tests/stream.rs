//! The primary's log from outside: what is acknowledged is there, in order, and can be read back.

mod gate;

use std::{
    sync::{Arc, Mutex, mpsc},
    thread,
    time::{Duration, Instant},
};

use freshet_base::{ClusterId, Fid, Lsn, NodeId, Rid, Term};
use freshet_log::{
    Batch, Block, BlockBuilder, BlockKind, Division, GroupCommitKind, Log, LogConfig, LogStore, Persistence,
    RecordKind, ReserveError, SegmentStore, Sink, StoreConfig, StoreError,
};
use gate::Gate;

const CONFIG: StoreConfig = StoreConfig { cluster: ClusterId(7), segment_size: 64 << 10 };

fn small() -> LogConfig {
    LogConfig { capacity: 16 << 10, partition: 1 << 10, batch_bytes: 4 << 10, ..LogConfig::default() }
}

fn write_one(writer: &mut freshet_log::Writer, builder: &mut BlockBuilder, rid: u64, row: &[u8]) -> (Lsn, Lsn) {
    builder.begin();
    builder.push(None, Fid(1), Rid(rid), RecordKind::Insert, row).unwrap();
    let length = builder.seal_records();
    let reservation = writer.reserve(length).unwrap();
    let place = (reservation.lsn(), reservation.end());
    let block = builder.finish(place.0, Term(1), BlockKind::Redo);
    reservation.fill(block).unwrap();
    place
}

/// Every block from `from` to `to`, read through the log.
fn blocks(log: &Log, from: Lsn, to: Lsn) -> Vec<(Lsn, BlockKind, Vec<u64>)> {
    let mut bytes = vec![0; to.since(from) as usize];
    log.read(from, &mut bytes).unwrap();
    let (mut at, mut found) = (0, Vec::new());
    while at < bytes.len() {
        let block = Block::parse(&bytes[at..], from.plus(at as u64)).unwrap();
        found.push((block.lsn(), block.header().kind, block.records().map(|r| r.header.rid.0).collect()));
        at += block.bytes().len();
    }
    found
}

#[test]
fn many_writers_fill_one_log_without_gaps() {
    let directory = tempfile::tempdir().unwrap();
    let stores = [LogStore::in_memory(CONFIG), LogStore::open_directory(directory.path(), CONFIG).unwrap()];
    for store in stores {
        let log = Log::open(small(), Some(store.clone()), Lsn(0), Term(1)).unwrap();
        thread::scope(|scope| {
            for worker in 0..3u64 {
                let log = &log;
                scope.spawn(move || {
                    let (mut writer, mut builder) = (log.writer().unwrap(), BlockBuilder::new());
                    for i in 0..500 {
                        writer.throttle().unwrap();
                        if i % 10 == 9 {
                            writer.reserve(48).unwrap().skip();
                        }
                        let row = vec![worker as u8; (i * 7 % 300) as usize];
                        let (_, end) = write_one(&mut writer, &mut builder, worker << 32 | i, &row);
                        if i % 50 == 0 {
                            assert!(log.wait_durable(end, None).unwrap() >= end);
                        }
                    }
                });
            }
        });
        let end = log.reserved();
        assert!(end.0 > 10 * small().capacity as u64, "the ring went round: {end}");
        log.wait_durable(end, None).unwrap();
        let found = blocks(&log, Lsn(0), end);
        assert_eq!(found.iter().filter(|block| block.1 == BlockKind::Skip).count(), 150);
        for worker in 0..3u64 {
            let mine: Vec<u64> =
                found.iter().flat_map(|block| &block.2).copied().filter(|rid| rid >> 32 == worker).collect();
            assert_eq!(mine, (0..500).map(|i| worker << 32 | i).collect::<Vec<_>>(), "in commit order");
        }
        log.close().unwrap();
        assert!(matches!(log.writer().unwrap().reserve(32), Err(ReserveError::Closed)));
        assert_eq!(store.watermark(), end);
        drop(log);
        // What was written can be gone on with.
        let log = Log::open(small(), Some(store), end, Term(2)).unwrap();
        let after = log.begin_term(NodeId(3)).unwrap();
        log.wait_durable(after, None).unwrap();
        assert_eq!(blocks(&log, end, after), [(end, BlockKind::Term, vec![])]);
    }
}

#[derive(Default)]
struct Recorder(Mutex<Vec<(Lsn, Lsn, Vec<Lsn>)>>);

impl Sink for Recorder {
    fn batch(&self, batch: &Batch<'_>) {
        self.0.lock().unwrap().push((batch.from, batch.to, batch.partition_ends.to_vec()));
    }
}

#[test]
fn sinks_get_every_batch_with_its_partition_ends() {
    let log = Log::open(small(), Some(LogStore::in_memory(CONFIG)), Lsn(0), Term(1)).unwrap();
    let recorder = Arc::new(Recorder::default());
    let handle = log.attach(Arc::clone(&recorder) as _);
    assert_eq!(handle.from(), Lsn(0));
    let (mut writer, mut builder) = (log.writer().unwrap(), BlockBuilder::new());
    for i in 0..200 {
        let (_, end) = write_one(&mut writer, &mut builder, i, &[1; 100]);
        if i % 20 == 0 {
            log.wait_durable(end, None).unwrap();
        }
    }
    drop(writer);
    log.close().unwrap();
    let batches = recorder.0.lock().unwrap();
    let (mut at, mut ends) = (Lsn(0), Vec::new());
    for (from, to, partition_ends) in batches.iter() {
        assert_eq!(*from, at, "without gaps");
        assert!(partition_ends.iter().all(|end| from < end && end <= to));
        ends.extend(partition_ends);
        at = *to;
    }
    assert_eq!(at, log.durable());
    let starts: Vec<Lsn> = blocks(&log, Lsn(0), at).into_iter().map(|block| block.0).collect();
    assert!(ends.is_sorted() && ends.len() as u64 == at.0 >> 10);
    assert!(ends.iter().all(|end| starts.contains(end) || *end == at), "each is a block boundary");
}

struct Ends(Mutex<mpsc::Sender<Lsn>>);

impl Sink for Ends {
    fn batch(&self, batch: &Batch<'_>) {
        self.0.lock().unwrap().send(batch.to).unwrap();
    }
}

/// Shipping overlaps the local flush: sinks get a batch while the device still syncs it, on a
/// log that is written and on one that is received.
#[test]
fn sinks_get_a_batch_that_a_slow_device_still_syncs() {
    let (mut builder, soon) = (BlockBuilder::new(), Duration::from_secs(60));
    for received in [false, true] {
        let gate = Arc::new(Gate::default());
        let store = LogStore::of(vec![SegmentStore::open(Arc::clone(&gate) as _, CONFIG).unwrap()]);
        let (sends, batches) = mpsc::channel();
        let (log, mut receiver) = match received {
            true => Log::receive(1 << 14, store, Lsn(0)).map(|(log, receiver)| (log, Some(receiver))).unwrap(),
            false => (Log::open(small(), Some(store), Lsn(0), Term(1)).unwrap(), None),
        };
        let _handle = log.attach(Arc::new(Ends(Mutex::new(sends))));
        gate.set(gate::State::Held);
        let end = match &mut receiver {
            Some(receiver) => {
                builder.begin();
                builder.push(None, Fid(1), Rid(1), RecordKind::Insert, &[1; 40]).unwrap();
                builder.seal_records();
                receiver.append(builder.finish(Lsn(0), Term(1), BlockKind::Redo)).unwrap();
                receiver.received()
            }
            None => {
                let (_, end) = write_one(&mut log.writer().unwrap(), &mut builder, 1, &[1; 40]);
                log.force_fence(end);
                end
            }
        };
        assert_eq!(batches.recv_timeout(soon), Ok(end), "received: {received}");
        assert_eq!(log.durable(), Lsn(0), "the device has not synced it");
        // It can be seen that it does not answer.
        let deadline = Instant::now() + soon;
        while log.store().hangs(Duration::from_millis(1)).is_none() {
            assert!(Instant::now() < deadline);
            thread::yield_now();
        }
        assert_eq!(log.stall(), None, "it may still come back");
        gate.set(gate::State::Open);
        assert_eq!(log.durable_mark().wait(end, Some(Instant::now() + soon)), Ok(end));
        while log.store().hangs(Duration::ZERO).is_some() {
            assert!(Instant::now() < deadline);
            thread::yield_now();
        }
        log.close().unwrap();
    }
}

#[test]
fn without_a_store_a_sink_holds_the_ring() {
    let log = Log::open(small(), Persistence::None, Lsn(0), Term(1)).unwrap();
    let handle = log.attach(Arc::new(Recorder::default()));
    thread::scope(|scope| {
        let writing = scope.spawn(|| {
            let (mut writer, mut builder) = (log.writer().unwrap(), BlockBuilder::new());
            for i in 0..100 {
                write_one(&mut writer, &mut builder, i, &[1; 1000]);
            }
        });
        // Nothing below the hold is overwritten: all of the ring can be read.
        let capacity = small().capacity as u64;
        let mut held = 0;
        while held < 90 * 1064 {
            log.wait_durable(Lsn(held + 1064), None).unwrap();
            assert_eq!(blocks(&log, Lsn(held), Lsn(held + 1064))[0].0, Lsn(held));
            assert!(log.durable().0 <= held + capacity);
            held += 1064;
            handle.release(Lsn(held));
        }
        handle.release(Lsn::MAX);
        writing.join().unwrap();
    });
}

#[test]
fn a_volatile_log_is_durable_as_it_goes() {
    let log = Log::volatile(1, Lsn(0), Term(1));
    let mut writer = log.writer().unwrap();
    for at in [0, 640] {
        writer.throttle().unwrap();
        let reservation = writer.reserve(640).unwrap();
        assert_eq!((reservation.lsn(), reservation.end()), (Lsn(at), Lsn(at + 640)));
    }
    assert_eq!(log.wait_durable(Lsn(1280), None).unwrap(), Lsn(1280));
    drop(writer);
    log.close().unwrap();
}

#[test]
fn a_waiting_client_does_not_wait_for_the_interval() {
    let config = LogConfig { interval: Duration::from_secs(3600), ..small() };
    let log = Log::open(config, Some(LogStore::in_memory(CONFIG)), Lsn(0), Term(1)).unwrap();
    let (mut writer, mut builder) = (log.writer().unwrap(), BlockBuilder::new());
    for i in 0..50 {
        let (_, end) = write_one(&mut writer, &mut builder, i, &[1; 100]);
        log.wait_durable(end, None).unwrap();
    }
    drop(writer);
    log.close().unwrap();
}

/// A thread that is told that a block is durable while the log is being closed finds it afterwards,
/// however the two meet.
#[test]
fn nothing_is_acknowledged_by_a_close_that_was_not_flushed() {
    let kinds = [GroupCommitKind::Pipelined, GroupCommitKind::Epoch(Duration::from_millis(1))];
    let mut overtaken = 0;
    // It takes some thousands of rounds to see it go wrong (FRESHET_ROUNDS=4000).
    let rounds = std::env::var("FRESHET_ROUNDS").map_or(60, |rounds| rounds.parse().unwrap());
    for round in 0..rounds {
        let (kind, streams) = (kinds[round % 2], round % 4 / 2 + 1);
        let store = LogStore::of((0..streams).map(|_| SegmentStore::in_memory(CONFIG)).collect());
        store.settle().unwrap();
        let config = LogConfig { group_commit: kind, capacity: 1 << 20, ..small() };
        let log = Log::open(config, Some(store.clone()), Lsn(0), Term(1)).unwrap();
        let acknowledged = Mutex::new(Lsn(0));
        thread::scope(|scope| {
            // More than there are processors: most stand still somewhere in between.
            for worker in 0..12u64 {
                let (log, acknowledged) = (&log, &acknowledged);
                scope.spawn(move || {
                    let (mut writer, mut builder) = (log.writer().unwrap(), BlockBuilder::new());
                    let mut last = Lsn(0);
                    for rid in worker.. {
                        builder.begin_in(writer.stream());
                        builder.push(None, Fid(1), Rid(rid), RecordKind::Insert, &[1; 40]).unwrap();
                        let length = builder.seal_records();
                        let Ok(reservation) = writer.reserve(length) else { break };
                        let (lsn, end) = (reservation.lsn(), reservation.end());
                        if reservation.fill(builder.finish(lsn, Term(1), BlockKind::Redo)).is_err() {
                            break;
                        }
                        last = end;
                    }
                    if log.wait_durable(last, None).is_ok() {
                        let mut acknowledged = acknowledged.lock().unwrap();
                        *acknowledged = acknowledged.max(last);
                    }
                });
            }
            log.wait_durable(Lsn(100_000), None).unwrap();
            log.close().unwrap();
        });
        let acknowledged = acknowledged.into_inner().unwrap();
        let tail = store.settle().unwrap();
        overtaken += u64::from(log.reserved() > tail.end);
        assert!(
            tail.end >= acknowledged,
            "{kind:?}, round {round}: ends at {}, {acknowledged} was acknowledged",
            tail.end
        );
    }
    println!("{overtaken} times a block came after the last flush");
}

#[test]
fn epochs_do_not_stand_still_when_the_buffer_is_smaller_than_a_batch() {
    let config =
        LogConfig { batch_bytes: 1 << 20, group_commit: GroupCommitKind::Epoch(Duration::from_millis(1)), ..small() };
    let log = Log::open(config, Some(LogStore::in_memory(CONFIG)), Lsn(0), Term(1)).unwrap();
    thread::scope(|scope| {
        for worker in 0..3 {
            let log = &log;
            scope.spawn(move || {
                let (mut writer, mut builder) = (log.writer().unwrap(), BlockBuilder::new());
                // Without throttling: they wait for room when they have reserved already.
                for _ in 0..3000 {
                    write_one(&mut writer, &mut builder, worker, &[7; 100]);
                }
            });
        }
    });
    let end = log.reserved();
    assert!(log.wait_durable(end, None).unwrap() >= end);
    log.close().unwrap();
}

#[test]
fn what_is_kept_of_several_streams_can_be_read_after_older_segments_went() {
    // Smaller than the distance of landmarks.
    let config = StoreConfig { segment_size: 4096, ..CONFIG };
    let store = LogStore::of((0..2).map(|_| SegmentStore::in_memory(config)).collect());
    let log = Log::open(small(), Some(store.clone()), Lsn(0), Term(1)).unwrap();
    let mut writers = [log.writer().unwrap(), log.writer().unwrap()];
    let mut builder = BlockBuilder::new();
    let mut write = |number: u64| {
        // The second stream has a tenth of the first.
        let writer = &mut writers[usize::from(number % 10 == 9)];
        builder.begin_in(writer.stream());
        builder.push(None, Fid(1), Rid(number), RecordKind::Insert, &[7; 100]).unwrap();
        let reservation = writer.reserve(builder.seal_records()).unwrap();
        let place = (reservation.lsn(), reservation.end());
        reservation.fill(builder.finish(place.0, Term(1), BlockKind::Redo)).unwrap();
        place
    };
    let mut begins = Vec::new();
    for number in 0..3000 {
        let (lsn, end) = write(number);
        begins.push(lsn);
        if number % 100 == 99 {
            log.wait_durable(end, None).unwrap();
            let kept = begins.len() - 50;
            store.remove_below(begins[kept]).unwrap();
            for at in (kept..begins.len()).step_by(7) {
                assert_eq!(blocks(&log, begins[at], end).len(), begins.len() - at);
            }
        }
    }
    assert!(matches!(store.read(Lsn(0), &mut [0; 32]), Err(StoreError::Gone { .. })));
}

/// A block in a stream whose group commit sleeps becomes durable by itself, whichever thread wrote
/// it, and though nobody waits for it.
#[test]
fn every_stream_that_gets_a_block_wakes_up() {
    let store = LogStore::of((0..3).map(|_| SegmentStore::in_memory(CONFIG)).collect());
    store.settle().unwrap();
    let config = LogConfig { division: Division::Page(1), interval: Duration::from_micros(100), ..small() };
    let log = Log::open(config, Some(store), Lsn(0), Term(1)).unwrap();
    let (mut writer, mut builder) = (log.writer().unwrap(), BlockBuilder::new());
    for round in 0..30u8 {
        // Long enough for all of them to fall asleep.
        thread::sleep(Duration::from_millis(2));
        builder.begin_in(round % 3);
        builder.push(None, Fid(1), Rid(1), RecordKind::Insert, &[1; 40]).unwrap();
        let length = builder.seal_records();
        let reservation = writer.reserve(length).unwrap();
        let (lsn, end) = (reservation.lsn(), reservation.end());
        reservation.fill(builder.finish(lsn, Term(1), BlockKind::Redo)).unwrap();
        let deadline = Some(std::time::Instant::now() + Duration::from_secs(20));
        log.durable_mark().wait(end, deadline).expect("nobody has to ask for it");
    }
    drop(writer);
    log.close().unwrap();
}
