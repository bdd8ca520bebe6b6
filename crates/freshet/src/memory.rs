//! Checks regularly how much memory the node takes, and warns before all is used up.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use freshet_engine::{MemoryStatus, Node};
use freshet_postgres::Limits;

use crate::{config::Settings, process};

/// How often the memory of the machine is looked at; more often where the system bounds what the
/// process maps.
const EVERY: Duration = Duration::from_secs(1);
const EVERY_BOUNDED: Duration = Duration::from_millis(100);

/// How much the node may take, where the machine has `available` bytes, 0 for not known: as
/// configured, or three quarters of that. The rest is for the allocator, the threads, and the
/// machine.
pub(crate) fn limit(settings: &Settings, available: u64) -> u64 {
    match settings.node.memory_bytes {
        0 => available / 4 * 3,
        bytes => bytes,
    }
}

/// How much of it is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Level {
    Enough,
    /// More than four fifths.
    Little,
    Full,
}

impl Level {
    /// A level is left when clearly less is taken, so that no message repeats again and again.
    fn of(memory: &MemoryStatus, before: Self) -> Self {
        let part = |percent: u64| memory.limit.map_or(u64::MAX, |limit| limit / 100 * percent);
        match before {
            _ if memory.full => Self::Full,
            Self::Full if memory.used >= part(92) => Self::Full,
            Self::Full | Self::Little if memory.used >= part(75) => Self::Little,
            _ if memory.used >= part(80) => Self::Little,
            _ => Self::Enough,
        }
    }
}

/// What a node may take that takes `used` bytes, where the system lets its process map `left` more.
/// Stacks and the allocator's own count for that, too. A standby replays into an eighth more.
fn mappable(used: u64, left: u64) -> u64 {
    used.saturating_add(left) / 8 * 7
}

/// Looks now and then.
pub(crate) struct MemoryWatch {
    node: Arc<Node>,
    next: Instant,
    level: Level,
    /// Where the system bounds what the process maps: what was configured, and what holds since.
    limits: Option<[u64; 2]>,
    /// How many sessions there may be, and how many threads there were before the first of them.
    sessions: u64,
    threads: u64,
}

impl MemoryWatch {
    /// Looks at this node's, which has this many sessions at most, and none yet.
    pub(crate) fn new(node: Arc<Node>, sessions: usize) -> Self {
        let threads = process::threads();
        Self { node, next: Instant::now(), level: Level::Enough, limits: None, sessions: sessions as u64, threads }
    }

    /// Looks, if it is time to, and says what has changed.
    pub(crate) fn look(&mut self) {
        if Instant::now() < self.next {
            return;
        }
        self.adapt();
        self.next = Instant::now() + if self.limits.is_some() { EVERY_BOUNDED } else { EVERY };
        let memory = self.node.memory();
        let level = Level::of(&memory, self.level);
        if level == self.level {
            return;
        }
        let MemoryStatus { used, owners, limit, kept_for_snapshots, .. } = memory;
        let (owners, resident_bytes) = (owners.to_string(), process::resident_bytes());
        match level {
            Level::Full => tracing::warn!(
                used,
                limit,
                owners,
                kept_for_snapshots,
                resident_bytes,
                "the node takes nearly as much memory as it may: statements that add rows get 53200; delete rows, end \
                 old transactions, or raise memory-bytes"
            ),
            Level::Little if self.level == Level::Enough => tracing::warn!(
                used,
                limit,
                owners,
                kept_for_snapshots,
                resident_bytes,
                "a fifth is left of the memory that the node may take: from 95 % on, statements that add rows get 53200"
            ),
            Level::Little => tracing::info!(used, limit, owners, "statements may add rows again"),
            Level::Enough => tracing::info!(used, limit, owners, "the node has enough memory again"),
        }
        self.level = level;
    }

    /// Where the system bounds what the process maps, lowers the limit by what is mapped and not
    /// counted: an allocation that fails ends the node.
    fn adapt(&mut self) {
        let Some(left) = process::left_to_map() else { return };
        // A stack is mapped all at once. Sessions that come later find half of what is left, or are
        // refused.
        let to_come = self.sessions.saturating_sub(process::threads().saturating_sub(self.threads));
        let left = left - (left / 2).min(to_come * Limits::default().stack as u64);
        let MemoryStatus { used, limit, .. } = self.node.memory();
        let limit = limit.unwrap_or(u64::MAX);
        // Unless this has set it, it was configured.
        let configured = self.limits.filter(|[_, set]| *set == limit).map_or(limit, |[configured, _]| configured);
        let set = configured.min(mappable(used, left));
        self.node.set_memory_bytes(set);
        self.limits = Some([configured, set]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A standby replays until an eighth above 95 %.
    #[test]
    fn what_may_be_mapped_is_never_used_up() {
        for (used, left) in [(0, 1 << 30), (1 << 29, 1 << 20), (1 << 30, 0)] {
            let limit = mappable(used, left);
            assert!(limit / 20 * 19 + limit / 8 < used + left, "{used} {left}");
        }
    }

    #[test]
    fn a_level_is_left_when_clearly_less_is_taken() {
        let mut level = Level::Enough;
        let mut at = |used: u64, limit: Option<u64>| {
            let full = limit.is_some_and(|limit| used >= limit / 20 * 19);
            let owners = Default::default();
            level = Level::of(&MemoryStatus { used, owners, limit, kept_for_snapshots: 0, full }, level);
            level
        };
        let limit = Some(1000);
        assert_eq!([0, 799, 800, 780, 750].map(|used| at(used, limit)), {
            [Level::Enough, Level::Enough, Level::Little, Level::Little, Level::Little]
        });
        assert_eq!([740, 950, 930, 910, 950, 100].map(|used| at(used, limit)), {
            [Level::Enough, Level::Full, Level::Full, Level::Little, Level::Full, Level::Enough]
        });
        assert_eq!(at(u64::MAX / 2, None), Level::Enough);
    }

    #[test]
    fn by_default_a_node_takes_three_quarters() {
        let mut settings = Settings::default();
        assert_eq!((limit(&settings, 0), limit(&settings, 1000)), (0, 750));
        settings.node.memory_bytes = 7;
        assert_eq!(limit(&settings, 1000), 7);
    }
}
