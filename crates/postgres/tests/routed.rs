//! Sessions that a node hands on to another, over plain sockets, and what their clients hear when
//! the other one goes in the middle of something.

mod toy;
mod wire;

use std::{
    io::{Read, Write},
    net::{TcpListener, TcpStream},
    sync::{Arc, Mutex, atomic::Ordering},
    time::{Duration, Instant},
};

use freshet_postgres::{
    Access, Backend, Hop, Limits, Link, Opening, Parameters, Peer, Proof, Report, Route, Served, Server, Session,
    Startup, Takes, route::HandedOn,
};
use toy::{Toy, options};
use wire::{Wire, bind, execute, message, outline, parse, query, sync};

const SOON: Duration = Duration::from_secs(30);

/// A node that leads, or one that hands sessions on to the node of the moment.
struct Node {
    toy: Arc<Toy>,
    leads: Option<Arc<Mutex<Option<Takes>>>>,
}

impl Backend for Node {
    fn access(&self, startup: &Startup, peer: &Peer) -> Result<Access, Report> {
        self.toy.access(startup, peer)
    }

    fn open(&self, opening: Opening<'_>, serve: &mut dyn FnMut(&mut dyn Session, &Parameters)) -> Result<(), Report> {
        self.toy.open(opening, serve)
    }

    fn admit_handed(&self, startup: &Startup) -> Result<Access, Report> {
        assert_eq!(startup.get("freshet.route"), None);
        Ok(Access::by(Proof::None))
    }

    fn route(&self, _: &Startup) -> Result<Served, Report> {
        Ok(match &self.leads {
            None => Served::Here,
            Some(leads) => Served::OnPrimary(Box::new(To(Arc::clone(leads)))),
        })
    }
}

struct To(Arc<Mutex<Option<Takes>>>);

/// Both ends of a connection.
fn pair() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    (near, listener.accept().unwrap().0)
}

impl Route for To {
    fn connect(&self, pid: i32, _: Duration) -> Result<(Hop, Box<dyn Link>), String> {
        let takes = self.0.lock().unwrap().clone().ok_or("there is no primary")?;
        let (near, far) = pair();
        takes.serve(far, None, Vec::new(), HandedOn { pid, node: 1, own: false }).map_err(|cause| cause.to_string())?;
        Ok((Hop::new(near, None, Vec::new()).unwrap(), Box::new(At(takes))))
    }
}

struct At(Takes);

impl Link for At {
    fn is_past(&self) -> bool {
        false
    }

    fn cancel(&self, pid: i32, key: &[u8]) {
        assert!(self.0.cancel(pid, key), "the key is right");
    }
}

fn node(leads: Option<Arc<Mutex<Option<Takes>>>>) -> Server {
    node_with(Toy::new(), leads)
}

fn node_with(toy: Arc<Toy>, leads: Option<Arc<Mutex<Option<Takes>>>>) -> Server {
    Server::start(Arc::new(Node { toy, leads }), options(Limits::default())).unwrap()
}

struct Cluster {
    leads: Arc<Mutex<Option<Takes>>>,
    /// Behind the primary.
    toy: Arc<Toy>,
    primary: Option<Server>,
    reached: Server,
}

impl Cluster {
    fn new() -> Self {
        let toy = Toy::new();
        let primary = node_with(Arc::clone(&toy), None);
        let leads = Arc::new(Mutex::new(Some(primary.takes())));
        let reached = node(Some(Arc::clone(&leads)));
        Self { leads, toy, primary: Some(primary), reached }
    }

    fn open(&self) -> Wire {
        Wire::open(self.reached.addresses()[0], "trusted")
    }

    /// The primary goes, with all that is under way, and another one is there.
    fn replace(&mut self) {
        self.toy = Toy::new();
        let next = node_with(Arc::clone(&self.toy), None);
        *self.leads.lock().unwrap() = Some(next.takes());
        drop(self.primary.replace(next));
    }
}

