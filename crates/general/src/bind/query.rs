//! Queries: WITH, set operations, VALUES, ORDER BY and LIMIT around SELECT.

use std::sync::Arc;

use datafusion_common::{Column, JoinConstraint, NullEquality};
use datafusion_expr::{
    Aggregate as AggregatePlan, Expr, Filter, Join, JoinType, Limit, LogicalPlan, Operator, Projection, Union,
    expr::Sort,
};
use freshet_sql::{
    Kind, SqlError, SqlState, Type, Value,
    listed::{self, Listed},
    types::CastContext,
};
use sqlparser::ast::{
    self, LimitClause, OrderBy, OrderByExpr, OrderByKind, Query, SetExpr, SetOperator, SetQuantifier,
};

use super::{
    Binder, COLUMN,
    clause::Clause,
    expression::balanced,
    locking::{Clauses, Locking},
    name,
    scope::Level,
    subquery::Conjunct,
    typed::Typed,
};
use crate::{
    aggregate::{Aggregate, AggregateKind, SortKey},
    error::{to_sql, unsupported},
    key::{compares, key},
    node::{self, Expand, Mark},
    series::{Series, SeriesCall},
};

/// A column of a result, and what it is made of.
#[derive(Clone, Debug)]
pub(super) struct Item {
    pub name: String,
    pub typed: Typed,
}

/// A plan, and what of its columns a query lists.
pub(super) struct Rows {
    pub plan: LogicalPlan,
    pub items: Vec<Item>,
    /// What is to be locked of the rows that come out in the end.
    pub marks: Vec<Mark>,
    /// What has been locked of each row, where somebody may ask: tables' oids, and by what.
    pub records: Vec<(u32, Expr)>,
}

impl Rows {
    /// Rows that are not to be locked.
    pub fn new(plan: LogicalPlan, items: Vec<Item>) -> Self {
        Self { plan, items, marks: Vec::new(), records: Vec::new() }
    }
}

/// Groups, and what is computed of each.
struct Groups {
    keys: Vec<Expr>,
    aggregates: Vec<Expr>,
}

