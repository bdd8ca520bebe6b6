//! Switch-over: drives [`freshet_cluster::switch_over`]. The caller's thread looks every
//! millisecond; the standby's first question comes by another one ([`Shared::hand_over`]).

use std::time::{Duration, Instant};

use freshet_base::{
    CommitGate, Lsn, NodeId, Term, lock,
    sync::Arc,
    wait::{self, Patience},
};
use freshet_cluster::switch_over::{HandOver, Next, NotHandedOver, Seen, Successor, SwitchOver, SwitchOverConfig};

use super::{Primary, Shared};
use crate::{
    endpoint::call,
    members::{FROM_ABOVE, MemberRole, MemberStatus, is_named, short},
    status::StandbyStatus,
    wire::{Hello, Purpose, Refusal, Reply},
};

/// How often it is looked.
const LOOK: Duration = Duration::from_millis(1);
/// How long each step of asking the standby may take: less than it has to consult this node.
const ASKS: Duration = Duration::from_millis(100);
/// How long the standby may take to lead once it has the promise of this node.
const LEADS: Duration = Duration::from_secs(10);

/// What of a database's transactions is under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnderWay {
    /// Some have written and are open.
    pub open: bool,
    /// Some are taking their LSN.
    pub committing: bool,
}

/// Who leads in place of this node.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct SwitchedOver {
    /// The node.
    pub node: NodeId,
    /// Where other nodes reach it.
    pub address: String,
    /// The term of the primary before: the new one is later.
    pub after: Term,
    /// Everything below was acknowledged before the role moved.
    pub at: Lsn,
}

/// Why the role has not moved, or not to its end.
#[derive(Debug, thiserror::Error)]
pub enum SwitchOverError {
    /// There is one already.
    #[error("a switch-over to {0} is under way")]
    UnderWay(NodeId),
    /// No standby can take the role at this moment.
    #[error(
        "no standby can take the role: none is connected, in sync, no mirror, and not in doubt of its state; see \
         freshet members"
    )]
    Nobody,
    /// The node that is named cannot.
    #[error("{who} cannot take the role: {why}")]
    Unfit {
        /// As it was named.
        who: String,
        /// What it is.
        why: Unfit,
    },
    /// It was given up, and this node is the primary as before.
    #[error("the role was not handed to {to}, and nothing has changed: {why}")]
    NotHandedOver {
        /// Who was to have it.
        to: NodeId,
        /// Why.
        why: NotHandedOver,
    },
    /// Another term has ended this one's on the way.
    #[error(
        "the term of this node ended before its role was handed to {0}: another node leads, or is about to; see \
         freshet status"
    )]
    Deposed(NodeId),
    /// The standby has the promise of this node, and has not said that it leads.
    #[error(
        "{0} was handed the role and does not say that it leads yet: this node is no primary any more, and nothing is \
         lost; see freshet status of both"
    )]
    NotLeadingYet(NodeId),
    /// There is no random number.
    #[error("no random number can be had: {0}")]
    Random(String),
}

/// Why a node cannot take the role of its primary, whatever it does next.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unfit {
    /// It has it.
    #[error("that is this node, which is the primary")]
    Leads,
    /// No node is known by that name.
    #[error("this cluster knows no such node; name it by its id or its address for other nodes, as in freshet members")]
    Unknown,
    /// It has no log to continue.
    #[error("it is a mirror; freshet promote makes it the primary")]
    Mirror,
    /// It may lack what was acknowledged.
    #[error("it is asynchronous, so no commit waits for it and it may lack some")]
    Asynchronous,
    /// This primary does not feed it.
    #[error("it follows a relay, and has to follow the primary itself")]
    BelowRelay,
    /// It has nothing to lead with.
    #[error("it is a witness, which has no data")]
    Witness,
    /// It is no member.
    #[error("it is an archive, or its checkpoint is still on its way")]
    Archive,
    /// It may be anything.
    #[error("it is away, and has not been here in this term")]
    Away,
    /// It has no vote for another reason.
    #[error("it has no vote: {0}")]
    NoVote(String),
}

