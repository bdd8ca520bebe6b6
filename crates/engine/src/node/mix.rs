//! What transactions write at present, from a piece of the log: for `freshet advise`.
//!
//! The commit path counts none of this. Who asks names where a block begins, as `filled` in the
//! status does, and gets figures of what the log got from there on.

use std::{collections::HashMap, sync::Arc, time::Duration};

use freshet_base::{Fid, Lsn, RecordKind, Rid, cpu::thread_time};
use freshet_log::{Block, BlockError, ReadError, block::Changed};
use freshet_mirror::changes_of_slot;
use freshet_replay::form::{CatalogKeys, Encoded, Encoder, KeysOf};
use freshet_storage::Guard;
use freshet_txn::{Core, WorkerError};
use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::Node;

/// Bytes of log that are looked at, at most.
const MOST: u64 = 1 << 20;

/// Why there are no figures.
#[derive(Debug, Error)]
pub enum MixError {
    /// Nothing is written here.
    #[error("this node is not a primary")]
    NotPrimary,
    /// The log is not there.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// What is there is not what was asked for. What it is instead is not said: it may be a piece
    /// of a row.
    #[error("no block of the log begins there")]
    NoBlock,
    /// Looking needs a place.
    #[error(transparent)]
    Worker(#[from] WorkerError),
}

/// What transactions write.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mix {
    /// Bytes of log that were looked at: whole blocks.
    pub log_bytes: u64,
    /// Transactions in them, and how many have their inputs there.
    pub transactions: u64,
    /// See `transactions`.
    pub recorded: u64,
    /// Records that they write.
    pub records: u64,
    /// What is left of them if each batch writes a record once.
    pub distinct: Distinct,
    /// What the log takes in the form of inputs, if transactions are recorded.
    pub form: Option<FormMix>,
    /// About how many rows all tables have, and entries their indexes.
    pub rows: u64,
    /// See `rows`.
    pub index_entries: u64,
}

/// Records, each once in a batch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Distinct {
    /// How many batches there are.
    pub batches: u64,
    /// How many records.
    pub records: u64,
    /// Bytes of the rows that they have then.
    pub row_bytes: u64,
    /// Records that were there before, and stay, and the bytes of their rows.
    pub updates: u64,
    /// See `updates`.
    pub update_bytes: u64,
    /// Of these, those whose changes the log says in parts, as it does while a mirror follows, and
    /// the bytes of their rows.
    pub noted: u64,
    /// See `noted`.
    pub noted_bytes: u64,
    /// What changes of their slots in a mirror, in bytes, and in how many pieces.
    pub changed_bytes: u64,
    /// See `changed_bytes`.
    pub pieces: u64,
}

/// The form of inputs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FormMix {
    /// What all blocks take, those included that go as bytes.
    pub bytes: u64,
    /// Transactions that go as inputs.
    pub transactions: u64,
    /// Processor time of checking and encoding them all.
    pub cpu: Duration,
}

impl Node {
    /// What transactions write, from the log at `from` on, where a block begins, as far as it is
    /// filled, at most 1 MiB of it. A batch is whole blocks of about `batch_bytes`. May wait for
    /// the disk if that log is no longer in memory.
    ///
    /// # Errors
    /// See [`MixError`].
    pub fn mix(&self, from: Lsn, batch_bytes: u64) -> Result<Mix, MixError> {
        let log = self.composition().lead().map(|lead| Arc::clone(&lead.log)).ok_or(MixError::NotPrimary)?;
        let mut bytes = vec![0; log.filled().since(from).min(MOST) as usize];
        log.read(from, &mut bytes)?;
        let core = self.database.core();
        let participant =
            core.participants.join().map_err(|_| WorkerError::TooMany { limit: core.participants.limit() })?;
        let guard = participant.pin_without_snapshot();
        let piece = Piece { bytes: &bytes, from, batch_bytes };
        let mut mix = piece.mix()?;
        if mix.recorded > 0 {
            mix.form = Some(piece.form(&mut CatalogKeys::new(&core.catalog, &guard)));
        }
        (mix.rows, mix.index_entries) = sizes(core, &guard);
        Ok(mix)
    }
}

/// About how many rows and entries of indexes there are.
fn sizes(core: &Core, guard: &Guard<'_>) -> (u64, u64) {
    let (mut rows, mut entries) = (0, 0);
    for table in core.catalog.tables_at(core.snapshots.current()) {
        let Some(content) = table.content(guard) else { continue };
        for (number, index) in content.indexes(guard).iter() {
            let those = index.tree().approximate_entries(guard);
            rows += if number == 0 { those } else { 0 };
            entries += those;
        }
    }
    (rows, entries)
}

