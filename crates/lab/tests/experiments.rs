//! `freshet-lab experiment`, for real: processes, files, plots.

use std::{
    fs,
    io::{Cursor, Read},
    path::Path,
    process::{Command, Output},
};

fn freshet(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_freshet-lab")).args(arguments).output().expect("freshet starts")
}

/// The text of a compressed file.
fn unpacked(directory: &Path, file: &str) -> String {
    let packed = fs::read(directory.join(file)).unwrap_or_else(|cause| panic!("{file}: {cause}"));
    let mut text = String::new();
    flate2::read::GzDecoder::new(&packed[..]).read_to_string(&mut text).unwrap();
    text
}

/// Rows of CSV without quoted fields, each with as many fields as the header.
fn rows(text: &str) -> Vec<Vec<&str>> {
    let rows: Vec<Vec<&str>> = text.lines().map(|line| line.split(',').collect()).collect();
    assert!(rows.len() > 1 && rows.iter().all(|row| row.len() == rows[0].len()), "{text}");
    rows
}

/// The text of a column in every row but the header.
fn column<'r>(rows: &[Vec<&'r str>], name: &str) -> Vec<&'r str> {
    let position = rows[0].iter().position(|it| *it == name).unwrap_or_else(|| panic!("no column {name}"));
    rows[1..].iter().map(|row| row[position]).collect()
}

/// Whether every element of an XML text is closed, in order, and no text has a bare ampersand.
/// Returns how many elements there are.
fn elements(xml: &str) -> usize {
    let (mut open, mut count, mut rest) = (Vec::new(), 0, xml);
    while let Some(begin) = rest.find('<') {
        for part in rest[..begin].split('&').skip(1) {
            assert!(part.split_once(';').is_some_and(|(name, _)| name.len() <= 6), "a bare ampersand before {part:?}");
        }
        let end = begin + rest[begin..].find('>').expect("a tag ends");
        let tag = &rest[begin + 1..end];
        assert!(tag.matches('"').count().is_multiple_of(2) && !tag.contains('<'), "<{tag}>");
        if let Some(name) = tag.strip_prefix('/') {
            assert_eq!(open.pop(), Some(name), "</{name}>");
        } else {
            count += 1;
            let name = tag.split_whitespace().next().expect("a tag has a name");
            if !tag.ends_with('/') {
                open.push(name);
            }
        }
        rest = &rest[end + 1..];
    }
    assert!(open.is_empty() && rest.trim().is_empty(), "{open:?} are not closed");
    count
}

/// Runs one quickly and checks what comes out; returns its summary and its report.
fn quick(name: &str, directory: &Path, series: &[&str]) -> (String, String) {
    let directory_name = directory.to_string_lossy();
    let output = freshet(&["experiment", name, "--quick", "--out", &directory_name]);
    let messages = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{messages}");
    whole(directory, series)
}

/// Checks what an experiment has left; returns its summary and its report.
fn whole(directory: &Path, series: &[&str]) -> (String, String) {
    let read = |file: &str| fs::read_to_string(directory.join(file)).unwrap_or_else(|cause| panic!("{file}: {cause}"));
    // Sentences of the report may be broken anywhere.
    let report = read("report.md").replace('\n', " ");
    let (data, summary) = (unpacked(directory, "data.csv.gz"), read("summary.csv"));
    for wanted in series {
        for text in [&data, &summary] {
            assert!(column(&rows(text), "series").contains(wanted), "{wanted} is not in {text}");
        }
        assert!(report.contains(wanted) && read("plot.svg").contains(wanted), "{wanted}");
    }
    assert!(elements(&read("plot.svg")) > 50);
    let mut png = png::Decoder::new(Cursor::new(fs::read(directory.join("plot.png")).unwrap())).read_info().unwrap();
    let mut pixels = vec![0; png.output_buffer_size().unwrap()];
    png.next_frame(&mut pixels).unwrap();
    let ink = pixels.chunks(3).filter(|pixel| *pixel != [255, 255, 255]).count();
    assert!(ink > 5_000 && ink < pixels.len() / 3, "{ink} pixels have ink");
    (summary, report)
}

/// The names that `experiment list` tells.
fn listed() -> Vec<String> {
    let list = String::from_utf8(freshet(&["experiment", "list"]).stdout).unwrap();
    list.lines().map(|line| line.split(' ').next().unwrap().to_owned()).collect()
}

