//! Terms that were begun beside one another: what one that committed nothing has written counts for
//! nothing.

use super::*;

/// A later term that was never in effect does not undo what the earlier one has committed since:
/// the node that was promised to both candidate and primary has lost its log.
#[test]
fn what_an_earlier_term_has_committed_outranks_a_term_that_was_never_in_effect() {
    let fence = Fence::new(Term(5), None);
    let newest = |number, term, members: &[u64]| set(number, members, 1).map(|it| InSyncSet { term: Term(term), ..it });
    let later = newest(11, 5, &[1, 2, 3]);
    let mine = log(&[(4, 0), (5, 40)], 70, later);
    let with = |committed, set| {
        let mut candidate = Candidacy::new(NodeId(1), mine.clone(), &fence);
        let earlier = LogState { committed: Lsn(committed), ..log(&[(4, 0)], 60, set) };
        candidate.promised(NodeId(3), earlier);
        candidate.plan(Safety::TwoSafe, false)
    };
    let fetch = Plan::Fetch(Fetch { from: NodeId(3), cut_at: Lsn(40), upto: Lsn(60) });
    assert_eq!(with(50, newest(14, 4, &[2, 3])), fetch);
    // Nothing that was committed is in the candidate's way.
    assert_eq!(with(40, newest(14, 4, &[2, 3])), Plan::Lead { term: Term(6) });
    // The later term was in effect without that node.
    let without = LogState { set: newest(12, 5, &[1, 2]), ..mine.clone() };
    let mut candidate = Candidacy::new(NodeId(1), without, &fence);
    candidate.promised(NodeId(3), LogState { committed: Lsn(50), ..log(&[(4, 0)], 60, newest(14, 4, &[2, 3])) });
    assert_eq!(candidate.plan(Safety::TwoSafe, false), Plan::Lead { term: Term(6) });
}

/// The same where any two of a set hold every commit, and where what was committed since is not
/// known: enough members of the set that the later term has followed have nothing of that term.
#[test]
fn a_term_that_too_few_members_have_followed_was_never_in_effect() {
    let fence = Fence::new(Term(5), None);
    let record = |number, term, members: &[u64], before: &[&[u64]]| {
        let before = before.iter().map(|members| earlier(logs(members), Some(2))).collect();
        quorum(members, 2).map(|it| InSyncSet { number, term: Term(term), before, ..it })
    };
    let later = record(6, 5, &[1, 2, 3], &[&[1, 3]]);
    let earlier = log(&[(4, 0)], 60, record(9, 4, &[3, 7], &[]));
    // Node 1, which has begun it, has lost its log, and node 3 continues with another node.
    let at = |me: u64, mine: &LogState, others: &[(u64, &LogState)]| {
        let mut candidate = Candidacy::new(NodeId(me), mine.clone(), &fence);
        others.iter().for_each(|(node, log)| candidate.promised(NodeId(*node), (*log).clone()));
        candidate
    };
    let mine = log(&[(4, 0), (5, 40)], 70, later.clone());
    let plan = |candidate: Candidacy, safety| candidate.plan(safety, false);
    let follows = plan(at(2, &mine, &[(3, &earlier)]), Safety::Quorum(2));
    assert!(matches!(&follows, Plan::Stop(Stopped::Newcomer { newest }) if newest.term == Term(4)), "{follows:?}");
    assert_eq!(plan(at(3, &earlier, &[(2, &mine)]), Safety::Quorum(2)), Plan::Lead { term: Term(6) });
    // That holds for any number of records without effect, and not for what was before all of them.
    for (first, of) in [(6, Term(4)), (11, Term(5))] {
        let many = record(16, 5, &[1, 2, 3], &[&[1, 3]]).map(|set| InSyncSet { first, after: Term(4), ..set });
        let mine = LogState { set: many, ..mine.clone() };
        assert_eq!(at(2, &mine, &[(3, &earlier)]).newest_set().unwrap().term, of);
    }
    // Of two sets that were possible before, the term would have needed enough members of each.
    let of_two = record(6, 5, &[1, 2, 3], &[&[1, 3], &[1, 2, 3]]);
    let of_two = LogState { set: of_two, ..mine.clone() };
    assert_eq!(at(2, &of_two, &[(3, &earlier)]).newest_set().unwrap().term, Term(4));
    // A member that has followed would have kept node 3 from going on.
    let both = plan(at(2, &mine, &[(1, &mine), (3, &earlier)]), Safety::Quorum(2));
    assert_eq!(both, Plan::Lead { term: Term(6) });
    // Of three members, one that lacks it says nothing.
    let mine = log(&[(4, 0), (5, 40)], 70, record(6, 5, &[1, 2, 3], &[&[1, 3, 8]]));
    assert_eq!(
        plan(at(2, &mine, &[(3, &earlier)]), Safety::Quorum(2)),
        Plan::Stop(Stopped::TooFew { answered: 1, needed: 2 })
    );
    // A later term is not something of this one: both members of the set before have gone another
    // way, so what node 2 has written after them was never in effect.
    let mine = log(&[(2, 0), (3, 40)], 70, record(8, 3, &[1, 2, 3], &[&[1, 3]]));
    let others = log(&[(2, 0), (4, 30)], 60, record(8, 5, &[1, 3], &[&[1, 3]]));
    let candidate = at(2, &mine, &[(1, &others), (3, &others)]);
    assert_eq!(candidate.newest_set(), others.set);
}

