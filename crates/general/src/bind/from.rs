//! FROM: tables, views, queries, functions, and how they are joined.

use std::{rc::Rc, sync::Arc};

use datafusion_common::{Column as PlanColumn, JoinConstraint, NullEquality, TableReference};
use datafusion_expr::{Case, Expr, Filter, Join as JoinPlan, JoinType, LogicalPlan, LogicalPlanBuilder};
use freshet_sql::{
    SqlError, SqlState, Type,
    general::{Named, Readable, Relation},
};
use sqlparser::ast::{
    self, FunctionArg, Join, JoinConstraint as Constraint, JoinOperator, ObjectName, TableAlias, TableFactor,
    TableWithJoins,
};

use super::{
    Binder, COLUMN, FIELD, check_reach,
    clause::Clause,
    expression::{case_of, if_there},
    locking::Clauses,
    name,
    query::{Item, Rows, column_names},
    scope::{Column, Level, Mention, Scope, Table},
    series::{is_field, with_fields},
    subquery::depends,
    typed::Typed,
};
use crate::{
    error::{to_sql, unsupported},
    node::{self, Apply, Expand, Mark},
    series::{Series, SeriesCall},
    source::RelationSource,
};

/// A plan and what its columns are called.
pub(super) struct Source {
    pub plan: LogicalPlan,
    pub scope: Scope,
}

/// A function in FROM, bound.
struct TableFunction {
    calls: Vec<SeriesCall>,
    columns: Vec<(String, Typed)>,
    ordinality: Option<String>,
    name: String,
}

