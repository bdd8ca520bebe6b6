//! Another table of the engine for a table's rows; and looking through all rows.
//!
//! The engine's tables stay as they were made. When rows are to lie otherwise, or to have other
//! indexes, or to be gone at once, they get another one: it is made, filled, and named in the
//! catalog's entry in place of the one before. Until that is committed nobody else knows of it, so
//! it is filled by small transactions of a worker of its own, and large tables fit small logs. What
//! the session's transaction has written itself is copied, too. Its lock keeps everybody else from
//! writing in the meantime.

use std::{
    ops::{Bound, ControlFlow},
    sync::Arc,
};

use freshet_engine::{CommitError, Direction, Isolation, ProcedureError, Record, Rid, Worker, WriteError};
use freshet_sql::{SqlError, SqlState, types::text};

use super::{
    create_table::ensure_first_index,
    work::{Step, Work, error},
};
use crate::{
    error::{commit_error, read_error, write_error},
    expression::{Expression, Source},
    schema::{Table, TableInfo, relation},
};

/// How many bytes of rows, and how many rows, one transaction writes at most.
const BATCH_BYTES: usize = 64 << 10;
const BATCH_ROWS: usize = 512;
/// How many rows are looked at between two looks whether the statement is to end.
const LOOK_EVERY: usize = 256;

/// Where a column's new value comes from.
pub(super) enum Fill {
    /// From an expression on the row before.
    Expression(Expression),
    /// It is an id that no other row has.
    RowId,
}

/// Rows on their way into a new table of the engine.
struct Batch<'w> {
    worker: &'w Worker,
    info: &'w TableInfo,
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

impl Batch<'_> {
    fn is_full(&self) -> bool {
        self.bytes.len() >= BATCH_BYTES || self.ends.len() >= BATCH_ROWS
    }

    fn flush(&mut self) -> Result<(), SqlError> {
        self.write(0, self.ends.len())?;
        self.bytes.clear();
        self.ends.clear();
        Ok(())
    }

    fn row(&self, number: usize) -> &[u8] {
        let from = number.checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.bytes[from..self.ends[number]]
    }

    fn write(&self, from: usize, to: usize) -> Result<(), SqlError> {
        if from == to {
            return Ok(());
        }
        let mut failed = from;
        let written = self.worker.execute(Isolation::Snapshot, |transaction| {
            for number in from..to {
                failed = number;
                transaction.insert(&self.info.rows, self.row(number))?;
            }
            Ok(())
        });
        match written {
            Ok(_) => Ok(()),
            // Not even that fits the log's buffer.
            Err(ProcedureError::Commit(CommitError::TooLarge(_))) if to - from > 1 => {
                let middle = from + (to - from) / 2;
                self.write(from, middle)?;
                self.write(middle, to)
            }
            Err(ProcedureError::Commit(cause)) => Err(commit_error(cause)),
            Err(ProcedureError::Write(cause)) => Err(not_copied(cause, self.info, self.row(failed))),
            Err(other) => Err(SqlError::new(SqlState::SYSTEM_ERROR, other.to_string())),
        }
    }
}

/// Why a row did not get into a new table.
pub(super) fn not_copied(cause: WriteError, info: &TableInfo, row: &[u8]) -> SqlError {
    let index = match cause {
        WriteError::UniqueViolation { index } => index,
        WriteError::Row { .. } => {
            let message =
                format!("a row of table \"{}\", or a key of one of its indexes, is too long", info.table.name);
            return error(SqlState::PROGRAM_LIMIT_EXCEEDED, message);
        }
        other => return write_error(other),
    };
    let message = format!("could not create unique index \"{index}\"");
    let failure = error(SqlState::UNIQUE_VIOLATION, message).with_constraint(index.clone());
    let Some(known) = info.table.indexes.iter().find(|known| known.name == index) else { return failure };
    let context = freshet_sql::types::EvalContext::default();
    let (mut names, mut values) = (Vec::new(), Vec::new());
    for part in &known.columns {
        let number = usize::from(part.column);
        let column = &info.table.columns[number];
        let mut shown = String::new();
        match info.layout.get(row, number) {
            Ok(value) if !value.is_null() => text::output_as(column.ty.kind(), value, &context, &mut shown),
            _ => shown.push_str("null"),
        }
        names.push(info.shown_column(part.column, true));
        values.push(shown);
    }
    failure.with_detail(format!("Key ({})=({}) is duplicated.", names.join(", "), values.join(", ")))
}

