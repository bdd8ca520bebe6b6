//! The block format: what is built is read back, and nothing else is ever taken for a block.

use freshet_base::{Fid, Lsn, NodeId, Rid, Term, versions::OtherVersion};
use freshet_log::{
    Block, BlockBuilder, BlockError, BlockHeader, BlockKind, RecordHeader, RecordKind,
    block::{BLOCK_HEADER, BlockFull, MAX_RECORDS, RECORD_HEADER, members_block, skip_header, term_block, time_block},
};
use proptest::prelude::*;

type Record = (Option<u64>, u32, u64, u8, Vec<u8>);

fn kind(code: u8) -> RecordKind {
    [RecordKind::Insert, RecordKind::Update, RecordKind::Delete][usize::from(code % 3)]
}

fn build(records: &[Record], lsn: u64) -> Vec<u8> {
    let mut builder = BlockBuilder::new();
    builder.begin();
    for (prev, fid, rid, code, row) in records {
        builder.push(prev.map(Lsn), Fid(*fid), Rid(*rid), kind(*code), row).unwrap();
    }
    let length = builder.seal_records();
    let block = builder.finish(Lsn(lsn), Term(5), BlockKind::Redo).to_vec();
    assert_eq!(length, block.len() as u64);
    block
}

fn records() -> impl Strategy<Value = Vec<Record>> {
    let record = (
        proptest::option::of(0..u64::MAX),
        any::<u32>(),
        0..=Rid::MAX.0,
        any::<u8>(),
        proptest::collection::vec(any::<u8>(), 0..60),
    );
    proptest::collection::vec(record, 0..8)
}

proptest! {
    #[test]
    fn what_is_built_is_read_back(records in records(), at in 0..1u64 << 60, behind in 0..20usize) {
        let at = at & !7;
        let mut bytes = build(&records, at);
        let length = bytes.len();
        bytes.extend(std::iter::repeat_n(0xA5, behind));
        let block = Block::parse(&bytes, Lsn(at)).unwrap();
        prop_assert_eq!(block.bytes().len(), length);
        prop_assert_eq!(block.header().serial_key, at);
        prop_assert_eq!(block.records().len(), records.len());
        let mut distance = BLOCK_HEADER as u64;
        for (found, (prev, fid, rid, code, row)) in block.records().zip(&records) {
            prop_assert_eq!(found.address, Lsn(at + distance));
            prop_assert_eq!(u64::from(found.header.block_back), distance);
            prop_assert_eq!(found.header.prev, prev.map(Lsn));
            prop_assert_eq!((found.header.fid, found.header.rid), (Fid(*fid), Rid(*rid)));
            prop_assert_eq!(found.header.kind, kind(*code));
            prop_assert_eq!(found.row, &row[..]);
            // By its address alone, too.
            prop_assert_eq!(RecordHeader::decode(&bytes[distance as usize..]).unwrap(), found.header);
            distance += (RECORD_HEADER + row.len()) as u64;
        }
    }

    #[test]
    fn any_bytes_are_safe(bytes in proptest::collection::vec(any::<u8>(), 0..200), at in any::<u64>()) {
        let _ = BlockHeader::peek(&bytes);
        let _ = RecordHeader::decode(&bytes);
        prop_assert!(Block::parse(&bytes, Lsn(at)).is_err());
    }

    /// Bytes that look like a block in all but a few places.
    #[test]
    fn damaged_blocks_are_refused(
        records in records(),
        flips in proptest::collection::vec((any::<proptest::sample::Index>(), 1..=255u8), 1..4),
        keep in any::<proptest::sample::Index>(),
    ) {
        let whole = build(&records, 4096);
        let mut bytes = whole.clone();
        for (place, bits) in flips {
            let place = place.index(bytes.len());
            bytes[place] ^= bits;
        }
        if bytes != whole {
            prop_assert!(Block::parse(&bytes, Lsn(4096)).is_err());
        }
        prop_assert!(Block::parse(&whole[..keep.index(whole.len())], Lsn(4096)).is_err());
        prop_assert!(Block::parse(&whole, Lsn(4104)).is_err());
    }
}

#[test]
fn each_wrong_thing_has_its_name() {
    let block = build(&[(None, 1, 2, 0, vec![1, 2, 3])], 64);
    let with = |place: usize, value: u8| {
        let mut bytes = block.clone();
        bytes[place] = value;
        Block::parse(&bytes, Lsn(64)).unwrap_err()
    };
    assert_eq!(Block::parse(&[0; 64], Lsn(0)).unwrap_err(), BlockError::Empty);
    assert_eq!(with(0, 33), BlockError::Length(33));
    assert!(matches!(with(31, 9), BlockError::Format(OtherVersion { found: 9, .. })));
    assert_eq!(with(30, 10), BlockError::Kind(10));
    assert_eq!(with(8, 72), BlockError::Lsn { found: Lsn(72), at: Lsn(64) });
    assert!(matches!(with(66, 0xFF), BlockError::Checksum { .. }));
    assert_eq!(with(0, 80), BlockError::Truncated { need: 80, have: 72 });
    assert_eq!(Block::parse(&block[..16], Lsn(64)).unwrap_err(), BlockError::Truncated { need: 32, have: 16 });
}

