//! What every fabric must do, and the channel upon it.

use std::{sync::Arc, thread, time::Instant};

use freshet_base::{ClusterId, NodeId, Term, sync::Ordering, words};

use super::*;
use crate::{
    channel::{Arrival, Receiver, Sender, Side},
    frame::Header,
    memory::{Registered, SharedMemory},
    stream::Stream,
    tcp::{Connection, Listener, connect},
};

/// Longer than anything takes.
const PATIENCE: Duration = Duration::from_secs(20);

/// How two sides are connected.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Link {
    /// Without TLS.
    Bare(FabricKind),
    /// With TLS.
    Sealed(FabricKind),
    /// They greet each other with TLS, and agree to leave it then.
    Greeted(FabricKind),
}

impl Link {
    fn kind(self) -> FabricKind {
        let (Self::Bare(kind) | Self::Sealed(kind) | Self::Greeted(kind)) = self;
        kind
    }
}

impl std::fmt::Display for Link {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{self:?}")
    }
}

/// The fabrics that this machine has: `verbs` where an RDMA device for each side is named
/// ("rxe1,rxe2").
fn links() -> Vec<Link> {
    let mut links = vec![
        Link::Bare(FabricKind::Tcp),
        Link::Sealed(FabricKind::Tcp),
        Link::Greeted(FabricKind::Tcp),
        Link::Sealed(FabricKind::Shm),
    ];
    if std::env::var_os("FRESHET_VERBS_DEVICES").is_some() {
        links.push(Link::Sealed(FabricKind::Verbs));
    }
    links
}

/// How the first (0) or the second (1) side of a connection uses its fabric.
fn config(side: usize) -> FabricConfig {
    let devices = std::env::var("FRESHET_VERBS_DEVICES").unwrap_or_default();
    let device = devices.split(',').nth(side).map(|name| (name.to_owned(), 1, 1));
    FabricConfig { patience: PATIENCE, device, ..FabricConfig::default() }
}

fn beside(link: Link) -> (Connection, Connection) {
    let listener = Listener::bind("127.0.0.1:0").unwrap();
    let address = listener.address().unwrap().to_string();
    let one = connect(&address, PATIENCE).unwrap();
    let two = listener.accept().unwrap().unwrap();
    let (one, two) = match link {
        Link::Bare(_) => (one, two),
        Link::Sealed(_) => sealed(one, two),
        Link::Greeted(_) => {
            let (mut one, mut two) = sealed(one, two);
            one.sender().send(1, Term(1), b"hello").unwrap();
            two.receiver().receive().unwrap();
            two.sender().send(2, Term(1), b"welcome").unwrap();
            // The one that agrees may go first: what it sends is there before the other has read
            // the welcome.
            let mut two = two.bare();
            two.sender().send(3, Term(1), b"early").unwrap();
            assert_eq!(one.receiver().receive().unwrap().kind, 2);
            let mut one = one.bare();
            assert_eq!(one.receiver().receive().unwrap().kind, 3);
            (one, two)
        }
    };
    let (passage, other) = std::os::unix::net::UnixStream::pair().unwrap();
    (one.beside(passage), two.beside(other))
}

/// Two members of one cluster.
fn sealed(one: Connection, two: Connection) -> (Connection, Connection) {
    use freshet_membership::{Credentials, Enrolment, NewKey};
    let deadline = Instant::now() + PATIENCE;
    let first = Credentials::found(ClusterId(1), NodeId(1)).unwrap();
    let key = NewKey::generate().unwrap();
    let newcomer = Enrolment { public_key: key.public(), node: Some(NodeId(2)), secret: None };
    let second = Credentials::enrolled(first.enrol(&newcomer, true).unwrap(), &key).unwrap();
    thread::scope(|scope| {
        let secure = |it: Stream| it.secure_client(first.client(), Credentials::expected(), deadline);
        let one = scope.spawn(move || one.secured(secure).unwrap());
        let two = two.secured(|it| it.secure_server(second.server(), deadline)).unwrap();
        (one.join().unwrap(), two)
    })
}

fn memory(bytes: usize) -> Arc<SharedMemory> {
    Arc::new(SharedMemory::new(bytes, false).unwrap())
}

