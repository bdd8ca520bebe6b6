//! `freshet-lab losses`: clusters of real processes whose nodes lose something: a directory is set
//! back, emptied or replaced, and then nodes are started again and promoted in all orders. A ledger
//! of acknowledged commits judges.
//!
//! | module | is |
//! |---|---|
//! | [`plan`] | what a round is, by seed |
//! | [`nodes`] | processes and directories |
//! | [`ledger`] | what was acknowledged and shown |
//! | [`promise`] | what may be lost |
//! | [`round`] | a round, and its judges |

mod ledger;
mod nodes;
mod plan;
mod promise;
mod round;

use std::{
    collections::BTreeMap,
    fs,
    net::Ipv4Addr,
    path::PathBuf,
    process::ExitCode,
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use clap::Args;

pub(crate) use self::plan::Kind;
use self::{plan::Plan, round::Outcome};
use freshet::{Failure, interruption::Interruption};

/// Options of `freshet-lab losses`.
#[derive(Clone, Debug, Args)]
pub(crate) struct LossesOptions {
    /// The seed of the first round; each further round has the next seed. [default: from the clock,
    /// and printed]
    #[arg(long, value_name = "SEED", env = "FRESHET_SEED")]
    seed: Option<u64>,
    /// How many rounds to run.
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u64).range(1..))]
    rounds: u64,
    /// The rounds of these seeds.
    #[arg(long, value_name = "SEED", value_delimiter = ',', conflicts_with_all = ["seed", "rounds"])]
    seeds: Vec<u64>,
    /// How many rounds run at a time.
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u8).range(1..=64))]
    jobs: u8,
    /// Only rounds of this family. [default: by seed]
    #[arg(long, value_name = "KIND", value_enum)]
    kind: Option<Kind>,
    /// End at the first find.
    #[arg(long)]
    first: bool,
    /// Print what the rounds are, and run none.
    #[arg(long)]
    list: bool,
    /// Print the story of each round while it happens.
    #[arg(long)]
    verbose: bool,
    /// Where to make directories for the nodes; those of a round with a find are kept. [default:
    /// the directory for temporary files]
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
}

/// What came of all rounds.
#[derive(Default)]
struct Summary {
    rounds: u64,
    /// Rounds in which somebody acknowledged something in the end.
    serve: u64,
    acknowledged: usize,
    took: Duration,
    /// How many finds there are of each kind.
    kinds: BTreeMap<String, u64>,
    /// Seeds, and what was found first.
    finds: Vec<(u64, String)>,
    broken: Vec<(u64, String)>,
}

/// Runs rounds.
pub(crate) fn run(options: &LossesOptions) -> Result<ExitCode, Failure> {
    let seed = options.seed.unwrap_or_else(|| freshet::units::now_micros() % 1_000_000);
    let seeds = match &options.seeds[..] {
        [] => (seed..seed.saturating_add(options.rounds)).collect(),
        seeds => seeds.to_vec(),
    };
    if options.list {
        for seed in seeds {
            println!("seed {seed}: {}", Plan::draw(seed, options.kind));
        }
        return Ok(ExitCode::SUCCESS);
    }
    let interruption = Interruption::listen()?;
    let (next, summary) = (AtomicUsize::new(0), Mutex::new(Summary::default()));
    let began = Instant::now();
    thread::scope(|scope| {
        for job in 0..options.jobs {
            let (next, seeds, summary, interruption) = (&next, &seeds, &summary, &interruption);
            scope.spawn(move || {
                loop {
                    // Relaxed: each seed is taken once.
                    let mine = seeds.get(next.fetch_add(1, Ordering::Relaxed));
                    let over = options.first && !lock(summary).is_good();
                    let Some(seed) = mine.filter(|_| !over && interruption.check().is_ok()) else { return };
                    one(*seed, job, options, interruption, summary);
                }
            });
        }
    });
    interruption.check()?;
    let summary = summary.into_inner().unwrap_or_else(PoisonError::into_inner);
    summary.print(seeds[0], began.elapsed());
    Ok(if summary.is_good() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn lock(summary: &Mutex<Summary>) -> MutexGuard<'_, Summary> {
    summary.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Summary {
    fn is_good(&self) -> bool {
        self.finds.is_empty() && self.broken.is_empty()
    }

    fn print(&self, seed: u64, took: Duration) {
        let each = self.took.as_secs_f64() / self.rounds.max(1) as f64;
        println!(
            "{} rounds from seed {seed} in {:.0} s, {each:.1} s each: {} acknowledged commits; {} rounds end with a \
             primary that serves",
            self.rounds,
            took.as_secs_f64(),
            self.acknowledged,
            self.serve
        );
        for (kind, count) in &self.kinds {
            println!("{count} x {kind}");
        }
        for (seed, what) in &self.finds {
            println!("seed {seed}: {what}");
        }
        for (seed, what) in &self.broken {
            println!("seed {seed} did not come to its end: {}", what.lines().next().unwrap_or_default());
        }
    }
}

/// An address of the loopback network that this process and this job have alone.
fn address(job: u8) -> Ipv4Addr {
    let [.., high, low] = std::process::id().to_be_bytes();
    Ipv4Addr::new(127, high | 0x80, low, job + 1)
}

/// Runs a round, and adds what came of it.
fn one(seed: u64, job: u8, options: &LossesOptions, interruption: &Interruption, summary: &Mutex<Summary>) {
    let plan = Plan::draw(seed, options.kind);
    let kind =
        options.kind.map_or_else(String::new, |_| format!(" --kind {}", format!("{:?}", plan.kind).to_lowercase()));
    let again = format!("freshet-lab losses --rounds 1 --seed {seed}{kind}");
    let base = options.dir.clone().unwrap_or_else(std::env::temp_dir);
    let directory = tempfile::Builder::new().prefix(&format!("freshet-losses-{seed}-")).tempdir_in(&base);
    let result = match &directory {
        Ok(directory) => round::run(&plan, directory.path(), address(job), options.verbose, interruption),
        Err(cause) => Err(Failure::new(format!("cannot make a directory in {}: {cause}", base.display()))),
    };
    if interruption.check().is_err() {
        return;
    }
    let mut summary = lock(summary);
    summary.rounds += 1;
    match result {
        Ok(Outcome { finds, story, acknowledged, took, serves }) => {
            summary.serve += u64::from(serves);
            summary.acknowledged += acknowledged.0 + acknowledged.1;
            summary.took += took;
            let Some(first) = finds.first() else {
                println!("seed {seed}: {plan}: holds, {:.1} s, {acknowledged:?}", took.as_secs_f64());
                return;
            };
            println!("seed {seed}: {plan}: {:.1} s", took.as_secs_f64());
            for find in &finds {
                println!("FOUND {find}");
                *summary.kinds.entry(find.split(':').next().unwrap_or_default().to_owned()).or_default() += 1;
            }
            println!("again: {again}");
            if let Ok(directory) = directory {
                let kept = directory.keep();
                let _ = fs::write(kept.join("story"), format!("{again}\n{story}\n"));
                println!("directories, messages and the story are in {}", kept.display());
            }
            summary.finds.push((seed, first.clone()));
        }
        Err(failure) => {
            println!("seed {seed}: {plan}: did not come to its end: {failure}\nagain: {again}");
            summary.broken.push((seed, failure.to_string()));
        }
    }
}
