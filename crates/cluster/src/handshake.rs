//! Who may follow whom, and from where: decided from what both sides say, without any I/O.

use freshet_base::{ClusterId, Lsn, NodeId, Term};
use serde::{Deserialize, Serialize};

use crate::{
    in_sync::{InSyncSet, SetName},
    maintenance::Notice,
    promotion::Testimony,
    term::{Agreement, Living, TermHistory, TermState},
};

/// Where a log stands that wants to be continued.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Continue {
    /// Its terms.
    pub history: TermHistory,
    /// Its end.
    pub received: Lsn,
    /// The end of its persistent part.
    pub persisted: Lsn,
    /// How many bytes its ring holds.
    pub capacity: u64,
    /// Where its ring has room up to.
    pub may_send_until: Lsn,
}

/// How a log continues.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Welcome {
    /// The cluster; an empty standby adopts it.
    pub cluster: ClusterId,
    /// Who sends.
    pub node: NodeId,
    /// Whose log the sender's is, from the primary on, if it is a relay.
    pub above: Vec<NodeId>,
    /// The primary's term.
    pub term: Term,
    /// Its terms.
    pub history: TermHistory,
    /// The receiver's log is the sender's up to here: cut what lies beyond. Blocks follow from
    /// here.
    pub cut_at: Lsn,
    /// Where the sender's log ends now; for Fetch also where the blocks will end.
    pub end: Lsn,
    /// The sender is silent no longer than this, in milliseconds.
    pub keep_alive_ms: u32,
    /// For how long each answer grants the primary a lease, in milliseconds ([`crate::lease`]); 0
    /// if it asks for none.
    pub lease_ms: u32,
}

impl Welcome {
    /// Through whom the log comes, from the primary on.
    pub fn path(&self) -> Vec<NodeId> {
        self.above.iter().copied().chain([self.node]).collect()
    }
}

