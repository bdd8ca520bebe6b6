//! An operator changes what commits promise
//! ([`freshet_cluster::commit_rule::CommitRule::change_level`]).

use std::{collections::BTreeSet, time::Instant};

use freshet_base::{NodeId, Safety};
use freshet_cluster::commit_rule::{CannotChange, Event};

use super::{
    Primary,
    on_record::{ON_RECORD, comes_true},
};
use crate::feed::Feeder;

/// Why the level was not changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ChangeLevelError {
    /// See there.
    #[error("the level is not changed to {level}: {cause}")]
    Refused {
        /// The level.
        level: Safety,
        /// Why.
        cause: CannotChange,
    },
    /// The set of the new level is not in effect yet.
    #[error(
        "{level} is the level from now on, and commits keep to the one of before as well until that is on record: {}; \
         see `freshet status`. A node that is gone for good is removed with `freshet remove --gone`",
        not_noted(.waits_for)
    )]
    NotRecorded {
        /// The level.
        level: Safety,
        /// Which nodes have yet to note it, as far as this one knows.
        waits_for: BTreeSet<NodeId>,
    },
}

fn not_noted(nodes: &BTreeSet<NodeId>) -> String {
    if nodes.is_empty() {
        return "it is being recorded, or another node has taken over".to_owned();
    }
    let named: Vec<_> = nodes.iter().map(NodeId::to_string).collect();
    format!("it waits for those that have yet to note it: {}", named.join(", "))
}

impl Primary {
    /// What commits promise.
    pub fn level(&self) -> Safety {
        self.shared.commit.level()
    }

    /// From its record on, commits keep to `level`, also in later terms. Says which level there was
    /// before. Blocks until that is on record, ten seconds at most.
    ///
    /// # Errors
    /// [`ChangeLevelError`]; if it is refused nothing has changed.
    pub fn change_level(&self, level: Safety) -> Result<Safety, ChangeLevelError> {
        let shared = &self.shared;
        let before = shared.commit.level();
        shared.commit.change_level(level).map_err(|cause| ChangeLevelError::Refused { level, cause })?;
        tracing::warn!(%level, %before, term = shared.who.term.0, "an operator changes the safety level");
        // The commit rule may have a set to write now.
        shared.apply(Event::Tick);
        let is_on_record = || shared.commit.level() == level && shared.commit.level_pending().is_none();
        if !comes_true(Instant::now() + ON_RECORD, is_on_record) {
            let waits_for = shared.commit.level_pending().unwrap_or_default();
            return Err(ChangeLevelError::NotRecorded { level, waits_for });
        }
        shared.announce.ring();
        Ok(before)
    }
}
