mod beside;
mod gone;
mod witness;

use std::{collections::BTreeSet, time::Duration};

use freshet_base::ClusterId;

use super::*;
use crate::{
    in_sync::{
        Counting,
        tests::{earlier, first_set},
    },
    term::{TermHistory, TermState, may_come_back},
};

fn history(entries: &[(u32, u64)]) -> TermHistory {
    let term_entry =
        |(term, start): &(u32, u64)| TermEntry { term: Term(*term), start: Lsn(*start), node: NodeId(9), nonce: 1 };
    let entries: Vec<_> = entries.iter().map(term_entry).collect();
    entries.try_into().unwrap()
}

fn log(entries: &[(u32, u64)], end: u64, set: Option<InSyncSet>) -> LogState {
    let terms = TermState { set, incarnation: Some(1), ..TermState::of(ClusterId(1), history(entries)) };
    LogState::of(terms, NodeId(1), Lsn(end), Lsn::ZERO)
}

fn set(number: u64, members: &[u64], floor: u32) -> Option<InSyncSet> {
    Some(InSyncSet { number, floor, ..first_set(NodeId(9), logs(members)) })
}

/// The same, written by node 1.
fn of_one(set: Option<InSyncSet>) -> Option<InSyncSet> {
    set.map(|set| InSyncSet { primary: NodeId(1), ..set })
}

fn logs(nodes: &[u64]) -> BTreeSet<Holder> {
    nodes.iter().map(|node| Holder::new(NodeId(*node), 1)).collect()
}

/// Of these members any `k` hold every commit.
fn quorum(members: &[u64], k: u32) -> Option<InSyncSet> {
    set(2, members, k - 1).map(|set| InSyncSet { level: Safety::Quorum(k), quorum: Some(k), ..set })
}

/// The same set as this level records it.
fn under_level(level: Safety, set: Option<InSyncSet>) -> Option<InSyncSet> {
    set.map(|set| InSyncSet { level, ..set })
}

#[test]
fn a_quorum_failover_needs_enough_votes() {
    let fence = Fence::new(Term(1), None);
    let set = || quorum(&[1, 2, 9], 2);
    let mut candidate = Candidacy::new(NodeId(1), log(&[(1, 0)], 50, set()), &fence);
    assert_eq!(candidate.term(), Term(2));
    assert_eq!(candidate.plan(Safety::Quorum(2), false), Plan::Stop(Stopped::TooFew { answered: 1, needed: 2 }));
    assert_eq!(candidate.plan(Safety::Quorum(2), true), Plan::Lead { term: Term(2) });
    candidate.promised(NodeId(2), log(&[(1, 0)], 80, set()));
    let fetch = Plan::Fetch(Fetch { from: NodeId(2), cut_at: Lsn(50), upto: Lsn(80) });
    assert_eq!(candidate.plan(Safety::Quorum(2), false), fetch);
    candidate.fetched(log(&[(1, 0)], 80, set()));
    assert_eq!(candidate.plan(Safety::Quorum(2), false), Plan::Lead { term: Term(2) });
}

/// Who answers counts only with the log that the newest record names: not a newcomer, not a node
/// that was emptied since, and not a node that knows of no record.
#[test]
fn an_answer_counts_by_what_it_proves() {
    let set = || quorum(&[1, 2, 9], 2);
    let fence = Fence::new(Term(1), None);
    for safety in [Safety::Quorum(2), Safety::TwoSafe] {
        let mut candidate = Candidacy::new(NodeId(1), log(&[(1, 0)], 50, set()), &fence);
        candidate.promised(NodeId(3), log(&[], 0, None));
        candidate.promised(NodeId(4), log(&[(1, 0)], 50, set()));
        candidate.promised(NodeId(2), LogState { incarnation: 2, ..log(&[(1, 0)], 60, set()) });
        candidate.met(NodeId(9), Testimony { incarnations: vec![2], set: set(), lease: Duration::ZERO, granted: None });
        let plan = candidate.plan(safety, false);
        assert!(
            matches!(
                plan,
                Plan::Stop(Stopped::TooFew { answered: 1, needed: 2 })
                    | Plan::Stop(Stopped::SetUncertain { answered: 1, needed: 2, .. })
            ),
            "{plan:?}"
        );
        candidate.promised(NodeId(2), log(&[(1, 0)], 50, set()));
        assert_eq!(candidate.plan(safety, false), Plan::Lead { term: Term(2) });
    }
    // As the candidate.
    let newcomer = LogState { incarnation: 2, ..log(&[(1, 0)], 50, set()) };
    let mut candidate = Candidacy::new(NodeId(1), newcomer, &fence);
    candidate.promised(NodeId(2), log(&[(1, 0)], 50, set()));
    candidate.promised(NodeId(9), log(&[(1, 0)], 50, set()));
    assert!(matches!(candidate.plan(Safety::Quorum(2), false), Plan::Stop(Stopped::Newcomer { .. })));
    let unknown = Candidacy::new(NodeId(1), log(&[(1, 0)], 50, None), &fence);
    assert!(matches!(
        unknown.plan(Safety::Quorum(2), false),
        Plan::Stop(Stopped::SetUncertain { answered: 0, needed: 1, .. })
    ));
}

