//! What clients say once a session is open: messages decoded in place, nothing copied.
//!
//! A message is checked as a whole when it is decoded; what is read from it afterwards cannot fail.

use std::num::NonZeroU32;

use crate::{
    encoding,
    report::{Report, SqlState},
    route::NOTE,
};

/// The longest message of a kind that carries names and numbers only.
const SMALL: usize = 10_000;

/// A message of this kind: kind, length, body.
pub(crate) fn framed(kind: u8, body: &[u8]) -> Vec<u8> {
    let length = u32::try_from(body.len() + 4).unwrap_or(u32::MAX);
    [&[kind], &length.to_be_bytes()[..], body].concat()
}

/// Why a message is not one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// It is not shaped as the protocol says: nothing that follows can be trusted.
    Malformed(&'static str),
    /// It is well formed, but says what cannot be.
    Refused(Report),
    /// It carries more than is taken. What is still to come of it is passed over.
    TooLong {
        /// The byte that says which message it is.
        kind: u8,
        /// The error that the client gets.
        report: Report,
    },
}

impl Fault {
    /// The error that the client gets.
    pub(crate) fn into_report(self) -> Report {
        match self {
            Self::Malformed(what) => Report::violation(format!("malformed message: {what}")),
            Self::Refused(report) | Self::TooLong { report, .. } => report,
        }
    }
}

/// How a value is written down: the format codes of the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u16)]
pub enum Format {
    /// Code 0.
    Text = 0,
    /// Code 1.
    Binary = 1,
}

/// Format codes of several values: none (all are text), one for all, or one for each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Formats<'a>(&'a [[u8; 2]]);

impl Formats<'_> {
    /// All values are text.
    pub const TEXT: Formats<'static> = Formats(&[]);

    /// How the value with this number, from 0, is written.
    #[must_use]
    pub fn of(&self, number: usize) -> Format {
        let code = if self.0.len() == 1 { self.0.first() } else { self.0.get(number) };
        match code {
            Some([0, 1]) => Format::Binary,
            _ => Format::Text,
        }
    }

    /// How many codes there are.
    #[must_use]
    pub fn codes(&self) -> usize {
        self.0.len()
    }

    /// Checks the formats of results against the number of columns.
    ///
    /// # Errors
    /// When there are several codes, but not as many as columns.
    pub fn check_columns(&self, columns: usize) -> Result<(), Report> {
        if self.0.len() <= 1 || self.0.len() == columns {
            return Ok(());
        }
        let message = format!("bind message has {} result formats but query has {columns} columns", self.0.len());
        Err(Report::error(SqlState::PROTOCOL_VIOLATION, message))
    }

    /// To be kept: the codes, as [`Formats::of`] understands them.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = Format> + '_ {
        (0..self.0.len()).map(|number| self.of(number))
    }
}

/// The values of a Bind message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Values<'a> {
    count: u16,
    /// Each with its length before it, -1 for null; checked.
    raw: &'a [u8],
}

impl<'a> Values<'a> {
    /// How many values there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.count.into()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The values in order; `None` is null.
    #[must_use]
    pub fn iter(&self) -> ValuesIter<'a> {
        ValuesIter(*self)
    }
}

impl<'a> IntoIterator for Values<'a> {
    type Item = Option<&'a [u8]>;
    type IntoIter = ValuesIter<'a>;

    fn into_iter(self) -> ValuesIter<'a> {
        ValuesIter(self)
    }
}

/// Iterates over [`Values`].
#[derive(Clone, Debug)]
pub struct ValuesIter<'a>(Values<'a>);

impl<'a> Iterator for ValuesIter<'a> {
    type Item = Option<&'a [u8]>;

