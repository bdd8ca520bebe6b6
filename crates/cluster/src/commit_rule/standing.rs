use std::borrow::Cow;

use freshet_base::{NodeId, Safety, Term};
use serde::{Deserialize, Serialize};

use crate::Moment;

/// How the promise of the safety level stands.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "standing", rename_all = "kebab-case")]
pub enum Standing {
    /// Every configured standby keeps up.
    Safe,
    /// Commits go on, with fewer standbys keeping up than configured.
    Degraded {
        /// Since when.
        since: Moment,
        /// How many standbys keep up.
        in_sync: u32,
        /// How many are configured.
        configured: u32,
        /// Those known by name that do not.
        behind: Vec<NodeId>,
    },
    /// Nothing commits: too few standbys keep up, or one does not that may not be left out.
    Blocked {
        /// Since when.
        since: Moment,
        /// How many standbys keep up.
        in_sync: u32,
        /// How many it takes.
        needed: u32,
        /// When commits will begin to be refused, if ever.
        refuses_at: Option<Moment>,
        /// Those known by name for whom commits wait.
        waits_for: Vec<NodeId>,
        /// What an operator can do, unless commits wait for a moment only.
        remedy: Option<Cow<'static, str>>,
    },
    /// Nothing commits, and clients that wait or begin to write are told so.
    Refusing {
        /// Blocked since when.
        since: Moment,
        /// How many standbys keep up.
        in_sync: u32,
        /// How many it takes.
        needed: u32,
        /// What an operator can do.
        remedy: Option<Cow<'static, str>>,
    },
    /// Another node reigns; this one acknowledges nothing any more.
    Fenced {
        /// In this term.
        by: Term,
    },
    /// Nothing becomes durable on the primary itself. The commit rule does not know of that; what
    /// shows a standing does.
    Stalled {
        /// What its log waits for, or why it takes no more.
        why: String,
    },
}

/// Why a writer is turned away before it starts, or stops waiting for its commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// Too few standbys for too long.
    #[error(
        "commits are refused: {safety} needs {needed} standbys that keep up and has {in_sync}; \
         bring a standby back, or choose another safety level"
    )]
    TooFewStandbys {
        /// The level in force.
        safety: Safety,
        /// How many standbys it takes.
        needed: u32,
        /// How many keep up.
        in_sync: u32,
    },
    /// Another node has taken over.
    #[error("commits are refused: another node became the primary in term {by}; connect to that one")]
    Fenced {
        /// Its term.
        by: Term,
    },
}
