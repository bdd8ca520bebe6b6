//! Witness: a node without data, which answers a primary that asks for its word, and candidates
//! ([`freshet_cluster::witness`]).
//!
//! It calls others only to make itself known when it starts, until a primary asks. One mutex is
//! held while anything is answered that rests on its terms, and these are durable by then.

use std::{
    io,
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use freshet_base::{
    NodeId, Term,
    sync::{Arc, AtomicBool, Mutex, MutexGuard, Ordering},
};
use freshet_cluster::{
    maintenance::Notice,
    promotion::Testimony,
    term::{Living, Refused},
    witness::{Ask, Consult, NoTestimony, Witness},
};
use freshet_fabric::tcp::Connection;
use freshet_membership::Credentials;

use crate::{
    bell::Bell,
    clock::Clock,
    endpoint::{CallError, Service, answer, call, refuse},
    maintenance::Order,
    terms::Terms,
    wire::{self, Hello, Kind, Peer, Purpose, Refusal, Reply, check_hello},
};

/// A primary has this long to answer.
const PATIENCE: Duration = Duration::from_secs(3);
/// A primary that asks nothing for so long has ended, or asks on another connection.
const IDLE: Duration = Duration::from_secs(5);
/// How often it makes itself known.
const AGAIN: Duration = Duration::from_millis(500);
/// Who says where the primary is, is believed this number of times, one after the other.
const HOPS: u32 = 4;

/// Which node is a witness.
#[derive(Clone, Debug)]
pub struct WitnessId {
    /// Itself.
    pub node: NodeId,
    /// The certificate that it shows to others.
    pub credentials: Credentials,
    /// Where other nodes reach it.
    pub address: String,
    /// Nodes that may lead, or know who does.
    pub known: Vec<String>,
}

struct Shared {
    who: WitnessId,
    terms: Terms,
    clock: Clock,
    machine: Mutex<Witness>,
    /// Where the primary is that has asked, or has announced itself, last.
    primary: Mutex<Option<(Living, String)>>,
    /// A primary has asked since it started.
    asked: AtomicBool,
    stopping: AtomicBool,
    bell: Bell,
}

/// A witness that runs.
pub struct RunningWitness {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl RunningWitness {
    /// Makes itself known to the nodes that it knows, until a primary asks. The endpoint's service
    /// is then to be set to [`RunningWitness::service`].
    ///
    /// # Errors
    /// What the system says when no thread can be started.
    pub fn start(who: WitnessId, terms: Terms) -> io::Result<Self> {
        let clock = Clock::start();
        let machine = Mutex::new(Witness::restarted(who.node, clock.now()));
        let (asked, stopping) = (AtomicBool::new(false), AtomicBool::new(false));
        let (primary, bell) = Default::default();
        let shared = Arc::new(Shared { who, terms, clock, machine, primary, asked, stopping, bell });
        let introduces = Arc::clone(&shared);
        let thread = thread::Builder::new().name("introduce".into()).spawn(move || introduces.introduce())?;
        Ok(Self { shared, thread: Some(thread) })
    }

    /// Answers those who connect to this node's endpoint.
    pub fn service(&self) -> Arc<dyn Service> {
        Arc::new(WitnessService(Arc::clone(&self.shared)))
    }

    /// What an operator wants of its process.
    pub fn ordered(&self) -> Option<Order> {
        self.shared.terms.maintained().given()
    }

    /// Whether a primary has asked since it started.
    pub fn was_asked(&self) -> bool {
        self.shared.asked.load(Ordering::SeqCst)
    }
}

impl Drop for RunningWitness {
    fn drop(&mut self) {
        self.shared.stopping.store(true, Ordering::SeqCst);
        self.shared.bell.ring();
        if let Some(thread) = self.thread.take() {
            // A panic there was reported already.
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn machine(&self) -> MutexGuard<'_, Witness> {
        self.machine.lock().expect("the machine panics only on a bug of its own")
    }

    fn primary(&self) -> MutexGuard<'_, Option<(Living, String)>> {
        self.primary.lock().expect("no code panics under this mutex")
    }

    fn stopping(&self) -> bool {
        self.stopping.load(Ordering::SeqCst)
    }

    /// A primary has asked, or announced itself: it is one of those that a restart looks for.
    fn observe_primary(&self, living: Living, address: &str) {
        let last = self.primary().replace((living, address.to_owned()));
        if last.is_none_or(|(_, before)| before != address) && !address.is_empty() {
            self.terms.remember_one(Peer { node: Some(living.node), address: address.to_owned(), serves: true });
        }
    }

    /// To those who have to ask another node.
    fn not_primary(&self) -> Refusal {
        let primary = self.primary().as_ref().map(|(_, address)| address.clone());
        Refusal::NotPrimary { node: self.who.node, primary }
    }

    /// The introduce thread.
    fn introduce(&self) {
        let mut reported = String::new();
        while !self.stopping() && !self.asked.load(Ordering::SeqCst) {
            let mut errors = Vec::new();
            for address in &self.who.known {
                match self.introduce_at(address) {
                    Ok(()) => break,
                    Err(cause) => errors.push(cause.to_string()),
                }
            }
            let errors = errors.join("; ");
            if !errors.is_empty() && errors != reported {
                tracing::warn!(cause = errors, "this witness has not found a primary that asks it; it tries again");
                reported = errors;
            }
            self.bell.sleep(Some(Instant::now() + AGAIN));
        }
    }

    /// Makes itself known to the primary that the node at `address` knows of.
    fn introduce_at(&self, address: &str) -> Result<(), CallError> {
        let mut address = address.to_owned();
        let cluster = self.terms.get().cluster;
        let WitnessId { node, ref credentials, address: ref own, .. } = self.who;
        let hello = Hello { cluster, node, address: own.clone(), purpose: Purpose::Witness };
        for hop in 1.. {
            match call(credentials, &address, &hello, self.terms.fence().highest(), PATIENCE) {
                Ok((Reply::Noted, _)) => return Ok(()),
                Ok(_) => return Err(CallError::Unexpected { address }),
                Err(CallError::Refused { refusal: Refusal::NotPrimary { primary: Some(primary), .. }, .. })
                    if hop < HOPS && primary != address =>
                {
                    address = primary;
                }
                Err(cause) => return Err(cause),
            }
        }
        unreachable!("the number of hops is bounded")
    }

    /// A primary asks. What the answer says is durable.
    fn granted(&self, hello: &Hello, ask: &Ask) -> Result<Reply, Refusal> {
        if ask.set.as_ref().is_some_and(|set| set.term > ask.living.term) {
            return Err(Refusal::Violation("a set is of a later term than its primary".into()));
        }
        let granted = self.terms.ask_witness(&mut self.machine(), ask, self.clock.now())?;
        self.observe_primary(ask.living, &hello.address);
        if !self.asked.swap(true, Ordering::SeqCst) {
            let (primary, address, term) = (hello.node, &hello.address, ask.living.term.0);
            tracing::info!(%primary, address, term, "a primary asks this witness");
            self.bell.ring();
        }
        Ok(Reply::Granted(granted))
    }

    /// The same again and again on one connection.
    fn serve_asks(&self, hello: &Hello, mut ask: Ask, mut connection: Connection) {
        loop {
            let (term, reply) = (ask.living.term, self.granted(hello, &ask));
            if let Err(cause @ Refusal::Failed(_)) = &reply {
                tracing::error!(%cause, "this witness cannot note what its primary asks, and has no vote for as long");
            }
            let over = reply.is_err() || self.stopping();
            let reply = wire::encode_first(&connection, &reply.unwrap_or_else(Reply::Refused));
            if connection.sender().send(Kind::Reply as u8, term, &reply).is_err() || over {
                break;
            }
            if connection.receiver().set_deadline(Some(Instant::now() + IDLE)).is_err() {
                break;
            }
            let Ok(frame) = connection.receiver().receive() else { break };
            let asks = frame.kind == Kind::Ask as u8 && frame.payload == 0;
            match wire::decode::<Ask>("question", connection.receiver().immediate()) {
                Ok(next) if asks && next.living == ask.living && next.cluster == ask.cluster => ask = next,
                _ => break,
            }
        }
        self.machine().observe_not_leading(hello.node);
    }

    /// A candidate asks what this witness knows, for its promise if that is binding.
    fn consulted(&self, asks: &Consult, stands: Option<Notice>) -> Result<Reply, Refusal> {
        stands.map_or(Ok(()), |theirs| self.terms.maintained().check_stands(self.who.node, theirs))?;
        let testimony = self.terms.consult_witness(&mut self.machine(), asks, self.clock.now(), |term| {
            let known = self.primary().clone().filter(|(living, _)| living.term == term);
            known.map(|(_, address)| address)
        })?;
        Err(no_vote(self.who.node, testimony))
    }

    fn promise(&self, hello: &Hello, term: Term) -> Result<(), Refusal> {
        let primary = |highest| {
            let known = self.primary().clone().filter(|(living, _)| living.term == highest);
            known.map(|(_, address)| address)
        };
        self.terms.promise(term, hello.node, primary)?;
        Ok(())
    }
}

/// What a witness says to a candidate: what it knows, and that it has no data.
pub(crate) fn no_vote(node: NodeId, testimony: Testimony) -> Refusal {
    let testimony = Box::new(testimony);
    Refusal::NoVote { node, testimony, why: "it is a witness, and holds no data".to_owned() }
}

/// What a candidate hears that gets no testimony; `primary` says where that of a term is.
pub(crate) fn refusal(why: NoTestimony, asks: &Consult, primary: impl Fn(Term) -> Option<String>) -> Refusal {
    match why {
        NoTestimony::Led(Living { term, node }) => Refusal::LedBy { node, term, primary: primary(term) },
        NoTestimony::Refused(Refused { highest, holder }) => {
            Refusal::of_term(asks.term, highest, holder, primary(highest))
        }
    }
}

struct WitnessService(Arc<Shared>);

impl Service for WitnessService {
    fn serve(&self, hello: Hello, connection: Connection) {
        let shared = &self.0;
        let cluster = shared.terms.get().cluster;
        let belongs = shared.terms.check_belongs(hello.node);
        let checked = belongs.and_then(|()| check_hello(shared.who.node, cluster, &hello));
        if let Err(refusal) = checked.and_then(|()| if shared.stopping() { Err(shared.not_primary()) } else { Ok(()) })
        {
            return refuse(connection, refusal);
        }
        match hello.purpose.clone() {
            Purpose::Ask(ask) => shared.serve_asks(&hello, ask, connection),
            Purpose::Consult { term, binding, gives_way, stands, .. } => {
                let reply = shared.consulted(&Consult { node: hello.node, term, binding, gives_way }, stands);
                answer(connection, term, &reply.unwrap_or_else(Reply::Refused));
            }
            Purpose::Announce { claim, address } => {
                let living = Living { term: claim.term_entry.term, node: hello.node };
                let mut machine = shared.machine();
                let reply = shared.promise(&hello, living.term).map(|()| {
                    machine.observe_primary(living, shared.clock.now());
                    shared.observe_primary(living, &address);
                    Reply::Noted
                });
                drop(machine);
                answer(connection, living.term, &reply.unwrap_or_else(Reply::Refused));
            }
            Purpose::Identify => match cluster {
                Some(cluster) => answer(connection, Term(0), &Reply::Cluster(cluster)),
                None => refuse(connection, shared.not_primary()),
            },
            Purpose::Maintenance(notice) => {
                shared.terms.maintained().observe(notice);
                answer(connection, Term(0), &Reply::Maintenance(shared.terms.maintained().notice()));
            }
            Purpose::Restart => answer(connection, Term(0), &shared.terms.maintained().take(Order::Restart)),
            Purpose::Stop => answer(connection, Term(0), &shared.terms.maintained().take(Order::Stop)),
            // The endpoint answers before it gets here.
            Purpose::Enrol(_)
            | Purpose::Renew
            | Purpose::Passage { .. }
            | Purpose::Session { .. }
            | Purpose::Cancel { .. } => {
                refuse(connection, Refusal::Violation("this is not a question to a role".into()));
            }
            Purpose::Join(_)
            | Purpose::Fetch { .. }
            | Purpose::HandOver(_)
            | Purpose::Checkpoint { .. }
            | Purpose::Originals
            | Purpose::BeginAgain { .. }
            | Purpose::Members { .. }
            | Purpose::Reach(_)
            | Purpose::Witness => refuse(connection, shared.not_primary()),
        }
    }
}
