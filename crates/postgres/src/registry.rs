//! Who is connected: seats, and reaching sessions from outside.

use std::{
    collections::{BTreeSet, HashMap},
    fmt,
    net::Shutdown,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use freshet_base::lock;
use subtle::ConstantTimeEq;

use crate::{
    backend::{Interrupt, Why},
    limits::Limits,
    report::{Report, SqlState},
    transport::{Stream, hung_up},
};

/// How many bytes a key for canceling has, since version 3.2 of the protocol and before it.
pub(crate) const LONG_KEY: usize = 32;
const SHORT_KEY: usize = 4;
/// For so long it counts that the system had no more to give.
const RECENT: Duration = Duration::from_secs(1);

/// All connections of a server.
pub(crate) struct Registry {
    inner: Mutex<Inner>,
    /// A connection has taken a seat or gone, or the server stops.
    changed: Condvar,
}

#[derive(Default)]
struct Inner {
    connections: HashMap<i32, Arc<Entry>>,
    seated: usize,
    /// Sessions whose clients have their seats as other connections of this server.
    covered: usize,
    stopping: bool,
    /// When the system last had no descriptor or thread for a connection.
    exhausted: Option<Instant>,
}

impl Inner {
    /// How many have not proved yet who they are.
    fn starting(&self) -> usize {
        self.connections.len() - self.seated - self.covered
    }
}

/// A connection, as others see it.
pub(crate) struct Entry {
    pub(crate) pid: i32,
    /// The key for canceling. Clients of older versions know its first bytes only.
    secret: [u8; LONG_KEY],
    /// None for a conversation in memory.
    socket: Option<Arc<Stream>>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    seated: bool,
    covered: bool,
    long_key: bool,
    /// The node that has handed the session on, if one has.
    handed_on_by: Option<u64>,
    /// Whose session it is, once it has a seat.
    user: Option<Box<str>>,
    /// It is doing something for its client.
    running: bool,
    /// The session is to end at the next chance.
    ending: bool,
    /// And what it does is not to be waited for.
    interrupted: bool,
    interrupt: Option<Arc<dyn Interrupt>>,
}

impl Entry {
    fn new(pid: i32, secret: [u8; LONG_KEY], socket: Option<Arc<Stream>>) -> Arc<Self> {
        Arc::new(Self { pid, secret, socket, state: Mutex::default() })
    }

    /// The session is open and can be interrupted.
    pub(crate) fn opened(&self, interrupt: Arc<dyn Interrupt>) {
        lock(&self.state).interrupt = Some(interrupt);
    }

    /// The client speaks a version of the protocol whose keys are long.
    pub(crate) fn use_long_key(&self) {
        lock(&self.state).long_key = true;
    }

    /// The key for canceling, as its client knows it.
    pub(crate) fn key(&self) -> &[u8] {
        if lock(&self.state).long_key { &self.secret } else { &self.secret[..SHORT_KEY] }
    }

    /// The session works from now on; `false` when it is to end instead.
    pub(crate) fn run(&self) -> bool {
        let mut state = lock(&self.state);
        state.running = !state.ending;
        state.running
    }

    /// The session waits for its client from now on; `false` when it is to end instead.
    pub(crate) fn rest(&self) -> bool {
        let mut state = lock(&self.state);
        state.running = false;
        if let Some(interrupt) = &state.interrupt {
            interrupt.clear();
        }
        !state.ending
    }

    /// Whether it is to end.
    pub(crate) fn is_ending(&self) -> bool {
        lock(&self.state).ending
    }

    /// The session is one that this node hands on.
    pub(crate) fn is_handed_on_by(&self, node: u64) {
        lock(&self.state).handed_on_by = Some(node);
    }

    /// Whether it has a session's seat.
    pub(crate) fn is_seated(&self) -> bool {
        lock(&self.state).seated
    }

    /// Whether it is to end without grace.
    pub(crate) fn is_interrupted(&self) -> bool {
        lock(&self.state).interrupted
    }

    /// Whether what it does for its client is to end.
    pub(crate) fn statement_ends(&self) -> bool {
        let interrupt = lock(&self.state).interrupt.clone();
        interrupt.is_some_and(|interrupt| interrupt.ends())
    }

    fn cancel(&self) {
        let state = lock(&self.state);
        if let Some(interrupt) = state.interrupt.as_ref().filter(|_| state.running) {
            interrupt.interrupt(Why::Canceled);
        }
    }

    /// Has the connection end: at once when it is idle, otherwise after what it does, which is
    /// interrupted on demand.
    fn end(&self, interrupting: bool) {
        if self.is_to_end(interrupting) {
            self.wake();
        }
    }

    /// Says that the connection is to end, and to what it does, if that is interrupted. Returns
    /// whether its thread is to be woken for that.
    fn is_to_end(&self, interrupting: bool) -> bool {
        let mut state = lock(&self.state);
        state.ending = true;
        state.interrupted |= interrupting;
        if state.running && !interrupting {
            return false;
        }
        if let Some(interrupt) = state.interrupt.as_ref().filter(|_| state.running) {
            interrupt.interrupt(Why::Ending);
        }
        true
    }

    /// Wakes the thread that reads; it can still write.
    fn wake(&self) {
        self.shut(Shutdown::Read);
    }

    /// Whether it does something for a client that has hung up.
    fn is_forsaken(&self) -> bool {
        let running = lock(&self.state).running;
        running && self.socket.as_ref().is_some_and(|socket| hung_up(socket))
    }

    fn shut(&self, how: Shutdown) {
        if let Some(socket) = &self.socket {
            let _ = socket.shutdown(how);
        }
    }
}

impl Registry {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self { inner: Mutex::default(), changed: Condvar::new() })
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        lock(&self.inner)
    }

    pub(crate) fn is_stopping(&self) -> bool {
        self.lock().stopping
    }

    /// Blocks until another connection may begin; `false` when the server stops.
    pub(crate) fn wait_for_place(&self, limits: &Limits) -> bool {
        let mut inner = self.lock();
        while !inner.stopping && inner.starting() >= limits.starting.max(1) {
            inner = self.changed.wait(inner).unwrap_or_else(PoisonError::into_inner);
        }
        !inner.stopping
    }

    /// Lets a connection in, to prove who it is; not when the server stops. Its number is `pid` or
    /// the next one that is free; whatever it is, it is above 0.
    pub(crate) fn enter(
        self: &Arc<Self>,
        pid: u32,
        secret: [u8; LONG_KEY],
        socket: Option<Arc<Stream>>,
    ) -> Option<Seat> {
        let mut inner = self.lock();
        if inner.stopping {
            return None;
        }
        let mut pid = (pid >> 1).cast_signed().max(1);
        while inner.connections.contains_key(&pid) {
            pid = pid.checked_add(1).unwrap_or(1);
        }
        let entry = Entry::new(pid, secret, socket);
        inner.connections.insert(entry.pid, Arc::clone(&entry));
        Some(Seat { registry: Arc::clone(self), entry })
    }

    /// Whether others wait to begin.
    pub(crate) fn is_crowded(&self, limits: &Limits) -> bool {
        let inner = self.lock();
        let exhausted = inner.exhausted.is_some_and(|since| since.elapsed() < RECENT);
        exhausted || inner.starting() >= limits.starting.max(1)
    }

    /// The system has no descriptor or thread for a connection.
    pub(crate) fn exhausted(&self) {
        self.lock().exhausted = Some(Instant::now());
    }

    /// Gives a connection a session's seat.
    fn seat(&self, entry: &Entry, wanted: &Wanted<'_>, limits: &Limits) -> Result<(), Report> {
        let mut inner = self.lock();
        if inner.stopping {
            return Err(Report::fatal(SqlState::CANNOT_CONNECT_NOW, "the database system is shutting down"));
        }
        if wanted.covered {
            inner.covered += 1;
            lock(&entry.state).covered = true;
            drop(inner);
            self.changed.notify_all();
            return Ok(());
        }
        let full = |message| Err(Report::fatal(SqlState::TOO_MANY_CONNECTIONS, message));
        if inner.seated >= limits.connections {
            return full("sorry, too many clients already");
        }
        if !wanted.superuser && inner.seated >= limits.connections.saturating_sub(limits.reserved) {
            return full("remaining connection slots are reserved for superusers");
        }
        if let Some(most) = wanted.connections.filter(|_| !wanted.superuser) {
            let of_user = |entry: &&Arc<Entry>| lock(&entry.state).user.as_deref() == Some(wanted.user);
            if inner.connections.values().filter(of_user).count() >= most {
                let message = format!("too many connections for role \"{}\"", wanted.user);
                return Err(Report::fatal(SqlState::TOO_MANY_CONNECTIONS, message));
            }
        }
        inner.seated += 1;
        let mut state = lock(&entry.state);
        state.seated = true;
        state.user = Some(wanted.user.into());
        drop(state);
        drop(inner);
        self.changed.notify_all();
        Ok(())
    }

    fn leave(&self, entry: &Entry) {
        let mut inner = self.lock();
        inner.connections.remove(&entry.pid);
        let state = lock(&entry.state);
        inner.seated -= usize::from(state.seated);
        inner.covered -= usize::from(state.covered);
        drop(state);
        drop(inner);
        self.changed.notify_all();
    }

    fn find(&self, pid: i32) -> Option<Arc<Entry>> {
        self.lock().connections.get(&pid).map(Arc::clone)
    }

    fn all(&self) -> Vec<Arc<Entry>> {
        self.lock().connections.values().map(Arc::clone).collect()
    }

    /// Cancels what the connection with this number does, if the key is right; says whether it was.
    pub(crate) fn cancel(&self, pid: i32, key: &[u8]) -> bool {
        let Some(entry) = self.find(pid) else { return false };
        let right = entry.key().ct_eq(key).into();
        if right {
            entry.cancel();
        }
        right
    }

    /// Ends the sessions that have been handed on by nodes for which this is true; asks once for
    /// each node.
    pub(crate) fn end_handed_on(&self, is_gone: impl Fn(u64) -> bool) {
        let handed_on_by = |entry: &Arc<Entry>| lock(&entry.state).handed_on_by;
        let mut nodes: BTreeSet<u64> = self.lock().connections.values().filter_map(handed_on_by).collect();
        nodes.retain(|node| is_gone(*node));
        if !nodes.is_empty() {
            let of_them = |entry: &Arc<Entry>| handed_on_by(entry).is_some_and(|node| nodes.contains(&node));
            self.all().into_iter().filter(of_them).for_each(|entry| entry.end(true));
        }
    }

    /// Nobody else gets in.
    pub(crate) fn stop(&self) {
        self.lock().stopping = true;
        self.changed.notify_all();
    }

    /// Has all connections end.
    pub(crate) fn end_all(&self, interrupting: bool) {
        // All hear of it before the first goes: who waits for that one ends, too.
        let mut entries = self.all();
        entries.retain(|entry| entry.is_to_end(interrupting));
        entries.iter().for_each(|entry| entry.wake());
    }

    /// Ends those that do something for a client that has gone: nobody waits for it.
    pub(crate) fn end_forsaken(&self) {
        for entry in self.all() {
            if entry.is_forsaken() {
                entry.end(true);
            }
        }
    }

    /// Blocks for this time, or until the server stops; says whether it does.
    pub(crate) fn stops_within(&self, time: Duration) -> bool {
        let waited = self.changed.wait_timeout_while(self.lock(), time, |inner| !inner.stopping);
        waited.unwrap_or_else(PoisonError::into_inner).0.stopping
    }

    /// Cuts all connections off, even from reading why.
    pub(crate) fn cut_all(&self) {
        for entry in self.all() {
            entry.shut(Shutdown::Both);
        }
    }

    /// Blocks until all connections have gone; returns how many have not in time.
    pub(crate) fn wait_for_none(&self, patience: Duration) -> usize {
        let some = |inner: &mut Inner| !inner.connections.is_empty();
        let waited = self.changed.wait_timeout_while(self.lock(), patience, some);
        waited.unwrap_or_else(PoisonError::into_inner).0.connections.len()
    }
}

