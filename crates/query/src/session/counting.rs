//! What a session counts of its transactions and statements.

use freshet_postgres::{Ending, Out, Report};
use freshet_sql::SqlError;

use super::{
    Session,
    parse::Parsed,
    prepare::{Plan, Prepared},
};
use crate::statistics::{Cause, Kind};

impl Session<'_> {
    /// Counts the statement as one of its kind.
    pub(super) fn count_kind(&self, prepared: &Prepared, plan: &Plan) {
        self.tally.counts().is_of(match (plan, &prepared.statement) {
            (Plan::Select(_) | Plan::General(_), _) => Kind::Select,
            (Plan::Insert(_), _) => Kind::Insert,
            (Plan::Update(_), _) => Kind::Update,
            (Plan::Delete(_), _) => Kind::Delete,
            (Plan::Utility, Some(Parsed::Copy(_))) => Kind::Copy,
            (Plan::Utility, Some(Parsed::Define(_))) => Kind::Ddl,
            (Plan::Utility, _) => Kind::Other,
        });
    }

    /// What the client is told has failed.
    pub(super) fn count_failure(&mut self, why: &Report) {
        let cause = Cause::of(why.state().as_str());
        if cause == Cause::Deadlock {
            self.tally.counts().counters.deadlock();
        }
        self.tally.fails_by(cause);
    }

    /// The session ends, and a transaction that is open with it.
    pub(super) fn count_last(&mut self, how: Ending) {
        self.tally.counts().ends(how);
        if self.block.take().is_some() {
            if matches!(how, Ending::Killed | Ending::Fatal) {
                self.tally.fails_by(Cause::Cancelled);
            }
            self.count_end(false);
        }
    }

    /// Counts the end of a transaction.
    pub(super) fn count_end(&mut self, committed: bool) {
        self.tally.end_transaction(committed);
        if self.tally.has_given() {
            self.shared.forget_relations(self.state.schema.database);
        }
    }

    /// Rolls the transaction back because of this error, which is returned.
    pub(super) fn rolled_back_by(&mut self, error: SqlError, out: &mut Out) -> SqlError {
        self.tally.fails_by(Cause::of(error.state.code()));
        self.roll_back(out);
        error
    }
}
