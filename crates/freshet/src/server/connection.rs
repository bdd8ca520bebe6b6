//! One client's connection: a thread that reads requests and, once the client has said hello, one
//! that writes answers.
//!
//! A client is a stranger until it has said hello, for which it has a few seconds in all; strangers
//! have places of their own ([`Strangers`](freshet_base::strangers::Strangers)). A client that
//! wants nothing for long is sent away; sooner when all places for clients are taken and another
//! client comes.
//!
//! The reader stops reading when the client had better read its answers
//! first; so a connection's memory is bounded, whatever its client does.

use std::{
    io::{self, ErrorKind, IoSlice, Read},
    mem,
    net::Shutdown,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, atomic::Ordering},
    thread,
    time::{Duration, Instant},
};

use freshet_base::{strangers::Place, versions::RELEASE};
use freshet_engine::{CheckpointKind, Order, StateAsk, node::SwitchedOver};
use freshet_fabric::{foreign, stream::Stream};
use freshet_membership::{Credentials, Fingerprint, Identity};

use super::{Host, Shared, completion::Pending, rights::Caller, work::Work};
use crate::protocol::{self, Answer, Ask, FrameError, Frames, READS, Request, Response};

/// Requests of one connection that may be under way.
const UNDER_WAY: usize = 1024;
/// Bytes of answers that may wait for a client to read them, when a request is read.
const UNREAD: usize = 8 << 20;
/// A client that reads nothing for so long is given up.
const WRITE_TIMEOUT: Duration = Duration::from_secs(30);
/// How long a stranger may take to say hello, all in all.
const GREETING: Duration = Duration::from_secs(5);
/// A client who has nothing under way and asks for nothing for so long is sent away.
const IDLE: Duration = Duration::from_secs(30 * 60);
/// To one whose certificate has counted when it came.
const REPLACED: &str = "the cluster has another authority by now, and this certificate counts no more: get another \
                        with `freshet enrol`";
/// The answer to a client over TCP without a certificate.
pub(super) const NOBODY: &str = "no certificate was shown that this node knows: use --credentials, which \
                                 `freshet enrol` makes, or ask on the node's own machine as its own user";
/// What callers hear that have taken the control port for another one.
pub(super) const CONTROL_PORT: (&str, &str) = (
    "this is the control port of a Freshet node, for freshet status and the like",
    "PostgreSQL's clients connect to sql-listen (port 5432 if nothing else is configured), HTTP's to http-listen",
);
/// The answer when all places are taken.
const FULL: &str = "this node has as many clients as it can take, and all are busy: try again later";
/// The answer to a client that may not ask this ([`super::rights`]).
pub(super) const LOOKS_ONLY: &str = "this certificate is good for the status alone: an operator's is needed";
/// Requests to compare states that are answered at once.
const COMPARING: usize = 8;
/// Requests for which other nodes are asked at once.
const ASKING: usize = 8;
/// The longest wait that a client may ask for.
const LONGEST: Duration = Duration::from_secs(24 * 3600);

/// What the two threads of a connection, and those who answer, share.
pub(super) struct Connection {
    state: Mutex<State>,
    /// Something is to be written, or nothing more will come.
    to_write: Condvar,
    /// There is room for another request.
    to_read: Condvar,
}

struct State {
    /// Whether it has said hello.
    greeted: bool,
    /// Since when the next request is waited for; at first, the greeting.
    since: Instant,
    answers: Vec<u8>,
    under_way: usize,
    /// No more requests come.
    ended: bool,
    /// No more answers can be delivered.
    broken: bool,
}

/// Whom to answer. Every request is answered exactly once: a reply that is dropped says that
/// nothing is known.
pub(super) struct Reply {
    /// Empty once it was answered.
    connection: Option<Arc<Connection>>,
    id: u64,
}

impl Reply {
    fn new(connection: &Arc<Connection>, id: u64) -> Self {
        Self { connection: Some(Arc::clone(connection)), id }
    }

    /// Answers, and has it sent.
    pub(super) fn send(self, answer: Answer) {
        self.append(answer).flush();
    }

