//! `freshet members`: all nodes of a cluster.

use std::{process::ExitCode, time::Duration};

use clap::Args;
use freshet_base::{NodeId, Safety};
use freshet_engine::{ASYNCHRONOUS, STILL_COUNTED, node::ETCD};
use serde_json::{Value, json};

use crate::{
    Failure,
    cli::{Asked, ThePrimary},
    messages::plain,
    prints::Prints,
    status::{Health, failover::pending, number, text, time},
    units::{self, lasting},
    upgrade,
    verdict::Verdict,
};

/// Options of `freshet members`.
#[derive(Debug, Args)]
pub(crate) struct MembersOptions {
    #[command(flatten)]
    asked: Asked,
    #[command(flatten)]
    prints: Prints,
    /// How long to wait for the answer, in seconds.
    #[arg(long, value_name = "S", default_value_t = 15)]
    patience: u64,
}

/// Shows the nodes of a cluster.
pub(crate) fn run(options: &MembersOptions) -> Result<ExitCode, Failure> {
    let patience = Duration::from_secs(options.patience);
    let json = options.asked.connect(patience)?.members(patience)?;
    let members: Value = serde_json::from_str(&json)?;
    options.prints.show(&members, || table(&members));
    Ok(health(&members).into())
}

/// Options of `freshet remove`.
#[derive(Debug, Args)]
pub(crate) struct RemoveOptions {
    /// The node that is to leave: its id, or the address where other nodes reach it (`listen`, or
    /// `advertise`), as `freshet members` shows them. Of several that are gone, name all: none may
    /// leave before the others do, as long as these might answer.
    #[arg(value_name = "NODE", required = true)]
    pub(crate) nodes: Vec<String>,
    /// It does not run, and never will again with what it has: its promises count no more.
    #[arg(long)]
    pub(crate) gone: bool,
    #[command(flatten)]
    pub(crate) primary: ThePrimary,
    #[command(flatten)]
    pub(crate) prints: Prints,
}

/// Options of `freshet rotate`.
#[derive(Debug, Args)]
pub(crate) struct RotateOptions {
    #[command(flatten)]
    primary: ThePrimary,
    #[command(flatten)]
    prints: Prints,
}

/// How long a primary may take to have it on record that a node left.
const RECORDED: Duration = Duration::from_secs(40);

/// Runs `freshet remove`.
pub(crate) fn remove(options: &RemoveOptions) -> Result<ExitCode, Failure> {
    let client = options.primary.connect()?;
    let remove = |node: &String| client.remove(node.clone(), options.gone, RECORDED);
    let report = |node: NodeId| {
        let text = || format!("{node} does not belong to the cluster any more, and may not come back with what it has");
        options.prints.show(&json!({ "removed": node.to_string() }), text);
    };
    let mut late = Vec::new();
    for node in &options.nodes {
        match remove(node) {
            Ok(node) => report(node),
            Err(_) if options.nodes.len() > 1 => late.push(node),
            Err(cause) => return Err(cause.into()),
        }
    }
    // It may be on record by now, since others have left.
    late.into_iter().try_for_each(|node| remove(node).map(report))?;
    Ok(ExitCode::SUCCESS)
}

/// Runs `freshet rotate`.
pub(crate) fn rotate(options: &RotateOptions) -> Result<ExitCode, Failure> {
    let generation = options.primary.connect()?.rotate(RECORDED)?;
    let text =
        || format!("the cluster has a new authority ({generation}); what the one before has signed counts no more");
    options.prints.show(&json!({ "generation": generation }), text);
    Ok(ExitCode::SUCCESS)
}

pub(crate) fn nodes(members: &Value) -> &[Value] {
    members["nodes"].as_array().map_or(&[][..], Vec::as_slice)
}

/// How well the cluster does its work.
pub(crate) fn health(members: &Value) -> Health {
    Verdict::of(None, Some(members), "").health()
}

/// Those that can be ordered to start again, or to stop: neither the primary, nor archives, which
/// are no members, nor etcd in the place of a witness. Each with its id, role and address.
pub(crate) fn others(members: &Value) -> Vec<[String; 3]> {
    let is_other = |node: &&Value| node["role"] != "primary" && node["role"] != "archive";
    let others = nodes(members).iter().filter(is_other);
    let others = others.map(|node| [&node["node"], &node["role"], &node["address"]].map(text));
    others.filter(|[_, _, address]| !address.starts_with(ETCD)).collect()
}

/// Those for which the cluster waits.
pub(crate) fn lacking(members: &Value) -> Vec<&Value> {
    nodes(members).iter().filter(|node| lacks(members, node)).collect()
}