impl Binder<'_> {
    /// All of FROM; one row without columns if there is nothing.
    pub(super) fn from(&mut self, items: &[TableWithJoins]) -> Result<Source, SqlError> {
        let mut source: Option<Source> = None;
        for item in items {
            source = Some(self.table_with_joins(source, item)?);
        }
        Ok(source.unwrap_or_else(|| Source { plan: node::one_row(), scope: Scope::default() }))
    }

    /// `TABLE name`
    pub(super) fn whole_table(&mut self, name: &ObjectName) -> Result<Rows, SqlError> {
        let source = self.table(name, None)?;
        let items = source
            .scope
            .columns
            .iter()
            .filter(|column| !column.hidden)
            .map(|column| Item { name: column.name.clone(), typed: column.typed() })
            .collect();
        let marks = self.marks_of_from()?;
        Ok(Rows { marks, ..Rows::new(source.plan, items) })
    }

    fn table_with_joins(&mut self, before: Option<Source>, item: &TableWithJoins) -> Result<Source, SqlError> {
        let joins_left = item.joins.iter().all(|join| {
            join_type(&join.join_operator)
                .is_ok_and(|(join_type, _)| matches!(join_type, JoinType::Inner | JoinType::Left))
        });
        let sees_left = is_lateral(&item.relation) || item.joins.iter().any(|join| is_lateral(&join.relation));
        let start = self.marked_by_now();
        match before {
            // What sees the items before it joins them one by one.
            Some(before) if joins_left && sees_left => {
                let first = self.joined(before, &item.relation, JoinType::Inner, &Constraint::None)?;
                self.with_joins(first, &item.joins, start)
            }
            before => {
                let first = self.placed(outside(&item.joins), |binder| binder.factor(&item.relation))?;
                let source = self.with_joins(first, &item.joins, start)?;
                match before {
                    None => Ok(source),
                    Some(before) => self.combine(before, source, JoinType::Inner, &Constraint::None),
                }
            }
        }
    }

    /// Joins others to something whose rows to be locked have been marked since `start`.
    fn with_joins(&mut self, mut source: Source, joins: &[Join], start: usize) -> Result<Source, SqlError> {
        for (at, join) in joins.iter().enumerate() {
            let (join_type, constraint) = join_type(&join.join_operator)?;
            let kept = matches!(join_type, JoinType::Left | JoinType::Full).then_some(OUTSIDE);
            let place = kept.or_else(|| outside(&joins[at + 1..]));
            let middle = self.marked_by_now();
            source = self.placed(place, |binder| binder.joined(source, &join.relation, join_type, constraint))?;
            let end = self.marked_by_now();
            match join_type {
                JoinType::Left => self.nullable(middle..end),
                JoinType::Right => self.nullable(start..middle),
                JoinType::Full => self.nullable(start..end),
                _ => {}
            }
        }
        Ok(source)
    }

    fn joined(
        &mut self,
        left: Source,
        factor: &TableFactor,
        join_type: JoinType,
        constraint: &Constraint,
    ) -> Result<Source, SqlError> {
        if !is_lateral(factor) {
            let right = self.factor(factor)?;
            return self.combine(left, right, join_type, constraint);
        }
        if let Some(function) = function_of(factor)? {
            return self.joined_function(left, factor, &function, join_type, constraint);
        }
        self.joined_lateral(left, factor, join_type, constraint)
    }

    /// A function in FROM, whose arguments may be columns of what stands before it.
    fn joined_function(
        &mut self,
        left: Source,
        factor: &TableFactor,
        syntax: &FunctionSyntax<'_>,
        join_type: JoinType,
        constraint: &Constraint,
    ) -> Result<Source, SqlError> {
        self.level().scope = left.scope.clone();
        self.level().clause = Clause::From;
        let function = self.table_function(syntax);
        self.level().scope = Scope::default();
        let function = function?;
        let of_row =
            function.calls.iter().any(|call| call.arguments.iter().any(|(expr, _)| !expr.column_refs().is_empty()));
        if !of_row {
            let right = self.function_source(node::one_row(), function, syntax.alias, false)?.1;
            return self.combine(left, right, join_type, constraint);
        }
        let always = match constraint {
            Constraint::None => true,
            Constraint::On(ast::Expr::Value(value)) => value.value == ast::Value::Boolean(true),
            _ => false,
        };
        match (join_type, always) {
            (JoinType::Inner | JoinType::Left, true) => {
                let outer = join_type == JoinType::Left;
                let (plan, right) = self.function_source(left.plan, function, syntax.alias, outer)?;
                check_duplicates(&left.scope, &right.scope)?;
                Ok(Source { plan, scope: left.scope.join(right.scope) })
            }
            _ => self.joined_lateral(left, factor, join_type, constraint),
        }
    }

    /// Something that is evaluated again for each row of what stands before it.
    fn joined_lateral(
        &mut self,
        left: Source,
        factor: &TableFactor,
        join_type: JoinType,
        constraint: &Constraint,
    ) -> Result<Source, SqlError> {
        self.level().scope = left.scope.clone();
        let subquery = self.next_subquery();
        // It stands in the same FROM.
        let locking = std::mem::take(&mut self.level().locking);
        self.levels.push(Level { subquery: Some(subquery), locking, ..Level::default() });
        let right = self.lateral_factor(factor);
        let sees_left = !self.level().captures.is_empty();
        let right = match right {
            Ok(right) if sees_left => self.lateral_side(&left, right, constraint).map(Ok),
            right => right.map(Err),
        };
        let mut level = self.levels.pop();
        self.level().locking = level.as_mut().map(|level| std::mem::take(&mut level.locking)).unwrap_or_default();
        self.level().scope = Scope::default();
        let (right, condition, merged) = match right? {
            Ok(right) => right,
            // It could have seen what stands before it.
            Err(right) => return self.combine(left, right, join_type, constraint),
        };
        if !matches!(join_type, JoinType::Inner | JoinType::Left) {
            return Err(SqlError::new(
                SqlState::INVALID_COLUMN_REFERENCE,
                "the combining JOIN type must be INNER or LEFT for a LATERAL reference",
            ));
        }
        let captures = level.map(|level| level.captures).unwrap_or_default();
        check_duplicates(&left.scope, &right.scope)?;
        let mut right_plan = right.plan;
        if let Some(condition) = condition {
            right_plan = LogicalPlan::Filter(Filter::try_new(condition, Arc::new(right_plan)).map_err(to_sql)?);
        }
        let plan = if captures.is_empty() || !depends(&right_plan, subquery)? {
            cross_join(left.plan, right_plan, join_type)?
        } else {
            let captures = captures.into_iter().map(|typed| typed.expr).collect();
            let plan = Apply::plan(left.plan, subquery, captures, &right_plan, join_type == JoinType::Left)?;
            self.put_subquery(subquery, right_plan);
            plan
        };
        Ok(Source { plan, scope: merge_scopes(left.scope, right.scope, merged) })
    }

    /// The right side of a lateral join, as seen from within.
    fn lateral_factor(&mut self, factor: &TableFactor) -> Result<Source, SqlError> {
        match function_of(factor)? {
            Some(syntax) => {
                self.level().clause = Clause::From;
                let function = self.table_function(&syntax)?;
                Ok(self.function_source(node::one_row(), function, syntax.alias, false)?.1)
            }
            None => self.factor(factor),
        }
    }

    /// The same with the join's condition.
    fn lateral_side(
        &mut self,
        left: &Source,
        right: Source,
        constraint: &Constraint,
    ) -> Result<(Source, Option<Expr>, Vec<Column>), SqlError> {
        self.level().scope = right.scope.clone();
        self.level().clause = Clause::JoinOn;
        match constraint {
            Constraint::None => Ok((right, None, Vec::new())),
            Constraint::On(condition) => {
                let typed = self.expression(condition)?;
                let condition = self.condition(typed, "JOIN/ON")?.expr;
                Ok((right, Some(condition), Vec::new()))
            }
            Constraint::Using(_) | Constraint::Natural => {
                let names = self.shared_names(constraint, &left.scope, &right.scope)?;
                let mut tests = Vec::with_capacity(names.len());
                let mut merged = Vec::with_capacity(names.len());
                for name in names {
                    let (one, two) =
                        (one_column(&left.scope, &name, "left")?, one_column(&right.scope, &name, "right")?);
                    merged.push(one.clone());
                    let subquery = self.level().subquery.unwrap_or_default();
                    let one = self.level().capture(subquery, one.typed());
                    tests.push(self.compare("=", one, two.typed())?.expr);
                }
                Ok((right, tests.into_iter().reduce(Expr::and), merged))
            }
        }
    }

    /// Joins two that do not see each other.
    fn combine(
        &mut self,
        left: Source,
        right: Source,
        join_type: JoinType,
        constraint: &Constraint,
    ) -> Result<Source, SqlError> {
        check_duplicates(&left.scope, &right.scope)?;
        self.makes((left.plan.schema().fields().len() + right.plan.schema().fields().len()) * FIELD)?;
        match constraint {
            Constraint::None => {
                let plan = cross_join(left.plan, right.plan, join_type)?;
                Ok(Source { plan, scope: left.scope.join(right.scope) })
            }
            Constraint::On(condition) => {
                let scope = left.scope.join(right.scope);
                self.level().scope = scope;
                self.level().clause = Clause::JoinOn;
                let condition = self.expression(condition).and_then(|typed| self.condition(typed, "JOIN/ON"));
                let scope = std::mem::take(&mut self.level().scope);
                let plan = join(left.plan, right.plan, join_type, Some(condition?.expr))?;
                Ok(Source { plan, scope })
            }
            Constraint::Using(_) | Constraint::Natural => {
                let names = self.shared_names(constraint, &left.scope, &right.scope)?;
                let mut tests = Vec::with_capacity(names.len());
                let mut merged = Vec::with_capacity(names.len());
                for name in &names {
                    let one = one_column(&left.scope, name, "left")?;
                    let two = one_column(&right.scope, name, "right")?;
                    tests.push(self.compare("=", one.typed(), two.typed())?.expr);
                    let ty = self.common_type(&[one.ty, two.ty], "JOIN/USING")?;
                    let (one, two) = (self.coerce(one.typed(), ty)?, self.coerce(two.typed(), ty)?);
                    self.makes_copy(&one.expr)?;
                    let origin = match join_type {
                        JoinType::Right => two.origin,
                        JoinType::Full => None,
                        _ => one.origin,
                    };
                    let expr = match join_type {
                        JoinType::Right => two.expr,
                        JoinType::Full => first_there(one.expr, two.expr, ty),
                        _ => one.expr,
                    };
                    merged.push(Column { name: name.clone(), ty, expr, hidden: false, of: None, origin });
                }
                let condition = tests.into_iter().reduce(Expr::and);
                let plan = match condition {
                    Some(condition) => join(left.plan, right.plan, join_type, Some(condition))?,
                    None => cross_join(left.plan, right.plan, join_type)?,
                };
                Ok(Source { plan, scope: merge_scopes(left.scope, right.scope, merged) })
            }
        }
    }

    fn shared_names(&self, constraint: &Constraint, left: &Scope, right: &Scope) -> Result<Vec<String>, SqlError> {
        match constraint {
            Constraint::Using(names) => {
                let mut shared = Vec::with_capacity(names.len());
                for name in names {
                    let (_, name) = name::qualified(name)?;
                    if shared.contains(&name) {
                        return Err(SqlError::new(
                            SqlState::DUPLICATE_COLUMN,
                            format!("column name \"{name}\" appears more than once in USING clause"),
                        ));
                    }
                    shared.push(name);
                }
                Ok(shared)
            }
            _ => Ok(left
                .columns
                .iter()
                .filter(|column| !column.hidden)
                .map(|column| column.name.clone())
                .filter(|name| right.columns.iter().any(|column| !column.hidden && column.name == *name))
                .collect()),
        }
    }

    fn factor(&mut self, factor: &TableFactor) -> Result<Source, SqlError> {
        let source = self.deeper(|binder| binder.any_factor(factor))?;
        self.marked(source)
    }

    fn any_factor(&mut self, factor: &TableFactor) -> Result<Source, SqlError> {
        if let Some(syntax) = function_of(factor)? {
            self.level().clause = Clause::From;
            let function = self.table_function(&syntax)?;
            return Ok(self.function_source(node::one_row(), function, syntax.alias, false)?.1);
        }
        match factor {
            TableFactor::Table { name, alias, sample, version, partitions, .. } => {
                if sample.is_some() || version.is_some() || !partitions.is_empty() {
                    return Err(unsupported("TABLESAMPLE, and versions and partitions of tables"));
                }
                self.table(name, alias.as_ref())
            }
            TableFactor::Derived { subquery, alias, sample: None, .. } => {
                let name = alias.as_ref().map(|alias| name::fold(&alias.name)).unwrap_or_default();
                let clauses = self.locking_of(&name);
                let locks = self.locks;
                let rows = self.unsettled_query(with_fields(subquery)?.as_ref(), &clauses)?;
                let by_itself = self.locks > locks;
                let Some(alias) = alias else {
                    return Err(SqlError::new(SqlState::SYNTAX_ERROR, "subquery in FROM must have an alias")
                        .with_hint("For example, FROM (SELECT ...) [AS] foo."));
                };
                let renamed = column_names(&alias.columns);
                self.locked_rows(rows, &name, &renamed, (&clauses, by_itself))
            }
            TableFactor::NestedJoin { table_with_joins, alias } => {
                let source = self.table_with_joins(None, table_with_joins)?;
                match alias {
                    None => Ok(source),
                    Some(alias) => {
                        self.not_locked(&name::fold(&alias.name), "a join")?;
                        let columns = rename(source.scope.columns, alias)?;
                        Ok(Source { plan: source.plan, scope: scope_of(None, &name::fold(&alias.name), columns) })
                    }
                }
            }
            factor => Err(unsupported(format_args!("{factor} in FROM"))),
        }
    }

    /// A query's result under a name, where clauses lock rows of it.
    fn locked_rows(
        &mut self,
        rows: Rows,
        alias: &str,
        renamed: &[String],
        (clauses, by_itself): (&Clauses, bool),
    ) -> Result<Source, SqlError> {
        let (source, marks) = self.marked_rows(rows, alias, renamed)?;
        self.mark_query(clauses, marks, by_itself);
        Ok(source)
    }

    /// A query's result under a name.
    pub(super) fn aliased_rows(&mut self, rows: Rows, alias: &str, renamed: &[String]) -> Result<Source, SqlError> {
        Ok(self.marked_rows(rows, alias, renamed)?.0)
    }

    /// The same, and what is still to be locked of it.
    fn marked_rows(&mut self, rows: Rows, alias: &str, renamed: &[String]) -> Result<(Source, Vec<Mark>), SqlError> {
        let count = rows.items.iter().filter(|item| !is_field(&item.name)).count();
        check_count(alias, count, renamed.len())?;
        let mut renamed = renamed.iter();
        let mut named = |name: &String| if is_field(name) { None } else { renamed.next() }.unwrap_or(name).clone();
        let names: Vec<String> = rows.items.iter().map(|item| named(&item.name)).collect();
        let rows = self.projected(rows)?;
        let columns = rows
            .items
            .into_iter()
            .zip(names)
            .map(|(item, name)| {
                let hidden = is_field(&name);
                let Typed { expr, ty, origin } = item.typed;
                Column { name, ty, expr, hidden, of: None, origin }
            })
            .collect();
        Ok((Source { plan: node::Computed::plan(rows.plan), scope: scope_of(None, alias, columns) }, rows.marks))
    }

    /// A CTE, a relation or a view.
    fn table(&mut self, name: &ObjectName, alias: Option<&TableAlias>) -> Result<Source, SqlError> {
        self.relations.check_database(&name::parts(name)?)?;
        let (schema, name) = name::qualified(name)?;
        let visible = alias.map_or_else(|| name.clone(), |alias| name::fold(&alias.name));
        let renamed = alias.map_or_else(Vec::new, |alias| column_names(&alias.columns));
        if schema.is_none()
            && let Some(source) = self.cte(&name, &visible, &renamed)?
        {
            self.not_locked(&visible, "a WITH query")?;
            return Ok(source);
        }
        match self.relations.named(schema.as_deref(), &name)? {
            Named::Relation(relation) => self.relation(relation, schema, &name, &visible, &renamed),
            Named::View { query, relations, columns, access } => {
                let mention = self.mention(access);
                let clauses = Clauses { of_view: true, ..self.locking_of(&visible) };
                if !clauses.all.is_empty() {
                    mention.lock();
                }
                let outside = std::mem::replace(&mut self.relations, relations);
                let locks = self.locks;
                let rows = self.view(&query, &columns, &clauses);
                let by_itself = self.locks > locks;
                self.relations = outside;
                let mut source = self.locked_rows(rows?, &visible, &renamed, (&clauses, by_itself))?;
                let of_tables = source.scope.tables.iter_mut().map(|table| &mut table.columns);
                for columns in of_tables.chain([&mut source.scope.columns]) {
                    let numbered = columns.iter_mut().enumerate();
                    numbered.for_each(|(at, column)| {
                        (column.of, column.origin) = (Some((Rc::clone(&mention), at)), mention.origin(at));
                    });
                }
                if alias.is_none() {
                    source.scope.tables.iter_mut().for_each(|table| table.schema.clone_from(&schema));
                }
                Ok(source)
            }
        }
    }

    /// Notes that something is read here.
    fn mention(&mut self, access: Arc<dyn Readable>) -> Rc<Mention> {
        let mention = Mention::of(access);
        self.mentions.push(Rc::clone(&mention));
        mention
    }

    /// A view's query, which sees nothing of the query that it stands in.
    fn view(
        &mut self,
        query: &ast::Query,
        columns: &[freshet_sql::general::Column],
        clauses: &Clauses,
    ) -> Result<Rows, SqlError> {
        let ctes = std::mem::take(&mut self.ctes);
        self.levels.push(Level { closed: true, ..Level::default() });
        let rows = self.query_within(query, clauses);
        self.levels.pop();
        self.ctes = ctes;
        let mut rows = rows?;
        let listed = std::mem::take(&mut rows.items);
        if listed.len() != columns.len() {
            return Err(SqlError::internal("a view's query has another number of columns than the view"));
        }
        let types: Vec<Type> = columns.iter().map(|column| column.ty).collect();
        let items = listed
            .into_iter()
            .zip(columns)
            .map(|(item, column)| Item { name: column.name.clone(), typed: item.typed })
            .collect();
        let rows = Rows { items, ..rows };
        if rows.items.iter().zip(&types).all(|(item, ty)| item.typed.ty == *ty) {
            return Ok(rows);
        }
        self.projected_as(rows, &types)
    }

    fn relation(
        &mut self,
        relation: Arc<dyn Relation>,
        schema: Option<String>,
        name: &str,
        visible: &str,
        renamed: &[String],
    ) -> Result<Source, SqlError> {
        let mention = self.mention(Arc::clone(&relation) as Arc<dyn Readable>);
        let described = relation.columns();
        let count = described.iter().filter(|column| !column.hidden).count();
        check_count(visible, count, renamed.len())?;
        self.makes(described.len() * COLUMN)?;
        let qualifier = self.qualifier(visible);
        let mut renamed = renamed.iter();
        let columns: Vec<Column> = described
            .iter()
            .enumerate()
            .map(|(at, column)| Column {
                // Hidden ones may lie between the others.
                name: if column.hidden { None } else { renamed.next() }.unwrap_or(&column.name).clone(),
                ty: column.ty,
                expr: Expr::Column(PlanColumn::new(Some(qualifier.clone()), &column.name)),
                hidden: column.hidden,
                of: Some((Rc::clone(&mention), at)),
                origin: mention.origin(at),
            })
            .collect();
        let clauses = self.locking_of(visible);
        if !clauses.all.is_empty() {
            mention.lock();
            let lockable = relation.lockable()?;
            let row = columns.get(lockable.column()).map(|column| column.expr.clone());
            let row = row.ok_or_else(|| SqlError::internal("a relation locks rows by a column that it has not"))?;
            self.mark_table(&clauses, lockable, row);
        }
        let key = relation.key().to_vec();
        let computed = self.computed(relation.as_ref(), &columns);
        let source = Arc::new(RelationSource::new(relation, name, computed));
        let plan =
            LogicalPlanBuilder::scan(qualifier, source, None).and_then(LogicalPlanBuilder::build).map_err(to_sql)?;
        let schema = schema.filter(|_| visible == name);
        let mut scope = scope_of(schema, visible, columns);
        scope.tables.iter_mut().for_each(|table| table.key.clone_from(&key));
        Ok(Source { plan, scope })
    }

    /// What the columns of a relation have computed, as its filters may say it.
    fn computed(&mut self, relation: &dyn Relation, columns: &[Column]) -> Vec<(Expr, Expr)> {
        if relation.computed().is_empty() {
            return Vec::new();
        }
        // By their own names, whatever they are called in the query.
        let own = relation.columns().iter().zip(columns).map(|(described, column)| Column {
            name: described.name.clone(),
            of: None,
            ..column.clone()
        });
        let scope = scope_of(None, "", own.collect());
        self.levels.push(Level { closed: true, scope, ..Level::default() });
        let mut found = Vec::new();
        for (expr, at) in relation.computed() {
            let Some(column) = columns.get(*at) else { continue };
            if let Ok(typed) = self.expression(expr)
                && typed.ty == column.ty
            {
                found.push((typed.expr, column.expr.clone()));
            }
        }
        self.levels.pop();
        found
    }

    /// A name for a table in the plan, by which its columns are told from all others.
    fn qualifier(&mut self, visible: &str) -> TableReference {
        let mut name = visible.to_owned();
        let mut count = 1;
        while !self.qualifiers.insert(name.clone()) {
            count += 1;
            name = format!("{visible}_{count}");
        }
        TableReference::bare(name)
    }

    fn table_function(&mut self, syntax: &FunctionSyntax<'_>) -> Result<TableFunction, SqlError> {
        let mut calls = Vec::new();
        let mut columns = Vec::new();
        let arrays: Vec<&[&ast::Expr]> = if syntax.name == "unnest" {
            // Several arrays are taken side by side.
            syntax.arguments.chunks(1).collect()
        } else {
            vec![&syntax.arguments]
        };
        for arguments in arrays {
            let mut typed = Vec::with_capacity(arguments.len());
            for expr in arguments {
                typed.push(self.expression(expr)?);
            }
            let call = match Series::named(syntax.schema.as_deref(), &syntax.name) {
                Some(series) => self.series(series, typed)?,
                None => {
                    let result = self.call(&syntax.name, typed)?;
                    self.single(&syntax.name, result)
                }
            };
            columns.extend(call.columns.iter().map(|(name, ty)| {
                let expr = Expr::Column(PlanColumn::new_unqualified(name.clone()));
                (call.visible(name), Typed::new(expr, *ty))
            }));
            calls.push(call);
        }
        let ordinality = syntax.ordinality.then(|| self.fresh("ordinality"));
        if let Some(name) = &ordinality {
            let expr = Expr::Column(PlanColumn::new_unqualified(name.clone()));
            columns.push(("ordinality".to_owned(), Typed::new(expr, Type::INT8)));
        }
        Ok(TableFunction { calls, columns, ordinality, name: syntax.name.clone() })
    }

    /// The plan with a function's rows beside those of `input`, and these rows alone under their
    /// name.
    fn function_source(
        &mut self,
        input: LogicalPlan,
        function: TableFunction,
        alias: Option<&TableAlias>,
        outer: bool,
    ) -> Result<(LogicalPlan, Source), SqlError> {
        let mut function = function;
        let mut columns: Vec<Column> = std::mem::take(&mut function.columns)
            .into_iter()
            .map(|(name, typed)| Column { name, ty: typed.ty, expr: typed.expr, hidden: false, of: None, origin: None })
            .collect();
        let visible = alias.map_or_else(|| function.name.clone(), |alias| name::fold(&alias.name));
        if let Some(alias) = alias {
            // A function's only column goes by the alias, unless it has a name of its own.
            let alone = columns.len() - usize::from(function.ordinality.is_some()) == 1;
            if alias.columns.is_empty() && alone && columns[0].name == function.name {
                columns[0].name.clone_from(&visible);
            }
            columns = rename(columns, alias)?;
        }
        if let [only] = columns.as_slice()
            && only.name != visible
        {
            // The row of a function of one value is that value.
            columns.push(Column { name: visible.clone(), hidden: true, ..only.clone() });
        }
        self.not_locked(&visible, "a function")?;
        let mut scope = scope_of(None, &visible, columns);
        if self.wanted.last().is_some_and(|wanted| wanted.contains(&visible)) {
            // Where there is a row, it has a number.
            let number = function.ordinality.get_or_insert_with(|| self.fresh("ordinality"));
            let present = Expr::Column(PlanColumn::new_unqualified(number.clone()));
            scope.tables.iter_mut().for_each(|table| table.present = Some(present.clone()));
        }
        let plan = Expand::plan(input, function.calls, function.ordinality, outer)?;
        Ok((plan.clone(), Source { plan, scope }))
    }
}

