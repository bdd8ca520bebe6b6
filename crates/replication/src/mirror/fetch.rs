//! Fetch: a mirror that takes over continues from another node's log, as a standby does. It asks
//! for the log from where its memory ends, and puts that there by itself ([`Taking`]), with undo: a
//! primary that works has always written more than its mirror has, and what is only on its way to
//! the mirror when the mirror takes over would be lost, or keep it from that.
//!
//! The blocks are kept as well, as far as their number permits: the log of this node's reign begins
//! with them ([`FetchedLog`]), so that others can follow which have no more than it had.
//!
//! What is taken in so outlives the connection as what a feeder writes does. A transaction that the
//! other node does not have wholly is left out: so this node may have asked for more than is in its
//! memory ([`State::fetched`](super::State)).

use std::collections::VecDeque;

use freshet_base::{Stamp, Term, sync::Arc};
use freshet_cluster::{
    handshake::{Welcome, check_welcome},
    take_over::Fetch,
};
use freshet_fabric::tcp::{Receiver, Sender};
use freshet_mirror::{Batch, Damaged, NoRoom, NotTaken, Taking};

use super::Shared;
use crate::{
    standby::{SessionError, connect, introduce, next_fetched},
    wire::{self, Ack, Continue, Kind, Purpose, Refusal},
};

/// See [`Candidate::fetch`](crate::takeover::Candidate::fetch).
pub(super) fn fetch(shared: &Arc<Shared>, from: &str, term: Term, wanted: &Fetch) -> Result<(), SessionError> {
    let terms = shared.terms.get();
    let end = {
        let mut state = shared.state();
        state.fetched = Stamp::ZERO;
        state.end
    };
    let (history, capacity) = (terms.history.clone(), shared.memory().undo_bytes());
    let log = Continue { history, received: end, persisted: end, capacity, may_send_until: Stamp::MAX };
    let connection = connect(&**shared, from, shared.follow.order())?;
    let (answer, connection) = introduce(&**shared, from, connection, Purpose::Fetch { term, log }, term)?;
    let welcome = answer.log;
    let checked = wanted.check(&welcome).and_then(|()| check_welcome(&welcome, terms.cluster, &terms.history, end));
    checked.map_err(SessionError::Refused)?;
    if welcome.cut_at < end {
        cut(shared, welcome.cut_at)?;
    }
    shared.terms.adopt(welcome.cluster, welcome.history.clone()).map_err(|error| local(&error))?;
    let (sender, receiver) = connection.split();
    let outcome = Arriving::begin(shared, &welcome).and_then(|arriving| arriving.run(sender, receiver, wanted.upto));
    // No other node could write here.
    shared.recovered()?;
    let mut state = shared.state();
    state.fetched_log = std::mem::take(&mut state.fetched_log).up_to(state.end);
    state.fetched = outcome?;
    Ok(())
}

/// The end of the log, as it was fetched: whole transactions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FetchedLog {
    /// Where it begins.
    pub from: Stamp,
    /// Its blocks.
    pub blocks: Vec<u8>,
}

impl FetchedLog {
    fn end(&self) -> Stamp {
        self.from.plus(self.blocks.len() as u64)
    }

    /// Appends what begins at `from`. If that does not follow, or all would be more than `most`
    /// bytes, this begins there, unless it is within a transaction: then it is empty.
    fn append(&mut self, from: Stamp, blocks: &[u8], most: u64, is_within: bool) {
        let follows = from == self.end() && !self.blocks.is_empty();
        if !follows || (self.blocks.len() + blocks.len()) as u64 > most {
            self.blocks.clear();
            self.from = from;
            if is_within || blocks.len() as u64 > most {
                return;
            }
        }
        self.blocks.extend_from_slice(blocks);
    }

    /// That of a log which ends there.
    pub(super) fn up_to(mut self, end: Stamp) -> Self {
        if self.from >= end || self.end() < end {
            return Self { from: end, blocks: Vec::new() };
        }
        self.blocks.truncate(end.since(self.from) as usize);
        self
    }
}

fn local(cause: &dyn std::fmt::Display) -> SessionError {
    SessionError::Local(cause.to_string())
}

/// A take-over from here is of no use.
fn damaged(cause: &Damaged) -> SessionError {
    local(&format_args!("{cause}: promote another node"))
}

/// Undoes what the other node's log does not have.
fn cut(shared: &Shared, at: Stamp) -> Result<(), SessionError> {
    if at < shared.state().floor {
        return Err(local(&"the checkpoint that this mirror began from holds what the other log does not"));
    }
    let cut = shared.memory().cut(at).map_err(|cause| damaged(&cause))?;
    shared.state().end = cut;
    match cut {
        cut if cut == at => Ok(()),
        cut if cut > at => Err(local(&format_args!("what this mirror has up to {cut} cannot be undone"))),
        cut => {
            let why = format!("what this mirror has beyond {cut} was undone; it asks again");
            Err(SessionError::Refused(Refusal::Superseded(why)))
        }
    }
}

