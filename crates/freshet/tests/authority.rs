//! A node that was removed has the authority's key of then, and signs with it what it likes. The
//! cluster has another authority by then, and lets in none of that.

mod common;

use std::{
    fs,
    io::{self, Read, Write},
    net::TcpStream,
    path::{Path, PathBuf},
    process::Command,
    sync::Arc,
    time::{Duration, UNIX_EPOCH},
};

use common::{Archive, SOON, connect, create_journal, in_sync, program, refused, start, status, wait_until, write};
use freshet::{
    children::{NodeProcess, Ready},
    client::Client,
};
use freshet_base::{ClusterId, Consent, NodeId};
use freshet_membership::{Authority, Credentials, Enrolled, Grant, Identity, NewKey};
use rcgen::{CertificateParams, DistinguishedName, DnType, Issuer, KeyPair};
use rustls::{
    ClientConfig, ClientConnection, DigitallySignedStruct, SignatureScheme,
    client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    crypto::ring::default_provider,
    pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime, pem::PemObject},
};
use serde_json::Value;

/// What `freshet` prints with these words, and whether it succeeded.
fn run(words: &[&str]) -> (bool, String) {
    let (code, text) = common::run(words);
    (code == Some(0), text)
}

fn done(words: &[&str]) -> String {
    let (done, text) = run(words);
    assert!(done, "{words:?}: {text}");
    text
}

fn remove(primary: &NodeProcess, who: &str) {
    done(&["remove", "--address", &primary.ready().address, who]);
}

fn id(node: &NodeProcess) -> NodeId {
    NodeId(u64::from_str_radix(status(node)["node"].as_str().unwrap(), 16).unwrap())
}

fn copy(from: &Path, to: &Path) {
    assert!(Command::new("cp").arg("-a").args([from, to]).status().unwrap().success());
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// The certificate of the authority in a node's directory.
fn authority(directory: &Path) -> String {
    fs::read_to_string(directory.join("membership/authority.crt")).unwrap()
}

/// The node has a certificate by the authority of this generation, and shows it.
fn wait_for_authority(node: &NodeProcess, generation: u64) {
    wait_until(node, &format!("authority {generation}"), |status| {
        status["authority"] == generation && status["certificate_trouble"] == Value::Null
    });
}

/// One who does not look at what others show.
#[derive(Debug)]
struct Blind;

impl ServerCertVerifier for Blind {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        default_provider().signature_verification_algorithms.supported_schemes()
    }
}

/// Credentials in a directory, as their holder shows them to others.
struct Shows {
    directory: PathBuf,
}

impl Shows {
    /// Signed by hand, with the key in the directory of a node.
    fn signed(by: &Path, who: Identity, directory: PathBuf) -> Self {
        let read = |name: &str| fs::read_to_string(by.join("membership").join(name)).unwrap();
        let (certificate, authority_key) = (read("authority.crt"), read("authority.key"));
        let authority = Authority::from_pem(&certificate, &authority_key).unwrap();
        let key = NewKey::generate().unwrap();
        let signed = Enrolled {
            cluster: ClusterId(0),
            identity: who,
            certificate: authority.issue(who, &key.public()).unwrap(),
            authority: certificate,
            authority_key: Some(authority_key),
        };
        fs::create_dir(&directory).unwrap();
        Credentials::enrolled(signed, &key).unwrap().write(&directory).unwrap();
        Self { directory }
    }

    fn file(&self, name: &str) -> PathBuf {
        self.directory.join("membership").join(name)
    }

