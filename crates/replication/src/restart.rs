//! Restart of a node that led before. If it has to ask before it leads again, it waits as a
//! standby that follows no other node, and takes over ([`crate::promotion`]) as soon as enough
//! others answer and none of them lives under another term. While it waits, nodes that would
//! follow it knock at its door, and so it learns where to ask. If it need not, it asks all the same
//! ([`ask_others`]): its disk may have been set back, which it cannot know by itself.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use freshet_base::{
    NodeId,
    sync::{Arc, Mutex},
};
use freshet_cluster::{promotion::Answer, term::Living};
use freshet_fabric::tcp::Connection;
use freshet_membership::Credentials;

use crate::{
    endpoint::{CallError, Service},
    promotion::{Asked, ask_all},
    register::ask_peer,
    terms::Terms,
    wire::{Hello, Peer, Purpose, Refusal, Reply},
};

/// What other nodes say to a node that starts.
#[derive(Debug, Default)]
pub struct Others {
    /// Which node leads, as one of them says, and where that node can be reached.
    pub leads: Option<(Living, Option<String>)>,
    /// That node says so itself. Otherwise it may be gone, and may never have led: it has said that
    /// it was about to.
    pub itself: bool,
    /// What each that answered has said, but for those that name another term.
    pub answers: Vec<(NodeId, Answer)>,
    /// How many have not answered.
    pub silent: u32,
}

impl Others {
    /// What a node has said that was asked at `at`, but its log. Gives who leads, if it names one:
    /// which node, whether that is itself, and where it is. Refusals that do not say whose they are
    /// are noted for `me`, who asks.
    fn note(
        &mut self,
        me: NodeId,
        refusal: Option<Refusal>,
        at: &Peer,
        is_waited_for: bool,
    ) -> Option<(Living, bool, Option<String>)> {
        match refusal {
            Some(Refusal::LedBy { node, term, primary }) => {
                let itself = at.node == Some(node) || primary.as_ref() == Some(&at.address);
                return Some((Living { term, node }, itself, primary));
            }
            Some(Refusal::NoVote { node, testimony, .. }) => self.answers.push((node, Answer::NoVote(*testimony))),
            Some(Refusal::Fenced { highest, holder, .. }) => {
                self.answers.push((me, Answer::Higher { highest, holder }));
            }
            // An address of this node's own.
            Some(Refusal::Myself { .. }) => {}
            _ => self.silent += u32::from(is_waited_for),
        }
        None
    }
}

/// Asks the nodes at `addresses`, and whom those know, which of them leads, and what they hold, on
/// behalf of `node`, a node that was a primary before, or followed one: whose disk was set back may
/// know too few. Blocks for `patience` at most if a node is silent, and as long again for those
/// that others have spoken of. No node promises anything.
pub fn ask_others(
    node: NodeId,
    credentials: &Credentials,
    terms: &Terms,
    addresses: &[String],
    patience: Duration,
) -> Others {
    let state = terms.get();
    let latest = state.fence.highest();
    let purpose =
        Purpose::Consult { term: latest, binding: false, gives_way: Some(latest), handed: None, stands: None };
    let hello = Hello { cluster: state.cluster, node, address: String::new(), purpose };
    let mut asked = Asked::known(addresses.iter().cloned().map(Peer::at).collect());
    let (mut others, mut leads, mut have_answered) = (Others::default(), Vec::new(), BTreeSet::new());
    let (mut from, register) = (0, terms.register());
    let mut witness = register.map(|register| (true, register.peer()));
    loop {
        let mut next: Vec<(bool, Peer)> = asked.peers().skip(from).map(|(known, peer)| (known, peer.clone())).collect();
        from += next.len();
        next.extend(witness.take());
        if next.is_empty() {
            break;
        }
        let ask =
            |(_, peer): &(bool, Peer)| ask_peer(register.map(Arc::as_ref), credentials, peer, &hello, latest, patience);
        for ((is_waited_for, asked_at), reply) in ask_all(next.into_iter(), ask) {
            let refusal = match reply {
                Ok(Reply::Log { node: other, log, peers }) => {
                    if have_answered.insert(other) {
                        others.answers.push((other, Answer::Log(log)));
                    }
                    asked.learn(&peers, |peer| peer.node == Some(node));
                    continue;
                }
                Err(CallError::Refused { refusal, .. }) => {
                    terms.refused(node, &refusal);
                    Some(refusal)
                }
                _ => None,
            };
            leads.extend(others.note(node, refusal, &asked_at, is_waited_for));
        }
    }
    let leads = leads.into_iter().max_by_key(|(living, itself, primary)| (living.term, *itself, primary.is_some()));
    if let Some((living, itself, primary)) = leads {
        (others.leads, others.itself) = (Some((living, primary)), itself);
    }
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
