//! Mirrors as nodes of a cluster.

mod common;

use std::{
    ffi::OsString,
    fs,
    path::{Path, PathBuf},
    sync::Arc,
};

use common::{all_are_named, all_are_named_as, churn, config, definition, directories, hash, soon, start, wait_for};
use freshet_engine::{
    CheckpointKind, Consent, Domain, FabricKind, IndexDefinition, Isolation, Lsn, MirrorSettings, Node, NodeConfig,
    Role, Safety, Table, TableDefinition, node::RoleStatus,
};
use freshet_replication::status::MirrorStatus;
use freshet_testing::copy;

const FABRICS: [FabricKind; 2] = [FabricKind::Tcp, FabricKind::Shm];

/// A cluster of three, in which the third is a mirror.
fn cluster(directories: &[tempfile::TempDir], fabric: FabricKind, safety: Safety) -> impl Fn(usize) -> NodeConfig {
    let paths: Vec<_> = directories.iter().map(|directory| directory.path().to_owned()).collect();
    move |n| {
        let mut config = NodeConfig { safety, ..config(Some(&paths[n])) };
        config.fabric.kind = fabric;
        if n == 2 {
            config.mirror = MirrorSettings {
                bytes: 512 << 20,
                undo_bytes: 4 << 20,
                directory_bytes: 1 << 20,
                ..MirrorSettings::default()
            };
        }
        config
    }
}

fn is_whole(mirror: &Node) -> bool {
    matches!(mirror.status().role, RoleStatus::Mirror { own } if own.whole)
}

fn joining(config: NodeConfig, primary: &Node) -> Arc<Node> {
    start(NodeConfig { join: Some(primary.address().into()), ..config })
}

#[test]
fn commits_wait_for_a_mirror_and_it_serves_no_readers() {
    for fabric in FABRICS {
        let directories = directories();
        let cluster = cluster(&directories, fabric, Safety::VerySafe);
        let primary = start(cluster(0));
        let standby = joining(cluster(1), &primary);
        let mirror = joining(cluster(2), &primary);
        all_are_named(&primary);
        let table = primary.database().create_table(&definition()).unwrap().clone();
        let end = churn(primary.database(), &table, 0, 2000);
        let RoleStatus::Primary { shipping, .. } = primary.status().role else { panic!("it is the primary") };
        let fed = shipping.standbys.iter().find(|standby| standby.node == mirror.id()).unwrap();
        assert!(mirror.role() == Role::Mirror && fed.mirror && fed.in_sync && fed.acked >= end, "{fed:?}");
        assert_eq!(shipping.standbys.iter().filter(|standby| standby.mirror).count(), 1);
        wait_for("the mirror hears how far it is", || match mirror.status().role {
            RoleStatus::Mirror { own } => own.whole && own.end >= end && own.mark >= end,
            role => panic!("{role:?}"),
        });
        // What a failover would make of its memory.
        let rehearsed = |at| mirror.rehearsed(at, soon().unwrap()).unwrap().unwrap();
        let (all, before) = (rehearsed(Some(end)), rehearsed(None));
        assert_eq!([(all.hash, all.records), (before.hash, before.records)], [hash(&primary); 2]);
        assert!(standby.rehearsed(None, soon().unwrap()).is_none());
        let mut served = mirror.served_elsewhere().unwrap();
        served.sort();
        let mut serving = vec![primary.address().to_owned(), standby.address().to_owned()];
        serving.sort();
        assert_eq!((served, primary.served_elsewhere(), standby.served_elsewhere()), (serving, None, None));
        // Without it nothing commits.
        mirror.stop().unwrap();
        drop(mirror);
        let worker = primary.database().worker().unwrap();
        let inserted = worker
            .execute(freshet_engine::Isolation::Snapshot, |txn| Ok(txn.insert(&table, &common::row(1 << 40, 0, 0))?));
        let (_, ticket) = inserted.unwrap();
        standby.wait_visible(end, soon()).unwrap();
        assert_eq!(primary.database().outcome(ticket), None);
        let mirror = joining(cluster(2), &primary);
        primary.wait(ticket, soon()).unwrap();
        for node in [primary, standby, mirror] {
            node.stop().unwrap();
        }
    }
}

