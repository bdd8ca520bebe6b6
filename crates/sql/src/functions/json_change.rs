//! Functions that change a `jsonb`.

use std::{borrow::Cow, collections::HashSet};

use super::{Function, json::jsonb, mismatch, take};
use crate::{
    SqlError, SqlState,
    types::{Array, EvalContext, Kind, Value, json::Json},
};

const JB: Kind = Kind::Jsonb;
const T: Kind = Kind::Text;
const I: Kind = Kind::Int4;
const B: Kind = Kind::Bool;
const TEXTS: Kind = Kind::TextArray;

pub(super) const FUNCTIONS: &[Function] = &[
    Function::new("-", &[JB, T], JB, delete_key),
    Function::new("-", &[JB, TEXTS], JB, delete_keys),
    Function::new("-", &[JB, I], JB, delete_element),
    Function::new("#-", &[JB, TEXTS], JB, delete_path),
    Function::new("jsonb_set", &[JB, TEXTS, JB], JB, set),
    Function::new("jsonb_set", &[JB, TEXTS, JB, B], JB, set),
    Function::new("jsonb_delete", &[JB, T], JB, delete_key),
    Function::new("jsonb_delete", &[JB, I], JB, delete_element),
    Function::new("jsonb_delete_path", &[JB, TEXTS], JB, delete_path),
    Function::new("jsonb_set_lax", &[JB, TEXTS, JB], JB, set_lax).lenient(),
    Function::new("jsonb_set_lax", &[JB, TEXTS, JB, B], JB, set_lax).lenient(),
    Function::new("jsonb_set_lax", &[JB, TEXTS, JB, B, T], JB, set_lax).lenient(),
    Function::new("jsonb_insert", &[JB, TEXTS, JB], JB, insert),
    Function::new("jsonb_insert", &[JB, TEXTS, JB, B], JB, insert),
];

pub(super) fn invalid(message: &'static str) -> SqlError {
    SqlError::new(SqlState::INVALID_PARAMETER_VALUE, message)
}

/// Takes away members with a key and elements that are a string.
fn without(value: &str, unwanted: impl Fn(&str) -> bool) -> Result<Value, SqlError> {
    let mut tree = Json::parse(value)?;
    match &mut *tree {
        Json::Object(members) => members.retain(|(key, _)| !unwanted(key)),
        Json::Array(elements) => {
            elements.retain(|element| !matches!(element, Json::String(text) if unwanted(text)));
        }
        _ => return Err(invalid("cannot delete from scalar")),
    }
    Ok(jsonb(&tree))
}

fn delete_key(arguments: &[Value], _: &EvalContext<'_>) -> Result<Value, SqlError> {
    take!(arguments: Jsonb(value), Text(key));
    without(value, |known| *known == **key)
}

fn delete_keys(arguments: &[Value], _: &EvalContext<'_>) -> Result<Value, SqlError> {
    take!(arguments: Jsonb(value), Array(keys));
    if keys.dimensions().len() > 1 {
        return Err(wrong_dimensions());
    }
    let unwanted: HashSet<&str> = keys.values().iter().filter_map(Value::as_str).collect();
    without(value, |known| unwanted.contains(known))
}

/// The element that an index means, if there is one.
fn element_at(length: usize, index: i64) -> Option<usize> {
    let index = if index < 0 { index.checked_add(length as i64)? } else { index };
    usize::try_from(index).ok().filter(|index| *index < length)
}

fn delete_element(arguments: &[Value], _: &EvalContext<'_>) -> Result<Value, SqlError> {
    take!(arguments: Jsonb(value), Int4(index));
    let (tree, _kept) = Json::parse(value)?.into_parts();
    match tree {
        Json::Array(mut elements) => {
            if let Some(at) = element_at(elements.len(), (*index).into()) {
                elements.remove(at);
            }
            Ok(jsonb(&Json::Array(elements)))
        }
        Json::Object(_) => Err(invalid("cannot delete from object using integer index")),
        _ => Err(invalid("cannot delete from scalar")),
    }
}

/// What happens at a path's end.
enum Change<'a> {
    Delete,
    /// Sets a value, and adds it where none exists if that is wanted.
    Set(&'a Json<'a>, bool),
    /// Adds a value, to an array before the element that is there, or behind it.
    Insert(&'a Json<'a>, bool),
}

impl<'a> Change<'a> {
    /// What is added where there is nothing.
    fn added(&self) -> Option<&'a Json<'a>> {
        match self {
            Self::Set(new, true) | Self::Insert(new, _) => Some(new),
            _ => None,
        }
    }
}

fn path_index(key: &str, level: usize) -> Result<i64, SqlError> {
    key.parse().map_err(|_| {
        SqlError::new(
            SqlState::INVALID_TEXT_REPRESENTATION,
            format!("path element at position {level} is not an integer: \"{key}\""),
        )
    })
}

