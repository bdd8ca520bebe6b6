//! EXPLAIN: how a plan is run, as steps; what was asked for; how it is written.

mod format;
mod options;

use freshet_sql::explain::{Shown, Step};

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
    session::prepare::{Plan, Planned},
};

/// A plan's steps, with the subqueries that are run before it. What a general query within it does
/// is below the step "General query", if it is given.
pub fn steps(planned: &Planned, general: Option<Step>) -> Step {
    let mut step = match &planned.plan {
        Plan::Select(plan) => select(plan),
        Plan::Insert(plan) => insert(plan, general),
        Plan::Update(plan) => modify("Update", &plan.table.table.name).over(targets(&plan.targets, general)),
        Plan::Delete(plan) => modify("Delete", &plan.table.table.name).over(targets(&plan.targets, general)),
        Plan::General(_) => general.unwrap_or_else(|| Step::new("General query")),
        Plan::Utility => Step::new("Utility Statement"),
    };
    let firsts = planned.firsts.iter().enumerate();
    step.subplans.extend(firsts.map(|(number, first)| (format!("First {}", number + 1), select(&first.plan))));
    step
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

fn targets(targets: &Targets, general: Option<Step>) -> Step {
    match targets {
        Targets::Scan(plan) => scan(plan),
        Targets::Current(cursor) => {
            Step::titled("Current Of", format!("Current Of {cursor}")).fact("Cursor", cursor, Shown::InTitle)
        }
        Targets::Found(_) => found(general),
    }
}

fn insert(plan: &InsertPlan, general: Option<Step>) -> Step {
    let mut step = modify("Insert", &plan.table.table.name);
    if let Some(conflict) = &plan.conflict {
        let action = if conflict.update.is_some() { "UPDATE" } else { "NOTHING" };
        step = step.fact("Conflict Resolution", action, Shown::Line);
    }
    step.over(match &plan.source {
        RowSource::Values(rows) => Step::titled("Values", format!("Values ({} rows)", rows.len())),
        RowSource::Query(query, _) => select(query),
        RowSource::General(..) => found(general),
    })
}

fn select(plan: &SelectPlan) -> Step {
    let mut step = match plan.scans.as_slice() {
        [] => Step::new(if plan.values.is_empty() { "Result" } else { "Values" }),
        [one] => scan(one),
        several => Step { children: several.iter().map(scan).collect(), ..Step::new("Nested Loop") },
    };
    let mut above = |node: &str| step = Step::new(node).over(std::mem::take(&mut step));
    if let Some(aggregation) = &plan.aggregation {
        above(if aggregation.groups.is_empty() { "Aggregate" } else { "Hash Aggregate" });
    }
    if plan.locks() {
        above("Lock Rows");
    }
    if plan.distinct {
        above("Unique (by hash)");
    }
    if !plan.order.is_empty() {
        above(if plan.limit.is_some() { "Top-N Sort" } else { "Sort" });
    }
    if plan.limit.is_some() || plan.offset.is_some() {
        above("Limit");
    }
    step
}

fn scan(plan: &ScanPlan) -> Step {
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
    step
}