/// It is heard, and follows the next primary, which may have begun below what it holds.
#[test]
fn a_mirror_outlives_its_primary() {
    for fabric in FABRICS {
        let directories = directories();
        let cluster = cluster(&directories, fabric, Safety::Quorum(2));
        let old = start(cluster(0));
        let second = joining(cluster(1), &old);
        let mirror = joining(cluster(2), &old);
        let table = old.database().create_table(&definition()).unwrap().clone();
        let end = churn(old.database(), &table, 0, 2000);
        second.wait_visible(end, soon()).unwrap();
        wait_for("the mirror is whole", || is_whole(&mirror));
        all_are_named(&old);
        let before = hash(&old);
        old.stop().unwrap();
        drop(old);
        second.promote(Consent::Nothing).unwrap();
        assert_eq!(hash(&second), before);
        let table = second.database().table("things").unwrap().clone();
        // One other is enough, and there is no other.
        churn(second.database(), &table, 10_000, 11_000);
        let before = hash(&second);
        second.stop().unwrap();
        drop(second);
        // Nothing but a mirror is left of what the two had.
        mirror.promote(Consent::Loss).unwrap();
        assert_eq!(hash(&mirror), before);
        mirror.stop().unwrap();
    }
}

/// Its memory becomes a database; others continue from its checkpoint.
#[test]
fn a_mirror_takes_over() {
    for fabric in FABRICS {
        let directories = directories();
        let of = cluster(&directories, fabric, Safety::Quorum(2));
        let cluster = |n: usize| {
            let mut config = NodeConfig { replay_threads: 3, ..of(n) };
            config.checkpoint.dir = ["one", "two"].map(|device| config.directory.join(device)).into();
            config
        };
        let old = start(cluster(0));
        let mirror = joining(cluster(2), &old);
        let dropped = TableDefinition { name: "dropped".into(), ..definition() };
        let dropped = old.database().create_table(&dropped).unwrap().clone();
        churn(old.database(), &dropped, 0, 500);
        old.database().drop_table(&dropped).unwrap();
        let table = old.database().create_table(&definition()).unwrap().clone();
        let end = churn(old.database(), &table, 0, 3000);
        wait_for("the mirror is whole", || is_whole(&mirror));
        let second = joining(cluster(1), &old);
        second.wait_visible(end, soon()).unwrap();
        wait_for("no commit needs the one that stops", || common::is_named_by(&old, 3));
        let before = hash(&old);
        old.stop().unwrap();
        drop(old);
        let promotion = mirror.promote(Consent::Nothing).unwrap();
        assert_eq!((mirror.role(), hash(&mirror)), (Role::Primary, before));
        assert!(promotion.at >= end && mirror.served_elsewhere().is_none());
        let table = mirror.database().table("things").unwrap().clone();
        let end = churn(mirror.database(), &table, 10_000, 12_000);
        second.wait_visible(end, soon()).unwrap();
        assert_eq!(hash(&second), hash(&mirror));
        let checkpoint = mirror.checkpoint_status().unwrap();
        let there = (checkpoint.start, checkpoint.end, checkpoint.took, checkpoint.failure);
        assert_eq!(there, (Some(promotion.at), Some(promotion.at), None, None), "it was written in passing");
        // The former primary comes back as an empty node, and the new one from its own directory.
        let empty = tempfile::tempdir().unwrap();
        let back = joining(NodeConfig { directory: empty.path().to_owned(), ..of(0) }, &mirror);
        back.wait_visible(end, soon()).unwrap();
        assert_eq!(hash(&back), hash(&mirror));
        let before = hash(&mirror);
        mirror.stop().unwrap();
        drop(mirror);
        let mirror = start(NodeConfig { join: Some(second.address().into()), ..cluster(2) });
        assert_eq!((mirror.role(), hash(&mirror)), (Role::Primary, before), "it has a log now, and is no mirror");
        for node in [mirror, second, back] {
            node.stop().unwrap();
        }
    }
}

/// Inserts rows until the term ends; returns the ids of those that clients were told to be
/// committed.
fn insert(primary: &Node, table: &Table, from: u64) -> Vec<u64> {
    let worker = primary.database().worker().unwrap();
    let mut acknowledged = Vec::new();
    for id in from.. {
        let inserted = worker.execute(Isolation::Snapshot, |txn| Ok(txn.insert(table, &common::row(id, id % 7, 0))?));
        match inserted.map(|(_, ticket)| primary.wait(ticket, soon())) {
            Ok(Ok(())) => acknowledged.push(id),
            _ => return acknowledged,
        }
    }
    acknowledged
}

