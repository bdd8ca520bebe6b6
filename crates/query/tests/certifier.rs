//! SERIALIZABLE under both certifiers, over SQL.

use crate::common::{Sql, SqlNode, config};
use freshet_engine::{
    Certifier::{self, Ssn, Validation},
    NodeConfig,
};

/// A node with rows 1 to 9, and three sessions that are serializable.
fn scene(certifier: Certifier) -> (SqlNode, [Sql; 3]) {
    let node = SqlNode::start(NodeConfig { certifier, ..config(None) });
    let sessions = [node.connect(), node.connect(), node.connect()];
    sessions[0].lines("CREATE TABLE t (id int PRIMARY KEY, v int)");
    sessions[0].lines("INSERT INTO t SELECT i, 0 FROM generate_series(1, 9) i");
    for session in &sessions {
        session.lines("SET default_transaction_isolation TO serializable");
    }
    (node, sessions)
}

/// Ends a transaction. Whether it could commit.
fn commits(session: &Sql) -> bool {
    let outcome = session.outcome("COMMIT");
    assert!(["00000", "40001"].contains(&&*outcome), "{outcome}");
    outcome == "00000"
}

#[test]
fn a_report_that_is_written_down_commits_while_others_write() {
    for (certifier, is_kept) in [(Validation, false), (Ssn, true)] {
        let (_node, [report, writer, _]) = scene(certifier);
        report.lines("BEGIN");
        assert_eq!(report.lines("SELECT count(*), sum(v) FROM t"), ["9 0"]);
        writer.lines("UPDATE t SET v = v + 1 WHERE id = 1");
        writer.lines("INSERT INTO t VALUES (10, 1)");
        writer.lines("DELETE FROM t WHERE id = 2");
        report.lines("INSERT INTO t VALUES (100, 0)");
        assert_eq!(commits(&report), is_kept, "{certifier}");
        assert_eq!(writer.lines("SELECT count(*) FROM t WHERE id = 100"), [if is_kept { "1" } else { "0" }]);
    }
}

/// A withdrawal has seen no deposit, and comes before it; a report that only reads has seen the
/// deposit, and not the withdrawal (docs/sql.md, "The certifier").
#[test]
fn who_only_reads_sees_a_serial_order_at_serializable() {
    for (certifier, level, is_kept) in [
        (Ssn, "SERIALIZABLE, READ ONLY", false),
        (Ssn, "SERIALIZABLE", false),
        (Ssn, "REPEATABLE READ, READ ONLY", true),
        (Validation, "SERIALIZABLE, READ ONLY", true),
    ] {
        let (_node, [withdrawal, deposit, report]) = scene(certifier);
        withdrawal.lines("BEGIN");
        assert_eq!(withdrawal.lines("SELECT sum(v) FROM t WHERE id < 3"), ["0"]);
        deposit.lines("UPDATE t SET v = v + 20 WHERE id = 1");
        report.lines(&format!("BEGIN ISOLATION LEVEL {level}"));
        assert_eq!(report.lines("SELECT v FROM t WHERE id = 1"), ["20"]);
        withdrawal.lines("UPDATE t SET v = v - 11 WHERE id = 2");
        assert_eq!(commits(&withdrawal), certifier == Ssn);
        assert_eq!(report.lines("SELECT v FROM t WHERE id = 2"), ["0"]);
        assert_eq!(commits(&report), is_kept, "{level} under {certifier}");
    }
}
