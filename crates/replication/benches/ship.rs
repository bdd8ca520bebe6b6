//! What shipping costs: processor time per MiB on both sides over the loopback, with the logs that
//! nodes have, in memory. Nothing is replayed.
//!
//! `cargo bench -p freshet-replication` (MiB=2048 BATCH=262144 to change the amount and the batch;
//! BARE=1 for the log without TLS; FABRIC=shm SPIN=50 for shared memory, where a waiting thread
//! spins for 50 µs before it sleeps).

use std::time::{Duration, Instant};

use freshet_base::{ClusterId, CommitGate, Fid, Lsn, NodeId, RecordKind, Rid, Safety, Term, sync::Arc, wait::Patience};
use freshet_cluster::{
    commit_rule::RuleConfig,
    term::{TermHistory, TermState},
};
use freshet_fabric::{FabricConfig, FabricKind};
use freshet_log::{
    BlockBuilder, BlockKind, Log, LogConfig, LogStore, Persistence, ReceiveConfig, StoreConfig, Writer,
    block::{BLOCK_HEADER, RECORD_HEADER},
};
use freshet_membership::{Credentials, Enrolment, NewKey, Part};
use freshet_replication::{
    endpoint::Endpoint,
    feed::{FeedConfig, FeedFabric},
    follow::{FollowConfig, FollowerId, StandbyFabric},
    primary::{Primary, PrimaryConfig, PrimaryId},
    standby::{ReplayError, ReplayTarget, Standby, StandbyConfig, Starting},
    terms::{Terms, VolatileTerms},
};

const RING: usize = 64 << 20;

/// Blocks are this long, about as those of TPC-C.
const BLOCK: usize = 1536;

/// Fills a log, as a worker does.
struct Filler<'l> {
    log: &'l Log,
    writer: Writer,
    builder: BlockBuilder,
}

impl<'l> Filler<'l> {
    fn new(log: &'l Log) -> Self {
        Self { log, writer: log.writer().expect("there is a place"), builder: BlockBuilder::new() }
    }

    /// Fills in about `bytes`, and asks for them to be persisted; returns where they end.
    fn fill(&mut self, bytes: u64) -> Lsn {
        let row = [7; BLOCK - BLOCK_HEADER - RECORD_HEADER];
        let mut end = Lsn::ZERO;
        for _ in 0..(bytes as usize / BLOCK).max(1) {
            self.builder.begin();
            self.builder.push(None, Fid(1), Rid(1), RecordKind::Update, &row).expect("it is one record");
            self.builder.seal_records();
            self.writer.throttle().expect("the log takes it");
            let reservation = self.writer.reserve(BLOCK as u64).expect("the log takes it");
            let at = reservation.lsn();
            end = reservation.end();
            reservation.fill(self.builder.finish(at, Term(1), BlockKind::Redo)).expect("the log takes it");
        }
        self.log.force_fence(end);
        end
    }
}

struct NoReplay;

impl ReplayTarget for NoReplay {
    fn replay(&self, _: Lsn, _: Lsn, _: &[Lsn]) -> Result<(), ReplayError> {
        Ok(())
    }
    fn cut(&self, _: Lsn) -> Result<(), ReplayError> {
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
    let newcomer = Enrolment { public_key: key.public(), node: Some(NodeId(2)), part: Part::Node, secret: None };
    let second = founder.enrol(&newcomer, true).map(|enrolled| Credentials::enrolled(enrolled, &key));
    let second = second.expect("it is the same user").expect("what was signed can be used");
    let open = |node, credentials: &Credentials| {
        Endpoint::open(NodeId(node), credentials.clone(), "127.0.0.1:0").expect("the loopback is there")
    };
    let (at_primary, at_standby) = (open(1, &founder), open(2, &second));
    let terms = Terms::new(TermState::of(cluster, TermHistory::first(Term(1), NodeId(1), 1)), Arc::new(VolatileTerms));
    let who = PrimaryId {
        cluster,
        node: NodeId(1),
        credentials: founder,
        address: at_primary.address().to_string(),
        term: Term(1),
        start: Lsn(0),
        committed: Lsn::ZERO,
        holder: terms.get().holder(NodeId(1)),
        answered: Default::default(),
        succession: None,
    };
    let spin = Duration::from_micros(number("SPIN", 0));
    let kind = std::env::var("FABRIC").map_or(Ok(FabricKind::Tcp), |name| name.parse()).expect("a fabric");
    let bare = std::env::var_os("BARE").is_some();
    let config = FabricConfig { spin, bare, ..FabricConfig::default() };
    let fabric = FeedFabric { kind, config, ..FeedFabric::default() };
    let feed = FeedConfig { largest_block: 1 << 20, fabric, ..FeedConfig::default() };
    let config = PrimaryConfig { feed, ..PrimaryConfig::new(RuleConfig::new(Safety::VerySafe, 1)) };
    let log_config = LogConfig { capacity: RING, ..LogConfig::default() };
    let log = Arc::new(Log::open(log_config, Persistence::None, Lsn(0), Term(1)).expect("there is memory"));
    let primary = Primary::start(who, config, Arc::clone(&log), terms).expect("threads can be started");
    at_primary.set_service(Some(primary.service()));
    let who = FollowerId {
        node: NodeId(2),
        credentials: second,
        address: at_standby.address().to_string(),
        upstream: Some(at_primary.address().to_string()),
    };
    let starting = Starting { replayed: Lsn(0), global: Lsn(0), floor: Lsn(0) };
    let terms = Terms::new(TermState::empty(), Arc::new(VolatileTerms));
    let spin = Duration::from_micros(number("SPIN", 0));
    let config = FabricConfig { spin, bare, ..FabricConfig::default() };
    let fabric = StandbyFabric { kind, config, ..StandbyFabric::default() };
    let follow = FollowConfig { fabric, ..FollowConfig::default() };
    let standby_config = StandbyConfig { follow, ..StandbyConfig::default() };
    // As a node has it: checked, persisted (in memory), and read back.
    let store = LogStore::in_memory(StoreConfig { cluster, segment_size: 64 << 20 });
    let received = ReceiveConfig { capacity: RING, partition: 64 << 10, ..ReceiveConfig::default() };
    let (received, receiver) = Log::receive_with(&received, store, Lsn(0)).expect("there is memory");
    let received = (Arc::new(received), receiver);
    let standby = Standby::start(who, starting, standby_config, received, Arc::new(NoReplay), terms)
        .expect("threads can be started");
    standby.wait_joined(Instant::now() + Duration::from_secs(5)).expect("it joins");

    let mut filler = Filler::new(&log);
    let began = Instant::now();
    let mut at = Lsn(0);
    while at.0 < total {
        at = filler.fill(batch);
        // Never further ahead than the ring.
        let behind = Lsn(at.0.saturating_sub(RING as u64 / 2));
        primary.commit().wait(behind, Patience::endless()).expect("commits go on");
    }
    primary.commit().wait(at, Patience::endless()).expect("commits go on");
    let took = began.elapsed();
    standby.visible().wait(at, None).expect("it becomes visible");
    let mib = at.0 as f64 / f64::from(1 << 20);
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
        at = filler.fill(1);
        primary.commit().wait(at, Patience::endless()).expect("commits go on");
    }
    println!(
        "{:>10} {:8.1} us from filled to commit",
        "alone",
        began.elapsed().as_secs_f64() * 1e6 / f64::from(rounds)
    );
}
