//! What is said to a server, byte by byte, and what it answers.

mod toy;
mod wire;

use std::{
    io::Read,
    net::SocketAddr,
    thread,
    time::{Duration, Instant},
};

use freshet_postgres::{Limits, Server};
use toy::{Toy, options};
use wire::*;

fn serve() -> (Server, SocketAddr) {
    serve_with(Limits::default())
}

fn serve_with(limits: Limits) -> (Server, SocketAddr) {
    let (_, server) = Toy::serve(options(limits));
    let address = server.addresses()[0];
    (server, address)
}

/// Has a session begin to wait, for long.
fn begin_to_wait(wire: &mut Wire, milliseconds: u32) {
    wire.send(&query(&format!("WAIT {milliseconds}")));
    assert_eq!(wire.receive().unwrap().0, 'T');
}

/// Waits for something that happens in another thread.
fn soon(what: impl Fn() -> bool) {
    let deadline = Instant::now() + SOON;
    while !what() {
        assert!(Instant::now() < deadline, "it has not happened");
        thread::sleep(Duration::from_millis(2));
    }
}

#[test]
fn a_session_begins_with_what_drivers_expect() {
    let (_server, address) = serve();
    let wire = Wire::open(address, "trusted");
    let value = |name: &str| {
        let found = wire.parameters.iter().find(|(known, _)| known == name);
        found.unwrap_or_else(|| panic!("{name} is not reported")).1.as_str()
    };
    assert!(value("server_version").starts_with("15.0 (Freshet"));
    assert_eq!(value("server_encoding"), "UTF8");
    assert_eq!(value("client_encoding"), "UTF8");
    assert_eq!(value("DateStyle"), "ISO, MDY");
    assert_eq!(value("integer_datetimes"), "on");
    assert_eq!(value("standard_conforming_strings"), "on");
    assert_eq!(value("session_authorization"), "trusted");
    for name in ["IntervalStyle", "TimeZone", "is_superuser", "in_hot_standby", "default_transaction_read_only"] {
        value(name);
    }
    assert_ne!(wire.pid, 0);
}

#[test]
fn simple_queries() {
    let (_server, address) = serve();
    let mut wire = Wire::open(address, "trusted");
    assert_eq!(wire.ask(&query("SELECT 1")), "T D C ZI");
    assert_eq!(wire.ask(&query("")), "I ZI");
    assert_eq!(wire.ask(&query("SELECT 1; BEGIN; NOTICE hello")), "T D C C N C ZT");
    // Those after an error are not run.
    assert_eq!(wire.ask(&query("SELECT 1; FAIL; SELECT 2")), "T D C E22012 ZE");
    assert_eq!(wire.ask(&query("SELECT 1")), "T E25P02 ZE");
    assert_eq!(wire.ask(&query("ROLLBACK")), "C ZI");
    assert_eq!(wire.ask(&query("SET application_name x")), "S C ZI");
    assert_eq!(wire.ask(&query("NO SUCH THING")), "E42601 ZI");
    // A function call by message is over after its error.
    assert_eq!(wire.ask(&message(b'F', b"anything")), "E0A000 ZI");
    // Left over from a copy that failed.
    assert_eq!(wire.ask(&[message(b'd', b"x"), message(b'c', b""), query("SELECT 1")].concat()), "T D C ZI");
}

#[test]
fn an_error_has_all_its_fields() {
    let (_server, address) = serve();
    let mut wire = Wire::open(address, "trusted");
    wire.send(&query("FAIL"));
    let (_, body) = wire.receive().unwrap();
    let fields = "SVCMDHPcdn".chars().map(|letter| field(&body, letter).unwrap());
    let expected = ["ERROR", "ERROR", "22012", "division by zero", "a detail", "a hint", "3", "c", "d", "n"];
    assert_eq!(fields.collect::<Vec<_>>(), expected);
}

