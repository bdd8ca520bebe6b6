//! Where a node listens, and how nodes call each other. The port stays open when the node changes
//! its role.
//!
//! There are two doors. Over TCP, TLS comes first. A caller without a certificate of this cluster's
//! authority may ask for one and for nothing else; a caller with one speaks under the id in it. The
//! other door is for processes of the same user on this machine ([`freshet_fabric::local`]): they
//! are certified without a token, and pass the descriptors of shared memory.

mod connect;
mod error;

use std::{
    collections::{BTreeMap, VecDeque},
    io,
    net::SocketAddr,
    os::unix::net::UnixStream,
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use freshet_base::{
    NodeId, Term,
    strangers::Strangers,
    sync::{Arc, AtomicBool, Condvar, Mutex, MutexGuard, Ordering},
};
use freshet_fabric::{
    foreign,
    local::LocalListener,
    stream::tls_error,
    tcp::{Closer, Connection, ListenError, Listener, ListenerCloser, ReceiveError},
};
use freshet_membership::{Credentials, Enrolled, Enrolment, EnrolmentError, Identity, NewKey, Part, Token};

pub(crate) use self::connect::connect_until;
use self::connect::{at_hand, near, secured};
pub use self::{connect::connect, error::CallError};
use crate::{
    rights::{Caller, may},
    wire::{self, DecodeError, Hello, Join, Kind, PROTOCOL, Purpose, Refusal, Reply},
};

/// The purpose of the socket for processes of this user.
pub const LOCAL: &str = "node";
/// The most passages that wait for the node that joins.
const PASSAGES: usize = 64;

/// A stranger has this long to say who it is, all in all; then each step of what it wants may take
/// as long.
const PATIENCE: Duration = Duration::from_secs(5);
/// No more strangers are listened to at once: one more takes the place of the one who has been
/// there for longest.
const STRANGERS: usize = 64;
/// But none loses its place before it has had it for this long.
const FAIR: Duration = Duration::from_millis(250);
/// No more are answered at once whose greeting was read: nodes that join, ask, or fetch the log or
/// a checkpoint.
const REPLICAS: usize = 256;
/// Those who are being answered when the node ends may keep it for this long.
const ENDING: Duration = Duration::from_secs(10);

/// A role: answers those who connect. Called in a thread of its own, which may block.
pub trait Service: Send + Sync {
    /// Takes over a connection whose greeting was read.
    fn serve(&self, hello: Hello, connection: Connection);
}

/// The listening socket and its thread.
pub struct Endpoint {
    shared: Arc<Shared>,
    address: SocketAddr,
    closer: ListenerCloser,
    local: Arc<LocalListener>,
    threads: Vec<JoinHandle<()>>,
}

struct Shared {
    node: NodeId,
    credentials: Credentials,
    closed: AtomicBool,
    state: Mutex<State>,
    strangers: Arc<Strangers<Closer>>,
    /// What ends the connections of those who are being answered.
    replicas: Mutex<BTreeMap<u64, Closer>>,
    /// One of them is there no more.
    left: Condvar,
}

#[derive(Default)]
struct State {
    /// Sockets for descriptors, by the number under which a node will join.
    passages: VecDeque<(u64, UnixStream)>,
    service: Option<Arc<dyn Service>>,
    /// A node that asks for a checkpoint is answered whatever this node's role.
    checkpoints: Option<Arc<dyn Service>>,
    /// Takes sessions over that other nodes hand on.
    sessions: Option<Arc<dyn Service>>,
}

impl std::fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Endpoint({})", self.address)
    }
}

