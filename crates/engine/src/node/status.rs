//! What `status` shows of a node.

use std::{sync::PoisonError, time::Duration};

use freshet_base::{
    ClusterId, Lsn, NodeId, Term, WaitError,
    wait::{self, Patience},
};
use freshet_cluster::{in_sync::InSyncSet, promotion::is_unattended, wanted::Wanted};
use freshet_replay::{Proven, Replay};
use freshet_replication::{
    follow::Watching,
    primary::{Primary, VisibleWanted},
    status::{MirrorStatus, OwnStatus, PrimaryStatus},
    terms::Terms,
};
use freshet_txn::Recorded;
use serde::Serialize;

use crate::scheme::inputs::{AgainStatus, SampleStatus};

use super::{
    Apply, CheckpointStatus, Composition, Domain, Failover, Node, NodeConfig, OTHERS_LOOK, PhaseStatus, StartPhase,
    SweepStatus, belongs::Removal, memory::MemoryStatus, sessions::Divided,
};

/// Whether a standby's state is that of its primary, as both have compared it at marks.
#[derive(Clone, Debug, Default, Serialize)]
pub struct ProofStatus {
    /// Whether it knows by now what its own state is.
    pub counts: bool,
    /// How many marks were compared since the start.
    pub marks: u64,
    /// The last at which both were equal.
    pub equal_at: Option<Lsn>,
    /// How they differ.
    pub differs: Option<String>,
}

impl ProofStatus {
    pub(super) fn of(replay: &Replay) -> Self {
        let Proven { counts, marks, equal_at } = replay.proven();
        Self { counts, marks, equal_at, differs: replay.difference().map(ToString::to_string) }
    }
}

/// Who takes the place of a lost primary.
#[derive(Clone, Debug, Serialize)]
pub struct FailoverStatus {
    /// As it is configured here.
    pub by: Failover,
    /// What is missing for nodes to do it by themselves, whatever is configured.
    pub lacks: Option<String>,
    /// Why this node, which has lost its primary and stood, does not lead.
    pub cannot_lead: Option<String>,
    /// What is left of maintenance, while that lasts: until then no node does it by itself.
    pub maintenance: Option<Duration>,
}

impl FailoverStatus {
    /// `set` is the newest that is known.
    fn of(
        config: &NodeConfig,
        (terms, set): (&Terms, Option<&InSyncSet>),
        role: &RoleStatus,
        watching: Option<&Watching>,
    ) -> Self {
        let lacks = match (is_unattended(config.safety, set), role, set) {
            (Ok(()), RoleStatus::Primary { shipping, .. }, Some(set)) => shipping.has_successors(set),
            (unattended, ..) => unattended,
        };
        Self {
            by: config.failover,
            lacks: lacks.err().map(|lacks| lacks.to_string()).or(terms.register_trouble()),
            cannot_lead: watching.and_then(Watching::cannot_lead),
            maintenance: terms.maintained().left(),
        }
    }
}

/// By role.
#[derive(Clone, Debug, Serialize)]
#[serde(tag = "role", rename_all = "kebab-case")]
pub enum RoleStatus {
    /// A primary and its standbys.
    Primary {
        /// LSNs handed out end here.
        reserved: Lsn,
        /// Filled without a gap up to here.
        filled: Lsn,
        /// Bytes of log since the start.
        log_bytes: u64,
        /// Group commits since the start.
        batches: u64,
        /// Processor time of the group commit's threads, of all streams.
        log_cpu: Duration,
        /// Transactions that were recorded, if inputs are recorded.
        #[serde(skip_serializing_if = "Option::is_none")]
        inputs: Option<Recorded>,
        /// Shipping and the commit rule.
        #[serde(flatten)]
        shipping: Box<PrimaryStatus>,
    },
    /// A standby as it sees itself.
    Standby {
        /// Receiving, replay, and lag.
        #[serde(flatten)]
        own: Box<OwnStatus>,
        /// What replay does to records.
        apply: Apply,
        /// Records replayed since the start.
        replayed_records: u64,
        /// Processor time of all replay threads.
        replay_threads_cpu: Duration,
        /// Whether its state is that of its primary.
        state_proof: ProofStatus,
        /// Transactions that were executed again, if it does that.
        #[serde(skip_serializing_if = "Option::is_none")]
        again: Option<AgainStatus>,
        /// Transactions that were executed again at their own places in the log, if it does that.
        #[serde(skip_serializing_if = "Option::is_none")]
        sampled: Option<SampleStatus>,
    },
    /// A mirror as it sees itself.
    Mirror {
        /// Its memory, and its connection.
        #[serde(flatten)]
        own: Box<MirrorStatus>,
    },
    /// A failover is under way.
    TakingOver {
        /// Transactions that are executed again, which a failover waits for.
        #[serde(skip_serializing_if = "Option::is_none")]
        again: Option<AgainStatus>,
        /// Of a mirror: how far it is with what was in its memory.
        #[serde(flatten)]
        phase: Option<PhaseStatus>,
    },
    /// A failover that was begun here failed half-way: restart the node.
    Failed,
    /// It was stopped.
    Stopped,
}

