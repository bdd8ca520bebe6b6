//! What a rehearsal has found out.

use std::{collections::BTreeMap, path::PathBuf, time::Duration};

use serde::Serialize;

use super::{acks::Found, fault::Fault, print_line};
use crate::units::grouped;

/// How long nothing was acknowledged after the faults of one kind.
#[derive(Debug, Default, PartialEq, Serialize)]
pub(super) struct Stops {
    pub(super) rounds: u32,
    /// Of the rounds with a primary in time, in milliseconds; by the nearest rank. None without
    /// such a round.
    pub(super) min_ms: Option<f64>,
    pub(super) p50_ms: Option<f64>,
    pub(super) p90_ms: Option<f64>,
    pub(super) p99_ms: Option<f64>,
    pub(super) max_ms: Option<f64>,
    /// Rounds in which no node acknowledged anything in time, or the role moved too often.
    pub(super) without_primary: u32,
    /// How often the role has moved from a primary that lives, where that is counted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) moves: Option<u32>,
}

impl Stops {
    /// Of rounds that took so long, or came to nothing.
    pub(super) fn of(times: &[Option<Duration>]) -> Self {
        let mut sorted: Vec<f64> = times.iter().flatten().map(|time| time.as_secs_f64() * 1e3).collect();
        sorted.sort_unstable_by(f64::total_cmp);
        let at = |percent: usize| {
            let rank = (sorted.len() * percent).div_ceil(100).max(1);
            sorted.get(rank - 1).copied()
        };
        Self {
            rounds: times.len() as u32,
            min_ms: at(0),
            p50_ms: at(50),
            p90_ms: at(90),
            p99_ms: at(99),
            max_ms: at(100),
            without_primary: (times.len() - sorted.len()) as u32,
            moves: None,
        }
    }

    fn print(&self, name: &str) {
        let ms = |value: Option<f64>| value.map_or("-".to_owned(), |value| format!("{value:.0} ms"));
        let moves = self.moves.map_or(String::new(), |moves| format!("; {moves} failover(s) from one that lives"));
        print_line(&format!(
            "{name:<12} {:>7} {:>10} {:>10} {:>10}  {}{moves}",
            self.rounds,
            ms(self.p50_ms),
            ms(self.p99_ms),
            ms(self.max_ms),
            self.without_primary
        ));
    }
}

/// All of it; `--json` prints it as it is.
#[derive(Debug, Default, Serialize)]
pub(super) struct Report {
    pub(super) seed: u64,
    pub(super) nodes: usize,
    pub(super) witness: bool,
    /// The level of the nodes.
    pub(super) level: String,
    /// Who promotes: `automatic`, or `manual` for the command itself, as an operator would.
    pub(super) failover: String,
    pub(super) stops: BTreeMap<Fault, Stops>,
    /// After the deaths of primaries while a cable flapped.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) deaths: Option<Stops>,
    pub(super) acknowledged: usize,
    /// Acknowledged rows that are not on all nodes at the end; none where that could not be looked
    /// up.
    pub(super) lost: Option<usize>,
    /// Rows of open outcome, and how many of them are there.
    pub(super) open: usize,
    pub(super) open_found: usize,
    /// How often sessions heard which SQLSTATE.
    pub(super) errors: BTreeMap<String, u64>,
    /// What else is wrong.
    pub(super) violations: Vec<String>,
    /// Where the nodes' directories are, if anything is wrong.
    pub(super) kept: Option<PathBuf>,
}

impl Report {
    /// Notes what came of all rounds.
    pub(super) fn found(&mut self, found: &BTreeMap<Fault, Vec<Found>>) {
        let of = |all: &Vec<Found>| Stops {
            moves: all.iter().filter_map(|found| found.moves).reduce(|a, b| a + b),
            ..Stops::of(&all.iter().map(|found| found.took).collect::<Vec<_>>())
        };
        self.stops = found.iter().map(|(fault, all)| (*fault, of(all))).collect();
        let deaths: Vec<_> = found.values().flatten().filter_map(|found| found.death).collect();
        self.deaths = Some(Stops::of(&deaths)).filter(|stops| stops.rounds > 0);
    }

    /// Whether nothing is wrong.
    pub(super) fn holds(&self) -> bool {
        let all_led = self.stops.values().chain(&self.deaths).all(|stops| stops.without_primary == 0);
        self.lost == Some(0) && all_led && self.violations.is_empty()
    }

    pub(super) fn print(&self) {
        print_line(&format!(
            "\n{:<12} {:>7} {:>10} {:>10} {:>10}  without a primary",
            "fault", "rounds", "p50", "p99", "longest"
        ));
        self.stops.iter().for_each(|(fault, stops)| stops.print(&fault.name()));
        self.deaths.iter().for_each(|stops| stops.print("flap: death"));
        let errors: Vec<String> =
            self.errors.iter().map(|(code, count)| format!("{code}: {}", grouped(*count))).collect();
        let line = |name: &str, value: String| print_line(&format!("{name:<24} {value}"));
        print_line("");
        line("errors", if errors.is_empty() { "none".to_owned() } else { errors.join(", ") });
        line("acknowledged", format!("{} rows", grouped(self.acknowledged as u64)));
        line("of these LOST", self.lost.map_or("not looked up".to_owned(), |lost| lost.to_string()));
        line("of open outcome", format!("{} rows, {} of them are there", self.open, self.open_found));
        for violation in &self.violations {
            line("WRONG", violation.clone());
        }
        if let Some(kept) = &self.kept {
            line("directories are in", kept.display().to_string());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_figures_of_rounds() {
        let times: Vec<_> = (1..=200).rev().map(|ms| (ms != 200).then(|| Duration::from_millis(ms))).collect();
        let found = Stops::of(&times);
        assert_eq!((found.rounds, found.without_primary), (200, 1));
        let figures = [found.min_ms, found.p50_ms, found.p90_ms, found.p99_ms, found.max_ms];
        assert_eq!(figures, [1.0, 100.0, 180.0, 198.0, 199.0].map(Some));
        assert_eq!(Stops::of(&[None]), Stops { rounds: 1, without_primary: 1, ..Stops::default() });
    }

    #[test]
    fn a_round_without_a_primary_or_a_lost_row_fails() {
        let none = || Report { lost: Some(0), ..Report::default() };
        let with = |stops| Report { stops: [(Fault::Kill, stops)].into(), ..none() };
        let took = Stops::of(&[Some(Duration::from_millis(3))]);
        assert!(with(took).holds());
        assert!(!with(Stops::of(&[None])).holds());
        assert!(none().holds());
        let mut flapped = none();
        let found = Found { took: Some(Duration::from_millis(3)), moves: Some(1), death: Some(None) };
        flapped.found(&[(Fault::Flap, vec![found; 2])].into());
        assert_eq!(flapped.stops[&Fault::Flap].moves, Some(2));
        assert!(!flapped.holds(), "nothing came after the deaths");
        assert!(!Report { lost: Some(1), ..Report::default() }.holds());
        assert!(!Report { lost: None, ..Report::default() }.holds(), "it was not looked up");
        assert!(!Report { violations: vec!["something".to_owned()], ..none() }.holds());
    }
}
