//! Watch: when a node that follows takes its primary for lost, and stands for the next term.
//!
//! ```text
//!             linked, sends                     silent, or its connection lost
//!   Linked ◀───────────────── anything ────────────────────────────────────▶ Suspects ─▶ stands
//!                                                  promised, gave up: later      │
//!                                                 ◀──────────────────────────────┘
//! ```
//!
//! Only what the primary's own threads send counts: a kernel answers for a stopped process. How
//! long a primary may be silent adapts to what was measured: twice the longest silence that ended
//! by itself, which is forgotten by halves.
//!
//! To suspect is no more than a reason to ask the others ([`crate::promotion`]): while enough of
//! them hear the primary, no node promises anything. A node whose own thread stood still suspects
//! no primary for that: it has not listened. One that has promised a term to another, or has stood
//! and does not lead, waits; those who stand at the same time part by their draws, and a node of a
//! higher priority goes first. So does one that has not stood without success lately, as nodes
//! do whose links come and go: they would lead, and lose the role again. While maintenance lasts
//! ([`crate::maintenance`]), none stands.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::Moment;

/// A thread that wakes later than it wanted to, by this, did not listen until then.
const LATE: Duration = Duration::from_millis(100);
/// What was measured counts half as much after this.
const FORGOTTEN: Duration = Duration::from_secs(60);
/// Each step of priority puts a node back by this; its draw, by less.
const STEP: Duration = Duration::from_millis(20);
/// Each time that a node has stood without success lately puts it back by this part of its first
/// pause, up to the whole of that.
const VAIN_PARTS: u32 = 10;
/// The largest priority: who has it stands first.
pub const FIRST: u32 = 10;

/// By how much less than a node with a log a mirror is preferred: that goes first.
pub const BEHIND_LOGS: u32 = 3;

/// How a node watches its primary.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WatchConfig {
    /// Whether it stands by itself, and when: from 1, the last, to [`FIRST`]; 0: never.
    pub priority: u32,
    /// No shorter silence is suspicious, and every longer one than the second is.
    pub silence: (Duration, Duration),
    /// The first pause after it has stood without success, and the longest.
    pub pause: (Duration, Duration),
}

impl Default for WatchConfig {
    /// It never stands.
    fn default() -> Self {
        let (second, ms) = (Duration::from_secs, Duration::from_millis);
        Self { priority: 0, silence: (ms(800), second(3)), pause: (ms(200), second(3)) }
    }
}

/// What a node that watches does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Next {
    /// Nothing before this, unless something happens.
    Sleep(Moment),
    /// It stands ([`crate::promotion::Standing::Automatic`]); [`Watch::gave_up`] follows, or it
    /// leads.
    Stand,
}

/// See the module.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Watch {
    config: WatchConfig,
    /// The log flows.
    linked: bool,
    /// When the primary was heard last, or its connection ended, or this node started.
    since: Moment,
    /// How long this node waits from then on, where it is not linked.
    waits: Duration,
    /// The longest silence that ended by itself, and when that was said last.
    longest: (Duration, Moment),
    /// It does not stand before.
    not_before: Moment,
    /// Nor before maintenance has ended ([`crate::maintenance`]).
    held: Moment,
    /// How often it has stood without success since it was linked.
    vain: u32,
    /// How often it has stood without success lately, linked or not, and when it did last.
    lately: (u32, Moment),
    /// When it has lost its primary, or promised a term to another node that does not lead yet.
    lost: Option<Moment>,
    /// When it wanted to look next.
    looks: Moment,
}

impl Watch {
    /// Of a node that starts `now`: its primary may take as long to come as one may be silent.
    pub fn new(config: WatchConfig, now: Moment) -> Self {
        Self {
            config,
            linked: false,
            since: now,
            waits: config.silence.1,
            longest: (Duration::ZERO, now),
            not_before: now,
            held: Moment::default(),
            vain: 0,
            lately: (0, now),
            lost: None,
            looks: Moment(u64::MAX),
        }
    }

    /// The log flows.
    pub fn linked(&mut self, now: Moment) {
        (self.linked, self.since, self.vain, self.lost) = (true, now, 0, None);
    }

    /// The primary's threads have sent something.
    pub fn observe(&mut self, now: Moment) {
        let silent = now.since(self.since);
        let (longest, at) = self.longest;
        if now.since(at) >= FORGOTTEN {
            self.longest = (longest / 2, now);
        }
        self.longest.0 = self.longest.0.max(silent);
        self.since = now;
    }

    /// The connection is over, which ended by itself; `draw` is a random number.
    pub fn closed(&mut self, now: Moment, draw: u64) {
        if std::mem::take(&mut self.linked) {
            (self.since, self.waits, self.lost) = (now, self.turn(draw), Some(now));
        }
    }

