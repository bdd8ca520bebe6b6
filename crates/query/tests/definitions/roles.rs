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
    assert_eq!(session.fails("CREATE ROLE x CONNECTION LIMIT 5"), "0A000: CONNECTION LIMIT is not supported");
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
    assert_eq!(session.fails("CREATE SCHEMA mine"), "42501: permission denied for database");
    assert_eq!(session.fails("CREATE ROLE x"), "42501: permission denied to create role");
    assert_eq!(session.fails("GRANT SELECT ON t TO ann"), "42501: permission denied for table t");
    session.role = 10;
    assert_eq!(session.ok("GRANT SELECT, INSERT ON t TO joe WITH GRANT OPTION"), "GRANT");
    session.ok("GRANT CREATE ON SCHEMA public TO joe");
    session.role = joe;
    session.ok("INSERT INTO t VALUES (1)");
    session.ok("GRANT SELECT, DELETE ON t TO team");
    assert_eq!(session.told(), ["not all privileges were granted for \"t\""]);
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
