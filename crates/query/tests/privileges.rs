//! What roles may do, through a session: what a statement reads needs SELECT, names need USAGE of
//! their schemas, views run in the name of their owners, and roles come and go with transactions.

use crate::common::{Sql, SqlNode, shown};

/// A server, and a session of the role that owns it after it has run `setup`.
fn server(setup: &str) -> (SqlNode, Sql) {
    let node = SqlNode::in_memory();
    let owner = node.connect();
    owner.query(setup).unwrap_or_else(|error| panic!("{}", shown(&error)));
    (node, owner)
}

/// A session of a role whose password is `pw`.
fn login(node: &SqlNode, role: &str) -> Sql {
    Sql::connect_with(node.address(), role, Some("pw"))
}

#[track_caller]
fn denied(session: &Sql, sql: &str, message: &str) {
    let Err(error) = session.query(sql) else { panic!("{sql} has succeeded") };
    let report = error.as_db_error().unwrap_or_else(|| panic!("{sql}: {error}"));
    assert_eq!((report.code().code(), report.message()), ("42501", message), "{sql}");
}

#[test]
fn what_a_change_reads_needs_select() {
    let (node, owner) = server(
        "CREATE TABLE kept (id int PRIMARY KEY, secret text, open text);
         INSERT INTO kept VALUES (1, 'x', 'a'), (2, 'y', 'b');
         CREATE ROLE low LOGIN PASSWORD 'pw'; GRANT INSERT, UPDATE, DELETE ON kept TO low",
    );
    let low = login(&node, "low");
    for sql in [
        "UPDATE kept SET open = open RETURNING *",
        "UPDATE kept SET open = 'n' RETURNING secret",
        "UPDATE kept SET open = secret",
        "UPDATE kept SET (id, open) = (id, secret)",
        "UPDATE kept SET open = 'n' WHERE id = 1",
        "DELETE FROM kept RETURNING secret",
        "DELETE FROM kept RETURNING *",
        "DELETE FROM kept WHERE id = 1",
        "INSERT INTO kept VALUES (3, 'z', 'c') RETURNING id",
        "INSERT INTO kept VALUES (1, 'z', 'c') ON CONFLICT (id) DO NOTHING",
        "INSERT INTO kept VALUES (1, 'z', 'c') ON CONFLICT (id) DO UPDATE SET open = kept.secret",
        "INSERT INTO kept VALUES (1, 'z', 'c') ON CONFLICT (id) DO UPDATE SET open = excluded.open",
        "UPDATE kept SET open = o.secret FROM kept o",
        "DELETE FROM kept USING kept o WHERE o.id = 1",
    ] {
        denied(&low, sql, "permission denied for table kept");
        denied(&low, &format!("EXPLAIN {sql}"), "permission denied for table kept");
    }
    for sql in [
        "INSERT INTO kept VALUES (3, 'z', 'c')",
        "INSERT INTO kept VALUES (3, 'z', 'c') ON CONFLICT DO NOTHING",
        "UPDATE kept SET open = 'n'",
        "UPDATE kept SET open = DEFAULT RETURNING 1",
        "UPDATE kept SET open = (SELECT 'm')",
        "DELETE FROM kept",
    ] {
        low.lines(sql);
    }
    assert_eq!(owner.lines("SELECT count(*) FROM kept"), ["0"]);
}

#[test]
fn errors_show_what_may_be_read() {
    let (node, owner) = server(
        "CREATE TABLE kept (id int PRIMARY KEY, secret int, open int NOT NULL, UNIQUE (open, secret));
         INSERT INTO kept VALUES (1, 42, 1), (2, 42, 2);
         CREATE TABLE child (id int PRIMARY KEY REFERENCES kept); INSERT INTO child VALUES (1);
         CREATE ROLE low LOGIN PASSWORD 'pw'; GRANT INSERT, UPDATE, DELETE ON kept TO low",
    );
    let low = login(&node, "low");
    let detail = |session: &Sql, sql: &str| {
        let error = session.query(sql).err().unwrap_or_else(|| panic!("{sql} has succeeded"));
        error.as_db_error().unwrap().detail().map(str::to_owned)
    };
    for (sql, visible, all) in [
        (
            "UPDATE kept SET open = NULL",
            Some("Failing row contains (open) = (null)."),
            "Failing row contains (1, 42, null).",
        ),
        ("UPDATE kept SET open = 1", None, "Key (open, secret)=(1, 42) already exists."),
        ("INSERT INTO kept VALUES (1, 1, 1)", None, "Key (id)=(1) already exists."),
        (
            "DELETE FROM kept",
            Some("Key is still referenced from table \"child\"."),
            "Key (id)=(1) is still referenced from table \"child\".",
        ),
    ] {
        assert_eq!(detail(&low, sql).as_deref(), visible, "{sql}");
        assert_eq!(detail(&owner, sql).as_deref(), Some(all), "{sql}");
    }
}

