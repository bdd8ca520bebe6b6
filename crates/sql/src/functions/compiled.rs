//! What the `regex` crate makes of an expression, and the memory that it takes for that.

use super::regex::{invalid, too_complex};
use crate::{SqlError, work};

/// The memory that the largest expression takes, about: the library refuses what is larger.
const LARGEST: usize = 10 << 20;
/// An expression without counts that is no longer takes much less.
const SHORT: usize = 1 << 10;

/// Compiles it.
///
/// # Errors
/// 2201B when it is none, or too complex; 53200.
pub(super) fn build(written: &str, any_case: bool) -> Result<regex::Regex, SqlError> {
    if written.contains('{') || written.len() > SHORT {
        work::room_for(LARGEST)?;
    }
    let built = regex::RegexBuilder::new(written).case_insensitive(any_case).build();
    work::made()?;
    built.map_err(|error| match error {
        regex::Error::CompiledTooBig(_) => too_complex(),
        _ => {
            let detail = error.to_string();
            let range = detail.contains("invalid character class range");
            invalid(if range { "invalid character range" } else { "syntax error" }).with_detail(detail)
        }
    })
}
