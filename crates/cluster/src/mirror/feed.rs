//! Feeding a mirror: what a primary decides for one mirror, list by list (Active-Memory, section
//! 4.5).
//!
//! ```text
//!   posted ─▶ completed ─▶ acknowledged
//!                  └─────▶ mark: everything below is committed
//! ```
//!
//! [`MirrorFeed`] knows of lists what they are for, and not what they write. Its driver has the
//! mirror's memory, what lies where in it, and the undo ring: it posts a list, and says with which
//! token. Three rules are kept here:
//!
//! - What has completed is acknowledged, and nothing else; a mirror that has yet to note an in-sync
//!   set is asked to answer instead.
//! - The mark is moved only over what has completed: the mark itself may be quicker (section 4.5.2,
//!   "after all acknowledgements").
//! - A mirror is asked for one region at a time, and one that has no memory is asked again after a
//!   while.

use std::{collections::VecDeque, time::Duration};

use freshet_base::{Lsn, Stage, check};
use serde::{Deserialize, Serialize};

use crate::Moment;

/// A mirror with no memory for a region is asked again after this time.
const ASK_AGAIN: Duration = Duration::from_secs(1);

/// A list that is posted and has not completed.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct Posted {
    token: u64,
    /// Where its batch ends, if a recovery that finds all of it keeps it.
    batch: Option<Lsn>,
    /// What it writes as the mark.
    mark: Option<Lsn>,
}

/// How it stands with another region of the mirror's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
enum Growth {
    /// None is wanted.
    None,
    /// The mirror was asked for one, and has not answered.
    Asked,
    /// It had no memory, and is not asked before this.
    Refused(Moment),
}

/// One mirror, while it is fed. The lists on its connection have ascending numbers, their *tokens*.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct MirrorFeed {
    /// The mirror had everything below when the feed began.
    base: Lsn,
    under_way: VecDeque<Posted>,
    /// All batches up to here have completed.
    completed: Lsn,
    /// Of that, what was acknowledged for the mirror; and what it was asked to acknowledge.
    acknowledged: Lsn,
    asked: Lsn,
    /// What was posted as the mark.
    marked: Lsn,
    growth: Growth,
    /// When the mirror was last sent a note.
    noted: Moment,
}

impl MirrorFeed {
    /// A mirror that has all of the log below `base`.
    pub fn new(base: Lsn, now: Moment) -> Self {
        Self {
            base,
            under_way: VecDeque::new(),
            completed: base,
            acknowledged: base,
            asked: Lsn::ZERO,
            marked: Lsn::ZERO,
            growth: Growth::None,
            noted: now,
        }
    }

    /// How far the mark may be moved when everything below `committed` is; `ring` says where it may
    /// stand at most. What the mirror had when it came is marked as well: it is not to follow a log
    /// without that.
    pub fn next_mark(&self, committed: Lsn, ring: impl FnOnce(Lsn) -> Option<Lsn>) -> Option<Lsn> {
        let to = committed.min(self.completed);
        let to = ring(to).or((to >= self.base).then_some(self.base))?;
        (to > self.marked).then_some(to)
    }

    /// Whether room comes by itself in an undo ring that is full: what is under way completes, or
    /// what has completed can be marked. Else only a commit makes room, and that may wait for this
    /// mirror: the ring has to grow. What is not committed is bounded by the primary, and so is the
    /// ring.
    pub fn room_comes(&self, committed: Lsn, ring: impl Fn(Lsn) -> Option<Lsn>) -> bool {
        // A transaction that has not ended leaves no place for a mark.
        ring(Lsn::MAX).is_some() && (!self.under_way.is_empty() || self.next_mark(committed, ring).is_some())
    }

