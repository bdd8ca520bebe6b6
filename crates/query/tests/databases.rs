//! Several databases of one node: made, altered, dropped, and each with a catalog of its own.

use std::time::Instant;

use crate::common::{SOON, Sql, SqlNode, config, eventually, shown};
use freshet_engine::{CheckpointKind, Consent, NodeConfig, Safety};
use tokio_postgres::Config;

fn config_of(node: &SqlNode, user: &str, database: &str) -> Config {
    let mut config = Sql::config(node.address(), user, None);
    config.dbname(database);
    config
}

fn within(node: &SqlNode, database: &str) -> Sql {
    Sql::open(&config_of(node, "freshet", database)).unwrap_or_else(|error| panic!("{database}: {}", shown(&error)))
}

/// What a client is told that is not let in.
fn refused(node: &SqlNode, user: &str, database: &str) -> String {
    match Sql::open(&config_of(node, user, database)) {
        Ok(_) => panic!("{user} gets into {database}"),
        Err(error) => shown(&error),
    }
}

/// SQLSTATE and message of a statement that fails.
fn fails(sql: &Sql, statement: &str) -> String {
    match sql.query(statement) {
        Ok(rows) => panic!("{statement} has succeeded: {rows:?}"),
        Err(error) => shown(&error),
    }
}

const NAMES: &str = "SELECT datname FROM pg_database ORDER BY datname";

#[test]
fn the_databases_that_are_there_from_the_beginning() {
    let node = SqlNode::in_memory();
    let sql = node.connect();
    assert_eq!(sql.lines(NAMES), ["freshet", "postgres", "template0", "template1"]);
    assert_eq!(sql.lines("SELECT current_database(), current_catalog"), ["freshet freshet"]);
    for name in ["postgres", "template1"] {
        assert_eq!(within(&node, name).lines("SELECT current_database()"), [name]);
    }
    assert_eq!(
        refused(&node, "freshet", "template0"),
        "55000 database \"template0\" is not currently accepting connections "
    );
    assert_eq!(refused(&node, "freshet", "shop"), "3D000 database \"shop\" does not exist ");
    // Who may not log in does not learn what there is.
    assert_eq!(refused(&node, "nobody", "shop"), "28000 role \"nobody\" does not exist ");
    let select = "SELECT datname, datdba::regrole, encoding, datcollate, datistemplate, datallowconn, datconnlimit, datacl \
                FROM pg_database ORDER BY oid";
    assert_eq!(
        sql.lines(select),
        [
            "template1 freshet 6 C t t -1 {=c/freshet,freshet=CTc/freshet}",
            "template0 freshet 6 C t f -1 {=c/freshet,freshet=CTc/freshet}",
            "postgres freshet 6 C f t -1 NULL",
            "freshet freshet 6 C f t -1 NULL",
        ]
    );
    let public = "SELECT nspowner::regrole, nspacl FROM pg_namespace WHERE nspname = 'public'";
    assert_eq!(sql.lines(public), ["pg_database_owner {pg_database_owner=UC/pg_database_owner,=U/pg_database_owner}"]);
}

#[test]
fn each_has_a_catalog_and_rows_of_its_own() {
    let node = SqlNode::in_memory();
    let one = node.connect();
    one.query("CREATE TABLE t (a int PRIMARY KEY, b text); INSERT INTO t VALUES (1, 'one'); CREATE SEQUENCE s")
        .unwrap();
    one.query("CREATE DATABASE shop").unwrap();
    let two = within(&node, "shop");
    assert_eq!(two.state("SELECT * FROM t"), "42P01");
    two.query("CREATE SCHEMA app; CREATE TABLE t (x text); CREATE SEQUENCE s START 7").unwrap();
    two.query("INSERT INTO t VALUES ('two')").unwrap();
    assert_eq!(one.lines("SELECT * FROM t"), ["1 one"]);
    assert_eq!(two.lines("SELECT * FROM t"), ["two"]);
    assert_eq!(
        (one.lines("SELECT nextval('s')"), two.lines("SELECT nextval('s')")),
        (vec!["1".into()], vec!["7".into()])
    );
    assert_eq!(one.lines("SELECT count(*) FROM pg_namespace WHERE nspname = 'app'"), ["0"]);
    let catalogs = "SELECT DISTINCT table_catalog FROM information_schema.tables \
                    UNION SELECT catalog_name FROM information_schema.schemata \
                    UNION SELECT catalog_name FROM information_schema.information_schema_catalog_name";
    assert_eq!(two.lines(catalogs), ["shop"]);
    // No two objects have one id, so nothing of the engine is shared.
    let ids = "SELECT oid FROM pg_class WHERE oid >= 16384 ORDER BY 1";
    let (ones, twos) = (one.lines(ids), two.lines(ids));
    assert!(!ones.is_empty() && ones.iter().all(|id| !twos.contains(id)), "{ones:?} {twos:?}");
    // A change here keeps plans there.
    let statement = two.runtime.block_on(two.client.prepare("SELECT x FROM t")).unwrap();
    one.query("ALTER TABLE t ADD c int; DROP TABLE t; CREATE TABLE t (other int)").unwrap();
    assert_eq!(two.runtime.block_on(two.client.query(&statement, &[])).unwrap().len(), 1);
    // Roles are everybody's.
    one.query("CREATE ROLE ann LOGIN; COMMENT ON ROLE ann IS 'she'; COMMENT ON DATABASE shop IS 'it'").unwrap();
    assert_eq!(two.lines("SELECT shobj_description('ann'::regrole, 'pg_authid')"), ["she"]);
    let select = "SELECT description FROM pg_shdescription WHERE classoid = 'pg_database'::regclass";
    assert_eq!(two.lines(select), ["it"]);
    assert_eq!(one.lines("SELECT count(*) FROM pg_description WHERE description IN ('she', 'it')"), ["0"]);
}

