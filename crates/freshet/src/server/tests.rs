//! A server on a volatile database, and clients that behave and that do not.

use std::{
    io::{Read, Write},
    time::Duration,
};

use freshet_workloads::random::Random;

use freshet_base::{ClusterId, Consent, NodeId, Safety, versions::Level};
use freshet_membership::{Enrolment, Identity, NewKey, Part};

use super::*;
use crate::{
    client::{Client, ClientError},
    protocol::{self, Answer, Ask, Frames, MAX_FRAME, READS, Response, VERSION},
};

struct Volatile(Database);

impl Host for Volatile {
    fn database(&self) -> &Database {
        &self.0
    }
    fn watermarks(&self) -> Watermarks {
        Watermarks { primary: true, visible: self.0.core().snapshots.current(), ..Watermarks::default() }
    }
    fn status(&self) -> String {
        self.glance().to_string()
    }
    fn glance(&self) -> serde_json::Value {
        serde_json::json!({ "role": "primary" })
    }
    fn mix(&self, from: Lsn, batch_bytes: u64) -> Result<Mix, String> {
        Ok(Mix { log_bytes: from.0, transactions: batch_bytes, ..Mix::default() })
    }
    fn promote(&self, _consent: Consent) -> Result<(u32, Lsn), String> {
        Err("this node is not a standby".to_owned())
    }
    fn finish_upgrade(&self) -> Result<(Level, Level), String> {
        Err("this node is not the primary".to_owned())
    }
    fn rotate(&self) -> Result<u64, String> {
        Err("this node is not the primary".to_owned())
    }
    fn remove(&self, _: &str, _: bool) -> Result<NodeId, String> {
        Err("this node is not the primary".to_owned())
    }
    fn change_level(&self, _: Safety) -> Result<Safety, String> {
        Err("this node is not the primary".to_owned())
    }
    fn order(&self, _: Option<&str>, _: Order) -> Result<NodeId, String> {
        Err("this is no node".to_owned())
    }

    fn configuration(&self) -> String {
        "{}".to_owned()
    }

    fn switch_over(&self, _: Option<&str>) -> Result<SwitchedOver, String> {
        Err("this node is not the primary".to_owned())
    }
    fn members(&self) -> Result<String, String> {
        Ok("{}".to_owned())
    }
    fn order_maintenance(&self, _: Duration) -> Result<(u32, Vec<String>), String> {
        Err("this node has no cluster".to_owned())
    }
    fn begin_again(&self, _: bool) -> Result<String, String> {
        Err("this node is no standby".into())
    }

    fn refill(&self) -> Result<(), String> {
        Err("this node is no mirror".to_owned())
    }
    fn checkpoint(&self, _: freshet_engine::CheckpointKind) -> Result<freshet_engine::CheckpointStatus, String> {
        Err("this node keeps nothing on disk".to_owned())
    }
    fn token(&self, _: Grant, _: Duration) -> Result<String, String> {
        Ok("a token".to_owned())
    }
    fn wait_visible(&self, lsn: Lsn, deadline: Instant) -> Result<Lsn, String> {
        while self.watermarks().visible < lsn {
            if Instant::now() >= deadline {
                return Err("not visible".to_owned());
            }
            thread::yield_now();
        }
        Ok(lsn)
    }
}

pub(super) const SOON: Duration = Duration::from_secs(20);

fn serve() -> Server {
    start(false).0
}

