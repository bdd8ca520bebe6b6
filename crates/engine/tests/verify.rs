//! A recorded log is executed again, and gives itself: definitions, loads, old snapshots and
//! several isolation levels in it, and procedures that lie.

mod common;

use std::{
    ops::{Bound, ControlFlow},
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use common::{Shape, config, definition, hash, row, start};
use freshet_base::{Fid, RecordKind, Rid};
use freshet_engine::{
    CheckpointKind, CommandExecutor, Database, Direction, Encoding, IndexDefinition, Isolation, KeyPart, Node,
    NodeConfig, ProcedureError, Table, TableDefinition, Transaction, VerifyError, VerifyOptions, VerifyReport,
    executors,
    node::RoleStatus,
    record_as,
    scheme::inputs::{Room, read_mismatches},
    verify,
};
use freshet_log::{BlockBuilder, BlockKind, block::RecordHeader};
use freshet_recovery::RecordedLog;
use freshet_txn::Inputs;

/// A procedure with its inputs.
#[derive(Clone, Copy, Debug)]
struct Call {
    procedure: u32,
    ids: [u64; 3],
}

const INSERT: u32 = 1;
const SUM: u32 = 2;
const MOVE: u32 = 3;
const DELETE: u32 = 4;
const REFRESH: u32 = 5;
const COUNT: u32 = 300;

impl Call {
    fn encode(&self) -> Vec<u8> {
        self.ids.iter().flat_map(|id| id.to_le_bytes()).collect()
    }

    fn decode(procedure: u32, inputs: &[u8]) -> Self {
        let mut ids = inputs.chunks_exact(8).map(|id| u64::from_le_bytes(id.try_into().unwrap()));
        Self { procedure, ids: std::array::from_fn(|_| ids.next().unwrap()) }
    }
}

fn column(row: &[u8], number: usize) -> u64 {
    u64::from_le_bytes(row[8 * number..8 * number + 8].try_into().unwrap())
}

/// Does what a procedure does.
fn act(txn: &Transaction<'_>, call: Call) -> Result<(), ProcedureError> {
    let things = txn.table("things").ok_or(ProcedureError::Aborted("there are no things".into()))?;
    let get = |id: u64| txn.get(&things, 0, &id.to_be_bytes());
    let value = |id: u64| Ok::<_, ProcedureError>(get(id)?.map_or(7, |record| column(record.row, 2)));
    let [id, other, argument] = call.ids;
    match call.procedure {
        INSERT => {
            if get(id)?.is_none() {
                txn.insert(&things, &row(id, id % 7, value(other)? + argument))?;
            }
        }
        SUM => {
            // What it reads of one decides what becomes of another.
            let sum = value(id)?.wrapping_mul(31).wrapping_add(value(other)?);
            if let Some(record) = get(id)? {
                txn.update(&things, record.rid, &row(id, column(record.row, 1), sum ^ argument))?;
            }
        }
        MOVE => {
            if let Some(record) = get(id)? {
                txn.update(&things, record.rid, &row(id, argument % 11, value(other)?))?;
            }
        }
        DELETE => {
            if let Some(record) = get(id)? {
                txn.delete(&things, record.rid)?;
                // Its key may come back at once.
                if argument % 3 == 0 {
                    txn.insert(&things, &row(id, argument % 5, value(other)?))?;
                }
            }
        }
        REFRESH => {
            let before = value(id)?;
            txn.refresh();
            let between = value(other)?;
            txn.refresh();
            if let Some(record) = get(id)? {
                txn.update(&things, record.rid, &row(id, column(record.row, 1), before ^ between ^ argument))?;
            }
        }
        COUNT => {
            // A range of the second index: what is in it, and what not.
            let group = argument % 7;
            let (mut count, mut sum) = (0u64, 0u64);
            let key = group.to_be_bytes();
            let range = (Bound::Included(&key[..]), Bound::Included(&key[..]));
            txn.scan(&things, 1, range, Direction::Forward, |_, record| {
                count += 1;
                sum = sum.rotate_left(3) ^ column(record.row, 0) ^ column(record.row, 2);
                ControlFlow::Continue(())
            })?;
            if get(id)?.is_none() {
                txn.insert(&things, &row(id, group, count ^ sum))?;
            }
        }
        unknown => return Err(ProcedureError::Aborted(format!("there is no procedure {unknown}").into())),
    }
    Ok(())
}

/// What is executed otherwise than the first time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Lie {
    Value,
    Panic,
    Abort,
    Nothing,
}