#[test]
fn names_need_usage_of_their_schemas() {
    let (node, owner) = server(
        "CREATE SCHEMA hid; CREATE TABLE hid.t (id int PRIMARY KEY, n serial); CREATE TABLE t (id int PRIMARY KEY);
         INSERT INTO hid.t VALUES (7); INSERT INTO t VALUES (1);
         CREATE VIEW seen AS SELECT id FROM hid.t;
         CREATE ROLE low LOGIN PASSWORD 'pw';
         GRANT ALL ON hid.t, t, seen TO low; GRANT ALL ON SEQUENCE hid.t_n_seq TO low;
         GRANT CREATE ON SCHEMA public TO low",
    );
    let low = login(&node, "low");
    for sql in [
        "SELECT * FROM hid.t",
        "SELECT count(*) FROM hid.t a JOIN t b ON a.id <> b.id GROUP BY b.id",
        "INSERT INTO hid.t VALUES (8)",
        "UPDATE hid.t SET id = 9",
        "DELETE FROM hid.t",
        "TRUNCATE hid.t",
        "COPY hid.t TO STDOUT",
        "SELECT 'hid.t'::regclass",
        "SELECT nextval('hid.t_n_seq')",
        "CREATE TABLE hid.u (id int)",
        "CREATE TABLE u (id int REFERENCES hid.t)",
        "CREATE VIEW v AS SELECT * FROM hid.t",
        "DROP TABLE hid.t",
        "ALTER TABLE hid.t ADD x int",
        "COMMENT ON TABLE hid.t IS 'x'",
        "GRANT SELECT ON hid.t TO low",
    ] {
        denied(&low, sql, "permission denied for schema hid");
    }
    low.lines("BEGIN");
    denied(&low, "LOCK TABLE hid.t", "permission denied for schema hid");
    low.lines("ROLLBACK");
    // A view names what it reads itself.
    assert_eq!(low.lines("SELECT * FROM seen"), ["7"]);
    // What cannot be used is passed over.
    assert_eq!(low.lines("SET search_path = hid, public; SELECT * FROM t"), ["1"]);
    assert_eq!(low.lines("SELECT current_schema(), current_schemas(false)"), ["public {public}"]);
    low.lines("CREATE TABLE made (id int)");
    assert_eq!(owner.lines("SELECT schemaname FROM pg_tables WHERE tablename = 'made'"), ["public"]);
    owner.lines("GRANT USAGE ON SCHEMA hid TO low");
    assert_eq!(low.lines("SELECT id FROM t"), ["7"]);
    denied(&low, "CREATE TABLE hid.u (id int)", "permission denied for schema hid");
    denied(&low, "CREATE TABLE u (id int)", "permission denied for schema hid");
    owner.lines("GRANT CREATE ON SCHEMA hid TO low");
    low.lines("CREATE TABLE u (id int)");
}

