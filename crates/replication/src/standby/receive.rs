//! Receive: takes what the primary has written into the log buffer.
//!
//! Another node writes into this node's memory, which has three consequences.
//!
//! - The checksum is end to end: the worker that wrote a block computed it, and it is checked where
//!   the block landed before the block counts. A bad block ends the connection, and the log is sent
//!   again.
//! - Room counts as overwritten before it is granted. At most half the ring is granted at once, so
//!   that readers find the newest half in memory. A standby gets no room before its log has been
//!   cut where the primary's parts from it.
//! - A deposed primary must be unable to write, and be seen to be, before anything is decided
//!   without it. So the end of every connection revokes it: nothing that the other side asks for
//!   succeeds any more. Then the mailbox is drained: what the primary may believe to have arrived
//!   becomes part of the log. Then memory that may still be mapped is renewed. Only after that does
//!   this node answer the node that raised its fence, rest for its own candidacy, or join again.

use std::{convert::Infallible, time::Duration};

use freshet_base::{Lsn, Term, sync::Arc};
use freshet_cluster::{entering::Entering, follower::Event, handshake::Welcome, host::Word, promotion::Fetch};
use freshet_fabric::{
    channel::{MAX_FRAME, Receiver},
    cpu::Stint,
    frame::Header,
    tcp::{self, Connection},
};

use super::{Shared, ack::AckSender, forms::Arriving, of_another_log};
use crate::{
    feed::{PACKED_FORM, PLAIN_FORM},
    follow::{
        Enter, Parts, SessionError, check_batch, connect, enter, fenced, introduce, joining, next_fetched, next_frame,
        offer, violation,
    },
    forms::Encoding,
    wire::{self, BatchNote, Continue, Join, Kind, Peers, Purpose},
};

/// See [`Store::feed`](crate::follow::Store::feed).
pub(super) fn feed(shared: &Arc<Shared>, upstream: &str, connection: Connection) -> Result<Infallible, SessionError> {
    let terms = shared.terms.get();
    let ring = Arc::new(shared.store.log.shared_memory());
    let (welcome, offered) = offer(shared, upstream, connection, vec![ring], |offer, passage| {
        let (persisted, holds) = shared.holds(&terms);
        let log = Continue { persisted, ..shared.continuation() };
        let (appliance, encoding) = (shared.config.fabric.appliance, shared.encoding());
        let relay = shared.store.relay.is_some();
        Join { appliance, encoding, holds, relay, ..joining(shared, &terms, log, offer, passage) }
    })?;
    continue_as(shared, &welcome, Entering::to_follow)?;
    pass_on(shared, &welcome)?;
    let (sender, receiver, keep_alive, patience) = offered.connect(shared, &welcome)?;
    begin(shared, AckSender::Channel(sender), &welcome);
    shared.terms.belongs();
    shared.follow.joined(welcome.node, &welcome.above, welcome.term);
    // The primary has been given no room before: it must not write before the log was cut.
    shared.acknowledge(true);
    let mut stint = shared.store.receive_cpu.begin();
    let mut session = Session {
        shared,
        receiver,
        term: welcome.term,
        keep_alive,
        patience,
        reported: 0,
        unpacked: Vec::new(),
        form: Vec::new(),
        ends: Vec::new(),
    };
    let error = loop {
        // What it takes in until then, it has taken in before it answers anybody who speaks for a
        // later term.
        if !shared.terms.admits(session.term) {
            break fenced(shared, session.term);
        }
        if let Err(error) = session.arrival(&mut stint) {
            break error;
        }
    };
    // Before the receiving half goes, and the connection with it.
    shared.disconnect(error.refusal());
    Err(session.revoke(&mut stint).err().unwrap_or(error))
}

/// As a relay, passes on what follows.
fn pass_on(shared: &Arc<Shared>, welcome: &Welcome) -> Result<(), SessionError> {
    let begun = shared.store.relay.as_ref().map_or(Ok(()), |relay| relay.begin(shared, welcome));
    begun.map_err(|error| SessionError::Local(format!("cannot start a thread: {error}")))
}

