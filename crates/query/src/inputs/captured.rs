//! What a statement asks for that the database does not determine.
//!
//! There is one place for all of it: whatever is volatile, or only the session knows, is evaluated
//! through [`Captured`]. While a statement is recorded, that notes each value in the order in which
//! the plan asks; where the statement is executed again, it gives them back in this order, and
//! nothing is evaluated. So no function needs a case of its own: a volatile function is one that
//! its definition calls so, and all functions of the session are captured. A function of values
//! that asks the session meets a [`CapturedSession`] in its context.

use std::{cell::RefCell, fmt, vec};

use freshet_sql::{
    SqlError, Value,
    functions::{SessionCalls, SessionFunction, SetFunction},
};

use super::{LONGEST, value};

/// The captured values of a statement, and the rows that it has looked at again, since others have
/// changed them.
pub enum Captured {
    /// It is recorded: they are noted.
    Noting(RefCell<Noted>),
    /// It is executed again: they are replayed.
    Replaying(RefCell<Replaying>),
}

/// What was noted.
#[derive(Debug, Default)]
pub struct Noted {
    count: u64,
    bytes: Vec<u8>,
    is_full: bool,
    /// Something is evaluated whose value will be noted: what that asks for in turn is part of it.
    is_within: bool,
    /// How many rows were found, and which of them were looked at again, from 1.
    rows: u64,
    looks: Vec<u64>,
}

/// What was captured of a statement, as it is given to the statement that is executed again.
#[derive(Debug)]
pub struct Replaying {
    values: vec::IntoIter<Value>,
    rows: u64,
    looks: vec::IntoIter<u64>,
}

/// Where the noted values of a statement are.
#[derive(Clone, Copy, Debug, Default)]
pub struct Mark {
    count: u64,
    length: usize,
}

/// What a statement has captured.
#[derive(Debug, Default)]
pub(super) struct Taken {
    /// How many values, and they themselves.
    pub(super) values: (u64, Vec<u8>),
    /// The rows that were looked at again.
    pub(super) looks: Vec<u64>,
}

impl Default for Captured {
    fn default() -> Self {
        Self::Noting(RefCell::default())
    }
}

impl fmt::Debug for Captured {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Noting(noted) => write!(f, "Noting({:?})", noted.borrow()),
            Self::Replaying(replayed) => write!(f, "Telling({} values)", replayed.borrow().values.len()),
        }
    }
}

impl Captured {
    /// Of a statement that is executed again, and looks again at these rows, in their order.
    pub fn replaying(values: Vec<Value>, looks: Vec<u64>) -> Self {
        Self::Replaying(RefCell::new(Replaying { values: values.into_iter(), rows: 0, looks: looks.into_iter() }))
    }

    /// Whether the statement is executed again.
    pub fn is_again(&self) -> bool {
        matches!(self, Self::Replaying(_))
    }

    /// The value of something: `fresh`, or what that was when the statement was recorded.
    ///
    /// # Errors
    /// As `fresh`; where the statement is executed again, that it asks for more than it did.
    pub fn value(&self, fresh: impl FnOnce() -> Result<Value, SqlError>) -> Result<Value, SqlError> {
        match self {
            Self::Noting(noted) => {
                if noted.borrow().is_within {
                    return fresh();
                }
                noted.borrow_mut().is_within = true;
                let value = fresh();
                let mut noted = noted.borrow_mut();
                noted.is_within = false;
                if let Ok(value) = &value {
                    noted.note(value);
                }
                value
            }
            Self::Replaying(replayed) => replayed.borrow_mut().values.next().ok_or_else(exhausted),
        }
    }

    /// A row that was found is written or locked next. Returns whether it has to be looked at again
    /// first, since the statement is executed again and has done so.
    pub fn next_row(&self) -> bool {
        match self {
            Self::Noting(noted) => {
                noted.borrow_mut().rows += 1;
                false
            }
            Self::Replaying(replayed) => {
                let Replaying { rows, looks, .. } = &mut *replayed.borrow_mut();
                *rows += 1;
                let is_next = looks.as_slice().first() == Some(&*rows);
                is_next && looks.next().is_some()
            }
        }
    }

    /// The row was looked at again, and what has become of it is what a snapshot shows that the
    /// transaction has noted.
    pub fn note_look(&self) {
        if let Self::Noting(noted) = self {
            let mut noted = noted.borrow_mut();
            let row = noted.rows;
            noted.looks.push(row);
            noted.is_full |= noted.looks.len() > LONGEST;
        }
    }

    /// Where the noted values are.
    pub fn mark(&self) -> Mark {
        match self {
            Self::Noting(noted) => {
                let noted = noted.borrow();
                Mark { count: noted.count, length: noted.bytes.len() }
            }
            Self::Replaying(_) => Mark::default(),
        }
    }

    /// What was noted since does not count: what has asked for it is done once more.
    pub fn back_to(&self, mark: Mark) {
        if let Self::Noting(noted) = self {
            let mut noted = noted.borrow_mut();
            noted.count = mark.count.min(noted.count);
            noted.bytes.truncate(mark.length);
        }
    }