#[test]
fn a_role_is_part_of_the_session_and_of_its_transaction() {
    let (node, owner) =
        server("CREATE ROLE low LOGIN PASSWORD 'pw'; CREATE ROLE other; CREATE ROLE high; GRANT high TO low");
    let low = login(&node, "low");
    let who = |session: &Sql| session.lines("SELECT session_user, current_user").remove(0);
    let check = |sql: &str, expected: &str| {
        low.lines(sql);
        assert_eq!(who(&low), expected, "{sql}");
    };
    check("SET ROLE high", "low high");
    assert_eq!(low.lines("SHOW role"), ["high"]);
    check("RESET ROLE", "low low");
    assert_eq!(low.lines("SHOW role"), ["none"]);
    check("SET ROLE high", "low high");
    check("DISCARD ALL", "low low");
    check("BEGIN; SET ROLE high; ROLLBACK", "low low");
    check("BEGIN; SET ROLE high; COMMIT", "low high");
    check("BEGIN; SET ROLE NONE; ROLLBACK", "low high");
    check("SET ROLE NONE; BEGIN; SET LOCAL ROLE high; COMMIT", "low low");
    check("BEGIN; SAVEPOINT s; SET ROLE high; ROLLBACK TO s; COMMIT", "low low");
    check("BEGIN; SAVEPOINT s; SET ROLE high; RELEASE s; COMMIT", "low high");
    check("SET role = 'none'", "low low");
    check("SELECT set_config('role', 'high', false)", "low high");
    // Not a setting of RESET ALL, as in PostgreSQL.
    check("RESET ALL", "low high");
    check("SET SESSION AUTHORIZATION DEFAULT", "low low");
    denied(&low, "SET ROLE other", "permission denied to set role \"other\"");
    denied(&low, "SET SESSION AUTHORIZATION other", "permission denied to set session authorization");
    assert_eq!(low.state("SET ROLE nobody"), "22023");
    // It takes no snapshot: the level can still be said.
    check("BEGIN; SET LOCAL ROLE high; SET TRANSACTION ISOLATION LEVEL SERIALIZABLE", "low high");
    check("COMMIT", "low low");
    // What another session revokes counts at once.
    owner.lines("CREATE ROLE fleeting; GRANT fleeting TO low");
    check("SET ROLE fleeting", "low fleeting");
    check("RESET ROLE", "low low");
    owner.lines("REVOKE fleeting FROM low");
    denied(&low, "SET ROLE fleeting", "permission denied to set role \"fleeting\"");
    // After a failure in between, the role is what it was.
    assert!(low.query("BEGIN; SET ROLE high; SELECT 1/0").is_err());
    check("ROLLBACK", "low low");

    // A role that the client begins with is what RESET ROLE goes back to; it may not begin as
    // another user.
    let begin = |options: &str| {
        let mut config = tokio_postgres::Config::new();
        config.host(node.address().ip().to_string()).port(node.address().port()).user("low").dbname("freshet");
        Sql::open(config.password("pw").options(options))
    };
    let begun = begin("-c role=high").unwrap();
    assert_eq!(who(&begun), "low high");
    begun.lines("SET ROLE NONE; RESET ROLE");
    assert_eq!(who(&begun), "low high");
    for options in ["-c role=other", "-c session_authorization=high"] {
        let refused = begin(options).err().unwrap();
        assert_eq!(refused.code().map(|state| state.code()), Some("42501"), "{options}");
    }

    let super_session = node.connect();
    let become_ = |sql: &str, expected: &str| {
        super_session.lines(sql);
        assert_eq!(who(&super_session), expected, "{sql}");
    };
    become_("SET SESSION AUTHORIZATION low", "low low");
    assert_eq!(super_session.lines("SHOW is_superuser"), ["off"]);
    denied(&super_session, "SET ROLE other", "permission denied to set role \"other\"");
    become_("SET ROLE high", "low high");
    become_("RESET SESSION AUTHORIZATION", "freshet freshet");
    assert_eq!(super_session.lines("SHOW is_superuser"), ["on"]);
    become_("BEGIN; SET LOCAL SESSION AUTHORIZATION low; SET LOCAL ROLE high", "low high");
    become_("COMMIT", "freshet freshet");
    become_("SET SESSION AUTHORIZATION low", "low low");
    become_("DISCARD ALL", "freshet freshet");
}

#[test]
fn settings_are_rolled_back_to_savepoints() {
    let (_node, owner) = server("SELECT 1");
    let shown = || owner.lines("SHOW application_name").remove(0);
    owner.lines("SET application_name = 'a'; BEGIN; SET application_name = 'b'; SAVEPOINT s");
    owner.lines("SET application_name = 'c'; SET LOCAL application_name = 'd'");
    assert_eq!(shown(), "d");
    owner.lines("ROLLBACK TO s");
    assert_eq!(shown(), "b");
    owner.lines("SAVEPOINT inner_; SET LOCAL application_name = 'e'; RELEASE inner_");
    assert_eq!(shown(), "e");
    owner.lines("COMMIT");
    assert_eq!(shown(), "b");
    owner.lines("BEGIN; SET LOCAL application_name = 'f'; SAVEPOINT s; SET application_name = 'g'; ROLLBACK TO s");
    assert_eq!(shown(), "f");
    owner.lines("COMMIT");
    assert_eq!(shown(), "b");
}