/// The mirror gets what it lacks from the primary, which follows it then: its log is continued.
#[test]
fn a_mirror_takes_over_while_its_primary_works() {
    for (fabric, safety) in FABRICS.into_iter().zip([Safety::Quorum(2), Safety::TwoSafe]) {
        let directories = directories();
        let cluster = cluster(&directories, fabric, safety);
        let old = start(cluster(0));
        let mirror = joining(cluster(2), &old);
        let table = old.database().create_table(&definition()).unwrap().clone();
        churn(old.database(), &table, 0, 2000);
        wait_for("the mirror is whole", || is_whole(&mirror));
        let begun = old.log().unwrap().filled();
        let (promotion, acknowledged) = std::thread::scope(|scope| {
            let clients: Vec<_> = (1..4)
                .map(|n| {
                    scope.spawn({
                        let (old, table) = (&old, &table);
                        move || insert(old, table, n << 40)
                    })
                })
                .collect();
            wait_for("it is under load", || own(&mirror).end > begun.plus(100_000));
            let promotion = mirror.promote(Consent::Nothing).unwrap();
            (promotion, clients.into_iter().flat_map(|client| client.join().unwrap()).collect::<Vec<_>>())
        });
        assert!(!acknowledged.is_empty() && promotion.term.0 == 2, "{} commits, {promotion:?}", acknowledged.len());
        let table = mirror.database().table("things").unwrap().clone();
        let worker = mirror.database().worker().unwrap();
        let txn = worker.begin_read_only();
        for id in acknowledged {
            assert!(txn.get(&table, 0, &id.to_be_bytes()).unwrap().is_some(), "{id} was committed");
        }
        drop(txn);
        wait_for("the old primary is to follow", || old.is_succeeded());
        old.stop().unwrap();
        drop(old);
        let back = joining(cluster(0), &mirror);
        let end = churn(mirror.database(), &table, 10_000, 11_000);
        back.wait_visible(end, soon()).unwrap();
        assert_eq!(hash(&back), hash(&mirror));
        for node in [mirror, back] {
            node.stop().unwrap();
        }
    }
}

/// What the mirror has fetched, it passes on.
#[test]
fn a_standby_that_has_more_than_a_mirror_had_follows_it() {
    for (fabric, streams) in FABRICS.into_iter().zip([1, 2]) {
        let directories = directories();
        let cluster = cluster(&directories, fabric, Safety::Quorum(2));
        let cluster = |n: usize| {
            let mut config = cluster(n);
            config.log.streams = streams;
            config
        };
        let old = start(cluster(0));
        let standby = joining(cluster(1), &old);
        let mirror = joining(cluster(2), &old);
        let table = old.database().create_table(&definition()).unwrap().clone();
        churn(old.database(), &table, 0, 1000);
        wait_for("the mirror is whole", || is_whole(&mirror));
        all_are_named(&old);
        // The primary finds both again soon, or does not.
        mirror.follow("127.0.0.1:1");
        let end = churn(old.database(), &table, 10_000, 10_500);
        standby.wait_visible(end, soon()).unwrap();
        standby.follow("127.0.0.1:1");
        let worker = old.database().worker().unwrap();
        for id in 0..100 {
            let row = common::row((1 << 40) + id, 0, 0);
            let _ = worker.execute(Isolation::Snapshot, |txn| Ok(txn.insert(&table, &row)?)).unwrap();
        }
        drop(worker);
        let promotion = mirror.promote(Consent::Nothing).unwrap();
        let (begin, _) = mirror.log().unwrap().store().extent().unwrap();
        println!("the log begins at {begin}, the term at {}, the standby ends at {}", promotion.at, ends(&standby));
        assert!(begin <= promotion.at);
        if begin <= ends(&standby) {
            let table = mirror.database().table("things").unwrap().clone();
            standby.follow(mirror.address());
            let end = churn(mirror.database(), &table, 20_000, 20_500);
            standby.wait_visible(end, soon()).unwrap();
            assert_eq!(hash(&standby), hash(&mirror));
        }
        old.stop().unwrap();
        // It restarts with what it has.
        let before = hash(&mirror);
        let listen = mirror.address().parse().unwrap();
        mirror.stop().unwrap();
        drop(mirror);
        let mirror = start(NodeConfig { listen, join: Some(standby.address().into()), ..cluster(2) });
        assert_eq!((mirror.role(), hash(&mirror)), (Role::Primary, before));
        for node in [mirror, standby] {
            node.stop().unwrap();
        }
    }
}

/// Where a standby's log ends on its disk.
fn ends(standby: &Node) -> Lsn {
    match standby.status().role {
        RoleStatus::Standby { own, .. } => own.persisted,
        role => panic!("{role:?}"),
    }
}

