//! A standby's threads, from the form of blocks to complete ones.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering::SeqCst},
        mpsc::{Receiver, Sender, channel},
    },
    thread,
    time::{Duration, Instant},
};

use freshet_base::{Fid, Lsn, RecordKind, Rid, Term, Watermark, varint};
use freshet_log::{Block, BlockBuilder, BlockHeader, BlockKind, Log, Persistence};
use freshet_replay::{
    Records,
    form::{CatalogKeys, Encoder, plain},
};
use freshet_replication::forms::{Arrivals, Complete, Encoding as Form, Missing, Regenerate, Wanted};
use freshet_txn::{Inputs, ProcedureError, Transaction};

use super::Noted;
use crate::{
    Database, Encoding, IndexDefinition, KeyPart, TableDefinition,
    scheme::{
        Ground,
        command::CommandExecutor,
        inputs::{
            live::{How, Live},
            room::Schedule,
        },
    },
};

/// Executes nothing.
struct Unable;

impl CommandExecutor for Unable {
    fn execute(&self, _: &Transaction<'_>, _: u32, _: &[u8]) -> Result<(), ProcedureError> {
        Err(ProcedureError::Aborted("it is not known here".into()))
    }
}

/// What a node says that is asked for a block.
type Answer = dyn FnMut(&BlockHeader) -> Result<Vec<u8>, Missing> + Send;

/// Keeps what is complete, and answers those who ask for blocks as it is told.
struct Kept {
    appended: Sender<Vec<u8>>,
    answer: Mutex<Box<Answer>>,
    failed: Mutex<Option<String>>,
    has_failed: AtomicBool,
    /// In which forms the log was asked for.
    asked: Mutex<Vec<Form>>,
}

impl Complete for Kept {
    fn append(&self, blocks: &[u8]) -> Result<(), String> {
        self.appended.send(blocks.to_vec()).map_err(|gone| gone.to_string())
    }

    fn originals(&self, wanted: &[Wanted]) -> Vec<Result<Vec<u8>, Missing>> {
        let mut answer = self.answer.lock().unwrap();
        wanted.iter().map(|wanted| answer(&wanted.header)).collect()
    }

    fn arrivals(&self) -> Arrivals {
        Arrivals::default()
    }

    fn ask_for(&self, form: Form) {
        self.asked.lock().unwrap().push(form);
    }

    fn asks_for(&self) -> Form {
        Form::Inputs
    }

    fn failed(&self, why: String) {
        *self.failed.lock().unwrap() = Some(why);
        self.has_failed.store(true, SeqCst);
    }
}

/// A database with one table, and what regenerates its log from the beginning.
struct Home {
    database: Database,
    table: Fid,
    live: Live,
    kept: Arc<Kept>,
    appended: Receiver<Vec<u8>>,
}

fn home(answer: impl FnMut(&BlockHeader) -> Result<Vec<u8>, Missing> + Send + 'static) -> Home {
    home_at(Lsn::ZERO, Arc::new(Unable), None, answer)
}

/// The same, with a log that begins at `begin`.
fn home_at(
    begin: Lsn,
    executor: Arc<dyn CommandExecutor>,
    backlog: Option<Duration>,
    answer: impl FnMut(&BlockHeader) -> Result<Vec<u8>, Missing> + Send + 'static,
) -> Home {
    let database = Database::volatile(64);
    let index = IndexDefinition::new("things_id", true, &[KeyPart::unsigned(0, 8)]);
    let table = database.create_table(&TableDefinition::new("things", vec![index])).unwrap().fid();
    let (log, _) = Log::receive(1 << 20, Persistence::None, Lsn::ZERO).unwrap();
    let ground = Ground {
        participants: Arc::clone(&database.core().participants),
        source: Arc::default(),
        records: Records(log.reader()),
        floor: Lsn::ZERO,
    };
    let (noted, how) =
        (Arc::new(Noted::default()), How { schedule: Schedule::Versions, encoding: Encoding::Inputs, backlog });
    let live = Live::new((begin, Lsn::ZERO), how, &ground, executor, noted);
    let (appended, taken) = channel();
    let (answer, failed) = (Mutex::new(Box::new(answer) as _), Mutex::default());
    let kept = Arc::new(Kept { appended, answer, failed, has_failed: AtomicBool::new(false), asked: Mutex::default() });
    live.begin(begin, &Arc::new(Watermark::new(begin)), Arc::clone(&kept) as _);
    Home { database, table, live, kept, appended: taken }
}

impl Home {
    /// The block at `at`, of a transaction that has inserted a record, and recorded its inputs.
    fn block(&self, at: Lsn) -> Vec<u8> {
        self.block_of(at, RecordKind::Insert, Rid(at.0), None)
    }

