//! Whatever a client says, the server answers in whole messages, comes to an end, and does not
//! fall.

mod toy;
mod wire;

use std::{sync::mpsc, thread};

use freshet_postgres::{Limits, conversation};
use proptest::{collection::vec, prelude::*, sample::Index};
use toy::Toy;
use wire::*;

/// What the server says, and whether it fell.
fn answers(bytes: &[u8], piece: usize) -> Vec<u8> {
    let (sender, receiver) = mpsc::channel();
    let toy = Toy::brief();
    let backend = toy.clone();
    let bytes = bytes.to_vec();
    thread::spawn(move || {
        let limits = Limits { message: 1 << 20, ..Limits::default() };
        let _ = sender.send(conversation(backend, limits, &bytes, piece));
    });
    let answers = receiver.recv_timeout(SOON).expect("it comes to an end");
    for reason in toy.ended.lock().unwrap().iter() {
        assert!(!reason.contains("not foreseen"), "{reason}");
    }
    answers
}

/// Messages, after what was answered to requests for encryption.
fn messages(received: &[u8]) -> Vec<Answer> {
    let declined = received.iter().take_while(|byte| **byte == b'N').count();
    // A notice begins with the same letter, but never comes first.
    cut(&received[declined..]).expect("whole messages")
}

fn begin() -> Vec<u8> {
    startup(&[("user", "trusted"), ("application_name", "test")])
}

/// A conversation that has something of everything.
fn everything() -> Vec<Vec<u8>> {
    vec![
        packet(TLS, b""),
        packet(GSS, b""),
        begin(),
        query("SELECT 1; NOTICE hello; SET a b; ROWS 3"),
        query(""),
        query("FAIL"),
        parse("s", "ECHO $ $"),
        describe('S', "s"),
        bind("p", "s", &[Some("value"), None]),
        describe('P', "p"),
        execute("p", 0),
        close('P', "p"),
        message(b'H', b""),
        sync(),
        parse("", "ROWS 9"),
        bind("", "", &[]),
        execute("", 4),
        execute("", 4),
        sync(),
        parse("", "FAIL"),
        bind("", "", &[]),
        execute("", 0),
        sync(),
        query("BEGIN; COPY toys FROM STDIN; LISTEN"),
        message(b'd', b"one\ntwo\n"),
        message(b'd', b""),
        message(b'c', b""),
        query("COPY toys FROM STDIN"),
        message(b'f', b"no\0"),
        query("ROLLBACK; COPYOUT 3; COMMIT"),
        message(b'F', b"\0\0\0\x01"),
        message(b'X', b""),
    ]
}

const OUTLINE: &str = "R S S S S S S S S S S S S S K ZI \
    T D C N C S C T D D D C ZI I ZI E22012 ZI 1 t T 2 T D C 3 ZI 1 2 D D D D s D D D D s ZI 1 2 E22012 ZI \
    C G C C ZT G E57014 ZE C H d d d c C C ZI E0A000 ZI";

#[test]
fn a_conversation_with_everything_in_it() {
    let bytes = everything().concat();
    let expected = answers(&bytes, usize::MAX);
    let outline = outline(&messages(&expected));
    let mut words = outline.split(' ').zip(OUTLINE.split(' ')).enumerate();
    if let Some((at, (found, wanted))) = words.find(|(_, (found, wanted))| found != wanted) {
        panic!("{found} instead of {wanted} as word {at} of {outline}");
    }
    for piece in [1, 2, 3, 7, 100] {
        assert_eq!(answers(&bytes, piece), expected, "{piece}");
    }
    for end in 0..bytes.len() {
        messages(&answers(&bytes[..end], usize::MAX));
    }
}

/// What can happen to bytes.
#[derive(Clone, Debug)]
enum Mutation {
    Set(Index, u8),
    Cut(Index, usize),
    Insert(Index, Vec<u8>),
    Repeat(Index, usize),
}

fn mutation() -> impl Strategy<Value = Mutation> {
    prop_oneof![
        3 => (any::<Index>(), any::<u8>()).prop_map(|(at, byte)| Mutation::Set(at, byte)),
        1 => (any::<Index>(), 1..20_usize).prop_map(|(at, count)| Mutation::Cut(at, count)),
        1 => (any::<Index>(), vec(any::<u8>(), 1..20)).prop_map(|(at, bytes)| Mutation::Insert(at, bytes)),
        1 => (any::<Index>(), 1..200_usize).prop_map(|(at, count)| Mutation::Repeat(at, count)),
    ]
}

