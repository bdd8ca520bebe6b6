//! What a commit promises, and what a transaction may see.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};

/// Where a commit must be persistent before the client hears of it
/// (Query Fresh, section 2.1, definitions 1 to 3, after Gray and Reuter).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Safety {
    /// On the primary; standbys follow when they can.
    OneSafe,
    /// On the primary and on every standby that is in the in-sync set. Without
    /// any, the primary continues alone, degraded, and says so.
    TwoSafe,
    /// On the primary and on every configured standby. Without one of them,
    /// nothing commits.
    VerySafe,
    /// On at least this many nodes, the primary being one of them.
    Quorum(u32),
}

impl fmt::Display for Safety {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OneSafe => f.write_str("1-safe"),
            Self::TwoSafe => f.write_str("2-safe"),
            Self::VerySafe => f.write_str("very-safe"),
            Self::Quorum(k) => write!(f, "quorum:{k}"),
        }
    }
}

impl FromStr for Safety {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "1-safe" => Ok(Self::OneSafe),
            "2-safe" => Ok(Self::TwoSafe),
            "very-safe" => Ok(Self::VerySafe),
            _ => text
                .strip_prefix("quorum:")
                .and_then(|k| k.parse().ok())
                .filter(|k| *k >= 1)
                .map(Self::Quorum)
                .ok_or_else(|| {
                    format!(
                        "unknown safety level {text:?}: use 1-safe, 2-safe, very-safe or quorum:K with K at least 1"
                    )
                }),
        }
    }
}

impl TryFrom<String> for Safety {
    type Error = String;
    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl From<Safety> for String {
    fn from(safety: Safety) -> Self {
        safety.to_string()
    }
}

/// What concurrent transactions may do to one another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Isolation {
    /// Reads a snapshot; the first to update a record wins. Write skew is possible.
    #[default]
    #[serde(rename = "si")]
    Snapshot,
    /// Snapshot reads, certified at commit, phantoms included.
    Serializable,
}

impl fmt::Display for Isolation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Snapshot => "si",
            Self::Serializable => "serializable",
        })
    }
}

impl FromStr for Isolation {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "si" => Ok(Self::Snapshot),
            "serializable" => Ok(Self::Serializable),
            _ => Err(format!("unknown isolation level {text:?}: use si or serializable")),
        }
    }
}

/// What decides whether a serializable transaction may commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Certifier {
    /// Nothing that it has read may have been changed: the serial order is that of stamps.
    #[default]
    Validation,
    /// The serial safety net: it may commit "back in time", before those that have changed what it
    /// has read, unless it must come after one of them, too.
    Ssn,
}

impl fmt::Display for Certifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Validation => "validation",
            Self::Ssn => "ssn",
        })
    }
}

impl FromStr for Certifier {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "validation" => Ok(Self::Validation),
            "ssn" => Ok(Self::Ssn),
            _ => Err(format!("unknown certifier {text:?}: use validation or ssn")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn safety_levels_print_as_they_parse() {
        for text in ["1-safe", "2-safe", "very-safe", "quorum:2"] {
            assert_eq!(text.parse::<Safety>().unwrap().to_string(), text);
        }
        for text in ["", "3-safe", "quorum:0", "quorum:", "quorum:-1", "quorum"] {
            assert!(text.parse::<Safety>().unwrap_err().contains("quorum:K"), "{text}");
        }
    }
}