#[test]
fn views_run_in_the_name_of_their_owners() {
    let (node, owner) = server(
        "CREATE TABLE t (id int PRIMARY KEY, n int); INSERT INTO t VALUES (1, 10), (2, 20);
         CREATE ROLE keeper LOGIN PASSWORD 'pw'; CREATE ROLE low LOGIN PASSWORD 'pw'; GRANT CREATE ON SCHEMA public TO keeper;
         GRANT SELECT ON t TO keeper;
         CREATE VIEW v AS SELECT id FROM t WHERE n > 10; GRANT SELECT ON v TO low",
    );
    let (keeper, low) = (login(&node, "keeper"), login(&node, "low"));
    assert_eq!(low.lines("SELECT * FROM v"), ["2"]);
    assert_eq!(low.lines("SELECT current_user FROM v"), ["low"]);
    denied(&low, "SELECT * FROM t", "permission denied for table t");
    denied(&keeper, "SELECT * FROM v", "permission denied for view v");
    // A view over a view: each owner answers for what the own view reads.
    keeper.lines("CREATE VIEW kept AS SELECT id FROM v; GRANT SELECT ON kept TO low");
    denied(&low, "SELECT * FROM kept", "permission denied for view v");
    owner.lines("GRANT SELECT ON v TO keeper");
    assert_eq!(low.lines("SELECT * FROM kept"), ["2"]);
    keeper.lines("CREATE VIEW own AS SELECT n FROM t; GRANT SELECT ON own TO low");
    assert_eq!(low.lines("SELECT n FROM own ORDER BY n"), ["10", "20"]);
    owner.lines("REVOKE SELECT ON t FROM keeper");
    denied(&low, "SELECT n FROM own", "permission denied for table t");
    owner.lines("REASSIGN OWNED BY keeper TO freshet");
    assert_eq!(low.lines("SELECT sum(n) FROM own"), ["30"]);
    owner.lines("ALTER VIEW own OWNER TO keeper");
    denied(&low, "SELECT n FROM own", "permission denied for table t");

    // The privileges of the role that asks.
    owner.lines("ALTER VIEW own OWNER TO freshet; ALTER VIEW own SET (security_invoker = true)");
    denied(&low, "SELECT n FROM own", "permission denied for table t");
    assert_eq!(owner.lines("SELECT reloptions FROM pg_class WHERE relname = 'own'"), ["{security_invoker=true}"]);
    owner.lines("CREATE VIEW outside AS SELECT n FROM own; GRANT SELECT ON outside TO low");
    assert_eq!(low.lines("SELECT max(n) FROM outside"), ["20"]);
    owner.lines("ALTER VIEW own RESET (security_invoker)");
    assert_eq!(low.lines("SELECT min(n) FROM own"), ["10"]);
    owner.lines("CREATE OR REPLACE VIEW own WITH (security_invoker) AS SELECT n FROM t");
    denied(&low, "SELECT n FROM own", "permission denied for table t");
    owner.lines("CREATE OR REPLACE VIEW own AS SELECT n FROM t");
    assert_eq!(owner.lines("SELECT reloptions FROM pg_class WHERE relname = 'own'"), ["NULL"]);
    assert_eq!(owner.state("ALTER VIEW own SET (nonsense = 1)"), "22023");
    assert_eq!(owner.state("ALTER VIEW own SET (security_invoker = 7)"), "22023");
}

