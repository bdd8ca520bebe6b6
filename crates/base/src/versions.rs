//! Versions of what lasts or travels, and the level up to which a cluster uses them.
//!
//! Each format states in one constant, beside its code, which versions this release reads
//! ([`Versions`]). Which one it writes depends on the cluster's *format level*: a number that is
//! kept with the record of the in-sync set, and that an operator raises once all members run a
//! release that knows it. Until then a release writes what the release before it reads, so that a
//! node may go back.
//!
//! The feature `next-release` makes this program its own successor: each version is one higher, and
//! has something new. Tests build it to try an upgrade.

use std::{
    fmt,
    ops::RangeInclusive,
    sync::atomic::{AtomicU32, Ordering},
};

use serde::{Deserialize, Serialize};

/// One in the release that tests build as the successor of this one, else zero.
const NEXT: u32 = cfg!(feature = "next-release") as u32;

/// The name of this release, for messages.
pub const RELEASE: &str = if cfg!(feature = "next-release") {
    concat!(env!("CARGO_PKG_VERSION"), "-next")
} else {
    env!("CARGO_PKG_VERSION")
};

/// Up to which versions a cluster writes its formats.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Level(pub u32);

impl Level {
    /// That of records which name none.
    pub const FIRST: Self = Self(1);
    /// The highest that this release knows. A cluster that it founds begins with that.
    pub const NEWEST: Self = Self(1 + NEXT);
}

impl Default for Level {
    fn default() -> Self {
        Self::FIRST
    }
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// That of the cluster whose node this process is, as far as is known; it only rises. Where tests
/// have several nodes in a process, they share it.
static LEVEL: AtomicU32 = AtomicU32::new(Level::FIRST.0);

/// The level at which this process writes.
pub fn level() -> Level {
    // Relaxed: nothing else is read by it. Who raises it writes afterwards, in the same thread.
    Level(LEVEL.load(Ordering::Relaxed))
}

/// The cluster's level is on record here: from now on all is written at it. A higher one than this
/// release knows counts as the highest that it does.
pub fn raise_to(level: Level) {
    LEVEL.fetch_max(level.min(Level::NEWEST).0, Ordering::Relaxed);
}

/// The versions of one format that this release reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Versions {
    oldest: u32,
    newest: u32,
    /// From this level on the newest is written, and the one before it below.
    since: Level,
}

impl Versions {
    /// From `oldest` to `newest`, which is written at each level. In the `next-release` there is
    /// one more, written from the second level on.
    pub const fn new(oldest: u32, newest: u32) -> Self {
        Self { oldest, newest: newest + NEXT, since: Level::NEWEST }
    }

    /// This version alone, in the `next-release`, too.
    pub const fn only(version: u32) -> Self {
        Self { oldest: version, newest: version, since: Level::FIRST }
    }

    /// Which ones are read.
    pub fn reads(self) -> RangeInclusive<u32> {
        self.oldest..=self.newest
    }

    /// The highest that is read.
    pub const fn newest(self) -> u32 {
        self.newest
    }

    /// Which one is written at `level`.
    pub fn written_at(self, level: Level) -> u32 {
        if level >= self.since { self.newest } else { self.newest - 1 }
    }

    /// Which one this process writes now.
    pub fn writes(self) -> u32 {
        self.written_at(level())
    }

    /// Whether what was `found` has what the `next-release` adds.
    pub fn is_next(self, found: u32) -> bool {
        NEXT == 1 && found == self.newest
    }

    /// Whether `found` can be read.
    ///
    /// # Errors
    /// [`OtherVersion`] if not.
    pub fn check(self, found: u32) -> Result<(), OtherVersion> {
        if self.reads().contains(&found) { Ok(()) } else { Err(OtherVersion { found, reads: self }) }
    }

    /// The highest that both sides know, if the other one knows `theirs`.
    pub fn common(self, theirs: &RangeInclusive<u32>) -> Option<u32> {
        let highest = self.newest.min(*theirs.end());
        (highest >= self.oldest.max(*theirs.start())).then_some(highest)
    }
}

impl fmt::Display for Versions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { oldest, newest, .. } = self;
        if oldest == newest { write!(f, "{newest}") } else { write!(f, "{oldest} to {newest}") }
    }
}

/// A version that this release does not read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OtherVersion {
    /// That version.
    pub found: u32,
    /// Those that it reads.
    pub reads: Versions,
}

impl std::error::Error for OtherVersion {}

impl fmt::Display for OtherVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { found, reads } = self;
        let (whose, help) = match *found > reads.newest {
            true => ("a later", "run at least the release that wrote it"),
            false => ("an earlier", "run that release, or one between the two"),
        };
        write!(f, "format {found}, of {whose} release; this one, {RELEASE}, reads {reads}: {help}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(oldest: u32, newest: u32, since: u32) -> Versions {
        Versions { oldest, newest, since: Level(since) }
    }

    #[test]
    fn the_highest_common_version_is_chosen() {
        let ours = of(3, 5, 1);
        for (theirs, common) in
            [(5..=5, Some(5)), (4..=9, Some(5)), (1..=3, Some(3)), (2..=4, Some(4)), (6..=7, None), (1..=2, None)]
        {
            assert_eq!(ours.common(&theirs), common, "{theirs:?}");
            assert_eq!(of(*theirs.start(), *theirs.end(), 1).common(&ours.reads()), common, "the other way round");
        }
    }

    #[test]
    fn what_is_new_is_written_from_its_level_on() {
        let raised = of(6, 7, 2);
        assert_eq!([1, 2, 3].map(|level| raised.written_at(Level(level))), [6, 7, 7]);
        assert_eq!(of(6, 6, 1).written_at(Level::FIRST), 6);
    }

    #[test]
    fn another_version_is_refused_with_both_and_what_to_do() {
        let reads = of(2, 6, 1);
        assert_eq!((2..=6).map(|found| reads.check(found)).collect::<Result<Vec<_>, _>>().map(|all| all.len()), Ok(5));
        let later = reads.check(7).unwrap_err().to_string();
        assert!(later.starts_with("format 7, of a later release; this one, "), "{later}");
        assert!(later.ends_with("reads 2 to 6: run at least the release that wrote it"), "{later}");
        let earlier = of(6, 6, 1).check(1).unwrap_err().to_string();
        assert!(earlier.contains("of an earlier release") && earlier.contains("reads 6: run that"), "{earlier}");
    }
}
