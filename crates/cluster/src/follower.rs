//! Follow: what a standby decides. Its log is cut where the primary's parts from it, what was
//! received is accepted, persisted, acknowledged, replayed and shown; and as a relay it passes all
//! of that on.
//!
//! ```text
//!   welcomed ─▶ cut ─▶ linked ─▶ accepted ─▶ persisted ─▶ ack
//!                                        └─▶ replayed  ─▶ visible
//! ```
//!
//! [`Follower`] is told by [`Event`]s what has happened, and answers what has to be done. Its
//! driver has the log, the tables, and the connections. The law of the watermarks is asserted
//! after each event: `visible <= replayed <= received`, `persisted <= received`.
//!
//! Readers see the last end of a transaction at or below min(replayed, own persisted, globally
//! persistent). A node that began with a fuzzy checkpoint shows nothing before it has replayed the
//! log up to the checkpoint's end (the floor): below, it is no state of the database.

mod event;
mod law;
mod queue;

use std::time::Duration;

use freshet_base::{Lsn, NodeId, Term};
use serde::{Deserialize, Serialize};

pub use self::event::{Ack, Decision, Event, Piece, Room, Seen, Show};
use self::queue::Queue;
use crate::{
    Moment,
    commit_rule::Member,
    entering::{Entered, Held},
    handshake::Welcome,
    in_sync::InSyncSet,
    relay::{Relay, RelayAck},
    term::{Fence, TermState},
};

/// When a standby replays what it receives, and when it acknowledges it (Query Fresh, sections 3.2
/// and 4.6).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ReplayMode {
    /// It acknowledges what is persistent; replay follows by itself (replay pipelining, Query Fresh
    /// section 3.2).
    #[default]
    Pipelined,
    /// It acknowledges what is replayed too, so replay is on the commit path and a failover finds
    /// nothing left to replay. Readers here see a commit only when the primary has told of it,
    /// later than its client.
    Synchronous,
    /// It acknowledges what is persistent, and replays nothing while it follows (Query Fresh,
    /// section 4.6, "NoReplay"): its readers see what they saw when it started. Room in the log
    /// buffer is given back when it is persistent. A failover replays everything first, from the
    /// log's files where it is not in the buffer any more, and so does a restart.
    None,
}

impl ReplayMode {
    /// Replay is handed what lies below this without being asked to. Below `floor` there is nothing
    /// that readers could see.
    fn hands_out(self, floor: Lsn) -> Lsn {
        match self {
            Self::Pipelined | Self::Synchronous => Lsn::MAX,
            Self::None => floor,
        }
    }

    /// What commits may count on.
    fn acknowledges(self, persisted: Lsn, replayed: Lsn) -> Lsn {
        match self {
            Self::Pipelined | Self::None => persisted,
            Self::Synchronous => persisted.min(replayed),
        }
    }

    /// Replay needs nothing in the log buffer below this any more.
    pub fn releases(self, replayed: Lsn) -> Lsn {
        match self {
            Self::Pipelined | Self::Synchronous => replayed,
            Self::None => Lsn::MAX,
        }
    }
}

freshet_base::named!(ReplayMode, "replay policy", {
    None: "none",
    Synchronous: "synchronous",
    Pipelined: "pipelined",
});

/// How a relay acknowledges for those below.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RelayRules {
    /// What it acknowledges to whom it follows.
    pub ack: RelayAck,
    /// How many standbys it is meant to have.
    pub standbys: u32,
    /// How long one of them may leave something unacknowledged before it is not waited for.
    pub standby_timeout: Duration,
}

/// A standby's parameters.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct FollowerConfig {
    /// When batches are replayed and acknowledged.
    pub replay: ReplayMode,
    /// What the log buffer holds, in bytes.
    pub capacity: u64,
    /// If this node feeds standbys of its own.
    pub relay: Option<RelayRules>,
}

/// Where a standby's log stands when it starts.
#[derive(Clone, Copy, Debug, Default)]
pub struct Begun {
    /// Its end.
    pub received: Lsn,
    /// The end of its persistent part.
    pub persisted: Lsn,
    /// Replayed up to here.
    pub replayed: Lsn,
    /// Known to be persistent wherever the safety level demands.
    pub global: Lsn,
    /// Readers see nothing below this.
    pub floor: Lsn,
}