/// Why a connection is refused or ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub enum Refusal {
    /// Two clusters met.
    #[error("{node} belongs to cluster {theirs}, not to {ours}: check the address, or start with an empty directory")]
    OtherCluster {
        /// Who refuses.
        node: NodeId,
        /// Its cluster.
        theirs: ClusterId,
        /// The cluster of the node that connected.
        ours: ClusterId,
    },
    /// A later term is in force.
    #[error("term {asked} is over: {} is in force{}", in_force(*.asked, *.highest, *.holder), at(.primary))]
    Fenced {
        /// The term of the node that is refused.
        asked: Term,
        /// The term in force.
        highest: Term,
        /// Its holder, where known.
        holder: Option<NodeId>,
        /// Where that can be reached, if known.
        primary: Option<String>,
    },
    /// Only a primary has standbys.
    #[error("{node} is not a primary{}", at(.primary))]
    NotPrimary {
        /// Who refuses.
        node: NodeId,
        /// Whom it follows, if anybody.
        primary: Option<String>,
    },
    /// To a primary of before that comes back: another node leads.
    #[error("{node} is the primary in term {term}{}", at(.primary))]
    LedBy {
        /// Who leads.
        node: NodeId,
        /// In which term.
        term: Term,
        /// Where that node can be reached, if known.
        primary: Option<String>,
    },
    /// To a node that stands by itself: no node takes over without an operator at present.
    #[error(
        "maintenance lasts for another {} s: no node takes over by itself; freshet promote does it by hand, freshet \
         maintenance --end ends it", .notice.left.as_secs()
    )]
    Maintenance {
        /// Who refuses.
        node: NodeId,
        /// What it knows of that.
        notice: Notice,
    },
    /// Two nodes led in the same term.
    #[error(
        "the logs cannot be reconciled: term {term} was begun twice, at {here} in the one and at {there} in the other, \
         by a node whose directory was set back, or copied; they are the same up to {upto}. See what each node holds \
         (freshet status), and decide: freshet promote --force makes the node the primary whose log is right; keep the \
         directory of the other aside, and start it with a new one"
    )]
    SameTermTwice {
        /// That term.
        term: Term,
        /// Up to here the logs are the same.
        upto: Lsn,
        /// In the log of the node that refuses.
        here: Lsn,
        /// In the other.
        there: Lsn,
    },
    /// The standby's ring, or a mirror's undo ring, cannot hold what is sent at once.
    #[error(
        "a log buffer, or a mirror's undo ring, of {capacity} bytes is too small for this primary: set \
         log.buffer-bytes there to at least {needed}"
    )]
    BufferTooSmall {
        /// The one that is too small.
        capacity: u64,
        /// What it takes.
        needed: u64,
    },
    /// The log that a standby or a mirror lacks is not there any more.
    #[error(
        "the log from {from} on is no longer kept there: {why}; keep this node's directories aside and start it with \
         new ones, to begin from a checkpoint (a mirror does so by itself, as soon as there is one)"
    )]
    LogGone {
        /// What is lacking.
        from: Lsn,
        /// What the log says.
        why: String,
    },
    /// To a mirror.
    #[error("the primary cannot keep this mirror: {0}")]
    NoMirror(String),
    /// To a candidate that wants the log.
    #[error("{node} is a mirror, which keeps rows and no log: take over with a node that has the log, or with force")]
    NoLog {
        /// Who refuses.
        node: NodeId,
    },
    /// To a standby that could not regenerate a block, and wants its bytes.
    #[error("{why}")]
    NoBlock {
        /// What is here instead.
        why: String,
        /// Whether the block may come here yet.
        comes: bool,
    },
    /// A node met itself.
    #[error("{node} connected to itself: check the address of the primary")]
    Myself {
        /// That node.
        node: NodeId,
    },
    /// A relay was asked by one whose log its own is.
    #[error("{node} follows {above}, so {above} cannot follow it")]
    Circle {
        /// Who refuses.
        node: NodeId,
        /// Who asked.
        above: NodeId,
    },
    /// A relay cannot say yet how a log continues: come again.
    #[error("{node} cannot be followed yet: {why}")]
    Later {
        /// Who refuses.
        node: NodeId,
        /// What has to happen first.
        why: Wait,
    },
    /// The caller has not proved its id, or may not ask this.
    #[error("not a member of this cluster: {0}")]
    NotMember(String),
    /// A newcomer is refused.
    #[error("{0}")]
    NotEnrolled(String),
    /// No honest node can have reached such a term.
    #[error(
        "term {asked} is impossible: the latest that this node knows of is {highest}; \
         see \"A wrong term\" in docs/operations.md"
    )]
    Leap {
        /// The term that was claimed.
        asked: Term,
        /// The latest one known here.
        highest: Term,
    },
    /// The other side did what it should not.
    #[error("protocol violation: {0}")]
    Violation(String),
    /// The node cannot go on.
    #[error("the node cannot continue: {0}")]
    Failed(String),
    /// An operator has removed the other side from the cluster ([`crate::in_sync::Roster`]).
    #[error(
        "node {node} was removed from the cluster, as in-sync set {} of the term {} of node {} says: it is no member, \
         and may not come back with what it has; wipe its directory, or keep it aside, and let it join as a new node \
         (--join, with a new token, or with a certificate for a new id)", .record.2, .record.0.0, .record.1
    )]
    Removed {
        /// Who was removed.
        node: NodeId,
        /// The set that says so.
        record: SetName,
    },
    /// A newer connection of the same standby took its place, or the node stops.
    #[error("the connection is no longer needed: {0}")]
    Superseded(String),
    /// To a candidate: what this node holds must not be compared with what others hold.
    #[error("{why}")]
    NoVote {
        /// Who refuses.
        node: NodeId,
        /// What it knows all the same.
        testimony: Box<Testimony>,
        /// Why.
        why: String,
    },
    /// To a mirror: it has yet to note the newest in-sync set, and comes again then.
    #[error("the mirror has to note the in-sync set {} of term {} first", .set.number, .set.term)]
    NoteSet {
        /// That set.
        set: Box<InSyncSet>,
    },
    /// By a node that would have to give up what was acknowledged to clients.
    #[error(
        "node {node} has what was acknowledged to clients up to {committed}, and the log that it is to follow parts \
         from its own at {at}: it keeps what it has, and follows only a primary that has that too. See what each node \
         holds (freshet status), and decide: freshet promote --force makes this node the primary with what it holds; \
         or keep its directory aside, and start it with a new one"
    )]
    HoldsMore {
        /// Which node.
        node: NodeId,
        /// Where the logs part.
        at: Lsn,
        /// Everything below was acknowledged.
        committed: Lsn,
    },
    /// To a mirror, or by one: what it holds must not be given up for the log that it is to follow.
    #[error(
        "mirror {node} knows that the log of term {term} is committed up to {end}, and has all of it; the log that it \
         is to follow has of that only what is below {here}. It keeps what it has, and does not follow: acknowledged \
         commits would be lost. To continue with what the mirror has, promote it with force; only if what is beyond \
         {here} is not wanted any more, let it begin again with `freshet refill`"
    )]
    MirrorHoldsMore {
        /// The mirror.
        node: NodeId,
        /// The newest term of what it has.
        term: Term,
        /// Up to where that is known to be committed.
        end: Lsn,
        /// Up to where the other log is the same.
        here: Lsn,
    },
    /// To a primary of before that comes back: the nodes that it has left choose a successor.
    #[error("{node} has lost its primary, and is about to take over, or another node is")]
    Elects {
        /// Who refuses.
        node: NodeId,
    },
}

