//! Promotion: a standby, or a mirror, becomes the primary of a new term (Query Fresh, section
//! 3.4.4).
//!
//! [`Promotion`] decides, round by round; here it is bound to this node's standby, its terms, and
//! the connections to the others.
//!
//! The engine then turns the log into a primary's, starts a [`crate::primary::Primary`], which
//! makes the new term known to everybody, and gives its service to the endpoint.

mod asked;
mod error;
mod serve;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::mpsc,
    thread,
    time::{Duration, Instant},
};

use freshet_base::{
    Consent, Lsn, NodeId, Safety, Term,
    sync::Arc,
    wait::{self, Patience},
};
use freshet_cluster::{
    handshake::{check_elects, check_gives_way},
    in_sync::{InSyncSet, Succession},
    promotion::{
        Answer, Fetch, Inheritance, Promotion, Question, Rules, Standing, Step, Stopped, Testimony, known_level,
    },
    recording::Recorded,
    term::{Fence, Living, TermHistory},
};

pub use self::error::PromoteError;
pub(crate) use self::{asked::Asked, serve::serve_log};
use crate::{
    endpoint::CallError,
    follow::{SessionError, Shared, Store, promise},
    maintenance::Notice,
    register::ask_peer,
    wire::{Hello, Peer, Purpose, Refusal, Reply},
};

/// How to take over.
#[derive(Clone, Debug)]
pub struct PromoteOptions {
    /// The level with which this node is configured. It counts where no in-sync set is known, and
    /// no primary has said anything.
    pub configured: Option<Safety>,
    /// What an operator has agreed to.
    pub consent: Consent,
    /// Why this node stands.
    pub standing: Standing,
    /// Nodes to ask, beside those that the standby knows.
    pub known: Vec<Peer>,
    /// How long a peer may take to answer.
    pub patience: Duration,
    /// How long replay and persistence of what was received may take.
    pub deadline: Duration,
}

impl Default for PromoteOptions {
    fn default() -> Self {
        Self {
            configured: None,
            consent: Consent::Nothing,
            standing: Standing::default(),
            known: Vec::new(),
            patience: Duration::from_secs(2),
            deadline: Duration::from_secs(600),
        }
    }
}

/// A promotion that succeeded: this node is the primary, and has to act as one.
#[derive(Clone, Debug)]
pub struct Promoted {
    /// The new term.
    pub term: Term,
    /// Where it begins: the end of the log, persistent and replayed.
    pub start: Lsn,
    /// What of the log is known to be committed: what the old primary told this node, or one of
    /// those that were heard.
    pub committed: Lsn,
    /// All terms of the log, the new one included.
    pub history: TermHistory,
    /// Everyone who is known.
    pub peers: Vec<Peer>,
    /// What the in-sync sets of the new term follow.
    pub succession: Succession,
    /// The nodes that have answered.
    pub answered: BTreeSet<NodeId>,
    /// The addresses of those that answered, the others being those to whom the promotion has yet
    /// to be announced.
    pub answered_at: Vec<String>,
}

/// A promotion with too few answers asks this many times more, if one of the others may only be
/// slow.
const AGAIN: u32 = 2;

/// What the last round has brought, beside what the promotion itself keeps.
#[derive(Default)]
struct Round {
    /// The nodes that have described their logs.
    described: Vec<Peer>,
    /// Where those can be reached that term, as far as another node has said.
    primaries: BTreeMap<NodeId, Option<String>>,
    /// Those that have not answered, and why.
    unreachable: String,
    /// How many these are.
    silent: u32,
    /// One of them lives, and its certificate, or this node's, is not accepted.
    uncertified: bool,
    /// One of them took the connection, and nothing came of that in time.
    late: bool,
    /// Whom those know that have answered.
    known: Vec<Peer>,
}

fn is_itself<S: Store>(shared: &Shared<S>, peer: &Peer) -> bool {
    peer.node == Some(shared.node()) || peer.address == shared.address()
}

/// What an operator can do who cannot bring other nodes back.
const FORCE: &str = ", or force the promotion";
/// The same where only the primary's answer is missing.
const GONE: &str = ", or, if the primary is gone and will not come back, promote with --primary-is-gone: only what it \
                    has acknowledged without this node is lost then";