/// Executes procedures again; lies about those that are told one argument.
#[derive(Default)]
struct Things {
    lie: Option<(u64, Lie)>,
    executed: AtomicU64,
}

impl CommandExecutor for Things {
    fn execute(&self, txn: &Transaction<'_>, procedure: u32, inputs: &[u8]) -> Result<(), ProcedureError> {
        self.executed.fetch_add(1, Ordering::Relaxed);
        let call = Call::decode(procedure, inputs);
        match self.lie.filter(|(argument, _)| *argument == call.ids[2]) {
            None => act(txn, call),
            Some((_, Lie::Value)) => act(txn, Call { ids: [call.ids[0], call.ids[1], call.ids[2] ^ 1024], ..call }),
            Some((_, Lie::Panic)) => {
                let done = act(txn, call);
                assert!(done.is_err(), "a procedure that panics");
                done
            }
            Some((_, Lie::Abort)) => Err(ProcedureError::Aborted("a procedure that aborts".into())),
            Some((_, Lie::Nothing)) => Ok(()),
        }
    }
}

fn recording(directory: &Path, shape: Shape) -> NodeConfig {
    let mut config = shape.of_node(1, NodeConfig { record_inputs: true, ..config(Some(directory)) });
    config.checkpoint.interval_s = 0;
    config
}

/// The seed of a randomised test; printed.
fn seed() -> u64 {
    let clock = std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap().as_nanos() as u64;
    let seed = std::env::var("FRESHET_SEED").ok().map_or(clock, |text| text.parse().unwrap());
    println!("FRESHET_SEED={seed}");
    seed
}

struct Dice(u64);

impl Dice {
    /// Splitmix.
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (z ^ (z >> 31)) % limit
    }
}

/// Three threads run `count` procedures each, at random; their arguments are `from` and above, each
/// once. Some are run at one snapshot and others take more.
fn drive(database: &Database, seed: u64, from: u64, count: u64, isolation: Isolation) {
    let run = |number: u64| {
        let mut dice = Dice(seed ^ (from << 20) ^ number);
        let worker = database.worker().unwrap();
        let mut last = None;
        for turn in 0..count {
            let procedures: &[u32] = match isolation {
                // They have one snapshot.
                Isolation::Serializable => &[INSERT, INSERT, SUM, SUM, SUM, MOVE, DELETE, COUNT],
                _ => &[INSERT, INSERT, SUM, SUM, REFRESH, REFRESH, MOVE, DELETE, COUNT],
            };
            let procedure = procedures[dice.below(procedures.len() as u64) as usize];
            let ids = [dice.below(80), dice.below(80), from + number * count + turn];
            let call = Call { procedure, ids };
            let done = worker.execute(isolation, |txn| {
                act(txn, call)?;
                if txn.records_inputs() {
                    record_as(txn, call.procedure, &call.encode());
                }
                Ok(())
            });
            match done {
                Ok(((), ticket)) => last = Some(ticket),
                // Others came first once too often, or a key is there.
                Err(ProcedureError::Write(_) | ProcedureError::Exhausted { .. }) => {}
                Err(other) => panic!("{other}"),
            }
        }
        database.wait(last.unwrap()).unwrap();
    };
    let run = &run;
    std::thread::scope(|scope| (0..3).for_each(|number| drop(scope.spawn(move || run(number)))));
}

/// Loads `count` rows in one transaction; nothing is said of its inputs.
fn load(database: &Database, table: &Table, from: u64, count: u64) {
    let worker = database.worker().unwrap();
    let ((), ticket) = worker
        .execute(Isolation::Snapshot, |txn| {
            (from..from + count).try_for_each(|id| Ok(txn.insert(table, &row(id, id % 7, id)).map(drop)?))
        })
        .unwrap();
    database.wait(ticket).unwrap();
}

fn other() -> TableDefinition {
    TableDefinition::new("other", vec![IndexDefinition::new("other_id", true, &[KeyPart::unsigned(0, 8)])])
}

