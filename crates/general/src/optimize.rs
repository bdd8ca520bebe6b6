//! What DataFusion's optimizer does to our plans, and what has to be settled before.

use std::{
    collections::{BTreeMap, HashMap},
    sync::{Arc, LazyLock},
};

use datafusion_common::{
    NullEquality, Result,
    config::ConfigOptions,
    tree_node::{Transformed, TreeNode, TreeNodeRecursion},
};
use datafusion_expr::{Expr, ExprSchemable as _, LogicalPlan, Projection, TableSource};
use datafusion_optimizer::{
    ApplyOrder, Optimizer, OptimizerConfig, OptimizerContext, OptimizerRule,
    common_subexpr_eliminate::CommonSubexprEliminate, eliminate_filter::EliminateFilter,
    eliminate_outer_join::EliminateOuterJoin, extract_equijoin_predicate::ExtractEquijoinPredicate,
    optimize_projections::OptimizeProjections, propagate_empty_relation::PropagateEmptyRelation,
    push_down_filter::PushDownFilter, push_down_limit::PushDownLimit,
};
use freshet_sql::{
    SqlError,
    work::{self, Kept},
};

use crate::{
    bind::{Bound, FIELD, check_reach, nullable_side},
    error::{external, to_sql},
    function::called,
    held::parts,
    joins::OrderJoins,
    node::{Lock, volatile_columns},
    source::SharedSource,
    subquery::SubqueryFunction,
    volatile::Spared,
};

/// The rules that help. Expressions are simplified when they are bound, and subqueries are joins or
/// functions by then.
static OPTIMIZER: LazyLock<Optimizer> = LazyLock::new(|| {
    Optimizer::with_rules(counted(vec![
        Arc::new(Spared(Unless { rule: ExtractEquijoinPredicate::new(), leaves: has_keys_of_nulls })),
        Arc::new(EliminateFilter::new()),
        Arc::new(OrderJoins),
        Arc::new(PropagateEmptyRelation::new()),
        Arc::new(EliminateOuterJoin::new()),
        Arc::new(Unless { rule: PushDownLimit::new(), leaves: skips_what_is_volatile }),
        Arc::new(Spared(Unless { rule: PushDownFilter::new(), leaves: stays_above })),
        Arc::new(CommonSubexprEliminate::new()),
        Arc::new(OptimizeProjections::new()),
    ]))
});

/// A rule of DataFusion's, but for plans that it does not treat as it should.
#[derive(Debug)]
struct Unless<R> {
    rule: R,
    /// Whether the plan is left as it is.
    leaves: fn(&LogicalPlan) -> bool,
}

impl<R: OptimizerRule> OptimizerRule for Unless<R> {
    fn name(&self) -> &str {
        self.rule.name()
    }

    fn apply_order(&self) -> Option<ApplyOrder> {
        self.rule.apply_order()
    }

    fn rewrite(&self, plan: LogicalPlan, config: &dyn OptimizerConfig) -> Result<Transformed<LogicalPlan>> {
        if (self.leaves)(&plan) { Ok(Transformed::no(plan)) } else { self.rule.rewrite(plan, config) }
    }
}

/// The most parts that a condition may have with what its columns are made of.
const MAX_CONDITION: usize = 256;

/// A condition that is not moved down.
fn stays_above(plan: &LogicalPlan) -> bool {
    is_condition_on_all(plan) || would_outgrow(plan)
}

