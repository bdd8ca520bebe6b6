//! Promotions, round by round.

use freshet_base::ClusterId;

use super::*;
use crate::{
    in_sync::{Holder, tests::first_set},
    term::TermHistory,
};

fn log(end: u64) -> LogState {
    let history = TermHistory::first(Term(1), NodeId(1), 1);
    let terms = TermState { set: Some(set()), incarnation: Some(1), ..TermState::of(ClusterId(1), history) };
    LogState::of(terms, NodeId(1), Lsn(end), Lsn::ZERO)
}

/// Any two of three hold every commit.
fn set() -> InSyncSet {
    let members = [1, 2, 3].map(|node| Holder::new(NodeId(node), 1)).into();
    InSyncSet { level: Safety::Quorum(2), quorum: Some(2), floor: 1, ..first_set(NodeId(1), members) }
}

fn state() -> TermState {
    TermState { history: TermHistory::first(Term(1), NodeId(1), 1), ..TermState::empty() }
}

fn rules(safety: Safety) -> Rules {
    Rules { safety, consent: Consent::Nothing, standing: Standing::Ordered }
}

#[test]
fn it_sounds_out_consults_fetches_and_finishes() {
    let mut state = state();
    let mut it = Promotion::new(NodeId(2), log(50), &state, rules(Safety::Quorum(2)));
    state.fence = it.raise(state.fence).unwrap();
    assert_eq!(state.fence.highest(), Term(0), "a hopeless attempt disturbs no node");
    assert!(!it.question(log(50)).binding);
    it.observe(NodeId(3), Answer::Log(log(80)));
    assert_eq!(it.decide(0), Step::Ask);
    state.fence = it.raise(state.fence).unwrap();
    assert_eq!((state.fence.highest(), state.fence.holder()), (Term(2), Some(NodeId(2))));
    let question = it.question(log(50));
    assert_eq!(
        question,
        Question { term: Term(2), binding: true, gives_way: None, handed: None, only: None, automatic: false }
    );
    it.observe(NodeId(3), Answer::Log(log(80)));
    let fetch = Fetch { from: NodeId(3), cut_at: Lsn(50), upto: Lsn(80) };
    assert_eq!(it.decide(0), Step::Fetch(fetch));
    let welcome = |cut_at, end| Welcome {
        cluster: ClusterId(7),
        node: NodeId(3),
        above: Vec::new(),
        term: Term(2),
        history: TermHistory::first(Term(1), NodeId(1), 1),
        cut_at: Lsn(cut_at),
        end: Lsn(end),
        keep_alive_ms: 10,
        lease_ms: 0,
    };
    assert_eq!(fetch.check(&welcome(50, 90)), Ok(()));
    assert!(fetch.check(&welcome(0, 80)).is_err() && fetch.check(&welcome(50, 79)).is_err());
    assert!(it.fetch_failed() && it.fetch_failed() && !it.fetch_failed());
    it.question(log(80));
    assert_eq!(it.decide(0), Step::Finish { term: Term(2), after: Duration::ZERO });
    let inheritance = it.inheritance(Lsn(80));
    assert_eq!((inheritance.succession, inheritance.answered), (Succession::Of(set()), [NodeId(3)].into()));
}

/// Two that outbid each other would both be late.
#[test]
fn of_those_who_stand_at_the_same_time_one_continues() {
    let begun = || {
        let automatic = Rules { standing: Standing::Automatic, ..rules(Safety::Quorum(2)) };
        let mut it = Promotion::new(NodeId(2), log(50), &state(), automatic);
        let _ = it.raise(state().fence).unwrap();
        assert_eq!(it.question(log(50)).gives_way, Some(Term(0)));
        it.observe(NodeId(3), Answer::Log(log(50)));
        assert!(it.has_enough());
        assert_eq!(it.decide(0), Step::Ask);
        it
    };
    // It has promised another a term before it asks for one itself.
    let mut it = begun();
    let promised = Fence::new(Term(2), Some(NodeId(3)));
    assert_eq!(it.raise(promised), Ok(promised));
    assert!(!it.question(log(50)).binding);
    assert_eq!(it.decide(0), Step::Stop(Stopped::Contested(Term(2))));
    // Both have asked for the same term, or the other for a later one.
    for (highest, holder, continues) in [(2, 1, false), (2, 3, true), (3, 3, false)] {
        let mut it = begun();
        let _ = it.raise(state().fence).unwrap();
        assert!(it.question(log(50)).binding);
        it.observe(NodeId(3), Answer::Higher { highest: Term(highest), holder: Some(NodeId(holder)) });
        let step = it.decide(0);
        assert_eq!(step == Step::Ask, continues, "{highest}, {holder}: {step:?}");
    }
}

