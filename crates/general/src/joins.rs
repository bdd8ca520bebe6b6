//! Inner joins of several tables: which is joined next, and by which equalities.
//!
//! The tables of inner joins that stand in one another, and the conditions of all of them, are
//! taken together with the condition above. Beginning with the first table, the next is the first
//! that an equality leads to, or, where none does, the next in order. A condition becomes a key of
//! a join when one of its sides is of the tables that are joined already, and the other of the next
//! one. All that becomes no key stays a condition above the joins.

use std::sync::Arc;

use datafusion_common::{
    NullEquality, Result,
    tree_node::{Transformed, TreeNode as _},
};
use datafusion_expr::{
    BinaryExpr, Expr, ExprSchemable as _, Filter, Join, JoinConstraint, JoinType, LogicalPlan, Operator, Projection,
    build_join_schema,
    utils::{can_hash, conjunction, find_valid_equijoin_key_pair, split_conjunction_owned},
};
use datafusion_optimizer::{ApplyOrder, OptimizerConfig, OptimizerRule};
use freshet_sql::work;

use crate::error::external;

/// Makes keys of equalities, and orders the tables of inner joins by them.
///
/// DataFusion's rule of this kind loses equalities: one of a join's own keys that has columns of
/// two tables on one side, when the tables are not joined in an order in which it is a key.
#[derive(Debug)]
pub(crate) struct OrderJoins;

impl OptimizerRule for OrderJoins {
    fn name(&self) -> &'static str {
        "order_joins"
    }

    fn apply_order(&self) -> Option<ApplyOrder> {
        // What is taken together has to be found from its top.
        None
    }

    fn rewrite(&self, plan: LogicalPlan, config: &dyn OptimizerConfig) -> Result<Transformed<LogicalPlan>> {
        let mut parts = match Parts::of(&plan) {
            Some(parts) => parts,
            None => return self.rewrite_inputs(plan, config),
        };
        let schema = Arc::clone(plan.schema());
        parts.take(plan, true);
        let mut inputs = Vec::with_capacity(parts.inputs.len());
        for input in std::mem::take(&mut parts.inputs) {
            inputs.push(self.rewrite(input, config)?.data);
        }
        parts.inputs = inputs;
        let mut joined = parts.inputs.remove(0);
        while !parts.inputs.is_empty() {
            joined = parts.join_next(joined)?;
        }
        if joined.schema() != &schema {
            joined = LogicalPlan::Projection(Projection::new_from_schema(Arc::new(joined), schema));
        }
        let plan = match parts.rest() {
            Some(rest) => LogicalPlan::Filter(Filter::try_new(rest, Arc::new(joined))?),
            None => joined,
        };
        Ok(Transformed::yes(plan))
    }
}

impl OrderJoins {
    fn rewrite_inputs(&self, plan: LogicalPlan, config: &dyn OptimizerConfig) -> Result<Transformed<LogicalPlan>> {
        let rewritten = plan.map_children(|input| self.rewrite(input, config))?;
        match rewritten.transformed {
            true => rewritten.map_data(LogicalPlan::recompute_schema),
            false => Ok(rewritten),
        }
    }
}

/// What inner joins that stand in one another consist of.
struct Parts {
    /// How keys compare nulls, in all of these joins.
    nulls: NullEquality,
    /// What is joined, and not taken yet.
    inputs: Vec<LogicalPlan>,
    /// Equalities that have not become keys yet.
    keys: Vec<Equality>,
    conditions: Vec<Expr>,
}

struct Equality {
    left: Expr,
    right: Expr,
    /// Whether a condition states the same, and stays.
    is_stated: bool,
}

impl Parts {
    /// Nothing yet, of a plan that is such a join, or has one below its condition.
    fn of(plan: &LogicalPlan) -> Option<Self> {
        let top = match plan {
            LogicalPlan::Filter(filter) => &*filter.input,
            other => other,
        };
        let LogicalPlan::Join(join) = top else { return None };
        let parts = Self { nulls: join.null_equality, inputs: Vec::new(), keys: Vec::new(), conditions: Vec::new() };
        parts.has(plan, true).then_some(parts)
    }

    /// Whether a plan is taken apart: inner joins, and a condition on one. What is volatile in a
    /// condition of all stays above all; another is computed for the rows that it was written for.
    fn has(&self, plan: &LogicalPlan, is_all: bool) -> bool {
        match plan {
            LogicalPlan::Filter(filter) => {
                (is_all || !filter.predicate.is_volatile())
                    && matches!(&*filter.input, LogicalPlan::Join(_))
                    && self.has(&filter.input, is_all)
            }
            LogicalPlan::Join(join) => {
                join.join_type == JoinType::Inner
                    && !join.null_aware
                    && (join.on.is_empty() || join.null_equality == self.nulls)
                    && (is_all || !join.filter.as_ref().is_some_and(Expr::is_volatile))
                    && !join.on.iter().any(|(left, right)| left.is_volatile() || right.is_volatile())
            }
            _ => false,
        }
    }

