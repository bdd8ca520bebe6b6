//! What the texts refer to that the catalog keeps: the queries of views, defaults, conditions.

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::ControlFlow,
};

use sqlparser::ast::{
    Expr, Function, FunctionArguments, GroupByExpr, Ident, Join, JoinConstraint, ObjectName, ObjectNamePart, Select,
    SelectItem, TableFactor, Value, Visit, Visitor,
};

use super::{IndexConstraint, Named, Oid, Schema, TableInfo, View};
use crate::{
    bind::{name_of, select::is_aggregate},
    syntax,
    system::class::sequence_columns,
};

/// What a text refers to.
#[derive(Debug, Default)]
pub struct References {
    /// Columns of relations, from 1; 0 for a relation whose columns are not named.
    pub columns: BTreeSet<(Oid, i32)>,
    /// Primary keys, by the ids of their indexes, that determine what is selected of a group.
    pub keys: BTreeSet<Oid>,
    /// Functions, with how many arguments they have.
    pub functions: BTreeSet<(String, usize)>,
}

/// A relation in FROM.
struct Factor {
    oid: Oid,
    /// The names that the alias gives its first columns.
    renamed: Vec<String>,
}

/// Looks through a query, or an expression, in which relations have aliases.
struct Look<'s> {
    schema: &'s Schema,
    /// The relations in FROM anywhere, by their aliases.
    factors: BTreeMap<String, Vec<Factor>>,
    found: References,
}

/// Gathers the relations in FROM, which are named with their schemas.
struct Factors<'s> {
    schema: &'s Schema,
    found: BTreeMap<String, Vec<Factor>>,
}

/// The relation of a qualified name, and its alias.
fn factor(schema: &Schema, factor: &TableFactor) -> Option<(String, Factor)> {
    let TableFactor::Table { name, alias, args: None, .. } = factor else { return None };
    let [ObjectNamePart::Identifier(namespace), ObjectNamePart::Identifier(last)] = name.0.as_slice() else {
        return None;
    };
    let named = schema.named(schema.namespace(&name_of(namespace))?, &name_of(last))?;
    let (Named::Table(oid) | Named::View(oid) | Named::Sequence(oid)) = named else { return None };
    let renamed = alias.iter().flat_map(|alias| &alias.columns).map(|column| name_of(&column.name)).collect();
    Some((alias.as_ref().map_or_else(|| name_of(last), |alias| name_of(&alias.name)), Factor { oid, renamed }))
}

impl Visitor for Factors<'_> {
    type Break = ();

    fn pre_visit_table_factor(&mut self, source: &TableFactor) -> ControlFlow<()> {
        if let Some((alias, factor)) = factor(self.schema, source) {
            self.found.entry(alias).or_default().push(factor);
        }
        ControlFlow::Continue(())
    }
}

/// The number of a relation's column, from 1.
fn number(schema: &Schema, factor: &Factor, name: &str) -> Option<i32> {
    if let Some(place) = factor.renamed.iter().position(|renamed| renamed == name) {
        return i32::try_from(place + 1).ok();
    }
    let place = match (schema.table(factor.oid), schema.view(factor.oid)) {
        (Some(info), _) => info.table.column(name),
        (None, Some(view)) => view.columns.iter().position(|(column, _)| column == name),
        // A sequence.
        (None, None) => sequence_columns().iter().position(|column| column.name == name),
    };
    place.filter(|place| *place >= factor.renamed.len()).and_then(|place| i32::try_from(place + 1).ok())
}

impl Look<'_> {
    /// A column, of a relation of this alias or of any.
    fn column(&mut self, alias: Option<&str>, name: &str) {
        for (of, factors) in &self.factors {
            if alias.is_none_or(|alias| alias == of) {
                let numbers = factors.iter().filter_map(|it| Some((it.oid, number(self.schema, it, name)?)));
                self.found.columns.extend(numbers);
            }
        }
    }

    /// Every column that more than one relation has.
    fn natural(&mut self) {
        let mut names: BTreeMap<String, usize> = BTreeMap::new();
        let all = self.factors.values().flatten();
        for factor in all {
            let info = self.schema.table(factor.oid);
            let of_table = info.iter().flat_map(|info| &info.table.columns).map(|column| &column.name);
            let view = self.schema.view(factor.oid);
            let of_view = view.iter().flat_map(|view| &view.columns).map(|(name, _)| name);
            of_table.chain(of_view).for_each(|name| *names.entry(name.clone()).or_default() += 1);
        }
        let several = names.into_iter().filter(|(_, count)| *count > 1);
        several.for_each(|(name, _)| self.column(None, &name));
    }

    fn joins(&mut self, joins: &[Join]) {
        for join in joins {
            match syntax::constraint_of(join) {
                Some(JoinConstraint::Using(names)) => {
                    names.iter().filter_map(last).for_each(|name| self.column(None, &name));
                }
                Some(JoinConstraint::Natural) => self.natural(),
                Some(JoinConstraint::On(_) | JoinConstraint::None) | None => {}
            }
        }
    }

    /// The primary keys that determine what is selected of each group.
    fn keys(&mut self, select: &Select) {
        let GroupByExpr::Expressions(by, _) = &select.group_by else { return };
        let named: Vec<_> = by.iter().filter_map(|key| column_named(grouped(select, key))).collect();
        let sources = select.from.iter();
        let sources =
            sources.flat_map(|it| std::iter::once(&it.relation).chain(it.joins.iter().map(|it| &it.relation)));
        for (alias, factor) in sources.filter_map(|source| factor(self.schema, source)) {
            let Some(info) = self.schema.table(factor.oid) else { continue };
            let key = info.table.indexes.iter().find(|index| index.constraint == IndexConstraint::Primary);
            let Some(key) = key else { continue };
            let place = |(of, name): &(Option<String>, String)| {
                let own = of.as_ref().is_none_or(|of| *of == alias);
                number(self.schema, &factor, name).filter(|_| own)
            };
            let grouped: Vec<i32> = named.iter().filter_map(place).collect();
            let has = |part: &super::IndexColumn| grouped.contains(&(i32::from(part.column) + 1));
            if !grouped.is_empty() && key.columns.iter().all(has) {
                let mut selected = Selected::default();
                let _ = select.projection.visit(&mut selected);
                let _ = select.having.visit(&mut selected);
                let mut selected = selected.columns.iter().filter_map(place);
                if selected.any(|column| !grouped.contains(&column)) {
                    self.found.keys.insert(key.oid);
                }
            }
        }
    }
}

