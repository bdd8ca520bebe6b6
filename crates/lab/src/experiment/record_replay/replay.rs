//! Figure 5 and section 6.4.1: how fast a recorded trace is executed again, by threads, and by how
//! much may be in execution.

use super::{
    super::{
        frame::Beside,
        plot::{Curve, Panel},
        report::list,
    },
    *,
};

const SERIAL: &str = "one thread";

/// How long the paper's traces are, in seconds.
pub(super) const TRACE: f64 = 30.0;

pub(super) const COLUMNS: &[Column] = &[
    column("trace_s", "/trace_seconds"),
    column("replay_s", "/seconds"),
    column("share", "/share"),
    column("executed", "/executed"),
    column("replayed_tps", "/tps"),
    column("fetched", "/fetched"),
    column("log_bytes_per_txn", "/log_bytes_per_txn"),
    column("waits_per_txn", "/waits_per_txn"),
    column("process_cpu_us_per_txn", "/cpu_us_per_txn/process"),
    column("execute_cpu_us_per_txn", "/cpu_us_per_txn/execute"),
];

/// A replay of what a primary with this many threads has recorded, on as many processors.
pub(super) fn replay(scale: &Scale, options: &str, threads: usize) -> String {
    let warehouses = warehouses(scale, threads);
    let pin = match threads {
        _ if threads >= scale.processors => String::new(),
        1 => " --pin 0".to_owned(),
        many => format!(" --pin 0-{}", many - 1),
    };
    format!("replay --isolation serializable --warehouses {warehouses} --threads {threads}{options}{pin}")
}

pub(super) fn figure_5() -> Experiment {
    Experiment {
        name: "record-replay/figure5",
        paper: PAPER,
        place: "figure 5, section 6.4",
        shows: "time to execute a trace again that a primary has recorded",
        x: "threads",
        columns: COLUMNS,
        calibrate: false,
        sweep: |scale| {
            let mut runs = Vec::new();
            for threads in scale.threads() {
                for (workload, options) in WORKLOADS {
                    let replay = replay(scale, options, threads);
                    let mut add = |system: &str, how: &str| {
                        runs.push(run(series(workload, system), threads as f64, format!("{replay}{how}")));
                    };
                    add(AGAIN, "");
                    add(CALVIN, " --apply calvin");
                    add(SERIAL, " --execute-threads 1");
                }
            }
            runs
        },
        scaled: |scale| {
            format!(
                "Threads of a primary, each on a processor, record for as long as a run takes; then their log \
                 is executed again on the same processors, by twice as many threads, since those that wait leave their \
                 processor to others. Times are scaled to the paper's traces of 30 s, from shorter ones. Entering, \
                 logging, comparing and replaying have threads of their own on these processors. {} Calvin's queues \
                 are in the place of version arrays, as in the paper, and executions read versions all the same, so \
                 what differs is when transactions are begun, and what queues cost. One thread executes in the \
                 order of the log: the paper's serial replay.",
                smaller(scale)
            )
        },
        panels: |results| {
            let mut panels = Vec::new();
            for (workload, _) in WORKLOADS {
                let curve = |system: &str| results.curve(&series(workload, system), "share", TRACE);
                let mut curves: Vec<Curve> = [AGAIN, CALVIN, SERIAL].map(curve).into();
                curves.push(Curve::level("the trace's own time", 6, TRACE));
                panels.push(Panel::over_numbers(workload, "threads", "s, scaled to a trace of 30 s", curves));
            }
            panels
        },
        beside: beside_figure_5,
        differs: differs_figure_5,
    }
}

/// What the paper states of a workload: Record-Replay's seconds, and Calvin's beside them.
const STATED: [(&str, &str, &str); 4] = [
    ("TPC-C", "18 to 23 s", "1.05 to 1.10 times"),
    ("TPC-C+", "18 to 23 s", "up to 1.5 times"),
    ("TPC-C Spread", "29 to 32 s", "1.05 to 1.10 times"),
    ("TPC-C+ Spread", "29 to 32 s", "up to 1.5 times"),
];

/// Calvin's time, of that of Record-Replay.
fn calvin(results: &Results, workload: &str, x: f64) -> f64 {
    ratio(results, "share", (&*series(workload, CALVIN), &*series(workload, AGAIN)), x)
}

fn beside_figure_5(results: &Results) -> Vec<Beside> {
    let mut rows = Vec::new();
    for (workload, seconds, times) in STATED {
        for x in results.xs(&series(workload, AGAIN)) {
            let mut add = |what: &str, stated: &str, source, here: String| {
                let what = format!("{workload}, {what}, {x} thread(s)");
                rows.push(Beside { what, stated: stated.to_owned(), source, here });
            };
            let again = results.at(&series(workload, AGAIN), x, "share") * TRACE;
            add("a trace executed again, scaled to 30 s", seconds, "section 6.4", format!("{} s", short(again)));
            let here = calvin(results, workload, x);
            let measured =
                |here: f64| if here.is_finite() { format!("{here:.2} times") } else { "not measured".to_owned() };
            add("Calvin against it", times, "section 6.4", measured(here));
            if workload == "TPC-C+" {
                add("Calvin against it", "at least 1.2 times", GOAL, measured(here));
            }
        }
    }
    rows
}

