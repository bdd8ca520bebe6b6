//! An operator changes what commits promise
//! ([`freshet_cluster::commit_rule::CommitRule::change_level`]).

use std::time::Instant;

use freshet_base::Safety;
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
        "{0} is the level from now on, and commits keep to the one of before as well until that is on record: nodes \
         that are away have yet to note it, or another one has taken over; see `freshet status`. One that is gone for \
         good is removed with `freshet remove --gone`"
    )]
    NotRecorded(Safety),
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
        let is_on_record = || shared.commit.level() == level && !shared.commit.is_level_pending();
        if !comes_true(Instant::now() + ON_RECORD, is_on_record) {
            return Err(ChangeLevelError::NotRecorded(level));
        }
        shared.announce.ring();
        Ok(before)
    }
}
