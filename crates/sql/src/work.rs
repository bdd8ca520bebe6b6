//! What a statement costs, counted wherever it is done.
//!
//! Who runs a statement says once for its thread how to ask whether the statement is to end, and
//! from where its memory is taken ([`within`]). What may take long for a single value or a single
//! plan says how much it does ([`done`]), and what it keeps besides, where nobody else counts that
//! ([`keep`]). Outside of a statement nothing is asked and nothing is counted. What the work of a
//! session takes from the allocator is counted besides ([`for_session`]).

use std::{cell::Cell, sync::Arc};

use scoped_tls_hkt::scoped_thread_local;

use freshet_base::memory as process;

use crate::{
    SqlError,
    account::{self, Account},
    memory::{Pool, Reservation},
};

/// After this number of steps it is asked whether the statement is to end.
const EVERY: usize = 4096;

/// About as many bytes are copied, compared or searched in bulk in the time of one step.
const BULK: usize = 64;

/// What grows little by little is counted in steps of this number of bytes.
const STEP: usize = 16 << 10;

/// The longest piece of a text between two questions.
const PIECE: usize = 4096;

/// The statement that a thread runs.
struct Statement<'s> {
    check: &'s dyn Fn() -> Result<(), SqlError>,
    memory: &'s Arc<Pool>,
    session: Option<&'s Session<'s>>,
}

/// The session that has the statement run.
struct Session<'s> {
    account: &'s Account,
    /// What the thread had when it began.
    start: i64,
}

impl Drop for Session<'_> {
    fn drop(&mut self) {
        LOOK.set(i64::MAX);
        self.account.end(self.start);
    }
}

scoped_thread_local!(static STATEMENT: for<'s> &'s Statement<'s>);

thread_local! {
    /// How many steps are left until it is asked again.
    static LEFT: Cell<usize> = const { Cell::new(EVERY) };
    /// When the thread has more than this, its session's account is looked at.
    static LOOK: Cell<i64> = const { Cell::new(i64::MAX) };
}

/// Does something as part of a statement: `check` fails when it is to end, and what it keeps is
/// taken from `memory`.
pub fn within<T>(check: &dyn Fn() -> Result<(), SqlError>, memory: &Arc<Pool>, work: impl FnOnce() -> T) -> T {
    if !STATEMENT.is_set() {
        return STATEMENT.set(&Statement { check, memory, session: None }, work);
    }
    STATEMENT.with(|around| STATEMENT.set(&Statement { check, memory, session: around.session }, work))
}

/// Does something as part of a statement of a session, and counts what it takes from the allocator.
pub fn for_session<T>(
    check: &dyn Fn() -> Result<(), SqlError>,
    memory: &Arc<Pool>,
    account: &Account,
    work: impl FnOnce() -> T,
) -> T {
    let start = process::of_this_thread();
    LOOK.set(start + account::EVERY);
    let session = Session { account, start };
    STATEMENT.set(&Statement { check, memory, session: Some(&session) }, work)
}

/// The account of the session is looked at.
#[cold]
fn look(session: &Session<'_>) -> Result<(), SqlError> {
    LOOK.set(process::of_this_thread() + account::EVERY);
    session.account.look(session.start)
}

/// What was made has its place in the session's account.
///
/// # Errors
/// 53200.
#[inline]
pub fn made() -> Result<(), SqlError> {
    if process::of_this_thread() <= LOOK.get() {
        return Ok(());
    }
    STATEMENT.with(|statement| statement.session.map_or(Ok(()), look))
}

/// There is room for something of this many bytes that is about to be allocated, and is counted
/// from then on.
///
/// # Errors
/// 53200.
pub fn room_for(bytes: usize) -> Result<(), SqlError> {
    if bytes < STEP || !STATEMENT.is_set() {
        return Ok(());
    }
    STATEMENT
        .with(|statement| statement.session.map_or(Ok(()), |session| session.account.make_room(session.start, bytes)))
}

/// Does something as part of the same statement, whose memory is taken from here.
pub fn charged_to<T>(memory: &Arc<Pool>, work: impl FnOnce() -> T) -> T {
    if !STATEMENT.is_set() {
        return within(&|| Ok(()), memory, work);
    }
    STATEMENT.with(|around| within(around.check, memory, work))
}

/// Fails when the statement is to end.
///
/// # Errors
/// 57014, 57P01.
pub fn check() -> Result<(), SqlError> {
    if !STATEMENT.is_set() {
        return Ok(());
    }
    STATEMENT.with(|statement| {
        statement.session.map_or(Ok(()), look)?;
        (statement.check)()
    })
}

/// Counts steps, each about as long as a comparison of two short values.
///
/// # Errors
/// As for [`check`], which is asked now and then.
#[inline]
pub fn done(steps: usize) -> Result<(), SqlError> {
    match LEFT.get().checked_sub(steps) {
        Some(left) => {
            LEFT.set(left);
            made()
        }
        None => {
            LEFT.set(EVERY);
            check()
        }
    }
}

/// Counts bytes that are copied, compared or searched in bulk.
///
/// # Errors
/// As for [`check`].
#[inline]
pub fn bulk(bytes: usize) -> Result<(), SqlError> {
    done(bytes / BULK)
}

/// A text in pieces; before each it is counted how long that is.
pub fn pieces(text: &str) -> Pieces<'_> {
    Pieces(text)
}

