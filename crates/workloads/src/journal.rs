//! The journal: proof that what was acknowledged is there.
//!
//! A client numbers its requests. The transaction that a request causes also
//! inserts the request's [`Mark`] into the table `journal`, so that the mark is
//! there exactly when the transaction's other effects are. After a crash or a
//! failover, the marks of all acknowledged requests must be found.

use serde::{Deserialize, Serialize};

use crate::{
    engine::{ProcedureError, TableDefinition, Transaction},
    row::{Row, Sorted, layout},
    table::{self, Typed},
};

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

/// The journal's definition, to be created once in a database.
pub fn definition() -> TableDefinition {
    table::definition::<JournalRow>(table::part(JournalRow::CLIENT, JournalRow::SEQUENCE), &[])
}

impl Mark {
    fn key(self) -> [u8; 16] {
        (u128::from(self.client) << 64 | u128::from(self.sequence)).to_be_bytes()
    }
}

impl Typed<JournalRow> {
    /// Writes the mark, as part of the transaction.
    ///
    /// # Errors
    /// That of the insertion: a unique violation when this request was done already.
    #[inline]
    pub fn write(&self, txn: &Transaction<'_>, mark: Mark) -> Result<(), ProcedureError> {
        let row = Row::new().with(JournalRow::CLIENT, mark.client).with(JournalRow::SEQUENCE, mark.sequence);
        self.insert(txn, &row)?;
        Ok(())
    }

    /// Whether the request of this mark is done, as the transaction sees it.
    ///
    /// # Errors
    /// That of the look-up.
    pub fn contains(&self, txn: &Transaction<'_>, mark: Mark) -> Result<bool, ProcedureError> {
        Ok(self.find(txn, &mark.key())?.is_some())
    }

    /// Those of `acknowledged` that the transaction does not find: none, unless something was lost.
    ///
    /// # Errors
    /// That of the look-ups.
    pub fn missing(
        &self,
        txn: &Transaction<'_>,
        acknowledged: impl IntoIterator<Item = Mark>,
    ) -> Result<Vec<Mark>, ProcedureError> {
        let mut missing = Vec::new();
        for mark in acknowledged {
            if !self.contains(txn, mark)? {
                missing.push(mark);
            }
        }
        Ok(missing)
    }
}
