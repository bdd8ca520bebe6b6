//! Functions of arrays.

use std::collections::HashSet;

use super::{
    Function, mismatch,
    string::{checked_length, places},
    take,
};
use crate::{
    SqlError, SqlState,
    types::{
        Array, Dimension, EvalContext, Kind, Value,
        array::{MAX_ELEMENTS, checked_count},
        text,
    },
    work,
};

const A: Kind = Kind::AnyArray;
const E: Kind = Kind::AnyElement;
const I: Kind = Kind::Int4;
const T: Kind = Kind::Text;

pub(super) const FUNCTIONS: &[Function] = &[
    Function::new("array_length", &[A, I], I, array_length),
    Function::new("array_lower", &[A, I], I, array_lower),
    Function::new("array_upper", &[A, I], I, array_upper),
    Function::new("array_ndims", &[A], I, array_ndims),
    Function::new("array_dims", &[A], T, array_dims),
    Function::new("cardinality", &[A], I, cardinality),
    Function::new("array_append", &[A, E], A, array_append).lenient(),
    Function::new("array_prepend", &[E, A], A, array_prepend).lenient(),
    Function::new("array_cat", &[A, A], A, array_cat).lenient(),
    Function::new("||", &[A, A], A, array_cat).lenient(),
    Function::new("||", &[A, E], A, array_append).lenient(),
    Function::new("||", &[E, A], A, array_prepend).lenient(),
    Function::new("array_remove", &[A, E], A, array_remove).lenient(),
    Function::new("array_replace", &[A, E, E], A, array_replace).lenient(),
    Function::new("array_position", &[A, E], I, array_position).lenient(),
    Function::new("array_position", &[A, E, I], I, array_position).lenient(),
    Function::new("array_positions", &[A, E], Kind::Int4Array, array_positions).lenient(),
    Function::new("array_to_string", &[A, T], T, array_to_string).lenient().stable(),
    Function::new("array_to_string", &[A, T, T], T, array_to_string).lenient().stable(),
    Function::new("string_to_array", &[T, T], Kind::TextArray, string_to_array).lenient(),
    Function::new("string_to_array", &[T, T, T], Kind::TextArray, string_to_array).lenient(),
    Function::new("array_fill", &[E, Kind::Int4Array], A, array_fill).lenient(),
    Function::new("array_fill", &[E, Kind::Int4Array, Kind::Int4Array], A, array_fill).lenient(),
    Function::new("trim_array", &[A, I], A, trim_array),
    Function::new("width_bucket", &[E, A], I, width_bucket),
    Function::new("@>", &[A, A], Kind::Bool, contains),
    Function::new("<@", &[A, A], Kind::Bool, contained),
    Function::new("&&", &[A, A], Kind::Bool, overlaps),
];

fn dimension(arguments: &[Value]) -> Result<Option<Dimension>, SqlError> {
    take!(arguments: Array(array), Int4(number));
    let at = usize::try_from(i64::from(*number) - 1).ok();
    Ok(at.and_then(|at| array.dimensions().get(at)).copied())
}

fn array_length(arguments: &[Value], _: &EvalContext<'_>) -> Result<Value, SqlError> {
    Ok(dimension(arguments)?.map(|dimension| dimension.length as i32).into())
}

fn array_lower(arguments: &[Value], _: &EvalContext<'_>) -> Result<Value, SqlError> {
    Ok(dimension(arguments)?.map(|dimension| dimension.lower).into())
}

fn array_upper(arguments: &[Value], _: &EvalContext<'_>) -> Result<Value, SqlError> {
    Ok(dimension(arguments)?.map(|dimension| dimension.upper() as i32).into())
}

fn array_ndims(arguments: &[Value], _: &EvalContext<'_>) -> Result<Value, SqlError> {
    take!(arguments: Array(array));
    let count = array.dimensions().len() as i32;
    Ok((count > 0).then_some(count).into())
}

