//! What is done to nodes, one deed after the other.

use clap::ValueEnum;

use super::TortureOptions;

/// What is done to nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Fault {
    /// SIGKILL for the primary, which comes back as it was.
    KillPrimary,
    /// The same for a standby.
    KillStandby,
    /// The primary stands still for a while.
    StopPrimary,
    /// A standby does.
    StopStandby,
    /// SIGKILL for the primary; a standby is promoted; then the old one comes back as it was.
    Failover,
    /// The same, but the old one is already coming back when the standby is promoted.
    FailoverAtOnce,
    /// The primary stands still, a standby is promoted, and then the old one continues as if
    /// nothing had happened.
    Depose,
    /// The same, but the old one is killed just when it continues, and comes back as it was.
    DeposeAndKill,
    /// A standby is promoted while the primary lives and works.
    Promote,
    /// SIGKILL for the primary and a standby at once; they come back as they were. Of mirrors whose
    /// memory goes with their processes no more die at once than the level permits to lose.
    KillTwo,
    /// The same for all nodes, in any order.
    KillAll,
    /// A standby stands still while the primary is killed and comes back as it was.
    StopAndKill,
    /// SIGKILL for the primary, and for the standby that is just taking over; they come back as
    /// they were.
    KillCandidate,
    /// A standby is promoted while the primary lives and works, and one of the two is killed on the
    /// way, or both are; they come back as they were.
    PromoteAndKill,
    /// The primary hands its role to a standby while all work; one of the two may be killed on the
    /// way, or both, and comes back as it was.
    SwitchOver,
    /// Where there are mirrors: a standby begins again with an empty directory and with what a
    /// mirror has, or a mirror with what the primary has; one of them or the primary may be killed
    /// on the way, and comes back as it was.
    BeginAgain,
    /// SIGKILL for all, and the primary's disk is gone for good: what the standbys have
    /// acknowledged has to be there when they restart. One of them is promoted, and the old primary
    /// begins again with an empty directory. Not where a mirror's memory would go with its process.
    LosePrimary,
    /// While a standby is away, rows are inserted, an index is dropped and another one made, a
    /// table is truncated, and another one made and dropped. Then it executes all that again.
    Define,
    /// The primary changes what a commit promises, to another level that these nodes may have; in
    /// half of the cases a standby is away then, or nodes are killed on the way. The level stays.
    Level,
    /// SIGKILL for the witness, if there is one, which comes back as it was.
    KillWitness,
    /// The witness stands still for a while.
    StopWitness,
    /// With `--cut`: the primary is cut from all others, both ways or one way, and another takes
    /// its place, or it heals before.
    CutPrimary,
    /// With `--cut`: the same for a standby, whose place no node takes.
    CutStandby,
    /// With `--cut`: two nodes, or one and the witness, lose each other, or one of them the other.
    CutPair,
    /// With `--cut`: a node is cut off and heals in turn, for some seconds.
    Flap,
    /// With `--cut`: a cable is slow, and loses packets.
    Slow,
}

impl Fault {
    pub(super) fn is_cut(self) -> bool {
        matches!(self, Self::CutPrimary | Self::CutStandby | Self::CutPair | Self::Flap | Self::Slow)
    }

    /// Those that faults are drawn from.
    pub(super) fn drawn(options: &TortureOptions) -> Vec<Self> {
        let may_be = |fault: &Self| match fault {
            Self::KillWitness | Self::StopWitness => options.witness,
            fault => options.cut || !fault.is_cut(),
        };
        let all = Self::value_variants().iter().copied().filter(may_be);
        let all = all.filter(|fault| options.only.is_empty() || options.only.contains(fault));
        // Every second one is a cut, where there are any.
        let weight = |fault: Self| match fault {
            Self::Level => 2,
            fault if fault.is_cut() => 4,
            _ => 1,
        };
        let often = |fault: Self| std::iter::repeat_n(fault, weight(fault));
        all.filter(|fault| !options.without.contains(fault)).flat_map(often).collect()
    }
}
