//! Frames over one-sided memory: what a node says is written into the other's *mailbox*, and what
//! belongs into its log buffer is written there first (Query Fresh, section 3.1).
//!
//! Each side offers two regions, and what else the other is to write into:
//!
//! | region | the other side writes there |
//! |---|---|
//! | [`STATUS`] | words that only ever say the newest: how far it has taken its mailbox, and what the protocol adds (`persisted`, ready to receive …) |
//! | [`MAILBOX`] | frames, one after another, round and round; with each an immediate value, which is its length |
//! | [`LOG`] | payloads: the log buffer of a standby, whose virtual byte `x` lies at `x` modulo its length |
//! | from there on | instead of a log buffer, a mirror: whatever the other side has to write there, wherever it likes ([`Sender::post_into`]); regions may be added |
//!
//! A new status is announced by the immediate value zero. Since delivery is in order, a payload is
//! in place when its frame is heard of. Nothing is overwritten that was not taken: a sender whose
//! frames are not taken waits, at most for its patience.

use std::{
    fmt,
    net::SocketAddr,
    thread,
    time::{Duration, Instant},
};

use freshet_base::{
    Term,
    sync::{Arc, AtomicU64, Ordering},
    words,
};

use crate::{
    CompletionQueue, FabricConfig, FabricKind, Offer, OpenError, Place, Prepared, QueuePair, ReceiveError, RegionKey,
    SendError, Token, Write,
    frame::{HEADER, Header, MAX_IMMEDIATE},
    limit::{Limited, TokenBucket},
    memory::{Region, Registered, SharedMemory},
    tcp::{Connection, Counters},
};

/// The region of status words.
pub const STATUS: usize = 0;
/// The region of frames.
pub const MAILBOX: usize = 1;
/// The region of payloads.
pub const LOG: usize = 2;
/// Status words of the protocol above.
pub const STATUS_WORDS: usize = 9;

/// Frames that nobody has taken may be this many bytes. Pages are used when something is written
/// there.
const MAILBOX_BYTES: usize = 4 << 20;
/// No frame takes more of the mailbox.
pub const MAX_FRAME: usize = MAILBOX_BYTES / 2;
/// Between two looks at a mailbox without room.
const PAUSE: Duration = Duration::from_micros(100);

/// One side of a channel to be.
#[derive(Debug)]
pub struct Side {
    status: Arc<SharedMemory>,
    mailbox: Arc<SharedMemory>,
    prepared: Prepared,
}

impl Side {
    /// Registers status words, a mailbox, and behind these `more`: none, a log buffer, or a mirror.
    ///
    /// # Errors
    /// [`OpenError`].
    pub fn new(kind: FabricKind, config: FabricConfig, more: Vec<Region>) -> Result<Self, OpenError> {
        let system = |source| OpenError::System { kind, source };
        let status = Arc::new(SharedMemory::new((1 + STATUS_WORDS) * 8, false).map_err(system)?);
        let mailbox = Arc::new(SharedMemory::new(MAILBOX_BYTES, config.huge_pages).map_err(system)?);
        let mut regions: Vec<Region> = vec![Arc::clone(&status) as _, Arc::clone(&mailbox) as _];
        regions.extend(more);
        Ok(Self { status, mailbox, prepared: Prepared::new(kind, regions, config)? })
    }

    /// What the other side must be told.
    pub fn offer(&self) -> &Offer {
        self.prepared.offer()
    }

    /// Connects with the side that made the offer `theirs`, beside `connection`. What is sent keeps
    /// to `limit`.
    ///
    /// # Errors
    /// [`OpenError`].
    pub fn connect(
        self,
        theirs: &Offer,
        connection: Connection,
        limit: Option<Arc<TokenBucket>>,
        patience: Duration,
    ) -> Result<(Sender, Receiver), OpenError> {
        let lengths = theirs.regions.iter().map(|region| region.length).collect::<Vec<_>>();
        let [status, mailbox, ..] = lengths[..] else {
            let why = "the other side has offered no mailbox".to_owned();
            return Err(OpenError::Missing { kind: theirs.kind(), why });
        };
        if status < ((1 + STATUS_WORDS) * 8) as u64 || mailbox != MAILBOX_BYTES as u64 {
            let why = format!("the other side's mailbox has {mailbox} bytes, not {MAILBOX_BYTES}");
            return Err(OpenError::Missing { kind: theirs.kind(), why });
        }
        let connected = self.prepared.connect(theirs, connection)?;
        let taken = Arc::new(AtomicU64::new(0));
        let queue = match limit {
            None => connected.queue,
            Some(limit) => Box::new(Limited::new(connected.queue, limit)),
        };
        let sender = Sender {
            log_length: queue.region_length(LOG),
            queue,
            peer: connected.peer,
            patience,
            posted: 0,
            status: Arc::clone(&self.status),
            taken: Arc::clone(&taken),
            counters: connected.counters,
            bytes: Vec::with_capacity(512),
        };
        let receiver = Receiver {
            completions: connected.completions,
            peer: connected.peer,
            status: self.status,
            mailbox: self.mailbox,
            position: 0,
            taken,
            bytes: Vec::new(),
            message: 0,
        };
        Ok((sender, receiver))
    }
}