/// It was set back, or its disk was slower than others: what they hold of its own term is fetched,
/// at every level.
#[test]
fn what_others_hold_of_the_own_last_term_outranks_the_own_disk() {
    let history = TermHistory::first(Term(1), NodeId(1), 1);
    let set = of_one(set(4, &[1, 2], 0));
    let log = |end| LogState { history: history.clone(), ..log(&[], end, set.clone()) };
    for safety in [Safety::OneSafe, Safety::TwoSafe, Safety::VerySafe, Safety::Quorum(2)] {
        let back = Candidacy::new(NodeId(1), log(50), &Fence::new(Term(1), Some(NodeId(1)))).comes_back(false);
        let mut back = back.led(Some(Term(1)));
        back.promised(NodeId(2), log(80));
        let fetch = Plan::Fetch(Fetch { from: NodeId(2), cut_at: Lsn(50), upto: Lsn(80) });
        assert_eq!(back.plan(safety, false), fetch);
        // It began the next term before, and does not know.
        let mut twice = history.clone();
        twice.begin(TermEntry { term: Term(2), start: Lsn(60), node: NodeId(1), nonce: 7 }).unwrap();
        let mut again = history.clone();
        again.begin(TermEntry { term: Term(2), start: Lsn(50), node: NodeId(1), nonce: 8 }).unwrap();
        let mine = LogState { history: again, ..log(55) };
        let mut back = Candidacy::new(NodeId(1), mine, &Fence::new(Term(2), Some(NodeId(1))));
        back.promised(NodeId(2), LogState { history: twice, ..log(80) });
        assert_eq!(back.plan(safety, false), Plan::Stop(Stopped::SameTermTwice { with: NodeId(2), term: Term(2) }));
    }
}

#[test]
fn a_promise_that_was_given_while_others_were_sounded_out_counts() {
    let term_entry = TermEntry { term: Term(1), start: Lsn::ZERO, node: NodeId(1), nonce: 1 };
    let history: TermHistory = vec![term_entry].try_into().unwrap();
    let mine = LogState { history, ..log(&[], 50, set(2, &[1, 2], 0)) };
    let mut fence = Fence::new(Term(1), Some(NodeId(1)));
    let mut candidate = Candidacy::new(NodeId(1), mine, &fence).led(Some(Term(1)));
    assert_eq!(candidate.plan(Safety::TwoSafe, false), Plan::Lead { term: Term(2) });
    let mut undisturbed = (candidate.clone(), fence);
    undisturbed.0.raise(&mut undisturbed.1).unwrap();
    undisturbed.0.raise(&mut undisturbed.1).unwrap();
    assert_eq!(undisturbed.0.plan(Safety::TwoSafe, false), Plan::Lead { term: Term(2) });

    // The other member asks first, and may lead by now.
    assert_eq!(fence.observe(Term(2), NodeId(2)), Ok(true));
    candidate.raise(&mut fence).unwrap();
    assert_eq!((candidate.term(), fence), (Term(3), Fence::new(Term(3), Some(NodeId(1)))));
    let plan = candidate.plan(Safety::TwoSafe, false);
    assert!(matches!(plan, Plan::Stop(Stopped::SetUncertain { answered: 1, needed: 2, .. })), "{plan:?}");
}

#[test]
fn a_restart_notices_that_another_has_gone_on() {
    let of = |entries: &[(u32, u64, u64)], end| {
        let term_entry = |(term, start, node): &(u32, u64, u64)| TermEntry {
            term: Term(*term),
            start: Lsn(*start),
            node: NodeId(*node),
            nonce: 1,
        };
        let entries: Vec<_> = entries.iter().map(term_entry).collect();
        LogState {
            history: entries.try_into().unwrap(),
            end: Lsn(end),
            set: None,
            synchronous: true,
            committed: Lsn::ZERO,
            log: true,
            incarnation: 1,
            owes: Lsn::ZERO,
            former: Vec::new(),
            lease: Duration::ZERO,
        }
    };
    let mut candidate = Candidacy::new(NodeId(1), of(&[(1, 0, 1)], 50), &Fence::new(Term(1), Some(NodeId(1))));
    // More of its own term, or a term without a block, is no sign of another primary.
    candidate.promised(NodeId(2), of(&[(1, 0, 1)], 80));
    candidate.promised(NodeId(3), of(&[(1, 0, 1), (2, 40, 3)], 40));
    assert_eq!(candidate.superseded(), None);
    candidate.promised(NodeId(3), of(&[(1, 0, 1), (2, 40, 3)], 48));
    assert_eq!(candidate.superseded().map(|term_entry| (term_entry.term, term_entry.node)), Some((Term(2), NodeId(3))));
}

