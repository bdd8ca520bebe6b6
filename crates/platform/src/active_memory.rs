//! Active-Memory: the coordinator writes undo entries and then rows into the memory of all nodes
//! that have copies of what a transaction has changed, and then that it is committed (section 4.5).
//!
//! For each partition there is one list, which goes to all its copies (listing 1, figure 6). It is
//! entered into an undo ring that the coordinator has on each of those nodes, so that the ring of a
//! partition looks the same on all of them. The node's own copies get it, too: they are its memory
//! that is not volatile.
//!
//! The paper has a flag in each undo entry that says whether it is committed. Here that is a mark
//! for each ring, which comes to the end of all transactions that have completed, in the order in
//! which they were posted: a group commit ([`crate::recover`] says why). One mark serves all that
//! have completed since the last turn.

use std::collections::VecDeque;

use freshet_base::{Lsn, sync::Arc};
use freshet_fabric::Place;
use freshet_mirror::{ARENAS, Extent, List, MARK, Ring};

use crate::{
    Failed,
    clock::Role,
    link::RING,
    locking::{Change, Open},
    node::Core,
};

/// A list that was posted: to which node, and its number there.
type Posted = (usize, u64);

/// Transactions whose commit is being marked.
struct Marking {
    transactions: Vec<Open>,
    /// The rings, and where the last of the transactions ends.
    rings: Vec<(usize, Lsn)>,
    marks: Vec<Posted>,
}

/// A coordinator's view of the rings on other nodes.
pub(crate) struct Memories {
    /// By partition, with where the last batch ends.
    rings: Vec<(Ring, Lsn)>,
    /// How many transactions were posted.
    number: u64,
    /// Those whose lists have not completed, in their order, with their numbers.
    under_way: VecDeque<(u64, Open, Vec<Posted>)>,
    marking: VecDeque<Marking>,
}

impl Memories {
    pub fn new(partitions: usize) -> Self {
        let ring = |_| (Ring::new(RING as u64), Lsn(0));
        let rings = (0..partitions).map(ring).collect();
        Self { rings, number: 0, under_way: VecDeque::new(), marking: VecDeque::new() }
    }

    /// The number of the transaction that is replicated next.
    pub fn next_number(&self) -> u64 {
        self.number + 1
    }

    /// Step 1: undo entries, and changes in place.
    pub fn replicate(&mut self, core: &mut Core, open: Open) -> Result<(), Failed> {
        core.clock.enter(Role::Build);
        self.number += 1;
        let to = Lsn(self.number);
        let mut posted = Vec::new();
        for partition in open.input.partitions() {
            let here = |change: &&Change| usize::from(change.partition) == partition;
            let (mut writes, mut list) = (List::default(), List::default());
            for Change { slot, column, old, new, .. } in open.changes.iter().filter(here) {
                let offset = core.store.place(partition, *slot, *column);
                writes.push(Place { region: ARENAS, offset }, new, old);
            }
            if writes.writes().next().is_none() {
                continue;
            }
            let (ring, end) = &mut self.rings[partition];
            ring.enter(Extent { from: *end, to, continues: false }, &writes, &mut list)?;
            *end = to;
            writes.writes().for_each(|(to, bytes)| list.push(to, bytes, &[]));
            let (list, hosts) = (Arc::new(list), core.hosts(partition).collect::<Vec<_>>());
            for node in hosts {
                posted.extend(core.post(node, partition, &list));
            }
        }
        self.under_way.push_back((self.number, open, posted));
        Ok(())
    }

    /// Continues what has completed. Returns the transactions that are committed everywhere.
    pub fn turn(&mut self, core: &mut Core) -> Vec<Open> {
        self.mark(core);
        let mut ended = Vec::new();
        let is_over = |marking: &mut Marking| marking.marks.iter().all(|posted| core.has_completed(*posted));
        while let Some(marking) = self.marking.pop_front_if(is_over) {
            for (partition, to) in marking.rings {
                // No node undoes these any more: their entries can be used again.
                self.rings[partition].0.marked(to);
            }
            ended.extend(marking.transactions);
        }
        ended
    }

    /// Step 2, for all whose lists have completed everywhere.
    fn mark(&mut self, core: &mut Core) {
        let mut rings: Vec<(usize, Lsn)> = Vec::new();
        let mut transactions = Vec::new();
        let is_there = |it: &mut (u64, Open, Vec<Posted>)| it.2.iter().all(|posted| core.has_completed(*posted));
        while let Some((number, open, _)) = self.under_way.pop_front_if(is_there) {
            for change in &open.changes {
                let partition = usize::from(change.partition);
                match rings.iter_mut().find(|(it, _)| *it == partition) {
                    Some((_, to)) => *to = Lsn(number),
                    None => rings.push((partition, Lsn(number))),
                }
            }
            transactions.push(open);
        }
        if transactions.is_empty() {
            return;
        }
        core.clock.enter(Role::Build);
        let mut marks = Vec::new();
        for (partition, to) in &rings {
            let mut list = List::default();
            list.push(Place { region: 0, offset: MARK }, &to.0.to_le_bytes(), &[]);
            let (list, hosts) = (Arc::new(list), core.hosts(*partition).collect::<Vec<_>>());
            for node in hosts {
                marks.extend(core.post(node, *partition, &list));
            }
        }
        self.marking.push_back(Marking { transactions, rings, marks });
    }
}
