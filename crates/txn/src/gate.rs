//! The last step of the commit path: the client is told, once the commit rule holds.

pub use freshet_base::{CommitGate, NotAdmitted, OutcomeOpen};
use freshet_base::{Lsn, wait::Patience};

/// What [`Transaction::commit`](crate::Transaction::commit) returns: the transaction has taken
/// effect on this node, and is committed once [`CommitGate::wait`] says so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "a transaction is committed only when its ticket has resolved"]
pub struct Ticket {
    /// The transaction's place in the commit order; `None` when it wrote nothing.
    pub lsn: Option<Lsn>,
    /// Everything below this must be persistent first: its own block and what it has read.
    pub until: Lsn,
}

/// The gate of a volatile database: nothing has to become persistent anywhere.
#[derive(Clone, Copy, Debug, Default)]
pub struct OpenGate;

impl CommitGate for OpenGate {
    fn committed(&self) -> Lsn {
        Lsn::MAX
    }

    fn admit(&self) -> Result<(), NotAdmitted> {
        Ok(())
    }

    fn wait(&self, _until: Lsn, _patience: Patience<'_>) -> Result<(), OutcomeOpen> {
        Ok(())
    }

    fn outcome(&self, _until: Lsn) -> Option<Result<(), OutcomeOpen>> {
        Some(Ok(()))
    }
}
