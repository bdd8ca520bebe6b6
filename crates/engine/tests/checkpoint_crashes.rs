//! Checkpoints that a crash interrupted at any point, or for which there was no room, or whose
//! files are not what was written: the state afterwards is that of a model, by every index, or the
//! node says clearly why it does not start.

mod common;

use std::{
    collections::BTreeMap,
    fs,
    ops::{Bound, ControlFlow},
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    sync::Arc,
    time::Instant,
};

use common::{SHAPES, Shape, config, definition, names, row, soon, start};
use freshet_base::ClusterId;
use freshet_engine::{
    CheckpointKind, CheckpointStatus, Direction, Isolation, Lsn, Node, NodeConfig, Safety, Table, node::StartError,
};
use freshet_log::{LogStore, SegmentStore};
use freshet_recovery::{Manifest, checkpoint::folder};
use freshet_testing::copy;
use tempfile::TempDir;

/// A directory in memory, where there is one: crashes are made of copies here, so nothing depends
/// on the medium, and syncs are most of the time.
fn scratch() -> TempDir {
    tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap()
}

/// What the table must hold: group and value by id.
#[derive(Clone, Debug, Default, PartialEq)]
struct Model(BTreeMap<u64, [u64; 2]>);

/// xorshift.
struct Random(u64);

impl Random {
    fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % n
    }
}

fn table(node: &Node) -> Arc<Table> {
    let database = node.database();
    match database.table("things") {
        Some(table) => table.clone(),
        None => database.create_table(&definition()).unwrap().clone(),
    }
}

impl Model {
    /// Inserts, updates, moves and deletes records, in this many transactions by three workers;
    /// waits until they are committed, and returns where the last one ends.
    fn churn(&mut self, node: &Node, random: &mut Random, transactions: usize) -> Lsn {
        let table = table(node);
        let workers: Vec<_> = (0..3).map(|_| node.database().worker().unwrap()).collect();
        let mut last = None;
        for number in 0..transactions {
            let changes: Vec<_> =
                (0..=random.below(3)).map(|_| (random.below(400), random.below(4), random.below(1000))).collect();
            let ((), ticket) = workers[number % workers.len()]
                .execute(Isolation::Serializable, |txn| {
                    for (id, what, value) in &changes {
                        let found = txn.get(&table, 0, &id.to_be_bytes())?.map(|record| record.rid);
                        match (found, what) {
                            (None, _) => drop(txn.insert(&table, &row(*id, value % 7, *value))?),
                            (Some(rid), 0) => txn.delete(&table, rid)?,
                            (Some(rid), _) => drop(txn.update(&table, rid, &row(*id, value % 7, *value))?),
                        }
                    }
                    Ok(())
                })
                .unwrap();
            for (id, what, value) in changes {
                if self.0.contains_key(&id) && what == 0 {
                    self.0.remove(&id);
                } else {
                    self.0.insert(id, [value % 7, value]);
                }
            }
            last = Some(ticket);
        }
        let ticket = last.expect("something was done");
        node.database().wait(ticket).unwrap();
        ticket.until
    }

    /// The node has exactly these records, by both indexes.
    fn check(&self, node: &Node, context: &str) {
        let table = table(node);
        let worker = node.database().worker().unwrap();
        let txn = worker.begin_read_only();
        for index in 0..2 {
            let mut found = Vec::new();
            txn.scan(&table, index, (Bound::Unbounded, Bound::Unbounded), Direction::Forward, |_, record| {
                let column = |at: usize| u64::from_le_bytes(record.row[at..at + 8].try_into().unwrap());
                found.push((column(0), [column(8), column(16)]));
                ControlFlow::Continue(())
            })
            .unwrap();
            found.sort_unstable();
            let expected: Vec<_> = self.0.iter().map(|(id, row)| (*id, *row)).collect();
            assert!(found == expected, "{context}: by index {index} there are {} records", found.len());
        }
    }
}

/// A node with two devices that writes checkpoints only when asked, keeps no log that it does not
/// need, and has small segments.
fn settings(directory: &Path, shape: Shape) -> NodeConfig {
    let mut config = shape.of_node(1, config(Some(directory)));
    config.checkpoint.interval_s = 0;
    config.checkpoint.keep_log_bytes = 0;
    config.checkpoint.cpu_percent = 100;
    config.checkpoint.dir = devices(directory);
    config.log.segment_bytes = 16 << 10;
    // So that segments get the log also from a buffer in persistent memory.
    config.log.buffer_bytes = 64 << 10;
    // Nothing comes into the log between two looks.
    config.state_proof.interval_ms = 86_400_000;
    config
}

