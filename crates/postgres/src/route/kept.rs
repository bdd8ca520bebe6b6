//! What a node in the middle keeps of a session, to begin it again with the next primary; and what
//! others ask of it.

use std::{
    collections::BTreeMap,
    sync::atomic::{AtomicBool, Ordering},
};

use super::{LONGEST, Moved, Note, Statement, size_of};
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

/// What a session takes to the next primary.
#[derive(Default)]
pub(super) struct Kept {
    pub settings: Vec<(String, String)>,
    pub statements: BTreeMap<String, Statement>,
    /// What the statements take.
    bytes: usize,
    /// Why it cannot be moved.
    bound: Option<String>,
    /// It has had more than is kept.
    overflown: bool,
    /// The primary has said that what it has not answered was not begun.
    pub left: bool,
}

impl Kept {
    pub fn note(&mut self, note: Note) {
        match note {
            Note::Settings(settings) => self.settings = settings,
            Note::Bound(bound) => self.bound = bound,
            Note::Left { batch } => self.left = !batch,
            Note::Forgotten(name) => self.forget(&name),
            Note::Prepared(statement) => {
                self.forget(&statement.name);
                self.bytes += statement.size();
                self.statements.insert(statement.name.clone(), statement);
            }
        }
        if size_of(&self.settings) + self.bytes > LONGEST {
            // Once something is not known there is nothing to begin again with.
            *self = Self { overflown: true, bound: self.bound.take(), ..Self::default() };
        }
    }

    fn forget(&mut self, name: &str) {
        if let Some(statement) = self.statements.remove(name) {
            self.bytes -= statement.size();
        }
    }

    pub fn bound(&self) -> Option<&str> {
        match self.overflown {
            true => Some("its settings and prepared statements take too much"),
            false => self.bound.as_deref(),
        }
    }

    pub fn moved(&self) -> Moved {
        Moved { settings: self.settings.clone(), statements: self.statements.values().cloned().collect() }
    }
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
