//! What comes out is what went in, whatever that was; and any bytes are stood.

use freshet_base::{Lsn, RecordKind, Term, varint};
use freshet_log::{Block, BlockBuilder, BlockKind, block};
use proptest::{collection::vec, prelude::*};

use super::*;

/// Tables 0 to 3 have from no to three indexes; others there are not.
struct Tables;

impl KeysOf for Tables {
    fn keys_of(&mut self, _: Lsn, fid: Fid, row: &[u8], each: &mut dyn FnMut(u16, &[u8])) -> bool {
        if fid.0 > 4 {
            return false;
        }
        if fid.0 > 1 {
            each(0, &row[..row.len().min(8)]);
        }
        if fid.0 > 2 && row.first().is_some_and(|byte| byte % 2 == 1) {
            each(7, &row.iter().rev().copied().take(300).collect::<Vec<_>>());
        }
        if fid.0 > 3 && row.len() >= 3 {
            each(511, &row[..3]);
        }
        true
    }
}

#[derive(Clone, Debug)]
struct Record {
    fid: Fid,
    rid: Rid,
    kind: RecordKind,
    row: Vec<u8>,
    prev: Option<Lsn>,
}

#[derive(Clone, Debug)]
enum Made {
    Redo { records: Vec<Record>, inputs: Option<Vec<u8>>, stream: u8, continued: bool },
    Skip(u64),
    Time,
}

fn record() -> impl Strategy<Value = Record> {
    let fid = prop_oneof![40 => 1..5u32, 1 => 5..7u32, 1 => Just(Fid::MESSAGES.0)].prop_map(Fid);
    let rid = prop_oneof![6 => 0..40u64, 2 => any::<u64>().prop_map(|rid| rid & Rid::MAX.0), 1 => Just(Rid::MAX.0)];
    let kind = prop_oneof![3 => Just(RecordKind::Insert), 2 => Just(RecordKind::Update), 1 => Just(RecordKind::Delete)];
    let row = prop_oneof![3 => vec(0..3u8, 10), 1 => vec(any::<u8>(), 0..400)];
    let prev =
        prop_oneof![12 => (0..START.0).prop_map(Some), 12 => Just(None), 1 => ((1u64 << 40)..1 << 62).prop_map(Some)];
    let prev = prev.prop_map(|prev| prev.map(Lsn));
    (fid, rid, kind, row, prev).prop_map(|(fid, rid, kind, row, prev)| {
        let row = if kind == RecordKind::Delete { Vec::new() } else { row };
        Record { fid, rid: Rid(rid), kind, row, prev }
    })
}

/// Rows of a record of inputs: with snapshots below the block, with others, and nonsense.
fn inputs() -> impl Strategy<Value = Vec<u8>> {
    let parts = (vec(0..1000u64, 1..4), vec(any::<u8>(), 0..40)).prop_map(|(snapshots, body)| {
        let mut row = Vec::new();
        varint::put(&mut row, snapshots.len() as u64);
        snapshots.iter().for_each(|snapshot| varint::put(&mut row, *snapshot));
        row.extend(body);
        row
    });
    prop_oneof![6 => parts, 1 => vec(any::<u8>(), 0..40), 1 => Just(vec![0x81, 0, 5, 1, 2])]
}

fn made() -> impl Strategy<Value = Made> {
    // Runs of records, and runs of them whose ids follow one another.
    let records = vec((record(), 1..6u64, any::<bool>()), 0..6).prop_map(|runs| {
        let run = |(record, count, follow): (Record, u64, bool)| {
            (0..count).map(move |number| {
                let rid = if follow { (record.rid.0 + number) & Rid::MAX.0 } else { record.rid.0 };
                let mut row = record.row.clone();
                if let Some(last) = row.last_mut() {
                    *last = last.wrapping_add(number as u8);
                }
                Record { rid: Rid(rid), row, ..record.clone() }
            })
        };
        runs.into_iter().flat_map(run).collect()
    });
    let stream = prop_oneof![8 => Just(0u8), 1 => 0..8u8];
    let redo = (records, prop::option::weighted(0.9, inputs()), stream, prop::bool::weighted(0.05))
        .prop_map(|(records, inputs, stream, continued)| Made::Redo { records, inputs, stream, continued });
    prop_oneof![20 => redo, 1 => (4..100u64).prop_map(|eights| Made::Skip(eights * 8)), 1 => Just(Made::Time)]
}

