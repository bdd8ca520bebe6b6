//! One-sided operations over TCP: the other side's receiving thread does by hand what a network
//! card would do.
//!
//! It does so within [`CompletionQueue::next`]: a thread that waits for an immediate value carries
//! out, on the way there, what the other side has posted. So a side whose completion queue nobody
//! asks answers no reads, and nothing that was posted to it completes.
//!
//! Behind a list that is to be told of follows an operation that does nothing but ask for that:
//! it is answered when its turn comes, and so when the list is done.
//!
//! ```text
//! offset  bytes  little endian
//!      0      4  magic, "FRSW"
//!      4      1  operation: 1 write, 2 read, 3 add, 4 answer, 5 ask for a completion, 6 it has completed
//!      5      1  bit 0: an immediate value is carried; bit 1: what was written before has to be durable first
//!      6      2  region
//!      8      4  immediate value
//!     12      4  length of the data; of a read, how much is wanted
//!     16      8  offset in the region; of an answer, which request it is for; of 5 and 6, the list's token
//!     24      4  zero
//!     28      4  CRC-32C of bytes 0..28
//!     32         the data
//! ```
//!
//! The data carries no checksum of its own: what replication writes has one, computed by the thread
//! that made it.

use std::{
    io::{self, IoSlice},
    iter,
    net::{Shutdown, SocketAddr},
    ops::Range,
    time::{Duration, Instant},
};

use freshet_base::{
    sync::{Arc, Condvar, Mutex, MutexGuard, Ordering},
    words,
};

use super::{Connection, Counters, timed_out};
use crate::{
    Access, CompletionQueue, Connected, FabricConfig, FabricKind, Offer, OpenError, Place, QueuePair, REGIONS,
    ReceiveError, RegionKey, SendError, Token, Write, fits, is_word, landing::Landing, memory::Region, stream::Stream,
    too_many,
};

const HEADER: usize = 32;
const MAGIC: [u8; 4] = *b"FRSW";
/// Read ahead of what was asked for: small writes come with one system call.
const AHEAD: usize = 1024;
/// Data passes through this much memory, which stays in the cache.
const SCRATCH: usize = 64 << 10;
/// No more is read at once.
const LONGEST_READ: u64 = 64 << 20;
/// This many slices are sent with one system call, which takes at most 1024.
const SLICES: usize = 512;
/// Up to this many need no allocation.
const FEW: usize = 8;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
enum Operation {
    Write = 1,
    Read = 2,
    FetchAdd = 3,
    Answer = 4,
    Ask = 5,
    Completed = 6,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Header {
    operation: Operation,
    immediate: Option<u32>,
    fenced: bool,
    region: u16,
    length: u32,
    offset: u64,
}

/// What the other side has to be told of `region`.
pub(crate) fn key_of(region: &Region) -> RegionKey {
    RegionKey { length: (region.words().len() * 8) as u64, access: Access::Tcp }
}

impl Header {
    /// An operation without data, which concerns the whole connection.
    fn alone(operation: Operation, number: u64) -> Self {
        Self { operation, immediate: None, fenced: false, region: 0, length: 0, offset: number }
    }

    /// The operation that does one write of a list, which was checked.
    fn of(write: &Write<'_>) -> Self {
        let Place { region, offset } = write.to;
        let (region, length) = (region as u16, write.length() as u32);
        let (immediate, fenced) = (write.immediate, write.fenced);
        Self { operation: Operation::Write, immediate, fenced, region, length, offset }
    }

