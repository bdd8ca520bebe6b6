//! Scalar subqueries as joins.
//!
//! `(SELECT sum(x) FROM t WHERE t.a = outer.a)` is asked for each row outside, or is computed for
//! all `a` at once and joined. The second way is taken where it promises to be faster.

use std::sync::Arc;

use datafusion_common::{
    JoinConstraint, NullEquality,
    tree_node::{Transformed, TreeNode, TreeNodeRecursion},
};
use datafusion_expr::{
    Aggregate, Expr, Filter, Join, JoinType, LogicalPlan, Operator,
    expr::BinaryExpr,
    utils::{conjunction, split_conjunction_owned},
};
use freshet_sql::{SqlError, Type, Value};

use super::{
    Binder, check_reach,
    expression::case_of,
    group::replace,
    query::Rows,
    subquery::{depends, sees, sees_within},
    typed::Typed,
};
use crate::{
    aggregate::is_count,
    error::to_sql,
    estimate::{has_lookup, rows_of},
    function::{Outer, called},
    subquery::SubqueryFunction,
};

/// What asking a subquery for one row costs, in rows that are read.
const ASKING: f64 = 200.0;

/// A subquery that can be joined.
pub(super) struct Joinable {
    /// Its aggregates, grouped by what it compares with the row outside.
    plan: LogicalPlan,
    /// Its keys, and what they equal outside.
    on: Vec<(Expr, Expr)>,
    /// Its value for a row, null where none exists.
    value: Expr,
    /// What asking it for one row costs.
    cost: f64,
}

