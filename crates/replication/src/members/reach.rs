//! Reach: which voters find each other if the primary is lost. The primary asks those with data,
//! and each of them calls the others, as a candidate would.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::{Duration, Instant},
};

use freshet_base::{NodeId, Term, sync::Mutex};
use freshet_membership::{Credentials, Identity};
use serde::{Deserialize, Serialize};

use super::{LONGEST, MOST, MemberRole, MemberStatus, Table};
use crate::{
    endpoint::{CallError, ask, connect},
    promotion::ask_all,
    wire::{Hello, Purpose, Refusal, Reply},
};

/// A node whose answer counts in a failover.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Voter {
    /// Itself.
    pub node: NodeId,
    /// Where other nodes reach it: host:port, of at most 256 characters.
    pub address: String,
}

/// A voter has this long for each step of an answer to another one, and the one that asks it as
/// long for itself.
const PATIENCE: Duration = Duration::from_millis(500);
/// What was found counts for so long: the voters are asked no more often than that.
const RECENT: Duration = Duration::from_secs(1);
/// With fewer others than that, none of them depends on another one.
const FEWEST: usize = 2;

/// Of each node that is known to have answered, those that it does not reach.
type Unreached = BTreeMap<NodeId, Vec<NodeId>>;

/// What a primary has found last.
#[derive(Default)]
pub(crate) struct Reach(Mutex<Option<Found>>);

struct Found {
    voters: Vec<Voter>,
    until: Instant,
    unreached: Unreached,
}

impl Reach {
    /// What was found of these voters a moment ago, or what `ask` finds. One asks for all that come
    /// at the same time.
    fn of(&self, voters: &[Voter], ask: impl FnOnce() -> Unreached) -> Unreached {
        let mut last = self.0.lock().expect("asking does not panic");
        if let Some(found) = last.as_ref().filter(|it| it.voters == voters && Instant::now() < it.until) {
            return found.unreached.clone();
        }
        let unreached = ask();
        let (voters, until) = (voters.to_vec(), Instant::now() + RECENT);
        *last = Some(Found { voters, until, unreached: unreached.clone() });
        unreached
    }
}

impl Table {
    /// Asks the voters with data that are connected which of the others they reach, unless it was
    /// asked a moment ago. No node connects to `register`, which stands in a witness's place.
    /// Blocks for a time that is bounded.
    pub fn ask_voters(&mut self, credentials: &Credentials, hello: &Hello, reach: &Reach, register: Option<NodeId>) {
        let (own, term) = (self.members.by, self.members.term);
        let voters = self.others_that_vote(register);
        if voters.len() < FEWEST {
            return;
        }
        let with_data = |voter: &&Voter| {
            let is_witness = |status: &MemberStatus| status.node == voter.node && status.role == MemberRole::Witness;
            !self.members.nodes.iter().any(is_witness)
        };
        let ask = || {
            let answers = ask_all(voters.iter().filter(with_data), |voter| {
                let others = voters.iter().filter(|it| it.node != voter.node).cloned().collect();
                let hello = Hello { purpose: Purpose::Reach(others), ..hello.clone() };
                call_voter(credentials, voter, &hello, term, 2 * PATIENCE)
            });
            gather(own, &voters, answers)
        };
        let mut unreached = reach.of(&voters, ask);
        for status in &mut self.members.nodes {
            status.unreached = unreached.remove(&status.node);
        }
    }

    /// Of those that others do not reach, leaves the ones that `is_there` says are there: another
    /// is away, or about to be shown so, and not cut off.
    pub fn leave_unreached(&mut self, are_there: impl FnOnce(BTreeSet<NodeId>) -> BTreeSet<NodeId>) {
        let suspects: BTreeSet<_> =
            self.members.nodes.iter().flat_map(|it| it.unreached.iter().flatten()).copied().collect();
        if suspects.is_empty() {
            return;
        }
        let there = are_there(suspects);
        for unreached in self.members.nodes.iter_mut().filter_map(|status| status.unreached.as_mut()) {
            unreached.retain(|node| there.contains(node));
        }
    }

    /// Those that are connected and vote, but for this node. Who is away is shown as such.
    fn others_that_vote(&self, register: Option<NodeId>) -> Vec<Voter> {
        let is_asked = |status: &&MemberStatus| {
            let is_here = status.connected == Some(true) && !status.address.is_empty();
            status.vote && is_here && status.node != self.members.by && Some(status.node) != register
        };
        let voter = |status: &MemberStatus| Voter { node: status.node, address: status.address.clone() };
        self.members.nodes.iter().filter(is_asked).map(voter).collect()
    }
}

/// What the voters' answers come to. `own` does not reach those that are not where they are to be;
/// of one that is slow nothing is known.
fn gather(own: NodeId, voters: &[Voter], answers: Vec<(&Voter, Result<Reply, CallError>)>) -> Unreached {
    let (mut unreached, mut elsewhere) = (Unreached::new(), Vec::new());
    for (voter, answer) in answers {
        match answer {
            Ok(Reply::Reach(theirs)) => {
                let others = voters.iter().map(|it| it.node).filter(|it| *it != voter.node && theirs.contains(it));
                unreached.insert(voter.node, others.collect());
            }
            Err(cause) if is_elsewhere(&cause) => elsewhere.push(voter.node),
            _ => {}
        }
    }
    unreached.insert(own, elsewhere);
    unreached
}

/// Calls the voter, if it is the one that is reached at its address.
fn call_voter(
    credentials: &Credentials,
    voter: &Voter,
    hello: &Hello,
    term: Term,
    patience: Duration,
) -> Result<Reply, CallError> {
    let Voter { node, ref address } = *voter;
    let mut connection = connect(credentials, address, patience)?;
    let shown = connection.stream().certificate().as_ref().and_then(Identity::of);
    if shown != Some(Identity::Node(node)) {
        return Err(CallError::Unexpected { address: address.clone() });
    }
    ask(&mut connection, address, hello, term)
}

/// Whether no node was found there that is the right one, and takes the caller for one of its
/// cluster.
fn is_elsewhere(cause: &CallError) -> bool {
    matches!(cause, CallError::Connect(_) | CallError::Unexpected { .. }) || cause.is_of_strangers()
}

/// Whether a primary may ask about these voters.
///
/// # Errors
/// [`Refusal`], to be sent to it.
pub(crate) fn check(voters: &[Voter]) -> Result<(), Refusal> {
    let is_long = |voter: &Voter| voter.address.chars().nth(LONGEST).is_some();
    if voters.len() > MOST || voters.iter().any(is_long) {
        return Err(Refusal::Violation("no cluster has that number of nodes, or addresses of that length".into()));
    }
    Ok(())
}

/// Which of these voters do not answer the node that introduces itself with `hello`. Calls all at
/// once, and blocks for a time that is bounded.
pub(crate) fn unreached(credentials: &Credentials, voters: &[Voter], hello: &Hello) -> Vec<NodeId> {
    let answers = ask_all(voters.iter(), |voter| call_voter(credentials, voter, hello, Term(0), PATIENCE));
    let is_there = |answer: &Result<Reply, CallError>| match answer {
        Ok(_) => true,
        // It is the right node, whatever it has against the question.
        Err(CallError::Refused { refusal, .. }) => !matches!(refusal, Refusal::OtherCluster { .. }),
        Err(_) => false,
    };
    answers.into_iter().filter(|(_, answer)| !is_there(answer)).map(|(voter, _)| voter.node).collect()
}

#[cfg(test)]
mod tests;
