//! Figure 11 and table 3: a limited network, and what goes over it.

use super::{
    super::{
        frame::Beside,
        plot::{Point, places_of},
    },
    *,
};

/// The limit on what a node sends, in gigabits per second. The paper's machines have ten cores
/// each, and change their order at 10 Gb/s; five nodes share two processors here, or 0.4 each: that
/// is 0.4 Gb/s.
const LIMITS: [f64; 5] = [0.05, 0.1, 0.2, 0.4, 1.0];
/// Where the runs without a limit are.
const UNLIMITED: f64 = 4.0;

/// What the model of a network says of a scheme.
fn modelled(results: &Results, name: &str, limit: f64) -> f64 {
    let at = |column| results.at(name, UNLIMITED, column);
    model::on_network(NODES, limit, (at("wire_bytes_per_txn"), at("wire_writes_per_txn")), at("tps"))
}

pub(super) fn figure_11() -> Experiment {
    Experiment {
        name: "active-memory/figure11",
        place: "figure 11, section 6.4",
        shows: "throughput by the limit on what a node sends, transactions of one partition",
        x: "gigabits",
        sweep: |scale| {
            let mut limits = some(scale, &LIMITS);
            limits.push(UNLIMITED);
            runs(scale, &SCHEMES, &limits, |limit| {
                let limit = if limit < UNLIMITED { limit } else { 0.0 };
                format!("--nodes {NODES} --bandwidth-gbit {limit}")
            })
        },
        panels: |results| {
            let curve = |(color, (name, _)): (usize, &(&str, &str))| {
                let of = |x: f64| (x, modelled(results, name, x) * 1e-3);
                let points: Vec<_> =
                    results.xs(name).into_iter().map(of).filter(|(_, rate)| rate.is_finite()).collect();
                Curve::stated(&format!("Model, not measured: {name}"), color, &points)
            };
            let mut panel = measured(results, "gigabits per second and node; the last is without a limit");
            panel.curves.extend(SCHEMES.iter().enumerate().map(curve));
            vec![panel]
        },
        beside: |results| {
            let low = first(results);
            let row = |pair: (&str, &str), x: f64, stated: &str| Beside {
                what: format!("{} against {}, {x} Gb/s", pair.0, pair.1),
                stated: stated.to_owned(),
                source: "section 6.4",
                here: times(ratio(results, pair, x)),
            };
            vec![
                row((SHIPPING, MEMORY), low, "2 times, below 10 Gb/s"),
                row((HSTORE, MEMORY), low, "much more than 1"),
                Beside {
                    what: format!("{SHIPPING} against {MEMORY}, {low} Gb/s: a model, not measured"),
                    stated: "2 times, below 10 Gb/s".to_owned(),
                    source: "section 6.4",
                    here: times(modelled(results, SHIPPING, low) / modelled(results, MEMORY, low)),
                },
                row((MEMORY, SHIPPING), UNLIMITED, "more than 1, above 10 Gb/s"),
                row((MEMORY, HSTORE), UNLIMITED, "more than 1, above 10 Gb/s"),
            ]
        },
        differs: differs_11,
        ..base()
    }
}

/// What figure 11 shows here.
fn differs_11(results: &Results) -> Vec<String> {
    let low = first(results);
    let here = ratio(results, (SHIPPING, MEMORY), low);
    let fits = results.at(MEMORY, low, "tps") / modelled(results, MEMORY, low);
    let crossing =
        results.xs(MEMORY).into_iter().find(|x| best_but(results, MEMORY, *x).1 < results.at(MEMORY, *x, "tps"));
    let compared = match crossing {
        Some(limit) if limit < UNLIMITED => format!("is the best from {limit} Gb/s on"),
        Some(_) => "is the best only without a limit".to_owned(),
        None => "is the best nowhere".to_owned(),
    };
    // The paper's nodes have ten processors each.
    let times = 10.0 * NODES / results.scale.processors as f64;
    vec![
        format!(
            "With {low} Gb/s log shipping does {here:.2} times what Active-Memory does, {} the paper's 2 \
             times; Active-Memory {compared}, and in the paper from 10 Gb/s on, where a node has {times:.0} times \
             as many processors.",
            than(here, 2.0, 0.3)
        ),
        format!(
            "The model, bytes of a transaction against the limit, has Active-Memory at {} there; measured was \
             {} of that.",
            thousands(modelled(results, MEMORY, low)),
            percent(fits)
        ),
        noise(results),
    ]
}

/// Kilobytes of a transaction: of one partition, and over several, in the order of [`SCHEMES`].
const TABLE: [[f64; 2]; 4] = [[4.5, 6.0], [2.5, 3.7], [0.3, 1.5], [0.5, 0.6]];

pub(super) fn table_3() -> Experiment {
    Experiment {
        name: "active-memory/table3",
        place: "table 3, section 6.4",
        shows: "bytes on the network for a transaction of one partition, and over several",
        x: "percent",
        sweep: |scale| runs(scale, &SCHEMES, &[0.0, 100.0], |share| format!("--nodes {NODES} --multi {share}")),
        panels: |results| {
            let panel = |(column, x, title): (usize, f64, &str)| {
                let point = |(at, (name, _)): (f64, (&str, &str))| {
                    let y = results.at(name, x, "wire_bytes_per_txn") / 1e3;
                    Point { x: at, y, low: y, high: y }
                };
                let here = places_of(SCHEMES).into_iter().map(point).filter(|point| point.y.is_finite()).collect();
                let there: Vec<_> = places_of(TABLE).into_iter().map(|(at, row)| (at, row[column])).collect();
                let curves =
                    vec![Curve::measured("here", 0, here).apart(), Curve::stated("Paper (table 3)", 1, &there).apart()];
                let ticks = places_of(SCHEMES.map(|(name, _)| name.to_owned()));
                Panel { ticks, ..Panel::over_numbers(title, "", "KB for a transaction", curves) }
            };
            vec![panel((0, 0.0, "Of one partition")), panel((1, 100.0, "Over several partitions"))]
        },
        beside: |results| {
            let mut rows = Vec::new();
            for ((name, _), stated) in SCHEMES.iter().zip(TABLE) {
                for (x, stated, what) in [(0.0, stated[0], "one partition"), (100.0, stated[1], "several")] {
                    let here = results.at(name, x, "wire_bytes_per_txn") / 1e3;
                    rows.push(Beside {
                        what: format!("{name}, {what}"),
                        stated: format!("{stated} KB"),
                        source: "table 3",
                        here: format!("{here:.2} KB").replace("NaN KB", "not measured"),
                    });
                }
            }
            rows
        },
        differs: |results| {
            let bytes = |name: &str, x: f64| results.at(name, x, "wire_bytes_per_txn");
            let mut out = Vec::new();
            for ((name, _), [single, multi]) in SCHEMES.iter().zip(TABLE) {
                out.push(format!(
                    "{name} sends {:.2} KB for a transaction of one partition, {} the paper's {single} KB, and \
                     {:.2} KB for one over several ({multi} KB there).",
                    bytes(name, 0.0) / 1e3,
                    than(bytes(name, 0.0) / 1e3, single, single * 0.2),
                    bytes(name, 100.0) / 1e3
                ));
            }
            let share = bytes(MEMORY, 0.0) / bytes(SHIPPING, 0.0);
            out.push(format!(
                "Active-Memory sends {share:.2} times what log shipping sends, {} the paper's 1.8 times.",
                than(share, 1.8, 0.2)
            ));
            out.push(noise(results));
            out
        },
        ..base()
    }
}
