//! Values in few bytes: a tag, and what the kind needs. They come back as they were, whatever
//! settings there are.

use freshet_base::varint;
use freshet_sql::{
    Kind, Type, Value,
    types::{Date, Interval, Time, Timestamp, binary},
};

const NULL: u8 = 0;
const FALSE: u8 = 1;
const TRUE: u8 = 2;
const INT2: u8 = 3;
const INT4: u8 = 4;
const INT8: u8 = 5;
const FLOAT4: u8 = 6;
const FLOAT8: u8 = 7;
const OID: u8 = 8;
const CHAR: u8 = 9;
const TEXT: u8 = 10;
const PADDED: u8 = 11;
const BYTEA: u8 = 12;
const JSON: u8 = 13;
const JSONB: u8 = 14;
const DATE: u8 = 15;
const TIME: u8 = 16;
const TIMESTAMP: u8 = 17;
const TIMESTAMPTZ: u8 = 18;
const INTERVAL: u8 = 19;
const UUID: u8 = 20;
/// Any other kind: its number, and the value as the protocol's binary format has it.
const OTHER: u8 = 21;

/// Appends bytes behind their number.
pub(super) fn put_bytes(bytes: &[u8], out: &mut Vec<u8>) {
    varint::put(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

/// Takes what [`put_bytes`] has written. None when it is not there; any bytes are safe.
pub(super) fn take_bytes<'b>(from: &mut &'b [u8]) -> Option<&'b [u8]> {
    let length = usize::try_from(varint::take(from)?).ok()?;
    let (bytes, rest) = from.split_at_checked(length)?;
    *from = rest;
    Some(bytes)
}

/// Takes a text.
pub(super) fn take_text<'b>(from: &mut &'b [u8]) -> Option<&'b str> {
    std::str::from_utf8(take_bytes(from)?).ok()
}

/// Takes a few bytes.
pub(super) fn take_array<const N: usize>(from: &mut &[u8]) -> Option<[u8; N]> {
    let (bytes, rest) = from.split_first_chunk()?;
    *from = rest;
    Some(*bytes)
}

fn put_number(tag: u8, number: i64, out: &mut Vec<u8>) {
    out.push(tag);
    varint::put(out, varint::zigzag(number));
}

fn take_number<N: TryFrom<i64>>(from: &mut &[u8]) -> Option<N> {
    N::try_from(varint::unzigzag(varint::take(from)?)).ok()
}

fn put_some(tag: u8, bytes: &[u8], out: &mut Vec<u8>) {
    out.push(tag);
    put_bytes(bytes, out);
}

/// Appends a value.
pub(super) fn put(value: &Value, out: &mut Vec<u8>) {
    let fixed = |tag: u8, bytes: &[u8], out: &mut Vec<u8>| {
        out.push(tag);
        out.extend_from_slice(bytes);
    };
    match value {
        Value::Null => out.push(NULL),
        Value::Bool(truth) => out.push(if *truth { TRUE } else { FALSE }),
        Value::Int2(number) => put_number(INT2, (*number).into(), out),
        Value::Int4(number) => put_number(INT4, (*number).into(), out),
        Value::Int8(number) => put_number(INT8, *number, out),
        Value::Float4(number) => fixed(FLOAT4, &number.to_le_bytes(), out),
        Value::Float8(number) => fixed(FLOAT8, &number.to_le_bytes(), out),
        Value::Oid(number) => put_number(OID, (*number).into(), out),
        Value::SingleChar(byte) => fixed(CHAR, &[*byte], out),
        Value::Text(text) => put_some(TEXT, text.as_bytes(), out),
        Value::Char(text) => put_some(PADDED, text.as_bytes(), out),
        Value::Bytea(bytes) => put_some(BYTEA, bytes, out),
        Value::Json(text) => put_some(JSON, text.as_bytes(), out),
        Value::Jsonb(text) => put_some(JSONB, text.as_bytes(), out),
        Value::Date(date) => put_number(DATE, date.0.into(), out),
        Value::Time(time) => put_number(TIME, time.0, out),
        Value::Timestamp(time) => fixed(TIMESTAMP, &time.0.to_le_bytes(), out),
        Value::Timestamptz(time) => fixed(TIMESTAMPTZ, &time.0.to_le_bytes(), out),
        Value::Interval(interval) => {
            put_number(INTERVAL, interval.months.into(), out);
            varint::put(out, varint::zigzag(interval.days.into()));
            varint::put(out, varint::zigzag(interval.micros));
        }
        Value::Uuid(bytes) => fixed(UUID, bytes, out),
        Value::Numeric(_) | Value::Packed(_) | Value::Array(_) => {
            let kind = value.as_ref().kind().map_or(0, Kind::oid);
            out.push(OTHER);
            varint::put(out, kind.into());
            let mut bytes = Vec::new();
            binary::output(value.as_ref(), &mut bytes);
            put_bytes(&bytes, out);
        }
    }
}

