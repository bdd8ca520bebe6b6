//! What a standby is to those that keep it following: [`Follows`].

use std::{
    convert::Infallible,
    time::{Duration, Instant},
};

use freshet_base::{
    Lsn, NodeId,
    sync::{Arc, Mutex},
};
use freshet_cluster::{
    entering::Held,
    term::{Living, TermState},
};
use freshet_fabric::tcp::Connection;
use freshet_membership::Credentials;

use super::{Follow, Follows, SessionError, Shared, receive};
use crate::{
    terms::Terms,
    wire::{Peer, Refusal},
};

impl Follows for Shared {
    fn node(&self) -> NodeId {
        self.node
    }

    fn address(&self) -> &str {
        &self.address
    }

    fn credentials(&self) -> &Credentials {
        &self.credentials
    }

    fn terms(&self) -> &Terms {
        &self.terms
    }

    fn follow(&self) -> &Follow {
        &self.follow
    }

    fn patience(&self) -> Duration {
        self.config.patience
    }

    fn back_off(&self) -> (Duration, Duration) {
        self.config.back_off
    }

    fn is_member(&self) -> bool {
        self.config.member
    }

    fn is_counted(&self) -> bool {
        self.config.member && self.config.synchronous
    }

    fn known(&self) -> Vec<Peer> {
        self.state().peers.clone()
    }

    fn observe_primary(&self, living: Living, address: &str) {
        let mut state = self.state();
        state.follower.view_mut().observe_primary(living, self.clock.now());
        // A primary of before has said so.
        state.ahead.retain(|one| one.node != living.node);
        address.clone_into(&mut state.announced_address);
    }

    fn observe_not_leading(&self, node: NodeId) {
        self.state().follower.view_mut().observe_not_leading(node);
    }

    fn offered(self: &Arc<Self>, upstream: &str, connection: Connection) -> Result<Infallible, SessionError> {
        receive::offered(self, upstream, connection)
    }

    fn held(&self, terms: &TermState) -> Held {
        self.state().follower.held(terms, self.follow.is_sought())
    }

    fn holds_more(&self, at: Lsn, committed: Lsn) -> SessionError {
        SessionError::Refused(Refusal::HoldsMore { node: self.node, at, committed })
    }

    fn take_back(&self) -> Result<(), SessionError> {
        receive::take_back(self)
    }

    fn disconnected(&self) {
        self.disconnect(None);
    }

    fn end_feeds(&self) {
        self.end_relay();
    }

    fn observing(&self) -> &Mutex<()> {
        &self.observing
    }

    /// Nothing of that primary is passed on.
    fn superseded(&self) {
        if let Some(session) = self.relaying() {
            session.hang_up();
        }
    }

    fn settles(&self, deadline: Instant) -> Result<(), String> {
        self.settle(deadline)
    }
}
