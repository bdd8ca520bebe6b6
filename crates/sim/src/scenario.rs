//! What is simulated, and what is got wrong on purpose.

use freshet_base::Safety;
use freshet_cluster::relay::RelayAck;

use crate::{
    dice::{Dice, mix},
    sabotage::Sabotage,
};

/// A rule that is left out, or got wrong: the checks must notice.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Broken {
    /// Everything is as it should be.
    #[default]
    Nothing,
    /// Standbys acknowledge what they have received.
    AckBeforePersist,
    /// The primary commits what it has written and not yet flushed.
    CommitBeforePersist,
    /// Standbys show what they have replayed, whether it is persistent anywhere or not.
    ViewAheadOfPersistence,
    /// Standbys show what is persistent on themselves, whatever the primary says of the others.
    ViewAheadOfOthers,
    /// Standbys show parts of transactions.
    ViewWithinTransactions,
    /// Standbys that have promised themselves to a later term go on with the old primary.
    OldTermAccepted,
    /// Changes of the in-sync set take effect without a record, once everybody is in.
    SetNotRecorded,
    /// A primary writes sets that have too few members in common with the one before.
    SetNotJoint,
    /// Whoever finds one member of the newest set that it knows takes that set for the newest.
    SetTakenForNewest,
    /// Commits wait for the quickest standby only.
    QuickestOnly,
    /// The primary sends whether the standby has room or not.
    CreditIgnored,
    /// Standbys that rejoin keep their own tail.
    CutForgotten,
    /// A primary that restarts leads again without asking anybody.
    RestartUnasked,
    /// Acknowledgements of asynchronous standbys count.
    AsynchronousCounted,
    /// Two primaries in one term go on, whoever holds which promises.
    ContestIgnored,
    /// A new primary takes the end of its log for committed.
    TailTakenForCommitted,
    /// After a restart, what was written before is taken for durable as it is.
    TailNotSynced,
    /// After a restart, what was written before is synced and not written again.
    TailNotRewritten,
    /// Standbys answer a candidate before they have taken their memory back from the primary and
    /// what it has written there.
    AnsweredBeforeRevoked,
    /// A standby's memory is taken from those that have mapped it when it joins a node, and not
    /// when it is promoted.
    MovedAtJoinOnly,
    /// A primary that comes back by itself takes the term from a living one.
    PrimaryPassedOver,
    /// A candidate takes the level for 1-safe, whatever is on record.
    LevelForgotten,
    /// A candidate raises its fence as it was when it began, whatever it has promised since.
    OwnPromiseForgotten,
    /// A candidate takes it that no node has more of the log than itself.
    LessLogLeads,
    /// A candidate continues its log from another node's, whatever that has become.
    FetchUnchecked,
    /// What a node has promised does not outlive a loss of power.
    PromiseNotDurable,
    /// What a primary has announced as committed of its log is believed of its successor's.
    CommittedOfAnother,
    /// A standby follows its relay although commits may count on it.
    RelayNotLeft,
    /// A node that has promised itself to another, or asked for a promise without success, does not
    /// come back by itself.
    PromiseForgotten,
    /// A mirror recovers in memory into which its primary can still write.
    MirrorNotMoved,
    /// Undo entries are posted behind the data that they are for.
    UndoBehindData,
    /// A mirror that lags gets batches which write over what it may have to undo.
    WrittenOverEarly,
    /// A mirror is fed on while its undo ring has what an earlier primary has left.
    RingNotCleared,
    /// A node that has promised a term to itself or a third one waits for a later term, and the
    /// primary does not see to that.
    ContestKept,
    /// A node leads although it has promised a later term while it took over.
    PromiseWhileTakingOver,
    /// What a mirror undoes for another log can be found again.
    CutNotSettled,
    /// A mirror that does not yet have all that belongs to its checkpoint gets the differences that
    /// were found for another one.
    SharedEarly,
    /// Old versions are given up that blocks which have arrived still read.
    ReclaimedEarly,
    /// What reads below the end of a checkpoint is kept in the journal.
    FloorNotRaised,
    /// A checkpoint counts before what reads below its end is part of the log.
    CheckpointNotWaited,
    /// The keys of what is inserted are those of the indexes that there are when it is sent.
    KeysOfNow,
    /// A sender says as inputs what reads below where the standby has joined, or indexes were
    /// changed.
    ReadsAnything,
    /// A relay says the keys of what is inserted before it has replayed a change of indexes.
    RelayGuessesKeys,
    /// An answer counts by the node that sends it, whichever log that has by now.
    AnyoneVotes,
    /// A node whose log is lost has the incarnation that it had.
    IncarnationKept,
    /// A term that a node begins a second time has the name of the first.
    NonceReused,
    /// A node without a log begins a cluster when it is started again.
    FoundsUnasked,
    /// What is written into the memory of a mirror that has died counts until its connection ends.
    DeadMirrorCounts,
    /// A standby executes on a checkpoint whose end its log has not reached.
    ExecutedBelowFloor,
    /// A candidate leads before the leases are over that its voters have granted.
    LeaseNotAwaited,
    /// A primary counts its lease from when it was answered.
    LeaseFromAnswer,
    /// A voter that was restarted takes it that it has granted nothing.
    RestartedVoterGrants,
    /// Who stands by itself leads however few have answered, and although others hear a primary.
    MajorityNotAsked,
    /// Transactions go on while a primary hands its role over.
    GateNotClosed,
    /// A primary keeps an offer of its role that it has taken back.
    OfferNotTakenBack,
    /// A primary takes a set to be on record that waits for the one before.
    PendingUnseen,
    /// Who knows of maintenance does not say so to a node that stands by itself.
    MaintenanceUnsaid,
    /// What a node knows of maintenance goes with its connection to the primary.
    MaintenanceForgotten,
    /// A node that is removed as one that is gone answers candidates.
    RemovedLives,
    /// The format level rises although nodes of an earlier release are there.
    RaisedTooEarly,
    /// A witness says that it has noted a set before it has.
    WitnessNotesLate,
    /// A witness grants a primary what it has promised to another.
    WitnessGrantsBoth,
    /// What a witness notes counts as if it had the log.
    WitnessCountsAsData,
    /// A register is written although another node has written since it was read.
    RegisterNotCompared,
    /// A candidate takes it that a register has granted nothing.
    RegisterGrantsNothing,
    /// A step of a register counts before that is written.
    RegisterNotAwaited,
}

