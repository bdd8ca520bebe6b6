//! Logs of one and several streams, looked at from outside: whole, damaged, torn, shortened, and
//! while they are written.

use std::{
    collections::BTreeMap,
    fs,
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use freshet_base::{ClusterId, Fid, Lsn, NodeId, Rid, Term};
use freshet_log::{
    BlockBuilder, BlockHeader, BlockKind, Control, GroupCommitKind, Log, LogConfig, LogDirectory, LogStore, RecordKind,
    SegmentStore, StoreConfig, StoreError, Writer,
    inspect::{Finding, Inspection, View},
};

const CONFIG: StoreConfig = StoreConfig { cluster: ClusterId(7), segment_size: 4096 };
const NODE: NodeId = NodeId(9);

fn control(streams: usize) -> Control {
    let (terms, latest_term) = (vec![(Term(3), Lsn(0), NodeId(1), 1)], (Term(3), Some(NODE)));
    Control { terms, latest_term, ..Control::new(CONFIG.cluster, NODE, CONFIG.segment_size, streams) }
}

fn open(store: LogStore, group_commit: GroupCommitKind) -> Log {
    let end = store.settle().unwrap().end;
    let config = LogConfig { capacity: 1 << 16, partition: 1024, group_commit, ..LogConfig::default() };
    Log::open(config, Some(store), end, Term(3)).unwrap()
}

/// Writes a transaction with a block in the writer's stream and, if `second` says so, one in
/// another.
fn write(writer: &mut Writer, builder: &mut BlockBuilder, number: u64, second: Option<u8>) -> Lsn {
    builder.begin_in(writer.stream());
    builder.push(None, Fid(1), Rid(number), RecordKind::Insert, &[number as u8; 100]).unwrap();
    if let Some(second) = second {
        builder.next_block_in(second);
        builder.push(None, Fid(1), Rid(number), RecordKind::Update, &[1; 30]).unwrap();
    }
    let reservation = writer.reserve(builder.seal_records()).unwrap();
    let lsn = reservation.lsn();
    reservation.fill(builder.finish(lsn, Term(3), BlockKind::Redo)).unwrap();
    lsn
}

/// Makes a log with `streams` streams and at least `transactions` transactions. Returns where it
/// ends.
fn fill(path: &Path, directories: &[PathBuf], streams: usize, transactions: u64) -> Lsn {
    let directory = LogDirectory::create(path, control(streams)).unwrap();
    let log = open(directory.open_store(directories).unwrap(), GroupCommitKind::Pipelined);
    log.begin_term(NODE).unwrap();
    let mut writers: Vec<Writer> = (0..streams).map(|_| log.writer().unwrap()).collect();
    let mut builder = BlockBuilder::new();
    for number in 0..transactions {
        let second = (number % 3 == 0).then_some((number % streams as u64) as u8);
        // One stream gets more than another.
        let writer = &mut writers[(number % 7) as usize % streams];
        write(writer, &mut builder, number, second);
        if number == 10 {
            writers[0].note_time(1_789_000_000_123_456).unwrap();
        }
    }
    drop(writers);
    log.close().unwrap();
    log.durable()
}

fn findings(path: &Path) -> Vec<Finding> {
    Inspection::open(path).unwrap().map(Result::unwrap).collect()
}

/// Of each block the stream, the position and the header.
fn blocks(findings: &[Finding]) -> Vec<(usize, Lsn, BlockHeader)> {
    let block = |finding: &Finding| match finding {
        Finding::Block { stream, position, header, .. } => Some((*stream, *position, *header)),
        _ => None,
    };
    findings.iter().filter_map(block).collect()
}

/// All files below a directory, with their contents.
fn contents(path: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(path).unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => found.extend(contents(&path)),
            false => drop(found.insert(path.clone(), fs::read(&path).unwrap())),
        }
    }
    found
}

