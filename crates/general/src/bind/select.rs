//! SELECT, clause by clause.

use std::{collections::HashSet, sync::Arc};

use datafusion_common::{
    Column,
    tree_node::{Transformed, TreeNode as _},
};
use datafusion_expr::{
    Expr, Filter, LogicalPlan, Projection, Window,
    expr::{Sort, WindowFunction},
};
use freshet_sql::{
    SqlError, SqlState,
    listed::{self, Listed},
};
use sqlparser::ast::{self, Distinct, OrderByExpr, Select, SelectFlavor, SelectItem, SelectItemQualifiedWildcardKind};

use super::{
    Binder,
    clause::{Clause, Collect},
    group::{ListItem, ListSource, Replacements, groupings_in},
    name,
    query::{Item, Rows},
    scope::missing_table,
    typed::Typed,
};
use crate::{
    aggregate::SortKey,
    error::{to_sql, unsupported},
    node::{self, Expand},
};

/// An entry of ORDER BY: the item that it sorts by.
struct Order {
    item: usize,
    asc: bool,
    nulls_first: bool,
}

impl Binder<'_> {
    /// SELECT, with the ORDER BY that follows it. What it lists has still to be projected.
    pub(super) fn select(&mut self, select: &Select, order_by: &[OrderByExpr]) -> Result<Rows, SqlError> {
        check_supported(select)?;
        self.wanted.push(Self::wanted_rows(select, order_by));
        let source = self.from(&select.from);
        self.wanted.pop();
        let source = source?;
        let mut plan = source.plan;
        {
            let level = self.level();
            level.scope = source.scope;
            level.windows = select.named_window.clone();
            level.clause = Clause::Where;
        }
        if let Some(condition) = &select.selection {
            plan = self.filter(plan, condition)?;
        }

        let list = self.list(&select.projection)?;
        let groups = self.group_by(&select.group_by, &list)?;
        let mut items = Vec::with_capacity(list.len());
        self.level().clause = Clause::Select;
        for (at, item) in list.iter().enumerate() {
            let typed = match (groups.key_of(at), &item.source) {
                (Some(key), _) => groups.keys[key].clone(),
                (None, ListSource::Expr(expr)) => self.expression(expr)?,
                (None, ListSource::Column(typed)) => typed.clone(),
            };
            items.push(item.bound(typed));
        }
        let listed = items.len();
        let origins: Vec<_> = items.iter().map(|item| item.typed.origin).collect();
        self.level().clause = Clause::Having;
        let mut having = match &select.having {
            Some(having) => {
                let having = self.expression(having)?;
                Some(self.condition(having, "HAVING")?)
            }
            None => None,
        };
        self.level().clause = Clause::OrderBy;
        let mut on = Vec::new();
        if let Some(Distinct::On(exprs)) = &select.distinct {
            for expr in exprs {
                on.push(self.sorted_item(expr, &mut items, listed, "SELECT DISTINCT ON")?);
            }
        }
        let order = self.order(order_by, &mut items, listed)?;

        let mut collected = std::mem::take(&mut self.level().collected);
        let kinds = [!collected.aggregates.is_empty(), !collected.windows.is_empty(), !collected.series.is_empty()];
        // A query in FROM is bound before what is said of it outside.
        let own = self.level().locking.own;
        let marks = if own { Some(self.marks(select, kinds)?) } else { None };
        let grouped =
            !groups.keys.is_empty() || groups.sets.is_some() || !collected.aggregates.is_empty() || having.is_some();
        if self.level().recursive && !collected.aggregates.is_empty() {
            return Err(SqlError::new(
                SqlState::INVALID_RECURSION,
                "aggregate functions are not allowed in a recursive query's recursive term",
            ));
        }
        if grouped {
            let own: HashSet<String> = collected
                .aggregates
                .iter()
                .map(|collected| collected.name.clone())
                .chain(collected.windows.iter().chain(&collected.keys).map(|collected| collected.name.clone()))
                .chain(collected.series.iter().flat_map(|call| call.columns.iter().map(|(name, _)| name.clone())))
                .collect();
            let mut groupings = Vec::new();
            for typed in items.iter().map(|item| &item.typed).chain(&having) {
                groupings_in(&typed.expr, &mut groupings)?;
            }
            for window in collected.windows.iter().chain(&collected.keys) {
                groupings_in(&window.expr, &mut groupings)?;
            }
            let mut computed: Vec<&mut Expr> =
                collected.aggregates.iter_mut().map(|collected| &mut collected.expr).collect();
            plan = self.join_subqueries(plan, &mut computed)?;
            let keys = groups.keys.clone();
            let listed_keys: Vec<Option<usize>> = (0..listed).map(|item| groups.key_of(item)).collect();
            let (grouped, replacements) = self.grouped(plan, groups, collected.aggregates, groupings)?;
            replacements.check_groupings(&keys)?;
            plan = grouped;
            let behind = Behind { replacements: &replacements, own: &own, binder: self };
            for (at, item) in items.iter_mut().enumerate() {
                let key = listed_keys.get(at).copied().flatten().and_then(|key| replacements.key(key));
                item.typed = match key {
                    Some(key) => Typed::new(key, item.typed.ty),
                    None => behind.apply(item.typed.clone())?,
                };
            }
            having = having.map(|having| behind.apply(having)).transpose()?;
            for window in collected.windows.iter_mut().chain(&mut collected.keys) {
                window.expr = behind.apply(Typed::new(window.expr.clone(), window.column.ty))?.expr;
            }
            for call in &mut collected.series {
                for (expr, ty) in &mut call.arguments {
                    *expr = behind.apply(Typed::new(expr.clone(), *ty))?.expr;
                }
            }
        }
        let mut computed: Vec<&mut Expr> = items.iter_mut().map(|item| &mut item.typed.expr).collect();
        computed.extend(having.iter_mut().map(|having| &mut having.expr));
        computed.extend(collected.windows.iter_mut().chain(&mut collected.keys).map(|collected| &mut collected.expr));
        plan = self.join_subqueries(plan, &mut computed)?;
        if let Some(having) = having {
            plan = LogicalPlan::Filter(Filter::try_new(having.expr, Arc::new(plan)).map_err(to_sql)?);
        }
        if !collected.keys.is_empty() {
            let mut above: Vec<&mut Expr> = items.iter_mut().map(|item| &mut item.typed.expr).collect();
            above.extend(collected.windows.iter_mut().map(|collected| &mut collected.expr));
            plan = with_keys(plan, &collected.keys, above)?;
        }
        let windows = collected.windows.into_iter().map(|collected| (collected.expr, collected.name)).collect();
        plan = windowed(plan, windows)?;
        if !collected.series.is_empty() {
            plan = Expand::plan(plan, collected.series, None, false)?;
        }
        let marks = marks.map_or_else(|| self.marks(select, kinds), Ok)?;
        items.iter_mut().zip(origins).for_each(|(item, origin)| item.typed.origin = origin);
        self.arrange(Rows { marks, ..Rows::new(plan, items) }, listed, select.distinct.as_ref(), &on, &order)
    }

    /// DISTINCT and ORDER BY.
    fn arrange(
        &mut self,
        rows: Rows,
        listed: usize,
        distinct: Option<&Distinct>,
        on: &[usize],
        order: &[Order],
    ) -> Result<Rows, SqlError> {
        let distinct = match distinct {
            None | Some(Distinct::All) if order.is_empty() => return Ok(rows),
            None | Some(Distinct::All) => None,
            Some(distinct) => Some(distinct),
        };
        let hidden = rows.items.len() > listed;
        if hidden && matches!(distinct, Some(Distinct::Distinct)) {
            return Err(SqlError::new(
                SqlState::INVALID_COLUMN_REFERENCE,
                "for SELECT DISTINCT, ORDER BY expressions must appear in select list",
            ));
        }
        let sorts = |at: usize| order.iter().any(|order| order.item == at);
        if distinct.is_none()
            && rows.items[..listed].iter().enumerate().any(|(at, item)| !sorts(at) && item.typed.expr.is_volatile())
        {
            return self.computed_behind(rows, listed, order);
        }
        let mut rows = self.projected(rows)?;
        if matches!(distinct, Some(Distinct::Distinct)) {
            rows = self.distinct_rows(rows)?;
        }
        let mut sort = Vec::with_capacity(order.len());
        if matches!(distinct, Some(Distinct::On(_))) {
            for (place, order) in order.iter().enumerate() {
                if place < on.len() && !on.contains(&order.item) {
                    return Err(SqlError::new(
                        SqlState::INVALID_COLUMN_REFERENCE,
                        "SELECT DISTINCT ON expressions must match initial ORDER BY expressions",
                    ));
                }
            }
        }
        for order in order {
            let expr = self.sort_expression(rows.items[order.item].typed.clone())?;
            sort.push(Sort { expr, asc: order.asc, nulls_first: order.nulls_first });
        }
        if matches!(distinct, Some(Distinct::On(_))) {
            let mut keys = Vec::with_capacity(on.len());
            for item in on {
                let key = self.sort_expression(rows.items[*item].typed.clone())?;
                if !order.iter().any(|order| order.item == *item) {
                    sort.push(Sort { expr: key.clone(), asc: true, nulls_first: false });
                }
                keys.push(key);
            }
            rows.plan = node::sorted(rows.plan, sort)?;
            rows.plan = node::Unique::plan(rows.plan, keys);
        } else {
            rows.plan = node::sorted(rows.plan, sort)?;
        }
        rows.items.truncate(listed);
        Ok(rows)
    }

    /// ORDER BY, behind which what is volatile is computed: for the rows that are shown, in their
    /// order.
    fn computed_behind(&mut self, rows: Rows, listed: usize, order: &[Order]) -> Result<Rows, SqlError> {
        let mut exprs: Vec<Expr> = rows.plan.schema().columns().into_iter().map(Expr::Column).collect();
        let (mut items, marks) = (rows.items, rows.marks);
        let (mut keys, mut behind) = (Vec::new(), Vec::new());
        for (at, item) in items.iter_mut().enumerate() {
            let typed = self.settle(item.typed.clone())?;
            let (sorts, is_volatile) = (order.iter().any(|order| order.item == at), typed.expr.is_volatile());
            item.typed = if is_volatile && !sorts {
                behind.push(at);
                typed
            } else {
                let name = self.fresh(&item.name);
                let column = Expr::Column(Column::new_unqualified(name.clone()));
                if is_volatile {
                    keys.push((typed.expr.clone(), column.clone()));
                }
                exprs.push(typed.expr.alias(&name));
                Typed::new(column, typed.ty).from(typed.origin)
            };
        }
        for at in behind {
            computed_once(&mut items[at].typed.expr, &keys)?;
        }
        let projection = Projection::try_new(exprs, Arc::new(rows.plan)).map_err(to_sql)?;
        let mut sort = Vec::with_capacity(order.len());
        for order in order {
            let expr = self.sort_expression(items[order.item].typed.clone())?;
            sort.push(Sort { expr, asc: order.asc, nulls_first: order.nulls_first });
        }
        let plan = node::sorted(LogicalPlan::Projection(projection), sort)?;
        items.truncate(listed);
        Ok(Rows { marks, ..Rows::new(plan, items) })
    }

    /// Entries of SELECT's list, what `*` stands for among them.
    fn list<'s>(&mut self, projection: &'s [SelectItem]) -> Result<Vec<ListItem<'s>>, SqlError> {
        let mut list = Vec::with_capacity(projection.len());
        for item in projection {
            match item {
                SelectItem::UnnamedExpr(expr) => {
                    list.push(ListItem { name: name::of_column(expr), source: ListSource::Expr(expr) });
                }
                SelectItem::ExprWithAlias { expr, alias } => {
                    list.push(ListItem { name: name::fold(alias), source: ListSource::Expr(expr) });
                }
                SelectItem::ExprWithAliases { .. } => return Err(unsupported("several names for one expression")),
                SelectItem::Wildcard(options) => {
                    check_plain_wildcard(options)?;
                    let scope = &self.level().scope;
                    if scope.tables.is_empty() {
                        return Err(SqlError::new(
                            SqlState::SYNTAX_ERROR,
                            "SELECT * with no tables specified is not valid",
                        ));
                    }
                    list.extend(scope.columns.iter().filter(|column| !column.hidden).map(star_item));
                }
                SelectItem::QualifiedWildcard(kind, options) => {
                    check_plain_wildcard(options)?;
                    let name = match kind {
                        SelectItemQualifiedWildcardKind::ObjectName(name) => name,
                        SelectItemQualifiedWildcardKind::Expr(expr) => {
                            let row = self.whole_row(expr)?;
                            let row = row.ok_or_else(|| unsupported("the fields of this composite value"))?;
                            let columns = row.fields.into_iter();
                            list.extend(
                                columns.map(|(name, typed)| ListItem { name, source: ListSource::Column(typed) }),
                            );
                            continue;
                        }
                    };
                    let (schema, table) = name::qualified(name)?;
                    let columns =
                        self.table_columns(schema.as_deref(), &table)?.ok_or_else(|| missing_table(&table))?;
                    list.extend(
                        columns.into_iter().map(|(name, typed)| ListItem { name, source: ListSource::Column(typed) }),
                    );
                }
            }
        }
        Ok(list)
    }

    /// ORDER BY; what it does not find in SELECT's list is added to it.
    fn order(
        &mut self,
        order_by: &[OrderByExpr],
        items: &mut Vec<Item>,
        listed: usize,
    ) -> Result<Vec<Order>, SqlError> {
        let mut order = Vec::with_capacity(order_by.len());
        for by in order_by {
            if by.with_fill.is_some() {
                return Err(unsupported("WITH FILL"));
            }
            let fields = match listed::listed(&by.expr) {
                Some(Listed::Name(name)) if items[..listed].iter().any(|item| item.name == name) => None,
                _ => self.whole_row(&by.expr)?,
            };
            if let Some(row) = fields {
                // Rows are sorted by their fields.
                for (name, typed) in row.fields {
                    let SortKey { descending, nulls_first, .. } = SortKey::of(typed.ty, &by.options);
                    items.push(Item { name, typed });
                    order.push(Order { item: items.len() - 1, asc: !descending, nulls_first });
                }
                continue;
            }
            let item = self.sorted_item(&by.expr, items, listed, "ORDER BY")?;
            let SortKey { descending, nulls_first, .. } = SortKey::of(items[item].typed.ty, &by.options);
            // Sorting twice by the same changes nothing.
            if !order.iter().any(|known: &Order| known.item == item) {
                order.push(Order { item, asc: !descending, nulls_first });
            }
        }
        Ok(order)
    }

    /// The number of the item that an entry of ORDER BY means: by its name, its place, or its
    /// expression.
    fn sorted_item(
        &mut self,
        expr: &ast::Expr,
        items: &mut Vec<Item>,
        listed: usize,
        clause: &str,
    ) -> Result<usize, SqlError> {
        match listed::listed(expr) {
            Some(Listed::Place(digits)) => return listed::place(&digits, listed, clause),
            Some(Listed::Constant) => return Err(listed::no_place(clause)),
            Some(Listed::Name(name)) => {
                let mut found = items[..listed].iter().enumerate().filter(|(_, item)| item.name == name);
                if let Some((at, first)) = found.next() {
                    if found.any(|(_, item)| item.typed.expr != first.typed.expr) {
                        return Err(SqlError::new(
                            SqlState::AMBIGUOUS_COLUMN,
                            format!("{clause} \"{name}\" is ambiguous"),
                        ));
                    }
                    return Ok(at);
                }
            }
            None => {}
        }
        let typed = self.expression(expr)?;
        let typed = self.settle(typed)?;
        if let Some(at) = items.iter().position(|item| item.typed.expr == typed.expr) {
            return Ok(at);
        }
        items.push(Item { name: "sort".to_owned(), typed });
        Ok(items.len() - 1)
    }
}

