//! CREATE INDEX.

use std::ops::ControlFlow;

use freshet_sql::{Kind, SqlError, SqlState, Type, functions::SetDeclared};
use sqlparser::ast::{Expr, Value as Literal, Visit, Visitor, visit_expressions};

use super::{
    index_class,
    syntax::{CreateIndex, IndexElement, Indexed},
    work::{Step, Work, error},
};
use crate::{
    bind::{Scope, Stop, implied, not_supported, parts_of, select::is_aggregate},
    expression::Expression,
    schema::{AccessMethod, Column, Computed, Index, IndexColumn, Predicate, Table, computed, privilege, relation},
};

/// The most columns that an index can have.
const MOST_COLUMNS: usize = 32;

/// Columns that PostgreSQL has in every table.
const SYSTEM_COLUMNS: &[&str] = &["ctid", "xmin", "xmax", "cmin", "cmax", "tableoid"];

/// Functions of general queries that return sets.
const SET_RETURNING: &[&str] = &[
    "generate_series",
    "generate_subscripts",
    "json_array_elements",
    "json_array_elements_text",
    "json_each",
    "json_each_text",
    "json_object_keys",
    "jsonb_array_elements",
    "jsonb_array_elements_text",
    "jsonb_each",
    "jsonb_each_text",
    "jsonb_object_keys",
    "regexp_matches",
    "regexp_split_to_table",
    "string_to_table",
    "unnest",
];