    /// A list was posted. It writes a batch that ends at `batch`, if that can be kept, and the mark
    /// `mark`.
    pub fn posted(&mut self, token: u64, batch: Option<Lsn>, mark: Option<Lsn>) {
        if let Some(mark) = mark {
            let (marked, completed) = (self.marked, self.completed);
            assert!(marked <= mark && mark <= completed, "the mark {mark} is not within {marked} and {completed}");
            self.marked = mark;
        }
        let follows = self.under_way.back().is_none_or(|last| last.token < token);
        assert!(follows, "a list is posted before the one that it follows");
        let end = self.under_way.iter().rev().find_map(|posted| posted.batch).unwrap_or(self.completed);
        assert!(batch.is_none_or(|to| to >= end), "a batch is posted before the one that it follows");
        self.under_way.push_back(Posted { token, batch, mark });
    }

    /// All lists up to `upto` have completed. Returns the mark that has arrived with them, if one
    /// has: what is below is undone no more.
    pub fn complete(&mut self, upto: u64) -> Option<Lsn> {
        let mut arrived = None;
        while let Some(Posted { batch, mark, .. }) = self.under_way.pop_front_if(|posted| posted.token <= upto) {
            self.completed = batch.unwrap_or(self.completed);
            arrived = mark.or(arrived);
        }
        check(&[(Stage::Ack, self.acknowledged), (Stage::Ship, self.completed)]);
        check(&[(Stage::Commit, self.marked), (Stage::Ship, self.completed)]);
        check(&[(Stage::Ship, self.base), (Stage::Ship, self.completed)]);
        arrived
    }

    /// What has completed and was not acknowledged for the mirror, if there is any.
    pub fn to_acknowledge(&self) -> Option<Lsn> {
        Some(self.completed).filter(|to| *to > self.acknowledged)
    }

    /// All of [`MirrorFeed::to_acknowledge`] was acknowledged for the mirror if it `counts`: not
    /// while the mirror has to answer first ([`crate::host::Host::counts_read_back`]). Says whether
    /// to ask the mirror.
    #[must_use]
    pub fn acknowledged(&mut self, counts: bool) -> bool {
        if counts {
            self.acknowledged = self.completed;
        }
        !counts && self.completed > self.asked
    }

    /// A note goes to the mirror: that this node lives, and that everything below
    /// [`MirrorFeed::completed`] is in its memory, which the mirror answers.
    pub fn note(&mut self, now: Moment) -> Lsn {
        (self.asked, self.noted) = (self.completed, now);
        self.completed
    }

    /// When the next note is due, if notes go every `keep_alive`.
    pub fn note_due(&self, keep_alive: Duration) -> Moment {
        self.noted.after(keep_alive)
    }

    /// Everything below is in the mirror's memory.
    pub fn completed(&self) -> Lsn {
        self.completed
    }

    /// What was posted as the mark; the mirror may not have it yet.
    pub fn marked(&self) -> Lsn {
        self.marked
    }

    /// Below this the mirror undoes nothing: what it had when it came, or what was marked.
    pub fn stays(&self) -> Lsn {
        self.base.max(self.marked)
    }

    /// The oldest list that has not completed.
    pub fn oldest(&self) -> Option<u64> {
        self.under_way.front().map(|posted| posted.token)
    }

    /// Whether to ask for a region now. If so, it is taken to be done.
    #[must_use]
    pub fn asks_for_region(&mut self, now: Moment) -> bool {
        let asks = match self.growth {
            Growth::None => true,
            Growth::Asked => false,
            Growth::Refused(until) => now >= until,
        };
        if asks {
            self.growth = Growth::Asked;
        }
        asks
    }

    /// The mirror has answered: with a region, or that it has no memory.
    pub fn region_answered(&mut self, granted: bool, now: Moment) {
        self.growth = if granted { Growth::None } else { Growth::Refused(now.after(ASK_AGAIN)) };
    }