/// What is seen behind a grouping.
struct Behind<'a, 'b> {
    replacements: &'a Replacements,
    own: &'a HashSet<String>,
    binder: &'a Binder<'b>,
}

impl Behind<'_, '_> {
    fn apply(&self, typed: Typed) -> Result<Typed, SqlError> {
        let describe = |column: &Column| {
            let tables = self.binder.levels.iter().rev().flat_map(|level| &level.scope.tables);
            for table in tables {
                for known in &table.columns {
                    if matches!(&known.expr, Expr::Column(found) if found == column) {
                        return format!("{}.{}", table.name, known.name);
                    }
                }
            }
            column.name.clone()
        };
        self.replacements.apply(typed, self.own, &describe)
    }
}

fn star_item<'s>(column: &super::scope::Column) -> ListItem<'s> {
    ListItem { name: column.name.clone(), source: ListSource::Column(column.typed()) }
}

/// What is computed below, with the column that it then is, is not computed again, as in
/// PostgreSQL.
fn computed_once(expr: &mut Expr, below: &[(Expr, Expr)]) -> Result<(), SqlError> {
    let asked = std::mem::take(expr).transform_down(|expr| {
        let known = below.iter().find(|(known, _)| *known == expr);
        Ok(known.map_or_else(|| Transformed::no(expr), |(_, column)| Transformed::yes(column.clone())))
    });
    *expr = asked.map_err(to_sql)?.data;
    Ok(())
}

