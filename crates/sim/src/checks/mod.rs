//! What must hold, whatever happens.

mod acknowledged;
mod content;
mod in_sync;
mod left_out;
mod logs;
mod one_primary;
mod progress;
mod successor;
mod taken_back;
mod views;

use std::{collections::HashMap, fmt};

use freshet_base::{NodeId, Term};

use crate::{content::Tables, log::Log, upgrading::Upgrade};

/// A property that is checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Property {
    /// An acknowledged commit is persistent where its level demands, and survives every failover
    /// that is not forced.
    Acknowledged,
    /// A standby shows a prefix of whole transactions that no such failover loses (invariant 2).
    Views,
    /// What a primary answers readers has everything that was acknowledged before.
    Reads,
    /// An LSN in a term identifies a block (invariant 4).
    Logs,
    /// No two primaries acknowledge (invariant 5).
    OnePrimary,
    /// A primary that comes back without having been told to leaves a living term alone.
    TakenBack,
    /// When the in-sync set is on record, its primary may be lost: another can take over.
    Successor,
    /// No node that knows of maintenance stands by itself, or helps one that does.
    Maintenance,
    /// Whoever may take over under 2-safe holds everything that was acknowledged.
    InSync,
    /// A mirror's memory is the state of the database with the log up to its end, and mirrors agree
    /// on what they keep.
    Mirrors,
    /// What standbys execute again they execute as the primary did, and their readers see its
    /// records, by any index.
    Content,
    /// A primary that hands its role over leaves nobody's outcome open, and nothing comes after a
    /// switch-over that it has given up.
    SwitchOver,
    /// No node notes a format level that its release does not know, and none that took effect
    /// sinks.
    Format,
    /// When the faults end, everybody becomes level and commits go on.
    Progress,
}

/// A property that does not hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// Which.
    pub property: Property,
    /// What happened.
    pub what: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {}", self.property, self.what)
    }
}

impl Property {
    pub(crate) fn violated<T>(self, what: impl Into<String>) -> Result<T, Violation> {
        Err(Violation { property: self, what: what.into() })
    }
}

/// What the checks remember.
#[derive(Default)]
pub(crate) struct Checks {
    /// The log as far as anybody was told of it: by an acknowledgement, or in a view of a standby.
    pub(crate) promised: Log,
    /// What tables have with it, and had.
    pub(crate) tables: Tables,
    /// In which terms that was so, up to where, which ascends.
    promised_in: Vec<(Term, u64)>,
    /// What each name of a block stands for: the digest of the log up to its end.
    names: HashMap<(Term, NodeId, u64, u64), u64>,
    /// How far the upgrade is.
    pub(crate) upgrade: Upgrade,
    /// Leads that began, latest last.
    leads: Vec<(Term, NodeId)>,
}

impl Checks {
    /// Whether anything was promised in a later term than this: then one of this term is outdated.
    pub(crate) fn promised_after(&self, term: Term) -> bool {
        self.promised_in.iter().any(|(of, _)| *of > term)
    }

    /// Whether nothing was promised in this term: an earlier one may have gone on beside it.
    pub(crate) fn is_void(&self, term: Term) -> bool {
        self.promised_in.iter().all(|(of, _)| *of != term)
    }

    /// Who began to lead last.
    pub(crate) fn last_primary(&self) -> Option<NodeId> {
        self.leads.last().map(|lead| lead.1)
    }
}
