//! What the protocol asks of a session.

use std::{
    num::NonZeroU32,
    sync::Arc,
    time::{Duration, Instant},
};

use freshet_postgres::{
    self as postgres, Ask, Bind, Client, Described, Ending, Executed, Format, Interrupt, Moved, Note, Out, Parameters,
    Report, TransactionStatus, Types,
};
use freshet_sql::{
    SqlError, SqlState, Type, Value,
    memory::Reservation,
    types::{Kind, Timestamp, binary, text},
};

use super::{
    Portal, Session,
    account::Account,
    cursor, encoding,
    moves::HeldUp,
    parse::{Parsed, parse_within},
    prepare::{Planned, Prepared},
    statement::{Rows, Tag},
    wire::{Wire, fields, report, undelivered},
};
use crate::{
    execute::modify::Collected,
    inputs,
    statistics::Cause,
    syntax::{Remarks, clipped as clip},
    system::shown::shown,
};

/// How often an idle session looks whether its snapshot is too old.
const LOOK_AFTER: Duration = Duration::from_millis(500);
/// How often a statement is tried again that has lost a race.
const TRIES: u32 = 100;

impl Session<'_> {
    /// What the client is told at the start.
    pub fn parameters(&mut self, parameters: &mut Parameters) {
        self.reported.changed(&self.state.settings, |name, value| parameters.set(name, value));
    }

    /// One of the statements of a simple query.
    fn simple(&mut self, prepared: &Prepared, last: bool, client: &mut Client<'_>) -> Result<(), SqlError> {
        self.disarm();
        self.arm();
        self.count_query(prepared);
        let alone = last && self.block.is_none() && !matches!(prepared.statement, Some(Parsed::Copy(_)));
        self.try_again(alone, client, |session, client| session.simple_once(prepared, last, client))
    }

    /// Runs a statement. One that is `alone`, so that its transaction consists of nothing else, is
    /// run again when it has merely lost a race, as long as its client has heard nothing of it.
    fn try_again<T>(
        &mut self,
        alone: bool,
        client: &mut Client<'_>,
        mut run: impl FnMut(&mut Self, &mut Client<'_>) -> Result<T, SqlError>,
    ) -> Result<T, SqlError> {
        let mark = client.mark();
        for _ in 0..if alone { TRIES } else { 0 } {
            match run(self, client) {
                Err(error) if error.state == SqlState::SERIALIZATION_FAILURE && client.rewind(mark) => {
                    self.tally.fails_by(Cause::Serialization);
                    self.fail();
                }
                done => return done,
            }
        }
        run(self, client)
    }

    fn simple_once(&mut self, prepared: &Prepared, last: bool, client: &mut Client<'_>) -> Result<(), SqlError> {
        if let Some(Parsed::Session(statement)) = &prepared.statement
            && let Some(tag) = self.transaction_control(statement, client)?
        {
            let _ = client.command_complete(tag);
            return Ok(());
        }
        self.block_for(prepared.statement.as_ref())?;
        let mut planned = self.plan(prepared)?;
        if planned.columns.is_some() && (planned.writes_to().is_some() || planned.locks()) {
            // The columns are told once their tables are locked, and cannot change any more.
            let interrupted = self.interruption();
            planned = self.lock_for(prepared, &planned, &interrupted)?.unwrap_or(planned);
        }
        let formats = self.formats_of(prepared.statement.as_ref());
        let before = client.mark();
        if let Some(columns) = &planned.columns {
            let _ = client.row_description(fields(columns, formats)).map_err(undelivered)?;
        }
        let described = client.mark();
        let Tag(tag) = match self.run(prepared, &planned, &[], Rows::Client(formats), client) {
            Ok(tag) => tag,
            Err(error) => {
                // Only of a query over tables PostgreSQL's clients hear before it begins to run.
                if !planned.reads_as_it_goes() && client.mark() == described {
                    client.rewind(before);
                }
                return Err(error);
            }
        };
        if last {
            // Who reads the tag takes it for done.
            self.end_of_statement(client)?;
        }
        let _ = client.command_complete(tag);
        Ok(())
    }

    /// The statements of a simple query.
    fn statements_of(&mut self, sql: &str, client: &mut Client<'_>) -> Result<(), SqlError> {
        // Held until all of them have been run.
        let kept = self.state.statement_memory().reserve();
        let rules = self.state.settings.ready.literals;
        // The unnamed portal and statement go with a simple query, also one that is not understood.
        self.statements.remove("");
        self.portals.remove("");
        let statements = self.read(sql, &kept, client)?;
        if statements.is_empty() {
            let _ = client.empty_query();
            return Ok(());
        }
        let count = statements.len();
        self.several = count > 1;
        let mut texts = inputs::statements(sql, rules);
        for (number, statement) in statements.into_iter().enumerate() {
            let text = if statement.prepares() { sql } else { "" };
            let mut prepared = Prepared::new(text, Some(statement), Vec::new());
            prepared.rules = rules;
            prepared.query = texts.next().map(Into::into);
            if number > 0 {
                self.count_ran(self.info.next());
            }
            self.simple(&prepared, number + 1 == count, client)?;
        }
        self.end_of_statement(client)
    }

    /// The statements of a text. The client is told of names that are longer than names can be, and
    /// of literals that are not written as they should be.
    fn read(&self, sql: &str, kept: &Reservation, out: &mut Out) -> Result<Vec<Parsed>, SqlError> {
        let mut remarks = Remarks::default();
        let parsed = parse_within(sql, kept, self.state.settings.ready.literals, &mut remarks);
        for warning in remarks.warnings {
            self.state.send_notice(out, &super::wire::warning(warning));
        }
        for name in &remarks.clipped {
            let message = format!("identifier \"{name}\" will be truncated to \"{}\"", clip(name));
            self.state.send_notice(out, &super::wire::notice(SqlError::new(SqlState::NAME_TOO_LONG, message)));
        }
        parsed
    }

    fn understand(&self, sql: &str, types: Types<'_>, kept: &Reservation, out: &mut Out) -> Result<Prepared, SqlError> {
        let mut statements = self.read(sql, kept, out)?;
        if statements.len() > 1 {
            let message = "cannot insert multiple commands into a prepared statement";
            return Err(SqlError::new(SqlState::SYNTAX_ERROR, message));
        }
        let given = types.iter().map(|oid| match oid {
            0 => Ok(None),
            oid => match Kind::from_oid(oid) {
                Some(Kind::Unknown) => Ok(None),
                Some(kind) => Ok(Some(Type::of(kind))),
                None => Err(SqlError::new(SqlState::UNDEFINED_OBJECT, format!("type with OID {oid} does not exist"))),
            },
        });
        let given = given.collect::<Result<_, _>>()?;
        let rules = self.state.settings.ready.literals;
        let mut prepared = Prepared::new(sql, statements.pop(), given);
        prepared.rules = rules;
        Ok(prepared.fixed())
    }

    /// The plan of a statement outside of its execution: for describing it, and for its parameters'
    /// types.
    fn planned(&mut self, prepared: &Prepared) -> Result<Arc<Planned>, SqlError> {
        let control = prepared.statement.as_ref().is_none_or(Parsed::is_transaction_control);
        if !control {
            self.block_for(prepared.statement.as_ref())?;
        }
        self.plan(prepared)
    }

    /// How long the client may leave the session idle.
    fn idle_until(&self) -> Option<Instant> {
        // A statement has begun, and its client is to say more.
        if let Some(deadline) = self.state.flag.deadline() {
            return Some(deadline);
        }
        let limit = match self.transaction_status() {
            TransactionStatus::Idle => self.state.settings.ready.idle,
            _ => self.state.settings.ready.idle_in_transaction,
        };
        limit.and_then(|limit| self.rested.checked_add(limit))
    }

    fn statement_named(&self, name: &str) -> Result<Arc<Prepared>, SqlError> {
        let found = self.statements.get(name).map(Arc::clone);
        found.ok_or_else(|| {
            let message = match name {
                "" => "unnamed prepared statement does not exist".to_owned(),
                name => format!("prepared statement \"{name}\" does not exist"),
            };
            SqlError::new(SqlState::INVALID_SQL_STATEMENT_NAME, message)
        })
    }

    fn bind_values(&mut self, prepared: &Prepared, bind: &Bind<'_>) -> Result<Vec<Value>, SqlError> {
        let planned = self.planned(prepared)?;
        let expected = planned.parameters.len().max(prepared.given.len());
        if bind.values.len() != expected {
            let message = format!(
                "bind message supplies {} parameters, but prepared statement \"{}\" requires {expected}",
                bind.values.len(),
                bind.statement
            );
            return Err(SqlError::new(SqlState::PROTOCOL_VIOLATION, message));
        }
        let context = self.state.context(None, self.begun());
        let encoding = self.state.settings.ready.encoding;
        let mut values = Vec::with_capacity(expected);
        for (number, bytes) in bind.values.iter().enumerate() {
            let ty = planned.parameters.get(number).copied().unwrap_or(Type::TEXT);
            let format = bind.formats.of(number);
            let decoded;
            let bytes = match bytes {
                Some(bytes) if !encoding.is_utf8() => {
                    decoded = encoding::decoded(encoding, ty.kind(), format, bytes)?;
                    Some(&*decoded)
                }
                bytes => bytes,
            };
            values.push(match (bytes, format) {
                (None, _) => Value::Null,
                (Some(bytes), Format::Binary) => binary::input(ty, bytes)?,
                (Some(bytes), Format::Text) => {
                    let view;
                    let context = if ty.kind().is_object_alias() {
                        view = super::view::View::new(&self.shared, &self.state);
                        &self.state.context(Some(&view), self.begun())
                    } else {
                        &context
                    };
                    text::input(ty, text::decode(bytes)?, context)?
                }
            });
        }
        let formats = bind.results.iter().count();
        if let Some(columns) = planned.columns.as_ref().filter(|columns| formats > 1 && formats != columns.len()) {
            let columns = columns.len();
            let message = format!("bind message has {formats} result formats but query has {columns} columns");
            return Err(SqlError::new(SqlState::PROTOCOL_VIOLATION, message));
        }
        Ok(values)
    }

    fn describe(&self, planned: &Planned, formats: &[Format], out: &mut Out) -> Result<Described, SqlError> {
        match &planned.columns {
            Some(columns) => out.row_description(fields(columns, formats)).map_err(undelivered),
            None => Ok(out.no_data()),
        }
    }

    fn execute_portal(
        &mut self,
        name: &str,
        limit: Option<NonZeroU32>,
        client: &mut Client<'_>,
    ) -> Result<Executed, SqlError> {
        let mut portal = self
            .portals
            .remove(name)
            .ok_or_else(|| SqlError::new(SqlState::INVALID_CURSOR_NAME, format!("portal \"{name}\" does not exist")))?;
        self.note_statement(portal.prepared.shown());
        if portal.rows.is_none() {
            self.count_query(&portal.prepared);
        }
        let executed = self.execute_taken(&mut portal, limit, client);
        if executed.is_ok() && portal.rows.as_ref().is_none_or(|rows| rows.left() == 0) {
            self.disarm();
        }
        self.portals.insert(name.to_owned(), portal);
        executed
    }

    fn execute_taken(
        &mut self,
        portal: &mut Portal,
        limit: Option<NonZeroU32>,
        client: &mut Client<'_>,
    ) -> Result<Executed, SqlError> {
        let prepared = Arc::clone(&portal.prepared);
        let Some(statement) = &prepared.statement else { return Ok(client.empty_query()) };
        if portal.done && portal.rows.is_none() {
            let message = "portal cannot be run anymore";
            return Err(SqlError::new(SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE, message));
        }
        if portal.rows.is_none() {
            if let Parsed::Session(statement) = statement
                && let Some(tag) = self.transaction_control(statement, client)?
            {
                return Ok(client.command_complete(tag));
            }
            self.block_for(Some(statement))?;
            if let Some(block) = &mut self.block {
                block.statements += 1;
            }
            let planned = self.plan(&prepared)?;
            portal.done = true;
            let (Some(_), true) = (limit, planned.columns.is_some()) else {
                let alone = !matches!(statement, Parsed::Copy(_))
                    && self.block.as_ref().is_some_and(|block| !block.explicit && block.statements == 1);
                let mut planned = Some(planned);
                let Tag(tag) = self.try_again(alone, client, |session, client| {
                    let planned = match planned.take() {
                        Some(planned) => planned,
                        None => {
                            session.block_for_statement()?;
                            session.plan(&prepared)?
                        }
                    };
                    let rows = Rows::Client(&portal.formats);
                    session.run(&prepared, &planned, &portal.parameters, rows, client)
                })?;
                return Ok(client.command_complete(tag));
            };
            let mut kept = Collected::within(&self.state.statement_memory());
            let Tag(tag) = self.run(&prepared, &planned, &portal.parameters, Rows::Kept(&mut kept), client)?;
            portal.rows = Some(cursor::Rows::new(planned, kept, tag, true));
        }
        let view = super::view::View::new(&self.shared, &self.state);
        let context = self.state.context(Some(&view), self.begun());
        let Some(rows) = &mut portal.rows else { return Err(SqlError::internal("a portal without rows")) };
        let planned = Arc::clone(&rows.planned);
        let columns = planned.columns.as_deref().unwrap_or_default();
        let mut wire = Wire::new(client, &self.state.memory, columns, &portal.formats);
        let mut left = limit.map_or(u64::MAX, |limit| u64::from(limit.get()));
        let mut given = 0_u64;
        while left > 0 {
            let Some(row) = rows.next() else { break };
            wire.one(&row, &context)?;
            left -= 1;
            given += 1;
        }
        if left == 0 && rows.left() > 0 {
            return Ok(client.portal_suspended());
        }
        let tag = match rows.tag.split_once(' ') {
            Some(("SELECT", _)) => format!("SELECT {given}"),
            _ => rows.tag.clone(),
        };
        if portal.declared.is_none() {
            rows.finish();
        }
        Ok(client.command_complete(tag))
    }
}