/// Two connected sides; the second offers `region`.
fn pair(link: Link, region: &Arc<SharedMemory>) -> (Connected, Connected) {
    let (one, two) = beside(link);
    let kind = link.kind();
    let first = Prepared::new(kind, vec![memory(8) as _], config(0)).unwrap();
    let second = Prepared::new(kind, vec![memory(8) as _, Arc::clone(region) as _], config(1)).unwrap();
    let (to_first, to_second) = (first.offer().clone(), second.offer().clone());
    // Each waits for the other's memory.
    thread::scope(|scope| {
        let first = scope.spawn(move || first.connect(&to_second, one).unwrap());
        let second = second.connect(&to_first, two).unwrap();
        (first.join().unwrap(), second)
    })
}

fn bytes_of(region: &SharedMemory, at: usize, length: usize) -> Vec<u8> {
    let mut bytes = vec![0; length];
    words::load(region.words(), at, &mut bytes);
    bytes
}

#[test]
fn a_limited_link_is_prompt_while_its_bucket_holds_the_bytes() {
    let region = memory(1 << 20);
    // At this rate nothing flows into the bucket while the test runs.
    let (mut one, _two) = pair(Link::Sealed(FabricKind::Shm), &region);
    one.queue = Box::new(crate::limit::Limited::new(one.queue, Arc::new(crate::limit::TokenBucket::gigabits(1e-9))));
    assert!(one.queue.is_prompt(), "as the link below it");
    assert!(one.queue.has_room(16 << 10) && !one.queue.has_room(17 << 10));
    one.queue.write(Place { region: 1, offset: 0 }, &[&[7; 8 << 10]]).unwrap();
    assert!(one.queue.has_room(7 << 10) && !one.queue.has_room(8 << 10), "what was written is gone from it");
    let (tcp, _other) = pair(Link::Bare(FabricKind::Tcp), &region);
    let tcp = crate::limit::Limited::new(tcp.queue, Arc::new(crate::limit::TokenBucket::gigabits(1e-9)));
    assert!(!tcp.is_prompt());
}

#[test]
fn what_was_written_before_an_immediate_value_is_in_place() {
    for link in links() {
        let region = memory(1 << 20);
        let (mut one, mut two) = pair(link, &region);
        let writer = thread::spawn(move || {
            for round in 1..=200u32 {
                let data = vec![round as u8; 200_000];
                one.queue.write(Place { region: 1, offset: 8 }, &[&data[..80_000], &data[80_000..]]).unwrap();
                one.queue.write_with_imm(Place { region: 1, offset: 0 }, &[&[round as u8; 8]], round).unwrap();
                // The memory is used again only when the other side has looked.
                assert!(one.completions.next(PATIENCE).unwrap() == Some(round));
            }
            one
        });
        for round in 1..=200u32 {
            assert_eq!(two.completions.next(PATIENCE).unwrap(), Some(round), "{link}");
            assert!(bytes_of(&region, 0, 200_008).iter().all(|byte| *byte == round as u8), "{link}");
            two.queue.write_with_imm(Place { region: 0, offset: 0 }, &[], round).unwrap();
        }
        let one = writer.join().unwrap();
        assert!(one.counters.read().sent_bytes >= 200 * 200_008);
        drop(one);
        assert!(two.completions.next(PATIENCE).is_err(), "{link}: the end of the one is heard by the other");
    }
}

#[test]
fn memory_is_read_and_added_to_from_afar() {
    for link in links() {
        let region = memory(4096);
        words::store(region.words(), 16, b"sixteen bytes on");
        let (one, two) = pair(link, &region);
        // Over TCP the other side has to listen.
        let Connected { queue: keep, mut completions, .. } = two;
        let listening = thread::spawn(move || {
            let end = completions.next(PATIENCE);
            drop(keep);
            end
        });
        let mut back = [0; 16];
        // This side has to listen too, for the answers.
        let Connected { mut queue, mut completions, .. } = one;
        let answers = thread::spawn(move || completions.next(PATIENCE));
        queue.read(Place { region: 1, offset: 16 }, &mut back).unwrap();
        assert_eq!(&back, b"sixteen bytes on");
        for round in 0..100 {
            assert_eq!(queue.fetch_add(Place { region: 1, offset: 8 }, 3).unwrap(), round * 3);
        }
        assert_eq!(region.words()[1].load(Ordering::SeqCst), 300);
        queue.complete().unwrap();
        queue.write_with_imm(Place { region: 1, offset: 0 }, &[], 9).unwrap();
        assert_eq!(listening.join().unwrap().unwrap(), Some(9));
        drop(queue);
        let _ = answers.join().unwrap();
    }
}

