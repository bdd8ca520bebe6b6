//! Memory that is a file: on persistent memory the file's lines are the medium; elsewhere it stands for that.

use std::{
    fs::{File, OpenOptions},
    io,
    os::{fd::AsRawFd, unix::fs::OpenOptionsExt},
    path::Path,
    ptr::NonNull,
};

use freshet_base::sync::{AtomicU64, Ordering};

use super::{LINE, Lines, Method, fence, instructions};

/// What lies under a mapping.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Medium {
    /// Persistent memory: what was flushed and fenced survives a loss of power.
    Dax,
    /// Something else that stands for it: what was flushed survives the end of the process, not a loss of power.
    Emulated {
        /// Why it is not the real thing.
        why: String,
    },
}

/// A file mapped into memory, shared with the kernel.
#[derive(Debug)]
pub(crate) struct Mapping {
    words: NonNull<AtomicU64>,
    length: usize,
    method: Method,
    medium: Medium,
    _file: File,
}

// SAFETY: the memory is an array of atomics that lives as long as this value; nothing else is shared.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps the file at `path`, which is made if it is not there and gets `length` bytes (a multiple of 4096) if it is
    /// empty. With MAP_SYNC where the file system is DAX.
    pub(crate) fn open(path: &Path, length: usize, method: Method) -> io::Result<Self> {
        assert!(length > 0 && length.is_multiple_of(4096));
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .custom_flags(libc::O_CLOEXEC)
            .open(path)?;
        if file.metadata()?.len() == 0 {
            // Real blocks: a hole that cannot be filled later would be a signal, not an error.
            // SAFETY: the descriptor is open; the call touches no memory of ours.
            let failed = unsafe { libc::posix_fallocate(file.as_raw_fd(), 0, length as libc::off_t) };
            if failed != 0 {
                let _ = file.set_len(0);
                return Err(io::Error::from_raw_os_error(failed));
            }
            file.sync_all()?;
        }
        let found = file.metadata()?.len();
        if found != length as u64 {
            return Err(io::Error::other(format!("it has {found} bytes, {length} are configured")));
        }
        let map = |flags: i32| {
            let protection = libc::PROT_READ | libc::PROT_WRITE;
            // SAFETY: a new mapping at an address that the kernel chooses; the file has this length.
            let at = unsafe { libc::mmap(std::ptr::null_mut(), length, protection, flags, file.as_raw_fd(), 0) };
            if at == libc::MAP_FAILED { Err(io::Error::last_os_error()) } else { Ok(at) }
        };
        let (at, medium) = match map(libc::MAP_SHARED_VALIDATE | libc::MAP_SYNC) {
            Ok(at) => (at, Medium::Dax),
            Err(error) => {
                let why = format!("the file system of {} cannot map with MAP_SYNC: {error}", path.display());
                (map(libc::MAP_SHARED)?, Medium::Emulated { why })
            }
        };
        let words = NonNull::new(at.cast()).ok_or_else(|| io::Error::other("mapped at address zero"))?;
        Ok(Self { words, length, method, medium, _file: file })
    }

    /// The memory. Zero bytes are a zero atomic, and the mapping is page-aligned.
    pub(crate) fn words(&self) -> &[AtomicU64] {
        // SAFETY: mapped for reading and writing with this length until `drop`. All access from Rust is through these atomics; the
        // instructions that go around them are stores of whole aligned words.
        unsafe { std::slice::from_raw_parts(self.words.as_ptr(), self.length / 8) }
    }

    pub(crate) fn medium(&self) -> &Medium {
        &self.medium
    }

    pub(crate) fn method(&self) -> Method {
        self.method
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: mapped by `open` with this length; nobody has a reference into it any more.
        unsafe { libc::munmap(self.words.as_ptr().cast(), self.length) };
    }
}

impl Lines for Mapping {
    #[inline]
    fn store(&self, at: usize, bytes: &[u8]) {
        let (words, rest) = bytes.as_chunks::<8>();
        assert!(rest.is_empty() && at.is_multiple_of(8), "whole words are stored");
        let place = &self.words()[at / 8..at / 8 + words.len()];
        if self.method == Method::NonTemporal {
            for (place, word) in place.iter().zip(words) {
                // SAFETY: inside the mapping, aligned, and an atomic to all who may read it meanwhile.
                unsafe { instructions::store_around(place.as_ptr(), u64::from_ne_bytes(*word)) };
            }
        } else {
            for (place, word) in place.iter().zip(words) {
                // Relaxed: published by whoever owns the range, as in `buffer::Memory`.
                place.store(u64::from_ne_bytes(*word), Ordering::Relaxed);
            }
        }
    }

    #[inline]
    fn flush(&self, at: usize, length: usize) {
        if matches!(self.method, Method::NonTemporal | Method::Eadr) {
            return;
        }
        let memory: *const u8 = self.words.as_ptr().cast_const().cast();
        let mut line = at - at % LINE;
        while line < (at + length).min(self.length) {
            // SAFETY: inside the mapping; the method was found available when the log was opened.
            unsafe { instructions::flush(self.method, memory.wrapping_add(line)) };
            line += LINE;
        }
    }

    #[inline]
    fn fence(&self) {
        fence();
    }
}
