//! WITH: queries that have names.

use std::sync::Arc;

use datafusion_common::{Column as PlanColumn, TableReference};
use datafusion_expr::{Expr, LogicalPlan, LogicalPlanBuilder, Projection};
use freshet_sql::{SqlError, SqlState, Type, general::Origin};
use sqlparser::ast::{Cte, CteAsMaterialized, SetExpr, SetOperator, SetQuantifier, With};

use super::{
    Binder, MAX_HEIGHT, MAX_INLINED,
    from::Source,
    locking::Clauses,
    name,
    query::{Item, Rows, column_names},
    typed::Typed,
};
use crate::{
    error::{to_sql, unsupported},
    function::Outer,
    layout::field,
    node::{self, Recursive},
    source::{SharedSource, WorkSource},
};

/// A column of a query that has a name: what it is called, its type, and where it comes from.
type WithColumn = (String, Type, Option<Origin>);

/// A query that has a name.
#[derive(Clone)]
pub(super) struct Named {
    name: String,
    columns: Vec<WithColumn>,
    kind: NamedKind,
}

#[derive(Clone)]
enum NamedKind {
    /// Its rows are computed once, or its plan is put in each place, as is decided when all places
    /// are known. It lies so deep.
    Shared(Arc<SharedSource>, usize),
    /// The rows of the step before, within a recursive query.
    Work(usize),
    /// A recursive query's first part, in which it cannot be named.
    Forbidden,
    /// A query that cannot be recursive.
    Formless,
}

/// A recursive query whose second part is being bound.
pub(super) struct Recursion {
    number: usize,
    /// How often it is named.
    references: usize,
    /// How many places there were around it in which such queries cannot be named.
    places: usize,
}

