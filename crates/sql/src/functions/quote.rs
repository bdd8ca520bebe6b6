//! Names and literals as statements write them, and `format`.

use super::{
    Function, mismatch,
    string::{checked_length, push_text},
    take,
};
use crate::{
    SqlError, SqlState,
    types::{Array, EvalContext, Kind, Value, text},
    work,
};

const T: Kind = Kind::Text;
const E: Kind = Kind::AnyElement;

pub(super) const FUNCTIONS: &[Function] = &[
    Function::new("format", &[T], T, format).stable(),
    Function::new("format", &[T, Kind::Any], T, format).variadic().lenient().stable(),
    Function::new("quote_ident", &[T], T, quote_ident),
    Function::new("quote_literal", &[T], T, quoted),
    Function::new("quote_literal", &[E], T, quoted).stable(),
    Function::new("quote_nullable", &[T], T, quote_nullable).lenient(),
    Function::new("quote_nullable", &[E], T, quote_nullable).lenient().stable(),
    Function::new("parse_ident", &[T], Kind::TextArray, parse_ident),
    Function::new("parse_ident", &[T, Kind::Bool], Kind::TextArray, parse_ident),
];

/// `format('%s and %1$-10I', ...)`.
fn format(arguments: &[Value], context: &EvalContext<'_>) -> Result<Value, SqlError> {
    let error = |message: String| Err(SqlError::new(SqlState::INVALID_PARAMETER_VALUE, message));
    let Some((pattern, values)) = arguments.split_first() else { return Err(mismatch(arguments)) };
    let Value::Text(pattern) = pattern else { return Ok(Value::Null) };
    let mut out = String::new();
    let mut next = 0;
    let mut rest = &**pattern;
    while let Some((before, after)) = rest.split_once('%') {
        out.push_str(before);
        rest = after;
        if let Some(after) = rest.strip_prefix('%') {
            out.push('%');
            rest = after;
            continue;
        }
        let digits = |rest: &mut &str| -> Option<usize> {
            let length = rest.bytes().take_while(u8::is_ascii_digit).count();
            let (number, after) = rest.split_at(length);
            *rest = after;
            number.parse().ok()
        };
        // A number is a position if a dollar sign follows, a width otherwise.
        let (mut at, mut width, mut to_left) = (None, 0, false);
        let mut ahead = rest;
        if let Some(number) = digits(&mut ahead)
            && let Some(after) = ahead.strip_prefix('$')
        {
            if number == 0 {
                return error("format specifies argument 0, but arguments are numbered from 1".to_owned());
            }
            at = Some(number - 1);
            rest = after;
        }
        while let Some(after) = rest.strip_prefix('-') {
            to_left = true;
            rest = after;
        }
        if let Some(after) = rest.strip_prefix('*') {
            rest = after;
            let mut ahead = rest;
            let position = match digits(&mut ahead).zip(ahead.strip_prefix('$')) {
                Some((0, _)) => {
                    return error("format specifies argument 0, but arguments are numbered from 1".to_owned());
                }
                Some((number, after)) => {
                    rest = after;
                    // What is shown follows it, unless it has a place, too.
                    next = number;
                    number - 1
                }
                None => {
                    next += 1;
                    next - 1
                }
            };
            match values.get(position) {
                Some(Value::Null) => {}
                Some(value) => {
                    let mut given = String::new();
                    text::output(value.as_ref(), context, &mut given);
                    let given = text::input(Kind::Int4.into(), &given, context)?.as_i64().unwrap_or(0);
                    to_left |= given < 0;
                    width = given.unsigned_abs() as usize;
                }
                None => return error("too few arguments for format()".to_owned()),
            }
        } else if let Some(number) = digits(&mut rest) {
            width = number;
        }
        let Some(conversion) = rest.chars().next() else {
            return Err(SqlError::new(SqlState::INVALID_PARAMETER_VALUE, "unterminated format() type specifier")
                .with_hint("For a single \"%\" use \"%%\"."));
        };
        rest = &rest[conversion.len_utf8()..];
        if !matches!(conversion, 's' | 'I' | 'L') {
            return Err(SqlError::new(
                SqlState::INVALID_PARAMETER_VALUE,
                format!("unrecognized format() type specifier \"{conversion}\""),
            )
            .with_hint("For a single \"%\" use \"%%\"."));
        }
        let at = at.unwrap_or(next);
        next = at + 1;
        let Some(value) = values.get(at) else { return error("too few arguments for format()".to_owned()) };
        let mut text = String::new();
        text::output(value.as_ref(), context, &mut text);
        let item = match (conversion, value) {
            ('I', Value::Null) => {
                return Err(SqlError::new(
                    SqlState::NULL_VALUE_NOT_ALLOWED,
                    "null values cannot be formatted as an SQL identifier",
                ));
            }
            ('I', _) => quote_identifier(&text),
            ('L', Value::Null) => "NULL".to_owned(),
            ('L', _) => quote_literal(&text)?,
            _ => text,
        };
        work::done(1 + (item.len() + width) / 16)?;
        checked_length(out.len() + item.len() + width)?;
        let missing = width.saturating_sub(item.chars().count());
        if !to_left {
            out.extend(std::iter::repeat_n(' ', missing));
        }
        out.push_str(&item);
        if to_left {
            out.extend(std::iter::repeat_n(' ', missing));
        }
    }
    out.push_str(rest);
    Ok(Value::text(out))
}

