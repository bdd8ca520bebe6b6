//! Figure 9: with how many threads a standby replays.

use super::{
    super::{
        frame::{Beside, Experiment, OF_TPCC, Run, Scale},
        plot::Panel,
        results::Results,
    },
    policy::{PIPELINED, SYNCHRONOUS, threads_are_scaled, with_policy},
    *,
};

/// Policies, their options, and how many threads they need in the paper.
const POLICIES: [(&str, &str, &str); 2] =
    [(PIPELINED, "pipelined", "4 of 16 threads"), (SYNCHRONOUS, "synchronous", "about 8 of 16 threads")];
const REPLAYING: [u16; 3] = [1, 2, 4];

fn threads_of(policy: &str, threads: u16) -> String {
    format!("{policy}/{threads}")
}

pub(super) fn experiment() -> Experiment {
    Experiment {
        name: "query-fresh/figure9",
        paper: PAPER,
        place: "figure 9, section 4.6",
        shows: "throughput of the primary by the number of threads that replay, pipelined and synchronous",
        x: "standbys",
        columns: OF_TPCC,
        calibrate: true,
        sweep,
        scaled: threads_are_scaled,
        panels,
        beside,
        differs,
    }
}

fn sweep(scale: &Scale) -> Vec<Run> {
    let mut runs = Vec::new();
    for count in scale.standbys() {
        for (series, policy, _) in POLICIES {
            for threads in REPLAYING {
                let options = format!("{} {}", with_policy(policy), divided(threads));
                let arguments = replicated(scale, count, 56.0, &options);
                runs.push(run(threads_of(series, threads), f64::from(count), arguments));
            }
        }
    }
    runs
}

fn panels(results: &Results) -> Vec<Panel> {
    let panel = |(policy, ..): &(&str, &str, &str)| {
        let series = beginning(results, policy);
        let curves = series.into_iter().map(|series| results.curve(series, "tps", 1e-3)).collect();
        Panel::over_numbers(policy, "standbys", "k transactions/s", curves)
    };
    POLICIES.iter().map(panel).collect()
}

fn beside(results: &Results) -> Vec<Beside> {
    let row = |policy: &str, stated: &str| {
        let at = |threads: u16| results.at(&threads_of(policy, threads), 1.0, "tps");
        let (two, four) = (percent(at(2) / at(1)), percent(at(4) / at(1)));
        Beside {
            what: format!("{policy}, one standby"),
            stated: stated.to_owned(),
            source: "section 4.6",
            here: format!("{two} with two threads, {four} with four, of one's"),
        }
    };
    vec![
        row(PIPELINED, "needs no more than 4 of 16 threads to keep up"),
        row(SYNCHRONOUS, "needs roughly half of the threads with 1 and 2 backups"),
    ]
}

fn differs(results: &Results) -> Vec<String> {
    let mut out = Vec::new();
    for (policy, _, stated) in POLICIES {
        let at = |threads: u16| results.at(&threads_of(policy, threads), 1.0, "tps");
        let best = REPLAYING.into_iter().max_by(|one, other| at(*one).total_cmp(&at(*other))).unwrap_or(1);
        let enough = REPLAYING.into_iter().find(|threads| at(*threads) >= 0.97 * at(best)).unwrap_or(best);
        out.push(format!(
            "{policy} replay, one standby: the best of one, two and four threads is {best} with {}, and {enough} \
             of {STANDBY_THREADS} thread(s) come within 3 % of it; the paper's standby needs {stated}.",
            thousands(at(best))
        ));
    }
    let costs: Vec<String> = results
        .series()
        .into_iter()
        .map(|series| (series, results.at(series, 1.0, "replay_cpu_us_per_txn")))
        .filter(|(_, cost)| cost.is_finite())
        .map(|(series, cost)| format!("{cost:.2} us for {series}"))
        .collect();
    if !costs.is_empty() {
        out.push(format!("Replay of one transaction takes, in processor time, {}.", list(&costs)));
    }
    out.push(format!(
        "Threads beyond the {} processor(s) that standbys have here only divide them otherwise between replay and \
         readers.",
        results.scale.processors.saturating_sub(1).max(1)
    ));
    out.push(noise(results));
    out
}
