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
use freshet_memory::Mapped;

use super::{LINE, Lines, Method, fence, instructions};

/// What lies under a mapping.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Medium {
    /// Persistent memory: what was flushed and fenced survives a loss of power.
    Dax,
    /// Something else that stands for it: what was flushed survives the end of the process, not a
    /// loss of power.
    Emulated {
        /// Why it is not the real thing.
        why: String,
    },
}

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
        let (mapped, medium) = match Mapped::of(file, 0, length, libc::MAP_SHARED_VALIDATE | libc::MAP_SYNC) {
            Ok(mapped) => (mapped, Medium::Dax),
            Err((file, error)) => {
                let why = format!("the file system of {} cannot map with MAP_SYNC: {error}", path.display());
                (Mapped::of(file, 0, length, libc::MAP_SHARED).map_err(|(_, error)| error)?, Medium::Emulated { why })
            }
        };
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

    #[inline]
    fn flush_by(&self, method: Method, at: usize, length: usize) {
        if matches!(method, Method::NonTemporal | Method::Eadr) {
            return;
        }
        let memory: *const u8 = self.words().as_ptr().cast();
        let mut line = at - at % LINE;
        while line < (at + length).min(self.words().len() * 8) {
            // SAFETY: inside the mapping; the method was found available when the log was opened.
            unsafe { instructions::flush(method, memory.wrapping_add(line)) };
            line += LINE;
        }
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
            for (place, word) in place.iter().zip(words) {
                // SAFETY: inside the mapping, aligned, and an atomic to all who may read it
                // in the meantime.
                unsafe { instructions::store_around(place.as_ptr(), u64::from_ne_bytes(*word)) };
            }
        } else {
            for (place, word) in place.iter().zip(words) {
                // Relaxed: published by the thread that owns the range, as in `buffer::Memory`.
                place.store(u64::from_ne_bytes(*word), Ordering::Relaxed);
            }
        }
    }

    #[inline]
    fn flush(&self, at: usize, length: usize) {
        self.flush_by(self.method, at, length);
    }

    #[inline]
    fn flush_received(&self, at: usize, length: usize) {
        self.flush_by(self.flushing, at, length);
    }

    #[inline]
    fn fence(&self) {
        fence();
    }
}
