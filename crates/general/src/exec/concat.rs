//! UNION ALL: one input after the other.

use std::{fmt, sync::Arc};

use arrow::{array::RecordBatch, datatypes::SchemaRef};
use datafusion_common::{Result, tree_node::TreeNodeRecursion};
use datafusion_execution::{SendableRecordBatchStream, TaskContext};
use datafusion_physical_expr::PhysicalExpr;
use datafusion_physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, PlanProperties,
    metrics::{BaselineMetrics, ExecutionPlanMetricsSet, MetricsSet},
};

use super::{next_batch, properties, stepping};

/// All rows of all inputs.
#[derive(Clone, Debug)]
pub(crate) struct ConcatExec {
    inputs: Vec<Arc<dyn ExecutionPlan>>,
    schema: SchemaRef,
    properties: Arc<PlanProperties>,
    metrics: ExecutionPlanMetricsSet,
}

impl ConcatExec {
    pub fn new(inputs: Vec<Arc<dyn ExecutionPlan>>, schema: SchemaRef) -> Self {
        let properties = properties(&schema);
        Self { inputs, schema, properties, metrics: ExecutionPlanMetricsSet::new() }
    }
}

impl ExecutionPlan for ConcatExec {
    fn name(&self) -> &'static str {
        "Append"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        self.inputs.iter().collect()
    }

    fn with_new_children(self: Arc<Self>, children: Vec<Arc<dyn ExecutionPlan>>) -> Result<Arc<dyn ExecutionPlan>> {
        Ok(Arc::new(Self::new(children, Arc::clone(&self.schema))))
    }

    fn apply_expressions(
        &self,
        _: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        Ok(TreeNodeRecursion::Continue)
    }

    fn metrics(&self) -> Option<MetricsSet> {
        Some(self.metrics.clone_inner())
    }

    fn execute(&self, partition: usize, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        let metrics = BaselineMetrics::new(&self.metrics, partition);
        let (inputs, schema) = (self.inputs.clone(), Arc::clone(&self.schema));
        let state: (usize, Option<SendableRecordBatchStream>) = (0, None);
        Ok(stepping(Arc::clone(&self.schema), metrics, state, move |(at, stream)| {
            loop {
                if let Some(input) = stream {
                    match next_batch(input)? {
                        Some(batch) => {
                            return RecordBatch::try_new_with_options(
                                Arc::clone(&schema),
                                batch.columns().to_vec(),
                                &arrow::array::RecordBatchOptions::new().with_row_count(Some(batch.num_rows())),
                            )
                            .map(Some)
                            .map_err(Into::into);
                        }
                        None => *stream = None,
                    }
                }
                let Some(input) = inputs.get(*at) else { return Ok(None) };
                *stream = Some(input.execute(0, Arc::clone(&context))?);
                *at += 1;
            }
        }))
    }
}

impl DisplayAs for ConcatExec {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Append")
    }
}
