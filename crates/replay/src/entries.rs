//! Index entries of live replay: gathered while records are replayed, entered in the order of their
//! keys.
//!
//! One insertion after another goes down to another leaf each time. In order, the entries of a leaf
//! are entered together, and the next leaf is near: so the load of a large table is replayed as
//! fast as it was made. Readers may run: an entry comes after the word that it leads to.

use freshet_base::Rid;
use freshet_storage::{Guard, Index};

use crate::runs::Run;

/// Runs without entries, whose memory is used again.
#[derive(Debug, Default)]
pub(crate) struct Spare(Vec<Run>);

/// Entries that wait, each with the index as its record's replay found it, under one guard.
pub(crate) struct Entries<'g> {
    runs: Vec<(&'g Index, Run)>,
    spare: Spare,
    bytes: usize,
}

impl<'g> Entries<'g> {
    pub(crate) fn new(spare: Spare) -> Self {
        Self { runs: Vec::new(), spare, bytes: 0 }
    }

    #[inline]
    pub(crate) fn push(&mut self, index: &'g Index, key: &[u8], rid: Rid) {
        self.bytes += key.len();
        // There are few: those of the tables that one job is about.
        if let Some((_, run)) = self.runs.iter_mut().find(|(other, _)| std::ptr::eq(*other, index)) {
            return run.push(key, rid);
        }
        let mut run = self.spare.0.pop().unwrap_or_default();
        run.push(key, rid);
        self.runs.push((index, run));
    }

    /// Bytes of keys that wait.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Enters them all. Some may be there already, if the range was replayed before.
    pub(crate) fn enter(mut self, guard: &Guard<'_>) -> Spare {
        for (index, mut run) in self.runs {
            run.sort();
            index.tree().insert_run(guard, run.sorted()).expect("keys were measured");
            run.clear();
            self.spare.0.push(run);
        }
        self.spare
    }
}
