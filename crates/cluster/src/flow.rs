//! What a primary sends to one standby next.
//!
//! Everything is about positions in the one virtual log:
//!
//! ```text
//!   acked <= shipped <= filled             what can be read
//!            shipped <= may_send_until   the credit: ready-to-receive, Query Fresh section 3.2
//! ```
//!
//! The standby's log buffer is a ring. It grants credit up to the oldest byte that it still needs
//! plus the ring's capacity, so that batch i+1 flows in while batch i is still being persisted and
//! replayed (multi-buffering), and it cannot be overrun. A frame always ends at the end of a block.
//! Where blocks end is known in two ways:
//!
//! - *live*: the group commit hands over, with each batch, the partition ends that the workers
//!   recorded (section 3.4.2). [`Boundaries`] keeps those of the newest stretch of the log, bounded
//!   in number; one is shared by all standbys of a primary.
//! - *catch-up*: whoever is further behind is sent larger pieces, read back from the log (section
//!   3.4.4), whose blocks are found by hopping from header to header.
//!
//! So nothing is ever queued for a standby: the log itself is the queue, and a slow standby costs
//! the primary no memory.

use std::{collections::VecDeque, time::Duration};

use freshet_base::{Lsn, Stage, check};
use serde::{Deserialize, Serialize};

use crate::Moment;

/// Ends of blocks in the newest stretch of the log: batch ends and partition ends.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Boundaries {
    ends: VecDeque<Lsn>,
    limit: usize,
    /// Every batch from here on is in `ends`.
    from: Lsn,
}

impl Boundaries {
    /// None yet, for a log that ends at `start`; keeps at most `limit` (at least one) of them.
    pub fn new(start: Lsn, limit: usize) -> Self {
        Self { ends: VecDeque::new(), limit: limit.max(1), from: start }
    }

    /// A batch `[from, to)` was filled. `partition_ends` ascend within it; its own end need
    /// not be among them.
    ///
    /// # Panics
    /// When the batch does not begin where the last one ended: the group commit hands over the log
    /// without gaps.
    pub fn push(&mut self, from: Lsn, to: Lsn, partition_ends: &[Lsn]) {
        assert_eq!(from, self.filled(), "batches follow one another");
        let mut last = from;
        for end in partition_ends.iter().copied().chain([to]) {
            if end > last && end <= to {
                self.ends.push_back(end);
                last = end;
            }
        }
        assert_eq!(self.filled(), to, "a batch ends where its last block does");
        while self.ends.len() > self.limit {
            self.from = self.ends.pop_front().expect("longer than the limit");
        }
    }

    /// The end of the newest batch.
    pub fn filled(&self) -> Lsn {
        self.ends.back().copied().unwrap_or(self.from)
    }

    /// From here on every boundary is known.
    pub fn known_from(&self) -> Lsn {
        self.from
    }

    /// The boundaries in `(from, upto]`, ascending.
    pub fn between(&self, from: Lsn, upto: Lsn) -> impl DoubleEndedIterator<Item = Lsn> + '_ {
        let first = self.ends.partition_point(|end| *end <= from);
        let last = self.ends.partition_point(|end| *end <= upto).max(first);
        self.ends.range(first..last).copied()
    }
}

/// How a standby is being fed, for `status`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Mode {
    /// It gets old log in large pieces.
    CatchUp,
    /// It gets each batch as the group commit hands it over.
    Live,
}

/// Sizes and times of shipping.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FlowConfig {
    /// No frame carries more bytes, unless a single block does.
    pub frame: u64,
    /// How long an advance of the globally persistent LSN may wait for a batch to ride on before
    /// it is sent by itself.
    pub watermark_delay: Duration,
    /// How long the connection may be silent before a keep-alive is sent.
    pub keep_alive: Duration,
}

impl Default for FlowConfig {
    fn default() -> Self {
        Self { frame: 1 << 20, watermark_delay: Duration::from_micros(500), keep_alive: Duration::from_millis(200) }
    }
}

/// What to do next for this standby.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Next {
    /// Send the blocks in `[from, to)`; all their boundaries are in [`Boundaries`].
    SendLive {
        /// First byte.
        from: Lsn,
        /// One past the last; the end of a block.
        to: Lsn,
    },
    /// Read whole blocks from `from` on, up to `upto` at most, and send those of which the first
    /// is not longer than the credit allows.
    SendOld {
        /// First byte.
        from: Lsn,
        /// Neither read nor send beyond this.
        upto: Lsn,
    },
    /// Send who is in the cluster ([`crate::host::Host::peers_changed`]).
    SendPeers,
    /// Send the globally persistent LSN by itself.
    SendWatermark,
    /// Send a keep-alive, which the standby answers.
    SendKeepAlive,
    /// Nothing to do before something changes, or this time comes.
    Wait {
        /// When to ask again even though nothing changed.
        until: Moment,
    },
}

