//! Introduce: how a node meets the one that it follows, and those that speak for a term: standbys
//! and mirrors alike.

use std::{
    convert::Infallible,
    os::unix::net::UnixStream,
    time::{Duration, Instant},
};

use freshet_base::{
    Lsn, NodeId, Term,
    sync::{Arc, Mutex},
};
use freshet_cluster::{
    entering::{Effect, Entered, Entering, Held, NotEntered},
    handshake::Welcome,
    term::{Living, TermState, Verdict},
};
use freshet_fabric::tcp::Connection;
use freshet_membership::Credentials;

use super::{Follow, SessionError};
use crate::{
    endpoint::{CallError, ask},
    terms::Terms,
    wire::{self, Hello, Peer, Purpose, Refusal, Reply},
};

/// A node that follows another.
pub(crate) trait Follows: Send + Sync + Sized + 'static {
    fn node(&self) -> NodeId;

    /// Where other nodes reach it.
    fn address(&self) -> &str;

    /// The certificate that it shows to others.
    fn credentials(&self) -> &Credentials;

    fn terms(&self) -> &Terms;

    fn follow(&self) -> &Follow;

    /// How long the other side may be silent.
    fn patience(&self) -> Duration;

    /// The first pause before connecting again, and the longest.
    fn back_off(&self) -> (Duration, Duration);

    /// Whether commits may count on it; and whether they may wait for it.
    fn is_member(&self) -> bool;
    fn is_counted(&self) -> bool;

    /// Everyone whom it knows of.
    fn known(&self) -> Vec<Peer>;

    /// A node has said that it leads, or is about to, and where it is.
    fn observe_primary(&self, living: Living, address: &str);

    /// A node has said that it does not lead: what it said before no longer counts. Who asks where
    /// a primary lives would be led to one that has yielded.
    fn observe_not_leading(&self, node: NodeId);

    /// Offers this node's memory to the node at `upstream`, which writes there until something ends
    /// it.
    fn offered(self: &Arc<Self>, upstream: &str, connection: Connection) -> Result<Infallible, SessionError>;

    /// What this node has that is to continue.
    fn held(&self, terms: &TermState) -> Held;

    /// What it says to a sender that lacks what was acknowledged to clients up to `committed`, and
    /// whose log parts from its own at `at`.
    fn holds_more(&self, at: Lsn, committed: Lsn) -> SessionError;

    /// When this returns, nothing lands in this node's memory any more. The connection has been
    /// revoked, but the other side may have mapped the memory.
    fn take_back(&self) -> Result<(), SessionError>;

    /// Does what has to be done before the node at `upstream` can feed this one.
    fn prepare(self: &Arc<Self>, upstream: &str, order: u64) -> Result<(), SessionError> {
        let _ = (upstream, order);
        Ok(())
    }

    /// Follows the node at `upstream` until something ends it, and takes the memory back, whatever
    /// that was.
    fn join(self: &Arc<Self>, upstream: &str, order: u64) -> SessionError {
        let live = || {
            self.prepare(upstream, order)?;
            let connection = connect(&**self, upstream, order)?;
            if !self.follow().offer(order) {
                return Err(SessionError::Interrupted);
            }
            let outcome = self.offered(upstream, connection);
            self.take_back()?;
            self.follow().revoked();
            outcome
        };
        match live() {
            Ok(never) => match never {},
            Err(error) => error,
        }
    }

    /// The connection to whom this node follows is over, for good.
    fn disconnected(&self) {}

    /// What it passes on ends.
    fn end_feeds(&self) {}

    /// Held while a thread raises the fence.
    fn observing(&self) -> &Mutex<()>;

    /// The primary that this node has followed is of the past.
    fn superseded(&self) {}

    /// What counts as persistent here to a primary, is so; to be called when no primary can write
    /// here any more.
    fn settles(&self, deadline: Instant) -> Result<(), String> {
        let _ = deadline;
        Ok(())
    }

    /// How this node introduces itself.
    fn hello(&self, purpose: Purpose) -> Hello {
        let (cluster, address) = (self.terms().get().cluster, self.address().to_owned());
        Hello { cluster, node: self.node(), address, purpose }
    }
}

/// Connects, unless this node is told to do something else in the meantime.
pub(crate) fn connect(shared: &impl Follows, address: &str, order: u64) -> Result<Connection, SessionError> {
    let connection = crate::endpoint::connect(shared.credentials(), address, shared.patience())?;
    if !shared.follow().connected(order, connection.closer()) {
        return Err(SessionError::Interrupted);
    }
    Ok(connection)
}

/// Introduces this node, and hears that it is welcome.
pub(crate) fn introduce(
    shared: &impl Follows,
    address: &str,
    mut connection: Connection,
    purpose: Purpose,
    term: Term,
) -> Result<(wire::Welcome, Connection), SessionError> {
    match ask(&mut connection, address, &shared.hello(purpose), term)? {
        Reply::Welcome(welcome) => Ok((welcome, connection)),
        _ => Err(CallError::Unexpected { address: address.to_owned() }.into()),
    }
}

