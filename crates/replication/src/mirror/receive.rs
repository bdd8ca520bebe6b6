//! Receive: offers the memory to a primary, and takes it back.

use std::{
    convert::Infallible,
    time::{Duration, Instant},
};

use freshet_base::{Lsn, sync::Arc};
use freshet_cluster::{
    entering::{Entered, Entering},
    handshake::Welcome,
    in_sync::InSyncSet,
    mirror::Cut,
};
use freshet_fabric::{
    Offer,
    channel::{MAX_FRAME, Payload, Receiver, Sender},
    cpu::Stint,
    memory::Region,
    tcp::{Connection, ReceiveError, SendError},
};
use freshet_mirror::{ARENAS, Contents, Damaged};

use super::{Observed, Shared, State, memory::RecoverError};
use crate::{
    follow::{Parts, SessionError, enter, fenced, joining, next_frame, offer, violation},
    load::{Done, LoadMeter},
    wire::{self, Ack, Asks, BatchNote, Continue, Growing, Join, Kind, Peers, Refusal},
};

/// The primary has this long to read why a connection ends.
const FAREWELL: Duration = Duration::from_millis(200);
/// How often it is noted how far a memory reaches that is kept.
const NOTE_EVERY: Duration = Duration::from_secs(2);

impl From<RecoverError> for SessionError {
    fn from(error: RecoverError) -> Self {
        Self::Local(error.to_string())
    }
}

/// The files of the memory cannot be written.
fn local(cause: &std::io::Error) -> SessionError {
    SessionError::Local(format!("a mirror's memory cannot be kept: {cause}"))
}

/// What was set aside goes as soon as this mirror has all of it again.
pub(super) fn drop_aside(shared: &Shared) {
    let (is_state, end) = {
        let mirror_state = &shared.state().mirror_state;
        (mirror_state.is_state(), mirror_state.end())
    };
    let mut memory = shared.memory();
    if is_state && memory.aside().is_some() {
        memory.drop_aside(&shared.terms.get().history, end);
    }
}

/// What cannot be sent has no one to be sent to.
fn lost(error: SendError, receiver: &Receiver) -> SessionError {
    tracing::debug!(cause = %error, "a mirror cannot answer its primary");
    ReceiveError::Closed { peer: receiver.peer() }.into()
}

/// See [`Store::feed`](crate::follow::Store::feed).
pub(super) fn feed(shared: &Arc<Shared>, upstream: &str, connection: Connection) -> Result<Infallible, SessionError> {
    let (regions, more_undo, undo) = {
        let memory = shared.memory();
        (memory.regions(), memory.undo_regions(), memory.undo_bytes())
    };
    // Arenas are told of one by one: there may be more than descriptors can be passed at once.
    let (first, arenas) = regions.split_at(ARENAS);
    let growing = |number: usize| if more_undo.contains(&number) { Growing::Undo } else { Growing::Arenas };
    let arenas: Vec<_> = arenas.iter().cloned().zip((ARENAS..).map(growing)).collect();
    let member = shared.state().mirror_state.is_state();
    let join = |offer, passage| join(shared, undo, offer, passage);
    let (welcome, offered) = offer(shared, upstream, connection, first.to_vec(), join)?;
    let parts = Parts {
        cut: &|at| cut(shared, at),
        begun_elsewhere: &|_, _| {
            begin_again(shared, &"the checkpoint that it began from holds what the cluster's log does not")
        },
    };
    let entered = enter(shared, &welcome, Entering::to_follow, parts)?;
    let description = begin_feed(shared, &welcome, entered)?;
    let (sender, receiver, _, patience) = offered.connect(shared, &welcome)?;
    let (reported, load, noted) = (0, LoadMeter::default(), Instant::now());
    let mut session = Session { shared, sender, receiver, welcome: &welcome, member, patience, reported, load, noted };
    let mut stint = shared.store.cpu.begin();
    let error = match session.run(&arenas, &description, &mut stint) {
        Ok(never) => match never {},
        Err(error) => error,
    };
    session.end(error.refusal());
    Err(error)
}

/// How this node asks to be fed, by an undo ring of this many bytes.
fn join(shared: &Shared, undo: u64, offer: Offer, passage: Option<u64>) -> Join {
    let terms = shared.terms.get();
    let (end, member) = {
        let state = shared.state();
        (state.mirror_state.end(), state.mirror_state.is_state())
    };
    let (holds, history) = (shared.committed(&terms), terms.history.clone());
    let log = Continue { history, received: end, persisted: end, capacity: undo, may_send_until: Lsn::MAX };
    let noted = terms.set.as_ref().map(InSyncSet::name);
    Join { member, mirror: true, noted, holds, ..joining(shared, &terms, log, offer, passage) }
}

