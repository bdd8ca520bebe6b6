//! In place of memory that others map, in models: loom's atomics lie in memory of their own, so
//! nothing here has values.

use std::{io, sync::Arc};

use freshet_base::sync::AtomicU64;

#[derive(Debug)]
pub(crate) enum SharedMemory {}

#[derive(Debug)]
pub(crate) enum PersistentBuffer {}

/// The ring's memory, for others to map.
#[derive(Clone, Debug)]
pub enum RingMemory {}

impl SharedMemory {
    pub(crate) fn new(_length: usize, _huge_pages: bool) -> io::Result<Self> {
        Err(io::ErrorKind::Unsupported.into())
    }

    pub(crate) fn words(&self) -> &[AtomicU64] {
        match *self {}
    }
}

impl PersistentBuffer {
    pub(crate) fn words(&self) -> &[AtomicU64] {
        match *self {}
    }

    pub(crate) fn insert(&self, _at: usize, _bytes: &[u8]) {
        match *self {}
    }
}

impl RingMemory {
    pub(super) fn shared(memory: &Arc<SharedMemory>) -> Self {
        match **memory {}
    }

    pub(super) fn persistent(buffer: &Arc<PersistentBuffer>) -> Self {
        match **buffer {}
    }

    pub(crate) fn is_lent(&self) -> bool {
        match *self {}
    }

    pub(crate) fn renew(&self, _keep: &dyn Fn(usize) -> bool) -> io::Result<()> {
        match *self {}
    }
}

pub(crate) fn copy_words(_from: &[AtomicU64], _to: &[AtomicU64], _keep: &dyn Fn(usize) -> bool) {}
