//! What every fabric must do, and the channel upon it.

use std::{sync::Arc, thread, time::Instant};

use freshet_base::{
    ClusterId, NodeId, Term,
    sync::{AtomicBool, AtomicU32, AtomicU64, Mutex, Ordering},
    words,
};

use super::*;
use crate::{
    channel::{Arrival, Payload, Receiver, Sender, Side},
    frame::Header,
    memory::{Registered, SharedMemory, model::Lossy},
    stream::Stream,
    tcp::{Connection, Listener, connect},
};

/// Longer than anything takes.
const PATIENCE: Duration = Duration::from_secs(20);

/// How two sides are connected.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Link {
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

pub(crate) fn beside(link: Link) -> (Connection, Connection) {
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
            // This was not read ahead, and where both have left TLS nothing else was.
            let (mut one, mut two) = (one.bare(), two.bare());
            two.sender().send(4, Term(1), b"late").unwrap();
            assert_eq!(one.receiver().receive().unwrap().kind, 4);
            (one, two)
        }
    };
    let (passage, other) = std::os::unix::net::UnixStream::pair().unwrap();
    (one.beside(passage), two.beside(other))
}

/// Two members of one cluster.
fn sealed(one: Connection, two: Connection) -> (Connection, Connection) {
    use freshet_membership::{Credentials, Enrolment, NewKey, Part};
    let deadline = Instant::now() + PATIENCE;
    let first = Credentials::found(ClusterId(1), NodeId(1)).unwrap();
    let key = NewKey::generate().unwrap();
    let newcomer = Enrolment { public_key: key.public(), node: Some(NodeId(2)), part: Part::Node, secret: None };
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
        let (mut behind, mut before, region_1) = ([0; 5], [0; 3], |offset| Place { region: 1, offset });
        let mut list = [(region_1(24), &mut behind[..]), (region_1(100), &mut []), (region_1(16), &mut before[..])];
        queue.read_all(&mut list).unwrap();
        queue.read_all(&mut []).unwrap();
        assert_eq!((&behind, &before), (b"bytes", b"six"));
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

/// Numbers by chance, from a seed that is printed.
struct Random(u64);

impl Random {
    fn new() -> Self {
        use std::hash::{BuildHasher, RandomState};
        let seed = std::env::var("FRESHET_SEED").ok().and_then(|seed| seed.parse().ok());
        let seed = seed.unwrap_or_else(|| RandomState::new().hash_one(1));
        println!("FRESHET_SEED={seed}");
        Self(seed)
    }

    fn below(&mut self, end: u64) -> u64 {
        // SplitMix64.
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (mixed ^ (mixed >> 31)) % end
    }

    fn bytes(&mut self, longest: u64) -> Vec<u8> {
        let length = self.below(longest + 1);
        (0..length).map(|_| self.below(256) as u8).collect()
    }
}

/// A thread that listens, as a side must to which something is posted over TCP.
struct Listening {
    over: Arc<AtomicBool>,
    thread: thread::JoinHandle<Vec<u32>>,
}

impl Listening {
    fn by(mut completions: Box<dyn CompletionQueue>) -> Self {
        Self::to(move |patience| completions.next(patience))
    }

    fn to(mut next: impl FnMut(Duration) -> Result<Option<u32>, ReceiveError> + Send + 'static) -> Self {
        let over = Arc::new(AtomicBool::new(false));
        let ends = Arc::clone(&over);
        let thread = thread::spawn(move || {
            let mut values = Vec::new();
            loop {
                // Looked at first: what had arrived by then is received below.
                let over = ends.load(Ordering::SeqCst);
                match next(Duration::from_millis(5)) {
                    Ok(Some(value)) => values.push(value),
                    Ok(None) if !over => {}
                    Ok(None) | Err(_) => return values,
                }
            }
        });
        Self { over, thread }
    }

    /// What was heard of; the connection ends.
    fn end(self) -> Vec<u32> {
        self.over.store(true, Ordering::SeqCst);
        self.thread.join().unwrap()
    }
}

/// Lists of any shape, posted one behind the other, over the same bytes: each completes once,
/// in order, and what is there at the end is what they write in that order.
#[test]
fn lists_complete_in_order_while_others_are_under_way() {
    const BYTES: usize = 70_001;
    let mut random = Random::new();
    for link in links() {
        let region = memory(BYTES.next_multiple_of(8));
        let (one, two) = pair(link, &region);
        let Connected { mut queue, completions, .. } = one;
        let (answers, listening) = (Listening::by(completions), Listening::by(two.completions));
        let (mut model, mut announced, mut tokens) = (vec![0; BYTES], 0u32, Vec::new());
        let mut newest = queue.completed().unwrap();
        for round in 0..300 {
            // Some are longer than one chain of work requests, some than one call of the system.
            let writes = if round % 50 == 0 { 600 } else { random.below(6) };
            let data: Vec<_> = (0..writes)
                .map(|_| {
                    let longest = if writes > 100 { 50 } else { 9000 };
                    let pieces = [random.bytes(longest), random.bytes(20), random.bytes(longest)];
                    let length = pieces.iter().map(Vec::len).sum::<usize>();
                    (random.below((BYTES - length) as u64), pieces, random.below(20) == 0)
                })
                .collect();
            let pieces: Vec<[&[u8]; 3]> =
                data.iter().map(|(_, pieces, _)| pieces.each_ref().map(|it| &it[..])).collect();
            let list: Vec<_> = data
                .iter()
                .zip(&pieces)
                .map(|((offset, _, announces), pieces)| {
                    announced += u32::from(*announces);
                    let to = Place { region: 1, offset: *offset };
                    Write { to, pieces, immediate: announces.then_some(announced), fenced: false }
                })
                .collect();
            let signaled = random.below(3) > 0;
            let token = queue.post(&list, signaled).unwrap();
            assert!(tokens.last().is_none_or(|last| *last < token), "{link}");
            tokens.push(token);
            for (offset, pieces, _) in data {
                let bytes = pieces.concat();
                model[offset as usize..][..bytes.len()].copy_from_slice(&bytes);
            }
            let completed = queue.completed().unwrap();
            assert!(newest <= completed && completed <= token, "{link}: {newest:?} {completed:?} {token:?}");
            newest = completed;
            if random.below(8) == 0 {
                // Of those that were posted before, any may be waited for.
                let waited = tokens[random.below(tokens.len() as u64) as usize];
                queue.wait(waited).unwrap();
                assert!(queue.completed().unwrap() >= waited, "{link}");
            }
        }
        queue.wait(tokens[tokens.len() - 1]).unwrap();
        assert_eq!(queue.completed().unwrap().max(tokens[299]), queue.completed().unwrap(), "{link}: nothing is left");
        assert!(bytes_of(&region, 0, BYTES) == model, "{link}: what is there is not what was written");
        assert_eq!(listening.end(), (1..=announced).collect::<Vec<_>>(), "{link}: each is received once, in order");
        answers.end();
    }
}

/// Every third byte is the owner's, the others are written from two connections. Each finds its own
/// as it has left them.
#[test]
fn bytes_beside_others_that_are_written_stay_what_they_are() {
    const PLACES: usize = 5;
    fn own(bytes: &[u8], writer: usize) -> Vec<u8> {
        bytes.iter().skip(writer).step_by(3).copied().collect()
    }
    for link in links() {
        let region = memory(16);
        let writers: Vec<_> = (1..3)
            .map(|writer| {
                let (one, two) = pair(link, &region);
                let Connected { mut queue, completions, .. } = one;
                let listening = [Listening::by(completions), Listening::by(two.completions)];
                thread::spawn(move || {
                    for round in 1..=if link.kind() == FabricKind::Shm { 30_000 } else { 300u32 } {
                        let bytes = [round as u8];
                        let pieces: &[&[u8]] = &[&bytes];
                        let list: Vec<_> = (0..PLACES)
                            .map(|place| Place { region: 1, offset: (place * 3 + writer) as u64 })
                            .map(|to| Write { to, pieces, immediate: None, fenced: false })
                            .collect();
                        queue.post(&list, false).unwrap();
                        let mut back = [0; PLACES * 3];
                        queue.read(Place { region: 1, offset: 0 }, &mut back).unwrap();
                        assert_eq!(own(&back, writer), [round as u8; PLACES], "{link}: of writer {writer}");
                    }
                    listening.into_iter().for_each(|it| assert!(it.end().is_empty()));
                    // Until here the other side can answer.
                    drop(two.queue);
                })
            })
            .collect();
        let mut round = 0u8;
        while !writers.iter().all(thread::JoinHandle::is_finished) {
            round = round.wrapping_add(1);
            (0..PLACES).for_each(|place| words::store_among(region.words(), place * 3, &[round]));
            assert_eq!(own(&bytes_of(&region, 0, PLACES * 3), 0), [round; PLACES], "{link}: of the owner");
        }
        writers.into_iter().for_each(|writer| writer.join().unwrap());
    }
}

#[test]
fn memory_can_become_more_while_it_is_written() {
    for link in links() {
        let region = memory(4096);
        let (one, mut two) = pair(link, &region);
        let Connected { mut queue, completions, .. } = one;
        let answers = Listening::by(completions);
        let chunks: Vec<_> = (0..20).map(|chunk| memory(64 + chunk * 8)).collect();
        let mut region_of = Vec::new();
        for (number, chunk) in chunks.iter().enumerate() {
            let key = two.completions.register(Arc::clone(chunk) as _).unwrap();
            // As it goes over the wire.
            let key: RegionKey = serde_json::from_str(&serde_json::to_string(&key).unwrap()).unwrap();
            assert_eq!(key.length, 64 + number as u64 * 8);
            let wrong = RegionKey { length: 8, access: other_access(link.kind()) };
            if link.kind() != FabricKind::Shm {
                assert!(queue.attach(&wrong).is_err(), "{link}: a key of another fabric");
            }
            region_of.push(queue.attach(&key).unwrap());
            assert_eq!(queue.region_length(region_of[number]), key.length, "{link}");
            let beyond = Place { region: region_of[number] + 1, offset: 0 };
            assert!(matches!(queue.write(beyond, &[&[1]]), Err(SendError::OutOfBounds { .. })), "{link}");
            for (number, region) in region_of.iter().enumerate() {
                let (offset, value) = (61 + number as u64 * 8, [number as u8 + 1; 3]);
                queue.write(Place { region: *region, offset }, &[&value]).unwrap();
            }
        }
        queue.write_with_imm(Place { region: 1, offset: 0 }, &[], 7).unwrap();
        assert_eq!(two.completions.next(PATIENCE).unwrap(), Some(7), "{link}");
        for (number, chunk) in chunks.iter().enumerate() {
            assert_eq!(bytes_of(chunk, 61 + number * 8, 3), [number as u8 + 1; 3], "{link}");
        }
        answers.end();
    }
}

fn other_access(kind: FabricKind) -> Access {
    if kind == FabricKind::Tcp { Access::Verbs { address: 0, key: 0 } } else { Access::Tcp }
}

#[test]
fn a_key_without_its_memory_and_memory_without_its_key_are_refused() {
    let region = memory(4096);
    let (mut one, mut two) = pair(Link::Bare(FabricKind::Shm), &region);
    two.completions.register(memory(64) as _).unwrap();
    assert!(one.queue.attach(&RegionKey { length: 64, access: Access::Tcp }).is_err());
    // Less was passed than it says.
    two.completions.register(memory(64) as _).unwrap();
    let long = serde_json::from_str(r#"{"length":1000000,"access":{"Shm":{"at":0,"length":1000000}}}"#).unwrap();
    assert!(one.queue.attach(&long).is_err());
    let key = two.completions.register(memory(64) as _).unwrap();
    assert_eq!(one.queue.attach(&key).unwrap(), 2);
    // A side that never takes what is passed is not waited for.
    let full = (0..5000).find_map(|_| two.completions.register(Arc::clone(&region) as _).err());
    assert!(full.is_some(), "passing does not block");
    one.queue.write(Place { region: 2, offset: 61 }, &[&[1; 3]]).unwrap();
    one.queue.complete().unwrap();
    drop(two);
    // What was passed before is still there to be taken; then nothing is.
    while one.queue.attach(&key).is_ok() {}
}

/// Lists are posted one after another until there is an error; the other side revokes at any
/// moment. Nothing lands after that, but where the memory is mapped.
#[test]
fn nothing_lands_after_it_was_revoked() {
    for (link, rounds) in links().into_iter().map(|it| (it, 30)) {
        for round in 0..rounds {
            let region = memory(256 << 10);
            let chunk = memory(4096);
            let (one, mut two) = pair(link, &region);
            let Connected { mut queue, completions, .. } = one;
            let key = two.completions.register(Arc::clone(&chunk) as _).unwrap();
            let added = queue.attach(&key).unwrap();
            let answers = Listening::by(completions);
            let writer = thread::spawn(move || {
                for number in 1..u32::MAX {
                    let bytes = vec![number as u8; 128 << 10];
                    let to = [Place { region: 1, offset: 0 }, Place { region: 1, offset: 99_999 }];
                    let pieces: &[&[u8]] = &[&bytes];
                    let list = to.map(|to| Write { to, pieces, immediate: Some(number), fenced: false });
                    let to = Place { region: added, offset: 1 };
                    let small = Write { to, pieces: &[&bytes[..4000]], immediate: None, fenced: false };
                    let outcome = queue.post(&list, number % 2 == 0).and_then(|_| queue.post(&[small], true));
                    if outcome.and_then(|token| queue.wait(token)).is_err() {
                        break;
                    }
                }
                assert!(queue.complete().is_err(), "{link}: it completes");
            });
            for _ in 0..round % 7 {
                two.completions.next(PATIENCE).unwrap().unwrap();
            }
            two.completions.revoke();
            if link.kind() != FabricKind::Shm {
                let found = (bytes_of(&region, 0, 256 << 10), bytes_of(&chunk, 0, 4096));
                let ends = (0..10_000).any(|_| two.completions.next(PATIENCE).is_err());
                assert!(ends, "{link}: what is sent now is heard of");
                let Connected { queue, completions, .. } = two;
                drop(queue);
                drop(completions);
                writer.join().unwrap();
                assert!(found == (bytes_of(&region, 0, 256 << 10), bytes_of(&chunk, 0, 4096)), "{link}: it has landed");
            } else {
                writer.join().unwrap();
                drop(two);
            }
            answers.end();
        }
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
            let mut announced = 0;
            for _ in 0..round % 40 {
                announced = two.completions.next(PATIENCE).unwrap().unwrap();
            }
            two.completions.revoke();
            let found = bytes_of(&region, 0, SLOTS as usize * 8);
            while let Ok(value) = two.completions.next(PATIENCE) {
                assert_eq!(value, Some(announced + 1), "{link}: in order, and nobody waits");
                announced += 1;
            }
            drop(two);
            let counts = writer.join().unwrap();
            assert!(
                counts <= u64::from(announced),
                "{link}, round {round}: {counts} were read back, {announced} announced"
            );
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
            (Place { region: 1, offset: inside }, 1),
            (Place { region: 1, offset: inside - 8 }, 9),
            (Place { region: 1, offset: u64::MAX - 7 }, 16),
            (Place { region: 2, offset: 0 }, 8),
        ] {
            let outcome = one.queue.write(place, &[&vec![1; length]]);
            assert!(matches!(outcome, Err(SendError::OutOfBounds { .. })), "{link}, {place:?}: {outcome:?}");
            // Nothing of a list is written either.
            let (good, bytes) = (Place { region: 1, offset: 0 }, vec![1; length]);
            let pieces: &[&[u8]] = &[&bytes];
            let list = [good, place].map(|to| Write { to, pieces, immediate: None, fenced: false });
            let outcome = one.queue.post(&list, true);
            assert!(matches!(outcome, Err(SendError::OutOfBounds { .. })), "{link}, {place:?}: {outcome:?}");
            let outcome = one.queue.read(place, &mut vec![0; length]);
            assert!(matches!(outcome, Err(SendError::OutOfBounds { .. })), "{link}, {place:?}: {outcome:?}");
        }
        for offset in [4, inside - 4, inside, u64::MAX - 3] {
            let outcome = one.queue.fetch_add(Place { region: 1, offset }, 1);
            assert!(matches!(outcome, Err(SendError::OutOfBounds { .. })), "{link}, {offset}: {outcome:?}");
        }
        assert!(bytes_of(&region, 0, 4096).iter().all(|byte| *byte == 0), "{link}");
        one.queue.write(Place { region: 1, offset: inside - 1 }, &[&[1]]).unwrap();
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
fn channel<R: Registered + 'static>(link: Link, log: &Arc<R>) -> ((Sender, Receiver), (Sender, Receiver)) {
    let (one, two) = beside(link);
    let kind = link.kind();
    let first = Side::new(kind, config(0), vec![]).unwrap();
    let second = Side::new(kind, config(1), vec![Arc::clone(log) as _]).unwrap();
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
        let ((mut sends, mut status), (mut replies, mut receives)) = channel(link, &log);
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
                    let inline = Payload::Inline(&[round as u8; 5000]);
                    sends.send_with(8, Term(3), address, 5, b"message", inline).unwrap();
                }
            }
            (sends, listening)
        });
        let mut reported = 0;
        for round in 0..rounds {
            let Some(Arrival::Frame(header)) = receives.next(PATIENCE).unwrap() else { panic!("no frame") };
            assert_eq!((header.kind, header.term, header.address, header.payload), (7, Term(3), round * 1000, 1000));
            assert_eq!(receives.message(), vec![round as u8; 3 + 30_000 * (round as usize % 5)]);
            assert!(receives.inline().is_empty());
            if round % 7 == 0 {
                assert!(matches!(receives.next(PATIENCE), Ok(Some(Arrival::Frame(Header { kind: 8, .. })))));
                assert_eq!((receives.message(), receives.inline()), (&b"message"[..], &vec![round as u8; 5000][..]));
            }
            if receives.owes(reported) {
                reported = receives.taken();
                replies.status([round, 1, 2, 3, 4, 5, 6, 7, 8]).unwrap();
            }
        }
        let last = ((rounds - 1) * 1000 % 4096) as usize;
        let first = bytes_of(&log, last, (4096 - last).min(1000));
        assert!(first.iter().all(|byte| *byte == (rounds - 1) as u8), "{link}");
        replies.status([9, 1, 2, 3, 4, 5, 6, 7, 8]).unwrap();
        let (sends, listening) = writer.join().unwrap();
        drop((replies, receives));
        assert_eq!(listening.join().unwrap(), [9, 1, 2, 3, 4, 5, 6, 7, 8]);
        drop(sends);
    }
}