/// Which nodes die at a write into a mirror's memory, be it by its primary or by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dying {
    /// The number of the write, from one on.
    pub at: u64,
    /// Who leads.
    pub primary: bool,
    /// The mirror.
    pub written: bool,
}

/// What of a cluster the seed says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Draws {
    /// Nothing.
    #[default]
    Nothing,
    /// Under 2-safe, the number of standbys below which nothing commits.
    Floor,
    /// What a relay acknowledges.
    RelayAck,
    /// Where standbys stand by themselves, whether there is maintenance.
    Maintenance,
    /// All that, and what each node is.
    Everything,
}

/// What is simulated, beside the seed.
#[derive(Clone, Copy, Debug)]
pub struct Scenario {
    /// What commits promise.
    pub safety: Safety,
    /// How many synchronous standbys there are: nodes 1 and following; node 0 begins as the
    /// primary.
    pub synchronous: usize,
    /// How many asynchronous standbys follow these.
    pub asynchronous: usize,
    /// How many standbys follow node 1 instead of the primary, while it is a standby.
    pub cascaded: usize,
    /// What node 1 acknowledges for them.
    pub relay_ack: RelayAck,
    /// Under 2-safe: no commits with fewer standbys than this.
    pub floor: u32,
    /// Whether the operator forces failovers that are refused. What may be lost is not checked
    /// then.
    pub force: bool,
    /// Primaries write into their standbys' memory, which they have mapped; and processes stand
    /// still and continue.
    pub mapped: bool,
    /// What a primary has read back there counts, without a word of the standby (only with
    /// `mapped`).
    pub appliance: bool,
    /// Standbys with a log get inputs whenever they ask for them, and execute them.
    pub forms: bool,
    /// How many of the synchronous standbys are mirrors, the last ones. Where there is one,
    /// transactions write rows.
    pub mirrors: usize,
    /// Standbys stand by themselves when they take their primary for lost.
    pub automatic: bool,
    /// Now and then maintenance is ordered (only with `automatic`).
    pub maintenance: bool,
    /// Whether the last node is a witness.
    pub witness: bool,
    /// Whether that is no process, but a value that others change by compare-and-swap (only with
    /// `witness`).
    pub register: bool,
    /// Whether an operator removes nodes for good, in half of all runs.
    pub removes: bool,
    /// Whether an operator changes the level, in a third of all runs.
    pub levels: bool,
    /// Nodes die when this number of writes have landed in mirrors' memory.
    pub dying: Option<Dying>,
    /// What of this the seed says.
    pub draws: Draws,
    /// How long faults go on, in microseconds.
    pub chaos: u64,
    /// Which rule is got wrong.
    pub broken: Broken,
    /// What a driver gets wrong.
    pub sabotage: Option<Sabotage>,
    /// Whether everything that happens is printed.
    pub trace: bool,
}