/// A standby broke the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FlowError {
    /// It claims to hold what it was never sent.
    #[error("the standby acknowledged the log up to {acked}, but it was sent only up to {shipped}")]
    AckedTooMuch {
        /// Its claim.
        acked: Lsn,
        /// What was shipped to it.
        shipped: Lsn,
    },
}

/// The shipping state of one connection.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Flow {
    config: FlowConfig,
    /// The standby held the log up to here when it came.
    from: Lsn,
    shipped: Lsn,
    acked: Lsn,
    may_send_until: Lsn,
    /// The most that it was: what is on its way may lie beyond what it is now.
    granted: Lsn,
    global_sent: Lsn,
    last_frame: Moment,
    /// Credit fell short of the next block: nothing to send before it grows beyond this.
    short_of: Option<Lsn>,
}

impl Flow {
    /// A connection whose standby holds the log up to `from` and has room up to `may_send_until`.
    pub fn new(config: FlowConfig, from: Lsn, may_send_until: Lsn, now: Moment) -> Self {
        Self {
            config,
            from,
            shipped: from,
            acked: Lsn::ZERO,
            may_send_until,
            granted: may_send_until,
            global_sent: Lsn::ZERO,
            last_frame: now,
            short_of: None,
        }
    }

    /// Decides. `global` is the globally persistent LSN.
    pub fn next(&self, boundaries: &Boundaries, global: Lsn, now: Moment) -> Next {
        let filled = boundaries.filled();
        check(&[(Stage::Ack, self.acked), (Stage::Ship, self.shipped), (Stage::Log, filled)]);
        if self.shipped < filled && self.short_of.is_none_or(|credit| self.may_send_until > credit) {
            let upto = filled.min(self.may_send_until);
            if self.shipped < boundaries.known_from() {
                if upto > self.shipped {
                    return Next::SendOld { from: self.shipped, upto: upto.min(boundaries.known_from()) };
                }
            } else if let Some(to) = self.live_end(boundaries, upto) {
                return Next::SendLive { from: self.shipped, to };
            } else if upto > self.shipped && self.acked >= self.shipped {
                // The next known end lies beyond all the room that there may ever be, and the
                // standby has nothing to do.
                return Next::SendOld { from: self.shipped, upto };
            }
        }
        let silent = now.since(self.last_frame);
        if global > self.global_sent && silent >= self.config.watermark_delay {
            return Next::SendWatermark;
        }
        if silent >= self.config.keep_alive {
            return Next::SendKeepAlive;
        }
        // As long as something sent is not yet known to be committed, look again after the delay;
        // whoever drives this need not be woken by every advance.
        let outstanding = self.global_sent < self.shipped.min(filled) || global > self.global_sent;
        let pause = if outstanding && silent < self.config.watermark_delay {
            self.config.watermark_delay
        } else {
            self.config.keep_alive
        };
        Next::Wait { until: self.last_frame.after(pause) }
    }

    /// The largest known boundary that fits into the credit and the frame; the very next one,
    /// however long, if only the frame is too small for it.
    fn live_end(&self, boundaries: &Boundaries, upto: Lsn) -> Option<Lsn> {
        let frame_end = upto.min(self.shipped.plus(self.config.frame));
        boundaries
            .between(self.shipped, frame_end)
            .next_back()
            .or_else(|| boundaries.between(self.shipped, upto).next())
    }

    /// Blocks up to `to` were sent, together with the globally persistent LSN `global`.
    pub fn sent(&mut self, to: Lsn, global: Lsn, now: Moment) {
        assert!(to >= self.shipped && to <= self.granted, "sending keeps within the credit");
        self.shipped = to;
        self.short_of = None;
        self.note_sent(global, now);
    }

    /// A frame without blocks was sent, with the globally persistent LSN `global`.
    pub fn note_sent(&mut self, global: Lsn, now: Moment) {
        self.global_sent = self.global_sent.max(global);
        self.last_frame = now;
    }

    /// [`Next::SendOld`] found that the first block alone does not fit below `upto`, as it was
    /// then; the credit may have grown since.
    pub fn credit_too_small(&mut self, upto: Lsn) {
        self.short_of = Some(upto);
    }

