//! In which form a standby asks for the log that is told to find out by itself
//! (`encoding = "auto"`).
//!
//! Bytes cost the standby and its primary less processor time, inputs take a fraction of the link.
//! So bytes are asked for, unless the link holds the log back and this node has the processors to
//! execute transactions again. [`Choice`] is told once in a while what has happened since
//! ([`Observation`]), and says when the form is to change. It has no clock, and measures nothing.
//!
//! | from | to | when, for how long | but |
//! |---|---|---|---|
//! | bytes | inputs | the link is busy for more than 70 % of the time: 5 s | not when the processors are too busy for it |
//! | inputs | bytes | executing holds back what the link would carry as bytes: 5 s | |
//! | inputs | bytes | inputs are about as long as bytes, or none come: 30 s | |
//! | inputs | bytes | as bytes, the same would keep the link busy for less than half of the time: 60 s | |
//!
//! How long inputs are, and what executing them costs, is known only after they were asked for: a
//! primary records none that no node has asked for. So the first change to inputs is a trial, and
//! it is taken back if nothing is won. After each change back to bytes inputs wait for 15 s, or, if
//! nothing was won or they did not last, for twice as long as the time before, up to an hour.

#[cfg(test)]
mod tests;
pub mod weigh;

use std::time::Duration;

use freshet_replication::forms::Encoding;
use serde::Serialize;

/// What speaks for the other form must do so for so long.
const PERSISTS: Duration = Duration::from_secs(5);
/// Inputs have so long to come, and to be shorter than bytes.
const TRIAL: Duration = Duration::from_secs(30);
/// The link must be wide enough for bytes for so long.
const AMPLE: Duration = Duration::from_secs(60);
/// How long bytes stay at least after inputs: at first, and at most.
const PAUSE: Duration = Duration::from_secs(15);
const LONGEST_PAUSE: Duration = Duration::from_secs(3600);

/// Executing holds the log back when this share of it comes while there is little room.
const HELD: f64 = 0.5;
/// Executing holds the log back when the link would carry this many times as much as bytes.
const FASTER: f64 = 1.2;
/// The weight of a newer share against those before.
const WEIGHT: f64 = 0.3;

/// What has happened since the last one.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Observation {
    /// For how long.
    pub interval: Duration,
    /// By how many bytes the primary's log has grown.
    pub made: u64,
    /// How many bytes of log have arrived.
    pub arrived: u64,
    /// How many bytes the link has carried for that.
    pub carried: u64,
    /// For how long something was on its way.
    pub link_busy: Duration,
    /// Bytes of log that arrived while there was little room here, as too much was pending.
    pub held_here: u64,
    /// Transactions whose inputs have come, and those that came as bytes.
    pub with_inputs: u64,
    pub as_bytes: u64,
    /// Transactions that were executed again, and the processor time that it took.
    pub executed: u64,
    pub execute_cpu: Duration,
    /// The share of this machine's processors that did nothing, where that is known.
    pub idle: Option<f64>,
    /// How many processors there are.
    pub processors: u32,
}

/// The figures on which a choice rests.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Figures {
    /// By how many bytes in a second the primary's log has grown.
    pub made_s: u64,
    /// Bytes of log that have arrived in a second, and that the link has carried for them.
    pub arrived_s: u64,
    /// See `arrived_s`.
    pub carried_s: u64,
    /// In percent of the time: how long something was on its way.
    pub link_busy: u64,
    /// In percent: how much of the log came while there was little room here.
    pub held_here: u64,
    /// In percent of the transactions: those whose inputs came.
    pub with_inputs: u64,
    /// How many bytes the link carries in a second, as far as it was busy.
    pub link_s: Option<u64>,
    /// In percent of the log's bytes: what bytes take on the link, and inputs.
    pub bytes_take: u64,
    /// See `bytes_take`; nothing while no inputs have come.
    pub inputs_take: Option<u64>,
    /// Processor time of executing one transaction again; nothing before the first.
    pub execute: Option<Duration>,
    /// In percent: how much of the processors did nothing.
    pub idle: Option<u64>,
}

/// Chooses. See the module.
#[derive(Clone, Debug)]
pub struct Choice {
    encoding: Encoding,
    why: String,
    /// Why it stays with bytes although the link is full, and for how long that has been so.
    stays: (Duration, Option<String>),
    /// The time of all observations, and when the present choice was made.
    time: Duration,
    since: Duration,
    /// For how long each reason to change has held.
    reasons: [Duration; REASONS],
    /// No change to inputs before.
    rests_until: Duration,
    pause: Duration,
    link: Option<f64>,
    bytes_take: f64,
    inputs_take: Option<f64>,
    execute: Option<Duration>,
    figures: Figures,
}