/// A node announces that it leads in `term`: this node follows it from now on, unless it does
/// already, or follows a relay.
pub(crate) fn announced(shared: &impl Follows, hello: &Hello, term: Term, address: String) {
    shared.observe_primary(Living { term, node: hello.node }, &address);
    let follow = shared.follow();
    let known = follow.following() == Some(hello.node) && follow.upstream().as_ref() == Some(&address);
    if !known && !follow.is_relayed() {
        follow.lead(Some(address));
    }
}

/// What this node does to continue as `welcome` says: `enter` is [`Entering::to_follow`] or
/// [`Entering::to_fetch`]. With the first one of [`Parts`] it cuts what it has, the second one says
/// what becomes of it if the checkpoint that it began with is of another log.
///
/// Blocks until the terms are entered, durably.
pub(crate) fn enter<F: Follows>(
    shared: &F,
    welcome: &Welcome,
    enter: Enter,
    parts: Parts<'_>,
) -> Result<Entered, SessionError> {
    let terms = shared.terms().get();
    let mut entering = enter(&shared.held(&terms), welcome, &terms).map_err(|why| match why {
        NotEntered::Refused(refusal) => SessionError::Refused(refusal),
        NotEntered::Counted(primary) => {
            let known = shared.known().into_iter().find(|peer| peer.node == Some(primary));
            SessionError::Counted { primary: known.map(|peer| peer.address) }
        }
        NotEntered::Acknowledged { at, committed } => shared.holds_more(at, committed),
        NotEntered::Checkpoint { at, floor } => (parts.begun_elsewhere)(at, floor),
    })?;
    while let Some(effect) = entering.next() {
        match effect {
            Effect::Promise { term, primary } => raise(shared, term, primary)?,
            Effect::EndFeeds => shared.end_feeds(),
            Effect::Cut(at) => (parts.cut)(at)?,
            Effect::Adopt => {
                let adopted = shared.terms().adopt(welcome.cluster, welcome.history.clone());
                adopted.map_err(|error| SessionError::Local(error.to_string()))?;
            }
        }
        entering.done(effect);
    }
    Ok(entering.finish())
}

/// By which steps a node enters a term.
pub(crate) type Enter = fn(&Held, &Welcome, &TermState) -> Result<Entering, NotEntered>;

/// What standbys and mirrors do each in its own way.
pub(crate) struct Parts<'p> {
    /// Cuts what this node has.
    pub cut: &'p dyn Fn(Lsn) -> Result<(), SessionError>,
    /// The checkpoint with which it began ends at the second LSN, and the other log is another from
    /// the first one on.
    pub begun_elsewhere: &'p dyn Fn(Lsn, Lsn) -> SessionError,
}

/// Raises the fence, durably, before anything of the new term is taken in.
fn raise(shared: &impl Follows, term: Term, node: NodeId) -> Result<(), SessionError> {
    match shared.terms().observe(term, node) {
        Ok(Verdict::Raised | Verdict::Current) => Ok(()),
        Ok(Verdict::Refused { highest, holder }) => {
            let primary = shared.follow().upstream();
            Err(SessionError::Refused(Refusal::of_term(term, highest, holder, primary)))
        }
        Err(error) => Err(SessionError::Local(error.to_string())),
    }
}

pub(crate) fn violation(what: String) -> SessionError {
    SessionError::Refused(Refusal::Violation(what))
}

/// Nothing is taken in of this term any more, or of another one than the connection's.
pub(crate) fn fenced(shared: &impl Follows, term: Term) -> SessionError {
    let state = shared.terms().get().fence;
    SessionError::Refused(Refusal::Fenced {
        asked: term,
        highest: state.highest(),
        holder: state.holder(),
        primary: shared.follow().upstream(),
    })
}

/// Promises `term` to the node that says `hello`. When this returns, no primary of an earlier term
/// can write into this node's memory, and what such a primary may believe to have arrived here is
/// part of what this node holds; if that counts as persistent to the primary, it is.
pub(crate) fn observe_term(shared: &impl Follows, hello: &Hello, term: Term) -> Result<(), Refusal> {
    let deadline = Instant::now() + shared.patience();
    let revoked = {
        // A thread that finds the term in force also finds that what the term revokes is being
        // revoked.
        let _one_by_one = shared.observing().lock().expect("no code panics under this mutex");
        match shared.terms().observe(term, hello.node) {
            Ok(Verdict::Raised) => {
                shared.superseded();
                shared.follow().revoke(true, deadline)
            }
            Ok(Verdict::Current) => shared.follow().revoke(false, deadline),
            Ok(Verdict::Refused { highest, holder }) => {
                return Err(Refusal::of_term(term, highest, holder, shared.follow().upstream()));
            }
            Err(error) => return Err(Refusal::Failed(error.to_string())),
        }
    };
    if !revoked {
        let why =
            "the primary of before may still write into this node's memory, which is being taken from it: ask again";
        return Err(Refusal::Failed(why.to_owned()));
    }
    shared.settles(deadline).map_err(Refusal::Failed)
}

/// The connection as both sides have agreed on it: descriptors pass on `passage`, and TLS is left
/// when it is `bare`.
pub(crate) fn agreed(connection: Connection, passage: Option<(u64, UnixStream)>, bare: bool) -> Connection {
    let connection = match passage {
        Some((_, socket)) => connection.beside(socket),
        None => connection,
    };
    if bare { connection.bare() } else { connection }
}
