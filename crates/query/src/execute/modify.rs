//! INSERT, UPDATE and DELETE.
//!
//! The rows that a statement changes are found first, so that it never meets what it has written
//! itself.

use std::sync::Arc;

use freshet_engine::{Record, Rid, RowLock, WriteError};
use freshet_sql::{
    SqlError, SqlState, Value,
    locking::{RowMark, WhenLocked},
    memory::{Pool, Reservation},
};

use super::{
    Run, Sink,
    measure::{Place, Probe},
    referential::RowChange,
    scan::{ON, Rows},
    violation::too_long,
    write::{TRIES, Written},
};
use crate::{
    bind::{
        modify::{
            ColumnSource, ConflictPlan, ConflictUpdate, Constraints, DeletePlan, InsertPlan, RowSource, Targets,
            UpdatePlan,
        },
        select::{Output, ScanPlan},
    },
    error::{read_error, write_error},
    expression::{Environment, Expression, Source},
    schema::TableInfo,
    statistics::Tally,
};

/// Collects the rows of a query.
#[derive(Debug, Default)]
pub struct Collected(pub Vec<Vec<Value>>, pub Option<Reservation>);

impl Collected {
    /// What they take is taken from this pool.
    pub fn within(pool: &Arc<Pool>) -> Self {
        Self(Vec::new(), Some(pool.reserve()))
    }

    fn keep(&mut self, row: Vec<Value>) -> Result<std::ops::ControlFlow<()>, SqlError> {
        if let Some(kept) = &self.1 {
            kept.take_values(&row)?;
        }
        self.0.push(row);
        ON
    }
}

impl Sink for Collected {
    fn row(
        &mut self,
        output: &[Output],
        rows: &[Source<'_>],
        environment: &Environment<'_>,
    ) -> Result<std::ops::ControlFlow<()>, SqlError> {
        let values = output.iter().map(|output| output.expression.evaluate(rows, environment));
        self.keep(values.collect::<Result<_, _>>()?)
    }

    fn values(&mut self, values: &[Value]) -> Result<std::ops::ControlFlow<()>, SqlError> {
        self.keep(values.to_vec())
    }
}

impl<'a> Run<'a, '_> {
    /// Runs an INSERT. Returns how many rows were added or changed.
    ///
    /// # Errors
    /// What goes wrong in reading, in expressions, in the sink; 23502, 23505, 23514.
    pub fn insert<P: Probe>(&self, plan: &'a InsertPlan, sink: &mut dyn Sink, probe: P) -> Result<u64, SqlError> {
        let mut collected = Collected::within(&self.memory);
        let casts = match &plan.source {
            RowSource::Values(rows) => {
                let mut count = 0;
                for row in rows {
                    probe.rows(Place::Result, 1);
                    let mut values = Vec::with_capacity(row.len());
                    for (place, value) in row.iter().enumerate() {
                        let expression = value.as_ref().unwrap_or(&plan.defaults[place]);
                        values.push(expression.evaluate(&[], &self.environment)?);
                    }
                    count += self.insert_row(plan, &values, sink)?;
                }
                return Ok(count);
            }
            RowSource::Query(query, casts) => {
                self.select(query, &mut collected, probe)?;
                casts
            }
            RowSource::General(query, casts) => {
                self.general(query, &mut collected)?;
                casts
            }
        };
        let mut count = 0;
        for row in collected.0 {
            let cast = casts.iter().map(|cast| cast.evaluate(&[Source::Values(&row)], &self.environment));
            count += self.insert_row(plan, &cast.collect::<Result<Vec<_>, _>>()?, sink)?;
        }
        Ok(count)
    }

