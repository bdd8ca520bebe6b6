//! Statements that are generated from a seed, by topics.

mod expression;
mod other;
mod queries;
pub mod random;
mod volatile;

use random::Random;

/// A topic's statements; the first of them make what the others need.
type Topic = fn(&mut Random, usize) -> Vec<String>;

/// The topics, and how many statements of each there are.
pub const TOPICS: &[(&str, usize, Topic)] = &[
    ("expressions", 700, queries::expressions),
    ("rows", 400, queries::rows),
    ("joins", 600, queries::joins),
    ("aggregates", 500, queries::aggregates),
    ("windows", 400, queries::windows),
    ("subqueries", 500, queries::subqueries),
    ("sets", 300, queries::sets),
    ("with", 300, queries::with),
    ("volatile", 900, volatile::volatile),
    ("casts", 800, other::casts),
    ("upserts", 400, other::upserts),
    ("changes", 400, other::changes),
    ("cursors", 400, other::cursors),
];
