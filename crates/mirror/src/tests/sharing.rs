//! One batch for several mirrors, in which different things lie in different places.

use super::{
    recovering::{Change, Feed, Landed, batch_of, blocks},
    *,
};
use crate::{Build, Keep};

/// Has nothing to be read.
struct Nothing;

impl Before for Nothing {
    type Error = Infallible;

    fn read(&mut self, from: Place, _: &mut [u8]) -> Result<(), Infallible> {
        panic!("{from:?} is read, though another mirror was")
    }
}

fn row(rid: u64, bytes: Vec<u8>) -> Change {
    (Fid(1), Rid(rid), Some(bytes))
}

/// Two mirrors with the same records. In the first one slots are short, so that rows lie elsewhere.
fn two() -> [Feed; 2] {
    let (short, long): (Vec<_>, Vec<_>) =
        [0, 1, 2].into_iter().map(|rid| (row(rid * 8, vec![1; 10]), row(rid * 8, vec![2; 300]))).unzip();
    let (mut one, mut other) = (Feed::new(), Feed::new());
    let first = blocks(one.end(), &short, false, &Records::new());
    assert!(one.post(&short, false) && one.post(&long, false));
    let bytes = [first, blocks(one.lists[0].batch.to, &long, false, &Records::new())].concat();
    assert!(other.post_batch(&batch_of(other.end(), &bytes, false), &bytes));
    assert_eq!(one.end(), other.end());
    [one, other]
}

#[test]
fn mirrors_with_other_places_get_the_same_batches() {
    let mut random = Random::new();
    for _ in 0..8 {
        let mut feeds = two();
        for _ in 0..30 {
            let count = random.below(8);
            let changes = feeds[0].pair.draw_some(&mut random, count);
            let continues = random.below(4) == 0;
            let from = feeds[0].end();
            let bytes = blocks(from, &changes, continues, &feeds[0].pair.records);
            let batch = batch_of(from, &bytes, continues);
            // The first one says what differs.
            if random.below(2) == 0 {
                feeds.reverse();
            }
            for feed in &mut feeds {
                let keeps = random.below(4) as usize;
                feed.marks(feed.lists.len().saturating_sub(keeps));
                assert!(feed.post_batch(&batch, &bytes), "the ring is large enough for what is under way");
                let whole = random.below(feed.writes().count() as u64 + 1) as usize;
                feed.recovers(&feed.fails(Landed::Torn(whole, random.below(u64::MAX))), Keep::Whole);
            }
        }
        let [one, other] = &feeds;
        assert!(one.pair.records == other.pair.records);
    }
}

/// Updates of rows that lie in their slots.
#[test]
fn rows_that_one_mirror_has_read_are_not_read_from_others() {
    let changes = |byte| -> Vec<_> { (0..20).map(|rid| row(rid, vec![byte; 100])).collect() };
    let (mut one, mut other) = (Feed::new(), Feed::new());
    for feed in [&mut one, &mut other] {
        assert!(feed.post(&changes(1), false));
        feed.marks(1);
    }
    let bytes = blocks(one.end(), &changes(2), false, &one.pair.records);
    let batch = batch_of(one.end(), &bytes, false);
    assert!(one.post_batch(&batch, &bytes));
    let mut build = Build::new();
    build.begin(Arc::clone(&batch));
    build.put(&mut other.pair.layout, &mut Nothing).unwrap();
    assert!(other.post_batch(&batch, &bytes));
    assert_eq!(one.writes().collect::<Vec<_>>(), other.writes().collect::<Vec<_>>());
}

/// A row that is damaged in one mirror does no harm to another.
#[test]
fn damage_is_not_handed_on() {
    let changes = |byte| [row(0, vec![byte; 200])];
    let (mut one, mut other) = (Feed::new(), Feed::new());
    for feed in [&mut one, &mut other] {
        assert!(feed.post(&changes(1), false));
        feed.marks(1);
    }
    // What is there by chance is what comes: it would not be written.
    let slot = one.pair.memory[2].words();
    slot[8].store(u64::from_ne_bytes([2; 8]), Ordering::SeqCst);
    let bytes = blocks(one.end(), &changes(2), false, &one.pair.records);
    let batch = batch_of(one.end(), &bytes, false);
    let mut build = Build::new();
    build.begin(Arc::clone(&batch));
    let memory = one.pair.regions();
    build.put(&mut one.pair.layout, &mut Here(&memory)).unwrap();
    assert!(other.post_batch(&batch, &bytes));
    other.recovers(&other.fails(Landed::Writes(other.writes().count())), Keep::Whole);
}
