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
            while let Some(standing) = watching.wait(by_itself) {
                let Some(node) = weak.upgrade() else { return };
                if standing == Standing::Automatic && node.terms.removal().is_some() {
                    // No other node answers it.
                    watching.gave_up();
                    continue;
                }
                match node.stand(standing) {
                    Ok(()) => return,
                    Err(PromoteError::Promotion(cause)) if gives_way(&cause) => watching.promised(),
                    Err(_) if matches!(node.role(), Role::Standby | Role::Mirror) => watching.gave_up(),
                    Err(_) => return,
                }
            }
        };
        let spawned = std::thread::Builder::new().name("failover".into()).spawn(run);
        spawned.map(drop).map_err(|cause| StartError::System(format!("cannot start a thread: {cause}")))
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
