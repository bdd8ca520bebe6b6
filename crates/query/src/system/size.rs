//! How much tables take: estimates, since rows lie in memory beside everything else.

use std::ops::{Bound, ControlFlow};

use freshet_engine::{Database, Direction};

use crate::schema::TableInfo;

/// What a version of a row takes besides the row itself: its header, and its word in the
/// indirection array.
const OVERHEAD: u64 = 28;
/// How many rows are looked at for their average length.
const SAMPLE: u64 = 128;

/// About how much a table takes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TableSize {
    /// How many rows it has: as many as its index has entries, those of deleted rows included that
    /// are not yet gone.
    pub rows: u64,
    /// What they take, in bytes.
    pub row_bytes: u64,
    /// What each index takes, in bytes, in their order.
    pub indexes: Vec<u64>,
}

impl TableSize {
    /// What rows and indexes take, in bytes.
    pub fn all_bytes(&self) -> u64 {
        self.row_bytes + self.indexes.iter().sum::<u64>()
    }
}

/// Looks at a table. Takes time in proportion to the leaves of its indexes. Nothing when all
/// workers are taken.
pub fn measure(database: &Database, info: &TableInfo) -> Option<TableSize> {
    let core = database.core();
    let (mut rows, mut indexes) = (0, Vec::new());
    {
        let participant = core.participants.join().ok()?;
        let guard = participant.pin_without_snapshot();
        let there = info.rows.content(&guard)?.indexes(&guard);
        for place in 0..info.table.indexes.len() {
            let statistics = there.get(info.index_number(place))?.tree().statistics(&guard);
            if place == 0 {
                rows = statistics.entries;
            }
            indexes.push(statistics.bytes);
        }
    }
    let worker = database.worker().ok()?;
    let transaction = worker.begin_read_only();
    let (mut seen, mut bytes) = (0, 0);
    let all = (Bound::Unbounded, Bound::Unbounded);
    let sampled = transaction.scan(&info.rows, 0, all, Direction::Forward, |_, record| {
        seen += 1;
        bytes += record.row.len() as u64;
        if seen < SAMPLE { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    });
    sampled.ok()?;
    // A table that has been looked at whole has just these rows.
    let rows = if seen < SAMPLE { seen } else { rows };
    let average = bytes.checked_div(seen).unwrap_or(0);
    Some(TableSize { rows, row_bytes: rows * (average + OVERHEAD), indexes })
}