/// A call in FROM as it was written.
struct FunctionSyntax<'a> {
    schema: Option<String>,
    name: String,
    arguments: Vec<&'a ast::Expr>,
    alias: Option<&'a TableAlias>,
    ordinality: bool,
}

fn function_of(factor: &TableFactor) -> Result<Option<FunctionSyntax<'_>>, SqlError> {
    fn plain(arguments: &[FunctionArg]) -> Result<Vec<&ast::Expr>, SqlError> {
        arguments
            .iter()
            .map(|argument| match argument {
                FunctionArg::Unnamed(ast::FunctionArgExpr::Expr(expr)) => Ok(expr),
                _ => Err(unsupported("named arguments of a function in FROM")),
            })
            .collect()
    }
    Ok(match factor {
        TableFactor::Table { name, alias, args: Some(arguments), with_ordinality, .. } => {
            let (schema, name) = name::routine(name)?;
            let (arguments, alias) = (plain(&arguments.args)?, alias.as_ref());
            Some(FunctionSyntax { schema, name, arguments, alias, ordinality: *with_ordinality })
        }
        TableFactor::Function { name, args, alias, with_ordinality, .. } => {
            let (schema, name) = name::routine(name)?;
            let (arguments, alias) = (plain(args)?, alias.as_ref());
            Some(FunctionSyntax { schema, name, arguments, alias, ordinality: *with_ordinality })
        }
        TableFactor::UNNEST { alias, array_exprs, with_ordinality, with_offset: false, .. } => Some(FunctionSyntax {
            schema: None,
            name: "unnest".to_owned(),
            arguments: array_exprs.iter().collect(),
            alias: alias.as_ref(),
            ordinality: *with_ordinality,
        }),
        _ => None,
    })
}

