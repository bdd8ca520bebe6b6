//! Figures 8 and 9: when a standby replays, and with how many threads.

use super::{
    super::{
        frame::{Beside, Experiment, OF_TPCC, Scale},
        plot::Panel,
    },
    *,
};

const NONE: &str = "NoReplay";
const SYNCHRONOUS: &str = "Synchronous";
const PIPELINED: &str = "Pipelined";

/// Options of Query Fresh, with another policy.
fn with_policy(policy: &str) -> String {
    FRESH.replace("--replay pipelined", &format!("--replay {policy}"))
}

fn scaled(scale: &Scale) -> String {
    format!(
        "{} A standby's 16 threads are {STANDBY_THREADS} here: those that do not replay read, with Stock-Level and Order-Status in turn. {}",
        places(scale),
        networks(scale)
    )
}

/// Figure 8.
pub(super) fn figure_8() -> Experiment {
    Experiment {
        name: "query-fresh/figure8",
        paper: PAPER,
        place: "figure 8, section 4.6",
        shows: "throughput of the primary and of its standbys' readers by replay policy",
        x: "standbys",
        columns: OF_TPCC,
        calibrate: true,
        sweep: |scale| {
            let mut runs = vec![standalone(scale)];
            for count in scale.standbys() {
                // Of the paper's 16 threads none, 8 and 4 replay.
                for (series, policy, threads) in [
                    (NONE, "none", format!("--standby-readers {STANDBY_THREADS}")),
                    (SYNCHRONOUS, "synchronous", divided(STANDBY_THREADS / 2)),
                    (PIPELINED, "pipelined", divided(STANDBY_THREADS / 4)),
                ] {
                    // What does not replay has data only if it joins when that is loaded.
                    let policy = with_policy(policy).replace("very-safe", "2-safe --join-loaded");
                    let options = format!("{policy} {threads}");
                    runs.push(run(series, f64::from(count), replicated(scale, count, 56.0, &options)));
                }
            }
            runs
        },
        scaled: |scale| {
            format!(
                "{} Standbys join when everything is loaded, as the paper's start warm; at 2-safe, so that it can be loaded without them.",
                scaled(scale)
            )
        },
        panels: |results| vec![primary(results), readers(results)],
        beside: |results| {
            let most = last(results, PIPELINED);
            let against = |x: f64, one: &str, other: &str, column: &str| {
                percent(results.at(one, x, column) / results.at(other, x, column))
            };
            vec![
                Beside {
                    what: "Pipelined / NoReplay, primary, one standby".to_owned(),
                    stated: "similar".to_owned(),
                    source: "section 4.6",
                    here: against(1.0, PIPELINED, NONE, "tps"),
                },
                Beside {
                    what: "the same".to_owned(),
                    stated: "at least 97 %".to_owned(),
                    source: GOAL,
                    here: against(1.0, PIPELINED, NONE, "tps"),
                },
                Beside {
                    what: format!("Synchronous / Pipelined, primary, {most} standby(s)"),
                    stated: "does not scale after two backups".to_owned(),
                    source: "section 4.6",
                    here: against(most, SYNCHRONOUS, PIPELINED, "tps"),
                },
                Beside {
                    what: format!("Pipelined / NoReplay, readers, {most} standby(s)"),
                    stated: "NoReplay is an upper bound".to_owned(),
                    source: "section 4.6",
                    here: against(most, PIPELINED, NONE, "standby_tps"),
                },
                Beside {
                    what: format!("Synchronous / Pipelined, readers, {most} standby(s)"),
                    stated: "lower: fewer threads are left to read".to_owned(),
                    source: "section 4.6",
                    here: against(most, SYNCHRONOUS, PIPELINED, "standby_tps"),
                },
            ]
        },
        differs: |results| {
            let most = last(results, PIPELINED);
            let mut out = Vec::new();
            for x in if most > 1.5 { vec![1.0, most] } else { vec![1.0] } {
                let of = |series: &str| results.at(series, x, "tps");
                let (pipelined, synchronous) = (of(PIPELINED) / of(NONE), of(SYNCHRONOUS) / of(NONE));
                let verdict = if pipelined >= 0.97 { "replay is hidden" } else { "replay is not hidden" };
                let slower = if synchronous < pipelined - 0.02 {
                    "synchronous replay costs more, as there"
                } else {
                    "synchronous replay does not cost more in throughput, unlike there: a worker here goes on while its commits wait"
                };
                out.push(format!(
                    "With {x} standby(s) Pipelined keeps {} of the throughput of NoReplay ({}), so {verdict}; Synchronous keeps {}: {slower}.",
                    percent(pipelined),
                    thousands(of(NONE)),
                    percent(synchronous)
                ));
                let wait = |series: &str| results.at(series, x, "latency_p50_us") / 1e3;
                out.push(format!(
                    "Half of the commits take less than {:.2} ms without replay, {:.2} ms with Pipelined, {:.2} ms with Synchronous.",
                    wait(NONE),
                    wait(PIPELINED),
                    wait(SYNCHRONOUS)
                ));
            }
            let reads = |series: &str| results.at(series, most, "standby_tps");
            out.push(format!(
                "All readers of {most} standby(s) do {} in NoReplay, {} in Pipelined, {} in Synchronous; they have {}, {} and {} of the \
                 standbys' processor time.",
                thousands(reads(NONE)),
                thousands(reads(PIPELINED)),
                thousands(reads(SYNCHRONOUS)),
                percent(results.at(NONE, most, "utilization")),
                percent(results.at(PIPELINED, most, "utilization")),
                percent(results.at(SYNCHRONOUS, most, "utilization"))
            ));
            if results.xs(PIPELINED).len() > 1 {
                let grows = results.at(PIPELINED, most, "standby_tps") / results.at(PIPELINED, 1.0, "standby_tps");
                out.push(format!(
                    "From one standby to {most} Pipelined's readers do {grows:.2} times as much: all standbys share the same {} processor(s), \
                     where the paper's have a machine each.",
                    results.scale.processors.saturating_sub(1).max(1)
                ));
            }
            out.push(noise(results));
            out
        },
    }
}

