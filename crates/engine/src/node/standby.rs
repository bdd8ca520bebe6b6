//! The composition of a standby: receive, persist, ack, replay, visible.

use std::sync::Arc;

use freshet_log::Log;
use freshet_replication::{promotion::Promoted, standby::Standby};

use super::{
    Node,
    garbage_collector::GarbageCollectorThread,
    lead::{Lead, ThisNode},
};
use crate::scheme::inputs::Sampler;

impl Node {
    /// What a term needs to know of it that begins with a failover.
    pub(super) fn promoted<'n>(&'n self, promoted: &Promoted) -> ThisNode<'n> {
        let own = self.address.as_str();
        let peers = promoted.peers.iter().map(|peer| peer.address.clone());
        ThisNode {
            config: &self.config,
            node: self.id,
            credentials: &self.credentials,
            cluster: self.cluster,
            address: own,
            terms: &self.terms,
            endpoint: &self.endpoint,
            core: self.database.core(),
            source: &self.source,
            proof: &self.proof,
            peers: peers.chain(self.config.peers.iter().cloned()).filter(|peer| peer != own).collect(),
            committed: promoted.committed,
            succession: promoted.succession.clone(),
            answered: promoted.answered.clone(),
        }
    }
}

/// A standby's parts.
pub(super) struct Following {
    pub standby: Standby,
    pub log: Arc<Log>,
    pub garbage_collector: GarbageCollectorThread,
    pub sampler: Option<Sampler>,
}

impl Following {
    /// Turns the standby's log into a primary's, and leads.
    pub fn into_lead(self, node: &Node, promoted: &Promoted) -> Result<Lead, String> {
        drop(self.sampler);
        let receiver = self.standby.into_receiver();
        let log = self.log;
        assert_eq!(receiver.received(), promoted.start, "the term does not begin where the log ends");
        assert!(promoted.committed <= promoted.start, "the term begins with less than is committed");
        let last = promoted.history.entries().last().map(|last| (last.term, last.node, last.start));
        assert_eq!(last, Some((promoted.term, node.id, promoted.start)), "the term was not entered");
        log.promote(receiver, node.config.log_config(), promoted.term).map_err(|cause| cause.to_string())?;
        Lead::begin(&node.promoted(promoted), log, promoted.term, promoted.start, self.garbage_collector)
    }

    pub fn stop(self) -> Result<(), String> {
        drop(self.sampler);
        self.standby.stop();
        drop(self.garbage_collector);
        self.log.close().map_err(|cause| cause.to_string())
    }
}
