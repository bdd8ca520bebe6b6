//! The shapes of clusters in which nothing may be violated while all rules are as they should be.

use freshet_base::Safety::{self, Majority, OneSafe, Quorum, TwoSafe, VerySafe};

use crate::{Scenario, scenario::Draws};

/// What the shapes of one group have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Group {
    /// 2-safe, with any number of standbys below which nothing commits.
    TwoSafe,
    /// quorum:K.
    Quorum,
    /// very-safe.
    VerySafe,
    /// 1-safe.
    OneSafe,
    /// Some standbys are asynchronous.
    Asynchronous,
    /// Some standbys follow a relay.
    Cascaded,
    /// Primaries write into their standbys' memory, stand still, and continue after they were
    /// succeeded.
    OneSided,
    /// What was read back counts at once.
    Appliance,
    /// Standbys get inputs, and execute them.
    Forms,
    /// Standbys are mirrors.
    Mirrors,
    /// Each node may be anything: a standby with a log, one that executes inputs, a mirror, a
    /// relay, an asynchronous one. What they are, the seed says.
    Mixed,
    /// Standbys stand by themselves.
    Automatic,
    /// Failovers are forced: what was acknowledged may be lost, but logs do not mix, and all nodes
    /// get level.
    Forced,
    /// A majority of those who belong to the cluster; they stand by themselves, or may be anything.
    Majority,
    /// A witness votes beside two nodes with data, or may once nodes are removed.
    Witness,
    /// Standbys stand by themselves, and no operator changes anything.
    Unattended,
    /// Nodes may lead beside each other: few of them are left by force, or none is asked.
    Beside,
}

impl Group {
    /// All groups.
    pub const ALL: [Self; 17] = [
        Self::TwoSafe,
        Self::Quorum,
        Self::VerySafe,
        Self::OneSafe,
        Self::Asynchronous,
        Self::Cascaded,
        Self::OneSided,
        Self::Appliance,
        Self::Forms,
        Self::Mirrors,
        Self::Mixed,
        Self::Forced,
        Self::Automatic,
        Self::Majority,
        Self::Witness,
        Self::Unattended,
        Self::Beside,
    ];

    /// The shapes of this group.
    pub fn shapes(self) -> Vec<Scenario> {
        let floored = |it| Scenario { draws: Draws::Floor, ..it };
        match self {
            Self::TwoSafe => of(&[(TwoSafe, 1), (TwoSafe, 2), (TwoSafe, 3)], floored),
            Self::Quorum => of(&[(Quorum(2), 1), (Quorum(2), 2), (Quorum(2), 3), (Quorum(3), 4)], |it| it),
            Self::VerySafe => of(&[(VerySafe, 1), (VerySafe, 2)], |it| it),
            Self::OneSafe => of(&[(OneSafe, 2)], |it| it),
            Self::Asynchronous => of(&[(TwoSafe, 2), (Quorum(2), 2)], |it| Scenario { asynchronous: 1, ..floored(it) }),
            Self::Cascaded => {
                of(&[(TwoSafe, 1), (Quorum(2), 1)], |it| Scenario { cascaded: 2, draws: Draws::RelayAck, ..it })
            }
            Self::OneSided => of(&[(TwoSafe, 2), (Quorum(2), 2)], |it| Scenario { mapped: true, ..it }),
            Self::Appliance => {
                of(&[(TwoSafe, 2), (Quorum(2), 2)], |it| Scenario { mapped: true, appliance: true, ..it })
            }
            Self::Forms => of(&[(TwoSafe, 1), (Quorum(2), 2)], |it| Scenario { forms: true, ..floored(it) }),
            Self::Mirrors => of(&[(TwoSafe, 2), (Quorum(2), 2)], |it| Scenario { mirrors: 2, ..it }),
            Self::Mixed => {
                let levels = [
                    (TwoSafe, 1),
                    (TwoSafe, 2),
                    (TwoSafe, 3),
                    (Quorum(2), 1),
                    (Quorum(2), 2),
                    (Quorum(2), 3),
                    (Quorum(3), 3),
                    (Quorum(3), 4),
                    (VerySafe, 1),
                    (VerySafe, 2),
                    (OneSafe, 2),
                ];
                let everything = |it| Scenario { draws: Draws::Everything, ..it };
                let forced = of(&[(TwoSafe, 2), (Quorum(2), 2)], |it| Scenario { force: true, ..it });
                of(&levels, |it| it).into_iter().chain(forced).map(everything).collect()
            }
            Self::Automatic => of(&[(Quorum(2), 2), (Quorum(3), 4), (TwoSafe, 2)], |it| {
                let floor = u32::from(it.safety == TwoSafe);
                Scenario { automatic: true, floor, draws: Draws::Maintenance, ..it }
            }),
            Self::Majority => {
                let unattended = |it| Scenario { automatic: true, draws: Draws::Maintenance, ..it };
                let everything = |it| Scenario { draws: Draws::Everything, ..it };
                let alone = of(&[(Majority, 1), (Majority, 2), (Majority, 4)], unattended);
                alone.into_iter().chain(of(&[(Majority, 2), (Majority, 3)], everything)).collect()
            }
            Self::Witness => with_a_witness(),
            Self::Unattended => unattended(),
            Self::Beside => {
                let levels = [(TwoSafe, 1), (Majority, 1), (Quorum(2), 1), (OneSafe, 1), (OneSafe, 2)];
                of(&levels, |it| Scenario { force: true, ..it })
            }
            Self::Forced => of(&[(TwoSafe, 2)], |it| Scenario { force: true, asynchronous: 1, ..it }),
        }
    }
}

fn with_a_witness() -> Vec<Scenario> {
    let with = |it| Scenario { witness: true, automatic: true, draws: Draws::Maintenance, ..it };
    let levels = [(Majority, 1), (TwoSafe, 1), (TwoSafe, 2), (Majority, 2)];
    let attended = |it| Scenario { witness: true, ..it };
    let mirror = |it| Scenario { mirrors: 1, ..with(it) };
    let register = |it| Scenario { register: true, ..with(it) };
    let alone = of(&levels, with).into_iter().chain(of(&[(Majority, 1)], attended));
    let mirrors = of(&[(Majority, 1)], mirror);
    alone.chain(mirrors).chain(of(&[(Majority, 1), (TwoSafe, 2)], register)).collect()
}

fn unattended() -> Vec<Scenario> {
    of(&[(Quorum(2), 2), (Quorum(3), 4), (Majority, 2)], |it| Scenario { automatic: true, levels: false, ..it })
}

/// Clusters of these levels and numbers of synchronous standbys, and what else they have.
fn of(shapes: &[(Safety, usize)], with: impl Fn(Scenario) -> Scenario) -> Vec<Scenario> {
    shapes
        .iter()
        .map(|(safety, synchronous)| with(Scenario { levels: true, ..Scenario::new(*safety, *synchronous) }))
        .collect()
}

/// All shapes, in an order that stays.
pub fn all() -> Vec<Scenario> {
    Group::ALL.into_iter().flat_map(Group::shapes).collect()
}