/// A node's log with everything in it; returns the state at its end.
fn record(directory: &Path, shape: Shape, seed: u64) -> (u64, u64) {
    let node = start(recording(directory, shape));
    let database = node.database();
    let things = database.create_table(&definition()).unwrap();
    drive(database, seed, 0, 150, Isolation::Snapshot);
    load(database, &things, 100_000, 5000);
    drive(database, seed, 10_000, 150, Isolation::Serializable);
    let others = database.create_table(&other()).unwrap();
    load(database, &others, 0, 20);
    drive(database, seed, 20_000, 60, Isolation::Snapshot);
    let index = IndexDefinition::new("things_value", false, &[KeyPart::unsigned(16, 8)]);
    database.begin_index(&things, &index, &|| false).unwrap().finish(&|| false).unwrap();
    drive(database, seed, 30_000, 100, Isolation::Serializable);
    database.drop_table(&others).unwrap();
    drive(database, seed, 40_000, 100, Isolation::Snapshot);
    let state = hash(&node);
    node.stop().unwrap();
    state
}

fn check(directory: &Path, options: &VerifyOptions, things: Things) -> Result<VerifyReport, VerifyError> {
    let executor: Arc<dyn CommandExecutor> = Arc::new(things);
    verify(directory, &executor, options, &mut |_, _| true)
}

/// Some threads are delayed where they meet.
fn perturbed(seed: u64) -> Option<freshet_engine::scheme::inputs::Perturb> {
    let count = AtomicU64::new(0);
    Some(Arc::new(move || {
        if Dice(seed ^ count.fetch_add(1, Ordering::Relaxed)).below(9) == 0 {
            std::thread::yield_now();
        }
    }))
}

#[test]
fn a_log_that_is_executed_again_gives_itself() {
    let seed = seed();
    for shape in [Shape::OneStream, Shape::ThreeStreams, Shape::Pages] {
        let directory = tempfile::tempdir().unwrap();
        let state = record(directory.path(), shape, seed);
        for (threads, bytes) in [(1, 1 << 20), (2, 1 << 20), (3, 2000), (8, 1 << 20), (8, 20_000)] {
            let room = Room { bytes, ..Room::default() };
            let options = VerifyOptions { threads, room, perturb: perturbed(seed), ..VerifyOptions::default() };
            let report = check(directory.path(), &options, Things::default()).unwrap();
            println!("{shape:?}, {threads} threads: {report:?}");
            assert_eq!((report.hash.hash, report.hash.records), state, "{shape:?}, {threads} threads");
            assert_eq!(report.mismatches, 0, "{shape:?}, {threads} threads, {report:?}");
            assert!(report.kept["definitions"] >= 5, "{report:?}");
            if !matches!(shape, Shape::Pages) {
                assert!(report.executed > 500, "{report:?}");
            }
        }
        // And it is what a node has that replays the log record by record.
        let node = start(recording(directory.path(), shape));
        assert_eq!(hash(&node), state);
        node.stop().unwrap();
    }
}

#[test]
fn a_transaction_that_does_something_else_is_found_and_the_state_is_right() {
    let seed = seed();
    let directory = tempfile::tempdir().unwrap();
    let node = start(recording(directory.path(), Shape::OneStream));
    let things = node.database().create_table(&definition()).unwrap();
    load(node.database(), &things, 0, 80);
    drive(node.database(), seed, 0, 100, Isolation::Snapshot);
    // One that writes for certain, and then others that read what it wrote.
    let worker = node.database().worker().unwrap();
    for (number, procedure) in [(0, SUM), (1, INSERT), (2, DELETE)] {
        let call = Call { procedure, ids: [number * 500 + 3, 4, 90_000 + number] };
        load_if_missing(&worker, &things, call.ids[0] + u64::from(procedure == INSERT) * 7);
        let run = |txn: &Transaction<'_>| {
            act(txn, call)?;
            record_as(txn, call.procedure, &call.encode());
            Ok(())
        };
        let ((), ticket) = worker.execute(Isolation::Snapshot, run).unwrap();
        node.database().wait(ticket).unwrap();
    }
    drop(worker);
    drive(node.database(), seed, 1000, 100, Isolation::Snapshot);
    let state = hash(&node);
    node.stop().unwrap();
    let file = directory.path().join("found");
    for (argument, lie, text) in [
        (90_000, Lie::Value, "checksum"),
        (90_001, Lie::Value, "checksum"),
        (90_000, Lie::Panic, "a procedure that panics"),
        (90_002, Lie::Abort, "a procedure that aborts"),
        (90_000, Lie::Nothing, "wrote"),
    ] {
        let options = VerifyOptions { threads: 3, mismatches: Some(file.clone()), ..VerifyOptions::default() };
        let things = Things { lie: Some((argument, lie)), ..Things::default() };
        let report = check(directory.path(), &options, things).unwrap();
        assert_eq!((report.mismatches, &report.incomplete), (1, &None), "{lie:?}");
        assert_eq!((report.hash.hash, report.hash.records), state, "{lie:?}");
        let (found, torn) = read_mismatches(&file).unwrap();
        assert_eq!((found.len(), torn), (1, 0));
        assert!(found[0].why.contains(text), "{lie:?}: {}", found[0].why);
        assert!([SUM, INSERT, DELETE].map(Some).contains(&found[0].procedure()));
        assert_eq!(found[0].regenerated.is_empty(), lie != Lie::Value);
        std::fs::remove_file(&file).unwrap();
    }
    // Who tells no lies finds nothing, and makes no file.
    let options = VerifyOptions { mismatches: Some(file.clone()), ..VerifyOptions::default() };
    assert_eq!(check(directory.path(), &options, Things::default()).unwrap().mismatches, 0);
    assert!(!file.exists());
}

