//! `freshet-lab bench failover`: how long a mirror takes to become the primary.
//!
//! A mirror makes versions of its rows, builds indexes, serves readers, and writes a checkpoint;
//! then it takes writes.

use std::process::ExitCode;

use clap::Args;
use freshet_base::Safety;
use freshet_workloads::ycsb::mix::Shape;
use serde::Serialize;

use super::{join::Phase, options::Common, subject::Subject, ycsb};
use freshet::{Failure, units};

/// Options of `freshet-lab bench failover`.
#[derive(Clone, Debug, Args)]
pub(crate) struct FailoverOptions {
    /// The number of records.
    #[arg(long, value_name = "N", default_value_t = 10_000_000)]
    #[arg(value_parser = clap::value_parser!(u64).range(1..1 << 40))]
    records: u64,
    /// The length of a row, without its key of eight bytes.
    #[arg(long, value_name = "BYTES", default_value_t = 100, value_parser = clap::value_parser!(u16).range(1..=4096))]
    row_bytes: u16,
    #[command(flatten)]
    common: Common,
}

/// What was found out.
#[derive(Debug, Serialize)]
struct TookOver {
    /// The primary had loaded this number of records, and the mirror had them, after this time.
    records: u64,
    load_seconds: f64,
    /// From the operator's word until the mirror takes writes.
    seconds: f64,
    /// Of that: rows are put into tables. Bytes of the mirror's memory.
    rows: Phase,
    /// Of that: indexes are built. Entries.
    indexes: Phase,
}

/// Loads, and has the first mirror take over.
pub(crate) fn run(options: &FailoverOptions) -> Result<ExitCode, Failure> {
    let common = Common { mirrors: options.common.mirrors.max(1), ..options.common.clone() };
    if common.standbys != 0 {
        return Err(Failure::new("a mirror takes over: leave --standbys away"));
    }
    if common.safety == Safety::OneSafe {
        return Err(Failure::new("at 1-safe a mirror may lack what was loaded: use another --safety"));
    }
    let subject = Subject::start(&common)?;
    let shape = Shape { fields: 1, field_bytes: options.row_bytes };
    let (_, load) = ycsb::prepare(&subject, options.records, shape, &common)?;
    let took = subject.failover()?;
    let status = subject.first_mirror();
    let found = TookOver {
        records: options.records,
        load_seconds: load.seconds,
        seconds: took.as_secs_f64(),
        rows: Phase::of(&status, "checkpoint")?,
        indexes: Phase::of(&status, "indexes")?,
    };
    if common.json {
        println!("{}", serde_json::to_string(&found)?);
    } else {
        print(&found);
    }
    // The primary was succeeded, and may say that it did not stop in order.
    let _ = subject.stop();
    Ok(ExitCode::SUCCESS)
}

fn print(found: &TookOver) {
    let line = |name: &str, value: String| println!("{name:<22} {value}");
    line("loaded", format!("{} records in {:.1} s", units::grouped(found.records), found.load_seconds));
    let Phase { seconds, amount, per_second } = &found.rows;
    let rate = units::grouped((found.records as f64 / seconds) as u64);
    let (bytes, per_second) = (units::bytes(*amount), units::bytes(*per_second as u64));
    line("rows", format!("{bytes} in {seconds:.2} s: {rate} records/s, {per_second}/s"));
    let Phase { seconds, amount, per_second } = &found.indexes;
    let rate = units::grouped(*per_second as u64);
    line("indexes", format!("{} entries in {seconds:.2} s, {rate}/s", units::grouped(*amount)));
    line("takes writes after", format!("{:.2} s", found.seconds));
}