#[test]
fn commits_that_others_know_count_as_far_as_logs_are_one() {
    let fence = Fence::new(Term(1), None);
    let knows = |log: LogState, committed| LogState { committed: Lsn(committed), ..log };
    let mut candidate = Candidacy::new(NodeId(1), knows(log(&[(1, 0)], 50, None), 10), &fence);
    assert_eq!(candidate.known_committed(), Lsn(10));
    candidate.promised(NodeId(2), knows(log(&[(1, 0)], 40, None), 30));
    assert_eq!(candidate.known_committed(), Lsn(30));
    // Of what parts from the own log at 20 nothing beyond counts.
    candidate.promised(NodeId(3), knows(log(&[(1, 0), (2, 20)], 45, None), 45));
    assert_eq!(candidate.known_committed(), Lsn(30));
    candidate.promised(NodeId(3), knows(log(&[(1, 0), (2, 45)], 60, None), 60));
    assert_eq!(candidate.known_committed(), Lsn(45));
}

#[test]
fn a_living_term_outranks_who_comes_back_and_no_ordered_candidate() {
    let fence = Fence::new(Term(1), Some(NodeId(1)));
    let ordered = Candidacy::new(NodeId(1), log(&[(1, 0)], 50, None), &fence);
    let mut back = ordered.clone().comes_back(false);
    let living = Living { term: Term(2), node: NodeId(2) };
    assert!(living.outranks(NodeId(1), Term(1)) && living.outranks(NodeId(1), Term(2)));
    assert!(!living.outranks(NodeId(2), Term(1)) && !living.outranks(NodeId(1), Term(3)));
    assert_eq!(back.plan(Safety::OneSafe, false), Plan::Lead { term: Term(2) });
    back.observe_living(living);
    assert_eq!(back.plan(Safety::OneSafe, false), Plan::Stop(Stopped::Superseded { living, lives: true }));
    // One that has gone on and does not answer itself; one that answers, and does not lead.
    let gone_on = log(&[(1, 0), (2, 40)], 60, None);
    let living = Living { term: Term(2), node: NodeId(9) };
    let mut back = ordered.comes_back(false);
    back.again(Term(3));
    back.promised(NodeId(3), gone_on);
    assert_eq!(back.plan(Safety::OneSafe, false), Plan::Stop(Stopped::Superseded { living, lives: false }));
    back.promised(NodeId(9), log(&[(1, 0)], 40, None));
    assert!(matches!(back.plan(Safety::OneSafe, false), Plan::Fetch(_)));
}

#[test]
fn who_comes_back_asks() {
    // Promised to another: that one has to answer where no number of others would do.
    let fence = Fence::new(Term(2), Some(NodeId(2)));
    let all = |level| under_level(level, quorum(&[1, 2], 2));
    let mut back = Candidacy::new(NodeId(1), log(&[(1, 0)], 50, all(Safety::VerySafe)), &fence).comes_back(false);
    assert_eq!(back.plan(Safety::VerySafe, false), Plan::Stop(Stopped::TooFew { answered: 1, needed: 2 }));
    back.promised(NodeId(3), log(&[(1, 0)], 50, None));
    assert_eq!(back.plan(Safety::VerySafe, false), Plan::Stop(Stopped::TooFew { answered: 2, needed: 3 }));
    back.promised(NodeId(2), log(&[(1, 0)], 50, None));
    assert_eq!(back.plan(Safety::VerySafe, false), Plan::Lead { term: Term(3) });
    // At least one other node, if it was made to join.
    let fence = Fence::new(Term(1), Some(NodeId(1)));
    let of = |level| Candidacy::new(NodeId(1), log(&[(1, 0)], 50, all(level)), &fence).comes_back(true);
    let mut back = of(Safety::OneSafe);
    assert_eq!(back.plan(Safety::OneSafe, false), Plan::Stop(Stopped::TooFew { answered: 1, needed: 2 }));
    // Not where each commit needs all that are on record, so that none leads without this one.
    assert_eq!(of(Safety::Quorum(2)).plan(Safety::Quorum(2), false), Plan::Lead { term: Term(2) });
    let mut met = of(Safety::VerySafe);
    back.promised(NodeId(2), log(&[(1, 0)], 50, None));
    assert_eq!(back.plan(Safety::OneSafe, false), Plan::Lead { term: Term(2) });
    // A mirror that has lost its memory knows whether another leads, and has no vote.
    met.met(NodeId(2), Testimony { incarnations: vec![1], set: None, lease: Duration::ZERO, granted: None });
    assert_eq!(met.plan(Safety::VerySafe, false), Plan::Lead { term: Term(2) });
    met.fetched(log(&[(1, 0)], 50, quorum(&[1, 2, 3], 2)));
    assert_eq!(met.plan(Safety::Quorum(2), false), Plan::Stop(Stopped::TooFew { answered: 1, needed: 2 }));
    met.ask_for_promises();
    assert_eq!(met.plan(Safety::VerySafe, false), Plan::Stop(Stopped::TooFew { answered: 1, needed: 2 }));
    // Who may: whose term was the last, or who was promised one.
    let history = |node| TermHistory::first(Term(1), NodeId(node), 1);
    assert!(may_come_back(NodeId(1), &history(1), &Fence::new(Term(2), Some(NodeId(2)))));
    assert!(may_come_back(NodeId(1), &history(2), &Fence::new(Term(2), Some(NodeId(1)))));
    assert!(!may_come_back(NodeId(1), &history(2), &Fence::new(Term(2), Some(NodeId(2)))));
    assert!(!may_come_back(NodeId(1), &history(1), &Fence::new(Term(1), None)));
}