#[test]
fn extended_queries() {
    let (_server, address) = serve();
    let mut wire = Wire::open(address, "trusted");
    let once = [parse("", "ECHO $ $"), bind("", "", &[Some("a"), None]), execute("", 0), sync()].concat();
    wire.send(&once);
    let answers = wire.receive_until('Z');
    assert_eq!(outline(&answers), "1 2 D C ZI");
    assert_eq!(answers[2].1, b"\0\x02\0\0\0\x01a\xff\xff\xff\xff");
    assert_eq!(answers[3].1, b"SELECT 1\0");

    assert_eq!(wire.ask(&[parse("s", "ROWS 5"), describe('S', "s"), sync()].concat()), "1 t T ZI");
    assert_eq!(wire.ask(&[parse("b", "BEGIN"), describe('S', "b"), sync()].concat()), "1 t n ZI");
    let some = [bind("p", "s", &[]), describe('P', "p"), execute("p", 2), execute("p", 2), execute("p", 2), sync()];
    assert_eq!(wire.ask(&some.concat()), "2 T D D s D D s D C ZI");
    assert_eq!(wire.ask(&[close('S', "s"), close('P', "p"), close('S', "never was"), sync()].concat()), "3 3 3 ZI");
    assert_eq!(wire.ask(&[bind("", "s", &[]), sync()].concat()), "E26000 ZI");
    // The empty statement.
    assert_eq!(wire.ask(&[parse("", ""), bind("", "", &[]), execute("", 0), sync()].concat()), "1 2 I ZI");
    // Answers come at a Flush too.
    wire.send(&[parse("", "SELECT 1"), message(b'H', b"")].concat());
    assert_eq!(wire.receive().unwrap().0, '1');
    assert_eq!(wire.ask(&sync()), "ZI");
}

#[test]
fn after_an_error_everything_up_to_sync_is_skipped() {
    let (_server, address) = serve();
    let mut wire = Wire::open(address, "trusted");
    let mut sent = [parse("", "FAIL"), bind("", "", &[]), execute("", 0)].concat();
    // Not even looked at.
    sent.extend([parse("", "SELECT 1"), message(b'B', b"nonsense"), query("SELECT 1")].concat());
    sent.extend([sync(), parse("", "SELECT 1"), bind("", "", &[]), execute("", 0), sync()].concat());
    wire.send(&sent);
    assert_eq!(outline(&wire.receive_until('Z')), "1 2 E22012 ZI");
    assert_eq!(outline(&wire.receive_until('Z')), "1 2 D C ZI");
    // An error is sent without a Sync.
    wire.send(&parse("", "UNPARSABLE"));
    assert_eq!(outline(&[wire.receive().unwrap()]), "E42601");
    assert_eq!(wire.ask(&sync()), "ZI");
    // A transaction is failed by what never came to the session.
    assert_eq!(wire.ask(&query("BEGIN")), "C ZT");
    assert_eq!(wire.ask(&[message(b'P', b"\xff\0SELECT 1\0\0\0"), sync()].concat()), "E22021 ZE");
    assert_eq!(wire.ask(&query("ROLLBACK")), "C ZI");
    assert_eq!(wire.ask(&message(b'Q', b"SELECT \xc3\x28\0")), "E22021 ZI");
}

#[test]
fn many_statements_in_one_breath() {
    for flushes in [false, true] {
        let toy = Toy::that_flushes(flushes);
        let server = Server::start(toy, options(Limits::default())).unwrap();
        let mut wire = Wire::open(server.addresses()[0], "trusted");
        wire.send(&[parse("s", "ROWS 3"), sync()].concat());
        wire.receive_until('Z');
        let one = [bind("", "s", &[]), execute("", 0), sync()].concat();
        wire.send(&one.repeat(1000));
        for _ in 0..1000 {
            assert_eq!(outline(&wire.receive_until('Z')), "2 D D D C ZI");
        }
        // Who has to wait for the second still hears of the first at once.
        let begun = Instant::now();
        wire.send(&[query("SELECT 1"), query("SLEEP 3000")].concat());
        assert_eq!(outline(&wire.receive_until('Z')), "T D C ZI");
        assert!(begun.elapsed() < Duration::from_secs(2));
        assert_eq!(outline(&wire.receive_until('Z')), "C ZI");
    }
}

