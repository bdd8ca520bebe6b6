//! A standby's log: received, persisted, read back, cut, promoted.

use std::{
    io::{Read, Write},
    os::unix::net::UnixStream,
    sync::{Arc, Mutex},
    thread,
};

use freshet_base::{ClusterId, Fid, Lsn, NodeId, Rid, Term};
use freshet_log::{
    Batch, Block, BlockBuilder, BlockError, BlockKind, Blocks, Log, LogConfig, LogStore, ReadError, ReceiveConfig,
    ReceiveError, RecordKind, Sink, StoreConfig, StoreError, find_tail,
};

const CONFIG: StoreConfig = StoreConfig { cluster: ClusterId(7), segment_size: 64 << 10 };
const RING: usize = 16 << 10;

fn block(at: Lsn, length: usize, term: u32) -> Vec<u8> {
    let mut builder = BlockBuilder::new();
    builder.begin();
    builder.push(None, Fid(1), Rid(at.0), RecordKind::Insert, &vec![at.0 as u8; length - 64]).unwrap();
    builder.seal_records();
    builder.finish(at, Term(term), BlockKind::Redo).to_vec()
}

/// `[from, from + count * 208)` as a primary would send it.
fn batch(from: Lsn, count: u64, term: u32) -> Vec<u8> {
    (0..count).flat_map(|i| block(from.plus(208 * i), 208, term)).collect()
}

/// Its threads may just have looked for something, and be about to sleep: more of them than
/// processors, so that they are interrupted there now and then.
#[test]
fn what_has_arrived_before_the_end_is_in_the_store() {
    let round = || {
        let store = LogStore::in_memory(CONFIG);
        let (log, mut receiver) = Log::receive(RING, store.clone(), Lsn(0)).unwrap();
        receiver.append(&batch(Lsn(0), 3, 1)).unwrap();
        log.close().unwrap();
        assert_eq!((store.watermark(), log.durable_mark().get()), (Lsn(3 * 208), Lsn(3 * 208)));
    };
    thread::scope(|scope| {
        for _ in 0..16 {
            scope.spawn(|| (0..1_000).for_each(|_| round()));
        }
    });
}

#[test]
fn a_stream_of_bytes_becomes_a_log() {
    let (log, mut receiver) = Log::receive(RING, LogStore::in_memory(CONFIG), Lsn(0)).unwrap();
    let (mut primary, mut standby) = UnixStream::pair().unwrap();
    const BATCH: u64 = 30 * 208;
    const END: Lsn = Lsn(40 * BATCH);
    thread::scope(|scope| {
        scope.spawn(move || {
            for i in 0..40 {
                primary.write_all(&batch(Lsn(i * BATCH), 30, 1)).unwrap();
            }
        });
        let (log, reader) = (&log, log.reader());
        scope.spawn(move || {
            // Replays as it comes, and reads old parts in the meantime.
            let mut at = Lsn(0);
            while at < END {
                let to = log.received().wait(at.plus(208), None).unwrap();
                while at < to {
                    for place in [at, Lsn(at.0 / 416 * 208)] {
                        let mut bytes = [0; 208];
                        reader.read(place, &mut bytes).unwrap();
                        assert_eq!(
                            Block::parse(&bytes, place).unwrap().records().next().unwrap().header.rid.0,
                            place.0
                        );
                    }
                    at = at.plus(208);
                }
                log.note_replayed(at);
            }
        });
        let mut at = Lsn(0);
        while at < END {
            let end = at.plus(BATCH);
            receiver.wait_room(end).unwrap();
            let mut place = receiver.writable(at, BATCH).unwrap();
            let mut bytes = [0; BATCH as usize];
            standby.read_exact(&mut bytes).unwrap();
            assert_eq!(place.copy_from(&bytes), bytes.len());
            receiver.accept(end).unwrap();
            at = end;
        }
        log.durable_mark().wait(END, None).unwrap();
    });
    log.close().unwrap();
    assert_eq!(find_tail(log.store(), Lsn(0), log.store().watermark()).unwrap().end, END);
}

fn receive(receiver: &mut freshet_log::Receiver, bytes: &[u8]) {
    let at = receiver.received();
    let mut place = receiver.writable(at, bytes.len() as u64).unwrap();
    // In odd pieces.
    for piece in bytes.chunks(37) {
        assert_eq!(place.copy_from(piece), piece.len());
    }
    receiver.accept(at.plus(bytes.len() as u64)).unwrap();
}

