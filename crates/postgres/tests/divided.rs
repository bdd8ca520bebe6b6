//! Sessions whose reads go to a standby, over plain sockets: what their clients hear whatever that
//! does. The standby follows a script.

mod toy;
mod wire;

use std::{
    collections::VecDeque,
    io::{Read, Write},
    net::{Shutdown, TcpListener, TcpStream},
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use freshet_postgres::{
    Access, Asks, Backend, Hop, Limits, Link, Note, Opening, Parameters, Peer, Proof, Report, Route, Served, Server,
    Session, Startup, Takes,
    route::{HandedOn, Stated},
};
use toy::{Toy, options};
use wire::{Wire, bind, execute, message, outline, parse, query, sync};

/// What the standby does with a unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Act {
    /// It answers with two rows.
    Answer,
    /// It begins a transaction.
    Begin,
    /// It ends one.
    End,
    /// It does not show what it must.
    Decline,
    /// It says nothing, not even that it is ready.
    Silence,
    /// It announces columns, and finds then that it would have to write.
    Write,
    /// It goes, before it has said anything but what it announces.
    Go,
    /// It goes after a row.
    GoLater,
}

#[derive(Default)]
struct Standby {
    /// What it does next; when nothing is left, it answers.
    script: Mutex<VecDeque<Act>>,
    /// What it was received: the kinds of messages, unit by unit.
    received: Mutex<Vec<String>>,
}

fn error(state: &str) -> Vec<u8> {
    message(b'E', format!("SERROR\0VERROR\0C{state}\0Mno\0\0").as_bytes())
}

fn ready(status: u8) -> Vec<u8> {
    message(b'Z', &[status])
}

fn note(note: &Note) -> Vec<u8> {
    message(b'=', &postcard::to_allocvec(note).unwrap())
}

impl Standby {
    fn serve(&self, mut stream: TcpStream) -> Option<()> {
        let mut length = [0; 4];
        stream.read_exact(&mut length).ok()?;
        stream.read_exact(&mut vec![0; u32::from_be_bytes(length) as usize]).ok()?;
        stream.write_all(&ready(b'I')).ok()?;
        loop {
            let mut kinds = String::new();
            while !kinds.ends_with(['Q', 'S']) {
                let mut head = [0; 5];
                stream.read_exact(&mut head).ok()?;
                let length = u32::from_be_bytes(*head.last_chunk().unwrap()) as usize - 4;
                stream.read_exact(&mut vec![0; length]).ok()?;
                kinds.push(char::from(head[0]));
            }
            self.received.lock().unwrap().push(kinds);
            let act = self.script.lock().unwrap().pop_front().unwrap_or(Act::Answer);
            let row = message(b'D', b"\0\0");
            let columns = message(b'T', b"\0\0");
            let done = message(b'C', b"DONE\0");
            let is_ready = if act == Act::Silence { Vec::new() } else { note(&Note::Ready) };
            let says = match act {
                Act::Answer => [&columns[..], &row, &row, &done, &ready(b'I')].concat(),
                Act::Begin => [done, ready(b'T')].concat(),
                Act::End => [done, note(&Note::Seen(77)), ready(b'I')].concat(),
                Act::Decline => [note(&Note::Declined), ready(b'I')].concat(),
                Act::Silence => Vec::new(),
                Act::Write => [columns, error("25006"), ready(b'I')].concat(),
                Act::Go => columns,
                Act::GoLater => [columns, row].concat(),
            };
            stream.write_all(&[is_ready, says].concat()).ok()?;
            if matches!(act, Act::Go | Act::GoLater) {
                let _ = stream.shutdown(Shutdown::Both);
                return None;
            }
        }
    }
}

/// A node that leads, or one that divides its sessions.
struct Node {
    toy: Arc<Toy>,
    divides: Option<(Takes, Arc<Standby>)>,
}

impl Backend for Node {
    fn access(&self, startup: &Startup, peer: &Peer) -> Result<Access, Report> {
        self.toy.access(startup, peer)
    }

    fn open(&self, opening: Opening<'_>, serve: &mut dyn FnMut(&mut dyn Session, &Parameters)) -> Result<(), Report> {
        self.toy.open(opening, serve)
    }

    fn admit_handed(&self, _: &Startup) -> Result<Access, Report> {
        Ok(Access::by(Proof::None))
    }

    fn route(&self, _: &Startup) -> Result<Served, Report> {
        Ok(match &self.divides {
            None => Served::Here,
            Some((takes, standby)) => Served::Divided(Box::new(To(takes.clone(), Arc::clone(standby)))),
        })
    }
}

struct To(Takes, Arc<Standby>);

/// Both ends of a connection.
fn pair() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    (near, listener.accept().unwrap().0)
}

impl Route for To {
    fn connect(&self, pid: i32, _: Duration) -> Result<(Hop, Box<dyn Link>), String> {
        let (near, far) = pair();
        self.0
            .serve(far, None, Vec::new(), HandedOn { pid, node: 1, own: false })
            .map_err(|cause| cause.to_string())?;
        Ok((Hop::new(near, None, Vec::new()).unwrap(), Box::new(At)))
    }

