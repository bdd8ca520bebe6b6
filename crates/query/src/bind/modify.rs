//! INSERT, UPDATE and DELETE.

use std::{borrow::Cow, rc::Rc, sync::Arc};

use freshet_sql::{
    SqlError, SqlState, Type,
    types::{CastContext, Kind},
};
use sqlparser::ast::{
    self, Assignment, AssignmentTarget, Expr, FromTable, Insert, ObjectName, OnInsert, Query, SelectItem, SetExpr,
    TableFactor, TableObject, TableWithJoins, With,
};

use super::{
    Binder, Bound, Scope, Stop,
    access::{self, Access},
    first::not_row_by_row,
    found::{columns_of, typed},
    general::GeneralQuery,
    name_of,
    need::Need,
    not_supported, parts_of,
    select::{Output, ScanPlan, SelectPlan, all_of, cheap_first, split},
    syntax_error,
};
use crate::{
    expression::{Expression, Typed},
    schema::{Identity, Oid, TableInfo, privilege},
    syntax::{self, current},
};

/// How a column of a new row gets its value.
#[derive(Clone, Debug)]
pub enum ColumnSource {
    /// From a column of the row that is inserted.
    Given(u16),
    /// From an expression without columns.
    Default(Expression),
    /// Null.
    Null,
    /// An id that no other row has.
    RowId,
}

/// Where new rows come from.
#[derive(Clone, Debug)]
pub enum RowSource {
    /// Rows of expressions; none of one means a default.
    Values(Vec<Vec<Option<Expression>>>),
    /// A query, whose values still are cast to these types.
    Query(Box<SelectPlan>, Vec<Expression>),
    /// A general query, likewise.
    General(GeneralQuery, Vec<Expression>),
}

/// What a new row has to fulfil.
#[derive(Clone, Debug, Default)]
pub struct Constraints {
    /// Columns that must have a value.
    pub not_null: Vec<usize>,
    /// CHECK constraints: name and condition. Rows are source 0.
    pub checks: Vec<(String, Expression)>,
    /// The columns to which the statement gives values: an error may show these.
    pub given: Vec<u16>,
}

/// What is done when a new row's key is taken.
#[derive(Clone, Debug)]
pub struct ConflictPlan {
    /// The indexes whose keys this is about, their places among the table's.
    pub arbiters: Vec<usize>,
    /// The engine's numbers of the same.
    pub numbers: Vec<usize>,
    /// A constraint that cannot decide, since it is DEFERRABLE; what comes before it can.
    pub refused: Option<String>,
    /// DO UPDATE; without it, DO NOTHING.
    pub update: Option<ConflictUpdate>,
}

/// DO UPDATE: the row that is there is source 0, the new one source 1.
#[derive(Clone, Debug)]
pub struct ConflictUpdate {
    /// Which columns get which values.
    pub assignments: Vec<(usize, Expression)>,
    /// Only if this holds.
    pub condition: Option<Expression>,
}

/// The plan of an INSERT.
#[derive(Clone, Debug)]
pub struct InsertPlan {
    /// The table that gets the rows.
    pub table: Arc<TableInfo>,
    /// Where the rows come from.
    pub source: RowSource,
    /// For each of the table's columns, where its value comes from.
    pub columns: Vec<ColumnSource>,
    /// For each of the row's columns, which of the table's it is for.
    pub targets: Vec<usize>,
    /// The default of each of these, for DEFAULT in a row.
    pub defaults: Vec<Expression>,
    /// What the new rows have to fulfil.
    pub constraints: Constraints,
    /// ON CONFLICT
    pub conflict: Option<ConflictPlan>,
    /// RETURNING
    pub returning: Option<Vec<Output>>,
}

/// Which rows of a table are changed.
#[derive(Clone, Debug)]
pub enum Targets {
    /// Those that a scan finds.
    Scan(Box<ScanPlan>),
    /// The one on which a cursor stands.
    Current(String),
    /// Those that a general query finds: it gives their record ids, and then what expressions see
    /// as source 1.
    Found(GeneralQuery),
}