#[test]
fn definitions_of_two_databases_do_not_wait_for_one_another() {
    let node = SqlNode::in_memory();
    let (one, two) = (node.connect(), within(&node, "postgres"));
    one.query("BEGIN; CREATE TABLE t (a int)").unwrap();
    two.query("SET lock_timeout = '5s'; CREATE TABLE t (b int); DROP TABLE t; CREATE TABLE u (c int)").unwrap();
    one.query("COMMIT").unwrap();
    assert_eq!(one.lines("SELECT count(*) FROM t"), ["0"]);
    // What they share is changed by one at a time, and all see it.
    one.query("BEGIN; CREATE ROLE ann").unwrap();
    two.query("SET lock_timeout = '50ms'").unwrap();
    assert_eq!(two.state("CREATE TABLE v (d ann)"), "55P03");
    one.query("ROLLBACK").unwrap();
    two.query("CREATE TABLE v (d int)").unwrap();
}

#[test]
fn create_reports_what_is_wrong() {
    let node = SqlNode::in_memory();
    let sql = node.connect();
    sql.query("CREATE ROLE plain LOGIN; CREATE ROLE maker LOGIN CREATEDB").unwrap();
    for (options, expected) in [
        ("", ""),
        ("WITH OWNER = maker ENCODING 'UTF8' TEMPLATE template0 LC_COLLATE 'C' LC_CTYPE = 'C.UTF-8'", ""),
        ("TEMPLATE = DEFAULT CONNECTION LIMIT 3 ALLOW_CONNECTIONS false IS_TEMPLATE on TABLESPACE pg_default", ""),
        ("ENCODING = 6 LOCALE 'C' LOCALE_PROVIDER libc STRATEGY file_copy", ""),
        (
            "ENCODING 'LATIN1'",
            "22023 new encoding (LATIN1) is incompatible with the encoding of the template database (UTF8) ",
        ),
        ("ENCODING 'LATIN1' TEMPLATE template0", "0A000 a database in the encoding LATIN1 is not supported "),
        ("ENCODING 'klingon'", "42704 klingon is not a valid encoding name "),
        ("LC_COLLATE 'de_DE'", "42809 invalid locale name: \"de_DE\" "),
        ("LOCALE_PROVIDER icu", "0A000 the locale provider icu is not supported "),
        ("LOCALE_PROVIDER x", "42P17 unrecognized locale provider: x "),
        ("ICU_LOCALE 'de'", "42P17 ICU locale cannot be specified unless locale provider is ICU "),
        ("STRATEGY x", "22023 invalid create database strategy \"x\" "),
        ("TABLESPACE fast", "42704 tablespace \"fast\" does not exist "),
        ("TEMPLATE nothing", "3D000 template database \"nothing\" does not exist "),
        ("OWNER nobody", "42704 role \"nobody\" does not exist "),
        ("CONNECTION LIMIT -2", "22023 invalid connection limit: -2 "),
        ("SPEED 3", "42601 option \"speed\" not recognized "),
        ("OWNER maker OWNER maker", "42601 conflicting or redundant options "),
        ("IS_TEMPLATE maybe", "42601 is_template requires a Boolean value "),
    ] {
        let statement = format!("CREATE DATABASE d {options}");
        match expected {
            "" => {
                sql.query(&statement).unwrap_or_else(|error| panic!("{statement}: {}", shown(&error)));
                sql.query("ALTER DATABASE d IS_TEMPLATE false").unwrap();
                sql.query("DROP DATABASE d").unwrap();
            }
            expected => assert_eq!(fails(&sql, &statement), expected, "{statement}"),
        }
    }
    assert_eq!(fails(&sql, "CREATE DATABASE postgres"), "42P04 database \"postgres\" already exists ");
    let plain = node.connect_as("plain");
    assert_eq!(fails(&plain, "CREATE DATABASE d"), "42501 permission denied to create database ");
    let maker = node.connect_as("maker");
    assert_eq!(fails(&maker, "CREATE DATABASE d OWNER plain"), "42501 must be able to SET ROLE \"plain\" ");
    assert_eq!(
        fails(&maker, "CREATE DATABASE d TEMPLATE postgres"),
        "42501 permission denied to copy database \"postgres\" "
    );
    for block in [
        "BEGIN; CREATE DATABASE d",
        "SELECT 1; CREATE DATABASE d",
        "CREATE DATABASE d; SELECT 1",
        "DROP DATABASE d; SELECT 1",
    ] {
        assert_eq!(sql.state(block), "25001", "{block}");
        sql.query("ROLLBACK").unwrap();
    }
    assert_eq!(sql.lines("SELECT count(*) FROM pg_database"), ["4"]);
}