/// The same where the missing answer is not that of the primary which this node has followed.
const SUCCEEDED: &str = ", or, if the primary is gone and will not come back, promote another of these nodes with \
                         --primary-is-gone: it is not the primary that this one has followed, but has led since";
/// Who force a promotion then may lose commits, although all nodes live.
const CERTIFY: &str = "; do not force the promotion: a node is there, and its certificate, or this node's, is not \
                       accepted: replace what has ended (member.certificates, and SIGHUP), and promote again";

impl Round {
    fn address(&self, node: NodeId) -> Option<String> {
        self.described.iter().find(|peer| peer.node == Some(node)).map(|peer| peer.address.clone())
    }

    fn explain(mut self, why: Stopped, promotion: &Promotion) -> PromoteError {
        let unreachable = std::mem::take(&mut self.unreachable);
        let way = match &why {
            _ if self.uncertified => CERTIFY,
            Stopped::SetUncertain { newest: Some(set), .. } if promotion.gone().is_some_and(|it| it != set.primary) => {
                SUCCEEDED
            }
            Stopped::SetUncertain { newest: Some(set), answered, needed }
                if answered + 1 == *needed && set.may_go_on_alone() && self.address(set.primary).is_none() =>
            {
                GONE
            }
            _ => FORCE,
        };
        let safety = promotion.rules().safety;
        match why {
            Stopped::TooFew { answered, needed } => PromoteError::TooFew { answered, needed, way, unreachable },
            Stopped::SetUncertain { newest, answered, needed } => {
                let members = newest.map_or_else(String::new, |set| format!(" (nodes {})", names(&set)));
                PromoteError::SetUncertain { answered, needed, members, way, unreachable }
            }
            Stopped::Superseded { living: Living { term, node }, lives } => {
                let primary = self.primaries.remove(&node).flatten().or_else(|| self.address(node));
                PromoteError::Superseded { node, term, lives, primary }
            }
            Stopped::Asynchronous => PromoteError::Asynchronous(safety),
            Stopped::Newcomer { newest } => PromoteError::Newcomer { safety, members: names(&newest) },
            Stopped::Better(node) => PromoteError::Better { node, at: self.address(node).unwrap_or_default() },
            Stopped::HoldsMore { than: node, at, committed } => {
                PromoteError::HoldsMore { node, address: self.address(node).unwrap_or_default(), at, committed }
            }
            Stopped::LeavesOut { node, at, committed } => {
                PromoteError::LeavesOut { node, address: self.address(node).unwrap_or_default(), at, committed }
            }
            Stopped::SameTermTwice { with, term } => {
                PromoteError::SameTermTwice { with: self.address(with).unwrap_or_default(), term }
            }
            Stopped::Contested(term) => PromoteError::Contested(term),
            Stopped::NotHanded(by) => PromoteError::NotHanded(by),
            Stopped::Maintenance => PromoteError::Maintenance,
        }
    }
}

/// The nodes of its members that have data.
fn names(set: &InSyncSet) -> String {
    let data = set.members.iter().filter(|member| !member.witness);
    data.map(|member| member.node.to_string()).collect::<Vec<_>>().join(", ")
}

/// Answers a node that takes over, or sounds out whether it could: with a promise, if `binding`.
pub(crate) fn consulted<S: Store>(
    shared: &Shared<S>,
    hello: &Hello,
    term: Term,
    binding: bool,
    (gives_way, stands): (Option<Term>, Option<Notice>),
) -> Result<Reply, Refusal> {
    check_gives_way(hello.node, gives_way, || shared.living())?;
    stands.map_or(Ok(()), |theirs| shared.terms.maintained().check_stands(shared.node(), theirs))?;
    if !binding && stands.is_none() {
        check_elects(shared.node(), (term, gives_way), || shared.elects())?;
    }
    if binding {
        let _ = promise(shared, hello, term)?;
        if gives_way.is_none() {
            // It was told to take over, and will lead in a moment.
            shared.observe_primary(Living { term, node: hello.node }, &hello.address);
        }
    }
    // What was whole before may just be given up, but not the other way round.
    let log = shared.log_state();
    match S::has_no_vote(shared) {
        None => Ok(Reply::Log { node: shared.node(), log, peers: shared.peers() }),
        Some(why) => {
            let testimony = Box::new(log.testimony());
            Err(Refusal::NoVote { node: shared.node(), testimony, why: why.to_owned() })
        }
    }
}

