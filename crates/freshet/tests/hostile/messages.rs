//! Messages that are none.

use freshet_fuzzing::message::{CANCEL, bind, close, describe, execute, message, packet, parse, query, startup, sync};

use crate::{client::Client, subject::Subject};

#[test]
fn malformed_messages_end_their_session_in_order() {
    let mut subject = Subject::start(10);
    let long = vec![b'x'; 20_000];
    let cases: &[(&str, Vec<u8>)] = &[
        ("a kind that there is not", message(b'!', b"")),
        ("a kind of the server", message(b'Z', b"I")),
        ("a length below four", b"Q\0\0\0\x03".to_vec()),
        ("no length", b"Q\0\0\0\0".to_vec()),
        ("a negative length", b"Q\xff\xff\xff\xff".to_vec()),
        ("a length beyond the limit", b"Q\x7f\xff\xff\xff".to_vec()),
        ("much to describe", message(b'D', &long)),
        ("a long Sync", message(b'S', &long)),
        ("a query that does not end", message(b'Q', b"SELECT 1")),
        ("something after its end", message(b'Q', b"SELECT 1\0x")),
        ("an empty Parse", message(b'P', b"")),
        ("types that are not there", message(b'P', b"\0SELECT 1\0\xff\xff")),
        ("values that are not there", message(b'B', b"\0\0\0\0\xff\xff")),
        ("a value longer than its message", message(b'B', b"\0\0\0\0\0\x01\x7f\xff\xff\xff\0\0")),
        ("a value of negative length", message(b'B', b"\0\0\0\0\0\x01\xff\xff\xff\xfe\0\0")),
        ("Describe of something else", describe(b'X', "")),
        ("Close of something else", close(b'Q', "")),
        ("half an Execute", message(b'E', b"\0\0\0")),
        ("a Sync with something in it", message(b'S', b"x")),
    ];
    for (what, bytes) in cases {
        let mut client = subject.connect();
        // What it has begun goes with it.
        assert_eq!(client.state("BEGIN; UPDATE t SET a = 0; SELECT pg_advisory_lock(1)"), "", "{what}");
        assert_eq!(client.ask(bytes), "08P01", "{what}");
    }
    assert_eq!(subject.connect().rows("SELECT sum(a) FROM t"), [["3"]]);
    subject.assert_unharmed();
}

#[test]
fn messages_that_cannot_be_meant_are_errors_like_others() {
    let mut subject = Subject::start(10);
    let mut client = subject.connect();
    let then_sync = |messages: &[Vec<u8>]| [messages.concat(), sync()].concat();
    let cases: &[(&str, Vec<u8>, &str)] = &[
        ("no UTF-8", query(b"SELECT '\xff'"), "22021"),
        ("just beyond the limit", query(&vec![b' '; 64 << 20]), "54000"),
        ("a function call", message(b'F', b"\0\0\0\x01\0\0\0\0\0\0"), "0A000"),
        ("no UTF-8 in a name", then_sync(&[message(b'P', b"\xc3\0SELECT 1\0\0\0")]), "22021"),
        ("two statements", then_sync(&[parse("", b"SELECT 1; SELECT 2", &[])]), "42601"),
        ("a type that there is not", then_sync(&[parse("", b"SELECT $1", &[999_999])]), "42704"),
        ("a statement that there is not", then_sync(&[bind("", "nothing", 0, &[])]), "26000"),
        ("a portal that there is not", then_sync(&[execute("nothing", 0)]), "34000"),
        ("too few values", then_sync(&[parse("", b"SELECT $1::int", &[]), bind("", "", 0, &[])]), "08P01"),
        ("too many values", then_sync(&[parse("", b"SELECT 1", &[]), bind("", "", 0, &[None, None])]), "08P01"),
        (
            "a format that there is not",
            then_sync(&[parse("", b"SELECT $1::int", &[]), bind("", "", 7, &[None])]),
            "22023",
        ),
        ("no number", then_sync(&[parse("", b"SELECT $1::int", &[]), bind("", "", 0, &[Some(b"x")])]), "22P02"),
        (
            "a number of three bytes",
            then_sync(&[parse("", b"SELECT $1::int", &[]), bind("", "", 1, &[Some(b"abc")])]),
            "08P01",
        ),
        (
            "a text with a NUL",
            then_sync(&[parse("", b"SELECT $1::text", &[]), bind("", "", 0, &[Some(b"a\0b")])]),
            "22021",
        ),
        ("a parameter beyond all", then_sync(&[parse("", b"SELECT $65536", &[])]), "42P02"),
        ("no parameter", then_sync(&[parse("", b"SELECT $0", &[])]), "42P02"),
        ("a name twice", then_sync(&[parse("a", b"SELECT 1", &[]), parse("a", b"SELECT 2", &[])]), "42P05"),
    ];
    for (what, bytes, state) in cases {
        assert_eq!(client.ask(bytes), format!("{state} Z"), "{what}");
        assert_eq!(client.rows("SELECT 1"), [["1"]], "{what}");
    }
    client.terminate();
    subject.assert_unharmed();
}

