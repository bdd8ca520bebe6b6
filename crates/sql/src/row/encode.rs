//! Writing rows: from values, or from an older row and what changes in it.

use super::{
    HEADER, Layout, MAX_ROW, Slot, damaged,
    form::{Form, Rest, WIDE, variable, wide},
    no_such_column,
};
use crate::{SqlError, SqlState, Value, ValueRef, types::binary};

#[cold]
#[inline(never)]
fn too_long(length: usize) -> SqlError {
    SqlError::new(SqlState::PROGRAM_LIMIT_EXCEEDED, format!("row is too big: size {length}, maximum size {MAX_ROW}"))
}

/// A row that is being written at the end of a buffer. What was written goes when it is dropped
/// unfinished.
struct Writer<'a> {
    out: &'a mut Vec<u8>,
    start: usize,
    finished: bool,
}

impl Drop for Writer<'_> {
    fn drop(&mut self) {
        if !self.finished {
            self.out.truncate(self.start);
        }
    }
}

impl<'a> Writer<'a> {
    /// A row with nothing but its fixed area, without values.
    fn new(layout: &Layout, out: &'a mut Vec<u8>) -> Self {
        let start = out.len();
        out.resize(start + usize::from(layout.fixed), 0);
        out[start..start + HEADER].copy_from_slice(&layout.fixed.to_le_bytes());
        Self { out, start, finished: false }
    }

    fn length(&self) -> usize {
        self.out.len() - self.start
    }

    /// Presence byte and slot of a column.
    #[inline]
    fn slot(&mut self, slot: Slot) -> &mut [u8] {
        &mut self.out[self.start + usize::from(slot.start)..self.start + usize::from(slot.end)]
    }

    /// Appends bytes of a column (the first `counting` count), and says so in its slot.
    #[inline]
    fn append(&mut self, slot: Slot, bytes: &[u8], counting: usize) -> Result<(), SqlError> {
        let place = self.length();
        if bytes.len() > MAX_ROW - place.min(MAX_ROW) {
            return Err(too_long(place + bytes.len()));
        }
        self.out.extend_from_slice(bytes);
        self.point(slot, place, counting, bytes.len());
        Ok(())
    }

    /// Says in a slot where its bytes lie. Places and lengths are below [`MAX_ROW`].
    #[inline]
    fn point(&mut self, slot: Slot, place: usize, counting: usize, length: usize) {
        let bytes = &mut self.slot(slot)[1..];
        bytes[..4].copy_from_slice(&(place as u32).to_le_bytes());
        bytes[4..8].copy_from_slice(&(counting as u32).to_le_bytes());
        if slot.form == Form::Char {
            bytes[8..].copy_from_slice(&(length as u32).to_le_bytes());
        }
    }

    /// Writes a column's value, or that it is null.
    #[inline]
    fn write(&mut self, layout: &Layout, column: usize, value: ValueRef<'_>) -> Result<(), SqlError> {
        let slot = layout.slots[column];
        if value.is_null() || matches!(slot.form, Form::Dropped(_)) {
            self.slot(slot).fill(0);
            return Ok(());
        }
        let Some((presence, bytes)) = self.slot(slot).split_first_mut() else { return Ok(()) };
        let Some(written) = slot.form.write(value, bytes) else { return Err(mismatch(layout, column, value)) };
        *presence = written.presence;
        match written.rest {
            Rest::None => Ok(()),
            Rest::Bytes { bytes, counting } => self.append(slot, bytes, counting),
            Rest::Decimal(bytes) => self.append(slot, bytes.as_slice(), bytes.as_slice().len()),
            Rest::Array(array) => {
                let place = self.length();
                binary::output(ValueRef::Array(array), self.out);
                let length = self.length();
                if length > MAX_ROW {
                    return Err(too_long(length));
                }
                self.point(slot, place, length - place, length - place);
                Ok(())
            }
        }
    }

    fn finish(mut self) {
        self.finished = true;
    }
}

#[cold]
#[inline(never)]
fn mismatch(layout: &Layout, column: usize, value: ValueRef<'_>) -> SqlError {
    let ty = layout.columns[column].ty;
    let message = match value.kind() {
        Some(kind) if kind == ty.kind() => format!("column {} of type {ty} cannot hold {value}", column + 1),
        Some(kind) => format!("column {} is of type {ty} but expression is of type {kind}", column + 1),
        None => format!("column {} is of type {ty}", column + 1),
    };
    SqlError::new(SqlState::DATATYPE_MISMATCH, message)
}

