//! The verdict on a node and its cluster: how well they do their work, why, and what to do. One
//! function decides, for `freshet status`, `freshet members` and the HTTP port.

use std::process::ExitCode;

use serde_json::{Value, json};

use crate::{
    certificates::{SOON, now},
    members::{self, lacking, named, unreached},
    messages::plain,
    status::{STALLS, text, time},
    units::lasting,
};

/// How well a node does its work, as exit codes say it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Health {
    /// Everything is as configured.
    Well,
    /// It works, with less than is configured, or is about to.
    Lacking,
    /// It does not do what it is for: nothing commits, or it follows no other node.
    Failing,
}

impl Health {
    /// The verdict's first word.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Well => "ok",
            Self::Lacking => "degraded",
            Self::Failing => "blocked",
        }
    }

    /// As Nagios and its like read it.
    pub(crate) fn check_code(self) -> u8 {
        match self {
            Self::Well => 0,
            Self::Lacking => 1,
            Self::Failing => 2,
        }
    }
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

/// Something that is not as configured.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Finding {
    health: Health,
    why: String,
    remedy: String,
}

/// What is to be known first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Verdict(Vec<Finding>);

/// No more reasons are in the line.
const SHOWN: usize = 3;

impl Verdict {
    /// Of a node's status, and of its cluster's members, as far as each is known. `asked` is the
    /// control port of the node, for the commands that it names; empty where that is not known.
    pub(crate) fn of(status: Option<&Value>, members: Option<&Value>, asked: &str) -> Self {
        let mut verdict = Self::default();
        let at = if asked.is_empty() { String::new() } else { format!(" {asked}") };
        if let Some(status) = status {
            verdict.node(status, &at);
        }
        if let Some(members) = members {
            let leads = status.is_some_and(|status| status["role"] == "primary");
            verdict.cluster(members, leads, &at);
        }
        // The worst first, and otherwise in the order in which it was found.
        verdict.0.sort_by_key(|finding| std::cmp::Reverse(finding.health));
        verdict
    }

    /// The node does not answer.
    pub(crate) fn unreachable(cause: &str) -> Self {
        let remedy = "see whether the node runs: its log, and its process";
        let mut verdict = Self::default();
        verdict.add(Health::Failing, cause, remedy);
        verdict
    }

    /// The worst of what was found.
    pub(crate) fn health(&self) -> Health {
        self.0.iter().map(|finding| finding.health).max().unwrap_or(Health::Well)
    }

    /// One line for people.
    pub(crate) fn line(&self) -> String {
        let word = self.health().word();
        let mut whys: Vec<_> = self.0.iter().map(|finding| finding.why.as_str()).take(SHOWN).collect();
        let more = format!("{} more", self.0.len().saturating_sub(SHOWN));
        if self.0.len() > SHOWN {
            whys.push(&more);
        }
        let whys = if whys.is_empty() { "everything is as configured".to_owned() } else { whys.join("; ") };
        let remedy = self.0.first().map(|finding| format!(" -- do: {}", finding.remedy)).unwrap_or_default();
        plain(&format!("{word}: {whys}{remedy}"))
    }

    /// For programs: `state`, and of each thing that was found `why` and `do`.
    pub(crate) fn to_json(&self) -> Value {
        let found =
            |finding: &Finding| json!({ "state": finding.health.word(), "why": finding.why, "do": finding.remedy });
        json!({ "state": self.health().word(), "findings": self.0.iter().map(found).collect::<Vec<_>>() })
    }

    fn add(&mut self, health: Health, why: impl Into<String>, remedy: impl Into<String>) {
        self.0.push(Finding { health, why: why.into(), remedy: remedy.into() });
    }