impl Work<'_, '_, '_> {
    pub(super) fn create_index(&mut self, statement: &CreateIndex) -> Step<&'static str> {
        let info = self.table(&statement.table)?;
        self.check_owner(info.table.owner, "table", &info.table.name)?;
        self.check_namespace(info.table.namespace, privilege::CREATE)?;
        if let Some(name) = &statement.name
            && self.is_there(info.table.namespace, name, statement.if_not_exists)?
        {
            return Ok("CREATE INDEX");
        }
        let method = method(statement)?;
        if statement.columns.len() + statement.include.len() > MOST_COLUMNS {
            let message = format!("cannot use more than {MOST_COLUMNS} columns in an index");
            return Err(error(SqlState::TOO_MANY_COLUMNS, message).into());
        }
        let mut table = info.table.clone();
        let predicate = statement.predicate.as_ref().map(|it| self.predicate(it, &mut table)).transpose()?.flatten();
        let when = predicate.as_ref().map(|predicate| predicate.condition.clone());
        let (mut columns, mut names) = (Vec::new(), Vec::new());
        for element in &statement.columns {
            let (column, name) = match &element.of {
                Indexed::Column(name) => (indexed_column(&table, name)?, name.clone()),
                Indexed::Expression(written) => self.computed_column(written, when.as_deref(), &mut table)?,
            };
            columns.push(part(&table, column, element, method)?);
            names.push(name);
        }
        let include = self.included_elements(&table, &statement.include)?;
        names.extend(include.iter().map(|column| table.columns[usize::from(*column)].name.clone()));
        let name = self.index_name(&table, statement.name.as_deref(), (&without_twins(names).join("_"), "idx"))?;
        let oid = self.change.take_oid()?;
        let index = Index {
            include,
            predicate,
            method,
            nulls_not_distinct: statement.nulls_not_distinct,
            ..Index::new(oid, name, columns, statement.unique)
        };
        table.indexes.push(index);
        // All columns have an order.
        relation::engine_table(&table)?;
        // Where the engine finds all in the rows as they are, they stay.
        if table.columns != info.table.columns || !self.add_online(&info, &mut table)? {
            self.rewrite(&info, table, Vec::new())?;
        }
        Ok("CREATE INDEX")
    }

    /// The columns of INCLUDE.
    pub(super) fn included<'n>(
        &self,
        table: &Table,
        names: impl Iterator<Item = &'n str>,
    ) -> Result<Vec<u16>, SqlError> {
        names.map(|name| indexed_column(table, name)).collect()
    }

    fn included_elements(&self, table: &Table, elements: &[IndexElement]) -> Result<Vec<u16>, SqlError> {
        fn name(element: &IndexElement) -> Result<&str, SqlError> {
            let refused = |what: &str| {
                Err(error(SqlState::INVALID_OBJECT_DEFINITION, format!("including column does not support {what}")))
            };
            match &element.of {
                Indexed::Expression(_) => {
                    Err(error(SqlState::FEATURE_NOT_SUPPORTED, "expressions are not supported in included columns"))
                }
                Indexed::Column(_) if element.collation.is_some() => refused("a collation"),
                Indexed::Column(_) if element.class.is_some() => refused("an operator class"),
                Indexed::Column(_) if element.order.is_some() => refused("ASC/DESC options"),
                Indexed::Column(_) if element.nulls_first.is_some() => refused("NULLS FIRST/LAST options"),
                Indexed::Column(name) => Ok(name.as_str()),
            }
        }
        let names = elements.iter().map(name).collect::<Result<Vec<_>, _>>()?;
        self.included(table, names.into_iter())
    }

    /// An expression on the rows of a table as the catalog keeps it, and as it is evaluated.
    fn of_row<T>(
        &self,
        table: &Table,
        (written, what): (&Expr, &str),
        bind: impl Fn(&Expr) -> crate::bind::Bound<T>,
        typed: impl Fn(&T) -> (&Expression, Type),
    ) -> Result<(String, T), SqlError> {
        refuse(written, what)?;
        let understood = |expr: &Expr| {
            bind(expr).map_err(|stop| match stop {
                Stop::Error(error) => error,
                Stop::General(why) => {
                    unknown_function(expr).unwrap_or_else(|| not_supported(format!("{why} in an {what}")))
                }
            })
        };
        understood(&self.resolved(written)?)?;
        let resolved = self.of_row_alone(written)?;
        let made = understood(&resolved)?;
        let (expression, ty) = typed(&made);
        computed::check_immutable(expression, what)?;
        // In words that mean the same in all sessions, if there are any.
        if let Some(text) = crate::deparse::deparse(table, expression, ty, false)
            && let Ok(parsed) = crate::bind::modify::parse_expression(&text)
            && let Ok(again) = bind(&parsed)
            && implied::same(typed(&again).0, expression)
        {
            return Ok((text, made));
        }
        Ok((super::expression::kept(&resolved)?, made))
    }

    /// WHERE
    fn predicate(&self, written: &Expr, table: &mut Table) -> Result<Option<Predicate>, SqlError> {
        let bind = |it: &Expr| self.binder().condition(it, &Scope::over(table), "WHERE");
        let (condition, _) = self.of_row(table, (written, "index predicate"), bind, |it| (it, Type::BOOL))?;
        let conditions = computed::condition(table, &condition)?;
        if conditions.is_empty() {
            // All rows.
            return Ok(None);
        }
        if computed::tests(&conditions, &relation::layout(table)?).is_some() {
            return Ok(Some(Predicate { condition, column: None }));
        }
        let column = add_computed(table, Computed { expression: condition.clone(), when: None }, Type::BOOL);
        Ok(Some(Predicate { condition, column: Some(column) }))
    }

    /// The column that has the value of an expression, where a condition holds; and what an index
    /// on it is called.
    fn computed_column(
        &self,
        written: &Expr,
        when: Option<&str>,
        table: &mut Table,
    ) -> Result<(u16, String), SqlError> {
        let mut plain = written;
        while let Expr::Nested(inner) = plain {
            plain = inner;
        }
        if let Expr::Identifier(name) = plain {
            let name = crate::bind::name_of(name);
            return Ok((indexed_column(table, &name)?, name));
        }
        let bind = |it: &Expr| {
            let binder = self.binder();
            let typed = binder.expression(it, &Scope::over(table))?;
            if typed.ty.kind() == Kind::Unknown {
                let message = "data type unknown has no default operator class for access method \"btree\"";
                return Err(error(SqlState::UNDEFINED_OBJECT, message).into());
            }
            Ok(binder.settle(typed)?)
        };
        let (expression, typed) =
            self.of_row(table, (plain, "index expression"), bind, |typed| (&typed.expression, typed.ty))?;
        let name = computed::name_of_expression(plain);
        let computed = Computed { expression, when: when.map(str::to_owned) };
        Ok((add_computed(table, computed, typed.ty), name))
    }

    /// What an index has of a table after its columns have other types or names: the types of what
    /// is computed follow.
    pub(super) fn retype_computed(&self, table: &mut Table) -> Result<(), SqlError> {
        for number in 0..table.columns.len() {
            if table.columns[number].dropped {
                continue;
            }
            if let Some(computed) = table.columns[number].computed.clone() {
                let typed = computed::expression(table, &computed.expression)?;
                computed::check_immutable(&typed.expression, "index expression")?;
                table.columns[number].ty = typed.ty;
            }
        }
        // What rows of before a column was added have there is still of the old type.
        let mut lies = table.clone();
        lies.columns.iter_mut().for_each(|column| column.missing = None);
        let layout = relation::layout(&lies)?;
        for number in 0..table.indexes.len() {
            let conditions = computed::predicate(table, &table.indexes[number])?;
            computed::check_immutable(&computed::whole(conditions.clone()), "index predicate")?;
            let is_tested = computed::tests(&conditions, &layout).is_some();
            let known = table.indexes[number].predicate.clone();
            if let Some(Predicate { condition, column: None }) = known.filter(|_| !is_tested) {
                let computed = Computed { expression: condition.clone(), when: None };
                let column = Some(add_computed(table, computed, Type::BOOL));
                table.indexes[number].predicate = Some(Predicate { condition, column });
            }
        }
        Ok(())
    }
}

