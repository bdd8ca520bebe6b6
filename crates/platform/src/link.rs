//! What connects two nodes: lists of one-sided writes, and messages.
//!
//! | region that a side offers | the other side writes there |
//! |---|---|
//! | [`MAILBOX`] | messages, in batches, round and round |
//! | [`DATA`] | rows, as coordinator of a transaction (Active-Memory, section 4.5.1) |
//! | [`LOGS`] | for each partition the head and the undo ring of a mirror, which are its own (section 4.4) |
//!
//! A batch is one list of writes: how much of the mailbox of the side that sends has been taken (a
//! word), and messages, each behind its length. The other side hears its length. Nothing waits
//! here: what finds no room in the other side's mailbox, or in the limit on bytes, is sent later.

use std::{
    collections::VecDeque,
    io,
    os::unix::net::UnixStream,
    thread,
    time::{Duration, Instant},
};

use freshet_base::{
    ClusterId, Lsn, NodeId, Term,
    sync::{Arc, AtomicU64},
    words,
};
use freshet_fabric::{
    CompletionQueue, Connected, FabricConfig, FabricKind, Place, Prepared, QueuePair, Token, Write,
    limit::TokenBucket,
    memory::{Region, Registered, SharedMemory},
    tcp::{Connection, Listener, connect},
};
use freshet_mirror::{ARENAS, DIRECTORY, List, Superblock, UNDO};

use crate::{Failed, shape::Shape};

const MAILBOX: usize = 0;
const DATA: usize = 1;
const LOGS: usize = 2;

const MAILBOX_BYTES: u64 = 1 << 20;
/// A batch of messages is not longer, unless one message is.
const BATCH: usize = 128 << 10;
/// Bytes of an undo ring: 64 entries, and a transaction needs one in each.
pub(crate) const RING: usize = 256 << 10;
/// Bytes of the head before it: superblock and mark, and nothing else.
const HEAD: usize = DIRECTORY as usize;
/// What a packet carries beside its data, in bytes: RoCE's headers.
const HEADERS: u64 = 58;
/// Connecting takes no longer.
const PATIENCE: Duration = Duration::from_secs(20);

/// Where the head and the ring of a partition are among those of one coordinator.
fn logs_of(partition: usize) -> u64 {
    (partition * (HEAD + RING)) as u64
}

/// Where a place in a mirror's memory is among what a node offers.
fn offered(to: Place, partition: usize) -> Place {
    match to.region {
        0 => Place { region: LOGS, offset: logs_of(partition) + to.offset },
        UNDO => Place { region: LOGS, offset: logs_of(partition) + HEAD as u64 + to.offset },
        _ => Place { region: DATA, ..to },
    }
}

/// A part of a piece of memory, as a region of a mirror.
#[derive(Debug)]
struct Part {
    whole: Arc<SharedMemory>,
    begin: usize,
    bytes: usize,
}

impl Registered for Part {
    fn words(&self) -> &[AtomicU64] {
        &self.whole.words()[self.begin / 8..(self.begin + self.bytes) / 8]
    }
}

/// What one coordinator writes on a node, beside rows: heads and undo rings, by partition.
#[derive(Clone, Debug)]
pub(crate) struct Logs(Arc<SharedMemory>);

impl Logs {
    /// Those that `coordinator` writes.
    pub fn new(shape: &Shape, coordinator: usize) -> io::Result<Self> {
        let logs = Self(Arc::new(SharedMemory::new(shape.nodes * (HEAD + RING), false)?));
        for partition in 0..shape.nodes {
            let feeder = NodeId(coordinator as u64 + 1);
            let block = Superblock { sequence: 1, cluster: ClusterId(1), feeder, term: Term(1), base: Lsn(0) };
            let (at, bytes) = block.encode();
            words::store(logs.0.words(), (logs_of(partition) + at) as usize, &bytes);
        }
        Ok(logs)
    }

    /// The mirror that the coordinator has made of a partition: its head, its undo ring, and the
    /// rows.
    pub fn mirror(&self, partition: usize, data: &Arc<SharedMemory>) -> [Region; ARENAS + 1] {
        let part = |begin: usize, bytes| Part { whole: Arc::clone(&self.0), begin, bytes };
        let begin = logs_of(partition) as usize;
        [Arc::new(part(begin, HEAD)) as Region, Arc::new(part(begin + HEAD, RING)), Arc::clone(data) as Region]
    }

    /// Writes a list here.
    pub fn write(&self, partition: usize, list: &List, data: &SharedMemory) {
        for (to, bytes) in list.writes() {
            let Place { region, offset } = offered(to, partition);
            let memory = if region == DATA { data } else { &*self.0 };
            words::store_among(memory.words(), offset as usize, bytes);
        }
    }
}

/// A list of writes for the copy of a partition.
struct Posting {
    partition: usize,
    list: Arc<List>,
}

/// What went to other nodes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Wire {
    /// Bytes, without headers of packets.
    pub bytes: u64,
    /// Writes, each a packet at least.
    pub writes: u64,
}

