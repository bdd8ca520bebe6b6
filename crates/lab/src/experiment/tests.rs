//! All experiments, with results that are made up from a seed.

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
                assert!(report.contains(&paragraph), "{name}");
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

#[test]
fn only_what_falls_is_said_to_fall() {
    let experiment = all().into_iter().find(|it| it.name == "query-fresh/figure6").unwrap();
    let told = |tps: fn(f64) -> f64| {
        let mut results = results(&experiment, Scale::new(false, None, None), 1);
        let Results { runs, found, .. } = &mut results;
        for (run, found) in runs.iter().zip(found) {
            for value in found {
                value["tps"] = json!(if run.x < 0.5 { 1000.0 } else { tps(run.x) });
            }
        }
        report::paragraph(&experiment, &results)
    };
    let (falling, rising) = (told(|x| 900.0 - 200.0 * x), told(|x| 200.0 * x));
    assert!(falling.contains("Async falls from 70.0 % with one standby to 30.0 % with 3"), "{falling}");
    assert!(rising.contains("Async keeps 20.0 % with one standby and 60.0 % with 3"), "{rising}");
    assert!(!rising.contains("falls"), "{rising}");
}
