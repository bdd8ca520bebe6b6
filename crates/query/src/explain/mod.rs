//! EXPLAIN: how a plan is run, as steps; what was asked for; how it is written.

mod format;
mod options;

use freshet_sql::explain::{Measured, Shown, Step};

pub use self::{
    format::{Document, write},
    options::{Format, Options, subject},
};
use crate::{
    bind::{
        access::{Access, Among},
        modify::{InsertPlan, RowSource, Targets},
        select::{ScanPlan, SelectPlan},
    },
    execute::measure::{Measures, Place},
    session::prepare::{Plan, Planned},
};

/// A plan's steps, with the subqueries that are run before it, and with what they took, if that was
/// measured. What a general query within it does is below the step "General query", if it is given.
pub fn steps(planned: &Planned, general: Option<Step>, measures: Option<&Measures>) -> Step {
    let mut step = match &planned.plan {
        Plan::Select(plan) => select(plan, measures),
        Plan::Insert(plan) => insert(plan, general, measures),
        Plan::Update(plan) => modify("Update", &plan.table.table.name).over(targets(&plan.targets, general, measures)),
        Plan::Delete(plan) => modify("Delete", &plan.table.table.name).over(targets(&plan.targets, general, measures)),
        Plan::General(_) => general.unwrap_or_else(|| Step::new("General query")),
        Plan::Utility => Step::new("Utility Statement"),
    };
    let firsts = planned.firsts.iter().enumerate().map(|(number, first)| {
        let measures = measures.and_then(|measures| measures.first(number));
        let mut step = select(&first.plan, measures);
        add_time_of_top(&mut step, measures);
        (format!("First {}", number + 1), step)
    });
    step.subplans.extend(firsts);
    step
}

/// Adds the time of what no step is said to have taken to the outermost one.
pub fn add_time_of_top(step: &mut Step, measures: Option<&Measures>) {
    if let (Some(measures), Some(Measured { own_time: Some(time), .. })) = (measures, &mut step.measured) {
        *time += measures.of(Place::Top).own_time.unwrap_or_default();
    }
}

fn modify(operation: &str, table: &str) -> Step {
    Step::titled("ModifyTable", format!("{operation} on {table}")).fact("Operation", operation, Shown::InTitle).fact(
        "Relation Name",
        table,
        Shown::InTitle,
    )
}

fn found(general: Option<Step>) -> Step {
    let mut step = Step::new("General query");
    step.children.extend(general);
    step
}

fn targets(targets: &Targets, general: Option<Step>, measures: Option<&Measures>) -> Step {
    match targets {
        Targets::Scan(plan) => scan(plan, 0, measures),
        Targets::Current(cursor) => {
            Step::titled("Current Of", format!("Current Of {cursor}")).fact("Cursor", cursor, Shown::InTitle)
        }
        Targets::Found(_) => found(general),
    }
}

fn insert(plan: &InsertPlan, general: Option<Step>, measures: Option<&Measures>) -> Step {
    let mut step = modify("Insert", &plan.table.table.name);
    if let Some(conflict) = &plan.conflict {
        let action = if conflict.update.is_some() { "UPDATE" } else { "NOTHING" };
        step = step.fact("Conflict Resolution", action, Shown::Line);
    }
    step.over(match &plan.source {
        RowSource::Values(rows) => {
            let step = Step::titled("Values", format!("Values ({} rows)", rows.len()));
            once(step, Place::Result, measures)
        }
        RowSource::Query(query, _) => select(query, measures),
        RowSource::General(..) => found(general),
    })
}

/// A step that runs once, with what it took.
fn once(mut step: Step, place: Place, measures: Option<&Measures>) -> Step {
    step.measured = measures.map(|measures| Measured { loops: Some(1), ..measures.of(place) });
    step
}

