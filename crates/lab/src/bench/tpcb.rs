//! `freshet-lab bench tpcb`.

use std::time::Instant;

use freshet_engine::Worker;
use freshet_workloads::{
    TableSet,
    procedure::read_only,
    tpcb::{self, Scale, Tables, Terminal},
};

use super::{
    driver::{Went, drive},
    options::TpcbOptions,
    report::{Loading, Report},
    subject::Subject,
};
use freshet::Failure;

/// Loads, runs and measures TPC-B.
pub(crate) fn run(options: &TpcbOptions) -> Result<Report, Failure> {
    let common = &options.common;
    let scale = Scale { branches: options.branches, accounts: options.accounts };
    let subject = Subject::start(common)?;
    let database = subject.database();
    let tables = Tables::create(database)?;
    let loading = Loading::begin(tpcb::expected_rows(scale), common.json);
    let ticket = tpcb::load(database, &tables, scale, common.threads.into(), &|rows| loading.progress(rows))?;
    if let Some(ticket) = ticket {
        database.wait(ticket)?;
    }
    let loading = loading.end(None);
    let make = |number: usize| {
        let mut terminal = Terminal::new(scale, common.seed, number as u32);
        let tables = tables.clone();
        move |worker: &Worker, _now: Instant| {
            let (_, ticket) = tpcb::run(worker, &tables, common.isolation, &terminal.next_input())?;
            Ok(Went::Through(ticket))
        }
    };
    let (tally, measured) = drive(&subject, common, make)?;
    let name = format!("tpcb, {} branch(es) of {} accounts", options.branches, options.accounts);
    let mut report = Report::new(&name, common, tally, measured, loading);
    if options.check {
        let worker = database.worker()?;
        let ((wrong, _), ticket) = read_only(&worker, |txn| tpcb::check(txn, &tables))?;
        database.wait(ticket)?;
        report.check = Some(wrong);
    }
    subject.stop()?;
    Ok(report)
}
