//! General queries, over the tables of the transaction.

use std::collections::HashSet;

use freshet_engine::{Rid, RowLock};
use freshet_sql::{
    SqlError, SqlState, Value,
    explain::Step,
    general,
    locking::{RowMark, WhenLocked},
};

use super::{Run, Sink, modify::Collected, scan::Flow, write::Written};
use crate::{bind::general::GeneralQuery, relations, schema::TableInfo};

impl Run<'_, '_> {
    fn as_general(&self) -> general::Run<'_> {
        general::Run {
            parameters: self.environment.parameters,
            context: self.environment.context,
            memory: &self.memory,
            interrupted: self.interrupted,
        }
    }

    /// Runs a general query. Returns how many rows it has given.
    ///
    /// At READ COMMITTED, when a row that it locks was changed by another transaction in the
    /// meantime, it is run again over what there is now. So rows of a query that locks some are
    /// kept until it has run to its end.
    ///
    /// # Errors
    /// What goes wrong in the query, in reading, in the sink; 40001, 40P01, 55P03, 53200.
    pub fn general(&self, query: &GeneralQuery, sink: &mut dyn Sink) -> Result<u64, SqlError> {
        if query.0.locked().is_empty() {
            return self.general_once(query, &mut |row| sink.values(row));
        }
        let found = self.until_settled(|| {
            let mut found = Collected::within(&self.memory);
            self.general_once(query, &mut |row| found.values(row))?;
            Ok(found)
        })?;
        let mut count = 0;
        for row in &found.0 {
            count += 1;
            let (shown, records) = row.split_at(query.0.columns().len());
            let record = |id: &Value| id.as_i64().map(|id| Rid(id as u64));
            sink.records(&mut records.iter().filter_map(record))?;
            if sink.values(shown)?.is_break() {
                break;
            }
        }
        Ok(count)
    }

    /// Runs something that locks rows, until none of them has been changed since its snapshot.
    fn until_settled<T>(&self, run: impl Fn() -> Result<T, SqlError>) -> Result<T, SqlError> {
        loop {
            let done = run();
            if !self.outdated.take() {
                return done;
            }
            (self.interrupted)()?;
            self.transaction.refresh();
        }
    }

    /// Locks a row that a general query has found. Returns whether it stays in the query.
    ///
    /// # Errors
    /// 40001, 40P01, 55P03, 57014.
    pub fn lock_found(&self, info: &TableInfo, rid: Rid, mark: RowMark) -> Result<bool, SqlError> {
        match self.lock_row(info, rid, mark)? {
            Written::Done(()) => Ok(true),
            Written::Gone | Written::Held => Ok(false),
            Written::Changed => {
                self.outdated.set(true);
                let message = "could not serialize access due to concurrent update";
                Err(SqlError::new(SqlState::SERIALIZATION_FAILURE, message))
            }
        }
    }

    fn general_once(&self, query: &GeneralQuery, take: &mut dyn FnMut(&[Value]) -> Flow) -> Result<u64, SqlError> {
        relations::within(self, || {
            let with = self.as_general();
            let mut rows = query.0.run(&with)?;
            let (mut batch, mut count) = (Vec::new(), 0);
            loop {
                batch.clear();
                rows.next(&mut batch)?;
                if batch.is_empty() {
                    return Ok(count);
                }
                for row in &batch {
                    count += 1;
                    if take(row)?.is_break() {
                        return Ok(count);
                    }
                }
            }
        })
    }

    /// How a general query is run; with `analyze` it is run.
    ///
    /// # Errors
    /// When it cannot be run.
    pub fn explain_general(&self, query: &GeneralQuery, analyze: bool) -> Result<Step, SqlError> {
        self.until_settled(|| relations::within(self, || query.0.explain(&self.as_general(), analyze)))
    }

    /// The rows that are to be changed as a general query finds them, and what it gives besides,
    /// the record id included. They are locked: nobody else changes them before this transaction
    /// ends. Of a row that is found several times, one finding counts.
    ///
    /// At READ COMMITTED, when one of them was changed by another transaction in the meantime, the
    /// query is run again over what there is now; so what is found belongs together.
    ///
    /// # Errors
    /// What goes wrong in the query and in reading; 40001, 40P01, 55P03, 53200.
    pub(super) fn found(
        &self,
        info: &TableInfo,
        query: &GeneralQuery,
        lock: RowLock,
    ) -> Result<Vec<(Rid, Vec<Value>)>, SqlError> {
        loop {
            let mut collected = Collected::within(&self.memory);
            self.general(query, &mut collected)?;
            let (mut seen, mut found, mut again) = (HashSet::new(), Vec::new(), false);
            for row in collected.0 {
                self.step()?;
                let rid = row.first().and_then(Value::as_i64);
                let rid = Rid(rid.ok_or_else(|| SqlError::internal("a row without a record id"))? as u64);
                if !seen.insert(rid) {
                    continue;
                }
                match self.lock_row(info, rid, RowMark { lock, when: WhenLocked::Wait })? {
                    Written::Done(()) => {
                        self.kept.take_values(&row)?;
                        found.push((rid, row));
                    }
                    Written::Changed => again = true,
                    Written::Gone | Written::Held => {}
                }
            }
            if !again {
                return Ok(found);
            }
            self.transaction.refresh();
        }
    }
}