    /// When to ask again for memory that the mirror has not.
    pub fn out_of_memory_until(&self) -> Option<Moment> {
        match self.growth {
            Growth::Refused(until) => Some(until),
            Growth::None | Growth::Asked => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Moment = Moment(0);

    /// What is acknowledged, if anything is.
    fn acknowledged(it: &mut MirrorFeed) -> Option<Lsn> {
        let to = it.to_acknowledge()?;
        assert!(!it.acknowledged(true));
        Some(to)
    }

    fn fed() -> MirrorFeed {
        MirrorFeed::new(Lsn(10), NOW)
    }

    #[test]
    fn what_completes_is_acknowledged_in_the_order_in_which_it_was_posted() {
        let mut it = fed();
        for (token, end) in [(1, 20), (2, 30), (3, 40)] {
            it.posted(token, Some(Lsn(end)), None);
        }
        assert_eq!((acknowledged(&mut it), it.oldest()), (None, Some(1)));
        assert_eq!(it.complete(2), None);
        assert_eq!(acknowledged(&mut it), Some(Lsn(30)));
        assert_eq!((acknowledged(&mut it), it.oldest()), (None, Some(3)));
    }

    /// Of a transaction that continues nothing counts before its end.
    #[test]
    fn a_batch_within_a_transaction_is_not_acknowledged() {
        let mut it = fed();
        it.posted(1, None, None);
        it.complete(1);
        assert_eq!((acknowledged(&mut it), it.completed()), (None, Lsn(10)));
        it.posted(2, Some(Lsn(50)), None);
        it.complete(2);
        assert_eq!(acknowledged(&mut it), Some(Lsn(50)));
    }

    #[test]
    fn a_mirror_that_has_a_set_to_note_is_asked_once() {
        let mut it = fed();
        it.posted(1, Some(Lsn(20)), None);
        it.complete(1);
        assert!(it.acknowledged(false));
        assert_eq!(it.note(Moment(5)), Lsn(20));
        assert!(!it.acknowledged(false));
        assert_eq!(it.note_due(Duration::from_micros(7)), Moment(12));
        assert_eq!(acknowledged(&mut it), Some(Lsn(20)));
    }

    #[test]
    fn the_mark_moves_over_what_has_completed_only() {
        let mut it = fed();
        let ends = |to: Lsn| [30, 20].map(Lsn).into_iter().find(|end| *end <= to);
        it.posted(1, Some(Lsn(20)), None);
        assert_eq!(it.next_mark(Lsn(30), ends), Some(Lsn(10)), "what it had when it came");
        it.posted(2, Some(Lsn(30)), Some(Lsn(10)));
        assert_eq!(it.next_mark(Lsn(30), ends), None);
        assert_eq!(it.complete(2), Some(Lsn(10)));
        assert_eq!(it.next_mark(Lsn(25), ends), Some(Lsn(20)));
        it.posted(3, None, Some(Lsn(20)));
        assert_eq!((it.marked(), it.stays(), it.next_mark(Lsn(25), ends)), (Lsn(20), Lsn(20), None));
        assert_eq!(it.next_mark(Lsn(5), |_| None), None, "less than it had is committed");
    }

    /// A commit that waits for the mirror, which waits for room.
    #[test]
    fn a_full_ring_gets_room_from_what_is_under_way_or_committed() {
        let mut it = fed();
        let ends = |to: Lsn| (to >= Lsn(20)).then_some(Lsn(20));
        it.posted(1, Some(Lsn(20)), Some(Lsn(10)));
        assert!(it.room_comes(Lsn::ZERO, ends), "it completes");
        it.complete(1);
        assert!(it.room_comes(Lsn(20), ends), "it is marked next");
        assert!(!it.room_comes(Lsn(19), ends), "commits wait for more than the ring has room for");
    }

    #[test]
    #[should_panic(expected = "mark")]
    fn a_mark_over_what_has_not_completed_is_a_mistake() {
        let mut it = fed();
        it.posted(1, Some(Lsn(20)), Some(Lsn(20)));
    }

    #[test]
    fn one_region_is_asked_for_at_a_time() {
        let mut it = fed();
        assert!(it.asks_for_region(NOW) && !it.asks_for_region(NOW));
        it.region_answered(false, NOW);
        let until = NOW.after(ASK_AGAIN);
        assert_eq!(it.out_of_memory_until(), Some(until));
        assert!(!it.asks_for_region(NOW) && it.asks_for_region(until));
        it.region_answered(true, until);
        assert!(it.out_of_memory_until().is_none() && it.asks_for_region(until));
    }
}
