//! Bad input: each ends in one clear message and an error, and nothing is lost.

mod common;

use std::{
    fs,
    os::unix::fs::{FileExt, PermissionsExt},
    path::{Path, PathBuf},
    process::Command,
};

use common::{SOON, connect, create_journal, flags, missing, program, refused, refused_by, start, write};
use freshet::children::NodeProcess;
use freshet_testing::{Missing, skip};
use freshet_workloads::journal::Mark;

/// A log of a node that was stopped, with 3,000 marks.
fn filled(directory: &Path, more: &[&str]) -> Vec<Mark> {
    let mut node = start(directory, more);
    let client = connect(&node);
    create_journal(&client);
    let writer = common::Writer::start(connect(&node), 1);
    writer.wait_for(3_000);
    let written = writer.stop();
    assert!(node.stop(SOON).unwrap().success(), "{}", node.messages());
    written.acknowledged
}

fn segments(directory: &Path) -> Vec<PathBuf> {
    let mut files: Vec<PathBuf> = fs::read_dir(directory)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "segment"))
        .collect();
    files.sort();
    files
}

fn inspect(path: &Path, more: &[&str]) -> (bool, String) {
    let output = Command::new(program()).args(["inspect", "log"]).arg(path).args(more).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap() + &String::from_utf8(output.stderr).unwrap();
    assert!(!text.contains("panicked"), "{text}");
    (output.status.success(), text)
}

#[test]
fn damage_below_the_watermark_stops_the_node_and_is_not_repaired_in_secret() {
    let directory = tempfile::tempdir().unwrap();
    let marks = filled(directory.path(), &[]);
    let (whole, text) = inspect(directory.path(), &["--records"]);
    assert!(whole && text.contains("no damage") && text.contains("insert table"), "{text}");
    let segment = segments(directory.path()).remove(0);
    let file = fs::OpenOptions::new().read(true).write(true).open(&segment).unwrap();
    let mut byte = [0];
    let at = 20_000;
    file.read_exact_at(&mut byte, at).unwrap();
    file.write_all_at(&[byte[0] ^ 0x40], at).unwrap();

    let message = refused(directory.path(), &[]);
    assert!(message.contains(segment.file_name().unwrap().to_str().unwrap()), "{message}");
    let (whole, text) = inspect(directory.path(), &["--summary"]);
    assert!(!whole && text.contains("DAMAGE"), "{text}");
    // Nothing was lost by looking: once the byte is right again, so is everything.
    file.write_all_at(&byte, at).unwrap();
    let node = start(directory.path(), &[]);
    assert_eq!(missing(&connect(&node), &marks), []);
}

#[test]
fn foreign_files_are_not_taken_for_a_log() {
    let directory = tempfile::tempdir().unwrap();
    filled(directory.path(), &[]);
    for (name, bytes) in [("control", &b"something else entirely"[..]), ("00000000000000000000.segment", &[7; 5_000])] {
        let path = directory.path().join(name);
        let before = fs::read(&path).unwrap();
        fs::write(&path, bytes).unwrap();
        let message = refused(directory.path(), &[]);
        assert!(message.contains(name), "{message}");
        fs::write(&path, before).unwrap();
    }
    drop(start(directory.path(), &[]));
    // The log of one cluster within another's directory.
    let other = tempfile::tempdir().unwrap();
    filled(other.path(), &[]);
    let name = "00000000000000000000.segment";
    fs::copy(other.path().join(name), directory.path().join(name)).unwrap();
    let message = refused(directory.path(), &[]);
    assert!(message.contains("cluster"), "{message}");
}

#[test]
fn a_standby_of_another_cluster_is_turned_away() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name);
    let stranger = path("stranger");
    let marks = filled(&stranger, &[]);
    let primary = start(&path("primary"), &[]);
    // It says so, and waits: another cluster may have the address of a member that is down.
    let flags = common::flags(&stranger, &["--join", &primary.ready().listen]);
    let (mut process, _) = freshet::children::Process::spawn(&program(), flags).unwrap();
    common::wait_for_message(&process, "the node to join shows no certificate of this cluster");
    assert!(process.stop(common::SOON).unwrap().success(), "{}", process.messages());
    let node = start(&stranger, &[]);
    assert_eq!(missing(&connect(&node), &marks), []);
}

