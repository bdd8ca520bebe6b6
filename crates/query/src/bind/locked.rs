//! General queries that lock rows: FOR UPDATE and its like where this crate's own plans do not do.
//!
//! The query gives the record ids of the rows that are to be locked behind what is shown, and has
//! no LIMIT: rows are locked in its order, and no more of them than are shown.

use std::{ops::ControlFlow, sync::Arc};

use freshet_sql::{SqlError, SqlState};
use sqlparser::ast::{
    Distinct, Expr, GroupByExpr, JoinOperator, Query, Select, SelectItem, SetExpr, TableFactor, TableWithJoins, Visit,
    Visitor,
};

use super::{
    Binder, Bound, Stop,
    found::quoted,
    general::GeneralQuery,
    name_of, not_supported, parts_of,
    select::{RowMark, has_aggregate},
};
use crate::{
    expression::Expression,
    relations::RECORD_ID,
    schema::{TableInfo, privilege},
    syntax::{self, locking, locking::name_of_lock},
};

/// A general query that locks rows.
#[derive(Clone, Debug)]
pub struct LockedPlan {
    /// The query: what is shown, then record ids.
    pub query: GeneralQuery,
    /// How many columns are shown.
    pub shown: usize,
    /// The tables whose rows are locked, in the order of the record ids.
    pub marks: Vec<(Arc<TableInfo>, RowMark)>,
    /// The most rows that are shown.
    pub limit: Option<Expression>,
    /// How many rows are left out before.
    pub offset: Option<Expression>,
}

/// What stands in FROM.
enum Item {
    Table(Arc<TableInfo>),
    /// Something without rows of its own, as PostgreSQL says it.
    Other(&'static str),
    /// Something whose rows are those of tables within it.
    Within(&'static str),
}

struct Source {
    alias: String,
    item: Item,
    /// Whether an outer join may have no row of it.
    nullable: bool,
    mark: Option<RowMark>,
}

fn refused(message: String) -> Stop {
    Stop::Error(SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, message))
}

/// What else a select list has that leaves no rows to be locked.
fn unlockable(select: &Select) -> Option<&'static str> {
    struct Finder(usize);
    impl Visitor for Finder {
        type Break = &'static str;
        fn pre_visit_query(&mut self, _: &Query) -> ControlFlow<&'static str> {
            self.0 += 1;
            ControlFlow::Continue(())
        }
        fn post_visit_query(&mut self, _: &Query) -> ControlFlow<&'static str> {
            self.0 -= 1;
            ControlFlow::Continue(())
        }
        fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<&'static str> {
            let Expr::Function(function) = expr else { return ControlFlow::Continue(()) };
            if self.0 > 0 {
                return ControlFlow::Continue(());
            }
            if function.over.is_some() {
                return ControlFlow::Break("window functions");
            }
            let name = parts_of(&function.name).ok().and_then(|mut parts| parts.pop()).unwrap_or_default();
            match name.as_str() {
                "generate_series" | "unnest" => ControlFlow::Break("set-returning functions in the target list"),
                _ if self.0 == 0 && has_aggregate(expr) => ControlFlow::Break("aggregate functions"),
                _ => ControlFlow::Continue(()),
            }
        }
    }
    match &select.distinct {
        None | Some(Distinct::All) => {}
        Some(_) => return Some("DISTINCT clause"),
    }
    if !matches!(&select.group_by, GroupByExpr::Expressions(groups, _) if groups.is_empty()) {
        return Some("GROUP BY clause");
    }
    if select.having.is_some() {
        return Some("HAVING clause");
    }
    match select.projection.visit(&mut Finder(0)) {
        ControlFlow::Break(what) => Some(what),
        ControlFlow::Continue(()) => None,
    }
}

