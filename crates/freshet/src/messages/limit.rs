//! Keeps one place in the code from filling the disk: lets a few of its lines through, then says
//! how many were left out.

use std::{
    collections::HashMap,
    time::{Duration, Instant},
};

use tracing::{Metadata, callsite::Identifier};

/// This number of lines of one place is let through ...
pub(super) const BURST: u32 = 20;
/// ... in this time.
pub(super) const INTERVAL: Duration = Duration::from_secs(10);

/// Whether a line is let through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Admission {
    /// It is let through. Before it, this number of lines of its place was left out and not yet
    /// reported.
    Yes { left_out: u64 },
    /// It is left out and counted; whether it is the first.
    No { first: bool },
}

struct Place {
    metadata: &'static Metadata<'static>,
    since: Instant,
    written: u32,
    left_out: u64,
}

/// What each place has said lately. There are as many places as the program has.
#[derive(Default)]
pub(super) struct Limit(HashMap<Identifier, Place>);

impl Limit {
    /// Decides on a line that is to be said `now`.
    pub(super) fn admit(&mut self, metadata: &'static Metadata<'static>, now: Instant) -> Admission {
        let fresh = Place { metadata, since: now, written: 0, left_out: 0 };
        let place = self.0.entry(metadata.callsite()).or_insert(fresh);
        let mut left_out = 0;
        if now.saturating_duration_since(place.since) >= INTERVAL {
            left_out = place.left_out;
            (place.since, place.written, place.left_out) = (now, 0, 0);
        }
        if place.written == BURST {
            place.left_out += 1;
            return Admission::No { first: place.left_out == 1 };
        }
        place.written += 1;
        Admission::Yes { left_out }
    }

    /// The end of the first interval in which a line was left out.
    pub(super) fn next(&self) -> Option<Instant> {
        self.0.values().filter(|place| place.left_out > 0).map(|place| place.since + INTERVAL).min()
    }

    /// The places whose interval is over and that left lines out in it, and how many. Each of them
    /// begins a new interval.
    pub(super) fn due(&mut self, now: Instant) -> Vec<(&'static Metadata<'static>, u64)> {
        let over = |place: &&mut Place| place.left_out > 0 && now.saturating_duration_since(place.since) >= INTERVAL;
        let due = self.0.values_mut().filter(over);
        due.map(|place| {
            (place.since, place.written) = (now, 0);
            (place.metadata, std::mem::take(&mut place.left_out))
        })
        .collect()
    }
}
