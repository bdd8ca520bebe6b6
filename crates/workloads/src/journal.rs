//! The journal: proof that what was acknowledged is there.
//!
//! A client numbers its requests. The transaction that a request causes also
//! inserts the request's [`Mark`] into the table `journal`, so that the mark is
//! there exactly when the transaction's other effects are. After a crash or a
//! take-over, the marks of all acknowledged requests must be found.

use serde::{Deserialize, Serialize};

use crate::row::{Sorted, layout};

/// Names one request of one client; the journal's primary key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Mark {
    /// The client, unique in the life of the database.
    pub client: u64,
    /// The client's number of this request.
    pub sequence: u64,
}

layout! {
    /// The journal: primary key (CLIENT, SEQUENCE).
    JournalRow = "journal" {
        /// Who asked.
        CLIENT: Sorted<u64>,
        /// The client's number of the request.
        SEQUENCE: Sorted<u64>,
    }
}
