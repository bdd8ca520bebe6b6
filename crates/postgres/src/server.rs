//! A server: listens, gives each connection a thread, and ends them all in order.

use std::{
    io,
    net::{Shutdown, SocketAddr, TcpListener, TcpStream},
    os::{
        fd::{AsFd, BorrowedFd},
        unix::net::UnixListener,
    },
    path::{Path, PathBuf},
    sync::{Arc, PoisonError, RwLock},
    thread::{self, JoinHandle},
    time::Duration,
};

use rustix::net::sockopt;
use rustls::Connection;
use thiserror::Error;

use crate::{
    backend::{Backend, Origin, Peer},
    connection,
    delay::Delays,
    limits::Limits,
    local::{self, SocketFile},
    registry::{Registry, Sessions},
    route::{HandedOn, Takes},
    scram::random,
    spare::{self, Spare},
    tls::Tls,
    transport::{Socket, Stream, Transport},
};

/// How long sessions may take to leave once they were interrupted, and again once they were cut
/// off.
const LEAVE: Duration = Duration::from_secs(2);
/// How often it is looked whether clients are still there for whom something is being done.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Linux takes no more.
const KEEP_ALIVE_LONGEST: Duration = Duration::from_secs(32_767);
/// How long to wait when the system has no descriptor or no thread for a connection.
const EXHAUSTED: Duration = Duration::from_millis(10);

/// How a server is to be.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Where it listens. A port 0 is replaced by a free one.
    pub addresses: Vec<SocketAddr>,
    /// The directory for a Unix socket, if any: `.s.PGSQL.` and the port of the first address. All
    /// users who can enter this directory can connect.
    pub socket_directory: Option<PathBuf>,
    /// How much clients may have.
    pub limits: Limits,
    /// With what TLS is offered.
    pub tls: Option<Tls>,
    /// From what is said to users who do not exist when they are asked for a password. The same on
    /// all nodes and after a restart, so that they cannot be told apart by that either; random if
    /// left open.
    pub decoy: Option<[u8; 32]>,
}

/// Why a server cannot start.
#[derive(Debug, Error)]
pub enum StartError {
    /// An address cannot be had.
    #[error("cannot listen for PostgreSQL clients at {address}: {cause}")]
    Listen {
        /// The address that was asked for.
        address: SocketAddr,
        /// What the system says.
        cause: io::Error,
    },
    /// The Unix socket cannot be had.
    #[error("cannot listen for PostgreSQL clients at {path}: {cause}")]
    Socket {
        /// The socket's path.
        path: PathBuf,
        /// What the system says.
        cause: io::Error,
    },
    /// There is no thread or no randomness to be had.
    #[error("cannot start to serve PostgreSQL clients: {0}")]
    System(#[from] io::Error),
}

/// What all threads of a server share.
pub(crate) struct Shared {
    pub(crate) backend: Arc<dyn Backend>,
    pub(crate) limits: Limits,
    pub(crate) decoy: [u8; 32],
    pub(crate) delays: Delays,
    tls: RwLock<Option<Tls>>,
}

impl Shared {
    pub(crate) fn new(backend: Arc<dyn Backend>, limits: Limits, tls: Option<Tls>, decoy: [u8; 32]) -> Self {
        let delays = Delays::new(limits.refusal);
        Self { backend, limits, decoy, delays, tls: RwLock::new(tls) }
    }