/// Turns a node that follows into the primary of a new term; it rests for good then. When that
/// fails it follows its primary again.
pub(crate) fn promotion<S: Store>(shared: &Arc<Shared<S>>, options: &PromoteOptions) -> Result<Promoted, PromoteError> {
    let (fence, mut peers) = (shared.terms.fence(), shared.peers());
    may_begin(shared, options, fence, &peers)?;
    let rest = shared.follow.rest();
    // What is fetched, and then the new term, would not be what they were promised.
    S::end_feeds(shared);
    S::rested(shared, options).map_err(PromoteError::Local)?;
    for peer in &options.known {
        peers.retain(|other| other.address != peer.address || other.node.is_some_and(|node| Some(node) != peer.node));
        peers.push(peer.clone());
    }
    let rules = rules(shared, options);
    let mut promotion = shared.terms.promotion(shared.node(), shared.log_state(), rules);
    if options.standing == Standing::Automatic && shared.terms.fence() != fence {
        // While it sounded out, it has promised a term to another node, which may lead in a moment.
        return Err(PromoteError::Contested(shared.terms.fence().highest()));
    }
    let mut asked = Asked::known(peers);
    let mut again = AGAIN;
    loop {
        let mut round = consult(shared, &mut promotion, &asked, options)?;
        while asked.learn(&round.known, |peer| is_itself(shared, peer)) {
            round = consult(shared, &mut promotion, &asked, options)?;
        }
        check_not_removed(shared, options)?;
        match promotion.decide(round.silent) {
            Step::Ask => {}
            Step::Fetch(wanted) => {
                // One that was heard before may be silent now.
                let known = || asked.peers.iter().find(|peer| peer.node == Some(wanted.from));
                let known = || known().map_or_else(|| wanted.from.to_string(), |peer| peer.address.clone());
                let from = round.address(wanted.from).unwrap_or_else(known);
                fetch(shared, &mut promotion, &from, &wanted, options.deadline)?;
            }
            Step::Finish { term, after } => {
                let (decided, answered) = (Instant::now(), round.described.len());
                tracing::info!(term = term.0, answered, "enough nodes have promised the term: finishing replay");
                let end = S::finish(shared, options.deadline)?;
                let start = S::cut_half(shared, end)?;
                let Inheritance { succession, committed, answered } = promotion.inheritance(start);
                // Until then the primary of before may answer readers.
                let _ = wait::sleep(Patience::endless().until(decided + after));
                let history = shared.terms.begin(term, shared.node(), start, &succession)?;
                shared.follow.lead(None);
                rest.for_good();
                let answered_at = round.described.into_iter().map(|peer| peer.address).collect();
                let peers = asked.peers;
                return Ok(Promoted { term, start, committed, history, peers, succession, answered, answered_at });
            }
            // A node on a busy machine may only have been slow. Who comes back asks again anyhow.
            Step::Stop(Stopped::TooFew { .. } | Stopped::SetUncertain { .. })
                if round.late && again > 0 && options.standing == Standing::Ordered =>
            {
                again -= 1;
            }
            Step::Stop(why) => return Err(round.explain(why, &promotion)),
        }
    }
}

/// Whether no node has said that this one is removed. Such a node leads no more, unless it is
/// forced to.
fn check_not_removed<S: Store>(shared: &Shared<S>, options: &PromoteOptions) -> Result<(), PromoteError> {
    let forced = options.standing == Standing::Ordered && options.consent.is_forced();
    let record = shared.terms.removal().filter(|_| !forced);
    let refused = |record| PromoteError::Local(Refusal::Removed { node: shared.node(), record }.to_string());
    record.map_or(Ok(()), |record| Err(refused(record)))
}

