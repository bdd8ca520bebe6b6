//! A file mapped into memory as words that are shared with others: with the kernel, and with
//! every other process that has mapped the file.

use std::{
    fs::File,
    io,
    os::fd::{AsFd, AsRawFd, BorrowedFd},
    ptr::{self, NonNull},
};

use freshet_base::sync::{AtomicBool, AtomicU64, Ordering};

/// The mapping of a whole file.
#[derive(Debug)]
pub(crate) struct Mapped {
    words: NonNull<AtomicU64>,
    length: usize,
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
    /// Maps `length` bytes of `file`, which has at least this many and never gets fewer, with
    /// `flags` of `mmap(2)` that say that the mapping is shared.
    pub(crate) fn of(file: File, length: usize, flags: i32) -> Result<Self, (File, io::Error)> {
        assert!(length > 0 && length.is_multiple_of(4096));
        // SAFETY: a new mapping at an address that the kernel chooses; the file has this length.
        let at = unsafe { libc::mmap(ptr::null_mut(), length, PROTECTION, flags, file.as_raw_fd(), 0) };
        if at == libc::MAP_FAILED {
            return Err((file, io::Error::last_os_error()));
        }
        match NonNull::new(at.cast()) {
            Some(words) => Ok(Self { words, length, flags, file, lent: AtomicBool::new(false) }),
            None => Err((file, io::Error::other("mapped at address zero"))),
        }
    }

    /// The memory. Zero bytes are a zero atomic, and the mapping is page-aligned.
    #[inline]
    pub(crate) fn words(&self) -> &[AtomicU64] {
        // SAFETY: mapped for reading and writing with this length until `drop`, without a gap (see
        // `replace`). All access from Rust is through these atomics; the instructions that go
        // around them are stores of whole aligned words.
        unsafe { std::slice::from_raw_parts(self.words.as_ptr(), self.length / 8) }
    }

    /// The file, for others to map: it counts as lent from now on, until it is replaced.
    pub(crate) fn lend(&self) -> BorrowedFd<'_> {
        self.lent.store(true, Ordering::SeqCst);
        self.file.as_fd()
    }

    /// Whether others may have mapped this memory.
    pub(crate) fn is_lent(&self) -> bool {
        self.lent.load(Ordering::SeqCst)
    }

    /// Asks for huge pages where the kernel decides about them; it may not care.
    pub(crate) fn prefer_huge_pages(&self) {
        // SAFETY: advice about our own mapping that changes no byte of it.
        let _ = unsafe { libc::madvise(self.words.as_ptr().cast(), self.length, libc::MADV_HUGEPAGE) };
    }

    /// Maps the file of `other` over this mapping's addresses: what others have mapped is no longer
    /// this memory. The descriptor keeps its number and names the new file. `other` has the same
    /// length and, wherever somebody may look in the meantime, the same bytes.
    ///
    /// # Errors
    /// What the system says; nothing has changed then.
    pub(crate) fn replace(&self, other: Self) -> io::Result<()> {
        assert_eq!(self.length, other.length);
        // SAFETY: both descriptors are open, and the call touches no memory of ours. A descriptor
        // of this number stays open throughout.
        if unsafe { libc::dup3(other.file.as_raw_fd(), self.file.as_raw_fd(), libc::O_CLOEXEC) } < 0 {
            return Err(io::Error::last_os_error());
        }
        let flags = other.flags | libc::MAP_FIXED;
        // SAFETY: the addresses are our own mapping's, whose users see the same bytes before and
        // after, all at once: the kernel makes a thread that comes in between wait.
        let at =
            unsafe { libc::mmap(self.words.as_ptr().cast(), self.length, PROTECTION, flags, self.file.as_raw_fd(), 0) };
        if at == libc::MAP_FAILED {
            // The old mapping may be gone, and references into it are held all over: there is
            // nothing to go back to.
            let why = io::Error::last_os_error();
            freshet_base::panics::end(&format!(
                "the log's ring could not be mapped again: {why}; start the node again"
            ));
        }
        self.lent.store(false, Ordering::SeqCst);
        Ok(())
    }
}

const PROTECTION: i32 = libc::PROT_READ | libc::PROT_WRITE;

impl Drop for Mapped {
    fn drop(&mut self) {
        // SAFETY: mapped by `of` with this length; nobody has a reference into it any more.
        unsafe { libc::munmap(self.words.as_ptr().cast(), self.length) };
    }
}
