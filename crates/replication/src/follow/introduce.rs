//! Introduce: how a node meets the one that it follows, and those that speak for a term.

use std::{
    os::unix::net::UnixStream,
    time::{Duration, Instant},
};

use freshet_base::{Lsn, Term};
use freshet_cluster::{
    entering::{Effect, Entered, Entering, Held, NotEntered},
    handshake::Welcome,
    promising::{Effect as Step, Promised, Promising},
    term::TermState,
};
use freshet_fabric::{
    Offer,
    channel::{Receiver, Sender, Side},
    memory::Region,
    tcp::Connection,
};

use super::{SessionError, Shared, Store};
use crate::{
    endpoint::{CallError, ask, connect_until, passage},
    forms::Encoding,
    members::VERSION,
    wire::{self, Continue, Hello, Join, Purpose, Refusal, Reply},
};

/// Connects, unless this node is told to do something else in the meantime.
pub(crate) fn connect<S: Store>(shared: &Shared<S>, address: &str, order: u64) -> Result<Connection, SessionError> {
    let trying = |closer| {
        let _ = shared.follow.connected(order, closer);
    };
    let connection = connect_until(&shared.who.credentials, address, shared.config.patience, trying)?;
    if !shared.follow.connected(order, connection.closer()) {
        return Err(SessionError::Interrupted);
    }
    Ok(connection)
}