/// Bytes, and where they belong.
type Part<'b> = (Place, [&'b [u8]; 1]);

/// Where `bytes` lie that belong to virtual byte `at` on of a ring of `length` bytes: up to its
/// end, and from its beginning on.
fn around(region: usize, length: u64, at: u64, bytes: &[u8]) -> [Part<'_>; 2] {
    let offset = at % length;
    let (head, tail) = bytes.split_at(bytes.len().min((length - offset) as usize));
    [(Place { region, offset }, [head]), (Place { region, offset: 0 }, [tail])]
}

/// A place of a mirror, as the fabric has it.
fn behind(place: Place) -> Place {
    Place { region: place.region.saturating_add(LOG), ..place }
}

/// The sending half.
pub struct Sender {
    queue: Box<dyn QueuePair>,
    log_length: u64,
    peer: SocketAddr,
    patience: Duration,
    /// Bytes written to the other side's mailbox so far.
    posted: u64,
    /// Ours: its first word is how many of those it has taken.
    status: Arc<SharedMemory>,
    /// How far our own receiver has taken our mailbox.
    taken: Arc<AtomicU64>,
    counters: Arc<Counters>,
    bytes: Vec<u8>,
}

impl fmt::Debug for Sender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Sender(to {})", self.peer)
    }
}

impl Sender {
    /// The other side's address.
    pub fn peer(&self) -> SocketAddr {
        self.peer
    }

    /// What went over this connection.
    pub fn counters(&self) -> Arc<Counters> {
        Arc::clone(&self.counters)
    }

    /// Whether sending takes no longer than copying, as long as there [is room](Sender::has_room).
    pub fn is_prompt(&self) -> bool {
        self.queue.is_prompt()
    }

    /// Whether a payload of this many bytes and its frame could be sent now without waiting for the
    /// other side to take earlier ones, nor for a limit.
    pub fn has_room(&self, bytes: u64) -> bool {
        let taken = self.status.words()[0].load(Ordering::Acquire);
        self.queue.has_room(bytes) && self.posted.saturating_sub(taken) <= MAILBOX_BYTES as u64 / 2
    }

    /// Writes a part of a payload to its place: `bytes` belong to virtual byte `address` on. The
    /// other side hears of it with a later frame.
    ///
    /// # Errors
    /// [`SendError`]; the channel is then of no more use.
    pub fn place(&mut self, address: u64, bytes: &[u8]) -> Result<(), SendError> {
        self.check_place(address, bytes)?;
        let parts = around(LOG, self.log_length, address, bytes);
        self.write(&parts, None)
    }

    fn check_place(&self, address: u64, bytes: &[u8]) -> Result<(), SendError> {
        let length = bytes.len() as u64;
        if self.log_length == 0 || length > self.log_length {
            return Err(SendError::OutOfBounds { peer: self.peer, region: LOG, offset: address, length });
        }
        Ok(())
    }

