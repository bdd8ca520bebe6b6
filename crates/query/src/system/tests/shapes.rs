//! Every relation: its rows are of its columns.

use std::collections::HashSet;

use freshet_sql::{
    Kind, Value,
    general::{Filter, Scan, Test},
};

use super::{Scene, rows};
use crate::{
    schema::FIRST_ROLE,
    system::{GENERATORS, definition::Definition, relation},
};

/// The kind that values of a column are of by themselves.
fn plain(kind: Kind) -> Kind {
    match kind {
        Kind::Varchar | Kind::Name | Kind::Unknown => Kind::Text,
        Kind::Int2Vector => Kind::Int2Array,
        Kind::OidVector => Kind::OidArray,
        Kind::Xid => Kind::Oid,
        kind if kind.is_object_alias() => Kind::Oid,
        kind => kind,
    }
}

#[test]
fn rows_have_values_of_their_columns() {
    let scene = Scene::new().of_role(FIRST_ROLE);
    for definition in Definition::all() {
        let schema = scene.snapshot.schema.namespace_name(definition.namespace).to_owned();
        let found = relation(&scene.snapshot, Some(&schema), definition.name).unwrap();
        let scan = Scan { columns: (0..definition.columns.len()).collect(), ..Scan::default() };
        for row in rows(&*found, scan).unwrap() {
            for ((value, column), not_null) in row.iter().zip(&definition.columns).zip(&definition.not_null) {
                let name = format!("{}.{}", definition.name, column.name);
                match value.kind() {
                    None => assert!(!not_null, "{name} is null"),
                    Some(kind) => {
                        assert_eq!(kind, plain(column.ty.kind()), "{name} = {value:?}");
                    }
                }
                if let (Some(length), Value::Text(text)) = (column.ty.character_length(), value) {
                    assert!(text.chars().count() <= length, "{name} = {text}");
                }
            }
        }
    }
}

#[test]
fn every_generator_is_of_a_relation() {
    let mut seen = HashSet::new();
    for (name, _) in GENERATORS.iter().copied().flatten() {
        assert!(Definition::all().iter().any(|definition| definition.name == *name), "there is no {name}");
        assert!(seen.insert(name), "{name} is there twice");
        assert_eq!(Definition::all().iter().filter(|definition| definition.name == *name).count(), 1);
    }
}

/// How many rows are many.
const LARGE: usize = 200;

/// What a scan leaves out is just what does not pass its filters.
#[test]
fn filters_are_exact() {
    let scene = Scene::new().of_role(FIRST_ROLE);
    for definition in Definition::all() {
        let schema = scene.snapshot.schema.namespace_name(definition.namespace).to_owned();
        let found = relation(&scene.snapshot, Some(&schema), definition.name).unwrap();
        let columns: Vec<usize> = (0..definition.columns.len()).collect();
        let all = rows(&*found, Scan { columns: columns.clone(), ..Scan::default() }).unwrap();
        let Some(middle) = all.get(all.len() / 2) else { continue };
        // Of those that have many rows, only what is asked for most.
        let large = all.len() > LARGE;
        for (column, value) in middle.iter().enumerate().take(if large { 8 } else { usize::MAX }) {
            let tests = match value {
                value if large => vec![Test::Equal(value.clone())],
                Value::Null => vec![Test::IsNull, Test::IsNotNull],
                value => vec![
                    Test::Equal(value.clone()),
                    Test::NotEqual(value.clone()),
                    Test::Less(value.clone()),
                    Test::Among(vec![value.clone()]),
                ],
            };
            for test in tests {
                let filter = Filter { column, test };
                assert!(found.takes(&filter));
                let passes = |row: &&Vec<Value>| crate::system::sink::passes(row[column].as_ref(), &filter.test);
                let expected: Vec<_> = all.iter().filter(passes).collect();
                let scan = Scan { columns: columns.clone(), filters: vec![filter.clone()], limit: None };
                let read = rows(&*found, scan).unwrap();
                let at = format!("{} {:?}", definition.name, filter);
                assert_eq!(read.iter().collect::<Vec<_>>(), expected, "{at}");
                let scan = Scan { columns: columns.clone(), filters: vec![filter], limit: Some(1) };
                assert_eq!(rows(&*found, scan).unwrap().first(), expected.first().copied(), "{at}");
            }
        }
    }
}

#[test]
fn a_scan_of_no_column_is_refused() {
    let scene = Scene::new();
    let found = relation(&scene.snapshot, None, "pg_class").unwrap();
    assert!(found.scan(Scan { columns: vec![99], ..Scan::default() }).is_err());
    let filter = Filter { column: 99, test: Test::IsNull };
    assert!(!found.takes(&filter));
    assert!(found.scan(Scan { filters: vec![filter], ..Scan::default() }).is_err());
}