#[test]
fn what_a_client_sends_reaches_the_primary_and_comes_back() {
    let cluster = Cluster::new();
    let mut wire = cluster.open();
    assert_eq!(wire.ask(&query("SELECT 7")), "T D C ZI");
    let all = [parse("s", "ECHO $1"), bind("", "s", &[Some("x")]), execute("", 0), sync()].concat();
    assert_eq!(wire.ask(&all), "1 2 D C ZI");
    assert_eq!(wire.ask(&query("BEGIN")), "C ZT");
    assert_eq!(wire.ask(&query("FAIL")), "E22012 ZE");
    assert_eq!(wire.ask(&query("ROLLBACK")), "C ZI");
    // A row that is longer than what is gathered, and many.
    assert_eq!(wire.ask(&query("WIDE 1000000")), "T D C ZI");
    wire.send(&query("ROWS 100000"));
    assert_eq!(wire.receive_until('Z').len(), 100_003);
    // A message that comes a byte at a time, and one that is cut at any place.
    for byte in query("SELECT 8") {
        wire.send(&[byte]);
    }
    assert_eq!(outline(&wire.receive_until('Z')), "T D C ZI");
    // The number that it knows is that of its session there.
    wire.send(&query("PID"));
    let answers = wire.receive_until('Z');
    assert_eq!(String::from_utf8_lossy(&answers[1].1[6..]), wire.pid.to_string());
    assert_eq!(wire.ask(b"Q\0\0\0\x03"), "E08P01");
}

#[test]
fn much_is_asked_before_an_answer_is_read() {
    let cluster = Cluster::new();
    let mut wire = cluster.open();
    let one = [parse("", "WIDE 20000"), bind("", "", &[]), execute("", 0), sync()].concat();
    // More than the sockets between hold, in either direction.
    let mut writing = wire.stream().try_clone().unwrap();
    let writer = std::thread::spawn(move || {
        for _ in 0..20_000 {
            writing.write_all(&one).unwrap();
        }
    });
    for _ in 0..20_000 {
        assert_eq!(outline(&wire.receive_until('Z')), "1 2 D C ZI");
    }
    writer.join().unwrap();
}

#[test]
fn each_kind_of_loss_has_its_answer() {
    let mut cluster = Cluster::new();
    let mut wire = cluster.open();
    // Idle: nothing is heard.
    cluster.replace();
    assert_eq!(wire.ask(&query("SELECT 1")), "T D C ZI");
    // A statement by itself: it was ended, and the primary could say so.
    wire.send(&query("WAIT 60000"));
    assert_eq!(wire.receive().unwrap().0, 'T');
    cluster.replace();
    assert_eq!(outline(&wire.receive_until('Z')), "E40001 ZI");
    // A transaction that waits for its client.
    assert_eq!(wire.ask(&query("BEGIN")), "C ZT");
    assert_eq!(wire.ask(&query("SELECT 1")), "T D C ZT");
    cluster.replace();
    assert_eq!(wire.ask(&query("SELECT 1")), "E40001 ZE");
    assert!(matches!(&*wire.ask(&query("ROLLBACK")), "C ZI"));
    // Part of a message: the rest of it goes nowhere, since there was too much of it. What comes
    // with it is answered when that part is on its way.
    let long = query(&format!("ECHO {}", " ".repeat(300_000)));
    wire.send(&[&query("SELECT 1"), &long[..200_000]].concat());
    assert_eq!(outline(&wire.receive_until('Z')), "T D C ZI");
    let until = Instant::now() + SOON;
    cluster.replace();
    assert_eq!(outline(&wire.receive_until('Z')), "E40001 ZI", "it was not whole");
    wire.send(&long[200_000..]);
    assert_eq!(wire.ask(&query("SELECT 2")), "T D C ZI");
    assert!(Instant::now() < until);
    // A batch without its Sync: one error, and all up to the Sync is passed over.
    wire.send(&[parse("", "SELECT 3"), bind("", "", &[]), message(b'H', b"")].concat());
    assert_eq!((wire.receive().unwrap().0, wire.receive().unwrap().0), ('1', '2'));
    cluster.replace();
    let (kind, body) = wire.receive().unwrap();
    assert_eq!((kind, wire::field(&body, 'C').as_deref()), ('E', Some("40001")));
    assert_eq!(wire.ask(&[execute("", 0), sync()].concat()), "ZI");
    assert_eq!(wire.ask(&query("SELECT 4")), "T D C ZI");
}

