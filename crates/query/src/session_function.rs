//! Functions that only the session can answer.

use freshet_sql::functions::Function;
pub use freshet_sql::functions::SessionFunction;

/// Whether there is any function of this name, of the session or not.
pub fn exists(name: &str) -> bool {
    let known: &[&Function] = freshet_sql::functions::named(name);
    !known.is_empty()
}