/// Computes what windows are divided and ordered by, for them and for what is `above` them.
fn with_keys(plan: LogicalPlan, keys: &[Collect], above: Vec<&mut Expr>) -> Result<LogicalPlan, SqlError> {
    let below: Vec<_> = keys.iter().map(|key| (key.expr.clone(), key.column.expr.clone())).collect();
    for expr in above {
        computed_once(expr, &below)?;
    }
    let mut exprs: Vec<Expr> = plan.schema().columns().into_iter().map(Expr::Column).collect();
    exprs.extend(keys.iter().map(|key| key.expr.clone().alias(&key.name)));
    Projection::try_new(exprs, Arc::new(plan)).map(LogicalPlan::Projection).map_err(to_sql)
}

/// Window functions, those over one window together.
fn windowed(mut plan: LogicalPlan, mut windows: Vec<(Expr, String)>) -> Result<LogicalPlan, SqlError> {
    fn window(expr: &Expr) -> Option<&WindowFunction> {
        match expr {
            Expr::WindowFunction(function) => Some(function),
            _ => None,
        }
    }
    while let Some((first, _)) = windows.first() {
        let first = first.clone();
        let same = |expr: &Expr| {
            window(expr).zip(window(&first)).is_some_and(|(one, two)| {
                one.params.partition_by == two.params.partition_by && one.params.order_by == two.params.order_by
            })
        };
        let (together, rest): (Vec<_>, Vec<_>) = windows.into_iter().partition(|(expr, _)| same(expr));
        if together.is_empty() {
            return Err(SqlError::internal("a window without a window function"));
        }
        windows = rest;
        let exprs = together.into_iter().map(|(expr, name)| expr.alias(name)).collect();
        plan = LogicalPlan::Window(Window::try_new(exprs, Arc::new(plan)).map_err(to_sql)?);
    }
    Ok(plan)
}

