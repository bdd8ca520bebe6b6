//! Figure 7: how fresh a standby is that reads with three quarters of its threads.

use super::{
    super::{
        frame::{Beside, Experiment, OF_TPCC, Run, Scale},
        plot::{Curve, Panel, Point},
        report::short,
        results::Results,
    },
    end_to_end::VARIANTS,
    *,
};

const ALL_REPLAY: &str = "Logical/all";

fn quarter(name: &str) -> String {
    format!("{name}/quarter")
}

pub(super) fn experiment() -> Experiment {
    Experiment {
        name: "query-fresh/figure7",
        paper: PAPER,
        place: "figure 7, section 4.5",
        shows: "freshness of a standby whose readers have three of its four threads",
        x: "standbys",
        columns: OF_TPCC,
        calibrate: true,
        sweep,
        scaled: |scale| {
            format!(
                "{} A standby has three readers and one thread that replays (\"quarter\") for the paper's 12 and 4, or \
                 only one that replays (\"all\") for its 16; readers run Stock-Level and Order-Status in turn within \
                 the standby. Utilization is measured: the readers' share of the processor time of the standby's \
                 process. Freshness is looked at each 20 ms, the primary's read view when the standby's answer has \
                 arrived, so its way back counts against the standby; the paper takes the nearest 500 ms. {}",
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
    let one = |options: &str, gbit: f64, threads: &str| {
        replicated(scale, 1, gbit, &format!("{options} {threads} --freshness-series"))
    };
    let mut runs: Vec<Run> = VARIANTS
        .iter()
        .map(|(name, gbit, options)| run(quarter(name), 1.0, one(options, *gbit, &divided(1))))
        .collect();
    let (_, gbit, options) = VARIANTS[2];
    runs.push(run(ALL_REPLAY, 1.0, one(options, gbit, "--replay-threads 1")));
    runs
}

/// Freshness over time in the round in the middle.
fn over_time(results: &Results, series: &str, what: &str, factor: f64) -> Curve {
    let looks = results.middle(series, 1.0, "freshness_mean").and_then(|value| value["freshness_series"].as_array());
    let points =
        looks.into_iter().flatten().filter_map(|look| Some((look["seconds"].as_f64()?, look[what].as_f64()? * factor)));
    Curve::fine(series, results.number(series), points)
}

fn panels(results: &Results) -> Vec<Panel> {
    let curves = |what: &str, factor: f64| -> Vec<Curve> {
        results.series().into_iter().map(|series| over_time(results, series, what, factor)).collect()
    };
    let mut shares = curves("freshness", 100.0);
    shares.push(Curve::level("Paper: Query Fresh is above (section 4.5)", 3, 99.0));
    vec![
        Panel {
            ticks: Vec::new(),
            from_zero: false,
            ..Panel::over_numbers("Freshness", "seconds", "% of the primary's read view", shares)
        },
        Panel {
            ticks: Vec::new(),
            ..Panel::over_numbers("Log that the read view is behind", "seconds", "MB", curves("behind_bytes", 1e-6))
        },
    ]
}

fn beside(results: &Results) -> Vec<Beside> {
    let fresh = quarter("Query Fresh");
    let mean = |series: &str| results.at(series, 1.0, "freshness_mean");
    let mut all = vec![
        Beside {
            what: "Query Fresh, freshness, lowest".to_owned(),
            stated: "at least 99 %".to_owned(),
            source: "section 4.5, figure 7",
            here: percent(results.at(&fresh, 1.0, "freshness_min")),
        },
        Beside {
            what: "Query Fresh, freshness, mean".to_owned(),
            stated: "at least 99.5 %".to_owned(),
            source: GOAL,
            here: format!("{:.3} %", mean(&fresh) * 100.0),
        },
        Beside {
            what: "Query Fresh, freshness, 99 of 100 looks above".to_owned(),
            stated: "at least 99 %".to_owned(),
            source: GOAL,
            here: format!("{:.3} %", results.at(&fresh, 1.0, "freshness_p1") * 100.0),
        },
        Beside {
            what: "utilization under it".to_owned(),
            stated: "75 %".to_owned(),
            source: "section 4.5",
            here: percent(results.at(&fresh, 1.0, "utilization")),
        },
    ];
    for (series, stated) in [
        (quarter("Sync"), "falls behind, with a growing gap"),
        (quarter("Async"), "falls behind, with a growing gap"),
        (quarter("Logical"), "cannot reach the same level"),
        (ALL_REPLAY.to_owned(), "barely keeps up, with zero utilization"),
    ] {
        all.push(Beside {
            what: format!("{series}, freshness, mean; behind in the last quarter"),
            stated: stated.to_owned(),
            source: "section 4.5",
            here: format!("{:.3} %; {} MB", mean(&series) * 100.0, short(behind(results, &series).1 / 1e6)),
        });
    }
    all
}

/// The mean of bytes behind in the first and in the last quarter of the round in the middle.
fn behind(results: &Results, series: &str) -> (f64, f64) {
    let curve = over_time(results, series, "behind_bytes", 1.0);
    let quarter = curve.points.len().div_ceil(4);
    let mean = |points: &[Point]| points.iter().map(|point| point.y).sum::<f64>() / points.len() as f64;
    (mean(&curve.points[..quarter]), mean(&curve.points[curve.points.len() - quarter..]))
}

/// A megabyte more is not chance: a batch is half of one.
fn grows(first: f64, end: f64) -> bool {
    end > first * 1.5 && end - first > 1e6
}

fn differs(results: &Results) -> Vec<String> {
    let fresh = quarter("Query Fresh");
    let (mean, low) = (results.at(&fresh, 1.0, "freshness_mean"), results.at(&fresh, 1.0, "freshness_p1"));
    let mut out = vec![format!(
        "Query Fresh is {:.3} % fresh in the mean and {:.3} % in all but one of 100 looks while readers have {} of the \
         standby's processor time; the paper has at least 99 % with 75 %.",
        mean * 100.0,
        low * 100.0,
        percent(results.at(&fresh, 1.0, "utilization"))
    )];
    let (mut growing, mut steady) = (Vec::new(), Vec::new());
    for series in results.series().into_iter().filter(|series| *series != fresh) {
        let (first, end) = behind(results, series);
        let text =
            format!("{series} ({} MB in the first quarter, {} MB in the last)", short(first / 1e6), short(end / 1e6));
        if grows(first, end) { growing.push(text) } else { steady.push(text) }
    }
    if !growing.is_empty() {
        out.push(format!("The gap grows, as the paper's do, for {}.", list(&growing)));
    }
    if !steady.is_empty() {
        out.push(format!("The gap does not grow for {}.", list(&steady)));
    }
    let (first, end) = behind(results, &fresh);
    if grows(first, end) {
        let (first, end) = (short(first / 1e6), short(end / 1e6));
        out.push(format!("The gap of {fresh} grows from {first} to {end} MB, unlike in the paper."));
    }
    let replays = |series: &&str| results.at(series, 1.0, "replay_cpu_us_per_txn").is_finite();
    let replaying: Vec<&str> = results.series().into_iter().filter(replays).collect();
    let costs = replaying.iter().map(|series| {
        let cost = results.at(series, 1.0, "replay_cpu_us_per_txn");
        format!("{} us for {series}", short(cost))
    });
    out.push(format!(
        "Replay of one transaction takes, in processor time, {}; executing it on the primary takes {} us.",
        list(&costs.collect::<Vec<_>>()),
        short(results.at(&fresh, 1.0, "forward_cpu_us_per_txn"))
    ));
    let shares = replaying.iter().map(|series| {
        let (tps, share) = (results.at(series, 1.0, "tps"), replay_share(results, series, 1.0));
        format!("{} for {series}, whose primary does {}", percent(share), thousands(tps))
    });
    out.push(format!("Of the standby's processors replay had {}.", list(&shares.collect::<Vec<_>>())));
    out.push(noise(results));
    out
}
