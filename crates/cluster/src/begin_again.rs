//! Whether a standby whose state is in doubt begins again from its primary: it moves what it has
//! aside, and joins with nothing. Its primary decides, since it alone hears of all standbys, and
//! only where it is sure that this one is wrong, and that nothing is needed of what it has:
//!
//! - The primary is not in doubt itself, and at most half of the standbys that compare their states
//!   with it are. With one such standby there is nobody to say which side is right.
//! - All other standbys are there, and were found equal to the primary at the mark at which this
//!   one differed, or later. So the primary is not judged by those who have not looked yet, and no
//!   two standbys begin again at once: one that does is not there, or is not equal yet.
//! - Of several in doubt, the one with the lowest id is the first.
//! - Without it, as many standbys keep up as the safety level needs; one at least, except under
//!   1-safe.
//!
//! What is so allowed is not done before commits, and the in-sync sets that a candidate may find,
//! count on others only ([`crate::commit_rule::CommitRule::relies_on`]).

use freshet_base::{Lsn, NodeId, Safety};
use serde::{Deserialize, Serialize};

/// One standby, as its primary sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seen {
    /// Who.
    pub node: NodeId,
    /// Whether there is a connection.
    pub connected: bool,
    /// Whether it says that something speaks against its state.
    pub in_doubt: bool,
    /// Whether it is a mirror, which compares nothing.
    pub mirror: bool,
    /// The last mark at which it has found its state to be that of the primary.
    pub equal_at: Option<Lsn>,
    /// Whether it holds what commits wait for.
    pub keeps_up: bool,
}

/// A cluster, as its primary sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cluster {
    /// Whether something speaks against the primary's own state.
    pub primary_in_doubt: bool,
    /// What a commit promises.
    pub safety: Safety,
    /// How many standbys have to keep up for that.
    pub least: u32,
    /// All that have joined.
    pub standbys: Vec<Seen>,
}

/// What a standby in doubt is to do.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Verdict {
    /// It begins again.
    Begin,
    /// Not yet, for this reason.
    Wait(String),
    /// Not by itself, for this reason: an operator has to choose.
    Operator(String),
    /// Not from this primary, even if an operator says so.
    Never(String),
}