impl Refusal {
    /// The answer to a node that speaks for term `asked`, which is refused because `highest` is in
    /// force: it is of the past, or cannot be.
    pub fn of_term(asked: Term, highest: Term, holder: Option<NodeId>, primary: Option<String>) -> Self {
        match asked > highest {
            true => Self::Leap { asked, highest },
            false => Self::Fenced { asked, highest, holder, primary },
        }
    }
}

/// Why a relay asks to come again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub enum Wait {
    /// It follows nobody at present.
    #[error("it follows no node at present")]
    Lost,
    /// Its log is the shorter one.
    #[error("its log ends at {end}, this one at {received}")]
    Behind {
        /// Where its log ends.
        end: Lsn,
        /// Where the other's ends.
        received: Lsn,
    },
}

/// Two nodes may lead in terms of one number.
fn in_force(asked: Term, highest: Term, holder: Option<NodeId>) -> String {
    match holder.filter(|_| asked == highest) {
        Some(holder) => format!("term {highest} of another node, {holder},"),
        None if asked == highest => format!("term {highest} of another node"),
        None => format!("term {highest}"),
    }
}

fn at(primary: &Option<String>) -> String {
    primary.as_ref().map_or(String::new(), |address| format!("; the primary is at {address}"))
}

/// The side that has the log.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Sender {
    /// Its cluster.
    pub cluster: ClusterId,
    /// Itself.
    pub node: NodeId,
    /// Whose log its own is, from the primary on; nobody's if it is the primary.
    pub above: Vec<NodeId>,
    /// The term in which it sends.
    pub term: Term,
    /// Its terms.
    pub history: TermHistory,
    /// How far its log reaches: everything that may have been sent to anybody lies below.
    pub end: Lsn,
    /// The smallest ring to which every block can be sent.
    pub needed_capacity: u64,
    /// It sends something at least this often, in milliseconds.
    pub keep_alive_ms: u32,
    /// The primary's leases, in milliseconds; 0 if it has none.
    pub lease_ms: u32,
}

/// What was agreed, from the sender's side.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Agreed {
    /// To be sent to the receiver.
    pub welcome: Welcome,
    /// Persistent at the receiver, once it has cut its log.
    pub persisted: Lsn,
    /// Where the receiver's ring has room up to, once it has cut its log.
    pub may_send_until: Lsn,
}

/// Decides whether the node that introduces itself may continue its log from this sender's.
///
/// # Errors
/// [`Refusal`], to be sent to it. [`Refusal::Fenced`] with a term above the sender's means that the
/// sender itself is of the past.
pub fn consider(
    sender: &Sender,
    cluster: Option<ClusterId>,
    node: NodeId,
    fence: Term,
    log: &Continue,
) -> Result<Agreed, Refusal> {
    check_cluster(sender.node, Some(sender.cluster), cluster)?;
    if node == sender.node {
        return Err(Refusal::Myself { node });
    }
    if sender.above.contains(&node) {
        return Err(Refusal::Circle { node: sender.node, above: node });
    }
    if fence > sender.term {
        return Err(Refusal::Fenced { asked: sender.term, highest: fence, holder: None, primary: None });
    }
    if log.capacity < sender.needed_capacity {
        return Err(Refusal::BufferTooSmall { capacity: log.capacity, needed: sender.needed_capacity });
    }
    if log.persisted > log.received {
        return Err(Refusal::Violation("more of a log is persistent than there is".into()));
    }
    let cut_at = agree(&sender.history, sender.end, &log.history, log.received)?;
    if !sender.above.is_empty() && cut_at == sender.end && log.received > cut_at {
        // That a relay is merely behind is no reason to forget anything: it may be committed, and
        // readers may have seen it.
        return Err(Refusal::Later {
            node: sender.node,
            why: Wait::Behind { end: sender.end, received: log.received },
        });
    }
    let room = cut_at.0.saturating_add(log.capacity);
    Ok(Agreed {
        persisted: log.persisted.min(cut_at),
        may_send_until: Lsn(log.may_send_until.0.min(room)),
        welcome: Welcome {
            cluster: sender.cluster,
            node: sender.node,
            above: sender.above.clone(),
            term: sender.term,
            history: sender.history.clone(),
            cut_at,
            end: sender.end,
            keep_alive_ms: sender.keep_alive_ms,
            lease_ms: sender.lease_ms,
        },
    })
}

