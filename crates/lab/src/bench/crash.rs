//! Crashes with as much log to replay as there can be: shortly before a checkpoint is complete
//! (SiloR, section 6.4).

use std::{path::PathBuf, time::Duration};

use freshet::Failure;
use freshet_base::Lsn;
use serde::{Deserialize, Serialize};

use super::{child::child, subject::Subject};

/// A checkpoint has this share of the bytes of the one before: it is nearly complete.
const NEARLY: f64 = 0.95;
/// This many checkpoints are complete before, at least: one while everything was loaded, one under
/// load.
const BEFORE: u64 = 2;
/// After this many no checkpoint was caught.
const MOST: u64 = 40;

/// What there was when the process ended.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(super) struct Crashed {
    /// Everything below was acknowledged.
    pub(super) committed: Lsn,
    /// The log was as long.
    pub(super) reserved: Lsn,
    /// Checkpoints that were complete.
    pub(super) checkpoints: u64,
    /// Bytes of the newest of them.
    pub(super) complete_bytes: u64,
    /// Bytes of the one that was being written.
    pub(super) written_bytes: u64,
}

/// Waits for the moment, prints [`Crashed`] as JSON, and ends this process: no destructor runs, and
/// nothing is flushed or closed. Returns only why there was no such moment. `wait` waits, or
/// returns `false` when a thread has failed.
pub(super) fn at_a_checkpoint(subject: &Subject, wait: impl Fn(Duration) -> bool) -> Failure {
    let ended = || -> Result<bool, Failure> {
        let node = subject.node()?;
        let status = node.checkpoint_status().ok_or_else(|| Failure::new("this node writes no checkpoints"))?;
        if status.installed > MOST {
            return Err(Failure::new(format!("none of {MOST} checkpoints was seen when it was nearly complete")));
        }
        let nearly = |written: u64| written as f64 >= status.bytes as f64 * NEARLY;
        let Some(written_bytes) = status.under_way.filter(|written| status.installed >= BEFORE && nearly(*written))
        else {
            return Ok(false);
        };
        let primary = subject.database().core().snapshots.primary();
        let committed = primary.ok_or_else(|| Failure::new("this node is no primary"))?.gate.committed();
        let (checkpoints, complete_bytes) = (status.installed, status.bytes);
        let crashed = Crashed { committed, reserved: subject.reserved(), checkpoints, complete_bytes, written_bytes };
        println!("{}", serde_json::to_string(&crashed)?);
        Ok(true)
    };
    loop {
        match ended() {
            Ok(true) => std::process::exit(0),
            Ok(false) if wait(Duration::from_millis(1)) => {}
            Ok(false) => return Failure::new("a worker thread ended before the crash"),
            Err(failure) => return failure,
        }
    }
}

/// Runs `freshet-lab bench ARGUMENTS` below a directory until it crashes. Returns the directory of
/// its node.
pub(super) fn run(arguments: &str, below: &std::path::Path) -> Result<(PathBuf, Crashed), Failure> {
    let below = below.join("crashed");
    std::fs::create_dir_all(&below)?;
    let mut words: Vec<String> = arguments.split_whitespace().map(str::to_owned).collect();
    words.extend(["--crash", "--domain", "file", "--dir"].map(str::to_owned));
    words.push(below.to_string_lossy().into_owned());
    let crashed = serde_json::from_value(child(&words)?)?;
    let made = std::fs::read_dir(&below)?.next().ok_or_else(|| Failure::new("the crashed node left no files"))??;
    Ok((made.path().join("primary"), crashed))
}
