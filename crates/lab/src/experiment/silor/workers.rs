//! Figures 2 and 3: a worker on every processor, or one processor left to loggers and
//! checkpointers.

use super::*;

const EVERY: &str = "a worker on every processor";
const LEFT: &str = "a processor left to others";

fn series(system: &str, which: &str) -> String {
    format!("{system}, {which}")
}

/// A system with as many workers as there are processors, and with one less.
fn both(scale: &Scale, system: &str, options: &str) -> Vec<Run> {
    let of = |which, threads| one(&series(system, which), threads, &ycsb(scale), options);
    vec![of(EVERY, scale.processors), of(LEFT, workers(scale))]
}

/// The throughput with a worker on every processor, of that with one less.
fn ratio(results: &Results, system: &str) -> f64 {
    of(results, &series(system, EVERY), "tps") / of(results, &series(system, LEFT), "tps")
}

pub(super) fn figure_2() -> Experiment {
    Experiment {
        name: "silor/figure2",
        place: "figure 2, section 6.2",
        shows: "YCSB 70/30 without a log, by the number of workers",
        sweep: |scale| both(scale, MEMORY, "--domain none"),
        beside: |results| {
            vec![Beside {
                what: "MemSilo with a processor left to others, of MemSilo with a worker on every processor".to_owned(),
                stated: percent(9.77 / 10.83),
                source: "figure 2, 28 of 32 workers",
                here: percent(1.0 / ratio(results, MEMORY)),
            }]
        },
        differs: |results| {
            let kept = 1.0 / ratio(results, MEMORY);
            let workers = |which| results.xs(&series(MEMORY, which)).first().copied().unwrap_or(f64::NAN);
            let share = workers(LEFT) / workers(EVERY);
            vec![
                format!(
                    "{} of {} workers do {} of what all do; in the paper 28 of 32, or 87.5 %, do {}.",
                    workers(LEFT),
                    workers(EVERY),
                    percent(kept),
                    percent(9.77 / 10.83)
                ),
                format!("That is {} their share of the workers ({}).", than(kept, share, 0.02), percent(share)),
                noise(results),
            ]
        },
        ..over_time()
    }
}

pub(super) fn figure_3() -> Experiment {
    Experiment {
        name: "silor/figure3",
        place: "figure 3, section 6.2",
        shows: "YCSB 70/30 with log and checkpoints, by the number of workers",
        sweep: |scale| both(scale, ALL, &format!("{DISK} {CHECKPOINTS}")),
        beside: |results| {
            let row = |what: &str, stated: String, here: String| Beside {
                what: what.to_owned(),
                stated,
                source: "figures 1 and 3",
                here,
            };
            let waits = [EVERY, LEFT].map(|which| format!("{:.1} ms", wait(results, &series(ALL, which))));
            vec![
                row(
                    "SiloR with a worker on every processor, of SiloR with one less",
                    percent(9.14 / 8.76),
                    percent(ratio(results, ALL)),
                ),
                row("mean latency, with each and with one less", "153 ms, 90 ms".to_owned(), waits.join(", ")),
            ]
        },
        differs: |results| {
            let [every, left] = [EVERY, LEFT].map(|which| series(ALL, which));
            let slowest = |series: &str| of(results, series, "slowest_half_second");
            let steadier = if slowest(&every) < slowest(&left) - 0.05 {
                "As in the paper, a worker on every processor makes it less steady"
            } else {
                "Unlike in the paper, a worker on every processor does not make it less steady"
            };
            vec![
                format!(
                    "With a worker on every processor SiloR does {} of what it does with one less, {} in the paper \
                     ({}).",
                    percent(ratio(results, ALL)),
                    than(ratio(results, ALL), 9.14 / 8.76, 0.02),
                    percent(9.14 / 8.76)
                ),
                format!(
                    "A commit waits in the mean {:.1} ms, and {:.1} ms with one less; in the paper 153 and 90 ms.",
                    wait(results, &every),
                    wait(results, &left)
                ),
                format!(
                    "{steadier}: its slowest half second has {} of the mean, and {} with one less.",
                    percent(slowest(&every)),
                    percent(slowest(&left))
                ),
                noise(results),
            ]
        },
        ..over_time()
    }
}
