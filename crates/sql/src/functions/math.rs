//! Functions of numbers.

use std::cell::Cell;

use super::{
    Function,
    arithmetic::{float_overflow, float_underflow},
    take,
};
use crate::{
    SqlError, SqlState, portable,
    types::{EvalContext, Kind, Numeric, Value, cast_out_of_range, numeric::Special},
};

const F: Kind = Kind::Float8;
const N: Kind = Kind::Numeric;

pub(super) const FUNCTIONS: &[Function] = &[
    Function::new("abs", &[Kind::Int2], Kind::Int2, int2_abs),
    Function::new("abs", &[Kind::Int4], Kind::Int4, int4_abs),
    Function::new("abs", &[Kind::Int8], Kind::Int8, int8_abs),
    Function::new("abs", &[Kind::Float4], Kind::Float4, float4_abs),
    Function::new("abs", &[F], F, float8_abs),
    Function::new("abs", &[N], N, numeric_abs),
    Function::new("@", &[Kind::Int2], Kind::Int2, int2_abs),
    Function::new("@", &[Kind::Float4], Kind::Float4, float4_abs),
    Function::new("@", &[Kind::Int4], Kind::Int4, int4_abs),
    Function::new("@", &[Kind::Int8], Kind::Int8, int8_abs),
    Function::new("@", &[F], F, float8_abs),
    Function::new("@", &[N], N, numeric_abs),
    Function::new("ceil", &[F], F, float8_ceil),
    Function::new("ceil", &[N], N, numeric_ceil),
    Function::new("ceiling", &[F], F, float8_ceil),
    Function::new("ceiling", &[N], N, numeric_ceil),
    Function::new("floor", &[F], F, float8_floor),
    Function::new("floor", &[N], N, numeric_floor),
    Function::new("round", &[F], F, float8_round),
    Function::new("round", &[N], N, numeric_round),
    Function::new("round", &[N, Kind::Int4], N, numeric_round_to),
    Function::new("trunc", &[F], F, float8_trunc),
    Function::new("trunc", &[N], N, numeric_trunc),
    Function::new("trunc", &[N, Kind::Int4], N, numeric_trunc_to),
    Function::new("sign", &[F], F, float8_sign),
    Function::new("sign", &[N], N, numeric_sign),
    Function::new("sqrt", &[F], F, float8_sqrt),
    Function::new("sqrt", &[N], N, numeric_sqrt),
    Function::new("|/", &[F], F, float8_sqrt),
    Function::new("cbrt", &[F], F, float8_cbrt),
    Function::new("||/", &[F], F, float8_cbrt),
    Function::new("exp", &[F], F, float8_exp),
    Function::new("exp", &[N], N, numeric_exp),
    Function::new("ln", &[F], F, float8_ln),
    Function::new("ln", &[N], N, numeric_ln),
    Function::new("log", &[F], F, float8_log10),
    Function::new("log", &[N], N, numeric_log10),
    Function::new("log10", &[F], F, float8_log10),
    Function::new("log10", &[N], N, numeric_log10),
    Function::new("log", &[N, N], N, numeric_log),
    Function::new("power", &[F, F], F, float8_power),
    Function::new("power", &[N, N], N, numeric_power),
    Function::new("pow", &[F, F], F, float8_power),
    Function::new("pow", &[N, N], N, numeric_power),
    Function::new("div", &[N, N], N, numeric_div),
    Function::new("scale", &[N], Kind::Int4, numeric_scale),
    Function::new("min_scale", &[N], Kind::Int4, numeric_min_scale),
    Function::new("trim_scale", &[N], N, numeric_trim_scale),
    Function::new("gcd", &[Kind::Int4, Kind::Int4], Kind::Int4, int4_gcd),
    Function::new("gcd", &[Kind::Int8, Kind::Int8], Kind::Int8, int8_gcd),
    Function::new("lcm", &[Kind::Int4, Kind::Int4], Kind::Int4, int4_lcm),
    Function::new("lcm", &[Kind::Int8, Kind::Int8], Kind::Int8, int8_lcm),
    Function::new("gcd", &[N, N], N, numeric_gcd),
    Function::new("lcm", &[N, N], N, numeric_lcm),
    Function::new("factorial", &[Kind::Int8], N, factorial),
    Function::new("random", &[], F, random).volatile(),
    Function::new("setseed", &[F], Kind::Void, set_seed).volatile(),
    Function::new("width_bucket", &[F, F, F, Kind::Int4], Kind::Int4, float8_width_bucket),
    Function::new("width_bucket", &[N, N, N, Kind::Int4], Kind::Int4, numeric_width_bucket),
];

