//! Measures the engine. The primary runs within this process, so that nothing but the engine is
//! measured; standbys and mirrors are processes of their own, as in real life.

mod backup;
pub(crate) mod child;
mod copies;
mod crash;
mod driver;
mod failover;
mod join;
pub(crate) mod options;
mod platform;
mod probe;
mod ratios;
mod replay;
mod report;
mod restart;
mod sizes;
mod subject;
mod tatp;
mod tpcb;
mod tpcc;
mod work;
mod ycsb;

use std::process::ExitCode;

use freshet::Failure;
use freshet_engine::Apply;

pub(crate) use self::options::Bench;

/// Runs a benchmark and prints what it found.
pub(crate) fn run(bench: Bench) -> Result<ExitCode, Failure> {
    let common = match &bench {
        Bench::Tpcc(options) => Some(&options.common),
        Bench::Ycsb(options) => Some(&options.common),
        Bench::Tatp(options) => Some(&options.common),
        Bench::Tpcb(options) => Some(&options.common),
        _ => None,
    };
    if let Some(common) = common {
        common.check()?;
        let is_tpcc = matches!(bench, Bench::Tpcc(_));
        if !is_tpcc && (common.standby_readers > 0 || common.join_loaded) {
            return Err(Failure::new("--standby-readers and --join-loaded are for bench tpcc"));
        }
        if common.apply == Apply::Calvin && !is_tpcc && !matches!(bench, Bench::Ycsb(_)) {
            return Err(Failure::new("--apply calvin is for bench tpcc and bench ycsb"));
        }
    }
    let (report, json) = match &bench {
        Bench::Tpcc(options) => (tpcc::run(options)?, options.common.json),
        Bench::Ycsb(options) => (ycsb::run(options)?, options.common.json),
        Bench::Tatp(options) => (tatp::run(options)?, options.common.json),
        Bench::Tpcb(options) => (tpcb::run(options)?, options.common.json),
        Bench::Backup(options) => return backup::run(options),
        Bench::Replay(options) => return replay::run(options),
        Bench::Sizes(options) => return sizes::run(options),
        Bench::Restart(options) => return restart::run(options),
        Bench::Join(options) => return join::run(options),
        Bench::Ratios(options) => return ratios::run(options),
        Bench::Copies(options) => return copies::run(options),
        Bench::Failover(options) => return failover::run(options),
        Bench::Platform(options) => return platform::run(options),
    };
    if json {
        println!("{}", serde_json::to_string(&report)?);
    } else {
        print!("{report}");
    }
    let holds = report.check.as_ref().is_none_or(Vec::is_empty);
    Ok(if holds { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