/// Continues this node's log from the one at `from`. What was fetched is persistent then, since it
/// counts as held only so. If that fails, the others are asked again.
fn fetch<S: Store>(
    shared: &Arc<Shared<S>>,
    promotion: &mut Recorded<Promotion>,
    from: &str,
    wanted: &Fetch,
    deadline: Duration,
) -> Result<(), PromoteError> {
    tracing::info!(from, lsn = wanted.upto.0, "another log reaches further: its end is fetched");
    match S::fetch(shared, from, promotion.term(), wanted) {
        Ok(()) => S::finish(shared, deadline).map(drop),
        Err(_) if promotion.fetch_failed() => Ok(()),
        Err(SessionError::Call(CallError::Refused { refusal: Refusal::LogGone { from: lsn, .. }, .. })) => {
            Err(PromoteError::Unfetchable { from: from.to_owned(), lsn })
        }
        Err(source) => Err(PromoteError::Fetch { from: from.to_owned(), source }),
    }
}

fn rules<S: Store>(shared: &Shared<S>, options: &PromoteOptions) -> Rules {
    let safety = known_level(shared.level(), options.configured);
    Rules { safety, consent: options.consent, standing: options.standing }
}

/// Whether a node that nobody has ordered to lead may begin to rest for that.
fn may_begin<S: Store>(
    shared: &Arc<Shared<S>>,
    options: &PromoteOptions,
    fence: Fence,
    peers: &[Peer],
) -> Result<(), PromoteError> {
    let outranks = |(living, _): &(Living, _)| living.outranks(shared.node(), fence.highest());
    match shared.living().filter(outranks).filter(|_| options.standing.comes_back().is_some()) {
        Some((Living { node, term }, primary)) => Err(PromoteError::Superseded { node, term, lives: true, primary }),
        // The log may still flow, and others may hear the primary.
        None if options.standing == Standing::Automatic => sound_out(shared, options, peers),
        None => Ok(()),
    }
}

/// Whether a promotion that nobody has ordered would succeed, as far as others say. Nothing changes
/// anywhere: this node follows on.
fn sound_out<S: Store>(shared: &Arc<Shared<S>>, options: &PromoteOptions, peers: &[Peer]) -> Result<(), PromoteError> {
    let rules = rules(shared, options);
    let mut promotion = shared.terms.promotion(shared.node(), shared.log_state(), rules);
    let round = consult(shared, &mut promotion, &Asked::known(peers.to_vec()), options)?;
    match promotion.decide(round.silent) {
        Step::Stop(why) => Err(round.explain(why, &promotion)),
        Step::Ask | Step::Fetch(_) | Step::Finish { .. } => Ok(()),
    }
}

/// Asks all these nodes at once, and blocks until each has answered, or has not in time.
pub(crate) fn ask_all<N: Send, A: Send>(nodes: impl Iterator<Item = N>, ask: impl Fn(&N) -> A + Sync) -> Vec<(N, A)> {
    let (ask, nodes) = (&ask, nodes.collect::<Vec<_>>());
    if nodes.len() == 1 {
        let answered = |node| {
            let answer = ask(&node);
            (node, answer)
        };
        return nodes.into_iter().map(answered).collect();
    }
    thread::scope(|scope| {
        let asked = nodes.into_iter().map(|node| {
            scope.spawn(move || {
                let answer = ask(&node);
                (node, answer)
            })
        });
        let asked: Vec<_> = asked.collect();
        asked.into_iter().map(|thread| thread.join().expect("asking does not panic")).collect()
    })
}