    /// Answers, without haste: [`Connection::flush`] has all answers sent at once.
    pub(super) fn append(mut self, answer: Answer) -> Arc<Connection> {
        let connection = self.connection.take().expect("it was not answered, as it still exists");
        connection.append(self.id, answer);
        connection
    }
}

impl Drop for Reply {
    fn drop(&mut self) {
        if let Some(connection) = self.connection.take() {
            let reason = "the node could not finish this request: its outcome is open".to_owned();
            connection.append(self.id, Answer::OutcomeOpen { reason });
            connection.flush();
        }
    }
}

impl Connection {
    fn new() -> Self {
        let state = State {
            greeted: false,
            since: Instant::now(),
            answers: Vec::new(),
            under_way: 0,
            ended: false,
            broken: false,
        };
        Self { state: Mutex::new(state), to_write: Condvar::new(), to_read: Condvar::new() }
    }

    /// For how long nothing was under way and nothing was asked for; `None` while something is.
    pub(super) fn idle(&self) -> Option<Duration> {
        let state = self.lock();
        // One is the request that is waited for.
        (state.under_way <= 1 && state.answers.is_empty()).then(|| state.since.elapsed())
    }

    /// How long the next bytes may take to come.
    ///
    /// # Errors
    /// When the client has had his time.
    fn patience(&self) -> io::Result<Duration> {
        let late = || io::Error::from(ErrorKind::TimedOut);
        let (greeted, since) = {
            let state = self.lock();
            (state.greeted, state.since)
        };
        if greeted {
            return if self.idle().is_some_and(|idle| idle >= IDLE) { Err(late()) } else { Ok(IDLE) };
        }
        GREETING.checked_sub(since.elapsed()).filter(|left| !left.is_zero()).ok_or_else(late)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn append(&self, id: u64, answer: Answer) {
        let mut state = self.lock();
        state.under_way -= 1;
        if !state.broken {
            let response = Response { id, answer };
            if let Err(cause) = protocol::encode(&response, &mut state.answers) {
                // It was done, but cannot be told in full.
                let reason = format!("the answer cannot be sent: {cause}");
                let answer = Answer::OutcomeOpen { reason };
                protocol::encode(&Response { id, answer }, &mut state.answers).expect("a short answer fits a frame");
            }
        }
        if state.under_way + 1 == UNDER_WAY {
            self.to_read.notify_one();
        }
    }

    /// Has everything sent that was appended.
    pub(super) fn flush(&self) {
        self.to_write.notify_one();
    }

    /// Blocks until another request may be read; `false` when none is to be read any more.
    fn admit(&self) -> bool {
        let mut state = self.lock();
        while !state.broken && (state.under_way >= UNDER_WAY || state.answers.len() > UNREAD) {
            state = self.to_read.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state.under_way += usize::from(!state.broken);
        state.since = Instant::now();
        !state.broken
    }

    fn break_off(&self) {
        let mut state = self.lock();
        state.broken = true;
        state.answers = Vec::new();
        self.to_read.notify_one();
        self.to_write.notify_one();
    }

    /// Writes answers until none can come any more.
    fn write(&self, stream: &Stream) {
        let mut sending = Vec::new();
        loop {
            let mut state = self.lock();
            while state.answers.is_empty() && !state.broken && !(state.ended && state.under_way == 0) {
                state = self.to_write.wait(state).unwrap_or_else(PoisonError::into_inner);
            }
            if state.answers.is_empty() {
                return;
            }
            mem::swap(&mut state.answers, &mut sending);
            self.to_read.notify_one();
            drop(state);
            if stream.write_all(&mut [IoSlice::new(&sending)], false).is_err() {
                self.break_off();
                return;
            }
            sending.clear();
        }
    }
}

/// What a connection's requests are read from: its client has as much time as it may have.
struct Ear<'c> {
    stream: &'c Stream,
    connection: &'c Connection,
    /// What the system knows of that.
    set: Option<Duration>,
}

impl Read for Ear<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        loop {
            let patience = self.connection.patience()?;
            if self.set != Some(patience) {
                self.stream.set_read_timeout(Some(patience))?;
                self.set = Some(patience);
            }
            match self.stream.read(into) {
                Err(cause) if matches!(cause.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {}
                other => return other,
            }
        }
    }
}

