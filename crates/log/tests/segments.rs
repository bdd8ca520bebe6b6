//! Segments on a medium: what is wrong with them is told by name, and a log continues where it
//! ended.

use std::{
    collections::BTreeSet,
    fs, io,
    os::unix::fs::FileExt,
    path::Path,
    sync::{Arc, Condvar, Mutex},
    time::Duration,
};

use freshet_base::{ClusterId, Fid, Lsn, Rid, Term, versions::OtherVersion};
use freshet_log::{
    BlockBuilder, BlockKind, Log, LogConfig, LogStore, RecordKind, SegmentStore, StoreConfig, StoreError, TailError,
    find_tail,
    inspect::{Finding, Inspection, save_tail},
    medium::{Medium, MediumFile, MemoryMedium},
    segments::Note,
};

const SIZE: u64 = 8192;
const CONFIG: StoreConfig = StoreConfig { cluster: ClusterId(7), segment_size: SIZE };
/// Longer than anything here takes.
const SOON: Duration = Duration::from_secs(60);

fn block(at: u64, length: usize) -> Vec<u8> {
    let mut builder = BlockBuilder::new();
    builder.begin();
    builder.push(None, Fid(1), Rid(at), RecordKind::Insert, &vec![0xAB; length - 64]).unwrap();
    builder.seal_records();
    builder.finish(Lsn(at), Term(1), BlockKind::Redo).to_vec()
}

/// A store with blocks of 208 bytes up to `end`.
fn fill(store: &SegmentStore, end: u64) -> u64 {
    store.resume(Lsn(0)).unwrap();
    let mut at = 0;
    while at < end {
        let bytes = block(at, 208);
        // In two pieces, as at the wrap of the ring.
        store.append(Lsn(at), &[&bytes[..80], &bytes[80..]]).unwrap();
        at += 208;
    }
    store.sync().unwrap();
    store.note(Note::alone(Lsn(at))).unwrap();
    at
}

fn filled(directory: &Path, end: u64) -> u64 {
    fill(&SegmentStore::open_directory(directory, CONFIG).unwrap(), end)
}

fn open(directory: &Path) -> Result<SegmentStore, StoreError> {
    SegmentStore::open_directory(directory, CONFIG)
}

fn segment(directory: &Path, start: u64) -> std::path::PathBuf {
    directory.join(format!("{start:020}.segment"))
}

fn damage(file: &Path, offset: u64, byte: u8) {
    fs::OpenOptions::new().write(true).open(file).unwrap().write_all_at(&[byte], offset).unwrap();
}

#[test]
fn a_log_is_read_back_over_segments_and_gone_on_with() {
    let directory = tempfile::tempdir().unwrap();
    for round in 0..2 {
        let store = open(directory.path()).unwrap();
        if round == 0 {
            fill(&store, 5 * SIZE);
            continue;
        }
        let tail = find_tail(&store, Lsn(0), store.watermark()).unwrap();
        assert_eq!((tail.end, tail.cut, tail.term), (store.watermark(), None, Some(Term(1))));
        assert_eq!(tail.blocks, tail.end.0 / 208);
        let mut bytes = vec![0; 3 * SIZE as usize];
        store.read(Lsn(208), &mut bytes).unwrap();
        assert_eq!(bytes[..208], block(208, 208));
        assert!(matches!(store.read(Lsn(99 * SIZE), &mut bytes), Err(StoreError::Beyond { .. })));
        store.resume(tail.end).unwrap();
        store.append(tail.end, &[&block(tail.end.0, 64)]).unwrap();
        store.sync().unwrap();
        assert_eq!(find_tail(&store, tail.end, tail.end).unwrap().end, tail.end.plus(64));
    }
}

