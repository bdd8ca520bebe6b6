//! A client's end of a connection to a node.
//!
//! Requests are sent as they come; a thread reads the answers and gives each to the thread that
//! waits for it, with the time at which it arrived.

use std::{
    collections::HashMap,
    io::{self, IoSlice, Read},
    net::{Shutdown, SocketAddr, TcpStream, ToSocketAddrs},
    path::Path,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
        mpsc,
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use freshet_base::{Consent, Lsn, NodeId, Safety, lock, versions::Level};
use freshet_engine::{Mix, StateAnswer, StateAsk};
use freshet_fabric::{local, stream::Stream};
use freshet_membership::{Credentials, Files, Grant};
use thiserror::Error;

use crate::{
    protocol::{self, Answer, Ask, Frames, READS, Request, Response, VERSION, Watermarks},
    wrong_port::{Port, mistake},
};

/// What to do about a connection that failed so.
fn hint(cause: &str) -> &'static str {
    if cause.contains("certificate") {
        "these credentials are not, or no longer, those of that node's cluster, which gets another authority when a \
         node is removed: get new ones with freshet enrol"
    } else {
        "is a node running there?"
    }
}

/// Why there is no answer, or not the one that was hoped for.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ClientError {
    /// The node cannot be reached.
    #[error("cannot connect to {address}: {cause}; {}", hint(cause))]
    Unreachable {
        /// The address that was tried last.
        address: String,
        /// What the system says.
        cause: String,
    },
    /// Another port than the control port of a node answers there.
    #[error("{0}")]
    WrongPort(String),
    /// The connection ended before the answer came.
    #[error("the connection to {address} was lost: the request may or may not have been carried out")]
    Lost {
        /// The address of the node that was asked.
        address: String,
    },
    /// No answer came in time.
    #[error("no answer from {address} within {waited:?}: the request may or may not be carried out")]
    Silent {
        /// The address of the node that was asked.
        address: String,
        /// How long the client has waited.
        waited: Duration,
    },
    /// The node did nothing.
    #[error("refused by {address}: {reason}")]
    Refused {
        /// The address of the node that refused.
        address: String,
        /// The reason that the node gave.
        reason: String,
    },
    /// What becomes of the transaction is not known.
    #[error("{0}")]
    Open(String),
    /// The node answered something else than was asked.
    #[error("unexpected answer from {address}: {answer}")]
    Unexpected {
        /// The address of the node that answered.
        address: String,
        /// The answer, for people.
        answer: String,
    },
}

/// What the system says of a port at which nothing listens.
const REFUSED: &str = "Connection refused";

impl ClientError {
    /// Whether nothing listens there.
    pub(crate) fn is_refused(&self) -> bool {
        matches!(self, Self::Unreachable { cause, .. } if cause.contains(REFUSED))
    }
}

/// An answer and when it came.
#[derive(Debug)]
pub struct Arrived {
    /// When this process had the answer.
    pub at: Instant,
    /// What the node answered.
    pub answer: Answer,
}

/// Where an answer goes.
type Waiter = Box<dyn FnOnce(Arrived) + Send>;

#[derive(Default)]
struct Waiters {
    by_id: HashMap<u64, Waiter>,
    lost: bool,
}

/// What `freshet enrol` has written to a directory.
pub(crate) fn client_credentials(directory: &Path) -> io::Result<Credentials> {
    Credentials::read(&Files::in_directory(directory), freshet_base::ClusterId(0)).map_err(io::Error::other)
}

/// A connection to the node at `address`.
fn reach(address: SocketAddr, credentials: Option<&Path>, patience: Duration) -> io::Result<Stream> {
    let Some(credentials) = credentials else {
        let near = || local::connect(crate::server::LOCAL, address);
        if let Some(stream) = local::connect_beside(near, || TcpStream::connect_timeout(&address, patience))? {
            return Ok(stream.into());
        }
        let why = "it is not a process of this user on this machine, so --credentials are needed (see `freshet enrol`)";
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, why));
    };
    let credentials = client_credentials(credentials)?;
    if credentials.have_ended() {
        let why = "the certificate that --credentials names has ended: get another with `freshet enrol`";
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, why));
    }
    let stream = TcpStream::connect_timeout(&address, patience)?;
    stream.set_nodelay(true)?;
    Stream::from(stream).secure_client(credentials.client(), Credentials::expected(), Instant::now() + patience)
}

/// The stream that answers are read from.
pub(crate) struct Ear<'s>(pub(crate) &'s Stream);

impl Read for Ear<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.0.read(into)
    }
}

