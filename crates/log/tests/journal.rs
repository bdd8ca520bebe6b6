//! A journal is found as it was after the last sync, whatever a crash leaves of what came since.
//!
//! The machine loses power at random: of what was written to a file since its last sync, some pages
//! of 512 bytes are left, chosen at random. FRESHET_SEED repeats a run.

use std::{
    collections::BTreeMap,
    io,
    path::PathBuf,
    sync::{Arc, Mutex},
};

use freshet_base::Stamp;
use freshet_log::{
    journal::{Found, Journal},
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
struct Machine(Mutex<BTreeMap<String, File>>);

#[derive(Debug)]
struct Handle(Arc<Machine>, String);

#[derive(Clone, Debug)]
struct Disk(Arc<Machine>);

impl Handle {
    fn with<T>(&self, act: impl FnOnce(&mut File) -> T) -> io::Result<T> {
        self.0.0.lock().unwrap().get_mut(&self.1).map(act).ok_or_else(|| io::ErrorKind::NotFound.into())
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
        Ok(self.0.0.lock().unwrap().keys().cloned().collect())
    }

    fn create(&self, name: &str, size: u64, first: &[u8]) -> io::Result<Arc<dyn MediumFile>> {
        let mut bytes = first.to_vec();
        bytes.resize(size as usize, 0);
        self.0.0.lock().unwrap().insert(name.to_owned(), File { disk: bytes.clone(), read: bytes });
        self.open(name)
    }

    fn open(&self, name: &str) -> io::Result<Arc<dyn MediumFile>> {
        Ok(Arc::new(Handle(Arc::clone(&self.0), name.to_owned())))
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.0.0.lock().unwrap().remove(name).map(drop).ok_or_else(|| io::ErrorKind::NotFound.into())
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

impl Disk {
    /// The power fails and comes back.
    fn crash(&self, random: &mut Random) {
        for file in self.0.0.lock().unwrap().values_mut() {
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
        let (mut journal, found) = Journal::open_with(Arc::new(disk.clone()), Stamp(0), SIZE).unwrap();
        assert_eq!(found, []);
        for _ in 0..40 {
            match random.below(12) {
                0 => {
                    if random.below(2) == 0 {
                        drop(journal);
                        disk.crash(&mut random);
                    }
                    let continues = Journal::continues(Arc::new(disk.clone()), Stamp(log)).unwrap();
                    let (opened, found) = Journal::open_with(Arc::new(disk.clone()), Stamp(log), SIZE).unwrap();
                    assert_eq!(continues, !found.is_empty());
                    model.check(&found, log);
                    journal = opened;
                    model.batches = found.into_iter().map(|found| (found.from.0, found.to.0, found.bytes)).collect();
                    model.durable = model.batches.len();
                    end = model.batches.last().map_or(log, |batch| batch.1);
                }
                1 => {
                    let at = log + random.below(end - log + 1);
                    journal.cut(Stamp(at)).unwrap();
                    model.cut(at);
                    end = at;
                }
                2 => {
                    let durable = model.batches[..model.durable].last().map_or(log, |batch| batch.1).max(log);
                    log += random.below(durable - log + 1);
                    journal.trim(Stamp(log)).unwrap();
                }
                3..6 => {
                    journal.sync().unwrap();
                    model.durable = model.batches.len();
                }
                _ => {
                    let to = end + 8 * (1 + random.below(50));
                    let length = if random.below(8) == 0 { 10_000 } else { random.below(3000) };
                    let body = body(end, to, salt, length as usize);
                    journal.append(Stamp(end), Stamp(to), &body).unwrap();
                    model.batches.push((end, to, body));
                    end = to;
                }
            }
        }
    }
}

#[test]
fn files_go_when_the_log_has_what_they_hold() {
    let medium = Arc::new(MemoryMedium::new());
    let (mut journal, _) = Journal::open(Arc::clone(&medium) as _, Stamp(0)).unwrap();
    let body = vec![7; 4 << 20];
    for number in 0..20u64 {
        journal.append(Stamp(number * 8), Stamp(number * 8 + 8), &body).unwrap();
    }
    journal.sync().unwrap();
    // Three of such batches fit one file.
    assert_eq!((journal.files(), medium.list().unwrap().len()), (7, 7));
    journal.trim(Stamp(23)).unwrap();
    assert_eq!(journal.files(), 7);
    journal.trim(Stamp(48)).unwrap();
    assert_eq!((journal.files(), medium.list().unwrap().len()), (5, 5));
    journal.trim(Stamp(1000)).unwrap();
    assert_eq!(journal.files(), 1);
    drop(journal);
    // What lies behind a gap is of no use.
    let (journal, found) = Journal::open(Arc::clone(&medium) as _, Stamp(100)).unwrap();
    assert_eq!((found.len(), journal.files()), (0, 0));
}

#[test]
fn a_batch_longer_than_a_file_has_one_of_its_own() {
    let medium = Arc::new(MemoryMedium::new());
    let (mut journal, _) = Journal::open(Arc::clone(&medium) as _, Stamp(0)).unwrap();
    let long = vec![3; 20 << 20];
    journal.append(Stamp(0), Stamp(8), &[1]).unwrap();
    journal.append(Stamp(8), Stamp(16), &long).unwrap();
    journal.append(Stamp(16), Stamp(24), &[2]).unwrap();
    journal.sync().unwrap();
    assert_eq!(journal.files(), 3);
    drop(journal);
    let (_, found) = Journal::open(medium, Stamp(4)).unwrap();
    let lengths: Vec<usize> = found.iter().map(|found| found.bytes.len()).collect();
    assert_eq!(lengths, [1, 20 << 20, 1]);
}
