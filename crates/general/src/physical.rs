//! From a logical plan to operators.
//!
//! All of them have one partition. Nothing has to be asked for asynchronously, and orders are made
//! where they are needed, so no further rules go over the result.

use std::sync::{Arc, LazyLock};

use arrow::{
    compute::SortOptions,
    datatypes::{DataType, Schema},
};
use datafusion_common::{
    Column, DFSchema, DataFusionError, JoinSide, NullEquality, Result, ScalarValue, config::ConfigOptions,
    tree_node::TreeNode,
};
use datafusion_expr::{
    Aggregate, ColumnarValue, Expr, Extension, Join, JoinType, Limit, LogicalPlan, ScalarFunctionArgs, ScalarUDFImpl,
    Signature, TableScan, Volatility, Window,
    execution_props::ExecutionProps,
    expr::{AggregateFunctionParams, Alias, Case, Sort as SortExpr},
    physical_planning_context::PhysicalPlanningContext,
};
use datafusion_physical_expr::{
    LexOrdering, PhysicalExpr, PhysicalSortExpr,
    aggregate::{AggregateExprBuilder, AggregateFunctionExpr},
    create_physical_expr,
    expressions::Column as ColumnExpr,
    expressions::Literal,
};
use datafusion_physical_plan::{
    ExecutionPlan, WindowExpr,
    aggregates::{AggregateExec, AggregateMode, PhysicalGroupBy},
    filter::FilterExecBuilder,
    joins::{
        CrossJoinExec, HashJoinExec, NestedLoopJoinExec, PartitionMode,
        utils::{ColumnIndex, JoinFilter},
    },
    limit::GlobalLimitExec,
    projection::ProjectionExec,
    sorts::sort::SortExec,
    windows::{WindowAggExec, create_window_expr},
};
use freshet_sql::SqlError;

use crate::{
    bind::FIELD,
    error::external,
    estimate::UNKNOWN_ROWS,
    exec::{
        ApplyExec, ConcatExec, ExpandCall, ExpandExec, LimitExec, LockExec, LockedTable, MeterExec, RecursiveExec,
        ScanExec, SharedExec, UniqueExec, ValuesExec, WatchExec, WorkExec, counted, look_up,
    },
    function::{Outer, call, called},
    lazy::lazily,
    node::{Apply, Computed, Expand, Lock, Mark, Recursive, Unique},
    session,
    source::{RelationSource, SharedSource, WorkSource},
};

static PROPS: LazyLock<ExecutionProps> = LazyLock::new(|| ExecutionProps {
    config_options: Some(Arc::new(ConfigOptions::default())),
    ..ExecutionProps::new()
});

/// About how many bytes an operator takes, besides its columns.
const OPERATOR: usize = 1024;

/// An operator, and about how many rows come out of it.
struct Made {
    plan: Arc<dyn ExecutionPlan>,
    rows: f64,
}

/// The operators of a plan.
///
/// # Errors
/// When the plan has something in it that cannot be run, and what its LIMIT returns.
pub(crate) fn physical(plan: &LogicalPlan) -> Result<Arc<dyn ExecutionPlan>> {
    make(plan, None).map(|made| made.plan)
}

/// Makes the operators of a shared result: however often it is read, once.
///
/// # Errors
/// As for [`physical`].
pub(crate) fn shared(number: usize, plan: &LogicalPlan) -> Result<()> {
    let Made { plan, rows } = make(plan, None)?;
    session::with(|session| {
        session.state.put_shared_plan(number, plan, rows);
        Ok(())
    })
}

pub(crate) fn expr(expr: &Expr, schema: &DFSchema) -> Result<Arc<dyn PhysicalExpr>> {
    lazily(create_physical_expr(expr, schema, &PROPS, &PhysicalPlanningContext::default())?)
}

fn exprs(exprs: &[Expr], schema: &DFSchema) -> Result<Vec<Arc<dyn PhysicalExpr>>> {
    exprs.iter().map(|each| expr(each, schema)).collect()
}

fn sort_exprs(sorts: &[SortExpr], schema: &DFSchema) -> Result<Vec<PhysicalSortExpr>> {
    sorts
        .iter()
        .map(|sort| {
            let options = SortOptions::new(!sort.asc, sort.nulls_first);
            Ok(PhysicalSortExpr::new(expr(&sort.expr, schema)?, options))
        })
        .collect()
}

