//! Table 3: what goes over the network.

use super::{
    super::{
        frame::Beside,
        plot::{Curve, Panel, places_of},
    },
    *,
};

const OPTIMIZED: &str = "Calvin Optimized";
const SHIPPING_PACKED: &str = "Log shipping, LZ4";

/// Gigabytes in 60 s: recorded, shipped log, Calvin, Calvin Optimized.
const TABLE: [[f64; 4]; 4] = [
    [6.988, 35.739, 8.445, 7.257],
    [5.081, 27.398, 12.789, 11.969],
    [3.600, 24.481, 4.730, 3.814],
    [2.832, 19.120, 8.157, 7.486],
];

pub(super) fn experiment() -> Experiment {
    Experiment {
        name: "record-replay/table3",
        paper: PAPER,
        place: "table 3, section 6.2",
        shows: "bytes on the network for each transaction, by scheme",
        x: "threads",
        columns: OF_STANDBY,
        calibrate: false,
        sweep,
        scaled: |scale| {
            format!(
                "One thread and no limit on the network, for the paper's 16 cores: bytes are told for each \
                 transaction, those that only read among them, so that the rate does not matter. {} Rows and read \
                 sets are written down as differences to what came before; the paper's Calvin sends keys. Calvin \
                 Optimized leaves out the tables ITEM and STOCK_DATA, which nothing writes. Command logging is \
                 `--apply command`, whose terminals keep to their warehouses, so it is there for TPC-C alone.",
                smaller(scale)
            )
        },
        panels,
        beside,
        differs,
    }
}

fn sweep(scale: &Scale) -> Vec<Run> {
    let mut runs = Vec::new();
    for (workload, options) in WORKLOADS {
        let mut add = |system: &str, how: &str| {
            let arguments = format!("{} --standbys 1 {how}{}", tpcc(scale, options, 1), apart(scale, 1));
            runs.push(run(series(workload, system), 1.0, arguments));
        };
        add(SHIPPING, BYTES);
        add(AGAIN, INPUTS);
        add(CALVIN, &format!("{LOCKS} --read-set all"));
        add(OPTIMIZED, &format!("{LOCKS} --read-set written"));
        add(SHIPPING_PACKED, &format!("{BYTES} --compress"));
        add(AGAIN_PACKED, &format!("{INPUTS} --compress"));
        if options.is_empty() {
            add(COMMANDS, "--apply command");
        }
    }
    runs
}

fn bytes(results: &Results, workload: &str, system: &str) -> f64 {
    results.at(&series(workload, system), 1.0, "wire_bytes_per_txn")
}

/// The bytes of one scheme, of those of another.
fn share(results: &Results, workload: &str, system: &str, of: &str) -> f64 {
    bytes(results, workload, system) / bytes(results, workload, of)
}

fn panels(results: &Results) -> Vec<Panel> {
    let ticks = || places_of(WORKLOADS.map(|(workload, _)| workload.to_owned()));
    let across = |system: &str, color: usize, of: &dyn Fn(&str) -> f64| {
        let points: Vec<(f64, f64)> = places_of(WORKLOADS).into_iter().map(|(at, (name, _))| (at, of(name))).collect();
        exactly(system, color, points).apart()
    };
    let systems = [SHIPPING, AGAIN, CALVIN, OPTIMIZED, SHIPPING_PACKED, AGAIN_PACKED];
    let sent =
        systems.iter().enumerate().map(|(color, system)| across(system, color, &|it| bytes(results, it, system)));
    let mut times: Vec<Curve> = [SHIPPING, CALVIN, OPTIMIZED]
        .iter()
        .enumerate()
        .map(|(color, system)| across(system, color, &|it| share(results, it, system, AGAIN)))
        .collect();
    for (color, system) in [SHIPPING, CALVIN, OPTIMIZED].iter().enumerate() {
        let points: Vec<(f64, f64)> =
            places_of(TABLE).into_iter().map(|(at, row)| (at, row[color + 1] / row[0])).collect();
        times.push(Curve::stated(&format!("Paper: {system} (table 3)"), color, &points).apart());
    }
    let panel = |title: &str, y: &str, curves| Panel { ticks: ticks(), ..Panel::over_numbers(title, "", y, curves) };
    vec![
        panel("On the network", "bytes for a transaction", sent.collect()),
        panel("Relative to Record-Replay", "times as many bytes", times),
    ]
}

fn beside(results: &Results) -> Vec<Beside> {
    let mut rows = Vec::new();
    for ((workload, options), [record, log, calvin, optimized]) in WORKLOADS.into_iter().zip(TABLE) {
        let mut add = |what: &str, stated: String, source, here: f64| {
            let here = if here.is_finite() { format!("{here:.2} times") } else { "not measured".to_owned() };
            rows.push(Beside { what: format!("{workload}, {what}"), stated, source, here });
        };
        for (system, stated) in [(SHIPPING, log), (CALVIN, calvin), (OPTIMIZED, optimized)] {
            let stated = format!("{:.2} times", stated / record);
            add(&format!("{system} against {AGAIN}"), stated, "table 3", share(results, workload, system, AGAIN));
        }
        let most = if options.contains("spread") { 0.12 } else { 0.15 };
        let goal = |most: f64| format!("at most {most:.2} times");
        add(&format!("{AGAIN} against {SHIPPING}"), goal(most), GOAL, share(results, workload, AGAIN, SHIPPING));
        let packed = share(results, workload, AGAIN_PACKED, SHIPPING);
        add(&format!("{AGAIN_PACKED} against {SHIPPING}"), goal(0.10), GOAL, packed);
    }
    rows
}

fn differs(results: &Results) -> Vec<String> {
    let mut out = Vec::new();
    for ((workload, _), [record, log, calvin, optimized]) in WORKLOADS.into_iter().zip(TABLE) {
        let share = |system: &str, of: &str| share(results, workload, system, of);
        let sent = share(AGAIN, SHIPPING);
        out.push(format!(
            "{workload}: Record-Replay sends {} bytes for a transaction, {} of what log shipping sends, {} in the \
             paper ({}); with LZ4 {}.",
            short(bytes(results, workload, AGAIN)),
            percent(sent),
            than(sent, record / log, 0.01),
            percent(record / log),
            percent(share(AGAIN_PACKED, SHIPPING))
        ));
        let (all, written) = (share(CALVIN, AGAIN), share(OPTIMIZED, AGAIN));
        out.push(format!(
            "Calvin sends {all:.2} times as much as Record-Replay, {} in the paper ({:.2}), and {written:.2} times \
             without reads of constant tables, {} there ({:.2}).",
            than(all, calvin / record, 0.1),
            calvin / record,
            than(written, optimized / record, 0.1),
            optimized / record
        ));
    }
    let commands = bytes(results, "TPC-C", COMMANDS);
    out.extend(if_measured(commands, || {
        let times = commands / bytes(results, "TPC-C", AGAIN);
        let why = if times < 1.0 {
            "the rest is the write set"
        } else {
            "commands go as blocks of the log, with headers that the form leaves out"
        };
        format!(
            "Command logging, for one thread that replays or for partitions, sends {} bytes for a transaction of \
             TPC-C, {times:.2} times as much as Record-Replay: {why}.",
            short(commands)
        )
    }));
    if results.scale.rounds > 1 {
        out.push(format!("Rounds differ by up to {} in bytes.", percent(results.noise("wire_bytes_per_txn"))));
    }
    out
}
