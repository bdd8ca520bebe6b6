//! Restart of a node that reigned before. If it has to ask before it reigns again, it waits as a
//! standby that follows no other node, and takes over ([`crate::takeover`]) as soon as enough
//! others answer and none of them lives under another reign. While it waits, nodes that would
//! follow it knock at its door, and so it learns where to ask. If it need not, it looks around once
//! ([`who_reigns`]).

use std::{collections::BTreeMap, thread, time::Duration};

use freshet_base::{
    NodeId,
    sync::{Arc, Mutex},
};
use freshet_cluster::term::Living;
use freshet_fabric::tcp::Connection;
use freshet_membership::Credentials;

use crate::{
    endpoint::{CallError, Service, call},
    terms::Terms,
    wire::{Hello, Peer, Purpose, Refusal},
};

/// Which node reigns, as one of those at `addresses` says, and where that node can be reached.
/// Asked on behalf of `node`, a node that was a primary before, or followed one. Blocks for
/// `patience` at most if a node is silent. No node promises anything.
pub fn who_reigns(
    node: NodeId,
    credentials: &Credentials,
    terms: &Terms,
    addresses: &[String],
    patience: Duration,
) -> Option<(Living, Option<String>)> {
    let state = terms.get();
    let heard = state.fence.highest();
    let purpose = Purpose::Consult { term: heard, binding: false, comes_back: Some(heard) };
    let hello = Hello { cluster: state.cluster, node, address: String::new(), purpose };
    let ask = |address: &str| match call(credentials, address, &hello, heard, patience) {
        Err(CallError::Refused { refusal: Refusal::Reigned { node, term, primary }, .. }) => {
            Some((Living { term, node }, primary))
        }
        _ => None,
    };
    thread::scope(|scope| {
        let asked: Vec<_> = addresses.iter().map(|address| scope.spawn(|| ask(address))).collect();
        let answers = asked.into_iter().filter_map(|thread| thread.join().expect("asking does not panic"));
        answers.max_by_key(|(reign, primary)| (reign.term, primary.is_some()))
    })
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
