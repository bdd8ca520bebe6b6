//! The composition of a primary: execute, certify, log, persist, ship, ack, commit.

use std::{sync::Arc, thread::JoinHandle};

use freshet_base::{ClusterId, NodeId, Stamp, Term};
use freshet_cluster::in_sync::Succession;
use freshet_log::{Log, SinkHandle};
use freshet_membership::Credentials;
use freshet_replication::{
    endpoint::Endpoint,
    primary::{Primary as Shipping, PrimaryConfig, Reigning},
    terms::Terms,
};
use freshet_txn::{Core, Primary};

use super::{
    adapters::{RuleGate, Shipped},
    config::{Domain, NodeConfig},
    janitor::JanitorThread,
};
use crate::{Database, source::LogSource};

/// A primary's parts.
pub(super) struct Reign {
    pub log: Arc<Log>,
    pub shipping: Arc<Shipping>,
    sink: Option<Arc<SinkHandle>>,
    /// Ends the waits for commits when the log ends.
    watch: JoinHandle<()>,
    /// In domain `none`: gives room back that no standby needs any more.
    holder: Option<JoinHandle<()>>,
    janitor: JanitorThread,
}

/// What a reign needs to know of its node.
pub(super) struct Throne<'n> {
    pub config: &'n NodeConfig,
    pub node: NodeId,
    pub credentials: &'n Credentials,
    pub cluster: ClusterId,
    pub address: &'n str,
    pub terms: &'n Terms,
    pub endpoint: &'n Endpoint,
    pub core: &'n Arc<Core>,
    pub source: &'n LogSource,
    pub peers: Vec<String>,
    /// What of the log is known to be committed.
    pub committed: Stamp,
    /// What the in-sync sets of the reign follow.
    pub succession: Succession,
}

impl Reign {
    /// Begins to reign in `term`, which `throne.terms` has entered, with a log that was opened at
    /// `start`.
    pub fn begin(
        throne: &Throne<'_>,
        log: Arc<Log>,
        term: Term,
        start: Stamp,
        janitor: JanitorThread,
    ) -> Result<Self, String> {
        let config = throne.config;
        let rule = config.rule().map_err(|cause| cause.to_string())?;
        let shipping_config = PrimaryConfig {
            partition: config.log.partition_bytes,
            largest_block: config.log.buffer_bytes as u64 / 2,
            peers: throne.peers.clone(),
            fabric: config.fabric.primary().map_err(|cause| cause.to_string())?,
            ..PrimaryConfig::new(rule)
        };
        let who = Reigning {
            cluster: throne.cluster,
            node: throne.node,
            credentials: throne.credentials.clone(),
            address: throne.address.to_owned(),
            term,
            start,
            committed: throne.committed,
            succession: Some(throne.succession.clone()),
        };
        let shipped = Arc::new(Shipped(log.reader()));
        let shipping = Shipping::start(who, shipping_config, shipped, throne.terms.clone());
        let shipping = Arc::new(shipping.map_err(|cause| format!("cannot start its threads: {cause}"))?);
        let sink = Arc::new(log.attach(Arc::clone(&shipping) as _));
        let end = log.begin_term(throne.node).map_err(|cause| cause.to_string())?;
        log.nudge(end);
        let holder = match config.domain {
            Domain::File | Domain::Pmem => None,
            Domain::None => Some(hold_for_standbys(&shipping, &sink)?),
        };
        let recorder = Arc::clone(&log);
        let mut writer = log.writer().map_err(|cause| cause.to_string())?;
        shipping.record_sets(move |set| {
            let end = writer.note_members(set).map_err(|cause| cause.to_string())?;
            recorder.nudge(end);
            Ok(end)
        });
        throne.source.unlimited();
        let gate = Arc::new(RuleGate {
            shipping: Arc::clone(&shipping),
            log: Arc::clone(&log),
            uncommitted: config.log.uncommitted_bytes,
        });
        let watched = Arc::clone(&gate);
        let writer = log.writer().map_err(|cause| cause.to_string())?;
        let watch = std::thread::Builder::new().name("log-watch".into()).spawn(move || watched.watch(writer));
        let watch = watch.map_err(|cause| format!("cannot start a thread: {cause}"))?;
        throne.core.snapshots.reign(Primary { log: Arc::clone(&log), term, gate });
        // What was being built on whoever reigned before. If that cannot be logged now, the next
        // building of an index sees to it.
        let _ = Database { core: Arc::clone(throne.core) }.drop_unfinished_indexes();
        throne.endpoint.set_service(Some(shipping.service()));
        tracing::info!(
            role = "primary",
            term = term.0,
            stamp = start.0,
            safety = %config.safety,
            standbys = config.standbys,
            "this node is the primary"
        );
        Ok(Self { log, shipping, sink: Some(sink), watch, holder, janitor })
    }

    pub fn stop(mut self) -> Result<(), String> {
        drop(self.janitor);
        let closed = self.log.close().map_err(|cause| cause.to_string());
        self.shipping.stop();
        self.sink = None;
        // It has ended with the log; a panic there was reported already, as below.
        let _ = self.watch.join();
        if let Some(holder) = self.holder.take() {
            // It ends with the committed watermark.
            let _ = holder.join();
        }
        closed
    }
}

/// Without a store, workers may not overwrite what standbys have yet to be sent: what is committed
/// has been sent to everyone that the safety level waits for.
fn hold_for_standbys(shipping: &Arc<Shipping>, sink: &Arc<SinkHandle>) -> Result<JoinHandle<()>, String> {
    // Block by block, or a transaction that is longer than the buffer would never get there.
    let committed = Arc::clone(shipping.commit().reached());
    let sink = Arc::clone(sink);
    std::thread::Builder::new()
        .name("log-hold".into())
        .spawn(move || {
            let mut at = Stamp::ZERO;
            while let Ok(to) = committed.wait(at.plus(1), None) {
                sink.release(to);
                at = to;
            }
        })
        .map_err(|cause| format!("cannot start a thread: {cause}"))
}