#[test]
fn a_later_term_outranks_a_longer_log() {
    let mut candidate = Candidacy::new(NodeId(1), log(&[(1, 0)], 500, None), &Fence::new(Term(4), None));
    candidate.promised(NodeId(2), log(&[(1, 0), (3, 60)], 70, None));
    candidate.promised(NodeId(3), log(&[(1, 0)], 900, None));
    let fetch = Plan::Fetch(Fetch { from: NodeId(2), cut_at: Lsn(60), upto: Lsn(70) });
    assert_eq!(candidate.plan(Safety::OneSafe, false), fetch);
}

#[test]
fn a_refusal_asks_for_a_larger_term_and_new_promises() {
    let set = quorum(&[1, 2, 9], 2);
    let mut candidate = Candidacy::new(NodeId(1), log(&[(1, 0)], 50, set), &Fence::new(Term(1), None));
    candidate.promised(NodeId(2), log(&[(1, 0)], 50, None));
    candidate.refused(Term(7), None);
    assert_eq!(candidate.plan(Safety::OneSafe, true), Plan::HigherTerm { at_least: Term(8) });
    candidate.again(Term(8));
    assert_eq!(candidate.plan(Safety::Quorum(2), false), Plan::Stop(Stopped::TooFew { answered: 1, needed: 2 }));
    assert_eq!(candidate.plan(Safety::Quorum(2), true), Plan::Lead { term: Term(8) });
}

#[test]
fn asynchronous_standbys_have_no_vote() {
    let fence = Fence::new(Term(1), None);
    let silent = |end| LogState { synchronous: false, ..log(&[(1, 0)], end, None) };
    let candidate = Candidacy::new(NodeId(1), silent(50), &fence);
    assert_eq!(candidate.plan(Safety::VerySafe, false), Plan::Stop(Stopped::Asynchronous));
    assert_eq!(candidate.plan(Safety::OneSafe, false), Plan::Lead { term: Term(2) });
    let set = quorum(&[1, 3, 9], 2);
    let mut candidate = Candidacy::new(NodeId(1), log(&[(1, 0)], 50, set), &fence);
    candidate.promised(NodeId(2), silent(90));
    assert_eq!(candidate.plan(Safety::Quorum(2), false), Plan::Stop(Stopped::TooFew { answered: 1, needed: 2 }));
    candidate.promised(NodeId(3), log(&[(1, 0)], 70, None));
    // Heard they are, and what they hold does not count.
    let fetch = Plan::Fetch(Fetch { from: NodeId(3), cut_at: Lsn(50), upto: Lsn(70) });
    assert_eq!(candidate.plan(Safety::Quorum(2), false), fetch);
}

#[test]
fn under_two_safe_a_standby_that_was_put_out_may_not_lead() {
    let fence = Fence::new(Term(1), Some(NodeId(9)));
    let plan = |mine: Option<InSyncSet>, others: &[(u64, u64, Option<InSyncSet>)]| {
        let mut candidate = Candidacy::new(NodeId(1), log(&[(1, 0)], 50, mine), &fence);
        for (node, end, set) in others {
            candidate.promised(NodeId(*node), log(&[(1, 0)], *end, set.clone()));
        }
        candidate.plan(Safety::TwoSafe, false)
    };
    let uncertain = |plan| match plan {
        Plan::Stop(Stopped::SetUncertain { answered, needed, .. }) => (answered, needed),
        other => panic!("{other:?}"),
    };
    let all = set(4, &[9, 1, 2], 0);
    // Alone it cannot know, nor with the other standby: the primary may have gone on alone.
    assert_eq!(uncertain(plan(all.clone(), &[])), (1, 3));
    assert_eq!(uncertain(plan(all.clone(), &[(2, 60, all.clone())])), (2, 3));
    // Somebody knows that it was put out.
    assert_eq!(uncertain(plan(all.clone(), &[(2, 60, set(5, &[9, 2], 0))])), (1, 2));
    // With everybody of the newest set it may lead: after it has fetched what they hold.
    let known = plan(all.clone(), &[(2, 60, set(5, &[9, 2], 0)), (9, 70, set(5, &[9, 2], 0))]);
    assert_eq!(known, Plan::Fetch(Fetch { from: NodeId(9), cut_at: Lsn(50), upto: Lsn(70) }));
    // With a floor the primary cannot have gone on alone.
    let floored = set(4, &[9, 1, 2], 1);
    assert_eq!(uncertain(plan(floored.clone(), &[])), (1, 2));
    assert_eq!(plan(floored.clone(), &[(2, 40, floored)]), Plan::Lead { term: Term(2) });
    assert_eq!(plan(set(4, &[9, 1], 1), &[]), Plan::Lead { term: Term(2) });
}

