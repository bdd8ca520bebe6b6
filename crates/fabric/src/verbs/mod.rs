//! RDMA: reliable connected queue pairs of libibverbs (Query Fresh, sections 2.2 and 3.1).
//!
//! A side registers its memory with the card and offers address and key of each region; connected,
//! the other side's card writes there, reads, and adds, and no processor of this side has a part in
//! it. Immediate values complete receives that are posted ahead of them.
//!
//! A completion says that what was written has reached the other side's memory or its caches, not
//! that it is persistent there (section 2.3). Both ways to get there are the business of who uses
//! this: reading back after writing, with caches that the card bypasses
//! ([`QueuePair::read`](crate::QueuePair::read), the "appliance" method), or an acknowledgement by
//! the other side after it has flushed (the "general-purpose server" method).
//!
//! The TCP connection on which the two met stays open beside it. Each side says one byte on it when
//! its queue pair can receive, for which the other waits before its first packet: a packet that
//! comes too early would be lost, and sent again only after a time-out. After that nothing is said,
//! and when the connection ends, the queue pair goes into its error state: nothing of this side's
//! memory can be reached any more.
//!
//! A link that is cut is noticed by who sends: the card tries again and again for about the
//! `patience` of the configuration, and then completes with an error
//! ([`SendError::Lost`](crate::SendError::Lost)).

mod device;
mod pair;
mod queue;
mod sys;

use std::{
    collections::VecDeque,
    hash::{BuildHasher, RandomState},
    io::{self, IoSlice},
    os::fd::OwnedFd,
    time::{Duration, Instant},
};

use freshet_base::sync::{Arc, AtomicBool, Condvar, Mutex, Ordering};

use self::{
    device::{Device, Memory},
    pair::{Other, Pair, RETRIES},
    queue::{LONGEST, Remote, State, VerbsCompletions, VerbsQueue},
};
use crate::{
    Bell, Connected, FabricConfig, FabricKind, Offer, OpenError,
    memory::{Region, SharedMemory},
    tcp::Connection,
    watch::watch,
};

/// Work requests that were posted and have not completed.
const DEPTH: u32 = 256;
/// Immediate values that were not heard of. Who sends more waits.
const RECEIVES: u32 = 1024;
/// What is written passes through a ring of this many bytes: a huge page.
const RING: usize = 2 << 20;
/// What is read at once.
const ARRIVALS: usize = 64 << 10;
/// What a side says when it can receive.
const READY: u8 = b'R';
/// Of queue pair numbers and of sequence numbers, the bits that there are.
const BITS_24: u32 = (1 << 24) - 1;

const _: () = assert!(RING >= 4 * LONGEST);

fn system(source: io::Error) -> OpenError {
    OpenError::System { kind: FabricKind::Verbs, source }
}

/// The name of the first RDMA device of this machine whose port is up, or why none exists.
///
/// # Errors
/// [`OpenError`].
pub fn probe(config: &FabricConfig) -> Result<String, OpenError> {
    Device::open(config).map(|device| device.name().to_owned())
}

/// A side that has made its offer.
#[derive(Debug)]
pub(crate) struct Prepared {
    pair: Pair,
    sequence: u32,
}

impl Prepared {
    pub(crate) fn new(regions: Vec<Region>, config: &FabricConfig) -> Result<(Self, Offer), OpenError> {
        let device = Device::open(config)?;
        let memories = regions.into_iter().map(|region| Memory::new(&device, region, true));
        let memories = memories.collect::<Result<Vec<_>, _>>()?;
        let regions = memories.iter().map(Memory::offered).collect();
        let pair = Pair::new(&device, memories, DEPTH, RECEIVES)?;
        // By chance, so that a late packet of an earlier connection is none of this one.
        let sequence = RandomState::new().hash_one(pair.number()) as u32 & BITS_24;
        let bell = Bell::Verbs {
            queue_pair: pair.number(),
            sequence,
            gid: device.gid(),
            lid: device.lid(),
            mtu: device.mtu(),
        };
        Ok((Self { pair, sequence }, Offer { regions, bell }))
    }