    /// Fails when the statement has asked for less than it did when it was recorded.
    ///
    /// # Errors
    /// If so.
    pub fn finish(&self) -> Result<(), SqlError> {
        match self {
            Self::Replaying(replayed) if replayed.borrow().values.len() > 0 || replayed.borrow().looks.len() > 0 => {
                Err(SqlError::internal("a statement that is executed again asks for less than it did"))
            }
            _ => Ok(()),
        }
    }

    /// Takes what was noted; nothing when that is too much.
    pub(super) fn take(&self) -> Option<Taken> {
        match self {
            Self::Noting(noted) => {
                let Noted { count, bytes, is_full, looks, .. } = noted.take();
                (!is_full).then_some(Taken { values: (count, bytes), looks })
            }
            Self::Replaying(_) => None,
        }
    }
}

/// A session that functions of values ask: its answers are captured.
#[derive(Clone, Copy)]
pub struct CapturedSession<'s> {
    /// Where answers go, or come from.
    pub captured: &'s Captured,
    /// Who answers.
    pub session: &'s dyn SessionCalls,
}

impl SessionCalls for CapturedSession<'_> {
    fn call(&self, function: SessionFunction, arguments: &[Value]) -> Result<Value, SqlError> {
        self.captured.value(|| self.session.call(function, arguments))
    }

    /// Only general queries ask for rows, and what these feed is not recorded.
    fn rows(&self, function: SetFunction, arguments: &[Value]) -> Result<Vec<Vec<Value>>, SqlError> {
        self.session.rows(function, arguments)
    }
}

#[cold]
fn exhausted() -> SqlError {
    SqlError::internal("a statement that is executed again asks for more than it did")
}

impl Noted {
    fn note(&mut self, value: &Value) {
        if self.is_full {
            return;
        }
        self.count += 1;
        value::put(value, &mut self.bytes);
        if self.bytes.len() > LONGEST {
            *self = Self { is_full: true, ..Self::default() };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn replaying(Taken { values: (count, bytes), looks }: Taken) -> Captured {
        let mut from = &bytes[..];
        Captured::replaying((0..count).map(|_| value::take(&mut from).unwrap()).collect(), looks)
    }

    #[test]
    fn noted_values_are_replayed() {
        let noting = Captured::default();
        assert_eq!(noting.value(|| Ok(Value::Int4(7))).unwrap(), Value::Int4(7));
        assert!(noting.value(|| Err(SqlError::internal("no"))).is_err());
        // What something asks for in turn is part of its value.
        assert_eq!(noting.value(|| noting.value(|| Ok(Value::Int4(8)))).unwrap(), Value::Int4(8));
        assert_eq!(noting.value(|| Ok(Value::Null)).unwrap(), Value::Null);
        let replaying = replaying(noting.take().unwrap());
        assert!(replaying.finish().is_err(), "nothing was asked for yet");
        assert_eq!(replaying.value(|| panic!("it is not evaluated")).unwrap(), Value::Int4(7));
        assert_eq!(replaying.value(|| panic!("nor is this")).unwrap(), Value::Int4(8));
        assert_eq!(replaying.value(|| panic!("nor this")).unwrap(), Value::Null);
        replaying.finish().unwrap();
        assert!(replaying.value(|| Ok(Value::Null)).is_err());
        assert_eq!(noting.take().unwrap().values.0, 0, "they were taken");
    }

    #[test]
    fn rows_that_were_looked_at_again_are_replayed() {
        let noting = Captured::default();
        let ask = |number| noting.value(|| Ok(Value::Int4(number))).unwrap();
        for row in 1..=5 {
            let mark = noting.mark();
            assert!(!noting.next_row());
            ask(row);
            if row % 2 == 0 {
                // Twice: the last time counts.
                for look in 1..3 {
                    noting.back_to(mark);
                    ask(row + 100 * look);
                }
                noting.note_look();
            }
        }
        let replaying = replaying(noting.take().unwrap());
        let again = (1..=5).map(|_| (replaying.next_row(), replaying.value(|| panic!("it is not evaluated")).unwrap()));
        let again: Vec<_> = again.map(|(look, value)| (look, value.as_i64().unwrap())).collect();
        assert_eq!(again, [(false, 1), (true, 202), (false, 3), (true, 204), (false, 5)]);
        replaying.finish().unwrap();
        assert!(Captured::replaying(Vec::new(), vec![1]).finish().is_err());
    }

    #[test]
    fn too_many_values_are_none() {
        let noting = Captured::default();
        let long = || Ok(Value::text("x".repeat(LONGEST / 2)));
        noting.value(long).unwrap();
        noting.value(long).unwrap();
        noting.value(|| Ok(Value::Null)).unwrap();
        assert!(noting.take().is_none());
        assert!(noting.take().is_some(), "those of the next statement");
    }
}
