//! What is done when a transaction with definitions ends.

use freshet_sql::SqlError;

use crate::{
    locks::LockManager,
    schema::{Catalog, Entry, Oid, Schema},
    sequence::Sequences,
};

/// What a transaction has touched that is no part of it.
#[derive(Debug, Default)]
pub struct Effects {
    /// Tables of the engine that were made or replaced.
    pub(super) rows: Vec<String>,
    /// Numbers of sequences' states that were made or replaced.
    pub(super) states: Vec<u64>,
    /// Tables whose definitions were changed.
    pub(super) changed: Vec<Oid>,
}

impl Effects {
    /// Whether there is nothing to do.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty() && self.states.is_empty() && self.changed.is_empty()
    }

    /// Does what is to be done now that the transaction has ended, whatever its end, and forgets it. To be called before the
    /// session releases its locks; needs a worker for a moment.
    ///
    /// # Errors
    /// When the catalog cannot be read, or what is needed no more cannot be discarded. That is then done when the node starts.
    pub fn settle(&mut self, catalog: &Catalog, sequences: &Sequences, locks: &LockManager) -> Result<(), SqlError> {
        if self.is_empty() {
            return Ok(());
        }
        let effects = std::mem::take(self);
        let committed = catalog.committed();
        // Who waits for the locks must look again in any case.
        let number = committed.as_ref().map_or(u64::MAX, |schema| schema.version.number);
        if number != u64::MAX {
            locks.note_change(&effects.changed, number);
        }
        let committed = committed?;
        let named: Vec<&str> = engine_tables(&committed).collect();
        let unnamed = effects.rows.iter().filter(|name| !named.contains(&name.as_str()));
        for name in unnamed {
            catalog.discard(name)?;
        }
        let kept: Vec<u64> = states(&committed).collect();
        let gone: Vec<u64> = effects.states.into_iter().filter(|state| !kept.contains(state)).collect();
        sequences.forget(&gone)
    }
}

fn engine_tables(schema: &Schema) -> impl Iterator<Item = &str> {
    schema.entries().filter_map(|entry| match entry {
        Entry::Table(info) => Some(info.table.rows.as_str()),
        _ => None,
    })
}

fn states(schema: &Schema) -> impl Iterator<Item = u64> {
    schema.entries().filter_map(|entry| match entry {
        Entry::Sequence(sequence) => Some(sequence.state),
        _ => None,
    })
}

/// Discards what a crash has left: tables of the engine and states of sequences that no committed catalog names. To be called
/// when a node becomes primary, before it has sessions.
///
/// # Errors
/// When the catalog cannot be read, or something cannot be discarded.
pub fn sweep(catalog: &Catalog, sequences: &Sequences) -> Result<(), SqlError> {
    let committed = catalog.committed()?;
    let named: Vec<&str> = engine_tables(&committed).collect();
    for name in catalog.made_tables() {
        if !named.contains(&name.as_str()) {
            catalog.discard(&name)?;
        }
    }
    let kept: Vec<u64> = states(&committed).collect();
    let gone: Vec<u64> = sequences.numbers()?.into_iter().filter(|state| !kept.contains(state)).collect();
    sequences.forget(&gone)
}
