//! Backups, archives, and what a restore makes of them; joining that was interrupted.

mod common;

use std::{
    fs,
    ops::{Bound, ControlFlow},
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{SystemTime, UNIX_EPOCH},
};

use common::{SHAPES, Shape, churn, config, definition, hash, row, soon, start, wait_for};
use freshet_engine::{
    CheckpointKind, Consent, Direction, Isolation, Lsn, Node, NodeConfig, Role, Safety,
    node::archive::{self, Archive, ArchiveConfig, Moment, PointInTimeError, RestoreConfig, RestoreFailure},
};

fn quiet(directory: &Path) -> NodeConfig {
    let mut config = config(Some(directory));
    config.checkpoint.interval_s = 0;
    config.checkpoint.keep_log_bytes = 0;
    config.log.segment_bytes = 1 << 18;
    config
}

fn archive_of(node: &Node, directory: &Path) -> ArchiveConfig {
    let directory = directory.to_owned();
    ArchiveConfig {
        directory,
        node: node.address().to_owned(),
        token_file: None,
        peers: Vec::new(),
        buffer_bytes: 4 << 20,
    }
}

fn restore(backup: &Path, archive: Option<&Path>, moment: Moment, to: &Path) -> Result<(), RestoreFailure> {
    let (backup, archive) = (backup.to_owned(), archive.map(Path::to_owned));
    let config = RestoreConfig { backup, archive, streams: Vec::new(), directory: to.to_owned(), moment };
    archive::restore(&config).map(drop)
}

fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_micros() as u64
}

/// Sum of all records' values and their number.
fn sum(node: &Node) -> (u64, usize) {
    let worker = node.database().worker().unwrap();
    let txn = worker.begin_read_only();
    let (mut sum, mut count) = (0, 0);
    let table = node.database().table("things").unwrap();
    txn.scan(&table, 0, (Bound::Unbounded, Bound::Unbounded), Direction::Forward, |_, found| {
        sum += u64::from_le_bytes(found.row[16..24].try_into().unwrap());
        count += 1;
        ControlFlow::Continue(())
    })
    .unwrap();
    (sum, count)
}

