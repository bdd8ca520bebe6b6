//! Host: what the node decides that has the log and feeds it to others: a primary, or a relay.
//!
//! ```text
//!   agree ─▶ join ─▶ next ─▶ shipped ─▶ acked ─▶ leave
//!                     ▲
//!       filled, committed, peers_changed
//! ```
//!
//! [`Host`] is told what has happened. Its driver has the log and the connections, and asks for
//! each feed what to do next ([`Host::next`]). What the commit rule has to hear, a primary's own or
//! a relay's ([`crate::relay`]), is returned as a [`crate::commit_rule::Event`]; the driver passes
//! it on in the order in which it was returned.
//!
//! A node has one feed at most: a newer connection takes the place of an older one, which does
//! not count any more. With the appliance method (Query Fresh, section 2.3) the host
//! acknowledges for a standby what it has read back there. It does not before the standby has said
//! that it holds the newest record of an in-sync set: the standby has to note that before it is
//! acknowledged.

mod law;

use std::{
    collections::{BTreeMap, VecDeque},
    time::Duration,
};

use freshet_base::{ClusterId, Lsn, NodeId, Term};
use serde::{Deserialize, Serialize};

use crate::{
    Moment,
    commit_rule::Event,
    flow::{Boundaries, Flow, FlowConfig, FlowError, Mode, Next},
    follower::Ack,
    handshake::{Agreed, Continue, Refusal, Sender, Wait, check_belongs, consider},
    in_sync::SetName,
    term::TermState,
};

/// This number of batches are remembered with the times at which they were filled.
const BATCHES: usize = 1024;

/// A connection to a node that is fed. The driver counts them.
pub type FeedId = usize;

/// A node that wants to be fed.
#[derive(Clone, Copy, Debug)]
pub struct Asking<'a> {
    /// Its cluster, if it has one.
    pub cluster: Option<ClusterId>,
    /// Itself.
    pub node: NodeId,
    /// The latest term that it has heard of.
    pub fence: Term,
    /// Its log.
    pub log: &'a Continue,
    /// Whether commits may wait for it.
    pub counted: bool,
    /// Everything below is known there to have been acknowledged to clients.
    pub holds: Lsn,
    /// The last term of its log is known there to have taken effect
    /// ([`TermState::last_in_effect`]): all of its log may have been acknowledged.
    pub in_effect: bool,
    /// If it is a mirror: the newest in-sync set that it has noted
    /// ([`crate::in_sync::InSyncSet::name`]), if any.
    pub mirror: Option<Noted>,
}

/// Up to which in-sync set a mirror has noted them: none, or the set that has this name.
pub type Noted = Option<SetName>;

impl Asking<'_> {
    /// Whether the node has to follow the primary itself: commits wait for it, or may.
    pub fn is_counted(&self, state: &TermState) -> bool {
        self.counted || state.may_wait_for(self.node)
    }

    /// Whether the log of `sender`, which is the same up to `at`, has what this node knows to have
    /// been acknowledged to clients. A primary that was set back to an older copy of its disk finds
    /// out so, and one that was forced.
    fn has_enough(&self, sender: &Sender, at: Lsn) -> Result<(), Refusal> {
        let Self { node, log, mirror, .. } = *self;
        let last = log.history.cut(log.received).entries().last().copied().filter(|_| self.in_effect);
        let holds = sender.history.keeps(last, self.holds, log.received);
        match at >= holds {
            true => Ok(()),
            false if mirror.is_some() => {
                let term = log.history.cut(log.received).last_term();
                Err(Refusal::MirrorHoldsMore { node, term, end: holds, here: at })
            }
            false => Err(Refusal::HoldsMore { node, at, committed: holds }),
        }
    }
}

/// A node that is fed from now on.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct ReplicaState {
    /// Itself.
    pub node: NodeId,
    /// Which log it has ([`crate::in_sync::Holder`]).
    pub incarnation: u64,
    /// Whether the commit rule hears of it.
    pub member: bool,
    /// Whether commits may wait for it, if it is a member.
    pub synchronous: bool,
    /// What has arrived there is persistent.
    pub appliance: bool,
    /// Its log is this one up to here, and continues from here.
    pub from: Lsn,
    /// Persistent there.
    pub persisted: Lsn,
    /// Replayed there, as far as is known.
    pub replayed: Lsn,
}

