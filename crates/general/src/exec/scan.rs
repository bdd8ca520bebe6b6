//! Reading relations.

use std::{fmt, sync::Arc};

use arrow::{
    array::{RecordBatch, RecordBatchOptions},
    datatypes::SchemaRef,
};
use datafusion_common::{Result, Statistics, stats::Precision};
use datafusion_execution::{SendableRecordBatchStream, TaskContext};
use datafusion_physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, PlanProperties,
    metrics::{BaselineMetrics, ExecutionPlanMetricsSet},
    statistics::StatisticsArgs,
};
use freshet_sql::{
    SqlError, Type,
    general::{Filter, Relation, Rows, Scan, Test},
};

use super::{BATCH_ROWS, FIRST_ROWS, FoundKeys, operator, properties, stepping};
use crate::{
    error::external,
    filter::{Condition, Resolved, passes},
    layout::{Builder, sample},
    session,
};

/// Reads the rows of a relation, in batches.
#[derive(Clone)]
pub(crate) struct ScanExec {
    relation: Arc<dyn Relation>,
    name: String,
    columns: Vec<usize>,
    conditions: Vec<Condition>,
    limit: Option<usize>,
    schema: SchemaRef,
    properties: Arc<PlanProperties>,
    metrics: ExecutionPlanMetricsSet,
}

impl ScanExec {
    pub fn new(
        relation: Arc<dyn Relation>,
        name: String,
        columns: Vec<usize>,
        conditions: Vec<Condition>,
        limit: Option<usize>,
        schema: SchemaRef,
    ) -> Self {
        let properties = properties(&schema);
        let metrics = ExecutionPlanMetricsSet::new();
        Self { relation, name, columns, conditions, limit, schema, properties, metrics }
    }

    /// The same scan, which waits for the values of one of its columns; and the column's type.
    /// Nothing when the relation would read all rows anyway.
    pub fn with_keys(&self, column: usize, found: &Arc<FoundKeys>) -> Option<(Self, Type)> {
        let column = *self.columns.get(column)?;
        let described = self.relation.columns().get(column)?;
        let condition = Condition::found(column, described, Arc::clone(found));
        let sample = sample(described.ty.kind())?;
        if !self.relation.takes(&Filter { column, test: Test::Among(sample) }) {
            return None;
        }
        let mut scan = self.clone();
        scan.conditions.push(condition);
        Some((scan, described.ty))
    }

    /// About how many rows come out.
    pub fn estimate(&self) -> Option<u64> {
        let rows = self.relation.row_estimate()?;
        let mut estimate = rows as f64;
        for condition in &self.conditions {
            estimate *= condition.selectivity(self.relation.as_ref());
        }
        let estimate = if rows == 0 { 0 } else { (estimate as u64).max(1) };
        Some(self.limit.map_or(estimate, |limit| estimate.min(limit as u64)))
    }

    /// Begins to read, with what this thread's session gives.
    fn begin(&self) -> Result<Option<Reading>> {
        let types: Vec<Type> = self.relation.columns().iter().map(|column| column.ty).collect();
        let mut filters = Vec::with_capacity(self.conditions.len());
        let mut rest: Vec<Filter> = Vec::new();
        for condition in &self.conditions {
            match condition.resolve()? {
                Resolved::Never => return Ok(None),
                Resolved::Always => {}
                Resolved::Filter(filter) if self.relation.takes(&filter) => filters.push(filter),
                Resolved::Filter(filter) => rest.push(filter),
            }
        }
        let mut columns = self.columns.clone();
        // What is tested here has to be read, too.
        let tests = rest
            .into_iter()
            .map(|filter| {
                let at = columns.iter().position(|column| *column == filter.column).unwrap_or_else(|| {
                    columns.push(filter.column);
                    columns.len() - 1
                });
                (at, filter.test)
            })
            .collect::<Vec<_>>();
        let limit = self.limit.filter(|_| tests.is_empty()).map(|limit| limit as u64);
        let rows = self.relation.scan(Scan { columns, filters, limit }).map_err(external)?;
        let types = self.columns.iter().map(|column| types[*column]).collect();
        Ok(Some(Reading { rows, types, tests, left: self.limit, count: FIRST_ROWS, more: true }))
    }
}