/// A connection to a node. Any thread may use it.
pub struct Client {
    address: String,
    stream: Mutex<Stream>,
    waiters: Arc<Mutex<Waiters>>,
    next: AtomicU64,
    reader: Option<JoinHandle<()>>,
}

impl Client {
    /// Connects and says hello, as a process of the node's user on the node's machine.
    ///
    /// # Errors
    /// [`ClientError::Unreachable`], or that the node speaks another version.
    pub fn connect(address: &str, patience: Duration) -> Result<Self, ClientError> {
        Self::connect_with(address, None, patience)
    }

    /// The same; from another machine, or as another user, with the credentials in a directory that
    /// `freshet enrol` has made.
    ///
    /// # Errors
    /// As for [`Client::connect`].
    pub fn connect_with(address: &str, credentials: Option<&Path>, patience: Duration) -> Result<Self, ClientError> {
        let unreachable = |cause: String| ClientError::Unreachable { address: address.to_owned(), cause };
        let mut last = "the name has no address".to_owned();
        let addresses = address.to_socket_addrs().map_err(|cause| unreachable(cause.to_string()))?;
        for candidate in addresses {
            match reach(candidate, credentials, patience) {
                Ok(stream) => {
                    let client = Self::over(address, stream).map_err(|cause| unreachable(cause.to_string()))?;
                    return match client.ask(Ask::Hello { version: VERSION }, patience)? {
                        Answer::Hello { version } => match READS.check(version) {
                            Ok(()) => Ok(client),
                            Err(cause) => Err(unreachable(format!("its protocol has {cause}"))),
                        },
                        other => Err(client.unexpected(&other)),
                    };
                }
                Err(cause) => last = cause.to_string(),
            }
        }
        let cause = unreachable(last);
        let mistake = if cause.is_refused() { None } else { mistake(address, Port::Control) };
        Err(mistake.map_or(cause, ClientError::WrongPort))
    }

    fn over(address: &str, stream: Stream) -> io::Result<Self> {
        stream.set_write_timeout(Some(Duration::from_secs(10)))?;
        let reading = stream.clone();
        let waiters = Arc::new(Mutex::new(Waiters::default()));
        let theirs = Arc::clone(&waiters);
        let reader = thread::Builder::new().name("answers".to_owned()).spawn(move || {
            let mut frames = Frames::new(Ear(&reading));
            while let Ok(Response { id, answer }) = frames.next_frame() {
                let at = Instant::now();
                let waiter = lock(&theirs).by_id.remove(&id);
                if let Some(waiter) = waiter {
                    waiter(Arrived { at, answer });
                }
            }
            reading.shut_down(Shutdown::Both);
            let mut waiters = lock(&theirs);
            waiters.lost = true;
            // Dropping a waiter tells its owner.
            let dropped = std::mem::take(&mut waiters.by_id);
            drop(waiters);
            drop(dropped);
        })?;
        Ok(Self {
            address: address.to_owned(),
            stream: Mutex::new(stream),
            waiters,
            next: AtomicU64::new(0),
            reader: Some(reader),
        })
    }

    /// Ends the connection: a thread that waits for an answer hears that it is lost.
    pub fn close(&self) {
        lock(&self.stream).shut_down(Shutdown::Both);
    }

    /// Whom it is connected to.
    pub fn address(&self) -> &str {
        &self.address
    }

    fn lost(&self) -> ClientError {
        ClientError::Lost { address: self.address.clone() }
    }

    fn unexpected(&self, answer: &Answer) -> ClientError {
        match answer {
            Answer::Refused { reason } => {
                ClientError::Refused { address: self.address.clone(), reason: reason.clone() }
            }
            Answer::OutcomeOpen { reason } => ClientError::Open(reason.clone()),
            other => {
                let mut answer = format!("{other:?}");
                answer.truncate(answer.floor_char_boundary(200));
                ClientError::Unexpected { address: self.address.clone(), answer }
            }
        }
    }

    /// Sends a request; `waiter` is called with its answer, on the thread that reads answers, or
    /// dropped when the connection is lost first.
    ///
    /// # Errors
    /// [`ClientError::Lost`]; `waiter` was dropped then.
    pub fn send(&self, ask: Ask, waiter: impl FnOnce(Arrived) + Send + 'static) -> Result<(), ClientError> {
        // Relaxed: the number only has to be different from the others.
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        let mut frame = Vec::with_capacity(256);
        protocol::encode(&Request { id, ask }, &mut frame)
            .map_err(|cause| ClientError::Refused { address: self.address.clone(), reason: cause.to_string() })?;
        {
            let mut waiters = lock(&self.waiters);
            if waiters.lost {
                return Err(self.lost());
            }
            waiters.by_id.insert(id, Box::new(waiter));
        }
        let stream = lock(&self.stream);
        if stream.write_all(&mut [IoSlice::new(&frame)], false).is_err() {
            stream.shut_down(Shutdown::Both);
            drop(lock(&self.waiters).by_id.remove(&id));
            return Err(self.lost());
        }
        Ok(())
    }

