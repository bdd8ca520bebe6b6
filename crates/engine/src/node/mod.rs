//! A node: a database, its log, and its place in a cluster.
//!
//! Start, in this order: the directory and its owner, the end of the log, the checkpoint, replay,
//! the indexes, then one of two compositions.
//!
//! - A primary enters a new term at the end of its log (also one that only restarted: see the
//!   cluster crate's `term`), opens the log there, and lets the group commit ship to standbys.
//! - A standby opens its log for receiving, follows its primary, and replays.
//!
//! A standby that is [promoted](Node::promote) becomes the first kind without a restart, and
//! readers that were there continue (Query Fresh, section 3.4.4). The other way goes through a
//! restart, without options: who was succeeded follows.

mod adapters;
pub mod archive;
mod as_primary;
pub mod begin_again;
mod belongs;
mod checkpoint;
mod composition;
mod config;
mod etcd;
mod failover;
mod fuzzy_snapshot;
mod garbage_collector;
mod ground;
mod join;
mod lead;
mod level;
mod members;
mod membership;
mod memory;
mod mirror;
mod mix;
mod observer;
mod pace;
mod proof;
mod rehearsal;
mod remove;
mod restoring;
mod seed;
pub mod sessions;
mod standby;
mod start;
mod status;
mod sweep;
mod switch_over;
mod upgrade;
mod witness;

use std::{
    path::PathBuf,
    sync::{
        Arc, Mutex, OnceLock, PoisonError, TryLockError,
        atomic::{AtomicUsize, Ordering},
    },
    thread::JoinHandle,
    time::{Duration, Instant},
};

use freshet_base::{
    ClusterId, Consent, Lsn, NodeId, StateProof, Term, WaitError,
    wait::{self, Patience},
};
use freshet_log::{
    Log, LogDirectory, Torn,
    persist::{Medium as PersistMedium, Method as PersistMethod},
};
use freshet_membership::Credentials;
use freshet_replay::Replay;
use freshet_replication::{
    endpoint::Endpoint, primary::Primary, promotion::PromoteOptions, renewal::Renewal, restart::Threshold, terms::Terms,
};
use freshet_txn::{OutcomeOpen, Ticket};
use thiserror::Error;

pub use freshet_replication::endpoint::LOCAL as NODE_SOCKET;
pub use freshet_replication::{primary::SwitchedOver, standby::ReplayMode, status::LinkStatus, wire::Verdict};

pub(crate) use self::{
    adapters::{LiveReplay, Room},
    garbage_collector::{GarbageCollector, GarbageCollectorThread},
    start::Parts,
};
pub use self::{
    as_primary::OfPrimary,
    checkpoint::{CheckpointKind, CheckpointStatus},
    config::{
        Apply, CheckpointSettings, DivideBy, Domain, Encoding, FabricEncryption, FabricSettings, Failover,
        ForceFenceBy, GroupCommit, LogSettings, MirrorSettings, NodeConfig, OnDoubt, OnMismatch, ProofSettings,
        SettingError, SweepSettings, WitnessSettings, headings,
    },
    etcd::ETCD,
    level::ChangeLevelError,
    membership::{MembershipSettings, enrol_client},
    memory::MemoryStatus,
    mix::{Distinct, FormMix, Mix, MixError},
    remove::{RemoveError, RotateError},
    start::{PhaseStatus, StartError, StartPhase},
    status::{NodeStatus, ProofStatus, RoleStatus},
    sweep::{SweepCounts, SweepStatus},
    switch_over::{LeavesTerm, SwitchOverError},
    upgrade::FinishUpgradeError,
    witness::WitnessNode,
};
use self::{checkpoint::Checkpointing, composition::Composition, sweep::Sweep};
use crate::{
    Database,
    compare::{StateAnswer, StateAsk, StateViews},
    scheme::Scheme,
    source::VersionSource,
};

/// How often a wait for an LSN looks how far a primary's log is: that grows with each transaction,
/// which is no moment to wake anybody.
const GROWS: Duration = Duration::from_millis(1);
/// How often it is tried to look at what a node is made of while others do. That takes them no
/// time, unless a failover has just begun, and then no caller is to wait for it.
const OTHERS_LOOK: Duration = Duration::from_millis(1);
/// Nobody waits longer for a pass of the sweep.
const LONGEST_SWEEP: Duration = Duration::from_secs(24 * 3600);

