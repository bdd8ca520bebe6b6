//! SIGHUP: keys that can change do, keys that cannot are named, a file with an error changes
//! nothing, and the node lives.

#[path = "hostile/client.rs"]
#[allow(dead_code, reason = "a part of it is used")]
mod client;
mod common;

use std::{
    fs,
    io::{Read, Write},
    net::{SocketAddr, TcpStream},
    os::unix::{fs::PermissionsExt, net::UnixDatagram},
    path::Path,
    sync::{Arc, mpsc},
    time::{Duration, Instant},
};

use client::Client;
use common::{SOON, flags, program};
use freshet::children::NodeProcess;
use rustix::process::{Pid, Signal, kill_process};
use rustls::{
    ClientConfig, ClientConnection, RootCertStore, crypto::ring::default_provider, pki_types::CertificateDer,
};

fn hang_up(node: &NodeProcess) {
    kill_process(Pid::from_raw(node.pid() as i32).unwrap(), Signal::HUP).unwrap();
}

/// Blocks until the node has written this for the `times`th time.
fn wait_for(node: &NodeProcess, text: &str, times: usize) -> String {
    let deadline = Instant::now() + SOON;
    loop {
        let messages = node.messages();
        if messages.lines().filter(|line| line.contains(text)).count() >= times {
            return messages;
        }
        assert!(Instant::now() < deadline, "it does not say {text:?} {times} times: {messages}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn start(directory: &Path, text: &str) -> NodeProcess {
    fs::write(directory.join("node.toml"), text).unwrap();
    let access = directory.join("access");
    fs::write(&access, "host all all 127.0.0.1/32 trust\n").unwrap();
    let (access, file) = (access.to_str().unwrap(), directory.join("node.toml"));
    let file = file.to_str().unwrap();
    let more = ["--sql-listen", "127.0.0.1:0", "--sql-access", access, "--config", file].map(str::to_owned);
    NodeProcess::start(&program(), flags(&directory.join("a"), &more.each_ref().map(String::as_str)), SOON).unwrap()
}

fn address(node: &NodeProcess) -> SocketAddr {
    node.ready().sql.as_ref().unwrap().parse().unwrap()
}

fn show(node: &NodeProcess, setting: &str) -> String {
    Client::open(address(node), "freshet").unwrap().rows(&format!("SHOW {setting}"))[0][0].clone()
}

#[test]
fn what_can_change_changes_and_what_cannot_is_reported() {
    let directory = tempfile::tempdir().unwrap();
    let node = start(directory.path(), "standby-timeout-ms = 700\n[sql]\nstatement-memory-bytes = 4194304\n");
    assert_eq!(show(&node, "freshet.query_memory"), "4MB");
    let mut old = Client::open(address(&node), "freshet").unwrap();
    let text =
        "standby-timeout-ms = 800\n[log]\nlevel = \"info,engine=debug\"\n[sql]\nstatement-memory-bytes = 8388608\n";
    fs::write(directory.path().join("node.toml"), text).unwrap();
    hang_up(&node);
    let messages = wait_for(&node, "the configuration is reloaded", 1);
    let has = |words: &[&str]| {
        assert!(messages.lines().any(|line| words.iter().all(|word| line.contains(word))), "{words:?}: {messages}")
    };
    has(&["a setting has changed", "key=sql.statement-memory-bytes", "before=4194304", "now=8388608"]);
    has(&["a setting has changed", "key=log.level", "before=info", "now=\"info,engine=debug\""]);
    has(&[" WARN ", "only when the node is started again", "key=standby-timeout-ms", "in_force=700", "configured=800"]);
    has(&["the configuration is reloaded", "changed=2", "waiting=1"]);
    assert_eq!(show(&node, "freshet.query_memory"), "8MB");
    // A session that is there keeps what it began with.
    assert_eq!(old.rows("SHOW freshet.query_memory"), [["4MB"]]);

    // One error, and nothing changes.
    for (times, broken) in
        ["[sql]\nstatement-memory-bytes = 16777216\nnonsense = 1\n", "[sql", "[log]\nlevel = \"loud\"\n"]
            .iter()
            .enumerate()
    {
        fs::write(directory.path().join("node.toml"), broken).unwrap();
        hang_up(&node);
        let messages = wait_for(&node, "the configuration is not reloaded", times + 1);
        let line = messages.lines().rfind(|line| line.contains("is not reloaded")).unwrap();
        assert!(line.contains(" ERROR ") && line.contains("node.toml") && line.contains("everything stays"), "{line}");
    }
    fs::remove_file(directory.path().join("node.toml")).unwrap();
    hang_up(&node);
    wait_for(&node, "the configuration is not reloaded", 4);
    assert_eq!(show(&node, "freshet.query_memory"), "8MB");
}

/// A certificate for 127.0.0.1, in files.
fn certify(directory: &Path) -> CertificateDer<'static> {
    let made = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
    freshet_base::private::write(&directory.join("key.pem"), made.signing_key.serialize_pem().as_bytes()).unwrap();
    fs::write(directory.join("certificate.pem"), made.cert.pem()).unwrap();
    made.cert.der().clone()
}

/// The certificate that the node shows to a client that trusts `trusted` alone; an error if that is
/// another.
fn shown(node: &NodeProcess, trusted: &CertificateDer<'static>) -> Result<CertificateDer<'static>, String> {
    let mut stream = TcpStream::connect(address(node)).unwrap();
    stream.set_read_timeout(Some(SOON)).unwrap();
    stream.write_all(&[0, 0, 0, 8, 4, 210, 22, 47]).unwrap();
    let mut answer = [0];
    stream.read_exact(&mut answer).unwrap();
    assert_eq!(&answer, b"S");
    let mut roots = RootCertStore::empty();
    roots.add(trusted.clone()).unwrap();
    let config =
        ClientConfig::builder_with_provider(Arc::new(default_provider())).with_safe_default_protocol_versions();
    let config = config.unwrap().with_root_certificates(roots).with_no_client_auth();
    let name = "127.0.0.1".try_into().unwrap();
    let mut client = ClientConnection::new(Arc::new(config), name).unwrap();
    while client.is_handshaking() {
        client.complete_io(&mut stream).map_err(|cause| cause.to_string())?;
    }
    Ok(client.peer_certificates().unwrap()[0].clone())
}

#[test]
fn certificates_are_read_again() {
    let directory = tempfile::tempdir().unwrap();
    let first = certify(directory.path());
    let file = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
    let text = format!("[sql]\ntls-certificates = {:?}\ntls-key = {:?}\n", file("certificate.pem"), file("key.pem"));
    let node = start(directory.path(), &text);
    assert_eq!(shown(&node, &first).unwrap(), first);
    // A key that others can read, and one that does not fit, leave everything as it was.
    let second = certify(directory.path());
    fs::set_permissions(file("key.pem"), fs::Permissions::from_mode(0o644)).unwrap();
    hang_up(&node);
    let messages = wait_for(&node, "the configuration is not reloaded", 1);
    assert!(messages.contains("has group or world access"), "{messages}");
    assert_eq!(shown(&node, &first).unwrap(), first);
    fs::set_permissions(file("key.pem"), fs::Permissions::from_mode(0o600)).unwrap();
    hang_up(&node);
    wait_for(&node, "certificates and access file are read again for SQL's clients", 1);
    wait_for(&node, "the configuration is reloaded", 1);
    assert!(shown(&node, &first).is_err());
    assert_eq!(shown(&node, &second).unwrap(), second);
}

/// Whenever it comes: while the node starts, serves, or stops.
#[test]
fn no_hang_up_ends_the_node_and_the_service_manager_is_notified() {
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join("notify");
    let manager = UnixDatagram::bind(&socket).unwrap();
    let (notify, notified) = mpsc::channel();
    // Like a service manager it takes each message at once: the system keeps some ten of them.
    std::thread::spawn(move || {
        let mut bytes = [0; 4096];
        while let Ok(length) = manager.recv(&mut bytes) {
            let _ = notify.send(String::from_utf8(bytes[..length].to_vec()).unwrap());
        }
    });
    let next = || notified.recv_timeout(SOON).unwrap();
    // The script is the node when it begins, and has no handler before the node has one.
    let text = format!(
        "#!/bin/sh\ntrap '' HUP\nexport NOTIFY_SOCKET={}\nexec {} \"$@\"\n",
        socket.display(),
        program().display()
    );
    let script = common::script(directory.path(), &text);
    let mut node = NodeProcess::start(&script, flags(&directory.path().join("a"), &[]), SOON).unwrap();
    assert!(next().starts_with("READY=1\n"));
    for _ in 0..3 {
        hang_up(&node);
        assert!(next().starts_with("RELOADING=1\nMONOTONIC_USEC="));
        assert!(next().starts_with("READY=1\n"));
    }
    (0..100).for_each(|_| hang_up(&node));
    assert!(node.stop(SOON).unwrap().success());
    let last = std::iter::repeat_with(next).find(|text| !text.starts_with("RELOADING") && !text.starts_with("READY"));
    assert_eq!(last.unwrap(), "STOPPING=1\n");
}
