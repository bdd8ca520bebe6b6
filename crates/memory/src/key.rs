//! How a process finds the memory that another one has passed to it.

use std::{
    fs::File,
    io,
    os::{fd::OwnedFd, unix::fs::FileExt},
};

use rustix::fs::SealFlags;
use serde::{Deserialize, Serialize};

use crate::{Method, Registered, SharedMemory, lease::lease, shared::is_available};

/// What a file in persistent memory begins with that may be shared with other processes, such as
/// the log's buffer. It cannot be sealed.
pub const PERSISTENT: &[u8; 8] = b"FRESHBUF";

/// Where memory lies in the file whose descriptor is passed to another process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SharedKey {
    /// Where in the file the memory begins.
    at: u64,
    /// Its length in bytes.
    length: u64,
    /// How the one who stores there makes that durable, if it is to be.
    method: Option<Method>,
}

impl SharedKey {
    /// How others find `region` in its file; none unless it is a mapping of a file.
    pub fn of(region: &dyn Registered) -> Option<Self> {
        let (length, method) = ((region.words().len() * 8) as u64, region.method());
        region.file().map(|(_, at)| Self { at, length, method })
    }

    /// Maps it, in the file that the other process has passed. That may have taken its memory back
    /// in the meantime: so the caller looks whether it may still write there before it does.
    /// Blocks for 100 ms at most.
    ///
    /// # Errors
    /// When the file is shorter, or cannot be shared: it is neither sealed, so that no process can
    /// truncate it under this one, nor [in persistent memory](PERSISTENT). When this processor
    /// cannot do what makes it durable.
    pub fn attach(&self, file: OwnedFd) -> io::Result<SharedMemory> {
        let file = File::from(file);
        let has = file.metadata()?.len();
        let sealed =
            rustix::fs::fcntl_get_seals(&file).is_ok_and(|seals| seals.contains(SealFlags::SHRINK | SealFlags::GROW));
        if !sealed && !is_persistent(&file)? {
            return Err(io::Error::other("the other process has passed a file that is not there to be shared"));
        }
        is_available(self.method)?;
        let end = self.at.checked_add(self.length).ok_or_else(|| io::Error::other("an impossible length"))?;
        if has < end || self.length == 0 || !self.length.is_multiple_of(8) || !self.at.is_multiple_of(8) {
            return Err(io::Error::other("the other process's memory is not as long as it says"));
        }
        SharedMemory::passed(lease(&file)?, self.at, self.length as usize, self.method)
    }
}

fn is_persistent(file: &File) -> io::Result<bool> {
    let mut first = [0; PERSISTENT.len()];
    match file.read_exact_at(&mut first, 0) {
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(false),
        read => read.map(|()| first == *PERSISTENT),
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use freshet_base::sync::Ordering;

    use super::*;

    /// As the other process gets it.
    fn passed(memory: &SharedMemory) -> OwnedFd {
        memory.file().unwrap().0.try_clone_to_owned().unwrap()
    }

    #[test]
    fn what_is_not_as_long_is_refused() {
        let memory = SharedMemory::new(64, false).unwrap();
        let key = SharedKey::of(&memory).unwrap();
        assert!(SharedKey { length: 8 << 20, ..key.clone() }.attach(passed(&memory)).is_err());
        assert!(SharedKey { at: u64::MAX, ..key.clone() }.attach(passed(&memory)).is_err());
        assert!(SharedKey { at: 4, ..key.clone() }.attach(passed(&memory)).is_err());
        assert!(SharedKey { length: 0, ..key }.attach(passed(&memory)).is_err());
    }

    /// The side that joins may pass any descriptor: it must be memory that no process can truncate.
    #[test]
    fn a_file_that_is_not_there_to_be_shared_is_refused() {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&[7; 8192]).unwrap();
        let key = SharedKey { at: 4104, length: 4088, method: None };
        let passed = || file.try_clone().unwrap().into();
        assert!(key.attach(passed()).unwrap_err().to_string().contains("not there to be shared"));
        file.write_all_at(PERSISTENT, 0).unwrap();
        let memory = key.attach(passed()).expect("persistent memory cannot be sealed");
        // It begins within a page.
        assert_eq!(memory.words().len(), 511);
        memory.words()[0].store(1, Ordering::SeqCst);
        let mut word = [0; 8];
        file.read_exact_at(&mut word, 4104).unwrap();
        assert_eq!(u64::from_ne_bytes(word), 1);
    }
}