/// An UPDATE. In expressions, the row as it was is source 0.
#[derive(Clone, Debug)]
pub struct UpdatePlan {
    /// The table whose rows change.
    pub table: Arc<TableInfo>,
    /// The rows that change, and how they are found.
    pub targets: Targets,
    /// Which columns get which values.
    pub assignments: Vec<(usize, Expression)>,
    /// What the changed rows have to fulfil.
    pub constraints: Constraints,
    /// RETURNING
    pub returning: Option<Vec<Output>>,
}

/// The plan of a DELETE.
#[derive(Clone, Debug)]
pub struct DeletePlan {
    /// The table that loses the rows.
    pub table: Arc<TableInfo>,
    /// The rows that go, and how they are found.
    pub targets: Targets,
    /// RETURNING
    pub returning: Option<Vec<Output>>,
}

/// Parses an expression that the catalog keeps.
///
/// # Errors
/// When it is none.
pub fn parse_expression(sql: &str) -> Result<Expr, SqlError> {
    syntax::expression(sql).map_err(|cause| syntax::unreadable(sql, cause))
}

/// The table that a statement changes, its name there, and what the statement does with it.
pub(super) type Target<'t> = (&'t Arc<TableInfo>, &'t str, &'t Rc<Need>);

/// Whether it says DEFAULT.
pub(super) fn is_default(value: &Expr) -> bool {
    matches!(value, Expr::Identifier(word) if word.quote_style.is_none() && word.value.eq_ignore_ascii_case("default"))
}

