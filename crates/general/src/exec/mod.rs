//! Operators that DataFusion does not have, and what drives all of them.
//!
//! A query runs in the thread that asks for its rows. Nothing is spawned, and no operator waits for
//! anything but its inputs, so streams are polled until they are ready.

mod apply;
mod concat;
mod expand;
mod keys;
mod limit;
mod lock;
mod memory;
mod recursive;
mod scan;
mod unique;
mod values;

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll, Wake, Waker},
};

use arrow::{array::RecordBatch, datatypes::SchemaRef};
use datafusion_common::{DataFusionError, Result};
use datafusion_execution::SendableRecordBatchStream;
use datafusion_physical_expr::{EquivalenceProperties, Partitioning};
use datafusion_physical_plan::{
    PlanProperties,
    execution_plan::{Boundedness, EmissionType},
    metrics::{BaselineMetrics, RecordOutput as _},
    stream::RecordBatchStreamAdapter,
};
use futures_util::{Stream, StreamExt as _, stream};

pub(crate) use self::{
    apply::ApplyExec,
    concat::ConcatExec,
    expand::{ExpandCall, ExpandExec},
    keys::{FoundKeys, look_up},
    limit::{LimitExec, counted},
    lock::{LockExec, LockedTable},
    memory::{MeterExec, SharedExec, WatchExec, WorkExec},
    recursive::RecursiveExec,
    scan::ScanExec,
    unique::UniqueExec,
    values::ValuesExec,
};

/// Rows in a batch.
pub(crate) const BATCH_ROWS: usize = 4096;
/// How many rows are read at first: a query that needs few rows should not read many, and what
/// comes of them shows how many may be read at once.
const FIRST_ROWS: usize = 128;

/// Remembers that it was called.
struct Flag(AtomicBool);

impl Wake for Flag {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// The next rows of a stream, which is driven in this thread until it has some.
///
/// # Errors
/// What went wrong in the query.
pub(crate) fn next_batch(stream: &mut SendableRecordBatchStream) -> Result<Option<RecordBatch>> {
    let flag = Arc::new(Flag(AtomicBool::new(false)));
    let waker = Waker::from(Arc::clone(&flag));
    let mut context = Context::from_waker(&waker);
    loop {
        match stream.poll_next_unpin(&mut context) {
            Poll::Ready(batch) => return batch.transpose(),
            // An operator lets others go first; there are none.
            Poll::Pending if flag.0.swap(false, Ordering::Relaxed) => crate::session::check()?,
            Poll::Pending => {
                return Err(DataFusionError::Internal(
                    "an operator waits for something outside of its query".to_owned(),
                ));
            }
        }
    }
}

/// The properties of an operator of one partition; nothing else is known of it.
fn properties(schema: &SchemaRef) -> Arc<PlanProperties> {
    Arc::new(PlanProperties::new(
        EquivalenceProperties::new(Arc::clone(schema)),
        Partitioning::UnknownPartitioning(1),
        EmissionType::Incremental,
        Boundedness::Bounded,
    ))
}

/// A stream of what `step` returns until it returns nothing, timed and counted.
fn stepping<S: Send + 'static>(
    schema: SchemaRef,
    metrics: BaselineMetrics,
    state: S,
    step: impl FnMut(&mut S) -> Result<Option<RecordBatch>> + Send + 'static,
) -> SendableRecordBatchStream {
    let stream = stream::unfold((state, step, metrics, false), |(mut state, mut step, metrics, failed)| async move {
        if failed {
            return None;
        }
        let result = {
            let _timer = metrics.elapsed_compute().timer();
            step(&mut state)
        };
        match result {
            Ok(None) => None,
            Ok(Some(batch)) => {
                let batch = batch.record_output(&metrics);
                Some((Ok(batch), (state, step, metrics, false)))
            }
            Err(error) => Some((Err(error), (state, step, metrics, true))),
        }
    });
    boxed(schema, stream)
}

fn boxed(
    schema: SchemaRef,
    stream: impl Stream<Item = Result<RecordBatch>> + Send + 'static,
) -> SendableRecordBatchStream {
    Box::pin(RecordBatchStreamAdapter::new(schema, stream))
}

/// What all operators here have in common.
macro_rules! operator {
    ($operator:ty, $name:literal, children: [$($child:ident),*], expressions: $expressions:expr) => {
        fn name(&self) -> &'static str {
            $name
        }

        fn properties(&self) -> &std::sync::Arc<datafusion_physical_plan::PlanProperties> {
            &self.properties
        }

        fn children(&self) -> Vec<&std::sync::Arc<dyn datafusion_physical_plan::ExecutionPlan>> {
            vec![$(&self.$child),*]
        }

        fn with_new_children(
            self: std::sync::Arc<Self>,
            children: Vec<std::sync::Arc<dyn datafusion_physical_plan::ExecutionPlan>>,
        ) -> datafusion_common::Result<std::sync::Arc<dyn datafusion_physical_plan::ExecutionPlan>> {
            #[allow(unused_mut, unused_variables, reason = "an operator may have no children")]
            let mut children = children.into_iter();
            #[allow(unused_mut, reason = "likewise")]
            let mut operator: $operator = (*self).clone();
            $(if let Some(child) = children.next() {
                operator.$child = child;
            })*
            operator.metrics = datafusion_physical_plan::metrics::ExecutionPlanMetricsSet::new();
            Ok(std::sync::Arc::new(operator))
        }

        fn apply_expressions(
            &self,
            f: &mut dyn FnMut(
                &std::sync::Arc<dyn datafusion_physical_expr::PhysicalExpr>,
            ) -> datafusion_common::Result<datafusion_common::tree_node::TreeNodeRecursion>,
        ) -> datafusion_common::Result<datafusion_common::tree_node::TreeNodeRecursion> {
            let expressions: fn(&$operator) -> Vec<&std::sync::Arc<dyn datafusion_physical_expr::PhysicalExpr>> =
                $expressions;
            for expression in expressions(self) {
                if f(expression)? == datafusion_common::tree_node::TreeNodeRecursion::Stop {
                    return Ok(datafusion_common::tree_node::TreeNodeRecursion::Stop);
                }
            }
            Ok(datafusion_common::tree_node::TreeNodeRecursion::Continue)
        }

        fn metrics(&self) -> Option<datafusion_physical_plan::metrics::MetricsSet> {
            Some(self.metrics.clone_inner())
        }
    };
}
use operator;
