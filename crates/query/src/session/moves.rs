//! What a session takes along when its client's node hands it on to another primary: settings and
//! prepared statements. And what keeps it from that.

use std::{
    collections::{BTreeSet, HashMap},
    ops::Deref,
    sync::Arc,
};

use freshet_postgres::{
    Moved, Note, Out, Report, Session as _, TransactionStatus, Types,
    route::{LONGEST, Statement, size_of},
};
use freshet_sql::Type;

use super::{Session, prepare::Prepared, wire::report};

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

/// What of a session the node knows that has handed it on.
#[derive(Default)]
pub(super) struct Noted {
    settings: u64,
    generation: u64,
    statements: HashMap<String, Arc<Prepared>>,
    bound: Option<&'static str>,
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
        self.handed = Some(noted);
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
    /// When a setting cannot be what it was.
    pub(super) fn take_moved(&mut self, moved: &Moved, out: &mut Out) -> Result<(), Report> {
        for (name, value) in &moved.settings {
            self.set(name, Some(value), false, out).map_err(report)?;
        }
        for Statement { name, sql, types, by_sql } in &moved.statements {
            let types: Vec<[u8; 4]> = types.iter().map(|oid| oid.to_be_bytes()).collect();
            if let Err(cause) = self.parse(name, sql, Types::of(&types), out) {
                tracing::debug!(statement = name, cause = cause.message(), "a prepared statement is not moved");
                self.failed();
            } else if let Some(mut prepared) = self.statements.remove(name) {
                if let Some(prepared) = Arc::get_mut(&mut prepared) {
                    prepared.by_sql.clone_from(by_sql);
                }
                self.statements.insert(name.clone(), prepared);
            }
        }
        self.sync(out)
    }
}
