//! Who may ask what on the node port.
//!
//! [`may`] is the table; nothing else decides. A purpose that is added needs its row there, or this
//! does not compile. docs/operations.md says the same to operators.

use freshet_base::NodeId;
use freshet_membership::Identity;

use crate::wire::{Hello, Purpose};

/// Who asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Caller {
    /// A process of the node's user, on the node's machine, by the local socket.
    Owner,
    /// A node over TCP, under the id in its certificate.
    Node,
    /// An archive over TCP, under the id in its certificate.
    Archive,
    /// A node or an archive that speaks under another's id.
    Impostor(NodeId),
    /// With a certificate of the cluster's authority as operator.
    Operator,
    /// As monitor.
    Monitor,
    /// With a certificate of the cluster's authority that names nobody.
    Nameless,
    /// Without a certificate.
    Stranger,
}

impl Caller {
    /// The caller over TCP that says `hello`: `identity` is in its certificate, if it has shown one
    /// and that has one.
    pub fn of(identity: Option<Option<Identity>>, hello: &Hello) -> Self {
        match identity {
            None => Self::Stranger,
            Some(None) => Self::Nameless,
            Some(Some(Identity::Node(node))) if node == hello.node => Self::Node,
            Some(Some(Identity::Archive(node))) if node == hello.node => Self::Archive,
            Some(Some(Identity::Node(node) | Identity::Archive(node))) => Self::Impostor(node),
            Some(Some(Identity::Operator)) => Self::Operator,
            Some(Some(Identity::Monitor)) => Self::Monitor,
        }
    }

    /// Why it is not answered.
    pub fn refusal(self) -> String {
        let holder = |who: &dyn std::fmt::Display| format!("the certificate is that of {who}, who may not ask this");
        match self {
            Self::Owner => "this is asked over TCP".to_owned(),
            Self::Node => "a node that has a certificate may not ask this over TCP".to_owned(),
            Self::Archive => "an archive may not ask this: it reads, and is no member".to_owned(),
            Self::Impostor(node) => holder(&Identity::Node(node)),
            Self::Operator => holder(&Identity::Operator),
            Self::Monitor => holder(&Identity::Monitor),
            Self::Nameless => "the certificate names no node".to_owned(),
            Self::Stranger => {
                "no certificate was shown; `freshet token` on a member makes what a newcomer needs".to_owned()
            }
        }
    }
}

/// Whether a caller may ask this. Without a row for all others, on purpose.
///
/// | purpose | who | what it tells |
/// |---|---|---|
/// | Enrol | [`Caller::Owner`], [`Caller::Stranger`] with a token | a certificate |
/// | Passage | [`Caller::Owner`] | nothing |
/// | Checkpoint | [`Caller::Node`], [`Caller::Archive`], [`Caller::Operator`]: a backup changes nothing | all rows |
/// | Members | [`Caller::Owner`], [`Caller::Node`], [`Caller::Operator`] | names and states |
/// | Identify | [`Caller::Node`], [`Caller::Archive`] | the cluster's id |
/// | Join | [`Caller::Node`], [`Caller::Archive`] as one on which no commit counts | the log |
/// | Session, Cancel | [`Caller::Node`]: it has let the client in | what the client's role may see |
/// | Renew | [`Caller::Node`]: the cluster knows its key | a certificate, and the authority's key |
/// | Renew | [`Caller::Archive`]: the same | a certificate |
/// | all others | [`Caller::Node`] | terms, sets, the log |
pub(crate) fn may(caller: Caller, purpose: &Purpose) -> bool {
    match purpose {
        // Certified callers are not certified again. Whether there is a token is seen to later.
        Purpose::Enrol(_) => matches!(caller, Caller::Owner | Caller::Stranger),
        // Descriptors come by the other door.
        Purpose::Passage { .. } => caller == Caller::Owner,
        Purpose::Checkpoint { .. } => matches!(caller, Caller::Node | Caller::Archive | Caller::Operator),
        // The control port says the same; a command whose node is lost asks the others here.
        Purpose::Members { .. } => matches!(caller, Caller::Owner | Caller::Node | Caller::Operator),
        Purpose::Identify | Purpose::Renew => matches!(caller, Caller::Node | Caller::Archive),
        Purpose::Join(join) => caller == Caller::Node || caller == Caller::Archive && !join.member && !join.mirror,
        Purpose::Fetch { .. }
        | Purpose::Consult { .. }
        | Purpose::HandOver(_)
        | Purpose::Announce { .. }
        | Purpose::Originals
        | Purpose::BeginAgain { .. }
        | Purpose::Reach(_)
        | Purpose::Maintenance(_)
        | Purpose::Witness
        | Purpose::Ask(_)
        | Purpose::Restart
        | Purpose::Stop
        | Purpose::Session { .. }
        | Purpose::Cancel { .. } => caller == Caller::Node,
    }
}