/// Takes a value. None when none is there; any bytes are safe.
pub(super) fn take(from: &mut &[u8]) -> Option<Value> {
    let [tag] = take_array(from)?;
    Some(match tag {
        NULL => Value::Null,
        FALSE => Value::Bool(false),
        TRUE => Value::Bool(true),
        INT2 => Value::Int2(take_number(from)?),
        INT4 => Value::Int4(take_number(from)?),
        INT8 => Value::Int8(take_number(from)?),
        FLOAT4 => Value::Float4(f32::from_le_bytes(take_array(from)?)),
        FLOAT8 => Value::Float8(f64::from_le_bytes(take_array(from)?)),
        OID => Value::Oid(take_number(from)?),
        CHAR => Value::SingleChar(take_array::<1>(from)?[0]),
        TEXT => Value::text(take_text(from)?),
        PADDED => Value::Char(take_text(from)?.into()),
        BYTEA => Value::bytea(take_bytes(from)?),
        JSON => Value::Json(take_text(from)?.into()),
        JSONB => Value::Jsonb(take_text(from)?.into()),
        DATE => Value::Date(Date(take_number(from)?)),
        TIME => Value::Time(Time(take_number(from)?)),
        TIMESTAMP => Value::Timestamp(Timestamp(i64::from_le_bytes(take_array(from)?))),
        TIMESTAMPTZ => Value::Timestamptz(Timestamp(i64::from_le_bytes(take_array(from)?))),
        INTERVAL => {
            let (months, days) = (take_number(from)?, take_number(from)?);
            Value::Interval(Interval { months, days, micros: take_number(from)? })
        }
        UUID => Value::Uuid(take_array(from)?),
        OTHER => {
            let kind = Kind::from_oid(u32::try_from(varint::take(from)?).ok()?)?;
            binary::input(Type::of(kind), take_bytes(from)?).ok()?
        }
        _ => return None,
    })
}

/// Appends values behind their number.
pub(super) fn put_all(values: &[Value], out: &mut Vec<u8>) {
    varint::put(out, values.len() as u64);
    values.iter().for_each(|value| put(value, out));
}

/// Takes what [`put_all`] has written.
pub(super) fn take_all(from: &mut &[u8]) -> Option<Vec<Value>> {
    let count = varint::take(from)?;
    // Each takes a byte or more: no more room is made than there can be values.
    let mut values = Vec::with_capacity(usize::try_from(count).ok().filter(|count| *count <= from.len())?);
    for _ in 0..count {
        values.push(take(from)?);
    }
    Some(values)
}

#[cfg(test)]
mod tests {
    use super::*;
    use freshet_sql::types::{EvalContext, text};

