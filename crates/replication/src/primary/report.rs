//! Report: logs changes of the safety level and of each standby's state.

use std::collections::BTreeMap;

use freshet_base::NodeId;
use freshet_cluster::commit_rule::{Place, Standing};

use super::Shared;

/// What was logged last.
#[derive(Debug, Default)]
pub(super) struct Reported {
    standing: Option<Kind>,
    places: BTreeMap<NodeId, Place>,
}

/// A standing without the details that change with every standby.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Safe,
    Degraded {
        in_sync: u32,
    },
    /// Whether time alone does not help.
    Blocked {
        lasts: bool,
    },
    Refusing,
    Fenced,
    /// What the rule does not say.
    Beside,
}

impl Kind {
    fn of(standing: &Standing) -> Self {
        match standing {
            Standing::Safe => Self::Safe,
            Standing::Degraded { in_sync, .. } => Self::Degraded { in_sync: *in_sync },
            Standing::Blocked { remedy, .. } => Self::Blocked { lasts: remedy.is_some() },
            Standing::Refusing { .. } => Self::Refusing,
            Standing::Fenced { .. } => Self::Fenced,
            Standing::Stalled { .. } | Standing::LeaseOver { .. } => Self::Beside,
        }
    }
}

fn names(nodes: &[NodeId]) -> String {
    nodes.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ")
}

impl Shared {
    /// Logs what has changed since the last call. Changes because the node ends are not logged.
    pub(super) fn report_changes(&self) {
        if self.stopping() {
            return;
        }
        let mut reported = self.reported.lock().expect("no code panics under this mutex");
        // Under the mutex, so that the last line is the present state.
        let (standing, _, members) = self.commit.reading();
        let (term, safety) = (self.who.term.0, self.commit.level());
        for (node, member) in &members {
            let (place, acked) = (member.place, member.acked.0);
            let before = reported.places.insert(*node, place).unwrap_or(Place::Behind);
            match (before, place) {
                (Place::Behind | Place::Joining | Place::Leaving, Place::InSync) => {
                    tracing::info!(standby = %node, term, acked, "a standby is in sync");
                }
                (Place::InSync | Place::Joining, Place::Behind | Place::Leaving) | (Place::InSync, Place::Joining) => {
                    tracing::warn!(standby = %node, term, acked, "a standby is not in sync any more");
                }
                (Place::Behind | Place::Leaving, Place::Joining) => {
                    tracing::info!(standby = %node, term, acked, "commits wait for a standby that comes in sync");
                }
                _ => {}
            }
        }
        reported.places.retain(|node, _| members.contains_key(node));
        let kind = Kind::of(&standing);
        // The state at the start of a term is logged only if something is missing.
        if reported.standing.replace(kind).unwrap_or(Kind::Safe) == kind {
            return;
        }
        match standing {
            Standing::Safe => tracing::info!(standing = "safe", term, %safety, "the safety level is kept in full"),
            Standing::Degraded { in_sync, configured, behind, .. } => {
                let behind = names(&behind);
                tracing::warn!(
                    standing = "degraded", term, %safety, in_sync, configured, behind,
                    "commits continue with fewer standbys in sync than are configured"
                );
            }
            Standing::Blocked { in_sync, needed, waits_for, remedy, .. } => {
                let waits_for = names(&waits_for);
                tracing::warn!(
                    standing = "blocked", term, %safety, in_sync, needed, waits_for, remedy = remedy.as_deref(),
                    "commits wait: too few standbys keep up"
                );
            }
            Standing::Refusing { in_sync, needed, remedy, .. } => tracing::error!(
                standing = "refusing", term, %safety, in_sync, needed, remedy = remedy.as_deref(),
                "commits are refused: too few standbys have kept up for too long"
            ),
            // The log tells that itself, and the rule says neither.
            Standing::Stalled { .. } | Standing::LeaseOver { .. } => {}
            Standing::Fenced { by } => tracing::warn!(
                standing = "fenced",
                term,
                by = by.0,
                "this primary is deposed: its term is over, or another node's, and nothing is acknowledged here"
            ),
        }
    }
}
