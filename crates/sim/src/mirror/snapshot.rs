//! A mirror's memory is read for another node, while its primary writes there.

use std::{cell::RefCell, collections::VecDeque};

use freshet_base::{Fid, Lsn};
use freshet_mirror::{Damaged, FuzzySnapshot};

use super::memory::{Records, damaged, living, state_at};
use crate::{
    checks::{Property, Violation},
    log::Block,
    world::{Own, What, World},
};

/// It is looked as often whether a fuzzy snapshot's end is committed.
const PATIENCE: u32 = 20;

/// A fuzzy snapshot that is being taken.
pub(super) struct Reading {
    snapshot: FuzzySnapshot,
    session: u64,
    chunks: VecDeque<(Fid, usize)>,
    records: Records,
    /// How often it was looked.
    looks: u32,
}

impl World {
    fn read_soon(&mut self, node: usize) {
        let pause = self.dice.between(5, 300);
        self.later(node, pause, Own::Read);
    }

    /// Begins one, if there is something to be seen.
    pub(super) fn begin_snapshot(&mut self, node: usize) -> Result<(), Violation> {
        let mirror = self.mirror(node);
        let stays = mirror.noted.is_some().then(|| mirror.base.max(mirror.mark()));
        let Some(start) = mirror.state.fuzzy_snapshot_from(stays).filter(|_| mirror.reading.is_none()) else {
            return Ok(());
        };
        let snapshot = match FuzzySnapshot::begin(mirror.memory.clone(), start) {
            // Its directory may just be written.
            Err(Damaged::Entry { .. }) => return Ok(()),
            snapshot => snapshot.map_err(damaged)?,
        };
        let chunks = snapshot.chunks().collect();
        let (session, records) = (mirror.session, Records::new());
        mirror.reading = Some(Reading { snapshot, session, chunks, records, looks: 0 });
        self.read_soon(node);
        Ok(())
    }

    /// The next part of it.
    pub(crate) fn read_memory(&mut self, node: usize) -> Result<(), Violation> {
        let Some(mirror) = &mut self.nodes[node].mirror else { return Ok(()) };
        let Some(mut reading) = mirror.reading.take_if(|reading| reading.session == mirror.session) else {
            mirror.reading = None;
            return Ok(());
        };
        match reading.chunks.front() {
            Some(&(fid, chunk)) => {
                if self.visit(node, &mut reading, fid, chunk)? {
                    reading.chunks.pop_front();
                }
            }
            None => {
                let least = reading.snapshot.least();
                let committed = mirror.state.announced().max(mirror.mark());
                reading.looks += 1;
                if committed >= least || reading.looks > PATIENCE {
                    return self.check_snapshot(node, reading, least);
                }
            }
        }
        if let Some(mirror) = &mut self.nodes[node].mirror {
            mirror.reading = Some(reading);
            self.read_soon(node);
        }
        Ok(())
    }

    /// Reads a chunk; what its primary has posted lands in between. Says whether it was read.
    fn visit(&mut self, node: usize, reading: &mut Reading, fid: Fid, chunk: usize) -> Result<bool, Violation> {
        let id = self.mirror(node).offered;
        let writes = id.filter(|id| self.cards || !self.nodes[self.net.connections[*id].ends[1]].memory.stopped);
        let posted = writes.and_then(|id| self.net.connections[id].posted.take());
        let is_fed = posted.as_ref().is_some_and(|posted| !posted.over);
        let (posted, landed) = (RefCell::new(posted), RefCell::new(Vec::new()));
        let land = || {
            let list = posted.borrow_mut().as_mut().and_then(|posted| posted.land());
            let some = list.is_some();
            landed.borrow_mut().extend(list.flatten());
            some
        };
        let (dice, mut found) = (&mut self.dice, Vec::new());
        let visited = reading.snapshot.visit(chunk, land, |rid, address, row| {
            found.push(((fid, rid), (address, row.map(Into::into))));
            if dice.one_in(3) {
                land();
            }
        });
        if let (Some(id), Some(posted)) = (writes, posted.into_inner()) {
            self.net.connections[id].posted = Some(posted);
            self.lists_have_landed(id, landed.into_inner());
        }
        match visited {
            Ok(()) => {
                reading.records.extend(found);
                Ok(true)
            }
            // More has to be posted first, or the list of a primary that has died is not whole.
            Err(_) if !is_fed || self.mirror(node).session != reading.session => Ok(false),
            Err(why) => Property::Mirrors.violated(format!("a fuzzy snapshot, when all has landed: {why}")),
        }
    }

    /// Lists are complete on a connection.
    fn lists_have_landed(&mut self, id: usize, lists: Vec<(u64, Vec<Block>)>) {
        let feeder = self.net.connections[id].ends[1];
        for (token, blocks) in lists {
            self.have_landed(id, blocks);
            let (pause, life) = (self.dice.between(5, 200), self.nodes[feeder].life);
            self.after(pause, What::Of { node: feeder, life, what: Own::Completed { connection: id, token } });
        }
    }

    /// With the log from where it begins, it is the state where it ends.
    fn check_snapshot(&mut self, node: usize, reading: Reading, end: Lsn) -> Result<(), Violation> {
        let Reading { snapshot, mut records, .. } = reading;
        let log = &self.nodes[node].disk.log;
        if log.end() < end.0 || log.transaction_end(end.0) != end.0 {
            return Ok(());
        }
        self.report.fuzzy_snapshots += 1;
        let wanted = state_at(log, end.0);
        for (id, (at, row)) in wanted.iter().filter(|(_, (at, _))| *at >= snapshot.start()) {
            records.insert(*id, (*at, row.clone()));
        }
        if living(&records) != living(&wanted) {
            return Property::Mirrors.violated(format!(
                "a fuzzy snapshot of node {node} from {} on is not the state with the log up to {end}",
                snapshot.start()
            ));
        }
        Ok(())
    }
}
