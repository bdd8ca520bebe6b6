//! Constraints.

use crate::harness::Base;

#[test]
fn checks_hold_for_what_is_there_and_what_comes() {
    let base = Base::new();
    let worker = base.worker();
    let mut session = base.session(&worker);
    session.ok("CREATE TABLE t (a int CHECK (a > 0), b int, CONSTRAINT sum CHECK (a + b < 100), CHECK (b <> 13))");
    session.ok("INSERT INTO t VALUES (1, 2), (null, null)");
    assert_eq!(
        session.fails("INSERT INTO t VALUES (0, 0)"),
        "23514: new row for relation \"t\" violates check constraint \"t_a_check\""
    );
    assert!(session.fails("INSERT INTO t VALUES (1, 99)").contains("\"sum\""));
    assert!(session.fails("INSERT INTO t VALUES (1, 13)").contains("\"t_b_check\""));
    assert_eq!(
        session.fails("ALTER TABLE t ADD CONSTRAINT small CHECK (b < 2)"),
        "23514: check constraint \"small\" of relation \"t\" is violated by some row"
    );
    session.ok("ALTER TABLE t ADD CONSTRAINT small CHECK (t.b < 2) NOT VALID");
    session.ok("ALTER TABLE t RENAME TO u");
    session.ok("INSERT INTO u VALUES (5, 1)");
    session.ok("ALTER TABLE u RENAME TO t");
    assert!(session.fails("INSERT INTO t VALUES (1, 2)").contains("\"small\""));
    assert!(session.fails("ALTER TABLE t VALIDATE CONSTRAINT small").starts_with("23514"));
    session.ok("ALTER TABLE t RENAME b TO c");
    assert!(session.fails("INSERT INTO t VALUES (1, 13)").starts_with("23514"));
    session.ok("ALTER TABLE t DROP CONSTRAINT small");
    session.ok("INSERT INTO t VALUES (1, 2)");
    assert_eq!(
        session.fails("ALTER TABLE t DROP CONSTRAINT small"),
        "42704: constraint \"small\" of relation \"t\" does not exist"
    );
    session.ok("ALTER TABLE t DROP CONSTRAINT IF EXISTS small");
    assert_eq!(session.fails("ALTER TABLE t ADD CHECK (nothing > 1)"), "42703: column \"nothing\" does not exist");
    assert_eq!(
        session.fails("ALTER TABLE t ADD CONSTRAINT sum CHECK (true)"),
        "42710: constraint \"sum\" for relation \"t\" already exists"
    );
}