#[cold]
fn unexpected(what: &str) -> DataFusionError {
    DataFusionError::Internal(format!("{what} in a plan"))
}

/// The operator of a plan, of whose rows no more than `fetch` are wanted.
fn make(plan: &LogicalPlan, fetch: Option<usize>) -> Result<Made> {
    session::with(|session| session.state.makes(OPERATOR + plan.schema().fields().len() * FIELD))?;
    Ok(match plan {
        LogicalPlan::Projection(projection) => {
            let input = make(&projection.input, fetch)?;
            let schema = projection.input.schema();
            let exprs = projection
                .expr
                .iter()
                .zip(projection.schema.fields())
                .map(|(each, field)| Ok((expr(each, schema)?, field.name().clone())))
                .collect::<Result<Vec<_>>>()?;
            let is_identity = exprs.len() == schema.fields().len()
                && exprs.iter().enumerate().all(|(at, (expr, name))| {
                    expr.downcast_ref::<ColumnExpr>()
                        .is_some_and(|column| column.index() == at && column.name() == name)
                });
            if is_identity {
                return Ok(input);
            }
            let plan: Arc<dyn ExecutionPlan> = Arc::new(ProjectionExec::try_new(exprs, input.plan)?);
            let is_volatile = projection.expr.iter().any(Expr::is_volatile);
            Made { plan: if is_volatile { Arc::new(WatchExec::opaque(plan)) } else { plan }, rows: input.rows }
        }
        LogicalPlan::Filter(filter) => {
            let input = make(&filter.input, None)?;
            let predicate = expr(&filter.predicate, filter.input.schema())?;
            let plan = FilterExecBuilder::new(predicate, input.plan)
                .with_fetch(fetch)
                .with_batch_size(session::with(|session| Ok(session.state.batch_rows()))?)
                .build()?;
            Made { plan: Arc::new(plan), rows: (input.rows * 0.2).max(1.0) }
        }
        LogicalPlan::Aggregate(aggregate) => make_aggregate(aggregate)?,
        LogicalPlan::Window(window) => make_window(window)?,
        LogicalPlan::Sort(sort) => {
            let input = make(&sort.input, None)?;
            let sorts = sort_exprs(&sort.expr, sort.input.schema())?;
            let fetch = match (sort.fetch, fetch) {
                (Some(one), Some(two)) => Some(one.min(two)),
                (one, two) => one.or(two),
            };
            // A limit may have become a part of it.
            if fetch == Some(0) { nothing(sort.input.schema()) } else { sorted(input, sorts, fetch) }
        }
        LogicalPlan::Join(join) => make_join(join)?,
        LogicalPlan::Union(union) => {
            let inputs = union.inputs.iter().map(|input| make(input, fetch)).collect::<Result<Vec<_>>>()?;
            let rows = inputs.iter().map(|input| input.rows).sum();
            let inputs = inputs.into_iter().map(|input| input.plan).collect();
            Made { plan: Arc::new(ConcatExec::new(inputs, Arc::clone(plan.schema().inner()))), rows }
        }
        LogicalPlan::TableScan(scan) => make_scan(scan, fetch)?,
        LogicalPlan::EmptyRelation(empty) => {
            let count = usize::from(empty.produce_one_row);
            let nulls = empty
                .schema
                .fields()
                .iter()
                .map(|field| {
                    let null = ScalarValue::try_from(field.data_type())?;
                    Ok(Arc::new(Literal::new(null)) as Arc<dyn PhysicalExpr>)
                })
                .collect::<Result<Vec<_>>>()?;
            let values = ValuesExec::new(vec![nulls; count], Arc::clone(empty.schema.inner()));
            Made { plan: Arc::new(values), rows: count as f64 }
        }
        LogicalPlan::Values(values) => {
            let none = DFSchema::empty();
            let rows = values.values.iter().map(|row| exprs(row, &none)).collect::<Result<Vec<_>>>()?;
            let count = rows.len() as f64;
            Made { plan: Arc::new(ValuesExec::new(rows, Arc::clone(values.schema.inner()))), rows: count }
        }
        LogicalPlan::SubqueryAlias(alias) => make(&alias.input, fetch)?,
        LogicalPlan::Limit(limit) => make_limit(limit, fetch)?,
        LogicalPlan::Extension(extension) => make_extension(plan, extension, fetch)?,
        other => return Err(unexpected(&format!("{} is not known", other.display()))),
    })
}

