//! Queries within expressions.
//!
//! In general such a query is a function of the row around it, which runs it (see
//! [`crate::subquery`]). Where it only decides whether a row stays, it becomes a join.

use std::sync::Arc;

use datafusion_common::{
    DataFusionError, JoinConstraint, NullEquality,
    tree_node::{Transformed, TreeNode, TreeNodeRecursion},
};
use datafusion_expr::{
    Expr, Filter, Join, JoinType, LogicalPlan, Operator,
    expr::BinaryExpr,
    utils::{conjunction, split_conjunction_owned},
};
use freshet_sql::{Kind, SqlError, SqlState, Type, functions::resolve};
use sqlparser::ast;

use super::{
    Binder, check_reach,
    expression::row,
    locking::Clauses,
    operator::not,
    query::{Item, Rows},
    scope::Level,
    typed::Typed,
};
use crate::{
    error::to_sql,
    function::{Outer, called},
    node::{Apply, is_volatile},
    source::{SharedSource, WorkSource},
    subquery::{Answer, Depends, Runs, SubqueryFunction},
};

/// A join that keeps the rows for which a subquery says so.
pub(super) struct SemiJoin {
    right: LogicalPlan,
    on: Vec<(Expr, Expr)>,
    filter: Option<Expr>,
    anti: bool,
    null_aware: bool,
}

impl SemiJoin {
    /// The plan whose rows are kept or not.
    pub fn onto(self, left: LogicalPlan) -> Result<LogicalPlan, SqlError> {
        check_reach(&[&left, &self.right])?;
        let join_type = if self.anti { JoinType::LeftAnti } else { JoinType::LeftSemi };
        Join::try_new(
            Arc::new(left),
            Arc::new(self.right),
            self.on,
            self.filter,
            join_type,
            JoinConstraint::On,
            NullEquality::NullEqualsNothing,
            self.null_aware,
        )
        .map(LogicalPlan::Join)
        .map_err(to_sql)
    }
}

/// One of the conditions of WHERE.
pub(super) enum Conjunct {
    /// A subquery that is joined.
    Join(SemiJoin),
    /// A subquery that cannot be joined.
    Expression(Typed),
    /// No subquery: it has not been bound.
    Other,
}

/// A subquery that was bound, with what it takes from outside.
struct Inner {
    number: usize,
    rows: Rows,
    captures: Vec<Typed>,
}

impl Inner {
    fn runs(&self) -> Runs {
        if !is_volatile(&self.rows.plan) && !self.rows.items.iter().any(|item| item.typed.expr.is_volatile()) {
            return Runs::ForNewValues;
        }
        let around = self.captures.iter().map(|typed| called::<Outer>(&typed.expr)).collect::<Option<Vec<_>>>();
        match around.as_deref() {
            Some([]) => Runs::Once,
            Some([(outer, _), ..]) => Runs::InEachRun(outer.subquery),
            None => Runs::ForEachRow,
        }
    }
}

