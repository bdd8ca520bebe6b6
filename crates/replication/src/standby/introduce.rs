//! Introduce: how a node meets the one that it follows, and those that speak for a term: standbys
//! and mirrors alike.

use std::{
    convert::Infallible,
    os::unix::net::UnixStream,
    time::{Duration, Instant},
};

use freshet_base::{
    NodeId, Term,
    sync::{Arc, Mutex},
};
use freshet_cluster::term::{Living, Verdict};
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

/// Raises the fence, durably, before anything of the new term is taken in.
pub(crate) fn raise(shared: &impl Follows, term: Term, node: NodeId) -> Result<(), SessionError> {
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