/// The memory is the primary's from now on: says what is in it.
fn begin_feed(shared: &Shared, welcome: &Welcome, entered: Entered) -> Result<Vec<u8>, SessionError> {
    let regions = {
        let mut memory = shared.memory();
        let begun = memory.begin_feed(welcome.cluster, welcome.node, welcome.term, welcome.cut_at);
        begun.map_err(|cause| local(&cause))?;
        memory.regions()
    };
    {
        let mut state = shared.state();
        state.holds_more = None;
        state.mirror_state.linked(entered);
    }
    shared.linked(welcome);
    drop_aside(shared);
    // All records may have to be read, and others ask for the status in the meantime.
    let description = Contents::open(regions, welcome.cut_at).and_then(|contents| contents.description());
    description.map_err(|damaged| condemned(shared, &damaged))
}

/// What is in the memory is not what was written.
fn condemned(shared: &Shared, damaged: &Damaged) -> SessionError {
    shared.condemn(damaged.to_string());
    SessionError::Refused(Refusal::Superseded(damaged.to_string()))
}

/// Undoes what is in the memory beyond `at`.
fn cut(shared: &Shared, at: Lsn) -> Result<(), SessionError> {
    let end = match shared.memory().cut(at) {
        Ok(end) => end,
        Err(RecoverError::Damaged(damaged)) => return Err(condemned(shared, &damaged)),
        Err(RecoverError::System(cause)) => return Err(local(&cause)),
    };
    let cut = shared.state().mirror_state.cut(at, end);
    match cut {
        Cut::Done => Ok(()),
        Cut::Above(end) => Err(begin_again(shared, &format_args!("it cannot be cut back below {end}"))),
        Cut::Below(end) => {
            let why = format!("what this mirror has beyond {end} was undone; it joins again");
            Err(SessionError::Refused(Refusal::Superseded(why)))
        }
    }
}

/// What is in the memory cannot be continued with this log, which has all of it that is known to be
/// committed. It is kept until a checkpoint comes, unless the primary has none.
fn begin_again(shared: &Shared, why: &dyn std::fmt::Display) -> SessionError {
    let why = format!("what this mirror has cannot be continued: {why}; it is filled again");
    if !shared.state().mirror_state.goes_stale() {
        return SessionError::Refused(Refusal::Superseded(why));
    }
    match shared.forget() {
        Ok(()) => SessionError::Refused(Refusal::Superseded(why)),
        Err(error) => error,
    }
}

struct Session<'a> {
    shared: &'a Arc<Shared>,
    sender: Sender,
    receiver: Receiver,
    welcome: &'a Welcome,
    /// Commits may count on this node.
    member: bool,
    patience: Duration,
    /// How much of the mailbox the primary knows to have been taken.
    reported: u64,
    load: LoadMeter,
    /// When it was noted last how far the memory reaches.
    noted: Instant,
}

