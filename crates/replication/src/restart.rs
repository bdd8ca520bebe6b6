//! Restart of a primary that has to ask before it reigns again: it waits as a standby that follows nobody, and takes over
//! ([`crate::takeover`]) as soon as enough others answer. Those who would follow it knock at its door meanwhile, and so it learns where to ask.

use std::collections::BTreeMap;

use freshet_base::{
    NodeId, Term,
    sync::{Arc, Mutex},
};
use freshet_fabric::tcp::Connection;

use crate::{
    endpoint::Service,
    wire::{Hello, Peer, Purpose},
};

/// Answers as another service does, and remembers who wanted to join, and who said that he reigns.
pub struct Threshold {
    inner: Arc<dyn Service>,
    heard: Mutex<Heard>,
}

#[derive(Default)]
struct Heard {
    knocked: BTreeMap<NodeId, String>,
    reigns: Option<(Term, NodeId)>,
}

impl Threshold {
    /// In front of `inner`.
    pub fn new(inner: Arc<dyn Service>) -> Self {
        Self { inner, heard: Mutex::default() }
    }

    /// Who wanted to join, and where to reach them.
    pub fn knocked(&self) -> Vec<Peer> {
        let heard = self.heard.lock().expect("no code panics under this mutex");
        let peer = |(node, address): (&NodeId, &String)| Peer { node: Some(*node), address: address.clone() };
        heard.knocked.iter().map(peer).collect()
    }

    /// Who has announced a reign, in the latest term.
    pub fn reigns(&self) -> Option<(Term, NodeId)> {
        self.heard.lock().expect("no code panics under this mutex").reigns
    }
}

impl Service for Threshold {
    fn serve(&self, hello: Hello, connection: Connection) {
        {
            let mut heard = self.heard.lock().expect("no code panics under this mutex");
            match &hello.purpose {
                Purpose::Join { .. } if !hello.address.is_empty() => {
                    heard.knocked.insert(hello.node, hello.address.clone());
                }
                Purpose::Announce { term, .. } => heard.reigns = heard.reigns.max(Some((*term, hello.node))),
                _ => {}
            }
        }
        self.inner.serve(hello, connection);
    }
}