    /// The same, of one that has done this to a record.
    fn block_of(&self, at: Lsn, kind: RecordKind, rid: Rid, prev: Option<Lsn>) -> Vec<u8> {
        let (mut builder, mut inputs, mut body) = (BlockBuilder::new(), Vec::new(), Vec::new());
        varint::put(&mut body, 300);
        Inputs { serial: false, snapshots: vec![at], body: &body }.encode(&mut inputs);
        builder.begin();
        builder.push(prev, self.table, rid, kind, &at.0.to_be_bytes()).unwrap();
        builder.push(None, Fid::INPUTS, Rid(0), RecordKind::Insert, &inputs).unwrap();
        builder.seal_records();
        builder.finish(at, Term(1), BlockKind::Redo).to_vec()
    }

    /// Enters a block, in the inputs form if it is to be executed.
    fn enter(&self, at: Lsn, bytes: &[u8], executes: bool) -> Lsn {
        let (core, mut form) = (self.database.core(), Vec::new());
        let block = Block::parse(bytes, at).unwrap();
        if executes {
            let participant = core.participants.join().unwrap();
            let guard = participant.pin_without_snapshot();
            Encoder::new().block(&block, &mut CatalogKeys::new(&core.catalog, &guard), &mut form);
        } else {
            plain(bytes, &mut form).unwrap();
        }
        let end = block.header().end();
        self.live.enter(at, end, &form, &mut |_| {}).unwrap();
        end
    }
}

fn missing(header: &BlockHeader, nowhere: bool) -> Missing {
    Missing { at: header.lsn, nowhere, answers: vec![("there".into(), "it is not here".into())] }
}

/// The thread that keeps old versions may come late, and the window never come to an end.
#[test]
fn old_versions_are_kept_from_the_beginning_and_nothing_is_left_at_the_end() {
    let home = home(|header| Err(missing(header, false)));
    let core = home.database.core();
    let horizon = || core.participants.horizon(|| Lsn(1 << 40));
    assert_eq!(horizon(), Lsn(1 << 40));
    home.live.compose(core);
    assert_eq!(horizon(), Lsn::ZERO, "before the garbage collector starts, and anything is executed");
    let block = home.block(Lsn::ZERO);
    home.enter(Lsn::ZERO, &block, false);
    assert_eq!(home.appended.recv().unwrap(), block);
    // Readers do not see it yet.
    let comes = || {
        let participant = core.participants.join().unwrap();
        let guard = participant.pin_without_snapshot();
        let content = core.catalog.get(&guard, home.table).and_then(|table| table.content(&guard)).unwrap();
        home.live.window().entering().has(&guard, content, Rid(0))
    };
    assert!(comes());
    home.live.stop();
    assert!(!comes(), "a garbage collector would wait for it to come");
    assert_eq!(horizon(), Lsn(1 << 40));
}

/// One that no node gives holds up no other one.
#[test]
fn blocks_are_asked_for_until_they_come() {
    let (reports, asked) = channel();
    let answers: Arc<Mutex<Vec<Vec<u8>>>> = Arc::default();
    let known = Arc::clone(&answers);
    let home = home(move |header| {
        let _ = reports.send(header.lsn);
        let known = known.lock().unwrap();
        let bytes = known.iter().find(|bytes| BlockHeader::peek(bytes).unwrap() == *header);
        bytes.cloned().ok_or_else(|| missing(header, false))
    });
    home.live.compose(home.database.core());
    let mut blocks = Vec::new();
    let mut at = Lsn::ZERO;
    for _ in 0..20 {
        let block = home.block(at);
        at = home.enter(at, &block, true);
        blocks.push(block);
    }
    // All are asked for, although none comes.
    let mut lsns: Vec<Lsn> = Vec::new();
    while lsns.len() < blocks.len() {
        let lsn = asked.recv().unwrap();
        if !lsns.contains(&lsn) {
            lsns.push(lsn);
        }
    }
    blocks.iter().rev().for_each(|block| answers.lock().unwrap().push(block.clone()));
    let mut appended = Vec::new();
    while appended.len() < at.0 as usize {
        appended.extend(home.appended.recv().unwrap());
    }
    assert_eq!(appended, blocks.concat());
    assert_eq!(home.live.status().mismatches, 20);
    home.live.stop();
}

#[test]
fn a_block_that_is_nowhere_ends_it_and_the_reason_is_reported() {
    let home = home(|header| Err(missing(header, true)));
    home.live.compose(home.database.core());
    let block = home.block(Lsn::ZERO);
    home.enter(Lsn::ZERO, &block, true);
    while !home.kept.has_failed.load(SeqCst) {
        std::thread::yield_now();
    }
    let why = home.kept.failed.lock().unwrap().clone().unwrap();
    assert!(why.contains("since it failed") && why.contains("there: it is not here"), "{why}");
    home.live.stop();
}

