//! EXPLAIN: how a plan is run, in words.

use crate::{
    bind::{
        access::{Access, Among},
        modify::{InsertPlan, RowSource, Targets},
        select::{ScanPlan, SelectPlan},
    },
    session::prepare::{Plan, Planned},
};

/// A plan, a line for each step, outermost first; then the subqueries that are run before it.
pub fn lines(planned: &Planned) -> Vec<String> {
    let mut lines = Vec::new();
    match &planned.plan {
        Plan::Select(plan) => select(plan, 0, &mut lines),
        Plan::Insert(plan) => insert(plan, &mut lines),
        Plan::Update(plan) => {
            line(0, &format!("Update on {}", plan.table.table.name), &mut lines);
            targets(&plan.targets, &mut lines);
        }
        Plan::Delete(plan) => {
            line(0, &format!("Delete on {}", plan.table.table.name), &mut lines);
            targets(&plan.targets, &mut lines);
        }
        Plan::General(_) => line(0, "General query", &mut lines),
        Plan::Utility => line(0, "Utility statement", &mut lines),
    }
    for (number, first) in planned.firsts.iter().enumerate() {
        line(0, &format!("First {}", number + 1), &mut lines);
        select(&first.plan, 1, &mut lines);
    }
    lines
}

fn line(depth: usize, text: &str, lines: &mut Vec<String>) {
    lines.push(match depth {
        0 => text.to_owned(),
        depth => format!("{}->  {text}", " ".repeat(6 * depth - 4)),
    });
}

fn detail(depth: usize, text: &str, lines: &mut Vec<String>) {
    lines.push(format!("{}{text}", " ".repeat(6 * depth + 2)));
}

fn targets(targets: &Targets, lines: &mut Vec<String>) {
    match targets {
        Targets::Scan(plan) => scan(plan, 1, lines),
        Targets::Found(_) => line(1, "General query", lines),
    }
}

fn insert(plan: &InsertPlan, lines: &mut Vec<String>) {
    line(0, &format!("Insert on {}", plan.table.table.name), lines);
    if let Some(conflict) = &plan.conflict {
        let action = if conflict.update.is_some() { "UPDATE" } else { "NOTHING" };
        detail(0, &format!("Conflict Resolution: {action}"), lines);
    }
    match &plan.source {
        RowSource::Values(rows) => line(1, &format!("Values ({} rows)", rows.len()), lines),
        RowSource::Query(query, _) => select(query, 1, lines),
        RowSource::General(..) => line(1, "General query", lines),
    }
}

fn select(plan: &SelectPlan, mut depth: usize, lines: &mut Vec<String>) {
    let mut step = |text: &str, lines: &mut Vec<String>| {
        line(depth, text, lines);
        depth += 1;
    };
    if plan.limit.is_some() || plan.offset.is_some() {
        step("Limit", lines);
    }
    if !plan.order.is_empty() {
        step(if plan.limit.is_some() { "Top-N Sort" } else { "Sort" }, lines);
    }
    if plan.distinct {
        step("Unique (by hash)", lines);
    }
    if plan.locks() {
        step("Lock Rows", lines);
    }
    if let Some(aggregation) = &plan.aggregation {
        step(if aggregation.groups.is_empty() { "Aggregate" } else { "Hash Aggregate" }, lines);
    }
    match plan.scans.as_slice() {
        [] => line(depth, if plan.values.is_empty() { "Result" } else { "Values" }, lines),
        [one] => scan(one, depth, lines),
        several => {
            line(depth, "Nested Loop", lines);
            several.iter().for_each(|one| scan(one, depth + 1, lines));
        }
    }
}

fn scan(plan: &ScanPlan, depth: usize, lines: &mut Vec<String>) {
    let table = &plan.table.table;
    let Access { index, equal, among, range, single, backward } = &plan.access;
    let name = if plan.alias == table.name { table.name.clone() } else { format!("{} {}", table.name, plan.alias) };
    if plan.access.is_all() {
        let index = &table.indexes[*index];
        let way = if index.oid == 0 { String::new() } else { format!(" in the order of {}", index.name) };
        line(depth, &format!("Scan on {name}{way}{}", if *backward { " backward" } else { "" }), lines);
    } else {
        let index = &table.indexes[*index];
        let what = match (single, among) {
            (true, Among::Nothing) => "Index Get",
            (true, _) => "Index Gets",
            (false, _) => "Index Scan",
        };
        let way = if *backward { " Backward" } else { "" };
        line(depth, &format!("{what}{way} using {} on {name}", index.name), lines);
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
        detail(depth, &format!("Index Cond: {}", conditions.join(", ")), lines);
    }
    if plan.filter.is_some() {
        detail(depth, "Filter", lines);
    }
}
