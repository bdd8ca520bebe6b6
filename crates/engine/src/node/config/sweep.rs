//! The table `[sweep]`.

use clap::Args;
use serde::{Deserialize, Serialize};

use super::{SettingError, headings::LABORATORY};

/// How often and how fast a node looks through all that it has in memory, in the background.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, Args)]
#[serde(default, rename_all = "kebab-case")]
#[command(next_help_heading = LABORATORY)]
pub struct SweepSettings {
    /// A pass over all rows, words and index entries begins this many seconds after the last one
    /// ended. 0: none does. See docs/operations.md#proof-of-the-state.
    ///
    /// Raise it where a database is small and looking through it once in a while is enough.
    #[arg(id = "sweep-interval-s", long, value_name = "S")]
    pub interval_s: u64,
    /// How much of a processor a pass may take, 1 to 100.
    ///
    /// Raise it where a pass over many records takes too long.
    #[arg(id = "sweep-cpu-percent", long, value_name = "PERCENT")]
    pub cpu_percent: u32,
}

impl Default for SweepSettings {
    fn default() -> Self {
        Self { interval_s: 60, cpu_percent: 1 }
    }
}

impl SweepSettings {
    pub(super) fn check(&self) -> Result<(), SettingError> {
        SettingError::within("sweep.interval-s", self.interval_s, 0..=31_536_000)?;
        SettingError::within("sweep.cpu-percent", self.cpu_percent, 1..=100)
    }
}