fn devices(directory: &Path) -> Vec<PathBuf> {
    vec![directory.join("one"), directory.join("two")]
}

fn status(node: &Node) -> CheckpointStatus {
    node.status().checkpoint.unwrap()
}

/// Waits until nothing is written to the log any more: after the last commit comes one note of the
/// time. Returns where the log ends.
fn quiet(node: &Node, end: Lsn) -> Lsn {
    let deadline = soon().unwrap();
    while node.status().read_view == end {
        assert!(Instant::now() < deadline, "the time is never noted");
        std::thread::sleep(std::time::Duration::from_millis(2));
    }
    let end = node.status().read_view;
    node.log().unwrap().wait_durable(end, soon()).unwrap();
    end
}

/// The directories of the log's streams.
fn streams(directory: &Path) -> Vec<PathBuf> {
    let below: Vec<_> = (0..).map(|n| directory.join(format!("stream-{n}"))).take_while(|path| path.exists()).collect();
    if below.is_empty() { vec![directory.to_owned()] } else { below }
}

/// A node's directory before and after a checkpoint that nothing was written in the meantime, while
/// an older one was there.
struct Scene {
    shape: Shape,
    before: TempDir,
    after: TempDir,
    older: Lsn,
    newer: Lsn,
    model: Model,
}

impl Scene {
    /// Two notes of the time may come: then it is played again.
    fn play(shape: Shape, random: &mut Random) -> Self {
        (0..20).find_map(|_| Self::try_play(shape, random)).expect("nothing is written meanwhile")
    }

    fn try_play(shape: Shape, random: &mut Random) -> Option<Self> {
        let [live, before, after] = [(); 3].map(|()| scratch());
        let node = start(settings(live.path(), shape));
        let mut model = Model::default();
        model.churn(&node, random, 300);
        let older = node.checkpoint(CheckpointKind::Fuzzy).unwrap().start.unwrap();
        let end = model.churn(&node, random, 500);
        let end = quiet(&node, end);
        copy(live.path(), before.path());
        let status = node.checkpoint(CheckpointKind::Fuzzy).unwrap();
        copy(live.path(), after.path());
        node.stop().unwrap();
        let scene = Self { shape, before, after, older, newer: end, model };
        ((status.start, status.end) == (Some(end), Some(end))).then_some(scene)
    }

    /// What happens to the log, one after the other: a file is written, or a segment goes.
    fn removals(&self) -> Vec<(PathBuf, bool)> {
        let mut steps = Vec::new();
        let pairs = streams(self.before.path()).into_iter().zip(streams(self.after.path()));
        for (before, after) in pairs {
            let here = before.strip_prefix(self.before.path()).unwrap().to_owned();
            let left: Vec<_> = names(&after).into_iter().filter(|name| name.ends_with(".segment")).collect();
            // The note counts what may have come since, which no check reads.
            steps.extend(left.iter().map(String::as_str).chain(["watermark"]).map(|name| (here.join(name), true)));
            let gone = names(&before).into_iter().filter(|name| name.ends_with(".segment") && !left.contains(name));
            steps.extend(gone.map(|name| (here.join(name), false)));
        }
        steps
    }

