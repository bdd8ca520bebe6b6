//! Numbers of about 106 bits: sums of two of 53 (Dekker; Hida, Li and Bailey, "Library for
//! double-double and quad-double arithmetic").
//!
//! Only additions, multiplications, divisions and roots, which IEEE 754 determines, and which Rust
//! neither reorders nor fuses.

use std::ops::{Add, Div, Mul, Neg, Sub};

/// A number as a sum whose second part is at most half of the first one's last digit.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Double {
    pub hi: f64,
    pub lo: f64,
}

/// A sum, exactly, of two numbers. The first has the larger magnitude.
const fn ordered_sum(a: f64, b: f64) -> Double {
    let hi = a + b;
    Double { hi, lo: b - (hi - a) }
}

/// The halves of a number: 26 bits each.
const fn halves(number: f64) -> (f64, f64) {
    let scaled = 134_217_729.0 * number;
    let high = scaled - (scaled - number);
    (high, number - high)
}

impl Double {
    pub const ONE: Self = Self { hi: 1.0, lo: 0.0 };

    /// A sum, exactly.
    pub fn sum(a: f64, b: f64) -> Self {
        let hi = a + b;
        let virtual_b = hi - a;
        Self { hi, lo: (a - (hi - virtual_b)) + (b - virtual_b) }
    }

    /// A product, exactly, unless it is very large or very small.
    pub const fn product(a: f64, b: f64) -> Self {
        let hi = a * b;
        let ((a_high, a_low), (b_high, b_low)) = (halves(a), halves(b));
        let lo = ((a_high * b_high - hi) + a_high * b_low + a_low * b_high) + a_low * b_low;
        Self { hi, lo }
    }

    /// The inverse of a whole number of a few digits.
    pub const fn inverse(number: f64) -> Self {
        let first = 1.0 / number;
        let back = Self::product(first, number);
        ordered_sum(first, ((1.0 - back.hi) - back.lo) / number)
    }

    /// Times a power of two, exactly, if that is neither too large nor too small.
    pub fn times_power(self, power: f64) -> Self {
        Self { hi: self.hi * power, lo: self.lo * power }
    }

    /// The root of a number that is not negative.
    pub fn root(self) -> Self {
        let root = self.hi.sqrt();
        if root == 0.0 {
            return Self::from(0.0);
        }
        let rest = self - Self::product(root, root);
        ordered_sum(root, rest.hi / (2.0 * root))
    }
}

impl From<f64> for Double {
    fn from(hi: f64) -> Self {
        Self { hi, lo: 0.0 }
    }
}

impl Neg for Double {
    type Output = Self;

    fn neg(self) -> Self {
        Self { hi: -self.hi, lo: -self.lo }
    }
}

impl<N: Into<Self>> Add<N> for Double {
    type Output = Self;

    fn add(self, other: N) -> Self {
        let other = other.into();
        let (high, low) = (Self::sum(self.hi, other.hi), Self::sum(self.lo, other.lo));
        let high = ordered_sum(high.hi, high.lo + low.hi);
        ordered_sum(high.hi, high.lo + low.lo)
    }
}

impl<N: Into<Self>> Sub<N> for Double {
    type Output = Self;

    fn sub(self, other: N) -> Self {
        self + -other.into()
    }
}

impl<N: Into<Self>> Mul<N> for Double {
    type Output = Self;

    fn mul(self, other: N) -> Self {
        let other = other.into();
        let Self { hi, lo } = Self::product(self.hi, other.hi);
        ordered_sum(hi, lo + (self.hi * other.lo + self.lo * other.hi))
    }
}

impl<N: Into<Self>> Div<N> for Double {
    type Output = Self;

    fn div(self, by: N) -> Self {
        let by = by.into();
        let first = self.hi / by.hi;
        let rest = self - by * first;
        let second = rest.hi / by.hi;
        let rest = rest - by * second;
        ordered_sum(first, second) + rest.hi / by.hi
    }
}