fn threads_of(policy: &str, threads: u16) -> String {
    format!("{policy}/{threads}")
}

const REPLAYING: [u16; 3] = [1, 2, 4];

/// Figure 9.
pub(super) fn figure_9() -> Experiment {
    Experiment {
        name: "query-fresh/figure9",
        paper: PAPER,
        place: "figure 9, section 4.6",
        shows: "throughput of the primary by the number of threads that replay, pipelined and synchronous",
        x: "standbys",
        columns: OF_TPCC,
        calibrate: true,
        sweep: |scale| {
            let mut runs = Vec::new();
            for count in scale.standbys() {
                for (series, policy) in [(PIPELINED, "pipelined"), (SYNCHRONOUS, "synchronous")] {
                    for threads in REPLAYING {
                        let options = format!("{} {}", with_policy(policy), divided(threads));
                        let arguments = replicated(scale, count, 56.0, &options);
                        runs.push(run(threads_of(series, threads), f64::from(count), arguments));
                    }
                }
            }
            runs
        },
        scaled,
        panels: |results| {
            let panel = |policy: &str| {
                let series = beginning(results, policy);
                let curves = series.into_iter().map(|series| results.curve(series, "tps", 1e-3)).collect();
                Panel::over_numbers(policy, "standbys", "k transactions/s", curves)
            };
            vec![panel(PIPELINED), panel(SYNCHRONOUS)]
        },
        beside: |results| {
            let scales = |policy: &str, x: f64| {
                let at = |threads: u16| results.at(&threads_of(policy, threads), x, "tps");
                format!("{} with two threads, {} with four, of one's", percent(at(2) / at(1)), percent(at(4) / at(1)))
            };
            vec![
                Beside {
                    what: "Pipelined, one standby".to_owned(),
                    stated: "needs no more than 4 of 16 threads to keep up".to_owned(),
                    source: "section 4.6",
                    here: scales(PIPELINED, 1.0),
                },
                Beside {
                    what: "Synchronous, one standby".to_owned(),
                    stated: "needs roughly half of the threads with 1 and 2 backups".to_owned(),
                    source: "section 4.6",
                    here: scales(SYNCHRONOUS, 1.0),
                },
            ]
        },
        differs: |results| {
            let mut out = Vec::new();
            for (policy, stated) in [(PIPELINED, "4 of 16 threads"), (SYNCHRONOUS, "about 8 of 16 threads")] {
                let at = |threads: u16| results.at(&threads_of(policy, threads), 1.0, "tps");
                let best = REPLAYING.into_iter().max_by(|one, other| at(*one).total_cmp(&at(*other))).unwrap_or(1);
                let enough = REPLAYING.into_iter().find(|threads| at(*threads) >= 0.97 * at(best)).unwrap_or(best);
                out.push(format!(
                    "{policy} replay, one standby: {enough} of {STANDBY_THREADS} threads are enough for {} ({}), within 3 % of the best, which \
                     {best} reach; the paper's needs {stated}.",
                    thousands(at(enough)),
                    percent(at(enough) / at(best))
                ));
            }
            let costs: Vec<String> = results
                .series()
                .into_iter()
                .map(|series| (series, results.at(series, 1.0, "replay_cpu_us_per_txn")))
                .filter(|(_, cost)| cost.is_finite())
                .map(|(series, cost)| format!("{cost:.2} us for {series}"))
                .collect();
            out.push(format!("Replay of one transaction takes, in processor time, {}.", list(&costs)));
            out.push(format!(
                "Threads beyond the {} processor(s) that standbys have here only divide them otherwise between replay and readers.",
                results.scale.processors.saturating_sub(1).max(1)
            ));
            out.push(noise(results));
            out
        },
    }
}
