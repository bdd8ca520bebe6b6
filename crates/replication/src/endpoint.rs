//! Where a node listens. It stays open when the node changes its role.

use std::{
    io,
    net::SocketAddr,
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use freshet_base::{
    NodeId, Term,
    strangers::Strangers,
    sync::{Arc, AtomicUsize, Mutex, Ordering},
};
use freshet_fabric::tcp::{Closer, Connection, ListenError, Listener, ListenerCloser};

use crate::wire::{self, DecodeError, Hello, Kind, Purpose, Refusal, Reply};

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
const GUESTS: usize = 256;

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
    thread: Option<JoinHandle<()>>,
}

struct Shared {
    node: NodeId,
    service: Mutex<Option<Arc<dyn Service>>>,
    /// Whoever asks for a checkpoint is answered whatever the node's role.
    checkpoints: Mutex<Option<Arc<dyn Service>>>,
    strangers: Arc<Strangers<Closer>>,
    guests: AtomicUsize,
}

impl std::fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Endpoint({})", self.address)
    }
}

impl Endpoint {
    /// Listens on `address` ("host:port"; port 0 lets the system choose) for `node`.
    ///
    /// # Errors
    /// [`ListenError`] when the address is not ours or in use.
    pub fn open(node: NodeId, address: &str) -> Result<Self, ListenError> {
        let failed = |source: io::Error| ListenError { address: address.to_owned(), source };
        let listener = Listener::bind(address)?;
        let bound = listener.address().map_err(failed)?;
        let closer = listener.closer().map_err(failed)?;
        let shared = Arc::new(Shared {
            node,
            service: Mutex::new(None),
            checkpoints: Mutex::new(None),
            strangers: Strangers::new(STRANGERS, FAIR),
            guests: AtomicUsize::new(0),
        });
        let for_thread = Arc::clone(&shared);
        let thread = thread::Builder::new()
            .name("listen".into())
            .spawn(move || listen(&listener, &for_thread))
            .map_err(failed)?;
        Ok(Self { shared, address: bound, closer, thread: Some(thread) })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// From now on `service` answers; without one, everybody is told that this node has no role at present.
    pub fn set_service(&self, service: Option<Arc<dyn Service>>) {
        *self.shared.service.lock().expect("no code panics under this mutex") = service;
    }
}

impl Endpoint {
    /// From now on `service` answers those who want a checkpoint, whatever role this node has.
    pub fn set_checkpoints(&self, service: Option<Arc<dyn Service>>) {
        *self.shared.checkpoints.lock().expect("no code panics under this mutex") = service;
    }
}

impl Drop for Endpoint {
    fn drop(&mut self) {
        self.set_service(None);
        self.set_checkpoints(None);
        self.shared.strangers.close().iter().for_each(Closer::close);
        self.closer.close();
        if let Some(thread) = self.thread.take() {
            // A panic there was reported already.
            let _ = thread.join();
        }
    }
}

fn listen(listener: &Listener, shared: &Arc<Shared>) {
    loop {
        match listener.accept() {
            Ok(None) => return,
            Ok(Some(connection)) => greet(connection, shared),
            // Too many open files, or a connection that ended before it was accepted: the next may do better.
            Err(_) => thread::sleep(Duration::from_millis(20)),
        }
    }
}

fn greet(connection: Connection, shared: &Arc<Shared>) {
    // A caller that cannot be sent away is not let in.
    let Ok(closer) = connection.closer() else { return };
    let Some((place, gone)) = shared.strangers.admit(closer) else { return };
    if let Some(gone) = gone {
        gone.close();
    }
    let for_thread = Arc::clone(shared);
    // Without a thread both connection and place are dropped.
    let _ = thread::Builder::new().name("greet".into()).spawn(move || {
        let introduced = introduce(connection);
        drop(place);
        if let Some((hello, connection)) = introduced {
            serve(&for_thread, hello, connection);
        }
    });
}

/// Answers a caller that has said who it is.
fn serve(shared: &Shared, hello: Hello, connection: Connection) {
    let guest = Guest::new(&shared.guests);
    if guest.number > GUESTS {
        return refuse(
            connection,
            Refusal::Failed(format!("this node serves {GUESTS} others already: try again later")),
        );
    }
    let wants_checkpoint = matches!(hello.purpose, Purpose::Checkpoint { .. });
    let service = if wants_checkpoint { &shared.checkpoints } else { &shared.service };
    let service = service.lock().expect("no code panics under this mutex").clone();
    match service {
        None if wants_checkpoint => answer(connection, Term(0), &Reply::NoCheckpoint),
        Some(service) => service.serve(hello, connection),
        None => refuse(connection, Refusal::NotPrimary { node: shared.node, leader: None }),
    }
}

/// A caller that is being served.
struct Guest<'g> {
    all: &'g AtomicUsize,
    /// How many there are with this one.
    number: usize,
}

