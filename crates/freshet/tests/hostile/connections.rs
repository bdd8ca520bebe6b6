//! Too many connections, and such that do not begin.

use std::thread;

use crate::{client::Client, subject::Subject};

const SEATS: usize = 12;
/// So many of them are for superusers.
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
                    client.say(b"Q");
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

#[test]
fn who_says_nothing_keeps_nobody_out() {
    let mut subject = Subject::start(SEATS);
    // More than may be beginning at once; some have begun to say something.
    let mut silent: Vec<Client> = (0..200).map(|_| Client::connect(subject.address())).collect();
    for client in silent.iter_mut().step_by(3) {
        client.say(b"\0\0\0\x40\0\x03");
    }
    for _ in 0..3 {
        assert_eq!(subject.connect().rows("SELECT 1"), [["1"]]);
    }
    drop(silent);
    subject.assert_unharmed();
}
