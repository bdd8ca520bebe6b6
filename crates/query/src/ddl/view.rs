//! Views.
//!
//! A view is kept as SQL, so its query is made to mean the same whatever comes later: relations are
//! named with their schemas and have aliases, and `*` is written out as the columns that there are.

use std::ops::ControlFlow;

use freshet_sql::{SqlError, SqlState, Type, types::Kind};
use sqlparser::ast::{
    Expr, FunctionArg, FunctionArgExpr, FunctionArguments, GroupByExpr, Ident, JoinConstraint, ObjectName,
    ObjectNamePart, Query, Select, SelectItem, SelectItemQualifiedWildcardKind, SetExpr, TableAlias, TableFactor,
    Value, VisitMut, VisitorMut,
};

use super::{
    expression::{is_regclass, literal, parse_name, quoted},
    syntax::{CreateView, Name, StorageOption},
    work::{Step, Work, error, is_system},
};
use crate::{
    bind::{name_of, not_supported, parts_of, qualified},
    schema::{Entry, Named, Object, Oid, View},
    session::settings::truth,
    syntax,
};

/// A schema's name, and a name in it.
type Qualified = (String, String);

fn ident(name: &str) -> Ident {
    Ident::with_quote('"', name)
}

/// Names relations with their schemas, gives them aliases, and writes out `*`.
struct Settle<'w, 'd, 'a, 'x> {
    work: &'w Work<'d, 'a, 'x>,
    /// Names of WITH queries, of the queries that are being visited.
    with: Vec<Vec<String>>,
    uses: Vec<Oid>,
}

impl Settle<'_, '_, '_, '_> {
    fn is_with(&self, name: &ObjectName) -> bool {
        match name.0.as_slice() {
            [ObjectNamePart::Identifier(only)] => {
                let only = name_of(only);
                self.with.iter().flatten().any(|known| *known == only)
            }
            _ => false,
        }
    }

    /// The columns of a relation in FROM, if it is one of the catalog.
    fn columns(&self, name: &ObjectName) -> Result<Option<Vec<String>>, SqlError> {
        if self.is_with(name) {
            return Ok(None);
        }
        self.work.schema().check_database(&parts_of(name)?)?;
        let (schema, name) = qualified(name)?;
        Ok(match self.work.find(&Name { database: None, schema, name })? {
            Some(Named::Table(oid)) => {
                let info = self.work.table_by_oid(oid)?;
                Some(info.table.visible_columns().map(|(_, column)| column.name.clone()).collect())
            }
            Some(Named::View(oid)) => {
                let view = self.work.view_by_oid(oid)?;
                Some(view.columns.iter().map(|(name, _)| name.clone()).collect())
            }
            _ => None,
        })
    }

    /// What `*` of one relation in FROM is. Nothing if that cannot be said.
    fn written_out(&self, factor: &TableFactor) -> Result<Option<Vec<SelectItem>>, SqlError> {
        let (alias, columns) = match factor {
            TableFactor::Table { name, alias, args: None, .. } => {
                let alias = match alias {
                    Some(alias) if !alias.columns.is_empty() => return Ok(None),
                    Some(alias) => alias.name.clone(),
                    None => match name.0.last() {
                        Some(ObjectNamePart::Identifier(last)) => last.clone(),
                        _ => return Ok(None),
                    },
                };
                (alias, self.columns(name)?)
            }
            TableFactor::Derived { alias: Some(alias), .. } => (alias.name.clone(), None),
            _ => return Ok(None),
        };
        Ok(Some(match columns {
            Some(columns) => columns
                .iter()
                .map(|column| SelectItem::UnnamedExpr(Expr::CompoundIdentifier(vec![alias.clone(), ident(column)])))
                .collect(),
            // What it selects is written out itself.
            None => vec![SelectItem::QualifiedWildcard(
                SelectItemQualifiedWildcardKind::ObjectName(ObjectName(vec![ObjectNamePart::Identifier(alias)])),
                Default::default(),
            )],
        }))
    }