/// The connection to whom this node follows.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Link {
    term: Term,
    relayed: bool,
    /// Acknowledged. The log is received from here on, and what was cut away does not count.
    acked: Lsn,
    credit: Lsn,
    visible: Lsn,
    /// The primary wants to hear at once what becomes visible.
    reports_visible: bool,
    last: Moment,
}

/// What is passed on while the log just continues: the term, and through whom it comes, are the
/// same, and nothing was cut.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Passing {
    rule: Relay,
    term: Term,
    above: Vec<NodeId>,
}

/// A standby's state.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Follower {
    me: NodeId,
    config: FollowerConfig,
    received: Lsn,
    persisted: Lsn,
    queue: Queue,
    global: Lsn,
    /// A primary has said so; else it was lowered since, and may stand within a transaction.
    global_is_known: bool,
    floor: Lsn,
    visible: Lsn,
    link: Option<Link>,
    passing: Option<Passing>,
    /// An in-sync set was received and could not be noted.
    unnoted: bool,
    /// There has been no memory to replay into since this was acknowledged, and was replayed less.
    unbacked: Option<Lsn>,
    /// The log buffer has been given back before it was replayed, since there was no memory.
    released: bool,
}

impl Follower {
    /// The standby `me`.
    pub fn new(me: NodeId, config: FollowerConfig, begun: Begun) -> Self {
        let Begun { received, persisted, replayed, global, floor } = begun;
        let global = global.min(persisted);
        let first = Some(replayed.min(global)).filter(|first| *first >= floor);
        Self {
            me,
            config,
            received,
            persisted,
            queue: Queue::new(replayed, received, config.replay.hands_out(floor)),
            global,
            global_is_known: false,
            floor,
            visible: first.unwrap_or_default(),
            link: None,
            passing: None,
            unnoted: false,
            unbacked: None,
            released: false,
        }
    }

    /// What this node has, for [`crate::entering`]. `sought`: it came upon the sender by itself.
    pub fn held(&self, state: &TermState, sought: bool) -> Held {
        let (end, floor, acknowledged) = (self.received, self.floor, self.acknowledged(state));
        Held { node: self.me, end, floor, acknowledged, needs_primary: sought }
    }

    /// Up to where what is here is known to have been acknowledged to clients: a primary has said
    /// so, or it was noted. No log is followed that has less of it. The checkpoint with which this
    /// node began says nothing of that: a mirror that takes over gives one of what it has, before
    /// that is committed.
    pub fn acknowledged(&self, state: &TermState) -> Lsn {
        self.global.max(state.committed).min(self.received)
    }

    /// Whether the log may be cut at `at`.
    ///
    /// # Errors
    /// [`Seen`]; then it must not be.
    pub fn may_cut(&self, at: Lsn) -> Result<(), Seen> {
        if self.visible > at { Err(Seen { visible: self.visible }) } else { Ok(()) }
    }

    /// The log is about to be cut at `at`: nothing more is replayed until that is done.
    ///
    /// # Errors
    /// As for [`Follower::may_cut`].
    pub fn hold(&mut self, at: Lsn) -> Result<(), Seen> {
        self.may_cut(at)?;
        self.queue.hold(true);
        Ok(())
    }

    /// The log was cut at `at`, while nothing was replayed: tables, log and relay know of nothing
    /// beyond. What was committed beyond was lost, in a failover that was forced.
    pub fn cut(&mut self, at: Lsn) {
        assert!(self.visible <= at, "readers have seen what is cut at {at}");
        self.queue.cut(at);
        self.queue.hold(false);
        self.received = self.received.min(at);
        self.persisted = self.persisted.min(at);
        self.unbacked = self.unbacked.map(|acked| acked.min(at));
        self.lower_global(at);
        self.passing = None;
        self.check();
    }

    /// It was not cut.
    pub fn not_cut(&mut self) {
        self.queue.hold(false);
    }

    /// The sender's terms are entered: this log is a prefix of the sender's, and continues with it.
    /// What was known to be globally persistent beyond was said of another log.
    pub fn entered(&mut self, entered: Entered) {
        self.lower_global(entered.cut_at());
    }