#[test]
fn copies_in_and_out() {
    let (_server, address) = serve();
    let mut wire = Wire::open(address, "trusted");
    wire.send(&query("COPY toys FROM STDIN; SELECT 1"));
    assert_eq!(wire.receive().unwrap(), ('G', b"\0\0\x01\0\0".to_vec()));
    // Sync and Flush do not belong here, but may come.
    let data = [message(b'd', b"a\nb"), sync(), message(b'H', b""), message(b'd', b"\n"), message(b'c', b"")];
    let answers = {
        wire.send(&data.concat());
        wire.receive_until('Z')
    };
    assert_eq!(outline(&answers), "C T D C ZI");
    assert_eq!(answers[0].1, b"COPY 2\0");

    // The client gives up.
    wire.send(&query("COPY toys FROM STDIN"));
    wire.receive().unwrap();
    assert_eq!(wire.ask(&message(b'f', b"no more\0")), "E57014 ZI");
    // The server does; what the client still sends is dropped.
    wire.send(&query("COPY toys FROM STDIN"));
    wire.receive().unwrap();
    let data = [message(b'd', b"bad\n"), message(b'd', b"a\n"), message(b'c', b"")];
    assert_eq!(wire.ask(&data.concat()), "E22P04 ZI");
    assert_eq!(wire.ask(&query("SELECT 1")), "T D C ZI");

    // In the extended protocol, with a Sync too early and one in time.
    let data = [parse("", "COPY toys FROM STDIN"), bind("", "", &[]), execute("", 0), sync()].concat();
    wire.send(&[data, message(b'd', b"x\n"), message(b'c', b""), sync()].concat());
    assert_eq!(outline(&wire.receive_until('Z')), "1 2 G C ZI");
    let data = [parse("", "COPY toys FROM STDIN"), bind("", "", &[]), execute("", 0)].concat();
    wire.send(&[data, message(b'd', b"bad\n"), message(b'c', b""), sync()].concat());
    assert_eq!(outline(&wire.receive_until('Z')), "1 2 G E22P04 ZI");

    wire.send(&query("COPYOUT 3"));
    let answers = wire.receive_until('Z');
    assert_eq!(outline(&answers), "H d d d c C ZI");
    assert_eq!(answers[2].1, b"line 1\n");

    // What does not belong into a copy ends the connection.
    wire.send(&query("COPY toys FROM STDIN"));
    wire.receive().unwrap();
    wire.send(&query("SELECT 1"));
    assert_eq!(wire.last_words(), "E08P01");
}

#[test]
fn messages_that_are_none_end_the_connection_in_order() {
    let (_server, address) = serve();
    let cases: Vec<Vec<u8>> = vec![
        message(b'!', b""),
        message(b'p', b"password\0"),
        message(b'Q', b"SELECT 1"),
        message(b'Q', b"SELECT\0 1\0"),
        message(b'P', b""),
        message(b'B', b"\0\0\0\x05"),
        message(b'E', b"\0\0"),
        message(b'D', b"Z\0"),
        message(b'S', b"x"),
        b"S\0\0\0\x03".to_vec(),
        b"S\xff\xff\xff\xff".to_vec(),
        b"E\0\xff\xff\xff".to_vec(),
        b"Q\x7f\xff\xff\xff".to_vec(),
        b"GET / HTTP/1.1\r\n\r\n".to_vec(),
    ];
    for case in cases {
        let mut wire = Wire::open(address, "trusted");
        // Whatever else it has sent, the client gets to read why.
        wire.try_send(&[case.clone(), vec![b'x'; 100_000]].concat());
        assert_eq!(wire.last_words(), "E08P01", "{case:?}");
    }
}