    fn encode(&self) -> [u8; HEADER] {
        let mut bytes = [0; HEADER];
        bytes[0..4].copy_from_slice(&MAGIC);
        bytes[4] = self.operation as u8;
        bytes[5] = u8::from(self.immediate.is_some()) | u8::from(self.fenced) << 1;
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
            5 => Operation::Ask,
            6 => Operation::Completed,
            other => return Err(format!("operation {other} is not known here")),
        };
        Ok(Self {
            operation,
            immediate: (bytes[5] & 1 == 1).then(|| word(8)),
            fenced: bytes[5] >> 1 & 1 == 1,
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
    /// The headers of what is being sent.
    heads: Vec<u8>,
}

impl Writer {
    /// Sends operations, each with its data. Where no side `waits` for them, more will follow.
    fn send<'d>(
        &mut self,
        operations: impl Iterator<Item = (Header, &'d [&'d [u8]])> + Clone,
        waits: bool,
    ) -> Result<(), SendError> {
        self.heads.clear();
        let (mut count, mut bytes) = (0, 0);
        for (header, pieces) in operations.clone() {
            self.heads.extend_from_slice(&header.encode());
            count += 1 + pieces.len();
            bytes += HEADER + pieces.iter().map(|piece| piece.len()).sum::<usize>();
        }
        let (heads, _) = self.heads.as_chunks::<HEADER>();
        let slices = heads.iter().zip(operations).flat_map(|(head, (_, pieces))| {
            iter::once(IoSlice::new(head)).chain(pieces.iter().map(|piece| IoSlice::new(piece)))
        });
        let outcome = if count <= FEW {
            let mut few = [IoSlice::new(&[]); FEW];
            few.iter_mut().zip(slices).for_each(|(place, slice)| *place = slice);
            self.stream.write_all(&mut few[..count], !waits)
        } else {
            let mut slices: Vec<_> = slices.collect();
            let last = (count - 1) / SLICES;
            let mut parts = slices.chunks_mut(SLICES).enumerate();
            parts.try_for_each(|(number, part)| self.stream.write_all(part, !waits || number < last))
        };
        outcome.map_err(|source| super::lost(source, self.peer, Some(self.patience)))?;
        self.counters.sent(bytes as u64);
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
    /// The requests that have no answer, and answers that were not taken.
    awaited: Range<u64>,
    answers: Vec<Vec<u8>>,
    /// The newest list that the other side says it has done.
    completed: u64,
    over: bool,
}

impl Answers {
    /// The other side says that it is done with everything up to the list `token`.
    fn completed(&self, token: u64) {
        let mut state = self.state.lock().expect("no code panics under this mutex");
        state.completed = state.completed.max(token);
        drop(state);
        self.changed.notify_all();
    }

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
    /// The newest token, and the newest that was asked for.
    posted: u64,
    asked: u64,
}

impl TcpQueue {
    fn writer(&self) -> MutexGuard<'_, Writer> {
        self.writer.lock().expect("no code panics under this mutex")
    }

