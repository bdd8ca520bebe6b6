//! Replication schemes: what a primary puts on its log, and what a standby does with what it
//! receives (design, section 8).
//!
//! Standbys receive the log itself (Query Fresh). Baselines for figures differ from that in how a
//! standby replays, and in nothing else: each is a [`Replaying`] ([`full`], [`command`]).

pub(crate) mod command;
mod full;

use std::sync::Arc;

use freshet_base::Stamp;
use freshet_replay::{Announce, Records, Redo};
use freshet_replication::standby::ReplayTarget;
use freshet_storage::Participants;
use freshet_txn::Core;

use self::command::{CommandExecutor, Commands};
use crate::{
    node::{Apply, LiveReplay, NodeConfig, StartError},
    source::VersionSource,
};

/// What replay works on.
pub(crate) struct Ground {
    pub participants: Arc<Participants>,
    pub source: Arc<VersionSource>,
    pub records: Records,
    /// Below this there is a checkpoint, and readers see nothing.
    pub floor: Stamp,
}

/// How a standby that receives the log replays it.
pub(crate) trait Replaying {
    /// What one replay thread does to records.
    fn redo(&self, ground: &Ground) -> Box<dyn Redo>;

    /// What replays a range, when `live` does so record by record.
    fn target(&self, live: LiveReplay) -> Arc<dyn ReplayTarget> {
        Arc::new(live)
    }

    /// The node is composed. Its readers make versions of what lies below the read view.
    fn composed(&self, _core: &Arc<Core>, _source: &VersionSource) {}
}

/// Replay announces where records lie, and readers make versions (Query Fresh, section 3.4).
struct Fresh;

impl Replaying for Fresh {
    fn redo(&self, _: &Ground) -> Box<dyn Redo> {
        Box::new(Announce)
    }
}

/// How a node is configured to replay.
pub(crate) fn replaying(
    config: &NodeConfig,
    executor: Option<Arc<dyn CommandExecutor>>,
) -> Result<Box<dyn Replaying>, StartError> {
    Ok(match (config.apply, executor) {
        (Apply::Fresh, _) => Box::new(Fresh),
        (Apply::Full, _) => Box::new(full::Full),
        (Apply::Command, Some(executor)) => Box::new(Commands::new(config.replay_threads, executor)),
        (Apply::Command, None) => {
            return Err(StartError::Config("apply = \"command\": no executor of commands was given".into()));
        }
    })
}
