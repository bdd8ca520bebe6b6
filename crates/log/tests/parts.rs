//! Directories whose parts are not of one log at one time: each is refused, and left as it is.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use freshet_base::{ClusterId, Fid, Lsn, NodeId, Rid, Term};
use freshet_log::{
    BlockBuilder, BlockKind, Control, ControlError, GroupCommitKind, Log, LogConfig, LogDirectory, LogStore,
    RecordKind, StoreError,
};

const NODE: NodeId = NodeId(9);

fn control(streams: usize) -> Control {
    let (terms, latest_term) = (vec![(Term(3), Lsn(0), NODE, 1)], (Term(3), Some(NODE)));
    Control { terms, latest_term, ..Control::new(ClusterId(7), NODE, 4096, streams) }
}

/// The store, with its end settled, and where that is.
fn open(directory: &LogDirectory) -> Result<(LogStore, Lsn), String> {
    let store = directory.open_store(&[]).map_err(|error| error.to_string())?;
    let end = store.settle().map_err(|error| error.to_string())?.end;
    Ok((store, end))
}

/// Writes as many transactions to the log of the node, one in each stream, and closes it.
fn write(directory: &LogDirectory, kind: GroupCommitKind, transactions: u64) -> Lsn {
    let (store, end) = open(directory).unwrap();
    let streams = store.streams();
    let config = LogConfig { capacity: 1 << 16, partition: 1024, group_commit: kind, ..LogConfig::default() };
    let log = Log::open(config, Some(store), end, Term(3)).unwrap();
    directory.log_has_begun(&[]).unwrap();
    let mut writers: Vec<_> = (0..streams).map(|_| log.writer().unwrap()).collect();
    let mut builder = BlockBuilder::new();
    let mut end = end;
    for number in 0..transactions {
        let writer = &mut writers[number as usize % streams];
        builder.begin_in(writer.stream());
        builder.push(None, Fid(1), Rid(number), RecordKind::Insert, &[number as u8; 100]).unwrap();
        writer.throttle().unwrap();
        let reservation = writer.reserve(builder.seal_records()).unwrap();
        let lsn = reservation.lsn();
        end = reservation.end();
        reservation.fill(builder.finish(lsn, Term(3), BlockKind::Redo)).unwrap();
    }
    drop(writers);
    log.wait_durable(end, None).unwrap();
    log.close().unwrap();
    end
}

/// All files below, by their names there.
fn files(directory: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut found = BTreeMap::new();
    let mut open = vec![directory.to_owned()];
    while let Some(folder) = open.pop() {
        for entry in fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()) {
            if entry.is_dir() {
                open.push(entry);
            } else {
                found.insert(entry.strip_prefix(directory).unwrap().to_owned(), fs::read(&entry).unwrap());
            }
        }
    }
    found
}

type Files = BTreeMap<PathBuf, Vec<u8>>;

/// Puts these files, and no others, into the directory.
fn put(directory: &Path, files: &Files) {
    fs::remove_dir_all(directory).unwrap();
    for (name, bytes) in files {
        let file = directory.join(name);
        freshet_log::medium::make_directory(file.parent().unwrap()).unwrap();
        freshet_base::private::write(&file, bytes).unwrap();
    }
}

/// The error of a node that starts on these files, which it leaves as they are; none if it has
/// them.
fn refused(directory: &Path, put_there: &Files) -> Option<String> {
    put(directory, put_there);
    let opened = LogDirectory::open(directory).unwrap();
    let refusal = open(&opened).err();
    if let Some(refusal) = &refusal {
        assert_eq!(&files(directory), put_there, "{refusal}");
        assert!(refusal.contains(directory.to_str().unwrap()), "{refusal}");
        assert!(refusal.contains("freshet status ADDRESS") && !refusal.contains("empty"), "{refusal}");
    }
    refusal
}

/// The files of `new`, but those that `older` says as they were in `old`.
fn mixed(new: &Files, old: &Files, older: impl Fn(&Path) -> bool) -> Files {
    let of = |files: &Files, which: bool| -> Files {
        files
            .iter()
            .filter(|(name, _)| older(name) == which)
            .map(|(name, bytes)| (name.clone(), bytes.clone()))
            .collect()
    };
    of(new, false).into_iter().chain(of(old, true)).collect()
}

fn is_named(name: &Path, what: &str) -> bool {
    name.file_name().unwrap() == what
}

fn is_segment(name: &Path) -> bool {
    name.extension().is_some_and(|extension| extension == "segment")
}

fn is_log(name: &Path) -> bool {
    is_segment(name) || is_named(name, "watermark") || is_named(name, "pepoch")
}

