//! Transactions that are longer than the ring: put there part by part, in the log as a whole or not
//! at all.

mod stores;

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
    sync::{Arc, Mutex},
    thread,
    time::Duration,
};

use freshet_base::{Fid, Lsn, NodeId, Rid, Term};
use freshet_log::{
    Batch, Block, BlockBuilder, BlockHeader, BlockKind, ForceFence, GroupCommitKind, Log, LogConfig, LogReader,
    LogStore, Persistence, RecordKind, ReserveError, Sink, Writer,
    persist::{Method, PersistenceConfig, recover_buffer},
};
use stores::{CONFIG, store};

const RING: usize = 16 << 10;
const EPOCH: GroupCommitKind = GroupCommitKind::Epoch(Duration::from_millis(1));

fn small(group_commit: GroupCommitKind) -> LogConfig {
    LogConfig { capacity: RING, partition: 1 << 10, batch_bytes: 4 << 10, group_commit, ..LogConfig::default() }
}

fn one(writer: &mut Writer, builder: &mut BlockBuilder, rid: u64) -> Result<(Lsn, Lsn), ReserveError> {
    builder.begin_in(writer.stream());
    builder.push(None, Fid(1), Rid(rid), RecordKind::Insert, &[1; 40]).unwrap();
    let length = builder.seal_records();
    writer.throttle()?;
    let reservation = writer.reserve(length)?;
    let place = (reservation.lsn(), reservation.end());
    reservation.fill(builder.finish(place.0, Term(1), BlockKind::Redo))?;
    Ok(place)
}

/// A transaction of `parts` blocks of about a kilobyte, dealt out among the streams. Stops in the
/// middle when `go_on` says so.
fn long(
    writer: &mut Writer,
    streams: usize,
    (rid, parts): (u64, u64),
    mut go_on: impl FnMut(u64) -> bool,
) -> Result<(Lsn, Lsn), ReserveError> {
    let mut builder = BlockBuilder::new();
    let build = |builder: &mut BlockBuilder, part: u64| {
        builder.begin_in((part % streams as u64) as u8);
        let row = vec![part as u8; (900 + part * 7 % 100) as usize];
        builder.push(None, Fid(2), Rid(rid), RecordKind::Insert, &row).unwrap();
        builder.seal_records()
    };
    let length = (0..parts).map(|part| build(&mut builder, part)).sum();
    writer.throttle()?;
    let mut reservation = writer.reserve(length)?;
    let place = (reservation.lsn(), reservation.end());
    for part in 0..parts {
        if !go_on(part) {
            std::mem::forget(reservation);
            return Ok(place);
        }
        build(&mut builder, part);
        reservation.put(builder.finish_part(reservation.at(), Term(1), BlockKind::Redo, part + 1 == parts))?;
    }
    Ok(place)
}

/// All transactions of `[0, to)`: where each begins and ends, its first table and record, and how
/// many blocks it has.
fn transactions(read: impl Fn(Lsn, &mut [u8]), to: Lsn) -> BTreeMap<Lsn, (Lsn, Fid, Rid, u64)> {
    let (mut at, mut begin, mut blocks) = (Lsn(0), Lsn(0), 0);
    let mut found = BTreeMap::new();
    while at < to {
        let mut head = [0; 32];
        read(at, &mut head);
        let mut bytes = vec![0; BlockHeader::peek(&head).unwrap().length as usize];
        read(at, &mut bytes);
        let block = Block::parse(&bytes, at).unwrap();
        blocks += 1;
        at = block.end();
        if !block.header().continued {
            let record =
                block.records().next().map_or((Fid(0), Rid(0)), |record| (record.header.fid, record.header.rid));
            found.insert(begin, (at, record.0, record.1, blocks));
            (begin, blocks) = (at, 0);
        }
    }
    assert_eq!(begin, to, "the log ends with a transaction");
    found
}

/// Receives batches, and reads them while they are in the ring.
#[derive(Default)]
struct Recorder {
    reader: Mutex<Option<LogReader>>,
    recorded: Mutex<Recorded>,
}

#[derive(Default)]
struct Recorded {
    bytes: Vec<u8>,
    transaction_ends: BTreeSet<Lsn>,
    partition_ends: BTreeSet<Lsn>,
}

