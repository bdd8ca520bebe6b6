//! The composition of a primary: execute, certify, log, persist, ship, ack, commit.

use std::{
    collections::BTreeSet,
    sync::Arc,
    thread::JoinHandle,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use freshet_base::{ClusterId, CommitGate, Lsn, NodeId, StateProof, Term, WaitError};
use freshet_cluster::in_sync::Succession;
use freshet_log::{Log, Writer};
use freshet_membership::Credentials;
use freshet_replication::{
    endpoint::Endpoint,
    feed::FeedConfig,
    primary::{Primary as Shipping, PrimaryConfig, PrimaryId},
    terms::{NOTE_COMMITTED_EVERY, Terms},
};
use freshet_txn::{Core, Primary};

use super::{config::NodeConfig, garbage_collector::GarbageCollectorThread, proof::Marks};
use crate::{Database, scheme::feed::InputsFeed, source::VersionSource};

/// A primary's parts.
pub(super) struct Lead {
    pub log: Arc<Log>,
    pub shipping: Arc<Shipping>,
    /// Ends the waits for commits when the log ends.
    watch: JoinHandle<()>,
    /// Says what the state is.
    marks: Option<JoinHandle<()>>,
    garbage_collector: GarbageCollectorThread,
}

/// What a term needs to know of its node.
pub(crate) struct ThisNode<'n> {
    pub config: &'n NodeConfig,
    pub node: NodeId,
    pub credentials: &'n Credentials,
    pub cluster: ClusterId,
    pub address: &'n str,
    pub terms: &'n Terms,
    pub endpoint: &'n Endpoint,
    pub core: &'n Arc<Core>,
    pub source: &'n VersionSource,
    pub proof: &'n Arc<StateProof>,
    pub peers: Vec<String>,
    /// What of the log is known to be committed.
    pub committed: Lsn,
    /// What the in-sync sets of the term follow.
    pub succession: Succession,
    /// The nodes that have answered when it took over, or came back.
    pub answered: BTreeSet<NodeId>,
}

impl ThisNode<'_> {
    /// The sink of its log, which feeds standbys, and what commits wait for.
    fn ship(&self, log: &Arc<Log>, term: Term, start: Lsn) -> Result<Arc<Shipping>, String> {
        let config = self.config;
        let rule = config.rule();
        let shipping_config = PrimaryConfig {
            uncommitted: config.log.uncommitted_bytes,
            peers: self.peers.clone(),
            feed: FeedConfig {
                forms: Some(Arc::new(InputsFeed::of_primary(self.core))),
                ..config.feed().map_err(|cause| cause.to_string())?
            },
            proof: Arc::clone(self.proof),
            ..PrimaryConfig::new(rule)
        };
        let who = PrimaryId {
            cluster: self.cluster,
            node: self.node,
            holder: self.terms.get().holder(self.node),
            answered: self.answered.clone(),
            credentials: self.credentials.clone(),
            address: self.address.to_owned(),
            term,
            start,
            committed: self.committed,
            succession: Some(self.succession.clone()),
        };
        let shipping = Shipping::start(who, shipping_config, Arc::clone(log), self.terms.clone());
        let shipping = Arc::new(shipping.map_err(|cause| format!("cannot start its threads: {cause}"))?);
        Ok(shipping)
    }
}

impl Lead {
    /// Begins to lead in `term`, which `this.terms` has entered, with a log that was opened at
    /// `start`.
    pub fn begin(
        this: &ThisNode<'_>,
        log: Arc<Log>,
        term: Term,
        start: Lsn,
        garbage_collector: GarbageCollectorThread,
    ) -> Result<Self, String> {
        let config = this.config;
        let terms = this.terms.get();
        assert_eq!(log.term(), term, "the log is written in another term than the node leads in");
        assert_eq!(terms.history.last_term(), term, "a node leads in a term that it has not entered");
        assert!(terms.fence.highest() >= term, "a node leads in a term that it has not promised to itself");
        assert!(log.reserved() == start && log.start() == start, "a term begins behind the end of the log");
        assert!(this.committed <= start, "more is committed than there is: {} of {start}", this.committed);
        let shipping = this.ship(&log, term, start)?;
        let end = log.begin_term(this.node).map_err(|cause| cause.to_string())?;
        assert!(end > start, "a term begins without a block");
        log.force_fence(end);
        let recorder = Arc::clone(&log);
        let mut writer = log.writer().map_err(|cause| cause.to_string())?;
        shipping.record_sets(move |set| {
            let end = writer.note_members(set).map_err(|cause| cause.to_string())?;
            recorder.force_fence(end);
            Ok(end)
        });
        this.source.unlimited();
        let (ships, noted) = (Arc::clone(&shipping), Arc::clone(&log));
        let writer = log.writer().map_err(|cause| cause.to_string())?;
        let watch = move || watch(&noted, writer, &ships);
        let watch = std::thread::Builder::new().name("log-watch".into()).spawn(watch);
        let watch = watch.map_err(|cause| format!("cannot start a thread: {cause}"))?;
        let gate = Arc::clone(shipping.commit()) as Arc<dyn CommitGate>;
        this.core.snapshots.lead(Primary { log: Arc::clone(&log), term, gate });
        let marks = Marks::begin(this.core, (&log, &shipping), &config.state_proof)?;
        // Indexes that the primary of before was building. If that cannot be logged now, the next
        // building of an index sees to it.
        let _ = Database { core: Arc::clone(this.core) }.drop_unfinished_indexes();
        this.endpoint.set_service(Some(shipping.service()));
        tracing::info!(
            role = "primary",
            term = term.0,
            lsn = start.0,
            safety = %shipping.level(),
            "this node is the primary"
        );
        if shipping.level() != config.safety {
            tracing::warn!(
                level = %shipping.level(),
                configured = %config.safety,
                "commits keep to the level that is on record; the one in this node's configuration counts where a \
                 cluster begins: see freshet level"
            );
        }
        Ok(Self { log, shipping, watch, marks, garbage_collector })
    }

    pub fn stop(self) -> Result<(), String> {
        drop(self.garbage_collector);
        let closed = self.log.close().map_err(|cause| cause.to_string());
        self.shipping.stop();
        // They have ended with the log; a panic there was reported already.
        let _ = self.watch.join();
        let _ = self.marks.map(JoinHandle::join);
        closed
    }
}

/// Restores to a point in time are as exact as this.
const NOTE_TIME_EVERY: Duration = Duration::from_millis(100);

/// Notes now and then in a log that grows what time it is, and beside the log what was
/// acknowledged. Returns when the log has ended, and with it the waits for commits.
fn watch(log: &Log, mut writer: Writer, shipping: &Shipping) {
    let (mut noted, mut acknowledged) = (log.grown(), Instant::now());
    // No log reaches this LSN: the wait ends when the watermark is closed.
    while let Err(WaitError::Deadline) = log.durable_mark().wait(Lsn::MAX, Some(Instant::now() + NOTE_TIME_EVERY)) {
        if acknowledged.elapsed() >= NOTE_COMMITTED_EVERY {
            shipping.note_committed();
            acknowledged = Instant::now();
        }
        let grown = log.grown();
        if grown > noted {
            let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |now| now.as_micros() as u64);
            // If the log takes no more, it ends.
            if writer.note_time(now).is_ok() {
                noted = grown;
            }
        }
    }
    shipping.commit().end();
}
