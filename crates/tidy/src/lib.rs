//! Habits of the source that no compiler checks.
//!
//! Each rule counts what offends it. `ratchet.txt` has what is left from before, by rule and
//! place, and may only fall: a change that adds to a count fails, and one that takes from it lowers
//! the number there (`./test --fix` does).
//!
//! | module | does |
//! |---|---|
//! | [`source`] | the files of the project, their code, comments and strings distinguished |
//! | [`rules`] | what offends each rule |
//! | [`names`] | words that names do not have |
//! | [`links`] | links from document to document |
//! | [`paths`] | files and items of Rust that documents name |
//! | [`ratchet`] | what is left from before |
//! | [`wrap`] | wraps comments |
#![forbid(unsafe_code)]

pub mod links;
pub mod names;
pub mod paths;
pub mod ratchet;
pub mod rules;
pub mod source;
pub mod wrap;
