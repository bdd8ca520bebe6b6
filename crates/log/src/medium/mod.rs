//! What segments are kept on: files, plain memory, or (in tests) something that fails on demand.
//!
//! This is all that the log asks of storage. The assumptions behind it: a write may be torn
//! at any byte and its pages may become durable in any order until the next sync of the same file;
//! after a sync that succeeded, all earlier writes to that file are durable; a file that
//! [`Medium::create`] returned is durable with its name, its length and its first bytes.
//!
//! A process that ends leaves its unsynced writes to be read by the next one, as durable or not as
//! they were. After a sync that failed, what it covered is read as it was written for as long as
//! the machine runs, need not be on the disk, and is not put there by a later sync that succeeds.
//! Only writing it again and then syncing makes it durable.

mod descriptors;
mod failing;
mod file;
mod lying;
mod memory;

use std::{fmt, io, path::PathBuf, sync::Arc};

pub use descriptors::keep_descriptors;
pub(crate) use descriptors::with_descriptors;
pub use failing::{DEAD, FULL, let_disk_fail};
pub use file::{FileMedium, make_directory};
pub(crate) use lying::files;
pub use lying::let_syncs_lie;
pub use memory::MemoryMedium;

/// A place that holds named files of fixed size. Errors name nothing: the caller knows what it
/// asked for.
pub trait Medium: Send + Sync + fmt::Debug {
    /// The names of all files.
    ///
    /// # Errors
    /// When the place cannot be listed.
    fn list(&self) -> io::Result<Vec<String>>;

    /// Makes a new file of `size` bytes that begins with `first` and is zero behind that, durable
    /// with its name when this returns. A file of that name that was left half-made is replaced.
    ///
    /// # Errors
    /// When it cannot be made; nothing of that name is left then, or something that was never used.
    fn create(&self, name: &str, size: u64, first: &[u8]) -> io::Result<Arc<dyn MediumFile>>;

    /// Opens a file that exists.
    ///
    /// # Errors
    /// When it does not, or cannot be opened.
    fn open(&self, name: &str) -> io::Result<Arc<dyn MediumFile>>;

    /// Removes a file; durable when this returns.
    ///
    /// # Errors
    /// When it cannot be removed.
    fn remove(&self, name: &str) -> io::Result<()>;

    /// Makes durable what files there are, and under which names: of an earlier process that ended
    /// before it could.
    ///
    /// # Errors
    /// When that is not promised.
    fn sync(&self) -> io::Result<()>;

    /// How people find the file: a path, where there is one.
    fn path(&self, name: &str) -> PathBuf;
}

/// One file of a [`Medium`].
pub trait MediumFile: Send + Sync + fmt::Debug {
    /// Its size in bytes.
    ///
    /// # Errors
    /// When it cannot be asked.
    fn size(&self) -> io::Result<u64>;

    /// Writes all of `bytes` at `offset`; durable after the next [`MediumFile::sync`].
    ///
    /// # Errors
    /// When not all could be written; any part may have been.
    fn write(&self, offset: u64, bytes: &[u8]) -> io::Result<()>;

    /// Fills `into` from `offset`.
    ///
    /// # Errors
    /// When it cannot be filled; `into` is undefined then.
    fn read(&self, offset: u64, into: &mut [u8]) -> io::Result<()>;

    /// Zeroes a range; durable after the next [`MediumFile::sync`].
    ///
    /// # Errors
    /// When not all could be zeroed; any part may have been.
    fn zero(&self, offset: u64, length: u64) -> io::Result<()>;

    /// Makes all earlier writes durable.
    ///
    /// # Errors
    /// When the medium does not promise that. It may never be tried again: the writes may be lost
    /// although a second sync succeeds.
    fn sync(&self) -> io::Result<()>;
}