    /// Sends a request and waits for its answer.
    ///
    /// # Errors
    /// [`ClientError::Lost`] or [`ClientError::Silent`].
    pub fn ask(&self, ask: Ask, patience: Duration) -> Result<Answer, ClientError> {
        let (sender, receiver) = mpsc::sync_channel(1);
        self.send(ask, move |arrived| drop(sender.send(arrived)))?;
        match receiver.recv_timeout(patience) {
            Ok(arrived) => Ok(arrived.answer),
            Err(mpsc::RecvTimeoutError::Disconnected) => Err(self.lost()),
            Err(mpsc::RecvTimeoutError::Timeout) => {
                Err(ClientError::Silent { address: self.address.clone(), waited: patience })
            }
        }
    }

    /// The node's status, as JSON.
    pub fn status(&self, patience: Duration) -> Result<String, ClientError> {
        match self.ask(Ask::Status, patience)? {
            Answer::Status(json) => Ok(json),
            other => Err(self.unexpected(&other)),
        }
    }

    /// The nodes of its cluster, as JSON.
    pub fn members(&self, patience: Duration) -> Result<String, ClientError> {
        match self.ask(Ask::Members, patience)? {
            Answer::Members(json) => Ok(json),
            other => Err(self.unexpected(&other)),
        }
    }

    /// Orders maintenance for the cluster, or ends it. Returns how many nodes know of that, and why
    /// others do not.
    pub fn order_maintenance(&self, length: Duration, patience: Duration) -> Result<(u32, Vec<String>), ClientError> {
        match self.ask(Ask::Maintenance { for_s: length.as_secs() }, patience)? {
            Answer::Maintenance { known, unreached } => Ok((known, unreached)),
            other => Err(self.unexpected(&other)),
        }
    }

    /// Where the node's watermarks are.
    pub fn watermarks(&self, patience: Duration) -> Result<Watermarks, ClientError> {
        match self.ask(Ask::Watermarks, patience)? {
            Answer::Watermarks(watermarks) => Ok(watermarks),
            other => Err(self.unexpected(&other)),
        }
    }

    /// What transactions write, from the log of a primary at `from` on ([`Ask::Mix`]).
    pub fn mix(&self, from: Lsn, batch_bytes: u64, patience: Duration) -> Result<Mix, ClientError> {
        match self.ask(Ask::Mix { from, batch_bytes }, patience)? {
            Answer::Mix(mix) => Ok(mix),
            other => Err(self.unexpected(&other)),
        }
    }

    /// Makes the node the primary; returns its term and where that began.
    pub fn promote(&self, consent: Consent, patience: Duration) -> Result<(u32, Lsn), ClientError> {
        match self.ask(Ask::Promote { consent }, patience)? {
            Answer::Promoted { term, at } => Ok((term, at)),
            other => Err(self.unexpected(&other)),
        }
    }

    /// Has the primary hand its role to the standby `to`, or the nearest one; returns that node's
    /// id and address, the term before, and up to where all was acknowledged before the role moved.
    pub fn switch_over(
        &self,
        to: Option<String>,
        patience: Duration,
    ) -> Result<(NodeId, String, u32, Lsn), ClientError> {
        match self.ask(Ask::SwitchOver { to }, patience)? {
            Answer::SwitchedOver { node, address, after, at } => Ok((node, address, after, at)),
            other => Err(self.unexpected(&other)),
        }
    }

    /// Has the primary take a node out of the cluster: its id, or the address where others reach
    /// it; `gone`: it does not run, and never will again. Returns its id.
    pub fn remove(&self, node: String, gone: bool, patience: Duration) -> Result<NodeId, ClientError> {
        match self.ask(Ask::Remove { node, gone }, patience)? {
            Answer::Removed { node } => Ok(node),
            other => Err(self.unexpected(&other)),
        }
    }

    /// Has the primary change what commits promise; returns which level there was.
    pub fn change_level(&self, level: Safety, patience: Duration) -> Result<Safety, ClientError> {
        match self.ask(Ask::ChangeLevel { level }, patience)? {
            Answer::LevelChanged { before } => Ok(before),
            other => Err(self.unexpected(&other)),
        }
    }

    /// Has the primary give its cluster another authority. Returns its generation.
    pub fn rotate(&self, patience: Duration) -> Result<u64, ClientError> {
        match self.ask(Ask::Rotate, patience)? {
            Answer::Rotated { generation } => Ok(generation),
            other => Err(self.unexpected(&other)),
        }
    }