    fn write_out(&self, select: &mut Select) -> Result<(), SqlError> {
        let mut items = Vec::with_capacity(select.projection.len());
        let merges = select.from.iter().flat_map(|from| &from.joins).any(|join| {
            matches!(syntax::constraint_of(join), Some(JoinConstraint::Using(_) | JoinConstraint::Natural))
        });
        let factors: Vec<&TableFactor> = select
            .from
            .iter()
            .flat_map(|from| std::iter::once(&from.relation).chain(from.joins.iter().map(|join| &join.relation)))
            .collect();
        for item in &select.projection {
            let written = match item {
                SelectItem::Wildcard(_) if merges => {
                    return Err(not_supported("SELECT * over JOIN ... USING or NATURAL JOIN in a view"));
                }
                SelectItem::Wildcard(_) => {
                    let mut all = Some(Vec::new());
                    for factor in &factors {
                        match (self.written_out(factor)?, &mut all) {
                            (Some(more), Some(all)) => all.extend(more),
                            _ => all = None,
                        }
                    }
                    all
                }
                SelectItem::QualifiedWildcard(SelectItemQualifiedWildcardKind::ObjectName(name), _) => {
                    let wanted = match name.0.last() {
                        Some(ObjectNamePart::Identifier(last)) => name_of(last),
                        _ => String::new(),
                    };
                    let factor = factors.iter().find(|factor| alias_of(factor).is_some_and(|alias| alias == wanted));
                    match factor {
                        Some(factor) => self.written_out(factor)?,
                        None => None,
                    }
                }
                _ => None,
            };
            match written {
                Some(written) => items.extend(written),
                None => items.push(item.clone()),
            }
        }
        select.projection = items;
        Ok(())
    }

    fn settle_factor(&mut self, factor: &mut TableFactor) -> Result<(), SqlError> {
        let TableFactor::Table { name, alias, args: None, .. } = factor else { return Ok(()) };
        if self.is_with(name) {
            return Ok(());
        }
        self.work.schema().check_database(&parts_of(name)?)?;
        let (schema, last) = qualified(name)?;
        if schema.as_deref().is_some_and(is_system) {
            return Ok(());
        }
        let Some(namespace) = self.used(&Name { database: None, schema, name: last.clone() })? else { return Ok(()) };
        let schema = self.work.schema().namespace_name(namespace);
        *name = ObjectName(vec![ObjectNamePart::Identifier(ident(schema)), ObjectNamePart::Identifier(ident(&last))]);
        if alias.is_none() {
            *alias = Some(TableAlias { explicit: true, name: ident(&last), columns: Vec::new(), at: None });
        }
        Ok(())
    }
}

impl Settle<'_, '_, '_, '_> {
    /// Notes that a relation is used. Returns its schema; none of a relation of the system.
    fn used(&mut self, name: &Name) -> Result<Option<Oid>, SqlError> {
        let (oid, namespace) = match self.work.find(name)? {
            Some(Named::Table(oid)) => (oid, self.work.table_by_oid(oid)?.table.namespace),
            Some(Named::View(oid)) => (oid, self.work.view_by_oid(oid)?.namespace),
            Some(Named::Sequence(oid)) => (oid, self.work.sequence_by_oid(oid)?.namespace),
            _ => return Ok(None),
        };
        if !self.uses.contains(&oid) {
            self.uses.push(oid);
        }
        Ok(Some(namespace))
    }

    /// A relation that is named by a text in an expression, and is meant whatever the search path
    /// is later.
    fn settle_object(&mut self, named: &mut Expr) -> Result<(), SqlError> {
        let text = literal(named).unwrap_or_default();
        // An id is what it is.
        if text.trim().parse::<Oid>().is_ok() {
            return Ok(());
        }
        let name = parse_name(text)?;
        let Some(namespace) = self.used(&name)? else { return Ok(()) };
        *named = object_name(&(self.work.schema().namespace_name(namespace).to_owned(), name.name));
        Ok(())
    }
}

/// The name by which a relation in FROM is referred to.
fn alias_of(factor: &TableFactor) -> Option<String> {
    match factor {
        TableFactor::Table { alias: Some(alias), .. } | TableFactor::Derived { alias: Some(alias), .. } => {
            Some(name_of(&alias.name))
        }
        TableFactor::Table { name, .. } => match name.0.last() {
            Some(ObjectNamePart::Identifier(last)) => Some(name_of(last)),
            _ => None,
        },
        _ => None,
    }
}

fn flow(result: Result<(), SqlError>) -> ControlFlow<SqlError> {
    match result {
        Ok(()) => ControlFlow::Continue(()),
        Err(error) => ControlFlow::Break(error),
    }
}