/// Reasons to change: places in [`Choice::reasons`].
const LINK_IS_FULL: usize = 0;
const EXECUTING_IS_SLOWER: usize = 1;
const NOTHING_IS_WON: usize = 2;
const LINK_IS_WIDE: usize = 3;
const REASONS: usize = 4;

impl Default for Choice {
    fn default() -> Self {
        Self {
            encoding: Encoding::Bytes,
            why: "the link was not full since the start".into(),
            stays: Default::default(),
            time: Duration::ZERO,
            since: Duration::ZERO,
            reasons: [Duration::ZERO; REASONS],
            rests_until: Duration::ZERO,
            pause: PAUSE,
            link: None,
            bytes_take: 1.0,
            inputs_take: None,
            execute: None,
            figures: Figures::default(),
        }
    }
}

fn percent(share: f64) -> u64 {
    (share * 100.0).round() as u64
}

fn rate(bytes: u64, interval: Duration) -> f64 {
    bytes as f64 / interval.as_secs_f64().max(1e-9)
}

fn share(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { (part as f64 / whole as f64).min(1.0) }
}

impl Choice {
    /// At first this form is asked for.
    pub fn beginning_with(encoding: Encoding) -> Self {
        Self { encoding, why: "it was asked for before".into(), ..Self::default() }
    }

    /// The form to be asked for.
    pub fn encoding(&self) -> Encoding {
        self.encoding
    }

    /// Why, for people, with the figures of then.
    pub fn why(&self) -> &str {
        self.stays.1.as_deref().unwrap_or(&self.why)
    }

    /// For how long it has been that, in time of observations.
    pub fn age(&self) -> Duration {
        self.time - self.since
    }

    /// The newest figures.
    pub fn figures(&self) -> &Figures {
        &self.figures
    }

    /// Hears what has happened. Says which form is to be asked for from now on, if that changes.
    pub fn observe(&mut self, seen: &Observation) -> Option<Encoding> {
        self.time += seen.interval;
        self.measure(seen);
        let holds = match self.encoding {
            Encoding::Bytes => self.against_bytes(seen),
            Encoding::Inputs => self.against_inputs(seen),
        };
        for (lasted, holds) in self.reasons.iter_mut().zip(holds) {
            match holds {
                Some(true) => *lasted += seen.interval,
                Some(false) => *lasted = Duration::ZERO,
                // This observation says nothing about it.
                None => {}
            }
        }
        let needed = [PERSISTS, PERSISTS, TRIAL, AMPLE];
        let reason = (0..REASONS).find(|reason| self.reasons[*reason] >= needed[*reason])?;
        if reason == LINK_IS_FULL && self.time < self.rests_until {
            return None;
        }
        self.change(reason);
        Some(self.encoding)
    }

    /// Takes down rates and shares.
    fn measure(&mut self, seen: &Observation) {
        let busy = busy(seen);
        if seen.arrived > 0 {
            let takes = seen.carried as f64 / seen.arrived as f64;
            match self.encoding {
                Encoding::Bytes => self.bytes_take = mean(Some(self.bytes_take), takes),
                // Log from before they were recorded comes as bytes.
                Encoding::Inputs if seen.with_inputs > 0 => self.inputs_take = Some(mean(self.inputs_take, takes)),
                Encoding::Inputs => {}
            }
        }
        if let Some(carries) = weigh::carries(rate(seen.carried, seen.interval), busy) {
            self.link = Some(mean(self.link, carries));
        }
        if seen.executed > 0 {
            let each = seen.execute_cpu.as_secs_f64() / seen.executed as f64;
            let before = self.execute.map(|before| before.as_secs_f64());
            self.execute = Some(Duration::from_secs_f64(mean(before, each)));
        }
        self.figures = Figures {
            made_s: rate(seen.made, seen.interval) as u64,
            arrived_s: rate(seen.arrived, seen.interval) as u64,
            carried_s: rate(seen.carried, seen.interval) as u64,
            link_busy: percent(busy),
            held_here: percent(share(seen.held_here, seen.arrived)),
            with_inputs: percent(share(seen.with_inputs, seen.with_inputs + seen.as_bytes)),
            link_s: self.link.map(|link| link as u64),
            bytes_take: percent(self.bytes_take),
            inputs_take: self.inputs_take.map(percent),
            execute: self.execute,
            idle: seen.idle.map(percent),
        };
    }

