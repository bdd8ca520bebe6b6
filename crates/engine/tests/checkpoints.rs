//! Checkpoints: written while others write, and what a restart makes of them.

mod common;

use std::{
    fs,
    path::Path,
    sync::atomic::{AtomicBool, Ordering},
};

use common::{SHAPES, Shape, all_are_named, churn, config, definition, hash, row, soon, start};
use freshet_base::{Consent, Fid, Rid};
use freshet_engine::{CheckpointKind, Direction, Isolation, Node, NodeConfig, Safety, node::StartError};
use freshet_recovery::{
    Manifest,
    checkpoint::{CheckpointTable, RowsReader, TableWriter},
};

/// A node that writes checkpoints only when asked, and keeps no log for others.
fn quiet(directory: &Path, shape: Shape) -> NodeConfig {
    let mut config = shape.of_node(1, config(Some(directory)));
    config.checkpoint.interval_s = 0;
    config.checkpoint.keep_log_bytes = 0;
    config.log.segment_bytes = 1 << 16;
    config
}

fn manifest(directory: &Path) -> std::path::PathBuf {
    let entries = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    entries.filter(|path| path.extension().is_some_and(|it| it == "manifest")).max().unwrap()
}

fn rows_files(directory: &Path) -> Vec<std::path::PathBuf> {
    let folders = fs::read_dir(directory.join("checkpoints")).unwrap().map(|entry| entry.unwrap().path());
    let mut files: Vec<_> =
        folders.flat_map(|folder| fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path())).collect();
    files.sort();
    files
}

#[test]
fn a_restart_needs_the_checkpoint_and_the_log_since_then() {
    for shape in SHAPES {
        let directory = tempfile::tempdir().unwrap();
        for round in 0..4u64 {
            let node = start(quiet(directory.path(), shape));
            let table = match node.database().table("things") {
                Some(table) => table.clone(),
                None => node.database().create_table(&definition()).unwrap().clone(),
            };
            churn(node.database(), &table, 10_000 * round, 10_000 * round + 1500);
            let status = node.checkpoint(CheckpointKind::Fuzzy).unwrap();
            assert!(status.rows > 1000 && status.bytes > status.rows * 24);
            // Some rounds end with log behind the checkpoint, some without.
            if round % 2 == 0 {
                churn(node.database(), &table, 10_000 * round + 5000, 10_000 * round + 5700);
            }
            let before = hash(&node);
            node.stop().unwrap();
            drop(node);
            let node = start(quiet(directory.path(), shape));
            assert_eq!(hash(&node), before, "{shape:?}, round {round}");
            assert_eq!(node.status().checkpoint.unwrap().start, status.start);
            node.stop().unwrap();
        }
        // Its log does not reach back to the beginning any more.
        let first =
            if matches!(shape, Shape::OneStream) { directory.path().into() } else { directory.path().join("stream-0") };
        assert!(!first.join(format!("{:020}.segment", 0)).exists(), "{shape:?}");
    }
}

#[test]
fn checkpoints_under_load_lose_nothing_and_invent_nothing() {
    for shape in SHAPES {
        let directory = tempfile::tempdir().unwrap();
        let mut settings = quiet(directory.path(), shape);
        settings.checkpoint.cpu_percent = 100;
        let devices = [directory.path().join("one"), directory.path().join("two")];
        settings.checkpoint.dir = devices.to_vec();
        let node = start(settings.clone());
        let table = node.database().create_table(&definition()).unwrap().clone();
        churn(node.database(), &table, 0, 3000);
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for writer in 0..2u64 {
                let (node, table, stop) = (&node, &table, &stop);
                scope.spawn(move || {
                    let worker = node.database().worker().unwrap();
                    let mut last = None;
                    for turn in 0..u64::MAX {
                        if stop.load(Ordering::SeqCst) {
                            break;
                        }
                        // Old records change, new ones come and go, ids are used again.
                        let id = turn * 7 % 2900;
                        let outcome = worker.execute(Isolation::Snapshot, |txn| {
                            let found = txn.get(table, 0, &id.to_be_bytes())?;
                            match found {
                                Some(old) if turn % 5 == 0 => txn.delete(table, old.rid)?,
                                Some(old) => drop(txn.update(table, old.rid, &row(id, turn % 11, turn))?),
                                None => drop(txn.insert(table, &row(id, writer, turn))?),
                            }
                            Ok(())
                        });
                        // The two get in each other's way at times.
                        last = outcome.ok().map(|((), ticket)| ticket).or(last);
                    }
                    node.database().wait(last.unwrap()).unwrap();
                });
            }
            for _ in 0..6 {
                node.checkpoint(CheckpointKind::Fuzzy).unwrap();
            }
            stop.store(true, Ordering::SeqCst);
        });
        let before = hash(&node);
        node.stop().unwrap();
        drop(node);
        let node = start(settings);
        assert_eq!(hash(&node), before, "{shape:?}");
        // Every record is found by both of its keys, and by nothing else.
        let worker = node.database().worker().unwrap();
        let txn = worker.begin_read_only();
        let table = node.database().table("things").unwrap();
        let mut by_group = 0;
        for group in 0..11u64 {
            let key = group.to_be_bytes();
            let range = (std::ops::Bound::Included(&key[..]), std::ops::Bound::Included(&key[..]));
            txn.scan(&table, 1, range, Direction::Forward, |_, found| {
                assert_eq!(found.row[8..16], group.to_le_bytes());
                by_group += 1;
                std::ops::ControlFlow::Continue(())
            })
            .unwrap();
        }
        assert!(by_group > 0);
        drop(txn);
        node.stop().unwrap();
        // Beside the file that says whose they are.
        assert!(devices.iter().all(|device| fs::read_dir(device).unwrap().count() == 2), "older ones are gone");
    }
}

