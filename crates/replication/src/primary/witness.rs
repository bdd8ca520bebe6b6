//! Witness: asks the cluster's witness for its word at intervals
//! ([`freshet_cluster::witness`]).

use std::{
    collections::BTreeSet,
    time::{Duration, Instant},
};

use freshet_base::{
    NodeId,
    sync::{Arc, AtomicU64, Mutex, MutexGuard, Ordering},
};
use freshet_cluster::{
    Moment,
    commit_rule::{CommitRule, Event, Leaves, Member, Place},
    term::Living,
    witness::{Ask, Granted},
};

use freshet_fabric::tcp::Connection;

use super::{CommitStage, Shared, announce};
use crate::{
    bell::Bell,
    endpoint::{CallError, call, read_reply},
    feed::Feeder,
    register::RegisterWitness,
    status::WitnessStatus,
    wire::{self, Hello, Kind, PROTOCOL, Purpose, Refusal, Reply},
};

/// It has this long to answer.
const PATIENCE: Duration = Duration::from_secs(1);
/// The first pause after it has not, and the longest.
const PAUSE: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(1));

/// What wakes the thread that asks.
#[derive(Default)]
pub(super) struct Asking {
    /// A witness that has made itself known in this term.
    introduced: Mutex<Option<NodeId>>,
    /// The newest version of the protocol that it speaks; zero if it has not answered.
    protocol: AtomicU64,
    /// Since when it has answered on the present connection.
    answers: Mutex<Option<Moment>>,
    bell: Bell,
}

impl Asking {
    fn introduced(&self) -> MutexGuard<'_, Option<NodeId>> {
        self.introduced.lock().expect("no code panics under this mutex")
    }

    fn answers(&self) -> MutexGuard<'_, Option<Moment>> {
        self.answers.lock().expect("no code panics under this mutex")
    }

    /// There is something to ask, or the term is over.
    pub fn ring(&self) {
        self.bell.ring();
    }
}

/// The witness thread.
pub(super) fn run(shared: &Arc<Shared>) {
    let (mut pause, mut reported, mut turn) = (PAUSE.0, BTreeSet::new(), 0);
    while !shared.stopping() && !shared.is_fenced() {
        if let Some(why) = shared.obstacle().filter(|why| reported.insert(why.clone())) {
            tracing::warn!(why, "what stands in the place of a witness is not asked");
        }
        let Some((node, addresses)) = shared.asked_witness() else {
            shared.witness.bell.sleep(None);
            continue;
        };
        // Of a witness that it has never met, it may know addresses alone. Each is tried in turn.
        let Some(address) = addresses.get(turn % addresses.len().max(1)) else {
            shared.witness.bell.sleep(Some(Instant::now() + PAUSE.1));
            continue;
        };
        turn += 1;
        let Err(cause) = ask_again_and_again(shared, node, address, &mut pause);
        if pause == PAUSE.0 {
            reported.clear();
        }
        *shared.witness.answers() = None;
        shared.apply(Event::Left { standby: node });
        if let CallError::Refused { refusal: Refusal::Fenced { highest, holder, primary, .. }, .. } = cause {
            announce::fenced(shared, address, highest, holder, primary);
        } else if shared.is_missed(node) && reported.insert(cause.to_string()) {
            tracing::warn!(witness = %node, address, %cause, "the witness does not answer");
        }
        shared.witness.bell.sleep(Some(Instant::now() + pause));
        pause = (pause * 2).min(PAUSE.1);
    }
}

