//! The control port: the server's end of connections from operators and monitors.
//!
//! Clients are processes of the same user on the same machine, by a socket ([`local`]), and others
//! over TCP, by their certificates. The table of [`rights`] says what each of them may ask.
//!
//! | thread | does | ends when |
//! |---|---|---|
//! | one that accepts | opens connections | the server stops |
//! | one for each stranger, two for each client, [`connection`] | read requests, write answers | the client has gone |
//! | one that hashes, [`work`] | never waits for a commit | the server stops |
//! | two that wait, [`completion`] | answer when a commit, or a read view, has come so far | the server stops |
//!
//! All answers of one group commit to one connection go out with one write. A connection that goes
//! away loses only its answers.

mod completion;
mod connection;
mod rights;
pub(crate) mod starting;
#[cfg(test)]
mod tests;
mod work;

use std::{
    collections::HashMap,
    net::{Shutdown, SocketAddr, TcpListener, TcpStream},
    os::unix::net::UnixStream,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use freshet_base::{Consent, Lsn, NodeId, Safety, strangers::Strangers, versions::Level};
use freshet_engine::{Database, Mix, Order, StateAnswer, StateAsk, StateHash, node::SwitchedOver};
use freshet_fabric::{
    local::{self, LocalListener},
    stream::Stream,
};
use freshet_membership::{Credentials, Grant};
use serde_json::Value;

use self::{completion::Completions, work::Lane};
use crate::{Failure, http::HttpPort, protocol::Watermarks};

/// Clients at once. One more takes the place of the client that has wanted nothing for longest.
const CLIENTS: usize = 512;
/// A client that has its answer may want to know more: it does not lose its place before it has
/// wanted nothing for this long.
const SETTLED: Duration = Duration::from_secs(1);
/// Connections at once that have not said hello yet; one more takes the place of the one who has
/// been there for longest.
const STRANGERS: usize = 64;
/// But none loses its place before it has had it for this long.
const FAIR: Duration = Duration::from_millis(250);

/// A node, as far as its clients are concerned.
pub trait Host: Send + Sync {
    /// The node's database.
    fn database(&self) -> &Database;
    /// Where its watermarks are. Cheap.
    fn watermarks(&self) -> Watermarks;
    /// Its status, as JSON; where its log is filled to is noted for [`Self::mix`].
    fn status(&self) -> String;
    /// The same for those who only look on: nothing is noted.
    fn glance(&self) -> Value;
    /// The nodes of its cluster, as JSON. May take a few seconds.
    ///
    /// # Errors
    /// When this node neither leads nor follows.
    fn members(&self) -> Result<String, String>;
    /// Orders maintenance for the whole cluster, for no time at all to end it; returns how many
    /// nodes know of that, and why others do not. May take a few seconds.
    ///
    /// # Errors
    /// When this node neither leads nor follows, and when that is too long.
    fn order_maintenance(&self, length: Duration) -> Result<(u32, Vec<String>), String>;
    /// What transactions write, from its log at `from` on, where the log was filled to in a status
    /// that it has given.
    ///
    /// # Errors
    /// When that cannot be said. That quotes nothing of the log.
    fn mix(&self, from: Lsn, batch_bytes: u64) -> Result<Mix, String>;
    /// Makes it the primary; returns its term and where that begins. May take a while.
    ///
    /// # Errors
    /// When it cannot be, or must not.
    fn promote(&self, consent: Consent) -> Result<(u32, Lsn), String>;
    /// Hands the role of this primary to a standby ([`freshet_engine::Node::switch_over`]). May
    /// take a while.
    ///
    /// # Errors
    /// Why the role stays, or what is open.
    fn switch_over(&self, to: Option<&str>) -> Result<SwitchedOver, String>;
    /// Has this primary take a node out of the cluster ([`freshet_engine::Node::remove`]). May take
    /// ten seconds.
    ///
    /// # Errors
    /// Why it still belongs to it, or what is open.
    fn remove(&self, node: &str, gone: bool) -> Result<NodeId, String>;
    /// Has this primary change what commits promise ([`freshet_engine::Node::change_level`]); says
    /// which level there was. May take ten seconds.
    ///
    /// # Errors
    /// Why it stays, or what is open.
    fn change_level(&self, level: Safety) -> Result<Safety, String>;
    /// Has this primary give its cluster another authority ([`freshet_engine::Node::rotate`]). May
    /// take ten seconds.
    ///
    /// # Errors
    /// Why it keeps this one, or what is open.
    fn rotate(&self) -> Result<u64, String>;

    /// Has this primary raise its cluster's format level
    /// ([`freshet_engine::Node::finish_upgrade`]); says which it was, and is. May take fifteen
    /// seconds.
    ///
    /// # Errors
    /// Why not, and which nodes cannot follow.
    fn finish_upgrade(&self) -> Result<(Level, Level), String>;

    /// Orders this node, or another ([`freshet_engine::Node::order`]), to start again or to stop;
    /// says which. May take a few seconds.
    ///
    /// # Errors
    /// Why no node has taken the order.
    fn order(&self, node: Option<&str>, order: Order) -> Result<NodeId, String>;
    /// Each key of its configuration with its value, as JSON.
    fn configuration(&self) -> String;
    /// Has a mirror begin again with what the node has that it is to follow, although that is less.
    ///
    /// # Errors
    /// When it is none, or does not hold more.
    fn refill(&self) -> Result<(), String>;
    /// Has a standby move aside what it has, and begin again with what its primary has; returns
    /// where that is. Unless it is forced, something has to speak against its state.
    ///
    /// # Errors
    /// Why it does not.
    fn begin_again(&self, force: bool) -> Result<String, String>;
    /// Writes a checkpoint and waits for it. May take a while.
    ///
    /// # Errors
    /// Why none exists.
    fn checkpoint(&self, kind: freshet_engine::CheckpointKind) -> Result<freshet_engine::CheckpointStatus, String>;
    /// Gives out a token that is valid for this time. Secret.
    ///
    /// # Errors
    /// When this node gives out none.
    fn token(&self, grant: Grant, valid: Duration) -> Result<String, String>;
    /// Blocks until everything below `lsn` is visible.
    ///
    /// # Errors
    /// When it is not by then.
    fn wait_visible(&self, lsn: Lsn, deadline: Instant) -> Result<Lsn, String>;
    /// Answers who compares its state with another node's. May take a while.
    ///
    /// # Errors
    /// What is not possible.
    fn compare(&self, _ask: StateAsk) -> Result<StateAnswer, String> {
        Err("the state of this node cannot be compared".to_owned())
    }
    /// Of a node that shows nothing, and holds a database all the same: its hash
    /// ([`freshet_engine::Node::rehearsed`]).
    fn rehearsed(&self, _at: Option<Lsn>, _deadline: Instant) -> Option<Result<StateHash, String>> {
        None
    }
}

/// The purpose of the socket for processes of this user.
pub(crate) const LOCAL: &str = "control";

/// Where clients connect: a TCP port, and the socket beside it for processes of this user.
pub(crate) struct Doors {
    far: TcpListener,
    near: LocalListener,
    address: SocketAddr,
    http: Option<HttpPort>,
}

impl Doors {
    /// Opens both at an address.
    ///
    /// # Errors
    /// When the address cannot be used.
    pub(crate) fn open(address: SocketAddr) -> Result<Self, Failure> {
        let failed = |cause: std::io::Error| {
            Failure::new(format!("cannot listen for clients at {address}: {cause}; choose another --address"))
        };
        let far = TcpListener::bind(address).map_err(failed)?;
        let address = far.local_addr()?;
        let near = LocalListener::bind(LOCAL, address).map_err(failed)?;
        if near.is_hidden() {
            tracing::warn!(
                %address,
                "other users have taken the names of this node's local socket: processes of its own user on this \
                 machine need a certificate, like all others"
            );
        }
        Ok(Self { far, near, address, http: None })
    }

    /// The address of the TCP port.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Wakes the threads that accept at the two doors there.
    fn knock(address: SocketAddr) {
        drop(TcpStream::connect(address));
        drop(local::connect(LOCAL, address));
    }
}

/// What all threads of a server share.
struct Shared {
    host: Arc<dyn Host>,
    credentials: Option<Credentials>,
    open_status: bool,
    hashes: Lane,
    commits: Completions,
    views: Completions,
    promoting: AtomicBool,
    /// How many requests to compare states are being answered, and how many for which other nodes
    /// are asked.
    comparing: AtomicUsize,
    asking: AtomicUsize,
    stopping: AtomicBool,
    /// Clients, by a number of their own.
    clients: Mutex<HashMap<u64, Client>>,
    /// Connections that are none yet.
    strangers: Arc<Strangers<Stream>>,
}

/// A client, as far as it can be sent away.
struct Client {
    stream: Stream,
    connection: Arc<connection::Connection>,
}

impl Shared {
    fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::SeqCst)
    }

    fn clients(&self) -> MutexGuard<'_, HashMap<u64, Client>> {
        self.clients.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A stranger becomes a client; if need be, an idle one is sent away. `false` when there is no
    /// place for it.
    fn enter(&self, number: u64, stream: &Stream, connection: &Arc<connection::Connection>) -> bool {
        let mut clients = self.clients();
        // Looked at under the lock: who ends the server finds every client that is served.
        if self.is_stopping() {
            return false;
        }
        if clients.len() >= CLIENTS {
            let idle = |(number, client): (&u64, &Client)| client.connection.idle().map(|idle| (idle, *number));
            let longest = clients.iter().filter_map(idle).max();
            let Some((_, number)) = longest.filter(|(idle, _)| *idle >= SETTLED) else { return false };
            if let Some(client) = clients.remove(&number) {
                client.stream.shut_down(Shutdown::Both);
            }
        }
        clients.insert(number, Client { stream: stream.clone(), connection: Arc::clone(connection) });
        true
    }
}

