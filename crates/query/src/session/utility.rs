//! Statements that are neither queries nor changes of rows.

use std::sync::Arc;

use freshet_postgres::{Client, Out};
use freshet_sql::{SqlError, SqlState, Type, Value};
use sqlparser::ast::{
    self, CloseCursor, ContextModifier, DiscardObject, Expr, FetchDirection, ObjectName, Reset, Set,
    SetSessionAuthorizationParamKind, Statement, TransactionAccessMode, TransactionIsolationLevel, TransactionMode,
};

use super::{
    Portal, Rest, Session,
    parse::Parsed,
    prepare::{Plan, Planned, Prepared},
    settings::{self, canonical, clipped, display_name},
    statement::{Rows, Tag},
    wire::{ResultColumn, Wire},
};
use crate::{
    bind::{name_of, not_supported, parts_of},
    execute::{Sink, modify::Collected},
    explain,
};

/// A number in FETCH.
fn number(value: &ast::ValueWithSpan) -> Result<i64, SqlError> {
    let text = value.value.to_string();
    text.parse().map_err(|_| SqlError::new(SqlState::SYNTAX_ERROR, format!("{text} is no number of rows")))
}

/// The value that a setting is given, as text.
fn setting_value(values: &[Expr]) -> Option<String> {
    let text = |expr: &Expr| match expr {
        Expr::Identifier(word) => Some(word.value.clone()),
        Expr::Value(value) => Some(match value.value.clone().into_string() {
            Some(text) => text,
            None => value.value.to_string(),
        }),
        other => Some(other.to_string()),
    };
    match values {
        [Expr::Identifier(word)] if word.quote_style.is_none() && word.value.eq_ignore_ascii_case("default") => None,
        values => Some(values.iter().filter_map(text).collect::<Vec<_>>().join(", ")),
    }
}

fn isolation_of(level: &TransactionIsolationLevel) -> &'static str {
    match level {
        TransactionIsolationLevel::ReadUncommitted => "read uncommitted",
        TransactionIsolationLevel::ReadCommitted => "read committed",
        TransactionIsolationLevel::RepeatableRead | TransactionIsolationLevel::Snapshot => "repeatable read",
        TransactionIsolationLevel::Serializable => "serializable",
    }
}

pub(super) fn warning(state: SqlState, message: &str) -> freshet_postgres::Report {
    freshet_postgres::Report::warning(freshet_postgres::SqlState::new(state.code()), message)
}

/// A name as long as names can be; the client is told if it was longer.
fn shortened(name: String, out: &mut Out) -> String {
    let short = clipped(&name);
    if short.len() == name.len() {
        return name;
    }
    let said =
        SqlError::new(SqlState::NAME_TOO_LONG, format!("identifier \"{name}\" will be truncated to \"{short}\""));
    out.notice(&super::wire::notice(said));
    short.to_owned()
}