    /// Every state between before and after, and the checkpoint that counts in it.
    fn states(&self) -> Vec<(String, Lsn, TempDir)> {
        let (before, after) = (self.before.path(), self.after.path());
        let mut states = Vec::new();
        let mut add = |what: String, counts, build: &dyn Fn(&Path)| {
            let state = scratch();
            copy(before, state.path());
            build(state.path());
            states.push((what, counts, state));
        };
        let rows = |state: &Path| {
            for device in ["one", "two"] {
                copy(&folder(&after.join(device), self.newer), &folder(&state.join(device), self.newer));
            }
        };
        let manifest = |directory: &Path, start| Manifest::path(directory, start);
        let install = |state: &Path| {
            rows(state);
            fs::copy(manifest(after, self.newer), manifest(state, self.newer)).unwrap();
        };
        let forget = |state: &Path| {
            install(state);
            fs::remove_file(manifest(state, self.older)).unwrap();
        };
        let older = |state: &Path| [folder(&state.join("one"), self.older), folder(&state.join("two"), self.older)];
        add("nothing yet".into(), self.older, &|_| {});
        add("a folder".into(), self.older, &|state| fs::create_dir(folder(&state.join("one"), self.newer)).unwrap());
        add("rows half written".into(), self.older, &|state| {
            rows(state);
            for (number, name) in names(&folder(&state.join("one"), self.newer)).iter().enumerate() {
                let file = folder(&state.join("one"), self.newer).join(name);
                let bytes = fs::read(&file).unwrap();
                fs::write(&file, &bytes[..bytes.len() * number / 4]).unwrap();
            }
        });
        add("rows".into(), self.older, &rows);
        for part in [0, 1, 2] {
            add(format!("{part}/2 of an unfinished manifest"), self.older, &|state| {
                rows(state);
                let bytes = fs::read(manifest(after, self.newer)).unwrap();
                let unfinished = manifest(state, self.newer).with_extension("unfinished");
                fs::write(unfinished, &bytes[..bytes.len() * part / 2]).unwrap();
            });
        }
        add("the manifest".into(), self.newer, &install);
        add("the older manifest gone".into(), self.newer, &forget);
        add("an older file gone".into(), self.newer, &|state| {
            forget(state);
            let [folder, _] = older(state);
            fs::remove_file(folder.join(&names(&folder)[0])).unwrap();
        });
        add("an older folder gone".into(), self.newer, &|state| {
            forget(state);
            fs::remove_dir_all(&older(state)[0]).unwrap();
        });
        let removals = self.removals();
        assert!(removals.iter().any(|(_, note)| !note), "{:?}: segments go", self.shape);
        for count in 0..=removals.len() {
            add(format!("{count} of {} steps in the log", removals.len()), self.newer, &|state| {
                forget(state);
                older(state).iter().for_each(|folder| fs::remove_dir_all(folder).unwrap());
                for (path, note) in &removals[..count] {
                    match note {
                        true => drop(fs::copy(after.join(path), state.join(path)).unwrap()),
                        false => fs::remove_file(state.join(path)).unwrap(),
                    }
                }
            });
        }
        states
    }
}

/// The node continues: it writes, and its next checkpoint leaves nothing behind of what was there.
fn goes_on(node: Arc<Node>, settings: NodeConfig, mut model: Model, random: &mut Random, context: &str) {
    model.churn(&node, random, 40);
    let start_of_it =
        node.checkpoint(CheckpointKind::Fuzzy).unwrap_or_else(|why| panic!("{context}: {why}")).start.unwrap();
    assert_eq!(status(&node).failure, None, "{context}");
    let directory = settings.directory.clone();
    for device in devices(&directory) {
        let there = [format!("checkpoint-{:020}", start_of_it.0), "checkpoint-device".into()];
        assert_eq!(names(&device), there, "{context}");
    }
    let left: Vec<_> = names(&directory).into_iter().filter(|name| name.starts_with("checkpoint-")).collect();
    assert_eq!(left, [format!("checkpoint-{:020}.manifest", start_of_it.0)], "{context}");
    model.churn(&node, random, 40);
    node.stop().unwrap();
    drop(node);
    let node = start(settings);
    model.check(&node, context);
    assert_eq!(status(&node).start, Some(start_of_it), "{context}");
    node.stop().unwrap();
}

#[test]
fn a_crash_at_any_point_of_a_checkpoint_and_its_clean_up_changes_nothing() {
    let mut random = Random(0x9E37_79B9_7F4A_7C15);
    for shape in SHAPES {
        let scene = Scene::play(shape, &mut random);
        for (number, (what, counts, state)) in scene.states().into_iter().enumerate() {
            let context = format!("{shape:?}, {what}");
            let settings = settings(state.path(), shape);
            let node = Node::start(settings.clone(), |_| {}).unwrap_or_else(|error| panic!("{context}: {error}"));
            scene.model.check(&node, &context);
            assert_eq!(status(&node).start, Some(counts), "{context}");
            // That takes longer, so only some do.
            if number % 3 == 2 {
                goes_on(node, settings, scene.model.clone(), &mut random, &context);
            }
        }
    }
}

fn refused(config: NodeConfig) -> String {
    match Node::start(config, |_| {}) {
        Ok(_) => panic!("it started"),
        Err(error @ (StartError::Restore(_) | StartError::Store(_))) => error.to_string(),
        Err(error) => panic!("{error}"),
    }
}

