//! A journal is found as it was after the last sync, whatever a crash leaves of what came since.
//! What was synced and is damaged is told.
//!
//! The machine loses power at random: of what was written to a file since its last sync, some pages
//! of 512 bytes are left, chosen at random. FRESHET_SEED repeats a run.

use std::{
    collections::BTreeMap,
    io,
    path::PathBuf,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
};

use freshet_base::Lsn;
use freshet_log::{
    StoreError,
    journal::{Found, Journal, Room},
    medium::{Medium, MediumFile, MemoryMedium},
};

const PAGE: usize = 512;
/// Of a file.
const SIZE: u64 = 8192;

#[derive(Debug, Default)]
struct File {
    disk: Vec<u8>,
    read: Vec<u8>,
}

/// What is on the disk, and what is read.
#[derive(Debug, Default)]
struct Machine {
    files: Mutex<BTreeMap<String, File>>,
    /// How many files there may be; 0 is no limit.
    limit: AtomicUsize,
}

#[derive(Debug)]
struct Handle(Arc<Machine>, String);

#[derive(Clone, Debug)]
struct Disk(Arc<Machine>);

impl Handle {
    fn with<T>(&self, act: impl FnOnce(&mut File) -> T) -> io::Result<T> {
        self.0.files.lock().unwrap().get_mut(&self.1).map(act).ok_or_else(|| io::ErrorKind::NotFound.into())
    }
}

impl MediumFile for Handle {
    fn size(&self) -> io::Result<u64> {
        self.with(|file| file.read.len() as u64)
    }

    fn write(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.with(|file| file.read[offset as usize..][..bytes.len()].copy_from_slice(bytes))
    }

    fn read(&self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        self.with(|file| into.copy_from_slice(&file.read[offset as usize..][..into.len()]))
    }

    fn zero(&self, offset: u64, length: u64) -> io::Result<()> {
        self.with(|file| file.read[offset as usize..][..length as usize].fill(0))
    }

    fn sync(&self) -> io::Result<()> {
        self.with(|file| file.disk.clone_from(&file.read))
    }
}

impl Medium for Disk {
    fn list(&self) -> io::Result<Vec<String>> {
        Ok(self.0.files.lock().unwrap().keys().cloned().collect())
    }

    fn create(&self, name: &str, size: u64, first: &[u8]) -> io::Result<Arc<dyn MediumFile>> {
        let limit = self.0.limit.load(Ordering::SeqCst);
        if limit > 0 && self.list()?.len() >= limit {
            return Err(io::ErrorKind::StorageFull.into());
        }
        let mut bytes = first.to_vec();
        bytes.resize(size as usize, 0);
        self.0.files.lock().unwrap().insert(name.to_owned(), File { disk: bytes.clone(), read: bytes });
        self.open(name)
    }

    fn open(&self, name: &str) -> io::Result<Arc<dyn MediumFile>> {
        Ok(Arc::new(Handle(Arc::clone(&self.0), name.to_owned())))
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.0.files.lock().unwrap().remove(name).map(drop).ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn sync(&self) -> io::Result<()> {
        Ok(())
    }

    fn path(&self, name: &str) -> PathBuf {
        PathBuf::from(name)
    }
}

/// A small generator: the same numbers for the same seed.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % limit
    }
}

type Newest = Arc<Mutex<Option<u64>>>;

fn open(disk: &Disk, newest: &Newest, log: u64) -> Result<(Journal, Vec<Found>), StoreError> {
    Journal::open_with((Arc::new(disk.clone()), Arc::clone(newest) as _), Lsn(log), SIZE)
}

impl Disk {
    /// The same files on another machine.
    fn copy(&self) -> Self {
        let files = self.0.files.lock().unwrap();
        let copy = |file: &File| File { disk: file.read.clone(), read: file.read.clone() };
        let files = files.iter().map(|(name, file)| (name.clone(), copy(file))).collect();
        Self(Arc::new(Machine { files: Mutex::new(files), ..Machine::default() }))
    }

    /// The power fails and comes back.
    fn crash(&self, random: &mut Random) {
        for file in self.0.files.lock().unwrap().values_mut() {
            for (disk, read) in file.disk.chunks_mut(PAGE).zip(file.read.chunks(PAGE)) {
                if random.below(2) == 0 {
                    disk.copy_from_slice(read);
                }
            }
            file.read.clone_from(&file.disk);
        }
    }
}