/// Whether something in FROM sees what stands before it.
fn is_lateral(factor: &TableFactor) -> bool {
    match factor {
        TableFactor::Derived { lateral, .. } => *lateral,
        TableFactor::Table { args, .. } => args.is_some(),
        TableFactor::Function { .. } | TableFactor::UNNEST { .. } => true,
        TableFactor::NestedJoin { table_with_joins, .. } => {
            let TableWithJoins { relation, joins } = table_with_joins.as_ref();
            is_lateral(relation) || joins.iter().any(|join| is_lateral(&join.relation))
        }
        _ => false,
    }
}

/// Where a recursive query must not be named.
const OUTSIDE: &str = "within an outer join";

/// Whether what stands before these joins may be without a row.
fn outside(joins: &[Join]) -> Option<&'static str> {
    let outside = |join: &Join| {
        join_type(&join.join_operator).is_ok_and(|(join_type, _)| matches!(join_type, JoinType::Right | JoinType::Full))
    };
    joins.iter().any(outside).then_some(OUTSIDE)
}

fn join_type(operator: &JoinOperator) -> Result<(JoinType, &Constraint), SqlError> {
    let (join_type, constraint) = match operator {
        JoinOperator::CrossJoin(constraint @ Constraint::None) => return Ok((JoinType::Inner, constraint)),
        JoinOperator::Join(constraint) | JoinOperator::Inner(constraint) => (JoinType::Inner, constraint),
        JoinOperator::Left(constraint) | JoinOperator::LeftOuter(constraint) => (JoinType::Left, constraint),
        JoinOperator::Right(constraint) | JoinOperator::RightOuter(constraint) => (JoinType::Right, constraint),
        JoinOperator::FullOuter(constraint) => (JoinType::Full, constraint),
        JoinOperator::CrossJoin(_) => {
            return Err(SqlError::new(SqlState::SYNTAX_ERROR, "CROSS JOIN has no condition"));
        }
        _ => return Err(unsupported("this kind of join")),
    };
    if *constraint == Constraint::None {
        return Err(SqlError::new(SqlState::SYNTAX_ERROR, "JOIN needs ON or USING"));
    }
    Ok((join_type, constraint))
}

