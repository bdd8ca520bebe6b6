//! Benchmarks in processes of their own, one after another: what compares them, runs each in a
//! fresh process.

use std::process::{Command, Stdio};

use serde_json::Value;

use freshet::Failure;

/// Runs `freshet-lab bench ARGUMENTS --json`, blocks until it has ended, and returns what it found.
///
/// # Errors
/// When it cannot be started or fails, with what it said.
pub(crate) fn child(arguments: &[String]) -> Result<Value, Failure> {
    let command = format!("freshet-lab bench {} --json", arguments.join(" "));
    let output = Command::new(std::env::current_exe()?)
        .arg("bench")
        .args(arguments)
        .arg("--json")
        .stdin(Stdio::null())
        .output()?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        return Err(Failure::new(format!("`{command}` failed ({}): {}", output.status, said.trim())));
    }
    serde_json::from_slice(&output.stdout)
        .map_err(|cause| Failure::new(format!("what `{command}` printed is no JSON: {cause}")))
}

/// The median of numbers; the upper of the two in the middle when their count is even. None of
/// none.
pub(crate) fn median(mut numbers: Vec<f64>) -> Option<f64> {
    numbers.sort_by(f64::total_cmp);
    numbers.get(numbers.len() / 2).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_median_is_in_the_middle() {
        assert_eq!(median(vec![5.0, 1.0, 3.0]), Some(3.0));
        assert_eq!(median(vec![2.0, 1.0]), Some(2.0));
        assert_eq!(median(Vec::new()), None);
    }
}
