//! Functions of JSON.

use std::sync::Arc;

use super::{Function, json_change::invalid, mismatch, string::checked_length, take};
use crate::{
    SqlError, SqlState,
    types::{
        Array, EvalContext, Kind, Value,
        json::{self, Json, Step},
        text,
    },
    work,
};

const J: Kind = Kind::Json;
const JB: Kind = Kind::Jsonb;
const T: Kind = Kind::Text;
const I: Kind = Kind::Int4;
const B: Kind = Kind::Bool;
const TEXTS: Kind = Kind::TextArray;

pub(super) const FUNCTIONS: &[Function] = &[
    Function::new("->", &[J, T], J, get),
    Function::new("->", &[JB, T], JB, get),
    Function::new("->", &[J, I], J, get),
    Function::new("->", &[JB, I], JB, get),
    Function::new("->>", &[J, T], T, get_text),
    Function::new("->>", &[JB, T], T, get_text),
    Function::new("->>", &[J, I], T, get_text),
    Function::new("->>", &[JB, I], T, get_text),
    Function::new("#>", &[J, TEXTS], J, get_path),
    Function::new("#>", &[JB, TEXTS], JB, get_path),
    Function::new("#>>", &[J, TEXTS], T, get_path_text),
    Function::new("#>>", &[JB, TEXTS], T, get_path_text),
    Function::new("json_extract_path", &[J, T], J, extract_path).variadic(),
    Function::new("jsonb_extract_path", &[JB, T], JB, extract_path).variadic(),
    Function::new("json_extract_path_text", &[J, T], T, extract_path_text).variadic(),
    Function::new("jsonb_extract_path_text", &[JB, T], T, extract_path_text).variadic(),
    Function::new("?", &[JB, T], B, exists),
    Function::new("?|", &[JB, TEXTS], B, |arguments, _| exists_of(arguments, false)),
    Function::new("?&", &[JB, TEXTS], B, |arguments, _| exists_of(arguments, true)),
    Function::new("@>", &[JB, JB], B, contains),
    Function::new("<@", &[JB, JB], B, contained),
    Function::new("||", &[JB, JB], JB, concat),
    Function::new("json_object_field", &[J, T], J, get),
    Function::new("jsonb_object_field", &[JB, T], JB, get),
    Function::new("json_array_element", &[J, I], J, get),
    Function::new("jsonb_array_element", &[JB, I], JB, get),
    Function::new("json_object_field_text", &[J, T], T, get_text),
    Function::new("jsonb_object_field_text", &[JB, T], T, get_text),
    Function::new("json_array_element_text", &[J, I], T, get_text),
    Function::new("jsonb_array_element_text", &[JB, I], T, get_text),
    Function::new("jsonb_exists", &[JB, T], B, exists),
    Function::new("jsonb_exists_any", &[JB, TEXTS], B, |arguments, _| exists_of(arguments, false)),
    Function::new("jsonb_exists_all", &[JB, TEXTS], B, |arguments, _| exists_of(arguments, true)),
    Function::new("jsonb_contains", &[JB, JB], B, contains),
    Function::new("jsonb_contained", &[JB, JB], B, contained),
    Function::new("jsonb_concat", &[JB, JB], JB, concat),
    Function::new("json_object", &[TEXTS], J, |arguments, _| object(arguments, false)),
    Function::new("json_object", &[TEXTS, TEXTS], J, |arguments, _| object(arguments, false)),
    Function::new("jsonb_object", &[TEXTS], JB, |arguments, _| object(arguments, true)),
    Function::new("jsonb_object", &[TEXTS, TEXTS], JB, |arguments, _| object(arguments, true)),
    Function::new("json_strip_nulls", &[J], J, strip_nulls_text),
    Function::new("json_typeof", &[J], T, type_of),
    Function::new("jsonb_typeof", &[JB], T, type_of),
    Function::new("json_array_length", &[J], I, array_length),
    Function::new("jsonb_array_length", &[JB], I, array_length),
    Function::new("jsonb_build_object", &[Kind::Any], JB, |arguments, context| build_object(arguments, context, true))
        .variadic()
        .lenient()
        .stable(),
    Function::new("jsonb_build_object", &[], JB, |_, _| Ok(Value::Jsonb("{}".into()))),
    Function::new("json_build_object", &[Kind::Any], J, |arguments, context| build_object(arguments, context, false))
        .variadic()
        .lenient()
        .stable(),
    Function::new("json_build_object", &[], J, |_, _| Ok(Value::Json("{}".into()))),
    Function::new("jsonb_build_array", &[Kind::Any], JB, |arguments, context| build_array(arguments, context, true))
        .variadic()
        .lenient()
        .stable(),
    Function::new("jsonb_build_array", &[], JB, |_, _| Ok(Value::Jsonb("[]".into()))),
    Function::new("json_build_array", &[Kind::Any], J, |arguments, context| build_array(arguments, context, false))
        .variadic()
        .lenient()
        .stable(),
    Function::new("json_build_array", &[], J, |_, _| Ok(Value::Json("[]".into()))),
    Function::new("to_jsonb", &[Kind::AnyElement], JB, |arguments, context| to_json(arguments, context, true)).stable(),
    Function::new("to_json", &[Kind::AnyElement], J, |arguments, context| to_json(arguments, context, false)).stable(),
    Function::new("array_to_json", &[Kind::AnyArray], J, |arguments, context| to_json(arguments, context, false))
        .stable(),
    Function::new("jsonb_strip_nulls", &[JB], JB, strip_nulls),
    Function::new("jsonb_pretty", &[JB], T, pretty),
];