    fn lower_global(&mut self, at: Lsn) {
        if at < self.global {
            (self.global, self.global_is_known) = (at, false);
        }
    }

    /// What follows is acknowledged from here on.
    pub fn linked(&mut self, welcome: &Welcome) {
        assert!(self.link.is_none(), "a standby follows two nodes");
        let relayed = !welcome.above.is_empty();
        self.link = Some(Link {
            term: welcome.term,
            relayed,
            acked: self.to_join(),
            credit: Lsn::ZERO,
            visible: Lsn::ZERO,
            reports_visible: false,
            last: Moment::default(),
        });
    }

    /// Whether those below this relay just continue under `welcome`: the term, and the way that the
    /// log takes, are what they were, and nothing was cut. Else they have to agree again.
    pub fn continues(&self, welcome: &Welcome) -> bool {
        let same = |passing: &Passing| passing.term == welcome.term && passing.above == welcome.path();
        self.passing.as_ref().is_some_and(same)
    }

    /// Passes on, as a relay, what follows `welcome`; those below have yet to agree.
    pub fn pass_on(&mut self, welcome: &Welcome, now: Moment) {
        let Some(RelayRules { ack, standbys, standby_timeout }) = self.config.relay else { return };
        let mut rule = Relay::new(ack, standbys, standby_timeout, self.persisted, now);
        // Those below rely on what they are told standing between transactions.
        if self.global_is_known {
            rule.observe_global(self.global);
        }
        self.passing = Some(Passing { rule, term: welcome.term, above: welcome.path() });
    }

    /// The connection is over.
    pub fn closed(&mut self) {
        self.link = None;
    }

    /// Nothing is passed on any more.
    pub fn passes_nothing(&mut self) {
        self.passing = None;
    }

    /// Whether what comes in `term` may be taken in.
    pub fn takes(&self, term: Term, fence: &Fence) -> bool {
        self.link.as_ref().is_some_and(|link| link.term == term) && fence.admits(term)
    }

    /// Takes an event in, and says what follows.
    pub fn apply(&mut self, event: Event, now: Moment) -> Decision {
        freshet_base::step!(Visible);
        self.step(|it, decision| match event {
            Event::Global(global) => {
                if global >= it.global {
                    (it.global, it.global_is_known) = (global, true);
                }
                if let Some(passing) = &mut it.passing {
                    passing.rule.observe_global(global);
                }
            }
            Event::Arrived(to) => it.received = it.received.max(to),
            Event::Persisted(to) => {
                it.persisted = it.persisted.max(to);
                if let Some(passing) = &mut it.passing {
                    decision.places = passing.rule.persisted(to, now).changed;
                }
            }
            Event::Replayed(to) => {
                it.queue.done(to);
                it.back();
            }
            Event::Below(event) => {
                if let Some(passing) = &mut it.passing {
                    decision.places = passing.rule.downstream(event, now).changed;
                }
            }
        })
    }

    /// Whole blocks have become part of the log: up to the last of these, which are ends of blocks,
    /// ascending.
    pub fn accepted(&mut self, ends: &[Lsn]) -> Decision {
        freshet_base::step!(Receive);
        assert!(ends.is_sorted_by(|a, b| a < b), "blocks end in their order: {ends:?}");
        self.step(|it, decision| {
            it.received = ends.last().copied().unwrap_or_default().max(it.received);
            decision.replay = it.queue.push(ends);
        })
    }

    fn step(&mut self, change: impl FnOnce(&mut Self, &mut Decision)) -> Decision {
        let (down, release) = (self.downward(), self.releasable());
        let mut decision = Decision::default();
        change(self, &mut decision);
        decision.show = self.may_show();
        decision.down = self.downward().filter(|now| down.is_none_or(|before| *now > before));
        decision.release = self.releasable().filter(|now| release.is_none_or(|before| *now > before));
        self.check();
        decision
    }

    /// Up to where readers may see, if that is more than they do.
    fn may_show(&self) -> Option<Show> {
        let least = self.replayed().min(self.global).min(self.persisted);
        // What a primary announces always stands between transactions, whether the end is
        // remembered here or not.
        let is_end = self.global_is_known && least == self.global;
        let show = if is_end { Show::To(least) } else { Show::Below(least) };
        (least > self.visible).then_some(show)
    }