/// While the older checkpoint and the log from there on are still there, the newer one may be
/// damaged; afterwards it may not.
#[test]
fn the_older_checkpoint_stands_in_for_a_damaged_one_as_long_as_it_can() {
    let mut random = Random(7);
    for shape in [Shape::OneStream, Shape::ThreeStreams] {
        let scene = Scene::play(shape, &mut random);
        let states = scene.states();
        let state = |what: &str| states.iter().find(|(name, ..)| name == what).expect("it is one of them").2.path();
        let both = state("the manifest");
        let newer = folder(&both.join("two"), scene.newer);
        let largest =
            names(&newer).into_iter().max_by_key(|name| fs::metadata(newer.join(name)).unwrap().len()).unwrap();
        let manifest = PathBuf::from(format!("checkpoint-{:020}.manifest", scene.newer.0));
        let rows = Path::new("two").join(format!("checkpoint-{:020}", scene.newer.0)).join(largest);
        let log = |path: &Path| streams(path)[0].clone();
        let flip = |bytes: &mut Vec<u8>, at: usize| bytes[at] ^= 0x10;
        type Damage<'a> = (&'a Path, &'a str, &'a dyn Fn(&mut Vec<u8>));
        let damages: [Damage<'_>; 7] = [
            (&manifest, "its checksum does not hold", &|bytes| flip(bytes, 40)),
            (&manifest, "it does not begin as a manifest does", &|bytes| flip(bytes, 3)),
            (&manifest, "has checkpoint format", &|bytes| flip(bytes, 8)),
            (&manifest, "it is shorter than its header", &|bytes| bytes.clear()),
            (&rows, "is damaged at offset", &|bytes| {
                let middle = bytes.len() / 2;
                flip(bytes, middle);
            }),
            (&rows, "bytes, its manifest says", &|bytes| bytes.truncate(bytes.len() / 2)),
            (&rows, "bytes, its manifest says", &|bytes| bytes.extend([0; 64])),
        ];
        for (file, text, damage) in damages {
            let last = format!("{} of {} steps in the log", scene.removals().len(), scene.removals().len());
            for (what, stands_in) in [("the manifest", true), ("the older manifest gone", false), (&last, false)] {
                let directory = scratch();
                copy(state(what), directory.path());
                let mut bytes = fs::read(directory.path().join(file)).unwrap();
                damage(&mut bytes);
                fs::write(directory.path().join(file), bytes).unwrap();
                let context = format!("{shape:?}, {what}, {}: {text}", file.display());
                let settings = settings(directory.path(), shape);
                if stands_in {
                    let node = start(settings);
                    scene.model.check(&node, &context);
                    assert_eq!(status(&node).start, Some(scene.older), "{context}");
                } else {
                    let before = names(&log(directory.path()));
                    let message = refused(settings);
                    let name = file.file_name().unwrap().to_str().unwrap();
                    assert!(message.contains(text) && message.contains(name), "{context}: {message}");
                    assert_eq!(names(&log(directory.path())), before, "{context}: nothing is repaired in secret");
                }
            }
        }
        // The log begins before the older checkpoint, but not at the beginning: without any
        // checkpoint nothing is left to try.
        let directory = scratch();
        copy(both, directory.path());
        for start in [scene.older, scene.newer] {
            fs::remove_file(Manifest::path(directory.path(), start)).unwrap();
        }
        let message = refused(settings(directory.path(), shape));
        assert!(message.contains("there is no checkpoint"), "{message}");
    }
}