/// Serves a stranger, and the client that he becomes, in threads of their own.
pub(super) fn open(shared: &Arc<Shared>, number: u64, stream: Stream, is_near: bool, place: Place<Stream>) {
    let shared = Arc::clone(shared);
    // Without a thread, stream and place are dropped.
    let _ = thread::Builder::new().name("client".to_owned()).spawn(move || {
        // Whatever goes wrong here is between this client and its connection.
        let _ = serve(&shared, number, stream.clone(), is_near, place);
        stream.shut_down(Shutdown::Both);
        shared.clients().remove(&number);
    });
}

/// The client at the other end.
struct Known {
    caller: Caller,
    /// For messages.
    who: String,
    /// By which authority it was known, over TCP.
    by: Option<(u64, Fingerprint)>,
}

impl Known {
    /// Whether it still is who it was. Another authority may count by now, and what the one before
    /// has signed counts no more.
    fn counts(&self, shared: &Shared) -> bool {
        let of_now = |credentials: &Credentials| credentials.is_current() && credentials.authority() == self.by;
        matches!(self.caller, Caller::Owner | Caller::Anyone) || shared.credentials.as_ref().is_some_and(of_now)
    }
}

/// Has a client over TCP show who it is.
fn secure(shared: &Shared, stream: Stream) -> io::Result<(Stream, Known)> {
    let credentials = shared.credentials.as_ref().ok_or(ErrorKind::ConnectionRefused)?;
    let by = credentials.authority();
    foreign::turn_away(&stream, Instant::now() + GREETING, CONTROL_PORT.0, CONTROL_PORT.1)?;
    let stream = stream.secure_server(credentials.server(), Instant::now() + GREETING)?;
    let identity = stream.certificate().and_then(|certificate| Identity::of(&certificate));
    if let Some(node) = identity.and_then(Identity::id).filter(|node| credentials.removal_of(*node).is_some()) {
        let why = format!("node {node} was removed from the cluster");
        return Err(io::Error::new(ErrorKind::PermissionDenied, why));
    }
    let who = identity.map_or_else(|| "without a certificate".to_owned(), |identity| identity.to_string());
    Ok((stream, Known { caller: Caller::of(identity), who, by }))
}

fn serve(shared: &Arc<Shared>, number: u64, stream: Stream, is_near: bool, place: Place<Stream>) -> io::Result<()> {
    let near = |stream| (stream, Known { caller: Caller::Owner, who: "a process of this user".to_owned(), by: None });
    let (stream, known) = if is_near { near(stream) } else { secure(shared, stream)? };
    let stream = &stream;
    stream.set_write_timeout(Some(WRITE_TIMEOUT))?;
    let connection = Arc::new(Connection::new());
    let mut frames = Frames::new(Ear { stream, connection: &connection, set: None });
    let (response, greeted) = greet(&mut frames)?;
    let mut bytes = Vec::new();
    let refused = |reason: &str| Some(Answer::Refused { reason: reason.to_owned() });
    let refusal = match known.caller.is_served(shared.open_status) {
        _ if !greeted => Some(response.answer.clone()),
        false => refused(NOBODY),
        true if !shared.enter(number, stream, &connection) => refused(FULL),
        true => None,
    };
    if let Some(answer) = refusal {
        protocol::encode(&Response { answer, ..response }, &mut bytes).map_err(io::Error::other)?;
        return stream.write_all(&mut [IoSlice::new(&bytes)], false);
    }
    drop(place);
    {
        let mut state = connection.lock();
        state.greeted = true;
        protocol::encode(&response, &mut state.answers).map_err(io::Error::other)?;
    }
    let writer = {
        let (connection, writing) = (Arc::clone(&connection), stream.clone());
        thread::Builder::new().name("client answers".to_owned()).spawn(move || {
            connection.write(&writing);
            // Also wakes the reader when answers cannot be delivered.
            writing.shut_down(Shutdown::Both);
        })?
    };
    read(shared, &known, &connection, &mut frames);
    connection.lock().ended = true;
    connection.flush();
    let _ = writer.join();
    Ok(())
}

