//! From execution to the log: one way, top down.

use freshet_base::{Fid, Isolation, RecordKind, Rid, Stamp, panics};
use freshet_log::{BlockBuilder, BlockKind, ReserveError, Writer};

use freshet_storage::{Catalog, Visible};

use crate::{
    CommitError, Ticket, Transaction, certify::ScannedRange, garbage::Garbage, snapshots::Primary, state::Write,
    worker::Inner,
};

impl From<ReserveError> for CommitError {
    fn from(error: ReserveError) -> Self {
        match error {
            ReserveError::TransactionTooLarge { .. } | ReserveError::BlockTooLong { .. } => {
                Self::TooLarge(error.to_string())
            }
            _ => Self::Log(error.to_string()),
        }
    }
}

/// Where the block says that its records are; a command's block has none.
fn offsets(kind: BlockKind, builder: &BlockBuilder) -> &[u32] {
    if kind == BlockKind::Command { &[] } else { builder.offsets() }
}

/// While a transaction that changes or drops tables commits.
struct Changing<'c>(&'c Catalog);

impl<'c> Changing<'c> {
    fn begin(catalog: &'c Catalog) -> Self {
        catalog.begin_change();
        Self(catalog)
    }
}

impl Drop for Changing<'_> {
    fn drop(&mut self) {
        self.0.end_change();
    }
}