fn array_dims(arguments: &[Value], _: &EvalContext<'_>) -> Result<Value, SqlError> {
    take!(arguments: Array(array));
    if array.dimensions().is_empty() {
        return Ok(Value::Null);
    }
    let dimensions: Vec<_> =
        array.dimensions().iter().map(|dimension| format!("[{}:{}]", dimension.lower, dimension.upper())).collect();
    Ok(Value::text(dimensions.concat()))
}

fn cardinality(arguments: &[Value], _: &EvalContext<'_>) -> Result<Value, SqlError> {
    take!(arguments: Array(array));
    Ok(Value::Int4(array.values().len() as i32))
}

/// The kind of an element that is put into an array of unknown kind.
fn element_kind(value: &Value) -> Kind {
    value.kind().unwrap_or(Kind::Text)
}

fn not_one_dimension() -> SqlError {
    SqlError::new(SqlState::DATA_EXCEPTION, "argument must be empty or one-dimensional array")
}

/// An array of at most one dimension, its first subscript, and its values.
fn one_dimension(array: &Value, element: &Value) -> Result<(Kind, i32, Vec<Value>), SqlError> {
    match array {
        Value::Null => Ok((element_kind(element), 1, Vec::new())),
        Value::Array(array) => match array.dimensions() {
            [] => Ok((array.element(), 1, Vec::new())),
            [dimension] => Ok((array.element(), dimension.lower, array.values().to_vec())),
            _ => Err(not_one_dimension()),
        },
        _ => Err(mismatch(std::slice::from_ref(array))),
    }
}

fn array_append(arguments: &[Value], _: &EvalContext<'_>) -> Result<Value, SqlError> {
    let [array, element] = arguments else { return Err(mismatch(arguments)) };
    let (kind, lower, mut values) = one_dimension(array, element)?;
    values.push(element.clone());
    Ok(Value::array(Array::with_lower(kind, values, lower)))
}

fn array_prepend(arguments: &[Value], _: &EvalContext<'_>) -> Result<Value, SqlError> {
    let [element, array] = arguments else { return Err(mismatch(arguments)) };
    let (kind, lower, mut values) = one_dimension(array, element)?;
    values.insert(0, element.clone());
    Ok(Value::array(Array::with_lower(kind, values, lower)))
}

fn array_cat(arguments: &[Value], _: &EvalContext<'_>) -> Result<Value, SqlError> {
    let (one, two) = match arguments {
        [Value::Null, other] | [other, Value::Null] => return Ok(other.clone()),
        [Value::Array(one), Value::Array(two)] => (one, two),
        _ => return Err(mismatch(arguments)),
    };
    if two.values().is_empty() {
        return Ok(Value::Array(one.clone()));
    }
    if one.values().is_empty() {
        return Ok(Value::Array(two.clone()));
    }
    let incompatible = |detail: &'static str| {
        SqlError::new(SqlState::ARRAY_SUBSCRIPT_ERROR, "cannot concatenate incompatible arrays").with_detail(detail)
    };
    let (first, second) = (one.dimensions(), two.dimensions());
    let values = || one.values().iter().chain(two.values()).cloned().collect();
    let dimensions = if first.len() == second.len() {
        if first[1..] != second[1..] {
            return Err(incompatible("Arrays with differing element dimensions are not compatible for concatenation."));
        }
        let mut dimensions = first.to_vec();
        dimensions[0].length += second[0].length;
        dimensions
    } else if first.len() == second.len() + 1 || second.len() == first.len() + 1 {
        // The one with fewer dimensions is one more element of the other's first.
        let (outer, inner) = if first.len() > second.len() { (first, second) } else { (second, first) };
        if outer[1..] != *inner {
            return Err(incompatible("Arrays with differing dimensions are not compatible for concatenation."));
        }
        let mut dimensions = outer.to_vec();
        dimensions[0].length += 1;
        dimensions
    } else {
        return Err(SqlError::new(SqlState::ARRAY_SUBSCRIPT_ERROR, "cannot concatenate incompatible arrays")
            .with_detail(format!(
                "Arrays of {} and {} dimensions are not compatible for concatenation.",
                first.len(),
                second.len()
            )));
    };
    Ok(Value::array(Array::with_dimensions(one.element(), dimensions, values())?))
}