/// It would take the term from those who can do without it, and may die again before it leads.
#[test]
fn a_former_primary_lets_others_elect_and_yields_to_one_that_asks() {
    let begun = || {
        let rules = Rules { standing: Standing::ComesBack(ComesBack::default()), ..rules(Safety::Quorum(2)) };
        let mut it = Promotion::new(NodeId(1), log(50), &state(), rules);
        assert_eq!(it.raise(state().fence), Ok(state().fence));
        assert!(!it.question(log(50)).binding);
        it
    };
    for other in [Answer::Log(log(50)), Answer::Elects] {
        let mut it = begun();
        it.observe(NodeId(2), Answer::Elects);
        it.observe(NodeId(3), other);
        assert_eq!(it.decide(0), Step::Stop(Stopped::Contested(Term(2))));
    }
    let living = Living { term: Term(2), node: NodeId(3) };
    let mut it = begun();
    it.observe(NodeId(2), Answer::Elects);
    it.observe(NodeId(3), Answer::LedBy(living));
    assert_eq!(it.decide(0), Step::Stop(Stopped::Superseded { living, lives: true }));
    let mut it = begun();
    it.observe(NodeId(3), Answer::Log(log(50)));
    assert_eq!(it.decide(0), Step::Ask);
    let promised = Fence::new(Term(2), Some(NodeId(3)));
    assert_eq!(it.raise(promised), Ok(promised));
    assert!(!it.question(log(50)).binding);
    assert_eq!(it.decide(0), Step::Stop(Stopped::Contested(Term(2))));
}

/// Not even if all others answer, and not either when it is heard of between the rounds.
#[test]
fn a_node_that_stands_by_itself_stops_while_maintenance_lasts() {
    let begun = |standing| {
        let mut it = Promotion::new(NodeId(2), log(50), &state(), Rules { standing, ..rules(Safety::Quorum(2)) });
        assert_eq!(it.question(log(50)).automatic, standing == Standing::Automatic);
        it.observe(NodeId(3), Answer::Log(log(50)));
        it
    };
    let maintenance = || Answer::Maintenance(Notice::default());
    for (standing, stops) in [(Standing::Automatic, true), (Standing::Ordered, false)] {
        let mut it = begun(standing);
        it.observe(NodeId(1), maintenance());
        assert!(it.has_enough());
        assert_eq!(it.decide(0) == Step::Stop(Stopped::Maintenance), stops, "an operator promotes it all the same");
        let mut it = begun(standing);
        assert_eq!(it.decide(0), Step::Ask);
        let _ = it.raise(state().fence).unwrap();
        assert!(it.question(log(50)).binding);
        it.observe(NodeId(3), Answer::Log(log(50)));
        it.observe(NodeId(2), maintenance());
        assert_eq!(it.decide(0) == Step::Stop(Stopped::Maintenance), stops);
    }
}

/// The primary alone is asked for its promise. A candidate that it refuses disturbs no other node.
#[test]
fn a_role_is_handed_over_by_its_primary_before_others_are_asked() {
    let handed = HandOver { by: NodeId(1), term: Term(1), number: 77 };
    let begun = || {
        let rules = Rules { standing: Standing::Handed(handed), ..rules(Safety::Quorum(2)) };
        let mut it = Promotion::new(NodeId(2), log(50), &state(), rules);
        let _ = it.raise(state().fence).unwrap();
        let question = it.question(log(50));
        assert_eq!((question.binding, question.only, question.handed), (false, None, Some(77)));
        let leased = LogState { lease: Duration::from_millis(300), ..log(50) };
        it.observe(NodeId(1), Answer::Log(log(50)));
        it.observe(NodeId(3), Answer::Log(leased.clone()));
        assert_eq!(it.decide(0), Step::Ask);
        assert_eq!(it.raise(state().fence), Ok(state().fence), "nobody finds that the node knows of a later term");
        assert_eq!(it.question(log(50)).only, Some(NodeId(1)));
        (it, leased)
    };
    let (mut refused, _) = begun();
    refused.observe(NodeId(1), Answer::LedBy(Living { term: Term(1), node: NodeId(1) }));
    assert_eq!(refused.decide(0), Step::Stop(Stopped::NotHanded(NodeId(1))));
    let (mut silent, _) = begun();
    assert_eq!(silent.decide(1), Step::Stop(Stopped::NotHanded(NodeId(1))));
    let (mut it, leased) = begun();
    it.observe(NodeId(1), Answer::Log(log(50)));
    assert_eq!(it.decide(0), Step::Ask);
    assert_eq!(it.raise(state().fence), Ok(Fence::new(Term(2), Some(NodeId(2)))));
    let question = it.question(log(50));
    assert_eq!((question.term, question.binding, question.only), (Term(2), true, None));
    let mut late = it.clone();
    it.observe(NodeId(1), Answer::Log(log(50)));
    it.observe(NodeId(3), Answer::Log(leased.clone()));
    assert_eq!(it.decide(0), Step::Finish { term: Term(2), after: Duration::ZERO }, "no lease is left");
    // The node stood still, and the primary of before has taken its role back in the meantime.
    late.observe(NodeId(1), Answer::Higher { highest: Term(3), holder: Some(NodeId(1)) });
    late.observe(NodeId(3), Answer::Log(leased));
    assert_eq!(late.decide(0), Step::Stop(Stopped::Contested(Term(2))));
}

