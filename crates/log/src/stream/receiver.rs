//! A receiver fills the log: bytes arrive in the ring, are persisted from there, and are read from
//! there by replay. There are no workers. The caller says how far it has replayed; what is both in
//! the store and replayed gives its room back (ready to receive, Query Fresh section 3.2).
//!
//! Bytes become part of the log in one way: [`Receiver::accept`] finds whole blocks where they lie,
//! each by its own checksum. So what is acknowledged, persisted, shipped on and replayed was
//! verified, once, and no reader of the ring does that again.
//!
//! # Access protocol
//!
//! Only the holder of the [`Receiver`] writes to the ring above `received`, or cuts, or moves it. A
//! cut takes all flushers, so it never meets a flush. `persisting` is held while something is said
//! to be durable in persistent memory, and by a cut: nothing that was cut is persisted any more.

use std::{
    fmt, io,
    sync::{Arc, Mutex, MutexGuard, PoisonError, atomic::Ordering},
    time::Duration,
};

use freshet_base::Lsn;

use super::{Log, ReceiveConfig, Shared, ends::PartitionEnds, group_commit::GroupCommit, persist::Fill};
use crate::{
    block::{BLOCK_HEADER, Block, BlockError, BlockHeader, BlockKind, check_seal, peek_at},
    buffer::{Flusher, LogBuffer},
    core::{Core, LogFailure, ReadError},
    scan::find_block,
    store::LogStore,
    transaction_ends::{SPACING, TransactionEnds},
};

/// So far back the end of a transaction is looked for first, in bytes.
const STRETCH: u64 = 64 << 10;

/// Why bytes from the primary were not taken.
#[derive(Clone, Debug, thiserror::Error)]
pub enum ReceiveError {
    /// They do not follow what was received.
    #[error("bytes for {at} arrived, but the log was received up to {received}: join the primary again")]
    Gap {
        /// Where the bytes belong.
        at: Lsn,
        /// How far the log was received.
        received: Lsn,
    },
    /// There is no room for them yet; the sender did not keep to the flow control.
    #[error("bytes up to {end} arrived, but there is room only up to {free}: the primary ignores flow control")]
    NoRoom {
        /// The end of the bytes.
        end: Lsn,
        /// Where the room ends.
        free: Lsn,
    },
    /// The log failed or was closed.
    #[error("the standby's log is closed")]
    Closed,
    /// The log failed.
    #[error(transparent)]
    Failed(#[from] LogFailure),
}

/// What was accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Accepted {
    /// All of it are rows and marks: nothing that changes tables or has to be executed.
    pub plain: bool,
}

/// Why bytes that somebody else has put into the ring were not taken for blocks.
#[derive(Clone, Debug, thiserror::Error)]
pub enum AcceptError {
    /// There is no whole block where one should be. Nothing was taken.
    #[error("no valid block was received at {at}: {cause}")]
    Block {
        /// Where it should begin.
        at: Lsn,
        /// What is wrong with it.
        cause: BlockError,
    },
    /// Nobody was allowed to write so far.
    #[error("the log was reported as received up to {to}, but room was granted only up to {granted}")]
    NotGranted {
        /// The end of the bytes.
        to: Lsn,
        /// What was granted.
        granted: Lsn,
    },
    /// The log takes nothing.
    #[error(transparent)]
    Receive(#[from] ReceiveError),
}

/// Observes in-sync sets, as blocks of members record them.
type Observe = Box<dyn Fn(&[u8]) + Send + Sync>;

struct OnMembers(Observe);

impl fmt::Debug for OnMembers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("OnMembers")
    }
}

/// Is told where marks are.
type Place = Box<dyn Fn(Lsn) + Send + Sync>;

struct OnMarks(Place);

impl fmt::Debug for OnMarks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("OnMarks")
    }
}

/// What is known of the blocks that were received.
#[derive(Debug)]
pub(crate) struct Received {
    log: Arc<Shared>,
    kind: Arc<dyn GroupCommit>,
    /// Where transactions end, as far as they were received.
    ends: Mutex<TransactionEnds>,
    partitions: PartitionEnds,
    /// Those who replay persist, too.
    pub(super) upon_replay: bool,
    persisting: Mutex<()>,
    on_members: Mutex<Option<OnMembers>>,
    on_marks: Mutex<Option<OnMarks>>,
}

