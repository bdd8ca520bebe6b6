//! Words: what recorded transactions say again and again, templates of statements and surroundings,
//! under short numbers.
//!
//! The dictionary is a table of the engine, `sql.words`. So a log that uses a word has it, below,
//! and so has a checkpoint: a node that has the statements' tables has the words. A word is
//! entered when it is said for the second time, by a transaction of its own, and used by
//! transactions whose snapshot sees it. No word is ever changed. Its number comes from its letters,
//! so every primary gives a word the same one, and a word whose number another has is not entered.
//!
//! The table is bounded. When it is full, words that have not been said for longest are removed: at
//! first they are not used any more, so all that use them have older snapshots, which see them.
//! Where a word is looked up, its record is read each time. What is in the table is a template
//! without literals and comments ([`template::is_clean`]), or surroundings.

use std::{
    collections::{HashMap, HashSet},
    ops::Bound,
    sync::{
        Arc, Mutex, OnceLock, PoisonError, RwLock,
        atomic::{AtomicBool, Ordering},
    },
    time::Instant,
};

use freshet_engine::{
    Database, Direction, IndexDefinition, Isolation, KeyPart, Lsn, Rid, Table, TableDefinition, Ticket, Transaction,
    Worker,
};

use super::{surroundings::Surroundings, template};

/// The engine's table. Its rows are a number in 4 bytes, and the word.
const TABLE: &str = "sql.words";
/// How many words there are at most.
const MOST: usize = 8 << 10;
/// How many bytes they have at most.
const MOST_BYTES: usize = 8 << 20;
/// How many words one primary has seen once and remembers.
const SEEN: usize = 16 << 10;
/// Longer words are not entered.
const LONGEST: usize = 4 << 10;
/// Numbers have this many bytes.
pub(super) const BYTES: usize = 3;

/// The number of a word.
pub(super) type Number = [u8; BYTES];

/// What a primary knows of a word.
#[derive(Debug)]
struct Entry {
    /// Transactions that read at this LSN or above see it; nothing if another has its number.
    from: Option<Lsn>,
    /// Whether it was used since it was entered, and since words were last removed.
    used: AtomicBool,
}

impl Entry {
    fn new(from: Option<Lsn>) -> Self {
        Self { from, used: AtomicBool::new(false) }
    }
}

/// The words that a primary knows, and their bytes.
#[derive(Debug, Default)]
struct Known {
    words: HashMap<Box<[u8]>, Entry>,
    bytes: usize,
    /// Whether those of the table are among them.
    loaded: bool,
}

impl Known {
    fn add(&mut self, word: &[u8], from: Option<Lsn>) {
        if self.words.insert(word.into(), Entry::new(from)).is_none() {
            self.bytes += word.len();
        }
    }

    fn is_full(&self) -> bool {
        self.words.len() >= MOST || self.bytes > MOST_BYTES - LONGEST
    }

    /// Takes words out until half of what may be there is left, at first those that were not used
    /// since this was last done.
    fn take_out(&mut self) -> Vec<Box<[u8]>> {
        let (mut out, words) = (Vec::new(), self.words.len());
        for unused in [true, false] {
            let bytes = &mut self.bytes;
            self.words.retain(|word, entry| {
                let stays = words - out.len() <= MOST / 2 && *bytes <= MOST_BYTES / 2;
                if stays || unused && *entry.used.get_mut() {
                    return true;
                }
                *bytes -= word.len();
                out.push(word.clone());
                false
            });
        }
        self.words.values_mut().for_each(|entry| *entry.used.get_mut() = false);
        out
    }
}

/// The words of a primary.
#[derive(Debug)]
pub(crate) struct Dictionary {
    database: Database,
    known: RwLock<Known>,
    /// Those that were used once. Locked while words are entered and removed.
    seen: Mutex<HashSet<Box<[u8]>>>,
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

/// Whether a word may be in the table.
fn is_clean(word: &[u8]) -> bool {
    Surroundings::decode(word).is_some() || std::str::from_utf8(word).is_ok_and(template::is_clean)
}

impl Dictionary {
    /// Of the words in a database.
    pub(crate) fn new(database: Database) -> Self {
        Self { database, known: RwLock::default(), seen: Mutex::default() }
    }

