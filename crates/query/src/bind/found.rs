//! UPDATE and DELETE whose rows a general query finds: those with subqueries, `FROM` or `USING`.
//!
//! The query gives the record id of each row that is to be changed, and with it what assignments
//! and RETURNING need of other relations. So `UPDATE t SET a = b.x FROM b WHERE t.id = b.id`
//! becomes `SELECT t.RID, b.x FROM t, b WHERE t.id = b.id`. What can be computed from the row alone
//! is computed from it when it is changed.

use std::{rc::Rc, sync::Arc};

use freshet_sql::{SqlError, Type};
use sqlparser::ast::{
    self, CastKind, Expr, FromTable, GroupByExpr, Ident, JoinConstraint, JoinOperator, Query, Select, SelectItem,
    SelectItemQualifiedWildcardKind, SetExpr, TableFactor, TableWithJoins, Value as Literal, With,
    helpers::attached_token::AttachedToken,
};

use super::{
    Binder, Bound, Scope, ScopeSource, Stop,
    general::GeneralQuery,
    modify::{DeletePlan, Target, Targets, UpdatePlan, is_default},
    name_of,
    need::Need,
    not_supported, parts_of,
    select::Output,
    syntax_error,
};
use crate::{
    expression::{Expression, Typed},
    relations::RECORD_ID,
    schema::TableInfo,
    syntax::current,
};

/// What is to become of a column.
enum Assigned {
    /// It gets the value of this expression over the row.
    Here(Expression),
    /// It gets what the query gives in this place.
    There(usize),
}

/// The query that is made.
struct Finder<'s> {
    info: &'s Arc<TableInfo>,
    alias: &'s str,
    need: &'s Rc<Need>,
    table: &'s TableFactor,
    others: &'s [TableWithJoins],
    with: Option<&'s With>,
    selection: Option<&'s Expr>,
    /// What it gives, after the record id.
    items: Vec<Expr>,
}

impl Finder<'_> {
    /// Adds something that it gives; returns its place.
    fn item(&mut self, expr: Expr) -> usize {
        self.items.push(expr);
        self.items.len()
    }

    fn query(&self) -> Query {
        let rid = Expr::CompoundIdentifier(vec![quoted(self.alias), quoted(RECORD_ID)]);
        let projection = std::iter::once(rid).chain(self.items.iter().cloned()).map(SelectItem::UnnamedExpr).collect();
        let target = TableWithJoins { relation: self.table.clone(), joins: Vec::new() };
        let from = std::iter::once(target).chain(self.others.iter().cloned()).collect();
        query(self.with, projection, from, self.selection.cloned())
    }
}

pub(super) fn quoted(name: &str) -> Ident {
    Ident::with_quote('"', name)
}

fn query(
    with: Option<&With>,
    projection: Vec<SelectItem>,
    from: Vec<TableWithJoins>,
    selection: Option<Expr>,
) -> Query {
    let select = Select {
        select_token: AttachedToken::empty(),
        optimizer_hints: Vec::new(),
        distinct: None,
        select_modifiers: None,
        top: None,
        top_before_distinct: false,
        projection,
        exclude: None,
        into: None,
        from,
        lateral_views: Vec::new(),
        prewhere: None,
        selection,
        connect_by: Vec::new(),
        group_by: GroupByExpr::Expressions(Vec::new(), Vec::new()),
        cluster_by: Vec::new(),
        distribute_by: Vec::new(),
        sort_by: Vec::new(),
        having: None,
        named_window: Vec::new(),
        qualify: None,
        window_before_qualify: false,
        value_table_mode: None,
        flavor: ast::SelectFlavor::Standard,
    };
    Query {
        with: with.cloned(),
        body: Box::new(SetExpr::Select(Box::new(select))),
        order_by: None,
        limit_clause: None,
        fetch: None,
        locks: Vec::new(),
        for_clause: None,
        settings: None,
        format_clause: None,
        pipe_operators: Vec::new(),
    }
}

/// The same, said to be of a type where nothing else says what it is: a literal in quotes, a
/// parameter, NULL.
pub(super) fn typed(expr: &Expr, ty: Type) -> Expr {
    let open = match expr {
        Expr::Nested(inner) => return typed(inner, ty),
        Expr::Value(value) => matches!(
            value.value,
            Literal::SingleQuotedString(_)
                | Literal::EscapedStringLiteral(_)
                | Literal::DollarQuotedString(_)
                | Literal::Null
                | Literal::Placeholder(_)
        ),
        _ => false,
    };
    if !open {
        return expr.clone();
    }
    // Without what limits the length: that is seen to by the assignment.
    let name = ast::ObjectName::from(vec![quoted(ty.kind().catalog_name())]);
    let data_type = ast::DataType::Custom(name, Vec::new());
    if Type::from_sql(&data_type).ok() != Some(Type::of(ty.kind())) {
        return expr.clone();
    }
    Expr::Cast { kind: CastKind::Cast, expr: Box::new(expr.clone()), data_type, array: false, format: None }
}

