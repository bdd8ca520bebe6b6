//! Clients of a mirror.

use std::time::Instant;

use crate::common::{SOON, Sql, SqlNode, config, eventually};
use freshet_engine::{Consent, MirrorSettings, NodeConfig, Safety, StateHash, node::RoleStatus};

struct Dice(u64);

impl Dice {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % limit
    }
}

fn of(directory: &tempfile::TempDir) -> NodeConfig {
    NodeConfig { safety: Safety::Quorum(2), ..config(Some(directory.path())) }
}

/// A client is refused, and told where to go, until the mirror has taken over.
#[test]
fn a_mirror_serves_clients_when_it_has_taken_over() {
    let directories = [(); 3].map(|()| tempfile::tempdir().unwrap());
    let primary = SqlNode::start(of(&directories[0]));
    let address = primary.node.address().to_owned();
    let mirror = MirrorSettings { bytes: 512 << 20, directory_bytes: 1 << 20, ..MirrorSettings::default() };
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
    sql.lines("SET synchronous_commit = remote_apply");
    let commits = sql.client.simple_query("INSERT INTO t VALUES (2000); DELETE FROM t WHERE id = 2000");
    let commits = sql.runtime.block_on(async { tokio::time::timeout(SOON, commits).await });
    commits.expect("nobody reads on the mirror, so nobody misses what it does not show").unwrap();
    let refused = Sql::open(&Sql::config(mirror.address(), "freshet", None)).err().expect("a mirror serves no readers");
    let refused = refused.as_db_error().expect("it says why");
    assert_eq!(refused.code().code(), "57P03");
    assert!(refused.hint().is_some_and(|hint| hint.contains(&address)), "{refused:?}");
    drop((sql, primary));

    // Very safe: what is here is all there is.
    mirror.node.promote(Consent::Loss).unwrap();
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

/// An update of a whole table writes over more than the undo rings of two mirrors hold, and the
/// table grows within it. It commits, and what is behind it.
#[test]
fn an_update_of_more_than_an_undo_ring_commits() {
    let directories = [(); 3].map(|()| tempfile::tempdir().unwrap());
    let small = |directory| {
        let mut config = NodeConfig { ..of(directory) };
        config.log.buffer_bytes = 1 << 20;
        config
    };
    let primary = SqlNode::start(small(&directories[0]));
    let mirror = MirrorSettings { bytes: 512 << 20, undo_bytes: 2 << 20, ..MirrorSettings::default() };
    let mirrors = [1, 2].map(|number| {
        let (join, mirror) = (Some(primary.node.address().to_owned()), mirror.clone());
        SqlNode::start(NodeConfig { join, mirror, ..small(&directories[number]) })
    });
    let sql = primary.connect();
    sql.lines("CREATE TABLE t (id int PRIMARY KEY, v text)");
    sql.lines("INSERT INTO t SELECT n, repeat('x', 300) FROM generate_series(1, 12000) AS n");
    sql.lines("UPDATE t SET v = repeat('y', 300)");
    sql.lines("BEGIN; UPDATE t SET v = repeat('z', 300); INSERT INTO t VALUES (20000, 'new'); COMMIT");
    sql.lines("UPDATE t SET v = 'behind' WHERE id = 1");
    let own = |node: &SqlNode| match node.node.status().role {
        RoleStatus::Mirror { own } => *own,
        role => panic!("{role:?}"),
    };
    for mirror in &mirrors {
        let status = own(mirror);
        assert!(status.undo_bytes > 2 << 20 && status.lacks.is_none(), "{status:?}");
    }
    let rows = sql.lines("SELECT count(*), count(DISTINCT v), min(v) FROM t");
    drop((sql, primary));
    mirrors[0].node.promote(Consent::Loss).unwrap();
    assert_eq!(mirrors[0].connect().lines("SELECT count(*), count(DISTINCT v), min(v) FROM t"), rows);
}

/// What a client may do to tables and rows; some of it fails.
fn statement(dice: &mut Dice) -> String {
    let table = format!("t{}", dice.below(4));
    let (id, many, third) = (dice.below(300), dice.below(40), dice.below(3));
    // In their slots and elsewhere, in slots there of several sizes.
    let length = [3, 60, 900, 5_000, 70_000][dice.below(5) as usize];
    let letter = char::from(b'a' + dice.below(26) as u8);
    let upsert = format!(
        "INSERT INTO {table} (id, v) SELECT n, repeat('{letter}', n % 7 * {length} / 6) \
         FROM generate_series({id}, {id} + {many}) AS n \
         ON CONFLICT (id) DO UPDATE SET v = excluded.v, n = {table}.n + 1"
    );
    let resize = format!("UPDATE {table} SET v = repeat('{letter}', {length}) WHERE id BETWEEN {id} AND {id} + 3");
    let delete = format!("DELETE FROM {table} WHERE id BETWEEN {id} AND {id} + {many}");
    match dice.below(32) {
        0..4 => format!("CREATE TABLE IF NOT EXISTS {table} (id int PRIMARY KEY, v text, n bigint DEFAULT 0)"),
        4 => format!("DROP TABLE IF EXISTS {table}"),
        5 => format!("ALTER TABLE {table} ADD COLUMN IF NOT EXISTS more{third} text DEFAULT 'more'"),
        6 => format!("ALTER TABLE {table} DROP COLUMN IF EXISTS more{third}"),
        7 => format!("ALTER TABLE {table} ALTER COLUMN n TYPE numeric"),
        8 => format!("CREATE INDEX IF NOT EXISTS {table}_n ON {table} (n, id)"),
        9 => format!("DROP INDEX IF EXISTS {table}_n"),
        10 => format!("TRUNCATE {table}"),
        11 => format!("ALTER TABLE {table} RENAME TO t{}", dice.below(4)),
        12..18 => upsert,
        18..22 => resize,
        22..25 => delete,
        25 => format!("UPDATE {table} SET n = n + 1 WHERE id % 7 = {third}"),
        26 => format!("UPDATE {table} SET id = id + 1000 WHERE id = {id}"),
        // Of one transaction.
        27 => format!("BEGIN; {delete}; SAVEPOINT s; {upsert}; ROLLBACK TO s; {resize}; COMMIT"),
        28 => format!("BEGIN; {upsert}; {resize}; {delete}; {upsert}; COMMIT"),
        29 => format!("BEGIN; {delete}; {upsert}; ROLLBACK"),
        30 => format!(
            "INSERT INTO {table} (id, v) SELECT n, 'many' FROM generate_series(2000, 6000) AS n ON CONFLICT DO NOTHING"
        ),
        _ => format!("DELETE FROM {table} WHERE id >= 2000"),
    }
}

/// Definitions, rows that grow and shrink, long transactions, ids that are used again.
#[test]
fn whatever_clients_do_is_in_a_mirror() {
    let seed = std::env::var("FRESHET_SEED").ok().map_or_else(
        || std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_nanos() as u64 | 1,
        |seed| seed.parse().unwrap(),
    );
    println!("FRESHET_SEED={seed}");
    let mut dice = Dice(seed);
    let directories = [(); 2].map(|()| tempfile::tempdir().unwrap());
    // Batches are divided, and the ring comes round.
    let small = |directory| {
        let mut config = of(directory);
        config.log.buffer_bytes = 1 << 20;
        config
    };
    let primary = SqlNode::start(small(&directories[0]));
    let mirror = MirrorSettings { bytes: 512 << 20, undo_bytes: 2 << 20, ..MirrorSettings::default() };
    let join = Some(primary.node.address().to_owned());
    let mirror = SqlNode::start(NodeConfig { join, mirror, ..small(&directories[1]) });
    let sql = primary.connect();
    sql.lines("CREATE DATABASE other");
    let mut elsewhere = Sql::config(primary.address(), "freshet", None);
    let other = Sql::open(elsewhere.dbname("other")).unwrap();
    let mut done = 0;
    for _ in 0..12 {
        for _ in 0..30 {
            let client = if dice.below(5) == 0 { &other } else { &sql };
            let statement = statement(&mut dice);
            let state = client.outcome(&statement);
            done += u32::from(state == "00000");
            let expected = ["00000", "42P01", "42703", "42P07", "42804", "22003", "23505"];
            assert!(expected.contains(&state.as_str()), "{statement}: {state}");
            if state != "00000" {
                let _ = client.query("ROLLBACK");
            }
        }
        let worker = primary.node.database().worker().unwrap();
        let shown = StateHash::of(&worker.begin_read_only()).unwrap();
        let held = mirror.node.rehearsed(Some(shown.at), Instant::now() + SOON).unwrap().unwrap();
        assert_eq!((held.hash, held.records), (shown.hash, shown.records), "{:?}", mirror.node.status().role);
    }
    assert!(done > 100, "{done} statements have done something");
    let all = |node: &SqlNode| {
        let tables = "SELECT tablename FROM pg_tables WHERE schemaname = 'public' ORDER BY 1";
        let sql = node.connect();
        let rows = |table: String| {
            let by_key = sql.lines(&format!("SELECT * FROM {table} ORDER BY id"));
            let by_number = sql.lines(&format!("SELECT n, id, md5(v) FROM {table} ORDER BY n, id"));
            (table, by_key, by_number)
        };
        sql.lines(tables).into_iter().map(rows).collect::<Vec<_>>()
    };
    let before = all(&primary);
    drop((sql, other, primary));
    mirror.node.promote(Consent::Loss).unwrap();
    assert!(all(&mirror) == before);
}