    pub(crate) fn connect(
        self,
        theirs: &Offer,
        connection: Connection,
        config: &FabricConfig,
    ) -> Result<Connected, OpenError> {
        let (other, regions) = understand(theirs)?;
        let device = self.pair.device();
        let own = |bytes| {
            let memory = SharedMemory::new(bytes, config.huge_pages).map_err(system)?;
            Memory::new(device, std::sync::Arc::new(memory), false)
        };
        let (ring, arrivals) = (own(RING)?, own(ARRIVALS)?);
        self.pair.connect(&other, self.sequence, timeout(config.patience))?;
        let (stream, peer, ahead, counters) = connection.into_parts();
        let link = Arc::new(Link::new().map_err(system)?);
        let pair = Arc::new(self.pair);
        stream.write_all(&mut [IoSlice::new(&[READY])], false).map_err(system)?;
        for byte in ahead {
            if !link.receive(byte) {
                link.end();
            }
        }
        let (receives, ends, ended) = (Arc::clone(&link), Arc::clone(&link), Arc::clone(&pair));
        let end = move || {
            ends.end();
            ended.end();
        };
        watch(&stream, move |byte| receives.receive(byte), end).map_err(system)?;
        let queue = VerbsQueue {
            pair: Arc::clone(&pair),
            link: Arc::clone(&link),
            regions,
            ring,
            arrivals,
            peer,
            patience: config.patience,
            spin: config.spin,
            counters: Arc::clone(&counters),
            state: State::default(),
        };
        let completions = VerbsCompletions {
            pair,
            link,
            stream,
            peer,
            spin: config.spin,
            counters: Arc::clone(&counters),
            arrived: VecDeque::new(),
            broken: None,
        };
        Ok(Connected { queue: Box::new(queue), completions: Box::new(completions), counters, peer })
    }
}

/// What the other side offers, if it is possible.
fn understand(theirs: &Offer) -> Result<(Other, Vec<Remote>), OpenError> {
    let foreign = || OpenError::OtherFabric { ours: FabricKind::Verbs, theirs: theirs.kind() };
    let Bell::Verbs { queue_pair, sequence, gid, lid, mtu } = theirs.bell else { return Err(foreign()) };
    let wrong = |why: String| OpenError::Missing { kind: FabricKind::Verbs, why: format!("the other side has {why}") };
    if queue_pair > BITS_24 || sequence > BITS_24 || !(1..=5).contains(&mtu) {
        return Err(wrong(format!(
            "offered queue pair {queue_pair} with sequence {sequence} and packets of size {mtu}"
        )));
    }
    let regions = theirs.regions.iter().map(Remote::of).collect::<Result<_, _>>()?;
    Ok((Other { number: queue_pair, sequence, gid, lid, mtu }, regions))
}

/// How long the card waits for an acknowledgement, as the verbs number it: after all its attempts,
/// `patience` has about passed. (Cards take up to four times as long as they are told.)
fn timeout(patience: Duration) -> u8 {
    let attempt = patience / (u32::from(RETRIES) + 1);
    // From 67 ms, below which a busy network looks like a dead one, to 1.07 s.
    (14..=18).rev().find(|exponent| Duration::from_nanos(4096 << exponent) <= attempt).unwrap_or(14)
}

/// What both halves and the watching thread know of the connection.
#[derive(Debug)]
struct Link {
    over: AtomicBool,
    ready: Mutex<bool>,
    changed: Condvar,
    /// What failed first on this side, if anything did.
    cause: Mutex<Option<String>>,
    /// Can be read from the end on, so that it wakes who sleeps.
    bell: OwnedFd,
}

impl Link {
    fn new() -> io::Result<Self> {
        use rustix::event::{EventfdFlags, eventfd};
        let bell = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Self {
            over: AtomicBool::new(false),
            ready: Mutex::new(false),
            changed: Condvar::new(),
            cause: Mutex::new(None),
            bell,
        })
    }

    fn is_over(&self) -> bool {
        self.over.load(Ordering::SeqCst)
    }

    /// The other side has sent a byte; false when it may not send that.
    fn receive(&self, byte: u8) -> bool {
        let mut ready = self.ready.lock().expect("no code panics under this mutex");
        let first = !std::mem::replace(&mut *ready, true);
        self.changed.notify_all();
        first && byte == READY
    }

    fn cause(&self) -> Option<String> {
        self.cause.lock().expect("no code panics under this mutex").clone()
    }

    /// Something has failed: `why` is kept as the cause unless something else failed before, and
    /// both halves stop.
    fn fail(&self, why: String) {
        self.cause.lock().expect("no code panics under this mutex").get_or_insert(why);
        self.end();
    }

    fn end(&self) {
        self.over.store(true, Ordering::SeqCst);
        // Under the mutex, so that nobody is between looking and waiting.
        drop(self.ready.lock().expect("no code panics under this mutex"));
        self.changed.notify_all();
        // It can only fail when it can be read already.
        let _ = rustix::io::write(&self.bell, &1u64.to_ne_bytes());
    }

    /// Waits until the other side can receive: true; false when the connection has ended, none when
    /// `patience` has passed.
    fn ready(&self, patience: Duration) -> Option<bool> {
        let mut ready = self.ready.lock().expect("no code panics under this mutex");
        let begun = Instant::now();
        loop {
            if self.is_over() {
                return Some(false);
            }
            if *ready {
                return Some(true);
            }
            let left = patience.saturating_sub(begun.elapsed());
            if left.is_zero() {
                return None;
            }
            ready = self.changed.wait_timeout(ready, left).expect("no code panics under this mutex").0;
        }
    }
}

#[cfg(test)]
mod tests;