/// Reads the greeting; the answer to it, and whether it was one.
fn greet(frames: &mut Frames<Ear<'_>>) -> io::Result<(Response, bool)> {
    let refused = |id, reason| Ok((Response { id, answer: Answer::Refused { reason } }, false));
    match frames.next_frame::<Request>() {
        Ok(Request { id, ask: Ask::Hello { version } }) => match hello(version) {
            Ok(answer) => Ok((Response { id, answer }, true)),
            Err(reason) => refused(id, reason),
        },
        Ok(Request { id, .. }) => refused(id, "the first request must be Hello".to_owned()),
        Err(FrameError::Broken(cause)) => Err(cause),
        Err(FrameError::Closed) => Err(ErrorKind::UnexpectedEof.into()),
        Err(cause) => refused(Response::NOBODY, cause.to_string()),
    }
}

fn hello(version: u32) -> Result<Answer, String> {
    match READS.common(&(0..=version)) {
        Some(version) => Ok(Answer::Hello { version }),
        None => Err(format!(
            "this node, of release {RELEASE}, speaks versions {READS} of the protocol, the client {version}: run a \
             later release of the client"
        )),
    }
}

/// Reads requests until there are no more.
fn read(shared: &Arc<Shared>, known: &Known, connection: &Arc<Connection>, frames: &mut Frames<Ear<'_>>) {
    while connection.admit() {
        let reply = |id| Reply::new(connection, id);
        match frames.next_frame::<Request>() {
            Ok(Request { id, ask: Ask::Hello { version } }) => match hello(version) {
                Ok(answer) => reply(id).send(answer),
                Err(reason) => return reply(id).send(Answer::Refused { reason }),
            },
            Ok(Request { id, .. }) if !known.counts(shared) => {
                return reply(id).send(Answer::Refused { reason: REPLACED.to_owned() });
            }
            Ok(Request { id, ask }) if known.caller.may(&ask) => {
                log_asked(&known.who, &ask);
                dispatch(shared, reply(id), ask);
            }
            Ok(Request { id, .. }) => reply(id).send(Answer::Refused { reason: LOOKS_ONLY.to_owned() }),
            Err(FrameError::Closed | FrameError::Broken(_)) => {
                connection.lock().under_way -= 1;
                return;
            }
            Err(cause) => return reply(Response::NOBODY).send(Answer::Refused { reason: cause.to_string() }),
        }
    }
}

/// Logs a request that changes the node before it is done, and which client has made it.
fn log_asked(who: &str, ask: &Ask) {
    match ask {
        Ask::Promote { consent } => tracing::info!(who, ?consent, "a client asks this node to take over"),
        Ask::SwitchOver { to } => tracing::info!(who, to, "a client asks this node to hand its role over"),
        Ask::Remove { node, gone } => tracing::info!(who, node, gone, "a client removes a node from the cluster"),
        Ask::ChangeLevel { level } => tracing::info!(who, %level, "a client changes the safety level"),
        Ask::Rotate => tracing::info!(who, "a client replaces the cluster's authority"),
        Ask::FinishUpgrade => tracing::info!(who, "a client finishes the cluster's upgrade"),
        Ask::Restart { node } => tracing::info!(who, node, "a client has a node start again"),
        Ask::Stop { node } => tracing::info!(who, node, "a client has a node stop"),
        Ask::Maintenance { for_s } => tracing::info!(who, for_s, "a client orders maintenance"),
        Ask::Refill => tracing::info!(who, "a client asks this mirror to begin again"),
        Ask::BeginAgain { force } => tracing::info!(who, force, "a client asks this node to begin again"),
        Ask::Checkpoint { consistent } => tracing::info!(who, consistent, "a client asks for a checkpoint"),
        Ask::State(StateAsk::Open { .. }) => tracing::info!(who, "a client compares this node's state with another's"),
        Ask::Token { grant, valid_s } => tracing::info!(who, ?grant, valid_s, "a client asks for a token"),
        _ => {}
    }
}