/// How the witness is asked.
enum Line<'s> {
    /// A process, on one connection.
    Process { address: &'s str, connection: Option<Box<Connection>> },
    /// The register in the place of one.
    Register(&'s RegisterWitness),
}

impl Line<'_> {
    /// Asks once.
    fn ask(&mut self, shared: &Shared, ask: Ask) -> Result<Granted, CallError> {
        let (address, reply) = match self {
            Self::Register(register) => {
                return register.ask(&ask, &shared.who.address, shared.terms.maintained(), PATIENCE);
            }
            Self::Process { address, connection: Some(connection) } => {
                connection.sender().send(Kind::Ask as u8, shared.who.term, &wire::encode(&ask))?;
                (*address, read_reply(connection, address)?)
            }
            Self::Process { address, connection } => {
                let hello = shared.hello(Purpose::Ask(ask));
                let called = call(&shared.who.credentials, address, &hello, shared.who.term, PATIENCE)?;
                let newest = called.1.spoken().map_or(0, |spoken| spoken.newest);
                shared.witness.protocol.store(newest.into(), Ordering::SeqCst);
                *connection = Some(Box::new(called.1));
                (*address, called.0)
            }
        };
        match reply {
            Reply::Granted(granted) => Ok(granted),
            _ => Err(CallError::Unexpected { address: address.to_owned() }),
        }
    }
}

/// Returns when the witness does not answer, or is to be asked no more.
fn ask_again_and_again(
    shared: &Shared,
    node: NodeId,
    address: &str,
    pause: &mut Duration,
) -> Result<std::convert::Infallible, CallError> {
    let every = shared.config.feed.flow.keep_alive;
    let over = || CallError::Unexpected { address: address.to_owned() };
    let mut line = match shared.register_of(node) {
        Some(register) => Line::Register(register),
        None => Line::Process { address, connection: None },
    };
    let mut noted = None;
    loop {
        let ask = Ask {
            cluster: shared.who.cluster,
            living: Living { term: shared.who.term, node: shared.who.node },
            sent: shared.commit.now(),
            lease: shared.config.rule.lease.unwrap_or_default(),
            set: shared.terms.get().set.filter(|set| Some(set.name()) != noted),
        };
        let Granted { node: witness, incarnation, noted: known, sent: observed } = line.ask(shared, ask)?;
        if witness != node {
            // It was started in the place of one that is lost.
            let hello = shared.hello(Purpose::Witness);
            shared
                .witness_comes(&Hello { node: witness, address: address.to_owned(), ..hello })
                .map_err(|refusal| CallError::Refused { address: address.to_owned(), refusal })?;
            return Err(over());
        }
        (noted, *pause) = (known, PAUSE.0);
        shared.witness.answers().get_or_insert(shared.commit.now());
        if let Line::Process { .. } = line {
            Feeder::met(shared, node, address, false);
        }
        shared.apply(Event::Witnessed { witness, incarnation, noted, observed });
        if shared.terms.get().set.is_none_or(|set| Some(set.name()) == noted) {
            shared.witness.bell.sleep(Some(Instant::now() + every));
        }
        let stays = shared.asked_witness().is_some_and(|(known, at)| known == node && at == [address]);
        if shared.stopping() || shared.is_fenced() || shared.is_stuck() || !stays {
            return Err(over());
        }
    }
}

impl CommitStage {
    /// The cluster's witness, as far as that is known.
    pub(crate) fn witness(&self) -> Option<NodeId> {
        self.rule(|rule| rule.roster().and_then(|roster| roster.witness))
    }

    /// [`CommitRule::witness_to_ask`].
    pub(crate) fn witness_to_ask(&self) -> Option<NodeId> {
        self.rule(|rule| rule.witness_to_ask())
    }

    /// How the witness is, if it has been asked.
    pub(crate) fn witness_place(&self) -> Option<(NodeId, Member)> {
        let place =
            |rule: &CommitRule| rule.members().find(|(_, member)| member.witness).map(|(node, member)| (node, *member));
        self.rule(place)
    }
}

impl Shared {
    /// The witness that this primary asks, and where it is reached, or may be; nowhere while
    /// nothing becomes durable here: then another node is to lead.
    fn asked_witness(&self) -> Option<(NodeId, Vec<String>)> {
        let register = self.terms.register().map(|register| register.node());
        let register = register.filter(|node| !self.commit.has_removed(*node));
        let node = self.commit.witness_to_ask().or(register).or(*self.witness.introduced())?;
        let unnamed = || self.known().into_iter().filter(|peer| peer.node.is_none()).map(|peer| peer.address);
        let addresses = self.reached_at(node).map_or_else(|| unnamed().collect(), |address| vec![address]);
        Some((node, if self.is_stuck() { Vec::new() } else { addresses }))
    }

