//! Fetch: a mirror that takes over continues from another node's log, as a standby does. It asks
//! for the log from where its memory ends, and puts that there by itself ([`Taking`]), with undo: a
//! primary that works has always written more than its mirror has, and what is only on its way to
//! the mirror when the mirror takes over would be lost, or keep it from that.
//!
//! The blocks are kept as well, as far as their number permits: the log of this node's term begins
//! with them ([`FetchedLog`](super::FetchedLog)), so that others can follow which have no more than
//! it had.
//!
//! What is taken in so outlives the connection as what a feeder writes does. A transaction that the
//! other node does not have wholly is left out: so this node may have asked for more than is in its
//! memory ([`reaches`](super::Holding::reaches)).

use freshet_base::{Lsn, Term, sync::Arc};
use freshet_cluster::{entering::Entering, handshake::Welcome, mirror::Cut, promotion::Fetch};
use freshet_fabric::tcp::{Receiver, Sender};
use freshet_mirror::{Damaged, NoRoom, NotTaken, Taking};

use super::{Shared, memory::RecoverError};
use crate::{
    follow::{Parts, SessionError, connect, enter, introduce, next_fetched},
    wire::{self, Ack, Continue, Growing, Kind, Purpose, Refusal},
};

/// See [`Store::fetch`](crate::follow::Store::fetch).
pub(super) fn fetch(shared: &Arc<Shared>, from: &str, term: Term, wanted: &Fetch) -> Result<(), SessionError> {
    let terms = shared.terms.get();
    let end = {
        let mut state = shared.state();
        state.mirror_state.fetched(Lsn::ZERO);
        state.mirror_state.end()
    };
    let (history, capacity) = (terms.history.clone(), shared.memory().undo_bytes());
    let log = Continue { history, received: end, persisted: end, capacity, may_send_until: Lsn::MAX };
    let connection = connect(shared, from, shared.follow.order())?;
    let (answer, connection) = introduce(shared, from, connection, Purpose::Fetch { term, log }, term)?;
    let welcome = answer.log;
    wanted.check(&welcome).map_err(SessionError::Refused)?;
    let parts = Parts {
        cut: &|at| cut(shared, at),
        begun_elsewhere: &|_, _| local(&"the checkpoint that this mirror began from holds what the other log does not"),
    };
    let _ = enter(shared, &welcome, Entering::to_fetch, parts)?;
    let (sender, receiver) = connection.split();
    let outcome =
        Arriving::begin(shared, &welcome).and_then(|mut arriving| arriving.run(sender, receiver, wanted.upto));
    // No other node could write here.
    shared.recovered()?;
    let mut state = shared.state();
    if let Some(why) = &state.condemned {
        return Err(local(&format_args!("{why}: promote another node")));
    }
    state.fetched_log = std::mem::take(&mut state.fetched_log).up_to(state.mirror_state.end());
    state.mirror_state.fetched(outcome?);
    Ok(())
}

fn local(cause: &dyn std::fmt::Display) -> SessionError {
    SessionError::Local(cause.to_string())
}

/// A failover from here is of no use.
fn damaged(cause: &Damaged) -> SessionError {
    local(&format_args!("{cause}: promote another node"))
}

/// Undoes what the other node's log does not have.
fn cut(shared: &Shared, at: Lsn) -> Result<(), SessionError> {
    let end = shared.memory().cut(at);
    let end = end.map_err(|cause| match cause {
        RecoverError::Damaged(cause) => damaged(&cause),
        RecoverError::System(cause) => local(&cause),
    })?;
    match shared.state().mirror_state.cut(at, end) {
        Cut::Done => Ok(()),
        Cut::Above(end) => Err(local(&format_args!("what this mirror has up to {end} cannot be undone"))),
        Cut::Below(end) => {
            let why = format!("what this mirror has beyond {end} was undone; it asks again");
            Err(SessionError::Refused(Refusal::Superseded(why)))
        }
    }
}

/// The log arrives, and goes into the memory.
struct Arriving<'a> {
    shared: &'a Shared,
    welcome: &'a Welcome,
    memory: Taking,
}

impl<'a> Arriving<'a> {
    fn begin(shared: &'a Shared, welcome: &'a Welcome) -> Result<Self, SessionError> {
        begin_feed(shared, welcome, welcome.cut_at)?;
        let memory = Taking::new(shared.memory().regions(), welcome.cut_at).map_err(|cause| damaged(&cause))?;
        Ok(Self { shared, welcome, memory })
    }

    /// Takes the log in up to `upto` at least; says how far it has come.
    fn run(&mut self, mut sender: Sender, mut receiver: Receiver, upto: Lsn) -> Result<Lsn, SessionError> {
        let &Welcome { term, end, .. } = self.welcome;
        while self.memory.received() < upto {
            let from = self.memory.received();
            let (header, note) = next_fetched(self.shared, &mut receiver, term, (from, end))?;
            let ends = note.ends.iter().map(|end| from.plus(u64::from(*end)));
            receiver.payload_into(self.memory.room(header.payload as usize, ends))?;
            receiver.payload_done()?;
            self.put()?;
            let (to, visible) = (self.memory.received(), Lsn::ZERO);
            let ack = Ack { persisted: to, may_send_until: Lsn::MAX, replayed: to, visible, observed: None };
            if let Err(error) = sender.send(Kind::Ack as u8, term, &wire::encode(&ack)) {
                tracing::debug!(cause = %error, "a node that sends its log is not told that it came");
            }
        }
        Ok(self.memory.received())
    }

    /// Puts what has arrived into the memory, but for the beginning of a transaction.
    fn put(&mut self) -> Result<(), SessionError> {
        while let Some(batch) = self.memory.begin().map_err(|why| local(&why))? {
            for set in batch.members() {
                let set = wire::decode_set(set)?;
                self.shared.terms.note_set(set)?;
            }
            self.lay_out()?;
            self.memory.land();
            self.memory.taken(&mut self.shared.state().fetched_log, self.shared.store.config.fetched);
        }
        Ok(())
    }

    fn lay_out(&mut self) -> Result<(), SessionError> {
        loop {
            match self.memory.lay_out() {
                Ok(()) => return Ok(()),
                Err(NotTaken::Undo(full)) => match self.shared.grow(full.lacking_bytes(), Growing::Undo) {
                    Some(region) => self.memory.grow_undo(region),
                    None => return Err(local(&self.shared.state().lacks.clone().unwrap_or_default())),
                },
                Err(NotTaken::NoRoom(NoRoom::Arena { bytes })) => match self.shared.grow(bytes, Growing::Arenas) {
                    Some(arena) => self.memory.grow(arena),
                    None => return Err(local(&self.shared.state().lacks.clone().unwrap_or_default())),
                },
                Err(NotTaken::BeginAgain { at }) => {
                    begin_feed(self.shared, self.welcome, at)?;
                    self.memory.begun_again();
                }
                Err(why) => return Err(local(&why)),
            }
        }
    }
}

/// From here on the memory is written by this node, and what is there stays.
fn begin_feed(shared: &Shared, welcome: &Welcome, base: Lsn) -> Result<(), SessionError> {
    let (cluster, term) = (welcome.cluster, welcome.history.last_term());
    let begun = shared.memory().begin_feed(cluster, shared.node(), term, base);
    begun.map_err(|cause| local(&format_args!("a mirror's memory cannot be kept: {cause}")))
}