#[test]
fn a_backup_is_the_state_of_one_moment() {
    for shape in SHAPES {
        let directories: Vec<_> = (0..2).map(|_| tempfile::tempdir().unwrap()).collect();
        let settings = |n: usize| {
            let mut settings = shape.of_node(n, quiet(directories[n].path()));
            settings.checkpoint.cpu_percent = 100;
            NodeConfig { safety: Safety::TwoSafe, ..settings }
        };
        let primary = start(settings(0));
        let standby = start(NodeConfig { join: Some(primary.address().to_owned()), ..settings(1) });
        let table = primary.database().create_table(&definition()).unwrap().clone();
        let worker = primary.database().worker().unwrap();
        let ((), ticket) = worker
            .execute(Isolation::Snapshot, |txn| {
                (0..4000).try_for_each(|id| txn.insert(&table, &row(id, 0, 1000)).map(drop))?;
                Ok(())
            })
            .unwrap();
        primary.wait(ticket, None).unwrap();
        standby.wait_visible(ticket.until, soon()).unwrap();
        drop(worker);
        let stop = AtomicBool::new(false);
        let places: Vec<_> = (0..2).map(|_| tempfile::tempdir().unwrap()).collect();
        std::thread::scope(|scope| {
            for writer in 0..2u64 {
                let (primary, table, stop) = (&primary, &table, &stop);
                scope.spawn(move || {
                    let worker = primary.database().worker().unwrap();
                    // Bounded: the standby's backup reads each record's versions back to its
                    // moment, which takes the longer the more there are since.
                    for turn in (0..50_000).take_while(|_| !stop.load(Ordering::SeqCst)) {
                        // Something goes from one record to another, and one record goes and comes
                        // back elsewhere.
                        let (from, to) = ((turn * 31 + writer) % 4000, (turn * 17 + 5) % 4000);
                        let _ = worker.execute(Isolation::Snapshot, |txn| {
                            let value = |row: &[u8]| u64::from_le_bytes(row[16..24].try_into().unwrap());
                            let (Some(one), Some(other)) =
                                (txn.get(table, 0, &from.to_be_bytes())?, txn.get(table, 0, &to.to_be_bytes())?)
                            else {
                                return Ok(());
                            };
                            if from == to || value(one.row) == 0 {
                                return Ok(());
                            }
                            let (had, has) = (value(one.row), value(other.row));
                            let (rid, other) = (one.rid, other.rid);
                            txn.delete(table, rid)?;
                            txn.insert(table, &row(from, turn % 13, had - 1))?;
                            txn.update(table, other, &row(to, turn % 13, has + 1))?;
                            Ok(())
                        });
                    }
                });
            }
            for (number, place) in places.iter().enumerate() {
                let node = if number % 2 == 0 { &primary } else { &standby };
                let backup = archive::backup(&archive_of(node, place.path())).unwrap();
                assert_eq!(backup.rows, 4001, "{shape:?}: with the row of the catalog");
            }
            stop.store(true, Ordering::SeqCst);
        });
        for (number, place) in places.iter().enumerate() {
            let directory = tempfile::tempdir().unwrap();
            let to = directory.path().join("node");
            restore(place.path(), None, Moment::End, &to).unwrap();
            let node = start(quiet(&to));
            assert_eq!(sum(&node), (4_000_000, 4000), "{shape:?}, backup {number}");
            assert_ne!(node.cluster(), primary.cluster());
            // It is a database like any other.
            let table = node.database().table("things").unwrap().clone();
            churn(node.database(), &table, 10_000, 10_300);
            let before = hash(&node);
            node.stop().unwrap();
            drop(node);
            let node = start(quiet(&to));
            assert_eq!(hash(&node), before, "{shape:?}, backup {number}");
            node.stop().unwrap();
        }
        primary.stop().unwrap();
        standby.stop().unwrap();
    }
}

/// The old primary starts again, as a standby: half of a backup is none.
#[test]
fn a_backup_that_a_switch_over_ends_names_the_cause() {
    let directories: Vec<_> = (0..3).map(|_| tempfile::tempdir().unwrap()).collect();
    let mut config = quiet(directories[0].path());
    // Long enough for all that comes.
    config.checkpoint.cpu_percent = 1;
    let old = start(config);
    let table = old.database().create_table(&definition()).unwrap().clone();
    let end = churn(old.database(), &table, 0, 10_000);
    let join = Some(old.address().to_owned());
    let new = start(NodeConfig { join, ..quiet(directories[1].path()) });
    new.wait_visible(end, soon()).unwrap();
    let config = archive_of(&old, directories[2].path());
    let backup = std::thread::spawn(move || archive::backup(&config).unwrap_err().to_string());
    wait_for("it is under way", || old.status().checkpoint.is_some_and(|it| it.under_way.is_some()));
    old.switch_over(None).unwrap();
    old.stop().unwrap();
    let failed = backup.join().unwrap();
    assert!(failed.contains("as after a switch-over"), "{failed}");
    assert_eq!(new.role(), Role::Primary);
}

