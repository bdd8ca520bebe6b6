//! The sweep: damage on purpose is found within one pass, and nothing else ever is.
#![cfg(debug_assertions)]

mod common;

use std::{
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use common::{churn, config, definition, directories, hash, row, soon, start, wait_for};
use freshet_engine::{
    Apply, CheckpointKind, Consent, Database, IndexDefinition, Isolation, KeyPart, Node, NodeConfig, Rid, Role, Safety,
    StateHash, SweepSettings, SweepStatus, Table,
};
use freshet_storage::{Content, Guard};

/// Looks when it is asked to, and takes its time for nothing.
fn swept(config: NodeConfig) -> NodeConfig {
    NodeConfig { sweep: SweepSettings { interval_s: 0, cpu_percent: 100 }, ..config }
}

fn sweep(node: &Node) -> SweepStatus {
    node.sweep(Instant::now() + Duration::from_secs(120)).unwrap()
}

fn pair(directories: &[tempfile::TempDir]) -> [Arc<Node>; 2] {
    let of = |directory: &tempfile::TempDir| NodeConfig { ..swept(config(Some(directory.path()))) };
    let primary = start(of(&directories[0]));
    let join = Some(primary.address().to_owned());
    [Arc::clone(&primary), start(NodeConfig { join, ..of(&directories[1]) })]
}

/// A table with a thousand records, on both; as the one that is asked for has it.
fn filled(nodes: &[Arc<Node>; 2], node: &Node) -> Arc<Table> {
    let table = nodes[0].database().create_table(&definition()).unwrap();
    let end = churn(nodes[0].database(), &table, 0, 1000);
    nodes[1].wait_visible(end, soon()).unwrap();
    node.database().table("things").unwrap()
}

fn within<T>(node: &Node, table: &Table, act: impl FnOnce(&Guard<'_>, &Content) -> T) -> T {
    let participant = node.database().core().participants.join().unwrap();
    let guard = participant.pin_without_snapshot();
    act(&guard, table.content(&guard).unwrap())
}

/// The record with this id, and its row.
fn record(node: &Node, table: &Table, id: u64) -> (Rid, Vec<u8>) {
    let worker = node.database().worker().unwrap();
    let transaction = worker.begin_read_only();
    let found = transaction.get(table, 0, &id.to_be_bytes()).unwrap().unwrap();
    (found.rid, found.row.to_vec())
}

/// This number of finds, all with these words in it, and a doubt.
fn found(node: &Node, words: &str, count: u64) {
    let SweepStatus { damage, found, .. } = sweep(node);
    assert_eq!((damage, found.len() as u64), (count, count), "{words} of {:?}: {found:?}", node.role());
    assert!(found.iter().all(|found| found.contains(words) && found.contains("\"things\"")), "{words}: {found:?}");
    assert!(node.proof().reason().unwrap().contains(&found[0]));
    // It is the same damage the next time.
    assert_eq!(sweep(node).damage, count);
}

#[test]
fn a_row_a_replay_word_and_index_entries_that_are_broken_are_found_within_one_pass() {
    type Break = fn(&Guard<'_>, &Content, Rid, &[u8]) -> bool;
    let broken: [(&str, Break); 6] = [
        ("the row that it has", |guard, content, rid, _| content.break_row(guard, rid)),
        ("replay word", |_, content, rid, _| content.break_replay(rid)),
        ("\"things_id\"", |guard, content, rid, row| {
            let index = content.indexes(guard).get(0).unwrap();
            index.tree().remove(guard, &row[..8].iter().rev().copied().collect::<Vec<_>>(), rid)
        }),
        ("\"things_group\"", |guard, content, rid, row| {
            let index = content.indexes(guard).get(1).unwrap();
            index.tree().remove(guard, &row[8..16].iter().rev().copied().collect::<Vec<_>>(), rid)
        }),
        ("there is no such record", |guard, content, _, _| {
            let index = content.indexes(guard).get(1).unwrap();
            index.tree().insert(guard, &7u64.to_be_bytes(), Rid(1 << 30)).unwrap()
        }),
        ("there is no such record", |guard, content, rid, _| content.break_record(guard, rid)),
    ];
    for (number, (words, act)) in broken.into_iter().enumerate() {
        for on_standby in [false, true] {
            let directories = directories();
            let nodes = pair(&directories);
            let node = &nodes[usize::from(on_standby)];
            let table = filled(&nodes, node);
            let (rid, row) = record(node, &table, 903);
            let SweepStatus { passes, damage, last, .. } = sweep(node);
            assert_eq!((passes, damage), (1, 0));
            assert!(last.records >= 900 && last.entries >= 1800 && last.log_bytes > 10_000, "{last:?}");
            let done = within(node, &table, |guard, content| act(guard, content, rid, &row));
            // What a primary has is in no replay array, and on a standby that says where a record
            // is.
            let possible = match number {
                1 => on_standby,
                5 => !on_standby,
                _ => true,
            };
            if !possible {
                continue;
            }
            assert!(done, "{words}");
            found(node, words, if number == 5 { 2 } else { 1 });
            if number < 4 {
                assert!(sweep(node).found[0].contains(&format!("record {}", rid.0)));
            }
            assert_eq!(sweep(&nodes[usize::from(!on_standby)]).damage, 0, "the other one is sound");
            nodes.iter().rev().for_each(|node| node.stop().unwrap());
        }
    }
}

#[test]
fn a_standby_in_doubt_is_not_promoted_has_no_vote_and_is_whole_again_after_a_restart() {
    let directories = directories();
    let nodes = pair(&directories);
    let standby = &nodes[1];
    let table = filled(&nodes, standby);
    let (rid, before) = record(standby, &table, 500);
    // Somebody has to read it before a version is in memory.
    assert!(within(standby, &table, |guard, content| content.break_row(guard, rid)));
    found(standby, "the row that it has", 1);
    let refused = standby.promote(Consent::Nothing).unwrap_err().to_string();
    assert!(refused.contains("its state is in doubt") && standby.role() == Role::Standby, "{refused}");
    // No checkpoint of it replaces the last good one.
    let refused = standby.checkpoint(CheckpointKind::Fuzzy).unwrap_err();
    assert!(refused.contains("in doubt"), "{refused}");
    let join = Some(nodes[0].address().to_owned());
    standby.stop().unwrap();
    let [primary, standby] = nodes;
    drop((standby, table));
    let again = start(NodeConfig { join, ..swept(config(Some(directories[1].path()))) });
    let end = churn(primary.database(), &primary.database().table("things").unwrap(), 2000, 2100);
    again.wait_visible(end, soon()).unwrap();
    let table = again.database().table("things").unwrap();
    assert_eq!(record(&again, &table, 500), (rid, before));
    assert_eq!((sweep(&again).damage, again.proof().reason()), (0, None));
    again.stop().unwrap();
    primary.stop().unwrap();
}

#[test]
fn a_checkpoint_takes_no_damaged_row() {
    let directories = directories();
    let node = start(swept(config(Some(directories[0].path()))));
    let table = node.database().create_table(&definition()).unwrap();
    churn(node.database(), &table, 0, 100);
    node.checkpoint(CheckpointKind::Fuzzy).unwrap();
    let (rid, before) = record(&node, &table, 50);
    assert!(within(&node, &table, |guard, content| content.break_row(guard, rid)));
    let refused = node.checkpoint(CheckpointKind::Fuzzy).unwrap_err();
    assert!(refused.contains(&format!("record {} is damaged", rid.0)), "{refused}");
    assert!(node.proof().reason().is_some());
    node.stop().unwrap();
    drop((node, table));
    let again = start(swept(config(Some(directories[0].path()))));
    let table = again.database().table("things").unwrap();
    assert_eq!(record(&again, &table, 50), (rid, before));
    again.stop().unwrap();
}

/// Small segments, and a buffer that does not hold all of the log.
fn on_disk(directory: &Path, interval_s: u64) -> NodeConfig {
    let mut config = swept(config(Some(directory)));
    (config.log.buffer_bytes, config.log.segment_bytes) = (128 << 10, 64 << 10);
    // Once the damaged file stays, once it goes with the checkpoint.
    let keep_log_bytes = if interval_s == 0 { 1 << 30 } else { 0 };
    (config.checkpoint.interval_s, config.checkpoint.keep_log_bytes) = (interval_s, keep_log_bytes);
    config
}

/// Changes many bytes in the first file of a node's log.
fn damage_log(directory: &Path) {
    let files = std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    let file = files.filter(|path| path.extension().is_some_and(|it| it == "segment")).min().unwrap();
    let mut bytes = std::fs::read(&file).unwrap();
    bytes[(16 << 10)..(40 << 10)].chunks_mut(512).for_each(|piece| piece[0] ^= 0x40);
    std::fs::write(&file, bytes).unwrap();
}

#[test]
fn damage_in_a_file_of_the_log_is_no_doubt_and_ends_with_a_checkpoint() {
    for interval_s in [0, 3600] {
        let directory = tempfile::tempdir().unwrap();
        let node = start(on_disk(directory.path(), interval_s));
        let table = node.database().create_table(&definition()).unwrap();
        churn(node.database(), &table, 0, 3000);
        assert_eq!(sweep(&node).log_damage, []);
        damage_log(directory.path());
        let SweepStatus { log_damage, damage, last, .. } = sweep(&node);
        assert!(log_damage.len() > 1 && last.log_bytes > 128 << 10, "{log_damage:?}, {last:?}");
        assert_eq!((damage, node.proof().reason()), (0, None), "memory is whole");
        // The sweep asks for a checkpoint, unless they are switched off.
        match interval_s {
            0 => drop(node.checkpoint(CheckpointKind::Fuzzy).unwrap()),
            _ => wait_for("a checkpoint", || node.checkpoint_status().unwrap().installed > 0),
        }
        assert_eq!(sweep(&node).log_damage, []);
        churn(node.database(), &table, 3000, 3100);
        let before = hash(&node);
        node.stop().unwrap();
        drop((node, table));
        let again = start(on_disk(directory.path(), 0));
        let SweepStatus { damage, log_damage, .. } = sweep(&again);
        assert_eq!((hash(&again), damage, log_damage), (before, 0, vec![]));
        again.stop().unwrap();
    }
}

/// What a standby has not read yet is only in its log: that is damage of its state, and readers get
/// no row from there.
#[test]
fn a_row_that_is_only_in_the_damaged_log_is_damage() {
    let directories = directories();
    let of = |number: usize, join: Option<String>| {
        let shape = on_disk(directories[number].path(), 0);
        start(NodeConfig { join, apply: Apply::Fresh, ..shape })
    };
    let primary = of(0, None);
    let standby = of(1, Some(primary.address().to_owned()));
    let table = primary.database().create_table(&definition()).unwrap();
    let end = churn(primary.database(), &table, 0, 3000);
    standby.wait_visible(end, soon()).unwrap();
    damage_log(directories[1].path());
    let SweepStatus { damage, found, log_damage, .. } = sweep(&standby);
    assert!(damage > 0 && !log_damage.is_empty(), "{damage}, {log_damage:?}");
    assert!(found.iter().all(|found| found.contains("its row is only in the log")), "{found:?}");
    assert!(standby.proof().reason().unwrap().contains("its row is only in the log"));
    assert!(standby.checkpoint(CheckpointKind::Fuzzy).is_err());
    let [here, there] = [&primary, &standby].map(|node| {
        let worker = node.database().worker().unwrap();
        let (table, transaction) = (node.database().table("things").unwrap(), worker.begin_read_only());
        let get = |id: u64| {
            let found = transaction.get(&table, 0, &id.to_be_bytes());
            found.map(|found| found.map(|found| found.row.to_vec())).map_err(|cause| cause.to_string())
        };
        (0..1000).map(get).collect::<Vec<_>>()
    });
    let (refused, read): (Vec<_>, Vec<_>) = here.into_iter().zip(there).partition(|(_, there)| there.is_err());
    assert!(!refused.is_empty() && read.iter().all(|(here, there)| here == there), "{refused:?}");
    assert_eq!((sweep(&primary).damage, primary.proof().reason()), (0, None));
    standby.stop().unwrap();
    primary.stop().unwrap();
}

/// Numbers that follow from a seed.
struct Numbers(u64);

impl Numbers {
    fn next(&mut self, below: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % below
    }
}

/// Ids that rows have: few, so that record ids are used again and again.
const IDS: u64 = 300;

/// One transaction of everything that there is. It may fail, and is taken back now and then.
fn some_writes(database: &Database, numbers: &mut Numbers) {
    let (Ok(worker), Some(table)) = (database.worker(), database.table("things")) else { return };
    let transaction = worker.begin(if numbers.next(2) == 0 { Isolation::Snapshot } else { Isolation::Serializable });
    let table = if numbers.next(8) == 0 { database.table("others").unwrap_or(table) } else { table };
    let count = if numbers.next(50) == 0 { 200 } else { 1 + numbers.next(5) };
    for _ in 0..count {
        let savepoint = (numbers.next(6) == 0).then(|| transaction.savepoint());
        let id = numbers.next(IDS);
        let new = row(id, numbers.next(5), numbers.next(1000));
        let Ok(found) = transaction.get(&table, 0, &id.to_be_bytes()).map(|found| found.map(|found| found.rid)) else {
            return;
        };
        let written = match (found, numbers.next(4)) {
            (None, _) => transaction.insert(&table, &new).map(drop),
            (Some(rid), 0) => transaction.delete(&table, rid),
            (Some(rid), _) => transaction.update(&table, rid, &new).map(drop),
        };
        match savepoint {
            Some(savepoint) if numbers.next(2) == 0 => transaction.roll_back_to(&savepoint),
            _ if written.is_err() => return,
            _ => {}
        }
    }
    match numbers.next(6) {
        0 => drop(transaction),
        _ => drop(transaction.commit()),
    }
    worker.collect_garbage();
}

/// A reader that keeps its snapshot for a while, and finds the same as at first.
fn long_reader(database: &Database, pause: Duration) {
    let Ok(worker) = database.worker() else { return };
    let transaction = worker.begin_read_only();
    let seen = StateHash::of(&transaction);
    std::thread::sleep(pause);
    if let (Ok(seen), Ok(again)) = (seen, StateHash::of(&transaction)) {
        assert_eq!(seen, again);
    }
}

/// Indexes and tables come and go.
fn some_definitions(database: &Database, turn: u64) {
    if let Some(table) = database.table("things") {
        let index = IndexDefinition::new(&format!("value{turn}"), false, &[KeyPart::unsigned(16, 8)]);
        let built = database.begin_index(&table, &index, &|| false).and_then(|build| build.finish(&|| false));
        if let Ok(number) = built {
            let _ = database.drop_index(&table, number);
        }
    }
    let others = freshet_engine::TableDefinition::new("others", definition().indexes);
    match database.table("others") {
        Some(table) => drop(database.drop_table(&table)),
        None => drop(database.create_table(&others)),
    }
}

/// Everything at once on the nodes, the first one being the primary, while all are swept.
fn load(nodes: &[&Arc<Node>], seed: u64, transactions: u64) {
    let (over, passes) = (AtomicBool::new(false), AtomicU64::new(0));
    let (primary, over, passes) = (nodes[0], &over, &passes);
    std::thread::scope(|scope| {
        let continues = || !over.load(Ordering::SeqCst);
        let writer = |number| {
            let mut numbers = Numbers(seed * 64 + number + 1);
            for _ in 0..transactions {
                some_writes(primary.database(), &mut numbers);
            }
        };
        let writers: Vec<_> = (0..3).map(|number| scope.spawn(move || writer(number))).collect();
        for node in nodes {
            scope.spawn(move || {
                while continues() {
                    let SweepStatus { damage, found, .. } = sweep(node);
                    assert_eq!(damage, 0, "seed {seed}, {:?}: {found:?}", node.role());
                    passes.fetch_add(1, Ordering::SeqCst);
                }
            });
            scope.spawn(move || {
                while continues() {
                    long_reader(node.database(), Duration::from_millis(30));
                    let _ = node.checkpoint(CheckpointKind::Fuzzy);
                }
            });
        }
        scope.spawn(move || {
            for turn in 0.. {
                some_definitions(primary.database(), turn + seed * 1000);
                if !continues() {
                    return;
                }
            }
        });
        let ended: Vec<_> = writers.into_iter().map(|writer| writer.join()).collect();
        // Whatever has become of them, the others end.
        over.store(true, Ordering::SeqCst);
        ended.into_iter().for_each(|ended| ended.unwrap());
    });
    assert!(passes.load(Ordering::SeqCst) > 1, "seed {seed}");
}

fn sound(node: &Node, seed: u64) {
    let SweepStatus { damage, found, unreadable, .. } = sweep(node);
    assert_eq!((damage, unreadable), (0, None), "seed {seed}, {:?}: {found:?}", node.role());
}

/// A primary and a standby under load, a failover, a restart of both.
fn one_life(seed: u64) {
    let shape = common::SHAPES[seed as usize % common::SHAPES.len()];
    let directories = directories();
    let of = |number: usize, join: Option<String>| {
        let config = shape.of_node(number + 1, config(Some(directories[number].path())));
        let apply = if seed % 4 == 3 { Apply::Full } else { Apply::Fresh };
        let mut config = NodeConfig { safety: Safety::TwoSafe, join, apply, ..swept(config) };
        config.checkpoint.keep_log_bytes = 0;
        start(config)
    };
    let first = of(0, None);
    let second = of(1, Some(first.address().to_owned()));
    first.database().create_table(&definition()).unwrap();
    load(&[&first, &second], seed, 200);
    // The end of the log is at the standby.
    let end = churn(first.database(), &first.database().table("things").unwrap(), 10_000, 10_050);
    second.wait_visible(end, soon()).unwrap();
    sound(&second, seed);
    first.stop().unwrap();
    drop(first);
    second.promote(Consent::Loss).unwrap();
    sound(&second, seed);
    let first = of(0, Some(second.address().to_owned()));
    load(&[&second, &first], seed + 7, 150);
    sound(&first, seed);
    first.stop().unwrap();
    second.stop().unwrap();
    drop((first, second));
    // What was there is read from checkpoint and log.
    let alone =
        start(swept(NodeConfig { force_primary: true, ..shape.of_node(2, config(Some(directories[1].path()))) }));
    sound(&alone, seed);
    load(&[&alone], seed + 13, 100);
    sound(&alone, seed);
    alone.stop().unwrap();
}

/// FRESHET_SEED begins with that one, FRESHET_ROUNDS says how many run.
#[test]
fn nothing_is_found_under_load_with_definitions_failovers_and_restarts() {
    let number = |name: &str, default| std::env::var(name).map_or(default, |text| text.parse().unwrap());
    let first: u64 = number("FRESHET_SEED", 1);
    for seed in first..first + number("FRESHET_ROUNDS", 2) {
        println!("FRESHET_SEED={seed}");
        one_life(seed);
    }
}
