//! A primary that an operator says is gone.

use super::*;
use crate::in_sync::Roster;

fn plan_of(newest: &Option<InSyncSet>, others: &[u64], safety: Safety) -> Plan {
    let state = || log(&[(1, 0)], 50, newest.clone());
    let mut candidate = Candidacy::new(NodeId(2), state(), &Fence::new(Term(1), None)).without_primary();
    others.iter().for_each(|node| candidate.promised(NodeId(*node), state()));
    candidate.plan(safety, false)
}

/// Node 1 is the primary. All members hold every commit, so node 1 may commit without the others.
#[test]
fn the_other_members_do_without_its_answer() {
    let leads = Plan::Lead { term: Term(2) };
    let of = |members: &[u64]| of_one(set(4, members, 0));
    for safety in [Safety::TwoSafe, Safety::Majority] {
        assert_eq!(plan_of(&of(&[1, 2]), &[], safety), leads);
        assert_eq!(plan_of(&of(&[1, 2, 3]), &[3], safety), leads);
    }
    let uncertain = |plan| matches!(plan, Plan::Stop(Stopped::SetUncertain { .. }));
    assert!(uncertain(plan_of(&of(&[1, 2, 3]), &[], Safety::TwoSafe)), "node 3 may lead");
    assert!(uncertain(plan_of(&of(&[1]), &[], Safety::TwoSafe)), "it has gone on without this node");
    let before = vec![earlier(logs(&[1]), None)];
    let joined = of(&[1, 2]).map(|set| InSyncSet { before, ..set });
    assert!(uncertain(plan_of(&joined, &[], Safety::TwoSafe)), "it may have, and committed what this node lacks");
}

/// The operator has spoken of node 1. Node 4 has led since, which the candidate does not know, and
/// may come back.
#[test]
fn a_primary_that_has_led_since_is_not_meant() {
    let plan = |leads: u64| {
        let mine = log(&[(1, 0)], 50, of_one(set(4, &[1, 2, 3, 4], 0)));
        let mut candidate = Candidacy::new(NodeId(2), mine, &Fence::new(Term(2), None)).without_primary();
        let of_leads = |set: InSyncSet| InSyncSet { term: Term(2), primary: NodeId(leads), ..set };
        let newest = set(5, &[3, leads], 0).map(of_leads);
        candidate.promised(NodeId(3), log(&[(1, 0), (2, 40)], 90, newest));
        candidate.plan(Safety::TwoSafe, false)
    };
    assert!(matches!(plan(1), Plan::Fetch(_)));
    assert!(matches!(plan(4), Plan::Stop(Stopped::SetUncertain { answered: 1, needed: 2, .. })));
}

/// Who counts on some of several members cannot do without one: it may be that one's answer that
/// says who leads, or what was committed.
#[test]
fn where_some_of_the_members_suffice_all_that_are_asked_for_have_to_answer() {
    let lacks = |plan| matches!(plan, Plan::Stop(Stopped::SetUncertain { .. } | Stopped::TooFew { .. }));
    assert!(lacks(plan_of(&of_one(set(4, &[1, 2, 3], 1)), &[], Safety::TwoSafe)));
    assert!(lacks(plan_of(&of_one(quorum(&[1, 2, 3], 2)), &[], Safety::Quorum(2))));
}

/// An operator has taken node 3 out of the cluster for good: it may lead by itself, and anybody may
/// have taken that for a term of the cluster's.
#[test]
fn no_answer_of_a_removed_node_counts() {
    let of = |removed: &[u64]| {
        let removed = removed.iter().map(|node| NodeId(*node)).collect();
        set(4, &[1], 0).map(|set| InSyncSet { roster: Box::new(Roster { removed, ..(*set.roster).clone() }), ..set })
    };
    let plan = |removed: &[u64], answer: Answer| {
        let mine = log(&[(1, 0)], 50, of_one(of(removed)));
        let mut candidate = Candidacy::new(NodeId(1), mine, &Fence::new(Term(1), None)).comes_back(false);
        candidate.observe(NodeId(3), answer);
        candidate.plan(Safety::TwoSafe, false)
    };
    let led_by = Answer::LedBy(Living { term: Term(2), node: NodeId(3) });
    let later = Answer::Log(log(&[(1, 0), (2, 40)], 80, of_one(of(&[]))));
    for answer in [led_by, later] {
        assert_eq!(plan(&[3], answer.clone()), Plan::Lead { term: Term(2) });
        assert_ne!(plan(&[], answer), Plan::Lead { term: Term(2) });
    }
}

/// What was committed is with a mirror that an operator was removing when the primary lost its
/// disk. A node on which no commit counts has the log of that (simulation, shape 43, seed 8602446).
#[test]
fn the_log_of_what_a_mirror_has_is_fetched_from_any_node() {
    let set = || quorum(&[1, 2, 9], 2);
    let before = vec![earlier(logs(&[1, 2, 9]), Some(2))];
    let newest =
        || quorum(&[2, 9], 2).map(|set| InSyncSet { number: 3, since: Lsn(60), before: before.clone(), ..set });
    let mirror = LogState { log: false, ..log(&[(1, 0)], 80, set()) };
    let plan = |spare: LogState| {
        let mut candidate = Candidacy::new(NodeId(2), log(&[(1, 0)], 50, set()), &Fence::new(Term(2), None));
        candidate.promised(NodeId(1), mirror.clone());
        candidate.promised(NodeId(5), spare);
        candidate.plan(Safety::Quorum(2), false)
    };
    for end in [80, 90] {
        let fetch = Plan::Fetch(Fetch { from: NodeId(5), cut_at: Lsn(50), upto: Lsn(end) });
        assert_eq!(plan(log(&[(1, 0)], end, newest())), fetch);
    }
    // Not from one that has less, or blocks of a later term behind it.
    for spare in [log(&[(1, 0)], 70, newest()), log(&[(1, 0), (2, 85)], 90, newest())] {
        assert_eq!(plan(spare), Plan::Stop(Stopped::Better(NodeId(1))));
    }
}
