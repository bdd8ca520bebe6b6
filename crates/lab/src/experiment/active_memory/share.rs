//! Figures 10, 13 and 14: transactions over several partitions, skew, and writes.

use super::{super::frame::Beside, *};

fn row(what: String, stated: &str, source: &'static str, here: f64) -> Beside {
    Beside { what, stated: stated.to_owned(), source, here: times(here) }
}

pub(super) fn figure_10() -> Experiment {
    Experiment {
        name: "active-memory/figure10",
        place: "figure 10, section 6.3",
        shows: "throughput by the share of transactions over several partitions",
        x: "percent",
        sweep: |scale| {
            let shares = some(scale, &[0.0, 20.0, 40.0, 60.0, 80.0, 100.0]);
            runs(scale, &SCHEMES, &shares, |share| format!("--nodes {NODES} --multi {share}"))
        },
        panels: |results| vec![measured(results, "transactions over several partitions, percent")],
        beside: |results| {
            let of = |pair: (&str, &str), x: f64| format!("{} against {}, {x} %", pair.0, pair.1);
            let row =
                |pair: (&str, &str), x: f64, stated| row(of(pair, x), stated, "section 6.3", ratio(results, pair, x));
            vec![
                row((CALVIN, MEMORY), 0.0, "1/2"),
                row((CALVIN, MEMORY), 100.0, "1/3"),
                row((HSTORE, CALVIN), 0.0, "more than 1"),
                row((HSTORE, CALVIN), 100.0, "less than 1/2 (from 20 % on)"),
                row((MEMORY, SHIPPING), 0.0, "the same as with 100 %"),
                row((MEMORY, SHIPPING), 100.0, "the same as with 0 %"),
            ]
        },
        differs: |results| {
            let kept = |name: &str| results.at(name, 100.0, "tps") / results.at(name, 0.0, "tps");
            let figures = SCHEMES.map(|(name, _)| format!("{name} {}", percent(kept(name))));
            let falls = SCHEMES.iter().all(|(name, _)| *name == HSTORE || kept(HSTORE) <= kept(name));
            let verdict =
                if falls { "H-Store least, as in the paper" } else { "H-Store not least, unlike in the paper" };
            let (none, all) = (ratio(results, (MEMORY, SHIPPING), 0.0), ratio(results, (MEMORY, SHIPPING), 100.0));
            vec![
                format!(
                    "When all transactions are over several partitions, schemes keep of their throughput: {}; \
                     {verdict}.",
                    figures.join(", ")
                ),
                format!(
                    "Active-Memory does {none:.2} times what log shipping does when none is, and {all:.2} times when \
                     all are, {} before; in the paper it stays the same.",
                    than(all, none, 0.1)
                ),
                format!(
                    "Calvin does {} of Active-Memory when all are, {} the paper's third.",
                    percent(ratio(results, (CALVIN, MEMORY), 100.0)),
                    than(ratio(results, (CALVIN, MEMORY), 100.0), 1.0 / 3.0, 0.05)
                ),
                noise(results),
            ]
        },
        ..base()
    }
}

pub(super) fn figure_13() -> Experiment {
    Experiment {
        name: "active-memory/figure13",
        place: "figure 13, section 6.6",
        shows: "throughput by skew, records from the whole cluster",
        x: "theta",
        sweep: |scale| {
            let skews = some(scale, &[0.0, 0.2, 0.4, 0.6, 0.8, 0.9]);
            runs(scale, &SCHEMES, &skews, |theta| format!("--nodes {NODES} --theta {theta}"))
        },
        panels: |results| vec![measured(results, "theta")],
        beside: |results| {
            let most = last(results);
            let (second, _) = best_but(results, CALVIN, most);
            let kept = |name: &str| results.at(name, most, "tps") / results.at(name, 0.0, "tps");
            vec![
                row(
                    format!("{CALVIN} against the best of the others ({second}), theta {most}"),
                    "up to 1.7 times",
                    "section 6.6",
                    ratio(results, (CALVIN, second), most),
                ),
                row(format!("{MEMORY}, theta {most}, of theta 0"), "much less", "section 6.6", kept(MEMORY)),
                row(format!("{CALVIN}, theta {most}, of theta 0"), "less", "section 6.6", kept(CALVIN)),
            ]
        },
        differs: |results| {
            let most = last(results);
            let (second, rate) = best_but(results, CALVIN, most);
            let calvin = results.at(CALVIN, most, "tps") / rate;
            let kept = |name: &str| results.at(name, most, "tps") / results.at(name, 0.0, "tps");
            let verdict = if calvin > 1.0 {
                "as in the paper, it is the best"
            } else {
                "unlike in the paper, it is not the best"
            };
            vec![
                format!(
                    "At theta {most} Calvin does {calvin:.2} times what {second} does, the best of the others: \
                     {verdict} (up to 1.7 times there)."
                ),
                format!(
                    "Of what they do without skew, Active-Memory keeps {} and Calvin {}; a transaction of \
                     Active-Memory begins {:.2} times again, and {:.2} times without skew.",
                    percent(kept(MEMORY)),
                    percent(kept(CALVIN)),
                    results.at(MEMORY, most, "aborts_per_txn"),
                    results.at(MEMORY, 0.0, "aborts_per_txn")
                ),
                noise(results),
            ]
        },
        ..base()
    }
}

pub(super) fn figure_14() -> Experiment {
    Experiment {
        name: "active-memory/figure14",
        place: "figure 14, section 6.7",
        shows: "throughput by the number of writes of a transaction",
        x: "writes",
        sweep: |scale| {
            let writes = some(scale, &[0.0, 1.0, 2.0, 4.0, 6.0, 8.0, 10.0]);
            runs(scale, &SCHEMES, &writes, |writes| format!("--nodes {NODES} --writes {writes}"))
        },
        panels: |results| vec![measured(results, "writes")],
        beside: |results| {
            let of = |pair: (&str, &str), x: f64| format!("{} against {}, {x} writes", pair.0, pair.1);
            let row =
                |pair: (&str, &str), x: f64, stated| row(of(pair, x), stated, "section 6.7", ratio(results, pair, x));
            vec![
                row((HSTORE, MEMORY), 0.0, "more than 1"),
                row((MEMORY, SHIPPING), 0.0, "about 1"),
                row((SHIPPING, CALVIN), 10.0, "about 1"),
                row((MEMORY, SHIPPING), 10.0, "more than with fewer writes"),
            ]
        },
        differs: |results| {
            let gap = |writes: f64| ratio(results, (MEMORY, SHIPPING), writes);
            let verdict = if gap(10.0) > gap(0.0) {
                "wider with more writes, as in the paper"
            } else {
                "not wider with more writes, unlike in the paper"
            };
            let reads = ratio(results, (HSTORE, MEMORY), 0.0);
            vec![
                format!(
                    "Active-Memory does {:.2} times what log shipping does without writes and {:.2} times with ten: \
                     the gap is {verdict}.",
                    gap(0.0),
                    gap(10.0)
                ),
                format!(
                    "Without writes H-Store does {reads:.2} times what Active-Memory does, {} in the paper.",
                    if reads > 1.0 { "more, as" } else { "not more, unlike" }
                ),
                format!(
                    "With ten writes log shipping does {} of Calvin, which the paper has as about the same.",
                    percent(ratio(results, (SHIPPING, CALVIN), 10.0))
                ),
                noise(results),
            ]
        },
        ..base()
    }
}
