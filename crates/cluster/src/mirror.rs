//! What becomes of the batches that a failed primary has left in its mirrors' memory
//! (Active-Memory, section 5.2). It alone has written there; when it is given up, each mirror does
//! this ([`Recovering`]):
//!
//! 1. It revokes the primary's access: should that live on, nothing that it writes lands any more.
//! 2. It looks what its undo ring has, batch by batch, and 3. which places these have changed.
//! 4. It gives each batch a status: that is its [`Footprint`].
//! 5. It tells the others its footprint, and hears theirs.
//! 6. It keeps the batches that are ready on all of them, and undoes the others.
//!
//! So the paper has it: [`Rule::Marked`]. Clients are told of a commit when its mark has arrived
//! everywhere, which takes a second round. Under [`Rule::Whole`] a mirror keeps what has landed
//! wholly, with all before it, as a log standby keeps what it has made persistent. Then steps 3
//! to 5 are not needed: what clients were told has landed on every mirror that counts. Two mirrors
//! may keep different prefixes of the same log; a candidate follows the longer one
//! ([`crate::promotion`]). Nodes do that. The paper's rule has no user but the simulation, which
//! runs each history by both, and the tests of table 1.
//!
//! Under `Marked`, all keep the same if each of them can undo what is not ready on all. So the
//! primary uses undo entries again when the mark has arrived *everywhere*, and gives all mirrors
//! the same batches, as listing 1 does. If it did not, a mirror keeps what it cannot undo, and more
//! than the others: nothing that clients were told is lost.
//!
//! No mirror has to remember what was decided. A mirror that undoes takes its mark back first, so
//! that the footprint which it gives from then on leads to the same end; one that dies on the way
//! begins again.

mod state;

use std::collections::BTreeMap;

use freshet_base::{Lsn, NodeId};

pub use self::state::{Cut, MirrorState};

/// Which batches a recovery keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// Those that have landed wholly.
    Whole,
    /// Those that are marked on every node that takes part.
    Marked,
}

/// The same for one mirror, when it is decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keep {
    /// Those that have landed wholly, with all before them.
    Whole,
    /// Those that end at this LSN or below.
    Marked(Lsn),
}

/// What a mirror has of a batch (step 4). That it has nothing of one shows from what it has of
/// others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// An undo entry is torn, or the last one is missing. Entries land before data, so the data is
    /// untouched.
    Corrupt,
    /// The undo entries are whole. The data may be untouched, torn or complete.
    Logged,
    /// It is marked: all of it has landed, here and elsewhere.
    CommitReady,
}

/// What the feeder has left in a mirror's undo ring: batches that follow one another
/// without a gap.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Footprint {
    /// Where the first of them begins. Nothing below can be undone; all of it is marked.
    pub begin: Lsn,
    /// Where each of them ends, oldest first, and its status.
    pub batches: Vec<(Lsn, Status)>,
}

impl Footprint {
    /// Everything below is ready.
    pub fn ready(&self) -> Lsn {
        let ready = self.batches.iter().take_while(|(_, status)| *status == Status::CommitReady);
        ready.last().map_or(self.begin, |(end, _)| *end)
    }

    /// Where the last batch ends that is ready here, and at least in part on all of these. (With
    /// the same batches everywhere that is all of it.)
    fn common(&self, others: impl Iterator<Item = Lsn>) -> Lsn {
        let everywhere = others.fold(Lsn::MAX, Lsn::min);
        let mut kept = self.begin;
        for (end, status) in &self.batches {
            if *status != Status::CommitReady || everywhere <= kept {
                break;
            }
            kept = *end;
        }
        kept
    }
}

/// What a mirror has to do next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Step {
    /// Take the memory back from the feeder (step 1).
    Revoke,
    /// Look at the undo ring (steps 2 to 4).
    Look,
    /// Tell the others, and wait for what they say (step 5).
    Exchange,
    /// Keep these batches, and undo the others (step 6).
    Recover(Keep),
    /// The memory is the state of the database with the log up to here.
    Done(Lsn),
}

/// A mirror's recovery.
#[derive(Clone, Debug)]
pub struct Recovering {
    rule: Rule,
    revoked: bool,
    own: Option<Footprint>,
    /// Those that survive, and what they have said.
    others: BTreeMap<NodeId, Option<Footprint>>,
    end: Option<Lsn>,
}

impl Recovering {
    /// A recovery in which these mirrors take part beside this one.
    pub fn new(rule: Rule, others: impl IntoIterator<Item = NodeId>) -> Self {
        let others = others.into_iter().map(|node| (node, None)).collect();
        Self { rule, revoked: false, own: None, others, end: None }
    }