#[test]
fn start_up_packets_that_are_none_are_refused_in_order() {
    let (_server, address) = serve();
    let cases: [(Vec<u8>, &str); 9] = [
        (b"GET / HTTP/1.1\r\n\r\n".to_vec(), "E08P01"),
        (vec![0; 8], "E08P01"),
        (packet(2 << 16, b"user\0x\0\0"), "E0A000"),
        (packet(3 << 16, b"user\0trusted"), "E08P01"),
        (packet(3 << 16, b"\0"), "E28000"),
        (startup(&[("user", "trusted"), ("replication", "true")]), "E0A000"),
        (startup(&[("user", "trusted"), ("database", "missing")]), "R E3D000"),
        (startup(&[("user", "trusted"), ("options", "-x")]), "R E42601"),
        ([packet(TLS, b""), packet(TLS, b"")].concat(), "?"),
    ];
    for (case, expected) in cases {
        let mut wire = Wire::connect(address);
        wire.send(&case);
        if expected == "?" {
            assert_eq!(wire.byte(), 'N');
            assert_eq!(wire.last_words(), "E08P01");
        } else {
            assert_eq!(wire.last_words(), expected, "{case:?}");
        }
    }
}

#[test]
fn encryption_that_is_not_offered_is_declined() {
    let (_server, address) = serve();
    let mut wire = Wire::connect(address);
    wire.send(&packet(TLS, b""));
    assert_eq!(wire.byte(), 'N');
    wire.send(&packet(GSS, b""));
    assert_eq!(wire.byte(), 'N');
    wire.send(&startup(&[("user", "trusted")]));
    assert_eq!(wire.receive_until('Z').last().unwrap().0, 'Z');
}

#[test]
fn a_newer_protocol_is_negotiated_down() {
    let (_server, address) = serve();
    let mut wire = Wire::connect(address);
    wire.send(&packet(3 << 16 | 9999, b"user\0trusted\0_pq_.new\0on\0\0"));
    let answers = wire.receive_until('Z');
    assert_eq!(answers[0], ('v', b"\0\x03\0\x02\0\0\0\x01_pq_.new\0".to_vec()));
    assert!(outline(&answers).ends_with("K ZI"));
}

#[test]
fn passwords() {
    let (_server, address) = serve();
    // In clear text, without TLS: not even asked for.
    assert_eq!(Wire::try_open(address, "clear").map(|_| ()), Err("28000".to_owned()));
    // Who exists and who does not are asked for the same.
    let asked = |user| {
        let mut wire = Wire::connect(address);
        wire.send(&startup(&[("user", user)]));
        let (kind, body) = wire.receive().unwrap();
        assert_eq!((kind, &body[..]), ('R', &b"\0\0\0\x0aSCRAM-SHA-256\0\0"[..]));
        let first = b"SCRAM-SHA-256\0\0\0\0\x20n,,n=,r=rOprNGfwEbeRWgbNEkqOxxxx";
        wire.send(&message(b'p', first));
        let (kind, body) = wire.receive().unwrap();
        assert_eq!((kind, &body[..4]), ('R', &[0, 0, 0, 11][..]));
        let challenge = String::from_utf8(body[4..].to_vec()).unwrap();
        let nonce = challenge.split(',').next().unwrap().to_owned();
        let proof = "dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=";
        wire.send(&message(b'p', format!("c=biws,{nonce},p={proof}").as_bytes()));
        let (_, body) = wire.receive().unwrap();
        let refusal = (field(&body, 'C').unwrap(), field(&body, 'M').unwrap().replace(user, "USER"));
        assert_eq!(wire.receive(), None);
        (challenge.split_once(",s=").unwrap().1.len(), refusal)
    };
    let refusal = ("28P01".to_owned(), "password authentication failed for user \"USER\"".to_owned());
    assert_eq!(asked("ann").1, refusal);
    assert_eq!(asked("nobody").1, refusal);

    let answers = [
        (message(b'p', b"SCRAM-SHA-1\0\0\0\0\0"), "E08P01"),
        (message(b'p', b"SCRAM-SHA-256-PLUS\0\0\0\0\x09n,,n=,r=x"), "E08P01"),
        (message(b'p', b"SCRAM-SHA-256\0\xff\xff\xff\xff"), "E08P01"),
        (message(b'p', b"SCRAM-SHA-256\0\0\0\0\x0bn,a=x,n=,r="), "E0A000"),
        (message(b'p', &[b'x'; 20_000]), "E08P01"),
        (query("SELECT 1"), "E08P01"),
    ];
    for (answer, expected) in answers {
        let mut wire = Wire::connect(address);
        wire.send(&startup(&[("user", "ann")]));
        wire.receive().unwrap();
        wire.try_send(&answer);
        assert_eq!(wire.last_words(), expected, "{answer:?}");
    }
}