    /// Posts the parts that are not empty; of the last the other side hears, if it is to.
    fn write(&mut self, parts: &[Part<'_>], immediate: Option<u32>) -> Result<(), SendError> {
        let mut list =
            [Write { to: Place { region: STATUS, offset: 0 }, pieces: &[], immediate: None, fenced: false }; 4];
        let mut count = 0;
        for (to, bytes) in parts.iter().filter(|(_, [bytes])| !bytes.is_empty()) {
            list[count] = Write { to: *to, pieces: bytes, immediate: None, fenced: false };
            count += 1;
        }
        if let Some(last) = list[..count].last_mut() {
            last.immediate = immediate;
        }
        self.queue.post(&list[..count], false).map(drop)
    }

    /// Reads the last word below virtual byte `end` back: it has then reached the other side's
    /// memory, and with it all that was written before, where the hardware is set up for that (the
    /// "appliance" method: Query Fresh, section 2.3). Blocks for a round trip.
    ///
    /// # Errors
    /// [`SendError`]; the channel is then of no more use.
    pub fn read_back(&mut self, end: u64) -> Result<(), SendError> {
        let mut word = [0; 8];
        let offset = end.wrapping_sub(8) % self.log_length.max(1);
        self.queue.read(Place { region: LOG, offset }, &mut word)
    }

    /// Sends a frame; `length` bytes of payload were placed from virtual byte `address` on.
    ///
    /// # Errors
    /// [`SendError`]; the channel is then of no more use.
    pub fn send(&mut self, kind: u8, term: Term, address: u64, length: u32, message: &[u8]) -> Result<(), SendError> {
        self.send_with(kind, term, address, length, message, Payload::Placed)
    }

    /// Sends a frame along with its payload of `length` bytes, or what is left of that, in one
    /// list.
    ///
    /// # Errors
    /// [`SendError`]; the channel is then of no more use.
    pub fn send_with(
        &mut self,
        kind: u8,
        term: Term,
        address: u64,
        length: u32,
        message: &[u8],
        payload: Payload<'_>,
    ) -> Result<(), SendError> {
        let (inline, last): (&[u8], &[u8]) = match payload {
            Payload::Placed => (&[], &[]),
            Payload::Last(last) => (&[], last),
            Payload::Inline(inline) => (inline, &[]),
        };
        let (immediate, payload_crc) = (message.len() as u32, crc32c::crc32c(inline));
        let immediate_crc = crc32c::crc32c(message);
        let header = Header { kind, term, address, immediate, payload: length, payload_crc, immediate_crc };
        let frame = HEADER + message.len() + inline.len();
        if message.len() > MAX_IMMEDIATE || frame > MAX_FRAME {
            return Err(SendError::TooLarge { immediate: message.len(), payload: inline.len() });
        }
        let mut bytes = std::mem::take(&mut self.bytes);
        bytes.clear();
        bytes.extend_from_slice(&header.encode());
        bytes.extend_from_slice(message);
        bytes.extend_from_slice(inline);
        bytes.resize(frame.next_multiple_of(8), 0);
        let end = self.posted + bytes.len() as u64;
        self.await_room(end)?;
        let [head, tail] = around(MAILBOX, MAILBOX_BYTES as u64, self.posted, &bytes);
        if last.is_empty() {
            self.write(&[head, tail], Some(frame as u32))?;
        } else {
            self.check_place(address, last)?;
            let at = (address + u64::from(length)).saturating_sub(last.len() as u64);
            let [first, second] = around(LOG, self.log_length, at, last);
            self.write(&[first, second, head, tail], Some(frame as u32))?;
        }
        self.posted = end;
        self.bytes = bytes;
        Ok(())
    }

    /// Posts writes into the other side's mirror, whose first region is number zero here: one
    /// list. Where that memory is to be durable, what is `first` is so before any of the `others`
    /// is written. [`Sender::completed`] says when the list has completed.
    ///
    /// # Errors
    /// [`SendError`]; the channel is then of no more use.
    pub fn post_into<'w>(
        &mut self,
        first: impl Iterator<Item = (Place, &'w [u8])>,
        others: impl Iterator<Item = (Place, &'w [u8])>,
    ) -> Result<Token, SendError> {
        let mut parts: Vec<Part<'_>> = first.map(|(to, bytes)| (behind(to), [bytes])).collect();
        let count = parts.len();
        parts.extend(others.map(|(to, bytes)| (behind(to), [bytes])));
        let list: Vec<Write<'_>> = (0..)
            .zip(&parts)
            .map(|(number, (to, pieces))| Write { to: *to, pieces, immediate: None, fenced: number == count })
            .collect();
        self.queue.post(&list, true)
    }

    /// The newest list that has completed, and all before it with it. Never blocks.
    ///
    /// # Errors
    /// [`SendError`]; the channel is then of no more use.
    pub fn completed(&mut self) -> Result<Token, SendError> {
        self.queue.completed()
    }

    /// Blocks until a list, and all before it, has completed; for the other side's silence at most
    /// for [`FabricConfig::patience`], as this side was configured.
    ///
    /// # Errors
    /// [`SendError`]; the channel is then of no more use.
    pub fn wait(&mut self, token: Token) -> Result<(), SendError> {
        self.queue.wait(token)
    }

    /// Reads from the other side's mirror, behind all that was posted before. Blocks for it, as
    /// long as [`Sender::wait`] may.
    ///
    /// # Errors
    /// [`SendError`]; the channel is then of no more use.
    pub fn read_from(&mut self, from: Place, into: &mut [u8]) -> Result<(), SendError> {
        self.queue.read(behind(from), into)
    }

    /// Reads several pieces from there, as [`Sender::read_from`] does one. Blocks for all of them
    /// at once where the fabric can ask for more than one.
    ///
    /// # Errors
    /// [`SendError`]; the channel is then of no more use.
    pub fn read_all_from(&mut self, list: &mut [(Place, &mut [u8])]) -> Result<(), SendError> {
        let mut list: Vec<_> = list.iter_mut().map(|(from, into)| (behind(*from), &mut **into)).collect();
        self.queue.read_all(&mut list)
    }

    /// The other side's mirror has one more region ([`Receiver::register`]). Returns its number.
    ///
    /// # Errors
    /// [`OpenError`] when it cannot be reached; the channel stays as it was.
    pub fn attach(&mut self, key: &RegionKey) -> Result<usize, OpenError> {
        self.queue.attach(key).map(|number| number - LOG)
    }

    /// How long the regions of the other side's mirror are, in bytes.
    pub fn lengths(&self) -> Vec<u64> {
        (LOG..).map(|region| self.queue.region_length(region)).take_while(|length| *length > 0).collect()
    }

    /// Waits until the other side's mailbox has room up to `end`.
    fn await_room(&self, end: u64) -> Result<(), SendError> {
        let mut deadline = None;
        // Acquire: whatever the other side did before it wrote this.
        while end > self.status.words()[0].load(Ordering::Acquire).saturating_add(MAILBOX_BYTES as u64) {
            let now = Instant::now();
            if now > *deadline.get_or_insert(now + self.patience) {
                return Err(SendError::Stalled { peer: self.peer, patience: self.patience });
            }
            thread::sleep(PAUSE);
        }
        Ok(())
    }

    /// Replaces the status words that the other side sees, and rings.
    ///
    /// # Errors
    /// [`SendError`]; the channel is then of no more use.
    pub fn status(&mut self, status: [u64; STATUS_WORDS]) -> Result<(), SendError> {
        let mut bytes = [0; (1 + STATUS_WORDS) * 8];
        // Acquire: pairs with the release in `Receiver::next`; what was taken was copied out.
        bytes[..8].copy_from_slice(&self.taken.load(Ordering::Acquire).to_ne_bytes());
        for (place, word) in bytes[8..].as_chunks_mut::<8>().0.iter_mut().zip(status) {
            *place = word.to_ne_bytes();
        }
        self.queue.write_with_imm(Place { region: STATUS, offset: 0 }, &[&bytes], 0)
    }

    /// Ends the channel such that what was sent last arrives. Blocks until the other side has ended
    /// it too, at most for `patience`.
    pub fn farewell(mut self, patience: Duration) {
        self.queue.farewell(patience);
    }

    /// Blocks until everything that was posted has completed, as long as [`Sender::wait`] may.
    ///
    /// # Errors
    /// [`SendError`]; the channel is then of no more use.
    pub fn complete(&mut self) -> Result<(), SendError> {
        self.queue.complete()
    }
}

/// What is sent of a payload along with its frame. The rest was placed before
/// ([`Sender::place`]).
#[derive(Clone, Copy, Debug)]
pub enum Payload<'p> {
    /// Nothing.
    Placed,
    /// Its last bytes, to their place.
    Last(&'p [u8]),
    /// All of it, in another form, behind the message.
    Inline(&'p [u8]),
}

/// What has arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrival {
    /// A frame; its payload is in place.
    Frame(Header),
    /// The other side has another status.
    Status,
}

/// The receiving half.
pub struct Receiver {
    completions: Box<dyn CompletionQueue>,
    peer: SocketAddr,
    status: Arc<SharedMemory>,
    mailbox: Arc<SharedMemory>,
    position: u64,
    taken: Arc<AtomicU64>,
    /// The newest frame, without its header.
    bytes: Vec<u8>,
    /// How much of that is its message; the rest is its payload in another form.
    message: usize,
}

impl fmt::Debug for Receiver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Receiver(from {})", self.peer)
    }
}

