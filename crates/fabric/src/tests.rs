//! What every fabric must do, and the channel upon it.

use std::{sync::Arc, thread};

use freshet_base::{Term, sync::Ordering, words};

use super::*;
use crate::{
    channel::{Arrival, Receiver, Sender, Side},
    frame::Header,
    memory::{Registered, SharedMemory},
    tcp::{Connection, Listener, connect},
};

/// Longer than anything takes.
const PATIENCE: Duration = Duration::from_secs(20);

/// The fabrics that this machine has: `verbs` where an RDMA device for each side is named ("rxe1,rxe2").
fn kinds() -> Vec<FabricKind> {
    let mut kinds = vec![FabricKind::Tcp, FabricKind::Shm];
    if std::env::var_os("FRESHET_VERBS_DEVICES").is_some() {
        kinds.push(FabricKind::Verbs);
    }
    kinds
}

/// How the first (0) or the second (1) side of a connection uses its fabric.
fn config(side: usize) -> FabricConfig {
    let devices = std::env::var("FRESHET_VERBS_DEVICES").unwrap_or_default();
    let device = devices.split(',').nth(side).map(|name| (name.to_owned(), 1, 1));
    FabricConfig { patience: PATIENCE, device, ..FabricConfig::default() }
}

fn beside() -> (Connection, Connection) {
    let listener = Listener::bind("127.0.0.1:0").unwrap();
    let address = listener.address().unwrap().to_string();
    let one = connect(&address, PATIENCE).unwrap();
    (one, listener.accept().unwrap().unwrap())
}

fn memory(bytes: usize) -> Arc<SharedMemory> {
    Arc::new(SharedMemory::new(bytes, false).unwrap())
}

/// Two connected sides, the second of which offers `region`.
fn pair(kind: FabricKind, region: &Arc<SharedMemory>) -> (Connected, Connected) {
    let (one, two) = beside();
    let first = Prepared::new(kind, vec![memory(8) as _], config(0)).unwrap();
    let second = Prepared::new(kind, vec![memory(8) as _, Arc::clone(region) as _], config(1)).unwrap();
    let (to_first, to_second) = (first.offer().clone(), second.offer().clone());
    (first.connect(&to_second, one).unwrap(), second.connect(&to_first, two).unwrap())
}

fn bytes_of(region: &SharedMemory, at: usize, length: usize) -> Vec<u8> {
    let mut bytes = vec![0; length];
    words::load(region.words(), at, &mut bytes);
    bytes
}

#[test]
fn what_was_written_before_an_immediate_value_is_in_place() {
    for kind in kinds() {
        let region = memory(1 << 20);
        let (mut one, mut two) = pair(kind, &region);
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
            assert_eq!(two.completions.next(PATIENCE).unwrap(), Some(round), "{kind}");
            assert!(bytes_of(&region, 0, 200_008).iter().all(|byte| *byte == round as u8), "{kind}");
            two.queue.write_with_imm(Place { region: 0, offset: 0 }, &[], round).unwrap();
        }
        let one = writer.join().unwrap();
        assert!(one.counters.read().sent_bytes >= 200 * 200_008);
        drop(one);
        assert!(two.completions.next(PATIENCE).is_err(), "{kind}: the end of the one is heard by the other");
    }
}

#[test]
fn memory_is_read_and_added_to_from_afar() {
    for kind in kinds() {
        let region = memory(4096);
        words::store(region.words(), 16, b"sixteen bytes on");
        let (one, two) = pair(kind, &region);
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
    for (kind, rounds) in kinds().into_iter().map(|kind| (kind, if kind == FabricKind::Shm { 300 } else { 20 })) {
        for round in 0..rounds {
            let region = memory(SLOTS as usize * 8);
            let (one, mut two) = pair(kind, &region);
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
                    assert_eq!(u64::from_ne_bytes(back), number, "{kind}: read back");
                    counts = number;
                }
                // However often it tries.
                assert!(queue.read(Place { region: 1, offset: 0 }, &mut [0; 8]).is_err(), "{kind}: a read succeeds");
                assert!(queue.complete().is_err(), "{kind}: it completes");
                counts
            });
            let mut heard = 0;
            for _ in 0..round % 40 {
                heard = two.completions.next(PATIENCE).unwrap().unwrap();
            }
            two.completions.revoke();
            let found = bytes_of(&region, 0, SLOTS as usize * 8);
            while let Ok(value) = two.completions.next(PATIENCE) {
                assert_eq!(value, Some(heard + 1), "{kind}: in order, and nobody waits");
                heard += 1;
            }
            drop(two);
            let counts = writer.join().unwrap();
            assert!(counts <= u64::from(heard), "{kind}, round {round}: {counts} were read back, {heard} announced");
            for number in 1..=counts {
                let at = number as usize * 8;
                assert_eq!(found[at..at + 8], number.to_ne_bytes(), "{kind}, round {round}: read back, and not there");
            }
            answers.join().unwrap();
        }
    }
}

#[test]
fn nothing_is_touched_outside_of_what_was_offered() {
    for kind in kinds() {
        let region = memory(4096);
        let (mut one, _two) = pair(kind, &region);
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
            assert!(matches!(outcome, Err(SendError::OutOfBounds { .. })), "{kind}, {place:?}: {outcome:?}");
        }
        one.queue.write(Place { region: 1, offset: inside - 8 }, &[&[1; 8]]).unwrap();
    }
}

#[test]
fn both_must_mean_the_same_fabric() {
    let (one, _two) = beside();
    let tcp = Prepared::new(FabricKind::Tcp, vec![memory(8) as _], FabricConfig::default()).unwrap();
    let shm = Prepared::new(FabricKind::Shm, vec![memory(8) as _], FabricConfig::default()).unwrap();
    let error = tcp.connect(shm.offer(), one).unwrap_err().to_string();
    assert!(error.contains("wants fabric shm, this one tcp"), "{error}");
}

/// Two ends of a channel, the second of which has a log buffer.
fn channel(kind: FabricKind, log: &Arc<SharedMemory>) -> ((Sender, Receiver), (Sender, Receiver)) {
    let (one, two) = beside();
    let first = Side::new(kind, config(0), None).unwrap();
    let second = Side::new(kind, config(1), Some(Arc::clone(log) as _)).unwrap();
    let (to_first, to_second) = (first.offer().clone(), second.offer().clone());
    let connect = |side: Side, theirs: &Offer, connection| side.connect(theirs, connection, None, PATIENCE).unwrap();
    (connect(first, &to_second, one), connect(second, &to_first, two))
}

#[test]
fn frames_go_round_the_mailbox_and_payloads_round_the_log() {
    for kind in kinds() {
        let log = memory(4096);
        let ((mut sends, mut status), (mut tells, mut hears)) = channel(kind, &log);
        let rounds = 300u64;
        let writer = thread::spawn(move || {
            // Its own end must be listened to as well, or nobody carries out what the other side writes.
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
            sends.complete().ok();
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
        assert!(first.iter().all(|byte| *byte == (rounds - 1) as u8), "{kind}");
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
    let ((mut sends, _status), (_tells, mut hears)) = channel(FabricKind::Shm, &log);
    sends.send(7, Term(3), 0, 0, b"a message").unwrap();
    // Something else writes into the same memory.
    hears.mailbox_words()[5].fetch_xor(1 << 13, Ordering::SeqCst);
    let outcome = hears.next(PATIENCE);
    assert!(matches!(outcome, Err(ReceiveError::Damaged { .. } | ReceiveError::Header { .. })), "{outcome:?}");
}
