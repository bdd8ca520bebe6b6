//! Follow: whom, and again and again until told otherwise.

use std::{
    collections::BTreeSet,
    ops::Bound,
    sync::MutexGuard,
    time::{Duration, Instant},
};

use freshet_base::{
    NodeId, Term,
    sync::{Arc, Condvar, Mutex},
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
    upstream: Option<String>,
    /// Counts changes of the above, so that an attempt on the old one is given up.
    order: u64,
    /// Counts those of the changes after which the log may not just go on: not when the upstream is
    /// only named again.
    breaks: u64,
    /// How many want the receiving thread to rest.
    rests: u32,
    resting: bool,
    stopped: bool,
    closer: Option<Closer>,
    /// The order under which memory of this node is offered, from before the other side hears of it
    /// until it is revoked.
    offered: Option<u64>,
    /// A primary that was offered memory under an earlier order has been succeeded.
    succeeded: u64,
    following: Option<NodeId>,
    /// Whether this node has come upon `upstream` by itself.
    sought: bool,
    /// Whether there was an answer, or none in time, since `upstream` was named.
    tried: bool,
    /// When the present attempt began, which may have succeeded.
    began: Option<Instant>,
    /// Whether `upstream` is a relay, as far as is known.
    relay: bool,
    /// The primary, if the log flowed through a relay last.
    primary: Option<NodeId>,
    joined_once: bool,
    last_failure: Option<String>,
    /// Why it does not follow, if it holds more than the node that it is to follow.
    holds_more: Option<String>,
    failed: Option<String>,
}

impl Follow {
    pub fn new(upstream: Option<String>) -> Self {
        let state = State {
            upstream,
            order: 0,
            breaks: 0,
            rests: 0,
            resting: false,
            stopped: false,
            closer: None,
            offered: None,
            succeeded: 0,
            following: None,
            sought: false,
            tried: false,
            began: None,
            relay: false,
            primary: None,
            joined_once: false,
            last_failure: None,
            holds_more: None,
            failed: None,
        };
        Self { state: Mutex::new(state), changed: Condvar::new() }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no code panics under this mutex")
    }

    /// Gives up the present connection, and follows `upstream` from now on.
    pub fn lead(&self, upstream: Option<String>) {
        let mut state = self.lock();
        let breaks = state.breaks + u64::from(state.upstream != upstream);
        state.upstream = upstream;
        (state.tried, state.relay, state.primary, state.sought) = (false, false, None, false);
        state.interrupt();
        state.breaks = breaks;
        self.changed.notify_all();
    }

    /// Tries `upstream` next, after the customary pause, unless another upstream was named since
    /// `order`. This node was not told to follow that one, which may know which node leads.
    pub fn look_elsewhere(&self, order: u64, upstream: &str) {
        let mut state = self.lock();
        if state.order == order {
            state.upstream = Some(upstream.to_owned());
            (state.tried, state.sought) = (false, true);
            self.changed.notify_all();
        }
    }

    /// Whether this node was not told to follow the one that it tries.
    pub fn is_sought(&self) -> bool {
        self.lock().sought
    }

    pub fn upstream(&self) -> Option<String> {
        self.lock().upstream.clone()
    }

    /// The node whose log flows at present.
    pub fn following(&self) -> Option<NodeId> {
        self.lock().following
    }

    /// Whether the one whom it follows is a relay, as far as is known.
    pub fn is_relayed(&self) -> bool {
        self.lock().relay
    }

    /// Whether it is not known yet what the one is whom it was told to follow.
    pub fn is_untried(&self) -> bool {
        let state = self.lock();
        state.upstream.is_some() && !state.tried
    }

    /// Since when an attempt to follow is under way that has not succeeded yet.
    pub fn tries_since(&self) -> Option<Instant> {
        let state = self.lock();
        state.began.filter(|_| state.following.is_none())
    }

    /// A relay has answered, though it does not feed this node at present.
    pub fn met_relay(&self, order: u64) {
        let mut state = self.lock();
        if state.order == order {
            state.relay = true;
        }
    }