/// The block at `at`, as bytes.
fn build(made: &Made, at: Lsn, term: Term) -> Vec<u8> {
    match made {
        Made::Time => block::time_block(at, term, 77).to_vec(),
        Made::Skip(length) => {
            let mut bytes = block::skip_header(at, *length, term, 3).to_vec();
            bytes.resize(*length as usize, 0xEE);
            bytes
        }
        Made::Redo { records, inputs, stream, continued } => {
            let mut builder = BlockBuilder::new();
            builder.begin_in(*stream);
            for Record { fid, rid, kind, row, prev } in records {
                builder.push(*prev, *fid, *rid, *kind, row).unwrap();
            }
            if let Some(inputs) = inputs {
                builder.push(None, Fid::INPUTS, Rid(0), RecordKind::Insert, inputs).unwrap();
            }
            builder.seal_records();
            builder.finish_part(at, term, BlockKind::Redo, !continued).to_vec()
        }
    }
}

/// A log from `START` on, block by block.
fn log(made: &[Made]) -> Vec<Vec<u8>> {
    let mut at = START;
    let blocks = made.iter().enumerate().map(|(number, made)| {
        let bytes = build(made, at, Term(7 + number as u32 / 10));
        at = at.plus(bytes.len() as u64);
        bytes
    });
    blocks.collect()
}

/// All that is below is within reach.
const START: Lsn = Lsn(REACH / 2);

/// Whether the block has what the form can say.
fn is_executable(made: &Made, midst: bool) -> bool {
    match made {
        Made::Redo { records, inputs: Some(_), continued: false, .. } => {
            !midst
                && records.iter().all(|record| match record.kind {
                    RecordKind::Insert => record.fid.0 < 5 && record.prev.is_none_or(|prev| prev < START),
                    RecordKind::Update | RecordKind::Delete => record.fid.0 < 7,
                })
        }
        _ => false,
    }
}

/// Compares one form with the block that it is of.
fn compare(form: &Form<'_>, made: &Made, block: &Block<'_>, midst: bool) {
    match (form, made) {
        (Form::Bytes(bytes), _) => {
            assert_eq!(*bytes, block.bytes());
            assert!(!is_executable(made, midst), "{made:?}");
        }
        (Form::Skip(header, bytes), Made::Skip(_)) => {
            assert_eq!(header, block.header());
            assert_eq!(bytes[..], block.bytes()[..BLOCK_HEADER]);
        }
        (Form::Inputs(found), Made::Redo { records, inputs, .. }) => {
            assert!(is_executable(made, midst), "{made:?}");
            assert_eq!(found.header, *block.header());
            assert_eq!(found.inputs, inputs.as_ref().unwrap());
            assert_eq!(found.written.len(), records.len());
            let mut keys = found.keys();
            for (number, (written, record)) in found.written.iter().zip(records).enumerate() {
                let Record { fid, rid, kind, row, prev } = record;
                let (length, deletion) = (row.len() as u32, prev.filter(|_| *kind == RecordKind::Insert));
                assert_eq!(*written, Written { fid: *fid, rid: *rid, kind: *kind, length, deletion });
                if *kind == RecordKind::Insert {
                    Tables.keys_of(Lsn::ZERO, *fid, row, &mut |index, key| {
                        assert_eq!(keys.next(), Some(Key { record: number, index: index.into(), key }));
                    });
                }
            }
            assert_eq!(keys.next(), None);
        }
        _ => panic!("{form:?} is not the form of {made:?}"),
    }
}

/// The log in batches of `each` blocks.
fn encode(blocks: &[Vec<u8>], each: usize) -> Vec<(Lsn, Vec<u8>)> {
    let mut encoder = Encoder::new();
    let mut at = START;
    let batches = blocks.chunks(each).map(|blocks| {
        let (begin, mut form) = (at, Vec::new());
        encoder.batch();
        for bytes in blocks {
            let block = Block::parse(bytes, at).unwrap();
            encoder.block(&block, &mut Tables, &mut form);
            at = block.end();
        }
        (begin, form)
    });
    batches.collect()
}