/// One node's end of its connection with another one.
pub(crate) struct Link {
    queue: Box<dyn QueuePair>,
    completions: Box<dyn CompletionQueue>,
    /// Ours, how far it was taken, and how far the other side was told so.
    mailbox: Arc<SharedMemory>,
    taken: u64,
    reported: u64,
    /// Theirs: how much was written, and how far that was taken.
    posted: u64,
    credit: u64,
    /// Messages that have not been sent, each behind its length.
    out: Vec<u8>,
    /// Lists that have not been posted, and how many there were in all.
    waiting: VecDeque<Posting>,
    lists: u64,
    /// Lists that were posted, and how many have completed.
    under_way: VecDeque<Token>,
    completed: u64,
    wire: Wire,
}

impl Link {
    /// Appends a message.
    pub fn send(&mut self, message: impl FnOnce(&mut Vec<u8>)) {
        let begin = self.out.len();
        self.out.extend_from_slice(&[0; 4]);
        message(&mut self.out);
        let length = (self.out.len() - begin - 4) as u32;
        self.out[begin..begin + 4].copy_from_slice(&length.to_le_bytes());
    }

    /// Posts a list for the copy of a partition, and returns its number: it has completed when
    /// [`Link::has_completed`] says so.
    pub fn post(&mut self, partition: usize, list: &Arc<List>) -> u64 {
        self.waiting.push_back(Posting { partition, list: Arc::clone(list) });
        self.lists += 1;
        self.lists
    }

    /// Whether the list of this number, and all before it, have reached the other node's memory.
    pub fn has_completed(&self, list: u64) -> bool {
        list <= self.completed
    }

    /// Looks which lists have completed. Says whether there are any.
    pub fn poll(&mut self) -> Result<bool, Failed> {
        if self.under_way.is_empty() {
            return Ok(false);
        }
        let newest = self.queue.completed()?;
        let before = self.completed;
        while self.under_way.pop_front_if(|token| *token <= newest).is_some() {
            self.completed += 1;
        }
        Ok(self.completed > before)
    }

    /// Sends what there is room for; says whether that was something.
    pub fn flush(&mut self, limit: Option<&TokenBucket>) -> Result<bool, Failed> {
        // What goes beyond the bucket is a debt that the next has to wait for.
        let may = || limit.is_none_or(|bucket| bucket.holds(1, Instant::now()));
        let mut some = false;
        while !self.waiting.is_empty() && may() {
            let Some(posting) = self.waiting.pop_front() else { break };
            self.write_list(&posting, limit)?;
            some = true;
        }
        let due = !self.out.is_empty() || self.taken - self.reported > MAILBOX_BYTES / 2;
        if due && may() && self.write_batch(limit)? {
            some = true;
        }
        Ok(some)
    }

    fn write_list(&mut self, Posting { partition, list }: &Posting, limit: Option<&TokenBucket>) -> Result<(), Failed> {
        let pieces: Vec<(Place, [&[u8]; 1])> =
            list.writes().map(|(to, bytes)| (offered(to, *partition), [bytes])).collect();
        let writes: Vec<_> =
            pieces.iter().map(|(to, bytes)| Write { to: *to, pieces: bytes, immediate: None, fenced: false }).collect();
        self.count(pieces.iter().map(|(_, [bytes])| bytes.len() as u64).sum(), pieces.len() as u64, limit);
        let token = self.queue.post(&writes, true)?;
        self.under_way.push_back(token);
        Ok(())
    }

    fn count(&mut self, bytes: u64, writes: u64, limit: Option<&TokenBucket>) {
        self.wire.bytes += bytes;
        self.wire.writes += writes;
        if let Some(bucket) = limit {
            bucket.take(bytes + writes * HEADERS, Instant::now());
        }
    }

    /// Whole messages up to [`BATCH`] bytes, at least one.
    fn batch(&self) -> usize {
        if self.out.len() <= BATCH {
            return self.out.len();
        }
        let mut end = 0;
        while let Some(length) = self.out.get(end..end + 4) {
            let next = end + 4 + u32::from_le_bytes([length[0], length[1], length[2], length[3]]) as usize;
            if end > 0 && next > BATCH {
                break;
            }
            end = next;
        }
        end
    }

    /// Sends messages if the other side's mailbox has room for them.
    fn write_batch(&mut self, limit: Option<&TokenBucket>) -> Result<bool, Failed> {
        let end = self.batch();
        let length = 8 + end as u64;
        if self.posted - self.credit + length > MAILBOX_BYTES {
            return Ok(false);
        }
        let credit = self.taken.to_le_bytes();
        let mut pieces: Vec<(u64, [&[u8]; 1])> = Vec::with_capacity(3);
        let mut at = self.posted;
        for bytes in [&credit[..], &self.out[..end]] {
            let offset = at % MAILBOX_BYTES;
            at += bytes.len() as u64;
            let (head, tail) = bytes.split_at(bytes.len().min((MAILBOX_BYTES - offset) as usize));
            pieces.extend([(offset, [head]), (0, [tail])].into_iter().filter(|(_, [it])| !it.is_empty()));
        }
        let last = pieces.len() - 1;
        let writes: Vec<_> = pieces
            .iter()
            .enumerate()
            .map(|(number, (offset, bytes))| Write {
                to: Place { region: MAILBOX, offset: *offset },
                pieces: bytes,
                immediate: (number == last).then_some(length as u32),
                fenced: false,
            })
            .collect();
        self.queue.post(&writes, false)?;
        let packets = writes.len() as u64;
        drop(writes);
        self.posted += length;
        self.reported = self.taken;
        self.out.drain(..end);
        self.count(length, packets, limit);
        Ok(true)
    }