/// Continues this node's log from the one at `address`, up to `until` which that node has said to
/// be its end.
pub(super) fn fetch(shared: &Arc<Shared>, address: &str, term: Term, wanted: &Fetch) -> Result<(), SessionError> {
    let purpose = Purpose::Fetch { term, log: shared.continuation() };
    let connection = connect(shared, address, shared.follow.order())?;
    let (answer, connection) = introduce(shared, address, connection, purpose, term)?;
    let welcome = answer.log;
    wanted.check(&welcome).map_err(SessionError::Refused)?;
    continue_as(shared, &welcome, Entering::to_fetch)?;
    let (sender, mut receiver) = connection.split();
    begin(shared, AckSender::Frames(sender), &welcome);
    shared.acknowledge(true);
    let mut scratch = vec![0; SCRATCH];
    // The other node may have made more of its log persistent since it said where that ends: then
    // it sends that, too.
    while shared.store.log.received().get() < wanted.upto {
        fetched(shared, &mut receiver, welcome.term, &mut scratch, welcome.end)?;
    }
    Ok(())
}

/// From now on the other side is told what this one holds.
fn begin(shared: &Shared, sender: AckSender, welcome: &Welcome) {
    shared.linked(welcome);
    let mut state = shared.state();
    state.follower.linked(welcome);
    state.lag.forget();
    state.link.forget();
    state.passage.forget();
    drop(state);
    shared.store.acks.connect(sender, welcome.term);
}

/// Makes the own log a prefix of the sender's, and enters its terms.
fn continue_as(shared: &Shared, welcome: &Welcome, steps: Enter) -> Result<(), SessionError> {
    let parts = Parts {
        cut: &|at| shared.cut(at, true),
        begun_elsewhere: &|at, floor| SessionError::Local(of_another_log(at, floor)),
    };
    let entered = enter(shared, welcome, steps, parts)?;
    shared.state().follower.entered(entered);
    Ok(())
}

/// What comes by frames passes through this much memory, which stays in the cache.
const SCRATCH: usize = 64 << 10;

struct Session<'a> {
    shared: &'a Arc<Shared>,
    receiver: Receiver,
    term: Term,
    keep_alive: Duration,
    patience: Duration,
    /// How much of the mailbox the primary knows to have been taken.
    reported: u64,
    unpacked: Vec<u8>,
    form: Vec<u8>,
    ends: Vec<Lsn>,
}

