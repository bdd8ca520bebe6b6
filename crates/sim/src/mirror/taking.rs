//! A mirror that takes over: it gets what another node has more of the log, puts that into its own
//! memory, and makes a database of it. Then it is a node with a log.

use freshet_base::{Lsn, Term};
use freshet_cluster::{handshake::Welcome, promotion::Inheritance};
use freshet_mirror::{FetchedLog, Keep, NoRoom, NotTaken, Taking, beginning};

use super::{
    Mirror,
    memory::{damaged, grow, grow_undo},
    no_log,
    working::Then,
};
use crate::{
    checks::{Property, Violation},
    log::Block,
    world::{CLUSTER, Own, World},
};

/// A log that was fetched.
pub(super) struct TakingOver {
    /// Its last term.
    term: Term,
    /// What has come and is not in the memory.
    blocks: Vec<Block>,
    /// How many of them were given to `memory`, and where the batch ends that it takes in.
    given: usize,
    to: Lsn,
    memory: Taking,
}

impl TakingOver {
    /// The blocks of the batch that the memory takes in.
    pub fn under_way(self) -> Vec<Block> {
        self.blocks.into_iter().filter(|block| block.end() <= self.to.0).collect()
    }
}

/// How many bytes of log are kept of what was fetched.
const FETCHED: [u64; 3] = [2_000, 20_000, 1 << 20];

fn refused(why: &dyn std::fmt::Display) -> Violation {
    Violation { property: Property::Mirrors, what: why.to_string() }
}

impl World {
    /// The terms of a log are entered, and these blocks of it have come.
    pub(crate) fn begin_taking(&mut self, node: usize, welcome: &Welcome, blocks: Vec<Block>) {
        let (term, at) = (welcome.history.last_term(), welcome.cut_at);
        self.clear(node, term, at, Then::TakingBegun(term, at, blocks));
    }

    /// The memory is written by its node from now on, and what is there stays.
    fn clear(&mut self, node: usize, term: Term, at: Lsn, then: Then) {
        let me = self.nodes[node].id;
        let mirror = self.mirror(node);
        let writes: Vec<_> = beginning(&mirror.memory, CLUSTER, me, term, at).collect();
        mirror.exposed = true;
        self.write(node, writes, then);
    }

    pub(super) fn taking_begun(
        &mut self,
        node: usize,
        term: Term,
        at: Lsn,
        blocks: Vec<Block>,
    ) -> Result<(), Violation> {
        let mirror = self.mirror(node);
        let memory = Taking::new(mirror.memory.clone(), at).map_err(damaged)?;
        mirror.base = at;
        mirror.taking = Some(TakingOver { term, blocks, given: 0, to: Lsn::ZERO, memory });
        self.take_batch(node)
    }

    pub(super) fn cleared(&mut self, node: usize) -> Result<(), Violation> {
        self.mirror(node).taking().memory.begun_again();
        self.lay_out(node)
    }

    /// The next batch, or the end.
    fn take_batch(&mut self, node: usize) -> Result<(), Violation> {
        let is_wanted = self.nodes[node].candidate.is_some();
        loop {
            let mirror = self.nodes[node].mirror.as_mut().expect("it is a mirror");
            let TakingOver { blocks, given, to, memory, .. } = mirror.taking();
            if let Some(batch) = memory.begin().map_err(|why| refused(&why))? {
                *to = batch.extent().to;
                return self.lay_out(node);
            }
            if *given == blocks.len() || !is_wanted {
                return self.end_taking(node);
            }
            // Some blocks come at once.
            let count = 1 + self.dice.below((blocks.len() - *given).min(6) as u64) as usize;
            let come = &blocks[*given..*given + count];
            let bytes: Vec<u8> = come.iter().flat_map(|block| block.bytes().iter().copied()).collect();
            memory.room(bytes.len(), come.iter().map(|block| Lsn(block.end()))).copy_from_slice(&bytes);
            *given += count;
        }
    }