impl Session<'_> {
    /// BEGIN, COMMIT and the like: done, with the tag; nothing for other statements.
    ///
    /// # Errors
    /// What a commit says, 3B001, 25P01.
    pub(super) fn transaction_control(
        &mut self,
        statement: &Statement,
        out: &mut Out,
    ) -> Result<Option<String>, SqlError> {
        let tag = match statement {
            Statement::StartTransaction { modes, begin, .. } => {
                if self.block.as_ref().is_some_and(|block| block.explicit) {
                    let there = "there is already a transaction in progress";
                    out.notice(&warning(SqlState::ACTIVE_SQL_TRANSACTION, there));
                }
                self.begin();
                self.set_modes(modes)?;
                if *begin { "BEGIN" } else { "START TRANSACTION" }.to_owned()
            }
            Statement::Commit { chain, .. } => {
                let modes = self.block.as_ref().map(|block| (block.isolation, block.read_only));
                if !self.block.as_ref().is_some_and(|block| block.explicit) {
                    out.notice(&warning(SqlState::NO_ACTIVE_SQL_TRANSACTION, "there is no transaction in progress"));
                }
                self.state.deadline = self.statement_deadline();
                let committed = self.commit(out)?;
                self.chain(*chain, modes);
                if committed { "COMMIT" } else { "ROLLBACK" }.to_owned()
            }
            Statement::Rollback { chain, savepoint: None } => {
                let modes = self.block.as_ref().map(|block| (block.isolation, block.read_only));
                if !self.block.as_ref().is_some_and(|block| block.explicit) {
                    out.notice(&warning(SqlState::NO_ACTIVE_SQL_TRANSACTION, "there is no transaction in progress"));
                }
                self.roll_back(out);
                self.chain(*chain, modes);
                "ROLLBACK".to_owned()
            }
            Statement::Rollback { savepoint: Some(name), .. } => {
                let name = shortened(name_of(name), out);
                self.roll_back_to(&name, out)?;
                "ROLLBACK".to_owned()
            }
            Statement::Savepoint { name } => {
                self.savepoint(shortened(name_of(name), out))?;
                "SAVEPOINT".to_owned()
            }
            Statement::ReleaseSavepoint { name } => {
                self.release(&shortened(name_of(name), out))?;
                "RELEASE".to_owned()
            }
            Statement::Set(Set::SetTransaction { modes, session: false, snapshot: None }) => {
                if self.block.is_none() {
                    let message = "SET TRANSACTION can only be used in transaction blocks";
                    out.notice(&warning(SqlState::NO_ACTIVE_SQL_TRANSACTION, message));
                }
                self.set_modes(modes)?;
                "SET".to_owned()
            }
            Statement::Set(Set::SetTransaction { session: false, snapshot: Some(name), .. }) => {
                if !self.block.as_ref().is_some_and(|block| block.explicit) {
                    let message = "SET TRANSACTION can only be used in transaction blocks";
                    out.notice(&warning(SqlState::NO_ACTIVE_SQL_TRANSACTION, message));
                }
                self.import_snapshot(&name.value.clone().into_string().unwrap_or_default())?;
                "SET".to_owned()
            }
            _ => return Ok(None),
        };
        Ok(Some(tag))
    }

    fn chain(&mut self, chain: bool, modes: Option<(&'static str, bool)>) {
        if let (true, Some((isolation, read_only))) = (chain, modes) {
            let block = self.begin();
            (block.isolation, block.read_only) = (isolation, read_only);
        }
    }

    fn set_modes(&mut self, modes: &[TransactionMode]) -> Result<(), SqlError> {
        let Some(block) = &mut self.block else { return Ok(()) };
        for mode in modes {
            match mode {
                TransactionMode::IsolationLevel(level) => {
                    let level = isolation_of(level);
                    if block.used && level != block.isolation {
                        let message = "SET TRANSACTION ISOLATION LEVEL must be called before any query";
                        return Err(SqlError::new(SqlState::ACTIVE_SQL_TRANSACTION, message));
                    }
                    block.isolation = level;
                }
                TransactionMode::AccessMode(mode) => {
                    let read_only = *mode == TransactionAccessMode::ReadOnly;
                    if block.used && block.read_only && !read_only {
                        let message = "transaction read-write mode must be set before any query";
                        return Err(SqlError::new(SqlState::ACTIVE_SQL_TRANSACTION, message));
                    }
                    block.read_only = read_only;
                }
            }
        }
        Ok(())
    }

    /// What a statement of this kind returns, if anything.
    ///
    /// # Errors
    /// 26000, 34000 when it is of a statement or a cursor that there is not.
    pub(super) fn utility_columns(&self, statement: &Statement) -> Result<Option<Vec<ResultColumn>>, SqlError> {
        Ok(match statement {
            Statement::ShowVariable { variable } => match self.shown(variable).as_str() {
                "all" => {
                    Some(["name", "setting", "description"].map(|name| ResultColumn::new(name, Type::TEXT)).into())
                }
                name => Some(vec![ResultColumn::new(shown_name(name), Type::TEXT)]),
            },
            Statement::Explain { .. } => Some(vec![ResultColumn::new("QUERY PLAN", Type::TEXT)]),
            Statement::Fetch { name, .. } => match self.portals.get(&name_of(name)) {
                Some(portal) => self.plan(&portal.prepared)?.columns.clone(),
                None => return Err(no_cursor(&name_of(name))),
            },
            Statement::Execute { name: Some(name), .. } => self.plan(&*self.prepared_by_name(name)?)?.columns.clone(),
            _ => None,
        })
    }

    fn prepared_by_name(&self, name: &ObjectName) -> Result<Arc<Prepared>, SqlError> {
        let name = parts_of(name)?.pop().unwrap_or_default();
        self.statements.get(&name).cloned().ok_or_else(|| {
            SqlError::new(SqlState::INVALID_SQL_STATEMENT_NAME, format!("prepared statement \"{name}\" does not exist"))
        })
    }

    fn shown(&self, variable: &[ast::Ident]) -> String {
        let words: Vec<&str> = variable.iter().map(|word| word.value.as_str()).collect();
        let name = if words.iter().any(|word| {
            word.eq_ignore_ascii_case("time")
                || word.eq_ignore_ascii_case("transaction")
                || word.eq_ignore_ascii_case("session")
        }) {
            words.join(" ").to_lowercase()
        } else {
            words.join(".").to_lowercase()
        };
        match name.as_str() {
            "transaction isolation level" => "transaction_isolation".to_owned(),
            "session authorization" => "session_authorization".to_owned(),
            name => canonical(name),
        }
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
            Some(Parsed::Define(definition)) => return self.define(definition, client),
            Some(Parsed::Copy(copy)) => return self.copy(copy, client),
            Some(Parsed::Constraints(set)) => return self.set_constraints(set, client),
            Some(Parsed::Maintenance(tag)) => return Ok(Tag((*tag).to_owned())),
        };
        let tag = match statement {
            Statement::ShowVariable { variable } => {
                let shown = self.show(&self.shown(variable))?;
                self.give(&shown, rows, client)?;
                "SHOW".to_owned()
            }
            Statement::Set(set) => self.set(set, client)?,
            Statement::Reset(reset) => {
                match &reset.reset {
                    Reset::ALL => {
                        let told = self.state.settings.reset_all();
                        told.iter().for_each(|(name, value)| client.parameter_status(name, value));
                    }
                    Reset::ConfigurationParameter(name) => {
                        self.set_and_tell(&name.to_string(), None, false, client)?;
                    }
                }
                "RESET".to_owned()
            }
            Statement::Discard { object_type } => {
                if *object_type == DiscardObject::ALL {
                    if self.block.as_ref().is_some_and(|block| block.explicit) {
                        let message = "DISCARD ALL cannot run inside a transaction block";
                        return Err(SqlError::new(SqlState::ACTIVE_SQL_TRANSACTION, message));
                    }
                    self.set_and_tell("session_authorization", None, false, client)?;
                    self.set_and_tell("role", None, false, client)?;
                    let told = self.state.settings.reset_all();
                    told.iter().for_each(|(name, value)| client.parameter_status(name, value));
                    self.statements.clear();
                    self.portals.clear();
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
                let given = data_types.iter().map(|ty| Type::from_sql(ty).map(Some)).collect::<Result<_, _>>()?;
                let mut made = Prepared::new(&statement.to_string(), Some(Parsed::Sql(statement.clone())), given);
                made.by_sql = true;
                // Privileges are checked when it runs.
                self.would_be(&made)?;
                self.statements.insert(name, Arc::new(made.kept_in(&self.state.memory)?));
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
            Statement::Explain { statement, analyze, options, .. } => {
                let analyze = *analyze
                    || options.iter().flatten().any(|option| option.name.value.eq_ignore_ascii_case("analyze"));
                let lines = self.explain(statement, analyze, parameters, client)?;
                let lines: Vec<_> = lines.into_iter().map(|line| vec![Value::text(line)]).collect();
                self.give(&lines, rows, client)?;
                "EXPLAIN".to_owned()
            }
            Statement::Declare { stmts } => {
                self.declare(stmts, parameters, client)?;
                "DECLARE CURSOR".to_owned()
            }
            Statement::Fetch { name, direction, .. } => {
                let fetched = self.fetch(&name_of(name), direction)?;
                let columns = self.plan(prepared)?;
                let count = fetched.len();
                self.give_as(&fetched, columns.columns.as_deref().unwrap_or_default(), rows, client)?;
                format!("FETCH {count}")
            }
            Statement::Close { cursor } => {
                match cursor {
                    CloseCursor::All => self.portals.clear(),
                    CloseCursor::Specific { name } => {
                        self.portals.remove(&name_of(name)).ok_or_else(|| no_cursor(&name_of(name)))?;
                    }
                }
                "CLOSE CURSOR".to_owned()
            }
            Statement::LISTEN { .. } | Statement::UNLISTEN { .. } | Statement::NOTIFY { .. } => {
                return Err(not_supported("notification between sessions"));
            }
            other => return Err(not_supported(other.to_string().split(' ').take(2).collect::<Vec<_>>().join(" "))),
        };
        Ok(Tag(tag))
    }

    /// The values of EXECUTE's parameters.
    fn parameters_of(&self, given: &[Expr], types: &[Type]) -> Result<Vec<Value>, SqlError> {
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

    fn show(&self, name: &str) -> Result<Vec<Vec<Value>>, SqlError> {
        if name == "all" {
            let row = |(name, value): (String, String)| vec![Value::text(name), Value::text(value), Value::text("")];
            return Ok(self.state.settings.all().into_iter().map(row).collect());
        }
        let block = self.block.as_ref();
        let value = match name {
            "transaction_isolation" => block.map_or("read committed", |block| block.isolation).to_owned(),
            "transaction_read_only" => {
                let read_only = self.shared.is_standby() || block.is_some_and(|block| block.read_only);
                if read_only { "on" } else { "off" }.to_owned()
            }
            "freshet.last_commit" => self.state.last_commit.map_or_else(String::new, |stamp| stamp.0.to_string()),
            "in_hot_standby" => if self.shared.is_standby() { "on" } else { "off" }.to_owned(),
            name => match self.state.settings.get(name) {
                Some(value) => value.to_owned(),
                None => {
                    let message = format!("unrecognized configuration parameter \"{name}\"");
                    return Err(SqlError::new(SqlState::UNDEFINED_OBJECT, message));
                }
            },
        };
        Ok(vec![vec![Value::text(value)]])
    }

    fn set(&mut self, set: &Set, client: &mut Client<'_>) -> Result<String, SqlError> {
        let mut change = |session: &mut Self, name: &str, value: Option<&str>, local: bool| -> Result<(), SqlError> {
            session.set_and_tell(name, value, local, client)
        };
        match set {
            Set::SingleAssignment { scope, variable, values, .. } => {
                let local = *scope == Some(ContextModifier::Local);
                let name = parts_of(variable)?.join(".");
                match canonical(&name).as_str() {
                    "transaction_isolation" | "transaction_read_only" => {
                        let value = setting_value(values).unwrap_or_default();
                        self.set_mode(&name, &value)?;
                    }
                    _ => change(self, &name, setting_value(values).as_deref(), local)?,
                }
            }
            Set::SetTimeZone { local, value } => {
                change(self, "timezone", setting_value(std::slice::from_ref(value)).as_deref(), *local)?;
            }
            Set::SetNames { charset_name, .. } => change(self, "client_encoding", Some(&charset_name.value), false)?,
            Set::SetNamesDefault {} => change(self, "client_encoding", None, false)?,
            Set::SetTransaction { modes, session: true, .. } => {
                for mode in modes {
                    match mode {
                        TransactionMode::IsolationLevel(level) => {
                            change(self, "default_transaction_isolation", Some(isolation_of(level)), false)?;
                        }
                        TransactionMode::AccessMode(mode) => {
                            let read_only = if *mode == TransactionAccessMode::ReadOnly { "on" } else { "off" };
                            change(self, "default_transaction_read_only", Some(read_only), false)?;
                        }
                    }
                }
            }
            Set::SetSessionAuthorization(param) => {
                let name = match &param.kind {
                    SetSessionAuthorizationParamKind::Default => None,
                    SetSessionAuthorizationParamKind::User(name) => Some(name_of(name)),
                };
                let local = param.scope == ContextModifier::Local;
                change(self, "session_authorization", name.as_deref(), local)?;
            }
            Set::SetRole { role_name, context_modifier } => {
                let name = role_name.as_ref().map_or_else(|| "none".to_owned(), name_of);
                change(self, "role", Some(&name), *context_modifier == Some(ContextModifier::Local))?;
            }
            _ => return Err(not_supported(format!("SET in this form: {set}"))),
        }
        Ok("SET".to_owned())
    }

    fn set_mode(&mut self, name: &str, value: &str) -> Result<(), SqlError> {
        let invalid = || {
            let message = format!("invalid value for parameter \"{name}\": \"{value}\"");
            SqlError::new(SqlState::INVALID_PARAMETER_VALUE, message)
        };
        let Some(block) = &mut self.block else { return Ok(()) };
        match name {
            "transaction_isolation" => block.isolation = settings::isolation(value).ok_or_else(invalid)?,
            _ => block.read_only = settings::truth(value).ok_or_else(invalid)?,
        }
        Ok(())
    }

    /// Says what functions of the statement wanted to have said, and changes the settings that they
    /// wanted to have changed.
    ///
    /// # Errors
    /// When there is no such setting, or it cannot have the value.
    pub(super) fn apply_wanted(&mut self, out: &mut Out) -> Result<(), SqlError> {
        for message in self.state.warnings.take() {
            out.notice(&warning(SqlState::WARNING, message));
        }
        for (name, value, local) in self.state.wanted.take() {
            for (name, value) in self.state.set(&name, Some(&value), local)? {
                out.parameter_status(name, &value);
            }
        }
        Ok(())
    }

    /// Gives rows of texts to whoever wants them.
    fn give(&self, rows: &[Vec<Value>], to: Rows<'_>, client: &mut Client<'_>) -> Result<(), SqlError> {
        let width = rows.first().map_or(1, Vec::len);
        let columns = vec![ResultColumn::new("", Type::TEXT); width];
        self.give_as(rows, &columns, to, client)
    }

    fn give_as(
        &self,
        rows: &[Vec<Value>],
        columns: &[ResultColumn],
        to: Rows<'_>,
        client: &mut Client<'_>,
    ) -> Result<(), SqlError> {
        let view = super::view::View::new(&self.shared, &self.state);
        let context = self.state.context(Some(&view), self.begun());
        match to {
            Rows::Client(formats) => {
                let mut wire = Wire::new(client, columns, formats);
                rows.iter().try_for_each(|row| wire.one(row, &context))
            }
            Rows::Kept(into) => rows.iter().try_for_each(|row| into.values(row).map(drop)),
        }
    }

    fn explain(
        &mut self,
        statement: &Statement,
        analyze: bool,
        parameters: Parameters<'_>,
        client: &mut Client<'_>,
    ) -> Result<Vec<String>, SqlError> {
        let prepared = Prepared::new("", Some(Parsed::sql(statement.clone())), parameters.given());
        let planned = self.plan(&prepared)?;
        if let Plan::General(query) = &planned.plan {
            return self.explain_general(query, &planned.firsts, parameters.values, analyze);
        }
        let mut lines = explain::lines(&planned);
        if let Some(query) = planned.plan.general() {
            let inner = self.explain_general(query, &planned.firsts, parameters.values, false)?;
            lines.extend(inner.into_iter().map(|line| format!("        {line}")));
        }
        if analyze {
            let started = std::time::Instant::now();
            let mut kept = Collected::within(&self.state.statement_memory());
            let Tag(tag) = self.run(&prepared, &planned, parameters.values, Rows::Kept(&mut kept), client)?;
            lines.push(format!("Result: {tag}"));
            lines.push(format!("Execution Time: {:.3} ms", started.elapsed().as_secs_f64() * 1e3));
        }
        Ok(lines)
    }

    fn declare(
        &mut self,
        declared: &[ast::Declare],
        parameters: Parameters<'_>,
        client: &mut Client<'_>,
    ) -> Result<(), SqlError> {
        for cursor in declared {
            let [name] = cursor.names.as_slice() else {
                return Err(not_supported("DECLARE of something else than a cursor"));
            };
            let name = name_of(name);
            let Some(query) = &cursor.for_query else {
                return Err(not_supported("DECLARE of something else than a cursor"));
            };
            if cursor.hold == Some(true) {
                return Err(not_supported("WITH HOLD"));
            }
            if !self.block.as_ref().is_some_and(|block| block.explicit) {
                let message = "DECLARE CURSOR can only be used in transaction blocks";
                return Err(SqlError::new(SqlState::NO_ACTIVE_SQL_TRANSACTION, message));
            }
            if self.portals.contains_key(&name) {
                let message = format!("cursor \"{name}\" already exists");
                return Err(SqlError::new(SqlState::DUPLICATE_CURSOR, message));
            }
            let statement = Some(Parsed::sql(Statement::Query(query.clone())));
            let prepared = Prepared::new(&query.to_string(), statement, parameters.given());
            let prepared = Arc::new(prepared.kept_in(&self.state.memory)?);
            let planned = self.plan(&prepared)?;
            let mut kept = Collected::within(&self.state.statement_memory());
            let Tag(tag) = self.run(&prepared, &planned, parameters.values, Rows::Kept(&mut kept), client)?;
            let rest = Some(Rest { rows: kept.0.into_iter(), tag, kept: kept.1 });
            let declared = Some(prepared.made);
            let (parameters, formats) = Default::default();
            let _kept = self.state.memory.reserve();
            self.portals.insert(name, Portal { prepared, parameters, formats, rest, done: true, declared, _kept });
        }
        Ok(())
    }

    fn fetch(&mut self, name: &str, direction: &FetchDirection) -> Result<Vec<Vec<Value>>, SqlError> {
        let count = match direction {
            FetchDirection::Next => 1,
            FetchDirection::Count { limit } => number(limit)?,
            FetchDirection::Forward { limit } => limit.as_ref().map(number).transpose()?.unwrap_or(1),
            FetchDirection::All | FetchDirection::ForwardAll => i64::MAX,
            _ => {
                let message = "cursor can only scan forward";
                return Err(SqlError::new(SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE, message));
            }
        };
        let portal = self.portals.get_mut(name).ok_or_else(|| no_cursor(name))?;
        let rest = portal.rest.as_mut().ok_or_else(|| no_cursor(name))?;
        let count = usize::try_from(count).unwrap_or(0);
        Ok(rest.rows.by_ref().take(count).collect())
    }
}

/// The parameters of a statement that runs another one.
#[derive(Clone, Copy)]
struct Parameters<'p> {
    types: &'p [Type],
    values: &'p [Value],
}

impl Parameters<'_> {
    fn given(self) -> Vec<Option<Type>> {
        self.types.iter().copied().map(Some).collect()
    }
}

fn no_cursor(name: &str) -> SqlError {
    SqlError::new(SqlState::INVALID_CURSOR_NAME, format!("cursor \"{name}\" does not exist"))
}

/// The name of SHOW's column.
fn shown_name(name: &str) -> &str {
    match name {
        "timezone" => display_name("timezone"),
        "datestyle" => display_name("datestyle"),
        "intervalstyle" => display_name("intervalstyle"),
        other => other,
    }
}
