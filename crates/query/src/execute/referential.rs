//! FOREIGN KEY: seen to at the end of a statement.
//!
//! A row that refers to another shares the lock of that one's key until its transaction ends, so
//! that it cannot go unseen. A transaction that deletes a row, or changes what others refer to,
//! then looks for those that do with a snapshot newer than that lock: READ COMMITTED takes one
//! anyhow, REPEATABLE READ looks with a transaction of its own besides, and SERIALIZABLE is
//! validated.

use std::{collections::VecDeque, ops::ControlFlow, sync::Arc};

use freshet_engine::{Direction, Isolation, NotRecorded, Record, Rid, RowLock, Transaction, Worker, WriteError};
use freshet_sql::{
    SqlError, SqlState, Type, Value,
    locking::WhenLocked,
    types::{Cast, CastContext, text},
};

use super::{
    Run,
    deferred::{Check, What},
    write::Written,
};
use crate::{
    bind::{
        Binder, Bound, Stop,
        access::{self, Among},
        select::all_of,
    },
    error::{read_error, write_error},
    expression::{Comparison, Expression, Source, Typed},
    schema::{ForeignKey, ReferentialAction, TableInfo},
    statistics::Tally,
};

/// What has become of a row.
#[derive(Debug)]
pub struct RowChange {
    /// The table of the row.
    pub table: Arc<TableInfo>,
    /// What it was, and where; nothing if it is new.
    pub old: Option<(Vec<u8>, Rid)>,
    /// What it is, and where; nothing if it is gone.
    pub new: Option<(Vec<u8>, Rid)>,
    /// Those indexes that take equal keys, by their places, in which another row may have its key.
    pub doubtful: Vec<usize>,
}

/// The values of columns, unless one of them is null.
pub(super) fn values(info: &TableInfo, row: &[u8], columns: &[u16]) -> Result<Option<Vec<Value>>, SqlError> {
    let values = columns.iter().map(|column| Ok(info.layout.get(row, usize::from(*column))?.to_value()));
    let values = values.collect::<Result<Vec<_>, SqlError>>()?;
    Ok((!values.iter().any(Value::is_null)).then_some(values))
}

fn same(one: &[Value], other: &[Value]) -> bool {
    one.iter().zip(other).all(|(one, other)| one.as_ref().equals(other.as_ref()))
}

impl Run<'_, '_> {
    /// What has become of a row of this table, just now.
    ///
    /// # Errors
    /// What goes wrong in reading.
    pub(super) fn row_change(
        &self,
        table: &Arc<TableInfo>,
        old: Option<(Vec<u8>, Rid)>,
        new: Option<(Vec<u8>, Rid)>,
    ) -> Result<RowChange, SqlError> {
        let mut doubtful = Vec::new();
        let before = old.as_ref().map(|(_, rid)| *rid);
        // A row whose key changes lies elsewhere.
        if let Some((_, rid)) = new.as_ref().filter(|(_, rid)| before != Some(*rid) && !self.is_again()) {
            for place in &table.deferrable_keys {
                match self.transaction.check_key(&table.rows, table.index_number(*place), *rid) {
                    // Who comes later with the same key sees this one.
                    Ok(()) => {}
                    Err(WriteError::UniqueViolation { .. } | WriteError::Conflict) => doubtful.push(*place),
                    Err(other) => return Err(write_error(other)),
                }
            }
        }
        Ok(RowChange { table: Arc::clone(table), old, new, doubtful })
    }

    /// Whether changes of a table's rows have to be told to [`Run::keep_references`].
    pub(crate) fn has_references(&self, info: &TableInfo) -> bool {
        !info.table.foreign_keys.is_empty()
            || self.schema.is_some_and(|schema| !schema.referring(info.table.oid).is_empty())
    }