#[test]
fn privileges_on_columns_are_enough_for_these() {
    let (node, owner) = server(
        "CREATE TABLE t (id int PRIMARY KEY, a int, b int, secret int); INSERT INTO t VALUES (1, 2, 3, 4);
         CREATE TABLE o (id int PRIMARY KEY, x int); INSERT INTO o VALUES (1, 1);
         CREATE VIEW v AS SELECT id, secret FROM t;
         CREATE ROLE low LOGIN PASSWORD 'pw'; GRANT CREATE ON SCHEMA public TO low;
         GRANT SELECT (id, a), INSERT (id, a), UPDATE (a), REFERENCES (id) ON t TO low;
         GRANT SELECT (id), UPDATE (id) ON o TO low; GRANT SELECT (id) ON v TO low",
    );
    let low = login(&node, "low");
    for (sql, expected) in [
        ("SELECT id, a FROM t", "1 2"),
        ("SELECT count(*) FROM t", "1"),
        ("SELECT 1 FROM t", "1"),
        ("SELECT t.a FROM t JOIN o USING (id)", "2"),
        ("SELECT id FROM v", "1"),
        ("SELECT count(*) FROM v", "1"),
        ("WITH w AS (SELECT id FROM t) SELECT * FROM w", "1"),
        ("SELECT max(a) FROM t GROUP BY id HAVING min(a) > 0 ORDER BY id", "2"),
        ("SELECT o.id FROM o LEFT JOIN t ON t.id = o.id AND t.a > 0", "1"),
        ("SELECT id FROM t WHERE a = 2 FOR UPDATE", "1"),
    ] {
        assert_eq!(low.lines(sql), [expected], "{sql}");
    }
    for sql in [
        "INSERT INTO t (id, a) VALUES (5, 5) RETURNING id",
        "INSERT INTO t (id) VALUES (5) ON CONFLICT (id) DO UPDATE SET a = excluded.a + t.a",
        "INSERT INTO t VALUES (6, 6)",
        "INSERT INTO t (id, a) SELECT id + 100, a FROM t",
        "UPDATE t SET a = a + 1 WHERE id = 1 RETURNING a",
        "UPDATE t SET a = o.id FROM o WHERE o.id = t.id",
        "CREATE TABLE child (id int REFERENCES t)",
    ] {
        low.query(sql).unwrap_or_else(|error| panic!("{sql}: {}", shown(&error)));
    }
    for sql in [
        "SELECT * FROM t",
        "SELECT t.* FROM t JOIN o ON o.id = t.id",
        "SELECT id FROM t WHERE secret = 4",
        "SELECT id FROM t ORDER BY b",
        "SELECT count(b) FROM t",
        "SELECT count(*) FROM t GROUP BY b",
        "SELECT id FROM t WHERE EXISTS (SELECT FROM o WHERE t.secret = o.id)",
        "SELECT (SELECT secret)  FROM t",
        "SELECT x.id FROM t x NATURAL JOIN t y",
        "SELECT to_jsonb(t) FROM t LEFT JOIN o ON true",
        "SELECT a, sum(b) OVER () FROM t",
        "TABLE t",
        "INSERT INTO t VALUES (6, 6, 6)",
        "INSERT INTO t (id, b) VALUES (6, 6)",
        "INSERT INTO t (id, a) VALUES (6, 6) RETURNING *",
        "INSERT INTO t (id) VALUES (1) ON CONFLICT (id) DO UPDATE SET a = excluded.b",
        "INSERT INTO t (id) VALUES (1) ON CONFLICT (id) DO UPDATE SET b = 1",
        "UPDATE t SET b = 1",
        "UPDATE t SET a = secret",
        "UPDATE t SET a = 1 WHERE b = 3",
        "UPDATE t SET a = 1 FROM o WHERE o.id = t.b",
        "DELETE FROM t",
        "COPY t TO STDOUT",
        "COPY t (id, b) TO STDOUT",
        "CREATE TABLE other (id int REFERENCES t (secret))",
    ] {
        if sql.starts_with("CREATE") {
            owner.lines("CREATE UNIQUE INDEX ON t (secret)");
        }
        denied(&low, sql, "permission denied for table t");
    }
    denied(&low, "SELECT secret FROM v", "permission denied for view v");
    denied(&low, "SELECT x FROM o", "permission denied for table o");
    assert!(low.runtime.block_on(low.client.copy_out("COPY t (id) TO STDOUT")).is_ok());

    for (expression, expected) in [
        ("has_column_privilege('low', 't', 'a', 'SELECT')", "t"),
        ("has_column_privilege('low', 't', 'b', 'SELECT')", "f"),
        ("has_column_privilege('low', 't', 2::int2, 'UPDATE')", "t"),
        ("has_any_column_privilege('low', 't', 'REFERENCES')", "t"),
        ("has_any_column_privilege('low', 'o', 'REFERENCES')", "f"),
        ("has_table_privilege('low', 't', 'SELECT')", "f"),
        ("acldefault('r', 10)", "{freshet=arwdDxt/freshet}"),
        ("acldefault('d', 10)", "{=Tc/freshet,freshet=CTc/freshet}"),
        ("acldefault('c', 10)", "{}"),
    ] {
        assert_eq!(owner.lines(&format!("SELECT {expression}")), [expected], "{expression}");
    }
    assert_eq!(
        owner.lines("SELECT attname, attacl FROM pg_attribute WHERE attrelid = 't'::regclass AND attacl IS NOT NULL"),
        ["id {low=arx/freshet}", "a {low=arw/freshet}"]
    );
    assert_eq!(
        low.lines(
            "SELECT column_name, privilege_type FROM information_schema.column_privileges
             WHERE table_name = 'o' AND grantee = 'low' ORDER BY 1, 2"
        ),
        ["id SELECT", "id UPDATE"]
    );
    // What is revoked from the table is revoked from its columns; a column takes its grants with
    // it.
    owner.lines("REVOKE SELECT ON t FROM low; ALTER TABLE t DROP COLUMN a");
    denied(&low, "SELECT id FROM t", "permission denied for table t");
    assert_eq!(
        owner.lines("SELECT attname, attacl FROM pg_attribute WHERE attrelid = 't'::regclass AND attacl IS NOT NULL"),
        ["id {low=ax/freshet}"]
    );
    assert_eq!(owner.state("GRANT DELETE (id) ON t TO low"), "0LP01");
    assert_eq!(owner.state("GRANT SELECT (nothing) ON t TO low"), "42703");
    // What may be granted on.
    owner.lines("CREATE ROLE other; GRANT SELECT (id) ON t TO low WITH GRANT OPTION");
    low.lines("GRANT SELECT (id) ON t TO other");
    denied(&low, "GRANT SELECT ON t TO other", "permission denied for table t");
    assert_eq!(owner.state("REVOKE SELECT (id) ON t FROM low"), "2BP01");
    owner.lines("REVOKE SELECT (id) ON t FROM low CASCADE");
    assert_eq!(owner.lines("SELECT has_any_column_privilege('other', 't', 'SELECT')"), ["f"]);
}