impl Work<'_, '_, '_> {
    /// Looks at all rows of a table.
    pub(super) fn scan(
        &self,
        info: &TableInfo,
        mut look: impl FnMut(&[u8], Rid) -> Result<(), SqlError>,
    ) -> Result<(), SqlError> {
        let mut failure = None;
        let mut count = 0;
        let visit = |_: &[u8], record: Record<'_>| {
            count += 1;
            let asked = if count % LOOK_EVERY == 0 { (self.ddl.interrupted)() } else { Ok(()) };
            match asked.and_then(|()| look(record.row, record.rid)) {
                Ok(()) => ControlFlow::Continue(()),
                Err(error) => {
                    let error = self.schema().concerning(&info.table, error);
                    failure = Some(error);
                    ControlFlow::Break(())
                }
            }
        };
        let all = (Bound::Unbounded, Bound::Unbounded);
        self.ddl.transaction.scan(&info.rows, 0, all, Direction::Forward, visit).map_err(read_error)?;
        failure.map_or(Ok(()), Err)
    }

    /// Fails unless all rows have values in these columns, and fulfil these conditions.
    pub(super) fn validate(
        &mut self,
        info: &Arc<TableInfo>,
        not_null: &[usize],
        checks: &[(String, Expression)],
    ) -> Result<(), SqlError> {
        if not_null.is_empty() && checks.is_empty() {
            return Ok(());
        }
        self.see_everything();
        let view = self.view();
        let environment = self.environment(&view);
        self.scan(info, |row, rid| {
            for column in not_null {
                if info.layout.get(row, *column)?.is_null() {
                    return Err(contains_nulls(&info.table, *column));
                }
            }
            let source = [Source::Stored(&info.layout, row, rid)];
            for (name, condition) in checks {
                if condition.evaluate(&source, &environment)?.as_bool() == Some(false) {
                    return Err(violated(name, &info.table));
                }
            }
            Ok(())
        })
    }

    /// Puts a table's rows into another table of the engine, as the catalog's new entry `new` wants
    /// them; some columns get values from elsewhere. Rows must fulfil what the new entry demands.
    pub(super) fn rewrite(
        &mut self,
        old: &Arc<TableInfo>,
        mut new: Table,
        mut fills: Vec<(usize, Fill)>,
    ) -> Step<Arc<TableInfo>> {
        self.lock(new.oid)?;
        ensure_first_index(&mut new);
        let hidden = new.columns.iter().position(|column| column.is_row_id() && !column.dropped);
        if let Some(number) = hidden
            && old.table.columns.get(number).is_none_or(|before| before.dropped)
        {
            fills.push((number, Fill::RowId));
        }
        for column in &mut new.columns {
            // All rows will have a value.
            column.missing = None;
        }
        let mut checks = Vec::new();
        if fills.iter().any(|(_, fill)| matches!(fill, Fill::Expression(_))) {
            for check in &new.checks {
                let condition = crate::bind::modify::parse_expression(&check.condition)?;
                checks.push((check.name.clone(), self.check_condition(&condition, &new)?.1));
            }
        }
        self.ddl.effects.touch_rows(self.ddl.catalog, &old.table.rows);
        self.make_rows(&mut new)?;
        let missing = || SqlError::internal("a table of the engine was made and is not there");
        let rows = self.ddl.catalog.database().table(&new.rows).ok_or_else(missing)?;
        let target = TableInfo::new(new.clone(), rows)?;
        self.see_everything();
        self.copy(old, &target, &fills, &checks)?;
        // What the copy has committed is newer than the snapshot.
        self.see_everything();
        Ok(self.put_table(new)?)
    }

    /// Copies rows into a new table of the engine.
    pub(super) fn copy(
        &self,
        old: &TableInfo,
        target: &TableInfo,
        fills: &[(usize, Fill)],
        checks: &[(String, Expression)],
    ) -> Result<(), SqlError> {
        let view = self.view();
        let environment = self.environment(&view);
        let new_not_null: Vec<usize> = target
            .table
            .columns
            .iter()
            .enumerate()
            .filter(|(_, column)| column.not_null && !column.dropped)
            .map(|(number, _)| number)
            .collect();
        // Rows that would be the same are copied as they are.
        let same = fills.is_empty() && same_layout(&old.table, &target.table);
        let serializable = self.ddl.transaction.isolation() == Isolation::Serializable;
        let worker = self.ddl.catalog.database().worker();
        let worker = worker.map_err(|cause| error(SqlState::TOO_MANY_CONNECTIONS, cause.to_string()))?;
        let mut batch = Batch { worker: &worker, info: target, bytes: Vec::new(), ends: Vec::new() };
        let mut own = Vec::new();
        self.scan(old, |row, rid| {
            let start = batch.bytes.len();
            if same && old.layout.is_current(row) {
                batch.bytes.extend_from_slice(row);
            } else {
                let mut values = old.layout.decode(row)?;
                values.resize(target.table.columns.len(), freshet_sql::Value::Null);
                for (number, column) in target.table.columns.iter().enumerate() {
                    if column.dropped {
                        values[number] = freshet_sql::Value::Null;
                    }
                }
                let source = [Source::Stored(&old.layout, row, rid)];
                for (number, fill) in fills {
                    values[*number] = match fill {
                        Fill::Expression(expression) => expression.evaluate(&source, &environment)?,
                        Fill::RowId => self.ddl.row_ids.take(),
                    };
                }
                target.compute(&mut values, &environment)?;
                target.layout.encode(&values, &mut batch.bytes)?;
            }
            let row = &batch.bytes[start..];
            for column in &new_not_null {
                if target.layout.get(row, *column)?.is_null() {
                    return Err(contains_nulls(&target.table, *column));
                }
            }
            let source = [Source::Stored(&target.layout, row, rid)];
            for (name, condition) in checks {
                if condition.evaluate(&source, &environment)?.as_bool() == Some(false) {
                    return Err(violated(name, &target.table));
                }
            }
            if serializable {
                // Its snapshot cannot be renewed, so it would not see what another transaction has
                // written.
                own.push(batch.bytes.split_off(start));
                return Ok(());
            }
            batch.ends.push(batch.bytes.len());
            if batch.is_full() { batch.flush() } else { Ok(()) }
        })?;
        batch.flush().map_err(|error| self.schema().concerning(&target.table, error))?;
        for row in own {
            let inserted = self.ddl.transaction.insert(&target.rows, &row);
            let refused = |cause| self.schema().concerning(&target.table, not_copied(cause, target, &row));
            inserted.map(drop).map_err(refused)?;
        }
        Ok(())
    }

    /// An empty table of the engine in the place of a table's rows.
    pub(super) fn empty(&mut self, info: &Arc<TableInfo>) -> Step<Arc<TableInfo>> {
        let mut new = info.table.clone();
        for column in &mut new.columns {
            column.missing = None;
        }
        self.ddl.effects.touch_rows(self.ddl.catalog, &new.rows);
        self.make_rows(&mut new)?;
        Ok(self.put_table(new)?)
    }
}

/// Whether rows of the one table lie as rows of the other do.
fn same_layout(one: &Table, other: &Table) -> bool {
    one.columns.len() == other.columns.len()
        && one
            .columns
            .iter()
            .zip(&other.columns)
            .all(|(one, other)| (one.ty, one.dropped, &one.computed) == (other.ty, other.dropped, &other.computed))
        && relation::layout(one).is_ok()
}

fn contains_nulls(table: &Table, column: usize) -> SqlError {
    let name = &table.columns[column].name;
    let message = format!("column \"{name}\" of relation \"{}\" contains null values", table.name);
    error(SqlState::NOT_NULL_VIOLATION, message).with_column(name.clone())
}

fn violated(check: &str, table: &Table) -> SqlError {
    let message = format!("check constraint \"{check}\" of relation \"{}\" is violated by some row", table.name);
    error(SqlState::CHECK_VIOLATION, message).with_constraint(check.to_owned())
}
