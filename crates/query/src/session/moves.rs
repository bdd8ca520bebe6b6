//! What a session takes along when its client's node hands it on to another primary, or has it work
//! on two nodes: settings, prepared statements, numbers of sequences. And what keeps it from that.

use std::{
    collections::{BTreeSet, HashMap},
    ops::Deref,
    sync::Arc,
    time::{Duration, Instant},
};

use freshet_engine::{Lsn, Transaction};
use freshet_postgres::{
    Ask, Moved, Note, Out, Part, Report, Session as _, TransactionStatus, Types,
    route::{LONGEST, Modes, Statement, size_of},
};
use freshet_sql::{SqlError, SqlState, Type};

use super::{Session, State, prepare::Prepared, wire::report};

/// A session's prepared statements.
#[derive(Default)]
pub(super) struct Statements {
    by_name: HashMap<String, Arc<Prepared>>,
    /// Another one whenever one that has a name was added or removed.
    generation: u64,
}

impl Deref for Statements {
    type Target = HashMap<String, Arc<Prepared>>;

    fn deref(&self) -> &Self::Target {
        &self.by_name
    }
}

impl Statements {
    pub fn insert(&mut self, name: String, prepared: Arc<Prepared>) {
        self.generation += u64::from(!name.is_empty());
        self.by_name.insert(name, prepared);
    }

    pub fn remove(&mut self, name: &str) -> Option<Arc<Prepared>> {
        self.generation += u64::from(!name.is_empty());
        self.by_name.remove(name)
    }

    pub fn clear(&mut self) {
        self.generation += 1;
        self.by_name.clear();
    }
}

/// How long a session that begins on another node waits for what it has seen.
const SHOWN_WITHIN: Duration = Duration::from_secs(10);
/// The same on a standby, where another node is found sooner.
const SHOWN_BY_STANDBY_WITHIN: Duration = Duration::from_millis(250);

/// Whether what the client has sent since the last Sync, or the query that runs, was begun.
#[derive(Default)]
pub(super) struct HeldUp {
    /// Its transaction waited to begin, and that wait has failed.
    pub refused: bool,
    /// A transaction was committed before.
    pub committed: bool,
}

/// What of a session the node knows that has handed it on.
pub(super) struct Noted {
    part: Part,
    settings: u64,
    generation: u64,
    statements: HashMap<String, Arc<Prepared>>,
    bound: Option<&'static str>,
    modes: Modes,
    numbers: u64,
    /// What it has read or written is below this LSN, and the other node knows that of this one.
    seen: Lsn,
    seen_noted: Lsn,
}

impl Noted {
    /// Of a session that begins as this part of its client's.
    pub fn of(part: Part) -> Self {
        let (generation, statements, bound, modes, numbers) = Default::default();
        // Those from its start are told, too.
        let settings = u64::MAX;
        Self { part, settings, generation, statements, bound, modes, numbers, seen: Lsn::ZERO, seen_noted: Lsn::ZERO }
    }
}

impl Noted {
    fn sees(&mut self, until: Lsn) {
        self.seen = self.seen.max(until);
    }
}

impl Prepared {
    /// As it can be prepared again under this name.
    fn to_move(&self, name: &str) -> Statement {
        let given = || self.given.iter().map(|ty| ty.map_or(0, Type::oid)).collect();
        let types: Vec<u32> = self.parameters().into_iter().map(Type::oid).collect();
        let types = if types.is_empty() { given() } else { types };
        Statement { name: name.to_owned(), sql: self.sql.clone(), types, by_sql: self.by_sql.clone() }
    }
}

