//! One-sided operations over TCP: the other side's receiving thread does by hand what a network
//! card would do.
//!
//! It does so within [`CompletionQueue::next`]: a thread that waits for an immediate value carries
//! out, on the way there, what the other side has posted. So a side whose completion queue nobody
//! asks answers no reads.
//!
//! ```text
//! offset  bytes  little endian
//!      0      4  magic, "FRSW"
//!      4      1  operation
//!      5      1  1: an immediate value is carried
//!      6      2  region
//!      8      4  immediate value
//!     12      4  length of the data; of a read, how much is wanted
//!     16      8  offset in the region; of an answer, which request it is for
//!     24      4  zero
//!     28      4  CRC-32C of bytes 0..28
//!     32         the data
//! ```
//!
//! The data carries no checksum of its own: what replication writes has one, computed by the thread
//! that made it.

use std::{
    io::{self, IoSlice},
    net::{Shutdown, SocketAddr},
    time::{Duration, Instant},
};

use freshet_base::{
    sync::{Arc, Condvar, Mutex, Ordering},
    words,
};

use super::{Connection, Counters, timed_out};
use crate::{
    CompletionQueue, Connected, FabricConfig, Offer, OpenError, Place, QueuePair, ReceiveError, SendError, fits,
    memory::Region, stream::Stream,
};

const HEADER: usize = 32;
const MAGIC: [u8; 4] = *b"FRSW";
/// Read ahead of what was asked for: small writes come with one system call.
const AHEAD: usize = 1024;
/// Data passes through this much memory, which stays in the cache.
const SCRATCH: usize = 64 << 10;
/// No more is read at once.
const LONGEST_READ: u64 = 64 << 20;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
enum Operation {
    Write = 1,
    Read = 2,
    FetchAdd = 3,
    Answer = 4,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Header {
    operation: Operation,
    immediate: Option<u32>,
    region: u16,
    length: u32,
    offset: u64,
}

impl Header {
    fn encode(&self) -> [u8; HEADER] {
        let mut bytes = [0; HEADER];
        bytes[0..4].copy_from_slice(&MAGIC);
        bytes[4] = self.operation as u8;
        bytes[5] = u8::from(self.immediate.is_some());
        bytes[6..8].copy_from_slice(&self.region.to_le_bytes());
        bytes[8..12].copy_from_slice(&self.immediate.unwrap_or(0).to_le_bytes());
        bytes[12..16].copy_from_slice(&self.length.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.offset.to_le_bytes());
        let crc = crc32c::crc32c(&bytes[..28]);
        bytes[28..].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    fn decode(bytes: &[u8; HEADER]) -> Result<Self, String> {
        let word = |at: usize| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        if bytes[..4] != MAGIC || word(28) != crc32c::crc32c(&bytes[..28]) {
            return Err("an operation's header is none, or was damaged on the way".into());
        }
        let operation = match bytes[4] {
            1 => Operation::Write,
            2 => Operation::Read,
            3 => Operation::FetchAdd,
            4 => Operation::Answer,
            other => return Err(format!("operation {other} is not known here")),
        };
        Ok(Self {
            operation,
            immediate: (bytes[5] == 1).then(|| word(8)),
            region: u16::from_le_bytes([bytes[6], bytes[7]]),
            length: word(12),
            offset: u64::from(word(16)) | u64::from(word(20)) << 32,
        })
    }
}

/// What both threads of a side send through.
#[derive(Debug)]
struct Writer {
    stream: Stream,
    peer: SocketAddr,
    patience: Duration,
    counters: Arc<Counters>,
}

impl Writer {
    fn send(&mut self, header: &Header, pieces: &[&[u8]]) -> Result<(), SendError> {
        let head = header.encode();
        let mut slices: [IoSlice<'_>; 5] = std::array::from_fn(|_| IoSlice::new(&[]));
        assert!(pieces.len() < slices.len(), "at most four pieces are written at once");
        slices[0] = IoSlice::new(&head);
        for (slice, piece) in slices[1..].iter_mut().zip(pieces) {
            *slice = IoSlice::new(piece);
        }
        // More will follow what nobody is to hear of.
        let heard = header.immediate.is_some() || header.operation != Operation::Write;
        let sent = self.stream.write_all(&mut slices[..=pieces.len()], !heard);
        sent.map_err(|source| super::lost(source, self.peer, Some(self.patience)))?;
        self.counters.sent((HEADER + pieces.iter().map(|piece| piece.len()).sum::<usize>()) as u64);
        Ok(())
    }
}

/// Answers on their way from the thread that hears to the one that has asked.
#[derive(Debug, Default)]
struct Answers {
    state: Mutex<AnswersState>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct AnswersState {
    /// The newest answer, and to which request.
    answer: Option<(u64, Vec<u8>)>,
    over: bool,
}

impl Answers {
    fn end(&self) {
        self.state.lock().expect("no code panics under this mutex").over = true;
        self.changed.notify_all();
    }
}

struct TcpQueue {
    writer: Arc<Mutex<Writer>>,
    answers: Arc<Answers>,
    lengths: Vec<u64>,
    peer: SocketAddr,
    patience: Duration,
    requests: u64,
}

impl TcpQueue {
    fn post(&mut self, header: &Header, pieces: &[&[u8]]) -> Result<(), SendError> {
        self.writer.lock().expect("no code panics under this mutex").send(header, pieces)
    }

