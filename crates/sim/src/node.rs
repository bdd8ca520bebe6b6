//! What a node is made of: what a crash leaves, and what it does not.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
    time::Duration,
};

use freshet_base::{Lsn, NodeId, Term, versions::Level};
use freshet_cluster::{
    Moment,
    commit_rule::CommitRule,
    contest::Contest,
    follower::{Begun, Follower, FollowerConfig, RelayRules, ReplayMode},
    host::Host,
    in_sync::Holder,
    lease::Voter,
    promotion::{Fetch, LogState, Promotion},
    recording::{Recorded, Recorder},
    stuck::Stuck,
    term::{Fence, Living, TermState},
    upstream::{Ended, Order, Upstream, UpstreamConfig},
    view::ClusterView,
    watch::{FIRST, Watch, WatchConfig},
    witness::Witness,
};
use freshet_mirror::Batch;

use crate::{
    content::Content,
    log::Log,
    maintenance::Known,
    mirror::{Line, Mirror, Records},
    net::ConnectionId,
    one_sided::Memory,
    scenario::Scenario,
    switching::Switching,
    world::{TIMEOUT, ring},
};

/// How long a node that leads, or is about to, may be silent.
const SILENCE: Duration = Duration::from_millis(30);

/// How nodes watch their primary.
pub(crate) const WATCH: WatchConfig = WatchConfig {
    priority: FIRST,
    silence: (Duration::from_millis(45), Duration::from_millis(150)),
    pause: (Duration::from_millis(10), Duration::from_millis(100)),
};

/// One node.
pub(crate) struct Node {
    pub id: NodeId,
    pub synchronous: bool,
    /// It is told to follow this relay when it starts.
    pub relay: Option<usize>,
    /// How it follows; as a relay it has rules for those below.
    pub follows: FollowerConfig,
    pub up: bool,
    /// How far its clock is ahead, in microseconds, and by how many parts of a million it is fast.
    pub ahead: u64,
    pub fast: i64,
    /// How much of that are jumps.
    pub jumped: u64,
    /// Counts starts: what was meant for an earlier life is not delivered.
    pub life: u32,
    pub disk: Disk,
    /// What its disk was at some time.
    pub copy: Option<Box<Disk>>,
    pub role: Role,
    /// Written to disk right now.
    pub flushing: bool,
    /// Counts cuts: a flush that a cut overtakes says nothing.
    pub cuts: u32,
    /// The operator tells it to follow this node when it starts next.
    pub ordered: Option<usize>,
    /// Whom it follows.
    pub upstream: Recorded<Upstream>,
    /// An attempt has ended, and this node's memory is being taken back.
    pub over: Option<(Order, Ended)>,
    /// When it tries next.
    pub tries: Option<u64>,
    /// It was a primary before, and has neither led nor followed anybody since it was started.
    pub returns: bool,
    pub link: Option<Link>,
    /// Where it is recorded what happens to its machines.
    pub recorder: Recorder,
    /// What it knows of its cluster while it does not lead, what it has granted, and when it stands
    /// by itself.
    pub view: ClusterView,
    pub voter: Voter,
    pub watch: Watch,
    /// What it knows of maintenance.
    pub maintenance: Known,
    /// When it looks at that next.
    pub looks: Option<u64>,
    pub follower: Recorded<Follower>,
    /// Ends of blocks that have arrived in another form, and are not regenerated yet.
    pub arrived: VecDeque<Lsn>,
    /// Where the piece ends that is being replayed.
    pub replaying: Option<u64>,
    /// What its readers see.
    pub visible: u64,
    /// If others are fed from this node's log.
    pub host: Option<Recorded<Host>>,
    /// When it looks whether something is to be sent.
    pub wakes: Option<u64>,
    pub candidate: Option<Candidate>,
    /// The first round of its next candidacy.
    pub rounds: u32,
    pub ticks: Option<u64>,
    pub memory: Memory,
    /// If it is a witness: what that knows while it runs.
    /// The highest format level that its release knows.
    pub knows: Level,
    pub is_witness: bool,
    pub witness: Option<Box<Witness>>,
    /// If its memory is a mirror.
    pub mirror: Option<Box<Mirror>>,
    /// Its tables, and what is to be executed.
    pub content: Box<Content>,
    /// By which connections it feeds mirrors, and the newest batches that these get.
    pub lines: BTreeMap<ConnectionId, Line>,
    pub batches: VecDeque<Arc<Batch>>,
}