#[test]
fn canceling() {
    let (server, address) = serve();
    let mut wire = Wire::open(address, "trusted");
    let cancel = |pid: u32, secret: [u8; 4]| {
        let mut other = Wire::connect(address);
        other.send(&packet(CANCEL, &[&pid.to_be_bytes()[..], &secret].concat()));
        assert_eq!(other.receive(), None);
    };
    // While idle it is void, even for the next statement.
    cancel(wire.pid, wire.secret);
    assert_eq!(wire.ask(&query("WAIT 50")), "T D C ZI");
    // With another secret, or for nobody, nothing happens.
    let begun = Instant::now();
    begin_to_wait(&mut wire, 300);
    cancel(wire.pid, wire.secret.map(|byte| byte ^ 1));
    cancel(wire.pid + 1, wire.secret);
    assert_eq!(outline(&wire.receive_until('Z')), "D C ZI");
    assert!(begun.elapsed() >= Duration::from_millis(300));
    begin_to_wait(&mut wire, 20_000);
    cancel(wire.pid, wire.secret);
    assert_eq!(outline(&wire.receive_until('Z')), "E57014 ZI");
    // By another session.
    begin_to_wait(&mut wire, 20_000);
    let mut other = Wire::open(address, "trusted");
    assert_eq!(other.ask(&query(&format!("CANCEL {}", wire.pid))), "C ZI");
    assert_eq!(outline(&wire.receive_until('Z')), "E57014 ZI");
    assert_eq!(other.ask(&query("CANCEL 99999")), "C ZI");
    assert!(server.sessions().cancel(i32::try_from(wire.pid).unwrap()));
    assert_eq!(server.sessions().count(), 2);
    // Oneself.
    let itself = query(&format!("CANCEL {}; WAIT 20000", wire.pid));
    assert_eq!(wire.ask(&itself), "C T E57014 ZI");
}

/// A client need not wait for its session before it says what to do.
#[test]
fn what_comes_with_the_start_up_can_be_canceled() {
    let (server, address) = serve();
    let mut wire = Wire::connect(address);
    wire.send(&[startup(&[("user", "trusted")]), query("WAIT 20000"), query("SELECT 1")].concat());
    let opened = wire.receive_until('Z');
    let key = opened.iter().find(|(kind, _)| *kind == 'K').unwrap();
    let pid = i32::from_be_bytes(*key.1.first_chunk().unwrap());
    assert_eq!(wire.receive().unwrap().0, 'T');
    soon(|| server.sessions().cancel(pid));
    assert!(outline(&wire.receive_until('Z')).starts_with("E57014"));
}

#[test]
fn clients_that_hang_up_are_not_worked_for() {
    let (server, address) = serve();
    let mut wire = Wire::open(address, "trusted");
    begin_to_wait(&mut wire, 600_000);
    drop(wire);
    soon(|| server.sessions().count() == 0);
}