/// Words that are no names without quotes, in order.
#[rustfmt::skip]
const RESERVED: &[&str] = &[
    "all", "analyse", "analyze", "and", "any", "array", "as", "asc", "asymmetric", "authorization", "between",
    "bigint", "binary", "bit", "boolean", "both", "case", "cast", "char", "character", "check", "coalesce",
    "collate", "collation", "column", "concurrently", "constraint", "create", "cross", "current_catalog",
    "current_date", "current_role", "current_schema", "current_time", "current_timestamp", "current_user", "dec",
    "decimal", "default", "deferrable", "desc", "distinct", "do", "else", "end", "except", "exists", "extract",
    "false", "fetch", "float", "for", "foreign", "freeze", "from", "full", "grant", "greatest", "group",
    "grouping", "having", "ilike", "in", "initially", "inner", "inout", "int", "integer", "intersect", "interval",
    "into", "is", "isnull", "join", "lateral", "leading", "least", "left", "like", "limit", "localtime",
    "localtimestamp", "national", "natural", "nchar", "none", "normalize", "not", "notnull", "null", "nullif",
    "numeric", "offset", "on", "only", "or", "order", "out", "outer", "overlaps", "overlay", "placing", "position",
    "precision", "primary", "real", "references", "returning", "right", "row", "select", "session_user", "setof",
    "similar", "smallint", "some", "substring", "symmetric", "table", "tablesample", "then", "time", "timestamp",
    "to", "trailing", "treat", "trim", "true", "union", "unique", "user", "using", "values", "varchar", "variadic",
    "verbose", "when", "where", "window", "with", "xmlattributes", "xmlconcat", "xmlelement", "xmlexists",
    "xmlforest", "xmlnamespaces", "xmlparse", "xmlpi", "xmlroot", "xmlserialize", "xmltable",
];

/// Text as an identifier: with quotes where it needs them.
pub fn quote_identifier(text: &str) -> String {
    let plain = text.starts_with(|first: char| first.is_ascii_lowercase() || first == '_')
        && text.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_')
        && RESERVED.binary_search(&text).is_err();
    if plain { text.to_owned() } else { format!("\"{}\"", text.replace('"', "\"\"")) }
}

/// Text as a literal.
fn quote_literal(text: &str) -> Result<String, SqlError> {
    let mut out = String::with_capacity(text.len() + 2);
    if text.contains('\\') {
        out.push('E');
    }
    out.push('\'');
    for piece in work::pieces(text) {
        for character in piece?.chars() {
            if matches!(character, '\'' | '\\') {
                out.push(character);
            }
            out.push(character);
        }
        checked_length(out.len())?;
    }
    out.push('\'');
    Ok(out)
}

fn quote_ident(arguments: &[Value], _: &EvalContext<'_>) -> Result<Value, SqlError> {
    take!(arguments: Text(name));
    Ok(Value::text(quote_identifier(name)))
}

fn quoted(arguments: &[Value], context: &EvalContext<'_>) -> Result<Value, SqlError> {
    let [value] = arguments else { return Err(mismatch(arguments)) };
    let mut text = String::new();
    push_text(value, context, &mut text);
    quote_literal(&text).map(Value::text)
}

fn quote_nullable(arguments: &[Value], context: &EvalContext<'_>) -> Result<Value, SqlError> {
    match arguments {
        [Value::Null] => Ok(Value::text("NULL")),
        _ => quoted(arguments, context),
    }
}

/// A name's parts: `a."B c"` as `{a,"B c"}`. What follows a name is an error, unless that is
/// allowed.
fn parse_ident(arguments: &[Value], _: &EvalContext<'_>) -> Result<Value, SqlError> {
    let (text, strict) = match arguments {
        [Value::Text(text)] => (text, true),
        [Value::Text(text), Value::Bool(strict)] => (text, *strict),
        _ => return Err(mismatch(arguments)),
    };
    let invalid = |detail: Option<&'static str>| {
        let error =
            SqlError::new(SqlState::INVALID_PARAMETER_VALUE, format!("string is not a valid identifier: \"{text}\""));
        match detail {
            Some(detail) => error.with_detail(detail),
            None => error,
        }
    };
    let begins = |character: char| character.is_ascii_alphabetic() || character == '_' || !character.is_ascii();
    let mut parts = Vec::new();
    let mut rest = text.trim_start_matches(text::is_space);
    loop {
        if let Some(quoted) = rest.strip_prefix('"') {
            let mut part = String::new();
            let mut quoted = quoted;
            loop {
                let (before, after) =
                    quoted.split_once('"').ok_or_else(|| invalid(Some("String has unclosed double quotes.")))?;
                part.push_str(before);
                match after.strip_prefix('"') {
                    Some(after) => {
                        part.push('"');
                        quoted = after;
                    }
                    None => {
                        rest = after;
                        break;
                    }
                }
            }
            if part.is_empty() {
                return Err(invalid(Some("Quoted identifier must not be empty.")));
            }
            parts.push(Value::text(part));
        } else if rest.starts_with(begins) {
            let within = |character: char| begins(character) || character.is_ascii_digit() || character == '$';
            let end = rest.find(|character| !within(character)).unwrap_or(rest.len());
            parts.push(Value::text(rest[..end].to_ascii_lowercase()));
            rest = &rest[end..];
        } else {
            let detail = match rest.chars().next() {
                Some('.') => Some("No valid identifier before \".\"."),
                _ if !parts.is_empty() => Some("No valid identifier after \".\"."),
                _ => None,
            };
            return Err(invalid(detail));
        }
        rest = rest.trim_start_matches(text::is_space);
        match rest.strip_prefix('.') {
            Some(after) => rest = after.trim_start_matches(text::is_space),
            None if rest.is_empty() || !strict => return Ok(Value::array(Array::new(Kind::Text, parts))),
            None => return Err(invalid(None)),
        }
    }
}