impl Endpoint {
    /// Listens on `address` ("host:port"; port 0 lets the system choose) for the node that holds
    /// `credentials`.
    ///
    /// # Errors
    /// [`ListenError`] when the address is not ours or in use.
    pub fn open(node: NodeId, credentials: Credentials, address: &str) -> Result<Self, ListenError> {
        let failed = |source: io::Error| ListenError { address: address.to_owned(), source };
        let listener = Listener::bind(address)?;
        let bound = listener.address().map_err(failed)?;
        let closer = listener.closer();
        let local = LocalListener::bind(LOCAL, bound).map_err(failed)?;
        if local.is_hidden() {
            tracing::warn!(
                %bound,
                "other users have taken the names of this node's local socket: processes of its own user on this \
                 machine need a certificate, like all others"
            );
        }
        let shared = Arc::new(Shared {
            node,
            credentials,
            closed: AtomicBool::new(false),
            state: Mutex::default(),
            strangers: Strangers::new(STRANGERS, FAIR),
            replicas: Mutex::default(),
            left: Condvar::new(),
        });
        let mut endpoint = Self { shared, address: bound, closer, local: Arc::new(local), threads: Vec::new() };
        let (far, near) = (Arc::clone(&endpoint.shared), Arc::clone(&endpoint.shared));
        let local = Arc::clone(&endpoint.local);
        let mut spawn = |name: &str, run: Box<dyn FnOnce() + Send>| {
            let thread = thread::Builder::new().name(name.into()).spawn(run).map_err(failed)?;
            endpoint.threads.push(thread);
            Ok::<_, ListenError>(())
        };
        spawn("listen", Box::new(move || listen(&listener, &far)))?;
        spawn("listen-local", Box::new(move || listen_locally(&local, bound, &near)))?;
        Ok(endpoint)
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// From now on `service` answers; without one, everybody is told that this node has no role at
    /// present.
    pub fn set_service(&self, service: Option<Arc<dyn Service>>) {
        self.shared.state().service = service;
    }
}

impl Endpoint {
    /// From now on `service` answers those who want a checkpoint, whatever role this node has.
    pub fn set_checkpoints(&self, service: Option<Arc<dyn Service>>) {
        self.shared.state().checkpoints = service;
    }

    /// From now on `service` answers nodes that hand on sessions, or cancel what these do. It must
    /// not block for long, and counts what it takes over itself: that outlives the call.
    pub fn set_sessions(&self, service: Option<Arc<dyn Service>>) {
        self.shared.state().sessions = service;
    }
}

impl Drop for Endpoint {
    fn drop(&mut self) {
        self.shared.closed.store(true, Ordering::SeqCst);
        self.set_service(None);
        self.set_checkpoints(None);
        self.set_sessions(None);
        self.shared.strangers.close().iter().for_each(Closer::close);
        self.closer.close();
        self.local.close();
        for thread in self.threads.drain(..) {
            // A panic there was reported already.
            let _ = thread.join();
        }
        self.shared.dismiss(Instant::now() + ENDING);
    }
}

/// Too many open files, or a connection that ended before it was accepted: the next may do better.
const PAUSE: Duration = Duration::from_millis(20);

fn listen(listener: &Listener, shared: &Arc<Shared>) {
    loop {
        match listener.accept() {
            Ok(None) => return,
            Ok(Some(connection)) => greet(connection, Door::Tcp, shared),
            Err(_) => thread::sleep(PAUSE),
        }
    }
}

fn listen_locally(listener: &LocalListener, address: SocketAddr, shared: &Arc<Shared>) {
    loop {
        let accepted = listener.accept();
        if shared.closed.load(Ordering::SeqCst) {
            return;
        }
        let Ok(stream) = accepted else {
            thread::sleep(PAUSE);
            continue;
        };
        match stream.try_clone() {
            Ok(same) => greet(Connection::new(stream.into(), address), Door::Local(same), shared),
            Err(_) => thread::sleep(PAUSE),
        }
    }
}

/// The door by which a caller came.
enum Door {
    Tcp,
    /// The socket, on which descriptors are passed.
    Local(UnixStream),
}

fn greet(connection: Connection, door: Door, shared: &Arc<Shared>) {
    let Some((place, gone)) = shared.strangers.admit(connection.closer()) else { return };
    if let Some(gone) = gone {
        gone.close();
    }
    let for_thread = Arc::clone(shared);
    // Without a thread both connection and place are dropped.
    let _ = thread::Builder::new().name("greet".into()).spawn(move || {
        let introduced = match door {
            Door::Tcp => introduce(connection, &for_thread),
            Door::Local(socket) => introduce_locally(connection, socket, &for_thread),
        };
        drop(place);
        if let Some((hello, connection)) = introduced {
            serve(&for_thread, hello, connection);
        }
    });
}

/// Answers a caller that has said who it is.
fn serve(shared: &Shared, hello: Hello, connection: Connection) {
    if matches!(hello.purpose, Purpose::Session { .. } | Purpose::Cancel { .. }) {
        let service = shared.state().sessions.clone();
        return match service {
            Some(service) => service.serve(hello, connection),
            None => refuse(connection, Refusal::NotPrimary { node: shared.node, primary: None }),
        };
    }
    // Before it is known what answers: that is held for as long as the caller is there.
    let Some(_admission) = Admission::new(shared, connection.closer()) else {
        let why = format!("this node serves {REPLICAS} others already: try again later");
        return refuse(connection, Refusal::Failed(why));
    };
    let wants_checkpoint = matches!(hello.purpose, Purpose::Checkpoint { .. });
    let service = {
        let state = shared.state();
        if wants_checkpoint { state.checkpoints.clone() } else { state.service.clone() }
    };
    match service {
        None if wants_checkpoint => answer(connection, Term(0), &Reply::NoCheckpoint),
        Some(service) => service.serve(hello, connection),
        None => refuse(connection, Refusal::NotPrimary { node: shared.node, primary: None }),
    }
}

/// A caller that is being served.
struct Admission<'s> {
    shared: &'s Shared,
    number: u64,
}

