//! Figures 8 and 12: throughput by nodes, and by copies.

use super::{super::frame::Beside, *};

/// What nodes with a processor each would do.
fn modelled(results: &Results, nodes: impl Fn(f64) -> f64, x: &str) -> Panel {
    let curve = |(color, (name, _)): (usize, &(&str, &str))| {
        let of = |x: f64| (x, model::on_processors(nodes(x), results.at(name, x, "cpu_us_per_txn")) * 1e-3);
        let points: Vec<_> = results.xs(name).into_iter().map(of).filter(|(_, rate)| rate.is_finite()).collect();
        Curve::stated(&format!("Model, not measured: {name}"), color, &points)
    };
    let curves = SCHEMES.iter().enumerate().map(curve).collect();
    Panel::over_numbers("A model: a processor for each node", x, "k transactions/s", curves)
}

/// How many times as much one number of nodes would do as another one, with a processor each.
fn growth(results: &Results, name: &str, (from, to): (f64, f64)) -> f64 {
    let at = |nodes: f64| model::on_processors(nodes, results.at(name, nodes, "cpu_us_per_txn"));
    at(to) / at(from)
}

pub(super) fn figure_8() -> Experiment {
    Experiment {
        name: "active-memory/figure8",
        place: "figure 8, section 6.2",
        shows: "throughput by the number of nodes, transactions of one partition, up to three copies",
        x: "nodes",
        sweep: |scale| {
            let nodes = some(scale, &[1.0, 2.0, 3.0, 5.0, 8.0]);
            runs(scale, &SCHEMES, &nodes, |nodes| format!("--nodes {nodes} --copies {}", nodes.min(3.0)))
        },
        panels: |results| vec![measured(results, "nodes"), modelled(results, |nodes| nodes, "nodes")],
        beside: |results| {
            let (most, one) = (last(results), first(results));
            let second = best_but(results, MEMORY, most).0;
            let others = format!("{MEMORY} against the best of the others ({second}), {most} nodes");
            let modelled =
                |name: &str, nodes: f64| format!("{name}, {nodes} nodes against {one}: a model, not measured");
            let row = |what: String, stated: &str, here: f64| Beside {
                what,
                stated: stated.to_owned(),
                source: "section 6.2",
                here: times(here),
            };
            vec![
                row(others, "1.5 to 2 times", ratio(results, (MEMORY, second), most)),
                row(
                    format!("{HSTORE} against {MEMORY}, one node"),
                    "more than 1",
                    ratio(results, (HSTORE, MEMORY), one),
                ),
                row(
                    format!("{SHIPPING} against {CALVIN}, {most} nodes"),
                    "about 1",
                    ratio(results, (SHIPPING, CALVIN), most),
                ),
                row(modelled(MEMORY, most), "in proportion to nodes", growth(results, MEMORY, (one, most))),
                row(modelled(HSTORE, 2.0), "less than 1", growth(results, HSTORE, (one, 2.0))),
                row(modelled(SHIPPING, 2.0), "less than 1", growth(results, SHIPPING, (one, 2.0))),
                row(modelled(CALVIN, 2.0), "less than 1", growth(results, CALVIN, (one, 2.0))),
            ]
        },
        differs: differs_8,
        ..base()
    }
}

/// What figure 8 shows here.
fn differs_8(results: &Results) -> Vec<String> {
    let (most, one) = (last(results), first(results));
    let (second, rate) = best_but(results, MEMORY, most);
    let here = results.at(MEMORY, most, "tps") / rate;
    let mut out = vec![format!(
        "With {most} nodes Active-Memory does {:.2} times as much as {second}, the best of the others, {} the \
         paper's 1.5 to 2 times.",
        here,
        if here < 1.5 {
            "less than"
        } else if here > 2.0 {
            "more than"
        } else {
            "which is within"
        }
    )];
    let times = |name: &str| growth(results, name, (one, most));
    let figures = SCHEMES.map(|(name, _)| format!("{name} {:.2}", times(name)));
    let gains_most = SCHEMES.iter().all(|(name, _)| times(name) <= times(MEMORY));
    let verdict = if gains_most && times(MEMORY) > 1.0 {
        "as in the paper, Active-Memory gains most"
    } else {
        "unlike in the paper, Active-Memory does not gain most"
    };
    out.push(format!(
        "A model, which is no measurement, gives each node a processor: with {most} nodes there is this many \
         times as much as with one: {}; {verdict}.",
        figures.join(", ")
    ));
    let alone = ratio(results, (HSTORE, MEMORY), one);
    out.push(format!("Alone, H-Store, which has no locks, does {alone:.2} times as much as Active-Memory."));
    out.push(noise(results));
    out
}

pub(super) fn figure_12() -> Experiment {
    Experiment {
        name: "active-memory/figure12",
        place: "figure 12, section 6.5",
        shows: "throughput by the number of copies, transactions of one partition",
        x: "copies",
        sweep: |scale| {
            let copies = some(scale, &[1.0, 2.0, 3.0, 4.0]);
            runs(scale, &SCHEMES, &copies, |copies| format!("--nodes {NODES} --copies {copies}"))
        },
        panels: |results| vec![measured(results, "copies"), modelled(results, |_| NODES, "copies")],
        beside: |results| {
            let (one, most) = (first(results), last(results));
            let share = |name: &str| results.at(name, most, "tps") / results.at(name, one, "tps");
            let row = |what: String, stated: &str, here: f64| Beside {
                what,
                stated: stated.to_owned(),
                source: "section 6.5",
                here: percent(here),
            };
            let kept = |name: &str, stated| row(format!("{name}, {most} copies, of one"), stated, share(name));
            vec![
                kept(HSTORE, "about half with two, less with more"),
                kept(CALVIN, "the same"),
                kept(SHIPPING, "nearly the same"),
                kept(MEMORY, "more than the others"),
                row(format!("{MEMORY} of {SHIPPING}, one copy"), "the same", ratio(results, (MEMORY, SHIPPING), one)),
            ]
        },
        differs: |results| {
            let (one, most) = (first(results), last(results));
            let share = |name: &str| results.at(name, most, "tps") / results.at(name, one, "tps");
            let figures = SCHEMES.map(|(name, _)| format!("{name} {}", percent(share(name))));
            let others = SCHEMES.iter().filter(|(name, _)| *name != MEMORY).map(|(name, _)| share(name));
            let keeps_most = others.fold(f64::NEG_INFINITY, f64::max) < share(MEMORY);
            let verdict = if keeps_most {
                "as in the paper, Active-Memory keeps most"
            } else {
                "unlike in the paper, Active-Memory does not keep most"
            };
            let alone = ratio(results, (MEMORY, SHIPPING), one);
            vec![
                format!("With {most} copies schemes keep of what they do with one: {}; {verdict}.", figures.join(", ")),
                format!(
                    "H-Store and Calvin execute each transaction once for each copy: {} of their work would be left \
                     with {most}.",
                    percent(one / most)
                ),
                format!(
                    "With one copy Active-Memory does {} log shipping ({alone:.2} times); in the paper, as much.",
                    than(alone, 1.0, 0.05)
                ),
                noise(results),
            ]
        },
        ..base()
    }
}