#[test]
fn alter_and_drop_report_what_is_wrong() {
    let node = SqlNode::in_memory();
    let sql = node.connect();
    sql.query("CREATE ROLE plain LOGIN; CREATE ROLE maker LOGIN CREATEDB").unwrap();
    sql.query("CREATE DATABASE d OWNER maker").unwrap();
    let (plain, maker) = (node.connect_as("plain"), node.connect_as("maker"));
    for (who, statement, expected) in [
        (&plain, "DROP DATABASE d", "42501 must be owner of database d "),
        (&plain, "ALTER DATABASE d RENAME TO e", "42501 must be owner of database d "),
        (&plain, "ALTER DATABASE d CONNECTION LIMIT 1", "42501 must be owner of database d "),
        (&plain, "ALTER DATABASE d SET work_mem = '1MB'", "42501 must be owner of database d "),
        (&plain, "COMMENT ON DATABASE d IS 'x'", "42501 must be owner of database d "),
        (&maker, "ALTER DATABASE d OWNER TO plain", "42501 must be able to SET ROLE \"plain\" "),
        (&maker, "ALTER DATABASE d RENAME TO postgres", "42P04 database \"postgres\" already exists "),
        (&sql, "ALTER DATABASE nothing RENAME TO e", "3D000 database \"nothing\" does not exist "),
        (&sql, "ALTER DATABASE nothing SET work_mem = '1MB'", "3D000 database \"nothing\" does not exist "),
        (
            &sql,
            "ALTER ROLE plain IN DATABASE nothing SET work_mem = '1MB'",
            "3D000 database \"nothing\" does not exist ",
        ),
        (&sql, "GRANT CONNECT ON DATABASE nothing TO plain", "3D000 database \"nothing\" does not exist "),
        (&sql, "GRANT SELECT ON DATABASE d TO plain", "0LP01 invalid privilege type SELECT for database "),
        (&sql, "ALTER DATABASE freshet RENAME TO e", "0A000 current database cannot be renamed "),
        (
            &sql,
            "ALTER DATABASE freshet ALLOW_CONNECTIONS false",
            "22023 cannot disallow connections for current database ",
        ),
        (&sql, "DROP DATABASE freshet", "55006 cannot drop the currently open database "),
        (&sql, "DROP DATABASE template1", "42809 cannot drop a template database "),
        (&sql, "DROP DATABASE nothing", "3D000 database \"nothing\" does not exist "),
    ] {
        let refusal = fails(who, statement).to_lowercase();
        assert_eq!(refusal, expected.to_lowercase(), "{statement}");
    }
    sql.query("DROP DATABASE IF EXISTS nothing").unwrap();
    maker.query("ALTER DATABASE d RENAME TO e").unwrap();
    sql.query("ALTER DATABASE e OWNER TO plain").unwrap();
    assert_eq!(sql.lines("SELECT datname, datdba::regrole FROM pg_database WHERE datname IN ('d', 'e')"), ["e plain"]);
    // A role that has something in any database stays.
    let inside = within(&node, "e");
    inside
        .query("CREATE TABLE t (a int); GRANT SELECT ON t TO maker; CREATE TABLE u (); ALTER TABLE u OWNER TO maker")
        .unwrap();
    assert!(fails(&sql, "DROP ROLE maker").ends_with("2 objects in database e"), "{}", fails(&sql, "DROP ROLE maker"));
    assert!(fails(&sql, "DROP ROLE plain").ends_with("owner of database e"));
    drop(inside);
    plain.query("DROP DATABASE e").unwrap();
    sql.query("DROP ROLE plain; DROP ROLE maker").unwrap_or_else(|error| panic!("{}", shown(&error)));
}