/// A running server. Dropping it ends it.
pub(crate) struct Server {
    shared: Arc<Shared>,
    address: SocketAddr,
    doors: (Arc<TcpListener>, Arc<LocalListener>),
    http: Option<HttpPort>,
    threads: Vec<JoinHandle<()>>,
}

impl Server {
    /// How many workers a server may have at the same time. One hashes; the other is for what the
    /// node itself does for a moment.
    pub(crate) const PLACES: usize = 2;

    /// Serves `host` to the clients at `doors`; without `credentials`, not over TCP. With
    /// `open_status`, every client may ask for the status. The database must have
    /// [places](Server::PLACES) for its workers.
    ///
    /// # Errors
    /// When a thread cannot be started.
    pub(crate) fn start(
        host: Arc<dyn Host>,
        credentials: Option<Credentials>,
        doors: Doors,
        open_status: bool,
    ) -> Result<Self, Failure> {
        let Doors { far, near, address, http } = doors;
        let (far, near) = (Arc::new(far), Arc::new(near));
        if let Some(http) = &http {
            http.set_host(Arc::clone(&host));
        }
        let shared = Arc::new(Shared {
            host,
            credentials,
            open_status,
            hashes: Lane::default(),
            commits: Completions::default(),
            views: Completions::default(),
            promoting: AtomicBool::new(false),
            comparing: AtomicUsize::new(0),
            asking: AtomicUsize::new(0),
            stopping: AtomicBool::new(false),
            clients: Mutex::new(HashMap::new()),
            strangers: Strangers::new(STRANGERS, FAIR),
        });
        let doors = (Arc::clone(&far), Arc::clone(&near));
        let mut server = Self { shared, address, doors, http, threads: Vec::new() };
        server.spawn("hash worker".to_owned(), |shared| work::run(&shared))?;
        server.spawn("commit answers".to_owned(), |shared| completion::answer_commits(&shared))?;
        server.spawn("view answers".to_owned(), |shared| completion::answer_views(&shared))?;
        let far = move || far.accept().map(|(stream, _)| Arrived::Far(stream));
        let near = move || near.accept().map(Arrived::Near);
        server.spawn("accept".to_owned(), move |shared| accept(&shared, far, 0))?;
        server.spawn("accept local".to_owned(), move |shared| accept(&shared, near, 1))?;
        Ok(server)
    }

