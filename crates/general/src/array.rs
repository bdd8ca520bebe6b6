//! What SQL's syntax does with arrays.

use freshet_sql::{
    Kind, SqlError, SqlState, Value,
    types::{Array, Dimension},
};

/// An array of one dimension more, of arrays of equal shape.
///
/// # Errors
/// 2202E when their shapes differ.
pub(crate) fn make_nested(element: Kind, arrays: &[Value]) -> Result<Value, SqlError> {
    let mismatch = || {
        SqlError::new(
            SqlState::ARRAY_SUBSCRIPT_ERROR,
            "multidimensional arrays must have array expressions with matching dimensions",
        )
    };
    let mut shape: Option<&[Dimension]> = None;
    let mut values = Vec::new();
    for (at, array) in arrays.iter().enumerate() {
        let dimensions = match array {
            Value::Array(array) => {
                values.extend_from_slice(array.values());
                array.dimensions()
            }
            // Null is an array of nothing.
            _ => &[],
        };
        if at > 0 && shape != Some(dimensions) {
            return Err(mismatch());
        }
        shape = Some(dimensions);
    }
    let inner = shape.unwrap_or(&[]);
    if inner.is_empty() {
        return Ok(Value::array(Array::new(element, Vec::new())));
    }
    let mut dimensions = vec![Dimension { length: arrays.len() as u32, lower: 1 }];
    dimensions.extend_from_slice(inner);
    Array::with_dimensions(element, dimensions, values).map(Value::array)
}

/// The bytes of a `name`, those behind its end included.
const NAME: i64 = 64;

/// `array[n]`: null when there is no such element. Of a name, a byte, counted from 0.
pub(crate) fn subscript(array: &Value, subscripts: &[Value]) -> Value {
    if let (Some(name), [at]) = (array.as_str(), subscripts) {
        let at = at.as_i64().filter(|at| (0..NAME).contains(at));
        let byte = |at: i64| name.as_bytes().get(at as usize).copied().unwrap_or(0);
        return at.map_or(Value::Null, |at| Value::SingleChar(byte(at)));
    }
    let Value::Array(array) = array else { return Value::Null };
    let Some(subscripts) = subscripts.iter().map(Value::as_i64).collect::<Option<Vec<_>>>() else {
        return Value::Null;
    };
    array.get(&subscripts).cloned().unwrap_or_default()
}

/// The bounds of a slice that are left out.
pub(crate) const OPEN: (i32, i32) = (i32::MIN, i32::MAX);

/// `array[n:m]`, its bounds being pairs of lower and upper.
///
/// # Errors
/// When there are too many elements: they come from an array, so never.
pub(crate) fn slice(array: &Value, bounds: &[Value]) -> Result<Value, SqlError> {
    let Value::Array(array) = array else { return Ok(Value::Null) };
    if bounds.iter().any(Value::is_null) {
        return Ok(Value::Null);
    }
    let empty = || Ok(Value::array(Array::new(array.element(), Vec::new())));
    let dimensions = array.dimensions();
    if bounds.len() / 2 > dimensions.len() || dimensions.is_empty() {
        return empty();
    }
    let mut ranges = Vec::with_capacity(dimensions.len());
    for (at, dimension) in dimensions.iter().enumerate() {
        let given = |which: usize| bounds.get(at * 2 + which).and_then(Value::as_i64);
        let first = i64::from(dimension.lower);
        let lower = given(0).unwrap_or(first).max(first);
        let upper = given(1).unwrap_or(dimension.upper()).min(dimension.upper());
        if upper < lower {
            return empty();
        }
        ranges.push(lower..=upper);
    }
    let mut values = Vec::new();
    let mut at: Vec<i64> = ranges.iter().map(|range| *range.start()).collect();
    'elements: loop {
        values.push(array.get(&at).cloned().unwrap_or_default());
        // The last subscript runs fastest.
        for (subscript, range) in at.iter_mut().zip(&ranges).rev() {
            if *subscript < *range.end() {
                *subscript += 1;
                continue 'elements;
            }
            *subscript = *range.start();
        }
        break;
    }
    let dimensions =
        ranges.iter().map(|range| Dimension { length: (range.end() - range.start() + 1) as u32, lower: 1 }).collect();
    Array::with_dimensions(array.element(), dimensions, values).map(Value::array)
}

#[cfg(test)]
mod tests {
    use freshet_sql::types::{EvalContext, text};

    use super::*;

    fn array(text: &str) -> Value {
        text::input(freshet_sql::Type::of(Kind::Int4Array), text, &EvalContext::default()).unwrap()
    }

    fn print(value: &Value) -> String {
        text::to_text(Kind::Int4Array, value, &EvalContext::default()).to_string()
    }

    #[test]
    fn slices_as_postgresql_has_them() {
        let int = |number: i64| Value::Int8(number);
        let matrix = array("{{1,2,3},{4,5,6}}");
        let cases = [
            (array("{1,2,3}"), vec![int(2), int(9)], "{2,3}"),
            (array("{1,2,3}"), vec![int(4), int(9)], "{}"),
            (array("[0:2]={1,2,3}"), vec![int(OPEN.0.into()), int(1)], "{1,2}"),
            (array("{1,2,3}"), vec![int(2), int(OPEN.1.into())], "{2,3}"),
            (matrix.clone(), vec![int(2), int(2), int(1), int(2)], "{{4,5}}"),
            (matrix.clone(), vec![int(1), int(1)], "{{1,2,3}}"),
        ];
        for (array, bounds, expected) in cases {
            assert_eq!(print(&slice(&array, &bounds).unwrap()), expected);
        }
        assert!(slice(&matrix, &[Value::Null, int(1)]).unwrap().is_null());
        assert_eq!(subscript(&matrix, &[int(2), int(3)]), Value::Int4(6));
        assert!(subscript(&matrix, &[int(2)]).is_null());
        assert!(subscript(&matrix, &[Value::Null, int(1)]).is_null());
    }

    #[test]
    fn nesting_wants_equal_shapes() {
        assert_eq!(print(&make_nested(Kind::Int4, &[array("{1,2}"), array("{3,4}")]).unwrap()), "{{1,2},{3,4}}");
        assert!(make_nested(Kind::Int4, &[array("{1,2}"), array("{3}")]).is_err());
    }
}
