//! Sequences: where they stand, outside of transactions.
//!
//! What a sequence was made with is in the catalog, and part of transactions; where it stands is
//! kept in a table of the engine of its own, `sql.sequences`, by the number that the catalog's
//! entry has for it. That table is written by a worker of its own, so that a session whose
//! transaction is open can go on.
//!
//! Values are logged ahead: the table says how far values may have been given out, and memory how
//! far they were. A value is given out only when what was logged covers it durably, as the safety
//! level wants it; after a crash or a failover the sequence continues behind what was logged, so
//! no value comes twice, and some never come. The next range is logged before the last one is used
//! up, and grows while it is used up fast, so that hardly anybody ever waits.

use std::{
    cell::{Cell, RefCell},
    collections::HashMap,
    sync::{Arc, Mutex, OnceLock, PoisonError, RwLock},
    time::{Duration, Instant},
};

use freshet_engine::{Database, IndexDefinition, Isolation, KeyPart, ProcedureError, TableDefinition, Ticket, Worker};
use freshet_postgres::route::Numbers;
use freshet_sql::{SqlError, SqlState};

use crate::{
    error::{open_error, procedure_error},
    locks::guard,
    schema::{Oid, Sequence},
    wait::waiting,
};

const TABLE: &str = "sql.sequences";
/// How many values are logged ahead at least, and at most.
const LEAST: i64 = 32;
const MOST: i64 = 8192;
/// A range that was used up in less time is followed by a longer one.
const FAST: Duration = Duration::from_millis(100);
const ROW: usize = 17;

/// Where the sequences of a node stand.
#[derive(Debug)]
pub struct Sequences {
    database: Database,
    table: OnceLock<Arc<freshet_engine::Table>>,
    /// One at a time needs a worker.
    writing: Mutex<()>,
    states: RwLock<HashMap<u64, Arc<Mutex<State>>>>,
}

/// Where a sequence stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Position {
    /// The last value, or the first one.
    pub value: i64,
    /// Whether it was given out.
    pub called: bool,
}

/// A range of values that was logged and whose commit is under way.
#[derive(Clone, Copy, Debug)]
struct Ahead {
    range: (i64, i64),
    ticket: Ticket,
}

#[derive(Debug, Default)]
struct State {
    position: Option<Position>,
    /// The values that may be given out, both included; none if the first is larger.
    range: Option<(i64, i64)>,
    ahead: Option<Ahead>,
    /// How many values the next range has.
    batch: i64,
    logged: Option<Instant>,
}

/// What a session remembers of sequences.
#[derive(Debug, Default)]
pub struct SessionSequences {
    known: RefCell<HashMap<u64, Arc<Mutex<State>>>>,
    last: RefCell<HashMap<Oid, i64>>,
    last_of_any: RefCell<Option<Oid>>,
    /// Another one after each change.
    generation: Cell<u64>,
}

/// What cannot be done.
const UNWRITTEN: &str = "cannot write where a sequence stands";

fn failed(cause: impl std::fmt::Display) -> SqlError {
    SqlError::new(SqlState::SYSTEM_ERROR, format!("{UNWRITTEN}: {cause}"))
}

fn row(state: u64, position: Position) -> [u8; ROW] {
    let mut row = [0; ROW];
    row[..8].copy_from_slice(&state.to_le_bytes());
    row[8..16].copy_from_slice(&position.value.to_le_bytes());
    row[16] = position.called.into();
    row
}

fn position(row: &[u8]) -> Option<Position> {
    let value = i64::from_le_bytes(*row.get(8..)?.first_chunk()?);
    Some(Position { value, called: *row.get(16)? != 0 })
}

impl Sequences {
    /// The sequences of a database.
    pub fn new(database: Database) -> Self {
        Self { database, table: OnceLock::new(), writing: Mutex::default(), states: RwLock::default() }
    }

