//! How many descriptors this process may have, and has.

use rustix::process::{Resource, getrlimit, setrlimit};
use serde::Serialize;

/// As things stand; nothing where that cannot be found out.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Descriptors {
    /// `None` where there is no limit.
    limit: Option<u64>,
    used: Option<u64>,
}

impl Descriptors {
    /// Asks the operating system.
    pub fn now() -> Self {
        let used = std::fs::read_dir("/proc/self/fd").ok().map(|entries| entries.count() as u64);
        Self { limit: getrlimit(Resource::Nofile).current, used }
    }
}

/// Raises the soft limit to the hard one, and keeps some for the log. What cannot be done is
/// reported, and the node continues with what it has.
pub fn take() {
    let limit = getrlimit(Resource::Nofile);
    if limit.current != limit.maximum {
        let raised = rustix::process::Rlimit { current: limit.maximum, ..limit };
        if let Err(cause) = setrlimit(Resource::Nofile, raised) {
            let limit = limit.current.unwrap_or(u64::MAX);
            tracing::warn!(limit, %cause, "the limit on open files cannot be raised");
        }
    }
    if let Err(cause) = freshet_log::medium::keep_descriptors() {
        tracing::warn!(%cause, "no descriptors can be kept for the log yet: raise the limit on open files");
    }
}
