//! `freshet-lab bench outage`: how long a cluster with default settings is without a primary.
//!
//! Sessions insert rows, a fault comes to the primary at a random moment, and a round's figure is
//! the time from the fault until another node acknowledges a row. Then the node comes back, all are
//! in sync, and the next round begins. In the end every acknowledged row must be on all nodes.

use std::{
    collections::HashSet,
    path::PathBuf,
    process::ExitCode,
    sync::{
        atomic::{AtomicBool, AtomicI64, Ordering},
        mpsc::{self, Receiver, Sender},
    },
    thread,
    time::{Duration, Instant},
};

use clap::{Args, ValueEnum};
use freshet_workloads::random::Random;
use serde::Serialize;

use super::{
    Over, QUIET,
    cluster::Cluster,
    history::{History, Id, Route},
    load::{Load, USER},
    net::Way,
    shape::Shape,
};
use freshet::{Failure, interruption::Interruption, sql_client::Session, units::grouped};

/// No round may be without a primary for longer.
const LONGEST: Duration = Duration::from_secs(10);
/// A session without a primary looks for one again after this.
const RETRY: Duration = Duration::from_millis(5);
/// A session rests for less than this after a row, in microseconds.
const REST: u64 = 4_000;
/// How long the load works before a fault: at least, and at most, in milliseconds.
const BEFORE: [u64; 2] = [500, 1_500];

/// What comes to the primary.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
enum Cause {
    /// SIGKILL.
    Kill,
    /// SIGSTOP.
    Stop,
    /// The order to hand its role to another node.
    SwitchOver,
    /// It is cut from all others. As the next two, needs root, unshare, ip and tc.
    Cut,
    /// All that it sends to others is lost.
    CutOut,
    /// All that others send to it is lost.
    CutIn,
}

impl Cause {
    /// Whose packets are lost, if any are.
    fn cut(self) -> Option<Way> {
        match self {
            Self::Kill | Self::Stop | Self::SwitchOver => None,
            Self::Cut => Some(Way::Both),
            Self::CutOut => Some(Way::Out),
            Self::CutIn => Some(Way::In),
        }
    }
}

/// Options of `freshet-lab bench outage`.
#[derive(Clone, Debug, Args)]
pub(crate) struct OutageOptions {
    /// What comes to the primary.
    #[arg(long, value_name = "FAULT", value_enum, default_value = "kill")]
    fault: Cause,
    /// How often.
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    rounds: u32,
    /// The number of nodes.
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u8).range(2..=9))]
    nodes: u8,
    /// A witness votes beside them. Of use with two nodes, which are no majority once one is lost.
    #[arg(long)]
    witness: bool,
    /// The number of sessions that insert rows all the time.
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u8).range(1..=50))]
    clients: u8,
    /// The seed of the moments at which faults come.
    #[arg(long, value_name = "SEED", env = "FRESHET_SEED", default_value_t = 42)]
    seed: u64,
    /// Where to make a directory for the nodes, which is kept if something is wrong. [default: the
    /// directory for temporary files]
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
    /// Print one JSON object at the end, and each round to standard error.
    #[arg(long)]
    json: bool,
}

/// A row that a node has acknowledged, and when.
struct Ack {
    row: Id,
    node: usize,
    at: Instant,
}

/// What was found out. `--json` prints it as it is.
#[derive(Debug, Default, Serialize)]
struct Outages {
    fault: Option<Cause>,
    rounds: u32,
    /// Of the rounds with a primary in time, in milliseconds; by the nearest rank.
    min_ms: f64,
    p50_ms: f64,
    p90_ms: f64,
    p99_ms: f64,
    max_ms: f64,
    /// Rounds that had no other primary within 10 s.
    without_primary: u32,
    acknowledged: usize,
    /// Acknowledged rows that are not on all nodes at the end.
    lost: usize,
    /// What else is wrong.
    violations: Vec<String>,
    kept: Option<PathBuf>,
}