#[test]
fn under_two_safe_logs_of_non_members_do_not_count() {
    // 2 restarted without success, in a term that is later than that of the newest set.
    let newest = set(5, &[9, 1], 1);
    let mut candidate = Candidacy::new(NodeId(1), log(&[(1, 0)], 50, newest), &Fence::new(Term(1), None));
    let vain = || log(&[(1, 0), (4, 30)], 40, set(3, &[9, 1, 2], 1));
    candidate.promised(NodeId(2), vain());
    assert_eq!(candidate.plan(Safety::TwoSafe, false), Plan::HigherTerm { at_least: Term(5) });
    candidate.again(Term(5));
    candidate.promised(NodeId(2), vain());
    assert_eq!(candidate.plan(Safety::TwoSafe, false), Plan::Lead { term: Term(5) });
    let counting = |_: &_| Counting { quorum: None, floor: 1 };
    let first = candidate.succession(false).first(
        (candidate.term(), Lsn::ZERO),
        Holder::new(NodeId(1), 1),
        Safety::TwoSafe,
        counting,
    );
    assert_eq!((first.number, first.term, first.members.len()), (6, Term(5), 2));
    // As the candidate it has to give up its own tail, if all members are heard. Where one would do
    // it must be the candidate itself.
    let of = |floor| {
        let vain = log(&[(1, 0), (4, 30)], 40, set(3, &[9, 1, 2], floor));
        let mut other = Candidacy::new(NodeId(2), vain, &Fence::new(Term(4), Some(NodeId(2))));
        other.promised(NodeId(1), log(&[(1, 0)], 50, set(5, &[9, 1], floor)));
        other.met(
            NodeId(9),
            Testimony { incarnations: vec![1], set: set(5, &[9, 1], floor), lease: Duration::ZERO, granted: None },
        );
        other.plan(Safety::TwoSafe, false)
    };
    assert_eq!(of(0), Plan::Fetch(Fetch { from: NodeId(1), cut_at: Lsn(30), upto: Lsn(50) }));
    assert!(matches!(of(1), Plan::Stop(Stopped::Newcomer { newest }) if newest.number == 5));
}

/// The others of a set find a successor for any member, as far as what is asked of a candidate
/// permits.
#[test]
fn a_cluster_is_unattended_if_the_others_of_its_set_may_lead() {
    let fence = Fence::new(Term(1), None);
    for (nodes, floor, k) in (1..=5).flat_map(|n| (0..n).flat_map(move |f| [(n, f, None), (n, f, Some(f as u32 + 1))]))
    {
        let members: Vec<u64> = (1..=nodes).collect();
        let set = set(2, &members, floor as u32).map(|set| InSyncSet { quorum: k, ..set });
        let safety = k.map_or(Safety::TwoSafe, Safety::Quorum);
        let leads = |lost: u64| {
            let mut left = members.iter().filter(|node| **node != lost);
            let Some(first) = left.next() else { return false };
            let state = || log(&[(1, 0)], 50, set.clone());
            let mut candidate = Candidacy::new(NodeId(*first), state(), &fence).automatic();
            left.for_each(|node| candidate.promised(NodeId(*node), state()));
            matches!(candidate.plan(safety, false), Plan::Lead { .. })
        };
        let found = members.iter().all(|lost| leads(*lost));
        assert_eq!(is_unattended(safety, set.as_ref()).is_ok(), found, "{nodes} nodes, floor {floor}, {k:?}");
    }
    let one_safe = under_level(Safety::OneSafe, set(2, &[1, 2, 3], 1));
    assert_eq!(is_unattended(Safety::TwoSafe, one_safe.as_ref()), Err(NeedsOperator::OneSafe));
    // As long as another level may be in effect, a candidate asks.
    let changing = one_safe.map(|set| InSyncSet { before: vec![earlier(logs(&[1, 2, 3]), Some(2))], ..set });
    assert_eq!(changing.map(|set| set.kept_level()), Some(Safety::TwoSafe));
    assert_eq!(is_unattended(Safety::TwoSafe, None), Err(NeedsOperator::Unknown));
}

