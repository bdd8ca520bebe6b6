//! Clients of a mirror.

mod common;

use std::time::Instant;

use common::{SOON, Sql, SqlNode, config, eventually};
use freshet_engine::{MirrorSettings, NodeConfig, Safety, node::RoleStatus};

fn of(directory: &tempfile::TempDir) -> NodeConfig {
    NodeConfig { safety: Safety::VerySafe, standbys: 1, ..config(Some(directory.path())) }
}

/// A client is refused, and told where to go, until the mirror has taken over.
#[test]
fn a_mirror_serves_clients_when_it_has_taken_over() {
    let directories = [(); 3].map(|()| tempfile::tempdir().unwrap());
    let primary = SqlNode::start(of(&directories[0]));
    let address = primary.node.address().to_owned();
    let mirror = MirrorSettings { bytes: 512 << 20, undo_bytes: 64 << 20, directory_bytes: 1 << 20, keep_dir: None };
    let mirror = SqlNode::start(NodeConfig { join: Some(address.clone()), mirror, ..of(&directories[1]) });
    let sql = primary.connect();
    sql.lines("CREATE TABLE t (id int PRIMARY KEY, v text, w text)");
    sql.lines("INSERT INTO t SELECT n, repeat('x', n) FROM generate_series(1, 500) AS n");
    sql.lines("CREATE INDEX t_v ON t (v)");
    sql.lines("CREATE TABLE gone (id int PRIMARY KEY)");
    sql.lines("INSERT INTO gone VALUES (1)");
    sql.lines("DROP TABLE gone");
    sql.lines("DELETE FROM t WHERE id % 3 = 0");
    sql.lines("UPDATE t SET w = repeat('y', 9000) WHERE id = 7");
    let rows = sql.lines("SELECT id, v, w FROM t ORDER BY id");
    eventually("the mirror is whole", || matches!(mirror.node.status().role, RoleStatus::Mirror { own } if own.whole));
    let refused = Sql::open(&Sql::config(mirror.address(), "freshet", None)).err().expect("a mirror serves no readers");
    let refused = refused.as_db_error().expect("it says why");
    assert_eq!(refused.code().code(), "57P03");
    assert!(refused.hint().is_some_and(|hint| hint.contains(&address)), "{refused:?}");
    drop((sql, primary));

    // Very safe: what is here is all there is.
    mirror.node.promote(true).unwrap();
    let back = SqlNode::start(NodeConfig { join: Some(mirror.node.address().into()), ..of(&directories[2]) });
    let sql = mirror.connect();
    assert_eq!(sql.lines("SELECT id, v, w FROM t ORDER BY id"), rows);
    assert_eq!(sql.lines("SELECT id FROM t WHERE v = 'xxxx'"), ["4"]);
    assert_eq!(sql.state("SELECT * FROM gone"), "42P01");
    sql.lines("INSERT INTO t VALUES (1000, 'new')");
    let end = mirror.node.database().core().snapshots.current();
    back.node.wait_visible(end, Some(Instant::now() + SOON)).unwrap();
    assert_eq!(back.connect().lines("SELECT count(*) FROM t"), ["335"]);
}
