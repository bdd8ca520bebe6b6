//! What is in the relations.

use std::sync::Arc;

use freshet_sql::general::Test;

use super::{APP, LINES, ORDERS, READER, RECENT, Scene, is};
use crate::{
    schema::{Entry, FIRST_ROLE, INFORMATION_SCHEMA, PG_CATALOG, PUBLIC, Schema, View},
    system::{self, activity::Activity},
};

#[test]
fn pg_class_has_everything_with_columns() {
    let scene = Scene::new();
    let users = ("oid", Test::GreaterOrEqual(freshet_sql::Value::Oid(16384)));
    let columns = "oid relname relkind relnamespace relam relnatts relchecks relhasindex relhastriggers relhasrules";
    assert_eq!(
        scene.read("pg_class", columns, &[users]),
        [
            "16400|orders|r|16390|2|6|1|t|t|f",
            "16401|orders_pkey|i|16390|403|1|0|f|f|f",
            "16402|orders_name_key|i|16390|403|1|0|f|f|f",
            "16403|orders_at|i|16390|403|2|0|f|f|f",
            "16410|Lines|r|2200|2|2|0|f|t|f",
            "16420|recent|v|2200|0|2|0|f|f|t",
            "16430|orders_id_seq|S|16390|0|3|0|f|f|f",
            "16431|counter|S|2200|0|3|0|f|f|f",
        ]
    );
    assert_eq!(scene.read("pg_class", "oid relkind", &[("relname", is("pg_class"))]), ["1259|r"]);
    assert_eq!(
        scene.read("pg_class", "relacl", &[("relname", is("orders"))]),
        ["{owner=arwdDxt/owner,=r/owner,\"\\\"a reader\\\"=a*r/owner\"}"]
    );
    assert_eq!(scene.read("pg_class", "relacl reltuples tableoid", &[("relname", is("Lines"))]), ["-|0|1259"]);
}

#[test]
fn rows_are_counted() {
    let scene = Scene::new();
    let info = scene.snapshot.schema.table(LINES).unwrap();
    let worker = scene.database.worker().unwrap();
    let transaction = worker.begin(freshet_engine::Isolation::Snapshot);
    for number in 0..300_u128 {
        let values = [
            freshet_sql::Value::Int8(number as i64),
            freshet_sql::Value::Char("abc".into()),
            freshet_sql::Value::Uuid(number.to_be_bytes()),
        ];
        let mut row = Vec::new();
        info.layout.encode(&values, &mut row).unwrap();
        transaction.insert(&info.rows, &row).unwrap();
    }
    let ticket = transaction.commit().unwrap();
    scene.database.wait(ticket).unwrap();
    drop(worker);
    assert_eq!(scene.read("pg_class", "reltuples", &[("relname", is("Lines"))]), ["300"]);
    assert_eq!(scene.read("pg_stat_user_tables", "relname n_live_tup seq_scan", &[]), ["orders|0|0", "Lines|300|0"]);
    let size = scene.snapshot.system.table_size(info).unwrap();
    assert!(size.row_bytes > 300 * 30 && size.row_bytes < 300 * 100, "{size:?}");
}

#[test]
fn pg_attribute_has_columns_with_their_types() {
    let scene = Scene::new();
    let columns = "attnum attname atttypid atttypmod attlen attnotnull atthasdef attidentity attisdropped attndims";
    assert_eq!(
        scene.read("pg_attribute", columns, &[("attrelid", is(ORDERS))]),
        [
            "1|id|20|-1|8|t|f|a|f|0",
            "2|name|1043|44|-1|f|t||f|0",
            "3|........pg.dropped.3........|0|-1|4|f|f||t|0",
            "4|price|1700|655366|-1|f|f||f|0",
            "5|At|1184|-1|8|t|f||f|0",
            "6|tags|1009|-1|-1|f|f||f|1",
        ]
    );
    assert_eq!(
        scene.read("pg_attribute", "attnum attname attcollation attstorage attalign", &[("attrelid", is(LINES))]),
        ["1|order_id|0|p|d", "2|letter|100|x|i"]
    );
    assert_eq!(scene.read("pg_attribute", "attname", &[("attrelid", is(16403_u32))]), ["At", "name"]);
    assert_eq!(scene.read("pg_attrdef", "adrelid adnum adbin", &[]), ["16400|2|'none'::character varying"]);
}

