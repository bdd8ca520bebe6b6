//! Functions over what is counted.

use freshet_sql::{SqlError, SqlState, Value, functions::SessionFunction as F};

use super::Arguments;
use crate::{
    relations::Snapshot,
    statistics::{Cause, RelationCounts},
    system::{activity::Registry, class, relation_statistics, statistics::count},
};

/// Calls one of them; nothing when it is none.
///
/// # Errors
/// 42501, 22023.
pub(super) fn call(snapshot: &Snapshot, function: F, given: Arguments<'_>) -> Result<Option<Value>, SqlError> {
    Ok(match function {
        F::ResetStatistics => Some(reset(snapshot, function, Registry::reset)?),
        F::ResetRelation => {
            let relation = given.oid(0);
            Some(reset(snapshot, function, |all, database| all.reset_relation(database, relation))?)
        }
        F::ResetShared => {
            let known = ["archiver", "bgwriter", "checkpointer", "io", "recovery_prefetch", "wal"];
            if !known.contains(&given.text(0)) {
                let message = format!("unrecognized reset target: \"{}\"", given.text(0));
                let error = SqlError::new(SqlState::INVALID_PARAMETER_VALUE, message);
                return Err(
                    error.with_hint("Target must be \"archiver\", \"bgwriter\", \"recovery_prefetch\", or \"wal\".")
                );
            }
            Some(reset(snapshot, function, |_, _| ())?)
        }
        F::ResetStatements => {
            let (role, database) = (Some(given.oid(0)), Some(given.oid(1)));
            let some = |oid: Option<u32>| oid.filter(|oid| *oid != 0);
            let id = Some(given.number(2)).filter(|id| *id != 0);
            let which = (some(role), some(database), id);
            Some(reset(snapshot, function, |all, _| all.forget_queries(which))?)
        }
        F::ClearStatistics | F::FlushStatistics => Some(Value::text("")),
        _ => of_relation(snapshot, function, given).or_else(|| of_database(snapshot, function, given)),
    })
}

/// Does what only superusers may.
///
/// # Errors
/// 42501.
fn reset(snapshot: &Snapshot, function: F, how: impl FnOnce(&Registry, u32)) -> Result<Value, SqlError> {
    snapshot.superusers_only(&format!("function {}", function.name()))?;
    if let Some(all) = snapshot.system.registry() {
        how(all, snapshot.schema.database);
    }
    Ok(Value::text(""))
}

/// What is counted of a table or an index.
fn of_relation(snapshot: &Snapshot, function: F, given: Arguments<'_>) -> Option<Value> {
    let number: fn(&RelationCounts) -> i64 = match function {
        F::NumberOfScans => RelationCounts::scans,
        F::TuplesReturned => RelationCounts::read,
        F::TuplesFetched => RelationCounts::fetched,
        F::TuplesInserted => RelationCounts::inserted,
        F::TuplesUpdated => RelationCounts::updated,
        F::TuplesDeleted => RelationCounts::deleted,
        F::TuplesInPlace => RelationCounts::updated_in_place,
        F::SinceAnalyze => RelationCounts::written,
        _ => return None,
    };
    let there = class::by_oid(snapshot, given.oid(0)).is_some();
    let counts = relation_statistics::counts(snapshot).get(&given.oid(0)).copied().unwrap_or_default();
    Some(Value::Int8(if there { number(&counts) } else { 0 }))
}

/// What is counted of a database.
fn of_database(snapshot: &Snapshot, function: F, given: Arguments<'_>) -> Option<Value> {
    let database = given.oid(0);
    if function == F::DatabaseBackends {
        let there = snapshot.system.sessions().iter().filter(|it| it.database_id == database).count();
        return Some(Value::Int4(i32::try_from(there).unwrap_or(i32::MAX)));
    }
    let sums =
        || snapshot.system.registry().map(Registry::sums).unwrap_or_default().remove(&database).unwrap_or_default();
    Some(Value::Int8(count(match function {
        F::DatabaseCommits => sums().cells.commits(),
        F::DatabaseRollbacks => {
            let cells = sums().cells;
            Cause::ALL.iter().map(|cause| cells.aborts(*cause)).sum()
        }
        F::DatabaseDeadlocks => sums().cells.deadlocks(),
        _ => return None,
    })))
}