/// Mistakes in setting the directory up: nothing older is looked for.
#[test]
fn a_checkpoint_that_is_not_this_nodes_is_refused_by_name() {
    let mut random = Random(11);
    let scene = Scene::play(Shape::OneStream, &mut random);
    let directory = scratch();
    copy(scene.after.path(), directory.path());
    let plain = settings(directory.path(), Shape::OneStream);
    let newer = Manifest::read(&Manifest::path(directory.path(), scene.newer)).unwrap();
    let foreign = |start: Lsn| {
        Manifest::new(ClusterId(0xF0_0D), start, start, newer.time, newer.devices, newer.tables.clone()).encode()
    };
    // Newer than its own: what the operator meant is not known.
    let (newest, oldest) = (Lsn(scene.newer.0 + 8), Lsn(8));
    fs::write(Manifest::path(directory.path(), newest), foreign(newest)).unwrap();
    let message = refused(plain.clone());
    assert!(
        message.contains("is a checkpoint of cluster") && message.contains(&format!("{:020}", newest.0)),
        "{message}"
    );
    fs::remove_file(Manifest::path(directory.path(), newest)).unwrap();
    // In place of its own.
    fs::write(Manifest::path(directory.path(), scene.newer), foreign(scene.newer)).unwrap();
    assert!(refused(plain.clone()).contains("is a checkpoint of cluster"));
    fs::write(Manifest::path(directory.path(), scene.newer), newer.encode()).unwrap();
    // A device is missing in the configuration.
    let mut fewer = plain.clone();
    fewer.checkpoint.dir.pop();
    let message = refused(fewer);
    assert!(message.contains("its rows are on 2 devices, 1 are configured"), "{message}");
    // Devices in another order.
    let mut swapped = plain.clone();
    swapped.checkpoint.dir.reverse();
    let message = refused(swapped);
    assert!(message.contains("cannot open") && message.contains(".rows"), "{message}");
    // Older than its own: nobody needs it, and the next checkpoint removes it.
    fs::write(Manifest::path(directory.path(), oldest), foreign(oldest)).unwrap();
    let node = start(plain.clone());
    scene.model.check(&node, "after all this");
    goes_on(node, plain, scene.model.clone(), &mut random, "after all this");
}

/// Files that a crash leaves half-made beside the log: a segment that has no name yet, one that is
/// made ahead and not used, and the small ones.
#[test]
fn what_was_being_made_in_a_crash_does_not_count() {
    let mut random = Random(13);
    for shape in SHAPES {
        let live = scratch();
        let node = start(settings(live.path(), shape));
        let mut model = Model::default();
        model.churn(&node, &mut random, 200);
        node.checkpoint(CheckpointKind::Fuzzy).unwrap();
        model.churn(&node, &mut random, 100);
        let directory = scratch();
        copy(live.path(), directory.path());
        node.stop().unwrap();
        for stream in streams(directory.path()) {
            let last = names(&stream).into_iter().rfind(|name| name.ends_with(".segment")).unwrap();
            let start: u64 = last.strip_suffix(".segment").unwrap().parse().unwrap();
            let bytes = fs::read(stream.join(&last)).unwrap();
            // Its name comes after its first bytes: half of it, or all of it, without a name.
            let next = format!("{:020}.segment", start + (16 << 10));
            fs::write(stream.join(format!("{next}.new")), &bytes[..5000]).unwrap();
            fs::write(stream.join(format!("{last}.new")), &bytes).unwrap();
            for small in ["watermark.new", "pepoch.new", "cut.new", "stream.new"] {
                fs::write(stream.join(small), [0xAB; 100]).unwrap();
            }
            fs::write(stream.join(next), empty_segment(&bytes, start + (16 << 10))).unwrap();
        }
        fs::write(directory.path().join("control.new"), "fresh").unwrap();
        let context = format!("{shape:?}");
        let settings = settings(directory.path(), shape);
        let node = start(settings.clone());
        model.check(&node, &context);
        // Beyond what was half-made.
        model.churn(&node, &mut random, 300);
        goes_on(node, settings, model, &mut random, &context);
    }
}

/// An empty segment that starts at `start`, made from another one's header.
fn empty_segment(other: &[u8], start: u64) -> Vec<u8> {
    let mut bytes = vec![0; other.len()];
    bytes[..4096].copy_from_slice(&other[..4096]);
    bytes[40..48].copy_from_slice(&start.to_le_bytes());
    let crc = crc32c::crc32c(&bytes[..48]);
    bytes[48..52].copy_from_slice(&crc.to_le_bytes());
    bytes
}

