//! Space that is needed no more is used again: memory does not grow with what was written, but with
//! what is there.

use super::{
    recovering::{Feed, Landed},
    *,
};
use crate::Keep;

impl Pair {
    /// How many bytes its chunks have.
    fn taken(&self) -> u64 {
        Contents::open(self.regions(), self.end()).unwrap().bytes()
    }

    fn commit(&mut self) {
        self.layout.committed(self.end());
    }
}

/// Rows that lie elsewhere change their lengths, get short, and are deleted.
#[test]
fn churn_of_long_rows_takes_no_more_memory() {
    let mut random = Random::new();
    let mut pair = Pair::new();
    let mut most = 0;
    for round in 0..300 {
        // All are about as long in a round, and otherwise in the next.
        let longest = [300, 1000, 3000, 9000][round % 4];
        for rid in 0..16 {
            let row = match random.below(6) {
                0 => None,
                1 => Some(vec![7; 10]),
                _ => Some(random.bytes(longest / 2 + random.0 % (longest / 2))),
            };
            pair.change(Fid(1), Rid(rid), row);
            pair.commit();
        }
        if round == 40 {
            most = pair.taken() * 3 / 2;
        }
        if round % 50 == 0 {
            pair.layout = layout_of(&pair.regions(), pair.end()).unwrap();
        }
        assert!(round < 40 || pair.taken() <= most, "round {round}: {} bytes, and {most} before", pair.taken());
    }
    // Each row may need a chunk of its own, and not all chunks are of use for all rows.
    assert!(most < 16 * 9000 * 3, "{most}");
    assert!(read(pair.regions(), pair.end()).unwrap() == pair.records);
}

/// Their ids are used again.
#[test]
fn churn_of_records_takes_no_more_memory() {
    let mut random = Random::new();
    let mut pair = Pair::new();
    for rid in (0..40).map(Rid) {
        pair.change(Fid(1), rid, Some(random.bytes(100)));
    }
    let taken = pair.taken();
    for _ in 0..500 {
        let rid = Rid(random.below(40));
        pair.change(Fid(1), rid, None);
        let row = random.bytes(100);
        pair.change(Fid(1), rid, Some(row));
        pair.commit();
    }
    assert_eq!(pair.taken(), taken);
    assert!(read(pair.regions(), pair.end()).unwrap() == pair.records);
}

/// Tables come and go; others have what they had, slots and long rows. Another primary continues
/// now and then.
#[test]
fn tables_that_were_dropped_give_their_memory_back() {
    let mut random = Random::new();
    let mut pair = Pair::new();
    for fid in (1..60).map(Fid) {
        for rid in (0..30).map(Rid) {
            let length = if random.below(4) == 0 { 1000 } else { 100 };
            let row = random.bytes(length);
            pair.change(fid, rid, Some(row));
        }
        pair.change(Fid::CATALOG, fid.record().unwrap(), None);
        if fid.0 % 7 == 0 {
            pair.layout = layout_of(&pair.regions(), pair.end()).unwrap();
        }
        pair.commit();
        // Each change gives one chunk up.
        for _ in 0..40 {
            pair.change(Fid(1000), Rid(0), Some(vec![1; 50]));
            pair.commit();
        }
        // As much as two tables whose rows are all long; sixty tables have three times that.
        assert!(pair.taken() < 60_000, "{fid:?}: {} bytes", pair.taken());
        assert!(read(pair.regions(), pair.end()).unwrap() == pair.records, "{fid:?}");
    }
}

/// A chunk is used for something else, and the feeder fails at any write of that.
#[test]
fn a_chunk_that_is_used_again_is_given_back() {
    let table =
        |fid: u32, byte: u8| -> Vec<_> { (0..6).map(|rid| (Fid(fid), Rid(rid), Some(vec![byte; 100]))).collect() };
    let long = |byte: u8, length: usize| [(Fid(9), Rid(0), Some(vec![byte; length]))];
    let mut feed = Feed::new();
    let steps: [&[_]; 8] = [
        &table(1, 1),
        &long(1, 5000),
        &[(Fid::CATALOG, Rid(0), None)],
        &long(2, 5000),
        // The chunks of the table are given up, and used again.
        &long(3, 10),
        &table(2, 2),
        // As those of rows elsewhere are.
        &long(4, 5500),
        &table(3, 3),
    ];
    let mut chunks = 0;
    for step in steps {
        assert!(feed.post(step, false));
        for whole in 0..=feed.writes().count() {
            for lines in [0, 0x5555_5555_5555_5555, 0xff0f] {
                feed.recovers(&feed.fails(Landed::Torn(whole, lines)), Keep::Whole);
            }
        }
        if feed.lists.len() > 1 {
            feed.marks(1);
        }
        let mirror = Contents::open(feed.pair.regions(), feed.end()).unwrap();
        chunks = chunks.max(mirror.chunk_count());
    }
    assert!(chunks < 20, "{chunks}");
}