#[test]
fn roles_that_make_roles_rule_over_these_only() {
    let (node, owner) = server(
        "CREATE ROLE mgr LOGIN PASSWORD 'pw' CREATEROLE; CREATE ROLE low LOGIN PASSWORD 'pw'; CREATE ROLE dba LOGIN PASSWORD 'pw'; GRANT freshet TO dba;
         CREATE ROLE makes LOGIN PASSWORD 'pw' CREATEROLE CREATEDB",
    );
    let mgr = login(&node, "mgr");
    for (sql, message) in [
        ("ALTER ROLE dba PASSWORD 'x'", "permission denied to alter role"),
        ("ALTER ROLE low PASSWORD 'x'", "permission denied to alter role"),
        ("ALTER ROLE low RENAME TO lower", "permission denied to rename role"),
        ("ALTER ROLE freshet PASSWORD 'x'", "permission denied to alter role"),
        ("DROP ROLE low", "permission denied to drop role"),
        ("GRANT low TO mgr", "permission denied to grant role \"low\""),
        ("GRANT freshet TO mgr", "permission denied to grant role \"freshet\""),
        ("CREATE ROLE su SUPERUSER", "permission denied to create role"),
        ("CREATE ROLE db CREATEDB", "permission denied to create role"),
        ("CREATE ROLE re REPLICATION", "permission denied to create role"),
        ("CREATE ROLE by BYPASSRLS", "permission denied to create role"),
        ("CREATE ROLE x IN ROLE low", "permission denied to grant role \"low\""),
    ] {
        denied(&mgr, sql, message);
    }
    mgr.lines("CREATE ROLE own LOGIN PASSWORD 'pw'");
    assert_eq!(
        owner.lines(
            "SELECT roleid::regrole, member::regrole, grantor::regrole, admin_option, inherit_option, set_option
             FROM pg_auth_members WHERE roleid = 'own'::regrole"
        ),
        ["own mgr freshet t f f"]
    );
    // It administers the role, but neither has its privileges nor may become it.
    denied(&mgr, "SET ROLE own", "permission denied to set role \"own\"");
    mgr.lines("ALTER ROLE own PASSWORD 'x'; ALTER ROLE own RENAME TO mine; GRANT mine TO low");
    denied(&mgr, "ALTER ROLE mine CREATEDB", "permission denied to alter role");
    denied(&mgr, "ALTER ROLE mine SUPERUSER", "permission denied to alter role");
    let low = login(&node, "low");
    low.lines("SET ROLE mine; RESET ROLE");
    denied(&low, "GRANT mine TO dba", "permission denied to grant role \"mine\"");
    // A grant of its own makes the other options.
    mgr.lines("GRANT mine TO mgr WITH SET TRUE, INHERIT FALSE; SET ROLE mine; RESET ROLE");
    // Without SET, and without INHERIT.
    owner.lines("CREATE TABLE t (id int); GRANT SELECT ON t TO mine; REVOKE mine FROM low GRANTED BY mgr");
    denied(&low, "SET ROLE mine", "permission denied to set role \"mine\"");
    mgr.lines("GRANT mine TO low WITH SET FALSE");
    denied(&low, "SET ROLE mine", "permission denied to set role \"mine\"");
    low.lines("SELECT * FROM t");
    mgr.lines("GRANT mine TO low WITH INHERIT FALSE, SET TRUE");
    denied(&low, "SELECT * FROM t", "permission denied for table t");
    low.lines("SET ROLE mine; SELECT * FROM t; RESET ROLE");
    mgr.lines("GRANT mine TO low WITH ADMIN OPTION");
    low.lines("GRANT mine TO dba");
    assert_eq!(mgr.state("REVOKE ADMIN OPTION FOR mine FROM low"), "2BP01");
    mgr.lines("REVOKE ADMIN OPTION FOR mine FROM low CASCADE");
    denied(&low, "GRANT mine TO dba", "permission denied to grant role \"mine\"");
    assert_eq!(mgr.lines("SELECT pg_has_role('dba', 'mine', 'MEMBER')"), ["f"]);
    owner.lines("DROP TABLE t");
    mgr.lines("DROP ROLE mine");
    // A role can give what it has.
    let makes = login(&node, "makes");
    makes.lines("CREATE ROLE made CREATEDB CREATEROLE");
    // Every role may change its own password.
    low.lines("ALTER ROLE low PASSWORD 'pw'");
    denied(&low, "ALTER ROLE low CREATEROLE", "permission denied to alter role");
}