/// The streams are durable beyond the epoch that is on record: what was in between was never told
/// to anybody. It goes, unless the streams have noted (as an anchor) that all of them have it.
#[test]
fn a_log_ends_with_the_persistent_epoch_or_where_all_streams_have_noted() {
    let mut random = Random(17);
    for (streams, notes_are_older) in [(1, true), (1, false), (2, true), (2, false)] {
        let settings = |directory: &Path| {
            let mut settings = settings(directory, Shape::Epochs);
            settings.log.streams = streams;
            settings
        };
        let live = scratch();
        let node = start(settings(live.path()));
        let mut model = Model::default();
        model.churn(&node, &mut random, 200);
        let checkpoint = node.checkpoint(CheckpointKind::Fuzzy).unwrap();
        let end = model.churn(&node, &mut random, 100);
        let end = quiet(&node, end);
        let then = scratch();
        copy(live.path(), then.path());
        let mut models = vec![(end, model.clone())];
        for _ in 0..50 {
            let end = model.churn(&node, &mut random, 1);
            models.push((end, model.clone()));
        }
        quiet(&node, models.last().unwrap().0);
        let directory = scratch();
        copy(live.path(), directory.path());
        node.stop().unwrap();
        for (number, stream) in self::streams(directory.path()).iter().enumerate() {
            let old = &self::streams(then.path())[number];
            let set_back = |name| _ = fs::copy(old.join(name), stream.join(name)).unwrap();
            if number == 0 {
                set_back("pepoch");
            }
            if notes_are_older {
                set_back("watermark");
            }
        }
        if notes_are_older {
            fs::copy(then.path().join("control"), directory.path().join("control")).unwrap();
        }
        let context = format!("{streams} streams, older notes: {notes_are_older}");
        let settings = settings(directory.path());
        let node = start(settings.clone());
        let cut = node.torn().map(|torn| torn.at);
        if streams == 1 || notes_are_older {
            assert!(cut.is_some_and(|cut| (end..models[1].0).contains(&cut)), "{context}: {cut:?}, not {end}");
        }
        let (_, known) = models.into_iter().rfind(|(end, _)| cut.is_none_or(|cut| *end <= cut)).unwrap();
        known.check(&node, &context);
        assert_eq!(status(&node).start, checkpoint.start);
        goes_on(node, settings, known, &mut random, &context);
    }
}

/// A disk that is full: the file that cannot be written is `/dev/full` under its name, where every
/// write finds no space left on the device, as root too. For the rows of the catalog, of a table on
/// the second device, and for the manifest.
#[test]
fn a_checkpoint_without_room_fails_and_the_next_one_finds_some() {
    let mut random = Random(19);
    let directory = scratch();
    let settings = settings(directory.path(), Shape::ThreeStreams);
    let node = start(settings.clone());
    let mut model = Model::default();
    model.churn(&node, &mut random, 200);
    let fid = table(&node).fid().0;
    let mut counts = node.checkpoint(CheckpointKind::Fuzzy).unwrap();
    let [one, two] = [directory.path().join("one"), directory.path().join("two")];
    for round in 0..4 {
        // On a busy machine the time may be noted once more, and the checkpoint begins behind that.
        let (next, full, failure) = loop {
            let end = model.churn(&node, &mut random, 50);
            let next = quiet(&node, end);
            let full = match round {
                0 => folder(&one, next).join("0-0-0.rows"),
                1 => folder(&two, next).join(format!("{fid}-1-1.rows")),
                _ => Manifest::path(directory.path(), next).with_extension("unfinished"),
            };
            fs::create_dir_all(full.parent().unwrap()).unwrap();
            symlink("/dev/full", &full).unwrap();
            match node.checkpoint(CheckpointKind::Fuzzy) {
                Err(failure) => break (next, full, failure),
                Ok(other) => {
                    assert_ne!(other.start, Some(next), "it was written where there is no room");
                    // The folder of a checkpoint that does not exist is removed by the next one.
                    let _ = fs::remove_file(&full);
                    counts = other;
                }
            }
        };
        let file = full.file_stem().unwrap().to_str().unwrap();
        assert!(failure.contains("No space left on device") && failure.contains(file), "{failure}");
        let shown = status(&node);
        assert_eq!(shown.failure.as_deref(), Some(&*failure));
        assert_eq!((shown.start, shown.under_way, shown.installed), (counts.start, None, counts.installed));
        // What was half-written takes no room, and the one before is whole.
        assert!(!folder(&one, next).exists() && !folder(&two, next).exists() && fs::symlink_metadata(&full).is_err());
        let now = scratch();
        copy(directory.path(), now.path());
        let other = start(self::settings(now.path(), Shape::ThreeStreams));
        model.check(&other, "a crash now");
        assert_eq!(status(&other).start, counts.start);
        other.stop().unwrap();
        // It serves, and still tells.
        model.churn(&node, &mut random, 50);
        model.check(&node, "after the failure");
        assert!(status(&node).failure.is_some());
        if round < 3 {
            let begun = counts.start;
            counts = node.checkpoint(CheckpointKind::Fuzzy).unwrap();
            assert_eq!(counts.failure, None);
            assert!(counts.start > begun);
        }
    }
    // Without another one, the last that could be written and the log since then are enough.
    node.stop().unwrap();
    drop(node);
    let node = start(settings.clone());
    model.check(&node, "after the last failure");
    goes_on(node, settings, model, &mut random, "after the last failure");
}