impl Binder<'_> {
    /// What must hold of the rows of a table.
    ///
    /// # Errors
    /// When a condition in the catalog cannot be bound.
    pub(super) fn constraints(&self, info: &Arc<TableInfo>, need: &Need) -> Bound<Constraints> {
        self.constraints_given(info, need.given())
    }

    /// What a row has to fulfil in which these columns are given.
    ///
    /// # Errors
    /// When it cannot be bound.
    pub fn constraints_given(&self, info: &Arc<TableInfo>, given: Vec<u16>) -> Bound<Constraints> {
        let columns = info.table.columns.iter().enumerate();
        let not_null =
            columns.filter(|(_, column)| column.not_null && !column.dropped).map(|(number, _)| number).collect();
        let scope = Scope::of(info, &info.table.name);
        let checks = info.table.checks.iter().map(|check| {
            let condition = self.condition(&parse_expression(&check.condition)?, &scope, "CHECK")?;
            Ok((check.name.clone(), condition))
        });
        Ok(Constraints { not_null, checks: checks.collect::<Bound<_>>()?, given })
    }

    /// The default of a column.
    ///
    /// # Errors
    /// When it cannot be bound.
    pub fn default_of(&self, info: &TableInfo, column: usize) -> Bound<Expression> {
        let definition = &info.table.columns[column];
        let Some(sql) = &definition.default else { return Ok(Expression::NULL) };
        let mut typed = self.expression(&parse_expression(sql)?, &Scope::nothing())?;
        if definition.identity.is_some()
            && let Expression::Session(_, arguments) = &typed.expression
            && let [Expression::Constant(sequence)] = &**arguments
            && let Some(sequence) = sequence.as_i64().and_then(|oid| Oid::try_from(oid).ok())
        {
            typed.expression = Expression::Identity(sequence);
        }
        Ok(self.coerce(typed, definition.ty, CastContext::Assignment)?.expression)
    }

    /// Casts what is put into a column.
    ///
    /// # Errors
    /// 42804, naming the column.
    pub fn assign(&self, typed: Typed, info: &TableInfo, column: usize) -> Result<Expression, SqlError> {
        let definition = &info.table.columns[column];
        let from = typed.ty.kind();
        let coerced = self.coerce(typed, definition.ty, CastContext::Assignment).map_err(|error| {
            if error.state != SqlState::DATATYPE_MISMATCH && error.state != SqlState::CANNOT_COERCE {
                return error;
            }
            let (to, name) = (definition.ty.kind().sql_name(), &definition.name);
            let message = format!("column \"{name}\" is of type {to} but expression is of type {}", from.sql_name());
            let error = SqlError::new(SqlState::DATATYPE_MISMATCH, message);
            error.with_hint("You will need to rewrite or cast the expression.")
        })?;
        Ok(coerced.expression)
    }

    pub(super) fn target_column(&self, info: &TableInfo, name: &str) -> Result<usize, SqlError> {
        info.table.column(name).ok_or_else(|| {
            let message = format!("column \"{name}\" of relation \"{}\" does not exist", info.table.name);
            SqlError::new(SqlState::UNDEFINED_COLUMN, message)
        })
    }

    /// The column that a change or an INSERT names, which has no fields.
    fn assigned_column(&self, info: &TableInfo, name: &ObjectName) -> Result<(String, usize), SqlError> {
        let mut parts = parts_of(name)?.into_iter();
        let name = parts.next().unwrap_or_default();
        let number = self.target_column(info, &name)?;
        let Some(field) = parts.next() else { return Ok((name, number)) };
        let ty = info.table.columns[number].ty;
        let message = format!(
            "cannot assign to field \"{field}\" of column \"{name}\" because its type {ty} is not a composite type"
        );
        Err(SqlError::new(SqlState::DATATYPE_MISMATCH, message))
    }

    fn returning(&self, items: Option<&[SelectItem]>, scope: &Scope) -> Bound<Option<Vec<Output>>> {
        items.map(|items| self.projection(items, scope, true)).transpose()
    }

    /// Binds an INSERT, with what stands before it.
    ///
    /// # Errors
    /// When it makes no sense; 42501.
    pub fn insert(&self, insert: &Insert, with: Option<&With>) -> Bound<InsertPlan> {
        self.allowed(|| self.any_insert(insert, with))
    }

    fn any_insert(&self, insert: &Insert, with: Option<&With>) -> Bound<InsertPlan> {
        let TableObject::TableName(name) = &insert.table else {
            return Err(not_supported("INSERT into a function").into());
        };
        let info = self.table(name).map_err(|stop| match stop {
            Stop::General(_) => Stop::Error(SqlError::new(
                SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE,
                format!("cannot insert into \"{name}\""),
            )),
            stop => stop,
        })?;
        let need = self.need(&info, privilege::INSERT);
        let alias = insert.table_alias.as_ref().map_or_else(|| info.table.name.clone(), |alias| name_of(&alias.alias));
        let visible: Vec<usize> = info.table.visible_columns().map(|(number, _)| number).collect();
        let explicit = !insert.columns.is_empty();
        let mut targets = Vec::new();
        for column in &insert.columns {
            let (name, number) = self.assigned_column(&info, column)?;
            if targets.contains(&number) {
                let message = format!("column \"{name}\" specified more than once");
                return Err(SqlError::new(SqlState::DUPLICATE_COLUMN, message).into());
            }
            targets.push(number);
            need.insert(number as u16);
        }
        let default_values = insert.source.is_none();
        // OVERRIDING SYSTEM VALUE, and OVERRIDING USER VALUE: see [`crate::syntax`].
        let (overriding_system, overriding_user) = (insert.overwrite, insert.has_table_keyword);
        if !explicit && !default_values {
            targets.clone_from(&visible);
        }
        let (source, count) = match &insert.source {
            None => (RowSource::Values(vec![Vec::new()]), 0),
            Some(query) => self.rows_to_insert(query, with, (&info, &need), &targets)?,
        };
        if count > targets.len() {
            return Err(syntax_error("INSERT has more expressions than target columns").into());
        }
        if count < targets.len() && explicit {
            return Err(syntax_error("INSERT has more target columns than expressions").into());
        }
        targets.truncate(count);
        for target in &targets {
            need.insert(*target as u16);
            let column = &info.table.columns[*target];
            let given = match &source {
                RowSource::Values(rows) => {
                    let place = targets.iter().position(|other| other == target).unwrap_or(0);
                    rows.iter().any(|row| row.get(place).is_some_and(Option::is_some))
                }
                _ => true,
            };
            if column.identity == Some(Identity::Always) && given && !overriding_system && !overriding_user {
                let message = format!("cannot insert a non-DEFAULT value into column \"{}\"", column.name);
                let error = SqlError::new(SqlState::GENERATED_ALWAYS, message);
                let detail = format!("Column \"{}\" is an identity column defined as GENERATED ALWAYS.", column.name);
                return Err(error.with_detail(detail).with_hint("Use OVERRIDING SYSTEM VALUE to override.").into());
            }
        }
        let mut columns = Vec::with_capacity(info.table.columns.len());
        for (number, column) in info.table.columns.iter().enumerate() {
            columns.push(match targets.iter().position(|target| *target == number) {
                _ if column.dropped => ColumnSource::Null,
                _ if column.is_row_id() => ColumnSource::RowId,
                // What is computed comes last.
                _ if column.hidden => ColumnSource::Null,
                Some(_) if overriding_user && column.identity.is_some() => {
                    ColumnSource::Default(self.default_of(&info, number)?)
                }
                Some(place) => ColumnSource::Given(place as u16),
                None if column.default.is_some() => ColumnSource::Default(self.default_of(&info, number)?),
                None => ColumnSource::Null,
            });
        }
        let defaults = targets.iter().map(|target| self.default_of(&info, *target)).collect::<Bound<_>>()?;
        let scope = Scope::needing(&info, &alias, &need);
        let conflict = match &insert.on {
            None => None,
            Some(OnInsert::OnConflict(conflict)) => Some(self.on_conflict(conflict, (&info, &alias, &need))?),
            Some(_) => return Err(syntax_error("ON DUPLICATE KEY UPDATE is not supported").into()),
        };
        let returning = self.returning(insert.returning.as_deref(), &scope)?;
        let constraints = self.constraints(&info, &need)?;
        Ok(InsertPlan { table: info, source, columns, targets, defaults, constraints, conflict, returning })
    }

    fn rows_to_insert(
        &self,
        query: &Query,
        with: Option<&With>,
        (info, need): (&Arc<TableInfo>, &Need),
        targets: &[usize],
    ) -> Bound<(RowSource, usize)> {
        if with.is_none() {
            match self.attempt(|| self.values_to_insert(query, info, targets)) {
                Ok(None) | Err(Stop::General(_)) => {}
                Ok(Some(rows)) => return Ok(rows),
                Err(stop) => return Err(stop),
            }
        }
        let mut query = query.clone();
        match (with, &mut query.with) {
            (None, _) => {}
            (Some(with), Some(own)) => own.cte_tables.splice(0..0, with.cte_tables.iter().cloned()).for_each(drop),
            (Some(with), own) => *own = Some(with.clone()),
        }
        self.type_outputs(&mut query.body, info, targets)?;
        let why = match self.attempt(|| self.any_query(&query)) {
            Ok(plan) => {
                let casts = self.casts(plan.output.iter().map(|output| output.ty), info, targets)?;
                let count = plan.output.len();
                return Ok((RowSource::Query(Box::new(plan), casts), count));
            }
            Err(Stop::General(why)) => why,
            Err(stop) => return Err(stop),
        };
        // What is said of the table that is changed comes first, as in PostgreSQL.
        need.check(self)?;
        let general = self.general(&query, why)?;
        let casts = self.casts(general.0.columns().iter().map(|column| column.ty), info, targets)?;
        let count = general.0.columns().len();
        Ok((RowSource::General(general, casts), count))
    }

    /// Says of what type literals and parameters are that a query gives as they are.
    fn type_outputs(&self, body: &mut SetExpr, info: &TableInfo, targets: &[usize]) -> Bound<()> {
        match body {
            SetExpr::Select(select) => {
                if select
                    .projection
                    .iter()
                    .any(|item| matches!(item, SelectItem::Wildcard(_) | SelectItem::QualifiedWildcard(..)))
                {
                    return Ok(());
                }
                for (item, target) in select.projection.iter_mut().zip(targets) {
                    if let SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. } = item {
                        *expr = typed(expr, info.column_type(*target));
                    }
                }
            }
            SetExpr::Values(values) => {
                for row in &mut values.rows {
                    for (expr, target) in row.content.iter_mut().zip(targets) {
                        if is_default(expr) {
                            let default = info.table.columns[*target].default.as_deref().unwrap_or("NULL");
                            *expr = parse_expression(default)?;
                        }
                        *expr = typed(expr, info.column_type(*target));
                    }
                }
            }
            SetExpr::Query(query) => self.type_outputs(&mut query.body, info, targets)?,
            SetExpr::SetOperation { left, right, .. } => {
                self.type_outputs(left, info, targets)?;
                self.type_outputs(right, info, targets)?;
            }
            _ => {}
        }
        Ok(())
    }

    /// Casts what a query gives to the types of columns.
    fn casts(&self, types: impl Iterator<Item = Type>, info: &TableInfo, targets: &[usize]) -> Bound<Vec<Expression>> {
        let mut casts = Vec::new();
        for (place, (ty, target)) in types.zip(targets).enumerate() {
            let expression = Expression::Column { source: 0, column: place as u16 };
            casts.push(self.assign(Typed { expression, ty }, info, *target)?);
        }
        Ok(casts)
    }

    /// The rows of VALUES, where the query is no more than that.
    fn values_to_insert(
        &self,
        query: &Query,
        info: &Arc<TableInfo>,
        targets: &[usize],
    ) -> Bound<Option<(RowSource, usize)>> {
        if let SetExpr::Values(values) = &*query.body
            && query.with.is_none()
            && query.order_by.is_none()
            && query.limit_clause.is_none()
        {
            let scope = Scope::nothing();
            let mut rows = Vec::with_capacity(values.rows.len());
            let count = values.rows.first().map_or(0, |row| row.content.len());
            for row in &values.rows {
                if row.content.len() != count {
                    return Err(syntax_error("VALUES lists must all be the same length").into());
                }
                let mut bound = Vec::with_capacity(count);
                for (place, expr) in row.content.iter().enumerate() {
                    let Some(target) = targets.get(place) else {
                        return Err(syntax_error("INSERT has more expressions than target columns").into());
                    };
                    if is_default(expr) {
                        bound.push(None);
                        continue;
                    }
                    let typed = self.expression(expr, &scope)?;
                    bound.push(Some(self.assign(typed, info, *target)?));
                }
                rows.push(bound);
            }
            return Ok(Some((RowSource::Values(rows), count)));
        }
        Ok(None)
    }

    pub(super) fn assignments(
        &self,
        assignments: &[Assignment],
        (info, need): (&Arc<TableInfo>, &Need),
        scope: &Scope,
    ) -> Bound<Vec<(usize, Expression)>> {
        let is_row = |assignment: &Assignment| {
            matches!((&assignment.target, &assignment.value), (AssignmentTarget::Tuple(_), Expr::Subquery(_)))
        };
        if assignments.iter().any(is_row) {
            return Err(Stop::General("a row of a subquery"));
        }
        let bound = self.assigned_values(assignments, info, need)?.into_iter().map(|(number, value)| {
            let expression = match is_default(&value) {
                true => self.default_of(info, number)?,
                false => self.assign(self.expression(&value, scope)?, info, number)?,
            };
            Ok((number, expression))
        });
        bound.collect()
    }

    /// Which columns are assigned to, and what each of them gets: rows are taken apart.
    ///
    /// # Errors
    /// 42601, 42703; 428C9 for an identity column that always has its own values; 0A000 for a row
    /// that cannot be taken apart.
    pub(super) fn assigned_values<'s>(
        &self,
        assignments: &'s [Assignment],
        info: &TableInfo,
        need: &Need,
    ) -> Result<Vec<(usize, Cow<'s, Expr>)>, SqlError> {
        let mut assigned: Vec<(usize, Cow<'s, Expr>)> = Vec::new();
        for Assignment { target, value } in assignments {
            let (names, values) = match (target, value) {
                (AssignmentTarget::ColumnName(name), value) => (std::slice::from_ref(name), vec![Cow::Borrowed(value)]),
                (AssignmentTarget::Tuple(names), Expr::Tuple(values)) if values.len() == names.len() => {
                    (names.as_slice(), values.iter().map(Cow::Borrowed).collect())
                }
                (AssignmentTarget::Tuple(names), Expr::Nested(value)) if names.len() == 1 => {
                    (names.as_slice(), vec![Cow::Borrowed(&**value)])
                }
                (AssignmentTarget::Tuple(names), Expr::Subquery(query)) => {
                    (names.as_slice(), columns_of(query, names.len())?.into_iter().map(Cow::Owned).collect())
                }
                _ => return Err(syntax_error("number of columns does not match number of values")),
            };
            for (name, value) in names.iter().zip(values) {
                let (name, number) = self.assigned_column(info, name)?;
                need.update(number as u16);
                if info.table.columns[number].identity == Some(Identity::Always) && !is_default(&value) {
                    let message = format!("column \"{name}\" can only be updated to DEFAULT");
                    let error = SqlError::new(SqlState::GENERATED_ALWAYS, message);
                    let detail = format!("Column \"{name}\" is an identity column defined as GENERATED ALWAYS.");
                    return Err(error.with_detail(detail));
                }
                if assigned.iter().any(|(other, _)| *other == number) {
                    return Err(syntax_error(format!("multiple assignments to same column \"{name}\"")));
                }
                assigned.push((number, value));
            }
        }
        Ok(assigned)
    }

    fn target(
        &self,
        table: &TableWithJoins,
        wanted: u16,
        condition: Option<&Expr>,
    ) -> Bound<(Arc<TableInfo>, String, Rc<Need>)> {
        let TableFactor::Table { name, alias, .. } = &table.relation else {
            return Err(syntax_error("only a table can be changed").into());
        };
        if !table.joins.is_empty() {
            return Err(syntax_error("only one table can be changed").into());
        }
        let info = self.table(name).map_err(|stop| match stop {
            Stop::General(_) if current::cursor_of(condition).is_some() => {
                let message = "WHERE CURRENT OF on a view is not implemented";
                Stop::Error(SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, message))
            }
            Stop::General(what) => Stop::Error(SqlError::new(
                SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE,
                format!("cannot change {what}: \"{name}\""),
            )),
            stop => stop,
        })?;
        let need = self.need(&info, wanted);
        let alias = alias.as_ref().map_or_else(|| info.table.name.clone(), |alias| name_of(&alias.name));
        Ok((info, alias, need))
    }

    fn rows_to_change(
        &self,
        info: &Arc<TableInfo>,
        alias: &str,
        selection: Option<&Expr>,
        scope: &Scope,
    ) -> Bound<Targets> {
        if let Some(cursor) = current::cursor_of(selection) {
            return Ok(Targets::Current(cursor));
        }
        let mut conditions = Vec::new();
        if let Some(selection) = selection {
            split(self.condition(selection, scope, "WHERE")?, &mut conditions);
            cheap_first(&mut conditions);
        }
        let all = all_of(conditions.clone());
        let (access, _): (Access, _) = access::choose(info, 0, &mut conditions, &[]);
        let filter = all_of(conditions);
        not_row_by_row(filter.as_ref())?;
        let (table, alias) = (Arc::clone(info), alias.to_owned());
        Ok(Targets::Scan(Box::new(ScanPlan { table, alias, access, filter, conditions: all, mark: None })))
    }

    /// Binds an UPDATE, with what stands before it.
    ///
    /// # Errors
    /// When it makes no sense.
    pub fn update(&self, update: &ast::Update, with: Option<&With>) -> Bound<UpdatePlan> {
        self.allowed(|| self.any_update(update, with))
    }

    fn any_update(&self, update: &ast::Update, with: Option<&With>) -> Bound<UpdatePlan> {
        let (info, alias, need) = self.target(&update.table, privilege::UPDATE, update.selection.as_ref())?;
        if update.limit.is_some() || !update.order_by.is_empty() {
            return Err(syntax_error("UPDATE has no LIMIT").into());
        }
        match self.attempt(|| self.update_scanned(update, with, (&info, &alias, &need))) {
            Err(Stop::General(why)) => self.update_found(update, with, (&info, &alias, &need), why),
            bound => bound,
        }
    }

    fn update_scanned(
        &self,
        update: &ast::Update,
        with: Option<&With>,
        (info, alias, need): Target<'_>,
    ) -> Bound<UpdatePlan> {
        if with.is_some() {
            return Err(Stop::General("WITH"));
        }
        if update.from.is_some() {
            return Err(Stop::General("UPDATE … FROM"));
        }
        let scope = Scope::needing(info, alias, need);
        let assignments = self.assignments(&update.assignments, (info, need), &scope)?;
        let targets = self.rows_to_change(info, alias, update.selection.as_ref(), &scope)?;
        let returning = self.returning(update.returning.as_deref(), &scope)?;
        let constraints = self.constraints(info, need)?;
        Ok(UpdatePlan { table: Arc::clone(info), targets, assignments, constraints, returning })
    }

    /// Binds a DELETE, with what stands before it.
    ///
    /// # Errors
    /// When it makes no sense.
    pub fn delete(&self, delete: &ast::Delete, with: Option<&With>) -> Bound<DeletePlan> {
        self.allowed(|| self.any_delete(delete, with))
    }

    fn any_delete(&self, delete: &ast::Delete, with: Option<&With>) -> Bound<DeletePlan> {
        let (FromTable::WithFromKeyword(from) | FromTable::WithoutKeyword(from)) = &delete.from;
        let [from] = from.as_slice() else { return Err(syntax_error("DELETE is from one table").into()) };
        let (info, alias, need) = self.target(from, privilege::DELETE, delete.selection.as_ref())?;
        if delete.limit.is_some() || !delete.order_by.is_empty() {
            return Err(syntax_error("DELETE has no LIMIT").into());
        }
        match self.attempt(|| self.delete_scanned(delete, with, (&info, &alias, &need))) {
            Err(Stop::General(why)) => self.delete_found(delete, with, (&info, &alias, &need), why),
            bound => bound,
        }
    }

    fn delete_scanned(
        &self,
        delete: &ast::Delete,
        with: Option<&With>,
        (info, alias, need): Target<'_>,
    ) -> Bound<DeletePlan> {
        if with.is_some() {
            return Err(Stop::General("WITH"));
        }
        if delete.using.is_some() {
            return Err(Stop::General("DELETE … USING"));
        }
        let scope = Scope::needing(info, alias, need);
        let targets = self.rows_to_change(info, alias, delete.selection.as_ref(), &scope)?;
        let returning = self.returning(delete.returning.as_deref(), &scope)?;
        Ok(DeletePlan { table: Arc::clone(info), targets, returning })
    }
}

/// The type of a hidden column: 16 bytes that no other row has.
pub const ROW_ID: Type = Type::of(Kind::Uuid);
