//! `freshet demo`: a cluster on one machine that loses its primary, and nothing else.
//!
//! The story, in order: three nodes start; a bank is loaded; somebody works with psql; transfers
//! run on the primary while the standbys are read; the primary is killed; a standby is promoted and
//! the load continues there; the old primary comes back as a standby; and then everything is
//! proved. All of it is SQL, by the nodes' Unix sockets.

mod bank;
mod cluster;
mod load;
mod proof;
mod readers;
mod sql;
mod table;

use std::{
    process::ExitCode,
    time::{Duration, Instant},
};

use clap::Args;
use indicatif::ProgressBar;

use self::{
    bank::Bank,
    cluster::{Cluster, PATIENCE},
    load::Load,
    readers::Readers,
    sql::Psql,
    table::Table,
};
use crate::{
    Failure,
    interruption::Interruption,
    units::{grouped, loading_style},
};

/// Options of `freshet demo`.
#[derive(Clone, Debug, Args)]
pub(crate) struct DemoOptions {
    /// How long the load runs, in seconds, half of it before the primary is killed. Starting,
    /// loading and the proof take additional time.
    #[arg(long, value_name = "S", default_value_t = 20, value_parser = clap::value_parser!(u64).range(2..=86_400))]
    seconds: u64,
    /// How many branches the bank has, each with 10 tellers and 5,000 accounts.
    #[arg(long, value_name = "B", default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=1000))]
    branches: u32,
    /// The directory below which the nodes keep their logs, in a directory of their own that is
    /// removed at the end. [default: where temporary files go]
    #[arg(long, value_name = "DIR")]
    dir: Option<std::path::PathBuf>,
    /// Sessions that write, each with one transaction at a time.
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = clap::value_parser!(u16).range(1..=1000))]
    sessions: u16,
    /// The seed of all random numbers.
    #[arg(long, value_name = "SEED", env = "FRESHET_SEED", default_value_t = 42)]
    seed: u64,
}

/// Prints what happens, with the time since the beginning.
pub(crate) struct Teller(Instant);

impl Teller {
    pub(crate) fn print(&self, what: impl AsRef<str>) {
        println!("[{:5.1} s] {}", self.0.elapsed().as_secs_f64(), what.as_ref());
    }
}

/// Runs `freshet demo`.
pub(crate) fn run(options: &DemoOptions) -> Result<ExitCode, Failure> {
    let interruption = Interruption::listen()?;
    let teller = Teller(Instant::now());
    // Readers, psql and the proof have sessions, too.
    let mut cluster = Cluster::start(options.dir.as_deref(), usize::from(options.sessions) + 8, &teller)?;
    let bank = Bank { branches: options.branches };
    fill(&cluster, bank, &teller, &interruption)?;
    cluster.wait_in_sync(2, &interruption)?;
    teller.print("both standbys are in sync: a commit counts when two of the three nodes have it on disk");

    let psql = Psql::find(&teller)?;
    if let Some(psql) = &psql {
        psql.before(&cluster, &teller)?;
    }

    let load = Load::start(bank, options.seed, options.sessions, cluster.sql_socket(cluster.primary())?)?;
    let mut readers = Readers::start(bank, options.seed, &cluster)?;
    let half = Duration::from_millis(options.seconds * 500);
    Table::show(&cluster, &load, &readers, half, &interruption)?;

    // The worst moment is any moment: the load does not know.
    let before = load.acknowledged();
    let dead = cluster.primary();
    let killed = Instant::now();
    cluster.kill(dead);
    teller.print(format!(
        "SIGKILL for the primary, {}, under load; {} transactions had been acknowledged",
        cluster.name(dead),
        grouped(before)
    ));
    let (term, at) = cluster.promote_next()?;
    let took_over = killed.elapsed();
    let primary = cluster.primary();
    load.go_on_at(cluster.sql_socket(primary)?);
    teller.print(format!(
        "{} is promoted: primary of term {term}, which begins at {at}; that took {:.0} ms",
        cluster.name(primary),
        took_over.as_secs_f64() * 1e3
    ));
    let first = load.first_acknowledged_since(&interruption, PATIENCE)?;
    teller.print(format!(
        "the clients continue there: first acknowledgement {:.0} ms after the kill",
        first.saturating_duration_since(killed).as_secs_f64() * 1e3
    ));
    if let Some(psql) = &psql {
        psql.after(&cluster, &teller)?;
    }
    Table::show(&cluster, &load, &readers, half / 2, &interruption)?;

    cluster.restart_as_standby(dead, &teller)?;
    readers.read_on(&cluster, dead)?;
    Table::show(&cluster, &load, &readers, half - half / 2, &interruption)?;
    cluster.wait_in_sync(2, &interruption)?;
    cluster.print_saved_tail(dead, &teller)?;

    readers.stop();
    let result = load.stop()?;
    teller.print(format!(
        "the load has ended: {} transactions, each with a line of the history that has to be found",
        grouped(result.acknowledged.len() as u64)
    ));
    let lost = proof::prove(&cluster, &result, &teller, &interruption)?;
    cluster.stop(&teller);
    if lost == 0 {
        teller.print("nothing was lost");
        Ok(ExitCode::SUCCESS)
    } else {
        teller.print(format!("{lost} of the proofs FAILED"));
        Ok(ExitCode::FAILURE)
    }
}

/// Loads the bank on the primary, and shows how far it is.
fn fill(cluster: &Cluster, bank: Bank, teller: &Teller, interruption: &Interruption) -> Result<(), Failure> {
    let mut session = cluster.session(cluster.primary())?;
    let bar = ProgressBar::new(bank.rows());
    bar.set_style(loading_style());
    let begun = Instant::now();
    for table in bank::TABLES {
        session.run(table)?;
    }
    let loading = bank.inserts().try_for_each(|(rows, insert)| {
        interruption.check()?;
        session.run(&insert)?;
        bar.inc(rows);
        Ok(())
    });
    bar.finish_and_clear();
    loading.map(|()| {
        let (rows, seconds) = (grouped(bank.rows()), begun.elapsed().as_secs_f64());
        teller.print(format!("a bank with {} branches is loaded: {rows} rows in {seconds:.1} s", bank.branches));
    })
}
