//! A mirror's memory is read for another node, while its primary writes there.

use std::{cell::RefCell, collections::VecDeque};

use freshet_base::{Fid, Lsn};
use freshet_mirror::{Damaged, FuzzySnapshot, mark_of};

use super::{What, World, memory::Records, posted::Posted, recovering::damaged};
use crate::checks::{Property, Violation};

/// It is looked as often whether a fuzzy snapshot's end is committed.
const PATIENCE: u32 = 20;

/// A fuzzy snapshot that is being taken.
pub(crate) struct FuzzyReading {
    fuzzy_snapshot: FuzzySnapshot,
    session: u64,
    chunks: VecDeque<(Fid, usize)>,
    records: Records,
    /// How often it was looked.
    looks: u32,
}

impl World {
    fn fuzzy_snapshot_soon(&mut self, node: usize) {
        let pause = self.dice.between(5, 300);
        self.later(pause, node, |node, life| What::FuzzySnapshot { node, life });
    }

    /// Begins one, if there is something to be seen.
    pub(super) fn begin_fuzzy_snapshot(&mut self, node: usize) -> Result<(), Violation> {
        let state = &self.nodes[node];
        let stays = state.noted.is_some().then(|| state.base.max(self.mark(node)));
        let Some(start) = self.mirror_state(node).fuzzy_snapshot_from(stays) else { return Ok(()) };
        let state = &mut self.nodes[node];
        let fuzzy_snapshot = match FuzzySnapshot::begin(state.memory.clone(), start) {
            // Its directory may just be written.
            Err(Damaged::Entry { .. }) if state.link.is_some() => return Ok(()),
            fuzzy_snapshot => fuzzy_snapshot.map_err(damaged)?,
        };
        let chunks = fuzzy_snapshot.chunks().collect();
        state.fuzzy_snapshot =
            Some(FuzzyReading { fuzzy_snapshot, session: state.session, chunks, records: Records::new(), looks: 0 });
        self.fuzzy_snapshot_soon(node);
        Ok(())
    }

    fn mark(&self, node: usize) -> Lsn {
        mark_of(&*self.nodes[node].memory[0])
    }

    /// The next part of it.
    pub(super) fn fuzzy_snapshot(&mut self, node: usize) -> Result<(), Violation> {
        let Some(mut fuzzy) = self.nodes[node].fuzzy_snapshot.take() else { return Ok(()) };
        if fuzzy.session != self.nodes[node].session {
            return Ok(());
        }
        match fuzzy.chunks.front() {
            Some(&(fid, chunk)) => {
                if self.visit(node, &mut fuzzy, fid, chunk)? {
                    fuzzy.chunks.pop_front();
                }
            }
            None => {
                let (least, committed) =
                    (fuzzy.fuzzy_snapshot.least(), self.nodes[node].announced.max(self.mark(node)));
                fuzzy.looks += 1;
                if committed >= least || fuzzy.looks > PATIENCE {
                    self.report.fuzzy_snapshots += 1;
                    return self.check_fuzzy_snapshot(node, fuzzy, least);
                }
            }
        }
        self.nodes[node].fuzzy_snapshot = Some(fuzzy);
        self.fuzzy_snapshot_soon(node);
        Ok(())
    }

    /// Reads a chunk; what its primary has posted lands in between. Says whether it was read.
    fn visit(&mut self, node: usize, fuzzy: &mut FuzzyReading, fid: Fid, chunk: usize) -> Result<bool, Violation> {
        let link = self.nodes[node].link.filter(|link| self.links[*link].open);
        let link = link.filter(|link| self.cards || !self.nodes[self.links[*link].from].stopped);
        let posted = link.map(|link| std::mem::replace(&mut self.links[link].posted, Posted::none()));
        let (posted, mut complete, mut landed) = (RefCell::new(posted), Vec::new(), 0);
        let complete_lists = RefCell::new(&mut complete);
        let count = RefCell::new(&mut landed);
        let land = || {
            let list = posted.borrow_mut().as_mut().and_then(Posted::land);
            if let Some(ends) = list {
                complete_lists.borrow_mut().extend(ends);
                **count.borrow_mut() += 1;
            }
            list.is_some()
        };
        let (dice, mut found) = (&mut self.dice, Vec::new());
        let visited = fuzzy.fuzzy_snapshot.visit(chunk, land, |rid, address, row| {
            found.push(((fid, rid), (address, row.map(Into::into))));
            if dice.one_in(3) {
                land();
            }
        });
        let posted = posted.into_inner();
        if let (Some(link), Some(posted)) = (link, posted) {
            self.links[link].posted = posted;
            for token in complete {
                let pause = self.dice.between(5, 200);
                self.after(pause, What::Completed { link, token });
            }
            for _ in 0..landed {
                self.landed(node)?;
            }
        }
        match visited {
            Ok(()) => {
                fuzzy.records.extend(found);
                Ok(true)
            }
            // More has to be posted first, or the list of a primary that has died is not whole.
            Err(_) if link.is_none() || self.nodes[node].session != fuzzy.session => Ok(false),
            Err(why) => Property::Mirrors.violated(format!("a fuzzy snapshot, when all has landed: {why}")),
        }
    }

    /// With the log from where it begins, it is the state where it ends.
    fn check_fuzzy_snapshot(&mut self, node: usize, fuzzy: FuzzyReading, end: Lsn) -> Result<(), Violation> {
        let term = self.nodes[node].history.last_term();
        let FuzzyReading { fuzzy_snapshot, mut records, .. } = fuzzy;
        self.note(|| format!("a fuzzy snapshot of node {node}, from {} to {end}", fuzzy_snapshot.start()));
        let wanted = self.histories.at(term, end);
        for (id, (at, row)) in wanted.iter().filter(|(_, (at, _))| *at >= fuzzy_snapshot.start()) {
            records.insert(*id, (*at, row.clone()));
        }
        let living = |records: &Records| -> Records {
            records.iter().filter(|(_, (_, row))| row.is_some()).map(|(id, record)| (*id, record.clone())).collect()
        };
        if living(&records) != living(&wanted) {
            return Property::Mirrors.violated(format!(
                "a fuzzy snapshot of node {node} from {} on is not the state with the log up to {end}",
                fuzzy_snapshot.start()
            ));
        }
        Ok(())
    }
}
