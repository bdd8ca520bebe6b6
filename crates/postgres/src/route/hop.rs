//! The connection to a node that serves a session, by the node that hands it on. Nothing here
//! blocks but the waits that say so.

use std::{
    io::{self, ErrorKind, Read, Write},
    net::TcpStream,
    os::fd::{AsFd, BorrowedFd},
    time::Instant,
};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustls::Connection;

use super::{Ask, Handed, LONGEST, NOTE};
use crate::tls::broken;

/// Bytes before a message's body.
const HEADER: usize = 5;
/// Messages are gathered up to this length; longer ones go by in pieces.
const WHOLE: usize = 128 << 10;
/// This much is read at a time.
const PIECE: usize = 32 << 10;

/// A connection to a node that serves a session.
#[derive(Debug)]
pub struct Hop {
    socket: TcpStream,
    tls: Option<Connection>,
    /// What is still to be sent, without TLS; with TLS that keeps it itself.
    unsent: Vec<u8>,
    /// Into which is read.
    piece: Box<[u8]>,
    /// What has come.
    input: Vec<u8>,
    /// This much of it was used.
    used: usize,
    /// This many bytes of a long message are still to go by.
    passing: usize,
}

/// What has come of that node.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Came {
    /// A message: its kind, and where it lies in [`Hop::bytes`], header and all.
    Whole(u8, std::ops::Range<usize>),
    /// The beginning of a message of this kind that is too long to be gathered, or more of it.
    Piece(Option<u8>, std::ops::Range<usize>),
    /// More has to come.
    More,
    /// It makes no sense.
    Malformed,
}

impl Hop {
    /// Over a socket and its TLS; `ahead` came of the session already.
    ///
    /// # Errors
    /// What the system says.
    pub fn new(socket: TcpStream, tls: Option<Connection>, ahead: Vec<u8>) -> io::Result<Self> {
        socket.set_nodelay(true)?;
        socket.set_nonblocking(true)?;
        Ok(Self { socket, tls, unsent: Vec::new(), piece: vec![0; PIECE].into(), input: ahead, used: 0, passing: 0 })
    }

    /// The socket.
    pub(super) fn descriptor(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    pub(super) fn socket(&self) -> &TcpStream {
        &self.socket
    }

    /// Has this sent, now or when [`Hop::push`] is called later.
    pub(super) fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        match &mut self.tls {
            Some(tls) => {
                tls.set_buffer_limit(None);
                tls.writer().write_all(bytes)?;
            }
            None => self.unsent.extend_from_slice(bytes),
        }
        self.push()
    }

    /// Sends what the system takes at once.
    pub(super) fn push(&mut self) -> io::Result<()> {
        while self.is_behind() {
            let sent = match &mut self.tls {
                Some(tls) => tls.write_tls(&mut &self.socket),
                None => (&self.socket).write(&self.unsent).inspect(|sent| drop(self.unsent.drain(..*sent))),
            };
            match sent {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(_) => {}
                Err(cause) if cause.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(cause) if cause.kind() == ErrorKind::Interrupted => {}
                Err(cause) => return Err(cause),
            }
        }
        Ok(())
    }

    /// Whether there is something that the system has not taken yet.
    pub(super) fn is_behind(&self) -> bool {
        self.tls.as_ref().map_or(!self.unsent.is_empty(), |tls| tls.wants_write())
    }

    /// Takes in what is there; says whether that was anything.
    ///
    /// # Errors
    /// When the connection has ended or is broken.
    pub(super) fn receive(&mut self) -> io::Result<bool> {
        self.input.drain(..std::mem::take(&mut self.used));
        self.input.shrink_to(WHOLE);
        match read(&self.socket, self.tls.as_mut(), &mut self.piece) {
            Ok(0) => Err(ErrorKind::UnexpectedEof.into()),
            Ok(count) => {
                self.input.extend_from_slice(&self.piece[..count]);
                Ok(true)
            }
            Err(cause) if matches!(cause.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => Ok(false),
            Err(cause) => Err(cause),
        }
    }

    /// What has come.
    pub(super) fn bytes(&self) -> &[u8] {
        &self.input
    }

    /// The body of a whole message.
    pub(super) fn body(&self, message: &std::ops::Range<usize>) -> &[u8] {
        &self.input[message.start + HEADER..message.end]
    }

    /// Whether a message has gone by in part.
    pub(super) fn is_passing(&self) -> bool {
        self.passing > 0
    }

    /// Takes the next message off, or a piece of a long one.
    pub(super) fn next(&mut self) -> Came {
        let there = self.input.len() - self.used;
        let from = self.used;
        if self.passing > 0 {
            let count = self.passing.min(there);
            (self.used, self.passing) = (from + count, self.passing - count);
            return if count == 0 { Came::More } else { Came::Piece(None, from..from + count) };
        }
        let Some(&[kind, a, b, c, d]) = self.input[from..].first_chunk::<HEADER>() else { return Came::More };
        let length = usize::try_from(i32::from_be_bytes([a, b, c, d])).ok().filter(|length| *length >= 4);
        let Some(length) = length.map(|length| length + 1) else { return Came::Malformed };
        if kind == NOTE && length > HEADER + LONGEST {
            return Came::Malformed;
        }
        if length <= there {
            self.used = from + length;
            return Came::Whole(kind, from..from + length);
        }
        if kind == NOTE || length <= WHOLE {
            return Came::More;
        }
        (self.used, self.passing) = (from + there, length - there);
        Came::Piece(Some(kind), from..from + there)
    }

    /// Blocks until something has come, or until the time has passed: then it fails.
    pub(super) fn wait(&mut self, deadline: Instant) -> io::Result<()> {
        loop {
            self.push()?;
            if self.receive()? {
                return Ok(());
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(ErrorKind::TimedOut.into());
            }
            let flags = if self.is_behind() { PollFlags::IN | PollFlags::OUT } else { PollFlags::IN };
            let timeout = Timespec::try_from(left).ok();
            match poll(&mut [PollFd::new(&self.socket, flags)], timeout.as_ref()) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(cause) => return Err(cause.into()),
            }
        }
    }
}

/// Reads what is there.
fn read(socket: &TcpStream, tls: Option<&mut Connection>, into: &mut [u8]) -> io::Result<usize> {
    let mut socket = socket;
    let Some(tls) = tls else { return socket.read(into) };
    loop {
        match tls.reader().read(into) {
            Err(cause) if cause.kind() == ErrorKind::WouldBlock => {}
            other => return other,
        }
        match tls.read_tls(&mut socket) {
            Err(cause) if cause.kind() == ErrorKind::Interrupted => {}
            Err(cause) => return Err(cause),
            Ok(_) => {
                tls.process_new_packets().map_err(broken)?;
            }
        }
    }
}

impl Ask {
    /// As it is sent: a message.
    pub(super) fn encode(&self) -> io::Result<Vec<u8>> {
        let encoded = postcard::to_allocvec(self).map_err(io::Error::other)?;
        let length = u32::try_from(encoded.len() + 4).map_err(io::Error::other)?;
        Ok([&[NOTE], &length.to_be_bytes()[..], &encoded].concat())
    }
}

impl Handed {
    /// As it is sent: its length in four bytes, and itself.
    pub(super) fn encode(&self) -> io::Result<Vec<u8>> {
        let encoded = postcard::to_allocvec(self).map_err(io::Error::other)?;
        let length = u32::try_from(encoded.len()).map_err(io::Error::other)?;
        Ok([&length.to_be_bytes()[..], &encoded].concat())
    }
}