    fn check(&self, at: Place, length: u64) -> Result<(u16, u32), SendError> {
        let out = SendError::OutOfBounds { peer: self.peer, region: at.region, offset: at.offset, length };
        if !fits(at.offset, length, self.region_length(at.region)) {
            return Err(out);
        }
        match (u16::try_from(at.region), u32::try_from(length)) {
            (Ok(region), Ok(length)) => Ok((region, length)),
            _ => Err(out),
        }
    }

    fn write(&mut self, to: Place, pieces: &[&[u8]], immediate: Option<u32>) -> Result<(), SendError> {
        let (region, length) = self.check(to, pieces.iter().map(|piece| piece.len() as u64).sum())?;
        self.post(&Header { operation: Operation::Write, immediate, region, length, offset: to.offset }, pieces)
    }

    /// Sends a request and waits for its answer.
    fn ask(&mut self, header: Header, data: &[&[u8]]) -> Result<Vec<u8>, SendError> {
        self.requests += 1;
        let request = self.requests;
        let number = request.to_le_bytes();
        let pieces: Vec<&[u8]> = [&number[..]].into_iter().chain(data.iter().copied()).collect();
        self.post(&header, &pieces)?;
        let deadline = Instant::now() + self.patience;
        let mut state = self.answers.state.lock().expect("no code panics under this mutex");
        loop {
            if let Some((_, answer)) = state.answer.take_if(|answer| answer.0 == request) {
                return Ok(answer);
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if state.over {
                return Err(SendError::Lost { peer: self.peer, source: io::ErrorKind::ConnectionAborted.into() });
            }
            if left.is_zero() {
                return Err(SendError::Stalled { peer: self.peer, patience: self.patience });
            }
            state = self.answers.changed.wait_timeout(state, left).expect("no code panics under this mutex").0;
        }
    }
}

impl QueuePair for TcpQueue {
    fn write(&mut self, to: Place, pieces: &[&[u8]]) -> Result<(), SendError> {
        self.write(to, pieces, None)
    }

    fn write_with_imm(&mut self, to: Place, pieces: &[&[u8]], immediate: u32) -> Result<(), SendError> {
        self.write(to, pieces, Some(immediate))
    }

    fn read(&mut self, from: Place, into: &mut [u8]) -> Result<(), SendError> {
        let (region, length) = self.check(from, into.len() as u64)?;
        let header = Header { operation: Operation::Read, immediate: None, region, length, offset: from.offset };
        let answer = self.ask(header, &[])?;
        if answer.len() != into.len() {
            return Err(SendError::Lost { peer: self.peer, source: io::ErrorKind::InvalidData.into() });
        }
        into.copy_from_slice(&answer);
        Ok(())
    }

    fn fetch_add(&mut self, at: Place, add: u64) -> Result<u64, SendError> {
        let (region, _) = self.check(at, 8)?;
        let header = Header { operation: Operation::FetchAdd, immediate: None, region, length: 8, offset: at.offset };
        let answer = self.ask(header, &[&add.to_le_bytes()])?;
        let lost = || SendError::Lost { peer: self.peer, source: io::ErrorKind::InvalidData.into() };
        Ok(u64::from_le_bytes(answer.try_into().map_err(|_| lost())?))
    }

    fn complete(&mut self) -> Result<(), SendError> {
        // A read of nothing is answered after everything that was written before.
        self.read(Place { region: 0, offset: 0 }, &mut [])
    }

    fn farewell(&mut self, patience: Duration) {
        // A connection that is closed over unread bytes is reset, which would take the last message
        // with it.
        let writer = self.writer.lock().expect("no code panics under this mutex");
        super::drain(&writer.stream, patience);
    }