impl postgres::Session for Session<'_> {
    fn keeps_input(&mut self, bytes: usize) -> Result<(), Report> {
        self.input.get_or_insert_with(|| self.state.memory.reserve()).set(bytes).map_err(report)
    }

    fn has_begun(&self) -> bool {
        !self.held_up.refused || self.held_up.committed
    }

    fn simple_query(&mut self, sql: &str, client: &mut Client<'_>) -> Result<(), Report> {
        self.note_statement(shown(sql).into());
        let outcome =
            Account::of(self).contained(|| self.statements_of(sql, client).map_err(|error| self.when_kept(error)));
        self.disarm();
        self.several = false;
        self.tally.ends(outcome.is_ok());
        self.note_rest();
        outcome?;
        self.held_up = HeldUp::default();
        self.deliver_notifications(client)
    }

    fn parse(&mut self, name: &str, sql: &str, types: Types<'_>, out: &mut Out) -> Result<(), Report> {
        self.arm();
        self.note_message();
        if !name.is_empty() && self.statements.contains_key(name) {
            let message = format!("prepared statement \"{name}\" already exists");
            return Err(report(SqlError::new(SqlState::new("42P05"), message)));
        }
        // The same text again: its plan may still hold, unless it would mean something else now.
        if name.is_empty()
            && types.is_empty()
            && let Some(there) = self.statements.get("")
            // No portal relies on what was told of it before.
            && Arc::strong_count(there) == 1
            && there.sql == sql
            && there.given.is_empty()
            && there.means_the_same(&self.state.settings.ready)
        {
            there.prepare_again();
            return Ok(());
        }
        if name.is_empty() {
            // It is gone also when the new one is not understood.
            self.statements.remove("");
        }
        Account::of(self).contained(|| {
            // What planning takes besides what is kept is given back behind it.
            let kept = self.state.statement_memory().reserve();
            let prepared = Arc::new(self.understand(sql, types, &kept, out)?.kept_in(&self.state.memory)?);
            if self.transaction_status() == TransactionStatus::Failed {
                if prepared.statement.as_ref().is_some_and(|statement| !statement.is_transaction_control()) {
                    self.block_for_statement()?;
                }
            } else {
                self.planned(&prepared)?;
            }
            self.statements.insert(name.to_owned(), prepared);
            Ok(())
        })
    }

    fn bind(&mut self, bind: &Bind<'_>, _: &mut Out) -> Result<(), Report> {
        self.arm();
        self.note_message();
        let prepared = self.statement_named(bind.statement).map_err(report)?;
        let parameters = if bind.values.is_empty()
            && prepared.given.is_empty()
            && prepared.statement.as_ref().is_none_or(Parsed::is_transaction_control)
        {
            Vec::new()
        } else {
            Account::of(self).contained(|| self.bind_values(&prepared, bind))?
        };
        if !bind.portal.is_empty() && self.portals.contains_key(bind.portal) {
            let message = format!("portal \"{}\" already exists", bind.portal);
            return Err(report(SqlError::new(SqlState::DUPLICATE_CURSOR, message)));
        }
        let kept = self.state.memory.reserve();
        kept.take_values(&parameters).map_err(report)?;
        let formats: Vec<Format> = bind.results.iter().collect();
        let made = if bind.portal.is_empty() { Timestamp(0) } else { Timestamp::now() };
        let portal =
            Portal { prepared, parameters, formats, rows: None, done: false, made, declared: None, _kept: kept };
        self.portals.insert(bind.portal.to_owned(), portal);
        Ok(())
    }

    fn describe_statement(&mut self, name: &str, out: &mut Out) -> Result<Described, Report> {
        self.note_message();
        let prepared = self.statement_named(name).map_err(report)?;
        let planned = Account::of(self).contained(|| self.planned(&prepared))?;
        let types: Vec<u32> = planned.parameters.iter().map(|ty| ty.kind().oid()).collect();
        out.parameter_description(&types);
        self.describe(&planned, &[], out).map_err(report)
    }

    fn describe_portal(&mut self, name: &str, out: &mut Out) -> Result<Described, Report> {
        self.note_message();
        let portal = self.portals.get(name).ok_or_else(|| {
            report(SqlError::new(SqlState::INVALID_CURSOR_NAME, format!("portal \"{name}\" does not exist")))
        })?;
        let (prepared, formats) = (Arc::clone(&portal.prepared), portal.formats.clone());
        let planned = Account::of(self).contained(|| self.planned(&prepared))?;
        self.describe(&planned, &formats, out).map_err(report)
    }

    fn execute(
        &mut self,
        portal: &str,
        limit: Option<NonZeroU32>,
        client: &mut Client<'_>,
    ) -> Result<Executed, Report> {
        Account::of(self)
            .contained(|| self.execute_portal(portal, limit, client).map_err(|error| self.when_kept(error)))
    }

    fn close_statement(&mut self, name: &str) -> Result<(), Report> {
        if let Some(prepared) = self.statements.remove(name) {
            self.portals.retain(|_, portal| !Arc::ptr_eq(&portal.prepared, &prepared));
        }
        Ok(())
    }

    fn close_portal(&mut self, name: &str) -> Result<(), Report> {
        self.portals.remove(name);
        Ok(())
    }

    fn sync(&mut self, out: &mut Out) -> Result<(), Report> {
        self.arm();
        let ended = Account::of(self).contained(|| self.end_of_statement(out));
        self.disarm();
        self.held_up = HeldUp::default();
        ended?;
        if self.block.is_none() {
            self.forget_portals();
        }
        self.note_rest();
        self.deliver_notifications(out)
    }

    fn write_settings(&mut self, out: &mut Out) {
        let standby = self.shared.is_standby();
        if self.standby != standby {
            self.standby = standby;
            self.state.settings.fix("in_hot_standby", if standby { "on" } else { "off" });
        }
        out.speak(self.state.settings.ready.encoding);
        self.reported.changed(&self.state.settings, |name, value| out.parameter_status(name, value));
    }

    fn notes(&mut self, notes: &mut Vec<Note>) {
        self.note_moves(notes);
    }

    fn catch_up(&mut self, ask: &Ask, out: &mut Out) -> Result<(), Report> {
        self.arm();
        let done = self.take_changes(ask, out).inspect_err(|cause| {
            tracing::debug!(cause = cause.message(), "a session does not do here what it does elsewhere");
        });
        self.disarm();
        self.note_rest();
        done
    }

    fn begin_again(&mut self, moved: &Moved, out: &mut Out) -> Result<(), Report> {
        self.take_moved(moved, out)
    }

    fn failed(&mut self, why: &Report) {
        self.count_failure(why);
        self.held_up = HeldUp::default();
        self.disarm();
        self.fail();
        self.note_rest();
    }

    fn ends(&mut self, how: Ending) {
        self.count_last(how);
    }

    fn status(&self) -> TransactionStatus {
        self.transaction_status()
    }

    fn interrupt(&self) -> Arc<dyn Interrupt> {
        Arc::clone(&self.state.flag) as _
    }

    fn idle_limit(&self) -> Option<Duration> {
        let limit = self.idle_until().map(|until| until.saturating_duration_since(Instant::now()));
        // What it holds may be condemned in the meantime.
        let look = self.holds_snapshot().then_some(LOOK_AFTER);
        limit.into_iter().chain(look).min()
    }

    fn idle_too_long(&mut self) -> Option<Report> {
        self.give_up_condemned();
        if self.idle_until().is_none_or(|until| Instant::now() < until) {
            return None;
        }
        if self.state.flag.deadline().is_some() {
            return self.state.flag.check().err().map(report);
        }
        Some(postgres::idle_report(self.transaction_status()))
    }

    fn rung(&mut self, out: &mut Out) -> Result<(), Report> {
        self.deliver_notifications(out)
    }

    fn flushes(&self) -> bool {
        true
    }
}
