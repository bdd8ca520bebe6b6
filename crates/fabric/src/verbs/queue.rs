//! Both ends of a queue pair as the traits of this crate see them.
//!
//! What is written is copied into a *send ring*, registered memory from which the card fetches it,
//! so that who writes can use its own memory again at once. A list becomes a *chain* of work
//! requests, which is posted with one call (Active-Memory, section 4.5.1); several, where it is
//! long. The last of a chain asks for a completion, the others do not: the card completes them in
//! order, and with that one the requests of its chain and their stretches of the ring are free
//! again. No more are posted than the queue has room for; who posts one more waits for the oldest
//! chain.

use std::{
    collections::VecDeque,
    io,
    net::{Shutdown, SocketAddr},
    os::fd::AsFd,
    time::{Duration, Instant},
};

use freshet_base::{
    sync::{Arc, Ordering, fence, hint},
    words,
};

use super::{
    Link,
    device::Memory,
    pair::{Completions, Pair, Request, Work},
    sys::{self, WorkCompletion},
};
use crate::{
    Access, CompletionQueue, FabricKind, OpenError, Place, QueuePair, REGIONS, ReceiveError, RegionKey, SendError,
    Token, Write, fits, is_word, memory::Region, stream::Stream, tcp::Counters, too_many,
};

/// No work request carries more bytes: so a ring of several such is always in use by the card while
/// the next is copied.
pub const LONGEST: usize = 256 << 10;
/// This many completions are taken at once.
const BATCH: usize = 16;
/// No chain has more work requests, so that some are always in use by the card while the next are
/// made.
const CHAIN: usize = 32;

/// Takes completions; where there are none, waits until `until`: looks for `spin`, then sleeps.
/// Returns none at that time, or when the link has ended and everything that completed before was
/// taken.
fn wait(
    completions: &Completions,
    link: &Link,
    spin: Duration,
    until: Instant,
    into: &mut [WorkCompletion],
) -> io::Result<usize> {
    let spin = if spin.is_zero() { None } else { Some(until.min(Instant::now() + spin)) };
    loop {
        // Looked at first: what completed before the end is then found below.
        let over = link.is_over();
        let mut count = completions.poll(into)?;
        if count == 0 && !over && spin.is_some_and(|spin| Instant::now() < spin) {
            for _ in 0..32 {
                hint::spin_loop();
            }
            continue;
        }
        if count == 0 && !over && Instant::now() < until {
            completions.arm()?;
            count = completions.poll(into)?;
            if count == 0 {
                completions.sleep(link.bell(), until)?;
                continue;
            }
        }
        // Acquire: what the card has written before it wrote the completion is seen after this.
        fence(Ordering::Acquire);
        return Ok(count);
    }
}

/// Where a region of the other side lies.
pub(super) struct Remote {
    address: u64,
    key: u32,
    length: u64,
}

impl Remote {
    /// What the other side says of it, if it is possible.
    pub fn of(key: &RegionKey) -> Result<Self, OpenError> {
        let wrong = |why| OpenError::Missing { kind: FabricKind::Verbs, why };
        let (length, Access::Verbs { address, key }) = (key.length, &key.access) else {
            return Err(wrong("the key of the other side's memory is of another fabric".into()));
        };
        if address.checked_add(length).is_none() {
            return Err(wrong(format!("the other side has offered {length} bytes at {address}")));
        }
        Ok(Self { address: *address, key: *key, length })
    }
}

/// A chain.
struct Posted {
    /// The numbers of its work requests.
    first: u64,
    last: u64,
    /// What its last one does.
    work: Work,
    /// Up to here the send ring is free when it has completed.
    ring: u64,
    /// Then this list has completed, too.
    token: u64,
}

pub(super) struct VerbsQueue {
    pub pair: Arc<Pair>,
    pub link: Arc<Link>,
    pub regions: Vec<Remote>,
    /// What is written passes through this.
    pub ring: Memory,
    /// What is read arrives here.
    pub arrivals: Memory,
    pub peer: SocketAddr,
    pub patience: Duration,
    pub spin: Duration,
    pub counters: Arc<Counters>,
    pub state: State,
}

