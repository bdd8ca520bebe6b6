//! Figure 4: how a checkpoint comes to the disk.

use super::*;

const ONCE: &str = "One sync at the end";
const SLEEPS: &str = "One sync at the end, with sleeps";
const OFTEN: &str = "SiloR (a sync each 32 MB)";

/// Bytes between syncs, and the share of a processor that a checkpointer takes: it sleeps for the
/// rest.
const VARIANTS: [(&str, u32, u32); 3] = [(ONCE, 0, 100), (SLEEPS, 0, 25), (OFTEN, 32 << 20, 100)];

pub(super) fn figure_4() -> Experiment {
    Experiment {
        name: "silor/figure4",
        place: "figure 4, section 6.2",
        shows: "YCSB 70/30 over time, by how often a checkpoint is synced",
        sweep: |scale| {
            let run = |(series, bytes, percent)| {
                let syncs = format!("--checkpoint-sync-bytes {bytes} --checkpoint-cpu-percent {percent}");
                one(series, workers(scale), &ycsb(scale), &format!("{DISK} {CHECKPOINTS} {syncs}"))
            };
            VARIANTS.map(run).to_vec()
        },
        scaled: |scale| {
            format!(
                "{} worker(s) of {} processor(s). {DURABILITY}; with sleeps it takes at most a quarter of a processor, \
                 otherwise as much as it can get.",
                workers(scale),
                scale.processors
            )
        },
        beside,
        differs,
        ..over_time()
    }
}

fn slowest(results: &Results, series: &str) -> f64 {
    of(results, series, "slowest_half_second")
}

/// The longest latency, in milliseconds.
fn longest(results: &Results, series: &str) -> f64 {
    of(results, series, "latency_max_us") / 1e3
}

fn beside(results: &Results) -> Vec<Beside> {
    let row = |series: &str, stated: &str| Beside {
        what: format!("{series}: slowest half second, of the mean; longest latency"),
        stated: stated.to_owned(),
        source: "figure 4",
        here: format!("{}; {:.0} ms", percent(slowest(results, series)), longest(results, series)),
    };
    vec![
        row(ONCE, "extremely bursty; latency of up to 2 s"),
        row(SLEEPS, "less bursty, but bursty"),
        row(OFTEN, "almost entirely without bursts"),
    ]
}

fn differs(results: &Results) -> Vec<String> {
    let (shares, times) = (
        VARIANTS.map(|(series, ..)| percent(slowest(results, series))),
        VARIANTS.map(|(series, ..)| format!("{:.0} ms", longest(results, series))),
    );
    // By more than one run differs from the next.
    let steadier = |one: &str, other: &str| {
        slowest(results, one) > slowest(results, other) + 0.05 && longest(results, one) < longest(results, other) * 0.9
    };
    let often = if steadier(OFTEN, ONCE) {
        "As in the paper, regular syncs make it steadier."
    } else {
        "Unlike in the paper, regular syncs do not make both steadier: there is less to write here than there."
    };
    let sleeps = if steadier(SLEEPS, ONCE) {
        "As in the paper, sleeps alone help, too."
    } else {
        "Unlike in the paper, sleeps alone do not make both steadier."
    };
    vec![
        format!(
            "With one sync at the end, with sleeps before it, and with a sync each 32 MB the slowest half second has \
             {} of the mean throughput.",
            list(&shares)
        ),
        format!("The longest commits take {}.", list(&times)),
        often.to_owned(),
        sleeps.to_owned(),
        noise(results),
    ]
}
