//! `freshet-lab bench tpcc`.

use std::time::Instant;

use freshet_engine::{Apply, CheckpointKind, ProcedureError, Worker};
use freshet_workloads::{
    TableSet,
    random::Random,
    tpcc::{
        self,
        command::{run_as_command, run_with_reads},
        input::{Kind, Mix, Request, Terminal},
        load::{expected_rows, load},
        outcome::Outcome,
        population::{Population, Scale},
        tables::Tables,
        text::Constants,
    },
};

use super::{
    driver::{Went, drive},
    options::{Common, TpccMix, TpccOptions},
    report::{Load, Loading, Report},
    subject::Subject,
};
use freshet::{Failure, units::now_micros};

/// TPC-C's data, loaded.
pub(super) struct Prepared {
    tables: Tables,
    population: Population,
    constants: Constants,
}

/// Makes the tables and fills them.
pub(super) fn prepare(subject: &Subject, warehouses: u16, common: &Common) -> Result<(Prepared, Load), Failure> {
    let database = subject.database();
    let tables = Tables::create(database)?;
    let population = Population { scale: Scale::new(warehouses), seed: common.seed, loaded_at: now_micros() };

    let loading = Loading::begin(expected_rows(&population), common.json);
    let threads = usize::from(common.threads).min(usize::from(warehouses));
    let ticket = load(database, &tables, &population, threads, &|rows| loading.progress(rows))?;
    if let Some(ticket) = ticket {
        database.wait(ticket)?;
    }
    let loading = loading.end(None);
    let constants = Constants::of_run(population.constants(), &mut Random::stream(common.seed, u64::MAX));
    Ok((Prepared { tables, population, constants }, loading))
}

impl Prepared {
    /// Terminal `number`: what it returns makes one transaction at each call.
    pub(super) fn terminal(
        &self,
        number: usize,
        mix: TpccMix,
        spread: bool,
        common: &Common,
    ) -> impl FnMut(&Worker, Instant) -> Result<Went, ProcedureError> + use<> {
        let home = (number % usize::from(self.population.scale.warehouses)) as u16 + 1;
        let terminal = Terminal::new(&self.population, self.constants, common.seed, number as u64, home);
        let terminal = if common.stays_at_home() { terminal.at_home() } else { terminal };
        let terminal = if spread { terminal.spread() } else { terminal };
        let mut terminal = if mix == TpccMix::Plus { terminal.with_mix(Mix::Plus) } else { terminal };
        let (apply, reads) = (common.apply, common.read_set.into());
        let (tables, isolation) = (self.tables.clone(), common.isolation);
        let (epoch, epoch_micros) = (Instant::now(), now_micros());
        move |worker, now| {
            let micros = epoch_micros + now.saturating_duration_since(epoch).as_micros() as u64;
            let input = match mix {
                TpccMix::Full | TpccMix::Plus => terminal.next(micros),
                TpccMix::Payment => terminal.next_of(Kind::Payment, micros),
            };
            let request = Request { mark: None, input };
            let (outcome, ticket) = match apply {
                Apply::Command => run_as_command(worker, &tables, isolation, &request)?,
                Apply::Calvin => run_with_reads(worker, &tables, isolation, &request, reads)?,
                Apply::Fresh | Apply::Full => tpcc::run(worker, &tables, isolation, &request)?,
            };
            Ok(match outcome {
                Outcome::RolledBack(_) => Went::Back(ticket),
                _ => Went::Through(ticket),
            })
        }
    }
}

/// Loads, runs and measures TPC-C.
pub(crate) fn run(options: &TpccOptions) -> Result<Report, Failure> {
    let common = &options.common;
    if options.spread && common.stays_at_home() {
        return Err(Failure::new("commands keep to their warehouses: leave --spread away"));
    }
    let mut subject = Subject::start(common)?;
    let (prepared, loading) = prepare(&subject, options.warehouses, common)?;
    // What follows, sets of standbys for one, those who do not replay never show.
    let loaded = subject.reserved();
    if common.join_loaded {
        subject.node()?.checkpoint(CheckpointKind::Fuzzy).map_err(Failure::new)?;
        subject.start_standbys(common)?;
    }
    subject.start_readers(common, loaded)?;
    let make = |number: usize| prepared.terminal(number, options.mix, options.spread, common);
    let (tally, measured) = drive(&subject, common, make)?;
    let mut report = Report::new(
        &format!(
            "tpcc, {:?} mix{}, {} warehouse(s)",
            options.mix,
            if options.spread { ", spread" } else { "" },
            options.warehouses
        ),
        common,
        tally,
        measured,
        loading,
    );
    if options.check {
        report.check = Some(subject.check_tpcc(&prepared.tables)?);
    }
    subject.stop()?;
    Ok(report)
}