    /// Whether the witness, which does not answer, should: it has been met, and this term lasts.
    fn is_missed(&self, witness: NodeId) -> bool {
        !self.stopping() && !self.is_fenced() && self.reached_at(witness).is_some()
    }

    /// The register that stands for this witness.
    fn register_of(&self, node: NodeId) -> Option<&RegisterWitness> {
        self.terms.register().map(Arc::as_ref).filter(|register| register.node() == node)
    }

    /// Why the register that is to stand in the witness's place does not.
    fn obstacle(&self) -> Option<String> {
        let (node, address) = self.terms.register().map(|register| (register.node(), register.address()))?;
        if self.commit.has_removed(node) {
            return Some(format!(
                "the witness {node} at {address} was removed from the cluster: take the setting witness.etcd away, or \
                 give witness.etcd another path"
            ));
        }
        let other = self.commit.witness().filter(|other| *other != node)?;
        Some(format!(
            "this cluster has the witness {other} still: remove it (freshet remove {other}; with --gone if it will \
             never run again), then {address} takes its place"
        ))
    }

    /// Where `node` is reached, as it has said last, or was before this start.
    pub(super) fn reached_at(&self, node: NodeId) -> Option<String> {
        if let Some(register) = self.register_of(node) {
            return Some(register.address().to_owned());
        }
        let known = self.known().into_iter().find(|peer| peer.node == Some(node)).map(|peer| peer.address);
        known.or_else(|| self.address_of(node))
    }

    /// How it is, as this primary sees it.
    pub(super) fn witness_status(&self) -> Option<WitnessStatus> {
        let place = self.commit.witness_place();
        let node = self.commit.witness().or(place.map(|(node, _)| node))?;
        let (member, address) = (place.map(|(_, member)| member), self.reached_at(node).unwrap_or_default());
        let connected = member.is_some_and(|member| member.connected);
        let votes = member.is_some_and(|member| member.place == Place::InSync);
        let since = member.map(|member| self.commit.now().since(member.since));
        let connected_for = self.witness.answers().map(|since| self.commit.now().since(since));
        let protocol = match self.witness.protocol.load(Ordering::SeqCst) {
            // A register speaks none; this program writes there.
            _ if self.register_of(node).is_some() => Some(PROTOCOL),
            newest => u16::try_from(newest).ok().filter(|newest| *newest > 0),
        };
        Some(WitnessStatus { node, address, connected, votes, since, connected_for, protocol })
    }

    /// A witness makes itself known.
    ///
    /// # Errors
    /// [`Refusal`], to be sent to it.
    pub(super) fn witness_comes(&self, hello: &Hello) -> Result<(), Refusal> {
        if self.is_fenced() {
            return Err(Refusal::NotPrimary { node: self.who.node, primary: None });
        }
        let safety = self.commit.wanted_level();
        if !self.commit.takes_witness() {
            return Err(Refusal::Failed(format!(
                "at the level {safety} a witness has no vote, since commits count nodes with data: it is of use at the \
                 levels majority, and 2-safe without least-in-sync"
            )));
        }
        if self.commit.voters().contains(&hello.node) || hello.address.is_empty() {
            return Err(Refusal::Violation("a node with data is no witness, and a witness has an address".into()));
        }
        if let Some(other) = self.commit.witness().filter(|other| *other != hello.node) {
            let at = self.reached_at(other).unwrap_or_default();
            if at != hello.address {
                return Err(Refusal::Failed(format!(
                    "this cluster has the witness {other} at {at}: remove that one first (freshet remove {other}; with \
                     --gone if it will never run again), or start this one at its address"
                )));
            }
            self.commit.leave(other, Leaves::Replaced).expect("who is replaced may always leave");
        }
        *self.witness.introduced() = Some(hello.node);
        Feeder::met(self, hello.node, &hello.address, false);
        self.witness.ring();
        Ok(())
    }
}
