//! When the transactions of a window are executed, and how many may be there.

/// When transactions are executed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Schedule {
    /// In the order of LSNs; a reader waits for the version that it reads.
    #[default]
    Versions,
    /// When they have locks on all that they read and write (Calvin, a baseline). Takes read sets:
    /// a transaction without them, which reads what is not there yet, may fail, and is fetched
    /// then.
    Locks,
}

impl Schedule {
    /// How many threads of a standby execute. Those that wait for versions leave their processor to
    /// others. Without enough threads, those that wait for what no lock has brought are all there
    /// are, and have to fetch it.
    pub(crate) fn threads(self) -> usize {
        let by_processors = 2 * std::thread::available_parallelism().map_or(1, usize::from);
        match self {
            Self::Versions => by_processors,
            Self::Locks => by_processors.max(8),
        }
    }
}

/// How much a window may hold that has not been handed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Room {
    /// Bytes of log.
    pub bytes: u64,
    /// Blocks.
    pub blocks: usize,
}

impl Default for Room {
    fn default() -> Self {
        // Enough for many threads; more would not stay in a processor's cache.
        Self { bytes: 2 << 20, blocks: 32 << 10 }
    }
}
