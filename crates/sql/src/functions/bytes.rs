//! Functions of `bytea`, hashes, and encodings.

use sha2::{Digest, Sha224, Sha256, Sha384, Sha512};

use super::{
    Function, mismatch,
    string::{checked_length, part},
    take,
};
use crate::{
    SqlError, SqlState,
    types::{EvalContext, Kind, Value, bytes, cast_out_of_range, text},
    work,
};

const T: Kind = Kind::Text;
const I: Kind = Kind::Int4;
const L: Kind = Kind::Int8;
const BYTES: Kind = Kind::Bytea;

pub(super) const FUNCTIONS: &[Function] = &[
    Function::new("||", &[BYTES, BYTES], BYTES, concat_bytes),
    Function::new("substr", &[BYTES, I], BYTES, substring_bytes),
    Function::new("substr", &[BYTES, I, I], BYTES, substring_bytes),
    Function::new("substring", &[BYTES, I], BYTES, substring_bytes),
    Function::new("substring", &[BYTES, I, I], BYTES, substring_bytes),
    Function::new("btrim", &[BYTES, BYTES], BYTES, |arguments, _| trim_bytes(arguments, true, true)),
    Function::new("ltrim", &[BYTES, BYTES], BYTES, |arguments, _| trim_bytes(arguments, true, false)),
    Function::new("rtrim", &[BYTES, BYTES], BYTES, |arguments, _| trim_bytes(arguments, false, true)),
    Function::new("position", &[BYTES, BYTES], I, position_bytes),
    Function::new("md5", &[T], T, md5),
    Function::new("md5", &[BYTES], T, md5),
    Function::new("encode", &[BYTES, T], T, encode),
    Function::new("decode", &[T, T], BYTES, decode),
    Function::new("convert_from", &[BYTES, Kind::Name], T, convert_from),
    Function::new("convert_to", &[T, Kind::Name], BYTES, convert_to),
    Function::new("get_byte", &[BYTES, I], I, get_byte),
    Function::new("set_byte", &[BYTES, I, I], BYTES, set_byte),
    Function::new("overlay", &[BYTES, BYTES, I], BYTES, overlay),
    Function::new("overlay", &[BYTES, BYTES, I, I], BYTES, overlay),
    Function::new("convert", &[BYTES, Kind::Name, Kind::Name], BYTES, convert),
    Function::new("get_bit", &[BYTES, L], I, get_bit),
    Function::new("set_bit", &[BYTES, L, I], BYTES, set_bit),
    Function::new("bit_count", &[BYTES], L, bit_count),
    Function::new("sha224", &[BYTES], BYTES, |arguments, _| hash::<Sha224>(arguments)),
    Function::new("sha256", &[BYTES], BYTES, |arguments, _| hash::<Sha256>(arguments)),
    Function::new("sha384", &[BYTES], BYTES, |arguments, _| hash::<Sha384>(arguments)),
    Function::new("sha512", &[BYTES], BYTES, |arguments, _| hash::<Sha512>(arguments)),
];

fn concat_bytes(arguments: &[Value], _: &EvalContext<'_>) -> Result<Value, SqlError> {
    take!(arguments: Bytea(one), Bytea(two));
    checked_length(one.len() + two.len())?;
    Ok(Value::bytea([&**one, &**two].concat()))
}

fn substring_bytes(arguments: &[Value], _: &EvalContext<'_>) -> Result<Value, SqlError> {
    let (bytes, from, length) = match arguments {
        [Value::Bytea(bytes), Value::Int4(from)] => (bytes, *from, None),
        [Value::Bytea(bytes), Value::Int4(from), Value::Int4(length)] => (bytes, *from, Some(*length)),
        _ => return Err(mismatch(arguments)),
    };
    let (start, end) = part(bytes.len(), from, length)?;
    Ok(Value::bytea(&bytes[start..end]))
}

fn trim_bytes(arguments: &[Value], front: bool, back: bool) -> Result<Value, SqlError> {
    take!(arguments: Bytea(bytes), Bytea(set));
    let mut trimmed = &**bytes;
    let mut among = [false; 256];
    set.iter().for_each(|byte| among[usize::from(*byte)] = true);
    let other = |byte: &u8| !among[usize::from(*byte)];
    if front {
        trimmed = &trimmed[trimmed.iter().position(other).unwrap_or(trimmed.len())..];
    }
    if back {
        trimmed = &trimmed[..trimmed.iter().rposition(other).map_or(0, |last| last + 1)];
    }
    Ok(Value::bytea(trimmed))
}

