//! Wrong passwords: clients that give them wait, and no others do.

mod toy;
mod wire;

use std::{
    net::SocketAddr,
    time::{Duration, Instant},
};

use freshet_postgres::{Limits, Server};
use toy::{Toy, options};
use wire::{CANCEL, Wire, message, packet, query, startup};

fn serve(limits: Limits) -> (std::sync::Arc<Toy>, Server, SocketAddr) {
    let (toy, server) = Toy::serve(options(limits));
    let address = server.addresses()[0];
    (toy, server, address)
}

/// A client that has given a wrong password, and has no answer yet.
fn guess(address: SocketAddr, user: &str) -> Wire {
    try_guess(address, user).unwrap_or_else(|refusal| panic!("{refusal}"))
}

/// The same, or the refusal of a client that may not even guess.
fn try_guess(address: SocketAddr, user: &str) -> Result<Wire, String> {
    let mut wire = Wire::connect(address);
    wire.send(&startup(&[("user", user)]));
    let (kind, body) = wire.receive().unwrap();
    if kind == 'E' {
        return Err(String::from_utf8_lossy(&body).into_owned());
    }
    assert_eq!(kind, 'R');
    let first = b"n,,n=,r=abcdefgh";
    let length = u32::try_from(first.len()).unwrap().to_be_bytes();
    wire.send(&message(b'p', &[b"SCRAM-SHA-256\0", &length[..], first].concat()));
    let (_, body) = wire.receive().unwrap();
    let challenge = String::from_utf8(body[4..].to_vec()).unwrap();
    let nonce = challenge.split(',').next().unwrap();
    wire.send(&message(b'p', format!("c=biws,{nonce},p=dHp3lXyL5bmMzOxTBPPz4UUS3tyxD1Yxr+1B2/v7Z0c=").as_bytes()));
    Ok(wire)
}

fn refused(mut wire: Wire) -> String {
    wire.last_words()
}

/// What a real client of ann's hears.
fn log_in(address: SocketAddr, password: &str) -> Result<(), String> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let mut config = tokio_postgres::Config::new();
    config.host("127.0.0.1").port(address.port()).user("ann").dbname("toys").password(password);
    match runtime.block_on(config.connect(tokio_postgres::NoTls)) {
        Ok(_) => Ok(()),
        Err(error) => Err(error.code().map_or_else(|| error.to_string(), |state| state.code().to_owned())),
    }
}

#[test]
fn a_guesser_waits_longer_each_time() {
    let (_toy, _server, address) = serve(Limits::default());
    let mut times = Vec::new();
    for _ in 0..7 {
        let begun = Instant::now();
        assert_eq!(refused(guess(address, "ann")), "E28P01");
        times.push(begun.elapsed());
    }
    // The first ones may be a mistake; then 100, 200, 400 and 800 ms.
    let waited: Duration = times[3..].iter().sum();
    assert!(waited >= Duration::from_millis(1_500) && times[6] >= Duration::from_millis(800), "{times:?}");
    // Roles that do not exist are delayed as well: the time does not tell which roles there are.
    let begun = Instant::now();
    assert_eq!(refused(guess(address, "nobody")), "E28P01");
    assert!(begun.elapsed() >= Duration::from_millis(800));
}

#[test]
fn a_right_password_does_not_wait_for_wrong_ones() {
    // Fewer may begin at once than guess.
    let (_toy, server, address) = serve(Limits { starting: 4, ..Limits::default() });
    for _ in 0..10 {
        // Not waited for: what counts is how many failures there were.
        drop(guess(address, "ann"));
    }
    let guesses: Vec<Wire> = (0..100).map(|_| guess(address, "ann")).collect();
    assert_eq!(log_in(address, "pencil"), Ok(()));
    // All of them have waited, and none has a thread or a seat.
    let unanswered = guesses.iter().filter(|guess| !guess.is_answered()).count();
    assert!(unanswered > 50, "{unanswered}");
    let threads = std::fs::read_dir("/proc/self/task").unwrap().filter(|task| {
        let name = std::fs::read_to_string(task.as_ref().unwrap().path().join("comm")).unwrap_or_default();
        name.strip_prefix("pg ").is_some_and(|rest| rest.trim().parse::<i32>().is_ok())
    });
    assert!(threads.count() < 60);
    for guess in guesses {
        assert_eq!(refused(guess), "E28P01");
    }
    assert_eq!(log_in(address, "wrong"), Err("28P01".to_owned()));
    assert_eq!(server.shut_down(Duration::from_secs(5)), 0);
}