#[test]
fn pg_index_has_keys() {
    let scene = Scene::new();
    assert_eq!(
        scene.read(
            "pg_index",
            "indexrelid indrelid indisunique indisprimary indkey indoption indcollation indclass",
            &[]
        ),
        ["16401|16400|t|t|1|0|0|3124", "16402|16400|t|f|2|0|100|3126", "16403|16400|f|f|5 2|3 0|0 100|3127 3126",]
    );
    assert_eq!(
        scene.read("pg_indexes", "indexname indexdef", &[("indexname", is("orders_at"))]),
        ["orders_at|CREATE INDEX orders_at ON app.orders USING btree (\"At\" DESC, name)"]
    );
}

#[test]
fn pg_constraint_has_constraints() {
    let scene = Scene::new();
    assert_eq!(
        scene.read(
            "pg_constraint",
            "oid conname contype conrelid conindid confrelid conkey confkey confdeltype confmatchtype connoinherit",
            &[]
        ),
        [
            "16401|orders_pkey|p|16400|16401|0|{1}|-| | |t",
            "16402|orders_name_key|u|16400|16402|0|{2}|-| | |t",
            "16404|positive|c|16400|0|0|{4}|-| | |f",
            "16411|lines_order|f|16410|16401|16400|{1}|{1}|c|s|t",
        ]
    );
    // bigint = bigint, three times.
    let operators = scene.read("pg_constraint", "conpfeqop conppeqop conffeqop", &[("contype", is('f'))]);
    let found =
        scene.read("pg_operator", "oid", &[("oprname", is("=")), ("oprleft", is(20_u32)), ("oprright", is(20_u32))]);
    let equal = &found[0];
    assert_eq!(operators, [format!("{{{equal}}}|{{{equal}}}|{{{equal}}}")]);
}

#[test]
fn what_depends_on_what() {
    let scene = Scene::new();
    let sequences = scene.read(
        "pg_depend",
        "objid refobjid refobjsubid deptype",
        &[("refobjid", is(ORDERS)), ("deptype", is('i')), ("classid", is(1259_u32))],
    );
    assert_eq!(sequences, ["16430|16400|1|i"]);
    let views =
        scene.read("pg_depend", "refobjid refobjsubid deptype", &[("objid", is(RECENT)), ("classid", is(2618_u32))]);
    assert_eq!(views, ["16400|1|n", "16400|2|n", "16420|0|i", "16420|0|n"]);
    let keys = scene.read("pg_depend", "refclassid refobjid refobjsubid deptype", &[("objid", is(16411_u32))]);
    assert_eq!(keys, ["1259|16400|1|n", "1259|16401|0|n", "1259|16410|1|a"]);
}

#[test]
fn schemas_roles_and_the_database() {
    let scene = Scene::new();
    assert_eq!(
        scene.read("pg_namespace", "oid nspname nspowner nspacl", &[]),
        [
            "11|pg_catalog|10|{admin=UC/admin,=U/admin}",
            "13000|information_schema|10|{admin=UC/admin,=U/admin}",
            "2200|public|10|{admin=UC/admin,=U/admin}",
            "16390|app|16384|-",
        ]
    );
    assert_eq!(
        scene.read("pg_roles", "oid rolname rolsuper rolcanlogin rolpassword", &[]),
        ["10|admin|t|t|********", "16384|owner|f|t|********", "16385|a reader|f|t|********"]
    );
    for relation in ["pg_authid", "pg_shadow"] {
        assert_eq!(scene.try_read(relation, "", &[]).unwrap_err().state.code(), "42501");
    }
    assert_eq!(scene.read("pg_database", "datname encoding datcollate", &[]), ["shop|6|C"]);
    let scene = scene.of_role(FIRST_ROLE);
    assert_eq!(scene.read("pg_authid", "rolpassword", &[("oid", is(FIRST_ROLE))]), ["SCRAM-SHA-256$x"]);
}

#[test]
fn types_are_found_by_name_and_by_id() {
    let scene = Scene::new();
    assert_eq!(
        scene.read("pg_type", "oid typname typlen typcategory typelem typarray", &[("typname", is("int4"))]),
        ["23|int4|4|N|0|1007"]
    );
    assert_eq!(
        scene.read("pg_type", "typname typelem typinput typdelim typtype", &[("oid", is(1015_u32))]),
        ["_varchar|1043|750|,|b"]
    );
    // What a type's functions are called.
    let input = scene.read("pg_proc", "proname", &[("oid", is(750_u32))]);
    assert_eq!(input, ["array_in"]);
    assert_eq!(scene.read("pg_type", "typtype", &[("typname", is("void"))]), ["p"]);
}

