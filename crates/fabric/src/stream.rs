//! A stream of bytes both ways: a socket, with TLS or without.
//!
//! One thread may read while another writes. TLS has one state for both directions. It is locked
//! only to seal or open what is in memory, never while a thread waits for the socket: a side that
//! cannot send still receives.

use std::{
    fmt,
    io::{self, IoSlice, Read, Write},
    net::{Shutdown, TcpStream},
    os::{
        fd::{AsFd, BorrowedFd},
        unix::net::UnixStream,
    },
    time::{Duration, Instant},
};

use freshet_base::sync::{Arc, Mutex};
use rustix::net::{SendAncillaryBuffer, SendFlags, sendmsg};
use rustls::{ClientConfig, ClientConnection, Connection, ServerConfig, ServerConnection, pki_types};

/// Sealed bytes are read in pieces of at most this length, and are written when there are this
/// many.
const SEALED: usize = 64 << 10;
/// What precedes each record of TLS; its last two bytes are the length of the rest.
const RECORD_HEADER: usize = 5;

/// The socket beneath.
#[derive(Debug)]
enum Socket {
    Tcp(TcpStream),
    Unix(UnixStream),
}

/// One end of a stream. Clones share it.
#[derive(Clone)]
pub struct Stream {
    socket: Arc<Socket>,
    tls: Option<Arc<Tls>>,
}

struct Tls {
    connection: Mutex<Connection>,
    /// Locked by the thread that reads.
    reading: Mutex<Reading>,
    /// Sealed, and not written yet. Locked by the thread that writes.
    writing: Mutex<Vec<u8>>,
}

/// Sealed bytes that were read and not opened yet.
struct Reading {
    bytes: Vec<u8>,
    start: usize,
    end: usize,
}

impl Reading {
    /// The length of the first record, if all of it is there.
    fn record(&self) -> Option<usize> {
        let bytes = &self.bytes[self.start..self.end];
        let header = bytes.first_chunk::<RECORD_HEADER>()?;
        let length = RECORD_HEADER + usize::from(u16::from_be_bytes([header[3], header[4]]));
        (bytes.len() >= length).then_some(length)
    }

    /// Reads more. A record is shorter than the buffer, so there is room after a part of one.
    fn fill(&mut self, socket: &Socket) -> io::Result<usize> {
        if self.bytes.is_empty() {
            self.bytes = vec![0; 2 * SEALED];
        }
        self.bytes.copy_within(self.start..self.end, 0);
        (self.start, self.end) = (0, self.end - self.start);
        let count = socket.read(&mut self.bytes[self.end..])?;
        self.end += count;
        Ok(count)
    }
}

impl Socket {
    fn read(&self, into: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(socket) => (&*socket).read(into),
            Self::Unix(socket) => (&*socket).read(into),
        }
    }

    fn write_all(&self, mut slices: &mut [IoSlice<'_>], more: bool) -> io::Result<()> {
        let flags = if more { SendFlags::NOSIGNAL | SendFlags::MORE } else { SendFlags::NOSIGNAL };
        // Leading empty slices would make a write of zero bytes look like the end.
        IoSlice::advance_slices(&mut slices, 0);
        while !slices.is_empty() {
            match sendmsg(self.fd(), slices, &mut SendAncillaryBuffer::default(), flags).map_err(io::Error::from) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(written) => IoSlice::advance_slices(&mut slices, written),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Tcp(socket) => socket.as_fd(),
            Self::Unix(socket) => socket.as_fd(),
        }
    }
}

fn broken(error: rustls::Error) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error)
}

impl Tls {
    fn new(connection: Connection) -> Arc<Self> {
        let reading = Reading { bytes: Vec::new(), start: 0, end: 0 };
        Arc::new(Self {
            connection: Mutex::new(connection),
            reading: Mutex::new(reading),
            writing: Mutex::new(Vec::new()),
        })
    }

