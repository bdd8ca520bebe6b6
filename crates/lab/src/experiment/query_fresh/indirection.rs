//! Figure 10: what replay arrays are good for.

use super::{
    super::{
        frame::{Beside, Experiment, OF_TPCC, Run, Scale},
        plot::Panel,
        results::Results,
    },
    *,
};

const WITH: &str = "Query Fresh";
const FULL: &str = "FullReplay";

fn cost(results: &Results, series: &str) -> f64 {
    results.at(series, 1.0, "replay_cpu_us_per_txn")
}

/// The throughput without indirection, of that with it.
fn share(results: &Results, x: f64) -> f64 {
    results.at(FULL, x, "tps") / results.at(WITH, x, "tps")
}

pub(super) fn experiment() -> Experiment {
    Experiment {
        name: "query-fresh/figure10",
        paper: PAPER,
        place: "figure 10, section 4.7",
        shows: "throughput of the primary with and without indirection",
        x: "standbys",
        columns: OF_TPCC,
        calibrate: true,
        sweep,
        scaled: |scale| {
            format!(
                "{} One thread of a standby's {STANDBY_THREADS} replays, the others read. {}",
                places(scale),
                networks(scale)
            )
        },
        panels,
        beside,
        differs,
    }
}

fn sweep(scale: &Scale) -> Vec<Run> {
    let mut runs = Vec::new();
    for count in scale.standbys() {
        for (series, options) in [(WITH, FRESH.to_owned()), (FULL, FRESH.replace("--apply fresh", "--apply full"))] {
            let options = format!("{options} {}", divided(1));
            runs.push(run(series, f64::from(count), replicated(scale, count, 56.0, &options)));
        }
    }
    runs
}

fn panels(results: &Results) -> Vec<Panel> {
    let behind = results.curves("behind_p50_bytes", 1e-6);
    let costs = results.curves("replay_cpu_us_per_txn", 1.0);
    vec![
        primary(results),
        Panel::over_numbers("Replay", "standbys", "us of processor time a transaction", costs),
        Panel::over_numbers("The stalest standby's read view, half of the looks", "standbys", "MB behind", behind),
    ]
}

fn beside(results: &Results) -> Vec<Beside> {
    let most = last(results, WITH);
    vec![
        Beside {
            what: "FullReplay / Query Fresh, primary".to_owned(),
            stated: "significant overhead: replay is a major bottleneck".to_owned(),
            source: "section 4.7",
            here: format!(
                "{} with one standby, {} with {most}",
                percent(share(results, 1.0)),
                percent(share(results, most))
            ),
        },
        Beside {
            what: "processor time of replay, Query Fresh / FullReplay".to_owned(),
            stated: "at most 0.33".to_owned(),
            source: GOAL,
            here: format!("{:.2}", cost(results, WITH) / cost(results, FULL)),
        },
    ]
}

fn differs(results: &Results) -> Vec<String> {
    let most = last(results, WITH);
    let mut out = vec![format!(
        "Replay of a transaction takes {:.2} us of processor time with indirection and {:.2} us without, {:.2} times \
         as much.",
        cost(results, WITH),
        cost(results, FULL),
        cost(results, FULL) / cost(results, WITH)
    )];
    for x in if most > 1.5 { vec![1.0, most] } else { vec![1.0] } {
        let behind = |series: &str| results.at(series, x, "behind_p50_bytes") / 1e6;
        let verdict = if share(results, x) < 0.95 {
            format!("that is {}", held_back(results, (FULL, x), (WITH, x)))
        } else if behind(FULL) > 2.0 * behind(WITH) {
            "it is hardly held back, unlike in the paper, but its standby is staler".to_owned()
        } else {
            "it is hardly held back, unlike in the paper; full replay keeps up here".to_owned()
        };
        out.push(format!(
            "With {x} standby(s) the primary does {} with FullReplay and {} with indirection ({}): {verdict}.",
            thousands(results.at(FULL, x, "tps")),
            thousands(results.at(WITH, x, "tps")),
            percent(share(results, x)),
        ));
        out.push(format!(
            "The stalest standby is {:.2} MB of log behind with FullReplay and {:.2} MB with indirection.",
            behind(FULL),
            behind(WITH)
        ));
    }
    let reads = results.at(WITH, 1.0, "standby_tps") / results.at(FULL, 1.0, "standby_tps");
    out.push(format!("One standby's readers do {reads:.2} times as much with indirection as without."));
    out.push(noise(results));
    out
}
