//! Node 1 leads, node 2 follows and stands, node 5 is their witness.

use super::*;

/// The witness, in the file that it had first.
fn witness(incarnation: u64) -> Holder {
    Holder::of_witness(NodeId(5), incarnation)
}

/// Written by node 1: the witness and these.
fn set_of(number: u64, members: &[u64]) -> Option<InSyncSet> {
    let members = logs(members).into_iter().chain([witness(1)]).collect();
    of_one(set(number, &[], 1)).map(|set| InSyncSet { members, ..set })
}

fn candidate(known: &Option<InSyncSet>) -> Candidacy {
    Candidacy::new(NodeId(2), log(&[(1, 0)], 50, known.clone()), &Fence::new(Term(1), None))
}

/// What the witness says that has noted `known` in the file of this incarnation.
fn noted(known: &Option<InSyncSet>, incarnation: u64) -> Answer {
    Answer::NoVote(Testimony {
        incarnations: vec![incarnation],
        set: known.clone(),
        lease: Duration::from_millis(9),
        granted: None,
    })
}

const LEADS: Plan = Plan::Lead { term: Term(2) };

#[test]
fn the_standby_leads_with_the_consent_of_the_witness_alone() {
    for safety in [Safety::Majority, Safety::TwoSafe] {
        let pair = set_of(4, &[1, 2]);
        let mut it = candidate(&pair).automatic();
        assert!(matches!(it.plan(safety, false), Plan::Stop(Stopped::TooFew { answered: 1, needed: 2 })));
        it.observe(NodeId(5), noted(&pair, 1));
        assert_eq!((it.plan(safety, false), it.lease_left()), (LEADS, Duration::from_millis(9)));
        // Its own term begins with all three.
        let Succession::Of(of) = it.succession(false) else { panic!("it knows the newest") };
        assert_eq!(of.members, pair.unwrap().members);
    }
}

#[test]
fn nobody_leads_without_the_primary_when_that_has_gone_on_alone() {
    let pair = set_of(4, &[1, 2]);
    let mut it = candidate(&pair);
    it.observe(NodeId(5), noted(&set_of(5, &[1]), 1));
    assert!(matches!(it.plan(Safety::Majority, false), Plan::Stop(Stopped::Newcomer { .. })));
    // A witness that has lost its file does not know that.
    let mut it = candidate(&pair);
    it.observe(NodeId(5), noted(&None, 2));
    assert!(matches!(
        it.plan(Safety::Majority, false),
        Plan::Stop(Stopped::SetUncertain { answered: 1, needed: 2, .. })
    ));
}

/// The primary that has gone on alone comes back by itself; and one of a pair with either of the
/// others.
#[test]
fn a_primary_comes_back_with_what_it_has_of_the_set() {
    let back = |known: &Option<InSyncSet>| {
        let mine = log(&[(1, 0)], 90, known.clone());
        Candidacy::new(NodeId(1), mine, &Fence::new(Term(1), Some(NodeId(1)))).comes_back(false)
    };
    assert_eq!(back(&set_of(5, &[1])).plan(Safety::Majority, false), LEADS);
    let pair = set_of(4, &[1, 2]);
    assert!(matches!(back(&pair).plan(Safety::Majority, false), Plan::Stop(_)));
    let mut it = back(&pair);
    it.promised(NodeId(2), log(&[(1, 0)], 90, pair.clone()));
    assert_eq!(it.plan(Safety::Majority, false), LEADS);
    let mut it = back(&pair);
    it.observe(NodeId(5), noted(&pair, 1));
    assert_eq!(it.plan(Safety::Majority, false), LEADS);
    it.observe(NodeId(5), noted(&set_of(6, &[2]).map(|set| InSyncSet { term: Term(1), ..set }), 1));
    assert!(matches!(it.plan(Safety::Majority, false), Plan::Stop(Stopped::Newcomer { .. })), "it was put out");
}

/// Both others are gone, and an operator says so of the primary: no other node could have led.
#[test]
fn an_operator_does_without_the_primary_and_the_witness_of_a_pair() {
    let pair = set_of(4, &[1, 2]);
    assert_eq!(candidate(&pair).without_primary().plan(Safety::Majority, false), LEADS);
    let three = set_of(4, &[1, 2, 3]);
    let plan = candidate(&three).without_primary().plan(Safety::TwoSafe, false);
    assert!(matches!(plan, Plan::Stop(Stopped::SetUncertain { answered: 1, needed: 3, .. })), "{plan:?}");
}

