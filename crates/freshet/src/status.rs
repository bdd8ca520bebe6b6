//! `freshet status`: how a node and its cluster are.

use std::{fmt::Write, process::ExitCode, time::Duration};

use serde_json::{Map, Value};

use crate::{Failure, cli::StatusOptions, units};

/// Shows a node's status.
pub(crate) fn run(options: &StatusOptions) -> Result<ExitCode, Failure> {
    let patience = Duration::from_secs(options.patience);
    let json = options.shows.connect(&options.address, patience)?.status(patience)?;
    if options.json {
        println!("{json}");
    } else {
        print!("{}", table(&serde_json::from_str(&json)?));
    }
    Ok(ExitCode::SUCCESS)
}

/// A number within `value`; 0 when none exists.
pub fn number(value: &Value, key: &str) -> u64 {
    value[key].as_u64().unwrap_or(0)
}

/// A time within `value`, as the engine writes it; zero when none exists.
pub fn time(value: &Value, key: &str) -> Duration {
    let part = |name: &str| value[key][name].as_u64().unwrap_or(0);
    Duration::new(part("secs"), u32::try_from(part("nanos")).unwrap_or(0))
}

fn text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Null => "-".to_owned(),
        other => other.to_string(),
    }
}

/// How much of how much is done, as a share and an amount, and the rate.
pub(crate) fn progress(unit: &str, done: u64, of: u64, per_second: u64) -> (String, String, String) {
    let amount = |number: u64| match unit {
        "bytes" => units::bytes(number),
        unit => format!("{} {unit}", units::grouped(number)),
    };
    (format!("{:.0} %", done as f64 * 100.0 / of.max(1) as f64), amount(of), amount(per_second))
}

/// The status of a node that starts.
fn starting(status: &Value) -> String {
    let mut out = format!("{:<16} starting (pid {})\n", "node", number(status, "pid"));
    phase(status, &mut |name, value| {
        let _ = writeln!(out, "{name:<16} {value}");
    });
    out
}

/// How far a start is, or the take-over of a mirror.
fn phase(status: &Value, line: &mut impl FnMut(&str, String)) {
    line("phase", text(&status["phase"]));
    let of = number(status, "of");
    if of > 0 {
        let (unit, rate) = (status["unit"].as_str().unwrap_or("bytes"), number(status, "per_second"));
        let (done, of, rate) = progress(unit, number(status, "done"), of, rate);
        let left = status["seconds_left"].as_f64();
        let left = left.map_or(String::new(), |left| format!(", {rate}/s, {left:.0} s left"));
        line("progress", format!("{done} of {of}{left}"));
    }
}

/// Those to whom a primary, or a relay, ships its log.
fn fed(status: &Value, line: &mut impl FnMut(&str, String)) {
    let standbys = status["standbys"].as_array().map_or(&[][..], Vec::as_slice);
    for standby in standbys {
        line("standby", format!("{} at {}", text(&standby["node"]), text(&standby["address"])));
        let connected = match (standby["connected"] == true, standby["mirror"] == true) {
            (true, true) => "connected, a mirror",
            (true, false) => "connected",
            (false, _) => "not connected",
        };
        let sync = match (&standby["synchronous"], &standby["in_sync"]) {
            (Value::Bool(false), _) => "asynchronous".to_owned(),
            (_, Value::Bool(true)) => format!("in sync, place {}", text(&standby["place"])),
            _ => format!("not in sync, place {}", text(&standby["place"])),
        };
        line("", format!("{connected}, {sync}, {}", text(&standby["mode"])));
        if let Some(fabric) = standby["fabric"].as_str() {
            let by = if standby["one_sided"] == true { "one-sided" } else { "by a thread there" };
            line("", format!("written over {fabric}, {by}"));
        }
        if standby["state_differs"] == true {
            line(
                "STATE DIFFERS",
                "from this node's: see its status, and docs/operations.md#when-states-differ".to_owned(),
            );
        }
        if let Some(lacks) = standby["lacks"].as_str() {
            line("", format!("gets nothing more, and lacks {lacks}"));
        }
        line(
            "",
            format!(
                "behind by: ship {}, ack {}, visible {}",
                units::bytes(number(standby, "ship_lag_bytes")),
                units::bytes(number(standby, "ack_lag_bytes")),
                units::bytes(number(standby, "visible_lag_bytes"))
            ),
        );
        if let Some(loss) = standby["last_loss"].as_str() {
            line("", format!("last connection ended: {loss}"));
        }
    }
    if standbys.is_empty() {
        line("standbys", "none has joined".to_owned());
    }
    for observer in status["observers"].as_array().into_iter().flatten() {
        let behind = units::bytes(number(observer, "ack_lag_bytes"));
        line("archive", format!("{} (or a node that is joining), behind by {behind}", text(&observer["node"])));
    }
}

