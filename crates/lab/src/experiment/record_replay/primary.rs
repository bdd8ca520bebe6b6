//! Figures 3 and 4: what replication costs the primary, over a fast network and over a slow one.

use super::{
    super::{frame::Beside, plot::Panel, report::thousands},
    *,
};

/// What of its throughput a primary keeps, of that without a standby.
fn kept(results: &Results, workload: &str, system: &str, x: f64, alone_at: f64) -> f64 {
    results.at(&series(workload, system), x, "tps") / results.at(&series(workload, ALONE), alone_at, "tps")
}

pub(super) fn figure_3() -> Experiment {
    Experiment {
        name: "record-replay/figure3",
        paper: PAPER,
        place: "figure 3, section 6.3",
        shows: "throughput of the primary with one standby over a fast network",
        x: "threads",
        columns: OF_STANDBY,
        calibrate: false,
        sweep: sweep_fast,
        scaled: |scale| {
            format!(
                "Threads go as far as they leave a processor to the standby. {} {} The paper's standby discards what \
                 it gets; here it replays, and no commit waits for it (1-safe). Alone has a log, too, and no standby.",
                places(scale),
                smaller(scale)
            )
        },
        panels: |results| {
            let mut panels = Vec::new();
            for (workload, _) in WORKLOADS {
                let curves =
                    [ALONE, SHIPPING, AGAIN].map(|system| results.curve(&series(workload, system), "tps", 1e-3));
                panels.push(Panel::over_numbers(workload, "threads", "k transactions/s", curves.into()));
            }
            panels
        },
        beside: beside_fast,
        differs: fast,
    }
}

fn sweep_fast(scale: &Scale) -> Vec<Run> {
    let mut runs = Vec::new();
    for threads in threads_beside(scale) {
        for (workload, options) in WORKLOADS {
            let tpcc = tpcc(scale, options, threads);
            let mut add = |system: &str, how: &str| {
                let arguments = format!("{tpcc} {how}{}", apart(scale, threads));
                runs.push(run(series(workload, system), threads as f64, arguments));
            };
            add(ALONE, "");
            add(SHIPPING, &format!("--standbys 1 --safety 1-safe {BYTES}"));
            add(AGAIN, &format!("--standbys 1 --safety 1-safe {INPUTS}"));
        }
    }
    runs
}

fn beside_fast(results: &Results) -> Vec<Beside> {
    let mut rows = Vec::new();
    for (workload, _) in WORKLOADS {
        let x = last(results, &series(workload, ALONE));
        for (system, stated) in [(SHIPPING, "about 98 %"), (AGAIN, "96 to 97 %")] {
            rows.push(Beside {
                what: format!("{workload}, {system}, of the throughput alone, {x} thread(s)"),
                stated: stated.to_owned(),
                source: "section 6.3",
                here: percent(kept(results, workload, system, x, x)),
            });
        }
    }
    rows.push(Beside {
        what: "TPC-C, what inputs cost the primary".to_owned(),
        stated: "at most 4 % of its throughput".to_owned(),
        source: GOAL,
        here: percent(1.0 - kept(results, "TPC-C", AGAIN, 1.0, 1.0)),
    });
    rows
}

fn fast(results: &Results) -> Vec<String> {
    let mut out = Vec::new();
    for (workload, _) in WORKLOADS {
        let x = last(results, &series(workload, ALONE));
        let [shipping, again] = [SHIPPING, AGAIN].map(|system| kept(results, workload, system, x, x));
        let cost = |system: &str| {
            let names = (&*series(workload, system), &*series(workload, ALONE));
            ratio(results, "forward_cpu_us_per_txn", names, x)
        };
        out.push(format!(
            "{workload} with {x} thread(s): with a standby that asks for inputs the primary does {} of what it does \
             alone, {} in the paper (96.5 %), and with one that gets the log {} (98.0 % there); a transaction takes \
             {:.2} and {:.2} times the processor time.",
            percent(again),
            than(again, 0.965, 0.02),
            percent(shipping),
            cost(AGAIN),
            cost(SHIPPING)
        ));
    }
    out.push(noise(results));
    out
}

/// Links, in percent of what the log needs: the goal's, another, and what 1 Gb/s is for 16 cores of
/// the paper's machine.
const LINKS: [f64; 3] = [5.0, 10.0, 21.0];
/// What 10 Gb/s is for them.
const WIDE: f64 = 210.0;

/// A link of this share of the log's rate, in percent, as an option.
fn link(scale: &Scale, share: f64) -> String {
    format!("--bandwidth-gbit {:.5}", share / 100.0 * scale.log_bytes_per_s * 8.0 / 1e9)
}

/// How much log may wait, in bytes: a quarter of a second's, so that a run finds a full buffer
/// soon.
fn buffer(scale: &Scale) -> u64 {
    ((scale.log_bytes_per_s / 4.0) as u64).next_power_of_two().max(1 << 20)
}