/// Reads whatever it is to its end.
fn read(from: &[u8]) -> Result<usize, FormError> {
    let mut decoder = Decoder::new(from, START);
    let mut count = 0;
    while let Some(form) = decoder.next_form()? {
        if let Form::Inputs(inputs) = form {
            assert_eq!(inputs.header.record_count as usize, inputs.written.len() + 1);
            assert!(inputs.keys().all(|key| key.record < inputs.written.len()));
        }
        count += 1;
    }
    Ok(count)
}

proptest! {
    #[test]
    fn blocks_come_back(made in vec(made(), 1..60), each in 1..40usize) {
        let blocks = log(&made);
        let mut rest = made.iter().zip(&blocks);
        let mut midst = false;
        for (at, form) in encode(&blocks, each) {
            let mut decoder = Decoder::new(&form, at);
            let mut at = at;
            while let Some(form) = decoder.next_form().unwrap() {
                let (made, bytes) = rest.next().unwrap();
                let block = Block::parse(bytes, at).unwrap();
                compare(&form, made, &block, midst);
                midst = block.header().continued;
                at = block.end();
            }
            prop_assert_eq!(decoder.at(), at);
        }
        prop_assert!(rest.next().is_none());
    }

    #[test]
    fn what_is_cut_or_changed_is_stood(
        made in vec(made(), 1..20),
        cuts in vec(any::<prop::sample::Index>(), 8),
        changes in vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
    ) {
        let blocks = log(&made);
        let (_, mut form) = encode(&blocks, blocks.len()).remove(0);
        for cut in cuts {
            let length = cut.index(form.len());
            // What is left are some whole blocks, or an error.
            if let Ok(count) = read(&form[..length]) {
                prop_assert!(count < blocks.len());
            }
        }
        for (place, byte) in changes {
            let place = place.index(form.len());
            form[place] = byte;
            let _ = read(&form);
        }
    }

    #[test]
    fn any_bytes_are_stood(bytes in vec(prop_oneof![Just(2u8), Just(4), 0..8u8, any::<u8>()], 0..200)) {
        let _ = read(&bytes);
    }
}

#[test]
fn who_has_read_long_before_goes_as_bytes() {
    let start = Lsn(REACH * 3);
    for (distance, executable) in [(0, true), (REACH - 1, true), (REACH, false), (REACH * 2, false)] {
        let mut inputs = vec![1];
        varint::put(&mut inputs, start.0 - distance);
        let made = Made::Redo { records: Vec::new(), inputs: Some(inputs), stream: 0, continued: false };
        let bytes = build(&made, start, Term(1));
        let block = Block::parse(&bytes, start).unwrap();
        let encoded = Encoder::new().block(&block, &mut Tables, &mut Vec::new());
        assert_eq!(encoded == Encoded::Inputs, executable, "{distance}");
    }
}

#[test]
fn few_bytes_do_not_become_many_keys() {
    let mut form = vec![FLAGGED as u8, INDEXES, SPELLED as u8, 1, 1];
    // One symbol, insertions, 60,000 times.
    form.extend([1, 0, 0]);
    varint::put(&mut form, 60_000 - 2);
    // Their ids follow one another.
    form.push(0);
    varint::put(&mut form, 60_000 - 1);
    // Each has 512 keys.
    for _ in 0..60_000 {
        varint::put(&mut form, 512);
        (0..512u64).for_each(|index| varint::put(&mut form, index));
    }
    assert_eq!(read(&form), Err(FormError::Invalid("more keys than a form may have")));
}

#[test]
fn what_is_like_before_costs_little() {
    let block = |number: u32| Made::Redo {
        records: (0..10u32)
            .map(|line| {
                let row = [&number.to_be_bytes()[..], &line.to_be_bytes(), &[0; 90]].concat();
                let rid = Rid(u64::from(number * 10 + line));
                Record { fid: Fid(2), rid, kind: RecordKind::Insert, row, prev: None }
            })
            .collect(),
        inputs: Some(vec![1, 0x80, 0x80, 0x40, 9]),
        stream: 0,
        continued: false,
    };
    let blocks = log(&(0..100).map(block).collect::<Vec<_>>());
    let (_, form) = encode(&blocks, 100).remove(0);
    let bytes: usize = blocks.iter().map(Vec::len).sum();
    // The shape, the ids, a mask and two bytes of the first key, the others, the inputs, the
    // checksum.
    let limit = 100 * (1 + 2 + 4 + 2 + 6 + 4) + 100;
    assert!(form.len() < limit, "{} bytes of {bytes}", form.len());
}