    /// Makes the table, on a primary that has none yet.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn make(&self) -> Result<(), SqlError> {
        if self.database.table(TABLE).is_none() {
            let key = IndexDefinition::new("sql.sequences_key", true, &[KeyPart::unsigned(0, 8)]);
            self.database.define_table(&TableDefinition::new(TABLE, vec![key])).map(drop).map_err(failed)?;
        }
        Ok(())
    }

    fn table(&self) -> Result<&Arc<freshet_engine::Table>, SqlError> {
        if let Some(table) = self.table.get() {
            return Ok(table);
        }
        let table = self.database.table(TABLE).ok_or_else(|| SqlError::internal("there is no table for sequences"))?;
        table.give_reserve();
        Ok(self.table.get_or_init(|| table))
    }

    fn state(&self, number: u64) -> Arc<Mutex<State>> {
        let known = self.states.read().unwrap_or_else(PoisonError::into_inner).get(&number).cloned();
        known.unwrap_or_else(|| {
            let mut states = self.states.write().unwrap_or_else(PoisonError::into_inner);
            Arc::clone(states.entry(number).or_default())
        })
    }

    fn with_worker<T>(&self, work: impl FnOnce(&Worker) -> Result<T, SqlError>) -> Result<T, SqlError> {
        let _one = guard(&self.writing);
        let worker = self.database.worker();
        work(&worker.map_err(|cause| SqlError::new(SqlState::TOO_MANY_CONNECTIONS, cause.to_string()))?)
    }

    fn read(&self, number: u64) -> Result<Option<Position>, SqlError> {
        let table = self.table()?;
        self.with_worker(|worker| {
            let transaction = worker.begin_read_only();
            let found = transaction.get(table, 0, &number.to_be_bytes()).map_err(crate::error::read_error)?;
            let damaged = || SqlError::new(SqlState::DATA_CORRUPTED, "a row of sql.sequences is damaged");
            found.map(|record| position(record.row).ok_or_else(damaged)).transpose()
        })
    }

    /// Logs where a sequence stands, without waiting until that is durable.
    fn log(&self, number: u64, position: Position) -> Result<Ticket, SqlError> {
        let table = self.table()?;
        let row = row(number, position);
        self.with_worker(|worker| {
            let logged = worker.execute(Isolation::Snapshot, |transaction| {
                let found = transaction.get(table, 0, &number.to_be_bytes())?.map(|record| record.rid);
                match found {
                    Some(rid) => transaction.update(table, rid, &row).map(drop)?,
                    None => transaction.insert(table, &row).map(drop)?,
                }
                Ok(())
            });
            match logged {
                Ok(((), ticket)) => Ok(ticket),
                Err(ProcedureError::Write(freshet_engine::WriteError::ReadOnly(_))) => Err(read_only("nextval")),
                Err(other) => Err(procedure_error(UNWRITTEN, other)),
            }
        })
    }

    fn wait(&self, ticket: Ticket, interrupted: &dyn Fn() -> Result<(), SqlError>) -> Result<(), SqlError> {
        match waiting(interrupted, |patience| self.database.wait_until(ticket, patience)) {
            Ok(()) => Ok(()),
            Err(open) => interrupted().and(Err(open_error(UNWRITTEN, &open))),
        }
    }

    fn check_primary(&self, function: &str) -> Result<(), SqlError> {
        match self.database.core().snapshots.primary() {
            Some(_) => Ok(()),
            None => Err(read_only(function)),
        }
    }

    fn load<'s>(&self, sequence: &Sequence, state: &'s mut State) -> Result<&'s mut Position, SqlError> {
        let position = match state.position {
            Some(position) => position,
            None => {
                let first = Position { value: sequence.start, called: false };
                self.read(sequence.state)?.unwrap_or(first)
            }
        };
        Ok(state.position.insert(position))
    }

    /// Gives out the next value. Blocks until what was logged covers it, which is rare.
    ///
    /// # Errors
    /// 2200H at the end of the sequence, 25006 on a standby, what ended the wait.
    pub fn next(&self, sequence: &Sequence, interrupted: &dyn Fn() -> Result<(), SqlError>) -> Result<i64, SqlError> {
        self.next_of(&self.state(sequence.state), sequence, interrupted)
    }

    fn next_of(
        &self,
        state: &Mutex<State>,
        sequence: &Sequence,
        interrupted: &dyn Fn() -> Result<(), SqlError>,
    ) -> Result<i64, SqlError> {
        let mut waited = None;
        loop {
            let mut state = guard(state);
            let position = *self.load(sequence, &mut state)?;
            if let Some(ahead) = state.ahead
                && (waited == Some(ahead.ticket.until)
                    || self.database.outcome(ahead.ticket).is_some_and(|it| it.is_ok()))
            {
                state.range = Some(match state.range {
                    // Both are one range, if they meet.
                    Some((low, high)) if sequence.increment > 0 && high.checked_add(1) == Some(ahead.range.0) => {
                        (low, ahead.range.1)
                    }
                    Some((low, high)) if sequence.increment < 0 && low.checked_sub(1) == Some(ahead.range.1) => {
                        (ahead.range.0, high)
                    }
                    _ => ahead.range,
                });
                state.ahead = None;
            }
            let value = successor(sequence, position)?;
            if let Some((low, high)) = state.range
                && (low..=high).contains(&value)
            {
                state.position = Some(Position { value, called: true });
                let (low, high) = match sequence.increment > 0 {
                    true => (value.saturating_add(1), high),
                    false => (low, value.saturating_sub(1)),
                };
                state.range = (low <= high && value != i64::MAX && value != i64::MIN).then_some((low, high));
                let left = (i128::from(high) - i128::from(low) + 1) / i128::from(sequence.increment).abs().max(1);
                if state.ahead.is_none() && left < i128::from(state.batch / 2) {
                    let last = if sequence.increment > 0 { high } else { low };
                    // At its end there is no more to log; and the session that needs it finds out
                    // if this fails.
                    if let Some(first) = last.checked_add(sequence.increment.signum())
                        && (sequence.minimum..=sequence.maximum).contains(&first)
                    {
                        let _ = self.log_ahead(sequence, &mut state, first);
                    }
                }
                return Ok(value);
            }
            self.check_primary("nextval")?;
            let ahead = match state.ahead {
                Some(ahead) if (ahead.range.0..=ahead.range.1).contains(&value) => ahead,
                _ => self.log_ahead(sequence, &mut state, value)?,
            };
            drop(state);
            self.wait(ahead.ticket, interrupted)?;
            waited = Some(ahead.ticket.until);
        }
    }

    /// Logs a range of values that begins with `first`.
    fn log_ahead(&self, sequence: &Sequence, state: &mut State, first: i64) -> Result<Ahead, SqlError> {
        let now = Instant::now();
        let least = LEAST.max(sequence.cache);
        let fast = state.logged.is_some_and(|logged| now - logged < FAST);
        state.batch = if fast { (state.batch * 2).clamp(least, MOST.max(least)) } else { least };
        state.logged = Some(now);
        let length = sequence.increment.saturating_mul(state.batch - 1);
        let last = first.saturating_add(length).clamp(sequence.minimum, sequence.maximum);
        let ticket = self.log(sequence.state, Position { value: last, called: true })?;
        let ahead = Ahead { range: (first.min(last), first.max(last)), ticket };
        state.ahead = Some(ahead);
        Ok(ahead)
    }

    /// Sets where a sequence stands, and blocks until that is durable.
    ///
    /// # Errors
    /// 22003 for a value that it cannot have, 25006 on a standby, what ended the wait.
    pub fn set(
        &self,
        sequence: &Sequence,
        position: Position,
        interrupted: &dyn Fn() -> Result<(), SqlError>,
    ) -> Result<(), SqlError> {
        if !(sequence.minimum..=sequence.maximum).contains(&position.value) {
            let (name, value) = (&sequence.name, position.value);
            let (minimum, maximum) = (sequence.minimum, sequence.maximum);
            let message =
                format!("setval: value {value} is out of bounds for sequence \"{name}\" ({minimum}..{maximum})");
            return Err(SqlError::new(SqlState::NUMERIC_VALUE_OUT_OF_RANGE, message));
        }
        self.check_primary("setval")?;
        let state = self.state(sequence.state);
        let ticket = {
            let mut state = guard(&state);
            let ticket = self.log(sequence.state, position)?;
            *state = State { position: Some(position), ..State::default() };
            ticket
        };
        self.wait(ticket, interrupted)
    }

    /// Where a sequence stands.
    ///
    /// # Errors
    /// When that cannot be read.
    pub fn position(&self, sequence: &Sequence) -> Result<Position, SqlError> {
        if self.database.core().snapshots.primary().is_none() {
            // What was replayed since is not known here.
            let first = Position { value: sequence.start, called: false };
            return Ok(self.read(sequence.state)?.unwrap_or(first));
        }
        let state = self.state(sequence.state);
        let mut state = guard(&state);
        self.load(sequence, &mut state).copied()
    }

    /// Forgets where sequences stood that are no more.
    ///
    /// # Errors
    /// When that cannot be written.
    pub fn forget(&self, numbers: &[u64]) -> Result<(), SqlError> {
        if numbers.is_empty() {
            return Ok(());
        }
        let table = self.table()?;
        {
            let mut states = self.states.write().unwrap_or_else(PoisonError::into_inner);
            numbers.iter().for_each(|number| drop(states.remove(number)));
        }
        self.with_worker(|worker| {
            let forgotten = worker.execute(Isolation::Snapshot, |transaction| {
                for number in numbers {
                    let found = transaction.get(table, 0, &number.to_be_bytes())?.map(|record| record.rid);
                    if let Some(rid) = found {
                        transaction.delete(table, rid)?;
                    }
                }
                Ok(())
            });
            forgotten.map(drop).map_err(failed)
        })
    }

    /// The numbers under which anything is kept.
    ///
    /// # Errors
    /// When they cannot be read.
    pub fn numbers(&self) -> Result<Vec<u64>, SqlError> {
        let table = self.table()?;
        self.with_worker(|worker| {
            let transaction = worker.begin_read_only();
            let mut numbers = Vec::new();
            let all = (std::ops::Bound::Unbounded, std::ops::Bound::Unbounded);
            let visit = |_: &[u8], record: freshet_engine::Record<'_>| {
                numbers.extend(record.row.first_chunk().copied().map(u64::from_le_bytes));
                std::ops::ControlFlow::Continue(())
            };
            let scanned = transaction.scan(table, 0, all, freshet_engine::Direction::Forward, visit);
            scanned.map_err(crate::error::read_error)?;
            Ok(numbers)
        })
    }
}