/// What a node is at the moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// It takes writes.
    Primary,
    /// It follows a primary.
    Standby,
    /// Its memory is written by a primary.
    Mirror,
    /// A failover that was begun here failed half-way: restart the node.
    Failed,
    /// It was stopped.
    Stopped,
}

/// A failover that succeeded.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Promotion {
    /// The new term.
    pub term: Term,
    /// Where it begins.
    pub at: Lsn,
}

/// Why a node was not promoted.
#[derive(Debug, Error)]
pub enum PromoteError {
    /// Only a standby can be.
    #[error("this node is not a standby: there is nothing to promote")]
    NotStandby,
    /// The failover was refused or failed.
    #[error(transparent)]
    Promotion(Box<freshet_replication::promotion::PromoteError>),
    /// The term has begun, but the node could not begin to lead in it.
    #[error("the new term has begun, but this node cannot become the primary: {why}; {remedy}")]
    Lead {
        /// Why.
        why: String,
        /// What to do.
        remedy: &'static str,
    },
}

/// A running node.
pub struct Node {
    config: NodeConfig,
    id: NodeId,
    credentials: Credentials,
    cluster: ClusterId,
    address: String,
    database: Database,
    source: Arc<VersionSource>,
    scheme: Scheme,
    terms: Terms,
    /// Keeps the directory ours.
    _directory: Option<Arc<LogDirectory>>,
    /// The live replay of a node that is or was a standby.
    replay: Option<Arc<Replay>>,
    renewal: Renewal,
    endpoint: Endpoint,
    /// What speaks against what it has in memory.
    proof: Arc<StateProof>,
    composition: Mutex<Composition>,
    torn: Option<Torn>,
    passed_over: Option<String>,
    /// Of a node with a directory and a log.
    checkpointing: OnceLock<Arc<Checkpointing>>,
    sweep: Sweep,
    views: StateViews,
    /// Of a node that was the primary, and follows no other: asks whether it is to be the primary
    /// again.
    returning: Mutex<Option<JoinHandle<()>>>,
    restart: Mutex<Phases>,
    /// How far the failover of a mirror is.
    phase: Mutex<Option<StartPhase>>,
    counted: sessions::Counted,
    /// How many failovers are under way, which keep the composition.
    taking_over: AtomicUsize,
}

/// Time and bytes of the phases checkpoint and log of a restart, time and entries of its phase
/// indexes.
pub type Phases = [(std::time::Duration, u64); 3];

impl std::fmt::Debug for Node {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Node({} {:?})", self.id, self.role())
    }
}

