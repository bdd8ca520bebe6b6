//! What standbys and mirrors do for what they are sent: bytes on the wire, processor time by stage,
//! and what becomes of transactions that are executed again.

use std::time::Duration;

use freshet_engine::node::RoleStatus;
use serde::Serialize;
use serde_json::Value;

use freshet::status::time;

/// What a standby has done since its start.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Work {
    /// Readers see everything below.
    visible: u64,
    /// Processor time of the whole process.
    pub(crate) process: Duration,
    /// Of receiving and acknowledging.
    receive: Duration,
    /// Of entering blocks that are executed again.
    enter: Duration,
    /// Of executing them.
    execute: Duration,
    /// Of handing over what came out.
    complete: Duration,
    /// Of replay: of the thread that coordinates it, which also replays, and of the others.
    pub(crate) replay: Duration,
    /// Transactions that gave their blocks.
    executed: u64,
    /// Those that did not, so that their blocks were fetched.
    fetched: u64,
    /// Blocks that came with their bytes.
    came_as_bytes: u64,
    /// How often one waited for what another wrote.
    waits: u64,
}

impl Work {
    /// What a standby's status says.
    pub(crate) fn of(status: &Value) -> Self {
        let again = &status["again"];
        let count = |key: &str| again[key].as_u64().unwrap_or(0);
        Self {
            visible: status["read_view"].as_u64().unwrap_or(0),
            process: time(status, "process_cpu"),
            receive: time(status, "receive_cpu") + time(status, "ack_cpu"),
            enter: time(again, "enter_cpu"),
            execute: time(again, "execute_cpu"),
            complete: time(again, "complete_cpu"),
            replay: time(status, "replay_cpu").max(time(status, "replay_threads_cpu")),
            executed: count("executed"),
            fetched: count("old_snapshots") + count("mismatches"),
            came_as_bytes: count("came_as_bytes"),
            waits: count("waits"),
        }
    }

    /// What was done since `before`.
    pub(crate) fn since(&self, before: &Self) -> Self {
        Self {
            visible: self.visible.saturating_sub(before.visible),
            process: self.process.saturating_sub(before.process),
            receive: self.receive.saturating_sub(before.receive),
            enter: self.enter.saturating_sub(before.enter),
            execute: self.execute.saturating_sub(before.execute),
            complete: self.complete.saturating_sub(before.complete),
            replay: self.replay.saturating_sub(before.replay),
            executed: self.executed.saturating_sub(before.executed),
            fetched: self.fetched.saturating_sub(before.fetched),
            came_as_bytes: self.came_as_bytes.saturating_sub(before.came_as_bytes),
            waits: self.waits.saturating_sub(before.waits),
        }
    }
}

/// What a primary has sent to all its standbys, or to all its mirrors.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Sent {
    /// Bytes, with headers.
    bytes: u64,
    /// How much log these say.
    log: u64,
}

impl Sent {
    /// What a primary's status says: of standbys, or of mirrors.
    pub(crate) fn of(role: &RoleStatus, mirrors: bool) -> Self {
        let RoleStatus::Primary { shipping, .. } = role else { return Self::default() };
        let nodes = shipping.standbys.iter().filter(|node| node.mirror == mirrors);
        nodes.fold(Self::default(), |all, node| Self {
            bytes: all.bytes + node.sent_bytes,
            log: all.log + node.shipped.0,
        })
    }

    /// What was sent since `before`.
    pub(crate) fn since(self, before: Self) -> Self {
        Self { bytes: self.bytes.saturating_sub(before.bytes), log: self.log.saturating_sub(before.log) }
    }

    /// Bytes for each byte of log.
    fn share(self) -> f64 {
        self.bytes as f64 / self.log.max(1) as f64
    }
}

/// What was done for each transaction.
#[derive(Debug, Serialize)]
pub(crate) struct ForEach {
    /// Bytes that a standby was sent, with headers.
    pub(crate) wire_bytes_per_txn: f64,
    /// The same for each byte of log.
    pub(crate) wire_share: f64,
    /// The log that became visible, as a share of the log that was written: a standby with less
    /// than 1 falls behind.
    pub(crate) kept_up: f64,
    /// Processor time of one standby, for each transaction that became visible there.
    pub(crate) cpu_us_per_txn: Stages,
    /// Of a standby that executes transactions again.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) again: Option<AgainShares>,
}

/// What mirrors cost.
#[derive(Debug, Serialize)]
pub(crate) struct Mirrored {
    /// Bytes that were written into each, for each transaction.
    pub(crate) bytes_per_txn: f64,
    /// The same for each byte of log.
    pub(crate) share_of_log: f64,
    /// Processor time of the busiest one's process, in microseconds for each transaction.
    pub(crate) cpu_us_per_txn: f64,
    /// Which share of one processor that was.
    pub(crate) core_share: f64,
    /// The same afterwards, without load.
    pub(crate) idle_core_share: f64,
}

