//! Figures 4, 6 and 8: throughput by threads.

use super::{
    super::{frame::Beside, plot::Curve},
    model::{ONE_SOCKET, SOCKETS, THREADS, throughput},
    *,
};

const WRITES: [Workload; 3] = [UPDATE_LOCATION, TPC_B, PAYMENT];
const MIXES: [Workload; 2] = [TATP, TPC_C];

pub(super) fn figure_4() -> Experiment {
    Experiment {
        name: "distributed-logging/figure4",
        place: "figure 4, section 5.2",
        shows: "throughput of transactions that write, one log against several, durable caches",
        sweep: |scale| sweep(scale, &WRITES, &[CENTRAL, TX_D, PG_D, TX_D_DELAY, PG_D_DELAY]),
        panels: |results| panels(results, &WRITES, TX_D),
        beside: |results| {
            vec![
                row(results, &WRITES, "TX-D / Central", "1.6 to 3.2 times (TATP, up to 48 threads)", (TX_D, CENTRAL)),
                row(results, &WRITES, "PG-D / Central", "1.3 to 2.7 times (TATP, up to 48 threads)", (PG_D, CENTRAL)),
                row(results, &WRITES, "TX-D (1.2 us) / TX-D", "at least 85 % in most cases", (TX_D_DELAY, TX_D)),
                row(results, &WRITES, "PG-D (1.2 us) / PG-D", "at least 85 % in most cases", (PG_D_DELAY, PG_D)),
            ]
        },
        differs: |results| {
            let mut out = Vec::new();
            for workload in WRITES {
                out.push(against(results, workload, (TX_D, PG_D, CENTRAL)));
                out.push(scales(results, workload, TX_D));
            }
            out.push(delays(results));
            out.extend(beyond(results, UPDATE_LOCATION, TX_D));
            out.push(noise(results));
            out
        },
        ..by_threads()
    }
}

pub(super) fn figure_6() -> Experiment {
    Experiment {
        name: "distributed-logging/figure6",
        place: "figure 6, section 5.2",
        shows: "throughput of the full mixes of TATP and TPC-C, one log against several",
        sweep: |scale| sweep(scale, &MIXES, &[CENTRAL, TX_D, PG_D, TX_V, PG_V]),
        panels: |results| panels(results, &MIXES, TX_D),
        beside: |results| {
            vec![
                row(results, &[TATP], "TX-D / Central", "more than 1, slightly", (TX_D, CENTRAL)),
                row(results, &[TPC_C], "TX-D / Central", "more than 1 beyond 16 threads", (TX_D, CENTRAL)),
                row(results, &MIXES, "PG-D / TX-D", "less than 1", (PG_D, TX_D)),
            ]
        },
        differs: |results| {
            let mut out = Vec::new();
            for workload in MIXES {
                out.push(against(results, workload, (TX_D, PG_D, CENTRAL)));
                out.push(scales(results, workload, TX_D));
                out.push(passive(results, workload));
            }
            out.push(noise(results));
            out
        },
        ..by_threads()
    }
}

pub(super) fn figure_8() -> Experiment {
    Experiment {
        name: "distributed-logging/figure8",
        place: "figure 8, section 5.3",
        shows: "throughput of transactions that write, with passive group commit",
        sweep: |scale| sweep(scale, &WRITES, &[TX_D, PG_D, TX_V, PG_V, TX_V_DELAY]),
        panels: |results| panels(results, &WRITES, TX_V),
        beside: |results| {
            vec![
                row(results, &WRITES, "TX-V / TX-D", "90 to 96 % (Update Location)", (TX_V, TX_D)),
                row(results, &WRITES, "PG-V / PG-D", "the same up to 32 threads, then down to 50 %", (PG_V, PG_D)),
                row(results, &WRITES, "TX-V (1.2 us) / TX-V", "at least 85 % in most cases", (TX_V_DELAY, TX_V)),
            ]
        },
        differs: |results| {
            let mut out = Vec::new();
            for workload in WRITES {
                out.push(passive(results, workload));
            }
            out.push(
                "There is one socket here, so the paper's loss of PG-V beyond 32 threads, which comes of memory on \
                 another one, cannot be seen."
                    .to_owned(),
            );
            out.push(noise(results));
            out
        },
        ..by_threads()
    }
}

/// A panel for each workload, and one with a model of more threads for one of the systems under the
/// first.
fn panels(results: &Results, workloads: &[Workload], modelled: System) -> Vec<Panel> {
    let of_workload = |workload: &Workload| {
        let begins = format!("{}, ", workload.name);
        let all = results.series();
        let wanted = all.iter().filter(|series| series.starts_with(&begins)).enumerate();
        let curve = |(color, series): (usize, &&str)| {
            Curve::measured(&series[begins.len()..], color, results.curve(series, "tps", 1e-3).points)
        };
        let curves = wanted.map(curve).collect();
        ticks(Panel::over_numbers(workload.name, "threads", "k transactions/s", curves))
    };
    workloads.iter().map(of_workload).chain([model_of_more(results, workloads[0], modelled)]).collect()
}