/// What changes while it is used.
#[derive(Default)]
pub(super) struct State {
    /// Made, and not posted yet.
    chain: Vec<Request>,
    posted: VecDeque<Posted>,
    /// How many work requests those are.
    under_way: usize,
    /// The next work request's number.
    next: u64,
    /// Bytes of the ring that were ever used, and that are free again.
    head: u64,
    tail: u64,
    /// The newest list, and the newest that has completed.
    token: u64,
    completed: u64,
}

impl VerbsQueue {
    fn lost(&self) -> SendError {
        let source = self.link.cause().map_or_else(|| io::ErrorKind::BrokenPipe.into(), io::Error::other);
        SendError::Lost { peer: self.peer, source }
    }

    fn stalled(&self) -> SendError {
        SendError::Stalled { peer: self.peer, patience: self.patience }
    }

    /// The connection is over; if that was because something failed here, says what.
    fn over(&mut self) -> SendError {
        while self.link.cause().is_none() && matches!(self.reap(None), Ok(true)) {}
        self.lost()
    }

    fn broken(&mut self, why: impl Into<String>) -> SendError {
        self.link.fail(why.into());
        self.lost()
    }

    fn remote(&self, at: Place, length: u64) -> Result<(u64, u32), SendError> {
        let out = SendError::OutOfBounds { peer: self.peer, region: at.region, offset: at.offset, length };
        let region = self.regions.get(at.region).filter(|region| fits(at.offset, length, region.length)).ok_or(out)?;
        // Checked when they were connected: a region ends below 2^64.
        Ok((region.address + at.offset, region.key))
    }

    /// Fails when this is of no more use; waits until the other side is ready for the first packet.
    fn usable(&mut self) -> Result<(), SendError> {
        if self.link.is_over() {
            return Err(self.over());
        }
        match self.link.ready(self.patience) {
            Some(true) => Ok(()),
            Some(false) => Err(self.over()),
            None => Err(self.stalled()),
        }
    }

    /// Takes completions; with `until`, waits for one. False: none came.
    fn reap(&mut self, until: Option<Instant>) -> Result<bool, SendError> {
        let mut completed = [WorkCompletion::default(); BATCH];
        let count = match until {
            None => self.pair.sent.poll(&mut completed),
            Some(until) => wait(&self.pair.sent, &self.link, self.spin, until, &mut completed),
        };
        let count = count.map_err(|error| self.broken(error.to_string()))?;
        for completion in &completed[..count] {
            let Some(oldest) = self.state.posted.pop_front() else {
                return Err(self.broken("something completed that was not posted"));
            };
            self.state.under_way -= (oldest.last + 1 - oldest.first) as usize;
            if completion.status == sys::FLUSHED && self.link.is_over() {
                return Err(self.lost());
            }
            if completion.status != sys::SUCCESS {
                let why = self.pair.device().status(completion.status);
                return Err(self.broken(format!("{:?} failed: {why}", oldest.work)));
            }
            if completion.id != oldest.last
                || completion.operation != oldest.work.completes_as()
                || completion.queue_pair != self.pair.number()
            {
                return Err(self.broken("another work request completed than was next"));
            }
            self.state.tail = oldest.ring;
            self.state.completed = self.state.completed.max(oldest.token);
        }
        Ok(count > 0)
    }

    /// Waits until one more work request has room, and `length` bytes of the ring are free from
    /// where it says. Posts the chain if it is in the way.
    fn room(&mut self, length: usize) -> Result<usize, SendError> {
        let size = size_of_val(self.ring.region().words()) as u64;
        let at = self.state.head % size;
        // A stretch lies in one piece, and shares no word with another.
        let skip = if at + length as u64 > size { size - at } else { 0 };
        let begin = self.state.head + skip;
        let end = (begin + length as u64).next_multiple_of(8);
        if self.state.chain.len() == CHAIN.min(self.pair.depth()) {
            self.post_chain(Self::ring)?;
        }
        self.reap(None)?;
        while self.state.under_way + self.state.chain.len() >= self.pair.depth() || end > self.state.tail + size {
            self.post_chain(Self::ring)?;
            self.await_one()?;
        }
        self.state.head = end;
        Ok((begin % size) as usize)
    }

    fn ring(&self) -> &Memory {
        &self.ring
    }

    fn arrivals(&self) -> &Memory {
        &self.arrivals
    }

