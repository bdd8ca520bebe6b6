//! etcd that is reached by TLS, and asks for certificates: Debian's package etcd-server.

use std::{
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use freshet_etcd::{Etcd, EtcdConfig, EtcdError, Tls};
use freshet_testing::{Missing, ports::reserve, skip};
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};

const SOON: Duration = Duration::from_secs(60);
const ASKS: Duration = Duration::from_secs(2);

/// Signs certificates.
struct Authority {
    path: PathBuf,
    issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    fn new(path: PathBuf) -> Self {
        let mut params = CertificateParams::new(vec![]).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        std::fs::write(&path, params.self_signed(&key).unwrap().pem()).unwrap();
        Self { path, issuer: Issuer::new(params, key) }
    }

    /// The files of a certificate for this machine, and of its key.
    fn sign(&self, directory: &Path, name: &str) -> (PathBuf, PathBuf) {
        let (key, files) =
            (KeyPair::generate().unwrap(), ["crt", "key"].map(|end| directory.join(name).with_extension(end)));
        let params = CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap();
        std::fs::write(&files[0], params.signed_by(&key, &self.issuer).unwrap().pem()).unwrap();
        std::fs::write(&files[1], key.serialize_pem()).unwrap();
        let [certificate, key] = files;
        (certificate, key)
    }
}

struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn both_sides_show_certificates() {
    if Command::new("etcd").arg("--version").stdout(Stdio::null()).status().is_err() {
        return skip(Missing::Tool, "etcd by TLS", "etcd is not installed");
    }
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name);
    let (authority, other) = (Authority::new(path("ca.pem")), Authority::new(path("other.pem")));
    let (own, theirs) = (authority.sign(directory.path(), "own"), authority.sign(directory.path(), "theirs"));
    let (endpoint, peer) = (format!("https://{}", reserve().unwrap()), format!("http://{}", reserve().unwrap()));
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL", "etcd", "--client-cert-auth", "--data-dir"]).arg(path("data"));
    command.arg("--cert-file").arg(&theirs.0).arg("--key-file").arg(&theirs.1);
    command.arg("--trusted-ca-file").arg(&authority.path);
    command.args(["--listen-client-urls", &endpoint, "--advertise-client-urls", &endpoint]);
    command.args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer]);
    command.args(["--initial-cluster", &format!("default={peer}")]);
    let log = std::fs::File::create(path("log")).unwrap();
    let _server = Server(command.stdout(log.try_clone().unwrap()).stderr(log).stdin(Stdio::null()).spawn().unwrap());
    let client = |authority: &Authority, own: Option<(PathBuf, PathBuf)>| {
        let tls = Some(Tls { authority: authority.path.clone(), own });
        Etcd::new(EtcdConfig { endpoints: vec![endpoint.clone()], tls, login: None }).unwrap()
    };
    let etcd = client(&authority, Some(own.clone()));
    let deadline = Instant::now() + SOON;
    while let Err(cause) = etcd.read("key", ASKS) {
        let log = std::fs::read_to_string(path("log")).unwrap();
        assert!(Instant::now() < deadline, "{cause}: {log}");
        std::thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(etcd.swap("key", 0, b"one", ASKS), Ok(true));
    assert_eq!(etcd.swap("key", 0, b"two", ASKS), Ok(false), "it has a value");
    let found = etcd.read("key", ASKS).unwrap();
    assert_eq!(found.value.as_deref(), Some(&b"one"[..]));
    assert_eq!(etcd.swap("key", found.revision, b"two", ASKS), Ok(true));
    assert_eq!(etcd.swap("key", found.revision, b"three", ASKS), Ok(false), "another has written");
    for stranger in [client(&other, Some(own)), client(&authority, None)] {
        let refused = stranger.read("key", ASKS);
        assert!(matches!(refused, Err(EtcdError::Silent { .. })), "{refused:?}");
    }
}