    /// Sees to it that all references hold after these changes: checks, and does what ON DELETE and
    /// ON UPDATE say.
    ///
    /// # Errors
    /// 23503, and what goes wrong in reading and writing.
    pub(crate) fn keep_references(&self, changes: Vec<RowChange>) -> Result<(), SqlError> {
        let Some(schema) = self.schema else { return Ok(()) };
        let mut open = VecDeque::from(changes);
        let mut new = Vec::new();
        while let Some(change) = open.pop_front() {
            self.step()?;
            let info = &change.table;
            if let Some((old, _)) = &change.old {
                for (child, number) in schema.referring(info.table.oid) {
                    let Some(child) = schema.table(*child) else { continue };
                    let Some(key) = child.table.foreign_keys.get(*number) else { continue };
                    let Some(was) = values(info, old, &key.parent_columns)? else { continue };
                    let is = match &change.new {
                        Some((new, _)) => values(info, new, &key.parent_columns)?,
                        None => None,
                    };
                    if is.as_ref().is_some_and(|is| same(&was, is)) {
                        continue;
                    }
                    let action = if change.new.is_some() { key.on_update } else { key.on_delete };
                    if action == ReferentialAction::NoAction {
                        if self.defers(key.oid, key.deferral) {
                            let what = What::Parent { child: child.table.oid, was };
                            self.defer(Check { constraint: key.oid, deferral: key.deferral, what })?;
                        } else {
                            self.check_unreferenced(info, child, key, &was)?;
                        }
                        continue;
                    }
                    self.act(info, child, key, action, &was, is.as_deref(), &mut open)?;
                    if action == ReferentialAction::SetDefault {
                        // The default may be the very key that is gone.
                        self.check_unreferenced(info, child, key, &was)?;
                    }
                }
            }
            if change.new.is_some() && !(info.table.foreign_keys.is_empty() && change.doubtful.is_empty()) {
                new.push(change);
            }
        }
        for RowChange { table, new, doubtful, .. } in &new {
            let Some((_, rid)) = new else { continue };
            for place in doubtful {
                let index = &table.table.indexes[*place];
                if self.defers(index.oid, index.deferral) {
                    let what = What::Unique { table: table.table.oid, rid: *rid };
                    self.defer(Check { constraint: index.oid, deferral: index.deferral, what })?;
                } else {
                    self.check_unique(table, *place, *rid)?;
                }
            }
        }
        for RowChange { table, old, new, .. } in new {
            let Some((new, rid)) = new else { continue };
            for key in &table.table.foreign_keys {
                let Some(wanted) = values(&table, &new, &key.columns)? else { continue };
                let before = match &old {
                    Some((old, _)) => values(&table, old, &key.columns)?,
                    None => None,
                };
                let same = before.is_some_and(|before| same(&before, &wanted));
                if self.defers(key.oid, key.deferral) {
                    // What is to be looked at may lie elsewhere now. What refers to the same row as
                    // before the transaction needs no look: that would lock the other row.
                    let was = old.as_ref().map(|(_, was)| *was).filter(|was| *was != rid);
                    if !same || was.is_some_and(|was| self.is_deferred(key.oid, was)) {
                        let what = What::Child { table: table.table.oid, rid };
                        self.defer(Check { constraint: key.oid, deferral: key.deferral, what })?;
                    }
                } else if !same {
                    self.find_parent(&table, key, &wanted)?;
                }
            }
        }
        Ok(())
    }

    /// The index of a table that a reference means, its place among the table's, and the key in it;
    /// none where no row can have it.
    fn parent_key(
        &self,
        parent: &TableInfo,
        key: &ForeignKey,
        wanted: &[Value],
    ) -> Result<(usize, Option<Vec<u8>>), SqlError> {
        let index = parent.table.indexes.iter().position(|index| index.is_unique_over(&key.parent_columns));
        let index = index.ok_or_else(|| SqlError::internal("a reference to columns without a unique index"))?;
        let mut bytes = Vec::new();
        for (part, column) in parent.keys[index].iter().zip(&parent.table.indexes[index].columns) {
            let place = key.parent_columns.iter().position(|named| *named == column.column).unwrap_or(0);
            if !part.append_key(wanted[place].as_ref(), &mut bytes)? {
                return Ok((index, None));
            }
        }
        Ok((index, Some(bytes)))
    }

