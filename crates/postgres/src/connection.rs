//! A connection's life: a message in, a call of the session, the answer out.

use std::{convert::Infallible, ops::ControlFlow, time::Instant};

use freshet_base::panics;

use crate::{
    backend::{Opening, Peer, Session},
    bell::Bell,
    copy::Client,
    input::{Frame, Input},
    message::{Fault, Message, Target},
    out::Out,
    registry::{Entry, Seat, Sessions},
    report::{Report, Severity, SqlState},
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
    match served.unwrap_or_else(|_| unforeseen()) {
        End::Quiet => out.flush(),
        End::Delayed(report, delayed) => {
            if let Some(report) = report {
                out.error(&report);
                shared.backend.ended(&peer, &report);
            }
            shared.delays.wait(out, delayed.after, delayed.place, &delayed.user);
            return None;
        }
        End::Reported(report) => {
            out.error(&report);
            out.flush();
            shared.backend.ended(&peer, &report);
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
    let (entry, bell) = (&seat.entry, Bell::default());
    let opening = Opening {
        startup: &startup,
        peer: peer.clone(),
        pid: entry.pid,
        bell: bell.clone(),
        sessions: Sessions::new(seat.registry()),
    };
    let longest = shared.limits.message;
    let mut end = None;
    let opened = shared.backend.open(opening, &mut |session, parameters| {
        for (name, value) in parameters.iter() {
            out.parameter_status(name, value);
        }
        let mut message = out.begin(b'K');
        message.i32(entry.pid);
        message.bytes(entry.key());
        message.end();
        entry.opened(session.interrupt());
        out.ready(session.status());
        out.flush();
        let (input, bell) = (std::mem::take(&mut input), bell.clone());
        let mut talk =
            Talk { entry, session, input, out, bell, longest, kept: 0, skipping: false, text: String::new() };
        // The session is dropped when it has fallen, not while it falls.
        end = Some(match panics::contained("a session", || talk.go_on()) {
            Ok(ControlFlow::Break(end)) => end,
            Ok(ControlFlow::Continue(never)) => match never {},
            Err(_) => unforeseen(),
        });
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

/// A session and its client.
struct Talk<'a> {
    entry: &'a Entry,
    session: &'a mut dyn Session,
    input: Input,
    out: &'a mut Out,
    bell: Bell,
    longest: usize,
    /// What the session keeps for a message that is not whole.
    kept: usize,
    /// After an error in the extended protocol, until Sync.
    skipping: bool,
    /// A statement's text or a portal's name, while its session may read more input.
    text: String,
}

impl Talk<'_> {
    fn go_on(&mut self) -> ControlFlow<End, Infallible> {
        // A client need not wait for its session before it says what to do.
        if !self.entry.run() {
            return ControlFlow::Break(ending());
        }
        loop {
            match self.input.next_frame(self.longest) {
                Ok(Some(frame)) => {
                    // From here on the session counts what it makes of it.
                    if std::mem::take(&mut self.kept) > 0 {
                        let _ = self.session.keeps_input(0);
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

    /// Waits for more from the client.
    fn wait(&mut self) -> Next {
        self.out.flush_owed();
        if self.out.is_gone() {
            return ControlFlow::Break(End::Quiet);
        }
        if !self.entry.rest() {
            return ControlFlow::Break(ending());
        }
        let idle_until =
            |session: &dyn Session| session.idle_limit().and_then(|limit| Instant::now().checked_add(limit));
        let mut deadline = idle_until(self.session);
        let large = self.input.grows_to().unwrap_or(0);
        if large > 0 && large != self.kept {
            if let Err(report) = self.session.keeps_input(large)
                && let Some(kind) = self.input.pass_over()
            {
                return if self.entry.run() { self.refuse(kind, report) } else { ControlFlow::Break(ending()) };
            }
            self.kept = large;
        }
        loop {
            match self.input.fill(self.out.transport(), deadline, Some(&self.bell)) {
                Received::Bytes(_) => break,
                Received::End if self.entry.is_ending() => return ControlFlow::Break(ending()),
                Received::End => return ControlFlow::Break(End::Quiet),
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
        if self.entry.run() { ControlFlow::Continue(()) } else { ControlFlow::Break(ending()) }
    }

    fn handle(&mut self, frame: &Frame) -> Next {
        if self.skipping && !matches!(frame.kind, b'S' | b'X') {
            return ControlFlow::Continue(());
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
            }
            return ControlFlow::Break(ending());
        }
        if report.severity() == Severity::Fatal {
            let gone = report.state() == SqlState::CONNECTION_FAILURE;
            return ControlFlow::Break(if gone { End::Quiet } else { End::Reported(report) });
        }
        self.out.error(&report);
        self.session.failed();
        ControlFlow::Continue(())
    }

    fn flush_unless_session_does(&mut self) {
        if !self.session.flushes() {
            self.out.flush();
        }
    }
}

fn keep(text: &mut String, new: &str) {
    text.clear();
    text.push_str(new);
    text.shrink_to(new.len().max(64 << 10));
}

fn ending() -> End {
    End::Reported(Report::fatal(SqlState::ADMIN_SHUTDOWN, "terminating connection due to administrator command"))
}
