//! What a session counts of its transactions and statements.

use std::{sync::Arc, time::Duration};

use freshet_postgres::{Ending, Out, Report};
use freshet_sql::SqlError;

use super::{
    Session,
    parse::Parsed,
    prepare::{Plan, Prepared},
    statement::Tag,
};
use crate::{
    inputs::Fingerprint,
    statistics::{Cause, Kind},
};

impl Prepared {
    /// What it has in common with statements that differ in literals alone.
    fn fingerprint(&self) -> &Arc<Fingerprint> {
        let text = self.query.as_deref().unwrap_or(&self.sql);
        self.print.get_or_init(|| Arc::new(Fingerprint::of(text, self.rules)))
    }
}

/// How many rows a statement with this tag has given or changed.
fn rows_of(tag: &str) -> u64 {
    tag.rsplit(' ').next().and_then(|last| last.parse().ok()).unwrap_or(0)
}

impl Session<'_> {
    /// A statement runs.
    pub(super) fn count_query(&self, prepared: &Prepared) {
        self.tally.runs(prepared.fingerprint(), self.state.role);
        if self.state.settings.ready.logged.all() {
            self.log_statement(None);
        }
    }

    /// A statement that is neither a query nor a change of rows has this tag.
    pub(super) fn count_tag(&self, tag: Tag) -> Tag {
        self.tally.gave(rows_of(&tag.0));
        tag
    }

    /// A statement has ended that took this long, if one was running.
    pub(super) fn count_ran(&self, took: Option<Duration>) {
        let Some(took) = took else { return };
        self.tally.ran(took);
        if self.state.settings.ready.logged.after.is_some_and(|limit| took >= limit) {
            self.log_statement(Some(took));
        }
    }

    /// Writes the statement that others see to the log: its beginning, without passwords. The
    /// number of lines is limited where they are written.
    #[cold]
    fn log_statement(&self, took: Option<Duration>) {
        let (pid, role, database) = (self.state.pid, self.state.user.as_str(), &*self.state.database);
        let statement = &*self.info.statement();
        match took.map(|took| took.as_micros() as f64 / 1e3) {
            Some(duration_ms) => tracing::info!(pid, role, database, duration_ms, statement, "a statement took long"),
            None => tracing::info!(pid, role, database, statement, "a statement begins"),
        }
    }

    /// Counts the statement as one of its kind.
    pub(super) fn count_kind(&self, prepared: &Prepared, plan: &Plan) {
        let kind = match (plan, &prepared.statement) {
            (Plan::Select(_) | Plan::General(_), _) => Kind::Select,
            (Plan::Insert(_), _) => Kind::Insert,
            (Plan::Update(_), _) => Kind::Update,
            (Plan::Delete(_), _) => Kind::Delete,
            (Plan::Utility, Some(Parsed::Copy(_))) => Kind::Copy,
            (Plan::Utility, Some(Parsed::Define(_))) => Kind::Ddl,
            (Plan::Utility, _) => Kind::Other,
        };
        self.tally.counts().is_of(kind);
        if self.state.settings.ready.logged.logs(kind) {
            self.log_statement(None);
        }
    }

    /// What the client is told has failed.
    pub(super) fn count_failure(&mut self, why: &Report) {
        let cause = Cause::of(why.state().as_str());
        if cause == Cause::Deadlock {
            self.tally.counts().counters.deadlock();
        }
        self.tally.fails_by(cause);
        self.tally.ends(false);
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
