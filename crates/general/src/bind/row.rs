//! Whole rows as values: `t`, `t.*`, `ROW(a, b)`.
//!
//! There are no composite types: as a value such a row is its text. But where a row is tested,
//! counted, compared or made to JSON, its fields are taken one by one.

use std::{collections::HashSet, ops::ControlFlow, rc::Rc, sync::Arc};

use datafusion_expr::{Expr, LogicalPlan, Projection};
use freshet_sql::{Kind, SqlError, SqlState, Type, Value, functions::shown, types::CastContext};
use sqlparser::ast::{self, JoinOperator, OrderByExpr, Select, TableFactor, TableWithJoins};

use super::{
    Binder,
    call::Arguments,
    expression::{case_of, row},
    from::Source,
    name,
    scope::missing_table,
    typed::Typed,
};
use crate::{
    error::to_sql,
    function::{RowFunction, Work},
};

/// A row whose fields are known.
pub(super) struct Row {
    pub fields: Vec<(String, Typed)>,
    /// True, where there is such a row, if there may be none.
    pub present: Option<Expr>,
}

impl Row {
    /// The row as text, `(a,b)`.
    fn value(self, binder: &mut Binder<'_>) -> Result<Typed, SqlError> {
        let fields = self.fields.into_iter().map(|(_, typed)| match typed.kind() {
            // Not as the array that it is.
            Kind::Int2Vector | Kind::OidVector => binder.cast(typed, Type::TEXT, CastContext::Explicit),
            _ => binder.shown(typed),
        });
        let fields = fields.map(|typed| Ok::<_, SqlError>(typed?.pair())).collect::<Result<_, _>>()?;
        let text = Typed::new(RowFunction::call(Work::Record, fields, Type::TEXT), Type::TEXT);
        Ok(where_present(self.present, text))
    }

    /// An object of JSON.
    fn object(self, binary: bool, binder: &mut Binder<'_>) -> Result<Typed, SqlError> {
        let fields =
            self.fields.into_iter().map(|(name, typed)| Ok::<_, SqlError>((name, binder.shown(typed)?.pair())));
        let (names, fields): (Vec<String>, Vec<_>) = fields.collect::<Result<Vec<_>, _>>()?.into_iter().unzip();
        let ty = if binary { Type::JSONB } else { Type::JSON };
        let object = Typed::new(RowFunction::call(Work::Object(names.into(), binary), fields, ty), ty);
        Ok(where_present(self.present, object))
    }
}

/// Null where there is no row.
fn where_present(present: Option<Expr>, typed: Typed) -> Typed {
    let null = Typed::literal(&Value::Null, typed.ty);
    match (present, null) {
        (Some(present), Ok(null)) => {
            let there = Expr::IsNotNull(Box::new(present));
            case_of(std::iter::once((there, typed.expr)), null.expr, typed.ty)
        }
        _ => typed,
    }
}