/// What survives a crash; of the log, what was synced, and what else the crash leaves.
#[derive(Clone)]
pub(crate) struct Disk {
    pub log: Log,
    /// The node takes everything below for durable.
    pub synced: u64,
    /// A loss of power leaves everything below.
    pub sure: u64,
    /// A sync has failed: what lies above is read as it was written, and no sync makes it durable
    /// unless it is written again.
    pub dropped: bool,
    /// The next sync fails.
    pub failing: bool,
    pub terms: TermState,
    /// The checkpoint with which the node began is a state of the database only with the log up to
    /// here.
    pub floor: u64,
    /// A block of the log is damaged, which the next start finds.
    pub rotten: bool,
    /// The log is durable up to here; the journal has these pieces of what follows.
    pub durable: u64,
    pub journal: Vec<(u64, u64)>,
    /// The checkpoint is the node's own.
    pub own_floor: bool,
    /// A copy of this disk, taken earlier, is put in its place at the next start.
    pub set_back: bool,
    /// Nothing is written from then on, by the world's clock.
    pub full: Option<u64>,
    /// The log takes nothing any more.
    pub failed: bool,
    /// A flush takes this many times as long.
    pub slowness: u64,
    /// The log is not kept below; where that is so, a checkpoint has all up to `based`.
    pub kept: u64,
    pub based: u64,
    /// No node has the log any more that this one needs: the operator has to give it another disk.
    pub hopeless: bool,
}

impl Disk {
    /// Nothing is left of the log from `at` on.
    pub fn cut(&mut self, at: u64) {
        self.log.cut(at);
        self.cut_journal(at);
    }

    /// The same of what is beside it.
    pub fn cut_journal(&mut self, at: u64) {
        self.durable = self.durable.min(at);
        self.journal.retain(|(from, _)| *from < at);
        self.journal.iter_mut().for_each(|(_, to)| *to = at.min(*to));
    }
}

pub(crate) enum Role {
    Standby,
    Primary(Box<Lead>),
}

/// A primary's state.
pub(crate) struct Lead {
    pub term: Term,
    pub rule: Recorded<CommitRule>,
    /// What the records are at the end of the log, where transactions write rows.
    pub records: Records,
    /// Clients were told up to here.
    pub acknowledged: u64,
    /// Clients have written up to here.
    pub written: u64,
    /// What it holds back.
    pub switching: Switching,
    /// Whether its disk lets it be of use.
    pub stuck: Stuck,
    /// Whether a node cannot follow before a later term.
    pub contest: Contest,
    /// By which connection it asks its witness.
    pub witness: Option<ConnectionId>,
}

/// The connection to whom a standby follows.
pub(crate) struct Link {
    pub connection: ConnectionId,
    pub order: Order,
    /// The term of the sender, once it said welcome.
    pub term: Option<Term>,
}

/// A failover, or a restart, in preparation.
pub(crate) struct Candidate {
    pub promotion: Recorded<Promotion>,
    /// As it was when it began, or was raised last.
    pub fence: Fence,
    /// It comes back without having been told to: the latest term that it had heard of.
    pub comes_back: Option<Term>,
    /// Counts rounds, and what else has a time.
    pub round: u32,
    /// Whose answers are outstanding.
    pub asked: VecDeque<ConnectionId>,
    /// It stands by itself.
    pub automatic: bool,
    /// When all leases are over of those that it has heard, by its own clock.
    pub leads_at: Option<Moment>,
    /// A node whose log is being fetched.
    pub fetching: Option<(ConnectionId, Fetch)>,
}

impl Disk {
    /// Nothing was ever written.
    fn empty() -> Self {
        Self {
            log: Log::default(),
            synced: 0,
            sure: 0,
            dropped: false,
            failing: false,
            terms: TermState::empty(),
            floor: 0,
            rotten: false,
            durable: 0,
            journal: Vec::new(),
            own_floor: false,
            set_back: false,
            full: None,
            failed: false,
            slowness: 1,
            kept: 0,
            based: 0,
            hopeless: false,
        }
    }
}

impl Node {
    /// Number `index` of those that a scenario has.
    pub fn of(scenario: &Scenario, index: usize, recorder: &Recorder) -> Self {
        let synchronous = index <= scenario.synchronous;
        let is_witness = scenario.witness && index + 1 == scenario.nodes();
        let below = index > scenario.synchronous + scenario.asynchronous && !is_witness;
        let relays = index == 1 && scenario.cascaded > 0;
        let (ack, standbys) = (scenario.relay_ack, scenario.cascaded as u32);
        let rules = RelayRules { ack, standbys, standby_timeout: TIMEOUT };
        let relay = relays.then_some(rules);
        let follows = FollowerConfig { replay: ReplayMode::Pipelined, capacity: ring(scenario), relay };
        let mirror = |node: &Self| Box::new(Mirror::new(node.id, synchronous, recorder));
        let node = Self::new(index, synchronous, below.then_some(1), follows, recorder);
        let mirror = scenario.is_mirror(index).then(|| mirror(&node));
        Self { is_witness, mirror, ..node }
    }

    pub fn new(
        index: usize,
        synchronous: bool,
        relay: Option<usize>,
        follows: FollowerConfig,
        recorder: &Recorder,
    ) -> Self {
        Self {
            id: NodeId(index as u64),
            synchronous,
            relay,
            follows,
            up: false,
            ahead: 0,
            fast: 0,
            jumped: 0,
            life: 0,
            disk: Disk::empty(),
            copy: None,
            role: Role::Standby,
            flushing: false,
            cuts: 0,
            ordered: None,
            upstream: Recorded::new(Upstream::new(UpstreamConfig::default(), None), recorder),
            over: None,
            tries: None,
            returns: false,
            link: None,
            view: ClusterView::new(SILENCE),
            voter: Voter::restarted(Moment::default()),
            watch: Watch::new(WATCH, Moment::default()),
            maintenance: Known::default(),
            looks: None,
            follower: Recorded::new(Follower::new(NodeId(index as u64), follows, Begun::default()), recorder),
            recorder: recorder.clone(),
            arrived: VecDeque::new(),
            replaying: None,
            visible: 0,
            host: None,
            wakes: None,
            candidate: None,
            rounds: 0,
            ticks: None,
            memory: Memory::default(),
            is_witness: false,
            // Both releases, from the beginning.
            knows: Level(Level::NEWEST.0 + index as u32 % 2),
            witness: None,
            mirror: None,
            content: Box::default(),
            lines: BTreeMap::new(),
            batches: VecDeque::new(),
        }
    }