    /// This node has promised a term to another one, which may lead in a moment.
    pub fn promised(&mut self, now: Moment) {
        (self.linked, self.since, self.waits, self.lost) = (false, now, self.config.silence.0, Some(now));
    }

    /// Maintenance lasts until then, or has ended then: before, it does not stand.
    pub fn hold(&mut self, until: Moment) {
        self.held = until;
    }

    /// It has stood, and does not lead; `draw` is a random number.
    pub fn gave_up(&mut self, now: Moment, draw: u64) {
        let (first, longest) = self.config.pause;
        let pause = longest.min(first * 2_u32.saturating_pow(self.vain));
        self.vain = self.vain.saturating_add(1);
        self.lately = (self.vain_by(now).saturating_add(1), now);
        self.not_before = now.after(pause + self.turn(draw));
    }

    /// How long it lets others go first.
    fn turn(&self, draw: u64) -> Duration {
        let step = STEP.as_micros() as u64;
        STEP * FIRST.saturating_sub(self.config.priority) + Duration::from_micros(draw % step)
    }

    /// How often it had stood without success within [`FORGOTTEN`] before `at`.
    fn vain_by(&self, at: Moment) -> u32 {
        let (times, last) = self.lately;
        if at.since(last) < FORGOTTEN { times } else { 0 }
    }

    /// How long it lets others go first because of that.
    fn behind(&self) -> Duration {
        self.config.pause.0 * self.vain_by(self.since).min(VAIN_PARTS) / VAIN_PARTS
    }

    /// How long a primary whose log flows may be silent.
    pub fn patience(&self) -> Duration {
        let (least, most) = self.config.silence;
        (self.longest.0 * 2).clamp(least, most)
    }

    /// Whether the primary whose log flows has been silent for too long.
    pub fn suspects(&self, now: Moment) -> bool {
        self.linked && now.since(self.since) >= self.patience()
    }

    fn stands_at(&self) -> Moment {
        let waits = if self.linked { self.patience() } else { self.waits };
        let held = self.held.after(self.turn(0));
        self.since.after(waits + self.behind()).max(self.not_before).max(held)
    }

    /// Whether this node, which has lost its primary a moment ago, stands now or in a moment. A
    /// former primary that comes back lets that pass: each time it is killed and started again it
    /// would have others promise it a term, and then wait for it.
    pub fn elects(&self, now: Moment) -> bool {
        let moment = self.config.silence.0;
        let recent = self.lost.is_some_and(|lost| now.since(lost) < 2 * moment);
        self.config.priority > 0 && recent && self.stands_at() <= now.after(moment + self.behind())
    }

