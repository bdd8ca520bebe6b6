//! What comes of the nodes that serve a session, on its way to the client.

use std::ops::Range;

use super::{Next, On, REPORTED, Relay};
use crate::{
    route::{
        NOTE, Note,
        hop::Came,
        kept::{field, setting},
    },
    start_up::End,
};

/// What an idle session's node says when its client takes too long.
const IDLE_FOR_TOO_LONG: [&[u8]; 2] = [b"57P05", b"25P03"];

impl Relay<'_> {
    /// Passes on what has come of a node; says whether that was anything.
    pub(super) fn take_from(&mut self, on: On) -> Next<bool> {
        if self.is_barred(on) {
            return Ok(false);
        }
        let Some(far) = self.far(on) else { return Ok(false) };
        // What it has sent before it went is worth more.
        let (pushed, received) = (far.hop.push(), far.hop.receive());
        let came = self.pass_messages(on)?;
        match (received, pushed) {
            (Ok(true), _) => Ok(true),
            (Ok(false), Ok(())) => Ok(came),
            _ => self.lose_one(on).map(|()| true),
        }
    }

    fn lose_one(&mut self, on: On) -> Next {
        match on {
            On::Primary => self.lose(),
            On::Reader => self.lose_reader(),
        }
    }

    /// Whether nothing may come of this node now: another one is in the middle of a message.
    pub(super) fn is_barred(&self, on: On) -> bool {
        on != self.on && self.working().is_some_and(|far| far.hop.is_passing())
    }

    /// Passes on whole messages, and pieces of long ones.
    fn pass_messages(&mut self, on: On) -> Next<bool> {
        let mut any = false;
        let mut run: Option<Range<usize>> = None;
        loop {
            let Some(far) = self.far(on) else { return Ok(any) };
            let (passes, range) = match far.hop.next() {
                Came::More => break,
                Came::Malformed => {
                    self.write_run(on, run.take())?;
                    return self.lose_one(on).map(|()| true);
                }
                Came::Piece(kind, range) => (self.receives_piece(on, kind)?, range),
                Came::Whole(b'E', range) if field(far.hop.body(&range), b'V') == Some(b"FATAL") => {
                    self.write_run(on, run.take())?;
                    self.receives_end(on, range)?;
                    return Ok(true);
                }
                Came::Whole(NOTE, range) => {
                    let note = postcard::from_bytes(far.hop.body(&range)).ok();
                    note.map_or(Ok(()), |note| self.receives_note(on, note))?;
                    (false, range)
                }
                Came::Whole(kind, range) => (self.receives(on, kind, range.clone())?, range),
            };
            any = true;
            match run {
                Some(run_before) if passes && run_before.end == range.start => {
                    run = Some(run_before.start..range.end);
                }
                before => {
                    self.write_run(on, before)?;
                    run = passes.then_some(range);
                }
            }
        }
        self.write_run(on, run)?;
        Ok(any)
    }

    /// Whether a piece of a long message, which begins if its kind is known, is for the client.
    fn receives_piece(&mut self, on: On, kind: Option<u8>) -> Next<bool> {
        if on != self.on || self.far(on).as_ref().is_none_or(|far| far.muted > 0) {
            return Ok(false);
        }
        self.release()?;
        self.again.answers();
        if kind == Some(b'E') {
            self.flight.failed();
        }
        Ok(true)
    }

    /// Whether a message is for the client.
    fn receives(&mut self, on: On, kind: u8, range: Range<usize>) -> Next<bool> {
        let working = on == self.on;
        let Some(far) = self.far(on) else { return Ok(false) };
        let body = far.hop.body(&range);
        if far.muted > 0 {
            if kind == b'Z' {
                let status = body.first().copied().unwrap_or(b'I');
                far.muted -= 1;
                self.moved(on, status);
                self.has_begun_again(on, status)?;
            }
            return Ok(false);
        }
        if !working || self.holds(on, kind, &range)? {
            return Ok(false);
        }
        let Some(far) = (match on {
            On::Primary => &self.primary,
            On::Reader => &self.reader,
        }) else {
            return Ok(false);
        };
        let body = far.hop.body(&range);
        self.again.answers();
        match kind {
            b'Z' => {
                self.flight.ready(body.first().copied().unwrap_or(b'I'));
                self.again.ready(&self.flight);
            }
            b'G' => self.flight.copies(),
            b'E' => self.flight.failed(),
            b'S' => {
                let Some((name, value)) = setting(body) else { return Ok(true) };
                if self.division.is_some() && self.is_known_to_client(on, &name, &value) {
                    return Ok(false);
                }
                if let Some(reported) = &mut self.reported
                    && (reported.len() < REPORTED || reported.contains_key(&name))
                {
                    reported.insert(name, value);
                }
            }
            _ => {}
        }
        Ok(true)
    }

    /// Whether the client knows that a setting has this value, or is not to know what it is on a
    /// standby.
    fn is_known_to_client(&self, on: On, name: &str, value: &str) -> bool {
        on == On::Reader && name == "in_hot_standby"
            || self.reported.as_ref().and_then(|reported| reported.get(name)).is_some_and(|told| told == value)
    }

    /// A node ends the session there, for a reason of its own.
    fn receives_end(&mut self, on: On, range: Range<usize>) -> Next {
        let Some(far) = self.far(on) else { return Ok(()) };
        let state = field(far.hop.body(&range), b'C').unwrap_or_default();
        let idle = IDLE_FOR_TOO_LONG.contains(&state);
        let ends = match on {
            // Its client has worked elsewhere.
            On::Primary if idle => self.on == on,
            On::Primary => true,
            On::Reader => idle && self.on == on && !self.flight.is_busy(),
        };
        if ends {
            self.write_run(on, Some(range))?;
            return Err(End::Quiet);
        }
        self.lose_one(on)
    }

    fn receives_note(&mut self, on: On, note: Note) -> Next {
        match note {
            Note::Declined => {
                self.kept.left = on == On::Primary;
                return self.lose_one(on);
            }
            Note::Ready => self.is_ready(),
            note => {
                let far = match on {
                    On::Primary => &mut self.primary,
                    On::Reader => &mut self.reader,
                };
                if let Some(far) = far {
                    self.kept.note(note, on == On::Reader, &mut far.knows);
                }
            }
        }
        self.check_kept(on)
    }

    fn write_run(&mut self, on: On, run: Option<Range<usize>>) -> Next {
        let Some(run) = run else { return Ok(()) };
        let Some(far) = self.far(on) else { return Ok(()) };
        let bytes = far.hop.bytes()[run].to_vec();
        self.write(&bytes)
    }
}
