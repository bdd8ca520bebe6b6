//! The loop of the node that was reached: bytes both ways, and another primary when one is lost.
//!
//! One thread does both directions. It never blocks on the socket of another node: a client may
//! send more than a primary takes that waits for its client to read. To the client it writes as any
//! session does.

mod again;
mod answers;
mod client;
mod divide;

use std::{
    collections::BTreeMap,
    sync::{Arc, atomic::Ordering},
    time::{Duration, Instant},
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    io::Errno,
};

use self::{again::Again, divide::Division};
use super::{
    Handed, Link, NOTE, Part, Route,
    flight::{Flight, lost, unanswered},
    front::Front,
    hop::{Came, Hop},
    kept::{Asked, Kept, Knows, field, key_of, setting},
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
/// A session that has to end waits so long for the answer to what may be committed.
const LAST: Duration = Duration::from_secs(1);
/// This much is read of a client at a time.
const PIECE: usize = 32 << 10;
/// Settings whose values a client knows, at most.
const REPORTED: usize = 256;

/// Names and values of settings.
type Settings = Vec<(String, String)>;

/// What is done next, or the end.
type Next<T = ()> = Result<T, End>;

/// Serves a client by the primary, or by a standby too if its session is to be in parts, until
/// either ends that.
pub(crate) fn relay(
    shared: &Shared,
    seat: &Seat,
    (input, out): (Input, &mut Out),
    (startup, peer): (&Startup, &Peer),
    (route, part): (&dyn Route, Part),
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
        reader: None,
        on: On::Primary,
        division: (part != Part::Whole).then(Division::default),
        again: Again::default(),
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
        leaves_since: None,
    };
    match relay.serve() {
        Err(end) => end,
        Ok(never) => match never {},
    }
}

/// Which of the nodes that serve a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum On {
    Primary,
    /// A standby.
    Reader,
}

/// A node that serves the session.
struct Far {
    hop: Hop,
    link: Box<dyn Link>,
    /// By which the session is canceled there.
    key: (i32, Vec<u8>),
    /// When it was looked whether it is still what it was.
    looked: Instant,
    /// What it knows of the session.
    knows: Knows,
    /// The client hears nothing of what comes before this many answers have ended.
    muted: u32,
}

struct Relay<'r> {
    shared: &'r Shared,
    seat: &'r Seat,
    out: &'r mut Out,
    route: &'r dyn Route,
    asked: Arc<Asked>,
    startup: &'r Startup,
    peer: &'r Peer,
    primary: Option<Far>,
    /// The standby that reads for it.
    reader: Option<Far>,
    /// Which one works for the client, or has done so last.
    on: On,
    /// What is kept of the division among them; none where the primary serves all.
    division: Option<Division>,
    /// What may be said again where the primary serves all.
    again: Again,
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
    owed: Option<Report>,
    kept: Kept,
    /// The settings that the client knows; none before it knows any.
    reported: Option<BTreeMap<String, String>>,
    /// When a primary was looked for last.
    tried: Option<Instant>,
    /// Why it has no primary.
    why: String,
    /// Since when the client waits for a primary.
    waits_since: Option<Instant>,
    /// Since when the session waits for its last answer.
    leaves_since: Option<Instant>,
}

