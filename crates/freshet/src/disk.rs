//! Checks regularly how much room there is on the file systems with the node's data.

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex,
        mpsc::{Receiver, RecvTimeoutError, Sender, channel},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use freshet_base::lock;
use serde::Serialize;

/// How often the room on the devices is looked at.
const EVERY: Duration = Duration::from_secs(5);
/// There is little room when this number of further segments does not fit ...
const SEGMENTS: u64 = 4;
/// ... or less than this part of the file system is free, of a very large one less than this
/// number of bytes.
const PART: u64 = 20;
const PLENTY: u64 = 16 << 30;

/// The room in each of the node's places, when it was looked at last. A file system that does not
/// answer holds up no one who reads this.
#[derive(Clone, Debug, Default)]
pub(crate) struct Disks(Arc<Mutex<Vec<Disk>>>);

/// The room in one place.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Disk {
    directory: PathBuf,
    free_bytes: u64,
    total_bytes: u64,
}

impl Disks {
    /// As it was found last.
    pub(crate) fn found(&self) -> Vec<Disk> {
        lock(&self.0).clone()
    }
}

/// Checks until it is dropped.
pub(crate) struct DiskWatch {
    end: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

/// How much room there is in a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Room {
    free: u64,
    total: u64,
}

impl Room {
    fn of(path: &Path) -> Option<Self> {
        let found = rustix::fs::statvfs(path).ok()?;
        Some(Self { free: found.f_bavail * found.f_frsize, total: found.f_blocks * found.f_frsize })
    }

    fn is_little(self, segment: u64) -> bool {
        self.free < SEGMENTS * segment || self.free < (self.total / PART).min(PLENTY)
    }

    /// A quarter more than little, so that the message does not repeat.
    fn is_enough(self, segment: u64) -> bool {
        let free = self.free / 5 * 4;
        !Self { free, ..self }.is_little(segment)
    }
}

/// The places where there was little room.
#[derive(Default)]
struct Low(BTreeSet<PathBuf>);

impl Low {
    /// Whether that has changed for a place: `true` when room has become short.
    fn changes(&mut self, place: &Path, room: Room, segment: u64) -> Option<bool> {
        let was_low = self.0.contains(place);
        if !was_low && room.is_little(segment) {
            self.0.insert(place.to_owned());
            return Some(true);
        }
        if was_low && room.is_enough(segment) {
            self.0.remove(place);
            return Some(false);
        }
        None
    }
}

fn look(places: &[PathBuf], segment: u64, low: &mut Low) -> Vec<Disk> {
    let mut found = Vec::new();
    for place in places {
        let Some(room) = Room::of(place) else { continue };
        let (directory, free_bytes, total_bytes) = (place.display(), room.free, room.total);
        found.push(Disk { directory: place.clone(), free_bytes, total_bytes });
        match low.changes(place, room, segment) {
            Some(true) => tracing::warn!(
                %directory, free_bytes, total_bytes,
                "there is little room on the disk: make room, before the log waits for it"
            ),
            Some(false) => {
                tracing::info!(%directory, free_bytes, total_bytes, "there is enough room on the disk again")
            }
            None => {}
        }
    }
    found
}

impl DiskWatch {
    /// Looks at the file systems of these places, of a log with segments of that many bytes, and
    /// puts what it finds into `disks`.
    ///
    /// # Errors
    /// When there is no thread for it.
    pub(crate) fn start(places: Vec<PathBuf>, segment: u64, disks: Disks) -> std::io::Result<Self> {
        let (end, ended): (_, Receiver<()>) = channel();
        // A file system that does not answer holds up this thread alone.
        let run = move || {
            let mut low = Low::default();
            loop {
                let found = look(&places, segment, &mut low);
                *lock(&disks.0) = found;
                if !matches!(ended.recv_timeout(EVERY), Err(RecvTimeoutError::Timeout)) {
                    return;
                }
            }
        };
        let thread = thread::Builder::new().name("disk".to_owned()).spawn(run)?;
        Ok(Self { end: Some(end), thread: Some(thread) })
    }
}

impl Drop for DiskWatch {
    fn drop(&mut self) {
        drop(self.end.take());
        // A thread that hangs with its file system is left behind.
        drop(self.thread.take());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn little_room_is_reported_once_until_there_is_clearly_more() {
        let mut low = Low::default();
        let place = Path::new("/data");
        let mut at = |free: u64, total: u64| low.changes(place, Room { free, total }, 100);
        assert_eq!(at(1000, 1000), None);
        assert_eq!(at(399, 1000), Some(true));
        assert_eq!(at(300, 1000), None);
        // A little more is not enough yet.
        assert_eq!(at(450, 1000), None);
        assert_eq!(at(600, 1000), Some(false));
        assert_eq!(at(600, 1000), None);
        // Of a large disk, a part.
        assert_eq!(at(4_999, 100_000), Some(true));
        assert_eq!(at(10_000, 100_000), Some(false));
        // But not of a very large one.
        assert_eq!(at(PLENTY, u64::MAX / 2), None);
        assert_eq!(at(PLENTY - 1, u64::MAX / 2), Some(true));
    }

    #[test]
    fn this_machine_has_a_disk() {
        let room = Room::of(Path::new("/")).unwrap();
        assert!(room.total > 0 && room.free <= room.total);
    }
}
