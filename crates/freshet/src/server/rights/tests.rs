//! Every request by every kind of caller.

use std::{
    fs,
    io::IoSlice,
    net::{SocketAddr, TcpStream},
    path::Path,
    sync::Arc,
    time::Instant,
};

use freshet_base::{ClusterId, Consent, Lsn, NodeId, Safety};
use freshet_fabric::{local, stream::Stream};
use freshet_membership::{Credentials, Files, Grant, Identity};
use rustls::{
    ClientConfig, RootCertStore,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
};

use super::{super::tests::*, *};
use crate::{
    protocol::{Answer, Frames, Response, VERSION},
    server::{
        LOCAL,
        connection::{LOOKS_ONLY, NOBODY},
    },
};

/// The request behind this one, in the order of their rows: each has an example.
fn next(ask: Option<&Ask>) -> Option<Ask> {
    Some(match ask {
        None => Ask::Hello { version: VERSION },
        Some(Ask::Hello { .. }) => Ask::Status,
        Some(Ask::Status) => Ask::Members,
        Some(Ask::Members) => Ask::Watermarks,
        Some(Ask::Watermarks) => Ask::Mix { from: Lsn(64), batch_bytes: 7 },
        Some(Ask::Mix { .. }) => Ask::Promote { consent: Consent::Nothing },
        Some(Ask::Promote { .. }) => Ask::SwitchOver { to: None },
        Some(Ask::SwitchOver { .. }) => Ask::Remove { node: "nobody".to_owned(), gone: false },
        Some(Ask::Remove { .. }) => Ask::Rotate,
        Some(Ask::Rotate) => Ask::ChangeLevel { level: Safety::TwoSafe },
        Some(Ask::ChangeLevel { .. }) => Ask::FinishUpgrade,
        Some(Ask::FinishUpgrade) => Ask::Restart { node: Some("nobody".to_owned()) },
        Some(Ask::Restart { .. }) => Ask::Stop { node: Some("nobody".to_owned()) },
        Some(Ask::Stop { .. }) => Ask::Configuration,
        Some(Ask::Configuration) => Ask::Refill,
        Some(Ask::Refill) => Ask::BeginAgain { force: true },
        Some(Ask::BeginAgain { .. }) => Ask::Maintenance { for_s: 1 },
        Some(Ask::Maintenance { .. }) => Ask::Checkpoint { consistent: false },
        Some(Ask::Checkpoint { .. }) => Ask::Hash { at: None, deadline_ms: 20_000 },
        Some(Ask::Hash { .. }) => Ask::Token { grant: Grant::Client(Identity::Monitor), valid_s: 1 },
        Some(Ask::Token { .. }) => Ask::State(freshet_engine::StateAsk::Open { keep_ms: 1 }),
        Some(Ask::State(_)) => Ask::WaitVisible { lsn: Lsn(0), deadline_ms: 20_000 },
        Some(Ask::WaitVisible { .. }) => return None,
    })
}

fn all() -> Vec<Ask> {
    let asks = std::iter::successors(next(None), |ask| next(Some(ask)));
    asks.collect()
}

/// Which callers may ask: the owner, an operator, a node, a monitor, and anyone of a node whose
/// status is open.
const MAY: [(&str, [bool; 5]); 22] = [
    ("hello", [true; 5]),
    ("status", [true; 5]),
    ("members", [true; 5]),
    ("watermarks", [true; 5]),
    ("mix (`advise`)", [true, true, true, false, false]),
    ("promote", [true, true, false, false, false]),
    ("switch over", [true, true, false, false, false]),
    ("remove", [true, true, false, false, false]),
    ("rotate", [true, true, false, false, false]),
    ("level", [true, true, false, false, false]),
    ("upgrade", [true, true, false, false, false]),
    ("restart", [true, true, false, false, false]),
    ("stop", [true, true, false, false, false]),
    ("configuration (`config show`)", [true, true, false, false, false]),
    ("refill", [true, true, false, false, false]),
    ("begin again", [true, true, false, false, false]),
    ("maintenance", [true, true, false, false, false]),
    ("checkpoint", [true, true, false, false, false]),
    ("hash", [true, true, false, false, false]),
    ("token", [true, true, false, false, false]),
    ("state (`verify --state`)", [true, true, false, false, false]),
    ("wait", [true, true, false, false, false]),
];

/// The answers to a greeting and all requests, in their order, until the connection ends.
fn answers(stream: &Stream) -> Vec<Answer> {
    stream.set_read_timeout(Some(SOON)).unwrap();
    let mut frames = Frames::new(crate::client::Ear(stream));
    let mut answers = Vec::new();
    for ask in all() {
        let sent = stream.write_all(&mut [IoSlice::new(&request(ask))], false);
        match sent.ok().and_then(|()| frames.next_frame::<Response>().ok()) {
            Some(Response { answer, .. }) => answers.push(answer),
            None => break,
        }
    }
    answers
}

fn over_tls(address: SocketAddr, config: Arc<ClientConfig>) -> std::io::Result<Stream> {
    Stream::from(TcpStream::connect(address)?).secure_client(config, Credentials::expected(), Instant::now() + SOON)
}

