//! Accept: answers those who connect to a primary.

use std::time::{Duration, Instant};

use freshet_base::{CommitGate, Lsn, NodeId, Term, sync::Arc};
use freshet_cluster::{
    commit_rule::{self, Leaves},
    handshake::{Agreed, Sender, check_gives_way},
    host::ReplicaState,
    promotion::LogState,
    term::Living,
};
use freshet_fabric::tcp::Connection;

use super::Shared;
use crate::{
    endpoint::{Service, answer, refuse},
    feed::{join, note_refused, report_refused},
    maintenance::Notice,
    originals::serve_originals,
    promotion::serve_log,
    wire::{Hello, Join, Purpose, Refusal, Reply, check_hello},
};

/// The disk has this long to take what was sent before the term ended.
const SETTLES: Duration = Duration::from_secs(1);

pub(super) struct PrimaryService(pub Arc<Shared>);

impl Service for PrimaryService {
    fn serve(&self, hello: Hello, connection: Connection) {
        let shared = &self.0;
        if shared.stopping() {
            return refuse(connection, Refusal::NotPrimary { node: shared.who.node, primary: None });
        }
        if let Err(refusal) = check(shared, &hello) {
            report_refused(&hello, &refusal);
            return refuse(connection, refusal);
        }
        match hello.purpose.clone() {
            Purpose::Join(joins) => match agree(shared, &hello, &joins) {
                Ok(agreed) => join(shared, &hello, &joins, agreed, connection),
                Err(refusal) => {
                    note_refused(&**shared, &hello, &joins, &refusal);
                    refuse(connection, refusal);
                }
            },
            Purpose::Consult { term, binding, gives_way, handed, stands } => {
                let log = consult(shared, &hello, Asked { term, binding, gives_way, handed, stands });
                let described = |log| Reply::Log { node: shared.who.node, log, peers: shared.known() };
                answer(connection, shared.who.term, &log.map_or_else(Reply::Refused, described));
            }
            // It hands the role over and asks voters itself, and is no witness.
            Purpose::HandOver(_) | Purpose::Reach(_) | Purpose::Ask(_) => refuse(connection, shared.led_by()),
            Purpose::Identify => answer(connection, shared.who.term, &Reply::Cluster(shared.who.cluster)),
            // The endpoint answers before it gets here.
            Purpose::Enrol(_)
            | Purpose::Renew
            | Purpose::Passage { .. }
            | Purpose::Session { .. }
            | Purpose::Cancel { .. } => {
                refuse(connection, Refusal::Violation("this is not a question to a role".into()));
            }
            Purpose::Checkpoint { .. } => answer(connection, shared.who.term, &Reply::NoCheckpoint),
            Purpose::Announce { claim, .. } => {
                answer(connection, shared.who.term, &shared.announced(&hello, &claim));
            }
            Purpose::BeginAgain { since } => begin_again(shared, hello.node, since, connection),
            Purpose::Maintenance(_) | Purpose::Members { .. } | Purpose::Witness | Purpose::Restart | Purpose::Stop => {
                answer(connection, shared.who.term, &shared.of_cluster(&hello));
            }
            Purpose::Originals => {
                serve_originals(connection, |block| block.read(&shared.log, shared.log.filled(), || false));
            }
            Purpose::Fetch { term, log } => {
                if let Err(refusal) = shared.promise(&hello, term) {
                    return refuse(connection, refusal);
                }
                // Fenced by now, but its log may be the most advanced.
                let sender = Sender { term, end: log_end(shared), ..shared.feeds.state().host.sender().clone() };
                let read = |at, into: &mut [u8]| shared.log.read(at, into);
                shared.successor().fetching += 1;
                serve_log(connection, &sender, shared.config.feed.partition, &hello, &log, read);
                let mut successor = shared.successor();
                successor.fetching -= 1;
                successor.last_seen = Some(Instant::now());
            }
        }
    }
}

fn begin_again(shared: &Shared, standby: NodeId, since: Lsn, connection: Connection) {
    let verdict = shared.may_begin_again(standby, since);
    tracing::debug!(%standby, ?verdict, "a standby in doubt asks whether it may begin again");
    answer(connection, shared.who.term, &Reply::Verdict(verdict));
}