impl VisitorMut for Settle<'_, '_, '_, '_> {
    type Break = SqlError;

    fn pre_visit_query(&mut self, query: &mut Query) -> ControlFlow<SqlError> {
        let names = query.with.iter().flat_map(|with| &with.cte_tables).map(|cte| name_of(&cte.alias.name));
        self.with.push(names.collect());
        if let SetExpr::Table(table) = &*query.body {
            // TABLE t is SELECT * FROM t.
            let name = table.table_name.clone().map(|name| match &table.schema_name {
                Some(schema) => format!("\"{schema}\".\"{name}\""),
                None => format!("\"{name}\""),
            });
            let sql = format!("SELECT * FROM {}", name.unwrap_or_default());
            if let Ok(parsed) = syntax::query(&sql) {
                query.body = parsed.body;
            }
        }
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, _: &mut Query) -> ControlFlow<SqlError> {
        self.with.pop();
        ControlFlow::Continue(())
    }

    fn pre_visit_select(&mut self, select: &mut Select) -> ControlFlow<SqlError> {
        flow(self.write_out(select))
    }

    fn pre_visit_table_factor(&mut self, factor: &mut TableFactor) -> ControlFlow<SqlError> {
        flow(self.settle_factor(factor))
    }

    fn post_visit_expr(&mut self, expression: &mut Expr) -> ControlFlow<SqlError> {
        if let Expr::CompoundIdentifier(parts) = expression
            && parts.len() > 2
        {
            // The relation has its alias now, without a schema.
            parts.drain(..parts.len() - 2);
        }
        flow(objects_named(expression).into_iter().try_for_each(|name| self.settle_object(name)))
    }
}

/// The texts in an expression that name relations.
fn objects_named(expression: &mut Expr) -> Option<&mut Expr> {
    match expression {
        Expr::Cast { expr, data_type, .. } if is_regclass(data_type) && literal(expr).is_some() => Some(expr),
        Expr::Function(function) => {
            let name = parts_of(&function.name).ok()?.pop()?;
            let FunctionArguments::List(list) = &mut function.args else { return None };
            match list.args.first_mut() {
                Some(FunctionArg::Unnamed(FunctionArgExpr::Expr(named)))
                    if matches!(name.as_str(), "nextval" | "currval" | "setval") && literal(named).is_some() =>
                {
                    Some(named)
                }
                _ => None,
            }
        }
        _ => None,
    }
}

/// A relation's name as a text within an expression.
fn object_name((schema, name): &Qualified) -> Expr {
    let quoted = format!("{}.{}", quoted(schema), quoted(name));
    Expr::Value(Value::SingleQuotedString(quoted).into())
}

/// A view's query as it is kept.
///
/// # Errors
/// 54001 when it is nested too deep to be read again, 0A000 when it could not be read for another
/// reason.
fn kept(query: &Query) -> Result<String, SqlError> {
    let sql = query.to_string();
    match syntax::query(&sql) {
        Ok(_) => Ok(sql),
        Err(cause) if cause.state == SqlState::STATEMENT_TOO_COMPLEX => Err(cause),
        Err(_) => Err(error(SqlState::FEATURE_NOT_SUPPORTED, format!("this query cannot be kept: {sql}"))),
    }
}

/// Makes a query select columns of these names.
fn name_columns(query: &mut Query, columns: &[(String, Type)]) {
    let sorts = query.order_by.is_some();
    if let SetExpr::Select(select) = &mut *query.body
        && !sorts
        && select.distinct.is_none()
        && matches!(&select.group_by, GroupByExpr::Expressions(by, _) if by.is_empty())
        && select.projection.len() == columns.len()
        && select
            .projection
            .iter()
            .all(|it| matches!(it, SelectItem::UnnamedExpr(_) | SelectItem::ExprWithAlias { .. }))
    {
        for (item, (name, _)) in select.projection.iter_mut().zip(columns) {
            if let SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. } = item {
                *item = SelectItem::ExprWithAlias { expr: expr.clone(), alias: ident(name) };
            }
        }
        return;
    }
    // What is sorted or grouped by keeps the names that it knows.
    let names: Vec<String> = columns.iter().map(|(name, _)| ident(name).to_string()).collect();
    let all: Vec<String> = names.iter().map(|name| format!("named.{name}")).collect();
    let sql = format!("SELECT {} FROM ({query}) AS named({})", all.join(", "), names.join(", "));
    if let Ok(named) = syntax::query(&sql) {
        *query = *named;
    }
}