/// One round: asks every other node at once.
fn consult<S: Store>(
    shared: &Shared<S>,
    promotion: &mut Recorded<Promotion>,
    asked: &Asked,
    options: &PromoteOptions,
) -> Result<Round, PromoteError> {
    shared.terms.raise_for(promotion).map_err(|error| PromoteError::Local(error.to_string()))?;
    let Question { term, binding, gives_way, handed, only, automatic } = promotion.question(shared.log_state());
    let maintained = shared.terms.maintained();
    if maintained.left().is_some() {
        promotion.observe(shared.node(), Answer::Maintenance(maintained.notice()));
    }
    let stands = automatic.then(|| maintained.notice());
    let hello = shared.hello(Purpose::Consult { term, binding, gives_way, handed, stands });
    let (replies, answers) = mpsc::channel();
    let is_asked = |peer: &Peer| !is_itself(shared, peer) && only.is_none_or(|only| peer.node == Some(only));
    let register = shared.terms.register().cloned();
    let witness = register.iter().map(|register| (true, register.peer()));
    let peers = asked.peers().map(|(is_waited_for, peer)| (is_waited_for, peer.clone())).chain(witness);
    for (is_waited_for, peer) in peers.filter(|(_, peer)| is_asked(peer)) {
        let (credentials, hello, patience) = (shared.who.credentials.clone(), hello.clone(), options.patience);
        let (replies, register) = (replies.clone(), register.clone());
        let ask = move || {
            let reply = ask_peer(register.as_deref(), &credentials, &peer, &hello, term, patience);
            // The candidate may have decided already.
            let _ = replies.send((is_waited_for, peer, reply));
        };
        let spawned = thread::Builder::new().name("consult".into()).spawn(ask);
        spawned.map_err(|error| PromoteError::Local(format!("cannot start a thread: {error}")))?;
    }
    drop(replies);
    let (mut round, mut until) = (Round::default(), None);
    loop {
        let next = match until {
            None => answers.recv().ok(),
            Some(until) => answers.recv_timeout(Instant::saturating_duration_since(&until, Instant::now())).ok(),
        };
        let Some((is_waited_for, peer, reply)) = next else { return Ok(round) };
        round.observe(shared, promotion, (is_waited_for, peer), reply);
        if until.is_none() && promotion.has_enough() {
            until = promotion.grace().map(|grace| Instant::now() + grace);
        }
    }
}

impl Round {
    /// A node has answered, or has not.
    fn observe<S: Store>(
        &mut self,
        shared: &Shared<S>,
        promotion: &mut Recorded<Promotion>,
        (is_waited_for, peer): (bool, Peer),
        reply: Result<Reply, CallError>,
    ) {
        let why = match reply {
            Ok(Reply::Log { node, log, peers }) => {
                promotion.observe(node, Answer::Log(log));
                self.known.extend(peers);
                self.described.push(Peer { node: Some(node), address: peer.address, serves: true });
                return;
            }
            Err(CallError::Refused { refusal: Refusal::LedBy { node, term, primary }, .. }) => {
                promotion.observe(node, Answer::LedBy(Living { term, node }));
                self.primaries.entry(node).or_insert(primary);
                return;
            }
            Err(CallError::Refused { refusal: Refusal::Maintenance { node, notice }, .. }) => {
                shared.observe_maintenance(notice);
                promotion.observe(node, Answer::Maintenance(notice));
                return;
            }
            Err(CallError::Refused { refusal: Refusal::Elects { node }, .. }) => {
                promotion.observe(node, Answer::Elects);
                return;
            }
            Err(CallError::Refused { refusal: Refusal::Fenced { highest, holder, .. }, .. }) => {
                if shared.terms.believes(highest) {
                    // Whose word it is does not matter.
                    promotion.observe(shared.node(), Answer::Higher { highest, holder });
                    return;
                }
                format!("a node speaks of term {highest}, to which no node can have come")
            }
            Ok(_) => format!("{} gave an answer that does not fit", peer.address),
            Err(error) => {
                if let CallError::Refused { refusal: Refusal::NoVote { node, testimony, .. }, .. } = &error {
                    promotion.observe(*node, Answer::NoVote(Testimony::clone(testimony)));
                } else if is_waited_for {
                    self.silent += 1;
                } else {
                    tracing::debug!(%error, "a node that others have spoken of does not answer a candidate");
                    return;
                }
                if let CallError::Refused { refusal, .. } = &error {
                    shared.terms.refused(shared.node(), refusal);
                }
                self.late |= matches!(error, CallError::System { .. } | CallError::Register { .. });
                self.uncertified |= error.is_of_strangers() || shared.who.credentials.have_ended();
                error.to_string()
            }
        };
        tracing::debug!(cause = why, "a node does not answer a candidate");
        self.unreachable.push_str(&format!("; {why}"));
    }
}
