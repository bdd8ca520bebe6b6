//! A seeded cluster of one primary, some standbys and a bad network, to hold the
//! commit rule, the view of the standbys and the fence against what is really persistent.
//!
//! Fault model: messages are delayed, connections are lost (with all that was in flight) and made again, so that
//! words of different standbys overtake one another but those of one connection do not; standbys stall, crash (losing what they
//! received and had not persisted) and return; a standby takes over while the primary lives on, partitioned.
//! Persistence itself is reliable: what was acknowledged is never lost by the one who acknowledged it.
//!
//! [`Broken`] rules must be caught, or the checker is worth nothing.

use std::{collections::VecDeque, time::Duration};

use freshet_base::{NodeId, Safety, Stamp, Term};

use crate::{
    Moment,
    commit_rule::{CommitRule, Event, Place, RuleConfig},
    term::{Fence, Verdict},
};

/// A way to get the commit rule wrong.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Broken {
    #[default]
    No,
    /// Waits for the quickest standby only.
    Quickest,
    /// Forgets the primary's own disk.
    Hasty,
    /// Believes that what was sent is persistent (the simulation acknowledges at receipt).
    Credulous,
    /// Goes on after the fence (the simulation does not tell it).
    Deaf,
    /// Puts standbys out of the in-sync set too soon (the simulation configures it so).
    Impatient,
}

impl Broken {
    pub(crate) fn bound(self, durable: Stamp, acked: impl Iterator<Item = Stamp>) -> Option<Stamp> {
        match self {
            Self::Quickest => Some(durable.min(acked.max().unwrap_or(Stamp::ZERO))),
            _ => None,
        }
    }
}

/// SplitMix64: small, seeded, good enough to draw faults.
#[derive(Clone, Debug)]
pub(crate) struct Dice(pub u64);

impl Dice {
    pub fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    pub fn below(&mut self, n: u64) -> u64 {
        self.draw() % n
    }

    pub fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }
}

#[derive(Debug, Default)]
struct Standby {
    received: u64,
    persisted: u64,
    visible: u64,
    global: u64,
    connected: bool,
    stalled: bool,
    fence: Option<Fence>,
    /// (arrives at, log end, global) and (arrives at, persisted).
    to_standby: VecDeque<(Moment, u64, u64)>,
    to_primary: VecDeque<(Moment, u64)>,
    sent: u64,
    /// When the primary last knew it to hold all that was durable there.
    level: Moment,
}

struct World {
    dice: Dice,
    now: Moment,
    rule: CommitRule,
    safety: Safety,
    broken: Broken,
    /// Really persistent on the primary, and written there.
    durable: u64,
    written: u64,
    standbys: Vec<Standby>,
    committed: u64,
    deposed: bool,
    committed_at_deposition: u64,
}

const TIMEOUT: Duration = Duration::from_millis(50);
const OLD: Term = Term(1);
const NEW: Term = Term(2);
const PRIMARY: NodeId = NodeId(1000);

impl World {
    fn new(seed: u64, safety: Safety, standbys: u32, broken: Broken) -> Self {
        let config = RuleConfig {
            standby_timeout: if broken == Broken::Impatient { TIMEOUT / 5 } else { TIMEOUT },
            join_window: 200,
            ..RuleConfig::new(safety, standbys)
        };
        let mut rule = CommitRule::new(config, Stamp(0), Moment(0));
        rule.broken = broken;
        let standbys = (0..standbys)
            .map(|_| Standby { fence: Some(Fence::new(OLD, Some(PRIMARY))), ..Standby::default() })
            .collect();
        Self {
            dice: Dice(seed),
            now: Moment(0),
            rule,
            safety,
            broken,
            durable: 0,
            written: 0,
            standbys,
            committed: 0,
            deposed: false,
            committed_at_deposition: 0,
        }
    }

    fn apply(&mut self, event: Event) -> Result<(), String> {
        let before: Vec<(NodeId, Place)> = self.rule.members().map(|(id, member)| (id, member.place)).collect();
        for (id, member) in self.rule.members() {
            if member.connected && member.acked >= self.rule.durable() {
                self.standbys[id.0 as usize].level = self.now;
            }
        }
        let decision = self.rule.apply(event, self.now);
        for (id, member) in self.rule.members() {
            let absent = self.now.since(self.standbys[id.0 as usize].level);
            if before.contains(&(id, Place::InSync)) && member.place == Place::Behind && absent < TIMEOUT {
                return Err(format!("a standby was put out after {absent:?}"));
            }
        }
        if decision.committed.0 < self.committed {
            return Err(format!("committed went back from {} to {}", self.committed, decision.committed));
        }
        if decision.committed.0 > self.committed {
            self.committed = decision.committed.0;
            self.check_commit()?;
        }
        if decision.committed != self.rule.committed() {
            return Err("the decision is not the state".into());
        }
        Ok(())
    }