/// How to make a `json` or a `jsonb` of its text.
type Make = fn(Arc<str>) -> Value;

/// The text of a `json` or `jsonb`, and how to make another of its type.
fn source(value: &Value) -> Option<(&Arc<str>, Make)> {
    match value {
        Value::Json(text) => Some((text, Value::Json)),
        Value::Jsonb(text) => Some((text, Value::Jsonb)),
        _ => None,
    }
}

/// One step from a value; nothing if it leads nowhere.
fn step(arguments: &[Value]) -> Result<(Option<&str>, Make), SqlError> {
    let [value, step] = arguments else { return Err(mismatch(arguments)) };
    let (text, make) = source(value).ok_or_else(|| mismatch(arguments))?;
    let step = match step {
        Value::Text(key) => Step::Key(key),
        Value::Int4(index) => Step::Index((*index).into()),
        _ => return Err(mismatch(arguments)),
    };
    // A jsonb that is a scalar is taken for an array with one element.
    let scalar = matches!(value, Value::Jsonb(_)) && !text.starts_with(['[', '{']);
    match step {
        Step::Index(0 | -1) if scalar => Ok((Some(text), make)),
        step => Ok((json::get(text, step)?, make)),
    }
}

fn as_text(found: Option<&str>) -> Result<Value, SqlError> {
    Ok(match found {
        Some(found) => json::scalar_text(found)?.map(|text| Value::text(text.as_ref())).unwrap_or_default(),
        None => Value::Null,
    })
}

fn get(arguments: &[Value], _: &EvalContext<'_>) -> Result<Value, SqlError> {
    let (found, make) = step(arguments)?;
    Ok(found.map(|found| make(found.into())).unwrap_or_default())
}

fn get_text(arguments: &[Value], _: &EvalContext<'_>) -> Result<Value, SqlError> {
    as_text(step(arguments)?.0)
}

/// The keys of a path; nothing if one is null.
fn keys(array: &Array) -> Option<Vec<&str>> {
    array.values().iter().map(Value::as_str).collect()
}

fn walk(arguments: &[Value]) -> Result<(Option<&str>, Make), SqlError> {
    let [value, Value::Array(path)] = arguments else { return Err(mismatch(arguments)) };
    let (text, make) = source(value).ok_or_else(|| mismatch(arguments))?;
    match keys(path) {
        Some(keys) => Ok((json::path(text, keys)?, make)),
        None => Ok((None, make)),
    }
}

fn get_path(arguments: &[Value], _: &EvalContext<'_>) -> Result<Value, SqlError> {
    let (found, make) = walk(arguments)?;
    Ok(found.map(|found| make(found.into())).unwrap_or_default())
}

fn get_path_text(arguments: &[Value], _: &EvalContext<'_>) -> Result<Value, SqlError> {
    as_text(walk(arguments)?.0)
}

fn walk_arguments(arguments: &[Value]) -> Result<(Option<&str>, Make), SqlError> {
    let Some((value, path)) = arguments.split_first() else { return Err(mismatch(arguments)) };
    let (text, make) = source(value).ok_or_else(|| mismatch(arguments))?;
    let keys: Option<Vec<&str>> = path.iter().map(Value::as_str).collect();
    match keys {
        Some(keys) => Ok((json::path(text, keys)?, make)),
        None => Ok((None, make)),
    }
}

fn extract_path(arguments: &[Value], _: &EvalContext<'_>) -> Result<Value, SqlError> {
    let (found, make) = walk_arguments(arguments)?;
    Ok(found.map(|found| make(found.into())).unwrap_or_default())
}