#[test]
fn terminating() {
    let (server, address) = serve();
    let (mut idle, mut busy, mut copying, mut deaf) = (
        Wire::open(address, "trusted"),
        Wire::open(address, "trusted"),
        Wire::open(address, "trusted"),
        Wire::open(address, "trusted"),
    );
    begin_to_wait(&mut busy, 20_000);
    copying.send(&query("COPY toys FROM STDIN"));
    assert_eq!(copying.receive().unwrap().0, 'G');
    deaf.begin_to_write();
    let mut other = Wire::open(address, "trusted");
    for wire in [&idle, &busy, &copying, &deaf] {
        assert_eq!(other.ask(&query(&format!("TERMINATE {}", wire.pid))), "C ZI");
    }
    assert_eq!(idle.last_words(), "E57P01");
    assert_eq!(busy.last_words(), "E57P01");
    assert_eq!(copying.last_words(), "E57P01");
    soon(|| server.sessions().count() == 1);
    // Oneself: the answer comes before the end.
    assert_eq!(other.ask(&query(&format!("TERMINATE {}", other.pid))), "C ZI");
    assert_eq!(other.last_words(), "E57P01");
}

#[test]
fn sessions_that_idle_too_long_are_ended_with_an_error() {
    let (_server, address) = serve();
    let mut wire = Wire::open(address, "trusted");
    assert_eq!(wire.ask(&query("IDLE 300")), "C ZI");
    // Not idle while it works.
    assert_eq!(wire.ask(&query("WAIT 500")), "T D C ZI");
    assert_eq!(wire.last_words(), "E57P05");
    let mut wire = Wire::open(address, "trusted");
    assert_eq!(wire.ask(&query("IDLE 200; BEGIN")), "C C ZT");
    assert_eq!(wire.last_words(), "E25P03");
}

#[test]
fn news_reach_those_who_listen_while_they_are_idle() {
    let (toy, server) = Toy::serve(options(Limits::default()));
    let address = server.addresses()[0];
    let mut wire = Wire::open(address, "trusted");
    assert_eq!(wire.ask(&query("LISTEN")), "C ZI");
    for _ in 0..3 {
        toy.notify("hello");
        let (kind, body) = wire.receive().unwrap();
        assert_eq!((kind, &body[4..]), ('A', &b"news\0hello\0"[..]));
        assert_eq!(wire.ask(&query("SELECT 1")), "T D C ZI");
    }
}

#[test]
fn a_fatal_error_and_a_panic_end_only_their_connection() {
    let (toy, server) = Toy::serve(options(Limits::default()));
    let address = server.addresses()[0];
    let mut wire = Wire::open(address, "trusted");
    let mut other = Wire::open(address, "trusted");
    wire.send(&query("SELECT 1; FATAL"));
    assert_eq!(wire.last_words(), "T D C EXX000");
    let mut wire = Wire::open(address, "trusted");
    wire.send(&query("SELECT 1; PANIC"));
    assert_eq!(wire.last_words(), "T D C EXX000");
    assert_eq!(other.ask(&query("SELECT 1")), "T D C ZI");
    soon(|| server.sessions().count() == 1);
    assert_eq!(toy.ended.lock().unwrap().len(), 2);
}

#[test]
fn a_client_that_goes_away_is_noticed() {
    let (server, address) = serve();
    // At the next write.
    let mut wire = Wire::open(address, "trusted");
    wire.send(&query("ROWS 100000000"));
    wire.receive().unwrap();
    drop(wire);
    soon(|| server.sessions().count() == 0);
    // In a copy.
    let mut wire = Wire::open(address, "trusted");
    wire.send(&query("COPY toys FROM STDIN"));
    wire.receive().unwrap();
    drop(wire);
    soon(|| server.sessions().count() == 0);
}

#[test]
fn a_client_that_does_not_read_is_given_up() {
    let (server, address) = serve_with(Limits { write: Duration::from_millis(200), ..Limits::default() });
    let mut wire = Wire::open(address, "trusted");
    wire.send(&query("WIDE 100000000"));
    soon(|| server.sessions().count() == 0);
}

