//! Functions over the catalogs.

use std::sync::Arc;

use freshet_sql::{Kind, SqlError, SqlState, Value, functions::SessionFunction as F};

use super::{COUNTER, ORDERS, ORDERS_ID, OWNER, READER, RECENT, Scene};
use crate::{
    schema::{Entry, FIRST_ROLE, Grant, Namespace, Oid, Schema, privilege},
    system::{functions::call, names, routine},
};

fn text(text: &str) -> Value {
    Value::text(text)
}

fn of(scene: &Scene, function: F, arguments: &[Value]) -> Result<String, SqlError> {
    Ok(match call(&scene.snapshot, function, arguments)?.expect("a function of the catalogs") {
        Value::Null => "-".to_owned(),
        Value::Text(text) => text.to_string(),
        Value::Bool(truth) => truth.to_string(),
        Value::Int8(number) => number.to_string(),
        Value::Oid(oid) => oid.to_string(),
        other => format!("{other:?}"),
    })
}

#[test]
fn definitions_are_written_as_sql() {
    let scene = Scene::new();
    let oid = |oid: Oid| [Value::Oid(oid)];
    let pretty = |oid: Oid| [Value::Oid(oid), Value::Bool(true)];
    let definition = |function, arguments: &[Value]| of(&scene, function, arguments).unwrap();
    assert_eq!(
        definition(F::GetIndexDef, &oid(16401)),
        "CREATE UNIQUE INDEX orders_pkey ON app.orders USING btree (id)"
    );
    let column = |number: i32| [Value::Oid(16403), Value::Int4(number), Value::Bool(true)];
    assert_eq!(definition(F::GetIndexColumn, &column(1)), "\"At\"");
    assert_eq!(definition(F::GetIndexColumn, &column(2)), "name");
    assert_eq!(definition(F::GetIndexColumn, &column(3)), "-");
    assert_eq!(definition(F::GetIndexColumn, &column(-1)), "-");
    assert_eq!(
        definition(F::GetIndexColumn, &column(0)),
        "CREATE INDEX orders_at ON app.orders USING btree (\"At\" DESC, name)"
    );
    assert_eq!(definition(F::GetIndexDef, &oid(ORDERS)), "-");
    assert_eq!(definition(F::GetConstraintDef, &oid(16401)), "PRIMARY KEY (id)");
    assert_eq!(definition(F::GetConstraintDef, &oid(16402)), "UNIQUE (name)");
    assert_eq!(definition(F::GetConstraintDef, &oid(16404)), "CHECK ((price > (0)::numeric))");
    assert_eq!(definition(F::GetConstraintDef, &pretty(16404)), "CHECK (price > 0::numeric)");
    assert_eq!(
        definition(F::GetConstraintDef, &pretty(16411)),
        "FOREIGN KEY (order_id) REFERENCES app.orders(id) ON DELETE CASCADE"
    );
    assert_eq!(definition(F::GetViewDef, &pretty(RECENT)), "SELECT id, name::name AS n FROM app.orders;");
    assert_eq!(definition(F::GetViewDef, &[text("recent")]), "SELECT id, name::name AS n FROM app.orders;");
    assert_eq!(definition(F::GetViewDef, &oid(ORDERS)), "-");
    assert_eq!(definition(F::GetConstraintDef, &[Value::Null]), "-");
    let missing = of(&scene, F::GetViewDef, &[text("nothing")]).unwrap_err();
    assert_eq!(missing.state.code(), "42P01");
}

#[test]
fn functions_are_described() {
    let scene = Scene::new();
    let now = routine::by_name("now").next().unwrap().oid;
    let definition = of(&scene, F::GetFunctionDef, &[Value::Oid(now)]).unwrap();
    assert_eq!(
        definition,
        "CREATE OR REPLACE FUNCTION pg_catalog.now()\n RETURNS timestamp with time zone\n LANGUAGE internal\n STABLE \
         STRICT\nAS $function$now$function$\n"
    );
    let oid = names::id_of(&scene.snapshot, Kind::Regprocedure, "repeat(text, integer)").unwrap().unwrap();
    assert_eq!(of(&scene, F::GetFunctionArguments, &[Value::Oid(oid)]).unwrap(), "text, integer");
    assert_eq!(of(&scene, F::GetFunctionResult, &[Value::Oid(oid)]).unwrap(), "text");
    assert_eq!(names::name_of(&scene.snapshot, Kind::Regprocedure, oid).unwrap(), "repeat(text,integer)");
    assert_eq!(of(&scene, F::FunctionIsVisible, &[Value::Oid(1)]).unwrap(), "-");
}