    /// Where the primary is: the node, if its log comes through a relay, else the address.
    pub fn primary(&self) -> (Option<NodeId>, Option<String>) {
        let state = self.lock();
        (state.primary, state.upstream.clone().filter(|_| !state.relay))
    }

    /// A later term is in force, since just now if it has `risen`. Gives up the present connection
    /// then, and in any case blocks until no primary that could write into this node's memory
    /// before can do so any more; what those had written is part of the log then. False when that
    /// has not come about by `deadline`.
    pub fn revoke(&self, risen: bool, deadline: Instant) -> bool {
        let mut state = self.lock();
        if risen {
            state.interrupt();
            state.succeeded = state.order;
            self.changed.notify_all();
        }
        let succeeded = state.succeeded;
        while state.offered.is_some_and(|order| order < succeeded) {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            state = self.changed.wait_timeout(state, left).expect("no code panics under this mutex").0;
        }
        true
    }

    /// Memory of this node is about to be offered on the connection of this `order`, until
    /// [`Follow::revoked`]; false if it is not wanted any more.
    pub fn offer(&self, order: u64) -> bool {
        let mut state = self.lock();
        let wanted = state.order == order && !state.stopped;
        if wanted {
            state.offered = Some(order);
        }
        wanted
    }

    /// No other node can write into this node's memory.
    pub fn revoked(&self) {
        self.lock().offered = None;
        self.changed.notify_all();
    }

    /// The present connection is given up; the next attempt finds out whom to follow.
    pub fn leave(&self) {
        if let Some(closer) = self.lock().closer.take() {
            closer.close();
        }
    }

    /// The standby cannot go on.
    pub fn fail(&self, why: String) {
        let mut state = self.lock();
        if state.failed.is_none() {
            tracing::error!(cause = why, "this standby cannot continue");
        }
        state.failed.get_or_insert(why);
        state.interrupt();
        self.changed.notify_all();
    }

    /// Why this node does not follow, if it holds more than the one that it is to follow.
    pub fn holds_more(&self) -> Option<String> {
        self.lock().holds_more.clone()
    }

    pub fn failure(&self) -> Option<String> {
        self.lock().failed.clone()
    }

    pub fn stop(&self) {
        let mut state = self.lock();
        state.stopped = true;
        state.interrupt();
        self.changed.notify_all();
    }

