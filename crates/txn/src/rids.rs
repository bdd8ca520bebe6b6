//! Record ids for one worker's inserts: from its own range, or of records that are gone.

use freshet_base::{Fid, Rid};
use freshet_storage::{Catalog, Reclaimed, Table};

/// How many reclaimed ids a worker keeps for itself.
const KEEP: usize = 4096;

#[derive(Debug)]
struct Range {
    next: Rid,
    end: Rid,
    reclaimed: Vec<Reclaimed>,
}

/// One worker's record ids, by table.
#[derive(Debug, Default)]
pub(crate) struct Rids(Vec<Range>);

impl Rids {
    fn of(&mut self, fid: Fid) -> &mut Range {
        let place = fid.0 as usize;
        while self.0.len() <= place {
            self.0.push(Range { next: Rid(0), end: Rid(0), reclaimed: Vec::new() });
        }
        &mut self.0[place]
    }

    /// An id that no record has.
    pub(crate) fn take(&mut self, table: &Table) -> Reclaimed {
        let range = self.of(table.fid());
        if let Some(reclaimed) = range.reclaimed.pop() {
            return reclaimed;
        }
        if range.next == range.end {
            table.take_reclaimed(KEEP / 2, &mut range.reclaimed);
            if let Some(reclaimed) = range.reclaimed.pop() {
                return reclaimed;
            }
            (range.next, range.end) = table.take_rids();
        }
        let rid = range.next;
        range.next = Rid(rid.0 + 1);
        Reclaimed { rid, tombstone: None }
    }

    /// An id whose record is gone, or never came to be. The catalog's records never go.
    pub(crate) fn put(&mut self, fid: Fid, reclaimed: Reclaimed) {
        if fid != Fid::CATALOG || reclaimed.tombstone.is_none() {
            self.of(fid).reclaimed.push(reclaimed);
        }
    }

    /// Shares what is more than this worker will need soon; with `keep_none`, the rest of its ranges too.
    pub(crate) fn share(&mut self, catalog: &Catalog, keep_none: bool) {
        let keep = if keep_none { 0 } else { KEEP };
        for (fid, range) in self.0.iter_mut().enumerate() {
            if keep_none {
                let rest = (range.next.0..range.end.0).map(|rid| Reclaimed { rid: Rid(rid), tombstone: None });
                // The last in comes out first: ascending ids again.
                range.reclaimed.extend(rest.rev());
                range.next = range.end;
            }
            if range.reclaimed.len() > keep
                && let Some(table) = catalog.get(Fid(fid as u32))
            {
                table.give_back(range.reclaimed.drain(keep / 2..));
            }
        }
    }
}
