//! Values in the encoding of a client.

use std::borrow::Cow;

use freshet_postgres::{Encoding, Format};
use freshet_sql::{
    SqlError, ValueRef,
    types::{EvalContext, Kind, binary, text},
};

use super::wire::undelivered;

/// Whether values of a type are texts in the binary format, too.
fn is_text(kind: Kind) -> bool {
    matches!(
        kind,
        Kind::Text
            | Kind::Varchar
            | Kind::Char
            | Kind::Name
            | Kind::SingleChar
            | Kind::Json
            | Kind::Jsonb
            | Kind::Unknown
    )
}

/// A value that a client has sent, with its texts in UTF-8.
///
/// # Errors
/// 22021, 22P05
pub fn decoded(encoding: Encoding, kind: Kind, format: Format, bytes: &[u8]) -> Result<Cow<'_, [u8]>, SqlError> {
    let decode = |bytes: &[u8], into: &mut Vec<u8>| {
        into.extend_from_slice(encoding.decode(bytes).map_err(undelivered)?.as_bytes());
        Ok(())
    };
    recoded(encoding, kind, format, bytes, decode)
}

/// A value of a type for a client, as it reads it. Nothing is appended for null.
///
/// # Errors
/// 22P05
pub fn encoded(
    encoding: Encoding,
    (kind, format): (Kind, Format),
    value: ValueRef<'_>,
    context: &EvalContext<'_>,
    into: &mut Vec<u8>,
) -> Result<(), SqlError> {
    let mut bytes = Vec::new();
    match format {
        Format::Binary => binary::output(value, &mut bytes),
        Format::Text => {
            let mut written = String::new();
            text::output_as(kind, value, context, &mut written);
            bytes = written.into_bytes();
        }
    }
    let encode = |bytes: &[u8], into: &mut Vec<u8>| {
        // What is not UTF-8 is no text.
        match std::str::from_utf8(bytes) {
            Ok(text) => encoding.encode(text, into).map_err(undelivered),
            Err(_) => {
                into.extend_from_slice(bytes);
                Ok(())
            }
        }
    };
    into.extend_from_slice(&recoded(encoding, kind, format, &bytes, encode)?);
    Ok(())
}

fn recoded<'b>(
    encoding: Encoding,
    kind: Kind,
    format: Format,
    bytes: &'b [u8],
    mut recode: impl FnMut(&[u8], &mut Vec<u8>) -> Result<(), SqlError>,
) -> Result<Cow<'b, [u8]>, SqlError> {
    if encoding.is_utf8() || bytes.is_ascii() {
        return Ok(Cow::Borrowed(bytes));
    }
    let mut into = Vec::with_capacity(bytes.len() * 2);
    if format == Format::Text || is_text(kind) {
        recode(bytes, &mut into)?;
        return Ok(Cow::Owned(into));
    }
    if kind.element().is_some_and(is_text) && elements(bytes, &mut into, &mut recode)? {
        return Ok(Cow::Owned(into));
    }
    Ok(Cow::Borrowed(bytes))
}

/// Appends an array in the binary format, with its elements recoded; says whether it is one.
fn elements(
    bytes: &[u8],
    into: &mut Vec<u8>,
    recode: &mut impl FnMut(&[u8], &mut Vec<u8>) -> Result<(), SqlError>,
) -> Result<bool, SqlError> {
    // Dimensions, flags, the type; of each dimension length and lower bound.
    let Some(dimensions) = bytes.first_chunk().map(|count| u32::from_be_bytes(*count)) else { return Ok(false) };
    let Some(head) = usize::try_from(dimensions).ok().filter(|count| *count <= 6).map(|count| 12 + 8 * count) else {
        return Ok(false);
    };
    let Some((head, mut rest)) = bytes.split_at_checked(head) else { return Ok(false) };
    into.extend_from_slice(head);
    while let Some((length, after)) = rest.split_first_chunk() {
        let Ok(wanted) = usize::try_from(i32::from_be_bytes(*length)) else {
            into.extend_from_slice(length);
            rest = after;
            continue;
        };
        let Some((element, after)) = after.split_at_checked(wanted) else { return Ok(false) };
        let place = into.len();
        into.extend_from_slice(length);
        recode(element, into)?;
        let recoded = i32::try_from(into.len() - place - 4).unwrap_or(i32::MAX);
        into[place..place + 4].copy_from_slice(&recoded.to_be_bytes());
        rest = after;
    }
    Ok(rest.is_empty())
}