#[test]
fn functions_have_signatures() {
    let scene = Scene::new();
    assert_eq!(
        scene.read("pg_proc", "proname prorettype proargtypes prokind", &[("proname", is("now"))]),
        ["now|1184||f"]
    );
    assert_eq!(scene.read("pg_proc", "prokind pronargs", &[("proname", is("count"))]), ["a|0", "a|1"]);
    assert_eq!(scene.read("pg_proc", "provolatile", &[("proname", is("nextval"))]), ["v"]);
    let less = scene.read(
        "pg_operator",
        "oprresult oprkind",
        &[("oprname", is("<")), ("oprleft", is(23_u32)), ("oprright", is(23_u32))],
    );
    assert_eq!(less, ["16|b"]);
}

#[test]
fn information_schema_has_tables_and_columns() {
    let scene = Scene::new();
    let app = ("table_schema", is("app"));
    assert_eq!(
        scene.read(
            "information_schema.tables",
            "table_catalog table_schema table_name table_type is_insertable_into",
            std::slice::from_ref(&app)
        ),
        ["shop|app|orders|BASE TABLE|YES"]
    );
    assert_eq!(
        scene.read(
            "information_schema.columns",
            "column_name ordinal_position column_default is_nullable data_type character_maximum_length numeric_precision \
             numeric_scale datetime_precision udt_name identity_generation",
            &[app]
        ),
        [
            "id|1|-|NO|bigint|-|64|0|-|int8|ALWAYS",
            "name|2|'none'::character varying|YES|character varying|40|-|-|-|varchar|-",
            "price|4|-|YES|numeric|-|10|2|-|numeric|-",
            "At|5|-|NO|timestamp with time zone|-|-|-|6|timestamptz|-",
            "tags|6|-|YES|ARRAY|-|-|-|-|_text|-",
        ]
    );
    assert_eq!(
        scene.read("information_schema.columns", "column_name collation_name", &[("table_name", is("recent"))]),
        ["id|-", "n|C"]
    );
    // A sequence behind an identity column is no sequence of its own.
    assert_eq!(
        scene.read("information_schema.sequences", "sequence_name maximum_value", &[]),
        ["counter|9223372036854775807"]
    );
    assert_eq!(
        scene.read("information_schema.views", "table_name view_definition", &[]),
        ["recent|SELECT id, name::name AS n FROM app.orders;"]
    );
}

#[test]
fn information_schema_has_constraints() {
    let scene = Scene::new();
    assert_eq!(
        scene.read(
            "information_schema.table_constraints",
            "constraint_name constraint_type",
            &[("table_name", is("orders"))]
        ),
        [
            "orders_pkey|PRIMARY KEY",
            "orders_name_key|UNIQUE",
            "positive|CHECK",
            "16390_16400_1_not_null|CHECK",
            "16390_16400_5_not_null|CHECK",
        ]
    );
    assert_eq!(
        scene.read(
            "information_schema.key_column_usage",
            "constraint_name table_name column_name ordinal_position position_in_unique_constraint",
            &[]
        ),
        ["orders_pkey|orders|id|1|-", "orders_name_key|orders|name|1|-", "lines_order|Lines|order_id|1|1"]
    );
    assert_eq!(
        scene.read(
            "information_schema.referential_constraints",
            "constraint_name unique_constraint_schema unique_constraint_name update_rule delete_rule",
            &[]
        ),
        ["lines_order|app|orders_pkey|NO ACTION|CASCADE"]
    );
    assert_eq!(
        scene.read("information_schema.constraint_column_usage", "table_name column_name constraint_name", &[]),
        ["orders|id|orders_pkey", "orders|name|orders_name_key", "orders|price|positive", "orders|id|lines_order"]
    );
    assert_eq!(
        scene.read("information_schema.check_constraints", "constraint_name check_clause", &[]),
        [
            "positive|((price > (0)::numeric))",
            "16390_16400_1_not_null|id IS NOT NULL",
            "16390_16400_5_not_null|At IS NOT NULL"
        ]
    );
}

#[test]
fn one_sees_what_one_may_do_something_with() {
    let scene = Scene::new().of_role(READER);
    let users = ("table_schema", Test::Among(vec!["app".into_value(), "public".into_value()]));
    assert_eq!(scene.read("information_schema.tables", "table_name", std::slice::from_ref(&users)), ["orders"]);
    assert!(scene.read("information_schema.views", "table_name", &[]).is_empty());
    assert_eq!(
        scene.read("information_schema.table_privileges", "grantee privilege_type is_grantable", &[users]),
        ["PUBLIC|SELECT|NO", "a reader|INSERT|YES", "a reader|SELECT|NO"]
    );
    assert_eq!(
        scene.read("information_schema.schemata", "schema_name", &[]),
        ["pg_catalog", "information_schema", "public"]
    );
    assert_eq!(scene.read("information_schema.enabled_roles", "role_name", &[]), ["a reader"]);
}

trait IntoValue {
    fn into_value(self) -> freshet_sql::Value;
}

