//! Statements that define: tables, indexes, views, sequences, schemas, roles and what these may do.
//!
//! | module | does |
//! |---|---|
//! | [`syntax`] | reads them |
//! | `work` | one of them under way: names, privileges, locks |
//! | `create_table`, `constraint`, `index`, `alter_table`, `alter_column`, `truncate` | tables |
//! | `rewrite` | another table of the engine for a table's rows |
//! | `sequence`, `view`, `namespace`, `role`, `grant`, `comment` | the others |
//! | `database`, `extension` | databases, extensions |
//! | `dependency`, `drop` | what goes with what |
//! | [`effects`] | what is done when the transaction ends |
//!
//! All of it is part of the session's transaction: what the catalog says is a row of the engine
//! like any other. The engine's tables are not, so they are made under names that nobody else
//! knows, and those that no committed catalog names are discarded when the transaction ends, or
//! when the node starts.

mod alter_column;
mod alter_table;
mod comment;
mod constraint;
mod copy_database;
mod create_table;
mod database;
mod dependency;
mod drop;
pub mod effects;
mod expression;
mod extension;
mod grant;
mod index;
mod index_class;
mod namespace;
mod online;
mod rewrite;
mod role;
mod role_setting;
mod sequence;
pub mod syntax;
mod truncate;
mod view;
mod work;

use std::{sync::Arc, time::Duration};

use freshet_engine::{Isolation, Transaction};
use freshet_sql::{SqlError, SqlState, Type, types::EvalContext};
use sqlparser::ast::{Query, Statement};

pub(crate) use database::no_database;
pub use effects::Effects;
pub use expression::{objects_of, shown_expression};
pub use syntax::Definition;

use crate::{
    error::write_error,
    execute::RowIds,
    expression::SessionView,
    locks::{LockMark, Patience, TableLocks},
    schema::{Catalog, Oid, Schema},
    sequence::Sequences,
    wait::waiting,
};
use work::{Halt, Work};

/// Says which columns a query has where the catalog is this, or what is wrong with it.
pub type ColumnsOf<'a> = &'a dyn Fn(&Query, &Arc<Schema>) -> Result<Vec<(String, Type)>, SqlError>;

/// A session's surroundings, for statements that define.
pub struct Ddl<'a, 'w> {
    /// The SQL catalog, which the statement changes.
    pub catalog: &'a Catalog,
    /// Whether each statement of the transaction has a snapshot of its own.
    pub read_committed: bool,
    /// The session's transaction. It takes a newer snapshot where a definition has to see all rows,
    /// unless it is serializable.
    pub transaction: &'a Transaction<'w>,
    /// What there is, as the transaction sees it; brought up to date by each statement.
    pub schema: Arc<Schema>,
    /// Where names without a schema are looked for; the first is where they are made.
    pub path: &'a [Oid],
    /// The role in whose name the statement runs.
    pub role: Oid,
    /// The role that has opened the session.
    pub session_role: Oid,
    /// For literals and functions.
    pub context: &'a EvalContext<'a>,
    /// For functions of the session in defaults.
    pub session: &'a dyn SessionView,
    /// Gives ids to rows that have no other key.
    pub row_ids: &'a RowIds,
    /// The locks that the session holds.
    pub locks: &'a TableLocks,
    /// The numbers of sequences, which the session shares.
    pub sequences: &'a Sequences,
    /// `lock_timeout`
    pub lock_timeout: Option<Duration>,
    /// Asked now and then: an error ends the statement.
    pub interrupted: &'a dyn Fn() -> Result<(), SqlError>,
    /// Says which columns a query has.
    pub columns_of: ColumnsOf<'a>,
    /// Gets what the client is told besides.
    pub notices: &'a mut Vec<SqlError>,
    /// What is to be done when the transaction ends.
    pub effects: &'a mut Effects,
    /// What the session had locked when the statement began; none, too, when an index cannot be
    /// made without copying the table.
    pub mark: Option<LockMark>,
}

/// A table that was made, and the query whose rows are still to be put into it.
pub type Fill = (Oid, Box<Query>);

/// What has become of a statement.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    /// The command tag.
    pub tag: &'static str,
    /// CREATE TABLE … AS leaves it to the session to put rows into the table. The tag is then
    /// `SELECT` and their number.
    pub fill: Option<Fill>,
}

impl<'a, 'w> Ddl<'a, 'w> {
    /// Runs a statement that was read by `sqlparser`.
    ///
    /// # Errors
    /// As for [`Ddl::define`].
    pub fn run(&mut self, statement: &Statement) -> Result<Outcome, SqlError> {
        let read = Definition::of(statement);
        let read = read.map_err(|cause| SqlError::new(SqlState::SYNTAX_ERROR, cause.to_string()))?;
        let definition = read.ok_or_else(|| SqlError::internal(format!("not a definition: {statement}")))?;
        self.define(&definition)
    }

