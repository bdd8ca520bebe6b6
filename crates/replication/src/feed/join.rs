//! Join: how one who may follow becomes one who is fed.

use freshet_base::{
    Lsn, Stage,
    sync::{Arc, Ordering},
};
use freshet_cluster::{
    handshake::{self, Agreed},
    host::ReplicaState,
};
use freshet_fabric::{FabricKind, OpenError, channel::Side, tcp::Connection};
use freshet_log::ReadError;

use super::{Feeder, Introduced, Shipper, ack, ship};
use crate::{
    endpoint::refuse,
    status::AheadStatus,
    wire::{self, Hello, Join, Kind, Refusal, Reply, Welcome},
};

/// No more of the address of a node that holds more is passed on to others.
const LONGEST_ADDRESS: usize = 256;
/// Nor of the version of a node's program.
const LONGEST_VERSION: usize = 64;

/// A node that wants the log, or to speak for the cluster, is refused.
pub(crate) fn report_refused(hello: &Hello, refusal: &Refusal) {
    tracing::warn!(node = %hello.node, address = hello.address, cause = %refusal, "a node is refused");
}

/// Whether the log is here from where the node would continue. It may go before it was sent, which
/// the node is told then ([`ship::run`]); but one that cannot be fed is not to be counted for a
/// moment each time it tries.
pub(crate) fn check_kept(
    read: impl Fn(Lsn, &mut [u8]) -> Result<(), ReadError>,
    welcome: &handshake::Welcome,
) -> Result<(), Refusal> {
    let (from, mut first) = (welcome.cut_at, [0; 8]);
    let length = welcome.end.since(from.min(welcome.end)).min(first.len() as u64);
    let read = read(from, &mut first[..length as usize]);
    read.map_err(|error| Refusal::LogGone { from, why: error.to_string() })
}

/// Logs that a node is refused. One that holds more than this log does not have to come again to be
/// heard of: all others know of it.
pub(crate) fn note_refused(feeder: &impl Feeder, hello: &Hello, join: &Join, refusal: &Refusal) {
    if !matches!(refusal, Refusal::HoldsMore { .. } | Refusal::MirrorHoldsMore { .. }) {
        return report_refused(hello, refusal);
    }
    let (node, end, acknowledged) = (hello.node, join.log.received, join.holds);
    let address: String = hello.address.chars().take(LONGEST_ADDRESS).collect();
    let term = join.log.history.cut(end).last_term();
    let ahead = AheadStatus { node, address: address.clone(), term, end, acknowledged, why: refusal.to_string() };
    if feeder.feeds().state().holds_more(ahead) {
        tracing::error!(
            %node,
            address,
            term = term.0,
            cause = %refusal,
            "a node holds more than this log, and keeps it: an operator has to decide"
        );
        feeder.news();
    }
}

/// Counts the standby, welcomes it, and starts its two threads.
pub(crate) fn join<F: Feeder>(feeder: &Arc<F>, hello: &Hello, join: &Join, agreed: Agreed, mut connection: Connection) {
    let Join { member, synchronous, mirror, incarnation, ref offer, .. } = *join;
    // What has completed is in a mirror's memory, which is all that it promises.
    let appliance = join.appliance || mirror;
    let feeds = feeder.feeds();
    if let Err(error) = connection.set_patience(Some(feeds.config.patience)) {
        return refuse(connection, Refusal::Failed(error.to_string()));
    }
    let closer = connection.closer();
    let fabric = &feeds.config.fabric;
    if offer.kind() != FabricKind::Tcp && offer.kind() != fabric.kind {
        let why = OpenError::OtherFabric { ours: fabric.kind, theirs: offer.kind() };
        return refuse(connection, Refusal::Failed(why.to_string()));
    }
    let bare = join.bare && fabric.config.bare && offer.kind() == FabricKind::Tcp;
    let side = match Side::new(offer.kind(), fabric.config.clone(), vec![]) {
        Ok(side) => side,
        Err(error) => return refuse(connection, Refusal::Failed(error.to_string())),
    };
    if let Err(refusal) = check_kept(|at, into| feeder.read(at, into), &agreed.welcome) {
        report_refused(hello, &refusal);
        return refuse(connection, refusal);
    }
    let id = feeds.ids.fetch_add(1, Ordering::SeqCst);
    let (node, from, persisted) = (hello.node, agreed.welcome.cut_at, agreed.persisted);
    let shipper = Arc::new(Shipper::new(id, node, join, closer));
    shipper.ask_for(join.encoding);
    // It has room up to there, which tells how far it has replayed.
    let replayed = join.log.may_send_until;
    let replica = ReplicaState { node, incarnation, member, synchronous, appliance, from, persisted, replayed };
    if let Err(refusal) = came(&**feeder, &shipper, replica, &hello.address) {
        report_refused(hello, &refusal);
        return refuse(connection, refusal);
    }
    introduced(&**feeder, hello, join, &connection);
    // The standby is counted before it is told so.
    let welcome = Welcome { log: agreed.welcome, offer: Some(side.offer().clone()), bare };
    let welcome = wire::encode_first(&connection, &Reply::Welcome(welcome));
    if let Err(error) = connection.sender().send(Kind::Reply as u8, feeds.term, &welcome) {
        return lost(&**feeder, &shipper, error.to_string());
    }
    if bare {
        connection = connection.bare();
    }
    let (sender, receiver) = match side.connect(offer, connection, fabric.limit.clone(), feeds.config.patience) {
        Ok(halves) => halves,
        Err(error) => return lost(&**feeder, &shipper, error.to_string()),
    };
    shipper.begin(sender, from, &**feeder);
    tracing::info!(
        standby = %hello.node,
        address = hello.address,
        term = feeds.term.0,
        lsn = from.0,
        member,
        synchronous,
        mirror,
        "a standby is connected"
    );
    let short = format!("{:04x}", hello.node.0 >> 48);
    let (shipping, ships) = (Arc::clone(feeder), Arc::clone(&shipper));
    let (observing, acks) = (Arc::clone(feeder), Arc::clone(&shipper));
    let spawned = feeds
        .spawn(Stage::Ship.thread(&short), move || ship::run(&shipping, &ships))
        .and_then(|()| feeds.spawn(Stage::Ack.thread(&short), move || ack::run(&observing, &acks, receiver)));
    if let Err(error) = spawned {
        lost(&**feeder, &shipper, error.to_string());
    }
}