/// A query of several columns as as many queries of one.
pub(super) fn columns_of(query: &Query, count: usize) -> Result<Vec<Expr>, SqlError> {
    let wrong = || syntax_error("number of columns does not match number of values");
    let SetExpr::Select(select) = &*query.body else {
        return Err(not_supported("assigning several columns from a set operation"));
    };
    let one = |item: &SelectItem| match item {
        SelectItem::UnnamedExpr(_) | SelectItem::ExprWithAlias { .. } => {
            let select = Select { projection: vec![item.clone()], ..(**select).clone() };
            let query = Query { body: Box::new(SetExpr::Select(Box::new(select))), ..query.clone() };
            Ok(Expr::Subquery(Box::new(query)))
        }
        _ => Err(not_supported("assigning several columns from *")),
    };
    let columns = select.projection.iter().map(one).collect::<Result<Vec<_>, _>>()?;
    if columns.len() == count { Ok(columns) } else { Err(wrong()) }
}

impl Binder<'_> {
    /// Binds an UPDATE that a general query finds the rows of, for this reason.
    ///
    /// # Errors
    /// When it makes no sense.
    pub(super) fn update_found(
        &self,
        update: &ast::Update,
        with: Option<&With>,
        (info, alias, need): Target<'_>,
        why: &str,
    ) -> Bound<UpdatePlan> {
        use ast::UpdateTableFromKind::{AfterSet, BeforeSet};
        refuse_current(update.selection.as_ref())?;
        let others = match &update.from {
            Some(BeforeSet(tables) | AfterSet(tables)) => tables.as_slice(),
            None => &[],
        };
        let mut finder = Finder {
            info,
            alias,
            need,
            table: &update.table.relation,
            others,
            with,
            selection: update.selection.as_ref(),
            items: Vec::new(),
        };
        let mut assigned = Vec::new();
        for (number, value) in self.assigned_values(&update.assignments, info, need)? {
            assigned.push((number, self.assigned(&mut finder, number, &value)?));
        }
        let returning = self.returning_found(update.returning.as_deref(), &mut finder)?;
        // What is said of the table that is changed comes first, as in PostgreSQL.
        need.check(self)?;
        let query = self.general(&finder.query(), why)?;
        let mut assignments = Vec::with_capacity(assigned.len());
        for (number, assigned) in assigned {
            let expression = match assigned {
                Assigned::Here(expression) => expression,
                Assigned::There(place) => self.assign(given(&query, place), info, number)?,
            };
            assignments.push((number, expression));
        }
        let constraints = self.constraints(info, need)?;
        Ok(UpdatePlan { table: Arc::clone(info), targets: Targets::Found(query), assignments, constraints, returning })
    }

    fn assigned(&self, finder: &mut Finder<'_>, number: usize, value: &Expr) -> Bound<Assigned> {
        let info = finder.info;
        if is_default(value) {
            return Ok(Assigned::Here(self.default_of(info, number)?));
        }
        if finder.others.is_empty() {
            match self.expression(value, &Scope::needing(info, finder.alias, finder.need)) {
                Ok(typed) => return Ok(Assigned::Here(self.assign(typed, info, number)?)),
                Err(Stop::General(_)) => {}
                Err(stop) => return Err(stop),
            }
        }
        Ok(Assigned::There(finder.item(typed(value, info.column_type(number)))))
    }

    /// Binds a DELETE that a general query finds the rows of, for this reason.
    ///
    /// # Errors
    /// When it makes no sense.
    pub(super) fn delete_found(
        &self,
        delete: &ast::Delete,
        with: Option<&With>,
        (info, alias, need): Target<'_>,
        why: &str,
    ) -> Bound<DeletePlan> {
        refuse_current(delete.selection.as_ref())?;
        let (FromTable::WithFromKeyword(from) | FromTable::WithoutKeyword(from)) = &delete.from;
        let [from] = from.as_slice() else { return Err(syntax_error("DELETE is from one table").into()) };
        let mut finder = Finder {
            info,
            alias,
            need,
            table: &from.relation,
            others: delete.using.as_deref().unwrap_or_default(),
            with,
            selection: delete.selection.as_ref(),
            items: Vec::new(),
        };
        let returning = self.returning_found(delete.returning.as_deref(), &mut finder)?;
        // What is said of the table that is changed comes first, as in PostgreSQL.
        need.check(self)?;
        let query = self.general(&finder.query(), why)?;
        Ok(DeletePlan { table: Arc::clone(info), targets: Targets::Found(query), returning })
    }

    /// Binds RETURNING: the changed row is source 0, what the query gives source 1.
    fn returning_found(&self, items: Option<&[SelectItem]>, finder: &mut Finder<'_>) -> Bound<Option<Vec<Output>>> {
        let Some(items) = items else { return Ok(None) };
        let mut scope = Scope::needing(finder.info, finder.alias, finder.need);
        for table in finder.others {
            self.sources_of(table, finder, &mut scope)?;
        }
        let mut output = self.projection(items, &scope, true).map_err(|stop| match stop {
            Stop::General(_) => Stop::Error(not_supported("a subquery in RETURNING")),
            stop => stop,
        })?;
        for output in &mut output {
            output.expression.each_column(&mut |source, column| {
                let Some(from) = scope.sources.get(usize::from(*source)).filter(|_| *source > 0) else { return };
                let name = from.columns.iter().find(|(.., number)| number == column);
                let name = name.map_or("", |(name, ..)| name);
                let place = finder.item(Expr::CompoundIdentifier(vec![quoted(&from.alias), quoted(name)]));
                (*source, *column) = (1, place as u16);
            });
        }
        Ok(Some(output))
    }

    /// The relations of an item of FROM, and their columns.
    fn sources_of(&self, table: &TableWithJoins, finder: &Finder<'_>, scope: &mut Scope) -> Bound<()> {
        self.source_of(&table.relation, finder, scope)?;
        for join in &table.joins {
            use JoinOperator::{FullOuter, Inner, Join, Left, LeftOuter, Right, RightOuter};
            if let Join(on) | Inner(on) | Left(on) | LeftOuter(on) | Right(on) | RightOuter(on) | FullOuter(on) =
                &join.join_operator
                && matches!(on, JoinConstraint::Using(_) | JoinConstraint::Natural)
            {
                return Err(Stop::Error(not_supported("RETURNING of a join with USING")));
            }
            self.source_of(&join.relation, finder, scope)?;
        }
        Ok(())
    }

    fn source_of(&self, factor: &TableFactor, finder: &Finder<'_>, scope: &mut Scope) -> Bound<()> {
        let alias = match factor {
            TableFactor::NestedJoin { table_with_joins, alias: None } => {
                return self.sources_of(table_with_joins, finder, scope);
            }
            TableFactor::Table { alias: Some(alias), .. }
            | TableFactor::Derived { alias: Some(alias), .. }
            | TableFactor::Function { alias: Some(alias), .. }
            | TableFactor::UNNEST { alias: Some(alias), .. } => name_of(&alias.name),
            TableFactor::Table { name, .. } | TableFactor::Function { name, .. } => {
                parts_of(name)?.pop().unwrap_or_default()
            }
            _ => return Err(Stop::Error(not_supported("RETURNING with this in FROM"))),
        };
        // It may see what stands before it.
        let name = SelectItemQualifiedWildcardKind::ObjectName(ast::ObjectName::from(vec![quoted(&alias)]));
        let all = vec![SelectItem::QualifiedWildcard(name, Default::default())];
        let query = self.described(&query(finder.with, all, finder.others.to_vec(), None), "FROM")?;
        let columns = query.0.columns().iter().enumerate();
        let columns = columns.map(|(number, column)| (column.name.clone(), column.ty, number as u16)).collect();
        let origins = query.0.columns().iter().map(|column| column.origin).collect();
        scope.sources.push(ScopeSource { alias, schema: None, columns, table: None, need: None, origins });
        Ok(())
    }
}

/// Fails where the row of a cursor is wanted.
fn refuse_current(condition: Option<&Expr>) -> Result<(), SqlError> {
    match current::cursor_of(condition) {
        Some(_) => Err(not_supported("WHERE CURRENT OF with a subquery, FROM, USING or WITH")),
        None => Ok(()),
    }
}

/// What the query gives in a place.
fn given(query: &GeneralQuery, place: usize) -> Typed {
    let ty = query.0.columns().get(place).map_or(Type::TEXT, |column| column.ty);
    Typed { expression: Expression::Column { source: 1, column: place as u16 }, ty }
}