#[test]
fn foreign_keys_are_checked_against_what_is_there() {
    let base = Base::new();
    let worker = base.worker();
    let mut session = base.session(&worker);
    session.ok("CREATE TABLE p (a int, b text, n int, PRIMARY KEY (a, b), UNIQUE (n))");
    session.ok("INSERT INTO p VALUES (1, 'x', 10), (2, 'y', 20)");
    session.ok("CREATE TABLE c (id int PRIMARY KEY, pb text, pa bigint, pn int)");
    session.ok("INSERT INTO c VALUES (1, 'x', 1, 10), (2, null, 5, 20), (3, 'y', 2, 30)");
    session.ok("ALTER TABLE c ADD FOREIGN KEY (pb, pa) REFERENCES p (b, a) ON DELETE CASCADE");
    let error = session.run("ALTER TABLE c ADD CONSTRAINT to_n FOREIGN KEY (pn) REFERENCES p (n)").unwrap_err();
    assert_eq!(error.message, "insert or update on table \"c\" violates foreign key constraint \"to_n\"");
    assert_eq!(error.detail.as_deref(), Some("Key (pn)=(30) is not present in table \"p\"."));
    session.ok("DELETE FROM c WHERE id = 3");
    session.ok("ALTER TABLE c ADD CONSTRAINT to_n FOREIGN KEY (pn) REFERENCES p (n)");
    let schema = session.schema();
    let Some(freshet_query::schema::Named::Table(c)) = schema.named(2200, "c") else { panic!("no c") };
    let keys: Vec<_> = schema.table(c).unwrap().table.foreign_keys.iter().map(|key| key.name.clone()).collect();
    assert_eq!(keys, ["c_pb_pa_fkey", "to_n"]);
    assert_eq!(
        session.fails("ALTER TABLE c ADD FOREIGN KEY (pb) REFERENCES p (n)"),
        "42804: foreign key constraint \"c_pb_fkey\" cannot be implemented"
    );
    assert_eq!(
        session.fails("ALTER TABLE c ADD FOREIGN KEY (pa) REFERENCES p (a)"),
        "42830: there is no unique constraint matching given keys for referenced table \"p\""
    );
    assert!(
        session.fails("ALTER TABLE c ADD FOREIGN KEY (pa) REFERENCES p").starts_with("42830: number of referencing")
    );
    assert_eq!(
        session.fails("ALTER TABLE c ADD FOREIGN KEY (x) REFERENCES p"),
        "42703: column \"x\" referenced in foreign key constraint does not exist"
    );
    assert_eq!(session.fails("TRUNCATE p"), "0A000: cannot truncate a table referenced in a foreign key constraint");
    session.ok("TRUNCATE p CASCADE");
    assert_eq!(session.notice_texts(), ["truncate cascades to table \"c\""]);
    assert_eq!(session.rows("SELECT count(*) FROM c"), ["0"]);
    session.ok("TRUNCATE p, c");
    assert_eq!(session.fails("DROP TABLE p"), "2BP01: cannot drop table p because other objects depend on it");
    session.ok("DROP TABLE p CASCADE");
    assert_eq!(session.notice_texts(), ["drop cascades to 2 other objects"]);
    session.ok("INSERT INTO c VALUES (9, 'nobody', 9, 9)");
}

#[test]
fn a_table_can_refer_to_itself() {
    let base = Base::new();
    let worker = base.worker();
    let mut session = base.session(&worker);
    session.ok("CREATE TABLE t (id int PRIMARY KEY, parent int REFERENCES t)");
    session.ok("INSERT INTO t VALUES (1, 1)");
    session.ok("TRUNCATE t");
    session.ok("DROP TABLE t");
}

#[test]
fn keys_are_distinguished() {
    let base = Base::new();
    let worker = base.worker();
    let mut session = base.session(&worker);
    assert_eq!(
        session.fails("CREATE TABLE t (a int PRIMARY KEY, b int PRIMARY KEY)"),
        "42P16: multiple primary keys for table \"t\" are not allowed"
    );
    assert_eq!(
        session.fails("CREATE TABLE t (a int, PRIMARY KEY (b))"),
        "42703: column \"b\" named in key does not exist"
    );
    assert_eq!(
        session.fails("CREATE TABLE t (a int, UNIQUE (a, a))"),
        "42701: column \"a\" appears twice in unique constraint"
    );
    assert_eq!(session.fails("CREATE TABLE t (a int, a text)"), "42701: column \"a\" specified more than once");
    assert_eq!(session.fails("CREATE TABLE t (a nothing)"), "42704: type \"nothing\" does not exist");
    session.ok("CREATE TABLE t (a int UNIQUE, b int NOT NULL, UNIQUE (a, b), UNIQUE (a, b))");
    let schema = session.schema();
    let Some(freshet_query::schema::Named::Table(t)) = schema.named(2200, "t") else { panic!("no t") };
    let names: Vec<_> = schema.table(t).unwrap().table.indexes.iter().skip(1).map(|index| index.name.clone()).collect();
    assert_eq!(names, ["t_a_key", "t_a_b_key", "t_a_b_key1"]);
    session.ok("INSERT INTO t VALUES (null, 1), (null, 1)");
    session.ok("CREATE UNIQUE INDEX u ON t (b, a)");
    session.ok("ALTER TABLE t ADD CONSTRAINT uu UNIQUE USING INDEX u");
    assert_eq!(session.notice_texts(), ["ALTER TABLE / ADD CONSTRAINT USING INDEX will rename index \"u\" to \"uu\""]);
    session.ok("ALTER TABLE t DROP CONSTRAINT uu");
    assert_eq!(session.fails("DROP INDEX uu"), "42704: index \"uu\" does not exist");
}