/// A relation that is being read.
struct Reading {
    rows: Box<dyn Rows>,
    types: Vec<Type>,
    /// Tests that the relation has not taken, on the scan's columns.
    tests: Vec<(usize, Test)>,
    left: Option<usize>,
    count: usize,
    more: bool,
}

impl Reading {
    fn next(&mut self, schema: &SchemaRef) -> Result<Option<RecordBatch>> {
        while self.more && self.left != Some(0) {
            session::check()?;
            let count = self.count.min(session::with(|session| Ok(session.state.rows_at_once()))?);
            let mut builders: Vec<Builder> = self.types.iter().map(|ty| Builder::new(*ty, count)).collect();
            let mut taken = 0;
            let (tests, left) = (&self.tests, self.left.unwrap_or(usize::MAX));
            let mut sink = |cells: &dyn freshet_sql::general::Cells| -> Result<(), SqlError> {
                if taken >= left {
                    return Ok(());
                }
                for (column, test) in tests {
                    if !passes(test, cells.cell(*column)?) {
                        return Ok(());
                    }
                }
                for (at, builder) in builders.iter_mut().enumerate() {
                    builder.append(cells.cell(at)?)?;
                }
                taken += 1;
                Ok(())
            };
            self.more = self.rows.next(count, &mut sink).map_err(external)?;
            self.count = (self.count * 4).min(BATCH_ROWS);
            if let Some(left) = &mut self.left {
                *left -= taken;
            }
            if taken > 0 {
                let columns = builders.iter_mut().map(Builder::finish).collect();
                let options = RecordBatchOptions::new().with_row_count(Some(taken));
                return Ok(Some(RecordBatch::try_new_with_options(Arc::clone(schema), columns, &options)?));
            }
        }
        Ok(None)
    }
}

impl ExecutionPlan for ScanExec {
    operator!(ScanExec, "Scan", children: [], expressions: |_| Vec::new());

    fn execute(&self, partition: usize, _: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        let metrics = BaselineMetrics::new(&self.metrics, partition);
        let scan = self.clone();
        let mut begun = false;
        let schema = Arc::clone(&self.schema);
        Ok(stepping(Arc::clone(&self.schema), metrics, None, move |reading: &mut Option<Reading>| {
            if !begun {
                begun = true;
                *reading = scan.begin()?;
            }
            match reading {
                Some(rows) => {
                    let batch = rows.next(&schema)?;
                    if batch.is_none() {
                        *reading = None;
                    }
                    Ok(batch)
                }
                None => Ok(None),
            }
        }))
    }

    fn statistics_from_inputs(&self, _: &[Arc<Statistics>], _: &StatisticsArgs) -> Result<Arc<Statistics>> {
        let mut statistics = Statistics::new_unknown(&self.schema);
        if let Some(rows) = self.estimate().and_then(|rows| usize::try_from(rows).ok()) {
            statistics.num_rows = Precision::Inexact(rows);
        }
        Ok(Arc::new(statistics))
    }
}

impl DisplayAs for ScanExec {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let columns = self.relation.columns();
        let names: Vec<&str> = self.columns.iter().map(|column| columns[*column].name.as_str()).collect();
        write!(f, "Scan: {} [{}]", self.name, names.join(", "))?;
        if !self.conditions.is_empty() {
            let conditions: Vec<String> = self.conditions.iter().map(ToString::to_string).collect();
            write!(f, ", where {}", conditions.join(" and "))?;
        }
        if let Some(limit) = self.limit {
            write!(f, ", limit {limit}")?;
        }
        Ok(())
    }
}

impl fmt::Debug for ScanExec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ScanExec").field("relation", &self.name).finish_non_exhaustive()
    }
}
