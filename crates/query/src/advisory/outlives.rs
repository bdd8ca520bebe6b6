//! Locks that outlive their transactions.

use freshet_base::panics;

use super::{Held, SessionAdvisory, guard};

impl SessionAdvisory {
    /// Whether it holds a lock that outlives its transactions.
    pub fn holds_as_session(&self) -> bool {
        let _vital = panics::vital("the advisory locks");
        let state = guard(&self.locks.state);
        let keys = state.by_session.get(&self.place).into_iter().flatten();
        let own = |held: &Held| held.place == self.place && held.session > 0;
        { keys }.any(|key| state.holders(*key).iter().any(own))
    }
}