    /// What it has as a mirror is lost.
    pub fn renew_mirror(&mut self) {
        let Self { id, synchronous, mirror: Some(mirror), recorder, .. } = self else { return };
        **mirror = Mirror::new(*id, *synchronous, recorder);
    }

    /// What its clock says at this time.
    pub fn clock(&self, now: Moment) -> Moment {
        let fast = now.0 as i64 * self.fast / 1_000_000;
        Moment(now.0.saturating_add_signed(fast) + self.ahead)
    }

    /// What it says without its jumps: a machine that is suspended sleeps as long as others live,
    /// so a jump while no time passes is outside of the bound on clocks that leases rest on. A
    /// primary's jump only ends its lease.
    pub fn steady_clock(&self, now: Moment) -> Moment {
        Moment(self.clock(now).0 - self.jumped)
    }

    /// At which time its clock says this, or a little later.
    pub fn world_time(&self, clock: u64) -> u64 {
        if clock == u64::MAX {
            return clock;
        }
        let elapsed = clock.saturating_sub(self.ahead) as i128;
        (elapsed * 1_000_000 / (1_000_000 + i128::from(self.fast))) as u64 + 1
    }

    /// What it says to a candidate.
    pub fn log_state(&self) -> LogState {
        if let Some(mirror) = &self.mirror {
            return self.mirror_log(mirror);
        }
        let end = Lsn(self.disk.synced);
        let known = || self.follower.global().max(self.disk.terms.committed).min(end);
        let committed = self.lead().map_or_else(known, |lead| Lsn(lead.acknowledged));
        let log = LogState::of(self.disk.terms.clone(), self.id, end, committed);
        LogState { synchronous: self.synchronous, ..log }
    }

    /// What of it is a member of in-sync sets.
    pub fn holder(&self) -> Holder {
        Holder { witness: self.is_witness, ..self.disk.terms.holder(self.id) }
    }

    /// Whether it may be such a member.
    pub fn may_vote(&self) -> bool {
        self.synchronous || self.is_witness
    }

    pub fn lead(&self) -> Option<&Lead> {
        match &self.role {
            Role::Primary(lead) => Some(lead),
            Role::Standby => None,
        }
    }

    pub fn lead_mut(&mut self) -> Option<&mut Lead> {
        match &mut self.role {
            Role::Primary(lead) => Some(lead),
            Role::Standby => None,
        }
    }

    /// Whether it is up and leads, as far as it knows.
    pub fn leads(&self) -> bool {
        self.up && self.lead().is_some_and(|lead| lead.rule.fenced().is_none())
    }

    /// The term under which it lives.
    pub fn living(&self, now: Moment) -> Option<Living> {
        if let Some(witness) = &self.witness {
            return witness.living(&self.disk.terms, self.steady_clock(now));
        }
        if let Some(lead) = self.lead() {
            let living = Living { term: lead.term, node: self.id };
            return match self.leads() {
                true => (!lead.stuck.is_stuck()).then_some(living),
                false => lead.switching.successor(now),
            };
        }
        let (lead, hearsay) = self.view.living(&self.disk.terms.fence, now)?;
        (hearsay || !self.watch.suspects(now)).then_some(lead)
    }

    /// Whether it answers those who connect.
    pub fn serves(&self) -> bool {
        self.up && self.mirror.as_ref().is_none_or(|mirror| mirror.ready)
    }

    /// What was written since `from` that records an in-sync set becomes known. Says whether the
    /// node has to leave the relay that it follows.
    pub fn note_sets(&mut self, from: u64, to: u64) -> bool {
        let mut leaves = false;
        for set in self.disk.log.between(from, to).iter().filter_map(|block| block.set.as_deref()) {
            self.disk.terms.note_set(set.clone());
            leaves |= self.follower.noted(set);
        }
        leaves
    }

    /// It starts as a standby that has replayed the log on its disk.
    pub fn start(&mut self) {
        // What the journal has arrives once more.
        let end = if self.disk.journal.is_empty() { self.disk.log.end() } else { self.disk.durable };
        let (end, floor) = (Lsn(end), Lsn(self.disk.floor));
        let begun = Begun { received: end, persisted: end, replayed: end, floor, ..Begun::default() };
        self.arrived.clear();
        self.follower = Recorded::new(Follower::new(self.id, self.follows, begun), &self.recorder);
        self.view = ClusterView::new(SILENCE);
    }
}
