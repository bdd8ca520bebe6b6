//! Outcomes: whether a transaction was committed, for a client that does not know.
//!
//! A transaction that asks for a token writes it, when it commits, into a table of the engine,
//! `sql.outcomes`. So the token is there exactly if the transaction is, wherever the log is. That
//! it is *not* there says nothing by itself: the transaction may be open, its commit may be on its
//! way to a standby, or the row may have been removed. What decides is the token's *generation*,
//! which is another row of the table:
//!
//! | row | bytes | |
//! |---|---|---|
//! | a generation | 0, its number (4), a random number (4), the run (8), when it began (8) | tokens that were made in about ten minutes |
//! | a token | 1, the token (16) | a committed transaction |
//!
//! A token begins with the number and the random number of its generation, so one of another
//! database, of a log that was cut, or of a generation that was removed is known for what it is. A
//! generation is removed with one transaction, before its tokens are, and only when a later one
//! exists. No comparison of clocks decides what is answered, only how early rows are removed.
//!
//! A *run* is one primary's time, from when its process leads to its end. Each run has generations
//! of its own, and a run is over once the log has one of a later run: nothing of the former can
//! come behind that. So a node that shows a later run's generation, and not the token, knows that
//! the transaction was not committed, and that it never will be. A primary begins a generation
//! before it says so of a run before its own, and waits until that is committed: from then on no
//! failover goes back to a log that may have the transaction. Of its own run, the primary knows
//! which transactions are open.

use std::{
    collections::{HashSet, VecDeque},
    ops::{Bound, ControlFlow},
    sync::{
        Arc, Mutex, OnceLock,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant, SystemTime},
};

use freshet_engine::{
    Database, Direction, IndexDefinition, Isolation, KeyPart, Lsn, Record, Rid, Table, TableDefinition, Ticket,
    Transaction, Worker,
};
use freshet_sql::{SqlError, SqlState};

use crate::{
    error::{commit_error, read_error, write_error},
    locks::guard,
    wait::waiting,
};

mod row;
#[cfg(test)]
mod tests;

pub use row::Token;
use row::{Generation, KEY, Key};

/// The engine's table.
const TABLE: &str = "sql.outcomes";
/// How many tokens are looked for at most by who removes some.
const BATCH: usize = 256;
/// Among how many that ask for a token one removes tokens of former generations.
const EVERY: u64 = 64;

/// How many bytes tables may take for each token that is kept. It takes about 90 of them.
const BYTES: u64 = 1 << 10;

/// How much is kept.
#[derive(Clone, Copy, Debug)]
struct Limits {
    /// How many tokens there are at most where tables may take any memory; elsewhere [`BYTES`] says
    /// it. How many a run finds at its beginning is estimated.
    tokens: u64,
    /// How long a generation lasts.
    generation: Duration,
    /// How long a generation is kept when the next one has begun. Twice of what is promised: what a
    /// new primary finds is as old as its clock says.
    kept: Duration,
}

const LIMITS: Limits =
    Limits { tokens: 4 << 20, generation: Duration::from_secs(600), kept: Duration::from_secs(2 * 3600) };

/// What became of a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It is committed, as the node's safety level says.
    Committed,
    /// It was not committed, and never will be.
    Aborted,
    /// It is open, or its commit is not known to hold yet.
    InProgress,
    /// This standby does not know it yet.
    Unknown,
    /// Nothing is known of it any more, or it is no transaction of this database.
    Forgotten,
}

impl Outcome {
    /// Its word; none for what is forgotten.
    pub fn word(self) -> Option<&'static str> {
        match self {
            Self::Committed => Some("committed"),
            Self::Aborted => Some("aborted"),
            Self::InProgress => Some("in progress"),
            Self::Unknown => Some("unknown"),
            Self::Forgotten => None,
        }
    }
}

/// A generation of the table, on a primary.
#[derive(Clone, Copy, Debug)]
struct Known {
    generation: Generation,
    /// How old it was, and when.
    before: Duration,
    at: Instant,
}

