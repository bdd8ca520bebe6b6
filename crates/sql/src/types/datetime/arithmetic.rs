//! Sums and differences of dates, timestamps and intervals.

use super::{
    DAY, Date, Interval, Time, TimeZone, Timestamp, UNIX_EPOCH,
    calendar::{self, Civil},
    interval, out_of_range,
};
use crate::{SqlError, SqlState};

fn date_out_of_range() -> SqlError {
    SqlError::new(SqlState::DATETIME_FIELD_OVERFLOW, "date out of range")
}

impl Date {
    /// The date of a year, a month and a day.
    ///
    /// # Errors
    /// 22008 when none exists.
    pub fn of_civil(year: i32, month: i32, day: i32) -> Result<Self, SqlError> {
        let error = || {
            SqlError::new(
                SqlState::DATETIME_FIELD_OVERFLOW,
                format!("date field value out of range: {year}-{month:02}-{day:02}"),
            )
        };
        // A negative year is one before our era; there is no year 0.
        let astronomical = if year < 0 { i64::from(year) + 1 } else { year.into() };
        let (month, day) = (i64::from(month), i64::from(day));
        if year == 0 || !(1..=12).contains(&month) || !(1..=calendar::days_in_month(astronomical, month)).contains(&day)
        {
            return Err(error());
        }
        Self::new(calendar::days(astronomical, month, day)).ok_or_else(|| {
            SqlError::new(SqlState::DATETIME_FIELD_OVERFLOW, format!("date out of range: {year}-{month:02}-{day:02}"))
        })
    }

    /// This many days later.
    ///
    /// # Errors
    /// 22008 when that is out of range.
    pub fn plus_days(self, days: i64) -> Result<Self, SqlError> {
        if !self.is_finite() {
            return Ok(self);
        }
        Self::new(i64::from(self.0) + days).ok_or_else(date_out_of_range)
    }

    /// How many days later it is than another date.
    ///
    /// # Errors
    /// 22008 when one of them is infinite.
    pub fn minus(self, other: Self) -> Result<i32, SqlError> {
        if !self.is_finite() || !other.is_finite() {
            return Err(SqlError::new(SqlState::DATETIME_FIELD_OVERFLOW, "cannot subtract infinite dates"));
        }
        // Both are closer to each other than 2^31.
        Ok((i64::from(self.0) - i64::from(other.0)) as i32)
    }
}

impl Time {
    /// An interval later, past midnight if need be. Days and months of the interval do not count.
    pub fn plus(self, interval: Interval) -> Self {
        Self((self.0 + interval.micros % DAY).rem_euclid(DAY))
    }

    /// How much later it is.
    pub fn minus(self, other: Self) -> Interval {
        Interval { months: 0, days: 0, micros: self.0 - other.0 }
    }
}

/// The same day of a month this many months later, or the last one of that month.
fn plus_months(day: i64, months: i32) -> i64 {
    let civil = Civil::of_days(day);
    let month = i64::from(civil.year) * 12 + i64::from(civil.month) - 1 + i64::from(months);
    let (year, month) = (month.div_euclid(12), month.rem_euclid(12) + 1);
    calendar::days(year, month, i64::from(civil.day).min(calendar::days_in_month(year, month)))
}

impl Timestamp {
    /// An interval later: first the months, then the days, then the rest.
    ///
    /// # Errors
    /// 22008 when that is out of range.
    pub fn plus(self, interval: Interval) -> Result<Self, SqlError> {
        if !self.is_finite() {
            return Ok(self);
        }
        let moved = self.plus_calendar(interval)?;
        Self::checked(i128::from(moved.0) + i128::from(interval.micros))
    }

    /// An interval later by the zone's clocks: days last as long as they do there.
    ///
    /// # Errors
    /// 22008 when that is out of range.
    pub fn plus_in(self, interval: Interval, zone: TimeZone) -> Result<Self, SqlError> {
        if !self.is_finite() {
            return Ok(self);
        }
        let moved = if interval.months == 0 && interval.days == 0 {
            self
        } else {
            self.to_local(zone)?.plus_calendar(interval)?.to_utc(zone)?
        };
        Self::checked(i128::from(moved.0) + i128::from(interval.micros))
    }