    /// Adds a row; the statement says `given` of it.
    ///
    /// # Errors
    /// As for [`Run::insert`].
    pub fn insert_row(&self, plan: &'a InsertPlan, given: &[Value], sink: &mut dyn Sink) -> Result<u64, SqlError> {
        self.step()?;
        let info = &plan.table;
        let mut values = Vec::with_capacity(plan.columns.len());
        for source in &plan.columns {
            values.push(match source {
                ColumnSource::Given(place) => given.get(usize::from(*place)).cloned().unwrap_or(Value::Null),
                ColumnSource::Default(expression) => expression.evaluate(&[], &self.environment)?,
                ColumnSource::Null => Value::Null,
                ColumnSource::RowId => self.row_ids.take(),
            });
        }
        self.check(info, &plan.constraints, Source::Values(&values))?;
        info.compute(&mut values, &self.environment)?;
        let mut row = Vec::new();
        info.layout.encode(&values, &mut row)?;
        let mut tries = 0;
        loop {
            let inserted = match &plan.conflict {
                None => self.transaction.insert(&info.rows, &row),
                Some(conflict) => self.transaction.insert_arbitrated(&info.rows, &row, &conflict.numbers),
            };
            if let Some(conflict) = &plan.conflict
                && let Some(refused) = &conflict.refused
            {
                let decided = matches!(&inserted, Err(WriteError::UniqueViolation { index })
                    if info.index_named(index).is_some_and(|number| conflict.arbiters.contains(&number)));
                if !decided && !matches!(inserted, Err(WriteError::Conflict)) {
                    let message =
                        "ON CONFLICT does not support deferrable unique constraints/exclusion constraints as arbiters";
                    let error = SqlError::new(SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE, message);
                    return Err(self.concerning(&info.table, error.with_constraint(refused.clone())));
                }
            }
            let violated = match inserted {
                Ok(rid) => {
                    self.count_inserted(plan, rid)?;
                    if let Some(output) = &plan.returning {
                        let _ = sink.row(output, &[Source::Stored(&info.layout, &row, rid)], &self.environment)?;
                    }
                    self.note_change(info, None, Some((&row, rid)))?;
                    return Ok(1);
                }
                Err(WriteError::Conflict) => {
                    self.wait_for_holder()?;
                    if self.read_committed {
                        self.transaction.refresh();
                    } else {
                        // The row that had the key may have given it up. If not, this transaction
                        // is too late.
                        tries += 1;
                        if tries > TRIES {
                            return Err(write_error(WriteError::Conflict));
                        }
                    }
                    continue;
                }
                Err(WriteError::UniqueViolation { index }) => index,
                Err(WriteError::Row { .. }) => return Err(too_long(info)),
                Err(other) => return Err(write_error(other)),
            };
            let number = info.index_named(&violated);
            let Some(conflict) = &plan.conflict else { return Err(self.taken(info, &violated, &row)) };
            let Some(number) = number.filter(|number| conflict.arbiters.contains(number)) else {
                return Err(self.duplicate(info, &violated, &row));
            };
            match self.conflicting(plan, conflict, number, &row, &values, sink)? {
                Some(count) => return Ok(count),
                None => continue,
            }
        }
    }

    /// What ON CONFLICT says of a row whose key is taken. Nothing when the key may be free again.
    fn conflicting(
        &self,
        plan: &'a InsertPlan,
        conflict: &ConflictPlan,
        index: usize,
        row: &[u8],
        values: &[Value],
        sink: &mut dyn Sink,
    ) -> Result<Option<u64>, SqlError> {
        let Some(ConflictUpdate { assignments, condition }) = &conflict.update else {
            if !self.read_committed && !self.is_again() && self.transaction.violated_since() {
                // Doing nothing would tell of a row that the transaction must not see.
                return Err(write_error(WriteError::Conflict));
            }
            return Ok(Some(0));
        };
        let info = &plan.table;
        let mut key = self.take_key();
        for (part, column) in info.keys[index].iter().zip(&info.table.indexes[index].columns) {
            part.append_key(info.layout.get(row, usize::from(column.column))?, &mut key)?;
        }
        let found = self.look_up(info, index, &key)?;
        self.give_key(key);
        let Some(record) = found else {
            // It was committed since the snapshot.
            if self.read_committed {
                self.transaction.refresh();
                return Ok(None);
            }
            return Err(write_error(WriteError::Conflict));
        };
        if self.upserted.borrow().contains(&record.rid) {
            let message = "ON CONFLICT DO UPDATE command cannot affect row a second time";
            let hint = "Ensure that no rows proposed for insertion within the same command have duplicate \
                        constrained values.";
            return Err(SqlError::new(SqlState::CARDINALITY_VIOLATION, message).with_hint(hint));
        }
        let excluded = Source::Values(values);
        let lock = info.lock_to_change(assignments.iter().map(|(column, _)| *column));
        match self.lock_row(info, record.rid, RowMark { lock, when: WhenLocked::Wait })? {
            Written::Done(()) => {}
            Written::Changed | Written::Gone | Written::Held => {
                if self.read_committed {
                    self.transaction.refresh();
                }
                return Ok(None);
            }
        }
        let there = Source::Stored(&info.layout, record.row, record.rid);
        let rows = [there, excluded];
        if let Some(condition) = condition
            && !condition.holds(&rows, &self.environment)?
        {
            return Ok(Some(0));
        }
        let new = self.changed(info, assignments, &plan.constraints, &rows, record.row)?;
        let rid = self.put(info, record.rid, &new)?;
        self.note_upserted(plan, rid)?;
        self.note_change(info, Some((record.row, record.rid)), Some((&new, rid)))?;
        if let Some(output) = &plan.returning {
            let _ = sink.row(output, &[Source::Stored(&info.layout, &new, rid)], &self.environment)?;
        }
        Ok(Some(1))
    }