fn position_bytes(arguments: &[Value], _: &EvalContext<'_>) -> Result<Value, SqlError> {
    take!(arguments: Bytea(bytes), Bytea(wanted));
    let found = memchr::memmem::find(bytes, wanted);
    Ok(Value::Int4(found.map_or(0, |at| at as i32 + 1)))
}

fn md5(arguments: &[Value], _: &EvalContext<'_>) -> Result<Value, SqlError> {
    let hash = match arguments {
        [Value::Text(text)] => md5::Md5::digest(text.as_bytes()),
        [Value::Bytea(bytes)] => md5::Md5::digest(bytes),
        _ => return Err(mismatch(arguments)),
    };
    let mut out = String::with_capacity(32);
    for byte in hash {
        bytes::write_hex(byte, &mut out);
    }
    Ok(Value::text(out))
}

#[cold]
fn unknown_encoding(name: &str) -> SqlError {
    SqlError::new(SqlState::INVALID_PARAMETER_VALUE, format!("unrecognized encoding: \"{name}\""))
}

fn encode(arguments: &[Value], _: &EvalContext<'_>) -> Result<Value, SqlError> {
    take!(arguments: Bytea(bytes), Text(format));
    checked_length(bytes.len().saturating_mul(2))?;
    let mut out = String::new();
    match format.to_ascii_lowercase().as_str() {
        "hex" => {
            for piece in work::byte_pieces(bytes) {
                piece?.iter().for_each(|byte| bytes::write_hex(*byte, &mut out));
            }
        }
        "base64" => bytes::write_base64(bytes, &mut out)?,
        "escape" => {
            for piece in work::byte_pieces(bytes) {
                bytes::write_escaped(piece?, &mut out);
                checked_length(out.len())?;
            }
        }
        _ => return Err(unknown_encoding(format)),
    }
    Ok(Value::text(out))
}

fn decode(arguments: &[Value], _: &EvalContext<'_>) -> Result<Value, SqlError> {
    take!(arguments: Text(text), Text(format));
    let decoded = match format.to_ascii_lowercase().as_str() {
        "hex" => bytes::parse_hex(text)?,
        "base64" => bytes::parse_base64(text)?,
        "escape" => bytes::parse_escaped(text)?,
        _ => return Err(unknown_encoding(format)),
    };
    Ok(Value::bytea(decoded))
}

/// An encoding that text can come from and go to.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Encoding {
    Utf8,
    Latin1,
    /// SQL_ASCII: bytes whose encoding nobody knows.
    Ascii,
}

impl Encoding {
    /// The encoding of a name, in which only letters and digits count.
    fn find(name: &str, what: &str) -> Result<Self, SqlError> {
        let key: String = name.chars().filter(char::is_ascii_alphanumeric).collect();
        match key.to_ascii_lowercase().as_str() {
            "utf8" | "unicode" => Ok(Self::Utf8),
            "latin1" | "iso88591" => Ok(Self::Latin1),
            "sqlascii" => Ok(Self::Ascii),
            _ => Err(SqlError::new(
                SqlState::INVALID_PARAMETER_VALUE,
                format!("invalid {what} encoding name \"{name}\""),
            )),
        }
    }

    fn decode(self, bytes: &[u8]) -> Result<String, SqlError> {
        match self {
            Self::Utf8 | Self::Ascii => Ok(text::decode(bytes)?.to_owned()),
            Self::Latin1 => {
                let decoded: String = bytes.iter().map(|byte| char::from(*byte)).collect();
                Ok(text::checked(&decoded)?.to_owned())
            }
        }
    }

    fn encode(self, text: &str) -> Result<Vec<u8>, SqlError> {
        if self != Self::Latin1 {
            return Ok(text.as_bytes().to_vec());
        }
        text.chars().map(|character| u8::try_from(character).map_err(|_| no_equivalent(character))).collect()
    }
}

#[cold]
fn no_equivalent(character: char) -> SqlError {
    let bytes: Vec<_> = character.encode_utf8(&mut [0; 4]).bytes().map(|byte| format!("0x{byte:02x}")).collect();
    SqlError::new(
        SqlState::UNTRANSLATABLE_CHARACTER,
        format!(
            "character with byte sequence {} in encoding \"UTF8\" has no equivalent in encoding \"LATIN1\"",
            bytes.join(" ")
        ),
    )
}

fn convert_from(arguments: &[Value], _: &EvalContext<'_>) -> Result<Value, SqlError> {
    take!(arguments: Bytea(bytes), Text(encoding));
    Ok(Value::text(Encoding::find(encoding, "source")?.decode(bytes)?))
}