#[test]
fn a_promise_counts_only_if_it_was_asked_for() {
    let mut it = Promotion::new(NodeId(2), log(50), &state(), rules(Safety::Quorum(2)));
    it.question(log(50));
    it.observe(NodeId(3), Answer::Log(log(50)));
    assert_eq!(it.decide(0), Step::Ask);
    it.question(log(50));
    assert_eq!(it.decide(0), Step::Stop(Stopped::TooFew { answered: 1, needed: 2 }));
}

#[test]
fn a_former_primary_waits_for_all_while_there_is_time() {
    let waits_for_all = |waits_for_all| Standing::ComesBack(ComesBack { asks: false, waits_for_all });
    for (all, silent) in [(true, 1), (true, 0), (false, 1)] {
        let rules = Rules { standing: waits_for_all(all), ..rules(Safety::OneSafe) };
        let log = LogState { set: Some(InSyncSet { level: Safety::OneSafe, ..set() }), ..log(50) };
        let mut it = Promotion::new(NodeId(1), log.clone(), &state(), rules);
        it.question(log);
        let waits = Step::Stop(Stopped::TooFew { answered: 1, needed: 2 });
        assert_eq!(it.decide(silent), if all && silent > 0 { waits } else { Step::Ask });
    }
}

/// Once it has promised a later term to one that can be lost, it does not wait for that one.
#[test]
fn who_promised_another_a_later_term_does_not_wait_for_it() {
    let standing = Standing::ComesBack(ComesBack { asks: true, waits_for_all: true });
    for (holder, waits) in [(None, true), (Some(NodeId(1)), true), (Some(NodeId(2)), false)] {
        let state = TermState { fence: Fence::new(Term(2), holder), ..state() };
        let mut it = Promotion::new(NodeId(1), log(50), &state, Rules { standing, ..rules(Safety::Quorum(2)) });
        it.question(log(50));
        it.observe(NodeId(3), Answer::Log(log(50)));
        assert_eq!(it.grace().is_none(), waits);
        let stop = Step::Stop(Stopped::TooFew { answered: 2, needed: 3 });
        assert_eq!(it.decide(1), if waits { stop } else { Step::Ask }, "{holder:?}");
    }
}

#[test]
fn two_that_outbid_one_another_end() {
    let mut it = Promotion::new(NodeId(2), log(50), &state(), rules(Safety::OneSafe));
    let mut rounds = 0;
    loop {
        let term = it.question(log(50)).term;
        it.observe(NodeId(3), Answer::Higher { highest: term, holder: None });
        rounds += 1;
        match it.decide(0) {
            Step::Ask => {}
            step => break assert!(matches!(step, Step::Stop(Stopped::Contested(_))), "{step:?}"),
        }
    }
    assert_eq!(rounds, ROUNDS);
}

/// A candidate asks once more when it has heard of others, and when some may only be slow.
#[test]
fn a_candidate_may_ask_more_often_than_it_outbids_others() {
    let mut it = Promotion::new(NodeId(2), log(50), &state(), rules(Safety::Quorum(2)));
    for _ in 0..=2 * ROUNDS {
        it.question(log(50));
    }
    let too_few = Step::Stop(Stopped::TooFew { answered: 1, needed: 2 });
    assert_eq!(it.decide(0), too_few);
    it.question(log(50));
    assert_eq!(it.decide(0), too_few);
}

/// With force a node may begin below what it knew to be committed.
#[test]
fn no_more_is_committed_than_the_term_begins_with() {
    let mut it = Promotion::new(NodeId(2), log(100), &state(), rules(Safety::OneSafe));
    it.question(LogState { committed: Lsn(100), ..log(100) });
    assert_eq!(it.inheritance(Lsn(100)).committed, Lsn(100));
    assert_eq!(it.inheritance(Lsn(60)).committed, Lsn(60));
}

#[test]
fn the_level_comes_from_the_nearest_source() {
    let (two, very) = (Some(Safety::TwoSafe), Some(Safety::VerySafe));
    assert_eq!(known_level(two, very), Safety::TwoSafe);
    assert_eq!(known_level(None, very), Safety::VerySafe);
    assert_eq!(known_level(None, None), Safety::OneSafe);
}