    /// Makes the receiving thread rest, and blocks until it does; it goes on when the result is
    /// dropped.
    pub fn rest(&self) -> Rest<'_> {
        let mut state = self.lock();
        state.rests += 1;
        state.interrupt();
        self.changed.notify_all();
        while !state.resting && !state.stopped {
            state = self.changed.wait(state).expect("no code panics under this mutex");
        }
        Rest(self)
    }

    /// A connection is being used from now on; false if it is not wanted any more.
    pub fn connected(&self, order: u64, closer: Closer) -> bool {
        let mut state = self.lock();
        if state.order != order || state.stopped {
            closer.close();
            return false;
        }
        state.closer = Some(closer);
        true
    }

    /// The log flows, through those `above` if `node` is a relay.
    pub fn joined(&self, node: NodeId, above: &[NodeId], term: Term) {
        let mut state = self.lock();
        let address = state.upstream.as_deref().unwrap_or_default();
        tracing::info!(role = "standby", primary = %node, address, term = term.0, "the log flows from another node");
        state.following = Some(node);
        state.tried = true;
        state.relay = !above.is_empty();
        state.primary = above.first().copied();
        state.joined_once = true;
        (state.last_failure, state.holds_more) = (None, None);
        self.changed.notify_all();
    }

    pub fn order(&self) -> u64 {
        self.lock().order
    }

    /// Changes with everything that ends the feeds of a relay.
    fn breaks(&self) -> u64 {
        self.lock().breaks
    }

    pub fn wait_joined(&self, deadline: Instant) -> Result<(), JoinError> {
        let mut state = self.lock();
        loop {
            if state.joined_once && state.failed.is_none() {
                return Ok(());
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if state.failed.is_some() || state.stopped || left.is_zero() {
                let why = state.failed.clone().or_else(|| state.last_failure.clone());
                return Err(JoinError {
                    upstream: state.upstream.clone().unwrap_or_else(|| "anybody".into()),
                    why: why.unwrap_or_else(|| "there was no answer in time".into()),
                });
            }
            state = self.changed.wait_timeout(state, left).expect("no code panics under this mutex").0;
        }
    }

    pub fn status(&self) -> LinkStatus {
        let state = self.lock();
        match (&state.failed, &state.upstream, state.following) {
            (Some(why), _, _) => LinkStatus::Failed { why: why.clone() },
            (None, Some(address), Some(node)) => LinkStatus::Following { node, address: address.clone() },
            (None, Some(address), None) => {
                LinkStatus::Connecting { address: address.clone(), last_failure: state.last_failure.clone() }
            }
            (None, None, _) => LinkStatus::Resting,
        }
    }

    /// Blocks until there is somebody to follow; `None` when the standby stops.
    fn next(&self) -> Option<(String, u64)> {
        let mut state = self.lock();
        loop {
            if state.stopped {
                return None;
            }
            state.resting = state.rests > 0 || state.failed.is_some();
            match &state.upstream {
                Some(upstream) if !state.resting => {
                    let next = (upstream.clone(), state.order);
                    state.began = Some(Instant::now());
                    return Some(next);
                }
                _ => {}
            }
            self.changed.notify_all();
            state = self.changed.wait(state).expect("no code panics under this mutex");
        }
    }

    /// The attempt, or the connection, ended; pauses unless there is news.
    fn ended(&self, order: u64, why: &SessionError, pause: Duration) {
        let mut state = self.lock();
        (state.closer, state.began) = (None, None);
        let cause = why.to_string();
        let followed = state.following.take();
        let address = state.upstream.as_deref().unwrap_or_default();
        if matches!(why, SessionError::Seeded(_)) {
            tracing::info!(address, "this mirror has all that belongs to its checkpoint, and joins as a member");
        } else if matches!(why.remote_refusal(), Some(Refusal::NoteSet { .. })) {
            tracing::info!(address, "this mirror has noted the newest in-sync set, and comes again");
        } else if let Some(node) = followed.filter(|_| !state.stopped) {
            tracing::warn!(primary = %node, address, cause, "the log does not flow any more; this standby tries again");
        } else if let Some(why) = why.holds_more() {
            let why = Some(why.to_string());
            // It may try others in between.
            if why != state.holds_more {
                tracing::error!(address, cause, "this node holds more than the one that it is to follow, and keeps it");
            }
            state.holds_more = why;
        } else if state.last_failure.as_ref() != Some(&cause) && !state.stopped {
            tracing::warn!(address, cause, "this standby cannot follow; it tries again");
        }
        state.tried |= state.order == order;
        state.last_failure = Some(cause);
        self.changed.notify_all();
        let until = Instant::now() + pause;
        while state.order == order && !state.stopped && state.rests == 0 && state.failed.is_none() {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            state = self.changed.wait_timeout(state, left).expect("no code panics under this mutex").0;
        }
    }
}

impl State {
    fn interrupt(&mut self) {
        self.order += 1;
        self.breaks += 1;
        if let Some(closer) = self.closer.take() {
            closer.close();
        }
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
        let mut state = self.0.lock();
        state.rests -= 1;
        state.resting = false;
        self.0.changed.notify_all();
    }
}

/// Which of `others` to try after `last`: each has its turn, whichever is left out now and then.
fn next_of(others: &BTreeSet<String>, last: &str) -> Option<String> {
    let behind = others.range::<str, _>((Bound::Excluded(last), Bound::Unbounded)).next();
    behind.or_else(|| others.first()).cloned()
}