/// What replay reads in the ring is what is read from it, around its end too, and it stays there
/// until replay says that it is done.
#[test]
fn what_waits_for_replay_is_read_where_it_lies() {
    let (log, mut receiver) = Log::receive(RING, LogStore::in_memory(CONFIG), Lsn(0)).unwrap();
    let reader = log.reader();
    let mut at = Lsn(0);
    while at < Lsn(5 * RING as u64) {
        let to = at.plus(70 * 208);
        receiver.wait_room(to).unwrap();
        receive(&mut receiver, &batch(at, 70, 1));
        let mut bytes = vec![0; to.since(at) as usize];
        reader.read(at, &mut bytes).unwrap();
        let (mut one, mut other) = (Vec::new(), Vec::new());
        let mut pairs = 0;
        let mut buffer = Vec::new();
        let kept = reader.blocks(at, to, &mut buffer).unwrap();
        assert!(kept.are_in_ring());
        for (kept, read) in kept.zip(Blocks::in_bytes(&bytes, at)) {
            let (kept, read) = (kept.unwrap(), read.unwrap());
            assert_eq!((kept.header(), kept.records().count()), (read.header(), 1));
            assert_eq!(kept.whole(&mut one).unwrap().bytes(), read.whole(&mut other).unwrap().bytes());
            for (kept, read) in kept.records().zip(read.records()) {
                let (kept, read) = (kept.unwrap(), read.unwrap());
                assert_eq!((kept.address, kept.header), (read.address, read.header));
                assert_eq!(kept.row(&mut one), read.row(&mut other));
                pairs += 1;
            }
        }
        assert_eq!(pairs, 70);
        assert!(reader.blocks(at, to.plus(8), &mut buffer).is_err(), "that has not arrived");
        log.durable_mark().wait(to, None).unwrap();
        assert_eq!(log.free_until(), at.plus(RING as u64), "it is kept");
        log.note_replayed(to);
        let read = reader.blocks(at, to, &mut buffer).unwrap();
        assert!(!read.are_in_ring(), "it may be overwritten now");
        assert_eq!(read.filter(Result::is_ok).count(), 70);
        at = to;
    }
    log.close().unwrap();
}

#[test]
fn what_is_no_block_ends_what_is_read() {
    let mut bytes = batch(Lsn(0), 3, 1);
    bytes[208 + 40] ^= 1;
    let found: Vec<_> = Blocks::in_bytes(&bytes, Lsn(0)).collect();
    assert_eq!(found.len(), 2);
    assert!(found[0].is_ok() && matches!(found[1], Err((Lsn(208), BlockError::Checksum { .. }))));
}

#[test]
fn room_is_what_is_persisted_and_replayed() {
    let (log, mut receiver) = Log::receive(RING, LogStore::in_memory(CONFIG), Lsn(0)).unwrap();
    receive(&mut receiver, &batch(Lsn(0), 50, 1));
    log.durable_mark().wait(Lsn(50 * 208), None).unwrap();
    assert_eq!(log.free_until(), Lsn(RING as u64), "nothing is replayed yet");
    assert!(matches!(receiver.writable(Lsn(50 * 208), 16 << 10), Err(ReceiveError::NoRoom { .. })));
    assert!(matches!(receiver.writable(Lsn(208), 8), Err(ReceiveError::Gap { .. })));
    log.note_replayed(Lsn(20 * 208));
    assert_eq!(log.free_until(), Lsn(RING as u64 + 20 * 208));
}

