//! Figures 1, 5, 6 and 7: MemSilo, LogSilo and SiloR over time.

use super::*;

/// What the paper states of one workload.
struct Stated {
    /// Transactions per second of MemSilo, LogSilo and SiloR.
    rates: [f64; 3],
    /// The mean latency of SiloR, in milliseconds.
    latency: f64,
    source: &'static str,
}

const YCSB: Stated = Stated { rates: [10.83e6, 9.01e6, 8.76e6], latency: 90.0, source: "figure 1" };
const TPCC: Stated = Stated { rates: [592e3, 575e3, 548e3], latency: 110.0, source: "figure 5" };

/// The additional runs of figures 6 and 7: how their series end, and what makes them others.
const MORE: [(&str, &str); 2] = [(", run 2", " --seed 43"), (", run 3", " --seed 44")];
/// In figure 7 MemSilo also runs a worker on every processor.
const EVERY: &str = "MemSilo with a worker on every processor";

pub(super) fn figure_1() -> Experiment {
    Experiment {
        name: "silor/figure1",
        place: "figure 1, section 6.2",
        shows: "YCSB 70/30 over time, with checkpoints",
        sweep: |scale| three(scale, &ycsb(scale), "", ""),
        beside: |results| beside(results, &YCSB),
        differs: |results| differs(results, &YCSB),
        ..over_time()
    }
}

pub(super) fn figure_5() -> Experiment {
    Experiment {
        name: "silor/figure5",
        place: "figure 5, section 6.3",
        shows: "TPC-C over time, with checkpoints",
        sweep: |scale| three(scale, &tpcc(scale), "", ""),
        beside: |results| beside(results, &TPCC),
        differs: |results| differs(results, &TPCC),
        ..over_time()
    }
}

pub(super) fn figure_6() -> Experiment {
    Experiment {
        name: "silor/figure6",
        place: "figure 6, appendix",
        shows: "YCSB 70/30 over time: additional runs",
        sweep: |scale| {
            let runs = MORE.map(|(run, options)| three(scale, &ycsb(scale), run, options));
            runs.into_iter().flatten().collect()
        },
        panels: panels_of_runs,
        beside: |results| beside_runs(results, &YCSB),
        differs: differs_runs,
        ..over_time()
    }
}

pub(super) fn figure_7() -> Experiment {
    Experiment {
        name: "silor/figure7",
        place: "figure 7, appendix",
        shows: "TPC-C over time: additional runs, and more workers for MemSilo",
        sweep: |scale| {
            let runs = MORE.map(|(run, options)| {
                let (series, memory) = (format!("{EVERY}{run}"), format!("--domain none{options}"));
                let mut runs = vec![one(&series, scale.processors, &tpcc(scale), &memory)];
                runs.extend(three(scale, &tpcc(scale), run, options));
                runs
            });
            runs.into_iter().flatten().collect()
        },
        panels: panels_of_runs,
        beside: |results| {
            let mut rows = beside_runs(results, &TPCC);
            rows.push(Beside {
                what: "MemSilo with a worker on every processor, of MemSilo with one less".to_owned(),
                stated: "565 to 583 k/s with 32 workers, 587 to 596 k/s with 28".to_owned(),
                source: "section 6.3",
                here: list(&of_runs(results, EVERY, percent)),
            });
            rows
        },
        differs: |results| {
            let mut out = differs_runs(results);
            let more = of_runs(results, EVERY, |share| share);
            let verdict = match more.iter().filter(|share| **share > 1.0).count() {
                0 => "As in the paper, a worker on every processor makes MemSilo no faster",
                all if all == more.len() => "Unlike in the paper, a worker on every processor makes MemSilo faster",
                _ => "A worker on every processor makes MemSilo faster in one run and slower in another",
            };
            let shares: Vec<String> = more.into_iter().map(percent).collect();
            out.insert(out.len() - 1, format!("{verdict}: it does {} of its rate with one less.", list(&shares)));
            out
        },
        ..over_time()
    }
}

