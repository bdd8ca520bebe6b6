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
        let messages = String::from_utf8_lossy(&output.stderr);
        return Err(Failure::new(format!("`{command}` failed ({}): {}", output.status, messages.trim())));
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

/// The results of one kind of run, round by round.
pub(crate) struct Results(pub(crate) Vec<Value>);

impl Results {
    /// The median of a number that every result has; not a number, if none has it.
    pub(crate) fn median(&self, pointer: &str) -> f64 {
        self.median_of(&|value| value.pointer(pointer)?.as_f64())
    }

    /// The median of what follows from each result.
    pub(crate) fn median_of(&self, of: &dyn Fn(&Value) -> Option<f64>) -> f64 {
        median(self.0.iter().filter_map(of).collect()).unwrap_or(f64::NAN)
    }

    /// The median of this, divided by the same of `other`, round by round: the machine's speed
    /// differs from one round to the next.
    pub(crate) fn ratio(&self, other: &Self, of: &dyn Fn(&Value) -> Option<f64>) -> f64 {
        let rounds = self.0.iter().zip(&other.0);
        median(rounds.filter_map(|(one, other)| Some(of(one)? / of(other)?)).collect()).unwrap_or(f64::NAN)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_are_compared_round_by_round() {
        let of = |numbers: [f64; 3]| Results(numbers.iter().map(|a| serde_json::json!({"a": {"b": a}})).collect());
        let (one, other) = (of([5.0, 1.0, 30.0]), of([1.0, 2.0, 10.0]));
        assert!((one.median("/a/b") - 5.0).abs() < 1e-9 && one.median("/c").is_nan());
        let number = |value: &Value| value.pointer("/a/b")?.as_f64();
        assert!((one.ratio(&other, &number) - 3.0).abs() < 1e-9);
        assert!(one.ratio(&Results(Vec::new()), &number).is_nan());
    }

    #[test]
    fn a_median_is_in_the_middle() {
        assert_eq!(median(vec![5.0, 1.0, 3.0]), Some(3.0));
        assert_eq!(median(vec![2.0, 1.0]), Some(2.0));
        assert_eq!(median(Vec::new()), None);
    }
}
