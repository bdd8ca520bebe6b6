//! Statistics of tables and indexes.
//!
//! A scan of a whole table in the order in which its rows are stored is a sequential one; any other
//! is one of an index. Rows are in memory, so no block of them is ever read from a disk: each row
//! that a scan meets counts as one hit.

use freshet_sql::{SqlError, Value};

use super::{
    Generator,
    class::{self, namespace_name},
    sink::{NULL, Sink, row},
};
use crate::{
    relations::{self, Snapshot},
    schema::{Index, TableInfo},
    statistics::{RelationCounts, relation::ByOid},
};

/// The relations of this module.
pub(super) const RELATIONS: &[(&str, Generator)] = &[
    ("pg_stat_all_tables", tables),
    ("pg_stat_user_tables", tables),
    ("pg_stat_xact_all_tables", transaction_tables),
    ("pg_stat_xact_user_tables", transaction_tables),
    ("pg_stat_all_indexes", indexes),
    ("pg_stat_user_indexes", indexes),
    ("pg_statio_all_tables", io_tables),
    ("pg_statio_user_tables", io_tables),
    ("pg_statio_all_indexes", io_indexes),
    ("pg_statio_user_indexes", io_indexes),
    ("pg_statio_all_sequences", io_sequences),
    ("pg_statio_user_sequences", io_sequences),
];

/// What is counted of the relations of the snapshot's database.
pub fn counts(snapshot: &Snapshot) -> ByOid<RelationCounts> {
    snapshot.system.registry().map(|all| all.relations(snapshot.schema.database)).unwrap_or_default()
}

/// The indexes of a table that one can see.
fn indexes_of(info: &TableInfo) -> impl Iterator<Item = &Index> {
    info.table.indexes.iter().filter(|index| index.oid != 0)
}

/// What is counted of the indexes of a table, together; nothing for one that has none.
fn of_indexes(counts: &ByOid<RelationCounts>, info: &TableInfo) -> Option<RelationCounts> {
    let mut sum = None;
    for index in indexes_of(info) {
        let sum = sum.get_or_insert_with(RelationCounts::default);
        sum.add(&counts.get(&index.oid).copied().unwrap_or_default());
    }
    sum
}

/// Calls `push` with the beginning of a row for each table that is asked for.
fn each_table(snapshot: &Snapshot, sink: &mut Sink<'_>, mut push: impl FnMut(&mut Sink<'_>, &TableInfo, Vec<Value>)) {
    for info in class::tables(snapshot) {
        let (schema, name) = (namespace_name(snapshot, info.table.namespace), info.table.name.as_str());
        if sink.admits("relid", info.table.oid) && sink.admits("relname", name) && sink.admits("schemaname", schema) {
            push(sink, info, row![info.table.oid, schema, name]);
        }
    }
}

/// The eight numbers of a table's scans and changes.
fn scans_and_changes(counts: &ByOid<RelationCounts>, info: &TableInfo) -> Vec<Value> {
    let own = counts.get(&info.table.oid).copied().unwrap_or_default();
    let by_index = of_indexes(counts, info);
    row![
        own.scans(),
        own.read(),
        by_index.map(|it| it.scans()),
        by_index.map(|it| it.fetched()),
        own.inserted(),
        own.updated(),
        own.deleted(),
        own.updated_in_place(),
    ]
}

fn tables(snapshot: &Snapshot, sink: &mut Sink<'_>) -> Result<(), SqlError> {
    let counts = counts(snapshot);
    let sized = sink.wants("n_live_tup");
    each_table(snapshot, sink, |sink, info, mut row| {
        let own = counts.get(&info.table.oid).copied().unwrap_or_default();
        row.extend(scans_and_changes(&counts, info));
        let rows = if sized { snapshot.system.table_size(info) } else { None };
        row.extend(row![rows.map(|size| i64::try_from(size.rows).unwrap_or(i64::MAX))]);
        // Old versions are not counted by table; nothing is analyzed, and nothing is vacuumed: the
        // garbage collector takes what no snapshot needs as it becomes free.
        row.extend(row![NULL, own.written(), own.inserted()]);
        row.extend(row![NULL, NULL, NULL, NULL, 0i64, 0i64, 0i64, 0i64]);
        row.extend(row![own.last_scan(), of_indexes(&counts, info).and_then(|it| it.last_scan())]);
        sink.push(row);
    });
    Ok(())
}

fn transaction_tables(snapshot: &Snapshot, sink: &mut Sink<'_>) -> Result<(), SqlError> {
    let counts = relations::with_session(|session| session.transaction_counts()).unwrap_or_default();
    each_table(snapshot, sink, |sink, info, mut row| {
        row.extend(scans_and_changes(&counts, info));
        sink.push(row);
    });
    Ok(())
}

/// Blocks of tables: those of rows and indexes, and none of what PostgreSQL stores apart.
fn io_tables(snapshot: &Snapshot, sink: &mut Sink<'_>) -> Result<(), SqlError> {
    let counts = counts(snapshot);
    each_table(snapshot, sink, |sink, info, mut row| {
        let own = counts.get(&info.table.oid).copied().unwrap_or_default();
        let by_index = of_indexes(&counts, info);
        let hits = own.read() + by_index.map_or(0, |it| it.fetched());
        row.extend(row![0i64, hits, by_index.map(|_| 0i64), by_index.map(|it| it.read())]);
        row.extend(row![NULL, NULL, NULL, NULL]);
        sink.push(row);
    });
    Ok(())
}

/// Calls `push` with the beginning of a row for each index.
fn each_index(snapshot: &Snapshot, mut push: impl FnMut(Vec<Value>, RelationCounts)) {
    let counts = counts(snapshot);
    for info in class::tables(snapshot) {
        let (schema, name) = (namespace_name(snapshot, info.table.namespace), &info.table.name);
        for index in indexes_of(info) {
            let own = counts.get(&index.oid).copied().unwrap_or_default();
            push(row![info.table.oid, index.oid, schema, name, &index.name], own);
        }
    }
}

fn indexes(snapshot: &Snapshot, sink: &mut Sink<'_>) -> Result<(), SqlError> {
    each_index(snapshot, |mut row, own| {
        row.extend(row![own.scans(), own.read(), own.fetched(), own.last_scan()]);
        sink.push(row);
    });
    Ok(())
}

fn io_indexes(snapshot: &Snapshot, sink: &mut Sink<'_>) -> Result<(), SqlError> {
    each_index(snapshot, |mut row, own| {
        row.extend(row![0i64, own.read()]);
        sink.push(row);
    });
    Ok(())
}

fn io_sequences(snapshot: &Snapshot, sink: &mut Sink<'_>) -> Result<(), SqlError> {
    for sequence in class::sequences(snapshot) {
        sink.push(row![sequence.oid, namespace_name(snapshot, sequence.namespace), &sequence.name, 0i64, 0i64]);
    }
    Ok(())
}
