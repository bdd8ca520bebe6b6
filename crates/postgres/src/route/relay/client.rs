//! What a client says, on its way to the nodes that serve it.

use std::{
    ops::Range,
    time::{Duration, Instant},
};

use super::super::{
    flight::Effect,
    front::{Passing, Step},
};
use super::{Next, On, Relay, divide::Choice};
use crate::{connection::ending, report::Report, start_up::End, transport::Received};

/// No more than this is read of a client that waits for a primary, in bytes.
const WAITING: usize = 256 << 10;

impl Relay<'_> {
    /// Whether more of the client is read: not before what was said before was taken. While it
    /// waits for a primary some is, so that its end is noticed: what has not begun is not done
    /// then.
    pub(super) fn reads_client(&self) -> bool {
        let waits = self.waits_since.is_some() && self.pending.len() < WAITING;
        (self.hungry || waits) && self.leaves_since.is_none() && self.working().is_none_or(|far| !far.hop.is_behind())
    }

    /// Takes in what the client has said; says whether that was anything.
    pub(super) fn take_from_client(&mut self) -> Next<bool> {
        if !self.reads_client() {
            return Ok(false);
        }
        match self.out.transport().receive(&mut self.piece, Some(Instant::now()), None) {
            Received::Bytes(count) => {
                self.pending.extend_from_slice(&self.piece[..count]);
                Ok(true)
            }
            Received::End if self.seat.entry.is_ending() => self.leave().map(|()| false),
            Received::End => Err(End::Quiet),
            Received::Rung | Received::Late => Ok(false),
        }
    }

    /// Passes on what the client has said, as far as that can be.
    pub(super) fn pass_on(&mut self) -> Next {
        if self.leaves_since.is_some() {
            return Ok(());
        }
        let mut used = 0;
        self.hungry = false;
        // What has not begun is not begun on a primary of the past, or one that has hung up.
        if !self.flight.is_busy() && !self.front.is_within() && !self.pending.is_empty() {
            self.look(Duration::ZERO)?;
            self.take_from(On::Primary)?;
            self.take_from(On::Reader)?;
        }
        loop {
            // What goes nowhere needs no node.
            let goes = !self.swallows && !self.skipping && self.owed.is_none();
            if goes && used < self.pending.len() {
                match self.choose(used) {
                    Choice::Goes => {}
                    Choice::Waits => break,
                    Choice::More => {
                        self.hungry = true;
                        break;
                    }
                }
                if self.again.begins {
                    break;
                }
                if self.working().is_none() || self.on == On::Primary && !self.later.is_empty() {
                    self.waits_since.get_or_insert_with(Instant::now);
                    break;
                }
            }
            match self.front.step(&self.pending[used..]) {
                Step::More => {
                    self.hungry = true;
                    break;
                }
                Step::Malformed => {
                    return Err(End::Reported(Report::violation("malformed message: its length cannot be")));
                }
                Step::Begins(kind) => self.begins(kind)?,
                Step::Bytes(count) => {
                    self.passes(used..used + count);
                    used += count;
                }
                Step::Ends => {
                    let passing = self.front.take();
                    if std::mem::take(&mut self.swallows) { self.swallowed(&passing)? } else { self.passed(&passing) }
                }
            }
        }
        self.pending.drain(..used);
        Ok(())
    }

    /// These bytes of what is pending go to the node that works, unless they go nowhere.
    fn passes(&mut self, bytes: Range<usize>) {
        let far = match self.on {
            On::Primary => &mut self.primary,
            On::Reader => &mut self.reader,
        };
        if !self.swallows
            && let Some(far) = far
        {
            // That it has ended is found out when it is read from.
            let _ = far.hop.send(&self.pending[bytes.clone()]);
            if self.division.is_none() {
                self.again.sends(&self.pending[bytes]);
            }
        }
    }

    /// The client begins to say something.
    fn begins(&mut self, kind: u8) -> Next {
        if kind == b'X' {
            return Err(End::Quiet);
        }
        self.swallows = self.skipping || self.owed.is_some();
        if self.swallows {
            return Ok(());
        }
        if self.division.is_none() {
            self.again.starts(&self.flight);
        }
        self.flight.begins(kind);
        self.note_run()
    }

    /// What the session is at is known to those who may end it.
    pub(super) fn note_run(&mut self) -> Next {
        let (busy, entry) = (self.flight.is_busy() || self.is_waiting(), &self.seat.entry);
        if std::mem::replace(&mut self.running, busy) == busy {
            return Ok(());
        }
        let continues = if busy { entry.run() } else { entry.rest() };
        if continues { Ok(()) } else { Err(ending()) }
    }

    /// It has said something whole, to its primary.
    fn passed(&mut self, passing: &Passing) {
        match passing.kind {
            b'Q' | b'F' => self.flight.ran(passing.effect()),
            b'P' => {
                if let Some(name) = passing.text(0) {
                    self.flight.prepared(name, passing.effect());
                }
            }
            b'B' => {
                let statements = &self.kept.statements;
                let (portal, statement) = (passing.text(0).unwrap_or(b"?"), passing.text(1).unwrap_or(b"?"));
                let known = || {
                    let statement = &statements.get(std::str::from_utf8(statement).ok()?)?.statement;
                    Some(Effect::of(statement.sql.as_bytes(), None))
                };
                self.flight.bound(portal, statement, known);
            }
            b'E' => self.flight.executed(passing.text(0)),
            _ => {}
        }
    }

    /// It has said something whole that goes nowhere.
    fn swallowed(&mut self, passing: &Passing) -> Next {
        if let Some(report) = self.owed.take() {
            if passing.kind == b'Q' && passing.effect() == Effect::RollsBack && passing.whole().is_some() {
                // It does what it would be told to do. The next session begins where that is due.
                self.flight.begins(b'Q');
                self.flight.ran(Effect::RollsBack);
                let message = passing.to_message();
                match self.primary {
                    Some(_) => self.send(&message),
                    None => self.later = message,
                }
                self.waits_since = self.primary.is_none().then(Instant::now);
                return self.note_run();
            }
            self.out.error(&report);
            self.skipping = true;
        } else if !self.skipping {
            // A message that its primary had in part: it was answered when that was lost.
            return Ok(());
        }
        if matches!(passing.kind, b'Q' | b'F' | b'S') {
            self.skipping = false;
            self.out.ready(self.flight.status());
        }
        self.flush()
    }
}