#[test]
#[ignore = "takes 20 minutes: each experiment of each paper, quickly"]
fn every_experiment_runs_to_its_end() {
    let scratch = tempfile::tempdir().unwrap();
    let names = listed();
    let output = freshet(&["experiment", "all", "--quick", "--out", &scratch.path().to_string_lossy()]);
    let messages = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{messages}");
    assert!(names.len() > 20 && messages.matches("calibration").count() == 1, "{messages}");
    for name in names {
        let (_, report) = whole(&scratch.path().join(&name), &[]);
        let own = report.split("## Beside the paper").next().unwrap();
        assert!(!own.contains("not measured") && !own.contains("NaN"), "{name}: {own}");
    }
}

#[test]
fn joining_is_measured_and_reported() {
    let scratch = tempfile::tempdir().unwrap();
    let (summary, report) = quick("query-fresh/bootstrap", scratch.path(), &[]);
    let kept: f64 = column(&rows(&summary), "kept")[0].parse().unwrap();
    let serving: f64 = column(&rows(&summary), "serving_s")[0].parse().unwrap();
    assert!(kept > 0.0 && serving > 0.0);
    for sentence in [format!("the primary does {:.1} % of its", kept * 100.0), format!("serves after {serving:.2} s")] {
        assert!(report.contains(&sentence), "{sentence:?} is not in {report}");
    }
}

#[test]
fn freshness_is_measured_over_time_while_a_standby_reads() {
    let scratch = tempfile::tempdir().unwrap();
    let all = ["Sync/quarter", "Async/quarter", "Logical/quarter", "Query Fresh/quarter", "Logical/all"];
    let (summary, report) = quick("query-fresh/figure7", scratch.path(), &all);
    let rows = rows(&summary);
    let of = |series: &str, name: &str| {
        let position = column(&rows, "series").iter().position(|it| *it == series).unwrap();
        column(&rows, name)[position].parse::<f64>().unwrap_or(f64::NAN)
    };
    let mean = of("Query Fresh/quarter", "freshness_mean");
    assert!(report.contains(&format!("Query Fresh is {:.3} % fresh in the mean", mean * 100.0)), "{report}");
    for series in &all[..4] {
        assert!(of(series, "standby_tps") > 0.0, "{series} does not read: {summary}");
        let utilization = of(series, "utilization");
        assert!(utilization > 0.0 && utilization < 1.0, "{series}: {utilization}");
    }
    assert!(of("Logical/all", "utilization").is_nan());
    let looks = unpacked(scratch.path(), "series.csv.gz");
    for series in all {
        // A look each 20 ms for two seconds, on a machine that may be busy.
        let count = looks.lines().filter(|line| line.starts_with(&format!("1,{series},1,"))).count();
        assert!((2..=120).contains(&count), "{count} looks at {series}");
    }
}

#[test]
fn throughput_is_measured_over_time() {
    let scratch = tempfile::tempdir().unwrap();
    let (summary, report) = quick("silor/figure1", scratch.path(), &["MemSilo", "LogSilo", "SiloR"]);
    let rows = rows(&summary);
    assert!(column(&rows, "tps").iter().all(|tps| tps.parse::<f64>().unwrap() > 0.0), "{summary}");
    assert!(report.contains("LogSilo keeps") && report.contains("SiloR keeps"), "{report}");
    let halves = unpacked(scratch.path(), "half_seconds.csv.gz");
    assert!(halves.starts_with("round,series,workers,seconds,tps,latency_us,checkpointing\n"), "{halves}");
}

#[test]
fn inputs_are_less_than_what_transactions_write() {
    let scratch = tempfile::tempdir().unwrap();
    let (summary, report) = quick("record-replay/table2", scratch.path(), &["Bytes of a transaction"]);
    let rows = rows(&summary);
    let of = |name: &str| column(&rows, name)[0].parse::<f64>().unwrap();
    for kind in ["new_order", "delivery", "payment", "credit_check"] {
        let [input, form, log] = ["input", "form", "log"].map(|what| of(&format!("{kind}_{what}_bytes")));
        assert!(0.0 < input && input < form && form < log / 2.0, "{kind}: {input}, {form}, {log}");
    }
    assert!(report.contains("NewOrder is told"), "{report}");
}

/// The state at the end is the primary's, or the benchmark fails.
#[test]
fn a_recorded_trace_is_executed_again_by_every_scheme() {
    for how in
        [&["--apply", "calvin", "--mix", "plus", "--spread"][..], &["--execute-threads", "1"], &["--layout", "chains"]]
    {
        let mut arguments = vec!["bench", "replay", "--json", "--warehouses", "1", "--threads", "2"];
        arguments.extend(["--seconds", "1", "--warmup", "0.2"]);
        arguments.extend(how);
        let output = freshet(&arguments);
        assert!(output.status.success(), "{how:?}: {}", String::from_utf8_lossy(&output.stderr));
        let found: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        let number = |key: &str| found[key].as_f64().unwrap();
        assert!(number("executed") > 100.0 && number("seconds") > 0.0, "{how:?}: {found}");
        // One thread waits for none; with locks few begin before what they read is there.
        let most = if how.contains(&"calvin") { 0.25 } else { 0.0 };
        assert!(how.contains(&"chains") || number("waits_per_txn") <= most, "{how:?}: {found}");
        // Some took too long to be executed again, at most.
        assert!(number("fetched") < number("executed") / 20.0, "{how:?}: {found}");
    }
}

