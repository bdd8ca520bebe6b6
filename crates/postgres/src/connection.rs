//! A connection's life: a message in, a call of the session, the answer out.

use std::{convert::Infallible, ops::ControlFlow, time::Instant};

use freshet_base::panics;

use crate::{
    backend::{Ending, Opening, Origin, Peer, Session},
    bell::Bell,
    copy::Client,
    input::{Frame, Input},
    message::{Fault, Message, Target},
    out::{Mark, Out},
    packet::Startup,
    registry::{Entry, Seat, Sessions},
    report::{Report, Severity, SqlState},
    route::{Handed, NOTE, Note, Part, Served, begin_again, read_ask, relay, taken, write_note},
    server::Shared,
    start_up::{End, Starting},
    transport::{Received, Transport},
};

/// Serves a client until either side ends the connection. Returns its transport, unless a delayed
/// refusal still uses it.
pub(crate) fn run(shared: &Shared, seat: &Seat, peer: Peer, transport: Transport) -> Option<Transport> {
    let mut out = Out::new(transport);
    let mut peer = peer;
    let served = panics::contained("a connection", || serve(shared, seat, &mut peer, &mut out));
    finish(shared, seat, &peer, out, served.unwrap_or_else(|_| unforeseen()))
}

/// Serves a session that another node hands on; `ahead` came of it already.
pub(crate) fn run_handed(shared: &Shared, seat: &Seat, transport: Transport, ahead: &[u8], own: bool) {
    let mut out = Out::new(transport);
    let mut peer = Peer::new(Origin::Local { uid: 0 });
    let served = panics::contained("a session of another node", || {
        let mut input = Input::ahead(ahead);
        let handed = match taken::admit(shared, seat, &mut input, &mut out, own) {
            Ok(handed) => handed,
            Err(end) => return end,
        };
        peer = handed.peer();
        seat.entry.use_long_key();
        open(shared, seat, &peer, (input, &mut out), &handed.startup, Some(&handed))
    });
    finish(shared, seat, &peer, out, served.unwrap_or_else(|_| unforeseen()));
}

/// Ends a connection. Returns its transport, unless a delayed refusal still uses it.
fn finish(shared: &Shared, seat: &Seat, peer: &Peer, mut out: Out, end: End) -> Option<Transport> {
    match end {
        End::Quiet | End::Abandoned => out.flush(),
        End::Delayed(report, delayed) => {
            if let Some(report) = report {
                out.error(&report);
                shared.backend.ended(peer, &report);
            }
            shared.delays.wait(out, delayed.after, delayed.place, &delayed.user);
            return None;
        }
        End::Reported(report) => {
            out.error(&report);
            out.flush();
            shared.backend.ended(peer, &report);
            out.transport().close();
            // Who was only refused has sent nothing that was not read, and others wait for his
            // place.
            if seat.entry.is_seated() || report.state() == SqlState::PROTOCOL_VIOLATION {
                out.transport().linger();
            }
            return Some(out.into_transport());
        }
    }
    out.transport().close();
    Some(out.into_transport())
}

fn serve(shared: &Shared, seat: &Seat, peer: &mut Peer, out: &mut Out) -> End {
    let mut input = Input::default();
    let mut starting = Starting::new(shared, seat, &mut input, out, peer.clone());
    let admitted = starting.admit();
    *peer = starting.peer.clone();
    let startup = match admitted {
        Ok(startup) => startup,
        Err(end) => return end,
    };
    match shared.backend.route(&startup) {
        Ok(Served::Here) => open(shared, seat, peer, (input, out), &startup, None),
        Ok(Served::OnPrimary(route)) => relay(shared, seat, (input, out), (&startup, peer), (&*route, Part::Whole)),
        Ok(Served::Divided(route)) => relay(shared, seat, (input, out), (&startup, peer), (&*route, Part::Writes)),
        Err(report) => End::Reported(report.into_fatal()),
    }
}