/// A certificate of the cluster's authority with this name, that was valid in these years. Its
/// files, as `freshet enrol` writes them.
fn certify(credentials: &Credentials, name: &str, years: std::ops::Range<i32>, directory: &Path) {
    fs::create_dir(directory).unwrap();
    credentials.write(directory).unwrap();
    let files = Files::in_directory(directory);
    let authority = files.authority_key.unwrap();
    let signs = rcgen::KeyPair::from_pem(&fs::read_to_string(&authority).unwrap()).unwrap();
    fs::remove_file(authority).unwrap();
    let mut issuer = rcgen::CertificateParams::default();
    issuer.distinguished_name = rcgen::DistinguishedName::new();
    issuer.distinguished_name.push(rcgen::DnType::OrganizationName, "Freshet cluster authority");
    let key = rcgen::KeyPair::generate().unwrap();
    let mut params = rcgen::CertificateParams::new(vec![name.to_owned()]).unwrap();
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.extended_key_usages = vec![rcgen::ExtendedKeyUsagePurpose::ClientAuth];
    params.not_before = rcgen::date_time_ymd(years.start, 1, 1);
    params.not_after = rcgen::date_time_ymd(years.end, 1, 1);
    let certificate = params.signed_by(&key, &rcgen::Issuer::new(issuer, signs)).unwrap();
    fs::write(files.certificate, certificate.pem()).unwrap();
    fs::write(files.key, key.serialize_pem()).unwrap();
}

/// TLS with the certificate in a directory, whatever that names.
fn config(directory: &Path) -> Arc<ClientConfig> {
    let files = Files::in_directory(directory);
    let certificate = |path| CertificateDer::from_pem_file(path).unwrap();
    let mut roots = RootCertStore::empty();
    roots.add(certificate(files.authority)).unwrap();
    let builder =
        ClientConfig::builder_with_protocol_versions(&[&rustls::version::TLS13]).with_root_certificates(roots);
    let key = PrivateKeyDer::from_pem_file(files.key).unwrap();
    Arc::new(builder.with_client_auth_cert(vec![certificate(files.certificate)], key).unwrap())
}

/// A stranger's TLS, without a certificate.
fn nobody(credentials: &Credentials) -> Arc<ClientConfig> {
    Credentials::of_newcomer(&credentials.give_token(Grant::Node(None), SOON).unwrap()).unwrap()
}

#[test]
fn each_caller_may_ask_what_its_row_allows_and_nothing_else() {
    let (asks, callers) = (all(), [Caller::Owner, Caller::Operator, Caller::Node, Caller::Monitor, Caller::Anyone]);
    let names: Vec<_> = asks.iter().map(|ask| rule(ask).name).collect();
    assert_eq!(names, MAY.map(|(name, _)| name));
    for (ask, (name, may)) in asks.iter().zip(MAY) {
        assert_eq!(callers.map(|caller| caller.may(ask)), may, "{name}");
    }
    assert_eq!(callers.map(|caller| caller.is_served(false)), [true, true, true, true, false]);
    assert!(callers.iter().all(|caller| caller.is_served(true)));
}

/// The same of a server that works, over its sockets.
#[test]
fn a_server_answers_each_request_of_each_caller_by_its_row() {
    for open_status in [false, true] {
        let (server, credentials) = start(open_status);
        let (address, folder) = (server.address(), tempfile::tempdir().unwrap());
        let enrolled = |grant| over_tls(address, credentials_of(&credentials, grant).client()).unwrap();
        let unnamed = folder.path().join("unnamed");
        certify(&credentials, "somebody.freshet", 2020..2090, &unnamed);
        let near = local::connect(LOCAL, address).unwrap().unwrap();
        let clients = [
            (0, Stream::from(near)),
            (1, enrolled(Grant::Client(Identity::Operator))),
            (2, enrolled(Grant::Node(None))),
            (3, enrolled(Grant::Client(Identity::Monitor))),
            (4, over_tls(address, nobody(&credentials)).unwrap()),
            (4, over_tls(address, config(&unnamed)).unwrap()),
        ];
        for (column, stream) in &clients {
            let answers = answers(stream);
            if *column == 4 && !open_status {
                assert_eq!(answers, [Answer::Refused { reason: NOBODY.to_owned() }]);
                continue;
            }
            let refused = Answer::Refused { reason: LOOKS_ONLY.to_owned() };
            let may: Vec<_> = answers.iter().map(|answer| *answer != refused).collect();
            assert_eq!(may, MAY.map(|(_, may)| may[*column]), "column {column}: {answers:?}");
        }
        // Of another cluster, and out of date: not one answer. TLS 1.3 tells a client late.
        let expired = folder.path().join("expired");
        certify(&credentials, "operator.freshet", 2019..2020, &expired);
        let foreign = Credentials::found(ClusterId(5), NodeId(6)).unwrap();
        let foreign = credentials_of(&foreign, Grant::Client(Identity::Operator));
        assert!(over_tls(address, foreign.client()).is_err());
        // It trusts the node that has answered, and shows its certificate.
        fs::create_dir(folder.path().join("foreign")).unwrap();
        foreign.write(&folder.path().join("foreign")).unwrap();
        let authority = |directory| Files::in_directory(directory).authority;
        fs::copy(authority(&expired), authority(&folder.path().join("foreign"))).unwrap();
        for refused in [expired, folder.path().join("foreign")] {
            let answers = over_tls(address, config(&refused)).map(|stream| answers(&stream));
            assert!(answers.as_ref().map_or(true, Vec::is_empty), "{answers:?}");
        }
    }
}

#[test]
fn the_documents_have_the_table() {
    let documents = include_str!("../../../../../docs/operations.md");
    for ask in all() {
        let Rule { name, who, shows } = rule(&ask);
        let who = match who {
            Who::Everyone => "every caller that is served",
            Who::Members => "the node's user, operators, nodes",
            Who::Operators => "the node's user, operators",
        };
        let row = format!("| {name} | {who} | {shows} |");
        assert!(documents.contains(&row), "docs/operations.md lacks: {row}");
    }
}