/// A piece of the log.
#[derive(Clone, Copy)]
struct Piece<'p> {
    bytes: &'p [u8],
    from: Lsn,
    batch_bytes: u64,
}

/// What becomes of a record in a batch.
struct Change {
    was_there: bool,
    is_there: bool,
    length: u64,
    /// How it differs from what was there before the batch, if the log says so of all its changes.
    changed: Option<Changed>,
}

type Changes = HashMap<(Fid, Rid), Change>;

impl Piece<'_> {
    /// Calls `each` with all whole blocks, and whether a batch ends behind the block.
    ///
    /// # Errors
    /// What is at the beginning, if that is no block, nor the beginning of one.
    fn blocks(&self, mut each: impl FnMut(&Block<'_>, bool)) -> Result<u64, BlockError> {
        let (mut done, mut batch) = (0, 0);
        loop {
            let rest = &self.bytes[done as usize..];
            match Block::parse(rest, self.from.plus(done)) {
                Ok(block) => {
                    let length = u64::from(block.header().length);
                    (done, batch) = (done + length, batch + length);
                    let ends = batch >= self.batch_bytes || done == self.bytes.len() as u64;
                    each(&block, ends);
                    batch = if ends { 0 } else { batch };
                }
                Err(BlockError::Truncated { .. }) => return Ok(done),
                Err(why) => return Err(why),
            }
        }
    }

    fn mix(&self) -> Result<Mix, MixError> {
        let (mut mix, mut changes) = (Mix::default(), Changes::new());
        let mut look = |block: &Block<'_>, ends: bool| {
            let before = mix.records;
            for record in block.records().filter(|record| !matches!(record.header.fid, Fid::INPUTS | Fid::MESSAGES)) {
                let (header, length) = (record.header, record.row.len() as u64);
                let changed = header.changed;
                let (was_there, is_there) = (header.kind != RecordKind::Insert, header.kind != RecordKind::Delete);
                let change = changes.entry((header.fid, header.rid)).and_modify(|change| {
                    let both = change.changed.zip(changed).map(|(before, changed)| before.and(changed));
                    (change.is_there, change.length, change.changed) = (is_there, length, both);
                });
                change.or_insert(Change { was_there, is_there, length, changed });
                mix.records += 1;
            }
            mix.transactions += u64::from(mix.records > before && !block.header().continued);
            mix.recorded += u64::from(block.inputs().is_some());
            if ends {
                mix.distinct.add(&mut changes);
            }
        };
        let done = self.blocks(&mut look);
        mix.log_bytes = done.map_err(|_| MixError::NoBlock)?;
        mix.distinct.add(&mut changes);
        Ok(mix)
    }

    /// What it takes in the form of inputs.
    fn form(&self, keys: &mut impl KeysOf) -> FormMix {
        let (mut encoder, mut form, mut mix) = (Encoder::new(), Vec::new(), FormMix::default());
        let begun = thread_time();
        encoder.batch();
        // What is no block was passed over before.
        let _ = self.blocks(|block, ends| {
            mix.transactions += u64::from(encoder.block(block, keys, &mut form) == Encoded::Inputs);
            if ends {
                mix.bytes += form.len() as u64;
                form.clear();
                encoder.batch();
            }
        });
        mix.bytes += form.len() as u64;
        mix.cpu = thread_time().saturating_sub(begun);
        mix
    }
}

