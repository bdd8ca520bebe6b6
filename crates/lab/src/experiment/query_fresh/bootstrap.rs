//! Section 4.8: how long a new standby takes to join.

use super::{
    super::{
        frame::{Beside, Experiment, OF_JOIN},
        plot::{Curve, Panel, Point},
        results::Results,
    },
    *,
};

const JOINING: &str = "Joining";

/// 1.8 GB of checkpoint in 5.8 s with 16 threads, about 6 GB of log in 24.21 s with 8.
const PAPER_RATES: [(f64, f64); 2] = [(1.8e9 / 5.8, 16.0), (6e9 / 24.21, 8.0)];

fn at(results: &Results, column: &str) -> f64 {
    results.at(JOINING, 1.0, column)
}

fn megabytes(rate: f64) -> String {
    format!("{} MB/s", short(rate / 1e6))
}

/// One number under several headings.
fn across(results: &Results, label: &str, color: usize, columns: &[&str], factor: f64) -> Curve {
    let points = columns.iter().enumerate().filter_map(|(place, column)| {
        let point = *results.curve(JOINING, column, factor).points.first()?;
        Some(Point { x: place as f64, ..point })
    });
    Curve::measured(label, color, points.collect()).apart()
}

pub(super) fn experiment() -> Experiment {
    Experiment {
        name: "query-fresh/bootstrap",
        paper: PAPER,
        place: "section 4.8",
        shows: "time that a new standby takes to join a primary under load, and what that costs the primary",
        x: "standbys",
        columns: OF_JOIN,
        calibrate: false,
        sweep: |scale| {
            let arguments = format!("join --isolation si --domain file --replay-threads 1{}", scale.apart());
            vec![run(JOINING, 1.0, arguments)]
        },
        scaled: |scale| {
            format!(
                "{} One warehouse instead of 16; a checkpoint is written when it is loaded, then TPC-C runs for {} s and goes on while the \
                 standby joins. The paper's new backup has 16 threads for the checkpoint and 8 for the log, this one has the processors \
                 that the primary leaves; the paper does not say what its primary did meanwhile.",
                places(scale),
                scale.warmup + scale.seconds
            )
        },
        panels: |results| {
            let rates = [("checkpoint", "checkpoint_bytes_per_s"), ("log", "log_bytes_per_s")];
            let ticks: Vec<(f64, String)> = (0..).map(f64::from).zip(rates.map(|(name, _)| name.to_owned())).collect();
            let columns = rates.map(|(_, column)| column);
            let stated: Vec<(f64, f64)> = (0..).map(f64::from).zip(PAPER_RATES.map(|(rate, _)| rate / 1e6)).collect();
            let a_thread: Vec<(f64, f64)> =
                (0..).map(f64::from).zip(PAPER_RATES.map(|(rate, threads)| rate / threads / 1e6)).collect();
            let before = at(results, "tps_before");
            let kept = across(
                results,
                "TPC-C on the primary",
                0,
                &["tps_before", "tps_meanwhile", "tps_after"],
                100.0 / before,
            );
            let names = ["before", "while it joins", "afterwards"].map(str::to_owned);
            vec![
                Panel {
                    ticks: ticks.clone(),
                    ..Panel::over_numbers(
                        "Reading what there is",
                        "phase",
                        "MB/s",
                        vec![
                            across(results, "here", 0, &columns, 1e-6),
                            Curve::stated("Paper: 16 threads, 8 threads (section 4.8)", 1, &stated).apart(),
                            Curve::stated("Paper: the same, of each thread", 2, &a_thread).apart(),
                        ],
                    )
                },
                Panel {
                    ticks: (0..).map(f64::from).zip(names).collect(),
                    ..Panel::over_numbers(
                        "The primary",
                        "",
                        "% of its throughput before",
                        vec![kept, Curve::level("wanted while a standby joins", 1, 90.0)],
                    )
                },
            ]
        },
        beside: |results| {
            let phase = |what: &str, stated: String, name: &str| Beside {
                what: what.to_owned(),
                stated,
                source: "section 4.8",
                here: {
                    let of = |unit: &str| at(results, &format!("{name}_{unit}"));
                    format!("{} MB in {:.2} s, {}", short(of("bytes") / 1e6), of("s"), megabytes(of("bytes_per_s")))
                },
            };
            vec![
                phase(
                    "checkpoint",
                    format!("1.8 GB in 5.8 s, {}, 16 threads", megabytes(PAPER_RATES[0].0)),
                    "checkpoint",
                ),
                phase("log since then", format!("~6 GB in 24.21 s, {}, 8 threads", megabytes(PAPER_RATES[1].0)), "log"),
                Beside {
                    what: "until it serves; until it is in step".to_owned(),
                    stated: "~30 s".to_owned(),
                    source: "section 4.8",
                    here: format!("{:.2} s; {:.2} s", at(results, "serving_s"), at(results, "joined_s")),
                },
                Beside {
                    what: "throughput of the primary meanwhile, of before".to_owned(),
                    stated: "at least 90 %".to_owned(),
                    source: GOAL,
                    here: percent(at(results, "kept")),
                },
            ]
        },
        differs: |results| {
            let (checkpoint, log) = (at(results, "checkpoint_bytes_per_s"), at(results, "log_bytes_per_s"));
            let compare = |here: f64, (rate, threads): (f64, f64)| {
                format!(
                    "{} against {} with {threads} threads in the paper, {} of what each of these does",
                    megabytes(here),
                    megabytes(rate),
                    percent(here * threads / rate)
                )
            };
            let mut out = vec![
                format!(
                    "The standby reads {} MB of checkpoint and {} MB of log and serves after {:.2} s; it is in step after {:.2} s.",
                    short(at(results, "checkpoint_bytes") / 1e6),
                    short(at(results, "log_bytes") / 1e6),
                    at(results, "serving_s"),
                    at(results, "joined_s")
                ),
                format!("The checkpoint goes at {}.", compare(checkpoint, PAPER_RATES[0])),
                format!("The log goes at {}.", compare(log, PAPER_RATES[1])),
                format!(
                    "Making the indexes anew from {} M entries takes {:.2} s, a phase that the paper does not tell of.",
                    short(at(results, "index_entries") / 1e6),
                    at(results, "indexes_s")
                ),
            ];
            let (kept, after) = (at(results, "kept"), at(results, "tps_after") / at(results, "tps_before"));
            let verdict = if kept >= 0.9 { "within" } else { "short of" };
            out.push(format!(
                "Meanwhile the primary does {} of its {} before, {verdict} the 90 % that are wanted; with the standby in step it does {}.",
                percent(kept),
                thousands(at(results, "tps_before")),
                percent(after)
            ));
            if results.scale.rounds > 1 {
                let noise = results.noise("kept");
                out.push(format!("Rounds differ by up to {} in what the primary keeps.", percent(noise)));
            }
            out
        },
    }
}
