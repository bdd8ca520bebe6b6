//! What a node keeps is its user's alone, whatever the umask, and what others can read is refused.

mod common;

use std::{
    fs::{self, Permissions},
    os::unix::fs::{MetadataExt, PermissionsExt},
    path::{Path, PathBuf},
    process::Command,
};

use common::{SOON, connect, create_journal, flags, program, refused, start, write};
use freshet::children::NodeProcess;

/// Everything below a directory, and itself, that others than its user can use, with its mode.
fn open_to_others(directory: &Path) -> Vec<(PathBuf, String)> {
    let (mut open, mut todo) = (Vec::new(), vec![directory.to_owned()]);
    while let Some(path) = todo.pop() {
        let found = fs::symlink_metadata(&path).unwrap();
        if found.mode() & 0o077 != 0 {
            open.push((path.clone(), format!("{:o}", found.mode() & 0o7777)));
        }
        if found.is_dir() {
            todo.extend(fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
        }
    }
    open
}

/// A node with this umask, whatever that of the test is.
fn start_with_umask(scripts: &Path, umask: &str, directory: &Path, more: &[&str]) -> NodeProcess {
    let script = common::script(scripts, &format!("#!/bin/sh\numask {umask}\nexec {} \"$@\"\n", program().display()));
    NodeProcess::start(&script, flags(directory, more), SOON).unwrap()
}

fn run(umask: &str, arguments: &[&str]) {
    let command = format!("umask {umask}; exec {} \"$@\"", program().display());
    let output = Command::new("/bin/sh").args(["-c", &command, "sh"]).args(arguments).output().unwrap();
    assert!(output.status.success(), "{output:?}");
}

fn set(path: &Path, mode: u32) {
    fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
}

#[test]
fn what_is_made_is_its_users_alone() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name);
    let (data, log, rows) = (path("a/data"), path("log"), path("rows"));
    let (backup, restored, standby) = (path("backup"), path("restored"), path("standby"));
    let more = [("--log-dir", &log), ("--checkpoint-dir", &rows)];
    let more: Vec<&str> = more.iter().flat_map(|(flag, path)| [*flag, path.to_str().unwrap()]).collect();
    let node = start_with_umask(directory.path(), "000", &data, &[&more[..], &["--domain", "pmem"]].concat());
    create_journal(&connect(&node));
    write(&connect(&node), 1, 1, SOON).unwrap();
    run("000", &["checkpoint", "--address", &node.ready().address]);
    run("000", &["backup", "--node", &node.ready().listen, backup.to_str().unwrap()]);
    run("000", &["restore", "--backup", backup.to_str().unwrap(), restored.to_str().unwrap()]);
    let _standby = start_with_umask(directory.path(), "000", &standby, &["--join", &node.ready().listen]);
    for made in [path("a"), log, rows, backup, restored, standby] {
        assert_eq!(open_to_others(&made), []);
    }
}

#[test]
fn what_others_can_read_is_refused_before_anything_is_changed() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name);
    let (data, log, rows) = (path("data"), path("log"), path("rows"));
    let text = |path: &Path| path.to_str().unwrap().to_owned();
    let more = ["--log-dir", &text(&log), "--checkpoint-dir", &text(&rows)];
    let node = start(&data, &more);
    create_journal(&connect(&node));
    run("077", &["checkpoint", "--address", &node.ready().address]);
    drop(node);
    let control = fs::read(data.join("control")).unwrap();
    for kept in [&data, &log, &rows] {
        for mode in [0o755, 0o750, 0o711] {
            set(kept, mode);
            let message = refused(&data, &more);
            let command = format!("chmod 700 {}", kept.display());
            assert!(message.contains(&command) && message.contains("nothing was changed"), "{message}");
        }
        set(kept, 0o700);
        // As an older version has made it.
        let file = fs::read_dir(kept).unwrap().map(|entry| entry.unwrap().path()).find(|path| path.is_file()).unwrap();
        set(kept, 0o755);
        set(&file, 0o644);
        let message = refused(&data, &more);
        let command = format!("chmod -R go= {}", kept.display());
        assert!(message.contains(&command) && message.contains(file.to_str().unwrap()), "{message}");
        assert!(Command::new("/bin/sh").args(["-c", &command]).status().unwrap().success());
    }
    assert_eq!(fs::read(data.join("control")).unwrap(), control);
    drop(start(&data, &more));
}

/// As `mkdir` makes it, or what mounts a volume.
#[test]
fn an_empty_directory_is_taken_and_made_private() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name);
    let (data, log, rows) = (path("data"), path("log"), path("rows"));
    for empty in [&data, &log, &rows] {
        fs::create_dir(empty).unwrap();
        set(empty, 0o755);
    }
    fs::create_dir(log.join("lost+found")).unwrap();
    set(&log.join("lost+found"), 0o700);
    let more = ["--log-dir", log.to_str().unwrap(), "--checkpoint-dir", rows.to_str().unwrap()];
    for _ in 0..2 {
        drop(start(&data, &more));
        assert_eq!([&data, &log, &rows].map(|path| open_to_others(path)), [[], [], []]);
    }
}

#[test]
fn a_directory_of_another_user_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().join("data");
    fs::create_dir(&data).unwrap();
    set(&data, 0o700);
    if std::os::unix::fs::chown(&data, Some(65_534), None).is_err() {
        let why = "this user cannot give files away";
        return freshet_testing::skip(freshet_testing::Missing::Tool, "a directory of another user", why);
    }
    let message = refused(&data, &[]);
    assert!(message.contains("belongs to user 65534") && message.contains("chown -R"), "{message}");
    assert_eq!(fs::read_dir(&data).unwrap().count(), 0);
}

#[test]
fn a_key_that_others_can_read_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let (data, certificate, key) =
        (directory.path().join("data"), directory.path().join("certificate.pem"), directory.path().join("key.pem"));
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    fs::write(&certificate, made.cert.pem()).unwrap();
    fs::write(&key, made.signing_key.serialize_pem()).unwrap();
    let (certificate, key_path) = (certificate.to_str().unwrap(), key.to_str().unwrap());
    let more = ["--sql-listen", "127.0.0.1:0", "--sql-tls-certificates", certificate, "--sql-tls-key", key_path];
    set(&key, 0o644);
    let message = refused(&data, &more);
    let text = format!("private key file \"{key_path}\" has group or world access");
    assert!(message.contains(&text) && message.contains("0600"), "{message}");
    assert!(!data.exists());
    set(&key, 0o600);
    drop(start(&data, &more));
}