#[test]
fn a_cut_takes_back_what_the_old_primary_never_had_acknowledged() {
    let directory = tempfile::tempdir().unwrap();
    let store = LogStore::open_directory(directory.path(), CONFIG).unwrap();
    let (log, mut receiver) = Log::receive(RING, store, Lsn(0)).unwrap();
    receive(&mut receiver, &batch(Lsn(0), 30, 1));
    log.durable_mark().wait(Lsn(30 * 208), None).unwrap();
    log.note_replayed(Lsn(20 * 208));
    let (reader, at) = (log.reader(), Lsn(20 * 208));
    receiver.cut(at).unwrap();
    assert_eq!((log.received().get(), log.durable_mark().get(), log.store().stream(0).end()), (at, at, at));
    let mut bytes = [0; 208];
    assert!(matches!(reader.read(at, &mut bytes), Err(ReadError::Beyond { .. })));
    reader.read(Lsn(19 * 208), &mut bytes).unwrap();
    receive(&mut receiver, &batch(at, 40, 2));
    log.durable_mark().wait(at.plus(40 * 208), None).unwrap();
    reader.read(at, &mut bytes).unwrap();
    assert_eq!(Block::parse(&bytes, at).unwrap().header().term, Term(2));
    // Beyond the ring, from the store.
    log.note_replayed(Lsn::MAX);
    receive(&mut receiver, &batch(at.plus(40 * 208), 60, 2));
    reader.read(at, &mut bytes).unwrap();
    assert_eq!(Block::parse(&bytes, at).unwrap().header().term, Term(2));
    log.close().unwrap();
}

/// Of a node that joined from a checkpoint, or whose checkpoints have let segments go.
#[test]
fn a_log_that_does_not_begin_at_zero_is_cut_after_a_restart() {
    let begin = Lsn(700 * 208);
    for blocks in [3, 40, 2_000] {
        let directory = tempfile::tempdir().unwrap();
        let open = || LogStore::open_directory(directory.path(), CONFIG).unwrap();
        let (log, mut receiver) = Log::receive(RING, open(), begin).unwrap();
        let end = begin.plus(blocks * 208);
        let mut at = begin;
        while at < end {
            receive(&mut receiver, &batch(at, 20.min(end.since(at) / 208), 1));
            at = receiver.received();
            log.durable_mark().wait(at, None).unwrap();
            log.note_replayed(at);
        }
        log.close().unwrap();
        drop((log, receiver));
        let (log, mut receiver) = Log::receive(RING, open(), end).unwrap();
        let at = Lsn(end.0 - 2 * 208);
        receiver.cut(at).unwrap();
        assert_eq!((log.received().get(), log.transaction_end(at)), (at, at));
        receive(&mut receiver, &batch(at, 5, 2));
        log.durable_mark().wait(at.plus(5 * 208), None).unwrap();
        log.close().unwrap();
    }
}

/// A standby that needs more is told so: what lies below in the first segment are no blocks.
#[test]
fn a_log_begins_where_it_was_opened_and_not_where_its_first_segment_does() {
    let begin = Lsn(100 * 208);
    let directory = tempfile::tempdir().unwrap();
    let open = || LogStore::open_directory(directory.path(), CONFIG).unwrap();
    let gone = |store: &LogStore, below: &str| {
        let read = store.read(Lsn(begin.0 - 208), &mut [0; 32]);
        assert!(matches!(&read, Err(StoreError::Gone { first, .. }) if *first == begin), "{below}: {read:?}");
        assert_eq!(store.extent().unwrap().0, begin);
    };
    let store = open();
    let (log, mut receiver) = Log::receive(RING, store.clone(), begin).unwrap();
    gone(&store, "nothing was written");
    drop((log, receiver));
    gone(&open(), "nothing was written before a restart");
    let (log, receiver_again) = Log::receive(RING, open(), begin).unwrap();
    receiver = receiver_again;
    receive(&mut receiver, &batch(begin, 20, 1));
    log.durable_mark().wait(begin.plus(20 * 208), None).unwrap();
    receiver.cut(begin.plus(3 * 208)).unwrap();
    gone(log.store(), "it was cut");
    log.close().unwrap();
    drop((log, receiver));
    gone(&open(), "a restart");
}

