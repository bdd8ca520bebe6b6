//! Meet: what a primary does when it learns of another one ([`freshet_cluster::meeting`]). Which of
//! the two yields, it says in its log, in its status, and to all that it feeds.

use freshet_base::{NodeId, Term, sync::MutexGuard};
use freshet_cluster::{
    commit_rule::Event,
    meeting::{Claim, Why, Yields},
    promising::{Effect, Promised, Promising},
};

use super::Shared;
use crate::{
    feed::Feeder,
    status::{MOST_AHEAD, PrimaryId, TwoPrimaries},
    wire::{Hello, Refusal, Reply},
};

impl Shared {
    /// What this primary says of its term.
    pub(super) fn claim(&self) -> Claim {
        Claim { term_entry: self.term_entry, acknowledged: self.commit.acknowledged() }
    }

    /// Other primaries that this one has met.
    pub(super) fn meetings(&self) -> MutexGuard<'_, Vec<TwoPrimaries>> {
        self.meetings.lock().expect("no code panics under this mutex")
    }

    /// Answers a node that announces that it leads.
    pub(super) fn announced(&self, hello: &Hello, theirs: &Claim) -> Reply {
        let (mine, term) = (self.who.term, theirs.term_entry.term);
        if theirs.term_entry.is(&self.term_entry) {
            return Reply::Noted;
        }
        let has_met = self.meetings().iter().any(|met| (met.other.node, met.other.term) == (hello.node, term));
        // Else the other has asked this one before it began its term, or this one has observed
        // that.
        let meets = !self.is_fenced() || has_met;
        if term <= mine && meets {
            // What has promised this term does not lead any more, whatever is still on its way.
            if !self.who.answered.contains(&hello.node) {
                self.met(&hello.address, theirs);
            }
            if term == mine {
                return Reply::Leads(self.claim());
            }
        }
        if term > mine && self.terms.fence().observe(term, hello.node).is_ok() {
            // Not only when that is noted: the disk may be full or hang, which may be why the other
            // leads.
            self.fence(term);
        }
        self.successor().leads |= term > mine && self.is_fenced();
        if let Err(refusal) = self.promise(hello, term) {
            return Reply::Refused(refusal);
        }
        if term <= mine || !meets {
            return Reply::Noted;
        }
        self.met(&hello.address, theirs);
        Reply::Leads(self.claim())
    }

    /// The node at `address` announces that it leads.
    pub(super) fn met(&self, address: &str, theirs: &Claim) {
        let (mine, their) = (self.who.term, theirs.term_entry);
        if their.is(&self.term_entry) || their.term > mine && !self.terms.believes(their.term) {
            return;
        }
        self.fence(their.term);
        if their.term == mine && !self.is_fenced() {
            self.apply(Event::Contested { term: mine, rival: Some(theirs.rivals(&self.term_entry)) });
        }
        // What is acknowledged here does not change any more if this term has ended, and becomes
        // nothing less if it continues: the rule has decided the same.
        let (yields, why) = self.claim().meets(theirs);
        if self.is_fenced() {
            if yields == Yields::This && their.node != self.who.node {
                if let Err(cause) = self.terms.cede(their.term, self.who.node, their.node) {
                    tracing::warn!(%cause, "this node cannot follow the other primary before that has another term");
                }
                self.successor().leads = true;
            }
            self.feeds.end();
        }
        self.note_meeting(PrimaryId { node: their.node, address: address.to_owned(), term: their.term }, yields, why);
    }

    /// A node that follows a later term, which has ended this one, says where that is.
    pub(super) fn observe_rival(&self, node: NodeId, address: &str, term: Term) {
        let other = PrimaryId { node, address: address.to_owned(), term };
        self.note_meeting(other, Yields::This, Why::EarlierTerm);
    }

    /// Whether this node must not start again by itself: another process is the same node, or
    /// an operator has to choose.
    pub(super) fn stands_still(&self) -> bool {
        let leads = self.successor().leads;
        let stands = |met: &TwoPrimaries| match met.yields {
            Yields::Other => false,
            Yields::This => met.other.node == self.who.node,
            Yields::Both => met.other.node == self.who.node || !leads,
        };
        self.meetings().iter().any(stands)
    }

    fn note_meeting(&self, other: PrimaryId, yields: Yields, why: Why) {
        let this = PrimaryId { node: self.who.node, address: self.who.address.clone(), term: self.who.term };
        let why = explain(&this, &other, yields, why);
        let (node, peer, address, term) = (this.node, other.node, other.address.clone(), this.term.0);
        let met = TwoPrimaries { this, other, yields, why };
        {
            let mut meetings = self.meetings();
            if meetings.contains(&met) {
                return;
            }
            meetings.retain(|known| (known.other.node, known.other.term) != (met.other.node, met.other.term));
            if meetings.len() == MOST_AHEAD {
                meetings.remove(0);
            }
            meetings.push(met.clone());
        }
        tracing::error!(%node, term, other = %peer, address, cause = met.why, "two primaries have met");
        self.news();
    }

    /// Promises `term` to the node that says `hello`, as [`Promising`] says. A later term ends this
    /// one before that node is answered. No other node writes into a primary's memory.
    pub(super) fn promise(&self, hello: &Hello, term: Term) -> Result<Promised, Refusal> {
        let mut promising = Promising::to(term, hello.node);
        while let Some(step) = promising.next_effect() {
            match step {
                Effect::Promise { term, node } => {
                    let here = |highest| (highest == self.who.term).then(|| self.who.address.clone());
                    let risen = self.terms.promise(term, node, here)?;
                    promising.promised(step, risen);
                    continue;
                }
                Effect::EndTerm { .. } => self.fence(term),
                // Nothing is held here for others. Who asks where this log ends waits for its disk.
                Effect::TakeBack | Effect::Settle => {}
            }
            promising.done(step);
        }
        Ok(promising.finish())
    }
}