    /// Values of all kinds, as clients write them.
    const VALUES: &[(&str, &[&str])] = &[
        ("bool", &["true", "false"]),
        ("int2", &["0", "-32768", "32767"]),
        ("int4", &["0", "-1", "63", "-64", "2147483647", "-2147483648"]),
        ("int8", &["9223372036854775807", "-9223372036854775808"]),
        ("float4", &["0", "-0", "1.5", "NaN", "-Infinity"]),
        ("float8", &["0", "-0", "1e-300", "NaN", "Infinity"]),
        ("numeric", &["0", "0.00", "-1.50", "12345678901234567890123456789012345678901234567890.1", "NaN", "1e-20"]),
        ("oid", &["0", "4294967295"]),
        ("\"char\"", &["x", ""]),
        ("text", &["", "it's", "größe"]),
        ("varchar(3)", &["abc"]),
        ("char(5)", &["ab", "abcde"]),
        ("name", &["pg_class"]),
        ("bytea", &["", "\\x00ff"]),
        ("json", &["{\"a\" :  1}"]),
        ("jsonb", &["{\"b\": 1, \"a\": [1.50, null]}"]),
        ("date", &["2000-01-01", "infinity", "0001-01-01 BC", "5874897-12-31"]),
        ("time", &["00:00:00", "24:00:00", "12:34:56.789"]),
        ("timestamp", &["2000-01-01 00:00:00", "-infinity", "294276-12-31 23:59:59"]),
        ("timestamptz", &["2026-11-23 03:04:05.678901+00", "infinity"]),
        ("interval", &["1 year -2 days 03:04:05.6", "-00:00:00.000001"]),
        ("uuid", &["00112233-4455-6677-8899-aabbccddeeff"]),
        ("inet", &["10.0.0.1", "::1/64"]),
        ("timetz", &["12:34:56+05:30"]),
        ("int4[]", &["{}", "{1,NULL,3}", "[2:3][1:2]={{1,2},{3,4}}"]),
        ("text[]", &["{a,\"b c\",NULL}"]),
        ("numeric[]", &["{1.50,NaN}"]),
    ];

    fn values() -> Vec<Value> {
        let context = EvalContext::default();
        let mut all = vec![Value::Null];
        for (name, texts) in VALUES {
            let ty = sqlparser::parser::Parser::new(&sqlparser::dialect::PostgreSqlDialect {})
                .try_with_sql(name)
                .and_then(|mut parser| parser.parse_data_type())
                .unwrap();
            let ty = Type::from_sql(&ty).unwrap();
            all.extend(texts.iter().map(|written| text::input(ty, written, &context).unwrap()));
        }
        all
    }

    /// Two values are the same where they are written in the same way, NaN and negative zero too.
    fn shown(value: &Value) -> String {
        format!("{value:?}")
    }

    #[test]
    fn every_value_comes_back_as_it_was() {
        let all = values();
        let mut bytes = Vec::new();
        put_all(&all, &mut bytes);
        bytes.push(0xee);
        let mut from = &bytes[..];
        let back = take_all(&mut from).unwrap();
        assert_eq!(from, [0xee], "what follows is left");
        assert_eq!(back.len(), all.len());
        for (value, back) in all.iter().zip(&back) {
            assert_eq!(shown(value), shown(back));
            assert_eq!(value.as_ref().kind(), back.as_ref().kind());
        }
    }

    #[test]
    fn bytes_that_are_no_values_are_none() {
        for value in values() {
            let mut bytes = Vec::new();
            put(&value, &mut bytes);
            for end in 0..bytes.len() {
                assert!(take(&mut &bytes[..end]).is_none(), "{value:?} up to {end}");
            }
        }
        for bytes in [&[22][..], &[255], &[TEXT, 1, 0xff], &[OTHER, 0, 0], &[OTHER, 0xff, 0xff, 0xff, 0xff, 0xff, 1, 0]]
        {
            assert!(take(&mut &bytes[..]).is_none(), "{bytes:?}");
        }
        // More values than there are bytes.
        assert!(take_all(&mut &[0xff, 0xff, 0xff, 0xff, 0x0f, 0][..]).is_none());
    }

    #[test]
    fn small_numbers_take_two_bytes() {
        for value in [Value::Int2(-64), Value::Int4(63), Value::Int8(0), Value::Oid(63)] {
            let mut bytes = Vec::new();
            put(&value, &mut bytes);
            assert_eq!(bytes.len(), 2, "{value:?}");
        }
    }
}
