//! SELECT, as far as it is for this crate: tables joined by nested loops over indexes, conditions,
//! aggregates, order, limits.

use std::sync::Arc;

use freshet_sql::{
    SqlError, SqlState, Type, Value,
    listed::{self, Listed, bare},
    locking::{self, RowMark, name_of_lock},
    names,
    types::{CastContext, Kind},
};
use sqlparser::ast::{
    Distinct, Expr, GroupByExpr, JoinConstraint, JoinOperator, LimitClause, LockClause, OrderByKind, Query, Select,
    SelectItem, SelectItemQualifiedWildcardKind, SetExpr, TableFactor,
};

use super::{
    Binder, Bound, Scope, ScopeSource, Stop,
    access::{self, Access},
    aggregate::{AggregateCall, Grouping},
    first::not_row_by_row,
    join, name_of, qualified, syntax_error,
};
use crate::{
    expression::{Expression, Typed},
    schema::{Named, TableInfo, privilege},
    system,
};

/// A column of a result.
#[derive(Clone, Debug)]
pub struct Output {
    /// The column's name, as the client shows it.
    pub name: String,
    /// The type of its values.
    pub ty: Type,
    /// The value of each row.
    pub expression: Expression,
    /// The table and the column, from 1, that it shows as they are.
    pub origin: Option<(u32, i16)>,
}

/// The rows of one table within a statement.
#[derive(Clone, Debug)]
pub struct ScanPlan {
    /// The table that is read.
    pub table: Arc<TableInfo>,
    /// Its name in the statement.
    pub alias: String,
    /// How its rows are found.
    pub access: Access,
    /// What must hold of a row, given those of the tables before it.
    pub filter: Option<Expression>,
    /// The same and what the access path sees to, for a row that was changed in the meantime.
    pub conditions: Option<Expression>,
    /// How its rows are locked, if they are.
    pub mark: Option<RowMark>,
}

/// A key of an order.
#[derive(Clone, Debug)]
pub struct SortKey {
    /// The value by which rows are compared.
    pub expression: Expression,
    /// Larger values first.
    pub descending: bool,
    /// Nulls first.
    pub nulls_first: bool,
}

/// What is computed for groups of rows.
#[derive(Clone, Debug)]
pub struct Aggregation {
    /// What rows of one group have in common.
    pub groups: Box<[Expression]>,
    /// The calls of aggregates, each with its place in the result.
    pub calls: Box<[AggregateCall]>,
    /// HAVING: only groups that fulfil this are shown.
    pub having: Option<Expression>,
}

/// The plan of a SELECT over indexes, without general queries.
#[derive(Clone, Debug)]
pub struct SelectPlan {
    /// Tables, the outermost loop first.
    pub scans: Vec<ScanPlan>,
    /// What must hold where there is no table at all, or does not depend on any.
    pub filter: Option<Expression>,
    /// Aggregation, whose row is the source behind the tables.
    pub aggregation: Option<Aggregation>,
    /// The columns of the result.
    pub output: Vec<Output>,
    /// DISTINCT: each row comes once.
    pub distinct: bool,
    /// The order, if the rows do not come in it.
    pub order: Vec<SortKey>,
    /// No more rows than this many.
    pub limit: Option<Expression>,
    /// This many are left out before.
    pub offset: Option<Expression>,
    /// Several rows of expressions: VALUES.
    pub values: Vec<Vec<Expression>>,
}

impl SelectPlan {
    /// Whether it locks rows.
    pub fn locks(&self) -> bool {
        self.scans.iter().any(|scan| scan.mark.is_some())
    }

    /// Calls `change` with every expression over the rows of its tables that is not a condition on
    /// them.
    pub(super) fn expressions(&mut self, change: &mut dyn FnMut(&mut Expression)) {
        self.output.iter_mut().for_each(|output| change(&mut output.expression));
        self.order.iter_mut().for_each(|key| change(&mut key.expression));
        if let Some(aggregation) = &mut self.aggregation {
            aggregation.groups.iter_mut().for_each(&mut *change);
            aggregation.having.iter_mut().for_each(&mut *change);
            for call in &mut aggregation.calls {
                call.argument.iter_mut().chain(&mut call.filter).for_each(&mut *change);
            }
        }
    }
}