/// Two members have begun terms of one number, and one of them has lost its log and follows the
/// other. A node that was fed by the first, and is named by the second, knows more sets of the
/// first and has more of its log: nothing of that counts.
#[test]
fn of_two_terms_of_one_number_the_one_counts_that_may_have_committed() {
    let begun = |node: u64, nonce: u64, end, set| {
        let mut history = history(&[(1, 0)]);
        history.begin(TermEntry { term: Term(2), start: Lsn(40), node: NodeId(node), nonce }).unwrap();
        LogState { history, ..log(&[(1, 0)], end, set) }
    };
    let record = |primary, number, members: BTreeSet<Holder>, before: &BTreeSet<Holder>| {
        let (primary, before) = (NodeId(primary), vec![earlier(before.clone(), Some(2))]);
        set(number, &[], 1).map(|it| InSyncSet { term: Term(2), primary, quorum: Some(2), members, before, ..it })
    };
    let (first, emptied) = (logs(&[0, 1]), Holder::new(NodeId(1), 7));
    let again: BTreeSet<_> = [Holder::new(NodeId(0), 1), emptied].into();
    let all: BTreeSet<_> = again.iter().copied().chain(logs(&[2])).collect();
    let committed = LogState { committed: Lsn(60), incarnation: 7, ..begun(0, 6, 70, record(0, 8, all, &again)) };
    for number in [4, 12] {
        let void = || begun(1, 5, 90, record(1, number, first.clone(), &first));
        let mut candidate = Candidacy::new(NodeId(2), void(), &Fence::new(Term(2), Some(NodeId(1))));
        candidate.promised(NodeId(1), committed.clone());
        candidate.promised(NodeId(0), LogState { incarnation: 1, ..committed.clone() });
        let Plan::Fetch(Fetch { cut_at, upto, .. }) = candidate.plan(Safety::Quorum(2), false) else {
            panic!("{:?}", candidate.plan(Safety::Quorum(2), false))
        };
        assert_eq!((cut_at, upto), (Lsn(40), Lsn(70)), "with its set {number}");
        let mut other = Candidacy::new(NodeId(1), committed.clone(), &Fence::new(Term(2), Some(NodeId(0))));
        other.promised(NodeId(2), void());
        let leads = matches!(other.plan(Safety::Quorum(2), false), Plan::Lead { .. });
        assert_eq!(leads, number < 8, "what node 0 knows of the sets may be needed");
    }
}