/// A plan without rows.
fn nothing(schema: &DFSchema) -> Made {
    Made { plan: Arc::new(ValuesExec::new(Vec::new(), Arc::clone(schema.inner()))), rows: 0.0 }
}

fn sorted(input: Made, sorts: Vec<PhysicalSortExpr>, fetch: Option<usize>) -> Made {
    let Some(ordering) = LexOrdering::new(sorts) else { return input };
    let rows = fetch.map_or(input.rows, |fetch| input.rows.min(fetch as f64));
    Made { plan: Arc::new(SortExec::new(ordering, input.plan).with_fetch(fetch)), rows }
}

fn make_aggregate(aggregate: &Aggregate) -> Result<Made> {
    let input = make(&aggregate.input, None)?;
    let schema = aggregate.input.schema();
    let input_schema = input.plan.schema();
    let mut groups = Vec::with_capacity(aggregate.group_expr.len());
    for (each, field) in aggregate.group_expr.iter().zip(aggregate.schema.fields()) {
        groups.push((expr(each, schema)?, field.name().clone()));
    }
    let mut functions: Vec<Arc<AggregateFunctionExpr>> = Vec::with_capacity(aggregate.aggr_expr.len());
    let mut filters = Vec::with_capacity(aggregate.aggr_expr.len());
    let fields = aggregate.schema.fields();
    for (each, field) in aggregate.aggr_expr.iter().zip(&fields[groups.len()..]) {
        let each = match each {
            Expr::Alias(Alias { expr, .. }) => expr.as_ref(),
            each => each,
        };
        let Expr::AggregateFunction(function) = each else { return Err(unexpected("an aggregate that is none")) };
        let arguments = exprs(&wanted_arguments(&function.params), schema)?;
        let built = AggregateExprBuilder::new(Arc::clone(&function.func), arguments)
            .schema(Arc::clone(&input_schema))
            .alias(field.name())
            .build()?;
        functions.push(Arc::new(built));
        let filter = function.params.filter.as_deref().map(|filter| expr(filter, schema)).transpose()?;
        filters.push(filter);
    }
    let rows = if groups.is_empty() { 1.0 } else { (input.rows * 0.1).max(1.0) };
    let plan = AggregateExec::try_new(
        AggregateMode::Single,
        PhysicalGroupBy::new_single(groups),
        functions,
        filters,
        input.plan,
        input_schema,
    )?;
    Ok(Made { plan: Arc::new(plan), rows })
}

/// The arguments of an aggregate, computed for the rows alone that its FILTER leaves.
fn wanted_arguments(params: &AggregateFunctionParams) -> Vec<Expr> {
    let plain = |expr: &Expr| matches!(expr, Expr::Column(_) | Expr::Literal(..));
    let Some(filter) = params.filter.as_deref().filter(|filter| !filter.is_volatile()) else {
        return params.args.clone();
    };
    let wanted = |argument: &Expr| match plain(argument) {
        true => argument.clone(),
        false => {
            let when_then_expr = vec![(Box::new(filter.clone()), Box::new(argument.clone()))];
            Expr::Case(Case { expr: None, when_then_expr, else_expr: None })
        }
    };
    params.args.iter().map(wanted).collect()
}

