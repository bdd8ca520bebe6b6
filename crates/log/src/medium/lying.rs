//! Files on a disk that lies about syncs, for rehearsals of what is lost then.

use std::{
    collections::{HashMap, VecDeque},
    io,
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, Weak,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use super::{FileMedium, Medium, MediumFile, failing::failing};

/// What is written reaches the disk so long after that, whatever is synced.
const LATER: Duration = Duration::from_millis(200);

static LIES: AtomicBool = AtomicBool::new(false);

/// From now on the logs that this process opens in directories are on a disk that acknowledges
/// syncs at once: the end of this process by SIGKILL is a loss of power, with which the writes of
/// the last 200 ms are gone.
pub fn let_syncs_lie() {
    LIES.store(true, Ordering::SeqCst);
}

/// The files of a log's directory.
pub(crate) fn files(directory: &Path) -> Arc<dyn Medium> {
    let files = FileMedium::new(directory);
    failing(if LIES.load(Ordering::SeqCst) { Arc::new(LyingMedium::new(files)) } else { Arc::new(files) })
}

/// [`FileMedium`] with such a disk below it.
#[derive(Debug)]
pub(crate) struct LyingMedium {
    files: FileMedium,
    /// Those that are open: all who open a file see what was written.
    open: Mutex<HashMap<String, Weak<LyingFile>>>,
}

impl LyingMedium {
    pub(crate) fn new(files: FileMedium) -> Self {
        Self { files, open: Mutex::default() }
    }

    fn keep(&self, name: &str, file: Arc<dyn MediumFile>) -> Arc<dyn MediumFile> {
        let file = Arc::new(LyingFile { file, held: Mutex::default() });
        self.all().insert(name.to_owned(), Arc::downgrade(&file));
        file
    }

    fn all(&self) -> MutexGuard<'_, HashMap<String, Weak<LyingFile>>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Medium for LyingMedium {
    fn list(&self) -> io::Result<Vec<String>> {
        self.files.list()
    }

    fn create(&self, name: &str, size: u64, first: &[u8]) -> io::Result<Arc<dyn MediumFile>> {
        Ok(self.keep(name, self.files.create(name, size, first)?))
    }

    fn open(&self, name: &str) -> io::Result<Arc<dyn MediumFile>> {
        let open = self.all().get(name).and_then(Weak::upgrade);
        match open {
            Some(file) => Ok(file),
            None => Ok(self.keep(name, self.files.open(name)?)),
        }
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.all().remove(name);
        self.files.remove(name)
    }

    fn sync(&self) -> io::Result<()> {
        self.files.sync()
    }

    fn path(&self, name: &str) -> PathBuf {
        self.files.path(name)
    }
}

/// A write that the disk has not carried out: when it came, its place and its bytes.
type Write = (Instant, u64, Vec<u8>);

#[derive(Debug)]
struct LyingFile {
    file: Arc<dyn MediumFile>,
    /// In their order; those of the last [`LATER`], and older ones until the next call.
    held: Mutex<VecDeque<Write>>,
}

impl LyingFile {
    /// Carries out what came before `until`.
    fn settle(&self, until: Option<Instant>) -> io::Result<MutexGuard<'_, VecDeque<Write>>> {
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        while let Some((_, offset, bytes)) = held.front().filter(|(at, ..)| until.is_none_or(|until| *at < until)) {
            self.file.write(*offset, bytes)?;
            held.pop_front();
        }
        Ok(held)
    }

    fn settle_old(&self) -> io::Result<MutexGuard<'_, VecDeque<Write>>> {
        // Nothing is that old right after the machine has started.
        self.settle(Some(Instant::now().checked_sub(LATER).unwrap_or_else(Instant::now)))
    }
}

impl MediumFile for LyingFile {
    fn size(&self) -> io::Result<u64> {
        self.file.size()
    }

    fn write(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.settle_old()?.push_back((Instant::now(), offset, bytes.to_vec()));
        Ok(())
    }

    fn read(&self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        let held = self.settle_old()?;
        self.file.read(offset, into)?;
        let end = offset + into.len() as u64;
        for (_, at, bytes) in &*held {
            let (from, to) = (offset.max(*at), end.min(at + bytes.len() as u64));
            if from < to {
                let part = &bytes[(from - at) as usize..(to - at) as usize];
                into[(from - offset) as usize..(to - offset) as usize].copy_from_slice(part);
            }
        }
        Ok(())
    }

    fn zero(&self, offset: u64, length: u64) -> io::Result<()> {
        let _held = self.settle(None)?;
        self.file.zero(offset, length)
    }

    fn sync(&self) -> io::Result<()> {
        self.settle_old().map(|_| ())
    }
}

impl Drop for LyingFile {
    fn drop(&mut self) {
        // A process that ends in order leaves everything. Of a disk that lies nothing else is
        // expected.
        drop(self.settle(None));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_synced_is_read_here_and_is_not_on_the_disk() {
        let directory = tempfile::tempdir().unwrap();
        let medium = LyingMedium::new(FileMedium::new(directory.path()));
        let file = medium.create("x", 4096, &[]).unwrap();
        file.write(10, &[1; 8]).unwrap();
        file.write(14, &[2; 8]).unwrap();
        file.sync().unwrap();
        let read = |file: &dyn MediumFile| {
            let mut bytes = [9; 16];
            file.read(8, &mut bytes).unwrap();
            bytes
        };
        let written = [0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 2, 2, 2, 2, 0, 0];
        assert_eq!(read(&*file), written);
        assert_eq!(read(&*medium.open("x").unwrap()), written, "who opens it again sees the same");
        let on_disk = || read(&*FileMedium::read_only(directory.path()).open("x").unwrap());
        assert_eq!(on_disk(), [0; 16], "a loss of power takes it");
        file.zero(0, 12).unwrap();
        assert_eq!(on_disk()[2..6], [0, 0, 1, 1]);
        file.write(20, &[3]).unwrap();
        drop(file);
        assert_eq!(on_disk()[12], 3, "a process that ends in order leaves it");
    }
}
