//! The clients' end of a node: connections, workers, and answers.
//!
//! | thread | does | ends when |
//! |---|---|---|
//! | one that accepts | opens connections | the server stops |
//! | one for each stranger, two for each client, [`connection`] | read requests, write answers | the client has gone |
//! | `workers` and one for long work, [`work`] | run procedures, never wait for a commit | the server stops |
//! | as many as were asked for, [`readers`] | run read-only transactions, for benchmarks | they are told, or the server stops |
//! | two that wait, [`completion`] | answer when a commit, or a read view, has come so far | the server stops |
//!
//! A worker hands a finished transaction with its ticket over and goes on with the next. All answers of one group
//! commit to one connection go out with one write. A connection that goes away loses only its answers.

mod completion;
mod connection;
pub(crate) mod procedures;
pub(crate) mod readers;
pub(crate) mod starting;
#[cfg(test)]
mod tests;
mod work;

use std::{
    collections::HashMap,
    net::{Shutdown, SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use freshet_base::{Isolation, Stamp, strangers::Strangers};
use freshet_engine::Database;

use self::{completion::Completions, procedures::Procedures, readers::Readers, work::Lane};
use crate::{Failure, protocol::Watermarks};

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
pub(crate) trait Host: Send + Sync {
    /// Its database.
    fn database(&self) -> &Database;
    /// Where its watermarks are. Cheap.
    fn watermarks(&self) -> Watermarks;
    /// Its status, as JSON.
    fn status(&self) -> String;
    /// Makes it the primary; returns its term and where that begins. May take a while.
    fn promote(&self, force: bool) -> Result<(u32, Stamp), String>;
    /// Writes a checkpoint and waits for it. May take a while.
    fn checkpoint(&self, kind: freshet_engine::CheckpointKind) -> Result<freshet_engine::CheckpointStatus, String>;
    /// Blocks until everything below `stamp` is visible.
    fn wait_visible(&self, stamp: Stamp, deadline: Instant) -> Result<Stamp, String>;
}

/// Takes an address for clients.
///
/// # Errors
/// When it cannot be had.
pub(crate) fn bind(address: SocketAddr) -> Result<TcpListener, Failure> {
    TcpListener::bind(address).map_err(|cause| {
        Failure::new(format!("cannot listen for clients at {address}: {cause}; choose another --address"))
    })
}

/// What all threads of a server share.
struct Shared {
    host: Arc<dyn Host>,
    procedures: Procedures,
    readers: Readers,
    quick: Lane,
    long: Lane,
    commits: Completions,
    views: Completions,
    promoting: AtomicBool,
    stopping: AtomicBool,
    /// Clients, by a number of their own.
    clients: Mutex<HashMap<u64, Client>>,
    /// Connections that are none yet.
    strangers: Arc<Strangers<Arc<TcpStream>>>,
}

/// A client, as far as it can be sent away.
struct Client {
    stream: Arc<TcpStream>,
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
    fn enter(&self, number: u64, stream: &Arc<TcpStream>, connection: &Arc<connection::Connection>) -> bool {
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
                let _ = client.stream.shutdown(Shutdown::Both);
            }
        }
        clients.insert(number, Client { stream: Arc::clone(stream), connection: Arc::clone(connection) });
        true
    }
}

/// A running server. Dropping it ends it.
pub(crate) struct Server {
    shared: Arc<Shared>,
    address: SocketAddr,
    threads: Vec<JoinHandle<()>>,
}

impl Server {
    /// Serves `host` to those who come to `listener`, with so many workers for procedures of this isolation level. The database
    /// must have places for [`Server::places`] workers.
    ///
    /// # Errors
    /// When a thread cannot be started.
    pub(crate) fn start(
        host: Arc<dyn Host>,
        listener: TcpListener,
        workers: usize,
        isolation: Isolation,
    ) -> Result<Self, Failure> {
        let address = listener.local_addr()?;
        let shared = Arc::new(Shared {
            host,
            procedures: Procedures::new(isolation),
            readers: Readers::default(),
            quick: Lane::default(),
            long: Lane::default(),
            commits: Completions::default(),
            views: Completions::default(),
            promoting: AtomicBool::new(false),
            stopping: AtomicBool::new(false),
            clients: Mutex::new(HashMap::new()),
            strangers: Strangers::new(STRANGERS, FAIR),
        });
        let mut server = Self { shared, address, threads: Vec::new() };
        for number in 0..workers {
            server.spawn(format!("worker {number}"), |shared| work::run(&shared, &shared.quick))?;
        }
        server.spawn("long worker".to_owned(), |shared| work::run(&shared, &shared.long))?;
        server.spawn("commit answers".to_owned(), |shared| completion::answer_commits(&shared))?;
        server.spawn("view answers".to_owned(), |shared| completion::answer_views(&shared))?;
        server.spawn("accept".to_owned(), move |shared| accept(&shared, &listener))?;
        Ok(server)
    }

    /// How many workers a server with `workers` may have at the same time.
    pub(crate) fn places(workers: usize) -> usize {
        // One for long work; that may load with as many threads again, and make tables with one more.
        2 * workers + 2
    }

    fn spawn(&mut self, name: String, run: impl FnOnce(Arc<Shared>) + Send + 'static) -> Result<(), Failure> {
        let shared = Arc::clone(&self.shared);
        self.threads.push(thread::Builder::new().name(name).spawn(move || run(shared))?);
        Ok(())
    }

    /// Where clients connect.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.shared.stopping.store(true, Ordering::SeqCst);
        for lane in [&self.shared.quick, &self.shared.long] {
            lane.stop();
        }
        self.shared.commits.stop();
        self.shared.views.stop();
        self.shared.readers.stop();
        for stranger in self.shared.strangers.close() {
            let _ = stranger.shutdown(Shutdown::Both);
        }
        // Wakes the thread that accepts.
        let _ = TcpStream::connect(self.address);
        for client in self.shared.clients().values() {
            let _ = client.stream.shutdown(Shutdown::Both);
        }
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

fn accept(shared: &Arc<Shared>, listener: &TcpListener) {
    for (number, stream) in (0..).zip(listener.incoming()) {
        if shared.is_stopping() {
            return;
        }
        let Ok(stream) = stream.map(Arc::new) else {
            // No more descriptors, or the client has gone already.
            thread::sleep(Duration::from_millis(10));
            continue;
        };
        let Some((place, gone)) = shared.strangers.admit(Arc::clone(&stream)) else { return };
        if let Some(gone) = gone {
            let _ = gone.shutdown(Shutdown::Both);
        }
        connection::open(shared, number, stream, place);
    }
}
