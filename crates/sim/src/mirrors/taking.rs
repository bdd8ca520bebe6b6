//! A mirror that takes over while the primary of before lives: it gets the rest of that one's log,
//! and puts it into its own memory.

use freshet_base::Lsn;
use freshet_cluster::{
    handshake::{Continue, Welcome, check_welcome, consider},
    mirror::Keep,
    promotion::Fetch,
    term::{self, TermHistory},
};
use freshet_fabric::Place;
use freshet_mirror::{Contents, FetchedLog, NoRoom, NotTaken, Superblock, Taking, beginning, note_undo};

use super::{
    World,
    feeding::{ARENA_BYTES, CLUSTER, Log, UNDO_BYTES},
    id_of,
    memory::region,
    recovering::damaged,
    working::Then,
};
use crate::checks::{Property, Violation};

/// A mirror that is ahead takes over.
pub(crate) struct TakingOver {
    pub node: usize,
    /// Where the log is that it gets, as long as that process lives.
    from: (usize, u32),
    log: Log,
    welcome: Welcome,
    memory: Option<Taking>,
    fetched: FetchedLog,
    /// Others have as much as this one had, or less.
    others: Vec<usize>,
}

/// How many bytes of log are kept of what was fetched.
const FETCHED: [u64; 3] = [2_000, 20_000, 1 << 20];

fn refused(why: &dyn std::fmt::Display) -> Violation {
    Violation { property: Property::Mirrors, what: why.to_string() }
}

impl World {
    /// `node` is ahead of the others, and ends there: it leads, or gets the rest of the log first,
    /// if the node lives that has fed it.
    pub(super) fn succeed(&mut self, node: usize, end: Lsn, others: Vec<usize>) -> Result<(), Violation> {
        let superblock = self.superblock(node)?;
        let old = superblock.feeder.0 as usize;
        let state = &self.nodes[old];
        let lives = state.up && !state.stopped && old != node;
        let lead = state.lead.as_ref().filter(|lead| lives && lead.term == superblock.term);
        let Some(lead) = lead.filter(|_| !self.dice.one_in(4)) else {
            return self.succeeded(node, end, FetchedLog { from: end, blocks: Vec::new() }, others);
        };
        let history = self.nodes[node].history.clone();
        let log = Continue { history, received: end, persisted: end, capacity: UNDO_BYTES, may_send_until: Lsn::MAX };
        let sender = lead.sender(old).0;
        let welcome = consider(&sender, Some(CLUSTER), id_of(node), lead.term, &log).map_err(|why| refused(&why))?;
        let (welcome, from) = (welcome.welcome, (old, state.life));
        check_welcome(&welcome, Some(CLUSTER), &log.history, end).map_err(|why| refused(&why))?;
        let wanted = Fetch { from: id_of(old), cut_at: end, upto: welcome.end };
        wanted.check(&welcome).map_err(|why| refused(&why))?;
        if welcome.cut_at != end {
            return Property::Mirrors.violated(format!("node {node} has a log up to {end} that its primary has not"));
        }
        let log = lead.log.from(end);
        self.note(|| format!("node {node} fetches the log of node {old} from {end} to {}", welcome.end));
        // It has promised itself, and ends its term.
        self.depose(old)?;
        self.nodes[node].history = welcome.history.clone();
        let fetched = FetchedLog { from: end, blocks: Vec::new() };
        self.manager.taking = Some(TakingOver { node, from, log, welcome, memory: None, fetched, others });
        self.clear(node, end, Then::Begun(end));
        Ok(())
    }

    /// Whose mirror it is; no node writes there.
    fn superblock(&self, node: usize) -> Result<Superblock, Violation> {
        let contents = Contents::open(self.nodes[node].memory.clone(), Lsn::MAX).map_err(damaged)?;
        Ok(*contents.superblock())
    }

    /// The memory is written by its node from now on, and what is there stays.
    fn clear(&mut self, node: usize, at: Lsn, then: Then) {
        let Some(TakingOver { welcome, .. }) = &self.manager.taking else { return };
        let term = welcome.history.last_term();
        let writes: Vec<_> = beginning(&self.nodes[node].memory, CLUSTER, id_of(node), term, at).collect();
        self.write(node, &writes, then);
    }

    pub(super) fn begin_taking(&mut self, node: usize, at: Lsn) -> Result<(), Violation> {
        let memory = Taking::new(self.nodes[node].memory.clone(), at).map_err(damaged)?;
        self.manager.taking.as_mut().expect("it takes over").memory = Some(memory);
        self.take_in(node)
    }

    pub(super) fn cleared(&mut self, node: usize) -> Result<(), Violation> {
        let taking = self.manager.taking.as_mut().expect("it takes over");
        taking.memory.as_mut().expect("it has begun").begun_again();
        self.lay_out(node)
    }