fn array_remove(arguments: &[Value], _: &EvalContext<'_>) -> Result<Value, SqlError> {
    let (array, unwanted) = match arguments {
        [Value::Null, _] => return Ok(Value::Null),
        [Value::Array(array), unwanted] => (array, unwanted),
        _ => return Err(mismatch(arguments)),
    };
    if array.dimensions().len() > 1 {
        return Err(SqlError::new(
            SqlState::FEATURE_NOT_SUPPORTED,
            "removing elements from multidimensional arrays is not supported",
        ));
    }
    let lower = array.dimensions().first().map_or(1, |dimension| dimension.lower);
    let values = array.values().iter().filter(|value| *value != unwanted).cloned().collect();
    Ok(Value::array(Array::with_lower(array.element(), values, lower)))
}

fn array_replace(arguments: &[Value], _: &EvalContext<'_>) -> Result<Value, SqlError> {
    match arguments {
        [Value::Null, ..] => Ok(Value::Null),
        [Value::Array(array), old, new] => {
            let replaced =
                array.map(array.element(), |value| Ok(if value == old { new.clone() } else { value.clone() }))?;
            Ok(Value::array(replaced))
        }
        _ => Err(mismatch(arguments)),
    }
}

/// Subscripts of the elements that equal a value, no more than `most`, from `from` on.
fn positions(array: &Array, wanted: &Value, from: i32, most: usize) -> Result<Vec<i32>, SqlError> {
    searchable(array)?;
    let lower = array.dimensions().first().map_or(1, |dimension| dimension.lower);
    let mut found = Vec::new();
    for (at, value) in array.values().iter().enumerate() {
        work::done(1)?;
        let at = lower.saturating_add(at as i32);
        if at >= from && value == wanted {
            found.push(at);
            if found.len() == most {
                break;
            }
        }
    }
    Ok(found)
}

/// An array of many dimensions cannot be searched.
fn searchable(array: &Array) -> Result<(), SqlError> {
    if array.dimensions().len() > 1 {
        return Err(SqlError::new(
            SqlState::FEATURE_NOT_SUPPORTED,
            "searching for elements in multidimensional arrays is not supported",
        ));
    }
    Ok(())
}

fn array_position(arguments: &[Value], _: &EvalContext<'_>) -> Result<Value, SqlError> {
    let (array, wanted, from) = match arguments {
        [Value::Null, ..] => return Ok(Value::Null),
        [Value::Array(array), wanted] => (array, wanted, i32::MIN),
        [Value::Array(array), wanted, Value::Int4(from)] => (array, wanted, *from),
        [Value::Array(array), _, Value::Null] => {
            // Whether the array can be searched at all comes first.
            searchable(array)?;
            return Err(SqlError::new(SqlState::NULL_VALUE_NOT_ALLOWED, "initial position must not be null"));
        }
        _ => return Err(mismatch(arguments)),
    };
    Ok(positions(array, wanted, from, 1)?.first().copied().into())
}

fn array_positions(arguments: &[Value], _: &EvalContext<'_>) -> Result<Value, SqlError> {
    match arguments {
        [Value::Null, _] => Ok(Value::Null),
        [Value::Array(array), wanted] => {
            let found = positions(array, wanted, i32::MIN, usize::MAX)?;
            let found = found.into_iter().map(Value::Int4).collect();
            Ok(Value::array(Array::new(Kind::Int4, found)))
        }
        _ => Err(mismatch(arguments)),
    }
}