impl Layout {
    /// Appends a row with these values, which are of their columns' kinds and fit their modifiers.
    /// On an error, `out` is as before. What is given for a dropped column does not count.
    ///
    /// # Errors
    /// 42804 when a value is not of its column's type, 54000 when the row is longer than
    /// [`MAX_ROW`], XX000 when there are more or fewer values than columns.
    pub fn encode(&self, values: &[Value], out: &mut Vec<u8>) -> Result<(), SqlError> {
        if values.len() != self.slots.len() {
            return Err(SqlError::internal(format!(
                "a row of {} columns cannot have {} values",
                self.slots.len(),
                values.len()
            )));
        }
        self.encode_with(|column| values[column].as_ref(), out)
    }

    /// The same with values from anywhere: `value` is asked once for each column, in their order.
    ///
    /// # Errors
    /// As [`Layout::encode`].
    #[inline]
    pub fn encode_with<'v>(
        &self,
        mut value: impl FnMut(usize) -> ValueRef<'v>,
        out: &mut Vec<u8>,
    ) -> Result<(), SqlError> {
        let mut writer = Writer::new(self, out);
        for column in 0..self.slots.len() {
            writer.write(self, column, value(column))?;
        }
        writer.finish();
        Ok(())
    }

    /// Appends the row `old` with these columns changed, the others being copied as they are. The
    /// result is the row that [`Layout::encode`] writes for the same values. If a column is named
    /// twice, the last value counts. On an error, `out` is as before.
    ///
    /// # Errors
    /// As [`Layout::encode`]; XX001 when the old row is damaged.
    pub fn rewrite(&self, old: &[u8], changes: &[(usize, Value)], out: &mut Vec<u8>) -> Result<(), SqlError> {
        self.rewrite_with(old, changes.len(), |at| (changes[at].0, changes[at].1.as_ref()), out)
    }

    /// The same with `count` changes from anywhere, which may be asked for more than once.
    ///
    /// # Errors
    /// As [`Layout::rewrite`].
    pub fn rewrite_with<'v>(
        &self,
        old: &[u8],
        count: usize,
        change: impl Fn(usize) -> (usize, ValueRef<'v>),
        out: &mut Vec<u8>,
    ) -> Result<(), SqlError> {
        let mut in_place = self.is_current(old) && !self.has_dropped;
        for at in 0..count {
            let column = change(at).0;
            let slot = self.slots.get(column).ok_or_else(|| no_such_column(column))?;
            in_place &= !slot.form.is_variable();
        }
        if old.len() > MAX_ROW {
            return Err(too_long(old.len()));
        }
        if !in_place {
            let changed = |column| (0..count).rev().map(&change).find(|(changed, _)| *changed == column);
            return self.rewrite_whole(old, |column| changed(column).map(|(_, value)| value), out);
        }
        // Nothing moves.
        if old.len() < usize::from(self.fixed) {
            return Err(damaged());
        }
        let start = out.len();
        out.extend_from_slice(old);
        let mut writer = Writer { out, start, finished: false };
        for at in 0..count {
            let (column, value) = change(at);
            writer.write(self, column, value)?;
        }
        writer.finish();
        Ok(())
    }

    /// Writes the row again, column by column.
    fn rewrite_whole<'v>(
        &self,
        old: &[u8],
        changed: impl Fn(usize) -> Option<ValueRef<'v>>,
        out: &mut Vec<u8>,
    ) -> Result<(), SqlError> {
        let fixed = super::fixed_length(old).ok_or_else(damaged)?;
        let mut writer = Writer::new(self, out);
        for (column, slot) in self.slots.iter().enumerate() {
            if let Some(value) = changed(column) {
                writer.write(self, column, value)?;
                continue;
            }
            if slot.end > fixed {
                writer.write(self, column, self.missing(column))?;
                continue;
            }
            let bytes = old.get(usize::from(slot.start)..usize::from(slot.end)).ok_or_else(damaged)?;
            if bytes[0] == 0 || matches!(slot.form, Form::Dropped(_)) {
                continue;
            }
            writer.slot(*slot).copy_from_slice(bytes);
            if slot.form.is_variable() {
                let (presence, bytes) = (bytes[0], &bytes[1..]);
                let counting = variable(bytes, 4, old).ok_or_else(damaged)?.len();
                let value = if slot.form == Form::Numeric && presence == WIDE {
                    wide(bytes, old)
                } else {
                    variable(bytes, slot.form.length_at(), old)
                };
                let value = value.ok_or_else(damaged)?;
                writer.append(*slot, value, counting)?;
            }
        }
        writer.finish();
        Ok(())
    }
}