/// The log arrives, and goes into the memory.
struct Arriving<'a> {
    shared: &'a Shared,
    welcome: &'a Welcome,
    memory: Taking,
    /// All below is in the memory; and, where transactions end, below this.
    at: Stamp,
    whole: Stamp,
    /// What has arrived since, and ends of blocks in it.
    bytes: Vec<u8>,
    ends: VecDeque<Stamp>,
}

impl<'a> Arriving<'a> {
    fn begin(shared: &'a Shared, welcome: &'a Welcome) -> Result<Self, SessionError> {
        let at = welcome.cut_at;
        begin_feed(shared, welcome, at)?;
        let memory = Taking::new(shared.memory().regions(), at).map_err(|cause| damaged(&cause))?;
        Ok(Self { shared, welcome, memory, at, whole: at, bytes: Vec::new(), ends: VecDeque::new() })
    }

    /// Where the log ends that has arrived.
    fn received(&self) -> Stamp {
        self.at.plus(self.bytes.len() as u64)
    }

    /// Takes the log in up to `upto` at least; says how far it has come.
    fn run(mut self, mut sender: Sender, mut receiver: Receiver, upto: Stamp) -> Result<Stamp, SessionError> {
        let &Welcome { term, end, .. } = self.welcome;
        while self.received() < upto {
            let from = self.received();
            let (header, note) = next_fetched(self.shared, &mut receiver, term, (from, end))?;
            let begin = self.bytes.len();
            self.bytes.resize(begin + header.payload as usize, 0);
            receiver.payload_into(&mut self.bytes[begin..])?;
            receiver.payload_done()?;
            self.ends.extend(note.ends.iter().map(|end| from.plus(u64::from(*end))));
            self.put()?;
            let (to, visible) = (self.received(), Stamp::ZERO);
            let ack = Ack { persisted: to, may_send_until: Stamp::MAX, replayed: to, visible };
            if let Err(error) = sender.send(Kind::Ack as u8, term, &wire::encode(&ack)) {
                tracing::debug!(cause = %error, "a node that sends its log is not told that it came");
            }
        }
        Ok(self.received())
    }

    /// Puts what has arrived into the memory, but for the beginning of a transaction, unless that
    /// is longer than a batch.
    fn put(&mut self) -> Result<(), SessionError> {
        while let Some(first) = self.ends.front() {
            let longest = self.memory.longest();
            let fit = self.ends.partition_point(|end| end.since(self.at) <= longest);
            let Some(to) = fit.checked_sub(1).map(|last| self.ends[last]) else {
                let length = first.since(self.at);
                return Err(local(&format_args!(
                    "the log has {length} bytes in one piece, and the undo ring of this mirror takes {longest}: set \
                     mirror.undo-bytes to more"
                )));
            };
            let (mut batch, length) = (Batch::new(), to.since(self.at) as usize);
            batch.room(length).copy_from_slice(&self.bytes[..length]);
            let extent = batch.begin(self.at, length).map_err(|why| local(&why))?;
            if extent.continues && fit == self.ends.len() {
                return Ok(());
            }
            for set in batch.members() {
                let set = wire::decode("in-sync set", set)?;
                self.shared.terms.note_set(set).map_err(|error| local(&error))?;
            }
            self.take_in(batch)?;
            let length = extent.to.since(self.at) as usize;
            let (most, is_within) = (self.shared.config.fetched, self.whole < self.at);
            self.shared.state().fetched_log.append(self.at, &self.bytes[..length], most, is_within);
            self.bytes.drain(..length);
            while self.ends.pop_front_if(|end| *end <= extent.to).is_some() {}
            self.at = extent.to;
            self.whole = extent.kept_to().unwrap_or(self.whole);
        }
        Ok(())
    }

    fn take_in(&mut self, batch: Batch) -> Result<(), SessionError> {
        self.memory.begin(batch);
        loop {
            match self.memory.put() {
                Ok(()) => return Ok(()),
                Err(NotTaken::NoRoom(NoRoom::Arena { bytes })) => match self.shared.grow(bytes) {
                    Some(arena) => self.memory.grow(arena),
                    None => return Err(local(&self.shared.state().lacks.clone().unwrap_or_default())),
                },
                // What is there needs not be undone: the other node has it, too.
                Err(NotTaken::Undo(full)) if self.whole == self.at && full.free < full.all => {
                    begin_feed(self.shared, self.welcome, self.at)?;
                    self.memory.begun_again(self.at);
                }
                Err(why) => return Err(local(&why)),
            }
        }
    }
}

/// From here on the memory is written by this node, and what is there stays.
fn begin_feed(shared: &Shared, welcome: &Welcome, base: Stamp) -> Result<(), SessionError> {
    let (cluster, term) = (welcome.cluster, welcome.history.last_term());
    let begun = shared.memory().begin_feed(cluster, shared.who.node, term, base);
    begun.map_err(|cause| local(&format_args!("a mirror's memory cannot be kept: {cause}")))
}
