//! Roles and privileges.

use freshet_query::schema::Oid;

use crate::harness::{Base, Session};

fn role(session: &mut Session<'_>, name: &str) -> Oid {
    session.schema().role(name).unwrap_or_else(|| panic!("no role {name}")).oid
}

#[test]
fn roles_are_made_changed_and_dropped() {
    let base = Base::new();
    let worker = base.worker();
    let mut session = base.session(&worker);
    assert_eq!(session.ok("CREATE ROLE boss CREATEROLE NOLOGIN"), "CREATE ROLE");
    session.ok("CREATE USER joe WITH PASSWORD 'secret' IN ROLE boss");
    let schema = session.schema();
    let joe = schema.role("joe").unwrap();
    let groups: Vec<Oid> = joe.member_of.iter().map(|it| it.role).collect();
    assert!(joe.login && !joe.superuser && groups == [schema.role("boss").unwrap().oid]);
    let verifier: freshet_postgres::Verifier = joe.verifier.as_ref().unwrap().parse().unwrap();
    assert!(verifier.matches("secret") && !verifier.matches("guess"));
    session.ok("ALTER USER joe PASSWORD 'other' NOLOGIN");
    let schema = session.schema();
    let joe = schema.role("joe").unwrap();
    let kept = joe.verifier.clone().unwrap();
    assert!(!joe.login && kept.parse::<freshet_postgres::Verifier>().unwrap().matches("other"));
    // A verifier is taken as it is.
    session.ok(&format!("CREATE ROLE copy PASSWORD '{kept}'"));
    assert_eq!(session.schema().role("copy").unwrap().verifier, Some(kept));
    session.ok("ALTER ROLE joe PASSWORD NULL");
    assert_eq!(session.schema().role("joe").unwrap().verifier, None);
    assert_eq!(session.fails("CREATE ROLE joe"), "42710: role \"joe\" already exists");
    assert_eq!(session.fails("CREATE ROLE pg_x"), "42939: role name \"pg_x\" is reserved");
    session.ok("ALTER ROLE joe RENAME TO jim");
    assert_eq!(session.fails("GRANT jim TO boss"), "0LP01: role \"jim\" is a member of role \"boss\"");
    assert_eq!(session.ok("REVOKE boss FROM jim"), "REVOKE ROLE");
    assert_eq!(session.ok("GRANT jim TO boss"), "GRANT ROLE");
    session.ok("DROP ROLE jim");
    assert!(session.schema().role("boss").unwrap().member_of.is_empty());
    assert_eq!(session.fails("DROP ROLE jim"), "42704: role \"jim\" does not exist");
    session.ok("DROP ROLE IF EXISTS jim");
    assert_eq!(session.fails("DROP ROLE admin"), "55006: current user cannot be dropped");
}

#[test]
fn limits_of_logins_are_kept() {
    let base = Base::new();
    let worker = base.worker();
    let mut session = base.session(&worker);
    session.ok("CREATE ROLE ann LOGIN CONNECTION LIMIT 5 VALID UNTIL '2000-01-02 00:00:00+00'");
    let schema = session.schema();
    let ann = schema.role("ann").unwrap();
    assert_eq!((ann.connection_limit, ann.valid_until), (Some(5), Some(86_400_000_000)));
    session.ok("ALTER ROLE ann CONNECTION LIMIT -1 VALID UNTIL 'infinity'");
    let schema = session.schema();
    let ann = schema.role("ann").unwrap();
    assert_eq!((ann.connection_limit, ann.valid_until), (None, Some(i64::MAX)));
    assert_eq!(session.fails("ALTER ROLE ann CONNECTION LIMIT -2"), "22023: invalid connection limit: -2");
    assert_eq!(
        session.fails("ALTER ROLE ann CONNECTION LIMIT 9999999999"),
        "22023: invalid connection limit: 9999999999"
    );
    assert!(session.fails("ALTER ROLE ann VALID UNTIL 'some day'").starts_with("22007"));
    // A role may change its own password, but not its own limits.
    session.role = role(&mut session, "ann");
    session.ok("ALTER ROLE ann PASSWORD 'x'");
    assert!(session.fails("ALTER ROLE ann CONNECTION LIMIT 7").starts_with("42501"));
    assert!(session.fails("ALTER ROLE ann VALID UNTIL 'infinity'").starts_with("42501"));
}