macro_rules! absolute {
    ($($name:ident $variant:ident),+) => {$(
        fn $name(arguments: &[Value], _: &EvalContext<'_>) -> Result<Value, SqlError> {
            take!(arguments: $variant(number));
            number.checked_abs().map(Value::$variant).ok_or_else(|| cast_out_of_range(Kind::$variant))
        }
    )+};
}

absolute!(int2_abs Int2, int4_abs Int4, int8_abs Int8);

fn float4_abs(arguments: &[Value], _: &EvalContext<'_>) -> Result<Value, SqlError> {
    take!(arguments: Float4(number));
    Ok(Value::Float4(number.abs()))
}

/// Applies a function of one number. Overflow is an error, and so is a zero that stands for a tiny
/// number.
pub(super) fn float(arguments: &[Value], function: fn(f64) -> f64) -> Result<Value, SqlError> {
    take!(arguments: Float8(number));
    let result = function(*number);
    if result.is_infinite() && number.is_finite() {
        return Err(float_overflow());
    }
    Ok(Value::Float8(result))
}

macro_rules! plain_floats {
    ($($name:ident $function:expr),+) => {$(
        fn $name(arguments: &[Value], _: &EvalContext<'_>) -> Result<Value, SqlError> {
            float(arguments, $function)
        }
    )+};
}

plain_floats!(
    float8_abs f64::abs,
    float8_ceil f64::ceil,
    float8_floor f64::floor,
    float8_round f64::round_ties_even,
    float8_trunc f64::trunc,
    float8_sign |number| if number > 0.0 { 1.0 } else if number < 0.0 { -1.0 } else { 0.0 },
    float8_cbrt portable::cbrt
);

fn float8_sqrt(arguments: &[Value], _: &EvalContext<'_>) -> Result<Value, SqlError> {
    take!(arguments: Float8(number));
    if *number < 0.0 {
        return Err(SqlError::new(
            SqlState::INVALID_ARGUMENT_FOR_POWER_FUNCTION,
            "cannot take square root of a negative number",
        ));
    }
    Ok(Value::Float8(number.sqrt()))
}

fn float8_exp(arguments: &[Value], _: &EvalContext<'_>) -> Result<Value, SqlError> {
    take!(arguments: Float8(number));
    let result = portable::exp(*number);
    if result == 0.0 && number.is_finite() {
        return Err(float_underflow());
    }
    float(arguments, portable::exp)
}

fn logarithm(arguments: &[Value], function: fn(f64) -> f64) -> Result<Value, SqlError> {
    take!(arguments: Float8(number));
    let message = if *number == 0.0 {
        "cannot take logarithm of zero"
    } else if *number < 0.0 {
        "cannot take logarithm of a negative number"
    } else {
        return Ok(Value::Float8(function(*number)));
    };
    Err(SqlError::new(SqlState::INVALID_ARGUMENT_FOR_LOGARITHM, message))
}

fn float8_ln(arguments: &[Value], _: &EvalContext<'_>) -> Result<Value, SqlError> {
    logarithm(arguments, portable::ln)
}

fn float8_log10(arguments: &[Value], _: &EvalContext<'_>) -> Result<Value, SqlError> {
    logarithm(arguments, portable::log10)
}

pub(super) fn float8_power(arguments: &[Value], _: &EvalContext<'_>) -> Result<Value, SqlError> {
    take!(arguments: Float8(base), Float8(exponent));
    let (base, exponent) = (*base, *exponent);
    let undefined = |message| Err(SqlError::new(SqlState::INVALID_ARGUMENT_FOR_POWER_FUNCTION, message));
    if base == 0.0 && exponent < 0.0 {
        return undefined("zero raised to a negative power is undefined");
    }
    if base < 0.0 && exponent.is_finite() && exponent.fract() != 0.0 {
        return undefined("a negative number raised to a non-integer power yields a complex result");
    }
    let result = portable::pow(base, exponent);
    if base.is_finite() && exponent.is_finite() {
        if result.is_infinite() {
            return Err(float_overflow());
        }
        if result == 0.0 && base != 0.0 {
            return Err(float_underflow());
        }
    }
    Ok(Value::Float8(result))
}

