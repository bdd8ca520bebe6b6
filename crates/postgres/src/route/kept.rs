//! What a node in the middle keeps of a session, to begin it again with the next primary; and what
//! others ask of it.

use std::{
    cell::OnceCell,
    collections::BTreeMap,
    sync::atomic::{AtomicBool, Ordering},
};

use super::{Ask, Asks, LONGEST, Modes, Moved, Note, Numbers, Statement, size_of as size_of_settings};
use crate::{
    backend::{Interrupt, Why},
    bell::Bell,
};

/// What others ask of a session while it is served elsewhere.
#[derive(Default)]
pub(super) struct Asked {
    pub canceled: AtomicBool,
    pub ending: AtomicBool,
    pub bell: Bell,
}

impl Interrupt for Asked {
    fn interrupt(&self, why: Why) {
        match why {
            Why::Canceled => self.canceled.store(true, Ordering::SeqCst),
            Why::Ending => self.ending.store(true, Ordering::SeqCst),
        }
        self.bell.ring();
    }

    fn ends(&self) -> bool {
        self.canceled.load(Ordering::SeqCst) || self.ending.load(Ordering::SeqCst)
    }

    fn clear(&self) {
        self.canceled.store(false, Ordering::SeqCst);
        self.ending.store(false, Ordering::SeqCst);
    }
}

/// A prepared statement of a session.
pub(super) struct Known {
    pub statement: Statement,
    /// The state of the session since when it is so.
    since: u64,
    /// What it asks for, once that was looked at.
    pub asks: OnceCell<Asks>,
}

/// What a session takes to the next primary.
#[derive(Default)]
pub(super) struct Kept {
    settings: Vec<(String, String)>,
    numbers: Numbers,
    pub statements: BTreeMap<String, Known>,
    /// What the statements take.
    bytes: usize,
    /// Why it cannot be moved.
    bound: Option<String>,
    /// It has had more than is kept.
    overflown: bool,
    /// The primary has said that what it has not answered was not begun.
    pub left: bool,
    /// How its transactions are that do not say it.
    pub modes: Modes,
    /// What it has read or written, and what it has read on standbys, is below these LSNs.
    pub seen: u64,
    pub seen_on_standbys: u64,
    /// Counts the changes of settings, numbers and statements.
    settings_state: u64,
    numbers_state: u64,
    statements_state: u64,
}

/// What one of the nodes knows of a session that works on two.
#[derive(Default)]
pub(super) struct Knows {
    settings_state: u64,
    numbers_state: u64,
    statements_state: u64,
    statements: BTreeMap<String, u64>,
    show: u64,
}

impl Kept {
    /// A session's part says something of itself; `knows` is what its node knows.
    pub fn note(&mut self, note: Note, reads: bool, knows: &mut Knows) {
        match note {
            Note::Settings(settings) if settings == self.settings => {}
            Note::Settings(settings) => {
                self.settings = settings;
                self.settings_state += 1;
                knows.settings_state = self.settings_state;
            }
            // Of what binds a session nothing is done where it only reads.
            Note::Bound(_) | Note::Left { .. } if reads => {}
            Note::Bound(bound) => self.bound = bound,
            Note::Left { batch } => self.left = !batch,
            Note::Numbers(numbers) => {
                self.numbers = numbers;
                self.numbers_state += 1;
                knows.numbers_state = self.numbers_state;
            }
            Note::Modes(modes) => self.modes = modes,
            Note::Seen(lsn) => {
                self.seen = self.seen.max(lsn);
                if reads {
                    self.seen_on_standbys = self.seen_on_standbys.max(lsn);
                    knows.show = knows.show.max(lsn);
                }
            }
            Note::Ready | Note::Declined => {}
            Note::Forgotten(name) => {
                self.forget(&name);
                self.statements_state += 1;
                knows.statements.remove(&name);
                knows.statements_state = self.statements_state;
            }
            Note::Prepared(statement) => {
                self.forget(&statement.name);
                self.bytes += statement.size();
                self.statements_state += 1;
                knows.statements_state = self.statements_state;
                knows.statements.insert(statement.name.clone(), self.statements_state);
                let known = Known { since: self.statements_state, asks: OnceCell::new(), statement };
                self.statements.insert(known.statement.name.clone(), known);
            }
        }
        if size_of_settings(&self.settings) + size_of_numbers(&self.numbers) + self.bytes > LONGEST {
            // Once something is not known there is nothing to begin again with.
            *self = Self { overflown: true, bound: self.bound.take(), ..Self::default() };
        }
    }

    fn forget(&mut self, name: &str) {
        if let Some(known) = self.statements.remove(name) {
            self.bytes -= known.statement.size();
        }
    }

    /// What a node has to be asked for that knows this, before the session works there; from then
    /// on it knows it.
    pub fn ask(&self, knows: &mut Knows, reads: bool) -> Ask {
        let mut ask = Ask { show: self.show(reads), ..Ask::default() };
        if knows.settings_state != self.settings_state {
            knows.settings_state = self.settings_state;
            ask.settings = Some(self.settings.clone());
        }
        if knows.numbers_state != self.numbers_state {
            knows.numbers_state = self.numbers_state;
            ask.numbers = Some(self.numbers.clone());
        }
        if knows.statements_state != self.statements_state {
            knows.statements_state = self.statements_state;
            let gone = knows
                .statements
                .extract_if(.., |name, since| self.statements.get(name).is_none_or(|known| known.since != *since));
            ask.forget = gone.map(|(name, _)| name).collect();
            for (name, known) in &self.statements {
                if knows.statements.insert(name.clone(), known.since) != Some(known.since) {
                    ask.prepare.push(known.statement.clone());
                }
            }
        }
        ask
    }

