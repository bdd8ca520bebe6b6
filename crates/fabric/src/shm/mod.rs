//! True one-sided memory between processes of one machine: each has mapped what the other has
//! registered.
//!
//! A write is a copy by the writer; the other side's processor has no part in it. Immediate values
//! go through a ring in shared memory ([`bell`]), at which the other side sleeps when it has
//! nothing to do.
//!
//! The two pass each other the descriptors of what they have registered, over a socket between
//! processes of one user ([`local`](crate::local)), which stays open for those that are registered
//! later. Neither finds the other's memory by a number or a name.
//!
//! The TCP connection on which the two met stays open beside it: when it ends, a thread that does
//! nothing but wait for that wakes the thread that sleeps here.
//!
//! A process cannot be kept from storing into memory that it has mapped. So a side that takes its
//! memory back says so in that memory ([`bell::Bell::revoke`]), and a side that reads, adds or
//! completes looks there *after* it has done its part: what it was told to have succeeded was in
//! place before. A process that is gone can say nothing; its connection has ended then, and that is
//! checked too.
//!
//! Memory that was taken back and is still mapped has to be moved before it is used further. When
//! the other side has heard of the end it unmaps the memory, and if its process is gone, the kernel
//! has: [`SharedMemory::is_mapped_elsewhere`] knows it.

pub mod bell;

use std::{
    net::{Shutdown, SocketAddr},
    os::{
        fd::{AsFd, OwnedFd},
        unix::net::UnixStream,
    },
    thread,
    time::{Duration, Instant},
};

use freshet_base::{
    sync::{Arc, Ordering},
    words,
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    net::RecvFlags,
};

use self::bell::Bell;
use crate::{
    Access, CompletionQueue, Connected, FabricConfig, FabricKind, Offer, OpenError, Place, QueuePair, REGIONS,
    ReceiveError, RegionKey, SendError, Token, Write, fits, is_word,
    landing::Landing,
    local,
    memory::{Region, Registered, SharedKey, SharedMemory, prefetch},
    stream::Stream,
    tcp::{Connection, Counters},
    too_many,
    watch::watch,
};

/// Where a list goes is asked for this number of writes ahead, and what is read, of reads.
const WRITES_AHEAD: usize = 8;
const READS_AHEAD: usize = 8;
/// Of what is longer, in bytes, the processor sees by itself what comes next.
const SHORT: u64 = 4096;

/// A side that has made its offer.
#[derive(Debug)]
pub(crate) struct Prepared {
    /// Keeps what was offered where it is.
    regions: Vec<Region>,
    bell: Arc<SharedMemory>,
}

fn system(source: std::io::Error) -> OpenError {
    OpenError::System { kind: FabricKind::Shm, source }
}

fn length_of(region: &dyn Registered) -> u64 {
    (region.words().len() * 8) as u64
}

/// What the other side has to be told of `region`.
fn key_of(region: &Region) -> Result<RegionKey, OpenError> {
    let key = SharedKey::of(&**region).ok_or_else(|| OpenError::Missing {
        kind: FabricKind::Shm,
        why: "memory that is to be shared is not a mapping of a file".into(),
    })?;
    Ok(RegionKey { length: length_of(&**region), access: Access::Shm(key) })
}

/// Maps what the other side has passed in `file`.
fn attach(key: &RegionKey, file: OwnedFd) -> Result<Region, OpenError> {
    let Access::Shm(shared) = &key.access else {
        return Err(OpenError::Missing { kind: FabricKind::Shm, why: "the key is of another fabric".into() });
    };
    Ok(Arc::new(shared.attach(file).map_err(OpenError::Attach)?))
}

impl Prepared {
    pub(crate) fn new(regions: Vec<Region>, config: &FabricConfig) -> Result<(Self, Offer), OpenError> {
        let keys = regions.iter().map(key_of).collect::<Result<_, _>>()?;
        let bell = Arc::new(SharedMemory::new(bell::BYTES, config.huge_pages).map_err(system)?);
        let key = SharedKey::of(&*bell).expect("it is a mapping of a file");
        Ok((Self { regions, bell }, Offer { regions: keys, bell: crate::Bell::Shm(key) }))
    }