/// However the block comes, and whichever node has its bytes: that is no matter of inputs.
#[test]
fn a_change_of_what_is_not_there_as_it_was_ends_it() {
    for (kind, executes) in
        [RecordKind::Update, RecordKind::Delete].into_iter().flat_map(|it| [(it, true), (it, false)])
    {
        // Of a record that is missing, and of one that is older than it was, or newer.
        for (rid, prev) in [(Rid(7_000), Some(Lsn(8))), (Rid(0), Some(Lsn(8))), (Rid(0), None)] {
            let sent: Arc<Mutex<Vec<u8>>> = Arc::default();
            let known = Arc::clone(&sent);
            let home = home(move |_| Ok(known.lock().unwrap().clone()));
            home.live.compose(home.database.core());
            let first = home.block(Lsn::ZERO);
            let at = home.enter(Lsn::ZERO, &first, false);
            assert_eq!(home.appended.recv().unwrap(), first);
            let wrong = home.block_of(at, kind, rid, prev);
            sent.lock().unwrap().clone_from(&wrong);
            home.enter(at, &wrong, executes);
            while !home.kept.has_failed.load(SeqCst) {
                std::thread::yield_now();
            }
            let why = home.kept.failed.lock().unwrap().clone().unwrap();
            let text = format!("changes record {} of table {}", rid.0, home.table.0);
            assert!(why.contains(&text) && why.contains("not the one that the log continues"), "{why}");
            assert!(home.appended.try_recv().is_err(), "nothing of it is part of the log");
            home.live.stop();
        }
    }
}

#[test]
fn what_a_restart_cannot_execute_fails_when_it_arrives() {
    let home = home(|header| Err(missing(header, false)));
    let (core, mut at) = (home.database.core(), Lsn::ZERO);
    let mut enters = |bytes: &[u8], executes: bool| {
        let block = Block::parse(bytes, at).unwrap();
        let (mut form, participant) = (Vec::new(), core.participants.join().unwrap());
        let guard = participant.pin_without_snapshot();
        match executes {
            true => _ = Encoder::new().block(&block, &mut CatalogKeys::new(&core.catalog, &guard), &mut form),
            false => plain(bytes, &mut form).unwrap(),
        }
        let end = block.header().end();
        let oldest = home.live.enter(at, end, &form, &mut |_| {}).unwrap();
        at = end;
        (oldest, end)
    };
    let (oldest, end) = enters(&home.block(Lsn::ZERO), true);
    assert_eq!(oldest, Lsn::ZERO);
    let (oldest, next) = enters(&home.block(end), true);
    assert_eq!(oldest, end);
    let (oldest, end) = enters(&home.block(next), false);
    assert_eq!(oldest, Lsn::MAX, "its bytes are there");
    // A change of tables, and one that has read before it, and one behind it.
    let mut builder = BlockBuilder::new();
    builder.begin();
    builder.push(None, Fid::CATALOG, Rid(77), RecordKind::Insert, b"").unwrap();
    builder.seal_records();
    let (_, end) = enters(builder.finish(end, Term(1), BlockKind::Schema), false);
    let reads = |at: Lsn, snapshot: Lsn| {
        let (mut builder, mut inputs) = (BlockBuilder::new(), Vec::new());
        Inputs { serial: false, snapshots: vec![snapshot], body: b"" }.encode(&mut inputs);
        builder.begin();
        builder.push(None, home.table, Rid(at.0), RecordKind::Insert, &at.0.to_be_bytes()).unwrap();
        builder.push(None, Fid::INPUTS, Rid(0), RecordKind::Insert, &inputs).unwrap();
        builder.seal_records();
        builder.finish(at, Term(1), BlockKind::Redo).to_vec()
    };
    let (oldest, end) = enters(&reads(end, next), true);
    assert_eq!(oldest, Lsn::ZERO);
    assert_eq!(enters(&reads(end, end), true).0, end);
    home.live.stop();
}

/// Snapshots here see the table.
const BEGIN: Lsn = Lsn(1 << 20);
/// However busy the machine is.
const SOON: Duration = Duration::from_secs(60);

/// Reads a record again and again, until it is told that nobody wants what comes of that.
struct Endless(Sender<()>);

impl CommandExecutor for Endless {
    fn execute(&self, transaction: &Transaction<'_>, _: u32, _: &[u8]) -> Result<(), ProcedureError> {
        let things = transaction.table("things").unwrap();
        let _ = self.0.send(());
        loop {
            transaction.read(&things, Rid(0))?;
        }
    }
}

/// Does the same without reading.
struct Computing(Sender<()>);

impl CommandExecutor for Computing {
    fn execute(&self, transaction: &Transaction<'_>, _: u32, _: &[u8]) -> Result<(), ProcedureError> {
        let _ = self.0.send(());
        while !transaction.is_given_up() {
            thread::yield_now();
        }
        Err(ProcedureError::Aborted("it was given up".into()))
    }
}

