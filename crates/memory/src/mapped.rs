//! A file mapped into memory as words that are shared with others: with the kernel, and with
//! every other process that has mapped the file.

use std::{
    fs::File,
    io,
    os::fd::{AsFd, AsRawFd, BorrowedFd},
    ptr::{self, NonNull},
};

use freshet_base::sync::{AtomicBool, AtomicU64, Ordering};

use crate::{Medium, lease::is_leased};

/// Bytes of a page; mappings begin and end at its multiples.
pub(crate) const PAGE: usize = 4096;

/// The mapping of a file, or of a part of it.
#[derive(Debug)]
pub struct Mapped {
    words: NonNull<AtomicU64>,
    length: usize,
    /// Where in the file the words begin.
    at: u64,
    flags: i32,
    /// Which file its number names changes in [`Mapped::replace`], and nowhere else.
    file: File,
    /// The file was given to others, which may have mapped it.
    lent: AtomicBool,
}

// SAFETY: the memory is an array of atomics that lives as long as this value; nothing else is
// shared.
unsafe impl Send for Mapped {}
// SAFETY: as above.
unsafe impl Sync for Mapped {}

impl Mapped {
    /// Maps `length` bytes of `file` from byte `at` on (both multiples of eight). The file has at
    /// least this many and never gets fewer; `flags` of `mmap(2)` say that the mapping is shared.
    ///
    /// # Errors
    /// What the system says, with the file.
    ///
    /// # Panics
    /// When the length is zero, or something is no multiple of eight.
    pub fn of(file: File, at: u64, length: usize, flags: i32) -> Result<Self, (File, io::Error)> {
        assert!(length > 0 && length.is_multiple_of(8) && at.is_multiple_of(8));
        let skip = skip(at);
        let (bytes, first) = ((skip + length).next_multiple_of(PAGE), at - skip as u64);
        // SAFETY: a new mapping at an address that the kernel chooses; the file has this length.
        let memory =
            unsafe { libc::mmap(ptr::null_mut(), bytes, PROTECTION, flags, file.as_raw_fd(), first as libc::off_t) };
        if memory == libc::MAP_FAILED {
            return Err((file, io::Error::last_os_error()));
        }
        match NonNull::new(memory.cast::<u8>().wrapping_add(skip).cast()) {
            Some(words) => Ok(Self { words, length, at, flags, file, lent: AtomicBool::new(false) }),
            None => Err((file, io::Error::other("mapped at address zero"))),
        }
    }

    /// The same of a file whose bytes are to be durable: with MAP_SYNC where the file system is
    /// DAX, so that the file has its blocks before anything is stored there. Says what lies under
    /// it.
    ///
    /// # Errors
    /// What the system says.
    ///
    /// # Panics
    /// As above.
    pub fn durable(file: File, at: u64, length: usize) -> io::Result<(Self, Medium)> {
        match Self::of(file, at, length, libc::MAP_SHARED_VALIDATE | libc::MAP_SYNC) {
            Ok(mapped) => Ok((mapped, Medium::Dax)),
            Err((file, error)) => {
                let why = format!("its file system cannot map with MAP_SYNC: {error}");
                let mapped = Self::of(file, at, length, libc::MAP_SHARED).map_err(|(_, error)| error)?;
                Ok((mapped, Medium::Emulated { why }))
            }
        }
    }

    /// The memory. Any bytes are atomics, and they lie at a multiple of eight in a page.
    #[inline]
    pub fn words(&self) -> &[AtomicU64] {
        // SAFETY: mapped for reading and writing with this length until `drop`, without a gap (see
        // `replace`). All access from Rust is through these atomics; the instructions that go
        // around them are stores of whole aligned words.
        unsafe { std::slice::from_raw_parts(self.words.as_ptr(), self.length / 8) }
    }

    /// The file, for others to map, and where in it the words begin: it counts as lent from now on,
    /// until it is replaced.
    pub fn lend(&self) -> (BorrowedFd<'_>, u64) {
        self.lent.store(true, Ordering::SeqCst);
        (self.file.as_fd(), self.at)
    }

    /// Whether others may have mapped this memory.
    pub fn is_lent(&self) -> bool {
        self.lent.load(Ordering::SeqCst)
    }

    /// Whether another process has mapped this memory now. Never blocks.
    ///
    /// # Errors
    /// What the system says.
    pub fn is_mapped_elsewhere(&self) -> io::Result<bool> {
        is_leased(&self.file)
    }

    /// Asks for huge pages where the kernel decides about them; it may not care.
    pub(crate) fn prefer_huge_pages(&self) {
        let (first, bytes) = self.whole();
        // SAFETY: advice about our own mapping that changes no byte of it.
        let _ = unsafe { libc::madvise(first, bytes, libc::MADV_HUGEPAGE) };
    }

    /// Where the mapping begins, and how long it is.
    fn whole(&self) -> (*mut libc::c_void, usize) {
        let skip = skip(self.at);
        let first = self.words.as_ptr().cast::<u8>().wrapping_sub(skip);
        (first.cast(), (skip + self.length).next_multiple_of(PAGE))
    }

    /// Maps the file of `other` over this mapping's addresses: what others have mapped is no longer
    /// this memory. The descriptor keeps its number and names the new file. `other` has the same
    /// length and place in its file and, wherever another thread may look in the meantime, the
    /// same bytes.
    ///
    /// # Errors
    /// What the system says; nothing has changed then.
    ///
    /// # Panics
    /// When lengths or places differ.
    pub fn replace(&self, other: Self) -> io::Result<()> {
        assert_eq!((self.length, self.at), (other.length, other.at));
        // SAFETY: both descriptors are open, and the call touches no memory of ours. A descriptor
        // of this number stays open throughout.
        if unsafe { libc::dup3(other.file.as_raw_fd(), self.file.as_raw_fd(), libc::O_CLOEXEC) } < 0 {
            return Err(io::Error::last_os_error());
        }
        let (flags, (first, bytes)) = (other.flags | libc::MAP_FIXED, self.whole());
        let offset = (self.at - skip(self.at) as u64) as libc::off_t;
        // SAFETY: the addresses are our own mapping's, whose users see the same bytes before and
        // after, all at once: the kernel makes a thread that comes in between wait.
        let at = unsafe { libc::mmap(first, bytes, PROTECTION, flags, self.file.as_raw_fd(), offset) };
        if at == libc::MAP_FAILED {
            // The old mapping may be gone, and references into it are held all over: there is
            // nothing to go back to.
            let why = io::Error::last_os_error();
            freshet_base::panics::end(&format!(
                "memory that was taken back from other processes could not be mapped again: {why}; start the node again"
            ));
        }
        self.lent.store(false, Ordering::SeqCst);
        Ok(())
    }
}

const PROTECTION: i32 = libc::PROT_READ | libc::PROT_WRITE;

/// How far into its page a byte of a file lies.
fn skip(at: u64) -> usize {
    (at % PAGE as u64) as usize
}

impl Drop for Mapped {
    fn drop(&mut self) {
        let (first, bytes) = self.whole();
        // SAFETY: mapped by `of` with this address and length; no reference into it is left.
        unsafe { libc::munmap(first, bytes) };
    }
}