fn seed() -> u64 {
    let seed = std::env::var("FRESHET_SEED").ok().map_or(4711, |text| text.parse().expect("FRESHET_SEED is a number"));
    println!("FRESHET_SEED={seed}");
    seed
}

/// The bytes of a batch, which nothing else has.
fn body(from: u64, to: u64, salt: u64, length: usize) -> Vec<u8> {
    let mut random = Random(from * 31 + to * 7 + salt * 1_000_003 + 1);
    (0..length).map(|_| random.below(256) as u8).collect()
}

/// What the journal should hold: batches, and how many of them are durable.
#[derive(Default)]
struct Model {
    batches: Vec<(u64, u64, Vec<u8>)>,
    durable: usize,
}

impl Model {
    fn cut(&mut self, at: u64) {
        self.batches.iter_mut().for_each(|batch| batch.1 = batch.1.min(at));
        self.batches.retain(|batch| batch.0 < batch.1);
        self.durable = self.batches.len();
    }

    /// Compares with what was found by a log that ends at `end`.
    fn check(&self, found: &[Found], end: u64) {
        let wanted: Vec<_> = self.batches.iter().filter(|batch| batch.1 > end).collect();
        let durable = self.batches[..self.durable].iter().filter(|batch| batch.1 > end).count();
        assert!((durable..=wanted.len()).contains(&found.len()), "{} of {durable} to {}", found.len(), wanted.len());
        for (found, (from, to, bytes)) in found.iter().zip(wanted) {
            assert_eq!((found.from.0, found.to.0, &found.bytes), (*from, *to, bytes));
        }
    }
}

#[test]
fn what_was_synced_is_found_after_a_crash() {
    let mut random = Random(seed() | 1);
    for salt in 0..150 {
        let disk = Disk(Arc::default());
        let mut model = Model::default();
        let (mut end, mut log) = (0u64, 0u64);
        let newest = Newest::default();
        let (mut journal, found) = open(&disk, &newest, 0).unwrap();
        assert_eq!(found, []);
        for _ in 0..40 {
            match random.below(12) {
                0 => {
                    if random.below(2) == 0 {
                        drop(journal);
                        disk.crash(&mut random);
                    }
                    let continues = Journal::continues(&disk, &*newest, Lsn(log)).unwrap();
                    let (opened, found) = open(&disk, &newest, log).unwrap();
                    assert_eq!(continues, !found.is_empty());
                    model.check(&found, log);
                    journal = opened;
                    model.batches = found.into_iter().map(|found| (found.from.0, found.to.0, found.bytes)).collect();
                    model.durable = model.batches.len();
                    end = model.batches.last().map_or(log, |batch| batch.1);
                }
                1 => {
                    let at = log + random.below(end - log + 1);
                    journal.cut(Lsn(at)).unwrap();
                    model.cut(at);
                    end = at;
                }
                2 => {
                    let durable = model.batches[..model.durable].last().map_or(log, |batch| batch.1).max(log);
                    log += random.below(durable - log + 1);
                    journal.trim(Lsn(log)).unwrap();
                }
                3..6 => {
                    journal.sync().unwrap();
                    model.durable = model.batches.len();
                }
                _ => {
                    let to = end + 8 * (1 + random.below(50));
                    let length = if random.below(8) == 0 { 10_000 } else { random.below(3000) };
                    let body = body(end, to, salt, length as usize);
                    journal.append(Lsn(end), Lsn(to), &body).unwrap();
                    model.batches.push((end, to, body));
                    end = to;
                }
            }
        }
    }
}

#[test]
fn files_go_when_the_log_has_what_they_hold() {
    let (medium, newest) = (Arc::new(MemoryMedium::new()), Newest::default());
    let (mut journal, _) = Journal::open(Arc::clone(&medium) as _, Arc::clone(&newest) as _, Lsn(0)).unwrap();
    let body = vec![7; 4 << 20];
    for number in 0..20u64 {
        journal.append(Lsn(number * 8), Lsn(number * 8 + 8), &body).unwrap();
    }
    journal.sync().unwrap();
    // Three of such batches fit one file.
    assert_eq!((journal.files(), medium.list().unwrap().len()), (7, 7));
    journal.trim(Lsn(23)).unwrap();
    assert_eq!(journal.files(), 7);
    journal.trim(Lsn(48)).unwrap();
    assert_eq!((journal.files(), medium.list().unwrap().len()), (5, 5));
    journal.trim(Lsn(1000)).unwrap();
    assert_eq!(journal.files(), 1);
    drop(journal);
    // What lies behind a gap is of no use.
    let (journal, found) = Journal::open(Arc::clone(&medium) as _, Arc::clone(&newest) as _, Lsn(100)).unwrap();
    assert_eq!((found.len(), journal.files()), (0, 0));
}