    /// The standby says what it holds and how far it has room: more than before, or less, if what
    /// it has takes it longer than it thought. What is being sent is sent all the same.
    ///
    /// # Errors
    /// [`FlowError`] when it claims more than it can have; the connection is then to be dropped.
    pub fn acked(&mut self, persisted: Lsn, may_send_until: Lsn) -> Result<(), FlowError> {
        if persisted > self.shipped {
            return Err(FlowError::AckedTooMuch { acked: persisted, shipped: self.shipped });
        }
        self.acked = self.acked.max(persisted);
        self.granted = self.granted.max(may_send_until);
        self.may_send_until = may_send_until;
        Ok(())
    }

    /// Whether nothing was sent beyond what the standby has granted.
    pub(crate) fn keeps_within_credit(&self) -> bool {
        self.may_send_until <= self.granted && self.shipped <= self.granted.max(self.from)
    }

    /// Whether it is fed live.
    pub fn mode(&self, boundaries: &Boundaries) -> Mode {
        if self.shipped < boundaries.known_from() { Mode::CatchUp } else { Mode::Live }
    }

    /// Whether bytes wait only for credit.
    pub fn waits_for_credit(&self, boundaries: &Boundaries) -> bool {
        self.shipped < boundaries.filled()
            && (self.short_of.is_some() || self.live_end(boundaries, self.may_send_until).is_none())
    }

    /// How far it has room.
    pub fn may_send_until(&self) -> Lsn {
        self.may_send_until
    }

    /// Sent so far.
    pub fn shipped(&self) -> Lsn {
        self.shipped
    }

    /// Persistent there.
    pub fn acked_to(&self) -> Lsn {
        self.acked
    }

