//! The parts of `freshet status` about what is moved and stored, and about the other nodes.

use serde_json::Value;

use super::{number, text, time};
use crate::{
    members::{self, nodes},
    units, upgrade,
};

/// What was written, or replayed: since `before`, an earlier status of the same node, or since its
/// start.
pub(super) fn throughput(status: &Value, before: Option<&Value>, line: &mut impl FnMut(&str, String)) {
    let same = before.filter(|before| before["pid"] == status["pid"] && before["role"] == status["role"]);
    let nothing = Value::Null;
    let earlier = same.unwrap_or(&nothing);
    let took = time(status, "uptime").saturating_sub(time(earlier, "uptime")).as_secs_f64().max(1e-3);
    let since = if same.is_some() { "now" } else { "on average since the start" };
    let rate = |key| number(status, key).saturating_sub(number(earlier, key)) as f64 / took;
    let shown = match status["role"].as_str() {
        Some("primary") => {
            let (log, batches) = (units::bytes(rate("log_bytes") as u64), rate("batches"));
            format!("{log}/s of log, {batches:.0} group commits/s, {since}")
        }
        Some("standby") => format!("{:.0} records/s replayed, {since}", rate("replayed_records")),
        _ => return,
    };
    line("throughput", shown);
}

/// How much room there is where the node keeps data.
pub(super) fn disks(status: &Value, line: &mut impl FnMut(&str, String)) {
    for disk in status["disks"].as_array().into_iter().flatten() {
        let [free, total] = ["free_bytes", "total_bytes"].map(|key| units::bytes(number(disk, key)));
        line("disk", format!("{}: {free} free of {total}", text(&disk["directory"])));
    }
}

/// How old what readers see may be. It grows while the link is down.
pub(super) fn age(status: &Value, line: &mut impl FnMut(&str, String)) {
    let age = match status["age"].is_object() {
        true => format!("what is {:.1} s old at most", time(status, "age").as_secs_f64()),
        false => "what is of an unknown age: no primary was heard".to_owned(),
    };
    line("readers see", age);
}

/// A time beside a number of bytes, where it is known.
pub(super) fn seconds(value: &Value, key: &str) -> String {
    if value[key].is_object() { format!(" ({:.1} s)", time(value, key).as_secs_f64()) } else { String::new() }
}

/// The other nodes of the cluster, a line for each.
pub(super) fn members(members: &Value, own: &Value, line: &mut impl FnMut(&str, String)) {
    if let Some(level) = upgrade::level(&members["format"]) {
        line("format level", level);
    }
    let all = nodes(members);
    let from = if members["primary"] == true { "" } else { ", as far as this node knows by itself" };
    line("members", format!("{}{from}", all.len()));
    for node in all.iter().filter(|node| node["node"] != own["node"]) {
        let is = match (node["connected"].as_bool(), node["in_sync"].as_bool()) {
            (Some(false), _) => format!("away{}", members::since(node, "connected_or_away_for")),
            (Some(true), Some(true)) => "connected, in sync".to_owned(),
            (Some(true), _) => "connected, not in sync".to_owned(),
            (None, _) => "unknown".to_owned(),
        };
        let lag = &node["lag"];
        let behind = match lag.is_object() {
            true => format!(", behind by {}{}", units::bytes(number(lag, "bytes")), seconds(lag, "time")),
            false => String::new(),
        };
        line("", format!("{}: {is}{behind}", members::named(node)));
    }
}
