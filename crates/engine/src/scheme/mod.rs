//! How a standby follows the log (design, section 8): what it replays, and what readers read.
//!
//! Every standby receives, persists and acknowledges the log itself (Query Fresh, section 3). A
//! node is configured to replay it in one of several ways, each a [`Replaying`]: readers make
//! versions (here), transactions are executed again ([`inputs`]), and baselines for figures
//! ([`full`], [`command`]). A mirror has neither a log nor replay, so it is none of them but a
//! composition of its own (`node/mirror.rs`).

pub(crate) mod command;
pub(crate) mod feed;
mod full;
pub mod inputs;

use std::sync::{Arc, atomic::AtomicU64};

use freshet_base::Lsn;
use freshet_log::{
    Log, LogDirectory,
    journal::{Journal, NewestFile},
    medium::FileMedium,
};
use freshet_replay::{Announce, Deleted, Records, Redo, Replay};
use freshet_replication::standby::{JournalPlace, ReplayTarget, Standby, StandbyConfig, Starting};
use freshet_storage::Participants;
use freshet_txn::{Core, Messages};

use self::{
    command::{Commands, Executors},
    feed::InputsFeed,
    full::Full,
    inputs::{Again, AgainStatus, Samples, Schedule, Window},
};
use crate::{
    node::{Apply, Encoding, GarbageCollector, LiveReplay, NodeConfig, Parts, Room, StartError},
    source::VersionSource,
};

/// A standby's parts.
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

/// What replay works on.
#[derive(Clone)]
pub(crate) struct Ground {
    pub participants: Arc<Participants>,
    pub source: Arc<VersionSource>,
    pub records: Records,
    /// Below this there is a checkpoint, and readers see nothing.
    pub floor: Lsn,
}

/// A way of replaying the log.
pub(crate) trait Replaying: Send + Sync {
    /// Another standby is composed, on this ground: all that follows is asked for it.
    fn begin(&self, _parts: &Parts, _ground: &Ground) {}

    /// Through which window blocks go before they are replayed, if through any.
    fn window(&self) -> Option<Arc<Window>> {
        None
    }

    /// What one replay thread does to records.
    fn redo(&self, ground: &Ground) -> Box<dyn Redo>;

    /// What replays a range, when `live` does so record by record.
    ///
    /// # Errors
    /// What is missing for that.
    fn target(&self, live: LiveReplay) -> Result<Arc<dyn ReplayTarget>, StartError> {
        Ok(Arc::new(live))
    }

    /// Whether records have the same ids and LSNs here as on the primary.
    fn proves(&self) -> bool {
        true
    }

    /// The standby is composed. Its readers make versions of what lies below the read view, unless
    /// `source` is told otherwise.
    fn composed(&self, _core: &Arc<Core>, _source: &VersionSource) {}

    /// What has become of transactions that the standby had to execute again, if it is one that
    /// does.
    fn again(&self) -> Option<AgainStatus> {
        None
    }

    /// In which form the standby is to ask for the log from now on, if it can take another than
    /// bytes.
    fn set_encoding(&self, _encoding: Encoding) {}
}

/// Replay announces where records lie, and readers make versions (Query Fresh, section 3.4).
struct Fresh;

impl Replaying for Fresh {
    fn redo(&self, _: &Ground) -> Box<dyn Redo> {
        Box::new(Announce)
    }
}

/// What a node does with the log as a standby.
pub(crate) struct Scheme {
    /// How it replays.
    pub replaying: Box<dyn Replaying>,
    /// What it executes once more.
    pub samples: Samples,
}

impl Scheme {
    /// That of a node that is configured so, has this directory, and whose log ends at `end`.
    ///
    /// # Errors
    /// When what has arrived there in another form cannot be read.
    pub fn of(
        config: &NodeConfig,
        executors: Option<Executors>,
        directory: Option<&LogDirectory>,
        end: Lsn,
    ) -> Result<Self, StartError> {
        let sampling = matches!(config.apply, Apply::Fresh | Apply::Full);
        let file = directory.map(|directory| directory.path().join("out-of-order"));
        let samples = Samples::new(executors.clone().filter(|_| sampling), config.verify_sample, file);
        let replaying: Box<dyn Replaying> = match config.apply {
            // One that asks for bytes may have acknowledged inputs before.
            Apply::Fresh
                if config.encoding != Encoding::Bytes
                    || executors.is_some() && has_arrived(config, directory, end)? =>
            {
                Box::new(Again::new(executors, Schedule::Versions))
            }
            Apply::Fresh => Box::new(Fresh),
            Apply::Calvin => Box::new(Again::new(executors, Schedule::Locks)),
            Apply::Full => Box::new(Full),
            Apply::Command => Box::new(Commands::new(config.replay_threads, executors)),
        };
        Ok(Self { replaying, samples })
    }