    fn connection(&self) -> freshet_base::sync::MutexGuard<'_, Connection> {
        self.connection.lock().expect("no code panics under this mutex")
    }

    /// Opens one record, and sends TLS's answer if it has one.
    fn open(&self, reading: &mut Reading, length: usize, socket: &Socket) -> io::Result<()> {
        let mut record = &reading.bytes[reading.start..reading.start + length];
        let (outcome, answers) = {
            let mut connection = self.connection();
            while !record.is_empty() {
                connection.read_tls(&mut record)?;
            }
            (connection.process_new_packets().map(|_| ()).map_err(broken), connection.wants_write())
        };
        reading.start += length;
        // Rare after the handshake: a writer that is stuck would hold up this thread, too. An alert
        // is sent as well, so that the other side hears why.
        let answered = if answers { self.write(&[], false, socket) } else { Ok(()) };
        outcome.and(answered)
    }

    fn read(&self, into: &mut [u8], socket: &Socket) -> io::Result<usize> {
        let mut reading = self.reading.lock().expect("no code panics under this mutex");
        loop {
            match self.connection().reader().read(into) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                outcome => return outcome,
            }
            match reading.record() {
                Some(length) => self.open(&mut reading, length, socket)?,
                // Frames say where they end, so a close without TLS's farewell loses nothing.
                None if reading.fill(socket)? == 0 => return Ok(0),
                None => {}
            }
        }
    }

    fn write(&self, slices: &[IoSlice<'_>], more: bool, socket: &Socket) -> io::Result<()> {
        let mut sealed = self.writing.lock().expect("no code panics under this mutex");
        {
            let mut connection = self.connection();
            let mut written = if slices.is_empty() { 0 } else { connection.writer().write_vectored(slices)? };
            for slice in slices {
                // The writer has no limit; were there one, the rest would follow here.
                let taken = written.min(slice.len());
                written -= taken;
                connection.writer().write_all(&slice[taken..])?;
            }
            while connection.wants_write() {
                connection.write_tls(&mut *sealed)?;
            }
        }
        if sealed.is_empty() || more && sealed.len() < SEALED {
            return Ok(());
        }
        let outcome = socket.write_all(&mut [IoSlice::new(&sealed)], more);
        sealed.clear();
        sealed.shrink_to(16 * SEALED);
        outcome
    }
}

impl From<TcpStream> for Stream {
    fn from(socket: TcpStream) -> Self {
        Self { socket: Arc::new(Socket::Tcp(socket)), tls: None }
    }
}

impl From<UnixStream> for Stream {
    fn from(socket: UnixStream) -> Self {
        Self { socket: Arc::new(Socket::Unix(socket)), tls: None }
    }
}

impl Stream {
    /// Switches to TLS, as the server. Blocks until the handshake is complete or `deadline` has
    /// passed.
    ///
    /// # Errors
    /// Errors of the system or of TLS: [`tls_error`] tells which.
    pub fn secure_server(self, config: Arc<ServerConfig>, deadline: Instant) -> io::Result<Self> {
        let connection = ServerConnection::new(config).map_err(broken)?;
        self.secure(connection.into(), deadline)
    }

    /// Switches to TLS, as the client; the server's certificate must be for `name`.
    ///
    /// # Errors
    /// As for [`Stream::secure_server`]. A server that rejects this side's certificate says so
    /// later.
    pub fn secure_client(
        self,
        config: Arc<ClientConfig>,
        name: pki_types::ServerName<'static>,
        deadline: Instant,
    ) -> io::Result<Self> {
        let connection = ClientConnection::new(config, name).map_err(broken)?;
        self.secure(connection.into(), deadline)
    }

    fn secure(self, mut connection: Connection, deadline: Instant) -> io::Result<Self> {
        connection.set_buffer_limit(None);
        let tls = Tls::new(connection);
        let left = || deadline.saturating_duration_since(Instant::now()).max(Duration::from_millis(1));
        {
            let mut reading = tls.reading.lock().expect("no code panics under this mutex");
            loop {
                self.set_write_timeout(Some(left()))?;
                tls.write(&[], false, &self.socket)?;
                if !tls.connection().is_handshaking() {
                    break;
                }
                if Instant::now() >= deadline {
                    return Err(io::ErrorKind::TimedOut.into());
                }
                match reading.record() {
                    Some(length) => tls.open(&mut reading, length, &self.socket)?,
                    None => {
                        self.set_read_timeout(Some(left()))?;
                        if reading.fill(&self.socket)? == 0 {
                            return Err(io::ErrorKind::UnexpectedEof.into());
                        }
                    }
                }
            }
        }
        self.set_read_timeout(None)?;
        self.set_write_timeout(None)?;
        Ok(Self { socket: self.socket, tls: Some(tls) })
    }