impl Session<'_> {
    /// Nothing that the primary writes counts from now on; but what it may believe to have arrived
    /// becomes part of the log, although a later term may be in force: no candidate has been told
    /// yet what this log is like in that. (With the appliance method, Query Fresh section 2.3, it
    /// has read that back, and may have acknowledged it.) What is damaged or does not follow ends
    /// it, as nothing behind that was ever of use.
    ///
    /// # Errors
    /// [`SessionError::Local`] when this node cannot continue.
    fn revoke(mut self, stint: &mut Stint<'_>) -> Result<(), SessionError> {
        self.receiver.revoke();
        loop {
            match self.arrival(stint) {
                Ok(()) => {}
                Err(error @ SessionError::Local(_)) => return Err(error),
                Err(_) => return Ok(()),
            }
        }
    }

    /// Takes in what has arrived.
    fn arrival(&mut self, stint: &mut Stint<'_>) -> Result<(), SessionError> {
        let Some(header) = next_frame(self.shared, &mut self.receiver, self.term, self.patience)? else {
            return Ok(());
        };
        freshet_base::step!(Receive);
        let kind = Kind::from_code(header.kind);
        if header.payload != 0 && !matches!(kind, Some(Kind::Batch | Kind::Inputs)) {
            return Err(violation(format!("a frame of kind {} carries a payload", header.kind)));
        }
        let mut force = self.receiver.owes(self.reported);
        match kind {
            Some(Kind::Batch) => {
                let note: BatchNote = wire::decode("batch", self.receiver.message())?;
                // First what is committed, which rides on it: what is then replayed may be seen at
                // once.
                self.observe(&note);
                self.batch(&header, &note)?;
                stint.note();
            }
            Some(Kind::Inputs) => {
                let note: BatchNote = wire::decode("batch", self.receiver.message())?;
                self.observe(&note);
                self.form(&header, &note)?;
                stint.note();
            }
            Some(Kind::Watermark) => {
                let note: BatchNote = wire::decode("watermark", self.receiver.message())?;
                self.observe(&note);
                // A watermark needs no answer of its own; silence would be taken for death.
                let last = self.shared.state().follower.last_ack();
                let silence = last.map(|last| self.shared.clock.now().since(last));
                force |= silence.is_some_and(|silence| silence >= self.keep_alive / 2);
            }
            Some(Kind::Peers) => {
                let message: Peers = wire::decode("list of peers", self.receiver.message())?;
                self.shared.observe_peers(message);
            }
            Some(Kind::Goodbye) => {
                return Err(SessionError::Goodbye(wire::decode("goodbye", self.receiver.message())?));
            }
            _ => return Err(violation(format!("a frame of kind {} was not expected", header.kind))),
        }
        if force {
            self.reported = self.receiver.taken();
        }
        // Where persisting takes no time this spares a wake-up.
        self.shared.acknowledge(force);
        Ok(())
    }

    fn observe(&self, note: &BatchNote) {
        freshet_base::step!(Receive, note.global, note.global);
        let shared = self.shared;
        let word = Word { end: note.end, time: note.time, sure: note.sure };
        shared.watching.observe(note.time);
        shared.observe_maintenance(note.maintenance);
        let decision = {
            let mut state = shared.state();
            assert!(shared.terms.fence().highest() >= self.term, "a term is followed that was not promised");
            state.follower.report_visible(note.report_visible);
            let decision = shared.apply(&mut state, Event::Global(note.global));
            let visible = state.follower.visible();
            let now = shared.clock.now();
            state.lag.observe(word, note.in_sync, visible, now);
            state.lag.committed(note.global, note.end, now);
            state.link.observe(note.begun, now);
            decision
        };
        if let Some(session) = shared.relaying() {
            session.observe(word);
        }
        shared.carry_out(decision);
    }

    /// A batch is part of the log only once its blocks were found whole.
    fn batch(&mut self, header: &Header, note: &BatchNote) -> Result<(), SessionError> {
        freshet_base::step!(Receive);
        if self.shared.store.forms.is_some() {
            return self.plain(header, note);
        }
        let shared = self.shared;
        let from = shared.store.log.received().get();
        assert_eq!(shared.state().follower.received(), from, "the log has what its standby does not know");
        check_batch(header, note, from)?;
        let to = from.plus(u64::from(header.payload));
        // If it came compressed, this node puts it into its place.
        if self.unpack(header, from)? {
            write(shared, from, &self.unpacked)?;
        }
        let accepted = shared.receive(|receiver| receiver.accept(to))?;
        assert_eq!(shared.store.log.received().get(), to, "what was accepted is not in the log");
        if let Some(filled_at) = note.filled_at.filter(|_| shared.config.fabric.kind.is_local()) {
            shared.state().passage.arrived(to, filled_at);
        }
        self.ends.clear();
        self.ends.extend(note.ends.iter().map(|end| from.plus(u64::from(*end))));
        shared.accepted(&self.ends, accepted.plain.then_some(header.payload));
        Ok(())
    }

    /// Decompresses a batch that came compressed; says whether it did.
    fn unpack(&mut self, header: &Header, from: Lsn) -> Result<bool, SessionError> {
        if self.receiver.inline().is_empty() {
            return Ok(false);
        }
        unpack(self.receiver.inline(), header.payload as usize, from, &mut self.unpacked)?;
        Ok(true)
    }

    /// A batch of bytes, where batches may come in another form: it goes the same way, but is not
    /// written into the journal when none of these are to come any more.
    fn plain(&mut self, header: &Header, note: &BatchNote) -> Result<(), SessionError> {
        let (from, to) = self.arrives(header, note)?;
        if !self.unpack(header, from)? {
            self.unpacked.resize(header.payload as usize, 0);
            let into = &mut self.unpacked;
            let copied = self.shared.receive(|receiver| receiver.copy_arrived(from, into));
            copied.map_err(|error| violation(error.to_string()))?;
        }
        let inline = self.receiver.inline().len();
        let carried = if inline == 0 { u64::from(header.payload) } else { inline as u64 };
        let keeps = self.shared.encoding() != Encoding::Bytes;
        let batch = Arriving { from, to, carried, keeps };
        let arrived = self.shared.arrived_plain(batch, &self.unpacked, &mut self.form);
        arrived.map_err(|why| self.wrong(why))
    }

    /// Where a batch begins and ends that follows what has arrived.
    fn arrives(&self, header: &Header, note: &BatchNote) -> Result<(Lsn, Lsn), SessionError> {
        let from = self.shared.state().follower.received();
        check_batch(header, note, from)?;
        let (to, room) = (from.plus(u64::from(header.payload)), self.shared.store.log.free_until());
        if to > room {
            return Err(violation(format!("a batch ends at {to}, there is room up to {room}")));
        }
        if let Some(filled_at) = note.filled_at.filter(|_| self.shared.config.fabric.kind.is_local()) {
            self.shared.state().passage.arrived(to, filled_at);
        }
        Ok((from, to))
    }

    fn wrong(&self, why: String) -> SessionError {
        if self.shared.stopping() { SessionError::Interrupted } else { violation(why) }
    }

    /// A batch in another form is regenerated; it becomes part of the log later.
    fn form(&mut self, header: &Header, note: &BatchNote) -> Result<(), SessionError> {
        let (from, to) = self.arrives(header, note)?;
        let form = match self.receiver.inline() {
            [PLAIN_FORM, form @ ..] => form,
            [PACKED_FORM, a, b, c, d, packed @ ..] => {
                let length = u32::from_le_bytes([*a, *b, *c, *d]) as usize;
                unpack(packed, length, from, &mut self.unpacked)?;
                &self.unpacked
            }
            _ => return Err(violation(format!("the batch at {from} has an unknown form"))),
        };
        let carried = self.receiver.inline().len() as u64;
        let arrived = self.shared.arrived(Arriving { from, to, carried, keeps: true }, form);
        arrived.map_err(|why| self.wrong(why))
    }
}