/// As in PostgreSQL, a transaction that keeps its snapshot does not keep its rights.
#[test]
fn what_is_revoked_is_revoked_for_open_transactions() {
    let setup = "CREATE TABLE kept (id int PRIMARY KEY, v text); INSERT INTO kept VALUES (1, 'x');
         CREATE TABLE other (id int PRIMARY KEY); CREATE VIEW shown AS SELECT v FROM kept;
         CREATE ROLE readers; CREATE ROLE low LOGIN PASSWORD 'pw' IN ROLE readers";
    let rights =
        "GRANT SELECT, INSERT, UPDATE ON kept TO low; GRANT SELECT ON other TO readers; GRANT SELECT ON shown TO low";
    let (node, owner) = server(setup);
    for level in ["REPEATABLE READ", "SERIALIZABLE", "REPEATABLE READ READ ONLY", "READ COMMITTED"] {
        for (statement, named) in [
            ("SELECT * FROM kept", "table kept"),
            ("SELECT v, count(*) FROM kept GROUP BY v HAVING count(*) > 0 ORDER BY 1", "table kept"),
            ("SELECT v FROM shown", "view shown"),
            ("SELECT * FROM other", "table other"),
            ("EXECUTE prepared", "table kept"),
            ("DECLARE c CURSOR FOR SELECT * FROM kept", "table kept"),
            ("COPY kept TO STDOUT", "table kept"),
            ("WITH w AS (SELECT id FROM kept) SELECT * FROM w", "table kept"),
            ("INSERT INTO kept VALUES (2, 'y')", "table kept"),
            ("UPDATE kept SET v = 'z'", "table kept"),
        ] {
            if level.ends_with("ONLY") && (statement.starts_with("INSERT") || statement.starts_with("UPDATE")) {
                continue;
            }
            owner.lines(&format!("{rights}; GRANT readers TO low"));
            let low = login(&node, "low");
            low.lines("PREPARE prepared AS SELECT v FROM kept; EXECUTE prepared");
            low.lines(&format!("BEGIN ISOLATION LEVEL {level}; SELECT count(*) FROM kept, other, shown"));
            owner.lines("REVOKE ALL ON kept, shown FROM low; REVOKE readers FROM low");
            denied(&low, statement, &format!("permission denied for {named}"));
            low.lines("ROLLBACK");
        }
    }
    // What is granted is no reason to see what came later, and what was made does no harm.
    let low = login(&node, "low");
    owner.lines(&format!("{rights}; GRANT CREATE ON SCHEMA public TO low"));
    low.lines("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM kept");
    owner.lines("CREATE TABLE later (id int); GRANT SELECT ON later TO low; ALTER TABLE other ADD COLUMN n int");
    assert_eq!(low.lines("SELECT v FROM kept"), ["x"]);
    assert_eq!(low.state("SELECT * FROM later"), "42P01");
    low.lines(
        "ROLLBACK; BEGIN ISOLATION LEVEL REPEATABLE READ; CREATE TABLE mine (id int); INSERT INTO mine VALUES (7)",
    );
    assert_eq!(low.lines("SELECT id FROM mine; COMMIT; SELECT id FROM mine"), ["7", "7"]);
}

