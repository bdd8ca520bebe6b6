//! Whole arrays at once, for what queries do most: arithmetic and casts of numbers.
//!
//! The results are those of [`freshet_sql::functions`], errors included; a test compares the two.

use std::sync::Arc;

use arrow::{
    array::{
        Array as _, ArrayRef, ArrowPrimitiveType, BinaryViewArray, BinaryViewBuilder, Decimal128Array, PrimitiveArray,
        new_null_array,
    },
    buffer::NullBuffer,
    compute::cast,
    datatypes::{DataType, Float32Type, Float64Type, Int16Type, Int32Type, Int64Type},
};
use datafusion_common::{Result, ScalarValue};
use datafusion_expr::ColumnarValue;
use freshet_sql::{Kind, SqlError, SqlState, types::Numeric};

use crate::{
    error::external,
    function::{RowFunction, Work},
    layout::{data_type, numeric_from_bytes, numeric_of, numeric_to_bytes},
};

/// Evaluates a function if there is a fast way.
///
/// # Errors
/// Those of the function.
pub(crate) fn evaluate(function: &RowFunction, arguments: &[ColumnarValue]) -> Result<Option<ColumnarValue>> {
    // A single row is not worth it.
    if !arguments.iter().any(|argument| matches!(argument, ColumnarValue::Array(_))) {
        return Ok(None);
    }
    match (&function.work, arguments) {
        (Work::Call(operator), [left, right]) => {
            let Some(operator) = Operator::of(operator.name) else { return Ok(None) };
            match function.result.kind() {
                Kind::Int2 => integers::<Int16Type>(operator, left, right, Kind::Int2),
                Kind::Int4 if all_integers(function) => integers::<Int32Type>(operator, left, right, Kind::Int4),
                Kind::Int8 if all_integers(function) => integers::<Int64Type>(operator, left, right, Kind::Int8),
                Kind::Float4 => floats::<Float32Type>(operator, left, right, Float::of_f32),
                Kind::Float8 if all_floats(function) => floats::<Float64Type>(operator, left, right, Float::of_f64),
                Kind::Numeric => numerics(operator, left, right),
                _ => Ok(None),
            }
        }
        (Work::Cast(_), [ColumnarValue::Array(array)]) => {
            widen(array, &data_type(function.result), function).map(|array| array.map(ColumnarValue::Array))
        }
        _ => Ok(None),
    }
}

fn all_integers(function: &RowFunction) -> bool {
    function.arguments.iter().all(|ty| matches!(ty.kind(), Kind::Int2 | Kind::Int4 | Kind::Int8))
}

