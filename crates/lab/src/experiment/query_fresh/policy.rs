//! Figure 8: when a standby replays.

use super::{
    super::{
        frame::{Beside, Experiment, OF_TPCC, Run, Scale},
        results::Results,
    },
    *,
};

const NONE: &str = "NoReplay";
pub(super) const SYNCHRONOUS: &str = "Synchronous";
pub(super) const PIPELINED: &str = "Pipelined";

/// Options of Query Fresh, with another policy.
pub(super) fn with_policy(policy: &str) -> String {
    FRESH.replace("--replay pipelined", &format!("--replay {policy}"))
}

/// How a standby's threads are scaled, in words.
pub(super) fn threads_are_scaled(scale: &Scale) -> String {
    format!(
        "{} A standby's 16 threads are {STANDBY_THREADS} here: those that do not replay read, with Stock-Level and \
         Order-Status in turn. {}",
        places(scale),
        networks(scale)
    )
}

pub(super) fn experiment() -> Experiment {
    Experiment {
        name: "query-fresh/figure8",
        paper: PAPER,
        place: "figure 8, section 4.6",
        shows: "throughput of the primary and of its standbys' readers by replay policy",
        x: "standbys",
        columns: OF_TPCC,
        calibrate: true,
        sweep,
        scaled: |scale| {
            format!(
                "{} Standbys join when everything is loaded, as the paper's start warm; at 2-safe, so that it can be \
                 loaded without them.",
                threads_are_scaled(scale)
            )
        },
        panels: |results| vec![primary(results), readers(results)],
        beside,
        differs,
    }
}

fn sweep(scale: &Scale) -> Vec<Run> {
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
}

fn beside(results: &Results) -> Vec<Beside> {
    let most = last(results, PIPELINED);
    let row = |what: String, stated: &str, source, here| Beside { what, stated: stated.to_owned(), source, here };
    let against = |x: f64, one: &str, other: &str, column: &str| {
        percent(results.at(one, x, column) / results.at(other, x, column))
    };
    let hidden = || against(1.0, PIPELINED, NONE, "tps");
    vec![
        row("Pipelined / NoReplay, primary, one standby".to_owned(), "similar", "section 4.6", hidden()),
        row("the same".to_owned(), "at least 97 %", GOAL, hidden()),
        row(
            format!("Synchronous / Pipelined, primary, {most} standby(s)"),
            "does not scale after two backups",
            "section 4.6",
            against(most, SYNCHRONOUS, PIPELINED, "tps"),
        ),
        row(
            format!("Pipelined / NoReplay, readers, {most} standby(s)"),
            "NoReplay is an upper bound",
            "section 4.6",
            against(most, PIPELINED, NONE, "standby_tps"),
        ),
        row(
            format!("Synchronous / Pipelined, readers, {most} standby(s)"),
            "lower: fewer threads are left to read",
            "section 4.6",
            against(most, SYNCHRONOUS, PIPELINED, "standby_tps"),
        ),
    ]
}

fn differs(results: &Results) -> Vec<String> {
    let most = last(results, PIPELINED);
    let mut out = Vec::new();
    for x in if most > 1.5 { vec![1.0, most] } else { vec![1.0] } {
        let of = |series: &str| results.at(series, x, "tps");
        let (pipelined, synchronous) = (of(PIPELINED) / of(NONE), of(SYNCHRONOUS) / of(NONE));
        let verdict = if pipelined >= 0.97 { "replay is hidden" } else { "replay is not hidden" };
        let slower = if synchronous < pipelined - 0.02 {
            "synchronous replay costs more, as in the paper"
        } else {
            "synchronous replay does not cost more, unlike in the paper; here a worker executes while its commits wait"
        };
        out.push(format!(
            "With {x} standby(s) Pipelined keeps {} of the throughput of NoReplay ({}), so {verdict}; Synchronous \
             keeps {}: {slower}.",
            percent(pipelined),
            thousands(of(NONE)),
            percent(synchronous)
        ));
        let wait = |series: &str| results.at(series, x, "latency_p50_us") / 1e3;
        out.push(format!(
            "Half of the commits take less than {:.2} ms without replay, {:.2} ms with Pipelined, {:.2} ms with \
             Synchronous.",
            wait(NONE),
            wait(PIPELINED),
            wait(SYNCHRONOUS)
        ));
    }
    let reads = |series: &str| thousands(results.at(series, most, "standby_tps"));
    let share = |series: &str| percent(results.at(series, most, "utilization"));
    out.push(format!(
        "All readers of {most} standby(s) do {} in NoReplay, {} in Pipelined, {} in Synchronous; they have {}, {} and \
         {} of the standbys' processor time.",
        reads(NONE),
        reads(PIPELINED),
        reads(SYNCHRONOUS),
        share(NONE),
        share(PIPELINED),
        share(SYNCHRONOUS)
    ));
    if results.xs(PIPELINED).len() > 1 {
        let grows = results.at(PIPELINED, most, "standby_tps") / results.at(PIPELINED, 1.0, "standby_tps");
        out.push(format!(
            "From one standby to {most} Pipelined's readers do {grows:.2} times as much: all standbys share the same \
             {} processor(s), where the paper's have a machine each.",
            results.scale.processors.saturating_sub(1).max(1)
        ));
    }
    out.push(noise(results));
    out
}
