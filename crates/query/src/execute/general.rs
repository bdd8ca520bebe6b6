//! General queries, over the tables of the transaction.

use std::collections::HashSet;

use freshet_engine::{Rid, RowLock};
use freshet_sql::{SqlError, Value, general};

use super::{Run, Sink, modify::Collected, write::Written};
use crate::{
    bind::{
        general::GeneralQuery,
        select::{RowMark, WhenLocked},
    },
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

    /// How a general query is run, a line for each step; with `analyze` it is run.
    ///
    /// # Errors
    /// When it cannot be run.
    pub fn explain_general(&self, query: &GeneralQuery, analyze: bool) -> Result<Vec<String>, SqlError> {
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
