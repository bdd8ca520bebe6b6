//! Nodes that are processes of their own: what they say, on their control ports and as messages.

use std::{fmt::Write as _, fs, path::Path, process::ExitStatus, time::Duration};

use freshet::{
    children::Process,
    client::{Client, ClientError},
};
use serde_json::Value;

/// How long a node that ended by itself stays away, as supervisors have it.
pub(crate) const AGAIN_AFTER: Duration = Duration::from_millis(300);
/// How long a node may take to tell its status.
pub(crate) const STATUS: Duration = Duration::from_secs(2);

/// A client of the node whose control port this is.
pub(crate) fn client(address: &str) -> Result<Client, ClientError> {
    Client::connect(address, STATUS)
}

/// What the node says of itself, if it answers.
pub(crate) fn status(address: &str) -> Option<Value> {
    serde_json::from_str(&client(address).ok()?.status(STATUS).ok()?).ok()
}

/// Whether a process that ended so, and has said this, has crashed.
pub(crate) fn has_crashed(status: ExitStatus, messages: &str) -> bool {
    status.code().is_none() || messages.contains("panicked")
}

/// Adds what a process has said to a file: how it ended, at what time of the run.
pub(crate) fn keep_messages(path: &Path, process: &Process, how: &str, at: Duration) {
    let mut all = fs::read_to_string(path).unwrap_or_default();
    let _ = writeln!(all, "{}\n== {how} at {:.3} s (pid {})", process.messages(), at.as_secs_f64(), process.pid());
    // The messages are for people, and the run continues without them.
    let _ = fs::write(path, all);
}
