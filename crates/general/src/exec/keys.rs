//! What a join has found on one side, for the scan of the other.
//!
//! A hash join reads its left side first. If that has few keys, the right side's relation is asked
//! for these alone.

use std::{
    collections::HashSet,
    fmt,
    sync::{Arc, Mutex, PoisonError},
};

use arrow::array::RecordBatch;
use datafusion_common::{Result, tree_node::TreeNode as _};
use datafusion_execution::{SendableRecordBatchStream, TaskContext};
use datafusion_physical_expr::{PhysicalExpr, expressions::Column as ColumnExpr};
use datafusion_physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, PlanProperties,
    filter::FilterExec,
    metrics::{BaselineMetrics, ExecutionPlanMetricsSet},
    projection::ProjectionExec,
};
use freshet_sql::{Type, Value};

use super::{ScanExec, memory::WatchExec, next_batch, operator, stepping};
use crate::{error::external, layout::Reader};

/// With more keys than this many, all rows are read.
const MAX_KEYS: usize = 2000;

/// The values of a key, as soon as all are known; nothing when they are too many.
#[derive(Debug, Default)]
pub(crate) struct FoundKeys(Mutex<Option<Vec<Value>>>);

impl FoundKeys {
    /// The values, if they are known.
    pub fn get(&self) -> Option<Vec<Value>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn set(&self, values: Option<Vec<Value>>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = values;
    }
}

/// A key that is looked for: where its values are, their type, and who wants to know them.
#[derive(Clone, Debug)]
struct Sought {
    expr: Arc<dyn PhysicalExpr>,
    ty: Type,
    found: Arc<FoundKeys>,
}

/// Passes its input's rows on, and tells which keys there were.
#[derive(Clone, Debug)]
pub(crate) struct KeysExec {
    input: Arc<dyn ExecutionPlan>,
    sought: Vec<Sought>,
    properties: Arc<PlanProperties>,
    metrics: ExecutionPlanMetricsSet,
}

/// The keys that were seen by now.
struct Seen(Vec<Option<HashSet<Value>>>);

impl Seen {
    fn add(&mut self, sought: &[Sought], batch: &RecordBatch) -> Result<()> {
        for (seen, sought) in self.0.iter_mut().zip(sought) {
            let Some(values) = seen else { continue };
            let array = sought.expr.evaluate(batch)?.into_array(batch.num_rows())?;
            let reader = Reader::new(sought.ty, &array).map_err(external)?;
            for row in 0..batch.num_rows() {
                // Null equals nothing.
                if !reader.is_null(row) {
                    values.insert(reader.value(row).map_err(external)?);
                }
                if values.len() > MAX_KEYS {
                    *seen = None;
                    break;
                }
            }
        }
        Ok(())
    }
}

impl ExecutionPlan for KeysExec {
    operator!(KeysExec, "Keys", children: [input], expressions: |keys| keys.sought.iter().map(|s| &s.expr).collect());

    fn maintains_input_order(&self) -> Vec<bool> {
        vec![true]
    }

    fn execute(&self, partition: usize, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        let metrics = BaselineMetrics::new(&self.metrics, partition);
        let input = self.input.execute(partition, context)?;
        let sought = self.sought.clone();
        sought.iter().for_each(|sought| sought.found.set(None));
        let seen = Seen(sought.iter().map(|_| Some(HashSet::new())).collect());
        Ok(stepping(self.input.schema(), metrics, (input, seen), move |(input, seen)| {
            let batch = next_batch(input)?;
            match &batch {
                Some(batch) => seen.add(&sought, batch)?,
                None => {
                    for (values, sought) in seen.0.iter_mut().zip(&sought) {
                        sought.found.set(values.take().map(|values| values.into_iter().collect()));
                    }
                }
            }
            Ok(batch)
        }))
    }
}

impl DisplayAs for KeysExec {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Keys")
    }
}

/// Makes the right side of a join ask for the keys of the left side, as far as its relations can
/// look for them.
///
/// # Errors
/// When an operator cannot be made again: a mistake in it.
pub(crate) fn look_up(
    left: Arc<dyn ExecutionPlan>,
    right: Arc<dyn ExecutionPlan>,
    on: datafusion_physical_plan::joins::JoinOnRef<'_>,
) -> Result<(Arc<dyn ExecutionPlan>, Arc<dyn ExecutionPlan>)> {
    let mut sought = Vec::new();
    let mut plan = Arc::clone(&right);
    for (left_key, right_key) in on {
        let Some(column) = right_key.downcast_ref::<ColumnExpr>() else { continue };
        let found = Arc::new(FoundKeys::default());
        if let Some((keyed, ty)) = pass_keys(&plan, column.index(), &found)? {
            plan = keyed;
            sought.push(Sought { expr: Arc::clone(left_key), ty, found });
        }
    }
    if sought.is_empty() {
        return Ok((left, right));
    }
    let properties = Arc::clone(left.properties());
    let keys = KeysExec { input: left, sought, properties, metrics: ExecutionPlanMetricsSet::new() };
    Ok((Arc::new(keys), plan))
}

/// The plan whose scan gets the values of a column, if its relation can look for them.
fn pass_keys(
    plan: &Arc<dyn ExecutionPlan>,
    column: usize,
    found: &Arc<FoundKeys>,
) -> Result<Option<(Arc<dyn ExecutionPlan>, Type)>> {
    if let Some(scan) = plan.downcast_ref::<ScanExec>() {
        return Ok(scan.with_keys(column, found).map(|(scan, ty)| (Arc::new(scan) as Arc<dyn ExecutionPlan>, ty)));
    }
    // What is volatile is computed for all rows.
    let volatile = |expr: &Arc<dyn PhysicalExpr>| expr.exists(|expr| Ok(expr.is_volatile_node()));
    let inner = if let Some(projection) = plan.downcast_ref::<ProjectionExec>() {
        for listed in projection.expr() {
            if volatile(&listed.expr)? {
                return Ok(None);
            }
        }
        projection.expr().get(column).and_then(|expr| Some(expr.expr.downcast_ref::<ColumnExpr>()?.index()))
    } else if let Some(filter) = plan.downcast_ref::<FilterExec>() {
        (!volatile(filter.predicate())?).then_some(column)
    } else if plan.is::<WatchExec>() {
        Some(column)
    } else {
        None
    };
    let children = plan.children();
    let (Some(inner), [child]) = (inner, children.as_slice()) else { return Ok(None) };
    let Some((child, ty)) = pass_keys(child, inner, found)? else { return Ok(None) };
    let options = datafusion_physical_plan::ReplaceChildrenOptions::new(
        datafusion_physical_plan::ChildrenPropertiesMode::Recompute,
    );
    Ok(Some((Arc::clone(plan).replace_children(vec![child], options)?, ty)))
}