fn load_if_missing(worker: &freshet_engine::Worker, table: &Table, id: u64) {
    let insert = |txn: &Transaction<'_>| {
        if txn.get(table, 0, &id.to_be_bytes())?.is_none() {
            txn.insert(table, &row(id, 1, 1))?;
        }
        Ok(())
    };
    let _ = worker.execute(Isolation::Snapshot, insert).unwrap();
}

/// Makes the log in `directory` that of a primary which took its snapshot isolation for
/// serializable: says of all transactions that they were certified.
fn claim_serial(directory: &Path) {
    let recorded = RecordedLog::look(directory, &[]).unwrap().unwrap();
    let mut claimed = Vec::new();
    recorded
        .walk(recorded.begin(), recorded.end(), |block| {
            if let Some(row) = block.inputs() {
                let inputs = Inputs { serial: true, ..Inputs::decode(row).unwrap() };
                let mut builder = BlockBuilder::new();
                builder.begin();
                for record in block.records().filter(|record| record.header.fid != Fid::INPUTS) {
                    let RecordHeader { prev, fid, rid, kind, .. } = record.header;
                    builder.push(prev, fid, rid, kind, record.row).unwrap();
                }
                let mut row = Vec::new();
                inputs.encode(&mut row);
                builder.push(None, Fid::INPUTS, Rid(0), RecordKind::Insert, &row).unwrap();
                builder.seal_records();
                let bytes = builder.finish(block.lsn(), block.header().term, BlockKind::Redo).to_vec();
                claimed.push((block.bytes().to_vec(), bytes));
            }
            ControlFlow::Continue(())
        })
        .unwrap();
    drop(recorded);
    let files = std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    for file in files.filter(|path| path.is_file()) {
        let mut content = std::fs::read(&file).unwrap();
        for (before, after) in &claimed {
            assert_eq!(before.len(), after.len());
            if let Some(at) = content.windows(before.len()).position(|part| part == before) {
                content[at..at + after.len()].copy_from_slice(after);
            }
        }
        std::fs::write(&file, content).unwrap();
    }
}

#[test]
fn what_was_certified_wrongly_is_out_of_order() {
    let seed = seed();
    let directory = tempfile::tempdir().unwrap();
    let node = start(recording(directory.path(), Shape::OneStream));
    let things = node.database().create_table(&definition()).unwrap();
    load(node.database(), &things, 0, 90);
    drive(node.database(), seed, 0, 50, Isolation::Serializable);
    // Each reads what the other one writes.
    let workers = [node.database().worker().unwrap(), node.database().worker().unwrap()];
    let begun = workers.each_ref().map(|worker| worker.begin(Isolation::Snapshot));
    for (transaction, ids) in begun.iter().zip([[83, 84, 90_000], [84, 83, 90_001]]) {
        let call = Call { procedure: SUM, ids };
        act(transaction, call).unwrap();
        record_as(transaction, call.procedure, &call.encode());
    }
    for transaction in begun {
        node.database().wait(transaction.commit().unwrap()).unwrap();
    }
    drop(workers);
    node.stop().unwrap();
    let file = directory.path().join("found");
    let options = VerifyOptions { serially: true, mismatches: Some(file.clone()), ..VerifyOptions::default() };
    let report = check(directory.path(), &options, Things::default()).unwrap();
    assert_eq!((report.mismatches, report.out_of_order), (0, 0), "nobody said that they were serializable");
    claim_serial(directory.path());
    let report = check(directory.path(), &options, Things::default()).unwrap();
    // The second one, in the order of commits: the first has changed what it read.
    assert_eq!((report.mismatches, report.out_of_order), (0, 1), "{report:?}");
    let (found, _) = read_mismatches(&file).unwrap();
    assert_eq!(found.len(), 1);
    assert!(found[0].why.contains("not serializable"), "{}", found[0].why);
    assert_ne!(found[0].original, found[0].regenerated);
    // Who does not ask for it is not told.
    let options = VerifyOptions { serially: false, ..options };
    assert_eq!(check(directory.path(), &options, Things::default()).unwrap().out_of_order, 0);
}