/// What a connection that was made leads to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[must_use]
pub struct Joined {
    /// This older connection of the same node is over.
    pub replaced: Option<FeedId>,
    /// What the commit rule has to hear, in this order.
    pub events: [Option<Event>; 2],
}

/// What an acknowledgement leads to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[must_use]
pub struct Acked {
    /// What the commit rule has to hear.
    pub event: Option<Event>,
    /// There may be something to send, where it waited for room.
    pub wake: bool,
}

/// What goes along with a batch, or alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Note {
    /// This is globally persistent.
    pub global: Lsn,
    /// The primary's log reaches up to here.
    pub end: Lsn,
    /// When that was so, by the primary's clock.
    pub time: Moment,
    /// Until when, by the same clock, no other primary can have committed anything, as far as this
    /// node knows: of a relay, when the primary has sent its last word.
    pub sure: Moment,
    /// When the batch was filled, by the same clock, where that is known.
    pub filled_at: Option<Moment>,
    /// Whether the commit rule counts on the node.
    pub in_sync: bool,
}

/// What a relay has heard of the primary.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Word {
    /// How far the primary's log reached.
    pub end: Lsn,
    /// When, by the primary's clock.
    pub time: Moment,
    /// As [`Note::sure`].
    pub sure: Moment,
}

/// One feed.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Feed {
    /// Whom it feeds.
    pub node: NodeId,
    /// Whether the commit rule hears of it.
    pub member: bool,
    /// Replayed there.
    pub replayed: Lsn,
    /// Readers there see up to here.
    pub visible: Lsn,
    flow: Flow,
    appliance: bool,
    in_sync: bool,
    /// Writing takes no longer than copying.
    prompt: bool,
    /// Nothing more is sent.
    given_up: bool,
    /// Which list of peers it was sent.
    peers: u64,
}

impl Feed {
    /// Shipped.
    pub fn shipped(&self) -> Lsn {
        self.flow.shipped()
    }

    /// Persistent there.
    pub fn acked(&self) -> Lsn {
        self.flow.acked_to()
    }
}

/// A node's feeds, during one term.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Host {
    sender: Sender,
    flow: FlowConfig,
    boundaries: Boundaries,
    /// Where the newest batches end, and when each was filled. Not of a relay: its clock is not the
    /// primary's.
    batches: VecDeque<(Lsn, Moment)>,
    feeds: BTreeMap<FeedId, Feed>,
    global: Lsn,
    /// Where the newest record of an in-sync set ends.
    recorded: Lsn,
    /// Of a relay: the primary's last word, and when that came.
    observed: Option<(Word, Moment)>,
    /// Counts lists of peers; zero while none exists.
    peers: u64,
    closed: bool,
}

impl Host {
    /// No feeds yet, of the log that ends at `sender.end`. At most `boundaries` ends of blocks are
    /// remembered for live shipping.
    pub fn new(sender: Sender, flow: FlowConfig, boundaries: usize) -> Self {
        Self {
            boundaries: Boundaries::new(sender.end, boundaries),
            batches: VecDeque::from([(sender.end, Moment::default())]),
            flow,
            feeds: BTreeMap::new(),
            global: Lsn::ZERO,
            // What a restart or a failover has found may have a record that no standby has noted.
            recorded: if sender.above.is_empty() { sender.end } else { Lsn::ZERO },
            observed: None,
            peers: 0,
            closed: false,
            sender,
        }
    }

    /// How this node introduces itself to those who want the log.
    pub fn sender(&self) -> &Sender {
        &self.sender
    }

    fn relays(&self) -> bool {
        !self.sender.above.is_empty()
    }