/// An execution that would never end is under way.
fn endless(
    make: impl FnOnce(Sender<()>) -> Arc<dyn CommandExecutor>,
    answer: impl FnMut(&BlockHeader) -> Result<Vec<u8>, Missing> + Send + 'static,
) -> (Home, Vec<u8>) {
    let (begins, begun) = channel();
    let home = home_at(BEGIN, make(begins), Some(Duration::from_millis(1)), answer);
    home.live.compose(home.database.core());
    let block = home.block(BEGIN);
    home.enter(BEGIN, &block, true);
    begun.recv_timeout(SOON).unwrap();
    (home, block)
}

/// Fails when this does not end.
fn ends(what: &str, live: &Live, act: impl FnOnce(&Live) + Send + 'static) {
    let (done, ended) = channel();
    let live = live.clone();
    thread::spawn(move || {
        act(&live);
        let _ = done.send(());
    });
    ended.recv_timeout(SOON).unwrap_or_else(|_| panic!("{what} waits for an execution that does not end"));
}

#[test]
fn a_stop_and_a_cut_end_what_is_being_executed() {
    for reads in [true, false] {
        let make = |begins| match reads {
            true => Arc::new(Endless(begins)) as Arc<dyn CommandExecutor>,
            false => Arc::new(Computing(begins)),
        };
        let (home, _) = endless(make, |header| Err(missing(header, false)));
        ends("a cut", &home.live, |live| live.cut(BEGIN));
        let block = home.block(BEGIN);
        home.enter(BEGIN, &block, true);
        ends("a stop", &home.live, Live::stop);
        assert_eq!(home.live.window().failure(), None);
        let (home, _) = endless(make, |header| Err(missing(header, false)));
        ends("a stop", &home.live, Live::stop);
    }
}

/// While the node that has it lives, its bytes come before the execution ends.
#[test]
fn the_bytes_of_a_block_that_takes_long_come_first() {
    let answer: Arc<Mutex<Vec<u8>>> = Arc::default();
    let theirs = Arc::clone(&answer);
    let (home, block) = endless(
        |begins| Arc::new(Endless(begins)),
        move |header| {
            let bytes = theirs.lock().unwrap().clone();
            // It may be asked for before the test can say it, and nobody has it: it is not lost.
            if bytes.is_empty() { Err(missing(header, true)) } else { Ok(bytes) }
        },
    );
    *answer.lock().unwrap() = block.clone();
    assert_eq!(home.appended.recv_timeout(SOON).unwrap(), block);
    let status = home.live.status();
    assert_eq!((status.slow, status.mismatches, status.executed), (1, 0, 0));
    assert!(!home.kept.has_failed.load(SeqCst));
    ends("a stop", &home.live, Live::stop);
}

/// What may arrive is what is executed in the time that is given for it.
#[test]
fn nothing_arrives_ahead_of_what_takes_longer_than_it_may() {
    let (home, _) = endless(|begins| Arc::new(Endless(begins)), |header| Err(missing(header, false)));
    let deadline = Instant::now() + SOON;
    while home.live.ahead() > 1 << 10 {
        assert!(Instant::now() < deadline, "{} bytes may arrive", home.live.ahead());
        thread::yield_now();
    }
    ends("a stop", &home.live, Live::stop);
}

#[test]
fn a_node_that_has_to_fetch_what_it_executes_asks_for_bytes() {
    let blocks: Arc<Mutex<Vec<u8>>> = Arc::default();
    let theirs = Arc::clone(&blocks);
    let home = home(move |header| {
        let from = header.lsn.0 as usize;
        Ok(theirs.lock().unwrap()[from..from + header.length as usize].to_vec())
    });
    home.live.compose(home.database.core());
    let (mut at, deadline) = (Lsn::ZERO, Instant::now() + SOON);
    while home.live.status().storm.is_none() {
        assert!(Instant::now() < deadline, "{:?}", home.live.status());
        let block = home.block(at);
        blocks.lock().unwrap().extend_from_slice(&block);
        at = home.enter(at, &block, true);
        home.appended.recv_timeout(SOON).unwrap();
    }
    let storm = home.live.status().storm.unwrap();
    assert!(storm.why.contains("had to be fetched") && storm.left > Duration::ZERO, "{storm:?}");
    while home.kept.asked.lock().unwrap().is_empty() {
        thread::yield_now();
    }
    assert_eq!(*home.kept.asked.lock().unwrap(), [Form::Bytes]);
    // What is configured since then counts.
    home.live.set_encoding(Encoding::Inputs);
    assert_eq!(home.live.status().storm, None);
    assert_eq!(*home.kept.asked.lock().unwrap(), [Form::Bytes, Form::Inputs]);
    home.live.stop();
}