impl Received {
    pub(super) fn new(config: &ReceiveConfig, log: Arc<Shared>, kind: Arc<dyn GroupCommit>, whole: Lsn) -> Arc<Self> {
        Arc::new(Self {
            kind,
            ends: Mutex::new(TransactionEnds::new(whole)),
            partitions: PartitionEnds::new(config.partition, config.capacity as u64),
            upon_replay: config.upon_replay && log.core.pmem.is_there() && !log.core.pmem.is_at_once(),
            persisting: Mutex::default(),
            on_members: Mutex::default(),
            on_marks: Mutex::default(),
            log,
        })
    }

    pub(super) fn ends(&self) -> MutexGuard<'_, TransactionEnds> {
        // Whole after a panic, too: it is changed in one step at the end.
        self.ends.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn on_members(&self, note: Observe) {
        *self.on_members.lock().unwrap_or_else(PoisonError::into_inner) = Some(OnMembers(note));
    }

    pub(super) fn on_marks(&self, note: Place) {
        *self.on_marks.lock().unwrap_or_else(PoisonError::into_inner) = Some(OnMarks(note));
    }

    fn persisting(&self) -> MutexGuard<'_, ()> {
        self.persisting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Everything below `to` is durable in persistent memory, as far as it was received.
    pub(super) fn note_persisted(&self, to: Lsn) -> Result<(), LogFailure> {
        let guard = self.persisting();
        if let Some(failure) = self.log.core.failure() {
            return Err(failure.clone());
        }
        self.log.announce(&*self.kind, to.min(self.filled()))?;
        drop(guard);
        self.ring_if_due();
        Ok(())
    }

    /// Wakes the threads that have something to put into the store now.
    fn ring_if_due(&self) {
        let to = self.log.core.flushable();
        for (number, bell) in self.log.bells[..self.log.streams.len()].iter().enumerate() {
            if self.kind.left(&self.log.found(number, to, to)) == Some(Duration::ZERO) {
                bell.ring();
            }
        }
    }

    fn check_open(&self) -> Result<(), ReceiveError> {
        if let Some(failure) = self.log.core.failure() {
            return Err(failure.clone().into());
        }
        if self.log.is_closing() { Err(ReceiveError::Closed) } else { Ok(()) }
    }
}

impl Fill for Received {
    fn kind(&self) -> &dyn GroupCommit {
        &*self.kind
    }

    fn reserved(&self) -> Lsn {
        self.filled()
    }

    fn filled(&self) -> Lsn {
        self.log.core.buffer.filled()
    }

    fn soon_filled(&self) -> Lsn {
        self.filled()
    }

    fn persist(&self, mine: bool) -> Result<(), LogFailure> {
        if !mine {
            return Ok(());
        }
        {
            // Held while it works: a cut waits.
            let _guard = self.persisting();
            let (from, to) = (self.log.core.durable.get(), self.filled());
            if from >= to || self.log.core.failure().is_some() {
                return Ok(());
            }
            self.log.core.pmem.persist_received(from, to);
            self.log.announce(&*self.kind, to)?;
        }
        self.ring_if_due();
        Ok(())
    }

    fn transaction_end(&self, at: Lsn) -> Lsn {
        self.ends().below(at)
    }

    fn partition_ends(&self, from: Lsn, to: Lsn, into: &mut Vec<Lsn>) {
        self.partitions.collect(from, to, into);
    }

    fn handed_out(&self, _to: Lsn) {}
}

impl Log {
    /// Calls `note` with what each block of members records that arrives from now on, before that
    /// block can be persisted. `note` may block.
    pub fn on_members(&self, note: impl Fn(&[u8]) + Send + Sync + 'static) {
        self.received_by().on_members(Box::new(note));
    }

    /// Calls `note` with the place of each mark that arrives from now on, before it counts as
    /// received.
    pub fn on_marks(&self, note: impl Fn(Lsn) + Send + Sync + 'static) {
        self.received_by().on_marks(Box::new(note));
    }
}

/// A block that was found to be whole.
#[derive(Clone, Copy, Debug)]
struct Whole {
    at: Lsn,
    end: Lsn,
    continued: bool,
    kind: BlockKind,
}