#[test]
fn a_primary_that_restarts_knows_unless_it_has_promised_a_later_term() {
    let history = TermHistory::first(Term(1), NodeId(1), 1);
    let mine = || LogState { history: history.clone(), ..log(&[], 50, of_one(set(4, &[1, 2], 0))) };
    let plan = |mine, fence| Candidacy::new(NodeId(1), mine, &fence).led(Some(Term(1))).plan(Safety::TwoSafe, false);
    assert_eq!(plan(mine(), Fence::new(Term(1), Some(NodeId(1)))), Plan::Lead { term: Term(2) });
    let uncertain = |plan| matches!(plan, Plan::Stop(Stopped::SetUncertain { answered: 1, .. }));
    assert!(uncertain(plan(mine(), Fence::new(Term(2), Some(NodeId(2))))));
    // With a floor the others may have gone on without it.
    let floored = LogState { set: of_one(set(4, &[1, 2, 3], 1)), ..mine() };
    assert!(uncertain(plan(floored, Fence::new(Term(1), Some(NodeId(1))))));
    // Its term may have committed nothing: then another may lead without having observed it, but
    // not where every set that may have been in effect when that began has this node.
    let vain = |before: Vec<BTreeSet<Holder>>, term| {
        let before: Vec<_> = before.into_iter().map(|members| earlier(members, None)).collect();
        let set = mine().set.map(|set| InSyncSet { before, term: Term(term), ..set });
        let vain = Candidacy::new(NodeId(1), LogState { set, ..mine() }, &Fence::new(Term(1), Some(NodeId(1))));
        vain.plan(Safety::TwoSafe, false)
    };
    assert_eq!(vain(vec![], 1), Plan::Lead { term: Term(2) });
    assert_eq!(vain(vec![logs(&[1, 2, 3])], 1), Plan::Lead { term: Term(2) });
    assert!(matches!(vain(vec![logs(&[2])], 1), Plan::Stop(Stopped::SetUncertain { answered: 0, needed: 1, .. })));
    // Nor of what its term has found is this a record.
    assert!(uncertain(vain(vec![], 0)));
}

#[test]
fn there_is_no_term_after_the_last_one() {
    let mut fence = Fence::new(Term(0), None);
    assert_eq!(fence.observe(Term(u32::MAX), NodeId(2)), Ok(true));
    let mut candidate = Candidacy::new(NodeId(1), log(&[], 0, None), &fence);
    assert_eq!(candidate.raise(&mut fence), Err(LastTerm(Term(u32::MAX))));
}

#[test]
fn what_only_a_mirror_has_makes_it_the_better_candidate_unless_it_was_never_committed() {
    let mirror = |log: LogState| LogState { log: false, ..log };
    let at = |me: u64, mine: LogState, others: &[(u64, LogState)]| {
        let mut candidate = Candidacy::new(NodeId(me), mine, &Fence::new(Term(2), None));
        others.iter().for_each(|(node, log)| candidate.promised(NodeId(*node), log.clone()));
        candidate
    };
    let set = || quorum(&[2, 3, 4, 9], 4);
    let later =
        || set().map(|set| InSyncSet { term: Term(2), primary: NodeId(9), number: 3, first: 1, after: Term(0), ..set });
    let (short, long) = (log(&[(1, 0)], 50, set()), log(&[(1, 0)], 80, set()));
    let entries = Plan::Lead { term: Term(3) };
    let plan = |candidate: &Candidacy| candidate.plan(Safety::VerySafe, false);
    let behind = at(2, short.clone(), &[(3, mirror(long.clone()))]);
    assert_eq!(plan(&behind), Plan::Stop(Stopped::Better(NodeId(3))));
    assert_eq!(behind.plan(Safety::VerySafe, true), entries, "with force");
    // One with a log that has as much can pass it on.
    let both = at(2, short.clone(), &[(3, mirror(long.clone())), (4, long.clone())]);
    assert_eq!(plan(&both), Plan::Fetch(Fetch { from: NodeId(4), cut_at: Lsn(50), upto: Lsn(80) }));
    // A mirror takes a log in as well, unless it would have to undo for that what is committed.
    let takes = at(3, mirror(short.clone()), &[(2, long.clone())]);
    assert_eq!(plan(&takes), Plan::Fetch(Fetch { from: NodeId(2), cut_at: Lsn(50), upto: Lsn(80) }));
    let other = log(&[(1, 0), (2, 40)], 80, later());
    let undoes = at(3, mirror(LogState { committed: Lsn(40), ..short.clone() }), &[(2, other.clone())]);
    assert_eq!(plan(&undoes), Plan::Fetch(Fetch { from: NodeId(2), cut_at: Lsn(40), upto: Lsn(80) }));
    let keeps = at(3, mirror(LogState { committed: Lsn(48), ..short.clone() }), &[(2, other)]);
    let holds_more = Plan::Stop(Stopped::HoldsMore { than: NodeId(2), at: Lsn(40), committed: Lsn(48) });
    assert_eq!(plan(&keeps), holds_more);
    // Of two mirrors neither has a log for the other.
    assert_eq!(
        plan(&at(3, mirror(short.clone()), &[(2, mirror(long.clone()))])),
        Plan::Stop(Stopped::Better(NodeId(2)))
    );
    assert_eq!(plan(&at(3, mirror(long.clone()), &[(2, short.clone())])), entries);
    // The log that wrote what the mirror has more, and does not have it, has committed none of it;
    // unless the mirror knows that it has: then that disk was set back.
    assert_eq!(plan(&at(9, short.clone(), &[(3, mirror(long.clone()))])), entries);
    let acknowledged = LogState { committed: Lsn(51), ..mirror(long) };
    assert_eq!(plan(&at(9, short.clone(), &[(3, acknowledged)])), Plan::Stop(Stopped::Better(NodeId(3))));
    let other = mirror(log(&[(1, 0), (2, 60)], 80, later()));
    assert_eq!(plan(&at(9, short, &[(3, other)])), Plan::Stop(Stopped::Better(NodeId(3))));
}