impl Binder<'_> {
    pub(super) fn with(&mut self, with: &With) -> Result<(), SqlError> {
        for (at, cte) in with.cte_tables.iter().enumerate() {
            let name = name::fold(&cte.alias.name);
            let earlier = &with.cte_tables[..at];
            if earlier.iter().any(|earlier| name::fold(&earlier.alias.name) == name) {
                return Err(SqlError::new(
                    SqlState::DUPLICATE_ALIAS,
                    format!("WITH query name \"{name}\" specified more than once"),
                ));
            }
            if cte.from.is_some() {
                return Err(unsupported("FROM behind a WITH query"));
            }
            let mut locking = false;
            let around = std::mem::take(&mut self.height);
            let rows = match recursive_parts(with, cte, &name) {
                Some((base, step, all)) => self.recursive(&name, cte, base, step, all)?,
                None => {
                    let named = with.recursive;
                    if named {
                        let kind = NamedKind::Formless;
                        self.ctes.push(Named { name: name.clone(), columns: Vec::new(), kind });
                    }
                    let locks = self.locks;
                    self.shared_depth += 1;
                    let rows = self.query(&cte.query);
                    self.shared_depth -= 1;
                    locking = self.locks > locks;
                    if named {
                        self.ctes.pop();
                    }
                    rows?
                }
            };
            self.define(name, rows, cte, locking)?;
            self.height = around;
        }
        Ok(())
    }

    fn define(&mut self, name: String, rows: Rows, cte: &Cte, locking: bool) -> Result<(), SqlError> {
        let renamed = column_names(&cte.alias.columns);
        check_columns(&name, &rows.items, &renamed)?;
        let columns: Vec<WithColumn> = rows
            .items
            .iter()
            .enumerate()
            .map(|(at, item)| (renamed.get(at).unwrap_or(&item.name).clone(), item.typed.ty, item.typed.origin))
            .collect();
        // What locks rows is never run in several places.
        let mut materialized = cte.materialized.filter(|it| !locking || *it == CteAsMaterialized::Materialized);
        self.height += 1;
        if self.height.is_multiple_of(MAX_INLINED) {
            // No plan gets deeper than a thread's stack can bear.
            materialized = Some(CteAsMaterialized::Materialized);
        }
        let source = self.shared_source(rows, materialized)?;
        self.ctes.push(Named { name, columns, kind: NamedKind::Shared(source, self.height) });
        Ok(())
    }

    fn shared_source(
        &mut self,
        rows: Rows,
        materialized: Option<CteAsMaterialized>,
    ) -> Result<Arc<SharedSource>, SqlError> {
        let number = self.next_shared();
        let fields = rows
            .items
            .iter()
            .enumerate()
            .map(|(at, item)| field(&format!("{}#{at}", item.name), item.typed.ty))
            .collect();
        let exprs = rows.items.into_iter().map(|item| item.typed.expr).collect();
        let projection = Projection::try_new(exprs, Arc::new(rows.plan)).map_err(to_sql)?;
        let plan = LogicalPlan::Projection(projection);
        // Within a subquery that depends on its row, nothing lasts longer than that row.
        let fixed = match materialized {
            Some(CteAsMaterialized::Materialized) => Some(true),
            // What is volatile is run once, whatever is said.
            Some(CteAsMaterialized::NotMaterialized) if !node::is_volatile(&plan) => Some(false),
            _ => None,
        };
        let source = SharedSource::new(number, plan, fields, fixed);
        Ok(Arc::new(source))
    }

    /// What a name means that WITH has defined.
    pub(super) fn cte(&mut self, name: &str, visible: &str, renamed: &[String]) -> Result<Option<Source>, SqlError> {
        let Some(found) = self.ctes.iter().rev().find(|cte| cte.name == name).cloned() else { return Ok(None) };
        let columns = found.columns.clone();
        let plan = match &found.kind {
            NamedKind::Shared(source, height) => {
                if *height >= MAX_HEIGHT {
                    let message = "too many queries of WITH are made of each other";
                    return Err(SqlError::new(SqlState::STATEMENT_TOO_COMPLEX, message));
                }
                self.height = self.height.max(*height);
                self.capture_of(source)?;
                let reference = TableReference::bare(self.fresh(name));
                LogicalPlanBuilder::scan(reference, Arc::clone(source) as Arc<_>, None)
            }
            NamedKind::Work(number) => {
                self.referred(*number, name)?;
                let reference = TableReference::bare(self.fresh(name));
                let fields =
                    found.columns.iter().enumerate().map(|(at, (name, ty, _))| field(&format!("{name}#{at}"), *ty));
                LogicalPlanBuilder::scan(reference, Arc::new(WorkSource::new(*number, name, fields.collect())), None)
            }
            NamedKind::Forbidden => {
                return Err(SqlError::new(
                    SqlState::INVALID_RECURSION,
                    format!("recursive reference to query \"{name}\" must not appear within its non-recursive term"),
                ));
            }
            NamedKind::Formless => {
                return Err(SqlError::new(
                    SqlState::INVALID_RECURSION,
                    format!(
                        "recursive query \"{name}\" does not have the form non-recursive-term UNION [ALL] recursive-term"
                    ),
                ));
            }
        };
        let plan = plan.and_then(LogicalPlanBuilder::build).map_err(to_sql)?;
        let items = columns_of(&plan)
            .zip(columns)
            .map(|(column, (name, ty, origin))| Item { name, typed: Typed::new(Expr::Column(column), ty).from(origin) })
            .collect();
        self.aliased_rows(Rows::new(plan, items), visible, renamed).map(Some)
    }

    /// What a query of WITH takes from outside of a subquery, all subqueries within that one take
    /// that read the query: they have other rows when it is another one.
    fn capture_of(&mut self, source: &SharedSource) -> Result<(), SqlError> {
        for outer in &source.depends()?.outers {
            let mut typed = Typed::new(Outer::expression(outer.subquery, outer.at, outer.ty), outer.ty);
            let within = self.levels.iter_mut().skip_while(|level| level.subquery != Some(outer.subquery)).skip(1);
            for level in within {
                if let Some(subquery) = level.subquery {
                    typed = level.capture(subquery, typed);
                }
            }
        }
        Ok(())
    }

    /// A query that refers to itself: the first part's rows, then those that follow from the last
    /// ones, until there are none.
    fn recursive(
        &mut self,
        name: &str,
        cte: &Cte,
        base: &SetExpr,
        step: &SetExpr,
        all: bool,
    ) -> Result<Rows, SqlError> {
        let query = &cte.query;
        if query.order_by.is_some() || query.limit_clause.is_some() || query.fetch.is_some() || !query.locks.is_empty()
        {
            return Err(SqlError::new(
                SqlState::FEATURE_NOT_SUPPORTED,
                "ORDER BY, LIMIT, OFFSET and FOR UPDATE in a recursive query are not implemented",
            ));
        }
        let known = self.ctes.len();
        if let Some(with) = &query.with {
            self.with(with)?;
        }
        self.ctes.push(Named { name: name.to_owned(), columns: Vec::new(), kind: NamedKind::Forbidden });
        let base = self.set_expr(base, &Clauses::default()).and_then(|rows| self.projected(rows));
        self.ctes.pop();
        let base = base?;
        let renamed = column_names(&cte.alias.columns);
        check_columns(name, &base.items, &renamed)?;
        let columns: Vec<WithColumn> = base
            .items
            .iter()
            .enumerate()
            .map(|(at, item)| (renamed.get(at).unwrap_or(&item.name).clone(), item.typed.ty, None))
            .collect();
        let number = self.next_shared();
        self.ctes.push(Named { name: name.to_owned(), columns: columns.clone(), kind: NamedKind::Work(number) });
        self.recursions.push(Recursion { number, references: 0, places: self.places.len() });
        let step = self.set_expr(step, &Clauses::default());
        let references = self.recursions.pop().map_or(0, |recursion| recursion.references);
        self.ctes.truncate(known);
        let step = step?;
        if references == 0 {
            // Only something else goes by its name.
            return self.plain_union(base, step, all);
        }
        if step.items.len() != base.items.len() {
            return Err(SqlError::new(SqlState::SYNTAX_ERROR, "each UNION query must have the same number of columns"));
        }
        let types: Vec<Type> = base.items.iter().map(|item| item.typed.ty).collect();
        for (at, (item, (name, ty, _))) in step.items.iter().zip(&columns).enumerate() {
            let common = self.common_type(&[*ty, item.typed.ty], "UNION")?;
            if common != *ty {
                return Err(SqlError::new(
                    SqlState::DATATYPE_MISMATCH,
                    format!(
                        "recursive query \"{name}\" column {} has type {ty} in non-recursive term but type {common} overall",
                        at + 1
                    ),
                )
                .with_hint("Cast the output of the non-recursive term to the correct type."));
            }
        }
        let step = self.projected_as(step, &types)?;
        let keys = if all {
            None
        } else {
            let mut keys = Vec::with_capacity(base.items.len());
            for item in &base.items {
                keys.push(item.typed.ty);
            }
            Some(keys)
        };
        let names: Vec<String> = columns.iter().map(|(name, ..)| self.fresh(name)).collect();
        let plan = Recursive::plan(base.plan, step.plan, number, name, &names, &types, keys)?;
        let items = columns
            .into_iter()
            .zip(names)
            .map(|((name, ty, _), column)| Item {
                name,
                typed: Typed::new(Expr::Column(PlanColumn::new_unqualified(column)), ty),
            })
            .collect();
        Ok(Rows::new(plan, items))
    }

    /// Notes that a recursive query is named in its second part.
    ///
    /// # Errors
    /// 42P19 when it is for the second time, or where it must not be.
    fn referred(&mut self, number: usize, name: &str) -> Result<(), SqlError> {
        let invalid = |place: &str| {
            let message = format!("recursive reference to query \"{name}\" must not appear {place}");
            Err(SqlError::new(SqlState::INVALID_RECURSION, message))
        };
        self.level().recursive = true;
        let places = self.places.len();
        let innermost = self.places.last().copied();
        let Some(recursion) = self.recursions.iter_mut().find(|known| known.number == number) else { return Ok(()) };
        recursion.references += 1;
        match innermost.filter(|_| places > recursion.places) {
            Some(place) => invalid(place),
            None if recursion.references > 1 => invalid("more than once"),
            None => Ok(()),
        }
    }

    /// A plan whose rows are computed once for all places where it stands, and what its columns
    /// become there.
    pub(super) fn share<'e>(
        &mut self,
        plan: LogicalPlan,
        used: impl Iterator<Item = &'e Expr>,
    ) -> Result<(LogicalPlan, Vec<(PlanColumn, Expr)>), SqlError> {
        let mut columns: Vec<PlanColumn> = Vec::new();
        for expr in used {
            for column in expr.column_refs() {
                if !columns.contains(column) {
                    columns.push(column.clone());
                }
            }
        }
        let schema = Arc::clone(plan.schema());
        let mut fields = Vec::with_capacity(columns.len().max(1));
        for (at, column) in columns.iter().enumerate() {
            let (_, found) = schema.qualified_field_from_column(column).map_err(to_sql)?;
            fields.push(Arc::new(found.as_ref().clone().with_name(format!("{}#{at}", column.name))));
        }
        let mut exprs: Vec<Expr> = columns.iter().cloned().map(Expr::Column).collect();
        if exprs.is_empty() {
            // Rows have to have something to be counted by.
            exprs.push(Typed::literal(&freshet_sql::Value::Bool(true), Type::BOOL)?.expr);
            fields.push(field("row", Type::BOOL));
        }
        let projection = Projection::try_new(exprs, Arc::new(plan)).map_err(to_sql)?;
        let number = self.next_shared();
        let source = SharedSource::new(number, LogicalPlan::Projection(projection), fields, Some(true));
        let reference = TableReference::bare(self.fresh("shared"));
        let scan = LogicalPlanBuilder::scan(reference, Arc::new(source), None)
            .and_then(LogicalPlanBuilder::build)
            .map_err(to_sql)?;
        let renamed = columns.into_iter().zip(columns_of(&scan).map(Expr::Column)).collect();
        Ok((scan, renamed))
    }
}

