//! What can be wrong with a node's directory.

use std::{
    io,
    path::{Path, PathBuf},
};

use freshet_base::{private::NotPrivate, versions::OtherVersion};

use super::STARTS;
use crate::parts::KEEP_ASIDE;

/// Why a log directory could not be used.
#[derive(Debug, thiserror::Error)]
pub enum ControlError {
    /// Another process has the directory.
    #[error("{} is in use by another process: stop that one first, or use another directory", .0.display())]
    Locked(PathBuf),
    /// There is no log in the directory.
    #[error("{} holds no Freshet log (no control file): check the path, or initialise a node there", .0.display())]
    NoLog(PathBuf),
    /// There is a log in the directory already.
    #[error("{} holds a Freshet log already: use another directory", .0.display())]
    Exists(PathBuf),
    /// The directory belongs to something else, or is what is left of a node without its control
    /// file.
    #[error(
        "{directory} is not empty, and not this node's: there is {found} in it{guess}; name a new or an empty directory, or this node's \
         own; nothing was changed",
        directory = .directory.display(), found = .found.display()
    )]
    Foreign {
        /// The directory.
        directory: PathBuf,
        /// The name of something in it.
        found: PathBuf,
        /// What it seems to belong to; empty when that cannot be told.
        guess: &'static str,
    },
    /// The log was begun, and is not there.
    #[error(
        "the log of this node is not in {missing}, where it was begun: if a device is not mounted there, mount it; if log-dir names \
         other directories than before, name those again; if the log is lost, {KEEP_ASIDE} ({directory}); nothing was changed",
        missing = .missing.display(), directory = .directory.display()
    )]
    LogGone {
        /// Where it should be.
        missing: PathBuf,
        /// The node's directory.
        directory: PathBuf,
    },
    /// The control file and the log are not of one node at one time.
    #[error(
        "the parts of the node in {directory} do not belong together: {what}; this node does not start, and does not vote; \
         nothing was changed: bring back the files that belong together, all of the same moment; if they are lost, \
         {KEEP_ASIDE}",
        directory = .directory.display()
    )]
    Apart {
        /// The node's directory.
        directory: PathBuf,
        /// Which file does not fit, and to what.
        what: String,
    },
    /// The log is not where it is looked for.
    #[error("{what}: the log of the node in {directory} was begun {place}; nothing was changed", directory = .directory.display())]
    Place {
        /// The node's directory.
        directory: PathBuf,
        /// What is wrong with log-dir.
        what: &'static str,
        /// Where the log is.
        place: &'static str,
    },
    /// Written by another version.
    #[error("{file} has {cause}", file = .file.display())]
    Format {
        /// The control file.
        file: PathBuf,
        /// The format that it names.
        cause: OtherVersion,
    },
    /// Written by a release whose in-sync sets no node of this one reads.
    #[error(
        "{directory} is of an earlier release: its control file has format {found}, and a node of this release starts \
         from format {STARTS} on; nothing was changed: restore it, or a backup of it, into a new directory (freshet \
         restore --backup {directory})", directory = .directory.display()
    )]
    Earlier {
        /// The node's directory.
        directory: PathBuf,
        /// The format that its control file names.
        found: u32,
    },
    /// The file is not what was written.
    #[error(
        "{file} is damaged ({what}): bring it back as it was last; if it is lost, {KEEP_ASIDE}",
        file = .file.display()
    )]
    Damaged {
        /// The control file.
        file: PathBuf,
        /// What does not hold.
        what: String,
    },
    /// Others than this user can read it.
    #[error(transparent)]
    OpenToOthers(#[from] NotPrivate),
    /// The operating system refused something.
    #[error("cannot {doing} {file}: {source}; check the disk and the permissions", file = .file.display())]
    Io {
        /// What was being done.
        doing: &'static str,
        /// With which file or directory.
        file: PathBuf,
        /// What the operating system said.
        source: io::Error,
    },
}

impl ControlError {
    /// There is `found` in a directory that is to be this node's.
    pub(crate) fn foreign(directory: &Path, found: PathBuf) -> Self {
        let guess = match found.to_str() {
            Some("PG_VERSION" | "postgresql.conf" | "pg_wal") => ", as in a data directory of PostgreSQL",
            Some(name) if name.ends_with(".segment") || name.starts_with("stream") => {
                ", as of a node whose control file is gone: bring that back as it was last; if it is lost, see first \
                 what the other nodes hold (freshet status ADDRESS), and keep this directory aside, whole"
            }
            _ => "",
        };
        Self::Foreign { directory: directory.to_owned(), found, guess }
    }
}