    /// Runs a statement. Blocks while other transactions write to the tables that it changes, or
    /// others change the catalog.
    ///
    /// What it has done when it fails is to be rolled back, with the whole transaction or to a
    /// savepoint.
    ///
    /// # Errors
    /// Whatever PostgreSQL would say, with its SQLSTATE; 40001, 40P01, 55P03, 57014 from waits.
    pub fn define(&mut self, definition: &Definition) -> Result<Outcome, SqlError> {
        if let Definition::Unsupported(what) = definition {
            return Err(crate::bind::not_supported(what));
        }
        let before = self.transaction.savepoint();
        self.mark = Some(self.locks.mark());
        let mut waits = 0;
        loop {
            (self.interrupted)()?;
            let notices = self.notices.len();
            let halt = match self.attempt(definition) {
                Ok(outcome) => return Ok(outcome),
                Err(halt) => halt,
            };
            match halt {
                Halt::Error(error) => return Err(error),
                Halt::Blocked(table, mode) => {
                    // Not while keeping everybody from the catalog.
                    self.transaction.roll_back_to(&before);
                    self.notices.truncate(notices);
                    self.locks.lock(table, mode, self.patience())?;
                }
                Halt::Held => {
                    self.notices.truncate(notices);
                    let interrupted = self.interrupted;
                    let deadline = self.patience().deadline;
                    let transaction = self.transaction;
                    let waited = waiting(interrupted, |it| transaction.wait_for_holder(it.until(deadline)));
                    if let Err(cause) = waited {
                        interrupted()?;
                        return Err(crate::error::lock_error(cause));
                    }
                    waits += 1;
                    if self.transaction.isolation() == Isolation::Serializable && waits > 1 {
                        return Err(write_error(freshet_engine::WriteError::Conflict));
                    }
                }
            }
            // A lock sees no rows, so that the snapshot of a transaction that has one stays.
            let stays = matches!(definition, Definition::Lock(_)) && !self.read_committed;
            if !stays && self.transaction.isolation() != Isolation::Serializable {
                self.transaction.refresh();
            }
        }
    }

    fn patience(&self) -> Patience<'a> {
        let deadline = self.lock_timeout.and_then(|timeout| std::time::Instant::now().checked_add(timeout));
        Patience { deadline, interrupted: self.interrupted }
    }

    fn attempt(&mut self, definition: &Definition) -> Result<Outcome, Halt> {
        if let Definition::Lock(lock) = definition {
            self.schema = self.catalog.read(self.transaction, self.schema.database)?;
            return self.lock(lock);
        }
        self.transaction.worker().set_frees(definition.takes_away());
        let mut work = Work::begin(self, definition.is_shared())?;
        let mut fill = None;
        let tag = match definition {
            Definition::CreateTable(it) => work.create_table(it)?,
            Definition::CreateTableAs(it) => {
                let (tag, rows) = work.create_table_as(it)?;
                fill = rows;
                tag
            }
            Definition::CreateIndex(it) => work.create_index(it)?,
            Definition::CreateSequence(it) => work.create_sequence(it)?,
            Definition::CreateView(it) => work.create_view(it)?,
            Definition::CreateSchema(it) => work.create_schema(it)?,
            Definition::CreateRole(it) => work.create_role(it)?,
            Definition::AlterTable(it) => work.alter_table(it)?,
            Definition::AlterSequence(it) => work.alter_sequence(it)?,
            Definition::AlterSchema { name, change } => work.alter_schema(name, change)?,
            Definition::AlterRole { name, change } => work.alter_role(name, change)?,
            Definition::CreateDatabase(it) => work.create_database(it)?,
            Definition::CreateExtension(it) => work.create_extension(it)?,
            Definition::AlterExtension { name, change } => work.alter_extension(name, change)?,
            Definition::AlterDatabase { name, change } => work.alter_database(name, change)?,
            Definition::DropDatabase { name, if_exists, .. } => work.drop_database(name, *if_exists)?,
            Definition::AlterSetting { role, database, change } => {
                work.alter_setting(role.as_ref(), database.as_deref(), change)?
            }
            Definition::Drop(it) => work.drop(it)?,
            Definition::Truncate(it) => work.truncate(it)?,
            Definition::Comment(it) => work.comment(it)?,
            Definition::Grant(it) => work.grant(it)?,
            Definition::Membership(it) => work.membership(it)?,
            Definition::ReassignOwned { from, to } => work.reassign_owned(from, to)?,
            Definition::Lock(_) | Definition::Unsupported(_) => {
                return Err(SqlError::internal("a definition without a change").into());
            }
        };
        work.finish();
        Ok(Outcome { tag, fill })
    }
}