    /// Waits until something that was posted completes.
    fn await_one(&mut self) -> Result<(), SendError> {
        if self.reap(Some(Instant::now() + self.patience))? {
            return Ok(());
        }
        if self.link.is_over() {
            return Err(self.lost());
        }
        // Whatever is still posted would come too late.
        self.broken(format!("nothing completed for {:?}", self.patience));
        Err(self.stalled())
    }

    /// Posts the requests that were made, if there are any; they all are about this memory.
    fn post_chain(&mut self, memory: fn(&Self) -> &Memory) -> Result<(), SendError> {
        let Some(&Request { work, .. }) = self.state.chain.last() else { return Ok(()) };
        let count = self.state.chain.len();
        let (first, last) = (self.state.next, self.state.next + count as u64 - 1);
        // Release: what was copied is in place before the card is told of it.
        fence(Ordering::Release);
        let posted = self.pair.post(last, memory(self), &self.state.chain);
        posted.map_err(|error| self.broken(format!("{work:?} cannot be posted: {error}")))?;
        let state = &mut self.state;
        state.chain.clear();
        state.next += count as u64;
        state.under_way += count;
        // The list that is being made has not been posted wholly before it has its token.
        state.posted.push_back(Posted { first, last, work, ring: state.head, token: state.token });
        Ok(())
    }

    /// Makes the requests of one write of a list; of the last the other side hears, if it is to
    /// (Query Fresh, section 3.1, step 1).
    fn make(&mut self, write: &Write<'_>) -> Result<(), SendError> {
        let length = write.length() as usize;
        let (mut address, key) = self.remote(write.to, length as u64)?;
        let mut pieces = write.pieces.iter().copied();
        let mut piece: &[u8] = &[];
        let mut left = length;
        while left > 0 || write.immediate.is_some() {
            let stretch = left.min(LONGEST);
            let at = self.room(stretch)?;
            let mut filled = 0;
            while filled < stretch {
                if piece.is_empty() {
                    piece = pieces.next().expect("the pieces are as long as their sum");
                    continue;
                }
                let (now, later) = piece.split_at(piece.len().min(stretch - filled));
                words::store(self.ring.region().words(), at + filled, now);
                filled += now.len();
                piece = later;
            }
            left -= stretch;
            let work = match write.immediate {
                Some(value) if left == 0 => Work::WriteWithImm(value),
                _ => Work::Write,
            };
            self.state.chain.push(Request { work, at, length: stretch, remote: (address, key) });
            address += stretch as u64;
            if left == 0 {
                break;
            }
        }
        self.counters.sent(length as u64);
        Ok(())
    }

    /// Posts requests about `arrivals`, no more than a chain has, and waits for them.
    fn fetch(&mut self, requests: &[Request]) -> Result<(), SendError> {
        self.reap(None)?;
        while self.state.under_way + requests.len() > self.pair.depth() {
            self.await_one()?;
        }
        self.state.chain.extend_from_slice(requests);
        self.post_chain(Self::arrivals)?;
        self.finished(self.state.next - 1)
    }

    /// Waits for the work request `id`, and with it for everything that was posted before.
    fn finished(&mut self, id: u64) -> Result<(), SendError> {
        while self.state.posted.front().is_some_and(|oldest| oldest.first <= id) {
            self.await_one()?;
        }
        Ok(())
    }
}

