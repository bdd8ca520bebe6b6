//! What `status` shows.

use std::{collections::BTreeSet, time::Duration};

use freshet_base::{Lsn, NodeId, Safety, Term};
use freshet_cluster::{
    commit_rule::{Place, Standing},
    flow::Mode,
    follower::ReplayMode,
    in_sync::{Holder, InSyncSet},
    meeting::Yields,
    promotion::{NeedsOperator, has_successors},
    relay::RelayAck,
};
use freshet_fabric::FabricKind;
use serde::{Deserialize, Serialize};

use crate::forms::Encoding;

/// After so long a silence nobody knows how far the primary's log reaches, and whom it counts on.
/// Many times as long as a primary may be silent that has nothing to say.
pub(crate) const STALE: Duration = Duration::from_secs(2);

/// A primary and its standbys.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PrimaryStatus {
    /// Itself.
    pub node: NodeId,
    /// Its term.
    pub term: Term,
    /// What a commit promises.
    pub safety: Safety,
    /// What an operator wants it to promise: another level only while the change is on its way to
    /// the record.
    pub wanted: Safety,
    /// Commits keep to an earlier level as well, since the set of this one is not on record yet:
    /// these nodes have yet to note it.
    pub level_pending: Option<BTreeSet<NodeId>>,
    /// Another in-sync set is on its way to the record, and a failover may need members of the one
    /// before as well: these nodes have yet to note it.
    pub set_pending: Option<BTreeSet<NodeId>>,
    /// How the promise stands.
    pub standing: Standing,
    /// Handed over by the group commit.
    pub available: Lsn,
    /// Persistent here.
    pub durable: Lsn,
    /// Persistent wherever the safety level demands.
    pub committed: Lsn,
    /// Everyone who ever joined during this term.
    pub standbys: Vec<StandbyStatus>,
    /// Those connected on whom no commit counts: archives, and nodes whose checkpoint is on its
    /// way.
    pub observers: Vec<ObserverStatus>,
    /// The cluster's witness, if it has one.
    pub witness: Option<WitnessStatus>,
    /// Processor time of shipping.
    pub ship_cpu: Duration,
    /// How much of it is the group commit's own thread's, and is part of `log_cpu` as well.
    pub prompt_cpu: Duration,
    /// Processor time of all threads that read acknowledgements.
    pub ack_cpu: Duration,
    /// Processor time of compression, which is part of shipping.
    pub pack_cpu: Duration,
    /// How many bytes less were sent for it.
    pub packed_bytes: u64,
    /// Batches sent as they came, to all standbys together.
    pub live_batches: u64,
    /// How many of them the group commit's own thread has written.
    pub prompt_batches: u64,
    /// Bytes of batches that are kept here for mirrors which come to them later, and to be filled
    /// again; at most about 128 MiB, beside one for each mirror that is on its way.
    pub mirror_batch_bytes: u64,
    /// Nodes that came during this term and are not fed, since they hold more than this log has.
    /// An operator has to choose.
    pub ahead: Vec<AheadStatus>,
    /// Other primaries that this one has met during its term.
    pub two_primaries: Vec<TwoPrimaries>,
}

impl PrimaryStatus {
    /// Whether the nodes in sync can choose a successor by themselves, if this primary of `set` is
    /// lost at this moment.
    ///
    /// # Errors
    /// [`NeedsOperator::Away`] otherwise.
    pub fn has_successors(&self, set: &InSyncSet) -> Result<(), NeedsOperator> {
        match &self.standing {
            Standing::Degraded { in_sync, .. } | Standing::Blocked { in_sync, .. } => has_successors(set, *in_sync),
            _ => Ok(()),
        }
    }
}

/// The witness, as its primary sees it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WitnessStatus {
    /// Itself.
    pub node: NodeId,
    /// Where it is reached; empty where that is not known.
    pub address: String,
    /// Whether it answers.
    pub connected: bool,
    /// Whether it votes: it is in the in-sync set that is in effect.
    pub votes: bool,
    /// For how long that has been so.
    pub since: Option<Duration>,
    /// For how long it has answered.
    pub connected_for: Option<Duration>,
    /// The newest version of the protocol that it speaks, as it has said when it answered.
    pub protocol: Option<u16>,
}

/// One that holds more than the log of the node that it is to follow. Every node that is fed hears
/// of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AheadStatus {
    /// Itself.
    pub node: NodeId,
    /// Where it can be reached.
    pub address: String,
    /// The newest term of what it holds.
    pub term: Term,
    /// Where that ends.
    pub end: Lsn,
    /// Up to where it is known to have been acknowledged to clients.
    pub acknowledged: Lsn,
    /// What it holds, and what can be done.
    pub why: String,
}

