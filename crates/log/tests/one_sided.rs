//! A standby's ring into which somebody else writes: granted, checked, accepted, and taken away
//! again.

use std::{
    fs::File,
    os::unix::fs::FileExt,
    sync::atomic::{AtomicBool, Ordering},
    thread,
};

use freshet_base::{ClusterId, Fid, Lsn, Rid, Term};
use freshet_log::{
    AcceptError, Block, BlockBuilder, BlockError, BlockKind, Log, LogConfig, LogStore, ReadError, Receiver, RecordKind,
    StoreConfig,
};
use freshet_memory::Registered;

const CONFIG: StoreConfig = StoreConfig { cluster: ClusterId(7), segment_size: 64 << 10 };
const RING: u64 = 16 << 10;
const LENGTH: u64 = 208;

fn block(at: Lsn, term: u32) -> Vec<u8> {
    let mut builder = BlockBuilder::new();
    builder.begin();
    builder.push(None, Fid(1), Rid(at.0), RecordKind::Insert, &[at.0 as u8; LENGTH as usize - 64]).unwrap();
    builder.seal_records();
    builder.finish(at, Term(term), BlockKind::Redo).to_vec()
}

/// A process that writes from outside, through the file.
struct Remote {
    file: File,
    offset: u64,
}

impl Remote {
    fn new(log: &Log) -> Self {
        let memory = log.shared_memory();
        let (file, offset) = memory.file().unwrap();
        assert_eq!(memory.words().len() as u64 * 8, RING);
        Self { file: file.try_clone_to_owned().unwrap().into(), offset }
    }

    fn write(&self, at: Lsn, bytes: &[u8]) {
        let place = at.0 % RING;
        let (head, tail) = bytes.split_at(bytes.len().min((RING - place) as usize));
        self.file.write_all_at(head, self.offset + place).unwrap();
        self.file.write_all_at(tail, self.offset).unwrap();
    }
}

fn open() -> (Log, Receiver) {
    Log::receive(RING as usize, LogStore::in_memory(CONFIG), Lsn(0)).unwrap()
}

#[test]
fn what_is_put_into_the_ring_is_checked_and_becomes_the_log() {
    let (log, mut receiver) = open();
    let (remote, reader) = (Remote::new(&log), log.reader());
    let mut at = Lsn(0);
    // Several times around the ring, as much as is granted each time.
    while at < Lsn(10 * RING) {
        let granted = log.grant();
        assert!(granted >= at.plus(LENGTH), "{granted} is granted at {at}");
        assert!(granted <= at.plus(RING / 2), "{granted} is granted at {at}: no half is left to readers");
        let count = granted.since(at) / LENGTH;
        let to = at.plus(count * LENGTH);
        for number in 0..count {
            remote.write(at.plus(number * LENGTH), &block(at.plus(number * LENGTH), 1));
        }
        receiver.accept(to).unwrap();
        assert_eq!((log.received().get(), log.transaction_end(to)), (to, to));
        log.durable_mark().wait(to, None).unwrap();
        let mut bytes = [0; LENGTH as usize];
        reader.read(at, &mut bytes).unwrap();
        assert_eq!(Block::parse(&bytes, at).unwrap().records().next().unwrap().header.rid, Rid(at.0));
        log.note_replayed(to);
        at = to;
    }
    log.close().unwrap();
}

#[test]
fn what_is_no_block_is_refused_and_named() {
    let (log, mut receiver) = open();
    let remote = Remote::new(&log);
    assert!(matches!(receiver.accept(Lsn(LENGTH)), Err(AcceptError::NotGranted { granted: Lsn(0), .. })));
    log.grant();
    let (first, second) = (Lsn(0), Lsn(LENGTH));
    remote.write(first, &block(first, 1));
    let refused = |receiver: &mut Receiver, to: u64| match receiver.accept(Lsn(to)) {
        Err(AcceptError::Block { at, cause }) => {
            assert_eq!(receiver.received(), Lsn(0), "nothing of it counts");
            (at, cause)
        }
        other => panic!("{other:?}"),
    };
    assert_eq!(refused(&mut receiver, 2 * LENGTH), (second, BlockError::Empty));
    assert!(matches!(refused(&mut receiver, 100), (Lsn(0), BlockError::Truncated { .. })));
    // A block of another place.
    remote.write(second, &block(first, 1));
    assert!(matches!(refused(&mut receiver, 2 * LENGTH), (Lsn(LENGTH), BlockError::Lsn { .. })));
    // Each byte counts.
    let good = block(second, 1);
    for byte in 0..LENGTH as usize {
        let mut bad = good.clone();
        bad[byte] ^= 0x40;
        remote.write(second, &bad);
        assert_eq!(refused(&mut receiver, 2 * LENGTH).0, second, "byte {byte}");
    }
    remote.write(second, &good);
    receiver.accept(Lsn(2 * LENGTH)).unwrap();
    assert!(receiver.accept(Lsn(0)).is_err(), "backwards");
    receiver.accept(Lsn(2 * LENGTH)).unwrap();
    log.close().unwrap();
    assert!(receiver.accept(Lsn(3 * LENGTH)).is_err(), "it is closed");
}