/// How many transactions were recorded since the start, and why others were not.
fn recorded(inputs: &Map<String, Value>) -> String {
    let count = |value: Option<&Value>| units::grouped(value.and_then(Value::as_u64).unwrap_or(0));
    let bytes = units::bytes(inputs.get("bytes").and_then(Value::as_u64).unwrap_or(0));
    let mut shown = format!("{} transactions recorded, {bytes}", count(inputs.get("recorded")));
    for (number, (why, kept)) in inputs.get("kept").and_then(Value::as_object).into_iter().flatten().enumerate() {
        let _ = write!(shown, "{} {why} {}", if number == 0 { "; not recorded:" } else { "," }, count(Some(kept)));
    }
    shown
}

/// Whether a standby's state is that of its primary.
fn state_proof(proof: &Value, line: &mut impl FnMut(&str, String)) {
    if let Some(differs) = proof["differs"].as_str() {
        line("STATE DIFFERS", format!("{differs}: see docs/operations.md#when-states-differ"));
    }
    let compared = match (number(proof, "marks"), proof["equal_at"].as_u64()) {
        _ if proof["counts"] == false => "this node is counting what it has".to_owned(),
        (0, _) | (_, None) => "not compared with the primary's yet".to_owned(),
        (marks, Some(at)) => format!("equal to the primary's at {at}; compared {} times", units::grouped(marks)),
    };
    line("state", compared);
}

/// What has become of transactions that a standby executes again.
fn executed(again: &Map<String, Value>) -> String {
    let count = |key| units::grouped(again.get(key).and_then(Value::as_u64).unwrap_or(0));
    format!(
        "{} transactions executed again; fetched: {} of old snapshots, {} that did not give the same",
        count("executed"),
        count("old_snapshots"),
        count("mismatches")
    )
}

/// What a standby has yet to execute again, and which form it asks for, if it executes.
fn pending(again: &Value, line: &mut impl FnMut(&str, String)) {
    let Some(counts) = again.as_object() else { return };
    line("again", executed(counts));
    let takes = again["restart"]
        .is_object()
        .then(|| format!(": a restart or a take-over takes {:.1?} for that", time(again, "restart")));
    let (bytes, transactions) = (number(again, "pending_bytes"), units::grouped(number(again, "pending_transactions")));
    line("pending", format!("{} in {transactions} transactions{}", units::bytes(bytes), takes.unwrap_or_default()));
    let chosen = &again["chosen"];
    if chosen.is_object() {
        line(
            "chosen",
            format!("{} for {:.0?}: {}", text(&chosen["form"]), time(chosen, "lasts"), text(&chosen["why"])),
        );
        let now = &chosen["figures"];
        let rate = |key| format!("{}/s", units::bytes(number(now, key)));
        line(
            "",
            format!(
                "now: {} of log in {}, link busy {} %, {} % of the transactions as inputs, processors idle {} %",
                rate("arrived_s"),
                rate("carried_s"),
                number(now, "link_busy"),
                number(now, "with_inputs"),
                text(&now["idle"]),
            ),
        );
    }
}