/// No more of these are remembered, and of other primaries.
pub(crate) const MOST_AHEAD: usize = 16;

/// A primary, as another one knows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PrimaryId {
    /// Itself.
    pub node: NodeId,
    /// Where it can be reached.
    pub address: String,
    /// The term in which it leads, or has led.
    pub term: Term,
}

impl std::fmt::Display for PrimaryId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { node, address, term } = self;
        write!(f, "node {node} at {address} in term {term}")
    }
}

/// Two primaries have met. Every node that one of them feeds hears of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TwoPrimaries {
    /// The one that says so.
    pub this: PrimaryId,
    /// The one that it has met.
    pub other: PrimaryId,
    /// Which of them yields.
    pub yields: Yields,
    /// Which that is and why, and what can be done.
    pub why: String,
}

/// One who gets the log and is not counted on, as the primary sees it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ObserverStatus {
    /// Itself.
    pub node: NodeId,
    /// Sent to it.
    pub shipped: Lsn,
    /// Persistent there.
    pub acked: Lsn,
    /// Bytes handed over here and not yet persistent there.
    pub ack_lag_bytes: u64,
    /// Bytes sent over the present connection, headers included.
    pub sent_bytes: u64,
    /// Where it can be reached; empty when nowhere.
    pub address: String,
    /// The version of its program.
    pub version: Option<String>,
    /// The newest version of the protocol that it speaks.
    pub protocol: Option<u16>,
    /// How long ago the log here went beyond what is persistent there, where that is known.
    pub ack_lag: Option<Duration>,
    /// Since when it is connected.
    pub connected_for: Option<Duration>,
}

/// How busy a standby is, as it says itself about once a second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Load {
    /// Processors that it may use.
    pub processors: u32,
    /// In thousandths: how much of them did nothing.
    pub idle: u32,
    /// In thousandths of the time: for how long something was on its way to it. Of a mirror the
    /// primary says so: for how long it waited for what it writes or reads there.
    pub link_busy: u32,
    /// In thousandths of one processor: what following takes, without readers.
    pub following: u32,
}

/// How long batches took over a connection from being sent until they were known to be persistent
/// on the other side. One of those under way is timed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RoundTrips {
    /// How many were timed.
    pub count: u64,
    /// What they took all together.
    pub total: Duration,
    /// What the quickest took.
    pub least: Duration,
}

/// One standby, as its primary sees it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct StandbyStatus {
    /// Itself.
    pub node: NodeId,
    /// Where it can be reached.
    pub address: String,
    /// Whether there is a connection.
    pub connected: bool,
    /// Whether commits may count on it at all.
    pub synchronous: bool,
    /// Its relation to the in-sync set.
    pub place: Place,
    /// Whether a commit waits for it, or could.
    pub in_sync: bool,
    /// How it is fed, while connected.
    pub mode: Option<Mode>,
    /// By what its memory is written, while connected.
    pub fabric: Option<FabricKind>,
    /// Whether its processor has no part in that: with fabric tcp, a thread there does it.
    pub one_sided: bool,
    /// In which form it asks for the log, while connected.
    pub encoding: Option<Encoding>,
    /// Whether it says that something speaks against its state.
    pub in_doubt: bool,
    /// The last mark at which it has found its state to be that of the primary, over the present
    /// connection.
    pub equal_at: Option<Lsn>,
    /// How busy it is, while connected, as soon as it has said so.
    pub load: Option<Load>,
    /// How long batches take to be persistent there, over the present connection.
    pub round_trips: RoundTrips,
    /// Whether rows are written there, in place, and none of the log.
    pub mirror: bool,
    /// If so: what it lacks. It gets nothing more before it has that.
    pub lacks: Option<&'static str>,
    /// Sent to it.
    pub shipped: Lsn,
    /// Persistent there.
    pub acked: Lsn,
    /// Replayed there.
    pub replayed: Lsn,
    /// Visible to readers there.
    pub visible: Lsn,
    /// Bytes filled here and not yet sent; `None` while it is not connected.
    pub ship_lag_bytes: Option<u64>,
    /// Bytes filled here and not yet acknowledged as persistent there.
    pub ack_lag_bytes: u64,
    /// Bytes committed here and not yet visible there; `None` while it is not connected.
    pub visible_lag_bytes: Option<u64>,
    /// Bytes sent over the present connection, headers included.
    pub sent_bytes: u64,
    /// Why the last connection ended.
    pub last_loss: Option<String>,
    /// Whether it is a relay, and feeds others.
    pub relay: bool,
    /// The version of its program, as it has said when it came last.
    pub version: Option<String>,
    /// The newest version of the protocol that it speaks, as it has said then.
    pub protocol: Option<u16>,
    /// Which log it has.
    #[serde(skip)]
    pub log: Holder,
    /// Whether it has said in this term what it holds.
    pub answered: bool,
    /// How long ago the log here went beyond what is persistent there, where that is known.
    pub ack_lag: Option<Duration>,
    /// For how long it has had its place.
    pub since: Option<Duration>,
    /// For how long it is connected, or not: as far as this term goes back.
    pub connected_or_away_for: Option<Duration>,
}