    /// Has the primary raise its cluster's format level; returns the level before, and the level
    /// now.
    pub fn finish_upgrade(&self, patience: Duration) -> Result<(Level, Level), ClientError> {
        match self.ask(Ask::FinishUpgrade, patience)? {
            Answer::UpgradeFinished { before, level } => Ok((Level(before), Level(level))),
            other => Err(self.unexpected(&other)),
        }
    }

    /// Has the node start again, or another, by its id or the address where others reach it.
    /// Returns the id when the order is taken.
    pub fn restart(&self, node: Option<String>, patience: Duration) -> Result<NodeId, ClientError> {
        match self.ask(Ask::Restart { node }, patience)? {
            Answer::Restarts { node } => Ok(node),
            other => Err(self.unexpected(&other)),
        }
    }

    /// Has the node stop, or another, by its id or the address where others reach it. Returns the
    /// id when the order is taken.
    pub fn stop(&self, node: Option<String>, patience: Duration) -> Result<NodeId, ClientError> {
        match self.ask(Ask::Stop { node }, patience)? {
            Answer::Stops { node } => Ok(node),
            other => Err(self.unexpected(&other)),
        }
    }

    /// What the node is configured with: each key with its value, as JSON.
    pub fn configuration(&self, patience: Duration) -> Result<String, ClientError> {
        match self.ask(Ask::Configuration, patience)? {
            Answer::Configuration(json) => Ok(json),
            other => Err(self.unexpected(&other)),
        }
    }

    /// Has a mirror give up what it holds more than the node that it is to follow.
    pub fn refill(&self, patience: Duration) -> Result<(), ClientError> {
        match self.ask(Ask::Refill, patience)? {
            Answer::GivenUp => Ok(()),
            other => Err(self.unexpected(&other)),
        }
    }

    /// Has a standby begin again with what its primary has; returns where that is.
    pub fn begin_again(&self, force: bool, patience: Duration) -> Result<String, ClientError> {
        match self.ask(Ask::BeginAgain { force }, patience)? {
            Answer::BeginsAgain { from } => Ok(from),
            other => Err(self.unexpected(&other)),
        }
    }

    /// Has the node write a checkpoint, of one snapshot if `consistent`; returns where it begins
    /// and ends, its bytes and its rows.
    pub fn checkpoint(&self, consistent: bool, patience: Duration) -> Result<(Lsn, Lsn, u64, u64), ClientError> {
        match self.ask(Ask::Checkpoint { consistent }, patience)? {
            Answer::Checkpoint { start, end, bytes, rows } => Ok((start, end, bytes, rows)),
            other => Err(self.unexpected(&other)),
        }
    }

    /// Has the node give out a token.
    pub fn token(&self, grant: Grant, valid: Duration, patience: Duration) -> Result<String, ClientError> {
        match self.ask(Ask::Token { grant, valid_s: valid.as_secs() }, patience)? {
            Answer::Token(token) => Ok(token),
            other => Err(self.unexpected(&other)),
        }
    }

    /// Snapshot, hash and number of all records, when everything below `at` is visible.
    pub fn hash(&self, at: Option<Lsn>, patience: Duration) -> Result<(Lsn, u64, u64), ClientError> {
        let deadline_ms = u64::try_from(patience.as_millis()).unwrap_or(u64::MAX);
        match self.ask(Ask::Hash { at, deadline_ms }, patience)? {
            Answer::Hash { at, hash, records } => Ok((at, hash, records)),
            other => Err(self.unexpected(&other)),
        }
    }

    /// Asks for what compares states ([`Ask::State`]).
    pub fn state(&self, ask: StateAsk, patience: Duration) -> Result<StateAnswer, ClientError> {
        match self.ask(Ask::State(ask), patience)? {
            Answer::State(answer) => Ok(answer),
            other => Err(self.unexpected(&other)),
        }
    }

    /// Waits until everything below `lsn` is visible.
    pub fn wait_visible(&self, lsn: Lsn, patience: Duration) -> Result<Lsn, ClientError> {
        let deadline_ms = u64::try_from(patience.as_millis()).unwrap_or(u64::MAX);
        match self.ask(Ask::WaitVisible { lsn, deadline_ms }, patience + Duration::from_secs(1))? {
            Answer::Visible { lsn } => Ok(lsn),
            other => Err(self.unexpected(&other)),
        }
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        self.close();
        if let Some(reader) = self.reader.take()
            && reader.thread().id() != thread::current().id()
        {
            let _ = reader.join();
        }
    }
}