/// When a wait of this many milliseconds ends.
pub(super) fn deadline(milliseconds: u64) -> Instant {
    Instant::now() + Duration::from_millis(milliseconds).min(LONGEST)
}

fn dispatch(shared: &Arc<Shared>, reply: Reply, ask: Ask) {
    match ask {
        Ask::Hello { .. } => unreachable!("it was answered already"),
        Ask::Status => reply.send(Answer::Status(shared.host.status())),
        Ask::Watermarks => reply.send(Answer::Watermarks(shared.host.watermarks())),
        Ask::Mix { from, batch_bytes } => reply.send(match shared.host.mix(from, batch_bytes) {
            Ok(mix) => Answer::Mix(mix),
            Err(reason) => Answer::Refused { reason },
        }),
        Ask::Promote { consent } => {
            aside(shared, reply, move |host| host.promote(consent).map(|(term, at)| Answer::Promoted { term, at }))
        }
        Ask::SwitchOver { to } => aside(shared, reply, move |host| {
            let SwitchedOver { node, address, after, at } = host.switch_over(to.as_deref())?;
            Ok(Answer::SwitchedOver { node, address, after: after.0, at })
        }),
        Ask::Remove { node, gone } => {
            aside(shared, reply, move |host| host.remove(&node, gone).map(|node| Answer::Removed { node }))
        }
        Ask::ChangeLevel { level } => {
            aside(shared, reply, move |host| host.change_level(level).map(|before| Answer::LevelChanged { before }))
        }
        Ask::Rotate => aside(shared, reply, |host| host.rotate().map(|generation| Answer::Rotated { generation })),
        Ask::FinishUpgrade => aside(shared, reply, |host| {
            let finished = host.finish_upgrade();
            finished.map(|(before, level)| Answer::UpgradeFinished { before: before.0, level: level.0 })
        }),
        Ask::Restart { node } => order(shared, reply, node, Order::Restart),
        Ask::Stop { node } => order(shared, reply, node, Order::Stop),
        Ask::Configuration => reply.send(Answer::Configuration(shared.host.configuration())),
        Ask::Refill => {
            reply.send(shared.host.refill().map_or_else(|reason| Answer::Refused { reason }, |()| Answer::GivenUp));
        }
        Ask::BeginAgain { force } => reply.send(match shared.host.begin_again(force) {
            Ok(from) => Answer::BeginsAgain { from },
            Err(reason) => Answer::Refused { reason },
        }),
        Ask::Checkpoint { consistent } => checkpoint(shared, consistent, reply),
        Ask::WaitVisible { lsn, deadline_ms } => {
            let answer = Answer::Visible { lsn };
            shared.views.push(Pending { until: lsn, deadline: deadline(deadline_ms), reply, answer });
        }
        Ask::Hash { at, deadline_ms } => {
            shared.hashes.push(Work { at, deadline: deadline(deadline_ms), reply });
        }
        Ask::State(ask) => compare(shared, ask, reply),
        Ask::Maintenance { for_s } => asks_others(shared, reply, move |host| {
            let ordered = host.order_maintenance(Duration::from_secs(for_s));
            ordered.map(|(known, unreached)| Answer::Maintenance { known, unreached })
        }),
        Ask::Members => asks_others(shared, reply, |host| host.members().map(Answer::Members)),
        Ask::Token { grant, valid_s } => {
            let valid = Duration::from_secs(valid_s).min(LONGEST);
            reply.send(match shared.host.token(grant, valid) {
                Ok(token) => Answer::Token(token),
                Err(reason) => Answer::Refused { reason },
            });
        }
    }
}