#[test]
fn names_and_ids_go_both_ways() {
    let scene = Scene::new();
    let snapshot = &scene.snapshot;
    for (kind, name, oid) in [
        (Kind::Regclass, "app.orders", ORDERS),
        (Kind::Regclass, "\"Lines\"", super::LINES),
        (Kind::Regclass, "recent", RECENT),
        (Kind::Regclass, "app.orders_at", 16403),
        (Kind::Regclass, "pg_class", 1259),
        (Kind::Regclass, "information_schema.tables", 13425),
        (Kind::Regtype, "character varying", 1043),
        (Kind::Regtype, "integer[]", 1007),
        (Kind::Regnamespace, "pg_catalog", 11),
        (Kind::Regnamespace, "app", super::APP),
        (Kind::Regrole, "\"a reader\"", READER),
        (Kind::Regproc, "array_in", 750),
    ] {
        assert_eq!(names::id_of(snapshot, kind, name).unwrap(), Some(oid), "{name}");
        assert_eq!(names::name_of(snapshot, kind, oid).as_deref(), Some(name));
    }
    for (kind, name) in [
        (Kind::Regclass, "orders"),
        (Kind::Regclass, "Lines"),
        (Kind::Regoperator, "=(integer,date)"),
        (Kind::Regcollation, "nothing"),
        (Kind::Regproc, "public.now"),
        (Kind::Regprocedure, "now"),
        (Kind::Regprocedure, "now(text)"),
        (Kind::Regrole, "nobody"),
    ] {
        assert_eq!(names::id_of(snapshot, kind, name).unwrap(), None, "{name}");
    }
    let state = |kind, name| names::id_of(snapshot, kind, name).unwrap_err().state;
    assert_eq!(state(Kind::Regclass, "a b"), SqlState::INVALID_NAME);
    assert_eq!(state(Kind::Regproc, "substring"), SqlState::AMBIGUOUS_FUNCTION);
    assert_eq!(state(Kind::Regoper, "+"), SqlState::AMBIGUOUS_FUNCTION);
    assert_eq!(names::id_of(snapshot, Kind::Regclass, " shop.app.ORDERS ").unwrap(), Some(ORDERS));
    let to_id = |name: &str| of(&scene, F::ToRegprocedure, &[text(name)]).unwrap();
    assert_eq!([to_id("nothing()"), to_id("array_out(anyarray)"), to_id("750")], ["-", "751", "-"]);
}

#[test]
fn visibility_follows_the_path() {
    let scene = Scene::new();
    let visible = |oid: Oid| of(&scene, F::TableIsVisible, &[Value::Oid(oid)]).unwrap();
    assert_eq!([visible(ORDERS), visible(RECENT), visible(1259), visible(99)], ["false", "true", "true", "-"]);
    assert_eq!(of(&scene, F::TypeIsVisible, &[Value::Oid(23)]).unwrap(), "true");
    assert_eq!(of(&scene, F::CollationIsVisible, &[Value::Oid(100)]).unwrap(), "true");
}

#[test]
fn sequences_of_columns_are_found() {
    let scene = Scene::new();
    let of = |table: &str, column: &str| of(&scene, F::SerialSequence, &[text(table), text(column)]);
    assert_eq!(of("app.orders", "id").unwrap(), "app.orders_id_seq");
    assert_eq!(of("app.orders", "name").unwrap(), "-");
    assert_eq!(of("app.orders", "gone").unwrap_err().state.code(), "42703");
    assert_eq!(of("nothing", "id").unwrap_err().state.code(), "42P01");
    assert_eq!(of("a b", "id").unwrap_err().state.code(), "42602");
    let last = |oid: Oid| super::functions::of(&scene, F::SequenceLastValue, &[Value::Oid(oid)]).unwrap();
    assert_eq!([last(COUNTER), last(ORDERS_ID), last(ORDERS)], ["41", "-", "-"]);
}

