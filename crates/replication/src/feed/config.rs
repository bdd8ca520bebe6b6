//! How a node feeds those that follow it: a primary its standbys, a relay those below.

use std::{sync::Arc, time::Duration};

use freshet_cluster::flow::FlowConfig;
use freshet_fabric::{FabricConfig, FabricKind, limit::TokenBucket};

use crate::forms::Forms;

/// How standbys are fed.
#[derive(Clone, Debug)]
pub struct FeedConfig {
    /// Sizes and times of shipping.
    pub flow: FlowConfig,
    /// How long a standby may be silent, or take nothing in, before its connection is given up.
    pub patience: Duration,
    /// The size of the log's partitions for parallel replay, in bytes.
    pub partition: u64,
    /// The largest block of the log, in bytes.
    pub largest_block: u64,
    /// How many ends of blocks are remembered for live shipping.
    pub boundaries: usize,
    /// How the log is written into standbys' memory.
    pub fabric: FeedFabric,
    /// Encodes the log for standbys that ask for another form; none to send bytes to all.
    pub forms: Option<Arc<dyn Forms>>,
}

impl Default for FeedConfig {
    fn default() -> Self {
        Self {
            flow: FlowConfig::default(),
            patience: Duration::from_secs(5),
            partition: 64 << 10,
            largest_block: 32 << 20,
            boundaries: 1 << 14,
            fabric: FeedFabric::default(),
            forms: None,
        }
    }
}

/// No link is so slow that frames of old log get shorter, in bytes.
const LEAST_FRAME: u64 = 16 << 10;

impl FeedConfig {
    /// The same, with frames that do not take as long on the link as the other side waits for a
    /// word: on one that is limited, nothing is heard of a frame before all of it may go, and what
    /// goes to several standbys takes turns.
    pub(crate) fn of_link(self) -> Self {
        let Some(limit) = &self.fabric.limit else { return self };
        let frame = limit.bytes_in(self.flow.keep_alive / 2).max(LEAST_FRAME);
        let flow = FlowConfig { frame: self.flow.frame.min(frame), ..self.flow };
        Self { flow, ..self }
    }

    /// The ring that a standby needs, in bytes: it gives away half of it at once
    /// (`StandbyStore::grant`).
    pub(crate) fn needed_capacity(&self) -> u64 {
        2 * self.largest_block
    }

    /// The time between keep-alives, in milliseconds.
    pub(crate) fn keep_alive_ms(&self) -> u32 {
        u32::try_from(self.flow.keep_alive.as_millis()).unwrap_or(u32::MAX)
    }
}

/// How a node writes into its standbys' memory. Each standby chooses the fabric: TCP, or the one
/// that the node which feeds it is configured with.
#[derive(Clone, Debug, Default)]
pub struct FeedFabric {
    /// The fabric that standbys may ask for beside TCP.
    pub kind: FabricKind,
    /// How fabrics are used.
    pub config: FabricConfig,
    /// What goes to all standbys together keeps to this.
    pub limit: Option<Arc<TokenBucket>>,
    /// Batches are compressed (LZ4). They go through the standby's mailbox then, and its receiving
    /// thread puts them into place.
    pub compress: bool,
}