pub(super) fn figure_4() -> Experiment {
    Experiment {
        name: "record-replay/figure4",
        paper: PAPER,
        place: "figure 4, section 6.3.1",
        shows: "throughput of the primary with one standby over a slow network",
        x: "link_percent",
        columns: OF_STANDBY,
        calibrate: true,
        sweep: sweep_slow,
        scaled: |scale| {
            format!(
                "A link carries a share of what one thread logs here of TPC-C: 21 % is what 1 Gb/s carries of \
                 the {:.0} MB/s that 16 cores log in the paper (table 3), and {} Gb/s here. {} One warehouse, and \
                 two for Spread; the standby joins from a checkpoint of what was loaded. Commits wait for the \
                 standby (2-safe), and at most {} KiB of log, a quarter of a second's, may wait, for the paper's send \
                 buffer of 512 MB.",
                PAPER_LOG_RATE / 1e6,
                short(0.21 * scale.log_bytes_per_s * 8.0 / 1e9),
                places(scale),
                buffer(scale) >> 10
            )
        },
        panels: |results| {
            let mut panels = Vec::new();
            for (workload, _) in WORKLOADS {
                let alone = (series(workload, ALONE), 0.0);
                let relative =
                    |system: &str| results.relative(&series(workload, system), "tps", (&*alone.0, alone.1), 100.0);
                let curves = [SHIPPING, AGAIN, AGAIN_PACKED].map(relative);
                let title = format!("{workload}, of the throughput alone");
                panels.push(Panel::over_numbers(&title, "link, % of the log", "%", curves.into()));
            }
            panels
        },
        beside: beside_slow,
        differs: slow,
    }
}

fn sweep_slow(scale: &Scale) -> Vec<Run> {
    let mut runs = Vec::new();
    let waits = format!("--log-buffer-bytes {0} --log-uncommitted-bytes {0}", buffer(scale));
    for (workload, options) in WORKLOADS {
        let warehouses = if options.contains("spread") { 2 } else { 1 };
        let tpcc = format!("tpcc --isolation serializable --domain file --warehouses {warehouses}{options}");
        let standby = "--standbys 1 --join-loaded";
        let mut add = |system: &str, x: f64, how: &str| {
            let arguments = format!("{tpcc} {waits} {how}{}", apart(scale, 1));
            runs.push(run(series(workload, system), x, arguments));
        };
        add(ALONE, 0.0, "");
        // The others stand for what the paper has at 1 Gb/s.
        let links = match options {
            _ if scale.quick => &[WIDE],
            "" => &LINKS[..],
            _ => &LINKS[2..],
        };
        for share in links {
            let link = link(scale, *share);
            add(SHIPPING, *share, &format!("{standby} {BYTES} {link}"));
            add(AGAIN, *share, &format!("{standby} {INPUTS} {link}"));
            add(AGAIN_PACKED, *share, &format!("{standby} {INPUTS} --compress {link}"));
        }
    }
    runs
}

fn beside_slow(results: &Results) -> Vec<Beside> {
    let mut rows = Vec::new();
    for (workload, _) in WORKLOADS {
        let mut add = |system: &str, x: f64, stated: &str, source| {
            let here = kept(results, workload, system, x, 0.0);
            if here.is_finite() {
                rows.push(Beside {
                    what: format!("{workload}, {system}, link of {x} %, of the throughput alone"),
                    stated: stated.to_owned(),
                    source,
                    here: percent(here),
                });
            }
        };
        add(SHIPPING, 21.0, "\"much worse\"", "figure 4, 16 cores");
        add(AGAIN, 21.0, "\"can sustain the primary throughput\"", "figure 4, 16 cores");
        add(SHIPPING, 5.0, "held at the link's rate, 5 %", GOAL);
        add(AGAIN, 5.0, "at least 95 %", GOAL);
        add(AGAIN_PACKED, 5.0, "at least 95 %", GOAL);
    }
    rows
}

fn slow(results: &Results) -> Vec<String> {
    let mut out = Vec::new();
    for (workload, _) in WORKLOADS {
        for x in results.xs(&series(workload, AGAIN)) {
            let [shipping, again, packed] =
                [SHIPPING, AGAIN, AGAIN_PACKED].map(|system| kept(results, workload, system, x, 0.0));
            let verdict = match (shipping < 0.9, again >= 0.9) {
                (true, true) => "as in the paper, inputs fit where the log does not",
                (true, false) if packed >= 0.9 => "only compressed inputs fit where the log does not",
                (true, false) => "neither fits",
                (false, true) => "both fit",
                (false, false) => "inputs cost more than the link",
            };
            out.push(format!(
                "{workload}, link of {x} % of the log's rate: log shipping leaves the primary {} of its throughput \
                 alone, Record-Replay {}, and {} with LZ4: {verdict}.",
                percent(shipping),
                percent(again),
                percent(packed)
            ));
        }
    }
    let alone = results.at(&series("TPC-C", ALONE), 0.0, "tps");
    out.extend(if_measured(alone, || format!("Alone the primary does {} of TPC-C.", thousands(alone))));
    out.push(noise(results));
    out
}