/// Opens a session, and serves it.
fn open(
    shared: &Shared,
    seat: &Seat,
    peer: &Peer,
    (mut input, out): (Input, &mut Out),
    startup: &Startup,
    handed: Option<&Handed>,
) -> End {
    let (entry, bell) = (&seat.entry, Bell::default());
    let opening = Opening {
        startup,
        peer: peer.clone(),
        pid: entry.pid,
        bell: bell.clone(),
        sessions: Sessions::new(seat.registry()),
        handed: handed.map(|handed| handed.part),
    };
    let longest = shared.limits.message;
    let mut end = None;
    let opened = shared.backend.open(opening, &mut |session, parameters| {
        if let Some(Handed { moved, failed, .. }) = handed {
            let begun = begin_again(session, moved, *failed, &mut Client::new(out, &mut input, longest));
            if let Err(report) = begun {
                end = Some(End::Reported(report.into_fatal()));
                return;
            }
        }
        for (name, value) in parameters.iter() {
            out.parameter_status(name, value);
        }
        let mut message = out.begin(b'K');
        message.i32(entry.pid);
        message.bytes(entry.key());
        message.end();
        entry.opened(session.interrupt());
        if handed.is_some() {
            session.write_settings(out);
            write_notes(session, out);
        }
        out.ready(session.status());
        out.flush();
        let (input, bell) = (std::mem::take(&mut input), bell.clone());
        let (kept, skipping, declined, batch, text) = Default::default();
        let handed = handed.is_some();
        let mut talk =
            Talk { seat, entry, session, input, out, bell, longest, handed, kept, skipping, declined, batch, text };
        // The session is dropped when it has fallen, not while it falls.
        let how = match panics::contained("a session", || talk.go_on()) {
            Ok(ControlFlow::Break(end)) => end,
            Ok(ControlFlow::Continue(never)) => match never {},
            Err(_) => unforeseen(),
        };
        end = Some(talk.ends(how));
    });
    match (end, opened) {
        (Some(end), _) => end,
        (None, Err(report)) => End::Reported(report.into_fatal()),
        (None, Ok(())) => unforeseen(),
    }
}

fn unforeseen() -> End {
    End::Reported(Report::fatal(SqlState::INTERNAL_ERROR, "the session failed in a way that was not foreseen"))
}

/// What is done next: the next message, or the end.
type Next = ControlFlow<End>;

/// What a session answers as a whole.
#[derive(Default)]
struct Batch {
    /// Messages of the extended protocol were heeded since the last Sync.
    heeded: bool,
    /// Where the answer to them, or to a query, begins.
    answers: Mark,
}

/// A session and its client.
struct Talk<'a> {
    seat: &'a Seat,
    entry: &'a Entry,
    session: &'a mut dyn Session,
    input: Input,
    out: &'a mut Out,
    bell: Bell,
    longest: usize,
    /// Whether another node has handed the session on.
    handed: bool,
    /// What the session keeps for a message that is not whole.
    kept: usize,
    /// After an error in the extended protocol, until Sync.
    skipping: bool,
    /// What was asked of a session that was handed on cannot be: the node in the middle has another
    /// one do what follows, up to the next answer that ends something.
    declined: bool,
    batch: Batch,
    /// A statement's text or a portal's name, while its session may read more input.
    text: String,
}