/// Reads a view's query.
fn parse(sql: &str) -> Result<Box<Query>, SqlError> {
    syntax::query(sql).map_err(|cause| syntax::unreadable(sql, cause))
}

/// Gives relations in a view's query other names.
struct Rename<'r> {
    /// Schema and name before, and after.
    names: &'r [(Qualified, Qualified)],
}
impl VisitorMut for Rename<'_> {
    type Break = ();

    fn pre_visit_table_factor(&mut self, factor: &mut TableFactor) -> ControlFlow<()> {
        if let TableFactor::Table { name, .. } = factor
            && let [ObjectNamePart::Identifier(schema), ObjectNamePart::Identifier(last)] = name.0.as_slice()
        {
            let known = (name_of(schema), name_of(last));
            if let Some((_, (schema, last))) = self.names.iter().find(|(before, _)| *before == known) {
                let parts = [ident(schema), ident(last)];
                name.0 = parts.into_iter().map(ObjectNamePart::Identifier).collect();
            }
        }
        ControlFlow::Continue(())
    }

    fn post_visit_expr(&mut self, expression: &mut Expr) -> ControlFlow<()> {
        if let Some(named) = objects_named(expression)
            && let Ok(Name { schema: Some(schema), name, .. }) = parse_name(literal(named).unwrap_or_default())
            && let known = (schema, name)
            && let Some((_, after)) = self.names.iter().find(|(before, _)| *before == known)
        {
            *named = object_name(after);
        }
        ControlFlow::Continue(())
    }
}

impl Work<'_, '_, '_> {
    pub(super) fn create_view(&mut self, statement: &CreateView) -> Step<&'static str> {
        if statement.temporary {
            return Err(not_supported("a temporary view").into());
        }
        if let Some(what) = statement.unsupported {
            return Err(not_supported(what).into());
        }
        let namespace = self.place_for(&statement.name)?;
        let name = &statement.name.name;
        let there = match self.schema().named(namespace, name) {
            None => None,
            Some(Named::View(oid)) if statement.or_replace => Some(self.view_by_oid(oid)?),
            Some(_) if statement.or_replace => {
                return Err(error(SqlState::WRONG_OBJECT_TYPE, format!("\"{name}\" is not a view")).into());
            }
            Some(_) => {
                return Err(error(SqlState::DUPLICATE_TABLE, format!("relation \"{name}\" already exists")).into());
            }
        };
        let mut query = statement.query.clone();
        let mut settle = Settle { work: self, with: Vec::new(), uses: Vec::new() };
        if let ControlFlow::Break(error) = query.visit(&mut settle) {
            return Err(error.into());
        }
        let uses = settle.uses;
        let found = self.columns_of(&query)?;
        if statement.columns.len() > found.len() {
            return Err(error(SqlState::SYNTAX_ERROR, "CREATE VIEW specifies more column names than columns").into());
        }
        let mut columns: Vec<(String, Type)> = Vec::with_capacity(found.len());
        for (number, (name, ty)) in found.into_iter().enumerate() {
            let name = statement.columns.get(number).cloned().unwrap_or(name);
            if columns.iter().any(|(other, _)| *other == name) {
                let message = format!("column \"{name}\" specified more than once");
                return Err(error(SqlState::DUPLICATE_COLUMN, message).into());
            }
            columns.push((name, if ty.kind() == Kind::Unknown { Type::TEXT } else { ty }));
        }
        if !statement.columns.is_empty() {
            name_columns(&mut query, &columns);
        }
        let mut view = match there {
            None => View {
                oid: self.change.take_oid()?,
                namespace,
                name: name.clone(),
                owner: self.ddl.role,
                columns,
                query: kept(&query)?,
                uses,
                security_invoker: false,
                grants: Vec::new(),
            },
            Some(old) => {
                self.check_owner(old.owner, "view", name)?;
                check_replacement(&old, &columns)?;
                if self.reaches(&uses, old.oid) {
                    let message = format!("infinite recursion detected in rules for relation \"{name}\"");
                    return Err(error(SqlState::INVALID_OBJECT_DEFINITION, message).into());
                }
                View { columns, query: kept(&query)?, uses, security_invoker: false, ..(*old).clone() }
            }
        };
        set_options(&mut view, true, &statement.options)?;
        // What was written must be read again when the view is used.
        parse(&view.query)?;
        self.put(Object::View(view))?;
        Ok("CREATE VIEW")
    }

    /// Whether these relations are, or refer to, another one.
    fn reaches(&self, uses: &[Oid], goal: Oid) -> bool {
        let mut open = uses.to_vec();
        let mut seen = Vec::new();
        while let Some(next) = open.pop() {
            if next == goal {
                return true;
            }
            if !seen.contains(&next) {
                seen.push(next);
                open.extend(self.schema().view(next).iter().flat_map(|view| &view.uses));
            }
        }
        false
    }

    /// Gives relations another name in the views that refer to them.
    pub(super) fn rename_in_views(
        &mut self,
        is_renamed: impl Fn(Oid, Oid) -> bool,
        name: Option<&str>,
        schema: Option<(&str, &str)>,
    ) -> Result<(), SqlError> {
        let mut names = Vec::new();
        let mut renamed = Vec::new();
        for entry in self.relations() {
            let (oid, namespace, own) = match &entry {
                Entry::Table(info) => (info.table.oid, info.table.namespace, &info.table.name),
                Entry::View(view) => (view.oid, view.namespace, &view.name),
                Entry::Sequence(sequence) => (sequence.oid, sequence.namespace, &sequence.name),
                _ => continue,
            };
            if is_renamed(namespace, oid) {
                let in_schema = self.schema().namespace_name(namespace).to_owned();
                // The catalog has the new names already.
                let before =
                    (schema.map_or(in_schema.clone(), |(old, _)| old.to_owned()), name.unwrap_or(own).to_owned());
                names.push((before, (in_schema, own.clone())));
                renamed.push(oid);
            }
        }
        let views: Vec<View> = self
            .relations()
            .into_iter()
            .filter_map(|entry| match entry {
                Entry::View(view) if view.uses.iter().any(|used| renamed.contains(used)) => Some((*view).clone()),
                _ => None,
            })
            .collect();
        for mut view in views {
            let mut query = parse(&view.query)?;
            let _ = query.visit(&mut Rename { names: &names });
            view.query = query.to_string();
            self.put(Object::View(view))?;
        }
        Ok(())
    }
}

