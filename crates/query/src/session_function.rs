//! Functions that only the session can answer.

use freshet_sql::functions::Function;
pub use freshet_sql::functions::SessionFunction;

/// Functions that are called without parentheses. No column has such a name without quotes.
pub const WORDS: [&str; 11] = [
    "current_date",
    "current_time",
    "current_timestamp",
    "localtime",
    "localtimestamp",
    "current_user",
    "current_role",
    "session_user",
    "user",
    "current_catalog",
    "current_schema",
];

/// Whether there is any function of this name, of the session or not.
pub fn exists(name: &str) -> bool {
    let known: &[&Function] = freshet_sql::functions::named(name);
    !known.is_empty()
}
