//! Files on a disk that fills or dies when it is told to, for rehearsals of what comes then.

use std::{
    fs, io,
    path::{Path, PathBuf},
    sync::{Arc, OnceLock},
};

use rustix::io::Errno;

use super::{Medium, MediumFile};

/// What a file says that tells a disk to be full: nothing can be made or written, as on a file
/// system that writes nothing in place.
pub const FULL: &str = "full";
/// What it says that tells a disk to be dead: it does nothing any more.
pub const DEAD: &str = "dead";

static STATE_FILE: OnceLock<PathBuf> = OnceLock::new();

/// From now on the logs that this process opens in directories are on a disk that is as this file
/// says, [`FULL`] or [`DEAD`], while it is there.
pub fn let_disk_fail(state_file: PathBuf) {
    // It is told once: by the command line.
    let _ = STATE_FILE.set(state_file);
}

/// These files, on a disk that can be told to fail if this process has such a one.
pub(super) fn failing(files: Arc<dyn Medium>) -> Arc<dyn Medium> {
    match STATE_FILE.get() {
        Some(state_file) => Arc::new(FailingMedium { files, disk: Disk { state_file: state_file.as_path().into() } }),
        None => files,
    }
}

#[derive(Clone, Debug)]
struct Disk {
    state_file: Arc<Path>,
}

impl Disk {
    fn works(&self) -> io::Result<()> {
        self.works_if(false)
    }

    fn has_room(&self) -> io::Result<()> {
        self.works_if(true)
    }

    /// Whether it does what takes room, or anything else.
    fn works_if(&self, takes_room: bool) -> io::Result<()> {
        match fs::read_to_string(&self.state_file).as_deref() {
            Ok(DEAD) => Err(Errno::IO.into()),
            Ok(FULL) if takes_room => Err(Errno::NOSPC.into()),
            _ => Ok(()),
        }
    }
}

#[derive(Debug)]
struct FailingMedium {
    files: Arc<dyn Medium>,
    disk: Disk,
}

impl FailingMedium {
    fn file(&self, file: Arc<dyn MediumFile>) -> Arc<dyn MediumFile> {
        Arc::new(FailingFile { file, disk: self.disk.clone() })
    }
}

impl Medium for FailingMedium {
    fn list(&self) -> io::Result<Vec<String>> {
        self.disk.works()?;
        self.files.list()
    }

    fn create(&self, name: &str, size: u64, first: &[u8]) -> io::Result<Arc<dyn MediumFile>> {
        self.disk.has_room()?;
        Ok(self.file(self.files.create(name, size, first)?))
    }

    fn open(&self, name: &str) -> io::Result<Arc<dyn MediumFile>> {
        self.disk.works()?;
        Ok(self.file(self.files.open(name)?))
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.disk.works()?;
        self.files.remove(name)
    }

    fn sync(&self) -> io::Result<()> {
        self.disk.works()?;
        self.files.sync()
    }

    fn path(&self, name: &str) -> PathBuf {
        self.files.path(name)
    }
}

#[derive(Debug)]
struct FailingFile {
    file: Arc<dyn MediumFile>,
    disk: Disk,
}

impl MediumFile for FailingFile {
    fn size(&self) -> io::Result<u64> {
        self.file.size()
    }

    fn write(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.disk.has_room()?;
        self.file.write(offset, bytes)
    }

    fn read(&self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        self.disk.works()?;
        self.file.read(offset, into)
    }

    fn zero(&self, offset: u64, length: u64) -> io::Result<()> {
        self.disk.works()?;
        self.file.zero(offset, length)
    }

    fn sync(&self) -> io::Result<()> {
        self.disk.works()?;
        self.file.sync()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::medium::MemoryMedium;

    #[test]
    fn a_disk_fails_for_as_long_as_it_is_ordered_to() {
        let directory = tempfile::tempdir().unwrap();
        let state_file = directory.path().join("disk");
        let disk = Disk { state_file: state_file.as_path().into() };
        let medium = FailingMedium { files: Arc::new(MemoryMedium::new()), disk };
        let file = medium.create("a", 4096, &[1]).unwrap();
        fs::write(&state_file, FULL).unwrap();
        assert_eq!(medium.create("b", 4096, &[]).unwrap_err().kind(), io::ErrorKind::StorageFull);
        assert_eq!(file.write(1, &[2]).unwrap_err().kind(), io::ErrorKind::StorageFull);
        file.sync().unwrap();
        fs::write(&state_file, DEAD).unwrap();
        let failures = [file.write(2, &[3]), file.sync(), medium.open("a").map(drop), medium.list().map(drop)];
        assert!(failures.iter().all(Result::is_err), "{failures:?}");
        fs::remove_file(&state_file).unwrap();
        let mut bytes = [0; 3];
        medium.open("a").unwrap().read(0, &mut bytes).unwrap();
        assert_eq!(bytes, [1, 0, 0]);
    }
}
