//! Executing a transaction again, on a node that knows its inputs and where it has written,
//! and not what (Record-Replay, section 4.5.2).
//!
//! Such a transaction is one as any other to those who execute it: they call the same methods. But
//! it reads at the snapshots that it had, one after the other; and it writes into a buffer of its
//! own, where each of its writes has a place, its [`Entry`]. It takes no locks, puts no versions on
//! records and is not certified: that it commits is known. What comes of it is its block, byte for
//! byte ([`Transaction::regenerate`]), or a [`Mismatch`].
//!
//! # What it reads
//!
//! Of a record, what it has written itself, or else what the table shows to its snapshot. Before it
//! looks there, [`Past`] has waited until the newest version below the snapshot is in the table.
//!
//! Versions come into the tables in no order, above the node's read view. A chain is in the order
//! of LSNs all the same, and what lies above the snapshot is passed by, as for all readers. What
//! the snapshot sees is kept for as long as it is announced. A cut of the log takes versions back
//! only from its place on, and who would miss them is cut off, too. So the version that is found is
//! the one that the first execution has found, however far the snapshot lies above the read view.
//!
//! Indexes have the keys of all insertions up to the transaction's own LSN, its own included:
//! entries are hints, so a scan that comes to a record too early finds no row there. One
//! thing differs from the first execution: there an insertion into a range that is being scanned
//! may come too late for the scan, which depends on where leaves begin; here it never does.
//! Procedures should rely on neither.
//!
//! # What is not determined
//!
//! The first execution may have met what its snapshots do not show: a record that another
//! transaction held, or had changed since the snapshot. Then its inputs are not recorded, nor where
//! it has taken something back that it had written. Here both are a mismatch.

mod buffer;
mod write;

use std::{cell::RefCell, sync::Arc};

use freshet_base::{Fid, Lsn, RecordKind, Rid, Term};
use freshet_log::{BlockBuilder, BlockKind};
use freshet_storage::{Content, LoadError, Loaded, ReadContext, ReadError, RecordSource, Visible};
use thiserror::Error;

pub(crate) use self::buffer::Buffer;
use self::buffer::Done;
use crate::{Transaction, Worker};

/// One write of a transaction that is executed again: where, and how long; not the bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The table's file id.
    pub fid: Fid,
    /// The record's id in its table.
    pub rid: Rid,
    /// What was done to it.
    pub kind: RecordKind,
    /// The length of the row in the log, in bytes.
    pub length: u32,
    /// The version that was replaced.
    pub prev: Option<Lsn>,
}

/// What is not in the tables yet: versions of transactions that are executed again, or wait for
/// that.
pub trait Past: Send + Sync {
    /// Blocks until the newest version of a record below the LSN `below` is in its table, if
    /// there is one.
    ///
    /// # Errors
    /// When it will not come.
    fn wait(&self, fid: Fid, rid: Rid, below: Lsn) -> Result<(), ReadError>;

    /// Whether nobody wants any more what comes of the transaction that asks. It is looked at
    /// before each record that the transaction reads or writes, and by what works for long in
    /// between ([`Transaction::is_given_up`]).
    fn is_over(&self) -> bool {
        false
    }
}

