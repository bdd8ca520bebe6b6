//! What shipping costs: processor time per MiB on both sides over the loopback, logs in memory.
//!
//! `cargo bench -p freshet-replication` (MiB=2048 BATCH=262144 to change the amount and the batch;
//! BARE=1 for the log without TLS; FABRIC=shm SPIN=50 for shared memory, where a waiting thread
//! spins for 50 µs before it sleeps).

use std::{
    path::PathBuf,
    time::{Duration, Instant},
};

use freshet_base::{
    ClusterId, NodeId, Safety, Stamp, Term, Watermark,
    sync::{Arc, AtomicU64, Mutex, Ordering},
};
use freshet_cluster::{
    commit_rule::RuleConfig,
    term::{TermHistory, TermState},
};
use freshet_fabric::{
    FabricConfig, FabricKind,
    memory::{Region, SharedMemory},
};
use freshet_log::{Batch, Sink};
use freshet_membership::{Credentials, Enrolment, NewKey};
use freshet_replication::{
    endpoint::Endpoint,
    log_access::{AcceptError, LogReadError, LogSource, OnMembers, StandbyStore, StoreError},
    primary::{Primary, PrimaryConfig, PrimaryFabric, Reigning},
    standby::{ReplayError, ReplayTarget, Standby, StandbyConfig, StandbyFabric, Starting},
    terms::{Terms, VolatileTerms},
};

const RING: u64 = 64 << 20;

/// One ring's worth of bytes, read and written round and round.
struct Ring {
    bytes: Mutex<Vec<u8>>,
    received: AtomicU64,
    replayed: AtomicU64,
    persisted: Watermark,
    ring: Arc<SharedMemory>,
}

impl Ring {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            bytes: Mutex::new(vec![7; RING as usize + (4 << 20)]),
            received: AtomicU64::new(0),
            replayed: AtomicU64::new(0),
            persisted: Watermark::new(Stamp(0)),
            ring: Arc::new(SharedMemory::new(RING as usize, false).expect("there is memory")),
        })
    }
}

impl LogSource for Ring {
    fn read(&self, at: Stamp, into: &mut [u8]) -> Result<(), LogReadError> {
        let at = (at.0 % RING) as usize;
        into.copy_from_slice(&self.bytes.lock().unwrap()[at..at + into.len()]);
        Ok(())
    }
}

impl StandbyStore for Ring {
    fn on_members(&self, _: OnMembers) {}

    fn received(&self) -> Stamp {
        Stamp(self.received.load(Ordering::SeqCst))
    }
    fn persisted(&self) -> Stamp {
        self.persisted.get()
    }
    fn capacity(&self) -> u64 {
        RING
    }
    fn free_until(&self) -> Stamp {
        Stamp(self.replayed.load(Ordering::SeqCst)).min(self.persisted.get()).plus(RING)
    }
    fn region(&self) -> Result<Region, StoreError> {
        Ok(Arc::clone(&self.ring) as _)
    }
    fn revoke(&self) -> Result<(), StoreError> {
        Ok(())
    }
    fn grant(&self) -> Stamp {
        self.free_until()
    }
    fn accept(&self, to: Stamp) -> Result<bool, AcceptError> {
        // What the log does with them is measured elsewhere.
        self.mark_received(to);
        Ok(true)
    }
    fn write(&self, at: Stamp, bytes: &[u8]) -> Result<(), StoreError> {
        let at = (at.0 % RING) as usize;
        self.bytes.lock().unwrap()[at..at + bytes.len()].copy_from_slice(bytes);
        Ok(())
    }
    fn transaction_end(&self, at: Stamp) -> Stamp {
        at
    }
    fn mark_received(&self, to: Stamp) {
        self.received.store(to.0, Ordering::SeqCst);
        self.persisted.advance(to);
    }
    fn mark_replayed(&self, to: Stamp) {
        self.replayed.store(to.0, Ordering::SeqCst);
    }
    fn wait_persisted(&self, beyond: Stamp, patience: Duration) -> Result<Stamp, StoreError> {
        let _ = self.persisted.wait(beyond.plus(1), Some(Instant::now() + patience));
        Ok(self.persisted.get())
    }
    fn read(&self, at: Stamp, into: &mut [u8]) -> Result<(), LogReadError> {
        LogSource::read(self, at, into)
    }
    fn save_tail(&self, _: Stamp) -> Result<Option<PathBuf>, StoreError> {
        Ok(None)
    }
    fn cut(&self, _: Stamp) -> Result<(), StoreError> {
        Ok(())
    }
}

struct NoReplay;

impl ReplayTarget for NoReplay {
    fn replay(&self, _: Stamp, _: Stamp, _: &[Stamp]) -> Result<(), ReplayError> {
        Ok(())
    }
    fn cut(&self, _: Stamp) -> Result<(), ReplayError> {
        Ok(())
    }
}