/// Which access method an index says it has.
fn method(statement: &CreateIndex) -> Result<AccessMethod, SqlError> {
    let refused = |what: &str| {
        let message = format!("access method \"hash\" does not support {what}");
        Err(error(SqlState::FEATURE_NOT_SUPPORTED, message))
    };
    match statement.method.as_deref() {
        None | Some("btree") => Ok(AccessMethod::Btree),
        // Only what it is called: it is ordered, like all others, and so does more.
        Some("hash") if statement.unique => refused("unique indexes"),
        Some("hash") if !statement.include.is_empty() => refused("included columns"),
        Some("hash") if statement.columns.len() > 1 => refused("multicolumn indexes"),
        Some("hash") => Ok(AccessMethod::Hash),
        Some(other @ ("gist" | "gin" | "spgist" | "brin")) => Err(not_supported(format!("access method \"{other}\""))),
        Some(other) => {
            let message = format!("access method \"{other}\" does not exist");
            Err(error(SqlState::UNDEFINED_OBJECT, message))
        }
    }
}

/// The number of a column that an index names.
fn indexed_column(table: &Table, name: &str) -> Result<u16, SqlError> {
    match table.column(name) {
        Some(number) => Ok(number as u16),
        None if SYSTEM_COLUMNS.contains(&name) => {
            Err(error(SqlState::FEATURE_NOT_SUPPORTED, "index creation on system columns is not supported"))
        }
        None => Err(error(SqlState::UNDEFINED_COLUMN, format!("column \"{name}\" does not exist"))),
    }
}

/// A part of a key.
fn part(table: &Table, column: u16, element: &IndexElement, method: AccessMethod) -> Result<IndexColumn, SqlError> {
    let refused = |what: &str| {
        let message = format!("access method \"hash\" does not support {what}");
        Err(error(SqlState::FEATURE_NOT_SUPPORTED, message))
    };
    if method == AccessMethod::Hash && element.order.is_some() {
        return refused("ASC/DESC options");
    }
    if method == AccessMethod::Hash && element.nulls_first.is_some() {
        return refused("NULLS FIRST/LAST options");
    }
    let ty = table.columns[usize::from(column)].ty;
    let descending = element.order == Some("desc");
    let nulls_first = element.nulls_first.unwrap_or(descending);
    let collation = element.collation.as_ref().map(|name| index_class::collation(name, ty)).transpose()?.flatten();
    if element.class_parameters {
        let class = element.class.as_ref().map_or("", |class| &class.name);
        let message = format!("operator class {class} has no options");
        return Err(error(SqlState::INVALID_PARAMETER_VALUE, message));
    }
    let class = element.class.as_ref().map(|name| index_class::class(name, ty, method)).transpose()?.flatten();
    Ok(IndexColumn { column, descending, nulls_first, class, collation })
}

/// Adds a column that is computed to a table, unless there is one that is computed in the same way.
fn add_computed(table: &mut Table, computed: Computed, ty: Type) -> u16 {
    let known = |column: &Column| !column.dropped && column.ty == ty && column.computed.as_ref() == Some(&computed);
    if let Some(number) = table.columns.iter().position(known) {
        return number as u16;
    }
    let mut column = Column::new("", ty);
    column.hidden = true;
    column.computed = Some(computed);
    // The place of one that no index needs any more.
    let free = |column: &Column| column.dropped && column.computed.is_some() && column.ty == ty;
    match table.columns.iter().position(free) {
        Some(number) => {
            table.columns[number] = column;
            number as u16
        }
        None => {
            table.columns.push(column);
            table.columns.len() as u16 - 1
        }
    }
}