impl Transaction<'_> {
    /// Commits: takes the stamp, validates if serializable, and puts the block into the log's
    /// buffer. Then the transaction has taken effect on this node, and nothing else can undo it but the loss of
    /// the node; it is committed when the ticket resolves. Blocks while the log's buffer is full.
    ///
    /// # Errors
    /// Why it was rolled back instead.
    pub fn commit(self) -> Result<Ticket, CommitError> {
        let _vital = panics::vital("a commit");
        let worker = self.worker;
        let Some(primary) = worker.core.snapshots.primary() else {
            // A standby's read view is persistent already, wherever it must be.
            return Ok(Ticket { stamp: None, until: Stamp::ZERO });
        };
        if worker.state.borrow().logs_nothing() {
            return Ok(self.read_only_ticket(primary));
        }
        primary.gate.admit().map_err(CommitError::Refused)?;
        if !primary.log.has_room()
            && let Some(lack) = primary.log.lack()
        {
            return Err(CommitError::NoRoom(lack.to_string()));
        }
        let mut inner = worker.inner.borrow_mut();
        let inner = &mut *inner;
        // Records that this transaction both inserted and deleted have never been.
        self.drop_vanished(inner);
        if worker.state.borrow().logs_nothing() {
            return Ok(self.read_only_ticket(primary));
        }
        let made = worker.state.borrow().writes.len();
        // Before the stamp is taken: who takes a later one finds this.
        let _changing = worker.state.borrow().changes.then(|| Changing::begin(&worker.core.catalog));
        let result =
            if primary.log.is_volatile() { self.log_volatile(primary, inner) } else { self.log_block(primary, inner) };
        let ticket = result?;
        self.finished.set(true);
        worker.tidy(inner, &self, made);
        Ok(ticket)
    }

    /// What an answer has to wait for that tells of what this transaction has read by now, and of
    /// nothing that it has written.
    pub fn seen(&self) -> Ticket {
        match self.worker.core.snapshots.primary() {
            Some(primary) => self.read_only_ticket(primary),
            None => Ticket { stamp: None, until: Stamp::ZERO },
        }
    }

    /// A reader's answer waits until what it has read is persistent (invariant 1).
    fn read_only_ticket(&self, primary: &Primary) -> Ticket {
        let seen = self.worker.seen.get();
        let until = if seen == Stamp::ZERO || primary.log.is_volatile() { Stamp::ZERO } else { seen.plus(1) };
        Ticket { stamp: None, until }
    }

    pub(crate) fn drop_vanished(&self, inner: &mut Inner) {
        let mut state = self.worker.state.borrow_mut();
        let vanished = |write: &mut Write| write.inserted && write.installed.kind() == RecordKind::Delete;
        if state.writes.iter_mut().any(vanished) {
            for write in state.writes.extract_if(.., vanished) {
                self.undo_write(write, &mut inner.rids);
            }
        }
    }

    /// Takes the stamp, decides, and fills the reserved range of the log with the block, or with a skip block.
    fn log_block(&self, primary: &Primary, inner: &mut Inner) -> Result<Ticket, CommitError> {
        let worker = self.worker;
        let Inner { writer, builder, .. } = inner;
        if writer.is_none() {
            builder.set_limit(primary.log.longest_at_once());
        }
        let writer = Self::writer(primary, writer)?;
        let command = self.build_command(writer.stream(), builder)?;
        let Some(kind) = command.or_else(|| self.build_block(primary, writer.stream(), builder)) else {
            return self.log_long(primary, inner);
        };
        let length = builder.seal_records();
        writer.throttle()?;
        let owner = worker.owner.get().expect("it has written");
        worker.core.owners.committing(owner);
        let mut reservation = writer.reserve(length)?;
        let stamp = reservation.stamp();
        worker.core.owners.stamp(owner, stamp);
        if let Err(error) = self.validate(stamp) {
            worker.core.owners.decided(owner, false);
            reservation.skip();
            return Err(error);
        }
        worker.core.owners.decided(owner, true);
        let until = stamp.plus(length);
        let written = worker.state.borrow().writes.len();
        self.enter_messages(stamp, offsets(kind, builder).iter().skip(written).map(|offset| u64::from(*offset)));
        // When the log has failed, it takes nothing more from anybody, and the ticket tells.
        if reservation.has_room() {
            let _ = reservation.fill(builder.finish(stamp, primary.term, kind));
            self.publish(stamp, length, offsets(kind, builder));
        } else {
            // A long transaction has the ring for itself. Nobody should have to wait for the final stamps of versions meanwhile.
            self.publish(stamp, length, offsets(kind, builder));
            let _ = reservation.fill(builder.finish(stamp, primary.term, kind));
        }
        Ok(Ticket { stamp: Some(stamp), until })
    }

    /// The same without a log: only the stamp is taken.
    fn log_volatile(&self, primary: &Primary, inner: &mut Inner) -> Result<Ticket, CommitError> {
        let worker = self.worker;
        let owner = worker.owner.get().expect("it has written");
        let (written, records) = {
            let state = worker.state.borrow();
            (state.writes.len(), state.writes.len() + state.messages.len())
        };
        worker.core.owners.committing(owner);
        // As much as the block would at least have had.
        let length = (freshet_log::block::BLOCK_HEADER + records * freshet_log::block::RECORD_HEADER) as u64;
        let stamp = Self::writer(primary, &mut inner.writer)?.reserve_volatile(length)?;
        worker.core.owners.stamp(owner, stamp);
        // `undo` publishes the outcome.
        self.validate(stamp)?;
        worker.core.owners.decided(owner, true);
        self.publish(stamp, length, &[]);
        self.enter_messages(stamp, (written as u64 + 1)..);
        Ok(Ticket { stamp: Some(stamp), until: Stamp::ZERO })
    }

    /// The worker's place in the log, taken when it first writes.
    pub(crate) fn writer<'i>(primary: &Primary, place: &'i mut Option<Writer>) -> Result<&'i mut Writer, CommitError> {
        match place {
            Some(writer) => Ok(writer),
            none => Ok(none.insert(primary.log.writer().map_err(|cause| CommitError::Log(cause.to_string()))?)),
        }
    }

    /// Builds the transaction's block in its worker's stream, or, where the log is divided by pages, one in each stream
    /// whose pages it has changed. None when that is too long to be put into the log at once.
    fn build_block(&self, primary: &Primary, own: u8, builder: &mut BlockBuilder) -> Option<BlockKind> {
        let mut state = self.worker.state.borrow_mut();
        let stream = |write: &Write| primary.log.stream_of(write.fid, write.installed.rid()).unwrap_or(own);
        state.writes.sort_by_key(stream);
        let mut kind = BlockKind::Redo;
        let mut current = state.writes.first().map_or(own, stream);
        builder.begin_in(current);
        for write in &state.writes {
            let next = stream(write);
            if next != current {
                builder.next_block_in(next);
                current = next;
            }
            let Write { fid, installed, inserted, .. } = write;
            let record = if *inserted { RecordKind::Insert } else { installed.kind() };
            builder.push(installed.prev(), *fid, installed.rid(), record, installed.logged_row(self.guard())).ok()?;
            if *fid == Fid::CATALOG {
                kind = BlockKind::Schema;
            }
        }
        for message in &state.messages {
            builder.push(None, Fid::MESSAGES, Rid(0), RecordKind::Insert, message).ok()?;
        }
        Some(kind)
    }

    /// Gives every version its final stamp: its record's address in the log, as far from the transaction's as `offsets` say, which
    /// takes `length` bytes in all.
    pub(crate) fn publish(&self, stamp: Stamp, length: u64, offsets: &[u32]) {
        let mut garbage = self.worker.core.garbage.of(self.worker.place());
        let mut state = self.worker.state.borrow_mut();
        for (position, write) in state.writes.drain(..).enumerate() {
            // Without a block of records, any places between the stamp and the next one will do.
            let offset = offsets.get(position).map_or(position as u64 + 1, |offset| u64::from(*offset));
            let offset = offset.min(length - 1);
            let address = stamp.plus(offset);
            self.enter_catalog(&write, address);
            let Write { fid, installed, inserted, .. } = write;
            let rid = installed.rid();
            installed.commit(address);
            if !inserted {
                garbage.push(Garbage { fid, rid, stamp: address });
            }
        }
    }

    /// Of a record of the catalog: the table comes to be, is changed or dropped.
    pub(crate) fn enter_catalog(&self, Write { fid, installed, .. }: &Write, address: Stamp) {
        if *fid == Fid::CATALOG {
            let catalog = &self.worker.core.catalog;
            let (rid, row) = (installed.rid(), installed.logged_row(self.guard()));
            let entered = match installed.kind() {
                RecordKind::Delete => catalog.drop_row(self.guard(), rid, row, address, true),
                RecordKind::Update => catalog.alter_row(self.guard(), rid, row, address, true),
                RecordKind::Insert => catalog.enter_row(self.guard(), rid, row, address),
            };
            entered.expect("the row was checked before it was inserted");
        }
    }

    /// Whether the transaction may commit with this stamp, which it has taken.
    pub(crate) fn validate(&self, stamp: Stamp) -> Result<(), CommitError> {
        if self.worker.core.catalog.changes_begun() != self.worker.changes.get() {
            self.check_tables(stamp)?;
        }
        match self.isolation {
            Isolation::Serializable => self.certify(stamp),
            _ => Ok(()),
        }
    }

    /// Tables are being changed: are all there, at `stamp`, that this transaction has written to, and have they no more indexes than it has
    /// entered that into?
    #[cold]
    fn check_tables(&self, stamp: Stamp) -> Result<(), CommitError> {
        let state = self.worker.state.borrow();
        let catalog = &self.worker.core.catalog;
        let content = self.worker.core.content(self.guard(), Fid::CATALOG).expect("nobody drops the catalog");
        let context = freshet_storage::ReadContext { snapshot: stamp, ..self.context() };
        let mut fids: Vec<(Fid, usize)> = state.writes.iter().map(|write| (write.fid, write.indexes)).collect();
        if self.isolation == Isolation::Serializable {
            // That they were there is something that it has read.
            let read = state.reads.iter().map(|(fid, _)| *fid).chain(state.ranges.iter().map(ScannedRange::fid));
            fids.extend(read.map(|fid| (fid, usize::MAX)));
        }
        fids.sort_unstable();
        // Of each table, who knew the fewest.
        fids.dedup_by_key(|(fid, _)| *fid);
        for (fid, indexes) in fids {
            let Some(rid) = Catalog::rid_of(fid) else { continue };
            let name = || catalog.get(self.guard(), fid).map_or_else(String::new, |table| table.name().to_owned());
            // Waits for a change that has a smaller stamp, and is not decided. One's own is no obstacle.
            match content.read(self.guard(), rid, &context)? {
                Some(Visible { row: None, stamp: Some(_) }) => return Err(CommitError::Dropped(name())),
                Some(Visible { row: Some(row), stamp: Some(_) })
                    if Catalog::definition_in(row).is_ok_and(|definition| definition.indexes.len() > indexes) =>
                {
                    return Err(CommitError::Altered(name()));
                }
                _ => {}
            }
        }
        Ok(())
    }
}
