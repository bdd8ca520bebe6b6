//! Memory that is a file: on persistent memory the file's lines are the medium; elsewhere it stands
//! for that.

use std::{
    fs::OpenOptions,
    io,
    os::{
        fd::{AsRawFd, BorrowedFd},
        unix::fs::OpenOptionsExt,
    },
    path::Path,
};

use freshet_base::{
    private,
    sync::{AtomicU64, Ordering},
};
use freshet_memory::{Mapped, Medium, Method, fence, flush_lines, stream};

use super::Lines;

/// A file mapped into memory, shared with the kernel.
#[derive(Debug)]
pub(crate) struct Mapping {
    mapped: Mapped,
    method: Method,
    /// For what was not stored by [`Lines::store`].
    flushing: Method,
    medium: Medium,
}

impl Mapping {
    /// Maps the file at `path`, which is made if it is not there and gets `length` bytes (a
    /// multiple of 4096) if it is empty. With MAP_SYNC where the file system is DAX.
    pub(crate) fn open(path: &Path, length: usize, method: Method) -> io::Result<Self> {
        assert!(length > 0 && length.is_multiple_of(4096));
        let options = &mut OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false).custom_flags(libc::O_CLOEXEC);
        let file = private::open(options, path)?;
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
        let (mapped, medium) = Mapped::durable(file, 0, length)?;
        Ok(Self { mapped, method, flushing: method.flushing(), medium })
    }

    /// The memory.
    #[inline]
    pub(crate) fn words(&self) -> &[AtomicU64] {
        self.mapped.words()
    }

    /// The file, for others to map ([`Mapped::lend`]).
    pub(crate) fn lend(&self) -> BorrowedFd<'_> {
        self.mapped.lend().0
    }

    /// Whether others may have mapped it.
    pub(crate) fn is_lent(&self) -> bool {
        self.mapped.is_lent()
    }

    /// Maps another's file over this one's addresses ([`Mapped::replace`]).
    pub(crate) fn replace(&self, other: Self) -> io::Result<()> {
        self.mapped.replace(other.mapped)
    }

    pub(crate) fn medium(&self) -> &Medium {
        &self.medium
    }

    pub(crate) fn method(&self) -> Method {
        self.method
    }
}

impl Lines for Mapping {
    #[inline]
    fn store(&self, at: usize, bytes: &[u8]) {
        let (words, rest) = bytes.as_chunks::<8>();
        assert!(rest.is_empty() && at.is_multiple_of(8), "whole words are stored");
        let place = &self.words()[at / 8..at / 8 + words.len()];
        if self.method == Method::NonTemporal {
            stream(place, words);
        } else {
            for (place, word) in place.iter().zip(words) {
                // Relaxed: published by the thread that owns the range, as in `buffer::Memory`.
                place.store(u64::from_ne_bytes(*word), Ordering::Relaxed);
            }
        }
    }

    #[inline]
    fn flush(&self, at: usize, length: usize) {
        flush_lines(self.words(), self.method, at, length);
    }

    #[inline]
    fn flush_received(&self, at: usize, length: usize) {
        flush_lines(self.words(), self.flushing, at, length);
    }

    #[inline]
    fn fence(&self) {
        fence();
    }
}