impl Primary {
    /// Hands the role of this primary to the standby `to`, named by its id or address; to the one
    /// that is nearest where that is `None`. Blocks until that node leads, or the role stays here:
    /// ten seconds for it to come near, and half a second in which transactions that would begin
    /// wait ([`freshet_cluster::switch_over`]). `transactions` says what is under way.
    ///
    /// # Errors
    /// [`SwitchOverError`]; but for [`SwitchOverError::Deposed`] and
    /// [`SwitchOverError::NotLeadingYet`] this node continues as before.
    pub fn switch_over(
        &self,
        to: Option<&str>,
        transactions: &dyn Fn() -> UnderWay,
    ) -> Result<SwitchedOver, SwitchOverError> {
        let shared = &self.shared;
        let target = shared.successor_named(to).ok_or_else(|| match to {
            Some(who) => SwitchOverError::Unfit { who: short(who), why: shared.unfit(who) },
            None => SwitchOverError::Nobody,
        })?;
        let number = freshet_membership::random().map_err(|cause| SwitchOverError::Random(cause.to_string()))?;
        let hand_over = HandOver { by: shared.who.node, term: shared.who.term, number };
        {
            let mut switching = lock(&shared.switching);
            if let Some(other) = &*switching {
                return Err(SwitchOverError::UnderWay(other.to()));
            }
            let now = shared.commit.now();
            *switching = Some(SwitchOver::new(target.node, hand_over, SwitchOverConfig::default(), now));
        }
        tracing::info!(to = %target.node, term = shared.who.term.0, "a switch-over begins");
        let handed = shared.drive(&target, transactions);
        *lock(&shared.switching) = None;
        match handed {
            Ok(at) => shared.wait_for_lead(&target, at),
            Err(NotHandedOver::LeadsNot) => Err(SwitchOverError::Deposed(target.node)),
            Err(why) => {
                shared.commit.release();
                tracing::warn!(to = %target.node, %why, "the switch-over did not take place");
                Err(SwitchOverError::NotHandedOver { to: target.node, why })
            }
        }
    }
}

impl Shared {
    /// The standby with this id or address, if it may lead once it is connected and in sync;
    /// without a name the one of those that are which holds most.
    fn successor_named(&self, who: Option<&str>) -> Option<StandbyStatus> {
        let is_named = |standby: &StandbyStatus| match who {
            Some(who) => is_named(who, standby.node, &standby.address),
            None => self.counts(standby),
        };
        // One that is away seems to be a mirror.
        let fits = |standby: &StandbyStatus| {
            standby.synchronous && !standby.in_doubt && !(standby.connected && standby.mirror) && is_named(standby)
        };
        self.standbys().into_iter().filter(fits).max_by_key(|standby| (standby.replayed, standby.acked))
    }

    /// Why the node of this name cannot lead. Asks relays, and blocks for a time that is bounded.
    fn unfit(&self, who: &str) -> Unfit {
        let members = self.known_members(FROM_ABOVE);
        let is_it = |member: &&MemberStatus| is_named(who, member.node, &member.address);
        let Some(member) = members.nodes.iter().find(is_it) else { return Unfit::Unknown };
        match member.role {
            MemberRole::Primary | MemberRole::Deposed => Unfit::Leads,
            MemberRole::Mirror => Unfit::Mirror,
            _ if self.commit.places().get(&member.node).is_some_and(|it| !it.synchronous) => Unfit::Asynchronous,
            MemberRole::Asynchronous => Unfit::BelowRelay,
            MemberRole::Archive => Unfit::Archive,
            MemberRole::Witness => Unfit::Witness,
            MemberRole::Unknown => Unfit::Away,
            // It may have become fit in the meantime.
            MemberRole::Standby | MemberRole::Relay => {
                Unfit::NoVote(member.no_vote.clone().unwrap_or_else(|| "not a moment ago".into()))
            }
        }
    }

    fn standbys(&self) -> Vec<StandbyStatus> {
        self.feeds.standbys(self.commit.places(), self.commit.committed())
    }