/// Whether this node may answer one that introduces itself so.
fn check(shared: &Shared, hello: &Hello) -> Result<(), Refusal> {
    shared.terms.check_belongs(hello.node)?;
    check_hello(shared.who.node, Some(shared.who.cluster), hello)
}

/// Where this log ends for a candidate: what is durable. Of a term that is over, what was durable
/// when a candidate first asked: what has become durable since was acknowledged to no client, and a
/// candidate that is still asking must not find another end each time. A mirror may hold what was
/// on its way to the disk here, and can pass it on to no other node: so that is waited for.
fn log_end(shared: &Shared) -> Lsn {
    if !shared.is_fenced() {
        return shared.commit.reading().1;
    }
    let known = shared.successor().end;
    known.unwrap_or_else(|| {
        // The feeds have ended: nothing more arrives anywhere.
        let (sent, deadline) = (shared.log.filled(), Instant::now() + SETTLES);
        let durable = shared.log.wait_durable(sent, Some(deadline)).unwrap_or_else(|_| shared.log.durable());
        *shared.successor().end.get_or_insert(durable)
    })
}

/// What a candidate asks.
struct Asked {
    term: Term,
    binding: bool,
    gives_way: Option<Term>,
    handed: Option<u64>,
    stands: Option<Notice>,
}

fn consult(shared: &Shared, hello: &Hello, asked: Asked) -> Result<LogState, Refusal> {
    let Asked { term, binding, gives_way, handed, stands } = asked;
    if hello.node == shared.who.node && !shared.is_fenced() {
        // Another process, with a copy of this node's directory.
        return Err(shared.led_by());
    }
    if let Some(number) = handed.filter(|_| binding) {
        shared.hand_over(hello.node, number)?;
    }
    check_gives_way(hello.node, gives_way, || living(shared))?;
    stands.map_or(Ok(()), |theirs| shared.terms.maintained().check_stands(shared.who.node, theirs))?;
    if binding {
        let _ = shared.promise(hello, term)?;
        if handed.is_some() {
            let living = Living { term, node: hello.node };
            shared.successor().handed = Some((living, hello.address.clone()));
        }
    }
    let (terms, node) = (shared.terms.get(), shared.who.node);
    let (history, committed) = (shared.feeds.state().host.sender().history.clone(), shared.commit.committed());
    Ok(LogState { history, ..LogState::of(terms, node, log_end(shared), committed) })
}

/// Who leads, and where: this node, or one to which it has handed its role, and which is about to.
fn living(shared: &Shared) -> Option<(Living, Option<String>)> {
    if !shared.is_fenced() {
        let living = Living { term: shared.who.term, node: shared.who.node };
        return (!shared.is_stuck()).then(|| (living, Some(shared.who.address.clone())));
    }
    let successor = shared.successor();
    let (living, address) = successor.handed.clone().filter(|_| successor.is_on_its_way())?;
    Some((living, Some(address)))
}

/// Whether the standby may join, and from where.
fn agree(shared: &Shared, hello: &Hello, join: &Join) -> Result<Agreed, Refusal> {
    if let Some(commit_rule::Refusal::Fenced { by }) = shared.commit.refusal() {
        return Err(Refusal::Fenced { asked: shared.who.term, highest: by, holder: None, primary: None });
    }
    if shared.is_stuck() {
        // Not a relay that has lost its upstream, which would be kept: another node is to lead.
        return Err(Refusal::NotPrimary { node: shared.who.node, primary: None });
    }
    let agreed = shared.feeds.state().host.agree(&join.asking(hello), &shared.terms.get());
    if let Err(Refusal::Fenced { highest, .. }) = &agreed {
        // The standby has heard of a later term than this one.
        shared.fence(*highest);
    }
    agreed
}

/// A node at the address of one that is away is in its place, and that one's log is gone: a set
/// that names the log may be followed by one that needs less of the others.
///
/// Others that have been here and are away count as well, since they may come back.
pub(super) fn make_place(shared: &Shared, address: &str, replica: &ReplicaState) {
    if !replica.synchronous {
        return;
    }
    let mut others = shared.commit.places();
    others.retain(|node, member| *node != replica.node && member.synchronous);
    let was_here = |node| !address.is_empty() && shared.address_of(node).as_deref() == Some(address);
    if let Some((node, _)) = others.iter().find(|(node, member)| !member.connected && was_here(**node)) {
        shared.commit.leave(*node, Leaves::Replaced).expect("who is replaced may always leave");
    }
}
