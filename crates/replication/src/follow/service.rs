//! Answers those who connect to a node that follows another.

use freshet_base::{Term, sync::Arc};
use freshet_cluster::{term::Living, upstream::Announced};
use freshet_fabric::tcp::Connection;

use super::{Shared, Store, promise};
use crate::{
    endpoint::{Service, answer, refuse},
    maintenance::Order,
    members::{self, Voter, reach},
    originals::serve_originals,
    promotion::consulted,
    wire::{Hello, Purpose, Refusal, Reply, Wait, check_hello},
};

pub(crate) struct FollowService<S>(pub Arc<Shared<S>>);

impl<S: Store> Service for FollowService<S> {
    fn serve(&self, hello: Hello, connection: Connection) {
        let shared = &self.0;
        if shared.stopping() {
            return refuse(connection, shared.not_primary());
        }
        let cluster = shared.terms.get().cluster;
        let belongs = shared.terms.check_belongs(hello.node);
        if let Err(refusal) = belongs.and_then(|()| check_hello(shared.node(), cluster, &hello)) {
            return refuse(connection, refusal);
        }
        match hello.purpose.clone() {
            Purpose::Join(join) => S::join(shared, &hello, join, connection),
            Purpose::Consult { term, binding, gives_way, stands, .. } => {
                let reply = consulted(shared, &hello, term, binding, (gives_way, stands));
                answer(connection, term, &reply.unwrap_or_else(Reply::Refused));
            }
            Purpose::HandOver(hand_over) => match shared.is_handed(hand_over) {
                Ok(()) => answer(connection, hand_over.term, &Reply::Noted),
                Err(refusal) => refuse(connection, refusal),
            },
            Purpose::Identify => match cluster {
                Some(cluster) => answer(connection, Term(0), &Reply::Cluster(cluster)),
                None => refuse(connection, shared.not_primary()),
            },
            // The endpoint answers before it gets here.
            Purpose::Enrol(_)
            | Purpose::Renew
            | Purpose::Passage { .. }
            | Purpose::Session { .. }
            | Purpose::Cancel { .. } => {
                refuse(connection, Refusal::Violation("this is not a question to a role".into()));
            }
            // Of those below a relay, the primary knows nothing; and no primary asks a node with
            // data.
            Purpose::BeginAgain { .. } | Purpose::Witness | Purpose::Ask(_) => refuse(connection, shared.not_primary()),
            Purpose::Checkpoint { .. } => answer(connection, Term(0), &Reply::NoCheckpoint),
            Purpose::Announce { claim, address } => {
                let term = claim.term_entry.term;
                answer(connection, term, &announced(shared, &hello, term, &address));
            }
            Purpose::Members { .. }
            | Purpose::Reach(_)
            | Purpose::Maintenance(_)
            | Purpose::Restart
            | Purpose::Stop => {
                answer(connection, Term(0), &of_cluster(shared, &hello));
            }
            Purpose::Originals => serve_originals(connection, |block| S::original(shared, block)),
            Purpose::Fetch { term, log } => match promise(shared, &hello, term) {
                Ok(promised) => S::serve_log(shared, &hello, promised, &log, connection),
                Err(refusal) => refuse(connection, refusal),
            },
        }
    }
}

/// Answers a primary that announces itself.
fn announced<S: Store>(shared: &Shared<S>, hello: &Hello, term: Term, address: &str) -> Reply {
    match promise(shared, hello, term) {
        Ok(_) => match shared.follow.announced(hello.node, address) {
            Announced::Later => Reply::Refused(Refusal::Later { node: shared.node(), why: Wait::Lost }),
            Announced::Noted => {
                shared.observe_primary(Living { term, node: hello.node }, address);
                Reply::Noted
            }
        },
        Err(refusal) => Reply::Refused(refusal),
    }
}

/// Which voters this node does not reach, if it is asked by the primary whose log flows here: no
/// other has it call anybody.
fn reach<S: Store>(shared: &Shared<S>, hello: &Hello, voters: &[Voter]) -> Result<Reply, Refusal> {
    if shared.follow.following() != Some(hello.node) {
        return Err(shared.not_primary());
    }
    reach::check(voters)?;
    Ok(Reply::Reach(reach::unreached(&shared.who.credentials, voters, &shared.hello(Purpose::Identify))))
}

/// Answers who asks which nodes there are, or which of them are reached, speaks of maintenance, or
/// passes an operator's order on.
fn of_cluster<S: Store>(shared: &Shared<S>, hello: &Hello) -> Reply {
    match &hello.purpose {
        Purpose::Members { relays } => Reply::Members(Box::new(members::known(shared, *relays, None))),
        Purpose::Reach(voters) => reach(shared, hello, voters).unwrap_or_else(Reply::Refused),
        Purpose::Maintenance(notice) => {
            shared.observe_maintenance(*notice);
            Reply::Maintenance(shared.terms.maintained().notice())
        }
        Purpose::Restart => shared.terms.maintained().take(Order::Restart),
        Purpose::Stop => shared.terms.maintained().take(Order::Stop),
        _ => unreachable!("this is asked with those purposes only"),
    }
}
