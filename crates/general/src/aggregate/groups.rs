//! What an aggregate keeps for each of its groups.

use arrow::array::{ArrayRef, BooleanArray};
use datafusion_common::Result;
use freshet_sql::{SqlError, Value};

/// The states of groups, which are numbered.
pub(super) trait Groups: Send + Sync {
    /// Makes room for this many groups.
    fn resize(&mut self, count: usize);

    /// Adds rows to their groups, those which pass the filter.
    ///
    /// # Errors
    /// When a result is out of range, or memory is short.
    fn update(&mut self, values: &[ArrayRef], groups: &[usize], filter: Option<&BooleanArray>) -> Result<()>;

    /// The result of a group, which may still get more rows.
    ///
    /// # Errors
    /// When it is out of range.
    fn value(&self, group: usize) -> Result<Value, SqlError>;

    /// Forgets the first groups; the others move up.
    fn drop_first(&mut self, count: usize);

    /// Bytes that are taken.
    fn size(&self) -> usize;
}

/// Whether a row passes a filter.
#[inline]
pub(super) fn passes(filter: Option<&BooleanArray>, row: usize) -> bool {
    use arrow::array::Array as _;
    filter.is_none_or(|filter| filter.is_valid(row) && filter.value(row))
}
