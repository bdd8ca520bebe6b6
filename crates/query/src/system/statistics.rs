//! Statistics: replication, tables, the database. What nobody counts is null.

use freshet_engine::{
    FeedMode, Lsn, Safety,
    node::{LinkStatus, RoleStatus},
};
use freshet_sql::{
    SqlError, Value,
    types::{Packed, Timestamp},
};

use super::{
    Generator,
    class::{self, namespace_name},
    sink::{NULL, Sink, row},
};
use crate::{
    relations::Snapshot,
    schema::{COMMON, Oid, TableInfo},
};

/// The relations of this module.
pub(super) const RELATIONS: &[(&str, Generator)] = &[
    ("pg_stat_replication", pg_stat_replication),
    ("pg_stat_wal_receiver", pg_stat_wal_receiver),
    ("pg_stat_database", pg_stat_database),
    ("pg_stat_all_tables", tables),
    ("pg_stat_user_tables", tables),
    ("pg_stat_xact_all_tables", uncounted_tables),
    ("pg_stat_xact_user_tables", uncounted_tables),
    ("pg_stat_all_indexes", indexes),
    ("pg_stat_user_indexes", indexes),
    ("pg_statio_all_tables", uncounted_tables),
    ("pg_statio_user_tables", uncounted_tables),
    ("pg_statio_all_indexes", io_indexes),
    ("pg_statio_user_indexes", io_indexes),
];

/// An LSN as a value.
pub fn lsn(at: Lsn) -> Value {
    Value::Packed(Packed::lsn(at.0))
}

fn pg_stat_replication(snapshot: &Snapshot, sink: &mut Sink<'_>) -> Result<(), SqlError> {
    let Some(status) = snapshot.system.status() else { return Ok(()) };
    let RoleStatus::Primary { shipping, .. } = status.role else { return Ok(()) };
    for standby in shipping.standbys.iter().filter(|standby| standby.connected) {
        let (host, port) = standby.address.rsplit_once(':').unwrap_or((&standby.address, ""));
        let live = standby.mode == Some(FeedMode::Live);
        let sync = match (standby.in_sync, shipping.safety) {
            (_, Safety::OneSafe) | (false, _) => "async",
            (true, Safety::Quorum(_)) => "quorum",
            (true, _) => "sync",
        };
        sink.push(row![
            NULL,
            NULL,
            NULL,
            standby.node.to_string(),
            host.trim_matches(['[', ']']),
            NULL,
            port.parse::<i32>().ok(),
            NULL,
            NULL,
            if live { "streaming" } else { "catchup" },
            lsn(standby.shipped),
            lsn(standby.acked),
            lsn(standby.acked),
            lsn(standby.visible),
            NULL,
            NULL,
            NULL,
            i32::from(sync != "async"),
            sync,
            NULL,
        ]);
    }
    for observer in &shipping.observers {
        let acked = lsn(observer.acked);
        let mut row = row![NULL, NULL, NULL, observer.node.to_string()];
        row.extend(std::iter::repeat_n(NULL, 5));
        row.extend(row!["streaming", lsn(observer.shipped), acked.clone(), acked, NULL, NULL, NULL, NULL]);
        row.extend(row![0i32, "async", NULL]);
        sink.push(row);
    }
    Ok(())
}

fn pg_stat_wal_receiver(snapshot: &Snapshot, sink: &mut Sink<'_>) -> Result<(), SqlError> {
    let Some(status) = snapshot.system.status() else { return Ok(()) };
    let RoleStatus::Standby { own, .. } = status.role else { return Ok(()) };
    let from = match &own.link {
        LinkStatus::Following { address, .. } => Some(address.rsplit_once(':').unwrap_or((address, ""))),
        _ => None,
    };
    let received_at = own.silence.map(|silence| {
        let micros = i64::try_from(silence.as_micros()).unwrap_or(i64::MAX);
        Timestamp(Timestamp::now().0.saturating_sub(micros))
    });
    let term = i32::try_from(own.term.0).unwrap_or(i32::MAX);
    sink.push(row![
        NULL,
        if from.is_some() { "streaming" } else { "waiting" },
        NULL,
        NULL,
        lsn(own.received),
        lsn(own.persisted),
        term,
        NULL,
        received_at,
        lsn(own.global),
        NULL,
        NULL,
        from.map(|(host, _)| host.trim_matches(['[', ']'])),
        from.and_then(|(_, port)| port.parse::<i32>().ok()),
        NULL,
    ]);
    Ok(())
}

fn pg_stat_database(snapshot: &Snapshot, sink: &mut Sink<'_>) -> Result<(), SqlError> {
    let sessions = snapshot.system.sessions();
    let mut push = |oid: Oid, name: Option<&str>| {
        let count = name.map(|_| sessions.iter().filter(|it| it.database_id == oid).count());
        let count = count.map(|count| i32::try_from(count).unwrap_or(i32::MAX));
        let mut row = row![oid, name, count];
        row.extend(std::iter::repeat_n(NULL, 25));
        sink.push(row);
    };
    // What databases share has a row, too.
    push(COMMON, None);
    for database in snapshot.schema.databases() {
        push(database.oid, Some(&database.name));
    }
    Ok(())
}

/// The schema and the name of a table.
fn name<'s>(snapshot: &'s Snapshot, info: &'s TableInfo) -> (&'s str, &'s str) {
    (namespace_name(snapshot, info.table.namespace), &info.table.name)
}

fn tables(snapshot: &Snapshot, sink: &mut Sink<'_>) -> Result<(), SqlError> {
    let counted = sink.wants("n_live_tup");
    for info in class::tables(snapshot) {
        let (schema, name) = name(snapshot, info);
        if !sink.admits("relid", info.table.oid) || !sink.admits("relname", name) || !sink.admits("schemaname", schema)
        {
            continue;
        }
        let rows = if counted { snapshot.system.table_size(info) } else { None };
        let rows = rows.map(|size| i64::try_from(size.rows).unwrap_or(i64::MAX));
        let mut row = row![info.table.oid, schema, name];
        row.extend(std::iter::repeat_n(NULL, 8));
        row.extend(row![rows]);
        row.extend(std::iter::repeat_n(NULL, 11));
        sink.push(row);
    }
    Ok(())
}

/// Tables, of whose eight counters none is kept.
fn uncounted_tables(snapshot: &Snapshot, sink: &mut Sink<'_>) -> Result<(), SqlError> {
    for info in class::tables(snapshot) {
        let (schema, name) = name(snapshot, info);
        let mut row = row![info.table.oid, schema, name];
        row.extend(std::iter::repeat_n(NULL, 8));
        sink.push(row);
    }
    Ok(())
}

/// Calls `push` with the beginning of a row for each index.
fn each_index(snapshot: &Snapshot, mut push: impl FnMut(Vec<Value>)) {
    for info in class::tables(snapshot) {
        let (schema, name) = name(snapshot, info);
        for index in info.table.indexes.iter().filter(|index| index.oid != 0) {
            push(row![info.table.oid, index.oid, schema, name, &index.name]);
        }
    }
}

fn indexes(snapshot: &Snapshot, sink: &mut Sink<'_>) -> Result<(), SqlError> {
    each_index(snapshot, |mut row| {
        row.extend(std::iter::repeat_n(NULL, 3));
        sink.push(row);
    });
    Ok(())
}

fn io_indexes(snapshot: &Snapshot, sink: &mut Sink<'_>) -> Result<(), SqlError> {
    each_index(snapshot, |mut row| {
        row.extend(std::iter::repeat_n(NULL, 2));
        sink.push(row);
    });
    Ok(())
}
