//! A statement is run.

use std::sync::Arc;

use freshet_engine::Transaction;
use freshet_postgres::{Client, Format};
use freshet_sql::{SqlError, SqlState, Value, memory::Pool, types::Timestamp, work};

use super::{
    Block, Session,
    prepare::{Plan, Planned, Prepared},
    record::Asked,
    view::View,
    wire::{Wire, WireSink},
};
use crate::{
    bind::first::First,
    execute::{Run, Sink, measure::Probe},
    expression::Environment,
    inputs::captured::CapturedSession,
    locks::{self, LockMode, Patience},
    schema::Oid,
};

/// What a statement has done, as its tag says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tag(pub String);

/// Where a statement's rows go.
pub(super) enum Rows<'r> {
    /// To the client.
    Client(&'r [Format]),
    /// Kept.
    Kept(&'r mut dyn Sink),
}

impl Session<'_> {
    /// Runs a plan in the transaction that is open.
    ///
    /// # Errors
    /// What goes wrong.
    #[inline]
    pub(super) fn run(
        &mut self,
        prepared: &Prepared,
        planned: &Arc<Planned>,
        parameters: &[Value],
        rows: Rows<'_>,
        client: &mut Client<'_>,
    ) -> Result<Tag, SqlError> {
        self.run_with(prepared, planned, parameters, rows, client, ())
    }

    /// The same, where somebody is told what its steps take.
    ///
    /// # Errors
    /// What goes wrong.
    pub(super) fn run_with<P: Probe>(
        &mut self,
        prepared: &Prepared,
        planned: &Arc<Planned>,
        parameters: &[Value],
        rows: Rows<'_>,
        client: &mut Client<'_>,
        probe: P,
    ) -> Result<Tag, SqlError> {
        if let Some(block) = &self.block {
            (self.state.isolation, self.state.read_only, self.state.deferrable) = block.modes();
        }
        self.arm();
        self.count_kind(prepared, &planned.plan);
        if matches!(planned.plan, Plan::Utility) {
            let done = self.utility(prepared, planned, parameters, rows, client);
            return done.map(|tag| self.count_tag(tag));
        }
        self.may_run(planned)?;
        let interrupted = self.interruption();
        interrupted()?;
        let own = self.plan_for(prepared, planned, parameters);
        let planned = own.as_ref().unwrap_or(planned);
        let locked = self.lock_for(prepared, planned, &interrupted)?;
        let planned: &Planned = locked.as_ref().unwrap_or(planned);
        let columns = planned.columns.as_deref().unwrap_or_default();
        let records = self.begin_recording(&planned.plan);
        let session_memory = &self.state.memory;
        let (tag, asked) = self.with_run_probed(planned, &planned.firsts, parameters, probe, |run, planned| {
            let mut wire;
            let sink: &mut dyn Sink = match rows {
                Rows::Client(formats) => {
                    let context = run.environment.context;
                    wire = WireSink { wire: Wire::new(client, session_memory, columns, formats), context };
                    &mut wire
                }
                Rows::Kept(into) => into,
            };
            let (what, count) = match &planned.plan {
                Plan::Select(plan) => ("SELECT", run.select(plan, sink, probe)?),
                Plan::Insert(plan) => ("INSERT 0", run.insert(plan, sink, probe)?),
                Plan::Update(plan) => ("UPDATE", run.update(plan, sink, probe)?),
                Plan::Delete(plan) => ("DELETE", run.delete(plan, sink, probe)?),
                Plan::General(query) => ("SELECT", run.general(query, sink)?),
                Plan::Utility => unreachable!("it went another way"),
            };
            run.finish()?;
            let asked = (records && count > 0).then(|| Asked::of(run.environment.context));
            self.tally.gave(count);
            Ok((format!("{what} {count}"), asked))
        })?;
        match asked {
            Some(asked) => self.record(prepared, planned, parameters, asked),
            None => self.record_nothing(),
        }
        self.apply_wanted(client)?;
        Ok(Tag(tag))
    }

    /// Fails where a plan writes, and the transaction must not.
    ///
    /// # Errors
    /// 25006.
    fn may_run(&self, planned: &Planned) -> Result<(), SqlError> {
        match &planned.plan {
            Plan::Insert(_) => self.may_write("INSERT"),
            Plan::Update(_) => self.may_write("UPDATE"),
            Plan::Delete(_) => self.may_write("DELETE"),
            Plan::Select(_) | Plan::General(_) if planned.locks() => self.may_write("SELECT FOR UPDATE"),
            Plan::Select(_) | Plan::General(_) | Plan::Utility => Ok(()),
        }
    }

    /// What ends the statement that runs now: its timeout, or a request to cancel it.
    pub(super) fn interruption(&self) -> impl Fn() -> Result<(), SqlError> + use<> {
        let flag = Arc::clone(&self.state.flag);
        move || flag.check()
    }

    /// Runs something in the transaction that is open, after the subqueries that are to be run
    /// before.
    ///
    /// # Errors
    /// What goes wrong.
    pub(super) fn with_run<S, T>(
        &self,
        plan: &S,
        firsts: &[First],
        parameters: &[Value],
        what: impl for<'a> FnOnce(&Run<'a, '_>, &'a S) -> Result<T, SqlError>,
    ) -> Result<T, SqlError> {
        self.with_run_probed(plan, firsts, parameters, (), what)
    }

    fn with_run_probed<S, T, P: Probe>(
        &self,
        plan: &S,
        firsts: &[First],
        parameters: &[Value],
        probe: P,
        what: impl for<'a> FnOnce(&Run<'a, '_>, &'a S) -> Result<T, SqlError>,
    ) -> Result<T, SqlError> {
        let interrupted = self.interruption();
        let block = self.block.as_ref().ok_or_else(|| SqlError::internal("a statement without a transaction"))?;
        let transaction =
            block.transaction.as_ref().ok_or_else(|| SqlError::internal("a statement without a transaction"))?;
        let view =
            View::new(&self.shared, &self.state).with(&self.statements, &self.portals).inside(block, &self.tally);
        let memory = self.state.statement_memory();
        let mut context = self.state.context_within(Some(&view), block.begun, &memory);
        let captured = block.recorder.as_ref().and_then(|recorder| recorder.captured());
        let session = captured.map(|captured| CapturedSession { captured, session: &view });
        if let Some(session) = &session {
            context.session = Some(session);
        }
        work::charged_to(&memory, || {
            let mut values = Vec::new();
            for (number, first) in firsts.iter().enumerate() {
                let environment =
                    Environment { parameters, firsts: &values, context: &context, session: &view, captured };
                let run = self.new_run(block, transaction, environment, &interrupted, &memory);
                let value = probe.first(number, |probe| run.first(first, probe));
                values.push(first.given(value)?);
            }
            let environment = Environment { parameters, firsts: &values, context: &context, session: &view, captured };
            what(&self.new_run(block, transaction, environment, &interrupted, &memory), plan)
        })
    }

    fn new_run<'a, 'w>(
        &'a self,
        block: &'a Block<'_>,
        transaction: &'a Transaction<'w>,
        environment: Environment<'a>,
        interrupted: &'a dyn Fn() -> Result<(), SqlError>,
        memory: &Arc<Pool>,
    ) -> Run<'a, 'w> {
        let ready = &self.state.settings.ready;
        let mut run = Run::new(transaction, environment, interrupted, &self.row_ids, Arc::clone(memory));
        run.read_committed = block.is_read_committed();
        run.lock_timeout = ready.lock_timeout;
        run.schema = Some(&self.state.schema);
        run.deferred = Some((&block.deferred, &self.state.memory));
        run.role = self.state.role;
        run.tally = Some(&self.tally);
        run
    }

    /// Takes the locks on the tables whose rows a plan changes or locks. Returns another plan, if
    /// the table was changed since this one was made.
    ///
    /// # Errors
    /// As for [`Session::lock_tables`] and [`Session::see_definitions`].
    pub(super) fn lock_for(
        &mut self,
        prepared: &Prepared,
        planned: &Arc<Planned>,
        interrupted: &dyn Fn() -> Result<(), SqlError>,
    ) -> Result<Option<Arc<Planned>>, SqlError> {
        let mut made: Option<Arc<Planned>> = None;
        loop {
            let plan = made.as_ref().unwrap_or(planned);
            if self.lock_tables(plan.writes_to(), plan.locks_rows_of(), interrupted)? {
                return Ok(made);
            }
            self.see_definitions()?;
            made = Some(self.plan(prepared)?);
        }
    }

    /// Takes the lock of a writer on a table and those that are written to with it, and that of one
    /// who locks rows on others. Says whether they are as the session knows them.
    ///
    /// # Errors
    /// 40P01, 55P03, 57014.
    pub(super) fn lock_tables(
        &self,
        written: Option<Oid>,
        locked: impl Iterator<Item = Oid>,
        interrupted: &dyn Fn() -> Result<(), SqlError>,
    ) -> Result<bool, SqlError> {
        let mut current = true;
        let (written, parents) = self.state.schema.touched_with(written);
        let written = written.into_iter().map(|table| (table, LockMode::RowExclusive));
        let locked = parents.into_iter().chain(locked).map(|table| (table, LockMode::RowShare));
        for (table, mode) in written.chain(locked) {
            let limit = self.state.settings.ready.lock_timeout;
            let deadline = limit.and_then(|limit| std::time::Instant::now().checked_add(limit));
            let patience = Patience { deadline, interrupted };
            let version = self.state.schema.version.number;
            current &= self.locks.weak(table, mode, version, patience)? == locks::Planned::Current;
        }
        Ok(current)
    }

    /// A table was changed since its statement was planned: what is planned from here on sees that.
    ///
    /// # Errors
    /// 40001 when that is later than the transaction's snapshot.
    pub(super) fn see_definitions(&mut self) -> Result<(), SqlError> {
        let block = self.block.as_ref().expect("a statement has a transaction");
        let transaction = block.transaction.as_ref().expect("a statement has a transaction");
        if !block.is_read_committed() {
            let message = "could not serialize access due to concurrent change of a table's definition";
            return Err(SqlError::new(SqlState::SERIALIZATION_FAILURE, message));
        }
        transaction.refresh();
        self.refresh_schema()
    }

    /// When the transaction began.
    pub(super) fn begun(&self) -> Timestamp {
        self.block.as_ref().map_or_else(Timestamp::now, |block| block.begun)
    }
}
