//! The composition of a standby: receive, persist, ack, replay, visible.

use std::sync::{Arc, PoisonError};

use freshet_replication::{standby::Standby, takeover::Promoted};

use super::{
    Node,
    adapters::ReceivedLog,
    janitor::JanitorThread,
    reign::{Reign, Throne},
};

/// A standby's parts.
pub(super) struct Following {
    pub standby: Standby,
    pub log: Arc<ReceivedLog>,
    pub janitor: JanitorThread,
}

impl Following {
    /// Turns the standby's log into a primary's, and reigns.
    pub fn into_reign(self, node: &Node, promoted: &Promoted) -> Result<Reign, String> {
        self.standby.stop();
        let receiver = self.log.receiver.lock().unwrap_or_else(PoisonError::into_inner).take();
        let receiver = receiver.ok_or("its log was given away already")?;
        let log = Arc::clone(&self.log.log);
        log.promote(receiver, node.config.log_config(), promoted.term).map_err(|cause| cause.to_string())?;
        let own = node.address.as_str();
        let peers = promoted.peers.iter().map(|peer| peer.address.clone());
        let throne = Throne {
            config: &node.config,
            node: node.id,
            credentials: &node.credentials,
            cluster: node.cluster,
            address: own,
            terms: &node.terms,
            endpoint: &node.endpoint,
            core: node.database.core(),
            source: &node.source,
            peers: peers.chain(node.config.peers.iter().cloned()).filter(|peer| peer != own).collect(),
            committed: promoted.committed,
            succession: promoted.succession.clone(),
        };
        Reign::begin(&throne, log, promoted.term, promoted.start, self.janitor)
    }

    pub fn stop(self) -> Result<(), String> {
        self.standby.stop();
        drop(self.janitor);
        self.log.log.close().map_err(|cause| cause.to_string())
    }
}
