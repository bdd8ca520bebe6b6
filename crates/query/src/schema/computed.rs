//! What is computed from a table's rows for its indexes: the values of expressions, and whether a
//! row is in an index that has only some.
//!
//! They are hidden columns. So the engine, which knows no types, finds in a row all that keys are
//! made of, wherever it meets the row: on a primary, on a standby, at a restart.

use std::{borrow::Cow, sync::OnceLock};

use freshet_engine::RowTest;
use freshet_sql::{
    SqlError, SqlState, Type, Value,
    functions::quote_identifier,
    row::Layout,
    types::{CastContext, EvalContext, Kind},
};

use sqlparser::ast::{Expr, Value as Literal};

use super::{Column, Computed, FIRST_ROLE, Index, Schema, Table, TableInfo};
use crate::{
    bind::{
        Binder, Scope, column_name, implied,
        modify::parse_expression,
        select::{all_of, split},
    },
    deparse,
    expression::{Environment, Expression, Source, Typed},
};

/// A column that is computed.
#[derive(Clone, Debug)]
pub struct ComputedColumn {
    /// The number of the column that shows the value.
    pub column: u16,
    /// The type of its values.
    pub ty: Type,
    /// Its value, over the row as source 0.
    pub expression: Expression,
    /// It is computed where all of these hold, and null elsewhere.
    pub when: Vec<Expression>,
}