    fn next(&mut self) -> Option<Self::Item> {
        self.0.count = self.0.count.checked_sub(1)?;
        let (length, rest) = self.0.raw.split_first_chunk()?;
        let (value, rest) = match usize::try_from(i32::from_be_bytes(*length)) {
            Err(_) => (None, rest),
            Ok(length) => {
                let (value, rest) = rest.split_at_checked(length)?;
                (Some(value), rest)
            }
        };
        self.0.raw = rest;
        Some(value)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.0.len(), Some(self.0.len()))
    }
}

impl ExactSizeIterator for ValuesIter<'_> {}

/// The parameters' types that a Parse message names, as object ids; 0 leaves one open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Types<'a>(&'a [[u8; 4]]);

impl<'a> Types<'a> {
    /// These object ids, as the protocol writes them.
    #[must_use]
    pub fn of(raw: &'a [[u8; 4]]) -> Self {
        Self(raw)
    }

    /// How many are named.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether none is named.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The object ids in order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = u32> + '_ {
        self.0.iter().map(|raw| u32::from_be_bytes(*raw))
    }
}

/// A Bind message: makes a portal of a prepared statement and values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bind<'a> {
    /// The portal to make; the unnamed one is replaced.
    pub portal: &'a str,
    /// The statement that it runs.
    pub statement: &'a str,
    /// How the values are written.
    pub formats: Formats<'a>,
    /// The values of the parameters, in the order of their numbers.
    pub values: Values<'a>,
    /// How the results are to be written.
    pub results: Formats<'a>,
}

