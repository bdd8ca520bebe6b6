//! Transactions: how they begin, what is seen in them, and how they end.

use std::{
    cell::{Cell, OnceCell},
    sync::Arc,
    time::{Duration, Instant},
};

use freshet_engine::{Lsn, Savepoint, Ticket, Transaction};
use freshet_postgres::{Out, TransactionStatus};
use freshet_sql::{
    SqlError, SqlState,
    memory::{Pool, Reservation},
    types::Timestamp,
};

use super::notify::WantedMark;
use super::{Session, parse::Parsed, settings};
use crate::{
    commit::Level,
    error::commit_error,
    execute::deferred::{Deferred, DeferredMark},
    exported::{Exported, Exports},
    inputs::Recorder,
    locks::LockMark,
    old_snapshots::too_old,
    outcome::OpenToken,
    server::Shared,
    statistics::Cause,
    system::SystemView as _,
};

/// Where a session's locks on tables and numbers, what it has deferred, and its channels were, and
/// whether its transaction was not to write.
pub(super) type Marks = (LockMark, usize, DeferredMark, WantedMark, bool);

/// A transaction, from BEGIN or a statement of its own to its end.
pub struct Block<'w> {
    /// The snapshots that it has exported: they are taken back before the transaction ends.
    pub exports: OnceCell<Exports>,
    /// The engine's, once a statement has needed it.
    pub transaction: Option<Transaction<'w>>,
    /// Begun by BEGIN: it outlives its statement.
    pub explicit: bool,
    /// It can only be rolled back.
    pub failed: bool,
    /// It was given up because of its snapshot, and its client has not heard of it yet.
    pub condemned: Cell<bool>,
    /// PostgreSQL's name of its level.
    pub isolation: &'static str,
    /// The transaction must not write.
    pub read_only: bool,
    /// It was said to be DEFERRABLE. That changes nothing: no snapshot here is unsafe.
    pub deferrable: bool,
    /// When it began.
    pub begun: Timestamp,
    /// Whether a statement was run in it.
    pub used: bool,
    /// How many portals were run in it.
    pub statements: u32,
    /// What is to be looked at before it commits.
    pub deferred: Deferred,
    /// What is recorded of it, if it is.
    pub(super) recorder: Option<Box<Recorder>>,
    /// With how many locks on tables and on numbers were held then, and what each takes of the
    /// session's memory.
    pub(super) savepoints: Vec<(String, Savepoint, Marks, Reservation)>,
    /// Its token, if it has asked for one: it is written when the transaction commits, so no
    /// savepoint takes it back.
    pub(super) token: OnceCell<OpenToken>,
}

impl Block<'_> {
    /// Lets other sessions see what the transaction's statement sees: pg_export_snapshot.
    ///
    /// # Errors
    /// 25001 within a savepoint, 53200.
    pub(super) fn export(&self, shared: &Shared, place: usize, memory: &Arc<Pool>) -> Result<String, SqlError> {
        if !self.savepoints.is_empty() {
            let message = "cannot export a snapshot from a subtransaction";
            return Err(SqlError::new(SqlState::ACTIVE_SQL_TRANSACTION, message));
        }
        let transaction = self.transaction.as_ref();
        let transaction = transaction.ok_or_else(|| SqlError::internal("a statement without a transaction"))?;
        let exports = self.exports.get_or_init(|| Exports::new(&shared.exported, place, memory.reserve()));
        exports.export(Exported {
            lsn: transaction.hold_snapshot(),
            serializable: self.isolation == "serializable",
            read_only: self.read_only || shared.is_standby(),
        })
    }

    /// Whether each statement sees what has committed before it.
    pub fn is_read_committed(&self) -> bool {
        matches!(self.isolation, "read committed" | "read uncommitted")
    }

    /// Its level, and whether it must not write and is DEFERRABLE.
    pub fn modes(&self) -> (&'static str, bool, bool) {
        (self.isolation, self.read_only, self.deferrable)
    }

    /// How many savepoints it has.
    pub fn savepoint_count(&self) -> usize {
        self.savepoints.len()
    }
}

