//! The alerts of docs/prometheus/alerts.yml: each fires in its case on real nodes, and not before.

#[path = "../common/mod.rs"]
mod common;
mod expression;
mod of_clients;
mod of_nodes;

use std::{
    collections::BTreeMap,
    path::Path,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use common::{SOON, metrics, start};
use expression::{Found, Scrape, evaluate, samples};
use freshet::children::NodeProcess;

const HTTP: [&str; 2] = ["--http-listen", "127.0.0.1:0"];

/// The rules: of each name its expression.
fn rules() -> BTreeMap<String, String> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/prometheus/alerts.yml");
    let text = std::fs::read_to_string(path).unwrap();
    let mut rules = BTreeMap::new();
    for rule in text.split("- alert: ").skip(1) {
        let line = |key: &str| {
            let found = rule.lines().find_map(|line| line.trim_start().strip_prefix(key));
            found.unwrap_or_else(|| panic!("{key} is missing in {rule}")).trim().to_owned()
        };
        let name = rule.lines().next().unwrap_or_default().to_owned();
        assert!(line("summary:").len() > 20 && line("description:").len() > 20, "{name}: what to do?");
        assert!(rules.insert(name, line("expr:")).is_none());
    }
    rules
}

/// Nodes that are scraped.
struct Job<'n> {
    nodes: Vec<&'n NodeProcess>,
    scrapes: Vec<Scrape>,
}

impl<'n> Job<'n> {
    fn of(nodes: &[&'n NodeProcess]) -> Self {
        Self { nodes: nodes.to_vec(), scrapes: Vec::new() }
    }

    fn scrape(&mut self) {
        let mut all = Vec::new();
        for (number, node) in self.nodes.iter().enumerate() {
            let instance = number.to_string();
            let labels = [("job", "freshet"), ("instance", instance.as_str())];
            let text = metrics(node.ready().http.as_deref().unwrap());
            all.extend(samples(&format!("up {}", u8::from(text.is_some())), &labels));
            all.extend(samples(&text.unwrap_or_default(), &labels));
        }
        let at = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs_f64();
        self.scrapes.push(Scrape { at, samples: all });
    }

    /// Whether it fires, by all that was scraped.
    fn fires(&self, alert: &str) -> bool {
        let rule = &rules()[alert];
        match evaluate(rule, &self.scrapes) {
            Ok(Found::Series(series)) => !series.is_empty(),
            other => panic!("{rule}: {other:?}"),
        }
    }

    /// The alert does not fire now.
    fn is_silent(&mut self, alert: &str) {
        self.scrape();
        assert!(!self.fires(alert), "{alert} fires without its case");
    }

    /// Scrapes until the alert fires.
    fn wait_for(&mut self, alert: &str) {
        let deadline = Instant::now() + SOON;
        loop {
            self.scrape();
            if self.fires(alert) {
                return;
            }
            assert!(Instant::now() < deadline, "{alert} does not fire");
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

/// A node that serves HTTP, in a new cluster unless these flags name another.
fn node(directory: &Path, more: &[&str]) -> NodeProcess {
    start(directory, &[&HTTP[..], more].concat())
}

/// Its case is made where a sweep can be had at once: crates/lab/tests/begin_again.rs.
const ELSEWHERE: &str = "FreshetStateInDoubt";

/// Each rule is one whose case some test here makes.
#[test]
fn every_rule_has_its_case() {
    let sources = [include_str!("of_nodes.rs"), include_str!("of_clients.rs")].concat();
    let rules = rules();
    assert!(rules.len() > 20);
    assert!(rules.contains_key(ELSEWHERE));
    for (name, rule) in rules.into_iter().filter(|(name, _)| name != ELSEWHERE) {
        for call in ["wait_for", "is_silent"] {
            assert!(sources.contains(&format!("{call}(\"{name}\")")), "no {call} of {name}");
        }
        assert!(!rule.is_empty());
    }
}