impl Binder<'_> {
    /// A query, its columns' types settled.
    pub(super) fn query(&mut self, query: &Query) -> Result<Rows, SqlError> {
        self.query_within(query, &Clauses::default())
    }

    /// The same, where clauses around it lock rows.
    pub(super) fn query_within(&mut self, query: &Query, around: &Clauses) -> Result<Rows, SqlError> {
        let rows = self.unsettled_query(query, around)?;
        self.projected(rows)
    }

    /// A query whose columns may still be of unknown type, where clauses around it lock rows.
    pub(super) fn unsettled_query(&mut self, query: &Query, around: &Clauses) -> Result<Rows, SqlError> {
        self.deeper(|binder| {
            let known = binder.ctes.len();
            let rows = binder.query_with(query, around);
            binder.ctes.truncate(known);
            rows
        })
    }

    fn query_with(&mut self, query: &Query, around: &Clauses) -> Result<Rows, SqlError> {
        check_supported(query)?;
        let clauses = Clauses::of(&query.locks, around);
        let (own, limited) = (!query.locks.is_empty(), has_limit(query));
        if let Some(with) = &query.with {
            self.with(with)?;
        }
        let order_by = order_of(query.order_by.as_ref())?;
        let mut rows = match query.body.as_ref() {
            SetExpr::Select(select) => {
                let locking = Locking::of(clauses);
                self.levels.push(Level { locking, ..Level::default() });
                let rows = self.select(select, order_by);
                self.levels.pop();
                rows?
            }
            body => {
                let mut rows = self.set_expr(body, &clauses)?;
                if !order_by.is_empty() {
                    rows = self.projected(rows)?;
                    rows.plan = self.order_set(&rows, order_by)?;
                }
                rows
            }
        };
        if own || limited {
            self.locked(&mut rows);
        }
        if limited {
            if query.limit_clause.as_ref().is_some_and(has_offset)
                && rows.items.iter().any(|item| item.typed.expr.is_volatile())
            {
                // The rows that are skipped are computed, too.
                rows = self.projected(rows)?;
            }
            self.levels.push(Level { clause: Clause::Limit, ..Level::default() });
            let limited = self.limited(rows.plan, query);
            self.levels.pop();
            rows.plan = limited?;
        }
        Ok(rows)
    }

    pub(super) fn set_expr(&mut self, body: &SetExpr, clauses: &Clauses) -> Result<Rows, SqlError> {
        self.deeper(|binder| match body {
            SetExpr::Select(select) => {
                let locking = Locking::of(clauses.clone());
                binder.levels.push(Level { locking, ..Level::default() });
                let rows = binder.select(select, &[]);
                binder.levels.pop();
                rows
            }
            SetExpr::Query(query) => binder.unsettled_query(query, clauses),
            SetExpr::Values(values) => {
                clauses.check_values()?;
                binder.values(&values.rows)
            }
            SetExpr::SetOperation { left, op, set_quantifier, right } => {
                clauses.check_set_operation()?;
                locking_operand(left)?;
                locking_operand(right)?;
                let none = Clauses::default();
                // Where rows are left out, recursive queries must not be named.
                let without = match op {
                    SetOperator::Union => None,
                    SetOperator::Intersect => Some("within INTERSECT"),
                    _ => Some("within EXCEPT"),
                };
                let all = match set_quantifier {
                    SetQuantifier::All => true,
                    SetQuantifier::Distinct | SetQuantifier::None => false,
                    _ => return Err(unsupported("BY NAME")),
                };
                let left = binder.placed(without.filter(|_| all), |binder| binder.set_expr(left, &none))?;
                let either = all || *op != SetOperator::Intersect;
                let right = binder.placed(without.filter(|_| either), |binder| binder.set_expr(right, &none))?;
                binder.set_operation(*op, all, left, right)
            }
            SetExpr::Table(table) => {
                let unnamed = || SqlError::new(SqlState::SYNTAX_ERROR, "TABLE needs a name");
                let ident = |name: &String| ast::Ident::with_quote('"', name);
                let mut parts: Vec<_> = table.schema_name.iter().map(ident).collect();
                parts.push(ident(table.table_name.as_ref().ok_or_else(unnamed)?));
                let locking = Locking::of(clauses.clone());
                binder.levels.push(Level { locking, ..Level::default() });
                let rows = binder.whole_table(&ast::ObjectName::from(parts));
                binder.levels.pop();
                rows
            }
            _ => Err(unsupported("a statement that changes data within a query")),
        })
    }

    fn set_operation(&mut self, op: SetOperator, all: bool, left: Rows, right: Rows) -> Result<Rows, SqlError> {
        let name = match op {
            SetOperator::Union => "UNION",
            SetOperator::Intersect => "INTERSECT",
            SetOperator::Except | SetOperator::Minus => "EXCEPT",
        };
        if left.items.len() != right.items.len() {
            return Err(SqlError::new(
                SqlState::SYNTAX_ERROR,
                format!("each {name} query must have the same number of columns"),
            ));
        }
        let mut types = Vec::with_capacity(left.items.len());
        for (left, right) in left.items.iter().zip(&right.items) {
            types.push(self.common_type(&[left.typed.ty, right.typed.ty], name)?);
        }
        let left = self.projected_as(left, &types)?;
        let right = self.projected_as(right, &types)?;
        match (op, all) {
            (SetOperator::Union, all) => {
                let union = self.union(left, right)?;
                if all { Ok(union) } else { self.distinct_rows(union) }
            }
            (SetOperator::Intersect, false) => {
                let rows = self.matching(left, right, JoinType::LeftSemi)?;
                self.distinct_rows(rows)
            }
            (_, false) => {
                let rows = self.matching(left, right, JoinType::LeftAnti)?;
                self.distinct_rows(rows)
            }
            (op, true) => self.counted(op, left, right),
        }
    }

    /// UNION, of queries with as many columns.
    pub(super) fn plain_union(&mut self, left: Rows, right: Rows, all: bool) -> Result<Rows, SqlError> {
        self.set_operation(SetOperator::Union, all, left, right)
    }

    /// UNION ALL; its columns are named after those on the left.
    pub(super) fn union(&mut self, left: Rows, right: Rows) -> Result<Rows, SqlError> {
        let names: Vec<String> = left.items.iter().map(|item| item.name.clone()).collect();
        let types: Vec<Type> = left.items.iter().map(|item| item.typed.ty).collect();
        let columns: Vec<String> = names.iter().map(|name| self.fresh(name)).collect();
        let mut inputs = Vec::with_capacity(2);
        for rows in [left, right] {
            let exprs = rows.items.into_iter().zip(&columns).map(|(item, name)| item.typed.expr.alias(name)).collect();
            let projection = Projection::try_new(exprs, Arc::new(rows.plan)).map_err(to_sql)?;
            inputs.push(Arc::new(LogicalPlan::Projection(projection)));
        }
        let plan = LogicalPlan::Union(Union::try_new_with_loose_types(inputs).map_err(to_sql)?);
        let items = names
            .into_iter()
            .zip(columns)
            .zip(types)
            .map(|((name, column), ty)| Item {
                name,
                typed: Typed::new(Expr::Column(Column::new_unqualified(column)), ty),
            })
            .collect();
        Ok(Rows::new(plan, items))
    }

    /// The rows on the left that equal one on the right, or none; null equals null.
    fn matching(&mut self, left: Rows, right: Rows, join_type: JoinType) -> Result<Rows, SqlError> {
        let mut on = Vec::with_capacity(left.items.len());
        for (left, right) in left.items.iter().zip(&right.items) {
            on.push((self.equality_key(&left.typed)?, self.equality_key(&right.typed)?));
        }
        let (left_plan, right_plan) = (Arc::new(left.plan), Arc::new(right.plan));
        let plan = if on.is_empty() {
            return Err(unsupported("a set operation on queries without columns"));
        } else {
            Join::try_new(
                left_plan,
                right_plan,
                on,
                None,
                join_type,
                JoinConstraint::On,
                NullEquality::NullEqualsNull,
                false,
            )
            .map_err(to_sql)?
        };
        let mut items = left.items;
        items.iter_mut().for_each(|item| item.typed.origin = None);
        Ok(Rows::new(LogicalPlan::Join(plan), items))
    }

    /// Equal rows as often as INTERSECT ALL or EXCEPT ALL says: they are counted on both sides.
    fn counted(&mut self, op: SetOperator, left: Rows, right: Rows) -> Result<Rows, SqlError> {
        if left.items.is_empty() {
            return Err(unsupported("a set operation on queries without columns"));
        }
        let width = left.items.len();
        let sided = |mut rows: Rows, is_left: bool| {
            let typed = Typed::literal(&Value::Bool(is_left), Type::BOOL)?;
            rows.items.push(Item { name: "left".to_owned(), typed });
            Ok::<_, SqlError>(rows)
        };
        let Rows { plan, mut items, .. } = self.union(sided(left, true)?, sided(right, false)?)?;
        let side = items.split_off(width).into_iter().map(|item| item.typed.expr).collect::<Vec<_>>();
        let is_left = side.into_iter().next().ok_or_else(|| SqlError::internal("a side without a name"))?;
        let is_right = Expr::Not(Box::new(is_left.clone()));
        let (mut groups, mut shown) = self.groups_of_equal(items, Some(&is_left))?;
        let mut counts = Vec::with_capacity(2);
        for filter in [is_left, is_right] {
            let one = Typed::literal(&Value::Int4(1), Type::INT4)?.expr;
            let count =
                Aggregate::new(AggregateKind::Count, "count", vec![Type::INT4], 1, Type::INT8, Vec::new(), false);
            let column = self.fresh("count");
            groups.aggregates.push(super::group::filtered(count, vec![one], Some(filter)).alias(&column));
            counts.push(Typed::new(Expr::Column(Column::new_unqualified(column)), Type::INT8));
        }
        let plan = AggregatePlan::try_new(Arc::new(plan), groups.keys, groups.aggregates).map_err(to_sql)?;
        let times = match (op, counts.as_slice()) {
            (SetOperator::Intersect, _) => self.call("least", counts)?,
            (_, [left, right]) => self.operator("-", left.clone(), right.clone())?,
            _ => return Err(SqlError::internal("two sides are counted")),
        };
        let first = Typed::literal(&Value::Int8(1), Type::INT8)?;
        let call = SeriesCall {
            series: Series::Generate(Kind::Int8),
            arguments: vec![first.pair(), times.pair()],
            columns: vec![(self.fresh("time"), Type::INT8)],
        };
        let plan = Expand::plan(LogicalPlan::Aggregate(plan), vec![call], None, false)?;
        shown.iter_mut().for_each(|item| item.typed.origin = None);
        Ok(Rows::new(plan, shown))
    }

    fn equality_key(&self, typed: &Typed) -> Result<Expr, SqlError> {
        if typed.kind() == Kind::Json {
            return Err(SqlError::new(
                SqlState::UNDEFINED_FUNCTION,
                "could not identify an equality operator for type json",
            ));
        }
        Ok(key(typed.expr.clone(), typed.ty))
    }

    /// DISTINCT over all columns.
    pub(super) fn distinct_rows(&mut self, rows: Rows) -> Result<Rows, SqlError> {
        if rows.items.is_empty() {
            // All rows are equal.
            let one = Typed::literal(&Value::Int8(1), Type::INT8)?.expr;
            let limit = Limit { skip: None, fetch: Some(Box::new(one)), input: Arc::new(rows.plan) };
            return Ok(Rows::new(LogicalPlan::Limit(limit), Vec::new()));
        }
        let Rows { plan, items, .. } = rows;
        let (groups, items) = self.groups_of_equal(items, None)?;
        let plan = AggregatePlan::try_new(Arc::new(plan), groups.keys, groups.aggregates).map_err(to_sql)?;
        Ok(Rows::new(LogicalPlan::Aggregate(plan), items))
    }

    /// What makes groups of equal rows, and what is shown of each: of a row for which the filter
    /// holds.
    fn groups_of_equal(&mut self, rows: Vec<Item>, filter: Option<&Expr>) -> Result<(Groups, Vec<Item>), SqlError> {
        let mut groups = Groups { keys: Vec::with_capacity(rows.len()), aggregates: Vec::new() };
        let mut items = Vec::with_capacity(rows.len());
        for Item { name, typed } in rows {
            let expr = self.equality_key(&typed)?;
            let column = self.fresh(&name);
            if compares(typed.ty) {
                groups.keys.push(expr.alias(&column));
            } else {
                // Equal values may look different: one of them is shown.
                groups.keys.push(expr.alias(self.fresh("key")));
                let types = vec![typed.ty];
                let any = Aggregate::new(AggregateKind::AnyValue, "any_value", types, 1, typed.ty, Vec::new(), false);
                let any = super::group::filtered(any, vec![typed.expr], filter.cloned());
                groups.aggregates.push(any.alias(&column));
            }
            let column = Typed::new(Expr::Column(Column::new_unqualified(column)), typed.ty);
            items.push(Item { name, typed: column.from(typed.origin) });
        }
        Ok((groups, items))
    }

    /// The listed columns, and nothing else, under names of their own.
    pub(super) fn projected(&mut self, rows: Rows) -> Result<Rows, SqlError> {
        let Rows { plan, items, marks, records } = rows;
        let items = items
            .into_iter()
            .map(|item| Ok(Item { name: item.name, typed: self.settle(item.typed)? }))
            .collect::<Result<Vec<_>, SqlError>>()?;
        self.project(Rows { plan, items, marks, records })
    }

    /// The listed columns as values of these types.
    pub(super) fn projected_as(&mut self, rows: Rows, types: &[Type]) -> Result<Rows, SqlError> {
        let Rows { plan, items, marks, records } = rows;
        let items = items
            .into_iter()
            .zip(types)
            .map(|(item, ty)| Ok(Item { name: item.name, typed: self.coerce(item.typed, *ty)? }))
            .collect::<Result<Vec<_>, SqlError>>()?;
        self.project(Rows { plan, items, marks, records })
    }

    fn project(&mut self, rows: Rows) -> Result<Rows, SqlError> {
        let Rows { plan, items, mut marks, mut records } = rows;
        self.makes(items.len() * COLUMN)?;
        let mut exprs = Vec::with_capacity(items.len() + marks.len() + records.len());
        let mut columns = Vec::with_capacity(items.len());
        for Item { name, typed } in items {
            let column = Column::new_unqualified(self.fresh(&name));
            exprs.push(typed.expr.alias(&column.name));
            let shown = Typed::new(Expr::Column(column), typed.ty).from(typed.origin);
            columns.push(Item { name, typed: shown });
        }
        for row in marks.iter_mut().map(|mark| &mut mark.row).chain(records.iter_mut().map(|(_, row)| row)) {
            let column = Column::new_unqualified(self.fresh("row"));
            exprs.push(row.clone().alias(&column.name));
            *row = Expr::Column(column);
        }
        let projection = Projection::try_new(exprs, Arc::new(plan)).map_err(to_sql)?;
        Ok(Rows { plan: LogicalPlan::Projection(projection), items: columns, marks, records })
    }

    /// Rows that are written out.
    fn values(&mut self, rows: &[ast::Parens<Vec<ast::Expr>>]) -> Result<Rows, SqlError> {
        let width = rows.first().map_or(0, |row| row.content.len());
        let mut columns: Vec<Vec<Typed>> = (0..width).map(|_| Vec::with_capacity(rows.len())).collect();
        self.levels.push(Level { clause: Clause::Values, ..Level::default() });
        let bound = rows.iter().try_for_each(|row| {
            if row.content.len() != width {
                return Err(SqlError::new(SqlState::SYNTAX_ERROR, "VALUES lists must all be the same length"));
            }
            for (column, expr) in columns.iter_mut().zip(&row.content) {
                column.push(self.expression(expr)?);
            }
            Ok(())
        });
        self.levels.pop();
        bound?;
        let mut types = Vec::with_capacity(width);
        let mut unified = Vec::with_capacity(width);
        for column in columns {
            // One row alone may still be told what it is.
            let (column, ty) = if column.iter().all(Typed::is_unknown) && rows.len() == 1 {
                (column, Type::UNKNOWN)
            } else {
                self.unify(column, "VALUES")?
            };
            types.push(ty);
            unified.push(column.into_iter());
        }
        let names: Vec<String> = (1..=width).map(|at| format!("column{at}")).collect();
        if rows.len() == 1 {
            let items = names
                .into_iter()
                .zip(unified)
                .filter_map(|(name, mut column)| column.next().map(|typed| Item { name, typed }))
                .collect();
            return Ok(Rows::new(node::one_row(), items));
        }
        let exprs = (0..rows.len())
            .map(|_| unified.iter_mut().filter_map(|column| column.next().map(|typed| typed.expr)).collect())
            .collect();
        let columns: Vec<String> = names.iter().map(|name| self.fresh(name)).collect();
        let plan = node::values(exprs, &columns, &types)?;
        let items = names
            .into_iter()
            .zip(columns)
            .zip(types)
            .map(|((name, column), ty)| Item {
                name,
                typed: Typed::new(Expr::Column(Column::new_unqualified(column)), ty),
            })
            .collect();
        Ok(Rows::new(plan, items))
    }

    /// ORDER BY behind a set operation, which knows the result's columns only.
    fn order_set(&mut self, rows: &Rows, order_by: &[OrderByExpr]) -> Result<LogicalPlan, SqlError> {
        let mut sort = Vec::with_capacity(order_by.len());
        for by in order_by {
            let item = match listed::listed(&by.expr) {
                Some(Listed::Place(digits)) => &rows.items[listed::place(&digits, rows.items.len(), "ORDER BY")?],
                Some(Listed::Name(name)) => rows
                    .items
                    .iter()
                    .find(|item| item.name == name)
                    .ok_or_else(|| super::scope::missing_column(&name))?,
                Some(Listed::Constant) => return Err(listed::no_place("ORDER BY")),
                None => {
                    return Err(SqlError::new(
                        SqlState::FEATURE_NOT_SUPPORTED,
                        "invalid UNION/INTERSECT/EXCEPT ORDER BY clause",
                    )
                    .with_detail("Only result column names can be used, not expressions or functions."));
                }
            };
            let SortKey { descending, nulls_first, .. } = SortKey::of(item.typed.ty, &by.options);
            sort.push(Sort { expr: self.sort_expression(item.typed.clone())?, asc: !descending, nulls_first });
        }
        node::sorted(rows.plan.clone(), sort)
    }

    /// Puts LIMIT and OFFSET of `query` above its plan.
    fn limited(&mut self, plan: LogicalPlan, query: &Query) -> Result<LogicalPlan, SqlError> {
        let (limit, offset) = match &query.limit_clause {
            Some(LimitClause::LimitOffset { limit, offset, limit_by }) if limit_by.is_empty() => {
                (limit.as_ref(), offset.as_ref().map(|offset| &offset.value))
            }
            Some(_) => return Err(unsupported("LIMIT BY and LIMIT with a comma")),
            None => (None, None),
        };
        let one = ast::Expr::value(ast::Value::Number("1".to_owned(), false));
        let limit = match &query.fetch {
            Some(fetch) if fetch.percent => return Err(unsupported("FETCH ... PERCENT")),
            Some(fetch) if fetch.with_ties => return Err(unsupported("FETCH ... WITH TIES")),
            Some(fetch) => Some(fetch.quantity.as_ref().unwrap_or(&one)),
            None => limit,
        };
        let skip = offset.map(|offset| self.row_count(offset, "OFFSET")).transpose()?;
        let fetch = limit.map(|limit| self.row_count(limit, "LIMIT")).transpose()?;
        if skip.is_none() && fetch.is_none() {
            return Ok(plan);
        }
        Ok(LogicalPlan::Limit(Limit { skip: skip.map(Box::new), fetch: fetch.map(Box::new), input: Arc::new(plan) }))
    }

    fn row_count(&mut self, expr: &ast::Expr, clause: &'static str) -> Result<Expr, SqlError> {
        let typed = self.expression(expr)?;
        let typed = self.cast(typed, Type::INT8, CastContext::Assignment)?;
        if !typed.expr.column_refs().is_empty() {
            return Err(SqlError::new(
                SqlState::INVALID_COLUMN_REFERENCE,
                format!("argument of {clause} must not contain variables"),
            ));
        }
        if let Some(Value::Int8(number)) = typed.as_value()
            && number < 0
        {
            return Err(node::negative_count(clause));
        }
        Ok(typed.expr)
    }

    /// WHERE: subqueries that can be joined are, the rest is a filter.
    pub(super) fn filter(&mut self, mut plan: LogicalPlan, condition: &ast::Expr) -> Result<LogicalPlan, SqlError> {
        let conjuncts = conjuncts_of(condition);
        let mut filters: Vec<Expr> = Vec::with_capacity(conjuncts.len());
        let mut joins = Vec::new();
        for conjunct in conjuncts {
            let typed = match self.semi_join(conjunct)? {
                Conjunct::Join(join) => {
                    joins.push(join);
                    continue;
                }
                Conjunct::Expression(typed) => typed,
                Conjunct::Other => self.expression(conjunct)?,
            };
            filters.push(self.condition(typed, "WHERE")?.expr);
        }
        // The filter stands above: there it can be taken apart, and the optimizer moves it down.
        for join in joins {
            plan = join.onto(plan)?;
        }
        plan = self.join_subqueries(plan, &mut filters.iter_mut().collect::<Vec<_>>())?;
        if let Some(predicate) = balanced(filters, Operator::And) {
            plan = LogicalPlan::Filter(Filter::try_new(predicate, Arc::new(plan)).map_err(to_sql)?);
        }
        Ok(plan)
    }
}

