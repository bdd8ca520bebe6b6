//! Functions of angles, in radians and in degrees, and their hyperbolic relatives.
//!
//! Those in degrees are exact where the result is: `sind(30)` is 0.5.

use super::{Function, math::float, take};
use crate::{
    SqlError, SqlState,
    portable::{self, acos, asin, atan, atan2, cos, ln, ln_1p, sin},
    types::{EvalContext, Kind, Value},
};

const F: Kind = Kind::Float8;
const RADIANS_PER_DEGREE: f64 = std::f64::consts::PI / 180.0;
/// From here on, one more or less makes no difference to a square.
const LARGE: f64 = 268_435_456.0;

pub(super) const FUNCTIONS: &[Function] = &[
    Function::new("pi", &[], F, |_, _| Ok(Value::Float8(std::f64::consts::PI))),
    Function::new("degrees", &[F], F, |arguments, _| float(arguments, |radians| radians / RADIANS_PER_DEGREE)),
    Function::new("radians", &[F], F, |arguments, _| float(arguments, |degrees| degrees * RADIANS_PER_DEGREE)),
    Function::new("sin", &[F], F, |arguments, _| finite(arguments, portable::sin)),
    Function::new("cos", &[F], F, |arguments, _| finite(arguments, portable::cos)),
    Function::new("tan", &[F], F, |arguments, _| finite(arguments, portable::tan)),
    Function::new("cot", &[F], F, |arguments, _| finite(arguments, |x| 1.0 / portable::tan(x))),
    Function::new("asin", &[F], F, |arguments, _| within_one(arguments, portable::asin)),
    Function::new("acos", &[F], F, |arguments, _| within_one(arguments, portable::acos)),
    Function::new("atan", &[F], F, |arguments, _| float(arguments, portable::atan)),
    Function::new("atan2", &[F, F], F, float8_atan2),
    Function::new("sinh", &[F], F, |arguments, _| any(arguments, portable::sinh)),
    Function::new("cosh", &[F], F, |arguments, _| any(arguments, portable::cosh)),
    Function::new("tanh", &[F], F, |arguments, _| any(arguments, portable::tanh)),
    Function::new("asinh", &[F], F, |arguments, _| any(arguments, area_sine)),
    Function::new("acosh", &[F], F, |arguments, _| within(arguments, |number| number >= 1.0, area_cosine)),
    Function::new("atanh", &[F], F, |arguments, _| within(arguments, |number| number.abs() <= 1.0, area_tangent)),
    Function::new("sind", &[F], F, |arguments, _| finite(arguments, sine_of_degrees)),
    Function::new("cosd", &[F], F, |arguments, _| finite(arguments, cosine_of_degrees)),
    Function::new("tand", &[F], F, |arguments, _| finite(arguments, tangent_of_degrees)),
    Function::new("cotd", &[F], F, |arguments, _| finite(arguments, cotangent_of_degrees)),
    Function::new("asind", &[F], F, |arguments, _| within_one(arguments, arc_sine_in_degrees)),
    Function::new("acosd", &[F], F, |arguments, _| within_one(arguments, arc_cosine_in_degrees)),
    Function::new("atand", &[F], F, |arguments, _| any(arguments, |number| atan(number) / atan(1.0) * 45.0)),
    Function::new("atan2d", &[F, F], F, float8_atan2d),
];

fn out_of_domain(message: &'static str) -> SqlError {
    SqlError::new(SqlState::NUMERIC_VALUE_OUT_OF_RANGE, message)
}

fn finite(arguments: &[Value], function: fn(f64) -> f64) -> Result<Value, SqlError> {
    take!(arguments: Float8(number));
    if number.is_infinite() {
        return Err(out_of_domain("input is out of range"));
    }
    Ok(Value::Float8(function(*number)))
}

fn within_one(arguments: &[Value], function: fn(f64) -> f64) -> Result<Value, SqlError> {
    take!(arguments: Float8(number));
    if number.abs() > 1.0 {
        return Err(out_of_domain("input is out of range"));
    }
    Ok(Value::Float8(function(*number)))
}

/// Applies a function to a number for which it is defined, or to none.
fn within(arguments: &[Value], defined: fn(f64) -> bool, function: fn(f64) -> f64) -> Result<Value, SqlError> {
    take!(arguments: Float8(number));
    if !number.is_nan() && !defined(*number) {
        return Err(out_of_domain("input is out of range"));
    }
    Ok(Value::Float8(function(*number)))
}

/// Applies a function that is defined everywhere.
fn any(arguments: &[Value], function: fn(f64) -> f64) -> Result<Value, SqlError> {
    take!(arguments: Float8(number));
    Ok(Value::Float8(function(*number)))
}

fn float8_atan2(arguments: &[Value], _: &EvalContext<'_>) -> Result<Value, SqlError> {
    take!(arguments: Float8(y), Float8(x));
    Ok(Value::Float8(atan2(*y, *x)))
}

