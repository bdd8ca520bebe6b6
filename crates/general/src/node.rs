//! Steps of logical plans that DataFusion does not have.

use std::{
    cmp::Ordering,
    collections::HashSet,
    fmt,
    hash::{Hash, Hasher},
    sync::Arc,
};

use datafusion_common::{
    DFSchema, DFSchemaRef, Result, TableReference,
    tree_node::{TreeNode as _, TreeNodeRecursion},
};
use datafusion_expr::{
    EmptyRelation, Expr, Extension, LogicalPlan, Sort, UserDefinedLogicalNode, UserDefinedLogicalNodeCore, Values,
    expr::Sort as SortExpr,
};
use freshet_sql::{SqlError, SqlState, Type, general::Lockable, locking::RowMark};

use crate::{
    bind::depends_on,
    error::to_sql,
    function::called,
    layout::field,
    series::SeriesCall,
    source::SharedSource,
    subquery::{Depends, Runs, SubqueryFunction},
};

/// One row without columns.
pub(crate) fn one_row() -> LogicalPlan {
    LogicalPlan::EmptyRelation(EmptyRelation { produce_one_row: true, schema: Arc::new(DFSchema::empty()) })
}

/// Rows that are written out.
///
/// # Errors
/// When columns have the same name: never.
pub(crate) fn values(values: Vec<Vec<Expr>>, names: &[String], types: &[Type]) -> Result<LogicalPlan, SqlError> {
    let schema = Arc::new(schema_of(names.iter().map(String::as_str).zip(types.iter().copied()), &[])?);
    Ok(LogicalPlan::Values(Values { schema, values }))
}

/// Sorts, if there is anything to sort by.
pub(crate) fn sorted(input: LogicalPlan, expr: Vec<SortExpr>) -> Result<LogicalPlan, SqlError> {
    if expr.is_empty() {
        return Ok(input);
    }
    Ok(LogicalPlan::Sort(Sort { expr, input: Arc::new(input), fetch: None }))
}

/// The error for a LIMIT or OFFSET below zero.
#[cold]
pub(crate) fn negative_count(clause: &'static str) -> SqlError {
    let state = if clause == "LIMIT" {
        SqlState::INVALID_ROW_COUNT_IN_LIMIT_CLAUSE
    } else {
        SqlState::INVALID_ROW_COUNT_IN_RESULT_OFFSET_CLAUSE
    };
    SqlError::new(state, format!("{clause} must not be negative"))
}

fn schema_of<'a>(columns: impl Iterator<Item = (&'a str, Type)>, before: &[&DFSchema]) -> Result<DFSchema, SqlError> {
    let mut fields: Vec<(Option<TableReference>, _)> = Vec::new();
    for schema in before {
        fields.extend(schema.iter().map(|(qualifier, field)| (qualifier.cloned(), Arc::clone(field))));
    }
    fields.extend(columns.map(|(name, ty)| (None, field(name, ty))));
    DFSchema::new_with_metadata(fields, std::collections::HashMap::new()).map_err(to_sql)
}

fn nullable(schema: &DFSchema) -> Result<DFSchema, SqlError> {
    let fields = schema
        .iter()
        .map(|(qualifier, field)| (qualifier.cloned(), Arc::new(field.as_ref().clone().with_nullable(true))))
        .collect();
    DFSchema::new_with_metadata(fields, std::collections::HashMap::new()).map_err(to_sql)
}

fn extension(node: impl UserDefinedLogicalNode + 'static) -> LogicalPlan {
    LogicalPlan::Extension(Extension { node: Arc::new(node) })
}

/// Nodes have no order.
macro_rules! unordered {
    ($($node:ty),+) => {$(
        impl PartialOrd for $node {
            fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
                (self == other).then_some(Ordering::Equal)
            }
        }
    )+};
}

unordered!(Expand, Apply, Unique, Recursive, Lock, Computed);

/// Each row once for each row that functions return for it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Expand {
    pub input: Arc<LogicalPlan>,
    pub calls: Vec<SeriesCall>,
    /// The column that numbers the functions' rows.
    pub ordinality: Option<String>,
    /// Whether a row for which there is nothing stays.
    pub outer: bool,
    schema: DFSchemaRef,
}