/// Like [`cluster`], but the log goes with each checkpoint, and checkpoints are written when they
/// are asked for.
fn forgetful(directories: &[tempfile::TempDir], fabric: FabricKind) -> impl Fn(usize) -> NodeConfig {
    let cluster = cluster(directories, fabric, Safety::Quorum(2));
    move |n| {
        let mut config = cluster(n);
        config.checkpoint.interval_s = 0;
        config.checkpoint.keep_log_bytes = 0;
        config.checkpoint.cpu_percent = 100;
        config.log.segment_bytes = 64 << 10;
        config
    }
}

/// Forgets the log's beginning; returns where the checkpoint ends.
fn forget(primary: &Node) -> Lsn {
    let end = primary.checkpoint(CheckpointKind::Fuzzy).unwrap().end.unwrap();
    let (begin, _) = primary.log().unwrap().store().extent().unwrap();
    assert!(begin > Lsn::ZERO, "there is something to forget");
    end
}

fn own(mirror: &Node) -> MirrorStatus {
    match mirror.status().role {
        RoleStatus::Mirror { own } => *own,
        role => panic!("{role:?}"),
    }
}

/// All of the three hold the same.
#[track_caller]
fn the_mirror_takes_over(primary: Arc<Node>, standby: &Node, mirror: &Node, table: &Table) {
    let end = churn(primary.database(), table, 900_000, 900_100);
    standby.wait_visible(end, soon()).unwrap();
    wait_for("the mirror is whole", || is_whole(mirror) && own(mirror).end >= end);
    all_are_named_as(&primary, mirror);
    let before = hash(&primary);
    primary.stop().unwrap();
    drop(primary);
    assert_eq!(hash(standby), before);
    mirror.promote(Consent::Nothing).unwrap();
    assert_eq!(hash(mirror), before);
}

/// It begins from a checkpoint, while the primary commits.
#[test]
fn a_mirror_joins_when_the_logs_beginning_is_gone() {
    for fabric in FABRICS {
        let directories = directories();
        let cluster = forgetful(&directories, fabric);
        let primary = start(cluster(0));
        let standby = joining(cluster(1), &primary);
        let table = primary.database().create_table(&definition()).unwrap().clone();
        churn(primary.database(), &table, 0, 6000);
        let end = forget(&primary);
        let mirror = std::thread::scope(|scope| {
            scope.spawn(|| churn(primary.database(), &table, 10_000, 12_000));
            joining(cluster(2), &primary)
        });
        wait_for("the mirror is whole", || is_whole(&mirror));
        assert_eq!(own(&mirror).floor, end);
        the_mirror_takes_over(primary, &standby, &mirror, &table);
        mirror.stop().unwrap();
        standby.stop().unwrap();
    }
}

/// The mirror dies on the way, or its primary does.
#[test]
fn a_mirror_begins_from_a_checkpoint_though_nodes_die_on_the_way() {
    let directories = directories();
    let cluster = forgetful(&directories, FabricKind::Shm);
    let mut primary = start(cluster(0));
    let standby = joining(cluster(1), &primary);
    let table = primary.database().create_table(&definition()).unwrap().clone();
    churn(primary.database(), &table, 0, 6000);
    forget(&primary);
    let comes = |primary: &Node| Node::start(NodeConfig { join: Some(primary.address().into()), ..cluster(2) }, |_| {});
    let has_begun = |mirror: &Node| own(mirror).bootstrap.is_some() || own(mirror).floor > Lsn::ZERO;
    for _ in 0..3 {
        let mirror = comes(&primary).unwrap();
        wait_for("it has begun", || has_begun(&mirror));
        mirror.stop().unwrap();
    }
    let listen = primary.address().parse().unwrap();
    let mut mirror = comes(&primary).unwrap();
    for round in 0..3 {
        wait_for("it has begun", || has_begun(&mirror));
        primary.stop().unwrap();
        drop(primary);
        primary = start(NodeConfig { listen, ..cluster(0) });
        let table = primary.database().table("things").unwrap().clone();
        churn(primary.database(), &table, 10_000 * (round + 1), 10_000 * (round + 1) + 500);
        forget(&primary);
        if round < 2 {
            mirror.stop().unwrap();
            drop(mirror);
            mirror = comes(&primary).unwrap();
        }
    }
    let table = primary.database().table("things").unwrap().clone();
    the_mirror_takes_over(primary, &standby, &mirror, &table);
    mirror.stop().unwrap();
    standby.stop().unwrap();
}

