//! Figure 9 and table 2: where processor time is, and latency.

use super::{
    super::{frame::Beside, plot::places_of},
    *,
};

/// Roles, and what figure 9 calls them.
const ROLES: [(&str, &str); 6] = [
    ("logic", "transaction logic"),
    ("build", "making lists or records"),
    ("send", "sending"),
    ("receive", "receiving"),
    ("replay", "replaying"),
    ("other", "other"),
];

const WITH_ROLES: &[Column] = &[
    column("tps", "/tps"),
    column("executed", "/executed"),
    column("cpu_us_per_txn", "/cpu_us_per_txn/all"),
    column("logic_cpu_us_per_txn", "/cpu_us_per_txn/logic"),
    column("build_cpu_us_per_txn", "/cpu_us_per_txn/build"),
    column("send_cpu_us_per_txn", "/cpu_us_per_txn/send"),
    column("receive_cpu_us_per_txn", "/cpu_us_per_txn/receive"),
    column("replay_cpu_us_per_txn", "/cpu_us_per_txn/replay"),
    column("other_cpu_us_per_txn", "/cpu_us_per_txn/other"),
];

const TWO: [(&str, &str); 2] = [SCHEMES[0], SCHEMES[1]];

/// Processor time of a role, and of all.
fn time(results: &Results, series: &str, x: f64, role: &str) -> f64 {
    results.at(series, x, &format!("{role}_cpu_us_per_txn"))
}

fn share(results: &Results, series: &str, x: f64, role: &str) -> f64 {
    let all: f64 = ROLES.iter().map(|(role, _)| time(results, series, x, role)).sum();
    time(results, series, x, role) / all
}

pub(super) fn figure_9() -> Experiment {
    Experiment {
        name: "active-memory/figure9",
        place: "figure 9, section 6.2",
        shows: "processor time by role, log shipping and Active-Memory, by the share of transactions that write",
        x: "percent",
        columns: WITH_ROLES,
        sweep: |scale| {
            let shares = some(scale, &[0.0, 20.0, 40.0, 60.0, 80.0, 100.0]);
            runs(scale, &TWO, &shares, |share| format!("--nodes {NODES} --writers {share} --roles"))
        },
        panels: |results| {
            let panel = |(name, _): &(&str, &str)| {
                let curve = |(color, (role, label)): (usize, &(&str, &str))| {
                    let of = |x: f64| (x, share(results, name, x, role) * 100.0);
                    let points = results.xs(name).into_iter().map(of).filter(|(_, share)| share.is_finite());
                    let points = points.map(|(x, y)| super::super::plot::Point { x, y, low: y, high: y });
                    Curve::measured(label, color, points.collect())
                };
                let curves = ROLES.iter().enumerate().map(curve).collect();
                Panel::over_numbers(name, "transactions that write, percent", "percent of processor time", curves)
            };
            TWO.iter().map(panel).collect()
        },
        beside: |results| {
            let row = |name: &str, x: f64, role: &str, stated: &str| Beside {
                what: format!("{name}, {x} % write: share of {role}"),
                stated: stated.to_owned(),
                source: "section 6.2",
                here: percent(share(results, name, x, role)),
            };
            vec![
                row(SHIPPING, 0.0, "logic", "80 %"),
                row(MEMORY, 0.0, "logic", "80 %"),
                row(MEMORY, 100.0, "replay", "0 %"),
                row(SHIPPING, 100.0, "replay", "significant"),
            ]
        },
        differs: differs_9,
        ..base()
    }
}

