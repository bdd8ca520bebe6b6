//! Answers those who connect to a mirror.

use freshet_base::{Term, sync::Arc};
use freshet_fabric::tcp::Connection;

use super::Shared;
use crate::{
    endpoint::{Service, answer, refuse},
    promotion::consulted,
    standby::{AskedBlock, Follows, announced, observe_term, serve_originals},
    wire::{Hello, Purpose, Refusal, Reply, check_hello},
};

pub(super) struct MirrorService(pub Arc<Shared>);

impl Service for MirrorService {
    fn serve(&self, hello: Hello, connection: Connection) {
        let shared = &self.0;
        let cluster = shared.terms.get().cluster;
        // Whom this node only tries to reach need not be one.
        let known = || shared.follow().upstream().filter(|_| shared.follow().following().is_some());
        let not_primary = || Refusal::NotPrimary { node: shared.node(), primary: known() };
        if shared.stopping() {
            return refuse(connection, not_primary());
        }
        if let Err(refusal) = check_hello(shared.node(), cluster, &hello) {
            return refuse(connection, refusal);
        }
        match hello.purpose.clone() {
            Purpose::Join(_) | Purpose::BeginAgain { .. } => refuse(connection, not_primary()),
            Purpose::Consult { term, binding, comes_back } => {
                let reply = consulted(&**shared, &hello, term, binding, comes_back);
                answer(connection, term, &reply.unwrap_or_else(Reply::Refused));
            }
            Purpose::Identify => match cluster {
                Some(cluster) => answer(connection, Term(0), &Reply::Cluster(cluster)),
                None => refuse(connection, not_primary()),
            },
            // The endpoint answers before it gets here.
            Purpose::Enrol(_) | Purpose::Passage { .. } => {
                refuse(connection, Refusal::Violation("this is not a question to a role".into()));
            }
            Purpose::Checkpoint { .. } => answer(connection, Term(0), &Reply::NoCheckpoint),
            Purpose::Announce { claim, address } => {
                let term = claim.term_entry.term;
                let observed = observe_term(&**shared, &hello, term);
                let observed = observed.map(|()| announced(&**shared, &hello, term, address));
                answer(connection, term, &observed.map_or_else(Reply::Refused, |()| Reply::Noted));
            }
            Purpose::Originals => serve_originals(connection, |block| Err(shared.instead_of(block))),
            Purpose::Fetch { .. } => refuse(connection, Refusal::NoLog { node: shared.node() }),
        }
    }
}

impl Shared {
    /// What is here in the place of a block: rows, which may be of a log that has it. Then the
    /// block is not lost, and who lacks it does not give up.
    fn instead_of(&self, block: AskedBlock) -> Refusal {
        let state = self.state();
        let has = state.mirror_state.is_state()
            && state.mirror_state.end().0 >= block.at.0.saturating_add(block.length.into());
        let why = match has {
            true => {
                "a mirror keeps rows, and no log: it has what this transaction has written, and can be promoted; the \
                 transaction itself comes from a node that has the log"
            }
            false => "a mirror keeps rows, and no log",
        };
        Refusal::NoBlock { why: why.into(), comes: has }
    }
}