/// The receiving thread.
pub(crate) fn run<S: Store>(shared: &Arc<Shared<S>>) {
    let (first, longest) = shared.config.back_off;
    let mut pause = first;
    let mut dice = shared.node().0 | 1;
    // Of those that are tried in turn.
    let mut last = String::new();
    let follow = &shared.follow;
    let first_upstream = follow.upstream();
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
        let outcome = shared.join(&upstream, order);
        if let Some(Refusal::NotPrimary { node, .. }) = outcome.remote_refusal() {
            shared.observe_not_leading(*node);
        }
        match (&outcome, outcome.remote_refusal()) {
            (SessionError::Local(why), _) => follow.fail(why.clone()),
            (SessionError::Counted { primary: Some(primary) }, _) if follow.order() == order => {
                follow.lead(Some(primary.clone()));
            }
            // Somebody else is the primary, and this node knows where.
            (
                _,
                Some(Refusal::NotPrimary { primary: Some(next), .. } | Refusal::Fenced { primary: Some(next), .. }),
            ) if *next != upstream && next != shared.address() && follow.order() == order => {
                follow.lead(Some(next.clone()));
            }
            // Trying again would change nothing.
            (
                _,
                Some(
                    Refusal::OtherCluster { .. }
                    | Refusal::BufferTooSmall { .. }
                    | Refusal::NoMirror(_)
                    | Refusal::Myself { .. },
                ),
            ) => follow.fail(outcome.to_string()),
            (_, Some(Refusal::Later { .. } | Refusal::Circle { .. })) => follow.met_relay(order),
            // What the primary has no more will not come however often it is asked. A standby may
            // yet find it with another one.
            (_, Some(Refusal::LogGone { .. })) if !shared.config.member => follow.fail(outcome.to_string()),
            // One of the others may know more.
            (error, _)
                if error.found_none() && shared.is_counted() && !follow.is_relayed() && follow.order() == order =>
            {
                let mut others: BTreeSet<_> = shared.peers().into_iter().map(|peer| peer.address).collect();
                others.extend(first_upstream.clone());
                others.retain(|other| *other != upstream && other != shared.address());
                if let Some(next) = next_of(&others, &last) {
                    last = next;
                    follow.look_elsewhere(order, &last);
                }
            }
            _ => {}
        }
        pause = if outcome.followed() { first } else { (pause * 2).min(longest) };
        // Jitter keeps standbys that lost the same primary from coming back in step.
        dice ^= dice << 13;
        dice ^= dice >> 7;
        dice ^= dice << 17;
        let jitter = pause.mul_f64((dice % 1000) as f64 / 2000.0);
        end_feeds();
        follow.ended(order, &outcome, pause / 2 + jitter);
        end_feeds();
    }
    S::end_feeds(shared);
    S::disconnected(shared);
}

#[cfg(test)]
mod tests {
    use freshet_base::Lsn;
    use freshet_fabric::tcp::ReceiveError;

    use super::*;

    /// It would receive the same reason each time.
    #[test]
    fn one_that_receives_a_reason_waits_longer_each_time() {
        let gone = || Refusal::LogGone { from: Lsn(0), why: String::new() };
        assert!(!SessionError::Goodbye(gone()).followed());
        assert!(SessionError::Receive(ReceiveError::Closed { peer: ([127, 0, 0, 1], 1).into() }).followed());
    }

    /// The one that was tried last is left out, and another if this node learned of it since then.
    #[test]
    fn each_of_the_others_has_its_turn() {
        let all: BTreeSet<_> = ["a", "b", "c", "d"].map(str::to_owned).into();
        let without = |gone: &[&str]| -> BTreeSet<String> {
            all.iter().filter(|it| !gone.contains(&it.as_str())).cloned().collect()
        };
        let mut last = String::new();
        let mut tried = Vec::new();
        for learned in ["a", "b", "c", "d", "a", "c"] {
            last = next_of(&without(&[last.as_str(), learned]), &last).unwrap();
            tried.push(last.clone());
        }
        assert_eq!(tried, ["b", "c", "d", "a", "b", "d"]);
        assert_eq!(next_of(&BTreeSet::new(), &last), None);
    }
}
