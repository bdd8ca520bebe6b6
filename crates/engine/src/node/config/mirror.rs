//! The table `[mirror]`.

use std::path::PathBuf;

use clap::Args;
use freshet_base::NodeId;
use freshet_fabric::FabricKind;
use freshet_log::persist::Method as PersistMethod;
use freshet_replication::mirror::MirrorConfig;
use serde::{Deserialize, Serialize};

use super::{Domain, LogSettings, NodeConfig, SettingError, headings::LABORATORY};

/// Whether a standby is a mirror: its memory holds rows instead of the log, and its primary keeps
/// them up to date by itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, Args)]
#[serde(default, rename_all = "kebab-case")]
#[command(next_help_heading = "Mirrors")]
pub struct MirrorSettings {
    /// On a standby: it is a mirror, with at most this many bytes of memory for the database. Its
    /// primary writes rows there; it keeps no log, replays nothing and serves no readers. 0
    /// disables that. See docs/operations.md#mirrors.
    ///
    /// Set it on a machine with memory to spare and no processors.
    #[arg(id = "mirror-bytes", long, value_name = "BYTES")]
    pub bytes: u64,
    /// Of `mirror.bytes`, how many are for what must be put back when the primary fails while it
    /// writes; at least the primary's `log.buffer-bytes`. 0: as many as this node's
    /// `log.buffer-bytes`. For a transaction that writes over more it becomes more, and stays so.
    ///
    /// Raise it where transactions are long, so that they need not wait for that.
    #[arg(id = "mirror-undo-bytes", long, value_name = "BYTES", help_heading = LABORATORY)]
    pub undo_bytes: u64,
    /// Of `mirror.bytes`, how many are for the directory of what lies where: 64 for each 4096
    /// records of a table, or each MiB of longer ones, and for each 256 KiB of rows that lie
    /// elsewhere, and for each table up to ten times as many; at least 64 KiB.
    ///
    /// Raise it for more than half a billion records, 100 GB of long ones, or 10,000 tables.
    #[arg(id = "mirror-directory-bytes", long, value_name = "BYTES", help_heading = LABORATORY)]
    pub directory_bytes: u64,
    /// A directory for files in which the memory lies. A mirror whose process has ended finds it
    /// there, and continues. A restart of the machine makes it begin again, unless `domain` is
    /// `pmem` and the directory is on a DAX file system. They need room for `mirror.bytes`, and for
    /// as much again with `fabric.kind` `shm`.
    ///
    /// Set it where filling a mirror takes long: in tmpfs, in persistent memory or on a disk.
    #[arg(id = "mirror-keep-dir", long, value_name = "DIR")]
    pub keep_dir: Option<PathBuf>,
    /// How often a mirror reads all that it holds, as a failover would, in seconds; 0 for never.
    /// It takes about two hundredths of a processor while it does. What is damaged has no vote
    /// from then on, and is filled again from another node.
    ///
    /// Lower it where memory corrects no errors.
    #[arg(id = "mirror-rehearse-s", long, value_name = "S", help_heading = LABORATORY)]
    pub rehearse_s: u64,
}

impl Default for MirrorSettings {
    fn default() -> Self {
        Self { bytes: 0, undo_bytes: 0, directory_bytes: 8 << 20, keep_dir: None, rehearse_s: 86_400 }
    }
}

/// Memory is added by this much at once.
const ARENA: u64 = 64 << 20;
/// Neither the undo ring nor the directory has fewer bytes.
const LEAST: u64 = 64 << 10;

impl MirrorSettings {
    /// Whether the node is to be a mirror.
    pub fn is_wanted(&self) -> bool {
        self.bytes > 0
    }

    /// How many bytes are for what must be put back, on a node with such a log.
    pub fn undo(&self, log: &LogSettings) -> u64 {
        if self.undo_bytes == 0 { log.buffer_bytes as u64 } else { self.undo_bytes }
    }

    /// Whether a node that is configured so can be a mirror, if it is to be one.
    pub(super) fn check(&self, node: &NodeConfig) -> Result<(), SettingError> {
        if !self.is_wanted() {
            return Ok(());
        }
        SettingError::within("mirror.undo-bytes", self.undo(&node.log), LEAST..=1 << 40)?;
        SettingError::within("mirror.directory-bytes", self.directory_bytes, LEAST..=1 << 38)?;
        let least = self.undo(&node.log) + self.directory_bytes + LEAST;
        SettingError::within("mirror.bytes", self.bytes, least..=1 << 50)?;
        let refuse = |remedy: &str| Err(SettingError::new("mirror.bytes", self.bytes, remedy));
        match node {
            _ if node.join.is_none() => refuse("set join: a mirror is the memory of another node's database"),
            _ if node.domain == Domain::None => {
                refuse("set domain to file: a mirror keeps what it has promised in its directory")
            }
            _ if node.domain == Domain::Pmem && self.keep_dir.is_none() => refuse(
                "set mirror.keep-dir, on a DAX file system: its memory is persistent there; or set domain to file",
            ),
            _ if node.domain == Domain::Pmem && node.fabric.kind == FabricKind::Verbs => refuse(
                "set fabric.kind to shm or tcp, or domain to file: what a card writes is not persistent on completion",
            ),
            _ if node.relay_standbys > 0 => refuse("set relay-standbys to 0: a mirror has no log to pass on"),
            _ if node.bootstrap_from.is_some() => {
                refuse("leave bootstrap-from out: a mirror begins with the checkpoint of the node that it joins")
            }
            _ if node.encoding != super::Encoding::Bytes => {
                refuse("set encoding to bytes: a mirror executes nothing again")
            }
            _ if node.apply != super::Apply::Fresh => refuse("leave apply out: a mirror does not replay"),
            _ => Ok(()),
        }
    }

    /// The memory of this node. With a `method` what has arrived there is durable.
    pub(crate) fn config(&self, log: &LogSettings, node: NodeId, method: Option<PersistMethod>) -> MirrorConfig {
        MirrorConfig {
            method,
            head: self.directory_bytes,
            undo: self.undo(log),
            arena: ARENA,
            most: self.bytes,
            directory: self.keep_dir.as_ref().map(|directory| directory.join(format!("mirror-{node}"))),
            ..MirrorConfig::default()
        }
    }
}