#[cfg(test)]
impl StandbyStatus {
    /// One that is away.
    pub(crate) fn of(node: NodeId) -> Self {
        Self {
            node,
            address: String::new(),
            connected: false,
            synchronous: true,
            place: Place::Behind,
            in_sync: false,
            mode: None,
            fabric: None,
            one_sided: false,
            encoding: None,
            in_doubt: false,
            equal_at: None,
            load: None,
            round_trips: RoundTrips::default(),
            mirror: false,
            lacks: None,
            shipped: Lsn::ZERO,
            acked: Lsn::ZERO,
            replayed: Lsn::ZERO,
            visible: Lsn::ZERO,
            ship_lag_bytes: None,
            ack_lag_bytes: 0,
            visible_lag_bytes: None,
            sent_bytes: 0,
            last_loss: None,
            relay: false,
            version: None,
            protocol: None,
            log: Holder::new(node, 0),
            answered: false,
            ack_lag: None,
            since: None,
            connected_or_away_for: None,
        }
    }
}

/// What a standby is doing about its primary.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "link", rename_all = "kebab-case")]
pub enum LinkStatus {
    /// It follows nobody.
    Resting,
    /// It tries to reach its primary.
    Connecting {
        /// Where.
        address: String,
        /// Why the last attempt, or the last connection, failed.
        last_failure: Option<String>,
    },
    /// The log flows.
    Following {
        /// Whom.
        node: NodeId,
        /// Where.
        address: String,
    },
    /// It cannot go on: an operator is needed.
    Failed {
        /// Why, where, and what to do.
        why: String,
    },
}

/// How far one step lies behind the primary's log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lag {
    /// In bytes of log.
    pub bytes: u64,
    /// In time: how long ago the primary's log went beyond this point; zero when nothing is
    /// missing. None where that is not known: it did before this standby came.
    pub time: Option<Duration>,
}

impl Default for Lag {
    /// Nothing is missing.
    fn default() -> Self {
        Self { bytes: 0, time: Some(Duration::ZERO) }
    }
}

/// How long batches took from the primary's group commit to readers on the standby.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Passage {
    /// Half of the newest batches took less.
    pub p50: Duration,
    /// 99 of 100 took less.
    pub p99: Duration,
    /// None took more.
    pub max: Duration,
    /// How many there were in all.
    pub batches: u64,
}

/// A standby, as it sees itself; computed without asking anybody.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct OwnStatus {
    /// Itself.
    pub node: NodeId,
    /// When it replays.
    pub replay: ReplayMode,
    /// In which form it asks for the log.
    pub encoding: Encoding,
    /// The latest term heard of.
    pub term: Term,
    /// Its connection.
    pub link: LinkStatus,
    /// Whether the primary counts on it; `None` where that is not known: before its first word,
    /// without a connection, and when it has been silent for two seconds.
    pub in_sync: Option<bool>,
    /// How long ago the primary said anything; `None` before the first word.
    pub silence: Option<Duration>,
    /// How old what readers see may be; `None` where that is not known. Grows with the silence.
    pub age: Option<Duration>,
    /// For how long the primary has committed nothing although there was something to commit;
    /// `None` while it does, and where that is not known.
    pub commits_nothing: Option<Duration>,
    /// In the log buffer.
    pub received: Lsn,
    /// What has arrived; beyond what was received, in another form.
    pub arrived: Lsn,
    /// Persistent here.
    pub persisted: Lsn,
    /// Replayed.
    pub replayed: Lsn,
    /// Persistent wherever the safety level demands, as far as the primary said.
    pub global: Lsn,
    /// Visible to readers.
    pub visible: Lsn,
    /// How far each of these is behind the primary's log; `None` where that is not known, as with
    /// `in_sync`.
    pub receive_lag: Option<Lag>,
    /// As above.
    pub persist_lag: Option<Lag>,
    /// As above.
    pub replay_lag: Option<Lag>,
    /// As above.
    pub visible_lag: Option<Lag>,
    /// From hand-over on the primary to visible here; only where both are on one machine (fabric
    /// shm) and so have one clock.
    pub passage: Option<Passage>,
    /// Processor time of receiving.
    pub receive_cpu: Duration,
    /// Processor time of acknowledging.
    pub ack_cpu: Duration,
    /// Processor time of coordinating replay, including what the target does in the same thread.
    pub replay_cpu: Duration,
    /// Tails that were saved before the log was cut.
    pub saved_tails: Vec<std::path::PathBuf>,
    /// Why it replays nothing, if it has no memory for that.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lacks: Option<String>,
    /// Of one that executes transactions again: the first block that it could not regenerate, and
    /// has not found on other nodes, and what each of them said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub missing: Option<String>,
    /// Why it does not follow, if the log that it is to follow has less than what it knows to have
    /// been acknowledged: it keeps what it has until an operator decides.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub holds_more: Option<String>,
    /// Others that hold more than the cluster's log has, as the primary has said; and, of a relay,
    /// those that wanted to follow it.
    pub ahead: Vec<AheadStatus>,
    /// Other primaries that its primary has met.
    pub two_primaries: Vec<TwoPrimaries>,
    /// What it passes on, if it is a relay and follows somebody.
    pub relay: Option<RelayStatus>,
}