    pub(crate) fn connect(
        self,
        theirs: &Offer,
        bell: &SharedKey,
        mut connection: Connection,
        config: &FabricConfig,
    ) -> Result<Connected, OpenError> {
        let missing = |why: &str| OpenError::Missing { kind: FabricKind::Shm, why: why.to_owned() };
        let passage = connection.take_passage();
        let passage = passage.ok_or_else(|| missing("the other node is not a process of this user on this machine"))?;
        let files = self.regions.iter().filter_map(|region| region.file()).map(|(file, _)| file);
        let files: Vec<_> = files.chain([self.bell.file().expect("it is a mapping of a file").0]).collect();
        local::pass(&passage, &files).map_err(OpenError::Attach)?;
        let passed = local::take(&passage, config.patience).map_err(OpenError::Attach)?;
        if passed.len() != theirs.regions.len() + 1 {
            return Err(missing("the other process has not passed all that it offers"));
        }
        let mut passed = passed.into_iter();
        let mapped = theirs.regions.iter().zip(&mut passed).map(|(key, file)| attach(key, file));
        let mapped = mapped.collect::<Result<Vec<_>, _>>()?;
        let other = bell.attach(passed.next().expect("they were counted")).map_err(OpenError::Attach)?;
        let other = Arc::new(Bell::new(Arc::new(other)).map_err(OpenError::Attach)?);
        let (stream, peer, _, counters) = connection.into_parts();
        let own = Arc::new(Bell::new(self.bell).map_err(OpenError::Attach)?);
        let bells = (Arc::clone(&own), Arc::clone(&other));
        let ended = move || {
            bells.0.close();
            bells.1.close();
        };
        // Nothing is said there; a thread that says something is not one of us.
        watch(&stream, |_| false, ended).map_err(system)?;
        let passage = Arc::new(passage);
        let queue = ShmQueue {
            regions: mapped,
            landing: Landing::default(),
            bell: Arc::clone(&other),
            peer,
            patience: config.patience,
            stream: stream.clone(),
            passage: Arc::clone(&passage),
            counters: Arc::clone(&counters),
            posted: 0,
        };
        queue.check_wanted().map_err(|_| missing("the other process has ended the connection"))?;
        let completions = ShmCompletions {
            bell: own,
            peer,
            spin: config.spin,
            stream,
            passage,
            regions: self.regions,
            counters: Arc::clone(&counters),
        };
        Ok(Connected { queue: Box::new(queue), completions: Box::new(completions), counters, peer })
    }
}

struct ShmQueue {
    regions: Vec<Region>,
    landing: Landing,
    bell: Arc<Bell>,
    peer: SocketAddr,
    patience: Duration,
    /// Ends with the other process.
    stream: Stream,
    /// What the other side registers later is passed here.
    passage: Arc<UnixStream>,
    counters: Arc<Counters>,
    /// The newest token.
    posted: u64,
}

impl ShmQueue {
    fn region(&self, at: Place, length: u64) -> Result<&Region, SendError> {
        let region = self.regions.get(at.region).filter(|region| fits(at.offset, length, length_of(&***region)));
        region.ok_or(SendError::OutOfBounds { peer: self.peer, region: at.region, offset: at.offset, length })
    }

    /// Asks for memory there, unless it is long: the processor sees by itself what comes next then.
    fn prefetch(&self, at: Place, length: u64) {
        if let (Some(region), true) = (self.regions.get(at.region), length < SHORT) {
            prefetch(region.words(), at.offset as usize, length as usize);
        }
    }

    fn lost(&self) -> SendError {
        SendError::Lost { peer: self.peer, source: std::io::ErrorKind::BrokenPipe.into() }
    }

    /// Says whether what was done counts: not when the other side has taken its memory back since,
    /// or is gone.
    fn confirm(&self) -> Result<(), SendError> {
        if self.bell.is_revoked() || self.bell.is_closed() {
            return Err(self.lost());
        }
        // This process may have been stopped for long, and the thread that hears of the end may not
        // have run yet.
        match rustix::net::recv(self.stream.socket().as_fd(), &mut [0; 1], RecvFlags::PEEK | RecvFlags::DONTWAIT) {
            Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => Ok(()),
            _ => Err(self.lost()),
        }
    }

    /// When this side has mapped what it was passed: whether the other side still has a use for
    /// that. It may have ended in the meantime, and the next one may have looked whether any
    /// process has mapped the memory. A process that ends hangs up with its passage at once.
    fn check_wanted(&self) -> Result<(), SendError> {
        let none = Timespec { tv_sec: 0, tv_nsec: 0 };
        let mut passage = [PollFd::new(&*self.passage, PollFlags::RDHUP)];
        match poll(&mut passage, Some(&none)) {
            Ok(0) => self.confirm(),
            _ => Err(self.lost()),
        }
    }

    /// Copies what one write of a list writes; it is within bounds.
    fn copy(&mut self, write: &Write<'_>) -> Result<(), SendError> {
        self.region(write.to, write.length())?;
        self.landing.put(&self.regions, write);
        Ok(())
    }

    fn ring(&self, immediate: u32) -> Result<(), SendError> {
        let mut deadline = None;
        while !self.bell.ring(immediate) {
            // The other side has not heard of a thousand writes.
            if self.bell.is_closed() {
                return Err(self.lost());
            }
            let now = Instant::now();
            if now > *deadline.get_or_insert(now + self.patience) {
                return Err(SendError::Stalled { peer: self.peer, patience: self.patience });
            }
            thread::sleep(Duration::from_micros(100));
        }
        Ok(())
    }
}