fn scope_of(schema: Option<String>, name: &str, columns: Vec<Column>) -> Scope {
    Scope {
        tables: vec![Table { schema, name: name.to_owned(), columns: columns.clone(), key: Vec::new(), present: None }],
        columns,
    }
}

/// Merged columns first, then the rest of both sides.
fn merge_scopes(left: Scope, right: Scope, merged: Vec<Column>) -> Scope {
    let names: Vec<String> = merged.iter().map(|column| column.name.clone()).collect();
    let rest =
        |columns: Vec<Column>| columns.into_iter().filter(|column| !names.contains(&column.name)).collect::<Vec<_>>();
    let mut tables = left.tables;
    tables.extend(right.tables);
    let mut columns = merged;
    columns.extend(rest(left.columns));
    columns.extend(rest(right.columns));
    Scope { tables, columns }
}

fn one_column<'s>(scope: &'s Scope, name: &str, side: &str) -> Result<&'s Column, SqlError> {
    let mut found = scope.columns.iter().filter(|column| column.name == name);
    match (found.next(), found.next()) {
        (Some(column), None) => Ok(column),
        (Some(_), Some(_)) => Err(SqlError::new(
            SqlState::AMBIGUOUS_COLUMN,
            format!("common column name \"{name}\" appears more than once in {side} table"),
        )),
        (None, _) => Err(SqlError::new(
            SqlState::UNDEFINED_COLUMN,
            format!("column \"{name}\" specified in USING clause does not exist in {side} table"),
        )),
    }
}