fn flip(path: &Path, offset: u64) {
    let file = fs::OpenOptions::new().read(true).write(true).open(path).unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, offset).unwrap();
    file.write_all_at(&[!byte[0]], offset).unwrap();
}

#[test]
fn streams_are_merged_by_lsn_and_each_is_shown_by_position() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path();
    let end = fill(path, &[], 3, 200);
    let before = contents(path);
    let inspection = Inspection::open(path).unwrap();
    assert_eq!((inspection.view(), inspection.log_streams()), (View::Log, 3));
    assert_eq!((inspection.cluster(), inspection.node()), (Some(ClusterId(7)), Some(NODE)));
    assert_eq!((inspection.watermark(), inspection.persistent_epoch()), (Some(end), None));
    let notes: Vec<_> = inspection.streams().cloned().collect();
    let found: Vec<Finding> = inspection.map(Result::unwrap).collect();
    assert_eq!(found.last(), Some(&Finding::End { at: end }));
    let merged = blocks(&found);
    assert_eq!(merged.len() + 1, found.len());
    let mut next = Lsn::ZERO;
    for (stream, _, header) in &merged {
        assert_eq!((header.lsn, usize::from(header.stream)), (next, *stream));
        next = header.end();
    }
    assert_eq!(next, end);
    assert!(matches!(found[0], Finding::Block { begins_term: Some((Term(3), NODE)), time: None, .. }));
    let times = |finding: &Finding| matches!(finding, Finding::Block { time: Some(1_789_000_000_123_456), .. });
    assert_eq!(found.iter().filter(|finding| times(finding)).count(), 1);
    assert!(merged.iter().any(|(.., header)| header.continued));

    let mut all = Vec::new();
    for (stream, notes) in notes.iter().enumerate() {
        let path = path.join(format!("stream-{stream}"));
        let inspection = Inspection::open(&path).unwrap();
        assert_eq!((inspection.view(), inspection.log_streams()), (View::Stream, 3));
        assert_eq!((inspection.node(), inspection.watermark()), (Some(NODE), None));
        assert_eq!(inspection.streams().next(), Some(notes));
        assert_eq!((notes.stream, notes.bound), (stream, end));
        let found: Vec<Finding> = inspection.map(Result::unwrap).collect();
        assert_eq!(found.last(), Some(&Finding::End { at: notes.durable }));
        let blocks = blocks(&found);
        let mut next = Lsn::ZERO;
        for (number, position, header) in &blocks {
            assert_eq!((*number, *position), (stream, next));
            next = next.plus(u64::from(header.length));
        }
        assert_eq!(next, notes.durable);
        all.extend(blocks);
    }
    all.sort_by_key(|(.., header)| header.lsn);
    assert_eq!(all, merged);
    assert_eq!(contents(path), before, "looking changes nothing");
}

#[test]
fn damage_in_one_stream_is_a_bad_place_and_a_gap() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path();
    fill(path, &[], 2, 100);
    let whole = blocks(&findings(path));
    let place = whole.iter().rposition(|(stream, position, _)| *stream == 1 && *position < Lsn(4096 - 400)).unwrap();
    let (_, position, header) = whole[place];
    let segment = path.join("stream-1").join(format!("{:020}.segment", 0));
    flip(&segment, 4096 + position.0 + 50);
    let found = findings(path);
    let bad = found.iter().filter(|finding| !matches!(finding, Finding::Block { .. })).collect::<Vec<_>>();
    let [bad, gap, Finding::End { .. }] = &bad[..] else { panic!("{bad:?}") };
    let Finding::Bad { stream: 1, at, file, offset, durable: true, .. } = bad else { panic!("{bad:?}") };
    assert_eq!((*at, file, *offset), (position, &segment, 4096 + position.0));
    assert_eq!(**gap, Finding::Gap { from: header.lsn, to: header.end(), durable: true });
    let mut expected = whole.clone();
    expected.remove(place);
    assert_eq!(blocks(&found), expected);
    let found = findings(&path.join("stream-1"));
    assert!(found.contains(bad) && !found.iter().any(|finding| matches!(finding, Finding::Gap { .. })));

    // Without a control file one still sees what there is.
    fs::write(path.join("control"), "freshet control 1\nnonsense\n").unwrap();
    let inspection = Inspection::open(path).unwrap();
    assert!(inspection.trouble().is_some());
    assert_eq!(blocks(&inspection.map(Result::unwrap).collect::<Vec<_>>()), expected);
}