fn extract_path_text(arguments: &[Value], _: &EvalContext<'_>) -> Result<Value, SqlError> {
    as_text(walk_arguments(arguments)?.0)
}

/// Whether a string is a key of an object, an element of an array, or the value itself.
fn has_key(value: &Json<'_>, key: &str) -> Result<bool, SqlError> {
    if let Json::Array(elements) = value {
        work::done(1 + elements.len())?;
    }
    Ok(match value {
        Json::Object(_) => value.member(key).is_some(),
        Json::Array(elements) => elements.iter().any(|element| matches!(element, Json::String(text) if text == key)),
        Json::String(text) => text == key,
        _ => false,
    })
}

fn exists(arguments: &[Value], _: &EvalContext<'_>) -> Result<Value, SqlError> {
    take!(arguments: Jsonb(value), Text(key));
    Ok(Value::Bool(has_key(&*Json::parse(value)?, key)?))
}

fn exists_of(arguments: &[Value], all: bool) -> Result<Value, SqlError> {
    take!(arguments: Jsonb(value), Array(wanted));
    let value = Json::parse(value)?;
    for key in wanted.values().iter().filter_map(Value::as_str) {
        if has_key(&value, key)? != all {
            return Ok(Value::Bool(!all));
        }
    }
    Ok(Value::Bool(all))
}

fn contains(arguments: &[Value], _: &EvalContext<'_>) -> Result<Value, SqlError> {
    take!(arguments: Jsonb(one), Jsonb(two));
    Ok(Value::Bool(Json::parse(one)?.contains(&*Json::parse(two)?)?))
}

fn contained(arguments: &[Value], context: &EvalContext<'_>) -> Result<Value, SqlError> {
    match arguments {
        [one, two] => contains(&[two.clone(), one.clone()], context),
        _ => Err(mismatch(arguments)),
    }
}

pub(super) fn jsonb(value: &Json<'_>) -> Value {
    Value::Jsonb(value.canonical().into())
}

fn concat(arguments: &[Value], _: &EvalContext<'_>) -> Result<Value, SqlError> {
    take!(arguments: Jsonb(one), Jsonb(two));
    let ((one, _kept), (two, _too)) = (Json::parse(one)?.into_parts(), Json::parse(two)?.into_parts());
    let joined = match (one, two) {
        (Json::Object(mut one), Json::Object(two)) => {
            one.extend(two);
            Json::members(one)
        }
        (one, two) => {
            let elements = |value| match value {
                Json::Array(elements) => elements,
                scalar => vec![scalar],
            };
            let mut all = elements(one);
            all.extend(elements(two));
            Json::Array(all)
        }
    };
    Ok(jsonb(&joined))
}

fn type_of(arguments: &[Value], _: &EvalContext<'_>) -> Result<Value, SqlError> {
    let text = arguments.first().and_then(source).ok_or_else(|| mismatch(arguments))?.0;
    Ok(Value::text(json::type_name(text)?))
}

fn array_length(arguments: &[Value], _: &EvalContext<'_>) -> Result<Value, SqlError> {
    let text = arguments.first().and_then(source).ok_or_else(|| mismatch(arguments))?.0;
    match json::elements(text)? {
        Some(elements) => Ok(Value::Int4(elements.len() as i32)),
        None if json::type_name(text)? == "object" => Err(invalid("cannot get array length of a non-array")),
        None => Err(invalid("cannot get array length of a scalar")),
    }
}

/// Writes a value as JSON. Canonical form is the caller's business.
fn write_value(value: &Value, context: &EvalContext<'_>, out: &mut String) {
    match value {
        Value::Null => out.push_str("null"),
        Value::Bool(truth) => out.push_str(if *truth { "true" } else { "false" }),
        Value::Numeric(number) if number.as_special().is_some() => json::write_string(&number.to_string(), out),
        Value::Int2(_) | Value::Int4(_) | Value::Int8(_) | Value::Numeric(_) => {
            text::output(value.as_ref(), context, out);
        }
        Value::Float4(number) if number.is_finite() => text::output(value.as_ref(), context, out),
        Value::Float8(number) if number.is_finite() => text::output(value.as_ref(), context, out),
        Value::Json(text) | Value::Jsonb(text) => out.push_str(text),
        Value::Array(array) => write_array(array, context, out),
        // ISO 8601 wants a T between date and time.
        Value::Timestamp(_) | Value::Timestamptz(_) | Value::Date(_) => {
            let mut text = String::new();
            match value {
                Value::Timestamp(value) => value.write(&mut text),
                Value::Timestamptz(value) => value.write_zoned(context.zone, &mut text),
                Value::Date(value) => value.write(&mut text),
                _ => {}
            }
            let mut iso = if matches!(value, Value::Date(_)) { text } else { text.replacen(' ', "T", 1) };
            // and minutes in the offset.
            if matches!(value, Value::Timestamptz(_))
                && iso.as_bytes().iter().rev().nth(2).is_some_and(|sign| b"+-".contains(sign))
            {
                iso.push_str(":00");
            }
            json::write_string(&iso, out);
        }
        _ => {
            let mut text = String::new();
            text::output(value.as_ref(), context, &mut text);
            json::write_string(&text, out);
        }
    }
}

