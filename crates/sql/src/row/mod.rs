//! Rows: how a table's values lie in memory, and how index keys follow from them.
//!
//! A row is a byte string:
//!
//! | bytes | what |
//! |---|---|
//! | 2 | length of the fixed area in bytes, little-endian, these two included |
//! | for each column: 1 | 0 for null; otherwise the value is there (it may tell more: a negative zero, a scale) |
//! | for each column: its slot | the value, or place and length of its bytes, each a little-endian `u32` |
//! | the rest | values of variable length, in the order of their columns |
//!
//! Places count from the row's start. So columns have fixed offsets, are read in place, and the
//! engine computes index keys from rows without knowing types: a [`KeyColumn`] says how.
//!
//! A row whose fixed area ends before a column was written before that column was added; its value
//! is then the one that the [`Layout`] has for missing values. Adding a column rewrites no row. An
//! index on such a column needs its slot in all rows: those that are not
//! [current](Layout::is_current) are [rewritten](Layout::rewrite) first.

mod encode;
mod form;
mod key;
mod range;

use form::Form;
pub use key::{KeyColumn, KeyEncoding};
pub use range::KeyRange;

use crate::{SqlError, SqlState, Type, Value, ValueRef};

/// The longest row, in bytes.
pub const MAX_ROW: usize = 256 << 20;

/// What a table's rows have of a column.
#[derive(Clone, Debug)]
pub struct Column {
    /// The type of its values.
    pub ty: Type,
    /// Its value in rows that were written before it was added.
    pub missing: Value,
    /// Whether it was dropped: rows keep its slot, without a value.
    pub dropped: bool,
}

impl Column {
    /// A column that all rows have, or that is null where they do not.
    pub const fn new(ty: Type) -> Self {
        Self { ty, missing: Value::Null, dropped: false }
    }

    /// A column that was added later, with the value that it has in older rows.
    pub const fn added(ty: Type, missing: Value) -> Self {
        Self { ty, missing, dropped: false }
    }

    /// A column that is no more; its type still says how wide its slot is.
    pub const fn dropped(ty: Type) -> Self {
        Self { ty, missing: Value::Null, dropped: true }
    }
}

/// Where a column lies in a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Slot {
    /// Where its presence byte lies; the value begins behind it.
    start: u16,
    /// One past the last byte.
    end: u16,
    form: Form,
}

impl Slot {
    /// Where the value begins.
    const fn value(self) -> usize {
        self.start as usize + 1
    }
}

/// How a table's rows are laid out.
#[derive(Clone, Debug)]
pub struct Layout {
    slots: Vec<Slot>,
    columns: Vec<Column>,
    /// Length of the fixed area.
    fixed: u16,
    /// Whether a column was dropped.
    has_dropped: bool,
}

/// The length of the fixed area stands at the front.
const HEADER: usize = 2;

#[cold]
#[inline(never)]
fn damaged() -> SqlError {
    SqlError::new(SqlState::DATA_CORRUPTED, "a row is damaged")
}

#[cold]
#[inline(never)]
fn no_such_column(column: usize) -> SqlError {
    SqlError::internal(format!("a row has no column {column}"))
}

impl Layout {
    /// The layout of rows with these columns. The same columns always have the same layout, and
    /// columns behind them do not change it.
    ///
    /// # Errors
    /// 54011 when the columns need more than 65,535 bytes, 42P16 when a column's type has no values
    /// that can be kept, XX000 when a missing value is not of its column's type.
    pub fn new(columns: Vec<Column>) -> Result<Self, SqlError> {
        let mut slots = Vec::with_capacity(columns.len());
        let mut end = HEADER as u16;
        for (at, column) in columns.iter().enumerate() {
            let form = Form::of(column.ty)?;
            let start = end;
            end = start.checked_add(1 + form.width()).ok_or_else(|| {
                SqlError::new(SqlState::TOO_MANY_COLUMNS, format!("the first {at} columns fill a row already"))
            })?;
            slots.push(Slot { start, end, form: if column.dropped { Form::Dropped(form.width()) } else { form } });
        }
        let has_dropped = columns.iter().any(|column| column.dropped);
        let layout = Self { slots, columns, fixed: end, has_dropped };
        let mut row = Vec::new();
        layout.encode_with(|at| layout.columns[at].missing.as_ref(), &mut row)?;
        Ok(layout)
    }

    /// The columns, those that were dropped among them.
    pub fn columns(&self) -> &[Column] {
        &self.columns
    }

    /// The length of the shortest row in bytes: of one with nothing but nulls.
    pub const fn shortest(&self) -> usize {
        self.fixed as usize
    }

    /// Whether the row has slots for all columns.
    pub fn is_current(&self, row: &[u8]) -> bool {
        fixed_length(row) == Some(self.fixed)
    }

    /// The value of a column, where it lies. Dropped columns are null.
    ///
    /// # Errors
    /// XX001 when the row is damaged, XX000 when there is no such column.
    #[inline]
    pub fn get<'a>(&'a self, row: &'a [u8], column: usize) -> Result<ValueRef<'a>, SqlError> {
        let Some(&Slot { start, end, form }) = self.slots.get(column) else { return Err(no_such_column(column)) };
        let Some(fixed) = fixed_length(row) else { return Err(damaged()) };
        if end > fixed {
            return Ok(self.missing(column));
        }
        let Some((&presence, value)) = row.get(usize::from(start)..usize::from(end)).and_then(<[u8]>::split_first)
        else {
            return Err(damaged());
        };
        if presence == 0 {
            return Ok(ValueRef::Null);
        }
        form.read(presence, value, row).ok_or_else(damaged)
    }

    #[cold]
    #[inline(never)]
    fn missing(&self, column: usize) -> ValueRef<'_> {
        match &self.columns[column] {
            Column { dropped: true, .. } => ValueRef::Null,
            column => column.missing.as_ref(),
        }
    }

    /// All values of a row.
    ///
    /// # Errors
    /// XX001 when the row is damaged.
    pub fn decode(&self, row: &[u8]) -> Result<Vec<Value>, SqlError> {
        (0..self.slots.len()).map(|column| Ok(self.get(row, column)?.to_value())).collect()
    }

    /// Where in a row the value of a column begins; the byte before it is zero where it is null.
    pub fn value_offset(&self, column: usize) -> Option<u16> {
        self.slots.get(column).map(|slot| slot.value() as u16)
    }

    /// How keys follow from a column; nothing when its type has no keys (json, jsonb and arrays) or
    /// it was dropped. All columns are nullable in keys.
    pub fn key_column(&self, column: usize, descending: bool) -> Option<KeyColumn> {
        let slot = self.slots.get(column)?;
        KeyColumn::new(slot.value() as u16, slot.form, descending)
    }
}

/// What the row says of the length of its fixed area.
#[inline]
fn fixed_length(row: &[u8]) -> Option<u16> {
    row.first_chunk().copied().map(u16::from_le_bytes)
}

#[cfg(test)]
mod tests;