#[test]
fn directories_that_cannot_be_used_are_named() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("file");
    fs::write(&file, "not a directory").unwrap();
    let message = refused(&file, &[]);
    assert!(message.contains(file.to_str().unwrap()), "{message}");
    let message = refused(&file.join("below"), &[]);
    assert!(message.contains("below") || message.contains("file"), "{message}");
    let (whole, text) = inspect(&directory.path().join("nowhere"), &[]);
    assert!(!whole && text.contains("nowhere"), "{text}");

    let closed = directory.path().join("closed");
    fs::create_dir(&closed).unwrap();
    fs::set_permissions(&closed, fs::Permissions::from_mode(0o0)).unwrap();
    let mut program = program();
    if fs::read_dir(&closed).is_ok() {
        // Permissions mean nothing to this user, but to the node.
        let without = "--bounding-set=-dac_override,-dac_read_search";
        let bounded = format!("exec setpriv {without} {} \"$@\"", program.display());
        program = wrapper(directory.path(), &bounded);
    }
    let probe = Command::new("setpriv").arg("--version").output();
    if program != common::program() && probe.is_err() {
        skip(Missing::Tool, "a directory that cannot be read", "setpriv is not installed");
    } else {
        let message = refused_by(&program, &closed, &[]);
        assert!(message.contains("closed") && message.contains("ermission"), "{message}");
    }
    fs::set_permissions(&closed, fs::Permissions::from_mode(0o700)).unwrap();

    let owned = directory.path().join("owned");
    let _node = start(&owned, &[]);
    let message = refused(&owned, &[]);
    assert!(message.contains("in use by another process"), "{message}");
}

#[test]
fn absurd_options_are_refused_by_name() {
    let directory = tempfile::tempdir().unwrap();
    for (options, text) in [
        (&["--safety", "quorum:0"][..], "quorum"),
        (&["--log-buffer-bytes", "1099511627776"], "buffer-bytes"),
        (&["--join", "nowhere.invalid:1"], "nowhere.invalid"),
        (&["--join", "127.0.0.1:1"], "127.0.0.1:1"),
        (&["--pin", "0"], "--pin"),
        (&["--config", "/nowhere.toml"], "nowhere.toml"),
    ] {
        let message = refused(&directory.path().join("data"), options);
        assert!(message.contains(text), "{options:?}: {message}");
    }
    assert!(!directory.path().join("data").exists(), "nothing is made before all is understood");
}

/// Nothing is made, and nothing is changed, by a node whose ports another one has.
#[test]
fn a_port_in_use_leaves_nothing_behind() {
    let directory = tempfile::tempdir().unwrap();
    let (data, own) = (directory.path().join("data"), directory.path().join("own"));
    let node = start(&data, &["--sql-listen", "127.0.0.1:0", "--sql-socket-directory", "off"]);
    let ready = node.ready();
    for (option, taken) in
        [("--address", &ready.address), ("--listen", &ready.listen), ("--sql-listen", ready.sql.as_ref().unwrap())]
    {
        let new = directory.path().join("new");
        for (place, more) in [(new.join("below"), vec![]), (new.join("standby"), vec!["--join", &ready.listen])] {
            let message = refused(&place, &[&[option, taken.as_str()][..], &more].concat());
            assert!(message.contains(taken.as_str()) && message.contains("in use"), "{option}: {message}");
            assert!(!new.exists(), "{option} leaves something behind");
        }
    }
    // A directory that was there stays as it was, empty or a node's.
    fs::create_dir(&own).unwrap();
    refused(&own, &["--listen", &ready.listen]);
    assert_eq!(fs::read_dir(&own).unwrap().count(), 0);
    drop(start(&own, &[]));
    let control = fs::read(own.join("control")).unwrap();
    refused(&own, &["--sql-listen", ready.sql.as_ref().unwrap()]);
    assert_eq!(fs::read(own.join("control")).unwrap(), control);
    drop(start(&own, &[]));
}

