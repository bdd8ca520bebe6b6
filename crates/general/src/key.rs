//! Keys: what equal values have in common, in an order that is theirs.
//!
//! Some types' arrays do not compare as their values do (see [`crate::layout`]): equal numbers may
//! have different scales. Where such values are compared, sorted, grouped or joined, their keys
//! are.

use std::sync::Arc;

use arrow::{
    array::{
        Array as _, ArrayRef, BinaryViewArray, BinaryViewBuilder, Decimal128Array, Decimal128Builder, Float32Array,
        Float64Array, StringViewBuilder,
    },
    datatypes::{DECIMAL128_MAX_PRECISION, DataType, Float32Type, Float64Type},
};
use datafusion_common::{DataFusionError, Result, ScalarValue};
use datafusion_expr::{ColumnarValue, Expr, ScalarFunctionArgs, ScalarUDFImpl, Signature, Volatility};
use freshet_sql::{
    Kind, SqlError, Type, Value,
    types::{Array, NumericRef, Precision, json::Json, without_blanks},
};

use crate::{
    error::external,
    function::call,
    layout::{Reader, data_type, numeric_from_bytes, numeric_of},
};

const INTERVAL_KEY: DataType = DataType::Decimal128(DECIMAL128_MAX_PRECISION, 0);

/// Whether a type's arrays compare as its values do.
pub(crate) fn compares(ty: Type) -> bool {
    match ty.kind() {
        Kind::Numeric => ty.precision().and_then(Precision::short_scale).is_some(),
        Kind::Char => ty.character_length().is_some(),
        Kind::Float4 | Kind::Float8 | Kind::Interval | Kind::Jsonb => false,
        kind => !kind.is_array(),
    }
}

/// An expression that compares as values of a type do.
pub(crate) fn key(expr: Expr, ty: Type) -> Expr {
    if compares(ty) { expr } else { Key::call(expr, ty) }
}

/// Two expressions that compare as values of two types do, which are of one kind.
pub(crate) fn comparable(one: (Expr, Type), two: (Expr, Type)) -> (Expr, Expr) {
    if data_type(one.1) != data_type(two.1) {
        // Numbers of different scales.
        return (Key::call(one.0, one.1), Key::call(two.0, two.1));
    }
    (key(one.0, one.1), key(two.0, two.1))
}

/// The function that makes keys.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Key {
    pub ty: Type,
    signature: Signature,
}

impl Key {
    fn call(expr: Expr, ty: Type) -> Expr {
        if ty.kind() == Kind::Char && ty.character_length().is_some() {
            return expr;
        }
        call(Self { ty, signature: Signature::user_defined(Volatility::Immutable) }, vec![expr])
    }

    fn data_type(&self) -> DataType {
        match self.ty.kind() {
            Kind::Float4 => DataType::Float32,
            Kind::Float8 => DataType::Float64,
            Kind::Interval => INTERVAL_KEY,
            Kind::Char => DataType::Utf8View,
            _ => DataType::BinaryView,
        }
    }

    fn keys(&self, array: &ArrayRef) -> Result<ArrayRef> {
        if self.ty.kind() == Kind::Numeric {
            return numeric_keys(array);
        }
        // Of both zeros, the one.
        let any = array.as_any();
        if let Some(array) = any.downcast_ref::<Float64Array>() {
            return Ok(Arc::new(array.unary::<_, Float64Type>(|number| number + 0.0)));
        }
        if let Some(array) = any.downcast_ref::<Float32Array>() {
            return Ok(Arc::new(array.unary::<_, Float32Type>(|number| number + 0.0)));
        }
        let reader = Reader::new(self.ty, array).map_err(external)?;
        let count = array.len();
        let values = (0..count).map(|row| reader.value(row).map_err(external));
        Ok(match self.ty.kind() {
            Kind::Interval => {
                let mut builder = Decimal128Builder::with_capacity(count).with_data_type(INTERVAL_KEY);
                for value in values {
                    builder.append_option(match value? {
                        Value::Interval(interval) => Some(interval.length()),
                        _ => None,
                    });
                }
                Arc::new(builder.finish())
            }
            Kind::Char => {
                let mut builder = StringViewBuilder::with_capacity(count);
                for value in values {
                    builder.append_option(value?.as_str().map(without_blanks));
                }
                Arc::new(builder.finish())
            }
            _ => {
                let mut builder = BinaryViewBuilder::with_capacity(count);
                let mut bytes = Vec::new();
                for value in values {
                    let value = value?;
                    bytes.clear();
                    write(&value, &mut bytes);
                    builder.append_option((!value.is_null()).then_some(&bytes));
                }
                Arc::new(builder.finish())
            }
        })
    }
}