    fn lay_out(&mut self, node: usize) -> Result<(), Violation> {
        loop {
            let Mirror { memory: regions, taking: Some(TakingOver { term, memory, .. }), .. } = self.mirror(node)
            else {
                return self.mirror_next(node);
            };
            match memory.lay_out() {
                Ok(()) => break,
                Err(NotTaken::NoRoom(NoRoom::Arena { bytes })) => memory.grow(grow(regions, bytes)),
                Err(NotTaken::Undo(full)) => memory.grow_undo(grow_undo(regions, full.lacking_bytes())),
                Err(NotTaken::BeginAgain { at }) => {
                    let term = *term;
                    self.clear(node, term, at, Then::Cleared);
                    return Ok(());
                }
                Err(why) => return Err(refused(&why)),
            }
        }
        let taking = self.mirror(node).taking();
        let writes: Vec<_> = taking.memory.writes().map(|(to, bytes)| (to, bytes.to_vec())).collect();
        self.write(node, writes, Then::Taken);
        Ok(())
    }

    pub(super) fn taken(&mut self, node: usize) -> Result<(), Violation> {
        let most = FETCHED[self.dice.below(3) as usize];
        let state = &mut self.nodes[node];
        let mirror = state.mirror.as_mut().expect("it is a mirror");
        let Some(TakingOver { blocks, to, memory, .. }) = &mut mirror.taking else {
            return self.mirror_next(node);
        };
        memory.taken(&mut mirror.fetched, most);
        for block in blocks.iter().filter(|block| block.end() <= to.0) {
            if block.start >= state.disk.log.end() {
                state.disk.log.push(block.clone());
            }
        }
        state.disk.synced = state.disk.log.transaction_end(state.disk.log.end());
        self.report.taken += 1;
        self.take_batch(node)
    }

    /// No more comes: the memory ends where a transaction does.
    fn end_taking(&mut self, node: usize) -> Result<(), Violation> {
        self.mend(node, Keep::Whole, Then::Fetched).map(drop)
    }

    pub(super) fn mirror_fetched(&mut self, node: usize, end: Lsn) -> Result<(), Violation> {
        self.is_recovered_to(node, end)?;
        let mirror = self.mirror(node);
        mirror.state.recovered(end);
        let fetched = std::mem::replace(&mut mirror.fetched, no_log(end));
        mirror.fetched = fetched.up_to(end);
        let taking = mirror.taking.take();
        // It may have got the beginning of a transaction that no node has wholly.
        let received = taking.map_or(end, |taking| taking.memory.received());
        mirror.state.fetched(received);
        self.report.fetched += 1;
        if self.nodes[node].candidate.is_none() {
            return self.mirror_next(node);
        }
        self.consult(node)
    }

    /// The term begins, durably; what follows takes a while: tables and indexes are made of the
    /// memory, a log and a checkpoint begin on the disk.
    pub(crate) fn mirror_takes_over(
        &mut self,
        node: usize,
        term: Term,
        inheritance: Inheritance,
    ) -> Result<(), Violation> {
        if !self.notes_term(node, term, &inheritance) {
            return self.give_up(node);
        }
        self.nodes[node].candidate = None;
        self.mirror(node).takes_over = true;
        let longest = if self.dice.one_in(4) { 40_000 } else { 4000 };
        let pause = self.dice.between(100, longest);
        self.later(node, pause, Own::TakenOver(term, Box::new(inheritance)));
        Ok(())
    }

    /// The node has a log, which begins with what it has fetched, and leads.
    pub(crate) fn taken_over(&mut self, node: usize, term: Term, inheritance: Inheritance) -> Result<(), Violation> {
        self.check_mirror(node)?;
        let state = &mut self.nodes[node];
        let Some(mirror) = state.mirror.take() else { return Ok(()) };
        let end = state.disk.log.end();
        let FetchedLog { from, blocks } = match mirror.fetched {
            FetchedLog { from, blocks } if from.0 + blocks.len() as u64 == end => FetchedLog { from, blocks },
            _ => no_log(Lsn(end)),
        };
        let kept = state.disk.log.between(from.0, end).iter().flat_map(|block| block.bytes().iter().copied());
        if !kept.eq(blocks) {
            return Property::Mirrors.violated(format!("the log that node {node} has kept from {from} on is another"));
        }
        let disk = &mut state.disk;
        (disk.kept, disk.based, disk.synced, disk.sure) = (from.0, end, end, end);
        (disk.floor, disk.dropped) = (end, false);
        state.start();
        self.report.by_mirrors += 1;
        self.lead(node, term, inheritance)
    }
}
