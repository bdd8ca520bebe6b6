//! What `freshet status` says of failovers: who takes a lost primary's place, and what an operator
//! has to decide.

use serde_json::Value;

use super::{text, time};
use crate::units::lasting;

/// What the node is.
pub(super) fn role(status: &Value) -> String {
    let (role, term) = (text(&status["role"]), text(&status["term"]));
    match status["removed"].is_object() {
        true => format!("removed: a {role} in term {term}, and no member of the cluster"),
        false => format!("{role} in term {term}"),
    }
}

/// What a commit promises, and what it is to promise.
pub(super) fn level(status: &Value) -> String {
    let (level, wanted) = (text(&status["safety"]), &status["wanted"]);
    if wanted.is_null() || wanted == &status["safety"] {
        let before = |waits| format!(", and the level of before as well until it is on record{waits}");
        return level + &pending(&status["level_pending"]).map(before).unwrap_or_default();
    }
    let waits = pending(&status["level_pending"]).unwrap_or_default();
    format!("{level}, and {} as well, which is to replace it as soon as that is on record{waits}", text(wanted))
}

/// Whom a level waits for that is not on record yet, behind a word of that.
pub(crate) fn pending(level: &Value) -> Option<String> {
    let nodes: Vec<_> = level.as_array()?.iter().map(text).collect();
    let waits = || format!("; it waits for those that have yet to note it: {}", nodes.join(", "));
    Some(if nodes.is_empty() { String::new() } else { waits() })
}

/// How many standbys a primary's commits count on; none while a set of them is on its way to the
/// record, since a failover may need members of the one before as well.
pub fn counted(status: &Value) -> usize {
    let counts = |standby: &&Value| standby["in_sync"] == true && standby["connected"] == true;
    let standbys = status["standbys"].as_array().filter(|_| status["set_pending"].is_null());
    standbys.map_or(0, |standbys| standbys.iter().filter(counts).count())
}

/// Who takes a lost primary's place, and between which nodes an operator has to choose.
pub(super) fn show(status: &Value, line: &mut impl FnMut(&str, String)) {
    if let Some(by) = by(&status["failover"]) {
        line("failover", by);
    }
    if let Some(why) = status["failover"]["cannot_lead"].as_str() {
        line("CANNOT LEAD", why.to_owned());
    }
    if status["witness"].is_object() {
        let witness = &status["witness"];
        let (node, address) = (text(&witness["node"]), text(&witness["address"]));
        let is = match (witness["connected"] == true, witness["votes"] == true) {
            (true, true) => "connected, votes",
            (true, false) => "connected, does not vote",
            (false, _) => "DOES NOT ANSWER",
        };
        line("witness", format!("{node} at {address}: {is}"));
    }
    if status["failover"]["maintenance"].is_object() {
        let left = lasting(time(&status["failover"], "maintenance"));
        line(
            "MAINTENANCE",
            format!("for another {left}: no node takes over by itself; freshet maintenance --end ends it"),
        );
    }
    if let Some(why) = status["removed"]["why"].as_str() {
        line("REMOVED", format!("{why}; nothing that it serves or promises counts"));
    }
    if let Some(why) = status["holds_more"].as_str() {
        line("HOLDS MORE", why.to_owned());
    }
    for ahead in status["ahead"].as_array().into_iter().flatten() {
        let (node, address, why) = (text(&ahead["node"]), text(&ahead["address"]), text(&ahead["why"]));
        let (term, end) = (text(&ahead["term"]), text(&ahead["end"]));
        line("HOLDS MORE", format!("{node} at {address}, up to {end} in term {term}: {why}"));
    }
    for met in status["two_primaries"].as_array().into_iter().flatten() {
        line("TWO PRIMARIES", text(&met["why"]));
    }
}

/// By whom a failover is made, and what is missing for the nodes to make it.
fn by(failover: &Value) -> Option<String> {
    let (by, lacks) = (failover["by"].as_str()?, failover["lacks"].as_str());
    Some(match (by, lacks) {
        ("manual", None) => "manual: an operator promotes a standby, where failover = automatic would do".to_owned(),
        ("manual", Some(_)) => "manual: an operator promotes a standby".to_owned(),
        (by, None) => format!("{by}: the nodes choose another primary"),
        (by, Some(lacks)) => format!("{by}, BUT AN OPERATOR IS NEEDED: {lacks}"),
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_level_that_is_not_on_record_names_whom_it_waits_for() {
        let mut status = json!({"safety": "majority", "wanted": "majority", "level_pending": null});
        assert_eq!(level(&status), "majority");
        status["level_pending"] = json!([]);
        assert_eq!(level(&status), "majority, and the level of before as well until it is on record");
        status["level_pending"] = json!(["00000000000000ab", "00000000000000ac"]);
        let waits = "; it waits for those that have yet to note it: 00000000000000ab, 00000000000000ac";
        assert!(level(&status).ends_with(waits), "{}", level(&status));
        status["wanted"] = json!("very-safe");
        assert!(level(&status).starts_with("majority, and very-safe as well") && level(&status).ends_with(waits));
    }

    #[test]
    fn the_status_has_who_takes_a_lost_primarys_place() {
        let shown = |status: Value| {
            let mut lines = Vec::new();
            show(&status, &mut |name, value| lines.push(format!("{name}: {value}")));
            lines
        };
        assert_eq!(shown(json!({})), <[&str; 0]>::default());
        let automatic = json!({ "failover": { "by": "automatic", "lacks": null } });
        assert_eq!(shown(automatic), ["failover: automatic: the nodes choose another primary"]);
        let lacking = json!({ "failover": { "by": "last", "lacks": "a third one is needed" } });
        assert_eq!(shown(lacking), ["failover: last, BUT AN OPERATOR IS NEEDED: a third one is needed"]);
        let maintained = json!({ "failover": { "maintenance": { "secs": 90, "nanos": 0 } } });
        assert!(shown(maintained)[0].starts_with("MAINTENANCE: for another 90 s"));
        let manual = json!({ "failover": { "by": "manual", "lacks": "x" }, "holds_more": "more" });
        assert_eq!(shown(manual), ["failover: manual: an operator promotes a standby", "HOLDS MORE: more"]);
    }

    /// What nodes and their peers say of themselves controls no terminal, and adds no lines.
    #[test]
    fn no_control_characters_are_shown() {
        let evil = "b:1\u{1b}[2J\nrole             primary\u{9b}31m\u{7f}";
        let standby = json!({"node": evil, "address": evil, "last_loss": evil, "connected": false});
        let ahead = json!([{"node": evil, "address": evil, "why": evil}]);
        for status in [
            json!({"role": "primary", "standbys": [standby], "ahead": ahead}),
            json!({"role": "standby", "link": {"link": "connecting", "address": evil, "why": evil}}),
            json!({"role": "starting", "phase": evil}),
        ] {
            let shown = super::super::table(&status, None);
            assert!(
                shown.contains(r"b:1\u{1b}[2J\nrole") && !shown.contains("\nrole             primary\u{9b}"),
                "{shown}"
            );
            assert!(!shown.contains(|letter: char| letter.is_control() && letter != '\n'), "{shown:?}");
        }
    }
}
