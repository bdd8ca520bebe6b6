//! `freshet-lab bench ycsb`.

use std::time::Instant;

use freshet_engine::Worker;
use freshet_workloads::{
    TableSet,
    ycsb::{
        self, Population, Scratch, Tables,
        input::{Client, NewKeys, Request, Workload},
        mix::Shape,
    },
};

use super::{
    driver::{Went, drive},
    options::YcsbOptions,
    report::{Loading, Report},
    subject::Subject,
};
use freshet::Failure;

/// Loads, runs and measures YCSB.
pub(crate) fn run(options: &YcsbOptions) -> Result<Report, Failure> {
    let common = &options.common;
    let usual = options.mix.usual_shape();
    let shape = Shape { fields: options.fields.unwrap_or(usual.fields), field_bytes: options.field_bytes };
    let workload = Workload {
        mix: options.mix,
        records: options.records,
        shape,
        theta: options.theta,
        operations: options.operations,
    };
    let client = Client::new(workload, NewKeys::new(options.records, 0, 1), common.seed)?;
    let subject = Subject::start(common)?;
    let database = subject.database();
    let tables = Tables::create(database)?;

    let population = Population { records: options.records, shape, seed: common.seed };
    let loading = Loading::begin(options.records, common.json);
    let ticket = ycsb::load(database, &tables, &population, common.threads.into(), &|rows| loading.progress(rows))?;
    if let Some(ticket) = ticket {
        database.wait(ticket)?;
    }
    let loading = loading.end(Some(shape.row_bytes()));

    let make = |number: usize| {
        let mut client = client.another(common.seed, number as u64);
        let mut scratch = Scratch::new(shape);
        let mut request = Request::default();
        let tables = tables.clone();
        move |worker: &Worker, _now: Instant| {
            client.next(&mut request.operations);
            let (_, ticket) = ycsb::run(worker, &tables, common.isolation, &request, &mut scratch)?;
            Ok(Went::Through(ticket))
        }
    };
    let (tally, measured) = drive(&subject, common, make)?;
    let name = format!(
        "ycsb {}, {} records of {} bytes, theta {}, {} operation(s) a transaction",
        options.mix,
        freshet::units::grouped(options.records),
        shape.row_bytes(),
        options.theta,
        options.operations
    );
    let report = Report::new(&name, common, tally, measured, loading);
    subject.stop()?;
    Ok(report)
}