impl Binder<'_> {
    /// Binds a query.
    ///
    /// # Errors
    /// When it makes no sense, or is for general queries; 42501.
    pub fn query(&self, query: &Query) -> Bound<SelectPlan> {
        self.allowed(|| self.any_query(query))
    }

    /// Binds a query, be it a statement or a part of one.
    pub(super) fn any_query(&self, query: &Query) -> Bound<SelectPlan> {
        if query.with.is_some() {
            return Err(Stop::General("WITH"));
        }
        if query.for_clause.is_some() || !query.pipe_operators.is_empty() || query.settings.is_some() {
            return Err(Stop::General("a clause of another dialect"));
        }
        let mut plan = match &*query.body {
            SetExpr::Select(select) => self.select(select, query)?,
            SetExpr::Values(values) => {
                self.values(&values.rows.iter().map(|row| &row.content[..]).collect::<Vec<_>>(), query)?
            }
            SetExpr::Query(inner)
                if query.order_by.is_none()
                    && query.limit_clause.is_none()
                    && query.fetch.is_none()
                    && query.locks.is_empty() =>
            {
                return self.any_query(inner);
            }
            _ => return Err(Stop::General("a set operation")),
        };
        let nothing = Scope::nothing();
        let number = |expr: &Expr, clause: &str| -> Bound<Expression> {
            let typed = self.expression(expr, &nothing).map_err(|stop| match stop {
                Stop::Error(error) if error.state == SqlState::UNDEFINED_COLUMN => {
                    let message = format!("argument of {clause} must not contain variables");
                    Stop::Error(SqlError::new(SqlState::new("42P10"), message))
                }
                stop => stop,
            })?;
            Ok(self.coerce(typed, Type::INT8, CastContext::Assignment)?.expression)
        };
        match &query.limit_clause {
            Some(LimitClause::LimitOffset { limit, offset, limit_by }) if limit_by.is_empty() => {
                if offset.is_some() && plan.output.iter().any(|out| out.expression.is_volatile()) {
                    return Err(Stop::General("a volatile function before OFFSET"));
                }
                plan.limit = limit.as_ref().map(|limit| number(limit, "LIMIT")).transpose()?;
                plan.offset = offset.as_ref().map(|offset| number(&offset.value, "OFFSET")).transpose()?;
            }
            None => {}
            Some(_) => return Err(syntax_error("LIMIT #,# syntax is not supported").into()),
        }
        if let Some(fetch) = &query.fetch {
            if fetch.with_ties || fetch.percent {
                return Err(Stop::General("FETCH WITH TIES"));
            }
            let one = Expression::Constant(Value::Int8(1));
            plan.limit = Some(fetch.quantity.as_ref().map(|count| number(count, "FETCH")).transpose()?.unwrap_or(one));
        }
        if !query.locks.is_empty() {
            self.mark(&mut plan, &query.locks)?;
        }
        Ok(plan)
    }

    /// Says of the scans of a plan how their rows are locked.
    fn mark(&self, plan: &mut SelectPlan, locks: &[LockClause]) -> Bound<()> {
        for clause in locks.iter().map(locking::clause) {
            let name = name_of_lock(clause.lock);
            let refused = |why: &str| {
                let message = format!("{name} is not allowed with {why}");
                Err(SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, message).into())
            };
            match &plan.aggregation {
                _ if plan.distinct => return refused("DISTINCT clause"),
                Some(aggregation) if !aggregation.groups.is_empty() => return refused("GROUP BY clause"),
                Some(aggregation) if aggregation.having.is_some() => return refused("HAVING clause"),
                Some(_) => return refused("aggregate functions"),
                None => {}
            }
            if !plan.values.is_empty() {
                let message = format!("{name} cannot be applied to VALUES");
                return Err(SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, message).into());
            }
            if let Some(missing) = clause.of.iter().find(|of| !plan.scans.iter().any(|scan| scan.alias == **of)) {
                let message = format!("relation \"{missing}\" in {name} clause not found in FROM clause");
                return Err(SqlError::new(SqlState::UNDEFINED_TABLE, message).into());
            }
            for scan in &mut plan.scans {
                if clause.of.is_empty() || clause.of.contains(&scan.alias) {
                    self.need(&scan.table, privilege::UPDATE);
                    scan.mark = Some(RowMark { lock: clause.lock, when: clause.when }.and(scan.mark));
                }
            }
        }
        Ok(())
    }

    /// The table that a name in FROM means.
    ///
    /// # Errors
    /// When none exists; a view is for general queries.
    pub fn table(&self, name: &sqlparser::ast::ObjectName) -> Bound<Arc<TableInfo>> {
        let (schema, last) = self.qualified(name)?;
        if system::is_named(self.schema, self.path, schema.as_deref(), &last) {
            return Err(Stop::General("a table of the system"));
        }
        match self.relation(name)? {
            Named::Table(oid) => {
                let info = self.schema.table(oid);
                Ok(Arc::clone(
                    info.ok_or_else(|| SqlError::internal(format!("table {oid} is named and is not there")))?,
                ))
            }
            Named::View(_) | Named::Sequence(_) => Err(Stop::General("a view")),
            Named::Index { .. } => {
                let message = format!("cannot open relation \"{last}\"");
                let error = SqlError::new(SqlState::WRONG_OBJECT_TYPE, message);
                Err(error.with_detail("This operation is not supported for indexes.").into())
            }
        }
    }

    fn source(&self, factor: &TableFactor) -> Bound<ScopeSource> {
        let TableFactor::Table { name, alias, args: None, with_ordinality: false, sample: None, version: None, .. } =
            factor
        else {
            return Err(Stop::General("something else than a table in FROM"));
        };
        let info = self.table(name)?;
        let (schema, last) = qualified(name)?;
        let mut source = ScopeSource::table(
            &info,
            last,
            schema.or_else(|| Some(self.schema.namespace_name(info.table.namespace).to_owned())),
        );
        source.need = Some(self.need(&info, privilege::SELECT));
        if let Some(alias) = alias {
            source.alias = name_of(&alias.name);
            source.schema = None;
            if !alias.columns.is_empty() {
                return Err(Stop::General("aliases of columns"));
            }
        }
        Ok(source)
    }

    fn select(&self, select: &Select, query: &Query) -> Bound<SelectPlan> {
        if select.top.is_some() || select.into.is_some() || !select.lateral_views.is_empty() || select.qualify.is_some()
        {
            return Err(Stop::General("a clause of another dialect"));
        }
        if !select.named_window.is_empty() {
            return Err(Stop::General("a window"));
        }
        let distinct = match &select.distinct {
            None | Some(Distinct::All) => false,
            Some(Distinct::Distinct) => true,
            Some(Distinct::On(_)) => return Err(Stop::General("DISTINCT ON")),
        };
        let mut scope = Scope::nothing();
        let mut conditions = Vec::new();
        for from in &select.from {
            scope.sources.push(self.source(&from.relation)?);
            for join in &from.joins {
                let constraint = match &join.join_operator {
                    JoinOperator::Join(constraint) | JoinOperator::Inner(constraint) => constraint,
                    JoinOperator::CrossJoin(constraint) => constraint,
                    _ => return Err(Stop::General("an outer join")),
                };
                scope.sources.push(self.source(&join.relation)?);
                match constraint {
                    JoinConstraint::On(condition) => {
                        split(self.condition(condition, &scope, "JOIN/ON")?, &mut conditions);
                    }
                    JoinConstraint::None if matches!(join.join_operator, JoinOperator::CrossJoin(_)) => {}
                    _ => return Err(Stop::General("USING")),
                }
            }
        }
        let mut aliases: Vec<&str> = scope.sources.iter().map(|source| source.alias.as_str()).collect();
        aliases.sort_unstable();
        if let Some(twice) = aliases.windows(2).find(|pair| pair[0] == pair[1]) {
            let message = format!("table name \"{}\" specified more than once", twice[0]);
            return Err(SqlError::new(SqlState::DUPLICATE_ALIAS, message).into());
        }
        if let Some(selection) = &select.selection {
            split(self.condition(selection, &scope, "WHERE")?, &mut conditions);
        }
        cheap_first(&mut conditions);
        if scope.sources.len() > 1 && conditions.iter().any(Expression::is_volatile) {
            return Err(Stop::General("a volatile condition on a join"));
        }
        let grouped = self.grouping(select, &scope)?;
        let is_grouped = grouped.is_some();
        scope.grouping = grouped;
        let output = self.projection(&select.projection, &scope, false)?;
        let having = select.having.as_ref().map(|having| self.condition(having, &scope, "HAVING")).transpose()?;
        if having.as_ref().is_some_and(Expression::is_volatile) {
            return Err(Stop::General("a volatile condition on groups"));
        }
        let order = self.order(query, &output, &scope)?;
        if distinct && order.iter().any(|key| !output.iter().any(|out| same_column(&out.expression, &key.expression))) {
            return Err(Stop::General("an order by what is not shown"));
        }
        let aggregation = scope.grouping.take().map(|grouping| Aggregation {
            groups: grouping.groups.into_iter().map(|(_, group)| group.expression).collect(),
            calls: grouping.calls.into_inner().into(),
            having,
        });
        let mut plan = SelectPlan {
            scans: Vec::new(),
            filter: None,
            aggregation,
            output,
            distinct,
            order,
            limit: None,
            offset: None,
            values: Vec::new(),
        };
        let tables = scope.sources;
        if tables.len() > 1 {
            join::add_consequences(&mut conditions);
        }
        let loops = join::order_of_loops(&tables, &conditions);
        let places = join::places(&loops, tables.len());
        conditions.iter_mut().for_each(|condition| join::renumber(condition, &places));
        plan.expressions(&mut |expression| join::renumber(expression, &places));
        let wanted = if is_grouped || distinct { None } else { wanted_order(&plan.order) };
        let tables = loops.into_iter().map(|number| tables[number].clone()).collect();
        let ordered = self.scans(&mut plan, tables, conditions, wanted.as_deref().unwrap_or(&[]))?;
        if wanted.is_some() && ordered {
            plan.order.clear();
        }
        // What is volatile is computed for the rows that are shown, in their order.
        let sorts = |out: &Output| plan.order.iter().any(|key| same_column(&out.expression, &key.expression));
        if !plan.order.is_empty()
            && !distinct
            && query.locks.is_empty()
            && plan.output.iter().any(|out| out.expression.is_volatile() && !sorts(out))
        {
            return Err(Stop::General("a volatile function behind ORDER BY"));
        }
        let accesses: Vec<&Access> = plan.scans.iter().map(|scan| &scan.access).collect();
        if query.locks.is_empty() && join::is_for_general(&accesses) {
            return Err(Stop::General("a join of whole tables"));
        }
        Ok(plan)
    }

    /// Loops over these tables, in this order. Returns whether the rows come in the order that is
    /// wanted.
    fn scans(
        &self,
        plan: &mut SelectPlan,
        tables: Vec<ScopeSource>,
        conditions: Vec<Expression>,
        order: &access::Order,
    ) -> Bound<bool> {
        let (mut at_once, mut left): (Vec<_>, Vec<_>) =
            conditions.into_iter().partition(|condition| condition.is_before(0) && !condition.is_volatile());
        let mut ordered = true;
        for (number, source) in tables.into_iter().enumerate() {
            let number = number as u16;
            let (mut now, later): (Vec<_>, Vec<_>) =
                left.into_iter().partition(|condition| condition.is_before(number + 1));
            left = later;
            let table = source.table.ok_or_else(|| SqlError::internal("a source that is no table"))?;
            let conditions = all_of(now.clone());
            let (access, in_order) = access::choose(&table, number, &mut now, if number == 0 { order } else { &[] });
            ordered &= in_order;
            let filter = all_of(now);
            not_row_by_row(filter.as_ref())?;
            plan.scans.push(ScanPlan { table, alias: source.alias, access, filter, conditions, mark: None });
        }
        at_once.extend(left);
        plan.filter = all_of(at_once);
        Ok(ordered)
    }

    fn grouping(&self, select: &Select, scope: &Scope) -> Bound<Option<Grouping>> {
        let GroupByExpr::Expressions(exprs, modifiers) = &select.group_by else {
            return Err(Stop::General("GROUP BY ALL"));
        };
        if !modifiers.is_empty() {
            return Err(Stop::General("GROUP BY with a modifier"));
        }
        let is_aggregate = select.projection.iter().any(|item| match item {
            SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. } => has_aggregate(expr),
            _ => false,
        });
        if exprs.is_empty() && !is_aggregate && select.having.is_none() {
            return Ok(None);
        }
        let mut groups = Vec::new();
        for expr in exprs {
            // A number is a column of the result, a name may be one.
            let expr = match bare(expr) {
                expr if let Some(digits) = place(expr)? => {
                    // All columns of a table take a place each.
                    let items = select.projection.iter().map(|item| match item {
                        SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. } => Some(expr),
                        _ => None,
                    });
                    let Some(items) = items.collect::<Option<Vec<_>>>() else {
                        return Err(Stop::General("a place in a list with all columns of a table"));
                    };
                    items[listed::place(&digits, items.len(), "GROUP BY")?]
                }
                Expr::Identifier(name) if !scope.has(name) => {
                    let aliased = select.projection.iter().find_map(|item| match item {
                        SelectItem::ExprWithAlias { expr, alias } if name_of(alias) == name_of(name) => Some(expr),
                        _ => None,
                    });
                    aliased.unwrap_or(expr)
                }
                Expr::GroupingSets(_) | Expr::Cube(_) | Expr::Rollup(_) | Expr::Tuple(_) => {
                    return Err(Stop::General("grouping sets"));
                }
                _ => expr,
            };
            groups.push((expr.clone(), self.settle(self.expression(expr, scope)?)?));
        }
        Ok(Some(Grouping { groups, source: scope.sources.len() as u16, ..Grouping::default() }))
    }

    /// What is shown.
    ///
    /// # Errors
    /// When it makes no sense, or is for general queries.
    pub fn projection(&self, items: &[SelectItem], scope: &Scope, returning: bool) -> Bound<Vec<Output>> {
        let mut output = Vec::new();
        let all_of = |source: usize, output: &mut Vec<Output>| -> Bound<()> {
            let from = &scope.sources[source];
            for (name, ty, column) in &from.columns {
                from.read(*column);
                let expression = Expression::Column { source: source as u16, column: *column };
                let origin = from.origin(*column);
                output.push(Output { name: name.clone(), ty: *ty, expression, origin });
            }
            Ok(())
        };
        for item in items {
            match item {
                SelectItem::UnnamedExpr(expr) => output.push(self.output(expr, names::of_column(expr), scope)?),
                SelectItem::ExprWithAlias { expr, alias } => output.push(self.output(expr, name_of(alias), scope)?),
                SelectItem::Wildcard(options) if *options == Default::default() || returning => {
                    if scope.grouping.is_some() {
                        return Err(Stop::General("* with groups"));
                    }
                    if scope.sources.is_empty() {
                        return Err(syntax_error("SELECT * with no tables specified is not valid").into());
                    }
                    (0..scope.sources.len()).try_for_each(|source| all_of(source, &mut output))?;
                }
                SelectItem::QualifiedWildcard(SelectItemQualifiedWildcardKind::ObjectName(name), _) => {
                    if scope.grouping.is_some() {
                        return Err(Stop::General("* with groups"));
                    }
                    let (_, alias) = qualified(name)?;
                    let source = scope.sources.iter().position(|source| source.alias == alias);
                    let source = source.ok_or_else(|| {
                        let message = format!("missing FROM-clause entry for table \"{alias}\"");
                        SqlError::new(SqlState::UNDEFINED_TABLE, message)
                    })?;
                    all_of(source, &mut output)?;
                }
                _ => return Err(Stop::General("a select item of another kind")),
            }
        }
        Ok(output)
    }

    fn output(&self, expr: &Expr, name: String, scope: &Scope) -> Bound<Output> {
        let Typed { expression, ty } = self.settle(self.expression(expr, scope)?)?;
        not_row_by_row(Some(&expression))?;
        let origin = scope.origin(expr).map(|(origin, _)| origin);
        Ok(Output { name, ty, expression, origin })
    }

    fn order(&self, query: &Query, output: &[Output], scope: &Scope) -> Bound<Vec<SortKey>> {
        let Some(order_by) = &query.order_by else { return Ok(Vec::new()) };
        let OrderByKind::Expressions(exprs) = &order_by.kind else { return Err(Stop::General("ORDER BY ALL")) };
        let mut keys = Vec::new();
        for order in exprs {
            let by_name = |name: &str| {
                let mut found = output.iter().filter(|out| out.name == name);
                let first = found.next()?;
                Some(match found.next() {
                    None => Ok(first.expression.clone()),
                    Some(_) => Err(Stop::General("a name in ORDER BY that several columns have")),
                })
            };
            let expression = match bare(&order.expr) {
                expr if let Some(digits) = place(expr)? => {
                    output[listed::place(&digits, output.len(), "ORDER BY")?].expression.clone()
                }
                expr if let Expr::Identifier(name) = expr
                    && let Some(found) = by_name(&name_of(name)) =>
                {
                    found?
                }
                expr => {
                    let typed = self.settle(self.expression(expr, scope)?)?;
                    if matches!(typed.ty.kind(), Kind::Json) {
                        let message = "could not identify an ordering operator for type json";
                        return Err(SqlError::new(SqlState::UNDEFINED_FUNCTION, message).into());
                    }
                    typed.expression
                }
            };
            let descending = order.options.asc == Some(false);
            let nulls_first = order.options.nulls_first.unwrap_or(descending);
            keys.push(SortKey { expression, descending, nulls_first });
        }
        Ok(keys)
    }

    /// Rows of expressions.
    fn values(&self, rows: &[&[Expr]], query: &Query) -> Bound<SelectPlan> {
        if query.order_by.is_some() {
            return Err(Stop::General("VALUES in an order"));
        }
        let scope = Scope::nothing();
        let mut columns: Vec<Vec<Typed>> = Vec::new();
        for row in rows {
            if columns.is_empty() {
                columns.resize(row.len(), Vec::new());
            }
            if row.len() != columns.len() {
                return Err(syntax_error("VALUES lists must all be the same length").into());
            }
            for (column, expr) in columns.iter_mut().zip(*row) {
                column.push(self.expression(expr, &scope)?);
            }
        }
        let mut values = vec![Vec::with_capacity(columns.len()); rows.len()];
        let mut output = Vec::with_capacity(columns.len());
        for (number, column) in columns.into_iter().enumerate() {
            let (column, ty) = self.common(column, "VALUES")?;
            let expression = Expression::Column { source: 0, column: number as u16 };
            output.push(Output { name: format!("column{}", number + 1), ty, expression, origin: None });
            values.iter_mut().zip(column).for_each(|(row, value)| row.push(value));
        }
        Ok(SelectPlan {
            scans: Vec::new(),
            filter: None,
            aggregation: None,
            output,
            distinct: false,
            order: Vec::new(),
            limit: None,
            offset: None,
            values,
        })
    }
}

