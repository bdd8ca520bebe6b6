//! Upstream: whom this node follows, as [`Upstream`] decides, again and again until told otherwise.

use std::{
    sync::MutexGuard,
    time::{Duration, Instant},
};

use freshet_base::{
    NodeId, Term,
    sync::{Arc, Condvar, Mutex},
};
use freshet_cluster::{
    recording::{Recorded, Recorder},
    upstream::{Announced, Next, Order, Upstream, UpstreamConfig},
};
use freshet_fabric::tcp::Closer;

use super::{SessionError, Shared, Store};
use crate::{status::LinkStatus, wire::Refusal};

/// Why a standby does not follow anybody yet.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("this standby could not join {upstream}: {why}")]
pub struct JoinError {
    /// Whom it tried to reach.
    pub upstream: String,
    /// What went wrong last.
    pub why: String,
}

/// What the receiving thread is told, and what it says of itself.
pub(crate) struct Follow {
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    upstream: Recorded<Upstream>,
    /// Ends the present connection.
    closer: Option<Closer>,
    /// When the present attempt began, which may have succeeded.
    began: Option<Instant>,
    last_failure: Option<String>,
    /// Why it does not follow, if it holds more than the node that it is to follow.
    holds_more: Option<String>,
    /// Why it cannot continue.
    failed: Option<String>,
}

impl Follow {
    pub fn new(config: UpstreamConfig, first: Option<String>, recorder: &Recorder) -> Self {
        let upstream = Recorded::new(Upstream::new(config, first), recorder);
        let state = State { upstream, closer: None, began: None, last_failure: None, holds_more: None, failed: None };
        Self { state: Mutex::new(state), changed: Condvar::new() }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("the machine panics only on a bug of its own")
    }