#[test]
fn a_batch_longer_than_a_file_has_one_of_its_own() {
    let (medium, newest) = (Arc::new(MemoryMedium::new()), Newest::default());
    let (mut journal, _) = Journal::open(Arc::clone(&medium) as _, Arc::clone(&newest) as _, Lsn(0)).unwrap();
    let long = vec![3; 20 << 20];
    journal.append(Lsn(0), Lsn(8), &[1]).unwrap();
    journal.append(Lsn(8), Lsn(16), &long).unwrap();
    journal.append(Lsn(16), Lsn(24), &[2]).unwrap();
    journal.sync().unwrap();
    assert_eq!(journal.files(), 3);
    drop(journal);
    let (_, found) = Journal::open(medium, newest, Lsn(4)).unwrap();
    let lengths: Vec<usize> = found.iter().map(|found| found.bytes.len()).collect();
    assert_eq!(lengths, [1, 20 << 20, 1]);
}

struct Whole {
    disk: Disk,
    newest: Newest,
    found: Vec<Found>,
    log: u64,
}

impl Whole {
    fn newest(&self) -> Newest {
        Arc::new(Mutex::new(*self.newest.lock().unwrap()))
    }

    fn files(&self) -> Vec<(String, Vec<u8>)> {
        let files = self.disk.0.files.lock().unwrap();
        files.iter().map(|(name, file)| (name.clone(), file.read.clone())).collect()
    }
}

/// How much of a file is not zeros at its end.
fn used(bytes: &[u8]) -> usize {
    bytes.len() - bytes.iter().rev().take_while(|byte| **byte == 0).count()
}

/// A journal of three files, and what it must be found to hold by a log that ends at `log`. Files
/// that such a log does not need are gone.
fn damageable(log: u64) -> Whole {
    let (disk, newest) = (Disk(Arc::default()), Newest::default());
    let (mut journal, _) =
        Journal::open_with((Arc::new(disk.clone()), Arc::clone(&newest) as _), Lsn(0), 1500).unwrap();
    for number in 0..12 {
        let (from, to) = (number * 8, number * 8 + 8);
        journal.append(Lsn(from), Lsn(to), &body(from, to, 0, 60 + number as usize)).unwrap();
        if number != 7 {
            journal.sync().unwrap();
        }
        if number == 8 {
            journal.cut(Lsn(64)).unwrap();
            journal.append(Lsn(64), Lsn(72), &[1; 20]).unwrap();
            journal.sync().unwrap();
        }
    }
    journal.trim(Lsn(log)).unwrap();
    assert_eq!(disk.list().unwrap().len(), if log == 0 { 3 } else { 2 }, "{journal:?}");
    drop(journal);
    let (_, found) = open(&disk.copy(), &Arc::new(Mutex::new(*newest.lock().unwrap())), log).unwrap();
    assert_eq!(found.last().unwrap().to, Lsn(96));
    Whole { disk, newest, found, log }
}

/// Opens a copy that `harm` has changed. Whether damage was found; else nothing is missing.
fn is_noticed(whole: &Whole, harm: impl Fn(&mut BTreeMap<String, File>), context: &str) -> bool {
    let (disk, newest) = (whole.disk.copy(), whole.newest());
    harm(&mut disk.0.files.lock().unwrap());
    let before = disk.copy();
    match open(&disk, &newest, whole.log) {
        Ok((_, found)) => {
            assert_eq!(found, whole.found, "{context}: lost, and not noticed");
            false
        }
        Err(StoreError::Journal { .. }) => {
            let read = |disk: &Disk| {
                let files = disk.0.files.lock().unwrap();
                files.iter().map(|(name, file)| (name.clone(), file.read.clone())).collect::<Vec<_>>()
            };
            assert_eq!(read(&before), read(&disk), "{context}: something was changed");
            true
        }
        Err(other) => panic!("{context}: {other}"),
    }
}