/// A device that is not mounted any more: something else is where its directory was.
#[test]
fn a_checkpoint_without_its_device_fails_and_the_next_one_finds_it() {
    let mut random = Random(23);
    let directory = scratch();
    let settings = settings(directory.path(), Shape::OneStream);
    let node = start(settings.clone());
    let mut model = Model::default();
    model.churn(&node, &mut random, 200);
    let counts = node.checkpoint(CheckpointKind::Fuzzy).unwrap();
    let (two, away) = (directory.path().join("two"), directory.path().join("away"));
    fs::rename(&two, &away).unwrap();
    fs::write(&two, b"no directory").unwrap();
    for _ in 0..2 {
        model.churn(&node, &mut random, 50);
        let failure = node.checkpoint(CheckpointKind::Fuzzy).unwrap_err();
        assert!(failure.contains("two") && failure.contains("cannot make"), "{failure}");
        let shown = status(&node);
        assert_eq!((shown.failure.as_deref(), shown.start), (Some(&*failure), counts.start));
    }
    model.check(&node, "without the device");
    // It comes back with what was on it.
    fs::remove_file(&two).unwrap();
    fs::rename(&away, &two).unwrap();
    let now = scratch();
    copy(directory.path(), now.path());
    let other = start(self::settings(now.path(), Shape::OneStream));
    model.check(&other, "a crash now");
    other.stop().unwrap();
    goes_on(node, settings, model, &mut random, "with the device");
}

