//! The loop of the node that was reached: bytes both ways, and another primary when one is lost.
//!
//! One thread does both directions. It never blocks on the primary's socket: a client may send more
//! than a primary takes that waits for its client to read. To the client it writes as any session
//! does.

mod client;

use std::{
    collections::BTreeMap,
    ops::Range,
    sync::{Arc, atomic::Ordering},
    time::{Duration, Instant},
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    io::Errno,
};

use super::{
    Handed, Link, NOTE, Route,
    flight::Flight,
    front::Front,
    hop::{Came, Hop},
    kept::{Asked, Kept, field, key_of, setting},
};
use crate::{
    backend::{Peer, TransactionStatus},
    connection::ending,
    input::Input,
    out::Out,
    packet::Startup,
    registry::Seat,
    report::{Report, SqlState},
    server::{Shared, keep_alive},
    start_up::End,
};

/// A client that wants something waits so long for a primary.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long a step on the way to a primary may take.
const STEP: Duration = Duration::from_secs(2);
/// How long a primary may take to begin a session.
const BEGINS: Duration = Duration::from_secs(5);
/// How often a primary is looked for while none is there.
const TRY_EVERY: Duration = Duration::from_millis(100);
/// How often it is looked whether the primary is one still; and before something is begun.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// This much is read of a client at a time.
const PIECE: usize = 32 << 10;
/// Settings whose values a client knows, at most.
const REPORTED: usize = 256;

/// What is done next, or the end.
type Next<T = ()> = Result<T, End>;

/// Serves a client by the primary, until either ends that.
pub(crate) fn relay(
    shared: &Shared,
    seat: &Seat,
    (input, out): (Input, &mut Out),
    (startup, peer): (&Startup, &Peer),
    route: &dyn Route,
) -> End {
    let asked = Arc::new(Asked::default());
    if asked.bell.listen().is_err() {
        let message = "there is no descriptor left for this session";
        return End::Reported(Report::fatal(SqlState::TOO_MANY_CONNECTIONS, message));
    }
    seat.entry.opened(Arc::clone(&asked) as _);
    let mut relay = Relay {
        shared,
        seat,
        out,
        route,
        asked,
        startup,
        peer,
        primary: None,
        pending: input.bytes().to_vec(),
        piece: vec![0; PIECE].into(),
        hungry: true,
        later: Vec::new(),
        running: false,
        front: Front::default(),
        swallows: false,
        skipping: false,
        flight: Flight::default(),
        owed: None,
        kept: Kept::default(),
        reported: None,
        tried: None,
        why: String::new(),
        waits_since: Some(Instant::now()),
    };
    match relay.serve() {
        Err(end) => end,
        Ok(never) => match never {},
    }
}

/// A primary that serves the session.
struct Primary {
    hop: Hop,
    link: Box<dyn Link>,
    /// By which the session is canceled there.
    key: (i32, Vec<u8>),
    /// When it was looked whether it is one still.
    looked: Instant,
}

struct Relay<'r> {
    shared: &'r Shared,
    seat: &'r Seat,
    out: &'r mut Out,
    route: &'r dyn Route,
    asked: Arc<Asked>,
    startup: &'r Startup,
    peer: &'r Peer,
    primary: Option<Primary>,
    /// What the client has said and no primary has got.
    pending: Vec<u8>,
    /// Into which is read what it sends.
    piece: Box<[u8]>,
    /// More of it has to come before it can be passed on.
    hungry: bool,
    /// A ROLLBACK that is to be said to the next primary.
    later: Vec<u8>,
    /// The session works for its client.
    running: bool,
    front: Front,
    /// The message that has begun goes nowhere.
    swallows: bool,
    /// After an error in the extended protocol, until Sync: nothing goes anywhere.
    skipping: bool,
    flight: Flight,
    /// The error that the client gets for what it says next: its transaction was lost.
    owed: Option<SqlState>,
    kept: Kept,
    /// The settings that the client knows; none before it knows any.
    reported: Option<BTreeMap<String, String>>,
    /// When a primary was looked for last.
    tried: Option<Instant>,
    /// Why it has no primary.
    why: String,
    /// Since when the client waits for a primary.
    waits_since: Option<Instant>,
}

