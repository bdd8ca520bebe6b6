//! What a benchmark found out, for people and for programs.

use std::{
    fmt,
    sync::atomic::{AtomicU64, Ordering},
    time::{Duration, Instant},
};

use freshet_engine::{Encoding, Recorded};
use indicatif::ProgressBar;
use serde::Serialize;

use super::{
    driver::{Aborts, Half, Latencies, Tally},
    options::Common,
    probe::Look,
    subject::Measured,
    work::{AgainShares, ForEach, Mirrored, Stages},
};
use freshet::{
    process,
    units::{bytes, grouped, loading_style, micros},
};

/// Everything that was found out. `--json` prints it as it is.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    /// What was run.
    pub(crate) workload: String,
    /// How.
    pub(crate) options: Options,
    /// Transactions that took effect and committed, per second.
    pub(crate) tps: f64,
    /// How many these were.
    pub(crate) transactions: u64,
    /// How many were executed in that time. What is told of each transaction is told of these.
    pub(crate) executed: u64,
    /// How long was measured.
    pub(crate) seconds: f64,
    /// Transactions that were rolled back, by cause.
    pub(crate) aborts: Aborts,
    /// Of YCSB's long transactions, if there are any; the warm-up counts, too.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) long: Option<LongTransactions>,
    /// From a transaction's beginning until it was durable.
    pub(crate) latency_us: Latency,
    /// Bytes that went to the log.
    pub(crate) log_bytes_per_s: f64,
    /// Bytes that went to the log for each transaction.
    pub(crate) log_bytes_per_txn: f64,
    /// Transactions whose inputs were recorded, if that was asked for, the bytes of these, and
    /// others by reason.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) recorded: Option<Recorded>,
    /// Processor time for each transaction.
    pub(crate) cpu_us_per_txn: CpuPerTransaction,
    /// What a standby did, and was sent, for each transaction.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) standby: Option<ForEach>,
    /// What mirrors cost.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) mirror: Option<Mirrored>,
    /// The share of the measured time in which the threads that run transactions had a processor.
    /// In the rest they waited: for room in the log, for their window, or for a processor.
    pub(crate) worker_busy: f64,
    /// Standby read view / primary read view, looked at each 20 ms.
    pub(crate) freshness: Option<Freshness>,
    /// From acknowledged on the primary to visible on the standby.
    pub(crate) visibility_us: Option<Visibility>,
    /// Transactions that ran on the standbys.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) standby_readers: Option<StandbyReaders>,
    /// The looks at the stalest standby, one by one, if they were asked for.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) freshness_series: Vec<Look>,
    /// From the group commit's hand-over on the primary to visible on the standby (fabric shm).
    pub(crate) passage_us: Option<Passage>,
    /// How long it took a standby to take over under this load.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) failover_ms: Option<f64>,
    /// The share of batches that the thread of group commit has shipped itself. (The threads that
    /// ship sent the others.)
    pub(crate) prompt_batches: Option<f64>,
    /// The most memory that the primary had resident.
    pub(crate) peak_rss_bytes: u64,
    /// Throughput of half seconds, as shares of the mean.
    pub(crate) halves: Option<Halves>,
    /// Half seconds, one by one.
    pub(crate) half_seconds: Vec<HalfSecond>,
    /// How loading went.
    pub(crate) load: Load,
    /// How often a thread waited because its window was full.
    pub(crate) window_waits: u64,
    /// The consistency conditions that do not hold, of those that were looked at.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) check: Option<Vec<String>>,
}

/// Read-only transactions on the standbys.
#[derive(Debug, Serialize)]
pub(crate) struct StandbyReaders {
    /// Transactions per second, on all standbys together.
    pub(crate) tps: f64,
    /// Transactions that could not read.
    pub(crate) failed: u64,
    /// The share of the processor time of the standbys' processes that these transactions had.
    pub(crate) utilization: f64,
}

/// Half a second of the measurement.
#[derive(Debug, Serialize)]
pub(crate) struct HalfSecond {
    /// When it ended, from the beginning of the measurement on.
    pub(crate) seconds: f64,
    /// Committed transactions per second.
    pub(crate) tps: f64,
    /// The mean of their latencies.
    pub(crate) latency_us: f64,
    /// Whether a checkpoint was being written at its end: 1, or 0.
    pub(crate) checkpointing: u8,
}

impl From<&Half> for HalfSecond {
    fn from(half: &Half) -> Self {
        let Half { seconds, per_second: tps, latency_us, checkpointing } = *half;
        Self { seconds, tps, latency_us, checkpointing: checkpointing.into() }
    }
}

