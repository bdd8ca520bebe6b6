//! Results as CSV (RFC 4180).

use std::fmt::Write;

use super::results::Results;
use crate::bench::child::median;

/// A field, in quotes where it needs them.
fn field(text: &str) -> String {
    if text.contains([',', '"', '\n', '\r']) { format!("\"{}\"", text.replace('"', "\"\"")) } else { text.to_owned() }
}

/// A number; empty when it is not told.
fn number(number: Option<f64>) -> String {
    number.map(|number| number.to_string()).unwrap_or_default()
}

fn header(results: &Results, first: &[&str]) -> String {
    let names = first.iter().copied().chain(results.columns.iter().map(|column| column.name));
    names.map(field).collect::<Vec<_>>().join(",") + "\n"
}

/// Every run: its round, series, place and numbers.
pub(crate) fn data(results: &Results) -> String {
    let mut out = header(results, &["round", "series", results.x]);
    for round in 0..results.found.iter().map(Vec::len).max().unwrap_or(0) {
        for (run, found) in results.runs.iter().zip(&results.found) {
            let Some(value) = found.get(round) else { continue };
            let _ = write!(out, "{},{},{}", round + 1, field(&run.series), run.x);
            for column in results.columns {
                let _ = write!(out, ",{}", number(value.pointer(column.pointer).and_then(serde_json::Value::as_f64)));
            }
            out.push('\n');
        }
    }
    out
}

/// The medians of the rounds.
pub(crate) fn summary(results: &Results) -> String {
    let mut out = header(results, &["series", results.x, "rounds"]);
    for (position, (run, found)) in results.runs.iter().zip(&results.found).enumerate() {
        let _ = write!(out, "{},{},{}", field(&run.series), run.x, found.len());
        for column in results.columns {
            let _ = write!(out, ",{}", number(median(results.samples(position, column.name))));
        }
        out.push('\n');
    }
    out
}

/// What runs tell as lists: the names of the lists, and of the numbers of their elements.
const OVER_TIME: [(&str, &str, &[&str]); 2] = [
    ("series", "freshness_series", &["seconds", "freshness", "behind_bytes"]),
    ("half_seconds", "half_seconds", &["seconds", "tps", "latency_us", "checkpointing"]),
];

/// What runs tell over time, as tables with a row for each moment; only the tables that have rows.
pub(crate) fn over_time(results: &Results) -> impl Iterator<Item = (&'static str, String)> {
    OVER_TIME.iter().filter_map(|(name, key, numbers)| Some((*name, moments(results, key, numbers)?)))
}

fn moments(results: &Results, key: &str, names: &[&str]) -> Option<String> {
    let mut out = format!("round,series,{},{}\n", field(results.x), names.join(","));
    let mut some = false;
    for (run, found) in results.runs.iter().zip(&results.found) {
        for (round, value) in (1..).zip(found) {
            for look in value[key].as_array().into_iter().flatten() {
                let numbers: Vec<String> = names.iter().map(|name| number(look[*name].as_f64())).collect();
                let _ = writeln!(out, "{round},{},{},{}", field(&run.series), run.x, numbers.join(","));
                some = true;
            }
        }
    }
    some.then_some(out)
}