macro_rules! plain_numerics {
    ($($name:ident $function:expr),+) => {$(
        fn $name(arguments: &[Value], _: &EvalContext<'_>) -> Result<Value, SqlError> {
            take!(arguments: Numeric(number));
            let function: fn(&Numeric) -> Result<Numeric, SqlError> = $function;
            function(number).map(Value::Numeric)
        }
    )+};
}

plain_numerics!(
    numeric_abs |number| Ok(number.abs()),
    numeric_ceil Numeric::ceil,
    numeric_floor Numeric::floor,
    numeric_round |number| number.round(0),
    numeric_trunc |number| number.trunc(0),
    numeric_sign |number| Ok(number.signum()),
    numeric_sqrt Numeric::sqrt,
    numeric_exp Numeric::exp,
    numeric_ln Numeric::ln,
    numeric_log10 |number| number.log(&Numeric::from(10i32)),
    numeric_trim_scale |number| Ok(number.trimmed())
);

macro_rules! two_numerics {
    ($($name:ident $function:expr),+) => {$(
        pub(super) fn $name(arguments: &[Value], _: &EvalContext<'_>) -> Result<Value, SqlError> {
            take!(arguments: Numeric(one), Numeric(two));
            let function: fn(&Numeric, &Numeric) -> Result<Numeric, SqlError> = $function;
            function(one, two).map(Value::Numeric)
        }
    )+};
}

two_numerics!(
    numeric_log |base, number| number.log(base),
    numeric_power Numeric::pow,
    numeric_gcd Numeric::gcd,
    numeric_lcm Numeric::lcm,
    numeric_div Numeric::div_trunc
);

fn numeric_round_to(arguments: &[Value], _: &EvalContext<'_>) -> Result<Value, SqlError> {
    take!(arguments: Numeric(number), Int4(digits));
    number.round(*digits).map(Value::Numeric)
}

fn numeric_trunc_to(arguments: &[Value], _: &EvalContext<'_>) -> Result<Value, SqlError> {
    take!(arguments: Numeric(number), Int4(digits));
    number.trunc(*digits).map(Value::Numeric)
}

fn numeric_scale(arguments: &[Value], _: &EvalContext<'_>) -> Result<Value, SqlError> {
    take!(arguments: Numeric(number));
    Ok(number.as_special().is_none().then(|| number.scale() as i32).into())
}

fn numeric_min_scale(arguments: &[Value], _: &EvalContext<'_>) -> Result<Value, SqlError> {
    take!(arguments: Numeric(number));
    Ok(number.as_special().is_none().then(|| number.min_scale() as i32).into())
}

fn gcd(one: i128, two: i128) -> i128 {
    if two == 0 { one.abs() } else { gcd(two, one % two) }
}

macro_rules! divisors {
    ($($gcd:ident $lcm:ident $variant:ident $number:ty),+) => {$(
        fn $gcd(arguments: &[Value], _: &EvalContext<'_>) -> Result<Value, SqlError> {
            take!(arguments: $variant(one), $variant(two));
            <$number>::try_from(gcd((*one).into(), (*two).into()))
                .map(Value::$variant)
                .map_err(|_| cast_out_of_range(Kind::$variant))
        }

        fn $lcm(arguments: &[Value], _: &EvalContext<'_>) -> Result<Value, SqlError> {
            take!(arguments: $variant(one), $variant(two));
            let (one, two) = (i128::from(*one), i128::from(*two));
            let multiple = if one == 0 || two == 0 { 0 } else { (one / gcd(one, two) * two).abs() };
            <$number>::try_from(multiple).map(Value::$variant).map_err(|_| cast_out_of_range(Kind::$variant))
        }
    )+};
}

divisors!(int4_gcd int4_lcm Int4 i32, int8_gcd int8_lcm Int8 i64);

