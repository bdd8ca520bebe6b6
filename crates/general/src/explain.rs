//! EXPLAIN: operators as lines of text.

use datafusion_physical_plan::{DisplayFormatType, ExecutionPlan};

/// A line for each operator, those that it reads from indented below it; with `measured`, with what it took.
pub(crate) fn lines(plan: &dyn ExecutionPlan, measured: bool) -> Vec<String> {
    let mut lines = Vec::new();
    describe(plan, 0, measured, &mut lines);
    lines
}

fn describe(plan: &dyn ExecutionPlan, depth: usize, measured: bool, lines: &mut Vec<String>) {
    // These only watch and count.
    let shown = !matches!(plan.name(), "Watch" | "Meter" | "Keys");
    if shown {
        let mut line = if depth == 0 { String::new() } else { format!("{}->  ", "  ".repeat(depth * 3 - 2)) };
        line.push_str(&title(plan));
        if measured && let Some(metrics) = plan.metrics() {
            let metrics = metrics.aggregate_by_name();
            let rows = metrics.output_rows().unwrap_or(0);
            let time = metrics.elapsed_compute().unwrap_or(0) as f64 / 1e6;
            line.push_str(&format!("  (rows={rows} time={time:.3} ms)"));
        }
        lines.push(line);
    }
    for child in plan.children() {
        describe(child.as_ref(), depth + usize::from(shown), measured, lines);
    }
}

/// What an operator says of itself.
fn title(plan: &dyn ExecutionPlan) -> String {
    struct OneLine<'a>(&'a dyn ExecutionPlan);
    impl std::fmt::Display for OneLine<'_> {
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            self.0.fmt_as(DisplayFormatType::Default, f)
        }
    }
    OneLine(plan).to_string()
}