/// The one writes, announces, reads back, and believes that it counts; the other revokes at any
/// moment. (Query Fresh, section 2.3.)
#[test]
fn what_was_read_back_was_there_before_it_was_revoked() {
    const SLOTS: u64 = 1 << 15;
    for (link, rounds) in links().into_iter().map(|it| (it, if it.kind() == FabricKind::Shm { 300 } else { 20 })) {
        for round in 0..rounds {
            let region = memory(SLOTS as usize * 8);
            let (one, mut two) = pair(link, &region);
            let Connected { mut queue, mut completions, .. } = one;
            let answers = thread::spawn(move || while completions.next(PATIENCE).is_ok() {});
            let writer = thread::spawn(move || {
                let mut counts = 0;
                for number in 1..SLOTS {
                    let place = Place { region: 1, offset: number * 8 };
                    let mut back = [0; 8];
                    let outcome = queue
                        .write_with_imm(place, &[&number.to_ne_bytes()], number as u32)
                        .and_then(|()| queue.read(place, &mut back));
                    if outcome.is_err() {
                        break;
                    }
                    assert_eq!(u64::from_ne_bytes(back), number, "{link}: read back");
                    counts = number;
                }
                // However often it tries.
                assert!(queue.read(Place { region: 1, offset: 0 }, &mut [0; 8]).is_err(), "{link}: a read succeeds");
                assert!(queue.complete().is_err(), "{link}: it completes");
                counts
            });
            let mut heard = 0;
            for _ in 0..round % 40 {
                heard = two.completions.next(PATIENCE).unwrap().unwrap();
            }
            two.completions.revoke();
            let found = bytes_of(&region, 0, SLOTS as usize * 8);
            while let Ok(value) = two.completions.next(PATIENCE) {
                assert_eq!(value, Some(heard + 1), "{link}: in order, and nobody waits");
                heard += 1;
            }
            drop(two);
            let counts = writer.join().unwrap();
            assert!(counts <= u64::from(heard), "{link}, round {round}: {counts} were read back, {heard} announced");
            for number in 1..=counts {
                let at = number as usize * 8;
                assert_eq!(found[at..at + 8], number.to_ne_bytes(), "{link}, round {round}: read back, and not there");
            }
            answers.join().unwrap();
        }
    }
}

#[test]
fn nothing_is_touched_outside_of_what_was_offered() {
    for link in links() {
        let region = memory(4096);
        let (mut one, _two) = pair(link, &region);
        let inside = region.words().len() as u64 * 8;
        for (place, length) in [
            (Place { region: 1, offset: inside }, 8),
            (Place { region: 1, offset: inside - 8 }, 16),
            (Place { region: 1, offset: u64::MAX - 7 }, 16),
            (Place { region: 1, offset: 4 }, 8),
            (Place { region: 1, offset: 0 }, 12),
            (Place { region: 2, offset: 0 }, 8),
        ] {
            let outcome = one.queue.write(place, &[&vec![1; length]]);
            assert!(matches!(outcome, Err(SendError::OutOfBounds { .. })), "{link}, {place:?}: {outcome:?}");
        }
        one.queue.write(Place { region: 1, offset: inside - 8 }, &[&[1; 8]]).unwrap();
    }
}

#[test]
fn both_must_mean_the_same_fabric() {
    let (one, _two) = beside(Link::Bare(FabricKind::Tcp));
    let tcp = Prepared::new(FabricKind::Tcp, vec![memory(8) as _], FabricConfig::default()).unwrap();
    let shm = Prepared::new(FabricKind::Shm, vec![memory(8) as _], FabricConfig::default()).unwrap();
    let error = tcp.connect(shm.offer(), one).unwrap_err().to_string();
    assert!(error.contains("wants fabric shm, this one tcp"), "{error}");
}