    /// Whether the node that listens there lets it in: it hears nothing, or that the connection
    /// ends since it says nothing; else that its certificate counts for nothing.
    fn is_let_in(&self, address: &str) -> bool {
        let pem = |name: &str| fs::read(self.file(name)).unwrap();
        let certificate = CertificateDer::from_pem_slice(&pem("node.crt")).unwrap();
        let config = ClientConfig::builder_with_provider(Arc::new(default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(Blind))
            .with_client_auth_cert(vec![certificate], PrivateKeyDer::from_pem_slice(&pem("node.key")).unwrap())
            .unwrap();
        let mut tls = ClientConnection::new(Arc::new(config), Credentials::expected()).unwrap();
        let mut tcp = TcpStream::connect(address).unwrap();
        tcp.set_read_timeout(Some(SOON)).unwrap();
        let mut stream = rustls::Stream::new(&mut tls, &mut tcp);
        match stream.flush().and_then(|()| stream.read(&mut [0; 1])) {
            Ok(0) => true,
            Err(cause) if cause.kind() == io::ErrorKind::UnexpectedEof => true,
            Err(cause) if cause.kind() == io::ErrorKind::InvalidData => {
                assert!(cause.to_string().contains("alert"), "{cause}");
                false
            }
            other => panic!("{address} answers otherwise: {other:?}"),
        }
    }

    /// As a client that looks at what others show.
    fn asks(&self, address: &str) -> bool {
        Client::connect_with(address, Some(&self.directory), SOON).is_ok()
    }
}

/// All that a thief of a node's directory can sign.
fn forged(by: &Path, into: &Path, living: &[NodeId]) -> Vec<Shows> {
    let nodes = living.iter().map(|node| Identity::Node(*node));
    let who = [Identity::Node(NodeId(0x4711)), Identity::Operator, Identity::Monitor].into_iter().chain(nodes);
    who.enumerate().map(|(number, who)| Shows::signed(by, who, into.join(format!("forged-{number}")))).collect()
}

fn none_is_let_in(forged: &[Shows], nodes: &[&NodeProcess]) {
    for (shows, node) in forged.iter().flat_map(|shows| nodes.iter().map(move |node| (shows, node))) {
        let Ready { address, listen, .. } = node.ready();
        assert!(!shows.is_let_in(listen), "{} at {listen}", shows.directory.display());
        assert!(!shows.is_let_in(address), "{} at {address}", shows.directory.display());
        assert!(!shows.asks(address), "{} asks {address}", shows.directory.display());
    }
}

/// Starts of the directory of a node that was removed, which is told so: it ends, if it is to join
/// one of the others.
fn is_turned_away(directory: &Path, join: &[&str]) {
    let is_told = |text: &str| text.contains("was removed from the cluster");
    if !join.is_empty() {
        let why = refused(directory, join);
        assert!(is_told(&why), "{why}");
        return;
    }
    let node = start(directory, &[]);
    wait_until(&node, "it is turned away", |status| is_told(&status["removed"].to_string()));
}

/// Three nodes and a fourth, in "a" to "d", in sync.
fn four(path: &impl Fn(&str) -> PathBuf) -> [NodeProcess; 4] {
    let a = start(&path("a"), &[]);
    create_journal(&connect(&a));
    let join = ["--join", a.ready().listen.as_str()];
    let [b, c, d] = ["b", "c", "d"].map(|name| start(&path(name), &join));
    wait_until(&a, "three are in sync", |status| in_sync(status) == 3);
    [a, b, c, d]
}

fn again(node: &NodeProcess, directory: &Path) -> NodeProcess {
    let Ready { address, listen, .. } = node.ready();
    start(directory, &["--address", address, "--listen", listen])
}

#[test]
fn what_a_removed_node_can_sign_lets_nobody_in() {
    let place = tempfile::tempdir().unwrap();
    let path = |name: &str| place.path().join(name);
    let [mut a, b, mut c, mut d] = four(&path);
    write(&connect(&a), 1, 1, SOON).unwrap();
    let (living, gone) = ([&a, &b, &d].map(id), id(&c).to_string());
    // An operator from elsewhere, and what a thief could do until now.
    let token = path("token");
    let made = done(&["token", "--address", &c.ready().address, "--role", "operator"]);
    freshet_base::private::write(&token, made.as_bytes()).unwrap();
    let operator = Shows { directory: path("operator") };
    done(&["enrol", "--node", &c.ready().listen, "--token-file", text(&token), text(&operator.directory)]);
    assert!(operator.asks(&a.ready().address));
    let forged = forged(&path("c"), place.path(), &living);
    assert!(forged[0].is_let_in(&a.ready().listen) && forged[1].asks(&b.ready().address));
    let open = Client::connect_with(&a.ready().address, Some(&forged[1].directory), SOON).unwrap();
    let late = done(&["token", "--address", &c.ready().address]);
    freshet_base::private::write(&token, late.as_bytes()).unwrap();

    c.kill();
    copy(&path("c"), &path("backup"));
    let own = Shows { directory: path("backup") };
    let mut c = again(&c, &path("c"));
    wait_until(&a, "three are in sync", |status| in_sync(status) == 3);
    d.kill();
    remove(&a, &gone);
    c.kill();
    [&a, &b].into_iter().for_each(|node| wait_for_authority(node, 1));
    assert_eq!(authority(&path("a")), authority(&path("b")));
    none_is_let_in(&forged, &[&a, &b]);
    let refusal = open.token(Grant::Node(None), Duration::from_secs(60), SOON).unwrap_err().to_string();
    assert!(refusal.contains("another authority by now"), "{refusal}");
    assert!(!operator.asks(&a.ready().address) && !own.asks(&a.ready().address));
    // As nodes, with files of an operator and with a token of the one that was removed.
    let join = ["--join", a.ready().listen.as_str()];
    for shows in [&forged[0], &forged[3]] {
        let certificates = shows.directory.join("membership");
        let why = refused(&path("e"), &[&join[..], &["--member-certificates", text(&certificates)]].concat());
        assert!(why.contains("has not shown a certificate of this node's cluster"), "{why}");
    }
    let why = refused(&path("e"), &[&join[..], &["--member-token-file", text(&token)]].concat());
    assert!(why.contains("has not shown a certificate of this node's cluster"), "{why}");
    is_turned_away(&path("c"), &[]);
    is_turned_away(&path("backup"), &join);
    // Who was away did not know of any of this.
    let d = again(&d, &path("d"));
    wait_for_authority(&d, 1);
    wait_until(&a, "it is back", |status| in_sync(status) == 2);

    // After a failover, and after a start of all.
    a.kill();
    connect(&b).promote(Consent::Nothing, SOON).unwrap();
    none_is_let_in(&forged, &[&b, &d]);
    let a = again(&a, &path("a"));
    wait_until(&b, "all are in sync", |status| in_sync(status) == 2);
    is_turned_away(&path("c"), &[]);
    let mut all = [a, b, d];
    all.iter_mut().for_each(|node| node.kill());
    let all: Vec<_> = all.iter().zip(["a", "b", "d"]).map(|(node, name)| again(node, &path(name))).collect();
    let leads = || all.iter().find(|node| status(node)["role"] == "primary");
    wait_until(&all[1], "one leads", |_| leads().is_some_and(|node| in_sync(&status(node)) == 2));
    all.iter().for_each(|node| wait_for_authority(node, 1));
    none_is_let_in(&forged, &all.iter().collect::<Vec<_>>());
    is_turned_away(&path("c"), &[]);
    is_turned_away(&path("backup"), &["--join", &all[0].ready().listen]);
    // The machine of the one that was removed, and the operator, with what is new.
    let primary = leads().unwrap();
    let e = start(&path("e"), &["--join", &primary.ready().listen]);
    wait_for_authority(&e, 1);
    let made = done(&["token", "--address", &primary.ready().address, "--role", "operator"]);
    freshet_base::private::write(&token, made.as_bytes()).unwrap();
    fs::remove_dir_all(&operator.directory).unwrap();
    done(&["enrol", "--node", &primary.ready().listen, "--token-file", text(&token), text(&operator.directory)]);
    assert!(operator.asks(&primary.ready().address));
}

fn witness(directory: &Path, join: &str) -> NodeProcess {
    let listen = freshet_testing::ports::reserve().unwrap().to_string();
    let flags = ["--directory", text(directory), "--listen", &listen, "--join", join];
    NodeProcess::start_witness(&program(), flags, SOON).unwrap()
}

/// Who steals an archive or a backup has its data, and signs nothing. One of before has the
/// authority's key until it is used again.
#[test]
fn an_archive_has_no_key_of_the_authority() {
    let place = tempfile::tempdir().unwrap();
    let path = |name: &str| place.path().join(name);
    let key = |name: &str| path(name).join("membership/authority.key");
    let primary = start(&path("a"), &[]);
    create_journal(&connect(&primary));
    write(&connect(&primary), 1, 1, SOON).unwrap();
    let Ready { address, listen, .. } = primary.ready();
    let backup = || done(&["backup", "--node", listen, text(&path("backup"))]);
    backup();
    let follows = |follows: usize| {
        let them = |status: &Value| status["observers"].as_array().map_or(0, Vec::len);
        wait_until(&primary, "an archive comes or goes", |status| them(status) == follows);
    };
    let archive = Archive::start(&path("archive"), listen, &[]);
    follows(1);
    let observer = status(&primary)["observers"][0]["node"].as_str().unwrap().to_owned();
    drop(archive);
    follows(0);
    assert!(key("a").exists() && !key("backup").exists() && !key("archive").exists());
    let stolen = Shows { directory: path("archive") };
    assert!(!stolen.asks(address));
    let certificates = stolen.directory.join("membership");
    let why = refused(&path("e"), &["--join", listen, "--member-certificates", text(&certificates)]);
    assert!(why.contains("names no node"), "{why}");
    let why = refused(&path("archive"), &[]);
    assert!(why.contains("the directory of an archive or a backup"), "{why}");
    // As they were before.
    let node = NodeId(u64::from_str_radix(&observer, 16).unwrap());
    let before = Shows::signed(&path("a"), Identity::Node(node), path("before"));
    for name in ["archive", "backup"] {
        fs::remove_dir_all(path(name).join("membership")).unwrap();
    }
    copy(&before.directory.join("membership"), &path("archive"));
    let archive = Archive::start(&path("archive"), listen, &[]);
    follows(1);
    assert!(!key("archive").exists());
    drop(archive);
    // The backup has lost its certificate, and gets one as what it is.
    backup();
    assert!(!key("backup").exists() && path("backup/membership/node.crt").exists());
    // A node that is started on it is a node.
    let node = start(&path("backup"), &["--join", listen]);
    wait_until(&primary, "it is in sync", |status| in_sync(status) == 1);
    assert!(key("backup").exists());
    drop(node);
}

/// Blocks until all of these nodes have the authority of the first, and another than `before`.
fn wait_for_same(primary: &NodeProcess, directories: &[PathBuf], before: &str) {
    wait_until(primary, "all have the authority of the primary", |_| {
        let own = authority(&directories[0]);
        own != before && directories.iter().all(|directory| authority(directory) == own)
    });
}

/// A witness, a relay, the node below it, a mirror, an archive; and no node has the authority that
/// is on record: as if the one that had made it was lost before any other had it.
#[test]
fn each_kind_of_node_gets_the_authority_that_counts() {
    let place = tempfile::tempdir().unwrap();
    let path = |name: &str| place.path().join(name);
    let primary = start(&path("a"), &[]);
    create_journal(&connect(&primary));
    let join = primary.ready().listen.clone();
    let w = witness(&path("w"), &join);
    wait_until(&primary, "a witness", |status| status["witness"]["connected"] == true);
    let relay = start(&path("r"), &["--join", &join, "--relay-standbys", "1"]);
    let mirror = start(&path("m"), &["--join", &join, "--mirror-bytes", "268435456"]);
    wait_until(&primary, "two are in sync", |status| in_sync(status) == 2);
    let below = start(&path("n"), &["--join", &relay.ready().listen, "--asynchronous"]);
    wait_until(&primary, "a node below", |_| {
        run(&["members", &primary.ready().address]).1.contains(&below.ready().listen)
    });
    let archive = Archive::start(&path("archive"), &join, &[]);
    wait_until(&primary, "an archive", |status| status["observers"].as_array().is_some_and(|them| them.len() == 1));
    let first = authority(&path("a"));
    let names = ["a", "w", "r", "m", "n", "archive"];
    let directories = names.map(path);
    assert!(directories.iter().all(|directory| authority(directory) == first));
    for name in names {
        copy(&path(name).join("membership"), &path(&format!("{name}-membership")));
    }
    let (rotated, said) = run(&["rotate", "--address", &relay.ready().address]);
    assert!(!rotated && said.contains("not the primary"), "{said}");
    done(&["rotate", "--address", &primary.ready().address]);
    wait_for_same(&primary, &directories, &first);
    // New connections, in all directions.
    let second = authority(&path("a"));
    drop(archive);
    let mut all = [primary, relay, mirror, below];
    all.iter_mut().for_each(|node| node.kill());
    drop(w);
    for name in names {
        fs::remove_dir_all(path(name).join("membership")).unwrap();
        copy(&path(&format!("{name}-membership")), &path(name).join("membership"));
    }
    let [primary, relay, mirror, below] = all;
    // It asks the others before it leads again.
    let (directory, before) = (path("a"), primary);
    let primary = std::thread::spawn(move || again(&before, &directory));
    let _w = witness(&path("w"), &join);
    let address = |node: &NodeProcess| [node.ready().address.clone(), node.ready().listen.clone()];
    let restart = |node: &NodeProcess, name: &str, more: &[&str]| {
        let [address, listen] = address(node);
        start(&path(name), &[&["--address", &address, "--listen", &listen], more].concat())
    };
    let relay = restart(&relay, "r", &["--relay-standbys", "1"]);
    let _mirror = restart(&mirror, "m", &["--join", &join, "--mirror-bytes", "268435456"]);
    let below = restart(&below, "n", &["--join", &relay.ready().listen, "--asynchronous"]);
    let primary = primary.join().unwrap();
    let _archive = Archive::start(&path("archive"), &join, &[]);
    wait_until(&primary, "two are in sync", |status| in_sync(status) == 2);
    wait_for_authority(&primary, 2);
    wait_for_same(&primary, &directories, &second);
    wait_for_authority(&below, 2);
    write(&connect(&primary), 1, 1, SOON).unwrap();
}

const DAY: u64 = 24 * 3600;

fn now() -> u64 {
    UnixTime::now().as_secs()
}

/// A certificate of `node` for the key in that file, by the authority of a directory, that is over.
fn ended(by: &Path, node: NodeId, key: &Path) -> String {
    let read = |path: &Path| KeyPair::from_pem(&fs::read_to_string(path).unwrap()).unwrap();
    let mut subject = CertificateParams::default();
    subject.distinguished_name = DistinguishedName::new();
    subject.distinguished_name.push(DnType::OrganizationName, "Freshet cluster authority");
    let mut certificate = CertificateParams::new(Identity::Node(node).names()).unwrap();
    let at = |seconds| UNIX_EPOCH + Duration::from_secs(seconds);
    (certificate.not_before, certificate.not_after) = (at(now() - 400 * DAY).into(), at(now() - 35 * DAY).into());
    let issuer = Issuer::new(subject, read(&by.join("membership/authority.key")));
    certificate.signed_by(&read(key), &issuer).unwrap().pem()
}

/// A node whose key is on no record was away, and needs a token where it is not of the same user
/// on the same machine; its certificate has ended, too.
#[test]
fn a_node_that_was_away_for_long_comes_back() {
    let place = tempfile::tempdir().unwrap();
    let path = |name: &str| place.path().join(name);
    let primary = start(&path("a"), &[]);
    let join = ["--join", primary.ready().listen.as_str()];
    let mut away = start(&path("b"), &join);
    wait_until(&primary, "it is in sync", |status| in_sync(status) == 1);
    let node = id(&away);
    away.kill();
    // Signed for a key that the cluster has never seen, and over.
    let other = Shows::signed(&path("a"), Identity::Node(node), path("other"));
    let ended = ended(&path("a"), node, &other.file("node.key"));
    for name in ["node.crt", "node.key"] {
        fs::copy(other.file(name), path("b").join("membership").join(name)).unwrap();
    }
    fs::write(path("b").join("membership/node.crt"), ended).unwrap();
    create_journal(&connect(&primary));
    done(&["rotate", "--address", &primary.ready().address]);
    let away = again(&away, &path("b"));
    wait_for_authority(&away, 1);
    wait_until(&primary, "it is back", |status| in_sync(status) == 1);
    assert!(status(&away)["certificate_expires"].as_u64() > Some(now() + 300 * DAY));
}
