//! What bytes come from and go to: a socket, plain or with TLS, or memory.

use std::{
    fmt,
    io::{self, ErrorKind, IoSlice, Read, Write},
    net::{Shutdown, TcpStream},
    os::{
        fd::{AsFd, BorrowedFd},
        unix::net::UnixStream,
    },
    sync::Arc,
    time::{Duration, Instant},
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    io::Errno,
};
use rustls::Connection;

use crate::{
    Encryption,
    bell::Bell,
    registry::Entry,
    tls::{Tls, broken},
};

/// A connection of either kind.
#[derive(Debug)]
pub(crate) enum Stream {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl Stream {
    pub(crate) fn shutdown(&self, how: Shutdown) -> io::Result<()> {
        match self {
            Self::Tcp(stream) => stream.shutdown(how),
            Self::Unix(stream) => stream.shutdown(how),
        }
    }

    fn set_nonblocking(&self) -> io::Result<()> {
        match self {
            Self::Tcp(stream) => stream.set_nonblocking(true),
            Self::Unix(stream) => stream.set_nonblocking(true),
        }
    }

    /// Has writes leave at once, and give up after this time.
    fn prepare(&self, limit: Duration) -> io::Result<()> {
        match self {
            Self::Tcp(stream) => {
                stream.set_nodelay(true)?;
                stream.set_write_timeout(Some(limit))
            }
            Self::Unix(stream) => stream.set_write_timeout(Some(limit)),
        }
    }
}

impl AsFd for Stream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Tcp(stream) => stream.as_fd(),
            Self::Unix(stream) => stream.as_fd(),
        }
    }
}

impl Read for &Stream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Stream::Tcp(stream) => (&*stream).read(buffer),
            Stream::Unix(stream) => (&*stream).read(buffer),
        }
    }
}

impl Write for &Stream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Stream::Tcp(stream) => (&*stream).write(bytes),
            Stream::Unix(stream) => (&*stream).write(bytes),
        }
    }

    fn write_vectored(&mut self, pieces: &[IoSlice<'_>]) -> io::Result<usize> {
        match self {
            Stream::Tcp(stream) => (&*stream).write_vectored(pieces),
            Stream::Unix(stream) => (&*stream).write_vectored(pieces),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Whether the other side has hung up, as far as is known.
pub(crate) fn hung_up(socket: &Stream) -> bool {
    let gone = PollFlags::RDHUP | PollFlags::HUP | PollFlags::ERR;
    let mut descriptors = [PollFd::new(socket, PollFlags::RDHUP)];
    poll(&mut descriptors, Some(&Timespec::default())).is_ok() && descriptors[0].revents().intersects(gone)
}

/// How long, and how many bytes, a client that is sent away may still send, so that it gets to read
/// why.
const LINGER: Duration = Duration::from_millis(500);
const LINGER_BYTES: usize = 1 << 20;
/// How often a thread that cannot write looks up whether it should go on trying.
const WRITE_ROUND: Duration = Duration::from_millis(500);

/// Where a connection's bytes come from and go to.
pub(crate) enum Transport {
    Plain(Socket),
    Secured(Box<Secured>),
    Memory(Memory),
}

/// A socket whose client may take its time to read, but not for ever.
#[derive(Clone)]
pub(crate) struct Socket {
    stream: Arc<Stream>,
    entry: Arc<Entry>,
    limit: Duration,
    /// Whether a write gives up when the statement that runs is to end.
    within_statement: bool,
}

/// A write was given up because the statement is to end. What was not written may be written later.
#[derive(Debug)]
struct StatementEnds;

impl fmt::Display for StatementEnds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the statement ends")
    }
}

impl std::error::Error for StatementEnds {}

/// A socket with TLS.
pub(crate) struct Secured {
    tls: Connection,
    socket: Socket,
}

/// A conversation that was written down beforehand.
pub(crate) struct Memory {
    input: Vec<u8>,
    read: usize,
    /// This many bytes are read at a time, at most.
    piece: usize,
    pub(crate) output: Vec<u8>,
}

/// What came of waiting for bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Received {
    /// This many, and not none.
    Bytes(usize),
    /// There will be no more, for whatever reason.
    End,
    /// The bell was rung.
    Rung,
    /// The deadline passed, and nothing has come.
    Late,
}

impl Memory {
    pub(crate) fn new(input: &[u8], piece: usize) -> Self {
        Self { input: input.to_vec(), read: 0, piece: piece.max(1), output: Vec::new() }
    }

    fn receive(&mut self, buffer: &mut [u8]) -> usize {
        let rest = &self.input[self.read..];
        let count = rest.len().min(buffer.len()).min(self.piece);
        buffer[..count].copy_from_slice(&rest[..count]);
        self.read += count;
        count
    }
}

