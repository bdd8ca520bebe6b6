//! Memory into which others may write.

use std::{fmt, os::fd::BorrowedFd};

use freshet_base::sync::AtomicU64;

use crate::{Method, durable, instructions};

/// Memory into which others may write, through a fabric or by mapping it.
pub trait Registered: Send + Sync + fmt::Debug {
    /// The memory. It stays at its place as long as this value lives.
    fn words(&self) -> &[AtomicU64];

    /// The file that it is a mapping of, if it is one of a file that other processes of this
    /// machine may map too, and where in the file it begins, in bytes.
    fn file(&self) -> Option<(BorrowedFd<'_>, u64)> {
        None
    }

    /// How what is stored here is made durable by the one who stores it; none if it is not to be,
    /// or if the owner sees to it.
    fn method(&self) -> Option<Method> {
        None
    }

    /// Starts to make durable what was stored in `length` bytes from byte `at` on, if it is to be.
    /// It is when the same thread has [fenced](Registered::fence).
    fn flush(&self, at: usize, length: usize) {
        if let Some(method) = self.method() {
            durable::flush_lines(self.words(), method.flushing(), at, length);
        }
    }

    /// Waits for everything that this thread has flushed, here and elsewhere.
    fn fence(&self) {
        if self.method().is_some() {
            instructions::fence();
        }
    }
}