impl Node {
    /// What it is made of; none while a failover is under way, which may take long.
    fn unless_taking_over(&self) -> Option<std::sync::MutexGuard<'_, Composition>> {
        let look = || {
            if self.taking_over.load(Ordering::SeqCst) > 0 {
                return Some(None);
            }
            match self.composition.try_lock() {
                Ok(composition) => Some(Some(composition)),
                Err(TryLockError::Poisoned(poisoned)) => Some(Some(poisoned.into_inner())),
                Err(TryLockError::WouldBlock) => None,
            }
        };
        wait::poll(OTHERS_LOOK, Patience::endless(), look).ok().flatten()
    }

    fn composition(&self) -> std::sync::MutexGuard<'_, Composition> {
        self.composition.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Its database.
    pub fn database(&self) -> &Database {
        &self.database
    }

    /// How it was set up.
    pub fn config(&self) -> &NodeConfig {
        &self.config
    }

    /// The certificate that it shows to others.
    pub fn credentials(&self) -> &Credentials {
        &self.credentials
    }

    /// What keeps it from having a certificate of the authority that counts.
    pub fn certificate_trouble(&self) -> Option<String> {
        self.renewal.trouble()
    }

    /// What speaks against what it has in memory.
    pub fn proof(&self) -> &Arc<StateProof> {
        &self.proof
    }

    /// Whether doubts in its state have consequences from now on.
    pub fn set_on_doubt(&self, on_doubt: OnDoubt) {
        self.proof.set_withdraws(on_doubt == OnDoubt::Withdraw);
    }

    /// Itself.
    pub fn id(&self) -> NodeId {
        self.id
    }

    /// Its cluster.
    pub fn cluster(&self) -> ClusterId {
        self.cluster
    }

    /// Where other nodes reach it.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// Where it listens for other nodes.
    pub fn bound_address(&self) -> std::net::SocketAddr {
        self.endpoint.address()
    }

    /// What a crash had left at the end of its log, and was cut off when it started.
    pub fn torn(&self) -> Option<&Torn> {
        self.torn.as_ref()
    }

    /// Why its newest checkpoint was passed over when it started, for an older one or for the log
    /// alone.
    pub fn passed_over(&self) -> Option<&str> {
        self.passed_over.as_deref()
    }

    /// How its start went. Of a mirror that has taken over, how that went: what was in its memory
    /// stands for the checkpoint.
    pub fn restart_phases(&self) -> Phases {
        *self.restart.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What it is at the moment.
    pub fn role(&self) -> Role {
        self.composition().role()
    }

    /// Whether it was the primary and another node's term has ended that: it commits nothing any
    /// more, and what it shows grows old. Never blocks.
    pub fn is_deposed(&self) -> bool {
        self.of_term(Primary::is_fenced) == Some(true)
    }

    /// Whether it is deposed and the node that takes over needs nothing more of it
    /// ([`Primary::is_succeeded`]): started again, it follows the other one. Never blocks.
    pub fn is_succeeded(&self) -> bool {
        self.of_term(Primary::is_succeeded) == Some(true)
    }

    /// Whether it was to become the primary and could not when its term had begun: it answers
    /// nobody before it is started again. Never blocks.
    pub fn has_failed(&self) -> bool {
        self.composition.try_lock().is_ok_and(|composition| composition.role() == Role::Failed)
    }

    fn of_term<T>(&self, look: impl FnOnce(&Primary) -> T) -> Option<T> {
        // Who takes over at this moment is none.
        self.composition.try_lock().ok()?.shipping().map(look)
    }

    /// The primary's log, while this node is one.
    pub fn log(&self) -> Option<&Arc<Log>> {
        self.database.core().snapshots.primary().map(|primary| &primary.log)
    }

    /// Whether the state here is that of the primary, as both have compared it; on a node that is
    /// or was a standby.
    pub fn state_proof(&self) -> ProofStatus {
        self.replay.as_deref().map(ProofStatus::of).unwrap_or_default()
    }

    /// What the log of this node waits for, or the journal of what has arrived, if it lacks room
    /// for its next file, or descriptors.
    pub fn log_out_of_space(&self) -> Option<freshet_log::OutOfSpace> {
        let composition = self.unless_taking_over()?;
        let of_log = composition.log().and_then(|log| log.out_of_space());
        of_log.or_else(|| composition.standby()?.standby.out_of_space())
    }

    /// The write or sync of this node's log that does not return, if there is one.
    pub fn log_hangs(&self) -> Option<freshet_log::Hang> {
        self.unless_taking_over()?.log()?.hangs()
    }

    /// What lies under a log buffer in persistent memory, and how it becomes durable; none for one
    /// in plain memory.
    pub fn persistent_medium(&self) -> Option<(PersistMedium, PersistMethod)> {
        self.composition().persistent_medium()
    }

    /// Blocks until a commit holds, or the patience is at its end.
    ///
    /// # Errors
    /// [`OutcomeOpen`] when that cannot be known.
    pub fn wait<'a>(&self, ticket: Ticket, patience: impl Into<Patience<'a>>) -> Result<(), OutcomeOpen> {
        self.database.wait_until(ticket, patience)
    }

    /// Blocks until transactions that begin here see everything below `lsn`. On a primary they do
    /// at once, unless the LSN is from another node's term that this one has not observed yet.
    ///
    /// # Errors
    /// [`WaitError`] when the patience ends first, or the node stops.
    pub fn wait_visible<'a>(&self, lsn: Lsn, patience: impl Into<Patience<'a>>) -> Result<Lsn, WaitError> {
        let (snapshots, patience) = (&self.database.core().snapshots, patience.into());
        let leads = || snapshots.primary().is_some();
        if !leads() {
            let ended = || leads() || patience.is_interrupted();
            match snapshots.visible().wait(lsn, patience.unless(&ended)) {
                Err(WaitError::Interrupted) if leads() => {}
                waited => return waited,
            }
        }
        wait::poll(GROWS, patience, || match snapshots.current() {
            current if current >= lsn => Some(Ok(current)),
            _ if matches!(self.role(), Role::Stopped | Role::Failed) => Some(Err(WaitError::Closed)),
            _ => None,
        })?
    }

    /// Makes this standby, or mirror, the primary of a new term (Query Fresh, section 3.4.4):
    /// consults the other nodes, fetches what they have more, finishes replay, and leads. Readers
    /// continue. `consent` says what an operator has agreed to lose. Blocks for as long as all that
    /// takes.
    ///
    /// # Errors
    /// See [`PromoteError`]; but for [`PromoteError::Lead`] the node is a standby as before.
    pub fn promote(&self, consent: Consent) -> Result<Promotion, PromoteError> {
        tracing::info!(?consent, "a promotion begins");
        let configured = Some(self.config.safety);
        let promoted = self.promotion(&PromoteOptions { consent, configured, ..PromoteOptions::default() });
        if let Err(cause) = &promoted {
            tracing::warn!(%cause, "the promotion did not take place");
        }
        promoted
    }

    /// Of a standby: notes from now on who wants to follow it.
    fn stand_on_threshold(&self) -> Option<Arc<Threshold>> {
        let threshold = Arc::new(Threshold::new(self.composition().standby()?.standby.service()));
        self.endpoint.set_service(Some(Arc::clone(&threshold) as _));
        Some(threshold)
    }

    /// Of a standby: whether it has followed another node.
    fn has_joined(&self) -> bool {
        self.composition().standby().is_some_and(|following| following.standby.wait_joined(Instant::now()).is_ok())
    }

    /// Of a standby: since when it is trying to follow another node.
    fn tries_since(&self) -> Option<Instant> {
        self.composition().standby()?.standby.tries_since()
    }

    fn promotion(&self, options: &PromoteOptions) -> Result<Promotion, PromoteError> {
        let _under_way = UnderWay::begin(&self.taking_over);
        let mut composition = self.composition();
        let promoted = composition.promote(options).ok_or(PromoteError::NotStandby)?;
        let promoted = promoted.map_err(|cause| PromoteError::Promotion(Box::new(cause)))?;
        let follows = std::mem::replace(&mut *composition, Composition::Failed);
        let leads = follows.into_lead(self, &promoted);
        *composition = leads.map_err(|(why, remedy)| PromoteError::Lead { why, remedy })?;
        Ok(Promotion { term: promoted.term, at: promoted.start })
    }

    /// Follows the primary at `address` from now on. Does nothing unless this node is a standby, or
    /// a mirror.
    pub fn follow(&self, address: &str) {
        self.composition().follow(address);
    }

    /// Has the log come in this form from now on, without a restart. Without effect unless this
    /// node is a standby that was started with another encoding than `bytes`: others execute
    /// nothing.
    pub fn set_encoding(&self, encoding: Encoding) {
        self.scheme.replaying.set_encoding(encoding);
    }

    /// From now on this node's memory may have this many bytes, if it is a mirror.
    pub fn set_mirror_bytes(&self, bytes: u64) {
        if let Some(mirrored) = self.composition().mirror() {
            mirrored.mirror.allow(bytes);
        }
    }

    /// Has a mirror that does not follow, since it holds more than the node that it is to follow,
    /// give that up, and begin again ([`freshet_replication::mirror::Mirror::refill`]).
    ///
    /// # Errors
    /// When it is no mirror, or does not hold more.
    pub fn refill(&self) -> Result<(), String> {
        self.composition().mirror().ok_or("this node is no mirror")?.mirror.refill()
    }

    /// Of a standby that was not told whom to follow: asks the others.
    fn look_around(&self) {
        if let Some(following) = self.composition().standby() {
            following.standby.look_around();
        }
    }

    /// Stops: everything that was reserved is flushed, connections and threads end. Transactions
    /// that are still running fail when they commit.
    ///
    /// # Errors
    /// What went wrong with the log, now or before.
    pub fn stop(&self) -> Result<(), String> {
        self.endpoint.set_service(None);
        self.endpoint.set_sessions(None);
        self.sweep.stop();
        self.views.stop();
        if let Some(checkpointing) = self.checkpointing.get() {
            checkpointing.give_up();
        }
        let composition = std::mem::replace(&mut *self.composition(), Composition::Stopped);
        let returning = self.returning.lock().unwrap_or_else(PoisonError::into_inner).take();
        // It may be the last that has this node, and be at this.
        if let Some(thread) = returning.filter(|thread| thread.thread().id() != std::thread::current().id()) {
            thread.thread().unpark();
            // A panic there was reported already.
            let _ = thread.join();
        }
        if !matches!(composition.role(), Role::Failed | Role::Stopped) {
            tracing::debug!("the node stops");
        }
        let stopped = composition.stop();
        // After the log, whose end ends a checkpoint's wait for it.
        if let Some(checkpointing) = self.checkpointing.get() {
            checkpointing.stop();
        }
        stopped
    }

    /// The last checkpoint; none for a node that keeps nothing on disk. Cheap.
    pub fn checkpoint_status(&self) -> Option<CheckpointStatus> {
        self.checkpointing.get().map(|checkpointing| checkpointing.status())
    }

    /// How far the sweep is, and what it has found. Cheap.
    pub fn sweep_status(&self) -> SweepStatus {
        self.sweep.status()
    }

    /// Has the sweep look through everything now, once, at its own pace, and waits for that.
    ///
    /// # Errors
    /// When it is not through by `deadline`, or the node stops.
    pub fn sweep(&self, deadline: Instant) -> Result<SweepStatus, &'static str> {
        self.sweep.now(deadline)
    }

    /// Answers who compares this node's state with another's, or has the sweep look through it. May
    /// take a while.
    ///
    /// # Errors
    /// What is not possible, and why.
    pub fn compare(&self, ask: StateAsk) -> Result<StateAnswer, String> {
        let core = self.database.core();
        match ask {
            StateAsk::Sweep { deadline_ms } => {
                let deadline = Instant::now() + Duration::from_millis(deadline_ms).min(LONGEST_SWEEP);
                let SweepStatus { damage, found, .. } = self.sweep(deadline)?;
                Ok(StateAnswer::Swept { damage, found })
            }
            #[cfg(debug_assertions)]
            StateAsk::Break { what, seed } => {
                Ok(StateAnswer::Broken(crate::compare::break_something(core, what, seed)))
            }
            _ if core.snapshots.current() == Lsn::ZERO => {
                Err("this node shows nothing yet, or is a mirror: there is nothing to compare".into())
            }
            ask => self.views.ask(core, ask),
        }
    }

    /// Changes how often and how fast the sweep goes from now on.
    pub fn set_sweep(&self, settings: SweepSettings) {
        self.sweep.set(settings);
    }

    /// Changes when and how checkpoints are written from now on. Their directories stay.
    pub fn set_checkpoints(&self, settings: CheckpointSettings) {
        if let Some(checkpointing) = self.checkpointing.get() {
            checkpointing.set(settings);
        }
    }

    /// Writes a checkpoint now and waits for it: the log below its start is not needed any more for
    /// a restart. A consistent one keeps old versions in memory meanwhile.
    ///
    /// # Errors
    /// Why there is none; the node goes on, and so does the checkpoint before.
    pub fn checkpoint(&self, kind: CheckpointKind) -> Result<CheckpointStatus, String> {
        let checkpointing = self.checkpointing.get().ok_or("this node keeps nothing on disk")?;
        checkpointing.now(kind)?;
        Ok(checkpointing.status())
    }

    /// Tails of the log that were saved before they were cut off.
    pub fn saved_tails(&self) -> Vec<PathBuf> {
        let composition = self.composition();
        composition.standby().map_or_else(Vec::new, |following| following.standby.status().saved_tails)
    }
}

/// Counted as long as it lives.
struct UnderWay<'n>(&'n AtomicUsize);

impl<'n> UnderWay<'n> {
    fn begin(count: &'n AtomicUsize) -> Self {
        count.fetch_add(1, Ordering::SeqCst);
        Self(count)
    }
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        // Whoever wants to know what went wrong calls `stop`.
        let _ = self.stop();
    }
}
