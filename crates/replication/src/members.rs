//! Members: which nodes there are, and how they are, as one of them knows it.
//!
//! The primary knows most of those that it feeds, and of those that its newest in-sync sets name; a
//! relay knows those below it. So a node that follows asks its primary, and the primary asks its
//! relays. What no node has said is unknown, and not zero: a node's lag is known from when its
//! primary of this term has heard from it.

pub(crate) mod reach;

use std::{collections::BTreeSet, time::Duration};

use freshet_base::{ClusterId, Lsn, NodeId, Safety, Term, versions::Level};
use freshet_cluster::in_sync::{Holder, InSyncSet};
use freshet_membership::{Credentials, fingerprint_text};
use serde::{Deserialize, Serialize};

pub use self::reach::Voter;
use crate::{
    endpoint::{CallError, call, call_as_client},
    follow::{Shared, Store},
    promotion::ask_all,
    status::{Lag, ObserverStatus, StandbyStatus, WitnessStatus},
    terms::Terms,
    wire::{Hello, Peer, Purpose, Reply},
};

/// The version of this program.
pub const VERSION: &str = freshet_base::versions::RELEASE;
/// A cluster has no more nodes than that: others are left out.
pub const MOST: usize = 64;
/// Those below are asked through this number of relays, one below the other.
const RELAYS: u8 = 3;
/// No more of an address, a version or a reason is kept.
const LONGEST: usize = 256;
/// The primary has this long to answer.
const PATIENCE: Duration = Duration::from_secs(3);
/// A relay has this long for itself, and as much for each relay that it asks in its turn.
const RELAY_PATIENCE: Duration = Duration::from_millis(500);

/// One on which no commit counts is shown for so long while it is away, as far as the node that
/// feeds it remembers: it may be gone for good.
const AWAY: Duration = Duration::from_secs(24 * 3600);
/// And no more of these, by each node that feeds: those that went last.
const MOST_AWAY: usize = 16;

/// Why such a node has no vote.
pub const ASYNCHRONOUS: &str = "asynchronous: no commit waits for it";

/// Why one has none that counted when it became this: as long as it belongs to those on which
/// commits count, fewer of the others may be lost.
pub const STILL_COUNTED: &str = "asynchronous, and counts among the members all the same: remove it (freshet \
                                 remove) and let it join again, or start it without asynchronous";

/// What a node is in its cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum MemberRole {
    /// It leads.
    Primary,
    /// It has led, and its term is over.
    Deposed,
    /// Commits may wait for it.
    Standby,
    /// They do not.
    Asynchronous,
    /// Its memory is written in place.
    Mirror,
    /// It feeds others.
    Relay,
    /// An archive, or a node whose checkpoint is on its way.
    Archive,
    /// It votes, and has no data.
    Witness,
    /// Not known: it is away.
    Unknown,
}

/// One node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemberStatus {
    /// Itself.
    pub node: NodeId,
    /// What it is.
    pub role: MemberRole,
    /// Where other nodes reach it; empty where that is not known.
    pub address: String,
    /// The version of its program, where that is known.
    pub version: Option<String>,
    /// The newest of the protocol that it speaks with other nodes.
    pub protocol: Option<u16>,
    /// The log is persistent there up to here.
    pub lsn: Option<Lsn>,
    /// How far that is behind the primary's log.
    pub lag: Option<Lag>,
    /// Whether the log flows to it. A primary is, with itself.
    pub connected: Option<bool>,
    /// For how long that has been so.
    pub connected_or_away_for: Option<Duration>,
    /// Whether a commit waits for it, or could.
    pub in_sync: Option<bool>,
    /// For how long that has been so.
    pub in_sync_for: Option<Duration>,
    /// Whether commits count on its log, and its answer counts in a failover.
    pub vote: bool,
    /// Why not.
    pub no_vote: Option<String>,
    /// Whom it follows, where that is known.
    pub follows: Option<NodeId>,
    /// The fingerprint of the key with which it has come, or that it has itself, as text.
    pub key: Option<String>,
    /// Other voters that are connected to the primary, and that this one does not reach. Not known
    /// of a node that was not asked or has not answered in time; of the primary, voters that are
    /// not at their addresses, as far as it can see.
    pub unreached: Option<Vec<NodeId>>,
}

