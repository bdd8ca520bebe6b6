//! Figure 11: how long a commit takes.

use super::{
    super::{
        frame::{Beside, Experiment, OF_TPCC, Run, Scale},
        plot::{Curve, Panel},
        results::Results,
    },
    policy::with_policy,
    *,
};

/// A group commit begins when this much has come together: 4 MB in the paper, here as much as comes
/// in the same time.
fn boundary(scale: &Scale) -> String {
    let bytes = (4.0 * 1024.0 * 1024.0 * scale.log_bytes_per_s / PAPER_LOG_RATE).max(4096.0);
    format!("--batch-bytes {bytes:.0} --interval-us 20000")
}

const POLICIES: [(&str, &str); 2] = [("Pipelined", "pipelined"), ("Synchronous", "synchronous")];
const THREADS: [u16; 2] = [1, 2];

/// The paper's standalone latency, in milliseconds.
const PAPER_STANDALONE: f64 = 3.38;

fn times(results: &Results, series: &str, x: f64) -> f64 {
    results.at(series, x, "latency_p50_us") / results.at(STANDALONE, 0.0, "latency_p50_us")
}

/// The range of a policy's latencies, relative to standalone.
fn range(results: &Results, policy: &str) -> (f64, f64) {
    let all = beginning(results, policy)
        .into_iter()
        .flat_map(|series| results.xs(series).into_iter().map(move |x| (series, x)))
        .map(|(series, x)| times(results, series, x))
        .filter(|times| times.is_finite());
    all.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), times| (low.min(times), high.max(times)))
}

pub(super) fn experiment() -> Experiment {
    Experiment {
        name: "query-fresh/figure11",
        paper: PAPER,
        place: "figure 11, section 4.9",
        shows: "commit latency on the primary, pipelined and synchronous",
        x: "standbys",
        columns: OF_TPCC,
        calibrate: true,
        sweep,
        scaled: |scale| {
            format!(
                "{} A standby's 16 threads are {STANDBY_THREADS} here: those that do not replay read. \
                 A group commit begins with as many bytes as this log has in the time in which the \
                 paper's has 4 MB: {}. {}",
                places(scale),
                boundary(scale),
                networks(scale)
            )
        },
        panels,
        beside,
        differs,
    }
}

fn sweep(scale: &Scale) -> Vec<Run> {
    let boundary = boundary(scale);
    let mut alone = standalone(scale);
    alone.arguments = format!("{} {boundary}", alone.arguments);
    let mut runs = vec![alone];
    for count in scale.standbys() {
        for (series, policy) in POLICIES {
            for threads in THREADS {
                let options = format!("{} {} {boundary}", with_policy(policy), divided(threads));
                let arguments = replicated(scale, count, 56.0, &options);
                runs.push(run(format!("{series}/{threads}"), f64::from(count), arguments));
            }
        }
    }
    runs
}

fn panels(results: &Results) -> Vec<Panel> {
    let relative = |series| results.relative(series, "latency_p50_us", (STANDALONE, 0.0), 1.0);
    let mut ratios: Vec<Curve> = results.series().into_iter().map(relative).collect();
    ratios.push(Curve::level("Paper: Pipelined, at most, before the network is full (section 4.9)", 1, 1.16));
    ratios.push(Curve::level("Paper: Synchronous, lowest (section 4.9)", 3, 1.04));
    ratios.push(Curve::level("Paper: Synchronous, highest (section 4.9)", 3, 4.74));
    vec![
        Panel::over_numbers("Commit latency, p50", "standbys", "ms", results.curves("latency_p50_us", 1e-3)),
        Panel::over_numbers("The same, relative to standalone", "standbys", "times standalone", ratios),
    ]
}

fn beside(results: &Results) -> Vec<Beside> {
    let (pipelined, synchronous) = (range(results, "Pipelined"), range(results, "Synchronous"));
    let one = THREADS.map(|threads| times(results, &format!("Pipelined/{threads}"), 1.0));
    let row = |what: &str, stated: String, source, here| Beside { what: what.to_owned(), stated, source, here };
    let alone = results.at(STANDALONE, 0.0, "latency_p50_us") / 1e3;
    vec![
        row("standalone", format!("{PAPER_STANDALONE} ms"), "section 4.9", format!("{alone:.2} ms")),
        row(
            "Pipelined, all points, relative to standalone",
            "at most 1.16x before the network is full".to_owned(),
            "section 4.9",
            format!("{:.2}x to {:.2}x", pipelined.0, pipelined.1),
        ),
        row(
            "Pipelined, one standby",
            "at most 1.16x".to_owned(),
            GOAL,
            format!("{:.2}x with one thread, {:.2}x with two", one[0], one[1]),
        ),
        row(
            "Synchronous, all points, relative to standalone",
            "1.04x to 4.74x".to_owned(),
            "section 4.9",
            format!("{:.2}x to {:.2}x", synchronous.0, synchronous.1),
        ),
    ]
}

fn differs(results: &Results) -> Vec<String> {
    let (pipelined, synchronous) = (range(results, "Pipelined"), range(results, "Synchronous"));
    let alone = results.at(STANDALONE, 0.0, "latency_p50_us") / 1e3;
    let one = times(results, "Pipelined/1", 1.0);
    let verdict = if one <= 1.16 { "within" } else { "beyond" };
    let mut out = vec![
        format!("Half of the standalone commits take less than {alone:.2} ms ({PAPER_STANDALONE} ms in the paper)."),
        format!(
            "With one pipelined standby it is {one:.2} times that, {verdict} the paper's 1.16; over all standbys and \
             threads {:.2} to {:.2} times.",
            pipelined.0, pipelined.1
        ),
        format!(
            "Synchronous replay takes {:.2} to {:.2} times as long as standalone, in the paper 1.04 to 4.74 times.",
            synchronous.0, synchronous.1
        ),
    ];
    let most = last(results, "Pipelined/1");
    if pipelined.1 > 1.16 {
        out.push(format!(
            "Replay alone takes {} of the processors that the {most} standby(s) share; the paper's standbys have 16 \
             cores each.",
            percent(replay_share(results, "Pipelined/1", most))
        ));
    }
    out.push(format!(
        "Throughput with {most} standby(s) is {} of standalone with Pipelined/1 and {} with Synchronous/1.",
        percent(kept(results, "Pipelined/1", most)),
        percent(kept(results, "Synchronous/1", most))
    ));
    out.push(noise(results));
    out
}