#[test]
fn privileges_are_found() {
    let mut scene = Scene::new().of_role(READER);
    let orders = || text("app.orders");
    // Without USAGE of its schema a relation has no name.
    let refused = of(&scene, F::HasTablePrivilege, &[orders(), text("SELECT")]).unwrap_err();
    assert_eq!((refused.state.code(), &*refused.message), ("42501", "permission denied for schema app"));
    assert_eq!(of(&scene, F::HasSchemaPrivilege, &[text("app"), text("USAGE")]).unwrap(), "false");
    let mut schema = Schema::clone(&scene.snapshot.schema);
    let usage = Grant { role: READER, column: None, privileges: privilege::USAGE, grantable: 0, grantor: OWNER };
    let app = Namespace { oid: super::APP, name: "app".to_owned(), owner: OWNER, grants: vec![usage] };
    schema.enter(Entry::Namespace(Arc::new(app)));
    scene.snapshot.schema = Arc::new(schema);
    let may = |function, arguments: &[Value]| of(&scene, function, arguments);
    for (arguments, expected) in [
        (vec![orders(), text("SELECT")], "true"),
        (vec![Value::Oid(ORDERS), text("update")], "false"),
        (vec![orders(), text("UPDATE, INSERT")], "true"),
        (vec![orders(), text("insert with grant option")], "true"),
        (vec![orders(), text("SELECT WITH GRANT OPTION")], "false"),
        (vec![text("owner"), orders(), text("DELETE")], "true"),
        (vec![text("public"), orders(), text("SELECT")], "true"),
        (vec![text("public"), orders(), text("INSERT")], "false"),
        (vec![Value::Oid(FIRST_ROLE), Value::Oid(ORDERS), text("TRIGGER")], "true"),
        (vec![text("recent"), text("SELECT")], "false"),
        (vec![text("pg_class"), text("SELECT")], "true"),
        (vec![text("pg_authid"), text("SELECT")], "false"),
        (vec![Value::Oid(99), text("SELECT")], "-"),
    ] {
        assert_eq!(may(F::HasTablePrivilege, &arguments).unwrap(), expected, "{arguments:?}");
    }
    for (function, arguments, expected) in [
        (F::HasColumnPrivilege, vec![orders(), text("name"), text("INSERT")], "true"),
        (F::HasColumnPrivilege, vec![text("owner"), orders(), Value::Int2(1), text("UPDATE")], "true"),
        (F::HasColumnPrivilege, vec![orders(), Value::Int2(3), text("SELECT")], "-"),
        (F::HasAnyColumnPrivilege, vec![orders(), text("REFERENCES")], "false"),
        (F::HasSequencePrivilege, vec![text("owner"), text("counter"), text("USAGE")], "true"),
        (F::HasSchemaPrivilege, vec![text("public"), text("USAGE")], "true"),
        (F::HasSchemaPrivilege, vec![text("public"), text("CREATE")], "false"),
        (F::HasSchemaPrivilege, vec![text("app"), text("USAGE")], "true"),
        (F::HasSchemaPrivilege, vec![text("app"), text("CREATE")], "false"),
        (F::HasSchemaPrivilege, vec![text("pg_catalog"), text("USAGE")], "true"),
        (F::HasDatabasePrivilege, vec![text("shop"), text("CONNECT")], "true"),
        (F::HasDatabasePrivilege, vec![text("shop"), text("CREATE")], "false"),
        (F::HasTypePrivilege, vec![text("integer"), text("USAGE")], "true"),
        (F::HasFunctionPrivilege, vec![text("now()"), text("EXECUTE")], "true"),
        (F::HasRole, vec![text("owner"), text("MEMBER")], "false"),
        (F::HasRole, vec![text("admin"), text("owner"), text("USAGE")], "true"),
    ] {
        assert_eq!(may(function, &arguments).unwrap(), expected, "{function:?}{arguments:?}");
    }
    for (function, arguments, state) in [
        (F::HasTablePrivilege, vec![text("nothing"), text("SELECT")], "42P01"),
        (F::HasTablePrivilege, vec![orders(), text("READ")], "22023"),
        (F::HasTablePrivilege, vec![text("nobody"), orders(), text("SELECT")], "42704"),
        (F::HasColumnPrivilege, vec![orders(), text("nothing"), text("SELECT")], "42703"),
        (F::HasSequencePrivilege, vec![orders(), text("SELECT")], "42809"),
        (F::HasSchemaPrivilege, vec![text("nothing"), text("USAGE")], "3F000"),
        (F::HasDatabasePrivilege, vec![text("other"), text("CONNECT")], "3D000"),
    ] {
        assert_eq!(may(function, &arguments).unwrap_err().state.code(), state, "{function:?}{arguments:?}");
    }
}

#[test]
fn where_there_is_no_primary_there_is_no_log_to_be_at() {
    let scene = Scene::new();
    assert_eq!(call(&scene.snapshot, F::CurrentLsn, &[]).unwrap_err().state.code(), "55000");
    assert_eq!(call(&scene.snapshot, F::ReplayLsn, &[]).unwrap(), Some(Value::Null));
}

/// Whatever is asked of them, they do not fall over.
#[test]
fn any_number_is_an_id() {
    let scene = Scene::new();
    let numbers = [0, 1, 23, 750, 1259, 8000, 16384, ORDERS, 16401, u32::MAX];
    for (name, arguments, ..) in F::all() {
        let function = F::named(name).find(|(declared, ..)| *declared == arguments).map(|(.., function)| function);
        let function = function.unwrap();
        for number in numbers {
            let value = |kind: &Kind| match kind {
                Kind::Text | Kind::Name => text(&number.to_string()),
                Kind::Bool => Value::Bool(number % 2 == 0),
                Kind::Int2 => Value::Int2(number as i16),
                Kind::Int4 => Value::Int4(number as i32),
                Kind::Int8 => Value::Int8(number.into()),
                Kind::Float8 => Value::Float8(number.into()),
                _ => Value::Oid(number),
            };
            let arguments: Vec<Value> = arguments.iter().map(value).collect();
            if let Err(error) = call(&scene.snapshot, function, &arguments) {
                assert_ne!(error.state.code(), "XX000", "{name}{arguments:?}: {error:?}");
            }
        }
    }
}