    fn connect_reader(&self, _: i32, _: usize, _: bool, _: Duration) -> Result<(Hop, Box<dyn Link>), String> {
        let (near, far) = pair();
        let standby = Arc::clone(&self.1);
        std::thread::spawn(move || standby.serve(far));
        Ok((Hop::new(near, None, Vec::new()).unwrap(), Box::new(At)))
    }

    fn asks(&self, sql: &str) -> Vec<Asks> {
        let of = |sql: &str| match sql.trim() {
            "BEGIN" => Asks::Begins(Stated::default()),
            "BEGIN READ ONLY" => Asks::Begins(Stated { read_only: Some(true), serializable: None }),
            "COMMIT" | "ROLLBACK" => Asks::Ends,
            "LISTEN" => Asks::Modes(Stated { read_only: Some(true), serializable: None }),
            sql if sql.starts_with("SELECT") => Asks::Rows,
            sql if sql.starts_with("ECHO") => Asks::Session,
            _ => Asks::Other,
        };
        sql.split(';').map(of).collect()
    }
}

struct At;

impl Link for At {
    fn is_past(&self) -> bool {
        false
    }

    fn cancel(&self, _: i32, _: &[u8]) {}
}

struct Cluster {
    standby: Arc<Standby>,
    reached: Server,
    _primary: Server,
}

impl Cluster {
    fn new() -> Self {
        let serve =
            |divides| Server::start(Arc::new(Node { toy: Toy::new(), divides }), options(Limits::default())).unwrap();
        let primary = serve(None);
        let standby = Arc::new(Standby::default());
        Self { reached: serve(Some((primary.takes(), Arc::clone(&standby)))), standby, _primary: primary }
    }

    fn open(&self) -> Wire {
        Wire::open(self.reached.addresses()[0], "trusted")
    }

    fn script(&self, acts: &[Act]) {
        self.standby.script.lock().unwrap().extend(acts);
    }

    /// What has come to the standby since the last look, once there is this number of units: a
    /// client does not wait until the end of a transaction that has moved is there.
    fn received(&self, count: usize) -> Vec<String> {
        let until = Instant::now() + Duration::from_secs(30);
        while self.standby.received.lock().unwrap().len() < count && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(5));
        }
        std::mem::take(&mut self.standby.received.lock().unwrap())
    }
}

/// What the standby says of a query, and the primary.
const BY_STANDBY: &str = "T D D C ZI";
const BY_PRIMARY: &str = "T D C ZI";