/// Conditions that all must hold.
pub fn split(condition: Expression, into: &mut Vec<Expression>) {
    match condition {
        Expression::And(all) => all.into_iter().for_each(|one| split(one, into)),
        Expression::Constant(Value::Bool(true)) => {}
        one => into.push(one),
    }
}

/// Conditions in PostgreSQL's order: what is volatile is computed for the rows alone that all
/// cheaper conditions leave.
pub fn cheap_first(conditions: &mut [Expression]) {
    conditions.sort_by_key(|condition| if condition.is_volatile() { condition.cost() } else { 0 });
}

/// One condition out of several.
pub fn all_of(mut conditions: Vec<Expression>) -> Option<Expression> {
    if conditions.len() > 1 { Some(Expression::And(conditions.into())) } else { conditions.pop() }
}

fn same_column(one: &Expression, other: &Expression) -> bool {
    match (one, other) {
        (Expression::Column { source: a, column: b }, Expression::Column { source: c, column: d }) => a == c && b == d,
        _ => false,
    }
}

/// What an order is by, if that is about the first table alone.
fn wanted_order(order: &[SortKey]) -> Option<Vec<(Expression, bool, bool)>> {
    let key =
        |key: &SortKey| key.expression.is_before(1).then(|| (key.expression.clone(), key.descending, key.nulls_first));
    order.iter().map(key).collect()
}