impl Receiver {
    /// Blocks for the next thing to arrive, at most for `patience`; none when nothing did.
    ///
    /// # Errors
    /// [`ReceiveError`]; the channel is then of no more use.
    pub fn next(&mut self, patience: Duration) -> Result<Option<Arrival>, ReceiveError> {
        match self.completions.next(patience)? {
            None => Ok(None),
            Some(0) => Ok(Some(Arrival::Status)),
            Some(length) => self.frame(length as usize).map(|header| Some(Arrival::Frame(header))),
        }
    }

    /// Ends it for the other side ([`CompletionQueue::revoke`]): of what it has sent,
    /// [`Receiver::next`] gives what it may believe to have arrived, without waiting for more, and
    /// then fails. Mailbox and status words are of no use to anybody then; a log buffer that the
    /// other side may have mapped has to be moved.
    pub fn revoke(&mut self) {
        self.completions.revoke();
    }

    /// Registers one more region, behind the last one, and returns what the other side has to be
    /// told of it.
    ///
    /// # Errors
    /// [`OpenError`]; the channel stays as it was.
    pub fn register(&mut self, region: Region) -> Result<RegionKey, OpenError> {
        self.completions.register(region)
    }

    fn frame(&mut self, length: usize) -> Result<Header, ReceiveError> {
        let peer = self.peer;
        let violation = |why: &str| ReceiveError::Violation { peer, why: why.to_owned() };
        if !(HEADER..=MAX_FRAME).contains(&length) {
            return Err(violation("a frame has an impossible length"));
        }
        // Copied out before it is looked at: the other side could still write there.
        let mut header = [0; HEADER];
        self.copy(self.position, &mut header);
        let mut bytes = std::mem::take(&mut self.bytes);
        bytes.resize(length - HEADER, 0);
        self.copy(self.position + HEADER as u64, &mut bytes);
        self.bytes = bytes;
        self.position += length.next_multiple_of(8) as u64;
        // Release: pairs with the acquire in `Sender::status`.
        self.taken.store(self.position, Ordering::Release);
        let header = Header::decode(&header).map_err(|source| ReceiveError::Header { peer, source })?;
        self.message = header.immediate as usize;
        if self.message > self.bytes.len() {
            return Err(violation("a message is longer than its frame"));
        }
        let (message, inline) = self.bytes.split_at(self.message);
        for (what, bytes, expected) in
            [("a message", message, header.immediate_crc), ("a batch", inline, header.payload_crc)]
        {
            let found = crc32c::crc32c(bytes);
            if found != expected {
                return Err(ReceiveError::Damaged { peer, what, found, expected });
            }
        }
        Ok(header)
    }