impl ScalarUDFImpl for Key {
    fn name(&self) -> &'static str {
        "key"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(self.data_type())
    }

    fn coerce_types(&self, arguments: &[DataType]) -> Result<Vec<DataType>> {
        Ok(arguments.to_vec())
    }

    fn invoke_with_args(&self, arguments: ScalarFunctionArgs) -> Result<ColumnarValue> {
        match arguments.args.as_slice() {
            [ColumnarValue::Array(array)] => self.keys(array).map(ColumnarValue::Array),
            [ColumnarValue::Scalar(scalar)] => {
                let keys = self.keys(&scalar.to_array()?)?;
                ScalarValue::try_from_array(&keys, 0).map(ColumnarValue::Scalar)
            }
            _ => Err(DataFusionError::Internal("a key is made of one value".to_owned())),
        }
    }
}

/// The bytes by which numbers sort; none is zero.
fn numeric_keys(array: &ArrayRef) -> Result<ArrayRef> {
    let mut builder = BinaryViewBuilder::with_capacity(array.len());
    let mut bytes = Vec::new();
    let mut append = |number: Option<NumericRef<'_>>| match number {
        Some(number) => {
            bytes.clear();
            number.write_sorted(&mut bytes);
            builder.append_value(&bytes);
        }
        None => builder.append_null(),
    };
    let any = array.as_any();
    if let Some(array) = any.downcast_ref::<Decimal128Array>() {
        let scale = u32::from(array.scale().unsigned_abs());
        for number in array.iter() {
            let number = number.and_then(|number| numeric_of(number, scale));
            append(number.as_ref().map(|number| number.as_ref()));
        }
    } else if let Some(array) = any.downcast_ref::<BinaryViewArray>() {
        array.iter().for_each(|bytes| append(bytes.and_then(numeric_from_bytes)));
    } else {
        return Err(external(SqlError::internal(format!("numbers lie in an array of {}", array.data_type()))));
    }
    Ok(Arc::new(builder.finish()))
}

/// Writes a value such that bytes compare as values do, and none is a prefix of another one's.
fn write(value: &Value, out: &mut Vec<u8>) {
    match value {
        Value::Null => {}
        Value::Bool(value) => out.push((*value).into()),
        Value::Int2(value) => write_integer((*value).into(), out),
        Value::Int4(value) => write_integer((*value).into(), out),
        Value::Int8(value) => write_integer(*value, out),
        Value::Date(value) => write_integer(value.0.into(), out),
        Value::Time(value) => write_integer(value.0, out),
        Value::Timestamp(value) | Value::Timestamptz(value) => write_integer(value.0, out),
        Value::Float4(value) => write_float((*value).into(), out),
        Value::Float8(value) => write_float(*value, out),
        Value::Numeric(value) => write_numeric(value.as_ref(), out),
        Value::Oid(value) => out.extend(value.to_be_bytes()),
        Value::SingleChar(value) => out.push(*value),
        Value::Text(value) | Value::Json(value) => write_bytes(value.as_bytes(), out),
        Value::Char(value) => write_bytes(without_blanks(value).as_bytes(), out),
        Value::Bytea(value) => write_bytes(value, out),
        Value::Interval(value) => out.extend((value.length() ^ i128::MIN).to_be_bytes()),
        Value::Uuid(value) => out.extend(value),
        Value::Packed(value) => out.extend(value.sort_bytes().as_slice()),
        Value::Jsonb(value) => match Json::of_value(value) {
            // An empty array on its own comes before everything, as PostgreSQL has it.
            Ok(Json::Array(elements)) if elements.is_empty() => out.push(0),
            Ok(json) => write_json(&json, out),
            Err(_) => write_bytes(value.as_bytes(), out),
        },
        Value::Array(value) => write_array(value, out),
    }
}

fn write_integer(number: i64, out: &mut Vec<u8>) {
    out.extend((number ^ i64::MIN).to_be_bytes());
}

fn write_float(number: f64, out: &mut Vec<u8>) {
    let bits = (crate::layout::canonical_f64(number) + 0.0).to_bits();
    let ordered = if bits >> 63 == 0 { bits | 1 << 63 } else { !bits };
    out.extend(ordered.to_be_bytes());
}

fn write_numeric(number: NumericRef<'_>, out: &mut Vec<u8>) {
    number.write_sorted(out);
    out.push(0);
}

/// Bytes, with a mark at their end that is less than any byte.
fn write_bytes(bytes: &[u8], out: &mut Vec<u8>) {
    for byte in bytes {
        out.push(*byte);
        if *byte == 0 {
            out.push(0xff);
        }
    }
    out.extend([0, 0]);
}

/// Element by element, nulls last, then by size and shape.
fn write_array(array: &Array, out: &mut Vec<u8>) {
    for value in array.values() {
        if value.is_null() {
            out.push(2);
        } else {
            out.push(1);
            write(value, out);
        }
    }
    out.push(0);
    out.push(array.dimensions().len() as u8);
    for dimension in array.dimensions() {
        out.extend(dimension.length.to_be_bytes());
    }
    for dimension in array.dimensions() {
        write_integer(dimension.lower.into(), out);
    }
}