#[test]
fn who_may_do_what_in_a_database() {
    let node = SqlNode::in_memory();
    let sql = node.connect();
    sql.query("CREATE ROLE owner LOGIN; CREATE ROLE guest LOGIN").unwrap();
    sql.query("CREATE DATABASE d OWNER owner").unwrap();
    let may = "SELECT has_database_privilege('guest', 'd', 'CONNECT'), has_database_privilege('guest', 'd', 'CREATE'), \
               has_database_privilege('guest', 'd', 'TEMP'), has_database_privilege('owner', 'd', 'CREATE')";
    assert_eq!(sql.lines(may), ["t f t t"]);
    let as_in = |user: &str| Sql::open(&config_of(&node, user, "d"));
    // The owner of the database is the owner of public.
    let owner = as_in("owner").unwrap();
    owner.query("CREATE TABLE t (a int); CREATE SCHEMA s").unwrap();
    let guest = as_in("guest").unwrap();
    assert_eq!(fails(&guest, "CREATE SCHEMA g"), "42501 permission denied for database d ");
    assert_eq!(guest.state("CREATE TABLE g (a int)"), "42501");
    sql.query("GRANT CREATE ON DATABASE d TO guest").unwrap();
    guest.query("CREATE SCHEMA g; CREATE TABLE g.t (a int)").unwrap();
    assert_eq!(
        sql.lines("SELECT datacl FROM pg_database WHERE datname = 'd'"),
        ["{owner=CTc/owner,=Tc/owner,guest=C/owner}"]
    );
    sql.query("REVOKE CONNECT ON DATABASE d FROM PUBLIC").unwrap();
    assert_eq!(
        refused(&node, "guest", "d"),
        "42501 permission denied for database \"d\" User does not have CONNECT privilege."
    );
    drop(as_in("owner").unwrap());
    owner.query("GRANT CONNECT ON DATABASE d TO guest").unwrap();
    drop(as_in("guest").unwrap());
    owner.query("REVOKE ALL ON DATABASE d FROM PUBLIC, guest").unwrap();
    assert_eq!(sql.lines("SELECT datacl FROM pg_database WHERE datname = 'd'"), ["{owner=CTc/owner}"]);
    sql.query("ALTER DATABASE d OWNER TO guest").unwrap();
    assert_eq!(sql.lines(may), ["t t t f"]);
    // It is told what the new owner may do in what belongs to the owner of the database.
    guest.query("CREATE TABLE now_mine (a int)").unwrap();
    assert_eq!(owner.state("CREATE TABLE no_more (a int)"), "42501");
}

#[test]
fn a_database_has_so_many_sessions() {
    let node = SqlNode::in_memory();
    let sql = node.connect();
    sql.query("CREATE ROLE ann LOGIN").unwrap();
    sql.query("CREATE DATABASE d CONNECTION LIMIT 1").unwrap();
    let config = config_of(&node, "ann", "d");
    let first = Sql::open(&config).unwrap();
    assert_eq!(refused(&node, "ann", "d"), "53300 too many connections for database \"d\" ");
    // Superusers are not counted out.
    drop(within(&node, "d"));
    sql.query("ALTER DATABASE d CONNECTION LIMIT 2").unwrap();
    eventually("a second one", || Sql::open(&config).is_ok());
    sql.query("ALTER DATABASE d ALLOW_CONNECTIONS = false").unwrap();
    assert!(refused(&node, "ann", "d").starts_with("55000"));
    assert_eq!(first.lines("SELECT 1"), ["1"]);
}

#[test]
fn sessions_begin_with_the_settings_of_their_database() {
    let node = SqlNode::in_memory();
    let sql = node.connect();
    sql.query("CREATE ROLE ann LOGIN").unwrap();
    sql.query("CREATE DATABASE d").unwrap();
    sql.query(
        "ALTER DATABASE d SET TimeZone = 'Asia/Tokyo'; ALTER ROLE ann IN DATABASE d SET statement_timeout = '7s'",
    )
    .unwrap();
    sql.query("ALTER ROLE ann SET statement_timeout = '9s'; ALTER ROLE ALL SET lock_timeout = '3s'").unwrap();
    let show =
        "SELECT current_setting('TimeZone'), current_setting('statement_timeout'), current_setting('lock_timeout')";
    let ann = |database: &str| Sql::open(&config_of(&node, "ann", database)).unwrap().lines(show);
    assert_eq!(ann("d"), ["Asia/Tokyo 7s 3s"]);
    assert_eq!(ann("postgres"), ["UTC 9s 3s"]);
    let kept = "SELECT coalesce(datname, 'all'), coalesce(rolname, 'all'), setconfig FROM pg_db_role_setting s \
                LEFT JOIN pg_database d ON d.oid = setdatabase LEFT JOIN pg_roles r ON r.oid = setrole ORDER BY 1, 2";
    assert_eq!(
        sql.lines(kept),
        [
            "all all {lock_timeout=3s}",
            "all ann {statement_timeout=9s}",
            "d all {TimeZone=Asia/Tokyo}",
            "d ann {statement_timeout=7s}"
        ]
        .map(|line| line.replace("TimeZone", "timezone"))
    );
    sql.query("DROP DATABASE d").unwrap();
    assert_eq!(sql.lines("SELECT count(*) FROM pg_db_role_setting WHERE setdatabase <> 0"), ["0"]);
}

