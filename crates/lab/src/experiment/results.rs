//! What was measured.

use serde_json::Value;

use super::{
    frame::{Column, Run, Scale},
    plot::{Curve, Point, places_of},
};
use crate::bench::child::median;

/// All runs of an experiment.
#[derive(Debug)]
pub(crate) struct Results {
    pub(crate) x: &'static str,
    pub(crate) columns: &'static [Column],
    pub(crate) scale: Scale,
    pub(crate) runs: Vec<Run>,
    /// What each run found, round by round.
    pub(crate) found: Vec<Vec<Value>>,
}

impl Results {
    /// The names of the series, in the order of the sweep.
    pub(crate) fn series(&self) -> Vec<&str> {
        let mut names: Vec<&str> = Vec::new();
        for run in &self.runs {
            if !names.contains(&run.series.as_str()) {
                names.push(&run.series);
            }
        }
        names
    }

    /// Where a series was measured.
    pub(crate) fn xs(&self, series: &str) -> Vec<f64> {
        self.runs.iter().filter(|run| run.series == series).map(|run| run.x).collect()
    }

    /// A number of one run, in all rounds that have it.
    pub(crate) fn samples(&self, run: usize, column: &str) -> Vec<f64> {
        let Some(column) = self.columns.iter().find(|it| it.name == column) else { return Vec::new() };
        self.found[run].iter().filter_map(|value| value.pointer(column.pointer)?.as_f64()).collect()
    }

    /// The median of a number at one point; not a number when it was not measured there.
    pub(crate) fn at(&self, series: &str, x: f64, column: &str) -> f64 {
        let run = self.runs.iter().position(|run| run.series == series && (run.x - x).abs() < 1e-9);
        run.and_then(|run| median(self.samples(run, column))).unwrap_or(f64::NAN)
    }

    /// The curve of a number, times a factor, with the range of the rounds.
    pub(crate) fn curve(&self, series: &str, column: &str, factor: f64) -> Curve {
        let points =
            self.runs.iter().enumerate().filter(|(_, run)| run.series == series).filter_map(|(number, run)| {
                let samples: Vec<f64> = self.samples(number, column).into_iter().map(|y| y * factor).collect();
                let low = samples.iter().copied().min_by(f64::total_cmp)?;
                let high = samples.iter().copied().max_by(f64::total_cmp)?;
                Some(Point { x: run.x, y: median(samples)?, low, high })
            });
        Curve::measured(series, self.number(series), points.collect())
    }

    /// Several numbers of one run side by side, times a factor.
    pub(crate) fn across(&self, label: &str, of: (&str, f64), color: usize, columns: &[&str], factor: f64) -> Curve {
        let points = places_of(columns).into_iter().filter_map(|(place, column)| {
            let curve = self.curve(of.0, column, factor);
            Some(Point { x: place, ..*curve.points.iter().find(|point| (point.x - of.1).abs() < 1e-9)? })
        });
        Curve::measured(label, color, points.collect()).apart()
    }

    /// The same relative to one point, which is 1 before it is multiplied with the factor.
    pub(crate) fn relative(&self, series: &str, column: &str, to: (&str, f64), factor: f64) -> Curve {
        self.curve(series, column, factor / self.at(to.0, to.1, column))
    }

    /// The curves of all series that have this number.
    pub(crate) fn curves(&self, column: &str, factor: f64) -> Vec<Curve> {
        let curves = self.series().into_iter().map(|series| self.curve(series, column, factor));
        curves.filter(|curve| !curve.points.is_empty()).collect()
    }

    /// The number of a series, which decides its colour.
    pub(crate) fn number(&self, series: &str) -> usize {
        self.series().iter().position(|it| *it == series).unwrap_or(0)
    }

    /// Of one series at one point: what the middle round found.
    pub(crate) fn middle(&self, series: &str, x: f64, column: &str) -> Option<&Value> {
        let run = self.runs.iter().position(|run| run.series == series && (run.x - x).abs() < 1e-9)?;
        let middle = median(self.samples(run, column))?;
        let pointer = self.columns.iter().find(|it| it.name == column)?.pointer;
        self.found[run].iter().find(|value| value.pointer(pointer).and_then(Value::as_f64) == Some(middle))
    }

    /// By how much rounds of the same run differ, at most, as a share of their median: differences
    /// below that mean little.
    pub(crate) fn noise(&self, column: &str) -> f64 {
        let spread = |run: usize| {
            let samples = self.samples(run, column);
            let low = samples.iter().copied().min_by(f64::total_cmp)?;
            let high = samples.iter().copied().max_by(f64::total_cmp)?;
            Some((high - low) / median(samples)?.max(1e-9))
        };
        (0..self.runs.len()).filter_map(spread).max_by(f64::total_cmp).unwrap_or(0.0)
    }
}
