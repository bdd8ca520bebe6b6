//! A ring that others may map: a standby's, into which the primary writes (Query Fresh, section
//! 3.1).
//!
//! It is a sealed memfd, or the file in persistent memory. [`Log::grant`](crate::Log::grant) says
//! up to where another process or a network card may write;
//! [`Receiver::accept`](crate::Receiver::accept) checks each block by its checksum before it
//! counts; [`Receiver::renew`](crate::Receiver::renew) takes the memory away from others that may
//! have mapped it: the same addresses, another file. A promotion renews it before the first block
//! of its term. A buffer in persistent memory is another file at each start, since a primary may
//! have mapped that of the process before.

use std::{
    fs::File,
    io,
    os::fd::BorrowedFd,
    sync::{Arc, atomic::Ordering},
};

use freshet_base::{private, sync::AtomicU64, words::Registered};
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, memfd_create};

use super::mapped::Mapped;
pub(crate) use crate::persist::buffer::PersistentBuffer;

/// The size of huge pages that is tried.
const HUGE_PAGE: usize = 2 << 20;

/// Plain memory that has a file: sealed, so that nobody with whom it is shared can cut it off under
/// us.
#[derive(Debug)]
pub(crate) struct SharedMemory {
    mapped: Mapped,
    huge_pages: bool,
}

impl SharedMemory {
    /// `length` bytes of zeros. With `huge_pages`, of those if the system has set some aside; else
    /// ordinary ones, which the kernel may put together by itself.
    pub(crate) fn new(length: usize, huge_pages: bool) -> io::Result<Self> {
        let huge =
            if huge_pages && length.is_multiple_of(HUGE_PAGE) { Self::of_pages(length, true).ok() } else { None };
        let mapped = match huge {
            Some(mapped) => mapped,
            None => {
                let mapped = Self::of_pages(length, false)?;
                if huge_pages {
                    mapped.prefer_huge_pages();
                }
                mapped
            }
        };
        Ok(Self { mapped, huge_pages })
    }

    fn of_pages(length: usize, huge: bool) -> io::Result<Mapped> {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let flags = if huge { flags | MemfdFlags::HUGETLB | MemfdFlags::HUGE_2MB } else { flags };
        let file = File::from(memfd_create(c"freshet-log-ring", flags)?);
        private::keep(&file)?;
        file.set_len(length as u64)?;
        fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
        // Huge pages are set aside here, or it fails; later there would be a signal instead.
        Mapped::of(file, length, libc::MAP_SHARED).map_err(|(_, error)| error)
    }

    #[inline]
    pub(crate) fn words(&self) -> &[AtomicU64] {
        self.mapped.words()
    }

    /// Whether others may have mapped it.
    fn is_lent(&self) -> bool {
        self.mapped.is_lent()
    }

    fn renew(&self, keep: &dyn Fn(usize) -> bool) -> io::Result<()> {
        let new = Self::new(self.words().len() * 8, self.huge_pages)?;
        copy_words(self.words(), new.words(), keep);
        self.mapped.replace(new.mapped)
    }
}

/// Copies those words to new, zeroed memory that are to be kept.
pub(crate) fn copy_words(from: &[AtomicU64], to: &[AtomicU64], keep: &dyn Fn(usize) -> bool) {
    for (index, (from, to)) in from.iter().zip(to).enumerate() {
        // Relaxed: the thread that wrote what is kept synchronised with the caller.
        let word = from.load(Ordering::Relaxed);
        // Pages of zeros need not be there.
        if word != 0 && keep(index) {
            to.store(word, Ordering::Relaxed);
        }
    }
}

/// The memory of a standby's ring, and the file by which others can map it; cheap to clone. Virtual
/// byte `x` of the log lies at byte `x mod capacity`.
#[derive(Clone, Debug)]
pub struct RingMemory(Inner);

#[derive(Clone, Debug)]
enum Inner {
    Shared(Arc<SharedMemory>),
    Persistent(Arc<PersistentBuffer>),
}

impl RingMemory {
    pub(super) fn shared(memory: &Arc<SharedMemory>) -> Self {
        Self(Inner::Shared(Arc::clone(memory)))
    }

    pub(super) fn persistent(buffer: &Arc<PersistentBuffer>) -> Self {
        Self(Inner::Persistent(Arc::clone(buffer)))
    }

    /// Whether others may have mapped it.
    pub(crate) fn is_lent(&self) -> bool {
        match &self.0 {
            Inner::Shared(memory) => memory.is_lent(),
            Inner::Persistent(buffer) => buffer.is_lent(),
        }
    }

    /// Takes the memory away from every other process that has mapped it. Words that `keep` refuses
    /// are zero then. Nobody in this process writes in the meantime.
    pub(crate) fn renew(&self, keep: &dyn Fn(usize) -> bool) -> io::Result<()> {
        match &self.0 {
            Inner::Shared(memory) => memory.renew(keep),
            Inner::Persistent(buffer) => buffer.renew(keep),
        }
    }
}

impl Registered for RingMemory {
    /// From the ring's first byte on.
    #[inline]
    fn words(&self) -> &[AtomicU64] {
        match &self.0 {
            Inner::Shared(memory) => memory.words(),
            Inner::Persistent(buffer) => buffer.words(),
        }
    }

    /// From now on another process may write there unseen, until the memory is
    /// [renewed](crate::Receiver::renew). The descriptor's number stays the same then, and names
    /// the new file.
    fn file(&self) -> Option<(BorrowedFd<'_>, u64)> {
        Some(match &self.0 {
            Inner::Shared(memory) => (memory.mapped.lend(), 0),
            Inner::Persistent(buffer) => (buffer.lend(), PersistentBuffer::RING as u64),
        })
    }
}
