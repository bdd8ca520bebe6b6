//! What DataFusion's optimizer does to our plans, and what has to be settled before.

use std::{
    collections::HashMap,
    sync::{Arc, LazyLock},
};

use datafusion_common::{
    Result,
    config::ConfigOptions,
    tree_node::{Transformed, TreeNode, TreeNodeRecursion},
};
use datafusion_expr::{Expr, ExprSchemable as _, LogicalPlan, Projection};
use datafusion_optimizer::{
    ApplyOrder, Optimizer, OptimizerConfig, OptimizerContext, OptimizerRule,
    common_subexpr_eliminate::CommonSubexprEliminate, eliminate_filter::EliminateFilter,
    eliminate_outer_join::EliminateOuterJoin, extract_equijoin_predicate::ExtractEquijoinPredicate,
    optimize_projections::OptimizeProjections, propagate_empty_relation::PropagateEmptyRelation,
    push_down_filter::PushDownFilter, push_down_limit::PushDownLimit,
};
use freshet_sql::SqlError;

use crate::{
    bind::{Bound, nullable_side},
    error::{external, to_sql},
    function::called,
    joins::OrderJoins,
    node::{Lock, is_volatile, volatile_columns},
    source::SharedSource,
    subquery::SubqueryFunction,
    volatile::Spared,
};

/// The rules that help. Expressions are simplified when they are bound, and subqueries are joins or
/// functions by then.
static OPTIMIZER: LazyLock<Optimizer> = LazyLock::new(|| {
    Optimizer::with_rules(vec![
        Arc::new(Spared(ExtractEquijoinPredicate::new())),
        Arc::new(EliminateFilter::new()),
        Arc::new(OrderJoins),
        Arc::new(PropagateEmptyRelation::new()),
        Arc::new(EliminateOuterJoin::new()),
        Arc::new(PushLimits(PushDownLimit::new())),
        Arc::new(Spared(PushFilters(PushDownFilter::new()))),
        Arc::new(CommonSubexprEliminate::new()),
        Arc::new(OptimizeProjections::new()),
    ])
});

/// DataFusion's rule that moves conditions down, but for one thing: it takes a condition without
/// columns of an aggregate for one on its groups, and an aggregate without groups gives a row of no
/// rows, too.
#[derive(Debug)]
struct PushFilters(PushDownFilter);

impl OptimizerRule for PushFilters {
    fn name(&self) -> &str {
        self.0.name()
    }

    fn apply_order(&self) -> Option<ApplyOrder> {
        self.0.apply_order()
    }

    fn rewrite(&self, plan: LogicalPlan, config: &dyn OptimizerConfig) -> Result<Transformed<LogicalPlan>> {
        if let LogicalPlan::Filter(filter) = &plan
            && let LogicalPlan::Aggregate(aggregate) = &*filter.input
            && aggregate.group_expr.is_empty()
        {
            return Ok(Transformed::no(plan));
        }
        self.0.rewrite(plan, config)
    }
}

/// DataFusion's rule that moves limits down, but for one thing: what is volatile is computed for
/// the rows that OFFSET skips, too.
#[derive(Debug)]
struct PushLimits(PushDownLimit);

impl OptimizerRule for PushLimits {
    fn name(&self) -> &str {
        self.0.name()
    }

    fn apply_order(&self) -> Option<ApplyOrder> {
        self.0.apply_order()
    }

    fn rewrite(&self, plan: LogicalPlan, config: &dyn OptimizerConfig) -> Result<Transformed<LogicalPlan>> {
        if let LogicalPlan::Limit(limit) = &plan
            && limit.skip.is_some()
            && volatile_columns(&limit.input).contains(&true)
        {
            return Ok(Transformed::no(plan));
        }
        self.0.rewrite(plan, config)
    }
}

static CONTEXT: LazyLock<OptimizerContext> = LazyLock::new(|| {
    let mut options = ConfigOptions::default();
    options.optimizer.filter_null_join_keys = false;
    options.optimizer.max_passes = 2;
    options.optimizer.skip_failed_rules = false;
    OptimizerContext::new_with_config_options(Arc::new(options)).without_query_execution_start_time()
});

/// Prepares a bound query's plans for running.
///
/// # Errors
/// When the optimizer fails: a mistake in it, or in the plan.
#[expect(clippy::type_complexity, reason = "the plan, and one for each subquery")]
pub(crate) fn optimize(bound: &Bound) -> Result<(Arc<LogicalPlan>, Vec<Option<Arc<LogicalPlan>>>), SqlError> {
    let mut uses = HashMap::new();
    count_uses(&bound.plan, &mut uses)?;
    for plan in bound.subqueries.iter().flatten() {
        count_uses(plan, &mut uses)?;
    }
    let main = optimized(bound.plan.clone(), &uses)?;
    let subqueries = bound
        .subqueries
        .iter()
        .map(|plan| plan.clone().map(|plan| optimized(plan, &uses)).transpose())
        .collect::<Result<_, _>>()?;
    Ok((main, subqueries))
}