/// Two ends of a channel; the second has a log buffer.
fn channel(link: Link, log: &Arc<SharedMemory>) -> ((Sender, Receiver), (Sender, Receiver)) {
    let (one, two) = beside(link);
    let kind = link.kind();
    let first = Side::new(kind, config(0), None).unwrap();
    let second = Side::new(kind, config(1), Some(Arc::clone(log) as _)).unwrap();
    let (to_first, to_second) = (first.offer().clone(), second.offer().clone());
    let connect = |side: Side, theirs: &Offer, connection| side.connect(theirs, connection, None, PATIENCE).unwrap();
    // Each waits for the other's memory.
    thread::scope(|scope| {
        let first = scope.spawn(move || connect(first, &to_second, one));
        let second = connect(second, &to_first, two);
        (first.join().unwrap(), second)
    })
}

#[test]
fn frames_go_round_the_mailbox_and_payloads_round_the_log() {
    for link in links() {
        let log = memory(4096);
        let ((mut sends, mut status), (mut tells, mut hears)) = channel(link, &log);
        let rounds = 300u64;
        let writer = thread::spawn(move || {
            // Its own end must be listened to as well, or nobody carries out what the other side
            // writes.
            let listening = thread::spawn(move || {
                while status.next(PATIENCE).is_ok_and(|it| it.is_some()) {}
                status.status()
            });
            for round in 0..rounds {
                let address = round * 1000;
                sends.place(address, &[round as u8; 1000]).unwrap();
                let message = vec![round as u8; 3 + 30_000 * (round as usize % 5)];
                sends.send(7, Term(3), address, 1000, &message).unwrap();
                if round % 7 == 0 {
                    sends.send_inline(8, Term(3), address, 5, b"message", &[round as u8; 5000]).unwrap();
                }
            }
            (sends, listening)
        });
        let mut told = 0;
        for round in 0..rounds {
            let Some(Arrival::Frame(header)) = hears.next(PATIENCE).unwrap() else { panic!("no frame") };
            assert_eq!((header.kind, header.term, header.address, header.payload), (7, Term(3), round * 1000, 1000));
            assert_eq!(hears.message(), vec![round as u8; 3 + 30_000 * (round as usize % 5)]);
            assert!(hears.inline().is_empty());
            if round % 7 == 0 {
                assert!(matches!(hears.next(PATIENCE), Ok(Some(Arrival::Frame(Header { kind: 8, .. })))));
                assert_eq!((hears.message(), hears.inline()), (&b"message"[..], &vec![round as u8; 5000][..]));
            }
            if hears.owes(told) {
                told = hears.taken();
                tells.status([round, 1, 2, 3, 4, 5, 6]).unwrap();
            }
        }
        let last = ((rounds - 1) * 1000 % 4096) as usize;
        let first = bytes_of(&log, last, (4096 - last).min(1000));
        assert!(first.iter().all(|byte| *byte == (rounds - 1) as u8), "{link}");
        tells.status([9, 1, 2, 3, 4, 5, 6]).unwrap();
        let (sends, listening) = writer.join().unwrap();
        drop((tells, hears));
        assert_eq!(listening.join().unwrap(), [9, 1, 2, 3, 4, 5, 6]);
        drop(sends);
    }
}

#[test]
fn a_damaged_mailbox_is_noticed() {
    let log = memory(4096);
    let ((mut sends, _status), (_tells, mut hears)) = channel(Link::Bare(FabricKind::Shm), &log);
    sends.send(7, Term(3), 0, 0, b"a message").unwrap();
    // Something else writes into the same memory.
    hears.mailbox_words()[5].fetch_xor(1 << 13, Ordering::SeqCst);
    let outcome = hears.next(PATIENCE);
    assert!(matches!(outcome, Err(ReceiveError::Damaged { .. } | ReceiveError::Header { .. })), "{outcome:?}");
}
