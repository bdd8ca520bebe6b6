//! Section 5.3: how long a standby takes to take over from a primary under full load.

use super::{
    super::{
        frame::Beside,
        plot::{Panel, places_of},
    },
    *,
};

/// Each thread of the primary has no more commits open.
const CLIENTS: u32 = 1024;

pub(super) fn experiment() -> Experiment {
    Experiment {
        name: "record-replay/failover",
        paper: PAPER,
        place: "section 5.3",
        shows: "how long a standby takes to take over from a primary under full load",
        x: "threads",
        columns: OF_STANDBY,
        calibrate: false,
        sweep: |scale| {
            let mut runs = Vec::new();
            for (workload, options) in WORKLOADS {
                let tpcc = tpcc(scale, options, 1);
                for (system, how) in [(SHIPPING, BYTES), (AGAIN, INPUTS)] {
                    let standby = format!("--standbys 1 --safety 2-safe --window {CLIENTS} --failover");
                    let arguments = format!("{tpcc} {standby} {how}{}", apart(scale, 1));
                    runs.push(run(series(workload, system), 1.0, arguments));
                }
            }
            runs
        },
        scaled: |scale| {
            format!(
                "{} {} Commits wait for the standby (2-safe), and no more arrives there than it executes in \
                 `backlog-ms`. A thread stands for {CLIENTS} clients: no more of its transactions wait for their \
                 commit. While the primary is under load the standby is told to take over: it fetches what the primary \
                 has beyond it, executes and replays that, and is the primary when it takes transactions.",
                places(scale),
                smaller(scale)
            )
        },
        panels: |results| {
            let of = |(color, system): (usize, &str)| {
                let points = places_of(WORKLOADS)
                    .into_iter()
                    .map(|(place, (workload, _))| (place, results.at(&series(workload, system), 1.0, "failover_ms")));
                exactly(system, color, points.collect()).apart()
            };
            let curves = [SHIPPING, AGAIN].into_iter().enumerate().map(of).collect();
            let ticks = places_of(WORKLOADS.map(|(workload, _)| workload.to_owned()));
            vec![Panel { ticks, ..Panel::over_numbers("Taking over", "", "ms", curves) }]
        },
        beside: |results| {
            let mut rows = vec![Beside {
                what: "exporting the standby's database, 32 warehouses".to_owned(),
                stated: "two minutes".to_owned(),
                source: "section 5.3",
                here: "nothing is exported".to_owned(),
            }];
            for (workload, _) in WORKLOADS {
                rows.push(Beside {
                    what: format!("{workload}, longer than a standby that gets bytes"),
                    stated: "at most 300 ms".to_owned(),
                    source: GOAL,
                    here: format!("{} ms", short(longer(results, workload))),
                });
            }
            rows
        },
        differs,
    }
}

fn differs(results: &Results) -> Vec<String> {
    let mut out = Vec::new();
    for (workload, _) in WORKLOADS {
        let at = |system: &str| results.at(&series(workload, system), 1.0, "failover_ms");
        let longer = longer(results, workload);
        let verdict = if longer <= 300.0 { "within" } else { "beyond" };
        out.push(format!(
            "{workload}: a standby that executes again is the primary after {:.1} ms, one that gets bytes after \
                     {:.1} ms: {verdict} the goal of 300 ms more.",
            at(AGAIN),
            at(SHIPPING)
        ));
    }
    if results.scale.rounds > 1 {
        out.push(format!("Rounds differ by up to {} in this time.", percent(results.noise("failover_ms"))));
    }
    out
}

/// How many milliseconds longer it takes.
fn longer(results: &Results, workload: &str) -> f64 {
    let at = |system: &str| results.at(&series(workload, system), 1.0, "failover_ms");
    at(AGAIN) - at(SHIPPING)
}
