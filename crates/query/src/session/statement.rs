//! A statement is run.

use std::sync::Arc;

use freshet_postgres::{Client, Format};
use freshet_sql::{SqlError, SqlState, Value, types::Timestamp};

use super::{
    Session,
    prepare::{Plan, Planned, Prepared},
    view::View,
    wire::{Wire, WireSink},
};
use crate::{
    execute::{Run, Sink, modify::Collected},
    expression::{Environment, Source},
    locks::{self, Patience},
};

/// What a statement has done, as its tag says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tag(pub String);

/// Where a statement's rows go.
pub(super) enum Rows<'r> {
    /// To the client.
    Client(&'r [Format]),
    /// Kept.
    Kept(&'r mut Collected),
}

impl Session<'_> {
    /// Runs a plan in the transaction that is open.
    ///
    /// # Errors
    /// What goes wrong.
    pub(super) fn run(
        &mut self,
        prepared: &Prepared,
        planned: &Arc<Planned>,
        parameters: &[Value],
        rows: Rows<'_>,
        client: &mut Client<'_>,
    ) -> Result<Tag, SqlError> {
        match &planned.plan {
            Plan::Insert(_) | Plan::InsertGeneral(..) => self.may_write("INSERT")?,
            Plan::Update(_) => self.may_write("UPDATE")?,
            Plan::Delete(_) => self.may_write("DELETE")?,
            Plan::Select(plan) if plan.lock.is_some() => self.may_write("SELECT FOR UPDATE")?,
            Plan::Utility => return self.utility(prepared, rows, client),
            _ => {}
        }
        let deadline = self.statement_deadline();
        self.state.deadline = deadline;
        self.state.read_only = self.block.as_ref().is_some_and(|block| block.read_only);
        let flag = Arc::clone(&self.state.flag);
        let interrupted = move || flag.check(deadline);
        interrupted()?;
        let locked = self.lock_for(prepared, planned, &interrupted)?;
        let planned = locked.as_ref().unwrap_or(planned);
        let block = self.block.as_ref().expect("a statement has a transaction");
        let transaction = block.transaction.as_ref().expect("a statement has a transaction");
        let view = View::new(&self.shared, &self.state).with(&self.statements, &self.portals);
        let context = self.state.context(Some(&view), block.begun);
        let environment = Environment { parameters, context: &context, session: &view };
        let memory = self.state.settings.ready.query_memory;
        let mut run = Run::new(transaction, environment, &interrupted, &self.row_ids, memory);
        run.read_committed = block.is_read_committed();
        run.lock_timeout = self.state.settings.ready.lock_timeout;
        run.schema = Some(&self.state.schema);
        let columns = planned.columns.as_deref().unwrap_or_default();
        let mut wire;
        let sink: &mut dyn Sink = match rows {
            Rows::Client(formats) => {
                wire = WireSink { wire: Wire::new(client, columns, formats), context: &context };
                &mut wire
            }
            Rows::Kept(into) => into,
        };
        let tag = match &planned.plan {
            Plan::Select(plan) => format!("SELECT {}", run.select(plan, sink)?),
            Plan::Insert(plan) => format!("INSERT 0 {}", run.insert(plan, None, sink)?),
            Plan::Update(plan) => format!("UPDATE {}", run.update(plan, sink)?),
            Plan::Delete(plan) => format!("DELETE {}", run.delete(plan, sink)?),
            Plan::General(plan) => format!("SELECT {}", general(&run, &**plan, sink)?),
            Plan::InsertGeneral(plan, query, casts) => {
                let mut found = Collected::within(memory);
                general(&run, &**query, &mut found)?;
                for row in &mut found.0 {
                    let cast = casts.iter().map(|cast| cast.evaluate(&[Source::Values(row)], &run.environment));
                    *row = cast.collect::<Result<_, _>>()?;
                }
                format!("INSERT 0 {}", run.insert(plan, Some(found.0), sink)?)
            }
            Plan::Utility => unreachable!("it went another way"),
        };
        run.finish()?;
        self.apply_wanted(client)?;
        Ok(Tag(tag))
    }

    /// Takes the lock of a writer on the table that a plan changes. Returns another plan, if the table was changed since this one was made.
    ///
    /// # Errors
    /// 40001 when the table was changed since the transaction's snapshot; 40P01, 55P03, 57014.
    fn lock_for(
        &mut self,
        prepared: &Prepared,
        planned: &Arc<Planned>,
        interrupted: &dyn Fn() -> Result<(), SqlError>,
    ) -> Result<Option<Arc<Planned>>, SqlError> {
        let mut made: Option<Arc<Planned>> = None;
        loop {
            let now = made.as_ref().unwrap_or(planned);
            let mut outdated = false;
            for table in self.state.schema.touched_with(now.plan.writes_to()) {
                let limit = self.state.settings.ready.lock_timeout;
                let deadline = limit.and_then(|limit| std::time::Instant::now().checked_add(limit));
                let patience = Patience { deadline, interrupted };
                let version = self.state.schema.version.number;
                outdated |= self.locks.write(table, version, patience)? == locks::Planned::Outdated;
            }
            if !outdated {
                return Ok(made);
            }
            let block = self.block.as_ref().expect("a statement has a transaction");
            let transaction = block.transaction.as_ref().expect("a statement has a transaction");
            if !block.is_read_committed() {
                let message = "could not serialize access due to concurrent change of a table's definition";
                return Err(SqlError::new(SqlState::SERIALIZATION_FAILURE, message));
            }
            transaction.refresh();
            self.refresh_schema()?;
            made = Some(self.plan(prepared)?);
        }
    }

    /// When the transaction began.
    pub(super) fn begun(&self) -> Timestamp {
        self.block.as_ref().map_or_else(Timestamp::now, |block| block.begun)
    }
}

/// Runs a general query.
pub(super) fn general(
    run: &Run<'_, '_>,
    plan: &dyn freshet_sql::general::GeneralPlan,
    sink: &mut dyn Sink,
) -> Result<u64, SqlError> {
    crate::relations::within(run, || {
        let with = freshet_sql::general::Run {
            parameters: run.environment.parameters,
            context: run.environment.context,
            memory: run.budget.all(),
            interrupted: run.interrupted,
        };
        let mut rows = plan.run(&with)?;
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