    fn copy(&self, position: u64, into: &mut [u8]) {
        let at = (position % MAILBOX_BYTES as u64) as usize;
        let (head, tail) = into.split_at_mut(into.len().min(MAILBOX_BYTES - at));
        words::load(self.mailbox.words(), at, head);
        words::load(self.mailbox.words(), 0, tail);
    }

    /// The newest frame's message.
    pub fn message(&self) -> &[u8] {
        &self.bytes[..self.message]
    }

    /// What the newest frame carried behind its message.
    pub fn inline(&self) -> &[u8] {
        &self.bytes[self.message..]
    }

    /// The other side's newest status. Each word is one that it had at some time, no older than at
    /// the last that was heard of.
    pub fn status(&self) -> [u64; STATUS_WORDS] {
        // Acquire: whatever the other side did before it wrote this.
        std::array::from_fn(|word| self.status.words()[1 + word].load(Ordering::Acquire))
    }

    /// Whether enough was taken to report it to the other side, which waits for room otherwise;
    /// `reported` is what was reported last.
    pub fn owes(&self, reported: u64) -> bool {
        self.position - reported >= MAILBOX_BYTES as u64 / 4
    }

    /// How far the mailbox was taken.
    pub fn taken(&self) -> u64 {
        self.position
    }

    /// The other side's address.
    pub fn peer(&self) -> SocketAddr {
        self.peer
    }
}

#[cfg(test)]
impl Receiver {
    pub(crate) fn mailbox_words(&self) -> &[AtomicU64] {
        self.mailbox.words()
    }
}