pub(super) fn start(open_status: bool) -> (Server, Credentials) {
    let database = Database::volatile(Server::PLACES);
    let doors = Doors::open(SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
    let credentials = Credentials::found(ClusterId(5), NodeId(6)).unwrap();
    let server = Server::start(Arc::new(Volatile(database)), Some(credentials.clone()), doors, open_status).unwrap();
    (server, credentials)
}

fn connect(server: &Server) -> Client {
    Client::connect(&server.address().to_string(), SOON).unwrap()
}

#[test]
fn records_are_hashed() {
    let server = serve();
    let client = connect(&server);
    let (at, hash, records) = client.hash(None, SOON).unwrap();
    assert_eq!(client.hash(Some(at), SOON).unwrap(), (at, hash, records));
    server.shared.host.database().create_table(&freshet_workloads::journal::definition()).unwrap();
    let (later, other, more) = client.hash(None, SOON).unwrap();
    assert!(later > at && other != hash && more == records + 1, "{records} records, and {more} with a table");
    assert!(client.hash(Some(Lsn::MAX), Duration::from_millis(1)).is_err());
}

#[test]
fn a_request_can_be_refused() {
    let server = serve();
    let client = connect(&server);
    assert!(matches!(client.promote(Consent::Nothing, SOON), Err(ClientError::Refused { .. })));
    assert!(matches!(client.checkpoint(false, SOON), Err(ClientError::Refused { .. })));
    assert!(client.status(SOON).unwrap().contains("primary"));
    let late = client.ask(Ask::WaitVisible { lsn: Lsn::MAX, deadline_ms: 1 }, SOON).unwrap();
    assert!(matches!(late, Answer::Refused { .. }), "{late:?}");
    let visible = client.watermarks(SOON).unwrap().visible;
    let seen = client.ask(Ask::WaitVisible { lsn: visible, deadline_ms: 1000 }, SOON).unwrap();
    assert_eq!(seen, Answer::Visible { lsn: visible });
}

/// More requests than may be under way, sent before any answer is read.
#[test]
fn requests_can_be_pipelined() {
    let server = serve();
    let client = connect(&server);
    let visible = client.watermarks(SOON).unwrap().visible;
    let (sender, receiver) = std::sync::mpsc::channel();
    let count = 3_000;
    for number in 0..count {
        // Those in between are answered at once.
        let ask =
            if number % 2 == 0 { Ask::WaitVisible { lsn: visible, deadline_ms: 20_000 } } else { Ask::Watermarks };
        let sender = sender.clone();
        client.send(ask, move |arrived| sender.send(arrived.answer).unwrap()).unwrap();
    }
    for _ in 0..count {
        let answer = receiver.recv_timeout(SOON).unwrap();
        assert!(matches!(answer, Answer::Visible { .. } | Answer::Watermarks(_)), "{answer:?}");
    }
}

fn raw(server: &Server) -> UnixStream {
    let stream = local::connect(LOCAL, server.address()).unwrap().unwrap();
    stream.set_read_timeout(Some(SOON)).unwrap();
    stream
}

/// Sends bytes and reads until the server closes the connection.
fn converse(server: &Server, bytes: &[u8]) -> Vec<Answer> {
    let mut stream = raw(server);
    stream.write_all(bytes).unwrap();
    let mut frames = Frames::new(stream);
    let mut answers = Vec::new();
    while let Ok(Response { answer, .. }) = frames.next_frame() {
        answers.push(answer);
    }
    answers
}

pub(super) fn request(ask: Ask) -> Vec<u8> {
    let mut bytes = Vec::new();
    protocol::encode(&protocol::Request { id: 1, ask }, &mut bytes).unwrap();
    bytes
}

#[test]
fn those_that_break_the_rules_are_refused_and_dismissed() {
    let server = serve();
    let hello = request(Ask::Hello { version: VERSION });
    let too_long = u32::try_from(MAX_FRAME + 1).unwrap().to_le_bytes().to_vec();
    for (bytes, greeted, text) in [
        (request(Ask::Status), 0, "first request must be Hello"),
        (request(Ask::Hello { version: *READS.reads().start() - 1 }), 0, "run a later release of the client"),
        (too_long.clone(), 0, "exceeds the maximum"),
        (b"\x05\0\0\0GET /".to_vec(), 0, "cannot decode"),
        ([hello.clone(), too_long].concat(), 1, "exceeds the maximum"),
        ([hello.clone(), b"\x03\0\0\0\xff\xff\xff".to_vec()].concat(), 1, "cannot decode"),
    ] {
        let answers = converse(&server, &bytes);
        assert_eq!(answers.len(), greeted + 1, "{answers:?}");
        let last = answers.last().unwrap();
        assert!(matches!(last, Answer::Refused { reason } if reason.contains(text)), "{last:?}");
    }
    // A later client is answered in what this server speaks.
    let answers = converse(&server, &request(Ask::Hello { version: 999 }));
    assert_eq!(answers, [Answer::Hello { version: VERSION }]);
    // And one that leaves in the middle of a frame, or with requests under way.
    raw(&server).write_all(&hello[..3]).unwrap();
    raw(&server).write_all(&[hello, request(Ask::Hash { at: None, deadline_ms: 1000 })].concat()).unwrap();
    assert!(connect(&server).status(SOON).is_ok());
}

/// Credentials that this member has signed, for a client or a node.
pub(super) fn credentials_of(member: &Credentials, grant: Grant) -> Credentials {
    let token = member.give_token(grant, SOON).unwrap();
    let key = NewKey::generate().unwrap();
    let newcomer = Enrolment { public_key: key.public(), node: None, part: Part::Node, secret: Some(token.secret()) };
    let enrolled = member.enrol(&newcomer, false).unwrap();
    assert!(member.enrol(&newcomer, false).is_err(), "a token is good for once");
    Credentials::enrolled(enrolled, &key).unwrap()
}

/// Over TCP a client may ask what its certificate allows, and without one nothing.
#[test]
fn who_comes_from_afar_shows_a_certificate() {
    let (server, credentials) = start(false);
    let address = server.address().to_string();
    let enrolled = |grant| {
        let directory = tempfile::tempdir().unwrap();
        credentials_of(&credentials, grant).write(directory.path()).unwrap();
        directory
    };
    let as_one = |directory: &tempfile::TempDir| Client::connect_with(&address, Some(directory.path()), SOON);
    let operator = as_one(&enrolled(Grant::Client(Identity::Operator))).unwrap();
    assert!(operator.status(SOON).is_ok());
    assert_eq!(operator.token(Grant::Node(None), SOON, SOON).unwrap(), "a token");
    for grant in [Grant::Client(Identity::Monitor), Grant::Node(None)] {
        let looks = as_one(&enrolled(grant)).unwrap();
        assert!(looks.status(SOON).is_ok() && looks.watermarks(SOON).is_ok());
        let mix = looks.mix(Lsn(64), 7, SOON).map(|mix| (mix.log_bytes, mix.transactions));
        assert_eq!(mix.is_ok(), grant == Grant::Node(None));
        assert!(mix.is_err() || mix == Ok((64, 7)));
        let refused = |outcome: Result<(), ClientError>| match outcome {
            Err(ClientError::Refused { reason, .. }) => assert!(reason.contains("status alone"), "{reason}"),
            other => panic!("{other:?}"),
        };
        refused(looks.promote(Consent::Loss, SOON).map(drop));
        refused(looks.checkpoint(false, SOON).map(drop));
        refused(looks.token(Grant::Client(Identity::Operator), SOON, SOON).map(drop));
        refused(looks.hash(None, SOON).map(drop));
    }
    // A certificate of another cluster's authority.
    let directory = tempfile::tempdir().unwrap();
    Credentials::found(ClusterId(5), NodeId(6)).unwrap().write(directory.path()).unwrap();
    assert!(matches!(as_one(&directory), Err(ClientError::Unreachable { .. })));
    // Without a certificate, and without TLS.
    let nobody = |address: SocketAddr, credentials: &Credentials| {
        let token = credentials.give_token(Grant::Node(None), SOON).unwrap();
        let stream = Stream::from(TcpStream::connect(address).unwrap());
        let config = Credentials::of_newcomer(&token).unwrap();
        let stream = stream.secure_client(config, Credentials::expected(), Instant::now() + SOON).unwrap();
        let both = [
            request(Ask::Hello { version: VERSION }),
            request(Ask::Status),
            request(Ask::Promote { consent: Consent::Loss }),
        ];
        stream.write_all(&mut [std::io::IoSlice::new(&both.concat())], false).unwrap();
        stream.set_read_timeout(Some(SOON)).unwrap();
        let mut frames = Frames::new(crate::client::Ear(&stream));
        let answers = std::iter::from_fn(|| frames.next_frame::<Response>().ok().map(|response| response.answer));
        answers.take(3).collect::<Vec<_>>()
    };
    let answers = nobody(server.address(), &credentials);
    assert!(matches!(&answers[..], [Answer::Refused { reason }] if reason.contains("no certificate")), "{answers:?}");
    let (open, its_credentials) = start(true);
    let answers = nobody(open.address(), &its_credentials);
    let [Answer::Hello { .. }, Answer::Status(_), Answer::Refused { reason }] = &answers[..] else {
        panic!("{answers:?}")
    };
    assert!(reason.contains("status alone"), "{reason}");
    let stream = TcpStream::connect(open.address()).unwrap();
    (&stream).write_all(&request(Ask::Hello { version: VERSION })).unwrap();
    stream.set_read_timeout(Some(SOON)).unwrap();
    let mut answer = Vec::new();
    let _ = (&stream).read_to_end(&mut answer);
    assert!(answer.is_empty() || answer[0] == 0x15, "an alert of TLS at most: {answer:?}");
}

/// Requests that are damaged, cut off, repeated and made up: each conversation ends, and the server
/// is as before. `FRESHET_SEED` repeats a run, `FRESHET_ROUNDS` says how many there are.
#[test]
fn whatever_is_sent_to_it_the_server_continues() {
    let number = |name: &str, otherwise: u64| std::env::var(name).map_or(otherwise, |text| text.parse().unwrap());
    let (seed, rounds) = (number("FRESHET_SEED", 5), number("FRESHET_ROUNDS", 3000));
    println!("FRESHET_SEED={seed} FRESHET_ROUNDS={rounds}");
    let mut random = Random::new(seed);
    let (server, credentials) = start(true);
    let asks = [
        Ask::Hello { version: VERSION },
        Ask::Status,
        Ask::Watermarks,
        Ask::Promote { consent: Consent::Loss },
        Ask::Refill,
        Ask::BeginAgain { force: true },
        Ask::Checkpoint { consistent: true },
        Ask::Token { grant: Grant::Node(Some(NodeId(u64::MAX))), valid_s: u64::MAX },
        Ask::Hash { at: Some(Lsn(u64::MAX)), deadline_ms: 5 },
        Ask::WaitVisible { lsn: Lsn(u64::MAX), deadline_ms: 5 },
    ];
    let mut below = |bound: usize| random.below(bound as u64) as usize;
    for round in 0..rounds {
        let mut bytes = request(asks[0].clone());
        for _ in 0..below(4) {
            bytes.extend(request(asks[below(asks.len())].clone()));
        }
        match below(4) {
            0 => bytes.truncate(below(bytes.len())),
            1 => {
                let at = below(bytes.len());
                bytes[at] ^= 1 << below(8);
            }
            2 => bytes.extend((0..below(64)).map(|at| (at * 37) as u8)),
            _ => {}
        }
        let stream = if round % 10 == 0 {
            let stream = Stream::from(TcpStream::connect(server.address()).unwrap());
            let deadline = Instant::now() + SOON;
            stream.secure_client(credentials.client(), Credentials::expected(), deadline).unwrap()
        } else {
            raw(&server).into()
        };
        stream.set_read_timeout(Some(SOON)).unwrap();
        // The server may have closed the connection in the middle.
        let _ = stream.write_all(&mut [std::io::IoSlice::new(&bytes)], false);
        stream.shut_down(Shutdown::Write);
        let mut answer = [0; 4096];
        while stream.read(&mut answer).unwrap_or(0) > 0 {}
    }
    assert!(connect(&server).status(SOON).unwrap().contains("primary"));
}

#[test]
fn a_server_that_ends_lets_nobody_wait() {
    let server = serve();
    let client = connect(&server);
    let mut stream = raw(&server);
    drop(server);
    assert!(stream.read(&mut [0]).is_ok_and(|count| count == 0) || stream.take_error().is_ok());
    assert!(client.status(Duration::from_secs(5)).is_err());
}

/// A client that says hello at once gets through, however many others say nothing, or only begin
/// to; and so does one that is not expected to say anything any more.
#[test]
fn a_client_gets_through_while_strangers_hold_on() {
    let server = serve();
    let strangers: Vec<TcpStream> = (0..400)
        .map(|number| {
            let mut stranger = TcpStream::connect(server.address()).unwrap();
            if number % 2 == 0 {
                // Perhaps it was sent away already.
                let _ = stranger.write_all(&request(Ask::Hello { version: VERSION })[..3]);
            }
            stranger
        })
        .collect();
    let client = connect(&server);
    assert!(client.status(SOON).unwrap().contains("primary"));
    assert!(server.shared.strangers.count() <= STRANGERS && server.shared.clients().len() == 1);
    drop(strangers);
    assert!(client.status(SOON).is_ok());
}

/// Clients who want nothing make room for those who do.
#[test]
fn idle_clients_make_room() {
    let server = serve();
    let busy = connect(&server);
    let idle: Vec<Client> = (0..CLIENTS - 1).map(|_| connect(&server)).collect();
    let until = Instant::now() + SOON;
    let late = loop {
        // He has something under way, so he stays.
        busy.status(SOON).unwrap();
        match Client::connect(&server.address().to_string(), SOON) {
            Ok(client) => break client,
            Err(ClientError::Refused { reason, .. }) => assert!(reason.contains("busy"), "{reason}"),
            Err(cause) => panic!("{cause}"),
        }
        assert!(Instant::now() < until, "nobody has become idle");
    };
    assert!(late.status(SOON).is_ok() && busy.status(SOON).is_ok());
    assert_eq!(idle.iter().filter(|client| client.status(SOON).is_err()).count(), 1);
    assert!(server.shared.clients().len() <= CLIENTS);
}
