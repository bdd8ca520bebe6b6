//! Statistics: replication, databases.

use std::time::Duration;

use freshet_engine::{
    FeedMode, Lsn, Safety,
    node::{LinkStatus, RoleStatus},
};
use freshet_sql::{
    SqlError, Value,
    types::{Interval, Numeric, Packed, Timestamp},
};

use super::{
    Generator,
    activity::Registry,
    sink::{Cell as _, NULL, Sink, row},
};
use crate::{
    relations::Snapshot,
    schema::{COMMON, Oid},
    statistics::{Cause, DatabaseSums},
};

/// The relations of this module.
pub(super) const RELATIONS: &[(&str, Generator)] = &[
    ("pg_stat_replication", pg_stat_replication),
    ("pg_stat_wal_receiver", pg_stat_wal_receiver),
    ("pg_stat_database", pg_stat_database),
    ("pg_stat_database_conflicts", pg_stat_database_conflicts),
    ("pg_stat_bgwriter", pg_stat_bgwriter),
    ("pg_stat_wal", pg_stat_wal),
    ("pg_stat_archiver", pg_stat_archiver),
];

/// An LSN as a value.
pub fn lsn(at: Lsn) -> Value {
    Value::Packed(Packed::lsn(at.0))
}

/// How long something is behind; nothing while it is not.
fn lag(of: Option<Duration>) -> Value {
    let micros = of.and_then(|lag| i64::try_from(lag.as_micros()).ok()).filter(|micros| *micros > 0);
    micros.map_or(Value::Null, |micros| Value::Interval(Interval { months: 0, days: 0, micros }))
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
            lag(standby.ack_lag),
            lag(standby.ack_lag),
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

/// A count, as PostgreSQL has them. One whose beginning was set while it was counted may be below
/// zero for a moment.
pub fn count(of: u64) -> i64 {
    (of as i64).max(0)
}

/// A time in milliseconds.
fn milliseconds(micros: u64) -> f64 {
    count(micros) as f64 / 1e3
}

/// What is counted of databases. The first row is that of what they share, which nobody is in.
fn pg_stat_database(snapshot: &Snapshot, sink: &mut Sink<'_>) -> Result<(), SqlError> {
    let sessions = snapshot.system.sessions();
    let sums = snapshot.system.registry().map(Registry::sums).unwrap_or_default();
    let mut push = |oid: Oid, name: Option<&str>| {
        let there = sessions.iter().filter(|it| name.is_some() && it.database_id == oid).count();
        let DatabaseSums { cells, sessions, session_micros, endings, rows, reset } =
            sums.get(&oid).cloned().unwrap_or_default();
        let aborts: u64 = Cause::ALL.iter().map(|cause| cells.aborts(*cause)).sum();
        let mut row = row![oid, name, i32::try_from(there).unwrap_or(i32::MAX), count(cells.commits()), count(aborts)];
        // Nothing is read from disks: each row that is met was there.
        row.extend(row![0i64, rows.read(), rows.read(), rows.fetched(), rows.inserted(), rows.updated()]);
        // Conflicts with recovery, temporary files and their bytes, which there are not.
        row.extend(row![rows.deleted(), 0i64, 0i64, 0i64, count(cells.deadlocks()), 0i64, NULL, 0f64, 0f64]);
        row.extend(
            [session_micros, cells.active_micros(), cells.idle_in_transaction_micros()]
                .map(|it| milliseconds(it).cell()),
        );
        row.extend([sessions, endings.abandoned, endings.fatal, endings.killed].map(|it| count(it).cell()));
        row.extend(row![reset]);
        sink.push(row);
    };
    push(COMMON, None);
    for database in snapshot.schema.databases() {
        push(database.oid, Some(&database.name));
    }
    Ok(())
}

/// Replay cancels no readers, so there are no conflicts.
fn pg_stat_database_conflicts(snapshot: &Snapshot, sink: &mut Sink<'_>) -> Result<(), SqlError> {
    for database in snapshot.schema.databases() {
        sink.push(row![database.oid, &database.name, 0i64, 0i64, 0i64, 0i64, 0i64]);
    }
    Ok(())
}

/// Checkpoints. There are no buffers that are written back.
fn pg_stat_bgwriter(snapshot: &Snapshot, sink: &mut Sink<'_>) -> Result<(), SqlError> {
    let checkpoint = snapshot.system.status().and_then(|status| status.checkpoint);
    let installed = checkpoint.map_or(0, |checkpoint| checkpoint.installed);
    // Who has asked for one is not kept.
    let mut row = row![count(installed), 0i64, 0f64, 0f64];
    row.extend(std::iter::repeat_n(Value::Int8(0), 6));
    row.extend(row![snapshot.system.started()]);
    sink.push(row);
    Ok(())
}

/// The log of a primary. A standby writes what it receives, which is counted where it is made.
fn pg_stat_wal(snapshot: &Snapshot, sink: &mut Sink<'_>) -> Result<(), SqlError> {
    let (bytes, batches) = match snapshot.system.status().map(|status| status.role) {
        Some(RoleStatus::Primary { log_bytes, batches, .. }) => (log_bytes, batches),
        _ => (0, 0),
    };
    let bytes = Value::Numeric(Numeric::from(count(bytes)));
    // Records are not counted; each group commit is a write and a sync.
    let mut row = row![NULL, 0i64, bytes, 0i64, count(batches), count(batches), 0f64, 0f64];
    row.extend(row![snapshot.system.started()]);
    sink.push(row);
    Ok(())
}

/// There is no archiver: an archive is a node that follows.
fn pg_stat_archiver(snapshot: &Snapshot, sink: &mut Sink<'_>) -> Result<(), SqlError> {
    sink.push(row![0i64, NULL, NULL, 0i64, NULL, NULL, snapshot.system.started()]);
    Ok(())
}
