//! Answers those who connect to a standby.

use freshet_base::{Term, sync::Arc};
use freshet_cluster::handshake::Sender;
use freshet_fabric::tcp::Connection;

use super::{
    Shared,
    introduce::{Follows, announced, observe_term},
    relay, serve_originals,
};
use crate::{
    endpoint::{Service, answer, refuse},
    promotion::{consulted, serve_log},
    wire::{Hello, Purpose, Refusal, Reply, Wait, check_hello},
};

pub(super) struct StandbyService(pub Arc<Shared>);

impl Service for StandbyService {
    fn serve(&self, hello: Hello, connection: Connection) {
        let shared = &self.0;
        let state = shared.terms.get();
        if let Err(refusal) = check_hello(shared.node, state.cluster, &hello) {
            return refuse(connection, refusal);
        }
        match hello.purpose.clone() {
            Purpose::Join(join) => relay::serve(shared, &hello, join, connection),
            Purpose::Consult { term, binding, comes_back } => {
                let reply = consulted(&**shared, &hello, term, binding, comes_back);
                answer(connection, term, &reply.unwrap_or_else(Reply::Refused));
            }
            Purpose::Identify => match state.cluster {
                Some(cluster) => answer(connection, Term(0), &Reply::Cluster(cluster)),
                None => refuse(connection, Refusal::NotPrimary { node: shared.node, primary: None }),
            },
            // The endpoint answers before it gets here.
            Purpose::Enrol(_) | Purpose::Passage { .. } => {
                refuse(connection, Refusal::Violation("this is not a question to a role".into()));
            }
            // Of those below a relay, the primary knows nothing.
            Purpose::BeginAgain { .. } => {
                refuse(connection, Refusal::NotPrimary { node: shared.node, primary: shared.primary_address() });
            }
            Purpose::Checkpoint { .. } => answer(connection, Term(0), &Reply::NoCheckpoint),
            Purpose::Announce { claim, address } => {
                let term = claim.term_entry.term;
                let reply = match observe_term(&**shared, &hello, term) {
                    // It was told to follow somebody who may be a relay, and will know in a moment.
                    Ok(()) if !shared.is_counted() && shared.follow.is_untried() => {
                        Reply::Refused(Refusal::Later { node: shared.node, why: Wait::Lost })
                    }
                    Ok(()) => {
                        announced(&**shared, &hello, term, address);
                        Reply::Noted
                    }
                    Err(refusal) => Reply::Refused(refusal),
                };
                answer(connection, term, &reply);
            }
            Purpose::Originals => serve_originals(connection, |block| {
                block.read(&shared.log, shared.log.received().get(), || shared.lacks_block(block.at))
            }),
            Purpose::Fetch { term, log } => {
                let Some(cluster) = state.cluster else {
                    return refuse(connection, Refusal::NotPrimary { node: shared.node, primary: None });
                };
                if let Err(refusal) = observe_term(&**shared, &hello, term) {
                    return refuse(connection, refusal);
                }
                let sender = Sender {
                    cluster,
                    node: shared.node,
                    above: Vec::new(),
                    term,
                    history: shared.terms.get().history,
                    end: shared.log.durable(),
                    needed_capacity: 0,
                    keep_alive_ms: 1000,
                };
                let read = |at, into: &mut [u8]| shared.log.read(at, into);
                serve_log(connection, &sender, 64 << 10, &hello, &log, read);
            }
        }
    }
}
