//! Calls of functions that return sets.

use std::borrow::Cow;

use datafusion_common::Column;
use datafusion_expr::Expr;
use freshet_sql::{Kind, SqlError, SqlState, Type};
use sqlparser::ast;

use super::{Binder, call::Arguments, name, typed::Typed};
use crate::{
    error::unsupported,
    function::{RowFunction, Work},
    series::{Series, SeriesCall},
};

/// What stands between the name of a composite column and that of its field: no name has it.
const FIELD: char = '\0';

fn field_name(column: &str, field: &str) -> String {
    format!("{column}{FIELD}{field}")
}

/// Whether a column is a field of another one: found only as such.
pub(super) fn is_field(name: &str) -> bool {
    name.contains(FIELD)
}

#[cold]
fn no_field(name: &str) -> SqlError {
    SqlError::new(SqlState::UNDEFINED_COLUMN, format!("could not identify column \"{name}\" in record data type"))
}

/// A call of a function that returns rows of several columns.
fn composite(expr: &ast::Expr) -> Result<Option<(Series, &ast::Function)>, SqlError> {
    let ast::Expr::Function(function) = expr else { return Ok(None) };
    let (schema, name) = name::routine(&function.name)?;
    let series = Series::named(schema.as_deref(), &name).filter(|series| !series.fields().is_empty());
    Ok(series.map(|series| (series, function)))
}

/// A query in FROM that lists, beside composite values, their fields: so they can be named around
/// it.
///
/// # Errors
/// When functions have no proper names.
pub(super) fn with_fields(query: &ast::Query) -> Result<Cow<'_, ast::Query>, SqlError> {
    let ast::SetExpr::Select(select) = &*query.body else { return Ok(Cow::Borrowed(query)) };
    if select.distinct.is_some() {
        return Ok(Cow::Borrowed(query));
    }
    let mut more = Vec::new();
    for item in &select.projection {
        let (expr, alias) = match item {
            ast::SelectItem::UnnamedExpr(expr) => (expr, None),
            ast::SelectItem::ExprWithAlias { expr, alias } => (expr, Some(name::fold(alias))),
            _ => continue,
        };
        let Some((series, _)) = composite(expr)? else { continue };
        let column = alias.unwrap_or_else(|| name::of_column(expr));
        more.extend(series.fields().iter().map(|field| ast::SelectItem::ExprWithAlias {
            expr: ast::Expr::CompoundFieldAccess {
                root: Box::new(expr.clone()),
                access_chain: vec![ast::AccessExpr::Dot(ast::Expr::Identifier(ast::Ident::new(*field)))],
            },
            alias: ast::Ident::with_quote('"', field_name(&column, field)),
        }));
    }
    if more.is_empty() {
        return Ok(Cow::Borrowed(query));
    }
    let mut query = query.clone();
    if let ast::SetExpr::Select(select) = &mut *query.body {
        select.projection.extend(more);
    }
    Ok(Cow::Owned(query))
}