impl QueuePair for VerbsQueue {
    /// Each chain asks for a completion in any case, for the sake of the ring.
    fn post(&mut self, list: &[Write<'_>], _signaled: bool) -> Result<Token, SendError> {
        for write in list {
            self.remote(write.to, write.length())?;
        }
        if self.link.is_over() {
            return Err(self.over());
        }
        if !list.is_empty() {
            self.usable()?;
        }
        for write in list {
            self.make(write)?;
        }
        self.state.token += 1;
        self.post_chain(Self::ring)?;
        let token = self.state.token;
        match self.state.posted.back_mut() {
            Some(newest) => newest.token = token,
            None => self.state.completed = token,
        }
        Ok(Token(token))
    }

    fn completed(&mut self) -> Result<Token, SendError> {
        if self.link.is_over() {
            return Err(self.over());
        }
        while self.reap(None)? {}
        Ok(Token(self.state.completed))
    }

    fn wait(&mut self, token: Token) -> Result<(), SendError> {
        if self.link.is_over() {
            return Err(self.over());
        }
        while self.state.completed < token.0 {
            self.await_one()?;
        }
        Ok(())
    }

    fn read(&mut self, from: Place, into: &mut [u8]) -> Result<(), SendError> {
        self.read_all(&mut [(from, into)])
    }

    /// As many at once as a chain has, and as there is room for where they arrive.
    fn read_all(&mut self, list: &mut [(Place, &mut [u8])]) -> Result<(), SendError> {
        let (size, chain) = (size_of_val(self.arrivals.region().words()), CHAIN.min(self.pair.depth()));
        let mut parts = Vec::new();
        for (from, into) in list {
            let (address, key) = self.remote(*from, into.len() as u64)?;
            let part = |(number, part)| ((address + (number * size) as u64, key), part);
            parts.extend(into.chunks_mut(size).enumerate().map(part));
        }
        self.usable()?;
        let mut parts = parts.into_iter().peekable();
        while parts.peek().is_some() {
            let (mut requests, mut arriving, mut end) = (Vec::new(), Vec::new(), 0);
            while let Some((remote, part)) =
                parts.next_if(|(_, part)| requests.len() < chain && end + part.len() <= size)
            {
                requests.push(Request { work: Work::Read, at: end, length: part.len(), remote });
                end = (end + part.len()).next_multiple_of(8);
                arriving.push(part);
            }
            self.fetch(&requests)?;
            for (request, part) in requests.iter().zip(arriving) {
                words::load(self.arrivals.region().words(), request.at, part);
            }
        }
        Ok(())
    }

    fn fetch_add(&mut self, at: Place, add: u64) -> Result<u64, SendError> {
        let remote = self.remote(at, 8)?;
        if !is_word(at.offset, self.region_length(at.region)) {
            return Err(SendError::OutOfBounds { peer: self.peer, region: at.region, offset: at.offset, length: 8 });
        }
        if !self.pair.device().has_atomics() {
            return Err(SendError::Lost { peer: self.peer, source: io::ErrorKind::Unsupported.into() });
        }
        self.usable()?;
        self.fetch(&[Request { work: Work::FetchAdd(add), at: 0, length: 8, remote }])?;
        // Relaxed: the fence after its completion was taken orders it.
        Ok(self.arrivals.region().words()[0].load(Ordering::Relaxed))
    }

    fn attach(&mut self, key: &RegionKey) -> Result<usize, OpenError> {
        if self.regions.len() >= REGIONS {
            return Err(too_many(FabricKind::Verbs));
        }
        self.regions.push(Remote::of(key)?);
        Ok(self.regions.len() - 1)
    }

    fn farewell(&mut self, patience: Duration) {
        self.patience = self.patience.min(patience);
        // An error means that nothing more arrives.
        let _ = QueuePair::complete(self);
    }

    fn region_length(&self, region: usize) -> u64 {
        self.regions.get(region).map_or(0, |region| region.length)
    }

    fn is_prompt(&self) -> bool {
        true
    }

    fn has_room(&self, _bytes: u64) -> bool {
        // A queue that fills is one whose card gets no answers: soon somebody would wait for room.
        let ring = size_of_val(self.ring.region().words()) as u64;
        self.state.under_way * 2 <= self.pair.depth() && (self.state.head - self.state.tail) * 2 <= ring
    }
}

impl Drop for VerbsQueue {
    fn drop(&mut self) {
        // What was written still arrives.
        if QueuePair::complete(self).is_err() {
            // The card must not fetch from memory that goes away.
            self.pair.end();
        }
    }
}

pub(super) struct VerbsCompletions {
    pub pair: Arc<Pair>,
    pub link: Arc<Link>,
    pub stream: Stream,
    pub peer: SocketAddr,
    pub spin: Duration,
    pub counters: Arc<Counters>,
    /// Taken from the card and not yet handed out.
    pub arrived: VecDeque<u32>,
    /// What came after those.
    pub broken: Option<ReceiveError>,
}

impl VerbsCompletions {
    fn lost(&self, source: io::Error) -> ReceiveError {
        ReceiveError::Lost { peer: self.peer, source }
    }