#[test]
fn messages_have_a_limit() {
    let (_server, address) = serve_with(Limits { message: 100_000, ..Limits::default() });
    let mut wire = Wire::open(address, "trusted");
    let just = format!("ECHO {}", " ".repeat(99_990));
    assert_eq!(wire.ask(&query(&just)), "T D C ZI");
    // One that is longer fails, as a part of either protocol, and the session can continue.
    assert_eq!(wire.ask(&query(&" ".repeat(100_000))), "E54000 ZI");
    let long = parse("", &" ".repeat(200_000));
    assert_eq!(wire.ask(&[long, bind("", "", &[]), sync()].concat()), "E54000 ZI");
    // The data of a copy comes in pieces, or is dropped when no statement wants it.
    let data = message(b'd', &b"a\n".repeat(150_000));
    wire.send(&[data.clone(), query("COPY toys FROM STDIN"), data, message(b'c', b"")].concat());
    let answers = wire.receive_until('Z');
    assert_eq!(outline(&answers), "G C ZI");
    assert_eq!(answers[1].1, b"COPY 150000\0");
    // No client sends as much as this.
    wire.try_send(b"Q\x7f\xff\xff\xff");
    assert_eq!(wire.last_words(), "E08P01");
}

#[test]
fn seats_are_limited_and_some_are_reserved() {
    let (server, address) = serve_with(Limits { connections: 3, reserved: 1, ..Limits::default() });
    let first = Wire::open(address, "trusted");
    let _second = Wire::open(address, "trusted");
    let refused = |user| Wire::try_open(address, user).err();
    assert_eq!(refused("trusted").as_deref(), Some("53300"));
    let _root = Wire::open(address, "root");
    assert_eq!(refused("root").as_deref(), Some("53300"));
    drop(first);
    soon(|| server.sessions().count() == 2);
    assert_eq!(refused("trusted").as_deref(), Some("53300"));
    let _another_root = Wire::open(address, "root");
}

#[test]
fn who_does_not_begin_is_sent_away() {
    let limits = Limits { start_up: Duration::from_millis(300), ..Limits::default() };
    let (_server, address) = serve_with(limits);
    let begun = Instant::now();
    let mut silent = Wire::connect(address);
    let mut slow = Wire::connect(address);
    slow.send(&startup(&[("user", "ann")]));
    slow.receive().unwrap();
    // Neither helps to send a little at a time.
    let drip = thread::spawn(move || {
        let mut drip = Wire::connect(address);
        for byte in startup(&[("user", "trusted")]) {
            thread::sleep(Duration::from_millis(50));
            if !drip.try_send(&[byte]) {
                break;
            }
        }
        drip.last_words()
    });
    assert_eq!(silent.last_words(), "");
    assert_eq!(slow.last_words(), "E57014");
    assert!(begun.elapsed() >= Duration::from_millis(290) && begun.elapsed() < Duration::from_secs(10));
    assert_eq!(drip.join().unwrap(), "");
}

#[test]
fn a_storm_of_connections_passes() {
    let limits =
        Limits { connections: 8, reserved: 0, starting: 4, start_up: Duration::from_secs(3), ..Limits::default() };
    let (server, address) = serve_with(limits);
    // These take all places to begin, and say nothing: they are sent away early, as others wait.
    let mut silent: Vec<_> = (0..4).map(|_| Wire::connect(address)).collect();
    let begun = Instant::now();
    let threads: Vec<_> = (0..8)
        .map(|_| {
            thread::spawn(move || {
                let mut counts = [0, 0];
                for _ in 0..25 {
                    match Wire::try_open(address, "trusted") {
                        Ok(mut wire) => {
                            assert_eq!(wire.ask(&query("SELECT 1")), "T D C ZI");
                            counts[0] += 1;
                        }
                        Err(code) => {
                            assert_eq!(code, "53300");
                            counts[1] += 1;
                        }
                    }
                }
                counts
            })
        })
        .collect();
    let counts: Vec<_> = threads.into_iter().map(|thread| thread.join().unwrap()).collect();
    assert!(counts.iter().map(|[served, _]| served).sum::<u32>() > 0);
    assert!(begun.elapsed() < Duration::from_secs(3), "{:?}", begun.elapsed());
    for wire in &mut silent {
        let mut rest = Vec::new();
        wire.stream().read_to_end(&mut rest).unwrap();
        assert_eq!(rest, b"");
    }
    soon(|| server.sessions().count() == 0);
}