#[test]
fn parts_of_different_times_or_lives_are_refused() {
    let whole = tempfile::tempdir().unwrap();
    for (streams, kind) in [
        (1, GroupCommitKind::Pipelined),
        (1, GroupCommitKind::Epoch(Duration::from_millis(2))),
        (2, GroupCommitKind::Pipelined),
        (3, GroupCommitKind::Epoch(Duration::from_millis(2))),
    ] {
        let path = whole.path().join(format!("{streams}-{kind:?}"));
        let lived = |path: &Path| {
            let directory = LogDirectory::create(path, control(streams)).unwrap();
            write(&directory, kind, 50);
            let old = files(path);
            directory.update(|control| control.latest_term = (Term(4), None)).unwrap();
            write(&directory, kind, 300);
            (old, files(path))
        };
        let (old, new) = lived(&path);
        let (_, other) = lived(&whole.path().join(format!("other {streams} {kind:?}")));
        assert_eq!((refused(&path, &new), refused(&path, &old)), (None, None));
        let last = |name: &Path| streams == 1 || name.starts_with(format!("stream-{}", streams - 1));
        let without = |gone: &dyn Fn(&Path) -> bool| mixed(&new, &Files::new(), gone);
        let cases: [(&str, Files, &str); 11] = [
            ("no segments", without(&is_segment), "holds no segment"),
            ("no segments in one stream", without(&|name| is_segment(name) && last(name)), "holds no segment"),
            ("no log", without(&is_log), "was begun"),
            ("no notes", without(&|name| is_named(name, "watermark")), "missing"),
            ("no note of one stream", without(&|name| is_named(name, "watermark") && last(name)), "missing"),
            ("an older control file", mixed(&new, &old, |name| is_named(name, "control")), "control file is older"),
            ("an older log", mixed(&new, &old, is_log), "is older than the control file"),
            ("an older stream", mixed(&new, &old, |name| is_log(name) && last(name)), "is older than the control file"),
            ("older segments", mixed(&new, &old, is_segment), "up to"),
            ("another log", mixed(&new, &other, is_log), "is of another log"),
            (
                "segments of another log",
                mixed(&new, &other, |name| is_segment(name) && last(name)),
                "is of another log",
            ),
        ];
        for (what, files, wanted) in cases {
            let refusal = refused(&path, &files).unwrap_or_else(|| panic!("{streams} streams, {kind:?}: {what}"));
            assert!(refusal.contains(wanted), "{streams} streams, {kind:?}, {what}: {refusal}");
        }
        assert_eq!(refused(&path, &new), None);
    }
}

/// A log that was cut has less than was noted before: the note goes down first, so that a crash at
/// any moment leaves parts that belong together.
#[test]
fn a_cut_lowers_the_note_first() {
    for streams in [1, 2] {
        let whole = tempfile::tempdir().unwrap();
        let path = whole.path().join("log");
        let directory = LogDirectory::create(&path, control(streams)).unwrap();
        let half = write(&directory, GroupCommitKind::Pipelined, 40);
        write(&directory, GroupCommitKind::Pipelined, 40);
        let before = files(&path);
        let noted = directory.control().reached.unwrap();
        let (store, _) = open(&directory).unwrap();
        store.cut(half).unwrap();
        let lowered = directory.control().reached.unwrap();
        assert!(lowered != noted && lowered.iter().zip(&noted).all(|(now, then)| now <= then), "{lowered:?} {noted:?}");
        drop(store);
        let after = files(&path);
        // It continues from there, and that is noted too.
        let end = write(&directory, GroupCommitKind::Pipelined, 10);
        let risen = directory.control().reached.unwrap();
        assert!(risen != lowered && risen.iter().zip(&lowered).all(|(now, then)| now >= then), "{lowered:?} {risen:?}");
        drop(directory);
        // A crash came when the control file was there, and nothing was cut.
        assert_eq!(refused(&path, &mixed(&before, &after, |name| is_named(name, "control"))), None);
        // In the other order it would have found this.
        let wrong = refused(&path, &mixed(&after, &before, |name| is_named(name, "control"))).unwrap();
        assert!(wrong.contains("older"), "{wrong}");
        assert!(end > half);
    }
}

/// A directory from before there were incarnations gets one; after that nothing without counts.
#[test]
fn a_directory_of_an_older_version_is_taken_and_tied() {
    let whole = tempfile::tempdir().unwrap();
    let path = whole.path().join("log");
    let directory = LogDirectory::create(&path, control(1)).unwrap();
    write(&directory, GroupCommitKind::Pipelined, 5);
    let first = directory.control().incarnation;
    assert!(first.is_some_and(|number| number != 0));
    write(&directory, GroupCommitKind::Pipelined, 5);
    assert_eq!(directory.control().incarnation, first, "it is one log");
    let (store, _) = open(&directory).unwrap();
    directory.clear_log(&store).unwrap();
    assert_eq!((directory.control().log, directory.control().reached), (None, None));
    drop(store);
    let end = write(&directory, GroupCommitKind::Pipelined, 1);
    assert_eq!(open(&directory).unwrap().1, end);
    let error = directory.open_store(&[whole.path().join("elsewhere")]).unwrap_err();
    assert!(matches!(error, StoreError::Directory(ControlError::Place { .. })), "{error}");
}

#[test]
fn a_control_file_of_another_format_is_refused() {
    let whole = tempfile::tempdir().unwrap();
    let path = whole.path().join("log");
    drop(LogDirectory::create(&path, control(1)).unwrap());
    let text = fs::read_to_string(path.join("control")).unwrap();
    let (first, rest) = text.split_once('\n').unwrap();
    assert!(first.starts_with("freshet control "), "{first}");
    fs::write(path.join("control"), format!("freshet control 4000\n{rest}")).unwrap();
    let error = LogDirectory::open(&path).unwrap_err();
    assert!(matches!(&error, ControlError::Format { cause, .. } if cause.found == 4000), "{error}");
    assert!(error.to_string().contains("of a later release"), "{error}");
}
