//! Sets: in-sync sets that arrive in the log, and are noted before what is behind them is
//! acknowledged.

use std::time::{Duration, Instant};

use freshet_base::wait::{self, Patience};
use freshet_cluster::in_sync::InSyncSet;

use super::Shared;
use crate::terms::Terms;

/// After this a set that could not be noted is noted again.
const AGAIN: Duration = Duration::from_millis(250);

/// An in-sync set has arrived: it is noted before the log behind it is acknowledged. If that fails,
/// as on a full disk, it is tried again until this standby stops. Blocks for so long.
pub(super) fn note_set(terms: &Terms, bytes: &[u8], stops: &(dyn Fn() -> bool + Sync)) -> Result<InSyncSet, String> {
    let set = crate::wire::decode_set(bytes).map_err(|error| error.to_string())?;
    let mut failed = None;
    loop {
        let why = match terms.note_set(set.clone()) {
            Ok(()) => return Ok(set),
            Err(why) if stops() => return Err(why.to_string()),
            Err(why) => why,
        };
        if failed.as_ref() != Some(&why) {
            tracing::error!(cause = %why, "an in-sync set cannot be noted: this standby waits, and tries it again");
            failed = Some(why);
        }
        let _ = wait::sleep(Patience::endless().until(Instant::now() + AGAIN).unless(stops));
    }
}

impl Shared {
    /// An in-sync set has arrived.
    pub(super) fn noted(&self, set: Result<InSyncSet, String>) {
        let mut state = self.state();
        match set {
            Ok(set) => {
                if state.follower.noted(&set) {
                    self.follow.leave();
                }
                drop(state);
                if let Some(session) = self.relaying() {
                    session.end_feeds_of_removed();
                }
            }
            Err(why) => {
                state.follower.not_noted();
                self.follow.fail(why);
            }
        }
    }
}
