//! Statuses as they are shown, and what they come to.

use super::{table as shown_table, *};

fn table(status: &Value) -> String {
    shown_table(status, None)
}

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
    let line = "quorum:3: blocked, 1 standby(s) in sync, 2 needed; commits wait for 0000000000000011, 00000000000000ab";
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
    let memory = serde_json::json!({"role": "taking-over", "phase": "rows", "unit": "chunks", "done": 30, "of": 1200});
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
