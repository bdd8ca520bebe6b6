//! What can be wrong with a log on its medium; each message names the file, the place and the
//! remedy.

use std::{io, path::PathBuf};

use freshet_base::{ClusterId, Lsn, versions::OtherVersion};

use crate::{control::ControlError, parts::KEEP_ASIDE};

/// Why a store did not do what it was asked.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The file system is full.
    #[error(
        "no space left for {file} ({needed} bytes needed): free space on its file system, then start the node if it has \
         ended; nothing that was acknowledged is lost",
        file = .file.display()
    )]
    NoSpace {
        /// The file that could not grow.
        file: PathBuf,
        /// How many bytes it needed.
        needed: u64,
    },
    /// The operating system refused something.
    #[error(
        "cannot {doing} {file} at offset {offset}: {source}; check the disk and the permissions, then restart",
        file = .file.display()
    )]
    Io {
        /// What was being done.
        doing: &'static str,
        /// With which file or directory.
        file: PathBuf,
        /// Where in the file, in bytes.
        offset: u64,
        /// What the operating system said.
        source: io::Error,
    },
    /// The file belongs to another cluster.
    #[error(
        "{file} belongs to cluster {found}, this node to {expected}: point the node to its own log directory",
        file = .file.display()
    )]
    ForeignCluster {
        /// The file.
        file: PathBuf,
        /// The cluster in its header.
        found: ClusterId,
        /// This node's cluster.
        expected: ClusterId,
    },
    /// A directory that is not the stream's.
    #[error(
        "{file}: {what}; give the log directories (log-dir) in the order in which the log was made",
        file = .file.display()
    )]
    Stream {
        /// The file that says so.
        file: PathBuf,
        /// What does not fit.
        what: String,
    },
    /// A directory that is not this node's, or where a log is missing.
    #[error(transparent)]
    Directory(#[from] ControlError),
    /// What was named for an inspection cannot be looked at.
    #[error("{path}: {what}", path = .path.display())]
    Look {
        /// The file or directory.
        path: PathBuf,
        /// Why not, and what to do.
        what: String,
    },
    /// The file was written by another version.
    #[error("{file} has log {cause}", file = .file.display())]
    Format {
        /// The file.
        file: PathBuf,
        /// The format in its header.
        cause: OtherVersion,
    },
    /// The file was made with another segment size.
    #[error(
        "{file} has segments of {found} bytes, but {expected} are configured: configure {found}",
        file = .file.display()
    )]
    SegmentSize {
        /// The file.
        file: PathBuf,
        /// The segment size in its header.
        found: u64,
        /// The configured one.
        expected: u64,
    },
    /// The file's header is not one, or contradicts its name.
    #[error(
        "{file} is damaged at offset 0: {what}; bring the file back as it was; if it is lost, {KEEP_ASIDE}",
        file = .file.display()
    )]
    Header {
        /// The file.
        file: PathBuf,
        /// What does not hold.
        what: String,
    },
    /// The file is shorter or longer than it was made.
    #[error(
        "{file} is {found} bytes long, but was made with {expected}: bring the file back as it was; if it is lost, \
         {KEEP_ASIDE}",
        file = .file.display()
    )]
    Length {
        /// The file.
        file: PathBuf,
        /// Its length in bytes.
        found: u64,
        /// The length it was made with.
        expected: u64,
    },
    /// A part of the log is missing, with parts on both sides of it.
    #[error(
        "{file} is missing: it held the log from {from} to {to}, and later parts exist; bring the file back; if \
         it is lost, {KEEP_ASIDE}",
        file = .file.display()
    )]
    Missing {
        /// The file that should be there.
        file: PathBuf,
        /// Where it starts.
        from: Lsn,
        /// Where it ends.
        to: Lsn,
    },
    /// A journal of what has arrived is not what was durable.
    #[error(
        "the journal of what has arrived is damaged: {file} at offset {offset}: {what}; transactions in it were \
         acknowledged and need not be in the log yet, so the node does not start, and nothing was changed: bring the \
         file back; if it is lost, {KEEP_ASIDE}",
        file = .file.display()
    )]
    Journal {
        /// The damaged file.
        file: PathBuf,
        /// Where in it, in bytes.
        offset: u64,
        /// What is wrong there, and how that is known.
        what: String,
    },
    /// The file that says how far the log is durable is gone or damaged.
    #[error(
        "{file} is missing or damaged, so the end of the log cannot be judged: bring the file back; if it is \
         lost, {KEEP_ASIDE}",
        file = .file.display()
    )]
    Watermark {
        /// The file.
        file: PathBuf,
    },
    /// That part of the log is no longer kept.
    #[error("the log at {at} is no longer kept: the oldest byte here is {first}")]
    Gone {
        /// What was asked for.
        at: Lsn,
        /// What there is.
        first: Lsn,
    },
    /// That part of the log does not exist.
    #[error("the log ends at {end}; {at} was asked for")]
    Beyond {
        /// The end of what was asked for.
        at: Lsn,
        /// Where the log's files end.
        end: Lsn,
    },
    /// An earlier write or sync failed; what the medium holds since is not known.
    #[error("an earlier write to the log failed, and it takes no more until the node is restarted")]
    Failed,
}

impl StoreError {
    /// Wraps what the operating system said.
    pub(crate) fn io(doing: &'static str, file: PathBuf, offset: u64, needed: u64, source: io::Error) -> Self {
        if is_full(&source) { Self::NoSpace { file, needed } } else { Self::Io { doing, file, offset, source } }
    }
    /// Whether it can be the trace of a node at work, and gone at the next look.
    pub(crate) fn may_pass(&self) -> bool {
        match self {
            Self::Io { source, .. } => source.kind() == io::ErrorKind::NotFound,
            Self::Missing { .. } | Self::Watermark { .. } => true,
            _ => false,
        }
    }
}

/// Whether the operating system says that there is no room.
pub(super) fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}
