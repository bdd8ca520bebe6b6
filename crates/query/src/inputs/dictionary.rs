//! Words: what recorded transactions say again and again, templates of statements and surroundings,
//! under short numbers.
//!
//! The dictionary is a table of the engine, `sql.words`. So a log that uses a word has it, below,
//! and so has a checkpoint: a node that has the statements' tables has the words. A word is
//! entered when it is said for the second time, by a transaction of its own, and used by
//! transactions whose snapshot sees it. No word is ever changed or removed. Its number comes from
//! its letters, so every primary gives a word the same one, and a word whose number another has is
//! not entered.

use std::{
    collections::{HashMap, HashSet},
    sync::{Arc, Mutex, OnceLock, PoisonError, RwLock},
    time::Instant,
};

use freshet_engine::{Database, IndexDefinition, Isolation, KeyPart, Stamp, Table, TableDefinition, Transaction};

/// The engine's table. Its rows are a number in 4 bytes, and the word.
const TABLE: &str = "sql.words";
/// How many words one primary enters.
const MOST: usize = 16 << 10;
/// How many it has heard once and remembers.
const HEARD: usize = 16 << 10;
/// Longer words are not entered.
const LONGEST: usize = 4 << 10;
/// Numbers have this many bytes.
pub(super) const BYTES: usize = 3;

/// The number of a word.
pub(super) type Number = [u8; BYTES];

/// What a primary knows of a word.
#[derive(Clone, Copy, Debug)]
enum Known {
    /// Transactions that read at this stamp or above see it.
    From(Stamp),
    /// It cannot be entered.
    Never,
}

/// The words of a primary.
#[derive(Debug)]
pub(crate) struct Dictionary {
    database: Database,
    known: RwLock<HashMap<Box<[u8]>, Known>>,
    /// Those that were said once. Locked while one is entered.
    heard: Mutex<HashSet<Box<[u8]>>>,
}

/// The number of a word: its letters in few bits (FNV-1a).
fn number_of(word: &[u8]) -> Number {
    let mixed = word
        .iter()
        .fold(0xcbf2_9ce4_8422_2325_u64, |mixed, byte| (mixed ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3));
    let folded = (mixed ^ mixed >> 32).to_le_bytes();
    [folded[0], folded[1], folded[2]]
}

fn key_of([a, b, c]: Number) -> [u8; 4] {
    [0, c, b, a]
}

fn row_of(number: Number, word: &[u8]) -> Vec<u8> {
    let [a, b, c] = number;
    [&[a, b, c, 0], word].concat()
}

impl Dictionary {
    /// Of the words in a database.
    pub(crate) fn new(database: Database) -> Self {
        Self { database, known: RwLock::default(), heard: Mutex::default() }
    }

    /// The number of a word, for a transaction that reads at this stamp; nothing when it has to say
    /// the word.
    pub(super) fn number(&self, word: &[u8], at: Stamp) -> Option<Number> {
        // Short ones are said as fast.
        if word.len() <= BYTES || word.len() > LONGEST {
            return None;
        }
        match self.known.read().unwrap_or_else(PoisonError::into_inner).get(word) {
            Some(Known::From(stamp)) => return (*stamp <= at).then(|| number_of(word)),
            Some(Known::Never) => return None,
            None => {}
        }
        self.hear(word);
        None
    }

    /// A word was said that is not known.
    fn hear(&self, word: &[u8]) {
        // While another thread enters one, this one is not heard.
        let Ok(mut heard) = self.heard.try_lock() else { return };
        if !heard.remove(word) {
            if heard.len() >= HEARD {
                heard.clear();
            }
            heard.insert(word.into());
            return;
        }
        if self.known.read().unwrap_or_else(PoisonError::into_inner).len() >= MOST {
            return;
        }
        // What went wrong may go well the next time.
        let Some(known) = self.enter(word) else { return };
        self.known.write().unwrap_or_else(PoisonError::into_inner).insert(word.into(), known);
    }

