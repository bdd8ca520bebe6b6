//! Checks regularly how much memory the tables take, and says so before all is used up.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use freshet_engine::{MemoryStatus, Node};

use crate::{config::Settings, process};

/// How often the memory of the machine is looked at.
const EVERY: Duration = Duration::from_secs(1);

/// How much tables may take, where the machine has `available` bytes, 0 for not known: as
/// configured, or what statements leave of nine tenths of the machine.
pub(crate) fn limit(settings: &Settings, available: u64) -> u64 {
    match settings.node.memory_bytes {
        0 if available == 0 => 0,
        0 => {
            let statements = settings.server.sql.bounds(available).memory as u64;
            (available / 10 * 9).saturating_sub(statements).max(available / 4)
        }
        bytes => bytes,
    }
}

/// How much of it is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Level {
    Enough,
    /// More than nine tenths.
    Little,
    Full,
}

impl Level {
    /// A level is left when clearly less is taken, so that no message repeats again and again.
    fn of(memory: &MemoryStatus, before: Self) -> Self {
        let part = |percent: u64| memory.limit.map_or(u64::MAX, |limit| limit / 100 * percent);
        match before {
            _ if memory.full => Self::Full,
            Self::Full if memory.used >= part(97) => Self::Full,
            Self::Full | Self::Little if memory.used >= part(85) => Self::Little,
            _ if memory.used >= part(90) => Self::Little,
            _ => Self::Enough,
        }
    }
}

/// Looks now and then.
pub(crate) struct MemoryWatch {
    node: Arc<Node>,
    next: Instant,
    level: Level,
}

impl MemoryWatch {
    /// Looks at this node's tables.
    pub(crate) fn new(node: Arc<Node>) -> Self {
        Self { node, next: Instant::now(), level: Level::Enough }
    }

    /// Looks, if it is time to, and says what has changed.
    pub(crate) fn look(&mut self) {
        if Instant::now() < self.next {
            return;
        }
        self.next = Instant::now() + EVERY;
        let memory = self.node.memory();
        let level = Level::of(&memory, self.level);
        if level == self.level {
            return;
        }
        let MemoryStatus { used, limit, kept_for_snapshots, .. } = memory;
        let resident_bytes = process::resident_bytes();
        match level {
            Level::Full => tracing::warn!(
                used,
                limit,
                kept_for_snapshots,
                resident_bytes,
                "the tables take as much memory as they may: statements that add rows get 53200; delete rows, end old \
                 transactions, or raise memory-bytes"
            ),
            Level::Little if self.level == Level::Enough => tracing::warn!(
                used,
                limit,
                kept_for_snapshots,
                resident_bytes,
                "little is left of the memory that tables may take: statements that add rows will get 53200"
            ),
            Level::Little => {
                tracing::info!(used, limit, kept_for_snapshots, "the tables take less memory than they may again");
            }
            Level::Enough => {
                tracing::info!(used, limit, kept_for_snapshots, "there is enough memory for tables again");
            }
        }
        self.level = level;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_level_is_left_when_clearly_less_is_taken() {
        let mut level = Level::Enough;
        let mut at = |used: u64, limit: Option<u64>| {
            let full = limit.is_some_and(|limit| used >= limit);
            level = Level::of(&MemoryStatus { used, limit, kept_for_snapshots: 0, full }, level);
            level
        };
        let limit = Some(1000);
        assert_eq!([0, 899, 900, 880, 850].map(|used| at(used, limit)), {
            [Level::Enough, Level::Enough, Level::Little, Level::Little, Level::Little]
        });
        assert_eq!([840, 1000, 980, 960, 1000, 100].map(|used| at(used, limit)), {
            [Level::Enough, Level::Full, Level::Full, Level::Little, Level::Full, Level::Enough]
        });
        assert_eq!(at(u64::MAX / 2, None), Level::Enough);
    }

    #[test]
    fn by_default_tables_and_statements_take_nine_tenths() {
        let mut settings = Settings::default();
        assert_eq!((limit(&settings, 0), limit(&settings, 1000)), (0, 650));
        settings.server.sql.memory_bytes = 500 << 20;
        assert_eq!(limit(&settings, 1000 << 20), 400 << 20);
        settings.server.sql.memory_bytes = 5000 << 20;
        assert_eq!(limit(&settings, 1000 << 20), 250 << 20);
        settings.node.memory_bytes = 7;
        assert_eq!(limit(&settings, 1000 << 20), 7);
    }
}