impl Visitor for Look<'_> {
    type Break = ();

    fn pre_visit_select(&mut self, select: &Select) -> ControlFlow<()> {
        select.from.iter().for_each(|from| self.joins(&from.joins));
        self.keys(select);
        ControlFlow::Continue(())
    }

    fn pre_visit_table_factor(&mut self, factor: &TableFactor) -> ControlFlow<()> {
        if let TableFactor::NestedJoin { table_with_joins, .. } = factor {
            self.joins(&table_with_joins.joins);
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_expr(&mut self, expression: &Expr) -> ControlFlow<()> {
        if let Some((alias, name)) = column_named(expression) {
            self.column(alias.as_deref(), &name);
        }
        if let Expr::Function(function) = expression {
            self.found.functions.extend(called(function));
        }
        ControlFlow::Continue(())
    }
}

/// Columns outside of the arguments of aggregates.
#[derive(Default)]
struct Selected {
    columns: Vec<(Option<String>, String)>,
    within: usize,
}

impl Visitor for Selected {
    type Break = ();

    fn pre_visit_expr(&mut self, expression: &Expr) -> ControlFlow<()> {
        self.within += usize::from(aggregates(expression));
        if self.within == 0 {
            self.columns.extend(column_named(expression));
        }
        ControlFlow::Continue(())
    }

    fn post_visit_expr(&mut self, expression: &Expr) -> ControlFlow<()> {
        self.within -= usize::from(aggregates(expression));
        ControlFlow::Continue(())
    }
}

fn aggregates(expression: &Expr) -> bool {
    match expression {
        Expr::Function(function) => {
            function.over.is_none() && last(&function.name).is_some_and(|name| is_aggregate(&name))
        }
        _ => false,
    }
}

/// A function, and how many arguments it has.
fn called(function: &Function) -> Option<(String, usize)> {
    let arguments = match &function.args {
        FunctionArguments::List(list) => list.args.len(),
        FunctionArguments::None | FunctionArguments::Subquery(_) => 0,
    };
    Some((last(&function.name)?, arguments))
}

fn last(name: &ObjectName) -> Option<String> {
    match name.0.last() {
        Some(ObjectNamePart::Identifier(last)) => Some(name_of(last)),
        _ => None,
    }
}

/// The column that an expression is, and the alias that stands before it.
fn column_named(expression: &Expr) -> Option<(Option<String>, String)> {
    match expression {
        Expr::Identifier(name) => Some((None, name_of(name))),
        Expr::CompoundIdentifier(parts) => {
            let (name, before): (&Ident, _) = parts.split_last()?;
            Some((before.last().map(name_of), name_of(name)))
        }
        Expr::Nested(inner) => column_named(inner),
        _ => None,
    }
}

/// What is grouped by, which may be the number of what is selected.
fn grouped<'s>(select: &'s Select, key: &'s Expr) -> &'s Expr {
    let number = match key {
        Expr::Value(value) => match &value.value {
            Value::Number(number, _) => number.to_string().parse::<usize>().ok(),
            _ => None,
        },
        _ => None,
    };
    let item = number.and_then(|number| select.projection.get(number.checked_sub(1)?));
    match item {
        Some(SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. }) => expr,
        _ => key,
    }
}

impl View {
    /// What its query refers to in this catalog.
    pub fn references(&self, schema: &Schema) -> References {
        let Ok(query) = syntax::query(&self.query) else { return References::default() };
        let mut factors = Factors { schema, found: BTreeMap::new() };
        let _ = query.visit(&mut factors);
        let mut look = Look { schema, factors: factors.found, found: References::default() };
        let _ = query.visit(&mut look);
        let mut found = look.found;
        for used in &self.uses {
            if !found.columns.iter().any(|(oid, _)| oid == used) {
                found.columns.insert((*used, 0));
            }
        }
        found
    }
}

/// The functions that an expression of the catalog calls.
pub fn functions_of(sql: &str) -> BTreeSet<(String, usize)> {
    let mut look = Look { schema: &Schema::default(), factors: BTreeMap::new(), found: References::default() };
    if let Ok(expression) = syntax::expression(sql) {
        let _ = expression.visit(&mut look);
    }
    look.found.functions
}

impl TableInfo {
    /// The expressions and conditions of an index of the table, as texts.
    pub fn texts_of(&self, index: usize) -> Vec<&str> {
        let index = &self.table.indexes[index];
        let computed = index.columns.iter().filter_map(|part| self.table.columns.get(usize::from(part.column)));
        let computed = computed.filter_map(|column| column.computed.as_ref()).map(|it| it.expression.as_str());
        computed.chain(index.predicate.iter().map(|it| it.condition.as_str())).collect()
    }
}
