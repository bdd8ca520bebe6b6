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

use std::{io, os::fd::BorrowedFd, sync::Arc};

use freshet_base::sync::AtomicU64;
use freshet_memory::{Registered, SharedMemory};

#[cfg(loom)]
pub(crate) use super::unmapped::PersistentBuffer;
#[cfg(not(loom))]
pub(crate) use crate::persist::buffer::PersistentBuffer;

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
        match &self.0 {
            Inner::Shared(memory) => memory.file(),
            Inner::Persistent(buffer) => Some((buffer.lend(), PersistentBuffer::RING as u64)),
        }
    }
}