/// Throughput of half seconds, as shares of the mean.
#[derive(Debug, Serialize)]
pub(crate) struct Halves {
    /// Of the slowest.
    pub(crate) slowest: f64,
    /// Of the slowest in which a checkpoint was being written, if there was one.
    pub(crate) slowest_with_checkpoint: Option<f64>,
    /// In how many of them a checkpoint was being written.
    pub(crate) with_checkpoint: usize,
    /// How many there are.
    pub(crate) count: usize,
}

impl Halves {
    fn of(halves: &[Half]) -> Option<Self> {
        let mean = halves.iter().map(|half| half.per_second).sum::<f64>() / halves.len() as f64;
        let share = |half: &Half| half.per_second / mean.max(1e-9);
        let slowest = halves.iter().map(share).min_by(f64::total_cmp)?;
        let with = halves.iter().filter(|half| half.checkpointing);
        let slowest_with_checkpoint = with.clone().map(share).min_by(f64::total_cmp);
        Some(Self { slowest, slowest_with_checkpoint, with_checkpoint: with.count(), count: halves.len() })
    }
}

/// Transactions that read much and write little.
#[derive(Debug, Serialize)]
pub(crate) struct LongTransactions {
    /// How many have ended.
    pub(crate) tried: u64,
    /// How many of them have committed.
    pub(crate) committed: u64,
}

/// The options that matter for the result.
#[derive(Debug, Serialize)]
pub(crate) struct Options {
    pub(crate) threads: u16,
    pub(crate) isolation: String,
    pub(crate) certifier: String,
    pub(crate) domain: freshet_engine::Domain,
    pub(crate) safety: String,
    pub(crate) standbys: u32,
    pub(crate) mirrors: u32,
    pub(crate) replay_threads: u16,
    pub(crate) replay: String,
    pub(crate) apply: String,
    pub(crate) encoding: String,
    pub(crate) home_only: bool,
    pub(crate) pin: Option<String>,
}

impl Options {
    fn of(common: &Common) -> Self {
        Self {
            threads: common.threads,
            isolation: common.isolation.to_string(),
            certifier: common.certifier.to_string(),
            domain: common.domain,
            safety: common.safety.to_string(),
            standbys: common.standbys,
            mirrors: common.mirrors,
            replay_threads: common.replay_threads,
            replay: common.replay.to_string(),
            apply: common.apply.to_string(),
            encoding: common.encoding.to_string(),
            home_only: common.stays_at_home(),
            pin: common.pin.as_ref().map(ToString::to_string),
        }
    }
}

/// Microseconds.
#[derive(Debug, Serialize)]
pub(crate) struct Latency {
    pub(crate) mean: f64,
    pub(crate) p50: f64,
    pub(crate) p95: f64,
    pub(crate) p99: f64,
    pub(crate) max: f64,
}

impl Latency {
    fn of(Latencies(histogram): &Latencies) -> Self {
        let at = |quantile: f64| histogram.value_at_quantile(quantile) as f64 / 1_000.0;
        let (mean, max) = (histogram.mean() / 1_000.0, histogram.max() as f64 / 1_000.0);
        Self { mean, p50: at(0.5), p95: at(0.95), p99: at(0.99), max }
    }
}

/// Microseconds of processor time, by stage.
#[derive(Debug, Serialize)]
pub(crate) struct CpuPerTransaction {
    /// Executing, certifying and copying the block into the log's buffer; inputs are made up within
    /// it, too.
    pub(crate) forward: f64,
    /// Flushing and shipping.
    pub(crate) log: f64,
    /// Of that, shipping to all standbys and mirrors and hearing acknowledgements.
    pub(crate) ship: f64,
    /// Replay on one standby.
    pub(crate) replay: Option<f64>,
    /// The primary's whole process.
    pub(crate) primary: f64,
    /// The processes of all nodes.
    pub(crate) all_nodes: f64,
}

/// Shares.
#[derive(Debug, Serialize)]
pub(crate) struct Freshness {
    pub(crate) mean: f64,
    /// Of 100 looks, 99 found more.
    pub(crate) p1: f64,
    pub(crate) min: f64,
    /// Bytes of log that the standby's read view is behind: half of the looks found less.
    pub(crate) behind_bytes_p50: f64,
    /// 99 of 100 looks found less.
    pub(crate) behind_bytes_p99: f64,
}

/// Microseconds.
#[derive(Debug, Serialize)]
pub(crate) struct Visibility {
    pub(crate) p50: f64,
    pub(crate) p99: f64,
    pub(crate) max: f64,
    pub(crate) samples: u64,
}

