//! Identifiers that are written into the log and so never change meaning.

use std::{fmt, hash::Hasher, str::FromStr};

use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error};

/// A position in the one virtual log, in bytes from its beginning.
///
/// It is a transaction's commit order (Query Fresh, section 3.4.3): unique,
/// monotone and dense, because it is what `fetch_add(length)` returned. With
/// one stream it is also an address: where in the log a record's bytes are.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Lsn(pub u64);

impl Lsn {
    /// The beginning of the virtual log; no block is older.
    pub const ZERO: Self = Self(0);
    /// Above every LSN that can ever be taken.
    pub const MAX: Self = Self(u64::MAX);

    /// The position `bytes` further on.
    pub const fn plus(self, bytes: u64) -> Self {
        Self(self.0 + bytes)
    }

    /// How many bytes `self` lies ahead of `earlier`; zero when it does not.
    pub const fn since(self, earlier: Self) -> u64 {
        self.0.saturating_sub(earlier.0)
    }
}

impl fmt::Debug for Lsn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "@{}", self.0)
    }
}

impl fmt::Display for Lsn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// Identifies a table, on every node and after every restart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Fid(pub u32);

impl Fid {
    /// The catalog: the table whose records describe all tables (itself excepted).
    pub const CATALOG: Self = Self(0);
    /// No table: records of it are messages, which transactions carry, and which only the log
    /// keeps.
    pub const MESSAGES: Self = Self(u32::MAX);
    /// No table: a record of it holds what a transaction was told to do, in the place of what it
    /// did or behind that.
    pub const INPUTS: Self = Self(u32::MAX - 1);

    /// The table that a record of the catalog describes. When that is deleted, the table is gone,
    /// and no other ever has this id.
    pub fn of_record(rid: Rid) -> Option<Self> {
        u32::try_from(rid.0).ok()?.checked_add(1).map(Self)
    }

    /// The record of the catalog that describes this table; none for the catalog itself.
    pub fn record(self) -> Option<Rid> {
        u64::from(self.0).checked_sub(1).map(Rid)
    }
}

/// Identifies a record within its table, on every node and after every
/// restart. At most [`Rid::BITS`] bits are used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Rid(pub u64);

impl Rid {
    /// Width of a record id, in the log and in indexes.
    pub const BITS: u32 = 48;
    /// The largest record id.
    pub const MAX: Self = Self((1 << Self::BITS) - 1);
}

/// What a log record does to its row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordKind {
    /// The record's first version; its keys enter the indexes.
    Insert,
    /// A newer version, with the same keys.
    Update,
    /// The record's end: a tombstone, without row.
    Delete,
}

/// The term of one primary. It grows with every failover and is part of
/// every shipped batch, so that an old primary is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Term(pub u32);

impl Term {
    /// The next one. The last one has none, and is returned itself: no term can begin in it again,
    /// and a node that tries is refused.
    #[must_use]
    pub fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }
}

impl fmt::Display for Term {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// Identifies a cluster: drawn at random when its first node is initialised,
/// and checked wherever nodes or files meet.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct ClusterId(pub u128);

impl fmt::Display for ClusterId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

impl fmt::Debug for ClusterId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Identifies one node of a cluster; drawn at random when it is initialised.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(pub u64);

impl fmt::Display for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

impl fmt::Debug for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A text that is no id of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("an id has 16 hexadecimal digits, as `freshet status` shows it")]
pub struct NoNodeId;

impl FromStr for NodeId {
    type Err = NoNodeId;

    /// All of an id, as [`fmt::Display`] writes it.
    fn from_str(text: &str) -> Result<Self, NoNodeId> {
        let is_whole = text.len() == 16 && text.bytes().all(|digit| digit.is_ascii_hexdigit());
        u64::from_str_radix(text, 16).ok().filter(|_| is_whole).map(Self).ok_or(NoNodeId)
    }
}

/// For people, also in JSON, an id is its hexadecimal digits, as [`fmt::Display`] writes them;
/// among nodes it is a number.
macro_rules! hexadecimal {
    ($id:ident, $number:ident) => {
        impl Serialize for $id {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                if serializer.is_human_readable() { serializer.collect_str(self) } else { self.0.serialize(serializer) }
            }
        }

        impl<'de> Deserialize<'de> for $id {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                if !deserializer.is_human_readable() {
                    return $number::deserialize(deserializer).map(Self);
                }
                let text = String::deserialize(deserializer)?;
                $number::from_str_radix(&text, 16).map(Self).map_err(D::Error::custom)
            }
        }
    };
}

hexadecimal!(ClusterId, u128);
hexadecimal!(NodeId, u64);

/// Hashes tables and records. Ids are dense, and come from nodes of one cluster: multiplying
/// spreads them.
#[derive(Clone, Debug, Default)]
pub struct IdHasher(u64);

impl Hasher for IdHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.write_u64(u64::from(*byte)));
    }

    fn write_u32(&mut self, number: u32) {
        self.write_u64(u64::from(number));
    }

    fn write_u64(&mut self, number: u64) {
        self.0 = (self.0.rotate_left(5) ^ number).wrapping_mul(0x517C_C1B7_2722_0A95);
    }
}
