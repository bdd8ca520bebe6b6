//! Announce: tells every node that is not connected who leads, again and again while it is not.
//!
//! A standby that missed the failover would try its old primary for ever, and an old primary that
//! was partitioned must learn that it is one. A node that has heard may be started again, and knows
//! only whom it was told to join.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::{Duration, Instant},
};

use freshet_base::{NodeId, Term, sync::Arc};

use super::Shared;
use crate::{
    endpoint::{CallError, call},
    promotion::ask_all,
    terms::Leads,
    wire::{Purpose, Refusal, Reply},
};

/// The first pause between two calls of a node, and the longest.
const PAUSE: (Duration, Duration) = (Duration::from_millis(250), Duration::from_secs(4));
/// The longest where a stranger answers: the node may be gone for good, and its address another's.
const STRANGER: Duration = Duration::from_secs(60);
/// A node has this long to answer.
const PATIENCE: Duration = Duration::from_secs(1);

/// The announce thread.
pub(super) fn run(shared: &Arc<Shared>) {
    // Of each address: when it is called next, and the pause after that.
    let mut calls: BTreeMap<String, (Instant, Duration)> = BTreeMap::new();
    while !shared.stopping() {
        // One that is stuck is not to be followed.
        let missing = if shared.is_stuck() { BTreeSet::new() } else { missing(shared) };
        calls.retain(|address, _| missing.contains(address));
        if shared.stopping() || shared.is_fenced() {
            return;
        }
        let now = Instant::now();
        let is_due = |address: &String| calls.get(address).is_none_or(|(due, _)| *due <= now);
        // At once: one of them may stand still, and others wait to follow.
        let due: Vec<_> = missing.into_iter().filter(is_due).collect();
        for (address, is_stranger) in ask_all(due.into_iter(), |address| announce(shared, address)) {
            let pause = calls.get(&address).map_or(PAUSE.0, |(_, pause)| *pause);
            let longest = if is_stranger { STRANGER } else { PAUSE.1 };
            calls.insert(address, (Instant::now() + pause, (pause * 2).min(longest)));
        }
        shared.announce.sleep(calls.values().map(|(due, _)| *due).min());
    }
}

/// Where nodes can be reached that are not connected now.
fn missing(shared: &Shared) -> BTreeSet<String> {
    let connected: BTreeSet<_> = shared.feeds.state().host.feeds().map(|(_, feed)| feed.node).collect();
    let peers = shared.known();
    let witness = shared.commit.witness();
    let absent = |node| node != shared.who.node && Some(node) != witness && !connected.contains(&node);
    peers.into_iter().filter(|peer| peer.node.is_none_or(absent)).map(|peer| peer.address).collect()
}

/// Says whether it is no member of the cluster that answers at this address.
fn announce(shared: &Shared, address: &str) -> bool {
    match introduce(shared, address) {
        Ok(Reply::Leads(claim)) => shared.met(address, &claim),
        Err(CallError::Refused { refusal: Refusal::Fenced { highest, holder, primary, .. }, .. }) => {
            fenced(shared, address, highest, holder, primary);
        }
        Err(CallError::Foreign { .. }) => return true,
        _ => {}
    }
    false
}

/// The node at this address has heard of term `highest`, and of who holds it.
pub(super) fn fenced(shared: &Shared, address: &str, highest: Term, holder: Option<NodeId>, primary: Option<String>) {
    if highest == shared.who.term && holder.is_some_and(|holder| holder != shared.who.node) {
        // Until one of the two leads in a later term, it will say the same; until then this term
        // may prove void.
        return shared.contested(address);
    }
    let led = !shared.is_fenced();
    shared.fence(highest);
    let other = holder.zip(primary).filter(|(_, primary)| *primary != shared.who.address);
    let Some((node, primary)) = other.filter(|_| led && shared.is_fenced()) else { return };
    // It may only be about to lead. It has to hear of this one, and says whether it does; one that
    // cannot be reached from here is followed by the node that was asked.
    let leads = primary == address
        || match introduce(shared, &primary) {
            Err(CallError::Refused { refusal: Refusal::Fenced { primary: itself, .. }, .. }) => {
                itself == Some(primary.clone())
            }
            Ok(_) | Err(CallError::Refused { .. }) => false,
            Err(_) => true,
        };
    if leads {
        shared.observe_rival(node, &primary, highest);
    }
}

/// Tells a node that this one leads.
fn introduce(shared: &Shared, address: &str) -> Result<Reply, CallError> {
    let claim = Purpose::Announce { claim: shared.claim(), address: shared.who.address.clone() };
    let hello = shared.hello(claim);
    call(&shared.who.credentials, address, &hello, shared.who.term, PATIENCE).map(|(reply, _)| reply)
}

/// It ends, whichever listener was asked for the promise.
impl Leads for Shared {
    fn promised(&self, by: Term) {
        self.fence(by);
    }
}
