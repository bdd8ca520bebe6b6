//! `freshet bench ycsb`.

use super::{options::YcsbOptions, report::Report};
use crate::Failure;

/// Loads, runs and measures YCSB.
pub(crate) fn run(_options: &YcsbOptions) -> Result<Report, Failure> {
    Err(Failure::new("not yet"))
}
