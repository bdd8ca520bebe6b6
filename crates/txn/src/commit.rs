//! From execution to the log: one way, top down, for every transaction.
//!
//! 1. Plan: build the block with its checksum, or measure a transaction that is too long for that.
//! 2. Say "committing". A thread that sees the transaction active after this knows that its LSN
//!    will be larger than any taken so far. Under the serial safety net, what was read is announced
//!    before the LSN, too.
//! 3. Reserve the LSN.
//! 4. Certify. A transaction that fails leaves a skip block, so the log has no holes.
//! 5. Decide, mark tables that are made, changed or dropped, and give the versions their LSNs.
//! 6. Put the blocks into the log.

use freshet_base::{Fid, Lsn, RecordKind, panics};
use freshet_log::{BlockBuilder, ReserveError, Writer};

use crate::{
    CommitError, NotAdmitted, NotRecorded, Ticket, Transaction,
    garbage::Garbage,
    plan::{Plan, Record},
    rids::Rids,
    snapshots::Primary,
    state::Write,
    worker::Inner,
};

impl From<NotAdmitted> for CommitError {
    fn from(not: NotAdmitted) -> Self {
        match not {
            NotAdmitted::Refused(why) => Self::Refused(why),
            NotAdmitted::Deposed(why) => Self::Deposed(why),
            NotAdmitted::HandsOver => Self::HandsOver,
        }
    }
}

impl From<ReserveError> for CommitError {
    fn from(error: ReserveError) -> Self {
        match error {
            ReserveError::TransactionTooLarge { .. } => Self::TooLarge(error.to_string()),
            _ => Self::Log(error.to_string()),
        }
    }
}

