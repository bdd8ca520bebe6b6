//! The table `[state-proof]`.

use clap::Args;
use serde::{Deserialize, Serialize};

use super::{SettingError, headings::LABORATORY};

/// How often the nodes of a cluster compare their states.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, Args)]
#[serde(default, rename_all = "kebab-case")]
#[command(next_help_heading = LABORATORY)]
pub struct ProofSettings {
    /// A primary puts a mark into the log when transactions have made it grow by this many bytes
    /// since the last; at least 65536. At a mark, all nodes compare which records they have, at
    /// which versions.
    ///
    /// Lower it to hear of a difference sooner.
    #[arg(id = "state-proof-bytes", long, value_name = "BYTES")]
    pub bytes: u64,
    /// The same when the log has grown at all since the last mark, or a standby has joined that was
    /// not compared yet, and this many milliseconds have passed; 10 to 86400000.
    ///
    /// Lower it to hear of a difference sooner.
    #[arg(id = "state-proof-interval-ms", long, value_name = "MS")]
    pub interval_ms: u64,
}

impl Default for ProofSettings {
    fn default() -> Self {
        Self { bytes: 64 << 20, interval_ms: 10_000 }
    }
}

impl ProofSettings {
    pub(super) fn check(&self) -> Result<(), SettingError> {
        SettingError::within("state-proof.bytes", self.bytes, 65_536..=u64::MAX)?;
        SettingError::within("state-proof.interval-ms", self.interval_ms, 10..=86_400_000)
    }
}