    /// Whether a node may be fed, and from where on. `state` is what this node remembers of terms.
    /// A relay feeds no node for which commits may wait: that has to answer to the primary itself,
    /// until it is on record that they do not.
    ///
    /// # Errors
    /// [`Refusal`], to be sent to it; [`Refusal::Removed`] for good; [`Refusal::Fenced`] as for
    /// [`consider`]; [`Refusal::HoldsMore`] and [`Refusal::MirrorHoldsMore`] concern an operator;
    /// [`Refusal::NoteSet`] asks a mirror to come again.
    pub fn agree(&self, asking: &Asking<'_>, state: &TermState) -> Result<Agreed, Refusal> {
        let Asking { cluster, node, fence, log, .. } = *asking;
        let me = self.sender.node;
        check_belongs(node, state)?;
        if self.relays() {
            if asking.is_counted(state) {
                return Err(Refusal::NotPrimary { node: me, primary: None });
            }
            if self.closed || state.fence.highest() > self.sender.term {
                return Err(Refusal::Later { node: me, why: Wait::Lost });
            }
        }
        if !state.fence.believes(fence) {
            return Err(Refusal::Leap { asked: fence, highest: state.fence.highest() });
        }
        // A mirror may have the rows of a block that records a set, and not have noted the set.
        // What it holds counts for that record, too.
        if let Some(noted) = asking.mirror
            && log.received > Lsn::ZERO
            && let Some(set) = state.set.as_ref().filter(|set| noted.is_none_or(|noted| set.is_news(noted)))
        {
            return Err(Refusal::NoteSet { set: Box::new(set.clone()) });
        }
        let agreed = consider(&self.sender, cluster, node, fence, log).map_err(|refusal| match refusal {
            // If a term was begun twice, it may hold more than this log.
            Refusal::SameTermTwice { upto, .. } => asking.has_enough(&self.sender, upto).err().unwrap_or(refusal),
            refusal => refusal,
        })?;
        asking.has_enough(&self.sender, agreed.welcome.cut_at)?;
        Ok(agreed)
    }

    /// A connection was made; `None` if this host is closed.
    pub fn join(&mut self, id: FeedId, replica: ReplicaState, now: Moment) -> Option<Joined> {
        if self.closed {
            return None;
        }
        let ReplicaState { node, incarnation, member, synchronous, appliance, from, persisted, replayed } = replica;
        let replaced = self.feeds.iter().find(|(_, feed)| feed.node == node).map(|(id, _)| *id);
        let left = replaced.and_then(|old| self.leave(old));
        // There is no room before the standby has said so: it may have to cut its log first, and
        // what is written there is in its memory at once.
        let flow = Flow::new(self.flow, from, from, now);
        let feed = Feed {
            node,
            member,
            replayed: replayed.min(from),
            visible: Lsn::ZERO,
            flow,
            appliance,
            in_sync: false,
            prompt: false,
            given_up: false,
            peers: 0,
        };
        assert!(from <= self.filled_to(), "{node} would be fed from {from}, where there is no log");
        assert!(self.feeds.insert(id, feed).is_none(), "two connections have the number {id}");
        self.check_feeds();
        let joined = member.then_some(Event::Joined { standby: node, incarnation, persisted, synchronous });
        Some(Joined { replaced, events: [left, joined] })
    }

    /// Writing to this feed takes no longer than copying: it is told at once what is committed.
    pub fn is_prompt(&mut self, id: FeedId) {
        self.feeds.entry(id).and_modify(|feed| feed.prompt = true);
    }

    /// A connection is over. Says what the commit rule has to hear, if this was the node's present
    /// one.
    pub fn leave(&mut self, id: FeedId) -> Option<Event> {
        let feed = self.feeds.remove(&id)?;
        feed.member.then_some(Event::Left { standby: feed.node })
    }

    /// The log that this feed needs is not there any more: nothing more is sent. Returns where that
    /// begins.
    pub fn give_up(&mut self, id: FeedId) -> Lsn {
        let Some(feed) = self.feeds.get_mut(&id) else { return Lsn::ZERO };
        feed.given_up = true;
        feed.shipped()
    }

    /// No node is fed any more.
    pub fn close(&mut self) {
        self.closed = true;
    }

    /// Whether it was closed.
    pub fn is_closed(&self) -> bool {
        self.closed
    }