/// The nodes of a cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Members {
    /// Whose knowledge this is.
    pub by: NodeId,
    /// In this term.
    pub term: Term,
    /// Whether that node leads. Otherwise only what it knows by itself is here.
    pub primary: bool,
    /// Why the primary was not asked, or has not answered.
    pub no_primary: Option<String>,
    /// What a commit promises, as far as is known.
    pub safety: Option<Safety>,
    /// Of a level that commits keep to beside an earlier one: which nodes have yet to note it.
    pub level_pending: Option<BTreeSet<NodeId>>,
    /// Of an in-sync set that is not in effect yet: which nodes have yet to note it.
    pub set_pending: Option<BTreeSet<NodeId>>,
    /// The format level ([`freshet_base::versions`]), as far as it is on record.
    pub format: Option<Level>,
    /// How that promise stands, as the primary says: the word for it in its status.
    pub standing: Option<String>,
    /// What is left of maintenance, while that lasts.
    pub maintenance: Option<Duration>,
    /// At most [`MOST`].
    pub nodes: Vec<MemberStatus>,
    /// How many more there are.
    pub left_out: u32,
}

/// What says which nodes have a vote.
pub(crate) struct Votes {
    pub safety: Option<Safety>,
    /// The newest in-sync set that is known.
    pub set: Option<InSyncSet>,
}

impl Votes {
    /// Whether a set that may be in effect names the node.
    fn names(&self, node: NodeId) -> Option<bool> {
        let set = self.set.as_ref()?;
        Some(set.may_have(node))
    }

    /// Whether commits are to count on the node, by the level.
    fn counts(&self, node: NodeId) -> bool {
        let voters = self.set.as_ref().map(|set| &set.roster.voters);
        !self.safety.is_some_and(Safety::counts_on_nobody) && voters.is_some_and(|voters| voters.contains(&node))
    }

    /// Whether no such set names the log that a node has: it was emptied since, say.
    fn has_other_log(&self, log: Holder) -> bool {
        self.names(log.node) == Some(true)
            && self.set.as_ref().is_some_and(|set| !set.possible_members().any(|member| *member == log))
    }

    /// Why a node that is like this has no vote.
    fn lacks(&self, status: &MemberStatus) -> Option<&'static str> {
        let leads = status.role == MemberRole::Primary;
        match status.role {
            MemberRole::Archive => Some("an archive, or its checkpoint is on its way"),
            MemberRole::Asynchronous => Some(ASYNCHRONOUS),
            MemberRole::Deposed => Some("its term is over"),
            MemberRole::Witness if self.names(status.node) != Some(true) => {
                Some("not in the recorded in-sync set: it is away, or three nodes with data vote")
            }
            _ if !leads && self.safety == Some(Safety::OneSafe) => Some("1-safe: commits wait for no standby"),
            _ => match self.names(status.node) {
                Some(true) => None,
                Some(false) => Some("not in the recorded in-sync set: commits go on without it"),
                None if leads || status.role != MemberRole::Unknown => None,
                None => Some("no in-sync set is known that names it"),
            },
        }
    }
}

/// No more of a text of another's than is kept.
pub(crate) fn short(text: &str) -> String {
    text.chars().take(LONGEST).collect()
}

/// Whether an operator who says `who` means this node: its id, or the address where others reach
/// it.
pub(crate) fn is_named(who: &str, node: NodeId, address: &str) -> bool {
    !who.is_empty() && (address == who || node.to_string() == who)
}

impl MemberStatus {
    /// Of this node nothing is known.
    pub(crate) fn unknown(node: NodeId) -> Self {
        Self {
            node,
            role: MemberRole::Unknown,
            address: String::new(),
            version: None,
            protocol: None,
            lsn: None,
            lag: None,
            connected: None,
            connected_or_away_for: None,
            in_sync: None,
            in_sync_for: None,
            vote: false,
            no_vote: None,
            follows: None,
            key: None,
            unreached: None,
        }
    }

    /// The node itself, which runs this program.
    pub(crate) fn own(node: NodeId, address: &str) -> Self {
        Self {
            address: short(address),
            version: Some(VERSION.to_owned()),
            protocol: Some(crate::wire::PROTOCOL),
            ..Self::unknown(node)
        }
    }

