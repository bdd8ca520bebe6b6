//! What a table is: its name, and how its index keys follow from its rows.
//!
//! Rows are byte strings with fixed-width columns at fixed offsets. Keys are
//! computed from rows, here and nowhere else, so that primary, restart and
//! standby agree, and a reader can check that an index entry still holds.

use std::fmt;

use serde::{Deserialize, Serialize};

/// How a column's bytes become part of a key that sorts as the column's values do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum KeyEncoding {
    /// The bytes themselves, compared as unsigned bytes.
    Bytes,
    /// A little-endian unsigned integer of the column's width, written big-endian.
    Unsigned,
    /// A little-endian two's-complement integer of the column's width, written big-endian with its
    /// sign bit flipped.
    Signed,
    /// A little-endian IEEE number of 4 or 8 bytes: negative ones with all bits flipped, others
    /// with the sign bit. Who writes rows sees to it that there is one zero and one NaN.
    Float,
    /// Bytes of any length, elsewhere in the row: the column holds their place and their length,
    /// each a little-endian `u32`. Written with each zero byte as `00 FF`, and ended by `00 00`.
    Variable,
}

/// One column of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeyPart {
    /// Where the column starts in the row, in bytes.
    pub offset: u16,
    /// Its width, in bytes; at most 16 for integers.
    pub width: u16,
    /// How it is written into the key.
    pub encoding: KeyEncoding,
    /// Whether the byte before the column says that there is a value: 0 for none. A value is then
    /// written behind a byte 1, none as a byte 2 alone: it is larger than all values.
    pub nullable: bool,
    /// Whether larger values come first: all bytes are flipped.
    pub descending: bool,
    /// Whether none is smaller than all values: it is written as a byte 0.
    pub missing_low: bool,
}

/// Something that a row must be for an index to have it: whether one of its bytes is zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RowTest {
    /// The byte's offset in the row.
    pub offset: u16,
    /// Whether it must be zero; otherwise it must be anything else.
    pub zero: bool,
}

impl RowTest {
    /// Whether `row`, which is long enough, passes.
    #[inline]
    fn passes(self, row: &[u8]) -> bool {
        (row[usize::from(self.offset)] == 0) == self.zero
    }
}

/// The byte before a value in a key, and in place of one that is missing.
const PRESENT: u8 = 1;
const MISSING: u8 = 2;
const MISSING_LOW: u8 = 0;

impl KeyPart {
    /// A column that always has a value, ascending.
    pub const fn new(offset: u16, width: u16, encoding: KeyEncoding) -> Self {
        Self { offset, width, encoding, nullable: false, descending: false, missing_low: false }
    }

    /// A column of raw bytes.
    pub const fn bytes(offset: u16, width: u16) -> Self {
        Self::new(offset, width, KeyEncoding::Bytes)
    }

    /// A little-endian unsigned column.
    pub const fn unsigned(offset: u16, width: u16) -> Self {
        Self::new(offset, width, KeyEncoding::Unsigned)
    }

    /// A little-endian two's-complement column.
    pub const fn signed(offset: u16, width: u16) -> Self {
        Self::new(offset, width, KeyEncoding::Signed)
    }

    /// The same column, with a byte before it that says whether it has a value.
    pub const fn nullable(self) -> Self {
        Self { nullable: true, ..self }
    }

    /// The same column, larger values first.
    pub const fn descending(self) -> Self {
        Self { descending: true, ..self }
    }

    /// The same column; none is smaller than all values.
    pub const fn missing_low(self) -> Self {
        Self { missing_low: true, ..self }
    }

    /// One past the column's last byte in the row.
    const fn end(&self) -> usize {
        self.offset as usize + self.width as usize
    }

    /// Whether its bytes in the key are as many as in the row, and follow from them alone.
    const fn is_plain(&self) -> bool {
        !self.nullable && !self.descending && !matches!(self.encoding, KeyEncoding::Variable)
    }

    /// How many bytes it takes in a key at least.
    const fn least(&self) -> usize {
        match self.encoding {
            _ if self.nullable => 1,
            KeyEncoding::Variable => 2,
            _ => self.width as usize,
        }
    }

    /// Whether the row has no value here.
    #[inline]
    fn is_missing(&self, row: &[u8]) -> bool {
        self.nullable && row[self.offset as usize - 1] == 0
    }

