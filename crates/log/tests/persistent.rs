//! The log with its buffer in mapped memory: what was acknowledged is found again, in the buffer or
//! in the segments. With FRESHET_DAX the temporary directory must be on a DAX file system.

mod stores;

use std::{path::Path, time::Duration};

use freshet_base::{Fid, Lsn, NodeId, Rid, Term, versions::OtherVersion};
use freshet_log::{
    Block, BlockBuilder, BlockKind, ForceFence, GroupCommitKind, Log, LogConfig, Persistence, RecordKind, Writer,
    persist::{BufferError, Medium, Method, PersistenceConfig, recover_buffer},
};
use freshet_testing::available;
use stores::store;

const RING: usize = 64 << 10;

fn persistence(directory: &Path, method: Method) -> PersistenceConfig {
    PersistenceConfig {
        path: directory.join("buffer"),
        owner: NodeId(7),
        method,
        delay: Duration::ZERO,
        delay_per_kib: Duration::ZERO,
    }
}

fn open(directory: &Path, streams: usize, method: Method, kind: GroupCommitKind) -> (Log, Lsn) {
    let store = store(directory, streams);
    let tail = store.settle_before_buffer().unwrap();
    let end = recover_buffer(&directory.join("buffer"), NodeId(7), &store, &tail, &[], false).unwrap();
    let config = LogConfig { capacity: RING, partition: 4096, group_commit: kind, ..LogConfig::default() };
    let log = Log::open(config, Persistence::Pmem(store, persistence(directory, method)), end, Term(1)).unwrap();
    if std::env::var_os("FRESHET_DAX").is_some() {
        assert_eq!(log.persistent_medium().unwrap().0, Medium::Dax);
    }
    (log, end)
}

fn write(writer: &mut Writer, builder: &mut BlockBuilder, rid: u64) -> (Lsn, Lsn) {
    builder.begin_in(writer.stream());
    let row = vec![rid as u8; (rid % 300) as usize];
    builder.push(None, Fid(1), Rid(rid), RecordKind::Insert, &row).unwrap();
    let length = builder.seal_records();
    writer.throttle().unwrap();
    let reservation = writer.reserve(length).unwrap();
    let place = (reservation.lsn(), reservation.end());
    reservation.fill(builder.finish(place.0, Term(1), BlockKind::Redo)).unwrap();
    place
}

fn kinds() -> [GroupCommitKind; 3] {
    [
        GroupCommitKind::Pipelined,
        GroupCommitKind::Passive(ForceFence::Signal),
        GroupCommitKind::Passive(ForceFence::Membarrier),
    ]
}

/// The process ends without closing anything, again and again: the mapping keeps what was stored.
#[test]
fn what_was_acknowledged_is_there_after_the_process_ended() {
    for (round, method) in
        available("a buffer that persists", Method::ALL, |it| it.is_available()).into_iter().enumerate()
    {
        for kind in kinds() {
            let directory = tempfile::tempdir().unwrap();
            let streams = round % 3 + 1;
            let mut written = Vec::new();
            // Rounds that fill the ring many times over, and one that stays within it.
            for count in [900, 20, 700] {
                let (log, begin) = open(directory.path(), streams, method, kind);
                let known = written.last().map_or(Lsn(0), |(_, end, _): &(Lsn, Lsn, u64)| *end);
                assert!(begin >= known, "{method} {kind:?}: begins at {begin}, {known} was acknowledged");
                let mut writers: Vec<_> = (0..streams).map(|_| log.writer().unwrap()).collect();
                let mut builder = BlockBuilder::new();
                for rid in 0..count {
                    let (lsn, end) = write(&mut writers[rid as usize % streams], &mut builder, rid);
                    written.push((lsn, end, rid));
                    if rid % 7 == 0 {
                        assert!(log.wait_durable(end, None).unwrap() >= end);
                    }
                }
                let end = written.last().unwrap().1;
                log.wait_durable(end, None).unwrap();
                if count == 700 {
                    log.close().unwrap();
                } else {
                    // As by kill -9: no thread of this log does anything more that counts.
                    log.crash_for_test();
                }
            }
            let store = store(directory.path(), streams);
            let tail = store.settle_before_buffer().unwrap();
            let end = recover_buffer(&directory.path().join("buffer"), NodeId(7), &store, &tail, &[], false).unwrap();
            assert_eq!(end, written.last().unwrap().1);
            for (lsn, end, rid) in written {
                let mut bytes = vec![0; end.since(lsn) as usize];
                store.read(lsn, &mut bytes).unwrap();
                let block = Block::parse(&bytes, lsn).unwrap();
                assert_eq!(block.records().next().unwrap().header.rid, Rid(rid));
            }
        }
    }
}

