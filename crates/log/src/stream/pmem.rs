//! Persistent memory under a ring, if there is some: the one place that asks.
//!
//! | the ring is in | a block is durable | its room is free |
//! |---|---|---|
//! | plain memory | when the store has synced it, or, without a store, when it is filled | when the store has written it |
//! | persistent memory | when its lines are flushed and fenced: by its worker, or by those who replay it | when the store has synced it (de-staging) |
//! | the same, under caches that survive (`eadr`) | the same; what is received, when it is accepted ("ideal", Query Fresh, section 4.2) | the same |

use std::sync::Arc;

use freshet_base::Lsn;

use super::{config::ForceFence, passive::Passive};
use crate::persist::{Medium, Method, buffer::PersistentBuffer, fence};

#[derive(Debug)]
pub(crate) struct Pmem(pub(crate) Option<Arc<PersistentBuffer>>);

impl Pmem {
    pub(crate) fn is_there(&self) -> bool {
        self.0.is_some()
    }

    /// Whether what others have stored is durable as soon as they are through: nothing has to be
    /// flushed, nor waited for.
    pub(crate) fn is_at_once(&self) -> bool {
        self.0.as_ref().is_some_and(|buffer| buffer.is_at_once())
    }

    /// What lies under the ring, and how it becomes durable.
    pub(crate) fn medium(&self) -> Option<(Medium, Method)> {
        self.0.as_ref().map(|buffer| (buffer.medium().clone(), buffer.method()))
    }

    /// Up to where the ring is not the log any more.
    pub(crate) fn free_until(&self) -> Lsn {
        self.0.as_ref().map_or(Lsn::MAX, |buffer| buffer.destaged())
    }

    /// The store has everything below `to`, durably.
    pub(crate) fn stored(&self, to: Lsn) {
        if let Some(buffer) = &self.0 {
            buffer.note_destaged(to);
        }
    }

    /// Makes durable what others have stored in `[from, to)`: the calling thread's share.
    pub(crate) fn persist_received(&self, from: Lsn, to: Lsn) {
        if let Some(buffer) = &self.0 {
            buffer.persist_received(from, to);
        }
    }

    /// Takes back everything at or above `at`, of a ring that was written up to `end` at most.
    /// Readers have stopped to look there.
    pub(crate) fn take_back(&self, at: Lsn, end: Lsn) {
        if let Some(buffer) = &self.0 {
            buffer.take_back(at, end);
        }
    }
}

/// When a worker's block is fenced.
#[derive(Debug)]
pub(crate) enum Fences {
    /// Never: plain memory.
    Never,
    /// When it is copied.
    Each,
    /// With the next block, or when somebody asks (distributed logging, section 4.1).
    Passive(Passive),
}

impl Fences {
    /// For `writers` at once.
    pub(super) fn passive(force_fence: ForceFence, writers: usize) -> std::io::Result<Self> {
        Passive::new(force_fence, writers).map(Self::Passive)
    }

    /// Copies the block of writer `writer` at `at`. Comes before its bound is cleared.
    #[inline]
    pub(super) fn around(&self, writer: usize, at: u64, copy: impl FnOnce()) {
        match self {
            Self::Never => copy(),
            Self::Each => {
                copy();
                fence();
            }
            Self::Passive(passive) => {
                passive.settle(writer);
                copy();
                passive.leave_open(writer, at);
            }
        }
    }

    /// How far what is filled is durable in the ring, if it becomes so there. Nobody has to be
    /// waited for but stragglers, which are force-fenced.
    pub(super) fn reached(&self, filled: Lsn) -> Option<Lsn> {
        match self {
            Self::Never => None,
            Self::Each => Some(filled),
            Self::Passive(passive) => {
                if passive.oldest(filled) < filled {
                    passive.force_fence();
                }
                Some(passive.oldest(filled))
            }
        }
    }

    /// Writer `writer` begins. Returns whether there was a place for it.
    pub(super) fn join(&self, writer: usize) -> bool {
        !matches!(self, Self::Passive(passive) if !passive.join(writer))
    }

    /// Makes the worker's last block durable before it waits: then no other thread forces its
    /// fence.
    pub(super) fn settle(&self, writer: usize) {
        if let Self::Passive(passive) = self {
            passive.settle(writer);
        }
    }

    /// It ends.
    pub(super) fn leave(&self, writer: usize) {
        if let Self::Passive(passive) = self {
            passive.leave(writer);
        }
    }

    /// How often stragglers were force-fenced.
    pub(super) fn force_fences(&self) -> u64 {
        match self {
            Self::Passive(passive) => passive.force_fences(),
            _ => 0,
        }
    }
}