    /// The next batch, or the end.
    fn take_in(&mut self, node: usize) -> Result<(), Violation> {
        loop {
            let Some(TakingOver { from, log, welcome, memory: Some(memory), .. }) = &mut self.manager.taking else {
                return Ok(());
            };
            if memory.begin().map_err(|why| refused(&why))?.is_some() {
                return self.lay_out(node);
            }
            let (received, (old, life)) = (memory.received(), *from);
            let lives = self.nodes[old].up && self.nodes[old].life == life;
            if received >= welcome.end || !lives {
                return self.end_taking(node);
            }
            // Some blocks come at once.
            let next = log.blocks.partition_point(|end| *end <= received);
            let last = next + self.dice.below((log.blocks.len() - next).min(6) as u64) as usize;
            let (begin, end) = (received.since(log.from) as usize, log.blocks[last].since(log.from) as usize);
            let ends = log.blocks[next..=last].iter().copied();
            memory.room(end - begin, ends).copy_from_slice(&log.bytes[begin..end]);
        }
    }

    fn lay_out(&mut self, node: usize) -> Result<(), Violation> {
        loop {
            let Some(TakingOver { memory: Some(memory), .. }) = &mut self.manager.taking else {
                return Ok(());
            };
            match memory.lay_out() {
                Ok(()) => break,
                Err(NotTaken::NoRoom(NoRoom::Arena { bytes })) => {
                    let arena = region(bytes.max(ARENA_BYTES));
                    self.nodes[node].memory.push(arena.clone());
                    memory.grow(arena);
                }
                Err(NotTaken::Undo(full)) => {
                    let more = region(full.lacking_bytes().max(UNDO_BYTES));
                    let own = &mut self.nodes[node].memory;
                    own.push(more.clone());
                    let is_noted = note_undo(own, own.len() - 1);
                    assert!(is_noted, "there is room");
                    memory.grow_undo(more);
                }
                Err(NotTaken::BeginAgain { at }) => {
                    self.clear(node, at, Then::Cleared);
                    return Ok(());
                }
                Err(why) => return Err(refused(&why)),
            }
        }
        let memory = self.manager.taking.as_ref().and_then(|taking| taking.memory.as_ref()).expect("it takes in");
        let writes: Vec<(Place, Vec<u8>)> = memory.writes().map(|(to, bytes)| (to, bytes.to_vec())).collect();
        self.write(node, &writes, Then::Taken);
        Ok(())
    }

    pub(super) fn taken(&mut self, node: usize) -> Result<(), Violation> {
        let most = FETCHED[self.dice.below(3) as usize];
        let taking = self.manager.taking.as_mut().expect("it takes over");
        taking.memory.as_mut().expect("it takes in").taken(&mut taking.fetched, most);
        self.report.taken += 1;
        self.take_in(node)
    }

    /// No more comes: the memory ends where a transaction does.
    fn end_taking(&mut self, node: usize) -> Result<(), Violation> {
        let planned = self.planned(node, Keep::Whole).map_err(damaged)?;
        let writes: Vec<_> = planned.writes().map(|(to, bytes)| (to, bytes.to_vec())).collect();
        self.write(node, &writes, Then::Fetched(planned.found().end));
        Ok(())
    }

    pub(super) fn fetched(&mut self, node: usize, end: Lsn) -> Result<(), Violation> {
        self.is_recovered(node, end)?;
        let Some(TakingOver { fetched, others, .. }) = self.manager.taking.take() else { return Ok(()) };
        self.report.fetched += 1;
        self.succeeded(node, end, fetched.up_to(end), others)
    }

    /// `node` leads: its log begins with what it has fetched.
    fn succeeded(
        &mut self,
        node: usize,
        end: Lsn,
        FetchedLog { from, blocks }: FetchedLog,
        others: Vec<usize>,
    ) -> Result<(), Violation> {
        self.report.failovers += 1;
        let term = self.superblock(node)?.term;
        let log = Log::of(from, blocks).map_err(|why| refused(&why))?;
        if log.end != end {
            return Property::Mirrors.violated(format!("a log that ends at {} is to continue at {end}", log.end));
        }
        self.nodes[node].rests_on = Some(end);
        let (history, records) = (self.nodes[node].history.clone(), self.histories.at(term, end));
        self.lead(node, log, (term, history), records);
        for other in others {
            if self.nodes[other].up {
                self.join(other, node)?;
            }
        }
        Ok(())
    }

    /// One that takes over has died.
    pub(super) fn taker_dies(&mut self, node: usize) {
        self.manager.taking.take_if(|taking| taking.node == node);
    }
}

/// The history of a log that ends at `end`, in which a new term begins.
pub(super) fn begun(history: &TermHistory, term: freshet_base::Term, node: usize, end: Lsn) -> TermHistory {
    let mut history = history.cut(end);
    if let Err(why) = history.begin(term::TermEntry { term, start: end, node: id_of(node), nonce: 1 }) {
        panic!("a term that cannot begin: {why}");
    }
    history
}