/// A request for a session's seat.
pub(crate) struct Wanted<'w> {
    pub(crate) user: &'w str,
    pub(crate) superuser: bool,
    /// How many the user may have at once.
    pub(crate) connections: Option<usize>,
    /// Whether its client has a seat here already, by which it was let in.
    pub(crate) covered: bool,
}

/// A connection's place in the registry, left when this is dropped.
pub(crate) struct Seat {
    registry: Arc<Registry>,
    pub(crate) entry: Arc<Entry>,
}

impl Seat {
    /// The place becomes a session's.
    pub(crate) fn take(&self, wanted: &Wanted<'_>, limits: &Limits) -> Result<(), Report> {
        self.registry.seat(&self.entry, wanted, limits)
    }

    pub(crate) fn registry(&self) -> &Arc<Registry> {
        &self.registry
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.registry.leave(&self.entry);
    }
}

/// All sessions of a server, for those who may do something to them.
#[derive(Clone)]
pub struct Sessions(Arc<Registry>);

impl Sessions {
    pub(crate) fn new(registry: &Arc<Registry>) -> Self {
        Self(Arc::clone(registry))
    }

    /// Cancels what a session does; `false` when no session has this number.
    #[must_use]
    pub fn cancel(&self, pid: i32) -> bool {
        self.0.find(pid).inspect(|entry| entry.cancel()).is_some()
    }

    /// Ends a session; `false` when no session has this number.
    #[must_use]
    pub fn terminate(&self, pid: i32) -> bool {
        self.0.find(pid).inspect(|entry| entry.end(true)).is_some()
    }

    /// How many sessions there are.
    #[must_use]
    pub fn count(&self) -> usize {
        self.0.lock().seated
    }
}

impl fmt::Debug for Sessions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sessions").field("count", &self.count()).finish()
    }
}