#[test]
fn each_broken_directory_has_its_message() {
    let with = |break_it: &dyn Fn(&Path)| {
        let directory = tempfile::tempdir().unwrap();
        filled(directory.path(), 3 * SIZE);
        break_it(directory.path());
        let error = open(directory.path()).unwrap_err();
        let text = error.to_string();
        assert!(text.contains(directory.path().to_str().unwrap()), "names the file: {text}");
        error
    };
    assert!(matches!(
        with(&|d| fs::remove_file(segment(d, SIZE)).unwrap()),
        StoreError::Missing { from: Lsn(8192), to: Lsn(16384), .. }
    ));
    assert!(matches!(with(&|d| damage(&segment(d, SIZE), 3, 0)), StoreError::Header { .. }));
    assert!(matches!(with(&|d| damage(&segment(d, SIZE), 20, 99)), StoreError::Header { .. }));
    assert!(matches!(
        with(&|d| damage(&segment(d, SIZE), 8, 9)),
        StoreError::Format { cause: OtherVersion { found: 9, .. }, .. }
    ));
    assert!(matches!(
        with(&|d| fs::OpenOptions::new().write(true).open(segment(d, 0)).unwrap().set_len(100).unwrap()),
        StoreError::Length { found: 100, .. }
    ));
    assert!(matches!(
        with(&|d| fs::OpenOptions::new().write(true).open(segment(d, 0)).unwrap().set_len(9000).unwrap()),
        StoreError::Length { found: 9000, expected: 12288, .. }
    ));
    assert!(matches!(with(&|d| fs::remove_file(d.join("watermark")).unwrap()), StoreError::Watermark { .. }));
    assert!(matches!(
        with(&|d| {
            damage(&d.join("watermark"), 8, 0xFF);
            damage(&d.join("watermark"), 520, 0xFF);
        }),
        StoreError::Watermark { .. }
    ));
    assert!(matches!(
        with(&|d| fs::rename(segment(d, 0), segment(d, 77 * SIZE)).unwrap()),
        StoreError::Header { .. } | StoreError::Missing { .. }
    ));
    let directory = tempfile::tempdir().unwrap();
    filled(directory.path(), SIZE);
    let foreign = StoreConfig { cluster: ClusterId(8), ..CONFIG };
    assert!(matches!(
        SegmentStore::open_directory(directory.path(), foreign),
        Err(StoreError::ForeignCluster { found: ClusterId(7), expected: ClusterId(8), .. })
    ));
    let larger = StoreConfig { segment_size: 2 * SIZE, ..CONFIG };
    assert!(matches!(
        SegmentStore::open_directory(directory.path(), larger),
        Err(StoreError::SegmentSize { found: SIZE, expected: 16384, .. })
    ));
    assert!(matches!(open(Path::new("/nonexistent/log")), Err(StoreError::Io { doing: "list", .. })));
}

#[test]
fn damage_below_the_watermark_stops_with_file_and_offset() {
    let directory = tempfile::tempdir().unwrap();
    let end = filled(directory.path(), 3 * SIZE);
    damage(&segment(directory.path(), SIZE), 4096 + 500, 1);
    let store = open(directory.path()).unwrap();
    let error = find_tail(&store, Lsn(0), store.watermark()).unwrap_err();
    let TailError::Damage { file, offset, at, what } = &error else { panic!("{error}") };
    assert!(at.0 % 208 == 0 && at.0 <= SIZE + 500 && SIZE + 500 < at.0 + 208, "{at}");
    assert_eq!((file, *offset), (&segment(directory.path(), SIZE), 4096 + at.0 - SIZE));
    assert!(what.contains("checksum") && what.contains(&end.to_string()), "{what}");
    // With the newest segments gone, the watermark still knows.
    let directory = tempfile::tempdir().unwrap();
    filled(directory.path(), 3 * SIZE);
    for start in [2, 3, 4] {
        let _ = fs::remove_file(segment(directory.path(), start * SIZE));
    }
    let store = open(directory.path()).unwrap();
    assert!(matches!(find_tail(&store, Lsn(0), store.watermark()), Err(TailError::Damage { .. })));
}

#[test]
fn a_torn_tail_is_reported_and_cut_for_good() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path()).unwrap();
    let end = fill(&store, SIZE);
    // Three blocks more are written and not synced; the first of them is lost, the others are not.
    store.append(Lsn(end), &[&[0; 208], &block(end + 208, 208), &block(end + 416, 208)]).unwrap();
    drop(store);
    let store = open(directory.path()).unwrap();
    let tail = find_tail(&store, Lsn(0), store.watermark()).unwrap();
    let torn = tail.cut.unwrap();
    assert_eq!((tail.end, torn.at, torn.bytes), (Lsn(end), Lsn(end), 624));
    assert!(torn.to_string().contains("last 624 bytes"), "{torn}");
    tail.settle(&store).unwrap();
    store.resume(tail.end).unwrap();
    // A block that ends where an old one began: the old one must not come back.
    store.append(Lsn(end), &[&block(end, 208)]).unwrap();
    let tail = find_tail(&store, Lsn(0), store.watermark()).unwrap();
    assert_eq!((tail.end, tail.cut), (Lsn(end + 208), None));
}

