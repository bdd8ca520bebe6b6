//! A witness votes for sets, and holds nothing of what is committed.

use super::*;
use crate::in_sync::SetName;

const W: NodeId = NodeId(5);

/// A primary, its witness and how far its log reaches.
struct Pair {
    rule: CommitRule,
    end: u64,
    now: u64,
    /// What the witness has noted, if it can be reached.
    noted: Option<Option<SetName>>,
    /// The newest set that was written.
    written: u64,
}

impl Pair {
    /// Under this level, of this primary alone.
    fn new(safety: Safety) -> Self {
        let config = RuleConfig { lease: Some(Duration::from_millis(50)), ..*rule(safety, 1).config() };
        let rule = CommitRule::new(config, Lsn(0), ms(0));
        let rule = rule.recorded(me(), Term(1), Succession::begin(), &BTreeSet::new(), ms(0));
        Self { rule, end: 0, now: 0, noted: Some(None), written: 0 }
    }

    /// Some time passes. Sets are written, these standbys keep up, and the witness notes what it
    /// can be asked for. Gives the members of the set in effect.
    fn settle(&mut self, standbys: &[NodeId], pause: u64) -> Vec<u64> {
        self.now += pause;
        let at = ms(self.now);
        let _ = self.rule.apply(Event::Tick, at);
        for _ in 0..8 {
            if let Some(set) = self.rule.to_write().cloned() {
                self.end += 10;
                write(&mut self.rule, set.number, self.end, at);
                self.written = set.number;
                let noted = self.noted.as_mut();
                noted.into_iter().for_each(|noted| *noted = Some(set.name()));
            }
            if let Some(noted) = self.noted {
                let _ = self.rule.apply(Event::Witnessed { witness: W, incarnation: 1, noted, observed: at }, at);
            }
            let _ = self.rule.apply(Event::Durable(Lsn(self.end)), at);
            let acks = |node: &NodeId| _ = self.rule.apply(acked(*node, self.end), at);
            standbys.iter().for_each(acks);
        }
        self.rule.in_sync_set().unwrap().nodes().map(|node| node.0).collect()
    }

    /// The log grows; says whether that is committed without a word of anybody.
    fn commits_alone(&mut self) -> bool {
        self.end += 100;
        self.rule.apply(Event::Durable(Lsn(self.end)), ms(self.now)).committed == Lsn(self.end)
    }

    fn lose(&mut self, node: NodeId) {
        if node == W {
            self.noted = None;
        }
        let _ = self.rule.apply(Event::Left { standby: node }, ms(self.now));
    }

    fn leased(&self) -> bool {
        self.rule.lease_until() > ms(self.now)
    }
}

/// A primary that has taken over from one that is dead does not wait for that one, but for the
/// witness's consent.
#[test]
fn who_takes_over_does_not_wait_for_the_one_that_it_replaces() {
    let before = pair(Safety::Majority).rule.in_sync_set().unwrap().clone();
    let of = |answered: &[NodeId]| {
        let mut it = Pair::new(Safety::Majority);
        let rule = CommitRule::new(*it.rule.config(), Lsn(0), ms(0));
        let (me, answered) = (Holder::new(A, 1), answered.iter().copied().collect());
        it.rule = rule.recorded(me, Term(2), Succession::Of(before.clone()), &answered, ms(0));
        it
    };
    let mut it = of(&[W]);
    it.noted = None;
    it.settle(&[], 1);
    assert!(!it.commits_alone(), "the witness has yet to consent");
    let written = it.rule.to_write().cloned();
    assert_eq!(written, None);
    it.noted = Some(Some((Term(2), A, it.written)));
    assert_eq!(it.settle(&[], 1), [1, 5]);
    assert!(it.commits_alone());
    // One that has answered is waited for.
    let mut it = of(&[W, me().node]);
    assert_eq!(it.settle(&[], 1), [1, 5, 9]);
    assert!(!it.commits_alone());
    assert_eq!(it.settle(&[], 200), [1, 5]);
}

/// A pair with its witness.
fn pair(safety: Safety) -> Pair {
    let mut it = Pair::new(safety);
    let _ = it.rule.apply(joined(A, 0), ms(0));
    assert_eq!(it.settle(&[A], 1), [1, 5, 9]);
    it
}

#[test]
fn with_a_witness_a_pair_counts_three_and_commits_wait_for_data_alone() {
    for safety in [Safety::Majority, Safety::TwoSafe] {
        let mut it = pair(safety);
        let set = it.rule.in_sync_set().unwrap();
        assert_eq!((set.quorum, set.floor, set.roster.witness), (None, 1, Some(W)));
        assert_eq!(set.roster.voters, [A, me().node].into(), "it is no standby");
        assert_eq!((it.rule.standing(), it.rule.expected()), (Standing::Safe, 1));
        assert!(!it.commits_alone());
        expect(&mut it.rule, acked(A, it.end), ms(it.now), it.end);
    }
}