fn refused(config: NodeConfig) -> String {
    match Node::start(config, |_| {}) {
        Ok(_) => panic!("it started"),
        Err(error @ (StartError::Restore(_) | StartError::Store(_))) => error.to_string(),
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn a_bad_checkpoint_is_refused_or_replaced_by_the_log() {
    for keeps_log in [false, true] {
        let directory = tempfile::tempdir().unwrap();
        let mut settings = quiet(directory.path(), Shape::OneStream);
        settings.checkpoint.keep_log_bytes = if keeps_log { u64::MAX } else { 0 };
        let node = start(settings.clone());
        let table = node.database().create_table(&definition()).unwrap().clone();
        churn(node.database(), &table, 0, 3000);
        node.checkpoint(CheckpointKind::Fuzzy).unwrap();
        churn(node.database(), &table, 10_000, 10_100);
        let before = hash(&node);
        node.stop().unwrap();
        drop(node);
        let check = |what: &str, expected: &str| {
            if keeps_log {
                let node = start(settings.clone());
                assert_eq!(hash(&node), before, "{what}");
                assert_eq!(node.status().checkpoint.unwrap().start, None, "{what}: from the log alone");
                node.stop().unwrap();
            } else {
                let error = refused(settings.clone());
                assert!(error.contains(expected), "{what}: {error}");
            }
        };
        let largest = rows_files(directory.path()).into_iter().max_by_key(|file| fs::metadata(file).unwrap().len());
        let file = largest.unwrap();
        let good = fs::read(&file).unwrap();
        for at in [3, 20, 34, 70, 76, good.len() / 2, good.len() - 1] {
            let mut bad = good.clone();
            bad[at] ^= 4;
            fs::write(&file, bad).unwrap();
            check("a flipped bit", "is damaged at offset");
        }
        let mut foreign = good.clone();
        foreign[20] ^= 4;
        let crc = crc32c::crc32c(&foreign[..40]);
        foreign[40..44].copy_from_slice(&crc.to_le_bytes());
        fs::write(&file, foreign).unwrap();
        let error = refused(settings.clone());
        assert!(error.contains("is a checkpoint of cluster"), "whatever the log has: {error}");
        fs::write(&file, &good[..good.len() - 5]).unwrap();
        check("a short file", "bytes, its manifest says");
        fs::remove_file(&file).unwrap();
        check("a missing file", "cannot open");
        fs::write(&file, &good).unwrap();
        let manifest = manifest(directory.path());
        let good = fs::read(&manifest).unwrap();
        let mut bad = good.clone();
        bad[30] ^= 1;
        fs::write(&manifest, bad).unwrap();
        check("a bad manifest", "its checksum does not hold");
        fs::remove_file(&manifest).unwrap();
        check("a missing manifest", "segments below");
        fs::write(&manifest, good).unwrap();
        let node = start(settings.clone());
        assert_eq!(hash(&node), before);
        node.stop().unwrap();
    }
}

/// What is in one directory, in another, too.
fn copy(from: &Path, to: &Path) {
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let to = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            freshet_base::private::create_directories(&to).unwrap();
            copy(&entry.path(), &to);
        } else {
            fs::copy(entry.path(), to).unwrap();
        }
    }
}

