//! Files that are plain memory: for a standby without a disk, whose log must still be readable for
//! ever.

use std::{
    collections::BTreeMap,
    io,
    path::PathBuf,
    sync::{Arc, Mutex},
};

use super::{Medium, MediumFile};
use crate::buffer::Memory;

/// Memory that lasts as long as the process. Reading and writing take no lock; making and opening
/// do.
#[derive(Debug, Default)]
pub struct MemoryMedium {
    files: Mutex<BTreeMap<String, Arc<MemoryFile>>>,
}

#[derive(Debug)]
struct MemoryFile(Memory);

impl MemoryMedium {
    /// Without any file.
    pub fn new() -> Self {
        Self::default()
    }

    fn files(&self) -> std::sync::MutexGuard<'_, BTreeMap<String, Arc<MemoryFile>>> {
        self.files.lock().expect("no code panics under this mutex")
    }
}

impl Medium for MemoryMedium {
    fn list(&self) -> io::Result<Vec<String>> {
        Ok(self.files().keys().cloned().collect())
    }

    fn create(&self, name: &str, size: u64, first: &[u8]) -> io::Result<Arc<dyn MediumFile>> {
        let memory = Memory::new((size as usize).next_multiple_of(8));
        memory.store(0, first);
        let file = Arc::new(MemoryFile(memory));
        self.files().insert(name.to_owned(), Arc::clone(&file));
        Ok(file)
    }

    fn open(&self, name: &str) -> io::Result<Arc<dyn MediumFile>> {
        match self.files().get(name) {
            Some(file) => Ok(Arc::clone(file) as _),
            None => Err(io::ErrorKind::NotFound.into()),
        }
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.files().remove(name).map(drop).ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn sync(&self) -> io::Result<()> {
        Ok(())
    }

    fn path(&self, name: &str) -> PathBuf {
        PathBuf::from(format!("memory:{name}"))
    }
}

impl MemoryFile {
    fn check(&self, offset: u64, length: u64) -> io::Result<usize> {
        match offset.checked_add(length) {
            Some(end) if end <= self.0.len() as u64 => Ok(offset as usize),
            _ => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }
}

impl MediumFile for MemoryFile {
    fn size(&self) -> io::Result<u64> {
        Ok(self.0.len() as u64)
    }

    fn write(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let at = self.check(offset, bytes.len() as u64)?;
        self.0.store(at, bytes);
        Ok(())
    }

    fn read(&self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        let at = self.check(offset, into.len() as u64)?;
        self.0.load(at, into);
        Ok(())
    }

    fn zero(&self, offset: u64, length: u64) -> io::Result<()> {
        let at = self.check(offset, length)?;
        // Whole words: the log's ranges begin and end at multiples of eight.
        self.0.clear(at, length as usize);
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        Ok(())
    }
}