/// The one who puts another node's bytes into a log.
#[derive(Debug)]
pub struct Receiver {
    received: Arc<Received>,
    /// The blocks that are being accepted; memory that is used again.
    blocks: Vec<Whole>,
    /// Memory for handing out.
    partition_ends: Vec<Lsn>,
}

impl Receiver {
    pub(super) fn new(received: Arc<Received>) -> Self {
        Self { received, blocks: Vec::new(), partition_ends: Vec::new() }
    }

    /// Whether it is that of the log behind `received`.
    pub(super) fn is_of(&self, received: &Arc<Received>) -> bool {
        Arc::ptr_eq(&self.received, received)
    }

    fn log(&self) -> &Shared {
        &self.received.log
    }

    /// How far the log was received.
    pub fn received(&self) -> Lsn {
        self.log().received.get()
    }

    /// Blocks until the ring has room up to `end`.
    ///
    /// # Errors
    /// [`ReceiveError`] when the log was closed or failed in the meantime.
    pub fn wait_room(&self, end: Lsn) -> Result<(), ReceiveError> {
        self.received.check_open()?;
        let buffer = &self.log().core.buffer;
        match buffer.wait_released(Lsn(end.0.saturating_sub(buffer.capacity()))) {
            Ok(_) => Ok(()),
            Err(_) => Err(self.received.check_open().err().unwrap_or(ReceiveError::Closed)),
        }
    }

