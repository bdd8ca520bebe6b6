//! Values of keys that are words.

use clap::ValueEnum;
use freshet_base::named;
use freshet_replication::forms::Encoding as Form;
use serde::{Deserialize, Serialize};

/// Where the log becomes persistent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Domain {
    /// In files, with `fdatasync`.
    #[default]
    File,
    /// In the log buffer, which is a mapped file; files get the log later.
    Pmem,
    /// Nowhere: the log is in memory only.
    None,
}

/// What a node does when something speaks against what it has in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum OnDoubt {
    /// Until it is started again it writes no checkpoint and, as a standby, has no vote in a
    /// failover, is not promoted without `--force`, and refuses readers; and it begins again with
    /// what its primary has, where others show that this is right.
    #[default]
    Withdraw,
    /// Reports it in its status and in its messages, and continues.
    Report,
}

/// What a standby's replay does to records.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Apply {
    /// Stores their addresses; readers make versions (Query Fresh, section 3.4).
    #[default]
    Fresh,
    /// Makes every version ("FullReplay", Query Fresh, section 4.7).
    Full,
    /// Executes logged commands again ("Logical", Query Fresh, section 4.3).
    Command,
    /// Executes inputs again as Calvin does: with locks on what was read and written, in the order
    /// of the log (Record-Replay, section 6).
    Calvin,
}

named!(Apply, "way to apply", { Fresh: "fresh", Full: "full", Command: "command", Calvin: "calvin" });

/// Who makes a standby the primary when the primary is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Failover {
    /// An operator.
    #[default]
    Manual,
    /// The nodes themselves, and this is one of those that stand.
    Automatic,
    /// The nodes themselves, and this one stands after others.
    Last,
    /// The nodes themselves, and this one never stands.
    Never,
}

/// In which form a standby asks for the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Encoding {
    /// As it is.
    #[default]
    Bytes,
    /// What transactions were told, where the primary can say that; the standby executes them
    /// again, with the processor time that the primary took, and gets a fraction of the bytes.
    Inputs,
    /// As bytes, and as inputs while the link is full and processors are idle.
    Auto,
}

impl Encoding {
    /// The form that it asks for at first.
    pub(crate) fn first(self) -> Form {
        match self {
            Self::Bytes | Self::Auto => Form::Bytes,
            Self::Inputs => Form::Inputs,
        }
    }
}

named!(Encoding, "encoding", { Bytes: "bytes", Inputs: "inputs", Auto: "auto" });

/// What a standby does when a transaction that it executes again does not give its block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum OnMismatch {
    /// Takes the block's bytes from the node that it follows, and continues.
    #[default]
    Fetch,
    /// Follows no longer, and says why.
    Stop,
}