impl Sink for Recorder {
    fn batch(&self, batch: &Batch<'_>) {
        let mut recorded = self.recorded.lock().unwrap();
        let from = recorded.bytes.len();
        assert_eq!(from as u64, batch.from.0);
        recorded.bytes.resize(batch.to.0 as usize, 0);
        let reader = self.reader.lock().unwrap().clone().expect("it was given before anything was written");
        reader.read(batch.from, &mut recorded.bytes[from..]).unwrap();
        assert!(batch.transaction_ends.is_sorted());
        recorded.transaction_ends.extend(batch.transaction_ends);
        recorded.partition_ends.extend(batch.partition_ends);
    }
}

#[test]
fn they_share_the_log_with_others() {
    for (streams, kind) in [(1, GroupCommitKind::Pipelined), (3, GroupCommitKind::Pipelined), (1, EPOCH), (2, EPOCH)] {
        let directory = tempfile::tempdir().unwrap();
        let store = store(directory.path(), streams);
        store.settle().unwrap();
        let log = Log::open(small(kind), Some(store), Lsn(0), Term(1)).unwrap();
        let recorder = Arc::new(Recorder::default());
        *recorder.reader.lock().unwrap() = Some(log.reader());
        let handle = log.attach(Arc::clone(&recorder) as _);
        let written = Mutex::new(BTreeMap::new());
        thread::scope(|scope| {
            for worker in 0..4u64 {
                let (log, written) = (&log, &written);
                scope.spawn(move || {
                    let (mut writer, mut builder) = (log.writer().unwrap(), BlockBuilder::new());
                    for i in 0..if worker < 2 { 400 } else { 6 } {
                        let rid = worker * 1000 + i;
                        let (place, kind) = match worker {
                            ..2 => (one(&mut writer, &mut builder, rid).unwrap(), (Fid(1), 1)),
                            // Both of them are longer than the ring.
                            _ => {
                                (long(&mut writer, streams, (rid, 20 + i * 5), |_| true).unwrap(), (Fid(2), 20 + i * 5))
                            }
                        };
                        if i % 50 == 7 {
                            assert!(log.wait_durable(place.1, None).unwrap() >= place.1);
                        }
                        if i % 5 == 3 {
                            let reservation = writer.reserve(40_000).unwrap();
                            assert_eq!(reservation.at(), reservation.lsn());
                            if worker == 3 {
                                reservation.skip();
                            } else {
                                drop(reservation);
                            }
                        }
                        written.lock().unwrap().insert(place.0, (place.1, kind.0, Rid(rid), kind.1));
                    }
                });
            }
        });
        log.close().unwrap();
        let end = log.durable();
        assert_eq!(end, log.reserved());
        drop(handle);
        let mut found = transactions(|at, into| log.read(at, into).unwrap(), end);
        found.retain(|_, transaction| transaction.1 != Fid(0));
        assert_eq!(found, *written.lock().unwrap(), "{streams} streams, {kind:?}");
        let recorded = recorder.recorded.lock().unwrap();
        let all = transactions(|at, into| into.copy_from_slice(&recorded.bytes[at.0 as usize..][..into.len()]), end);
        let ends: BTreeSet<Lsn> = all.values().map(|transaction| transaction.0).collect();
        // Those of a long transaction that was skipped are ends, but count as one transaction while
        // they come.
        assert!(recorded.transaction_ends.is_subset(&ends));
        assert_eq!(recorded.transaction_ends.last(), Some(&end));
        let within = recorded.partition_ends.iter().filter(|end| !ends.contains(end)).count();
        assert!(within > 100, "what is shipped need not be whole transactions: {within}");
        assert!(recorded.partition_ends.iter().filter(|end| ends.contains(end)).count() > 5);
    }
}

#[test]
fn without_a_store_sinks_make_room_within_them() {
    let log = Log::open(small(GroupCommitKind::Pipelined), Persistence::None, Lsn(0), Term(1)).unwrap();
    let recorder = Arc::new(Recorder::default());
    *recorder.reader.lock().unwrap() = Some(log.reader());
    let handle = log.attach(Arc::clone(&recorder) as _);
    thread::scope(|scope| {
        let writing = scope.spawn(|| long(&mut log.writer().unwrap(), 1, (1, 100), |_| true).unwrap());
        let mut at = Lsn(0);
        while !writing.is_finished() {
            at = at.max(log.durable());
            handle.release(at);
            thread::yield_now();
        }
        let (_, end) = writing.join().unwrap();
        log.wait_durable(end, None).unwrap();
        let recorded = recorder.recorded.lock().unwrap();
        assert_eq!(recorded.transaction_ends, BTreeSet::from([end]));
    });
}