    /// A node that `by` feeds. Below a relay no commit waits for a node, so none is known to be in
    /// sync.
    fn of_standby(standby: &StandbyStatus, by: NodeId, relay: bool) -> Self {
        let role = match standby {
            _ if relay => MemberRole::Asynchronous,
            StandbyStatus { mirror: true, .. } => MemberRole::Mirror,
            StandbyStatus { relay: true, .. } => MemberRole::Relay,
            StandbyStatus { synchronous: false, .. } => MemberRole::Asynchronous,
            StandbyStatus { connected: false, version: None, .. } => MemberRole::Unknown,
            _ => MemberRole::Standby,
        };
        let known = standby.connected && standby.answered;
        let in_sync = !relay && standby.in_sync;
        Self {
            role,
            address: short(&standby.address),
            version: standby.version.clone(),
            protocol: standby.protocol,
            lsn: (known || standby.acked > Lsn::ZERO).then_some(standby.acked),
            lag: known.then_some(Lag { bytes: standby.ack_lag_bytes, time: standby.ack_lag }),
            connected: Some(standby.connected),
            connected_or_away_for: standby.connected_or_away_for,
            in_sync: Some(in_sync),
            in_sync_for: standby.since.min(standby.connected_or_away_for).filter(|_| in_sync),
            follows: standby.connected.then_some(by),
            ..Self::unknown(standby.node)
        }
    }

    fn of_observer(observer: &ObserverStatus, by: NodeId) -> Self {
        Self {
            role: MemberRole::Archive,
            address: short(&observer.address),
            version: observer.version.clone(),
            protocol: observer.protocol,
            lsn: Some(observer.acked),
            lag: Some(Lag { bytes: observer.ack_lag_bytes, time: observer.ack_lag }),
            connected: Some(true),
            connected_or_away_for: observer.connected_for,
            in_sync: Some(false),
            follows: Some(by),
            ..Self::unknown(observer.node)
        }
    }
}

/// Makes a table of [`Members`]: of what comes twice, the first counts.
pub(crate) struct Table {
    votes: Votes,
    members: Members,
}

impl Table {
    /// What `own` knows, which is the node itself.
    pub fn new(own: MemberStatus, term: Term, primary: bool, votes: Votes) -> Self {
        let (by, safety) = (own.node, votes.safety);
        let format = votes.set.as_ref().map(|set| set.roster.format);
        let members = Members {
            by,
            term,
            primary,
            no_primary: None,
            safety,
            level_pending: None,
            set_pending: None,
            format,
            standing: None,
            maintenance: None,
            nodes: Vec::new(),
            left_out: 0,
        };
        let mut table = Self { votes, members };
        table.add(own);
        table
    }

    /// The level, or the in-sync set, is not on record yet: these nodes have yet to note it.
    #[must_use]
    pub fn pending(mut self, level: Option<BTreeSet<NodeId>>, set: Option<BTreeSet<NodeId>>) -> Self {
        (self.members.level_pending, self.members.set_pending) = (level, set);
        self
    }

    fn add(&mut self, mut status: MemberStatus) {
        let is_here = status.node == self.members.by || status.connected == Some(true);
        let was_removed = !is_here && self.votes.set.as_ref().is_some_and(|set| set.is_without(status.node));
        if was_removed || self.members.nodes.iter().any(|known| known.node == status.node) {
            return;
        }
        if self.members.nodes.len() >= MOST {
            self.members.left_out += 1;
            return;
        }
        if status.no_vote.is_none() && !status.vote {
            status.no_vote = self.votes.lacks(&status).map(str::to_owned);
        }
        status.vote = status.no_vote.is_none();
        self.members.nodes.push(status);
    }

    /// The witness, which this node asks.
    pub fn add_witness(&mut self, witness: &WitnessStatus) {
        let in_sync = witness.connected && witness.votes;
        self.add(MemberStatus {
            role: MemberRole::Witness,
            address: short(&witness.address),
            connected: Some(witness.connected),
            connected_or_away_for: witness.connected_for,
            in_sync: Some(in_sync),
            in_sync_for: witness.since.filter(|_| in_sync),
            protocol: witness.protocol,
            ..MemberStatus::unknown(witness.node)
        });
    }