fn check_duplicates(left: &Scope, right: &Scope) -> Result<(), SqlError> {
    for table in &right.tables {
        if left.tables.iter().any(|other| other.name == table.name && other.schema == table.schema) {
            return Err(SqlError::new(
                SqlState::DUPLICATE_ALIAS,
                format!("table name \"{}\" specified more than once", table.name),
            ));
        }
    }
    Ok(())
}

fn check_count(table: &str, available: usize, specified: usize) -> Result<(), SqlError> {
    if specified > available {
        return Err(SqlError::new(
            SqlState::INVALID_COLUMN_REFERENCE,
            format!("table \"{table}\" has {available} columns available but {specified} columns specified"),
        ));
    }
    Ok(())
}

fn rename(mut columns: Vec<Column>, alias: &TableAlias) -> Result<Vec<Column>, SqlError> {
    if alias.columns.iter().any(|column| column.data_type.is_some()) {
        return Err(unsupported("a list of column definitions"));
    }
    let names = column_names(&alias.columns);
    let visible = || columns.iter().filter(|column| !column.hidden);
    check_count(&name::fold(&alias.name), visible().count(), names.len())?;
    for (column, name) in columns.iter_mut().filter(|column| !column.hidden).zip(names) {
        column.name = name;
    }
    Ok(columns)
}