impl Binder<'_> {
    /// The row of something in FROM, if that is what an expression means.
    ///
    /// # Errors
    /// 42P01 for `t.*` when there is no `t`.
    pub(super) fn whole_row(&mut self, expr: &ast::Expr) -> Result<Option<Row>, SqlError> {
        let table = match expr {
            ast::Expr::Nested(inner) => return self.whole_row(inner),
            ast::Expr::Identifier(ident) => {
                let table = name::fold(ident);
                if self.find_column(&table)?.is_some() {
                    return Ok(None);
                }
                (None, table)
            }
            ast::Expr::QualifiedWildcard(table, _) => name::qualified(table)?,
            _ => return Ok(None),
        };
        let Some(fields) = self.table_columns(table.0.as_deref(), &table.1)? else {
            return match expr {
                ast::Expr::QualifiedWildcard(..) => Err(missing_table(&table.1)),
                _ => Ok(None),
            };
        };
        let present = self.present(table.0.as_deref(), &table.1)?;
        Ok(Some(Row { fields, present }))
    }

    /// A row as it is written, or one of something in FROM.
    fn any_row_of(&mut self, expr: &ast::Expr) -> Result<Option<Row>, SqlError> {
        match self.written_row(expr)? {
            Some(elements) => self.row_of(elements).map(Some),
            None => self.whole_row(expr),
        }
    }

    /// The elements of `(a, b)` or `ROW(a, b)`.
    pub(super) fn written_row(&mut self, expr: &ast::Expr) -> Result<Option<Vec<Typed>>, SqlError> {
        match expr {
            ast::Expr::Nested(inner) => self.written_row(inner),
            ast::Expr::Function(function) if is_call_of_row(function) => {
                self.row_elements(Arguments::of(function)?.exprs).map(Some)
            }
            _ => row(expr).map(|elements| self.row_elements(elements)).transpose(),
        }
    }

    /// The elements of a row, among which `t.*` is all columns of a table.
    pub(super) fn row_elements<'e>(
        &mut self,
        exprs: impl IntoIterator<Item = &'e ast::Expr>,
    ) -> Result<Vec<Typed>, SqlError> {
        let mut elements = Vec::new();
        for expr in exprs {
            match self.whole_row(expr)? {
                Some(row) if matches!(expr, ast::Expr::QualifiedWildcard(..)) => {
                    elements.extend(row.fields.into_iter().map(|(_, typed)| typed));
                }
                _ => elements.push(self.expression(expr)?),
            }
        }
        Ok(elements)
    }

    /// Whether an expression is a row.
    pub(super) fn is_row(&mut self, expr: &ast::Expr) -> Result<bool, SqlError> {
        let called = |expr: &ast::Expr| matches!(expr, ast::Expr::Function(function) if is_call_of_row(function));
        let within = || query_of_object(expr, false).is_some();
        Ok(row(expr).is_some() || called(expr) || within() || self.whole_row(expr)?.is_some())
    }

    /// A row of these values.
    pub(super) fn row_of(&mut self, elements: Vec<Typed>) -> Result<Row, SqlError> {
        let mut fields = Vec::with_capacity(elements.len());
        for (at, typed) in elements.into_iter().enumerate() {
            fields.push((format!("f{}", at + 1), self.settle(typed)?));
        }
        Ok(Row { fields, present: None })
    }

    /// A row of these values, as a value.
    pub(super) fn record_of(&mut self, elements: Vec<Typed>) -> Result<Typed, SqlError> {
        self.row_of(elements)?.value(self)
    }

    /// The same value, for what shows it without knowing its type ([`shown`]).
    pub(super) fn shown(&mut self, typed: Typed) -> Result<Typed, SqlError> {
        match shown(typed.kind()) {
            kind if kind == typed.kind() => Ok(typed),
            kind => self.cast(typed, Type::of(kind), CastContext::Explicit),
        }
    }

    /// A row as a value.
    pub(super) fn row_value(&mut self, expr: &ast::Expr) -> Result<Typed, SqlError> {
        let none = || SqlError::new(SqlState::SYNTAX_ERROR, "* is not allowed here");
        self.any_row_of(expr)?.ok_or_else(none)?.value(self)
    }

    /// A row of FROM, or `ROW(...)`, as an object of JSON.
    pub(super) fn row_object(&mut self, expr: &ast::Expr, binary: bool) -> Result<Option<Typed>, SqlError> {
        if let Some(query) = query_of_object(expr, binary) {
            return self.scalar_subquery(&query).map(Some);
        }
        self.any_row_of(expr)?.map(|row| row.object(binary, self)).transpose()
    }

    /// `t = u` and its like: nulls are equal, and there is an answer unless one of the rows is not
    /// there.
    pub(super) fn compare_whole_rows(
        &mut self,
        left: &ast::Expr,
        right: &ast::Expr,
    ) -> Result<Option<(Row, Row)>, SqlError> {
        let Some(left) = self.whole_row(left)? else { return Ok(None) };
        let Some(right) = self.whole_row(right)? else { return Ok(None) };
        if left.fields.len() != right.fields.len() {
            return Err(SqlError::new(
                SqlState::DATATYPE_MISMATCH,
                "cannot compare record types with different numbers of columns",
            ));
        }
        Ok(Some((left, right)))
    }

    /// A field of a row of FROM.
    pub(super) fn row_field(&mut self, root: &ast::Expr, field: &str) -> Result<Option<Typed>, SqlError> {
        let Some(row) = self.whole_row(root)? else { return Ok(None) };
        let mut found = row.fields.into_iter().filter(|(name, _)| name == field);
        match found.next() {
            Some((_, typed)) => Ok(Some(typed)),
            None => Err(SqlError::new(SqlState::UNDEFINED_COLUMN, format!("column {root}.{field} does not exist"))),
        }
    }

    /// Notes the tables whose whole rows are wanted within a SELECT that has outer joins.
    pub(super) fn wanted_rows(select: &Select, order_by: &[OrderByExpr]) -> Rc<HashSet<String>> {
        let mut wanted = HashSet::new();
        if select.from.iter().any(joins_outside) {
            let mut look = |expr: &ast::Expr| {
                match expr {
                    ast::Expr::Identifier(ident) => wanted.insert(name::fold(ident)),
                    ast::Expr::QualifiedWildcard(table, _) => {
                        name::qualified(table).is_ok_and(|(_, name)| wanted.insert(name))
                    }
                    _ => false,
                };
                ControlFlow::<()>::Continue(())
            };
            let _ = ast::visit_expressions(select, &mut look);
            for by in order_by {
                let _ = ast::visit_expressions(&by.expr, &mut look);
            }
        }
        Rc::new(wanted)
    }

    /// Something in FROM, with a column that tells whether there is a row of it, where that is
    /// asked for.
    pub(super) fn marked(&mut self, mut source: Source) -> Result<Source, SqlError> {
        let Some(wanted) = self.wanted.last() else { return Ok(source) };
        let [table] = source.scope.tables.as_mut_slice() else { return Ok(source) };
        if table.present.is_some() || !wanted.contains(&table.name) {
            return Ok(source);
        }
        let mut exprs: Vec<Expr> = source.plan.schema().columns().into_iter().map(Expr::Column).collect();
        let there = self.fresh("present");
        exprs.push(Typed::literal(&Value::Bool(true), Type::BOOL)?.expr.alias(&there));
        let projection = Projection::try_new(exprs, Arc::new(source.plan)).map_err(to_sql)?;
        source.plan = LogicalPlan::Projection(projection);
        table.present = Some(Expr::Column(datafusion_common::Column::new_unqualified(there)));
        Ok(source)
    }
}

