//! Accept: answers those who connect to a primary.

use freshet_base::{
    Stamp, Term,
    sync::{Arc, Ordering},
};
use freshet_cluster::{
    commit_rule::{self, Event},
    flow::Flow,
    term::{LogState, Verdict},
};
use freshet_fabric::{Offer, channel::Side, tcp::Connection};

use super::{Shared, ack, ship, ship::Shipper};
use crate::{
    endpoint::{Service, answer, refuse},
    handshake::{Agreed, Host, check_cluster, consider},
    takeover::serve_log,
    wire::{self, Continue, Hello, Kind, Purpose, Refusal, Reply},
};

pub(super) struct PrimaryService(pub Arc<Shared>);

impl Service for PrimaryService {
    fn serve(&self, hello: Hello, connection: Connection) {
        let shared = &self.0;
        if shared.stopping() {
            return refuse(connection, Refusal::NotPrimary { node: shared.who.node, leader: None });
        }
        if let Err(refusal) = check_cluster(&shared.host(), hello.cluster) {
            return refuse(connection, refusal);
        }
        match hello.purpose.clone() {
            Purpose::Join { fence, log, member, synchronous, offer, appliance } => {
                match agree(shared, &hello, fence, &log) {
                    Ok(agreed) => {
                        let joining =
                            Joining { member, synchronous, appliance, offer, replayed: log.may_send_until, agreed };
                        join(shared, &hello, joining, connection);
                    }
                    Err(refusal) => refuse(connection, refusal),
                }
            }
            Purpose::Consult { term, binding } => {
                let reply = consult(shared, &hello, term, binding)
                    .map_or_else(Reply::Refused, |log| Reply::Log { node: shared.who.node, log });
                answer(connection, shared.who.term, &reply);
            }
            Purpose::Identify => answer(connection, shared.who.term, &Reply::Cluster(shared.who.cluster)),
            // The endpoint answers before it gets here.
            Purpose::Checkpoint { .. } => answer(connection, shared.who.term, &Reply::NoCheckpoint),
            Purpose::Announce { term, .. } => {
                let reply = hear(shared, &hello, term).map_or_else(Reply::Refused, |()| Reply::Heard);
                answer(connection, shared.who.term, &reply);
            }
            Purpose::Fetch { term, log } => {
                if let Err(refusal) = hear(shared, &hello, term) {
                    return refuse(connection, refusal);
                }
                // Fenced by now, but its log may be the most advanced.
                let host = Host { term, end: durable(shared), ..shared.host() };
                let read = |at, into: &mut [u8]| shared.source.read(at, into);
                serve_log(connection, &host, shared.config.partition, &hello, &log, read);
            }
        }
    }
}

fn durable(shared: &Shared) -> Stamp {
    shared.commit.reading().1
}

/// Somebody else speaks for a term; a later one ends this reign before it is answered.
fn hear(shared: &Shared, hello: &Hello, term: Term) -> Result<(), Refusal> {
    match shared.terms.hear(term, hello.node) {
        Ok(Verdict::Raised | Verdict::Current) => {
            shared.fence(term);
            Ok(())
        }
        Ok(Verdict::Refused { highest, holder }) => Err(Refusal::Fenced {
            asked: term,
            highest,
            holder,
            leader: (highest == shared.who.term).then(|| shared.who.address.clone()),
        }),
        Err(error) => Err(Refusal::Failed(error.to_string())),
    }
}

fn consult(shared: &Shared, hello: &Hello, term: Term, binding: bool) -> Result<LogState, Refusal> {
    if binding {
        hear(shared, hello, term)?;
    }
    let set = shared.terms.get().set;
    Ok(LogState { history: shared.history.clone(), end: durable(shared), set, synchronous: true })
}

/// Whether the standby may join, and from where.
fn agree(shared: &Shared, hello: &Hello, fence: Term, log: &Continue) -> Result<Agreed, Refusal> {
    if let Err(commit_rule::Refusal::Fenced { by }) = shared.commit.admit() {
        return Err(Refusal::Fenced { asked: shared.who.term, highest: by, holder: None, leader: None });
    }
    let agreed = consider(&shared.host(), hello.cluster, hello.node, fence, log);
    if let Err(Refusal::Fenced { highest, .. }) = &agreed {
        // The standby has heard of a later term than this one.
        shared.fence(*highest);
    }
    agreed
}

/// A standby that may join.
struct Joining {
    member: bool,
    synchronous: bool,
    appliance: bool,
    offer: Offer,
    /// It has room up to there, which tells how far it has replayed.
    replayed: Stamp,
    agreed: Agreed,
}

fn join(shared: &Arc<Shared>, hello: &Hello, joining: Joining, mut connection: Connection) {
    let Joining { member, synchronous, appliance, offer, replayed, mut agreed } = joining;
    let closer = match connection.set_patience(Some(shared.config.patience)).and_then(|()| connection.closer()) {
        Ok(closer) => closer,
        Err(error) => return refuse(connection, Refusal::Failed(error.to_string())),
    };
    let fabric = &shared.config.fabric;
    let side = match Side::new(offer.kind(), fabric.config.clone(), None) {
        Ok(side) => side,
        Err(error) => return refuse(connection, Refusal::Failed(error.to_string())),
    };
    agreed.welcome.offer = Some(side.offer().clone());
    let now = shared.clock.now();
    // No room before the standby has said so: it may have to cut its log first, and what is written there is in its memory at once.
    let flow = Flow::new(shared.config.flow, agreed.welcome.cut_at, agreed.welcome.cut_at, now);
    let shipper = Arc::new(Shipper::new(hello.node, member, appliance, flow, closer));
    shared.met(hello.node, &hello.address);
    shared.came(&shipper, Event::Joined { standby: hello.node, persisted: agreed.persisted, synchronous });
    shipper.replayed.store(replayed.min(agreed.welcome.cut_at).0, Ordering::Relaxed);
    // The standby is counted before it is told so.
    let welcome = wire::encode_first(&Reply::Welcome(agreed.welcome));
    if let Err(error) = connection.sender().send(Kind::Reply as u8, shared.who.term, &welcome) {
        return shared.lost(&shipper, error.to_string());
    }
    let (sender, receiver) = match side.connect(&offer, connection, fabric.limit.clone(), shared.config.patience) {
        Ok(halves) => halves,
        Err(error) => return shared.lost(&shipper, error.to_string()),
    };
    shipper.begin(sender);
    let short = hello.node.0 >> 48;
    let (ships, acks) = (Arc::clone(&shipper), Arc::clone(&shipper));
    let spawned = shared
        .spawn(format!("ship-{short:04x}"), move |shared| ship::run(&shared, &ships))
        .and_then(|()| shared.spawn(format!("ack-{short:04x}"), move |shared| ack::run(&shared, &acks, receiver)));
    if let Err(error) = spawned {
        shared.lost(&shipper, error.to_string());
    }
    if shared.stopping() {
        shipper.end();
    }
}
