//! The operations, several in one transaction.

use std::{
    hint::black_box,
    ops::{Bound, ControlFlow},
};

use freshet_base::Isolation;
use serde::{Deserialize, Serialize};

use super::{
    input::{Operation, Request, fill},
    mix::Shape,
    tables::{Tables, fill_row},
};
use crate::{
    command::{self, ReadSet, YCSB},
    engine::{Direction, ProcedureError, Record, Ticket, Transaction, Worker},
    procedure::reading,
    table::missing,
};

/// What a transaction answers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Outcome {
    /// Records read.
    pub read: u32,
    /// Records written.
    pub written: u32,
    /// Records that were not found: a late read of mix D may come before the insert.
    pub missing: u32,
    /// The sum of all that was read: every byte was looked at.
    pub checksum: u64,
}

/// A buffer for rows that are being written. One per thread, used again and again.
#[derive(Clone, Debug)]
pub struct Scratch {
    row: Vec<u8>,
    field_bytes: usize,
}

impl Scratch {
    /// For records of this shape.
    pub fn new(shape: Shape) -> Self {
        Self { row: vec![0; shape.row_bytes()], field_bytes: shape.field_bytes.into() }
    }
}

/// Runs a request as one transaction, several times if it loses races. A request that only reads
/// runs on a standby, too.
///
/// The ticket tells when the outcome may be shown: it covers what was written and what was read.
///
/// # Errors
/// When the transaction could not be done. It has left no trace then.
#[inline]
pub fn run(
    worker: &Worker,
    tables: &Tables,
    isolation: Isolation,
    request: &Request,
    scratch: &mut Scratch,
) -> Result<(Outcome, Ticket), ProcedureError> {
    run_then(worker, tables, isolation, request, scratch, |txn| command::record(txn, YCSB, request))
}

/// The same, and what the transaction has read is recorded too, where inputs are. For standbys with
/// locks.
///
/// # Errors
/// As [`run`].
pub fn run_with_reads(
    worker: &Worker,
    tables: &Tables,
    isolation: Isolation,
    request: &Request,
    scratch: &mut Scratch,
) -> Result<(Outcome, Ticket), ProcedureError> {
    run_then(worker, tables, isolation, request, scratch, |txn| {
        command::record_reading(txn, (YCSB, request), ReadSet::All, &[]);
    })
}

/// Runs a request; `then` is called with the transaction before it commits, if it changes anything.
#[inline]
fn run_then(
    worker: &Worker,
    tables: &Tables,
    isolation: Isolation,
    request: &Request,
    scratch: &mut Scratch,
    then: impl Fn(&Transaction<'_>),
) -> Result<(Outcome, Ticket), ProcedureError> {
    if request.operations.iter().all(|operation| operation.is_read_only()) {
        reading(worker, isolation, |txn| transact(txn, tables, &request.operations, scratch))
    } else {
        worker.execute(isolation, |txn| {
            let outcome = write(txn, tables, request, scratch)?;
            then(txn);
            Ok(outcome)
        })
    }
}

/// Does what a request asks for that changes something.
#[inline]
pub(crate) fn write(
    txn: &Transaction<'_>,
    tables: &Tables,
    request: &Request,
    scratch: &mut Scratch,
) -> Result<Outcome, ProcedureError> {
    let outcome = transact(txn, tables, &request.operations, scratch)?;
    if let Some(mark) = request.mark {
        tables.journal.write(txn, mark)?;
    }
    Ok(outcome)
}

/// Does the operations within a transaction of the caller.
///
/// # Errors
/// As [`run`].
#[inline]
pub fn transact(
    txn: &Transaction<'_>,
    tables: &Tables,
    operations: &[Operation],
    scratch: &mut Scratch,
) -> Result<Outcome, ProcedureError> {
    let mut outcome = Outcome::default();
    for operation in operations {
        match *operation {
            Operation::Read { key } => {
                if let Some(record) = find(txn, tables, key, &mut outcome)? {
                    look_at(&record, &mut outcome);
                }
            }
            Operation::Overwrite { key, seed } => overwrite(txn, tables, key, seed, scratch, &mut outcome)?,
            Operation::Update { key, field, seed } => {
                if let Some(record) = find(txn, tables, key, &mut outcome)? {
                    write_field(txn, tables, record, field, seed, scratch, &mut outcome)?;
                }
            }
            Operation::Modify { key, field, seed } => {
                if let Some(record) = find(txn, tables, key, &mut outcome)? {
                    look_at(&record, &mut outcome);
                    write_field(txn, tables, record, field, seed, scratch, &mut outcome)?;
                }
            }
            Operation::Insert { key, seed } => {
                fill_row(&mut scratch.row, key, seed);
                txn.insert(&tables.records, &scratch.row)?;
                outcome.written += 1;
            }
            Operation::Scan { from, count } => scan(txn, tables, from, count, &mut outcome)?,
        }
    }
    Ok(outcome)
}

#[inline]
fn find<'t>(
    txn: &'t Transaction<'_>,
    tables: &Tables,
    key: u64,
    outcome: &mut Outcome,
) -> Result<Option<Record<'t>>, ProcedureError> {
    let record = txn.get(&tables.records, 0, &key.to_be_bytes())?;
    outcome.missing += u32::from(record.is_none());
    Ok(record)
}

/// Reads all of a record, as a client would.
#[inline]
fn look_at(record: &Record<'_>, outcome: &mut Outcome) {
    let mut words = record.row.chunks_exact(8);
    let mut sum = 0u64;
    for word in &mut words {
        sum = sum.wrapping_add(u64::from_le_bytes(word.try_into().expect("eight bytes")));
    }
    for byte in words.remainder() {
        sum = sum.wrapping_add(u64::from(*byte));
    }
    outcome.read += 1;
    outcome.checksum = black_box(outcome.checksum.wrapping_add(sum));
}

#[inline]
fn overwrite(
    txn: &Transaction<'_>,
    tables: &Tables,
    key: u64,
    seed: u64,
    scratch: &mut Scratch,
    outcome: &mut Outcome,
) -> Result<(), ProcedureError> {
    if let Some(record) = find(txn, tables, key, outcome)? {
        fill_row(&mut scratch.row, key, seed);
        txn.update(&tables.records, record.rid, &scratch.row)?;
        outcome.written += 1;
    }
    Ok(())
}

#[inline]
fn write_field(
    txn: &Transaction<'_>,
    tables: &Tables,
    record: Record<'_>,
    field: u16,
    seed: u64,
    scratch: &mut Scratch,
    outcome: &mut Outcome,
) -> Result<(), ProcedureError> {
    scratch.row.clear();
    scratch.row.extend_from_slice(record.row);
    let width = scratch.field_bytes;
    let start = Shape::KEY + usize::from(field) * width;
    let Some(value) = scratch.row.get_mut(start..start + width) else { return missing("there is no such field") };
    fill(value, seed);
    txn.update(&tables.records, record.rid, &scratch.row)?;
    outcome.written += 1;
    Ok(())
}

fn scan(
    txn: &Transaction<'_>,
    tables: &Tables,
    from: u64,
    count: u16,
    outcome: &mut Outcome,
) -> Result<(), ProcedureError> {
    let from = from.to_be_bytes();
    let mut left = count;
    txn.scan(
        &tables.records,
        0,
        (Bound::Included(from.as_slice()), Bound::Unbounded),
        Direction::Forward,
        |_, record| {
            if left == 0 {
                return ControlFlow::Break(());
            }
            look_at(&record, outcome);
            left -= 1;
            if left == 0 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        },
    )?;
    Ok(())
}