fn number(name: &str, otherwise: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(otherwise)
}

fn main() {
    let (total, batch) = (number("MiB", 2048) << 20, number("BATCH", 256 << 10));
    let cluster = ClusterId(1);
    let founder = Credentials::found(cluster, NodeId(1)).expect("there is randomness");
    let key = NewKey::generate().expect("there is randomness");
    let newcomer = Enrolment { public_key: key.public(), node: Some(NodeId(2)), secret: None };
    let second = founder.enrol(&newcomer, true).map(|enrolled| Credentials::enrolled(enrolled, &key));
    let second = second.expect("it is the same user").expect("what was signed can be used");
    let open = |node, credentials: &Credentials| {
        Endpoint::open(NodeId(node), credentials.clone(), "127.0.0.1:0").expect("the loopback is there")
    };
    let (at_primary, at_standby) = (open(1, &founder), open(2, &second));
    let terms = Terms::new(TermState::of(cluster, TermHistory::first(Term(1), NodeId(1))), Arc::new(VolatileTerms));
    let who = Reigning {
        cluster,
        node: NodeId(1),
        credentials: founder,
        address: at_primary.address().to_string(),
        term: Term(1),
        start: Stamp(0),
        committed: Stamp::ZERO,
        succession: None,
    };
    let spin = Duration::from_micros(number("SPIN", 0));
    let kind = std::env::var("FABRIC").map_or(Ok(FabricKind::Tcp), |name| name.parse()).expect("a fabric");
    let bare = std::env::var_os("BARE").is_some();
    let config = FabricConfig { spin, bare, ..FabricConfig::default() };
    let fabric = PrimaryFabric { kind, config, ..PrimaryFabric::default() };
    let config =
        PrimaryConfig { largest_block: 1 << 20, fabric, ..PrimaryConfig::new(RuleConfig::new(Safety::VerySafe, 1)) };
    let primary = Primary::start(who, config, Ring::new(), terms).expect("threads can be started");
    at_primary.set_service(Some(primary.service()));
    let starting = Starting {
        node: NodeId(2),
        credentials: second,
        address: at_standby.address().to_string(),
        leader: Some(at_primary.address().to_string()),
        replayed: Stamp(0),
        global: Stamp(0),
        floor: Stamp(0),
    };
    let terms = Terms::new(TermState::empty(), Arc::new(VolatileTerms));
    let spin = Duration::from_micros(number("SPIN", 0));
    let config = FabricConfig { spin, bare, ..FabricConfig::default() };
    let fabric = StandbyFabric { kind, config, ..StandbyFabric::default() };
    let standby_config = StandbyConfig { fabric, ..StandbyConfig::default() };
    let standby = Standby::start(starting, standby_config, Ring::new(), Arc::new(NoReplay), terms)
        .expect("threads can be started");
    standby.wait_joined(Instant::now() + Duration::from_secs(5)).expect("it joins");

    let began = Instant::now();
    let mut at = Stamp(0);
    while at.0 < total {
        let to = at.plus(batch);
        let ends: Vec<Stamp> = (1..=batch / (64 << 10)).map(|k| at.plus(k * (64 << 10))).collect();
        primary.batch(&Batch { from: at, to, partition_ends: &ends, transaction_ends: &[to] });
        primary.durable(to);
        at = to;
        // Never further ahead than the ring.
        let behind = Stamp(at.0.saturating_sub(RING / 2));
        primary.commit().wait(behind, None).expect("commits go on");
    }
    primary.commit().wait(at, None).expect("commits go on");
    let took = began.elapsed();
    standby.visible().wait(at, None).expect("it becomes visible");
    let mib = (total >> 20) as f64;
    let (here, there) = (primary.status(), standby.status());
    let per_mib = |name: &str, time: Duration| println!("{name:>10} {:8.1} us/MiB", time.as_secs_f64() * 1e6 / mib);
    println!("{:>10} {:8.0} MiB/s in batches of {batch}", "through", mib / took.as_secs_f64());
    per_mib("ship", here.ship_cpu);
    per_mib("ack in", here.ack_cpu);
    per_mib("receive", there.receive_cpu);
    per_mib("ack out", there.ack_cpu);
    per_mib("replay", there.replay_cpu);

    // One batch at a time, as a single client would have it.
    let rounds = 2000;
    let began = Instant::now();
    for _ in 0..rounds {
        let to = at.plus(1024);
        primary.batch(&Batch { from: at, to, partition_ends: &[], transaction_ends: &[to] });
        primary.durable(to);
        primary.commit().wait(to, None).expect("commits go on");
        at = to;
    }
    println!(
        "{:>10} {:8.1} us from hand-over to commit",
        "alone",
        began.elapsed().as_secs_f64() * 1e6 / f64::from(rounds)
    );
}