/// Microseconds.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct Passage {
    pub(crate) p50: f64,
    pub(crate) p99: f64,
    pub(crate) max: f64,
    pub(crate) batches: u64,
}

impl Passage {
    /// From what a standby's status says, if it says something.
    pub(crate) fn of(status: &serde_json::Value) -> Option<Self> {
        let micros = |key| freshet::status::time(status, key).as_secs_f64() * 1e6;
        let batches = status["batches"].as_u64()?;
        Some(Self { p50: micros("p50"), p99: micros("p99"), max: micros("max"), batches })
    }
}

/// How loading went.
#[derive(Debug, Serialize)]
pub(crate) struct Load {
    pub(crate) rows: u64,
    pub(crate) seconds: f64,
    /// Memory that came to be resident while loading, in bytes.
    pub(crate) resident_bytes: u64,
    /// Of that, for each row beyond its bytes; where all rows have the same length.
    pub(crate) overhead_bytes_per_record: Option<f64>,
}

/// Samples in order.
#[derive(Debug, Default)]
pub(crate) struct Spread(Vec<f64>);

impl Spread {
    pub(crate) fn new(mut samples: Vec<f64>) -> Self {
        samples.sort_by(f64::total_cmp);
        Self(samples)
    }

    /// The sample that `percent` of all lie below; 0 without samples.
    pub(crate) fn percentile(&self, percent: f64) -> f64 {
        let last = self.0.len().saturating_sub(1);
        let position = (percent / 100.0 * last as f64).round() as usize;
        self.0.get(position.min(last)).copied().unwrap_or(0.0)
    }

    pub(crate) fn mean(&self) -> f64 {
        self.0.iter().sum::<f64>() / self.0.len().max(1) as f64
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }
}