fn write_array(array: &Array, context: &EvalContext<'_>, out: &mut String) {
    // The elements of an inner array follow each other.
    let lengths: Vec<usize> = array.dimensions().iter().map(|dimension| dimension.length as usize).collect();
    if lengths.is_empty() {
        return out.push_str("[]");
    }
    for (at, value) in array.values().iter().enumerate() {
        let mut inner = 1;
        let mut opening = 0;
        for length in lengths.iter().rev() {
            inner *= length;
            opening += usize::from(at % inner == 0);
        }
        if at > 0 {
            out.push(',');
        }
        out.extend(std::iter::repeat_n('[', opening));
        write_value(value, context, out);
        let mut inner = 1;
        let mut closing = 0;
        for length in lengths.iter().rev() {
            inner *= length;
            closing += usize::from((at + 1) % inner == 0);
        }
        out.extend(std::iter::repeat_n(']', closing));
    }
}

fn made(text: String, binary: bool) -> Result<Value, SqlError> {
    if binary { Ok(Value::Jsonb(json::canonical(&text)?.into())) } else { Ok(Value::Json(text.into())) }
}

fn build_object(arguments: &[Value], context: &EvalContext<'_>, binary: bool) -> Result<Value, SqlError> {
    if !arguments.len().is_multiple_of(2) {
        let name = if binary { "jsonb_build_object()" } else { "json_build_object()" };
        return Err(invalid("argument list must have even number of elements")
            .with_hint(format!("The arguments of {name} must consist of alternating keys and values.")));
    }
    let mut out = "{".to_owned();
    for (at, pair) in arguments.chunks(2).enumerate() {
        let [key, value] = pair else { return Err(mismatch(arguments)) };
        if at > 0 {
            out.push_str(", ");
        }
        let mut name = String::new();
        match key {
            Value::Null => {
                let at = at * 2 + 1;
                return Err(if binary {
                    SqlError::new(SqlState::INVALID_PARAMETER_VALUE, format!("argument {at}: key must not be null"))
                } else {
                    SqlError::new(SqlState::INVALID_PARAMETER_VALUE, format!("argument {at} cannot be null"))
                        .with_hint("Object keys should be text.")
                });
            }
            Value::Array(_) | Value::Json(_) | Value::Jsonb(_) => {
                return Err(invalid("key value must be scalar, not array, composite, or json"));
            }
            Value::Bool(truth) => name.push_str(if *truth { "true" } else { "false" }),
            _ => text::output(key.as_ref(), context, &mut name),
        }
        json::write_string(&name, &mut out);
        out.push_str(" : ");
        write_value(value, context, &mut out);
    }
    out.push('}');
    made(out, binary)
}

fn build_array(arguments: &[Value], context: &EvalContext<'_>, binary: bool) -> Result<Value, SqlError> {
    let mut out = "[".to_owned();
    for (at, value) in arguments.iter().enumerate() {
        if at > 0 {
            out.push_str(", ");
        }
        write_value(value, context, &mut out);
    }
    out.push(']');
    made(out, binary)
}

fn to_json(arguments: &[Value], context: &EvalContext<'_>, binary: bool) -> Result<Value, SqlError> {
    let [value] = arguments else { return Err(mismatch(arguments)) };
    let mut out = String::new();
    write_value(value, context, &mut out);
    made(out, binary)
}

fn strip_nulls(arguments: &[Value], _: &EvalContext<'_>) -> Result<Value, SqlError> {
    fn strip(value: &mut Json<'_>) {
        match value {
            Json::Object(members) => {
                members.retain(|(_, value)| !matches!(value, Json::Null));
                members.iter_mut().for_each(|(_, value)| strip(value));
            }
            Json::Array(elements) => elements.iter_mut().for_each(strip),
            _ => {}
        }
    }
    take!(arguments: Jsonb(value));
    let mut tree = Json::parse(value)?;
    strip(&mut tree);
    Ok(jsonb(&tree))
}