#[test]
fn the_primary_continues_alone_only_when_the_witness_has_noted_that() {
    let mut it = pair(Safety::Majority);
    it.lose(A);
    it.lose(W);
    assert!(!it.commits_alone());
    it.settle(&[], 200);
    let waits = it.rule.standing();
    assert!(matches!(waits, Standing::Blocked { .. }), "the standby may have the witness's consent: {waits:?}");
    assert!(!it.leased() && it.rule.committed() < it.rule.durable());
    assert_eq!(it.rule.to_write(), None, "whichever comes back first decides");
    it.noted = Some(Some((Term(1), me().node, it.written)));
    assert_eq!(it.settle(&[], 1), [5, 9]);
    assert!(it.commits_alone() && it.leased());
    // No other node can lead now, so the witness may go.
    it.lose(W);
    it.settle(&[], 500);
    assert!(it.commits_alone() && it.leased());
    assert!(matches!(it.rule.standing(), Standing::Degraded { in_sync: 0, .. }));
    // The standby is back before the witness: the two are a pair without one.
    let _ = it.rule.apply(joined(A, it.end), ms(it.now));
    assert_eq!(it.settle(&[A], 1), [1, 9]);
    assert_eq!(it.rule.standing(), Standing::Safe);
    assert!(!it.commits_alone());
    expect(&mut it.rule, acked(A, it.end), ms(it.now), it.end);
    it.noted = Some(None);
    assert_eq!(it.settle(&[A], 1), [1, 5, 9]);
}

/// The primary was alone with the witness, and begins another term without it. No other node can
/// lead, so the primary lets the witness go as it would a standby.
#[test]
fn a_term_that_begins_without_the_witness_of_before_lets_it_go() {
    let mut it = pair(Safety::Majority);
    it.lose(A);
    assert_eq!(it.settle(&[], 200), [5, 9]);
    let last = it.rule.in_sync_set().unwrap().clone();
    for standbys in [&[][..], &[A]] {
        let rule = CommitRule::new(*it.rule.config(), Lsn(it.end), ms(0));
        let answered = standbys.iter().copied().collect();
        let rule = rule.recorded(me(), Term(2), Succession::Of(last.clone()), &answered, ms(0));
        let mut it = Pair { rule, now: 0, noted: None, written: it.written, end: it.end };
        standbys.iter().for_each(|node| _ = it.rule.apply(joined(*node, it.end), ms(0)));
        (0..20).for_each(|_| _ = it.settle(standbys, 20));
        assert_eq!(it.rule.committed(), it.rule.durable());
        assert!(!matches!(it.rule.standing(), Standing::Blocked { .. }), "{:?}", it.rule.standing());
        let set = it.rule.in_sync_set().unwrap();
        assert!(set.nodes().eq(standbys.iter().copied().chain([me().node])), "{set:?}");
    }
}

#[test]
fn a_witness_that_is_lost_is_put_out_and_the_pair_is_one_without() {
    let mut it = pair(Safety::Majority);
    it.lose(W);
    assert_eq!(it.settle(&[A], 99), [1, 5, 9]);
    assert_eq!(it.settle(&[A], 2), [1, 9]);
    assert_eq!((it.rule.in_sync_set().unwrap().floor, it.rule.standing()), (0, Standing::Safe));
    it.noted = Some(None);
    assert_eq!(it.settle(&[A], 1), [1, 5, 9], "it comes back");
    // Another file of its node is another witness.
    let (witness, noted, observed) = (W, None, ms(it.now));
    let _ = it.rule.apply(Event::Witnessed { witness, incarnation: 2, noted, observed }, ms(it.now));
    let newest = it.rule.to_write().expect("the lost one goes");
    assert!(!newest.members.contains(&Holder::of_witness(W, 1)), "{newest:?}");
}

#[test]
fn among_three_nodes_with_data_it_has_no_vote_until_they_are_two() {
    let mut it = pair(Safety::Majority);
    let _ = it.rule.apply(joined(B, it.end), ms(it.now));
    assert_eq!(it.settle(&[A, B], 1), [1, 2, 9]);
    let set = it.rule.in_sync_set().unwrap();
    assert_eq!((set.quorum, set.floor, set.roster.witness), (Some(2), 1, Some(W)));
    let _ = it.rule.leave(B, Leaves::Removed, ms(it.now)).unwrap();
    assert_eq!(it.settle(&[A], 1), [1, 5, 9]);
    let _ = it.rule.leave(W, Leaves::Removed, ms(it.now)).unwrap();
    assert_eq!(it.settle(&[A], 1), [1, 9]);
    assert_eq!(it.rule.in_sync_set().unwrap().roster.witness, None, "a removed one does not come back");
    assert!(it.rule.members().all(|(_, member)| !member.witness), "nor is it known any more");
}

/// Its removal is not on record when the primary is started again, and the other node has lost its
/// log: no set without the witness takes effect before that has noted it.
#[test]
fn a_witness_that_leaves_may_have_to_note_that() {
    let mut before = pair(Safety::Majority).rule.in_sync_set().unwrap().clone();
    before.roster.leave(W, true);
    let with = |noted: Option<Option<SetName>>| {
        let mut it = Pair::new(Safety::Majority);
        let rule = CommitRule::new(*it.rule.config(), Lsn(0), ms(0));
        it.rule = rule.recorded(me(), Term(2), Succession::Of(before.clone()), &[A].into(), ms(0));
        it.noted = noted;
        let again = Event::Joined { standby: A, incarnation: 2, persisted: Lsn(0), synchronous: true };
        let _ = it.rule.apply(again, ms(0));
        (0..20).for_each(|_| _ = it.settle(&[A], 20));
        (it.rule.witness_to_ask(), it.commits_alone() || it.rule.committed() > Lsn(0))
    };
    assert_eq!(with(None), (Some(W), false));
    assert_eq!(with(Some(None)), (None, true), "it has noted the set without it");
}