/// Puts bytes into the log buffer at the end of the log, or behind.
fn write(shared: &Shared, at: Lsn, bytes: &[u8]) -> Result<(), SessionError> {
    shared.receive(|receiver| {
        receiver.writable(at, bytes.len() as u64)?.copy_from(bytes);
        Ok(())
    })
}

/// Decompresses what was `length` bytes of the batch at `from`.
fn unpack(packed: &[u8], length: usize, from: Lsn, into: &mut Vec<u8>) -> Result<(), SessionError> {
    // No batch and no form is longer than a frame.
    into.resize(length.min(MAX_FRAME), 0);
    let unpacked = lz4_flex::block::decompress_into(packed, into);
    if unpacked.as_ref().ok() != Some(&length) {
        return Err(violation(format!("the batch at {from} cannot be decompressed: {unpacked:?}")));
    }
    Ok(())
}

/// Takes in one frame of a log that is fetched.
fn fetched(
    shared: &Shared,
    receiver: &mut tcp::Receiver,
    term: Term,
    scratch: &mut [u8],
    until: Lsn,
) -> Result<(), SessionError> {
    let from = shared.store.log.received().get();
    let (header, note) = next_fetched(shared, receiver, term, (from, until))?;
    let (to, room) = (from.plus(u64::from(header.payload)), shared.store.log.free_until());
    if to > room {
        return Err(violation(format!("a batch ends at {to}, there is room up to {room}")));
    }
    if shared.store.forms.is_some() {
        // The candidate may remain a standby, which regenerates what follows.
        let mut blocks = vec![0; header.payload as usize];
        receiver.payload_into(&mut blocks)?;
        receiver.payload_done()?;
        let batch = Arriving { from, to, carried: u64::from(header.payload), keeps: false };
        shared.arrived_plain(batch, &blocks, &mut Vec::new()).map_err(violation)?;
        return shared.drain(None).map_err(SessionError::Local);
    }
    let mut at = from;
    while at < to {
        let piece = &mut scratch[..(to.since(at) as usize).min(SCRATCH)];
        receiver.payload_into(piece)?;
        write(shared, at, piece)?;
        at = at.plus(piece.len() as u64);
    }
    receiver.payload_done()?;
    shared.receive(|receiver| receiver.accept(to))?;
    let ends: Vec<_> = note.ends.iter().map(|end| from.plus(u64::from(*end))).collect();
    shared.accepted(&ends, None);
    shared.acknowledge(false);
    Ok(())
}
