//! The table `[checkpoint]`.

use std::path::PathBuf;

use clap::Args;
use serde::{Deserialize, Serialize};

use super::{
    SettingError,
    headings::{COMMON, LABORATORY},
};

/// When and how checkpoints are written. Only a node with a directory writes any.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, Args)]
#[serde(default, rename_all = "kebab-case")]
#[command(next_help_heading = "Checkpoints")]
pub struct CheckpointSettings {
    /// A directory for rows on each device, up to 16, always in the same order: new or empty at
    /// first, and no other node's. None: `checkpoints` in `directory`.
    ///
    /// Set it when there are several devices: one thread writes to each.
    #[arg(id = "checkpoint-dir", long, value_name = "DIR", value_delimiter = ',', help_heading = COMMON)]
    pub dir: Vec<PathBuf>,
    /// Into how many files a table is written on each device, 1 to 64: this many threads can read
    /// it side by side at a restart.
    ///
    /// Use `replay-threads` divided by the number of devices.
    #[arg(id = "checkpoint-files", long, value_name = "N", help_heading = LABORATORY)]
    pub files: u32,
    /// A checkpoint begins this many seconds after the last one ended, once the log has grown by a
    /// quarter of the checkpoint's bytes and by 16 MiB. 0: only on demand.
    ///
    /// Raise it when checkpoints keep a device busy.
    #[arg(id = "checkpoint-interval-s", long, value_name = "S", help_heading = LABORATORY)]
    pub interval_s: u64,
    /// A checkpoint begins when the log has grown by this many bytes, before the interval has
    /// passed.
    ///
    /// Lower it for a shorter restart.
    #[arg(id = "checkpoint-log-bytes", long, value_name = "BYTES")]
    pub log_bytes: u64,
    /// A checkpoint's files are synced after this many bytes each. 0: once at the end.
    ///
    /// Lower it when syncs of the log stall while a checkpoint is written.
    #[arg(id = "checkpoint-sync-bytes", long, value_name = "BYTES", help_heading = LABORATORY)]
    pub sync_bytes: u64,
    /// How much of a processor each checkpointer may take, 1 to 100.
    ///
    /// Raise it when processors are idle; lower it when throughput dips.
    #[arg(id = "checkpoint-cpu-percent", long, value_name = "PERCENT", help_heading = LABORATORY)]
    pub cpu_percent: u32,
    /// Log below a checkpoint is kept as long as it reaches no further back than this many bytes
    /// from the checkpoint's end.
    ///
    /// Raise it to let standbys return that were away for long.
    #[arg(id = "checkpoint-keep-log-bytes", long, value_name = "BYTES")]
    pub keep_log_bytes: u64,
}

impl Default for CheckpointSettings {
    fn default() -> Self {
        Self {
            dir: Vec::new(),
            files: 2,
            interval_s: 10,
            log_bytes: 1 << 30,
            sync_bytes: 32 << 20,
            cpu_percent: 25,
            keep_log_bytes: 256 << 20,
        }
    }
}

impl CheckpointSettings {
    pub(super) fn check(&self) -> Result<(), SettingError> {
        SettingError::within("checkpoint.dir", self.dir.len(), 0..=16)?;
        SettingError::within("checkpoint.files", self.files, 1..=64)?;
        SettingError::within("checkpoint.interval-s", self.interval_s, 0..=31_536_000)?;
        SettingError::within("checkpoint.cpu-percent", self.cpu_percent, 1..=100)
    }
}