/// For people: who has met, which of the two yields and why, and what to do.
fn explain(this: &PrimaryId, other: &PrimaryId, yields: Yields, why: Why) -> String {
    let (goes, stays) = if yields == Yields::Other { (other, this) } else { (this, other) };
    let is_copy = this.node == other.node;
    let because = match why {
        Why::EarlierTerm => "the term of the one that yields is the earlier one",
        Why::HoldsLess => {
            "the log of the one that yields holds no acknowledgement of an in-sync set or quorum of that term, and \
             the other's more"
        }
        Why::NeitherHolds => "neither has committed anything that another node holds, and one of them has to",
        Why::BothHold => "the logs of both hold acknowledgements of an in-sync set or quorum of that term",
        Why::Unknown => "both have committed alone in that term, and neither can know which of them may",
    };
    let what = match yields {
        Yields::Both if is_copy => {
            "nothing is acknowledged by either: see what each of them holds (freshet status); they are one node twice, \
             so end one of them for good, keep its directory aside, and start the other one again with --force-primary"
        }
        Yields::Both => {
            "nothing is acknowledged by either: see what each of them holds (freshet status), and start the one that is \
             to continue again, with --force-primary and without --join; the other follows, or keeps what it holds more"
        }
        Yields::This | Yields::Other if is_copy => {
            "it is the same node with a copy of its directory: end it, keep that directory aside, and never start it \
             again; let it join with a new one"
        }
        Yields::This | Yields::Other => {
            "the one that yields acknowledges nothing any more, keeps its log, and starts again by itself to follow \
             the other one; what only it holds is then in a saved tail, or it says that it holds more (see its status)"
        }
    };
    let goes = if yields == Yields::Both {
        "both yield".to_owned()
    } else {
        format!("node {} at {} yields, and the one at {} continues", goes.node, goes.address, stays.address)
    };
    format!("two primaries: {this}, and {other}; {goes}, since {because}; {what}")
}