fn check_plain_wildcard(options: &ast::WildcardAdditionalOptions) -> Result<(), SqlError> {
    let plain = options.opt_ilike.is_none()
        && options.opt_exclude.is_none()
        && options.opt_except.is_none()
        && options.opt_replace.is_none()
        && options.opt_rename.is_none()
        && options.opt_alias.is_none();
    if plain { Ok(()) } else { Err(unsupported("* with options")) }
}

fn check_supported(select: &Select) -> Result<(), SqlError> {
    let unusual = [
        (select.top.is_some(), "TOP"),
        (select.exclude.is_some(), "EXCLUDE"),
        (select.into.is_some(), "SELECT INTO"),
        (!select.lateral_views.is_empty(), "LATERAL VIEW"),
        (select.prewhere.is_some(), "PREWHERE"),
        (!select.connect_by.is_empty(), "CONNECT BY"),
        (!select.cluster_by.is_empty(), "CLUSTER BY"),
        (!select.distribute_by.is_empty(), "DISTRIBUTE BY"),
        (!select.sort_by.is_empty(), "SORT BY"),
        (select.qualify.is_some(), "QUALIFY"),
        (select.value_table_mode.is_some(), "SELECT AS VALUE"),
        (select.select_modifiers.is_some(), "a modifier of SELECT"),
        (select.flavor != SelectFlavor::Standard, "FROM before SELECT"),
    ];
    match unusual.iter().find(|(used, _)| *used) {
        Some((_, what)) => Err(unsupported(what)),
        None => Ok(()),
    }
}
