//! How changes of members, the level, the authority and the format come on record, and how long an
//! operator waits for that.

use std::time::{Duration, Instant};

use freshet_base::{
    Lsn,
    wait::{self, Patience},
};
use freshet_cluster::commit_rule::Event;

use super::{NotRecorded, Shared};
use crate::{feed::Feeder, wire};

/// So long it may take until what an operator has changed is on record.
pub(super) const ON_RECORD: Duration = Duration::from_secs(10);
const LOOK: Duration = Duration::from_millis(5);

/// Blocks until that is so, until `deadline` at most; says whether it is.
pub(super) fn comes_true(deadline: Instant, mut is_so: impl FnMut() -> bool) -> bool {
    wait::poll(LOOK, Patience::endless().until(deadline), || is_so().then_some(())).is_ok()
}

impl Shared {
    /// Records the in-sync set that the rule asks for: first in the own terms, then in the log.
    pub(super) fn record_set(&self) -> Result<(), NotRecorded> {
        while let Some(set) = self.commit.set_to_write() {
            let mut record = self.record.lock().expect("no code panics under this mutex");
            let Some(record) = record.as_mut().filter(|_| !self.stopping()) else { break };
            let bytes = wire::encode_set(&set);
            let number = set.number;
            self.terms.note_set(set).map_err(|error| NotRecorded::Terms(error.to_string()))?;
            self.witness.ring();
            // Before it can be shipped.
            self.feeds.state().host.set_recorded(Lsn::MAX);
            let end = record(&bytes).map_err(NotRecorded::Log)?;
            self.feeds.state().host.set_recorded(end);
            self.apply(Event::Written { number, end });
        }
        if self.commit.set_took_effect() {
            self.terms.note_led(self.who.term).map_err(|error| NotRecorded::Terms(error.to_string()))?;
        }
        Ok(())
    }
}
