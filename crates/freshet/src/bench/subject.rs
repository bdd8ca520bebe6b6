//! What is measured: a primary within this process, and its standbys.

use std::time::{Duration, Instant};

use freshet_base::Stamp;
use freshet_engine::Database;

use super::{options::Common, report::Spread};
use crate::{Failure, config::Domain};

/// The primary within this process, and its standbys.
pub(crate) struct Subject {
    database: Database,
}

/// Where things stood when the measurement began.
pub(crate) struct Begun {
    at: Instant,
    reserved: Stamp,
}

/// What was observed while the measurement lasted.
#[derive(Debug, Default)]
pub(crate) struct Measured {
    /// How long it lasted.
    pub(crate) time: Duration,
    /// Whether there is a log.
    pub(crate) logged: bool,
    /// Bytes that went to the log.
    pub(crate) log_bytes: u64,
    /// Processor time of the primary's log: flushing and shipping.
    pub(crate) log_cpu: Duration,
    /// Processor time of replay, of the standby that used most.
    pub(crate) replay_cpu: Option<Duration>,
    /// Standby read view / primary read view; of the worst standby.
    pub(crate) freshness: Option<Spread>,
    /// From acknowledged to visible, in microseconds; of the worst standby.
    pub(crate) visibility_us: Option<Spread>,
}

impl Subject {
    pub(crate) fn start(common: &Common) -> Result<Self, Failure> {
        if let Some(pin) = &common.pin {
            pin.primary.pin()?;
        }
        if common.standbys > 0 || common.domain != Domain::None {
            return Err(Failure::new("not yet"));
        }
        Ok(Self { database: Database::volatile(usize::from(common.threads) + 2)? })
    }

    pub(crate) fn database(&self) -> &Database {
        &self.database
    }

    fn reserved(&self) -> Stamp {
        self.database.core().snapshots.current()
    }

    /// The measurement begins.
    pub(crate) fn begin(&self) -> Begun {
        Begun { at: Instant::now(), reserved: self.reserved() }
    }

    /// The measurement ends.
    pub(crate) fn end(&self, begun: Begun) -> Measured {
        let reserved = self.reserved();
        Measured { time: begun.at.elapsed(), log_bytes: reserved.since(begun.reserved), ..Measured::default() }
    }

    pub(crate) fn stop(self) -> Result<(), Failure> {
        Ok(())
    }
}
