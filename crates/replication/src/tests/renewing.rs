//! A node's certificate is renewed while it runs, by itself or by another node.

use std::time::{Duration, Instant, SystemTime};

use freshet_base::{
    ClusterId, NodeId, Term,
    wait::{self, Patience},
};
use freshet_cluster::{handshake::Refusal, in_sync::Fingerprint};
use freshet_membership::{Authority, Credentials, Enrolled, Enrolment, Identity, NewKey, OnRecord, Part};
use rcgen::{CertificateParams, DistinguishedName, DnType, Issuer, KeyPair, PublicKeyData};

use super::fixture::PATIENCE;
use crate::{
    endpoint::{CallError, Endpoint, call, connect},
    renewal::Renewal,
    wire::{Hello, Purpose, Reply},
};

const CLUSTER: ClusterId = ClusterId(3);
const DAY: Duration = Duration::from_secs(24 * 3600);

fn until(condition: impl Fn() -> bool) {
    let patience = Patience::endless().until(Instant::now() + PATIENCE);
    wait::poll(Duration::from_millis(5), patience, || condition().then_some(())).unwrap();
}

/// By that authority, valid for so long from now on.
fn valid_for(left: Duration, identity: Identity, authority: &Authority) -> Credentials {
    let key = NewKey::generate().unwrap();
    let mut subject = CertificateParams::default();
    subject.distinguished_name = DistinguishedName::new();
    subject.distinguished_name.push(DnType::OrganizationName, "Freshet cluster authority");
    let mut certificate = CertificateParams::new(identity.names()).unwrap();
    let now = SystemTime::now();
    (certificate.not_before, certificate.not_after) = ((now - DAY).into(), (now + left).into());
    let issuer = Issuer::new(subject, KeyPair::from_pem(&authority.key()).unwrap());
    let own = KeyPair::from_pem(&key.to_pem()).unwrap();
    assert_eq!(own.der_bytes(), key.public());
    let certificate = certificate.signed_by(&own, &issuer).unwrap().pem();
    let authority_key = matches!(identity, Identity::Node(_)).then(|| authority.key());
    let authority = authority.certificate().to_owned();
    let enrolled = Enrolled { cluster: CLUSTER, identity, certificate, authority, authority_key };
    Credentials::enrolled(enrolled, &key).unwrap()
}

fn member(of: &Credentials, node: u64) -> Credentials {
    let key = NewKey::generate().unwrap();
    let newcomer = Enrolment { public_key: key.public(), node: Some(NodeId(node)), part: Part::Node, secret: None };
    Credentials::enrolled(of.enrol(&newcomer, true).unwrap(), &key).unwrap()
}

#[test]
fn a_certificate_is_followed_by_another_while_connections_stay() {
    let own = valid_for(100 * DAY, Identity::Node(NodeId(1)), &Authority::new(CLUSTER, 0).unwrap());
    let other = member(&own, 2);
    let endpoint = Endpoint::open(NodeId(1), own.clone(), "127.0.0.1:0").unwrap();
    let address = endpoint.address().to_string();
    let ends = |connection: &freshet_fabric::tcp::Connection| {
        let certificate = connection.stream().certificate().unwrap();
        certificate.as_ref().to_vec()
    };
    let mut before = connect(&other, &address, PATIENCE).unwrap();
    let _renewal = Renewal::start(own.clone(), CLUSTER, NodeId(1), Vec::new).unwrap();
    until(|| !own.are_due());
    let after = connect(&other, &address, PATIENCE).unwrap();
    assert_ne!(ends(&before), ends(&after));
    // The one of before is still served.
    let hello = Hello { cluster: None, node: NodeId(2), address: String::new(), purpose: Purpose::Renew };
    let reply = crate::endpoint::ask(&mut before, &address, &hello, Term(0)).unwrap();
    assert!(matches!(reply, Reply::Enrolled(_)), "{reply:?}");
}

/// It has no key to sign for itself, and gets none with what others sign.
#[test]
fn a_member_renews_the_certificate_of_an_archive() {
    let authority = Authority::new(CLUSTER, 0).unwrap();
    let member = valid_for(300 * DAY, Identity::Node(NodeId(1)), &authority);
    let archive = valid_for(100 * DAY, Identity::Archive(NodeId(2)), &authority);
    let endpoint = Endpoint::open(NodeId(1), member, "127.0.0.1:0").unwrap();
    let known = vec![endpoint.address().to_string()];
    let ends = archive.expire();
    let key = archive.key_of(NodeId(2));
    assert!(archive.are_due());
    let _renewal = Renewal::start(archive.clone(), CLUSTER, NodeId(2), move || known.clone()).unwrap();
    until(|| !archive.are_due());
    assert!(archive.expire() > ends && archive.key_of(NodeId(2)) == key && !archive.can_sign());
}

#[test]
fn a_node_gets_the_authority_that_is_on_record_from_another_and_a_removed_one_does_not() {
    let primary = Credentials::found(CLUSTER, NodeId(1)).unwrap();
    let [standby, removed, unknown] = [2, 3, 4].map(|node| member(&primary, node));
    let key = |of: &Credentials| -> (NodeId, Fingerprint) {
        let node = of.node().unwrap();
        (node, of.key_of(node).unwrap())
    };
    let keys = [&primary, &standby, &removed].map(key).into();
    let record = OnRecord {
        generation: 1,
        keys,
        removed: [NodeId(3)].into(),
        set: Some((Term(1), NodeId(1), 2)),
        ..OnRecord::default()
    };
    let endpoint = Endpoint::open(NodeId(1), primary.clone(), "127.0.0.1:0").unwrap();
    let address = endpoint.address().to_string();
    let known = {
        let address = address.clone();
        move || vec![address.clone()]
    };
    standby.know(record.clone());
    let renewal = Renewal::start(standby.clone(), CLUSTER, NodeId(2), known).unwrap();
    primary.know(record.clone());
    // It is asked before it has what it is asked for.
    until(|| renewal.trouble().is_some_and(|trouble| trouble.contains("new authority")));
    primary.make_authority(1).unwrap();
    until(|| standby.authority() == primary.authority() && renewal.trouble().is_none());
    assert!(standby.is_current());
    let ask = |credentials: &Credentials, purpose| {
        let (cluster, node) = (Some(CLUSTER), credentials.node().unwrap());
        let hello = Hello { cluster, node, address: String::new(), purpose };
        call(credentials, &address, &hello, Term(0), PATIENCE).map(|(reply, _)| reply)
    };
    removed.know(record);
    for purpose in [Purpose::Renew, Purpose::Identify] {
        let reply = ask(&removed, purpose);
        let Err(CallError::Refused { refusal: Refusal::Removed { .. }, .. }) = reply else { panic!("{reply:?}") };
    }
    let reply = ask(&unknown, Purpose::Renew);
    assert!(reply.as_ref().is_err_and(CallError::is_of_strangers), "{reply:?}");
}
