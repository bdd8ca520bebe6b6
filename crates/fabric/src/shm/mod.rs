//! True one-sided memory between processes of one machine: each has mapped what the other has
//! registered.
//!
//! A write is a copy by the writer; the other side's processor has no part in it. Immediate values
//! go through a ring in shared memory ([`bell`]), at which the other side sleeps when it has
//! nothing to do.
//!
//! The two pass each other the descriptors of what they have registered, over a socket between
//! processes of one user ([`local`](crate::local)). Neither finds the other's memory by a number or
//! a name.
//!
//! The TCP connection on which the two met stays open beside it: when it ends, a thread that does
//! nothing but wait for that wakes the thread that sleeps here.
//!
//! A process cannot be kept from storing into memory that it has mapped. So a side that takes its
//! memory back says so in that memory ([`bell::Bell::revoke`]), and a side that reads, adds or
//! completes looks there *after* it has done its part: what it was told to have succeeded was in
//! place before. A process that is gone can say nothing; its connection has ended then, and that is
//! checked too.

pub mod bell;

use std::{
    net::{Shutdown, SocketAddr},
    os::fd::AsFd,
    thread,
    time::{Duration, Instant},
};

use freshet_base::{
    sync::{Arc, Ordering},
    words,
};

use rustix::net::RecvFlags;

use self::bell::Bell;
use crate::{
    Access, CompletionQueue, Connected, FabricConfig, FabricKind, Offer, OpenError, Place, QueuePair, ReceiveError,
    RegionKey, SendError, fits, local,
    memory::{Region, Registered, SharedKey, SharedMemory, store_around},
    stream::Stream,
    tcp::{Connection, Counters},
    watch::watch,
};

/// Pieces from this length on, in bytes, are copied around the caches.
const AROUND: usize = 4096;

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

impl Prepared {
    pub(crate) fn new(regions: Vec<Region>, config: &FabricConfig) -> Result<(Self, Offer), OpenError> {
        let mut keys = Vec::new();
        for region in &regions {
            let key = SharedKey::of(&**region).ok_or_else(|| OpenError::Missing {
                kind: FabricKind::Shm,
                why: "memory that is to be shared is not a mapping of a file".into(),
            })?;
            keys.push(RegionKey { length: (region.words().len() * 8) as u64, access: Access::Shm(key) });
        }
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
        let mut attach =
            |key: &SharedKey| key.attach(passed.next().expect("they were counted")).map_err(OpenError::Attach);
        let mut mapped = Vec::new();
        for region in &theirs.regions {
            let Access::Shm(key) = &region.access else {
                return Err(OpenError::OtherFabric { ours: FabricKind::Shm, theirs: theirs.kind() });
            };
            mapped.push(attach(key)?);
        }
        let other = Arc::new(Bell::new(Arc::new(attach(bell)?)).map_err(OpenError::Attach)?);
        let (stream, peer, _, counters) = connection.into_parts();
        let own = Arc::new(Bell::new(self.bell).map_err(OpenError::Attach)?);
        let bells = (Arc::clone(&own), Arc::clone(&other));
        let ended = move || {
            bells.0.close();
            bells.1.close();
        };
        // Nothing is said there; a thread that says something is not one of us.
        watch(&stream, |_| false, ended).map_err(system)?;
        let queue = ShmQueue {
            regions: mapped,
            bell: Arc::clone(&other),
            peer,
            patience: config.patience,
            stream: stream.clone(),
            counters: Arc::clone(&counters),
        };
        let completions = ShmCompletions {
            bell: own,
            peer,
            spin: config.spin,
            stream,
            _regions: self.regions,
            counters: Arc::clone(&counters),
        };
        Ok(Connected { queue: Box::new(queue), completions: Box::new(completions), counters, peer })
    }
}

struct ShmQueue {
    regions: Vec<SharedMemory>,
    bell: Arc<Bell>,
    peer: SocketAddr,
    patience: Duration,
    /// Ends with the other process.
    stream: Stream,
    counters: Arc<Counters>,
}

impl ShmQueue {
    fn region(&self, at: Place, length: u64) -> Result<&SharedMemory, SendError> {
        let out = SendError::OutOfBounds { peer: self.peer, region: at.region, offset: at.offset, length };
        let region = self.regions.get(at.region);
        region.filter(|region| fits(at.offset, length, (region.words().len() * 8) as u64)).ok_or(out)
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

    fn copy(&self, to: Place, pieces: &[&[u8]]) -> Result<(), SendError> {
        if self.bell.is_closed() || self.bell.is_revoked() {
            return Err(self.lost());
        }
        let length = pieces.iter().map(|piece| piece.len() as u64).sum();
        let region = self.region(to, length)?;
        let mut at = to.offset as usize;
        for piece in pieces {
            // What is long is not worth a place in this processor's caches; what is short is looked
            // at at once over there.
            if piece.len() >= AROUND && piece.len().is_multiple_of(8) && at.is_multiple_of(8) {
                store_around(region.words(), at, piece);
            } else {
                words::store(region.words(), at, piece);
            }
            at += piece.len();
        }
        self.counters.sent(length);
        Ok(())
    }
}

impl QueuePair for ShmQueue {
    fn write(&mut self, to: Place, pieces: &[&[u8]]) -> Result<(), SendError> {
        self.copy(to, pieces)
    }

    fn write_with_imm(&mut self, to: Place, pieces: &[&[u8]], immediate: u32) -> Result<(), SendError> {
        self.copy(to, pieces)?;
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

    fn read(&mut self, from: Place, into: &mut [u8]) -> Result<(), SendError> {
        let region = self.region(from, into.len() as u64)?;
        words::load(region.words(), from.offset as usize, into);
        self.confirm()
    }

    fn fetch_add(&mut self, at: Place, add: u64) -> Result<u64, SendError> {
        let region = self.region(at, 8)?;
        let before = region.words()[at.offset as usize / 8].fetch_add(add, Ordering::SeqCst);
        self.confirm().map(|()| before)
    }

    fn complete(&mut self) -> Result<(), SendError> {
        // Copies are complete when they return.
        self.confirm()
    }

    fn region_length(&self, region: usize) -> u64 {
        self.regions.get(region).map_or(0, |region| (region.words().len() * 8) as u64)
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
    _regions: Vec<Region>,
    counters: Arc<Counters>,
}

impl CompletionQueue for ShmCompletions {
    fn next(&mut self, patience: Duration) -> Result<Option<u32>, ReceiveError> {
        let heard = self.bell.hear(self.spin, patience);
        if heard.is_some() {
            // Relaxed: statistics.
            self.counters.received_frames.fetch_add(1, Ordering::Relaxed);
        }
        if heard.is_none() && self.bell.is_closed() {
            return Err(ReceiveError::Closed { peer: self.peer });
        }
        Ok(heard)
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