    /// What to do now.
    pub fn next(&mut self, now: Moment) -> Next {
        if self.config.priority == 0 {
            return Next::Sleep(Moment(u64::MAX));
        }
        if now.since(self.looks) >= LATE {
            // What has come since, it has yet to look at.
            self.since = self.since.max(now);
        }
        let at = self.stands_at();
        if at <= now {
            self.looks = Moment(u64::MAX);
            return Next::Stand;
        }
        self.looks = at;
        Next::Sleep(at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CONFIG: WatchConfig = WatchConfig {
        priority: FIRST,
        silence: (Duration::from_millis(500), Duration::from_millis(3000)),
        pause: (Duration::from_millis(200), Duration::from_millis(1000)),
    };

    fn ms(ms: u64) -> Moment {
        Moment(ms * 1000)
    }

    #[test]
    fn a_silent_primary_is_suspected_and_a_lost_one_at_once() {
        let mut it = Watch::new(CONFIG, ms(0));
        assert_eq!(it.next(ms(10)), Next::Sleep(ms(3000)), "it may be late");
        it.linked(ms(20));
        assert_eq!(it.next(ms(20)), Next::Sleep(ms(520)));
        it.observe(ms(120));
        assert_eq!(it.next(ms(520)), Next::Sleep(ms(620)));
        assert_eq!(it.next(ms(620)), Next::Stand);
        it.observe(ms(700));
        it.closed(ms(710), 5000);
        assert_eq!(it.next(ms(711)), Next::Sleep(ms(715)));
        assert_eq!(it.next(ms(715)), Next::Stand);
        // Who stands without success waits longer each time.
        it.gave_up(ms(720), 0);
        assert_eq!(it.next(ms(720)), Next::Sleep(ms(920)));
        it.gave_up(ms(920), 0);
        assert_eq!(it.next(ms(920)), Next::Sleep(ms(1320)));
        it.promised(ms(1300));
        assert_eq!(it.next(ms(1320)), Next::Sleep(ms(1840)), "another one may lead");
    }

    #[test]
    fn it_adapts_to_silences_that_ended_by_themselves() {
        let mut it = Watch::new(CONFIG, ms(0));
        it.linked(ms(0));
        it.observe(ms(400));
        assert_eq!(it.patience(), Duration::from_millis(800));
        it.observe(ms(59_000));
        assert_eq!(it.patience(), Duration::from_millis(3000), "no longer one is allowed for");
        (0..10).for_each(|minute| it.observe(ms(59_100 + minute * 60_000)));
        assert_eq!(it.patience(), Duration::from_millis(3000), "a silence of a minute is one");
    }

    #[test]
    fn who_did_not_listen_suspects_nobody() {
        let mut it = Watch::new(CONFIG, ms(0));
        it.linked(ms(0));
        assert_eq!(it.next(ms(0)), Next::Sleep(ms(500)));
        assert_eq!(it.next(ms(10_000)), Next::Sleep(ms(10_500)));
        assert_eq!(it.next(ms(10_500)), Next::Stand);
    }

    #[test]
    fn nobody_stands_during_maintenance_and_a_lost_primary_is_replaced_after_it() {
        let mut it = Watch::new(CONFIG, ms(0));
        it.linked(ms(0));
        it.hold(ms(9000));
        assert_eq!(it.next(ms(10)), Next::Sleep(ms(9000)));
        it.closed(ms(600), 0);
        assert_eq!(it.next(ms(600)), Next::Sleep(ms(9000)), "the primary is lost");
        assert_eq!(it.next(ms(9000)), Next::Stand);
        // It is ended early, for a node that lets another one go first.
        let mut it = Watch::new(WatchConfig { priority: FIRST - 1, ..CONFIG }, ms(0));
        it.linked(ms(0));
        it.closed(ms(600), 0);
        it.hold(ms(9000));
        assert_eq!(it.next(ms(700)), Next::Sleep(ms(9020)));
        it.hold(ms(800));
        assert_eq!(it.next(ms(800)), Next::Sleep(ms(820)));
        assert_eq!(it.next(ms(820)), Next::Stand);
    }

    /// One whose links come and go lets others go first, whose primary is lost at the same time.
    #[test]
    fn who_stood_without_success_lately_lets_others_go_first() {
        let mut it = Watch::new(CONFIG, ms(0));
        for at in 1..=30_u64 {
            it.linked(ms(at * 1000));
            it.closed(ms(at * 1000 + 10), 0);
            assert_eq!(it.stands_at(), ms(at * 1000 + 10 + 20 * (at - 1).min(10)), "{at}");
            it.gave_up(ms(at * 1000 + 300), 0);
        }
        it.linked(ms(80_000));
        it.closed(ms(90_299), 0);
        assert_eq!(it.stands_at(), ms(90_499));
        it.linked(ms(90_299));
        it.closed(ms(90_300), 0);
        assert_eq!(it.stands_at(), ms(90_300), "that was more than a minute ago");
    }

    /// It is let pass only while it is due, and for a bounded time.
    #[test]
    fn an_election_is_due_when_the_primary_is_lost() {
        let mut it = Watch::new(CONFIG, ms(0));
        assert!(!it.elects(ms(2900)), "it has just started, as all others may have");
        it.linked(ms(3000));
        assert!(!it.elects(ms(3100)));
        it.closed(ms(3200), 0);
        assert!(it.elects(ms(3200)));
        assert_eq!(it.next(ms(3200)), Next::Stand);
        it.gave_up(ms(3200), 0);
        assert!(it.elects(ms(4199)) && !it.elects(ms(4200)), "nothing has come of it");
        it.promised(ms(5000));
        assert!(it.elects(ms(5000)) && it.elects(ms(5999)) && !it.elects(ms(6000)));
        it.promised(ms(7000));
        it.hold(ms(9000));
        assert!(!it.elects(ms(7000)), "maintenance lasts");
        it.hold(ms(0));
        it.linked(ms(7100));
        assert!(!it.elects(ms(7100)));
        let mut never = Watch::new(WatchConfig { priority: 0, ..CONFIG }, ms(0));
        never.linked(ms(0));
        never.closed(ms(10), 0);
        assert!(!never.elects(ms(10)));
    }

    #[test]
    fn a_node_of_a_lower_priority_lets_others_go_first_and_one_without_never_stands() {
        let mut it = Watch::new(WatchConfig { priority: FIRST - 2, ..CONFIG }, ms(0));
        it.linked(ms(0));
        it.closed(ms(100), 0);
        assert_eq!(it.next(ms(100)), Next::Sleep(ms(140)));
        let mut never = Watch::new(WatchConfig { priority: 0, ..CONFIG }, ms(0));
        assert_eq!(never.next(ms(100_000)), Next::Sleep(Moment(u64::MAX)));
    }
}