fn change<'a>(value: &mut Json<'a>, path: &'a [Value], level: usize, what: &Change<'a>) -> Result<(), SqlError> {
    let Some((key, rest)) = path.split_first() else { return Ok(()) };
    if !matches!(value, Json::Object(_) | Json::Array(_)) {
        return Ok(());
    }
    let key = key.as_str().ok_or_else(|| null_in_path(level))?;
    let is_last = rest.is_empty();
    match value {
        Json::Object(members) => {
            let at = members.iter().position(|(known, _)| known == key);
            match (at, what) {
                (Some(at), _) if !is_last => change(&mut members[at].1, rest, level + 1, what)?,
                (Some(at), Change::Delete) => {
                    members.remove(at);
                }
                (Some(at), Change::Set(new, _)) => members[at].1 = (*new).clone(),
                (Some(_), Change::Insert(..)) => {
                    return Err(invalid("cannot replace existing key")
                        .with_hint("Try using the function jsonb_set to replace key value."));
                }
                (None, _) => {
                    if let Some(new) = what.added().filter(|_| is_last) {
                        members.push((Cow::Borrowed(key), new.clone()));
                        *value = Json::members(std::mem::take(members));
                    }
                }
            }
        }
        Json::Array(elements) => {
            let index = path_index(key, level)?;
            match (element_at(elements.len(), index), what) {
                (Some(at), _) if !is_last => change(&mut elements[at], rest, level + 1, what)?,
                (Some(at), Change::Delete) => {
                    elements.remove(at);
                }
                (Some(at), Change::Set(new, _)) => elements[at] = (*new).clone(),
                (Some(at), Change::Insert(new, behind)) => elements.insert(at + usize::from(*behind), (*new).clone()),
                (None, _) => {
                    if let Some(new) = what.added().filter(|_| is_last) {
                        let at = if index < 0 { 0 } else { elements.len() };
                        elements.insert(at, new.clone());
                    }
                }
            }
        }
        _ => {}
    }
    Ok(())
}

/// Changes a value at a path.
fn changed(value: &str, path: &Array, what: &Change<'_>, scalar: &'static str) -> Result<Value, SqlError> {
    if path.dimensions().len() > 1 {
        return Err(wrong_dimensions());
    }
    let mut tree = Json::parse(value)?;
    let is_empty = match &*tree {
        Json::Object(members) => members.is_empty(),
        Json::Array(elements) => elements.is_empty(),
        _ => return Err(invalid(scalar)),
    };
    // Where there is nothing, nothing changes, whatever the path.
    if !is_empty || what.added().is_some() {
        change(&mut tree, path.values(), 1, what)?;
    }
    Ok(jsonb(&tree))
}

#[cold]
fn wrong_dimensions() -> SqlError {
    SqlError::new(SqlState::ARRAY_SUBSCRIPT_ERROR, "wrong number of array subscripts")
}

fn delete_path(arguments: &[Value], _: &EvalContext<'_>) -> Result<Value, SqlError> {
    take!(arguments: Jsonb(value), Array(path));
    changed(value, path, &Change::Delete, "cannot delete path in scalar")
}

#[cold]
fn null_in_path(level: usize) -> SqlError {
    SqlError::new(SqlState::NULL_VALUE_NOT_ALLOWED, format!("path element at position {level} is null"))
}

/// Value, path, new value, and a flag.
type ChangeArguments<'a> = (&'a str, &'a Array, &'a str, bool);

fn change_arguments(arguments: &[Value], default: bool) -> Result<ChangeArguments<'_>, SqlError> {
    match arguments {
        [Value::Jsonb(value), Value::Array(path), Value::Jsonb(new)] => Ok((value, path, new, default)),
        [Value::Jsonb(value), Value::Array(path), Value::Jsonb(new), Value::Bool(flag)] => {
            Ok((value, path, new, *flag))
        }
        _ => Err(mismatch(arguments)),
    }
}

fn set(arguments: &[Value], _: &EvalContext<'_>) -> Result<Value, SqlError> {
    let (value, path, new, create) = change_arguments(arguments, true)?;
    changed(value, path, &Change::Set(&*Json::parse(new)?, create), "cannot set path in scalar")
}

fn insert(arguments: &[Value], _: &EvalContext<'_>) -> Result<Value, SqlError> {
    let (value, path, new, behind) = change_arguments(arguments, false)?;
    changed(value, path, &Change::Insert(&*Json::parse(new)?, behind), "cannot set path in scalar")
}

/// Like `jsonb_set`, but a new value that is null means what the last argument says.
fn set_lax(arguments: &[Value], context: &EvalContext<'_>) -> Result<Value, SqlError> {
    let Some(([value, path, new], rest)) = arguments.split_first_chunk() else { return Err(mismatch(arguments)) };
    if value.is_null() || path.is_null() || rest.first().is_some_and(Value::is_null) {
        return Ok(Value::Null);
    }
    let treatment = match rest.get(1) {
        None => "use_json_null",
        Some(Value::Text(treatment)) => treatment,
        Some(_) => "",
    };
    let create = rest.first().cloned().unwrap_or(Value::Bool(true));
    let known = ["use_json_null", "delete_key", "return_target", "raise_exception"].contains(&treatment);
    if new.is_null() && !known || rest.get(1).is_some_and(Value::is_null) {
        return Err(invalid(
            "null_value_treatment must be \"delete_key\", \"return_target\", \"use_json_null\", or \"raise_exception\"",
        ));
    }
    match (new, treatment) {
        (Value::Null, "delete_key") => delete_path(&[value.clone(), path.clone()], context),
        (Value::Null, "return_target") => Ok(value.clone()),
        (Value::Null, "raise_exception") => Err(SqlError::new(
            SqlState::NULL_VALUE_NOT_ALLOWED,
            "JSON value must not be null",
        )
        .with_detail("Exception was raised because null_value_treatment is \"raise_exception\".")
        .with_hint(
            "To avoid, either change the null_value_treatment argument or ensure that an SQL NULL is not passed.",
        )),
        (Value::Null, _) => set(&[value.clone(), path.clone(), Value::Jsonb("null".into()), create], context),
        (new, _) => set(&[value.clone(), path.clone(), new.clone(), create], context),
    }
}