    /// A column of variable length; nothing where its place lies outside of the row.
    fn variable<'r>(&self, row: &'r [u8]) -> &'r [u8] {
        let word = |at: usize| u32::from_le_bytes(std::array::from_fn(|i| row[at + i])) as usize;
        let (from, length) = (word(self.offset as usize), word(self.offset as usize + 4));
        row.get(from..from.saturating_add(length)).unwrap_or_default()
    }

    /// Writes a column of fixed width.
    #[inline]
    fn encode_fixed(&self, row: &[u8], out: &mut [u8]) {
        let column = &row[self.offset as usize..self.end()];
        match self.encoding {
            KeyEncoding::Bytes => return out.copy_from_slice(column),
            KeyEncoding::Unsigned | KeyEncoding::Signed | KeyEncoding::Float => {
                // The usual widths are compiled to one byte swap.
                match (column, &mut *out) {
                    (&[a, b, c, d], [w, x, y, z]) => [*w, *x, *y, *z] = [d, c, b, a],
                    (&[a, b, c, d, e, f, g, h], [s, t, u, v, w, x, y, z]) => {
                        [*s, *t, *u, *v, *w, *x, *y, *z] = [h, g, f, e, d, c, b, a];
                    }
                    (column, out) => out.iter_mut().zip(column.iter().rev()).for_each(|(to, from)| *to = *from),
                }
            }
            KeyEncoding::Variable => unreachable!("its width in the key is another"),
        }
        match self.encoding {
            KeyEncoding::Signed => out[0] ^= 0x80,
            KeyEncoding::Float if out[0] & 0x80 != 0 => out.iter_mut().for_each(|byte| *byte = !*byte),
            KeyEncoding::Float => out[0] ^= 0x80,
            _ => {}
        }
    }

    /// Appends the column to a key.
    #[inline]
    fn append(&self, row: &[u8], key: &mut KeyBuffer) {
        if self.is_plain() {
            return key.extend_with(self.width as usize, |out| self.encode_fixed(row, out));
        }
        let from = key.length;
        if self.is_missing(row) {
            key.push(if self.missing_low { MISSING_LOW } else { MISSING });
        } else {
            if self.nullable {
                key.push(PRESENT);
            }
            if self.encoding == KeyEncoding::Variable {
                for byte in self.variable(row) {
                    key.push(*byte);
                    if *byte == 0 {
                        key.push(0xFF);
                    }
                }
                key.push(0);
                key.push(0);
            } else {
                key.extend_with(self.width as usize, |out| self.encode_fixed(row, out));
            }
        }
        if self.descending {
            let length = key.length;
            key.bytes[from.min(length)..length].iter_mut().for_each(|byte| *byte = !*byte);
        }
    }

    /// Whether two rows, which are long enough, have the same value here.
    #[inline]
    fn same(&self, one: &[u8], other: &[u8]) -> bool {
        let column = self.offset as usize..self.end();
        match (self.is_missing(one), self.is_missing(other)) {
            (false, false) if self.encoding == KeyEncoding::Variable => self.variable(one) == self.variable(other),
            (false, false) => one[column.clone()] == other[column],
            (one, other) => one == other,
        }
    }
}

/// How far an index has come. An index that is made with its table is ready at once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum IndexState {
    /// Writers enter what they write; records that were there before are still to be entered.
    /// Nobody reads it.
    Building,
    /// It has every record, and may be read.
    #[default]
    Ready,
    /// Nobody needs it any more. Its number is not used again.
    Dropped,
}

/// One ordered index of a table.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct IndexDefinition {
    /// Unique within the table.
    pub name: String,
    /// Whether two live records may have the same key.
    pub unique: bool,
    /// The key's columns, most significant first.
    pub parts: Vec<KeyPart>,
    /// The index has the rows that pass all of these, and no others.
    pub tests: Vec<RowTest>,
    /// Whether a missing value is the same as another one, where keys are unique.
    pub missing_is_same: bool,
    /// How far it has come.
    pub state: IndexState,
}

/// A key computed from a row.
#[derive(Clone)]
pub struct KeyBuffer {
    bytes: [u8; IndexDefinition::MAX_KEY],
    length: usize,
    /// There was more than fits.
    overflown: bool,
}

impl KeyBuffer {
    /// An empty key.
    pub fn new() -> Self {
        Self { bytes: [0; IndexDefinition::MAX_KEY], length: 0, overflown: false }
    }