    /// The messages of the next batch that has arrived, each behind its length; none when none has.
    pub fn receive(&mut self, from: usize) -> Result<Option<Vec<u8>>, Failed> {
        let Some(length) = self.completions.next(Duration::ZERO)? else { return Ok(None) };
        let length = u64::from(length);
        if !(8..=MAILBOX_BYTES).contains(&length) {
            return Err(Failed::Malformed { from });
        }
        let mut batch = vec![0; length as usize];
        let offset = self.taken % MAILBOX_BYTES;
        let (head, tail) = batch.split_at_mut((length.min(MAILBOX_BYTES - offset)) as usize);
        words::load(self.mailbox.words(), offset as usize, head);
        words::load(self.mailbox.words(), 0, tail);
        self.taken += length;
        let credit = batch.first_chunk().map_or(0, |word| u64::from_le_bytes(*word));
        if credit < self.credit || credit > self.posted {
            return Err(Failed::Malformed { from });
        }
        self.credit = credit;
        batch.drain(..8);
        Ok(Some(batch))
    }

    /// Nothing of the other side lands here any more (section 5.2, step 1).
    pub fn revoke(&mut self) {
        self.completions.revoke();
    }

    /// What went out so far.
    pub fn wire(&self) -> Wire {
        self.wire
    }

    /// Whether nothing waits to be sent or to complete.
    pub fn is_at_rest(&self) -> bool {
        self.out.is_empty() && self.waiting.is_empty() && self.under_way.is_empty()
    }

    /// With another queue pair before its own.
    #[cfg(test)]
    pub fn behind(self, wrap: impl FnOnce(Box<dyn QueuePair>) -> Box<dyn QueuePair>) -> Self {
        Self { queue: wrap(self.queue), ..self }
    }
}

/// One side before it is connected.
struct Side {
    mailbox: Arc<SharedMemory>,
    prepared: Prepared,
}

impl Side {
    fn new(data: &Arc<SharedMemory>, logs: &Logs) -> Result<Self, Failed> {
        let mailbox = Arc::new(SharedMemory::new(MAILBOX_BYTES as usize, false)?);
        let regions: Vec<Region> = vec![Arc::clone(&mailbox) as _, Arc::clone(data) as _, Arc::clone(&logs.0) as _];
        let config = FabricConfig { patience: PATIENCE, ..FabricConfig::default() };
        Ok(Self { mailbox, prepared: Prepared::new(FabricKind::Shm, regions, config)? })
    }

    fn link(mailbox: Arc<SharedMemory>, connected: Connected) -> Link {
        Link {
            queue: connected.queue,
            completions: connected.completions,
            mailbox,
            taken: 0,
            reported: 0,
            posted: 0,
            credit: 0,
            out: Vec::new(),
            waiting: VecDeque::new(),
            lists: 0,
            under_way: VecDeque::new(),
            completed: 0,
            wire: Wire::default(),
        }
    }
}

/// Two ends of a TCP connection, and of a local one for descriptors.
fn beside() -> Result<(Connection, Connection), Failed> {
    let closed = || Failed::System(io::ErrorKind::ConnectionAborted.into());
    let listener = Listener::bind("127.0.0.1:0").map_err(|cause| Failed::Connect(cause.to_string()))?;
    let address = listener.address()?.to_string();
    let one = connect(&address, PATIENCE).map_err(|cause| Failed::Connect(cause.to_string()))?;
    let two = listener.accept()?.ok_or_else(closed)?;
    let (passage, other) = UnixStream::pair()?;
    Ok((one.beside(passage), two.beside(other)))
}

/// Connects two nodes over shared memory; each gives its rows, and what the other is to write
/// beside. Blocks until both have mapped the other's memory.
pub(crate) fn join(
    (data_1, logs_1): (&Arc<SharedMemory>, &Logs),
    (data_2, logs_2): (&Arc<SharedMemory>, &Logs),
) -> Result<(Link, Link), Failed> {
    let (one, two) = beside()?;
    let (side_1, side_2) = (Side::new(data_1, logs_1)?, Side::new(data_2, logs_2)?);
    let (offer_1, offer_2) = (side_1.prepared.offer().clone(), side_2.prepared.offer().clone());
    thread::scope(|scope| {
        let first = scope.spawn(move || side_1.prepared.connect(&offer_2, one));
        let second = side_2.prepared.connect(&offer_1, two);
        let first = first.join().map_err(|_| Failed::Connect("the other side has panicked".to_owned()))?;
        Ok((Side::link(side_1.mailbox, first?), Side::link(side_2.mailbox, second?)))
    })
}
