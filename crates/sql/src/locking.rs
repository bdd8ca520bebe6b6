//! FOR UPDATE and its like: what such a clause says.

use freshet_base::RowLock;
use sqlparser::ast::{Ident, LockClause, NonBlock};

use crate::names;

/// How the mark begins that stands for a lock in syntax: the parser does not know all of them. The
/// lock's number follows.
pub const MARK: char = '\u{1}';

/// What is done with rows that others hold; of several, the last one here counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum WhenLocked {
    /// Their holder is waited for.
    Wait,
    /// They are left out.
    Skip,
    /// A row that another transaction holds is an error: NOWAIT.
    NoWait,
}

/// How rows are locked: FOR UPDATE and its like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RowMark {
    /// The strength of the lock.
    pub lock: RowLock,
    /// What is done with those that others hold.
    pub when: WhenLocked,
}

impl RowMark {
    /// What two clauses say of one relation together.
    pub fn and(self, other: Option<Self>) -> Self {
        other.map_or(self, |other| Self { lock: self.lock.max(other.lock), when: self.when.max(other.when) })
    }
}

/// A clause that locks rows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Locking {
    /// The strength of the lock.
    pub lock: RowLock,
    /// What is done with rows that others hold.
    pub when: WhenLocked,
    /// The relations whose rows are meant, by their names in FROM; none for all.
    pub of: Vec<String>,
}

/// What SQL calls a lock.
pub const fn name_of_lock(lock: RowLock) -> &'static str {
    match lock {
        RowLock::KeyShare => "FOR KEY SHARE",
        RowLock::Share => "FOR SHARE",
        RowLock::NoKeyUpdate => "FOR NO KEY UPDATE",
        RowLock::Update => "FOR UPDATE",
    }
}

/// What a clause says.
pub fn clause(clause: &LockClause) -> Locking {
    let when = match clause.nonblock {
        None => WhenLocked::Wait,
        Some(NonBlock::SkipLocked) => WhenLocked::Skip,
        Some(NonBlock::Nowait) => WhenLocked::NoWait,
    };
    let parts = clause.of.iter().flat_map(|of| &of.0).filter_map(|part| part.as_ident());
    let mut of: Vec<&Ident> = parts.collect();
    let mark = of.first().and_then(|first| first.value.strip_prefix(MARK)?.parse::<usize>().ok());
    let lock = mark.and_then(|mark| RowLock::ALL.get(mark).copied());
    if lock.is_some() {
        of.remove(0);
    }
    let of = of.into_iter().map(names::fold).collect();
    Locking { lock: lock.unwrap_or(RowLock::Update), when, of }
}
