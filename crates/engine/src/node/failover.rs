//! Failover without an operator: a thread of each node that follows waits until the node takes its
//! primary for lost ([`freshet_replication::follow::Watching`]), and then has it stand for the next
//! term.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use freshet_base::wait::{self, Patience};
use freshet_cluster::promotion::Standing;
use freshet_replication::promotion::{PromoteError as PromotionError, PromoteOptions};

use super::{Failover, Node, PromoteError, Promotion, Role, start::StartError};

/// A node that stands waits no longer for another's answer. One on a busy machine that was too slow
/// is asked again.
const PATIENCE: Duration = Duration::from_secs(1);

/// How often a standby looks whether it can read what stands in a witness's place, and how long
/// that may take.
const LOOK_EVERY: Duration = Duration::from_secs(5);
const LOOKS: Duration = Duration::from_secs(2);

/// A node whose log waits for room leaves it so long to the others to stand: longer than a primary
/// that lacks room, too, lets its standbys go. After so long it does so again.
const ROOM_PATIENCE: Duration = Duration::from_secs(4);
const ROOM_CYCLE: Duration = Duration::from_secs(30);

impl Node {
    /// Has a thread look, as long as this node follows, whether it can read the register that
    /// stands in a witness's place, if one does.
    pub(super) fn watch_register(self: &Arc<Self>) -> Result<(), StartError> {
        if self.config.witness.etcd.is_empty() {
            return Ok(());
        }
        let weak = Arc::downgrade(self);
        let run = move || {
            while let Some(node) = weak.upgrade().filter(|node| matches!(node.role(), Role::Standby | Role::Mirror)) {
                node.terms.look_at_register(LOOKS);
                drop(node);
                let _ = wait::sleep(Patience::endless().until(Instant::now() + LOOK_EVERY));
            }
        };
        let spawned = std::thread::Builder::new().name("register".into()).spawn(run);
        spawned.map(drop).map_err(|cause| StartError::System(format!("cannot start a thread: {cause}")))
    }

    /// Has this node stand when its primary hands it the role, and, if it is configured to,
    /// whenever it takes its primary for lost.
    pub(super) fn stand_by_itself(self: &Arc<Self>) -> Result<(), StartError> {
        self.watch_register()?;
        let by_itself = !matches!(self.config.failover, Failover::Manual | Failover::Never);
        let Some(watching) = self.composition().watching() else { return Ok(()) };
        let weak = Arc::downgrade(self);
        let run = move || {
            let mut lacking = None;
            while let Some(standing) = watching.wait(by_itself) {
                let Some(node) = weak.upgrade() else { return };
                if standing == Standing::Automatic
                    && let Some(why) = node.leaves_it_to_others(&mut lacking)
                {
                    watching.gave_up(why.to_owned());
                    continue;
                }
                match node.stand(standing) {
                    Ok(()) => return,
                    Err(PromoteError::Promotion(cause)) if gives_way(&cause) => watching.promised(),
                    Err(why) if matches!(node.role(), Role::Standby | Role::Mirror) => {
                        watching.gave_up(why.to_string())
                    }
                    Err(_) => return,
                }
            }
        };
        let spawned = std::thread::Builder::new().name("failover".into()).spawn(run);
        spawned.map(drop).map_err(|cause| StartError::System(format!("cannot start a thread: {cause}")))
    }

    /// Why others should take the primary's place first, if they should. `lacking`: since when this
    /// node has done without for want of room.
    fn leaves_it_to_others(&self, lacking: &mut Option<Instant>) -> Option<&'static str> {
        if self.terms.removal().is_some() {
            // No other node answers it.
            return Some("this node was removed from the cluster");
        }
        if self.composition().log().is_none_or(|log| log.has_room()) {
            *lacking = None;
            return None;
        }
        // If none has room, one of them answers readers at least.
        let waited = lacking.get_or_insert_with(Instant::now).elapsed();
        if waited > ROOM_CYCLE {
            *lacking = Some(Instant::now());
        } else if waited > ROOM_PATIENCE {
            return None;
        }
        tracing::warn!("the primary is silent, and this node does not take its place yet: its log waits for room");
        Some("its log waits for room, and others may have some")
    }

    /// It stands, and leads if enough others let it.
    fn stand(&self, standing: Standing) -> Result<(), PromoteError> {
        let configured = Some(self.config.safety);
        let options = PromoteOptions { standing, configured, patience: PATIENCE, ..PromoteOptions::default() };
        match self.promotion(&options) {
            Ok(Promotion { term, at }) if standing == Standing::Automatic => {
                tracing::warn!(term = term.0, lsn = at.0, "the primary was lost: this node leads");
                Ok(())
            }
            Ok(Promotion { term, at }) => {
                tracing::info!(term = term.0, lsn = at.0, "the primary has handed this node its role");
                Ok(())
            }
            Err(PromoteError::Promotion(cause)) => {
                match &*cause {
                    PromotionError::Superseded { node, .. } => {
                        tracing::debug!(primary = %node, "another node hears the primary, which this one suspects");
                    }
                    cause if standing == Standing::Automatic => {
                        tracing::warn!(%cause, "the primary is silent, and this node cannot take its place");
                    }
                    cause => tracing::warn!(%cause, "this node cannot take the role that it was handed"),
                }
                Err(PromoteError::Promotion(cause))
            }
            Err(other) => Err(other),
        }
    }
}

/// Whether another node that stands at the same time goes first.
fn gives_way(cause: &PromotionError) -> bool {
    matches!(cause, PromotionError::Contested(_) | PromotionError::Begin(_))
}
