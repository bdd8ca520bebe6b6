use std::{
    io,
    net::SocketAddr,
    time::{Duration, Instant},
};

use freshet_base::sync::{Arc, Ordering};

use super::{Counters, ReceiveError, patient, timed_out};
use crate::{
    frame::{HEADER, Header},
    stream::Stream,
};

/// Read ahead of what was asked for: a header and its immediate value come with one system call,
/// and at most this much of a payload is copied once more.
const AHEAD: usize = 512;

/// The receiving half.
#[derive(Debug)]
pub struct Receiver {
    stream: Stream,
    peer: SocketAddr,
    patience: Option<Duration>,
    /// When everything must have been said that is waited for, whatever the patience.
    deadline: Option<Instant>,
    ahead: Box<[u8]>,
    start: usize,
    end: usize,
    immediate: Vec<u8>,
    /// Bytes of the present frame's payload still to be taken.
    left: u32,
    crc: u32,
    expected_crc: u32,
    counters: Arc<Counters>,
}

impl Receiver {
    pub(super) fn new(stream: Stream, peer: SocketAddr, counters: Arc<Counters>) -> Self {
        Self {
            stream,
            peer,
            patience: None,
            deadline: None,
            ahead: vec![0; AHEAD].into_boxed_slice(),
            start: 0,
            end: 0,
            immediate: Vec::new(),
            left: 0,
            crc: 0,
            expected_crc: 0,
            counters,
        }
    }

    /// The socket, and what was read ahead.
    pub(super) fn into_parts(self) -> (Stream, Vec<u8>) {
        (self.stream, self.ahead[self.start..self.end].to_vec())
    }

    /// What was read ahead by another.
    pub(super) fn ahead_of(&mut self, mut bytes: Vec<u8>) {
        (self.start, self.end) = (0, bytes.len());
        // What comes later is read into this too.
        bytes.resize(bytes.len().max(AHEAD), 0);
        self.ahead = bytes.into_boxed_slice();
    }

    /// The other side's address.
    pub fn peer(&self) -> SocketAddr {
        self.peer
    }

    /// Gives the other side at most this long to say something.
    ///
    /// # Errors
    /// What the system says; zero is not allowed.
    pub fn set_patience(&mut self, patience: Option<Duration>) -> io::Result<()> {
        self.patience = patience;
        self.stream.set_read_timeout(patience)
    }

    /// Gives the other side until `deadline` for all that is received from now on, in as many
    /// pieces as it likes; with `None`, its patience for each piece again.
    ///
    /// # Errors
    /// What the system says.
    pub fn set_deadline(&mut self, deadline: Option<Instant>) -> io::Result<()> {
        self.deadline = deadline;
        if deadline.is_none() { self.stream.set_read_timeout(self.patience) } else { Ok(()) }
    }

    fn read(&mut self, into: Option<&mut [u8]>) -> Result<usize, ReceiveError> {
        let into = into.unwrap_or(&mut self.ahead);
        let peer = self.peer;
        loop {
            if let Some(deadline) = self.deadline {
                let left = deadline.saturating_duration_since(Instant::now());
                if left.is_zero() {
                    return Err(ReceiveError::Silent { peer, patience: patient(self.patience) });
                }
                self.stream.set_read_timeout(Some(left)).map_err(|source| ReceiveError::Lost { peer, source })?;
            }
            match self.stream.read(into) {
                Ok(count) => return Ok(count),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if timed_out(&error) => {
                    return Err(ReceiveError::Silent { peer, patience: patient(self.patience) });
                }
                Err(source) => return Err(ReceiveError::Lost { peer, source }),
            }
        }
    }

    /// Blocks for the next frame, and takes in its header and its immediate value.
    ///
    /// # Errors
    /// [`ReceiveError`]; the connection is then of no more use.
    ///
    /// # Panics
    /// When the last frame's payload was not taken wholly.
    pub fn receive(&mut self) -> Result<Header, ReceiveError> {
        assert_eq!(self.left, 0, "a payload is taken before the next frame");
        let mut bytes = [0; HEADER];
        if self.start == self.end && self.refill()? == 0 {
            return Err(ReceiveError::Closed { peer: self.peer });
        }
        self.fill(&mut bytes)?;
        let header = Header::decode(&bytes).map_err(|source| ReceiveError::Header { peer: self.peer, source })?;
        let mut immediate = std::mem::take(&mut self.immediate);
        immediate.resize(header.immediate as usize, 0);
        let filled = self.fill(&mut immediate);
        self.immediate = immediate;
        filled?;
        self.compare("a message", crc32c::crc32c(&self.immediate), header.immediate_crc)?;
        (self.left, self.crc, self.expected_crc) = (header.payload, 0, header.payload_crc);
        // Relaxed: statistics.
        self.counters.received_frames.fetch_add(1, Ordering::Relaxed);
        let length = HEADER as u64 + u64::from(header.immediate) + u64::from(header.payload);
        self.counters.received_bytes.fetch_add(length, Ordering::Relaxed);
        Ok(header)
    }

    /// The last frame's immediate value.
    pub fn immediate(&self) -> &[u8] {
        &self.immediate
    }

    /// Takes the next `region.len()` bytes of the payload, straight from the socket into `region`.
    ///
    /// # Errors
    /// [`ReceiveError`]; what lies in `region` is then undefined.
    ///
    /// # Panics
    /// When the payload has fewer bytes left.
    pub fn payload_into(&mut self, region: &mut [u8]) -> Result<(), ReceiveError> {
        let length = u32::try_from(region.len()).expect("a payload is shorter than 4 GiB");
        self.left = self.left.checked_sub(length).expect("no more is taken than was announced");
        // In pieces that are still in the cache when their checksum is computed.
        for piece in region.chunks_mut(128 << 10) {
            self.fill(piece)?;
            self.crc = crc32c::crc32c_append(self.crc, piece);
        }
        Ok(())
    }

    /// Checks what [`Receiver::payload_into`] took. Only after this does the payload mean anything.
    ///
    /// # Errors
    /// [`ReceiveError::Damaged`] when its checksum is wrong.
    ///
    /// # Panics
    /// When the payload was not taken wholly.
    pub fn payload_done(&mut self) -> Result<(), ReceiveError> {
        assert_eq!(self.left, 0, "a payload is taken wholly");
        self.compare("a batch", self.crc, self.expected_crc)
    }

    fn compare(&self, what: &'static str, found: u32, expected: u32) -> Result<(), ReceiveError> {
        if found == expected {
            return Ok(());
        }
        Err(ReceiveError::Damaged { peer: self.peer, what, found, expected })
    }

    /// Fills `into`, first from what was read ahead.
    fn fill(&mut self, mut into: &mut [u8]) -> Result<(), ReceiveError> {
        let eof = |peer| ReceiveError::Lost { peer, source: io::ErrorKind::UnexpectedEof.into() };
        while !into.is_empty() {
            let ready = (self.end - self.start).min(into.len());
            let count = if ready > 0 {
                into[..ready].copy_from_slice(&self.ahead[self.start..self.start + ready]);
                self.start += ready;
                ready
            } else if into.len() >= AHEAD {
                self.read(Some(into))?
            } else if self.refill()? > 0 {
                continue;
            } else {
                0
            };
            if count == 0 {
                return Err(eof(self.peer));
            }
            into = &mut into[count..];
        }
        Ok(())
    }

    fn refill(&mut self) -> Result<usize, ReceiveError> {
        self.start = 0;
        self.end = 0;
        self.end = self.read(None)?;
        Ok(self.end)
    }
}