fn optimized(plan: LogicalPlan, uses: &HashMap<usize, usize>) -> Result<Arc<LogicalPlan>, SqlError> {
    let plan = settle_shared(plan, uses)?;
    let plan = OPTIMIZER.optimize(plan, &*CONTEXT, |_, _| {}).map_err(to_sql)?;
    check_locks(&plan)?;
    Ok(Arc::new(plan))
}

/// Fails where rows are locked that may not be there. Conditions may have made an inner join of an
/// outer one.
fn check_locks(plan: &LogicalPlan) -> Result<(), SqlError> {
    plan.apply(|plan| {
        let LogicalPlan::Extension(extension) = plan else { return Ok(TreeNodeRecursion::Continue) };
        let Some(lock) = extension.node.as_any().downcast_ref::<Lock>() else {
            return Ok(TreeNodeRecursion::Continue);
        };
        for mark in lock.marks.iter().filter(|mark| mark.nullable) {
            if mark.row.nullable(lock.input.schema().as_ref())? {
                return Err(external(nullable_side(mark.mark)));
            }
        }
        Ok(TreeNodeRecursion::Continue)
    })
    .map(drop)
    .map_err(to_sql)
}

/// Counts in how many places each shared result is read.
fn count_uses(plan: &LogicalPlan, uses: &mut HashMap<usize, usize>) -> Result<(), SqlError> {
    plan.apply(|plan| {
        if let LogicalPlan::TableScan(scan) = plan
            && let Some(shared) = SharedSource::of(scan.source.as_ref())
        {
            let count = uses.entry(shared.number).or_insert(0);
            *count += 1;
            if *count == 1 {
                count_uses(shared.plan(), uses).map_err(crate::error::external)?;
            }
        }
        Ok(TreeNodeRecursion::Continue)
    })
    .map(drop)
    .map_err(to_sql)
}

/// Puts the plan of a shared result where it is read, unless it is read in several places.
fn settle_shared(plan: LogicalPlan, uses: &HashMap<usize, usize>) -> Result<LogicalPlan, SqlError> {
    plan.transform_up(|plan| {
        let LogicalPlan::TableScan(scan) = &plan else { return Ok(Transformed::no(plan)) };
        let Some(shared) = SharedSource::of(scan.source.as_ref()) else { return Ok(Transformed::no(plan)) };
        let once = uses.get(&shared.number).is_none_or(|count| *count < 2) && !is_volatile(shared.plan());
        if shared.fixed.unwrap_or(!once) {
            if shared.optimized.get().is_none() {
                let inner = optimized(shared.plan().clone(), uses).map_err(crate::error::external)?;
                // Whichever thread was first has optimized the same.
                let _ = shared.optimized.set(inner);
            }
            return Ok(Transformed::no(plan));
        }
        let inner = settle_shared(shared.plan().clone(), uses).map_err(crate::error::external)?;
        let exprs = inner
            .schema()
            .columns()
            .into_iter()
            .zip(scan.projected_schema.iter())
            .map(|(column, (qualifier, field))| {
                Expr::Column(column).alias_qualified(qualifier.cloned(), field.name().clone())
            })
            .collect();
        let projection = Projection::try_new(exprs, Arc::new(inner))?;
        Ok(Transformed::yes(LogicalPlan::Projection(projection)))
    })
    .map(|transformed| transformed.data)
    .map_err(to_sql)
}

/// Whether something volatile is computed for rows that a LIMIT above, or an EXISTS, may not want.
/// PostgreSQL computes it for no more rows than that takes.
pub(crate) fn is_cut_short(plan: &LogicalPlan, limited: bool) -> bool {
    let limited = match plan {
        LogicalPlan::Limit(_) => true,
        // These read all rows first.
        LogicalPlan::Sort(_) | LogicalPlan::Aggregate(_) | LogicalPlan::Window(_) => false,
        _ => limited,
    };
    plan.expressions().iter().any(|expr| {
        (limited && expr.is_volatile())
            || expr
                .exists(
                    |expr| Ok(called::<SubqueryFunction>(expr).is_some_and(|(function, _)| function.is_cut_short())),
                )
                .unwrap_or(true)
    }) || plan.inputs().into_iter().any(|input| is_cut_short(input, limited))
}