    /// Those that this node feeds, or has fed; as a relay, if it is one. Those that are away come
    /// last if no commit counts on them.
    pub fn add_fed(&mut self, standbys: &[StandbyStatus], observers: &[ObserverStatus], relay: bool) {
        let by = self.members.by;
        let is_away = |standby: &&StandbyStatus| !standby.connected && (relay || !standby.synchronous);
        let (mut away, here): (Vec<_>, Vec<_>) = standbys.iter().partition(is_away);
        away.retain(|standby| standby.connected_or_away_for.is_none_or(|time| time < AWAY));
        away.sort_by_key(|standby| standby.connected_or_away_for);
        away.truncate(MOST_AWAY);
        self.add_standbys(&here, relay);
        for observer in observers {
            self.add(MemberStatus::of_observer(observer, by));
        }
        self.add_standbys(&away, relay);
    }

    fn add_standbys(&mut self, standbys: &[&StandbyStatus], relay: bool) {
        let by = self.members.by;
        for standby in standbys {
            let mut status = MemberStatus::of_standby(standby, by, relay);
            status.no_vote = match standby {
                _ if relay => Some("it follows a relay: no commit waits for it".into()),
                StandbyStatus { synchronous: false, node, .. } if self.votes.counts(*node) => {
                    Some(STILL_COUNTED.into())
                }
                StandbyStatus { synchronous: false, .. } => Some(ASYNCHRONOUS.into()),
                StandbyStatus { in_doubt: true, .. } => Some("its state is in doubt".into()),
                StandbyStatus { lacks: Some(lacks), .. } => Some(format!("it lacks {lacks}")),
                StandbyStatus { connected: true, log, .. } if self.votes.has_other_log(*log) => {
                    Some("the recorded in-sync set names another log of this node".into())
                }
                _ => None,
            };
            self.add(status);
        }
    }

    /// Those that a set names, or this node has heard of, and that are not here: as away, if
    /// this node would know better.
    pub fn add_missing(&mut self, peers: &[Peer], away_for: Option<Duration>) {
        let named = |set: &InSyncSet| {
            let members = set.possible_members().map(|holder| holder.node);
            members.chain(set.roster.voters.iter().copied()).chain(set.roster.witness).collect::<Vec<_>>()
        };
        let mut nodes = self.votes.set.as_ref().map(named).unwrap_or_default();
        nodes.extend(peers.iter().filter_map(|peer| peer.node));
        for node in nodes {
            let peer = peers.iter().find(|peer| peer.node == Some(node));
            let connected = self.members.primary.then_some(false);
            self.add(MemberStatus {
                address: peer.map(|peer| short(&peer.address)).unwrap_or_default(),
                connected,
                connected_or_away_for: away_for.filter(|_| connected.is_some()),
                in_sync: connected,
                ..MemberStatus::unknown(node)
            });
        }
    }

    /// Asks the relays among those that are here which nodes they feed. Blocks for a time that is
    /// bounded.
    pub fn ask_relays(&mut self, credentials: &Credentials, hello: &Hello, relays: u8) {
        for status in &mut self.members.nodes {
            status.key = credentials.key_of(status.node).as_ref().map(fingerprint_text);
        }
        let relays = relays.min(RELAYS);
        let Some(below) = relays.checked_sub(1) else { return };
        let hello = Hello { purpose: Purpose::Members { relays: below }, ..hello.clone() };
        let patience = RELAY_PATIENCE * u32::from(relays);
        let is_asked = |status: &&MemberStatus| {
            status.role == MemberRole::Relay && status.connected == Some(true) && status.node != self.members.by
        };
        let asked: Vec<_> = self.members.nodes.iter().filter(is_asked).map(|relay| relay.address.clone()).collect();
        if asked.is_empty() {
            return;
        }
        let answers = ask_all(asked.into_iter(), |address| {
            call(credentials, address, &hello, self.members.term, patience).map(|(reply, _)| reply)
        });
        let theirs = answers.into_iter().filter_map(|(_, answer)| match answer {
            Ok(Reply::Members(theirs)) => Some(theirs.nodes.into_iter().take(MOST)),
            _ => None,
        });
        self.add_below(theirs.flatten());
    }

    /// What relays know of others. One that is fed there is not away, though it was fed by this
    /// node before; but commits may count on what it holds.
    fn add_below(&mut self, theirs: impl Iterator<Item = MemberStatus>) {
        let (here, away): (Vec<_>, Vec<_>) = theirs.partition(|status| status.follows.is_some());
        for status in here {
            let counts = self
                .votes
                .set
                .as_ref()
                .is_some_and(|set| set.may_have(status.node) || set.roster.voters.contains(&status.node));
            self.members.nodes.retain(|known| known.node != status.node || known.connected == Some(true) || counts);
            self.add(status);
        }
        // One that is away there may follow another node by now. Of nodes that no relay feeds, or
        // has fed, the primary knows more.
        let is_below = |status: &MemberStatus| status.role == MemberRole::Asynchronous;
        away.into_iter().filter(is_below).for_each(|status| self.add(status));
    }

