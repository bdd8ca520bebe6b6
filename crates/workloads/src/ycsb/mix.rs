//! Which operations a workload consists of, and in which shares.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};

/// A workload's mix of operations.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Mix {
    /// 50 % reads, 50 % updates of one field.
    A,
    /// 95 % reads, 5 % updates of one field.
    B,
    /// Reads only.
    C,
    /// 95 % reads of what was inserted lately, 5 % inserts.
    D,
    /// 95 % scans of 1 to 100 records, 5 % inserts.
    E,
    /// 50 % reads, 50 % reads followed by an update of one field.
    F,
    /// Reads followed by an update of one field, and nothing else: the mix of Active-Memory,
    /// section 6.1.2, whose transactions have ten of them.
    ModifyOnly,
    /// 70 % reads, 30 % blind writes of whole records: the mix of SiloR, section 6.1.
    SeventyThirty,
}

/// Shares of 100.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Shares {
    /// Reads of a whole record.
    pub read: u64,
    /// Updates of one field.
    pub update: u64,
    /// Writes of a whole record that is not looked at.
    pub overwrite: u64,
    /// Inserts of a new record.
    pub insert: u64,
    /// Scans.
    pub scan: u64,
    /// Reads of a whole record followed by an update of one field.
    pub modify: u64,
}

impl Mix {
    /// All of them.
    pub const ALL: [Self; 8] =
        [Self::A, Self::B, Self::C, Self::D, Self::E, Self::F, Self::ModifyOnly, Self::SeventyThirty];

    /// What it consists of.
    pub fn shares(self) -> Shares {
        let none = Shares::default();
        match self {
            Self::A => Shares { read: 50, update: 50, ..none },
            Self::B => Shares { read: 95, update: 5, ..none },
            Self::C => Shares { read: 100, ..none },
            Self::D => Shares { read: 95, insert: 5, ..none },
            Self::E => Shares { scan: 95, insert: 5, ..none },
            Self::F => Shares { read: 50, modify: 50, ..none },
            Self::ModifyOnly => Shares { modify: 100, ..none },
            Self::SeventyThirty => Shares { read: 70, overwrite: 30, ..none },
        }
    }

    /// Whether reads prefer what was inserted lately.
    pub fn prefers_latest(self) -> bool {
        self == Self::D
    }

    /// The records it is usually run on.
    pub fn usual_shape(self) -> Shape {
        match self {
            Self::SeventyThirty => Shape { fields: 1, field_bytes: 100 },
            _ => Shape { fields: 10, field_bytes: 100 },
        }
    }
}

impl fmt::Display for Mix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::A => "A",
            Self::B => "B",
            Self::C => "C",
            Self::D => "D",
            Self::E => "E",
            Self::F => "F",
            Self::ModifyOnly => "RMW",
            Self::SeventyThirty => "70/30",
        })
    }
}

impl FromStr for Mix {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Self::ALL
            .into_iter()
            .find(|mix| mix.to_string().eq_ignore_ascii_case(text))
            .ok_or_else(|| format!("unknown YCSB mix {text:?}: use A, B, C, D, E, F, RMW or 70/30"))
    }
}

impl TryFrom<String> for Mix {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl From<Mix> for String {
    fn from(mix: Mix) -> Self {
        mix.to_string()
    }
}

/// What a record looks like, apart from its key of eight bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Shape {
    /// How many fields.
    pub fields: u16,
    /// Bytes of each field.
    pub field_bytes: u16,
}

impl Shape {
    /// Bytes of the key, which comes first in a row.
    pub const KEY: usize = 8;

    /// Bytes of a row.
    pub const fn row_bytes(&self) -> usize {
        Self::KEY + self.fields as usize * self.field_bytes as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_of_100() {
        for mix in Mix::ALL {
            let Shares { read, update, overwrite, insert, scan, modify } = mix.shares();
            assert_eq!(read + update + overwrite + insert + scan + modify, 100, "{mix}");
        }
    }

    #[test]
    fn mixes_print_as_they_parse() {
        for mix in Mix::ALL {
            assert_eq!(mix.to_string().parse(), Ok(mix));
        }
        assert_eq!("a".parse(), Ok(Mix::A));
        assert!("G".parse::<Mix>().unwrap_err().contains("70/30"));
    }
}