impl Known {
    fn age(&self) -> Duration {
        self.before.saturating_add(self.at.elapsed())
    }
}

/// What a primary knows of the table.
#[derive(Debug, Default)]
struct State {
    loaded: bool,
    /// Oldest first.
    generations: VecDeque<Known>,
    /// The generation that new tokens are in: one of this run that is committed.
    current: Option<Known>,
    /// One that is to take its place.
    next: Option<(Known, Ticket)>,
    tokens: u64,
    /// Whether tokens of removed generations may be left.
    left: bool,
}

/// The outcomes of a node.
#[derive(Debug)]
pub struct Outcomes {
    database: Database,
    table: OnceLock<Arc<Table>>,
    limits: Limits,
    run: u64,
    /// Tokens of transactions that are open here.
    open: Mutex<HashSet<Token>>,
    state: Mutex<State>,
    /// One at a time needs a worker. Locked behind the state, if both are.
    working: Mutex<()>,
    /// One at a time removes rows.
    removing: Mutex<()>,
    asked: AtomicU64,
}

/// The token of a transaction that is open. When it goes, the transaction has ended.
#[derive(Debug)]
pub struct OpenToken {
    outcomes: Arc<Outcomes>,
    token: Token,
    committed: std::cell::Cell<bool>,
}

impl OpenToken {
    /// The token.
    pub fn token(&self) -> Token {
        self.token
    }

    /// Writes the token, in its transaction.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn write(&self, transaction: &Transaction<'_>) -> Result<(), SqlError> {
        transaction.insert(self.outcomes.table()?, &self.token.row()).map(drop).map_err(write_error)
    }

    /// The transaction has taken effect, and this is what the wait for its commit came to: an error
    /// has the token, if there is one.
    ///
    /// # Errors
    /// That.
    pub fn waited(open: Option<&Self>, waited: Result<(), SqlError>) -> Result<(), SqlError> {
        if let Some(open) = open {
            open.committed();
        }
        match (waited, open) {
            (Err(error), Some(open)) => Err(error.with_detail(format!("The transaction's token is {}.", open.token))),
            (waited, _) => waited,
        }
    }

    /// The transaction has taken effect.
    fn committed(&self) {
        self.committed.set(true);
    }
}

impl Drop for OpenToken {
    fn drop(&mut self) {
        if !self.committed.get() {
            let mut state = guard(&self.outcomes.state);
            state.tokens = state.tokens.saturating_sub(1);
        }
        guard(&self.outcomes.open).remove(&self.token);
    }
}

/// What a snapshot shows of a token.
enum Shown {
    Token,
    /// Its generation, and the run of the newest one.
    Generation(Generation, u64),
    /// No such generation: that is so for good, or one with its number may still come.
    Nothing(bool),
}

fn failed(cause: impl std::fmt::Display) -> SqlError {
    SqlError::new(SqlState::SYSTEM_ERROR, format!("cannot write which transactions are committed: {cause}"))
}

impl Outcomes {
    /// Those of a database.
    ///
    /// # Errors
    /// Without random numbers.
    pub fn new(database: Database) -> Result<Self, SqlError> {
        Self::within(database, LIMITS)
    }

    fn within(database: Database, limits: Limits) -> Result<Self, SqlError> {
        Ok(Self {
            database,
            table: OnceLock::new(),
            limits,
            run: getrandom::u64().map_err(failed)?,
            open: Mutex::default(),
            state: Mutex::default(),
            working: Mutex::default(),
            removing: Mutex::default(),
            asked: AtomicU64::new(0),
        })
    }