impl Socket {
    /// For a connection that others see as `entry`. What cannot be written for so long is given up,
    /// and at once when the connection is to end without grace.
    pub(crate) fn new(stream: Arc<Stream>, entry: Arc<Entry>, limit: Duration) -> io::Result<Self> {
        stream.prepare(limit.clamp(Duration::from_millis(1), WRITE_ROUND))?;
        Ok(Self { stream, entry, limit, within_statement: false })
    }

    fn persist(&self, mut write: impl FnMut(&Stream) -> io::Result<usize>) -> io::Result<usize> {
        let begun = Instant::now();
        loop {
            match write(&self.stream) {
                Err(cause) if cause.kind() == ErrorKind::Interrupted => {}
                Err(cause) if cause.kind() == ErrorKind::WouldBlock => {
                    if begun.elapsed() >= self.limit || self.entry.is_interrupted() {
                        return Err(cause);
                    }
                    if self.within_statement && self.entry.statement_ends() {
                        return Err(io::Error::other(StatementEnds));
                    }
                }
                other => return other,
            }
        }
    }
}

impl Write for &Socket {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.persist(|mut stream| stream.write(bytes))
    }

    fn write_vectored(&mut self, pieces: &[IoSlice<'_>]) -> io::Result<usize> {
        self.persist(|mut stream| stream.write_vectored(pieces))
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Secured {
    /// Sends what TLS has to say.
    fn send(&mut self) -> io::Result<()> {
        while self.tls.wants_write() {
            match self.tls.write_tls(&mut &self.socket) {
                Err(cause) => return Err(cause),
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(_) => {}
            }
        }
        Ok(())
    }

    /// Understands what has been read from the socket.
    fn process(&mut self) -> io::Result<()> {
        let processed = self.tls.process_new_packets().map_err(broken);
        // An alert too, if that went wrong.
        let sent = self.send();
        processed?;
        sent
    }

    /// Some of the bytes: what is accepted is sent now or with the next ones.
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.send()?;
        self.tls.writer().write(bytes)
    }

    /// Shakes hands as well, as long as that is not done.
    fn receive(&mut self, buffer: &mut [u8], deadline: Option<Instant>, bell: Option<&Bell>) -> io::Result<Received> {
        loop {
            match self.tls.reader().read(buffer) {
                Ok(0) => return Ok(Received::End),
                Ok(count) => return Ok(Received::Bytes(count)),
                Err(cause) if cause.kind() == ErrorKind::WouldBlock => {}
                Err(cause) => return Err(cause),
            }
            if let Some(other) = wait(&self.socket.stream, deadline, bell)? {
                return Ok(other);
            }
            match self.tls.read_tls(&mut &*self.socket.stream) {
                Err(cause) if cause.kind() == ErrorKind::Interrupted => {}
                Err(cause) => return Err(cause),
                Ok(_) => self.process()?,
            }
        }
    }
}

impl Transport {
    /// A socket, and the TLS that it has already.
    pub(crate) fn of(socket: Socket, tls: Option<Connection>) -> Self {
        match tls {
            Some(tls) => Self::Secured(Box::new(Secured { tls, socket })),
            None => Self::Plain(socket),
        }
    }

    /// The client's socket, to wait for it together with others.
    pub(crate) fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.socket().map(AsFd::as_fd)
    }

    /// The same connection with TLS from now on; `read` are bytes that came already and belong to
    /// it. Hands are shaken when more is received.
    pub(crate) fn secure(&mut self, tls: &Tls, mut read: &[u8]) -> io::Result<()> {
        let Self::Plain(socket) = self else { return Err(ErrorKind::Unsupported.into()) };
        let connection = tls.accept().map_err(broken)?;
        let mut secured = Box::new(Secured { tls: connection.into(), socket: socket.clone() });
        while !read.is_empty() {
            secured.tls.read_tls(&mut read)?;
            secured.process()?;
        }
        *self = Self::Secured(secured);
        Ok(())
    }

    /// Whether the client has said inside TLS that it speaks this protocol, known once something
    /// was received.
    pub(crate) fn is_agreed(&self) -> bool {
        matches!(self, Self::Secured(secured) if Tls::is_agreed(&secured.tls))
    }

    /// The common name of the client's certificate, if it has shown one, known once something was
    /// received.
    pub(crate) fn certificate_name(&self) -> Option<String> {
        match self {
            Self::Secured(secured) => Tls::client_name(&secured.tls),
            Self::Plain(_) | Self::Memory(_) => None,
        }
    }

    /// The connection's TLS, known once something was received.
    pub(crate) fn encryption(&self) -> Option<Encryption> {
        match self {
            Self::Secured(secured) => Some(Tls::encryption(&secured.tls)),
            Self::Plain(_) | Self::Memory(_) => None,
        }
    }

    fn socket(&self) -> Option<&Stream> {
        match self {
            Self::Plain(socket) => Some(&socket.stream),
            Self::Secured(secured) => Some(&secured.socket.stream),
            Self::Memory(_) => None,
        }
    }

    /// Blocks until there are bytes, the bell is rung, or the deadline has passed.
    pub(crate) fn receive(&mut self, buffer: &mut [u8], deadline: Option<Instant>, bell: Option<&Bell>) -> Received {
        let received = match self {
            Self::Plain(socket) => receive(&socket.stream, buffer, deadline, bell),
            Self::Secured(secured) => secured.receive(buffer, deadline, bell),
            Self::Memory(memory) => match memory.receive(buffer) {
                0 => Ok(Received::End),
                count => Ok(Received::Bytes(count)),
            },
        };
        // A connection that breaks ends.
        received.unwrap_or(Received::End)
    }

    /// Writes; blocks while the client does not read, as long as it may: within a statement, until
    /// that is to end. Returns how much was written.
    ///
    /// # Errors
    /// When nothing can be written any more.
    pub(crate) fn write(&mut self, bytes: &[u8], within_statement: bool) -> io::Result<usize> {
        let mut written = 0;
        match self.write_pieces(bytes, within_statement, &mut written) {
            Err(cause) if !cause.get_ref().is_some_and(|cause| cause.is::<StatementEnds>()) => Err(cause),
            _ => Ok(written),
        }
    }

    fn write_pieces(&mut self, bytes: &[u8], within_statement: bool, written: &mut usize) -> io::Result<()> {
        match self {
            Self::Plain(socket) => {
                socket.within_statement = within_statement;
                while *written < bytes.len() {
                    match (&mut &*socket).write(&bytes[*written..])? {
                        0 => return Err(ErrorKind::WriteZero.into()),
                        count => *written += count,
                    }
                }
                Ok(())
            }
            Self::Secured(secured) => {
                secured.socket.within_statement = within_statement;
                while *written < bytes.len() {
                    *written += secured.write(&bytes[*written..])?;
                }
                secured.send()
            }
            Self::Memory(memory) => {
                memory.output.extend_from_slice(bytes);
                *written = bytes.len();
                Ok(())
            }
        }
    }

    /// From now on, gives up what cannot be written at once.
    pub(crate) fn never_wait_to_write(&mut self) {
        let socket = match self {
            Self::Plain(socket) => socket,
            Self::Secured(secured) => &mut secured.socket,
            Self::Memory(_) => return,
        };
        socket.limit = Duration::ZERO;
        // Where that fails, a write still gives up after a while.
        let _ = socket.stream.set_nonblocking();
    }

    /// Says that nothing more comes.
    pub(crate) fn close(&mut self) {
        if let Self::Secured(secured) = self {
            secured.tls.send_close_notify();
            let _ = secured.send();
        }
        if let Some(socket) = self.socket() {
            let _ = socket.shutdown(Shutdown::Write);
        }
    }

    /// Lets a client that may still be sending read why it is sent away: closing a socket that has
    /// unread bytes would take the last words back.
    pub(crate) fn linger(&mut self) {
        let Some(socket) = self.socket() else { return };
        let deadline = Instant::now() + LINGER;
        let mut buffer = [0; 4096];
        let mut read = 0;
        while read < LINGER_BYTES
            && let Ok(Received::Bytes(count)) = receive(socket, &mut buffer, Some(deadline), None)
        {
            read += count;
        }
    }
}