impl Session<'_> {
    fn run(
        &mut self,
        arenas: &[(Region, Growing)],
        description: &[u8],
        stint: &mut Stint<'_>,
    ) -> Result<Infallible, SessionError> {
        for (region, growing) in arenas {
            self.report_grown(Some(region), *growing)?;
        }
        self.describe(description)?;
        let welcome = self.welcome;
        self.shared.terms.belongs();
        self.shared.follow.joined(welcome.node, &welcome.above, welcome.term);
        // The primary has been given no room before: it must not write before it knows the memory.
        self.answer(welcome.cut_at)?;
        loop {
            if !self.shared.terms.admits(welcome.term) {
                return Err(fenced(self.shared, welcome.term));
            }
            self.arrival()?;
            stint.note();
        }
    }

    /// Says what lies where.
    fn describe(&mut self, description: &[u8]) -> Result<(), SessionError> {
        let mut rest = description;
        loop {
            let (part, behind) = rest.split_at(rest.len().min(MAX_FRAME / 2));
            let message = wire::encode(&behind.is_empty());
            let (kind, term) = (Kind::Layout as u8, self.welcome.term);
            let sent = self.sender.send_with(kind, term, 0, part.len() as u32, &message, Payload::Inline(part));
            sent.map_err(|error| lost(error, &self.receiver))?;
            if behind.is_empty() {
                return Ok(());
            }
            rest = behind;
        }
    }

    /// Takes in what has arrived.
    fn arrival(&mut self) -> Result<(), SessionError> {
        let Some(header) = next_frame(self.shared, &mut self.receiver, self.welcome.term, self.patience)? else {
            return Ok(());
        };
        let mut answers = self.receiver.owes(self.reported);
        match Kind::from_code(header.kind) {
            _ if header.payload != 0 => return Err(violation("a mirror gets rows in place, and no payload".into())),
            Some(Kind::Watermark) => {
                let note: BatchNote = wire::decode("watermark", self.receiver.message())?;
                self.observe(&note, Lsn(header.address))?;
                answers = true;
            }
            Some(Kind::Peers) => {
                let message: Peers = wire::decode("list of peers", self.receiver.message())?;
                self.shared.observe_peers(message);
            }
            Some(Kind::Members) => {
                // Durably, before anything behind it is answered.
                let set = wire::decode_set(self.receiver.message())?;
                self.shared.terms.note_set(set)?;
            }
            Some(Kind::Grow) => {
                let (bytes, growing) = wire::decode("number of bytes", self.receiver.message())?;
                let region = self.shared.grow(bytes, growing);
                self.report_grown(region.as_ref(), growing)?;
            }
            Some(Kind::Goodbye) => {
                let why: Refusal = wire::decode("goodbye", self.receiver.message())?;
                return Err(SessionError::Goodbye(why));
            }
            _ => return Err(violation(format!("a frame of kind {} was not expected", header.kind))),
        }
        if answers {
            let end = self.shared.state().mirror_state.end();
            self.answer(end)?;
        }
        if !self.member && self.shared.state().mirror_state.is_state() {
            let why = "this mirror has all that belongs to its checkpoint, and joins as a member".into();
            return Err(SessionError::Seeded(Refusal::Superseded(why)));
        }
        Ok(())
    }

    /// The primary lives, and announces that everything up to `to` is in this memory.
    fn observe(&mut self, note: &BatchNote, to: Lsn) -> Result<(), SessionError> {
        self.shared.watching.observe(note.time);
        self.shared.observe_maintenance(note.maintenance);
        let mut state = self.shared.state();
        let State { mirror_state, observed, .. } = &mut *state;
        mirror_state.observe(to, note.global);
        let latest = Observed { end: note.end, in_sync: note.in_sync };
        *observed = Some((latest, self.shared.clock.now()));
        drop(state);
        drop_aside(self.shared);
        if self.noted.elapsed() >= NOTE_EVERY {
            self.noted = Instant::now();
            let mut memory = self.shared.memory();
            let noted = memory.stays_to().map_or(Ok(()), |to| memory.note_reached(to));
            noted.map_err(|cause| local(&cause))?;
        }
        Ok(())
    }

    /// Reports what this node holds: what the primary knows to have arrived, and every in-sync set
    /// in it is noted. There is room for all of the log. And how busy this node is: what is on its
    /// way to it, the primary sees.
    fn answer(&mut self, to: Lsn) -> Result<(), SessionError> {
        self.reported = self.receiver.taken();
        let observed = self.shared.watching.answers();
        let ack = Ack { persisted: to, may_send_until: Lsn::MAX, replayed: to, visible: Lsn::ZERO, observed };
        self.load.look(|| Done { following: self.shared.store.cpu.total(), ..Done::default() });
        let sent = self.sender.status(wire::ack_words(&ack, Asks::default(), self.load.load()));
        sent.map_err(|error| lost(error, &self.receiver))
    }

    /// Registers a region, if there is one, and says so.
    fn report_grown(&mut self, region: Option<&Region>, growing: Growing) -> Result<(), SessionError> {
        let key = region.map(|region| self.receiver.register(Arc::clone(region))).transpose()?;
        let message = wire::encode(&(key, growing));
        let sent = self.sender.send(Kind::Grown as u8, self.welcome.term, 0, 0, &message);
        sent.map_err(|error| lost(error, &self.receiver))
    }

    /// Nothing that the primary writes counts from now on. What it has not heard to have completed
    /// is seen in the memory itself.
    fn end(mut self, why: Option<&Refusal>) {
        if let Some(why) = why {
            let message = wire::encode(why);
            if self.sender.send(Kind::Goodbye as u8, self.welcome.term, 0, 0, &message).is_ok() {
                self.sender.farewell(FAREWELL);
            }
        }
        self.receiver.revoke();
    }
}
