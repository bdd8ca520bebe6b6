//! Cursors: a query's rows, kept, and a place among them.
//!
//! A cursor finds all its rows when it is declared, so it shows what there was then, whatever is
//! done later, and one WITH HOLD has nothing more to do when its transaction commits.

use std::{ops::ControlFlow, sync::Arc};

use freshet_engine::Rid;
use freshet_postgres::{Client, Format};
use freshet_sql::{SqlError, SqlState, Type, Value, general::ResultColumn, memory::Reservation, types::Timestamp};
use sqlparser::ast::Statement;

use super::{
    Portal, Session,
    parse::Parsed,
    prepare::{Planned, Prepared},
    statement::{Rows as To, Tag},
    syntax::{Cursor, Declare, Direction, SessionStatement},
};
use crate::{
    bind::select::Output,
    execute::{Sink, modify::Collected},
    expression::{Environment, Source, no_cursor},
    schema::{Oid, Table},
};

/// The rows of a portal, and where it stands among them.
pub(super) struct Rows {
    /// The plan that has found them.
    pub planned: Arc<Planned>,
    /// All of them; empty ones where they were given and are not needed again.
    rows: Vec<Vec<Value>>,
    /// On which row it stands, from 1; 0 before the first, and behind the last one more than there
    /// are.
    at: usize,
    /// What its statement has done.
    pub tag: String,
    /// Whether rows that were given are dropped.
    once: bool,
    /// Going somewhere has failed, after which PostgreSQL's cursors are of no more use.
    failed: bool,
    /// The memory of the rows, counted for as long as they live.
    kept: Option<Reservation>,
    /// The records that each row is made of, for WHERE CURRENT OF: as many as there are tables.
    records: Vec<Rid>,
    /// The tables that they are of, and whether they are locked.
    tables: Vec<(Oid, bool)>,
}

/// The rows that a cursor finds, and the records that they are made of.
struct Found {
    rows: Collected,
    records: Vec<Rid>,
}

impl Found {
    fn note(&mut self, records: &mut dyn Iterator<Item = Rid>) -> Result<(), SqlError> {
        let before = self.records.len();
        self.records.extend(records);
        let bytes = (self.records.len() - before) * size_of::<Rid>();
        self.rows.1.as_ref().map_or(Ok(()), |kept| kept.take(bytes))
    }
}

impl Sink for Found {
    fn row(
        &mut self,
        output: &[Output],
        rows: &[Source<'_>],
        environment: &Environment<'_>,
    ) -> Result<ControlFlow<()>, SqlError> {
        let record = |row: &Source<'_>| match row {
            Source::Stored(_, _, rid) => Some(*rid),
            _ => None,
        };
        self.note(&mut rows.iter().filter_map(record))?;
        self.rows.row(output, rows, environment)
    }

    fn values(&mut self, values: &[Value]) -> Result<ControlFlow<()>, SqlError> {
        self.rows.values(values)
    }

    fn records(&mut self, records: &mut dyn Iterator<Item = Rid>) -> Result<(), SqlError> {
        self.note(records)
    }
}

/// How a cursor was declared.
#[derive(Clone, Copy, Debug)]
pub(super) struct Declared {
    /// When.
    pub made: Timestamp,
    /// Whether it may go backward.
    pub scroll: bool,
    /// Whether it outlives its transaction.
    pub hold: bool,
    /// Whether it has.
    pub held: bool,
    /// Whether its rows are sent in binary.
    pub binary: bool,
    /// How many savepoints there were in its transaction.
    pub savepoints: usize,
}

impl Rows {
    /// Rows that a plan has found.
    pub fn new(planned: Arc<Planned>, found: Collected, tag: String, once: bool) -> Self {
        let (records, tables) = Default::default();
        Self { planned, rows: found.0, at: 0, tag, once, failed: false, kept: found.1, records, tables }
    }

    /// With the records that the rows are made of, if they are known of each.
    fn made_of(mut self, records: Vec<Rid>) -> Self {
        let tables = self.planned.read_by_cursor();
        if records.len() == self.rows.len() * tables.len() {
            (self.records, self.tables) = (records, tables);
        }
        self
    }

    /// The next row; nothing behind the last.
    pub fn next(&mut self) -> Option<Vec<Value>> {
        self.at = (self.at + 1).min(self.rows.len() + 1);
        let row = self.rows.get_mut(self.at - 1)?;
        Some(if self.once { std::mem::take(row) } else { row.clone() })
    }

    /// How many rows are still to come.
    pub fn left(&self) -> usize {
        self.rows.len().saturating_sub(self.at)
    }