/// Whether a caller of cluster `ours` may talk to `node`, which belongs to `theirs`. One without a
/// cluster may.
///
/// # Errors
/// [`Refusal::OtherCluster`].
pub fn check_cluster(node: NodeId, theirs: Option<ClusterId>, ours: Option<ClusterId>) -> Result<(), Refusal> {
    match (theirs, ours) {
        (Some(theirs), Some(ours)) if ours != theirs => Err(Refusal::OtherCluster { node, theirs, ours }),
        _ => Ok(()),
    }
}

/// Whether `node` may be answered by one that remembers `state`: an operator has not removed it
/// from the cluster.
///
/// # Errors
/// [`Refusal::Removed`].
pub fn check_belongs(node: NodeId, state: &TermState) -> Result<(), Refusal> {
    state.removal_of(node).map_or(Ok(()), |record| Err(Refusal::Removed { node, record }))
}

/// A candidate that no operator has asked to lead, and that had heard of terms up to `gives_way`,
/// gives way to a living term that outranks it ([`Living::outranks`]). For a node that was told to
/// take over, `gives_way` is empty, and it never gives way.
///
/// # Errors
/// [`Refusal::LedBy`], with the address of the one that leads if it is known.
pub fn check_gives_way(
    node: NodeId,
    gives_way: Option<Term>,
    living: impl FnOnce() -> Option<(Living, Option<String>)>,
) -> Result<(), Refusal> {
    let Some(latest) = gives_way else { return Ok(()) };
    match living().filter(|(living, _)| living.outranks(node, latest)) {
        Some((Living { term, node }, primary)) => Err(Refusal::LedBy { node, term, primary }),
        None => Ok(()),
    }
}

/// A former primary that comes back, and sounds out whether it could lead in `term`, lets those
/// choose a successor who are about to ([`crate::watch::Watch::elects`]). To be asked of a question
/// that asks for no promise. A question for the term that the asker knows only looks for the
/// primary, and is not held up.
///
/// # Errors
/// [`Refusal::Elects`], of this `node`.
pub fn check_elects(
    node: NodeId,
    (term, gives_way): (Term, Option<Term>),
    elects: impl FnOnce() -> bool,
) -> Result<(), Refusal> {
    let sounds_out = gives_way.is_some_and(|latest| latest < term);
    if sounds_out && elects() { Err(Refusal::Elects { node }) } else { Ok(()) }
}

fn agree(ours: &TermHistory, end: Lsn, theirs: &TermHistory, their_end: Lsn) -> Result<Lsn, Refusal> {
    match ours.agreement(end, theirs, their_end) {
        Agreement::Upto(lsn) => Ok(lsn),
        Agreement::SameTermTwice { term, upto, here, there } => Err(Refusal::SameTermTwice { term, upto, here, there }),
    }
}

