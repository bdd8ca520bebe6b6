//! EXPLAIN: operators as steps.

use datafusion_physical_plan::{DisplayFormatType, ExecutionPlan};
use freshet_sql::explain::{Measured, Shown, Step};

/// An operator with those that it reads from below it; with `measured`, with what they took.
pub(crate) fn step(plan: &dyn ExecutionPlan, measured: bool) -> Step {
    // These only watch and count.
    if matches!(plan.name(), "Watch" | "Meter" | "Keys")
        && let [watched] = plan.children().as_slice()
    {
        return step(watched.as_ref(), measured);
    }
    let title = title(plan);
    let (node, what) = title.split_once(": ").unwrap_or((title.as_str(), ""));
    let mut shown = Step::titled(node, title.as_str());
    if !what.is_empty() {
        shown = shown.fact("Description", what, Shown::InTitle);
    }
    if measured && let Some(metrics) = plan.metrics() {
        let metrics = metrics.aggregate_by_name();
        let own_time = Some(metrics.elapsed_compute().unwrap_or(0) as f64 / 1e6);
        shown.measured = Some(Measured { rows: metrics.output_rows().unwrap_or(0) as u64, loops: None, own_time });
    }
    shown.children = plan.children().into_iter().map(|child| step(child.as_ref(), measured)).collect();
    shown
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