impl<'g> Guest<'g> {
    fn new(all: &'g AtomicUsize) -> Self {
        Self { all, number: all.fetch_add(1, Ordering::SeqCst) + 1 }
    }
}

impl Drop for Guest<'_> {
    fn drop(&mut self) {
        self.all.fetch_sub(1, Ordering::SeqCst);
    }
}

fn introduce(mut connection: Connection) -> Option<(Hello, Connection)> {
    connection.set_patience(Some(PATIENCE)).ok()?;
    connection.receiver().set_deadline(Some(Instant::now() + PATIENCE)).ok()?;
    let header = connection.receiver().receive().ok()?;
    if header.kind != Kind::Hello as u8 || header.payload != 0 {
        return None;
    }
    connection.receiver().set_deadline(None).ok()?;
    match wire::decode_first::<Hello>("greeting", connection.receiver().immediate()) {
        Ok(hello) => Some((hello, connection)),
        Err(error) => {
            refuse(connection, Refusal::Violation(error.to_string()));
            None
        }
    }
}

/// Answers and ends the connection.
pub(crate) fn refuse(connection: Connection, refusal: Refusal) {
    answer(connection, Term(0), &Reply::Refused(refusal));
}

/// Answers; the connection ends when the answer was read, or not.
pub fn answer(mut connection: Connection, term: Term, reply: &Reply) {
    // If it cannot be told, it will notice.
    let _ = connection.sender().send(Kind::Reply as u8, term, &wire::encode_first(reply));
}

/// Why a call to another node had no answer.
#[derive(Debug, thiserror::Error)]
pub enum CallError {
    /// It cannot be reached.
    #[error(transparent)]
    Connect(#[from] freshet_fabric::tcp::ConnectError),
    /// It went away.
    #[error(transparent)]
    Send(#[from] freshet_fabric::tcp::SendError),
    /// It went away, or is silent.
    #[error(transparent)]
    Receive(#[from] freshet_fabric::tcp::ReceiveError),
    /// It speaks another language.
    #[error("{address}: {source}")]
    Decode {
        /// Who.
        address: String,
        /// What is wrong.
        source: DecodeError,
    },
    /// It refuses.
    #[error("{address} refuses: {refusal}")]
    Refused {
        /// Who.
        address: String,
        /// Why.
        refusal: Refusal,
    },
    /// It answers something else.
    #[error("{address} gave an answer that does not fit the question")]
    Unexpected {
        /// Who.
        address: String,
    },
    /// The system.
    #[error("a connection to {address} cannot be set up: {source}")]
    System {
        /// To whom.
        address: String,
        /// What the system says.
        source: io::Error,
    },
}

/// Connects, introduces itself, and waits for the answer; at most `patience` for each step.
///
/// # Errors
/// [`CallError`]; a refusal is one.
pub fn call(address: &str, hello: &Hello, term: Term, patience: Duration) -> Result<(Reply, Connection), CallError> {
    let mut connection = freshet_fabric::tcp::connect(address, patience)?;
    connection
        .set_patience(Some(patience))
        .map_err(|source| CallError::System { address: address.to_owned(), source })?;
    let reply = ask(&mut connection, address, hello, term)?;
    Ok((reply, connection))
}

/// The introduction and the answer, on a connection that is there already.
///
/// # Errors
/// [`CallError`]; a refusal is one.
pub fn ask(connection: &mut Connection, address: &str, hello: &Hello, term: Term) -> Result<Reply, CallError> {
    connection.sender().send(Kind::Hello as u8, term, &wire::encode_first(hello))?;
    hear(connection, address)
}

/// Waits for an answer.
///
/// # Errors
/// [`CallError`]; a refusal is one.
pub(crate) fn hear(connection: &mut Connection, address: &str) -> Result<Reply, CallError> {
    let header = connection.receiver().receive()?;
    if header.kind != Kind::Reply as u8 || header.payload != 0 {
        return Err(CallError::Unexpected { address: address.to_owned() });
    }
    match wire::decode_first::<Reply>("answer", connection.receiver().immediate()) {
        Ok(Reply::Refused(refusal)) => Err(CallError::Refused { address: address.to_owned(), refusal }),
        Ok(reply) => Ok(reply),
        Err(source) => Err(CallError::Decode { address: address.to_owned(), source }),
    }
}