    /// This node follows `upstream`, or waits for a node that makes itself known. `deleted` is what
    /// a restart has found deleted.
    ///
    /// # Errors
    /// See [`StartError`].
    pub fn on_standby(
        &self,
        parts: &Parts,
        upstream: Option<String>,
        deleted: Vec<Deleted>,
    ) -> Result<OnStandby, StartError> {
        let Parts { config, ground, catalog, participants, source, end, .. } = parts;
        let end = *end;
        let open = |persistence| Log::receive_with(&config.receive_config(), persistence, end);
        let (log, receiver) = ground.open_log(config, open)?;
        let log = Arc::new(log);
        source.open(log.reader());
        let (floor, reader) = (parts.floor(), log.reader());
        let ours = Ground {
            participants: Arc::clone(participants),
            source: Arc::clone(source),
            records: Records(log.reader()),
            floor,
        };
        self.replaying.begin(parts, &ours);
        let garbage_collector = Arc::new(GarbageCollector::new(deleted, self.replaying.window()));
        let redo = || self.replaying.redo(&ours);
        let replay = Arc::new(Replay::new(config.replay_threads, catalog, participants, &reader, floor, &redo));
        if self.replaying.proves() {
            expect_marks(&log, &replay);
        }
        let messages = Arc::new(Messages::starting(end));
        let live = LiveReplay {
            replay: Arc::clone(&replay),
            garbage_collector: Arc::clone(&garbage_collector),
            messages: Arc::clone(&messages),
            end: AtomicU64::new(end.0),
            replayed: Arc::new(AtomicU64::new(end.0)),
            proof: Arc::clone(&parts.proof),
            room: Room::of(&parts.memory),
        };
        let settings = settings(parts, InputsFeed::of_relay(catalog, participants, &live.replayed))?;
        let who = ground.follower(parts.address.clone(), upstream);
        let starting = Starting {
            replayed: end,
            // What is known to be committed is shown at once, also where no primary is there.
            global: ground.terms.get().committed.min(end),
            floor,
        };
        let (filled, terms) = ((Arc::clone(&log), receiver), ground.terms.clone());
        let standby = Standby::start(who, starting, settings, filled, self.replaying.target(live)?, terms)
            .map_err(|cause| StartError::System(format!("cannot start the standby's threads: {cause}")))?;
        source.limit_to(Arc::clone(standby.visible()));
        Ok(OnStandby { standby, log, replay, garbage_collector, messages })
    }
}

/// As the configuration has it; a relay passes on `forms`.
fn settings(parts: &Parts, forms: InputsFeed) -> Result<StandbyConfig, StartError> {
    let Parts { config, ground, proof, .. } = parts;
    let directory = ground.directory.as_ref();
    Ok(StandbyConfig {
        replay: config.replay,
        follow: ground.follows(config)?,
        relay: config.relay()?.map(|mut relay| {
            relay.feed.forms = Some(Arc::new(forms));
            relay
        }),
        saved_tails: directory.map(|directory| directory.path().to_owned()),
        encoding: config.encoding.first(),
        journal: directory
            .map(|directory| JournalPlace { directory: config.journal(), newest: Arc::clone(directory) as _ }),
        proof: Arc::clone(proof),
        ..StandbyConfig::default()
    })
}

/// Has replay end a job at each mark that arrives.
fn expect_marks(log: &Log, replay: &Arc<Replay>) {
    let replay = Arc::downgrade(replay);
    log.on_marks(move |at| {
        if let Some(replay) = replay.upgrade() {
            replay.expect_mark(at);
        }
    });
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
