//! Segments in memory that are slow, full or broken when they are told to be.
#![allow(dead_code, reason = "not every test wants all of it")]

use std::{
    io,
    path::PathBuf,
    sync::{Arc, Condvar, Mutex},
};

use freshet_log::medium::{Medium, MediumFile, MemoryMedium};

#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum State {
    #[default]
    Open,
    /// Syncs wait.
    Held,
    /// Nothing can be written, for want of space.
    Full,
    /// Nothing can be made, for want of space; what was made has all it needs.
    NoNew,
    /// Nothing can be made, for want of descriptors.
    NoDescriptors,
    /// Nothing can be written, for good.
    Broken,
}

#[derive(Debug, Default)]
struct Door {
    state: Mutex<State>,
    changed: Condvar,
}

impl Door {
    fn write(&self) -> io::Result<()> {
        match *self.state.lock().unwrap() {
            State::Full => Err(io::ErrorKind::StorageFull.into()),
            State::Broken => Err(io::Error::other("the device does not answer")),
            _ => Ok(()),
        }
    }

    fn make(&self) -> io::Result<()> {
        let state = *self.state.lock().unwrap();
        match state {
            State::NoNew => Err(io::ErrorKind::StorageFull.into()),
            State::NoDescriptors => Err(io::Error::from_raw_os_error(24)),
            _ => self.write(),
        }
    }

    fn sync(&self) -> io::Result<()> {
        let state = self.state.lock().unwrap();
        drop(self.changed.wait_while(state, |state| *state == State::Held).unwrap());
        self.write()
    }
}

/// What is written lasts as long as this.
#[derive(Debug, Default)]
pub struct Gate {
    files: MemoryMedium,
    door: Arc<Door>,
}

impl Gate {
    pub fn set(&self, state: State) {
        *self.door.state.lock().unwrap() = state;
        self.door.changed.notify_all();
    }

    fn gated(&self, file: Arc<dyn MediumFile>) -> Arc<dyn MediumFile> {
        Arc::new(GatedFile { file, door: Arc::clone(&self.door) })
    }
}

impl Medium for Gate {
    fn list(&self) -> io::Result<Vec<String>> {
        self.files.list()
    }

    fn create(&self, name: &str, size: u64, first: &[u8]) -> io::Result<Arc<dyn MediumFile>> {
        self.door.make()?;
        self.files.create(name, size, first).map(|file| self.gated(file))
    }

    fn open(&self, name: &str) -> io::Result<Arc<dyn MediumFile>> {
        self.files.open(name).map(|file| self.gated(file))
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.files.remove(name)
    }

    fn sync(&self) -> io::Result<()> {
        self.files.sync()
    }

    fn path(&self, name: &str) -> PathBuf {
        self.files.path(name)
    }
}

#[derive(Debug)]
struct GatedFile {
    file: Arc<dyn MediumFile>,
    door: Arc<Door>,
}

impl MediumFile for GatedFile {
    fn size(&self) -> io::Result<u64> {
        self.file.size()
    }

    fn write(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.door.write()?;
        self.file.write(offset, bytes)
    }

    fn read(&self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        self.file.read(offset, into)
    }

    fn zero(&self, offset: u64, length: u64) -> io::Result<()> {
        self.door.write()?;
        self.file.zero(offset, length)
    }

    fn sync(&self) -> io::Result<()> {
        self.door.sync()?;
        self.file.sync()
    }
}