#[test]
fn settings_of_roles_are_kept() {
    let base = Base::new();
    let worker = base.worker();
    let mut session = base.session(&worker);
    session.ok("CREATE ROLE ann LOGIN");
    session.ok("CREATE ROLE bob LOGIN");
    let kept = |session: &mut Session<'_>| {
        let schema = session.schema();
        let here = schema.database().unwrap().settings.iter().map(|it| (it, " here"));
        let all = schema.common().unwrap().settings.iter().map(|it| (it, "")).chain(here);
        let mut all: Vec<String> = all
            .map(|(it, here)| {
                let role = schema.role_by_oid(it.role).map_or("all", |role| &role.name);
                format!("{role}{here} {}={}", it.name, it.value)
            })
            .collect();
        all.sort_unstable();
        all
    };
    assert_eq!(session.ok("ALTER ROLE ann SET search_path TO a, \"B\", 'c'"), "ALTER ROLE");
    session.ok("ALTER USER ann IN DATABASE admin SET statement_timeout = '5s'");
    session.ok("ALTER ROLE ALL SET TIME ZONE 'Europe/Berlin'");
    assert_eq!(session.ok("ALTER DATABASE admin SET freshet.max_staleness TO 100"), "ALTER DATABASE");
    session.ok("ALTER ROLE bob SET work_mem TO '64MB'");
    assert_eq!(
        kept(&mut session),
        [
            "all here freshet.max_staleness=100",
            "all timezone=Europe/Berlin",
            "ann here statement_timeout=5s",
            "ann search_path=a, \"B\", c",
            "bob work_mem=64MB"
        ]
    );
    session.ok("ALTER ROLE ann SET search_path = public");
    session.ok("ALTER ROLE bob SET work_mem TO DEFAULT");
    session.ok("ALTER ROLE ALL RESET timezone");
    session.ok("ALTER DATABASE admin RESET ALL");
    assert_eq!(kept(&mut session), ["ann here statement_timeout=5s", "ann search_path=public"]);
    for (statement, expected) in [
        ("ALTER ROLE ann SET nonsense = 1", "42704: unrecognized configuration parameter \"nonsense\""),
        ("ALTER ROLE ann SET server_version = '9'", "55P02: parameter \"server_version\" cannot be changed"),
        (
            "ALTER ROLE ann SET statement_timeout = 'x'",
            "22023: invalid value for parameter \"statement_timeout\": \"x\"",
        ),
        ("ALTER ROLE nobody SET work_mem = '1MB'", "42704: role \"nobody\" does not exist"),
        ("ALTER DATABASE admin RENAME TO x", "0A000: current database cannot be renamed"),
    ] {
        assert_eq!(session.fails(statement), expected);
    }
    session.role = role(&mut session, "bob");
    session.ok("ALTER ROLE bob SET lock_timeout = 7");
    for (statement, expected) in [
        ("ALTER ROLE ann SET lock_timeout = 7", "42501: permission denied"),
        ("ALTER ROLE admin SET lock_timeout = 7", "42501: must be superuser to alter superusers"),
        ("ALTER ROLE ALL SET lock_timeout = 7", "42501: must be superuser to alter settings globally"),
        ("ALTER DATABASE admin SET lock_timeout = 7", "42501: must be owner of database admin"),
    ] {
        assert_eq!(session.fails(statement), expected);
    }
    session.role = role(&mut session, "admin");
    session.ok("DROP ROLE ann");
    assert_eq!(kept(&mut session), ["bob lock_timeout=7"]);
}

/// What `pg_dumpall --roles-only` of PostgreSQL 15 writes.
#[test]
fn a_dump_of_roles_is_understood() {
    let base = Base::new();
    let worker = base.worker();
    let mut session = base.session(&worker);
    let verifier = freshet_postgres::Verifier::generate("pencil").unwrap();
    for statement in [
        "CREATE ROLE ann".to_owned(),
        format!(
            "ALTER ROLE ann WITH NOSUPERUSER INHERIT NOCREATEROLE NOCREATEDB LOGIN NOREPLICATION NOBYPASSRLS \
             CONNECTION LIMIT 3 PASSWORD '{verifier}' VALID UNTIL '2040-01-01 00:00:00+00'"
        ),
        "CREATE ROLE staff".to_owned(),
        "ALTER ROLE staff WITH NOSUPERUSER INHERIT NOCREATEROLE NOCREATEDB NOLOGIN NOREPLICATION NOBYPASSRLS"
            .to_owned(),
        "ALTER ROLE ann SET search_path TO 'shop', 'public'".to_owned(),
        "ALTER ROLE ann IN DATABASE admin SET work_mem TO '64MB'".to_owned(),
        "GRANT staff TO ann GRANTED BY admin".to_owned(),
        "ALTER DATABASE admin SET \"TimeZone\" TO 'UTC'".to_owned(),
    ] {
        session.ok(&statement);
    }
    let schema = session.schema();
    let ann = schema.role("ann").unwrap();
    assert!(ann.login && ann.connection_limit == Some(3) && ann.valid_until.is_some());
    assert_eq!(schema.database().unwrap().settings.len(), 2);
}