/// What Describe and Close are about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Target<'a> {
    Statement(&'a str),
    Portal(&'a str),
}

/// A message, but for those of the start-up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Message<'a> {
    Query(&'a str),
    Parse { name: &'a str, sql: &'a str, types: Types<'a> },
    Bind(Bind<'a>),
    Describe(Target<'a>),
    Execute { portal: &'a str, limit: Option<NonZeroU32> },
    Close(Target<'a>),
    Flush,
    Sync,
    FunctionCall,
    CopyData(&'a [u8]),
    CopyDone,
    CopyFail(&'a str),
    Terminate,
}

impl<'a> Message<'a> {
    /// Decodes the body of a message of this kind.
    pub(crate) fn decode(kind: u8, body: &'a [u8]) -> Result<Self, Fault> {
        let mut body = Body(body);
        let message = match kind {
            b'Q' => Self::Query(text(body.string()?)?),
            b'P' => {
                let name = body.string()?;
                let sql = body.string()?;
                let count = body.u16()?;
                let types = Types(body.array(count)?);
                body.end()?;
                Self::Parse { name: text(name)?, sql: text(sql)?, types }
            }
            b'B' => return bind(body).map(Self::Bind),
            b'D' => Self::Describe(body.target()?),
            b'E' => {
                let portal = body.string()?;
                let limit = u32::try_from(body.i32()?).ok().and_then(NonZeroU32::new);
                body.end()?;
                Self::Execute { portal: text(portal)?, limit }
            }
            b'C' => Self::Close(body.target()?),
            b'H' => Self::Flush,
            b'S' => Self::Sync,
            b'F' => return Ok(Self::FunctionCall),
            b'd' => return Ok(Self::CopyData(body.0)),
            b'c' => Self::CopyDone,
            b'f' => Self::CopyFail(text(body.string()?)?),
            b'X' => Self::Terminate,
            _ => return Err(Fault::Malformed("no such kind of message")),
        };
        body.end()?;
        Ok(message)
    }

    /// Whether messages of this kind carry what can be of any length.
    pub(crate) fn carries_data(kind: u8) -> bool {
        matches!(kind, b'Q' | b'P' | b'B' | b'F' | b'd' | NOTE)
    }

    /// How long the body of a message of this kind may be, when `longest` is the limit for those
    /// that carry data.
    pub(crate) fn longest(kind: u8, longest: usize) -> usize {
        if Self::carries_data(kind) { longest } else { longest.min(SMALL) }
    }
}

fn bind(mut body: Body<'_>) -> Result<Bind<'_>, Fault> {
    let portal = body.string()?;
    let statement = body.string()?;
    let count = body.u16()?;
    let formats = body.array(count)?;
    let count = body.u16()?;
    let values = body.values(count)?;
    let results = body.u16()?;
    let results = body.array(results)?;
    body.end()?;
    if formats.len() > 1 && formats.len() != values.len() {
        let message = format!("bind message has {} parameter formats but {} parameters", formats.len(), values.len());
        return Err(Fault::Refused(Report::error(SqlState::PROTOCOL_VIOLATION, message)));
    }
    Ok(Bind {
        portal: text(portal)?,
        statement: text(statement)?,
        formats: checked(formats)?,
        values,
        results: checked(results)?,
    })
}

fn checked(codes: &[[u8; 2]]) -> Result<Formats<'_>, Fault> {
    match codes.iter().map(|code| u16::from_be_bytes(*code)).find(|code| *code > 1) {
        None => Ok(Formats(codes)),
        Some(code) => {
            let message = format!("unsupported format code: {code}");
            Err(Fault::Refused(Report::error(SqlState::INVALID_PARAMETER_VALUE, message)))
        }
    }
}

/// Text of a client, which must be UTF-8.
fn text(bytes: &[u8]) -> Result<&str, Fault> {
    std::str::from_utf8(bytes).map_err(|cause| {
        let bad = &bytes[cause.valid_up_to()..];
        let bad = &bad[..cause.error_len().unwrap_or(bad.len()).min(bad.len())];
        Fault::Refused(encoding::invalid("UTF8", bad))
    })
}

/// What is left of a message.
pub(crate) struct Body<'a>(pub(crate) &'a [u8]);

impl<'a> Body<'a> {
    const SHORT: Fault = Fault::Malformed("it ends too early");

    fn take<const N: usize>(&mut self) -> Result<[u8; N], Fault> {
        let (taken, rest) = self.0.split_first_chunk().ok_or(Self::SHORT)?;
        self.0 = rest;
        Ok(*taken)
    }

    fn u16(&mut self) -> Result<u16, Fault> {
        self.take().map(u16::from_be_bytes)
    }

    pub(crate) fn i32(&mut self) -> Result<i32, Fault> {
        self.take().map(i32::from_be_bytes)
    }

    pub(crate) fn bytes(&mut self, count: usize) -> Result<&'a [u8], Fault> {
        let (taken, rest) = self.0.split_at_checked(count).ok_or(Self::SHORT)?;
        self.0 = rest;
        Ok(taken)
    }

    /// This many items of `N` bytes each.
    fn array<const N: usize>(&mut self, count: u16) -> Result<&'a [[u8; N]], Fault> {
        Ok(self.bytes(N * usize::from(count))?.as_chunks().0)
    }

    /// Bytes up to a NUL.
    pub(crate) fn string(&mut self) -> Result<&'a [u8], Fault> {
        let end = self.0.iter().position(|byte| *byte == 0);
        let end = end.ok_or(Fault::Malformed("a string does not end"))?;
        let taken = self.bytes(end)?;
        self.0 = &self.0[1..];
        Ok(taken)
    }

    fn values(&mut self, count: u16) -> Result<Values<'a>, Fault> {
        let before = self.0;
        for _ in 0..count {
            match self.i32()? {
                -1 => {}
                length => {
                    let length =
                        usize::try_from(length).map_err(|_| Fault::Malformed("a value's length is negative"))?;
                    self.bytes(length)?;
                }
            }
        }
        Ok(Values { count, raw: &before[..before.len() - self.0.len()] })
    }

    fn target(&mut self) -> Result<Target<'a>, Fault> {
        let [kind] = self.take()?;
        let name = self.string()?;
        self.end()?;
        match kind {
            b'S' => Ok(Target::Statement(text(name)?)),
            b'P' => Ok(Target::Portal(text(name)?)),
            _ => Err(Fault::Malformed("it is about neither a statement nor a portal")),
        }
    }

    pub(crate) fn end(&self) -> Result<(), Fault> {
        if self.0.is_empty() { Ok(()) } else { Err(Fault::Malformed("something follows its end")) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BIND: &[u8] = b"p\0s\0\0\x01\0\x01\0\x03\0\0\0\x02ab\xff\xff\xff\xff\0\0\0\0\0\x02\0\x01\0\0";

    #[test]
    fn bind_is_read_in_place() {
        let Ok(Message::Bind(bind)) = Message::decode(b'B', BIND) else { panic!("it is well formed") };
        assert_eq!((bind.portal, bind.statement), ("p", "s"));
        assert_eq!(bind.values.iter().collect::<Vec<_>>(), [Some(&b"ab"[..]), None, Some(b"")]);
        assert_eq!((bind.formats.of(0), bind.formats.of(2)), (Format::Binary, Format::Binary));
        assert_eq!(bind.results.iter().collect::<Vec<_>>(), [Format::Binary, Format::Text]);
        assert!(bind.results.check_columns(2).is_ok());
        assert_eq!(bind.results.check_columns(3).unwrap_err().state(), SqlState::PROTOCOL_VIOLATION);
        assert_eq!(Formats::TEXT.of(5), Format::Text);
    }

    #[test]
    fn whatever_is_cut_off_or_added_is_malformed() {
        let whole: [(u8, &[u8]); 8] = [
            (b'B', BIND),
            (b'P', b"s\0select\0\0\x02\0\0\0\x17\0\0\0\0"),
            (b'Q', b"select\0"),
            (b'D', b"Ss\0"),
            (b'C', b"Pp\0"),
            (b'E', b"p\0\0\0\0\x05"),
            (b'f', b"no\0"),
            (b'S', b""),
        ];
        for (kind, body) in whole {
            assert!(Message::decode(kind, body).is_ok());
            for end in 0..body.len() {
                let cut = Message::decode(kind, &body[..end]);
                assert!(matches!(cut, Err(Fault::Malformed(_))), "{} cut at {end}", char::from(kind));
            }
            let longer = [body, b"x"].concat();
            assert!(matches!(Message::decode(kind, &longer), Err(Fault::Malformed(_))));
        }
        assert!(matches!(Message::decode(b'D', b"Xs\0"), Err(Fault::Malformed(_))));
        assert!(matches!(Message::decode(b'!', b""), Err(Fault::Malformed(_))));
    }

    #[test]
    fn what_cannot_be_is_refused_with_its_own_code() {
        let state = |kind, body| match Message::decode(kind, body) {
            Err(Fault::Refused(report)) => report.state().to_string(),
            other => panic!("{other:?}"),
        };
        assert_eq!(state(b'Q', b"sel\xffect\0"), "22021");
        assert_eq!(state(b'P', b"\xc3\0select\0\0\0"), "22021");
        assert_eq!(state(b'B', b"\0\0\0\x01\0\x02\0\0\0\0"), "22023");
        assert_eq!(state(b'B', b"\0\0\0\x02\0\x01\0\x01\0\0\0\0"), "08P01");
        assert!(matches!(
            Message::decode(b'B', b"\0\0\0\0\0\x01\xff\xff\xff\xfe\0\0"),
            Err(Fault::Malformed("a value's length is negative"))
        ));
    }

    #[test]
    fn limits_of_rows() {
        let limit = |raw: i32| {
            let body = [b"\0".as_slice(), &raw.to_be_bytes()].concat();
            match Message::decode(b'E', &body) {
                Ok(Message::Execute { limit, .. }) => limit.map(NonZeroU32::get),
                other => panic!("{other:?}"),
            }
        };
        assert_eq!((limit(0), limit(-1), limit(3)), (None, None, Some(3)));
    }
}