impl Expand {
    pub fn plan(
        input: LogicalPlan,
        calls: Vec<SeriesCall>,
        ordinality: Option<String>,
        outer: bool,
    ) -> Result<LogicalPlan, SqlError> {
        let columns = calls
            .iter()
            .flat_map(|call| call.columns.iter().map(|(name, ty)| (name.as_str(), *ty)))
            .chain(ordinality.iter().map(|name| (name.as_str(), Type::INT8)));
        let schema = Arc::new(schema_of(columns, &[input.schema()])?);
        Ok(extension(Self { input: Arc::new(input), calls, ordinality, outer, schema }))
    }
}

impl UserDefinedLogicalNodeCore for Expand {
    fn name(&self) -> &'static str {
        "Expand"
    }

    fn inputs(&self) -> Vec<&LogicalPlan> {
        vec![&self.input]
    }

    fn schema(&self) -> &DFSchemaRef {
        &self.schema
    }

    fn expressions(&self) -> Vec<Expr> {
        self.calls.iter().flat_map(|call| call.arguments.iter().map(|(expr, _)| expr.clone())).collect()
    }

    fn prevent_predicate_push_down_columns(&self) -> HashSet<String> {
        let made = self.calls.iter().flat_map(|call| call.columns.iter().map(|(name, _)| name.clone()));
        made.chain(self.ordinality.clone()).collect()
    }

    fn fmt_for_explain(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let calls: Vec<String> = self.calls.iter().map(ToString::to_string).collect();
        write!(f, "Expand: {}", calls.join(", "))
    }

    fn with_exprs_and_inputs(&self, exprs: Vec<Expr>, inputs: Vec<LogicalPlan>) -> Result<Self> {
        let mut exprs = exprs.into_iter();
        let mut node = self.clone();
        for call in &mut node.calls {
            for (argument, _) in &mut call.arguments {
                if let Some(expr) = exprs.next() {
                    *argument = expr;
                }
            }
        }
        if let Some(input) = inputs.into_iter().next() {
            let columns = node
                .calls
                .iter()
                .flat_map(|call| call.columns.iter().map(|(name, ty)| (name.as_str(), *ty)))
                .chain(node.ordinality.iter().map(|name| (name.as_str(), Type::INT8)));
            node.schema = Arc::new(schema_of(columns, &[input.schema()]).map_err(crate::error::external)?);
            node.input = Arc::new(input);
        }
        Ok(node)
    }

    fn necessary_children_exprs(&self, output_columns: &[usize]) -> Option<Vec<Vec<usize>>> {
        let count = self.input.schema().fields().len();
        Some(vec![output_columns.iter().copied().filter(|column| *column < count).collect()])
    }
}

/// Each row once for each row of a query that depends on it.
#[derive(Clone, Debug)]
pub(crate) struct Apply {
    pub input: Arc<LogicalPlan>,
    /// The number of the query that runs for each row.
    pub subquery: usize,
    /// What it takes from the row.
    pub captures: Vec<Expr>,
    /// Whether a row for which there is nothing stays.
    pub outer: bool,
    /// On what its rows depend besides that.
    pub depends: Depends,
    /// Whether the query is volatile.
    volatile: bool,
    right: DFSchema,
    schema: DFSchemaRef,
}

impl PartialEq for Apply {
    fn eq(&self, other: &Self) -> bool {
        (&self.input, self.subquery, &self.captures, self.outer)
            == (&other.input, other.subquery, &other.captures, other.outer)
    }
}

impl Eq for Apply {}

impl Hash for Apply {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (&self.input, self.subquery, &self.captures, self.outer).hash(state);
    }
}

impl Apply {
    pub fn plan(
        input: LogicalPlan,
        subquery: usize,
        captures: Vec<Expr>,
        query: &LogicalPlan,
        outer: bool,
    ) -> Result<LogicalPlan, SqlError> {
        let mut depends = depends_on(query)?;
        depends.outers.retain(|outer| outer.subquery != subquery);
        let (volatile, right) = (is_volatile(query), query.schema().as_ref());
        // Where there is nothing on the right, all of it is null.
        let right = if outer { nullable(right)? } else { right.clone() };
        let schema = Arc::new(schema_of(std::iter::empty(), &[input.schema(), &right])?);
        Ok(extension(Self { input: Arc::new(input), subquery, captures, outer, depends, volatile, right, schema }))
    }
}

