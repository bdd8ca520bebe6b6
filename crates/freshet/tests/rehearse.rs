//! `freshet rehearse`: failures of throw-away nodes, and what they cost.

mod common;

use std::process::{Command, Output, Stdio};

use common::{connect, create_journal, in_sync, program, start, wait_until};
use freshet_base::Safety;
use freshet_testing::{Missing, skip};
use serde_json::Value;

fn rehearse(arguments: &[&str]) -> (Output, Value) {
    let out =
        Command::new(program()).args(["rehearse", "--json"]).args(arguments).stdin(Stdio::null()).output().unwrap();
    let report = serde_json::from_slice(
        out.stdout.split(|byte| *byte == b'\n').rfind(|it| it.first() == Some(&b'{')).unwrap_or(b"null"),
    );
    let report = report.unwrap();
    (out, report)
}

/// Each fault is followed by a primary, and nothing is lost.
#[test]
fn nothing_is_lost_by_kills_pauses_bad_disks_and_losses_of_power() {
    let faults = "kill,stop,switch-over,full-disk,dead-disk,power";
    let (out, report) = rehearse(&["--fault", faults, "--rounds", "6", "--witness", "--nodes", "2"]);
    assert!(out.status.success(), "{out:?}");
    for fault in faults.split(',') {
        let stops = &report["stops"][fault];
        assert_eq!((&stops["rounds"], &stops["without_primary"]), (&1.into(), &0.into()), "{report}");
        assert!(stops["p50_ms"].as_f64().unwrap() > 0.0, "{report}");
    }
    assert_eq!((&report["lost"], &report["violations"]), (&0.into(), &Value::Array(Vec::new())), "{report}");
    assert!(report["acknowledged"].as_u64().unwrap() > 0, "{report}");
    assert_eq!((&report["level"], &report["failover"]), (&"majority".into(), &"automatic".into()));
}

/// Of three nodes two are left by a primary whose disk is bad: one stands, and the other follows
/// it.
#[test]
fn a_primary_whose_disk_is_bad_is_left_by_all() {
    let (out, report) = rehearse(&["--fault", "dead-disk,full-disk", "--rounds", "4"]);
    assert!(out.status.success(), "{out:?}");
    for fault in ["dead-disk", "full-disk"] {
        assert_eq!(report["stops"][fault]["without_primary"], 0, "{report}");
    }
    assert_eq!((&report["lost"], &report["violations"]), (&0.into(), &Value::Array(Vec::new())), "{report}");
}

/// Links are cut, and a primary dies while one flaps: of three nodes, and of two and a witness.
#[test]
fn a_primary_that_dies_while_a_cable_flaps_is_succeeded() {
    let can_cut = Command::new("unshare").args(["--net", "ip", "link"]).output();
    if !can_cut.is_ok_and(|out| out.status.success()) {
        return skip(Missing::Tool, "cables that flap", "only root can make network namespaces");
    }
    for nodes in [&["--nodes", "3"][..], &["--nodes", "2", "--witness"]] {
        let (out, report) = rehearse(&[&["--fault", "flap,cut-peer", "--rounds", "2", "--flap", "6"], nodes].concat());
        assert!(out.status.success(), "{out:?}");
        let stops = &report["stops"];
        for rounds in [&stops["flap"], &stops["cut-peer"], &report["deaths"]] {
            assert_eq!((&rounds["rounds"], &rounds["without_primary"]), (&1.into(), &0.into()), "{report}");
        }
        assert!(stops["flap"]["moves"].as_u64().unwrap() <= 2, "{report}");
        assert!(stops["cut-peer"]["moves"].as_u64().unwrap() <= 1, "{report}");
        assert_eq!((&report["lost"], &report["violations"]), (&0.into(), &Value::Array(Vec::new())), "{report}");
    }
}

/// Where commits wait for every node, the killed one is started again, as by a supervisor; and what
/// cannot be is refused before anything runs.
#[test]
fn a_level_that_needs_all_nodes_has_them_back() {
    let (out, report) = rehearse(&["--level", "very-safe", "--fault", "kill", "--rounds", "1"]);
    assert!(out.status.success(), "{out:?}");
    assert_eq!(report["stops"]["kill"]["without_primary"], 0, "{report}");
    for wrong in [&["--level", "quorum:4"][..], &["--lying-fsync", "--fault", "kill"]] {
        let (out, report) = rehearse(wrong);
        assert_eq!((out.status.code(), &report), (Some(2), &Value::Null), "{out:?}");
    }
}

/// Disks acknowledge what they have not written: the rehearsal must notice.
#[test]
fn a_disk_that_lies_about_syncs_is_found_out() {
    let (out, report) = rehearse(&["--lying-fsync", "--fault", "power", "--rounds", "2", "--sync-within", "60"]);
    assert_eq!(out.status.code(), Some(1), "{out:?}");
    assert!(report["lost"].as_u64().unwrap() > 0, "{report} {out:?}");
    std::fs::remove_dir_all(report["kept"].as_str().unwrap()).unwrap();
}

/// The nodes are made from a running cluster, which does not notice, at its level; who promotes is
/// this command, where that cluster has a person do it.
#[test]
fn a_running_cluster_is_rehearsed_as_it_is() {
    let directory = tempfile::tempdir().unwrap();
    let flags = ["--failover", "manual"];
    let primary = start(&directory.path().join("primary"), &flags);
    let standby =
        start(&directory.path().join("standby"), &["--join", &primary.ready().listen, "--failover", "manual"]);
    wait_until(&primary, "a standby in sync", |status| in_sync(status) == 1);
    create_journal(&connect(&primary));
    let client = connect(&primary);
    client.change_level(Safety::TwoSafe, common::SOON).unwrap();
    wait_until(&primary, "the level", |status| status["in_sync_set"]["level"] == "2-safe");
    let (out, report) =
        rehearse(&["--address", &standby.ready().address, "--rounds", "2", "--fault", "kill,switch-over"]);
    assert!(out.status.success(), "{out:?}");
    assert_eq!(
        (&report["level"], &report["nodes"], &report["failover"]),
        (&"2-safe".into(), &2.into(), &"manual".into())
    );
    let status: Value = serde_json::from_str(&client.status(common::SOON).unwrap()).unwrap();
    assert_eq!((&status["role"], &status["term"]), (&"primary".into(), &1.into()), "nothing has come to it");
    // A backup that is there serves as well.
    let backup = directory.path().join("backup");
    let made =
        Command::new(program()).args(["backup", "--node", &primary.ready().listen]).arg(&backup).output().unwrap();
    assert!(made.status.success(), "{made:?}");
    let backup = backup.to_str().unwrap();
    let (out, report) = rehearse(&["--backup", backup, "--rounds", "1", "--fault", "kill", "--level", "quorum:2"]);
    assert!(out.status.success(), "{out:?}");
    assert_eq!((&report["level"], &report["nodes"]), (&"quorum:2".into(), &3.into()));
    drop(standby);
}
