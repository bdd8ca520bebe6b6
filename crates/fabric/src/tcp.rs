//! Frames over TCP: a receiving thread does what a network card would.
//!
//! A [`Connection`] is split into a [`Sender`] and a [`Receiver`], which different threads own; a
//! [`Closer`] ends both from any thread. Nothing here starts a thread.

use std::{
    io::{self, IoSlice},
    net::{Shutdown, SocketAddr, TcpListener, TcpStream, ToSocketAddrs},
    os::unix::net::UnixStream,
    time::{Duration, Instant},
};

use freshet_base::{
    Term,
    sync::{Arc, AtomicBool, AtomicU64, Ordering},
};
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    io::Errno,
    net::{AddressFamily, SocketFlags, SocketType, socket_with},
};

pub mod queue;
mod receiver;

pub use self::receiver::Receiver;
pub use crate::error::{ConnectError, ListenError, ReceiveError, SendError};
use crate::{
    frame::{Header, MAX_IMMEDIATE},
    stream::Stream,
};

/// What went over one connection.
#[derive(Debug, Default)]
pub struct Counters {
    pub(crate) sent_frames: AtomicU64,
    pub(crate) sent_bytes: AtomicU64,
    pub(crate) received_frames: AtomicU64,
    pub(crate) received_bytes: AtomicU64,
}

/// A reading of [`Counters`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Frames sent.
    pub sent_frames: u64,
    /// Bytes sent, headers included.
    pub sent_bytes: u64,
    /// Frames received.
    pub received_frames: u64,
    /// Bytes received, headers included.
    pub received_bytes: u64,
}

impl Counters {
    /// One more frame of `bytes` was sent.
    pub(crate) fn sent(&self, bytes: u64) {
        // Relaxed: statistics.
        self.sent_frames.fetch_add(1, Ordering::Relaxed);
        self.sent_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Reads them. Relaxed throughout: statistics, ordered with nothing.
    pub fn read(&self) -> Traffic {
        Traffic {
            sent_frames: self.sent_frames.load(Ordering::Relaxed),
            sent_bytes: self.sent_bytes.load(Ordering::Relaxed),
            received_frames: self.received_frames.load(Ordering::Relaxed),
            received_bytes: self.received_bytes.load(Ordering::Relaxed),
        }
    }
}

fn patient(patience: Option<Duration>) -> Duration {
    patience.unwrap_or(Duration::MAX)
}

fn timed_out(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut)
}

/// Says that nothing more will be sent, and waits until the other side has closed too, at most for
/// `patience`.
fn drain(stream: &Stream, patience: Duration) {
    stream.shut_down(Shutdown::Write);
    stream.discard(Instant::now() + patience);
}

/// Waits for connections.
#[derive(Debug)]
pub struct Listener {
    listener: Arc<TcpListener>,
    closed: Arc<AtomicBool>,
}

/// Ends a [`Listener`] from any thread.
#[derive(Clone, Debug)]
pub struct ListenerCloser {
    listener: Arc<TcpListener>,
    closed: Arc<AtomicBool>,
}

impl Listener {
    /// Listens on `address`; port 0 lets the system choose.
    ///
    /// # Errors
    /// [`ListenError`] when the address is not ours or in use.
    pub fn bind(address: &str) -> Result<Self, ListenError> {
        TcpListener::bind(address)
            .map(|listener| Self { listener: Arc::new(listener), closed: Arc::new(AtomicBool::new(false)) })
            .map_err(|source| ListenError { address: address.to_owned(), source })
    }

