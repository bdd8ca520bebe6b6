//! `freshet-lab bench ycsb`.

use std::{
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    time::Instant,
};

use freshet_base::{Isolation, Lsn};
use freshet_engine::{Apply, ProcedureError, Worker};
use freshet_txn::Ticket;
use freshet_workloads::{
    TableSet,
    ycsb::{
        self, Population, Scratch, Tables,
        input::{Client, NewKeys, Operation, Request, Workload},
        mix::{Mix, Shape},
    },
};

use super::{
    driver::{Went, drive},
    options::{Common, YcsbOptions},
    report::{Load, Loading, LongTransactions, Report},
    subject::Subject,
};
use freshet::Failure;

/// Runs long transactions and counts what becomes of them.
struct Long {
    reads: Client,
    tried: AtomicU64,
    committed: AtomicU64,
}

impl Long {
    fn new(reads: Client) -> Self {
        Self { reads, tried: AtomicU64::new(0), committed: AtomicU64::new(0) }
    }

    /// Runs one, once. Other transactions may be why it fails.
    fn run(
        &self,
        worker: &Worker,
        tables: &Tables,
        isolation: Isolation,
        operations: &[Operation],
        scratch: &mut Scratch,
    ) -> Result<Went, ProcedureError> {
        self.tried.fetch_add(1, Relaxed);
        let txn = worker.begin(isolation);
        let outcome = ycsb::transact(&txn, tables, operations, scratch);
        match outcome.and_then(|_| Ok(txn.commit()?)) {
            Ok(ticket) => {
                self.committed.fetch_add(1, Relaxed);
                Ok(Went::Through(ticket))
            }
            Err(error) if error.is_retryable() => Ok(Went::Back(Ticket { lsn: None, until: Lsn::ZERO })),
            Err(error) => Err(error),
        }
    }

    fn total(&self) -> LongTransactions {
        LongTransactions { tried: self.tried.load(Relaxed), committed: self.committed.load(Relaxed) }
    }
}

/// Makes the table and fills it.
pub(super) fn prepare(
    subject: &Subject,
    records: u64,
    shape: Shape,
    common: &Common,
) -> Result<(Tables, Load), Failure> {
    let database = subject.database();
    let tables = Tables::create(database)?;
    let population = Population { records, shape, seed: common.seed };
    let loading = Loading::begin(records, common.json);
    let ticket = ycsb::load(database, &tables, &population, common.threads.into(), &|rows| loading.progress(rows))?;
    if let Some(ticket) = ticket {
        database.wait(ticket)?;
    }
    Ok((tables, loading.end(Some(shape.row_bytes()))))
}

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
    let (tables, loading) = prepare(&subject, options.records, shape, common)?;
    let reads = Workload { mix: Mix::C, operations: options.long_reads, ..workload };
    let long = Long::new(Client::new(reads, NewKeys::new(options.records, 0, 1), common.seed)?);
    let (long, is_long) = (&long, |number: usize| number < options.long_threads.into());
    let make = |number: usize| {
        let mut reads = long.reads.another(common.seed ^ 1, number as u64);
        let mut client = client.another(common.seed, number as u64);
        let mut scratch = Scratch::new(shape);
        let mut request = Request::default();
        let tables = tables.clone();
        move |worker: &Worker, _now: Instant| {
            if is_long(number) {
                reads.next(&mut request.operations);
                let written = request.operations.last().map(|operation| match operation {
                    Operation::Read { key } => Operation::Update { key: *key, field: 0, seed: *key },
                    other => *other,
                });
                request.operations.extend(written);
                return long.run(worker, &tables, common.isolation, &request.operations, &mut scratch);
            }
            client.next(&mut request.operations);
            let run = if common.apply == Apply::Calvin { ycsb::run_with_reads } else { ycsb::run };
            let (_, ticket) = run(worker, &tables, common.isolation, &request, &mut scratch)?;
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
    let mut report = Report::new(&name, common, tally, measured, loading);
    report.long = (options.long_threads > 0).then(|| long.total());
    subject.stop()?;
    Ok(report)
}