#[test]
fn what_a_crash_tore_is_above_the_watermark() {
    let directory = tempfile::tempdir().unwrap();
    let end = fill(directory.path(), &[], 2, 50);
    let last = |stream: usize| {
        let path = directory.path().join(format!("stream-{stream}"));
        let store = SegmentStore::open_directory(&path, CONFIG).unwrap();
        let Some(Finding::End { at }) = findings(&path).pop() else { panic!("it has an end") };
        store.resume(at).unwrap();
        (store, at)
    };
    // Stream 1 has the second of three blocks, stream 0 half of the third.
    let mut builder = BlockBuilder::new();
    let mut block = |stream: u8, lsn: Lsn| {
        builder.begin_in(stream);
        builder.push(None, Fid(1), Rid(1), RecordKind::Insert, &[7; 64]).unwrap();
        builder.seal_records();
        builder.finish(lsn, Term(3), BlockKind::Redo).to_vec()
    };
    let (store, at) = last(1);
    store.append(at, &[&block(1, end.plus(128))]).unwrap();
    let (store, at) = last(0);
    store.append(at, &[&block(0, end.plus(256))[..80]]).unwrap();
    let found = findings(directory.path());
    let tail: Vec<_> = found.iter().filter(|finding| !matches!(finding, Finding::Block { .. })).collect();
    let [Finding::Bad { stream: 0, durable: false, .. }, gap, end_of_log] = tail[..] else { panic!("{tail:?}") };
    assert_eq!(*gap, Finding::Gap { from: end, to: end.plus(128), durable: false });
    assert_eq!(*end_of_log, Finding::End { at: end.plus(256) });
}

#[test]
fn a_log_without_its_oldest_segments_begins_where_all_streams_do() {
    for streams in [1, 3] {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path();
        let end = fill(path, &[], streams, 300);
        let whole = blocks(&findings(path));
        let store = LogDirectory::open(path).unwrap().open_store(&[]).unwrap();
        assert_eq!(store.settle().unwrap().end, end);
        assert!(store.remove_below(Lsn(end.0 / 2)).unwrap() > 0);
        drop(store);
        let found = findings(path);
        assert_eq!(found.last(), Some(&Finding::End { at: end }));
        let rest = blocks(&found);
        assert_eq!(rest.len() + 1, found.len(), "{streams} streams: {:?}", found.first());
        assert_eq!(rest, whole[whole.len() - rest.len()..]);
        assert!(rest.len() < whole.len() && rest[0].2.lsn <= Lsn(end.0 / 2), "{:?}", rest[0]);
    }
}

#[test]
fn a_log_that_begins_late_is_whole() {
    for streams in [1, 2] {
        let directory = tempfile::tempdir().unwrap();
        let owner = LogDirectory::create(directory.path(), control(streams)).unwrap();
        let store = owner.open_store(&[]).unwrap();
        let start = Lsn(1000);
        let log = Log::open(LogConfig::default(), Some(store), start, Term(3)).unwrap();
        let mut writer = log.writer().unwrap();
        let mut builder = BlockBuilder::new();
        for number in 0..20 {
            write(&mut writer, &mut builder, number, None);
        }
        drop(writer);
        log.close().unwrap();
        let found = findings(directory.path());
        assert_eq!(found.last(), Some(&Finding::End { at: log.durable() }));
        assert_eq!((blocks(&found).len(), blocks(&found)[0].2.lsn), (20, start));
    }
}