#[test]
fn a_journal_of_another_format_is_refused() {
    let whole = damageable(0);
    let (disk, newest) = (whole.disk.copy(), whole.newest());
    disk.0.files.lock().unwrap().values_mut().for_each(|file| file.read[..8].copy_from_slice(b"FRJOUR09"));
    let error = open(&disk, &newest, whole.log).unwrap_err();
    assert!(matches!(error, StoreError::Journal { offset: 0, .. }), "{error}");
    assert!(error.to_string().contains("of a later release"), "{error}");
}

#[test]
fn every_flipped_bit_of_what_was_synced_is_noticed() {
    for whole in [0, 48].map(damageable) {
        for (name, bytes) in whole.files() {
            let used = used(&bytes);
            let mut noticed = 0;
            for at in 0..bytes.len().min(used + 100) {
                for bit in 0..8 {
                    let flip = |files: &mut BTreeMap<String, File>| files.get_mut(&name).unwrap().read[at] ^= 1 << bit;
                    noticed +=
                        usize::from(is_noticed(&whole, flip, &format!("{name}, byte {at} of {used}, bit {bit}")));
                }
            }
            // Not the padding, and not the note behind the last entry.
            assert!(noticed > (used - 48) * 8 * 9 / 10 - 200 && noticed <= used * 8, "{noticed} of {}", used * 8);
        }
    }
}

#[test]
fn every_truncation_and_every_missing_file_is_noticed() {
    for whole in [0, 48].map(damageable) {
        for (name, bytes) in whole.files() {
            for left in 0..bytes.len() {
                let cut = |files: &mut BTreeMap<String, File>| files.get_mut(&name).unwrap().read.truncate(left);
                assert!(is_noticed(&whole, cut, &format!("{left} bytes of {name}")));
            }
            assert!(is_noticed(&whole, |files| _ = files.remove(&name), &format!("{name} is missing")));
        }
        assert!(is_noticed(&whole, BTreeMap::clear, "all files are missing"));
        // Also before anything is asked to continue.
        let disk = Disk(Arc::default());
        let continues = Journal::continues(&disk, &*whole.newest, Lsn(1000));
        assert!(matches!(continues, Err(StoreError::Journal { .. })));
    }
}

#[test]
fn what_is_zeroed_below_a_later_note_is_noticed() {
    for whole in [0, 48].map(damageable) {
        let files = whole.files();
        for (number, (name, bytes)) in files.iter().enumerate() {
            let used = used(bytes);
            // To the end of the last entry; in a file with a next one the note may be gone, too.
            let end = if number + 1 == files.len() { used - 48 } else { bytes.len() };
            for from in (48..used - 48).step_by(8) {
                let zero = |files: &mut BTreeMap<String, File>| files.get_mut(name).unwrap().read[from..end].fill(0);
                assert!(is_noticed(&whole, zero, &format!("{name} from {from} on")));
            }
        }
    }
}

#[test]
fn a_full_disk_is_waited_for_and_frees_itself() {
    let (disk, newest, room) = (Disk(Arc::default()), Newest::default(), Room::default());
    let (mut journal, _) = open(&disk, &newest, 0).unwrap();
    disk.0.limit.store(2, Ordering::SeqCst);
    let put = |journal: &mut Journal, number: u64, below: u64| {
        let (from, to) = (Lsn(number * 8), Lsn(number * 8 + 8));
        journal.in_room(&room, || Lsn(below), |journal| journal.append(from, to, &[3; 6000]))
    };
    // One batch a file. What the log has goes when its room is needed.
    for number in 0..5 {
        put(&mut journal, number, number.saturating_sub(1) * 8).unwrap();
    }
    journal.sync().unwrap();
    thread::scope(|scope| {
        let waits = scope.spawn(|| put(&mut journal, 5, 0));
        while room.out_of_space().is_none() {
            thread::yield_now();
        }
        assert!(room.out_of_space().unwrap().error.contains("no space left"), "{:?}", room.out_of_space());
        disk.0.limit.store(3, Ordering::SeqCst);
        waits.join().unwrap().unwrap();
    });
    assert!(room.out_of_space().is_none());
    // One that is not to wait any more has still what it had.
    room.set_patient(false);
    assert!(matches!(put(&mut journal, 6, 0), Err(StoreError::NoSpace { .. })));
    journal.sync().unwrap();
    disk.0.limit.store(0, Ordering::SeqCst);
    drop(journal);
    let (_, found) = open(&disk, &newest, 32).unwrap();
    assert_eq!(found.iter().map(|found| found.to.0).collect::<Vec<_>>(), [40, 48]);
}
