//! A standby that executes the statements of its primary again.

use std::time::Instant;

use crate::common::{SOON, Sql, SqlNode, config, eventually};
use freshet_engine::{AgainStatus, Consent, Encoding, NodeConfig, Safety, node::RoleStatus};

fn follow(directory: &tempfile::TempDir, primary: &SqlNode) -> SqlNode {
    let join = Some(primary.node.address().to_owned());
    SqlNode::start(NodeConfig { join, encoding: Encoding::Inputs, ..of(directory) })
}

fn of(directory: &tempfile::TempDir) -> NodeConfig {
    NodeConfig { safety: Safety::TwoSafe, ..config(Some(directory.path())) }
}

fn again(node: &SqlNode) -> AgainStatus {
    let RoleStatus::Standby { again, .. } = node.node.status().role else { panic!("it is a standby") };
    again.expect("it executes transactions again")
}

/// Writes rows numbered from `first`, changes some, and returns what is there.
fn write(sql: &Sql, first: u32) -> Vec<String> {
    for id in first..first + 50 {
        sql.lines(&format!("INSERT INTO t (id, v) VALUES ({id}, 'v{id}')"));
        sql.lines(&format!("UPDATE t SET n = n + {id}, at = now() WHERE id <= {id} AND id > {id} - 5"));
    }
    sql.lines(&format!("DELETE FROM t WHERE id % 7 = 0 AND id >= {first}"));
    everything(sql)
}

fn everything(sql: &Sql) -> Vec<String> {
    sql.lines("SELECT id, v, n, at FROM t ORDER BY id")
}

/// The standby shows what the primary has.
fn assert_same(primary: &SqlNode, standby: &SqlNode, rows: &[String]) {
    let end = primary.node.database().core().snapshots.current();
    standby.node.wait_visible(end, Some(Instant::now() + SOON)).unwrap();
    assert_eq!(everything(&standby.connect()), rows);
}

/// The catalog and the plans that an executor keeps are of one database: a node that follows again
/// in the same process has another.
#[test]
fn a_node_that_was_deposed_executes_statements_again() {
    let directories = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let first = SqlNode::start(of(&directories[0]));
    let second = follow(&directories[1], &first);
    let sql = first.connect();
    sql.lines("CREATE TABLE t (id int PRIMARY KEY, v text, n bigint DEFAULT 0, at timestamptz DEFAULT now())");
    let rows = write(&sql, 0);
    assert_same(&first, &second, &rows);
    assert!(again(&second).executed > 50, "{:?}", again(&second));
    drop((sql, first));

    second.node.promote(Consent::Loss).unwrap();
    let first = follow(&directories[0], &second);
    let sql = second.connect();
    sql.lines("ALTER TABLE t ADD COLUMN more text DEFAULT 'more'");
    let rows = write(&sql, 100);
    assert_same(&second, &first, &rows);
    assert!(again(&first).executed > 50, "{:?}", again(&first));

    // While the other one lives, which is deposed.
    first.node.promote(Consent::Loss).unwrap();
    eventually("it hears of its successor", || second.node.is_deposed());
    drop((sql, second));
    let sql = first.connect();
    sql.lines("ALTER TABLE t DROP COLUMN more; ALTER TABLE t ADD COLUMN other int DEFAULT 3");
    let second = follow(&directories[1], &first);
    let rows = write(&sql, 200);
    assert_same(&first, &second, &rows);
    let again = again(&second);
    assert!(again.executed > 50 && again.mismatches == 0, "{again:?}");
}