/// The receiver checks what it was answered, with its own eyes.
///
/// # Errors
/// [`Refusal`], to be sent back.
pub fn check_welcome(
    welcome: &Welcome,
    cluster: Option<ClusterId>,
    history: &TermHistory,
    received: Lsn,
) -> Result<(), Refusal> {
    if let Some(ours) = cluster.filter(|ours| *ours != welcome.cluster) {
        return Err(Refusal::OtherCluster { node: welcome.node, theirs: welcome.cluster, ours });
    }
    let cut_at = agree(&welcome.history, welcome.end, history, received)?;
    if cut_at != welcome.cut_at {
        return Err(Refusal::Violation(format!(
            "the sender wants the log cut at {}, the terms of both say {cut_at}",
            welcome.cut_at
        )));
    }
    if !welcome.above.is_empty() && cut_at == welcome.end && received > cut_at {
        return Err(Refusal::Violation("a relay that is behind must not have the log cut".into()));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::term::TermEntry;

    fn history(entries: &[(u32, u64)]) -> TermHistory {
        let entries: Vec<_> = entries
            .iter()
            .map(|(t, s)| TermEntry { term: Term(*t), start: Lsn(*s), node: NodeId(1), nonce: 1 })
            .collect();
        entries.try_into().unwrap()
    }

    fn sender() -> Sender {
        Sender {
            cluster: ClusterId(7),
            node: NodeId(1),
            above: Vec::new(),
            term: Term(3),
            history: history(&[(1, 0), (3, 500)]),
            end: Lsn(900),
            needed_capacity: 100,
            keep_alive_ms: 200,
            lease_ms: 0,
        }
    }

    fn log(entries: &[(u32, u64)], received: u64) -> Continue {
        Continue {
            history: history(entries),
            received: Lsn(received),
            persisted: Lsn(received),
            capacity: 1000,
            may_send_until: Lsn(received + 1000),
        }
    }

    #[test]
    fn an_empty_standby_adopts_the_cluster_and_starts_at_zero() {
        let agreed = consider(&sender(), None, NodeId(2), Term(0), &log(&[], 0)).unwrap();
        assert_eq!((agreed.welcome.cut_at, agreed.welcome.cluster), (Lsn(0), ClusterId(7)));
        check_welcome(&agreed.welcome, None, &TermHistory::default(), Lsn(0)).unwrap();
    }

    #[test]
    fn an_old_primary_cuts_what_was_never_acknowledged() {
        let old = log(&[(1, 0)], 640);
        let agreed = consider(&sender(), Some(ClusterId(7)), NodeId(2), Term(1), &old).unwrap();
        assert_eq!((agreed.welcome.cut_at, agreed.persisted), (Lsn(500), Lsn(500)));
        assert_eq!(agreed.may_send_until, Lsn(1500), "the ring has less room once the log is shorter");
        check_welcome(&agreed.welcome, Some(ClusterId(7)), &old.history, Lsn(640)).unwrap();
        let lie = Welcome { cut_at: Lsn(400), ..agreed.welcome };
        assert!(matches!(check_welcome(&lie, Some(ClusterId(7)), &old.history, Lsn(640)), Err(Refusal::Violation(_))));
    }

    #[test]
    fn strangers_are_refused_with_a_reason() {
        let refusal = |cluster, node, fence, log: &Continue| {
            consider(&sender(), cluster, NodeId(node), Term(fence), log).unwrap_err().to_string()
        };
        let good = log(&[(1, 0)], 100);
        let text = refusal(Some(ClusterId(8)), 2, 1, &good);
        assert!(text.contains("belongs to cluster") && text.contains("empty directory"), "{text}");
        assert!(refusal(None, 1, 1, &good).contains("itself"));
        assert!(refusal(None, 2, 4, &good).contains("term 3 is over: term 4"));
        assert!(refusal(None, 2, 1, &Continue { capacity: 99, ..good.clone() }).contains("at least 100"));
        assert!(refusal(None, 2, 3, &log(&[(1, 0), (3, 400)], 600)).contains("cannot be reconciled"));
        let same = |holder| Refusal::of_term(Term(3), Term(3), holder, None).to_string();
        assert_eq!(same(None), "term 3 is over: term 3 of another node is in force");
        assert!(same(Some(NodeId(7))).contains("another node, 0000000000000007, is in force"));
        assert!(refusal(None, 2, 3, &Continue { persisted: Lsn(101), ..good }).contains("violation"));
    }
    #[test]
    fn a_relay_follows_none_of_its_own_and_cuts_none_that_is_ahead() {
        let relay = Sender { above: vec![NodeId(9)], ..sender() };
        let ours = log(&[(1, 0), (3, 500)], 950);
        let ask = |node| consider(&relay, None, NodeId(node), Term(3), &ours);
        assert!(matches!(ask(9), Err(Refusal::Circle { .. })));
        assert!(matches!(ask(2), Err(Refusal::Later { why: Wait::Behind { .. }, .. })));
        let welcome = consider(&sender(), None, NodeId(2), Term(3), &ours).unwrap().welcome;
        assert_eq!(check_welcome(&welcome, None, &ours.history, Lsn(950)), Ok(()), "a primary may");
        let relayed = Welcome { above: vec![NodeId(9)], ..welcome.clone() };
        assert!(matches!(check_welcome(&relayed, None, &ours.history, Lsn(950)), Err(Refusal::Violation(_))));
        let other = check_welcome(&welcome, Some(ClusterId(8)), &ours.history, Lsn(950));
        assert!(matches!(other, Err(Refusal::OtherCluster { .. })));
    }

    #[test]
    fn only_who_gives_way_gives_way_to_a_living_term() {
        let asks = |gives_way: Option<u32>, node| {
            let living = || Some((Living { term: Term(3), node: NodeId(node) }, None));
            check_gives_way(NodeId(2), gives_way.map(Term), living)
        };
        assert!(matches!(asks(Some(3), 5), Err(Refusal::LedBy { .. })));
        assert_eq!((asks(Some(4), 5), asks(Some(3), 2), asks(None, 5)), (Ok(()), Ok(()), Ok(())));
    }
}