fn join(
    left: LogicalPlan,
    right: LogicalPlan,
    join_type: JoinType,
    filter: Option<Expr>,
) -> Result<LogicalPlan, SqlError> {
    check_reach(&[&left, &right])?;
    let join = JoinPlan::try_new(
        Arc::new(left),
        Arc::new(right),
        Vec::new(),
        filter,
        join_type,
        JoinConstraint::On,
        NullEquality::NullEqualsNothing,
        false,
    );
    join.map(LogicalPlan::Join).map_err(to_sql)
}

fn cross_join(left: LogicalPlan, right: LogicalPlan, join_type: JoinType) -> Result<LogicalPlan, SqlError> {
    // One row without columns adds nothing.
    if matches!(&left, LogicalPlan::EmptyRelation(empty) if empty.produce_one_row && left.schema().fields().is_empty())
        && join_type == JoinType::Inner
    {
        return Ok(right);
    }
    join(left, right, join_type, None)
}

/// The first of two values that is not null. One that is made like this already gets one branch
/// more: within one another, each would be twice as large as the one before.
fn first_there(one: Expr, two: Expr, ty: Type) -> Expr {
    let mut branches = Vec::new();
    match one {
        Expr::Case(Case { expr: None, when_then_expr, else_expr: Some(last) }) if is_first_of(&when_then_expr) => {
            branches.extend(when_then_expr.into_iter().map(|(when, then)| (*when, *then)));
            branches.push(if_there(*last));
        }
        one => branches.push(if_there(one)),
    }
    case_of(branches.into_iter(), two, ty).expr
}

fn is_first_of(branches: &[(Box<Expr>, Box<Expr>)]) -> bool {
    branches.iter().all(|(when, then)| matches!(&**when, Expr::IsNotNull(value) if value == then))
}