/// A standby that begins from its primary's checkpoint and dies in between: it comes up, whatever
/// was there, and follows.
#[test]
fn a_standby_that_died_while_it_began_from_a_checkpoint_joins_in_the_end() {
    let mut random = Random(29);
    for (shape, count) in [(Shape::OneStream, 1), (Shape::ThreeStreams, 3)] {
        let home = scratch();
        let settings = |directory: &Path| {
            let mut settings = NodeConfig { safety: Safety::OneSafe, ..settings(directory, shape) };
            // The log since the beginning does not fit in it.
            settings.log.buffer_bytes = 128 << 10;
            settings
        };
        let primary = start(settings(home.path()));
        let mut model = Model::default();
        model.churn(&primary, &mut random, 1200);
        // One that needs no log: nothing was noted in that while it was written.
        let checkpoints = std::iter::repeat_with(|| primary.checkpoint(CheckpointKind::Fuzzy).unwrap());
        let checkpoint = checkpoints.take(100).find(|it| it.start == it.end).unwrap().start.unwrap();
        for stream in streams(home.path()) {
            assert!(
                !stream.join(format!("{:020}.segment", 0)).exists(),
                "the log does not begin at the beginning any more"
            );
        }
        let mut end = model.churn(&primary, &mut random, 50);
        let follow =
            |directory: &Path| start(NodeConfig { join: Some(primary.address().to_owned()), ..settings(directory) });
        let begun = scratch();
        let standby = follow(begun.path());
        standby.wait_visible(end, soon()).unwrap();
        assert_eq!(status(&standby).start, Some(checkpoint), "it began from there");
        standby.stop().unwrap();
        drop(standby);
        // As it was when the checkpoint had come, and nothing of the log.
        for stream in streams(begun.path()) {
            let log = names(&stream).into_iter().filter(|name| name.ends_with(".segment") || name == "watermark");
            log.for_each(|name| fs::remove_file(stream.join(name)).unwrap());
        }
        let node = freshet_log::LogDirectory::open(begun.path()).unwrap();
        node.update(|control| (control.log, control.reached) = (None, None)).unwrap();
        drop(node);
        let control = freshet_log::control::read_control(begun.path()).unwrap();
        let segments = |directory: &Path| {
            fs::create_dir_all(directory).unwrap();
            SegmentStore::open_directory(directory, control.store_config()).unwrap()
        };
        let log = |directory: &Path, n: usize| {
            if count == 1 { directory.to_owned() } else { directory.join(format!("stream-{n}")) }
        };
        // What says that it is not one of the cluster's nodes yet, and where its log begins.
        let joining = |directory: &Path| fs::write(directory.join("joining"), format!("{}\n", checkpoint.0)).unwrap();
        type Build<'a> = (&'a str, &'a dyn Fn(&Path));
        let states: [Build<'_>; 6] = [
            ("a checkpoint", &|_| {}),
            ("half of its rows", &|directory| {
                joining(directory);
                fs::remove_file(Manifest::path(directory, checkpoint)).unwrap();
                let rows = folder(&directory.join("one"), checkpoint);
                let file = rows.join(&names(&rows)[0]);
                let bytes = fs::read(&file).unwrap();
                fs::write(file, &bytes[..bytes.len() / 2]).unwrap();
            }),
            ("its rows and no manifest", &|directory| {
                joining(directory);
                let manifest = Manifest::path(directory, checkpoint);
                fs::rename(&manifest, manifest.with_extension("unfinished")).unwrap();
            }),
            ("a watermark without a segment", &|directory| {
                joining(directory);
                let store = segments(&log(directory, 0));
                store.resume(if count == 1 { checkpoint } else { Lsn(0) }).unwrap();
                let log = log(directory, 0);
                let made = names(&log).into_iter().filter(|name| name.ends_with(".segment"));
                made.for_each(|name| fs::remove_file(log.join(name)).unwrap());
            }),
            ("a stream that is not noted", &|directory| {
                joining(directory);
                segments(&log(directory, 0)).resume(if count == 1 { checkpoint } else { Lsn(0) }).unwrap();
            }),
            ("all streams but one", &|directory| {
                joining(directory);
                let stores: Vec<_> = (0..count.max(2) - 1).map(|n| segments(&log(directory, n))).collect();
                LogStore::of(stores).resume(checkpoint).unwrap();
            }),
        ];
        for (what, build) in states {
            let context = format!("{shape:?}, {what}");
            let directory = scratch();
            copy(begun.path(), directory.path());
            build(directory.path());
            let standby = follow(directory.path());
            let seen = standby.wait_visible(end, soon());
            assert!(seen.is_ok(), "{context}: {:?}", standby.status().role);
            model.check(&standby, &context);
            // It is a standby as any other.
            end = model.churn(&primary, &mut random, 20);
            let seen = standby.wait_visible(end, soon());
            assert!(seen.is_ok(), "{context}: {:?}", standby.status().role);
            standby.stop().unwrap();
            drop(standby);
            let standby = follow(directory.path());
            standby.wait_visible(end, soon()).unwrap();
            model.check(&standby, &context);
            standby.stop().unwrap();
            drop(standby);
            // Without the checkpoint its log is no state: it says what is wrong with that, not with
            // the log.
            let rows = folder(&directory.path().join("one"), checkpoint);
            fs::remove_file(rows.join(&names(&rows)[0])).unwrap();
            let message =
                refused(NodeConfig { join: Some(primary.address().to_owned()), ..settings(directory.path()) });
            assert!(message.contains("cannot open") && message.contains(".rows"), "{context}: {message}");
        }
        primary.stop().unwrap();
    }
}

/// Record ids are used again and again, before a restart and after it. Entries of the record that
/// had one before are left over in the indexes then, and do not stand in the way of the same key
/// under the same id.
#[test]
fn keys_and_record_ids_meet_again_after_a_restart() {
    let directory = scratch();
    for round in 0..3 {
        let node = start(settings(directory.path(), Shape::OneStream));
        let table = table(&node);
        let worker = node.database().worker().unwrap();
        let mut last = None;
        for turn in 0..600u64 {
            let id = turn * (round + 7) % 31;
            let done = worker.execute(Isolation::Serializable, |txn| {
                let found = txn.get(&table, 0, &id.to_be_bytes())?.map(|record| record.rid);
                match found {
                    Some(rid) => txn.delete(&table, rid),
                    None => txn.insert(&table, &row(id, id % 3, turn)).map(drop),
                }?;
                Ok(())
            });
            let ((), ticket) = done.unwrap_or_else(|error| panic!("round {round}, turn {turn}, id {id}: {error}"));
            last = Some(ticket);
        }
        node.database().wait(last.unwrap()).unwrap();
        drop(worker);
        node.stop().unwrap();
    }
}
