//! Arithmetic on numbers.

use super::{Function, mismatch, take};
use crate::{
    SqlError, SqlState,
    types::{EvalContext, Kind, Numeric, Value, cast_out_of_range, division_by_zero},
};

macro_rules! integer_operators {
    ($($one:ident $two:ident -> $result:ident: $module:ident),+ $(,)?) => {
        &[$(
            Function::new("+", &[Kind::$one, Kind::$two], Kind::$result, $module::add),
            Function::new("-", &[Kind::$one, Kind::$two], Kind::$result, $module::sub),
            Function::new("*", &[Kind::$one, Kind::$two], Kind::$result, $module::mul),
            Function::new("/", &[Kind::$one, Kind::$two], Kind::$result, $module::div),
        )+
            Function::new("%", &[Kind::Int2, Kind::Int2], Kind::Int2, int2::rem),
            Function::new("%", &[Kind::Int4, Kind::Int4], Kind::Int4, int4::rem),
            Function::new("%", &[Kind::Int8, Kind::Int8], Kind::Int8, int8::rem),
            Function::new("mod", &[Kind::Int2, Kind::Int2], Kind::Int2, int2::rem),
            Function::new("mod", &[Kind::Int4, Kind::Int4], Kind::Int4, int4::rem),
            Function::new("mod", &[Kind::Int8, Kind::Int8], Kind::Int8, int8::rem),
            Function::new("%", &[Kind::Numeric, Kind::Numeric], Kind::Numeric, numeric_rem),
            Function::new("mod", &[Kind::Numeric, Kind::Numeric], Kind::Numeric, numeric_rem),
            Function::new("^", &[Kind::Float8, Kind::Float8], Kind::Float8, super::math::float8_power),
            Function::new("^", &[Kind::Numeric, Kind::Numeric], Kind::Numeric, super::math::numeric_power),
            Function::new("-", &[Kind::Int2], Kind::Int2, int2::neg),
            Function::new("-", &[Kind::Int4], Kind::Int4, int4::neg),
            Function::new("-", &[Kind::Int8], Kind::Int8, int8::neg),
            Function::new("-", &[Kind::Float4], Kind::Float4, float4::neg),
            Function::new("-", &[Kind::Float8], Kind::Float8, float8::neg),
            Function::new("-", &[Kind::Numeric], Kind::Numeric, numeric_neg),
            Function::new("+", &[Kind::Int2], Kind::Int2, itself),
            Function::new("+", &[Kind::Int4], Kind::Int4, itself),
            Function::new("+", &[Kind::Int8], Kind::Int8, itself),
            Function::new("+", &[Kind::Float4], Kind::Float4, itself),
            Function::new("+", &[Kind::Float8], Kind::Float8, itself),
            Function::new("+", &[Kind::Numeric], Kind::Numeric, itself),
        ]
    };
}

pub(super) const FUNCTIONS: &[Function] = integer_operators![
    Int2 Int2 -> Int2: int2,
    Int4 Int4 -> Int4: int4,
    Int8 Int8 -> Int8: int8,
    Int2 Int4 -> Int4: mixed_int4,
    Int4 Int2 -> Int4: mixed_int4,
    Int2 Int8 -> Int8: mixed_int8,
    Int4 Int8 -> Int8: mixed_int8,
    Int8 Int2 -> Int8: mixed_int8,
    Int8 Int4 -> Int8: mixed_int8,
    Float4 Float4 -> Float4: float4,
    Float8 Float8 -> Float8: float8,
    Float4 Float8 -> Float8: mixed_float,
    Float8 Float4 -> Float8: mixed_float,
    Numeric Numeric -> Numeric: numeric,
];