    /// The connection is over: something has failed here, or the other side has closed it.
    fn ended(&self) -> ReceiveError {
        let why = self.link.cause().map(io::Error::other);
        why.map_or(ReceiveError::Closed { peer: self.peer }, |why| self.lost(why))
    }

    /// A receive has ended with this status. If it was only flushed, something else has failed
    /// before: what this side has posted, most likely; the other side may not have heard of it yet.
    fn fail(&self, status: u32) {
        let mut completed = [WorkCompletion::default(); BATCH];
        // A thread that posts has no use for these completions any more: nothing can be posted
        // after an error.
        while let Ok(count @ 1..) = self.pair.sent.poll(&mut completed) {
            let failed = |it: &&WorkCompletion| ![sys::SUCCESS, sys::FLUSHED].contains(&it.status);
            if let Some(failed) = completed[..count].iter().find(failed) {
                return self.link.fail(self.pair.device().status(failed.status));
            }
        }
        self.link.fail(format!("a receive failed: {}", self.pair.device().status(status)));
    }

    fn take(&mut self, completion: &WorkCompletion) -> Result<u32, ReceiveError> {
        if completion.status != sys::SUCCESS {
            if !self.link.is_over() {
                self.fail(completion.status);
            }
            return Err(self.ended());
        }
        if completion.queue_pair != self.pair.number() {
            return Err(self.lost(io::Error::other("something was received by another queue pair")));
        }
        if completion.operation != sys::RECEIVED_WITH_IMM || completion.flags & sys::WITH_IMMEDIATE == 0 {
            let why = "it sends messages instead of writing with immediate values".into();
            return Err(ReceiveError::Violation { peer: self.peer, why });
        }
        // Of what came before the end nothing is lost for want of room for more.
        match self.pair.post_receive() {
            Err(source) if !self.link.is_over() => return Err(self.lost(source)),
            _ => {}
        }
        // Relaxed: statistics. Of writes without an immediate value nobody hears here.
        self.counters.received_frames.fetch_add(1, Ordering::Relaxed);
        self.counters.received_bytes.fetch_add(u64::from(completion.length), Ordering::Relaxed);
        Ok(u32::from_be(completion.immediate))
    }
}

impl CompletionQueue for VerbsCompletions {
    fn next(&mut self, patience: Duration) -> Result<Option<u32>, ReceiveError> {
        if let Some(value) = self.arrived.pop_front() {
            return Ok(Some(value));
        }
        if let Some(error) = self.broken.take() {
            self.broken = Some(ReceiveError::Closed { peer: self.peer });
            return Err(error);
        }
        let now = Instant::now();
        let until = now.checked_add(patience).unwrap_or(now + Duration::from_secs(1 << 30));
        let mut completed = [WorkCompletion::default(); BATCH];
        let count = wait(&self.pair.received, &self.link, self.spin, until, &mut completed);
        let count = count.map_err(|source| self.lost(source))?;
        for completion in &completed[..count] {
            match self.take(completion) {
                Ok(value) => self.arrived.push_back(value),
                Err(error) => {
                    self.broken = Some(error);
                    break;
                }
            }
        }
        match (self.arrived.pop_front(), self.broken.take()) {
            (Some(value), broken) => {
                self.broken = broken;
                Ok(Some(value))
            }
            (None, Some(error)) => {
                self.broken = Some(ReceiveError::Closed { peer: self.peer });
                Err(error)
            }
            (None, None) if self.link.is_over() => Err(self.ended()),
            (None, None) => Ok(None),
        }
    }

    fn register(&mut self, region: Region) -> Result<RegionKey, OpenError> {
        let memory = Memory::new(self.pair.device(), region, true)?;
        let key = memory.offered();
        if self.pair.offer(memory, REGIONS) { Ok(key) } else { Err(too_many(FabricKind::Verbs)) }
    }

    fn revoke(&mut self) {
        self.link.end();
        // From here on the other side reaches nothing of ours, even if another owner still holds
        // the memory.
        self.pair.take_back();
    }
}

impl Drop for VerbsCompletions {
    fn drop(&mut self) {
        self.revoke();
        // Ends the watching thread, here and on the other side. An error means that it is closed
        // already.
        self.stream.shut_down(Shutdown::Both);
    }
}

impl Link {
    fn bell(&self) -> std::os::fd::BorrowedFd<'_> {
        self.bell.as_fd()
    }
}