fn select(plan: &SelectPlan, measures: Option<&Measures>) -> Step {
    let scans = || plan.scans.iter().enumerate().map(|(number, plan)| scan(plan, number, measures));
    let mut step = match plan.scans.as_slice() {
        [] => {
            let step = Step::new(if plan.values.is_empty() { "Result" } else { "Values" });
            once(step, Place::Result, measures)
        }
        [one] => scan(one, 0, measures),
        several => {
            let mut step = once(Step::new("Nested Loop"), Place::Join, measures);
            if let (Some(measured), Some(measures)) = (&mut step.measured, measures) {
                // It gives what the innermost loop gives.
                measured.rows = measures.of(Place::Scan(several.len() - 1)).rows;
            }
            Step { children: scans().collect(), ..step }
        }
    };
    let mut above = |node: &str, place| {
        step = once(Step::new(node), place, measures).over(std::mem::take(&mut step));
    };
    if let Some(aggregation) = &plan.aggregation {
        above(if aggregation.groups.is_empty() { "Aggregate" } else { "Hash Aggregate" }, Place::Aggregate);
    }
    if plan.distinct {
        above("Unique (by hash)", Place::Unique);
    }
    if !plan.order.is_empty() {
        above(if plan.limit.is_some() && !plan.locks() { "Top-N Sort" } else { "Sort" }, Place::Sort);
    }
    if plan.locks() {
        above("Lock Rows", Place::Lock);
    }
    if plan.limit.is_some() || plan.offset.is_some() {
        above("Limit", Place::Limit);
    }
    step
}

fn scan(plan: &ScanPlan, number: usize, measures: Option<&Measures>) -> Step {
    let table = &plan.table.table;
    let Access { index, equal, among, range, single, backward } = &plan.access;
    let name = if plan.alias == table.name { table.name.clone() } else { format!("{} {}", table.name, plan.alias) };
    let index = &table.indexes[*index];
    let direction = if *backward { "Backward" } else { "Forward" };
    let mut step = if plan.access.is_all() {
        let way = if index.oid == 0 { String::new() } else { format!(" in the order of {}", index.name) };
        let step = Step::titled("Scan", format!("Scan on {name}{way}{}", if *backward { " backward" } else { "" }));
        if index.oid == 0 { step } else { step.fact("Index Name", index.name.as_str(), Shown::InTitle) }
    } else {
        let what = match (single, among) {
            (true, Among::Nothing) => "Index Get",
            (true, _) => "Index Gets",
            (false, _) => "Index Scan",
        };
        let way = if *backward { " Backward" } else { "" };
        let mut conditions = Vec::new();
        let column = |place: usize| plan.table.shown_column(index.columns[place].column, true);
        conditions.extend((0..equal.len()).map(|place| format!("{} = …", column(place))));
        match among {
            Among::Nothing => {}
            Among::Rows(rows) => {
                let width = rows.first().map_or(1, |row| row.len());
                let names: Vec<_> = (equal.len()..equal.len() + width).map(column).collect();
                conditions.push(format!("({}) in {} alternatives", names.join(", "), rows.len()));
            }
            Among::Ranges(ranges) => conditions.push(format!("{} in {} ranges", column(equal.len()), ranges.len())),
            Among::Array(_) => conditions.push(format!("{} = ANY (…)", column(equal.len()))),
        }
        if range.lower.is_some() {
            conditions.push(format!("{} from …", column(equal.len())));
        }
        if range.upper.is_some() {
            conditions.push(format!("{} up to …", column(equal.len())));
        }
        Step::titled(what, format!("{what}{way} using {} on {name}", index.name))
            .fact("Index Name", index.name.as_str(), Shown::InTitle)
            .fact("Index Cond", conditions.join(", "), Shown::Line)
    }
    .fact("Scan Direction", direction, Shown::InTitle)
    .fact("Relation Name", table.name.as_str(), Shown::InTitle)
    .fact("Alias", plan.alias.as_str(), Shown::InTitle);
    if plan.filter.is_some() {
        step = step.fact("Filter", "…", Shown::Name);
    }
    step.measured = measures.map(|measures| measures.of(Place::Scan(number)));
    step
}
