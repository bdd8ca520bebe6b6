//! What tests of whole nodes share.
#![allow(dead_code, reason = "not every test needs all of it")]

pub mod trio;

use std::{
    fs,
    path::Path,
    sync::Arc,
    time::{Duration, Instant},
};

use clap::ValueEnum;
use freshet_cluster::in_sync::Holder;
use freshet_engine::{
    Apply, Database, DivideBy, Domain, FabricEncryption, FabricKind, Failover, GroupCommit, IndexDefinition, Isolation,
    KeyPart, Lsn, Node, NodeConfig, PrimaryStatus, Safety, StateHash, Table, TableDefinition, node::RoleStatus,
};

pub fn definition() -> TableDefinition {
    TableDefinition::new(
        "things",
        vec![
            IndexDefinition::new("things_id", true, &[KeyPart::unsigned(0, 8)]),
            IndexDefinition::new("things_group", false, &[KeyPart::unsigned(8, 8)]),
        ],
    )
}

pub fn row(id: u64, group: u64, value: u64) -> Vec<u8> {
    [id, group, value].iter().flat_map(|column| column.to_le_bytes()).collect()
}

/// FRESHET_TEST_APPLY=full has all standbys replay fully.
pub fn config(directory: Option<&Path>) -> NodeConfig {
    let mut config = NodeConfig {
        directory: directory.map(Path::to_owned).unwrap_or_default(),
        domain: if directory.is_some() { Domain::File } else { Domain::None },
        // Some nodes are started again where they were.
        listen: freshet_testing::ports::reserve().unwrap(),
        replay_threads: 2,
        apply: std::env::var("FRESHET_TEST_APPLY")
            .map_or(Apply::Fresh, |apply| ValueEnum::from_str(&apply, false).unwrap()),
        new_cluster: true,
        // Tests promote nodes themselves, but for those that say otherwise.
        failover: Failover::Manual,
        ..NodeConfig::default()
    };
    config.log.buffer_bytes = 4 << 20;
    config.log.segment_bytes = 1 << 20;
    // All tests with standbys compare states.
    config.state_proof.interval_ms = 10;
    config
}

/// How the nodes of a cluster keep their logs; each in its own way.
#[derive(Clone, Copy, Debug)]
pub enum Shape {
    OneStream,
    ThreeStreams,
    /// Divided by pages, and the standbys have fewer streams than what they receive.
    Pages,
    Epochs,
    /// The primary's buffer is in mapped memory.
    Persistent,
}

pub const SHAPES: [Shape; 5] = [Shape::OneStream, Shape::ThreeStreams, Shape::Pages, Shape::Epochs, Shape::Persistent];

impl Shape {
    pub fn of_node(self, n: usize, config: NodeConfig) -> NodeConfig {
        let mut config = config;
        if matches!(self, Self::Persistent) {
            config.domain = Domain::Pmem;
        }
        // Some clusters use TCP, sealed or not, others shared memory; some compress.
        config.fabric.kind = match self {
            Self::OneStream | Self::Epochs => FabricKind::Tcp,
            _ => FabricKind::Shm,
        };
        if matches!(self, Self::Epochs) {
            config.fabric.encryption = FabricEncryption::None;
        }
        config.fabric.compress = matches!(self, Self::ThreeStreams);
        let log = &mut config.log;
        match self {
            Self::OneStream => {}
            Self::ThreeStreams => log.streams = 3,
            Self::Pages => {
                log.streams = 4 - n;
                log.divide_by = DivideBy::Page;
                log.page_records = 16;
            }
            Self::Epochs => {
                log.streams = n + 1;
                log.group_commit = GroupCommit::Epoch;
                log.epoch_ms = 2;
            }
            Self::Persistent => {
                log.streams = 2;
                log.group_commit = GroupCommit::Passive;
            }
        }
        config
    }
}

pub fn start(config: NodeConfig) -> Arc<Node> {
    // What a test puts into a node's directory is to be as private as what the node has there.
    freshet_base::private::umask();
    Node::start(config, |_| {}).unwrap()
}