impl<'s> Admission<'s> {
    /// None when there are as many as may be.
    fn new(shared: &'s Shared, closer: Closer) -> Option<Self> {
        let mut replicas = shared.replicas();
        let number = replicas.last_key_value().map_or(0, |(last, _)| last + 1);
        if replicas.len() >= REPLICAS {
            return None;
        }
        replicas.insert(number, closer);
        Some(Self { shared, number })
    }
}

impl Drop for Admission<'_> {
    fn drop(&mut self) {
        self.shared.replicas().remove(&self.number);
        self.shared.left.notify_all();
    }
}

/// Reads the greeting, by `deadline`; without a valid one the connection ends. One in a version
/// that this node does not speak may come `again` in another.
fn greeting(mut connection: Connection, deadline: Instant, again: bool) -> Option<(Hello, Connection)> {
    connection.set_patience(Some(PATIENCE)).ok()?;
    connection.receiver().set_deadline(Some(deadline)).ok()?;
    let header = connection.receiver().receive().ok()?;
    if header.kind != Kind::Hello as u8 || header.payload != 0 {
        return None;
    }
    connection.receiver().set_deadline(None).ok()?;
    match wire::decode_first::<Hello>("greeting", connection.receiver().immediate()) {
        Ok((hello, spoken)) => {
            connection.speaks(spoken);
            match wire::too_old(spoken.newest) {
                None => return Some((hello, connection)),
                Some(why) => {
                    tracing::warn!(node = %hello.node, address = hello.address, cause = why, "a node is refused");
                    refuse(connection, Refusal::Failed(why));
                }
            }
        }
        Err(DecodeError::Version(differ)) => {
            let _ = connection.sender().send(Kind::Reply as u8, Term(0), &wire::versions_in(PROTOCOL));
            if again && differ.common().is_some() {
                return greeting(connection, deadline, false);
            }
            tracing::warn!(peer = %connection.peer(), cause = %differ, "a node is refused");
        }
        Err(error) => refuse(connection, Refusal::Violation(error.to_string())),
    }
    None
}

/// What callers hear that have taken this port for another one.
const NODE_PORT: (&str, &str) = (
    "this is the port of a Freshet node for other nodes",
    "PostgreSQL's clients connect to sql-listen (port 5432 if nothing else is configured), freshet status and the like \
     to address (7400), HTTP's clients to http-listen",
);

/// The hello of a caller over TCP, if it is to be answered by the node.
fn introduce(connection: Connection, shared: &Shared) -> Option<(Hello, Connection)> {
    let deadline = Instant::now() + PATIENCE;
    let credentials = &shared.credentials;
    let peer = connection.peer();
    let connection = connection.secured(|stream| {
        foreign::turn_away(&stream, deadline, NODE_PORT.0, NODE_PORT.1)?;
        stream.secure_server(credentials.server(), deadline)
    });
    let connection = connection.inspect_err(|cause| tracing::warn!(%peer, %cause, "a caller is not let in")).ok()?;
    let certificate = connection.stream().certificate();
    let identity = certificate.as_ref().map(Identity::of);
    let (hello, connection) = greeting(connection, deadline, true)?;
    let caller = Caller::of(identity, &hello);
    if !may(caller, &hello.purpose) {
        let why = caller.refusal();
        tracing::warn!(%peer, cause = why, "a caller is not let in");
        refuse(connection, Refusal::NotMember(why));
        return None;
    }
    if let Some(record) = credentials.removal_of(hello.node) {
        refuse(connection, Refusal::Removed { node: hello.node, record });
        return None;
    }
    match &hello.purpose {
        Purpose::Renew => {
            let certified = certificate.map(|certificate| credentials.certify_again(&certificate));
            answer(connection, Term(0), &certified.map_or(Reply::Working, |certified| signed(certified, peer)));
            None
        }
        Purpose::Enrol(newcomer) => {
            answer(connection, Term(0), &certify(credentials, newcomer, false, peer));
            None
        }
        Purpose::Join(Join { passage: Some(number), .. }) => {
            let passage = shared.take_passage(*number);
            Some((hello, passage.into_iter().fold(connection, Connection::beside)))
        }
        _ => Some((hello, connection)),
    }
}