#[test]
fn one_that_is_too_long_is_refused() {
    let config = LogConfig { longest_transaction: 100_000, ..small(GroupCommitKind::Pipelined) };
    let log = Log::open(config, Some(LogStore::in_memory(CONFIG)), Lsn(0), Term(1)).unwrap();
    let mut writer = log.writer().unwrap();
    let refused = writer.reserve(100_008).map(drop).unwrap_err();
    assert!(matches!(refused, ReserveError::TransactionTooLarge { length: 100_008, limit: 100_000 }), "{refused}");
    assert_eq!(log.reserved(), Lsn(0));
    writer.reserve(100_000).unwrap().skip();
    log.wait_durable(Lsn(100_000), None).unwrap();
    assert!(LogConfig { longest_transaction: 4000, ..config }.check().is_err());
}

#[test]
fn a_part_of_one_ends_the_log() {
    let directory = tempfile::tempdir().unwrap();
    {
        let store = store(directory.path(), 1);
        let log = Log::open(small(GroupCommitKind::Pipelined), Some(store), Lsn(0), Term(1)).unwrap();
        let (mut writer, mut builder) = (log.writer().unwrap(), BlockBuilder::new());
        let (_, end) = one(&mut writer, &mut builder, 1).unwrap();
        assert_eq!(end, Lsn(104));
        let mut reservation = writer.reserve(40_000).unwrap();
        builder.begin();
        builder.push(None, Fid(2), Rid(2), RecordKind::Insert, &[2; 936]).unwrap();
        builder.seal_records();
        for _ in 0..30 {
            reservation.put(builder.finish_part(reservation.at(), Term(1), BlockKind::Redo, false)).unwrap();
        }
        drop(reservation);
        assert!(log.failure().is_some());
        assert!(log.wait_durable(Lsn(40_104), None).is_err() && writer.reserve(104).is_err());
    }
    let found = store(directory.path(), 1).settle().unwrap();
    assert_eq!((found.end, found.blocks_end), (Lsn(104), Lsn(104)));
}

/// The node dies while one is put into the ring: it is gone as a whole, and so is what others had
/// reserved behind it.
#[test]
fn one_that_a_crash_interrupts_never_was() {
    for (streams, kind) in [(1, GroupCommitKind::Pipelined), (3, GroupCommitKind::Pipelined), (2, EPOCH)] {
        for stop in [0, 1, 10, 25, 39] {
            let directory = tempfile::tempdir().unwrap();
            let mut known = Lsn(0);
            for round in 0..3u64 {
                let store = store(directory.path(), streams);
                let found = store.settle().unwrap();
                assert_eq!(found.end, known, "{streams} streams, {kind:?}, {stop} parts, round {round}");
                let log = Log::open(small(kind), Some(store), known, Term(1)).unwrap();
                let (mut writer, mut builder) = (log.writer().unwrap(), BlockBuilder::new());
                let (_, end) = long(&mut writer, streams, (round, 30), |_| true).unwrap();
                log.wait_durable(end, None).unwrap();
                (_, known) = one(&mut writer, &mut builder, round).unwrap();
                log.wait_durable(known, None).unwrap();
                let mut late = log.writer().unwrap();
                let (begin, _) = long(&mut writer, streams, (round, 40), |part| part < stop).unwrap();
                // What could be written out of it was.
                let there = begin.0 + 900 * stop;
                while kind != EPOCH && stop > 0 && log.durable().0 < there - 2000 {
                    log.force_fence(Lsn(there));
                    thread::yield_now();
                }
                std::mem::forget(late.reserve(104).unwrap());
                log.crash_for_test();
                std::mem::forget((writer, late));
            }
        }
    }
}

fn persistence(directory: &Path) -> PersistenceConfig {
    let method = Method::best().expect("this processor has one");
    PersistenceConfig {
        path: directory.join("buffer"),
        owner: NodeId(7),
        method,
        delay: Duration::ZERO,
        delay_per_kib: Duration::ZERO,
    }
}

