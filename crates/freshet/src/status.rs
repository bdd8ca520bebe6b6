//! `freshet status`: how a node and its cluster are.

pub mod failover;
mod memory;
use std::{fmt::Write, process::ExitCode, time::Duration};

use serde_json::{Map, Value};

use crate::{
    Failure,
    certificates::{self, SOON, now},
    cli::StatusOptions,
    units,
};

/// Shows a node's status.
pub(crate) fn run(options: &StatusOptions) -> Result<ExitCode, Failure> {
    let patience = Duration::from_secs(options.patience);
    let json = options.asked.connect(patience)?.status(patience)?;
    let status: Value = serde_json::from_str(&json)?;
    if options.json {
        println!("{json}");
    } else {
        print!("{}", table(&status));
    }
    Ok(health(&status).into())
}

/// How well a node does its work, as the command's exit code says it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Health {
    /// Everything is as configured.
    Well,
    /// It works, with less than is configured, or is about to.
    Lacking,
    /// It does not do what it is for: nothing commits, or it follows nobody.
    Failing,
}

impl From<Health> for ExitCode {
    fn from(health: Health) -> Self {
        match health {
            Health::Well => Self::SUCCESS,
            // 1 and 2 say that the status is not known.
            Health::Lacking => Self::from(3),
            Health::Failing => Self::from(4),
        }
    }
}

pub(crate) fn health(status: &Value) -> Health {
    let (role, standing) = (status["role"].as_str(), status["standing"]["standing"].as_str());
    let (link, in_sync) = (status["link"]["link"].as_str(), status["in_sync"].as_bool());
    let expires = status["certificate_expires"].as_u64();
    let has_any = |list: &Value| list.as_array().is_some_and(|list| !list.is_empty());
    // Others hold more, or the log is damaged.
    let lacks_something = has_any(&status["ahead"]) || has_any(&status["sweep"]["log_damage"]);
    let log_stands = status["log_waits"].is_string() || status["log_hangs"].is_string();
    match (role, standing, link) {
        _ if status["log_failure"].is_string() || status["removed"].is_object() => Health::Failing,
        (Some("primary"), Some("safe"), _) | (Some("standby" | "mirror"), _, Some("following"))
            if expires.is_some_and(|expires| expires < now() + SOON) =>
        {
            Health::Lacking
        }
        (Some("primary"), Some("safe"), _) if log_stands || status["memory"]["full"] == true || lacks_something => {
            Health::Lacking
        }
        (Some("primary"), Some("safe"), _) => Health::Well,
        (Some("primary"), Some("degraded"), _) => Health::Lacking,
        (Some("standby" | "mirror"), _, Some("following")) => {
            let stalls = status["commits_nothing"].is_object() && time(status, "commits_nothing") >= STALLS;
            let lacks = status["missing"].is_string() || status["lacks"].is_string() || log_stands;
            // An archive's or an asynchronous standby's primary never counts on it.
            if in_sync.is_none() || stalls || lacks || lacks_something { Health::Lacking } else { Health::Well }
        }
        (Some("standby" | "mirror"), _, Some("connecting" | "resting")) => Health::Lacking,
        (Some("starting" | "taking-over"), _, _) => Health::Lacking,
        _ => Health::Failing,
    }
}

