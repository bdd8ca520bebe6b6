//! Another user of the same machine may do nothing (findings S1 to S5).

mod common;

use std::{
    fs,
    os::unix::{fs::PermissionsExt, process::CommandExt},
    path::Path,
    process::Command,
};

use common::{connect, create_journal, start};
use freshet_testing::{Missing, skip};

/// The user without rights that all systems have.
const NOBODY: u32 = 65_534;

/// Runs the program as another user; says whether it succeeded, and what it said.
fn as_nobody(program: &Path, arguments: &[&str]) -> (bool, String) {
    let mut command = Command::new(program);
    command.args(arguments).uid(NOBODY).gid(NOBODY).env_clear().current_dir("/");
    let output = match command.output() {
        Ok(output) => output,
        Err(cause) => return (false, cause.to_string()),
    };
    let said = [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).concat();
    (output.status.success(), said)
}

#[test]
fn another_user_of_the_machine_gets_nothing() {
    // Where every user finds it.
    let place = tempfile::tempdir().unwrap();
    fs::set_permissions(place.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let program = place.path().join("freshet");
    fs::copy(env!("CARGO_BIN_EXE_freshet"), &program).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    let (runs, why) = as_nobody(&program, &["--version"]);
    if !runs {
        return skip(Missing::Tool, "what other users may", &format!("the program does not run as another: {why}"));
    }
    let directory = tempfile::tempdir().unwrap();
    let node = start(&directory.path().join("a"), &[]);
    let client = connect(&node);
    create_journal(&client);
    let (address, listen) = (node.ready().address.as_str(), node.ready().listen.as_str());
    let place = std::env::temp_dir().join(format!("freshet-nobody-{}", std::process::id()));
    let place = place.to_str().unwrap();
    for arguments in [
        &["status", "--address", address][..],
        &["promote", "--force", address],
        &["checkpoint", "--address", address],
        &["token", "--address", address],
        &["backup", "--node", listen, place],
        &["archive", "--node", listen, place],
    ] {
        let (succeeded, said) = as_nobody(&program, arguments);
        assert!(!succeeded, "{arguments:?}: {said}");
        assert!(said.contains("another user") || said.contains("this user on this machine"), "{arguments:?}: {said}");
    }
    let _ = std::fs::remove_dir_all(Path::new(place));
    // It reigns as before.
    assert!(client.status(common::SOON).unwrap().contains("primary"));
}