    fn region_length(&self, region: usize) -> u64 {
        self.lengths.get(region).copied().unwrap_or(0)
    }

    fn is_prompt(&self) -> bool {
        false
    }
}

struct TcpCompletions {
    stream: Stream,
    peer: SocketAddr,
    regions: Vec<Region>,
    writer: Arc<Mutex<Writer>>,
    answers: Arc<Answers>,
    counters: Arc<Counters>,
    ahead: Vec<u8>,
    start: usize,
    scratch: Vec<u8>,
    /// How long the socket waits at present.
    patience: Duration,
    /// Nothing is carried out any more.
    revoked: bool,
}

impl TcpCompletions {
    fn lost(&self, source: io::Error) -> ReceiveError {
        ReceiveError::Lost { peer: self.peer, source }
    }

    fn violation(&self, why: String) -> ReceiveError {
        ReceiveError::Violation { peer: self.peer, why }
    }

    /// Reads more ahead of what was asked for; false when nothing came in time, before anything of
    /// a header did.
    fn refill(&mut self) -> Result<bool, ReceiveError> {
        let kept = self.ahead.len() - self.start;
        self.ahead.copy_within(self.start.., 0);
        self.ahead.resize(AHEAD, 0);
        self.start = 0;
        loop {
            let got = self.stream.read(&mut self.ahead[kept..]);
            self.ahead.truncate(kept + *got.as_ref().unwrap_or(&0));
            match got {
                Ok(0) if kept == 0 => return Err(ReceiveError::Closed { peer: self.peer }),
                Ok(0) => return Err(self.lost(io::ErrorKind::UnexpectedEof.into())),
                Ok(_) => return Ok(true),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => self.ahead.resize(AHEAD, 0),
                Err(error) if timed_out(&error) && kept == 0 => return Ok(false),
                Err(error) if timed_out(&error) => {
                    return Err(ReceiveError::Silent { peer: self.peer, patience: self.patience });
                }
                Err(source) => return Err(self.lost(source)),
            }
        }
    }

    /// The next `length` bytes (at most as many as the scratch memory has) into the scratch memory.
    fn take(&mut self, length: usize) -> Result<(), ReceiveError> {
        let ready = (self.ahead.len() - self.start).min(length);
        self.scratch[..ready].copy_from_slice(&self.ahead[self.start..self.start + ready]);
        self.start += ready;
        let mut at = ready;
        while at < length {
            match self.stream.read(&mut self.scratch[at..length]) {
                Ok(0) => return Err(self.lost(io::ErrorKind::UnexpectedEof.into())),
                Ok(got) => at += got,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if timed_out(&error) => {
                    return Err(ReceiveError::Silent { peer: self.peer, patience: self.patience });
                }
                Err(source) => return Err(self.lost(source)),
            }
        }
        Ok(())
    }

    /// Carries out one operation of the other side.
    fn carry_out(&mut self, header: &Header) -> Result<(), ReceiveError> {
        let length = u64::from(header.length);
        if header.operation == Operation::Answer {
            return self.answered(header);
        }
        let region = self.regions.get(usize::from(header.region)).cloned();
        let region = region.filter(|region| fits(header.offset, length, (region.words().len() * 8) as u64));
        let Some(region) = region else {
            let what = format!("{length} bytes at {} of region {}", header.offset, header.region);
            return Err(self.violation(format!("{what} are not within what was offered, or not whole words")));
        };
        let at = header.offset as usize;
        match header.operation {
            Operation::Write => {
                let mut done = 0;
                while done < header.length as usize {
                    let piece = (header.length as usize - done).min(SCRATCH);
                    self.take(piece)?;
                    words::store(region.words(), at + done, &self.scratch[..piece]);
                    done += piece;
                }
                Ok(())
            }
            Operation::Read => {
                self.take(8)?;
                let request = self.number();
                if length > LONGEST_READ {
                    return Err(self.violation(format!("{length} bytes cannot be read at once")));
                }
                let mut data = vec![0; length as usize];
                words::load(region.words(), at, &mut data);
                self.answer(request, &data)
            }
            Operation::FetchAdd => {
                self.take(16)?;
                let request = self.number();
                let add = u64::from_le_bytes(std::array::from_fn(|k| self.scratch[8 + k]));
                let word = region.words().get(at / 8);
                let word = word.ok_or_else(|| self.violation("there is no such word".into()))?;
                let before = word.fetch_add(add, Ordering::SeqCst);
                self.answer(request, &before.to_le_bytes())
            }
            Operation::Answer => unreachable!("handled above"),
        }
    }

