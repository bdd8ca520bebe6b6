//! Functions of floating-point numbers, the same to the last bit on every machine.
//!
//! The standard library's are the system's, which chooses code by processor. A standby that
//! executes statements again (`query/src/inputs`) must get what its primary has got, so the crates
//! `sql`, `query` and `general` use these; tidy's rule `system-math` keeps it that way.
//!
//! Each is computed with about 100 bits ([`double`]) and rounded once, so that the result is the
//! correctly rounded one but for about one argument in 2^40. PostgreSQL's are its system's, nearly
//! always the same. Of the crate libm come the cube root, which it rounds correctly, first
//! approximations, and what infinities and the like give.

mod circle;
mod double;
#[cfg(test)]
mod tests;

use self::double::Double;

/// The natural logarithm of two: 40 bits, and the rest.
const LN_2: (f64, Double) = (0.6931471805592082, Double { hi: 7.371002565167799e-13, lo: 1.94704509238075e-31 });
/// The decimal logarithm of e.
const LOG10_E: Double = Double { hi: std::f64::consts::LOG10_E, lo: 1.098319650216765e-17 };
const PI: Double = Double { hi: std::f64::consts::PI, lo: 1.2246467991473532e-16 };
const HALF_PI: Double = Double { hi: std::f64::consts::FRAC_PI_2, lo: 6.123233995736766e-17 };
/// The inverses of numbers up to 43, at their places.
const INVERSES: [Double; 44] = {
    let mut inverses = [Double::ONE; 44];
    let mut number = 1;
    while number < inverses.len() {
        inverses[number] = Double::inverse(number as f64);
        number += 1;
    }
    inverses
};
/// The square of what is less makes no difference to 1.
const TINY: f64 = 7.450580596923828e-9;
/// 2^60: its inverse makes no difference but to what is small.
const HUGE: f64 = 1_152_921_504_606_846_976.0;

/// A power of two from 2^-1022 to 2^1023.
fn power_of_two(exponent: i32) -> f64 {
    f64::from_bits(((exponent.clamp(-1022, 1023) + 1023) as u64) << 52)
}

/// A positive number divided by a power of two so that it is from 1 to 2, and the exponent.
fn parts(number: f64) -> (f64, i32) {
    const SUBNORMAL: f64 = 18_014_398_509_481_984.0;
    let (number, more) = if number < f64::MIN_POSITIVE { (number * SUBNORMAL, 54) } else { (number, 0) };
    let (bits, one) = (number.to_bits(), 1.0f64.to_bits());
    let exponent = (bits >> 52) as i32 - 1023;
    (f64::from_bits(bits & ((1 << 52) - 1) | one), exponent - more)
}

/// A positive number times a power of two, rounded once.
fn rounded(number: Double, exponent: i32) -> f64 {
    let (_, own) = parts(number.hi);
    let exponent = exponent.clamp(-5000, 5000);
    if own + exponent >= -1022 {
        let half = exponent / 2;
        return number.hi * power_of_two(half) * power_of_two(exponent - half);
    }
    if own + exponent < -1080 {
        return 0.0;
    }
    // In units of the smallest number.
    let units = exponent + 1074;
    let half = units / 2;
    let scale = |part: f64| part * power_of_two(half) * power_of_two(units - half);
    let (high, low) = (scale(number.hi), scale(number.lo));
    let whole = high.round_ties_even();
    let rest = (high - whole) + low;
    let whole = whole
        + if rest > 0.5 {
            1.0
        } else if rest < -0.5 {
            -1.0
        } else {
            0.0
        };
    f64::from_bits(whole as u64)
}