#[test]
fn a_database_that_is_used_is_not_dropped() {
    let node = SqlNode::in_memory();
    let sql = node.connect();
    sql.query("CREATE DATABASE d").unwrap();
    let inside = within(&node, "d");
    inside.query("CREATE TABLE t (a int); BEGIN; INSERT INTO t VALUES (1)").unwrap();
    let activity = "SELECT count(*) FROM pg_stat_activity WHERE datname = 'd' \
                    AND datid = (SELECT oid FROM pg_database WHERE datname = 'd')";
    assert_eq!(sql.lines(activity), ["1"]);
    assert_eq!(
        sql.lines("SELECT numbackends FROM pg_stat_database WHERE datname IN ('d', 'postgres') ORDER BY datname"),
        ["1", "0"]
    );
    let used = "55006 database \"d\" is being accessed by other users There is 1 other session using the database.";
    assert_eq!(fails(&sql, "DROP DATABASE d"), used);
    assert_eq!(fails(&sql, "ALTER DATABASE d RENAME TO e"), used);
    assert_eq!(fails(&sql, "CREATE DATABASE e TEMPLATE d"), used.replace("55006 d", "55006 source d"));
    sql.query("DROP DATABASE d WITH (FORCE)").unwrap();
    assert_eq!(sql.lines(NAMES), ["freshet", "postgres", "template0", "template1"]);
    eventually("the session is ended", || inside.client.is_closed());
    // A client that goes just before is waited for.
    sql.query("CREATE DATABASE d").unwrap();
    drop(within(&node, "d"));
    sql.query("DROP DATABASE d").unwrap();
}

#[test]
fn what_was_in_a_dropped_database_gives_its_memory_back() {
    let node = SqlNode::in_memory();
    let sql = node.connect();
    let tables = || {
        let core = node.node.database().core();
        let names = core.catalog.tables_at(core.snapshots.current());
        names.iter().filter(|table| table.name().starts_with("sql.")).count()
    };
    let before = tables();
    sql.query("CREATE DATABASE d").unwrap();
    let inside = within(&node, "d");
    inside.query("CREATE TABLE t (a serial PRIMARY KEY, b text); CREATE TABLE u (a int REFERENCES t)").unwrap();
    inside.query("INSERT INTO t (b) SELECT repeat('x', 1000) FROM generate_series(1, 100)").unwrap();
    assert_eq!(tables(), before + 2);
    drop(inside);
    sql.query("DROP DATABASE d").unwrap();
    assert_eq!(tables(), before);
}

#[test]
fn numbers_that_are_locked_are_those_of_a_database() {
    let node = SqlNode::in_memory();
    let (one, other, two) = (node.connect(), node.connect(), within(&node, "postgres"));
    one.query("SELECT pg_advisory_lock(7)").unwrap();
    assert_eq!(other.lines("SELECT pg_try_advisory_lock(7)"), ["f"]);
    assert_eq!(two.lines("SELECT pg_try_advisory_lock(7)"), ["t"]);
    let locks = "SELECT datname FROM pg_locks l JOIN pg_database d ON d.oid = l.database WHERE locktype = 'advisory' ORDER BY 1";
    assert_eq!(two.lines(locks), ["freshet", "postgres"]);
}

#[test]
fn databases_are_there_after_a_restart() {
    let directory = tempfile::tempdir().unwrap();
    let start = || SqlNode::start(config(Some(directory.path())));
    let node = start();
    let sql = node.connect();
    sql.query("CREATE DATABASE kept").unwrap();
    sql.query("CREATE DATABASE gone").unwrap();
    for name in ["kept", "gone"] {
        within(&node, name).query("CREATE TABLE t (a int PRIMARY KEY); INSERT INTO t VALUES (1), (2)").unwrap();
    }
    node.node.checkpoint(CheckpointKind::Fuzzy).unwrap();
    within(&node, "kept").query("INSERT INTO t VALUES (3); CREATE SEQUENCE s").unwrap();
    sql.query("DROP DATABASE gone").unwrap();
    drop((sql, node));
    let node = start();
    assert_eq!(node.connect().lines(NAMES), ["freshet", "kept", "postgres", "template0", "template1"]);
    let kept = within(&node, "kept");
    assert_eq!(kept.lines("SELECT * FROM t ORDER BY a"), ["1", "2", "3"]);
    kept.query("CREATE TABLE u (a int); SELECT nextval('s')").unwrap();
    assert!(refused(&node, "freshet", "gone").starts_with("3D000"));
}