    /// The truth against the promise.
    fn check_commit(&self) -> Result<(), String> {
        let c = self.committed;
        let holders = self.standbys.iter().filter(|standby| standby.persisted >= c).count();
        if self.durable < c {
            return Err(format!("{c} is committed, the primary holds {}", self.durable));
        }
        let enough = match self.safety {
            Safety::OneSafe => true,
            Safety::VerySafe => holders == self.standbys.len(),
            Safety::Quorum(k) => holders + 1 >= k as usize,
            Safety::TwoSafe => self
                .rule
                .members()
                .all(|(id, member)| member.place != Place::InSync || self.standbys[id.0 as usize].persisted >= c),
        };
        if !enough {
            let held: Vec<u64> = self.standbys.iter().map(|standby| standby.persisted).collect();
            return Err(format!("{c} is committed under {}, the standbys hold {held:?}", self.safety));
        }
        // A majority (or everyone) belongs to the new term: the old primary must be unable to commit.
        let split = match self.safety {
            Safety::VerySafe => true,
            Safety::Quorum(k) => k as usize > self.standbys.len().div_ceil(2),
            _ => false,
        };
        if self.deposed && split && c > self.committed_at_deposition.max(self.survivable()) {
            return Err(format!("{c} was committed in term {OLD} after term {NEW} began"));
        }
        Ok(())
    }

    /// Acknowledgements that were under way when the fences rose may still arrive; they speak of what is in
    /// the logs that the new primary consulted.
    fn survivable(&self) -> u64 {
        self.standbys.iter().map(|standby| standby.persisted).max().unwrap_or(0)
    }

    fn step(&mut self) -> Result<(), String> {
        self.now.0 += 1 + self.dice.below(3000);
        match self.dice.below(12) {
            0..=2 => self.written += self.dice.below(60) * 8,
            3 | 4 => {
                // Shipping overlaps the local flush: the standby may be persistent first.
                self.durable = self.written - self.dice.below(self.written - self.durable + 1);
                self.apply(Event::Durable(Stamp(self.durable)))?;
                if self.broken == Broken::Hasty {
                    self.apply(Event::Durable(Stamp(self.written)))?;
                }
            }
            5 => self.apply(Event::Tick)?,
            _ => {
                let which = self.dice.below(self.standbys.len() as u64) as usize;
                self.standby_step(which)?;
            }
        }
        for which in 0..self.standbys.len() {
            self.deliver(which)?;
        }
        if !self.deposed && self.dice.one_in(400) {
            self.depose();
        }
        Ok(())
    }

    /// Everyone who is consulted raises the fence, and whoever consults learns what they hold.
    fn depose(&mut self) {
        self.deposed = true;
        self.committed_at_deposition = self.committed;
        for standby in &mut self.standbys {
            let verdict = standby.fence.as_mut().expect("has one").hear(NEW, NodeId(0));
            assert_eq!(verdict, Verdict::Raised);
        }
    }