fn array_to_string(arguments: &[Value], context: &EvalContext<'_>) -> Result<Value, SqlError> {
    let (array, separator, null) = match arguments {
        [Value::Array(array), Value::Text(separator)] => (array, separator, None),
        [Value::Array(array), Value::Text(separator), Value::Text(null)] => (array, separator, Some(null)),
        [Value::Array(array), Value::Text(separator), Value::Null] => (array, separator, None),
        [Value::Null, ..] | [_, Value::Null, ..] => return Ok(Value::Null),
        _ => return Err(mismatch(arguments)),
    };
    let mut out = String::new();
    let mut first = true;
    for value in array.values() {
        if value.is_null() && null.is_none() {
            continue;
        }
        if !first {
            out.push_str(separator);
        }
        checked_length(out.len() + null.map_or(0, |null| null.len()))?;
        first = false;
        work::done(1)?;
        match null {
            Some(null) if value.is_null() => out.push_str(null),
            _ => text::output_as(array.element(), value.as_ref(), context, &mut out),
        }
    }
    Ok(Value::text(out))
}

fn string_to_array(arguments: &[Value], _: &EvalContext<'_>) -> Result<Value, SqlError> {
    let (text, separator, null) = match arguments {
        [Value::Null, ..] => return Ok(Value::Null),
        [Value::Text(text), separator] => (text, separator, &Value::Null),
        [Value::Text(text), separator, null] => (text, separator, null),
        _ => return Err(mismatch(arguments)),
    };
    // Each part is allocated by itself.
    const PART: usize = size_of::<Value>() + 48;
    let kept = work::kept();
    let mut parts = Vec::new();
    let mut push = |part: &str| {
        parts.push(match null {
            Value::Text(null) if **null == *part => Value::Null,
            _ => Value::text(part),
        });
        work::done(1)?;
        kept.grown_to(parts.len() * PART)?;
        checked_count(parts.len()).map(drop)
    };
    match separator {
        _ if text.is_empty() => {}
        Value::Null => text.chars().try_for_each(|character| push(character.encode_utf8(&mut [0; 4])))?,
        Value::Text(separator) if separator.is_empty() => push(text)?,
        Value::Text(separator) => {
            let mut from = 0;
            for at in places(text, separator) {
                let at = at?;
                push(&text[from..at])?;
                from = at + separator.len();
            }
            push(&text[from..])?;
        }
        _ => return Err(mismatch(arguments)),
    }
    Ok(Value::array(Array::new(Kind::Text, parts)))
}

fn array_fill(arguments: &[Value], _: &EvalContext<'_>) -> Result<Value, SqlError> {
    let error = |state, message: &'static str| Err(SqlError::new(state, message));
    let (value, lengths, lowers) = match arguments {
        [value, Value::Array(lengths)] => (value, lengths, None),
        [value, Value::Array(lengths), Value::Array(lowers)] => (value, lengths, Some(lowers)),
        _ => {
            return error(SqlState::NULL_VALUE_NOT_ALLOWED, "dimension array or low bound array cannot be null");
        }
    };
    for bounds in [Some(lengths), lowers].into_iter().flatten() {
        if bounds.dimensions().len() > 1 {
            return error(SqlState::ARRAY_SUBSCRIPT_ERROR, "wrong number of array subscripts");
        }
        if bounds.values().iter().any(Value::is_null) {
            return error(SqlState::NULL_VALUE_NOT_ALLOWED, "dimension values cannot be null");
        }
    }
    if lowers.is_some_and(|lowers| lowers.values().len() != lengths.values().len()) {
        return error(SqlState::ARRAY_SUBSCRIPT_ERROR, "wrong number of array subscripts");
    }
    let mut dimensions = Vec::new();
    let mut total = usize::from(!lengths.values().is_empty());
    for (at, length) in lengths.values().iter().enumerate() {
        let lower = match lowers {
            None => Some(1),
            Some(lowers) => lowers.values()[at].as_i64().and_then(|lower| i32::try_from(lower).ok()),
        };
        let (Some(length), Some(lower)) = (length.as_i64(), lower) else {
            return error(SqlState::NULL_VALUE_NOT_ALLOWED, "dimension values cannot be null");
        };
        let length = u32::try_from(length).unwrap_or(u32::MAX);
        dimensions.push(Dimension { length, lower });
        total = total.saturating_mul(length as usize);
    }
    if total > MAX_ELEMENTS {
        return error(SqlState::PROGRAM_LIMIT_EXCEEDED, "array size exceeds the maximum allowed (134217727)");
    }
    let _kept = work::keep(total * size_of::<Value>())?;
    Ok(Value::array(Array::with_dimensions(element_kind(value), dimensions, vec![value.clone(); total])?))
}

