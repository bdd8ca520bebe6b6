//! Join: how one who may follow becomes one who is fed.

use freshet_base::{
    Lsn,
    sync::{Arc, Ordering},
};
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

/// Whether this log, which is the same as a node's up to `at`, has what that node knows to have
/// been acknowledged to clients.
///
/// A primary that was set back to an older copy of its disk finds out so, and one that was forced.
fn has_enough(hello: &Hello, join: &Join, at: Lsn) -> Result<(), (Box<AheadStatus>, Refusal)> {
    let (node, acknowledged) = (hello.node, join.holds);
    if at >= acknowledged {
        return Ok(());
    }
    let term = join.log.history.cut(join.log.received).last_term();
    let why = match join.mirror {
        true => Refusal::MirrorHoldsMore { node, term, end: acknowledged, here: at },
        false => Refusal::HoldsMore { node, at, committed: acknowledged },
    };
    let address = hello.address.chars().take(LONGEST_ADDRESS).collect();
    let (end, text) = (join.log.received, why.to_string());
    Err((Box::new(AheadStatus { node, address, term, end, acknowledged, why: text }), why))
}

/// Refuses a node that holds more than this log, which is the same as its own up to `at`: notes
/// that, and has all others know.
fn holds_no_more(feeder: &impl Feeder, hello: &Hello, join: &Join, at: Lsn) -> Result<(), Refusal> {
    if let Err((ahead, refusal)) = has_enough(hello, join, at) {
        let (node, address, term) = (ahead.node, ahead.address.clone(), ahead.term.0);
        let is_new = feeder.feeds().state().holds_more(*ahead);
        if is_new {
            tracing::error!(
                %node,
                address,
                term,
                cause = %refusal,
                "a node holds more than this log, and keeps it: an operator has to decide"
            );
            feeder.news();
        }
        return Err(refusal);
    }
    Ok(())
}

/// Whether this log can continue what the node has; says why not.
fn can_feed(feeder: &impl Feeder, hello: &Hello, join: &Join, welcome: &handshake::Welcome) -> Result<(), Refusal> {
    holds_no_more(feeder, hello, join, welcome.cut_at)?;
    keeps(feeder, welcome).inspect_err(|refusal| report_refused(hello, refusal))
}

/// What to tell a node whose log does not agree with this one. If a term was begun twice, it may
/// hold more than this log.
pub(crate) fn disagreed(feeder: &impl Feeder, hello: &Hello, join: &Join, why: Refusal) -> Refusal {
    if let Refusal::SameTermTwice { upto, .. } = why
        && let Err(holds_more) = holds_no_more(feeder, hello, join, upto)
    {
        return holds_more;
    }
    report_refused(hello, &why);
    why
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
    if let Err(refusal) = can_feed(&**feeder, hello, join, &agreed.welcome) {
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