/// Sets options of a view, or resets them to their defaults.
///
/// # Errors
/// 22023 for an unknown option or a wrong value, 0A000 for options that are not offered.
pub(super) fn set_options(view: &mut View, set: bool, options: &[StorageOption]) -> Result<(), SqlError> {
    for (name, value) in options {
        let value = if set { value.as_deref().unwrap_or("true") } else { "false" };
        match name.as_str() {
            "security_invoker" | "security_barrier" => {
                let on = truth(value).ok_or_else(|| {
                    let message = format!("invalid value for boolean option \"{name}\": {value}");
                    error(SqlState::INVALID_PARAMETER_VALUE, message)
                })?;
                if name == "security_invoker" {
                    view.security_invoker = on;
                } else if on {
                    return Err(not_supported("the option security_barrier of a view"));
                }
            }
            "check_option" if set => return Err(not_supported("WITH CHECK OPTION")),
            "check_option" => {}
            name => {
                let message = format!("unrecognized parameter \"{name}\"");
                return Err(error(SqlState::INVALID_PARAMETER_VALUE, message));
            }
        }
    }
    Ok(())
}

/// Whether a view's columns may be replaced by these: they begin with the ones that were there.
fn check_replacement(old: &View, columns: &[(String, Type)]) -> Result<(), SqlError> {
    if columns.len() < old.columns.len() {
        return Err(error(SqlState::INVALID_TABLE_DEFINITION, "cannot drop columns from view"));
    }
    for ((old, was), (new, is)) in old.columns.iter().zip(columns) {
        if old != new {
            let message = format!("cannot change name of view column \"{old}\" to \"{new}\"");
            let hint = "Use ALTER VIEW ... RENAME COLUMN ... to change name of view column instead.";
            return Err(error(SqlState::INVALID_TABLE_DEFINITION, message).with_hint(hint));
        }
        if was != is {
            let message = format!("cannot change data type of view column \"{old}\" from {was} to {is}");
            return Err(error(SqlState::INVALID_TABLE_DEFINITION, message));
        }
    }
    Ok(())
}
