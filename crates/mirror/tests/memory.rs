//! How much memory a mirror takes for its rows. With `--nocapture` it prints a table.

use std::convert::Infallible;

use freshet_base::{Fid, Lsn, Rid};
use freshet_fabric::Place;
use freshet_mirror::{Before, Layout, List, NoRoom, NotPut, Record};

/// Bytes of an arena.
const ARENA: u64 = 64 << 20;

/// What is there does not matter.
struct Nothing;

impl Before for Nothing {
    type Error = Infallible;

    fn read(&mut self, _: Place, into: &mut [u8]) -> Result<(), Infallible> {
        into.fill(0);
        Ok(())
    }
}

/// Places rows, and counts.
struct Counted {
    layout: Layout,
    arenas: u64,
    row: Vec<u8>,
    /// Of all rows.
    bytes: u64,
    address: u64,
}

impl Counted {
    fn new() -> Self {
        Self { layout: Layout::new(1 << 20), arenas: 0, row: vec![7; 1 << 20], bytes: 0, address: 64 }
    }

    fn put(&mut self, fid: u32, rid: u64, length: usize) {
        self.address += 8;
        let row = Some(&self.row[..length]);
        let record = Record { fid: Fid(fid), rid: Rid(rid), address: Lsn(self.address), row };
        let mut list = List::default();
        while let Err(why) = self.layout.put(&record, &mut Nothing, &mut list) {
            let NotPut::NoRoom(NoRoom::Arena { bytes }) = why else { panic!("{why}") };
            self.layout.grow(2 + self.arenas as usize, bytes.max(ARENA));
            self.arenas += bytes.max(ARENA);
        }
        self.layout.committed(Lsn(self.address + 8));
        self.bytes += length as u64;
    }

    /// How many bytes the chunks have.
    fn taken(&self) -> u64 {
        self.arenas - self.layout.unused()
    }
}

/// Lengths that lie within these, none twice as often as another.
fn lengths(least: u64, most: u64) -> impl Fn(u64) -> usize {
    // Knuth's multiplier spreads them.
    move |rid| (least + rid.wrapping_mul(2_654_435_761) % (most - least + 1)) as usize
}

#[test]
fn memory_is_in_proportion_to_rows() {
    println!("{:<50} {:>12} {:>12} {:>6}", "", "rows", "memory", "ratio");
    let check = |what: &str, tables: u32, rows: u64, length: &dyn Fn(u64) -> usize, most: f64| {
        let mut counted = Counted::new();
        for fid in 1..=tables {
            (0..rows).for_each(|rid| counted.put(fid, rid, length(rid)));
        }
        let ratio = counted.taken() as f64 / counted.bytes as f64;
        println!("{what:<50} {:>12} {:>12} {ratio:>6.2}", counted.bytes, counted.taken());
        assert!(ratio <= most, "{what}: {ratio:.2} bytes for a byte, and not {most}");
    };
    // The fewest slots that a chunk has are eight.
    check("1,000 tables of 3 rows of 100 bytes", 1000, 3, &|_| 100, 3.5);
    check("1,000 tables of 3 rows of 3,900 bytes", 1000, 3, &|_| 3900, 2.8);
    for (length, most) in [(100, 1.35), (1000, 1.1), (3900, 1.1), (5000, 1.1)] {
        check(&format!("100,000 rows of {length} bytes"), 1, 100_000, &move |_| length, most);
    }
    check("100,000 rows of 10 to 4,000 bytes", 1, 100_000, &lengths(10, 4000), 1.3);
    check("100,000 rows of 80 to 240 bytes", 1, 100_000, &lengths(80, 240), 1.8);
    check(
        "100,000 rows of 100 bytes, the first one of 3,900",
        1,
        100_000,
        &|rid| if rid == 0 { 3900 } else { 100 },
        1.35,
    );
    check(
        "100,000 rows of 100 bytes, each hundredth of 3,900",
        1,
        100_000,
        &|rid| if rid % 100 == 0 { 3900 } else { 100 },
        1.35,
    );
    // New ids come by the thousand to each worker.
    let (mut counted, workers) = (Counted::new(), 40);
    for row in 0..50 {
        (0..workers).for_each(|worker| counted.put(1, worker * 1024 + row, 100));
    }
    let ratio = counted.taken() as f64 / counted.bytes as f64;
    println!(
        "{:<50} {:>12} {:>12} {ratio:>6.2}",
        "40 workers insert 50 rows of 100 bytes each",
        counted.bytes,
        counted.taken()
    );
    assert!(ratio < 4.0, "{ratio}");
}
