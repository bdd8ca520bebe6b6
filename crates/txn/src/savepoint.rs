//! Savepoints: taking back a part of what a transaction has written.

use freshet_base::panics;

use crate::{NotRecorded, Transaction, state::Before};

/// A place in a transaction to which its writes can be taken back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Savepoint {
    writes: usize,
    replaced: usize,
    locks: usize,
}

impl Transaction<'_> {
    /// Remembers where the transaction is. From now on, rows that it writes twice are kept both
    /// times, until it ends.
    pub fn savepoint(&self) -> Savepoint {
        let writes = self.writes();
        let mut state = self.worker.state.borrow_mut();
        state.savepoints += 1;
        Savepoint { writes, replaced: state.replaced.len(), locks: state.locks.len() }
    }

    /// Takes back what was written since `savepoint`, which stays, and releases what was locked
    /// since. What was read since then stays read. Savepoints made
    /// after it are void.
    pub fn roll_back_to(&self, savepoint: &Savepoint) {
        let _vital = panics::vital("a transaction's writes");
        if let Some(again) = &self.again {
            if again.writes() > savepoint.writes {
                again.unrecorded("takes back what it has written");
            }
            return;
        }
        let owner = self.worker.owner.get();
        let mut kept = self.worker.state.borrow().writes.len() <= savepoint.writes;
        {
            let mut inner = self.worker.inner.borrow_mut();
            let mut state = self.worker.state.borrow_mut();
            while state.writes.len() > savepoint.writes {
                let write = state.pop().expect("there are more");
                self.undo_write(write, &mut inner.rids);
            }
        }
        let mut state = self.worker.state.borrow_mut();
        let since = savepoint.replaced.min(state.replaced.len());
        let taken_back = state.replaced.split_off(since);
        kept &= taken_back.is_empty();
        for before in taken_back.into_iter().rev().filter(|before| before.write < savepoint.writes) {
            let write = &mut state.writes[before.write];
            let owner = owner.expect("it has written");
            let Some(content) = self.worker.core.content(self.guard(), write.fid) else { continue };
            if let Before::Row(_) = before.before {
                // Its index entries have stayed.
                write.entered = None;
            }
            content.replace(self.guard(), &mut write.installed, owner, before.before.change());
        }
        drop(state);
        if !kept {
            self.keep_records(NotRecorded::TakenBack);
        }
        self.release_locks(savepoint.locks);
        if let Some(owner) = owner {
            // Who waits for something that is free now need not wait for the end.
            self.worker.core.waits.wake(owner.index());
        }
    }
}