    /// Takes a plan apart.
    fn take(&mut self, plan: LogicalPlan, is_all: bool) {
        if !self.has(&plan, is_all) {
            return self.inputs.push(plan);
        }
        match plan {
            LogicalPlan::Filter(filter) => {
                self.condition(filter.predicate);
                self.take(Arc::unwrap_or_clone(filter.input), is_all);
            }
            LogicalPlan::Join(join) => {
                self.take(Arc::unwrap_or_clone(join.left), false);
                self.take(Arc::unwrap_or_clone(join.right), false);
                let key = |(left, right)| Equality { left, right, is_stated: false };
                self.keys.extend(join.on.into_iter().map(key));
                if let Some(condition) = join.filter {
                    self.condition(condition);
                }
            }
            other => self.inputs.push(other),
        }
    }

    /// A condition on what is joined: equalities in it may become keys.
    fn condition(&mut self, condition: Expr) {
        for part in split_conjunction_owned(condition) {
            match part {
                part if part.is_volatile() => self.conditions.push(part),
                // Nulls do not fulfil it.
                Expr::BinaryExpr(BinaryExpr { left, op: Operator::Eq, right })
                    if self.nulls == NullEquality::NullEqualsNothing =>
                {
                    self.keys.push(Equality { left: *left, right: *right, is_stated: false });
                }
                other => {
                    if self.nulls == NullEquality::NullEqualsNothing {
                        let key = |(left, right)| Equality { left, right, is_stated: true };
                        self.keys.extend(equalities_of_all(&other).into_iter().map(key));
                    }
                    self.conditions.push(other);
                }
            }
        }
    }

    /// Joins what comes next.
    fn join_next(&mut self, left: LogicalPlan) -> Result<LogicalPlan> {
        let (mut next, mut found) = (0, Vec::new());
        for (number, right) in self.inputs.iter().enumerate() {
            for (place, key) in self.keys.iter().enumerate() {
                work::done(16).map_err(external)?;
                let pair = find_valid_equijoin_key_pair(&key.left, &key.right, left.schema(), right.schema())?;
                if let Some((of_left, of_right)) = pair
                    && can_hash(&of_left.get_type(left.schema())?)
                {
                    found.push((place, (of_left, of_right)));
                }
            }
            if !found.is_empty() {
                next = number;
                break;
            }
        }
        let right = self.inputs.remove(next);
        for (place, _) in found.iter().rev() {
            self.keys.remove(*place);
        }
        work::done(left.schema().fields().len()).map_err(external)?;
        // What becomes a key of a product later does not compare nulls.
        let null_equality = if found.is_empty() { NullEquality::NullEqualsNothing } else { self.nulls };
        let schema = Arc::new(build_join_schema(left.schema(), right.schema(), &JoinType::Inner)?);
        Ok(LogicalPlan::Join(Join {
            left: Arc::new(left),
            right: Arc::new(right),
            on: found.into_iter().map(|(_, key)| key).collect(),
            filter: None,
            join_type: JoinType::Inner,
            join_constraint: JoinConstraint::On,
            schema,
            null_equality,
            null_aware: false,
        }))
    }

    /// The conditions that became no key of the join.
    fn rest(self) -> Option<Expr> {
        let operator = match self.nulls {
            NullEquality::NullEqualsNothing => Operator::Eq,
            NullEquality::NullEqualsNull => Operator::IsNotDistinctFrom,
        };
        let equality = |Equality { left, right, .. }| {
            Expr::BinaryExpr(BinaryExpr { left: Box::new(left), op: operator, right: Box::new(right) })
        };
        let keys = self.keys.into_iter().filter(|key| !key.is_stated).map(equality);
        conjunction(keys.chain(self.conditions))
    }
}

/// The equalities that each alternative of a condition has.
fn equalities_of_all(condition: &Expr) -> Vec<(Expr, Expr)> {
    match condition {
        Expr::BinaryExpr(BinaryExpr { left, op: Operator::Or, right }) => {
            let (mut of_both, of_right) = (equalities_of_all(left), equalities_of_all(right));
            of_both.retain(|(a, b)| of_right.iter().any(|(c, d)| (a, b) == (c, d) || (a, b) == (d, c)));
            of_both
        }
        Expr::BinaryExpr(BinaryExpr { left, op: Operator::And, right }) => {
            let mut of_either = equalities_of_all(left);
            of_either.extend(equalities_of_all(right));
            of_either
        }
        Expr::BinaryExpr(BinaryExpr { left, op: Operator::Eq, right }) => vec![((**left).clone(), (**right).clone())],
        _ => Vec::new(),
    }
}