/// A binder for what depends on a row alone.
fn with_binder<T>(bind: impl FnOnce(&Binder<'_>) -> Result<T, SqlError>) -> Result<T, SqlError> {
    static NOTHING: OnceLock<Schema> = OnceLock::new();
    let context = EvalContext::default();
    bind(&Binder::new(NOTHING.get_or_init(Schema::default), &[], FIRST_ROLE, &context))
}

/// An expression over a table's rows.
///
/// # Errors
/// When it makes no sense over the table's columns.
pub fn expression(table: &Table, sql: &str) -> Result<Typed, SqlError> {
    let parsed = parse_expression(sql)?;
    with_binder(|binder| {
        let typed = binder.expression(&parsed, &Scope::over(table)).map_err(|stop| stop.into_error())?;
        binder.settle(typed)
    })
}

/// A condition on a table's rows: all that must hold.
///
/// # Errors
/// As for [`expression`].
pub fn condition(table: &Table, sql: &str) -> Result<Vec<Expression>, SqlError> {
    let parsed = parse_expression(sql)?;
    with_binder(|binder| {
        let condition = binder.condition(&parsed, &Scope::over(table), "WHERE").map_err(|stop| stop.into_error())?;
        let mut all = Vec::new();
        split(condition, &mut all);
        Ok(all)
    })
}

/// A condition on a table's rows as people see it; nothing when it has a part that has no text.
pub fn shown_condition(table: &Table, sql: &str, pretty: bool) -> Option<String> {
    let bound = whole(condition(table, sql).ok()?);
    let text = |condition: &Expression| deparse::deparse(table, condition, Type::BOOL, false);
    let shown = text(&bound)?;
    let again = whole(condition(table, &shown).ok()?);
    if !implied::same(&bound, &again) && text(&again)? != shown {
        return None;
    }
    if pretty { deparse::deparse(table, &bound, Type::BOOL, true) } else { Some(shown) }
}

/// Whether an expression is a text that is read as a value of some type.
fn is_read_from_text(expression: &Expr) -> bool {
    match expression {
        Expr::Value(value) => matches!(value.value, Literal::SingleQuotedString(_)),
        Expr::Cast { expr, .. } | Expr::Nested(expr) => is_read_from_text(expr),
        _ => false,
    }
}

/// A default for a column of a type, as PostgreSQL writes it; nothing when it has a part that has
/// no text. What a literal has no type for is of the column's. `written` is the default as it was
/// bound.
pub fn default_in_words(binder: &Binder<'_>, written: &Expr, default: Typed, ty: Type, pretty: bool) -> Option<String> {
    let text = |written: &Expr, typed: &Typed, pretty| match &typed.expression {
        Expression::Constant(value) if !value.is_null() && is_read_from_text(written) => {
            deparse::read_from_text(value, typed.ty)
        }
        expression => deparse::alone(expression, typed.ty, pretty),
    };
    let plain = Type::of(ty.kind());
    let coerce = |typed: Typed, ty| binder.coerce(typed, ty, CastContext::Assignment).ok();
    let typed = match default.ty.kind() {
        Kind::Unknown => coerce(default, plain)?,
        _ => default,
    };
    let shown = text(written, &typed, false)?;
    let reread = parse_expression(&shown).ok()?;
    let again = binder.expression(&reread, &Scope::nothing()).ok()?;
    let lasts = text(&reread, &again, false)? == shown;
    let (one, other) = (coerce(typed.clone(), ty)?, coerce(again, ty)?);
    if !implied::same(&one.expression, &other.expression) && !lasts {
        return None;
    }
    if pretty { text(written, &typed, true) } else { Some(shown) }
}

/// The same of one that the catalog has.
pub fn shown_default(sql: &str, ty: Type, pretty: bool) -> Option<String> {
    let parsed = parse_expression(sql).ok()?;
    let shown = with_binder(|binder| {
        let typed = binder.expression(&parsed, &Scope::nothing()).map_err(|stop| stop.into_error())?;
        Ok(default_in_words(binder, &parsed, typed, ty, pretty))
    });
    shown.ok().flatten()
}

/// The columns of a table that are computed.
///
/// # Errors
/// As for [`expression`].
pub fn columns(table: &Table) -> Result<Vec<ComputedColumn>, SqlError> {
    let computed = table.columns.iter().enumerate().filter(|(_, column)| !column.dropped);
    let computed = computed.filter_map(|(number, column)| Some((number as u16, column, column.computed.as_ref()?)));
    let bound = computed.map(|(number, column, computed)| {
        let Typed { expression, .. } = self::expression(table, &computed.expression)?;
        let when = computed.when.as_deref().map(|when| condition(table, when)).transpose()?.unwrap_or_default();
        Ok(ComputedColumn { column: number, ty: column.ty, expression, when })
    });
    bound.collect()
}

/// Which rows an index has: those for which all of these hold.
///
/// # Errors
/// As for [`expression`].
pub fn predicate(table: &Table, index: &Index) -> Result<Vec<Expression>, SqlError> {
    index.predicate.as_ref().map_or(Ok(Vec::new()), |it| condition(table, &it.condition))
}

/// How the engine sees from the bytes of a row that all of these conditions hold; nothing where
/// they are about more than whether columns have values, or are true.
pub fn tests(conditions: &[Expression], layout: &Layout) -> Option<Vec<RowTest>> {
    let offset = |expression: &Expression| match expression {
        Expression::Column { source: 0, column } => layout.value_offset(usize::from(*column)),
        _ => None,
    };
    let present = |value: u16, zero| RowTest { offset: value - 1, zero };
    let mut tests = Vec::new();
    for condition in conditions {
        match condition {
            Expression::IsNull(operand) => tests.push(present(offset(operand)?, true)),
            Expression::Not(inner) => match &**inner {
                Expression::IsNull(operand) => tests.push(present(offset(operand)?, false)),
                column => {
                    let value = offset(column)?;
                    tests.extend([present(value, false), RowTest { offset: value, zero: true }]);
                }
            },
            // Where it is null, the value is zero, too.
            column => tests.push(RowTest { offset: offset(column)?, zero: false }),
        }
    }
    Some(tests)
}

/// The tests by which the engine knows the rows of an index.
///
/// # Errors
/// As for [`expression`].
pub fn index_tests(table: &Table, layout: &Layout, index: &Index) -> Result<Vec<RowTest>, SqlError> {
    let Some(known) = &index.predicate else { return Ok(Vec::new()) };
    let conditions = match known.column {
        Some(column) => vec![Expression::Column { source: 0, column }],
        None => predicate(table, index)?,
    };
    tests(&conditions, layout).ok_or_else(|| SqlError::internal("an index of rows that nobody can tell"))
}

impl ComputedColumn {
    fn value(&self, row: Source<'_>, environment: &Environment<'_>) -> Result<Value, SqlError> {
        for condition in &self.when {
            if !condition.holds(&[row], environment)? {
                return Ok(Value::Null);
            }
        }
        self.expression.evaluate(&[row], environment)
    }

    /// The columns on which its value depends.
    pub fn inputs(&self) -> Vec<u16> {
        let mut found = Vec::new();
        for expression in self.when.iter().chain([&self.expression]) {
            expression.columns(&mut |_, column| found.push(column));
        }
        found
    }
}

impl TableInfo {
    /// Puts in its place among a row's values what is computed from them.
    ///
    /// # Errors
    /// What goes wrong in an index's expression.
    #[inline]
    pub fn compute(&self, values: &mut [Value], environment: &Environment<'_>) -> Result<(), SqlError> {
        for computed in &self.computed {
            let value = computed.value(Source::Values(values), environment)?;
            if let Some(place) = values.get_mut(usize::from(computed.column)) {
                *place = value;
            }
        }
        Ok(())
    }

    /// A row with these columns changed, and with what is computed from them.
    ///
    /// # Errors
    /// What goes wrong in an index's expression.
    #[inline]
    pub fn recompute(
        &self,
        row: Vec<u8>,
        changed: impl Fn(u16) -> bool,
        environment: &Environment<'_>,
    ) -> Result<Vec<u8>, SqlError> {
        if self.computed.is_empty() {
            return Ok(row);
        }
        let mut changes = Vec::new();
        let source = Source::Stored(&self.layout, &row, freshet_engine::Rid(0));
        for computed in self.computed.iter().filter(|it| it.inputs().into_iter().any(&changed)) {
            changes.push((usize::from(computed.column), computed.value(source, environment)?));
        }
        if changes.is_empty() {
            return Ok(row);
        }
        let mut new = Vec::with_capacity(row.len() + 32);
        self.layout.rewrite(&row, &changes, &mut new)?;
        Ok(new)
    }

    /// The columns that an index is about: those of its keys, those from which keys are computed,
    /// those of its condition, and those that it includes.
    pub fn columns_of(&self, number: usize) -> Vec<u16> {
        let index = &self.table.indexes[number];
        let mut found = index.include.clone();
        for part in &index.columns {
            match self.computed.iter().find(|it| it.column == part.column) {
                Some(computed) => found.extend(computed.inputs()),
                None => found.push(part.column),
            }
        }
        for condition in &self.predicates[number] {
            condition.columns(&mut |_, column| found.push(column));
        }
        found.sort_unstable();
        found.dedup();
        found
    }

    /// A column of an index as people see it: its name, or what is computed, in parentheses if it
    /// is no function.
    pub fn shown_column(&self, column: u16, pretty: bool) -> String {
        if let Some(computed) = self.computed.iter().find(|it| it.column == column)
            && let Some(text) = deparse::indexed(&self.table, &computed.expression, computed.ty, pretty)
        {
            return text;
        }
        match self.table.columns.get(usize::from(column)) {
            Some(Column { computed: Some(computed), .. }) => format!("({})", computed.expression),
            known => quote_identifier(known.map_or("", |column| &column.name)),
        }
    }

    /// What a column is called as one of an index: what is computed, after its function.
    pub fn attribute_name(&self, column: u16) -> Cow<'_, str> {
        let Some(known) = self.table.columns.get(usize::from(column)) else { return Cow::Borrowed("") };
        let Some(computed) = &known.computed else { return Cow::Borrowed(&known.name) };
        Cow::Owned(name(computed))
    }

    /// What is computed for a column, as SQL; nothing for a column of the table.
    pub fn shown_expression(&self, column: u16, pretty: bool) -> Option<String> {
        let sql = &self.table.columns.get(usize::from(column))?.computed.as_ref()?.expression;
        let computed = self.computed.iter().find(|it| it.column == column)?;
        Some(deparse::deparse(&self.table, &computed.expression, computed.ty, pretty).unwrap_or_else(|| sql.clone()))
    }

    /// Which rows an index has, as SQL; nothing when it has all.
    pub fn shown_predicate(&self, number: usize, pretty: bool) -> Option<String> {
        let predicate = self.table.indexes[number].predicate.as_ref()?;
        let whole = whole(self.predicates[number].clone());
        Some(deparse::deparse(&self.table, &whole, Type::BOOL, pretty).unwrap_or_else(|| predicate.condition.clone()))
    }
}

/// What an index's column is called that is an expression: after its function.
pub fn name_of_expression(expression: &Expr) -> String {
    match column_name(expression) {
        name if name == "?column?" => "expr".to_owned(),
        name => name,
    }
}

/// The same of what is computed.
pub fn name(computed: &Computed) -> String {
    parse_expression(&computed.expression).map_or_else(|_| "expr".to_owned(), |parsed| name_of_expression(&parsed))
}

/// Fails unless an expression's value depends on nothing but the row.
///
/// # Errors
/// 42P17.
pub fn check_immutable(expression: &Expression, what: &str) -> Result<(), SqlError> {
    if expression.is_immutable() {
        return Ok(());
    }
    let message = format!("functions in {what} must be marked IMMUTABLE");
    Err(SqlError::new(SqlState::new("42P17"), message))
}

/// One condition out of those that all must hold.
pub fn whole(conditions: Vec<Expression>) -> Expression {
    all_of(conditions).unwrap_or(Expression::Constant(Value::Bool(true)))
}
