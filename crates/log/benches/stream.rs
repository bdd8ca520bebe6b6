//! What the log costs a worker: nanoseconds to reserve and fill a block, by size, domain and
//! threads; and the checksum. Times per block are processor time of the workers, so that they hold
//! on a busy machine too; rates are by the clock.
//!
//! `cargo bench -p freshet-log --bench stream`. The file domain goes to /dev/shm when there is one.

use std::{hint::black_box, path::Path, thread, time::Instant};

use freshet_base::{ClusterId, Fid, Lsn, Rid, Term};
use freshet_log::{BlockBuilder, BlockKind, Log, LogConfig, LogStore, RecordKind, StoreConfig, Writer, find_tail};

const STORE: StoreConfig = StoreConfig { cluster: ClusterId(1), segment_size: 64 << 20 };
/// Bytes that each run writes.
const VOLUME: u64 = 1 << 30;

#[derive(Clone, Copy, PartialEq)]
enum Domain {
    /// LSNs only, nothing is copied.
    Volatile,
    /// Copied into the ring and dropped.
    Ring,
    Memory,
    File,
}

/// Processor time of this thread in nanoseconds.
fn cpu() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

fn builder_for(length: usize) -> BlockBuilder {
    let mut builder = BlockBuilder::new();
    builder.begin();
    builder.push(None, Fid(1), Rid(1), RecordKind::Update, &vec![7; length - 64]).unwrap();
    assert_eq!(builder.seal_records(), length as u64);
    builder
}

fn work(writer: &mut Writer, length: usize, blocks: u64, domain: Domain, finish: bool) -> u64 {
    let before = cpu();
    let mut builder = builder_for(length);
    let block = builder.finish(Lsn(0), Term(1), BlockKind::Redo).to_vec();
    let mut block = block;
    for _ in 0..blocks {
        writer.throttle().unwrap();
        if domain == Domain::Volatile {
            let _ = black_box(writer.reserve(length as u64).unwrap());
            continue;
        }
        let reservation = writer.reserve(length as u64).unwrap();
        let lsn = reservation.lsn();
        if finish {
            builder.seal_records();
            reservation.fill(builder.finish(lsn, Term(1), BlockKind::Redo)).unwrap();
        } else {
            block[8..16].copy_from_slice(&lsn.0.to_le_bytes());
            reservation.fill(&block).unwrap();
        }
    }
    cpu() - before
}

fn run(domain: Domain, length: usize, threads: u64, finish: bool, directory: &Path) {
    let directory = tempfile::tempdir_in(directory).unwrap();
    let store = match domain {
        Domain::Volatile | Domain::Ring => None,
        Domain::Memory => Some(LogStore::in_memory(STORE)),
        Domain::File => Some(LogStore::open_directory(directory.path(), STORE).unwrap()),
    };
    let volume = if domain == Domain::Volatile { VOLUME * 4 } else { VOLUME };
    let log = match domain {
        Domain::Volatile => Log::volatile(threads as usize, Lsn(0), Term(1)),
        _ => Log::open(LogConfig::default(), store, Lsn(0), Term(1)).unwrap(),
    };
    let blocks = volume / length as u64 / threads;
    let start = Instant::now();
    let spent: u64 = thread::scope(|scope| {
        let work = || work(&mut log.writer().unwrap(), length, blocks, domain, finish);
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        workers.into_iter().map(|worker| worker.join().unwrap()).sum()
    });
    let end = log.reserved();
    log.wait_durable(end, None).unwrap();
    let total = start.elapsed();
    log.close().unwrap();
    let name = match domain {
        Domain::Volatile => "volatile",
        Domain::Ring => "ring",
        Domain::Memory => "memory",
        Domain::File => "file",
    };
    let statistics = log.statistics();
    println!(
        "{name:9} {length:5} B  {threads} thread(s) {}: {:7.1} ns/block  {:7.0} MB/s  {} batches, log thread {:4.0} ms of {:4.0} ms",
        if finish { "+ checksum" } else { "          " },
        spent as f64 / (blocks * threads) as f64,
        end.0 as f64 / 1e6 / total.as_secs_f64(),
        statistics.batches,
        statistics.thread_cpu.as_secs_f64() * 1e3,
        total.as_secs_f64() * 1e3,
    );
}

fn checksum(length: usize) {
    let mut builder = builder_for(length);
    let rounds = 2_000_000;
    let start = cpu();
    for i in 0..rounds {
        black_box(builder.seal_records());
        black_box(builder.finish(Lsn(i), Term(1), BlockKind::Redo));
    }
    println!("checksum  {length:5} B: {:.1} ns/block", (cpu() - start) as f64 / rounds as f64);
}

fn tail(directory: &Path) {
    let directory = tempfile::tempdir_in(directory).unwrap();
    let store = LogStore::open_directory(directory.path(), STORE).unwrap();
    let log = Log::open(LogConfig::default(), Some(store.clone()), Lsn(0), Term(1)).unwrap();
    work(&mut log.writer().unwrap(), 208, VOLUME / 208, Domain::File, true);
    log.close().unwrap();
    let (start, before) = (Instant::now(), cpu());
    let found = find_tail(&store, Lsn(0), store.watermark()).unwrap();
    assert_eq!(found.end, log.durable());
    let bytes = found.end.0 as f64;
    println!(
        "find_tail: {:.0} MB/s by the clock, {:.0} MB per second of processor time, {} blocks",
        bytes / 1e6 / start.elapsed().as_secs_f64(),
        bytes * 1e3 / (cpu() - before) as f64,
        found.blocks
    );
}

fn latency(directory: &Path) {
    let directory = tempfile::tempdir_in(directory).unwrap();
    let store = LogStore::open_directory(directory.path(), STORE).unwrap();
    let log = Log::open(LogConfig::default(), Some(store), Lsn(0), Term(1)).unwrap();
    let mut writer = log.writer().unwrap();
    let mut builder = builder_for(208);
    let mut times: Vec<f64> = (0..2000)
        .map(|_| {
            let start = Instant::now();
            let reservation = writer.reserve(208).unwrap();
            let (lsn, end) = (reservation.lsn(), reservation.end());
            reservation.fill(builder.finish(lsn, Term(1), BlockKind::Redo)).unwrap();
            log.wait_durable(end, None).unwrap();
            start.elapsed().as_nanos() as f64 / 1e3
        })
        .collect();
    times.sort_by(f64::total_cmp);
    println!("one client: p50 {:.1} us, p99 {:.1} us to durable", times[1000], times[1980]);
}

fn main() {
    let shm = Path::new("/dev/shm");
    let temporary = std::env::temp_dir();
    let directory = if shm.is_dir() { shm } else { &temporary };
    for length in [128, 208, 1536] {
        checksum(length);
    }
    for (domain, threads) in [
        (Domain::Volatile, 1),
        (Domain::Volatile, 2),
        (Domain::Ring, 1),
        (Domain::Ring, 2),
        (Domain::Memory, 1),
        (Domain::File, 1),
    ] {
        for length in [128, 208, 1536] {
            run(domain, length, threads, false, directory);
        }
    }
    run(Domain::Ring, 208, 1, true, directory);
    run(Domain::File, 1536, 1, true, directory);
    tail(directory);
    latency(directory);
    print!("disk: ");
    latency(&temporary);
}
