//! Another user of the same machine may do nothing (findings S1 to S5).

mod common;

use std::{
    env, fs,
    io::{BufRead, BufReader, Read},
    os::{
        linux::net::SocketAddrExt,
        unix::{
            fs::PermissionsExt,
            net::{SocketAddr, UnixListener},
            process::CommandExt,
        },
    },
    path::Path,
    process::{Command, Stdio},
};

use common::{connect, create_journal, start, status};
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
    let printed = [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).concat();
    (output.status.success(), printed)
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
        let (succeeded, printed) = as_nobody(&program, arguments);
        assert!(!succeeded, "{arguments:?}: {printed}");
        assert!(
            printed.contains("another user") || printed.contains("this user on this machine"),
            "{arguments:?}: {printed}"
        );
    }
    let _ = std::fs::remove_dir_all(Path::new(place));
    // It leads as before.
    assert!(client.status(common::SOON).unwrap().contains("primary"));
}

/// The names that a squatter takes.
const SQUATS: &str = "FRESHET_TEST_SQUATS";

/// Takes names of local sockets, and keeps them until its input ends: for another user to do.
#[test]
#[ignore = "run by the test below"]
fn squatter() {
    let names = env::var(SQUATS).unwrap();
    let taken: Vec<UnixListener> = names
        .split(',')
        .map(|name| UnixListener::bind_addr(&SocketAddr::from_abstract_name(name).unwrap()).unwrap())
        .collect();
    println!("taken {}", taken.len());
    let _ = std::io::stdin().read_to_end(&mut Vec::new());
}

/// Names that another user has taken keep a node neither from its start nor from its users.
#[test]
fn a_node_starts_where_another_user_has_taken_its_names() {
    let place = tempfile::tempdir().unwrap();
    fs::set_permissions(place.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let program = place.path().join("squatter");
    fs::copy(env::current_exe().unwrap(), &program).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    let (runs, why) = as_nobody(&program, &["--list"]);
    if !runs {
        return skip(Missing::Tool, "names that others take", &format!("the program does not run as another: {why}"));
    }
    let free = || freshet_testing::ports::reserve().unwrap();
    for all in [false, true] {
        let (address, listen) = (free(), free());
        let own = |what: &str, at: std::net::SocketAddr| {
            let first = format!("freshet-{what}-{at}");
            let uid = own_uid();
            let more = (1..if all { 8 } else { 1 }).map(|number| format!("{first}-{uid}-{number}")).collect::<Vec<_>>();
            [vec![first.clone()], more].concat()
        };
        let names = [own("control", address), own("node", listen)].concat();
        let mut squatter = Command::new(&program)
            .args(["--ignored", "--exact", "squatter", "--nocapture"])
            .uid(NOBODY)
            .gid(NOBODY)
            .env_clear()
            .env(SQUATS, names.join(","))
            .current_dir("/")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut printed = BufReader::new(squatter.stdout.take().unwrap()).lines();
        assert!(printed.any(|line| line.unwrap().contains(&format!("taken {}", names.len()))));
        let directory = tempfile::tempdir().unwrap();
        let (address, listen) = (address.to_string(), listen.to_string());
        let node = start(&directory.path().join("a"), &["--address", &address, "--listen", &listen]);
        if !all {
            // By another name the node's user reaches it without a certificate.
            assert_eq!(status(&node)["role"], "primary");
        }
        drop(node);
        drop(squatter.stdin.take());
        squatter.wait().unwrap();
    }
}

/// The number of the user who runs this.
fn own_uid() -> u32 {
    std::os::unix::fs::MetadataExt::uid(&fs::metadata("/proc/self").unwrap())
}