/// No node has a checkpoint on a disk, and the mirror is written on.
#[test]
fn a_standby_begins_with_what_a_mirror_has() {
    for fabric in FABRICS {
        let directories = directories();
        let cluster = forgetful(&directories, fabric);
        let primary = start(cluster(0));
        let mirror = joining(cluster(2), &primary);
        let table = primary.database().create_table(&definition()).unwrap().clone();
        churn(primary.database(), &table, 0, 6000);
        let dropped = primary.database().create_table(&other("dropped")).unwrap().clone();
        churn(primary.database(), &dropped, 0, 100);
        primary.database().drop_table(&dropped).unwrap();
        wait_for("the mirror is whole", || is_whole(&mirror));
        let from_mirror = NodeConfig { bootstrap_from: Some(mirror.address().into()), ..cluster(1) };
        let (end, standby) = std::thread::scope(|scope| {
            let churning = scope.spawn(|| {
                let late = primary.database().create_table(&other("late")).unwrap().clone();
                churn(primary.database(), &table, 10_000, 13_000);
                churn(primary.database(), &late, 0, 500)
            });
            let standby = joining(from_mirror, &primary);
            (churning.join().unwrap(), standby)
        });
        let begun = standby.checkpoint_status().unwrap();
        assert!(begun.start > Some(Lsn::ZERO) && begun.rows > 1000, "{begun:?}");
        standby.wait_visible(end, soon()).unwrap();
        assert_eq!(hash(&standby), hash(&primary));
        // It restarts from its own disk.
        standby.stop().unwrap();
        drop(standby);
        let standby = joining(cluster(1), &primary);
        standby.wait_visible(end, soon()).unwrap();
        assert_eq!(hash(&standby), hash(&primary));
        for node in [primary, mirror, standby] {
            node.stop().unwrap();
        }
    }
}

fn other(name: &str) -> TableDefinition {
    let indexes = definition()
        .indexes
        .into_iter()
        .map(|index| IndexDefinition { name: format!("{name}_{}", index.name), ..index });
    TableDefinition::new(name, indexes.collect())
}

/// It is not filled again, and takes over with what it finds.
#[test]
fn a_mirror_that_restarts_continues_with_its_memory() {
    for (fabric, domain) in FABRICS.into_iter().flat_map(|fabric| [(fabric, Domain::File), (fabric, Domain::Pmem)]) {
        let (directories, kept) = (directories(), tempfile::tempdir().unwrap());
        let cluster = forgetful(&directories, fabric);
        let keeps = || {
            let mut config = cluster(2);
            config.mirror.keep_dir = Some(kept.path().to_owned());
            // Where there is no persistent memory, it is emulated.
            config.domain = domain;
            config
        };
        let primary = start(cluster(0));
        let standby = joining(cluster(1), &primary);
        let mirror = joining(keeps(), &primary);
        let table = primary.database().create_table(&definition()).unwrap().clone();
        let end = churn(primary.database(), &table, 0, 3000);
        wait_for("the mirror is whole", || is_whole(&mirror) && own(&mirror).end >= end);
        all_are_named(&primary);
        mirror.stop().unwrap();
        drop(mirror);
        churn(primary.database(), &table, 10_000, 11_000);
        let before = hash(&primary);
        let mirror = joining(keeps(), &primary);
        assert!(own(&mirror).whole && own(&mirror).floor == Lsn::ZERO);
        let last = primary.database().core().snapshots.current();
        wait_for("it has the rest", || own(&mirror).end >= last);
        standby.wait_visible(last, soon()).unwrap();
        mirror.stop().unwrap();
        primary.stop().unwrap();
        drop((mirror, primary));
        let mirror = joining(keeps(), &standby);
        mirror.promote(Consent::Nothing).unwrap();
        assert_eq!((hash(&mirror), hash(&standby)), (before, before));
        mirror.stop().unwrap();
        standby.stop().unwrap();
    }
}