/// After so long, a primary that commits nothing although it could is told of.
const STALLS: Duration = Duration::from_secs(5);

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
        if standby["in_doubt"] == true {
            line("STATE IN DOUBT", "see its status, and docs/operations.md#proof-of-the-state".to_owned());
        }
        if let Some(lacks) = standby["lacks"].as_str() {
            line("", format!("gets nothing more, and lacks {lacks}"));
        }
        line(
            "",
            format!(
                "behind by: ship {}, ack {}, visible {}",
                bytes(&standby["ship_lag_bytes"]),
                units::bytes(number(standby, "ack_lag_bytes")),
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
fn table(status: &Value) -> String {
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
    line("up", format!("{:.0?}, Freshet {}", time(status, "uptime"), text(&status["version"])));
    line("read view", format!("{}, oldest reader {}", text(&status["read_view"]), text(&status["oldest_reader"])));
    line(
        "resident",
        format!(
            "{}, at most {} so far",
            units::bytes(number(status, "resident_bytes")),
            units::bytes(number(status, "peak_resident_bytes"))
        ),
    );
    memory::show(&status["memory"], &mut line);
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
mod tests {
    use super::*;

    /// Unknown is not nothing.
    #[test]
    fn what_is_not_known_is_shown_as_unknown() {
        let status = |lag: Value| {
            let link = serde_json::json!({"link": "following", "address": "a:1"});
            table(&serde_json::json!({"role": "standby", "link": link, "in_sync": null, "visible_lag": lag}))
        };
        let shown = status(Value::Null);
        assert!(shown.contains("in sync          unknown") && shown.contains("behind by: unknown"), "{shown}");
        assert!(!shown.contains("behind by 0 B"), "{shown}");
        let shown = status(serde_json::json!({"bytes": 2048, "time": null}));
        assert!(shown.contains("behind by 2.0 KiB, since when is unknown"), "{shown}");
        let gone = serde_json::json!({"connected": false, "ack_lag_bytes": 0, "ship_lag_bytes": null});
        let shown = table(&serde_json::json!({"role": "primary", "standbys": [gone]}));
        assert!(shown.contains("ship unknown") && shown.contains("visible unknown"), "{shown}");
        let shown = table(&serde_json::json!({"role": "mirror", "lag_bytes": null}));
        assert!(shown.contains("behind by unknown"), "{shown}");
    }

    #[test]
    fn the_exit_code_shows_how_well_a_node_works() {
        let primary = |standing: &str| serde_json::json!({"role": "primary", "standing": {"standing": standing}});
        let standby = |link: &str, in_sync: Value| {
            let link = serde_json::json!({"link": link});
            serde_json::json!({"role": "standby", "link": link, "in_sync": in_sync})
        };
        let with = |mut status: Value, key: &str, value: Value| {
            status[key] = value;
            status
        };
        let long = serde_json::json!({"secs": 9, "nanos": 0});
        let log_damage = serde_json::json!({"log_damage": [{"start": 64, "end": 128}]});
        for (status, expected) in [
            (primary("safe"), Health::Well),
            (primary("degraded"), Health::Lacking),
            (with(primary("safe"), "log_waits", "room".into()), Health::Lacking),
            (with(primary("safe"), "memory", serde_json::json!({"full": true})), Health::Lacking),
            (with(standby("following", true.into()), "lacks", "memory".into()), Health::Lacking),
            (with(primary("safe"), "ahead", serde_json::json!([{"node": "1"}])), Health::Lacking),
            (with(standby("following", true.into()), "ahead", serde_json::json!([{"node": "1"}])), Health::Lacking),
            (with(primary("safe"), "sweep", log_damage.clone()), Health::Lacking),
            (with(standby("following", true.into()), "sweep", log_damage), Health::Lacking),
            (primary("blocked"), Health::Failing),
            (primary("refusing"), Health::Failing),
            (primary("stalled"), Health::Failing),
            (primary("fenced"), Health::Failing),
            (with(primary("safe"), "log_failure", "it broke".into()), Health::Failing),
            (standby("following", true.into()), Health::Well),
            (standby("following", false.into()), Health::Well),
            (standby("following", Value::Null), Health::Lacking),
            (with(standby("following", true.into()), "commits_nothing", long), Health::Lacking),
            (standby("connecting", Value::Null), Health::Lacking),
            (standby("failed", Value::Null), Health::Failing),
            (serde_json::json!({"role": "failed"}), Health::Failing),
            (serde_json::json!({"role": "starting"}), Health::Lacking),
        ] {
            assert_eq!(health(&status), expected, "{status}");
        }
    }

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
        let line =
            "quorum:3: blocked, 1 standby(s) in sync, 2 needed; commits wait for 0000000000000011, 00000000000000ab";
        assert!(blocked.contains(line) && blocked.contains("start them"), "{blocked}");
        let recorded = table(&serde_json::json!({
            "role": "primary", "inputs": {"recorded": 1200, "bytes": 2048, "kept": {"long": 1, "messages": 3}},
        }));
        let fed = |fabric: &str, one_sided: bool| {
            let standby = serde_json::json!({"connected": true, "fabric": fabric, "one_sided": one_sided});
            table(&serde_json::json!({"role": "primary", "standbys": [standby]}))
        };
        assert!(fed("shm", true).contains("written over shm, one-sided"), "{}", fed("shm", true));
        assert!(fed("tcp", false).contains("written over tcp, by a thread there"), "{}", fed("tcp", false));
        let line = "1,200 transactions recorded, 2.0 KiB; not recorded: long 1, messages 3";
        assert!(recorded.contains(line), "{recorded}");
        let proof = |proof| table(&serde_json::json!({"role": "standby", "state_proof": proof}));
        for role in ["primary", "standby", "mirror"] {
            let ahead = serde_json::json!({"node": "ab", "address": "h:1", "term": 3, "end": 900, "why": "it does"});
            let status = serde_json::json!({
                "role": role, "ahead": [ahead], "holds_more": "so do I", "two_primaries": [{"why": "they met"}],
            });
            let shown = table(&status);
            for line in ["ab at h:1, up to 900 in term 3: it does", "so do I"] {
                assert!(shown.contains(&format!("HOLDS MORE       {line}")), "{shown}");
            }
            assert!(shown.contains("TWO PRIMARIES    they met"), "{shown}");
        }
        let equal = proof(serde_json::json!({"counts": true, "marks": 1200, "equal_at": 77}));
        assert!(equal.contains("equal to the primary's at 77; compared 1,200 times"), "{equal}");
        let fed = table(&serde_json::json!({"role": "primary", "standbys": [{"in_doubt": true}]}));
        assert!(fed.contains("STATE IN DOUBT"), "{fed}");
        let damaged = serde_json::json!({"log_damage": [{"start": 64, "end": 128}]});
        let damaged = table(&serde_json::json!({"role": "primary", "sweep": damaged}));
        assert!(damaged.contains("LOG DAMAGED      on the disk, from 64 to 128; memory is not"), "{damaged}");
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
            for line in [
                "pending          2.0 KiB in 1,300 transactions: a restart or a failover takes 1.5s for that",
                "chosen           inputs for 35s: the link is busy",
                "now: 2.0 KiB/s of log in 1.0 KiB/s, link busy 45 %, 99 % of the transactions as inputs",
                "as inputs, processors idle 61 %",
            ] {
                assert!(shown.contains(line), "{shown}");
            }
        }
    }
}