/// Runs a cluster, and prints how long it was without a primary.
pub(crate) fn run(options: &OutageOptions) -> Result<ExitCode, Failure> {
    let interruption = Interruption::listen()?;
    let base = options.dir.clone().unwrap_or_else(std::env::temp_dir);
    let directory = tempfile::Builder::new().prefix("freshet-outage-").tempdir_in(base)?;
    let history = History::new(Instant::now(), options.json, true);
    let shape = Shape::by_default(usize::from(options.nodes), options.witness, options.fault.cut().is_some());
    let cluster = Cluster::prepare(directory.path(), &shape, &history)?;
    cluster.start()?;
    let sockets = cluster.sql();
    let bench = Bench { options, cluster: &cluster, history: &history, interruption: &interruption, sockets: &sockets };
    let result = thread::scope(|scope| {
        let _over = Over(&cluster);
        scope.spawn(|| cluster.supervise());
        let found = bench.run()?;
        cluster.end()?;
        Ok::<_, Failure>(found)
    });
    let mut found = match result {
        Ok(found) => found,
        Err(failure) => {
            interruption.check()?;
            history.violated(format!("it did not come to its end: {failure}"));
            Outages::default()
        }
    };
    found.violations = std::mem::take(&mut history.book().violations);
    let holds = found.lost == 0 && found.without_primary == 0 && found.violations.is_empty();
    if !holds {
        cluster.keep_all_messages();
        found.kept = Some(directory.keep());
    }
    if options.json {
        println!("{}", serde_json::to_string(&found)?);
    } else {
        found.print();
    }
    Ok(if holds { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// What all rounds need.
#[derive(Clone, Copy)]
struct Bench<'a> {
    options: &'a OutageOptions,
    cluster: &'a Cluster<'a>,
    history: &'a History,
    interruption: &'a Interruption,
    sockets: &'a [PathBuf],
}

impl Bench<'_> {
    /// All rounds, and the count of rows at their end.
    fn run(self) -> Result<Outages, Failure> {
        let first = self.whole()?;
        Session::open(&self.sockets[first], USER, QUIET)?.run("CREATE TABLE ledger (id bigint PRIMARY KEY)")?;
        let (stop, rows) = (AtomicBool::new(false), AtomicI64::new(0));
        let (sender, acks) = mpsc::channel();
        let mut random = Random::stream(self.options.seed, 0);
        let all: Vec<usize> = (0..self.sockets.len()).collect();
        let (mut times, mut acknowledged) = (Vec::new(), Vec::new());
        thread::scope(|scope| {
            for client in 0..u64::from(self.options.clients) {
                let (load, all, rows, sender) = (self.load(&stop), &all, &rows, sender.clone());
                let random = Random::stream(self.options.seed, 1 + client);
                scope.spawn(move || load.insert(all, rows, &sender, random));
            }
            let went = (1..=self.options.rounds).try_for_each(|number| {
                let took = self.round(&mut random, &rows, (&sender, &acks), &mut acknowledged)?;
                let figure = took.map_or("no other primary".to_owned(), |took| format!("{:.1} ms", ms(took)));
                self.history.log(&format!("round {number}: {figure}"));
                times.push(took);
                Ok::<(), Failure>(())
            });
            stop.store(true, Ordering::Relaxed);
            went
        })?;
        acknowledged.extend(acks.try_iter().map(|ack| ack.row));
        let lost = self.lost(&acknowledged)?;
        Ok(Outages { fault: Some(self.options.fault), lost, ..Outages::of(&times, acknowledged.len()) })
    }

    fn whole(self) -> Result<usize, Failure> {
        self.cluster.wait_until_whole(self.interruption)?.map_err(Failure::new)
    }

    fn load<'a>(self, stop: &'a AtomicBool) -> Load<'a>
    where
        Self: 'a,
    {
        Load { history: self.history, sockets: self.sockets, names: self.cluster.names(), stop, moves: false }
    }

    /// How long it took until another node acknowledged a row, if that came in time.
    fn round(
        self,
        random: &mut Random,
        rows: &AtomicI64,
        (sender, acks): (&Sender<Ack>, &Receiver<Ack>),
        acknowledged: &mut Vec<Id>,
    ) -> Result<Option<Duration>, Failure> {
        let primary = self.whole()?;
        let others: Vec<usize> = (0..self.sockets.len()).filter(|node| *node != primary).collect();
        thread::sleep(Duration::from_millis(random.within(BEFORE[0], BEFORE[1])));
        acknowledged.extend(acks.try_iter().map(|ack| ack.row));
        let stop = AtomicBool::new(false);
        let took = thread::scope(|scope| {
            for node in &others {
                let (load, sender, random) = (self.load(&stop), sender.clone(), Random::stream(random.bits(), 0));
                scope.spawn(move || load.insert(std::slice::from_ref(node), rows, &sender, random));
            }
            let begun = Instant::now();
            let came = self.strike(primary, others[random.below(others.len() as u64) as usize]);
            let took = came.map(|()| first_elsewhere(primary, begun, acks, acknowledged));
            stop.store(true, Ordering::Relaxed);
            took
        })?;
        if took.is_none() {
            self.history.log(&self.cluster.statuses());
        }
        self.cluster.heal();
        self.interruption.check()?;
        Ok(took)
    }

    /// The fault comes to the primary.
    fn strike(self, primary: usize, other: usize) -> Result<(), Failure> {
        if let Some(way) = self.options.fault.cut() {
            return self.cluster.cut(primary, &[], way);
        }
        match self.options.fault {
            Cause::Kill => self.cluster.kill(primary),
            Cause::Stop => self.cluster.stop(primary),
            _ => self.cluster.switch_over(primary, other, LONGEST)?,
        }
        Ok(())
    }

    /// How many of the rows are not on all nodes.
    fn lost(self, acknowledged: &[Id]) -> Result<usize, Failure> {
        let primary = self.whole()?;
        // Who compares waits until all nodes show what the primary shows.
        self.cluster.compare(primary, QUIET)?.into_iter().for_each(|differs| self.history.violated(differs));
        let mut lost: HashSet<&Id> = HashSet::new();
        for socket in self.sockets {
            let shown = Session::open(socket, USER, QUIET)?.run("SELECT id FROM ledger")?.rows;
            let shown: HashSet<Id> = shown.iter().filter_map(|row| row[0].parse().ok()).collect();
            lost.extend(acknowledged.iter().filter(|row| !shown.contains(row)));
        }
        Ok(lost.len())
    }
}

