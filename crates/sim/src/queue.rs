//! What happens, by time, and of one time in the order in which it was arranged.

use std::{cmp::Reverse, collections::BinaryHeap};

/// Events are long, so they stay where they are while their places in the order move.
#[derive(Debug)]
pub(crate) struct Queue<T> {
    /// When, the how many-th, and where it lies.
    order: BinaryHeap<Reverse<(u64, u64, usize)>>,
    entries: Vec<Option<T>>,
    free: Vec<usize>,
    count: u64,
}

impl<T> Default for Queue<T> {
    fn default() -> Self {
        Self { order: BinaryHeap::new(), entries: Vec::new(), free: Vec::new(), count: 0 }
    }
}

impl<T> Queue<T> {
    /// Something happens then.
    pub fn push(&mut self, at: u64, what: T) {
        self.count += 1;
        let place = self.free.pop().unwrap_or_else(|| {
            self.entries.push(None);
            self.entries.len() - 1
        });
        self.entries[place] = Some(what);
        self.order.push(Reverse((at, self.count, place)));
    }

    /// What happens next, unless that is later than `until`; and when.
    pub fn pop(&mut self, until: u64) -> Option<(u64, T)> {
        let Reverse((at, _, place)) = *self.order.peek().filter(|Reverse((at, ..))| *at <= until)?;
        self.order.pop();
        self.free.push(place);
        self.entries[place].take().map(|what| (at, what))
    }

    /// Whether nothing happens any more.
    pub fn is_empty(&self) -> bool {
        self.order.is_empty()
    }
}