    /// Where it listens.
    ///
    /// # Errors
    /// What the system says.
    pub fn address(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// The handle that ends it.
    pub fn closer(&self) -> ListenerCloser {
        ListenerCloser { listener: Arc::clone(&self.listener), closed: Arc::clone(&self.closed) }
    }

    /// Blocks until somebody connects; `None` once it is closed.
    ///
    /// # Errors
    /// What the system says; a later call may succeed (too many open files, say).
    pub fn accept(&self) -> io::Result<Option<Connection>> {
        let accepted = self.listener.accept();
        if self.closed.load(Ordering::SeqCst) {
            return Ok(None);
        }
        let (stream, peer) = accepted?;
        Connection::over(stream, peer).map(Some)
    }
}

impl ListenerCloser {
    /// Makes the present or next [`Listener::accept`] return `None`.
    pub fn close(&self) {
        self.closed.store(true, Ordering::SeqCst);
        // Linux wakes who waits there. A connection to it would not always: its address may be
        // gone.
        let _ = rustix::net::shutdown(&*self.listener, rustix::net::Shutdown::Both);
    }
}

/// One connection, before it is split.
#[derive(Debug)]
pub struct Connection {
    sender: Sender,
    receiver: Receiver,
    /// Between two processes of one machine and one user: descriptors are passed there.
    passage: Option<UnixStream>,
    spoken: Option<Spoken>,
}

/// In which version of their protocol the two sides speak, once they have agreed on one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spoken {
    /// The highest that both speak.
    pub version: u16,
    /// The highest that the other side speaks.
    pub newest: u16,
}

/// A connection of TCP that is given away for another protocol.
#[derive(Debug)]
pub struct Raw {
    /// The socket, which blocks without a time limit.
    pub socket: TcpStream,
    /// TLS, with what was opened already; none for a connection without.
    pub tls: Option<rustls::Connection>,
    /// What the other side has sent after the last frame, and was read with it.
    pub ahead: Vec<u8>,
}

/// Ends a connection from any thread: a thread that sends or receives on it gets an error.
#[derive(Debug)]
pub struct Closer(Stream);

impl Closer {
    /// Ends it; a second time does nothing.
    pub fn close(&self) {
        self.0.shut_down(Shutdown::Both);
    }
}

/// Connects to `address` ("host:port"), waiting at most `patience` for each of the addresses that
/// it stands for.
///
/// # Errors
/// [`ConnectError`] when the name means nothing or nobody answers.
pub fn connect(address: &str, patience: Duration) -> Result<Connection, ConnectError> {
    connect_until(address, patience, drop)
}

/// The same; each attempt gives `trying` what ends it, from any thread, and later its connection.
///
/// # Errors
/// The same, and when the attempt is ended so.
pub fn connect_until(
    address: &str,
    patience: Duration,
    mut trying: impl FnMut(Closer),
) -> Result<Connection, ConnectError> {
    let resolve = |source| ConnectError::Resolve { address: address.to_owned(), source };
    let mut last = io::Error::new(io::ErrorKind::NotFound, "it stands for no address");
    for peer in address.to_socket_addrs().map_err(resolve)? {
        match attempt(peer, patience, &mut trying) {
            Ok(connection) => return Ok(connection),
            Err(error) => last = error,
        }
    }
    Err(ConnectError::Connect { address: address.to_owned(), source: last })
}

/// Connects to one address. `TcpStream::connect_timeout` cannot be interrupted.
fn attempt(peer: SocketAddr, patience: Duration, trying: &mut impl FnMut(Closer)) -> io::Result<Connection> {
    let deadline = Instant::now() + patience;
    let family = if peer.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = TcpStream::from(socket_with(family, SocketType::STREAM, flags, None)?);
    let started = rustix::net::connect(&socket, &peer);
    let connection = Connection::over(socket.try_clone()?, peer)?;
    trying(connection.closer());
    match started {
        Ok(()) => {}
        Err(Errno::INPROGRESS | Errno::INTR) => wait_connected(&socket, deadline)?,
        Err(error) => return Err(error.into()),
    }
    socket.set_nonblocking(false)?;
    Ok(connection)
}