/// Copies are alike at the end, and what a serial execution gives, or the benchmark fails.
#[test]
fn the_platform_runs_every_scheme() {
    let bench = |arguments: &[&str]| {
        let common = ["bench", "platform", "--json", "--seconds", "0.5", "--warmup", "0.1", "--records", "500"];
        let output = freshet(&[&common, arguments].concat());
        assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        serde_json::from_slice::<serde_json::Value>(&output.stdout).unwrap()
    };
    for scheme in ["active-memory", "log-shipping", "h-store", "calvin"] {
        let found = bench(&["--scheme", scheme, "--multi", "20", "--check", "--roles"]);
        let number = |pointer: &str| found.pointer(pointer).and_then(serde_json::Value::as_f64).unwrap();
        assert!(number("/tps") > 0.0 && number("/latency_us/p50") > 0.0, "{scheme}: {found}");
        let replays = number("/cpu_us_per_txn/replay") > 0.0;
        assert_eq!(replays, scheme != "active-memory", "{scheme}: {found}");
    }
    let found = bench(&["--lose", "--check", "--multi", "20"]);
    assert!(found["recovery"]["us"].as_f64().unwrap() > 0.0, "{found}");
    let output = freshet(&["bench", "platform", "--nodes", "2", "--copies", "3"]);
    assert!(!output.status.success(), "there are fewer nodes than copies");
}

/// A standby that executes again has the state of its primary, says what it costs, and takes over.
#[test]
fn a_benchmark_runs_with_standbys_that_execute_again() {
    let bench = |arguments: &[&str]| {
        let common = ["--json", "--seconds", "1", "--warmup", "0.2", "--standbys", "1", "--encoding", "inputs"];
        let output = freshet(&[&["bench"], arguments, &common].concat());
        assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        serde_json::from_slice::<serde_json::Value>(&output.stdout).unwrap()
    };
    let calvin = ["--apply", "calvin", "--isolation", "serializable"];
    let ycsb = ["ycsb", "--records", "20000", "--theta", "0.9", "--operations", "4", "--mix", "A"];
    for arguments in [
        [&["tpcc", "--check"][..], &[]].concat(),
        [&["tpcc", "--check", "--mix", "plus"][..], &calvin].concat(),
        [&ycsb[..], &[]].concat(),
        [&ycsb[..], &calvin].concat(),
    ] {
        let found = bench(&arguments);
        let number = |pointer: &str| found.pointer(pointer).and_then(serde_json::Value::as_f64);
        let figure =
            |pointer: &str| number(pointer).unwrap_or_else(|| panic!("{arguments:?}: no {pointer} in {found}"));
        assert!(figure("/standby/again/executed") > 0.9, "{arguments:?}: {found}");
        assert!(figure("/standby/wire_share") < 0.9 && figure("/standby/wire_bytes_per_txn") > 1.0, "{found}");
        for stage in ["receive", "enter", "execute", "complete", "replay"] {
            let (time, all) =
                (figure(&format!("/standby/cpu_us_per_txn/{stage}")), figure("/standby/cpu_us_per_txn/process"));
            assert!(time > 0.0 && time < all, "{arguments:?}, {stage}: {found}");
        }
        assert_eq!(number("/failover_ms"), None);
    }
    let found = bench(&["tpcc", "--failover", "--safety", "1-safe"]);
    let number = |key: &str| found[key].as_f64().unwrap_or(0.0);
    assert!(number("failover_ms") > 0.0 && number("tps") > 0.0 && number("executed") > 0.0, "{found}");
}

