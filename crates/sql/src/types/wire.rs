//! Reading binary values as the protocol sends them: big-endian, and never trusted.

use crate::{SqlError, SqlState};

/// Takes fields off the front of a value.
#[derive(Clone, Copy, Debug)]
pub struct Reader<'a>(&'a [u8]);

#[cold]
fn short() -> SqlError {
    SqlError::new(SqlState::PROTOCOL_VIOLATION, "insufficient data left in message")
}

/// The error for a value with more or fewer bytes than its type has.
#[cold]
pub(crate) fn bad_format() -> SqlError {
    SqlError::new(SqlState::INVALID_BINARY_REPRESENTATION, "incorrect binary data format")
}

macro_rules! numbers {
    ($($name:ident: $number:ty,)+) => {$(
        #[doc = concat!("The next `", stringify!($number), "`.\n\n# Errors\n08P01 when too few bytes are left.")]
        #[inline]
        pub fn $name(&mut self) -> Result<$number, SqlError> {
            Ok(<$number>::from_be_bytes(self.array()?))
        }
    )+};
}

impl<'a> Reader<'a> {
    /// A reader at the beginning of `bytes`.
    pub const fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    /// The bytes that were not read yet.
    pub const fn rest(self) -> &'a [u8] {
        self.0
    }

    /// The next `length` bytes.
    ///
    /// # Errors
    /// 08P01 when too few are left.
    pub fn take(&mut self, length: usize) -> Result<&'a [u8], SqlError> {
        let (taken, rest) = self.0.split_at_checked(length).ok_or_else(short)?;
        self.0 = rest;
        Ok(taken)
    }

    /// The next bytes, as many as the array has.
    ///
    /// # Errors
    /// 08P01 when too few are left.
    #[inline]
    pub fn array<const N: usize>(&mut self) -> Result<[u8; N], SqlError> {
        let (taken, rest) = self.0.split_first_chunk().ok_or_else(short)?;
        self.0 = rest;
        Ok(*taken)
    }

    numbers! { u8: u8, u16: u16, i16: i16, u32: u32, i32: i32, i64: i64, f32: f32, f64: f64, }

    /// Says that the value must end here.
    ///
    /// # Errors
    /// 22P03 when it does not.
    pub fn end(self) -> Result<(), SqlError> {
        if self.0.is_empty() { Ok(()) } else { Err(bad_format()) }
    }
}