    /// Nothing more is wanted of it.
    pub fn finish(&mut self) {
        (self.rows, self.at, self.kept, self.records) = (Vec::new(), 1, None, Vec::new());
    }

    /// Goes somewhere, by PostgreSQL's rules; returns the rows that it comes to on its way, from 1.
    /// Who only `moves` does not read them.
    ///
    /// # Errors
    /// 55000 when that is backward, and it may not go there.
    fn go(&mut self, direction: Direction, scroll: bool, moves: bool) -> Result<Vec<usize>, SqlError> {
        let count = self.rows.len();
        let forward_only = |backward: bool| match backward && !scroll {
            true => {
                let message = "cursor can only scan forward";
                Err(SqlError::new(SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE, message)
                    .with_hint("Declare it with SCROLL option to enable backward scan."))
            }
            false => Ok(()),
        };
        let magnitude = |number: i64| usize::try_from(number.unsigned_abs()).unwrap_or(usize::MAX);
        let on_row = (1..=count).contains(&self.at);
        match direction {
            // The row where it stands, again.
            Direction::Forward(0) | Direction::Relative(0) => {
                forward_only(on_row && !moves)?;
                Ok(if on_row { vec![self.at] } else { Vec::new() })
            }
            Direction::Forward(wanted) if wanted > 0 => {
                let last = self.at.saturating_add(magnitude(wanted));
                let way = self.at + 1..=last.min(count);
                self.at = last.min(count + 1);
                Ok(way.collect())
            }
            Direction::Forward(wanted) => {
                forward_only(true)?;
                let first = self.at.saturating_sub(magnitude(wanted));
                let way = first.max(1)..self.at;
                self.at = first;
                Ok(way.rev().collect())
            }
            Direction::Absolute(_) | Direction::Relative(_) => {
                let to = match direction {
                    Direction::Absolute(number) if number >= 0 => magnitude(number),
                    Direction::Absolute(number) => (count + 1).saturating_sub(magnitude(number)),
                    Direction::Relative(number) if number > 0 => self.at.saturating_add(magnitude(number)),
                    Direction::Relative(number) | Direction::Forward(number) => {
                        self.at.saturating_sub(magnitude(number))
                    }
                };
                let back = matches!(direction, Direction::Absolute(number) if number < 0)
                    || matches!(direction, Direction::Relative(number) if number < 0)
                    || to <= self.at && self.at > 0;
                forward_only(back)?;
                self.at = to.min(count + 1);
                Ok(if (1..=count).contains(&to) { vec![to] } else { Vec::new() })
            }
        }
    }
}

impl Portal {
    /// Whether it runs something that finds rows, and not a statement about the session.
    fn is_query(&self) -> bool {
        matches!(self.prepared.statement, Some(Parsed::Sql(_)))
    }

    /// The record of a table that is in the row on which this cursor stands, as PostgreSQL finds
    /// it.
    ///
    /// # Errors
    /// 24000
    pub(super) fn current(&self, name: &str, table: &Table) -> Result<Rid, SqlError> {
        let wrong = |what: String| SqlError::new(SqlState::INVALID_CURSOR_STATE, format!("cursor \"{name}\" {what}"));
        if self.declared.is_some_and(|declared| declared.held) {
            return Err(wrong("is held from a previous transaction".to_owned()));
        }
        let rows = self.rows.as_ref().ok_or_else(|| no_cursor(name))?;
        let locked = rows.tables.iter().any(|(_, locked)| *locked);
        let candidates = rows.tables.iter().enumerate();
        let mut candidates = candidates.filter(|(_, (oid, mark))| *oid == table.oid && *mark == locked);
        let called = &table.name;
        let place = match (candidates.next(), candidates.next()) {
            (Some((place, _)), None) if locked || rows.tables.len() == 1 => place,
            (None, _) if locked => {
                return Err(wrong(format!("does not have a FOR UPDATE/SHARE reference to table \"{called}\"")));
            }
            (Some(_), Some(_)) if locked => {
                return Err(wrong(format!("has multiple FOR UPDATE/SHARE references to table \"{called}\"")));
            }
            _ => return Err(wrong(format!("is not a simply updatable scan of table \"{called}\""))),
        };
        let row = rows.at.checked_sub(1);
        let record = row.and_then(|row| rows.records.get(row * rows.tables.len() + place));
        record.copied().ok_or_else(|| wrong("is not positioned on a row".to_owned()))
    }
}

