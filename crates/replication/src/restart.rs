//! Restart of a node that reigned before. If it has to ask before it reigns again, it waits as a
//! standby that follows no other node, and takes over ([`crate::takeover`]) as soon as enough
//! others answer and none of them lives under another reign. While it waits, nodes that would
//! follow it knock at its door, and so it learns where to ask. If it need not, it asks all the same
//! ([`ask_others`]): its disk may have been set back, which it cannot know by itself.

use std::{collections::BTreeMap, time::Duration};

use freshet_base::{
    NodeId,
    sync::{Arc, Mutex},
};
use freshet_cluster::{take_over::Answer, term::Living};
use freshet_fabric::tcp::Connection;
use freshet_membership::Credentials;

use crate::{
    endpoint::{CallError, Service, call},
    takeover::ask_all,
    terms::Terms,
    wire::{Hello, Peer, Purpose, Refusal, Reply},
};

/// What other nodes say to a node that starts.
#[derive(Debug, Default)]
pub struct Others {
    /// Which node reigns, as one of them says, and where that node can be reached.
    pub reigns: Option<(Living, Option<String>)>,
    /// What each that answered has said, but for those that name another reign.
    pub answers: Vec<(NodeId, Answer)>,
    /// How many have not answered.
    pub silent: u32,
}

/// Asks the nodes at `addresses` which of them reigns, and what they hold, on behalf of `node`, a
/// node that was a primary before, or followed one. Blocks for `patience` at most if a node is
/// silent. No node promises anything.
pub fn ask_others(
    node: NodeId,
    credentials: &Credentials,
    terms: &Terms,
    addresses: &[String],
    patience: Duration,
) -> Others {
    let state = terms.get();
    let heard = state.fence.highest();
    let purpose = Purpose::Consult { term: heard, binding: false, comes_back: Some(heard) };
    let hello = Hello { cluster: state.cluster, node, address: String::new(), purpose };
    let replies = ask_all(addresses.iter(), |address| call(credentials, address, &hello, heard, patience));
    let mut others = Others::default();
    let mut reigns = Vec::new();
    for (_, reply) in replies {
        let refusal = match reply {
            Ok((Reply::Log { node: other, log, .. }, _)) => {
                others.answers.push((other, Answer::Log(log)));
                continue;
            }
            Err(CallError::Refused { refusal, .. }) => refusal,
            _ => {
                others.silent += 1;
                continue;
            }
        };
        match refusal {
            Refusal::Reigned { node, term, primary } => reigns.push((Living { term, node }, primary)),
            Refusal::NoVoice { node, incarnation, set, .. } => {
                let set = set.map(|set| *set);
                others.answers.push((node, Answer::NoVoice { incarnation, set }));
            }
            Refusal::Fenced { highest, .. } => others.answers.push((node, Answer::Higher(highest))),
            // An address of this node's own.
            Refusal::Myself { .. } => {}
            _ => others.silent += 1,
        }
    }
    others.reigns = reigns.into_iter().max_by_key(|(reign, primary)| (reign.term, primary.is_some()));
    others
}

/// Answers as another service does, and remembers who wanted to join.
pub struct Threshold {
    inner: Arc<dyn Service>,
    knocked: Mutex<BTreeMap<NodeId, String>>,
}

impl Threshold {
    /// In front of `inner`.
    pub fn new(inner: Arc<dyn Service>) -> Self {
        Self { inner, knocked: Mutex::default() }
    }

    /// Who wanted to join, and where to reach them.
    pub fn knocked(&self) -> Vec<Peer> {
        let knocked = self.knocked.lock().expect("no code panics under this mutex");
        let peer =
            |(node, address): (&NodeId, &String)| Peer { node: Some(*node), address: address.clone(), serves: true };
        knocked.iter().map(peer).collect()
    }
}

impl Service for Threshold {
    fn serve(&self, hello: Hello, connection: Connection) {
        if matches!(hello.purpose, Purpose::Join(_)) && !hello.address.is_empty() {
            let mut knocked = self.knocked.lock().expect("no code panics under this mutex");
            knocked.insert(hello.node, hello.address.clone());
        }
        self.inner.serve(hello, connection);
    }
}