/// # Errors
/// 0A000 where an operand of a set operation locks rows itself.
fn locking_operand(body: &SetExpr) -> Result<(), SqlError> {
    match body {
        SetExpr::Query(query) => {
            Clauses::of(&query.locks, &Clauses::default()).check_set_operation()?;
            locking_operand(&query.body)
        }
        _ => Ok(()),
    }
}

/// What a condition's ANDs connect.
fn conjuncts_of(condition: &ast::Expr) -> Vec<&ast::Expr> {
    let mut found = Vec::new();
    let mut waiting = vec![condition];
    while let Some(expr) = waiting.pop() {
        match expr {
            ast::Expr::BinaryOp { left, op: ast::BinaryOperator::And, right } => {
                waiting.extend([right.as_ref(), left]);
            }
            ast::Expr::Nested(inner) => waiting.push(inner),
            condition => found.push(condition),
        }
    }
    found
}

fn has_offset(clause: &LimitClause) -> bool {
    matches!(clause, LimitClause::LimitOffset { offset: Some(_), .. })
}

fn has_limit(query: &Query) -> bool {
    query.limit_clause.is_some() || query.fetch.is_some()
}

fn order_of(order_by: Option<&OrderBy>) -> Result<&[OrderByExpr], SqlError> {
    match order_by {
        None => Ok(&[]),
        Some(OrderBy { kind: OrderByKind::Expressions(exprs), interpolate: None }) => Ok(exprs),
        Some(_) => Err(unsupported("this form of ORDER BY")),
    }
}

fn check_supported(query: &Query) -> Result<(), SqlError> {
    let unusual = [
        (query.for_clause.is_some(), "FOR XML and FOR JSON"),
        (query.settings.is_some(), "SETTINGS"),
        (query.format_clause.is_some(), "FORMAT"),
        (!query.pipe_operators.is_empty(), "|>"),
    ];
    match unusual.iter().find(|(used, _)| *used) {
        Some((_, what)) => Err(unsupported(what)),
        None => Ok(()),
    }
}

/// The name of a CTE's or a derived table's column.
pub(super) fn column_names(columns: &[ast::TableAliasColumnDef]) -> Vec<String> {
    columns.iter().map(|column| name::fold(&column.name)).collect()
}