fn three(scale: &Scale, workload: &str, run: &str, options: &str) -> Vec<Run> {
    let threads = workers(scale);
    [(MEMORY, "--domain none"), (LOG, DISK), (ALL, &format!("{DISK} {CHECKPOINTS}"))]
        .map(|(series, with)| one(&format!("{series}{run}"), threads, workload, &format!("{with}{options}")))
        .to_vec()
}

/// Of the throughput of MemSilo.
fn kept(results: &Results, series: &str) -> f64 {
    of(results, series, "tps") / of(results, MEMORY, "tps")
}

fn beside(results: &Results, stated: &Stated) -> Vec<Beside> {
    let [memory, log, all] = stated.rates;
    let row =
        |what: &str, there: String, here| Beside { what: what.to_owned(), stated: there, source: stated.source, here };
    vec![
        row(MEMORY, thousands(memory), thousands(of(results, MEMORY, "tps"))),
        row("LogSilo, of MemSilo", percent(log / memory), percent(kept(results, LOG))),
        row("SiloR, of MemSilo", percent(all / memory), percent(kept(results, ALL))),
        row("SiloR, mean latency", format!("{} ms", stated.latency), format!("{:.1} ms", wait(results, ALL))),
    ]
}

fn differs(results: &Results, stated: &Stated) -> Vec<String> {
    let [memory, log, all] = stated.rates;
    let mut out = Vec::new();
    for (series, there) in [(LOG, log / memory), (ALL, all / memory)] {
        let here = kept(results, series);
        out.push(format!(
            "{series} keeps {} of the throughput of MemSilo, {} in the paper ({}).",
            percent(here),
            than(here, there, 0.02),
            percent(there)
        ));
    }
    out.push(format!(
        "A checkpoint was being written in {:.0} half seconds of SiloR's run; its slowest half second has {} of \
         the mean.",
        of(results, ALL, "halves_with_checkpoint"),
        percent(of(results, ALL, "slowest_half_second"))
    ));
    let waits = [LOG, ALL].map(|series| format!("{:.1} ms for {series}", wait(results, series)));
    out.push(format!("A commit waits in the mean {}; an epoch alone makes it 20 ms.", list(&waits)));
    out.push(noise(results));
    out
}

/// Throughput of a system in each of the additional runs, as a share of MemSilo's in the same.
fn of_runs<T>(results: &Results, system: &str, of_share: impl Fn(f64) -> T) -> Vec<T> {
    let tps = |system: &str, run: &str| of(results, &format!("{system}{run}"), "tps");
    MORE.iter().map(|(run, _)| of_share(tps(system, run) / tps(MEMORY, run))).collect()
}

fn panels_of_runs(results: &Results) -> Vec<Panel> {
    let all = results.series();
    let of_run = |(run, _): &(&str, &str)| {
        let series: Vec<&str> = all.iter().copied().filter(|series| series.ends_with(run)).collect();
        panels(results, &series, run)
    };
    MORE.iter().flat_map(of_run).collect()
}

fn beside_runs(results: &Results, stated: &Stated) -> Vec<Beside> {
    let [memory, log, all] = stated.rates;
    let row = |system: &str, there: f64| Beside {
        what: format!("{system}, of MemSilo, in two more runs"),
        stated: format!("{} in the first run; the others are typical, too", percent(there / memory)),
        source: stated.source,
        here: list(&of_runs(results, system, percent)),
    };
    vec![row(LOG, log), row(ALL, all)]
}

fn differs_runs(results: &Results) -> Vec<String> {
    let mut out = Vec::new();
    for system in [LOG, ALL] {
        let shares = of_runs(results, system, |share| share);
        let shares: Vec<String> = shares.into_iter().map(percent).collect();
        out.push(format!("{system} keeps {} of the throughput of MemSilo.", list(&shares)));
    }
    let waits: Vec<String> = MORE.map(|(run, _)| format!("{:.1} ms", wait(results, &format!("{ALL}{run}")))).to_vec();
    out.push(format!("A commit of SiloR waits in the mean {}.", list(&waits)));
    out.push(noise(results));
    out
}