/// Both had a part in the set, and would know of a primary that came after it; so with one of them
/// it continues, although neither has anything left.
#[test]
fn a_primary_comes_back_though_its_mirrors_have_lost_their_memory() {
    let directories = directories();
    let cluster = cluster(&directories, FabricKind::Tcp, Safety::TwoSafe);
    let of = |n: usize| {
        let mirror = if n == 0 { cluster(0).mirror } else { cluster(2).mirror };
        NodeConfig { mirror, least_in_sync: 1, restart_timeout_s: 60, ..cluster(n) }
    };
    let primary = start(of(0));
    let mirrors = [1, 2].map(|n| joining(of(n), &primary));
    let table = primary.database().create_table(&definition()).unwrap().clone();
    churn(primary.database(), &table, 0, 2000);
    wait_for("both are in sync", || match primary.status().role {
        RoleStatus::Primary { shipping, .. } => shipping.standbys.iter().filter(|standby| standby.in_sync).count() == 2,
        role => panic!("{role:?}"),
    });
    let before = hash(&primary);
    for node in mirrors.iter().chain([&primary]) {
        node.stop().unwrap();
    }
    drop((mirrors, primary));
    let mirror = start(NodeConfig { join: Some("127.0.0.1:1".into()), ..of(1) });
    assert!(!is_whole(&mirror));
    let primary = start(NodeConfig { peers: vec![mirror.address().into()], ..of(0) });
    assert_eq!((primary.role(), hash(&primary)), (Role::Primary, before));
    primary.stop().unwrap();
    mirror.stop().unwrap();
}

/// What is in the one directory that a mirror has in `kept`: names, and what is in the files.
fn kept_files(kept: &Path) -> (PathBuf, Vec<(OsString, Vec<u8>)>) {
    let of_mirror = fs::read_dir(kept).unwrap().next().unwrap().unwrap().path();
    let files = fs::read_dir(&of_mirror).unwrap().map(|file| file.unwrap()).filter(|file| file.path().is_file());
    let mut files: Vec<_> = files.map(|file| (file.file_name(), fs::read(file.path()).unwrap())).collect();
    files.sort();
    (of_mirror, files)
}

/// A mirror that keeps its memory in `kept`.
fn keeping(config: NodeConfig, kept: &Path) -> NodeConfig {
    let mut config = config;
    config.mirror.keep_dir = Some(kept.to_owned());
    config
}

/// A mirror without a primary: whether it has a vote. If it has none, it has nothing, and does not
/// take over.
fn has_vote(config: NodeConfig) -> bool {
    let mirror = start(NodeConfig { join: Some("127.0.0.1:1".into()), ..config });
    let own = own(&mirror);
    if !own.whole {
        assert_eq!(own.end, Lsn::ZERO);
        assert!(mirror.promote(Consent::Nothing).is_err());
    }
    mirror.stop().unwrap();
    own.whole
}

/// A primary, and a mirror that has acknowledged all of its commits and has ended, with its memory
/// in `kept`.
fn kept_memory(cluster: &impl Fn(usize) -> NodeConfig, kept: &Path) -> (Arc<Node>, Arc<Table>) {
    let primary = start(cluster(0));
    let mirror = joining(keeping(cluster(2), kept), &primary);
    let table = primary.database().create_table(&definition()).unwrap().clone();
    acknowledges(mirror, &primary, &table);
    (primary, table)
}

/// The mirror acknowledges commits, and ends.
fn acknowledges(mirror: Arc<Node>, primary: &Node, table: &Table) {
    commit(&mirror, primary, table);
    mirror.stop().unwrap();
}

/// Commits that the mirror acknowledges.
fn commit(mirror: &Node, primary: &Node, table: &Table) {
    // Ids that were never used: a row takes more than a byte of the log.
    let from = primary.database().core().snapshots.current().0;
    let end = churn(primary.database(), table, from, from + 200);
    wait_for("the mirror is whole", || is_whole(mirror) && own(mirror).end >= end);
}

/// It lacks what was acknowledged since. One is put into the same files, as a snapshot of their
/// device does, from an earlier life or from the same one; one is made of a copy of the files that
/// was made in the same life.
#[test]
fn an_older_copy_of_a_mirrors_memory_has_no_vote() {
    let (directories, kept) = (directories(), tempfile::tempdir().unwrap());
    let cluster = cluster(&directories, FabricKind::Tcp, Safety::Quorum(2));
    let (primary, table) = kept_memory(&cluster, kept.path());
    let keeps = || keeping(cluster(2), kept.path());
    for (same_files, same_life) in [(true, false), (true, true), (false, true)] {
        let mut mirror = joining(keeps(), &primary);
        commit(&mirror, &primary, &table);
        if same_files {
            if !same_life {
                mirror.stop().unwrap();
            }
            let (_, older) = kept_files(kept.path());
            if !same_life {
                drop(mirror);
                mirror = joining(keeps(), &primary);
            }
            acknowledges(mirror, &primary, &table);
            let (place, files) = kept_files(kept.path());
            assert!(older.iter().map(|(name, _)| name).eq(files.iter().map(|(name, _)| name)));
            older.iter().for_each(|(name, bytes)| fs::write(place.join(name), bytes).unwrap());
        } else {
            let (place, older) = kept_files(kept.path());
            acknowledges(mirror, &primary, &table);
            fs::remove_dir_all(&place).unwrap();
            fs::create_dir(&place).unwrap();
            older.iter().for_each(|(name, bytes)| fs::write(place.join(name), bytes).unwrap());
        }
        assert!(!has_vote(keeps()), "in the same files: {same_files}, of the same life: {same_life}");
        acknowledges(joining(keeps(), &primary), &primary, &table);
        assert!(has_vote(keeps()), "it has been filled again");
    }
    primary.stop().unwrap();
}

