//! General queries, over the tables of the transaction.

use std::{collections::HashSet, ops::ControlFlow};

use freshet_engine::{Rid, RowLock};
use freshet_sql::{SqlError, Value, explain::Step, general};

use super::{Run, Sink, modify::Collected, select::Window, write::Written};
use crate::{
    bind::{
        general::GeneralQuery,
        locked::LockedPlan,
        select::{Output, RowMark, WhenLocked},
    },
    expression::{Environment, Source},
    relations,
    schema::TableInfo,
};

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
    /// # Errors
    /// What goes wrong in the query, in reading, in the sink.
    pub fn general(&self, query: &GeneralQuery, sink: &mut dyn Sink) -> Result<u64, SqlError> {
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
                    if sink.values(row)?.is_break() {
                        return Ok(count);
                    }
                }
            }
        })
    }

    /// Runs a general query that locks rows. Returns how many rows it has given.
    ///
    /// At READ COMMITTED, when a row that is to be locked was changed by another transaction
    /// meanwhile, the query is run again over what there is now.
    ///
    /// # Errors
    /// What goes wrong in the query, in reading, in the sink; 40001, 40P01, 55P03, 53200.
    pub fn locked_general(&self, plan: &LockedPlan, sink: &mut dyn Sink) -> Result<u64, SqlError> {
        let limit = self.count(plan.limit.as_ref(), "LIMIT")?.unwrap_or(u64::MAX);
        let skip = self.count(plan.offset.as_ref(), "OFFSET")?.unwrap_or(0);
        loop {
            let mut locking = Locking {
                run: self,
                plan,
                window: Window { skip, left: limit, shown: 0 },
                kept: Collected::within(&self.memory),
                again: false,
            };
            if limit > 0 {
                self.general(&plan.query, &mut locking)?;
            }
            if !locking.again {
                for row in &locking.kept.0 {
                    if sink.values(row)?.is_break() {
                        break;
                    }
                }
                return Ok(locking.kept.0.len() as u64);
            }
            (self.interrupted)()?;
            self.transaction.refresh();
        }
    }

    /// How a general query is run; with `analyze` it is run.
    ///
    /// # Errors
    /// When it cannot be run.
    pub fn explain_general(&self, query: &GeneralQuery, analyze: bool) -> Result<Step, SqlError> {
        relations::within(self, || query.0.explain(&self.as_general(), analyze))
    }

    /// The rows that are to be changed as a general query finds them, and what it gives besides, the record id included. They are locked: nobody
    /// else changes them before this transaction ends. Of a row that is found several times, one finding counts.
    ///
    /// At READ COMMITTED, when one of them was changed by another transaction meanwhile, the query is run again over what there is now; so what is
    /// found belongs together.
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

/// Locks the rows that a query finds, and keeps those that are shown.
struct Locking<'r, 'a, 'w> {
    run: &'r Run<'a, 'w>,
    plan: &'r LockedPlan,
    window: Window,
    kept: Collected,
    /// Whether a row was changed by another transaction.
    again: bool,
}

impl Sink for Locking<'_, '_, '_> {
    fn row(&mut self, _: &[Output], _: &[Source<'_>], _: &Environment<'_>) -> Result<ControlFlow<()>, SqlError> {
        Err(SqlError::internal("a general query gives values"))
    }

    fn values(&mut self, row: &[Value]) -> Result<ControlFlow<()>, SqlError> {
        let (shown, rids) = row.split_at(self.plan.shown.min(row.len()));
        for ((info, mark), rid) in self.plan.marks.iter().zip(rids) {
            let rid = rid.as_i64().ok_or_else(|| SqlError::internal("a row without a record id"))?;
            match self.run.lock_row(info, Rid(rid as u64), *mark)? {
                Written::Done(()) => {}
                Written::Changed => {
                    self.again = true;
                    return Ok(ControlFlow::Break(()));
                }
                Written::Gone | Written::Held => return Ok(ControlFlow::Continue(())),
            }
        }
        self.window.pass(|| self.kept.values(shown))
    }
}