impl Report {
    pub(crate) fn new(workload: &str, common: &Common, tally: Tally, measured: Measured, load: Load) -> Self {
        let seconds = measured.time.as_secs_f64();
        let transactions = tally.executed.max(1) as f64;
        let per_transaction = |time: Duration| time.as_secs_f64() * 1e6 / transactions;
        Self {
            workload: workload.to_owned(),
            options: Options::of(common),
            tps: tally.per_second,
            transactions: tally.committed,
            executed: tally.executed,
            seconds,
            aborts: tally.aborts,
            latency_us: Latency::of(&tally.latency),
            log_bytes_per_s: if measured.logged { measured.log_bytes as f64 / seconds } else { 0.0 },
            log_bytes_per_txn: if measured.logged { measured.log_bytes as f64 / transactions } else { 0.0 },
            recorded: (common.record_inputs || common.encoding == Encoding::Inputs).then_some(measured.recorded),
            cpu_us_per_txn: CpuPerTransaction {
                forward: per_transaction(tally.cpu),
                log: per_transaction(measured.log.cpu),
                ship: per_transaction(measured.log.ship_cpu),
                replay: measured.work.map(|work| per_transaction(work.replay)),
                primary: per_transaction(measured.primary_cpu),
                all_nodes: per_transaction(measured.primary_cpu + measured.others_cpu),
            },
            standby: measured.work.map(|work| ForEach::new(&work, measured.sent[0], measured.log_bytes, transactions)),
            mirror: Mirrored::new(
                measured.sent[1],
                &measured.mirrors,
                measured.time,
                (transactions, measured.log_bytes),
                measured.idle_mirror,
            ),
            worker_busy: tally.cpu.as_secs_f64() / (seconds * f64::from(common.threads)).max(1e-9),
            freshness: measured.freshness.zip(measured.behind_bytes).map(|(spread, behind)| Freshness {
                mean: spread.mean(),
                p1: spread.percentile(1.0),
                min: spread.percentile(0.0),
                behind_bytes_p50: behind.percentile(50.0),
                behind_bytes_p99: behind.percentile(99.0),
            }),
            passage_us: measured.passage,
            visibility_us: measured.visibility_us.map(|spread| Visibility {
                p50: spread.percentile(50.0),
                p99: spread.percentile(99.0),
                max: spread.percentile(100.0),
                samples: spread.len() as u64,
            }),
            standby_readers: measured.readers.map(|readers| StandbyReaders {
                tps: readers.transactions as f64 / seconds,
                failed: readers.failed,
                utilization: readers.cpu.as_secs_f64() / readers.process_cpu.as_secs_f64().max(1e-9),
            }),
            failover_ms: measured.took_over.map(|time| time.as_secs_f64() * 1e3),
            prompt_batches: (measured.log.batches > 0)
                .then(|| measured.log.prompt as f64 / measured.log.batches as f64),
            freshness_series: if common.freshness_series { measured.looks } else { Vec::new() },
            peak_rss_bytes: process::peak_resident_bytes(),
            load,
            window_waits: tally.window_waits,
            halves: Halves::of(&tally.halves),
            half_seconds: tally.halves.iter().map(HalfSecond::from).collect(),
            long: None,
            check: None,
        }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut line = |name: &str, value: String| writeln!(f, "{name:<22} {value}");
        let Options { threads, isolation, certifier, domain, safety, standbys, mirrors, .. } = &self.options;
        let domain = format!("{domain:?}").to_lowercase();
        line("workload", self.workload.clone())?;
        let with = format!("{threads} thread(s), {isolation} ({certifier})");
        line("with", format!("{with}, domain {domain}, {safety}, {standbys} standby(s), {mirrors} mirror(s)"))?;
        line("transactions/s", grouped(self.tps.round() as u64))?;
        let (committed, executed) = (grouped(self.transactions), grouped(self.executed));
        line("measured", format!("{committed} transactions committed, {executed} executed, in {:.1} s", self.seconds))?;
        let Aborts { write_conflict, read_changed, phantom, exclusion, unique, user, other } = self.aborts;
        line(
            "rolled back",
            format!(
                "write conflict {write_conflict}, read changed {read_changed}, phantom {phantom}, \
                 exclusion {exclusion}, unique {unique}, of itself {user}, other {other}"
            ),
        )?;
        if let Some(LongTransactions { tried, committed }) = &self.long {
            line("long transactions", format!("{committed} of {tried} committed, with those of the warm-up"))?;
        }
        let Latency { p50, p95, p99, max, .. } = self.latency_us;
        line(
            "latency to durable",
            format!("p50 {}, p95 {}, p99 {}, max {}", micros(p50), micros(p95), micros(p99), micros(max)),
        )?;
        line(
            "log",
            format!("{}/s, {:.0} bytes a transaction", bytes(self.log_bytes_per_s as u64), self.log_bytes_per_txn),
        )?;
        if let Some(Recorded { recorded, bytes, kept }) = &self.recorded {
            let kept: Vec<String> = kept.iter().map(|(why, count)| format!(", {why} {}", grouped(*count))).collect();
            let each = *bytes as f64 / (*recorded).max(1) as f64;
            line("inputs", format!("{} recorded, {each:.1} bytes each{}", grouped(*recorded), kept.concat()))?;
        }
        let CpuPerTransaction { forward, log, ship, replay, primary, all_nodes } = &self.cpu_us_per_txn;
        let replay = replay.map(|replay| format!(", replay {replay:.2} us")).unwrap_or_default();
        line(
            "CPU a transaction",
            format!("forward {forward:.2} us, log {log:.2} us (of that shipping {ship:.2} us){replay}"),
        )?;
        line("CPU of all nodes", format!("{all_nodes:.2} us a transaction, of that the primary {primary:.2} us"))?;
        if let Some(mirrored) = &self.mirror {
            let Mirrored { bytes_per_txn, share_of_log, cpu_us_per_txn, core_share, idle_core_share } = mirrored;
            let (share, busy, idle) = (share_of_log * 100.0, core_share * 100.0, idle_core_share * 100.0);
            line("into a mirror", format!("{bytes_per_txn:.1} bytes a transaction, {share:.2} % of the log"))?;
            line(
                "CPU on a mirror",
                format!("{cpu_us_per_txn:.3} us a transaction, {busy:.2} % of a processor; {idle:.2} % without load"),
            )?;
        }
        if let Some(ForEach { wire_bytes_per_txn, wire_share, kept_up, cpu_us_per_txn, again }) = &self.standby {
            let share = wire_share * 100.0;
            line("on the wire", format!("{wire_bytes_per_txn:.1} bytes a transaction, {share:.2} % of the log"))?;
            let Stages { process, receive, enter, execute, complete, replay } = cpu_us_per_txn;
            line(
                "CPU on a standby",
                format!(
                    "{process:.2} us a transaction: receive {receive:.2}, enter {enter:.2}, execute {execute:.2}, \
                     log {complete:.2}, replay {replay:.2}"
                ),
            )?;
            line("became visible", format!("{:.1} % of the log that was written", kept_up * 100.0))?;
            if let Some(AgainShares { executed, fetched, came_as_bytes, waits_per_txn }) = again {
                line(
                    "executed again",
                    format!(
                        "{:.2} %, fetched {:.3} %, came as bytes {:.2} %; {waits_per_txn:.3} waits a transaction",
                        executed * 100.0,
                        fetched * 100.0,
                        came_as_bytes * 100.0
                    ),
                )?;
            }
        }
        line("workers had a CPU", format!("{:.1} % of the time", self.worker_busy * 100.0))?;
        if let Some(Freshness { mean, p1, min, behind_bytes_p50, behind_bytes_p99 }) = &self.freshness {
            line("freshness", format!("mean {:.3} %, p1 {:.3} %, min {:.3} %", mean * 100.0, p1 * 100.0, min * 100.0))?;
            let (p50, p99) = (bytes(*behind_bytes_p50 as u64), bytes(*behind_bytes_p99 as u64));
            line("read view behind by", format!("p50 {p50}, p99 {p99}"))?;
        }
        if let Some(Visibility { p50, p99, max, samples }) = &self.visibility_us {
            let samples = grouped(*samples);
            line(
                "visible after ack",
                format!("p50 {}, p99 {}, max {} ({samples} samples)", micros(*p50), micros(*p99), micros(*max)),
            )?;
        }
        if let Some(StandbyReaders { tps, failed, utilization }) = &self.standby_readers {
            let (tps, share) = (grouped(tps.round() as u64), utilization * 100.0);
            line("standby reads", format!("{tps}/s, {share:.0} % of the standbys' processor time, {failed} failed"))?;
        }
        if let Some(Passage { p50, p99, max, batches }) = &self.passage_us {
            let batches = grouped(*batches);
            line(
                "log to visible",
                format!("p50 {}, p99 {}, max {} ({batches} batches)", micros(*p50), micros(*p99), micros(*max)),
            )?;
        }
        if let Some(time) = self.failover_ms {
            line("took over", format!("in {time:.1} ms"))?;
        }
        if let Some(Halves { slowest, slowest_with_checkpoint, with_checkpoint, count }) = &self.halves {
            let checkpoints = match slowest_with_checkpoint {
                Some(share) => {
                    format!("; while a checkpoint is written {:.0} % ({with_checkpoint} of {count})", share * 100.0)
                }
                None => String::new(),
            };
            line("slowest half second", format!("{:.0} % of the mean{checkpoints}", slowest * 100.0))?;
        }
        let load = &self.load;
        let overhead = load
            .overhead_bytes_per_record
            .map(|overhead| format!(", {overhead:.1} bytes a record beyond its row"))
            .unwrap_or_default();
        line(
            "memory",
            format!("peak {}, loaded {}{overhead}", bytes(self.peak_rss_bytes), bytes(load.resident_bytes)),
        )?;
        line("loading", format!("{} rows in {:.1} s", grouped(load.rows), load.seconds))?;
        if let Some(violated) = &self.check {
            line("consistency", if violated.is_empty() { "all conditions hold".into() } else { violated.join("; ") })?;
        }
        Ok(())
    }
}