/// The hello of a process of this user on this machine, if it is to be answered by the node.
fn introduce_locally(connection: Connection, socket: UnixStream, shared: &Shared) -> Option<(Hello, Connection)> {
    let (hello, connection) = greeting(connection, Instant::now() + PATIENCE, true)?;
    let peer = connection.peer();
    match &hello.purpose {
        purpose if !may(Caller::Owner, purpose) => refuse(connection, Refusal::Violation(Caller::Owner.refusal())),
        Purpose::Enrol(newcomer) => answer(connection, Term(0), &certify(&shared.credentials, newcomer, true, peer)),
        Purpose::Passage { number } => {
            shared.keep_passage(*number, socket);
            answer(connection, Term(0), &Reply::Noted);
        }
        _ => return Some((hello, connection)),
    }
    None
}

fn certify(credentials: &Credentials, newcomer: &Enrolment, same_user: bool, peer: SocketAddr) -> Reply {
    let from = if same_user { "a process of this user".to_owned() } else { peer.to_string() };
    signed(credentials.enrol(newcomer, same_user), from)
}

fn signed(certified: Result<Enrolled, EnrolmentError>, from: impl std::fmt::Display) -> Reply {
    match certified {
        Ok(enrolled) => {
            tracing::info!(%from, identity = %enrolled.identity, "a certificate is signed");
            Reply::Enrolled(enrolled)
        }
        Err(error) => {
            tracing::warn!(%from, cause = %error, "a certificate is refused");
            Reply::Refused(Refusal::NotEnrolled(error.to_string()))
        }
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no code panics under this mutex")
    }

    fn replicas(&self) -> MutexGuard<'_, BTreeMap<u64, Closer>> {
        self.replicas.lock().expect("no code panics under this mutex")
    }

    /// Ends the connections of those who are being answered, and blocks until they are gone, or
    /// until `deadline`. What answers them holds the node's directory.
    fn dismiss(&self, deadline: Instant) {
        let mut replicas = self.replicas();
        replicas.values().for_each(Closer::close);
        while !replicas.is_empty() {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            replicas = self.left.wait_timeout(replicas, left).expect("no code panics under this mutex").0;
        }
    }

    fn keep_passage(&self, number: u64, passage: UnixStream) {
        let passages = &mut self.state().passages;
        if passages.len() >= PASSAGES {
            passages.pop_front();
        }
        passages.push_back((number, passage));
    }

    fn take_passage(&self, number: u64) -> Option<UnixStream> {
        let passages = &mut self.state().passages;
        let place = passages.iter().position(|(other, _)| *other == number)?;
        passages.remove(place).map(|(_, passage)| passage)
    }
}

/// Answers and ends the connection.
pub fn refuse(connection: Connection, refusal: Refusal) {
    answer(connection, Term(0), &Reply::Refused(refusal));
}

/// Answers; the connection ends when the answer was read, or not.
pub fn answer(mut connection: Connection, term: Term, reply: &Reply) {
    // If it cannot be told, it will notice.
    let bytes = wire::encode_first(&connection, reply);
    let _ = connection.sender().send(Kind::Reply as u8, term, &bytes);
}