#[test]
fn a_damaged_mailbox_is_noticed() {
    let log = memory(4096);
    let ((mut sends, _status), (_replies, mut receives)) = channel(Link::Bare(FabricKind::Shm), &log);
    sends.send(7, Term(3), 0, 0, b"a message").unwrap();
    // Something else writes into the same memory.
    receives.mailbox_words()[5].fetch_xor(1 << 13, Ordering::SeqCst);
    let outcome = receives.next(PATIENCE);
    assert!(matches!(outcome, Err(ReceiveError::Damaged { .. } | ReceiveError::Header { .. })), "{outcome:?}");
}

/// Bytes of memory that is to be durable: what lists write first, and what they write then.
pub(crate) const DURABLE: usize = 8192;
pub(crate) const FIRST: std::ops::Range<usize> = 5..205;
pub(crate) const THEN: std::ops::Range<usize> = 4096..7003;

/// `post` posts lists into a memory: a number everywhere in the first place, and then in the other.
/// It returns when the list has completed. Whenever the power is lost, the second place has nothing
/// that the first one has not, and all that has completed.
pub(crate) fn lists_are_durable_in_order(lossy: &Arc<Lossy>, mut post: impl FnMut(u8)) {
    let completed = Arc::new(AtomicU32::new(0));
    let faults = Arc::new(Mutex::new(Vec::new()));
    let (found, upto, memory) = (Arc::clone(&faults), Arc::clone(&completed), Arc::clone(lossy));
    let looks = Arc::new(AtomicU64::new(0));
    let look = move || {
        let (upto, looks) = (upto.load(Ordering::SeqCst) as u8, looks.fetch_add(1, Ordering::SeqCst));
        for image in memory.images(looks * 77 + 1, 5) {
            let (first, then) = (&image[0][FIRST], &image[0][THEN]);
            let (first, least) = (first.iter().min().unwrap(), then.iter().min().unwrap());
            if first < then.iter().max().unwrap() || *least < upto {
                found.lock().unwrap().push((looks, *first, *least, upto));
            }
        }
    };
    lossy.watch(look.clone());
    for number in 1..40 {
        post(number);
        completed.store(number.into(), Ordering::SeqCst);
        look();
    }
    assert_eq!(*faults.lock().unwrap(), []);
}

