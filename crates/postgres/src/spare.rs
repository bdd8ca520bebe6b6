//! A descriptor in reserve. When the system has no more, the next client is accepted with it and
//! told so, where it would otherwise wait in the system's queue without a word.

use std::{
    io::{self, ErrorKind, Write},
    net::Shutdown,
    os::fd::{AsFd, OwnedFd},
    time::{Duration, Instant},
};

use rustix::io::Errno;

use crate::{
    out::Out,
    packet::{LONGEST, Packet},
    report::{Report, SqlState},
    transport::{Memory, Received, Stream, Transport, receive},
};

/// How long a client that is refused keeps others waiting, at most.
const PATIENCE: Duration = Duration::from_millis(200);

/// A descriptor, if there is one.
#[derive(Default)]
pub(crate) struct Spare(Option<OwnedFd>);

impl Spare {
    /// Takes one, unless it has one; says whether it has one now.
    pub(crate) fn take(&mut self, any: &impl AsFd) -> bool {
        if self.0.is_none() {
            self.0 = any.as_fd().try_clone_to_owned().ok();
        }
        self.0.is_some()
    }

    /// Gives it back to the system; says whether there was one.
    pub(crate) fn give(&mut self) -> bool {
        self.0.take().is_some()
    }
}

/// Whether a call has failed since there are no descriptors left.
pub(crate) fn is_exhausted(cause: &io::Error) -> bool {
    matches!(Errno::from_io_error(cause), Some(Errno::MFILE | Errno::NFILE))
}

/// Sends a client the refusal that there is nothing left for it. Blocks for a moment.
pub(crate) fn refuse(stream: &Stream) {
    // If nothing can be sent, it sees the end of the connection.
    let _ = send_refusal(stream, Instant::now() + PATIENCE);
    let _ = stream.shutdown(Shutdown::Both);
}

fn send_refusal(mut stream: &Stream, deadline: Instant) -> io::Result<()> {
    let mut asked = Vec::new();
    let mut piece = [0; 512];
    loop {
        // What is not read would take back the refusal.
        let length = asked.first_chunk().map_or(8, |length| i32::from_be_bytes(*length) as usize);
        if length > LONGEST {
            break;
        }
        if asked.len() >= length.max(8) {
            match Packet::decode(&asked[4..length.max(8)]) {
                Ok(Packet::Tls | Packet::Gss) => {
                    // No encryption now.
                    stream.write_all(b"N")?;
                    asked.clear();
                }
                _ => break,
            }
        }
        match receive(stream, &mut piece, Some(deadline), None)? {
            Received::Bytes(count) => asked.extend_from_slice(&piece[..count]),
            _ => break,
        }
    }
    let message = "the server has no descriptors or threads left for another connection";
    let mut out = Out::new(Transport::Memory(Memory::new(&[], 1)));
    out.error(&Report::fatal(SqlState::TOO_MANY_CONNECTIONS, message));
    out.flush();
    let Transport::Memory(memory) = out.into_transport() else { return Err(ErrorKind::Unsupported.into()) };
    stream.write_all(&memory.output)?;
    stream.shutdown(Shutdown::Write)?;
    while let Received::Bytes(_) = receive(stream, &mut piece, Some(deadline), None)? {}
    Ok(())
}