    fn standby_step(&mut self, which: usize) -> Result<(), String> {
        let id = NodeId(which as u64);
        let (roll, now, written, committed) = (self.dice.below(20), self.now, self.written, self.committed);
        let delay = self.dice.below(4000);
        let standby = &mut self.standbys[which];
        match roll {
            0 if standby.connected => {
                standby.connected = false;
                standby.to_standby.clear();
                standby.to_primary.clear();
                self.apply(Event::Left { standby: id })?;
            }
            0..=3 if !standby.connected => {
                let fence = standby.fence.as_mut().expect("has one");
                if !matches!(fence.hear(OLD, PRIMARY), Verdict::Current) {
                    if self.broken != Broken::Deaf {
                        self.apply(Event::Fenced { by: NEW })?;
                    }
                    return Ok(());
                }
                standby.connected = true;
                standby.received = standby.received.max(standby.persisted);
                standby.sent = standby.received;
                let persisted = Stamp(standby.persisted);
                self.apply(Event::Joined { standby: id, persisted })?;
            }
            1 if self.dice.one_in(4) => {
                // A crash: what was not persisted is gone.
                standby.received = standby.persisted;
                standby.to_standby.clear();
                standby.to_primary.clear();
                if std::mem::take(&mut standby.connected) {
                    self.apply(Event::Left { standby: id })?;
                }
            }
            4 => standby.stalled = !standby.stalled,
            5..=11 if standby.connected => {
                standby.sent = written;
                let at = Moment(now.0 + delay).max(standby.to_standby.back().map_or(Moment(0), |m| m.0));
                standby.to_standby.push_back((at, written, committed));
            }
            _ if !standby.stalled => {
                standby.persisted = standby.received;
                let acked = if self.broken == Broken::Credulous { standby.sent } else { standby.persisted };
                if standby.connected && standby.fence.as_ref().is_some_and(|fence| fence.admits(OLD)) {
                    let at = Moment(now.0 + delay).max(standby.to_primary.back().map_or(Moment(0), |m| m.0));
                    standby.to_primary.push_back((at, acked));
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn deliver(&mut self, which: usize) -> Result<(), String> {
        let now = self.now;
        let standby = &mut self.standbys[which];
        while let Some((_, end, global)) = standby.to_standby.pop_front_if(|message| message.0 <= now) {
            if standby.fence.as_ref().is_some_and(|fence| !fence.admits(OLD)) {
                continue;
            }
            standby.received = standby.received.max(end);
            standby.global = standby.global.max(global);
        }
        // Replay keeps pace here: visible = min(replayed = received, own persisted, global).
        let visible = standby.persisted.min(standby.global).max(standby.visible);
        if visible > standby.persisted || visible > self.committed {
            return Err(format!(
                "a standby shows {visible}, holds {}, committed is {}",
                standby.persisted, self.committed
            ));
        }
        standby.visible = visible;
        let mut acks = Vec::new();
        while let Some((_, acked)) = standby.to_primary.pop_front_if(|message| message.0 <= now) {
            acks.push(acked);
        }
        for acked in acks {
            self.apply(Event::Acked { standby: NodeId(which as u64), persisted: Stamp(acked) })?;
        }
        Ok(())
    }
}

fn seed() -> u64 {
    std::env::var("FRESHET_SEED").ok().and_then(|text| text.parse().ok()).unwrap_or(20_171)
}

/// The first violation within `runs` runs, if any, and the highest stamp ever committed.
fn simulate(safety: Safety, standbys: u32, broken: Broken, runs: u64) -> (Option<String>, u64) {
    let mut progress = 0;
    for run in 0..runs {
        let seed = seed() + run;
        let mut world = World::new(seed, safety, standbys, broken);
        for step in 0..2000 {
            if let Err(why) = world.step() {
                return (Some(format!("seed {seed}, step {step}: {why}")), progress);
            }
        }
        progress = progress.max(world.committed);
    }
    (None, progress)
}

#[test]
fn committed_never_exceeds_what_the_rule_demands() {
    for safety in [Safety::OneSafe, Safety::TwoSafe, Safety::VerySafe, Safety::Quorum(2), Safety::Quorum(3)] {
        for standbys in 2..=4 {
            let (violation, progress) = simulate(safety, standbys, Broken::No, 30);
            assert_eq!(violation, None, "{safety}, {standbys} standbys");
            assert!(progress > 1000, "{safety}, {standbys} standbys: nothing was ever committed");
        }
    }
}

#[test]
fn broken_rules_are_caught() {
    let caught = |safety, broken| simulate(safety, 3, broken, 30).0.is_some();
    assert!(caught(Safety::VerySafe, Broken::Quickest));
    assert!(caught(Safety::TwoSafe, Broken::Quickest));
    assert!(caught(Safety::Quorum(3), Broken::Quickest));
    for safety in [Safety::TwoSafe, Safety::VerySafe, Safety::Quorum(2)] {
        assert!(caught(safety, Broken::Credulous), "{safety}");
    }
    for safety in [Safety::OneSafe, Safety::Quorum(2)] {
        assert!(caught(safety, Broken::Hasty), "{safety}");
    }
    assert!(caught(Safety::TwoSafe, Broken::Impatient));
}

#[test]
fn a_fence_stops_the_old_primary_even_if_nobody_tells_it() {
    // Deaf: the primary never learns of the new term. Nobody acknowledges to it any more, and that is enough.
    let (violation, _) = simulate(Safety::Quorum(3), 4, Broken::Deaf, 30);
    assert_eq!(violation, None);
}
