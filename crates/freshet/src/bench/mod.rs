//! Measures the engine. The primary runs within this process, so that nothing but the engine is measured; standbys
//! are processes of their own, as in real life.

mod driver;
mod options;
mod probe;
mod report;
mod subject;
mod tpcc;
mod ycsb;

use std::process::ExitCode;

pub(crate) use self::{options::Bench, report::loading_style};
use crate::Failure;

/// Runs a benchmark and prints what it found.
pub(crate) fn run(bench: Bench) -> Result<ExitCode, Failure> {
    let report = match &bench {
        Bench::Tpcc(options) => tpcc::run(options)?,
        Bench::Ycsb(options) => ycsb::run(options)?,
    };
    if bench.common().json {
        println!("{}", serde_json::to_string(&report)?);
    } else {
        print!("{report}");
    }
    Ok(ExitCode::SUCCESS)
}