    /// The certificate that the other side has shown and proved to hold; none without TLS.
    pub fn certificate(&self) -> Option<pki_types::CertificateDer<'static>> {
        let tls = self.tls.as_ref()?;
        tls.connection().peer_certificates()?.first().cloned().map(pki_types::CertificateDer::into_owned)
    }

    /// Whether it is sealed by TLS.
    pub fn is_secure(&self) -> bool {
        self.tls.is_some()
    }

    /// Leaves TLS. Both sides must have agreed on it; the side that sends first must know that the
    /// other has agreed. Returns what was read ahead. Clones must not be used any more.
    pub fn bare(self) -> (Self, Vec<u8>) {
        let ahead = self.tls.as_ref().map_or_else(Vec::new, |tls| {
            let reading = tls.reading.lock().expect("no code panics under this mutex");
            reading.bytes[reading.start..reading.end].to_vec()
        });
        (Self { socket: self.socket, tls: None }, ahead)
    }

    /// Its parts, for another protocol on the same socket: the socket, and TLS with all that was
    /// read ahead, if it is sealed. Clones must not be used any more; those that were made of a
    /// sealed stream must be gone.
    ///
    /// # Errors
    /// When it is no stream of TCP, when clones of it are left, and what the system or TLS says.
    pub(crate) fn into_parts(self) -> io::Result<(TcpStream, Option<Connection>)> {
        let Socket::Tcp(socket) = &*self.socket else { return Err(io::ErrorKind::Unsupported.into()) };
        let socket = socket.try_clone()?;
        let Some(tls) = self.tls else { return Ok((socket, None)) };
        let tls = Arc::try_unwrap(tls).map_err(|_| io::Error::from(io::ErrorKind::ResourceBusy))?;
        let mut connection = tls.connection.into_inner().expect("no code panics under this mutex");
        let reading = tls.reading.into_inner().expect("no code panics under this mutex");
        let mut sealed = &reading.bytes[reading.start..reading.end];
        while !sealed.is_empty() {
            connection.read_tls(&mut sealed)?;
            connection.process_new_packets().map_err(broken)?;
        }
        Ok((socket, Some(connection)))
    }

    /// Blocks for bytes; none at the end.
    ///
    /// # Errors
    /// What the system or TLS says; after a time-out a later call may succeed.
    pub fn read(&self, into: &mut [u8]) -> io::Result<usize> {
        match &self.tls {
            None => self.socket.read(into),
            Some(tls) => tls.read(into, &self.socket),
        }
    }

    /// Blocks for bytes that were not read yet, and leaves them there; of a stream of TCP without
    /// TLS.
    ///
    /// # Errors
    /// What the system says, and that it is another stream.
    pub(crate) fn peek(&self, into: &mut [u8]) -> io::Result<usize> {
        match (&*self.socket, &self.tls) {
            (Socket::Tcp(socket), None) => socket.peek(into),
            _ => Err(io::ErrorKind::Unsupported.into()),
        }
    }

    /// Writes all of it, in one piece if it can. With `more` it may wait for what is written next.
    ///
    /// # Errors
    /// What the system or TLS says; the stream is then of no more use.
    pub fn write_all(&self, slices: &mut [IoSlice<'_>], more: bool) -> io::Result<()> {
        match &self.tls {
            None => self.socket.write_all(slices, more),
            Some(tls) => tls.write(slices, more, &self.socket),
        }
    }

    /// Each read may take this long.
    ///
    /// # Errors
    /// What the system says; zero is not allowed.
    pub fn set_read_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
        match &*self.socket {
            Socket::Tcp(socket) => socket.set_read_timeout(timeout),
            Socket::Unix(socket) => socket.set_read_timeout(timeout),
        }
    }

    /// Each write may take this long.
    ///
    /// # Errors
    /// What the system says; zero is not allowed.
    pub fn set_write_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
        match &*self.socket {
            Socket::Tcp(socket) => socket.set_write_timeout(timeout),
            Socket::Unix(socket) => socket.set_write_timeout(timeout),
        }
    }

    /// Ends a direction, or both.
    pub fn shut_down(&self, how: Shutdown) {
        if let Some(tls) = self.tls.as_ref().filter(|_| how == Shutdown::Write) {
            // What was held back for more to come. An error means that it is closed already.
            let _ = tls.write(&[], false, &self.socket);
        }
        let _ = match &*self.socket {
            Socket::Tcp(socket) => socket.shutdown(how),
            Socket::Unix(socket) => socket.shutdown(how),
        };
    }

    /// Reads and discards until the other side has closed, whatever it says, at most until
    /// `deadline`.
    pub(crate) fn discard(&self, deadline: Instant) {
        let mut discarded = [0; 4096];
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() || self.set_read_timeout(Some(left)).is_err() {
                return;
            }
            match self.socket.read(&mut discarded) {
                Ok(0) | Err(_) => return,
                Ok(_) => {}
            }
        }
    }

    /// The socket.
    pub(crate) fn socket(&self) -> BorrowedFd<'_> {
        self.socket.fd()
    }
}

impl fmt::Debug for Stream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stream").field("socket", &self.socket).field("is_secure", &self.is_secure()).finish()
    }
}

/// What TLS has said, if an error is one of TLS and not of the system.
pub fn tls_error(error: &io::Error) -> Option<&rustls::Error> {
    error.get_ref()?.downcast_ref()
}