/// A node makes its files in an empty directory, or in one where a start of its own had ended
/// early.
#[test]
fn directories_of_others_are_left_alone() {
    let directory = tempfile::tempdir().unwrap();
    let theirs = directory.path().join("theirs");
    for (name, text) in
        [("PG_VERSION", "PostgreSQL"), ("ibdata1", "ibdata1"), ("lost.segment", "lost.segment"), (".hidden", ".hidden")]
    {
        fs::create_dir(&theirs).unwrap();
        fs::write(theirs.join(name), "15\n").unwrap();
        for more in [&[][..], &["--join", "127.0.0.1:1"]] {
            let message = refused(&theirs, more);
            let directory = theirs.to_str().unwrap();
            assert!(message.contains(text) && message.contains(directory) && message.contains("empty"), "{message}");
        }
        let left: Vec<_> = fs::read_dir(&theirs).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(left, [name]);
        fs::remove_dir_all(&theirs).unwrap();
    }
    // What a crash leaves of a first start, and what a file system has of its own, are not in the
    // way.
    fs::create_dir_all(theirs.join("lost+found")).unwrap();
    fs::write(theirs.join("lock"), "").unwrap();
    fs::write(theirs.join("control.new"), "half").unwrap();
    drop(start(&theirs, &[]));
}

/// A shell script that runs the node in a smaller world.
fn wrapper(directory: &Path, lines: &str) -> PathBuf {
    common::script(directory, &format!("#!/bin/sh\n{lines}\nexec {} \"$@\"\n", program().display()))
}

#[test]
fn a_limit_on_file_sizes_is_an_error_and_not_a_death() {
    let directory = tempfile::tempdir().unwrap();
    let script = wrapper(directory.path(), "ulimit -f 64");
    let data = directory.path().join("data");
    match NodeProcess::start(&script, flags(&data, &[]), SOON) {
        Err(refusal) => {
            let message = refusal.to_string();
            assert!(message.contains("exit status: 1") && message.contains("data"), "{message}");
        }
        Ok(node) => panic!("its files cannot be made: {}", node.messages()),
    }
    // Whatever was begun does not stand in the way of a second attempt.
    let node = start(&data, &[]);
    create_journal(&connect(&node));
}

/// What is in a directory.
fn names(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<String> = entries.collect();
    names.sort();
    names
}

fn checkpoint(node: &NodeProcess) {
    let command = Command::new(program()).args(["checkpoint", "--address", &node.ready().address]).output().unwrap();
    assert!(command.status.success(), "{command:?}");
}

/// A device that is not mounted looks like an empty directory, and a node that is started without
/// its `--log-dir` looks where its log never was: neither is a new node.
#[test]
fn a_log_that_is_not_there_is_no_new_one() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name);
    let (data, log, away, second) = (path("data"), path("log"), path("away"), path("second"));
    let named = ["--log-dir", log.to_str().unwrap()];
    let marks = filled(&data, &named);
    for with_checkpoint in [false, true] {
        if with_checkpoint {
            let node = start(&data, &named);
            checkpoint(&node);
            // As a crash ends it.
            drop(node);
        }
        let before = names(&data);
        fs::rename(&log, &away).unwrap();
        for there in [false, true] {
            if there {
                fs::create_dir(&log).unwrap();
            }
            let message = refused(&data, &named);
            assert!(message.contains(log.to_str().unwrap()) && message.contains("mount"), "{message}");
        }
        assert_eq!(names(&log), [""; 0]);
        let message = refused(&data, &[]);
        assert!(message.contains(data.to_str().unwrap()) && message.contains("log-dir"), "{message}");
        refused(&data, &["--log-dir", second.to_str().unwrap()]);
        assert!(!second.exists());
        assert_eq!(names(&data), before);
        fs::remove_dir(&log).unwrap();
        fs::rename(&away, &log).unwrap();
        let mut node = start(&data, &named);
        assert_eq!(missing(&connect(&node), &marks), []);
        assert!(node.stop(SOON).unwrap().success());
    }
}

/// The same where the log is in the node's directory.
#[test]
fn a_log_that_is_gone_from_the_nodes_directory_is_no_new_one() {
    let directory = tempfile::tempdir().unwrap();
    let (data, other) = (directory.path().join("data"), directory.path().join("other"));
    let marks = filled(&data, &[]);
    let message = refused(&data, &["--log-dir", other.to_str().unwrap()]);
    assert!(message.contains(data.to_str().unwrap()) && message.contains("log-dir"), "{message}");
    assert!(!other.exists());
    let away = directory.path().join("away");
    fs::create_dir(&away).unwrap();
    let gone: Vec<_> =
        names(&data).into_iter().filter(|name| name.ends_with(".segment") || name == "watermark").collect();
    assert!(gone.len() > 1);
    for name in &gone {
        fs::rename(data.join(name), away.join(name)).unwrap();
    }
    let message = refused(&data, &[]);
    assert!(message.contains(data.to_str().unwrap()) && message.contains("join"), "{message}");
    for name in &gone {
        fs::rename(away.join(name), data.join(name)).unwrap();
    }
    let node = start(&data, &[]);
    assert_eq!(missing(&connect(&node), &marks), []);
}

