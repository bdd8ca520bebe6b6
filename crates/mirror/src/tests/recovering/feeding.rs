//! What a mirror tells others of its undo ring, and what it does before a feed begins.

use super::*;
use crate::{Footprint, Status, cut, footprint, plan, recover::newest_first};

/// As in the paper's table 1: what the footprint states of the second batch.
#[test]
fn the_footprint_states_what_is_there_of_a_batch() {
    let feed = two_batches();
    let (mark, to) = (feed.mark, feed.lists[0].batch.to);
    let newest = |landed, marked: bool| {
        let memory = feed.fails(landed);
        if marked {
            store(&memory, Place { region: 0, offset: MARK }, &to.0.to_le_bytes());
        }
        let Footprint { begin, batches } = footprint(&regions(&memory)).unwrap();
        assert!(begin <= mark);
        let last = batches.last().copied();
        (last.filter(|(end, _)| *end == to).map(|(_, status)| status), batches.len())
    };
    // The entries of the first one are still there.
    assert_eq!(newest(Landed::Writes(0), false), (None, 1));
    for whole in 1..undo_writes(&feed) {
        assert_eq!(newest(Landed::Writes(whole), false), (Some(Status::Corrupt), 2));
    }
    for whole in undo_writes(&feed)..=writes(&feed) {
        assert_eq!(newest(Landed::Writes(whole), false), (Some(Status::Logged), 2));
    }
    assert_eq!(newest(Landed::Writes(writes(&feed)), true), (Some(Status::CommitReady), 2));
}

/// One that dies while it undoes what was marked here and not elsewhere says so from then on: if it
/// is not asked any more, the others come to the same end.
#[test]
fn the_mark_is_taken_back_before_anything_is_undone() {
    let feed = two_batches();
    let to = feed.lists[0].batch.to;
    let memory = feed.fails(Landed::Writes(writes(&feed)));
    store(&memory, Place { region: 0, offset: MARK }, &to.0.to_le_bytes());
    assert_eq!(footprint(&regions(&memory)).unwrap().ready(), to);
    let plan = plan(&regions(&memory), Keep::Marked(feed.mark)).unwrap();
    let count = plan.writes().count();
    for done in 1..=count {
        plan.writes().take(done).for_each(|(place, bytes)| store(&memory, place, &bytes));
        assert_eq!(footprint(&regions(&memory)).unwrap().ready(), feed.mark, "{done} of {count} writes");
    }
    feed.recovers(&memory, Keep::Marked(feed.mark));
}

/// All that the second batch has changed, the third changes again: its undo entries have what the
/// second one wrote. A recovery finds the second then, which is right as long as nothing else has
/// begun; and not behind a cut.
#[test]
fn what_was_cut_is_not_found_again() {
    let mut feed = Feed::new();
    let row = |byte| vec![(Fid(1), Rid(0), Some(vec![byte; 100]))];
    assert!(feed.post(&row(1), false));
    let first = feed.end();
    feed.marks(1);
    assert!(feed.post(&row(2), false));
    let second = feed.end();
    assert!(feed.post(&row(3), false));
    let undone = feed.fails(Landed::Writes(writes(&feed)));
    assert_eq!(feed.recovers(&undone, Keep::Marked(first)).end, first);
    assert_eq!(feed.recovers(&undone, Keep::Whole).end, second);
    let memory = feed.fails(Landed::Writes(writes(&feed)));
    assert_eq!(cut(&regions(&memory), first).unwrap().end, first);
    assert_eq!(feed.recovers(&memory, Keep::Whole).end, first);
}

/// A chunk is undone, and another one comes in its place: a slot of it that was never used is zero.
/// Its slots have another length, so that one begins where an undone row lies.
#[test]
fn what_undone_chunks_held_is_wiped() {
    let feed = two_batches();
    let memory = feed.fails(Landed::Writes(writes(&feed)));
    let found = feed.recovers(&memory, Keep::Marked(feed.mark));
    assert_eq!(found.undone, 1);
    let memory = regions(&memory);
    begin_feed(&memory, ClusterId(1), NodeId(8), Term(4), found.end);
    let mirror = Contents::open(memory.clone(), found.end).unwrap();
    let lengths: Vec<_> = memory.iter().map(|region| region.words().len() as u64 * 8).collect();
    let mut layout = Layout::of(&mirror.description().unwrap(), &lengths).unwrap();
    let mut list = crate::List::default();
    let record = Record { fid: Fid(9), rid: Rid(0), address: found.end, row: Some(&[3; 60]) };
    layout.put(&record, &mut Here(&memory), &mut list).unwrap();
    for (to, bytes) in list.writes() {
        words::store_among(memory[to.region].words(), to.offset as usize, bytes);
    }
    let records = read(memory, found.end.plus(1)).unwrap();
    assert_eq!(records.len(), feed.records_at(found.end).len() + 1);
}

/// Of a ring that is half cleared, what is left has no gap.
#[test]
fn a_mirror_that_dies_while_a_feed_begins_can_begin_again() {
    let mut feed = two_batches();
    for byte in 0..3 {
        assert!(feed.post(&[(Fid(1), Rid(0), Some(vec![byte; 300]))], false));
    }
    let memory = feed.fails(Landed::Writes(writes(&feed)));
    let found = feed.recovers(&memory, Keep::Marked(feed.mark));
    assert_eq!(found.undone, 4);
    let before = copy(&memory);
    begin_feed(&regions(&memory), ClusterId(1), NodeId(8), Term(4), found.end);
    assert_eq!(recover(&regions(&memory), Keep::Whole).unwrap().under_way, 0);
    // It has died when this number of entries were cleared.
    let (ring, order) = (regions(&before), newest_first(&regions(&before)).collect::<Vec<_>>());
    assert!(order.len() > 4, "{order:?}");
    for cleared in 0..=order.len() {
        let memory = copy(&memory);
        for entry in &order[cleared..] {
            let mut bytes = [0; undo::ENTRY];
            words::load(ring[entry.region].words(), entry.offset as usize, &mut bytes);
            store(&memory, *entry, &bytes);
        }
        assert_eq!(recover(&regions(&memory), Keep::Whole).unwrap().end, found.end, "{cleared} entries");
    }
}