fn factorial(arguments: &[Value], _: &EvalContext<'_>) -> Result<Value, SqlError> {
    take!(arguments: Int8(number));
    if *number < 0 {
        return Err(SqlError::new(SqlState::NUMERIC_VALUE_OUT_OF_RANGE, "factorial of a negative number is undefined"));
    }
    // Those of larger numbers have too many digits.
    if *number > 32_177 {
        return Err(SqlError::new(SqlState::NUMERIC_VALUE_OUT_OF_RANGE, "value overflows numeric format"));
    }
    let product = (2..=*number).try_fold(Numeric::ONE, |product, factor| product.mul(&factor.into()));
    product.map(Value::Numeric)
}

/// The next state of a generator of random numbers (SplitMix64), which it returns mixed.
fn advance(state: &Cell<u64>) -> u64 {
    let next = state.get().wrapping_add(0x9e37_79b9_7f4a_7c15);
    state.set(next);
    let mixed = (next ^ next >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ mixed >> 31
}

fn random(_: &[Value], context: &EvalContext<'_>) -> Result<Value, SqlError> {
    if context.random.get() == 0 {
        let mut seed = [0; 8];
        getrandom::fill(&mut seed).map_err(|error| SqlError::internal(format!("no randomness: {error}")))?;
        context.random.set(u64::from_ne_bytes(seed) | 1);
    }
    // As many bits as a number below one has.
    Ok(Value::Float8((advance(&context.random) >> 11) as f64 / (1u64 << 53) as f64))
}

fn set_seed(arguments: &[Value], context: &EvalContext<'_>) -> Result<Value, SqlError> {
    take!(arguments: Float8(seed));
    if !(-1.0..=1.0).contains(seed) {
        return Err(SqlError::new(
            SqlState::INVALID_PARAMETER_VALUE,
            format!("setseed parameter {seed} is out of allowed range [-1,1]"),
        ));
    }
    context.random.set(seed.to_bits() | 1);
    Ok(Value::text(""))
}

fn bucket_error(message: &'static str) -> SqlError {
    SqlError::new(SqlState::INVALID_ARGUMENT_FOR_WIDTH_BUCKET_FUNCTION, message)
}

fn float8_width_bucket(arguments: &[Value], _: &EvalContext<'_>) -> Result<Value, SqlError> {
    take!(arguments: Float8(number), Float8(low), Float8(high), Int4(count));
    if *count <= 0 {
        return Err(bucket_error("count must be greater than zero"));
    }
    if number.is_nan() || low.is_nan() || high.is_nan() {
        return Err(bucket_error("operand, lower bound, and upper bound cannot be NaN"));
    }
    if low.is_infinite() || high.is_infinite() {
        return Err(bucket_error("lower and upper bounds must be finite"));
    }
    if low == high {
        return Err(bucket_error("lower bound cannot equal upper bound"));
    }
    let (below, above) = if low < high { (number < low, number >= high) } else { (number > low, number <= high) };
    let bucket = match (below, above) {
        (true, _) => 0,
        (_, true) => i64::from(*count) + 1,
        _ => ((number / 2.0 - low / 2.0) / (high / 2.0 - low / 2.0) * f64::from(*count)) as i64 + 1,
    };
    i32::try_from(bucket).map(Value::Int4).map_err(|_| cast_out_of_range(Kind::Int4))
}

fn numeric_width_bucket(arguments: &[Value], _: &EvalContext<'_>) -> Result<Value, SqlError> {
    take!(arguments: Numeric(number), Numeric(low), Numeric(high), Int4(count));
    if *count <= 0 {
        return Err(bucket_error("count must be greater than zero"));
    }
    if [number, low, high].iter().any(|number| number.as_special() == Some(Special::NaN)) {
        return Err(bucket_error("operand, lower bound, and upper bound cannot be NaN"));
    }
    if low.as_special().is_some() || high.as_special().is_some() {
        return Err(bucket_error("lower and upper bounds must be finite"));
    }
    if low == high {
        return Err(bucket_error("lower bound cannot equal upper bound"));
    }
    let (below, above) = if low < high { (number < low, number >= high) } else { (number > low, number <= high) };
    let bucket = match (below, above) {
        (true, _) => 0,
        (_, true) => i64::from(*count) + 1,
        _ => {
            let part = number.sub(low)?.mul(&Numeric::from(*count))?;
            part.div_trunc(&high.sub(low)?)?.to_i64().unwrap_or(i64::MAX - 1) + 1
        }
    };
    i32::try_from(bucket).map(Value::Int4).map_err(|_| cast_out_of_range(Kind::Int4))
}
