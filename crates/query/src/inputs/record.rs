//! Recording: what a session notes of its transaction while it runs.

use std::sync::Arc;

use freshet_base::varint;
use freshet_engine::{Lsn, NotRecorded, Transaction, record_as};
use freshet_sql::{Type, Value, memory::Reservation};

use super::{
    BEGUN, LONGEST, PROCEDURE, READ_COMMITTED,
    captured::{Captured, Taken},
    dictionary::Dictionary,
    recorded::{Recorded, Word},
    template::Divided,
};

/// What is recorded of a transaction.
#[derive(Debug)]
pub(crate) struct Recorder {
    captured: Captured,
    /// Whether the statement that runs is recorded.
    is_on: bool,
    /// Whether it has taken a newer snapshot than the last one that was recorded, and which.
    refreshed: bool,
    snapshot: Lsn,
    /// Where it has begun to give ids to rows.
    row_ids: (u64, u64),
    /// Why the transaction was known not to be recorded before that.
    kept_before: Option<NotRecorded>,
    /// How many of the snapshots that the transaction has noted are those of recorded statements.
    snapshots: usize,
    body: Vec<u8>,
    /// What the last statement depends on of its session, and the template of its text.
    surroundings: Option<Arc<[u8]>>,
    template: String,
    /// Whether a statement has asked when the transaction began.
    begun: bool,
    /// What the body takes of the session's memory.
    kept: Reservation,
}

/// A statement of a session that has written.
pub(crate) struct Statement<'s> {
    /// What it depends on of its session.
    pub(crate) surroundings: &'s Arc<[u8]>,
    /// Its text, divided into words and literals.
    pub(crate) source: &'s Divided,
    /// The types of parameters that the client has named.
    pub(crate) types: &'s [Option<Type>],
    pub(crate) parameters: &'s [Value],
    /// Where it has ended to give ids to rows.
    pub(crate) row_ids: (u64, u64),
    /// Whether it has asked when the transaction began.
    pub(crate) begun: bool,
    /// How long after the transaction it began, if it has asked for that.
    pub(crate) started: Option<i64>,
    /// How long after the server its plan was made, if a literal has asked for that.
    pub(crate) bound: Option<i64>,
}

impl Recorder {
    /// Of a transaction that begins.
    pub(crate) fn new(kept: Reservation) -> Self {
        Self {
            captured: Captured::default(),
            is_on: false,
            refreshed: false,
            snapshot: Lsn::ZERO,
            row_ids: (0, 0),
            kept_before: None,
            snapshots: 0,
            body: Vec::new(),
            surroundings: None,
            template: String::new(),
            begun: false,
            kept,
        }
    }

    /// Where the statement that runs captures values, if it is recorded.
    pub(crate) fn captured(&self) -> Option<&Captured> {
        self.is_on.then_some(&self.captured)
    }

    /// A statement begins that `writes`, or does not, and gives ids to rows from there on. Returns
    /// whether it is to be recorded, if it has written. Snapshots of statements that were not are
    /// forgotten.
    pub(crate) fn begin(&mut self, transaction: &Transaction<'_>, writes: bool, row_ids: (u64, u64)) -> bool {
        self.is_on = writes && transaction.records_inputs();
        self.kept_before = transaction.why_kept();
        if self.is_on {
            let noted = transaction.noted_snapshots();
            self.refreshed = self.snapshots > 0 && noted > self.snapshots;
            // Of what has come since, the last is this statement's.
            transaction.forget_snapshots(self.snapshots..noted.saturating_sub(1).max(self.snapshots));
            (self.snapshot, self.row_ids) = (transaction.snapshot(), row_ids);
            // What one that has failed has left.
            let _ = self.captured.take();
        }
        self.is_on
    }

    /// The statement that runs has written nothing: whatever it has met is of no account.
    pub(crate) fn nothing(&self, transaction: &Transaction<'_>) {
        transaction.forgive_others(self.kept_before);
    }

    /// The statement that runs has written.
    pub(crate) fn statement(&mut self, transaction: &Transaction<'_>, words: &Dictionary, statement: &Statement<'_>) {
        self.is_on = false;
        let before = self.body.len();
        let divided = statement.source;
        let Some(Taken { values: (captured, values), looks }) = self.captured.take() else {
            transaction.keep_records(NotRecorded::Bulk);
            return;
        };
        let is_same = self.surroundings.as_ref().is_some_and(|before| before == statement.surroundings);
        let is_alike = self.surroundings.is_some() && self.template == divided.template;
        let word = |word| words.number(word, self.snapshot).map_or(Word::Spelt(word), Word::Known);
        let recorded = Recorded {
            refreshed: self.refreshed,
            surroundings: (!is_same).then(|| word(statement.surroundings)),
            template: (!is_alike).then(|| word(divided.template.as_bytes())),
            literals: &divided.literals,
            types: statement.types,
            parameters: statement.parameters,
            row_ids: (statement.row_ids != self.row_ids).then_some(self.row_ids),
            started: statement.started,
            bound: statement.bound,
            looks: &looks,
            captured: (captured, &values),
        };
        recorded.put(&mut self.body);
        if !is_same {
            self.surroundings = Some(Arc::clone(statement.surroundings));
        }
        if !is_alike {
            self.template.clone_from(&divided.template);
        }
        self.begun |= statement.begun;
        self.snapshots = transaction.noted_snapshots();
        if self.body.len() > LONGEST || self.kept.take(self.body.len() - before).is_err() {
            transaction.keep_records(NotRecorded::Bulk);
        }
    }

    /// The transaction is about to commit. It has begun `begun` microseconds after the server.
    pub(crate) fn finish(self, transaction: &Transaction<'_>, begun: i64, is_read_committed: bool) {
        if self.body.is_empty() || !transaction.records_inputs() {
            return;
        }
        transaction.forget_snapshots(self.snapshots..transaction.noted_snapshots().max(self.snapshots));
        let mut inputs = Vec::with_capacity(1 + varint::LONGEST + self.body.len());
        inputs.push(if self.begun { BEGUN } else { 0 } | if is_read_committed { READ_COMMITTED } else { 0 });
        if self.begun {
            varint::put(&mut inputs, varint::zigzag(begun));
        }
        inputs.extend(self.body);
        record_as(transaction, PROCEDURE, &inputs);
    }
}