impl Session<'_> {
    /// Waits while transactions that would begin wait for a switch-over.
    ///
    /// # Errors
    /// As [`Shared::wait_to_begin`](crate::server::Shared::wait_to_begin).
    pub(super) fn wait_to_begin(&mut self) -> Result<(), SqlError> {
        let waited = self.shared.wait_to_begin(&|| self.check());
        self.held_up.refused = waited.is_err();
        waited
    }

    /// Why it cannot be moved now.
    fn bound(&self) -> Option<&'static str> {
        if !self.state.channels.listening().is_empty() {
            return Some("it listens to channels");
        }
        if self.portals.values().any(|portal| portal.declared.as_ref().is_some_and(|declared| declared.held)) {
            return Some("it has cursors that outlive their transactions");
        }
        if self.state.advisory.holds_as_session() {
            return Some("it holds advisory locks");
        }
        let by_sql = || self.statements.values().any(|prepared| prepared.by_sql.is_some());
        // Their texts are known as the server writes them.
        (!self.state.settings.ready.literals.standard && by_sql())
            .then_some("it has statements by PREPARE, and standard_conforming_strings is off")
    }

    /// What has changed since this was called last.
    pub(super) fn note_moves(&mut self, notes: &mut Vec<Note>) {
        let idle = self.transaction_status() == TransactionStatus::Idle;
        let mut bound = self.bound();
        let Some(mut noted) = self.handed.take() else { return };
        if idle && noted.settings != self.state.settings.generation {
            noted.settings = self.state.settings.generation;
            let settings = self.state.settings.to_move();
            if size_of(&settings) > LONGEST / 2 {
                bound = bound.or(Some("its settings take too much"));
            } else {
                notes.push(Note::Settings(settings));
            }
        }
        if noted.generation != self.statements.generation {
            noted.generation = self.statements.generation;
            self.note_statements(&mut noted, notes);
        }
        if self.statements.values().any(|prepared| prepared.sql.len() > LONGEST / 4) {
            bound = bound.or(Some("a prepared statement of it is too long"));
        }
        if noted.bound != bound {
            noted.bound = bound;
            notes.push(Note::Bound(bound.map(str::to_owned)));
        }
        if noted.numbers != self.state.sequences.generation() {
            noted.numbers = self.state.sequences.generation();
            notes.push(Note::Numbers(self.state.sequences.numbers()));
        }
        if noted.part != Part::Whole {
            self.note_part(&mut noted, notes);
        }
        self.handed = Some(noted);
    }

    /// What has changed that the other part has to know.
    fn note_part(&self, noted: &mut Noted, notes: &mut Vec<Note>) {
        let ready = &self.state.settings.ready;
        let modes = Modes { read_only: ready.read_only, serializable: ready.isolation == "serializable" };
        if std::mem::replace(&mut noted.modes, modes) != modes {
            notes.push(Note::Modes(modes));
        }
        let transaction = self.block.as_ref().and_then(|block| block.transaction.as_ref());
        noted.sees(transaction.map_or(Lsn::ZERO, Transaction::snapshot));
        if noted.seen_noted < noted.seen {
            noted.seen_noted = noted.seen;
            notes.push(Note::Seen(noted.seen.0));
        }
    }

    /// What its transaction sees is something that the session has seen.
    pub(super) fn note_view(&mut self) {
        if let Some(noted) = &mut self.handed
            && let Some(transaction) = self.block.as_ref().and_then(|block| block.transaction.as_ref())
        {
            noted.sees(transaction.snapshot());
        }
    }

    /// It has committed at this LSN, and that ends before `until`.
    pub(super) fn note_commit(&mut self, lsn: Lsn, until: Lsn) {
        self.state.last_commit = Some(lsn);
        if let Some(noted) = &mut self.handed {
            noted.sees(until);
        }
    }

    fn note_statements(&self, noted: &mut Noted, notes: &mut Vec<Note>) {
        let gone: BTreeSet<String> =
            noted.statements.keys().filter(|name| !self.statements.contains_key(*name)).cloned().collect();
        for name in gone {
            noted.statements.remove(&name);
            notes.push(Note::Forgotten(name));
        }
        for (name, prepared) in self.statements.iter().filter(|(name, _)| !name.is_empty()) {
            let known = noted.statements.get(name).is_some_and(|known| Arc::ptr_eq(known, prepared));
            if !known && prepared.sql.len() <= LONGEST / 4 {
                noted.statements.insert(name.clone(), Arc::clone(prepared));
                notes.push(Note::Prepared(prepared.to_move(name)));
            }
        }
    }

    /// Gives the session what it had elsewhere. A statement that cannot be prepared any more is
    /// left out: using it would fail, too.
    ///
    /// # Errors
    /// When a setting cannot be what it was, or the node does not show in time what it must.
    pub(super) fn take_moved(&mut self, moved: &Moved, out: &mut Out) -> Result<(), Report> {
        let patience = if self.state.reads_for_others { SHOWN_BY_STANDBY_WITHIN } else { SHOWN_WITHIN };
        self.wait_shown(moved.show, patience).map_err(report)?;
        for (name, value) in &moved.settings {
            self.set(name, Some(value), false, out).map_err(report)?;
        }
        self.state.sequences.take(&moved.numbers);
        self.prepare_moved(&moved.statements, out);
        self.sync(out)?;
        self.note_nothing();
        if let Some(noted) = self.handed.as_mut().filter(|noted| noted.part == Part::Writes) {
            // What other sessions had done by then its client may have heard of.
            noted.sees(self.shared.node.database().core().snapshots.current());
        }
        Ok(())
    }

    /// Has the session be as its client has made it on another node.
    ///
    /// # Errors
    /// As for [`Session::take_moved`].
    pub(super) fn take_changes(&mut self, ask: &Ask, out: &mut Out) -> Result<(), Report> {
        self.wait_shown(ask.show, ask.patience).map_err(report)?;
        if let Some(settings) = &ask.settings {
            self.take_settings(settings, out).map_err(report)?;
        }
        if let Some(numbers) = &ask.numbers {
            self.state.sequences.take(numbers);
        }
        for name in &ask.forget {
            self.statements.remove(name);
        }
        self.prepare_moved(&ask.prepare, out);
        self.sync(out)?;
        self.note_nothing();
        Ok(())
    }

    /// Waits until everything below this LSN can be seen here.
    fn wait_shown(&self, show: u64, patience: Duration) -> Result<(), SqlError> {
        match show.checked_sub(1) {
            None => Ok(()),
            Some(last) => self.shared.wait_visible(Lsn(last), Instant::now() + patience, &|| self.check()),
        }
    }

    /// Makes settings these, and all others what they were at the start.
    fn take_settings(&mut self, settings: &[(String, String)], out: &mut Out) -> Result<(), SqlError> {
        let there = self.state.settings.to_move();
        // As who it is it may set the most; roles are the last of them.
        for (name, _) in there.iter().rev() {
            self.set(name, None, false, out)?;
        }
        for (name, value) in settings {
            self.set(name, Some(value), false, out)?;
        }
        Ok(())
    }

    /// What the session has by now its client's node has told it.
    fn note_nothing(&mut self) {
        if let Some(noted) = &mut self.handed {
            noted.settings = self.state.settings.generation;
            noted.generation = self.statements.generation;
            noted.numbers = self.state.sequences.generation();
            let named = self.statements.iter().filter(|(name, _)| !name.is_empty());
            noted.statements = named.map(|(name, prepared)| (name.clone(), Arc::clone(prepared))).collect();
        }
    }

    fn prepare_moved(&mut self, statements: &[Statement], out: &mut Out) {
        for Statement { name, sql, types, by_sql } in statements {
            let types: Vec<[u8; 4]> = types.iter().map(|oid| oid.to_be_bytes()).collect();
            if let Err(cause) = self.parse(name, sql, Types::of(&types), out) {
                tracing::debug!(statement = name, cause = cause.message(), "a prepared statement is not moved");
                self.failed(&cause);
            } else if let Some(mut prepared) = self.statements.remove(name) {
                if let Some(prepared) = Arc::get_mut(&mut prepared) {
                    prepared.by_sql.clone_from(by_sql);
                }
                self.statements.insert(name.clone(), prepared);
            }
        }
    }
}

impl State {
    /// Fails in a session that reads for a client whose session is on another node as well: what
    /// this makes would stay here.
    ///
    /// # Errors
    /// 25006.
    pub fn must_not_read_for_others(&self, what: &str) -> Result<(), SqlError> {
        if !self.reads_for_others {
            return Ok(());
        }
        let message = format!("cannot execute {what} on a standby that reads for a session of freshet.route = any");
        let hint = "Do it before anything else in the transaction, or without READ ONLY: then the primary does it.";
        Err(SqlError::new(SqlState::READ_ONLY_SQL_TRANSACTION, message).with_hint(hint))
    }
}