/// The witness follows terms that are in no log which is heard: what it granted to such a primary
/// is waited for, though the candidate itself led before that one, as far as it knows.
#[test]
fn what_the_witness_granted_to_a_later_primary_is_waited_for() {
    let pair = set_of(4, &[1, 2]);
    let granted = |node: u64| {
        let mut it = candidate(&pair);
        // Node 2 wrote the last term of its log.
        let mut mine = TermHistory::first(Term(1), NodeId(1), 1);
        mine.begin(TermEntry { term: Term(2), start: Lsn(40), node: NodeId(2), nonce: 1 }).unwrap();
        it.fetched(LogState { history: mine, ..log(&[(1, 0)], 50, pair.clone()) });
        let Answer::NoVote(known) = noted(&pair, 1) else { unreachable!("it notes") };
        let granted = (node > 0).then_some(Living { term: Term(3), node: NodeId(node) });
        it.observe(NodeId(5), Answer::NoVote(Testimony { granted, ..known }));
        it.lease_left()
    };
    let waits = Duration::from_millis(9);
    assert_eq!([granted(1), granted(2), granted(0)], [waits, Duration::ZERO, waits]);
}

/// Three nodes with data count on some of them while the witness is still named: it is one of those
/// that may know of a later set.
#[test]
fn the_witness_knows_of_sets_that_count_members() {
    let members = logs(&[1, 2, 3]).into_iter().chain([witness(1)]).collect();
    let counted = of_one(quorum(&[], 2)).map(|set| InSyncSet { members, ..set });
    let mut it = candidate(&counted);
    it.promised(NodeId(1), log(&[(1, 0)], 50, counted.clone()));
    assert!(matches!(it.plan(Safety::Majority, false), Plan::Stop(Stopped::TooFew { answered: 2, needed: 3 })));
    it.observe(NodeId(5), noted(&counted, 1));
    assert_eq!(it.plan(Safety::Majority, false), LEADS);
}

/// It knows of the in-sync sets that it was in, since those are noted on disk.
#[test]
fn one_that_has_lost_what_it_held_is_a_witness_of_sets_and_of_nothing_else() {
    let set = |number, members: &[u64]| set(number, members, 1).unwrap();
    let history = [(1, 0)];
    let candidate = |me: u64, own: &InSyncSet| {
        Candidacy::new(NodeId(me), log(&history, 50, Some(own.clone())), &Fence::new(Term(1), Some(NodeId(1))))
    };
    let plan = |candidate: &Candidacy| candidate.plan(Safety::TwoSafe, false);
    let all = set(4, &[1, 2, 3]);
    let mut back = candidate(1, &all);
    assert!(matches!(plan(&back), Plan::Stop(Stopped::SetUncertain { answered: 1, needed: 2, .. })));
    back.met(
        NodeId(3),
        Testimony { incarnations: vec![5], set: Some(all.clone()), lease: Duration::ZERO, granted: None },
    );
    assert!(
        matches!(plan(&back), Plan::Stop(Stopped::SetUncertain { answered: 1, needed: 2, .. })),
        "its directory is new"
    );
    // It has other memory by now, in the same directory.
    back.met(
        NodeId(3),
        Testimony { incarnations: vec![1, 5], set: Some(all.clone()), lease: Duration::ZERO, granted: None },
    );
    assert_eq!(plan(&back), Plan::Lead { term: Term(2) });
    // The others have continued without this one, and none that holds anything was heard.
    let mut out = candidate(2, &all);
    let without = || Some(InSyncSet { floor: 0, ..set(5, &[1, 3]) });
    out.met(NodeId(3), Testimony { incarnations: vec![1], set: without(), lease: Duration::ZERO, granted: None });
    assert!(matches!(plan(&out), Plan::Stop(Stopped::SetUncertain { .. })), "{:?}", plan(&out));
    out.promised(NodeId(1), log(&history, 80, without()));
    assert_eq!(plan(&out), Plan::Fetch(Fetch { from: NodeId(1), cut_at: Lsn(50), upto: Lsn(80) }));
}