impl UserDefinedLogicalNodeCore for Apply {
    fn name(&self) -> &'static str {
        "Apply"
    }

    fn inputs(&self) -> Vec<&LogicalPlan> {
        vec![&self.input]
    }

    fn schema(&self) -> &DFSchemaRef {
        &self.schema
    }

    fn expressions(&self) -> Vec<Expr> {
        self.captures.clone()
    }

    fn prevent_predicate_push_down_columns(&self) -> HashSet<String> {
        self.right.fields().iter().map(|field| field.name().clone()).collect()
    }

    fn fmt_for_explain(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Apply: subquery {}", self.subquery)
    }

    fn with_exprs_and_inputs(&self, exprs: Vec<Expr>, inputs: Vec<LogicalPlan>) -> Result<Self> {
        let mut node = self.clone();
        node.captures = exprs;
        if let Some(input) = inputs.into_iter().next() {
            node.schema = Arc::new(
                schema_of(std::iter::empty(), &[input.schema(), &self.right]).map_err(crate::error::external)?,
            );
            node.input = Arc::new(input);
        }
        Ok(node)
    }

    fn necessary_children_exprs(&self, output_columns: &[usize]) -> Option<Vec<Vec<usize>>> {
        let count = self.input.schema().fields().len();
        Some(vec![output_columns.iter().copied().filter(|column| *column < count).collect()])
    }
}

/// The first row of those that have equal keys and follow each other.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Unique {
    pub input: Arc<LogicalPlan>,
    pub keys: Vec<Expr>,
}

impl Unique {
    pub fn plan(input: LogicalPlan, keys: Vec<Expr>) -> LogicalPlan {
        extension(Self { input: Arc::new(input), keys })
    }
}

impl UserDefinedLogicalNodeCore for Unique {
    fn name(&self) -> &'static str {
        "Unique"
    }

    fn inputs(&self) -> Vec<&LogicalPlan> {
        vec![&self.input]
    }

    fn schema(&self) -> &DFSchemaRef {
        self.input.schema()
    }

    fn expressions(&self) -> Vec<Expr> {
        self.keys.clone()
    }

    fn fmt_for_explain(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Unique")
    }

    fn with_exprs_and_inputs(&self, exprs: Vec<Expr>, inputs: Vec<LogicalPlan>) -> Result<Self> {
        let input = inputs.into_iter().next().map_or_else(|| Arc::clone(&self.input), Arc::new);
        Ok(Self { input, keys: exprs })
    }

    fn necessary_children_exprs(&self, output_columns: &[usize]) -> Option<Vec<Vec<usize>>> {
        Some(vec![output_columns.to_vec()])
    }
}

/// A table whose rows are locked.
#[derive(Clone, Debug)]
pub(crate) struct Mark {
    pub table: Arc<dyn Lockable>,
    /// By what they are locked.
    pub row: Expr,
    pub mark: RowMark,
    /// Whether there is an outer join that may have no row of it, unless a condition asks for one.
    pub nullable: bool,
}

impl PartialEq for Mark {
    fn eq(&self, other: &Self) -> bool {
        (self.table.oid(), &self.row, self.mark) == (other.table.oid(), &other.row, other.mark)
    }
}

impl Eq for Mark {}

impl Hash for Mark {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (self.table.oid(), &self.row).hash(state);
    }
}

/// Rows; those of some tables are locked as they come by.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Lock {
    pub input: Arc<LogicalPlan>,
    pub marks: Vec<Mark>,
    /// Whether all rows of the input are locked, whichever of them are wanted outside.
    closed: bool,
}

impl Lock {
    pub fn plan(input: LogicalPlan, marks: Vec<Mark>, closed: bool) -> LogicalPlan {
        extension(Self { input: Arc::new(input), marks, closed })
    }
}