#[test]
fn an_archive_reaches_every_moment_since_its_backup() {
    for shape in [Shape::OneStream, Shape::Pages, Shape::Epochs] {
        let directories: Vec<_> = (0..2).map(|_| tempfile::tempdir().unwrap()).collect();
        let settings = |n: usize| {
            let settings = shape.of_node(n, quiet(directories[n].path()));
            NodeConfig { safety: Safety::TwoSafe, ..settings }
        };
        let primary = start(settings(0));
        let standby = start(NodeConfig { join: Some(primary.address().to_owned()), ..settings(1) });
        let table = primary.database().create_table(&definition()).unwrap().clone();
        let early = churn(primary.database(), &table, 0, 500);
        let place = tempfile::tempdir().unwrap();
        let mut settings = archive_of(&primary, place.path());
        settings.peers = vec![standby.address().to_owned()];
        let archive = Archive::start(&settings).unwrap();
        let begin = now();
        let mut moments = Vec::new();
        let mut remember = |node: &Arc<Node>, end: Lsn| moments.push((end, hash(node), now()));
        for round in 1..4u64 {
            let end = churn(primary.database(), &table, round * 1000, round * 1000 + 300);
            remember(&primary, end);
            // The log tells the time every tenth of a second, while it grows.
            let (begun, mut id) = (now(), round * 1_000_000);
            while now() < begun + 250_000 {
                churn(primary.database(), &table, id, id + 10);
                id += 10;
            }
        }
        archive.wait(moments[0].0).unwrap();
        // What the archive lacks is kept, however many checkpoints there are.
        let reached = archive.stop().unwrap();
        primary.checkpoint(CheckpointKind::Fuzzy).unwrap();
        let archive = Archive::start(&settings).unwrap();
        assert!(archive.status().persisted >= reached);
        standby.wait_visible(moments.last().unwrap().0, soon()).unwrap();
        archive.wait(moments.last().unwrap().0).unwrap();
        // The log continues with another primary.
        primary.stop().unwrap();
        drop(primary);
        // Under 2-safe a standby alone cannot know whether its primary went on without it; this one
        // was stopped when all was level.
        assert!(standby.promote(Consent::Nothing).is_err());
        standby.promote(Consent::Loss).unwrap();
        let table = standby.database().table("things").unwrap().clone();
        let end = churn(standby.database(), &table, 7000, 7300);
        let last = hash(&standby);
        let archive = match archive.status().link {
            freshet_engine::node::LinkStatus::Following { .. } => archive,
            _ => {
                archive.stop().unwrap();
                Archive::start(&ArchiveConfig { node: standby.address().to_owned(), ..settings.clone() }).unwrap()
            }
        };
        archive.wait(end).unwrap();
        // While the archive continues.
        let scratch = tempfile::tempdir().unwrap();
        let to = |name: &str| scratch.path().join(name);
        for (number, (end, expected, _)) in moments.iter().enumerate() {
            let to = to(&format!("LSN-{number}"));
            restore(place.path(), None, Moment::Lsn(*end), &to).unwrap();
            let node = start(quiet(&to));
            assert_eq!(hash(&node), *expected, "{shape:?}, moment {number}");
            node.stop().unwrap();
        }
        restore(place.path(), None, Moment::Lsn(end), &to("last")).unwrap();
        let node = start(quiet(&to("last")));
        assert_eq!(hash(&node), last, "{shape:?}");
        node.stop().unwrap();
        let too_early = restore(place.path(), None, Moment::Lsn(Lsn(early.0 - 8)), &to("too-early"));
        assert!(
            matches!(too_early, Err(RestoreFailure::PointInTime(PointInTimeError::OutOfReach(_)))),
            "{too_early:?}"
        );
        // Never later than asked for, and not before the backup.
        let (_, _, time) = moments[1];
        restore(place.path(), None, Moment::Time(time), &to("time")).unwrap();
        let node = start(quiet(&to("time")));
        let records = hash(&node).1;
        assert!((moments[0].1.1..=moments[2].1.1).contains(&records), "{shape:?}: {records} of {moments:?}");
        node.stop().unwrap();
        let early = restore(place.path(), None, Moment::Time(begin - 60_000_000), &to("early"));
        assert!(matches!(early, Err(RestoreFailure::PointInTime(PointInTimeError::OutOfReach(_)))), "{early:?}");
        archive.stop().unwrap();
        standby.stop().unwrap();
    }
}

