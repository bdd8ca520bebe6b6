//! Too many connections, and such that do not begin.

use std::thread;

use freshet_fuzzing::message::startup;

use crate::{client::Client, subject::Subject};

const SEATS: usize = 12;
/// This many of them are for superusers.
const RESERVED: usize = 3;

#[test]
fn a_storm_beyond_the_limit_is_refused_and_passes() {
    let mut subject = Subject::start(SEATS);
    let address = subject.address();
    let storms: Vec<_> = (0..8)
        .map(|_| thread::spawn(move || (0..50).map(|_| Client::open(address, "freshet")).collect::<Vec<_>>()))
        .collect();
    let mut seated = Vec::new();
    let mut refused = 0;
    for storm in storms {
        for opened in storm.join().unwrap() {
            match opened {
                Ok(client) => seated.push(client),
                Err(state) => {
                    assert_eq!(state, "53300");
                    refused += 1;
                }
            }
        }
    }
    assert_eq!((seated.len(), refused), (SEATS, 400 - SEATS));
    for client in &mut seated {
        assert_eq!(client.rows("SELECT 1"), [["1"]]);
    }
    seated.into_iter().for_each(Client::terminate);
    subject.assert_unharmed();
    // All seats are free again.
    let again: Vec<_> = (0..SEATS).map(|_| subject.connect()).collect();
    drop(again);
    subject.assert_unharmed();
}

#[test]
fn connections_come_and_go_without_a_trace() {
    let mut subject = Subject::start(SEATS);
    let address = subject.address();
    let threads: Vec<_> = (0..SEATS - RESERVED - 2)
        .map(|number| {
            thread::spawn(move || {
                for round in 0..60 {
                    let Ok(mut client) = Client::open(address, "freshet") else { continue };
                    client.send(b"Q");
                    if (number + round) % 2 == 0 {
                        drop(client);
                    }
                }
            })
        })
        .collect();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    subject.assert_unharmed();
}

/// A client for which the system has no descriptor is refused, and the next one comes in when there
/// is one again.
#[test]
fn clients_beyond_the_last_descriptor_are_refused() {
    let mut subject = Subject::start(100);
    subject.allow_descriptors(12);
    let mut seated = Vec::new();
    let refused = loop {
        match Client::open(subject.address(), "freshet") {
            Ok(client) => seated.push(client),
            Err(state) => break state,
        }
        assert!(seated.len() <= 12, "more sessions than descriptors");
    };
    assert!(!seated.is_empty());
    assert_eq!(refused, "53300");
    // Also one that asks for encryption first, one that says nothing, and one that is gone at once.
    let mut silent = Client::connect(subject.address());
    drop(Client::connect(subject.address()));
    let mut asking = Client::connect(subject.address());
    asking.send(&[0, 0, 0, 8, 0x04, 0xd2, 0x16, 0x2f]);
    assert_eq!(asking.byte(), Some(b'N'));
    asking.send(&startup(&[("user", "freshet")]));
    assert_eq!(asking.outline(), "53300");
    assert_eq!(silent.outline(), "53300");
    for client in &mut seated {
        assert_eq!(client.rows("SELECT 1"), [["1"]]);
    }
    drop(seated);
    subject.assert_unharmed();
}

#[test]
fn who_sends_nothing_keeps_nobody_out() {
    let mut subject = Subject::start(SEATS);
    // More than may be beginning at once; some have begun to send something.
    let mut silent: Vec<Client> = (0..200).map(|_| Client::connect(subject.address())).collect();
    for client in silent.iter_mut().step_by(3) {
        client.send(b"\0\0\0\x40\0\x03");
    }
    for _ in 0..3 {
        assert_eq!(subject.connect().rows("SELECT 1"), [["1"]]);
    }
    drop(silent);
    subject.assert_unharmed();
}
