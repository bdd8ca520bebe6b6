//! The live table: a line for every second.

use std::{
    fmt::Write,
    time::{Duration, Instant},
};

use serde_json::Value;

use super::{
    cluster::{Cluster, PATIENCE},
    load::Load,
    readers::Readers,
};
use crate::{Failure, client::Client, interruption::Interruption, status, units};

/// The time between two lines.
const EVERY: Duration = Duration::from_secs(1);
/// Between two looks at freshness.
const LOOK: Duration = Duration::from_millis(20);

/// One standby in the table.
struct Column {
    number: usize,
    client: Client,
    reads: u64,
    freshness: f64,
    looks: u32,
}

/// The table that the demo prints: a line for each second, columns for the standbys.
pub(crate) struct Table;

impl Table {
    /// Shows how the cluster does for a while.
    pub(crate) fn show(
        cluster: &Cluster,
        load: &Load,
        readers: &Readers,
        time: Duration,
        interruption: &Interruption,
    ) -> Result<(), Failure> {
        let primary = cluster.connect(cluster.primary())?;
        let mut columns = Vec::new();
        for number in cluster.standbys() {
            let client = cluster.connect(number)?;
            columns.push(Column { number, client, reads: readers.count(number), freshness: 0.0, looks: 0 });
        }
        println!("{}", head(cluster, &columns));
        let begun = Instant::now();
        let mut written = primary.watermarks(PATIENCE)?.reserved.unwrap_or_default();
        let mut since = begun;
        drop(load.interval());
        let mut line = EVERY.min(time);
        loop {
            // Freshness is looked at in between.
            while Instant::now() < begun + line {
                interruption.check()?;
                for column in &mut columns {
                    let seen = column.client.watermarks(PATIENCE)?.visible;
                    let of = primary.watermarks(PATIENCE)?.reserved.unwrap_or_default();
                    column.freshness += seen.0.min(of.0) as f64 / of.0.max(1) as f64;
                    column.looks += 1;
                }
                interruption.sleep_until((Instant::now() + LOOK).min(begun + line))?;
            }
            let now = Instant::now();
            let seconds = (now - since).as_secs_f64();
            let reserved = primary.watermarks(PATIENCE)?.reserved.unwrap_or_default();
            let interval = load.interval();
            let at = |quantile| units::micros(interval.latency.value_at_quantile(quantile) as f64);
            let mut row = format!(
                "  {:>7} {:>10} {:>10} {:>8.1}",
                units::grouped((interval.transactions as f64 / seconds).round() as u64),
                at(0.5),
                at(0.99),
                reserved.since(written) as f64 / seconds / 1e6
            );
            for column in &mut columns {
                let status: Value = serde_json::from_str(&column.client.status(PATIENCE)?)?;
                let lag = &status["visible_lag"];
                let reads = readers.count(column.number);
                let _ = write!(
                    row,
                    " |{:>10} {:>6.1} ms {:>8.3} % {:>5.0}",
                    if lag.is_object() { units::bytes(status::number(lag, "bytes")) } else { "unknown".to_owned() },
                    status::time(lag, "time").as_secs_f64() * 1e3,
                    column.freshness / f64::from(column.looks.max(1)) * 100.0,
                    (reads - column.reads) as f64 / seconds
                );
                (column.reads, column.freshness, column.looks) = (reads, 0.0, 0);
            }
            println!("{row}");
            (written, since) = (reserved, now);
            if line >= time {
                return Ok(());
            }
            line = (line + EVERY).min(time);
        }
    }
}

fn head(cluster: &Cluster, columns: &[Column]) -> String {
    let mut names = format!("  {:<38}", format!("primary {}", cluster.name(cluster.primary())));
    let mut units = format!("  {:>7} {:>10} {:>10} {:>8}", "txn/s", "p50", "p99", "log MB/s");
    for column in columns {
        let _ = write!(names, " | {:<35}", format!("standby {}", cluster.name(column.number)));
        let _ = write!(units, " |{:>10} {:>9} {:>10} {:>5}", "behind by", "and", "fresh", "rd/s");
    }
    format!("{}\n{units}", names.trim_end())
}