    pub(crate) fn tls(&self) -> Option<Tls> {
        self.tls.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// A socket at which clients are accepted.
enum Listener {
    Tcp(TcpListener),
    Unix(UnixListener),
}

impl Listener {
    /// Blocks until a client comes.
    fn accept(&self, limits: &Limits) -> io::Result<(Stream, Origin)> {
        match self {
            Self::Tcp(listener) => {
                let (stream, address) = listener.accept()?;
                keep_alive(&stream, limits)?;
                Ok((Stream::Tcp(stream), Origin::Host(address)))
            }
            Self::Unix(listener) => {
                let (stream, _) = listener.accept()?;
                let uid = local::user_of(&stream)?;
                Ok((Stream::Unix(stream), Origin::Local { uid }))
            }
        }
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Tcp(listener) => listener.as_fd(),
            Self::Unix(listener) => listener.as_fd(),
        }
    }
}

/// A running server. Dropping it ends it without much patience.
pub struct Server {
    shared: Arc<Shared>,
    registry: Arc<Registry>,
    addresses: Vec<SocketAddr>,
    /// The Unix socket, if there is one.
    socket: Option<SocketFile>,
    /// Each with its listener, which is closed to end it.
    accepting: Vec<(Arc<Listener>, JoinHandle<()>)>,
    /// Looks for clients that have gone.
    watching: Option<JoinHandle<()>>,
    /// The thread that sends delayed refusals.
    refusing: Option<JoinHandle<()>>,
}

/// Whether a server could have its Unix socket for this port in the directory. Removes the socket
/// of a server that does not run any more.
///
/// # Errors
/// [`StartError::Socket`] when it could not.
pub fn probe_socket(directory: &Path, port: u16) -> Result<(), StartError> {
    let refused = |cause| StartError::Socket { path: local::socket_path(directory, port), cause };
    let (listener, file) = local::listen(directory, port).map_err(refused)?;
    drop(file);
    drop(listener);
    Ok(())
}

impl Server {
    /// Serves a database.
    ///
    /// # Errors
    /// When an address cannot be had, or the system has no threads left.
    pub fn start(backend: Arc<dyn Backend>, options: Options) -> Result<Self, StartError> {
        let Options { addresses, socket_directory, limits, tls, decoy } = options;
        let decoy = decoy.map_or_else(random, Ok)?;
        let shared = Arc::new(Shared::new(backend, limits, tls, decoy));
        let mut server = Self {
            shared,
            registry: Registry::new(),
            addresses: Vec::new(),
            socket: None,
            accepting: Vec::new(),
            watching: None,
            refusing: None,
        };
        let mut listeners = Vec::new();
        for address in addresses {
            let refused = |cause| StartError::Listen { address, cause };
            let listener = TcpListener::bind(address).map_err(refused)?;
            server.addresses.push(listener.local_addr().map_err(refused)?);
            listeners.push(Listener::Tcp(listener));
        }
        if let (Some(directory), Some(address)) = (socket_directory, server.addresses.first()) {
            let path = local::socket_path(&directory, address.port());
            let listening = local::listen(&directory, address.port());
            let (listener, file) = listening.map_err(|cause| StartError::Socket { path, cause })?;
            server.socket = Some(file);
            listeners.push(Listener::Unix(listener));
        }
        for listener in listeners.into_iter().map(Arc::new) {
            let (shared, registry) = (Arc::clone(&server.shared), Arc::clone(&server.registry));
            let ours = Arc::clone(&listener);
            let thread = thread::Builder::new().name("pg accept".to_owned());
            let thread = thread.spawn(move || accept(&shared, &registry, &ours))?;
            server.accepting.push((listener, thread));
        }
        let (shared, registry) = (Arc::clone(&server.shared), Arc::clone(&server.registry));
        let thread = thread::Builder::new().name("pg watch".to_owned());
        server.watching = Some(thread.spawn(move || {
            while !registry.stops_within(LOOK_EVERY) {
                registry.end_forsaken();
                shared.backend.watch(&Sessions::new(&registry));
            }
        })?);
        let shared = Arc::clone(&server.shared);
        let thread = thread::Builder::new().name("pg refuse".to_owned());
        server.refusing = Some(thread.spawn(move || shared.delays.answer())?);
        Ok(server)
    }

    /// Where it listens, in the order of [`Options::addresses`].
    #[must_use]
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// The Unix socket that it listens at, if any.
    #[must_use]
    pub fn socket(&self) -> Option<&Path> {
        self.socket.as_ref().map(SocketFile::path)
    }

    /// All sessions, to cancel or terminate them.
    #[must_use]
    pub fn sessions(&self) -> Sessions {
        Sessions::new(&self.registry)
    }

    /// What serves sessions here that other nodes hand on.
    #[must_use]
    pub fn takes(&self) -> Takes {
        Takes { shared: Arc::clone(&self.shared), registry: Arc::clone(&self.registry) }
    }

    /// Offers TLS with another certificate, or not any more, to those who connect from now on.
    pub fn set_tls(&self, tls: Option<Tls>) {
        *self.shared.tls.write().unwrap_or_else(PoisonError::into_inner) = tls;
    }

    /// Ends it. Idle sessions go at once. What runs has until `grace` has passed, is then
    /// interrupted, and at last cut off; returns how many connections have not gone even so, some
    /// seconds later.
    #[must_use]
    pub fn shut_down(mut self, grace: Duration) -> usize {
        self.end(grace)
    }

