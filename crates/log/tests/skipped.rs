//! What looks like a block in the body of a skip block, or in a row, is none. In one stream of
//! several it cannot be told by its LSN.

use std::ops::ControlFlow;

use freshet_base::{ClusterId, Fid, Lsn, Rid, Term};
use freshet_log::{
    BlockBuilder, BlockKind, Log, LogConfig, LogStore, RecordKind, SegmentStore, StoreConfig,
    block::{BLOCK_HEADER, skip_header},
};

const SEGMENT: u64 = 4096;
const CONFIG: StoreConfig = StoreConfig { cluster: ClusterId(7), segment_size: SEGMENT };

/// A redo block with a row of `row` bytes.
fn redo(stream: u8, lsn: u64, row: usize) -> Vec<u8> {
    let mut builder = BlockBuilder::new();
    builder.begin_in(stream);
    builder.push(None, Fid(1), Rid(lsn), RecordKind::Insert, &vec![b'x'; row]).unwrap();
    builder.seal_records();
    builder.finish(Lsn(lsn), Term(1), BlockKind::Redo).to_vec()
}

/// Two streams that are written block by block.
struct Two {
    streams: [SegmentStore; 2],
    end: u64,
    lsns: Vec<u64>,
}

impl Two {
    fn new() -> Self {
        let streams = [(); 2].map(|()| SegmentStore::in_memory(CONFIG));
        streams.iter().for_each(|stream| stream.resume(Lsn::ZERO).unwrap());
        Self { streams, end: 0, lsns: Vec::new() }
    }

    fn append(&mut self, stream: usize, block: &[u8]) {
        let segments = &self.streams[stream];
        segments.append(segments.end(), &[block]).unwrap();
        self.lsns.push(self.end);
        self.end += block.len() as u64;
    }

    fn redo(&mut self, stream: u8, row: usize) {
        self.append(stream.into(), &redo(stream, self.end, row));
    }

    /// As a node opens it that starts again.
    fn opened(&self) -> LogStore {
        self.streams.iter().for_each(|stream| stream.sync().unwrap());
        let store = LogStore::of(self.streams.to_vec());
        assert_eq!(store.settle().unwrap().end, Lsn(self.end));
        store
    }

    /// A log with a skip block in stream 0 that reaches from its first segment into its second. In
    /// its body there are old blocks of stream 1, sound ones and a broken one, or with `aligned`
    /// sound ones only, up to its end.
    fn with_skip_block(aligned: bool) -> Self {
        let mut two = Self::new();
        let old = redo(1, 0, 56);
        two.append(1, &old);
        while two.streams[0].end().0 < SEGMENT - 300 {
            two.redo(0, 100);
        }
        let length = old.len() * 30;
        let mut skip = old.repeat(30);
        if !aligned {
            // The last one has a header only.
            skip[length - old.len() + BLOCK_HEADER..].fill(7);
        }
        skip[..BLOCK_HEADER].copy_from_slice(&skip_header(Lsn(two.end), length as u64, Term(1), 0));
        two.append(0, &skip);
        for _ in 0..80 {
            two.redo(0, 100);
            two.redo(1, 100);
        }
        two
    }

    /// Reads the log from `begin` on as a restart does, and returns the blocks' LSNs, and whether
    /// the boundaries of the pieces were.
    fn read(store: &LogStore, begin: Lsn, end: Lsn) -> (Vec<u64>, bool) {
        let pieces = store.pieces(begin, end).unwrap();
        assert!(pieces.len() > 4);
        assert_eq!(pieces.iter().map(|piece| piece.length()).sum::<u64>(), end.since(begin), "all is there");
        let lead_on = pieces.iter().all(|piece| store.leads_on(*piece).unwrap());
        let pieces = if lead_on { pieces } else { store.whole(begin, end).unwrap() };
        let mut lsns = Vec::new();
        for piece in pieces {
            let rest = store.scan(piece, |block| {
                lsns.push(block.lsn().0);
                ControlFlow::Continue(())
            });
            assert_eq!(rest.unwrap(), None);
        }
        lsns.sort_unstable();
        (lsns, lead_on)
    }
}

#[test]
fn a_piece_that_would_begin_in_a_skip_block_is_noticed_before_it_is_read() {
    for aligned in [false, true] {
        let two = Two::with_skip_block(aligned);
        let (lsns, lead_on) = Two::read(&two.opened(), Lsn::ZERO, Lsn(two.end));
        assert!(!lead_on, "the old block is taken for the beginning of a piece, or the test tests nothing");
        assert_eq!(lsns, two.lsns);
    }
    // And one that begins where a block does is read as it is.
    let mut two = Two::new();
    (0..100).for_each(|i| two.redo(i % 2, 200));
    let (lsns, lead_on) = Two::read(&two.opened(), Lsn::ZERO, Lsn(two.end));
    assert!(lead_on);
    assert_eq!(lsns, two.lsns);
}

#[test]
fn a_log_whose_first_segment_begins_in_a_skip_block_begins_behind_it() {
    for aligned in [false, true] {
        let two = Two::with_skip_block(aligned);
        let store = two.opened();
        // What is kept begins with the block behind the skip block, so the second segment stays.
        let behind = two.lsns.iter().position(|lsn| *lsn > SEGMENT).unwrap() + 2;
        let begin = Lsn(two.lsns[behind]);
        assert!(store.remove_below(begin).unwrap() > 0);
        assert_eq!(two.streams[0].extent().unwrap().0, Lsn(SEGMENT), "the rest of the skip block is kept");
        drop(store);
        let store = two.opened();
        let (first, end) = store.extent().unwrap();
        // Where an old block ends with the skip block, the log seems to begin with that one.
        let least = if aligned { Lsn::ZERO } else { Lsn(SEGMENT) };
        assert!(first >= least && first <= begin, "the log begins at {first}, it was cut off at {begin}");
        let (lsns, _) = Two::read(&store, begin, end);
        assert_eq!(lsns, two.lsns[behind..]);
    }
}

#[test]
fn skip_blocks_hold_nothing_of_what_was_in_the_ring_before() {
    let config = LogConfig { capacity: 8192, partition: 1024, ..LogConfig::default() };
    let log = Log::open(config, Some(SegmentStore::in_memory(CONFIG).into()), Lsn(0), Term(1)).unwrap();
    let mut writer = log.writer().unwrap();
    let mut fill = |row: usize| {
        let block = redo(0, log.reserved().0, row);
        let reservation = writer.reserve(block.len() as u64).unwrap();
        reservation.fill(&block).unwrap();
    };
    (0..100).for_each(|_| fill(100));
    let reservation = writer.reserve(1000).unwrap();
    let (from, end) = (reservation.lsn(), reservation.end());
    reservation.skip();
    log.wait_durable(end, None).unwrap();
    let mut bytes = vec![1; 1000];
    log.store().read(from, &mut bytes).unwrap();
    assert!(bytes[BLOCK_HEADER..].iter().all(|byte| *byte == 0), "old bytes are in the skip block");
    drop(writer);
    log.close().unwrap();
}