impl QueuePair for ShmQueue {
    fn post(&mut self, list: &[Write<'_>], _signaled: bool) -> Result<Token, SendError> {
        if self.bell.is_closed() || self.bell.is_revoked() {
            return Err(self.lost());
        }
        // A list of one is looked at when it is copied.
        if list.len() > 1 {
            list.iter().try_for_each(|write| self.region(write.to, write.length()).map(drop))?;
        }
        self.counters.sent(list.iter().map(Write::length).sum());
        for (number, write) in list.iter().enumerate() {
            if let Some(later) = list.get(number + WRITES_AHEAD) {
                self.prefetch(later.to, later.length());
            }
            self.copy(write)?;
            write.immediate.map_or(Ok(()), |immediate| self.ring(immediate))?;
        }
        self.posted += 1;
        Ok(Token(self.posted))
    }

    fn completed(&mut self) -> Result<Token, SendError> {
        // Copies are complete when they return, but for what has to be durable.
        self.landing.fence(&self.regions);
        self.confirm().map(|()| Token(self.posted))
    }

    fn wait(&mut self, _token: Token) -> Result<(), SendError> {
        self.completed().map(drop)
    }

    fn read(&mut self, from: Place, into: &mut [u8]) -> Result<(), SendError> {
        self.read_all(&mut [(from, into)])
    }

    fn read_all(&mut self, list: &mut [(Place, &mut [u8])]) -> Result<(), SendError> {
        for number in 0..list.len() {
            if let Some((from, into)) = list.get(number + READS_AHEAD) {
                self.prefetch(*from, into.len() as u64);
            }
            let (from, into) = &mut list[number];
            let region = self.region(*from, into.len() as u64)?;
            words::load(region.words(), from.offset as usize, into);
        }
        self.confirm()
    }

    fn fetch_add(&mut self, at: Place, add: u64) -> Result<u64, SendError> {
        let region = self.region(at, 8)?;
        if !is_word(at.offset, length_of(&**region)) {
            return Err(SendError::OutOfBounds { peer: self.peer, region: at.region, offset: at.offset, length: 8 });
        }
        let before = region.words()[at.offset as usize / 8].fetch_add(add, Ordering::SeqCst);
        self.confirm().map(|()| before)
    }

    fn attach(&mut self, key: &RegionKey) -> Result<usize, OpenError> {
        let mut passed = local::take(&self.passage, self.patience).map_err(OpenError::Attach)?.into_iter();
        let file = match (passed.next(), passed.next()) {
            (Some(file), None) => file,
            _ => return Err(OpenError::Attach(std::io::Error::other("it passes one piece of memory at a time"))),
        };
        self.regions.push(attach(key, file)?);
        self.check_wanted().map_err(|cause| OpenError::Attach(std::io::Error::other(cause)))?;
        Ok(self.regions.len() - 1)
    }

    fn region_length(&self, region: usize) -> u64 {
        self.regions.get(region).map_or(0, |region| length_of(&**region))
    }

    fn is_prompt(&self) -> bool {
        true
    }

    fn has_room(&self, _bytes: u64) -> bool {
        self.bell.has_room()
    }
}

struct ShmCompletions {
    bell: Arc<Bell>,
    peer: SocketAddr,
    spin: Duration,
    stream: Stream,
    /// What is registered later is passed here.
    passage: Arc<UnixStream>,
    /// Keeps what was offered where it is.
    regions: Vec<Region>,
    counters: Arc<Counters>,
}

impl CompletionQueue for ShmCompletions {
    fn next(&mut self, patience: Duration) -> Result<Option<u32>, ReceiveError> {
        let value = self.bell.wait(self.spin, patience);
        if value.is_some() {
            // Relaxed: statistics.
            self.counters.received_frames.fetch_add(1, Ordering::Relaxed);
        }
        if value.is_none() && self.bell.is_closed() {
            return Err(ReceiveError::Closed { peer: self.peer });
        }
        Ok(value)
    }

    fn register(&mut self, region: Region) -> Result<RegionKey, OpenError> {
        if self.regions.len() >= REGIONS {
            return Err(too_many(FabricKind::Shm));
        }
        let key = key_of(&region)?;
        let (file, _) = region.file().expect("its key says where it lies in it");
        local::pass(&self.passage, &[file]).map_err(OpenError::Attach)?;
        self.regions.push(region);
        Ok(key)
    }

    fn revoke(&mut self) {
        self.bell.revoke();
    }
}

impl Drop for ShmCompletions {
    fn drop(&mut self) {
        // Ends the watching thread, here and on the other side.
        self.stream.shut_down(Shutdown::Both);
    }
}

#[cfg(test)]
mod tests;
