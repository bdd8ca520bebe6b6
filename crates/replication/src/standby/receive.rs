//! Receive: reads batches from the socket into the log buffer.

use std::time::Duration;

use freshet_base::{ClusterId, NodeId, Stamp, Term, sync::Arc};
use freshet_cluster::term::Verdict;
use freshet_fabric::{
    cpu::Stint,
    frame::Header,
    tcp::{Connection, ReceiveError, Receiver},
};

use super::Shared;
use crate::{
    endpoint::{CallError, ask},
    handshake::check_welcome,
    log_access::StoreError,
    wire::{self, BatchNote, DecodeError, Hello, Kind, Peers, Purpose, Refusal, Reply, Welcome},
};

/// Why a connection to a primary, or the attempt at one, ended.
#[derive(Debug, thiserror::Error)]
pub enum SessionError {
    /// There was none.
    #[error(transparent)]
    Call(#[from] CallError),
    /// It was lost, or damaged.
    #[error(transparent)]
    Receive(#[from] ReceiveError),
    /// Something came that means nothing.
    #[error(transparent)]
    Decode(#[from] DecodeError),
    /// The primary ended it.
    #[error("the primary ended the connection: {0}")]
    Goodbye(Refusal),
    /// This node ended it.
    #[error("this standby ended the connection: {0}")]
    Refused(Refusal),
    /// This node is told to do something else.
    #[error("this standby is told to follow another node, or to rest")]
    Interrupted,
    /// This node cannot go on.
    #[error("{0}")]
    Local(String),
}

impl SessionError {
    /// What the other side should be told.
    pub(super) fn refusal(&self) -> Option<&Refusal> {
        match self {
            Self::Refused(refusal) => Some(refusal),
            _ => None,
        }
    }

    /// Whether there was a connection at all.
    pub(super) fn followed(&self) -> bool {
        matches!(self, Self::Receive(_) | Self::Goodbye(_))
    }
}

impl From<StoreError> for SessionError {
    fn from(error: StoreError) -> Self {
        Self::Local(error.to_string())
    }
}

/// Follows the primary at `leader` until something ends it.
pub(super) fn join(shared: &Arc<Shared>, leader: &str, order: u64) -> SessionError {
    let terms = shared.terms.get();
    let purpose =
        Purpose::Join { fence: terms.fence.highest(), log: shared.continuation(), member: shared.config.member };
    match session(shared, leader, order, purpose, terms.fence.highest(), None) {
        Ok(()) => SessionError::Interrupted,
        Err(error) => error,
    }
}

/// Continues this node's log from the one at `address`. With `until`, returns once the log has been received up to
/// what the other side said to be its end.
pub(crate) fn session(
    shared: &Arc<Shared>,
    address: &str,
    order: u64,
    purpose: Purpose,
    term: Term,
    until: Option<Stamp>,
) -> Result<(), SessionError> {
    let mut connection = freshet_fabric::tcp::connect(address, shared.config.patience).map_err(CallError::Connect)?;
    let system = |source| CallError::System { address: address.to_owned(), source };
    connection.set_patience(Some(shared.config.patience)).map_err(system)?;
    if !shared.follow.connected(order, connection.closer().map_err(system)?) {
        return Err(SessionError::Interrupted);
    }
    let cluster = shared.terms.get().cluster;
    let hello = Hello { cluster, node: shared.node, address: shared.address.clone(), purpose };
    let Reply::Welcome(welcome) = ask(&mut connection, address, &hello, term)? else {
        return Err(CallError::Unexpected { address: address.to_owned() }.into());
    };
    welcome_in(shared, &welcome, connection, cluster, until)
}

fn welcome_in(
    shared: &Arc<Shared>,
    welcome: &Welcome,
    mut connection: Connection,
    cluster: Option<ClusterId>,
    until: Option<Stamp>,
) -> Result<(), SessionError> {
    let history = shared.terms.get().history;
    check_welcome(welcome, cluster, &history, shared.store.received()).map_err(SessionError::Refused)?;
    // While a candidate fetches, the term is its own.
    if until.is_none() {
        raise(shared, welcome.term, welcome.node)?;
    }
    enter(shared, welcome)?;
    let keep_alive = Duration::from_millis(u64::from(welcome.keep_alive_ms));
    let patience = shared.config.patience.max(keep_alive * 5);
    let system = |source| CallError::System { address: connection_name(welcome), source };
    connection.set_patience(Some(patience)).map_err(system)?;
    let (sender, receiver) = connection.split();
    shared.acks.connect(sender, welcome.term, shared.store.persisted(), Stamp::ZERO);
    shared.lag().forget();
    if until.is_none() {
        shared.follow.joined(welcome.node);
    }
    shared.acknowledge(true);
    let mut stint = shared.receive_cpu.begin();
    let mut session = Session { shared, receiver, term: welcome.term, scratch: vec![0; SCRATCH], until, keep_alive };
    while until.is_none_or(|until| shared.store.received() < until) {
        session.frame(&mut stint)?;
    }
    Ok(())
}

fn connection_name(welcome: &Welcome) -> String {
    format!("node {}", welcome.node)
}

/// Raises the fence, durably, before anything of the new term is taken in.
fn raise(shared: &Shared, term: Term, node: NodeId) -> Result<(), SessionError> {
    match shared.terms.hear(term, node) {
        Ok(Verdict::Raised | Verdict::Current) => Ok(()),
        Ok(Verdict::Refused { highest, holder }) => {
            let leader = shared.follow.leader();
            Err(SessionError::Refused(Refusal::Fenced { asked: term, highest, holder, leader }))
        }
        Err(error) => Err(SessionError::Local(error.to_string())),
    }
}

/// Makes the own log a prefix of the sender's: save, cut, and only then enter its terms.
fn enter(shared: &Shared, welcome: &Welcome) -> Result<(), SessionError> {
    let cut_at = welcome.cut_at;
    if cut_at < shared.store.received() {
        let visible = shared.visible.watermark().get();
        if visible > cut_at {
            return Err(SessionError::Local(format!(
                "the primary's log parts from this one at {cut_at}, but readers here have seen up to {visible}: \
                 acknowledged commits were lost at a take-over; start this standby with an empty directory"
            )));
        }
        if let Some(file) = shared.store.save_tail(cut_at)? {
            shared.saved_tails.lock().expect("no code panics under this mutex").push(file);
        }
        // Replay first: it reads the log, and must not meet the cut.
        let replayed = shared.replay.cut(cut_at).map_err(|error| SessionError::Local(error.to_string()))?;
        shared.visible.set_replayed(replayed);
        shared.store.cut(cut_at)?;
        shared.keep_no_room();
    }
    shared.terms.adopt(welcome.cluster, welcome.history.clone()).map_err(|error| SessionError::Local(error.to_string()))
}

/// A payload passes through this much memory, which stays in the cache, while its checksum is computed: the ring
/// belongs to readers too and cannot be lent to the socket as plain memory.
const SCRATCH: usize = 64 << 10;

struct Session<'a> {
    shared: &'a Arc<Shared>,
    receiver: Receiver,
    term: Term,
    scratch: Vec<u8>,
    until: Option<Stamp>,
    keep_alive: Duration,
}

impl Session<'_> {
    fn violation(&self, what: String) -> SessionError {
        SessionError::Refused(Refusal::Violation(what))
    }

    /// Takes in one frame.
    fn frame(&mut self, stint: &mut Stint<'_>) -> Result<(), SessionError> {
        let header = self.receiver.receive()?;
        if header.term != self.term || !self.shared.terms.admits(header.term) {
            let state = self.shared.terms.get().fence;
            return Err(SessionError::Refused(Refusal::Fenced {
                asked: header.term,
                highest: state.highest(),
                holder: state.holder(),
                leader: self.shared.follow.leader(),
            }));
        }
        let kind = Kind::from_code(header.kind);
        if header.payload != 0 && kind != Some(Kind::Batch) {
            return Err(self.violation(format!("a frame of kind {} carries a payload", header.kind)));
        }
        match kind {
            Some(Kind::Batch) => {
                let note: BatchNote = wire::decode("batch", self.receiver.immediate())?;
                self.batch(&header, &note)?;
                self.heard(&note);
                // Where persisting takes no time this spares a wake-up.
                self.shared.acknowledge(false);
                stint.note();
            }
            Some(Kind::Watermark) => {
                let note: BatchNote = wire::decode("watermark", self.receiver.immediate())?;
                self.heard(&note);
                // A watermark needs no answer of its own; silence would be taken for death.
                let silence = self.shared.acks.last().map(|last| self.shared.clock.now().since(last));
                self.shared.acknowledge(silence.is_some_and(|silence| silence >= self.keep_alive / 2));
            }
            Some(Kind::Peers) => {
                let message: Peers = wire::decode("list of peers", self.receiver.immediate())?;
                self.shared.heard_peers(message);
            }
            Some(Kind::Goodbye) => {
                return Err(SessionError::Goodbye(wire::decode("goodbye", self.receiver.immediate())?));
            }
            _ => return Err(self.violation(format!("a frame of kind {} was not expected", header.kind))),
        }
        Ok(())
    }

    fn heard(&self, note: &BatchNote) {
        let shared = self.shared;
        shared.visible.raise_global(note.global);
        shared.show();
        let visible = shared.visible.watermark().get();
        shared.lag().heard(note.end, note.time, note.in_sync, visible, shared.clock.now());
    }

    /// A batch is part of the log only once its checksum held.
    fn batch(&mut self, header: &Header, note: &BatchNote) -> Result<(), SessionError> {
        let store = &self.shared.store;
        let from = store.received();
        let length = u64::from(header.payload);
        self.check(header, note, from)?;
        let mut at = from;
        let to = from.plus(length);
        while at < to {
            let piece = &mut self.scratch[..(to.since(at) as usize).min(SCRATCH)];
            self.receiver.payload_into(piece)?;
            store.write(at, piece)?;
            at = at.plus(piece.len() as u64);
        }
        self.receiver.payload_done()?;
        store.mark_received(to);
        self.shared.replay.push(note.ends.iter().map(|end| from.plus(u64::from(*end))));
        Ok(())
    }

    fn check(&self, header: &Header, note: &BatchNote, from: Stamp) -> Result<(), SessionError> {
        if header.address != from.0 {
            return Err(self.violation(format!("a batch begins at {}, the log ends at {from}", header.address)));
        }
        let ascending = note.ends.windows(2).all(|pair| pair[0] < pair[1]);
        if header.payload == 0
            || !ascending
            || note.ends.first() == Some(&0)
            || note.ends.last() != Some(&header.payload)
        {
            return Err(self.violation(format!("the ends of blocks in the batch at {from} are impossible")));
        }
        let to = from.plus(u64::from(header.payload));
        let room = self.shared.store.free_until();
        if to > room {
            return Err(self.violation(format!("a batch ends at {to}, there is room up to {room}")));
        }
        if self.until.is_some_and(|until| to > until) {
            return Err(self.violation(format!("a batch ends at {to}, beyond the end of the log that was agreed")));
        }
        Ok(())
    }
}
