//! `pg_stat_statements`: what statements took that differ in their literals alone.
//!
//! It is there without the extension, which is a name only. A statement's time ends when its client
//! is answered: it has what parsing and planning took, and a commit of its own.

use freshet_sql::{SqlError, Value, types::Numeric};

use super::{
    Generator,
    activity::Registry,
    sink::{Sink, row},
    statistics::count,
};
use crate::{relations::Snapshot, statistics::Query};

/// The relations of this module.
pub(super) const RELATIONS: &[(&str, Generator)] =
    &[("pg_stat_statements", pg_stat_statements), ("pg_stat_statements_info", pg_stat_statements_info)];

fn pg_stat_statements(snapshot: &Snapshot, sink: &mut Sink<'_>) -> Result<(), SqlError> {
    let Some(registry) = snapshot.system.registry() else { return Ok(()) };
    for Query { key, text, counts } in registry.queries() {
        if !sink.admits("userid", key.role) || !sink.admits("dbid", key.database) {
            continue;
        }
        // What others run is theirs to know, and superusers'.
        let open = snapshot.is_member(key.role);
        let milliseconds = |micros: u64| micros as f64 / 1e3;
        let mut row = row![key.role, key.database, true, open.then_some(key.id)];
        row.extend(row![if open { text } else { "<insufficient privilege>".into() }]);
        // Plans are part of the whole, and not timed by themselves.
        row.extend(row![0i64, 0f64, 0f64, 0f64, 0f64, 0f64, count(counts.calls), milliseconds(counts.micros)]);
        row.extend(row![milliseconds(counts.least), milliseconds(counts.most), counts.mean(), counts.deviation()]);
        row.extend(row![count(counts.rows)]);
        // There are no blocks.
        row.extend(std::iter::repeat_n(Value::Int8(0), 10));
        row.extend(std::iter::repeat_n(Value::Float8(0.0), 4));
        row.extend(row![0i64, 0i64, Value::Numeric(Numeric::from(0))]);
        // Nothing is compiled.
        row.extend(row![0i64, 0f64, 0i64, 0f64, 0i64, 0f64, 0i64, 0f64]);
        sink.push(row);
    }
    Ok(())
}

fn pg_stat_statements_info(snapshot: &Snapshot, sink: &mut Sink<'_>) -> Result<(), SqlError> {
    let (evictions, reset) = snapshot.system.registry().map(Registry::evictions).unwrap_or_default();
    let reset = reset.unwrap_or_else(|| snapshot.system.started());
    sink.push(row![count(evictions), reset]);
    Ok(())
}