    /// Something changes. A later order ends the present connection.
    fn change<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        let mut state = self.lock();
        let order = state.upstream.order();
        let outcome = change(&mut state);
        if state.upstream.order() != order
            && let Some(closer) = state.closer.take()
        {
            closer.close();
        }
        self.changed.notify_all();
        outcome
    }

    /// See [`Upstream::lead`].
    pub fn lead(&self, upstream: Option<String>) {
        self.change(|state| state.upstream.lead(upstream));
    }

    /// See [`Upstream::announced`].
    pub fn announced(&self, node: NodeId, address: &str) -> Announced {
        self.change(|state| state.upstream.announced(node, address))
    }

    /// See [`Upstream::look_elsewhere`].
    pub fn look_elsewhere(&self, order: Order, upstream: &str) {
        self.change(|state| state.upstream.look_elsewhere(order, upstream));
    }

    /// Whether this node was not told to follow the one that it tries.
    pub fn is_sought(&self) -> bool {
        self.lock().upstream.is_sought()
    }

    pub fn upstream(&self) -> Option<String> {
        self.lock().upstream.address().cloned()
    }

    /// The node whose log flows at present.
    pub fn following(&self) -> Option<NodeId> {
        self.lock().upstream.following()
    }

    /// Since when an attempt to follow is under way that has not succeeded yet.
    pub fn tries_since(&self) -> Option<Instant> {
        let state = self.lock();
        state.began.filter(|_| state.upstream.following().is_none())
    }

    /// Where the primary is: the node, if its log comes through a relay, else the address.
    pub fn primary(&self) -> (Option<NodeId>, Option<String>) {
        let state = self.lock();
        let (node, address) = state.upstream.primary();
        (node, address.cloned())
    }

    /// See [`Upstream::revoke`].
    pub fn revoke(&self, risen: bool) -> Order {
        self.change(|state| state.upstream.revoke(risen))
    }

    /// Blocks until no primary that was `succeeded` then can write into this node's memory; what
    /// those had written is part of the log then. False when that has not come about by `deadline`.
    pub fn wait_revoked(&self, succeeded: Order, deadline: Instant) -> bool {
        let mut state = self.lock();
        while !state.upstream.is_revoked(succeeded) {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            state = self.changed.wait_timeout(state, left).expect("the machine does not panic").0;
        }
        true
    }

    /// See [`Upstream::offer`].
    pub fn offer(&self, order: Order) -> bool {
        self.lock().upstream.offer(order)
    }

    /// See [`Upstream::revoked`].
    pub fn revoked(&self) {
        self.change(|state| state.upstream.revoked());
    }

    /// The present connection is given up; the next attempt finds out whom to follow.
    pub fn leave(&self) {
        if let Some(closer) = self.lock().closer.take() {
            closer.close();
        }
    }

    /// The standby cannot go on.
    pub fn fail(&self, why: String) {
        self.change(|state| {
            state.upstream.fail();
            state.has_failed(why);
        });
    }

    /// Why this node does not follow, if it holds more than the one that it is to follow.
    pub fn holds_more(&self) -> Option<String> {
        self.lock().holds_more.clone()
    }

    pub fn failure(&self) -> Option<String> {
        self.lock().failed.clone()
    }

    pub fn stop(&self) {
        self.change(|state| state.upstream.stop());
    }

    /// Makes the receiving thread rest, and blocks until it does; it goes on when the result is
    /// dropped.
    pub fn rest(&self) -> Rest<'_> {
        self.change(|state| state.upstream.rest());
        let mut state = self.lock();
        while !state.upstream.is_resting() {
            state = self.changed.wait(state).expect("the machine does not panic");
        }
        Rest(self)
    }

    /// A connection is being used from now on; false if it is not wanted any more.
    pub fn connected(&self, order: Order, closer: Closer) -> bool {
        let mut state = self.lock();
        if !state.upstream.wants(order) {
            closer.close();
            return false;
        }
        state.closer = Some(closer);
        true
    }

    /// The log flows, through those `above` if `node` is a relay.
    pub fn joined(&self, node: NodeId, above: &[NodeId], term: Term) {
        self.change(|state| {
            let address = state.upstream.address().map_or("", String::as_str);
            let (role, term) = ("standby", term.0);
            tracing::info!(role, primary = %node, address, term, "the log flows from another node");
            state.upstream.joined(node, above);
            (state.last_failure, state.holds_more) = (None, None);
        });
    }

    pub fn order(&self) -> Order {
        self.lock().upstream.order()
    }

    /// See [`Upstream::breaks`].
    fn breaks(&self) -> u64 {
        self.lock().upstream.breaks()
    }

    pub fn wait_joined(&self, deadline: Instant) -> Result<(), JoinError> {
        let mut state = self.lock();
        loop {
            let State { upstream, failed, last_failure, .. } = &*state;
            if upstream.has_joined() {
                return Ok(());
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if upstream.has_failed() || upstream.has_stopped() || left.is_zero() {
                let why = failed.clone().or_else(|| last_failure.clone());
                return Err(JoinError {
                    upstream: upstream.address().cloned().unwrap_or_else(|| "anybody".into()),
                    why: why.unwrap_or_else(|| "there was no answer in time".into()),
                });
            }
            state = self.changed.wait_timeout(state, left).expect("the machine does not panic").0;
        }
    }

    pub fn status(&self) -> LinkStatus {
        let state = self.lock();
        match (&state.failed, state.upstream.address(), state.upstream.following()) {
            (Some(why), _, _) => LinkStatus::Failed { why: why.clone() },
            (None, Some(address), Some(node)) => LinkStatus::Following { node, address: address.clone() },
            (None, Some(address), None) => {
                LinkStatus::Connecting { address: address.clone(), last_failure: state.last_failure.clone() }
            }
            (None, None, _) => LinkStatus::Resting,
        }
    }

    /// Blocks until there is somebody to follow; `None` when the standby stops.
    fn next(&self) -> Option<(String, Order)> {
        let mut state = self.lock();
        loop {
            match state.upstream.next_attempt() {
                Next::Stop => return None,
                Next::Try(upstream, order) => {
                    state.began = Some(Instant::now());
                    return Some((upstream, order));
                }
                Next::Wait => {}
            }
            self.changed.notify_all();
            state = self.changed.wait(state).expect("the machine does not panic");
        }
    }

    /// The attempt, or the connection, ended. Returns for how long to pause.
    fn ended(&self, order: Order, why: &SessionError, known: &[String], draw: u64) -> Duration {
        self.change(|state| {
            state.report(why);
            let pause = state.upstream.ended(order, &why.ended(), known, draw);
            if state.upstream.has_failed() {
                state.has_failed(why.to_string());
            }
            pause
        })
    }

    /// Pauses, unless there is news.
    fn pause(&self, order: Order, pause: Duration) {
        let until = Instant::now() + pause;
        let mut state = self.lock();
        while state.upstream.pauses(order) {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            state = self.changed.wait_timeout(state, left).expect("the machine does not panic").0;
        }
    }
}