    /// The place for `length` bytes at `at`, at or above what was received. They count once they
    /// were [accepted](Receiver::accept).
    ///
    /// # Errors
    /// [`ReceiveError::Gap`] below what was received, [`ReceiveError::NoRoom`] beyond the room.
    pub fn writable(&mut self, at: Lsn, length: u64) -> Result<Writable<'_>, ReceiveError> {
        self.received.check_open()?;
        let received = self.received();
        let core = &self.received.log.core;
        let buffer = &core.buffer;
        let free = buffer.released().plus(buffer.capacity());
        if at < received {
            return Err(ReceiveError::Gap { at, received });
        }
        let end = Lsn(at.0.saturating_add(length));
        if end > free {
            return Err(ReceiveError::NoRoom { end, free });
        }
        buffer.claim(end);
        Ok(Writable { core, at, length })
    }

    /// Puts whole blocks at the end, all at once.
    ///
    /// # Errors
    /// As [`Receiver::writable`] and [`Receiver::accept`]; nothing of them counts then.
    pub fn append(&mut self, blocks: &[u8]) -> Result<Accepted, AcceptError> {
        let at = self.received();
        self.writable(at, blocks.len() as u64)?.copy_from(blocks);
        self.accept(at.plus(blocks.len() as u64))
    }

    /// Copies what somebody else has put into the ring from `at` on, where [`super::Log::grant`]
    /// allowed it, who is through with it. It is not checked, and not part of the log.
    ///
    /// # Errors
    /// [`AcceptError::NotGranted`] when nobody was allowed to write so far.
    pub fn copy_arrived(&self, at: Lsn, into: &mut [u8]) -> Result<(), AcceptError> {
        let buffer = &self.log().core.buffer;
        let granted = buffer.claimed().min(buffer.released().plus(buffer.capacity()));
        let to = Lsn(at.0.saturating_add(into.len() as u64));
        if to > granted || at < self.received() {
            return Err(AcceptError::NotGranted { to, granted });
        }
        buffer.own_bytes(at, into);
        Ok(())
    }

    /// Makes everything below `to` part of the log, which was put into the ring through
    /// [`Receiver::writable`], or by somebody else where [`super::Log::grant`] allowed it, who is
    /// through with it. Checks first that whole blocks of this log lie there, each by its own
    /// checksum. Costs as much as reading the bytes once.
    ///
    /// # Errors
    /// [`AcceptError`]; nothing of it counts as received then.
    pub fn accept(&mut self, to: Lsn) -> Result<Accepted, AcceptError> {
        freshet_base::step!(Receive, self.received(), to);
        self.received.check_open()?;
        let log = Arc::clone(&self.received.log);
        let buffer = &log.core.buffer;
        let (received, granted) = (self.received(), buffer.claimed().min(buffer.released().plus(buffer.capacity())));
        if to < received {
            return Err(ReceiveError::Gap { at: to, received }.into());
        }
        if to > granted {
            return Err(AcceptError::NotGranted { to, granted });
        }
        let (mut at, mut plain) = (received, true);
        self.blocks.clear();
        while at < to {
            let header = check_block(buffer, at, to).map_err(|cause| AcceptError::Block { at, cause })?;
            let BlockHeader { kind, continued, .. } = header;
            plain &= !matches!(kind, BlockKind::Schema | BlockKind::Inputs);
            self.blocks.push(Whole { at, end: header.end(), continued, kind });
            at = header.end();
        }
        assert_eq!(at, to, "blocks end behind what was taken");
        self.note_blocks();
        buffer.fill_to(to);
        log.received.advance(to);
        assert_eq!(log.received.get(), to, "somebody else receives");
        log.hand_out(&*self.received, &mut self.partition_ends);
        if log.core.pmem.is_at_once() {
            self.received.persist(true).map_err(ReceiveError::from)?;
        }
        log.ring();
        Ok(Accepted { plain })
    }

    /// Takes the ring's memory away from others that may have mapped it, such as a former primary:
    /// it moves to another file, with what was received and nothing beyond that, while readers
    /// continue. Whatever is granted from now on is granted to those that map the new file
    /// ([`super::Log::shared_memory`]). When this returns, nothing that the others store can land
    /// in this log any more. Costs a copy of the ring; nothing, if the file was not given away
    /// ([`Registered::file`](freshet_memory::Registered::file)) since the last time.
    ///
    /// # Errors
    /// What the system says; then the memory is where it was.
    pub fn renew(&mut self) -> io::Result<()> {
        self.log().core.buffer.renew(self.received())
    }

    /// Notes where transactions and partitions end in what is accepted.
    fn note_blocks(&self) {
        freshet_base::step!(Receive);
        let (mut last, mut passed) = (None, self.received().0 / SPACING);
        let mut ends = self.received.ends();
        for Whole { at, end, continued, .. } in &self.blocks {
            self.received.partitions.note(at.0, end.0);
            if !continued {
                last = Some(*end);
                if end.0 / SPACING > passed {
                    passed = end.0 / SPACING;
                    ends.enter(*end);
                }
            }
        }
        if let Some(last) = last {
            ends.enter(last);
        }
        drop(ends);
        self.blocks.iter().for_each(|block| match block.kind {
            BlockKind::Members => self.note_members(*block),
            BlockKind::Mark => self.note_mark(block.at),
            _ => {}
        });
    }

    #[cold]
    fn note_mark(&self, at: Lsn) {
        let on_marks = self.received.on_marks.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(note) = &*on_marks {
            (note.0)(at);
        }
    }

    #[cold]
    fn note_members(&self, Whole { at, end, .. }: Whole) {
        let mut bytes = vec![0; end.since(at) as usize];
        self.log().core.buffer.own_bytes(at, &mut bytes);
        let on_members = self.received.on_members.lock().unwrap_or_else(PoisonError::into_inner);
        if let (Some(note), Ok(block)) = (&*on_members, Block::parse(&bytes, at))
            && let Some(members) = block.members()
        {
            (note.0)(members);
        }
    }

    /// The last end of a transaction at or below `at`, of those that are not remembered too.
    fn last_end(&self, at: Lsn) -> Result<Lsn, LogFailure> {
        let known = self.received.ends().below(at);
        if let (Lsn::ZERO, Some(store)) = (known, &self.log().core.store) {
            return self.last_stored_end(store, at);
        }
        Ok(self.last_end_from(known, at)?.0.unwrap_or(known))
    }

    /// The same, of what was there before this log was opened, which may begin anywhere.
    fn last_stored_end(&self, store: &LogStore, at: Lsn) -> Result<Lsn, LogFailure> {
        let first = store.extent().map_or(Lsn::ZERO, |(first, _)| first);
        let mut length = STRETCH;
        loop {
            let from = first.max(Lsn(at.0.saturating_sub(length)));
            let block = if from == Lsn::ZERO { Some(from) } else { find_block(store, from, at)? };
            let (whole, reached) = match block {
                Some(block) => self.last_end_from(block, at)?,
                None => (None, at),
            };
            match whole {
                // What looked like a block does not lead there otherwise.
                Some(whole) if reached == at || from == first => return Ok(whole),
                _ if from == first => return Ok(block.unwrap_or(at)),
                _ => length *= 8,
            }
        }
    }

    /// The last end of a transaction from the block at `from` on, up to `at`, if there is one; and
    /// how far blocks lead.
    fn last_end_from(&self, from: Lsn, at: Lsn) -> Result<(Option<Lsn>, Lsn), LogFailure> {
        let (mut whole, mut here) = (None, from);
        while here < at {
            let mut header = [0; BLOCK_HEADER];
            self.log().core.read(here, &mut header).map_err(|error| match error {
                ReadError::Store(error) => LogFailure::from(error),
                _ => LogFailure::bug(),
            })?;
            let Some(header) = BlockHeader::peek(&header).ok().filter(|header| header.end() <= at) else { break };
            here = header.end();
            if !header.continued {
                whole = Some(here);
            }
        }
        Ok((whole, here))
    }

    /// Takes back everything at or above `at`, in the ring and, durably, in the store: a node
    /// enters a term only after that. Blocks while a flush is under way.
    ///
    /// # Errors
    /// [`LogFailure`]; opening the store again and cutting once more completes the cut.
    pub fn cut(&mut self, at: Lsn) -> Result<(), LogFailure> {
        let (received, log) = (&*self.received, &*self.received.log);
        let mut guards: Vec<_> = log.streams.iter().map(|stream| stream.flusher()).collect();
        let _nothing_persisted = received.persisting();
        if at >= log.received.get() {
            // What came and never counted goes too.
            log.core.pmem.take_back(log.received.get(), log.core.buffer.claimed());
            return Ok(());
        }
        let whole = self.last_end(at)?;
        assert!(whole <= at, "a transaction that is cut at {at} ends at {whole}");
        if guards.len() > 1 {
            // What was dealt out to streams and stays must be in them before their places above
            // `at` are looked for.
            for flusher in &mut guards {
                log.flush(received, flusher, received.filled())?;
            }
        }
        for stream in &log.streams {
            stream.done.fetch_min(at.0, Ordering::SeqCst);
        }
        log.wanted_stored.fetch_min(at.0, Ordering::SeqCst);
        log.stored.cut(at);
        log.received.cut(at);
        received.partitions.cut(at);
        {
            let mut ends = received.ends();
            ends.cut(at);
            ends.enter(whole);
        }
        log.cut_sinks(at);
        let mut flushers: Vec<&mut Flusher> = guards.iter_mut().map(|guard| &mut **guard).collect();
        log.core.cut(&mut flushers, at, whole)?;
        let durable = log.core.durable.get();
        assert!(
            log.received.get() == at && durable <= at && log.stored.get() <= at,
            "a cut at {at} has left something"
        );
        Ok(())
    }
}

