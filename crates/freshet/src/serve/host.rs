//! A node as the clients of its control port see it.

use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak},
    time::{Duration, Instant},
};

use freshet_base::{
    Consent, Lsn, NodeId, Safety,
    cpu::{Ticks, process_time, ticks},
    versions::{Level, RELEASE},
    wait::{self, Patience},
};
use freshet_engine::{
    Database, Mix, MixError, Node, Order, StateAnswer, StateAsk, StateHash,
    node::{RoleStatus, SwitchedOver},
};
use freshet_membership::{EnrolmentError, Grant};
use freshet_query::{
    server::{Shared as SqlShared, SqlServer},
    statistics::Summary,
};
use serde::Serialize;
use serde_json::{Value, json};

use crate::{
    begin_again::{BeginAgain, Outlook},
    descriptors::Descriptors,
    disk::{Disk, Disks},
    process,
    protocol::Watermarks,
    reload::InForce,
    server::Host,
};

/// So long a token waits for the cluster's next authority, and so often it is looked for.
const NEXT_AUTHORITY: Duration = Duration::from_secs(5);
const LOOK: Duration = Duration::from_millis(50);

/// A node as its clients see it.
pub(crate) struct NodeHost {
    pub(crate) node: Arc<Node>,
    pub(super) begun: Instant,
    /// Where its log was filled to in the newest statuses: blocks begin there.
    pub(super) announced: Mutex<BTreeSet<Lsn>>,
    /// Of a node that may begin again.
    pub(super) again: Option<BeginAgain>,
    /// What it is configured with.
    pub(super) configuration: InForce,
    /// The room where it keeps data.
    pub(super) disks: Disks,
    /// What its SQL sessions share, once they are served.
    pub(super) sql: OnceLock<Weak<SqlShared>>,
}

/// Why it does not measure what is written.
const NO_MIX: &str =
    "the log there is no longer kept, or no status of this node has said that it was filled up to there";
/// How many positions of its log that it has announced a node remembers.
const ANNOUNCED: usize = 4096;

impl NodeHost {
    /// A node that was started then, with this configuration and these disks.
    pub(crate) fn new(node: Arc<Node>, begun: Instant, configuration: InForce, disks: Disks) -> Self {
        let (announced, sql) = (Mutex::default(), OnceLock::new());
        Self { node, begun, announced, again: None, configuration, disks, sql }
    }

    /// Its SQL sessions are those of this server from now on, whose numbers its status has.
    pub(crate) fn counts(&self, sessions: &SqlServer) {
        // They are served once.
        let _ = self.sql.set(Arc::downgrade(sessions.shared()));
    }

    fn announced(&self) -> MutexGuard<'_, BTreeSet<Lsn>> {
        self.announced.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn full_status(&self) -> FullStatus {
        let [checkpoint, log, indexes] = self.node.restart_phases();
        FullStatus {
            outlook: self.again.as_ref().map(BeginAgain::outlook).unwrap_or_default(),
            start: StartPhases { checkpoint, log, indexes },
            version: RELEASE,
            pid: std::process::id(),
            node: self.node.status(),
            log_failure: self.node.log().and_then(|log| log.failure()).map(|failure| failure.to_string()),
            log_waits: self.node.log_out_of_space().map(|out_of_space| out_of_space.to_string()),
            log_hangs: self.node.log_hangs().map(|hang| hang.to_string()),
            certificate_expires: self.node.credentials().expire(),
            certificate_trouble: self.node.certificate_trouble(),
            authority: self.node.credentials().authority().map(|(generation, _)| generation),
            descriptors: Descriptors::now(),
            disks: self.disks.found(),
            resident_bytes: process::resident_bytes(),
            peak_resident_bytes: process::peak_resident_bytes(),
            process_cpu: process_time(),
            processors: Processors::now(),
            counted: self.sql.get().and_then(Weak::upgrade).map(|sql| sql.summary()),
        }
    }
}

/// How long the phases of a start took, and how many bytes, or entries of indexes, each went
/// through.
#[derive(Serialize)]
struct StartPhases {
    checkpoint: (Duration, u64),
    log: (Duration, u64),
    indexes: (Duration, u64),
}

/// What a node's status says beyond the engine's.
#[derive(Serialize)]
struct FullStatus {
    version: &'static str,
    pid: u32,
    #[serde(flatten)]
    node: freshet_engine::NodeStatus,
    /// What comes of a doubt in its state, and what it keeps aside.
    #[serde(flatten)]
    outlook: Outlook,
    /// How its start went.
    start: StartPhases,
    /// Why the log takes no more, if so.
    log_failure: Option<String>,
    /// What the log waits for, if it lacks room.
    log_waits: Option<String>,
    /// The write or sync of the log that does not return, if there is one.
    log_hangs: Option<String>,
    /// When the certificate ends that it shows to other nodes, in seconds since 1970.
    certificate_expires: Option<u64>,
    /// What keeps it from having one by the authority that counts.
    certificate_trouble: Option<String>,
    /// Which of the cluster's authorities has signed it, where Freshet does.
    authority: Option<u64>,
    descriptors: Descriptors,
    /// The room where the node keeps data, a few seconds ago.
    disks: Vec<Disk>,
    resident_bytes: u64,
    peak_resident_bytes: u64,
    /// Processor time of all threads of the process.
    process_cpu: Duration,
    processors: Processors,
    /// What its SQL sessions have counted, where it serves them.
    #[serde(flatten)]
    counted: Option<Summary>,
}