#[test]
fn what_does_not_belong_together_is_refused() {
    let directories: Vec<_> = (0..4).map(|_| tempfile::tempdir().unwrap()).collect();
    let place = |n: usize| directories[n].path();
    let mut backups = Vec::new();
    for n in 0..2 {
        let node = start(quiet(place(n)));
        let table = node.database().create_table(&definition()).unwrap().clone();
        churn(node.database(), &table, 0, 400);
        backups.push(place(2 + n).join("backup"));
        archive::backup(&archive_of(&node, &backups[n])).unwrap();
        churn(node.database(), &table, 1000, 1100);
        node.stop().unwrap();
    }
    let to = |name: &str| place(2).join(name);
    let other = restore(&backups[0], Some(place(1)), Moment::End, &to("a"));
    assert!(matches!(other, Err(RestoreFailure::PointInTime(PointInTimeError::OtherCluster { .. }))), "{other:?}");
    // An LSN that nothing reaches, before and behind.
    for lsn in [8, u64::MAX >> 1] {
        let far = restore(&backups[0], None, Moment::Lsn(Lsn(lsn)), &to("b"));
        assert!(matches!(far, Err(RestoreFailure::PointInTime(PointInTimeError::OutOfReach(_)))), "{far:?}");
    }
    // The log may as well be the node's own.
    restore(&backups[0], Some(place(0)), Moment::End, &to("c")).unwrap();
    let node = start(quiet(&to("c")));
    let restored = hash(&node);
    node.stop().unwrap();
    drop(node);
    let node = start(quiet(place(0)));
    assert_eq!(restored, hash(&node));
    node.stop().unwrap();
    let again = restore(&backups[0], None, Moment::End, &to("c"));
    assert!(again.unwrap_err().to_string().contains("another directory"));
    // Every block of the rows is checked.
    let rows: Vec<PathBuf> = fs::read_dir(backups[1].join("checkpoints"))
        .unwrap()
        .flat_map(|folder| fs::read_dir(folder.unwrap().path()).unwrap())
        .map(|file| file.unwrap().path())
        .collect();
    let largest = rows.iter().max_by_key(|path| fs::metadata(path).unwrap().len()).unwrap();
    let mut bytes = fs::read(largest).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(largest, bytes).unwrap();
    let damaged = restore(&backups[1], None, Moment::End, &to("d"));
    assert!(damaged.unwrap_err().to_string().contains("is damaged at offset"));
}

#[test]
fn joining_goes_on_where_it_was_interrupted() {
    let directories: Vec<_> = (0..2).map(|_| tempfile::tempdir().unwrap()).collect();
    let primary = start(quiet(directories[0].path()));
    let table = primary.database().create_table(&definition()).unwrap().clone();
    churn(primary.database(), &table, 0, 3000);
    primary.checkpoint(CheckpointKind::Fuzzy).unwrap();
    churn(primary.database(), &table, 10_000, 10_400);
    // A file that ends too early, as from a node that dies while it sends.
    let folder = fs::read_dir(directories[0].path().join("checkpoints")).unwrap().next().unwrap().unwrap().path();
    let files = fs::read_dir(&folder).unwrap().map(|file| file.unwrap().path());
    let largest = files.max_by_key(|path| fs::metadata(path).unwrap().len()).unwrap();
    let whole = fs::read(&largest).unwrap();
    fs::write(&largest, &whole[..whole.len() / 2]).unwrap();
    let joining = || NodeConfig { join: Some(primary.address().to_owned()), ..quiet(directories[1].path()) };
    for attempt in 0..2 {
        let failed = Node::start(joining(), |_| {});
        assert!(failed.unwrap_err().to_string().contains("its manifest says"));
        assert!(directories[1].path().join("joining").exists());
        churn(primary.database(), &table, 20_000 + attempt * 1000, 20_200 + attempt * 1000);
    }
    // Without its primary it is nothing yet.
    fs::write(&largest, &whole).unwrap();
    let alone = Node::start(quiet(directories[1].path()), |_| {});
    assert!(alone.is_err(), "a node that has not joined is no database");
    let standby = start(joining());
    let end = churn(primary.database(), &table, 30_000, 30_200);
    standby.wait_visible(end, soon()).unwrap();
    assert_eq!(hash(&standby), hash(&primary));
    assert!(!directories[1].path().join("joining").exists());
    standby.stop().unwrap();
    primary.stop().unwrap();
}