impl Binder<'_> {
    /// A call outside of FROM: it is expanded beneath the list that it stands in, which sees a
    /// column.
    ///
    /// Of a function that returns rows of several columns, it is the one of this name, or else
    /// their text.
    pub(super) fn series_call(
        &mut self,
        series: Series,
        arguments: &Arguments<'_>,
        field: Option<&str>,
    ) -> Result<Typed, SqlError> {
        self.level().check_series()?;
        let mut typed = Vec::with_capacity(arguments.exprs.len());
        for expr in &arguments.exprs {
            typed.push(self.expression(expr)?);
        }
        let call = self.series(series, typed)?;
        let made = |column: &Column| {
            self.levels.last().is_some_and(|level| {
                let mut calls = level.collected.series.iter();
                calls.any(|call| call.columns.iter().any(|(name, _)| *name == column.name))
            })
        };
        if call.arguments.iter().any(|(expr, _)| expr.column_refs().into_iter().any(made)) {
            return Err(unsupported("a set-returning function as an argument of another one"));
        }
        let columns: Vec<(String, Typed)> = call
            .columns
            .iter()
            .map(|(name, ty)| {
                (call.visible(name), Typed::new(Expr::Column(Column::new_unqualified(name.clone())), *ty))
            })
            .collect();
        self.level().collected.series.push(call);
        match (columns.as_slice(), field) {
            (columns, Some(field)) => columns
                .iter()
                .find(|(name, _)| name == field)
                .map(|(_, typed)| typed.clone())
                .ok_or_else(|| no_field(field)),
            ([(_, column)], None) => Ok(column.clone()),
            _ => {
                let columns = columns.into_iter().map(|(_, typed)| typed.pair()).collect();
                Ok(Typed::new(RowFunction::call(Work::Record, columns, Type::TEXT), Type::TEXT))
            }
        }
    }

    /// A field of a composite value: of a call, or of a column that was made by one.
    ///
    /// # Errors
    /// 42809 when the value is not composite, 42703 when it has no such field.
    pub(super) fn field(&mut self, root: &ast::Expr, field: &ast::Expr) -> Result<Typed, SqlError> {
        let ast::Expr::Identifier(field) = field else { return Err(unsupported("this field of a composite value")) };
        let field = name::fold(field);
        let mut root = root;
        while let ast::Expr::Nested(inner) = root {
            root = inner;
        }
        if let Some((series, function)) = composite(root)? {
            return self.series_call(series, &Arguments::of(function)?, Some(&field));
        }
        let found = match root {
            ast::Expr::Identifier(column) => self.find_column(&field_name(&name::fold(column), &field))?,
            ast::Expr::CompoundIdentifier(parts) => match parts.as_slice() {
                [.., table, column] => {
                    let (table, column) = (name::fold(table), field_name(&name::fold(column), &field));
                    self.qualified_column(None, &table, &column).ok()
                }
                _ => None,
            },
            _ => None,
        };
        let found = match found {
            Some(found) => Some(found),
            None => self.row_field(root, &field)?,
        };
        match found {
            Some(found) => Ok(found),
            None => {
                let typed = self.expression(root)?;
                Err(SqlError::new(
                    SqlState::WRONG_OBJECT_TYPE,
                    format!(
                        "column notation .{field} applied to type {}, which is not a composite type",
                        typed.kind().sql_name()
                    ),
                ))
            }
        }
    }

    /// Chooses the function for its arguments.
    ///
    /// # Errors
    /// 42883 when none exists.
    pub(super) fn series(&mut self, series: Series, typed: Vec<Typed>) -> Result<SeriesCall, SqlError> {
        let kinds: Vec<Kind> = typed.iter().map(Typed::kind).collect();
        let Some((series, arguments, columns)) = series.resolve(&kinds) else {
            let kinds: Vec<_> = kinds.iter().map(|kind| kind.sql_name()).collect();
            let (name, kinds) = (series.name(), kinds.join(", "));
            return Err(SqlError::new(
                SqlState::UNDEFINED_FUNCTION,
                format!("function {name}({kinds}) does not exist"),
            )
            .with_hint(
                "No function matches the given name and argument types. You might need to add explicit type casts.",
            ));
        };
        let mut coerced = Vec::with_capacity(typed.len());
        for (typed, kind) in typed.into_iter().zip(arguments) {
            coerced.push(self.coerce(typed, Type::of(kind))?.pair());
        }
        let columns = columns.into_iter().map(|(name, kind)| (self.fresh(name), Type::of(kind))).collect();
        Ok(SeriesCall { series, arguments: coerced, columns })
    }

    /// A function that returns one value, as one that returns a set of one.
    pub(super) fn single(&mut self, name: &str, value: Typed) -> SeriesCall {
        let columns = vec![(self.fresh(name), value.ty)];
        SeriesCall { series: Series::Single, arguments: vec![value.pair()], columns }
    }
}