/// The value that comes next.
fn successor(sequence: &Sequence, position: Position) -> Result<i64, SqlError> {
    let (minimum, maximum) = (sequence.minimum, sequence.maximum);
    if !position.called {
        return Ok(position.value.clamp(minimum, maximum));
    }
    let next = position.value.checked_add(sequence.increment);
    match next {
        Some(next) if sequence.increment > 0 && next <= maximum => Ok(next.max(minimum)),
        Some(next) if sequence.increment < 0 && next >= minimum => Ok(next.min(maximum)),
        _ if sequence.cycle => Ok(if sequence.increment > 0 { minimum } else { maximum }),
        _ => {
            let (which, limit) = if sequence.increment > 0 { ("maximum", maximum) } else { ("minimum", minimum) };
            let message = format!("nextval: reached {which} value of sequence \"{}\" ({limit})", sequence.name);
            Err(SqlError::new(SqlState::SEQUENCE_GENERATOR_LIMIT_EXCEEDED, message))
        }
    }
}

fn read_only(function: &str) -> SqlError {
    let message = format!("cannot execute {function}() in a read-only transaction");
    SqlError::new(SqlState::READ_ONLY_SQL_TRANSACTION, message)
}

impl SessionSequences {
    /// Another one after each change of what currval and lastval give.
    pub fn generation(&self) -> u64 {
        self.generation.get()
    }