/// A transaction of the primary's that is under way, and its call.
fn runs(worker: &freshet_engine::Worker, call: Call) -> Transaction<'_> {
    let transaction = worker.begin(Isolation::Snapshot);
    act(&transaction, call).unwrap();
    record_as(&transaction, call.procedure, &call.encode());
    transaction
}

/// Three faults of a certifier, as the paper's replay has found them in another database (section
/// 7): two transactions that have both read what the other one writes; one that has read what
/// was written before it commits, which timestamps were to tell; and one that has counted rows, and
/// another one has come when it commits: a phantom.
fn certify_wrongly(database: &Database) {
    let workers = [database.worker().unwrap(), database.worker().unwrap()];
    let pairs = [
        [(SUM, [83, 84, 90_000]), (SUM, [84, 83, 90_001])],
        [(MOVE, [86, 85, 90_004]), (MOVE, [85, 200, 90_003])],
        // A row of the group that is counted.
        [(COUNT, [300, 0, 7 * 12_900 + 1]), (INSERT, [7 * 301 + 1, 85, 1])],
    ];
    for (number, pair) in pairs.into_iter().enumerate() {
        let call = pair.map(|(procedure, ids)| Call { procedure, ids });
        let [first, second] = [0, 1].map(|place| runs(&workers[place], call[place]));
        // In the last two, the one that has read commits behind the one that has written.
        let order = if number == 0 { [first, second] } else { [second, first] };
        for transaction in order {
            database.wait(transaction.commit().unwrap()).unwrap();
        }
    }
}

#[test]
fn a_standby_finds_what_was_certified_wrongly() {
    let seed = seed();
    let directory = tempfile::tempdir().unwrap();
    let node = start(recording(directory.path(), Shape::OneStream));
    let things = node.database().create_table(&definition()).unwrap();
    load(node.database(), &things, 0, 90);
    drive(node.database(), seed, 0, 50, Isolation::Serializable);
    certify_wrongly(node.database());
    drive(node.database(), seed, 10_000, 20, Isolation::Serializable);
    // What was dropped since is no reason to call anything wrong.
    let others = node.database().create_table(&other()).unwrap();
    load(node.database(), &others, 0, 20);
    node.database().drop_table(&others).unwrap();
    node.stop().unwrap();
    drop(node);
    claim_serial(directory.path());
    let options = VerifyOptions { serially: true, ..VerifyOptions::default() };
    let report = check(directory.path(), &options, Things::default()).unwrap();
    assert_eq!((report.mismatches, report.out_of_order), (0, 3), "{report:?}");

    let primary = start(recording(directory.path(), Shape::OneStream));
    let homes = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    for (home, encoding) in homes.iter().zip([Encoding::Bytes, Encoding::Inputs]) {
        let config = NodeConfig {
            join: Some(primary.address().to_owned()),
            asynchronous: true,
            encoding,
            verify_sample: 100,
            ..config(Some(home.path()))
        };
        let standby = Node::start_executing(config, Some(executors(Things::default)), |_| {}).unwrap();
        let sampled = || match standby.status().role {
            RoleStatus::Standby { sampled, .. } => sampled.unwrap(),
            other => panic!("{other:?}"),
        };
        common::wait_for("all of them are found", || sampled().out_of_order == 3);
        let status = sampled();
        assert_eq!((status.out_of_order, status.inconclusive), (3, 0), "{status:?}");
        standby.stop().unwrap();
        let (found, torn) = read_mismatches(&status.file.unwrap()).unwrap();
        assert_eq!((found.len(), torn), (3, 0));
        for found in found {
            assert!(found.why.contains("not serializable"), "{}", found.why);
            assert_ne!(found.original, found.regenerated);
        }
    }
    primary.stop().unwrap();
}

