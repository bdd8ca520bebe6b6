//! In place of memory that others map, in models: loom's atomics lie in memory of their own, so
//! nothing here has values.

use std::{io, os::fd::BorrowedFd};

use freshet_base::sync::AtomicU64;

use crate::Registered;

/// Memory that several processes of one machine can have in common.
#[derive(Debug)]
pub enum SharedMemory {}

impl SharedMemory {
    /// Fails.
    ///
    /// # Errors
    /// Always.
    pub fn new(_length: usize, _huge_pages: bool) -> io::Result<Self> {
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Whether others may have mapped it.
    pub fn is_lent(&self) -> bool {
        match *self {}
    }

    /// Takes the memory away from every other process that has mapped it.
    ///
    /// # Errors
    /// None here.
    pub fn renew(&self, _keep: impl Fn(usize) -> bool) -> io::Result<()> {
        match *self {}
    }
}

impl Registered for SharedMemory {
    fn words(&self) -> &[AtomicU64] {
        match *self {}
    }

    fn file(&self) -> Option<(BorrowedFd<'_>, u64)> {
        match *self {}
    }
}