    /// What currval and lastval give.
    pub fn numbers(&self) -> Numbers {
        let values = self.last.borrow().iter().map(|(oid, value)| (*oid, *value)).collect();
        Numbers { values, last: *self.last_of_any.borrow() }
    }

    /// Has currval and lastval give these.
    pub fn take(&self, numbers: &Numbers) {
        *self.last.borrow_mut() = numbers.values.iter().copied().collect();
        *self.last_of_any.borrow_mut() = numbers.last;
        self.changed();
    }

    fn changed(&self) {
        self.generation.set(self.generation.get() + 1);
    }

    /// `nextval`: see [`Sequences::next`].
    ///
    /// # Errors
    /// As there.
    pub fn next(
        &self,
        sequences: &Sequences,
        sequence: &Sequence,
        interrupted: &dyn Fn() -> Result<(), SqlError>,
    ) -> Result<i64, SqlError> {
        let state = {
            let mut known = self.known.borrow_mut();
            Arc::clone(known.entry(sequence.state).or_insert_with(|| sequences.state(sequence.state)))
        };
        let value = sequences.next_of(&state, sequence, interrupted)?;
        self.last.borrow_mut().insert(sequence.oid, value);
        *self.last_of_any.borrow_mut() = Some(sequence.oid);
        self.changed();
        Ok(value)
    }

    /// `setval`: see [`Sequences::set`].
    ///
    /// # Errors
    /// As there.
    pub fn set(
        &self,
        sequences: &Sequences,
        sequence: &Sequence,
        position: Position,
        interrupted: &dyn Fn() -> Result<(), SqlError>,
    ) -> Result<i64, SqlError> {
        sequences.set(sequence, position, interrupted)?;
        if position.called {
            self.last.borrow_mut().insert(sequence.oid, position.value);
            self.changed();
        }
        Ok(position.value)
    }

    /// `currval`: the last value that this session got from a sequence.
    ///
    /// # Errors
    /// 55000 when it got none.
    pub fn current(&self, sequence: &Sequence) -> Result<i64, SqlError> {
        self.last.borrow().get(&sequence.oid).copied().ok_or_else(|| {
            let message = format!("currval of sequence \"{}\" is not yet defined in this session", sequence.name);
            SqlError::new(SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE, message)
        })
    }

    /// `lastval`: the last value that this session got from any sequence.
    ///
    /// # Errors
    /// 55000 when it got none.
    pub fn last(&self) -> Result<i64, SqlError> {
        let last = self.last_of_any.borrow().and_then(|oid| self.last.borrow().get(&oid).copied());
        last.ok_or_else(|| {
            SqlError::new(SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE, "lastval is not yet defined in this session")
        })
    }

    /// The sequence that this value is of.
    pub fn last_sequence(&self) -> Option<Oid> {
        *self.last_of_any.borrow()
    }

    /// Forgets everything: DISCARD SEQUENCES.
    pub fn discard(&self) {
        self.known.borrow_mut().clear();
        self.last.borrow_mut().clear();
        *self.last_of_any.borrow_mut() = None;
        self.changed();
    }
}