/// Whether a function of this name is an aggregate.
pub fn is_aggregate(name: &str) -> bool {
    super::aggregate::Aggregate::named(name).is_some()
        || ["string_agg", "array_agg", "json_agg", "jsonb_agg", "stddev", "variance"].contains(&name)
}

/// Whether there is an aggregate in an expression, outside of subqueries.
pub(super) fn has_aggregate(expr: &Expr) -> bool {
    use std::ops::ControlFlow;
    /// How many subqueries it is in.
    struct Finder(usize);
    impl sqlparser::ast::Visitor for Finder {
        type Break = ();
        fn pre_visit_query(&mut self, _: &Query) -> ControlFlow<()> {
            self.0 += 1;
            ControlFlow::Continue(())
        }
        fn post_visit_query(&mut self, _: &Query) -> ControlFlow<()> {
            self.0 -= 1;
            ControlFlow::Continue(())
        }
        fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<()> {
            if let Expr::Function(function) = expr
                && self.0 == 0
                && function.over.is_none()
                && let Some(name) = super::parts_of(&function.name).ok().and_then(|mut parts| parts.pop())
                && is_aggregate(&name)
            {
                return ControlFlow::Break(());
            }
            ControlFlow::Continue(())
        }
    }
    sqlparser::ast::Visit::visit(expr, &mut Finder(0)).is_break()
}

/// The place in the select list that an entry of ORDER BY or GROUP BY is, if it is one. What other
/// constants are is for general queries to say.
fn place(expr: &Expr) -> Bound<Option<String>> {
    match listed::listed(expr) {
        Some(Listed::Place(digits)) => Ok(Some(digits)),
        Some(Listed::Constant) => Err(Stop::General("a constant that is no place")),
        Some(Listed::Name(_)) | None => Ok(None),
    }
}