/// `(SELECT t FROM … t)`, a row by itself, as a query for the object of JSON that the row is.
fn query_of_object(expr: &ast::Expr, binary: bool) -> Option<ast::Query> {
    let query = match expr {
        ast::Expr::Nested(inner) => return query_of_object(inner, binary),
        ast::Expr::Subquery(query) => query,
        _ => return None,
    };
    let ast::SetExpr::Select(select) = query.body.as_ref() else { return None };
    let [ast::SelectItem::UnnamedExpr(ast::Expr::Identifier(row))] = select.projection.as_slice() else { return None };
    let is_row = |factor: &TableFactor| match factor {
        TableFactor::Table { alias: Some(alias), .. } | TableFactor::Derived { alias: Some(alias), .. } => {
            name::fold(&alias.name) == name::fold(row)
        }
        TableFactor::Table { name, .. } => name::qualified(name).is_ok_and(|(_, name)| name == name::fold(row)),
        _ => false,
    };
    let joined =
        |table: &TableWithJoins| is_row(&table.relation) || table.joins.iter().any(|join| is_row(&join.relation));
    if select.distinct.is_some() || query.order_by.is_some() || !select.from.iter().any(joined) {
        return None;
    }
    let argument = ast::FunctionArg::Unnamed(ast::FunctionArgExpr::Expr(ast::Expr::Identifier(row.clone())));
    let arguments = ast::FunctionArgumentList { duplicate_treatment: None, args: vec![argument], clauses: Vec::new() };
    let object = ast::Expr::Function(ast::Function {
        name: ast::ObjectName::from(vec![ast::Ident::new(if binary { "to_jsonb" } else { "to_json" })]),
        uses_odbc_syntax: false,
        parameters: ast::FunctionArguments::None,
        args: ast::FunctionArguments::List(arguments),
        filter: None,
        null_treatment: None,
        over: None,
        within_group: Vec::new(),
    });
    let select = Select { projection: vec![ast::SelectItem::UnnamedExpr(object)], ..select.as_ref().clone() };
    Some(ast::Query { body: Box::new(ast::SetExpr::Select(Box::new(select))), ..query.as_ref().clone() })
}

/// `ROW(…)`
fn is_call_of_row(function: &ast::Function) -> bool {
    name::function(&function.name).is_ok_and(|name| name == "row")
}

fn joins_outside(table: &TableWithJoins) -> bool {
    let nested = |factor: &TableFactor| match factor {
        TableFactor::NestedJoin { table_with_joins, .. } => joins_outside(table_with_joins),
        _ => false,
    };
    nested(&table.relation)
        || table.joins.iter().any(|join| {
            nested(&join.relation)
                || !matches!(
                    join.join_operator,
                    JoinOperator::Join(_) | JoinOperator::Inner(_) | JoinOperator::CrossJoin(_)
                )
        })
}