    /// A batch `[from, to)` can be read. `partition_ends` are ends of blocks in it, ascending.
    ///
    /// # Panics
    /// When the batch does not begin where the last one ended.
    pub fn filled(&mut self, from: Lsn, to: Lsn, partition_ends: &[Lsn], now: Moment) {
        freshet_base::step!(Ship, from, to);
        self.check_batch(from, to, partition_ends);
        self.boundaries.push(from, to, partition_ends);
        self.sender.end = to;
        if !self.relays() {
            if self.batches.len() == BATCHES {
                self.batches.pop_front();
            }
            self.batches.push_back((to, now));
        }
        self.check();
    }

    /// This is globally persistent. Returns the feeds that are to be told so by themselves
    /// ([`Next::SendWatermark`]): where that takes no time, or nothing was sent for a while. The
    /// others hear of it with the next batch, or when [`Next::Wait`] says.
    pub fn committed(&mut self, to: Lsn, now: Moment) -> Vec<FeedId> {
        freshet_base::step!(Commit, to, to);
        if to <= self.global {
            return Vec::new();
        }
        // That may be more than can be read here: what was filled since is committed already, or is
        // persistent in a relay in another form. A node that is sent this takes as much of it as it
        // has.
        self.global = to;
        let at_once = |feed: &Feed| {
            let next = feed.flow.next(&self.boundaries, to, now);
            feed.prompt && feed.flow.global_sent() < to || next == Next::SendWatermark
        };
        self.feeds.iter().filter(|(_, feed)| at_once(feed)).map(|(id, _)| *id).collect()
    }

    /// This is globally persistent, as far as this node knows.
    pub fn global(&self) -> Lsn {
        self.global
    }

    /// Of a relay: a word of the primary has come.
    pub fn observe(&mut self, word: Word, now: Moment) {
        self.observed = Some((word, now));
    }

    /// A record of an in-sync set is being written (the largest LSN), or ends at `end`.
    pub fn set_recorded(&mut self, end: Lsn) {
        self.recorded = end;
    }

    /// Others than before are in the cluster, which those who are fed have to know.
    pub fn peers_changed(&mut self) {
        self.peers += 1;
    }

    /// These standbys are in sync.
    pub fn placed(&mut self, in_sync: &[NodeId]) {
        self.feeds.values_mut().for_each(|feed| feed.in_sync = in_sync.contains(&feed.node));
    }

    /// What to do next for this feed; `None` when it is over.
    pub fn next(&self, id: FeedId, now: Moment) -> Option<Next> {
        freshet_base::step!(Ship);
        let feed = self.feeds.get(&id).filter(|feed| !feed.given_up && !self.closed)?;
        if feed.peers < self.peers {
            return Some(Next::SendPeers);
        }
        Some(feed.flow.next(&self.boundaries, self.global, now))
    }

