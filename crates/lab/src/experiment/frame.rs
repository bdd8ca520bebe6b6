//! What an experiment is.

use super::{plot::Panel, results::Results};

/// Who measured it first.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Paper {
    /// Its short title.
    pub(crate) title: &'static str,
    /// Authors, full title, where and when.
    pub(crate) reference: &'static str,
    /// On what its authors measured.
    pub(crate) machine: &'static str,
}

/// One table or figure of a paper.
pub(crate) struct Experiment {
    /// `paper/figure`, as the user types it, and the directory of what comes out.
    pub(crate) name: &'static str,
    /// The paper.
    pub(crate) paper: Paper,
    /// Which figure, and in which section it is discussed.
    pub(crate) place: &'static str,
    /// What it shows, in one line.
    pub(crate) shows: &'static str,
    /// What the runs of one series differ in, as the header of a column.
    pub(crate) x: &'static str,
    /// What is taken from each run.
    pub(crate) columns: &'static [Column],
    /// Whether the sweep needs to know the rate at which one thread of this machine logs.
    pub(crate) calibrate: bool,
    /// The runs.
    pub(crate) sweep: fn(&Scale) -> Vec<Run>,
    /// What is scaled down, and how; for the report.
    pub(crate) scaled: fn(&Scale) -> String,
    /// The plots.
    pub(crate) panels: fn(&Results) -> Vec<Panel>,
    /// What the paper's text and tables state, and Freshet's goals, beside what was measured.
    pub(crate) beside: fn(&Results) -> Vec<Beside>,
    /// What differs and why: sentences chosen by what was measured, with its figures.
    pub(crate) differs: fn(&Results) -> Vec<String>,
}

/// A number of each run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Column {
    /// Its name in CSV, which ends with its unit.
    pub(crate) name: &'static str,
    /// Where it is in what the benchmark prints.
    pub(crate) pointer: &'static str,
}

/// The number `name` of each run, which is at `pointer`.
pub(crate) const fn column(name: &'static str, pointer: &'static str) -> Column {
    Column { name, pointer }
}

/// What `freshet-lab bench tpcc` tells.
pub(crate) const OF_TPCC: &[Column] = &[
    column("tps", "/tps"),
    column("executed", "/executed"),
    column("prompt_batches", "/prompt_batches"),
    column("log_bytes_per_s", "/log_bytes_per_s"),
    column("log_bytes_per_txn", "/log_bytes_per_txn"),
    column("latency_p50_us", "/latency_us/p50"),
    column("latency_p99_us", "/latency_us/p99"),
    column("forward_cpu_us_per_txn", "/cpu_us_per_txn/forward"),
    column("log_cpu_us_per_txn", "/cpu_us_per_txn/log"),
    column("ship_cpu_us_per_txn", "/cpu_us_per_txn/ship"),
    column("replay_cpu_us_per_txn", "/cpu_us_per_txn/replay"),
    column("worker_busy", "/worker_busy"),
    column("freshness_mean", "/freshness/mean"),
    column("freshness_p1", "/freshness/p1"),
    column("freshness_min", "/freshness/min"),
    column("behind_p50_bytes", "/freshness/behind_bytes_p50"),
    column("visible_p50_us", "/visibility_us/p50"),
    column("standby_tps", "/standby_readers/tps"),
    column("utilization", "/standby_readers/utilization"),
];

/// What `freshet-lab bench join` tells.
pub(crate) const OF_JOIN: &[Column] = &[
    column("checkpoint_bytes", "/checkpoint/amount"),
    column("checkpoint_s", "/checkpoint/seconds"),
    column("checkpoint_bytes_per_s", "/checkpoint/per_second"),
    column("log_bytes", "/log/amount"),
    column("log_s", "/log/seconds"),
    column("log_bytes_per_s", "/log/per_second"),
    column("index_entries", "/indexes/amount"),
    column("indexes_s", "/indexes/seconds"),
    column("serving_s", "/serving_seconds"),
    column("joined_s", "/joined_seconds"),
    column("tps_before", "/tps/before"),
    column("tps_joining", "/tps/joining"),
    column("tps_after", "/tps/after"),
    column("kept", "/kept"),
];

/// One run of `freshet-lab bench`.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Run {
    /// To which curve it belongs.
    pub(crate) series: String,
    /// Where on that curve.
    pub(crate) x: f64,
    /// What comes behind `freshet-lab bench`, without how long.
    pub(crate) arguments: String,
}

/// What a paper states, or what Freshet wants to reach, and what was found here.
#[derive(Clone, Debug)]
pub(crate) struct Beside {
    /// Of what.
    pub(crate) what: String,
    /// The paper's words or number, or the goal.
    pub(crate) stated: String,
    /// The section, or that it is a goal.
    pub(crate) source: &'static str,
    /// What was measured.
    pub(crate) here: String,
}

/// How large and how long an experiment is on this machine.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scale {
    /// Only whether it works.
    pub(crate) quick: bool,
    /// How often each run is made.
    pub(crate) rounds: u16,
    /// How long each run measures, in seconds.
    pub(crate) seconds: f64,
    /// How long it runs before.
    pub(crate) warmup: f64,
    /// Processors of this machine.
    pub(crate) processors: usize,
    /// The rate at which one thread logs, where the experiment asks for it.
    pub(crate) log_bytes_per_s: f64,
}

impl Scale {
    pub(crate) fn new(quick: bool, rounds: Option<u16>, seconds: Option<u16>) -> Self {
        Self {
            quick,
            rounds: rounds.unwrap_or(if quick { 1 } else { 3 }),
            seconds: seconds.map_or(if quick { 2.0 } else { 10.0 }, f64::from),
            warmup: if quick { 0.2 } else { 1.0 },
            processors: std::thread::available_parallelism().map_or(1, usize::from),
            log_bytes_per_s: 0.0,
        }
    }

    /// Numbers of standbys: up to three share the processors that the primary leaves.
    pub(crate) fn standbys(&self) -> Vec<u32> {
        if self.quick { vec![1] } else { vec![1, 2, 3] }
    }

    /// Numbers of threads: powers of two, up to the number of processors.
    pub(crate) fn threads(&self) -> Vec<usize> {
        let most = if self.quick { 1 } else { self.processors };
        std::iter::successors(Some(1), |threads| Some(threads * 2)).take_while(|threads| *threads <= most).collect()
    }

    /// The option that keeps primary and standbys apart: a processor for one worker, the rest for
    /// standbys. Empty where there are not enough of them.
    pub(crate) fn apart(&self) -> String {
        match self.processors {
            0 | 1 => String::new(),
            2 => " --pin 0/1".to_owned(),
            many => format!(" --pin 0/1-{}", many - 1),
        }
    }

    /// The same without standbys.
    pub(crate) fn alone(&self) -> &'static str {
        if self.processors < 2 { "" } else { " --pin 0" }
    }

    /// How long each run takes, as options.
    pub(crate) fn time(&self) -> String {
        format!("--seconds {} --warmup {}", self.seconds, self.warmup)
    }
}