#[test]
fn privileges_are_granted_and_revoked() {
    let base = Base::new();
    let worker = base.worker();
    let mut session = base.session(&worker);
    session.ok("CREATE TABLE t (a int PRIMARY KEY)");
    session.ok("CREATE SEQUENCE s");
    session.ok("CREATE ROLE joe");
    session.ok("CREATE ROLE ann");
    session.ok("CREATE ROLE team");
    session.ok("GRANT team TO ann");
    let (joe, ann) = (role(&mut session, "joe"), role(&mut session, "ann"));
    session.role = joe;
    assert_eq!(session.fails("SELECT * FROM t"), "42501: permission denied for table t");
    assert_eq!(session.fails("DROP TABLE t"), "42501: must be owner of table t");
    assert_eq!(session.fails("ALTER TABLE t ADD b int"), "42501: must be owner of table t");
    assert_eq!(session.fails("CREATE INDEX ON t (a)"), "42501: must be owner of table t");
    assert_eq!(session.fails("TRUNCATE t"), "42501: permission denied for table t");
    assert_eq!(session.fails("CREATE TABLE u (a int)"), "42501: permission denied for schema public");
    assert_eq!(session.fails("CREATE TABLE pg_catalog.u (a int)"), "42501: permission denied for schema pg_catalog");
    assert_eq!(session.fails("CREATE SCHEMA mine"), "42501: permission denied for database admin");
    assert_eq!(session.fails("CREATE ROLE x"), "42501: permission denied to create role");
    assert_eq!(session.fails("GRANT SELECT ON t TO ann"), "42501: permission denied for table t");
    session.role = 10;
    assert_eq!(session.ok("GRANT SELECT, INSERT ON t TO joe WITH GRANT OPTION"), "GRANT");
    session.ok("GRANT CREATE ON SCHEMA public TO joe");
    session.role = joe;
    session.ok("INSERT INTO t VALUES (1)");
    session.ok("GRANT SELECT, DELETE ON t TO team");
    assert_eq!(session.notice_texts(), ["not all privileges were granted for \"t\""]);
    session.ok("CREATE TABLE joes (a int)");
    session.role = ann;
    assert_eq!(session.rows("SELECT * FROM t"), ["1"]);
    assert_eq!(session.fails("DELETE FROM t"), "42501: permission denied for table t");
    assert_eq!(session.fails("SELECT * FROM joes"), "42501: permission denied for table joes");
    session.role = 10;
    assert_eq!(session.fails("REVOKE SELECT ON t FROM joe"), "2BP01: dependent privileges exist");
    session.ok("REVOKE SELECT ON t FROM joe CASCADE");
    session.role = ann;
    assert_eq!(session.fails("SELECT * FROM t"), "42501: permission denied for table t");
    session.role = 10;
    let uses = session.run("DROP ROLE joe").unwrap_err();
    assert_eq!(uses.message, "role \"joe\" cannot be dropped because some objects depend on it");
    assert_eq!(
        uses.detail.as_deref(),
        Some("owner of table joes\nprivileges for schema public\nprivileges for table t")
    );
    session.ok("REASSIGN OWNED BY joe TO ann");
    session.ok("REVOKE ALL ON t FROM joe");
    session.ok("REVOKE ALL ON SCHEMA public FROM joe");
    session.ok("DROP ROLE joe");
    session.ok("GRANT ALL ON ALL TABLES IN SCHEMA public TO PUBLIC");
    session.role = ann;
    session.ok("DELETE FROM t");
    session.role = 10;
    assert_eq!(session.fails("GRANT USAGE ON t TO ann"), "0LP01: invalid privilege type USAGE for relation");
    session.ok("GRANT USAGE ON SEQUENCE s TO ann");
    session.ok("GRANT ALL ON ALL SEQUENCES IN SCHEMA public TO ann");
    assert_eq!(session.fails("GRANT SELECT ON nothing TO ann"), "42P01: relation \"nothing\" does not exist");
    assert_eq!(session.fails("GRANT SELECT ON t TO nobody"), "42704: role \"nobody\" does not exist");
}

#[test]
fn owners_are_changed() {
    let base = Base::new();
    let worker = base.worker();
    let mut session = base.session(&worker);
    session.ok("CREATE ROLE joe");
    session.ok("CREATE TABLE t (id serial)");
    session.ok("ALTER TABLE t OWNER TO joe");
    let joe = role(&mut session, "joe");
    session.role = joe;
    session.ok("ALTER TABLE t ADD b int");
    session.ok("INSERT INTO t DEFAULT VALUES");
    assert_eq!(session.fails("ALTER TABLE t OWNER TO admin"), "42501: must be able to SET ROLE \"admin\"");
    assert!(
        session.fails("ALTER SEQUENCE t_id_seq OWNER TO joe").starts_with("0A000: cannot change owner of sequence")
    );
    session.ok("DROP TABLE t");
}