/// Two terms follow one set. A third one, known only to a node without a vote, follows the later of
/// the two: that one counts, and not the older one, whose set has the number of the third's.
#[test]
fn a_term_that_was_never_in_effect_gives_way_to_the_one_that_it_follows() {
    let record = |number, term: u32, first, after: u32| {
        let (term, after) = (Term(term), Term(after));
        quorum(&[1, 2, 3], 2).map(|it| InSyncSet { term, number, first, after, ..it })
    };
    let voteless = |log| LogState { synchronous: false, ..log };
    let at = |me: u64, mine: LogState, third: Option<InSyncSet>, other: LogState| {
        let mut candidate = Candidacy::new(NodeId(me), mine, &Fence::new(Term(6), None));
        candidate.promised(NodeId(9), voteless(log(&[(1, 0), (5, 20), (6, 80)], 90, third)));
        candidate.promised(NodeId(if me == 1 { 2 } else { 1 }), other);
        candidate
    };
    let committed = || LogState { committed: Lsn(70), ..log(&[(1, 0), (5, 20)], 75, record(5, 5, 5, 1)) };
    let older = || log(&[(1, 0), (4, 30)], 40, record(6, 4, 5, 1));
    let candidate = at(2, older(), record(6, 6, 6, 5), committed());
    assert_eq!(candidate.newest_set(), record(5, 5, 5, 1));
    let fetch = Plan::Fetch(Fetch { from: NodeId(1), cut_at: Lsn(20), upto: Lsn(75) });
    assert_eq!(candidate.plan(Safety::Quorum(2), false), fetch);
    assert_eq!(
        at(1, committed(), record(6, 6, 6, 5), older()).plan(Safety::Quorum(2), false),
        Plan::Lead { term: Term(7) }
    );
    // A set says that one before it took effect: members that lack all of that were set back.
    let settled = record(7, 6, 6, 5);
    assert_eq!(at(2, older(), settled.clone(), committed()).newest_set(), settled);
}

/// Nothing is committed in a term before a record of it: what was written in one whose record is
/// not known does not make a log the more advanced one.
#[test]
fn a_term_without_a_record_counts_for_nothing() {
    let set = || quorum(&[1, 2, 9], 2);
    let mut candidate = Candidacy::new(NodeId(1), log(&[(1, 0)], 50, set()), &Fence::new(Term(2), None));
    candidate.promised(NodeId(2), log(&[(1, 0), (2, 40)], 80, set()));
    assert_eq!(candidate.plan(Safety::Quorum(2), false), Plan::Lead { term: Term(3) });
    candidate.promised(NodeId(2), log(&[(1, 0), (2, 60)], 80, set()));
    let fetch = Plan::Fetch(Fetch { from: NodeId(2), cut_at: Lsn(50), upto: Lsn(80) });
    assert_eq!(candidate.plan(Safety::Quorum(2), false), fetch);
}

/// Two terms follow one another, and neither commits anything, since a member that both needed has
/// nothing of them. It has led since, with a node that had promised itself to both and has lost
/// its log since: what it has written since is no older than the first of the two.
#[test]
fn what_was_written_beside_two_terms_without_effect_counts() {
    let record = |number, term, members: &[u64], before: &[&[u64]]| {
        let before = before.iter().map(|members| earlier(logs(members), Some(2))).collect();
        quorum(members, 2).map(|it| InSyncSet { number, first: 7, term: Term(term), before, ..it })
    };
    let later = record(7, 8, &[1, 2, 3], &[&[1, 3]]).map(|set| InSyncSet { after: Term(6), primary: NodeId(2), ..set });
    let newest = |history: &[(u32, u64)], set| {
        let mine = log(&[(2, 0), (6, 40), (8, 50)], 70, later.clone());
        let mut candidate = Candidacy::new(NodeId(2), mine, &Fence::new(Term(8), None));
        candidate.promised(NodeId(1), log(history, 60, set));
        candidate.newest_set()
    };
    let beside = [(2, 0), (3, 30), (5, 45)];
    let since = record(11, 5, &[1, 7], &[]);
    assert_eq!(newest(&beside, since.clone()), since);
    assert_eq!(newest(&[(2, 0), (6, 40)], since), later, "the first of the two may have taken effect");
    assert_eq!(newest(&beside, record(6, 5, &[1, 7], &[])), later, "that may be older than both");
    assert_eq!(newest(&beside, record(11, 5, &[1, 2], &[&[1, 3]])), later, "without node 2 nothing is committed by it");
}