/// All of the log below the end of an installed checkpoint was durable once. If less of it is
/// there, the log alone is not the database, even from its beginning.
#[test]
fn a_checkpoint_whose_log_is_missing_is_not_passed_over() {
    let (directory, rows) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let old = tempfile::tempdir().unwrap();
    let mut settings = quiet(directory.path(), Shape::OneStream);
    settings.checkpoint.dir = vec![rows.path().to_owned()];
    settings.checkpoint.keep_log_bytes = u64::MAX;
    let node = start(settings.clone());
    let table = node.database().create_table(&definition()).unwrap().clone();
    churn(node.database(), &table, 0, 100);
    node.stop().unwrap();
    drop(node);
    copy(directory.path(), old.path());
    let node = start(settings.clone());
    churn(node.database(), &node.database().table("things").unwrap(), 1000, 1100);
    let before = hash(&node);
    node.checkpoint(CheckpointKind::Fuzzy).unwrap();
    node.stop().unwrap();
    drop(node);
    let manifest = manifest(directory.path());
    let name = manifest.file_name().unwrap();
    fs::copy(&manifest, old.path().join(name)).unwrap();
    let behind = NodeConfig { directory: old.path().to_owned(), ..settings.clone() };
    for _ in 0..2 {
        let error = refused(behind.clone());
        assert!(error.contains(name.to_str().unwrap()) && error.contains("needs the log from"), "{error}");
    }
    assert!(old.path().join(name).exists());
    // With its log it is all that is needed.
    let node = start(settings);
    assert_eq!(hash(&node), before);
    node.stop().unwrap();
}

/// Writes the checkpoint in `directory` once more, without this row.
fn leave_out(directory: &Path, row: (Fid, Rid)) {
    let device = directory.join("checkpoints");
    let old = Manifest::read(&manifest(directory)).unwrap();
    let mut tables = Vec::new();
    for table in &old.tables {
        let (fid, place) = (Fid(table.fid), (0, device.as_path()));
        // Behind the names that are there.
        let mut writer = TableWriter::create(place, old.cluster(), old.start(), fid, 70..71, 1 << 20).unwrap();
        for file in &table.files {
            let mut reader = RowsReader::open(&device, old.cluster(), old.start(), fid, file).unwrap();
            while let Some(block) = reader.next_block().unwrap() {
                for (rid, lsn, bytes) in block.filter(|(rid, ..)| (fid, *rid) != row) {
                    writer.push(rid, lsn, bytes);
                }
                writer.write_block().unwrap();
            }
        }
        let (rows, files) = writer.finish().unwrap();
        tables.push(CheckpointTable { fid: table.fid, rows, files });
    }
    Manifest::new(old.cluster(), old.start(), old.end(), old.time, 1, tables).install(directory, None).unwrap();
}

/// The log changes a record that the checkpoint should have: a primary and a standby notice.
#[test]
fn a_checkpoint_that_lacks_what_the_log_changes_is_refused() {
    for deletes in [false, true] {
        let directories: Vec<_> = (0..2).map(|_| tempfile::tempdir().unwrap()).collect();
        let of = |n: usize| NodeConfig { ..quiet(directories[n].path(), Shape::OneStream) };
        let primary = start(of(0));
        let join = Some(primary.address().to_owned());
        let standby = start(NodeConfig { join: join.clone(), ..of(1) });
        let table = primary.database().create_table(&definition()).unwrap().clone();
        let end = churn(primary.database(), &table, 0, 500);
        standby.wait_visible(end, soon()).unwrap();
        for node in [&primary, &standby] {
            node.checkpoint(CheckpointKind::Fuzzy).unwrap();
        }
        let worker = primary.database().worker().unwrap();
        let change = |id: u64, deletes: bool| {
            let changed = worker.execute(Isolation::Snapshot, |txn| {
                let found = txn.get(&table, 0, &id.to_be_bytes())?.expect("it was inserted").rid;
                match deletes {
                    true => txn.delete(&table, found)?,
                    false => drop(txn.update(&table, found, &row(id, id % 7, 77))?),
                }
                Ok(found)
            });
            let (rid, ticket) = changed.unwrap();
            primary.database().wait(ticket).unwrap();
            (rid, ticket.until)
        };
        let ((changed, _), (_, end)) = (change(499, deletes), change(498, false));
        standby.wait_visible(end, soon()).unwrap();
        let place = (table.fid(), changed);
        drop((worker, table));
        standby.stop().unwrap();
        primary.stop().unwrap();
        drop((primary, standby));
        for (n, join) in [(0, None), (1, join)] {
            leave_out(directories[n].path(), place);
            let why = refused(NodeConfig { join, ..of(n) });
            let text = format!("changes record {} of table {}", place.1.0, place.0.0);
            assert!(why.contains(&text) && why.contains("not the one that the log continues"), "{why}");
        }
    }
}

