//! What a statement asks for that the database does not determine.
//!
//! There is one place for all of it: whatever is volatile, or only the session knows, is evaluated
//! through [`Captured`]. While a statement is recorded, that notes each value in the order in which
//! the plan asks; where the statement is executed again, it gives them back in this order, and
//! nothing is evaluated. So no function needs a case of its own: a volatile function is one that its
//! definition calls so, and all functions of the session are captured.

use std::{cell::RefCell, fmt, vec};

use freshet_sql::{SqlError, Value};

use super::{LONGEST, value};

/// The captured values of a statement.
pub enum Captured {
    /// It is recorded: they are noted.
    Noting(RefCell<Noted>),
    /// It is executed again: they are told.
    Telling(RefCell<vec::IntoIter<Value>>),
}

/// Values that were noted.
#[derive(Debug, Default)]
pub struct Noted {
    count: u64,
    bytes: Vec<u8>,
    is_full: bool,
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
            Self::Telling(told) => write!(f, "Telling({} values)", told.borrow().len()),
        }
    }
}

impl Captured {
    /// Of a statement that is executed again.
    pub fn telling(values: Vec<Value>) -> Self {
        Self::Telling(RefCell::new(values.into_iter()))
    }

    /// Whether the statement is executed again.
    pub fn is_again(&self) -> bool {
        matches!(self, Self::Telling(_))
    }

    /// The value of something: `fresh`, or what that was when the statement was recorded.
    ///
    /// # Errors
    /// As `fresh`; where the statement is executed again, that it asks for more than it did.
    pub fn value(&self, fresh: impl FnOnce() -> Result<Value, SqlError>) -> Result<Value, SqlError> {
        match self {
            Self::Noting(noted) => {
                let value = fresh()?;
                noted.borrow_mut().note(&value);
                Ok(value)
            }
            Self::Telling(told) => told.borrow_mut().next().ok_or_else(exhausted),
        }
    }

    /// Fails when the statement has asked for less than it did when it was recorded.
    ///
    /// # Errors
    /// If so.
    pub fn finish(&self) -> Result<(), SqlError> {
        match self {
            Self::Telling(told) if told.borrow().len() > 0 => {
                Err(SqlError::internal("a statement that is executed again asks for less than it did"))
            }
            _ => Ok(()),
        }
    }

    /// Takes the values that were noted, and their number; nothing when they were too many.
    pub(super) fn take(&self) -> Option<(u64, Vec<u8>)> {
        match self {
            Self::Noting(noted) => {
                let Noted { count, bytes, is_full } = noted.take();
                (!is_full).then_some((count, bytes))
            }
            Self::Telling(_) => None,
        }
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

    #[test]
    fn what_was_noted_is_told() {
        let noting = Captured::default();
        assert_eq!(noting.value(|| Ok(Value::Int4(7))).unwrap(), Value::Int4(7));
        assert!(noting.value(|| Err(SqlError::internal("no"))).is_err());
        assert_eq!(noting.value(|| Ok(Value::Null)).unwrap(), Value::Null);
        let (count, bytes) = noting.take().unwrap();
        let mut from = &bytes[..];
        let values = (0..count).map(|_| value::take(&mut from).unwrap()).collect();
        let telling = Captured::telling(values);
        assert!(telling.finish().is_err(), "nothing was asked for yet");
        assert_eq!(telling.value(|| panic!("it is not evaluated")).unwrap(), Value::Int4(7));
        assert_eq!(telling.value(|| panic!("nor is this")).unwrap(), Value::Null);
        telling.finish().unwrap();
        assert!(telling.value(|| Ok(Value::Null)).is_err());
        assert_eq!(noting.take().unwrap().0, 0, "they were taken");
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