    /// The key's bytes, whose order is that of the index.
    pub fn as_slice(&self) -> &[u8] {
        &self.bytes[..self.length]
    }

    /// The key, unless there was more than fits.
    #[inline]
    pub(crate) fn whole(&self) -> Option<&[u8]> {
        (!self.overflown).then(|| self.as_slice())
    }

    #[inline]
    fn push(&mut self, byte: u8) {
        match self.bytes.get_mut(self.length) {
            Some(place) => {
                *place = byte;
                self.length += 1;
            }
            None => self.overflown = true,
        }
    }

    #[inline]
    fn extend_with(&mut self, width: usize, write: impl FnOnce(&mut [u8])) {
        match self.bytes.get_mut(self.length..self.length + width) {
            Some(place) => {
                write(place);
                self.length += width;
            }
            None => self.overflown = true,
        }
    }
}

impl Default for KeyBuffer {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for KeyBuffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:02x?}", self.as_slice())
    }
}

impl IndexDefinition {
    /// The longest key, in bytes.
    pub const MAX_KEY: usize = crate::index::MAX_KEY;

    /// An index over `parts`.
    pub fn new(name: &str, unique: bool, parts: &[KeyPart]) -> Self {
        Self {
            name: name.to_owned(),
            unique,
            parts: parts.to_vec(),
            tests: Vec::new(),
            missing_is_same: false,
            state: IndexState::Ready,
        }
    }

    /// The same index, of the rows that pass these tests.
    pub fn of_rows(self, tests: Vec<RowTest>) -> Self {
        Self { tests, ..self }
    }

    /// The same index, where missing values are the same if this is so.
    pub fn with_missing_the_same(self, missing_is_same: bool) -> Self {
        Self { missing_is_same, ..self }
    }

    /// Whether the other one has the same name and keys, however far either has come.
    pub fn is_same(&self, other: &Self) -> bool {
        let Self { name, unique, parts, tests, missing_is_same, state: _ } = self;
        (name, unique, parts) == (&other.name, &other.unique, &other.parts)
            && (tests, missing_is_same) == (&other.tests, &other.missing_is_same)
    }

    /// Bytes that each of its keys has at least; with columns of fixed width that are never
    /// missing, exactly.
    pub fn least_key(&self) -> usize {
        self.parts.iter().map(KeyPart::least).sum()
    }

    /// The shortest row that has all columns of a key.
    pub fn least_row(&self) -> usize {
        let parts = self.parts.iter().map(KeyPart::end);
        parts.chain(self.tests.iter().map(|test| usize::from(test.offset) + 1)).max().unwrap_or(0)
    }

    /// Whether the index has rows like this one, which is no shorter than [`Self::least_row`].
    #[inline]
    pub fn has(&self, row: &[u8]) -> bool {
        self.tests.iter().all(|test| test.passes(row))
    }