/// What it acknowledged in between was elsewhere.
#[test]
fn memory_of_before_a_mirror_had_other_memory_has_no_vote() {
    let (directories, kept) = (directories(), [(); 2].map(|()| tempfile::tempdir().unwrap()));
    let cluster = cluster(&directories, FabricKind::Shm, Safety::Quorum(2));
    let (primary, table) = kept_memory(&cluster, kept[0].path());
    let keeps = |place: usize| keeping(cluster(2), kept[place].path());
    for other in [keeps(1), cluster(2)] {
        assert!(has_vote(keeps(0)));
        acknowledges(joining(other, &primary), &primary, &table);
        assert!(!has_vote(keeps(0)));
        acknowledges(joining(keeps(0), &primary), &primary, &table);
    }
    primary.stop().unwrap();
}

#[test]
fn a_mirror_with_a_damaged_state_begins_again() {
    let (directories, kept) = (directories(), tempfile::tempdir().unwrap());
    let cluster = cluster(&directories, FabricKind::Shm, Safety::Quorum(2));
    let (primary, table) = kept_memory(&cluster, kept.path());
    let keeps = || keeping(cluster(2), kept.path());
    let flip = |bit: usize| {
        let state = kept_files(kept.path()).0.join("state");
        let mut bytes = fs::read(&state).unwrap();
        bytes[bit / 8] ^= 1 << (bit % 8);
        fs::write(&state, bytes).unwrap();
    };
    // Each of the numbers that the state begins with has its turn.
    for bit in [8 * 40, 8 * 70, 8 * 100] {
        flip(bit);
        flip(bit);
        assert!(has_vote(keeps()));
        flip(bit);
        assert!(!has_vote(keeps()));
        acknowledges(joining(keeps(), &primary), &primary, &table);
    }
    primary.stop().unwrap();
}

/// A mirror with the files of another one of its cluster would take what that has acknowledged for
/// its own.
#[test]
fn a_mirror_refuses_the_memory_of_another() {
    let (directories, kept) = (directories(), [(); 2].map(|()| tempfile::tempdir().unwrap()));
    let cluster = cluster(&directories, FabricKind::Tcp, Safety::Quorum(3));
    let keeps = |n: usize| keeping(NodeConfig { mirror: cluster(2).mirror, ..cluster(n) }, kept[n - 1].path());
    let primary = start(cluster(0));
    let mirrors = [1, 2].map(|n| joining(keeps(n), &primary));
    let table = primary.database().create_table(&definition()).unwrap().clone();
    let end = churn(primary.database(), &table, 0, 500);
    wait_for("both are whole", || mirrors.iter().all(|mirror| is_whole(mirror) && own(mirror).end >= end));
    let ids = mirrors.map(|mirror| {
        mirror.stop().unwrap();
        mirror.id().to_string()
    });
    let [(first, ours), (second, theirs)] = [0, 1].map(|n| kept_files(kept[n].path()));
    let put = |files: &[(OsString, Vec<u8>)]| {
        files.iter().for_each(|(name, bytes)| fs::write(first.join(name), bytes).unwrap())
    };
    put(&theirs);
    let config = || NodeConfig { join: Some(primary.address().into()), ..keeps(1) };
    let why = Node::start(config(), |_| {}).expect_err("it is not its own").to_string();
    for part in [&ids[0], &ids[1], first.to_str().unwrap(), "mirror.keep-dir", "nothing was changed"] {
        assert!(why.contains(part), "{part}: {why}");
    }
    let there = kept_files(kept[0].path()).1;
    assert!(theirs.iter().all(|file| there.contains(file)));
    // All that was of the other node goes, and its own files come back.
    there.iter().for_each(|(name, _)| {
        if !ours.iter().any(|(own, _)| own == name) {
            fs::remove_file(first.join(name)).unwrap()
        }
    });
    put(&ours);
    assert!(has_vote(keeps(1)) && has_vote(keeps(2)), "{}", second.display());
    primary.stop().unwrap();
}