/// An array without this many elements at its end.
fn trim_array(arguments: &[Value], _: &EvalContext<'_>) -> Result<Value, SqlError> {
    take!(arguments: Array(array), Int4(count));
    let length = array.dimensions().first().map_or(0, |dimension| dimension.length);
    let Some(kept) = u32::try_from(*count).ok().and_then(|count| length.checked_sub(count)) else {
        return Err(SqlError::new(
            SqlState::ARRAY_SUBSCRIPT_ERROR,
            format!("number of elements to trim must be between 0 and {length}"),
        ));
    };
    let Some(first) = array.dimensions().first() else { return Ok(Value::Array(array.clone())) };
    let last = i64::from(first.lower) + i64::from(kept) - 1;
    Ok(Value::array(array.slice(&[(None, Some(last))])))
}

/// How many of the thresholds, which are in order, are not above a value.
fn width_bucket(arguments: &[Value], _: &EvalContext<'_>) -> Result<Value, SqlError> {
    let [value, Value::Array(thresholds)] = arguments else { return Err(mismatch(arguments)) };
    if thresholds.dimensions().len() > 1 {
        return Err(SqlError::new(SqlState::ARRAY_SUBSCRIPT_ERROR, "thresholds must be one-dimensional array"));
    }
    if thresholds.values().iter().any(Value::is_null) {
        return Err(SqlError::new(SqlState::NULL_VALUE_NOT_ALLOWED, "thresholds array must not contain NULLs"));
    }
    Ok(Value::Int4(thresholds.values().partition_point(|threshold| threshold <= value) as i32))
}

/// Whether this number of comparisons is smaller than a set of the values is worth.
const FEW: usize = 256;

/// The elements of an array, to be looked for: one by one where that is quicker than a set.
enum Elements<'a> {
    Few(&'a [Value]),
    Many(HashSet<&'a Value>),
}

impl<'a> Elements<'a> {
    fn of(array: &'a Array, looked_for: &Array) -> Result<Self, SqlError> {
        let values = array.values();
        if values.len().saturating_mul(looked_for.values().len()) <= FEW {
            return Ok(Self::Few(values));
        }
        let mut all = HashSet::with_capacity(values.len());
        for value in values {
            work::done(1)?;
            all.insert(value);
        }
        Ok(Self::Many(all))
    }

    fn contain(&self, value: &Value) -> bool {
        !value.is_null()
            && match self {
                Self::Few(values) => values.contains(value),
                Self::Many(values) => values.contains(value),
            }
    }
}

/// Whether an element of one, nulls never, is in the other, or is not, as `wanted` says.
fn one_is_in(one: &Array, other: &Array, wanted: bool) -> Result<bool, SqlError> {
    let elements = Elements::of(other, one)?;
    for value in one.values() {
        work::done(1)?;
        if elements.contain(value) == wanted {
            return Ok(true);
        }
    }
    Ok(false)
}

fn contains(arguments: &[Value], _: &EvalContext<'_>) -> Result<Value, SqlError> {
    take!(arguments: Array(one), Array(two));
    Ok(Value::Bool(!one_is_in(two, one, false)?))
}

fn contained(arguments: &[Value], _: &EvalContext<'_>) -> Result<Value, SqlError> {
    take!(arguments: Array(one), Array(two));
    Ok(Value::Bool(!one_is_in(one, two, false)?))
}

fn overlaps(arguments: &[Value], _: &EvalContext<'_>) -> Result<Value, SqlError> {
    take!(arguments: Array(one), Array(two));
    one_is_in(one, two, true).map(Value::Bool)
}