#[test]
fn what_a_crash_leaves_of_a_checkpoint_does_not_count() {
    let directory = tempfile::tempdir().unwrap();
    let settings = quiet(directory.path(), Shape::OneStream);
    let node = start(settings.clone());
    let table = node.database().create_table(&definition()).unwrap().clone();
    churn(node.database(), &table, 0, 1000);
    let first = node.checkpoint(CheckpointKind::Fuzzy).unwrap();
    let before = hash(&node);
    node.stop().unwrap();
    drop(node);
    // Half-written rows, and a manifest that was not renamed.
    let folder = directory.path().join("checkpoints").join(format!("checkpoint-{:020}", u64::MAX / 4));
    fs::create_dir(&folder).unwrap();
    fs::write(folder.join("1-0-0.rows"), b"half").unwrap();
    fs::write(directory.path().join(format!("checkpoint-{:020}.unfinished", u64::MAX / 4)), b"half").unwrap();
    let node = start(settings);
    assert_eq!(hash(&node), before);
    assert_eq!(node.status().checkpoint.unwrap().start, first.start);
    churn(node.database(), &node.database().table("things").unwrap(), 20_000, 20_500);
    let second = node.checkpoint(CheckpointKind::Fuzzy).unwrap();
    assert!(second.start > first.start);
    assert!(!folder.exists(), "what was left is removed with what is old");
    assert_eq!(fs::read_dir(directory.path().join("checkpoints")).unwrap().count(), 1);
    node.stop().unwrap();
}

#[test]
fn a_standby_joins_from_a_checkpoint_when_the_log_begins_later() {
    for shape in SHAPES {
        let directories: Vec<_> = (0..3).map(|_| tempfile::tempdir().unwrap()).collect();
        let settings = |n: usize| {
            let mut settings = quiet(directories[n].path(), Shape::OneStream);
            settings.checkpoint.dir = (0..=n).map(|k| directories[n].path().join(format!("device-{k}"))).collect();
            NodeConfig { safety: Safety::Quorum(2), ..shape.of_node(n, settings) }
        };
        let primary = start(settings(0));
        let join = Some(primary.address().to_owned());
        let first = start(NodeConfig { join: join.clone(), ..settings(1) });
        let table = primary.database().create_table(&definition()).unwrap().clone();
        churn(primary.database(), &table, 0, 2000);
        // Written while others write: what is changed in the meantime is in the log only.
        let stop = AtomicBool::new(false);
        let checkpoint = std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut from = 100_000;
                while !stop.load(Ordering::SeqCst) {
                    churn(primary.database(), &table, from, from + 200);
                    from += 1000;
                }
            });
            primary.checkpoint(CheckpointKind::Fuzzy).unwrap();
            let checkpoint = primary.checkpoint(CheckpointKind::Fuzzy).unwrap();
            stop.store(true, Ordering::SeqCst);
            checkpoint
        });
        let end = churn(primary.database(), &table, 10_000, 10_500);
        let second = start(NodeConfig { join: join.clone(), ..settings(2) });
        second.wait_visible(end, soon()).unwrap();
        assert_eq!(hash(&second), hash(&primary), "{shape:?}");
        assert_eq!(second.status().checkpoint.unwrap().start, checkpoint.start, "{shape:?}");
        // It lives on as any other standby: restarts, writes checkpoints of its own, takes over.
        let end = churn(primary.database(), &table, 20_000, 20_300);
        second.wait_visible(end, soon()).unwrap();
        let own = second.checkpoint(CheckpointKind::Fuzzy).unwrap();
        assert!(own.start > checkpoint.start);
        second.stop().unwrap();
        drop(second);
        let end = churn(primary.database(), &table, 30_000, 30_300);
        let second = start(NodeConfig { join, ..settings(2) });
        second.wait_visible(end, soon()).unwrap();
        first.wait_visible(end, soon()).unwrap();
        all_are_named(&primary);
        let before = hash(&primary);
        assert_eq!(hash(&second), before, "{shape:?}");
        primary.stop().unwrap();
        drop(primary);
        second.promote(Consent::Nothing).unwrap();
        assert_eq!(hash(&second), before, "{shape:?}");
        let table = second.database().table("things").unwrap().clone();
        let end = churn(second.database(), &table, 40_000, 40_300);
        first.wait_visible(end, soon()).unwrap();
        assert_eq!(hash(&first), hash(&second), "{shape:?}");
        for node in [first, second] {
            node.stop().unwrap();
        }
    }
}

