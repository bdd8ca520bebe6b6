//! Replication schemes: what a primary puts on its log, and what a standby does with what it
//! receives (design, section 8). A node has one [`Scheme`], and asks it once in each role.
//!
//! The first is [`log::LogShipping`]. Baselines for figures differ from it in how a standby
//! replays, and in nothing else: each is a [`Replaying`] of that scheme ([`full`], [`command`]).

pub(crate) mod command;
mod feed;
mod full;
pub mod inputs;
mod log;

use std::sync::Arc;

use freshet_base::{CommitGate, Lsn, Term, Watermark};
use freshet_log::{
    Log, LogDirectory,
    journal::{Journal, NewestFile},
    medium::FileMedium,
};
use freshet_replay::{Announce, Deleted, Redo, Replay};
use freshet_replication::{primary::Primary as Shipping, standby::Standby};
use freshet_txn::{Core, Messages};

use self::{
    command::{Commands, Executors},
    full::Full,
    inputs::{Again, AgainStatus, SampleStatus, Sampler, Samples, Schedule},
    log::{Ground, LogShipping, Replaying},
};
use crate::{
    node::{Apply, Encoding, GarbageCollector, NodeConfig, Parts, StartError, ThisNode},
    source::VersionSource,
};

/// What a scheme puts on a primary.
pub(crate) struct OnPrimary {
    /// A sink of its log, which feeds standbys.
    pub shipping: Arc<Shipping>,
    /// What commits wait for.
    pub gate: Arc<dyn CommitGate>,
}

/// What a scheme puts on a standby.
pub(crate) struct OnStandby {
    /// What receives and acknowledges; it has the read view.
    pub standby: Standby,
    /// What it receives into.
    pub log: Arc<Log>,
    /// What replays it.
    pub replay: Arc<Replay>,
    /// What clears away records whose deletion was replayed.
    pub garbage_collector: Arc<GarbageCollector>,
    /// Where replay enters what transactions carry.
    pub messages: Arc<Messages>,
}

/// A replication scheme.
pub(crate) trait Scheme: Send + Sync {
    /// This node leads in `term`, with a log that was opened at `start`, and is empty there.
    ///
    /// # Errors
    /// What the configuration or the system does not allow.
    fn on_primary(&self, this: &ThisNode<'_>, log: &Arc<Log>, term: Term, start: Lsn) -> Result<OnPrimary, String>;

    /// This node follows `upstream`, or waits for a node that makes itself known. `deleted` is what
    /// a restart has found deleted.
    ///
    /// # Errors
    /// See [`StartError`].
    fn on_standby(
        &self,
        parts: &Parts,
        upstream: Option<String>,
        deleted: Vec<Deleted>,
    ) -> Result<OnStandby, StartError>;

    /// What has become of transactions that the standby had to execute again, if it is one
    /// that does.
    fn again(&self) -> Option<AgainStatus>;

    /// What has become of the transactions of a sample that were executed at their own places in
    /// the log, where the standby takes one.
    fn sampled(&self) -> Option<SampleStatus>;

    /// Takes a sample, on a composed standby whose readers see `log` up to `visible`, and nothing
    /// below `floor`, for as long as what is returned is kept.
    ///
    /// # Errors
    /// What the system does not give.
    fn sample(
        &self,
        core: &Arc<Core>,
        log: &Log,
        visible: &Arc<Watermark>,
        floor: Lsn,
    ) -> Result<Option<Sampler>, String>;

    /// In which form the standby is to ask for the log from now on, if it can take another than
    /// bytes.
    fn set_encoding(&self, encoding: Encoding);

    /// The standby is composed. Its readers make versions of what lies below the read view, unless
    /// `source` is told otherwise.
    fn composed(&self, core: &Arc<Core>, source: &VersionSource);
}

/// Replay announces where records lie, and readers make versions (Query Fresh, section 3.4).
struct Fresh;

impl Replaying for Fresh {
    fn redo(&self, _: &Ground) -> Box<dyn Redo> {
        Box::new(Announce)
    }
}

/// The scheme of a node that is configured so, has this directory, and whose log ends at `end`.
///
/// # Errors
/// When what has arrived there in another form cannot be read.
pub(crate) fn of(
    config: &NodeConfig,
    executors: Option<Executors>,
    directory: Option<&LogDirectory>,
    end: Lsn,
) -> Result<Arc<dyn Scheme>, StartError> {
    let sampling = matches!(config.apply, Apply::Fresh | Apply::Full);
    let file = directory.map(|directory| directory.path().join("out-of-order"));
    let samples = Samples::new(executors.clone().filter(|_| sampling), config.verify_sample, file);
    Ok(match config.apply {
        // One that asks for bytes may have acknowledged inputs before.
        Apply::Fresh
            if config.encoding != Encoding::Bytes || executors.is_some() && has_arrived(config, directory, end)? =>
        {
            Arc::new(LogShipping { replaying: Again::new(executors, Schedule::Versions), samples })
        }
        Apply::Fresh => Arc::new(LogShipping { replaying: Fresh, samples }),
        Apply::Calvin => Arc::new(LogShipping { replaying: Again::new(executors, Schedule::Locks), samples }),
        Apply::Full => Arc::new(LogShipping { replaying: Full, samples }),
        Apply::Command => Arc::new(LogShipping { replaying: Commands::new(config.replay_threads, executors), samples }),
    })
}

/// Whether the journal of a node that asks for bytes holds something beyond `end`, where its log
/// ends. One that does not goes.
fn has_arrived(config: &NodeConfig, directory: Option<&LogDirectory>, end: Lsn) -> Result<bool, StartError> {
    let journal = config.journal();
    let Some(node) = directory.filter(|node| node.newest_file().is_some() || journal.is_dir()) else {
        return Ok(false);
    };
    let holds = Journal::continues(&FileMedium::new(&journal), node, end)?;
    if !holds {
        node.note_newest_file(None)?;
        let removed = std::fs::remove_dir_all(&journal);
        removed.map_err(|cause| StartError::System(format!("{}: {cause}", journal.display())))?;
    }
    Ok(holds)
}