    /// Enters a word into the table, unless it is there.
    fn enter(&self, word: &[u8]) -> Option<Known> {
        // The transaction that says the word holds records: it does not wait for room.
        if !self.database.core().snapshots.wait_for_room(Some(Instant::now())) {
            return None;
        }
        let table = match self.database.table(TABLE) {
            Some(table) => table,
            None => {
                let key = IndexDefinition::new("sql.words_key", true, &[KeyPart::unsigned(0, 4)]);
                self.database.define_table(&TableDefinition::new(TABLE, vec![key])).ok()?.0
            }
        };
        let number = number_of(word);
        let row = row_of(number, word);
        let worker = self.database.worker().ok()?;
        let entered = worker.execute(Isolation::Snapshot, |transaction| {
            let there = transaction.get(&table, 0, &key_of(number))?.map(|record| record.row == row);
            if there.is_none() {
                transaction.insert(&table, &row)?;
            }
            Ok((there, transaction.snapshot()))
        });
        match entered.ok()? {
            ((None, _), ticket) => ticket.stamp.map(|stamp| Known::From(Stamp(stamp.0 + 1))),
            ((Some(true), snapshot), _) => Some(Known::From(snapshot)),
            ((Some(false), _), _) => Some(Known::Never),
        }
    }
}

/// The words that were looked up, on a node that executes transactions again.
#[derive(Debug, Default)]
pub(super) struct Words {
    table: OnceLock<Arc<Table>>,
    known: RwLock<HashMap<Number, Arc<[u8]>>>,
}

impl Words {
    /// The word of a number, as a transaction sees it; nothing when it sees none.
    pub(super) fn find(&self, transaction: &Transaction<'_>, number: Number) -> Option<Arc<[u8]>> {
        if let Some(word) = self.known.read().unwrap_or_else(PoisonError::into_inner).get(&number) {
            return Some(Arc::clone(word));
        }
        let table = match self.table.get() {
            Some(table) => table,
            None => {
                let table = transaction.table(TABLE)?;
                self.table.get_or_init(|| table)
            }
        };
        let record = transaction.get(table, 0, &key_of(number)).ok()??;
        let word: Arc<[u8]> = record.row.get(4..)?.into();
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= MOST {
            known.clear();
        }
        known.insert(number, Arc::clone(&word));
        Some(word)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_entered_when_they_are_said_again() {
        let database = Database::volatile(4);
        let dictionary = Dictionary::new(database.clone());
        let now = || database.core().snapshots.current();
        let word = b"UPDATE t SET a = \0";
        assert_eq!(dictionary.number(word, now()), None, "it is said for the first time");
        let before = now();
        assert_eq!(dictionary.number(word, before), None, "it is entered now");
        assert_eq!(dictionary.number(word, before), None, "this transaction does not see it");
        let number = dictionary.number(word, now()).expect("it is known");
        let worker = database.worker().unwrap();
        let words = Words::default();
        assert_eq!(words.find(&worker.begin_read_only(), number).as_deref(), Some(&word[..]));
        assert_eq!(words.find(&worker.begin_read_only(), [number[0] ^ 1, number[1], number[2]]), None);
        // Another primary gives it the same number, and finds it there.
        let another = Dictionary::new(database.clone());
        let _ = (another.number(word, now()), another.number(word, now()));
        assert_eq!(another.number(word, now()), Some(number));
    }

    #[test]
    fn a_word_whose_number_is_taken_is_said() {
        let database = Database::volatile(4);
        let dictionary = Dictionary::new(database.clone());
        let now = || database.core().snapshots.current();
        let word = b"some word";
        // The table comes with the first word that is entered.
        for _ in 0..3 {
            dictionary.number(b"another word", now());
        }
        let table = database.table(TABLE).unwrap();
        let worker = database.worker().unwrap();
        let row = row_of(number_of(word), b"of the same number");
        let _ = worker.execute(Isolation::Snapshot, |transaction| Ok(transaction.insert(&table, &row)?)).unwrap();
        for _ in 0..4 {
            assert_eq!(dictionary.number(word, now()), None);
        }
        assert_eq!(dictionary.number(&[b'x'; LONGEST + 1], now()), None);
    }
}