fn model_of_more(results: &Results, workload: Workload, system: System) -> Panel {
    let measured = results.curve(&series(workload, system), "tps", 1e-3).points;
    let mut curves = vec![Curve::measured(&format!("{}, measured", system.name), 1, measured)];
    let cpu = results.at(&series(workload, system), 1.0, "forward_cpu_us_per_txn");
    for (color, machine) in [(6, ONE_SOCKET), (7, SOCKETS)] {
        let points = THREADS.map(|threads| (threads, throughput(machine, cpu, threads) / 1e3));
        let label = format!("Model, not measured: {} on {}", system.name, machine.name);
        curves.push(Curve::stated(&label, color, &points));
    }
    let title = format!("{}: a model of more threads", workload.name);
    ticks(Panel::over_numbers(&title, "threads", "k transactions/s", curves))
}

/// Throughput of one system, of that of another, with the most threads.
fn ratio(results: &Results, workload: Workload, (system, to): (System, System)) -> f64 {
    let threads = most(results, &series(workload, system));
    let tps = |system| results.at(&series(workload, system), threads, "tps");
    tps(system) / tps(to)
}

fn row(results: &Results, workloads: &[Workload], what: &str, stated: &str, systems: (System, System)) -> Beside {
    let here = workloads.iter().map(|it| format!("{} {}", it.name, percent(ratio(results, *it, systems))));
    Beside {
        what: format!("{what}, most threads"),
        stated: stated.to_owned(),
        source: "sections 5.2 and 5.3",
        here: here.collect::<Vec<_>>().join(", "),
    }
}

/// The sentence on distributed logs against one.
fn against(results: &Results, workload: Workload, (tx, pg, central): (System, System, System)) -> String {
    let threads = most(results, &series(workload, central));
    let (by_tx, by_pg) = (ratio(results, workload, (tx, central)), ratio(results, workload, (pg, central)));
    format!(
        "{} with {threads} thread(s): TX-D does {} and PG-D {} of the {} with one log.",
        workload.name,
        percent(by_tx),
        percent(by_pg),
        thousands(results.at(&series(workload, central), threads, "tps"))
    )
}

/// The sentence on what passive group commit costs.
fn passive(results: &Results, workload: Workload) -> String {
    let ratio = |system, to| ratio(results, workload, (system, to));
    let here = ratio(TX_V, TX_D);
    format!(
        "{}: passive group commit keeps {} by transaction and {} by page, {} the 90 % that it keeps at least in the \
         paper.",
        workload.name,
        percent(here),
        percent(ratio(PG_V, PG_D)),
        than(here, 0.9, 0.0)
    )
}

/// The sentence on how a system grows with threads.
fn scales(results: &Results, workload: Workload, system: System) -> String {
    let name = series(workload, system);
    let threads = most(results, &name);
    if threads < 1.5 {
        return format!("{} was measured with one thread only, so nothing is said of scaling.", workload.name);
    }
    let times = results.at(&name, threads, "tps") / results.at(&name, 1.0, "tps");
    format!("{threads} threads of {} do {times:.2} times as much as one with {}.", workload.name, system.name)
}

/// The sentence on what a delay of 1.2 us at each insertion costs.
fn delays(results: &Results) -> String {
    let shares = WRITES.map(|workload| ratio(results, workload, (TX_D_DELAY, TX_D)));
    let figures: Vec<String> =
        WRITES.iter().zip(shares).map(|(workload, share)| format!("{} of {}", percent(share), workload.name)).collect();
    let verdict = if shares.into_iter().all(|share| share >= 0.85) {
        "it costs at most 15 %, as in the paper"
    } else {
        "it costs more than the paper's 15 %, whose transactions take longer"
    };
    format!("With 1.2 us at each insertion TX-D keeps {}: {verdict}.", list(&figures))
}

/// The sentence on the model, where one thread was measured.
fn beyond(results: &Results, workload: Workload, system: System) -> Option<String> {
    let cpu = results.at(&series(workload, system), 1.0, "forward_cpu_us_per_txn");
    cpu.is_finite().then(|| {
        let at = |machine| thousands(throughput(machine, cpu, 48.0));
        format!(
            "A model, which is no measurement, has {} of {} with 48 threads on {}, and {} on {}: one counter gives all \
             streams their order.",
            at(ONE_SOCKET),
            workload.name,
            ONE_SOCKET.name,
            at(SOCKETS),
            SOCKETS.name
        )
    })
}
