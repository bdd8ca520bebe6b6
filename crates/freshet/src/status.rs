//! `freshet status`: how a node and its cluster are.

mod cluster;
mod command;
pub mod failover;
mod usage;
use std::{fmt::Write, time::Duration};

use serde_json::{Map, Value};

pub(crate) use self::command::{FORMAT, StatusOptions, run};
pub(crate) use crate::verdict::Health;
use crate::{certificates, units, verdict::Verdict};

/// How well a node does its work, by its status alone.
pub(crate) fn health(status: &Value) -> Health {
    Verdict::of(Some(status), None, "").health()
}

/// After so long, a primary that commits nothing although it could is told of.
pub(crate) const STALLS: Duration = Duration::from_secs(5);

/// How far something is behind, as a standby's status says it.
fn behind(lag: &Value) -> String {
    if !lag.is_object() {
        return "behind by: unknown".to_owned();
    }
    let bytes = units::bytes(number(lag, "bytes"));
    match lag["time"].is_object() {
        true => format!("behind by {bytes} and {:.1?}", time(lag, "time")),
        false => format!("behind by {bytes}, since when is unknown"),
    }
}

/// A number of bytes that may be unknown.
fn bytes(value: &Value) -> String {
    value.as_u64().map_or_else(|| "unknown".to_owned(), units::bytes)
}

/// Whether a node's primary counts on it.
fn in_sync(value: &Value) -> String {
    if value.is_null() { "unknown".to_owned() } else { text(value) }
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

pub(crate) fn text(value: &Value) -> String {
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
        let _ = writeln!(out, "{name:<16} {}", crate::messages::plain(&value));
    });
    out
}

/// How far a start is, or the failover of a mirror.
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

