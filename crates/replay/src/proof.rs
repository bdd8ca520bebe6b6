//! Whether what this node has replayed is what the primary has: the sums of both states
//! ([`freshet_storage::identity`]), compared at marks.
//!
//! | | |
//! |---|---|
//! | a mark arrives | its place is noted, and replay ends a job there |
//! | all below a mark is replayed, and nothing above | this node's sums are taken down |
//! | a block says what the primary's sums were at a mark | both are compared |
//!
//! The sums begin with a sweep of this node's own arrays, range by range between two jobs, once
//! everything up to the end of the checkpoint is there with which this node began; and again after
//! the log was cut. Marks until then are not compared.

use std::{collections::VecDeque, sync::Arc};

use freshet_base::{Lsn, Rid};
use freshet_storage::{
    Catalog, Guard, Participant, Table,
    identity::{Figures, Sums},
};

use crate::apply::Found;

/// Marks that are remembered at most before they are replayed; those beyond are not compared.
const MARKS: usize = 4096;
/// Of this many marks this node's sums are remembered. A primary says those of one before it makes
/// the next.
const TAKEN: usize = 4;
/// This many record ids are swept between two jobs: some tens of milliseconds.
const AT_ONCE: u64 = 1 << 20;

/// This node has another state than its primary.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// The mark: both had everything below in the log, and nothing above.
    pub mark: Lsn,
    /// The tables whose sums differ; if there are many tables, others may be among them.
    pub tables: Vec<String>,
    /// The sum over all tables, here.
    pub here: u64,
    /// The sum over all tables that the primary has put into the log.
    pub there: u64,
}

impl std::fmt::Display for Difference {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { mark, tables, here, there } = self;
        let tables = if tables.is_empty() { "tables that are not here".into() } else { tables.join(", ") };
        write!(
            f,
            "the state at {mark} differs from the primary's in {tables} (sum {here:016x} here, {there:016x} there)"
        )
    }
}

/// What has come of comparing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Proven {
    /// Whether this node knows its own sums.
    pub counts: bool,
    /// How many marks were compared.
    pub marks: u64,
    /// The last mark at which both were equal.
    pub equal_at: Option<Lsn>,
}

#[derive(Debug)]
enum Phase {
    /// Not before all below this is replayed.
    Waiting(Lsn),
    /// These tables are left, each from this record on; the last is the next.
    Sweeping(Vec<(Arc<Table>, Rid)>),
    Counting,
}

#[derive(Debug)]
pub(crate) struct Proof {
    phase: Phase,
    sums: Sums,
    /// Not replayed yet, ascending.
    marks: VecDeque<Lsn>,
    taken: VecDeque<Figures>,
    proven: Proven,
}

impl Proof {
    /// Of a node that began with a checkpoint that ends at `floor`.
    pub fn new(floor: Lsn) -> Self {
        Self {
            phase: Phase::Waiting(floor),
            sums: Sums::default(),
            marks: VecDeque::new(),
            taken: VecDeque::new(),
            proven: Proven::default(),
        }
    }

    pub fn expect(&mut self, mark: Lsn) {
        if self.marks.back().is_none_or(|last| *last < mark) {
            if self.marks.len() == MARKS {
                self.marks.pop_front();
            }
            self.marks.push_back(mark);
        }
    }

    /// The marks in `[from, to)`, which is going to be replayed.
    pub fn marks_in(&mut self, from: Lsn, to: Lsn) -> Vec<Lsn> {
        let count = self.marks.iter().take_while(|mark| **mark < to).count();
        self.marks.drain(..count).filter(|mark| *mark >= from).collect()
    }

    /// All below `mark` is replayed, and nothing above.
    pub fn take_down(&mut self, mark: Lsn, catalog: &Catalog) {
        if !matches!(self.phase, Phase::Counting) {
            return;
        }
        self.sums.keep(&catalog.ids_at(mark));
        if self.taken.len() == TAKEN {
            self.taken.pop_front();
        }
        self.taken.push_back(Figures::new(mark, self.sums.iter()));
    }

    /// A job has ended at `to`, and has found this. Returns a difference that it has come upon.
    pub fn replayed(&mut self, guard: &Guard<'_>, to: Lsn, found: &Found, catalog: &Catalog) -> Option<Difference> {
        self.sums.merge(&found.counting.sums);
        if matches!(self.phase, Phase::Waiting(floor) if to >= floor) {
            self.sums.clear();
            let tables = catalog.all();
            tables.iter().filter_map(|table| table.content(guard)).for_each(|content| content.count_below(Rid(0)));
            self.phase = Phase::Sweeping(tables.into_iter().map(|table| (table, Rid(0))).collect());
        }
        let theirs = found.sums.iter().filter_map(|theirs| Figures::decode(theirs));
        theirs.fold(None, |before, theirs| before.or(self.compare(&theirs, catalog)))
    }

    fn compare(&mut self, theirs: &Figures, catalog: &Catalog) -> Option<Difference> {
        let own = self.taken.iter().find(|own| own.lsn == theirs.lsn)?;
        self.proven.marks += 1;
        if own == theirs {
            self.proven.equal_at = self.proven.equal_at.max(Some(theirs.lsn));
            return None;
        }
        let tables = catalog.tables_at(theirs.lsn);
        let tables = tables.iter().filter(|table| own.differs_in(theirs, table.fid()));
        let tables = tables.map(|table| table.name().to_owned()).collect();
        Some(Difference { mark: theirs.lsn, tables, here: own.total(), there: theirs.total() })
    }

    pub fn is_sweeping(&self) -> bool {
        matches!(self.phase, Phase::Sweeping(_))
    }

    /// Sweeps the next records. All below `at` is replayed, and nothing above.
    pub fn sweep(&mut self, participant: &Participant, at: Lsn) {
        let Phase::Sweeping(tables) = &mut self.phase else { return };
        let guard = participant.pin_without_snapshot();
        let mut left = AT_ONCE;
        while left > 0 {
            let Some((table, next)) = tables.last_mut() else {
                self.phase = Phase::Counting;
                return;
            };
            // Of a table that was dropped, there may be nothing.
            let Some(content) = table.content(&guard) else {
                tables.pop();
                continue;
            };
            let end = content.records_end();
            let to = Rid(next.0 + left).min(end);
            self.sums.add(content.fid(), content.identity_sum(&guard, *next, to, at));
            left -= to.0.saturating_sub(next.0).min(left);
            *next = to;
            if to == end {
                content.count_below(Rid(u64::MAX));
                tables.pop();
            } else {
                content.count_below(to);
            }
        }
    }

    /// The log was cut at `at`.
    pub fn cut(&mut self, at: Lsn) {
        let floor = if let Phase::Waiting(floor) = self.phase { floor } else { at };
        self.phase = Phase::Waiting(floor);
        self.marks.retain(|mark| *mark < at);
        self.taken.retain(|taken| taken.lsn <= at);
    }

    pub fn proven(&self) -> Proven {
        Proven { counts: matches!(self.phase, Phase::Counting), ..self.proven.clone() }
    }
}