/// The same with a buffer in persistent memory, a part is in the segments and a part is
/// not; and one that is whole, but in part only in the buffer, is there.
#[test]
fn one_in_persistent_memory_is_there_or_not() {
    let kinds = [GroupCommitKind::Pipelined, GroupCommitKind::Passive(ForceFence::Signal)];
    for (streams, kind) in kinds.into_iter().flat_map(|kind| [(1, kind), (2, kind)]) {
        for stop in [0, 5, 17, 39, 40] {
            let directory = tempfile::tempdir().unwrap();
            let mut known = Lsn(0);
            for round in 0..3u64 {
                let store = store(directory.path(), streams);
                let tail = store.settle_before_buffer().unwrap();
                let mut end =
                    recover_buffer(&directory.path().join("buffer"), NodeId(7), &store, &tail, &[], false).unwrap();
                if tail.end < tail.blocks_end && end == tail.blocks_end {
                    std::fs::remove_file(directory.path().join("buffer")).unwrap();
                    end = store.settle().unwrap().end;
                }
                assert_eq!(end, known, "{streams} streams, {kind:?}, {stop} parts, round {round}");
                let found = transactions(|at, into| store.read(at, into).unwrap(), known);
                assert_eq!(found.len() as u64, round * if stop == 40 { 3 } else { 2 });
                let persistence = persistence(directory.path());
                let log = Log::open(small(kind), Persistence::Pmem(store, persistence), known, Term(1)).unwrap();
                let (mut writer, mut builder) = (log.writer().unwrap(), BlockBuilder::new());
                long(&mut writer, streams, (round, 30), |_| true).unwrap();
                (_, known) = one(&mut writer, &mut builder, round).unwrap();
                let (_, end) = long(&mut writer, streams, (round, 40), |part| part < stop).unwrap();
                if stop == 40 {
                    known = end;
                }
                log.wait_durable(known, None).unwrap();
                log.crash_for_test();
                std::mem::forget(writer);
            }
        }
    }
}

/// A standby receives a long transaction in pieces that are no transactions, and is interrupted.
#[test]
fn a_standby_knows_where_transactions_end() {
    let source = LogStore::in_memory(CONFIG);
    let log = Log::open(small(GroupCommitKind::Pipelined), Some(source.clone()), Lsn(0), Term(1)).unwrap();
    let (mut writer, mut builder) = (log.writer().unwrap(), BlockBuilder::new());
    for i in 0..10 {
        one(&mut writer, &mut builder, i).unwrap();
        long(&mut writer, 1, (i, 3 + i % 3 * 20), |_| true).unwrap();
    }
    drop(writer);
    log.close().unwrap();
    let end = log.durable();
    let transactions = transactions(|at, into| source.read(at, into).unwrap(), end);
    let ends: Vec<Lsn> = std::iter::once(Lsn(0)).chain(transactions.values().map(|it| it.0)).collect();
    let whole = |at: Lsn| *ends.iter().rev().find(|end| **end <= at).unwrap();
    for streams in [1, 2] {
        let directory = tempfile::tempdir().unwrap();
        let mut at = Lsn(0);
        for round in 0..7u64 {
            let store = store(directory.path(), streams);
            let found = store.settle().unwrap();
            // What was half a transaction when it was closed is cut off.
            assert_eq!(found.end, whole(at), "{streams} streams, round {round}");
            at = found.end;
            let (standby, mut receiver) = Log::receive(RING, store, at).unwrap();
            assert_eq!(standby.transaction_end(at), at);
            let until = Lsn(end.0 * (round + 1) / 7);
            while at < until {
                // One block, or some.
                let mut to = at;
                for _ in 0..1 + at.0 % 5 {
                    let mut head = [0; 32];
                    source.read(to, &mut head).unwrap();
                    let next = to.plus(u64::from(BlockHeader::peek(&head).unwrap().length));
                    if to > at && next > until {
                        break;
                    }
                    to = next;
                    if to >= end {
                        break;
                    }
                }
                let mut bytes = vec![0; to.since(at) as usize];
                source.read(at, &mut bytes).unwrap();
                standby.note_replayed(at);
                receiver.wait_room(to).unwrap();
                receiver.append(&bytes).unwrap();
                at = to;
                assert_eq!(standby.transaction_end(at), whole(at), "{streams} streams, at {at}");
            }
            standby.durable_mark().wait(at, None).unwrap();
            if round == 3 {
                // A failover: half a transaction goes, and the rest comes again.
                let cut = whole(at);
                receiver.cut(cut).unwrap();
                assert_eq!((receiver.received(), standby.transaction_end(cut)), (cut, cut));
                at = cut;
            }
            drop(receiver);
            standby.close().unwrap();
        }
        assert_eq!(at, end);
        let store = store(directory.path(), streams);
        assert_eq!(store.settle().unwrap().end, end);
        let mut bytes = vec![0; end.0 as usize];
        store.read(Lsn(0), &mut bytes).unwrap();
        let mut expected = vec![0; end.0 as usize];
        source.read(Lsn(0), &mut expected).unwrap();
        assert!(bytes == expected);
    }
}