impl UserDefinedLogicalNodeCore for Lock {
    fn name(&self) -> &'static str {
        "Lock"
    }

    fn inputs(&self) -> Vec<&LogicalPlan> {
        vec![&self.input]
    }

    fn schema(&self) -> &DFSchemaRef {
        self.input.schema()
    }

    fn expressions(&self) -> Vec<Expr> {
        self.marks.iter().map(|mark| mark.row.clone()).collect()
    }

    fn prevent_predicate_push_down_columns(&self) -> HashSet<String> {
        match self.closed {
            true => self.input.schema().fields().iter().map(|field| field.name().clone()).collect(),
            // Rows that are not wanted outside are not locked.
            false => HashSet::new(),
        }
    }

    fn fmt_for_explain(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Lock")
    }

    fn with_exprs_and_inputs(&self, exprs: Vec<Expr>, inputs: Vec<LogicalPlan>) -> Result<Self> {
        let mut node = self.clone();
        node.marks.iter_mut().zip(exprs).for_each(|(mark, expr)| mark.row = expr);
        if let Some(input) = inputs.into_iter().next() {
            node.input = Arc::new(input);
        }
        Ok(node)
    }

    fn necessary_children_exprs(&self, output_columns: &[usize]) -> Option<Vec<Vec<usize>>> {
        Some(vec![output_columns.to_vec()])
    }
}

/// Rows of a query in FROM whose list does something, or gives another value each time: all columns
/// are computed, once for each row, whichever of them are read.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Computed {
    pub input: Arc<LogicalPlan>,
    /// The columns that are computed so.
    volatile: Vec<String>,
    /// Whether they are computed for no more rows than a LIMIT in the query leaves, and for all of
    /// these.
    limited: bool,
}

impl Computed {
    /// The plan as it is, unless a column of it is volatile.
    pub fn plan(input: LogicalPlan) -> LogicalPlan {
        let schema = Arc::clone(input.schema());
        let volatile = volatile_columns(&input).into_iter().zip(schema.fields());
        let volatile: Vec<String> =
            volatile.filter(|(volatile, _)| *volatile).map(|(_, field)| field.name().clone()).collect();
        match volatile.is_empty() {
            true => input,
            false => {
                let limited = is_limited(&input);
                extension(Self { input: Arc::new(input), volatile, limited })
            }
        }
    }
}

fn is_limited(plan: &LogicalPlan) -> bool {
    match plan {
        LogicalPlan::Limit(_) => true,
        LogicalPlan::Projection(projection) => is_limited(&projection.input),
        _ => false,
    }
}

/// Which columns of a query's rows its list computes by something volatile.
pub(crate) fn volatile_columns(plan: &LogicalPlan) -> Vec<bool> {
    match plan {
        LogicalPlan::Projection(projection) => {
            let below = volatile_columns(&projection.input);
            let schema = projection.input.schema();
            let is_below = |column| schema.index_of_column(column).is_ok_and(|at| below.get(at) == Some(&true));
            projection
                .expr
                .iter()
                .map(|expr| does_something(expr) || expr.column_refs().into_iter().any(is_below))
                .collect()
        }
        LogicalPlan::Aggregate(aggregate) => {
            aggregate.group_expr.iter().chain(&aggregate.aggr_expr).map(does_something).collect()
        }
        LogicalPlan::Sort(sort) => volatile_columns(&sort.input),
        LogicalPlan::Limit(limit) => volatile_columns(&limit.input),
        LogicalPlan::Filter(filter) => volatile_columns(&filter.input),
        LogicalPlan::SubqueryAlias(alias) => volatile_columns(&alias.input),
        LogicalPlan::Union(union) => union
            .inputs
            .iter()
            .map(|input| volatile_columns(input))
            .fold(vec![false; plan.schema().fields().len()], |found, input| {
                found.iter().zip(input).map(|(found, input)| *found || input).collect()
            }),
        _ => vec![false; plan.schema().fields().len()],
    }
}

/// Whether an expression is volatile, be it in a subquery that is run only once.
fn does_something(expr: &Expr) -> bool {
    let in_subquery = |expr: &Expr| {
        Ok(called::<SubqueryFunction>(expr).is_some_and(|(function, _)| function.runs != Runs::ForNewValues))
    };
    expr.is_volatile() || expr.exists(in_subquery).unwrap_or(true)
}

