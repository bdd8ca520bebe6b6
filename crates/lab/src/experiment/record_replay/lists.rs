//! Section 6.4.2: version arrays against linked lists, and figure 6: how many versions a look-up in
//! a list passes.

use super::{
    super::{
        frame::Beside,
        plot::{Curve, Panel, places_of},
    },
    replay::{COLUMNS, TRACE, replay},
    *,
};

const ARRAYS: &str = "arrays";
const CHAINS: &str = "lists";

/// The two workloads of the section, with its slowdowns by the length of an epoch, in milliseconds.
const STATED: [(usize, [(f64, f64); 2]); 2] = [(0, [(100.0, 1.24), (750.0, 2.9)]), (2, [(100.0, 1.715), (750.0, 5.3)])];

/// How much may be in execution, in milliseconds of what one thread logs.
const WINDOWS: [f64; 4] = [50.0, 100.0, 250.0, 750.0];

/// A window that holds what is logged in this time, as options.
fn window(scale: &Scale, milliseconds: f64) -> String {
    let bytes = (scale.log_bytes_per_s * milliseconds / 1e3).max(1024.0);
    format!("--execute-bytes {bytes:.0} --execute-blocks 1048576")
}

/// How windows stand for epochs, in words.
const EPOCHS: &str = "A window that slides over the log stands for the paper's epochs: it holds what one thread logs \
                      of TPC-C here in as many milliseconds. Versions are in it until they are made; then they are \
                      in the tables, where the newest come first. All processors record, and execute.";

pub(super) fn lists() -> Experiment {
    Experiment {
        name: "record-replay/lists",
        paper: PAPER,
        place: "section 6.4.2",
        shows: "time to execute a trace again, with version arrays and with linked lists",
        x: "window_ms",
        columns: COLUMNS,
        calibrate: true,
        sweep: |scale| {
            let mut runs = Vec::new();
            let windows = if scale.quick { &WINDOWS[3..] } else { &WINDOWS[..] };
            for (place, _) in STATED {
                let (workload, options) = WORKLOADS[place];
                let replay = replay(scale, options, scale.processors);
                for ms in windows {
                    for (layout, name) in [(ARRAYS, "arrays"), (CHAINS, "chains")] {
                        let arguments = format!("{replay} --layout {name} {}", window(scale, *ms));
                        runs.push(run(series(workload, layout), *ms, arguments));
                    }
                }
            }
            runs
        },
        scaled: |scale| format!("{EPOCHS} {}", smaller(scale)),
        panels: |results| {
            let mut slower = Vec::new();
            for (color, (place, stated)) in STATED.into_iter().enumerate() {
                let workload = WORKLOADS[place].0;
                let points = results.xs(&series(workload, ARRAYS)).into_iter();
                let points = points.map(|x| (x, times(results, workload, x))).collect();
                slower.push(exactly(workload, color, points));
                slower.push(Curve::stated(&format!("Paper: {workload} (section 6.4.2)"), color, &stated));
            }
            vec![
                Panel::over_numbers(
                    "Executed again",
                    "window, ms of log",
                    "s, scaled to a trace of 30 s",
                    results.curves("share", TRACE),
                ),
                Panel::over_numbers("Lists, against arrays", "window, ms of log", "times as long", slower),
            ]
        },
        beside: |results| {
            let mut rows = Vec::new();
            for (place, stated) in STATED {
                let workload = WORKLOADS[place].0;
                for x in results.xs(&series(workload, ARRAYS)) {
                    let stated = stated.iter().find(|(ms, _)| (ms - x).abs() < 1e-9);
                    let times = times(results, workload, x);
                    rows.push(Beside {
                        what: format!("{workload}, lists against arrays, {x} ms"),
                        stated: stated.map_or_else(|| "-".to_owned(), |(_, times)| format!("{times:.2} times")),
                        source: "section 6.4.2",
                        here: if times.is_finite() { format!("{times:.2} times") } else { "not measured".to_owned() },
                    });
                }
            }
            rows
        },
        differs: differs_lists,
    }
}

/// How much longer it takes with lists.
fn times(results: &Results, workload: &str, x: f64) -> f64 {
    ratio(results, "share", (&*series(workload, CHAINS), &*series(workload, ARRAYS)), x)
}