impl Scenario {
    /// A cluster with these synchronous standbys, and nothing else.
    pub fn new(safety: Safety, synchronous: usize) -> Self {
        Self {
            safety,
            synchronous,
            asynchronous: 0,
            cascaded: 0,
            relay_ack: RelayAck::Own,
            floor: 0,
            force: false,
            mapped: false,
            appliance: false,
            forms: false,
            mirrors: 0,
            automatic: false,
            maintenance: false,
            witness: false,
            register: false,
            removes: false,
            levels: false,
            dying: None,
            draws: Draws::Nothing,
            chaos: 600_000,
            broken: Broken::Nothing,
            sabotage: None,
            trace: false,
        }
    }

    /// The cluster of this seed.
    pub fn of(self, seed: u64) -> Self {
        let mut dice = Dice(mix(seed));
        let mut drawn = Self { draws: Draws::Nothing, ..self };
        let synchronous = self.synchronous as u64;
        let everything = self.draws == Draws::Everything;
        if self.safety == Safety::TwoSafe && (everything || self.draws == Draws::Floor) {
            drawn.floor = dice.below(synchronous + 1) as u32;
        }
        if everything || self.draws == Draws::RelayAck {
            drawn.relay_ack = if dice.one_in(2) { RelayAck::Own } else { RelayAck::Downstream };
        }
        if everything {
            drawn.mirrors = dice.below(synchronous + 1) as usize;
            drawn.forms = drawn.mirrors == 0 || dice.one_in(2);
            drawn.automatic = drawn.strong() && dice.one_in(2);
            drawn.mapped = dice.one_in(4);
            // All that could be heard in a failover is gone through, for each node.
            let mut more = (5 - drawn.nodes().min(5)) as u64;
            drawn.asynchronous = dice.below(more.min(1) + 1) as usize;
            more -= drawn.asynchronous as u64;
            // A mirror is no relay.
            let relays = !drawn.is_mirror(1) && !drawn.force;
            drawn.cascaded = if relays { dice.below(more.min(2) + 1) as usize } else { 0 };
        }
        if everything || self.draws == Draws::Maintenance {
            drawn.maintenance = drawn.automatic && dice.one_in(2);
        }
        drawn.removes = self.safety == Safety::Majority;
        drawn
    }

    /// Whether node `index` begins as a mirror.
    pub fn is_mirror(&self, index: usize) -> bool {
        index <= self.synchronous && index > self.synchronous - self.mirrors.min(self.synchronous)
    }

    /// How many nodes there are.
    pub fn nodes(&self) -> usize {
        1 + self.synchronous + self.asynchronous + self.cascaded + usize::from(self.witness)
    }

    /// Whether an acknowledged commit survives every failover that is not forced.
    pub fn strong(&self) -> bool {
        self.safety != Safety::OneSafe && !self.force
    }
}
