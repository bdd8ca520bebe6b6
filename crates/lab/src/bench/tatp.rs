//! `freshet-lab bench tatp`.

use std::time::Instant;

use freshet_engine::Worker;
use freshet_workloads::{
    TableSet,
    tatp::{self, Client, Tables},
};

use super::{
    driver::{Went, drive},
    options::TatpOptions,
    report::{Loading, Report},
    subject::Subject,
};
use freshet::Failure;

/// Loads, runs and measures TATP.
pub(crate) fn run(options: &TatpOptions) -> Result<Report, Failure> {
    let common = &options.common;
    let subject = Subject::start(common)?;
    let database = subject.database();
    let tables = Tables::create(database)?;
    // A subscriber has 2.5 accesses, 2.5 facilities, and 3.75 forwardings on average.
    let loading = Loading::begin(u64::from(options.subscribers) * 39 / 4, common.json);
    let (threads, seed) = (common.threads.into(), common.seed);
    let ticket = tatp::load(database, &tables, options.subscribers, seed, threads, &|rows| loading.progress(rows))?;
    if let Some(ticket) = ticket {
        database.wait(ticket)?;
    }
    let loading = loading.end(None);
    let make = |number: usize| {
        let mut client = Client::new(options.subscribers, options.mix, seed, number as u64);
        let tables = tables.clone();
        move |worker: &Worker, _now: Instant| {
            let (_, ticket) = tatp::run(worker, &tables, common.isolation, &client.next_input())?;
            Ok(Went::Through(ticket))
        }
    };
    let (tally, measured) = drive(&subject, common, make)?;
    let name = format!("tatp {}, {} subscribers", options.mix, freshet::units::grouped(options.subscribers.into()));
    let report = Report::new(&name, common, tally, measured, loading);
    subject.stop()?;
    Ok(report)
}