    /// The key of `row`.
    ///
    /// # Panics
    /// When the row is shorter than [`Self::least_row`]: tables check rows when they take them in.
    #[inline]
    pub fn key_of<'k>(&self, row: &[u8], key: &'k mut KeyBuffer) -> &'k [u8] {
        (key.length, key.overflown) = (0, false);
        for part in &self.parts {
            part.append(row, key);
        }
        key.as_slice()
    }

    /// Whether the key of `row`, which is no shorter than the table's shortest, fits. Only columns
    /// of variable length make keys that do not.
    #[inline]
    pub fn fits(&self, row: &[u8]) -> bool {
        if self.parts.iter().all(|part| part.encoding != KeyEncoding::Variable) {
            return true;
        }
        let mut key = KeyBuffer::new();
        self.key_of(row, &mut key);
        !key.overflown
    }

    /// Whether the key of `row` is never the same as another row's, since a column of it is
    /// missing.
    #[inline]
    pub fn lacks_value(&self, row: &[u8]) -> bool {
        !self.missing_is_same && self.parts.iter().any(|part| part.is_missing(row))
    }

    /// Whether two rows have the same key, or both have none since the index has no rows like
    /// them. Rows that are too short have none either, and are never the same.
    #[inline]
    pub fn same_key(&self, one: &[u8], other: &[u8]) -> bool {
        let shorter = one.len().min(other.len());
        if !self.tests.is_empty() {
            if shorter < self.least_row() {
                return false;
            }
            match (self.has(one), self.has(other)) {
                (true, true) => {}
                (one, other) => return one == other,
            }
        }
        self.parts.iter().all(|part| part.end() <= shorter && part.same(one, other))
    }

    /// Whether `row` has exactly the key `key`. A shorter row than the table's shortest has none.
    #[inline]
    pub fn matches(&self, row: &[u8], key: &[u8]) -> bool {
        if !self.tests.iter().all(|test| usize::from(test.offset) < row.len() && test.passes(row)) {
            return false;
        }
        let mut rest = key;
        for part in &self.parts {
            if row.len() < part.end() {
                return false;
            }
            if !part.is_plain() {
                let mut encoded = KeyBuffer::new();
                part.append(row, &mut encoded);
                match rest.strip_prefix(encoded.as_slice()) {
                    Some(after) if !encoded.overflown => rest = after,
                    _ => return false,
                }
                continue;
            }
            let width = part.width as usize;
            if rest.len() < width {
                return false;
            }
            let (expected, after) = rest.split_at(width);
            let column = &row[part.offset as usize..part.end()];
            let same = match part.encoding {
                KeyEncoding::Bytes => column == expected,
                KeyEncoding::Unsigned if width == 4 => {
                    u32::from_le_bytes(column.try_into().expect("4"))
                        == u32::from_be_bytes(expected.try_into().expect("4"))
                }
                KeyEncoding::Unsigned if width == 8 => {
                    u64::from_le_bytes(column.try_into().expect("8"))
                        == u64::from_be_bytes(expected.try_into().expect("8"))
                }
                _ => {
                    let mut encoded = [0; WIDEST];
                    part.encode_fixed(row, &mut encoded[..width]);
                    encoded[..width] == *expected
                }
            };
            if !same {
                return false;
            }
            rest = after;
        }
        rest.is_empty()
    }
}

/// The widest number.
const WIDEST: usize = 16;

/// A table's name and indexes. The first index is the primary one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TableDefinition {
    /// Unique within the database.
    pub name: String,
    /// At least one, the first being unique: what hashes and scans go by. An index's place here is
    /// its number, for good: those that are dropped stay where they were.
    pub indexes: Vec<IndexDefinition>,
}

/// Why a definition is no table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DefinitionError(String);

impl fmt::Display for DefinitionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for DefinitionError {}

impl TableDefinition {
    /// A table with these indexes, the first being the primary one.
    pub fn new(name: &str, indexes: Vec<IndexDefinition>) -> Self {
        Self { name: name.to_owned(), indexes }
    }

    /// How many indexes a table can have in its life, those that were dropped included.
    pub const MAX_INDEXES: usize = 512;