    /// What a node must show. A primary shows what it has shown itself.
    fn show(&self, reads: bool) -> u64 {
        if reads { self.seen } else { self.seen_on_standbys }
    }

    /// What a node knows where the session begins with [`Kept::moved`].
    pub fn known(&self) -> Knows {
        Knows {
            settings_state: self.settings_state,
            numbers_state: self.numbers_state,
            statements_state: self.statements_state,
            statements: self.statements.iter().map(|(name, known)| (name.clone(), known.since)).collect(),
            show: 0,
        }
    }

    /// Whether a node that knows this has to be asked for nothing.
    pub fn is_known(&self, knows: &Knows, reads: bool) -> bool {
        knows.settings_state == self.settings_state
            && knows.numbers_state == self.numbers_state
            && knows.statements_state == self.statements_state
            && knows.show >= self.show(reads)
    }

    /// Whether it has had more than is kept.
    pub fn is_overflown(&self) -> bool {
        self.overflown
    }

    pub fn bound(&self) -> Option<&str> {
        match self.overflown {
            true => Some("its settings and prepared statements take too much"),
            false => self.bound.as_deref(),
        }
    }

    pub fn moved(&self, reads: bool) -> Moved {
        let statements = self.statements.values().map(|known| known.statement.clone()).collect();
        let (settings, numbers) = (self.settings.clone(), self.numbers.clone());
        Moved { settings, statements, numbers, show: self.show(reads) }
    }
}
fn size_of_numbers(numbers: &Numbers) -> usize {
    numbers.values.len() * size_of::<(u32, i64)>()
}

/// Name and value of a setting that a primary reports.
pub(super) fn setting(body: &[u8]) -> Option<(String, String)> {
    let mut texts = body.split(|byte| *byte == 0);
    let mut text = || texts.next().map(|text| String::from_utf8_lossy(text).into_owned());
    Some((text()?, text()?))
}

/// A session's number and key.
pub(super) fn key_of(body: &[u8]) -> Option<(i32, Vec<u8>)> {
    let (pid, key) = body.split_first_chunk()?;
    Some((i32::from_be_bytes(*pid), key.to_vec()))
}

/// A field of an error.
pub(super) fn field(body: &[u8], letter: u8) -> Option<&[u8]> {
    let mut fields = body.split(|byte| *byte == 0);
    fields.find_map(|field| field.split_first().filter(|(first, _)| **first == letter)).map(|(_, text)| text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn statement(name: &str, sql: &str) -> Statement {
        Statement { name: name.to_owned(), sql: sql.to_owned(), types: Vec::new(), by_sql: None }
    }

    #[test]
    fn each_node_learns_what_has_changed_on_the_other_and_once() {
        let mut kept = Kept::default();
        let (mut primary, mut reader) = (kept.known(), kept.known());
        assert!(kept.is_known(&primary, false) && kept.is_known(&reader, true));
        let settings = vec![("a.b".to_owned(), "c".to_owned())];
        kept.note(Note::Settings(settings.clone()), false, &mut primary);
        kept.note(Note::Prepared(statement("s", "SELECT 1")), false, &mut primary);
        kept.note(Note::Numbers(Numbers { values: vec![(7, 8)], last: Some(7) }), false, &mut primary);
        kept.note(Note::Seen(100), false, &mut primary);
        assert!(kept.is_known(&primary, false), "it shows what it has shown");
        let ask = kept.ask(&mut reader, true);
        assert_eq!((ask.settings, ask.show), (Some(settings), 100));
        assert_eq!(ask.prepare, [statement("s", "SELECT 1")]);
        assert_eq!(ask.numbers.map(|numbers| numbers.last), Some(Some(7)));
        // What is known is not said once more, but for what has to be shown.
        assert_eq!(kept.ask(&mut reader, true), Ask { show: 100, ..Ask::default() });
        // And back: another statement of that name, and a later state.
        kept.note(Note::Forgotten("s".to_owned()), true, &mut reader);
        kept.note(Note::Prepared(statement("s", "SELECT 2")), true, &mut reader);
        kept.note(Note::Seen(200), true, &mut reader);
        assert!(!kept.is_known(&primary, false));
        let ask = kept.ask(&mut primary, false);
        assert_eq!((ask.forget, ask.prepare), (vec!["s".to_owned()], vec![statement("s", "SELECT 2")]));
        assert_eq!((ask.settings, ask.numbers, ask.show), (None, None, 200));
        assert_eq!(kept.ask(&mut reader, true), Ask { show: 200, ..Ask::default() });
    }

    #[test]
    fn a_session_that_has_too_much_is_bound() {
        let mut kept = Kept::default();
        let mut knows = kept.known();
        kept.note(Note::Bound(Some("it listens".to_owned())), true, &mut knows);
        assert_eq!(kept.bound(), None, "where it only reads nothing binds it");
        kept.note(Note::Numbers(Numbers { values: vec![(1, 1); LONGEST / 8], last: None }), false, &mut knows);
        assert!(kept.is_overflown() && kept.bound().is_some());
    }
}
