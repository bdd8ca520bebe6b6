//! All experiments, with results that are made up.
//!
//! They come from a seed; or, where every sentence is compared, from the text files beside this
//! one. A case there begins with the name of an experiment. Each indented line is a run of one
//! round on two processors: `series | x | column number, ...`; `behind A..B` makes freshness over
//! time, with bytes behind that grow from A to B. What the experiment says of it follows, a
//! sentence a line, behind `>`. Every experiment has a case as its paper found it, and one the
//! other way round.

use std::collections::HashMap;

use clap::Parser;
use serde_json::{Value, json};

use super::{frame::Experiment, plot, report, results::Results, *};

/// What a benchmark could have printed. Every number is different, so that it can be found again.
fn made_up(experiment: &Experiment, random: &mut freshet_workloads::random::Random) -> Value {
    let mut value = json!({});
    for column in experiment.columns {
        let mut place = &mut value;
        for key in column.pointer.trim_start_matches('/').split('/') {
            place = &mut place[key];
        }
        let number = random.below(1 << 40) as f64 / f64::from(1 << 20);
        *place = if column.name.starts_with("freshness") || column.name == "utilization" {
            json!(number / f64::from(1 << 20))
        } else {
            json!(number)
        };
    }
    let look = |step: u64| json!({"seconds": step as f64 / 50.0, "freshness": 0.99, "behind_bytes": step * 1000});
    value["freshness_series"] = (0..100).map(look).collect();
    value
}

fn results(experiment: &Experiment, mut scale: Scale, seed: u64) -> Results {
    scale.log_bytes_per_s = 45e6;
    let runs = (experiment.sweep)(&scale);
    let mut random = freshet_workloads::random::Random::stream(seed, 0);
    let mut rounds = || (0..scale.rounds).map(|_| made_up(experiment, &mut random)).collect();
    let found = runs.iter().map(|_| rounds()).collect();
    Results { x: experiment.x, columns: experiment.columns, scale, runs, found }
}

fn scales() -> [Scale; 2] {
    [Scale::new(true, None, None), Scale { processors: 8, ..Scale::new(false, None, None) }]
}

#[test]
fn every_run_is_a_benchmark_that_exists() {
    for scale in scales() {
        for experiment in all() {
            for run in results(&experiment, scale, 1).runs {
                let command = format!("freshet-lab bench {} --json", sweep::command(&run, &scale));
                if let Err(cause) = crate::Lab::try_parse_from(command.split_whitespace()) {
                    panic!("{}, {}: `{command}`: {cause}", experiment.name, run.series);
                }
            }
        }
    }
}

#[test]
fn every_experiment_makes_a_report_of_whatever_was_found() {
    for seed in 1..=5 {
        for scale in scales() {
            for experiment in all() {
                let results = results(&experiment, scale, seed);
                let name = format!("{}, seed {seed}", experiment.name);
                let (report, paragraph) =
                    (report::markdown(&experiment, &results), report::paragraph(&experiment, &results));
                assert!(
                    report.lines().all(|line| line.len() <= 100 || line.starts_with(['|', ' '])),
                    "{name}: {report}"
                );
                assert!(report.replace('\n', " ").contains(&paragraph), "{name}");
                for wrong in ["NaN", "inf", "not measured", "  "] {
                    assert!(!paragraph.contains(wrong), "{name}: {wrong:?} in {paragraph}");
                }
                for series in results.series() {
                    assert!(report.contains(&format!("| {series} |")), "{name}: {series}");
                }
                assert!((experiment.beside)(&results).iter().all(|row| !row.here.contains("NaN")), "{name}");
                assert!(!(experiment.panels)(&results).is_empty(), "{name}");
            }
        }
    }
}

#[test]
fn a_paragraph_follows_what_was_found() {
    for experiment in all() {
        let of = |seed| report::paragraph(&experiment, &results(&experiment, Scale::new(false, None, None), seed));
        assert_ne!(of(1), of(2), "{}", experiment.name);
    }
}

#[test]
fn a_report_also_comes_of_nothing_at_all() {
    // A benchmark of another version might not tell what is wanted: that must not be a panic.
    for experiment in all() {
        let mut results = results(&experiment, Scale::new(true, None, None), 1);
        results.found = results.runs.iter().map(|_| vec![json!({})]).collect();
        report::markdown(&experiment, &results);
        plot::svg("nothing", &(experiment.panels)(&results)).unwrap();
    }
}

#[test]
fn medians_and_curves_are_those_of_the_rounds() {
    let experiment = all().remove(1);
    let mut results = results(&experiment, Scale::new(true, Some(3), None), 1);
    results.found[0] = [5.0, 1.0, 3.0].map(|tps| json!({"tps": tps})).to_vec();
    let series = results.runs[0].series.clone();
    let x = results.runs[0].x;
    assert!((results.at(&series, x, "tps") - 3.0).abs() < 1e-9);
    assert!(results.at("nobody", x, "tps").is_nan() && results.at(&series, x, "freshness_mean").is_nan());
    let point = results.curve(&series, "tps", 2.0).points[0];
    assert_eq!((point.low, point.y, point.high), (2.0, 6.0, 10.0));
    assert!(results.noise("tps") >= 4.0 / 3.0);
    let data = table::data(&results);
    assert_eq!(data.lines().count(), 1 + 3 * results.runs.len());
    assert!(data.lines().nth(1).unwrap().starts_with(&format!("1,{series},{x},5,,")), "{data}");
    assert!(table::summary(&results).lines().nth(1).unwrap().starts_with(&format!("{series},{x},3,3,,")));
}