/// Logins that stop halfway, or proceed byte by byte, keep no client out for long, and disturb no
/// session.
#[test]
fn a_login_gets_through_while_a_thousand_others_hold_on() {
    let (_server, address) = serve();
    let mut seated = Wire::open(address, "trusted");
    let holding: Vec<_> = (0..1000)
        .map(|number| {
            let stream = std::net::TcpStream::connect(address);
            if let Ok(mut stream) = stream.as_ref()
                && number % 2 == 0
            {
                // The beginning of a start-up packet; perhaps it was sent away already.
                let _ = std::io::Write::write_all(&mut stream, &[0, 0, 0]);
            }
            stream
        })
        .collect();
    assert_eq!(seated.ask(&query("SELECT 1")), "T D C ZI");
    let mut late = Wire::open(address, "trusted");
    assert_eq!(late.ask(&query("SELECT 1")), "T D C ZI");
    assert_eq!(seated.ask(&query("SELECT 1")), "T D C ZI");
    drop(holding);
}

#[test]
fn limits_may_be_extreme() {
    let ever = Duration::MAX;
    let limits = Limits { start_up: ever, write: ever, keep_alive: ever, message: usize::MAX, ..Limits::default() };
    let (server, address) = serve_with(limits);
    let mut wire = Wire::open(address, "trusted");
    assert_eq!(wire.ask(&query("SELECT 1")), "T D C ZI");
    drop(wire);
    assert_eq!(server.shut_down(ever), 0);
    let none = Duration::ZERO;
    let limits = Limits { start_up: none, write: none, keep_alive: none, starting: 0, ..Limits::default() };
    let (_server, address) = serve_with(limits);
    assert_eq!(Wire::connect(address).last_words(), "");
}

#[test]
fn an_orderly_shutdown() {
    let (server, address) = serve();
    let (mut idle, mut brief, mut long, mut open) = (
        Wire::open(address, "trusted"),
        Wire::open(address, "trusted"),
        Wire::open(address, "trusted"),
        Wire::open(address, "trusted"),
    );
    assert_eq!(open.ask(&query("BEGIN")), "C ZT");
    let mut starting = Wire::connect(address);
    begin_to_wait(&mut brief, 1500);
    begin_to_wait(&mut long, 20_000);
    let begun = Instant::now();
    let stopping = thread::spawn(move || server.shut_down(Duration::from_secs(3)));
    assert_eq!(idle.last_words(), "E57P01");
    assert_eq!(open.last_words(), "E57P01");
    assert_eq!(starting.last_words(), "");
    assert!(begun.elapsed() < Duration::from_millis(1400), "idle ones go at once");
    assert_eq!(brief.last_words(), "D C ZI E57P01");
    assert_eq!(long.last_words(), "E57P01");
    assert_eq!(stopping.join().unwrap(), 0);
    assert!(begun.elapsed() < Duration::from_secs(10));
    assert!(std::net::TcpStream::connect(address).is_err(), "nobody listens any more");
}

#[test]
fn a_shutdown_does_not_wait_for_the_deaf() {
    let (server, address) = serve();
    let mut deaf = Wire::open(address, "trusted");
    deaf.begin_to_write();
    let begun = Instant::now();
    assert_eq!(server.shut_down(Duration::from_millis(100)), 0);
    // And not as long as a write may take.
    assert!(begun.elapsed() < SOON);
    // Dropping a server ends it as well.
    let (server, address) = serve();
    let mut idle = Wire::open(address, "trusted");
    drop(server);
    assert_eq!(idle.last_words(), "E57P01");
}