#[test]
fn a_log_can_have_who_was_not_let_in() {
    let (toy, _server, address) = serve(Limits::default());
    for user in ["ann", "nobody", "ann", "ann"] {
        assert_eq!(refused(guess(address, user)), "E28P01");
    }
    assert_eq!(log_in(address, "pencil"), Ok(()));
    drop(Wire::open(address, "trusted"));
    assert_eq!(
        *toy.logins.lock().unwrap(),
        [
            "ann: 28P01 (it does not know the password) after 0ns",
            "nobody: 28P01 (nobody knows it) after 0ns",
            "ann: 28P01 (it does not know the password) after 0ns",
            "ann: 28P01 (it does not know the password) after 100ms",
            "ann in after 4",
            "trusted in after 4"
        ]
    );
}

#[test]
fn guesses_in_parallel_are_bounded_and_keep_nobody_out() {
    // Long enough that none is answered before the last one has come.
    let (_toy, _server, address) = serve(Limits { refusal: Duration::from_secs(600), ..Limits::default() });
    // After these each further one waits for minutes. To hang up does not end that.
    (0..16).for_each(|_| drop(guess(address, "ann")));
    let early: Vec<Wire> = (0..10).map(|_| guess(address, "ann")).collect();
    assert!(early.iter().all(|guess| !guess.is_answered()));
    let (other, held) = (guess(address, "nobody"), guess(address, "nobody"));
    (0..600).for_each(|_| drop(guess(address, "ann")));
    // Who guesses on takes the places of his own guesses, and of no others.
    for guess in early {
        assert_eq!(refused(guess), "E28P01");
    }
    assert!(!other.is_answered() && !held.is_answered());
    // A client with the right password gets in all the same.
    assert_eq!(log_in(address, "pencil"), Ok(()));
}

#[test]
fn a_server_that_ends_does_not_wait_for_refusals() {
    let (_toy, server, address) = serve(Limits::default());
    let guesses: Vec<Wire> = (0..20).map(|_| guess(address, "ann")).collect();
    let begun = Instant::now();
    assert_eq!(server.shut_down(Duration::from_secs(30)), 0);
    for guess in guesses {
        // Either what it waited for, or the end.
        let last = refused(guess);
        assert!(["E28P01", "", "E57P01"].contains(&last.as_str()), "{last}");
    }
    assert!(begun.elapsed() < Duration::from_secs(20));
}

#[test]
fn numbers_of_sessions_are_not_counted_from_one() {
    let pid = || {
        let (_toy, _server, address) = serve(Limits::default());
        Wire::open(address, "trusted").pid
    };
    assert_ne!((pid(), pid(), pid()), (1, 1, 1));
}

/// Version 3.2 of the protocol has keys that cannot be guessed; a client that asks for a later
/// version gets the answer that 3.2 is the latest.
#[test]
fn newer_clients_have_longer_keys() {
    let (_toy, _server, address) = serve(Limits::default());
    for (minor, is_corrected, length) in [(0, false, 4), (1, false, 4), (2, false, 32), (9999, true, 32)] {
        let mut wire = Wire::connect(address);
        wire.send(&packet(3 << 16 | minor, b"user\0trusted\0\0"));
        let answers = wire.receive_until('Z');
        let of = |kind| answers.iter().find(|(it, _)| *it == kind).map(|(_, body)| body.clone());
        assert_eq!(
            of('v').map(|body| body[..4].to_vec()),
            is_corrected.then(|| (3_u32 << 16 | 2).to_be_bytes().to_vec()),
            "{minor}"
        );
        let key = of('K').unwrap();
        assert_eq!(key.len(), 4 + length, "{minor}");
        // The key as a whole, and nothing else, cancels.
        let cancel = |key: &[u8]| {
            let mut other = Wire::connect(address);
            other.send(&packet(CANCEL, key));
            assert_eq!(other.receive(), None);
        };
        wire.send(&query("WAIT 20000"));
        wire.receive_until('T');
        cancel(&[&key[..4 + length - 1], &[key[3 + length] ^ 1]].concat());
        if length > 4 {
            cancel(&key[..8]);
        }
        assert!(!wire.is_answered());
        cancel(&key);
        assert_eq!(wire::outline(&wire.receive_until('Z')), "E57014 ZI");
    }
}

#[test]
fn keys_for_canceling_cannot_be_guessed_at_leisure() {
    let (_toy, _server, address) = serve(Limits::default());
    let mut wire = Wire::open(address, "trusted");
    let cancel = |pid: u32, key: &[u8]| {
        let mut other = Wire::connect(address);
        other.send(&packet(CANCEL, &[&pid.to_be_bytes()[..], key].concat()));
        let begun = Instant::now();
        assert_eq!(other.receive(), None);
        begun.elapsed()
    };
    let times: Vec<Duration> = (0..7).map(|_| cancel(wire.pid, &[1, 2, 3, 4])).collect();
    assert!(times[6] >= Duration::from_millis(800), "{times:?}");
    // The right one counts all the same.
    let _ = cancel(wire.pid, &wire.secret);
    assert_eq!(wire.ask(&query("SELECT 1")), "T D C ZI");
}
