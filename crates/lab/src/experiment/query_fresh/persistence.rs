//! Figure 12: what it costs to make the log persistent on standbys.

use super::{
    super::{
        frame::{Beside, Experiment, OF_TPCC, Run, Scale},
        results::Results,
    },
    *,
};

const IDEAL: &str = "Ideal";
const DRAM: &str = "No-NVRAM";

/// One thread persists, and does nothing else.
const OWN: &str = "CLWB, a thread of its own";
/// As the paper emulates CLWB: a delay as long as writing around the caches takes, and no
/// instruction.
const EMULATED: &str = "--standby-domain pmem --standby-persist-method eadr --standby-persist-delay-per-kib calibrated";

/// Variants: their medium, and how many threads replay.
const VARIANTS: [(&str, &str, u16); 9] = [
    (IDEAL, "--standby-domain pmem --standby-persist-method eadr", 1),
    (DRAM, "--standby-domain file", 1),
    ("CLWB/1", "--standby-domain pmem --standby-persist-method clwb", 1),
    ("CLWB/2", "--standby-domain pmem --standby-persist-method clwb", 2),
    (OWN, "--standby-domain pmem --standby-persist-method clwb --standby-persist-upon-replay false", 1),
    ("CLWB-EMU/1", EMULATED, 1),
    ("CLWB-EMU/2", EMULATED, 2),
    ("CLFLUSH/1", "--standby-domain pmem --standby-persist-method clflush", 1),
    ("CLFLUSH/2", "--standby-domain pmem --standby-persist-method clflush", 2),
];

fn of_ideal(results: &Results, series: &str, x: f64, column: &str) -> f64 {
    results.at(series, x, column) / results.at(IDEAL, x, column)
}

/// Over all numbers of standbys.
fn by_standbys(results: &Results, series: &str, column: &str) -> String {
    let shares =
        results.xs(series).into_iter().map(|x| format!("{} with {x}", percent(of_ideal(results, series, x, column))));
    shares.collect::<Vec<_>>().join(", ")
}

pub(super) fn experiment() -> Experiment {
    Experiment {
        name: "query-fresh/figure12",
        paper: PAPER,
        place: "figure 12, section 4.10",
        shows: "throughput of the primary and of its standbys' readers by how standbys persist the log",
        x: "standbys",
        columns: OF_TPCC,
        calibrate: true,
        sweep,
        scaled: |scale| {
            format!(
                "{} Of a standby's {STANDBY_THREADS} threads one or two replay (the paper's 4 and 8 of 16), the others \
                 read. CLWB and CLFLUSH are the processor's instructions where it has them, which the threads that \
                 replay execute where the series does not say otherwise; CLWB-EMU is a delay, as in the paper. The \
                 memory behind is DRAM, as in the paper. No-NVRAM writes to files in memory before it acknowledges. {}",
                places(scale),
                networks(scale)
            )
        },
        panels: |results| vec![primary(results), readers(results)],
        beside,
        differs,
    }
}

fn sweep(scale: &Scale) -> Vec<Run> {
    let mut runs = Vec::new();
    for count in scale.standbys() {
        for (series, medium, replaying) in VARIANTS {
            let policy = "--safety very-safe --fabric shm --replay pipelined --apply fresh";
            let options = format!("{policy} {medium} {}", divided(replaying));
            runs.push(run(series, f64::from(count), replicated(scale, count, 56.0, &options)));
        }
    }
    runs
}

fn beside(results: &Results) -> Vec<Beside> {
    let row = |series: &str, stated: &str| Beside {
        what: format!("{series}, primary, of Ideal"),
        stated: stated.to_owned(),
        source: "section 4.10",
        here: by_standbys(results, series, "tps"),
    };
    vec![
        row("CLWB-EMU/1", "close to Ideal up to four backups, up to 9 % slower beyond (CLWB-EMU/4)"),
        row("CLWB-EMU/2", "close to Ideal up to four backups, up to 9 % slower beyond (CLWB-EMU/8)"),
        row("CLWB/1", "-"),
        row("CLWB/2", "-"),
        row(OWN, "-"),
        row("CLFLUSH/1", "as much as 42 % overhead (CLFLUSH/4)"),
        row("CLFLUSH/2", "5 to 26 % overhead (CLFLUSH/8)"),
        Beside {
            what: "CLFLUSH/1, readers, of CLWB-EMU/1's".to_owned(),
            stated: "higher, because readers see older versions".to_owned(),
            source: "section 4.10",
            here: percent(results.at("CLFLUSH/1", 1.0, "standby_tps") / results.at("CLWB-EMU/1", 1.0, "standby_tps")),
        },
    ]
}

fn differs(results: &Results) -> Vec<String> {
    let ideal = |x: f64| format!("{} with {x}", thousands(results.at(IDEAL, x, "tps")));
    let rates: Vec<String> = results.xs(IDEAL).into_iter().map(ideal).collect();
    let mut out = vec![format!("The ideal variant does, by standbys, {}.", list(&rates))];
    for (series, low, words) in [
        ("CLWB-EMU/1", 0.91, "at most 9 % slower"),
        ("CLWB/1", 0.91, "at most 9 % slower when emulated"),
        ("CLFLUSH/1", 0.58, "up to 42 % slower"),
        ("CLFLUSH/2", 0.74, "5 to 26 % slower"),
    ] {
        let shares = results.xs(series).into_iter().map(|x| of_ideal(results, series, x, "tps"));
        let worst = shares.min_by(f64::total_cmp).unwrap_or(f64::NAN);
        let verdict = if worst < low { "more than there" } else { "no more than there" };
        out.push(format!(
            "{series} keeps at least {} of it ({words} in the paper): its delays cost {verdict}.",
            percent(worst)
        ));
    }
    out.push(format!("No-NVRAM keeps, by standbys, {}.", by_standbys(results, DRAM, "tps")));
    out.push(format!("A thread of its own for CLWB keeps, by standbys, {}.", by_standbys(results, OWN, "tps")));
    let of_all = |figure: &dyn Fn(&str) -> String| {
        let figures: Vec<String> =
            results.series().iter().map(|series| format!("{series} {}", figure(series))).collect();
        figures.join(", ")
    };
    out.push(format!(
        "Readers of one standby do, of the ideal variant's, {}.",
        of_all(&|series| percent(of_ideal(results, series, 1.0, "standby_tps")))
    ));
    out.push(format!(
        "Replay with what it persists takes, for a transaction, {}.",
        of_all(&|series| format!("{:.2} us", results.at(series, 1.0, "replay_cpu_us_per_txn")))
    ));
    out.push(format!(
        "There is less to persist here than in the paper: one thread logs {} MB/s, its 16 log {:.0} times as much.",
        short(results.scale.log_bytes_per_s / 1e6),
        PAPER_LOG_RATE / results.scale.log_bytes_per_s
    ));
    out.push(noise(results));
    out
}