/// Introduces this node, and hears that it is welcome.
pub(crate) fn introduce<S: Store>(
    shared: &Shared<S>,
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

/// What this node does to continue as `welcome` says: `enter` is [`Entering::to_follow`] or
/// [`Entering::to_fetch`]. With the first one of [`Parts`] it cuts what it has, the second one says
/// what becomes of it if the checkpoint that it began with is of another log.
///
/// Blocks until the terms are entered, durably.
pub(crate) fn enter<S: Store>(
    shared: &Shared<S>,
    welcome: &Welcome,
    enter: Enter,
    parts: Parts<'_>,
) -> Result<Entered, SessionError> {
    let terms = shared.terms.get();
    let mut entering = enter(&S::held(shared, &terms), welcome, &terms).map_err(|why| match why {
        NotEntered::Refused(refusal) => SessionError::Refused(refusal),
        NotEntered::Counted(primary) => SessionError::Counted { primary: shared.address_of(primary) },
        NotEntered::Acknowledged { at, committed } => S::holds_more(shared, at, committed),
        NotEntered::Checkpoint { at, floor } => (parts.begun_elsewhere)(at, floor),
    })?;
    while let Some(effect) = entering.next_effect() {
        match effect {
            Effect::Promise { term, primary } => {
                shared.terms.promise_primary(shared.node(), (term, primary), |_| shared.follow.upstream())?;
            }
            Effect::EndFeeds => S::end_feeds(shared),
            Effect::Cut(at) => (parts.cut)(at)?,
            Effect::Adopt => shared.terms.enter(welcome)?,
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

pub(crate) fn violation(what: String) -> SessionError {
    SessionError::Refused(Refusal::Violation(what))
}

/// Nothing is taken in of this term any more, or of another one than the connection's.
pub(crate) fn fenced<S: Store>(shared: &Shared<S>, term: Term) -> SessionError {
    let state = shared.terms.fence();
    SessionError::Refused(Refusal::Fenced {
        asked: term,
        highest: state.highest(),
        holder: state.holder(),
        primary: shared.follow.upstream(),
    })
}

/// Promises `term` to the node that says `hello`, as [`Promising`] says: when this returns, no
/// primary of an earlier term can write into this node's memory, and what such a primary may
/// believe to have arrived here is part of what this node holds; if that counts as persistent to
/// the primary, it is. Blocks for the patience of this node at most.
pub(crate) fn promise<S: Store>(shared: &Shared<S>, hello: &Hello, term: Term) -> Result<Promised, Refusal> {
    let deadline = Instant::now() + shared.config.patience;
    let mut promising = Promising::to(term, hello.node);
    // A thread that finds the term in force also finds that what is of an earlier one has ended.
    let mut one_by_one = Some(shared.observing.lock().expect("no code panics under this mutex"));
    let mut succeeded = 0;
    while let Some(step) = promising.next_effect() {
        match step {
            Step::Promise { term, node } => {
                let upstream = |_| shared.follow.upstream();
                let risen = match hello.purpose {
                    Purpose::Announce { .. } => shared.terms.promise_primary(shared.node(), (term, node), upstream)?,
                    _ => shared.terms.promise(term, node, upstream)?,
                };
                promising.promised(step, risen);
                continue;
            }
            Step::EndTerm { risen } => {
                if risen {
                    S::superseded(shared);
                }
                succeeded = shared.follow.revoke(risen);
                one_by_one = None;
            }
            Step::TakeBack if shared.follow.wait_revoked(succeeded, deadline) => {}
            Step::TakeBack => {
                let why = "the primary of before may still write into this node's memory, which is being taken from \
                           it: ask again";
                return Err(Refusal::Failed(why.to_owned()));
            }
            Step::Settle => S::settles(shared, deadline).map_err(Refusal::Failed)?,
        }
        promising.done(step);
    }
    drop(one_by_one);
    shared.watching.promised();
    // What was promised before it stops ends the term that it begins then. After that its log may
    // have more than is known here, and a candidate would do without.
    if shared.stopping() { Err(shared.not_primary()) } else { Ok(promising.finish()) }
}

/// How this node asks to be fed with what continues `log`. Its store says what else there is to
/// say.
pub(crate) fn joining<S: Store>(
    shared: &Shared<S>,
    terms: &TermState,
    log: Continue,
    offer: Offer,
    passage: Option<u64>,
) -> Join {
    let in_effect = terms.last_in_effect(shared.node(), log.received).is_some();
    Join {
        fence: terms.fence.highest(),
        log,
        member: shared.config.member,
        synchronous: shared.config.synchronous,
        offer,
        appliance: false,
        mirror: false,
        passage,
        bare: shared.config.fabric.config.bare,
        encoding: Encoding::Bytes,
        incarnation: terms.holder(shared.node()).incarnation,
        noted: None,
        holds: Lsn::ZERO,
        in_effect,
        relay: false,
        version: VERSION.to_owned(),
        maintenance: shared.terms.maintained().notice(),
    }
}

/// A node is welcome, and the other side may write into its memory as soon as it has entered the
/// term.
pub(crate) struct Offered {
    side: Side,
    theirs: Offer,
    connection: Connection,
    passage: Option<UnixStream>,
    /// TLS is left.
    bare: bool,
}

/// Offers these regions of this node's memory to the node at `upstream`, as `join` says, which
/// gets the offer and the number of the passage for descriptors, if there is one.
pub(crate) fn offer<S: Store>(
    shared: &Shared<S>,
    upstream: &str,
    connection: Connection,
    regions: Vec<Region>,
    join: impl FnOnce(Offer, Option<u64>) -> Join,
) -> Result<(Welcome, Offered), SessionError> {
    let fabric = &shared.config.fabric;
    let side = Side::new(fabric.kind, fabric.config.clone(), regions)?;
    let passage = || passage(&shared.hello(Purpose::Identify), upstream, shared.config.patience);
    let (number, passage) = fabric.kind.is_local().then(passage).transpose()?.flatten().unzip();
    let join = join(side.offer().clone(), number);
    let fence = join.fence;
    let (answer, connection) = introduce(shared, upstream, connection, Purpose::Join(join), fence)?;
    let wire::Welcome { log: welcome, offer, bare } = answer;
    let theirs = offer.ok_or_else(|| violation("the primary has offered no mailbox".into()))?;
    Ok((welcome, Offered { side, theirs, connection, passage, bare: bare && fabric.config.bare }))
}

impl Offered {
    /// The term is entered. Returns the two halves of the connection, how often the other side
    /// shows that it lives, and how long it may be silent.
    pub fn connect<S: Store>(
        self,
        shared: &Shared<S>,
        welcome: &Welcome,
    ) -> Result<(Sender, Receiver, Duration, Duration), SessionError> {
        let Self { side, theirs, connection, passage, bare } = self;
        let keep_alive = Duration::from_millis(u64::from(welcome.keep_alive_ms));
        let patience = shared.config.patience.max(keep_alive * 5);
        let connection = match passage {
            Some(socket) => connection.beside(socket),
            None => connection,
        };
        let connection = if bare { connection.bare() } else { connection };
        let (sender, receiver) = side.connect(&theirs, connection, shared.config.fabric.limit.clone(), patience)?;
        Ok((sender, receiver, keep_alive, patience))
    }
}