fn pretty(arguments: &[Value], _: &EvalContext<'_>) -> Result<Value, SqlError> {
    fn indent(depth: usize, out: &mut String) -> Result<(), SqlError> {
        out.push('\n');
        out.extend(std::iter::repeat_n("    ", depth));
        checked_length(out.len()).map(drop)
    }
    fn write(value: &Json<'_>, depth: usize, out: &mut String) -> Result<(), SqlError> {
        match value {
            Json::Object(members) => {
                out.push('{');
                for (at, (key, value)) in members.iter().enumerate() {
                    if at > 0 {
                        out.push(',');
                    }
                    indent(depth + 1, out)?;
                    json::write_string(key, out);
                    out.push_str(": ");
                    write(value, depth + 1, out)?;
                }
                indent(depth, out)?;
                out.push('}');
            }
            Json::Array(elements) => {
                out.push('[');
                for (at, value) in elements.iter().enumerate() {
                    if at > 0 {
                        out.push(',');
                    }
                    indent(depth + 1, out)?;
                    write(value, depth + 1, out)?;
                }
                indent(depth, out)?;
                out.push(']');
            }
            scalar => scalar.write(out),
        }
        Ok(())
    }
    take!(arguments: Jsonb(value));
    let mut out = String::new();
    write(&*Json::parse(value)?, 0, &mut out)?;
    Ok(Value::text(out))
}

/// An object of text, from keys and values that take turns, are pairs, or are in two arrays.
fn object(arguments: &[Value], binary: bool) -> Result<Value, SqlError> {
    let error = |message: &'static str| Err(SqlError::new(SqlState::ARRAY_SUBSCRIPT_ERROR, message));
    let pairs: Vec<(&Value, &Value)> = match arguments {
        [Value::Array(both)] => {
            match both.dimensions() {
                [] => {}
                [one] if one.length % 2 == 0 => {}
                [_] => return error("array must have even number of elements"),
                [_, two] if two.length == 2 => {}
                [_, _] => return error("array must have two columns"),
                _ => return error("wrong number of array subscripts"),
            }
            both.values().chunks_exact(2).map(|pair| (&pair[0], &pair[1])).collect()
        }
        [Value::Array(keys), Value::Array(values)] => {
            if keys.dimensions().len() > 1 || values.dimensions().len() > 1 {
                return error("wrong number of array subscripts");
            }
            if keys.dimensions().len() != values.dimensions().len() {
                return error("wrong number of array subscripts");
            }
            if keys.values().len() != values.values().len() {
                return error("mismatched array dimensions");
            }
            keys.values().iter().zip(values.values()).collect()
        }
        _ => return Err(mismatch(arguments)),
    };
    let mut out = "{".to_owned();
    for (at, (key, value)) in pairs.into_iter().enumerate() {
        let Some(key) = key.as_str() else {
            return Err(SqlError::new(SqlState::NULL_VALUE_NOT_ALLOWED, "null value not allowed for object key"));
        };
        if at > 0 {
            out.push_str(", ");
        }
        json::write_string(key, &mut out);
        out.push_str(" : ");
        match value.as_str() {
            Some(value) => json::write_string(value, &mut out),
            None => out.push_str("null"),
        }
    }
    out.push('}');
    made(out, binary)
}

/// A `json` without members that are null: what is left keeps its order, but not its blanks.
fn strip_nulls_text(arguments: &[Value], _: &EvalContext<'_>) -> Result<Value, SqlError> {
    fn strip(text: &str, out: &mut String) -> Result<(), SqlError> {
        if let Some(members) = json::members(text)? {
            out.push('{');
            let kept = members.into_iter().filter(|(_, value)| *value != "null");
            for (at, (key, value)) in kept.enumerate() {
                if at > 0 {
                    out.push(',');
                }
                json::write_string(&key, out);
                out.push(':');
                strip(value, out)?;
            }
            out.push('}');
        } else if let Some(elements) = json::elements(text)? {
            out.push('[');
            for (at, element) in elements.into_iter().enumerate() {
                if at > 0 {
                    out.push(',');
                }
                strip(element, out)?;
            }
            out.push(']');
        } else {
            out.push_str(text.trim_matches(text::is_space));
        }
        Ok(())
    }
    take!(arguments: Json(value));
    let mut out = String::new();
    strip(value, &mut out)?;
    Ok(Value::Json(out.into()))
}