/// Nothing was committed in its term, which did not begin. Its memory is gone, but it knows of no
/// other primary, so the one of before comes back.
#[test]
fn a_mirror_that_ends_while_it_takes_over_begins_again_as_a_mirror() {
    for streams in [1, 2] {
        let directories = directories();
        let cluster = cluster(&directories, FabricKind::Shm, Safety::VerySafe);
        let of = |n: usize, peers: Vec<String>| {
            let mut config = NodeConfig { peers, ..cluster(n) };
            config.log.streams = streams;
            config
        };
        let old = start(of(0, vec![]));
        let mirror = joining(of(2, vec![]), &old);
        let table = old.database().create_table(&definition()).unwrap().clone();
        let end = churn(old.database(), &table, 0, 500);
        wait_for("the mirror is whole", || is_whole(&mirror));
        let before = hash(&old);
        // No checkpoint can be written there.
        let (path, rows) = (directories[2].path(), directories[2].path().join("checkpoints"));
        std::fs::write(&rows, b"").unwrap();
        std::thread::scope(|scope| {
            let promotion = scope.spawn(|| mirror.promote(Consent::Nothing));
            let has_log = || path.join("taking-over").exists() && mirror.checkpoint_status().is_some();
            wait_for("its log is there", || has_log() || promotion.is_finished());
            mirror.stop().unwrap();
            let outcome = promotion.join().unwrap();
            let why = outcome.unwrap_err().to_string();
            assert!(why.contains("cannot become the primary") && why.contains("mirror.keep-dir"), "{why}");
        });
        drop(mirror);
        std::fs::remove_file(&rows).unwrap();
        let address = old.address().to_owned();
        old.stop().unwrap();
        drop(old);
        let mirror = start(NodeConfig { join: Some(address), ..of(2, vec![]) });
        assert_eq!(mirror.role(), Role::Mirror);
        let old = start(of(0, vec![mirror.address().to_owned()]));
        assert_eq!((old.role(), hash(&old)), (Role::Primary, before));
        let table = old.database().table("things").unwrap().clone();
        let end = churn(old.database(), &table, 1_000, 1_500).max(end);
        let found = mirror.rehearsed(Some(end), soon().unwrap()).unwrap().unwrap();
        assert_eq!((found.hash, found.records), hash(&old));
        for node in [old, mirror] {
            node.stop().unwrap();
        }
    }
}

/// The primary gets an older copy of its disk, and no other node is there to be asked: it leads
/// with less. The mirror, which has everything, may be the last copy.
#[test]
fn a_mirror_keeps_what_a_primary_has_lost_that_was_set_back() {
    let (directories, kept) = (directories(), tempfile::tempdir().unwrap());
    let cluster = cluster(&directories, FabricKind::Shm, Safety::OneSafe);
    let (primary, table) = kept_memory(&cluster, kept.path());
    let (listen, before) = (primary.address().parse().unwrap(), tempfile::tempdir().unwrap());
    primary.stop().unwrap();
    drop((primary, table));
    let primary = start(NodeConfig { listen, ..cluster(0) });
    let table = primary.database().table("things").unwrap().clone();
    // In its present term, which it does not begin twice then.
    copy(directories[0].path(), before.path());
    let mirror = joining(keeping(cluster(2), kept.path()), &primary);
    commit(&mirror, &primary, &table);
    let (all, end) = (hash(&primary), own(&mirror).end);
    wait_for("it is marked", || own(&mirror).mark >= end);
    mirror.stop().unwrap();
    primary.stop().unwrap();
    drop((mirror, primary, table));
    fs::remove_dir_all(directories[0].path()).unwrap();
    copy(before.path(), directories[0].path());
    let primary = start(NodeConfig { listen, ..cluster(0) });
    assert_ne!(hash(&primary), all, "it has less");
    let mirror =
        Node::start(NodeConfig { join: Some(primary.address().into()), ..keeping(cluster(2), kept.path()) }, |_| {});
    let mirror = mirror.unwrap();
    wait_for("both say so", || {
        let RoleStatus::Primary { shipping, .. } = primary.status().role else { panic!("it is the primary") };
        shipping.ahead.first().is_some_and(|ahead| ahead.node == mirror.id()) && own(&mirror).holds_more.is_some()
    });
    assert!(own(&mirror).whole && own(&mirror).end >= end, "{:?}", own(&mirror));
    mirror.promote(Consent::Loss).unwrap();
    assert_eq!(hash(&mirror), all);
    for node in [primary, mirror] {
        node.stop().unwrap();
    }
}