    /// Fails if rows refer to a key that a row of `parent` has given up, and no other row has.
    pub(super) fn check_unreferenced(
        &self,
        parent: &TableInfo,
        child: &Arc<TableInfo>,
        key: &ForeignKey,
        was: &[Value],
    ) -> Result<(), SqlError> {
        if let (index, Some(bytes)) = self.parent_key(parent, key, was)?
            && self.transaction.get(&parent.rows, parent.index_number(index), &bytes).map_err(read_error)?.is_some()
        {
            return Ok(());
        }
        self.act(parent, child, key, ReferentialAction::NoAction, was, None, &mut VecDeque::new())
    }

    /// Shares the key of the row that another refers to.
    pub(super) fn find_parent(&self, info: &TableInfo, key: &ForeignKey, wanted: &[Value]) -> Result<(), SqlError> {
        if self.is_again() {
            return Ok(());
        }
        let schema = self.schema.ok_or_else(|| SqlError::internal("references without a catalog"))?;
        let parent = schema.table(key.parent).ok_or_else(|| SqlError::internal("a reference to no table"))?;
        let (index, Some(bytes)) = self.parent_key(parent, key, wanted)? else {
            return Err(self.missing(info, key, parent, wanted));
        };
        let mut refreshed = false;
        loop {
            let number = parent.index_number(index);
            let locked = self.write(WhenLocked::Wait, |transaction| {
                transaction.lock_key(&parent.rows, number, &bytes, RowLock::KeyShare)
            })?;
            match locked {
                Written::Done(Some(_)) => {
                    self.count_lookup(parent, index, 1, 1);
                    return Ok(());
                }
                // It may have been committed since the statement began.
                Written::Done(None) if self.read_committed && !refreshed => {
                    self.transaction.keep_records(NotRecorded::Others);
                    self.transaction.refresh();
                    refreshed = true;
                }
                Written::Done(None) => return Err(self.missing(info, key, parent, wanted)),
                Written::Changed | Written::Gone | Written::Held => {
                    (self.interrupted)()?;
                    if self.read_committed {
                        self.transaction.refresh();
                    }
                }
            }
        }
    }

