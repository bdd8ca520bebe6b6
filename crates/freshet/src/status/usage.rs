//! The parts of a node's status about its memory, and about what SQL clients do.

use serde_json::Value;

use super::number;
use crate::units;

/// What clients do, and what memory the node takes.
pub(super) fn show(status: &Value, line: &mut impl FnMut(&str, String)) {
    memory(status, line);
    clients(status, line);
}

/// How much memory the node takes, of what it may, and what of it takes how much.
fn memory(status: &Value, line: &mut impl FnMut(&str, String)) {
    let [now, most] = ["resident_bytes", "peak_resident_bytes"].map(|key| units::bytes(number(status, key)));
    line("resident", format!("{now}, at most {most} so far"));
    let memory = &status["memory"];
    if !memory.is_object() {
        return;
    }
    let of = memory["limit"].as_u64().map(|limit| format!(" of at most {}", units::bytes(limit)));
    let (used, kept) = (units::bytes(number(memory, "used")), number(memory, "kept_for_snapshots"));
    let owners = memory["owners"].as_object().into_iter().flatten();
    let owners: Vec<_> =
        owners.map(|(owner, bytes)| format!("{owner} {}", units::bytes(bytes.as_u64().unwrap_or(0)))).collect();
    let kept = format!("; {} of the rows kept for open snapshots", units::bytes(kept));
    line("memory", format!("{used}{}: {}{kept}", of.unwrap_or_default(), owners.join(", ")));
    if memory["full"] == true {
        let remedy = "statements that add rows get 53200; delete rows, end old transactions, or raise memory-bytes";
        line("MEMORY FULL", remedy.to_owned());
    }
}

/// Who is connected, and what has become of transactions.
fn clients(status: &Value, line: &mut impl FnMut(&str, String)) {
    let (sessions, transactions) = (&status["sessions"], &status["transactions"]);
    if !sessions.is_object() {
        return;
    }
    let of = |key| units::grouped(number(sessions, key));
    let (now, active, waiting, open) = (of("now"), of("active"), of("waiting"), of("idle_in_transaction"));
    line("sessions", format!("{now}: {active} active, {waiting} of them waiting, {open} idle in transactions"));
    let why = transactions["rolled_back"].as_object().into_iter().flatten();
    let why = why.filter_map(|(cause, count)| count.as_u64().filter(|count| *count > 0).map(|count| (cause, count)));
    let rolled_back: Vec<_> = why.map(|(cause, count)| format!("{} {cause}", units::grouped(count))).collect();
    let rolled_back = if rolled_back.is_empty() { "none".to_owned() } else { rolled_back.join(", ") };
    line(
        "transactions",
        format!("{} committed; rolled back: {rolled_back}", units::grouped(number(transactions, "committed"))),
    );
}