fn differs_lists(results: &Results) -> Vec<String> {
    let mut out = Vec::new();
    for (place, stated) in STATED {
        let workload = WORKLOADS[place].0;
        let x = last(results, &series(workload, ARRAYS));
        let slower = times(results, workload, x);
        let verdict = if slower > 1.1 {
            "as in the paper, lists are slower"
        } else {
            "unlike in the paper, lists are not slower: a version leaves them as soon as it is made"
        };
        out.push(format!(
            "{workload}: with a window of {x} ms lists take {slower:.2} times as long as arrays, {} in the paper \
             ({:.2}): {verdict}.",
            than(slower, stated[1].1, 0.1),
            stated[1].1
        ));
    }
    if results.scale.rounds > 1 {
        out.push(format!("Rounds differ by up to {} in their time.", percent(results.noise("share"))));
    }
    out
}

/// Look-ups that have passed no version, one, two or three, and so on.
const PASSED: [Column; 14] = [
    column("passed_0", "/passed/0"),
    column("passed_1", "/passed/1"),
    column("passed_2", "/passed/2"),
    column("passed_4", "/passed/3"),
    column("passed_8", "/passed/4"),
    column("passed_16", "/passed/5"),
    column("passed_32", "/passed/6"),
    column("passed_64", "/passed/7"),
    column("passed_128", "/passed/8"),
    column("passed_256", "/passed/9"),
    column("passed_512", "/passed/10"),
    column("passed_1024", "/passed/11"),
    column("passed_2048", "/passed/12"),
    column("passed_4096", "/passed/13"),
];

pub(super) fn figure_6() -> Experiment {
    Experiment {
        name: "record-replay/figure6",
        paper: PAPER,
        place: "figure 6, section 6.4.2",
        shows: "how many versions look-ups in linked lists pass",
        x: "window_ms",
        columns: &PASSED,
        calibrate: true,
        sweep: |scale| {
            let of = |place: usize| {
                let (workload, options) = WORKLOADS[place];
                let replay = replay(scale, options, scale.processors);
                run(workload, 750.0, format!("{replay} --layout chains {}", window(scale, 750.0)))
            };
            STATED.map(|(place, _)| of(place)).into()
        },
        scaled: |scale| {
            format!(
                "{EPOCHS} A look-up is counted when it finds that the version it wants is still to be made; the paper \
                 counts all. {}",
                smaller(scale)
            )
        },
        panels: |results| {
            let names = PASSED.map(|column| column.name);
            let of = |(color, workload): (usize, &str)| results.across(workload, (workload, 750.0), color, &names, 1.0);
            let curves = results.series().into_iter().enumerate().map(of).collect();
            let ticks = places_of(names.map(|name| name.trim_start_matches("passed_").to_owned()));
            let panel =
                Panel::over_numbers("Look-ups in lists", "versions that they pass, at least", "look-ups", curves);
            vec![Panel { ticks, ..panel }]
        },
        beside: |results| {
            let row = |workload: &str| {
                let (all, cheap, long) = passed(results, workload);
                let here = match all > 0.0 {
                    true => format!("{} pass none or one, {} pass 4096 or more", percent(cheap), percent(long)),
                    false => "no look-up wanted what was to be made".to_owned(),
                };
                Beside {
                    what: format!("{workload}, versions that a look-up passes"),
                    stated: "most 1 or 2, \"a significant number\" over 4000".to_owned(),
                    source: "figure 6",
                    here,
                }
            };
            results.series().into_iter().map(row).collect()
        },
        differs: differs_figure_6,
    }
}

fn differs_figure_6(results: &Results) -> Vec<String> {
    let mut out = Vec::new();
    for workload in results.series() {
        let (all, cheap, long) = passed(results, workload);
        out.push(match (all > 0.0, long > 0.001) {
            (false, _) => format!("{workload}: no look-up wanted a version that was still to be made."),
            (true, true) => format!(
                "{workload}: {} of look-ups pass no version or one; as in the paper, some ({}) pass 4096 or \
                         more: records that are written often.",
                percent(cheap),
                percent(long)
            ),
            (true, false) => format!(
                "{workload}: {} of look-ups pass no version or one; unlike in the paper, none passes 4096 or \
                         more, or one of a thousand at most.",
                percent(cheap)
            ),
        });
    }
    out
}

/// How many look-ups there were, and which share of them passed one version at most, and 4096 or
/// more.
fn passed(results: &Results, workload: &str) -> (f64, f64, f64) {
    let counts = PASSED.map(|column| results.at(workload, 750.0, column.name));
    let all: f64 = counts.iter().sum();
    (all, (counts[0] + counts[1]) / all, counts[13] / all)
}