    /// Checks what the rest of the engine relies on.
    ///
    /// # Errors
    /// Says what is wrong with which index.
    pub fn validate(&self) -> Result<(), DefinitionError> {
        let error = |what: String| Err(DefinitionError(format!("table {:?}: {what}", self.name)));
        if self.name.is_empty() {
            return error("a table needs a name".into());
        }
        match self.indexes.first() {
            None => return error("a table needs a primary index".into()),
            Some(first) if !first.unique => return error(format!("its first index {:?} must be unique", first.name)),
            Some(first) if first.state != IndexState::Ready => return error("its first index is always there".into()),
            Some(first) if !first.tests.is_empty() => return error("its first index has all rows".into()),
            Some(_) => {}
        }
        if self.indexes.len() > Self::MAX_INDEXES {
            return error(format!("it has had {} indexes, no more are possible", Self::MAX_INDEXES));
        }
        for index in &self.indexes {
            if index.parts.is_empty() {
                return error(format!("index {:?} has no column", index.name));
            }
            if index.least_key() > IndexDefinition::MAX_KEY {
                let (length, limit) = (index.least_key(), IndexDefinition::MAX_KEY);
                return error(format!("keys of index {:?} have {length} bytes, more than {limit}", index.name));
            }
            for part in &index.parts {
                let possible = match part.encoding {
                    KeyEncoding::Bytes => part.width > 0,
                    KeyEncoding::Unsigned | KeyEncoding::Signed => (1..=WIDEST).contains(&(part.width as usize)),
                    KeyEncoding::Float => matches!(part.width, 4 | 8),
                    KeyEncoding::Variable => part.width == 8,
                };
                if !possible {
                    let encoding = part.encoding;
                    return error(format!(
                        "index {:?} has a column of width {} as {encoding:?}",
                        index.name, part.width
                    ));
                }
                if part.nullable && part.offset == 0 {
                    return error(format!("index {:?}: no byte before a column says whether it is there", index.name));
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_sort_as_values_do_and_match_their_rows() {
        let index = IndexDefinition::new(
            "k",
            true,
            &[KeyPart::signed(0, 4), KeyPart::unsigned(4, 8), KeyPart::bytes(12, 3), KeyPart::signed(15, 2)],
        );
        let row = |a: i32, b: u64, c: &[u8; 3], d: i16| {
            let mut row = Vec::new();
            row.extend(a.to_le_bytes());
            row.extend(b.to_le_bytes());
            row.extend(c);
            row.extend(d.to_le_bytes());
            row
        };
        let ordered =
            [(-5, 9, b"abc", 1), (-1, 0, b"abc", -7), (-1, 0, b"abc", 3), (-1, 256, b"aaa", 0), (7, 1, b"aaa", 0)];
        let mut keys = Vec::new();
        for (a, b, c, d) in ordered {
            let row = row(a, b, c, d);
            let mut key = KeyBuffer::new();
            keys.push(index.key_of(&row, &mut key).to_vec());
            for (other, key) in keys.iter().enumerate() {
                assert_eq!(index.matches(&row, key), other == keys.len() - 1);
            }
            assert!(!index.matches(&row[..10], keys.last().unwrap()));
            assert!(!index.matches(&row, &keys.last().unwrap()[..16]));
        }
        assert!(keys.is_sorted());
    }

    /// A row of a nullable number, a nullable text and a float.
    fn row_of(number: Option<i64>, text: Option<&[u8]>, float: f64) -> Vec<u8> {
        let mut row = vec![u8::from(number.is_some())];
        row.extend(number.unwrap_or_default().to_le_bytes());
        row.push(u8::from(text.is_some()));
        row.extend(26u32.to_le_bytes());
        row.extend((text.unwrap_or_default().len() as u32).to_le_bytes());
        row.extend(float.to_le_bytes());
        row.extend(text.unwrap_or_default());
        row
    }

    proptest::proptest! {
        /// Keys sort as values do, whatever they are; a row has its own key and no other.
        #[test]
        fn keys_sort_as_values_do(
            rows in proptest::collection::vec(
                (
                    proptest::option::of(proptest::num::i64::ANY),
                    proptest::option::of(proptest::collection::vec(0u8..3, 0..5)),
                    proptest::num::f64::NORMAL | proptest::num::f64::ZERO,
                ),
                2,
            ),
            descending in proptest::bool::ANY,
            text_first in proptest::bool::ANY,
            missing_low in proptest::bool::ANY,
        ) {
            let text = KeyPart::new(10, 8, KeyEncoding::Variable).nullable();
            let number = KeyPart::signed(1, 8).nullable();
            let float = KeyPart::new(18, 8, KeyEncoding::Float);
            let mut parts = if text_first { vec![text, number, float] } else { vec![number, float, text] };
            if descending {
                parts.iter_mut().for_each(|part| *part = part.descending());
            }
            if missing_low {
                parts.iter_mut().for_each(|part| *part = part.missing_low());
            }
            let index = IndexDefinition::new("i", false, &parts);
            let made: Vec<_> = rows.iter().map(|(n, t, f)| row_of(*n, t.as_deref(), *f)).collect();
            let keys: Vec<_> = made.iter().map(|row| index.key_of(row, &mut KeyBuffer::new()).to_vec()).collect();
            // What is missing is larger or smaller than all that is there.
            let values = |(n, t, f): &(Option<i64>, Option<Vec<u8>>, f64)| {
                let (n, t) = ((n.is_none() != missing_low, *n), (t.is_none() != missing_low, t.clone()));
                (n, t, f.to_bits() as i64 ^ ((f.to_bits() as i64 >> 63) as u64 >> 1) as i64)
            };
            let (one, other) = (values(&rows[0]), values(&rows[1]));
            let by_value = match text_first {
                true => (&one.1, &one.0, one.2).cmp(&(&other.1, &other.0, other.2)),
                false => (&one.0, one.2, &one.1).cmp(&(&other.0, other.2, &other.1)),
            };
            let by_value = if descending { by_value.reverse() } else { by_value };
            proptest::prop_assert_eq!(keys[0].cmp(&keys[1]), by_value);
            proptest::prop_assert_eq!(index.same_key(&made[0], &made[1]), by_value.is_eq());
            for (number, row) in made.iter().enumerate() {
                proptest::prop_assert!(index.matches(row, &keys[number]));
                proptest::prop_assert_eq!(index.matches(row, &keys[1 - number]), by_value.is_eq());
                proptest::prop_assert_eq!(index.lacks_value(row), rows[number].0.is_none() || rows[number].1.is_none());
            }
        }
    }

    #[test]
    fn keys_that_do_not_fit_are_noticed() {
        let text = KeyPart::new(10, 8, KeyEncoding::Variable).nullable();
        let index = IndexDefinition::new("i", false, &[text]);
        let longest = vec![7; IndexDefinition::MAX_KEY - 3];
        assert!(index.fits(&row_of(None, Some(&longest), 0.0)));
        assert!(index.fits(&row_of(None, None, 0.0)));
        let longer = vec![7; IndexDefinition::MAX_KEY - 2];
        assert!(!index.fits(&row_of(None, Some(&longer), 0.0)));
        // Zeros take two bytes each.
        assert!(!index.fits(&row_of(None, Some(&vec![0; IndexDefinition::MAX_KEY / 2]), 0.0)));
        // A place outside of the row is no text.
        let mut row = row_of(None, Some(b"abc"), 0.0);
        row[10..14].copy_from_slice(&u32::MAX.to_le_bytes());
        assert_eq!(index.key_of(&row, &mut KeyBuffer::new()), [1, 0, 0]);
    }

    #[test]
    fn an_index_has_the_rows_that_pass_its_tests() {
        let all = IndexDefinition::new("i", true, &[KeyPart::unsigned(2, 1).nullable()]);
        assert_eq!((all.least_row(), all.has(&[])), (3, true));
        let some = all.of_rows(vec![RowTest { offset: 0, zero: true }, RowTest { offset: 3, zero: false }]);
        assert_eq!(some.least_row(), 4);
        let (inside, same, other, outside, far) =
            ([0, 1, 7, 1], [0, 1, 7, 9], [0, 1, 8, 1], [1, 1, 7, 1], [0, 1, 9, 0]);
        assert!(some.has(&inside) && some.has(&same) && some.has(&other) && !some.has(&outside) && !some.has(&far));
        assert!(some.matches(&inside, &[1, 7]) && !some.matches(&outside, &[1, 7]) && !some.matches(&far, &[1, 9]));
        assert!(!some.matches(&inside[..3], &[1, 7]));
        assert!(some.same_key(&inside, &same) && !some.same_key(&inside, &other));
        // A row that goes in or out changes its key; one that stays outside does not.
        assert!(!some.same_key(&inside, &outside) && !some.same_key(&outside, &inside));
        assert!(some.same_key(&outside, &far) && !some.same_key(&outside[..3], &far));
        let missing = [0, 0, 0, 1];
        assert!(some.lacks_value(&missing) && !some.with_missing_the_same(true).lacks_value(&missing));
    }

    #[test]
    fn a_definition_that_cannot_work_is_refused() {
        let good = TableDefinition::new("t", vec![IndexDefinition::new("k", true, &[KeyPart::unsigned(0, 8)])]);
        assert_eq!(good.validate(), Ok(()));
        let mut bad = good.clone();
        bad.indexes[0].unique = false;
        assert!(bad.validate().unwrap_err().to_string().contains("must be unique"));
        let mut bad = good.clone();
        bad.indexes[0].parts[0].width = 17;
        assert!(bad.validate().unwrap_err().to_string().contains("width 17"));
        let mut bad = good.clone();
        bad.indexes[0].parts[0].nullable = true;
        assert!(bad.validate().unwrap_err().to_string().contains("no byte before"));
        let mut bad = good.clone();
        bad.indexes[0].tests = vec![RowTest { offset: 0, zero: true }];
        assert!(bad.validate().unwrap_err().to_string().contains("all rows"));
        let mut bad = good.clone();
        bad.indexes[0].parts = vec![KeyPart::bytes(0, 600)];
        assert!(bad.validate().unwrap_err().to_string().contains("600 bytes"));
        assert!(TableDefinition::new("t", vec![]).validate().is_err());
    }
}