    /// The known ends of blocks in `(from, to]`.
    pub fn ends(&self, from: Lsn, to: Lsn) -> impl Iterator<Item = Lsn> + '_ {
        self.boundaries.between(from, to)
    }

    /// [`Next::SendPeers`] is being carried out.
    pub fn peers_sent(&mut self, id: FeedId) {
        let peers = self.peers;
        self.feeds.entry(id).and_modify(|feed| feed.peers = peers);
    }

    /// [`Next::SendOld`] found that the first block alone does not fit below `upto`.
    pub fn credit_too_small(&mut self, id: FeedId, upto: Lsn) {
        self.feeds.entry(id).and_modify(|feed| feed.flow.credit_too_small(upto));
    }

    /// Blocks up to `to` are about to be on their way, or a frame without blocks: gives what goes
    /// along. To be called before they are: the acknowledgement may be quicker. `None` when the
    /// feed is over.
    pub fn shipped(&mut self, id: FeedId, to: Option<Lsn>, now: Moment) -> Option<Note> {
        freshet_base::step!(Ship);
        let Word { end, time, sure } = match self.observed {
            Some((word, at)) => Word { time: word.time.after(now.since(at)), ..word },
            None if self.relays() => Word { end: Lsn::ZERO, time: Moment::default(), sure: Moment::default() },
            None => Word { end: self.filled_to(), time: now, sure: now },
        };
        let feed = self.feeds.get_mut(&id)?;
        let from = feed.flow.shipped();
        match to {
            Some(to) => feed.flow.sent(to, self.global, now),
            None => feed.flow.note_sent(self.global, now),
        }
        assert!(to.is_none_or(|to| from < to && to <= end.max(self.sender.end)), "{to:?} is shipped after {from}");
        let first = self.batches.partition_point(|batch| batch.0 <= from);
        // Of the oldest it is not known where it began.
        let filled_at = self.batches.get(first).filter(|_| first > 0 && to.is_some()).map(|batch| batch.1);
        Some(Note { global: self.global, end, time, sure, filled_at, in_sync: feed.in_sync })
    }

    /// Whether what is read back counts for this feed, without a word of the standby.
    pub fn counts_read_back(&self, id: FeedId) -> bool {
        self.feeds.get(&id).is_some_and(|feed| feed.appliance && feed.acked() >= self.recorded)
    }

    /// What was shipped up to `to` was read back.
    ///
    /// # Errors
    /// [`FlowError`] when that is more than was shipped.
    pub fn read_back(&mut self, id: FeedId, to: Lsn) -> Result<Acked, FlowError> {
        if !self.counts_read_back(id) {
            return Ok(Acked::default());
        }
        let Some(feed) = self.feeds.get(&id) else { return Ok(Acked::default()) };
        let Feed { replayed, visible, .. } = *feed;
        let may_send_until = feed.flow.may_send_until();
        self.acked(id, &Ack { persisted: to, may_send_until, replayed, visible, observed: None })
    }

    /// A standby says what it holds, and how far it has room. Of a connection that is over nothing
    /// counts.
    ///
    /// # Errors
    /// [`FlowError`] when it claims more than it can have; the connection is then to be dropped.
    pub fn acked(&mut self, id: FeedId, ack: &Ack) -> Result<Acked, FlowError> {
        freshet_base::step!(Ack, ack.persisted, ack.persisted);
        let Some(feed) = self.feeds.get_mut(&id) else { return Ok(Acked::default()) };
        // Before the room has grown: who waits for it sleeps.
        let wake = feed.flow.waits_for_credit(&self.boundaries);
        feed.flow.acked(ack.persisted, ack.may_send_until)?;
        (feed.visible, feed.replayed) = (ack.visible, ack.replayed);
        let acked = Event::Acked { standby: feed.node, persisted: ack.persisted, observed: ack.observed };
        Ok(Acked { event: feed.member.then_some(acked), wake })
    }

    /// The feeds.
    pub fn feeds(&self) -> impl Iterator<Item = (FeedId, &Feed)> {
        self.feeds.iter().map(|(id, feed)| (*id, feed))
    }

    /// The present feed of a node.
    pub fn feed_of(&self, node: NodeId) -> Option<(FeedId, &Feed)> {
        self.feeds().find(|(_, feed)| feed.node == node)
    }

    /// How long ago the log went beyond `at`; zero if it does not. None where that is not known: of
    /// a relay, and of what was filled long ago.
    pub fn behind(&self, at: Lsn, now: Moment) -> Option<Duration> {
        if at >= self.filled_to() {
            return Some(Duration::ZERO);
        }
        let first = self.batches.partition_point(|batch| batch.0 <= at);
        // Of the oldest it is not known where it began.
        self.batches.get(first).filter(|_| first > 0).map(|batch| now.since(batch.1))
    }

    /// How a feed is fed.
    pub fn mode(&self, feed: &Feed) -> Mode {
        feed.flow.mode(&self.boundaries)
    }

    /// The log can be read up to here.
    pub fn filled_to(&self) -> Lsn {
        self.boundaries.filled()
    }

    /// Below this, no node that is fed needs anything of the log; the largest LSN if none
    /// exists.
    pub fn needed(&self) -> Lsn {
        let needed = self.feeds.values().map(|feed| feed.acked().min(feed.shipped()));
        needed.min().unwrap_or(Lsn::MAX)
    }
}

#[cfg(test)]
mod tests;
