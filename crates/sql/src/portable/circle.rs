//! Sine and cosine, of angles of any size.

use std::sync::LazyLock;

use num_bigint::{BigInt, Sign};

use super::{double::Double, parts, power_of_two};

/// A quarter of a turn: three times 33 bits, and the rest.
const QUARTER: [f64; 4] = [1.5707963267341256, 6.077100506303966e-11, 2.0222662487111665e-21, 8.4784276603689e-32];
/// At the place of a number the inverse of its product with the next one.
const INVERSES: [Double; 30] = {
    let mut inverses = [Double::ONE; 30];
    let mut number = 1;
    while number < inverses.len() {
        inverses[number] = Double::inverse((number * (number + 1)) as f64);
        number += 1;
    }
    inverses
};
/// Larger angles have more quarters than fit into 20 bits.
const LARGE: f64 = 1_600_000.0;
/// How many bits of a quarter are known for larger angles. The largest have 1024 of their own, and
/// what is left of an angle can be as little as 2^-60.
const BITS: u32 = 1400;

/// Sine and cosine of a finite angle.
pub(super) fn sine_cosine(angle: f64) -> (Double, Double) {
    let (rest, quarters) = if angle.abs() < LARGE { reduced(angle) } else { large(angle) };
    let square = rest * rest;
    // From -45 to 45 degrees: the terms are less than 2^-110 behind these.
    let series = |from: usize| {
        let inverses = INVERSES[from..from + 28].iter().step_by(2).rev();
        inverses.fold(Double::ONE, |sum, inverse| -(square * sum * *inverse) + 1.0)
    };
    let (sine, cosine) = (rest * series(2), series(1));
    match quarters & 3 {
        0 => (sine, cosine),
        1 => (cosine, -sine),
        2 => (-sine, -cosine),
        _ => (-cosine, sine),
    }
}

/// What is left of an angle behind whole quarters of a turn, and how many these are.
fn reduced(angle: f64) -> (Double, i64) {
    let quarters = (angle * std::f64::consts::FRAC_2_PI).round_ties_even();
    let [first, second, third, rest] = QUARTER;
    let left = Double::from(angle) - quarters * first - quarters * second - quarters * third;
    (left - Double::product(quarters, rest), quarters as i64)
}

/// The angle whose tangent is the inverse of a number, in units of 2^-[`BITS`] and 64 bits more.
fn arc_tangent_of_inverse(number: u32) -> BigInt {
    let mut term = (BigInt::from(1) << (BITS + 64)) / number;
    let (mut sum, mut divisor) = (term.clone(), 1);
    while term.sign() != Sign::NoSign {
        term /= -BigInt::from(number * number);
        divisor += 2;
        sum += &term / divisor;
    }
    sum
}

/// A quarter of a turn, in units of 2^-[`BITS`] (Machin's formula).
static LONG_QUARTER: LazyLock<BigInt> =
    LazyLock::new(|| (8 * arc_tangent_of_inverse(5) - 2 * arc_tangent_of_inverse(239)) >> 64);

/// The same as [`reduced`], of a large angle.
fn large(angle: f64) -> (Double, i64) {
    let (first, exponent) = parts(angle.abs());
    let digits = (first * power_of_two(52)) as u64;
    let angle_in_units = BigInt::from(digits) << (i64::from(BITS) + i64::from(exponent) - 52);
    let quarter = &*LONG_QUARTER;
    let quarters: BigInt = (&angle_in_units * 2 + quarter) / (quarter * 2);
    let left = angle_in_units - &quarters * quarter;
    let number = quarters.iter_u64_digits().next().unwrap_or(0) & 3;
    let (left, number) = (double(&left), number as i64);
    if angle < 0.0 { (-left, -number) } else { (left, number) }
}

/// A number in units of 2^-[`BITS`].
fn double(number: &BigInt) -> Double {
    let shift = number.bits().saturating_sub(106);
    let digits = (number.magnitude() >> shift).iter_u64_digits().collect::<Vec<_>>();
    let [low, high] = [0, 1].map(|at| digits.get(at).copied().unwrap_or(0));
    // 42 bits, 32 and 32: a number has each.
    let parts = [high as f64 * power_of_two(64), (low >> 32) as f64 * power_of_two(32), (low & 0xffff_ffff) as f64];
    let sum = parts.into_iter().fold(Double::from(0.0), |sum, part| sum + part);
    // What is left is at least 2^-60, so this is in reach.
    let scaled = sum.times_power(power_of_two(shift as i32 - BITS as i32 + 500)).times_power(power_of_two(-500));
    if number.sign() == Sign::Minus { -scaled } else { scaled }
}
