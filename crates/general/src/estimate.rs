//! About how many rows a plan has, before it is optimized.

use datafusion_expr::{Expr, JoinType, LogicalPlan, utils::split_conjunction};
use freshet_sql::general::{Filter, Relation, Test};

use crate::{filter::Condition, layout::sample, source::RelationSource, source::SharedSource};

/// What is guessed where nothing is known.
pub(crate) const UNKNOWN_ROWS: f64 = 1000.0;

/// About how many rows come out of a plan.
pub(crate) fn rows_of(plan: &LogicalPlan) -> f64 {
    match plan {
        LogicalPlan::TableScan(scan) => {
            let source = scan.source.as_ref();
            if let Some(relation) = RelationSource::of(source) {
                return relation.relation.row_estimate().map_or(UNKNOWN_ROWS, |rows| rows as f64);
            }
            SharedSource::of(source).map_or(UNKNOWN_ROWS, |shared| rows_of(shared.plan()))
        }
        LogicalPlan::Filter(filter) => {
            let conditions = split_conjunction(&filter.predicate);
            let share: f64 = conditions.into_iter().map(|condition| selectivity(&filter.input, condition)).product();
            (rows_of(&filter.input) * share).max(1.0)
        }
        LogicalPlan::Join(join) => {
            let (left, right) = (rows_of(&join.left), rows_of(&join.right));
            match join.join_type {
                JoinType::LeftSemi | JoinType::LeftAnti => left,
                // Conditions of WHERE connect what stands side by side.
                _ => left.max(right),
            }
        }
        LogicalPlan::Aggregate(aggregate) if aggregate.group_expr.is_empty() => 1.0,
        LogicalPlan::Union(union) => union.inputs.iter().map(|input| rows_of(input)).sum(),
        LogicalPlan::Values(values) => values.values.len() as f64,
        LogicalPlan::EmptyRelation(_) => 1.0,
        plan => plan.inputs().into_iter().map(rows_of).fold(1.0, f64::max),
    }
}

/// The share of rows that a condition lets through, guessed.
fn selectivity(input: &LogicalPlan, condition: &Expr) -> f64 {
    let mut found = None;
    each_relation(input, &mut |relation| {
        if found.is_none()
            && let Some(known) = Condition::of(condition, relation.columns())
        {
            found = Some(known.selectivity(relation));
        }
    });
    found.unwrap_or(0.3)
}

/// Whether one of a plan's relations finds rows by the value of a column.
pub(crate) fn has_lookup(plan: &LogicalPlan, column: &Expr) -> bool {
    let Expr::Column(column) = column else { return false };
    let mut found = false;
    each_relation(plan, &mut |relation| {
        if let Some(at) = relation.columns().iter().position(|known| known.name == column.name) {
            found |= finds(relation, at);
        }
    });
    found
}

/// Whether a relation finds rows by the value of a column.
pub(crate) fn finds(relation: &dyn Relation, column: usize) -> bool {
    let sample = relation.columns().get(column).and_then(|described| sample(described.ty.kind()));
    let test = sample.and_then(|sample| sample.into_iter().next()).map(Test::Equal);
    test.is_some_and(|test| relation.takes(&Filter { column, test }))
}

fn each_relation(plan: &LogicalPlan, visit: &mut dyn FnMut(&dyn Relation)) {
    if let LogicalPlan::TableScan(scan) = plan
        && let Some(source) = RelationSource::of(scan.source.as_ref())
    {
        visit(source.relation.as_ref());
    }
    plan.inputs().into_iter().for_each(|input| each_relation(input, visit));
}