/// What a transaction does that is executed again, and has not done the first time.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Mismatch {
    /// It writes a record that it has not written.
    #[error("it writes record {} of table {}, which it has not written", rid.0, fid.0)]
    NotAnnounced {
        /// The table that it writes to.
        fid: Fid,
        /// The record that it writes.
        rid: Rid,
    },
    /// It inserts a record that it has not inserted.
    #[error("it inserts a record into table {} that it has not inserted", fid.0)]
    NotInserted {
        /// The table that it inserts into.
        fid: Fid,
    },
    /// It does something else to a record, or nothing.
    #[error("record {} of table {} was written otherwise: {kind:?}", rid.0, fid.0)]
    Kind {
        /// The record's table.
        fid: Fid,
        /// The record's id.
        rid: Rid,
        /// What it did the first time.
        kind: RecordKind,
    },
    /// A row is of another length.
    #[error("the row of record {} of table {} has {length} bytes, and had {expected}", rid.0, fid.0)]
    Length {
        /// The record's table.
        fid: Fid,
        /// The record's id.
        rid: Rid,
        /// How long it was, in bytes.
        expected: u32,
        /// How long it is now, in bytes.
        length: usize,
    },
    /// It takes a snapshot more than it has taken.
    #[error("it takes more than the {0} snapshots that it has taken")]
    Snapshot(usize),
    /// It does what no transaction that is recorded has done.
    #[error("it {0}, so it would not have been recorded")]
    Unrecorded(&'static str),
    /// It cannot have written this.
    #[error("no transaction can have written record {} of table {} so", rid.0, fid.0)]
    Entry {
        /// The table that the record should be of.
        fid: Fid,
        /// The id that the record should have.
        rid: Rid,
    },
}

/// What a transaction has that is executed again.
pub(crate) struct Again {
    /// Its LSN. It reads below.
    lsn: Lsn,
    past: Arc<dyn Past>,
    source: Below,
    buffer: RefCell<Buffer>,
}

/// The log as a source of versions below an LSN, whether readers of the node see them yet or not:
/// a restart announces all that it finds, and its readers see nothing before another node has said
/// what is committed. No cut comes below the LSN before the transaction there is given up.
struct Below {
    source: Arc<dyn RecordSource>,
    limit: Lsn,
}

impl RecordSource for Below {
    fn load(&self, address: Lsn, fid: Fid, rid: Rid, row: &mut Vec<u8>) -> Result<Loaded, LoadError> {
        self.source.load(address, fid, rid, row)
    }

    fn limit(&self) -> Lsn {
        self.limit.max(self.source.limit())
    }
}

impl Again {
    /// How often it has written.
    pub(crate) fn writes(&self) -> usize {
        self.buffer.borrow().writes()
    }

    /// Whether it has written to a table.
    pub(crate) fn has_written(&self, fid: Fid) -> bool {
        self.buffer.borrow().has_written(fid)
    }

    /// The snapshot that it has taken after `before`. Never above its LSN.
    pub(crate) fn next_snapshot(&self, before: Lsn) -> Lsn {
        self.buffer.borrow_mut().next_snapshot().map_or(before, |next| next.min(self.lsn))
    }

    /// Fails when nobody wants any more what comes of it.
    fn check(&self) -> Result<(), ReadError> {
        if self.past.is_over() { Err(given_up()) } else { Ok(()) }
    }

    /// It does something that no recorded transaction has done.
    pub(crate) fn unrecorded(&self, what: &'static str) {
        self.buffer.borrow_mut().differs(Mismatch::Unrecorded(what));
    }

    /// Its memory, for the next one.
    pub(crate) fn into_buffer(self) -> Buffer {
        self.buffer.into_inner()
    }
}

/// What a transaction is told that nobody wants any more.
#[cold]
fn given_up() -> ReadError {
    LoadError::Log("the transaction is not executed again any more".into()).into()
}

impl Worker {
    /// Begins a transaction that is executed again, with the LSN that it had: it reads at
    /// `snapshots`, one after the other, as [`Transaction::refresh`] is called, and writes what
    /// `entries` announce, which are in the order of its block. Nothing of it reaches the tables,
    /// other transactions or the log; it is not committed, but
    /// [regenerated](Transaction::regenerate).
    ///
    /// The caller holds a snapshot at or below the first of `snapshots` for as long as it runs, so
    /// that what it reads is there. The indexes have the keys of what `past` waits for, and of its
    /// own insertions; the catalog knows the tables and indexes that its snapshots see.
    ///
    /// # Panics
    /// When this worker has a transaction already.
    pub fn again(&self, lsn: Lsn, snapshots: &[Lsn], entries: &[Entry], past: Arc<dyn Past>) -> Transaction<'_> {
        let mut buffer = self.again.take();
        buffer.begin(snapshots, entries);
        let source = Below { source: Arc::clone(&self.core.source), limit: lsn };
        let again = Again { lsn, past, source, buffer: RefCell::new(buffer) };
        let snapshot = again.next_snapshot(lsn);
        Transaction::again(self, snapshot, again)
    }
}