/// The pieces of a text, from either end.
#[derive(Clone, Debug)]
pub struct Pieces<'t>(&'t str);

impl<'t> Iterator for Pieces<'t> {
    type Item = Result<&'t str, SqlError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.0.is_empty() {
            return None;
        }
        let (piece, rest) = self.0.split_at(self.0.floor_char_boundary(PIECE));
        self.0 = rest;
        Some(done(piece.len()).map(|()| piece))
    }
}

impl DoubleEndedIterator for Pieces<'_> {
    fn next_back(&mut self) -> Option<Self::Item> {
        if self.0.is_empty() {
            return None;
        }
        let (rest, piece) = self.0.split_at(self.0.ceil_char_boundary(self.0.len().saturating_sub(PIECE)));
        self.0 = rest;
        Some(done(piece.len()).map(|()| piece))
    }
}

/// Pieces of bytes, each counted as work before it is given.
pub fn byte_pieces(bytes: &[u8]) -> impl Iterator<Item = Result<&[u8], SqlError>> {
    bytes.chunks(PIECE).map(|piece| done(piece.len()).map(|()| piece))
}

/// Bytes that are kept beyond what values take, until this is dropped.
#[derive(Debug, Default)]
pub struct Kept(Option<Reservation>);

/// A reservation of no bytes yet, for what a statement is going to keep.
pub fn kept() -> Kept {
    Kept(STATEMENT.is_set().then(|| STATEMENT.with(|statement| statement.memory.reserve())))
}

/// Keeps bytes that are about to be taken.
///
/// # Errors
/// 53200.
pub fn keep(bytes: usize) -> Result<Kept, SqlError> {
    let kept = kept();
    kept.more(bytes)?;
    Ok(kept)
}

impl Kept {
    /// Keeps more.
    ///
    /// # Errors
    /// 53200.
    pub fn more(&self, bytes: usize) -> Result<(), SqlError> {
        self.0.as_ref().map_or(Ok(()), |reservation| reservation.take(bytes))
    }

    /// Keeps at least as many bytes in all, which grow little by little.
    ///
    /// # Errors
    /// 53200.
    #[inline]
    pub fn grown_to(&self, bytes: usize) -> Result<(), SqlError> {
        match &self.0 {
            Some(kept) if kept.bytes() < bytes => kept.set(bytes.next_multiple_of(STEP)),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::SqlState;

    #[test]
    fn it_is_asked_by_the_work_that_is_done() {
        let asked = Cell::new(0);
        let check = || {
            asked.set(asked.get() + 1);
            Ok(())
        };
        within(&check, &Pool::of(0), || {
            for _ in 0..10 * EVERY {
                done(1).unwrap();
            }
            assert!((9..=10).contains(&asked.get()), "{}", asked.get());
            // Much at once is asked for at once.
            done(EVERY + 1).unwrap();
            assert!((10..=11).contains(&asked.get()));
            bulk(EVERY * BULK * 2).unwrap();
            assert!((11..=12).contains(&asked.get()));
        });
        // Outside nobody asks.
        done(10 * EVERY).unwrap();
        assert!((11..=12).contains(&asked.get()));
    }

    #[test]
    fn a_text_comes_in_pieces_until_the_statement_ends() {
        let text = "aé€😀".repeat(5000);
        assert_eq!(pieces(&text).collect::<Result<String, _>>().unwrap(), text);
        assert!(pieces(&text).all(|piece| piece.unwrap().len() <= PIECE));
        let back: Vec<&str> = pieces(&text).rev().collect::<Result<_, _>>().unwrap();
        assert_eq!(back.into_iter().rev().collect::<String>(), text);
        let ended = || Err(SqlError::new(SqlState::QUERY_CANCELED, "canceled"));
        let found = within(&ended, &Pool::of(0), || pieces(&text).find_map(Result::err));
        assert_eq!(found.unwrap().state, SqlState::QUERY_CANCELED);
    }

    #[test]
    fn what_is_kept_is_taken_from_the_statements_memory() {
        let memory = Pool::of(100);
        within(&|| Ok(()), &memory, || {
            let kept = keep(60).unwrap();
            assert_eq!((memory.used(), keep(60).unwrap_err().state), (60, SqlState::OUT_OF_MEMORY));
            kept.more(30).unwrap();
            kept.grown_to(90).unwrap();
            assert_eq!((memory.used(), kept.grown_to(91).unwrap_err().state), (90, SqlState::OUT_OF_MEMORY));
            // Another account within.
            let inner = Pool::of(5);
            charged_to(&inner, || keep(6).unwrap_err());
        });
        assert_eq!(memory.used(), 0);
        keep(1000).unwrap();
    }
}