/// Operators of whole numbers, `$read` being how both arguments become `$number`.
macro_rules! integers {
    ($module:ident, $variant:ident, $number:ty, $read:path) => {
        mod $module {
            use super::*;

            type Checked = fn($number, $number) -> Option<$number>;

            #[inline]
            fn apply(arguments: &[Value], operator: Checked) -> Result<Value, SqlError> {
                let (one, two) = $read(arguments)?;
                operator(one, two).map(Value::$variant).ok_or_else(|| cast_out_of_range(Kind::$variant))
            }

            fn divide(arguments: &[Value], operator: Checked) -> Result<Value, SqlError> {
                if let [_, two] = arguments
                    && two.as_i64() == Some(0)
                {
                    return Err(division_by_zero());
                }
                apply(arguments, operator)
            }

            pub fn add(arguments: &[Value], _: &EvalContext<'_>) -> Result<Value, SqlError> {
                apply(arguments, <$number>::checked_add)
            }

            pub fn sub(arguments: &[Value], _: &EvalContext<'_>) -> Result<Value, SqlError> {
                apply(arguments, <$number>::checked_sub)
            }

            pub fn mul(arguments: &[Value], _: &EvalContext<'_>) -> Result<Value, SqlError> {
                apply(arguments, <$number>::checked_mul)
            }

            pub fn div(arguments: &[Value], _: &EvalContext<'_>) -> Result<Value, SqlError> {
                divide(arguments, <$number>::checked_div)
            }

            #[allow(dead_code, reason = "not all kinds have it")]
            pub fn rem(arguments: &[Value], _: &EvalContext<'_>) -> Result<Value, SqlError> {
                // The smallest number modulo -1 overflows only in the machine.
                divide(arguments, |one, two| Some(one.wrapping_rem(two)))
            }

            #[allow(dead_code, reason = "not all kinds have it")]
            pub fn neg(arguments: &[Value], _: &EvalContext<'_>) -> Result<Value, SqlError> {
                take!(arguments: $variant(number));
                number.checked_neg().map(Value::$variant).ok_or_else(|| cast_out_of_range(Kind::$variant))
            }
        }
    };
}

integers!(int2, Int2, i16, super::read_int2);
integers!(int4, Int4, i32, super::read_int4);
integers!(int8, Int8, i64, super::read_int8);
integers!(mixed_int4, Int4, i32, super::read_mixed_int4);
integers!(mixed_int8, Int8, i64, super::read_mixed_int8);

macro_rules! readers {
    ($($name:ident: $variant:ident $number:ty),+) => {$(
        #[inline]
        fn $name(arguments: &[Value]) -> Result<($number, $number), SqlError> {
            take!(arguments: $variant(one), $variant(two));
            Ok((*one, *two))
        }
    )+};
}

readers!(read_int2: Int2 i16, read_int4: Int4 i32, read_int8: Int8 i64, read_float4: Float4 f32, read_float8: Float8 f64);

fn read_mixed_int8(arguments: &[Value]) -> Result<(i64, i64), SqlError> {
    match arguments {
        [one, two] => one.as_i64().zip(two.as_i64()).ok_or_else(|| mismatch(arguments)),
        _ => Err(mismatch(arguments)),
    }
}

fn read_mixed_int4(arguments: &[Value]) -> Result<(i32, i32), SqlError> {
    let (one, two) = read_mixed_int8(arguments)?;
    i32::try_from(one).ok().zip(i32::try_from(two).ok()).ok_or_else(|| mismatch(arguments))
}

fn read_mixed_float(arguments: &[Value]) -> Result<(f64, f64), SqlError> {
    let number = |value: &Value| match value {
        Value::Float4(number) => Some(f64::from(*number)),
        Value::Float8(number) => Some(*number),
        _ => None,
    };
    match arguments {
        [one, two] => number(one).zip(number(two)).ok_or_else(|| mismatch(arguments)),
        _ => Err(mismatch(arguments)),
    }
}

/// The error for a result that is too large for a floating-point number.
#[cold]
pub(super) fn float_overflow() -> SqlError {
    SqlError::new(SqlState::NUMERIC_VALUE_OUT_OF_RANGE, "value out of range: overflow")
}

