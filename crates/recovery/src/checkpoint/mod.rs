//! Checkpoints: the rows of the database in files, so that restart needs only the log since then
//! (SiloR, section 4).
//!
//! A checkpoint is named by `start`, the LSN at which it began (SiloR's `e_l`). It is fuzzy: it
//! holds, of each record, the version that was the newest when it was looked at, unless that is at
//! or above `start`, since the log from `start` on must be replayed anyway. `end` (`e_h`) is the
//! LSN by which all was looked at: only with the log up to there is it a state of the database,
//! so it counts, *is installed*, when everything below `end` is committed. A consistent checkpoint
//! is read at one snapshot; its start and end are the same. One that is sent while it is made, out
//! of a mirror's memory, has a manifest in front and another one behind ([`Manifest::is_open`]).
//!
//! | where | what |
//! |---|---|
//! | `<directory>/checkpoint-<start>.manifest` | says that the checkpoint counts, and what belongs to it ([`manifest`]) |
//! | `<device>/checkpoint-<start>/<table>-<device>-<k>.rows` | rows, in blocks dealt out to the files of a device one by one ([`rows`]); in key order, but for the first checkpoint of what was a mirror |

pub mod manifest;
pub mod rows;

use std::{io, path::PathBuf};

use freshet_base::{ClusterId, Lsn, versions::OtherVersion};
use freshet_log::KEEP_ASIDE;

pub use manifest::{CheckpointFile, CheckpointTable, Manifest};
pub use rows::{RowsDecoder, RowsEncoder, RowsReader, TableWriter};

/// Why a checkpoint was not written, or cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum CheckpointError {
    /// The operating system refused something.
    #[error("cannot {doing} {file}: {source}; check the disk and the permissions", file = .file.display())]
    Io {
        /// What the process tried to do, as a verb.
        doing: &'static str,
        /// With which file or directory.
        file: PathBuf,
        /// What the operating system said.
        source: io::Error,
    },
    /// A file is not what was written.
    #[error(
        "{file} is damaged at offset {offset}: {what}; bring the file back as it was; if it is lost, {KEEP_ASIDE}",
        file = .file.display()
    )]
    Damaged {
        /// The damaged file.
        file: PathBuf,
        /// Where in it, in bytes.
        offset: u64,
        /// What about it cannot be as it was written.
        what: String,
    },
    /// It belongs to another log of this directory.
    #[error(
        "{file} is a checkpoint on another log than the one in this directory: of one that was here before, or came \
         later; nothing was changed: bring back the files that belong together, all of the same moment; if they are lost, \
         {KEEP_ASIDE}",
        file = .file.display()
    )]
    OtherLog {
        /// The checkpoint's manifest.
        file: PathBuf,
    },
    /// It belongs to another cluster.
    #[error(
        "{file} is a checkpoint of cluster {found}, this node is of {expected}: remove it, or point the node to its own \
         directory",
        file = .file.display()
    )]
    ForeignCluster {
        /// The manifest, or a file of rows.
        file: PathBuf,
        /// The cluster that the file names.
        found: ClusterId,
        /// The cluster of this node.
        expected: ClusterId,
    },
    /// It was written by another version.
    #[error("{file} has checkpoint {cause}", file = .file.display())]
    Format {
        /// Which file.
        file: PathBuf,
        /// The format in it.
        cause: OtherVersion,
    },
}

impl CheckpointError {
    pub(crate) fn io(doing: &'static str, file: impl Into<PathBuf>, source: io::Error) -> Self {
        Self::Io { doing, file: file.into(), source }
    }
}

/// The folder of a checkpoint on a device.
pub fn folder(device: &std::path::Path, start: Lsn) -> PathBuf {
    device.join(format!("checkpoint-{:020}", start.0))
}
