//! Conditions that do something, or hold at one time and not at another, among those that the
//! optimizer moves and takes apart.
//!
//! PostgreSQL evaluates such a condition for each row of the tables whose columns it names, and one
//! without columns for each row of all tables that are joined; behind the cheaper conditions.
//! DataFusion's rules take a condition without columns for one on whatever is below, and make keys
//! of volatile equalities.

use std::sync::Arc;

use datafusion_common::{
    DFSchema, Result,
    tree_node::{Transformed, TreeNode as _, TreeNodeRecursion},
};
use datafusion_expr::{
    Expr, Filter, Join, JoinType, LogicalPlan, Operator,
    utils::{conjunction, split_conjunction_owned},
};
use datafusion_optimizer::{ApplyOrder, OptimizerConfig, OptimizerRule};

use crate::{
    function::{RowFunction, Work, called},
    node::Computed,
};

/// A rule that sees no volatile condition.
#[derive(Debug)]
pub(crate) struct Spared<R>(pub R);

impl<R: OptimizerRule> OptimizerRule for Spared<R> {
    fn name(&self) -> &str {
        self.0.name()
    }

    fn apply_order(&self) -> Option<ApplyOrder> {
        self.0.apply_order()
    }

    fn rewrite(&self, plan: LogicalPlan, config: &dyn OptimizerConfig) -> Result<Transformed<LogicalPlan>> {
        match plan {
            LogicalPlan::Filter(filter) if is_between(&filter) => spared_filter(filter),
            LogicalPlan::Join(join) if join.filter.as_ref().is_some_and(Expr::is_volatile) => {
                let (volatile, rest) = parted(join.filter.clone());
                let join = Join { filter: conjunction(rest), ..join };
                if join.join_type == JoinType::Inner {
                    return filtered(Arc::new(LogicalPlan::Join(join)), volatile).map(Transformed::yes);
                }
                let rewritten = self.0.rewrite(LogicalPlan::Join(join), config)?;
                rewritten.map_data(|plan| with_condition(plan, volatile))
            }
            plan => self.0.rewrite(plan, config),
        }
    }
}

/// Whether volatile conditions, of this filter or of one right below, stand where they stay, or go
/// to a side of a join. Into a query in FROM, and what stands for one, they are moved like others.
fn is_between(filter: &Filter) -> bool {
    match &*filter.input {
        LogicalPlan::Filter(below) if below.predicate.is_volatile() => true,
        LogicalPlan::Projection(_) | LogicalPlan::Sort(_) | LogicalPlan::SubqueryAlias(_) | LogicalPlan::Union(_) => {
            false
        }
        LogicalPlan::Extension(extension) if extension.node.as_any().is::<Computed>() => false,
        _ => filter.predicate.is_volatile(),
    }
}

/// The volatile parts of a condition, and the others.
pub(crate) fn parted(condition: Option<Expr>) -> (Vec<Expr>, Vec<Expr>) {
    condition.into_iter().flat_map(split_conjunction_owned).partition(Expr::is_volatile)
}

fn filtered(input: Arc<LogicalPlan>, conditions: Vec<Expr>) -> Result<LogicalPlan> {
    Ok(match conjunction(conditions) {
        Some(predicate) => LogicalPlan::Filter(Filter::try_new(predicate, input)?),
        None => Arc::unwrap_or_clone(input),
    })
}

/// A filter with volatile parts: these stay above the others, or go to the only side of a join that
/// they name.
fn spared_filter(filter: Filter) -> Result<Transformed<LogicalPlan>> {
    let (mut volatile, mut rest) = parted(Some(filter.predicate));
    let mut input = Arc::unwrap_or_clone(filter.input);
    let mut changed = !rest.is_empty();
    // What stands below was written later, or comes from a query in FROM.
    while let LogicalPlan::Filter(below) = input {
        let (volatile_below, rest_below) = parted(Some(below.predicate));
        changed |= !volatile_below.is_empty();
        volatile.extend(volatile_below);
        rest.extend(rest_below);
        input = Arc::unwrap_or_clone(below.input);
    }
    volatile.sort_by_key(cost);
    let changed = |plan| if changed { Transformed::yes(plan) } else { Transformed::no(plan) };
    let mut join = match input {
        LogicalPlan::Join(join) => join,
        input => {
            let input = filtered(Arc::new(input), rest)?;
            return filtered(Arc::new(input), volatile).map(changed);
        }
    };
    let kept_left = matches!(
        join.join_type,
        JoinType::Inner | JoinType::Left | JoinType::LeftSemi | JoinType::LeftAnti | JoinType::LeftMark
    );
    let kept_right = matches!(join.join_type, JoinType::Inner | JoinType::Right);
    let (of_left, others): (Vec<_>, Vec<_>) =
        volatile.into_iter().partition(|condition| kept_left && names_only(condition, join.left.schema()));
    let (of_right, above): (Vec<_>, Vec<_>) =
        others.into_iter().partition(|condition| kept_right && names_only(condition, join.right.schema()));
    let moved = !of_left.is_empty() || !of_right.is_empty();
    join.left = Arc::new(filtered(join.left, of_left)?);
    join.right = Arc::new(filtered(join.right, of_right)?);
    let joined = filtered(Arc::new(LogicalPlan::Join(join)), rest)?;
    let plan = filtered(Arc::new(joined), above)?;
    Ok(if moved { Transformed::yes(plan) } else { changed(plan) })
}

/// What PostgreSQL takes for an expression's cost, about: how many functions and operators it
/// calls.
fn cost(expr: &Expr) -> usize {
    let mut cost = 0;
    let counted = expr.apply(|part| {
        cost += match part {
            part if called::<RowFunction>(part).is_some_and(|(function, _)| matches!(function.work, Work::Cast(_))) => {
                0
            }
            Expr::ScalarFunction(_) | Expr::InList(_) => 1,
            Expr::BinaryExpr(binary) => usize::from(!matches!(binary.op, Operator::And | Operator::Or)),
            _ => 0,
        };
        Ok(TreeNodeRecursion::Continue)
    });
    counted.map_or(usize::MAX, |_| cost)
}

/// Whether a condition names columns, all of them of this side.
fn names_only(condition: &Expr, side: &DFSchema) -> bool {
    let columns = condition.column_refs();
    !columns.is_empty() && columns.into_iter().all(|column| side.has_column(column))
}

/// A join with one more condition; of an outer one, what names nothing but the side that may be
/// missing is asked there.
fn with_condition(plan: LogicalPlan, conditions: Vec<Expr>) -> Result<LogicalPlan> {
    let mut join = match plan {
        LogicalPlan::Join(join) => join,
        LogicalPlan::Filter(Filter { predicate, input, .. }) => {
            let input = with_condition(Arc::unwrap_or_clone(input), conditions)?;
            return filtered(Arc::new(input), vec![predicate]);
        }
        other => return filtered(Arc::new(other), conditions),
    };
    let left = matches!(join.join_type, JoinType::Right);
    let right = matches!(join.join_type, JoinType::Left | JoinType::LeftSemi | JoinType::LeftAnti);
    let (of_left, others): (Vec<_>, Vec<_>) =
        conditions.into_iter().partition(|condition| left && names_only(condition, join.left.schema()));
    let (of_right, rest): (Vec<_>, Vec<_>) =
        others.into_iter().partition(|condition| right && names_only(condition, join.right.schema()));
    join.left = Arc::new(filtered(join.left, of_left)?);
    join.right = Arc::new(filtered(join.right, of_right)?);
    join.filter = conjunction(join.filter.take().into_iter().chain(rest));
    Ok(LogicalPlan::Join(join))
}