    /// What to do.
    pub fn next(&self) -> Step {
        match (&self.own, self.rule) {
            _ if let Some(end) = self.end => Step::Done(end),
            _ if !self.revoked => Step::Revoke,
            (_, Rule::Whole) => Step::Recover(Keep::Whole),
            (None, Rule::Marked) => Step::Look,
            (Some(_), Rule::Marked) if self.others.values().any(Option::is_none) => Step::Exchange,
            (Some(own), Rule::Marked) => {
                let ready = self.others.values().flatten().map(Footprint::ready);
                Step::Recover(Keep::Marked(own.common(ready)))
            }
        }
    }

    /// Nothing that the feeder writes lands any more.
    pub fn revoked(&mut self) {
        self.revoked = true;
    }

    /// The own ring was looked at.
    pub fn looked(&mut self, own: Footprint) {
        self.own = Some(own);
    }

    /// What to tell those who ask; none before the feeder's access was revoked, since more could
    /// still land.
    pub fn footprint(&self) -> Option<&Footprint> {
        self.own.as_ref().filter(|_| self.revoked)
    }

    /// Another mirror has said what it has. One that does not take part is not listened to.
    pub fn observe(&mut self, node: NodeId, footprint: Footprint) {
        if let Some(known) = self.others.get_mut(&node) {
            *known = Some(footprint);
        }
    }

    /// Another mirror does not take part any more: the cluster continues without it. If its word
    /// was heard, it counts all the same, since others may have acted on it.
    pub fn gone(&mut self, node: NodeId) {
        if self.others.get(&node).is_some_and(Option::is_none) {
            self.others.remove(&node);
        }
    }

    /// The memory was brought to the state with the log up to `end`.
    pub fn recovered(&mut self, end: Lsn) {
        self.end = Some(end);
    }
}

#[cfg(test)]
mod tests {
    use super::{
        Status::{CommitReady, Corrupt, Logged},
        *,
    };

    /// A mirror on which everything below 10 is marked, and that has these of the batches that end
    /// at 20, 30 and so on.
    fn with(batches: &[Status]) -> Footprint {
        let ends = (2..).map(|number| Lsn(number * 10));
        Footprint { begin: Lsn(10), batches: ends.zip(batches.iter().copied()).collect() }
    }

    /// What two mirrors keep, by the paper's rule.
    fn keep(one: &Footprint, other: &Footprint) -> Lsn {
        let [first, second] = [(one, other), (other, one)].map(|(own, other)| {
            let mut it = Recovering::new(Rule::Marked, [NodeId(2)]);
            assert_eq!(it.next(), Step::Revoke);
            it.revoked();
            assert_eq!((it.next(), it.footprint()), (Step::Look, None));
            it.looked(own.clone());
            assert_eq!((it.next(), it.footprint()), (Step::Exchange, Some(own)));
            it.observe(NodeId(3), with(&[]));
            assert_eq!(it.next(), Step::Exchange, "it does not take part");
            it.observe(NodeId(2), other.clone());
            let Step::Recover(Keep::Marked(upto)) = it.next() else { panic!("{it:?}") };
            it.recovered(upto);
            assert_eq!(it.next(), Step::Done(upto));
            upto
        });
        assert_eq!(first, second, "they agree");
        first
    }

    // Table 1 of the paper: what becomes of a transaction (here: of the batch that ends at 20), by
    // when the coordinator has failed.

    #[test]
    fn case_1_before_step_1() {
        assert_eq!(keep(&with(&[]), &with(&[])), Lsn(10));
    }

    #[test]
    fn case_2a_no_log() {
        for other in [Corrupt, Logged] {
            assert_eq!(keep(&with(&[]), &with(&[other])), Lsn(10));
        }
    }

    #[test]
    fn case_2b_corrupt_log() {
        for other in [Corrupt, Logged] {
            assert_eq!(keep(&with(&[Corrupt]), &with(&[other])), Lsn(10));
        }
    }

    #[test]
    fn case_2c_logged() {
        for other in [&[][..], &[Corrupt], &[Logged]] {
            assert_eq!(keep(&with(&[Logged]), &with(other)), Lsn(10));
        }
    }

    #[test]
    fn case_3_logged_everywhere() {
        assert_eq!(keep(&with(&[Logged]), &with(&[Logged])), Lsn(10));
        assert_eq!(keep(&with(&[Logged, Logged]), &with(&[Logged, Corrupt])), Lsn(10));
    }

    #[test]
    fn case_4a_logged_here_and_ready_there() {
        assert_eq!(keep(&with(&[Logged]), &with(&[CommitReady])), Lsn(10));
    }