#[test]
fn a_standby_has_the_databases_of_its_primary() {
    let directories = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let of = |number: usize| NodeConfig { safety: Safety::TwoSafe, ..config(Some(directories[number].path())) };
    let primary = SqlNode::start(of(0));
    primary.connect().query("CREATE DATABASE before").unwrap();
    within(&primary, "before").query("CREATE TABLE t (a int); INSERT INTO t VALUES (1)").unwrap();
    let standby = SqlNode::start(NodeConfig { join: Some(primary.node.address().to_owned()), ..of(1) });
    let sql = primary.connect();
    sql.query("CREATE DATABASE after").unwrap();
    within(&primary, "after").query("CREATE TABLE t (a int); INSERT INTO t VALUES (2)").unwrap();
    let seen =
        || standby.node.wait_visible(primary.node.database().core().snapshots.current(), Some(Instant::now() + SOON));
    seen().unwrap();
    assert_eq!(within(&standby, "before").lines("SELECT a FROM t"), ["1"]);
    let reader = within(&standby, "after");
    assert_eq!(reader.lines("SELECT a FROM t"), ["2"]);
    assert_eq!(reader.state("CREATE DATABASE mine"), "25006");
    assert_eq!(reader.state("DROP DATABASE before"), "25006");
    // A session in a transaction keeps what it sees until that ends; then it is ended, as is one
    // that does nothing.
    let idle = within(&standby, "after");
    reader.query("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT a FROM t").unwrap();
    sql.query("DROP DATABASE after").unwrap();
    seen().unwrap();
    assert!(refused(&standby, "freshet", "after").starts_with("3D000"));
    assert_eq!(reader.lines("SELECT a FROM t"), ["2"]);
    reader.query("COMMIT").unwrap();
    eventually("the reader is ended", || {
        let _ = reader.query("SELECT 1");
        reader.client.is_closed()
    });
    eventually("the idle session is ended", || idle.client.is_closed());
    // What takes over has them, too, and makes more.
    drop((sql, reader, idle, primary));
    standby.node.promote(Consent::Loss).unwrap();
    eventually("it is primary", || within(&standby, "before").query("INSERT INTO t VALUES (3)").is_ok());
    standby.connect().query("CREATE DATABASE more").unwrap();
    within(&standby, "more").query("CREATE TABLE t (a int)").unwrap();
}

#[test]
fn there_are_no_names_in_other_databases() {
    let node = SqlNode::in_memory();
    let sql = node.connect();
    sql.query("CREATE TABLE t (a int PRIMARY KEY); INSERT INTO freshet.public.t VALUES (1)").unwrap();
    within(&node, "postgres").query("CREATE TABLE t (a int)").unwrap();
    assert_eq!(sql.lines("SELECT t.a FROM freshet.public.t ORDER BY freshet.public.t.a"), ["1"]);
    assert_eq!(
        sql.lines("SELECT count(*) FROM freshet.pg_catalog.pg_class WHERE oid = 'freshet.public.t'::regclass"),
        ["1"]
    );
    for statement in [
        "SELECT * FROM postgres.public.t",
        "SELECT * FROM t LEFT JOIN postgres.public.t AS u USING (a)",
        "SELECT * FROM postgres.pg_catalog.pg_class",
        "INSERT INTO postgres.public.t VALUES (1)",
        "UPDATE postgres.public.t SET a = 1",
        "DELETE FROM postgres.public.t",
        "CREATE TABLE postgres.public.u (a int)",
        "CREATE VIEW v AS SELECT * FROM postgres.public.t",
        "CREATE INDEX ON postgres.public.t (a)",
        "ALTER TABLE postgres.public.t ADD b int",
        "DROP TABLE postgres.public.t",
        "TRUNCATE postgres.public.t",
        "BEGIN; LOCK TABLE postgres.public.t",
        "COPY postgres.public.t TO STDOUT",
        "SELECT 'postgres.public.t'::regclass",
        "GRANT SELECT ON postgres.public.t TO PUBLIC",
        "CREATE TABLE w (a int REFERENCES postgres.public.t)",
        "COMMENT ON COLUMN postgres.public.t.a IS 'x'",
    ] {
        let refusal = fails(&sql, statement);
        assert!(
            refusal.starts_with("0A000 cross-database references are not implemented: \"postgres."),
            "{statement}: {refusal}"
        );
        sql.query("ROLLBACK").unwrap();
    }
}

const EXTENSIONS: &str = "SELECT extname, extowner::regrole, extnamespace::regnamespace, obj_description(oid, 'pg_extension') \
                          FROM pg_extension ORDER BY 1";
const PLPGSQL: &str = "plpgsql freshet pg_catalog PL/pgSQL procedural language";

