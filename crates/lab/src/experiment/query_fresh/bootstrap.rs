//! Section 4.8: how long a new standby takes to join.

use super::{
    super::{
        frame::{Beside, Experiment, OF_JOIN, Scale},
        plot::{Curve, Panel, places_of},
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
        scaled,
        panels,
        beside,
        differs,
    }
}

fn scaled(scale: &Scale) -> String {
    format!(
        "{} One warehouse instead of 16; a checkpoint is written when it is loaded, then TPC-C runs for {} s and \
         continues while the standby joins. The paper's new backup has 16 threads for the checkpoint and 8 for the \
         log, this one has the processors that the primary leaves; the paper does not say what its primary did at \
         that time.",
        places(scale),
        scale.warmup + scale.seconds
    )
}

fn panels(results: &Results) -> Vec<Panel> {
    let columns = ["checkpoint_bytes_per_s", "log_bytes_per_s"];
    let stated = places_of(PAPER_RATES.map(|(rate, _)| rate / 1e6));
    let a_thread = places_of(PAPER_RATES.map(|(rate, threads)| rate / threads / 1e6));
    let reading = vec![
        results.across("here", (JOINING, 1.0), 0, &columns, 1e-6),
        Curve::stated("Paper: 16 threads, 8 threads (section 4.8)", 1, &stated).apart(),
        Curve::stated("Paper: the same, of each thread", 2, &a_thread).apart(),
    ];
    let phases = ["tps_before", "tps_joining", "tps_after"];
    let kept = vec![
        results.across("TPC-C on the primary", (JOINING, 1.0), 0, &phases, 100.0 / at(results, "tps_before")),
        Curve::level("wanted while a standby joins", 1, 90.0),
    ];
    vec![
        Panel {
            ticks: places_of(["checkpoint", "log"].map(str::to_owned)),
            ..Panel::over_numbers("Reading what there is", "phase", "MB/s", reading)
        },
        Panel {
            ticks: places_of(["before", "while it joins", "afterwards"].map(str::to_owned)),
            ..Panel::over_numbers("The primary", "", "% of its throughput before", kept)
        },
    ]
}

fn beside(results: &Results) -> Vec<Beside> {
    let row = |what: &str, stated: String, source, here| Beside { what: what.to_owned(), stated, source, here };
    let phase = |name: &str| {
        let of = |unit: &str| at(results, &format!("{name}_{unit}"));
        format!("{} MB in {:.2} s, {}", short(of("bytes") / 1e6), of("s"), megabytes(of("bytes_per_s")))
    };
    let [checkpoint, log] = PAPER_RATES.map(|(rate, _)| megabytes(rate));
    vec![
        row("checkpoint", format!("1.8 GB in 5.8 s, {checkpoint}, 16 threads"), "section 4.8", phase("checkpoint")),
        row("log since then", format!("~6 GB in 24.21 s, {log}, 8 threads"), "section 4.8", phase("log")),
        row(
            "until it serves; until it is in step",
            "~30 s".to_owned(),
            "section 4.8",
            format!("{:.2} s; {:.2} s", at(results, "serving_s"), at(results, "joined_s")),
        ),
        row(
            "throughput of the primary while it joins, of before",
            "at least 90 %".to_owned(),
            GOAL,
            percent(at(results, "kept")),
        ),
    ]
}

fn differs(results: &Results) -> Vec<String> {
    let there = |(rate, threads): (f64, f64)| {
        format!(
            "{} with {threads} threads in the paper, {} for each of them",
            megabytes(rate),
            megabytes(rate / threads)
        )
    };
    let (log, indexes) = (at(results, "log_s"), at(results, "indexes_s"));
    let (kept, after) = (at(results, "kept"), at(results, "tps_after") / at(results, "tps_before"));
    let verdict = if kept >= 0.9 { "within" } else { "short of" };
    let mut out = vec![
        format!(
            "The standby reads {} MB of checkpoint and {} MB of log and serves after {:.2} s; it is in step after \
             {:.2} s.",
            short(at(results, "checkpoint_bytes") / 1e6),
            short(at(results, "log_bytes") / 1e6),
            at(results, "serving_s"),
            at(results, "joined_s")
        ),
        format!(
            "It reads the checkpoint at {}, against {}.",
            megabytes(at(results, "checkpoint_bytes_per_s")),
            there(PAPER_RATES[0])
        ),
        format!(
            "It reads the log at {}, against {}.",
            megabytes(at(results, "log_bytes_per_s")),
            there(PAPER_RATES[1])
        ),
        format!(
            "It builds the indexes, {} M entries, at the end in {indexes:.2} s, where the paper's inserts keys as it \
             replays: log and indexes together are {} of log.",
            short(at(results, "index_entries") / 1e6),
            megabytes(at(results, "log_bytes") / (log + indexes))
        ),
        format!(
            "While it joins the primary does {} of its {} before, {verdict} the 90 % that are wanted; with the standby \
             in step it does {}.",
            percent(kept),
            thousands(at(results, "tps_before")),
            percent(after)
        ),
    ];
    if results.scale.rounds > 1 {
        let noise = results.noise("kept");
        out.push(format!("Rounds differ by up to {} in what the primary keeps.", percent(noise)));
    }
    out
}