    fn plus_calendar(self, interval: Interval) -> Result<Self, SqlError> {
        let mut day = self.0.div_euclid(DAY);
        if interval.months != 0 {
            day = plus_months(day, interval.months);
        }
        let day = i128::from(day) + i128::from(interval.days);
        Self::checked(day * i128::from(DAY) + i128::from(self.0.rem_euclid(DAY)))
    }

    /// How much later it is than another timestamp, in days and less.
    ///
    /// # Errors
    /// 22008 when one of them is infinite, or they are too far apart.
    pub fn minus(self, other: Self) -> Result<Interval, SqlError> {
        if !self.is_finite() || !other.is_finite() {
            return Err(SqlError::new(SqlState::DATETIME_FIELD_OVERFLOW, "cannot subtract infinite timestamps"));
        }
        let micros = self.0.checked_sub(other.0).ok_or_else(interval::out_of_range)?;
        Ok(Interval { months: 0, days: (micros / DAY) as i32, micros: micros % DAY })
    }

    /// How much later it is than another timestamp, in years, months and so on by the calendar.
    ///
    /// # Errors
    /// 22008 when one of them is infinite.
    pub fn age(self, other: Self) -> Result<Interval, SqlError> {
        if !self.is_finite() || !other.is_finite() {
            return Err(out_of_range());
        }
        let negative = self < other;
        let (late, early) = if negative { (other, self) } else { (self, other) };
        let (late_date, early_date) = (late.date().civil(), early.date().civil());
        let mut micros = late.time().0 - early.time().0;
        let mut days = i64::from(late_date.day) - i64::from(early_date.day);
        let mut months = (i64::from(late_date.year) - i64::from(early_date.year)) * 12 + i64::from(late_date.month)
            - i64::from(early_date.month);
        if micros < 0 {
            micros += DAY;
            days -= 1;
        }
        while days < 0 {
            // The month that the earlier one is in lends its days.
            days += calendar::days_in_month(early_date.year.into(), early_date.month.into());
            months -= 1;
        }
        let interval = Interval { months: months as i32, days: days as i32, micros };
        if negative { interval.neg() } else { Ok(interval) }
    }

    /// This many seconds after 1970-01-01 00:00:00 UTC.
    ///
    /// # Errors
    /// 22008 when that is out of range or not a number.
    pub fn from_unix_seconds(seconds: f64) -> Result<Self, SqlError> {
        let error =
            || SqlError::new(SqlState::DATETIME_FIELD_OVERFLOW, format!("timestamp out of range: \"{seconds}\""));
        if seconds.is_nan() {
            return Err(SqlError::new(SqlState::DATETIME_FIELD_OVERFLOW, "timestamp cannot be NaN"));
        }
        if seconds.is_infinite() {
            return Ok(if seconds > 0.0 { Self::INFINITY } else { Self::MINUS_INFINITY });
        }
        if seconds.abs() > 1e13 {
            return Err(error());
        }
        let micros = ((seconds - (UNIX_EPOCH / super::SECOND) as f64) * 1e6).round_ties_even();
        Self::new(micros as i128).ok_or_else(error)
    }
}

#[expect(clippy::should_implement_trait, reason = "operators cannot fail, and SQL's arithmetic does")]
impl Interval {
    /// The sum.
    ///
    /// # Errors
    /// 22008 when a field overflows.
    pub fn add(self, other: Self) -> Result<Self, SqlError> {
        let sum = || {
            Some(Self {
                months: self.months.checked_add(other.months)?,
                days: self.days.checked_add(other.days)?,
                micros: self.micros.checked_add(other.micros)?,
            })
        };
        sum().ok_or_else(interval::out_of_range)
    }

    /// The difference.
    ///
    /// # Errors
    /// 22008 when a field overflows.
    pub fn sub(self, other: Self) -> Result<Self, SqlError> {
        let difference = || {
            Some(Self {
                months: self.months.checked_sub(other.months)?,
                days: self.days.checked_sub(other.days)?,
                micros: self.micros.checked_sub(other.micros)?,
            })
        };
        difference().ok_or_else(interval::out_of_range)
    }

    /// The same length backward.
    ///
    /// # Errors
    /// 22008 when a field overflows.
    pub fn neg(self) -> Result<Self, SqlError> {
        Self::ZERO.sub(self)
    }

    /// This many times as long. Fractions of months become days, fractions of days time.
    ///
    /// # Errors
    /// 22008 when a field overflows.
    pub fn mul(self, factor: f64) -> Result<Self, SqlError> {
        self.scaled(|number| number * factor)
    }