    /// A row was added.
    fn count_inserted(&self, plan: &InsertPlan, rid: Rid) -> Result<(), SqlError> {
        self.count_write(&plan.table, Tally::inserted);
        self.note_upserted(plan, rid)
    }

    /// The error for a row whose key is taken. By then PostgreSQL has added it.
    fn taken(&self, info: &TableInfo, index: &str, row: &[u8]) -> SqlError {
        self.count_write(info, Tally::inserted);
        self.duplicate(info, index, row)
    }

    /// The row with a key.
    fn look_up(&self, info: &'a TableInfo, index: usize, key: &[u8]) -> Result<Option<Record<'a>>, SqlError> {
        let found = self.transaction.get(&info.rows, info.index_number(index), key).map_err(read_error)?;
        self.count_lookup(info, index, 1, u64::from(found.is_some()));
        Ok(found)
    }

    /// Remembers a row that an INSERT … ON CONFLICT DO UPDATE of several rows has written: it must
    /// not come to the same one again.
    fn note_upserted(&self, plan: &InsertPlan, rid: Rid) -> Result<(), SqlError> {
        let one = matches!(&plan.source, RowSource::Values(rows) if rows.len() == 1);
        if !one && plan.conflict.as_ref().is_some_and(|conflict| conflict.update.is_some()) {
            self.kept.take(2 * size_of::<Rid>())?;
            self.upserted.borrow_mut().insert(rid);
        }
        Ok(())
    }

    /// A row with new values in some columns, checked.
    pub(super) fn changed(
        &self,
        info: &Arc<TableInfo>,
        assignments: &[(usize, Expression)],
        constraints: &Constraints,
        rows: &[Source<'_>],
        old: &[u8],
    ) -> Result<Vec<u8>, SqlError> {
        let changes = assignments
            .iter()
            .map(|(column, expression)| Ok((*column, expression.evaluate(rows, &self.environment)?)))
            .collect::<Result<smallvec::SmallVec<[(usize, Value); 4]>, SqlError>>()?;
        let mut new = Vec::with_capacity(old.len() + 32);
        info.layout.rewrite(old, &changes, &mut new)?;
        for (column, value) in &changes {
            if value.is_null() && constraints.not_null.contains(column) {
                return Err(self.null_in(info, *column, constraints, Source::Stored(&info.layout, &new, Rid(0))));
            }
        }
        self.check_conditions(info, constraints, Source::Stored(&info.layout, &new, Rid(0)))?;
        let is_changed = |column| changes.iter().any(|(changed, _)| *changed == usize::from(column));
        info.recompute(new, is_changed, &self.environment)
    }

    /// Remembers what has become of a row, if there are references or keys to keep.
    ///
    /// # Errors
    /// 53200.
    fn note_change(
        &self,
        info: &Arc<TableInfo>,
        old: Option<(&[u8], Rid)>,
        new: Option<(&[u8], Rid)>,
    ) -> Result<(), SqlError> {
        if !info.deferrable_keys.is_empty() || self.has_references(info) {
            let rows = [old, new].iter().flatten().map(|(row, _)| row.len()).sum::<usize>();
            self.kept.take(size_of::<RowChange>() + rows)?;
            let [old, new] = [old, new].map(|at| at.map(|(row, rid)| (row.to_vec(), rid)));
            let change = self.row_change(info, old, new)?;
            self.changes.borrow_mut().push(change);
        }
        Ok(())
    }

    /// The end of a statement that has changed rows: sees to references.
    ///
    /// # Errors
    /// 23503, and what goes wrong in reading and writing.
    pub fn finish(&self) -> Result<(), SqlError> {
        let changes = self.changes.take();
        if changes.is_empty() { Ok(()) } else { self.keep_references(changes) }
    }

    /// Puts a new row in the place of one that this transaction may write.
    fn put(&self, info: &TableInfo, rid: Rid, new: &[u8]) -> Result<Rid, SqlError> {
        loop {
            let mut refused = None;
            let written =
                self.write(WhenLocked::Wait, |transaction| match transaction.update(&info.rows, rid, new) {
                    Err(error @ (WriteError::UniqueViolation { .. } | WriteError::Row { .. })) => {
                        refused = Some(error);
                        Ok(rid)
                    }
                    other => other,
                })?;
            return match (refused, written) {
                (Some(WriteError::UniqueViolation { index }), _) => Err(self.duplicate(info, &index, new)),
                (Some(_), _) => Err(too_long(info)),
                (None, Written::Done(now)) => {
                    self.count_update(info, rid, now);
                    Ok(now)
                }
                (None, Written::Changed) => {
                    // Not the row, but who has, or had, the key that it gets.
                    self.transaction.refresh();
                    continue;
                }
                (None, Written::Gone | Written::Held) => Err(SqlError::internal("a locked row is gone")),
            };
        }
    }

    fn check(&self, info: &TableInfo, constraints: &Constraints, row: Source<'_>) -> Result<(), SqlError> {
        for column in &constraints.not_null {
            if crate::expression::column(&[row], 0, *column as u16)?.is_null() {
                return Err(self.null_in(info, *column, constraints, row));
            }
        }
        self.check_conditions(info, constraints, row)
    }

    fn check_conditions(&self, info: &TableInfo, constraints: &Constraints, row: Source<'_>) -> Result<(), SqlError> {
        for (name, condition) in &constraints.checks {
            if condition.evaluate(&[row], &self.environment)?.as_bool() == Some(false) {
                let table = &info.table.name;
                let message = format!("new row for relation \"{table}\" violates check constraint \"{name}\"");
                let error = SqlError::new(SqlState::CHECK_VIOLATION, message);
                let error = self.concerning(&info.table, error.with_constraint(name.clone()));
                return Err(self.with_failing(error, info, constraints, row));
            }
        }
        Ok(())
    }

    /// The rows that a statement changes, as they are when it begins.
    fn targets<P: Probe>(&self, scan: &'a ScanPlan, probe: P) -> Result<Vec<Record<'a>>, SqlError> {
        let mut found = Vec::new();
        probe.begins(Place::Scan(0));
        let flow = probe.within(Place::Scan(0), || {
            self.scan(scan, &mut Rows::new(), &mut |_, record| {
                probe.rows(Place::Scan(0), 1);
                self.kept.take(size_of::<Record<'_>>())?;
                found.push(record);
                ON
            })
        });
        flow.map(|_| found)
    }

    /// Runs an UPDATE. Returns how many rows were changed.
    ///
    /// # Errors
    /// What goes wrong in reading, in expressions, in the sink; 23502, 23505, 23514; 40001, 40P01,
    /// 55P03.
    pub fn update<P: Probe>(&self, plan: &'a UpdatePlan, sink: &mut dyn Sink, probe: P) -> Result<u64, SqlError> {
        let lock = || plan.table.lock_to_change(plan.assignments.iter().map(|(column, _)| *column));
        let one = |rid, old: &[u8], given: &[Value]| self.update_row(plan, rid, old, given, sink);
        self.change(&plan.table, &plan.targets, lock, one, probe)
    }

    /// Runs a DELETE. Returns how many rows were deleted.
    ///
    /// # Errors
    /// As for [`Run::update`].
    pub fn delete<P: Probe>(&self, plan: &'a DeletePlan, sink: &mut dyn Sink, probe: P) -> Result<u64, SqlError> {
        let lock = || RowLock::Update;
        let one = |rid, old: &[u8], given: &[Value]| self.delete_row(plan, rid, old, given, sink);
        self.change(&plan.table, &plan.targets, lock, one, probe)
    }

    /// Changes each of the rows that a statement is for with `one`; those that a general query
    /// finds are locked before, as `lock` says. Returns how many.
    fn change<P: Probe>(
        &self,
        info: &TableInfo,
        targets: &'a Targets,
        lock: impl FnOnce() -> RowLock,
        mut one: impl FnMut(Rid, &[u8], &[Value]) -> Result<Written<()>, SqlError>,
        probe: P,
    ) -> Result<u64, SqlError> {
        let mut count = 0;
        match targets {
            Targets::Scan(scan) => {
                let fits = |record: Record<'_>| match &scan.conditions {
                    Some(conditions) => {
                        let row = Source::Stored(&scan.table.layout, record.row, record.rid);
                        conditions.holds(&[row], &self.environment)
                    }
                    None => Ok(true),
                };
                for found in self.targets(scan, probe)? {
                    self.step()?;
                    let written = self.write_found(info, found, fits, |record| one(record.rid, record.row, &[]))?;
                    count += u64::from(written == Written::Done(()));
                }
            }
            Targets::Current(cursor) => {
                let rid = self.environment.session.current_of(cursor, &info.table)?;
                // What has become of the row since, it is the one.
                if let Some(found) = self.transaction.follow_anywhere(&info.rows, rid).map_err(read_error)? {
                    let written =
                        self.write_found(info, found, |_| Ok(true), |record| one(record.rid, record.row, &[]))?;
                    count += u64::from(written == Written::Done(()));
                }
            }
            Targets::Found(query) => {
                for (rid, given) in self.found(info, query, lock())? {
                    self.step()?;
                    let Some(record) = self.transaction.read(&info.rows, rid).map_err(read_error)? else { continue };
                    match one(rid, record.row, &given)? {
                        Written::Done(()) => count += 1,
                        Written::Gone => {}
                        Written::Changed | Written::Held => {
                            return Err(SqlError::internal("a locked row was changed by another transaction"));
                        }
                    }
                }
            }
        }
        Ok(count)
    }

    fn update_row(
        &self,
        plan: &UpdatePlan,
        rid: Rid,
        old: &[u8],
        given: &[Value],
        sink: &mut dyn Sink,
    ) -> Result<Written<()>, SqlError> {
        let info = &plan.table;
        let rows = [Source::Stored(&info.layout, old, rid), Source::Values(given)];
        let new = self.changed(info, &plan.assignments, &plan.constraints, &rows, old)?;
        let mut violated = None;
        let written = self.write(WhenLocked::Wait, |transaction| match transaction.update(&info.rows, rid, &new) {
            Err(WriteError::UniqueViolation { index }) => {
                violated = Some(index);
                Ok(rid)
            }
            other => other,
        })?;
        if let Some(index) = violated {
            return Err(self.duplicate(info, &index, &new));
        }
        let before = rid;
        let rid = match written {
            Written::Done(rid) => {
                self.count_update(info, before, rid);
                rid
            }
            Written::Changed => return Ok(Written::Changed),
            Written::Gone => return Ok(Written::Gone),
            Written::Held => return Ok(Written::Held),
        };
        self.note_change(info, Some((old, before)), Some((&new, rid)))?;
        if let Some(output) = &plan.returning {
            let rows = [Source::Stored(&info.layout, &new, rid), Source::Values(given)];
            let _ = sink.row(output, &rows, &self.environment)?;
        }
        Ok(Written::Done(()))
    }

    fn delete_row(
        &self,
        plan: &DeletePlan,
        rid: Rid,
        old: &[u8],
        given: &[Value],
        sink: &mut dyn Sink,
    ) -> Result<Written<()>, SqlError> {
        let info = &plan.table;
        let written = self.write(WhenLocked::Wait, |transaction| transaction.delete(&info.rows, rid))?;
        if written == Written::Done(()) {
            self.count_write(info, Tally::deleted);
            self.note_change(info, Some((old, rid)), None)?;
            if let Some(output) = &plan.returning {
                let rows = [Source::Stored(&info.layout, old, rid), Source::Values(given)];
                let _ = sink.row(output, &rows, &self.environment)?;
            }
        }
        Ok(written)
    }
}