/// As things stand on one node.
#[derive(Clone, Debug, Serialize)]
pub struct NodeStatus {
    /// Itself.
    pub node: NodeId,
    /// Its cluster.
    pub cluster: ClusterId,
    /// Why it is no member of its cluster any more, as another node has answered it last.
    pub removed: Option<Removal>,
    /// The latest term it has observed.
    pub term: Term,
    /// Under 2-safe, the newest in-sync set that it knows of. While `before` names others, only the
    /// primary knows which of them is in effect, and a failover has to hear enough of each.
    pub in_sync_set: Option<InSyncSet>,
    /// Who takes a lost primary's place.
    pub failover: FailoverStatus,
    /// Which log, or memory of a mirror, it has: sets name it so. None before it has one.
    pub incarnation: Option<u64>,
    /// Where other nodes reach it.
    pub address: String,
    /// Where its log becomes persistent.
    pub domain: Domain,
    /// Since when it runs.
    pub uptime: Duration,
    /// What it has had done for clients whose reads go to standbys.
    pub divided: Divided,
    /// Transactions that begin now see everything below.
    pub read_view: Lsn,
    /// Every running transaction sees everything below: versions older than this are reclaimed.
    pub oldest_reader: Lsn,
    /// Tables, the catalog not counted.
    pub tables: usize,
    /// Their memory.
    pub memory: MemoryStatus,
    /// What speaks against what it has in memory, if anything does.
    pub doubt: Option<String>,
    /// What the sweep has looked at, and found.
    pub sweep: SweepStatus,
    /// What a crash had left at the end of the log, and was cut off at the start.
    pub torn_at_start: Option<String>,
    /// Why the newest checkpoint was passed over at the start, if it was.
    pub checkpoint_passed_over: Option<String>,
    /// The last checkpoint; none for a node that keeps nothing on disk.
    pub checkpoint: Option<CheckpointStatus>,
    /// By role.
    #[serde(flatten)]
    pub role: RoleStatus,
}

impl Node {
    /// How old what readers see here may be: zero on a primary; on a standby the time since its
    /// primary was heard, and by how much its view was behind then. Nothing when it has not heard
    /// of one, or neither leads nor follows, as while a failover is under way. Waits for none.
    pub fn staleness(&self) -> Option<Duration> {
        let composition = self.unless_taking_over()?;
        match composition.lead() {
            Some(_) => Some(Duration::ZERO),
            None => composition.standby()?.standby.status().age,
        }
    }

    /// Has standbys say at once what becomes visible there, as long as what is returned is kept;
    /// nothing unless this node is the primary. To be asked for before the commit that is waited
    /// for. Does not wait for a failover.
    pub fn want_visible(&self) -> Option<VisibleWanted> {
        self.unless_taking_over()?.shipping().map(Primary::want_visible)
    }

    /// Blocks until everything below `until` is where `wanted` says.
    ///
    /// # Errors
    /// [`WaitError::Closed`] when the node is the primary no more, and what ended the patience.
    pub fn wait_for_standbys(&self, wanted: Wanted, until: Lsn, patience: Patience<'_>) -> Result<(), WaitError> {
        // A node that has just been promoted commits before its parts can be looked at.
        let look = || self.unless_taking_over().map(|composition| composition.shipping().map(Primary::waits));
        match wait::poll(OTHERS_LOOK, patience, look)? {
            Some(waits) => waits.wait(wanted, until, patience),
            None => Err(WaitError::Closed),
        }
    }

    fn role_status(&self, composition: &Composition) -> RoleStatus {
        match composition {
            Composition::Primary(lead) => {
                let (core, log) = (self.database.core(), lead.log.statistics());
                RoleStatus::Primary {
                    reserved: lead.log.reserved(),
                    filled: lead.log.filled(),
                    log_bytes: log.bytes,
                    batches: log.batches,
                    log_cpu: log.thread_cpu,
                    inputs: core.records_inputs().then(|| core.recorded()),
                    shipping: Box::new(lead.shipping.status()),
                }
            }
            Composition::Standby(following) => {
                let replay = self.replay.as_ref().map(|replay| replay.statistics()).unwrap_or_default();
                RoleStatus::Standby {
                    own: Box::new(following.standby.status()),
                    apply: self.config.apply,
                    replayed_records: replay.records,
                    replay_threads_cpu: replay.cpu,
                    state_proof: self.state_proof(),
                    again: self.scheme.replaying.again(),
                    sampled: self.scheme.samples.status(),
                }
            }
            Composition::Mirror(mirrored) => RoleStatus::Mirror { own: Box::new(mirrored.mirror.status()) },
            Composition::Failed => RoleStatus::Failed,
            Composition::Stopped => RoleStatus::Stopped,
        }
    }

    /// As things stand. Does not wait for a failover.
    pub fn status(&self) -> NodeStatus {
        let core = self.database.core();
        let composition = self.unless_taking_over();
        let role = match composition.as_deref() {
            Some(composition) => self.role_status(composition),
            None => {
                let phase = *self.phase.lock().unwrap_or_else(PoisonError::into_inner);
                RoleStatus::TakingOver { again: self.scheme.replaying.again(), phase: phase.map(StartPhase::status) }
            }
        };
        let watching = composition.as_deref().and_then(Composition::watching);
        drop(composition);
        let terms = self.terms.get();
        NodeStatus {
            node: self.id,
            cluster: self.cluster,
            removed: self.terms.removal().map(|record| Removal::of(self.id, record)),
            term: terms.fence.highest(),
            failover: FailoverStatus::of(&self.config, (&self.terms, terms.set.as_ref()), &role, watching.as_deref()),
            in_sync_set: terms.set,
            incarnation: terms.incarnation,
            address: self.address.clone(),
            domain: self.config.domain,
            uptime: self.counted.since.elapsed(),
            divided: self.counted.divided(),
            read_view: core.snapshots.current(),
            oldest_reader: core.oldest_needed(),
            tables: core.catalog.tables_at(core.snapshots.current()).len() - 1,
            memory: MemoryStatus::of(core),
            doubt: self.proof.reason().map(|reason| reason.to_string()),
            sweep: self.sweep_status(),
            torn_at_start: self.torn.map(|torn| torn.to_string()),
            checkpoint_passed_over: self.passed_over.clone(),
            checkpoint: self.checkpoint_status(),
            role,
        }
    }
}