/// An experiment's sentences about runs, without that about one round, which is everywhere.
fn sentences_of(experiment: &Experiment, runs: &[&str]) -> Vec<String> {
    let scale = Scale { processors: 2, log_bytes_per_s: 45e6, ..Scale::new(false, Some(1), None) };
    let mut results =
        Results { x: experiment.x, columns: experiment.columns, scale, runs: Vec::new(), found: Vec::new() };
    for line in runs {
        let [series, x, numbers] = line.split('|').map(str::trim).collect::<Vec<_>>()[..] else { panic!("{line:?}") };
        let mut value = json!({});
        for entry in numbers.split(',').map(str::trim).filter(|entry| !entry.is_empty()) {
            note(experiment, &mut value, entry);
        }
        let (series, x) = (series.to_owned(), x.parse().unwrap_or_else(|_| panic!("{line:?}")));
        results.runs.push(frame::Run { series, x, arguments: String::new() });
        results.found.push(vec![value]);
    }
    let mut sentences = (experiment.differs)(&results);
    sentences.retain(|sentence| *sentence != report::noise(&results));
    sentences
}

#[test]
fn every_sentence_follows_what_was_found() {
    let files = ["query_fresh", "silor", "distributed_logging", "record_replay", "active_memory"];
    let path = |file| format!("{}/src/experiment/tests/{file}.txt", env!("CARGO_MANIFEST_DIR"));
    let text: String = files.map(|file| fs::read_to_string(path(file)).expect(file)).join("\n");
    let experiments = all();
    let (mut cases, mut wrong) = (HashMap::<&str, usize>::new(), String::new());
    let mut lines = text.lines().filter(|line| !line.is_empty() && !line.starts_with('#')).peekable();
    while let Some(name) = lines.next() {
        let experiment = experiments.iter().find(|it| it.name == name).unwrap_or_else(|| panic!("no {name:?}"));
        *cases.entry(experiment.name).or_default() += 1;
        let runs: Vec<&str> = std::iter::from_fn(|| lines.next_if(|line| line.starts_with(' '))).collect();
        let expected: Vec<&str> = std::iter::from_fn(|| lines.next_if(|line| line.starts_with('>'))).collect();
        let sentences: Vec<String> =
            sentences_of(experiment, &runs).iter().map(|sentence| format!("> {sentence}")).collect();
        if sentences != expected {
            wrong += &format!("{name}\n{}\n{}\n\n", runs.join("\n"), sentences.join("\n"));
        }
    }
    assert!(wrong.is_empty(), "these say something else:\n{wrong}");
    for experiment in &experiments {
        assert!(cases.get(experiment.name) >= Some(&2), "{} has no case and its reverse", experiment.name);
    }
}

/// Puts `column number` where the benchmark would have told it.
fn note(experiment: &Experiment, value: &mut Value, entry: &str) {
    let (name, number) = entry.rsplit_once(' ').unwrap_or_else(|| panic!("{entry:?}"));
    if name == "behind" {
        let (from, to) = number.split_once("..").expect("behind A..B");
        let (from, to): (f64, f64) = (from.parse().unwrap(), to.parse().unwrap());
        let look = |step: i32| json!({"behind_bytes": from + (to - from) * f64::from(step) / 7.0, "seconds": step});
        value["freshness_series"] = (0..8).map(look).collect();
        return;
    }
    let column = experiment.columns.iter().find(|column| column.name == name);
    let mut place = value;
    for key in column.unwrap_or_else(|| panic!("no column {name}")).pointer.trim_start_matches('/').split('/') {
        place = &mut place[key];
    }
    *place = json!(number.parse::<f64>().unwrap());
}

#[test]
fn noise_is_reported_where_there_is_more_than_one_round() {
    let experiment = all().remove(1);
    let mut results = results(&experiment, Scale::new(true, Some(3), None), 1);
    for found in &mut results.found {
        *found = [90.0, 100.0, 115.0].map(|tps| json!({"tps": tps})).to_vec();
    }
    assert_eq!(
        report::noise(&results),
        "Rounds of one run differ by up to 25.0 % in throughput, so smaller differences say nothing."
    );
}

#[test]
fn a_compressed_table_is_the_same_each_time_and_comes_back() {
    let text = "round,series\n".repeat(1000);
    let packed = gzip(&text).unwrap();
    assert!(packed == gzip(&text).unwrap() && packed.len() < text.len() / 20, "{} bytes", packed.len());
    let mut unpacked = String::new();
    io::Read::read_to_string(&mut flate2::read::GzDecoder::new(&packed[..]), &mut unpacked).unwrap();
    assert_eq!(unpacked, text);
}

#[test]
fn a_name_means_all_those_of_a_paper_or_one() {
    let names = |name: &str| named(name).iter().map(|experiment| experiment.name).collect::<Vec<_>>();
    assert_eq!(names("all").len(), all().len());
    let of_paper = names("query-fresh");
    assert!(of_paper.len() == 9 && of_paper.iter().all(|name| name.starts_with("query-fresh/")), "{of_paper:?}");
    assert_eq!(names("query-fresh/figure6"), ["query-fresh/figure6"]);
    assert!(names("query").is_empty() && names("figure6").is_empty() && names("").is_empty());
}
