//! Certificates that an operator provides: their end is told of in time, new ones are taken up
//! while the node runs, and a failover that fails for one says so.

mod common;

use std::{
    path::{Path, PathBuf},
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use common::{SOON, connect, start, status, wait_until};
use freshet::children::NodeProcess;
use freshet_base::Consent;
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use rustix::process::{Pid, Signal, kill_process};

const DAY: u64 = 24 * 3600;

/// Signs certificates.
struct Authority {
    pem: String,
    issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    fn new() -> Self {
        let mut params = CertificateParams::new(vec![]).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        let pem = params.self_signed(&key).unwrap().pem();
        Self { pem, issuer: Issuer::new(params, key) }
    }

    /// Writes the files of a node, whose certificate is valid until then, in seconds from now.
    fn write(&self, files: &Files, node: u64, seconds: i64) {
        let names = vec![format!("{node:016x}.node.freshet"), "node.freshet".to_owned()];
        let mut params = CertificateParams::new(names).unwrap();
        let end = now() as i64 + seconds;
        params.not_before = (SystemTime::UNIX_EPOCH + Duration::from_secs(now() - 400 * DAY)).into();
        params.not_after = (UNIX_EPOCH + Duration::from_secs(end as u64)).into();
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        let contents = [certificate.pem(), key.serialize_pem(), self.pem.clone()];
        for (name, text) in ["node.crt", "node.key", "authority.crt"].iter().zip(contents) {
            freshet_base::private::write(&files.0.join(name), text.as_bytes()).unwrap();
        }
    }
}

fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs()
}

/// The directory with a node's certificate, its key, and the authority's certificate.
#[derive(PartialEq, Eq)]
struct Files(PathBuf);

impl Files {
    fn of(directory: &Path, name: &str) -> Self {
        let own = directory.join(name);
        std::fs::create_dir(&own).unwrap();
        Self(own)
    }

    fn start(&self, directory: &Path, more: &[&str]) -> NodeProcess {
        start(directory, &[&["--member-certificates", self.0.to_str().unwrap()], more].concat())
    }
}

/// Has the node read its files again, and blocks until it has logged that.
fn reload(node: &NodeProcess, text: &str) {
    let times = |messages: &str| messages.lines().filter(|line| line.contains(text)).count();
    let before = times(&node.messages());
    kill_process(Pid::from_raw(node.pid() as i32).unwrap(), Signal::HUP).unwrap();
    let deadline = Instant::now() + SOON;
    while times(&node.messages()) == before {
        assert!(Instant::now() < deadline, "it does not say {text:?}: {}", node.messages());
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_file_that_is_damaged_is_named() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path();
    let (authority, files) = (Authority::new(), Files::of(path, "files"));
    for name in ["node.crt", "node.key", "authority.crt"] {
        authority.write(&files, 1, 10 * DAY as i64);
        let (damaged, junk) = (files.0.join(name), "-----BEGIN CERTIFICATE-----\nno base 64!\n");
        freshet_base::private::write(&damaged, junk.as_bytes()).unwrap();
        let why = common::refused(&path.join("a"), &["--member-certificates", files.0.to_str().unwrap()]);
        assert!(why.contains(damaged.to_str().unwrap()), "{why}");
    }
}

#[test]
fn the_end_of_a_certificate_is_no_surprise() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path();
    let (authority, another) = (Authority::new(), Authority::new());
    let (first, second) = (Files::of(path, "first"), Files::of(path, "second"));
    authority.write(&first, 1, 10 * DAY as i64);
    authority.write(&second, 2, 100 * DAY as i64);
    // Without the primary none takes over.
    let level = ["--safety", "2-safe"];
    let primary = first.start(&path.join("a"), &level);
    common::wait_for_message(&primary, "the certificate of this node ends soon");
    let expires = |node: &NodeProcess| status(node)["certificate_expires"].as_u64().unwrap();
    assert!(expires(&primary) < now() + 11 * DAY);
    let listen = primary.ready().listen.clone();
    let standby = second.start(&path.join("b"), &[&level[..], &["--join", &listen]].concat());
    wait_until(&primary, "a standby in sync", |status| common::in_sync(status) == 1);
    assert!(!standby.messages().contains("ends soon"), "{}", standby.messages());

    authority.write(&first, 1, 200 * DAY as i64);
    reload(&primary, "the certificate of this node was read again");
    assert!(expires(&primary) > now() + 190 * DAY);
    // What nobody would accept is not taken up.
    authority.write(&second, 2, -(DAY as i64));
    reload(&standby, "the configuration is not reloaded");
    authority.write(&second, 3, 100 * DAY as i64);
    reload(&standby, "the configuration is not reloaded");
    assert!(expires(&standby) > now() + 90 * DAY);

    // The connection that is there continues. A failover needs a new one.
    another.write(&second, 2, 100 * DAY as i64);
    reload(&standby, "the certificate of this node was read again");
    let refusal = connect(&standby).promote(Consent::Nothing, SOON).unwrap_err().to_string();
    assert!(refusal.contains("do not force the promotion") && refusal.contains("certificate"), "{refusal}");
    assert!(!refusal.contains("or force"), "{refusal}");
    // An operator exchanges authorities without a stop: both count, then the new one alone.
    let both = [authority.pem.as_str(), &another.pem].concat();
    for (files, node) in [(&first, &primary), (&second, &standby)] {
        let number = if *files == first { 1 } else { 2 };
        authority.write(files, number, 100 * DAY as i64);
        std::fs::write(files.0.join("authority.crt"), &both).unwrap();
        reload(node, "the certificate of this node was read again");
    }
    another.write(&second, 2, 100 * DAY as i64);
    reload(&standby, "the certificate of this node was read again");
    another.write(&first, 1, 100 * DAY as i64);
    reload(&primary, "the certificate of this node was read again");
    connect(&standby).promote(Consent::Nothing, SOON).unwrap();
}