/// With the same list, twice: the places in it stay what they are.
#[test]
fn several_pieces_of_a_mirror_are_read_at_once() {
    for link in links() {
        let (heads, places) = (memory(64), [0u64, 5, 40].map(|offset| Place { region: 0, offset }));
        let ((mut sender, completions), (_other, receiver)) = channel(link, &heads);
        let by = |mut receiver: Receiver| Listening::to(move |patience| Ok(receiver.next(patience)?.map(|_| 0)));
        let listening = [by(completions), by(receiver)];
        for round in 1..3 {
            let bytes = [round; 3];
            sender.post_into(places.iter().map(|to| (*to, &bytes[..])), [].into_iter()).unwrap();
            let mut read = [[0; 3]; 3];
            let mut list: Vec<_> = places.into_iter().zip(read.iter_mut().map(|into| &mut into[..])).collect();
            for _ in 0..2 {
                list.iter_mut().for_each(|(_, into)| into.fill(0));
                sender.read_all_from(&mut list).unwrap();
            }
            assert!(list.iter().map(|(from, _)| *from).eq(places), "{link}");
            assert_eq!(read, [bytes; 3], "{link}");
        }
        listening.into_iter().for_each(|it| drop(it.end()));
    }
}

#[test]
fn what_has_completed_is_durable_where_the_receiver_flushes() {
    let lossy = Arc::new(Lossy::default());
    let ((mut sender, completions), (_other, mut receiver)) =
        channel(Link::Bare(FabricKind::Tcp), &lossy.region(DURABLE));
    let answers = thread::spawn(move || {
        let mut completions = completions;
        while completions.next(PATIENCE).is_ok_and(|value| value.is_some()) {}
    });
    let listening = thread::spawn(move || while receiver.next(PATIENCE).is_ok_and(|value| value.is_some()) {});
    lists_are_durable_in_order(&lossy, |number| {
        let write = |range: std::ops::Range<usize>| {
            (Place { region: 0, offset: range.start as u64 }, vec![number; range.len()])
        };
        let ((to, first), (there, then)) = (write(FIRST), write(THEN));
        let list = sender.post_into([(to, &first[..])].into_iter(), [(there, &then[..])].into_iter()).unwrap();
        sender.wait(list).unwrap();
    });
    drop(sender);
    listening.join().unwrap();
    drop(_other);
    answers.join().unwrap();
}