fn float8_atan2d(arguments: &[Value], _: &EvalContext<'_>) -> Result<Value, SqlError> {
    take!(arguments: Float8(y), Float8(x));
    Ok(Value::Float8(atan2(*y, *x) / atan(1.0) * 45.0))
}

/// The sine of up to 30 degrees, scaled so that it is exact at its end.
fn small_sine(degrees: f64) -> f64 {
    sin(degrees * RADIANS_PER_DEGREE) / sin(30.0 * RADIANS_PER_DEGREE) / 2.0
}

/// The cosine of up to 60 degrees, scaled so that it is exact at its end.
fn small_cosine(degrees: f64) -> f64 {
    let versine = |degrees: f64| 1.0 - cos(degrees * RADIANS_PER_DEGREE);
    1.0 - versine(degrees) / versine(60.0) / 2.0
}

/// The sine of up to 90 degrees.
fn first_sine(degrees: f64) -> f64 {
    if degrees <= 30.0 { small_sine(degrees) } else { small_cosine(90.0 - degrees) }
}

/// The cosine of up to 90 degrees.
fn first_cosine(degrees: f64) -> f64 {
    if degrees <= 60.0 { small_cosine(degrees) } else { small_sine(90.0 - degrees) }
}

/// An angle of up to 90 degrees with the same sine, cosine and tangent but for their signs, which
/// follow.
fn first_quadrant(degrees: f64) -> (f64, f64, f64) {
    let (mut angle, mut sine, mut cosine) = (degrees % 360.0, 1.0, 1.0);
    if angle < 0.0 {
        (angle, sine) = (-angle, -sine);
    }
    if angle > 180.0 {
        (angle, sine) = (360.0 - angle, -sine);
    }
    if angle > 90.0 {
        (angle, cosine) = (180.0 - angle, -cosine);
    }
    (angle, sine, cosine)
}

fn sine_of_degrees(degrees: f64) -> f64 {
    let (angle, sine, _) = first_quadrant(degrees);
    sine * first_sine(angle)
}

fn cosine_of_degrees(degrees: f64) -> f64 {
    let (angle, _, cosine) = first_quadrant(degrees);
    cosine * first_cosine(angle)
}

/// Zero without a sign.
fn unsigned_zero(number: f64) -> f64 {
    if number == 0.0 { 0.0 } else { number }
}

fn tangent_of_degrees(degrees: f64) -> f64 {
    let (angle, sine, cosine) = first_quadrant(degrees);
    let tangent = |angle: f64| first_sine(angle) / first_cosine(angle);
    unsigned_zero(sine * cosine * (tangent(angle) / tangent(45.0)))
}

fn cotangent_of_degrees(degrees: f64) -> f64 {
    let (angle, sine, cosine) = first_quadrant(degrees);
    let cotangent = |angle: f64| first_cosine(angle) / first_sine(angle);
    unsigned_zero(sine * cosine * (cotangent(angle) / cotangent(45.0)))
}

/// The arc sine of a number from 0 to 1, exact at 0.5.
fn first_arc_sine(number: f64) -> f64 {
    if number <= 0.5 { asin(number) / asin(0.5) * 30.0 } else { 90.0 - acos(number) / acos(0.5) * 60.0 }
}

fn arc_sine_in_degrees(number: f64) -> f64 {
    if number >= 0.0 { first_arc_sine(number) } else { -first_arc_sine(-number) }
}

fn arc_cosine_in_degrees(number: f64) -> f64 {
    if number < 0.0 {
        90.0 + first_arc_sine(-number)
    } else if number <= 0.5 {
        90.0 - asin(number) / asin(0.5) * 30.0
    } else {
        acos(number) / acos(0.5) * 60.0
    }
}

/// The inverse of the hyperbolic sine.
fn area_sine(number: f64) -> f64 {
    let (size, square) = (number.abs(), number * number);
    let area = if size < 1.0 / LARGE {
        return number;
    } else if size > LARGE {
        ln(size) + std::f64::consts::LN_2
    } else if size > 2.0 {
        ln(2.0 * size + 1.0 / ((square + 1.0).sqrt() + size))
    } else {
        ln_1p(size + square / (1.0 + (1.0 + square).sqrt()))
    };
    area.copysign(number)
}

/// The inverse of the hyperbolic cosine.
fn area_cosine(number: f64) -> f64 {
    if number > LARGE {
        ln(number) + std::f64::consts::LN_2
    } else if number > 2.0 {
        ln(2.0 * number - 1.0 / (number + (number * number - 1.0).sqrt()))
    } else {
        let above = number - 1.0;
        ln_1p(above + (2.0 * above + above * above).sqrt())
    }
}

/// The inverse of the hyperbolic tangent.
fn area_tangent(number: f64) -> f64 {
    let size = number.abs();
    let double = size + size;
    let area = if size < 1.0 / LARGE {
        return number;
    } else if size < 0.5 {
        0.5 * ln_1p(double + double * size / (1.0 - size))
    } else {
        0.5 * ln_1p(double / (1.0 - size))
    };
    area.copysign(number)
}