impl<'w> Session<'w> {
    /// The level and mode of a transaction that begins now.
    fn new_block(&self, explicit: bool) -> Block<'w> {
        Block {
            exports: OnceCell::new(),
            transaction: None,
            explicit,
            failed: false,
            condemned: Cell::new(false),
            isolation: self.state.settings.ready.isolation,
            read_only: self.state.settings.ready.read_only,
            deferrable: self.state.settings.ready.deferrable,
            // As in PostgreSQL, where it is that of the message that begins it.
            begun: self.state.statement_start,
            used: false,
            statements: 0,
            deferred: Deferred::default(),
            recorder: None,
            savepoints: Vec::new(),
            token: OnceCell::new(),
        }
    }

    /// BEGIN.
    pub(super) fn begin(&mut self) -> &mut Block<'w> {
        match &mut self.block {
            // The statements before it in the same message are part of it, as in PostgreSQL.
            Some(block) => block.explicit = true,
            None => {
                self.state.settings.begin();
                self.block = Some(self.new_block(true));
            }
        }
        self.block.as_mut().expect("just begun")
    }

    /// The transaction that a statement runs in; without a snapshot if it needs none.
    ///
    /// # Errors
    /// As for [`Session::block_for_statement`].
    pub(super) fn block_for(&mut self, statement: Option<&Parsed>) -> Result<(), SqlError> {
        if statement.is_some_and(Parsed::needs_no_snapshot) {
            self.block_without_snapshot()
        } else {
            self.block_for_statement()
        }
    }

    fn block_without_snapshot(&mut self) -> Result<(), SqlError> {
        self.give_up_condemned();
        if self.block.is_none() {
            self.state.settings.begin();
            self.block = Some(self.new_block(false));
        }
        self.check_not_failed()
    }

    /// Whether statements that do not end the transaction can run in it.
    ///
    /// # Errors
    /// 25P02 when it has failed; 72000 at first when it was given up because of its snapshot.
    pub(super) fn check_not_failed(&self) -> Result<(), SqlError> {
        if let Some(block) = self.block.as_ref().filter(|block| block.failed) {
            if block.condemned.take() {
                return Err(too_old());
            }
            let message = "current transaction is aborted, commands ignored until end of transaction block";
            return Err(SqlError::new(SqlState::IN_FAILED_SQL_TRANSACTION, message));
        }
        Ok(())
    }

    /// Whether the session keeps old versions in memory.
    pub(super) fn holds_snapshot(&self) -> bool {
        self.block.as_ref().is_some_and(|block| block.transaction.is_some())
    }

    /// Gives the transaction up if its snapshot is too old, with its locks: what its client does
    /// next fails with 72000.
    pub(super) fn give_up_condemned(&mut self) {
        if !self.holds_snapshot() || !self.shared.old_snapshots.condemns(self.state.place) {
            return;
        }
        if let Some(block) = &mut self.block {
            block.condemned.set(!block.failed);
            block.failed = true;
            // None of them can want it back.
            block.savepoints.clear();
            block.exports.take();
            block.transaction = None;
            block.token.take();
        }
        self.settle(false);
    }

    /// The transaction that a statement runs in; begun for it alone if none exists.
    ///
    /// # Errors
    /// 25P02 when it has failed; XX001 on a standby whose state is in doubt; what
    /// waiting for a read view says.
    pub(super) fn block_for_statement(&mut self) -> Result<(), SqlError> {
        self.block_without_snapshot()?;
        self.shared.check_proof()?;
        let block = self.block.as_ref().expect("just begun");
        if block.transaction.is_none() {
            self.wait_to_begin()?;
            self.wait_for_view()?;
            let block = self.block.as_ref().expect("just begun");
            let transaction = match block.read_only {
                true => self.worker.begin_reading(settings::engine_isolation(block.isolation)),
                false => self.worker.begin(settings::engine_isolation(block.isolation)),
            };
            let recorder = self.recorder(&transaction);
            let block = self.block.as_mut().expect("just begun");
            (block.recorder, block.transaction) = (recorder, Some(transaction));
        } else if block.is_read_committed()
            && let Some(transaction) = &block.transaction
        {
            transaction.refresh();
        }
        self.block.as_mut().expect("just begun").used = true;
        self.refresh_schema()
    }

    /// SET TRANSACTION SNAPSHOT: the transaction sees what another one sees that has exported this
    /// snapshot.
    ///
    /// # Errors
    /// 25001 when the transaction has a snapshot already, 0A000 when its level does not go with
    /// that snapshot, 22023 when there is no such snapshot.
    pub(super) fn import_snapshot(&mut self, name: &str) -> Result<(), SqlError> {
        let refused = |state, message: &str| Err(SqlError::new(state, message.to_owned()));
        let Some(block) = self.block.as_mut().filter(|block| block.used || !block.is_read_committed()) else {
            let message = "a snapshot-importing transaction must have isolation level SERIALIZABLE or REPEATABLE READ";
            return refused(SqlState::FEATURE_NOT_SUPPORTED, message);
        };
        if block.used || block.transaction.is_some() {
            let message = "SET TRANSACTION SNAPSHOT must be called before any query";
            return refused(SqlState::ACTIVE_SQL_TRANSACTION, message);
        }
        let serializable = block.isolation == "serializable";
        let (worker, isolation, read_only) =
            (self.worker, settings::engine_isolation(block.isolation), block.read_only);
        let imported = self.shared.exported.import(name, |exported| {
            if serializable && !exported.serializable {
                let message = "a serializable transaction cannot import a snapshot from a non-serializable transaction";
                return refused(SqlState::FEATURE_NOT_SUPPORTED, message).map(|()| None);
            }
            if serializable && exported.read_only && !read_only {
                let message = "a non-read-only serializable transaction cannot import a snapshot from a read-only \
                               transaction";
                return refused(SqlState::FEATURE_NOT_SUPPORTED, message).map(|()| None);
            }
            Ok(Some(worker.begin_at(isolation, read_only, exported.lsn)))
        });
        let Some(imported) = imported else {
            let message = format!("invalid snapshot identifier: \"{name}\"");
            return refused(SqlState::INVALID_PARAMETER_VALUE, &message);
        };
        block.transaction = imported?;
        block.used = true;
        self.refresh_schema()
    }

    /// Makes the catalog that the session knows the one that its transaction sees.
    pub(super) fn refresh_schema(&mut self) -> Result<(), SqlError> {
        let Some(transaction) = self.block.as_ref().and_then(|block| block.transaction.as_ref()) else { return Ok(()) };
        if !self.shared.catalog.is_current(transaction, &self.state.schema)? {
            self.state.schema = self.shared.catalog.read(transaction, self.state.schema.database)?;
        }
        Ok(())
    }

    /// Waits until what is read here has what the session asks for. A primary may not have it
    /// either: it may have stood still while another one came.
    fn wait_for_view(&self) -> Result<(), SqlError> {
        let settings = &self.state.settings;
        if !settings.ready.waits_for_view {
            return Ok(());
        }
        let wanted = settings.get("freshet.read_after").unwrap_or_default();
        if !wanted.is_empty() {
            let lsn: u64 = wanted.parse().map_err(|_| {
                let message = format!("invalid value for parameter \"freshet.read_after\": \"{wanted}\"");
                SqlError::new(SqlState::INVALID_PARAMETER_VALUE, message)
            })?;
            let limit = settings.limit("freshet.read_after_timeout").unwrap_or(Duration::from_secs(10));
            self.shared.wait_visible(Lsn(lsn), Instant::now() + limit, &|| self.check())?;
        }
        if let Some(limit) = settings.limit("freshet.max_staleness") {
            self.shared.wait_fresh(limit, &|| self.check())?;
        }
        Ok(())
    }

    /// Fails if the transaction was given up and its client has not heard of it: that is its end.
    ///
    /// # Errors
    /// 72000.
    fn check_not_given_up(&mut self, out: &mut Out) -> Result<(), SqlError> {
        self.note_view();
        if self.block.as_ref().is_some_and(|block| block.condemned.take()) {
            self.roll_back(out);
            return Err(too_old());
        }
        Ok(())
    }

    /// The end of a statement: if the transaction is its own, that ends with it. Otherwise a
    /// primary still has to be one when the statement's rows are there (`cluster/src/lease.rs`).
    ///
    /// # Errors
    /// As for [`Session::commit`].
    pub(super) fn end_of_statement(&mut self, out: &mut Out) -> Result<(), SqlError> {
        match &self.block {
            Some(block) if !block.explicit => self.commit(out).map(drop),
            Some(block) if !block.failed && block.transaction.is_some() => {
                let (nothing, level) = (Ticket { lsn: None, until: Lsn::ZERO }, self.state.settings.ready.level);
                self.shared.wait_for_commit(nothing, level, &|| self.check())
            }
            _ => Ok(()),
        }
    }

    /// Ends the transaction: commits, and waits until that holds; rolls back if it has failed.
    /// Returns whether it was committed.
    ///
    /// # Errors
    /// 40001, 40003 when nobody knows whether it was committed, 72000 when it was given up, and
    /// what the engine says.
    pub(super) fn commit(&mut self, out: &mut Out) -> Result<bool, SqlError> {
        self.check_not_given_up(out)?;
        if self.block.as_ref().is_some_and(|block| !block.failed && !block.deferred.is_empty())
            && let Err(error) = self.check_deferred(true)
        {
            // While there is a transaction that has seen what the error tells of.
            let error = self.when_kept(error);
            return Err(self.rolled_back_by(error, out));
        }
        let is_sound = self.block.as_ref().is_some_and(|block| !block.failed);
        let notifies = match if is_sound { self.carry() } else { Ok(false) } {
            Ok(notifies) => notifies,
            Err(error) => return Err(self.rolled_back_by(error, out)),
        };
        let Some(mut block) = self.block.take() else { return Ok(true) };
        block.exports.take();
        if block.failed {
            drop(block);
            self.ended(false, out);
            return Ok(false);
        }
        // What was set within the transaction counts for it.
        let level = self.state.settings.ready.level;
        if let Some(transaction) = &block.transaction
            && transaction.has_changes()
            && let Err(cause) = self.shared.wait_for_room(&|| self.check())
        {
            self.block = Some(block);
            return Err(self.rolled_back_by(cause, out));
        }
        block.record_inputs(self.shared.started());
        let is_shown = level == Level::Applied && block.transaction.as_ref().is_some_and(Transaction::has_changes);
        let _wanted = is_shown.then(|| self.shared.node.want_visible());
        let ticket = match block.transaction.map(Transaction::commit) {
            None => None,
            Some(Ok(ticket)) => Some(ticket),
            Some(Err(cause)) => {
                let error = commit_error(cause);
                self.tally.fails_by(Cause::of(error.state.code()));
                self.ended(false, out);
                return Err(error);
            }
        };
        if let Some(ticket) = ticket {
            out.flush_owed();
            let waited = self.shared.wait_for_commit(ticket, level, &|| self.check());
            if waited.is_err() {
                self.ended(true, out);
            }
            OpenToken::waited(block.token.get(), waited)?;
            if notifies {
                self.shared.notifications.deliver();
            }
            if let Some(lsn) = ticket.lsn {
                if is_shown {
                    self.wait_until_shown(ticket.until, out)?;
                }
                self.note_commit(lsn, ticket.until);
                if self.state.settings.ready.commit_lsns {
                    out.parameter_status("freshet.last_commit", &lsn.0.to_string());
                }
            }
        }
        self.ended(true, out);
        Ok(true)
    }

    /// Waits until a commit that holds is visible on standbys. A wait that is canceled leaves the
    /// client with a warning, as in PostgreSQL: nothing is unknown of the commit but that.
    ///
    /// # Errors
    /// 57P01.
    #[cold]
    fn wait_until_shown(&mut self, until: Lsn, out: &mut Out) -> Result<(), SqlError> {
        match self.shared.wait_until_shown(until, &|| self.check()) {
            Err(error) if error.state == SqlState::ADMIN_SHUTDOWN => {
                self.ended(true, out);
                Err(error)
            }
            Err(error) => {
                let message = format!("canceling wait for standbys to show the transaction: {}", error.message);
                let detail = "The transaction is committed, but readers of standbys may not see it yet.";
                let report = SqlError::new(SqlState::new("01000"), message).with_detail(detail);
                self.state.send_notice(out, &super::wire::warning(report));
                Ok(())
            }
            Ok(()) => Ok(()),
        }
    }

    /// An error that tells what is in a table is told when that is kept, like any other answer
    /// (invariant 1): a client that is told that its key is taken would else believe it to be there
    /// for good. Blocks as a commit does; if that is ended, what ended it is the error.
    pub(super) fn when_kept(&self, error: SqlError) -> SqlError {
        let transaction = self.block.as_ref().and_then(|block| block.transaction.as_ref());
        let Some(transaction) = transaction.filter(|_| error.state.class() == "23") else { return error };
        let waited = self.shared.wait_for_commit(transaction.seen(), self.state.settings.ready.level, &|| self.check());
        waited.err().unwrap_or(error)
    }

    /// Rolls the transaction back.
    pub(super) fn roll_back(&mut self, out: &mut Out) {
        self.note_view();
        if self.block.take().is_some() {
            self.ended(false, out);
        }
    }

    fn ended(&mut self, committed: bool, out: &mut Out) {
        self.count_end(committed);
        self.held_up.committed |= committed;
        self.end_portals(committed);
        self.settle(committed);
        self.state.end_transaction(committed);
        out.speak(self.state.settings.ready.encoding);
    }

    /// The transaction has ended: what it has made outside of itself and is needed no more goes,
    /// and its locks are released.
    fn settle(&mut self, committed: bool) {
        if !self.effects.is_empty() {
            let Shared { catalog, sequences, locks, .. } = &*self.shared;
            if let Err(cause) = self.effects.settle(self.worker, catalog, sequences, locks) {
                // It is found again when the node starts.
                tracing::warn!(%cause, "what a statement has left could not be removed; the next start does that");
            }
        }
        self.locks.release();
        self.state.advisory.end_transaction();
        self.state.channels.ended(committed);
    }

    /// A statement has failed. Rows that it holds are released, unless a savepoint may want the
    /// transaction back.
    pub(super) fn fail(&mut self) {
        self.note_view();
        // What its functions wanted to have set, or said, is void.
        self.state.wanted.take();
        self.state.warnings.take();
        match &mut self.block {
            Some(block) if block.explicit => {
                block.failed = true;
                let savepoints = block.savepoints.len();
                if savepoints == 0 {
                    block.exports.take();
                    block.transaction = None;
                    block.token.take();
                    self.settle(false);
                }
                // What was set since the last savepoint is void at once.
                self.state.roll_back_to(savepoints);
            }
            _ => {
                // One that its own commit has ended is counted. What is not understood is a
                // transaction to PostgreSQL, though it has none here.
                if self.block.take().is_some() || self.tally.none_has_ended() {
                    self.count_end(false);
                }
                self.tally.forgive();
                self.end_portals(false);
                self.settle(false);
                self.state.end_transaction(false);
            }
        }
    }

    pub(super) fn need_block(&self, what: &str) -> Result<(), SqlError> {
        if self.block.as_ref().is_some_and(|block| block.explicit) {
            return Ok(());
        }
        let message = format!("{what} can only be used in transaction blocks");
        Err(SqlError::new(SqlState::NO_ACTIVE_SQL_TRANSACTION, message))
    }

    /// Fails in a transaction that must not write.
    ///
    /// # Errors
    /// 25006.
    pub(super) fn may_write(&self, what: &str) -> Result<(), SqlError> {
        let read_only = self.block.as_ref().is_some_and(|block| block.read_only);
        if !read_only && !self.shared.is_standby() {
            return Ok(());
        }
        let message = format!("cannot execute {what} in a read-only transaction");
        Err(SqlError::new(SqlState::READ_ONLY_SQL_TRANSACTION, message))
    }

    /// How it stands.
    pub(super) fn transaction_status(&self) -> TransactionStatus {
        match &self.block {
            Some(block) if block.explicit && block.failed => TransactionStatus::Failed,
            Some(block) if block.explicit => TransactionStatus::Open,
            _ => TransactionStatus::Idle,
        }
    }
}