/// A number of any length, written out without an exponent: where its first digit stands, then its
/// digits.
fn write_digits(number: &str, out: &mut Vec<u8>) {
    let (negative, number) = match number.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, number),
    };
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let digits: Vec<u8> = whole.bytes().chain(fraction.bytes()).collect();
    let Some(first) = digits.iter().position(|digit| *digit != b'0') else {
        return out.push(1);
    };
    let last = digits.iter().rposition(|digit| *digit != b'0').unwrap_or(first);
    out.push(if negative { 0 } else { 2 });
    let start = out.len();
    write_integer(whole.len() as i64 - first as i64, out);
    out.extend(&digits[first..=last]);
    out.push(0);
    if negative {
        out[start..].iter_mut().for_each(|byte| *byte = !*byte);
    }
}

/// In the order of `jsonb`: by kind, objects and arrays by size first.
fn write_json(json: &Json<'_>, out: &mut Vec<u8>) {
    match json {
        Json::Null => out.push(1),
        Json::String(text) => {
            out.push(2);
            write_bytes(text.as_bytes(), out);
        }
        Json::Number(digits) => {
            out.push(3);
            write_digits(digits, out);
        }
        Json::Bool(value) => out.extend([4, (*value).into()]),
        Json::Array(elements) => {
            out.push(5);
            out.extend((elements.len() as u32).to_be_bytes());
            elements.iter().for_each(|element| write_json(element, out));
        }
        Json::Object(members) => {
            out.push(6);
            out.extend((members.len() as u32).to_be_bytes());
            for (name, value) in members {
                // Shorter names come first.
                out.extend((name.len() as u32).to_be_bytes());
                write_bytes(name.as_bytes(), out);
                write_json(value, out);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use freshet_sql::types::{EvalContext, text};

    use super::*;

    fn bytes(ty: Type, text: &str) -> (Value, Vec<u8>) {
        let value = text::input(ty, text, &EvalContext::default()).unwrap();
        let mut bytes = Vec::new();
        write(&value, &mut bytes);
        (value, bytes)
    }

    #[test]
    fn bytes_compare_as_values_do() {
        let cases: [(Kind, &[&str]); 4] = [
            (
                Kind::Jsonb,
                &[
                    "[]",
                    "null",
                    "\"\"",
                    "\"a\"",
                    "\"a\\u0001\"",
                    "\"ab\"",
                    "-1e3",
                    "-1",
                    "-0.5",
                    "0",
                    "0.00",
                    "1e-3",
                    "0.5",
                    "0.50",
                    "9",
                    "10",
                    "1e40",
                    "2e40",
                    "false",
                    "true",
                    "[1]",
                    "[[]]",
                    "[null, 1]",
                    "[1, 2]",
                    "{}",
                    "{\"b\": 1}",
                    "{\"aa\": 1}",
                    "{\"a\": 1, \"b\": []}",
                    "{\"a\": 1, \"b\": null}",
                ],
            ),
            (
                Kind::Int4Array,
                &["{}", "{-1}", "{1}", "{1,2}", "{2}", "{NULL}", "{1,NULL}", "{{1,2}}", "{{1},{2}}", "[0:1]={1,2}"],
            ),
            (Kind::TextArray, &["{\"\"}", "{a}", "{a,b}", "{ab}", "{b}"]),
            (Kind::NumericArray, &["{-1.5}", "{-1.50}", "{0}", "{0.001}", "{1e37}", "{1.0}", "{1.00}"]),
        ];
        for (kind, texts) in cases {
            let keys: Vec<_> = texts.iter().map(|text| bytes(Type::of(kind), text)).collect();
            for (one, one_bytes) in &keys {
                for (two, two_bytes) in &keys {
                    assert_eq!(one.cmp(two), one_bytes.cmp(two_bytes), "{one:?} {two:?}");
                }
            }
        }
    }

    #[test]
    fn numbers_of_all_scales_have_keys() {
        let numbers = [
            "-Infinity",
            "-1e100",
            "-99999999999999999999999999999999999999",
            "-0.1",
            "-1e-100",
            "0",
            "1e-100",
            "0.00000000000000000000000000000000000001",
            "1.5",
            "1e100",
            "Infinity",
            "NaN",
        ];
        let keys: Vec<_> = numbers.iter().map(|text| bytes(Type::NUMERIC, text).1).collect();
        assert!(keys.is_sorted());
        assert_eq!(bytes(Type::NUMERIC, "1.50").1, keys[8]);
        let array: ArrayRef = {
            let mut builder = crate::layout::Builder::new(Type::NUMERIC, numbers.len());
            for text in numbers {
                builder.append(bytes(Type::NUMERIC, text).0.as_ref()).unwrap();
            }
            builder.finish()
        };
        let sorted = numeric_keys(&array).unwrap();
        let sorted = sorted.as_any().downcast_ref::<BinaryViewArray>().unwrap();
        assert!(sorted.iter().is_sorted());
    }
}