    /// The number of a word, for a transaction that reads at this LSN; nothing when it has to say
    /// the word.
    pub(super) fn number(&self, word: &[u8], at: Lsn) -> Option<Number> {
        // Short ones are spelt as fast.
        if word.len() <= BYTES || word.len() > LONGEST {
            return None;
        }
        if let Some(entry) = self.known.read().unwrap_or_else(PoisonError::into_inner).words.get(word) {
            // Relaxed: if it is seen late, the word is removed too early, or too late.
            if !entry.used.load(Ordering::Relaxed) {
                entry.used.store(true, Ordering::Relaxed);
            }
            return entry.from.filter(|from| *from <= at).map(|_| number_of(word));
        }
        self.see(word);
        None
    }

    /// A word is used that is not known.
    fn see(&self, word: &[u8]) {
        // While another thread enters one, this one is not noted.
        let Ok(mut seen) = self.seen.try_lock() else { return };
        if !seen.remove(word) {
            if seen.len() >= SEEN {
                seen.clear();
            }
            seen.insert(word.into());
            return;
        }
        // The transaction that uses the word holds records: it does not wait for room.
        if !is_clean(word) || !self.database.core().snapshots.wait_for_room(Instant::now().into()) {
            return;
        }
        // What goes wrong may go well the next time.
        let _ = self.enter(word);
    }

    /// Enters a word into the table, unless it is there.
    fn enter(&self, word: &[u8]) -> Option<()> {
        let table = match self.database.table(TABLE) {
            Some(table) => table,
            None => {
                let key = IndexDefinition::new("sql.words_key", true, &[KeyPart::unsigned(0, 4)]);
                self.database.define_table(&TableDefinition::new(TABLE, vec![key])).ok()?.0
            }
        };
        let worker = self.database.worker().ok()?;
        let (loaded, full) = {
            let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
            (known.loaded, known.is_full())
        };
        if !loaded {
            self.load(&worker, &table)?;
        }
        if full {
            self.remove(&worker, &table)?;
        }
        let number = number_of(word);
        let row = row_of(number, word);
        let entered = worker.execute(Isolation::Snapshot, |transaction| {
            let there = transaction.get(&table, 0, &key_of(number))?.map(|record| record.row == row);
            if there.is_none() {
                transaction.insert(&table, &row)?;
            }
            Ok((there, transaction.snapshot()))
        });
        let ((there, snapshot), Ticket { lsn, .. }) = entered.ok()?;
        let from = match there {
            None => Some(Lsn(lsn?.0 + 1)),
            Some(true) => Some(snapshot),
            Some(false) => None,
        };
        self.known.write().unwrap_or_else(PoisonError::into_inner).add(word, from);
        Some(())
    }

    /// Finds what is in the table, and removes what does not belong there: words of earlier
    /// versions, and those beyond the bounds.
    fn load(&self, worker: &Worker, table: &Table) -> Option<()> {
        let mut found = Known { loaded: true, ..Known::default() };
        let loaded = worker.execute(Isolation::Snapshot, |transaction| {
            found = Known { loaded: true, ..Known::default() };
            let mut others = Vec::new();
            let all = (Bound::Unbounded, Bound::Unbounded);
            transaction.scan(table, 0, all, Direction::Forward, |_, record| {
                match record.row.split_at_checked(BYTES + 1) {
                    Some((_, word)) if !found.is_full() && is_clean(word) => {
                        found.add(word, Some(transaction.snapshot()));
                    }
                    _ => others.push(record.rid),
                }
                std::ops::ControlFlow::Continue(())
            })?;
            for rid in others {
                transaction.delete(table, rid)?;
            }
            Ok(())
        });
        let _ = loaded.ok()?;
        *self.known.write().unwrap_or_else(PoisonError::into_inner) = found;
        Some(())
    }

