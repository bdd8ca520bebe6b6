//! Which nodes there are, as the primary knows it ([`crate::members`]).

use freshet_cluster::commit_rule::Standing;

use super::Shared;
use crate::{
    members::{MemberRole, MemberStatus, Members, Table, Votes},
    status::{Lag, PrimaryStatus},
    wire::{Hello, Purpose},
};

impl Shared {
    /// Asks relays through `relays` of them, one below the other.
    pub(super) fn members(&self, relays: u8) -> Members {
        let PrimaryStatus { standing, standbys, observers, available, durable, .. } = self.status();
        let fenced = matches!(standing, Standing::Fenced { .. });
        let votes = Votes { safety: Some(self.config.rule.safety), set: self.terms.get().set };
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
        let mut table = Table::new(own, self.who.term, !fenced, votes);
        table.add_fed(&standbys, &observers, false);
        let (cluster, node, address) = (Some(self.who.cluster), self.who.node, self.who.address.clone());
        table.ask_relays(&self.who.credentials, &Hello { cluster, node, address, purpose: Purpose::Identify }, relays);
        table.add_missing(&self.known(), Some(self.feeds.lasts()));
        let no_primary = fenced.then(|| "the term of this primary is over".to_owned());
        table.finish(Some(standing), no_primary)
    }
}
