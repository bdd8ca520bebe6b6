//! RDMA between two devices and two processes, with links that are cut and processes that are
//! killed.
//!
//! Needs two RDMA devices that reach one another, and so is ignored elsewhere: `tests/vm/verbs`
//! runs it in a virtual machine.
//!
//! | variable | |
//! |---|---|
//! | `FRESHET_VERBS_DEVICES` | the two devices, "rxe1,rxe2"; the address with index 1 is used of each |
//! | `FRESHET_VERBS_CUT`, `FRESHET_VERBS_MEND` | commands that cut the link between them, and mend it |

use std::{
    collections::hash_map::RandomState,
    hash::BuildHasher,
    io::{BufRead, BufReader},
    process::{Child, Command, Stdio},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use freshet_base::{Term, words};
use freshet_fabric::{
    Access, Connected, FabricConfig, FabricKind, Offer, Place, Prepared, ReceiveError, SendError,
    channel::{Arrival, Receiver, STATUS_WORDS, Sender, Side},
    memory::{Registered, SharedMemory},
    tcp::{Closer, Connection, Listener, connect},
};

/// Longer than anything takes, under emulation too.
const PATIENCE: Duration = Duration::from_secs(120);
/// What the sides give one another.
const CONFIGURED: Duration = Duration::from_secs(5);
/// The length of the log buffer that is written to.
const LOG: usize = 1 << 20;

fn config(side: usize, patience: Duration) -> FabricConfig {
    let devices = std::env::var("FRESHET_VERBS_DEVICES").expect("FRESHET_VERBS_DEVICES names two devices");
    let name = devices.split(',').nth(side).expect("FRESHET_VERBS_DEVICES names two devices").to_owned();
    FabricConfig { patience, device: Some((name, 1, 1)), ..FabricConfig::default() }
}

/// Runs the command that a variable holds.
fn run(variable: &str) {
    let command = std::env::var(variable).unwrap_or_else(|_| panic!("{variable} is a command"));
    assert!(Command::new("sh").args(["-c", &command]).status().unwrap().success(), "{command}");
}

/// Numbers by chance.
struct Random(u64);

impl Random {
    fn new() -> Self {
        let seed = std::env::var("FRESHET_SEED").ok().and_then(|seed| seed.parse().ok());
        let seed = seed.unwrap_or_else(|| RandomState::new().hash_one(1));
        println!("FRESHET_SEED={seed}");
        Self(seed)
    }

    fn next(&mut self) -> u64 {
        // SplitMix64.
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    fn bytes(&mut self, length: usize) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(length + 8);
        while bytes.len() < length {
            bytes.extend_from_slice(&self.next().to_le_bytes());
        }
        bytes.truncate(length);
        bytes
    }
}

/// Tells the other side our offer and hears its own.
fn greet(connection: &mut Connection, offer: &Offer) -> Offer {
    connection.sender().send(1, Term(1), &serde_json::to_vec(offer).unwrap()).unwrap();
    assert_eq!(connection.receiver().receive().unwrap().kind, 1);
    connection.receiver().payload_done().unwrap();
    serde_json::from_slice(connection.receiver().immediate()).unwrap()
}

/// A process that takes frames, one connection after another, looks whether their payload is in
/// place, and answers with its status: how many were right, how many were wrong, and how far the
/// log has come.
struct Other {
    process: Child,
    address: String,
    output: Arc<Mutex<Vec<String>>>,
}

impl Other {
    fn start() -> Self {
        let mut process = Command::new(std::env::current_exe().unwrap())
            .args(["--ignored", "--exact", "the_other_process", "--nocapture"])
            .env("FRESHET_VERBS_OTHER", "1")
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(process.stdout.take().unwrap()).lines();
        let address = lines.find_map(|line| line.unwrap().strip_prefix("listens on ").map(str::to_owned)).unwrap();
        let output: Arc<Mutex<Vec<String>>> = Arc::default();
        let to = Arc::clone(&output);
        thread::spawn(move || lines.map_while(Result::ok).for_each(|line| to.lock().unwrap().push(line)));
        Self { process, address, output }
    }

    /// Waits until it has ended one more connection than `before`, and returns what it writes of
    /// that.
    fn ended(&self, before: usize) -> String {
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Some(why) =
                self.output.lock().unwrap().iter().filter(|line| line.starts_with("served: ")).nth(before)
            {
                return why.clone();
            }
            assert!(Instant::now() < deadline, "the other process does not notice the end");
            thread::sleep(Duration::from_millis(1));
        }
    }

    fn kill(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }

    fn connect(&self) -> (Sender, Receiver, Closer) {
        let mut connection = connect(&self.address, PATIENCE).unwrap();
        let closer = connection.closer();
        let side = Side::new(FabricKind::Verbs, config(0, CONFIGURED), vec![]).unwrap();
        let theirs = greet(&mut connection, side.offer());
        let (sender, receiver) = side.connect(&theirs, connection, None, CONFIGURED).unwrap();
        (sender, receiver, closer)
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        // It may be gone already.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[test]
#[ignore = "the other process of the tests below"]
fn the_other_process() {
    if std::env::var_os("FRESHET_VERBS_OTHER").is_none() {
        return;
    }
    let listener = Listener::bind("127.0.0.1:0").unwrap();
    println!("listens on {}", listener.address().unwrap());
    loop {
        let mut connection = listener.accept().unwrap().unwrap();
        let log = Arc::new(SharedMemory::new(LOG, false).unwrap());
        let side = Side::new(FabricKind::Verbs, config(1, CONFIGURED), vec![Arc::clone(&log) as _]).unwrap();
        let theirs = greet(&mut connection, side.offer());
        let (sender, receiver) = side.connect(&theirs, connection, None, CONFIGURED).unwrap();
        println!("served: {}", serve(&log, sender, receiver));
    }
}

/// Takes frames until the connection ends, and says why it did.
fn serve(log: &SharedMemory, mut sender: Sender, mut receiver: Receiver) -> String {
    let mut status = [0; STATUS_WORDS];
    loop {
        match receiver.next(Duration::from_secs(1)) {
            Ok(Some(Arrival::Frame(header))) => {
                let mut payload = vec![0; header.payload as usize];
                let at = header.address as usize % LOG;
                let (head, tail) = payload.split_at_mut((LOG - at).min(header.payload as usize));
                words::load(log.words(), at, head);
                words::load(log.words(), 0, tail);
                let right = receiver.message() == crc32c::crc32c(&payload).to_le_bytes();
                status[usize::from(!right)] += 1;
                status[2] = header.address + u64::from(header.payload);
                // The general-purpose server method (Query Fresh, section 2.3): what was written is
                // made persistent here, and then acknowledged.
                if let Err(error) = sender.status(status) {
                    return error.to_string();
                }
            }
            Ok(_) => {}
            Err(error) => return format!("{error}; {:?}", sender.complete().err().map(|error| error.to_string())),
        }
    }
}

/// Receives the other side's status in a thread of its own, until the connection ends.
struct StatusReader {
    status: Arc<[AtomicU64; 3]>,
    ended: Arc<AtomicBool>,
    thread: JoinHandle<ReceiveError>,
}

impl StatusReader {
    fn by(mut receiver: Receiver) -> Self {
        let status: Arc<[AtomicU64; 3]> = Arc::default();
        let ended = Arc::new(AtomicBool::new(false));
        let (to, over) = (Arc::clone(&status), Arc::clone(&ended));
        let thread = thread::spawn(move || {
            loop {
                match receiver.next(Duration::from_secs(1)) {
                    Ok(_) => {
                        let status = receiver.status();
                        for (to, from) in to.iter().zip(status) {
                            to.store(from, Ordering::SeqCst);
                        }
                    }
                    Err(error) => {
                        over.store(true, Ordering::SeqCst);
                        return error;
                    }
                }
            }
        });
        Self { status, ended, thread }
    }

    fn acknowledged(&self) -> u64 {
        assert_eq!(self.status[1].load(Ordering::SeqCst), 0, "some payload was not in place");
        self.status[2].load(Ordering::SeqCst)
    }

    /// Waits until the other side has acknowledged `end`.
    fn wait(&self, end: u64) {
        let deadline = Instant::now() + PATIENCE;
        while self.acknowledged() < end {
            assert!(!self.ended.load(Ordering::SeqCst), "the connection has ended");
            assert!(Instant::now() < deadline, "{end} is not acknowledged");
            thread::sleep(Duration::from_millis(1));
        }
    }
}

/// Writes a payload to its place and a frame that says so.
fn ship(sender: &mut Sender, address: u64, payload: &[u8]) -> Result<(), SendError> {
    sender.place(address, payload)?;
    sender.send(7, Term(1), address, payload.len() as u32, &crc32c::crc32c(payload).to_le_bytes())
}

#[test]
#[ignore = "needs two RDMA devices: tests/vm/verbs"]
fn payloads_are_in_place_and_both_methods_of_persistence_work() {
    let mut random = Random::new();
    let other = Other::start();
    let (mut sender, receiver, _closer) = other.connect();
    let reader = StatusReader::by(receiver);
    let mut address = 0;
    for round in 0..200 {
        // Some are longer than one work request, some lie across the end of the log buffer.
        let longest = if round % 20 == 0 { LOG as u64 / 2 } else { 5000 };
        let length = 8 + (random.next() % longest) as usize / 8 * 8;
        let payload = random.bytes(length);
        ship(&mut sender, address, &payload).unwrap();
        address += payload.len() as u64;
        match round % 3 {
            // The general-purpose server method: the other side's acknowledgement.
            0 => reader.wait(address),
            // The appliance method: reading back after the write (Query Fresh, section 2.3).
            1 => sender.read_back(address).unwrap(),
            // Nothing but the completion, which is not persistence; what is not taken must not be
            // overwritten, though.
            _ => {
                sender.complete().unwrap();
                reader.wait(address);
            }
        }
    }
    reader.wait(address);
    assert_eq!(reader.status[0].load(Ordering::SeqCst), 200);
    println!("{address} bytes in 200 payloads were in place when they were heard of");
}

/// Sends until there is an error; how far it came before, and the error.
fn send_until_it_fails(sender: &mut Sender, reader: &StatusReader, mut address: u64) -> (u64, SendError) {
    let payload = vec![7; 4096];
    let deadline = Instant::now() + PATIENCE;
    loop {
        assert!(Instant::now() < deadline, "the end of the link is not noticed");
        // No more than half of the log is on its way.
        if address - reader.acknowledged() > LOG as u64 / 2 {
            if let Err(error) = sender.complete() {
                return (address, error);
            }
            thread::sleep(Duration::from_millis(1));
            // Somebody waits for room here; what stays silent is asked.
            if reader.ended.load(Ordering::SeqCst)
                && let Err(error) = ship(sender, address, &payload)
            {
                return (address, error);
            }
            continue;
        }
        if let Err(error) = ship(sender, address, &payload) {
            return (address, error);
        }
        address += payload.len() as u64;
    }
}

#[test]
#[ignore = "needs two RDMA devices: tests/vm/verbs"]
fn a_cut_link_ends_in_an_error_and_another_connection_goes_on() {
    let other = Other::start();
    for round in 0..2 {
        let (mut sender, receiver, _closer) = other.connect();
        let reader = StatusReader::by(receiver);
        ship(&mut sender, 0, &[1; 4096]).unwrap();
        reader.wait(4096);
        let sending = thread::spawn(move || {
            let (address, error) = send_until_it_fails(&mut sender, &reader, 4096);
            (address, error, reader, Instant::now())
        });
        thread::sleep(Duration::from_millis(500));
        assert!(!sending.is_finished(), "before the cut: {:?}", sending.join().map(|it| it.1));
        let cut = Instant::now();
        run("FRESHET_VERBS_CUT");
        let (address, error, reader, at) = sending.join().unwrap();
        let took = at - cut;
        run("FRESHET_VERBS_MEND");
        let other = other.ended(round);
        println!("round {round}: cut after {address} bytes; after {took:?} one end says: {error}");
        println!("round {round}: and the other one: {other}");
        // Both ends send; whose card gives up first hangs up, which the other one may hear before
        // its own does.
        assert!([error.to_string(), other].iter().any(|why| why.contains("transport retry counter exceeded")));
        // Six attempts after the first, within the configured patience; a busy emulation is given
        // more.
        assert!(took < 6 * CONFIGURED, "{took:?}");
        // Nothing is acknowledged that was not there.
        assert!(reader.acknowledged() <= address + 4096);
        reader.thread.join().unwrap();
    }
    let (mut sender, receiver, _closer) = other.connect();
    let reader = StatusReader::by(receiver);
    ship(&mut sender, 0, &[3; 4096]).unwrap();
    reader.wait(4096);
}

#[test]
#[ignore = "needs two RDMA devices: tests/vm/verbs"]
fn a_killed_process_is_noticed_by_both_ends() {
    let mut other = Other::start();
    let (mut sender, receiver, _closer) = other.connect();
    let reader = StatusReader::by(receiver);
    ship(&mut sender, 0, &[1; 4096]).unwrap();
    reader.wait(4096);
    let sending = thread::spawn(move || {
        let (_, error) = send_until_it_fails(&mut sender, &reader, 4096);
        (error, reader.thread.join().unwrap(), Instant::now())
    });
    thread::sleep(Duration::from_millis(200));
    let killed = Instant::now();
    other.kill();
    let (sent, received, at) = sending.join().unwrap();
    let took = at.saturating_duration_since(killed);
    println!("{took:?} after the kill: {sent}; {received}");
    assert!(matches!(sent, SendError::Lost { .. }), "{sent}");
    assert!(took < 6 * CONFIGURED, "{took:?}");
}

/// Two connected sides in this process, one on each device; the second has `region`. `lie` changes
/// what the first believes of it.
fn pair(region: &Arc<SharedMemory>, lie: impl Fn(&mut Offer)) -> (Connected, Connected) {
    let listener = Listener::bind("127.0.0.1:0").unwrap();
    let one = connect(&listener.address().unwrap().to_string(), PATIENCE).unwrap();
    let two = listener.accept().unwrap().unwrap();
    let small = Arc::new(SharedMemory::new(8, false).unwrap());
    let first = Prepared::new(FabricKind::Verbs, vec![small as _], config(0, PATIENCE)).unwrap();
    let second = Prepared::new(FabricKind::Verbs, vec![Arc::clone(region) as _], config(1, PATIENCE)).unwrap();
    let (to_first, mut to_second) = (first.offer().clone(), second.offer().clone());
    lie(&mut to_second);
    (first.connect(&to_second, one).unwrap(), second.connect(&to_first, two).unwrap())
}

#[test]
#[ignore = "needs two RDMA devices: tests/vm/verbs"]
fn the_card_protects_what_was_not_offered() {
    type Lie = fn(&mut Offer);
    let lies: [(&str, Lie); 3] = [
        ("beyond its end", |offer| offer.regions[0].length += 4096),
        ("before its beginning", |offer| {
            let Access::Verbs { address, .. } = &mut offer.regions[0].access else { panic!("fabric verbs") };
            *address -= 8192;
        }),
        ("with another key", |offer| {
            let Access::Verbs { key, .. } = &mut offer.regions[0].access else { panic!("fabric verbs") };
            *key ^= 0x0055;
        }),
    ];
    for (what, lie) in lies {
        let region = Arc::new(SharedMemory::new(4096, false).unwrap());
        let (mut one, mut two) = pair(&region, lie);
        let offset = if what == "beyond its end" { 4096 } else { 0 };
        let place = Place { region: 0, offset };
        let outcome = one.queue.write_with_imm(place, &[&[9; 64]], 5).and_then(|()| one.queue.complete());
        let error = outcome.unwrap_err();
        println!("{what}: {error}");
        assert!(error.to_string().contains("remote access error"), "{what}: {error}");
        assert!(region.words().iter().all(|word| word.load(Ordering::SeqCst) == 0), "{what}");
        assert!(!matches!(two.completions.next(Duration::ZERO), Ok(Some(_))), "{what}: nothing is heard of it");
    }
}

#[test]
#[ignore = "needs two RDMA devices: tests/vm/verbs"]
fn a_late_listener_receives_everything_in_order() {
    let region = Arc::new(SharedMemory::new(4096, false).unwrap());
    let (mut one, mut two) = pair(&region, |_| ());
    // More than there are receives: the card has to wait for some.
    let count = 3000;
    let sending = thread::spawn(move || {
        for value in 0..count {
            one.queue
                .write_with_imm(Place { region: 0, offset: 0 }, &[&u64::from(value).to_ne_bytes()], value)
                .unwrap();
        }
        one.queue.complete().unwrap();
        one
    });
    while region.words()[0].load(Ordering::SeqCst) < 1000 {
        thread::sleep(Duration::from_millis(1));
    }
    for value in 0..count {
        assert_eq!(two.completions.next(PATIENCE).unwrap(), Some(value));
        assert!(region.words()[0].load(Ordering::SeqCst) >= u64::from(value), "it was in place before");
    }
    let one = sending.join().unwrap();
    drop(one);
    assert!(two.completions.next(PATIENCE).is_err());
}

#[test]
#[ignore = "needs two RDMA devices: tests/vm/verbs"]
fn a_device_is_found_without_being_named() {
    let name = freshet_fabric::verbs::probe(&FabricConfig::default()).unwrap();
    let devices = std::env::var("FRESHET_VERBS_DEVICES").unwrap();
    println!("the first device that is up: {name}, of {devices}");
    let missing = FabricConfig { device: Some(("rxe99".into(), 1, 0)), ..FabricConfig::default() };
    let error = freshet_fabric::verbs::probe(&missing).unwrap_err().to_string();
    assert!(error.contains(&name) && error.contains("rxe99"), "{error}");
    let index = FabricConfig { device: Some((name, 1, 200)), ..FabricConfig::default() };
    let error = freshet_fabric::verbs::probe(&index).unwrap_err().to_string();
    assert!(error.contains("gids"), "{error}");
}