    /// Makes room.
    fn remove(&self, worker: &Worker, table: &Table) -> Option<()> {
        let out = self.known.write().unwrap_or_else(PoisonError::into_inner).take_out();
        // From here on no transaction uses them that begins later.
        let removed = worker.execute(Isolation::Snapshot, |transaction| {
            for word in &out {
                let number = number_of(word);
                let there = transaction.get(table, 0, &key_of(number))?;
                let there = there.filter(|record| record.row.get(BYTES + 1..) == Some(&word[..]));
                if let Some(rid) = there.map(|record| record.rid) {
                    transaction.delete(table, rid)?;
                }
            }
            Ok(())
        });
        if removed.is_err() {
            // They are in the table, and known to nobody.
            self.known.write().unwrap_or_else(PoisonError::into_inner).loaded = false;
        }
        removed.ok().map(drop)
    }
}

/// A word: the record that has it, and its bytes.
type Word = (Rid, Arc<[u8]>);

/// The words that were looked up, on a node that executes transactions again.
#[derive(Debug, Default)]
pub(super) struct Words {
    table: OnceLock<Arc<Table>>,
    /// Where they were found.
    known: RwLock<HashMap<Number, Word>>,
}

impl Words {
    /// The word of a number, as a transaction sees it; nothing when it sees none.
    pub(super) fn find(&self, transaction: &Transaction<'_>, number: Number) -> Option<Arc<[u8]>> {
        let table = match self.table.get() {
            Some(table) => table,
            None => {
                let table = transaction.table(TABLE)?;
                self.table.get_or_init(|| table)
            }
        };
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner).get(&number).cloned();
        if let Some((rid, word)) = known
            && let Ok(Some(record)) = transaction.read(table, rid)
            && record.row.strip_prefix(&[number[0], number[1], number[2], 0]) == Some(&word[..])
        {
            return Some(word);
        }
        let record = transaction.get(table, 0, &key_of(number)).ok()??;
        let word: Arc<[u8]> = record.row.get(BYTES + 1..)?.into();
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= MOST {
            known.clear();
        }
        known.insert(number, (record.rid, Arc::clone(&word)));
        Some(word)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_entered_when_they_are_used_again() {
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
    fn a_word_whose_number_is_taken_is_spelt() {
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

    /// The rows of the table, as a new transaction sees them.
    fn rows(database: &Database) -> Vec<Vec<u8>> {
        let Some(table) = database.table(TABLE) else { return Vec::new() };
        let (worker, mut rows) = (database.worker().unwrap(), Vec::new());
        let transaction = worker.begin_read_only();
        let all = (Bound::Unbounded, Bound::Unbounded);
        let each = |_: &[u8], record: freshet_engine::Record<'_>| {
            rows.push(record.row.to_vec());
            std::ops::ControlFlow::Continue(())
        };
        transaction.scan(&table, 0, all, Direction::Forward, each).unwrap();
        rows
    }

    #[test]
    fn words_that_are_used_stay_while_many_others_come() {
        let database = Database::volatile(4);
        let dictionary = Dictionary::new(database.clone());
        let now = || database.core().snapshots.current();
        let word = b"UPDATE t SET a = \0 WHERE b = \0";
        let _ = (dictionary.number(word, now()), dictionary.number(word, now()));
        let (worker, words) = (database.worker().unwrap(), Words::default());
        let number = dictionary.number(word, now()).expect("it was entered");
        for at in 0..100_000 {
            let other = format!("UPDATE table_{at} SET a = \0");
            let _ = (dictionary.number(other.as_bytes(), now()), dictionary.number(other.as_bytes(), now()));
            if at % 1000 == 0 {
                assert_eq!(dictionary.number(word, now()), Some(number), "at {at}");
                assert_eq!(words.find(&worker.begin_read_only(), number).as_deref(), Some(&word[..]));
                // Whatever is known is found, under its own number.
                if let Some(other_number) = dictionary.number(other.as_bytes(), now()) {
                    let found = words.find(&worker.begin_read_only(), other_number);
                    assert_eq!(found.as_deref(), Some(other.as_bytes()));
                }
                worker.collect_garbage();
            }
        }
        let rows = rows(&database);
        assert!(rows.len() <= MOST && rows.len() > MOST / 4, "{}", rows.len());
        // Another primary finds them, and holds to the bounds.
        let another = Dictionary::new(database.clone());
        let another_word = b"DELETE FROM t";
        let _ = (another.number(another_word, now()), another.number(another_word, now()));
        assert_eq!(another.number(word, now()), Some(number));
        assert_eq!(another.known.read().unwrap().words.len(), rows.len() + 1);
    }

    #[test]
    fn long_words_take_no_more_bytes_than_they_may() {
        let database = Database::volatile(4);
        let dictionary = Dictionary::new(database.clone());
        let now = || database.core().snapshots.current();
        for at in 0..MOST_BYTES / LONGEST * 2 {
            let word = format!("INSERT INTO table_{at} VALUES (a{:1$})", "", LONGEST - 40);
            let _ = (dictionary.number(word.as_bytes(), now()), dictionary.number(word.as_bytes(), now()));
        }
        let bytes: usize = rows(&database).iter().map(Vec::len).sum();
        assert!(bytes > MOST_BYTES / 4 && bytes <= MOST_BYTES, "{bytes}");
    }

    /// A transaction that has begun before a word was removed says it, and finds it.
    #[test]
    fn an_older_snapshot_sees_what_was_removed() {
        let database = Database::volatile(4);
        let dictionary = Dictionary::new(database.clone());
        let now = || database.core().snapshots.current();
        let word = b"UPDATE t SET a = \0";
        let _ = (dictionary.number(word, now()), dictionary.number(word, now()));
        let number = dictionary.number(word, now()).unwrap();
        let (worker, other, words) = (database.worker().unwrap(), database.worker().unwrap(), Words::default());
        let before = worker.begin_read_only();
        assert!(words.find(&before, number).is_some());
        let table = database.table(TABLE).unwrap();
        dictionary.known.write().unwrap().words.values_mut().for_each(|entry| entry.used = AtomicBool::new(false));
        // Not full: as if it were.
        let out = dictionary.known.write().unwrap().words.drain().map(|(word, _)| word).collect::<Vec<_>>();
        let row = row_of(number, b"of the same number");
        let removed = other.execute(Isolation::Snapshot, |transaction| {
            let rid = transaction.get(&table, 0, &key_of(number))?.unwrap().rid;
            transaction.delete(&table, rid)?;
            Ok(())
        });
        let _ = removed.unwrap();
        assert_eq!(out, [Box::from(&word[..])]);
        assert_eq!(words.find(&other.begin_read_only(), number), None);
        let entered = other.execute(Isolation::Snapshot, |transaction| Ok(transaction.insert(&table, &row)?));
        let _ = entered.unwrap();
        assert_eq!(words.find(&other.begin_read_only(), number).as_deref(), Some(&b"of the same number"[..]));
        assert_eq!(words.find(&before, number).as_deref(), Some(&word[..]));
        assert_eq!(dictionary.number(word, now()), None);
    }

    #[test]
    fn what_an_earlier_version_has_entered_is_removed() {
        let database = Database::volatile(4);
        let now = || database.core().snapshots.current();
        let dictionary = Dictionary::new(database.clone());
        let word = b"UPDATE t SET a = \0";
        let _ = (dictionary.number(word, now()), dictionary.number(word, now()));
        let (table, worker) = (database.table(TABLE).unwrap(), database.worker().unwrap());
        for dirty in [&b"UPDATE t SET a = $$secret$$"[..], b"DELETE FROM t -- secret", b"\xffsecret"] {
            let row = row_of(number_of(dirty), dirty);
            let _ = worker.execute(Isolation::Snapshot, |transaction| Ok(transaction.insert(&table, &row)?)).unwrap();
        }
        assert_eq!(rows(&database).len(), 4);
        let dictionary = Dictionary::new(database.clone());
        let another = b"INSERT INTO t VALUES (\0)";
        let _ = (dictionary.number(another, now()), dictionary.number(another, now()));
        assert_eq!(rows(&database).len(), 2);
        assert!(dictionary.number(word, now()).is_some() && dictionary.number(another, now()).is_some());
    }
}