/// Lets go of what is computed for no index any more.
pub(super) fn give_up_computed(table: &mut Table) {
    let indexes = &table.indexes;
    let is_used = |number: u16| {
        indexes.iter().any(|index| {
            index.columns.iter().any(|part| part.column == number)
                || index.predicate.as_ref().is_some_and(|it| it.column == Some(number))
        })
    };
    for (number, column) in table.columns.iter_mut().enumerate() {
        if column.computed.is_some() && !is_used(number as u16) {
            column.dropped = true;
            column.missing = None;
        }
    }
}

/// What columns are called as those of an index.
pub(super) fn names_in_index(table: &Table, columns: impl Iterator<Item = u16>) -> Vec<String> {
    let name = |column: u16| {
        let column = &table.columns[usize::from(column)];
        match &column.computed {
            None => column.name.clone(),
            Some(computed) => computed::name(computed),
        }
    };
    without_twins(columns.map(name).collect())
}

/// 42883 for a function in an expression that there is not.
fn unknown_function(expr: &Expr) -> Option<SqlError> {
    let mut found = None;
    let _: ControlFlow<()> = visit_expressions(expr, |expr| {
        if let Expr::Function(function) = expr
            && let Some(name) = parts_of(&function.name).ok().and_then(|mut parts| parts.pop())
            && freshet_sql::functions::named(&name).is_empty()
        {
            found.get_or_insert(name);
        }
        ControlFlow::Continue(())
    });
    found.map(|name| error(SqlState::UNDEFINED_FUNCTION, format!("function {name} does not exist")))
}

/// Names of columns, with numbers behind those that come again.
fn without_twins(names: Vec<String>) -> Vec<String> {
    let mut chosen: Vec<String> = Vec::new();
    for name in names {
        let numbered = (0..).map(|number| if number == 0 { name.clone() } else { format!("{name}{number}") });
        chosen.extend({ numbered }.find(|name| !chosen.contains(name)));
    }
    chosen
}

/// Refuses what is no expression on one row.
fn refuse(expr: &Expr, what: &str) -> Result<(), SqlError> {
    struct Refuse<'w>(&'w str);
    impl Visitor for Refuse<'_> {
        type Break = SqlError;
        fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<SqlError> {
            let what = self.0;
            // As in \"index expressions\".
            let all = format!("{what}s");
            match expr {
                Expr::Subquery(_) | Expr::Exists { .. } | Expr::InSubquery { .. } => {
                    ControlFlow::Break(error(SqlState::FEATURE_NOT_SUPPORTED, format!("cannot use subquery in {what}")))
                }
                Expr::Value(value) => match &value.value {
                    Literal::Placeholder(name) => {
                        ControlFlow::Break(error(SqlState::new("42P02"), format!("there is no parameter {name}")))
                    }
                    _ => ControlFlow::Continue(()),
                },
                Expr::Function(function) if function.over.is_some() => ControlFlow::Break(error(
                    SqlState::new("42P20"),
                    format!("window functions are not allowed in {all}"),
                )),
                Expr::Function(function) => {
                    let name = parts_of(&function.name).ok().and_then(|mut parts| parts.pop()).unwrap_or_default();
                    if is_aggregate(&name) {
                        let message = format!("aggregate functions are not allowed in {all}");
                        return ControlFlow::Break(error(SqlState::GROUPING_ERROR, message));
                    }
                    if SetDeclared::named(None, &name).next().is_some() || SET_RETURNING.contains(&name.as_str()) {
                        let message = format!("set-returning functions are not allowed in {all}");
                        return ControlFlow::Break(error(SqlState::FEATURE_NOT_SUPPORTED, message));
                    }
                    ControlFlow::Continue(())
                }
                _ => ControlFlow::Continue(()),
            }
        }
    }
    match expr.visit(&mut Refuse(what)) {
        ControlFlow::Break(error) => Err(error),
        ControlFlow::Continue(()) => Ok(()),
    }
}