fn wait_connected(socket: &TcpStream, deadline: Instant) -> io::Result<()> {
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let left = Timespec::try_from(left).map_err(|_| io::ErrorKind::InvalidInput)?;
        match poll(&mut [PollFd::new(socket, PollFlags::OUT)], Some(&left)) {
            Ok(0) => return Err(io::ErrorKind::TimedOut.into()),
            Ok(_) => return socket.take_error()?.map_or(Ok(()), Err),
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

impl Connection {
    /// Over a socket of TCP.
    fn over(stream: TcpStream, peer: SocketAddr) -> io::Result<Self> {
        // A batch is sent whole; waiting for more would only add latency.
        stream.set_nodelay(true)?;
        Ok(Self::new(stream.into(), peer))
    }

    /// Over a stream to `peer`.
    pub fn new(stream: Stream, peer: SocketAddr) -> Self {
        let counters = Arc::new(Counters::default());
        let sender = Sender {
            stream: stream.clone(),
            peer,
            patience: None,
            head: Vec::with_capacity(256),
            counters: Arc::clone(&counters),
        };
        Self { sender, receiver: Receiver::new(stream, peer, counters), passage: None, spoken: None }
    }

    /// Replaces the stream, before anything was sent on it, by one with TLS.
    ///
    /// # Errors
    /// What `secure` says.
    pub fn secured(self, secure: impl FnOnce(Stream) -> io::Result<Stream>) -> io::Result<Self> {
        let Self { sender, receiver, passage, spoken } = self;
        let peer = sender.peer;
        drop(sender);
        let (stream, _) = receiver.into_parts();
        Ok(Self { passage, spoken, ..Self::new(secure(stream)?, peer) })
    }

    /// Has descriptors passed on `passage`.
    pub fn beside(self, passage: UnixStream) -> Self {
        Self { passage: Some(passage), ..self }
    }

    /// Leaves TLS, if both sides have agreed on that.
    pub fn bare(self) -> Self {
        let Self { sender, receiver, passage, spoken } = self;
        let peer = sender.peer;
        drop(sender);
        let (stream, mut ahead) = receiver.into_parts();
        let (stream, sealed) = stream.bare();
        ahead.extend(sealed);
        let mut connection = Self { passage, spoken, ..Self::new(stream, peer) };
        connection.receiver.ahead_of(ahead);
        connection
    }

    /// The two sides have agreed on that.
    pub fn speaks(&mut self, spoken: Spoken) {
        self.spoken = Some(spoken);
    }

    /// What they have agreed on.
    pub fn spoken(&self) -> Option<Spoken> {
        self.spoken
    }

    /// The stream.
    pub fn stream(&self) -> &Stream {
        &self.sender.stream
    }

    /// Where descriptors are passed, if there is such a place.
    pub(crate) fn take_passage(&mut self) -> Option<UnixStream> {
        self.passage.take()
    }

    /// The socket, what was read ahead of what was asked for, and the counters, for another
    /// protocol on the same connection.
    pub(crate) fn into_parts(self) -> (Stream, SocketAddr, Vec<u8>, Arc<Counters>) {
        let counters = self.sender.counters();
        let (stream, ahead) = self.receiver.into_parts();
        (stream, self.sender.peer, ahead, counters)
    }

    /// Gives the connection away, for another protocol. Its closers must be gone.
    ///
    /// # Errors
    /// When it is not of TCP or closers are left, and what the system or TLS says.
    pub fn into_raw(self) -> io::Result<Raw> {
        let (stream, _, ahead, _) = self.into_parts();
        stream.set_read_timeout(None)?;
        stream.set_write_timeout(None)?;
        let (socket, tls) = stream.into_parts()?;
        Ok(Raw { socket, tls, ahead })
    }

    /// The halves.
    pub fn split(self) -> (Sender, Receiver) {
        (self.sender, self.receiver)
    }

    /// The other side's address.
    pub fn peer(&self) -> SocketAddr {
        self.sender.peer
    }

    /// A handle that ends the connection.
    pub fn closer(&self) -> Closer {
        Closer(self.sender.stream.clone())
    }

    /// Gives the other side at most `patience` to take something in and to say something.
    ///
    /// # Errors
    /// What the system says; zero is not allowed.
    pub fn set_patience(&mut self, patience: Option<Duration>) -> io::Result<()> {
        self.sender.set_patience(patience)?;
        self.receiver.set_patience(patience)
    }

    /// The sending half, before it is split.
    pub fn sender(&mut self) -> &mut Sender {
        &mut self.sender
    }

    /// The receiving half, before it is split.
    pub fn receiver(&mut self) -> &mut Receiver {
        &mut self.receiver
    }
}

/// The sending half.
#[derive(Debug)]
pub struct Sender {
    stream: Stream,
    peer: SocketAddr,
    patience: Option<Duration>,
    head: Vec<u8>,
    counters: Arc<Counters>,
}

impl Sender {
    /// The other side's address.
    pub fn peer(&self) -> SocketAddr {
        self.peer
    }

    /// Bytes and frames so far, of both halves.
    pub fn counters(&self) -> Arc<Counters> {
        Arc::clone(&self.counters)
    }

    /// Gives the other side at most this long to take something in.
    ///
    /// # Errors
    /// What the system says; zero is not allowed.
    pub fn set_patience(&mut self, patience: Option<Duration>) -> io::Result<()> {
        self.patience = patience;
        self.stream.set_write_timeout(patience)
    }

    /// Says that nothing more will be sent; what was sent still arrives.
    pub fn finish(&self) {
        self.stream.shut_down(Shutdown::Write);
    }

    /// Ends the connection such that the last message arrives: a connection that is closed over
    /// unread bytes is reset, which would take the message with it. Blocks until the other side has
    /// closed too, at most for `patience`.
    pub fn farewell(self, patience: Duration) {
        drain(&self.stream, patience);
    }

    /// Sends a message without payload.
    ///
    /// # Errors
    /// [`SendError`]; the connection is then of no more use.
    pub fn send(&mut self, kind: u8, term: Term, immediate: &[u8]) -> Result<(), SendError> {
        self.write_with_imm(kind, term, 0, [&[], &[]], immediate)
    }

    /// Writes `payload` (two slices, since it may lie across a ring's end) into the other side's
    /// region at `address`, with an immediate value. Blocks until the system has taken it all;
    /// neither slice is copied in this process.
    ///
    /// # Errors
    /// [`SendError`]; the connection is then of no more use.
    pub fn write_with_imm(
        &mut self,
        kind: u8,
        term: Term,
        address: u64,
        payload: [&[u8]; 2],
        immediate: &[u8],
    ) -> Result<(), SendError> {
        let length = payload[0].len() + payload[1].len();
        let too_large = SendError::TooLarge { immediate: immediate.len(), payload: length };
        let (Ok(payload_length), true) = (u32::try_from(length), immediate.len() <= MAX_IMMEDIATE) else {
            return Err(too_large);
        };
        let header = Header {
            kind,
            term,
            address,
            immediate: immediate.len() as u32,
            payload: payload_length,
            payload_crc: crc32c::crc32c_append(crc32c::crc32c(payload[0]), payload[1]),
            immediate_crc: crc32c::crc32c(immediate),
        };
        self.head.clear();
        self.head.extend_from_slice(&header.encode());
        self.head.extend_from_slice(immediate);
        self.write_all(payload)?;
        self.counters.sent((self.head.len() + length) as u64);
        Ok(())
    }

    fn write_all(&mut self, payload: [&[u8]; 2]) -> Result<(), SendError> {
        let mut slices = [IoSlice::new(&self.head), IoSlice::new(payload[0]), IoSlice::new(payload[1])];
        self.stream.write_all(&mut slices, false).map_err(|source| lost(source, self.peer, self.patience))
    }
}

/// Why nothing more can be sent.
fn lost(source: io::Error, peer: SocketAddr, patience: Option<Duration>) -> SendError {
    if timed_out(&source) {
        SendError::Stalled { peer, patience: patient(patience) }
    } else {
        SendError::Lost { peer, source }
    }
}

#[cfg(test)]
mod tests;