/// A mirror notes the set of a term before it follows that: what it begins itself comes later.
#[test]
fn no_term_begins_below_that_of_a_known_set() {
    let of_term = |term| quorum(&[2, 3], 2).map(|set| InSyncSet { term: Term(term), ..set });
    let known = log(&[(1, 0)], 50, of_term(4));
    let mut candidate = Candidacy::new(NodeId(2), known.clone(), &Fence::new(Term(2), None));
    assert_eq!(candidate.term(), Term(5));
    candidate.promised(NodeId(3), log(&[(1, 0)], 50, of_term(6)));
    assert_eq!(candidate.plan(Safety::Quorum(2), false), Plan::HigherTerm { at_least: Term(7) });
    let mut candidate = Candidacy::new(NodeId(2), known, &Fence::new(Term(2), None));
    candidate.met(NodeId(3), log(&[(1, 0)], 50, of_term(6)).testimony());
    assert_eq!(candidate.plan(Safety::Quorum(2), false), Plan::HigherTerm { at_least: Term(7) });
}

/// A set of two was written, after one of three. What was committed before that is with the third.
#[test]
fn who_is_to_leave_may_hold_what_was_committed() {
    let plan = |since| {
        let before = vec![earlier(logs(&[2, 3, 9]), Some(2))];
        let newest = quorum(&[2, 9], 2).map(|set| InSyncSet { number: 3, since: Lsn(since), before, ..set });
        let mine = log(&[(1, 0)], 50, quorum(&[2, 3, 9], 2));
        let mut candidate = Candidacy::new(NodeId(2), mine, &Fence::new(Term(1), None));
        candidate.promised(NodeId(3), log(&[(1, 0)], 80, newest));
        candidate.plan(Safety::Quorum(2), false)
    };
    assert_eq!(plan(60), Plan::Fetch(Fetch { from: NodeId(3), cut_at: Lsn(50), upto: Lsn(80) }));
    // What comes after that is committed with the two alone.
    assert_eq!(plan(50), Plan::Lead { term: Term(2) });
}

/// A mirror that was cut within a batch may have acknowledged more than it has.
#[test]
fn what_a_mirror_owes_has_to_be_with_another() {
    let set = || quorum(&[2, 3, 4], 2);
    let owing = |owes| LogState { owes: Lsn(owes), log: false, ..log(&[(1, 0)], 50, set()) };
    let at = |me: u64, mine: LogState, other: (u64, LogState)| {
        let mut candidate = Candidacy::new(NodeId(me), mine, &Fence::new(Term(2), None));
        candidate.promised(NodeId(other.0), other.1);
        candidate.plan(Safety::Quorum(2), false)
    };
    let too_few = Plan::Stop(Stopped::TooFew { answered: 1, needed: 2 });
    let short = || log(&[(1, 0)], 60, set());
    assert_eq!(at(2, short(), (3, owing(70))), too_few, "what was acknowledged may be on node 3 and another one");
    assert_eq!(at(2, short(), (3, owing(60))), Plan::Lead { term: Term(3) });
    assert_eq!(at(3, owing(70), (2, short())), too_few);
    let fetch = |upto| Plan::Fetch(Fetch { from: NodeId(2), cut_at: Lsn(50), upto: Lsn(upto) });
    assert_eq!(at(3, owing(70), (2, log(&[(1, 0)], 70, set()))), fetch(70));
    // The same length of another log is something else.
    assert_eq!(at(3, owing(70), (2, log(&[(1, 0), (2, 65)], 70, set()))), too_few);
    assert_eq!(at(3, owing(50), (2, short())), fetch(60));
}