/// Has this process certified by the member at `address`: without a token if the member is of the
/// same user on the same machine, otherwise with `token`. Who already has an id keeps it. `part`
/// says what it is to be, unless the token is for a client.
///
/// # Errors
/// [`CallError`]; a refusal is one.
pub fn enrol(
    address: &str,
    token: Option<&Token>,
    node: Option<NodeId>,
    part: Part,
    patience: Duration,
) -> Result<(Enrolled, NewKey), CallError> {
    let mut connection = match token {
        None => at_hand(address, patience)?,
        Some(token) => {
            let config = Credentials::of_newcomer(token)?;
            let deadline = Instant::now() + patience;
            secured(address, patience, drop, |stream| stream.secure_client(config, Credentials::expected(), deadline))?
        }
    };
    let key = NewKey::generate()?;
    let newcomer = Enrolment { public_key: key.public(), node, part, secret: token.map(Token::secret) };
    let purpose = Purpose::Enrol(newcomer);
    let hello = Hello { cluster: None, node: node.unwrap_or(NodeId(0)), address: String::new(), purpose };
    match ask(&mut connection, address, &hello, Term(0))? {
        Reply::Enrolled(enrolled) => Ok((enrolled, key)),
        _ => Err(CallError::Unexpected { address: address.to_owned() }),
    }
}

/// Opens a passage for descriptors to the node at `address`, and returns its number. None when that
/// node is not a process of this user on this machine.
///
/// # Errors
/// [`CallError`]; a refusal is one.
pub fn passage(hello: &Hello, address: &str, patience: Duration) -> Result<Option<(u64, UnixStream)>, CallError> {
    let Some((socket, mut connection)) = near(address, patience)? else { return Ok(None) };
    let number = freshet_membership::random().map_err(CallError::Credentials)?;
    let hello = Hello { purpose: Purpose::Passage { number }, ..hello.clone() };
    match ask(&mut connection, address, &hello, Term(0))? {
        Reply::Noted => Ok(Some((number, socket))),
        _ => Err(CallError::Unexpected { address: address.to_owned() }),
    }
}

/// Connects, introduces itself, and waits for the answer; at most `patience` for each step.
///
/// # Errors
/// [`CallError`]; a refusal is one.
pub fn call(
    credentials: &Credentials,
    address: &str,
    hello: &Hello,
    term: Term,
    patience: Duration,
) -> Result<(Reply, Connection), CallError> {
    let mut connection = connect(credentials, address, patience)?;
    let reply = ask(&mut connection, address, hello, term)?;
    Ok((reply, connection))
}

/// Asks as a client does: with credentials, or as a process of the node's user on its machine.
///
/// # Errors
/// [`CallError`]; a refusal is one.
pub fn call_as_client(
    credentials: Option<&Credentials>,
    address: &str,
    hello: &Hello,
    patience: Duration,
) -> Result<Reply, CallError> {
    let mut connection = match credentials {
        Some(credentials) => connect(credentials, address, patience)?,
        None => at_hand(address, patience)?,
    };
    ask(&mut connection, address, hello, Term(0))
}

/// The introduction and the answer, on a connection that is there already.
///
/// # Errors
/// [`CallError`]; a refusal is one.
pub fn ask(connection: &mut Connection, address: &str, hello: &Hello, term: Term) -> Result<Reply, CallError> {
    connection.sender().send(Kind::Hello as u8, term, &wire::encode_in(PROTOCOL, hello))?;
    match read_reply(connection, address) {
        Err(CallError::Decode { source: DecodeError::Version(differ), address: who }) => {
            let Some(common) = differ.common().filter(|common| *common < PROTOCOL) else {
                return Err(CallError::Decode { address: who, source: DecodeError::Version(differ) });
            };
            connection.sender().send(Kind::Hello as u8, term, &wire::encode_in(common, hello))?;
            read_reply(connection, address)
        }
        answered => answered,
    }
}

/// Waits for an answer.
///
/// # Errors
/// [`CallError`]; a refusal is one.
pub(crate) fn read_reply(connection: &mut Connection, address: &str) -> Result<Reply, CallError> {
    let header = connection.receiver().receive().map_err(|error| match &error {
        ReceiveError::Lost { source, .. } => match tls_error(source) {
            Some(why) => CallError::NotLetIn { address: address.to_owned(), why: why.to_string() },
            None => error.into(),
        },
        _ => error.into(),
    })?;
    if header.kind != Kind::Reply as u8 || header.payload != 0 {
        return Err(CallError::Unexpected { address: address.to_owned() });
    }
    match wire::decode_first::<Reply>("answer", connection.receiver().immediate()) {
        Ok((Reply::Refused(refusal), _)) => Err(CallError::Refused { address: address.to_owned(), refusal }),
        Ok((reply, spoken)) => {
            connection.speaks(spoken);
            Ok(reply)
        }
        Err(source) => Err(CallError::Decode { address: address.to_owned(), source }),
    }
}