impl Binder<'_> {
    fn inner(&mut self, query: &ast::Query) -> Result<Inner, SqlError> {
        let number = self.next_subquery();
        self.levels.push(Level { subquery: Some(number), ..Level::default() });
        let rows = self.placed(Some("within a subquery"), |binder| binder.unsettled_query(query, &Clauses::default()));
        let level = self.levels.pop();
        let captures = level.map(|level| level.captures).unwrap_or_default();
        Ok(Inner { number, rows: rows?, captures })
    }

    /// `(SELECT ...)`
    pub(super) fn scalar_subquery(&mut self, query: &ast::Query) -> Result<Typed, SqlError> {
        let mut inner = self.inner(query)?;
        one_column(&inner.rows)?;
        if !inner.captures.is_empty()
            && inner.runs() == Runs::ForNewValues
            && let Some(joinable) = self.joinable(&inner.rows, inner.number)?
        {
            self.joinable.insert(inner.number, joinable);
        }
        inner.rows = self.projected(inner.rows)?;
        let ty = inner.rows.items[0].typed.ty;
        self.answered(inner, Answer::Scalar, None, ty)
    }

    /// `ARRAY(SELECT ...)`
    pub(super) fn array_subquery(&mut self, query: &ast::Query) -> Result<Typed, SqlError> {
        let mut inner = self.inner(query)?;
        one_column(&inner.rows)?;
        inner.rows = self.projected(inner.rows)?;
        let element = inner.rows.items[0].typed.kind();
        let array = if element.is_array() { Some(element) } else { element.array() };
        let array = array.ok_or_else(|| {
            SqlError::new(SqlState::UNDEFINED_OBJECT, format!("could not find array type for data type {element}"))
        })?;
        self.answered(inner, Answer::Array, None, Type::of(array))
    }

    /// `EXISTS (SELECT ...)`
    pub(super) fn exists(&mut self, query: &ast::Query, negated: bool) -> Result<Typed, SqlError> {
        let inner = self.inner(query)?;
        self.exists_of(inner, negated)
    }

    fn exists_of(&mut self, mut inner: Inner, negated: bool) -> Result<Typed, SqlError> {
        // Nobody looks at what it lists.
        inner.rows.items = Vec::new();
        let typed = self.answered(inner, Answer::Exists, None, Type::BOOL)?;
        Ok(if negated { not(typed) } else { typed })
    }

    /// `expr IN (SELECT ...)`
    pub(super) fn in_subquery(
        &mut self,
        expr: &ast::Expr,
        query: &ast::Query,
        negated: bool,
    ) -> Result<Typed, SqlError> {
        let any = if row(expr).is_some() {
            let left = self.written_row(expr)?.unwrap_or_default();
            let inner = self.inner(query)?;
            self.row_among(left, inner)?
        } else {
            let left = self.expression(expr)?;
            let inner = self.inner(query)?;
            self.any_of_rows(left, "=", inner, false)?
        };
        Ok(if negated { not(any) } else { any })
    }

    /// `left operator ANY (SELECT ...)`
    pub(super) fn quantified_subquery(
        &mut self,
        left: &ast::Expr,
        name: &str,
        query: &ast::Query,
        all: bool,
    ) -> Result<Typed, SqlError> {
        let left = self.expression(left)?;
        let inner = self.inner(query)?;
        self.any_of_rows(left, name, inner, all)
    }

    fn any_of_rows(&mut self, left: Typed, name: &str, mut inner: Inner, all: bool) -> Result<Typed, SqlError> {
        one_column(&inner.rows)?;
        let right = &inner.rows.items[0].typed;
        let resolved = resolve(name, &[left.kind(), right.kind()])?;
        let [one, two] = resolved.arguments.as_slice() else {
            return Err(SqlError::internal("an operator takes two arguments"));
        };
        if resolved.result != Kind::Bool {
            return Err(SqlError::new(
                SqlState::DATATYPE_MISMATCH,
                format!("operator {name} must return type boolean, not type {}", resolved.result),
            ));
        }
        let left = if left.kind() == *one { left } else { self.coerce(left, Type::of(*one))? };
        let two = if right.kind() == *two { right.ty } else { Type::of(*two) };
        inner.rows = self.projected_as(inner.rows, &[two])?;
        let answer = if all { Answer::All(resolved.function) } else { Answer::Any(resolved.function) };
        self.answered(inner, answer, Some(left), Type::BOOL)
    }

    /// Whether a row is among those of a subquery.
    fn row_among(&mut self, left: Vec<Typed>, mut inner: Inner) -> Result<Typed, SqlError> {
        check_width(&inner.rows, left.len())?;
        let mut equal = Vec::with_capacity(left.len());
        for (one, Item { typed: two, .. }) in left.into_iter().zip(std::mem::take(&mut inner.rows.items)) {
            // Within the subquery nothing more can be said about its type.
            let one = if one.is_unknown() { self.coerce(one, Type::of(two.kind()))? } else { one };
            let one = self.settle(one)?;
            let seen = Typed::new(Outer::expression(inner.number, inner.captures.len(), one.ty), one.ty);
            inner.captures.push(one);
            equal.push(self.compare("=", seen, two)?.expr);
        }
        let equal = conjunction(equal).ok_or_else(|| SqlError::internal("a row without elements"))?;
        inner.rows.items = vec![Item { name: "equal".to_owned(), typed: Typed::new(equal, Type::BOOL) }];
        inner.rows = self.projected(inner.rows)?;
        self.answered(inner, Answer::Holds, None, Type::BOOL)
    }

    fn answered(&mut self, inner: Inner, answer: Answer, left: Option<Typed>, ty: Type) -> Result<Typed, SqlError> {
        let element = inner.rows.items.first().map_or(Type::BOOL, |item| item.typed.ty);
        let runs = inner.runs();
        let mut depends = depends_on(&inner.rows.plan)?;
        for item in &inner.rows.items {
            add_depends(&item.typed.expr, &mut depends).map_err(to_sql)?;
        }
        depends.outers.retain(|outer| outer.subquery != inner.number);
        self.put_subquery(inner.number, inner.rows.plan);
        let arguments: Vec<Typed> = left.into_iter().chain(inner.captures).collect();
        let types = arguments.iter().map(|typed| typed.ty).collect();
        let runs = (runs, depends);
        let exprs = arguments.into_iter().map(|typed| typed.expr).collect();
        Ok(Typed::new(SubqueryFunction::call(inner.number, answer, runs, types, element, ty, exprs), ty))
    }

    /// A condition as a join, if it is a subquery that can be joined.
    pub(super) fn semi_join(&mut self, condition: &ast::Expr) -> Result<Conjunct, SqlError> {
        let (condition, flipped) = match condition {
            ast::Expr::UnaryOp { op: ast::UnaryOperator::Not, expr } => (unnested(expr), true),
            condition => (condition, false),
        };
        match condition {
            ast::Expr::Exists { subquery, negated } => {
                let inner = self.inner(subquery)?;
                let negated = *negated != flipped;
                // Whether there is any row at all is asked once.
                if inner.captures.is_empty() {
                    return self.exists_of(inner, negated).map(Conjunct::Expression);
                }
                match separated(&inner)? {
                    Some((right, filter)) => {
                        Ok(Conjunct::Join(SemiJoin { right, on: Vec::new(), filter, anti: negated, null_aware: false }))
                    }
                    None => self.exists_of(inner, negated).map(Conjunct::Expression),
                }
            }
            ast::Expr::InSubquery { expr, subquery, negated } => self.in_join(expr, subquery, *negated != flipped),
            _ => Ok(Conjunct::Other),
        }
    }

    fn in_join(&mut self, expr: &ast::Expr, query: &ast::Query, negated: bool) -> Result<Conjunct, SqlError> {
        let left = match row(expr) {
            Some(elements) => self.row_elements(elements)?,
            None => vec![self.expression(expr)?],
        };
        let mut inner = self.inner(query)?;
        if inner.rows.items.iter().any(|item| item.typed.expr.is_volatile()) {
            // It is computed for each row inside, not for each pair.
            inner.rows = self.projected(inner.rows)?;
        }
        check_width(&inner.rows, left.len())?;
        // What is volatile outside is computed once for each row.
        let is_volatile = left.iter().any(|typed| typed.expr.is_volatile());
        let separable = separated(&inner)?
            .filter(|_| !is_volatile)
            .filter(|_| !negated || left.len() > 1 || inner.captures.is_empty());
        let Some((right, filter)) = separable else {
            let any = match left.as_slice() {
                [left] => self.any_of_rows(left.clone(), "=", inner, false)?,
                _ => self.row_among(left, inner)?,
            };
            return Ok(Conjunct::Expression(if negated { not(any) } else { any }));
        };
        let of_rows = left.len() > 1;
        let mut filters: Vec<Expr> = Vec::new();
        for (left, Item { typed: right, .. }) in left.into_iter().zip(inner.rows.items) {
            filters.push(self.compare("=", left, right)?.expr);
        }
        if negated && of_rows {
            // A row is known not to be there when all that are there are known to be others.
            let same = conjunction(filters).map(|same| Expr::IsNotFalse(Box::new(same)));
            let filter = conjunction(filter.into_iter().chain(same));
            return Ok(Conjunct::Join(SemiJoin { right, on: Vec::new(), filter, anti: true, null_aware: false }));
        }
        filters.extend(filter);
        if !negated {
            let filter = conjunction(filters);
            return Ok(Conjunct::Join(SemiJoin { right, on: Vec::new(), filter, anti: false, null_aware: false }));
        }
        // NOT IN: one null on the right, and no row is known not to be there.
        match filters.as_slice() {
            [Expr::BinaryExpr(BinaryExpr { left, op: Operator::Eq, right: key })]
                if !left.column_refs().is_empty() && !key.column_refs().is_empty() =>
            {
                let on = vec![(left.as_ref().clone(), key.as_ref().clone())];
                Ok(Conjunct::Join(SemiJoin { right, on, filter: None, anti: true, null_aware: true }))
            }
            _ => {
                let typed = self.in_subquery(expr, query, true)?;
                Ok(Conjunct::Expression(typed))
            }
        }
    }
}

