//! Devices that do not answer: a write or a sync of the log that does not return.
//!
//! Such a device is not a failed one, and may come back, so nothing is given up for it. But nothing
//! commits in the meantime, and people have to know why.

use std::{
    fmt,
    path::PathBuf,
    time::{Duration, Instant},
};

use freshet_base::Regularly;

use crate::{segments::OutOfSpace, store::LogStore, stream::Log};

/// So long a write or a sync may take before it is said to hang.
pub const PATIENCE: Duration = Duration::from_secs(5);
/// How often it is looked.
const LOOK: Duration = Duration::from_millis(500);

/// A write or a sync that has not returned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hang {
    /// Where the files are that it is for.
    pub directory: PathBuf,
    /// For how long.
    pub lasts: Duration,
}

impl fmt::Display for Hang {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (directory, lasts) = (self.directory.display(), self.lasts.as_secs());
        write!(f, "a write or a sync of the log in {directory} has not returned for {lasts} s: look after its device")
    }
}

/// Logs when a write or a sync of `store` hangs, and when it has returned. None if
/// the system has no thread: the status shows it too.
pub(crate) fn watch(store: &LogStore) -> Option<Regularly> {
    let store = store.downgrade();
    let mut reported: Option<Instant> = None;
    let look = move |_: &_| {
        let store = store.upgrade()?;
        match (store.hangs(PATIENCE), reported) {
            (Some(hang), None) => {
                reported = Some(Instant::now() - hang.lasts);
                let (directory, seconds) = (hang.directory.display(), hang.lasts.as_secs());
                tracing::error!(
                    %directory, seconds,
                    "a write or a sync of the log does not return: nothing commits that needs it; look after the \
                     device, or promote a standby"
                );
            }
            (None, Some(since)) => {
                reported = None;
                tracing::warn!(seconds = since.elapsed().as_secs(), "writes and syncs of the log return again");
            }
            _ => {}
        }
        Some(LOOK)
    };
    Regularly::start("log-watch", Duration::ZERO, look).ok()
}

/// How its media are off.
impl Log {
    #[inline]
    fn on_media(&self) -> Option<&LogStore> {
        self.has_store().then(|| self.store())
    }

    /// What the log waits for, if a segment cannot be made for want of room.
    pub fn out_of_space(&self) -> Option<OutOfSpace> {
        self.on_media()?.out_of_space()
    }

    /// Whether there is enough room on the medium for what is to come. Cheap.
    #[inline]
    pub fn has_room(&self) -> bool {
        self.on_media().is_none_or(LogStore::has_room)
    }

    /// Whether nothing becomes durable at the moment, or ever again: the log waits for room, or has
    /// failed. Cheap.
    #[inline]
    pub fn is_stalled(&self) -> bool {
        self.has_failed() || self.on_media().is_some_and(LogStore::is_stalled)
    }

    /// The write or sync that hangs, if one does.
    pub fn hangs(&self) -> Option<Hang> {
        self.on_media()?.hangs(PATIENCE)
    }

    /// Why nothing becomes durable here now, or all that writes is refused, if so: the log has
    /// failed, waits for room, or its device does not answer.
    pub fn stall(&self) -> Option<String> {
        if let Some(failure) = self.failure() {
            return Some(format!("the log has failed: {failure}"));
        }
        let waits = self.out_of_space().map(|out_of_space| out_of_space.to_string());
        waits.or_else(|| self.hangs().map(|hang| hang.to_string()))
    }
}
