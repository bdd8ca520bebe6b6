//! What a node does in its own way that keeps a log: [`Store`].

use std::{
    convert::Infallible,
    time::{Duration, Instant},
};

use freshet_base::{Lsn, Term, sync::Arc};
use freshet_cluster::{
    entering::Held,
    handshake::Sender,
    promising::Promised,
    promotion::{Fetch, LogState},
    term::TermState,
};
use freshet_fabric::tcp::Connection;
use freshet_log::Receiver;

use super::{LogStore, Shared, receive, relay};
use crate::{
    endpoint::refuse,
    follow::{SessionError, Store},
    members::{self, MemberRole, MemberStatus},
    originals::AskedBlock,
    promotion::{PromoteError, PromoteOptions, serve_log},
    status::{ObserverStatus, OwnStatus, StandbyStatus},
    wire::{Continue, Hello, Join, Refusal},
};

impl Store for LogStore {
    fn feed(shared: &Arc<Shared>, upstream: &str, connection: Connection) -> Result<Infallible, SessionError> {
        receive::feed(shared, upstream, connection)
    }

    fn held(shared: &Shared, terms: &TermState) -> Held {
        shared.state().follower.held(terms, shared.follow.is_sought())
    }

    fn holds_more(shared: &Shared, at: Lsn, committed: Lsn) -> SessionError {
        SessionError::Refused(Refusal::HoldsMore { node: shared.node(), at, committed })
    }

    /// Nothing that is written there can become part of the log. Costs nothing when no other
    /// process could have mapped it.
    fn take_back(shared: &Shared) -> Result<(), SessionError> {
        // A log whose receiver was given back is promoted, which takes the memory back as well.
        let renewed = shared.receiver().as_mut().map_or(Ok(()), Receiver::renew);
        renewed.map_err(|cause| {
            SessionError::Local(format!(
                "the log buffer cannot be moved to other memory, and a primary of before may still write there: \
                 {cause}; see that there is room for another one, and restart this node"
            ))
        })
    }

    fn disconnected(shared: &Shared) {
        shared.disconnect(None);
    }

    fn end_feeds(shared: &Shared) {
        shared.end_relay();
    }

    /// Nothing of that primary is passed on.
    fn superseded(shared: &Shared) {
        if let Some(session) = shared.relaying() {
            session.hang_up();
        }
    }

    fn peers_changed(shared: &Shared) {
        if let Some(session) = shared.relaying() {
            session.observe_peers();
        }
    }

    fn settles(shared: &Shared, deadline: Instant) -> Result<(), String> {
        shared.settle(deadline)
    }

    /// Nothing that is persisted later is acknowledged to an earlier term.
    fn log_state(shared: &Shared) -> LogState {
        let (end, committed, decision) = {
            let mut state = shared.state();
            let decision = shared.note_persisted(&mut state);
            (state.follower.persisted(), state.follower.global(), decision)
        };
        shared.carry_out(decision);
        let terms = shared.terms.get();
        let committed = committed.max(terms.committed).min(end);
        LogState { synchronous: shared.is_counted(), ..LogState::of(terms, shared.node(), end, committed) }
    }