pub(crate) fn receive(
    mut socket: &Stream,
    buffer: &mut [u8],
    deadline: Option<Instant>,
    bell: Option<&Bell>,
) -> io::Result<Received> {
    loop {
        if let Some(other) = wait(socket, deadline, bell)? {
            return Ok(other);
        }
        match socket.read(buffer) {
            Err(cause) if cause.kind() == ErrorKind::Interrupted => {}
            Err(cause) => return Err(cause),
            Ok(0) => return Ok(Received::End),
            Ok(count) => return Ok(Received::Bytes(count)),
        }
    }
}

/// Blocks until the socket can be read, or returns what else has come of it. Without deadline and
/// bell that is left to the reading itself, which spares a system call.
fn wait(socket: &Stream, deadline: Option<Instant>, bell: Option<&Bell>) -> io::Result<Option<Received>> {
    let rung = bell.and_then(Bell::descriptor);
    if deadline.is_none() && rung.is_none() {
        return Ok(None);
    }
    loop {
        let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        // Far ahead is as good as never.
        let left = left.and_then(|left| Timespec::try_from(left).ok());
        let mut descriptors = [
            PollFd::new(socket, PollFlags::IN),
            PollFd::from_borrowed_fd(rung.unwrap_or(socket.as_fd()), PollFlags::IN),
        ];
        match poll(&mut descriptors, left.as_ref()) {
            Err(Errno::INTR) => {}
            Err(cause) => return Err(cause.into()),
            Ok(0) => return Ok(Some(Received::Late)),
            // A client that has spoken comes first.
            Ok(_) if !descriptors[0].revents().is_empty() => return Ok(None),
            Ok(_) if bell.is_some_and(Bell::was_rung) => return Ok(Some(Received::Rung)),
            Ok(_) => {}
        }
    }
}