impl Session<'_> {
    /// What a statement about the session returns, if anything.
    ///
    /// # Errors
    /// When what a portal runs makes no sense any more.
    pub(super) fn session_columns(&self, statement: &SessionStatement) -> Result<Option<Vec<ResultColumn>>, SqlError> {
        Ok(match statement {
            SessionStatement::Setting(setting) => super::utility::setting_columns(setting),
            // A cursor that is not there may be when the statement runs.
            SessionStatement::Cursor(Cursor::Fetch(name, _)) => {
                match self.portals.get(name) {
                    Some(Portal { rows: Some(rows), .. }) => rows.planned.columns.clone(),
                    // One of the protocol's that was not run yet.
                    Some(portal) if portal.is_query() => self.plan(&portal.prepared)?.columns.clone(),
                    _ => None,
                }
            }
            _ => None,
        })
    }

    /// The formats in which a statement's rows are sent, where the client does not say.
    pub(super) fn formats_of(&self, statement: Option<&Parsed>) -> &'static [Format] {
        let Some(Parsed::Session(statement)) = statement else { return &[] };
        let SessionStatement::Cursor(Cursor::Fetch(name, _)) = &**statement else { return &[] };
        let binary = |portal: &Portal| portal.declared.is_some_and(|declared| declared.binary);
        if self.portals.get(name).is_some_and(binary) { &[Format::Binary] } else { &[] }
    }

    /// Runs a statement about cursors.
    ///
    /// # Errors
    /// What goes wrong.
    pub(super) fn cursor(
        &mut self,
        cursor: &Cursor,
        (types, values): (&[Type], &[Value]),
        to: To<'_>,
        client: &mut Client<'_>,
    ) -> Result<Tag, SqlError> {
        Ok(Tag(match cursor {
            Cursor::Declare(declared) => {
                if declared.hold {
                    self.state.must_not_read_for_others("DECLARE CURSOR WITH HOLD")?;
                }
                self.declare(declared, types, values, client)?;
                "DECLARE CURSOR".to_owned()
            }
            Cursor::Fetch(name, direction) => {
                let way = self.go(name, *direction, false, client)?;
                let portal = self.portals.get(name).ok_or_else(|| no_cursor(name))?;
                let rows = portal.rows.as_ref().ok_or_else(|| no_cursor(name))?;
                let columns = rows.planned.columns.as_deref().unwrap_or_default();
                let fetched = way.iter().filter_map(|place| rows.rows.get(place - 1)).map(Vec::as_slice);
                self.give_as(fetched, columns, to, client)?;
                format!("FETCH {}", way.len())
            }
            Cursor::Move(name, direction) => format!("MOVE {}", self.go(name, *direction, true, client)?.len()),
            Cursor::Close(None) => {
                self.portals.clear();
                "CLOSE CURSOR ALL".to_owned()
            }
            Cursor::Close(Some(name)) => {
                self.portals.remove(name).ok_or_else(|| no_cursor(name))?;
                "CLOSE CURSOR".to_owned()
            }
        }))
    }

    /// Finds the rows of a portal that the protocol's Bind has made, if nobody has yet.
    fn open_portal(&mut self, name: &str, client: &mut Client<'_>) -> Result<(), SqlError> {
        let Some(portal) = self.portals.get(name).filter(|portal| portal.rows.is_none()) else { return Ok(()) };
        // What would fetch from another portal in turn is none of these, so this is not recursive.
        if !portal.is_query() {
            let message = format!("portal \"{name}\" cannot be run");
            return Err(SqlError::new(SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE, message));
        }
        let (prepared, is_done) = (Arc::clone(&portal.prepared), portal.done);
        let planned = self.plan(&prepared)?;
        if planned.columns.is_none() {
            let message = format!("portal \"{name}\" cannot be run");
            return Err(SqlError::new(SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE, message));
        }
        let mut found = Collected::within(&self.state.statement_memory());
        let mut tag = String::new();
        // One that has given all its rows stands behind the last.
        if !is_done {
            let parameters = std::mem::take(&mut self.portals.get_mut(name).ok_or_else(|| no_cursor(name))?.parameters);
            Tag(tag) = self.run(&prepared, &planned, &parameters, To::Kept(&mut found), client)?;
        }
        let portal = self.portals.get_mut(name).ok_or_else(|| no_cursor(name))?;
        (portal.rows, portal.done) = (Some(Rows::new(planned, found, tag, true)), true);
        Ok(())
    }

    fn go(
        &mut self,
        name: &str,
        direction: Direction,
        moves: bool,
        client: &mut Client<'_>,
    ) -> Result<Vec<usize>, SqlError> {
        self.open_portal(name, client)?;
        let portal = self.portals.get_mut(name).ok_or_else(|| no_cursor(name))?;
        let scroll = portal.declared.is_some_and(|declared| declared.scroll);
        let rows = portal.rows.as_mut().ok_or_else(|| no_cursor(name))?;
        if rows.failed {
            let message = format!("portal \"{name}\" cannot be run");
            return Err(SqlError::new(SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE, message));
        }
        let way = rows.go(direction, scroll, moves);
        rows.failed = way.is_err();
        way
    }

    fn declare(
        &mut self,
        declared: &Declare,
        types: &[Type],
        values: &[Value],
        client: &mut Client<'_>,
    ) -> Result<(), SqlError> {
        let Declare { name, binary, scroll, hold, query } = declared;
        let explicit = self.block.as_ref().is_some_and(|block| block.explicit);
        if !hold && !explicit {
            let message = "DECLARE CURSOR can only be used in transaction blocks";
            return Err(SqlError::new(SqlState::NO_ACTIVE_SQL_TRANSACTION, message));
        }
        if self.portals.contains_key(name) {
            let message = format!("cursor \"{name}\" already exists");
            return Err(SqlError::new(SqlState::DUPLICATE_CURSOR, message));
        }
        let statement = Some(Parsed::sql(Statement::Query(query.clone())));
        let given = types.iter().copied().map(Some).collect();
        let prepared = Prepared::new(&self.cursor_text(declared), statement, given);
        let prepared = Arc::new(prepared.kept_in(&self.state.memory)?);
        let planned = self.plan(&prepared)?;
        let unsupported = |what: &str, why: &str| {
            let message = format!("DECLARE {what} ... FOR UPDATE is not supported");
            Err(SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, message).with_detail(why.to_owned()))
        };
        if planned.locks() {
            match (hold, scroll) {
                (true, _) => return unsupported("CURSOR WITH HOLD", "Holdable cursors must be READ ONLY."),
                (_, Some(true)) => return unsupported("SCROLL CURSOR", "Scrollable cursors must be READ ONLY."),
                _ => {}
            }
        }
        let rows = Collected::within(&self.state.statement_memory());
        let mut found = Found { rows, records: Vec::new() };
        let Tag(tag) = self.run(&prepared, &planned, values, To::Kept(&mut found), client)?;
        let declared = Declared {
            made: prepared.made,
            scroll: scroll.unwrap_or(!planned.locks()),
            hold: *hold,
            held: false,
            binary: *binary,
            savepoints: self.block.as_ref().map_or(0, super::Block::savepoint_count),
        };
        let rows = Rows::new(planned, found.rows, tag, scroll == &Some(false)).made_of(found.records);
        if !rows.records.is_empty()
            && let Some(transaction) = self.block.as_ref().and_then(|block| block.transaction.as_ref())
        {
            // The ids of its records must not become those of others.
            transaction.hold_snapshot();
        }
        let rows = Some(rows);
        let (parameters, formats) = Default::default();
        let _kept = self.state.memory.reserve();
        let (made, declared) = (declared.made, Some(declared));
        let portal = Portal { prepared, parameters, formats, rows, done: true, made, declared, _kept };
        self.portals.insert(name.clone(), portal);
        Ok(())
    }

    /// DECLARE as `pg_cursors` shows it.
    fn cursor_text(&self, declared: &Declare) -> String {
        let Declare { name, binary, scroll, hold, query } = declared;
        let scroll = match scroll {
            None => "",
            Some(true) => "SCROLL ",
            Some(false) => "NO SCROLL ",
        };
        let binary = if *binary { "BINARY " } else { "" };
        let hold = if *hold { "WITH HOLD " } else { "" };
        format!("DECLARE {} {binary}{scroll}CURSOR {hold}FOR {query};", freshet_sql::functions::quote_identifier(name))
    }

    /// The transaction ends: its portals go, except cursors that outlive it.
    pub(super) fn end_portals(&mut self, committed: bool) {
        if self.portals.is_empty() {
            return;
        }
        self.portals.retain(|_, portal| match &mut portal.declared {
            Some(declared) => {
                declared.held |= declared.hold && committed;
                declared.held
            }
            None => portal.rows.is_none(),
        });
    }

    /// Portals of messages go, cursors stay.
    pub(super) fn forget_portals(&mut self) {
        self.portals.retain(|_, portal| portal.declared.is_some());
    }

    /// This many savepoints are left of those that there were; the others were released, or rolled
    /// back with what was declared behind them.
    pub(super) fn savepoints_left(&mut self, left: usize, rolled_back: bool) {
        self.portals.retain(|_, portal| match &mut portal.declared {
            Some(declared) if !declared.held && declared.savepoints > left => {
                declared.savepoints = left;
                !rolled_back
            }
            _ => true,
        });
    }
}