fn unnested(expr: &ast::Expr) -> &ast::Expr {
    match expr {
        ast::Expr::Nested(inner) => unnested(inner),
        expr => expr,
    }
}

fn one_column(rows: &Rows) -> Result<(), SqlError> {
    if rows.items.len() == 1 {
        return Ok(());
    }
    Err(SqlError::new(SqlState::SYNTAX_ERROR, "subquery must return only one column"))
}

fn check_width(rows: &Rows, width: usize) -> Result<(), SqlError> {
    if rows.items.len() == width {
        return Ok(());
    }
    let problem = if rows.items.len() > width { "many" } else { "few" };
    Err(SqlError::new(SqlState::SYNTAX_ERROR, format!("subquery has too {problem} columns")))
}

/// A subquery without the conditions that depend on the row outside, and these conditions as a join
/// sees them.
fn separated(inner: &Inner) -> Result<Option<(LogicalPlan, Option<Expr>)>, SqlError> {
    let plan = &inner.rows.plan;
    if inner.captures.is_empty() {
        return Ok(Some((plan.clone(), None)));
    }
    if inner.runs() != Runs::ForNewValues {
        return Ok(None);
    }
    let listed = inner.rows.items.iter().any(|item| sees(&item.typed.expr, inner.number));
    let LogicalPlan::Filter(filter) = plan else { return Ok(None) };
    if listed || depends(&filter.input, inner.number)? {
        return Ok(None);
    }
    let (outside, inside): (Vec<_>, Vec<_>) =
        split_conjunction_owned(filter.predicate.clone()).into_iter().partition(|expr| sees(expr, inner.number));
    if outside.iter().any(|expr| sees_within(expr, inner.number)) {
        return Ok(None);
    }
    let outside = outside
        .into_iter()
        .map(|expr| seen_from_outside(expr, inner.number, &inner.captures))
        .collect::<Result<Vec<_>, _>>()?;
    let mut plan = filter.input.as_ref().clone();
    if let Some(predicate) = conjunction(inside) {
        plan = LogicalPlan::Filter(Filter::try_new(predicate, Arc::new(plan)).map_err(to_sql)?);
    }
    // A condition that needs nothing from inside is no condition of a join.
    Ok(Some((plan, conjunction(outside))))
}