/// Asks again until the standby has answered: it is left alone for a while after it has failed.
fn until_it_reads(wire: &mut Wire) {
    let until = Instant::now() + Duration::from_secs(30);
    while wire.ask(&query("SELECT 1")) != BY_STANDBY {
        assert!(Instant::now() < until, "it reads no more");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn reads_go_to_the_standby_and_the_rest_to_the_primary() {
    let cluster = Cluster::new();
    let mut wire = cluster.open();
    assert_eq!(wire.ask(&query("SELECT 1")), BY_STANDBY);
    assert_eq!(wire.ask(&query("ROWS 1")), BY_PRIMARY);
    let batch = |sql: &str| [parse("", sql), bind("", "", &[]), execute("", 0), sync()].concat();
    assert_eq!(wire.ask(&batch("SELECT 1")), BY_STANDBY);
    assert_eq!(wire.ask(&batch("ROWS 1")), "1 2 D C ZI");
    // A driver's BEGIN comes with the first statement.
    cluster.script(&[Act::Begin, Act::Answer]);
    let begins = [parse("", "BEGIN READ ONLY"), bind("", "", &[]), execute("", 0), batch("ROWS 1")].concat();
    assert_eq!(wire.ask(&begins), "C ZT", "as the script has it");
    assert_eq!(wire.ask(&query("ROWS 1")), BY_STANDBY);
    assert_eq!(cluster.received(4), ["=Q", "=PBES", "=PBEPBES", "Q"]);
    // All together, and piece by piece.
    let all = [query("ROWS 1"), query("SELECT 2"), batch("SELECT 3"), query("SELECT 4")].concat();
    wire.send(&all[..11]);
    wire.send(&all[11..40]);
    wire.send(&all[40..]);
    assert_eq!(outline(&wire.receive_until('Z')), BY_PRIMARY);
    for expected in [BY_PRIMARY, "1 2 D C ZI", BY_PRIMARY] {
        assert_eq!(outline(&wire.receive_until('Z')), expected, "what was said together goes the same way");
    }
    assert_eq!(wire.ask(&query("SELECT 5")), BY_STANDBY);
}

#[test]
fn what_a_client_has_not_seen_the_primary_does_instead() {
    for (act, at_least) in [
        (Act::Decline, Duration::ZERO),
        (Act::Write, Duration::ZERO),
        (Act::Go, Duration::ZERO),
        (Act::Silence, Duration::from_secs(1)),
    ] {
        let cluster = Cluster::new();
        let mut wire = cluster.open();
        until_it_reads(&mut wire);
        cluster.script(&[act]);
        let before = Instant::now();
        assert_eq!(wire.ask(&query("SELECT 7")), BY_PRIMARY, "{act:?}");
        assert!(before.elapsed() >= at_least && before.elapsed() < Duration::from_secs(20), "{act:?}");
        until_it_reads(&mut wire);
        // With a batch, and one that begins a transaction.
        cluster.script(&[act]);
        let batch = [parse("s", "SELECT 7"), bind("", "s", &[]), execute("", 0), sync()].concat();
        assert_eq!(wire.ask(&batch), "1 2 D C ZI", "{act:?}");
        until_it_reads(&mut wire);
        cluster.script(&[act]);
        assert_eq!(wire.ask(&query("BEGIN READ ONLY")), "C ZT", "{act:?}");
        assert_eq!(wire.ask(&query("SELECT 8")), "T D C ZT", "{act:?}");
        assert_eq!(wire.ask(&query("COMMIT")), "C ZI", "{act:?}");
    }
}

#[test]
fn what_a_client_has_seen_fails_and_its_session_continues() {
    let cluster = Cluster::new();
    let mut wire = cluster.open();
    until_it_reads(&mut wire);
    cluster.script(&[Act::GoLater]);
    assert_eq!(wire.ask(&query("SELECT 7")), "T D E40001 ZI");
    assert_eq!(wire.ask(&query("SELECT 7")), BY_PRIMARY);
    // In a transaction, which has failed then.
    until_it_reads(&mut wire);
    cluster.script(&[Act::Begin, Act::GoLater]);
    assert_eq!(wire.ask(&query("BEGIN READ ONLY")), "C ZT");
    assert_eq!(wire.ask(&query("SELECT 7")), "T D E40001 ZE");
    assert_eq!(wire.ask(&query("SELECT 7")), "T E25P02 ZE");
    assert_eq!(wire.ask(&query("ROLLBACK")), "C ZI");
    assert_eq!(wire.ask(&query("ROWS 1")), BY_PRIMARY);
    // And where its COMMIT has no answer: there was nothing to be kept.
    until_it_reads(&mut wire);
    cluster.script(&[Act::Begin, Act::Go]);
    assert_eq!(wire.ask(&query("BEGIN READ ONLY")), "C ZT");
    assert_eq!(wire.ask(&query("COMMIT")), "T E40001 ZI");
    assert_eq!(wire.ask(&query("ROWS 1")), BY_PRIMARY);
}

#[test]
fn a_transaction_moves_that_has_only_begun() {
    let cluster = Cluster::new();
    let mut wire = cluster.open();
    until_it_reads(&mut wire);
    cluster.received(0);
    // To the standby, which gets its beginning, and the primary its end.
    cluster.script(&[Act::Begin, Act::Begin, Act::End]);
    assert_eq!(wire.ask(&query("BEGIN")), "C ZT");
    assert_eq!(wire.ask(&query("LISTEN")), "C ZT");
    assert_eq!(wire.ask(&query("COMMIT")), "C ZI");
    assert_eq!(cluster.received(3), ["=Q", "Q", "Q"]);
    // To the primary.
    cluster.script(&[Act::Begin, Act::End]);
    assert_eq!(wire.ask(&query("BEGIN READ ONLY")), "C ZT");
    assert_eq!(wire.ask(&query("ECHO")), "T D C ZT", "the primary's");
    assert_eq!(wire.ask(&query("COMMIT")), "C ZI");
    assert_eq!(cluster.received(2), ["=Q", "Q"], "its beginning and its end");
    // Nowhere, when there is nowhere to go, or after something was done.
    cluster.script(&[Act::Decline]);
    assert_eq!(wire.ask(&query("BEGIN")), "C ZT");
    assert_eq!(wire.ask(&query("LISTEN")), "C ZT");
    assert_eq!(wire.ask(&query("SELECT 1")), "T D C ZT");
    assert_eq!(wire.ask(&query("ROLLBACK")), "C ZI");
    until_it_reads(&mut wire);
    assert_eq!(wire.ask(&query("BEGIN")), "C ZT");
    assert_eq!(wire.ask(&query("SELECT 1")), "T D C ZT");
    assert_eq!(wire.ask(&query("LISTEN")), "C ZT");
    assert_eq!(wire.ask(&query("SELECT 1")), "T D C ZT");
    assert_eq!(wire.ask(&query("ROLLBACK")), "C ZI");
}

#[test]
fn what_makes_no_sense_ends_the_session() {
    let cluster = Cluster::new();
    let mut wire = cluster.open();
    until_it_reads(&mut wire);
    assert_eq!(wire.ask(b"Q\0\0\0\x03"), "E08P01");
    // Only nodes may say what a session is asked for.
    let mut wire = cluster.open();
    assert_eq!(wire.ask(&message(b'=', b"\xff\xff")), "E08P01");
}