    fn lost(&self, kind: io::ErrorKind) -> SendError {
        SendError::Lost { peer: self.peer, source: kind.into() }
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

    /// What `found` finds, as soon as it does; it is asked again when something has come.
    fn await_answer<T>(&self, mut found: impl FnMut(&mut AnswersState) -> Option<T>) -> Result<T, SendError> {
        let deadline = Instant::now() + self.patience;
        let mut state = self.answers.state.lock().expect("no code panics under this mutex");
        loop {
            if let Some(found) = found(&mut state) {
                return Ok(found);
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if state.over {
                return Err(self.lost(io::ErrorKind::ConnectionAborted));
            }
            if left.is_zero() {
                return Err(SendError::Stalled { peer: self.peer, patience: self.patience });
            }
            state = self.answers.changed.wait_timeout(state, left).expect("no code panics under this mutex").0;
        }
    }

    /// The list up to which the other side says that it is done; it can have done no more than was
    /// posted.
    fn check_completed(&self, completed: u64) -> Result<Token, SendError> {
        if completed > self.posted {
            return Err(self.lost(io::ErrorKind::InvalidData));
        }
        Ok(Token(completed))
    }

    /// Sends a request and waits for its answer.
    fn ask(&mut self, header: Header, data: &[&[u8]]) -> Result<Vec<u8>, SendError> {
        let request = self.request(1);
        let number = request.start.to_le_bytes();
        let pieces: Vec<&[u8]> = [&number[..]].into_iter().chain(data.iter().copied()).collect();
        self.writer().send(iter::once((header, &pieces[..])), true)?;
        Ok(self.answers()?.pop().unwrap_or_default())
    }

    /// The next requests, of this number. What is answered to others is not kept.
    fn request(&mut self, count: u64) -> Range<u64> {
        let requests = self.requests + 1..self.requests + 1 + count;
        self.requests += count;
        let mut state = self.answers.state.lock().expect("no code panics under this mutex");
        state.awaited = requests.clone();
        state.answers.clear();
        requests
    }

    /// Waits for the answers to all of them.
    fn answers(&self) -> Result<Vec<Vec<u8>>, SendError> {
        self.await_answer(|state| state.awaited.is_empty().then(|| std::mem::take(&mut state.answers)))
    }
}

impl QueuePair for TcpQueue {
    fn post(&mut self, list: &[Write<'_>], signaled: bool) -> Result<Token, SendError> {
        for write in list {
            self.check(write.to, write.length())?;
        }
        let token = self.posted + 1;
        let operations = list.iter().map(|write| (Header::of(write), write.pieces));
        let nothing: &[&[u8]] = &[];
        let ask = signaled.then_some((Header::alone(Operation::Ask, token), nothing));
        let waits = signaled || list.iter().any(|write| write.immediate.is_some());
        self.writer().send(operations.chain(ask), waits)?;
        self.posted = token;
        if signaled {
            self.asked = token;
        }
        Ok(Token(token))
    }

    fn completed(&mut self) -> Result<Token, SendError> {
        let state = self.answers.state.lock().expect("no code panics under this mutex");
        let (completed, over) = (state.completed, state.over);
        drop(state);
        if over { Err(self.lost(io::ErrorKind::ConnectionAborted)) } else { self.check_completed(completed) }
    }

    fn wait(&mut self, token: Token) -> Result<(), SendError> {
        if token.0 > self.asked {
            self.post(&[], true)?;
        }
        let completed = self.await_answer(|state| (state.completed >= token.0).then_some(state.completed))?;
        self.check_completed(completed).map(drop)
    }

    fn read(&mut self, from: Place, into: &mut [u8]) -> Result<(), SendError> {
        self.read_all(&mut [(from, into)])
    }

    fn read_all(&mut self, list: &mut [(Place, &mut [u8])]) -> Result<(), SendError> {
        let header = |(from, into): &(Place, &mut [u8])| {
            let (region, length) = self.check(*from, into.len() as u64)?;
            Ok(Header { region, length, ..Header::alone(Operation::Read, from.offset) })
        };
        let headers = list.iter().map(header).collect::<Result<Vec<_>, _>>()?;
        let numbers: Vec<_> = self.request(headers.len() as u64).map(u64::to_le_bytes).collect();
        let pieces: Vec<[&[u8]; 1]> = numbers.iter().map(|number| [&number[..]]).collect();
        self.writer().send(headers.into_iter().zip(pieces.iter().map(|pieces| &pieces[..])), true)?;
        for ((_, into), answer) in list.iter_mut().zip(self.answers()?) {
            if answer.len() != into.len() {
                return Err(self.lost(io::ErrorKind::InvalidData));
            }
            into.copy_from_slice(&answer);
        }
        Ok(())
    }

    fn fetch_add(&mut self, at: Place, add: u64) -> Result<u64, SendError> {
        let (region, _) = self.check(at, 8)?;
        if !is_word(at.offset, self.region_length(at.region)) {
            return Err(SendError::OutOfBounds { peer: self.peer, region: at.region, offset: at.offset, length: 8 });
        }
        let header = Header { region, length: 8, ..Header::alone(Operation::FetchAdd, at.offset) };
        let answer = self.ask(header, &[&add.to_le_bytes()])?;
        Ok(u64::from_le_bytes(answer.try_into().map_err(|_| self.lost(io::ErrorKind::InvalidData))?))
    }

    fn attach(&mut self, key: &RegionKey) -> Result<usize, OpenError> {
        if self.lengths.len() >= REGIONS {
            return Err(too_many(FabricKind::Tcp));
        }
        if key.access != Access::Tcp {
            let why = "the key is of another fabric".into();
            return Err(OpenError::Missing { kind: FabricKind::Tcp, why });
        }
        self.lengths.push(key.length);
        Ok(self.lengths.len() - 1)
    }

    fn farewell(&mut self, patience: Duration) {
        // A connection that is closed over unread bytes is reset, which would take the last message
        // with it.
        super::drain(&self.writer().stream, patience);
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
    landing: Landing,
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
        match header.operation {
            Operation::Answer => return self.answered(header),
            Operation::Ask => {
                self.landing.fence(&self.regions);
                return self.send(&Header::alone(Operation::Completed, header.offset), &[]);
            }
            Operation::Completed => {
                self.answers.completed(header.offset);
                return Ok(());
            }
            Operation::Write | Operation::Read | Operation::FetchAdd => {}
        }
        let region = self.regions.get(usize::from(header.region)).cloned();
        let region = region.filter(|region| fits(header.offset, length, (region.words().len() * 8) as u64));
        let Some(region) = region else {
            let what = format!("{length} bytes at {} of region {}", header.offset, header.region);
            return Err(self.violation(format!("{what} are not within what was offered")));
        };
        let at = header.offset as usize;
        match header.operation {
            Operation::Write => {
                if header.fenced {
                    self.landing.fence(&self.regions);
                }
                let mut done = 0;
                while done < header.length as usize {
                    let piece = (header.length as usize - done).min(SCRATCH);
                    self.take(piece)?;
                    words::store_among(region.words(), at + done, &self.scratch[..piece]);
                    done += piece;
                }
                let to = Place { region: usize::from(header.region), offset: header.offset };
                self.landing.stored(&self.regions, to, length);
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
                let word = region.words().get(at / 8).filter(|_| at.is_multiple_of(8));
                let word = word.ok_or_else(|| self.violation("there is no such word".into()))?;
                let before = word.fetch_add(add, Ordering::SeqCst);
                self.answer(request, &before.to_le_bytes())
            }
            Operation::Answer | Operation::Ask | Operation::Completed => unreachable!("handled above"),
        }
    }

    fn number(&self) -> u64 {
        u64::from_le_bytes(std::array::from_fn(|k| self.scratch[k]))
    }

    fn answer(&mut self, request: u64, data: &[u8]) -> Result<(), ReceiveError> {
        let length = data.len() as u32;
        self.send(&Header { length, ..Header::alone(Operation::Answer, request) }, &[data])
    }

    fn send(&self, header: &Header, data: &[&[u8]]) -> Result<(), ReceiveError> {
        let mut writer = self.writer.lock().expect("no code panics under this mutex");
        let sent = writer.send(iter::once((*header, data)), true);
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
        let mut state = self.answers.state.lock().expect("no code panics under this mutex");
        if !state.awaited.is_empty() && state.awaited.start == header.offset {
            state.awaited.start += 1;
            state.answers.push(data);
        }
        let is_last = state.awaited.is_empty();
        drop(state);
        if is_last {
            self.answers.changed.notify_all();
        }
        Ok(())
    }

    fn receive(&mut self, patience: Duration) -> Result<Option<u32>, ReceiveError> {
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
        let outcome = self.receive(patience);
        if outcome.is_err() {
            self.answers.end();
        }
        outcome
    }

    fn register(&mut self, region: Region) -> Result<RegionKey, OpenError> {
        if self.regions.len() >= REGIONS {
            return Err(too_many(FabricKind::Tcp));
        }
        let key = key_of(&region);
        self.regions.push(region);
        Ok(key)
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
    let (heads, patience, counting) = (Vec::new(), config.patience, Arc::clone(&counters));
    let writer = Writer { stream: stream.clone(), peer, patience, counters: counting, heads };
    let writer = Arc::new(Mutex::new(writer));
    let answers = Arc::new(Answers::default());
    let queue = TcpQueue {
        writer: Arc::clone(&writer),
        answers: Arc::clone(&answers),
        lengths: theirs.regions.iter().map(|region| region.length).collect(),
        peer,
        patience: config.patience,
        requests: 0,
        posted: 0,
        asked: 0,
    };
    let completions = TcpCompletions {
        stream,
        peer,
        regions,
        landing: Landing::default(),
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

#[cfg(test)]
mod tests;
