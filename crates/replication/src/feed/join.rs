//! Join: how one who may follow becomes one who is fed.

use freshet_base::{
    Stamp,
    sync::{Arc, Ordering},
};
use freshet_cluster::{commit_rule::Event, flow::Flow, handshake::Agreed};
use freshet_fabric::{FabricKind, Offer, OpenError, channel::Side, tcp::Connection};

use super::{Feeder, Shipper, ack, ship};
use crate::{
    endpoint::refuse,
    wire::{self, Hello, Kind, Refusal, Reply, Welcome},
};

/// A standby that may join.
pub(crate) struct Joining {
    pub member: bool,
    pub synchronous: bool,
    pub appliance: bool,
    pub offer: Offer,
    /// It agrees to leave TLS.
    pub bare: bool,
    /// It has room up to there, which tells how far it has replayed.
    pub replayed: Stamp,
    pub agreed: Agreed,
}

/// A node that wants the log, or to speak for the cluster, is refused.
pub(crate) fn tell_refused(hello: &Hello, refusal: &Refusal) {
    tracing::warn!(node = %hello.node, address = hello.address, cause = %refusal, "a node is refused");
}

/// Counts the standby, welcomes it, and starts its two threads.
pub(crate) fn join<F: Feeder>(feeder: &Arc<F>, hello: &Hello, joining: Joining, mut connection: Connection) {
    let Joining { member, synchronous, appliance, offer, bare, replayed, agreed } = joining;
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
    let bare = bare && fabric.config.bare && offer.kind() == FabricKind::Tcp;
    let side = match Side::new(offer.kind(), fabric.config.clone(), None) {
        Ok(side) => side,
        Err(error) => return refuse(connection, Refusal::Failed(error.to_string())),
    };
    let now = feeds.clock.now();
    // No room before the standby has said so: it may have to cut its log first, and what is written
    // there is in its memory at once.
    let flow = Flow::new(feeds.config.flow, agreed.welcome.cut_at, agreed.welcome.cut_at, now);
    let shipper = Arc::new(Shipper::new(hello.node, member, appliance, flow, closer));
    let joined = Event::Joined { standby: hello.node, persisted: agreed.persisted, synchronous };
    if let Err(refusal) = feeder.came(&shipper, &hello.address, joined) {
        tell_refused(hello, &refusal);
        return refuse(connection, refusal);
    }
    feeder.met(hello.node, &hello.address);
    shipper.replayed.store(replayed.min(agreed.welcome.cut_at).0, Ordering::Relaxed);
    let cut_at = agreed.welcome.cut_at;
    // The standby is counted before it is told so.
    let welcome = Welcome { log: agreed.welcome, offer: Some(side.offer().clone()), bare };
    let welcome = wire::encode_first(&Reply::Welcome(welcome));
    if let Err(error) = connection.sender().send(Kind::Reply as u8, feeds.term, &welcome) {
        return feeder.lost(&shipper, error.to_string());
    }
    if bare {
        connection = connection.bare();
    }
    let (sender, receiver) = match side.connect(&offer, connection, fabric.limit.clone(), feeds.config.patience) {
        Ok(halves) => halves,
        Err(error) => return feeder.lost(&shipper, error.to_string()),
    };
    shipper.begin(sender);
    tracing::info!(
        standby = %hello.node,
        address = hello.address,
        term = feeds.term.0,
        stamp = cut_at.0,
        member,
        synchronous,
        "a standby is connected"
    );
    let short = hello.node.0 >> 48;
    let (shipping, ships) = (Arc::clone(feeder), Arc::clone(&shipper));
    let (hearing, acks) = (Arc::clone(feeder), Arc::clone(&shipper));
    let spawned = feeds
        .spawn(format!("ship-{short:04x}"), move || ship::run(&shipping, &ships))
        .and_then(|()| feeds.spawn(format!("ack-{short:04x}"), move || ack::run(&hearing, &acks, receiver)));
    if let Err(error) = spawned {
        feeder.lost(&shipper, error.to_string());
    }
    if feeds.stopping() {
        shipper.end();
    }
}