impl Talk<'_> {
    fn go_on(&mut self) -> ControlFlow<End, Infallible> {
        // A client need not wait for its session before it says what to do.
        if !self.entry.run() {
            return ControlFlow::Break(self.ending());
        }
        loop {
            match self.input.next_frame(self.longest) {
                Ok(Some(frame)) => {
                    // From here on the session counts what it makes of it.
                    if std::mem::take(&mut self.kept) > 0 {
                        let _ = self.session.keeps_input(0);
                    }
                    let asks = self.handed && frame.kind == NOTE;
                    if !self.batch.heeded {
                        self.batch.answers = self.out.mark();
                    }
                    if !asks && (!self.skipping || frame.kind == b'S') {
                        let ends = matches!(frame.kind, b'S' | b'Q' | b'F');
                        self.batch.heeded = !ends && (self.batch.heeded || frame.kind != b'H');
                    }
                    self.handle(&frame)?;
                }
                Ok(None) => self.wait()?,
                Err(Fault::TooLong { kind, report }) => self.refuse(kind, report)?,
                Err(fault) => return ControlFlow::Break(fault.into()),
            }
            if self.out.is_gone() {
                return ControlFlow::Break(End::Quiet);
            }
        }
    }

    /// Lets the session know how it ends.
    fn ends(&mut self, end: End) -> End {
        self.session.ends(match &end {
            _ if self.entry.is_ending() => Ending::Killed,
            End::Reported(_) | End::Delayed(..) => Ending::Fatal,
            End::Quiet if !self.out.is_gone() => Ending::Asked,
            End::Quiet | End::Abandoned => Ending::Abandoned,
        });
        end
    }

    /// Waits for more from the client.
    fn wait(&mut self) -> Next {
        self.out.flush_owed();
        if self.out.is_gone() {
            return ControlFlow::Break(End::Quiet);
        }
        if !self.entry.rest() {
            return ControlFlow::Break(self.ending());
        }
        let idle_until =
            |session: &dyn Session| session.idle_limit().and_then(|limit| Instant::now().checked_add(limit));
        let mut deadline = idle_until(self.session);
        let large = self.input.grows_to().unwrap_or(0);
        if large > 0 && large != self.kept {
            if let Err(report) = self.session.keeps_input(large)
                && let Some(kind) = self.input.pass_over()
            {
                return if self.entry.run() { self.refuse(kind, report) } else { ControlFlow::Break(self.ending()) };
            }
            self.kept = large;
        }
        loop {
            match self.input.fill(self.out.transport(), deadline, Some(&self.bell)) {
                Received::Bytes(_) => break,
                Received::End if self.entry.is_ending() => return ControlFlow::Break(self.ending()),
                Received::End => return ControlFlow::Break(End::Abandoned),
                Received::Rung => {
                    if let Err(report) = self.session.rung(self.out) {
                        return ControlFlow::Break(End::Reported(report.into_fatal()));
                    }
                    self.out.flush();
                }
                Received::Late => {
                    match self.session.idle_too_long() {
                        Some(report) if report.severity() == Severity::Fatal => {
                            return ControlFlow::Break(End::Reported(report));
                        }
                        Some(report) => {
                            self.after_extended(Err(report))?;
                            self.out.flush();
                        }
                        None => {}
                    }
                    deadline = idle_until(self.session);
                }
            }
        }
        if self.entry.run() { ControlFlow::Continue(()) } else { ControlFlow::Break(self.ending()) }
    }

    fn handle(&mut self, frame: &Frame) -> Next {
        if let Some(next) = self.passes_over(frame) {
            return next;
        }
        let Self { session, input, out, text, longest, .. } = self;
        let body = input.body(frame);
        let recoded = match out.encoding() {
            encoding if encoding.is_utf8() => Ok(None),
            encoding => encoding.recode(frame.kind, body),
        };
        let decoded = match &recoded {
            Ok(recoded) => Message::decode(frame.kind, recoded.as_deref().unwrap_or(body)),
            Err(report) => Err(Fault::Refused(report.clone())),
        };
        let message = match decoded {
            Ok(message) => message,
            Err(fault @ Fault::Malformed(_)) => return ControlFlow::Break(fault.into()),
            Err(Fault::Refused(report) | Fault::TooLong { report, .. }) => return self.refuse(frame.kind, report),
        };
        match message {
            Message::Query(sql) => {
                keep(text, sql);
                let done = session.simple_query(text, &mut Client::new(out, input, *longest));
                self.after_simple(done)
            }
            Message::Execute { portal, limit } => {
                keep(text, portal);
                let done = session.execute(text, limit, &mut Client::new(out, input, *longest));
                self.after_extended(done.map(|_| ()))
            }
            Message::Parse { name, sql, types } => {
                let done = session.parse(name, sql, types, out).map(|()| out.plain(b'1'));
                self.after_extended(done)
            }
            Message::Bind(bind) => {
                let done = session.bind(&bind, out).map(|()| out.plain(b'2'));
                self.after_extended(done)
            }
            Message::Describe(target) => {
                let done = match target {
                    Target::Statement(name) => session.describe_statement(name, out),
                    Target::Portal(name) => session.describe_portal(name, out),
                };
                self.after_extended(done.map(|_| ()))
            }
            Message::Close(target) => {
                let done = match target {
                    Target::Statement(name) => session.close_statement(name),
                    Target::Portal(name) => session.close_portal(name),
                };
                let done = done.map(|()| out.plain(b'3'));
                self.after_extended(done)
            }
            Message::Flush => {
                out.owe();
                self.flush_unless_session_does();
                ControlFlow::Continue(())
            }
            Message::Sync => {
                self.skipping = false;
                let done = session.sync(out);
                self.after_simple(done)
            }
            Message::FunctionCall => {
                let message = "function calls by message are not supported";
                self.after_simple(Err(Report::error(SqlState::FEATURE_NOT_SUPPORTED, message)))
            }
            // They were sent before the client knew that its copy has failed.
            Message::CopyData(_) | Message::CopyDone | Message::CopyFail(_) => ControlFlow::Continue(()),
            Message::Terminate => ControlFlow::Break(End::Quiet),
        }
    }

    /// What comes of a message that the session does not get; none when it gets it.
    fn passes_over(&mut self, frame: &Frame) -> Option<Next> {
        if self.handed && frame.kind == NOTE {
            return Some(self.catch_up(frame));
        }
        if self.declined && frame.kind != b'X' {
            let ends = matches!(frame.kind, b'Q' | b'F' | b'S');
            self.declined = !ends;
            return Some(if ends { self.after_simple(Ok(())) } else { ControlFlow::Continue(()) });
        }
        (self.skipping && !matches!(frame.kind, b'S' | b'X')).then_some(ControlFlow::Continue(()))
    }

    /// The session's client has worked on another node.
    fn catch_up(&mut self, frame: &Frame) -> Next {
        let Some(ask) = read_ask(self.input.body(frame)) else {
            return ControlFlow::Break(End::Reported(Report::violation("a session is asked for what makes no sense")));
        };
        let done = self.session.catch_up(&ask, self.out);
        if let Err(report) = &done {
            self.session.failed(report);
            self.declined = true;
            if self.entry.is_ending() || report.severity() == Severity::Fatal {
                return ControlFlow::Break(self.ending());
            }
        }
        let note = if done.is_ok() { Note::Ready } else { Note::Declined };
        if ask.answers || self.declined {
            write_note(&note, self.out);
            self.out.flush();
        }
        ControlFlow::Continue(())
    }

    /// A message of this kind says what cannot be.
    fn refuse(&mut self, kind: u8, report: Report) -> Next {
        match kind {
            // No statement waits for this data.
            b'd' => ControlFlow::Continue(()),
            _ if self.skipping => ControlFlow::Continue(()),
            b'Q' | b'F' => self.after_simple(Err(report)),
            _ => self.after_extended(Err(report)),
        }
    }

    /// After what leaves the client waiting for the next statement.
    fn after_simple(&mut self, done: Result<(), Report>) -> Next {
        if let Err(report) = done {
            self.fail(report)?;
        }
        self.session.write_settings(self.out);
        if self.handed {
            write_notes(self.session, self.out);
        }
        self.out.ready(self.session.status());
        self.flush_unless_session_does();
        ControlFlow::Continue(())
    }

    /// After a part of the extended protocol.
    fn after_extended(&mut self, done: Result<(), Report>) -> Next {
        if let Err(report) = done {
            self.skipping = true;
            self.fail(report)?;
            // The client may be waiting for a Flush that is now skipped.
            self.out.owe();
        }
        ControlFlow::Continue(())
    }

    fn fail(&mut self, report: Report) -> Next {
        if self.out.is_gone() {
            return ControlFlow::Break(End::Quiet);
        }
        if self.entry.is_ending() {
            // The end of the session says that nothing was done.
            if report.state() == SqlState::STATEMENT_COMPLETION_UNKNOWN {
                self.out.error(&report);
            } else if self.is_left() && !self.takes_back() {
                self.out.error(&rolled_back());
            }
            return ControlFlow::Break(self.ending());
        }
        if report.severity() == Severity::Fatal {
            // It is not told to end: its node has found that another one leads.
            if report.state() == SqlState::ADMIN_SHUTDOWN && self.handed {
                if !self.takes_back() {
                    self.out.error(&rolled_back());
                }
                return ControlFlow::Break(self.leave());
            }
            let gone = report.state() == SqlState::CONNECTION_FAILURE;
            return ControlFlow::Break(if gone { End::Quiet } else { End::Reported(report) });
        }
        self.out.error(&report);
        self.session.failed(&report);
        ControlFlow::Continue(())
    }

    /// Whether it ends with its server, and continues with the next primary.
    fn is_left(&self) -> bool {
        self.handed && self.seat.registry().is_stopping()
    }

    /// Whether nothing was begun of what was said last, and no answer to it has gone: then the next
    /// primary hears it again.
    fn takes_back(&mut self) -> bool {
        let takes_back = !self.session.has_begun() && self.out.rewind(self.batch.answers);
        self.batch.heeded &= !takes_back;
        takes_back
    }

    /// How a session ends that is told to end. Of one that continues elsewhere its client hears
    /// nothing.
    fn ending(&mut self) -> End {
        if self.is_left() { self.leave() } else { ending() }
    }

    /// The session continues elsewhere, and what was not answered was not begun.
    fn leave(&mut self) -> End {
        write_note(&Note::Left { batch: self.batch.heeded }, self.out);
        End::Quiet
    }

    fn flush_unless_session_does(&mut self) {
        if !self.session.flushes() {
            self.out.flush();
        }
    }
}

/// Says to the node in the middle what has changed of a session.
fn write_notes(session: &mut dyn Session, out: &mut Out) {
    let mut notes = Vec::new();
    session.notes(&mut notes);
    notes.iter().for_each(|note| write_note(note, out));
}

fn keep(text: &mut String, new: &str) {
    text.clear();
    text.push_str(new);
    text.shrink_to(new.len().max(64 << 10));
}

/// What was under way when a primary ended its sessions, and the session continues.
fn rolled_back() -> Report {
    let message = "the primary gives up its role, and has rolled this transaction back";
    let hint = "Roll back, and repeat it: the session continues with the next primary.";
    Report::error(SqlState::SERIALIZATION_FAILURE, message).hint(hint)
}

pub(crate) fn ending() -> End {
    End::Reported(Report::fatal(SqlState::ADMIN_SHUTDOWN, "terminating connection due to administrator command"))
}