/// Its primary lives, and may commit what has no answer yet.
#[test]
fn a_node_that_ends_leaves_no_commit_for_rolled_back() {
    for (begins, answer) in [(None, "E40003 ZI E57P01"), (Some(query("BEGIN")), "E57P01")] {
        let cluster = Cluster::new();
        let mut wire = cluster.open();
        if let Some(begins) = begins {
            assert_eq!(wire.ask(&begins), "C ZT");
        }
        wire.send(&query("WAIT 60000"));
        assert_eq!(wire.receive().unwrap().0, 'T');
        let Cluster { reached, .. } = cluster;
        let ends = std::thread::spawn(move || drop(reached));
        let mut heard = Vec::new();
        while let Some(message) = wire.receive() {
            heard.push(message);
        }
        assert_eq!(outline(&heard), answer);
        ends.join().unwrap();
    }
}

/// A client that has gone may have repeated elsewhere what it said: it is not done later. Without
/// that its session would wait for a primary for ten seconds.
#[test]
fn what_waits_for_a_primary_ends_with_its_client() {
    let mut cluster = Cluster::new();
    let mut wire = cluster.open();
    assert_eq!(wire.ask(&query("SELECT 1")), "T D C ZI");
    *cluster.leads.lock().unwrap() = None;
    drop(cluster.primary.take());
    wire.send(&query("ENTER"));
    let gone = Instant::now();
    drop(wire);
    while cluster.reached.sessions().count() > 0 {
        assert!(gone.elapsed() < Duration::from_secs(9), "it still waits for a primary");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// What waits for a primary is dropped, and is not done later; the session continues.
#[test]
fn what_waits_for_a_primary_can_be_canceled() {
    let mut cluster = Cluster::new();
    let mut wire = cluster.open();
    let batch = [parse("", "ENTER"), bind("", "", &[]), execute("", 0), sync()].concat();
    for (before, sent, answers) in [
        (None, query("ENTER"), "E57014 ZI"),
        (None, batch, "E57014 ZI"),
        (Some(query("BEGIN")), query("ENTER"), "E57014 ZE"),
    ] {
        if let Some(before) = &before {
            assert_eq!(wire.ask(before), "C ZT");
        }
        *cluster.leads.lock().unwrap() = None;
        drop(cluster.primary.take());
        wire.send(&sent);
        let until = Instant::now() + SOON;
        while !wire.is_answered() {
            assert!(Instant::now() < until && cluster.reached.sessions().cancel(wire.pid as i32), "it waits");
            std::thread::sleep(Duration::from_millis(1));
        }
        assert_eq!(outline(&wire.receive_until('Z')), answers);
        // Were it done later, its answer would come first.
        cluster.replace();
        if before.is_some() {
            assert!(wire.ask(&query("SELECT 1")).ends_with("E25P02 ZE"));
            assert_eq!(wire.ask(&query("ROLLBACK")), "C ZI");
        }
        assert_eq!(wire.ask(&query("SELECT 1")), "T D C ZI");
    }
}

/// In a transaction, as its client takes it, nothing is done by itself after a loss.
#[test]
fn a_lost_transaction_stays_failed() {
    let mut cluster = Cluster::new();
    let mut wire = cluster.open();
    // What begins it is under way; and what may commit, but need not.
    for sent in ["BEGIN; WAIT 60000", "WAIT 60000; SELECT 2"] {
        if sent.starts_with("WAIT") {
            assert_eq!(wire.ask(&query("BEGIN")), "C ZT");
            assert_eq!(wire.ask(&query("SELECT 1")), "T D C ZT");
        }
        wire.send(&query(sent));
        while wire.receive().unwrap().0 != 'T' {}
        cluster.replace();
        assert!(outline(&wire.receive_until('Z')).ends_with("ZE"), "{sent}");
        assert!(wire.ask(&query("SELECT 1")).ends_with("E25P02 ZE"), "{sent}");
        assert_eq!(wire.ask(&query("ROLLBACK")), "C ZI");
    }
}

#[test]
fn what_was_not_begun_goes_to_the_next_primary() {
    let mut cluster = Cluster::new();
    let mut wire = cluster.open();
    let batch = |sql| [parse("", sql), bind("", "", &[]), execute("", 0), sync()].concat();
    let [begin, select] = ["BEGIN", "SELECT 1"].map(query);
    for (before, heard, sent, answers) in [
        (&[][..], "", query("ENTER"), "C ZI"),
        (&[], "", batch("ENTER"), "1 2 C ZI"),
        (&[], "", [query("ENTER"), select.clone()].concat(), "C ZI T D C ZI"),
        (&[&begin], "C ZT", query("ENTER"), "C ZT"),
        (&[&batch("BEGIN")], "1 2 C ZT", batch("ENTER"), "1 2 C ZT"),
        // Something was done in the transaction, so that it is lost.
        (&[&begin, &select], "C ZT T D C ZT", query("ENTER"), "E40001 ZE"),
        (&[], "", [begin.clone(), select.clone(), query("ENTER")].concat(), "C ZT T D C ZT E40001 ZE"),
    ] {
        let sent_before: Vec<String> = before.iter().map(|bytes| wire.ask(bytes)).collect();
        assert_eq!(sent_before.join(" "), heard);
        cluster.toy.holds.store(true, Ordering::SeqCst);
        wire.send(&sent);
        let until = Instant::now() + SOON;
        while cluster.toy.held.load(Ordering::SeqCst) == 0 {
            assert!(Instant::now() < until, "it waits");
            std::thread::sleep(Duration::from_millis(1));
        }
        cluster.replace();
        let mut said: Vec<String> = Vec::new();
        while said.join(" ").len() < answers.len() {
            said.push(outline(&wire.receive_until('Z')));
        }
        assert_eq!(said.join(" "), answers);
        let _ = wire.ask(&query("ROLLBACK"));
    }
    // A transaction in which nothing was done, and nothing is under way.
    assert_eq!(wire.ask(&begin), "C ZT");
    cluster.replace();
    assert_eq!(wire.ask(&select), "T D C ZT");
    // Part of a message.
    wire.send(&select[..4]);
    cluster.replace();
    wire.send(&select[4..]);
    assert_eq!(outline(&wire.receive_until('Z')), "E40001 ZE", "it has done something before");
    assert_eq!(wire.ask(&query("ROLLBACK")), "C ZI");
    wire.send(&select[..4]);
    cluster.replace();
    wire.send(&select[4..]);
    assert_eq!(outline(&wire.receive_until('Z')), "T D C ZI");
}

#[test]
fn a_client_waits_for_a_primary_and_not_for_ever() {
    let mut cluster = Cluster::new();
    let mut wire = cluster.open();
    *cluster.leads.lock().unwrap() = None;
    drop(cluster.primary.take());
    wire.send(&query("SELECT 1"));
    let next = node(None);
    std::thread::sleep(Duration::from_millis(200));
    assert!(!wire.is_answered());
    *cluster.leads.lock().unwrap() = Some(next.takes());
    assert_eq!(outline(&wire.receive_until('Z')), "T D C ZI");
    *cluster.leads.lock().unwrap() = None;
    drop(next);
    assert_eq!(wire.ask(&query("SELECT 1")), "E57P03");
}

#[test]
fn what_is_handed_on_makes_sense_or_ends() {
    let primary = node(None);
    let nonsense: [&[u8]; 4] = [b"", b"\xff\xff\xff\xff", b"\0\0\0\x04abcd", b"\0\0\0\0"];
    for bytes in nonsense {
        let (mut near, far) = pair();
        near.set_read_timeout(Some(SOON)).unwrap();
        primary.takes().serve(far, None, Vec::new(), HandedOn { pid: 1, node: 1, own: false }).unwrap();
        near.write_all(bytes).unwrap();
        near.shutdown(std::net::Shutdown::Write).unwrap();
        let mut said = Vec::new();
        near.read_to_end(&mut said).unwrap();
        assert!(said.is_empty() || said.starts_with(b"E"), "{said:?}");
    }
    assert_eq!(primary.sessions().count(), 0);
}