    fn node(&mut self, status: &Value, at: &str) {
        let (role, link) = (status["role"].as_str(), status["link"]["link"].as_str());
        if let Some(failure) = status["log_failure"].as_str() {
            let remedy = format!("promote a standby, or look at the disk and run freshet restart{at}");
            self.add(Health::Failing, format!("its log has failed: {failure}"), remedy);
        }
        if status["removed"].is_object() {
            let why = format!("it does not belong to its cluster any more: {}", text(&status["removed"]["why"]));
            self.add(Health::Failing, why, format!("freshet stop{at}, and give it another directory to join again"));
        }
        match (role, link) {
            (Some("primary"), _) => self.primary(status, at),
            (Some("standby" | "mirror"), Some("following")) => self.follower(status, at),
            (Some("standby" | "mirror"), Some(link @ ("connecting" | "resting"))) => {
                let why = status["link"]["last_failure"].as_str().map(|why| format!(" ({why})")).unwrap_or_default();
                let why = format!("it follows no primary: it is {link}{why}");
                self.add(Health::Lacking, why, format!("freshet members{at}, and start or promote a primary"));
            }
            (Some(role @ ("starting" | "taking-over")), _) => {
                let phase = status["phase"].as_str().map(|phase| format!(", phase {phase}")).unwrap_or_default();
                let doing = if role == "starting" { "starts" } else { "takes over" };
                self.add(Health::Lacking, format!("it {doing}{phase}"), format!("wait; freshet status{at} --watch"));
            }
            _ => {
                let why = status["link"]["why"].as_str().map(|why| format!(": {why}")).unwrap_or_default();
                let is = link.or(role).unwrap_or("in a state that is not known");
                self.add(Health::Failing, format!("it neither leads nor follows, and is {is}{why}"), restart(at));
            }
        }
    }

    fn primary(&mut self, status: &Value, at: &str) {
        let standing = &status["standing"];
        let remedy = standing["remedy"].as_str().map(str::to_owned);
        let members = || format!("freshet members{at}, and start the nodes that are away");
        match standing["standing"].as_str() {
            Some("safe") => self.troubles(status, at),
            Some("degraded") => {
                let why = "commits continue with fewer standbys in sync than belong to the cluster";
                self.add(Health::Lacking, why, remedy.unwrap_or_else(members));
            }
            other => {
                let waits: Vec<_> = standing["waits_for"].as_array().into_iter().flatten().map(text).collect();
                let waits =
                    if waits.is_empty() { String::new() } else { format!(", waiting for {}", waits.join(", ")) };
                let cause = standing["why"].as_str().map(|why| format!(": {why}")).unwrap_or_default();
                let why = format!("nothing commits ({}{waits}){cause}", other.unwrap_or("unknown"));
                self.add(Health::Failing, why, remedy.unwrap_or_else(members));
            }
        }
    }

    fn follower(&mut self, status: &Value, at: &str) {
        // An archive's or an asynchronous standby's primary never counts on it.
        if status["in_sync"].as_bool().is_none() {
            let why = "its primary has been silent for two seconds";
            self.add(Health::Lacking, why, format!("freshet members{at}"));
        }
        if status["commits_nothing"].is_object() && time(status, "commits_nothing") >= STALLS {
            let lasts = lasting(time(status, "commits_nothing"));
            let why = format!("its primary commits nothing, for {lasts}, although there is something to commit");
            self.add(Health::Lacking, why, "freshet status of the primary");
        }
        if let Some(missing) = status["missing"].as_str() {
            self.add(Health::Lacking, format!("it lacks {missing}"), "start the nodes that may have that");
        }
        if let Some(lacks) = status["lacks"].as_str() {
            self.add(Health::Lacking, format!("it lacks {lacks}"), "raise memory-bytes, or mirror.bytes of a mirror");
        }
        self.troubles(status, at);
    }

    /// What is wrong with a node that does its work.
    fn troubles(&mut self, status: &Value, at: &str) {
        if let Some(waits) = status["log_waits"].as_str() {
            self.add(Health::Lacking, format!("its log waits: {waits}"), "make room on the disk of the log");
        }
        if let Some(hangs) = status["log_hangs"].as_str() {
            self.add(Health::Lacking, format!("its log hangs: {hangs}"), "look at the disk, or promote a standby");
        }
        if status["role"] == "primary" && status["memory"]["full"] == true {
            let why = "its memory for tables is used up, and statements that add rows are refused";
            self.add(Health::Lacking, why, "delete rows, end old transactions, or raise memory-bytes");
        }
        for ahead in status["ahead"].as_array().into_iter().flatten() {
            let (node, address) = (text(&ahead["node"]), text(&ahead["address"]));
            let why = format!("node {node} at {address} holds more than the primary");
            self.add(Health::Lacking, why, format!("decide which log counts: freshet status{at}"));
        }
        if status["sweep"]["log_damage"].as_array().is_some_and(|damage| !damage.is_empty()) {
            let why = "its log is damaged on the disk";
            self.add(Health::Lacking, why, format!("do not stop it: freshet checkpoint{at}, then look at the disk"));
        }
        if let Some(expires) = status["certificate_expires"].as_u64().filter(|expires| *expires < now() + SOON) {
            let days = expires.saturating_sub(now()) / 86_400;
            let why = format!("its certificate ends in {days} days");
            self.add(Health::Lacking, why, "see docs/operations.md#when-certificates-end");
        }
    }