    /// Readers see everything up to `to`, as was decided, from now on. Says whether they do: not
    /// below the floor, and not if it is no more than before.
    pub fn shown(&mut self, to: Lsn) -> bool {
        freshet_base::step!(Visible, to, to);
        let shown = to >= self.floor && to > self.visible;
        if shown {
            let least = self.persisted.min(self.global).min(self.replayed());
            assert!(to <= least, "readers would see up to {to}, and a failover may keep only what is below {least}");
            self.visible = to;
            self.check();
        }
        shown
    }

    /// What commits may count on here: persistent, replayed if that is synchronous, and persistent
    /// below if this relay acknowledges for its standbys too.
    pub fn to_acknowledge(&self) -> Lsn {
        // What was acknowledged once stays so.
        let own = self.unbacked.map_or(self.own_ack(), |acked| self.own_ack().min(self.replayed().max(acked)));
        self.passing.as_ref().map_or(own, |passing| own.min(passing.rule.upward()))
    }

    /// The same for who joins: what it holds, whether there is memory to replay it or not. Less
    /// would say that something was lost.
    pub fn to_join(&self) -> Lsn {
        self.passing.as_ref().map_or(self.own_ack(), |passing| self.own_ack().min(passing.rule.upward()))
    }

    /// What is acknowledged without standbys below, while there is memory.
    fn own_ack(&self) -> Lsn {
        self.config.replay.acknowledges(self.persisted, self.replayed())
    }

    /// Whether something is to be acknowledged: more is persistent than the primary knows, or
    /// visible and it wants to know that, there is more room, or less, that is worth telling, or
    /// `force`; and only if the connection's term counts. `fence` is as it is now: looked at after
    /// `persisted` was (see [`Follower::persisted`]).
    pub fn owes_ack(&self, room: Room, force: bool, fence: &Fence) -> bool {
        freshet_base::step!(Ack);
        let Some(link) = self.link.as_ref().filter(|_| !self.unnoted) else { return false };
        let shows = link.reports_visible && self.visible > link.visible;
        let changed = room.until.0.abs_diff(link.credit.0) >= room.step;
        (shows || changed || force || self.to_acknowledge() > link.acked) && fence.admits(link.term)
    }

    /// What is acknowledged now, if there is a connection. What was heard last, the driver says
    /// ([`crate::lease::Voter::answers`]).
    pub fn ack(&mut self, room: Room, now: Moment) -> Option<Ack> {
        freshet_base::step!(Ack);
        let (persisted, replayed, visible) = (self.to_acknowledge(), self.replayed(), self.visible);
        assert!(persisted <= self.persisted, "{persisted} would be acknowledged, and is not persistent");
        let link = self.link.as_mut().filter(|_| !self.unnoted)?;
        link.acked = link.acked.max(persisted);
        (link.credit, link.visible, link.last) = (room.until, visible, now);
        Some(Ack { persisted, may_send_until: room.until, replayed, visible, observed: None })
    }

    /// When something was acknowledged last on the present connection.
    pub fn last_ack(&self) -> Option<Moment> {
        self.link.as_ref().map(|link| link.last)
    }

    /// Whether the primary wants to hear at once what becomes visible, from the next
    /// [`Follower::ack`] on.
    pub fn report_visible(&mut self, wanted: bool) {
        if let Some(link) = &mut self.link {
            link.reports_visible = wanted;
        }
    }

    /// Takes the next piece of at most `limit` bytes to be replayed (more if a single block is
    /// longer). [`Event::Replayed`] follows, or [`Follower::replay_failed`].
    pub fn next_piece(&mut self, limit: u64) -> Option<Piece> {
        freshet_base::step!(Replay);
        self.queue.next(limit)
    }

    /// Appends the ends of blocks that wait for replay, behind what was taken.
    pub fn waiting(&self, ends: &mut Vec<Lsn>) {
        self.queue.waiting(ends);
    }

    /// A piece could not be replayed: nothing is replayed any more.
    pub fn replay_failed(&mut self) {
        self.queue.fail();
    }

    /// Whether there is no memory to replay into.
    pub fn lacks_memory(&self) -> bool {
        self.queue.lacks_memory()
    }

