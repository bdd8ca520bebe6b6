//! Failover without an operator: a thread of each node that follows waits until the node takes its
//! primary for lost ([`freshet_replication::follow::Watching`]), and then has it stand for the next
//! term.

use std::{sync::Arc, time::Duration};

use freshet_replication::promotion::{PromoteError as PromotionError, PromoteOptions};

use super::{Failover, Node, PromoteError, Role, start::StartError};

/// A node that stands waits no longer for another's answer. One on a busy machine that was too slow
/// is asked again.
const PATIENCE: Duration = Duration::from_secs(1);

impl Node {
    /// Has this node stand whenever it takes its primary for lost, if it is configured to.
    pub(super) fn stand_by_itself(self: &Arc<Self>) -> Result<(), StartError> {
        if matches!(self.config.failover, Failover::Manual | Failover::Never) {
            return Ok(());
        }
        let Some(watching) = self.composition().watching() else { return Ok(()) };
        let weak = Arc::downgrade(self);
        let run = move || {
            while watching.wait() {
                let Some(node) = weak.upgrade() else { return };
                match node.stand() {
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
    fn stand(&self) -> Result<(), PromoteError> {
        let configured = Some((self.config.standbys, self.config.safety));
        let options = PromoteOptions { automatic: true, configured, patience: PATIENCE, ..PromoteOptions::default() };
        match self.promotion(&options) {
            Ok(promotion) => {
                tracing::warn!(term = promotion.term.0, lsn = promotion.at.0, "the primary was lost: this node leads");
                Ok(())
            }
            Err(PromoteError::Promotion(cause)) => {
                match &*cause {
                    PromotionError::Superseded { node, .. } => {
                        tracing::debug!(primary = %node, "another node hears the primary, which this one suspects");
                    }
                    cause => tracing::warn!(%cause, "the primary is silent, and this node cannot take its place"),
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