    /// Whether commits count on this standby, or on none at all.
    fn counts(&self, standby: &StandbyStatus) -> bool {
        standby.connected && standby.synchronous && (standby.in_sync || self.commit.level().counts_on_nobody())
    }

    fn seen(&self, to: NodeId, transactions: &dyn Fn() -> UnderWay) -> Seen {
        // Before the end is read: a transaction that commits then has taken no LSN beyond it.
        let UnderWay { open, committing } = transactions();
        let of = |standby: StandbyStatus| Successor {
            in_sync: self.counts(&standby),
            persisted: standby.acked,
            replayed: standby.replayed,
        };
        let standby = self.standbys().into_iter().find(|standby| standby.node == to && standby.connected);
        Seen {
            leads: !self.stopping() && !self.is_fenced(),
            open,
            committing,
            end: self.log.reserved(),
            committed: self.commit.reached().get(),
            successor: standby.map(of),
        }
    }

    /// Goes through the steps; returns how far the log was acknowledged when the role went.
    fn drive(
        self: &Arc<Self>,
        target: &StandbyStatus,
        transactions: &dyn Fn() -> UnderWay,
    ) -> Result<Lsn, NotHandedOver> {
        let mut at = Lsn::ZERO;
        loop {
            let seen = self.seen(target.node, transactions);
            let next = lock(&self.switching).as_mut().expect("it is under way").next(self.commit.now(), &seen);
            let next = match next {
                Next::Offer(hand_over) => {
                    at = seen.committed;
                    match self.offer(&target.address, hand_over) {
                        Ok(()) => Next::Look,
                        Err(cause) => {
                            tracing::warn!(to = %target.node, cause, "the standby cannot be asked to take the role");
                            lock(&self.switching).as_mut().expect("it is under way").declined()
                        }
                    }
                }
                other => other,
            };
            match next {
                Next::Hold => self.commit.hold(),
                Next::Close => self.commit.close(),
                Next::HandedOver => return Ok(at),
                Next::Stop(why) => return Err(why),
                Next::Look | Next::Offer(_) => {
                    // What is under way is to become durable now, not with the next batch.
                    self.log.force_fence(seen.end);
                    wait::sleep(Patience::endless().until(Instant::now() + LOOK));
                }
            }
        }
    }

    fn offer(&self, address: &str, hand_over: HandOver) -> Result<(), String> {
        let hello = Hello {
            cluster: Some(self.who.cluster),
            node: self.who.node,
            address: self.who.address.clone(),
            purpose: Purpose::HandOver(hand_over),
        };
        match call(&self.who.credentials, address, &hello, self.who.term, ASKS) {
            Ok((Reply::Noted, _)) => Ok(()),
            Ok(_) => Err(format!("{address} gave an answer that does not fit")),
            Err(cause) => Err(cause.to_string()),
        }
    }

    /// A candidate asks for the promise that ends this term, since it was offered the role with
    /// this number.
    ///
    /// # Errors
    /// [`Refusal`]: the offer does not stand, or not any more.
    pub(super) fn hand_over(&self, node: NodeId, number: u64) -> Result<(), Refusal> {
        let is_offered = || lock(&self.switching).as_mut().is_some_and(|it| it.hand_over(node, number));
        if self.is_fenced() || is_offered() { Ok(()) } else { Err(self.led_by()) }
    }

    /// This node leads.
    pub(super) fn led_by(&self) -> Refusal {
        Refusal::LedBy { node: self.who.node, term: self.who.term, primary: Some(self.who.address.clone()) }
    }

    /// Blocks until the node leads that has the role.
    fn wait_for_lead(&self, target: &StandbyStatus, at: Lsn) -> Result<SwitchedOver, SwitchOverError> {
        let leads = || self.successor().leads.then_some(());
        let patience = Patience::endless().until(Instant::now() + LEADS);
        if wait::poll(LOOK, patience, leads).is_err() {
            return Err(SwitchOverError::NotLeadingYet(target.node));
        }
        tracing::info!(to = %target.node, lsn = at.0, "the role of the primary has moved to another node");
        Ok(SwitchedOver { node: target.node, address: target.address.clone(), after: self.who.term, at })
    }
}