    /// `leads`: the status of the primary is known, and says how its promise stands.
    fn cluster(&mut self, members: &Value, leads: bool, at: &str) {
        if members["primary"] != true {
            let why = members["no_primary"].as_str().unwrap_or("the node that was asked is not the primary");
            let why = format!("no primary answers: {why}");
            let remedy = "start the primary; if it is gone, freshet promote the standby that has most of the log";
            return self.add(Health::Failing, why, remedy);
        }
        match members["standing"].as_str() {
            Some("safe") => {}
            _ if leads => {}
            Some("degraded") => {
                let why = "commits continue with fewer standbys in sync than belong to the cluster";
                self.add(Health::Lacking, why, format!("freshet members{at}, and start the nodes that are away"));
            }
            other => {
                let why = format!("nothing commits on the primary ({})", other.unwrap_or("unknown"));
                self.add(Health::Failing, why, "freshet status of the primary");
            }
        }
        for node in lacking(members) {
            match node["connected"] == true {
                true => {
                    let why = format!("{} does not count yet", named(node));
                    self.add(Health::Lacking, why, format!("wait; freshet status{at} --watch"));
                }
                false => {
                    let why = format!("{} is away{}", named(node), members::since(node, "connected_or_away_for"));
                    let remedy = "start it on its machine, or let TCP through to it; for good: freshet remove --gone";
                    self.add(Health::Lacking, why, remedy);
                }
            }
        }
        for pair in unreached(members) {
            let remedy = "let TCP through between the two, at the addresses that freshet members shows";
            self.add(Health::Lacking, pair, remedy);
        }
    }
}

/// Has a node start again.
fn restart(at: &str) -> String {
    format!("do what it says, or freshet restart{at}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn members(nodes: Value) -> Value {
        json!({ "primary": true, "standing": "safe", "safety": "majority", "nodes": nodes })
    }

    fn node(id: &str, role: &str) -> Value {
        json!({ "node": id, "role": role, "address": "h:1", "connected": true, "in_sync": true, "vote": true })
    }

    #[test]
    fn the_worst_comes_first_and_a_few_are_named() {
        let status = json!({ "role": "primary", "standing": { "standing": "blocked", "remedy": "start them" } });
        let mut away = node("b2", "standby");
        away["connected"] = false.into();
        let all = members(json!([node("a1", "primary"), away.clone(), away.clone(), away]));
        let verdict = Verdict::of(Some(&status), Some(&all), "h:7400");
        let line = verdict.line();
        assert!(line.starts_with("blocked: nothing commits (blocked); standby b2 at h:1 is away; "), "{line}");
        assert!(line.ends_with("; 1 more -- do: start them"), "{line}");
        assert_eq!((verdict.health(), verdict.health().check_code()), (Health::Failing, 2));
        let value = verdict.to_json();
        assert_eq!((&value["state"], value["findings"].as_array().map(Vec::len)), (&"blocked".into(), Some(4)));
    }

    /// A node that is well by itself shares what its cluster lacks.
    #[test]
    fn a_status_knows_of_those_that_do_not_reach_each_other() {
        let status = json!({ "role": "primary", "standing": { "standing": "safe" } });
        let mut b = node("b2", "standby");
        let whole = members(json!([node("a1", "primary"), b.clone(), node("c3", "witness")]));
        let verdict = Verdict::of(Some(&status), Some(&whole), "");
        assert_eq!((verdict.health(), verdict.line()), (Health::Well, "ok: everything is as configured".to_owned()));
        b["unreached"] = json!(["c3"]);
        let cut = members(json!([node("a1", "primary"), b, node("c3", "witness")]));
        let verdict = Verdict::of(Some(&status), Some(&cut), "");
        let line = verdict.line();
        assert!(
            line.starts_with("degraded: standby b2 at h:1 does not reach witness c3 at h:1 -- do: let TCP"),
            "{line}"
        );
        assert_eq!(verdict.health(), members::health(&cut));
        assert_eq!(Verdict::unreachable("it is gone").line().split(" -- ").next(), Some("blocked: it is gone"));
    }

    /// What nodes say of themselves controls no terminal, and adds no lines.
    #[test]
    fn a_verdict_is_one_line() {
        let evil = "\u{1b}[2J\nok: x";
        let status = json!({ "role": "standby", "link": { "link": "failed", "why": evil } });
        let line = Verdict::of(Some(&status), None, "").line();
        assert!(!line.contains(char::is_control) && line.starts_with("blocked: "), "{line:?}");
    }
}
