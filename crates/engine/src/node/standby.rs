//! The composition of a standby: receive, persist, ack, replay, visible.

use std::sync::Arc;

use freshet_log::Log;
use freshet_replication::{standby::Standby, takeover::Promoted};

use super::{
    Node,
    janitor::JanitorThread,
    reign::{Reign, ThisNode},
};

/// A standby's parts.
pub(super) struct Following {
    pub standby: Standby,
    pub log: Arc<Log>,
    pub janitor: JanitorThread,
}

impl Following {
    /// Turns the standby's log into a primary's, and reigns.
    pub fn into_reign(self, node: &Node, promoted: &Promoted) -> Result<Reign, String> {
        let receiver = self.standby.into_receiver();
        let log = self.log;
        log.promote(receiver, node.config.log_config(), promoted.term).map_err(|cause| cause.to_string())?;
        let own = node.address.as_str();
        let peers = promoted.peers.iter().map(|peer| peer.address.clone());
        let this = ThisNode {
            config: &node.config,
            node: node.id,
            credentials: &node.credentials,
            cluster: node.cluster,
            address: own,
            terms: &node.terms,
            endpoint: &node.endpoint,
            core: node.database.core(),
            source: &node.source,
            scheme: &*node.scheme,
            peers: peers.chain(node.config.peers.iter().cloned()).filter(|peer| peer != own).collect(),
            committed: promoted.committed,
            succession: promoted.succession.clone(),
        };
        Reign::begin(&this, log, promoted.term, promoted.start, self.janitor)
    }

    pub fn stop(self) -> Result<(), String> {
        self.standby.stop();
        drop(self.janitor);
        self.log.close().map_err(|cause| cause.to_string())
    }
}