#[test]
fn a_whole_block_far_behind_a_bad_one_proves_damage() {
    let directory = tempfile::tempdir().unwrap();
    let config = StoreConfig { segment_size: 16 << 20, ..CONFIG };
    let store = SegmentStore::open_directory(directory.path(), config).unwrap();
    store.resume(Lsn(0)).unwrap();
    let far = 8 << 20;
    store.append(Lsn(0), &[&vec![0; far], &block(far as u64, 208)]).unwrap();
    let error = find_tail(&store, Lsn(0), Lsn(0)).unwrap_err();
    assert!(error.to_string().contains(&format!("whole block at {far} proves")), "{error}");
}

#[test]
fn a_cut_takes_segments_and_watermark_back() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path()).unwrap();
    let end = fill(&store, 4 * SIZE);
    let at = Lsn(end / 416 / 2 * 416);
    store.cut(at).unwrap();
    assert_eq!((store.end(), store.watermark()), (at, at));
    drop(store);
    let store = open(directory.path()).unwrap();
    let tail = find_tail(&store, Lsn(0), store.watermark()).unwrap();
    assert_eq!((tail.end, tail.cut), (at, None));
    assert!(!directory.path().join("cut").exists());
    // A note that was left is carried out.
    let lower = Lsn(208 * 10);
    fs::write(directory.path().join("cut"), {
        let mut note = [0u8; 1024];
        for word in 1..5 {
            note[8 * word..8 * word + 8].copy_from_slice(&lower.0.to_le_bytes());
        }
        let crc = crc32c::crc32c(&note[..40]);
        note[40..44].copy_from_slice(&crc.to_le_bytes());
        note
    })
    .unwrap();
    let store = open(directory.path()).unwrap();
    assert_eq!(find_tail(&store, Lsn(0), store.watermark()).unwrap().end, lower);
}

#[test]
fn a_log_and_a_saved_tail_can_be_looked_at() {
    let directory = tempfile::tempdir().unwrap();
    let log = directory.path().join("log");
    fs::create_dir(&log).unwrap();
    let end = filled(&log, 2 * SIZE);
    let store = open(&log).unwrap();
    let (from, to) = (Lsn(208 * 3), Lsn(208 * 7));
    let saved = directory.path().join("tail.saved");
    save_tail(&saved, ClusterId(7), &store, from, to).unwrap();
    drop(store);
    let inspection = Inspection::open(&log).unwrap();
    assert_eq!((inspection.watermark(), inspection.cluster()), (Some(Lsn(end)), Some(ClusterId(7))));
    let findings: Vec<Finding> = inspection.map(Result::unwrap).collect();
    assert_eq!(findings.len() as u64, end / 208 + 1);
    assert_eq!(findings.last(), Some(&Finding::End { at: Lsn(end) }));
    let Finding::Block { header, records, .. } = &findings[1] else { panic!() };
    assert_eq!((header.lsn, records[0].0, records[0].1.rid), (Lsn(208), Lsn(240), Rid(208)));
    let tail: Vec<Finding> = Inspection::open(&saved).unwrap().map(Result::unwrap).collect();
    assert_eq!(tail[..4], findings[3..7]);
    assert_eq!(tail[4..], [Finding::End { at: to }]);
    // Inspection continues behind a bad place.
    damage(&segment(&log, 0), 4096 + 208 * 2 + 100, 0);
    let findings: Vec<Finding> = Inspection::open(&log).unwrap().map(Result::unwrap).collect();
    assert_eq!(findings.len() as u64, end / 208 + 1);
    assert!(matches!(&findings[2], Finding::Bad { at: Lsn(416), offset: 4512, .. }));
    assert!(Inspection::open(&directory.path().join("nothing")).is_err());
}

/// A medium on which making a segment ahead of need takes until the log's closing has come to its
/// end.
#[derive(Debug, Default)]
struct SlowToMake {
    files: MemoryMedium,
    /// How many segments are being made, and whether the watermark was synced.
    state: Arc<(Mutex<(usize, bool)>, Condvar)>,
}

/// The watermark's file, which a log syncs when it is closed.
#[derive(Debug)]
struct Signalling(Arc<dyn MediumFile>, Arc<(Mutex<(usize, bool)>, Condvar)>);

impl MediumFile for Signalling {
    fn size(&self) -> io::Result<u64> {
        self.0.size()
    }

    fn write(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.0.write(offset, bytes)
    }

    fn read(&self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        self.0.read(offset, into)
    }

    fn zero(&self, offset: u64, length: u64) -> io::Result<()> {
        self.0.zero(offset, length)
    }

    fn sync(&self) -> io::Result<()> {
        self.1.0.lock().unwrap().1 = true;
        self.1.1.notify_all();
        self.0.sync()
    }
}

impl Medium for SlowToMake {
    fn list(&self) -> io::Result<Vec<String>> {
        self.files.list()
    }