impl IntoValue for &str {
    fn into_value(self) -> freshet_sql::Value {
        freshet_sql::Value::text(self)
    }
}

#[test]
fn sessions_are_shown_to_those_who_may_know() {
    let scene = Scene::new();
    let columns = "pid usename datname client_addr client_port state query";
    assert_eq!(scene.read("pg_stat_activity", columns, &[]), ["77|owner|shop|127.0.0.1|5000|idle|"]);
    scene.session.begin("SELECT 1".into(), freshet_sql::types::Timestamp::now(), None);
    scene.session.set_application("test");
    assert_eq!(
        scene.read("pg_stat_activity", "application_name state wait_event_type wait_event query", &[("pid", is(77))]),
        ["test|active|Lock|relation|SELECT 1"]
    );
    assert_eq!(scene.read("pg_stat_activity", "pid", &[("xact_start", Test::IsNull)]).len(), 0);
    scene.session.rest(Activity::Failed, None);
    assert_eq!(scene.read("pg_stat_activity", "state xact_start", &[]), ["idle in transaction (aborted)|-"]);
    assert_eq!(
        scene.read("pg_locks", "locktype relation classid objid objsubid pid mode granted", &[]),
        [
            format!("relation|{ORDERS}|-|-|-|77|ShareRowExclusiveLock|t"),
            "advisory|-|4294967295|4294967295|1|-|ShareLock|f".to_owned(),
        ]
    );
    let tls = "pid ssl version cipher bits client_dn";
    assert_eq!(scene.read("pg_stat_ssl", tls, &[]), ["77|t|TLSv1.3|TLS_AES_256_GCM_SHA384|256|/CN=owner"]);
    let scene = scene.of_role(READER);
    assert_eq!(scene.read("pg_stat_ssl", tls, &[]), ["77|-|-|-|-|-"]);
    assert_eq!(scene.read("pg_stat_activity", "pid usename state query", &[]), ["77|owner|-|<insufficient privilege>"]);
    let Scene { snapshot, session, .. } = scene;
    drop(session);
    assert!(snapshot.system.sessions().is_empty());
}

#[test]
fn names_are_looked_for_along_the_path() {
    let mut scene = Scene::new();
    let found =
        |scene: &Scene, schema: Option<&str>, name: &str| system::relation(&scene.snapshot, schema, name).is_some();
    assert!(found(&scene, None, "pg_class") && found(&scene, Some("pg_catalog"), "pg_class"));
    assert!(!found(&scene, Some("public"), "pg_class") && !found(&scene, None, "orders"));
    assert!(!found(&scene, None, "tables") && found(&scene, Some("information_schema"), "tables"));
    scene.snapshot.path = vec![PG_CATALOG, INFORMATION_SCHEMA];
    assert!(found(&scene, None, "tables"));
    // A user's relation comes first where its schema does.
    let mut schema = Schema::clone(&scene.snapshot.schema);
    let view = |oid, namespace, name: &str| {
        let (columns, uses, grants) = Default::default();
        let (name, query) = (name.to_owned(), "SELECT".to_owned());
        Entry::View(Arc::new(View {
            oid,
            namespace,
            name,
            owner: FIRST_ROLE,
            columns,
            query,
            uses,
            security_invoker: false,
            grants,
        }))
    };
    schema.enter(view(20000, PUBLIC, "tables"));
    schema.enter(view(20001, PUBLIC, "pg_class"));
    scene.snapshot.schema = Arc::new(schema);
    scene.snapshot.path = vec![PG_CATALOG, PUBLIC, INFORMATION_SCHEMA, APP];
    assert!(!found(&scene, None, "tables"));
    assert!(found(&scene, None, "pg_class"));
    assert!(system::is_named(&scene.snapshot.schema, &scene.snapshot.path, Some("pg_catalog"), "nothing"));
    assert!(!system::is_named(&scene.snapshot.schema, &scene.snapshot.path, None, "nothing"));
}

#[test]
fn a_sequence_can_be_read() {
    let scene = Scene::new();
    let sequence = scene.snapshot.schema.sequence(super::COUNTER).unwrap();
    let relation = system::sequence(&scene.snapshot, sequence);
    let scan = freshet_sql::general::Scan { columns: vec![0, 1, 2, 3], ..Default::default() };
    use freshet_sql::Value::{Bool, Int8, Oid};
    assert_eq!(super::rows(&*relation, scan).unwrap(), [[Int8(41), Int8(0), Bool(true), Oid(super::COUNTER)]]);
    assert_eq!(scene.read("pg_sequences", "sequencename last_value", &[]), ["orders_id_seq|-", "counter|41"]);
}