/// A status for people. Keys that it does not know are left out: a newer node may have more.
fn table(status: &Value) -> String {
    if status["role"] == "starting" {
        return starting(status);
    }
    let mut out = String::new();
    let mut line = |name: &str, value: String| {
        let _ = writeln!(out, "{name:<16} {value}");
    };
    let role = text(&status["role"]);
    line("node", format!("{} at {} (pid {})", text(&status["node"]), text(&status["address"]), number(status, "pid")));
    line("cluster", text(&status["cluster"]));
    line("role", format!("{role} in term {}", text(&status["term"])));
    line("up", format!("{:.0?}, Freshet {}", time(status, "uptime"), text(&status["version"])));
    line("read view", format!("{}, oldest reader {}", text(&status["read_view"]), text(&status["oldest_reader"])));
    line(
        "memory",
        format!(
            "{}, at most {} so far",
            units::bytes(number(status, "resident_bytes")),
            units::bytes(number(status, "peak_resident_bytes"))
        ),
    );
    if let Some(torn) = status["torn_at_start"].as_str() {
        line("cut at start", torn.to_owned());
    }
    if let Some(why) = status["checkpoint_passed_over"].as_str() {
        line("passed over", format!("the newest checkpoint at the start: {why}"));
    }
    let checkpoint = &status["checkpoint"];
    if !checkpoint.is_null() {
        let mut shown = match checkpoint["start"].as_u64() {
            Some(start) => format!(
                "from {start}, {} rows, {}",
                number(checkpoint, "rows"),
                units::bytes(number(checkpoint, "bytes"))
            ),
            None => "none yet".to_owned(),
        };
        if let Some(bytes) = checkpoint["under_way"].as_u64() {
            let _ = write!(shown, "; being written: {}", units::bytes(bytes));
        }
        if let Some(failure) = checkpoint["failure"].as_str() {
            let _ = write!(shown, "; the last attempt failed: {failure}");
        }
        line("checkpoint", shown);
    }
    if let Some(failure) = status["log_failure"].as_str() {
        line("LOG FAILED", format!("{failure}; nothing is committed any more: restart the node, or promote a standby"));
    }
    if let Some(lack) = status["log_waits"].as_str() {
        line(
            "LOG WAITS",
            format!("{lack}; new transactions that write are refused until there is room, reads are answered"),
        );
    }
    let descriptors = &status["descriptors"];
    if let (Some(limit), Some(used)) = (descriptors["limit"].as_u64(), descriptors["used"].as_u64()) {
        line("descriptors", format!("{used} of {limit} in use"));
    }
    match role.as_str() {
        "primary" => {
            let standing = &status["standing"];
            let mut stands = text(&standing["standing"]);
            if let Some(in_sync) = standing["in_sync"].as_u64() {
                let of = standing["needed"].as_u64().map(|needed| format!("{needed} needed"));
                let of = of.unwrap_or_else(|| format!("{} configured", number(standing, "configured")));
                let _ = write!(stands, ", {in_sync} standby(s) in sync, {of}");
            }
            let missed: Vec<_> = standing["waits_for"].as_array().into_iter().flatten().map(node).collect();
            if !missed.is_empty() {
                let _ = write!(stands, "; commits wait for {}", missed.join(", "));
            }
            line("safety", format!("{}: {stands}", text(&status["safety"])));
            if let Some(remedy) = standing["remedy"].as_str() {
                line("to go on", remedy.to_owned());
            }
            for step in ["reserved", "filled", "durable", "committed"] {
                line(step, text(&status[step]));
            }
            if let Some(inputs) = status["inputs"].as_object() {
                line("inputs", recorded(inputs));
            }
            fed(status, &mut line);
        }
        "mirror" => {
            follows(status, &mut line);
            let by = if status["one_sided"] == true { "one-sided" } else { "by a thread here" };
            line("written", format!("over {}, {by}", text(&status["fabric"])));
            let whole = if status["whole"] == true { "" } else { "; not yet whole: no voice in a take-over" };
            if let Some(seeding) = status["seeding"].as_object() {
                let bytes = |name: &str| seeding.get(name).and_then(Value::as_u64).unwrap_or(0);
                let (done, of, _) = progress("bytes", bytes("done_bytes"), bytes("of_bytes"), 0);
                line("seeding", format!("{done} of a checkpoint of {of}"));
            }
            let behind = units::bytes(number(status, "lag_bytes"));
            line("end", format!("{}, behind by {behind}{whole}", text(&status["end"])));
            line("mark", text(&status["mark"]));
            let (granted, most) = (number(status, "granted_bytes"), number(status, "most_bytes"));
            let kept = if status["kept"] == true { ", in files" } else { "" };
            line("memory", format!("{} of at most {}{kept}", units::bytes(granted), units::bytes(most)));
            if let Some(lacks) = status["lacks"].as_str() {
                line("NO MEMORY", lacks.to_owned());
            }
        }
        "standby" => {
            follows(status, &mut line);
            let policy = match status["replay"].as_str() {
                Some("none") => {
                    "none: readers see what they saw at the start, until this node takes over or restarts".into()
                }
                _ => format!("{}, {}", text(&status["replay"]), text(&status["apply"])),
            };
            line("replay", policy);
            if let Some(missing) = status["missing"].as_str() {
                line("missing", missing.to_owned());
            }
            state_proof(&status["state_proof"], &mut line);
            line("asks for", text(&status["encoding"]));
            pending(&status["again"], &mut line);
            for (step, lag) in [
                ("received", "receive_lag"),
                ("persisted", "persist_lag"),
                ("replayed", "replay_lag"),
                ("visible", "visible_lag"),
            ] {
                let lag = &status[lag];
                let behind = units::bytes(number(lag, "bytes"));
                line(step, format!("{}, behind by {behind} and {:.1?}", text(&status[step]), time(lag, "time")));
            }
            for tail in status["saved_tails"].as_array().map_or(&[][..], Vec::as_slice) {
                line("saved tail", text(tail));
            }
            let relay = &status["relay"];
            if relay.is_object() {
                let (up, down) = (text(&relay["upward"]), text(&relay["downward"]));
                line(
                    "relay",
                    format!("acknowledges {} up to {up}, passes on {down} as committed", text(&relay["ack"])),
                );
                fed(relay, &mut line);
            }
        }
        "taking-over" => {
            if status["phase"].is_string() {
                phase(status, &mut line);
            }
            pending(&status["again"], &mut line);
        }
        _ => {}
    }
    out
}