impl Binder<'_> {
    /// The subquery as something that can be joined, if it is one aggregate of rows that equal the
    /// row outside.
    pub(super) fn joinable(&mut self, rows: &Rows, subquery: usize) -> Result<Option<Joinable>, SqlError> {
        let [item] = rows.items.as_slice() else { return Ok(None) };
        let LogicalPlan::Aggregate(aggregate) = &rows.plan else { return Ok(None) };
        let LogicalPlan::Filter(filter) = aggregate.input.as_ref() else { return Ok(None) };
        let own = aggregate.aggr_expr.iter().chain([&item.typed.expr]);
        if !aggregate.group_expr.is_empty()
            || own.into_iter().any(|expr| sees(expr, subquery))
            || depends(&filter.input, subquery)?
            || sees_within(&filter.predicate, subquery)
        {
            return Ok(None);
        }
        let (outside, inside): (Vec<_>, Vec<_>) =
            split_conjunction_owned(filter.predicate.clone()).into_iter().partition(|expr| sees(expr, subquery));
        let mut keys = Vec::with_capacity(outside.len());
        for condition in &outside {
            match equality(condition, subquery) {
                Some(pair) => keys.push(pair),
                None => return Ok(None),
            }
        }
        let inner_rows = rows_of(&filter.input);
        let found_by_key = keys.iter().any(|(inner, _)| has_lookup(&filter.input, inner));
        let cost = ASKING + if found_by_key { inner_rows.sqrt() } else { inner_rows };

        let mut input = filter.input.as_ref().clone();
        if let Some(predicate) = conjunction(inside) {
            input = LogicalPlan::Filter(Filter::try_new(predicate, Arc::new(input)).map_err(to_sql)?);
        }
        let mut group_expr = Vec::with_capacity(keys.len());
        let mut on = Vec::with_capacity(keys.len());
        for (inner, outer) in keys {
            let name = self.fresh("key");
            on.push((Expr::Column(datafusion_common::Column::new_unqualified(name.clone())), outer));
            group_expr.push(inner.alias(name));
        }
        // Where there are no rows, there is nothing to join; but a count is zero there.
        let mut counts = Vec::new();
        for (expr, field) in aggregate.aggr_expr.iter().zip(aggregate.schema.fields()) {
            if is_count(expr) {
                let column = datafusion_common::Column::new_unqualified(field.name().clone());
                let counted = Expr::Column(column.clone());
                let zero = Typed::literal(&Value::Int8(0), Type::INT8)?;
                let known = (Expr::IsNotNull(Box::new(counted.clone())), counted);
                counts.push((column, case_of(std::iter::once(known), zero.expr, Type::INT8).expr));
            }
        }
        let value = replace(item.typed.expr.clone(), &counts)?;
        let plan = Aggregate::try_new(Arc::new(input), group_expr, aggregate.aggr_expr.clone()).map_err(to_sql)?;
        Ok(Some(Joinable { plan: LogicalPlan::Aggregate(plan), on, value, cost }))
    }

    /// The plan with the subqueries joined that these expressions call, where that promises to be
    /// faster; the expressions see their values as columns then.
    pub(super) fn join_subqueries(
        &mut self,
        mut plan: LogicalPlan,
        exprs: &mut [&mut Expr],
    ) -> Result<LogicalPlan, SqlError> {
        if self.joinable.is_empty() {
            return Ok(plan);
        }
        let outer_rows = rows_of(&plan);
        let mut joined: Vec<(Expr, Expr)> = Vec::new();
        for expr in exprs {
            let mut calls = Vec::new();
            expr.apply(|part| {
                if called::<SubqueryFunction>(part).is_some() && !calls.contains(part) {
                    calls.push(part.clone());
                }
                Ok(TreeNodeRecursion::Continue)
            })
            .map_err(to_sql)?;
            for call in calls {
                if joined.iter().any(|(known, _)| *known == call) {
                    continue;
                }
                let Some((function, arguments)) = called::<SubqueryFunction>(&call) else { continue };
                let subquery = function.subquery;
                let Some(candidate) = self.joinable.get(&subquery) else { continue };
                if outer_rows * candidate.cost <= outer_rows + rows_of(&candidate.plan) * 10.0 {
                    continue;
                }
                let Some(candidate) = self.joinable.remove(&subquery) else { continue };
                let on = candidate
                    .on
                    .into_iter()
                    .map(|(key, outer)| Ok((seen_outside(outer, subquery, arguments)?, key)))
                    .collect::<Result<Vec<_>, SqlError>>()?;
                check_reach(&[&plan, &candidate.plan])?;
                plan = Join::try_new(
                    Arc::new(plan),
                    Arc::new(candidate.plan),
                    on,
                    None,
                    JoinType::Left,
                    JoinConstraint::On,
                    NullEquality::NullEqualsNothing,
                    false,
                )
                .map(LogicalPlan::Join)
                .map_err(to_sql)?;
                self.subqueries[subquery] = None;
                joined.push((call, candidate.value));
            }
            if joined.is_empty() {
                continue;
            }
            let replaced = expr.clone().transform_down(|part| {
                Ok(match joined.iter().find(|(call, _)| *call == part) {
                    Some((_, value)) => Transformed::new(value.clone(), true, TreeNodeRecursion::Jump),
                    None => Transformed::no(part),
                })
            });
            **expr = replaced.map_err(to_sql)?.data;
        }
        Ok(plan)
    }
}

/// The sides of an equality: what is inside the subquery alone, and what is outside alone.
fn equality(condition: &Expr, subquery: usize) -> Option<(Expr, Expr)> {
    let Expr::BinaryExpr(BinaryExpr { left, op: Operator::Eq, right }) = condition else { return None };
    let outside = |expr: &Expr| sees(expr, subquery) && expr.column_refs().is_empty();
    match (outside(left), outside(right)) {
        (true, false) if !sees(right, subquery) => Some((right.as_ref().clone(), left.as_ref().clone())),
        (false, true) if !sees(left, subquery) => Some((left.as_ref().clone(), right.as_ref().clone())),
        _ => None,
    }
}

/// What a subquery takes from outside, as it is seen there.
fn seen_outside(expr: Expr, subquery: usize, captures: &[Expr]) -> Result<Expr, SqlError> {
    expr.transform_down(|part| {
        let captured = called::<Outer>(&part)
            .filter(|(outer, _)| outer.subquery == subquery)
            .and_then(|(o, _)| captures.get(o.at));
        Ok(match captured {
            Some(captured) => Transformed::new(captured.clone(), true, TreeNodeRecursion::Jump),
            None => Transformed::no(part),
        })
    })
    .map(|transformed| transformed.data)
    .map_err(to_sql)
}