/// Loading under way, with a progress bar where somebody is looking.
pub(crate) struct Loading {
    begun: Instant,
    resident: u64,
    rows: AtomicU64,
    bar: ProgressBar,
}

impl Loading {
    pub(crate) fn begin(expected: u64, silent: bool) -> Self {
        let bar = if silent { ProgressBar::hidden() } else { ProgressBar::new(expected) };
        bar.set_style(loading_style());
        Self { begun: Instant::now(), resident: process::resident_bytes(), rows: AtomicU64::new(0), bar }
    }

    pub(crate) fn progress(&self, rows: u64) {
        self.rows.fetch_add(rows, Ordering::Relaxed);
        self.bar.inc(rows);
    }

    /// Loading is over; `row_bytes` when every row is that long.
    pub(crate) fn end(self, row_bytes: Option<usize>) -> Load {
        self.bar.finish_and_clear();
        let rows = self.rows.into_inner();
        let resident_bytes = process::resident_bytes().saturating_sub(self.resident);
        Load {
            rows,
            seconds: self.begun.elapsed().as_secs_f64(),
            resident_bytes,
            overhead_bytes_per_record: row_bytes.map(|bytes| resident_bytes as f64 / rows.max(1) as f64 - bytes as f64),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_samples() {
        let spread = Spread::new((0..=100).rev().map(f64::from).collect());
        assert_eq!((spread.percentile(0.0), spread.percentile(50.0), spread.percentile(99.0)), (0.0, 50.0, 99.0));
        assert_eq!((spread.percentile(100.0), spread.mean(), spread.len()), (100.0, 50.0, 101));
        assert_eq!((Spread::default().percentile(99.0), Spread::default().mean()), (0.0, 0.0));
    }
}