#[test]
fn a_role_may_end_its_own_sessions_and_those_of_roles_that_it_is_a_member_of() {
    let (node, owner) = server(
        "CREATE ROLE low LOGIN PASSWORD 'pw'; CREATE ROLE other LOGIN PASSWORD 'pw';
         CREATE ROLE leader LOGIN PASSWORD 'pw'; GRANT low TO leader",
    );
    let pid = |session: &Sql| session.lines("SELECT pg_backend_pid()").remove(0);
    let (one, two, other, leader) =
        (login(&node, "low"), login(&node, "low"), login(&node, "other"), login(&node, "leader"));
    assert_eq!(one.lines(&format!("SELECT pg_cancel_backend({})", pid(&two))), ["t"]);
    assert_eq!(one.lines(&format!("SELECT pg_terminate_backend({})", pid(&two))), ["t"]);
    let message = "must be a member of the role whose process is being terminated or member of pg_signal_backend";
    denied(&one, &format!("SELECT pg_terminate_backend({})", pid(&other)), message);
    denied(&one, &format!("SELECT pg_cancel_backend({})", pid(&leader)), message);
    let message = "must be a superuser to terminate superuser process";
    denied(&one, &format!("SELECT pg_terminate_backend({})", pid(&owner)), message);
    assert_eq!(leader.lines(&format!("SELECT pg_terminate_backend({})", pid(&one))), ["t"]);
    assert_eq!(owner.lines(&format!("SELECT pg_terminate_backend({})", pid(&other))), ["t"]);
}

/// A hash that a dump of another database holds is not to become a password.
#[test]
fn a_hash_of_another_kind_is_no_password() {
    let (node, owner) = server("CREATE ROLE low LOGIN PASSWORD 'pw'");
    let hash = "md50123456789abcdef0123456789ABCDEF";
    owner.lines(&format!("CREATE ROLE old LOGIN PASSWORD '{hash}'; ALTER ROLE low PASSWORD '{hash}'"));
    assert_eq!(
        owner.lines("SELECT count(*) FROM pg_authid WHERE rolname IN ('low', 'old') AND rolpassword IS NULL"),
        ["2"]
    );
    // What only looks like one is a password like any other.
    owner.lines("ALTER ROLE old PASSWORD 'md5 is not my password'");
    assert_eq!(owner.lines("SELECT rolpassword LIKE 'SCRAM-SHA-256$%' FROM pg_authid WHERE rolname = 'old'"), ["t"]);
    drop(node);
}

#[test]
fn no_role_takes_all_places_or_locks() {
    let (node, owner) = server(
        "CREATE ROLE low LOGIN PASSWORD 'pw'; CREATE ROLE other LOGIN PASSWORD 'pw';
         CREATE ROLE few LOGIN PASSWORD 'pw' CONNECTION LIMIT 2",
    );
    let enter = |role: &str| Sql::try_connect(node.address(), role, Some("pw"));
    let all: Vec<Sql> = (0..34).map(|_| enter("low").unwrap()).collect();
    let refused = enter("low").err().unwrap();
    assert_eq!(shown(&refused).trim(), "53300 too many connections for role \"low\"");
    // Fewer than there would be room for, so that others get in.
    drop((enter("other").unwrap(), owner));
    drop(all);
    let _few = [enter("few").unwrap(), enter("few").unwrap()];
    assert!(enter("few").is_err());
}