/// The processors that a node may use, and how long they have had something to do, or nothing, in
/// the system's ticks: all processes together.
#[derive(Serialize)]
struct Processors {
    count: usize,
    #[serde(flatten)]
    ticks: Option<Ticks>,
}

impl Processors {
    fn now() -> Self {
        Self { count: std::thread::available_parallelism().map_or(1, usize::from), ticks: ticks() }
    }
}

impl Host for NodeHost {
    fn database(&self) -> &Database {
        self.node.database()
    }

    fn watermarks(&self) -> Watermarks {
        let snapshots = &self.database().core().snapshots;
        let primary = snapshots.primary();
        Watermarks {
            primary: primary.is_some(),
            reserved: primary.map(|primary| primary.log.reserved()),
            durable: primary.map(|primary| primary.log.durable()),
            committed: primary.map(|primary| primary.gate.committed()),
            visible: snapshots.current(),
        }
    }

    fn status(&self) -> String {
        let status = self.full_status();
        if let RoleStatus::Primary { filled, .. } = &status.node.role {
            let mut announced = self.announced();
            announced.insert(*filled);
            while announced.len() > ANNOUNCED {
                announced.pop_first();
            }
        }
        serde_json::to_string(&status).unwrap_or_else(|cause| format!("{{\"error\":{:?}}}", cause.to_string()))
    }

    fn glance(&self) -> Value {
        serde_json::to_value(self.full_status()).unwrap_or_else(|cause| json!({ "error": cause.to_string() }))
    }

    fn members(&self) -> Result<String, String> {
        let members = self.node.members()?;
        serde_json::to_string(&members).map_err(|cause| cause.to_string())
    }

    fn order_maintenance(&self, length: Duration) -> Result<(u32, Vec<String>), String> {
        self.node.order_maintenance(length).map(|ordered| (ordered.known, ordered.unreached))
    }

    fn mix(&self, from: Lsn, batch_bytes: u64) -> Result<Mix, String> {
        // Anywhere else a piece of a row could pass for a block, or the refusal give it away.
        let announced = self.announced().contains(&from);
        match announced.then(|| self.node.mix(from, batch_bytes)) {
            Some(Ok(mix)) => Ok(mix),
            Some(Err(MixError::NotPrimary)) => Err(MixError::NotPrimary.to_string()),
            Some(Err(_)) | None => Err(NO_MIX.to_owned()),
        }
    }

    fn promote(&self, consent: Consent) -> Result<(u32, Lsn), String> {
        match self.node.promote(consent) {
            Ok(promotion) => {
                let (term, lsn) = (promotion.term.0, promotion.at.0);
                let up_s = self.begun.elapsed().as_secs();
                tracing::info!(role = "primary", term, lsn, up_s, "the promotion is done: this node is the primary");
                Ok((promotion.term.0, promotion.at))
            }
            Err(cause) => Err(crate::Failure::from(cause).to_string()),
        }
    }

    fn order(&self, node: Option<&str>, order: Order) -> Result<NodeId, String> {
        self.node.order(node, order)
    }

    fn configuration(&self) -> String {
        serde_json::to_string(&*self.configuration.lock()).unwrap_or_default()
    }

    fn remove(&self, node: &str, gone: bool) -> Result<NodeId, String> {
        self.node.remove(node, gone).map_err(|cause| cause.to_string())
    }

    fn change_level(&self, level: Safety) -> Result<Safety, String> {
        self.node.change_level(level).map_err(|cause| cause.to_string())
    }

    fn finish_upgrade(&self) -> Result<(Level, Level), String> {
        self.node.finish_upgrade().map_err(|cause| cause.to_string())
    }

    fn rotate(&self) -> Result<u64, String> {
        self.node.rotate().map_err(|cause| cause.to_string())
    }

    fn switch_over(&self, to: Option<&str>) -> Result<SwitchedOver, String> {
        self.node.switch_over(to).map_err(|cause| cause.to_string())
    }

    fn begin_again(&self, force: bool) -> Result<String, String> {
        self.again.as_ref().ok_or("this node cannot begin again by itself")?.ask_for(&self.node, force)
    }

    fn refill(&self) -> Result<(), String> {
        self.node.refill()
    }

    fn checkpoint(&self, kind: freshet_engine::CheckpointKind) -> Result<freshet_engine::CheckpointStatus, String> {
        self.node.checkpoint(kind)
    }

    fn token(&self, grant: Grant, valid: Duration) -> Result<String, String> {
        // A node was removed just now, say: the next authority is on its way.
        let patience = Patience::endless().until(Instant::now() + NEXT_AUTHORITY);
        let given = || match self.node.credentials().give_token(grant, valid) {
            Err(EnrolmentError::Replaced) => None,
            given => Some(given),
        };
        let given = wait::poll(LOOK, patience, given).unwrap_or(Err(EnrolmentError::Replaced));
        given.map(|token| token.to_string()).map_err(|cause| cause.to_string())
    }

    fn wait_visible(&self, lsn: Lsn, deadline: Instant) -> Result<Lsn, String> {
        self.node.wait_visible(lsn, Some(deadline)).map_err(|cause| cause.to_string())
    }

    fn compare(&self, ask: StateAsk) -> Result<StateAnswer, String> {
        self.node.compare(ask)
    }

    fn rehearsed(&self, at: Option<Lsn>, deadline: Instant) -> Option<Result<StateHash, String>> {
        self.node.rehearsed(at, deadline)
    }
}