impl Binder<'_> {
    /// Binds a general query, which it is for this reason, that locks rows.
    ///
    /// # Errors
    /// When it makes no sense; 0A000; 42501.
    pub fn locked(&self, query: &Query, why: &str) -> Bound<LockedPlan> {
        self.allowed(|| self.any_locked(query, why))
    }

    fn any_locked(&self, query: &Query, why: &str) -> Bound<LockedPlan> {
        let clauses: Vec<_> = query.locks.iter().map(locking::clause).collect();
        let name = clauses.first().map_or("FOR UPDATE", |clause| name_of_lock(clause.lock));
        let select = match &*query.body {
            SetExpr::Select(select) => select,
            SetExpr::SetOperation { .. } => {
                return Err(refused(format!("{name} is not allowed with UNION/INTERSECT/EXCEPT")));
            }
            _ => return Err(not_supported(name).into()),
        };
        if let Some(what) = unlockable(select) {
            return Err(refused(format!("{name} is not allowed with {what}")));
        }
        let ctes: Vec<String> =
            query.with.iter().flat_map(|with| &with.cte_tables).map(|cte| name_of(&cte.alias.name)).collect();
        let mut sources = Vec::new();
        for table in &select.from {
            sources.extend(self.lockable(table, &ctes)?);
        }
        for clause in &clauses {
            let name = name_of_lock(clause.lock);
            if let Some(missing) = clause.of.iter().find(|of| !sources.iter().any(|source| source.alias == **of)) {
                let message = format!("relation \"{missing}\" in {name} clause not found in FROM clause");
                return Err(SqlError::new(SqlState::UNDEFINED_TABLE, message).into());
            }
            let all = clause.of.is_empty();
            for source in sources.iter_mut().filter(|source| all || clause.of.contains(&source.alias)) {
                match source.item {
                    Item::Table(_) if source.nullable => {
                        let what = "the nullable side of an outer join";
                        return Err(refused(format!("{name} cannot be applied to {what}")));
                    }
                    Item::Table(_) => {
                        source.mark = Some(RowMark { lock: clause.lock, when: clause.when }.and(source.mark));
                    }
                    Item::Other(what) if !all => return Err(refused(format!("{name} cannot be applied to {what}"))),
                    Item::Other(_) => {}
                    Item::Within(what) => return Err(not_supported(format!("{name} of {what}")).into()),
                }
            }
        }
        let mut select = (**select).clone();
        let mut marks = Vec::new();
        for Source { alias, item, mark, .. } in sources {
            if let (Item::Table(info), Some(mark)) = (item, mark) {
                self.need(&info, privilege::UPDATE);
                let rid = Expr::CompoundIdentifier(vec![quoted(&alias), quoted(RECORD_ID)]);
                select.projection.push(SelectItem::UnnamedExpr(rid));
                marks.push((info, mark));
            }
        }
        let mut limits = *syntax::query("SELECT NULL")?;
        (limits.limit_clause, limits.fetch) = (query.limit_clause.clone(), query.fetch.clone());
        let limits = self.any_query(&limits)?;
        let mut query = query.clone();
        *query.body = SetExpr::Select(Box::new(select));
        (query.limit_clause, query.fetch, query.locks) = (None, None, Vec::new());
        let query = self.general(&query, why)?;
        let shown = query.0.columns().len().saturating_sub(marks.len());
        Ok(LockedPlan { query, shown, marks, limit: limits.limit, offset: limits.offset })
    }

    fn lockable(&self, table: &TableWithJoins, ctes: &[String]) -> Bound<Vec<Source>> {
        let mut found = self.lockable_factor(&table.relation, ctes)?;
        for join in &table.joins {
            use JoinOperator::{FullOuter, Left, LeftOuter, Right, RightOuter};
            let mut right = self.lockable_factor(&join.relation, ctes)?;
            let (left_nullable, right_nullable) = match &join.join_operator {
                Left(_) | LeftOuter(_) => (false, true),
                Right(_) | RightOuter(_) => (true, false),
                FullOuter(_) => (true, true),
                _ => (false, false),
            };
            found.iter_mut().for_each(|source| source.nullable |= left_nullable);
            right.iter_mut().for_each(|source| source.nullable |= right_nullable);
            found.append(&mut right);
        }
        Ok(found)
    }

    fn lockable_factor(&self, factor: &TableFactor, ctes: &[String]) -> Bound<Vec<Source>> {
        let (alias, item) = match factor {
            TableFactor::NestedJoin { table_with_joins, alias: None } => {
                return self.lockable(table_with_joins, ctes);
            }
            TableFactor::NestedJoin { alias, .. } => (alias.as_ref(), Item::Within("a join with a name")),
            TableFactor::Derived { subquery, alias, .. } => {
                let values = matches!(*subquery.body, SetExpr::Values(_));
                (alias.as_ref(), if values { Item::Other("VALUES") } else { Item::Within("a subquery") })
            }
            TableFactor::Table { name, alias, args: None, .. } => {
                let mut parts = parts_of(name)?;
                let last = parts.pop().unwrap_or_default();
                let item = match parts.is_empty() && ctes.contains(&last) {
                    true => Item::Other("a WITH query"),
                    false => match self.table(name) {
                        Ok(info) => Item::Table(info),
                        Err(Stop::General(what)) => Item::Within(what),
                        Err(stop) => return Err(stop),
                    },
                };
                let alias = alias.as_ref().map_or(last, |alias| name_of(&alias.name));
                return Ok(vec![Source { alias, item, nullable: false, mark: None }]);
            }
            TableFactor::Table { alias, .. }
            | TableFactor::Function { alias, .. }
            | TableFactor::UNNEST { alias, .. }
            | TableFactor::TableFunction { alias, .. } => (alias.as_ref(), Item::Other("a function")),
            _ => (None, Item::Within("this in FROM")),
        };
        let alias = alias.map_or_else(String::new, |alias| name_of(&alias.name));
        Ok(vec![Source { alias, item, nullable: false, mark: None }])
    }
}