    /// A part of it. Fractions of months become days, fractions of days time.
    ///
    /// # Errors
    /// 22012 when the divisor is zero, 22008 when a field overflows.
    pub fn div(self, divisor: f64) -> Result<Self, SqlError> {
        if divisor == 0.0 {
            return Err(SqlError::new(SqlState::DIVISION_BY_ZERO, "division by zero"));
        }
        self.scaled(|number| number / divisor)
    }

    fn scaled(self, scale: impl Fn(f64) -> f64) -> Result<Self, SqlError> {
        const DAY_SECONDS: f64 = 86_400.0;
        // Seconds to the microsecond: what floating point adds is not meant.
        let settle = |seconds: f64| (seconds * 1e6).round_ties_even() / 1e6;
        let narrow = |number: f64| {
            let whole = number.trunc();
            if whole.is_nan() || whole < f64::from(i32::MIN) || whole > f64::from(i32::MAX) {
                return Err(interval::out_of_range());
            }
            Ok(whole as i32)
        };
        let (months, days) = (scale(self.months.into()), scale(self.days.into()));
        let (whole_months, mut whole_days) = (narrow(months)?, narrow(days)?);
        let month_rest = settle((months - months.trunc()) * 30.0);
        let mut seconds = settle((days - days.trunc() + month_rest - month_rest.trunc()) * DAY_SECONDS);
        if seconds.abs() >= DAY_SECONDS {
            let carried = (seconds / DAY_SECONDS) as i32;
            whole_days = whole_days.checked_add(carried).ok_or_else(interval::out_of_range)?;
            seconds -= f64::from(carried) * DAY_SECONDS;
        }
        let whole_days = whole_days.checked_add(month_rest as i32).ok_or_else(interval::out_of_range)?;
        let micros = (scale(self.micros as f64) + seconds * 1e6).round_ties_even();
        if micros.is_nan() || micros.abs() >= 9.223_372_036_854_775e18 {
            return Err(interval::out_of_range());
        }
        Ok(Self { months: whole_months, days: whole_days, micros: micros as i64 })
    }

    /// Time as far as possible as days of 24 hours.
    ///
    /// # Errors
    /// 22008 when there are too many.
    pub fn justify_hours(self) -> Result<Self, SqlError> {
        let mut days = i64::from(self.days) + self.micros / DAY;
        let mut micros = self.micros % DAY;
        if days > 0 && micros < 0 {
            micros += DAY;
            days -= 1;
        } else if days < 0 && micros > 0 {
            micros -= DAY;
            days += 1;
        }
        Ok(Self { days: i32::try_from(days).map_err(|_| interval::out_of_range())?, micros, ..self })
    }

    /// Days as far as possible as months of 30 days.
    ///
    /// # Errors
    /// 22008 when there are too many.
    pub fn justify_days(self) -> Result<Self, SqlError> {
        let mut months = i64::from(self.months) + i64::from(self.days / 30);
        let mut days = self.days % 30;
        if months > 0 && days < 0 {
            days += 30;
            months -= 1;
        } else if months < 0 && days > 0 {
            days -= 30;
            months += 1;
        }
        Ok(Self { months: i32::try_from(months).map_err(|_| interval::out_of_range())?, days, ..self })
    }

    /// Both, with the same sign for all fields.
    ///
    /// # Errors
    /// 22008 when a field overflows.
    pub fn justify(self) -> Result<Self, SqlError> {
        let mut days = i64::from(self.days) + self.micros / DAY;
        let mut micros = self.micros % DAY;
        let mut months = i64::from(self.months) + days / 30;
        days %= 30;
        if months > 0 && (days < 0 || days == 0 && micros < 0) {
            days += 30;
            months -= 1;
        } else if months < 0 && (days > 0 || days == 0 && micros > 0) {
            days -= 30;
            months += 1;
        }
        if days > 0 && micros < 0 {
            micros += DAY;
            days -= 1;
        } else if days < 0 && micros > 0 {
            micros -= DAY;
            days += 1;
        }
        let months = i32::try_from(months).map_err(|_| interval::out_of_range())?;
        Ok(Self { months, days: days as i32, micros })
    }

    /// The part of a day that it makes, as a time.
    pub fn to_time(self) -> Time {
        Time(self.micros.rem_euclid(DAY))
    }
}
