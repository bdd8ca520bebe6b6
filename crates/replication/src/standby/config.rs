//! A standby's parameters.

use std::path::PathBuf;

use freshet_base::{NodeId, StateProof, sync::Arc};
use freshet_cluster::follower::{Begun, Follower, FollowerConfig, RelayRules, ReplayMode};
use freshet_log::{Log, journal::NewestFile};

use super::{RelayConfig, Starting};
use crate::{follow::FollowConfig, forms::Encoding};

/// A standby's parameters.
#[derive(Clone, Debug)]
pub struct StandbyConfig {
    /// When batches are replayed and acknowledged.
    pub replay: ReplayMode,
    /// No more bytes than this are handed to the replay target at once.
    pub replay_piece: u64,
    /// How it follows its primary.
    pub follow: FollowConfig,
    /// How it feeds standbys of its own, if it is a relay.
    pub relay: Option<RelayConfig>,
    /// The directory in which the end of the log is saved before it is cut; none to save nothing.
    pub saved_tails: Option<PathBuf>,
    /// In which form it asks for the log at first ([`Standby::ask_for`](super::Standby::ask_for)).
    /// Other than as bytes only where the replay target regenerates blocks
    /// ([`ReplayTarget::regenerates`](super::ReplayTarget::regenerates)).
    pub encoding: Encoding,
    /// The directory of the journal of what arrives in another form; none where the log is in
    /// memory only.
    pub journal: Option<JournalPlace>,
    /// What speaks against the state of this node: with a doubt it has no vote.
    pub proof: Arc<StateProof>,
}

/// Where a standby keeps its journal.
#[derive(Clone, Debug)]
pub struct JournalPlace {
    /// The directory, which is made when it is needed.
    pub directory: PathBuf,
    /// Where it is noted what there is in it.
    pub newest: Arc<dyn NewestFile>,
}

impl Default for StandbyConfig {
    fn default() -> Self {
        Self {
            replay: ReplayMode::Pipelined,
            replay_piece: 4 << 20,
            follow: FollowConfig::default(),
            relay: None,
            saved_tails: None,
            encoding: Encoding::Bytes,
            journal: None,
            proof: Arc::default(),
        }
    }
}

impl StandbyConfig {
    /// What decides for a standby with these parameters.
    pub(super) fn follower(&self, node: NodeId, starting: &Starting, log: &Log) -> Follower {
        let begun = Begun {
            received: log.received().get(),
            persisted: log.durable(),
            replayed: starting.replayed,
            global: starting.global,
            floor: starting.floor,
        };
        let relay = self.relay.as_ref().map(|relay| RelayRules {
            ack: relay.ack,
            standbys: relay.standbys,
            standby_timeout: relay.standby_timeout,
        });
        let (replay, capacity) = (self.replay, log.capacity());
        Follower::new(node, FollowerConfig { replay, capacity, relay }, begun)
    }

    /// Whether blocks may come in another form: they are replayed, and the primary does not
    /// acknowledge by itself.
    pub(super) fn may_regenerate(&self) -> bool {
        !self.follow.fabric.appliance && self.replay != ReplayMode::None
    }

    /// With the appliance method the primary acknowledges by itself, when its bytes have arrived:
    /// nothing else can be promised then.
    ///
    /// # Errors
    /// What is promised that cannot be.
    pub fn check(&self) -> Result<(), &'static str> {
        let downstream =
            self.relay.as_ref().is_some_and(|relay| relay.ack == freshet_cluster::relay::RelayAck::Downstream);
        if self.encoding != Encoding::Bytes && !self.may_regenerate() {
            return Err(
                "who gets the inputs of transactions executes them again, with replay, and acknowledges by itself: the \
                 encoding needs the general-purpose method, and replay",
            );
        }
        match (self.follow.fabric.appliance, self.replay) {
            (true, ReplayMode::Synchronous) => {
                Err("with the appliance method the primary acknowledges what has arrived, whether this node has \
                                                    replayed it or not: synchronous replay needs the general-purpose method")
            }
            (true, _) if downstream => Err(
                "with the appliance method the primary acknowledges what has arrived here, whether those below hold \
                                            it or not: acknowledgements from downstream need the general-purpose method",
            ),
            _ => Ok(()),
        }
    }
}
