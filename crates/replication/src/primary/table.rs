//! Which nodes there are, as the primary knows it ([`crate::members`]).

use std::{
    collections::BTreeSet,
    time::{Duration, Instant},
};

use freshet_base::{
    NodeId,
    wait::{self, Patience},
};
use freshet_cluster::commit_rule::{Member, Standing};

use super::Shared;
use crate::{
    maintenance::{Caller, Order, Ordered},
    members::{FROM_ABOVE, MemberRole, MemberStatus, Members, Table, Votes},
    status::{Lag, PrimaryStatus},
    whole_cluster::WholeCluster,
    wire::{Hello, Purpose, Reply},
};

/// A node that others do not reach has this long to answer this primary, and is looked for so
/// often. One that has stopped is not cut off.
const ANSWERS: Duration = Duration::from_millis(700);
const LOOK: Duration = Duration::from_millis(5);

impl Shared {
    /// Answers who asks which nodes there are, or is a witness, or speaks of maintenance.
    pub(super) fn of_cluster(&self, hello: &Hello) -> Reply {
        match &hello.purpose {
            Purpose::Restart => self.terms.maintained().take(Order::Restart),
            Purpose::Stop => self.terms.maintained().take(Order::Stop),
            Purpose::Witness => self.witness_comes(hello).map_or_else(Reply::Refused, |()| Reply::Noted),
            Purpose::Members { relays: 0 } => Reply::Members(Box::new(self.known_members(0))),
            Purpose::Members { relays } => Reply::Members(Box::new(self.asked_members(*relays))),
            Purpose::Maintenance(notice) => {
                self.terms.maintained().observe(*notice);
                Reply::Maintenance(self.terms.maintained().notice())
            }
            _ => unreachable!("this is asked with those purposes only"),
        }
    }

    /// Asks relays through `relays` of them, one below the other. Blocks for a time that is
    /// bounded.
    pub(super) fn known_members(&self, relays: u8) -> Members {
        let (table, standing) = self.table(relays);
        self.finish(table, &standing)
    }

    /// The same, and voters which of the others they reach.
    pub(super) fn asked_members(&self, relays: u8) -> Members {
        let (mut table, standing) = self.table(relays);
        if !is_over(&standing) {
            let register = self.terms.register().map(|register| register.node());
            table.ask_voters(&self.who.credentials, &self.hello(Purpose::Identify), &self.reach, register);
            table.leave_unreached(|nodes| self.answer_now(nodes));
        }
        self.finish(table, &standing)
    }

    /// Which of these nodes answer this primary now. Blocks until they do, or have not for
    /// [`ANSWERS`].
    fn answer_now(&self, nodes: BTreeSet<NodeId>) -> BTreeSet<NodeId> {
        let asked = self.commit.now();
        let answered = || {
            let (_, _, mut members) = self.commit.reading();
            members.extend(self.commit.witness_place());
            let is_there = |node: &&NodeId| {
                let member = members.get(node).filter(|member| member.connected);
                member.and_then(Member::observed).is_some_and(|observed| observed >= asked)
            };
            nodes.iter().filter(is_there).copied().collect::<BTreeSet<_>>()
        };
        let patience = Patience::endless().until(Instant::now() + ANSWERS);
        wait::poll(LOOK, patience, || Some(answered()).filter(|some| *some == nodes)).unwrap_or_else(|_| answered())
    }

    fn finish(&self, table: Table, standing: &Standing) -> Members {
        let no_primary = is_over(standing).then(|| "the term of this primary is over".to_owned());
        table.finish(&self.terms, Some(word(standing)), no_primary)
    }

    fn table(&self, relays: u8) -> (Table, Standing) {
        let PrimaryStatus {
            standing,
            level_pending,
            set_pending,
            mut standbys,
            observers,
            witness,
            available,
            durable,
            ..
        } = self.status();
        let fenced = is_over(&standing);
        // This primary may have known one that is away as a standby only: the primary of before.
        for standby in standbys.iter_mut().filter(|standby| standby.address.is_empty()) {
            standby.address = self.address_of(standby.node).unwrap_or_default();
        }
        let votes = Votes { safety: Some(self.commit.level()), set: self.terms.get().set };
        let own = MemberStatus {
            role: if fenced { MemberRole::Deposed } else { MemberRole::Primary },
            lsn: Some(durable),
            lag: (!fenced).then(|| Lag { bytes: available.since(durable.min(available)), ..Lag::default() }),
            connected: Some(true),
            connected_or_away_for: Some(self.feeds.lasts()),
            in_sync: Some(!fenced),
            in_sync_for: (!fenced).then(|| self.feeds.lasts()),
            ..MemberStatus::own(self.who.node, &self.who.address)
        };
        let mut table = Table::new(own, self.who.term, !fenced, votes).pending(level_pending, set_pending);
        table.add_fed(&standbys, &observers, false);
        witness.iter().for_each(|witness| table.add_witness(witness));
        table.ask_relays(&self.who.credentials, &self.hello(Purpose::Identify), relays);
        let mut peers = self.known();
        self.terms.name(&mut peers);
        table.add_missing(&peers, Some(self.feeds.lasts()));
        (table, standing)
    }
}

impl WholeCluster for Shared {
    fn members(&self) -> Members {
        self.asked_members(FROM_ABOVE)
    }

    fn order_maintenance(&self, length: Duration) -> Ordered {
        self.terms.maintained().order(length, &self.caller(), &self.known())
    }

    fn caller(&self) -> Caller<'_> {
        let (credentials, hello) = (&self.who.credentials, self.hello(Purpose::Identify));
        Caller { credentials, hello, term: self.who.term }
    }
}

fn is_over(standing: &Standing) -> bool {
    matches!(standing, Standing::Fenced { .. })
}

/// As the status has it.
fn word(standing: &Standing) -> &'static str {
    match standing {
        Standing::Safe => "safe",
        Standing::Degraded { .. } => "degraded",
        Standing::Blocked { .. } => "blocked",
        Standing::Refusing { .. } => "refusing",
        Standing::Fenced { .. } => "fenced",
        Standing::Stalled { .. } => "stalled",
        Standing::LeaseOver { .. } => "lease-over",
    }
}