impl Relay<'_> {
    fn serve(&mut self) -> Next<std::convert::Infallible> {
        loop {
            self.heed()?;
            if self.primary.is_none() {
                self.find_primary()?;
            }
            let came = self.take_from_primary()?;
            let said = self.take_from_client()?;
            self.pass_on()?;
            self.note_run()?;
            if !came && !said {
                self.wait()?;
            }
        }
    }

    /// Does what others have asked for.
    fn heed(&mut self) -> Next {
        if self.asked.ending.load(Ordering::SeqCst) || !self.running && self.seat.entry.is_ending() {
            return Err(ending());
        }
        self.pass_cancel();
        self.look(LOOK_EVERY)
    }

    /// Looks whether the primary is one still, unless that was looked up within this time.
    fn look(&mut self, within: Duration) -> Next {
        if let Some(primary) = &mut self.primary
            && primary.looked.elapsed() >= within
        {
            primary.looked = Instant::now();
            if primary.link.is_past() {
                self.lose()?;
            }
        }
        Ok(())
    }

    /// Tries to have a primary, unless that was tried just now. Fails when the client has waited
    /// for one for too long.
    fn find_primary(&mut self) -> Next {
        if self.waits_since.is_some_and(|since| since.elapsed() > PATIENCE) {
            let message = format!("no primary was found within {} s", PATIENCE.as_secs());
            let report = Report::fatal(SqlState::CANNOT_CONNECT_NOW, message);
            let report = report.detail(std::mem::take(&mut self.why));
            return Err(End::Reported(report.hint("What was said last was not begun.")));
        }
        if self.tried.is_some_and(|tried| tried.elapsed() < TRY_EVERY) {
            return Ok(());
        }
        let found = self.connect();
        self.tried = Some(Instant::now());
        match found {
            Ok(()) => {
                (self.waits_since, self.tried) = (None, None);
                let later = std::mem::take(&mut self.later);
                self.send(&later);
                Ok(())
            }
            Err(None) => Ok(()),
            Err(Some(end)) => Err(end),
        }
    }

    /// Begins the session on the primary; without an end in the error it is to be tried again.
    fn connect(&mut self) -> Result<(), Option<End>> {
        let (hop, link) = self.route.connect(self.seat.entry.pid, STEP).map_err(|why| self.fails(why))?;
        let failed = self.flight.status() == TransactionStatus::Failed;
        let origin = self.peer.origin;
        let handed = Handed { startup: self.startup.clone(), origin, moved: self.kept.moved(), failed };
        let handed = handed.encode().map_err(|cause| self.fails(cause))?;
        let key = (0, Vec::new());
        let mut primary = Primary { hop, link, key, looked: Instant::now() };
        keep_alive(primary.hop.socket(), &self.shared.limits).map_err(|cause| self.fails(cause))?;
        primary.hop.send(&handed).map_err(|cause| self.fails(cause))?;
        let deadline = Instant::now() + BEGINS;
        let mut settings = Vec::new();
        loop {
            let (kind, message) = match primary.hop.next() {
                Came::Whole(kind, message) => (kind, message),
                Came::More => {
                    primary.hop.wait(deadline).map_err(|cause| self.fails(cause))?;
                    continue;
                }
                Came::Piece(..) | Came::Malformed => return Err(self.fails("its answer makes no sense")),
            };
            let body = primary.hop.body(&message);
            match kind {
                b'S' => settings.extend(setting(body)),
                b'K' => primary.key = key_of(body).ok_or(None)?,
                b'E' => return Err(self.refused(&primary.hop.bytes()[message.clone()], body)),
                b'Z' => break,
                _ => {}
            }
        }
        self.primary = Some(primary);
        self.began(settings).map_err(Some)
    }

    /// It did not work, and is tried again.
    fn fails(&mut self, why: impl ToString) -> Option<End> {
        self.why = why.to_string();
        None
    }

    /// The primary does not begin the session, for now or for good.
    fn refused(&mut self, message: &[u8], body: &[u8]) -> Option<End> {
        // It may be about to give up its role, or others have not left it yet. Who has just come is
        // told at once that all places are taken.
        let later: &[&[u8]] = if self.reported.is_none() { &[b"57P03"] } else { &[b"57P03", b"53300"] };
        if field(body, b'C').is_some_and(|state| later.contains(&state)) {
            return self.fails(String::from_utf8_lossy(field(body, b'M').unwrap_or_default()));
        }
        let message = message.to_vec();
        Some(self.write(&message).err().unwrap_or(End::Quiet))
    }

    /// The client gets what it does not know yet.
    fn began(&mut self, settings: Vec<(String, String)>) -> Next {
        let first = self.reported.is_none();
        let reported = self.reported.get_or_insert_default();
        for (name, value) in settings {
            if reported.get(&name) != Some(&value) {
                self.out.parameter_status(&name, &value);
                reported.insert(name, value);
            }
        }
        if first {
            let entry = &self.seat.entry;
            let mut message = self.out.begin(b'K');
            message.i32(entry.pid);
            message.bytes(entry.key());
            message.end();
            self.out.ready(TransactionStatus::Idle);
            self.flight.ready(b'I');
        }
        self.flush()
    }

    /// The primary is lost. The client hears what became of what was under way.
    fn lose(&mut self) -> Next {
        let Some(primary) = self.primary.take() else { return Ok(()) };
        self.tried = None;
        self.later.clear();
        if primary.hop.is_passing() {
            // In the middle of a message there is no place for another one.
            return Err(End::Quiet);
        }
        drop(primary);
        let lost = self.flight.lose(std::mem::take(&mut self.kept.left));
        for unit in 0..lost.units {
            if unit > 0 || !lost.errored {
                self.out.error(&lost.report());
            }
            self.out.ready(lost.status);
        }
        if lost.batch {
            if lost.units > 0 || !lost.errored {
                self.out.error(&lost.report());
            }
            self.skipping = true;
        }
        if lost.units == 0 && !lost.batch && lost.status == TransactionStatus::Failed {
            self.owed = Some(lost.state);
        }
        // What has begun to be said is not said to another one.
        self.swallows |= self.front.is_within();
        self.flush()?;
        if let Some(why) = self.kept.bound() {
            let message = format!("the primary was lost, and this session cannot go on with another one: {why}");
            return Err(End::Reported(Report::fatal(SqlState::ADMIN_SHUTDOWN, message)));
        }
        Ok(())
    }

    /// Passes on what has come of the primary; says whether that was anything.
    fn take_from_primary(&mut self) -> Next<bool> {
        let Some(primary) = &mut self.primary else { return Ok(false) };
        // What it has sent before it went is worth more.
        let (pushed, received) = (primary.hop.push(), primary.hop.receive());
        let came = self.pass_messages()?;
        match (received, pushed) {
            (Ok(true), _) => Ok(true),
            (Ok(false), Ok(())) => Ok(came),
            _ => self.lose().map(|()| true),
        }
    }

    /// Passes on whole messages, and pieces of long ones.
    fn pass_messages(&mut self) -> Next<bool> {
        let mut any = false;
        let mut run: Option<Range<usize>> = None;
        loop {
            let Some(primary) = &mut self.primary else { return Ok(any) };
            let (passes, range) = match primary.hop.next() {
                Came::More => break,
                Came::Malformed => {
                    self.write_run(run.take())?;
                    return self.lose().map(|()| true);
                }
                Came::Piece(kind, range) => {
                    if kind == Some(b'E') {
                        self.flight.failed();
                    }
                    (true, range)
                }
                Came::Whole(kind, range) => {
                    let body = primary.hop.body(&range);
                    match kind {
                        b'Z' => self.flight.ready(body.first().copied().unwrap_or(b'I')),
                        b'G' => self.flight.copies(),
                        b'E' if field(body, b'V') == Some(b"FATAL") => {
                            // It ends this session, for a reason of its own.
                            run = Some(run.map_or(range.start, |run| run.start)..range.end);
                            self.write_run(run)?;
                            return Err(End::Quiet);
                        }
                        b'E' => self.flight.failed(),
                        b'S' => {
                            if let (Some((name, value)), Some(reported)) = (setting(body), &mut self.reported)
                                && (reported.len() < REPORTED || reported.contains_key(&name))
                            {
                                reported.insert(name, value);
                            }
                        }
                        NOTE => drop(postcard::from_bytes(body).map(|note| self.kept.note(note))),
                        _ => {}
                    }
                    (kind != NOTE, range)
                }
            };
            any = true;
            match run {
                Some(run_before) if passes && run_before.end == range.start => {
                    run = Some(run_before.start..range.end);
                }
                before => {
                    self.write_run(before)?;
                    run = passes.then_some(range);
                }
            }
        }
        self.write_run(run)?;
        Ok(any)
    }

    fn write_run(&mut self, run: Option<Range<usize>>) -> Next {
        let Some(run) = run else { return Ok(()) };
        let Some(primary) = &self.primary else { return Ok(()) };
        let bytes = primary.hop.bytes()[run].to_vec();
        self.write(&bytes)
    }

    /// Writes to the client. It may take its time to read: until it has, requests to cancel are
    /// heeded.
    fn write(&mut self, mut bytes: &[u8]) -> Next {
        while !bytes.is_empty() {
            let written = self.out.transport().write(bytes, true).map_err(|_| End::Quiet)?;
            bytes = &bytes[written..];
            if !bytes.is_empty() {
                self.heed_while_writing()?;
            }
        }
        Ok(())
    }

    fn heed_while_writing(&mut self) -> Next {
        if self.asked.ending.load(Ordering::SeqCst) {
            return Err(End::Quiet);
        }
        self.pass_cancel();
        Ok(())
    }

    fn pass_cancel(&self) {
        if self.asked.canceled.swap(false, Ordering::SeqCst)
            && let Some(Primary { link, key: (pid, key), .. }) = &self.primary
        {
            link.cancel(*pid, key);
        }
    }

    fn flush(&mut self) -> Next {
        self.out.flush();
        if self.out.is_gone() { Err(End::Quiet) } else { Ok(()) }
    }

    /// Says something to the primary. What it does not get is found out when it is read from.
    fn send(&mut self, bytes: &[u8]) {
        if let Some(primary) = &mut self.primary
            && !bytes.is_empty()
        {
            let _ = primary.hop.send(bytes);
        }
    }

    /// Blocks until there is something to do.
    fn wait(&mut self) -> Next {
        let timeout = if self.primary.is_some() { LOOK_EVERY } else { TRY_EVERY };
        let timeout = Timespec::try_from(timeout).ok();
        let (reads, bell) = (self.reads_client(), self.asked.bell.clone());
        let Some(client) = self.out.transport().descriptor() else { return Err(End::Quiet) };
        let mut descriptors = Vec::with_capacity(3);
        if let Some(rung) = bell.descriptor() {
            descriptors.push(PollFd::from_borrowed_fd(rung, PollFlags::IN));
        }
        if reads {
            descriptors.push(PollFd::from_borrowed_fd(client, PollFlags::IN));
        }
        if let Some(primary) = &self.primary {
            let sends = if primary.hop.is_behind() { PollFlags::OUT } else { PollFlags::empty() };
            descriptors.push(PollFd::from_borrowed_fd(primary.hop.descriptor(), PollFlags::IN | sends));
        }
        match poll(&mut descriptors, timeout.as_ref()) {
            Ok(_) | Err(Errno::INTR) => {
                bell.was_rung();
                Ok(())
            }
            Err(_) => Err(End::Quiet),
        }
    }
}
