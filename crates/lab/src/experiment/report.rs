//! The report of an experiment, in Markdown.

use std::fmt::Write;

use super::{
    frame::{Beside, Experiment, Paper},
    machine,
    plot::lines,
    results::Results,
    sweep::{CALIBRATION, command},
    table,
};
use crate::bench::child::median;

/// A number for people: four digits that say something.
pub(crate) fn short(number: f64) -> String {
    if !number.is_finite() {
        return "-".to_owned();
    }
    let digits = if number.abs() < 1e-12 { 0 } else { number.abs().log10().floor() as i32 };
    let decimals = usize::try_from((3 - digits).clamp(0, 4)).unwrap_or(0);
    format!("{number:.decimals$}")
}

/// Share, as percent.
pub(crate) fn percent(share: f64) -> String {
    if share.is_finite() { format!("{:.1} %", share * 100.0) } else { "not measured".to_owned() }
}

/// Thousands per second.
pub(crate) fn thousands(rate: f64) -> String {
    if rate.is_finite() { format!("{:.2} k/s", rate / 1e3) } else { "not measured".to_owned() }
}

/// How a number stands to another one: equal within `slack`.
pub(crate) fn than(here: f64, there: f64, slack: f64) -> &'static str {
    if here < there - slack {
        "less than"
    } else if here > there + slack {
        "more than"
    } else {
        "about as much as"
    }
}

/// `a, b and c`.
pub(crate) fn list(parts: &[String]) -> String {
    match parts {
        [] => "none".to_owned(),
        [one] => one.clone(),
        [first @ .., last] => format!("{} and {last}", first.join(", ")),
    }
}

/// The sentence on how far rounds of the same run lie apart.
pub(crate) fn noise(results: &Results) -> String {
    if results.scale.rounds < 2 {
        return "There was one round only, so nothing tells differences from chance.".to_owned();
    }
    let noise = results.noise("tps");
    format!("Rounds of one run differ by up to {} in throughput, so smaller differences say nothing.", percent(noise))
}

/// What differs and why.
pub(crate) fn paragraph(experiment: &Experiment, results: &Results) -> String {
    (experiment.differs)(results).join(" ")
}

/// Adds a paragraph of lines that are at most 100 columns wide.
fn wrap(out: &mut String, paragraph: &str) {
    let _ = writeln!(out, "{}\n", lines(paragraph, 100).join("\n"));
}

/// Everything, as a file beside the plot.
pub(crate) fn markdown(experiment: &Experiment, results: &Results) -> String {
    let scale = &results.scale;
    let Paper { reference, machine: there, .. } = experiment.paper;
    let mut out = format!("# {}\n\n", experiment.name);
    wrap(&mut out, &format!("What it shows: {}. After {reference}, {} ({there}).", experiment.shows, experiment.place));
    out.push_str("![The plot](plot.svg)\n\n");
    let marks = format!(
        "Full marks: measured here, medians of {} round(s) of {} s with the range of the rounds. Hollow marks and \
         dashed lines: stated by the paper, or Freshet's goal, or a model where the legend says so.",
        scale.rounds, scale.seconds
    );
    wrap(&mut out, &marks);
    wrap(&mut out, &paragraph(experiment, results));

    out.push_str("## Beside the paper\n\n| what | stated | where | here |\n|---|---|---|---|\n");
    for Beside { what, stated, source, here } in (experiment.beside)(results) {
        let _ = writeln!(out, "| {what} | {stated} | {source} | {here} |");
    }

    out.push_str("\n## Medians\n\n");
    // Columns that nothing has would only make the table wide.
    let has = |name: &str| (0..results.runs.len()).any(|run| !results.samples(run, name).is_empty());
    let names: Vec<&str> = results.columns.iter().map(|column| column.name).filter(|name| has(name)).collect();
    let _ = writeln!(out, "| series | {} | {} |", results.x, names.join(" | "));
    let _ = writeln!(out, "|---|---{}|", "|---:".repeat(names.len()));
    for (position, run) in results.runs.iter().enumerate() {
        let cells = names.iter().map(|name| short(median(results.samples(position, name)).unwrap_or(f64::NAN)));
        let _ = writeln!(out, "| {} | {} | {} |", run.series, run.x, cells.collect::<Vec<_>>().join(" | "));
    }

    out.push_str("\n## Where and how\n\n");
    wrap(&mut out, &format!("{}.", machine::describe()));
    wrap(&mut out, &(experiment.scaled)(scale));
    if experiment.calibrate {
        let rate = short(scale.log_bytes_per_s / 1e6);
        let _ = writeln!(out, "One thread without a standby logs {rate} MB/s here:\n");
        let _ = writeln!(out, "    freshet-lab bench {CALIBRATION}{} {}\n", scale.alone(), scale.time());
    }
    out.push_str("Every round runs all of these, every other round backwards:\n\n");
    for run in &results.runs {
        let _ = writeln!(out, "    # {}, {} {}", run.series, results.x, run.x);
        let _ = writeln!(out, "    freshet-lab bench {} --json", command(run, scale));
    }
    let mut files = "The medians are in `summary.csv`, every run is in `data.csv.gz` (`zcat data.csv.gz`).".to_owned();
    for (name, _) in table::over_time(results) {
        let _ = write!(files, " What runs told over time is in `{name}.csv.gz`.");
    }
    out.push('\n');
    wrap(&mut out, &files);
    out.truncate(out.trim_end().len());
    out.push('\n');
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short() {
        for (number, text) in
            [(12_345.6, "12346"), (1.23456, "1.235"), (0.012345, "0.0123"), (f64::NAN, "-"), (0.0, "0.000")]
        {
            assert_eq!(short(number), text);
        }
    }

    #[test]
    fn numbers_within_the_slack_are_equal() {
        let texts = [0.89, 0.91, 1.09, 1.11].map(|here| than(here, 1.0, 0.1));
        assert_eq!(texts, ["less than", "about as much as", "about as much as", "more than"]);
    }
}