    fn number(&self) -> u64 {
        u64::from_le_bytes(std::array::from_fn(|k| self.scratch[k]))
    }

    fn answer(&mut self, request: u64, data: &[u8]) -> Result<(), ReceiveError> {
        let length = data.len() as u32;
        let header = Header { operation: Operation::Answer, immediate: None, region: 0, length, offset: request };
        let sent = self.writer.lock().expect("no code panics under this mutex").send(&header, &[data]);
        sent.map_err(|error| self.lost(io::Error::other(error.to_string())))
    }

    fn answered(&mut self, header: &Header) -> Result<(), ReceiveError> {
        let length = header.length as usize;
        if length as u64 > LONGEST_READ {
            return Err(self.violation(format!("an answer of {length} bytes")));
        }
        let mut data = Vec::with_capacity(length);
        while data.len() < length {
            let piece = (length - data.len()).min(SCRATCH);
            self.take(piece)?;
            data.extend_from_slice(&self.scratch[..piece]);
        }
        self.answers.state.lock().expect("no code panics under this mutex").answer = Some((header.offset, data));
        self.answers.changed.notify_all();
        Ok(())
    }

    fn hear(&mut self, patience: Duration) -> Result<Option<u32>, ReceiveError> {
        let patience = patience.max(Duration::from_millis(1));
        if patience != self.patience {
            self.stream.set_read_timeout(Some(patience)).map_err(|source| self.lost(source))?;
            self.patience = patience;
        }
        loop {
            while self.ahead.len() - self.start < HEADER {
                if !self.refill()? {
                    return Ok(None);
                }
            }
            let bytes = self.ahead[self.start..self.start + HEADER].try_into().expect("it has that length");
            let header = Header::decode(bytes).map_err(|why| self.violation(why))?;
            self.start += HEADER;
            self.carry_out(&header)?;
            // Relaxed: statistics.
            self.counters.received_frames.fetch_add(1, Ordering::Relaxed);
            self.counters.received_bytes.fetch_add(HEADER as u64 + u64::from(header.length), Ordering::Relaxed);
            if let Some(immediate) = header.immediate {
                return Ok(Some(immediate));
            }
        }
    }
}

impl CompletionQueue for TcpCompletions {
    fn next(&mut self, patience: Duration) -> Result<Option<u32>, ReceiveError> {
        if self.revoked {
            return Err(ReceiveError::Closed { peer: self.peer });
        }
        let outcome = self.hear(patience);
        if outcome.is_err() {
            self.answers.end();
        }
        outcome
    }

    fn revoke(&mut self) {
        // This thread is the one that writes, answers and tells, one after another: all that it has
        // answered was told before.
        self.revoked = true;
        self.answers.end();
    }
}

impl Drop for TcpCompletions {
    fn drop(&mut self) {
        self.answers.end();
    }
}

impl Drop for TcpQueue {
    fn drop(&mut self) {
        // What was written still arrives.
        if let Ok(writer) = self.writer.lock() {
            writer.stream.shut_down(Shutdown::Write);
        }
    }
}

pub(crate) fn connect(
    regions: Vec<Region>,
    theirs: &Offer,
    connection: Connection,
    config: &FabricConfig,
) -> Result<Connected, OpenError> {
    let (stream, peer, ahead, counters) = connection.into_parts();
    let system = |source| OpenError::System { kind: crate::FabricKind::Tcp, source };
    stream.set_write_timeout(Some(config.patience)).map_err(system)?;
    stream.set_read_timeout(Some(config.patience)).map_err(system)?;
    let writer = Writer { stream: stream.clone(), peer, patience: config.patience, counters: Arc::clone(&counters) };
    let writer = Arc::new(Mutex::new(writer));
    let answers = Arc::new(Answers::default());
    let queue = TcpQueue {
        writer: Arc::clone(&writer),
        answers: Arc::clone(&answers),
        lengths: theirs.regions.iter().map(|region| region.length).collect(),
        peer,
        patience: config.patience,
        requests: 0,
    };
    let completions = TcpCompletions {
        stream,
        peer,
        regions,
        writer,
        answers,
        counters: Arc::clone(&counters),
        ahead,
        start: 0,
        scratch: vec![0; SCRATCH],
        patience: config.patience,
        revoked: false,
    };
    Ok(Connected { queue: Box::new(queue), completions: Box::new(completions), counters, peer })
}