fn make_window(window: &Window) -> Result<Made> {
    let input = make(&window.input, None)?;
    let schema = window.input.schema();
    let mut windows: Vec<Arc<dyn WindowExpr>> = Vec::with_capacity(window.window_expr.len());
    let mut sorts = Vec::new();
    let input_schema = input.plan.schema();
    let fields = window.schema.fields();
    for (each, field) in window.window_expr.iter().zip(&fields[schema.fields().len()..]) {
        let each = match each {
            Expr::Alias(Alias { expr, .. }) => expr.as_ref(),
            each => each,
        };
        let Expr::WindowFunction(function) = each else { return Err(unexpected("a window function that is none")) };
        let params = &function.params;
        let partition_by = exprs(&params.partition_by, schema)?;
        let order_by = sort_exprs(&params.order_by, schema)?;
        if sorts.is_empty() {
            let options = SortOptions { descending: false, nulls_first: false };
            sorts.extend(partition_by.iter().map(|expr| PhysicalSortExpr::new(Arc::clone(expr), options)));
            sorts.extend(order_by.iter().cloned());
        }
        let filter = params.filter.as_deref().map(|filter| expr(filter, schema)).transpose()?;
        windows.push(create_window_expr(
            &function.fun,
            field.name().clone(),
            &exprs(&params.args, schema)?,
            &partition_by,
            &order_by,
            Arc::new(params.window_frame.clone()),
            Arc::clone(&input_schema),
            false,
            false,
            filter,
        )?);
    }
    let input = sorted(input, sorts, None);
    let metered = Arc::new(MeterExec::new(input.plan));
    Ok(Made { plan: Arc::new(WindowAggExec::try_new(windows, metered, false)?), rows: input.rows })
}

/// A condition of a join, through which interruptions are noticed.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Watched {
    signature: Signature,
}

impl ScalarUDFImpl for Watched {
    fn name(&self) -> &'static str {
        "watched"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(DataType::Boolean)
    }

    fn coerce_types(&self, arguments: &[DataType]) -> Result<Vec<DataType>> {
        Ok(arguments.to_vec())
    }

    fn invoke_with_args(&self, arguments: ScalarFunctionArgs) -> Result<ColumnarValue> {
        session::check()?;
        arguments.args.into_iter().next().ok_or_else(|| unexpected("a condition without an argument"))
    }
}

/// A join's condition, on the columns that it needs.
fn join_filter(condition: &Expr, left: &DFSchema, right: &DFSchema) -> Result<JoinFilter> {
    let mut columns: Vec<&Column> = condition.column_refs().into_iter().collect();
    columns.sort();
    let mut indices = Vec::with_capacity(columns.len());
    let mut fields = Vec::with_capacity(columns.len());
    for column in columns {
        let (side, schema, index) = match left.maybe_index_of_column(column) {
            Some(index) => (JoinSide::Left, left, index),
            None => (JoinSide::Right, right, right.index_of_column(column)?),
        };
        let (qualifier, field) = schema.qualified_field(index);
        fields.push((qualifier.cloned(), Arc::clone(field)));
        indices.push(ColumnIndex { index, side });
    }
    let schema = DFSchema::new_with_metadata(fields, std::collections::HashMap::new())?;
    let watched = Watched { signature: Signature::user_defined(Volatility::Volatile) };
    let condition = expr(&call(watched, vec![condition.clone()]), &schema)?;
    let schema = Arc::new(Schema::new(schema.fields().clone()));
    Ok(JoinFilter::new(condition, indices, schema))
}