/// Blocks until a node other than the primary has acknowledged a row since then, for [`LONGEST`] at
/// most. Takes all acknowledgements that come.
fn first_elsewhere(
    primary: usize,
    begun: Instant,
    acks: &Receiver<Ack>,
    acknowledged: &mut Vec<Id>,
) -> Option<Duration> {
    while let Ok(ack) = acks.recv_timeout(LONGEST.saturating_sub(begun.elapsed())) {
        acknowledged.push(ack.row);
        if ack.node != primary && ack.at >= begun {
            return Some(ack.at - begun).filter(|took| *took <= LONGEST);
        }
    }
    None
}

impl Load<'_> {
    /// Inserts one row after the other on whichever of these nodes takes writers.
    fn insert(&self, nodes: &[usize], rows: &AtomicI64, acks: &Sender<Ack>, mut random: Random) {
        let mut session = None;
        while self.lasts() {
            let Some((node, mut open)) = session.take().or_else(|| self.find(nodes, &mut random)) else {
                thread::sleep(RETRY);
                continue;
            };
            // Relaxed: a number that only has to be another one each time.
            let row = rows.fetch_add(1, Ordering::Relaxed);
            match Session::run(&mut open, &format!("INSERT INTO ledger VALUES ({row})")) {
                Ok(_) => {
                    // The receiver is dropped when the rounds have ended.
                    let _ = acks.send(Ack { row, node, at: Instant::now() });
                    session = Some((node, open));
                    thread::sleep(Duration::from_micros(random.below(REST)));
                }
                Err(failure) => self.judge(&failure, node, "a session"),
            }
        }
    }

    /// A session on one of these nodes that takes writers.
    fn find(&self, nodes: &[usize], random: &mut Random) -> Option<(usize, Session)> {
        let mut order = nodes.to_vec();
        random.shuffle(&mut order);
        let open = |node: usize| Some((node, self.open(node, Route::Node).ok().filter(Session::takes_writers)?));
        order.into_iter().find_map(open)
    }
}

fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

impl Outages {
    fn of(times: &[Option<Duration>], acknowledged: usize) -> Self {
        let mut sorted: Vec<f64> = times.iter().flatten().copied().map(ms).collect();
        sorted.sort_unstable_by(f64::total_cmp);
        let at = |percent: usize| {
            let rank = (sorted.len() * percent).div_ceil(100).max(1);
            sorted.get(rank - 1).copied().unwrap_or(f64::NAN)
        };
        Self {
            rounds: times.len() as u32,
            min_ms: at(0),
            p50_ms: at(50),
            p90_ms: at(90),
            p99_ms: at(99),
            max_ms: at(100),
            without_primary: (times.len() - sorted.len()) as u32,
            acknowledged,
            ..Self::default()
        }
    }

    fn print(&self) {
        let line = |name: &str, value: String| println!("{name:<24} {value}");
        line("rounds", self.rounds.to_string());
        for (name, value) in [
            ("min", self.min_ms),
            ("p50", self.p50_ms),
            ("p90", self.p90_ms),
            ("p99", self.p99_ms),
            ("max", self.max_ms),
        ] {
            line(name, format!("{value:.1} ms"));
        }
        line("no primary in 10 s", format!("{} round(s)", self.without_primary));
        line("acknowledged", format!("{} rows", grouped(self.acknowledged as u64)));
        line("of these lost", self.lost.to_string());
        for violation in &self.violations {
            line("VIOLATED", violation.clone());
        }
        if let Some(kept) = &self.kept {
            line("directories are in", kept.display().to_string());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_figures_of_rounds() {
        let times: Vec<_> = (1..=200).rev().map(|ms| (ms != 200).then(|| Duration::from_millis(ms))).collect();
        let found = Outages::of(&times, 7);
        assert_eq!((found.rounds, found.without_primary, found.acknowledged), (200, 1, 7));
        assert_eq!([found.min_ms, found.p50_ms, found.p99_ms, found.max_ms], [1.0, 100.0, 198.0, 199.0]);
        assert!(Outages::of(&[None], 0).p50_ms.is_nan());
    }

    #[test]
    fn a_row_counts_that_another_node_acknowledges_after_the_fault() {
        let (sender, acks) = mpsc::channel();
        let begun = Instant::now();
        let at = |ms| begun + Duration::from_millis(ms);
        let early = begun.checked_sub(Duration::from_millis(1)).unwrap();
        for (row, (node, at)) in [(1, early), (0, at(1)), (1, at(2)), (1, at(3))].into_iter().enumerate() {
            sender.send(Ack { row: row as Id, node, at }).unwrap();
        }
        let mut acknowledged = Vec::new();
        let took = first_elsewhere(0, begun, &acks, &mut acknowledged);
        assert_eq!((took, acknowledged), (Some(Duration::from_millis(2)), vec![0, 1, 2]));
        sender.send(Ack { row: 4, node: 1, at: begun + LONGEST * 2 }).unwrap();
        assert_eq!(first_elsewhere(1, begun, &acks, &mut Vec::new()), None, "row 3 is of the primary, 4 too late");
    }
}