/// Inserts, updates, deletes and moves records; waits for the last commit and returns its end.
pub fn churn(database: &Database, table: &Table, from: u64, to: u64) -> Lsn {
    let workers: Vec<_> = (0..3).map(|_| database.worker().unwrap()).collect();
    let mut last = None;
    for id in from..to {
        let ((), ticket) = workers[id as usize % workers.len()]
            .execute(Isolation::Serializable, |txn| {
                txn.insert(table, &row(id, id % 7, 0))?;
                if id >= from + 10 {
                    let old = txn.get(table, 0, &(id - 10).to_be_bytes())?.expect("inserted before");
                    match id % 3 {
                        0 => drop(txn.update(table, old.rid, &row(id - 10, (id - 10) % 7, id))?),
                        1 => drop(txn.update(table, old.rid, &row(id - 10, id + 1000, id))?),
                        _ if id % 2 == 0 => txn.delete(table, old.rid)?,
                        _ => {}
                    }
                    if id % 3 == 2 && id % 2 == 0 {
                        txn.insert(table, &row(id - 10, 5, id))?;
                        let again = txn.get(table, 0, &(id - 10).to_be_bytes())?.expect("just inserted");
                        if id % 4 == 0 {
                            txn.update(table, again.rid, &row(id - 10, 5, id + 1))?;
                        }
                    }
                }
                Ok(())
            })
            .unwrap();
        last = Some(ticket);
    }
    let ticket = last.expect("something was done");
    database.wait(ticket).unwrap();
    ticket.until
}

/// Looks into a table.
pub fn look<T>(database: &Database, table: &Table, look: impl FnOnce(&freshet_storage::Content) -> T) -> T {
    let participant = database.core().participants.join().unwrap();
    let guard = participant.pin_without_snapshot();
    look(table.content(&guard).expect("it is not dropped"))
}

/// The first of a range of record ids that nobody else has.
pub fn next_rid(database: &Database, table: &Table) -> u64 {
    look(database, table, |content| content.take_rids().0.0)
}

pub fn hash(node: &Node) -> (u64, u64) {
    assert_eq!(node.state_proof().differs, None);
    let worker = node.database().worker().unwrap();
    let txn = worker.begin_read_only();
    let hash = StateHash::of(&txn).unwrap();
    (hash.hash, hash.records)
}

/// When a test gives up, also on a machine that is busy with other things; no test waits for what
/// does not come.
pub fn soon() -> Option<Instant> {
    Some(Instant::now() + Duration::from_secs(60))
}

/// Blocks until `reached`, which nobody tells of.
pub fn wait_for(what: &str, reached: impl Fn() -> bool) {
    let until = soon().unwrap();
    while !reached() {
        assert!(Instant::now() < until, "{what} has not come about");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Whether the newest recorded set names this many nodes, and is known to be in effect.
pub fn is_named_by(primary: &Node, members: usize) -> bool {
    primary.status().in_sync_set.is_some_and(|set| set.members.len() == members && set.before.is_empty())
}

/// A cluster of three: its primary commits something, all nodes show that, and all are named.
pub fn filled(primary: Arc<Node>, standbys: [Arc<Node>; 2]) -> [Arc<Node>; 3] {
    let table = primary.database().create_table(&definition()).unwrap();
    let end = churn(primary.database(), &table, 0, 1000);
    for node in &standbys {
        node.wait_visible(end, soon()).unwrap();
    }
    all_are_named(&primary);
    let [second, third] = standbys;
    [primary, second, third]
}

/// Returns once all three may stand for promotion: what they show says nothing of the recorded set.
#[track_caller]
pub fn all_are_named(primary: &Node) {
    wait_for("all are named", || is_named_by(primary, 3));
}

/// How it stands with the standbys of a primary.
#[track_caller]
pub fn shipping(primary: &Node) -> PrimaryStatus {
    match primary.status().role {
        RoleStatus::Primary { shipping, .. } => *shipping,
        role => panic!("{role:?}"),
    }
}

/// The same, and `node` with what it holds now: it had something else before.
#[track_caller]
pub fn all_are_named_as(primary: &Node, node: &Node) {
    wait_for("all are named", || is_named(primary, node) && is_named_by(primary, 3));
}

fn is_named(primary: &Node, node: &Node) -> bool {
    let holder = node.status().incarnation.map(|incarnation| Holder::new(node.id(), incarnation));
    primary.status().in_sync_set.is_some_and(|set| holder.is_some_and(|holder| set.members.contains(&holder)))
}

/// A node of a cluster of three whose commits two of them hold.
pub fn one_of_three(directory: &Path, n: usize, shape: Shape, apply: Apply) -> NodeConfig {
    let config = NodeConfig { safety: Safety::Quorum(2), apply, ..config(Some(directory)) };
    shape.of_node(n, config)
}

/// One for each node of a cluster of three.
pub fn directories() -> Vec<tempfile::TempDir> {
    (0..3).map(|_| tempfile::tempdir().unwrap()).collect()
}

/// The names in a directory, in order.
pub fn names(directory: &Path) -> Vec<String> {
    let mut names: Vec<_> =
        fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}