#[test]
fn nobody_can_cut_the_memory_off() {
    let (log, _receiver) = open();
    let remote = Remote::new(&log);
    assert!(remote.file.set_len(0).is_err() && remote.file.set_len(2 * RING).is_err());
}

/// Readers go on while the memory moves; a thread that still writes to the old one writes nowhere.
#[test]
fn a_deposed_writer_writes_nowhere() {
    let (log, mut receiver) = open();
    let deposed = Remote::new(&log);
    log.grant();
    let end = Lsn(3 * LENGTH);
    for number in 0..3 {
        deposed.write(Lsn(number * LENGTH), &block(Lsn(number * LENGTH), 1));
    }
    receiver.accept(end).unwrap();
    // It has written more, and said nothing of it.
    deposed.write(end, &block(end, 1));
    let (reader, over) = (log.reader(), AtomicBool::new(false));
    thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                for number in 0..3 {
                    let mut bytes = [0; LENGTH as usize];
                    reader.read(Lsn(number * LENGTH), &mut bytes).unwrap();
                    assert!(Block::parse(&bytes, Lsn(number * LENGTH)).is_ok());
                }
            }
        });
        for _ in 0..200 {
            // Another side has the memory each time: otherwise nothing would move.
            Remote::new(&log);
            receiver.renew().unwrap();
        }
        over.store(true, Ordering::Relaxed);
    });
    let to = end.plus(LENGTH);
    log.grant();
    assert!(matches!(receiver.accept(to), Err(AcceptError::Block { cause: BlockError::Empty, .. })), "it is gone");
    deposed.write(end, &block(end, 1));
    assert!(matches!(receiver.accept(to), Err(AcceptError::Block { cause: BlockError::Empty, .. })), "it went nowhere");
    let memory = log.shared_memory();
    let (descriptor, _) = memory.file().unwrap();
    receiver.renew().unwrap();
    let file = File::from(descriptor.try_clone_to_owned().unwrap());
    let present = Remote { file, offset: 0 };
    log.grant();
    present.write(end, &block(end, 2));
    receiver.accept(to).unwrap();
    let mut bytes = [0; LENGTH as usize];
    reader.read(end, &mut bytes).unwrap();
    assert_eq!(Block::parse(&bytes, end).unwrap().header().term, Term(2));
    log.close().unwrap();
}

/// A primary that stood still, was succeeded, and continues: it still has the memory mapped, and
/// room that it was granted.
#[test]
fn a_deposed_writer_does_not_reach_the_log_of_the_next_term() {
    let (log, mut receiver) = open();
    let deposed = Remote::new(&log);
    log.grant();
    let write_old = |from: Lsn, count: u64| {
        for number in 0..count {
            let at = from.plus(number * LENGTH);
            deposed.write(at, &block(at, 1));
        }
    };
    let began = Lsn(5 * LENGTH);
    write_old(Lsn(0), 5);
    receiver.accept(began).unwrap();
    let config = LogConfig { partition: 1 << 10, ..LogConfig::default() };
    log.promote(receiver, config, Term(2)).unwrap();
    let term_entry = log;
    let mut writer = term_entry.writer().unwrap();
    let mut end = began;
    for number in 0..20 {
        let reservation = writer.reserve(LENGTH).unwrap();
        let new = block(reservation.lsn(), 2);
        end = reservation.end();
        reservation.fill(&new).unwrap();
        if number == 9 {
            // Over what lies in the ring, and where the next ones come.
            write_old(began, 20);
        }
    }
    term_entry.wait_durable(end, None).unwrap();
    write_old(began, 20);
    let reader = term_entry.reader();
    for at in (0..end.0).step_by(LENGTH as usize).map(Lsn) {
        let mut bytes = [0; LENGTH as usize];
        reader.read(at, &mut bytes).unwrap();
        let found = Block::parse(&bytes, at).unwrap();
        assert_eq!(found.header().term, Term(if at < began { 1 } else { 2 }), "at {at}");
    }
    term_entry.close().unwrap();
}

/// A remote writer may write as far as it was told at any moment: what lies a lap before that is
/// not read from the ring.
#[test]
fn what_may_be_written_from_outside_is_not_read_from_the_ring() {
    let (log, mut receiver) = open();
    let half = RING / 2 / LENGTH * LENGTH;
    let mut bytes = [0; LENGTH as usize];
    for round in 0..4 {
        let at = Lsn(round * half);
        log.grant();
        let blocks: Vec<u8> = (0..half / LENGTH).flat_map(|number| block(at.plus(number * LENGTH), 1)).collect();
        receiver.append(&blocks).unwrap();
        log.durable_mark().wait(at.plus(half), None).unwrap();
        log.note_replayed(at.plus(half));
    }
    let end = Lsn(4 * half);
    let granted = log.grant();
    let remote = Remote::new(&log);
    remote.write(end, &vec![0xEE; granted.since(end) as usize]);
    let reader = log.reader();
    for number in 0..end.0 / LENGTH {
        let at = Lsn(number * LENGTH);
        reader.read(at, &mut bytes).unwrap();
        assert!(Block::parse(&bytes, at).is_ok(), "{at} is not the log");
    }
    assert!(matches!(reader.read(end, &mut bytes), Err(ReadError::Beyond { .. })));
    log.close().unwrap();
}
