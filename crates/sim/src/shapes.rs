//! The shapes of clusters in which nothing may be violated while all rules are as they should be.

use freshet_base::Safety::{self, OneSafe, Quorum, TwoSafe, VerySafe};
use freshet_cluster::relay::RelayAck;

use crate::Scenario;

/// What the shapes of one group have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Group {
    /// 2-safe, with every number of standbys below which nothing commits.
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
    /// Standbys get some batches in another form, from which they regenerate blocks.
    Forms,
    /// Standbys are mirrors.
    Mirrors,
    /// Mirrors beside standbys of all other kinds.
    Mixed,
    /// Failovers are forced: what was acknowledged may be lost, but logs do not mix, and all nodes
    /// get level.
    Forced,
}

impl Group {
    /// All groups.
    pub const ALL: [Self; 12] = [
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
    ];

    /// The shapes of this group.
    pub fn shapes(self) -> Vec<Scenario> {
        let floored = |(synchronous, floor)| Scenario { floor, ..Scenario::new(TwoSafe, synchronous) };
        match self {
            Self::TwoSafe => {
                (1..=3).flat_map(|count| (0..=count as u32).map(move |floor| (count, floor))).map(floored).collect()
            }
            Self::Quorum => {
                of(&[(Quorum(2), 1), (Quorum(2), 2), (Quorum(2), 3), (Quorum(3), 3), (Quorum(3), 4)], |it| it)
            }
            Self::VerySafe => of(&[(VerySafe, 1), (VerySafe, 2), (VerySafe, 3)], |it| it),
            Self::OneSafe => of(&[(OneSafe, 1), (OneSafe, 2)], |it| it),
            Self::Asynchronous => {
                let mut shapes = of(&[(TwoSafe, 2), (VerySafe, 2), (Quorum(2), 2), (OneSafe, 2)], |it| it);
                shapes.push(floored((2, 1)));
                shapes.into_iter().map(|it| Scenario { asynchronous: 1, ..it }).collect()
            }
            Self::Cascaded => {
                let acks = [RelayAck::Own, RelayAck::Downstream];
                let shapes = of(&[(TwoSafe, 1), (VerySafe, 1), (Quorum(2), 1), (OneSafe, 1)], |it| it);
                let with = |it| acks.map(|relay_ack| Scenario { cascaded: 2, relay_ack, ..it });
                shapes.into_iter().flat_map(with).collect()
            }
            Self::OneSided => {
                of(&[(TwoSafe, 2), (VerySafe, 1), (Quorum(2), 2), (OneSafe, 2)], |it| Scenario { mapped: true, ..it })
            }
            Self::Appliance => of(&[(TwoSafe, 2), (VerySafe, 2), (Quorum(2), 2), (Quorum(2), 3)], |it| Scenario {
                mapped: true,
                appliance: true,
                ..it
            }),
            Self::Forms => {
                let mut shapes = of(&[(TwoSafe, 1), (TwoSafe, 2), (VerySafe, 1), (Quorum(2), 2), (OneSafe, 2)], |it| it);
                let cascaded = of(&[(TwoSafe, 2), (Quorum(2), 2)], |it| Scenario { cascaded: 1, asynchronous: 1, ..it });
                shapes.extend(cascaded);
                shapes.into_iter().map(|it| Scenario { forms: true, ..it }).collect()
            }
            Self::Mirrors => of(&[(TwoSafe, 1), (TwoSafe, 2), (VerySafe, 2), (Quorum(2), 2), (Quorum(2), 3)], |it| {
                Scenario { mirrors: it.synchronous, ..it }
            }),
            Self::Mixed => mixed(),
            Self::Forced => {
                of(&[(TwoSafe, 2), (VerySafe, 2), (Quorum(2), 2)], |it| Scenario { force: true, asynchronous: 1, ..it })
            }
        }
    }
}

/// Mirrors beside each other kind of standby.
fn mixed() -> Vec<Scenario> {
    let beside = of(&[(TwoSafe, 2), (VerySafe, 2), (Quorum(2), 2), (Quorum(2), 3)], |it| Scenario { mirrors: 1, ..it });
    let two = of(&[(TwoSafe, 3), (Quorum(3), 4)], |it| Scenario { mirrors: 2, ..it });
    let with = |with: fn(Scenario) -> Scenario| {
        of(&[(TwoSafe, 2), (Quorum(2), 2)], |it| Scenario { mirrors: 1, ..it }).into_iter().map(with)
    };
    let asynchronous = with(|it| Scenario { asynchronous: 1, ..it });
    let mapped = with(|it| Scenario { mapped: true, ..it });
    let forms = with(|it| Scenario { forms: true, ..it });
    let cascaded = with(|it| Scenario { cascaded: 1, ..it });
    let forced = with(|it| Scenario { force: true, ..it });
    let all = beside.into_iter().chain(two).chain(asynchronous).chain(mapped).chain(forms);
    all.chain(cascaded).chain(forced).collect()
}

/// Clusters of these levels and numbers of synchronous standbys, and what else they have.
fn of(shapes: &[(Safety, usize)], with: fn(Scenario) -> Scenario) -> Vec<Scenario> {
    shapes.iter().map(|(safety, synchronous)| with(Scenario::new(*safety, *synchronous))).collect()
}

/// All shapes, in an order that stays.
pub fn all() -> Vec<Scenario> {
    Group::ALL.into_iter().flat_map(Group::shapes).collect()
}
