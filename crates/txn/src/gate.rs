//! The last step of the commit path: the client is told, once the commit rule holds.

use std::{
    fmt,
    sync::{OnceLock, PoisonError, RwLock},
    time::Instant,
};

use freshet_base::{Stamp, Term, WaitError, Watermark};

/// What [`Transaction::commit`](crate::Transaction::commit) returns: the transaction has taken effect on this
/// node, and is committed once [`CommitGate::wait`] says so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "a transaction is committed only when its ticket has resolved"]
pub struct Ticket {
    /// The transaction's place in the commit order; `None` when it wrote nothing.
    pub stamp: Option<Stamp>,
    /// Everything below this must be persistent first: its own block and what it has read.
    pub until: Stamp,
}

/// The client stopped waiting, or was stopped: whether the transaction will survive is open. It is neither
/// "committed" nor "rolled back".
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OutcomeOpen {
    /// The deadline passed first.
    Deadline,
    /// The safety level cannot be kept, and the node refuses rather than waits.
    Refused(String),
    /// Another primary reigns.
    Fenced(Term),
    /// The log cannot be written.
    LogFailed(String),
    /// The node stopped.
    Stopped,
}

impl fmt::Display for OutcomeOpen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Deadline => f.write_str("stopped waiting for the commit"),
            Self::Refused(why) => write!(f, "the safety level cannot be kept: {why}"),
            Self::Fenced(term) => write!(f, "another primary reigns since term {term}"),
            Self::LogFailed(why) => write!(f, "the log cannot be written: {why}"),
            Self::Stopped => f.write_str("the node stopped"),
        }?;
        f.write_str("; the outcome of the transaction is open: look for its effects before you repeat it")
    }
}

impl std::error::Error for OutcomeOpen {}

/// Where commits are let through: the `committed` watermark, and what keeps it from moving.
#[derive(Debug)]
pub struct CommitGate {
    committed: Watermark,
    /// Set once, when the watermark will not move again.
    ended: OnceLock<OutcomeOpen>,
    /// Why no transaction may commit for the time being.
    refusal: RwLock<Option<String>>,
    refusing: freshet_base::sync::AtomicBool,
}

impl CommitGate {
    /// A gate that has let through everything below `committed`.
    pub fn new(committed: Stamp) -> Self {
        Self {
            committed: Watermark::new(committed),
            ended: OnceLock::new(),
            refusal: RwLock::new(None),
            refusing: freshet_base::sync::AtomicBool::new(false),
        }
    }

    /// Below this, everything is persistent wherever the safety level demands it.
    pub fn committed(&self) -> &Watermark {
        &self.committed
    }

    /// Whether the ticket has resolved. Never blocks.
    #[inline]
    pub fn is_committed(&self, ticket: Ticket) -> bool {
        self.committed.get() >= ticket.until
    }

    /// Blocks until the ticket resolves.
    ///
    /// # Errors
    /// [`OutcomeOpen`] when it does not.
    pub fn wait(&self, ticket: Ticket, deadline: Option<Instant>) -> Result<(), OutcomeOpen> {
        match self.committed.wait(ticket.until, deadline) {
            Ok(_) => Ok(()),
            Err(WaitError::Closed) => Err(self.ended.get().cloned().unwrap_or(OutcomeOpen::Stopped)),
            Err(WaitError::Deadline) => match self.refusal() {
                Some(why) => Err(OutcomeOpen::Refused(why)),
                None => Err(OutcomeOpen::Deadline),
            },
        }
    }

    /// No ticket resolves any more, for this reason. The first reason stays.
    pub fn end(&self, why: OutcomeOpen) {
        let _ = self.ended.set(why);
        self.committed.close();
    }

    /// Why no ticket resolves any more, if so.
    pub fn ended(&self) -> Option<&OutcomeOpen> {
        self.ended.get()
    }

    /// From now on (or no longer, with `None`) transactions that want to write are refused, for this reason.
    pub fn refuse(&self, why: Option<String>) {
        use std::sync::atomic::Ordering::SeqCst;
        let mut refusal = self.refusal.write().unwrap_or_else(PoisonError::into_inner);
        self.refusing.store(why.is_some(), SeqCst);
        *refusal = why;
    }

    /// Why transactions that want to write are refused, if they are.
    pub fn refusal(&self) -> Option<String> {
        // Relaxed: only saves the lock; whoever begins a moment too early waits at the gate.
        if !self.refusing.load(std::sync::atomic::Ordering::Relaxed) {
            return None;
        }
        self.refusal.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;

    #[test]
    fn whoever_stops_waiting_hears_that_the_outcome_is_open() {
        let gate = CommitGate::new(Stamp(10));
        let ticket = Ticket { stamp: Some(Stamp(10)), until: Stamp(20) };
        let soon = || Some(Instant::now() + Duration::from_millis(1));
        assert_eq!(gate.wait(ticket, soon()), Err(OutcomeOpen::Deadline));
        gate.refuse(Some("standby b is gone".into()));
        assert_eq!(gate.wait(ticket, soon()), Err(OutcomeOpen::Refused("standby b is gone".into())));
        gate.refuse(None);
        gate.end(OutcomeOpen::Fenced(Term(3)));
        assert_eq!(gate.wait(ticket, None), Err(OutcomeOpen::Fenced(Term(3))));
        assert!(OutcomeOpen::Stopped.to_string().contains("outcome of the transaction is open"));
        assert_eq!(gate.wait(Ticket { stamp: None, until: Stamp(10) }, None), Ok(()));
    }
}