impl State {
    fn has_failed(&mut self, why: String) {
        if self.failed.is_none() {
            tracing::error!(cause = why, "this standby cannot continue");
        }
        self.failed.get_or_insert(why);
    }

    /// The attempt, or the connection, ended: for people, unless they know.
    fn report(&mut self, why: &SessionError) {
        (self.closer, self.began) = (None, None);
        let (cause, stopped) = (why.to_string(), self.upstream.has_stopped());
        let followed = self.upstream.following();
        let address = self.upstream.address().map_or("", String::as_str);
        if matches!(why, SessionError::Seeded(_)) {
            tracing::info!(address, "this mirror has all that belongs to its checkpoint, and joins as a member");
        } else if matches!(why.remote_refusal(), Some(Refusal::NoteSet { .. })) {
            tracing::info!(address, "this mirror has noted the newest in-sync set, and comes again");
        } else if let Some(node) = followed.filter(|_| !stopped) {
            tracing::warn!(primary = %node, address, cause, "the log does not flow any more; this standby tries again");
        } else if let Some(why) = why.holds_more() {
            let why = Some(why.to_string());
            // It may try others in between.
            if why != self.holds_more {
                tracing::error!(address, cause, "this node holds more than the one that it is to follow, and keeps it");
            }
            self.holds_more = why;
        } else if self.last_failure.as_ref() != Some(&cause) && !stopped {
            tracing::warn!(address, cause, "this standby cannot follow; it tries again");
        }
        self.last_failure = Some(cause);
    }
}

/// The receiving thread rests while this lives.
pub(crate) struct Rest<'f>(&'f Follow);

impl Rest<'_> {
    /// It rests until it stops, for its log is made a primary's, or its memory a database.
    pub fn for_good(self) {
        std::mem::forget(self);
    }
}

impl Drop for Rest<'_> {
    fn drop(&mut self) {
        self.0.change(|state| state.upstream.end_rest());
    }
}

/// The receiving thread.
pub(crate) fn run<S: Store>(shared: &Arc<Shared<S>>) {
    let mut dice = shared.node().0 | 1;
    let follow = &shared.follow;
    // Looked at whenever there may have been one.
    let mut breaks = 0;
    let mut end_feeds = || {
        let now = follow.breaks();
        if std::mem::replace(&mut breaks, now) != now {
            S::end_feeds(shared);
        }
    };
    while let Some((upstream, order)) = follow.next() {
        end_feeds();
        let why = shared.join(&upstream, order);
        if let Some(refusal) = why.remote_refusal() {
            shared.terms.refused(shared.node(), refusal);
            if shared.terms.removal().is_some() {
                // What it hears no more, those below would take for the newest there is.
                S::end_feeds(shared);
            }
        }
        if let Some(Refusal::NotPrimary { node, .. }) = why.remote_refusal() {
            shared.observe_not_leading(*node);
        }
        dice ^= dice << 13;
        dice ^= dice >> 7;
        dice ^= dice << 17;
        let known: Vec<String> = shared.peers().into_iter().map(|peer| peer.address).collect();
        let pause = follow.ended(order, &why, &known, dice);
        end_feeds();
        follow.pause(order, pause);
        end_feeds();
    }
    S::end_feeds(shared);
    S::disconnected(shared);
}