/// A range of the ring that is waiting for the primary's bytes.
#[derive(Debug)]
pub struct Writable<'r> {
    core: &'r Core,
    at: Lsn,
    length: u64,
}

impl Writable<'_> {
    /// Copies bytes that are in memory already; takes as many as are missing and returns how many.
    pub fn copy_from(&mut self, bytes: &[u8]) -> usize {
        let taken = bytes.len().min(self.length as usize);
        self.core.buffer.put(self.at, &bytes[..taken]);
        self.at = self.at.plus(taken as u64);
        self.length -= taken as u64;
        taken
    }
}

/// Checks the block at `at`, which ends at or below `to`, where it lies. Its header is looked at
/// once: what was checked is what is used.
fn check_block(buffer: &LogBuffer, at: Lsn, to: Lsn) -> Result<BlockHeader, BlockError> {
    freshet_base::step!(Receive, at, to);
    let have = to.since(at);
    if have < BLOCK_HEADER as u64 {
        return Err(BlockError::Truncated { need: BLOCK_HEADER as u64, have });
    }
    let head = buffer.own_header(at);
    let header = peek_at(&head, at)?;
    let need = u64::from(header.length);
    if need > have {
        return Err(BlockError::Truncated { need, have });
    }
    let body = buffer.own_checksum(at.plus(BLOCK_HEADER as u64), need - BLOCK_HEADER as u64);
    check_seal(&header, &head, body)?;
    Ok(header)
}