#[test]
fn each_has_extensions_of_its_own_and_those_of_its_template() {
    let node = SqlNode::in_memory();
    let sql = node.connect();
    sql.query("CREATE ROLE ann LOGIN; GRANT CREATE ON DATABASE freshet TO ann").unwrap();
    let ann = Sql::open(&config_of(&node, "ann", "freshet")).unwrap();
    // Some may be made by all who may make schemas.
    ann.query("CREATE EXTENSION pgcrypto SCHEMA public; ALTER EXTENSION pgcrypto UPDATE").unwrap();
    assert_eq!(sql.lines(EXTENSIONS), ["pgcrypto ann public cryptographic functions", PLPGSQL]);
    assert_eq!(sql.state("DROP ROLE ann"), "2BP01");
    assert_eq!(within(&node, "postgres").lines(EXTENSIONS), [PLPGSQL]);
    sql.query("REASSIGN OWNED BY ann TO freshet; REVOKE CREATE ON DATABASE freshet FROM ann; DROP ROLE ann").unwrap();

    let template = within(&node, "template1");
    template.query("CREATE EXTENSION \"uuid-ossp\"; DROP EXTENSION plpgsql").unwrap();
    drop(template);
    sql.query("CREATE DATABASE shop").unwrap();
    let shop = within(&node, "shop");
    let copied = "uuid-ossp freshet public generate universally unique identifiers (UUIDs)";
    assert_eq!(shop.lines(EXTENSIONS), [copied]);
    assert_eq!(fails(&shop, "CREATE EXTENSION \"uuid-ossp\""), "42710 extension \"uuid-ossp\" already exists ");
    shop.query("COMMENT ON EXTENSION \"uuid-ossp\" IS 'ours'; CREATE EXTENSION plpgsql").unwrap();
    assert_eq!(shop.lines(EXTENSIONS), [PLPGSQL, "uuid-ossp freshet public ours"]);
    assert_eq!(within(&node, "template1").lines(EXTENSIONS), [copied]);
    // Ids are unique in all databases, but for those of the beginning.
    let id = "SELECT oid FROM pg_extension WHERE extname = 'uuid-ossp'";
    assert_ne!(shop.lines(id), within(&node, "template1").lines(id));
}

/// Everything that a database can have.
const FILLED: &str = "
CREATE SCHEMA s; COMMENT ON SCHEMA s IS 'a schema';
CREATE TABLE s.parent (id int GENERATED ALWAYS AS IDENTITY PRIMARY KEY, name text UNIQUE, up int REFERENCES s.parent);
INSERT INTO s.parent (name, up) SELECT 'p' || g, nullif(g - 1, 0) FROM generate_series(1, 300) g;
CREATE TABLE child (id bigserial, parent int REFERENCES s.parent ON DELETE CASCADE, gone text, v numeric CHECK (v < 1000));
INSERT INTO child (parent, gone, v) SELECT g, 'x', g % 10 FROM generate_series(1, 200) g;
ALTER TABLE child DROP COLUMN gone; ALTER TABLE child ADD COLUMN late int NOT NULL DEFAULT 7;
CREATE INDEX child_v ON child ((v + 1)) WHERE late > 5; CREATE INDEX ON child (parent DESC) INCLUDE (v);
CREATE UNIQUE INDEX one_null ON child (id) WHERE v IS NULL;
CREATE TABLE later (a int UNIQUE DEFERRABLE INITIALLY DEFERRED, b int[] DEFAULT '{1,2}'); INSERT INTO later VALUES (1), (2);
CREATE TABLE bare (); CREATE TABLE twice (x int); INSERT INTO twice VALUES (1), (1), (NULL);
CREATE VIEW seen AS SELECT p.name, c.v FROM s.parent p JOIN child c ON c.parent = p.id; CREATE VIEW s.again AS SELECT * FROM seen;
CREATE SEQUENCE plain START 50 INCREMENT 5; SELECT nextval('plain'), nextval('plain'); CREATE SEQUENCE fresh START 9;
CREATE TABLE uses (id int DEFAULT nextval('plain'));
COMMENT ON TABLE child IS 'a table'; COMMENT ON COLUMN child.v IS 'a column'; COMMENT ON INDEX child_v IS 'an index';
COMMENT ON CONSTRAINT child_v_check ON child IS 'a constraint';
CREATE ROLE reader LOGIN; GRANT SELECT ON child TO reader; GRANT USAGE ON SCHEMA s TO reader; GRANT SELECT (name) ON s.parent TO reader;
CREATE EXTENSION pgcrypto SCHEMA s";