/// Whether the cluster waits for this node: it is away, or commits do not count on it yet, and are
/// to.
fn lacks(members: &Value, node: &Value) -> bool {
    let counts = node["vote"] == true && node["in_sync"] == true;
    node["connected"] != true || !counts && (node["vote"] == true || is_to_count(members, node))
}

/// Whether commits are to count on this node, which is here, or failovers on this witness.
fn is_to_count(members: &Value, node: &Value) -> bool {
    let level = members["safety"].as_str().and_then(|level| level.parse::<Safety>().ok());
    let with_data = |it: &&Value| it["vote"] == true && it["role"] != "witness";
    match node["role"].as_str() {
        // Mirrors and relays may be asynchronous, too.
        Some("standby" | "relay" | "mirror") => {
            !level.is_some_and(Safety::counts_on_nobody) && node["no_vote"] != ASYNCHRONOUS
        }
        Some("asynchronous") => node["no_vote"] == STILL_COUNTED,
        Some("witness") => {
            let voters = nodes(members).iter().filter(with_data).count() as u32;
            level.is_some_and(|level| level.needed(voters).is_none())
        }
        _ => false,
    }
}

/// For how long something is so; nothing where that is not known.
pub(crate) fn since(node: &Value, key: &str) -> String {
    if node[key].is_object() { format!(" for {}", lasting(time(node, key))) } else { String::new() }
}

fn lag(lag: &Value) -> String {
    if !lag.is_object() {
        return "unknown".to_owned();
    }
    let bytes = units::bytes(number(lag, "bytes"));
    match lag["time"].is_object() {
        true => format!("{bytes}, {:.1} s", time(lag, "time").as_secs_f64()),
        false => format!("{bytes}, time unknown"),
    }
}

/// What of a node is not known is said so.
fn known(value: &Value) -> String {
    if value.is_null() { "unknown".to_owned() } else { text(value) }
}

/// The line of one node; those of its columns that have reasons come last.
fn row(node: &Value) -> [String; 9] {
    let version = match node["protocol"].as_u64() {
        Some(protocol) => format!("{} ({protocol})", text(&node["version"])),
        None => known(&node["version"]),
    };
    let in_sync = match node["in_sync"].as_bool() {
        Some(true) => format!("yes{}", since(node, "in_sync_for")),
        Some(false) => "no".to_owned(),
        None => "unknown".to_owned(),
    };
    let connected = match node["connected"].as_bool() {
        Some(true) => format!("connected{}", since(node, "connected_or_away_for")),
        Some(false) => format!("away{}", since(node, "connected_or_away_for")),
        None => "unknown".to_owned(),
    };
    let vote = match (node["vote"].as_bool(), node["no_vote"].as_str()) {
        (Some(true), _) => "yes".to_owned(),
        (_, why) => format!("no: {}", why.unwrap_or("unknown why")),
    };
    let address = text(&node["address"]);
    let address = if address.is_empty() { "unknown".to_owned() } else { address };
    let (role, lsn) = (text(&node["role"]), known(&node["lsn"]));
    [role, text(&node["node"]), address, version, lsn, lag(&node["lag"]), connected, in_sync, vote]
}

const HEADS: [&str; 9] =
    ["role", "node", "address", "version", "persistent to", "behind by", "connection", "in sync", "vote"];

/// What a primary's standing comes to that has no lease.
const LEASE_OVER: &str = "lease over: it hears too few of the other nodes, and nothing commits";

/// A node by its role, its id and its address, if that is known.
pub(crate) fn named(node: &Value) -> String {
    let (role, id, address) = (text(&node["role"]), text(&node["node"]), text(&node["address"]));
    let address = if address.is_empty() { address } else { format!(" at {address}") };
    format!("{role} {id}{address}")
}

/// Which nodes do not reach which others, a sentence for each. One that was not asked, or is slow,
/// may reach all.
pub(crate) fn unreached(members: &Value) -> Vec<String> {
    let all = nodes(members);
    let other = |id: &Value| all.iter().find(|node| node["node"] == *id).map_or_else(|| text(id), named);
    let sentence = |node: &Value| {
        let others: Vec<_> = node["unreached"].as_array()?.iter().map(other).collect();
        (!others.is_empty()).then(|| format!("{} does not reach {}", named(node), others.join(", ")))
    };
    all.iter().filter_map(sentence).collect()
}

/// For which nodes the cluster waits, if it does.
fn waits(members: &Value) -> String {
    let who = |node: &Value| {
        let why = if node["connected"] == true { "does not count yet" } else { "is away" };
        format!("{}, which {why}", named(node))
    };
    let lacking: Vec<_> = lacking(members).into_iter().map(who).collect();
    match &members["set_pending"] {
        _ if !lacking.is_empty() => format!("; waits for {}", lacking.join("; ")),
        Value::Array(_) => "; waits until it is on record on whom commits count".to_owned(),
        _ => String::new(),
    }
}