impl Transaction<'_> {
    /// Commits: takes the LSN, certifies if serializable, and puts the block into the log's
    /// buffer. Then the transaction has taken effect on this node, and nothing else can undo it but
    /// the loss of the node; it is committed when the ticket resolves. Blocks while the log's
    /// buffer is full.
    ///
    /// # Errors
    /// Why it was rolled back instead.
    pub fn commit(self) -> Result<Ticket, CommitError> {
        freshet_base::step!(Execute);
        let _vital = panics::vital("a commit");
        let worker = self.worker;
        let Some(primary) = self.primary.filter(|_| !worker.state.borrow().logs_nothing()) else {
            return self.end_reading();
        };
        primary.gate.admit()?;
        if !primary.log.has_room()
            && let Some(out_of_space) = primary.log.out_of_space()
        {
            return Err(CommitError::NoRoom(out_of_space.to_string()));
        }
        let mut inner = worker.inner.borrow_mut();
        let inner = &mut *inner;
        // Records that this transaction both inserted and deleted have never been.
        self.drop_vanished(inner);
        if worker.state.borrow().logs_nothing() {
            return self.end_reading();
        }
        let made = worker.state.borrow().writes.len();
        // Built before the LSN is taken, as far as that can be: what comes between is short.
        let writer = Self::writer(primary, &mut inner.writer, &mut inner.builder)?;
        let plan = self.plan(primary, writer.stream(), &mut inner.builder)?;
        writer.throttle()?;
        let ticket = self.log(primary, &plan, writer, &mut inner.builder, &mut inner.rids)?;
        self.finished.set(true);
        worker.tidy(inner, &self, made);
        Ok(ticket)
    }

    /// What an answer has to wait for that tells of what this transaction has read by now, and of
    /// nothing that it has written: until what it has read is persistent (invariant 1). A standby's
    /// read view is, wherever it must be.
    pub fn seen(&self) -> Ticket {
        let seen = self.worker.seen.get();
        let waits = self.primary.is_some() && seen > Lsn::ZERO;
        Ticket { lsn: None, until: if waits { seen.plus(1) } else { Lsn::ZERO } }
    }

    pub(crate) fn drop_vanished(&self, inner: &mut Inner) {
        let mut state = self.worker.state.borrow_mut();
        let vanished = |write: &mut Write| write.inserted && write.installed.kind() == RecordKind::Delete;
        if state.writes.iter_mut().any(vanished) {
            self.keep_records(NotRecorded::TakenBack);
            for write in state.writes.extract_if(.., vanished) {
                self.undo_write(write, &mut inner.rids);
            }
        }
    }

    /// Takes the LSN, decides, and fills the reserved range of the log with what was planned, or
    /// with skip blocks. The order of the lines is the protocol, whatever the log keeps and however
    /// long the transaction is.
    fn log(
        &self,
        primary: &Primary,
        plan: &Plan,
        writer: &mut Writer,
        builder: &mut BlockBuilder,
        rids: &mut Rids,
    ) -> Result<Ticket, CommitError> {
        freshet_base::step!(Certify);
        let worker = self.worker;
        let owners = &worker.core.owners;
        let owner = worker.owner.get().expect("it has written");
        if plan.is_long() {
            // To find out later costs as much of the log as the transaction takes.
            self.certify(primary.log.reserved())?;
        }
        let announced = self.announce();
        // Before the LSN is taken: who takes a later one, or a snapshot above it, finds this.
        let changing = worker.state.borrow().changes.then(|| worker.core.catalog.begin_change());
        // Before the LSN: who sees this transaction active knows that its LSN will be larger.
        owners.committing(owner);
        // Who has seen nobody commit since the gate was closed knows where the log ends.
        primary.gate.admit()?;
        let mut reservation = writer.reserve(plan.length())?;
        let lsn = reservation.lsn();
        assert!(lsn >= self.snapshot(), "a transaction comes before what it has read");
        assert_eq!(reservation.end().since(lsn), plan.length(), "a plan has another length than its place");
        owners.lsn(owner, lsn);
        let first = match self.certify(lsn) {
            Ok(first) => first,
            Err(error) => {
                // Its versions first: others wait for them to go.
                self.undo_all(rids);
                // That may have to wait for room.
                drop(changing);
                reservation.skip();
                return Err(error);
            }
        };
        assert!(first <= lsn, "a transaction comes after its own LSN");
        if let Some(announced) = announced {
            announced.enter(lsn, reservation.end(), first);
        }
        owners.decided(owner, true);
        self.enter_tables(lsn, plan, builder);
        // Who has waited to read continues before the rows are published, and the log has room.
        drop(changing);
        self.count_recorded();
        let ticket = Ticket { lsn: Some(lsn), until: reservation.end() };
        // Messages are there before the block is, and so before it can be committed.
        let messages = self.enter_messages(lsn, plan, builder);
        // A thread that meets a version wants its final LSN, and should not have to wait for the
        // log.
        let records = self.publish(lsn, plan, builder);
        // When the log has failed, it takes nothing more from anybody, and the ticket tells.
        let put = plan.put(primary, builder, &records, &messages, &mut reservation);
        assert!(put.is_err() || reservation.at() == reservation.end(), "a part of a transaction is not in the log");
        Ok(ticket)
    }

    /// The worker's place in the log, taken when it first writes.
    fn writer<'i>(
        primary: &Primary,
        place: &'i mut Option<Writer>,
        builder: &mut BlockBuilder,
    ) -> Result<&'i mut Writer, CommitError> {
        match place {
            Some(writer) => Ok(writer),
            none => {
                builder.set_limit(primary.log.longest_at_once());
                Ok(none.insert(primary.log.writer().map_err(|cause| CommitError::Log(cause.to_string()))?))
            }
        }
    }

    /// Gives every version its final LSN: its record's address in the log. Returns those whose
    /// log is yet to be built.
    pub(crate) fn publish(&self, lsn: Lsn, plan: &Plan, builder: &BlockBuilder) -> Vec<Record<'_>> {
        freshet_base::step!(Certify, lsn, lsn.plus(plan.length()));
        let mut garbage = self.worker.core.garbage.of(self.worker.place());
        let mut counted = self.worker.core.identities.count(self.worker.place(), lsn);
        let sums = counted.sums();
        let mut state = self.worker.state.borrow_mut();
        let mut records = Vec::with_capacity(if plan.is_long() { state.writes.len() } else { 0 });
        for (number, write) in state.writes.drain(..).enumerate() {
            let address = lsn.plus(plan.offset(number, builder));
            let Write { fid, installed, inserted, .. } = write;
            let kind = if inserted { RecordKind::Insert } else { installed.kind() };
            sums.add(fid, installed.identity(fid, kind, address));
            let published = installed.publish(self.guard(), address);
            if !inserted {
                let bytes = published.replaced_bytes();
                garbage.push(Garbage { fid, bytes, rid: published.rid(), lsn: address });
            }
            if plan.is_long() {
                records.push((fid, kind, published));
            }
        }
        records
    }

    /// Of what is written to the catalog: the tables come to be, are changed or dropped.
    pub(crate) fn enter_tables(&self, lsn: Lsn, plan: &Plan, builder: &BlockBuilder) {
        let state = self.worker.state.borrow();
        for (number, Write { fid, installed, .. }) in state.writes.iter().enumerate() {
            if *fid == Fid::CATALOG {
                let address = lsn.plus(plan.offset(number, builder));
                let catalog = &self.worker.core.catalog;
                let (kind, rid, row) = (installed.kind(), installed.rid(), installed.logged_row(self.guard()));
                let entered = catalog.replay(self.guard(), kind, rid, row, address);
                entered.expect("the row was checked before it was inserted");
            }
        }
    }
}