/// What the log has lost to a checkpoint must not be what an older reader needs.
#[test]
fn a_long_reader_of_a_standby_reads_after_its_checkpoint() {
    let directories: Vec<_> = (0..2).map(|_| tempfile::tempdir().unwrap()).collect();
    let settings = |n: usize| {
        let mut settings = quiet(directories[n].path(), Shape::OneStream);
        settings.log.buffer_bytes = 1 << 18;
        NodeConfig { safety: Safety::TwoSafe, ..settings }
    };
    let primary = start(settings(0));
    let standby = start(NodeConfig { join: Some(primary.address().to_owned()), ..settings(1) });
    let table = primary.database().create_table(&definition()).unwrap().clone();
    let worker = primary.database().worker().unwrap();
    let change = |value: u64| {
        let ((), ticket) = worker
            .execute(Isolation::Snapshot, |txn| {
                match txn.get(&table, 0, &7_000_000u64.to_be_bytes())? {
                    Some(old) => drop(txn.update(&table, old.rid, &row(7_000_000, 3, value))?),
                    None => drop(txn.insert(&table, &row(7_000_000, 3, value))?),
                }
                Ok(())
            })
            .unwrap();
        primary.database().wait(ticket).unwrap();
        ticket.until
    };
    change(1);
    let end = churn(primary.database(), &table, 0, 5000);
    standby.wait_visible(end, soon()).unwrap();
    standby.checkpoint(CheckpointKind::Fuzzy).unwrap();
    let theirs = standby.database().table("things").unwrap();
    let long = standby.database().worker().unwrap();
    let long_txn = long.begin_read_only();
    change(2);
    let end = change(3);
    standby.wait_visible(end, soon()).unwrap();
    {
        let short = standby.database().worker().unwrap();
        let txn = short.begin_read_only();
        let seen = txn.get(&theirs, 0, &7_000_000u64.to_be_bytes()).unwrap().unwrap();
        assert_eq!(seen.row, row(7_000_000, 3, 3));
    }
    let seen = long_txn.get(&theirs, 0, &7_000_000u64.to_be_bytes());
    assert_eq!(seen.unwrap().unwrap().row, row(7_000_000, 3, 1));
    drop(long_txn);
}

/// A crash leaves the end of the log in the buffer alone: without it, what was acknowledged is
/// lost, and nobody must overlook that.
#[test]
fn a_buffer_in_persistent_memory_that_is_missing_is_noticed() {
    let directory = tempfile::tempdir().unwrap();
    let buffer = directory.path().join("buffer");
    let node = start(quiet(directory.path(), Shape::Persistent));
    let table = node.database().create_table(&definition()).unwrap().clone();
    churn(node.database(), &table, 0, 700);
    let before = hash(&node);
    node.log().unwrap().crash_for_test();
    drop(table);
    drop(node);
    let elsewhere = directory.path().join("away");
    fs::rename(&buffer, &elsewhere).unwrap();
    for empty in [false, true] {
        if empty {
            fs::write(&buffer, vec![0; fs::metadata(&elsewhere).unwrap().len() as usize]).unwrap();
        }
        let refused = Node::start(quiet(directory.path(), Shape::Persistent), |_| {}).unwrap_err().to_string();
        assert!(refused.contains("is missing or empty, but it held the end of the log"), "{refused}");
    }
    fs::rename(&elsewhere, &buffer).unwrap();
    // Whatever the configuration says now.
    let mut settings = quiet(directory.path(), Shape::Persistent);
    settings.log.buffer_file = Some(directory.path().join("another"));
    let node = start(settings);
    assert_eq!(hash(&node), before);
    node.stop().unwrap();
    drop(node);
    let mut settings = quiet(directory.path(), Shape::Persistent);
    settings.domain = freshet_engine::Domain::File;
    let node = start(settings);
    assert_eq!(hash(&node), before);
    node.stop().unwrap();
}