/// What is the exponential as 1 + the first times two to the second; of up to some 10,000.
fn exponential(power: Double) -> (Double, i32) {
    /// How often the argument is halved, and the result squared.
    const HALVINGS: i32 = 8;
    let whole = (power.hi * std::f64::consts::LOG2_E).round_ties_even();
    let rest = power - whole * LN_2.0 - LN_2.1 * whole;
    let rest = rest.times_power(power_of_two(-HALVINGS));
    let series = INVERSES[2..12].iter().rev().fold(Double::ONE, |sum, inverse| rest * sum * *inverse + 1.0);
    let above = (0..HALVINGS).fold(rest * series, |above, _| above * above + above * 2.0);
    (above, whole as i32)
}

/// The natural logarithm of a positive number.
fn logarithm(number: Double) -> Double {
    let (mut first, mut exponent) = parts(number.hi);
    if first > std::f64::consts::SQRT_2 {
        (first, exponent) = (first / 2.0, exponent + 1);
    }
    let half = exponent / 2;
    let low = number.lo * power_of_two(-half) * power_of_two(half - exponent);
    // The area tangent of this is half of the logarithm.
    let number = Double { hi: first, lo: low };
    let tangent = (number - 1.0) / (number + 1.0);
    let square = tangent * tangent;
    let odd = INVERSES[1..].iter().step_by(2).rev();
    let series = odd.fold(Double::from(0.0), |sum, inverse| sum * square + *inverse);
    let exponent = f64::from(exponent);
    LN_2.1 * exponent + exponent * LN_2.0 + tangent * series * 2.0
}

/// The angle of a point, neither of whose coordinates is far larger than the other.
fn angle(y: Double, x: Double) -> Double {
    let first = libm::atan2(y.hi, x.hi);
    let (sine, cosine) = circle::sine_cosine(first);
    // What is missing is so small that it is its own tangent.
    (y * cosine - x * sine) / (x * cosine + y * sine) + first
}

/// e to a power.
pub fn exp(power: f64) -> f64 {
    if power.is_nan() {
        return power;
    }
    let (above, exponent) = exponential(power.clamp(-800.0, 800.0).into());
    rounded(above + 1.0, exponent)
}

/// The natural logarithm.
pub fn ln(number: f64) -> f64 {
    if number > 0.0 && number.is_finite() { logarithm(number.into()).hi } else { libm::log(number) }
}

/// The decimal logarithm.
pub fn log10(number: f64) -> f64 {
    if number > 0.0 && number.is_finite() { (logarithm(number.into()) * LOG10_E).hi } else { libm::log10(number) }
}

/// The natural logarithm of one and a number.
pub fn ln_1p(number: f64) -> f64 {
    match number {
        _ if number.abs() < TINY * TINY => number,
        _ if number > -1.0 && number.is_finite() => logarithm(Double::sum(1.0, number)).hi,
        _ => libm::log1p(number),
    }
}

/// A number to a power.
pub fn pow(base: f64, power: f64) -> f64 {
    let about = libm::pow(base, power);
    if !about.is_finite() || about == 0.0 || !base.is_finite() || !power.is_finite() || power == 0.0 {
        return about;
    }
    let (first, exponent) = parts(base.abs());
    let size = if power.fract() == 0.0 && power.abs() <= 32.0 {
        // Exact where the result is.
        let times = power.abs() as i32;
        let product = (0..times).fold(Double::ONE, |product, _| product * first);
        let (product, exponent) = match power > 0.0 {
            true => (product, exponent * times),
            false => (Double::ONE / product, -exponent * times),
        };
        rounded(product, exponent)
    } else {
        let (above, exponent) = exponential(logarithm(base.abs().into()) * power);
        rounded(above + 1.0, exponent)
    };
    size.copysign(about)
}

/// The cube root.
pub fn cbrt(number: f64) -> f64 {
    libm::cbrt(number)
}

/// The sine of an angle.
pub fn sin(angle: f64) -> f64 {
    if angle.abs() < TINY || !angle.is_finite() { libm::sin(angle) } else { circle::sine_cosine(angle).0.hi }
}

/// The cosine of an angle.
pub fn cos(angle: f64) -> f64 {
    if angle.is_finite() { circle::sine_cosine(angle).1.hi } else { libm::cos(angle) }
}

