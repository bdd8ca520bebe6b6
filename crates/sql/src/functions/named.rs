//! Arguments that a call names, `make_interval(days => 3)`, and what those are that it leaves out.

use crate::{SqlError, SqlState, types::Value};

/// What an argument is without being given.
#[derive(Clone, Copy)]
enum Without {
    /// Nothing: it must be given.
    Not,
    Int(i32),
    Float(f64),
    Bool(bool),
    Text(&'static str),
}

/// Where an argument of a call comes from.
#[derive(Clone, Debug)]
pub enum Place {
    /// The call gives it, at this place.
    Given(usize),
    /// The call leaves it out, and the function has this default.
    Default(Value),
}

type Signature = (&'static str, &'static [(&'static str, Without)]);

use Without::{Bool, Float, Int, Not, Text};

/// The functions of PostgreSQL whose arguments have names.
const SIGNATURES: &[Signature] = &[
    ("json_array_element", &[("from_json", Not), ("element_index", Not)]),
    ("json_array_element_text", &[("from_json", Not), ("element_index", Not)]),
    ("json_object_field", &[("from_json", Not), ("field_name", Not)]),
    ("json_object_field_text", &[("from_json", Not), ("field_name", Not)]),
    ("jsonb_array_element", &[("from_json", Not), ("element_index", Not)]),
    ("jsonb_array_element_text", &[("from_json", Not), ("element_index", Not)]),
    ("jsonb_insert", &[("jsonb_in", Not), ("path", Not), ("replacement", Not), ("insert_after", Bool(false))]),
    ("jsonb_object_field", &[("from_json", Not), ("field_name", Not)]),
    ("jsonb_object_field_text", &[("from_json", Not), ("field_name", Not)]),
    ("jsonb_set", &[("jsonb_in", Not), ("path", Not), ("replacement", Not), ("create_if_missing", Bool(true))]),
    (
        "jsonb_set_lax",
        &[
            ("jsonb_in", Not),
            ("path", Not),
            ("replacement", Not),
            ("create_if_missing", Bool(true)),
            ("null_value_treatment", Text("use_json_null")),
        ],
    ),
    ("make_date", &[("year", Not), ("month", Not), ("day", Not)]),
    (
        "make_interval",
        &[
            ("years", Int(0)),
            ("months", Int(0)),
            ("weeks", Int(0)),
            ("days", Int(0)),
            ("hours", Int(0)),
            ("mins", Int(0)),
            ("secs", Float(0.0)),
        ],
    ),
    ("make_time", &[("hour", Not), ("min", Not), ("sec", Not)]),
    ("make_timestamp", &[("year", Not), ("month", Not), ("mday", Not), ("hour", Not), ("min", Not), ("sec", Not)]),
    ("make_timestamptz", &[("year", Not), ("month", Not), ("mday", Not), ("hour", Not), ("min", Not), ("sec", Not)]),
    (
        "make_timestamptz",
        &[("year", Not), ("month", Not), ("mday", Not), ("hour", Not), ("min", Not), ("sec", Not), ("timezone", Not)],
    ),
    ("parse_ident", &[("str", Not), ("strict", Bool(true))]),
];

/// Puts the arguments of a call into the order in which a function takes them: `names` has the name
/// of each, or none for one without. Nothing when there is no such function.
///
/// # Errors
/// 42601 when they make no sense for any function.
pub fn places(function: &str, names: &[Option<String>]) -> Result<Option<Vec<Place>>, SqlError> {
    let refused = |message: String| Err(SqlError::new(SqlState::SYNTAX_ERROR, message));
    let named = names.iter().position(Option::is_some).unwrap_or(names.len());
    for (at, name) in names.iter().enumerate().skip(named) {
        match name {
            None => return refused("positional argument cannot follow named argument".to_owned()),
            Some(twice) if names[..at].contains(name) => {
                return refused(format!("argument name \"{twice}\" used more than once"));
            }
            Some(_) => {}
        }
    }
    let fitting = |(known, declared): &&Signature| {
        let place = |name: &String| declared.iter().position(|(known, _)| known == name);
        *known == function
            && named <= declared.len()
            && names[named..].iter().flatten().all(|name| place(name).is_some_and(|place| place >= named))
            && declared.iter().enumerate().all(|(at, (known, default))| {
                at < named || !matches!(default, Not) || names[named..].iter().flatten().any(|name| name == known)
            })
    };
    let Some((_, declared)) = SIGNATURES.iter().find(fitting) else { return Ok(None) };
    let place = |(at, (known, default)): (usize, &(&str, Without))| {
        if at < named {
            return Place::Given(at);
        }
        match names.iter().position(|name| name.as_deref() == Some(known)) {
            Some(given) => Place::Given(given),
            None => Place::Default(match default {
                Not => Value::Null,
                Int(number) => Value::Int4(*number),
                Float(number) => Value::Float8(*number),
                Bool(truth) => Value::Bool(*truth),
                Text(text) => Value::text(*text),
            }),
        }
    };
    Ok(Some(declared.iter().enumerate().map(place).collect()))
}

/// The error for a call that fits no function: `arguments` has the name of each type.
pub fn missing<'t>(function: &str, names: &[Option<String>], arguments: impl IntoIterator<Item = &'t str>) -> SqlError {
    let shown = names.iter().zip(arguments).map(|(name, ty)| match name {
        Some(name) => format!("{name} => {ty}"),
        None => ty.to_owned(),
    });
    let shown: Vec<_> = shown.collect();
    let message = format!("function {function}({}) does not exist", shown.join(", "));
    SqlError::new(SqlState::UNDEFINED_FUNCTION, message)
        .with_hint("No function matches the given name and argument types. You might need to add explicit type casts.")
}
