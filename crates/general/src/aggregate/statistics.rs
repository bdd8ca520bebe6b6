//! Regression and its like: aggregates of pairs of numbers.

use freshet_sql::{SqlError, Value};

use super::fast::{add_floats, overflow};

/// What is computed of pairs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Regression {
    Corr,
    CovarPop,
    CovarSamp,
    Count,
    AvgX,
    AvgY,
    Sxx,
    Syy,
    Sxy,
    Slope,
    Intercept,
    R2,
}

impl Regression {
    /// The aggregate of a name.
    pub fn named(name: &str) -> Option<Self> {
        Some(match name {
            "corr" => Self::Corr,
            "covar_pop" => Self::CovarPop,
            "covar_samp" => Self::CovarSamp,
            "regr_count" => Self::Count,
            "regr_avgx" => Self::AvgX,
            "regr_avgy" => Self::AvgY,
            "regr_sxx" => Self::Sxx,
            "regr_syy" => Self::Syy,
            "regr_sxy" => Self::Sxy,
            "regr_slope" => Self::Slope,
            "regr_intercept" => Self::Intercept,
            "regr_r2" => Self::R2,
            _ => return None,
        })
    }

    /// Whether it is `regr_count`, whose result is a whole number.
    pub fn is_count(self) -> bool {
        self == Self::Count
    }
}

/// A sum of squares that something was added to: infinite, it is no number, unless the numbers are
/// finite that it is of.
fn square_added(square: &mut f64, finite: bool) -> Result<(), SqlError> {
    if square.is_infinite() {
        if finite {
            return Err(overflow());
        }
        *square = f64::NAN;
    }
    Ok(())
}

/// Sums of pairs, updated by the method of Youngs and Cramer.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Pairs {
    count: f64,
    sum_x: f64,
    sum_y: f64,
    xx: f64,
    yy: f64,
    xy: f64,
}

impl Pairs {
    /// Adds a pair.
    ///
    /// # Errors
    /// 22003 when a sum is too large.
    pub fn add(&mut self, y: f64, x: f64) -> Result<(), SqlError> {
        let before = self.count;
        self.count += 1.0;
        self.sum_x = add_floats(self.sum_x, x)?;
        self.sum_y = add_floats(self.sum_y, y)?;
        if before > 0.0 {
            let dx = x * self.count - self.sum_x;
            let dy = y * self.count - self.sum_y;
            let scale = 1.0 / (self.count * before);
            self.xx += dx * dx * scale;
            self.yy += dy * dy * scale;
            self.xy += dx * dy * scale;
            let finite = (self.sum_x.is_finite(), self.sum_y.is_finite());
            square_added(&mut self.xx, finite.0)?;
            square_added(&mut self.yy, finite.1)?;
            square_added(&mut self.xy, finite.0 && finite.1)?;
        } else {
            for (number, square) in [(x, &mut self.xx), (y, &mut self.yy)] {
                if !number.is_finite() {
                    (*square, self.xy) = (f64::NAN, f64::NAN);
                }
            }
        }
        Ok(())
    }

    /// What is known of them.
    pub fn result(&self, what: Regression) -> Value {
        let Self { count, sum_x, sum_y, xx, yy, xy } = *self;
        if what == Regression::Count {
            return Value::Int8(count as i64);
        }
        let least = if what == Regression::CovarSamp { 2.0 } else { 1.0 };
        if count < least {
            return Value::Null;
        }
        let some = |number: f64| Value::Float8(number);
        match what {
            Regression::CovarPop => some(xy / count),
            Regression::CovarSamp => some(xy / (count - 1.0)),
            Regression::AvgX => some(sum_x / count),
            Regression::AvgY => some(sum_y / count),
            Regression::Sxx => some(xx),
            Regression::Syy => some(yy),
            Regression::Sxy => some(xy),
            Regression::Corr if xx == 0.0 || yy == 0.0 => Value::Null,
            Regression::Corr => some(xy / (xx * yy).sqrt()),
            Regression::Slope | Regression::Intercept | Regression::R2 if xx == 0.0 => Value::Null,
            Regression::Slope => some(xy / xx),
            Regression::Intercept => some((sum_y - sum_x * xy / xx) / count),
            // A horizontal line fits perfectly.
            Regression::R2 if yy == 0.0 => some(1.0),
            Regression::R2 => some(xy * xy / (xx * yy)),
            Regression::Count => Value::Null,
        }
    }
}

/// Sums of numbers, updated by the method of Youngs and Cramer.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Floats {
    count: f64,
    sum: f64,
    squares: f64,
}

impl Floats {
    /// Adds a number.
    ///
    /// # Errors
    /// 22003 when a sum is too large.
    pub fn add(&mut self, number: f64) -> Result<(), SqlError> {
        let before = self.count;
        self.count += 1.0;
        self.sum = add_floats(self.sum, number)?;
        if before > 0.0 {
            let difference = number * self.count - self.sum;
            self.squares += difference * difference / (self.count * before);
            square_added(&mut self.squares, self.sum.is_finite())?;
        } else if !number.is_finite() {
            self.squares = f64::NAN;
        }
        Ok(())
    }

    /// The average of the values; null of none.
    pub fn average(&self) -> Value {
        if self.count > 0.0 { Value::Float8(self.sum / self.count) } else { Value::Null }
    }

    /// Their variance, or its root.
    pub fn variance(&self, population: bool, root: bool) -> Value {
        let by = if population { self.count } else { self.count - 1.0 };
        if by < 1.0 {
            return Value::Null;
        }
        let variance = self.squares / by;
        Value::Float8(if root { variance.sqrt() } else { variance })
    }
}