impl Mirrored {
    /// Of what all mirrors were sent, the processor time that each took in `time` with
    /// `transactions` and `log_bytes`, and which share of one processor the busiest took without.
    pub(crate) fn new(
        sent: Sent,
        work: &[Work],
        time: Duration,
        (transactions, log_bytes): (f64, u64),
        idle_core_share: f64,
    ) -> Option<Self> {
        let busiest = work.iter().map(|work| work.process).max()?;
        Some(Self {
            bytes_per_txn: sent.share() * log_bytes as f64 / transactions,
            share_of_log: sent.share(),
            cpu_us_per_txn: busiest.as_secs_f64() * 1e6 / transactions,
            core_share: busiest.as_secs_f64() / time.as_secs_f64().max(1e-9),
            idle_core_share,
        })
    }
}

/// Microseconds of processor time of a standby, by stage.
#[derive(Debug, Serialize)]
pub(crate) struct Stages {
    /// Everything, readers too.
    pub(crate) process: f64,
    /// Receiving and acknowledging.
    pub(crate) receive: f64,
    /// Entering blocks.
    pub(crate) enter: f64,
    /// Executing transactions again.
    pub(crate) execute: f64,
    /// Handing over what came out, for the log.
    pub(crate) complete: f64,
    /// Replay.
    pub(crate) replay: f64,
}

/// What became of blocks.
#[derive(Debug, Serialize)]
pub(crate) struct AgainShares {
    /// The share of those that came out of executing them again.
    pub(crate) executed: f64,
    /// Of those that did not, and were fetched.
    pub(crate) fetched: f64,
    /// Of those that came with their bytes.
    pub(crate) came_as_bytes: f64,
    /// How often one waited for what another wrote, for each.
    pub(crate) waits_per_txn: f64,
}

impl ForEach {
    /// Of a standby's work, of what all standbys were sent, and of as many bytes of log and of
    /// `transactions` as the primary wrote.
    pub(crate) fn new(work: &Work, sent: Sent, log_bytes: u64, transactions: f64) -> Self {
        let kept_up = work.visible as f64 / log_bytes.max(1) as f64;
        let visible = (transactions * kept_up).max(1.0);
        let each = |time: Duration| time.as_secs_f64() * 1e6 / visible;
        let blocks = work.executed + work.fetched + work.came_as_bytes;
        let share = |count: u64| count as f64 / blocks.max(1) as f64;
        Self {
            wire_bytes_per_txn: sent.share() * log_bytes as f64 / transactions,
            wire_share: sent.share(),
            kept_up,
            cpu_us_per_txn: Stages {
                process: each(work.process),
                receive: each(work.receive),
                enter: each(work.enter),
                execute: each(work.execute),
                complete: each(work.complete),
                replay: each(work.replay),
            },
            again: (work.executed + work.fetched > 0).then(|| AgainShares {
                executed: share(work.executed),
                fetched: share(work.fetched),
                came_as_bytes: share(work.came_as_bytes),
                waits_per_txn: share(work.waits),
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_is_reported_for_each_transaction_that_became_visible() {
        let time = |micros: u64| serde_json::json!({"secs": 0, "nanos": micros * 1000});
        let status = |visible: u64, executed: u64| {
            serde_json::json!({
                "read_view": visible, "receive_cpu": time(visible), "replay_cpu": time(2 * visible),
                "process_cpu": time(10 * visible),
                "again": {"executed": executed, "old_snapshots": 4, "came_as_bytes": 6, "waits": executed / 2,
                          "execute_cpu": time(3 * visible)},
            })
        };
        let before = Work::of(&status(100, 10));
        let work = Work::of(&status(600, 40)).since(&before);
        // Half of the log became visible: 50 of 100 transactions.
        let sent = Sent { bytes: 90, log: 900 };
        let each = ForEach::new(&work, sent, 1000, 100.0);
        assert_eq!((each.wire_bytes_per_txn, each.wire_share, each.kept_up), (1.0, 0.1, 0.5));
        let Stages { process, receive, execute, replay, .. } = each.cpu_us_per_txn;
        assert_eq!((process, receive, execute, replay), (100.0, 10.0, 30.0, 20.0));
        let again = each.again.unwrap();
        assert_eq!((again.executed, again.fetched, again.waits_per_txn), (1.0, 0.0, 0.5));
    }

    #[test]
    fn mirrors_are_measured_by_the_busiest() {
        let work = |millis| Work { process: Duration::from_millis(millis), ..Work::default() };
        let (sent, time) = (Sent { bytes: 600, log: 2000 }, Duration::from_secs(2));
        let found = Mirrored::new(sent, &[work(1), work(3)], time, (100.0, 1000), 0.001).unwrap();
        assert_eq!((found.bytes_per_txn, found.share_of_log, found.cpu_us_per_txn), (3.0, 0.3, 30.0));
        assert_eq!((found.core_share, found.idle_core_share), (0.0015, 0.001));
        assert!(Mirrored::new(sent, &[], time, (100.0, 1000), 0.0).is_none());
    }
}