/// What tells two databases apart that should have the same.
const CONTENT: &[&str] = &[
    "SELECT * FROM s.parent ORDER BY id",
    "SELECT * FROM child ORDER BY id",
    "SELECT * FROM later ORDER BY a",
    "SELECT * FROM twice ORDER BY x",
    "SELECT * FROM s.again ORDER BY name, v LIMIT 50",
    "SELECT * FROM child WHERE v + 1 = 4 AND late > 5 ORDER BY id",
    "SELECT nspname, nspacl FROM pg_namespace ORDER BY 1",
    "SELECT relname, relnamespace::regnamespace, relkind, relacl, relhasindex FROM pg_class WHERE oid >= 16384 ORDER BY 1, 2",
    "SELECT schemaname, tablename, indexname, indexdef FROM pg_indexes WHERE schemaname <> 'pg_catalog' ORDER BY 3",
    "SELECT conname, contype, conrelid::regclass, confrelid::regclass, conindid::regclass, condeferrable, pg_get_constraintdef(oid) \
     FROM pg_constraint ORDER BY conrelid::regclass::text, conname",
    "SELECT attrelid::regclass, attname, atttypid::regtype, attnotnull, attidentity, attacl, pg_get_expr(adbin, adrelid) FROM pg_attribute \
     LEFT JOIN pg_attrdef ON adrelid = attrelid AND adnum = attnum WHERE attrelid >= 16384 AND NOT attisdropped AND attnum > 0 ORDER BY attrelid::regclass::text, attnum",
    "SELECT schemaname, viewname, definition FROM pg_views WHERE schemaname NOT IN ('pg_catalog', 'information_schema') ORDER BY 2",
    "SELECT sequencename, start_value, increment_by, last_value FROM pg_sequences ORDER BY 1",
    "SELECT pg_get_serial_sequence('child', 'id'), pg_get_serial_sequence('s.parent', 'id')",
    "SELECT classoid::regclass, objsubid, description FROM pg_description WHERE objoid >= 16384 ORDER BY 3",
    "SELECT extname, extnamespace::regnamespace FROM pg_extension ORDER BY 1",
];

fn content(sql: &Sql) -> Vec<Vec<String>> {
    CONTENT.iter().map(|query| sql.lines(query)).collect()
}

/// # Panics
/// At the first query whose rows differ.
fn assert_same(sql: &Sql, expected: &[Vec<String>]) {
    for (query, expected) in CONTENT.iter().zip(expected) {
        let rows = sql.lines(query);
        let differs = rows.iter().zip(expected).find(|(one, other)| one != other);
        assert!(rows == *expected, "{query}: {} rows, not {}; {differs:?}", rows.len(), expected.len());
    }
}

#[test]
fn a_database_is_copied_with_all_that_it_has() {
    let directory = tempfile::tempdir().unwrap();
    let node = SqlNode::start(config(Some(directory.path())));
    let sql = node.connect();
    sql.lines("CREATE DATABASE source");
    let source = within(&node, "source");
    source.lines(FILLED);
    let expected = content(&source);
    assert!(expected.iter().all(|rows| !rows.is_empty()));
    drop(source);
    sql.lines("CREATE DATABASE copy TEMPLATE source");
    sql.lines("CREATE DATABASE other WITH TEMPLATE copy STRATEGY file_copy");
    let (source, copy) = (within(&node, "source"), within(&node, "copy"));
    assert_same(&copy, &expected);
    assert_same(&within(&node, "other"), &expected);
    // No object of the one is one of the other.
    let ids = "SELECT oid FROM pg_class WHERE oid >= 16384 UNION ALL SELECT oid FROM pg_constraint WHERE oid >= 16384 ORDER BY 1";
    let ours = copy.lines(ids);
    assert!(source.lines(ids).iter().all(|id| !ours.contains(id)));
    // Constraints, defaults and sequences of the copy are its own.
    assert_eq!(copy.lines("INSERT INTO uses DEFAULT VALUES RETURNING id"), ["60"]);
    assert_eq!(copy.lines("SELECT nextval('fresh')"), ["9"]);
    assert_eq!(copy.state("INSERT INTO child (parent) VALUES (9999)"), "23503");
    assert_eq!(copy.state("INSERT INTO child (v) VALUES (5000)"), "23514");
    assert_eq!(copy.state("INSERT INTO s.parent (name) VALUES ('p1')"), "23505");
    assert_eq!(copy.state("BEGIN; INSERT INTO later VALUES (1); COMMIT"), "23505");
    copy.lines("DELETE FROM s.parent WHERE id >= 2");
    assert_eq!(copy.lines("SELECT count(*) FROM child"), ["1"]);
    copy.lines("DROP VIEW s.again, seen; DROP SCHEMA s CASCADE; DROP TABLE child, later");
    assert_same(&source, &expected);
    drop((source, copy));
    sql.lines("DROP DATABASE source");
    assert_same(&within(&node, "other"), &expected);
    drop((sql, node));
    let node = SqlNode::start(config(Some(directory.path())));
    assert_same(&within(&node, "other"), &expected);
    assert_eq!(within(&node, "copy").lines("SELECT count(*) FROM twice"), ["3"]);
    // One that fails leaves nothing.
    let sql = node.connect();
    let tables = || node.node.status().tables;
    let before = tables();
    sql.lines("SET statement_timeout = '1ms'");
    for _ in 0..5 {
        let ended = sql.outcome("CREATE DATABASE third TEMPLATE other");
        assert!(["57014", "00000"].contains(&ended.as_str()), "{ended}");
        if ended == "00000" {
            sql.lines("SET statement_timeout = 0");
            sql.lines("DROP DATABASE third");
            sql.lines("SET statement_timeout = '1ms'");
        }
    }
    crate::common::eventually("nothing is left", || tables() == before);
}