/// The error for a result that is too small for a floating-point number.
#[cold]
pub(super) fn float_underflow() -> SqlError {
    SqlError::new(SqlState::NUMERIC_VALUE_OUT_OF_RANGE, "value out of range: underflow")
}

macro_rules! floats {
    ($module:ident, $variant:ident, $read:path) => {
        mod $module {
            use super::*;

            pub fn add(arguments: &[Value], _: &EvalContext<'_>) -> Result<Value, SqlError> {
                let (one, two) = $read(arguments)?;
                let sum = one + two;
                if sum.is_infinite() && one.is_finite() && two.is_finite() {
                    return Err(float_overflow());
                }
                Ok(Value::$variant(sum))
            }

            pub fn sub(arguments: &[Value], _: &EvalContext<'_>) -> Result<Value, SqlError> {
                let (one, two) = $read(arguments)?;
                let difference = one - two;
                if difference.is_infinite() && one.is_finite() && two.is_finite() {
                    return Err(float_overflow());
                }
                Ok(Value::$variant(difference))
            }

            pub fn mul(arguments: &[Value], _: &EvalContext<'_>) -> Result<Value, SqlError> {
                let (one, two) = $read(arguments)?;
                let product = one * two;
                if product.is_infinite() && one.is_finite() && two.is_finite() {
                    return Err(float_overflow());
                }
                if product == 0.0 && one != 0.0 && two != 0.0 {
                    return Err(float_underflow());
                }
                Ok(Value::$variant(product))
            }

            pub fn div(arguments: &[Value], _: &EvalContext<'_>) -> Result<Value, SqlError> {
                let (one, two) = $read(arguments)?;
                if two == 0.0 && !one.is_nan() {
                    return Err(division_by_zero());
                }
                let quotient = one / two;
                if quotient.is_infinite() && one.is_finite() {
                    return Err(float_overflow());
                }
                if quotient == 0.0 && one != 0.0 && two.is_finite() {
                    return Err(float_underflow());
                }
                Ok(Value::$variant(quotient))
            }

            #[allow(dead_code, reason = "not all kinds have it")]
            pub fn neg(arguments: &[Value], _: &EvalContext<'_>) -> Result<Value, SqlError> {
                take!(arguments: $variant(number));
                Ok(Value::$variant(-number))
            }
        }
    };
}

floats!(float4, Float4, super::read_float4);
floats!(float8, Float8, super::read_float8);
floats!(mixed_float, Float8, super::read_mixed_float);

mod numeric {
    use super::*;

    type Operator = fn(&Numeric, &Numeric) -> Result<Numeric, SqlError>;

    pub(super) fn apply(arguments: &[Value], operator: Operator) -> Result<Value, SqlError> {
        take!(arguments: Numeric(one), Numeric(two));
        operator(one, two).map(Value::Numeric)
    }

    pub fn add(arguments: &[Value], _: &EvalContext<'_>) -> Result<Value, SqlError> {
        apply(arguments, Numeric::add)
    }

    pub fn sub(arguments: &[Value], _: &EvalContext<'_>) -> Result<Value, SqlError> {
        apply(arguments, Numeric::sub)
    }

    pub fn mul(arguments: &[Value], _: &EvalContext<'_>) -> Result<Value, SqlError> {
        apply(arguments, Numeric::mul)
    }

    pub fn div(arguments: &[Value], _: &EvalContext<'_>) -> Result<Value, SqlError> {
        apply(arguments, Numeric::div)
    }
}

fn numeric_rem(arguments: &[Value], _: &EvalContext<'_>) -> Result<Value, SqlError> {
    numeric::apply(arguments, Numeric::rem)
}

fn numeric_neg(arguments: &[Value], _: &EvalContext<'_>) -> Result<Value, SqlError> {
    take!(arguments: Numeric(number));
    Ok(Value::Numeric(number.neg()))
}

fn itself(arguments: &[Value], _: &EvalContext<'_>) -> Result<Value, SqlError> {
    arguments.first().cloned().ok_or_else(|| mismatch(arguments))
}