/// The first of two sets may be in effect still, and one of its members alone be a candidate, while
/// the other one, which has given its promise to a third node, loses its log: neither hears the
/// other.
#[test]
fn who_is_no_member_of_a_set_that_may_be_in_effect_does_not_lead() {
    let record = |before: &[&[u64]]| {
        let before = before.iter().map(|members| Earlier { floor: 1, ..earlier(logs(members), None) }).collect();
        set(4, &[1, 2, 3], 1).map(|it| InSyncSet { before, ..it })
    };
    let plan = |me: u64, others: &[u64], set: &Option<InSyncSet>| {
        let state = || log(&[(1, 0)], 50, set.clone());
        let mut candidate = Candidacy::new(NodeId(me), state(), &Fence::new(Term(1), None));
        others.iter().for_each(|node| candidate.promised(NodeId(*node), state()));
        candidate.plan(Safety::TwoSafe, false)
    };
    let (possible, settled) = (record(&[&[1, 2]]), record(&[]));
    assert!(matches!(plan(3, &[1], &possible), Plan::Stop(Stopped::Newcomer { .. })));
    let leads = Plan::Lead { term: Term(2) };
    assert_eq!(plan(3, &[1, 2], &possible), leads, "no other can be a candidate");
    assert_eq!((plan(2, &[1], &possible), plan(3, &[1], &settled)), (leads.clone(), leads));
}

/// Under 1-safe two nodes have led alone, each in its own term 2. Neither gives up what it may have
/// acknowledged unless a person says so. With force, each leads with that.
#[test]
fn who_has_led_alone_keeps_what_it_has() {
    let of = |me: u64, end: u64| {
        let set = quorum(&[me], 1).map(|set| InSyncSet {
            level: Safety::OneSafe,
            term: Term(2),
            primary: NodeId(me),
            number: 9,
            first: 9,
            ..set
        });
        let mut log = log(&[(1, 0)], end, set);
        let entry = TermEntry { term: Term(2), start: Lsn(50), node: NodeId(me), nonce: me };
        log.history.begin(entry).unwrap();
        log
    };
    let plan = |led: Option<u32>, force: bool| {
        let mut candidate = Candidacy::new(NodeId(2), of(2, 80), &Fence::new(Term(2), None)).led(led.map(Term));
        candidate.promised(NodeId(3), of(3, 90));
        candidate.plan(Safety::OneSafe, force)
    };
    let holds_more = Stopped::HoldsMore { than: NodeId(3), at: Lsn(50), committed: Lsn(80) };
    assert_eq!(plan(Some(2), false), Plan::Stop(holds_more));
    assert_eq!(plan(Some(2), true), Plan::Lead { term: Term(3) });
    // In a term that did not take effect, nothing was acknowledged.
    let fetch = Plan::Fetch(Fetch { from: NodeId(3), cut_at: Lsn(50), upto: Lsn(90) });
    assert_eq!((plan(None, false), plan(Some(1), true)), (fetch.clone(), fetch));
}

/// Both led a term 3 of their own, each by a set of its own log alone. An operator who asks for one
/// of them is shown what the other has acknowledged; who forces it gives that up.
#[test]
fn a_living_primary_beside_the_candidate_keeps_what_it_acknowledged() {
    let of = |me: u64, (term, end, committed): (u32, u64, u64)| {
        let alone = set(9 - me, &[me], 0).map(|set| InSyncSet { term: Term(term), primary: NodeId(me), ..set });
        let mut log = LogState { committed: Lsn(committed), ..log(&[(1, 0)], end, alone) };
        log.history.begin(TermEntry { term: Term(term), start: Lsn(50), node: NodeId(me), nonce: me }).unwrap();
        log
    };
    let plan = |other: (u32, u64, u64), force: bool| {
        let mut candidate = Candidacy::new(NodeId(2), of(2, (3, 80, 80)), &Fence::new(Term(3), None));
        candidate = candidate.led(Some(Term(3)));
        candidate.promised(NodeId(3), of(3, other));
        candidate.plan(Safety::Majority, force)
    };
    let leads = Plan::Lead { term: Term(4) };
    let left_out = Stopped::LeavesOut { node: NodeId(3), at: Lsn(50), committed: Lsn(70) };
    assert_eq!(plan((3, 70, 70), false), Plan::Stop(left_out));
    assert_eq!((plan((3, 70, 70), true), plan((3, 70, 50), false)), (leads.clone(), leads.clone()));
    // Its term has ended: what it had was given up when this one began.
    assert_eq!(plan((2, 70, 70), false), leads);
}