/// A node is to start again, or to stop.
fn order(shared: &Arc<Shared>, reply: Reply, node: Option<String>, order: Order) {
    aside(shared, reply, move |host| {
        let node = host.order(node.as_deref(), order)?;
        Ok(match order {
            Order::Restart => Answer::Restarts { node },
            Order::Stop => Answer::Stops { node },
        })
    });
}

/// What changes the cluster has a thread of its own; there is one at a time.
fn aside(
    shared: &Arc<Shared>,
    reply: Reply,
    change: impl FnOnce(&dyn Host) -> Result<Answer, String> + Send + 'static,
) {
    if shared.promoting.swap(true, Ordering::SeqCst) {
        let reason =
            "another promotion, switch-over or change by this node is under way: look at its status".to_owned();
        return reply.send(Answer::Refused { reason });
    }
    let this = Arc::clone(shared);
    let run = move || {
        let answer = change(&*this.host).unwrap_or_else(|reason| Answer::Refused { reason });
        this.promoting.store(false, Ordering::SeqCst);
        reply.send(answer);
    };
    // Without a thread the reply is dropped, which answers too.
    if thread::Builder::new().name("promote".to_owned()).spawn(run).is_err() {
        shared.promoting.store(false, Ordering::SeqCst);
    }
}

/// What compares states may take a while, and has a thread of its own; there are few at once.
fn compare(shared: &Arc<Shared>, ask: StateAsk, reply: Reply) {
    if shared.comparing.fetch_add(1, Ordering::SeqCst) >= COMPARING {
        shared.comparing.fetch_sub(1, Ordering::SeqCst);
        let reason = "this node is being asked for its state by too many already: try again later".to_owned();
        return reply.send(Answer::Refused { reason });
    }
    let this = Arc::clone(shared);
    let run = move || {
        let answer = this.host.compare(ask);
        this.comparing.fetch_sub(1, Ordering::SeqCst);
        reply.send(answer.map_or_else(|reason| Answer::Refused { reason }, Answer::State));
    };
    // Without a thread the reply is dropped, which answers too.
    if thread::Builder::new().name("compare".to_owned()).spawn(run).is_err() {
        shared.comparing.fetch_sub(1, Ordering::SeqCst);
    }
}

/// What asks other nodes takes a while, and has a thread of its own; there are few at once.
fn asks_others(
    shared: &Arc<Shared>,
    reply: Reply,
    ask: impl FnOnce(&dyn Host) -> Result<Answer, String> + Send + 'static,
) {
    if shared.asking.fetch_add(1, Ordering::SeqCst) >= ASKING {
        shared.asking.fetch_sub(1, Ordering::SeqCst);
        let reason = "this node is asking other nodes for too many already: try again later".to_owned();
        return reply.send(Answer::Refused { reason });
    }
    let this = Arc::clone(shared);
    let run = move || {
        let answer = ask(&*this.host);
        this.asking.fetch_sub(1, Ordering::SeqCst);
        reply.send(answer.unwrap_or_else(|reason| Answer::Refused { reason }));
    };
    // Without a thread the reply is dropped, which answers too.
    if thread::Builder::new().name("ask-others".to_owned()).spawn(run).is_err() {
        shared.asking.fetch_sub(1, Ordering::SeqCst);
    }
}

/// A checkpoint is waited for in a thread of its own.
fn checkpoint(shared: &Arc<Shared>, consistent: bool, reply: Reply) {
    let this = Arc::clone(shared);
    let kind = if consistent { CheckpointKind::Consistent } else { CheckpointKind::Fuzzy };
    let run = move || {
        reply.send(match this.host.checkpoint(kind) {
            Ok(status) => Answer::Checkpoint {
                start: status.start.unwrap_or_default(),
                end: status.end.unwrap_or_default(),
                bytes: status.bytes,
                rows: status.rows,
            },
            Err(reason) => Answer::Refused { reason },
        });
    };
    // Without a thread the reply is dropped, which answers too.
    let _ = thread::Builder::new().name("checkpoint-asked".to_owned()).spawn(run);
}
