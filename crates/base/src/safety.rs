//! What a commit promises, and what a transaction may see.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};

use crate::{named, names};

/// Where a commit must be persistent before the client hears of it
/// (Query Fresh, section 2.1, definitions 1 to 3, after Gray and Reuter).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Safety {
    /// On the primary; standbys follow when they can.
    OneSafe,
    /// On the primary and on every standby that is in the in-sync set. Without
    /// any, the primary continues alone, degraded, and says so.
    TwoSafe,
    /// On the primary and on every standby that belongs to the cluster. Without one of them,
    /// nothing commits.
    VerySafe,
    /// On more than half of the nodes, the primary being one of them, where there are three or
    /// more. Two nodes are as under 2-safe: of two, neither can tell a lost node from a lost
    /// connection.
    Majority,
    /// On at least this many nodes, the primary being one of them.
    Quorum(u32),
}

impl Safety {
    /// Whether a commit waits for no standby: what is durable on the primary is committed.
    pub fn counts_on_nobody(self) -> bool {
        matches!(self, Self::OneSafe | Self::Quorum(0 | 1))
    }

    /// On how many of `nodes` nodes with data a commit is, the primary included. None: on all that
    /// are in sync; a node that stalls is left out.
    pub fn needed(self, nodes: u32) -> Option<u32> {
        match self {
            Self::OneSafe => Some(1),
            Self::TwoSafe => None,
            Self::VerySafe => Some(nodes),
            Self::Majority => (nodes > 2).then_some(nodes / 2 + 1),
            Self::Quorum(needed) => Some(needed),
        }
    }
}

/// Levels that have no number.
const LEVELS: [(&str, Safety); 4] = [
    ("1-safe", Safety::OneSafe),
    ("2-safe", Safety::TwoSafe),
    ("majority", Safety::Majority),
    ("very-safe", Safety::VerySafe),
];
/// What is before the number of the others.
const QUORUM: &str = "quorum:";

impl fmt::Display for Safety {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self, LEVELS.iter().find(|(_, level)| level == self)) {
            (Self::Quorum(k), _) => write!(f, "{QUORUM}{k}"),
            (_, level) => f.write_str(level.map_or("", |(name, _)| name)),
        }
    }
}

impl FromStr for Safety {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let quorum = || {
            let number = text.strip_prefix(QUORUM)?.parse().ok();
            number.filter(|k| *k >= 1).map(Self::Quorum)
        };
        let level = LEVELS.iter().find(|(name, _)| *name == text).map(|(_, level)| *level);
        level.or_else(quorum).ok_or_else(|| {
            let names = LEVELS.map(|(name, _)| name);
            let names = [&names[..], &["quorum:K with K at least 1"]].concat();
            names::unknown("safety level", text, &names)
        })
    }
}

impl TryFrom<String> for Safety {
    type Error = String;
    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl From<Safety> for String {
    fn from(safety: Safety) -> Self {
        safety.to_string()
    }
}

/// What concurrent transactions may do to one another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Isolation {
    /// Reads a snapshot; the first to update a record wins. Write skew is possible.
    #[default]
    #[serde(rename = "si")]
    Snapshot,
    /// Snapshot reads, certified at commit, phantoms included.
    Serializable,
}

named!(Isolation, "isolation level", { Snapshot: "si", Serializable: "serializable" });

/// What decides whether a serializable transaction may commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Certifier {
    /// Nothing that it has read may have been changed: the serial order is that of LSNs.
    #[default]
    Validation,
    /// The serial safety net: it may commit "back in time", before those that have changed what it
    /// has read, unless it must come after one of them, too.
    Ssn,
}

named!(Certifier, "certifier", { Validation: "validation", Ssn: "ssn" });

/// What an operator says with the order to lead.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Consent {
    /// Nothing: no commit that was acknowledged may be lost.
    #[default]
    Nothing,
    /// The primary that the node last knew will never come back with what it holds. Where every
    /// member holds every commit, the others need not wait for its answer; what it has acknowledged
    /// without them is lost.
    PrimaryIsGone,
    /// Commits that were acknowledged may be lost.
    Loss,
}

impl Consent {
    /// Whether acknowledged commits may be lost, on whichever node they are.
    pub fn is_forced(self) -> bool {
        self == Self::Loss
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn safety_levels_print_as_they_parse() {
        for text in ["1-safe", "2-safe", "majority", "very-safe", "quorum:2"] {
            assert_eq!(text.parse::<Safety>().unwrap().to_string(), text);
        }
        for text in ["", "3-safe", "quorum:0", "quorum:", "quorum:-1", "quorum"] {
            assert!(text.parse::<Safety>().unwrap_err().contains("quorum:K"), "{text}");
        }
    }
}