fn make_join(join: &Join) -> Result<Made> {
    let left = make(&join.left, None)?;
    let right = make(&join.right, None)?;
    let (left_schema, right_schema) = (join.left.schema(), join.right.schema());
    let filter = join.filter.as_ref().map(|filter| join_filter(filter, left_schema, right_schema)).transpose()?;
    // The side that is kept in memory is the left one.
    let swap = left.rows > right.rows && join.join_type.supports_swap() && !join.null_aware;
    let matches = match join.join_type {
        JoinType::LeftSemi | JoinType::LeftAnti => left.rows,
        JoinType::RightSemi | JoinType::RightAnti => right.rows,
        _ => left.rows.max(right.rows),
    };
    if join.on.is_empty() {
        let product = left.rows * right.rows;
        if filter.is_none() && join.join_type == JoinType::Inner {
            // The order of columns is that of the sides, so these are not exchanged.
            let plan = Arc::new(CrossJoinExec::new(left.plan, right.plan));
            return Ok(Made { plan: Arc::new(WatchExec::new(plan)), rows: product });
        }
        let plan = NestedLoopJoinExec::try_new(left.plan, right.plan, filter, &join.join_type, None)?;
        let plan: Arc<dyn ExecutionPlan> = if swap { plan.swap_inputs()? } else { Arc::new(plan) };
        return Ok(Made { plan: Arc::new(WatchExec::new(plan)), rows: (product * 0.1).max(1.0) });
    }
    let mut on = Vec::with_capacity(join.on.len());
    for (one, two) in &join.on {
        on.push((expr(one, left_schema)?, expr(two, right_schema)?));
    }
    let join_type = if swap { join.join_type.swap() } else { join.join_type };
    let (first, second) = if swap { (right, left) } else { (left, right) };
    let on = if swap { on.into_iter().map(|(one, two)| (two, one)).collect() } else { on };
    let filter = if swap { filter.map(|filter| filter.swap()) } else { filter };
    // Rows on the right that match nothing are not wanted.
    let matching_only = matches!(
        join_type,
        JoinType::Inner | JoinType::Left | JoinType::LeftSemi | JoinType::LeftAnti | JoinType::RightSemi
    );
    let unnull = join.null_equality == NullEquality::NullEqualsNothing && !join.null_aware;
    let (first_plan, second_plan) = if matching_only && unnull && first.rows < second.rows {
        look_up(first.plan, second.plan, &on)?
    } else {
        (first.plan, second.plan)
    };
    let widths = (first_plan.schema().fields().len(), second_plan.schema().fields().len());
    let both_sides =
        !matches!(join_type, JoinType::LeftSemi | JoinType::LeftAnti | JoinType::RightSemi | JoinType::RightAnti);
    // The columns stay in the order of the sides as they were.
    let order = (swap && both_sides).then(|| (widths.0..widths.0 + widths.1).chain(0..widths.0).collect());
    let plan = HashJoinExec::try_new(
        first_plan,
        second_plan,
        on,
        filter,
        &join_type,
        order,
        PartitionMode::CollectLeft,
        join.null_equality,
        join.null_aware,
    )?;
    Ok(Made { plan: Arc::new(WatchExec::new(Arc::new(plan))), rows: matches })
}

fn make_scan(scan: &TableScan, fetch: Option<usize>) -> Result<Made> {
    let schema = Arc::clone(scan.projected_schema.inner());
    let all = || (0..scan.source.schema().fields().len()).collect();
    let columns: Vec<usize> = scan.projection.clone().unwrap_or_else(all);
    let source = scan.source.as_ref();
    if let Some(relation) = RelationSource::of(source) {
        let condition = |filter| relation.condition(filter)?.ok_or_else(|| unexpected("a scan's filter that is none"));
        let conditions = scan.filters.iter().map(condition).collect::<Result<_>>()?;
        let limit = match (scan.fetch, fetch) {
            (Some(one), Some(two)) => Some(one.min(two)),
            (one, two) => one.or(two),
        };
        let (relation, name) = (Arc::clone(&relation.relation), relation.name.clone());
        let plan = ScanExec::new(relation, name, columns, conditions, limit, schema);
        let rows = plan.estimate().map_or(UNKNOWN_ROWS, |rows| rows as f64);
        return Ok(Made { plan: Arc::new(plan), rows });
    }
    if let Some(shared) = SharedSource::of(source) {
        let rows = session::with(|session| session.state.shared_estimate(shared.number))?;
        let depends = shared.depends().map_err(external)?.clone();
        let plan = SharedExec::new(shared.number, depends, columns, schema);
        return Ok(Made { plan: Arc::new(plan), rows });
    }
    if let Some(work) = WorkSource::of(source) {
        let plan = WorkExec::new(work.number, work.name.clone(), columns, schema);
        return Ok(Made { plan: Arc::new(plan), rows: UNKNOWN_ROWS });
    }
    Err(unexpected("a source of another kind"))
}