    /// Whether there is memory to replay into. Without, nothing is replayed that was not
    /// asked for, and nothing more is acknowledged than was, until replay has caught up with
    /// that: who commits is not to count on a node that could not take over. The log is received
    /// all the same, and where it is kept in `files`, its buffer is given back when it is
    /// persistent.
    pub fn set_lacks_memory(&mut self, lacks: bool, files: bool) {
        if lacks && self.unbacked.is_none() {
            self.unbacked = Some(self.own_ack());
        }
        self.released |= lacks && files;
        self.queue.set_lacks_memory(lacks);
        self.back();
    }

    /// Where replay is not far behind any more, what is persistent counts again.
    fn back(&mut self) {
        let near = self.replayed().plus(self.config.capacity / 4);
        if !self.queue.lacks_memory() && near >= self.persisted {
            self.unbacked = None;
        }
    }

    /// Whether a piece is being replayed.
    pub fn is_replaying(&self) -> bool {
        self.queue.is_running()
    }

    /// Whether the next piece can be taken.
    pub fn is_replay_ready(&self) -> bool {
        self.queue.is_ready()
    }

    /// Everything up to `to` has to be replayed, whatever the mode. Says whether there is something
    /// to do for that.
    pub fn replay_until(&mut self, to: Lsn) -> bool {
        self.queue.extend(to);
        self.queue.is_ready()
    }

    /// An in-sync set has arrived and was noted durably; says whether this node has to leave the
    /// relay that it follows, because commits may count on it.
    #[must_use]
    pub fn noted(&self, set: &InSyncSet) -> bool {
        set.may_have(self.me) && self.link.as_ref().is_some_and(|link| link.relayed)
    }

    /// An in-sync set has arrived and could not be noted: what is behind its record must not be
    /// acknowledged.
    pub fn not_noted(&mut self) {
        self.unnoted = true;
    }

    /// When time alone can next change something: only of a relay, and for those below.
    pub fn next_deadline(&self) -> Option<Moment> {
        self.passing.as_ref().and_then(|passing| passing.rule.next_deadline())
    }

    /// Those below, if this node is a relay that passes something on.
    pub fn members(&self) -> impl Iterator<Item = (NodeId, &Member)> {
        self.passing.iter().flat_map(|passing| passing.rule.members())
    }

    /// What a relay tells those below to be globally persistent; `None` while nothing is passed on.
    pub fn downward(&self) -> Option<Lsn> {
        self.passing.as_ref().map(|passing| passing.rule.downward())
    }

    /// Of a relay: what of the log is known to be globally persistent, and is here. That may be
    /// more than it tells those below: the primary may name an LSN that is further away than a
    /// relay without a store has room for, and none before it.
    fn releasable(&self) -> Option<Lsn> {
        self.passing.as_ref().map(|_| self.global.min(self.persisted))
    }

    /// The end of the log, as far as it has arrived. What has arrived in another form than that of
    /// blocks is handed to replay only when it has become part of the log ([`Follower::accepted`]).
    pub fn received(&self) -> Lsn {
        self.received
    }

    /// The end of its persistent part, as far as it was told. What is persisted after the fence has
    /// risen is acknowledged to no earlier term, so a candidate may be told this from then on.
    pub fn persisted(&self) -> Lsn {
        self.persisted
    }

    /// Replayed up to here.
    pub fn replayed(&self) -> Lsn {
        self.queue.replayed()
    }

    /// Told to be persistent wherever the safety level demands.
    pub fn global(&self) -> Lsn {
        self.global
    }

    /// Readers see nothing below this.
    pub fn floor(&self) -> Lsn {
        self.floor
    }

    /// Readers see up to here.
    pub fn visible(&self) -> Lsn {
        self.visible
    }

    /// All the room that the log buffer has; a quarter of the buffer more is worth telling.
    pub fn room(&self) -> Room {
        Room { until: self.free_until(), step: self.config.capacity / 4 }
    }

    /// Where the log buffer has room up to.
    pub fn free_until(&self) -> Lsn {
        let replayed = if self.released { Lsn::MAX } else { self.config.replay.releases(self.replayed()) };
        self.persisted.min(replayed).plus(self.config.capacity)
    }
}
#[cfg(test)]
mod tests;