    /// Does what has to be done with the rows that refer to one that is gone or has changed.
    #[expect(clippy::too_many_arguments, reason = "each of them says something else of one reference")]
    fn act(
        &self,
        parent: &TableInfo,
        child: &Arc<TableInfo>,
        key: &ForeignKey,
        action: ReferentialAction,
        was: &[Value],
        is: Option<&[Value]>,
        open: &mut VecDeque<RowChange>,
    ) -> Result<(), SqlError> {
        let still = || self.referenced(parent, child, key, was);
        let Some(there) = self.as_in_child(parent, child, key, was)? else { return Ok(()) };
        if self.read_committed {
            self.transaction.refresh();
        } else if self.transaction.isolation() == Isolation::Snapshot && !self.is_again() {
            let worker = Worker::new(self.transaction.worker().core());
            let worker = worker.map_err(|cause| SqlError::new(SqlState::TOO_MANY_CONNECTIONS, cause.to_string()))?;
            let now = worker.begin_read_only();
            let mine: Vec<Rid> =
                self.referring_rows(self.transaction, child, key, &there)?.into_iter().map(|row| row.0).collect();
            let theirs = self.referring_rows(&now, child, key, &there)?;
            let visible = |rid: Rid| self.transaction.read(&child.rows, rid).map_err(read_error);
            for (rid, _) in theirs.iter().filter(|(rid, _)| !mine.contains(rid)) {
                // One that this transaction has removed itself is no matter; one that it does not
                // see is.
                let removed = || self.transaction.has_deleted(&child.rows, *rid).map_err(read_error);
                if visible(*rid)?.is_none() && !removed()? {
                    return Err(match action {
                        ReferentialAction::NoAction | ReferentialAction::Restrict => still(),
                        _ => write_error(WriteError::Conflict),
                    });
                }
            }
        }
        let rows = self.referring_rows(self.transaction, child, key, &there)?;
        let constraints = match (action, is) {
            (ReferentialAction::NoAction | ReferentialAction::Restrict, _) | (ReferentialAction::Cascade, None) => None,
            _ if rows.is_empty() => None,
            _ => Some(self.bound_for(child, |binder| binder.constraints_given(child, key.columns.clone()))?),
        };
        for (rid, row) in rows {
            let mut changes: Vec<(usize, Expression)> = Vec::new();
            for (place, column) in key.columns.iter().enumerate() {
                let column = usize::from(*column);
                let value = match (action, is) {
                    (ReferentialAction::NoAction | ReferentialAction::Restrict, _) => return Err(still()),
                    (ReferentialAction::Cascade, None) => break,
                    (ReferentialAction::Cascade, Some(is)) => {
                        let ty = parent.column_type(usize::from(key.parent_columns[place]));
                        let typed = Typed { expression: Expression::Constant(is[place].clone()), ty };
                        self.bound_for(child, |binder| Ok(binder.assign(typed, child, column)?))?
                    }
                    (ReferentialAction::SetNull, _) => Expression::NULL,
                    (ReferentialAction::SetDefault, _) => {
                        self.bound_for(child, |binder| binder.default_of(child, column))?
                    }
                };
                // However often the row is looked at again, it is computed once.
                changes.push((column, Expression::Constant(value.evaluate(&[], &self.environment)?)));
            }
            let refers = |record: Record<'_>| {
                let refers = values(child, record.row, &key.columns)?;
                Ok(refers.is_some_and(|refers| same(&refers, &there)))
            };
            let written = self.write_found(child, Record { rid, row: &row }, refers, |Record { rid, row }| {
                let Some(constraints) = &constraints else {
                    let written = self.write(WhenLocked::Wait, |transaction| transaction.delete(&child.rows, rid))?;
                    if written == Written::Done(()) {
                        open.push_back(self.changed_too(child, (row, rid), None)?);
                    }
                    return Ok(written);
                };
                let new = self.changed(child, &changes, constraints, &[], row)?;
                let written = self.write(WhenLocked::Wait, |transaction| transaction.update(&child.rows, rid, &new))?;
                Ok(match written {
                    Written::Done(to) => {
                        open.push_back(self.changed_too(child, (row, rid), Some((new, to)))?);
                        Written::Done(())
                    }
                    Written::Changed => Written::Changed,
                    Written::Gone => Written::Gone,
                    Written::Held => Written::Held,
                })
            })?;
            // At READ COMMITTED what does not refer to the row any more is no matter.
            if written != Written::Done(()) && !self.read_committed {
                return Err(write_error(WriteError::Conflict));
            }
        }
        Ok(())
    }

    /// Counts that a row which refers to another was changed with it, or deleted.
    fn changed_too(
        &self,
        child: &Arc<TableInfo>,
        (old, rid): (&[u8], Rid),
        new: Option<(Vec<u8>, Rid)>,
    ) -> Result<RowChange, SqlError> {
        match &new {
            Some((_, to)) => self.count_update(child, rid, *to),
            None => self.count_write(child, Tally::deleted),
        }
        self.row_change(child, Some((old.to_vec(), rid)), new)
    }

    /// A key as the rows that refer to it have it, whose columns may be of other types; nothing
    /// where these have no such value.
    fn as_in_child(
        &self,
        parent: &TableInfo,
        child: &TableInfo,
        key: &ForeignKey,
        was: &[Value],
    ) -> Result<Option<Vec<Value>>, SqlError> {
        let mut there = Vec::with_capacity(was.len());
        for ((column, referred), value) in key.columns.iter().zip(&key.parent_columns).zip(was) {
            let from = parent.column_type(usize::from(*referred)).kind();
            let to = child.column_type(usize::from(*column)).kind();
            if from == to {
                there.push(value.clone());
                continue;
            }
            let cast = |from, to, value: &Value| {
                Cast::find(from, Type::of(to), CastContext::Assignment)?.apply(value.clone(), self.environment.context)
            };
            match cast(from, to, value) {
                Ok(converted) if cast(to, from, &converted)?.as_ref().equals(value.as_ref()) => there.push(converted),
                Ok(_) => return Ok(None),
                Err(error) if error.state.class() == "22" => return Ok(None),
                Err(error) => return Err(error),
            }
        }
        Ok(Some(there))
    }

    /// The rows of a table that refer to these values, as a transaction sees them.
    fn referring_rows(
        &self,
        transaction: &Transaction<'_>,
        child: &Arc<TableInfo>,
        key: &ForeignKey,
        wanted: &[Value],
    ) -> Result<Vec<(Rid, Vec<u8>)>, SqlError> {
        let mut conditions: Vec<Expression> = key
            .columns
            .iter()
            .zip(wanted)
            .map(|(column, value)| {
                let column = Expression::Column { source: 0, column: *column };
                Expression::Compare(Comparison::Equal, Box::new((column, Expression::Constant(value.clone()))))
            })
            .collect();
        let all = all_of(conditions.clone());
        let (access, _) = access::choose(child, 0, &mut conditions, &[]);
        debug_assert!(matches!(access.among, Among::Nothing), "there are no alternatives");
        let ranges = self.ranges_of(child, &access)?;
        let [range] = ranges.as_slice() else { return Ok(Vec::new()) };
        let (mut found, mut failure, mut met) = (Vec::new(), None, 0);
        let visit = |_: &[u8], record: freshet_engine::Record<'_>| {
            met += 1;
            let source = Source::Stored(&child.layout, record.row, record.rid);
            let fits = self.step().and_then(|()| match &all {
                Some(all) => all.holds(&[source], &self.environment),
                None => Ok(true),
            });
            match fits {
                Ok(true) => found.push((record.rid, record.row.to_vec())),
                Ok(false) => {}
                Err(error) => {
                    failure = Some(error);
                    return ControlFlow::Break(());
                }
            }
            ControlFlow::Continue(())
        };
        transaction
            .scan(&child.rows, child.index_number(access.index), range.bounds(), Direction::Forward, visit)
            .map_err(read_error)?;
        self.count_read(child, &access, 1, met);
        failure.map_or(Ok(found), Err)
    }

    /// Binds something of a table for a reference.
    fn bound_for<T>(&self, info: &TableInfo, bind: impl FnOnce(&Binder<'_>) -> Bound<T>) -> Result<T, SqlError> {
        let schema = self.schema.ok_or_else(|| SqlError::internal("references without a catalog"))?;
        let path = &[crate::schema::PG_CATALOG];
        bind(&Binder::new(schema, path, info.table.owner, self.environment.context)).map_err(Stop::into_error)
    }
}