    fn end(&mut self, grace: Duration) -> usize {
        self.registry.stop();
        self.socket = None;
        for (listener, thread) in self.accepting.drain(..) {
            // Wakes the thread that accepts.
            let _ = rustix::net::shutdown(&listener, rustix::net::Shutdown::Both);
            let _ = thread.join();
        }
        if let Some(thread) = self.watching.take() {
            let _ = thread.join();
        }
        self.shared.delays.stop();
        if let Some(thread) = self.refusing.take() {
            let _ = thread.join();
        }
        // Without grace what runs ends with what is idle: it may wait for that.
        self.registry.end_all(grace.is_zero());
        if self.registry.wait_for_none(grace) > 0 {
            self.registry.end_all(true);
        }
        if self.registry.wait_for_none(LEAVE) > 0 {
            self.registry.cut_all();
        }
        self.registry.wait_for_none(LEAVE)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.end(Duration::ZERO);
    }
}

impl std::fmt::Debug for Server {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Server").field("addresses", &self.addresses).finish_non_exhaustive()
    }
}

fn accept(shared: &Arc<Shared>, registry: &Arc<Registry>, listener: &Listener) {
    let mut spare = Spare::default();
    while registry.wait_for_place(&shared.limits) {
        spare.take(listener);
        let mut accepted = listener.accept(&shared.limits);
        if accepted.as_ref().is_err_and(spare::is_exhausted) && spare.give() {
            accepted = listener.accept(&shared.limits);
        }
        if registry.is_stopping() {
            return;
        }
        let begun = accepted.and_then(|(stream, origin)| {
            // A session that has the last descriptor keeps the next client from being told.
            let stream = Arc::new(stream);
            let begun = if spare.take(listener) {
                begin(shared, registry, &stream, origin)
            } else {
                Err(io::ErrorKind::QuotaExceeded.into())
            };
            begun.inspect_err(|_| spare::refuse(&stream))
        });
        if begun.is_err() {
            // The client has gone already, or the system has no more.
            registry.exhausted();
            thread::sleep(EXHAUSTED);
        }
    }
}

/// Gives a session its thread that another node hands on.
pub(crate) fn begin_handed(
    takes: &Takes,
    socket: TcpStream,
    tls: Option<Connection>,
    ahead: Vec<u8>,
    HandedOn { pid, node, own }: HandedOn,
) -> io::Result<()> {
    let shared = Arc::clone(&takes.shared);
    keep_alive(&socket, &shared.limits)?;
    let stream = Arc::new(Stream::Tcp(socket));
    let entered = takes.registry.enter(pid.cast_unsigned() << 1, random()?, Some(Arc::clone(&stream)));
    let Some(seat) = entered else { return Err(io::ErrorKind::ConnectionAborted.into()) };
    seat.entry.is_handed_on_by(node);
    let socket = Socket::new(Arc::clone(&stream), Arc::clone(&seat.entry), shared.limits.write)?;
    let thread = thread::Builder::new().name(format!("pg {}", seat.entry.pid)).stack_size(shared.limits.stack);
    thread.spawn(move || {
        connection::run_handed(&shared, &seat, Transport::of(socket, tls), &ahead, own);
        let _ = stream.shutdown(Shutdown::Both);
    })?;
    Ok(())
}

/// Has the system find out when a client is not there any more.
pub(crate) fn keep_alive(stream: &TcpStream, limits: &Limits) -> io::Result<()> {
    if !limits.keep_alive.is_zero() {
        let first = limits.keep_alive.clamp(Duration::from_secs(1), KEEP_ALIVE_LONGEST);
        sockopt::set_socket_keepalive(stream, true)?;
        sockopt::set_tcp_keepidle(stream, first)?;
        sockopt::set_tcp_keepintvl(stream, (first / 10).max(Duration::from_secs(1)))?;
        sockopt::set_tcp_keepcnt(stream, 10)?;
    }
    Ok(())
}

/// Gives a connection its thread.
fn begin(shared: &Arc<Shared>, registry: &Arc<Registry>, stream: &Arc<Stream>, origin: Origin) -> io::Result<()> {
    let (pid, secret) = (u32::from_ne_bytes(random()?), random()?);
    let Some(seat) = registry.enter(pid, secret, Some(Arc::clone(stream))) else { return Ok(()) };
    let socket = Socket::new(Arc::clone(stream), Arc::clone(&seat.entry), shared.limits.write)?;
    let stream = Arc::clone(stream);
    let shared = Arc::clone(shared);
    let thread = thread::Builder::new().name(format!("pg {}", seat.entry.pid)).stack_size(shared.limits.stack);
    thread.spawn(move || {
        let peer = Peer::new(origin);
        if connection::run(&shared, &seat, peer, Transport::Plain(socket)).is_some() {
            let _ = stream.shutdown(Shutdown::Both);
        }
    })?;
    Ok(())
}