#[test]
fn what_reads_long_before_it_commits_keeps_its_bytes() {
    let directory = tempfile::tempdir().unwrap();
    let node = start(recording(directory.path(), Shape::OneStream));
    let things = node.database().create_table(&definition()).unwrap();
    load(node.database(), &things, 0, 80);
    let worker = node.database().worker().unwrap();
    let long = worker.begin(Isolation::Snapshot);
    let call = Call { procedure: INSERT, ids: [900, 4, 5] };
    act(&long, call).unwrap();
    // What it has read is overwritten, in 100 transactions of some 300 bytes.
    for number in 0..100 {
        let other = node.database().worker().unwrap();
        let call = Call { procedure: SUM, ids: [4, 5, number] };
        let run = |txn: &Transaction<'_>| {
            act(txn, call)?;
            record_as(txn, call.procedure, &call.encode());
            Ok(())
        };
        let _ = other.execute(Isolation::Snapshot, run).unwrap();
    }
    record_as(&long, call.procedure, &call.encode());
    let ticket = long.commit().unwrap();
    node.database().wait(ticket).unwrap();
    drop(worker);
    let state = hash(&node);
    node.stop().unwrap();
    for (slack, old) in [(1000, 1), (1 << 20, 0)] {
        let options = VerifyOptions { slack, ..VerifyOptions::default() };
        let report = check(directory.path(), &options, Things::default()).unwrap();
        assert_eq!((report.hash.hash, report.hash.records), state);
        assert_eq!((report.executed, report.mismatches), (101 - old, 0), "{report:?}");
        assert_eq!(report.kept.get("old-snapshot").copied().unwrap_or(0), old, "{report:?}");
    }
}

#[test]
fn it_begins_with_a_checkpoint_where_the_log_does_not_reach_back() {
    let seed = seed();
    let directory = tempfile::tempdir().unwrap();
    let mut settings = recording(directory.path(), Shape::OneStream);
    settings.checkpoint.keep_log_bytes = 0;
    settings.log.segment_bytes = 1 << 16;
    let node = start(settings);
    let things = node.database().create_table(&definition()).unwrap();
    load(node.database(), &things, 100_000, 3000);
    drive(node.database(), seed, 0, 150, Isolation::Snapshot);
    let checkpoint = node.checkpoint(CheckpointKind::Fuzzy).unwrap();
    drive(node.database(), seed, 10_000, 200, Isolation::Snapshot);
    let state = hash(&node);
    node.stop().unwrap();
    for threads in [1, 4] {
        let options = VerifyOptions { threads, ..VerifyOptions::default() };
        let report = check(directory.path(), &options, Things::default()).unwrap();
        assert_eq!(Some(report.from), checkpoint.start);
        assert_eq!((report.hash.hash, report.hash.records), state);
        assert_eq!(report.mismatches, 0, "{report:?}");
        assert!(report.executed > 200, "{report:?}");
    }
    // Without it there is nothing to begin with.
    let manifest = std::fs::read_dir(directory.path()).unwrap().map(|entry| entry.unwrap().path());
    let manifest = manifest.filter(|path| path.extension().is_some_and(|it| it == "manifest"));
    manifest.for_each(|path| std::fs::remove_file(path).unwrap());
    let error = check(directory.path(), &VerifyOptions::default(), Things::default()).unwrap_err();
    assert!(matches!(error, VerifyError::NoBase { .. }), "{error}");
}

#[test]
fn it_ends_when_cancelled_and_where_there_is_nothing() {
    let seed = seed();
    let directory = tempfile::tempdir().unwrap();
    let node: Arc<Node> = start(recording(directory.path(), Shape::OneStream));
    let things = node.database().create_table(&definition()).unwrap();
    load(node.database(), &things, 100_000, 40_000);
    drive(node.database(), seed, 0, 100, Isolation::Snapshot);
    load(node.database(), &things, 200_000, 40_000);
    // It may be at work: what is durable is read.
    let executor: Arc<dyn CommandExecutor> = Arc::new(Things::default());
    for ends_after in [0, 1, 2] {
        let mut reported = 0;
        let mut progress = |done: u64, of: u64| {
            assert!(done <= of);
            reported += 1;
            reported <= ends_after
        };
        let error = verify(directory.path(), &executor, &VerifyOptions::default(), &mut progress).unwrap_err();
        assert!(matches!(error, VerifyError::Cancelled), "{error}");
        assert_eq!(reported, ends_after + 1);
    }
    let report = verify(directory.path(), &executor, &VerifyOptions::default(), &mut |_, _| true).unwrap();
    assert_eq!((report.hash.hash, report.hash.records), hash(&node));
    node.stop().unwrap();
    let nothing = tempfile::tempdir().unwrap();
    assert!(verify(nothing.path(), &executor, &VerifyOptions::default(), &mut |_, _| true).is_err());
}