    fn spawn(&mut self, name: String, run: impl FnOnce(Arc<Shared>) + Send + 'static) -> Result<(), Failure> {
        let shared = Arc::clone(&self.shared);
        self.threads.push(thread::Builder::new().name(name).spawn(move || run(shared))?);
        Ok(())
    }

    /// The address of the control port.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Where health checks and metrics are served, if they are.
    pub(crate) fn http(&self) -> Option<SocketAddr> {
        self.http.as_ref().map(HttpPort::address)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.http.take());
        self.shared.stopping.store(true, Ordering::SeqCst);
        self.shared.hashes.stop();
        self.shared.commits.stop();
        self.shared.views.stop();
        for stranger in self.shared.strangers.close() {
            stranger.shut_down(Shutdown::Both);
        }
        // A connection to itself would not always wake who accepts: the address may be gone.
        let _ = rustix::net::shutdown(&*self.doors.0, rustix::net::Shutdown::Both);
        self.doors.1.close();
        for client in self.shared.clients().values() {
            client.stream.shut_down(Shutdown::Both);
        }
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

/// A connection that was just accepted.
enum Arrived {
    /// From any machine, over TCP.
    Far(TcpStream),
    /// From a process of this user.
    Near(UnixStream),
}

/// Accepts until the server stops. Clients get every other number, from `number` on.
fn accept(shared: &Arc<Shared>, next: impl Fn() -> std::io::Result<Arrived>, number: u64) {
    for number in (number..).step_by(2) {
        let arrived = next();
        if shared.is_stopping() {
            return;
        }
        let (stream, is_near) = match arrived {
            Ok(Arrived::Far(stream)) => {
                // If this fails, answers only come later.
                let _ = stream.set_nodelay(true);
                (Stream::from(stream), false)
            }
            Ok(Arrived::Near(stream)) => (Stream::from(stream), true),
            Err(_) => {
                // No more descriptors, or the client has already gone.
                thread::sleep(Duration::from_millis(10));
                continue;
            }
        };
        let Some((place, gone)) = shared.strangers.admit(stream.clone()) else { return };
        if let Some(gone) = gone {
            gone.shut_down(Shutdown::Both);
        }
        connection::open(shared, number, stream, is_near, place);
    }
}