/// The columns of a plan.
fn columns_of(plan: &LogicalPlan) -> impl Iterator<Item = PlanColumn> + use<> {
    plan.schema().columns().into_iter()
}

fn check_columns(name: &str, items: &[Item], renamed: &[String]) -> Result<(), SqlError> {
    if renamed.len() > items.len() {
        return Err(SqlError::new(
            SqlState::INVALID_COLUMN_REFERENCE,
            format!(
                "WITH query \"{name}\" has {} columns available but {} columns specified",
                items.len(),
                renamed.len()
            ),
        ));
    }
    Ok(())
}

/// The parts of a query that refers to itself, and whether all rows are kept.
fn recursive_parts<'c>(with: &With, cte: &'c Cte, name: &str) -> Option<(&'c SetExpr, &'c SetExpr, bool)> {
    if !with.recursive || !mentions(&cte.query.to_string(), name) {
        return None;
    }
    match cte.query.body.as_ref() {
        SetExpr::SetOperation { left, op: SetOperator::Union, set_quantifier, right } => {
            Some((left, right, *set_quantifier == SetQuantifier::All))
        }
        _ => None,
    }
}

/// Whether a name occurs in a statement's text as a word.
fn mentions(text: &str, name: &str) -> bool {
    let text = text.to_ascii_lowercase();
    let name = name.to_ascii_lowercase();
    let of_word = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'$' || !byte.is_ascii();
    text.match_indices(&name).any(|(at, _)| {
        let bytes = text.as_bytes();
        let before = at.checked_sub(1).map(|before| bytes[before]);
        let after = bytes.get(at + name.len()).copied();
        !before.is_some_and(of_word) && !after.is_some_and(of_word)
    })
}
