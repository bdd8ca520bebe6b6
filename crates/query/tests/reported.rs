//! Settings that clients follow: what a client was told is what SHOW shows, after each message.

use std::collections::BTreeMap;

use crate::common::{SqlNode, config, eventually, judge::Judge, wire::Wire};
use crate::differential::generate::random::Random;
use freshet_engine::{Consent, NodeConfig, Safety};
use freshet_testing::{Missing, skip};

/// The settings that change.
const FOLLOWED: &[&str] = &[
    "application_name",
    "client_encoding",
    "DateStyle",
    "default_transaction_read_only",
    "in_hot_standby",
    "IntervalStyle",
    "is_superuser",
    "session_authorization",
    "standard_conforming_strings",
    "TimeZone",
];

/// Statements that may follow one another in any order.
const STATEMENTS: &[&str] = &[
    "SET TimeZone = 'Asia/Tokyo'",
    "SET TimeZone = 'Europe/Rome'",
    "SET LOCAL TimeZone = 'UTC'",
    "SET SESSION CHARACTERISTICS AS TRANSACTION READ ONLY",
    "SET default_transaction_read_only = off",
    "SET LOCAL default_transaction_read_only = on",
    "SET DateStyle = 'German'",
    "SET DateStyle = 'SQL, DMY'",
    "SET LOCAL IntervalStyle = iso_8601",
    "SET IntervalStyle = sql_standard",
    "SET client_encoding = LATIN1",
    "SET LOCAL client_encoding = LATIN2",
    "SET NAMES 'UTF8'",
    "SET application_name = 'one'",
    "SET LOCAL application_name = 'two'",
    "SELECT set_config('application_name', 'three', true)",
    "SELECT set_config('TimeZone', 'America/Lima', false)",
    "SELECT set_config('TimeZone', 'America/Lima', false), 1 / 0",
    "SET standard_conforming_strings = off",
    "SET standard_conforming_strings = on",
    "SET ROLE joe",
    "SET LOCAL ROLE joe",
    "RESET ROLE",
    "SET SESSION AUTHORIZATION joe",
    "SET LOCAL SESSION AUTHORIZATION joe",
    "RESET SESSION AUTHORIZATION",
    "RESET TimeZone",
    "RESET application_name",
    "RESET ALL",
    "DISCARD ALL",
    "BEGIN",
    "BEGIN",
    "BEGIN",
    "COMMIT",
    "COMMIT",
    "ROLLBACK",
    "ROLLBACK",
    "SAVEPOINT a",
    "SAVEPOINT b",
    "ROLLBACK TO a",
    "ROLLBACK TO b",
    "RELEASE a",
    "SELECT 1 / 0",
    "SET TimeZone = 'nowhere'",
    "SET TimeZone = 'Asia/Tokyo'; SELECT 1 / 0",
    "SET application_name = 'four'; SET application_name = 'five'; ROLLBACK",
    "BEGIN; SET TimeZone = 'Asia/Tokyo'; ROLLBACK",
    "BEGIN; SET LOCAL DateStyle = 'German'; COMMIT",
    "BEGIN; SET client_encoding = LATIN1; SELECT 'x'; ROLLBACK; SELECT 'x'",
];

fn number(variable: &str, otherwise: u64) -> u64 {
    std::env::var(variable).map_or(otherwise, |it| it.parse().unwrap_or_else(|_| panic!("{variable} is a number")))
}

/// What a client knows of the settings that change.
fn known(wire: &Wire) -> BTreeMap<String, String> {
    let followed = wire.parameters.iter().filter(|(name, _)| FOLLOWED.contains(&name.as_str()));
    followed.map(|(name, value)| (name.clone(), value.clone())).collect()
}

/// What SHOW shows of them.
fn shown(wire: &mut Wire) -> BTreeMap<String, String> {
    let show = |name: &&str| {
        let answer = wire.query(&format!("SHOW {name}"));
        let value = answer.parts.iter().find_map(|part| match part {
            crate::common::wire::Part::Row(row) => row[0].clone(),
            _ => None,
        });
        ((*name).to_owned(), value.unwrap_or_else(|| panic!("{name}: {answer}")))
    };
    FOLLOWED.iter().map(show).collect()
}

#[test]
fn a_client_knows_what_holds() {
    let seed = number("FRESHET_SEED", 1);
    println!("FRESHET_SEED={seed}");
    let mut random = Random::new(seed, "reported");
    let node = SqlNode::in_memory();
    let mut wire = Wire::tcp(node.address());
    wire.query("CREATE ROLE joe");
    let judge = Judge::start();
    if let Err(why) = &judge {
        skip(Missing::Tool, "reported settings as PostgreSQL reports them", why);
    }
    let mut judged = judge.as_ref().ok().map(|judge| Wire::unix(&judge.socket()));
    let mut history = Vec::new();
    for round in 0..3_000 * number("FRESHET_FACTOR", 1) {
        let statement = random.one(STATEMENTS);
        history.push(statement);
        let answer = wire.query(statement);
        if answer.status != 'E' {
            assert_eq!(known(&wire), shown(&mut wire), "{round}: {:?}", &history[history.len().saturating_sub(20)..]);
        }
        if let Some(judged) = &mut judged {
            if round == 0 {
                judged.query("CREATE ROLE joe");
            }
            judged.query(statement);
            assert_eq!(known(&wire), known(judged), "{round}: {:?}", &history[history.len().saturating_sub(20)..]);
        }
    }
}

#[test]
fn open_sessions_learn_of_a_promotion() {
    let directories = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let of = |number: usize| NodeConfig { safety: Safety::Quorum(2), ..config(Some(directories[number].path())) };
    let primary = SqlNode::start(of(0));
    let standby = SqlNode::start(NodeConfig { join: Some(primary.node.address().to_owned()), ..of(1) });
    primary.connect().lines("SET synchronous_commit = remote_apply; CREATE TABLE t (id int)");
    let mut sessions = Vec::new();
    eventually("the standby has a catalog", || standby.connect().outcome("SELECT * FROM t") == "00000");
    for _ in 0..3 {
        sessions.push(Wire::tcp(standby.address()));
    }
    assert!(sessions.iter().all(|wire| wire.parameters["in_hot_standby"] == "on"));
    sessions[1].query("BEGIN");
    sessions[2].query("BEGIN; SELECT 1 / 0");
    drop(primary);
    standby.node.promote(Consent::Loss).unwrap();
    for wire in &mut sessions {
        // Whatever it asks, even if that fails.
        wire.query("SELECT 1");
        assert_eq!(wire.parameters["in_hot_standby"], "off");
        wire.query("ROLLBACK");
        assert_eq!(shown(wire), known(wire));
    }
    let settings = sessions[0].query("SELECT setting FROM pg_settings WHERE name = 'in_hot_standby'");
    assert!(settings.to_string().contains("(off)"), "{settings}");
}