/// For how long a standby is away, where that is known.
fn since(standby: &Value) -> String {
    crate::members::since(standby, "connected_or_away_for")
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
        let away = if standby["connected"] == true { String::new() } else { since(standby) };
        let sync = match (&standby["synchronous"], &standby["in_sync"]) {
            (Value::Bool(false), _) => "asynchronous".to_owned(),
            (_, Value::Bool(true)) => format!("in sync, place {}", text(&standby["place"])),
            _ => format!("not in sync, place {}", text(&standby["place"])),
        };
        line("", format!("{connected}{away}, {sync}, {}", text(&standby["mode"])));
        if let Some(fabric) = standby["fabric"].as_str() {
            let by = if standby["one_sided"] == true { "one-sided" } else { "by a thread there" };
            line("", format!("written over {fabric}, {by}"));
        }
        if standby["in_doubt"] == true {
            line("STATE IN DOUBT", "see its status, and docs/operations.md#proof-of-the-state".to_owned());
        }
        if let Some(lacks) = standby["lacks"].as_str() {
            line("", format!("gets nothing more, and lacks {lacks}"));
        }
        line(
            "",
            format!(
                "behind by: ship {}, ack {}{}, visible {}",
                bytes(&standby["ship_lag_bytes"]),
                units::bytes(number(standby, "ack_lag_bytes")),
                cluster::seconds(standby, "ack_lag"),
                bytes(&standby["visible_lag_bytes"])
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
    let mut shown = format!(
        "{} transactions executed again; fetched: {} of old snapshots, {} that took long, {} without enough memory, {} \
         that did not give the same",
        count("executed"),
        count("old_snapshots"),
        count("slow"),
        count("lacked_memory"),
        count("mismatches")
    );
    if again.get("other_build").and_then(Value::as_u64).is_some_and(|others| others > 0) {
        let _ = write!(
            shown,
            ", {} that another build has recorded: bytes are asked for, run the same build on both",
            count("other_build")
        );
    }
    shown
}

/// What has become of a sample of certified transactions.
fn sampled(sampled: &Value, line: &mut impl FnMut(&str, String)) {
    if !sampled.is_object() {
        return;
    }
    let count = |key| units::grouped(number(sampled, key));
    let mut shown = format!(
        "{} certified transactions give the same in order, {} do not, {} not found out",
        count("verified"),
        count("out_of_order"),
        count("inconclusive")
    );
    if let Some(file) = sampled["file"].as_str() {
        let _ = write!(shown, ": `freshet inspect mismatches {file}`");
    }
    line("sampled", shown);
}

/// What a standby has yet to execute again, and which form it asks for, if it executes.
fn pending(again: &Value, line: &mut impl FnMut(&str, String)) {
    let Some(counts) = again.as_object() else { return };
    line("again", executed(counts));
    let takes = again["restart"]
        .is_object()
        .then(|| format!(": a restart or a failover takes {:.1?} for that", time(again, "restart")));
    let (bytes, transactions) = (number(again, "pending_bytes"), units::grouped(number(again, "pending_transactions")));
    line("pending", format!("{} in {transactions} transactions{}", units::bytes(bytes), takes.unwrap_or_default()));
    let storm = &again["storm"];
    if storm.is_object() {
        let (lasts, left) = (time(storm, "lasts"), time(storm, "left"));
        line("storm", format!("asks for bytes for {lasts:.0?}, and for {left:.0?} more: {}", text(&storm["why"])));
    }
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

/// What is wrong with the log, or will be with the certificate.
fn troubles(status: &Value, line: &mut impl FnMut(&str, String)) {
    if let Some(failure) = status["log_failure"].as_str() {
        line("LOG FAILED", format!("{failure}; nothing is committed any more: restart the node, or promote a standby"));
    }
    if let Some(out_of_space) = status["log_waits"].as_str() {
        line(
            "LOG WAITS",
            format!("{out_of_space}; new transactions that write are refused until there is room, reads are answered"),
        );
    }
    certificates::show(status, line);
    if let Some(hang) = status["log_hangs"].as_str() {
        let remedy = if status["role"] == "primary" { "promote a standby" } else { "restart this node" };
        line("LOG HANGS", format!("{hang}; what needs it does not commit: {remedy} if it does not come back"));
    }
}

/// What the node has found when it looked through its own memory.
fn swept(sweep: &Value, line: &mut impl FnMut(&str, String)) {
    if !sweep.is_object() {
        return;
    }
    let counts = |counts: &Value| {
        let count = |key| units::grouped(number(counts, key));
        let log = units::bytes(number(counts, "log_bytes"));
        format!("{} records, {} index entries, {log} of log", count("records"), count("entries"))
    };
    let mut shown = match number(sweep, "passes") {
        0 => "no pass has ended yet".to_owned(),
        passes => {
            let last = counts(&sweep["last"]);
            format!("{} passes, the last in {:.1?}: {last}", units::grouped(passes), time(sweep, "took"))
        }
    };
    if sweep["under_way"].is_object() {
        let _ = write!(shown, "; under way: {}", counts(&sweep["under_way"]));
    }
    line("sweep", shown);
    if let Some(why) = sweep["unreadable"].as_str() {
        line("", format!("could not look at everything: {why}"));
    }
    for part in sweep["log_damage"].as_array().into_iter().flatten() {
        let (start, end) = (text(&part["start"]), text(&part["end"]));
        line(
            "LOG DAMAGED",
            format!(
                "on the disk, from {start} to {end}; memory is not: do not stop this node, run freshet checkpoint, \
                 then look at the disk"
            ),
        );
    }
    let damage = number(sweep, "damage");
    if damage > 0 {
        line("DAMAGE", format!("found in {} places", units::grouped(damage)));
        for found in sweep["found"].as_array().into_iter().flatten() {
            line("", text(found));
        }
    }
}

/// A status for people. Keys that it does not know are left out: a newer node may have more.
fn table(status: &Value, before: Option<&Value>) -> String {
    if status["role"] == "starting" {
        return starting(status);
    }
    let mut out = String::new();
    let mut line = |name: &str, value: String| {
        let _ = writeln!(out, "{name:<16} {}", crate::messages::plain(&value));
    };
    let role = text(&status["role"]);
    line("node", format!("{} at {} (pid {})", text(&status["node"]), text(&status["address"]), number(status, "pid")));
    line("cluster", text(&status["cluster"]));
    line("role", failover::role(status));
    cluster::throughput(status, before, &mut line);
    cluster::disks(status, &mut line);
    line("up", format!("{:.0?}, Freshet {}", time(status, "uptime"), text(&status["version"])));
    line("read view", format!("{}, oldest reader {}", text(&status["read_view"]), text(&status["oldest_reader"])));
    usage::show(status, &mut line);
    if let Some(doubt) = status["doubt"].as_str() {
        line("STATE IN DOUBT", doubt.to_owned());
        if let Some(leads_to) = status["doubt_leads_to"].as_str() {
            line("", leads_to.to_owned());
        }
    }
    for aside in status["kept_aside"].as_array().into_iter().flatten() {
        line("kept aside", format!("{}, until this node's new state is proved", text(aside)));
    }
    if let Some(torn) = status["torn_at_start"].as_str() {
        line("cut at start", torn.to_owned());
    }
    if let Some(why) = status["checkpoint_passed_over"].as_str() {
        line("passed over", format!("the newest checkpoint at the start: {why}"));
    }
    swept(&status["sweep"], &mut line);
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
    troubles(status, &mut line);
    failover::show(status, &mut line);
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
            if let Some(why) = standing["why"].as_str() {
                let _ = write!(stands, ", nothing commits here: {why}");
            }
            line("safety", format!("{}: {stands}", failover::level(status)));
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
            if let Some(why) = status["condemned"].as_str() {
                line(
                    "DAMAGED",
                    format!("{why}; no vote in a failover, and filled again as soon as another node gives what it has"),
                );
            }
            if let Some(path) = status["set_aside"].as_str() {
                line("set aside", format!("the memory that was damaged, in {path}, until this one is whole"));
            }
            if status["rehearsed"].is_object() {
                line("rehearsed", format!("{:.0?} ago", time(status, "rehearsed")));
            }
            let by = if status["one_sided"] == true { "one-sided" } else { "by a thread here" };
            line("written", format!("over {}, {by}", text(&status["fabric"])));
            let whole = if status["whole"] == true { "" } else { "; not yet whole: it cannot take over" };
            if let Some(bootstrap) = status["bootstrap"].as_object() {
                let bytes = |name: &str| bootstrap.get(name).and_then(Value::as_u64).unwrap_or(0);
                let (done, of, _) = progress("bytes", bytes("done_bytes"), bytes("of_bytes"), 0);
                line("bootstrap", format!("{done} of a checkpoint of {of}"));
            }
            let behind = bytes(&status["lag_bytes"]);
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
            if let Some(lacks) = status["lacks"].as_str() {
                line("NO MEMORY", lacks.to_owned());
            }
            if let Some(missing) = status["missing"].as_str() {
                line("missing", missing.to_owned());
            }
            state_proof(&status["state_proof"], &mut line);
            line("asks for", text(&status["encoding"]));
            pending(&status["again"], &mut line);
            sampled(&status["sampled"], &mut line);
            for (step, lag) in [
                ("received", "receive_lag"),
                ("persisted", "persist_lag"),
                ("replayed", "replay_lag"),
                ("visible", "visible_lag"),
            ] {
                line(step, format!("{}, {}", text(&status[step]), behind(&status[lag])));
            }
            cluster::age(status, &mut line);
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
    let address = link["address"].as_str().unwrap_or("");
    let mut follows = match link["link"].as_str() {
        // The node at that address need not be one.
        Some("connecting") => format!("none at present, connecting to {address}"),
        _ => format!("{} {address}", text(&link["link"])),
    };
    for key in ["last_failure", "why"] {
        if let Some(why) = link[key].as_str() {
            let _ = write!(follows, ": {why}");
        }
    }
    line("primary", follows);
    line("in sync", in_sync(&status["in_sync"]));
    if time(status, "commits_nothing") >= STALLS {
        let lasts = time(status, "commits_nothing");
        line(
            "COMMITS NOTHING",
            format!("the primary, for {lasts:.0?}, although there is something to commit: see its status"),
        );
    }
}

/// A node's name, as everywhere else.
fn node(id: &Value) -> String {
    id.as_u64().map_or_else(|| text(id), |id| format!("{id:016x}"))
}

#[cfg(test)]
mod tests;
