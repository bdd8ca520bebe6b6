//! `freshet bench tpcc`.

use std::time::Instant;

use freshet_engine::Apply;
use freshet_workloads::{
    TableSet,
    random::Random,
    tpcc::{
        self,
        command::run_as_command,
        input::{Kind, Request, Terminal},
        load::{expected_rows, load},
        outcome::Outcome,
        population::{Population, Scale},
        tables::Tables,
        text::Constants,
    },
};

use super::{
    driver::{Went, drive},
    options::{TpccMix, TpccOptions},
    report::{Loading, Report},
    subject::Subject,
};
use crate::{Failure, units::now_micros};

/// Loads, runs and measures TPC-C.
pub(crate) fn run(options: &TpccOptions) -> Result<Report, Failure> {
    let common = &options.common;
    let subject = Subject::start(common)?;
    let database = subject.database();
    let tables = Tables::create(database)?;
    let population = Population { scale: Scale::new(options.warehouses), seed: common.seed, loaded_at: now_micros() };

    let loading = Loading::begin(expected_rows(&population), common.json);
    let threads = usize::from(common.threads).min(usize::from(options.warehouses));
    let ticket = load(database, &tables, &population, threads, &|rows| loading.progress(rows))?;
    if let Some(ticket) = ticket {
        database.wait(ticket)?;
    }
    let loading = loading.end(None);

    let constants = Constants::of_run(population.constants(), &mut Random::stream(common.seed, u64::MAX));
    let epoch = Instant::now();
    let epoch_micros = now_micros();
    let make = |number: usize| {
        let home = (number % usize::from(options.warehouses)) as u16 + 1;
        let terminal = Terminal::new(&population, constants, common.seed, number as u64, home);
        let mut terminal = if common.stays_at_home() { terminal.at_home() } else { terminal };
        let tables = tables.clone();
        move |worker: &freshet_engine::Worker, now: Instant| {
            let micros = epoch_micros + now.saturating_duration_since(epoch).as_micros() as u64;
            let input = match options.mix {
                TpccMix::Full => terminal.next(micros),
                TpccMix::Payment => terminal.next_of(Kind::Payment, micros),
            };
            let request = Request { mark: None, input };
            let run = if common.apply == Apply::Command { run_as_command } else { tpcc::run };
            let (outcome, ticket) = run(worker, &tables, common.isolation, &request)?;
            Ok(match outcome {
                Outcome::RolledBack(_) => Went::Back(ticket),
                _ => Went::Through(ticket),
            })
        }
    };
    let (tally, measured) =
        drive(database, common, make, || subject.checkpoints().0, || subject.begin(), |begun| subject.end(begun))?;
    let mut report = Report::new(
        &format!("tpcc, {:?} mix, {} warehouse(s)", options.mix, options.warehouses),
        common,
        tally,
        measured,
        loading,
    );
    if options.check {
        report.check = Some(subject.check_tpcc(&tables)?);
    }
    subject.stop()?;
    Ok(report)
}