/// Checkpoints go where nothing else is, and stay alone there.
#[test]
fn checkpoint_directories_belong_to_one_node() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name);
    let shared = path("shared");
    let named = ["--checkpoint-dir", shared.to_str().unwrap()];
    let node = start(&path("first"), &named);
    create_journal(&connect(&node));
    write(&connect(&node), 1, 1, SOON).unwrap();
    checkpoint(&node);
    let before = names(&shared);
    let message = refused(&path("second"), &named);
    assert!(message.contains(shared.to_str().unwrap()) && message.contains("another node"), "{message}");
    assert!(!path("second").exists(), "nothing is made before all is looked at");
    assert_eq!(names(&shared), before);
    // A node that is there already is refused in the same way.
    drop(start(&path("second"), &[]));
    let message = refused(&path("second"), &named);
    assert!(message.contains("another node"), "{message}");
    assert_eq!(names(&shared), before);
    drop(node);
    let node = start(&path("first"), &named);
    let marks = [Mark { client: 1, sequence: 1 }];
    assert_eq!(missing(&connect(&node), &marks), []);
    let status = common::status(&node);
    assert!(status["checkpoint"]["start"].is_number(), "it came back from its checkpoint: {status:#}");
    drop(node);

    // What strangers have, whatever its name is.
    let theirs = path("theirs");
    for name in ["checkpoint-00000000000000000001", "checkpoint-mine", "photographs"] {
        fs::create_dir_all(theirs.join(name)).unwrap();
        fs::write(theirs.join(name).join("file"), "theirs").unwrap();
        let message = refused(&path("third"), &["--checkpoint-dir", theirs.to_str().unwrap()]);
        assert!(message.contains(name) && message.contains(theirs.to_str().unwrap()), "{message}");
        assert!(theirs.join(name).join("file").exists() && names(&theirs) == [name]);
        fs::remove_dir_all(&theirs).unwrap();
    }

    // Rows that were moved to another device are the node's own.
    let moved = path("moved");
    freshet_base::private::create_directory(&moved).unwrap();
    for name in names(&shared).iter().filter(|name| name.starts_with("checkpoint-0")) {
        fs::rename(shared.join(name), moved.join(name)).unwrap();
    }
    let node = start(&path("first"), &["--checkpoint-dir", moved.to_str().unwrap()]);
    assert_eq!(missing(&connect(&node), &marks), []);
    assert!(common::status(&node)["checkpoint"]["start"].is_number());
}

/// A node that is refused another node's directory for its log leaves nothing in it.
#[test]
fn a_refused_log_directory_stays_as_it_was() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name);
    let (other, good, theirs) = (path("other"), path("good"), path("theirs"));
    let node = start(&other, &[]);
    fs::create_dir(&theirs).unwrap();
    fs::write(theirs.join("photograph"), "theirs").unwrap();
    // The node may be at work on its own files.
    let its_own = |name: &String| name.ends_with(".new") || name == "acknowledged";
    let kept = || names(&other).into_iter().filter(|name| !its_own(name)).collect::<Vec<_>>();
    let before = kept();
    for foreign in [&other, &theirs] {
        let (good, foreign) = (good.to_str().unwrap(), foreign.to_str().unwrap());
        for more in [&["--log-dir", foreign][..], &["--log-dir", good, "--log-dir", foreign]] {
            let message = refused(&path("new"), more);
            assert!(message.contains(foreign) && message.contains("nothing was changed"), "{message}");
            assert!(!path("new").exists() && !Path::new(good).exists());
        }
    }
    assert_eq!((kept(), names(&theirs)), (before, vec!["photograph".to_owned()]));
    let twice = ["--log-dir", good.to_str().unwrap(), "--log-dir", good.to_str().unwrap()];
    assert!(refused(&path("new"), &twice).contains(good.to_str().unwrap()));
    assert!(!path("new").exists() && !good.exists());
    drop(node);
    drop(start(&other, &[]));
}
