//! How long an operator waits for the record of a change: of members, the level, the authority.

use std::time::{Duration, Instant};

use freshet_base::wait::{self, Patience};

/// So long it may take until what an operator has changed is on record.
pub(super) const ON_RECORD: Duration = Duration::from_secs(10);
const LOOK: Duration = Duration::from_millis(5);

/// Blocks until that is so, until `deadline` at most; says whether it is.
pub(super) fn comes_true(deadline: Instant, mut is_so: impl FnMut() -> bool) -> bool {
    wait::poll(LOOK, Patience::endless().until(deadline), || is_so().then_some(())).is_ok()
}