#[test]
fn streams_that_are_kept_elsewhere_are_named() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name);
    let places = [path("a"), path("b")];
    fill(&path("node"), &places, 2, 40);
    let refused = |paths: &[PathBuf]| match Inspection::open_all(paths) {
        Err(StoreError::Look { path, what }) => (path, what),
        Err(error) => panic!("{error}"),
        Ok(_) => panic!("this is no log"),
    };
    let (missing, what) = refused(&[path("node")]);
    assert!(missing == path("node").join("stream-0") && what.contains("log-dir"), "{what}");
    let expected = findings_of(&places);
    // In any order: each says which one it is.
    assert_eq!(findings_of(&[path("b"), path("a")]), expected);
    let merged = blocks(&expected);
    assert!(merged.windows(2).all(|pair| pair[0].2.end() == pair[1].2.lsn));
    refused(&[path("a"), path("a")]);
    refused(&[path("a"), path("b"), path("a")]);
    let other = [path("c"), path("d")];
    let control = Control { node: NodeId(1), ..control(2) };
    drop(LogDirectory::create(&path("other"), control).unwrap().open_store(&other).unwrap());
    refused(&[path("a"), path("d")]);
}

fn findings_of(paths: &[PathBuf]) -> Vec<Finding> {
    Inspection::open_all(paths).unwrap().map(Result::unwrap).collect()
}

/// Ends the threads also when the test fails.
struct Stops<'a>(&'a AtomicBool);

impl Drop for Stops<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn a_log_can_be_looked_at_while_it_is_written() {
    for group_commit in [GroupCommitKind::Pipelined, GroupCommitKind::Epoch(Duration::from_millis(2))] {
        for streams in [1, 3] {
            let directory = tempfile::tempdir().unwrap();
            let owner = LogDirectory::create(directory.path(), control(streams)).unwrap();
            let store = owner.open_store(&[]).unwrap();
            let log = open(store.clone(), group_commit);
            let stop = AtomicBool::new(false);
            std::thread::scope(|scope| {
                let (log, stop) = (&log, &stop);
                for _ in 0..2 {
                    scope.spawn(move || {
                        let mut writer = log.writer().unwrap();
                        let mut builder = BlockBuilder::new();
                        let mut number = 0;
                        while !stop.load(Ordering::Relaxed) {
                            number += 1;
                            let second = (number % 5 == 0).then_some((number % streams as u64) as u8);
                            write(&mut writer, &mut builder, number, second);
                            if number % 16 == 0 {
                                std::thread::yield_now();
                            }
                        }
                    });
                }
                // Old segments go in the meantime, as they do behind a checkpoint.
                let store = store.clone();
                scope.spawn(move || {
                    while !stop.load(Ordering::Relaxed) {
                        std::thread::sleep(Duration::from_millis(3));
                        store.remove_below(Lsn(log.durable().0.saturating_sub(1 << 16))).unwrap();
                    }
                });
                let _stops = Stops(stop);
                let (mut rounds, mut seen) = (0, 0);
                while rounds < 20 || seen < 1000 {
                    rounds += 1;
                    let durable = log.durable();
                    let inspection = Inspection::open(directory.path()).unwrap();
                    let mut end = None;
                    for finding in inspection {
                        match finding.unwrap() {
                            Finding::Block { .. } => seen += 1,
                            Finding::End { at } => end = Some(at),
                            other => panic!("{group_commit:?}, {streams} streams: {other:?}"),
                        }
                    }
                    assert!(end.is_some_and(|end| end >= durable), "{end:?}, {durable} was durable before");
                }
            });
            log.close().unwrap();
            let inspection = Inspection::open(directory.path()).unwrap();
            let epochs = matches!(group_commit, GroupCommitKind::Epoch(_));
            assert_eq!(inspection.persistent_epoch().map(|(_, end)| end), epochs.then(|| log.durable()));
            assert_eq!(inspection.last().unwrap().unwrap(), Finding::End { at: log.durable() });
        }
    }
}
