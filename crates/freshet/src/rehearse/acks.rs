//! What acknowledgements say of a fault.

use std::{
    collections::BTreeSet,
    fmt,
    sync::mpsc::{Receiver, Sender},
    time::{Duration, Instant},
};

use super::load::Ack;

/// No round may be without a primary for longer; nor for longer after nodes serve again that had to
/// start.
pub(super) const LONGEST: Duration = Duration::from_secs(10);

/// What came of a fault.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Found {
    /// How long nothing was acknowledged, if no longer than [`LONGEST`] and as was to be.
    pub(super) took: Option<Duration>,
    /// How often the role has moved from a primary that lives, where that is counted.
    pub(super) moves: Option<u32>,
    /// The same as `took` after the death of a primary while the fault lasted, if one came.
    pub(super) death: Option<Option<Duration>>,
}

impl Found {
    /// This row was the first after a fault.
    pub(super) fn after(begun: Instant, first: Option<Ack>) -> Self {
        Self { took: first.map(|ack| ack.at - begun), ..Self::default() }
    }
}

impl fmt::Display for Found {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ms = |time: Option<Duration>| time.map(|time| format!("{:.0} ms", time.as_secs_f64() * 1e3));
        match (ms(self.took), self.moves) {
            (Some(took), _) => f.write_str(&took)?,
            (None, None) => f.write_str("NO PRIMARY in time")?,
            (None, Some(_)) => f.write_str("NO PRIMARY in time, or more than one failover")?,
        }
        if let Some(moves) = self.moves {
            write!(f, ", {moves} failover(s) from a primary that lives")?;
        }
        match self.death.map(ms) {
            None => Ok(()),
            Some(Some(took)) => write!(f, ", {took} after a death"),
            Some(None) => f.write_str(", NO PRIMARY in time after a death"),
        }
    }
}

/// How long nothing was acknowledged at the most, and how often the role has moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Span {
    longest: Duration,
    pub(super) moves: u32,
    /// Which node has acknowledged last.
    pub(super) leads: usize,
}

impl Span {
    /// The longest time, unless that is too long, or the role has moved more often than once.
    pub(super) fn took(self) -> Option<Duration> {
        Some(self.longest).filter(|longest| self.moves <= 1 && *longest <= LONGEST)
    }
}

/// Where acknowledgements come from, and all rows that were acknowledged.
pub(super) struct Acks<'a> {
    sender: &'a Sender<Ack>,
    receiver: &'a Receiver<Ack>,
    pub(super) rows: BTreeSet<i64>,
}

impl<'a> Acks<'a> {
    /// From this channel.
    pub(super) fn new(sender: &'a Sender<Ack>, receiver: &'a Receiver<Ack>) -> Self {
        Self { sender, receiver, rows: BTreeSet::new() }
    }

    /// For one more session.
    pub(super) fn sender(&self) -> Sender<Ack> {
        self.sender.clone()
    }

    /// All that have come, in their order.
    pub(super) fn take(&mut self) -> Vec<Ack> {
        let mut acks: Vec<Ack> = self.receiver.try_iter().collect();
        self.rows.extend(acks.iter().map(|ack| ack.row));
        acks.sort_by_key(|ack| ack.at);
        acks
    }

    /// What came from `begun` until now, when first `leads` did so.
    pub(super) fn span(&mut self, begun: Instant, leads: usize) -> Span {
        let (mut last, mut span) = (begun, Span { longest: Duration::ZERO, moves: 0, leads });
        for ack in self.take().iter().filter(|ack| ack.at >= begun) {
            span.moves += u32::from(ack.node != span.leads);
            span.longest = span.longest.max(ack.at - last);
            (span.leads, last) = (ack.node, ack.at);
        }
        span.longest = span.longest.max(last.elapsed());
        span
    }

    /// The first row after `begun` of a node that is not the `primary`, or of a session that began
    /// after `restarted`. Blocks until then, for [`LONGEST`] from now on at most. Takes all
    /// acknowledgements that come.
    pub(super) fn first(&mut self, begun: Instant, primary: usize, restarted: Option<Instant>) -> Option<Ack> {
        let deadline = Instant::now() + LONGEST;
        while let Ok(ack) = self.receiver.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
            self.rows.insert(ack.row);
            let counts = match restarted {
                Some(restarted) => ack.opened >= restarted,
                None => ack.node != primary && ack.at >= begun,
            };
            if counts {
                return Some(ack).filter(|ack| ack.at <= deadline);
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[test]
    fn a_flapping_cable_moves_the_role_once_at_most() {
        let span = |nodes: &[usize]| {
            let (sender, receiver) = mpsc::channel();
            let begun = Instant::now().checked_sub(Duration::from_secs(9)).unwrap();
            for (row, node) in nodes.iter().enumerate() {
                let at = begun + Duration::from_secs(3 * row as u64 + 2);
                sender.send(Ack { row: row as i64, node: *node, opened: begun, at }).unwrap();
            }
            Acks::new(&sender, &receiver).span(begun, 0)
        };
        let found = span(&[0, 0, 1]);
        assert_eq!((found.took(), found.moves, found.leads), (Some(Duration::from_secs(3)), 1, 1));
        assert!(span(&[0]).took().unwrap() >= Duration::from_secs(7), "nothing came since");
        let back = span(&[1, 0]);
        assert_eq!((back.took(), back.moves, back.leads), (None, 2, 0), "it has come back: twice");
    }

    #[test]
    fn a_row_counts_that_the_fault_did_not_come_to() {
        let (sender, receiver) = mpsc::channel();
        let begun = Instant::now();
        let at = |ms| begun + Duration::from_millis(ms);
        let early = begun.checked_sub(Duration::from_millis(1)).unwrap();
        let send = |row, node, opened, at| sender.send(Ack { row, node, opened, at }).unwrap();
        for (row, (node, at)) in [(1, early), (0, at(1)), (1, at(2)), (1, at(3))].into_iter().enumerate() {
            send(row as i64, node, early, at);
        }
        let mut acks = Acks::new(&sender, &receiver);
        let first =
            |acks: &mut Acks<'_>, primary, restarted| Found::after(begun, acks.first(begun, primary, restarted)).took;
        assert_eq!(first(&mut acks, 0, None), Some(Duration::from_millis(2)));
        assert_eq!(acks.rows, BTreeSet::from([0, 1, 2]));
        send(4, 1, early, begun + LONGEST * 2);
        assert_eq!(first(&mut acks, 1, None), None, "row 3 is of the primary, 4 too late");
        send(5, 0, early, at(5));
        send(6, 0, at(4), at(6));
        assert_eq!(first(&mut acks, 0, Some(at(4))), Some(Duration::from_millis(6)), "all were killed");
    }

    #[test]
    fn a_round_states_what_was_wrong() {
        let took = Some(Duration::from_millis(7));
        let shown = |found: Found| found.to_string();
        assert_eq!(shown(Found { took, ..Found::default() }), "7 ms");
        assert_eq!(shown(Found::default()), "NO PRIMARY in time");
        let flapped = Found { took, moves: Some(1), death: Some(None) };
        assert_eq!(shown(flapped), "7 ms, 1 failover(s) from a primary that lives, NO PRIMARY in time after a death");
    }
}
