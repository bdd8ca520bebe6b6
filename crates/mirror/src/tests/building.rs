//! Batches of a log go to a mirror, several at once, and the feeder fails at any write of them.

use freshet_base::RecordKind;
use freshet_log::{
    BlockBuilder, BlockKind,
    block::{members_block, time_block},
};

use super::{
    recovering::{Feed, Landed},
    *,
};
use crate::{Batch, Build, Keep, NotABatch, Ring};

/// Some cache lines of the last write have landed. What is found is the state after a batch, and
/// none that has completed is missing, unless it ends within a transaction.
#[test]
fn the_feeder_fails_at_any_write() {
    let mut random = Random::new();
    let (mut under_way, mut undone, mut torn_apart) = (0, 0, 0);
    for _ in 0..4 {
        let mut feed = Feed::new();
        for _ in 0..20 {
            // The same record may change several times in a batch.
            let count = random.below(8);
            let changes = feed.pair.draw_some(&mut random, count);
            assert!(feed.post(&changes, random.below(4) == 0), "the ring is large enough for what is under way");
            let marks = random.below(feed.lists.len() as u64 + 1) as usize;
            if random.below(3) == 0 || feed.lists.len() > 4 {
                feed.marks(marks.max(feed.lists.len().saturating_sub(4)));
            }
            for _ in 0..4 {
                let writes = feed.writes().count();
                let whole = random.below(writes as u64 + 1) as usize;
                let landed = if random.below(2) == 0 {
                    Landed::Writes(whole)
                } else {
                    Landed::Torn(whole, random.below(u64::MAX))
                };
                let (completed, ends) = feed.completed(whole);
                let found = feed.recovers(&feed.fails(landed), Keep::Whole);
                assert!(found.end >= ends, "{landed:?}: {found:?}, but {ends} has completed");
                under_way = under_way.max(found.under_way);
                undone += found.undone;
                torn_apart += usize::from(ends < completed && found.end == ends);
                // The paper keeps what is marked.
                assert_eq!(feed.recovers(&feed.fails(landed), Keep::Marked(feed.mark)).end, feed.mark);
            }
        }
    }
    assert!(under_way > 2 && undone > 10 && torn_apart > 0, "{under_way}, {undone}, {torn_apart}");
}

/// When the first of two changes had landed, the batch passed for one that had landed wholly.
#[test]
fn a_record_comes_once_in_a_batch() {
    let changes = [1, 2, 3].map(|byte| (Fid(1), Rid(0), Some(vec![byte; 100])));
    let mut feed = Feed::new();
    assert!(feed.post(&[(Fid(1), Rid(0), Some(vec![9; 100]))], false));
    feed.marks(1);
    assert!(feed.post(&changes, false));
    assert_eq!(feed.writes().count(), 2, "one entry, and the last row");
    let mut deleted = changes.to_vec();
    deleted.extend([(Fid(1), Rid(0), None), (Fid(1), Rid(0), Some(vec![4; 20]))]);
    assert!(feed.post(&deleted, false), "a record that is deleted and comes again");
    for whole in 0..=feed.writes().count() {
        feed.recovers(&feed.fails(Landed::Writes(whole)), Keep::Whole);
    }
}

/// A record is deleted, and its id is used again, while neither is marked: undoing both brings the
/// row back.
#[test]
fn an_id_that_is_used_again_at_once_is_given_back() {
    for is_marked in [false, true] {
        let mut feed = Feed::new();
        let change = |row: Option<u8>| [(Fid(1), Rid(0), row.map(|byte| vec![byte; 160]))];
        assert!(feed.post(&change(Some(1)), false));
        assert!(feed.post(&change(None), false));
        feed.marks(if is_marked { 2 } else { 1 });
        assert!(feed.post(&change(Some(2)), false));
        // If the deletion is marked before, the row is wanted no more.
        assert_eq!(feed.destroys(), HEADER + if is_marked { 0 } else { 160 });
        for whole in 0..=feed.writes().count() {
            feed.recovers(&feed.fails(Landed::Writes(whole)), Keep::Whole);
        }
    }
}

fn build(bytes: &[u8], from: Lsn) -> Result<Build, NotABatch> {
    let (mut build, mut batch) = (Build::new(), Batch::new());
    batch.room(bytes.len()).copy_from_slice(bytes);
    batch.begin(from, bytes.len())?;
    build.begin(Arc::new(batch));
    Ok(build)
}

#[test]
fn what_is_no_row_stays_in_the_log() {
    let mut builder = BlockBuilder::new();
    builder.begin();
    builder.push(None, Fid::MESSAGES, Rid(0), RecordKind::Insert, b"input").unwrap();
    builder.push(None, Fid(1), Rid(7), RecordKind::Insert, b"row").unwrap();
    builder.push(None, Fid::INPUTS, Rid(0), RecordKind::Insert, b"asked").unwrap();
    builder.seal_records();
    let mut bytes = builder.finish(Lsn(64), Term(1), BlockKind::Redo).to_vec();
    let at = |bytes: &[u8]| Lsn(64 + bytes.len() as u64);
    bytes.extend(time_block(at(&bytes), Term(1), 5));
    bytes.extend(members_block(at(&bytes), Term(1), b"these"));
    let mut build = build(&bytes, Lsn(64)).unwrap();
    assert_eq!(build.batch().members().collect::<Vec<_>>(), [b"these"]);
    let (mut layout, mut ring) = (Layout::new(1), Ring::new(1024));
    layout.grow(2, 4096);
    build.put(&mut layout, &mut Here(&[])).unwrap();
    build.enter(&mut ring).unwrap();
    assert_eq!(build.list().count(), 3, "an undo entry, the chunk, the row");
    assert_eq!((ring.mark(at(&bytes)), ring.mark(Lsn(80))), (Some(at(&bytes)), None));
}

#[test]
fn bytes_that_are_no_blocks_and_inputs_are_refused() {
    let mut builder = BlockBuilder::new();
    builder.begin();
    builder.push(None, Fid::INPUTS, Rid(0), RecordKind::Insert, b"asked").unwrap();
    builder.seal_records();
    let inputs = builder.finish(Lsn(64), Term(1), BlockKind::Inputs).to_vec();
    assert!(matches!(build(&inputs, Lsn(64)), Err(NotABatch::Inputs { at: Lsn(64) })));
    builder.begin();
    builder.push(None, Fid(1), Rid(0), RecordKind::Insert, &[5; 100]).unwrap();
    builder.seal_records();
    let rows = builder.finish(Lsn(64), Term(1), BlockKind::Redo).to_vec();
    assert!(build(&rows, Lsn(64)).is_ok() && build(&rows, Lsn(72)).is_err());
    assert!(build(&rows[..rows.len() - 8], Lsn(64)).is_err());
    let mut random = Random::new();
    for _ in 0..200 {
        let mut damaged = rows.clone();
        damaged[random.below(rows.len() as u64) as usize] ^= 1 << random.below(8);
        assert!(build(&damaged, Lsn(64)).is_err());
    }
}
