//! One replay function, over any range of the log: for restart, for a joining
//! standby, and for a live one.
//!
//! Replay stores addresses, it makes no versions (Query Fresh, section 3.4.1), unless a scheme
//! gives it another [`Redo`]. It is idempotent and order-free: for each record the larger address
//! wins, so several threads may replay parts of a range side by side (section 3.4.2), and ranges
//! may overlap.
//!
//! [`Replay`] does it while readers run, [`Restoration`] before there are any.
#![forbid(unsafe_code)]

mod apply;
mod cut;
mod doubt;
mod entries;
mod fill;
pub mod form;
mod pool;
mod proof;
mod redo;
mod restore;
mod runs;

use freshet_base::{Fid, Lsn, Rid};
use freshet_log::BlockError;
use freshet_storage::CatalogError;
use thiserror::Error;

pub use self::{
    apply::Deleted,
    fill::Records,
    pool::{PersistShare, Replay, ReplayStatistics},
    proof::{Difference, Proven},
    redo::{Announce, Redo},
    restore::{Collector, Finished, Restoration, Restore, Target},
};

/// Why a range was not replayed. Nothing above what the caller had already made visible can be seen
/// by readers, but parts of the range may have been replayed.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ReplayError {
    /// The log could not be read.
    #[error("cannot read the log at {at}: {cause}")]
    Read {
        /// Where the range began.
        at: Lsn,
        /// What the log's store says.
        cause: String,
    },
    /// Something that is no block.
    #[error("the log at {at} holds no valid block: {cause}; stop, keep the directory, and run `freshet inspect log`")]
    Block {
        /// Where the block should begin.
        at: Lsn,
        /// Why it is no block.
        cause: BlockError,
    },
    /// A catalog record that describes no table.
    #[error("the catalog record at {at} cannot be replayed: {cause}")]
    Catalog {
        /// Where the record lies in the log.
        at: Lsn,
        /// Why it describes no table.
        cause: CatalogError,
    },
    /// Inputs alone, on a node that does not execute transactions again.
    #[error(
        "the log at {at} says what a transaction was told to do, not what it did: only a standby that is set up with \
         `apply = \"command\"` can follow it, from its beginning, and no node can restart from it"
    )]
    Inputs {
        /// Where the block with these inputs lies.
        at: Lsn,
    },
    /// A change of a record that is not there, or not as it was when it was changed: this node's
    /// state is not the one that the log continues.
    #[error(
        "the log at {at} changes record {} of table {} as it was at {prev}, {}: this node's state is not the one that \
         the log continues; keep its directory, and let it begin again from a node that has it, in another one",
        rid.0, fid.0, found(*there)
    )]
    Missing {
        /// Where the log says so.
        at: Lsn,
        /// The table.
        fid: Fid,
        /// The record's id.
        rid: Rid,
        /// Where the version lies that it replaces; zero where that is not known.
        prev: Lsn,
        /// Where the newest lies that is there; zero for none.
        there: Lsn,
    },
    /// A record of a table that no catalog record describes, or with an impossible id or row.
    #[error("the record at {at} fits no table: table {}, record {}", fid.0, rid.0)]
    Foreign {
        /// Where the record lies in the log.
        at: Lsn,
        /// The file id in it.
        fid: Fid,
        /// The record id in it.
        rid: Rid,
    },
}

/// What is there in the place of what was changed, for people.
fn found(there: Lsn) -> String {
    if there == Lsn::ZERO { "and it is not there".into() } else { format!("and it is there as of {there}") }
}
