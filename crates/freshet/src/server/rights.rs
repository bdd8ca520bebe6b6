//! Who may ask what on the control port, and what the answer tells.
//!
//! [`rule`] is the table; nothing else decides. A request that is added needs its row there, or
//! this does not compile, and one in docs/operations.md, or the test of this module fails.

use freshet_membership::Identity;

use crate::protocol::Ask;

#[cfg(test)]
mod tests;

/// Who a client of the control port is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Caller {
    /// A process of the node's user, on the node's machine.
    Owner,
    /// Over TCP, with a certificate of the cluster's authority as operator.
    Operator,
    /// Over TCP, with the certificate of a node.
    Node,
    /// Over TCP, with a certificate as monitor.
    Monitor,
    /// Without a certificate, with an archive's, or with one that names no caller known here.
    Anyone,
}

impl Caller {
    /// The client over TCP that has shown this identity, or none.
    pub fn of(identity: Option<Identity>) -> Self {
        match identity {
            Some(Identity::Operator) => Self::Operator,
            Some(Identity::Node(_)) => Self::Node,
            Some(Identity::Monitor) => Self::Monitor,
            Some(Identity::Archive(_)) | None => Self::Anyone,
        }
    }

    /// Whether it is served at all.
    pub fn is_served(self, open_status: bool) -> bool {
        self != Self::Anyone || open_status
    }

    /// Whether it may ask this, if it is served.
    pub fn may(self, ask: &Ask) -> bool {
        let Rule { name, who, shows } = rule(ask);
        let may = match who {
            Who::Everyone => true,
            Who::Members => matches!(self, Self::Owner | Self::Operator | Self::Node),
            Who::Operators => matches!(self, Self::Owner | Self::Operator),
        };
        if !may {
            tracing::debug!(who = ?self, request = name, shows, "a request is refused");
        }
        may
    }
}

/// To whom a request is open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Who {
    /// Every caller that is served.
    Everyone,
    /// Those who may have the data: nodes have them, operators can take a backup.
    Members,
    /// The node's user, and operators.
    Operators,
}

/// What holds for a request.
struct Rule {
    /// Its name in the documents.
    name: &'static str,
    who: Who,
    /// What the answer shows, a refusal included.
    shows: &'static str,
}

/// What holds for a request. Without a row for all others, on purpose.
const fn rule(ask: &Ask) -> Rule {
    use Who::{Everyone, Members, Operators};
    let (name, who, shows) = match ask {
        Ask::Hello { .. } => ("hello", Everyone, "the version of the protocol"),
        Ask::Status => ("status", Everyone, "names, addresses, states, sizes and positions; nothing of what is stored"),
        Ask::Members => {
            ("members", Everyone, "of every node of the cluster: name, address, version, state and position")
        }
        Ask::Watermarks => ("watermarks", Everyone, "positions in the log"),
        Ask::Mix { .. } => {
            ("mix (`advise`)", Members, "number and sizes of the records that were written since a status; no content")
        }
        Ask::Promote { .. } => ("promote", Operators, "the new term, or which nodes stand against it"),
        Ask::SwitchOver { .. } => ("switch over", Operators, "who leads then, or why the role stays where it is"),
        Ask::Remove { .. } => ("remove", Operators, "which node left the cluster, or why it did not"),
        Ask::Rotate => ("rotate", Operators, "how many authorities the cluster has had, or why it keeps this one"),
        Ask::ChangeLevel { .. } => ("level", Operators, "which level there was before, or why it stays"),
        Ask::FinishUpgrade => ("upgrade", Operators, "the format level, or which nodes are of an earlier release"),
        Ask::Restart { .. } => ("restart", Operators, "which node starts again, or why no node took the order"),
        Ask::Stop { .. } => ("stop", Operators, "which node stops, or why no node took the order"),
        Ask::Configuration => ("configuration (`config show`)", Operators, "every key and its value; no secret is one"),
        Ask::Refill => ("refill", Operators, "whether the mirror holds more than its primary"),
        Ask::BeginAgain { .. } => ("begin again", Operators, "where its primary is, or why it does not begin again"),
        Ask::Maintenance { .. } => ("maintenance", Operators, "which nodes do not answer, and why"),
        Ask::Checkpoint { .. } => ("checkpoint", Operators, "its size and positions, or what failed on the disk"),
        Ask::Hash { .. } => ("hash", Operators, "a hash of all rows, and how many there are"),
        Ask::Token { .. } => ("token", Operators, "a secret that makes its holder a member or client"),
        Ask::State(_) => ("state (`verify --state`)", Operators, "hashes of ranges of records, and where they differ"),
        Ask::WaitVisible { .. } => ("wait", Operators, "whether a position is visible"),
    };
    Rule { name, who, shows }
}