impl Run<'_, '_> {
    /// Names and values of a key, as PostgreSQL shows them, after a blank; empty for a role that
    /// may not read them.
    fn shown(&self, info: &TableInfo, columns: &[u16], values: &[Value]) -> String {
        if !self.may_see(&info.table, columns.iter().copied()) {
            return String::new();
        }
        let context = freshet_sql::types::EvalContext::default();
        let name = |column: &u16| info.table.columns[usize::from(*column)].name.clone();
        let names: Vec<String> = columns.iter().map(name).collect();
        let values = columns.iter().zip(values).map(|(column, value)| {
            let mut out = String::new();
            text::output_as(info.column_type(usize::from(*column)).kind(), value.as_ref(), &context, &mut out);
            out
        });
        format!(" ({})=({})", names.join(", "), values.collect::<Vec<_>>().join(", "))
    }

    #[cold]
    fn missing(&self, info: &TableInfo, key: &ForeignKey, parent: &TableInfo, wanted: &[Value]) -> SqlError {
        let (table, name) = (&info.table.name, &key.name);
        let message = format!("insert or update on table \"{table}\" violates foreign key constraint \"{name}\"");
        let shown = self.shown(info, &key.columns, wanted);
        let detail = format!("Key{shown} is not present in table \"{}\".", parent.table.name);
        let error = SqlError::new(SqlState::FOREIGN_KEY_VIOLATION, message).with_detail(detail);
        self.concerning(&info.table, error.with_constraint(name.clone()))
    }

    #[cold]
    fn referenced(&self, parent: &TableInfo, child: &TableInfo, key: &ForeignKey, was: &[Value]) -> SqlError {
        let (table, name, other) = (&parent.table.name, &key.name, &child.table.name);
        let message = format!(
            "update or delete on table \"{table}\" violates foreign key constraint \"{name}\" on table \"{other}\""
        );
        let shown = self.shown(parent, &key.parent_columns, was);
        let detail = format!("Key{shown} is still referenced from table \"{other}\".");
        let error = SqlError::new(SqlState::FOREIGN_KEY_VIOLATION, message).with_detail(detail);
        self.concerning(&child.table, error.with_constraint(name.clone()))
    }
}
