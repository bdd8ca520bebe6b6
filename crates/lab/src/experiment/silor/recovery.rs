//! Section 6.4: how long it takes to recover from a crash shortly before a checkpoint is complete.

use super::{super::plot::places_of, *};

/// A workload, and what the paper states: gigabytes and seconds of checkpoint and log.
const WORKLOADS: [(&str, [(f64, f64); 2]); 2] =
    [("YCSB", [(36.0, 33.0), (64.0, 73.0)]), ("TPC-C", [(15.7, 17.0), (180.0, 194.0)])];

const COLUMNS: &[Column] = &[
    column("all_bytes", "/bytes"),
    column("all_s", "/seconds"),
    column("all_s_per_gb", "/seconds_per_gb"),
    column("checkpoint_bytes", "/checkpoint/amount"),
    column("checkpoint_s", "/checkpoint/seconds"),
    column("checkpoint_s_per_gb", "/checkpoint/seconds_per_gb"),
    column("log_bytes", "/log/amount"),
    column("log_s", "/log/seconds"),
    column("log_s_per_gb", "/log/seconds_per_gb"),
    column("index_entries", "/indexes/amount"),
    column("indexes_s", "/indexes/seconds"),
    column("cpu_s", "/cpu_seconds"),
];

/// The columns of a second for each gigabyte, and their names.
const RATES: [(&str, &str); 3] =
    [("checkpoint", "checkpoint_s_per_gb"), ("log", "log_s_per_gb"), ("all", "all_s_per_gb")];

pub(super) fn experiment() -> Experiment {
    Experiment {
        name: "silor/recovery",
        paper: PAPER,
        place: "section 6.4",
        shows: "recovery after a crash shortly before a checkpoint is complete",
        x: "threads",
        columns: COLUMNS,
        calibrate: false,
        sweep: |scale| {
            let threads = scale.processors;
            let options = format!("--crash --threads {} --replay-threads {threads} --dir /var/tmp", workers(scale));
            let records = if scale.quick { 50_000 } else { 4_000_000 };
            let warehouses = if scale.quick { 1 } else { 4 };
            let run = |series: &str, what: String| Run {
                series: series.to_owned(),
                x: threads as f64,
                arguments: format!("restart {options} {what}"),
            };
            vec![run("YCSB", format!("--records {records}")), run("TPC-C", format!("--warehouses {warehouses}"))]
        },
        scaled: |scale| {
            format!(
                "{} worker(s) run YCSB 70/30 or TPC-C while checkpoints are written, for at least as long as a run of \
                 the other figures takes. {DURABILITY}. The process ends without stopping anything when the third \
                 checkpoint, or a later one, has 95 % of the bytes of the one before; the system keeps what it has of \
                 the files in memory, so reading them costs less than from a disk. {} thread(s) recover.",
                workers(scale),
                scale.processors
            )
        },
        panels,
        beside,
        differs,
    }
}

/// Seconds for a gigabyte of checkpoint, of log, and of both in the paper.
fn stated([checkpoint, log]: [(f64, f64); 2]) -> [f64; 3] {
    let rate = |(gigabytes, seconds): (f64, f64)| seconds / gigabytes;
    [rate(checkpoint), rate(log), rate((checkpoint.0 + log.0, checkpoint.1 + log.1))]
}

fn panels(results: &Results) -> Vec<Panel> {
    let (mut rates, mut times) = (Vec::new(), Vec::new());
    for (series, there) in WORKLOADS {
        let (color, x) = (results.number(series), results.xs(series).first().copied().unwrap_or(f64::NAN));
        rates.push(results.across(series, (series, x), color, &RATES.map(|(_, column)| column), 1.0));
        let paper = places_of(stated(there));
        rates.push(Curve::stated(&format!("Paper: {series}, 32 threads (section 6.4)"), color + 2, &paper).apart());
        times.push(results.across(series, (series, x), color, &["checkpoint_s", "log_s", "indexes_s", "all_s"], 1.0));
    }
    let named = |names: &[&str], panel| Panel { ticks: places_of(names.iter().map(ToString::to_string)), ..panel };
    vec![
        named(&RATES.map(|(name, _)| name), Panel::over_numbers("Recovery", "", "seconds for a GB", rates)),
        named(
            &["checkpoint", "log", "indexes", "all"],
            Panel::over_numbers("Where the time is, here", "", "seconds", times),
        ),
    ]
}

fn beside(results: &Results) -> Vec<Beside> {
    let of_workload = |(series, there): (&str, [(f64, f64); 2])| {
        let row = |what: &str, stated, here| Beside {
            what: format!("{series}, {what}"),
            stated,
            source: "section 6.4",
            here,
        };
        let gigabytes = |column: &str| of(results, series, column) / 1e9;
        let [checkpoint, log] = there;
        let share = |checkpoint: f64, log: f64| percent(checkpoint / (checkpoint + log));
        [
            row(
                "checkpoint and log",
                format!("{} GB and {} GB", checkpoint.0, log.0),
                format!("{:.2} GB and {:.2} GB", gigabytes("checkpoint_bytes"), gigabytes("log_bytes")),
            ),
            row(
                "seconds for a GB of both",
                format!("{:.2} with 32 threads", stated(there)[2]),
                format!("{:.2}", of(results, series, "all_s_per_gb")),
            ),
            row(
                "the checkpoint's share of the time of both",
                share(checkpoint.1, log.1),
                share(of(results, series, "checkpoint_s"), of(results, series, "log_s")),
            ),
        ]
    };
    WORKLOADS.into_iter().flat_map(of_workload).collect()
}

fn differs(results: &Results) -> Vec<String> {
    let mut out = Vec::new();
    for (series, there) in WORKLOADS {
        let number = |column: &str| of(results, series, column);
        let threads = results.xs(series).first().copied().unwrap_or(f64::NAN);
        out.push(format!(
            "{series}: {:.0} MB of checkpoint and {:.0} MB of log are recovered in {:.2} s, {:.2} s for a GB with \
             {threads} thread(s); the paper takes {:.2} s with 32.",
            number("checkpoint_bytes") / 1e6,
            number("log_bytes") / 1e6,
            number("all_s"),
            number("all_s_per_gb"),
            stated(there)[2]
        ));
        let (checkpoint, log) = (number("checkpoint_s"), number("log_s"));
        let verdict = if log > checkpoint {
            "as in the paper, the log takes longer"
        } else {
            "unlike in the paper, the checkpoint takes longer"
        };
        out.push(format!(
            "Its checkpoint takes {checkpoint:.2} s and its log {log:.2} s: {verdict}. Building the indexes takes \
             {:.2} s at the end, where the paper's inserts keys as it reads.",
            number("indexes_s")
        ));
    }
    if results.scale.rounds > 1 {
        out.push(format!("Rounds differ by up to {} in their time.", percent(results.noise("all_s"))));
    }
    out
}