/// What `own`, which is in doubt, is to do. Its state differed from the primary's at the mark
/// `since`; zero if it has found damage by itself.
pub fn decide(cluster: &Cluster, own: NodeId, since: Lsn) -> Verdict {
    let Cluster { primary_in_doubt, safety, least, standbys } = cluster;
    let doubtful = |standby: &Seen| standby.in_doubt || standby.node == own;
    let comparing: Vec<_> = standbys.iter().filter(|standby| !standby.mirror).collect();
    let in_doubt = comparing.iter().filter(|standby| doubtful(standby)).count();
    let operator = |why: String| Verdict::Operator(why);
    if *primary_in_doubt {
        return Verdict::Never("the state of its primary is in doubt, which gives it to no other".into());
    }
    if comparing.len() < 2 {
        return operator(
            "no other standby compares its state with the primary's, to say which of the two is right".into(),
        );
    }
    if in_doubt * 2 > comparing.len() {
        return operator(format!(
            "{in_doubt} of {} standbys are in doubt: it may be the primary that is wrong",
            comparing.len()
        ));
    }
    if !comparing.iter().any(|standby| standby.node == own && standby.connected) {
        return Verdict::Wait("its primary does not feed it at the moment".into());
    }
    let keep_up = standbys.iter().filter(|standby| standby.keeps_up && !doubtful(standby)).count();
    let needed = if *safety == Safety::OneSafe { 0 } else { (*least).max(1) };
    if keep_up < needed as usize {
        return operator(format!("{keep_up} other standbys are in sync, and {safety} needs {needed}"));
    }
    let first =
        comparing.iter().filter(|standby| doubtful(standby) && standby.connected).map(|standby| standby.node).min();
    if let Some(first) = first.filter(|first| *first != own) {
        return Verdict::Wait(format!("standby {first} is in doubt, too, and is the first"));
    }
    let proven = |standby: &Seen| standby.connected && standby.equal_at.is_some_and(|at| at >= since);
    match comparing.iter().find(|standby| !doubtful(standby) && !proven(standby)) {
        Some(Seen { node, connected: true, .. }) => {
            Verdict::Wait(format!("standby {node} has not been found equal to the primary since"))
        }
        Some(Seen { node, .. }) => Verdict::Wait(format!("standby {node} is not there")),
        None => Verdict::Begin,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MARK: Lsn = Lsn(100);

    fn standby(node: u64) -> Seen {
        let (connected, keeps_up, equal_at) = (true, true, Some(Lsn(150)));
        Seen { node: NodeId(node), connected, in_doubt: false, mirror: false, equal_at, keeps_up }
    }

    fn doubtful(node: u64) -> Seen {
        Seen { in_doubt: true, equal_at: Some(Lsn(50)), ..standby(node) }
    }

    fn cluster(standbys: &[Seen]) -> Cluster {
        Cluster { primary_in_doubt: false, safety: Safety::TwoSafe, least: 0, standbys: standbys.to_vec() }
    }

    fn of_first(standbys: &[Seen]) -> Verdict {
        decide(&cluster(standbys), standbys[0].node, MARK)
    }

    #[test]
    fn one_of_two_or_more_begins_again() {
        assert_eq!(of_first(&[doubtful(1), standby(2)]), Verdict::Begin);
        // Whether its acknowledgement has said so already or not.
        assert_eq!(of_first(&[standby(1), standby(2)]), Verdict::Begin);
        assert_eq!(of_first(&[doubtful(7), standby(2), standby(3)]), Verdict::Begin);
        // Nobody compares with what it has found by itself: any mark since its start will do.
        let early = Seen { equal_at: Some(Lsn(3)), ..standby(2) };
        assert_eq!(decide(&cluster(&[doubtful(1), early]), NodeId(1), Lsn::ZERO), Verdict::Begin);
    }

    #[test]
    fn an_operator_chooses_between_two_sides() {
        let operator = |standbys: &[Seen], text: &str| match of_first(standbys) {
            Verdict::Operator(why) => assert!(why.contains(text), "{why}"),
            other => panic!("{other:?}"),
        };
        operator(&[doubtful(1)], "no other standby");
        // A mirror compares nothing.
        operator(&[doubtful(1), Seen { mirror: true, ..standby(2) }], "no other standby");
        operator(&[doubtful(1), doubtful(2)], "2 of 2");
        operator(&[doubtful(1), doubtful(2), standby(3)], "2 of 3");
        // One that has left counts for the side that it was on.
        operator(&[doubtful(1), Seen { connected: false, ..doubtful(2) }, standby(3)], "2 of 3");
        let cluster = Cluster { primary_in_doubt: true, ..cluster(&[doubtful(1), standby(2)]) };
        assert!(matches!(decide(&cluster, NodeId(1), MARK), Verdict::Never(why) if why.contains("its primary")));
    }

    #[test]
    fn one_at_a_time_and_only_beside_those_that_were_compared() {
        let waits = |standbys: &[Seen], text: &str| match of_first(standbys) {
            Verdict::Wait(why) => assert!(why.contains(text), "{why}"),
            other => panic!("{other:?}"),
        };
        waits(&[doubtful(2), doubtful(1), standby(3), standby(4)], "is the first");
        assert_eq!(of_first(&[doubtful(1), doubtful(2), standby(3), standby(4)]), Verdict::Begin);
        // The first has gone, and is to come back.
        let gone = Seen { connected: false, in_doubt: false, equal_at: None, keeps_up: false, ..standby(1) };
        waits(&[doubtful(2), gone, standby(3), standby(4)], "is not there");
        let back = Seen { connected: true, ..gone };
        waits(&[doubtful(2), back, standby(3), standby(4)], "not been found equal");
        // It may differ at the same mark, and not have said so yet.
        waits(&[doubtful(1), Seen { equal_at: Some(Lsn(99)), ..standby(2) }], "not been found equal");
        waits(&[Seen { connected: false, ..doubtful(1) }, standby(2)], "does not feed it");
    }

    #[test]
    fn what_the_safety_level_needs_stays() {
        let decided = |safety, least, others: &[Seen]| {
            let standbys = [&[doubtful(1)], others].concat();
            decide(&Cluster { safety, least, ..cluster(&standbys) }, NodeId(1), MARK)
        };
        let behind = Seen { keeps_up: false, ..standby(2) };
        let mirror = Seen { mirror: true, equal_at: None, ..standby(3) };
        for (safety, least, others, begins) in [
            (Safety::OneSafe, 0, vec![behind], true),
            (Safety::TwoSafe, 0, vec![behind], false),
            (Safety::TwoSafe, 1, vec![standby(2)], true),
            (Safety::TwoSafe, 2, vec![standby(2)], false),
            (Safety::TwoSafe, 2, vec![standby(2), mirror], true),
            // What is in doubt is no copy.
            (Safety::TwoSafe, 2, vec![standby(2), doubtful(4), standby(5)], true),
            (Safety::TwoSafe, 3, vec![standby(2), doubtful(4), standby(5)], false),
            (Safety::Quorum(2), 1, vec![standby(2)], true),
            (Safety::Quorum(3), 2, vec![standby(2)], false),
            (Safety::VerySafe, 2, vec![standby(2)], false),
        ] {
            let verdict = decided(safety, least, &others);
            assert_eq!(verdict == Verdict::Begin, begins, "{safety} {least} {others:?}: {verdict:?}");
            assert!(begins || matches!(&verdict, Verdict::Operator(why) if why.contains("needs")), "{verdict:?}");
        }
    }
}