/// What figure 9 shows here.
fn differs_9(results: &Results) -> Vec<String> {
    let logic = |name| share(results, name, 100.0, "logic");
    let verdict = if logic(MEMORY) > logic(SHIPPING) {
        "Active-Memory leaves more of it to logic, as in the paper"
    } else {
        "Active-Memory does not leave more of it to logic, unlike in the paper"
    };
    let backups = |name: &str| ["receive", "replay"].iter().map(|role| time(results, name, 100.0, role)).sum::<f64>();
    let coordinators = |name: &str| ["build", "send"].iter().map(|role| time(results, name, 100.0, role)).sum::<f64>();
    vec![
        format!(
            "When all transactions write, their logic is {} of processor time with Active-Memory and {} with \
             log shipping: {verdict}.",
            percent(logic(MEMORY)),
            percent(logic(SHIPPING))
        ),
        format!(
            "Receiving and replaying take {:.2} us of a transaction with log shipping and {:.2} us with \
             Active-Memory; making lists or records and sending them {:.2} and {:.2} us.",
            backups(SHIPPING),
            backups(MEMORY),
            coordinators(SHIPPING),
            coordinators(MEMORY)
        ),
        "Over shared memory it is the sender that copies, which a card would do: that is part of sending.".to_owned(),
        noise(results),
    ]
}

/// Median latency in microseconds, by scheme, in the order of [`SCHEMES`].
const LATENCIES: [f64; 4] = [121.0, 142.0, 85.0, 1253.0];

pub(super) fn table_2() -> Experiment {
    Experiment {
        name: "active-memory/table2",
        place: "table 2, section 6.2",
        shows: "median latency, transactions of one partition, five nodes, three copies",
        x: "nodes",
        sweep: |scale| runs(scale, &SCHEMES, &[NODES], |nodes| format!("--nodes {nodes}")),
        panels: |results| {
            let p50 = |name: &str| results.at(name, NODES, "latency_p50_us");
            let of = |relative: &dyn Fn(usize) -> f64| -> Vec<(f64, f64)> {
                places_of(0..SCHEMES.len()).into_iter().map(|(at, scheme)| (at, relative(scheme))).collect()
            };
            let here: Vec<_> = of(&|scheme| p50(SCHEMES[scheme].0) / p50(SHIPPING));
            let here = here.into_iter().filter(|(_, y)| y.is_finite());
            let here = here.map(|(x, y)| super::super::plot::Point { x, y, low: y, high: y }).collect();
            let there = of(&|scheme| LATENCIES[scheme] / LATENCIES[1]);
            let curves =
                vec![Curve::measured("here", 0, here).apart(), Curve::stated("Paper (table 2)", 1, &there).apart()];
            let ticks = places_of(SCHEMES.map(|(name, _)| name.to_owned()));
            vec![Panel { ticks, ..Panel::over_numbers("Median latency", "", "times log shipping's", curves) }]
        },
        beside: |results| {
            let row = |(scheme, stated): (&(&str, &str), f64)| Beside {
                what: format!("{}, median latency", scheme.0),
                stated: format!("{stated} us"),
                source: "table 2",
                here: format!("{:.1} us", results.at(scheme.0, NODES, "latency_p50_us"))
                    .replace("NaN us", "not measured"),
            };
            SCHEMES.iter().zip(LATENCIES).map(row).collect()
        },
        differs: |results| {
            let p50 = |name: &str| results.at(name, NODES, "latency_p50_us");
            let share = p50(MEMORY) / p50(SHIPPING);
            let calvin = p50(CALVIN) / p50(SHIPPING);
            vec![
                format!(
                    "Active-Memory's median latency is {:.1} us, {} of log shipping's {:.1} us, {} in the paper ({}).",
                    p50(MEMORY),
                    percent(share),
                    p50(SHIPPING),
                    than(share, LATENCIES[0] / LATENCIES[1], 0.05),
                    percent(LATENCIES[0] / LATENCIES[1])
                ),
                format!(
                    "Calvin's is {calvin:.1} times log shipping's, {} the paper's {:.1} times: it waits for epochs.",
                    than(calvin, LATENCIES[3] / LATENCIES[1], 1.0),
                    LATENCIES[3] / LATENCIES[1]
                ),
                format!("H-Store's is {:.1} us.", p50(HSTORE)),
                "All nodes share the processors of one machine, which is most of every latency here.".to_owned(),
                noise(results),
            ]
        },
        ..base()
    }
}