/// A worker that commits and then does nothing for long does not hold others back.
#[test]
fn stragglers_are_force_fenced() {
    for force_fence in [ForceFence::Signal, ForceFence::Membarrier] {
        let directory = tempfile::tempdir().unwrap();
        let method = Method::best().expect("this processor has one");
        let (log, _) = open(directory.path(), 1, method, GroupCommitKind::Passive(force_fence));
        let (go, wait) = std::sync::mpsc::channel::<()>();
        std::thread::scope(|scope| {
            let (sends, receives) = std::sync::mpsc::channel();
            let straggling = &log;
            scope.spawn(move || {
                let mut writer = straggling.writer().unwrap();
                let (_, end) = write(&mut writer, &mut BlockBuilder::new(), 1);
                sends.send(end).unwrap();
                // A long transaction that only reads.
                wait.recv().unwrap();
            });
            let theirs = receives.recv().unwrap();
            let mut writer = log.writer().unwrap();
            let (_, mine) = write(&mut writer, &mut BlockBuilder::new(), 2);
            assert!(log.wait_durable(theirs.max(mine), None).unwrap() >= mine);
            assert!(log.force_fences() > 0, "{force_fence:?}");
            go.send(()).unwrap();
        });
        log.close().unwrap();
    }
}

#[test]
fn a_buffer_that_is_not_this_logs_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("buffer");
    let method = Method::best().unwrap();
    let (log, _) = open(directory.path(), 1, method, GroupCommitKind::Pipelined);
    let medium = log.persistent_medium().unwrap();
    assert_eq!(medium.1, method);
    assert!(matches!(medium.0, Medium::Dax | Medium::Emulated { .. }));
    let mut writer = log.writer().unwrap();
    let (_, end) = write(&mut writer, &mut BlockBuilder::new(), 5);
    log.wait_durable(end, None).unwrap();
    drop(writer);
    log.crash_for_test();
    let store = store(directory.path(), 1);
    let found = store.settle_before_buffer().unwrap();
    let good = std::fs::read(&path).unwrap();
    let mut newer = good.clone();
    newer[8] ^= 1;
    std::fs::write(&path, &newer).unwrap();
    let error = recover_buffer(&path, NodeId(7), &store, &found, &[], false).unwrap_err();
    assert!(matches!(error, BufferError::Format { cause: OtherVersion { found: 3, .. }, .. }), "{error}");
    for (at, what) in [(20, "header"), (36, "header"), (44, "header")] {
        let mut bad = good.clone();
        bad[at] ^= 1;
        std::fs::write(&path, bad).unwrap();
        let error = recover_buffer(&path, NodeId(7), &store, &found, &[], false).unwrap_err();
        assert!(matches!(error, BufferError::Damaged { .. }) && error.to_string().contains(what), "{error}");
    }
    let mut foreign = good.clone();
    foreign[0] ^= 1;
    let mut image = good.clone();
    image[..1024].fill(0);
    for foreign in [foreign, image, b"short".to_vec()] {
        std::fs::write(&path, &foreign).unwrap();
        let error = recover_buffer(&path, NodeId(7), &store, &found, &[], false).unwrap_err();
        assert!(matches!(&error, BufferError::Foreign(file) if *file == path), "{error}");
        // It was one: then it is damaged.
        let error = recover_buffer(&path, NodeId(7), &store, &found, &[], true).unwrap_err();
        assert!(matches!(error, BufferError::Damaged { .. }), "{error}");
        assert_eq!(std::fs::read(&path).unwrap(), foreign);
    }
    // Another node's, of the same cluster.
    std::fs::write(&path, &good).unwrap();
    let error = recover_buffer(&path, NodeId(8), &store, &found, &[], false).unwrap_err();
    assert!(matches!(&error, BufferError::Foreign(file) if *file == path), "{error}");
    assert_eq!(std::fs::read(&path).unwrap(), good);
    let mut bad = good.clone();
    bad[2048..2176].fill(0);
    std::fs::write(&path, bad).unwrap();
    assert!(
        recover_buffer(&path, NodeId(7), &store, &found, &[], false)
            .unwrap_err()
            .to_string()
            .contains("how far the segments are")
    );
    std::fs::write(&path, &good[..good.len() - 4096]).unwrap();
    assert!(recover_buffer(&path, NodeId(7), &store, &found, &[], false).unwrap_err().to_string().contains("length"));
    // A torn end is no damage: it was not acknowledged.
    let mut torn = good.clone();
    torn[4096 + 40] ^= 1;
    std::fs::write(&path, torn).unwrap();
    assert_eq!(recover_buffer(&path, NodeId(7), &store, &found, &[], false).unwrap(), found.end);
    std::fs::write(&path, good).unwrap();
    assert_eq!(recover_buffer(&path, NodeId(7), &store, &found, &[], false).unwrap(), end);
    let again = store.settle_before_buffer().unwrap();
    assert_eq!(again.end, end);
    assert_eq!(recover_buffer(&path, NodeId(7), &store, &again, &[], false).unwrap(), end, "twice does no harm");
    assert_eq!(recover_buffer(&directory.path().join("none"), NodeId(7), &store, &again, &[], false).unwrap(), end);
}

