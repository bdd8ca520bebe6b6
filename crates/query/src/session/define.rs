//! Statements that change the catalog.

use std::sync::Arc;

use freshet_base::panics;
use freshet_engine::NotRecorded;
use freshet_postgres::Client;
use freshet_sql::{SqlError, SqlState, explain::Step};
use sqlparser::ast::{Query, Statement};

use super::{
    Session,
    parse::{Parsed, parse},
    prepare::Prepared,
    statement::{Rows, Tag},
    transaction::Block,
    view::View,
};
use crate::{
    bind::{Binder, first::First, general::GeneralQuery},
    ddl::{Ddl, Definition, Effects, Outcome},
    error::unforeseen,
    execute::measure::Probe,
    expression::Environment,
    locks::LockMode,
    schema::{Oid, Schema},
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
        let binder = Binder::new(&self.state.schema, &path, self.state.role, &context);
        let environment =
            Environment { parameters: &[], firsts: &[], context: &context, session: &view, captured: None };
        what(&binder, &environment)
    }

    pub(super) fn explain_general(
        &self,
        query: &GeneralQuery,
        firsts: &[First],
        parameters: &[freshet_sql::Value],
        analyze: bool,
    ) -> Result<Step, SqlError> {
        self.with_run(query, firsts, parameters, |run, query| run.explain_general(query, analyze))
    }

    /// Runs a statement that defines.
    ///
    /// # Errors
    /// What goes wrong.
    pub(super) fn define(&mut self, definition: &Definition, client: &mut Client<'_>) -> Result<Tag, SqlError> {
        self.define_with(definition, client, ())
    }

    /// The same, where somebody is told what the query takes of whose rows a table is made.
    ///
    /// # Errors
    /// What goes wrong.
    pub(super) fn define_with<P: Probe>(
        &mut self,
        definition: &Definition,
        client: &mut Client<'_>,
        probe: P,
    ) -> Result<Tag, SqlError> {
        match definition {
            // It changes nothing; on a standby nobody may keep others from what replay does.
            Definition::Lock(lock) if lock.mode > LockMode::RowExclusive && self.shared.is_standby() => {
                let message = "cannot execute LOCK TABLE during recovery";
                return Err(SqlError::new(SqlState::READ_ONLY_SQL_TRANSACTION, message));
            }
            Definition::Lock(_) => self.need_block("LOCK TABLE")?,
            _ => {
                self.may_write("a statement that changes definitions")?;
                self.keep_records(NotRecorded::Definitions);
            }
        }
        self.before_definition(definition)?;
        let mut effects = std::mem::take(&mut self.effects);
        let mut notices = Vec::new();
        let defined = panics::contained("a statement", || self.defined(definition, &mut effects, &mut notices));
        // What it has begun is ended with the transaction, whatever has become of it.
        self.effects = effects;
        let defined = defined.unwrap_or_else(|caught| Err(unforeseen(caught)));
        for notice in notices {
            self.state.send_notice(client, &super::wire::notice(notice));
        }
        let (outcome, schema) = defined?;
        if let Some(block) = self.block.as_ref().filter(|block| !block.deferred.is_empty()) {
            block.deferred.refuse_changes(&self.state.schema, &schema, outcome.tag)?;
        }
        self.state.schema = schema;
        let Some((table, query)) = outcome.fill else { return Ok(Tag(outcome.tag.to_owned())) };
        let Tag(filled) = self.fill(table, &query, client, probe)?;
        Ok(Tag(filled))
    }

    fn defined(
        &self,
        definition: &Definition,
        effects: &mut Effects,
        notices: &mut Vec<SqlError>,
    ) -> Result<(Outcome, Arc<Schema>), SqlError> {
        if let Definition::CreateIndex(index) = definition
            && index.concurrently
            && self.block.as_ref().is_some_and(|block| block.explicit)
        {
            let message = "CREATE INDEX CONCURRENTLY cannot run inside a transaction block";
            return Err(SqlError::new(SqlState::ACTIVE_SQL_TRANSACTION, message));
        }
        let view = View::new(&self.shared, &self.state);
        let context = self.state.context(Some(&view), self.begun());
        let path = self.state.path();
        // Nothing is made in the system's schema.
        let path = &path[1..];
        let interrupted = || self.check();
        let transaction = self.block.as_ref().and_then(|block| block.transaction.as_ref());
        let transaction = transaction.ok_or_else(|| SqlError::internal("a statement without a transaction"))?;
        let columns_of = |query: &Query, schema: &Arc<Schema>| {
            let prepared = Prepared::new("", Some(Parsed::sql(Statement::Query(Box::new(query.clone())))), Vec::new());
            // The creator of a view needs no privilege on what it shows.
            let planned = self.would_be(&prepared, schema)?;
            let columns = planned.columns.iter().flatten().map(|column| (column.name.clone(), column.ty));
            Ok(columns.collect())
        };
        let mut ddl = Ddl {
            catalog: &self.shared.catalog,
            read_committed: self.block.as_ref().is_some_and(Block::is_read_committed),
            transaction,
            schema: Arc::clone(&self.state.schema),
            path,
            role: self.state.role,
            session_role: self.state.session_role,
            context: &context,
            session: &view,
            row_ids: &self.row_ids,
            locks: &self.locks,
            sequences: &self.shared.sequences,
            lock_timeout: self.state.settings.ready.lock_timeout,
            interrupted: &interrupted,
            columns_of: &columns_of,
            notices,
            effects,
            mark: None,
        };
        let outcome = ddl.define(definition)?;
        Ok((outcome, Arc::clone(&ddl.schema)))
    }

    /// Puts what a query finds into a table that was made for it.
    fn fill<P: Probe>(
        &mut self,
        table: Oid,
        query: &Query,
        client: &mut Client<'_>,
        probe: P,
    ) -> Result<Tag, SqlError> {
        let info =
            self.state.schema.table(table).ok_or_else(|| SqlError::internal("a table was made and is not there"))?;
        let quote = |name: &str| freshet_sql::functions::quote_identifier(name).to_string();
        let namespace = self.state.schema.namespace_name(info.table.namespace);
        let sql = format!("INSERT INTO {}.{} {query}", quote(namespace), quote(&info.table.name));
        let statement = parse(&sql)?.pop();
        let prepared = Prepared::new("", statement, Vec::new());
        let planned = self.plan(&prepared)?;
        let Tag(tag) = self.run_with(&prepared, &planned, &[], Rows::Client(&[]), client, probe)?;
        Ok(Tag(tag.replacen("INSERT 0", "SELECT", 1)))
    }
}