/// Whether an expression takes something from outside of a subquery.
pub(super) fn sees(expr: &Expr, subquery: usize) -> bool {
    expr.exists(|expr| Ok(called::<Outer>(expr).is_some_and(|(outer, _)| outer.subquery == subquery))).unwrap_or(true)
}

/// Whether a subquery within an expression takes something from outside of another one that is
/// around it, besides what it is called with: then the expression cannot be evaluated outside.
pub(super) fn sees_within(expr: &Expr, subquery: usize) -> bool {
    let sees = |expr: &Expr| called::<SubqueryFunction>(expr).is_some_and(|(inner, _)| inner.depends.sees(subquery));
    expr.exists(|expr| Ok(sees(expr))).unwrap_or(true)
}

/// Whether any part of a plan takes something from outside of a subquery.
pub(super) fn depends(plan: &LogicalPlan, subquery: usize) -> Result<bool, SqlError> {
    let mut found = false;
    plan.apply(|plan| {
        found |= plan.expressions().iter().any(|expr| sees(expr, subquery));
        if let LogicalPlan::TableScan(scan) = plan
            && let Some(shared) = SharedSource::of(scan.source.as_ref())
        {
            found |= shared.depends().map_err(crate::error::external)?.sees(subquery);
        }
        Ok(if found { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
    })
    .map_err(to_sql)?;
    Ok(found)
}

/// What a plan takes from outside of subqueries, and the recursive queries whose last rows it
/// reads.
///
/// # Errors
/// Never.
pub(crate) fn depends_on(plan: &LogicalPlan) -> Result<Depends, SqlError> {
    let mut found = Depends::default();
    plan.apply(|plan| {
        for expr in plan.expressions() {
            add_depends(&expr, &mut found)?;
        }
        if let LogicalPlan::Extension(extension) = plan
            && let Some(apply) = extension.node.as_any().downcast_ref::<Apply>()
        {
            found.add(&apply.depends);
        }
        if let LogicalPlan::TableScan(scan) = plan {
            let source = scan.source.as_ref();
            if let Some(shared) = SharedSource::of(source) {
                let inner = shared.depends().map_err(crate::error::external)?;
                found.add(inner);
            }
            if let Some(work) = WorkSource::of(source) {
                found.add_work(work.number);
            }
        }
        Ok(TreeNodeRecursion::Continue)
    })
    .map_err(to_sql)?;
    Ok(found)
}

/// Adds on what the value of an expression depends.
fn add_depends(expr: &Expr, found: &mut Depends) -> Result<(), DataFusionError> {
    expr.apply(|expr| {
        if let Some((outer, _)) = called::<Outer>(expr) {
            found.add_outer(outer);
        }
        if let Some((subquery, _)) = called::<SubqueryFunction>(expr) {
            found.add(&subquery.depends);
        }
        Ok(TreeNodeRecursion::Continue)
    })
    .map(drop)
}

fn seen_from_outside(expr: Expr, subquery: usize, captures: &[Typed]) -> Result<Expr, SqlError> {
    expr.transform_down(|expr| {
        let captured = called::<Outer>(&expr)
            .filter(|(outer, _)| outer.subquery == subquery)
            .and_then(|(outer, _)| captures.get(outer.at));
        Ok(match captured {
            Some(typed) => Transformed::new(typed.expr.clone(), true, TreeNodeRecursion::Jump),
            None => Transformed::no(expr),
        })
    })
    .map(|transformed| transformed.data)
    .map_err(to_sql)
}