    /// Makes the table, on a primary that has none yet.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn make(&self) -> Result<(), SqlError> {
        if self.database.table(TABLE).is_none() {
            let key = IndexDefinition::new("sql.outcomes_key", true, &[KeyPart::bytes(0, KEY)]);
            self.database.define_table(&TableDefinition::new(TABLE, vec![key])).map(drop).map_err(failed)?;
        }
        Ok(())
    }

    /// On a node that leads now: begins a generation if others are there, so that standbys know the
    /// outcomes of earlier runs. Does not wait until it is committed.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn begin_run(&self) -> Result<(), SqlError> {
        let mut state = guard(&self.state);
        self.load(&mut state)?;
        if state.generations.is_empty() { Ok(()) } else { self.advance(&mut state, None) }
    }

    /// Removes what is old enough, a bounded part of it. Sessions that ask for tokens do so now and
    /// then; each new session calls this, for when none asks.
    pub fn clean(&self) {
        let advanced = {
            let mut state = guard(&self.state);
            if state.loaded && state.tokens > 0 { self.advance(&mut state, None) } else { Ok(()) }
        };
        if let Err(cause) = advanced.and_then(|()| self.remove()) {
            tracing::debug!(%cause, "old transaction tokens are not removed yet");
        }
    }

    /// A token for a transaction that is open. Blocks until its generation is committed, which is
    /// rare.
    ///
    /// # Errors
    /// 54000 when there are too many, what `interrupted` says, 57P03 when nothing is committed now.
    pub fn token(self: &Arc<Self>, interrupted: &dyn Fn() -> Result<(), SqlError>) -> Result<OpenToken, SqlError> {
        let generation = self.generation(interrupted)?;
        // Relaxed: a count that nothing depends on.
        let asked = self.asked.fetch_add(1, Ordering::Relaxed);
        if asked.is_multiple_of(EVERY) || guard(&self.state).tokens >= self.most() {
            self.clean();
        }
        let token = Token::new(generation, getrandom::u64().map_err(failed)?);
        {
            let mut state = guard(&self.state);
            if state.tokens >= self.most() {
                let message = format!("there are {} transaction tokens, as many as are kept", state.tokens);
                let hint = "Tokens are removed two hours after they were made. Ask for one where the outcome counts.";
                return Err(SqlError::new(SqlState::PROGRAM_LIMIT_EXCEEDED, message).with_hint(hint));
            }
            state.tokens += 1;
        }
        guard(&self.open).insert(token);
        Ok(OpenToken { outcomes: Arc::clone(self), token, committed: std::cell::Cell::new(false) })
    }

    /// What became of a transaction, as the newest state of this node shows it. Blocks until what
    /// is answered is committed.
    ///
    /// # Errors
    /// What `interrupted` says, 57P03 when nothing is committed now.
    pub fn outcome(&self, token: Token, interrupted: &dyn Fn() -> Result<(), SqlError>) -> Result<Outcome, SqlError> {
        let leads = self.leads();
        loop {
            // Before the snapshot: who has ended by then is in it, or was rolled back.
            if guard(&self.open).contains(&token) {
                return Ok(Outcome::InProgress);
            }
            let (shown, ticket) = self.look(token)?;
            let outcome = match shown {
                Shown::Token => Outcome::Committed,
                Shown::Nothing(true) if !leads => Outcome::Unknown,
                Shown::Nothing(_) => Outcome::Forgotten,
                Shown::Generation(generation, newest) if newest != generation.run => Outcome::Aborted,
                Shown::Generation(generation, _) if leads && generation.run == self.run => Outcome::Aborted,
                Shown::Generation(..) if leads => {
                    // From here on the newest one is of this run.
                    self.generation(interrupted)?;
                    continue;
                }
                Shown::Generation(..) => Outcome::Unknown,
            };
            self.wait(ticket, interrupted)?;
            return Ok(outcome);
        }
    }

    /// How many tokens there may be.
    fn most(&self) -> u64 {
        self.database.core().memory.limit().map_or(self.limits.tokens, |bytes| bytes / BYTES)
    }

    fn leads(&self) -> bool {
        self.database.core().snapshots.primary().is_some()
    }

    /// The generation that new tokens are in. Blocks until there is one.
    fn generation(&self, interrupted: &dyn Fn() -> Result<(), SqlError>) -> Result<Generation, SqlError> {
        let mut waited = None;
        loop {
            let ticket = {
                let mut state = guard(&self.state);
                self.load(&mut state)?;
                self.advance(&mut state, waited)?;
                match (state.current, state.next) {
                    (Some(current), _) => return Ok(current.generation),
                    (None, Some((_, ticket))) => ticket,
                    (None, None) => return Err(SqlError::internal("no generation of tokens has begun")),
                }
            };
            self.wait(ticket, interrupted)?;
            waited = Some(ticket.until);
        }
    }

    /// Takes the next generation into use when it is committed, as that whose end was `waited` for
    /// is, and begins another one when it is time.
    fn advance(&self, state: &mut State, waited: Option<Lsn>) -> Result<(), SqlError> {
        if let Some((next, ticket)) = state.next
            && (waited == Some(ticket.until) || self.database.outcome(ticket).is_some_and(|it| it.is_ok()))
        {
            (state.current, state.next) = (Some(next), None);
        }
        if state.next.is_none() && state.current.is_none_or(|it| it.age() >= self.limits.generation) {
            state.next = Some(self.begin(state)?);
        }
        Ok(())
    }

    /// Writes another generation.
    fn begin(&self, state: &mut State) -> Result<(Known, Ticket), SqlError> {
        let number = state.generations.back().map_or(Some(1), |last| last.generation.number.checked_add(1));
        let number = number.ok_or_else(|| failed("there were too many generations"))?;
        let nonce = getrandom::u32().map_err(failed)?;
        let generation = Generation::new(number, nonce, self.run, micros());
        let ticket = self.with_worker(|worker| {
            let transaction = worker.begin(Isolation::Snapshot);
            transaction.insert(self.table()?, &generation.row()).map_err(write_error)?;
            transaction.commit().map_err(commit_error)
        })?;
        let known = Known { generation, before: Duration::ZERO, at: Instant::now() };
        state.generations.push_back(known);
        Ok((known, ticket))
    }

    /// Finds what the table has, if that was not done yet.
    fn load(&self, state: &mut State) -> Result<(), SqlError> {
        if state.loaded {
            return Ok(());
        }
        let table = self.table()?;
        let (now, at) = (micros(), Instant::now());
        let mut found = Vec::new();
        let rows = self.with_worker(|worker| {
            let transaction = worker.begin_read_only();
            each(&transaction, table, &Generation::RANGE, Direction::Forward, |record| {
                found.push(Generation::of(record.row));
                ControlFlow::Continue(())
            })?;
            Ok(transaction.approximate_rows(table))
        })?;
        for generation in found {
            let generation = generation.ok_or_else(damaged)?;
            let before = Duration::from_micros(now.saturating_sub(generation.begun));
            state.generations.push_back(Known { generation, before, at });
        }
        state.tokens = state.tokens.saturating_add(rows);
        (state.loaded, state.left) = (true, true);
        Ok(())
    }

    /// Removes generations that are old enough, and some of the tokens of removed ones. Does
    /// nothing while another thread does that.
    fn remove(&self) -> Result<(), SqlError> {
        let Ok(_one) = self.removing.try_lock() else { return Ok(()) };
        let (old, first) = {
            let state = guard(&self.state);
            let nexts = state.generations.iter().skip(1).take(BATCH);
            let old = nexts.take_while(|next| next.age() >= self.limits.kept).count();
            let known = state.generations.iter().map(|it| it.generation);
            let Some(first) = known.clone().nth(old).filter(|_| old > 0 || state.left) else { return Ok(()) };
            (known.take(old).collect::<Vec<_>>(), first)
        };
        // The caller's transaction holds records: it does not wait for room.
        if !self.database.wait_for_room(Instant::now()) {
            return Ok(());
        }
        let tokens = self.with_worker(|worker| self.remove_rows(worker, &old, first))?;
        let mut state = guard(&self.state);
        state.generations.drain(..old.len());
        state.tokens = state.tokens.saturating_sub(tokens as u64);
        // A transaction that has lasted longer may add one: that goes with the next generation.
        state.left = tokens == BATCH;
        Ok(())
    }

    /// Removes these generations, and some tokens of those before `first`. Returns how many.
    fn remove_rows(&self, worker: &Worker, old: &[Generation], first: Generation) -> Result<usize, SqlError> {
        let (table, transaction) = (self.table()?, worker.begin(Isolation::Snapshot));
        let mut rids: Vec<Rid> = Vec::new();
        for generation in old {
            each(&transaction, table, &generation.range(), Direction::Forward, |record| {
                rids.push(record.rid);
                ControlFlow::Break(())
            })?;
        }
        let generations = rids.len();
        each(&transaction, table, &Token::before(first), Direction::Forward, |record| {
            rids.push(record.rid);
            if rids.len() - generations < BATCH { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        })?;
        let tokens = rids.len() - generations;
        for rid in rids {
            transaction.delete(table, rid).map_err(write_error)?;
        }
        let _ = transaction.commit().map_err(commit_error)?;
        Ok(tokens)
    }

    /// What the newest state shows, and what has to be committed before that is said.
    fn look(&self, token: Token) -> Result<(Shown, Ticket), SqlError> {
        self.with_worker(|worker| {
            let transaction = worker.begin_read_only();
            let Some(table) = self.found() else { return Ok((Shown::Nothing(true), transaction.seen())) };
            if transaction.get(table, 0, &token.row()).map_err(read_error)?.is_some() {
                return Ok((Shown::Token, transaction.seen()));
            }
            let first = |range: &[Key; 2], direction| {
                let mut found = None;
                each(&transaction, table, range, direction, |record| {
                    found = Some(Generation::of(record.row).ok_or_else(damaged));
                    ControlFlow::Break(())
                })?;
                found.transpose()
            };
            let newest = first(&Generation::RANGE, Direction::Backward)?;
            let shown = match (first(&token.generation(), Direction::Forward)?, newest) {
                (Some(generation), Some(newest)) if token.is_of(generation) => {
                    Shown::Generation(generation, newest.run)
                }
                (_, newest) => Shown::Nothing(newest.is_none_or(|it| it.number < token.number())),
            };
            Ok((shown, transaction.seen()))
        })
    }

    /// The table, if it is there: on a standby it comes when it is replayed.
    fn found(&self) -> Option<&Arc<Table>> {
        match self.table.get() {
            Some(table) => Some(table),
            None => {
                let table = self.database.table(TABLE)?;
                Some(self.table.get_or_init(|| table))
            }
        }
    }

    fn table(&self) -> Result<&Arc<Table>, SqlError> {
        self.found().ok_or_else(|| SqlError::internal("there is no table of outcomes"))
    }

    fn with_worker<T>(&self, work: impl FnOnce(&Worker) -> Result<T, SqlError>) -> Result<T, SqlError> {
        let _one = guard(&self.working);
        let worker = self.database.worker();
        work(&worker.map_err(|cause| SqlError::new(SqlState::TOO_MANY_CONNECTIONS, cause.to_string()))?)
    }

    fn wait(&self, ticket: Ticket, interrupted: &dyn Fn() -> Result<(), SqlError>) -> Result<(), SqlError> {
        match waiting(interrupted, |patience| self.database.wait_until(ticket, patience)) {
            Ok(()) => Ok(()),
            Err(open) => {
                let message = format!("what this node knows of transactions is not known to be committed: {open}");
                interrupted().and(Err(SqlError::new(SqlState::CANNOT_CONNECT_NOW, message)))
            }
        }
    }
}

/// Visits the rows of a range of keys, both included.
fn each<'t>(
    transaction: &'t Transaction<'_>,
    table: &Table,
    [from, to]: &[Key; 2],
    direction: Direction,
    mut visit: impl FnMut(Record<'t>) -> ControlFlow<()>,
) -> Result<(), SqlError> {
    let range = (Bound::Included(&from[..]), Bound::Included(&to[..]));
    transaction.scan(table, 0, range, direction, |_, record| visit(record)).map_err(read_error)
}

fn damaged() -> SqlError {
    SqlError::new(SqlState::DATA_CORRUPTED, "a row of sql.outcomes is damaged")
}

/// The time, in microseconds since 1970.
fn micros() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_micros()).unwrap_or(u64::MAX)
}