/// Takes down what a node that joins has said of itself, and of maintenance.
fn introduced(feeder: &impl Feeder, hello: &Hello, join: &Join, connection: &Connection) {
    let protocol = connection.spoken().map(|spoken| spoken.newest);
    let feeds = feeder.feeds();
    let version = join.version.chars().take(LONGEST_VERSION).collect();
    let introduced = Introduced { version, protocol, relay: join.relay, at: feeds.clock.now() };
    feeds.state().introduced.insert(hello.node, introduced);
    feeds.maintained.observe(join.maintenance);
    feeder.met(hello.node, &hello.address, !join.mirror);
}

/// A connection was made; it takes the place of an earlier one of the same node. The rule is
/// told that a member has come.
///
/// # Errors
/// [`Refusal::Superseded`] when this node feeds no node any more, [`Refusal::Removed`] when an
/// operator has removed the node since it asked; then nothing has changed.
fn came<F: Feeder>(feeder: &F, shipper: &Arc<Shipper>, replica: ReplicaState, address: &str) -> Result<(), Refusal> {
    let feeds = feeder.feeds();
    let _order = feeds.comings.lock().expect("no code panics under this mutex");
    if replica.member {
        feeder.make_place(address, &replica);
    }
    let (joined, before, is_level) = {
        let mut state = feeds.state();
        // Who ends the feeds of a removed node looks at them after that was noted.
        feeds.terms.check_belongs(replica.node)?;
        if feeds.terms.removal().is_some() {
            return Err(Refusal::Superseded("an operator has removed this node from the cluster".into()));
        }
        let joined = state.host.join(shipper.id, replica, feeds.clock.now());
        let joined = joined.ok_or_else(|| Refusal::Superseded("this node ends its feeds".into()))?;
        state.shippers.insert(shipper.id, Arc::clone(shipper));
        let is_level = state.holds_no_more(replica.node, address);
        state.held.remove(&replica.node);
        let moved = !address.is_empty() && {
            let before = state.addresses.insert(replica.node, address.to_owned());
            before.is_some_and(|before| before != address)
        };
        let before = joined.replaced.and_then(|before| state.shippers.remove(&before));
        if before.is_some() {
            state.replaced(replica.node, moved.then_some(address), feeds.clock.now());
        }
        (joined, before, is_level)
    };
    if is_level {
        feeder.news();
    }
    if let Some(before) = before {
        // The old one is dead, whether it knows or not.
        before.end();
    }
    joined.events.into_iter().flatten().for_each(|event| feeder.apply(event));
    Ok(())
}

/// A connection ended; `why` is kept for `status`, unless the reason was known before.
pub(super) fn lost<F: Feeder>(feeder: &F, shipper: &Shipper, why: String) {
    let feeds = feeder.feeds();
    // A node that has come back must not be taken for gone because its old connection ends
    // late.
    let order = feeds.comings.lock().expect("no code panics under this mutex");
    let (is_last, left) = {
        let mut state = feeds.state();
        let is_last = state.shippers.remove(&shipper.id).is_some();
        if is_last {
            let why = shipper.reason.get().cloned().unwrap_or(why);
            if !state.host.is_closed() {
                let (standby, member, term) = (shipper.node, shipper.member, feeds.term.0);
                tracing::warn!(%standby, member, term, cause = why, "the connection to a standby is lost");
            }
            state.losses.insert(shipper.node, (why, feeds.clock.now()));
            state.hold(shipper, feeds.clock.now());
        }
        (is_last, state.host.leave(shipper.id))
    };
    shipper.end();
    left.into_iter().for_each(|event| feeder.apply(event));
    drop(order);
    if is_last && shipper.member {
        feeder.missed();
    }
}
