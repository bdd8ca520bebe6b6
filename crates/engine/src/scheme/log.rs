//! Standbys receive the log itself (Query Fresh, section 3): the primary ships it, a standby
//! persists, acknowledges and replays it.

use std::sync::{Arc, atomic::AtomicU64};

use freshet_base::{CommitGate, Lsn, Term, Watermark};
use freshet_log::Log;
use freshet_replay::{Deleted, Records, Redo, Replay};
use freshet_replication::{
    feed::FeedConfig,
    primary::{Primary as Shipping, PrimaryConfig, PrimaryId},
    standby::{JournalPlace, ReplayTarget, Standby, StandbyConfig, Starting},
};
use freshet_storage::Participants;
use freshet_txn::{Core, Messages};

use super::{
    OnPrimary, OnStandby, Scheme,
    feed::InputsFeed,
    inputs::{AgainStatus, SampleStatus, Sampler, Samples},
};
use crate::{
    node::{Encoding, GarbageCollector, LiveReplay, Parts, Room, StartError, ThisNode, open_log},
    source::VersionSource,
};

/// What replay works on.
#[derive(Clone)]
pub(crate) struct Ground {
    pub participants: Arc<Participants>,
    pub source: Arc<VersionSource>,
    pub records: Records,
    /// Below this there is a checkpoint, and readers see nothing.
    pub floor: Lsn,
}

/// How a standby that receives the log replays it: where baselines differ.
pub(crate) trait Replaying: Send + Sync {
    /// What one replay thread does to records.
    fn redo(&self, ground: &Ground) -> Box<dyn Redo>;

    /// What clears away records whose deletion was replayed; `deleted` is what a restart has found
    /// deleted. Asked before everything else.
    fn garbage_collector(&self, _parts: &Parts, _ground: &Ground, deleted: Vec<Deleted>) -> GarbageCollector {
        GarbageCollector::new(deleted)
    }

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

    /// As [`Scheme::again`].
    fn again(&self) -> Option<AgainStatus> {
        None
    }

    /// As [`Scheme::set_encoding`].
    fn set_encoding(&self, _encoding: Encoding) {}

    /// As [`Scheme::composed`].
    fn composed(&self, _core: &Arc<Core>, _source: &VersionSource) {}
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

/// The scheme.
pub(crate) struct LogShipping<R> {
    /// How standbys replay.
    pub replaying: R,
    /// What they execute once more.
    pub samples: Samples,
}

impl<R: Replaying> Scheme for LogShipping<R> {
    fn on_primary(&self, this: &ThisNode<'_>, log: &Arc<Log>, term: Term, start: Lsn) -> Result<OnPrimary, String> {
        let config = this.config;
        let rule = config.rule().map_err(|cause| cause.to_string())?;
        let shipping_config = PrimaryConfig {
            uncommitted: config.log.uncommitted_bytes,
            peers: this.peers.clone(),
            feed: FeedConfig {
                forms: Some(Arc::new(InputsFeed::of_primary(this.core))),
                ..config.feed().map_err(|cause| cause.to_string())?
            },
            proof: Arc::clone(this.proof),
            ..PrimaryConfig::new(rule)
        };
        let who = PrimaryId {
            cluster: this.cluster,
            node: this.node,
            holder: this.terms.get().holder(this.node),
            answered: this.answered.clone(),
            credentials: this.credentials.clone(),
            address: this.address.to_owned(),
            term,
            start,
            committed: this.committed,
            succession: Some(this.succession.clone()),
        };
        let shipping = Shipping::start(who, shipping_config, Arc::clone(log), this.terms.clone());
        let shipping = Arc::new(shipping.map_err(|cause| format!("cannot start its threads: {cause}"))?);
        let gate = Arc::clone(shipping.commit()) as Arc<dyn CommitGate>;
        Ok(OnPrimary { shipping, gate })
    }

    fn on_standby(
        &self,
        parts: &Parts,
        upstream: Option<String>,
        deleted: Vec<Deleted>,
    ) -> Result<OnStandby, StartError> {
        let Parts { config, ground, catalog, participants, source, end, .. } = parts;
        let end = *end;
        let open = |persistence| Log::receive_with(&config.receive_config(), persistence, end);
        let (log, receiver) = open_log(config, ground, open)?;
        let log = Arc::new(log);
        source.open(log.reader());
        let (floor, reader) = (parts.floor(), log.reader());
        let ours = Ground {
            participants: Arc::clone(participants),
            source: Arc::clone(source),
            records: Records(log.reader()),
            floor,
        };
        let garbage_collector = Arc::new(self.replaying.garbage_collector(parts, &ours, deleted));
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
        let forms = InputsFeed::of_relay(catalog, participants, &live.replayed);
        let who = ground.follower(parts.address.clone(), upstream);
        let starting = Starting {
            replayed: end,
            // What is known to be committed is shown at once, also where no primary is there.
            global: ground.terms.get().committed.min(end),
            floor,
        };
        let standby_config = StandbyConfig {
            replay: config.replay,
            follow: ground.follows(config)?,
            relay: config.relay()?.map(|mut relay| {
                relay.feed.forms = Some(Arc::new(forms));
                relay
            }),
            saved_tails: ground.directory.as_ref().map(|directory| directory.path().to_owned()),
            encoding: config.encoding.first(),
            journal: ground
                .directory
                .as_ref()
                .map(|directory| JournalPlace { directory: config.journal(), newest: Arc::clone(directory) as _ }),
            proof: Arc::clone(&parts.proof),
            ..StandbyConfig::default()
        };
        let (filled, terms) = ((Arc::clone(&log), receiver), ground.terms.clone());
        let standby = Standby::start(who, starting, standby_config, filled, self.replaying.target(live)?, terms)
            .map_err(|cause| StartError::System(format!("cannot start the standby's threads: {cause}")))?;
        source.limit_to(Arc::clone(standby.visible()));
        Ok(OnStandby { standby, log, replay, garbage_collector, messages })
    }

    fn again(&self) -> Option<AgainStatus> {
        self.replaying.again()
    }

    fn sampled(&self) -> Option<SampleStatus> {
        self.samples.status()
    }

    fn sample(
        &self,
        core: &Arc<Core>,
        log: &Log,
        visible: &Arc<Watermark>,
        floor: Lsn,
    ) -> Result<Option<Sampler>, String> {
        self.samples.start(core, log, visible, floor)
    }

    fn set_encoding(&self, encoding: Encoding) {
        self.replaying.set_encoding(encoding);
    }

    fn composed(&self, core: &Arc<Core>, source: &VersionSource) {
        self.replaying.composed(core, source);
    }
}
