//! The part of a node's status about its memory.

use serde_json::Value;

use super::number;
use crate::units;

/// How much memory the node takes, of what it may, and what of it takes how much.
pub(super) fn show(status: &Value, line: &mut impl FnMut(&str, String)) {
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