impl Distinct {
    /// A batch ends.
    fn add(&mut self, changes: &mut Changes) {
        self.batches += u64::from(!changes.is_empty());
        for Change { was_there, is_there, length, changed } in changes.drain().map(|(_, change)| change) {
            self.records += 1;
            self.row_bytes += if is_there { length } else { 0 };
            if was_there && is_there {
                self.updates += 1;
                self.update_bytes += length;
            }
            if let Some(changed) = changed.filter(|_| was_there && is_there) {
                self.noted += 1;
                self.noted_bytes += length;
                for range in changes_of_slot(changed, length as usize) {
                    self.pieces += 1;
                    self.changed_bytes += range.len() as u64;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use freshet_base::Term;
    use freshet_log::{BlockBuilder, BlockKind};

    use super::*;

    /// A log of these transactions: records as table, id, kind and length.
    fn log(transactions: &[&[(u32, u64, RecordKind, usize)]]) -> Vec<u8> {
        let (mut bytes, mut builder) = (Vec::new(), BlockBuilder::new());
        for records in transactions {
            let at = Lsn(bytes.len() as u64);
            builder.begin();
            for (fid, rid, kind, length) in *records {
                builder.push(None, Fid(*fid), Rid(*rid), *kind, &vec![7; *length]).unwrap();
            }
            builder.seal_records();
            bytes.extend_from_slice(builder.finish(at, Term(1), BlockKind::Redo));
        }
        bytes
    }

    const PUT: RecordKind = RecordKind::Update;

    #[test]
    fn a_record_counts_once_in_a_batch() {
        let one: &[_] = &[(8, 1, PUT, 40), (8, 2, RecordKind::Insert, 24)];
        let bytes = log(&[one, &[(8, 1, PUT, 48)], &[(8, 2, RecordKind::Delete, 0), (9, 1, PUT, 8)], &[]]);
        let mix = |batch_bytes| Piece { bytes: &bytes, from: Lsn(0), batch_bytes }.mix().unwrap();
        let all = mix(u64::MAX);
        assert_eq!((all.transactions, all.records, all.recorded), (3, 5, 0));
        assert_eq!(all.log_bytes, bytes.len() as u64);
        // The first one as it is at the end, the second one deleted, and that of the other table.
        let nothing = Distinct::default();
        let distinct = Distinct { batches: 1, records: 3, row_bytes: 56, updates: 2, update_bytes: 56, ..nothing };
        assert_eq!(all.distinct, distinct);
        // Each block is a batch.
        let distinct = Distinct { batches: 3, records: 5, row_bytes: 120, updates: 3, update_bytes: 96, ..nothing };
        assert_eq!(mix(1).distinct, distinct);
    }

    #[test]
    fn what_changes_of_rows_is_seen_where_the_log_has_it() {
        let (before, mut first, mut second) = ([1; 800], [1; 800], [1; 800]);
        first[100] = 2;
        (second[100], second[700]) = (2, 2);
        let mut bytes = Vec::new();
        let mut log = |rid, row: &[u8], below: Option<&[u8]>| {
            let mut builder = BlockBuilder::new();
            let at = Lsn(bytes.len() as u64);
            builder.begin();
            builder.push_over(Some(Lsn(0)), Fid(8), Rid(rid), PUT, row, below).unwrap();
            builder.seal_records();
            bytes.extend_from_slice(builder.finish(at, Term(1), BlockKind::Redo));
        };
        log(1, &first, Some(&before));
        log(1, &second, Some(&first));
        log(2, &first, Some(&before));
        log(3, &before, None);
        // Another length, once: the log has nothing of what has become of the record.
        log(4, &first, Some(&before));
        log(4, &before[..792], Some(&before));
        let mix = |batch_bytes| Piece { bytes: &bytes, from: Lsn(0), batch_bytes }.mix().unwrap();
        // Rows of 800 bytes have parts of 32: of the first record's slot its header, the fourth
        // part and the 22nd; the fourth one is further from the header than a packet's headers.
        let slots = [vec![0..16, 112..144, 688..720], vec![0..16, 112..144]].concat();
        let changed_bytes: u64 = slots.iter().map(|range: &std::ops::Range<u64>| range.end - range.start).sum();
        let Distinct { updates, noted, noted_bytes, pieces, .. } = mix(u64::MAX).distinct;
        assert_eq!((updates, noted, noted_bytes, pieces), (4, 2, 1600, 5));
        assert_eq!(mix(u64::MAX).distinct.changed_bytes, changed_bytes);
        let Distinct { updates, noted, noted_bytes, pieces, .. } = mix(1).distinct;
        assert_eq!((updates, noted, noted_bytes, pieces), (6, 4, 3200, 8));
    }

    #[test]
    fn a_piece_ends_with_its_last_whole_block_and_begins_with_one() {
        let bytes = log(&[&[(8, 1, PUT, 40)], &[(8, 2, PUT, 40)]]);
        let (half, whole) = (bytes.len() / 2, bytes.len());
        let mix = |from: usize, to: usize, at| Piece { bytes: &bytes[from..to], from: Lsn(at), batch_bytes: 1 }.mix();
        for end in half..whole {
            let mix = mix(0, end, 0).unwrap();
            assert_eq!((mix.transactions, mix.log_bytes), (1, half as u64), "{end}");
        }
        assert_eq!(mix(0, 0, 0).unwrap(), Mix::default());
        assert_eq!(mix(half, whole, half as u64).unwrap().transactions, 1);
        for wrong in [mix(half, whole, 0), mix(8, whole, 8)] {
            assert!(matches!(wrong, Err(MixError::NoBlock)), "{wrong:?}");
        }
    }
}
