//! What the paper's standby lacks (section 5.4): readers, and how fresh they are while the primary
//! is under full load.

use super::{
    super::{
        frame::Beside,
        plot::{Panel, places_of},
    },
    *,
};

pub(super) fn experiment() -> Experiment {
    Experiment {
        name: "record-replay/freshness",
        paper: PAPER,
        place: "sections 5.4 and 6.4",
        shows: "how fresh a standby is, and what it costs, while the primary is under full load, and under 90 % of it",
        x: "load, percent",
        columns: OF_STANDBY,
        calibrate: false,
        sweep: |scale| {
            let mut runs = Vec::new();
            for (workload, options) in WORKLOADS {
                let tpcc = tpcc(scale, options, 1);
                let mut add = |system: &str, load: u8, how: &str| {
                    let arguments = format!("{tpcc} {how}{} --load {load}", apart(scale, 1));
                    runs.push(run(series(workload, system), load.into(), arguments));
                };
                add(ALONE, 100, "");
                for load in [90, 100] {
                    add(SHIPPING, load, &format!("--standbys 1 {BYTES}"));
                    add(AGAIN, load, &format!("--standbys 1 {INPUTS}"));
                }
                add(CALVIN, 100, &format!("--standbys 1 {LOCKS}"));
                if options.is_empty() {
                    add(COMMANDS, 100, "--standbys 1 --apply command");
                }
            }
            runs
        },
        scaled: |scale| {
            format!(
                "{} {} Commits wait for the standby (2-safe), which acknowledges what is persistent there. Freshness \
                 is the standby's read view, of the primary's, in the log's bytes. Under less than full load the \
                 primary's threads rest for the rest of the time. Command logging is one thread that \
                 executes what keeps to its warehouse: the paper's serial replay.",
                places(scale),
                smaller(scale)
            )
        },
        panels: |results| {
            let stages = ["receive", "enter", "execute", "complete", "replay", "standby"];
            let columns = stages.map(|stage| format!("{stage}_cpu_us_per_txn"));
            let columns: Vec<&str> = columns.iter().map(String::as_str).collect();
            let mut panels = Vec::new();
            for (workload, _) in WORKLOADS {
                let of = |(color, system): (usize, &&str)| {
                    results.across(system, (&*series(workload, system), FULL), color, &columns, 1.0)
                };
                let curves = [SHIPPING, AGAIN, CALVIN].iter().enumerate().map(of).collect();
                let ticks = places_of(stages.map(|stage| match stage {
                    "standby" => "all".to_owned(),
                    stage => stage.to_owned(),
                }));
                let title = format!("{workload}, processor time of the standby");
                panels.push(Panel { ticks, ..Panel::over_numbers(&title, "", "us for a transaction", curves) });
            }
            panels
        },
        beside,
        differs,
    }
}

/// All of what the primary can do, in percent.
const FULL: f64 = 100.0;
/// What a standby with as many processors is to keep up with.
const NINE_TENTHS: f64 = 90.0;

/// Processor time of executing again, of what the primary takes to execute.
fn cost(results: &Results, workload: &str) -> f64 {
    let at = |column: &str| results.at(&series(workload, AGAIN), FULL, column);
    (at("enter_cpu_us_per_txn") + at("execute_cpu_us_per_txn")) / at("forward_cpu_us_per_txn")
}

fn beside(results: &Results) -> Vec<Beside> {
    let mut rows = Vec::new();
    for (workload, _) in WORKLOADS {
        let mut add = |what: &str, stated: &str, source, here: String| {
            rows.push(Beside { what: format!("{workload}, {what}"), stated: stated.to_owned(), source, here });
        };
        let at = |load: f64, column: &str| percent(results.at(&series(workload, AGAIN), load, column));
        add("freshness p1 at 90 % load", "at least 99 %", GOAL, at(NINE_TENTHS, "freshness_p1"));
        add("log that became visible, at 90 % load", "keeps up", GOAL, at(NINE_TENTHS, "kept_up"));
        add("log that became visible, of what was written", "keeps up", "section 6.4", at(FULL, "kept_up"));
        let cost = cost(results, workload);
        let here = if cost.is_finite() { format!("{cost:.2} times") } else { "not measured".to_owned() };
        add("entering and executing, of the primary's processor time", "at most 1.0 times", GOAL, here);
    }
    rows
}

fn differs(results: &Results) -> Vec<String> {
    let mut out = Vec::new();
    for (workload, _) in WORKLOADS {
        let at = |system: &str, column: &str| results.at(&series(workload, system), FULL, column);
        let verdict = if at(AGAIN, "kept_up") >= 0.97 { "keeps up" } else { "falls behind" };
        out.push(format!(
            "{workload}: a standby that executes again {verdict} ({} of the log became visible while it was written), \
             with freshness p1 of {} ({} with bytes, {} with Calvin); the primary does {} of what it does alone.",
            percent(at(AGAIN, "kept_up")),
            percent(at(AGAIN, "freshness_p1")),
            percent(at(SHIPPING, "freshness_p1")),
            percent(at(CALVIN, "freshness_p1")),
            percent(at(AGAIN, "tps") / at(ALONE, "tps"))
        ));
        let rested = |system: &str, column: &str| percent(results.at(&series(workload, system), NINE_TENTHS, column));
        out.push(format!(
            "At 90 % load {} of the log became visible, with freshness p1 of {} ({} with bytes).",
            rested(AGAIN, "kept_up"),
            rested(AGAIN, "freshness_p1"),
            rested(SHIPPING, "freshness_p1")
        ));
        out.push(format!(
            "Its process takes {:.1} us for a transaction, {:.1} us with Calvin and {:.1} us with bytes; entering and \
             executing take {:.2} times what executing takes on the primary.",
            at(AGAIN, "standby_cpu_us_per_txn"),
            at(CALVIN, "standby_cpu_us_per_txn"),
            at(SHIPPING, "standby_cpu_us_per_txn"),
            cost(results, workload)
        ));
    }
    let commands = results.at(&series("TPC-C", COMMANDS), FULL, "kept_up");
    out.extend(if_measured(commands, || {
        let verdict = if commands >= 0.97 { "keeps up with one thread, too" } else { "falls behind" };
        let took = results.at(&series("TPC-C", COMMANDS), FULL, "standby_cpu_us_per_txn");
        format!(
            "Serial replay of commands {verdict}: {} of the log became visible, for {took:.1} us a transaction.",
            percent(commands)
        )
    }));
    out.push(noise(results));
    out
}
