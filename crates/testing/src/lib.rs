//! What tests of all crates share. A test that cannot run here says so by [`skip`], so that no test
//! passes silently.
#![forbid(unsafe_code)]

pub mod ports;

use std::{
    env,
    fmt::Display,
    fs::{self, OpenOptions},
    io::{ErrorKind, Write},
    path::{Path, PathBuf},
};

/// Copies a node's directory into another one as a crash would leave it, whatever the node does in
/// the meantime: first the notes of how far the log is, then the control file, which is written
/// before these, then the log.
///
/// # Panics
/// When it cannot.
pub fn copy(from: &Path, to: &Path) {
    let mut files = Vec::new();
    fs::create_dir_all(to).unwrap();
    list(from, to, &mut files);
    let turn = |file: &Path| match file.extension() {
        Some(extension) if extension == "segment" => 2,
        _ => u8::from(file.file_name().is_some_and(|name| name == "control")),
    };
    files.sort_by_key(|(file, _)| (turn(file), file.clone()));
    for (file, target) in files {
        match fs::copy(file, target) {
            // It has its name by now, or is not needed any more.
            Err(cause) if cause.kind() == ErrorKind::NotFound => {}
            copied => _ = copied.unwrap(),
        }
    }
}

/// The files of a directory, and where they go; makes the directories there.
fn list(from: &Path, to: &Path, files: &mut Vec<(PathBuf, PathBuf)>) {
    for path in fs::read_dir(from).unwrap().map(|entry| entry.unwrap().path()) {
        let target = to.join(path.file_name().expect("an entry has a name"));
        if path.is_dir() {
            fs::create_dir_all(&target).unwrap();
            list(&path, &target, files);
        } else {
            files.push((path, target));
        }
    }
}

/// What a test needs and does not find.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Missing {
    /// A program, or a right of this user: `./test` installs the one, and CI has the other.
    Tool,
    /// A part of the machine that cannot be installed: an instruction of the processor, a device.
    Hardware,
}

/// Says that a test, or the part of it that `what` names, does not run because something is
/// missing. The caller leaves that part out. The line goes to the file that FRESHET_SKIPS names,
/// whose lines `./test` prints and counts.
///
/// # Panics
/// Under CI (the variable CI is set), unless it is hardware that is missing; and when the file
/// cannot be written.
pub fn skip(missing: Missing, what: &str, why: &str) {
    let line = format!("{what}: {why}\n");
    print!("skipped: {line}");
    let is_ci = env::var_os("CI").is_some_and(|ci| !ci.is_empty() && ci != "false");
    assert!(missing == Missing::Hardware || !is_ci, "nothing is skipped under CI: {line}");
    if let Some(file) = env::var_os("FRESHET_SKIPS") {
        let opened = OpenOptions::new().create(true).append(true).open(&file);
        // In one piece: other tests write there, too.
        let written = opened.and_then(|mut opened| opened.write_all(line.as_bytes()));
        written.unwrap_or_else(|cause| panic!("cannot write {}: {cause}", file.display()));
    }
}

/// Those of `all` that this machine has, as `has` knows. `what` is done with each; for the others
/// that is skipped.
///
/// # Panics
/// As [`skip`].
pub fn available<T: Display>(what: &str, all: impl IntoIterator<Item = T>, has: impl Fn(&T) -> bool) -> Vec<T> {
    let (here, elsewhere): (Vec<T>, Vec<T>) = all.into_iter().partition(has);
    for missing in elsewhere {
        skip(Missing::Hardware, what, &format!("this machine has no {missing}"));
    }
    here
}