/// Whether a plan does something, or returns something else, each time that it runs.
pub(crate) fn is_volatile(plan: &LogicalPlan) -> bool {
    let mut found = false;
    let looked = plan.apply(|plan| {
        plan.apply_expressions(|expr| {
            found |= does_something(expr);
            Ok(TreeNodeRecursion::Continue)
        })?;
        match plan {
            LogicalPlan::TableScan(scan) => {
                found |= SharedSource::of(scan.source.as_ref()).is_some_and(SharedSource::is_volatile);
            }
            LogicalPlan::Extension(extension) => {
                found |= extension.node.as_any().downcast_ref::<Apply>().is_some_and(|apply| apply.volatile);
            }
            _ => {}
        }
        Ok(if found { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
    });
    found || looked.is_err()
}

impl UserDefinedLogicalNodeCore for Computed {
    fn name(&self) -> &'static str {
        "Computed"
    }

    fn inputs(&self) -> Vec<&LogicalPlan> {
        vec![&self.input]
    }

    fn schema(&self) -> &DFSchemaRef {
        self.input.schema()
    }

    fn expressions(&self) -> Vec<Expr> {
        Vec::new()
    }

    fn prevent_predicate_push_down_columns(&self) -> HashSet<String> {
        match self.limited {
            true => self.input.schema().fields().iter().map(|field| field.name().clone()).collect(),
            false => self.volatile.iter().cloned().collect(),
        }
    }

    fn fmt_for_explain(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Computed: {}", self.volatile.join(", "))
    }

    fn with_exprs_and_inputs(&self, _: Vec<Expr>, inputs: Vec<LogicalPlan>) -> Result<Self> {
        let mut node = self.clone();
        if let Some(input) = inputs.into_iter().next() {
            node.input = Arc::new(input);
        }
        Ok(node)
    }

    fn necessary_children_exprs(&self, _: &[usize]) -> Option<Vec<Vec<usize>>> {
        Some(vec![(0..self.input.schema().fields().len()).collect()])
    }

    fn supports_limit_pushdown(&self) -> bool {
        true
    }
}

/// Rows, and those that follow from them, again and again.
#[derive(Clone, Debug)]
pub(crate) struct Recursive {
    pub base: Arc<LogicalPlan>,
    pub step: Arc<LogicalPlan>,
    /// Under which number the step finds the rows before it.
    pub number: usize,
    pub name: String,
    /// The columns' types, if each row is taken only once.
    pub distinct: Option<Vec<Type>>,
    schema: DFSchemaRef,
}

impl PartialEq for Recursive {
    fn eq(&self, other: &Self) -> bool {
        (&self.base, &self.step, self.number) == (&other.base, &other.step, other.number)
    }
}

impl Eq for Recursive {}

impl Hash for Recursive {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (&self.base, &self.step, self.number).hash(state);
    }
}

impl Recursive {
    pub fn plan(
        base: LogicalPlan,
        step: LogicalPlan,
        number: usize,
        name: &str,
        columns: &[String],
        types: &[Type],
        distinct: Option<Vec<Type>>,
    ) -> Result<LogicalPlan, SqlError> {
        let schema = Arc::new(schema_of(columns.iter().map(String::as_str).zip(types.iter().copied()), &[])?);
        let (base, step, name) = (Arc::new(base), Arc::new(step), name.to_owned());
        Ok(extension(Self { base, step, number, name, distinct, schema }))
    }
}

impl UserDefinedLogicalNodeCore for Recursive {
    fn name(&self) -> &'static str {
        "Recursive"
    }

    fn inputs(&self) -> Vec<&LogicalPlan> {
        vec![&self.base, &self.step]
    }

    fn schema(&self) -> &DFSchemaRef {
        &self.schema
    }

    fn expressions(&self) -> Vec<Expr> {
        Vec::new()
    }

    fn fmt_for_explain(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Recursive: {}", self.name)
    }

    fn with_exprs_and_inputs(&self, _: Vec<Expr>, inputs: Vec<LogicalPlan>) -> Result<Self> {
        let mut node = self.clone();
        let mut inputs = inputs.into_iter();
        if let (Some(base), Some(step)) = (inputs.next(), inputs.next()) {
            (node.base, node.step) = (Arc::new(base), Arc::new(step));
        }
        Ok(node)
    }
}