#[test]
fn a_promoted_standby_goes_on_as_the_primary() {
    let directory = tempfile::tempdir().unwrap();
    let store = LogStore::open_directory(directory.path(), CONFIG).unwrap();
    let (standby, mut receiver) = Log::receive(RING, store.clone(), Lsn(0)).unwrap();
    let reader = standby.reader();
    receive(&mut receiver, &batch(Lsn(0), 50, 1));
    let at = receiver.received();
    // A batch that never came whole: its bytes are in the ring, and overwrote what was there
    // before.
    standby.durable_mark().wait(at, None).unwrap();
    standby.note_replayed(at);
    receiver.writable(at, 12 << 10).unwrap().copy_from(&[0xEE; 12 << 10]);
    standby.promote(receiver, LogConfig { partition: 1 << 10, ..LogConfig::default() }, Term(2)).unwrap();
    let log = standby;
    assert_eq!((log.start(), log.reserved()), (at, at));
    // What the lost batch overwrote comes from the store.
    let mut bytes = [0; 208];
    reader.read(Lsn(0), &mut bytes).unwrap();
    assert!(Block::parse(&bytes, Lsn(0)).is_ok());
    let began = log.begin_term(NodeId(3)).unwrap();
    log.wait_durable(began, None).unwrap();
    let mut writer = log.writer().unwrap();
    for _ in 0..200 {
        let reservation = writer.reserve(208).unwrap();
        let bytes = block(reservation.lsn(), 208, 2);
        reservation.fill(&bytes).unwrap();
    }
    drop(writer);
    let end = log.reserved();
    log.wait_durable(end, None).unwrap();
    reader.read(Lsn(end.0 - 208), &mut bytes).unwrap();
    assert_eq!(Block::parse(&bytes, Lsn(end.0 - 208)).unwrap().header().term, Term(2));
    log.close().unwrap();
    let tail = find_tail(&store, Lsn(0), store.watermark()).unwrap();
    assert_eq!((tail.end, tail.term), (end, Some(Term(2))));
}

/// The calls of a sink, in their order.
#[derive(Debug, Clone, PartialEq)]
enum Call {
    Batch(Lsn, Lsn, Vec<Lsn>, Vec<Lsn>),
    Durable(Lsn),
    Cut(Lsn),
}

#[derive(Default)]
struct Calls(Mutex<Vec<Call>>);

impl Sink for Calls {
    fn batch(&self, batch: &Batch<'_>) {
        let (partitions, transactions) = (batch.partition_ends.to_vec(), batch.transaction_ends.to_vec());
        self.0.lock().unwrap().push(Call::Batch(batch.from, batch.to, partitions, transactions));
    }

    fn durable(&self, to: Lsn) {
        self.0.lock().unwrap().push(Call::Durable(to));
    }

    fn cut(&self, at: Lsn) {
        self.0.lock().unwrap().push(Call::Cut(at));
    }
}

/// A sink gets what is received as it gets what is written here, also across a cut and a
/// promotion.
#[test]
fn a_sink_follows_a_log_that_is_received_cut_and_promoted() {
    let config = ReceiveConfig { capacity: RING, partition: 1 << 10, ..ReceiveConfig::default() };
    let (log, mut receiver) = Log::receive_with(&config, LogStore::in_memory(CONFIG), Lsn(0)).unwrap();
    receive(&mut receiver, &batch(Lsn(0), 2, 1));
    let sink = Arc::new(Calls::default());
    let handle = log.attach(Arc::clone(&sink) as _);
    let from = Lsn(2 * 208);
    assert_eq!(handle.from(), from, "what came before was handed out before");
    let to = from.plus(10 * 208);
    receive(&mut receiver, &batch(from, 10, 1));
    log.durable_mark().wait(to, None).unwrap();
    // A partition ends with the first block that reaches into the next one.
    let partitions = vec![Lsn(5 * 208), Lsn(10 * 208)];
    let calls = || std::mem::take(&mut *sink.0.lock().unwrap());
    // Of the ends of transactions within a batch, only some are remembered. What came before may be
    // durable only now.
    let first = calls().into_iter().find(|call| *call != Call::Durable(from));
    assert_eq!(first, Some(Call::Batch(from, to, partitions, vec![to])));
    let cut = Lsn(7 * 208);
    receiver.cut(cut).unwrap();
    assert_eq!(calls().last(), Some(&Call::Cut(cut)));
    // One long block over a partition that ended in what was cut.
    let end = cut.plus(3000);
    receive(&mut receiver, &block(cut, 3000, 2));
    log.durable_mark().wait(end, None).unwrap();
    assert_eq!(calls()[0], Call::Batch(cut, end, vec![end], vec![end]));
    log.promote(receiver, LogConfig { partition: 1 << 10, ..LogConfig::default() }, Term(3)).unwrap();
    let began = log.begin_term(NodeId(3)).unwrap();
    log.wait_durable(began, None).unwrap();
    log.close().unwrap();
    let rest = calls();
    assert!(
        matches!(rest.iter().find(|it| matches!(it, Call::Batch(..))), Some(Call::Batch(from, ..)) if *from == end)
    );
    assert!(rest.contains(&Call::Durable(began)), "{rest:?}");
}