/// It parts with a more advanced log below what it knows to be acknowledged: a promotion of that
/// one was forced, or a primary was set back, perhaps across one of its restarts.
#[test]
fn who_holds_more_takes_over_with_force_alone_and_gives_nothing_up() {
    let begun = |nonce| {
        let mut history = history(&[(1, 0)]);
        history.begin(TermEntry { term: Term(2), start: Lsn(40), node: NodeId(9), nonce }).unwrap();
        history
    };
    let under = |level, history: &TermHistory, end, committed| LogState {
        history: history.clone(),
        committed: Lsn(committed),
        ..log(&[], end, under_level(level, set(4, &[1, 2, 9], 0)))
    };
    let of = |history: &_, end, committed| under(Safety::OneSafe, history, end, committed);
    let (later, twice) = (history(&[(1, 0), (2, 40)]), begun(2));
    for (mine, other) in [(&history(&[(1, 0)]), &later), (&begun(1), &twice)] {
        let candidate_under = |level, committed| {
            let mine = under(level, mine, 50, committed);
            let mut candidate = Candidacy::new(NodeId(1), mine, &Fence::new(Term(2), None));
            candidate.promised(NodeId(9), under(level, other, 80, 45));
            candidate
        };
        let candidate = |committed| candidate_under(Safety::OneSafe, committed);
        let entries = Plan::Lead { term: Term(3) };
        for safety in [Safety::OneSafe, Safety::TwoSafe, Safety::VerySafe, Safety::Quorum(2)] {
            let mut it = candidate_under(safety, 48);
            let holds_more = Plan::Stop(Stopped::HoldsMore { than: NodeId(9), at: Lsn(40), committed: Lsn(48) });
            assert_eq!((it.plan(safety, false), it.plan(safety, true)), (holds_more, entries.clone()));
            // Another may have still more of that.
            it.promised(NodeId(2), under(safety, mine, 60, 48));
            let fetch = Plan::Fetch(Fetch { from: NodeId(2), cut_at: Lsn(50), upto: Lsn(60) });
            assert_eq!(it.plan(safety, true), fetch);
            it.fetched(under(safety, mine, 60, 48));
            assert_eq!(it.plan(safety, true), entries);
        }
        // Nothing would be given up.
        let plans = [false, true].map(|force| candidate(40).plan(Safety::OneSafe, force));
        let fetch = || Plan::Fetch(Fetch { from: NodeId(9), cut_at: Lsn(40), upto: Lsn(80) });
        let begun_twice = Plan::Stop(Stopped::SameTermTwice { with: NodeId(9), term: Term(2) });
        assert_eq!(plans, if *other == later { [fetch(), fetch()] } else { [begun_twice, entries.clone()] });
        // A former primary that comes back may be the one that was set back.
        let stops = candidate(48).comes_back(false).plan(Safety::OneSafe, false);
        assert_eq!(matches!(stops, Plan::Stop(Stopped::SameTermTwice { .. })), *other != later, "{stops:?}");
    }
    // Neither has the later term, whichever log is longer.
    let mut longer = Candidacy::new(NodeId(1), of(&begun(1), 90, 48), &Fence::new(Term(2), None));
    longer.promised(NodeId(9), of(&twice, 80, 41));
    assert!(matches!(longer.plan(Safety::OneSafe, false), Plan::Stop(Stopped::HoldsMore { .. })));
    longer.promised(NodeId(9), of(&twice, 80, 40));
    assert_eq!(longer.plan(Safety::OneSafe, false), Plan::Lead { term: Term(3) }, "nothing is lost");
}

/// No operator has said that the primary is gone.
#[test]
fn who_stands_by_itself_needs_most_of_the_set_and_gives_way() {
    let state = Fence::new(Term(1), Some(NodeId(1)));
    let set = |members: &[u64], quorum, floor| {
        let members = members.iter().map(|node| Holder::new(NodeId(*node), 1)).collect();
        Some(InSyncSet { quorum, floor, ..first_set(NodeId(9), members) })
    };
    let stands =
        |set: &Option<InSyncSet>| Candidacy::new(NodeId(2), log(&[(1, 0)], 50, set.clone()), &state).automatic();
    let too_few = |answered, needed| Plan::Stop(Stopped::TooFew { answered, needed });
    let three = set(&[1, 2, 3], Some(2), 1);
    let mut it = stands(&three);
    assert_eq!(it.plan(Safety::Quorum(2), false), too_few(1, 2));
    it.promised(NodeId(3), LogState { lease: Duration::from_millis(7), ..log(&[(1, 0)], 40, three.clone()) });
    assert_eq!(it.plan(Safety::Quorum(2), false), Plan::Lead { term: Term(2) });
    assert_eq!(it.lease_left(), Duration::from_millis(7));
    // Those histories say that node 9 has led: if it answers, its term is over there.
    it.promised(NodeId(9), log(&[(1, 0)], 40, three.clone()));
    assert_eq!(it.lease_left(), Duration::ZERO);
    let living = Living { term: Term(1), node: NodeId(1) };
    it.observe(NodeId(3), Answer::LedBy(living));
    assert_eq!(it.plan(Safety::Quorum(2), false), Plan::Stop(Stopped::Superseded { living, lives: true }));
    // An operator may promote one of two that are very safe; it does not do so by itself.
    let pair = set(&[1, 2], Some(2), 1);
    let ordered = Candidacy::new(NodeId(2), log(&[(1, 0)], 50, pair.clone()), &state);
    assert_eq!(ordered.plan(Safety::VerySafe, false), Plan::Lead { term: Term(2) });
    assert_eq!(stands(&pair).plan(Safety::VerySafe, false), too_few(1, 2));
    assert_eq!(stands(&None).plan(Safety::OneSafe, false), too_few(1, 2), "nothing says who counts");
}