impl Relay<'_> {
    fn serve(&mut self) -> Next<std::convert::Infallible> {
        loop {
            self.heed()?;
            // Who reads on a standby has no need of it.
            if self.primary.is_none() && (self.division.is_none() || self.waits_since.is_some()) {
                self.find_primary()?;
            }
            let came = self.take_from(On::Primary)? | self.take_from(On::Reader)?;
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
        let works = self.running && !self.is_waiting();
        if self.asked.ending.load(Ordering::SeqCst) || !works && self.seat.entry.is_ending() {
            self.leave()?;
        }
        self.pass_cancel();
        self.heed_reader()?;
        self.look(LOOK_EVERY)
    }

    /// The session ends. What may be committed at this moment is waited for, or the client hears
    /// that it is open; everything else is rolled back with the connection to the primary.
    fn leave(&mut self) -> Next {
        let node = self.working().filter(|_| self.flight.may_be_committing());
        match node.map(|node| node.hop.is_passing()) {
            None => Err(ending()),
            Some(_) if self.leaves_since.get_or_insert_with(Instant::now).elapsed() < LAST => Ok(()),
            // In the middle of a message there is no place for another one.
            Some(true) => Err(End::Quiet),
            Some(false) => {
                self.report_lost(false, unanswered)?;
                Err(ending())
            }
        }
    }

    fn far(&mut self, on: On) -> &mut Option<Far> {
        match on {
            On::Primary => &mut self.primary,
            On::Reader => &mut self.reader,
        }
    }

    /// The node that works for the client.
    fn working(&self) -> Option<&Far> {
        match self.on {
            On::Primary => self.primary.as_ref(),
            On::Reader => self.reader.as_ref(),
        }
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
                self.begin_again();
                Ok(())
            }
            Err(None) => Ok(()),
            Err(Some(end)) => Err(end),
        }
    }

    /// Begins the session on the primary; without an end in the error it is to be tried again.
    fn connect(&mut self) -> Result<(), Option<End>> {
        let way = self.route.connect(self.seat.entry.pid, STEP).map_err(|why| self.fails(why))?;
        let part = if self.division.is_some() { Part::Writes } else { Part::Whole };
        let failed = self.on == On::Primary && self.flight.status() == TransactionStatus::Failed;
        let (primary, settings) = self.begin(way, part, failed, Instant::now() + BEGINS)?;
        self.primary = Some(primary);
        self.began(settings).map_err(Some)
    }

    /// Begins a part of the session on a node, in a transaction that has failed if that is so;
    /// returns with which settings.
    fn begin(
        &mut self,
        (hop, link): (Hop, Box<dyn Link>),
        part: Part,
        failed: bool,
        deadline: Instant,
    ) -> Result<(Far, Settings), Option<End>> {
        let (reads, origin) = (part == Part::Reads, self.peer.origin);
        let moved = self.kept.moved(reads);
        let handed = Handed { startup: self.startup.clone(), origin, moved, failed, part };
        let handed = handed.encode().map_err(|cause| self.fails(cause))?;
        let (key, knows) = ((0, Vec::new()), self.kept.known());
        let mut far = Far { hop, link, key, looked: Instant::now(), knows, muted: 0 };
        keep_alive(far.hop.socket(), &self.shared.limits).map_err(|cause| self.fails(cause))?;
        far.hop.send(&handed).map_err(|cause| self.fails(cause))?;
        let mut settings = Vec::new();
        loop {
            let (kind, message) = match far.hop.next() {
                Came::Whole(kind, message) => (kind, message),
                Came::More => {
                    far.hop.wait(deadline).map_err(|cause| self.fails(cause))?;
                    continue;
                }
                Came::Piece(..) | Came::Malformed => return Err(self.fails("its answer makes no sense")),
            };
            let body = far.hop.body(&message);
            match kind {
                b'S' => settings.extend(setting(body)),
                b'K' => far.key = key_of(body).ok_or(None)?,
                b'E' if reads => {
                    return Err(self.fails(String::from_utf8_lossy(field(body, b'M').unwrap_or_default())));
                }
                b'E' => return Err(self.refused(&far.hop.bytes()[message.clone()], body)),
                b'Z' => return Ok((far, settings)),
                NOTE => drop(postcard::from_bytes(body).map(|note| self.kept.note(note, reads, &mut far.knows))),
                _ => {}
            }
        }
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
    fn began(&mut self, settings: Settings) -> Next {
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

    /// The primary is lost. The client hears what became of what was under way there.
    fn lose(&mut self) -> Next {
        let Some(primary) = self.primary.take() else { return Ok(()) };
        self.tried = None;
        self.later.clear();
        let left = std::mem::take(&mut self.kept.left);
        self.stop_moving(On::Primary);
        if self.on == On::Primary {
            if primary.hop.is_passing() {
                // In the middle of a message there is no place for another one.
                return Err(End::Quiet);
            }
            drop(primary);
            // A session that cannot move to another primary ends below.
            if self.kept.bound().is_some() || !self.sends_again(left) {
                self.report_lost(left, lost)?;
            }
        }
        if let Some(why) = self.kept.bound() {
            let message = format!("the primary was lost, and this session cannot go on with another one: {why}");
            return Err(End::Reported(Report::fatal(SqlState::ADMIN_SHUTDOWN, message)));
        }
        Ok(())
    }

    /// The client hears what became of what was under way; `left` says that nothing of it was
    /// begun.
    fn report_lost(&mut self, left: bool, report: impl Fn(SqlState) -> Report) -> Next {
        let lost = self.flight.lose(left);
        let report = report(lost.state);
        for unit in 0..lost.units {
            if unit > 0 || !lost.errored {
                self.out.error(&report);
            }
            self.out.ready(lost.status);
        }
        if lost.batch {
            if lost.units > 0 || !lost.errored {
                self.out.error(&report);
            }
            self.skipping = true;
        }
        if lost.units == 0 && !lost.batch && lost.status == TransactionStatus::Failed {
            self.owed = Some(report);
        }
        // What has begun to be said is not said to another one.
        self.swallows |= self.front.is_within();
        self.flush()
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

    fn pass_cancel(&mut self) {
        if !self.asked.canceled.swap(false, Ordering::SeqCst) {
            return;
        }
        if let Some(Far { link, key: (pid, key), .. }) = self.working() {
            link.cancel(*pid, key);
        } else if self.is_waiting() && !self.front.is_within() {
            // It was not begun, and is not going to be.
            let message = "canceling statement due to user request";
            self.owed.get_or_insert_with(|| Report::error(SqlState::QUERY_CANCELED, message));
            self.waits_since = None;
            self.again = Again::default();
            if self.flight.status() == TransactionStatus::Open {
                self.flight.ready(b'E');
            }
        }
    }

    /// Whether the client has said what waits for a primary.
    fn is_waiting(&self) -> bool {
        self.waits_since.is_some() && !self.pending.is_empty() && self.working().is_none()
    }

    fn flush(&mut self) -> Next {
        self.out.flush();
        if self.out.is_gone() { Err(End::Quiet) } else { Ok(()) }
    }

    /// Says something to the primary. What it does not get is found out when it is read from.
    fn send(&mut self, bytes: &[u8]) {
        self.send_to(On::Primary, bytes);
    }

    fn send_to(&mut self, on: On, bytes: &[u8]) {
        if let Some(far) = self.far(on)
            && !bytes.is_empty()
        {
            let _ = far.hop.send(bytes);
        }
    }

    /// Blocks until there is something to do.
    fn wait(&mut self) -> Next {
        let timeout = if self.working().is_some() && !self.is_asking() { LOOK_EVERY } else { TRY_EVERY };
        let timeout = Timespec::try_from(timeout).ok();
        let (reads, bell) = (self.reads_client(), self.asked.bell.clone());
        let barred = [On::Primary, On::Reader].map(|on| self.is_barred(on));
        let Some(client) = self.out.transport().descriptor() else { return Err(End::Quiet) };
        let mut descriptors = Vec::with_capacity(4);
        if let Some(rung) = bell.descriptor() {
            descriptors.push(PollFd::from_borrowed_fd(rung, PollFlags::IN));
        }
        if reads {
            descriptors.push(PollFd::from_borrowed_fd(client, PollFlags::IN));
        }
        for (far, _) in [&self.primary, &self.reader].into_iter().zip(barred).filter(|(_, barred)| !barred) {
            let Some(far) = far else { continue };
            let sends = if far.hop.is_behind() { PollFlags::OUT } else { PollFlags::empty() };
            descriptors.push(PollFd::from_borrowed_fd(far.hop.descriptor(), PollFlags::IN | sends));
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