/// For people. Keys that it does not know are left out: a newer node may have more.
fn table(members: &Value) -> String {
    let mut lines = Vec::new();
    let (by, term) = (text(&members["by"]), text(&members["term"]));
    if members["primary"] == true {
        let (safety, standing) = (text(&members["safety"]), text(&members["standing"]));
        let standing = if standing == "lease-over" { LEASE_OVER.to_owned() } else { standing };
        let not_yet = |waits| format!(", not on record yet{waits}");
        let pending = pending(&members["level_pending"]).map(not_yet).unwrap_or_default();
        let waits = waits(members);
        lines.push(format!("term {term}, as its primary {by} knows it; safety {safety}{pending}: {standing}{waits}"));
        lines.extend(upgrade::level(&members["format"]).map(|level| format!("format level {level}")));
        let apart = |pair| format!("{pair}: if the primary is lost, too few nodes may find each other");
        lines.extend(unreached(members).into_iter().map(apart));
    } else {
        let why = members["no_primary"].as_str().unwrap_or("it is not the primary");
        lines.push(format!("NOT FROM A PRIMARY: only what node {by} knows by itself, in term {term}: {why}"));
    }
    if members["maintenance"].is_object() {
        let left = lasting(time(members, "maintenance"));
        lines.push(format!("MAINTENANCE for another {left}: no node takes over by itself"));
    }
    let mut rows = vec![HEADS.map(str::to_owned)];
    rows.extend(nodes(members).iter().map(|node| row(node).map(|cell| plain(&cell))));
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: [usize; 9] = std::array::from_fn(width);
    for row in &rows {
        let cells = row.iter().zip(widths).map(|(cell, width)| format!("{cell:<width$}"));
        lines.push(cells.collect::<Vec<_>>().join("  ").trim_end().to_owned());
    }
    let left_out = number(members, "left_out");
    if left_out > 0 {
        lines.push(format!("and {left_out} more"));
    }
    lines.iter().map(|line| plain(line) + "\n").collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn second(secs: u64) -> Value {
        json!({ "secs": secs, "nanos": 0 })
    }

    fn primary() -> Value {
        json!({
            "node": "00000000000000a1", "role": "primary", "address": "a:1", "version": "0.1.0", "protocol": 23,
            "lsn": 4096, "lag": { "bytes": 0, "time": second(0) }, "connected": true, "in_sync": true, "vote": true,
            "in_sync_for": second(300), "connected_or_away_for": second(300),
        })
    }

    fn members(nodes: &[Value]) -> Value {
        json!({
            "by": "00000000000000a1", "term": 3, "primary": true, "safety": "quorum:2",
            "standing": "safe", "nodes": nodes, "left_out": 0,
        })
    }

    #[test]
    fn what_is_not_known_is_unknown_and_not_zero() {
        let away = json!({ "node": "00000000000000b2", "role": "unknown", "address": "", "connected": false,
            "connected_or_away_for": second(7300), "in_sync": false, "vote": true, "lag": null, "lsn": null });
        let asynchronous = json!({ "node": "00000000000000c3", "role": "asynchronous", "address": "c:1",
            "connected": true, "in_sync": false, "vote": false, "no_vote": "no commit waits for it",
            "lag": { "bytes": 2048, "time": null } });
        let shown = table(&members(&[primary(), away, asynchronous]));
        let line = |node: &str| shown.lines().skip(1).find(|line| line.contains(node)).unwrap().to_owned();
        assert!(line("a1  a:1").contains("0.1.0 (23)") && line("a1  a:1").contains("yes for 5 min"), "{shown}");
        let away = line("b2");
        assert!(away.contains("away for 2 h") && away.contains("unknown") && !away.contains("0 B"), "{shown}");
        let asynchronous = line("c3");
        assert!(asynchronous.contains("2.0 KiB, time unknown"), "{shown}");
        assert!(asynchronous.ends_with("no: no commit waits for it"), "{shown}");
    }

    /// Addresses and versions are as nodes announce them, and reasons as a peer says them.
    #[test]
    fn no_control_characters_are_shown() {
        let evil = "\u{1b}]0;x\u{7}\r\n\u{9b}2J";
        let mut node = primary();
        for key in ["node", "role", "address", "version", "lsn"] {
            node[key] = evil.into();
        }
        (node["vote"], node["no_vote"]) = (false.into(), evil.into());
        let mut alone = members(&[node]);
        (alone["primary"], alone["no_primary"], alone["by"]) = (false.into(), evil.into(), evil.into());
        let shown = table(&alone);
        assert!(!shown.contains(|letter: char| letter.is_control() && letter != '\n'), "{shown:?}");
        assert_eq!((shown.lines().count(), shown.contains(r"\u{1b}]0;x")), (3, true), "{shown}");
    }

    #[test]
    fn who_does_not_reach_whom_is_shown_and_lacking() {
        let node = |id: &str, role: &str, address: &str, unreached: Value| {
            let mut node = primary();
            for (key, value) in [("node", id.into()), ("role", role.into()), ("address", address.into())] {
                node[key] = value;
            }
            node["unreached"] = unreached;
            node
        };
        let [a, b, c] = ["00000000000000a1", "00000000000000b2", "00000000000000c3"];
        let all = |unreached: Value| {
            members(&[
                node(a, "primary", "a:1", json!([])),
                node(b, "standby", "b:1", unreached),
                node(c, "witness", "c:1", Value::Null),
            ])
        };
        for known in [json!([]), Value::Null] {
            let members = all(known);
            assert_eq!((health(&members), table(&members).lines().count()), (Health::Well, 5), "{members}");
        }
        let broken = all(json!([c, "00000000000000d4"]));
        let shown = table(&broken);
        let expected = "standby 00000000000000b2 at b:1 does not reach witness 00000000000000c3 at c:1, \
                        00000000000000d4: if the primary is lost, too few nodes may find each other";
        assert_eq!((health(&broken), shown.lines().nth(1)), (Health::Lacking, Some(expected)), "{shown}");
        assert!(!shown.lines().next().unwrap().contains("waits for"), "{shown}");
    }

    #[test]
    fn the_exit_code_shows_how_well_the_cluster_works() {
        let with = |mut node: Value, key: &str, value: Value| {
            node[key] = value;
            node
        };
        let away = with(primary(), "connected", false.into());
        let late = with(primary(), "in_sync", false.into());
        let voiceless = with(with(late.clone(), "vote", false.into()), "role", "standby".into());
        let with_witness = |data: usize| {
            let witness = with(voiceless.clone(), "role", "witness".into());
            let nodes = [vec![primary(); data], vec![witness]].concat();
            with(members(&nodes), "safety", "majority".into())
        };
        let blocked = with(members(&[primary()]), "standing", "blocked".into());
        let unleased = with(members(&[primary()]), "standing", "lease-over".into());
        let alone = with(members(&[primary()]), "primary", false.into());
        for (members, expected) in [
            (members(&[primary()]), Health::Well),
            (members(&[primary(), voiceless.clone()]), Health::Lacking),
            (members(&[primary(), with(voiceless.clone(), "no_vote", ASYNCHRONOUS.into())]), Health::Well),
            (with(members(&[primary(), voiceless.clone()]), "safety", "1-safe".into()), Health::Well),
            (members(&[primary(), with(voiceless.clone(), "role", "archive".into())]), Health::Well),
            (members(&[primary(), with(voiceless.clone(), "role", "asynchronous".into())]), Health::Well),
            (members(&[primary(), with(voiceless.clone(), "role", "witness".into())]), Health::Well),
            (with_witness(2), Health::Lacking),
            (with_witness(3), Health::Well),
            (members(&[primary(), late]), Health::Lacking),
            (with(members(&[primary()]), "set_pending", json!([])), Health::Well),
            (members(&[primary(), away]), Health::Lacking),
            (blocked, Health::Failing),
            (unleased, Health::Failing),
            (alone.clone(), Health::Failing),
            (json!({}), Health::Failing),
        ] {
            assert_eq!(health(&members), expected, "{members}");
        }
        let first = |members: &Value| table(members).lines().next().unwrap_or_default().to_owned();
        let said = first(&members(&[primary(), voiceless]));
        assert!(said.ends_with("safe; waits for standby 00000000000000a1 at a:1, which does not count yet"), "{said}");
        assert!(first(&members(&[primary()])).ends_with(": safe"));
        let changing = first(&with(members(&[primary()]), "set_pending", json!(["00000000000000b2"])));
        assert!(changing.ends_with("; waits until it is on record on whom commits count"), "{changing}");
        assert!(table(&alone).starts_with("NOT FROM A PRIMARY"), "{}", table(&alone));
        assert!(table(&json!([])).contains("vote"));
        let maintained = with(members(&[primary()]), "maintenance", second(300));
        assert!(table(&maintained).contains("MAINTENANCE for another 5 min"), "{}", table(&maintained));
    }
}