/// A block that was filled in behind one that was not is no part of the log, and does not become
/// one when another crash finds the log ending just before it.
#[test]
fn what_one_crash_cut_off_the_next_one_does_not_bring_back() {
    for (kind, streams) in kinds().into_iter().flat_map(|kind| [(kind, 1), (kind, 3)]) {
        let directory = tempfile::tempdir().unwrap();
        let method = Method::best().unwrap();
        let mut builder = BlockBuilder::new();
        let known = {
            let (log, _) = open(directory.path(), streams, method, kind);
            let (mut first, mut second) = (log.writer().unwrap(), log.writer().unwrap());
            let (_, known) = write(&mut first, &mut builder, 1);
            log.wait_durable(known, None).unwrap();
            // One worker dies between its place and its block, another has filled in the next.
            std::mem::forget(first.reserve(320).unwrap());
            write(&mut second, &mut builder, 2);
            log.crash_for_test();
            known
        };
        let end = {
            let (log, begin) = open(directory.path(), streams, method, kind);
            assert_eq!(begin, known, "{kind:?}, {streams}");
            let mut writer = log.writer().unwrap();
            builder.begin_in(writer.stream());
            builder.push(None, Fid(1), Rid(3), RecordKind::Insert, &[3; 320 - 64]).unwrap();
            let length = builder.seal_records();
            assert_eq!(length, 320, "it ends where the one that was cut off began");
            let reservation = writer.reserve(length).unwrap();
            let (lsn, end) = (reservation.lsn(), reservation.end());
            reservation.fill(builder.finish(lsn, Term(1), BlockKind::Redo)).unwrap();
            log.wait_durable(end, None).unwrap();
            log.crash_for_test();
            end
        };
        let (log, begin) = open(directory.path(), streams, method, kind);
        assert_eq!(begin, end, "{kind:?}, {streams}: the second crash found a block of before the first one");
        log.close().unwrap();
    }
}
