//! Join: how one who may follow becomes one who is fed.

use freshet_base::sync::{Arc, Ordering};
use freshet_cluster::{
    handshake::{self, Agreed},
    host::ReplicaState,
};
use freshet_fabric::{FabricKind, OpenError, channel::Side, tcp::Connection};

use super::{Feeder, Shipper, ack, ship};
use crate::{
    endpoint::refuse,
    status::AheadStatus,
    wire::{self, Hello, Join, Kind, Refusal, Reply, Welcome},
};

/// No more of the address of a node that holds more is passed on to others.
const LONGEST_ADDRESS: usize = 256;

/// A node that wants the log, or to speak for the cluster, is refused.
pub(crate) fn report_refused(hello: &Hello, refusal: &Refusal) {
    tracing::warn!(node = %hello.node, address = hello.address, cause = %refusal, "a node is refused");
}

/// Whether the log is here from where the node would continue. It may go before it was sent, which
/// the node is told then ([`ship::run`]); but one that cannot be fed is not to be counted for a
/// moment each time it tries.
fn keeps(feeder: &impl Feeder, welcome: &handshake::Welcome) -> Result<(), Refusal> {
    let (from, mut first) = (welcome.cut_at, [0; 8]);
    let length = welcome.end.since(from.min(welcome.end)).min(first.len() as u64);
    let read = feeder.read(from, &mut first[..length as usize]);
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
    if let Err(refusal) = keeps(&**feeder, &agreed.welcome) {
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
    if let Err(refusal) = feeder.came(&shipper, replica, &hello.address) {
        report_refused(hello, &refusal);
        return refuse(connection, refusal);
    }
    feeder.met(hello.node, &hello.address, !mirror);
    // The standby is counted before it is told so.
    let welcome = Welcome { log: agreed.welcome, offer: Some(side.offer().clone()), bare };
    let welcome = wire::encode_first(&Reply::Welcome(welcome));
    if let Err(error) = connection.sender().send(Kind::Reply as u8, feeds.term, &welcome) {
        return feeder.lost(&shipper, error.to_string());
    }
    if bare {
        connection = connection.bare();
    }
    let (sender, receiver) = match side.connect(offer, connection, fabric.limit.clone(), feeds.config.patience) {
        Ok(halves) => halves,
        Err(error) => return feeder.lost(&shipper, error.to_string()),
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
    let short = hello.node.0 >> 48;
    let (shipping, ships) = (Arc::clone(feeder), Arc::clone(&shipper));
    let (observing, acks) = (Arc::clone(feeder), Arc::clone(&shipper));
    let spawned = feeds
        .spawn(format!("ship-{short:04x}"), move || ship::run(&shipping, &ships))
        .and_then(|()| feeds.spawn(format!("ack-{short:04x}"), move || ack::run(&observing, &acks, receiver)));
    if let Err(error) = spawned {
        feeder.lost(&shipper, error.to_string());
    }
}
