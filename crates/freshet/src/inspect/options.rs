//! What `freshet inspect` can be asked for.

use std::path::PathBuf;

use clap::{Args, Subcommand};

/// What can be inspected.
#[derive(Debug, Subcommand)]
pub(crate) enum Inspect {
    /// Show the blocks of a log: their places, kinds, and whether their checksums are right.
    ///
    /// Ends with a summary. Fails if something in the log is not a valid block.
    Log(InspectLog),
    /// Show the checkpoints of a node: their contents, and whether their files exist.
    ///
    /// Fails if one cannot be used.
    Checkpoint(InspectCheckpoint),
    /// Show transactions that did not give the same again, from a file that `freshet verify` or a
    /// standby wrote.
    ///
    /// Fails if there are some.
    Mismatches(InspectMismatches),
    /// Show what happened to a node's state machines, from the file that `record-events` names, and
    /// replay it.
    ///
    /// Fails if one of them decides otherwise now.
    Events(InspectEvents),
}

/// Options of `freshet inspect mismatches`.
#[derive(Debug, Args)]
pub(crate) struct InspectMismatches {
    /// The file: `mismatches` in the directory of a standby that executes transactions again, or
    /// what `freshet verify` has written.
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,
}

/// Options of `freshet inspect events`.
#[derive(Debug, Args)]
pub(crate) struct InspectEvents {
    /// The file. What is beside it with `.1` behind its name was written before, and is shown
    /// first.
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,
    /// Replay the events, and show only which of them are decided otherwise now.
    #[arg(long)]
    pub(crate) quiet: bool,
}

/// Options of `freshet inspect log`.
#[derive(Debug, Args)]
pub(crate) struct InspectLog {
    /// A node's directory, the directory of one stream of its log, or a saved tail; if streams are
    /// elsewhere (log.dir), the directories of all of them.
    #[arg(value_name = "DIR", required = true)]
    pub(crate) paths: Vec<PathBuf>,
    /// Show blocks from this LSN on.
    #[arg(long, value_name = "LSN", default_value_t = 0)]
    pub(crate) from: u64,
    /// Show blocks below this LSN. [default: all]
    #[arg(long, value_name = "LSN")]
    pub(crate) to: Option<u64>,
    /// Also show the records of each block.
    #[arg(long)]
    pub(crate) records: bool,
    /// Show only damage and the summary.
    #[arg(long)]
    pub(crate) summary: bool,
}

/// Options of `freshet inspect checkpoint`.
#[derive(Debug, Args)]
pub(crate) struct InspectCheckpoint {
    /// A node's directory.
    #[arg(value_name = "DIR")]
    pub(crate) path: PathBuf,
    /// The directory for rows on each device, in the order of checkpoint.dir. [default: checkpoints
    /// in DIR]
    #[arg(long = "device", value_name = "DIR")]
    pub(crate) devices: Vec<PathBuf>,
    /// Also show the tables and their files.
    #[arg(long)]
    pub(crate) files: bool,
    /// Read everything, and check that it is what was written.
    #[arg(long)]
    pub(crate) check: bool,
}
