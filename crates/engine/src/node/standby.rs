//! The composition of a standby: receive, persist, ack, replay, visible.

use std::{
    sync::{Arc, PoisonError},
    thread::JoinHandle,
};

use freshet_replay::Replay;
use freshet_replication::{standby::Standby, takeover::Promoted};
use freshet_txn::Core;

use super::{
    Node,
    adapters::ReceivedLog,
    janitor::Janitor,
    reign::{Reign, Throne},
};

/// A standby's parts.
pub(super) struct Following {
    pub standby: Standby,
    pub log: Arc<ReceivedLog>,
    pub janitor: JanitorThread,
}

/// The janitor and its thread.
pub(super) struct JanitorThread {
    janitor: Arc<Janitor>,
    thread: JoinHandle<()>,
}

impl JanitorThread {
    pub fn start(janitor: Arc<Janitor>, core: &Arc<Core>, replay: &Arc<Replay>) -> Result<Self, String> {
        let participant = core.participants.join().map_err(|cause| cause.to_string())?;
        let (core, replay, for_thread) = (Arc::clone(core), Arc::clone(replay), Arc::clone(&janitor));
        let thread = std::thread::Builder::new()
            .name("janitor".into())
            .spawn(move || for_thread.run(&core, &replay, &participant))
            .map_err(|cause| format!("cannot start a thread: {cause}"))?;
        Ok(Self { janitor, thread })
    }

    pub fn stop(self) {
        self.janitor.stop();
        // A panic there was reported already.
        let _ = self.thread.join();
    }
}

impl Following {
    /// Turns the standby's log into a primary's, and reigns.
    pub fn into_reign(self, node: &Node, promoted: &Promoted) -> Result<Reign, String> {
        self.standby.stop();
        let receiver = self.log.receiver.lock().unwrap_or_else(PoisonError::into_inner).take();
        let receiver = receiver.ok_or("its log was given away already")?;
        let log = self.log.log.promote(receiver, node.config.log_config(), promoted.term);
        let log = log.map_err(|cause| cause.to_string())?;
        let own = node.address.as_str();
        let peers = promoted.peers.iter().map(|peer| peer.address.clone());
        let throne = Throne {
            config: &node.config,
            node: node.id,
            cluster: node.cluster,
            address: own,
            terms: &node.terms,
            endpoint: &node.endpoint,
            core: node.database.core(),
            source: &node.source,
            peers: peers.chain(node.config.peers.iter().cloned()).filter(|peer| peer != own).collect(),
            succession: promoted.succession.clone(),
        };
        let mut reign = Reign::begin(&throne, log, promoted.term, promoted.start)?;
        reign.janitor = Some(self.janitor);
        Ok(reign)
    }

    pub fn stop(self) -> Result<(), String> {
        self.standby.stop();
        self.janitor.stop();
        self.log.log.close().map_err(|cause| cause.to_string())
    }
}