    pub fn finish(self, terms: &Terms, standing: Option<&str>, no_primary: Option<String>) -> Members {
        let maintenance = terms.maintained().left();
        Members {
            standing: standing.map(str::to_owned),
            maintenance,
            no_primary: no_primary.as_deref().map(short),
            ..self.members
        }
    }
}

/// This node, which follows, as far as it knows itself.
pub(crate) fn of_itself<S: Store>(shared: &Shared<S>, role: MemberRole) -> MemberStatus {
    let (member, synchronous) = (shared.config.member, shared.config.synchronous);
    let role = match role {
        _ if !member => MemberRole::Archive,
        MemberRole::Standby if !synchronous => MemberRole::Asynchronous,
        role => role,
    };
    let follows = shared.follow.following();
    let no_vote = S::has_no_vote(shared).or((!synchronous).then_some(ASYNCHRONOUS)).map(str::to_owned);
    let own = MemberStatus::own(shared.node(), shared.address());
    MemberStatus { role, connected: Some(follows.is_some()), follows, no_vote, ..own }
}

/// What a node that follows says to another: what it knows by itself.
pub(crate) fn known<S: Store>(shared: &Shared<S>, relays: u8, no_primary: Option<String>) -> Members {
    let votes = Votes { safety: shared.level(), set: shared.terms.get().set };
    let own = S::member(shared);
    let mut table = Table::new(own, shared.terms.fence().highest(), false, votes);
    let (standbys, observers) = S::fed(shared);
    table.add_fed(&standbys, &observers, true);
    table.ask_relays(&shared.who.credentials, &shared.hello(Purpose::Identify), relays);
    // A node above, which asks, knows those itself.
    if no_primary.is_some() {
        table.add_missing(&shared.peers(), None);
    }
    table.finish(&shared.terms, None, no_primary)
}

/// What a node that follows knows of its cluster: it asks its primary. Blocks for a time that is
/// bounded.
pub(crate) fn of_cluster<S: Store>(shared: &Shared<S>) -> Members {
    let Some(address) = shared.followed_address() else {
        let why = match shared.terms.removal() {
            Some(_) => "an operator has removed it from the cluster",
            None => "it follows no primary at present",
        };
        return known(shared, RELAYS, Some(why.into()));
    };
    match ask_primary(shared, &address) {
        Ok(mut members) => {
            members.nodes.truncate(MOST);
            if members.nodes.len() < MOST && members.nodes.iter().all(|status| status.node != shared.node()) {
                members.nodes.push(S::member(shared));
            }
            members
        }
        Err(why) => known(shared, RELAYS, Some(why)),
    }
}

fn ask_primary<S: Store>(shared: &Shared<S>, address: &str) -> Result<Members, String> {
    let hello = shared.hello(Purpose::Members { relays: RELAYS });
    match call(&shared.who.credentials, address, &hello, shared.terms.fence().highest(), PATIENCE) {
        Ok((Reply::Members(members), _)) if members.primary => Ok(*members),
        Ok((Reply::Members(_), _)) => Err(format!("the node at {address} is not the primary")),
        Ok(_) => Err(CallError::Unexpected { address: address.to_owned() }.to_string()),
        Err(error) => Err(error.to_string()),
    }
}

/// Asks the node that listens for others at `address` what it knows by itself of its cluster, as a
/// client: with an operator's credentials, or as a process of its user on its machine. None if it
/// does not answer that. Each step takes at most `patience`.
pub fn ask_members(
    address: &str,
    cluster: ClusterId,
    credentials: Option<&Credentials>,
    patience: Duration,
) -> Option<Members> {
    let purpose = Purpose::Members { relays: 0 };
    let hello = Hello { cluster: Some(cluster), node: NodeId(0), address: String::new(), purpose };
    match call_as_client(credentials, address, &hello, patience) {
        Ok(Reply::Members(members)) => Some(*members),
        _ => None,
    }
}

/// Of a primary that is asked by its own operator.
pub(crate) const FROM_ABOVE: u8 = RELAYS;

#[cfg(test)]
mod tests;
