//! Both ends of a queue pair as the traits of this crate see them.
//!
//! What is written is copied into a *send ring*, registered memory from which the card fetches it,
//! so that who writes can use its own memory again at once. Every work request asks for a
//! completion: the card completes them in order, and with each the stretch of the ring is free
//! again. No more are posted than the queue has room for; who posts one more waits for the oldest.

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
    pair::{Completions, Pair, Stretch, Work},
    sys::{self, WorkCompletion},
};
use crate::{CompletionQueue, Place, QueuePair, ReceiveError, SendError, fits, stream::Stream, tcp::Counters};

/// No work request carries more bytes: so a ring of several such is always in use by the card while
/// the next is copied.
pub const LONGEST: usize = 256 << 10;
/// This many completions are taken at once.
const BATCH: usize = 16;

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
    pub address: u64,
    pub key: u32,
    pub length: u64,
}

struct Posted {
    id: u64,
    work: Work,
    /// Up to here the send ring is free when it has completed.
    ring: u64,
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
    posted: VecDeque<Posted>,
    /// The next work request's number.
    next: u64,
    /// Bytes of the ring that were ever used, and that are free again.
    head: u64,
    tail: u64,
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
            if completion.status == sys::FLUSHED && self.link.is_over() {
                return Err(self.lost());
            }
            if completion.status != sys::SUCCESS {
                let why = self.pair.device().status(completion.status);
                return Err(self.broken(format!("{:?} failed: {why}", oldest.work)));
            }
            if completion.id != oldest.id
                || completion.operation != oldest.work.completes_as()
                || completion.queue_pair != self.pair.number()
            {
                return Err(self.broken("another work request completed than was next"));
            }
            self.state.tail = oldest.ring;
        }
        Ok(count > 0)
    }

    /// Waits until so few are posted that one more has room, and `length` bytes of the ring are
    /// free from where it says.
    fn room(&mut self, length: usize) -> Result<usize, SendError> {
        let size = size_of_val(self.ring.region().words()) as u64;
        let at = self.state.head % size;
        // A stretch lies in one piece.
        let skip = if at + length as u64 > size { size - at } else { 0 };
        let end = self.state.head + skip + length as u64;
        self.reap(None)?;
        while self.state.posted.len() >= self.pair.depth() || end > self.state.tail + size {
            self.await_one()?;
        }
        self.state.head = end;
        Ok(((end - length as u64) % size) as usize)
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

    fn post(
        &mut self,
        work: Work,
        local: fn(&Self) -> &Memory,
        at: usize,
        length: usize,
        remote: (u64, u32),
    ) -> Result<u64, SendError> {
        let id = self.state.next;
        // Release: what was copied is in place before the card is told of it.
        fence(Ordering::Release);
        let posted = self.pair.post(id, work, Stretch { memory: local(self), at, length }, remote);
        posted.map_err(|error| self.broken(format!("{work:?} cannot be posted: {error}")))?;
        self.state.next += 1;
        self.state.posted.push_back(Posted { id, work, ring: self.state.head });
        Ok(id)
    }

    /// Writes; of the last stretch the other side hears `immediate`, if there is one (Query Fresh,
    /// section 3.1, step 1).
    fn write(&mut self, to: Place, pieces: &[&[u8]], immediate: Option<u32>) -> Result<(), SendError> {
        let length = pieces.iter().map(|piece| piece.len()).sum::<usize>();
        let (mut address, key) = self.remote(to, length as u64)?;
        self.usable()?;
        let mut pieces = pieces.iter().copied();
        let mut piece: &[u8] = &[];
        let mut left = length;
        while left > 0 || immediate.is_some() {
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
            let work = match immediate {
                Some(value) if left == 0 => Work::WriteWithImm(value),
                _ => Work::Write,
            };
            self.post(work, |queue| &queue.ring, at, stretch, (address, key))?;
            address += stretch as u64;
            if left == 0 {
                break;
            }
        }
        self.counters.sent(length as u64);
        Ok(())
    }

    /// Waits for `id`, and with it for everything that was posted before.
    fn completed(&mut self, id: u64) -> Result<(), SendError> {
        while self.state.posted.front().is_some_and(|oldest| oldest.id <= id) {
            self.await_one()?;
        }
        Ok(())
    }
}

impl QueuePair for VerbsQueue {
    fn write(&mut self, to: Place, pieces: &[&[u8]]) -> Result<(), SendError> {
        self.write(to, pieces, None)
    }

    fn write_with_imm(&mut self, to: Place, pieces: &[&[u8]], immediate: u32) -> Result<(), SendError> {
        self.write(to, pieces, Some(immediate))
    }

    fn read(&mut self, from: Place, into: &mut [u8]) -> Result<(), SendError> {
        let (mut address, key) = self.remote(from, into.len() as u64)?;
        self.usable()?;
        for part in into.chunks_mut(size_of_val(self.arrivals.region().words())) {
            self.room(0)?;
            let id = self.post(Work::Read, |queue| &queue.arrivals, 0, part.len(), (address, key))?;
            self.completed(id)?;
            words::load(self.arrivals.region().words(), 0, part);
            address += part.len() as u64;
        }
        Ok(())
    }

    fn fetch_add(&mut self, at: Place, add: u64) -> Result<u64, SendError> {
        let remote = self.remote(at, 8)?;
        if !self.pair.device().has_atomics() {
            return Err(SendError::Lost { peer: self.peer, source: io::ErrorKind::Unsupported.into() });
        }
        self.usable()?;
        self.room(0)?;
        let id = self.post(Work::FetchAdd(add), |queue| &queue.arrivals, 0, 8, remote)?;
        self.completed(id)?;
        // Relaxed: the fence after its completion was taken orders it.
        Ok(self.arrivals.region().words()[0].load(Ordering::Relaxed))
    }

    fn complete(&mut self) -> Result<(), SendError> {
        if self.link.is_over() {
            return Err(self.over());
        }
        while !self.state.posted.is_empty() {
            self.await_one()?;
        }
        Ok(())
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
        self.state.posted.len() * 2 <= self.pair.depth() && (self.state.head - self.state.tail) * 2 <= ring
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
    /// Taken from the card and not yet heard of.
    pub heard: VecDeque<u32>,
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
        if let Some(value) = self.heard.pop_front() {
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
                Ok(value) => self.heard.push_back(value),
                Err(error) => {
                    self.broken = Some(error);
                    break;
                }
            }
        }
        match (self.heard.pop_front(), self.broken.take()) {
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

    fn revoke(&mut self) {
        self.link.end();
        // From here on the other side reaches nothing of ours, even if another owner still holds
        // the memory; the card tells it so at each request.
        self.pair.end();
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