#[test]
fn as_many_parameters_as_there_can_be() {
    let mut subject = Subject::start(10);
    let mut client = subject.connect();
    let list = |count: usize| (1..=count).map(|number| format!("${number}::int")).collect::<Vec<_>>().join(",");
    let sql = format!("SELECT count(*) FROM t WHERE id IN ({})", list(65_535));
    let values = vec![Some(&b"1"[..]); 65_535];
    let bytes = [parse("", sql.as_bytes(), &[]), bind("", "", 0, &values), execute("", 0), sync()].concat();
    assert_eq!(client.ask(&bytes), "Z");
    let columns = vec!["1"; 2000].join(",");
    assert_eq!(client.state(&format!("SELECT {columns}")), "54011");
    client.terminate();
    subject.assert_unharmed();
}

#[test]
fn what_does_not_begin_as_a_session_does() {
    let mut subject = Subject::start(10);
    let cases: &[(&str, Vec<u8>, &str)] = &[
        ("another protocol", b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n".to_vec(), "08P01"),
        ("a short packet", b"\0\0\0\x07\0\x03\0".to_vec(), "08P01"),
        ("a long packet", [&20_000_u32.to_be_bytes()[..], &[0; 100]].concat(), "08P01"),
        ("a negative length", b"\xff\xff\xff\xff\0\x03\0\0".to_vec(), "08P01"),
        ("an old version", packet(2 << 16, b"user\0freshet\0\0"), "0A000"),
        ("a new version", packet(4 << 16, b"user\0freshet\0\0"), "0A000"),
        ("nobody", startup(&[]), "28000"),
        ("an empty name", startup(&[("user", "")]), "28000"),
        ("a name without a value", packet(3 << 16, b"user\0"), "08P01"),
        ("no UTF-8", packet(3 << 16, b"user\0\xff\0\0"), "08P01"),
        ("a setting that there is not", startup(&[("user", "freshet"), ("nothing_such", "1")]), "42704"),
        ("a value that cannot be", startup(&[("user", "freshet"), ("options", "-c statement_timeout=x")]), "22023"),
        ("options that are none", startup(&[("user", "freshet"), ("options", "--")]), "42601"),
        ("replication", startup(&[("user", "freshet"), ("replication", "true")]), "0A000"),
    ];
    for (what, bytes, state) in cases {
        assert_eq!(Client::connect(subject.address()).ask(bytes), *state, "{what}");
    }
    // A wrong key cancels nothing, and is not answered.
    let mut stranger = Client::connect(subject.address());
    stranger.send(&packet(CANCEL, b"\0\0\0\x01abcd"));
    assert!(stranger.receive().is_none());
    subject.assert_unharmed();
}

/// What a server says to somebody who proves himself with a wrong password: the messages' kinds,
/// and the final error.
fn wrong_proof(subject: &Subject, user: &str) -> (String, Vec<usize>, String) {
    let mut client = Client::connect(subject.address());
    client.send(&startup(&[("user", user)]));
    let mut kinds = String::new();
    let mut lengths = Vec::new();
    let first = b"n,,n=,r=rOprNGfwEbeRWgbNEkqO";
    let body = [&b"SCRAM-SHA-256\0"[..], &(first.len() as u32).to_be_bytes(), first].concat();
    let mut sent = 0;
    loop {
        match client.receive() {
            Some((b'R', received)) => {
                kinds.push('R');
                lengths.push(received.len());
                let nonce = String::from_utf8_lossy(&received[4..]).into_owned();
                let nonce = nonce.split(',').next().unwrap_or_default().trim_start_matches("r=").to_owned();
                let proof = format!("c=biws,r={nonce},p=dHp3lXyL5bmMzOxTBPPz4UUS3tyxD1Yxr+1B2/v7Z0c=");
                let next = if sent == 0 { message(b'p', &body) } else { message(b'p', proof.as_bytes()) };
                sent += 1;
                client.send(&next);
            }
            Some((b'E', body)) => {
                let state = freshet_fuzzing::message::field(&body, b'C').unwrap();
                let text = freshet_fuzzing::message::field(&body, b'M').unwrap().replace(user, "?");
                return (kinds, lengths, format!("{state} {text}"));
            }
            other => panic!("{other:?} for {user}"),
        }
    }
}

#[test]
fn a_wrong_password_and_an_unknown_user_look_the_same() {
    let mut subject = Subject::start(10);
    let known = wrong_proof(&subject, "ann");
    assert_eq!(known.0, "RR");
    assert!(known.2.starts_with("28P01"), "{known:?}");
    for user in ["nobody", "bob", "ann\u{e9}"] {
        assert_eq!(wrong_proof(&subject, user), known, "{user}");
    }
    subject.assert_unharmed();
}
