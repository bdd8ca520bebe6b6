//! What keeps a transaction from being executed again, and what is told of it.

use std::fmt;

use freshet_txn::ProcedureError;

/// Why a block's bytes did not come from executing its transaction again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Why {
    /// It reads at a snapshot whose versions may be gone: the transaction took long on the primary.
    OldSnapshot,
    /// It takes long, and its bytes may come sooner.
    Slow,
    /// There is not enough memory for it now.
    Memory(String),
    /// Another build of the program has recorded it.
    OtherBuild,
    /// What stands in the place of its inputs is none.
    Undecodable,
    /// It did not come to its end.
    Failed(String),
    /// It panicked.
    Panicked(String),
    /// It did not write what the block has.
    Writes(String),
    /// It wrote records of the right lengths in the right places, and the block has another
    /// checksum.
    Checksum,
    /// It gave its block at its snapshots, and gives another one at its own LSN, although it was
    /// certified to be the same there.
    Order,
}

impl Why {
    /// The same for a status, which shows nothing of data: causes may quote values.
    pub fn for_status(&self) -> String {
        match self {
            Self::Failed(_) => "it failed".to_owned(),
            Self::Panicked(_) => "it panicked".to_owned(),
            Self::Writes(_) => "it wrote something else".to_owned(),
            Self::Memory(_) => "there is not enough memory for it".to_owned(),
            Self::OldSnapshot | Self::Slow | Self::OtherBuild | Self::Undecodable | Self::Checksum | Self::Order => {
                self.to_string()
            }
        }
    }

    /// Whether that shows that something is wrong, here or on the primary.
    pub fn is_mismatch(&self) -> bool {
        !matches!(self, Self::OldSnapshot | Self::Slow | Self::Memory(_) | Self::OtherBuild)
    }
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OldSnapshot => f.write_str("it reads at a snapshot that is too old"),
            Self::Slow => f.write_str("it takes long"),
            Self::Memory(cause) => write!(f, "there is not enough memory for it: {cause}"),
            Self::OtherBuild => write!(f, "{}", ProcedureError::OtherBuild),
            Self::Undecodable => f.write_str("its inputs cannot be understood"),
            Self::Failed(cause) => write!(f, "it failed: {cause}"),
            Self::Panicked(cause) => write!(f, "it panicked: {cause}"),
            Self::Writes(what) => write!(f, "it wrote something else: {what}"),
            Self::Order => f.write_str("it is not serializable: at its own LSN it writes something else"),
            Self::Checksum => f.write_str("its rows are others: the checksum differs"),
        }
    }
}

/// A transaction that could not be executed again.
#[derive(Debug)]
pub(crate) struct Failure {
    pub why: Why,
    /// The block that it would have had, if it came that far.
    pub image: Option<Vec<u8>>,
    /// The command that it executes, for people; empty while nobody has asked.
    pub command: String,
}

impl From<Why> for Failure {
    fn from(why: Why) -> Self {
        Self { why, image: None, command: String::new() }
    }
}
