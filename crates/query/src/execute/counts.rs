//! What a statement counts of the tables that it reads and writes.

use freshet_engine::Rid;

use super::Run;
use crate::{bind::access::Access, schema::TableInfo, statistics::Tally};

impl Run<'_, '_> {
    /// A table was scanned in this way, this often, and rows were met. The pieces of a scan are one
    /// scan together.
    #[inline]
    pub(crate) fn count_read(&self, info: &TableInfo, access: &Access, scans: u64, rows: u64) {
        let Some(tally) = self.tally else { return };
        // The first index is the one that rows are stored by.
        if access.is_all() && access.index == 0 && !access.backward {
            tally.scanned(info.table.oid, scans, rows);
        } else {
            self.count_lookup(info, access.index, scans, rows);
        }
    }

    /// An index was scanned, whose place among the table's this is.
    #[inline]
    pub(crate) fn count_lookup(&self, info: &TableInfo, index: usize, scans: u64, rows: u64) {
        let Some(tally) = self.tally else { return };
        match info.table.indexes.get(index).map_or(0, |index| index.oid) {
            // The one by which rows without a key are stored is none that one can see.
            0 => tally.scanned(info.table.oid, scans, rows),
            index => tally.looked_up(index, scans, rows),
        }
    }

    /// A row of a table was changed; one whose keys are others lies elsewhere then.
    #[inline]
    pub(super) fn count_update(&self, info: &TableInfo, before: Rid, now: Rid) {
        self.count_write(info, if before == now { Tally::updated_in_place } else { Tally::updated });
    }

    /// A row of a table was written: added, changed or deleted, as `what` counts it.
    #[inline]
    pub(super) fn count_write(&self, info: &TableInfo, what: fn(&Tally, u32)) {
        if let Some(tally) = self.tally {
            what(tally, info.table.oid);
        }
    }
}
