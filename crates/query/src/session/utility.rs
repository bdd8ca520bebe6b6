//! Statements that are neither queries nor changes of rows.

use std::sync::Arc;

use freshet_postgres::{Client, Out};
use freshet_sql::{
    SqlError, SqlState, Type, Value,
    general::ResultColumn,
    types::{Interval, Kind, TimeZone},
};
use sqlparser::ast::{DiscardObject, Expr, ObjectName, Statement};

use super::{
    Session,
    parse::Parsed,
    prepare::{Planned, Prepared},
    settings::{self, By, canonical, display_name},
    statement::{Rows, Tag},
    syntax::{Control, Modes, SessionStatement, Setting},
    transaction::Block,
    wire::Wire,
};
use crate::{
    bind::{name_of, not_supported, parts_of},
    explain::Options,
    syntax::Rules,
};

/// The longest text that is shown of PREPARE as it was sent, in bytes.
const PREPARED_TEXT: usize = 16 << 10;

pub(super) fn warning(state: SqlState, message: &str) -> freshet_postgres::Report {
    freshet_postgres::Report::warning(freshet_postgres::SqlState::new(state.code()), message)
}

impl Session<'_> {
    /// BEGIN, COMMIT and the like: done, with the tag; nothing for other statements.
    ///
    /// # Errors
    /// What a commit says, 3B001, 25P01, 25P02.
    pub(super) fn transaction_control(
        &mut self,
        statement: &SessionStatement,
        out: &mut Out,
    ) -> Result<Option<String>, SqlError> {
        let SessionStatement::Control(control) = statement else { return Ok(None) };
        let tag = match control {
            Control::Begin(modes, tag) => {
                self.check_not_failed()?;
                if self.block.as_ref().is_some_and(|block| block.explicit) {
                    let there = "there is already a transaction in progress";
                    self.state.send_notice(out, &warning(SqlState::ACTIVE_SQL_TRANSACTION, there));
                }
                self.begin();
                self.set_modes(*modes)?;
                (*tag).to_owned()
            }
            Control::Commit(chain) => {
                self.check_chain(*chain, out, "COMMIT AND CHAIN")?;
                let modes = self.block.as_ref().map(Block::modes);
                self.arm();
                let committed = self.commit(out)?;
                self.chain(*chain, modes);
                if committed { "COMMIT" } else { "ROLLBACK" }.to_owned()
            }
            Control::Rollback(chain) => {
                self.check_chain(*chain, out, "ROLLBACK AND CHAIN")?;
                let modes = self.block.as_ref().map(Block::modes);
                self.roll_back(out);
                self.chain(*chain, modes);
                "ROLLBACK".to_owned()
            }
            Control::RollbackTo(name) => {
                self.roll_back_to(name, out)?;
                "ROLLBACK".to_owned()
            }
            Control::Savepoint(name) => {
                self.savepoint(name.clone())?;
                "SAVEPOINT".to_owned()
            }
            Control::Release(name) => {
                self.release(name)?;
                "RELEASE".to_owned()
            }
            Control::Set(modes) => {
                self.check_not_failed()?;
                if self.block.is_none() {
                    let message = "SET TRANSACTION can only be used in transaction blocks";
                    self.state.send_notice(out, &warning(SqlState::NO_ACTIVE_SQL_TRANSACTION, message));
                }
                self.set_modes(*modes)?;
                "SET".to_owned()
            }
            Control::Import(name) => {
                self.check_not_failed()?;
                if !self.block.as_ref().is_some_and(|block| block.explicit) {
                    let message = "SET TRANSACTION can only be used in transaction blocks";
                    self.state.send_notice(out, &warning(SqlState::NO_ACTIVE_SQL_TRANSACTION, message));
                }
                self.import_snapshot(name)?;
                "SET".to_owned()
            }
        };
        Ok(Some(tag))
    }

    /// Outside of a transaction block there is nothing to end: a warning, or an error if another
    /// one is to begin.
    fn check_chain(&self, chain: bool, out: &mut Out, what: &str) -> Result<(), SqlError> {
        if self.block.as_ref().is_some_and(|block| block.explicit) {
            return Ok(());
        }
        if chain {
            let message = format!("{what} can only be used in transaction blocks");
            return Err(SqlError::new(SqlState::NO_ACTIVE_SQL_TRANSACTION, message));
        }
        self.state
            .send_notice(out, &warning(SqlState::NO_ACTIVE_SQL_TRANSACTION, "there is no transaction in progress"));
        Ok(())
    }

    fn chain(&mut self, chain: bool, modes: Option<(&'static str, bool, bool)>) {
        if let (true, Some((isolation, read_only, deferrable))) = (chain, modes) {
            let block = self.begin();
            (block.isolation, block.read_only, block.deferrable) = (isolation, read_only, deferrable);
        }
    }

    fn set_modes(&mut self, modes: Modes) -> Result<(), SqlError> {
        let refused = |message: &'static str| Err(SqlError::new(SqlState::ACTIVE_SQL_TRANSACTION, message));
        let Some(block) = &mut self.block else { return Ok(()) };
        if let Some(level) = modes.isolation {
            if block.used && level != block.isolation {
                return refused("SET TRANSACTION ISOLATION LEVEL must be called before any query");
            }
            if block.savepoint_count() > 0 && level != block.isolation {
                return refused("SET TRANSACTION ISOLATION LEVEL must not be called in a subtransaction");
            }
            block.isolation = level;
        }
        if let Some(read_only) = modes.read_only {
            if block.savepoint_count() > 0 && block.read_only && !read_only {
                return refused("cannot set transaction read-write mode inside a read-only transaction");
            }
            if block.used && block.read_only && !read_only {
                return refused("transaction read-write mode must be set before any query");
            }
            block.read_only = read_only;
        }
        if let Some(deferrable) = modes.deferrable {
            if block.savepoint_count() > 0 {
                return refused("SET TRANSACTION [NOT] DEFERRABLE cannot be called within a subtransaction");
            }
            if block.used && deferrable != block.deferrable {
                return refused("SET TRANSACTION [NOT] DEFERRABLE must be called before any query");
            }
            block.deferrable = deferrable;
        }
        Ok(())
    }

    /// What a statement of this kind returns, if anything.
    ///
    /// # Errors
    /// 26000, 34000 when it is of a statement or a cursor that there is not.
    pub(super) fn utility_columns(&self, statement: &Statement) -> Result<Option<Vec<ResultColumn>>, SqlError> {
        Ok(match statement {
            // What is wrong with its options is said when it runs.
            Statement::Explain { .. } => {
                let options = Options::of(statement).ok().flatten().unwrap_or_default();
                Some(vec![ResultColumn::new("QUERY PLAN", options.format.column_type())])
            }
            // One that is not there may be when the statement runs.
            Statement::Execute { name: Some(name), .. } => match self.prepared_by_name(name) {
                Ok(prepared) => self.plan(&prepared)?.columns.clone(),
                Err(_) => None,
            },
            _ => None,
        })
    }

    pub(super) fn prepared_by_name(&self, name: &ObjectName) -> Result<Arc<Prepared>, SqlError> {
        let name = parts_of(name)?.pop().unwrap_or_default();
        self.statements.get(&name).cloned().ok_or_else(|| {
            SqlError::new(SqlState::INVALID_SQL_STATEMENT_NAME, format!("prepared statement \"{name}\" does not exist"))
        })
    }

    /// Runs it.
    ///
    /// # Errors
    /// What goes wrong.
    pub(super) fn utility(
        &mut self,
        prepared: &Prepared,
        planned: &Planned,
        values: &[Value],
        rows: Rows<'_>,
        client: &mut Client<'_>,
    ) -> Result<Tag, SqlError> {
        let parameters = Parameters { types: &planned.parameters, values };
        let statement = match &prepared.statement {
            None => return Ok(Tag(String::new())),
            Some(Parsed::Sql(statement)) => &**statement,
            Some(Parsed::Session(statement)) => match &**statement {
                SessionStatement::Setting(setting) => return self.setting(setting, rows, client),
                SessionStatement::Cursor(cursor) => {
                    return self.cursor(cursor, (&planned.parameters, values), rows, client);
                }
                SessionStatement::Channel(channel) => return self.channel(channel),
                SessionStatement::Control(_) => return Err(SqlError::internal("a transaction is controlled before")),
            },
            Some(Parsed::Define(definition)) => return self.define(definition, client),
            Some(Parsed::Copy(copy)) => return self.copy(copy, client),
            Some(Parsed::Constraints(set)) => return self.set_constraints(set, client),
            Some(Parsed::Maintenance(tag)) => {
                if *tag == "VACUUM" {
                    self.must_be_alone(tag)?;
                }
                return Ok(Tag((*tag).to_owned()));
            }
        };
        let tag = match statement {
            Statement::Discard { object_type } => {
                if *object_type == DiscardObject::ALL {
                    self.must_be_alone("DISCARD ALL")?;
                    self.set("session_authorization", None, false, client)?;
                    self.set("role", None, false, client)?;
                    self.state.settings.reset_all();
                    client.speak(self.state.settings.ready.encoding);
                    self.statements.clear();
                    self.portals.clear();
                    self.state.channels.unlisten_all();
                    self.state.advisory.unlock_all();
                }
                if matches!(object_type, DiscardObject::ALL | DiscardObject::SEQUENCES) {
                    self.state.sequences.discard();
                }
                format!("DISCARD {object_type}")
            }
            Statement::Prepare { name, data_types, statement } => {
                let name = name_of(name);
                if self.statements.contains_key(&name) {
                    let message = format!("prepared statement \"{name}\" already exists");
                    return Err(SqlError::new(SqlState::new("42P05"), message));
                }
                if !matches!(
                    **statement,
                    Statement::Query(_)
                        | Statement::Insert(_)
                        | Statement::Update(_)
                        | Statement::Delete(_)
                        | Statement::Merge(_)
                ) {
                    // One that executes itself would never end.
                    return Err(SqlError::new(
                        SqlState::SYNTAX_ERROR,
                        "only queries and changes of rows can be prepared",
                    ));
                }
                // What is said to be unknown is found out, as for a client's own messages.
                let known = |ty: Type| (ty.kind() != Kind::Unknown).then_some(ty);
                let given = data_types.iter().map(|ty| Type::from_sql(ty).map(known)).collect::<Result<_, _>>()?;
                let mut made = Prepared::new(&statement.to_string(), Some(Parsed::Sql(statement.clone())), given);
                // What came with it in one text is kept with each PREPARE there.
                let is_short = prepared.sql.len() <= PREPARED_TEXT;
                made.by_sql =
                    Some(if is_short { prepared.sql.clone() } else { format!("PREPARE {name} AS {statement}") });
                // Its text is not the one that the client has sent.
                made.rules = Rules { standard: true, ..self.state.settings.ready.literals };
                let made = made.fixed().kept_in(&self.state.memory)?;
                // Privileges are checked when it runs.
                made.describe(&self.would_be(&made, &self.state.schema)?);
                self.statements.insert(name, Arc::new(made));
                "PREPARE".to_owned()
            }
            Statement::Execute { name: Some(name), parameters, .. } => {
                let prepared = self.prepared_by_name(name)?;
                let planned = self.plan(&prepared)?;
                let values = self.parameters_of(parameters, &planned.parameters)?;
                return self.run(&prepared, &planned, &values, rows, client);
            }
            Statement::Deallocate { name, .. } => {
                let name = name_of(name);
                if name.eq_ignore_ascii_case("all") {
                    self.statements.clear();
                    "DEALLOCATE ALL".to_owned()
                } else {
                    self.statements.remove(&name).ok_or_else(|| {
                        let message = format!("prepared statement \"{name}\" does not exist");
                        SqlError::new(SqlState::INVALID_SQL_STATEMENT_NAME, message)
                    })?;
                    "DEALLOCATE".to_owned()
                }
            }
            Statement::Explain { statement: explained, .. } => {
                let options = Options::of(statement)?.unwrap_or_default();
                let shown = self.explain(explained, options, parameters, client)?;
                let columns = self.utility_columns(statement)?.unwrap_or_default();
                self.give_as(shown.iter().map(Vec::as_slice), &columns, rows, client)?;
                "EXPLAIN".to_owned()
            }
            other => return Err(not_supported(other.to_string().split(' ').take(2).collect::<Vec<_>>().join(" "))),
        };
        Ok(Tag(tag))
    }

    /// Fails unless the statement that runs is its whole transaction.
    ///
    /// # Errors
    /// 25001
    pub(super) fn must_be_alone(&self, what: &str) -> Result<(), SqlError> {
        let message = match &self.block {
            Some(block) if block.explicit || self.several => {
                format!("{what} cannot run inside a transaction block")
            }
            Some(block) if block.statements > 1 => format!("{what} cannot be executed within a pipeline"),
            _ => return Ok(()),
        };
        Err(SqlError::new(SqlState::ACTIVE_SQL_TRANSACTION, message))
    }

    /// The values of EXECUTE's parameters.
    pub(super) fn parameters_of(&self, given: &[Expr], types: &[Type]) -> Result<Vec<Value>, SqlError> {
        if given.len() != types.len() {
            let message = format!(
                "wrong number of parameters for prepared statement: expected {}, got {}",
                types.len(),
                given.len()
            );
            return Err(SqlError::new(SqlState::SYNTAX_ERROR, message));
        }
        self.with_binder(|binder, environment| {
            let nothing = crate::bind::Scope::nothing();
            let values = given.iter().zip(types).map(|(expr, ty)| {
                let typed = binder.expression(expr, &nothing).map_err(crate::bind::Stop::into_error)?;
                let typed = binder.coerce(typed, *ty, freshet_sql::types::CastContext::Assignment)?;
                typed.expression.evaluate(&[], environment)
            });
            values.collect()
        })
    }

    /// SET, RESET and SHOW.
    fn setting(&mut self, setting: &Setting, rows: Rows<'_>, client: &mut Client<'_>) -> Result<Tag, SqlError> {
        let tag = match setting {
            Setting::Show(name) => {
                let value = self.state.shown(name).ok_or_else(|| settings::unrecognized(&canonical(name)))?;
                self.give(&[vec![Value::text(value)]], rows, client)?;
                "SHOW"
            }
            Setting::ShowAll => {
                let shown = self.state.settings.all().into_iter().map(|(name, value, about)| {
                    let value = self.state.shown(&name).unwrap_or(value);
                    vec![Value::text(name), Value::text(value), Value::text(about)]
                });
                self.give(&shown.collect::<Vec<_>>(), rows, client)?;
                "SHOW"
            }
            Setting::Set { name, value, local } => {
                let value = value.as_ref().map(|parts| settings::of_parts(name, parts)).transpose()?;
                self.change(name, value.as_deref(), *local, client)?;
                "SET"
            }
            Setting::ZoneInterval(interval, local) => {
                let zone = self.zone_of(interval)?;
                self.change("timezone", Some(&zone), *local, client)?;
                "SET"
            }
            Setting::Characteristics(modes) => {
                let on_or_off = |value: bool| if value { "on" } else { "off" };
                for (name, value) in [
                    ("default_transaction_isolation", modes.isolation),
                    ("default_transaction_read_only", modes.read_only.map(on_or_off)),
                    ("default_transaction_deferrable", modes.deferrable.map(on_or_off)),
                ] {
                    if value.is_some() {
                        self.change(name, value, false, client)?;
                    }
                }
                "SET"
            }
            Setting::Reset(name) => {
                self.change(name, None, false, client)?;
                "RESET"
            }
            Setting::ResetAll => {
                self.state.settings.reset_all();
                client.speak(self.state.settings.ready.encoding);
                "RESET"
            }
        };
        Ok(Tag(tag.to_owned()))
    }

    /// Changes a setting, of the session or of the transaction; to what it was at the start,
    /// without a value.
    fn change(
        &mut self,
        name: &str,
        value: Option<&str>,
        local: bool,
        client: &mut Client<'_>,
    ) -> Result<(), SqlError> {
        if local && !self.block.as_ref().is_some_and(|block| block.explicit) {
            let message = "SET LOCAL can only be used in transaction blocks";
            self.state.send_notice(client, &warning(SqlState::NO_ACTIVE_SQL_TRANSACTION, message));
        }
        if let Some(modes) = self.modes_of(&canonical(name), value)? {
            return self.set_modes(modes);
        }
        self.set(name, value, local, client)
    }

    /// The modes that a setting stands for, if it is one of the transaction's.
    fn modes_of(&self, name: &str, value: Option<&str>) -> Result<Option<Modes>, SqlError> {
        if !name.starts_with("transaction_") {
            return Ok(None);
        }
        let default = format!("default_{name}");
        let value = match value {
            Some(value) => self.state.settings.checked(name, value, By::Statement)?,
            None => self.state.settings.get(&default).unwrap_or_default().to_owned(),
        };
        let truth = settings::truth(&value);
        let modes = Modes::default();
        Ok(match name {
            "transaction_isolation" => Some(Modes { isolation: settings::isolation(&value), ..modes }),
            "transaction_read_only" => Some(Modes { read_only: truth, ..modes }),
            "transaction_deferrable" => Some(Modes { deferrable: truth, ..modes }),
            _ => None,
        })
    }

    /// The zone that SET TIME ZONE INTERVAL means.
    fn zone_of(&self, interval: &str) -> Result<String, SqlError> {
        let interval = Interval::parse(interval, Type::of(Kind::Interval), self.state.settings.ready.formats.interval)?;
        let invalid = |what: &str| {
            let message = format!("invalid value for parameter \"TimeZone\": \"INTERVAL '{interval}'\"");
            let detail = format!("Cannot specify {what} in time zone interval.");
            SqlError::new(SqlState::INVALID_PARAMETER_VALUE, message).with_detail(detail)
        };
        if interval.months != 0 {
            return Err(invalid("months"));
        }
        if interval.days != 0 {
            return Err(invalid("days"));
        }
        Ok(TimeZone::fixed(interval.micros / 1_000_000)?.to_string())
    }

    /// Says what functions of the statement wanted to have said, and changes the settings that they
    /// wanted to have changed.
    ///
    /// # Errors
    /// When there is no such setting, or it cannot have the value.
    pub(super) fn apply_wanted(&mut self, out: &mut Out) -> Result<(), SqlError> {
        for message in self.state.warnings.take() {
            self.state.send_notice(out, &warning(SqlState::WARNING, message));
        }
        for (name, value, local) in self.state.wanted.take() {
            self.state.set(&name, value.as_deref(), local, By::Statement)?;
            out.speak(self.state.settings.ready.encoding);
        }
        Ok(())
    }

    /// Gives rows of texts to a sink.
    fn give(&self, rows: &[Vec<Value>], to: Rows<'_>, client: &mut Client<'_>) -> Result<(), SqlError> {
        let width = rows.first().map_or(1, Vec::len);
        let columns = vec![ResultColumn::new("", Type::TEXT); width];
        self.give_as(rows.iter().map(Vec::as_slice), &columns, to, client)
    }

    pub(super) fn give_as<'r>(
        &self,
        mut rows: impl Iterator<Item = &'r [Value]>,
        columns: &[ResultColumn],
        to: Rows<'_>,
        client: &mut Client<'_>,
    ) -> Result<(), SqlError> {
        let view = super::view::View::new(&self.shared, &self.state);
        let context = self.state.context(Some(&view), self.begun());
        match to {
            Rows::Client(formats) => {
                let mut wire = Wire::new(client, &self.state.memory, columns, formats);
                rows.try_for_each(|row| wire.one(row, &context))
            }
            Rows::Kept(into) => rows.try_for_each(|row| into.values(row).map(drop)),
        }
    }
}

/// The parameters of a statement that runs another one.
#[derive(Clone, Copy)]
pub(super) struct Parameters<'p> {
    pub(super) types: &'p [Type],
    pub(super) values: &'p [Value],
}

impl Parameters<'_> {
    pub(super) fn given(self) -> Vec<Option<Type>> {
        self.types.iter().copied().map(Some).collect()
    }
}

/// What SHOW returns.
pub(super) fn setting_columns(setting: &Setting) -> Option<Vec<ResultColumn>> {
    match setting {
        Setting::Show(name) => Some(vec![ResultColumn::new(display_name(&canonical(name)), Type::TEXT)]),
        Setting::ShowAll => {
            Some(["name", "setting", "description"].map(|name| ResultColumn::new(name, Type::TEXT)).into())
        }
        _ => None,
    }
}