fn make_limit(limit: &Limit, fetch: Option<usize>) -> Result<Made> {
    let counts = [limit.skip.as_deref(), limit.fetch.as_deref()];
    if counts.into_iter().flatten().any(sees_outside) {
        // It is another one for each row outside.
        let count = |count: Option<&Expr>| count.map(|count| expr(count, &DFSchema::empty())).transpose();
        let (skip, own) = (count(counts[0])?, count(counts[1])?);
        let input = make(&limit.input, None)?;
        return Ok(Made { plan: Arc::new(LimitExec::new(input.plan, skip, own)), rows: input.rows });
    }
    let skip = limit.skip.as_deref().map(|skip| row_count(skip, "OFFSET")).transpose()?.flatten().unwrap_or(0);
    let own = limit.fetch.as_deref().map(|fetch| row_count(fetch, "LIMIT")).transpose()?.flatten();
    let fetch = match (own, fetch) {
        (Some(one), Some(two)) => Some(one.min(two)),
        (one, two) => one.or(two),
    };
    if fetch == Some(0) {
        return Ok(nothing(limit.input.schema()));
    }
    let wanted = fetch.and_then(|fetch| fetch.checked_add(skip));
    let input = make(&limit.input, wanted)?;
    let rows = fetch.map_or(input.rows, |fetch| input.rows.min(fetch as f64));
    Ok(Made { plan: Arc::new(GlobalLimitExec::new(input.plan, skip, fetch)), rows })
}

/// Whether an expression takes something from the row around its subquery.
fn sees_outside(expr: &Expr) -> bool {
    expr.exists(|expr| Ok(called::<Outer>(expr).is_some())).unwrap_or(true)
}

/// The number that LIMIT or OFFSET say; null says nothing.
fn row_count(count: &Expr, clause: &'static str) -> Result<Option<usize>> {
    counted(&expr(count, &DFSchema::empty())?, clause)
}

fn make_extension(plan: &LogicalPlan, extension: &Extension, fetch: Option<usize>) -> Result<Made> {
    let schema = Arc::clone(plan.schema().inner());
    let node = extension.node.as_any();
    if let Some(expand) = node.downcast_ref::<Expand>() {
        let input = make(&expand.input, None)?;
        let mut calls = Vec::with_capacity(expand.calls.len());
        for call in &expand.calls {
            let arguments = call
                .arguments
                .iter()
                .map(|(each, ty)| Ok((expr(each, expand.input.schema())?, *ty)))
                .collect::<Result<_>>()?;
            let columns = call.columns.iter().map(|(_, ty)| *ty).collect();
            calls.push(ExpandCall { series: call.series, arguments, columns });
        }
        let rows = input.rows * 10.0;
        let plan = ExpandExec::new(input.plan, calls, expand.ordinality.is_some(), expand.outer, schema);
        return Ok(Made { plan: Arc::new(plan), rows });
    }
    if let Some(apply) = node.downcast_ref::<Apply>() {
        let input = make(&apply.input, None)?;
        let captures = exprs(&apply.captures, apply.input.schema())?;
        let plan = ApplyExec::new(input.plan, apply.subquery, captures, apply.outer, schema);
        return Ok(Made { plan: Arc::new(plan), rows: input.rows * 2.0 });
    }
    if let Some(unique) = node.downcast_ref::<Unique>() {
        let input = make(&unique.input, None)?;
        let keys = exprs(&unique.keys, unique.input.schema())?;
        return Ok(Made { plan: Arc::new(UniqueExec::new(input.plan, keys)), rows: input.rows });
    }
    if let Some(computed) = node.downcast_ref::<Computed>() {
        return make(&computed.input, fetch);
    }
    if let Some(lock) = node.downcast_ref::<Lock>() {
        let input = make(&lock.input, None)?;
        let table = |mark: &Mark| {
            let row = expr(&mark.row, lock.input.schema())?;
            Ok(LockedTable { table: Arc::clone(&mark.table), row, mark: mark.mark })
        };
        let tables = lock.marks.iter().map(table).collect::<Result<_>>()?;
        return Ok(Made { plan: Arc::new(LockExec::new(input.plan, tables)), rows: input.rows });
    }
    if let Some(recursive) = node.downcast_ref::<Recursive>() {
        let (base, step) = (make(&recursive.base, None)?, make(&recursive.step, None)?);
        let rows = (base.rows + step.rows) * 4.0;
        let (name, distinct) = (recursive.name.clone(), recursive.distinct.clone());
        let plan = RecursiveExec::new(base.plan, step.plan, recursive.number, name, distinct, schema);
        return Ok(Made { plan: Arc::new(plan), rows });
    }
    Err(external(SqlError::internal(format!("{} in a plan is not known", extension.node.name()))))
}