fn all_floats(function: &RowFunction) -> bool {
    function.arguments.iter().all(|ty| matches!(ty.kind(), Kind::Float4 | Kind::Float8))
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Operator {
    Add,
    Subtract,
    Multiply,
    Divide,
    Remainder,
}

impl Operator {
    fn of(name: &str) -> Option<Self> {
        Some(match name {
            "+" => Self::Add,
            "-" => Self::Subtract,
            "*" => Self::Multiply,
            "/" => Self::Divide,
            "%" => Self::Remainder,
            _ => return None,
        })
    }
}

#[cold]
fn out_of_range(kind: Kind) -> SqlError {
    SqlError::new(SqlState::NUMERIC_VALUE_OUT_OF_RANGE, format!("{kind} out of range"))
}

#[cold]
fn division_by_zero() -> SqlError {
    SqlError::new(SqlState::DIVISION_BY_ZERO, "division by zero")
}

#[cold]
fn float_out_of_range(what: &str) -> SqlError {
    SqlError::new(SqlState::NUMERIC_VALUE_OUT_OF_RANGE, format!("value out of range: {what}"))
}

/// One side of an operator, as numbers of the result's type.
enum Side<T: ArrowPrimitiveType> {
    Constant(T::Native),
    Column(PrimitiveArray<T>),
    Null,
}

impl<T: ArrowPrimitiveType> Side<T> {
    fn new(value: &ColumnarValue) -> Result<Option<Self>> {
        let (array, constant) = match value {
            ColumnarValue::Scalar(scalar) if scalar.is_null() => return Ok(Some(Self::Null)),
            ColumnarValue::Scalar(scalar) => (scalar.to_array()?, true),
            ColumnarValue::Array(array) => (Arc::clone(array), false),
        };
        let array = if *array.data_type() == T::DATA_TYPE { array } else { cast(&array, &T::DATA_TYPE)? };
        let Some(array) = array.as_any().downcast_ref::<PrimitiveArray<T>>() else { return Ok(None) };
        Ok(Some(if constant { Self::Constant(array.value(0)) } else { Self::Column(array.clone()) }))
    }
}

fn primitive<T: ArrowPrimitiveType>(
    left: &ColumnarValue,
    right: &ColumnarValue,
    operator: impl Fn(T::Native, T::Native) -> Result<T::Native, SqlError>,
) -> Result<Option<ColumnarValue>> {
    let (Some(left), Some(right)) = (Side::<T>::new(left)?, Side::<T>::new(right)?) else { return Ok(None) };
    let array = match (&left, &right) {
        (Side::Null, _) | (_, Side::Null) => {
            return Ok(Some(ColumnarValue::Scalar(ScalarValue::try_from(&T::DATA_TYPE)?)));
        }
        (Side::Column(left), Side::Constant(right)) => left.try_unary::<_, T, _>(|left| operator(left, *right)),
        (Side::Constant(left), Side::Column(right)) => right.try_unary::<_, T, _>(|right| operator(*left, right)),
        (Side::Column(left), Side::Column(right)) => {
            let nulls = NullBuffer::union(left.nulls(), right.nulls());
            let mut values = Vec::with_capacity(left.len());
            for (at, (left, right)) in left.values().iter().zip(right.values()).enumerate() {
                let missing = nulls.as_ref().is_some_and(|nulls| nulls.is_null(at));
                values.push(if missing { T::default_value() } else { operator(*left, *right).map_err(external)? });
            }
            Ok(PrimitiveArray::new(values.into(), nulls))
        }
        (Side::Constant(_), Side::Constant(_)) => return Ok(None),
    };
    Ok(Some(ColumnarValue::Array(Arc::new(array.map_err(external)?))))
}

/// Whole numbers, all of their operators checked.
trait Integer: Copy + PartialEq + Default {
    fn apply(self, other: Self, operator: Operator) -> Option<Self>;
}

macro_rules! integer {
    ($($number:ty),+) => {$(
        impl Integer for $number {
            #[inline]
            fn apply(self, other: Self, operator: Operator) -> Option<Self> {
                match operator {
                    Operator::Add => self.checked_add(other),
                    Operator::Subtract => self.checked_sub(other),
                    Operator::Multiply => self.checked_mul(other),
                    Operator::Divide => self.checked_div(other),
                    // The smallest number modulo -1 overflows only in the machine.
                    Operator::Remainder => Some(self.wrapping_rem(other)),
                }
            }
        }
    )+};
}

integer!(i16, i32, i64);

fn integers<T: ArrowPrimitiveType<Native: Integer>>(
    operator: Operator,
    left: &ColumnarValue,
    right: &ColumnarValue,
    kind: Kind,
) -> Result<Option<ColumnarValue>> {
    let divides = matches!(operator, Operator::Divide | Operator::Remainder);
    primitive::<T>(left, right, |left, right| {
        if divides && right == <T::Native as Default>::default() {
            return Err(division_by_zero());
        }
        left.apply(right, operator).ok_or_else(|| out_of_range(kind))
    })
}

/// What floating-point operators check.
#[derive(Clone, Copy)]
struct Float {
    number: f64,
}

impl Float {
    fn of_f32(number: f32) -> Self {
        Self { number: number.into() }
    }

    fn of_f64(number: f64) -> Self {
        Self { number }
    }
}

fn floats<T: ArrowPrimitiveType>(
    operator: Operator,
    left: &ColumnarValue,
    right: &ColumnarValue,
    widened: fn(T::Native) -> Float,
) -> Result<Option<ColumnarValue>>
where
    T::Native: num::Arithmetic,
{
    if operator == Operator::Remainder {
        return Ok(None);
    }
    primitive::<T>(left, right, |left, right| {
        use num::Arithmetic;
        let (one, two) = (widened(left).number, widened(right).number);
        if operator == Operator::Divide && two == 0.0 && !one.is_nan() {
            return Err(division_by_zero());
        }
        let result = match operator {
            Operator::Add => left.plus(right),
            Operator::Subtract => left.minus(right),
            Operator::Multiply => left.times(right),
            Operator::Divide | Operator::Remainder => left.over(right),
        };
        let number = widened(result).number;
        if number.is_infinite() && one.is_finite() && (two.is_finite() || operator == Operator::Divide) {
            return Err(float_out_of_range("overflow"));
        }
        let vanishes = match operator {
            Operator::Multiply => one != 0.0 && two != 0.0,
            Operator::Divide => one != 0.0 && two.is_finite(),
            _ => false,
        };
        if number == 0.0 && vanishes {
            return Err(float_out_of_range("underflow"));
        }
        Ok(result.canonical())
    })
}

mod num {
    use crate::layout::{canonical_f32, canonical_f64};

    /// Operators of floating-point numbers of either width.
    pub(super) trait Arithmetic: Copy {
        fn plus(self, other: Self) -> Self;
        fn minus(self, other: Self) -> Self;
        fn times(self, other: Self) -> Self;
        fn over(self, other: Self) -> Self;
        fn canonical(self) -> Self;
    }

    macro_rules! arithmetic {
        ($($number:ty, $canonical:path);+) => {$(
            impl Arithmetic for $number {
                fn plus(self, other: Self) -> Self {
                    self + other
                }

                fn minus(self, other: Self) -> Self {
                    self - other
                }

                fn times(self, other: Self) -> Self {
                    self * other
                }

                fn over(self, other: Self) -> Self {
                    self / other
                }

                fn canonical(self) -> Self {
                    $canonical(self)
                }
            }
        )+};
    }

    arithmetic!(f32, canonical_f32; f64, canonical_f64);
}

/// Numbers of any scale.
enum Numbers<'a> {
    Constant(Option<Numeric>),
    Decimals(&'a Decimal128Array, u32),
    Bytes(&'a BinaryViewArray),
}

impl<'a> Numbers<'a> {
    fn new(value: &'a ColumnarValue) -> Option<Self> {
        match value {
            ColumnarValue::Scalar(ScalarValue::Decimal128(number, _, scale)) => {
                let scale = scale.unsigned_abs().into();
                Some(Self::Constant(number.and_then(|number| numeric_of(number, scale))))
            }
            ColumnarValue::Scalar(ScalarValue::BinaryView(bytes)) => {
                let number = bytes.as_deref().and_then(numeric_from_bytes);
                Some(Self::Constant(number.map(|number| number.to_numeric())))
            }
            ColumnarValue::Scalar(_) => None,
            ColumnarValue::Array(array) => {
                let any = array.as_any();
                if let Some(array) = any.downcast_ref::<Decimal128Array>() {
                    return Some(Self::Decimals(array, array.scale().unsigned_abs().into()));
                }
                any.downcast_ref::<BinaryViewArray>().map(Self::Bytes)
            }
        }
    }

    #[inline]
    fn get(&self, at: usize) -> Option<Numeric> {
        match self {
            Self::Constant(number) => number.clone(),
            Self::Decimals(array, scale) => array.is_valid(at).then(|| numeric_of(array.value(at), *scale)).flatten(),
            Self::Bytes(array) if array.is_valid(at) => {
                numeric_from_bytes(array.value(at)).map(|number| number.to_numeric())
            }
            Self::Bytes(_) => None,
        }
    }

    fn len(&self) -> Option<usize> {
        match self {
            Self::Constant(_) => None,
            Self::Decimals(array, _) => Some(array.len()),
            Self::Bytes(array) => Some(array.len()),
        }
    }
}

fn numerics(operator: Operator, left: &ColumnarValue, right: &ColumnarValue) -> Result<Option<ColumnarValue>> {
    let (Some(left), Some(right)) = (Numbers::new(left), Numbers::new(right)) else { return Ok(None) };
    let Some(count) = left.len().or(right.len()) else { return Ok(None) };
    let apply = match operator {
        Operator::Add => Numeric::add,
        Operator::Subtract => Numeric::sub,
        Operator::Multiply => Numeric::mul,
        Operator::Divide => Numeric::div,
        Operator::Remainder => Numeric::rem,
    };
    let mut builder = BinaryViewBuilder::with_capacity(count);
    for at in 0..count {
        match (left.get(at), right.get(at)) {
            (Some(left), Some(right)) => {
                let result = apply(&left, &right).map_err(external)?;
                builder.append_value(numeric_to_bytes(result.as_ref()).as_slice());
            }
            _ => builder.append_null(),
        }
    }
    Ok(Some(ColumnarValue::Array(Arc::new(builder.finish()))))
}

/// Casts of numbers that cannot fail.
fn widen(array: &ArrayRef, to: &DataType, function: &RowFunction) -> Result<Option<ArrayRef>> {
    let [from] = function.arguments.as_slice() else { return Ok(None) };
    let widens = match (from.kind(), function.result.kind()) {
        (Kind::Int2, Kind::Int4 | Kind::Int8 | Kind::Float4 | Kind::Float8)
        | (Kind::Int4, Kind::Int8 | Kind::Float8)
        | (Kind::Int8, Kind::Float8)
        | (Kind::Float4, Kind::Float8) => true,
        (Kind::Int2 | Kind::Int4 | Kind::Int8, Kind::Numeric) if function.result.precision().is_none() => {
            let wide = cast(array, &DataType::Int64)?;
            let Some(wide) = wide.as_any().downcast_ref::<PrimitiveArray<Int64Type>>() else { return Ok(None) };
            return number_bytes(wide.len(), |at| wide.is_valid(at).then(|| Numeric::from(wide.value(at)))).map(Some);
        }
        (Kind::Numeric, Kind::Numeric) if function.result.precision().is_none() => {
            let column = ColumnarValue::Array(Arc::clone(array));
            let Some(numbers) = Numbers::new(&column) else { return Ok(None) };
            return number_bytes(array.len(), |at| numbers.get(at)).map(Some);
        }
        _ => false,
    };
    if array.null_count() == array.len() {
        return Ok(Some(new_null_array(to, array.len())));
    }
    Ok(if widens { Some(cast(array, to)?) } else { None })
}

fn number_bytes(count: usize, get: impl Fn(usize) -> Option<Numeric>) -> Result<ArrayRef> {
    let mut builder = BinaryViewBuilder::with_capacity(count);
    for at in 0..count {
        match get(at) {
            Some(number) => builder.append_value(numeric_to_bytes(number.as_ref()).as_slice()),
            None => builder.append_null(),
        }
    }
    Ok(Arc::new(builder.finish()))
}