/// The tangent of an angle.
pub fn tan(angle: f64) -> f64 {
    if angle.abs() < TINY || !angle.is_finite() {
        return libm::tan(angle);
    }
    let (sine, cosine) = circle::sine_cosine(angle);
    (sine / cosine).hi
}

/// The other coordinate of a point of the circle.
fn opposite(number: f64) -> Double {
    (Double::sum(1.0, -number) * Double::sum(1.0, number)).root()
}

/// The angle with this sine.
pub fn asin(sine: f64) -> f64 {
    match sine.abs() {
        size if size < TINY => sine,
        size if size < 1.0 => angle(sine.into(), opposite(sine)).hi,
        1.0 => HALF_PI.hi.copysign(sine),
        _ => f64::NAN,
    }
}

/// The angle with this cosine.
pub fn acos(cosine: f64) -> f64 {
    match cosine {
        1.0 => 0.0,
        _ if cosine.abs() <= 1.0 => angle(opposite(cosine), cosine.into()).hi,
        _ => f64::NAN,
    }
}

/// The angle with this tangent.
pub fn atan(tangent: f64) -> f64 {
    match tangent.abs() {
        size if size < TINY => tangent,
        size if size <= HUGE => angle(tangent.into(), Double::ONE).hi,
        _ if tangent.is_nan() => tangent,
        size => (HALF_PI - 1.0 / size).hi.copysign(tangent),
    }
}

/// The angle of a point.
pub fn atan2(y: f64, x: f64) -> f64 {
    if !y.is_finite() || !x.is_finite() || y == 0.0 || x == 0.0 {
        return libm::atan2(y, x);
    }
    let ((y_first, y_exponent), (x_first, x_exponent)) = (parts(y.abs()), parts(x.abs()));
    let quotient = y_exponent - x_exponent;
    let size = match (quotient, x > 0.0) {
        (61.., _) => (HALF_PI - x / y.abs()).hi,
        (..=-61, true) => rounded(Double::from(y_first) / x_first, quotient),
        (..=-61, false) => (PI + y.abs() / x).hi,
        _ => angle(Double::from(y_first * power_of_two(quotient)), x_first.copysign(x).into()).hi,
    };
    size.copysign(y)
}

/// From here on, e to the negative power makes no difference to e to the power.
const FAR: f64 = 40.0;

/// e to a power of up to [`FAR`], less one.
fn growth(power: f64) -> Double {
    let (above, exponent) = exponential(power.into());
    match exponent {
        0 => above,
        _ => (above + 1.0).times_power(power_of_two(exponent)) - 1.0,
    }
}

/// Half of e to a power above [`FAR`].
fn half_exp(power: f64) -> f64 {
    let (above, exponent) = exponential(power.min(800.0).into());
    rounded(above + 1.0, exponent - 1)
}

/// The hyperbolic sine.
pub fn sinh(area: f64) -> f64 {
    let size = match area.abs() {
        size if size < TINY || size.is_nan() => return area,
        size if size > FAR => half_exp(size),
        size => {
            let growth = growth(size);
            (growth + growth / (growth + 1.0)).hi / 2.0
        }
    };
    size.copysign(area)
}

/// The hyperbolic cosine.
pub fn cosh(area: f64) -> f64 {
    match area.abs() {
        size if size > FAR => half_exp(size),
        size if size.is_nan() => size,
        size => {
            let power = growth(size) + 1.0;
            (power + Double::ONE / power).hi / 2.0
        }
    }
}

/// The hyperbolic tangent.
pub fn tanh(area: f64) -> f64 {
    let size = match area.abs() {
        size if size < TINY || size.is_nan() => return area,
        size if size > FAR / 2.0 => 1.0,
        size => {
            let growth = growth(2.0 * size);
            (growth / (growth + 2.0)).hi
        }
    };
    size.copysign(area)
}
