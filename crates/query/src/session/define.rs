//! Statements that change the catalog.

use freshet_postgres::Client;
use freshet_sql::SqlError;
use sqlparser::ast::Statement;

use super::{Session, statement::Tag, view::View};
use crate::{
    bind::{Binder, not_supported},
    execute::Run,
    expression::Environment,
};

impl Session<'_> {
    /// Something to bind and evaluate expressions with, outside of a statement's plan.
    pub(super) fn with_binder<T>(
        &self,
        what: impl FnOnce(&Binder<'_>, &Environment<'_>) -> Result<T, SqlError>,
    ) -> Result<T, SqlError> {
        let view = View::new(&self.shared, &self.state);
        let context = self.state.context(Some(&view), self.begun());
        let path = self.state.path();
        let binder = Binder {
            schema: &self.state.schema,
            path: &path,
            role: self.state.role,
            context: &context,
            parameters: Vec::new().into(),
        };
        what(&binder, &Environment { parameters: &[], context: &context, session: &view })
    }

    pub(super) fn explain_general(
        &self,
        plan: &dyn freshet_sql::general::GeneralPlan,
        analyze: bool,
    ) -> Result<Vec<String>, SqlError> {
        let view = View::new(&self.shared, &self.state);
        let context = self.state.context(Some(&view), self.begun());
        let flag = &self.state.flag;
        let deadline = self.statement_deadline();
        let interrupted = || flag.check(deadline);
        let transaction = self.block.as_ref().and_then(|block| block.transaction.as_ref());
        let transaction = transaction.ok_or_else(|| SqlError::internal("a statement without a transaction"))?;
        let environment = Environment { parameters: &[], context: &context, session: &view };
        let memory = self.state.settings.memory("freshet.query_memory");
        let run = Run::new(transaction, environment, &interrupted, &self.row_ids, memory);
        crate::relations::within(&run, || {
            let with =
                freshet_sql::general::Run { parameters: &[], context: &context, memory, interrupted: &interrupted };
            plan.explain(&with, analyze)
        })
    }

    pub(super) fn define(&mut self, statement: &Statement, _: &mut Client<'_>) -> Result<Tag, SqlError> {
        Err(not_supported(statement.to_string().split(' ').take(2).collect::<Vec<_>>().join(" ")))
    }
}