impl Transaction<'_> {
    /// Whether it is executed again, and nobody wants any more what comes of it: who works for long
    /// without reading or writing a record looks at that, and fails then.
    pub fn is_given_up(&self) -> bool {
        self.again.as_ref().is_some_and(|again| again.past.is_over())
    }

    /// What the transaction, which is executed again, sees of a record.
    pub(crate) fn look_again(
        &self,
        again: &Again,
        content: &Content,
        rid: Rid,
    ) -> Result<Option<Visible<'_>>, ReadError> {
        again.check()?;
        let row = match again.buffer.borrow().done(content.fid(), rid) {
            Done::Not => return self.look_below(again, content, rid),
            Done::Row(row) => Some(self.guard().kept(row)),
            Done::Gone(_) | Done::Moved(..) => None,
        };
        Ok(Some(Visible { lsn: None, row }))
    }

    /// What the snapshot shows of a record, without the transaction's own writes.
    fn look_below(&self, again: &Again, content: &Content, rid: Rid) -> Result<Option<Visible<'_>>, ReadError> {
        again.past.wait(content.fid(), rid, self.snapshot())?;
        content.read(self.guard(), rid, &ReadContext { me: None, source: &again.source, ..self.context() })
    }

    /// Which record has the row of this one, since the transaction, which is executed again, has
    /// changed a key.
    pub(crate) fn moved_again(&self, again: &Again, content: &Content, rid: Rid) -> Option<Rid> {
        match again.buffer.borrow().done(content.fid(), rid) {
            Done::Moved(to, _) => Some(to),
            _ => None,
        }
    }

    /// Builds the block that the transaction had, of `term` and in `stream`, with `inputs_row`, the
    /// row of its inputs' record, behind what it has written. The checksum in the block is that of
    /// these bytes: when it is the one that the block had, they are those that it had.
    ///
    /// # Errors
    /// When it has not written just what its entries say. Its bytes would be others.
    ///
    /// # Panics
    /// When the transaction was not begun by [`Worker::again`].
    pub fn regenerate(
        self,
        builder: &mut BlockBuilder,
        term: Term,
        stream: u8,
        inputs_row: &[u8],
    ) -> Result<Arc<[u8]>, Mismatch> {
        let again = self.again.as_ref().expect("it is executed again");
        let buffer = again.buffer.borrow();
        builder.begin_in(stream);
        for (entry, done) in buffer.outcome()? {
            let Entry { fid, rid, kind, length: expected, prev } = *entry;
            let row = match (kind, done) {
                (RecordKind::Insert | RecordKind::Update, Done::Row(row)) => row,
                (RecordKind::Delete, Done::Gone(row) | Done::Moved(_, row)) => row,
                _ => return Err(Mismatch::Kind { fid, rid, kind }),
            };
            let row = self.guard().kept(*row);
            if row.len() != expected as usize {
                return Err(Mismatch::Length { fid, rid, expected, length: row.len() });
            }
            if rid > Rid::MAX || builder.push(prev, fid, rid, kind, row).is_err() {
                return Err(Mismatch::Entry { fid, rid });
            }
        }
        let pushed = builder.push(None, Fid::INPUTS, Rid(0), RecordKind::Insert, inputs_row);
        pushed.map_err(|_| Mismatch::Entry { fid: Fid::INPUTS, rid: Rid(0) })?;
        builder.seal_records();
        Ok(builder.finish(again.lsn, term, BlockKind::Redo).into())
    }
}