/// A condition that would get too large with what its columns are made of: it would be copied into
/// each of them, and so at the next query in FROM.
fn would_outgrow(plan: &LogicalPlan) -> bool {
    let LogicalPlan::Filter(filter) = plan else { return false };
    let mut input = &*filter.input;
    while let LogicalPlan::SubqueryAlias(alias) = input {
        input = &alias.input;
    }
    let LogicalPlan::Projection(projection) = input else { return false };
    let sizes: Vec<usize> = projection.expr.iter().map(|expr| parts(expr, MAX_CONDITION)).collect();
    let (mut count, columns) = (0, filter.input.schema());
    let counted = filter.predicate.apply(|part| {
        count += match part {
            Expr::Column(column) => columns.maybe_index_of_column(column).and_then(|at| sizes.get(at)).copied(),
            _ => None,
        }
        .unwrap_or(1);
        Ok(if count > MAX_CONDITION { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
    });
    counted.is_err() || count > MAX_CONDITION
}

/// A condition on an aggregate without groups, which gives a row of no rows, too. A condition
/// without columns would be taken for one on the groups, and moved down.
fn is_condition_on_all(plan: &LogicalPlan) -> bool {
    let LogicalPlan::Filter(filter) = plan else { return false };
    matches!(&*filter.input, LogicalPlan::Aggregate(aggregate) if aggregate.group_expr.is_empty())
}

/// A join whose keys compare nulls. A key that is made of an equality would compare them, too.
fn has_keys_of_nulls(plan: &LogicalPlan) -> bool {
    matches!(plan, LogicalPlan::Join(join) if join.null_equality == NullEquality::NullEqualsNull && !join.on.is_empty())
}

/// OFFSET above something volatile, which is computed for the rows that are skipped, too.
fn skips_what_is_volatile(plan: &LogicalPlan) -> bool {
    matches!(plan, LogicalPlan::Limit(limit) if limit.skip.is_some() && volatile_columns(&limit.input).contains(&true))
}

/// Rules that count what they do.
fn counted(rules: Vec<Rule>) -> Vec<Rule> {
    rules.into_iter().map(|rule| Arc::new(Counted(rule)) as Rule).collect()
}

type Rule = Arc<dyn OptimizerRule + Send + Sync>;

#[derive(Debug)]
struct Counted(Rule);

impl OptimizerRule for Counted {
    fn name(&self) -> &str {
        self.0.name()
    }

    fn apply_order(&self) -> Option<ApplyOrder> {
        self.0.apply_order()
    }

    fn rewrite(&self, plan: LogicalPlan, config: &dyn OptimizerConfig) -> Result<Transformed<LogicalPlan>> {
        work::done(64 + plan.schema().fields().len()).map_err(external)?;
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

/// The plans of a query, ready to be run.
pub(crate) struct Optimized {
    pub plan: Arc<LogicalPlan>,
    /// Those of its subqueries.
    pub subqueries: Vec<Option<Arc<LogicalPlan>>>,
    /// Those of its shared results by their numbers: each reads only what stands before it.
    pub shared: Vec<(usize, Arc<LogicalPlan>)>,
}

/// Prepares a bound query's plans for running.
///
/// # Errors
/// When the optimizer fails: a mistake in it, or in the plan; 53200, 57014, 57P01.
pub(crate) fn optimize(bound: &Bound) -> Result<Optimized, SqlError> {
    let mut inlined = HashMap::new();
    let mut shared = Vec::new();
    // One that reads another has the larger number.
    for (number, Used { source, count }) in uses(bound)? {
        let Some(result) = SharedSource::of(source.as_ref()) else { continue };
        result.depends()?;
        let once = count < 2 && !result.is_volatile();
        if !result.fixed.unwrap_or(!once) {
            inlined.insert(number, settle_shared(result.plan().clone(), &inlined)?);
            continue;
        }
        let plan = match result.optimized.get() {
            Some(plan) => Arc::clone(plan),
            None => optimized(result.plan().clone(), &inlined)?,
        };
        // Whichever thread was first has optimized the same.
        let _ = result.optimized.set(Arc::clone(&plan));
        shared.push((number, plan));
    }
    let plan = optimized(bound.plan.clone(), &inlined)?;
    let subqueries = bound
        .subqueries
        .iter()
        .map(|plan| plan.clone().map(|plan| optimized(plan, &inlined)).transpose())
        .collect::<Result<_, _>>()?;
    Ok(Optimized { plan, subqueries, shared })
}

/// Counts what a plan takes, without what it shares.
fn weigh(plan: &LogicalPlan, kept: &Kept) -> Result<(), SqlError> {
    /// About the bytes of an expression, or of a step without its columns.
    const PART: usize = 256;
    let mut bytes = 0;
    plan.apply(|plan| {
        work::done(16).map_err(external)?;
        bytes += PART + plan.schema().fields().len() * FIELD;
        plan.apply_expressions(|expr| {
            expr.apply(|_| {
                work::done(1).map_err(external)?;
                bytes += PART;
                Ok(TreeNodeRecursion::Continue)
            })
        })?;
        kept.grown_to(bytes).map_err(external)?;
        Ok(TreeNodeRecursion::Continue)
    })
    .map(drop)
    .map_err(to_sql)
}

fn optimized(plan: LogicalPlan, inlined: &HashMap<usize, LogicalPlan>) -> Result<Arc<LogicalPlan>, SqlError> {
    let plan = settle_shared(plan, inlined)?;
    check_reach(&[&plan])?;
    // Rules write it again.
    let written = work::kept();
    weigh(&plan, &written)?;
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

/// A shared result, and in how many places it is read.
struct Used {
    source: Arc<dyn TableSource>,
    count: usize,
}

/// What is shared, by its number.
fn uses(bound: &Bound) -> Result<BTreeMap<usize, Used>, SqlError> {
    let mut uses = BTreeMap::new();
    let mut found = Vec::new();
    for plan in std::iter::once(&bound.plan).chain(bound.subqueries.iter().flatten()) {
        count_uses(plan, &mut uses, &mut found)?;
    }
    while let Some(source) = found.pop() {
        if let Some(shared) = SharedSource::of(source.as_ref()) {
            count_uses(shared.plan(), &mut uses, &mut found)?;
        }
    }
    Ok(uses)
}

fn count_uses(
    plan: &LogicalPlan,
    uses: &mut BTreeMap<usize, Used>,
    found: &mut Vec<Arc<dyn TableSource>>,
) -> Result<(), SqlError> {
    plan.apply(|plan| {
        if let LogicalPlan::TableScan(scan) = plan
            && let Some(shared) = SharedSource::of(scan.source.as_ref())
        {
            let source = || Used { source: Arc::clone(&scan.source), count: 0 };
            let used = uses.entry(shared.number).or_insert_with(source);
            used.count += 1;
            if used.count == 1 {
                found.push(Arc::clone(&scan.source));
            }
        }
        Ok(TreeNodeRecursion::Continue)
    })
    .map(drop)
    .map_err(to_sql)
}

/// Puts the plans of shared results where they are read that are not run by themselves.
fn settle_shared(plan: LogicalPlan, inlined: &HashMap<usize, LogicalPlan>) -> Result<LogicalPlan, SqlError> {
    plan.transform_up(|plan| {
        let LogicalPlan::TableScan(scan) = &plan else { return Ok(Transformed::no(plan)) };
        let Some(shared) = SharedSource::of(scan.source.as_ref()) else { return Ok(Transformed::no(plan)) };
        let Some(inner) = inlined.get(&shared.number).cloned() else { return Ok(Transformed::no(plan)) };
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