fn mutate(bytes: &mut Vec<u8>, mutation: &Mutation) {
    if bytes.is_empty() {
        return;
    }
    match mutation {
        Mutation::Set(at, byte) => *at.get_mut(bytes) = *byte,
        Mutation::Cut(at, count) => {
            let start = at.index(bytes.len());
            bytes.drain(start..bytes.len().min(start + count));
        }
        Mutation::Insert(at, new) => {
            let at = at.index(bytes.len());
            bytes.splice(at..at, new.iter().copied());
        }
        Mutation::Repeat(at, count) => {
            let start = at.index(bytes.len());
            let again = bytes[start..bytes.len().min(start + count)].to_vec();
            bytes.splice(start..start, again);
        }
    }
}

/// A step of a client that knows the protocol.
#[derive(Clone, Debug)]
enum Step {
    /// A simple query, and whether it fails.
    Query(bool),
    Statement(bool),
    Execute,
    Flush,
    Sync,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        any::<bool>().prop_map(Step::Query),
        any::<bool>().prop_map(Step::Statement),
        Just(Step::Execute),
        Just(Step::Flush),
        Just(Step::Sync),
    ]
}

/// More of them on demand.
fn cases() -> u32 {
    std::env::var("PROPTEST_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(2000)
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(cases()) })]

    #[test]
    fn random_bytes(bytes in vec(any::<u8>(), 0..300), piece in 1..100_usize, begun in any::<bool>()) {
        let bytes = if begun { [begin(), bytes].concat() } else { bytes };
        messages(&answers(&bytes, piece));
    }

    #[test]
    fn random_messages(
        bodies in vec((prop::sample::select(b"QPBDECHSFdcfXp!".to_vec()), vec(any::<u8>(), 0..40)), 0..20),
        piece in 1..100_usize,
    ) {
        let bodies = bodies.iter().map(|(kind, body)| message(*kind, body));
        let bytes = std::iter::once(begin()).chain(bodies).collect::<Vec<_>>().concat();
        messages(&answers(&bytes, piece));
    }

    /// Proofs of identity, well begun and not.
    #[test]
    fn random_proofs(
        user in prop::sample::select(vec!["ann", "nobody", "clear"]),
        texts in vec("(SCRAM-SHA-256(-PLUS)?\0)?[ -~]{0,4}([nyp]=?,[a,]?n=[a-z]?,r=[!-~]{0,9})?", 0..4),
        lengths in vec(any::<bool>(), 4),
    ) {
        let mut bytes = startup(&[("user", user)]);
        for (text, with_length) in texts.iter().zip(lengths) {
            let body = match text.split_once('\0') {
                Some((name, data)) if with_length => {
                    let length = u32::try_from(data.len()).unwrap().to_be_bytes();
                    [name.as_bytes(), b"\0", &length, data.as_bytes()].concat()
                }
                _ => text.as_bytes().to_vec(),
            };
            bytes.extend(message(b'p', &body));
        }
        bytes.extend(query("SELECT 1"));
        let received = messages(&answers(&bytes, 10));
        prop_assert!(received.iter().all(|(kind, _)| "RE".contains(*kind)), "nobody is let in");
    }

    #[test]
    fn mutated_conversations(mutations in vec(mutation(), 1..6), piece in 1..1000_usize) {
        let mut bytes = everything().concat();
        for mutation in &mutations {
            mutate(&mut bytes, mutation);
        }
        messages(&answers(&bytes, piece));
    }

    #[test]
    fn shuffled_conversations(order in vec(any::<Index>(), 0..60)) {
        let all = everything();
        // Not the one that ends it.
        let bytes: Vec<_> = order.iter().map(|index| index.get(&all[3..all.len() - 1]).clone()).collect();
        let answers = messages(&answers(&[begin(), bytes.concat()].concat(), usize::MAX));
        prop_assert!(outline(&answers[..16]).ends_with("ZI"));
    }

    /// Every Sync, and every query that is not skipped, leaves the server ready once.
    #[test]
    fn the_server_is_ready_as_often_as_it_should_be(all in vec(step(), 0..40)) {
        let mut bytes = begin();
        let (mut ready, mut skipping) = (1, false);
        for step in &all {
            match step {
                Step::Query(fails) => bytes.extend(query(if *fails { "FAIL" } else { "SELECT 1" })),
                Step::Statement(fails) => bytes.extend(parse("", if *fails { "UNPARSABLE" } else { "SELECT 1" })),
                Step::Execute => bytes.extend(execute("not there", 0)),
                Step::Flush => bytes.extend(message(b'H', b"")),
                Step::Sync => bytes.extend(sync()),
            }
            match step {
                Step::Sync => (ready, skipping) = (ready + 1, false),
                Step::Query(_) if !skipping => ready += 1,
                Step::Statement(true) | Step::Execute => skipping = true,
                _ => {}
            }
        }
        let answers = messages(&answers(&bytes, 50));
        prop_assert_eq!(answers.iter().filter(|(kind, _)| *kind == 'Z').count(), ready);
    }
}