#[test]
fn a_skip_block_is_whole_whatever_its_body() {
    let mut bytes = vec![0xEE; 96];
    bytes[..BLOCK_HEADER].copy_from_slice(&skip_header(Lsn(800), 96, Term(2), 3));
    let block = Block::parse(&bytes, Lsn(800)).unwrap();
    assert_eq!((block.header().kind, block.end(), block.records().count()), (BlockKind::Skip, Lsn(896), 0));
    // Its length is covered although its body is not.
    for bit in 0..BLOCK_HEADER * 8 {
        let mut flipped = bytes.clone();
        flipped[bit / 8] ^= 1 << (bit % 8);
        assert!(Block::parse(&flipped, Lsn(800)).is_err(), "bit {bit}");
    }
}

#[test]
fn a_term_block_names_the_node() {
    let bytes = term_block(Lsn(8), Term(7), NodeId(9));
    let block = Block::parse(&bytes, Lsn(8)).unwrap();
    assert_eq!((block.begins_term(), block.time()), (Some((Term(7), NodeId(9))), None));
}

#[test]
fn a_time_block_holds_the_time() {
    let bytes = time_block(Lsn(8), Term(7), 1_789_000_000_123_456);
    let block = Block::parse(&bytes, Lsn(8)).unwrap();
    assert_eq!((block.begins_term(), block.time()), (None, Some(1_789_000_000_123_456)));
    assert_eq!(block.records().count(), 0);
}

#[test]
fn a_block_takes_so_many_records_and_the_next_one_the_rest() {
    let mut builder = BlockBuilder::new();
    builder.begin_in(3);
    for i in 0..2 * MAX_RECORDS as u64 + 1 {
        builder.push(None, Fid(1), Rid(i), RecordKind::Insert, &[]).unwrap();
    }
    let length = builder.seal_records();
    for is_last in [true, false] {
        let offsets = builder.offsets().to_vec();
        let bytes = builder.finish_part(Lsn(64), Term(1), BlockKind::Redo, is_last);
        let (mut at, mut number) = (0, 0u64);
        for (count, continued) in [(MAX_RECORDS, true), (MAX_RECORDS, true), (1, !is_last)] {
            let block = Block::parse(&bytes[at..], Lsn(64 + at as u64)).unwrap();
            assert_eq!((block.header().continued, block.header().stream), (continued, 3));
            assert_eq!(block.records().len(), count);
            for record in block.records() {
                assert_eq!(
                    (record.header.rid, record.address.0),
                    (Rid(number), 64 + u64::from(offsets[number as usize]))
                );
                number += 1;
            }
            at += block.bytes().len();
        }
        assert_eq!((at as u64, bytes.len() as u64), (length, length));
    }
    // The memory is used again.
    builder.begin();
    assert_eq!(builder.push(None, Fid(1), Rid(0), RecordKind::Delete, &[]), Ok(32));
}

#[test]
fn a_builder_keeps_to_its_limit() {
    for limit in [200, 1000, 4096] {
        let mut builder = BlockBuilder::with_limit(limit);
        builder.begin();
        let mut pushed = 0;
        while builder.push(None, Fid(1), Rid(pushed), RecordKind::Insert, &[7; 21]).is_ok() {
            pushed += 1;
            if pushed % 5 == 0 {
                builder.next_block_in(1);
            }
        }
        let full = builder.push(None, Fid(1), Rid(0), RecordKind::Insert, &[7; 21]);
        assert_eq!(full, Err(BlockFull { limit }));
        let length = builder.seal_records();
        assert!(length <= limit && length + 200 > limit, "{length} of {limit}");
        assert_eq!(builder.record_count() as u64, pushed);
    }
}

#[test]
fn a_block_of_members_gives_back_what_it_records() {
    for length in [0, 3, 4, 5, 100] {
        let members: Vec<u8> = (0..length).collect();
        let bytes = members_block(Lsn(8), Term(7), &members);
        let block = Block::parse(&bytes, Lsn(8)).unwrap();
        assert_eq!(block.members(), Some(&members[..]));
        assert_eq!(block.records().count(), 0);
        assert_eq!(block.time(), None);
    }
}
