//! Figure 6: the primary's throughput by what is shipped and when.

use super::{
    super::{
        frame::{Beside, Experiment, OF_TPCC, Run, Scale},
        plot::{Curve, Panel},
        results::Results,
    },
    *,
};

/// The four variants of section 4.3, and their options.
pub(super) const VARIANTS: [(&str, f64, &str); 4] = [
    ("Sync", 10.0, "--safety very-safe --fabric tcp --apply full"),
    ("Async", 10.0, "--safety 1-safe --fabric tcp --apply full"),
    ("Logical", 10.0, "--safety very-safe --fabric tcp --apply command"),
    ("Query Fresh", 56.0, FRESH),
];

pub(super) fn experiment() -> Experiment {
    Experiment {
        name: "query-fresh/figure6",
        paper: PAPER,
        place: "figure 6, section 4.5",
        shows: "throughput of the primary by the kind of log shipping",
        x: "standbys",
        columns: OF_TPCC,
        calibrate: true,
        sweep,
        scaled: |scale| format!("{} {} {}", places(scale), THREADS, networks(scale)),
        panels,
        beside,
        differs,
    }
}

fn sweep(scale: &Scale) -> Vec<Run> {
    let mut runs = vec![standalone(scale)];
    for count in scale.standbys() {
        for (series, gbit, options) in VARIANTS {
            let options = format!("{options} {}", divided(1));
            runs.push(run(series, f64::from(count), replicated(scale, count, gbit, &options)));
        }
    }
    runs
}

fn panels(results: &Results) -> Vec<Panel> {
    let of_alone = |series: &str| results.relative(series, "tps", (STANDALONE, 0.0), 100.0);
    let mut shares: Vec<Curve> = results.series().into_iter().map(of_alone).collect();
    let network = |y: f64| [(1.0, y / 624.74 * 100.0)];
    shares.push(Curve::stated("Paper: 10 Gb/s, 16 threads, no replay (table 1)", 1, &network(336.20)));
    shares.push(Curve::stated("Paper: 56 Gb/s, 16 threads, no replay (table 1)", 4, &network(586.80)));
    vec![
        primary(results),
        Panel::over_numbers("The same, of standalone", "standbys", "% of standalone throughput", shares),
    ]
}

fn beside(results: &Results) -> Vec<Beside> {
    let compared = |what: &str, stated: &str, series: &str| {
        let shares = results.xs(series).into_iter().map(|x| format!("{} with {x}", percent(kept(results, series, x))));
        Beside {
            what: format!("{what}, of standalone, by standbys"),
            stated: stated.to_owned(),
            source: "section 4.5",
            here: shares.collect::<Vec<_>>().join(", "),
        }
    };
    vec![
        compared("Query Fresh", "up to five synchronous backups while maintaining high performance", "Query Fresh"),
        compared("Sync", "cannot support any synchronous backups without significantly slowing down", "Sync"),
        compared("Async", "high regardless of the number of backups", "Async"),
        compared("Logical", "high across the x-axis", "Logical"),
    ]
}

fn differs(results: &Results) -> Vec<String> {
    let most = last(results, "Query Fresh");
    let mut out = Vec::new();
    let mut shares: Vec<(&str, f64)> = VARIANTS.iter().map(|(name, ..)| (*name, kept(results, name, most))).collect();
    shares.sort_by(|one, other| other.1.total_cmp(&one.1));
    let figures: Vec<String> = shares.iter().map(|(name, share)| format!("{name} {}", percent(*share))).collect();
    out.push(format!(
        "With {most} standby(s) the primary keeps, of {} alone: {}.",
        thousands(results.at(STANDALONE, 0.0, "tps")),
        list(&figures)
    ));
    let position = |name: &str| shares.iter().position(|(it, _)| *it == name).unwrap_or(0);
    out.push(if position("Sync") == shares.len() - 1 {
        "As in the paper, Sync is the slowest of the four.".to_owned()
    } else {
        format!("Unlike in the paper, where Sync is the slowest, here it is {}.", shares[shares.len() - 1].0)
    });
    if kept(results, "Sync", most) < 0.9 {
        out.push(format!("What holds Sync back is {}.", held_back(results, ("Sync", most), (STANDALONE, 0.0))));
    }
    for (series, why) in [
        ("Query Fresh", "the paper's keeps its rate up to four or five backups"),
        ("Logical", "the paper's keeps high performance, because a command is small"),
        ("Async", "the paper's keeps high performance, because no commit waits"),
    ] {
        let (first, end) = (kept(results, series, 1.0), kept(results, series, most));
        if end >= 0.9 {
            out.push(format!("{series} keeps at least nine tenths ({}); {why}.", percent(end)));
            continue;
        }
        let (first_share, end_share) = (percent(first), percent(end));
        out.push(if most < 1.5 {
            format!("{series} keeps {end_share}, although {why}.")
        } else if end < first {
            format!("{series} falls from {first_share} with one standby to {end_share} with {most}, although {why}.")
        } else {
            format!("{series} keeps {first_share} with one standby and {end_share} with {most}, although {why}.")
        });
        out.push(format!("That is {}.", held_back(results, (series, most), (STANDALONE, 0.0))));
        out.push(replay_sentence(results, series));
    }
    let bytes = |series: &str| results.at(series, 1.0, "log_bytes_per_txn");
    if bytes("Logical").is_finite() {
        out.push(format!(
            "A transaction is {:.0} bytes in the log of Sync and {:.0} in that of Logical.",
            bytes("Sync"),
            bytes("Logical")
        ));
    }
    out.push(noise(results));
    out
}
