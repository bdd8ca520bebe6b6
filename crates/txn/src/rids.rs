//! Record ids for one worker's inserts: from its own range, or of records that are gone.

use freshet_base::{Fid, Rid};
use freshet_storage::{Content, Guard, Reclaimed};

use crate::core::Core;

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
pub(crate) struct Rids(Vec<Option<Box<Range>>>);

impl Rids {
    fn of(&mut self, fid: Fid) -> &mut Range {
        let place = fid.0 as usize;
        if self.0.len() <= place {
            self.0.resize_with(place + 1, || None);
        }
        let none = || Box::new(Range { next: Rid(0), end: Rid(0), reclaimed: Vec::new() });
        self.0[place].get_or_insert_with(none)
    }

    /// An id that no record has.
    pub(crate) fn take(&mut self, content: &Content) -> Reclaimed {
        let range = self.of(content.fid());
        if let Some(reclaimed) = range.reclaimed.pop() {
            return reclaimed;
        }
        if range.next == range.end {
            content.take_reclaimed(KEEP / 2, &mut range.reclaimed);
            if let Some(reclaimed) = range.reclaimed.pop() {
                return reclaimed;
            }
            (range.next, range.end) = content.take_rids();
        }
        let rid = range.next;
        range.next = Rid(rid.0 + 1);
        Reclaimed { rid, tombstone: None }
    }

    /// An id whose record is gone, or never came to be.
    pub(crate) fn put(&mut self, fid: Fid, reclaimed: Reclaimed) {
        self.of(fid).reclaimed.push(reclaimed);
    }

    /// Shares what is more than this worker will need soon; with `keep_none`, the rest of its
    /// ranges too.
    pub(crate) fn share(&mut self, core: &Core, guard: &Guard<'_>, keep_none: bool) {
        let keep = if keep_none { 0 } else { KEEP };
        for (fid, place) in self.0.iter_mut().enumerate() {
            let Some(range) = place else { continue };
            if keep_none {
                let rest = (range.next.0..range.end.0).map(|rid| Reclaimed { rid: Rid(rid), tombstone: None });
                // The last in comes out first: ascending ids again.
                range.reclaimed.extend(rest.rev());
                range.next = range.end;
            }
            if range.reclaimed.len() > keep {
                match core.content(guard, Fid(fid as u32)) {
                    Some(content) => content.give_back(range.reclaimed.drain(keep / 2..)),
                    None => *place = None,
                }
            }
        }
    }
}