/// Mirrors beside a standby, over both fabrics: what is written into them, and what that takes of
/// each node.
#[test]
fn a_benchmark_runs_with_mirrors() {
    for fabric in ["shm", "tcp"] {
        let output = freshet(
            &[
                &["bench", "ycsb", "--mix", "RMW", "--operations", "10", "--records", "2000", "--fabric", fabric][..],
                &["--mirrors", "2", "--standbys", "1", "--safety", "very-safe", "--json", "--seconds", "1"],
                &["--warmup", "0.2", "--window", "100"],
            ]
            .concat(),
        );
        assert!(output.status.success(), "{fabric}: {}", String::from_utf8_lossy(&output.stderr));
        let found: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        let figure = |pointer: &str| {
            found.pointer(pointer).and_then(serde_json::Value::as_f64).unwrap_or_else(|| panic!("{pointer}: {found}"))
        };
        // A column of 100 bytes of each of ten rows of 1008 bytes, and what it was before.
        let (bytes, log) = (figure("/mirror/bytes_per_txn"), figure("/log_bytes_per_txn"));
        assert!(bytes > 2.0 * 10.0 * 100.0 && bytes < log, "{fabric}: {found}");
        let share = figure("/mirror/share_of_log");
        assert!((share - bytes / log).abs() < 0.01, "{fabric}: {found}");
        let [forward, log, ship, primary, all, mirror] = ["forward", "log", "ship", "primary", "all_nodes", "mirror"]
            .map(|stage| match stage {
                "mirror" => figure("/mirror/cpu_us_per_txn"),
                _ => figure(&format!("/cpu_us_per_txn/{stage}")),
            });
        assert!(forward > 0.0 && ship > 0.0 && ship < log && log < primary, "{fabric}: {found}");
        let standby = figure("/standby/cpu_us_per_txn/process") * figure("/standby/kept_up");
        assert!(mirror >= 0.0 && all > primary + standby / 2.0, "{fabric}: {found}");
        if fabric == "shm" {
            assert!(mirror < standby / 4.0, "a mirror's processor has no part in it: {found}");
        }
    }
}

#[test]
fn a_failover_by_a_mirror_is_measured() {
    let output = freshet(
        &[&["bench", "failover", "--records", "5000", "--replay-threads", "2", "--json"][..], &["--fabric", "shm"]]
            .concat(),
    );
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let found: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let figure = |pointer: &str| found.pointer(pointer).and_then(serde_json::Value::as_f64).unwrap_or_default();
    let (all, rows, indexes) = (figure("/seconds"), figure("/rows/seconds"), figure("/indexes/seconds"));
    assert!(rows > 0.0 && indexes > 0.0 && rows + indexes < all, "{found}");
    // A table of records and the journal's; each record has a slot of 128 bytes.
    assert!(figure("/indexes/amount") >= 5000.0 && figure("/rows/amount") > 5000.0 * 128.0, "{found}");
}

#[test]
fn an_experiment_that_does_not_exist_is_refused() {
    let output = freshet(&["experiment", "query-fresh/figure99"]);
    let messages = String::from_utf8_lossy(&output.stderr);
    assert!(
        !output.status.success() && messages.contains("there is no experiment \"query-fresh/figure99\""),
        "{messages}"
    );
    let of =
        |paper: &str, figures: &[&str]| figures.iter().map(|figure| format!("{paper}/{figure}")).collect::<Vec<_>>();
    let expected = [
        of("query-fresh", &["table1", "figure6", "figure7", "figure8", "figure9", "figure10", "figure11", "figure12"]),
        of("query-fresh", &["bootstrap"]),
        of("silor", &["figure1", "figure2", "figure3", "figure4", "figure5", "figure6", "figure7", "recovery"]),
        of("distributed-logging", &["figure1", "figure4", "figure5", "figure6", "figure7", "figure8"]),
        of("record-replay", &["table2", "table3", "figure3", "figure4", "figure5", "figure6"]),
        of("record-replay", &["window", "lists", "freshness", "failover"]),
        of("active-memory", &["figure8", "figure9", "table2", "figure10", "figure11", "table3", "figure12"]),
        of("active-memory", &["figure13", "figure14"]),
    ];
    assert_eq!(listed(), expected.concat());
}

#[test]
fn a_crash_shortly_before_a_checkpoint_is_recovered_from() {
    let scratch = tempfile::tempdir().unwrap();
    let directory = scratch.path().to_string_lossy();
    for what in [["--records", "20000"], ["--warehouses", "1"]] {
        let mut arguments = vec!["bench", "restart", "--crash", "--json", "--seconds", "0", "--warmup", "0.5", "--dir"];
        arguments.push(&directory);
        arguments.extend(what);
        let output = freshet(&arguments);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let found: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        let number = |pointer: &str| found.pointer(pointer).and_then(serde_json::Value::as_u64).unwrap();
        // What was committed is there again: otherwise it would have failed.
        let (written, complete) = (number("/crashed/written_bytes"), number("/crashed/complete_bytes"));
        assert!(written as f64 >= complete as f64 * 0.95 && complete > 0, "{found}");
        assert_eq!(number("/checkpoint/amount"), complete, "{found}");
        assert!(number("/log/amount") > 0 && number("/crashed/committed") > 0, "{found}");
    }
}