    fn has_no_vote(shared: &Shared) -> Option<&'static str> {
        let withdrawn = shared.store.config.proof.withdrawn();
        withdrawn.map(|_| "what this node has in memory was found to be wrong: see its status")
    }

    fn member(shared: &Shared) -> MemberStatus {
        let OwnStatus { persisted, persist_lag, in_sync, .. } = shared.status();
        let role = if shared.store.relay.is_some() { MemberRole::Relay } else { MemberRole::Standby };
        MemberStatus { lsn: Some(persisted), lag: persist_lag, in_sync, ..members::of_itself(shared, role) }
    }

    fn fed(shared: &Shared) -> (Vec<StandbyStatus>, Vec<ObserverStatus>) {
        let relay = shared.status().relay;
        relay.map(|relay| (relay.standbys, relay.observers)).unwrap_or_default()
    }

    fn rested(shared: &Shared, options: &PromoteOptions) -> Result<(), String> {
        if let Some(doubt) = shared.store.config.proof.withdrawn().filter(|_| !options.consent.is_forced()) {
            return Err(format!(
                "its state is in doubt ({doubt}): promote another node; or start this one again, which makes its state \
                 again of its checkpoint and log"
            ));
        }
        // What cannot be executed again may be given up.
        let gives_up = || options.consent.is_forced() && shared.lacks_blocks();
        if let Some(why) = shared.follow.failure().filter(|_| !gives_up()) {
            return Err(why);
        }
        let settle = || shared.settle(Instant::now() + options.deadline);
        settle().or_else(|why| match gives_up() {
            true => shared.give_up_missing(&why).and_then(|()| settle()),
            false => Err(why),
        })
    }

    /// Through the same code that follows a primary.
    fn fetch(shared: &Arc<Shared>, from: &str, term: Term, wanted: &Fetch) -> Result<(), SessionError> {
        let outcome = receive::fetch(shared, from, term, wanted);
        shared.disconnect(outcome.as_ref().err().and_then(SessionError::refusal));
        outcome
    }

    fn finish(shared: &Shared, patience: Duration) -> Result<Lsn, PromoteError> {
        let log = &shared.store.log;
        let end = log.received().get();
        let floor = shared.state().follower.floor();
        if end < floor {
            return Err(PromoteError::Local(format!(
                "this node has joined from a checkpoint that is complete only with the log up to {floor}, and has it \
                 up to {end}: promote another node"
            )));
        }
        let deadline = Instant::now() + patience;
        let failed = |error: &dyn std::fmt::Display| PromoteError::Local(error.to_string());
        if !log.wait_persisted(end, Some(deadline)).map_err(|error| failed(&error))? {
            return Err(PromoteError::Deadline(patience));
        }
        shared.finish_replay(end).map_err(|error| failed(&error))?;
        Ok(end)
    }

    fn cut_half(shared: &Shared, end: Lsn) -> Result<Lsn, PromoteError> {
        let whole = shared.store.log.transaction_end(end);
        if whole < end {
            shared.cut(whole, false).map_err(|cause| PromoteError::Local(cause.to_string()))?;
        }
        Ok(whole)
    }

    fn join(shared: &Arc<Shared>, hello: &Hello, join: Join, connection: Connection) {
        relay::serve(shared, hello, join, connection);
    }

    fn original(shared: &Shared, block: AskedBlock) -> Result<Vec<u8>, Refusal> {
        let log = &shared.store.log;
        block.read(log, log.received().get(), || shared.lacks_block(block.at))
    }

    fn serve_log(shared: &Shared, hello: &Hello, promised: Promised, log: &Continue, connection: Connection) {
        let (terms, own) = (shared.terms.get(), &shared.store.log);
        let Some(cluster) = terms.cluster else {
            return refuse(connection, Refusal::NotPrimary { node: shared.node(), primary: None });
        };
        let sender = Sender {
            cluster,
            node: shared.node(),
            above: Vec::new(),
            term: promised.term(),
            history: terms.history,
            end: own.durable(),
            needed_capacity: 0,
            keep_alive_ms: 1000,
            lease_ms: 0,
        };
        serve_log(connection, &sender, 64 << 10, hello, log, |at, into| own.read(at, into));
    }
}

impl Shared {
    /// With the appliance method, the primary takes what it has read back for persistent, without
    /// asking; and what has arrived in another form is persistent as that: blocks until all that
    /// has arrived is part of the log and persistent there. To be called when no primary can write
    /// here any more.
    ///
    /// # Errors
    /// Why it is not by `deadline`.
    fn settle(&self, deadline: Instant) -> Result<(), String> {
        // What counts as persistent, or has counted, is so in the log itself from now on.
        let counted = || self.state().follower.persisted();
        let counts = if self.config.fabric.appliance { Lsn::MAX } else { self.held().max(counted()) };
        self.drain(Some(deadline))?;
        let received = self.store.log.received().get().min(counts);
        if received <= self.store.log.durable() {
            return Ok(());
        }
        if !self.store.log.wait_persisted(received, Some(deadline)).map_err(|error| error.to_string())? {
            let persisted = self.store.log.durable();
            return Err(format!(
                "the log is persistent here up to {persisted}, and was received up to {received}: ask again"
            ));
        }
        Ok(())
    }

    /// Gives up what has arrived and cannot be regenerated, because of `why`: when this returns,
    /// all that has arrived is part of the log.
    ///
    /// # Errors
    /// Why this node cannot continue.
    fn give_up_missing(&self, why: &str) -> Result<(), String> {
        let (complete, arrived) = (self.store.log.received().get(), self.state().follower.received());
        if complete < arrived {
            tracing::warn!(
                cause = why,
                from = complete.0,
                to = arrived.0,
                "what has arrived and could not be executed again is given up, as ordered"
            );
            self.cut(complete, true).map_err(|cause| cause.to_string())?;
        }
        Ok(())
    }
}
