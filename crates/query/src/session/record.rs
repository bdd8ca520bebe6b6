//! What a session notes of its transaction, for nodes that execute it again: see
//! [`crate::inputs`].

use std::sync::Arc;

use freshet_engine::{NotRecorded, Transaction};
use freshet_sql::{
    Value,
    types::{EvalContext, Timestamp},
};

use super::{
    Block, Session,
    prepare::{Plan, Planned, Prepared},
};
use crate::{
    bind::modify::{DeletePlan, Targets, UpdatePlan},
    inputs::{Recorder, Statement, surroundings::Surroundings},
    schema::{Oid, SchemaVersion},
    system::SystemView as _,
};

/// What statements depend on of the session, encoded, and for which generation of its settings,
/// which role and which catalog that holds.
pub(super) type Around = Option<((u64, Oid, SchemaVersion), Arc<[u8]>)>;

/// When things began that a statement has asked for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Asked {
    transaction: bool,
    statement: bool,
}

impl Asked {
    /// What was asked of this.
    pub(super) fn of(context: &EvalContext<'_>) -> Self {
        Self { transaction: context.transaction_start.was_asked(), statement: context.statement_start.was_asked() }
    }
}

/// Whether what a statement writes depends on more than can be recorded.
fn is_undetermined(plan: &Plan) -> bool {
    let current = matches!(
        plan,
        Plan::Update(UpdatePlan { targets: Targets::Current(_), .. })
            | Plan::Delete(DeletePlan { targets: Targets::Current(_), .. })
    );
    current || plan.general().is_some()
}

impl Session<'_> {
    /// The recorder of a transaction that begins, if it is to be recorded.
    pub(super) fn recorder(&self, transaction: &Transaction<'_>) -> Option<Box<Recorder>> {
        transaction.records_inputs().then(|| Box::new(Recorder::new(self.state.memory.reserve())))
    }

    /// A statement begins. Returns whether it is recorded once it has written.
    pub(super) fn begin_recording(&mut self, plan: &Plan) -> bool {
        let Some(Block { recorder: Some(recorder), transaction: Some(transaction), .. }) = &mut self.block else {
            return false;
        };
        let writes = matches!(plan, Plan::Insert(_) | Plan::Update(_) | Plan::Delete(_));
        recorder.begin(transaction, writes, self.row_ids.position())
    }

    /// A statement that is recorded has written.
    pub(super) fn record(&mut self, prepared: &Prepared, planned: &Planned, parameters: &[Value], asked: Asked) {
        let around = self.surroundings();
        let (started, server) = (self.state.statement_start, self.shared.started());
        let Some(Block { recorder: Some(recorder), transaction: Some(transaction), begun, .. }) = &mut self.block
        else {
            return;
        };
        let ready = &self.state.settings.ready;
        let is_alike = prepared.is_read_with(ready) && planned.bound.is_of(ready);
        let source = prepared.source().filter(|_| is_alike && !is_undetermined(&planned.plan));
        let Some(source) = source else {
            transaction.keep_records(NotRecorded::Undetermined);
            return;
        };
        let statement = Statement {
            surroundings: &around,
            source,
            types: &prepared.given,
            parameters,
            begun: asked.transaction || asked.statement,
            row_ids: self.row_ids.position(),
            started: asked.statement.then(|| started.0.saturating_sub(begun.0)),
            bound: planned.bound.at.map(|at| at.0.saturating_sub(server.0)),
        };
        recorder.statement(transaction, &self.shared.words, &statement);
    }

    /// A statement has written nothing, or is not recorded.
    pub(super) fn record_nothing(&mut self) {
        if let Some(Block { recorder: Some(recorder), transaction: Some(transaction), .. }) = &self.block {
            recorder.nothing(transaction);
        }
    }

    /// The session does something in its transaction that is not recorded.
    pub(super) fn keep_records(&self, why: NotRecorded) {
        if let Some(transaction) = self.block.as_ref().and_then(|block| block.transaction.as_ref()) {
            transaction.keep_records(why);
        }
    }

    /// What statements depend on of the session now.
    fn surroundings(&mut self) -> Arc<[u8]> {
        let state = &self.state;
        let now = (state.settings.generation, state.role, state.schema.version);
        match &self.around {
            Some((then, around)) if *then == now => Arc::clone(around),
            _ => {
                let server = (self.shared.row_ids.run(), self.shared.started());
                let found = Surroundings::of(state.schema.database, state.role, state.path(), &state.settings, server);
                let around: Arc<[u8]> = found.encode().into();
                self.around = Some((now, Arc::clone(&around)));
                around
            }
        }
    }
}

impl Block<'_> {
    /// The transaction is about to commit: records its inputs. The server has started then.
    pub(super) fn record_inputs(&mut self, server: Timestamp) {
        let is_read_committed = self.is_read_committed();
        if let (Some(recorder), Some(transaction)) = (self.recorder.take(), &self.transaction) {
            recorder.finish(transaction, self.begun.0.saturating_sub(server.0), is_read_committed);
        }
    }
}