fn differs_figure_5(results: &Results) -> Vec<String> {
    let mut out = Vec::new();
    for (workload, ..) in STATED {
        let x = last(results, &series(workload, AGAIN));
        let at = |system: &str, column: &str| results.at(&series(workload, system), x, column);
        let seconds = at(AGAIN, "share") * TRACE;
        let verdict = if seconds <= TRACE { "so the standby keeps up" } else { "so the standby falls behind" };
        out.push(format!(
            "{workload}: what {x} thread(s) of a primary do is executed again in {} s for 30 s of it, {verdict}; \
             Calvin takes {:.2} times as long, and one thread {:.2} times.",
            short(seconds),
            calvin(results, workload, x),
            at(SERIAL, "share") / at(AGAIN, "share")
        ));
        out.push(format!(
            "A transaction takes {:.1} us of processor time, with Calvin {:.1} us; {} of 100 wait for a version.",
            at(AGAIN, "process_cpu_us_per_txn"),
            at(CALVIN, "process_cpu_us_per_txn"),
            short(at(AGAIN, "waits_per_txn") * 100.0)
        ));
    }
    let x = last(results, &series("TPC-C+", AGAIN));
    let (plus, plain) = (calvin(results, "TPC-C+", x), calvin(results, "TPC-C", x));
    out.push(if plus > plain + 0.02 {
        "As in the paper, Calvin is further behind where transactions read much that they do not write.".to_owned()
    } else {
        "Unlike in the paper, Calvin is no further behind where transactions read much that they do not write."
            .to_owned()
    });
    if results.scale.rounds > 1 {
        out.push(format!("Rounds differ by up to {} in their time.", percent(results.noise("share"))));
    }
    out
}

/// How much may be in execution, in KiB of log.
const WINDOWS: [f64; 6] = [64.0, 256.0, 1024.0, 2048.0, 8192.0, 32_768.0];
/// A standby's.
const USUAL: f64 = 2048.0;

pub(super) fn window() -> Experiment {
    Experiment {
        name: "record-replay/window",
        paper: PAPER,
        place: "section 6.4.1",
        shows: "time to execute a trace again, by how much of it may be in execution",
        x: "window_kib",
        columns: COLUMNS,
        calibrate: true,
        sweep: sweep_windows,
        scaled: |scale| {
            format!(
                "The paper's epochs end, and are executed one after another; here a window slides over the log. What \
                 is in it may be executed: {} KiB, a standby's, are {} ms of what one thread logs here; the paper's \
                 epochs are of 50 ms to 1 s. The window is the standby's alone, so nothing of the primary depends on \
                 it. All processors record, and execute. {}",
                USUAL,
                short(USUAL * 1024.0 / scale.log_bytes_per_s * 1e3),
                smaller(scale)
            )
        },
        panels: |results| {
            let curves = |column: &str, factor| results.curves(column, factor);
            vec![
                Panel::over_numbers("Executed again", "window, KiB of log", "s, scaled to a trace of 30 s", {
                    let mut curves = curves("share", TRACE);
                    curves.push(Curve::level("the trace's own time", 6, TRACE));
                    curves
                }),
                Panel::over_numbers("Waits", "window, KiB of log", "for a transaction", curves("waits_per_txn", 1.0)),
            ]
        },
        beside: |results| {
            let usual = |series: &str| results.at(series, USUAL, "share") * TRACE;
            let mut rows = Vec::new();
            for series in results.series() {
                for x in results.xs(series) {
                    rows.push(Beside {
                        what: format!("{series}, window of {x} KiB, against {USUAL} KiB"),
                        stated: "similar at all lengths of an epoch".to_owned(),
                        source: "section 6.4.1",
                        here: percent(results.at(series, x, "share") * TRACE / usual(series)),
                    });
                }
            }
            rows
        },
        differs: differs_window,
    }
}

fn sweep_windows(scale: &Scale) -> Vec<Run> {
    let mut runs = Vec::new();
    let windows = if scale.quick { &[64.0, USUAL][..] } else { &WINDOWS[..] };
    for (workload, options) in [WORKLOADS[0], WORKLOADS[2]] {
        let replay = replay(scale, options, scale.processors);
        for kib in windows {
            let arguments = format!("{replay} --execute-bytes {} --execute-blocks 1048576", kib * 1024.0);
            runs.push(run(workload, *kib, arguments));
        }
    }
    runs
}

fn differs_window(results: &Results) -> Vec<String> {
    let mut out = Vec::new();
    for series in results.series() {
        let times: Vec<String> = results
            .xs(series)
            .into_iter()
            .map(|x| format!("{} s with {x} KiB", short(results.at(series, x, "share") * TRACE)))
            .collect();
        let shares: Vec<f64> = results.xs(series).into_iter().map(|x| results.at(series, x, "share")).collect();
        let low = shares.iter().copied().fold(f64::INFINITY, f64::min);
        let high = shares.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let verdict = if high <= 1.1 * low {
            "as in the paper, the length matters little".to_owned()
        } else {
            format!("unlike in the paper, the length matters: {:.2} times", high / low)
        };
        out.push(format!("{series}: scaled, 30 s are executed again in {}: {verdict}.", list(&times)));
    }
    if results.scale.rounds > 1 {
        out.push(format!("Rounds differ by up to {} in their time.", percent(results.noise("share"))));
    }
    out
}