    #[test]
    fn case_4b_ready_here_and_that_takes_consensus() {
        assert_eq!(keep(&with(&[CommitReady, Logged]), &with(&[Logged, Logged])), Lsn(10));
        assert_eq!(keep(&with(&[CommitReady, Logged]), &with(&[CommitReady, CommitReady])), Lsn(20));
        assert_eq!(keep(&with(&[CommitReady, Logged]), &with(&[CommitReady, Corrupt])), Lsn(20));
    }

    #[test]
    fn case_5a_ready_everywhere() {
        assert_eq!(keep(&with(&[CommitReady]), &with(&[CommitReady])), Lsn(20));
        assert_eq!(keep(&with(&[CommitReady; 3]), &with(&[CommitReady; 3])), Lsn(40));
    }

    /// Clients have their replies, and the next batches are under way.
    #[test]
    fn case_5b_committed() {
        for next in [&[CommitReady][..], &[CommitReady, Corrupt], &[CommitReady, Logged, Corrupt]] {
            assert_eq!(keep(&with(&[CommitReady, Logged]), &with(next)), Lsn(20));
        }
    }

    #[test]
    fn no_footprint_is_sent_as_long_as_more_can_land() {
        let mut it = Recovering::new(Rule::Marked, [NodeId(2)]);
        it.looked(with(&[Logged]));
        assert_eq!((it.next(), it.footprint()), (Step::Revoke, None));
        it.revoked();
        assert_eq!((it.next(), it.footprint()), (Step::Exchange, Some(&with(&[Logged]))));
    }

    /// Section 5.1: the others do not wait for it. Its footprint counts, if it came: it may have
    /// undone something for that.
    #[test]
    fn one_that_dies_on_the_way_is_not_waited_for() {
        let begun = || {
            let mut it = Recovering::new(Rule::Marked, [NodeId(2), NodeId(3)]);
            it.revoked();
            it.looked(with(&[CommitReady]));
            it.observe(NodeId(2), with(&[CommitReady]));
            it
        };
        let mut it = begun();
        it.gone(NodeId(3));
        assert_eq!(it.next(), Step::Recover(Keep::Marked(Lsn(20))));
        let mut it = begun();
        it.observe(NodeId(3), with(&[Logged]));
        it.gone(NodeId(3));
        assert_eq!(it.next(), Step::Recover(Keep::Marked(Lsn(10))));
    }

    /// A mirror that has undone something has taken its mark back: another one that asks it
    /// afterwards comes to the same end.
    #[test]
    fn what_was_decided_shows() {
        let (ready, undone) = (with(&[CommitReady, CommitReady]), with(&[CommitReady, Logged]));
        assert_eq!(keep(&ready, &with(&[CommitReady, Logged])), Lsn(20));
        assert_eq!(keep(&ready, &undone), Lsn(20));
    }

    /// One that was fed in batches of its own keeps more than it would have to, and loses nothing
    /// that is marked on both.
    #[test]
    fn batches_that_end_elsewhere_lose_nothing() {
        let own = Footprint { begin: Lsn(0), batches: vec![(Lsn(10), CommitReady), (Lsn(15), Logged)] };
        let other = Footprint { begin: Lsn(0), batches: vec![(Lsn(5), CommitReady), (Lsn(15), Logged)] };
        assert_eq!(own.common([other.ready()].into_iter()), Lsn(10));
        assert_eq!(other.common([own.ready()].into_iter()), Lsn(5));
        let cannot = Footprint { begin: Lsn(12), batches: vec![(Lsn(15), CommitReady)] };
        assert_eq!(cannot.common([other.ready()].into_iter()), Lsn(12), "what it cannot undo, it keeps");
    }

    #[test]
    fn what_has_landed_wholly_is_kept_without_asking() {
        let mut it = Recovering::new(Rule::Whole, [NodeId(2)]);
        assert_eq!(it.next(), Step::Revoke);
        it.revoked();
        assert_eq!(it.next(), Step::Recover(Keep::Whole));
        it.recovered(Lsn(30));
        assert_eq!(it.next(), Step::Done(Lsn(30)));
    }

    /// What another node says is not believed to have any order.
    #[test]
    fn a_footprint_that_lies_does_no_harm() {
        let own = with(&[CommitReady, Logged]);
        let lies = [
            Footprint { begin: Lsn::MAX, batches: vec![(Lsn(0), CommitReady), (Lsn(0), CommitReady)] },
            Footprint { begin: Lsn(0), batches: vec![(Lsn::MAX, CommitReady), (Lsn(3), CommitReady)] },
            Footprint { begin: Lsn(0), batches: vec![(Lsn(30), Logged); 3] },
        ];
        for lie in lies {
            let end = own.common([lie.ready()].into_iter());
            assert!([10, 20].contains(&end.0), "an end of its own: {end}");
        }
    }
}