/// How far a mirror has come that begins from a checkpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Bootstrap {
    /// Bytes of the checkpoint that are in the mirror's memory.
    pub done_bytes: u64,
    /// How many there are.
    pub of_bytes: u64,
}

/// A mirror, as it sees itself; computed without asking anybody.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct MirrorStatus {
    /// Itself.
    pub node: NodeId,
    /// The latest term heard of.
    pub term: Term,
    /// Its connection.
    pub link: LinkStatus,
    /// By what its memory is written.
    pub fabric: FabricKind,
    /// Whether its processor has no part in that: with fabric tcp, a thread here does it.
    pub one_sided: bool,
    /// Whether the primary counts on it; `None` where that is not known: before its first word,
    /// without a connection, and when it has been silent for two seconds.
    pub in_sync: Option<bool>,
    /// How long ago the primary said anything; `None` before the first word.
    pub silence: Option<Duration>,
    /// All of the log up to here is in its memory, as far as the primary has said; more may be.
    pub end: Lsn,
    /// Whether something is here, and it is a state of the database: before, it cannot take over.
    pub whole: bool,
    /// A checkpoint comes, from which it begins.
    pub bootstrap: Option<Bootstrap>,
    /// With the log up to here what has come of a checkpoint is a state of the database: below, no
    /// commit counts on the mirror, and it does not take over.
    pub floor: Lsn,
    /// Persistent wherever the safety level demands, by the mark in its memory.
    pub mark: Lsn,
    /// Bytes of the primary's log beyond the end; `None` where that is not known, as with
    /// `in_sync`.
    pub lag_bytes: Option<u64>,
    /// Bytes of its memory.
    pub granted_bytes: u64,
    /// How many these may become.
    pub most_bytes: u64,
    /// Whether the next process on this machine finds them.
    pub kept: bool,
    /// Whether it does after a loss of power, too: they are in persistent memory.
    pub durable: bool,
    /// Of these: bytes of the undo ring.
    pub undo_bytes: u64,
    /// Why it had no more memory for its primary when that asked last.
    pub lacks: Option<String>,
    /// Why it does not follow, if the log that it is to follow has less than it knows to be
    /// committed: it keeps what it has until an operator says otherwise.
    pub holds_more: Option<String>,
    /// Others that hold more than the cluster's log has, as the primary has said.
    pub ahead: Vec<AheadStatus>,
    /// Other primaries that its primary has met.
    pub two_primaries: Vec<TwoPrimaries>,
    /// Why what it holds is not what was written: it has no vote, and begins again.
    pub condemned: Option<String>,
    /// How long ago all of it was read last as a failover would, and was sound; and how many
    /// records there were.
    pub rehearsed: Option<Duration>,
    /// See there.
    pub rehearsed_records: Option<u64>,
    /// Where a memory is kept that was damaged, until the mirror has everything again.
    pub set_aside: Option<std::path::PathBuf>,
    /// Batches that were undone when connections ended.
    pub undone_batches: u64,
    /// Processor time of its thread.
    pub cpu: Duration,
}

/// A relay and its standbys.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RelayStatus {
    /// What it acknowledges.
    pub ack: RelayAck,
    /// Through whom the log comes, from the primary on.
    pub through: Vec<NodeId>,
    /// Acknowledged to whom it follows, at most: what is persistent here, and below if it
    /// acknowledges for its standbys too.
    pub upward: Lsn,
    /// Told to those below to be globally persistent.
    pub downward: Lsn,
    /// Everyone who joined since the log goes on without a cut or another term.
    pub standbys: Vec<StandbyStatus>,
    /// Those connected who are counted by nobody.
    pub observers: Vec<ObserverStatus>,
    /// Processor time of its shipping threads.
    pub ship_cpu: Duration,
    /// Processor time of its threads that read acknowledgements.
    pub ack_cpu: Duration,
}