/// The connection to the node that this one follows.
fn follows(status: &Value, line: &mut impl FnMut(&str, String)) {
    let link = &status["link"];
    let mut follows = format!("{} {}", text(&link["link"]), link["address"].as_str().unwrap_or(""));
    for key in ["last_failure", "why"] {
        if let Some(why) = link[key].as_str() {
            let _ = write!(follows, ": {why}");
        }
    }
    line("primary", follows);
    line("in sync", text(&status["in_sync"]));
}

/// A node's name, as everywhere else.
fn node(id: &Value) -> String {
    id.as_u64().map_or_else(|| text(id), |id| format!("{id:016x}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_is_readable_even_when_it_is_strange() {
        for json in [
            "{}",
            "[]",
            r#"{"role":"primary","standing":{"standing":"blocked","in_sync":1,"needed":2},"standbys":[{}]}"#,
            r#"{"role":"standby","link":{"link":"failed","why":"another cluster"},"visible_lag":{"bytes":2048,"time":{"secs":1,"nanos":5}}}"#,
        ] {
            let table = table(&serde_json::from_str(json).unwrap());
            assert!(table.contains("role"), "{table}");
        }
        let blocked = table(&serde_json::json!({
            "role": "primary", "safety": "quorum:3", "standing": {"standing": "blocked", "in_sync": 1, "needed": 2, "waits_for": [17, "00000000000000ab"], "remedy": "start them"},
        }));
        let says =
            "quorum:3: blocked, 1 standby(s) in sync, 2 needed; commits wait for 0000000000000011, 00000000000000ab";
        assert!(blocked.contains(says) && blocked.contains("start them"), "{blocked}");
        let recorded = table(&serde_json::json!({
            "role": "primary", "inputs": {"recorded": 1200, "bytes": 2048, "kept": {"long": 1, "messages": 3}},
        }));
        let fed = |fabric: &str, one_sided: bool| {
            let standby = serde_json::json!({"connected": true, "fabric": fabric, "one_sided": one_sided});
            table(&serde_json::json!({"role": "primary", "standbys": [standby]}))
        };
        assert!(fed("shm", true).contains("written over shm, one-sided"), "{}", fed("shm", true));
        assert!(fed("tcp", false).contains("written over tcp, by a thread there"), "{}", fed("tcp", false));
        let says = "1,200 transactions recorded, 2.0 KiB; not recorded: long 1, messages 3";
        assert!(recorded.contains(says), "{recorded}");
        let proof = |proof| table(&serde_json::json!({"role": "standby", "state_proof": proof}));
        let equal = proof(serde_json::json!({"counts": true, "marks": 1200, "equal_at": 77, "differs": null}));
        assert!(equal.contains("equal to the primary's at 77; compared 1,200 times"), "{equal}");
        let other = proof(serde_json::json!({"counts": true, "marks": 1, "equal_at": null, "differs": "in orders"}));
        assert!(other.contains("STATE DIFFERS") && other.contains("in orders"), "{other}");
        let fed = table(&serde_json::json!({"role": "primary", "standbys": [{"state_differs": true}]}));
        assert!(fed.contains("STATE DIFFERS"), "{fed}");
        let second = serde_json::json!({"secs": 1, "nanos": 500_000_000});
        let again = serde_json::json!({
            "executed": 5, "pending_bytes": 2048, "pending_transactions": 1300, "restart": second,
            "chosen": {"form": "inputs", "lasts": {"secs": 35, "nanos": 0}, "why": "the link is busy",
                "figures": {"arrived_s": 2048, "carried_s": 1024, "link_busy": 45, "with_inputs": 99, "idle": 61}},
        });
        let memory =
            serde_json::json!({"role": "taking-over", "phase": "rows", "unit": "chunks", "done": 30, "of": 1200});
        let shown = table(&memory);
        assert!(shown.contains("rows") && shown.contains("2 % of 1,200 chunks"), "{shown}");
        for role in ["standby", "taking-over"] {
            let shown = table(&serde_json::json!({"role": role, "encoding": "inputs", "again": again}));
            for says in [
                "pending          2.0 KiB in 1,300 transactions: a restart or a take-over takes 1.5s for that",
                "chosen           inputs for 35s: the link is busy",
                "now: 2.0 KiB/s of log in 1.0 KiB/s, link busy 45 %, 99 % of the transactions as inputs",
                "as inputs, processors idle 61 %",
            ] {
                assert!(shown.contains(says), "{shown}");
            }
        }
    }
}
