//! What can be wrong with a table, or with what the catalog says of it.

use std::fmt;

use freshet_base::Fid;

use super::{Catalog, NAME};
use crate::definition::DefinitionError;

/// Why a table did not enter the catalog.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CatalogError {
    /// There is one of that name.
    Exists(String),
    /// There were as many as there can be.
    Full,
    /// The name is longer than 64 bytes or holds a zero byte.
    Name(String),
    /// The definition makes no table.
    Definition(DefinitionError),
    /// A catalog row from the log is none.
    Row {
        /// The file id that the row is for.
        fid: Fid,
        /// What is wrong with it.
        what: String,
    },
}

impl fmt::Display for CatalogError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exists(name) => write!(f, "there is a table {name:?} already"),
            Self::Full => write!(f, "{} tables have been made, as many as there can be", Catalog::LIMIT),
            Self::Name(name) => write!(f, "{name:?} is not a table name: at most {NAME} bytes, none of them zero"),
            Self::Definition(cause) => cause.fmt(f),
            Self::Row { fid, what } => write!(
                f,
                "the catalog row of table {} cannot be understood: {what}; it was written by another version",
                fid.0
            ),
        }
    }
}

impl std::error::Error for CatalogError {}