    /// What speaks for inputs.
    fn against_bytes(&mut self, seen: &Observation) -> [Option<bool>; REASONS] {
        let full = weigh::is_full(busy(seen));
        // The share of the processors that executing would take, as far as it was measured before.
        let transactions = rate(seen.with_inputs + seen.as_bytes, seen.interval);
        let execute = self.execute.unwrap_or_default().as_secs_f64();
        let needs = transactions * execute / f64::from(seen.processors.max(1));
        let idle = seen.idle.is_none_or(|idle| weigh::can_execute(idle, needs));
        self.stay(full && !idle, seen.interval);
        [Some(full && idle), Some(false), Some(false), Some(false)]
    }

    /// Takes down why inputs are not asked for when `barred`: the processors are too busy for them.
    fn stay(&mut self, barred: bool, interval: Duration) {
        let lasts = if barred { self.stays.0 + interval } else { Duration::ZERO };
        let Figures { link_busy, idle, .. } = &self.figures;
        let why = || {
            let idle = idle.unwrap_or_default();
            format!(
                "the link is busy for {link_busy} % of the time, but only {idle} % of the processors are idle: \
                 too little for executing transactions again"
            )
        };
        self.stays = (lasts, (lasts >= PERSISTS).then(why));
    }

    /// What speaks for bytes.
    fn against_inputs(&self, seen: &Observation) -> [Option<bool>; REASONS] {
        let Some(inputs_take) = self.inputs_take.filter(|_| seen.with_inputs > 0 || seen.made == 0) else {
            return [Some(false), Some(false), (seen.arrived > 0).then_some(true), Some(false)];
        };
        // For which share of the time the same would keep the link busy, as bytes.
        let as_bytes = weigh::busy_with(busy(seen), inputs_take, self.bytes_take);
        let held_here = share(seen.held_here, seen.arrived) >= HELD;
        let slower = held_here && as_bytes * FASTER < 1.0;
        let won = weigh::is_shorter(inputs_take, self.bytes_take);
        let wide = !held_here && weigh::is_wide(as_bytes);
        [Some(false), Some(slower), (seen.arrived > 0).then_some(!won), Some(wide)]
    }

    /// Inputs are of no use, whatever the figures say.
    pub fn take_bytes(&mut self, why: &str) {
        if self.encoding == Encoding::Inputs {
            self.change_to(Encoding::Bytes, why.to_owned(), false);
        }
    }

    fn change(&mut self, reason: usize) {
        let (why, worth) = (self.explain(reason), reason == LINK_IS_WIDE && self.age() >= 2 * self.pause);
        let other = if self.encoding == Encoding::Inputs { Encoding::Bytes } else { Encoding::Inputs };
        self.change_to(other, why, worth);
    }

    /// `worth`: what it had been was of use.
    fn change_to(&mut self, encoding: Encoding, why: String, worth: bool) {
        self.why = why;
        self.stays = Default::default();
        if encoding == Encoding::Bytes {
            self.pause = if worth { PAUSE } else { (2 * self.pause).min(LONGEST_PAUSE) };
            self.rests_until = self.time + self.pause;
        }
        (self.encoding, self.since) = (encoding, self.time);
        self.reasons = [Duration::ZERO; REASONS];
    }

    fn explain(&self, reason: usize) -> String {
        let Figures { arrived_s, link_busy, bytes_take, inputs_take, .. } = &self.figures;
        let takes = inputs_take.map(|inputs| format!("inputs take {inputs} % of the log, bytes take {bytes_take} %"));
        match reason {
            LINK_IS_FULL => {
                let takes = takes.unwrap_or_else(|| "how long inputs are is tried".into());
                format!("the link is busy for {link_busy} % of the time with {arrived_s} bytes/s of log; {takes}")
            }
            EXECUTING_IS_SLOWER => format!(
                "executing transactions again holds the log back at {arrived_s} bytes/s, the link is busy for \
                 {link_busy} % of the time"
            ),
            NOTHING_IS_WON => takes.unwrap_or_else(|| "no inputs have come".into()),
            _ => format!(
                "the link is wide enough for bytes: {arrived_s} bytes/s of log as inputs keep it busy for \
                 {link_busy} % of the time; {}",
                takes.unwrap_or_default()
            ),
        }
    }
}

/// For which share of the time something was on its way.
fn busy(seen: &Observation) -> f64 {
    (seen.link_busy.as_secs_f64() / seen.interval.as_secs_f64().max(1e-9)).min(1.0)
}

/// The newer value among those before.
fn mean(before: Option<f64>, newer: f64) -> f64 {
    before.map_or(newer, |before| before + WEIGHT * (newer - before))
}
