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
    /// A little-endian two's-complement integer of the column's width, written big-endian with its sign bit flipped.
    Signed,
}

/// One column of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeyPart {
    /// Where the column starts in the row, in bytes.
    pub offset: u16,
    /// Its width, in bytes; at most 8 for numbers.
    pub width: u16,
    /// How it is written into the key.
    pub encoding: KeyEncoding,
}

impl KeyPart {
    /// A column of raw bytes.
    pub const fn bytes(offset: u16, width: u16) -> Self {
        Self { offset, width, encoding: KeyEncoding::Bytes }
    }

    /// A little-endian unsigned column.
    pub const fn unsigned(offset: u16, width: u16) -> Self {
        Self { offset, width, encoding: KeyEncoding::Unsigned }
    }

    /// A little-endian two's-complement column.
    pub const fn signed(offset: u16, width: u16) -> Self {
        Self { offset, width, encoding: KeyEncoding::Signed }
    }

    /// One past the column's last byte in the row.
    const fn end(&self) -> usize {
        self.offset as usize + self.width as usize
    }

    #[inline]
    fn encode(&self, row: &[u8], out: &mut [u8]) {
        let column = &row[self.offset as usize..self.end()];
        match self.encoding {
            KeyEncoding::Bytes => out.copy_from_slice(column),
            KeyEncoding::Unsigned | KeyEncoding::Signed => {
                // The usual widths are compiled to one byte swap.
                match (column, &mut *out) {
                    (&[a, b, c, d], [w, x, y, z]) => [*w, *x, *y, *z] = [d, c, b, a],
                    (&[a, b, c, d, e, f, g, h], [s, t, u, v, w, x, y, z]) => {
                        [*s, *t, *u, *v, *w, *x, *y, *z] = [h, g, f, e, d, c, b, a];
                    }
                    (column, out) => out.iter_mut().zip(column.iter().rev()).for_each(|(to, from)| *to = *from),
                }
                if self.encoding == KeyEncoding::Signed {
                    out[0] ^= 0x80;
                }
            }
        }
    }
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
}

/// A key computed from a row.
#[derive(Clone)]
pub struct KeyBuffer {
    bytes: [u8; IndexDefinition::MAX_KEY],
    length: usize,
}

impl KeyBuffer {
    /// An empty key.
    pub fn new() -> Self {
        Self { bytes: [0; IndexDefinition::MAX_KEY], length: 0 }
    }

    /// The key.
    pub fn as_slice(&self) -> &[u8] {
        &self.bytes[..self.length]
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
    pub const MAX_KEY: usize = 256;

    /// An index over `parts`.
    pub fn new(name: &str, unique: bool, parts: &[KeyPart]) -> Self {
        Self { name: name.to_owned(), unique, parts: parts.to_vec() }
    }

    /// Bytes in each of its keys.
    pub fn key_length(&self) -> usize {
        self.parts.iter().map(|part| part.width as usize).sum()
    }

    /// The key of `row`.
    ///
    /// # Panics
    /// When the row is shorter than [`TableDefinition::min_row`]: tables check rows when they take them in.
    #[inline]
    pub fn key_of<'k>(&self, row: &[u8], key: &'k mut KeyBuffer) -> &'k [u8] {
        key.length = 0;
        for part in &self.parts {
            let end = key.length + part.width as usize;
            part.encode(row, &mut key.bytes[key.length..end]);
            key.length = end;
        }
        key.as_slice()
    }

    /// Whether two rows have the same key. Rows that are too short have none.
    #[inline]
    pub fn same_key(&self, one: &[u8], other: &[u8]) -> bool {
        self.parts.iter().all(|part| {
            let column = part.offset as usize..part.end();
            matches!((one.get(column.clone()), other.get(column)), (Some(one), Some(other)) if one == other)
        })
    }

    /// Whether `row` has exactly the key `key`. A shorter row than the table's shortest has none.
    #[inline]
    pub fn matches(&self, row: &[u8], key: &[u8]) -> bool {
        let mut rest = key;
        for part in &self.parts {
            let width = part.width as usize;
            if rest.len() < width || row.len() < part.end() {
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
                    let mut encoded = [0; 8];
                    part.encode(row, &mut encoded[..width]);
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

/// A table's name and indexes. The first index is the primary one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TableDefinition {
    /// Unique within the database.
    pub name: String,
    /// At least one, the first being unique: what hashes and scans go by.
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

    /// The shortest row that has all columns of all keys.
    pub fn min_row(&self) -> usize {
        self.indexes.iter().flat_map(|index| &index.parts).map(KeyPart::end).max().unwrap_or(0)
    }

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
            Some(_) => {}
        }
        for index in &self.indexes {
            if index.parts.is_empty() {
                return error(format!("index {:?} has no column", index.name));
            }
            if index.key_length() > IndexDefinition::MAX_KEY {
                let (length, limit) = (index.key_length(), IndexDefinition::MAX_KEY);
                return error(format!("keys of index {:?} have {length} bytes, more than {limit}", index.name));
            }
            for part in &index.parts {
                let numeric = part.encoding != KeyEncoding::Bytes;
                if part.width == 0 || numeric && part.width > 8 {
                    return error(format!("index {:?} has a column of width {}", index.name, part.width));
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

    #[test]
    fn a_definition_that_cannot_work_is_refused() {
        let good = TableDefinition::new("t", vec![IndexDefinition::new("k", true, &[KeyPart::unsigned(0, 8)])]);
        assert_eq!(good.validate(), Ok(()));
        assert_eq!(good.min_row(), 8);
        let mut bad = good.clone();
        bad.indexes[0].unique = false;
        assert!(bad.validate().unwrap_err().to_string().contains("must be unique"));
        let mut bad = good.clone();
        bad.indexes[0].parts[0].width = 9;
        assert!(bad.validate().unwrap_err().to_string().contains("width 9"));
        let mut bad = good.clone();
        bad.indexes[0].parts = vec![KeyPart::bytes(0, 300)];
        assert!(bad.validate().unwrap_err().to_string().contains("300 bytes"));
        assert!(TableDefinition::new("t", vec![]).validate().is_err());
    }
}