    fn create(&self, name: &str, size: u64, first: &[u8]) -> io::Result<Arc<dyn MediumFile>> {
        if name == "watermark" {
            return Ok(Arc::new(Signalling(self.files.create(name, size, first)?, Arc::clone(&self.state))));
        }
        let (state, changed) = &*self.state;
        if !name.starts_with(&"0".repeat(20)) {
            state.lock().unwrap().0 += 1;
            let closed = changed.wait_timeout_while(state.lock().unwrap(), SOON, |state| !state.1).unwrap();
            assert!(!closed.1.timed_out(), "the log was never closed");
        }
        let made = self.files.create(name, size, first)?;
        let mut state = state.lock().unwrap();
        state.0 = state.0.saturating_sub(1);
        Ok(made)
    }

    fn open(&self, name: &str) -> io::Result<Arc<dyn MediumFile>> {
        self.files.open(name)
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.files.remove(name)
    }

    fn sync(&self) -> io::Result<()> {
        self.files.sync()
    }

    fn path(&self, name: &str) -> std::path::PathBuf {
        self.files.path(name)
    }
}

/// A process that opens the log after it was closed has it for itself: a segment that was still
/// being made would come in place of one that he has written to by then.
#[test]
fn a_closed_log_makes_no_segments_any_more() {
    let medium = Arc::new(SlowToMake::default());
    let state = Arc::clone(&medium.state);
    let store = SegmentStore::open(medium, CONFIG).unwrap();
    let config = LogConfig { capacity: 1 << 16, partition: 1024, ..LogConfig::default() };
    let log = Log::open(config, Some(store.into()), Lsn(0), Term(1)).unwrap();
    let mut writer = log.writer().unwrap();
    let reservation = writer.reserve(SIZE / 2 + 8).unwrap();
    let end = reservation.end();
    reservation.skip();
    log.wait_durable(end, None).unwrap();
    drop(writer);
    log.close().unwrap();
    assert_eq!(*state.0.lock().unwrap(), (0, true), "a segment is being made, of a log that is closed");
}

/// Memory that says which files were made more than once.
#[derive(Debug, Default)]
struct Counting {
    files: MemoryMedium,
    made: Mutex<BTreeSet<String>>,
    twice: Mutex<Vec<String>>,
}

impl Medium for Counting {
    fn list(&self) -> io::Result<Vec<String>> {
        self.files.list()
    }

    fn create(&self, name: &str, size: u64, first: &[u8]) -> io::Result<Arc<dyn MediumFile>> {
        if !self.made.lock().unwrap().insert(name.to_owned()) {
            self.twice.lock().unwrap().push(name.to_owned());
        }
        self.files.create(name, size, first)
    }

    fn open(&self, name: &str) -> io::Result<Arc<dyn MediumFile>> {
        self.files.open(name)
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.files.remove(name)
    }

    fn sync(&self) -> io::Result<()> {
        self.files.sync()
    }

    fn path(&self, name: &str) -> std::path::PathBuf {
        self.files.path(name)
    }
}

/// A segment that is made ahead of need is made once, whenever its making comes to its end: the
/// second one would come in place of one that was written to.
#[test]
fn no_segment_is_made_twice() {
    let medium = Arc::new(Counting::default());
    let config = StoreConfig { segment_size: 4096, ..CONFIG };
    let store = SegmentStore::open(Arc::clone(&medium) as _, config).unwrap();
    store.resume(Lsn(0)).unwrap();
    let mut at = Lsn(0);
    while at < Lsn(4096 * 4000) {
        store.append(at, &[&[1; 8]]).unwrap();
        at = at.plus(8);
        if at.0.is_multiple_of(64 * 4096) {
            store.remove_below(at).unwrap();
        }
    }
    assert_eq!(*medium.twice.lock().unwrap(), Vec::<String>::new());
}

#[test]
fn only_what_is_durable_in_segments_is_removed() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path()).unwrap();
    let end = fill(&store, 2 * SIZE);
    let mut at = end;
    while at < 4 * SIZE {
        store.append(Lsn(at), &[&block(at, 208)]).unwrap();
        at += 208;
    }
    let log = LogStore::from(store.clone());
    assert_eq!(log.remove_below(Lsn(9 * SIZE)).unwrap(), 2);
    store.sync().unwrap();
    store.note(Note::alone(Lsn(at))).unwrap();
    assert_eq!(log.remove_below(Lsn(9 * SIZE)).unwrap(), 2);
    assert_eq!(find_tail(&store, Lsn(at), Lsn(at)).unwrap().end, Lsn(at));
}