    /// The globally persistent LSN that was last sent to the standby.
    pub fn global_sent(&self) -> Lsn {
        self.global_sent
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: fn(u64) -> Moment = |ms| Moment(ms * 1000);

    fn config() -> FlowConfig {
        FlowConfig { frame: 100, watermark_delay: Duration::from_millis(1), keep_alive: Duration::from_millis(50) }
    }

    #[test]
    fn live_batches_are_cut_at_boundaries_that_fit_the_credit() {
        let mut ends = Boundaries::new(Lsn(0), 100);
        ends.push(Lsn(0), Lsn(90), &[Lsn(40)]);
        let mut flow = Flow::new(config(), Lsn(0), Lsn(64), MS(0));
        assert_eq!(flow.next(&ends, Lsn(0), MS(0)), Next::SendLive { from: Lsn(0), to: Lsn(40) });
        flow.sent(Lsn(40), Lsn(0), MS(0));
        assert!(flow.waits_for_credit(&ends));
        assert!(matches!(flow.next(&ends, Lsn(0), MS(0)), Next::Wait { .. }));
        assert_eq!(flow.acked(Lsn(40), Lsn(104)), Ok(()));
        assert_eq!(flow.next(&ends, Lsn(0), MS(0)), Next::SendLive { from: Lsn(40), to: Lsn(90) });
    }

    #[test]
    fn room_may_shrink_but_what_is_on_its_way_counts() {
        let mut ends = Boundaries::new(Lsn(0), 100);
        ends.push(Lsn(0), Lsn(120), &[Lsn(40), Lsn(80)]);
        let mut flow = Flow::new(config(), Lsn(0), Lsn(100), MS(0));
        assert_eq!(flow.next(&ends, Lsn(0), MS(0)), Next::SendLive { from: Lsn(0), to: Lsn(80) });
        assert_eq!(flow.acked(Lsn(0), Lsn(50)), Ok(()));
        assert_eq!(flow.next(&ends, Lsn(0), MS(0)), Next::SendLive { from: Lsn(0), to: Lsn(40) });
        // It was decided before.
        flow.sent(Lsn(80), Lsn(0), MS(0));
        assert!(flow.waits_for_credit(&ends));
        assert_eq!(flow.acked(Lsn(80), Lsn(120)), Ok(()));
        assert_eq!(flow.next(&ends, Lsn(0), MS(0)), Next::SendLive { from: Lsn(80), to: Lsn(120) });
    }

    #[test]
    fn several_batches_make_one_frame_and_a_long_block_makes_its_own() {
        let mut ends = Boundaries::new(Lsn(0), 100);
        for k in 0..20 {
            ends.push(Lsn(k * 30), Lsn(k * 30 + 30), &[]);
        }
        let mut flow = Flow::new(config(), Lsn(0), Lsn(10_000), MS(0));
        assert_eq!(flow.next(&ends, Lsn(0), MS(0)), Next::SendLive { from: Lsn(0), to: Lsn(90) });
        flow.sent(Lsn(600), Lsn(0), MS(0));
        ends.push(Lsn(600), Lsn(1000), &[]);
        assert_eq!(flow.next(&ends, Lsn(0), MS(0)), Next::SendLive { from: Lsn(600), to: Lsn(1000) });
    }

    #[test]
    fn who_falls_behind_the_known_boundaries_is_fed_from_the_log() {
        let mut ends = Boundaries::new(Lsn(0), 2);
        for k in 0..5 {
            ends.push(Lsn(k * 30), Lsn(k * 30 + 30), &[]);
        }
        assert_eq!(ends.known_from(), Lsn(90));
        let mut flow = Flow::new(config(), Lsn(0), Lsn(1000), MS(0));
        assert_eq!(flow.mode(&ends), Mode::CatchUp);
        assert_eq!(flow.next(&ends, Lsn(0), MS(0)), Next::SendOld { from: Lsn(0), upto: Lsn(90) });
        flow.sent(Lsn(90), Lsn(0), MS(0));
        assert_eq!(flow.mode(&ends), Mode::Live);
        assert_eq!(flow.next(&ends, Lsn(0), MS(0)), Next::SendLive { from: Lsn(90), to: Lsn(150) });
    }

    #[test]
    fn a_block_longer_than_the_credit_waits_for_more_of_it() {
        let mut ends = Boundaries::new(Lsn(0), 1);
        ends.push(Lsn(0), Lsn(500), &[]);
        ends.push(Lsn(500), Lsn(510), &[]);
        let mut flow = Flow::new(config(), Lsn(0), Lsn(100), MS(0));
        assert_eq!(flow.next(&ends, Lsn(0), MS(0)), Next::SendOld { from: Lsn(0), upto: Lsn(100) });
        flow.credit_too_small(Lsn(100));
        assert!(matches!(flow.next(&ends, Lsn(0), MS(0)), Next::Wait { .. }));
        assert_eq!(flow.acked(Lsn(0), Lsn(600)), Ok(()));
        // The credit grew between the decision and the attempt: the attempt speaks of the old
        // credit.
        flow.credit_too_small(Lsn(100));
        assert_eq!(flow.next(&ends, Lsn(0), MS(0)), Next::SendOld { from: Lsn(0), upto: Lsn(500) });
    }

    #[test]
    fn a_watermark_rides_on_a_batch_or_goes_alone_after_the_delay() {
        let mut ends = Boundaries::new(Lsn(0), 10);
        ends.push(Lsn(0), Lsn(30), &[]);
        let mut flow = Flow::new(config(), Lsn(0), Lsn(1000), MS(0));
        flow.sent(Lsn(30), Lsn(0), MS(0));
        assert_eq!(flow.next(&ends, Lsn(30), MS(0)), Next::Wait { until: MS(1) });
        assert_eq!(flow.next(&ends, Lsn(30), MS(1)), Next::SendWatermark);
        flow.note_sent(Lsn(30), MS(1));
        assert_eq!(flow.next(&ends, Lsn(30), MS(1)), Next::Wait { until: MS(51) });
        assert_eq!(flow.next(&ends, Lsn(30), MS(51)), Next::SendKeepAlive);
    }

    #[test]
    fn a_claim_beyond_what_was_sent_is_refused() {
        let mut flow = Flow::new(config(), Lsn(10), Lsn(1000), MS(0));
        assert_eq!(flow.acked(Lsn(11), Lsn(1000)), Err(FlowError::AckedTooMuch { acked: Lsn(11), shipped: Lsn(10) }));
    }

    #[test]
    fn an_acknowledgement_does_not_move_back() {
        let mut ends = Boundaries::new(Lsn(0), 100);
        ends.push(Lsn(0), Lsn(90), &[Lsn(40)]);
        let mut flow = Flow::new(config(), Lsn(0), Lsn(64), MS(0));
        flow.sent(Lsn(40), Lsn(0), MS(0));
        assert_eq!((flow.acked(Lsn(40), Lsn(104)), flow.acked(Lsn(30), Lsn(104))), (Ok(()), Ok(())));
        assert_eq!(flow.acked_to(), Lsn(40));
        assert_eq!(flow.next(&ends, Lsn(0), MS(0)), Next::SendLive { from: Lsn(40), to: Lsn(90) });
    }
}