fn convert_to(arguments: &[Value], _: &EvalContext<'_>) -> Result<Value, SqlError> {
    take!(arguments: Text(text), Text(encoding));
    Ok(Value::bytea(Encoding::find(encoding, "destination")?.encode(text)?))
}

fn convert(arguments: &[Value], _: &EvalContext<'_>) -> Result<Value, SqlError> {
    take!(arguments: Bytea(bytes), Text(from), Text(to));
    let (from, to) = (Encoding::find(from, "source")?, Encoding::find(to, "destination")?);
    Ok(Value::bytea(to.encode(&from.decode(bytes)?)?))
}

fn byte_index(length: usize, at: i32) -> Result<usize, SqlError> {
    usize::try_from(at).ok().filter(|at| *at < length).ok_or_else(|| {
        SqlError::new(
            SqlState::ARRAY_SUBSCRIPT_ERROR,
            format!("index {at} out of valid range, 0..{}", length as i64 - 1),
        )
    })
}

fn get_byte(arguments: &[Value], _: &EvalContext<'_>) -> Result<Value, SqlError> {
    take!(arguments: Bytea(bytes), Int4(at));
    Ok(Value::Int4(bytes[byte_index(bytes.len(), *at)?].into()))
}

fn set_byte(arguments: &[Value], _: &EvalContext<'_>) -> Result<Value, SqlError> {
    take!(arguments: Bytea(bytes), Int4(at), Int4(new));
    let at = byte_index(bytes.len(), *at)?;
    let mut changed = bytes.to_vec();
    changed[at] = *new as u8;
    Ok(Value::bytea(changed))
}

/// The byte that a bit is in, and the bit's place in it.
fn bit_index(bytes: &[u8], at: i64) -> Result<(usize, u32), SqlError> {
    let bits = bytes.len() as i64 * 8;
    if !(0..bits).contains(&at) {
        return Err(SqlError::new(
            SqlState::ARRAY_SUBSCRIPT_ERROR,
            format!("index {at} out of valid range, 0..{}", bits - 1),
        ));
    }
    Ok(((at / 8) as usize, (at % 8) as u32))
}

fn get_bit(arguments: &[Value], _: &EvalContext<'_>) -> Result<Value, SqlError> {
    take!(arguments: Bytea(bytes), Int8(at));
    let (byte, bit) = bit_index(bytes, *at)?;
    Ok(Value::Int4((bytes[byte] >> bit & 1).into()))
}

fn set_bit(arguments: &[Value], _: &EvalContext<'_>) -> Result<Value, SqlError> {
    take!(arguments: Bytea(bytes), Int8(at), Int4(new));
    let (byte, bit) = bit_index(bytes, *at)?;
    let mut changed = bytes.to_vec();
    match *new {
        0 => changed[byte] &= !(1 << bit),
        1 => changed[byte] |= 1 << bit,
        _ => return Err(SqlError::new(SqlState::INVALID_PARAMETER_VALUE, "new bit must be 0 or 1")),
    }
    Ok(Value::bytea(changed))
}

fn bit_count(arguments: &[Value], _: &EvalContext<'_>) -> Result<Value, SqlError> {
    take!(arguments: Bytea(bytes));
    Ok(Value::Int8(bytes.iter().map(|byte| i64::from(byte.count_ones())).sum()))
}

fn hash<D: Digest>(arguments: &[Value]) -> Result<Value, SqlError> {
    take!(arguments: Bytea(bytes));
    Ok(Value::bytea(D::digest(bytes).to_vec()))
}

fn overlay(arguments: &[Value], _: &EvalContext<'_>) -> Result<Value, SqlError> {
    let (bytes, new, from, length) = match arguments {
        [Value::Bytea(bytes), Value::Bytea(new), Value::Int4(from)] => (bytes, new, *from, new.len() as i32),
        [Value::Bytea(bytes), Value::Bytea(new), Value::Int4(from), Value::Int4(length)] => {
            (bytes, new, *from, *length)
        }
        _ => return Err(mismatch(arguments)),
    };
    if from <= 0 {
        return Err(SqlError::new(SqlState::SUBSTRING_ERROR, "negative substring length not allowed"));
    }
    let (_, before) = part(bytes.len(), 1, Some(from - 1))?;
    let after = from.checked_add(length).ok_or_else(|| cast_out_of_range(I))?;
    let (after, _) = part(bytes.len(), after, None)?;
    checked_length(before + new.len() + bytes.len() - after)?;
    Ok(Value::bytea([&bytes[..before], &**new, &bytes[after..]].concat()))
}
