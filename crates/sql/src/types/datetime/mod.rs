//! Dates, times, timestamps and intervals.
//!
//! Days and microseconds count from 2000-01-01, as in PostgreSQL; the calendar is the Gregorian one
//! throughout, and the year before 1 is 1 BC.

mod arithmetic;
pub mod calendar;
mod fields;
mod interval;
mod parse;
mod style;
mod timetz;
mod zone;

use std::{cmp::Ordering, fmt, fmt::Write, hash};

use calendar::Civil;
pub use fields::{Field, FieldValue, extract_date, extract_interval, extract_time, extract_timestamp, extract_timetz};
pub use interval::Interval;
pub use parse::Moment;
pub use style::{DateOrder, DateStyle, Formats, IntervalStyle};
pub use timetz::TimeTz;
pub use zone::TimeZone;

use crate::{SqlError, SqlState};

/// Microseconds in a second.
pub const SECOND: i64 = 1_000_000;
/// Microseconds in a minute.
pub const MINUTE: i64 = 60 * SECOND;
/// Microseconds in an hour.
pub const HOUR: i64 = 60 * MINUTE;
/// Microseconds in a day.
pub const DAY: i64 = 24 * HOUR;
/// Microseconds from 1970-01-01 to 2000-01-01.
pub const UNIX_EPOCH: i64 = 10_957 * DAY;

/// A day, counted from 2000-01-01, or one of the infinities.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Date(pub i32);

/// Microseconds since midnight; 24:00:00 is one of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Time(pub i64);

/// Microseconds since 2000-01-01 00:00:00, of UTC or of no zone in particular, or one of the
/// infinities.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(pub i64);

impl Date {
    /// Later than every day.
    pub const INFINITY: Self = Self(i32::MAX);
    /// Earlier than every day.
    pub const MINUS_INFINITY: Self = Self(i32::MIN);
    /// 4714-11-24 BC, where Julian days begin.
    pub const MIN: Self = Self(-2_451_545);
    /// 5874897-12-31.
    pub const MAX: Self = Self(2_145_031_948);

    /// The day of this number, unless it is out of range.
    pub fn new(days: i64) -> Option<Self> {
        let date = Self(i32::try_from(days).ok()?);
        (Self::MIN..=Self::MAX).contains(&date).then_some(date)
    }

    /// Whether it is a day.
    pub const fn is_finite(self) -> bool {
        self.0 != i32::MAX && self.0 != i32::MIN
    }

    /// The midnight that it begins with.
    ///
    /// # Errors
    /// 22008 when no timestamp is that late.
    pub fn to_timestamp(self) -> Result<Timestamp, SqlError> {
        match self {
            Self::INFINITY => Ok(Timestamp::INFINITY),
            Self::MINUS_INFINITY => Ok(Timestamp::MINUS_INFINITY),
            Self(days) => Timestamp::new(i128::from(days) * i128::from(DAY))
                .ok_or_else(|| SqlError::new(SqlState::DATETIME_FIELD_OVERFLOW, "date out of range for timestamp")),
        }
    }

    /// As comparisons with timestamps see it: a day beyond their range is later than all of them.
    pub fn saturating_timestamp(self) -> Timestamp {
        self.to_timestamp().unwrap_or(Timestamp::INFINITY)
    }

    /// Year, month and day.
    pub fn civil(self) -> Civil {
        Civil::of_days(self.0.into())
    }

    /// Writes it as `2024-02-29`.
    pub fn write(self, out: &mut String) {
        match self {
            Self::INFINITY => out.push_str("infinity"),
            Self::MINUS_INFINITY => out.push_str("-infinity"),
            _ => {
                let civil = self.civil();
                civil.write(out);
                out.push_str(civil.era());
            }
        }
    }
}

impl Time {
    /// 24:00:00.
    pub const MAX: Self = Self(DAY);

    /// This many microseconds after midnight, if the day has as many.
    pub fn new(micros: i64) -> Option<Self> {
        (0..=DAY).contains(&micros).then_some(Self(micros))
    }

    /// Rounded to this many digits behind the seconds' point.
    pub fn rounded(self, digits: Option<u32>) -> Self {
        Self(round_micros(self.0, digits).clamp(0, DAY))
    }

    /// Writes it as `12:34:56.789`.
    pub fn write(self, out: &mut String) {
        write_clock(self.0, out);
    }
}

impl Timestamp {
    /// Later than every timestamp.
    pub const INFINITY: Self = Self(i64::MAX);
    /// Earlier than every timestamp.
    pub const MINUS_INFINITY: Self = Self(i64::MIN);
    /// 4714-11-24 00:00:00 BC.
    pub const MIN: Self = Self(-211_813_488_000_000_000);
    /// The last microsecond of 294276.
    pub const MAX: Self = Self(9_223_371_331_199_999_999);

    /// This many microseconds, unless that is out of range.
    pub fn new(micros: i128) -> Option<Self> {
        let timestamp = Self(i64::try_from(micros).ok()?);
        (Self::MIN..=Self::MAX).contains(&timestamp).then_some(timestamp)
    }

    /// The same, or the error for what is out of range.
    pub(crate) fn checked(micros: i128) -> Result<Self, SqlError> {
        Self::new(micros).ok_or_else(out_of_range)
    }

    /// Whether it is a point in time.
    pub const fn is_finite(self) -> bool {
        self.0 != i64::MAX && self.0 != i64::MIN
    }

    /// This moment by the system's clock.
    pub fn now() -> Self {
        let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
        Self::new(since.as_micros() as i128 - i128::from(UNIX_EPOCH)).unwrap_or(Self::MAX)
    }

    /// The day that it is in.
    pub fn date(self) -> Date {
        match self {
            Self::INFINITY => Date::INFINITY,
            Self::MINUS_INFINITY => Date::MINUS_INFINITY,
            // Every timestamp's day is in the range of dates.
            Self(micros) => Date(micros.div_euclid(DAY) as i32),
        }
    }

    /// The time of its day.
    pub fn time(self) -> Time {
        Time(self.0.rem_euclid(DAY))
    }

    /// Rounded to this many digits behind the seconds' point.
    ///
    /// # Errors
    /// 22008 when that is out of range.
    pub fn rounded(self, digits: Option<u32>) -> Result<Self, SqlError> {
        if !self.is_finite() {
            return Ok(self);
        }
        Self::checked(round_micros(self.0, digits).into())
    }

    /// Writes it as `2024-02-29 12:34:56.789`.
    pub fn write(self, out: &mut String) {
        match self {
            Self::INFINITY => out.push_str("infinity"),
            Self::MINUS_INFINITY => out.push_str("-infinity"),
            _ => {
                let civil = self.date().civil();
                civil.write(out);
                out.push(' ');
                self.time().write(out);
                out.push_str(civil.era());
            }
        }
    }

    /// Writes this moment as `2024-02-29 12:34:56.789+01`, with the zone's time.
    pub fn write_zoned(self, zone: TimeZone, out: &mut String) {
        if !self.is_finite() {
            return self.write(out);
        }
        let offset = zone.offset_at(self);
        let local = Self(self.0.saturating_add(i64::from(offset) * SECOND));
        let civil = local.date().civil();
        civil.write(out);
        out.push(' ');
        local.time().write(out);
        zone::write_offset(offset, out);
        out.push_str(civil.era());
    }

    /// The time that clocks of the zone show at this moment.
    ///
    /// # Errors
    /// 22008 when that is out of range.
    pub fn to_local(self, zone: TimeZone) -> Result<Self, SqlError> {
        if !self.is_finite() {
            return Ok(self);
        }
        Self::checked(i128::from(self.0) + i128::from(zone.offset_at(self)) * i128::from(SECOND))
    }

    /// The moment when clocks of the zone show this time.
    ///
    /// # Errors
    /// 22008 when that is out of range.
    pub fn to_utc(self, zone: TimeZone) -> Result<Self, SqlError> {
        if !self.is_finite() {
            return Ok(self);
        }
        Self::checked(i128::from(self.0) - i128::from(zone.offset_of_local(self)) * i128::from(SECOND))
    }
}

#[cold]
fn out_of_range() -> SqlError {
    SqlError::new(SqlState::DATETIME_FIELD_OVERFLOW, "timestamp out of range")
}

/// Rounds to this many digits behind the seconds' point, ties away from zero.
fn round_micros(micros: i64, digits: Option<u32>) -> i64 {
    match digits {
        Some(digits @ 0..6) => {
            let unit = 10i64.pow(6 - digits);
            let rest = micros % unit;
            let down = micros - rest;
            match rest.abs() * 2 >= unit {
                true => down.saturating_add(unit * rest.signum()),
                false => down,
            }
        }
        _ => micros,
    }
}

/// Writes microseconds since midnight as `12:34:56.789`.
fn write_clock(micros: i64, out: &mut String) {
    let _ = write!(out, "{:02}:{:02}:", micros / HOUR, micros / MINUTE % 60);
    write_seconds((micros % MINUTE).unsigned_abs(), out);
}

/// Writes seconds with two digits before the point and none more than needed behind it.
fn write_seconds(micros: u64, out: &mut String) {
    let second = SECOND.unsigned_abs();
    let (seconds, rest) = (micros / second, micros % second);
    let _ = write!(out, "{seconds:02}");
    if rest != 0 {
        let _ = write!(out, ".{rest:06}");
        out.truncate(out.trim_end_matches('0').len());
    }
}

macro_rules! displayed {
    ($($ty:ty),+) => {$(
        impl fmt::Display for $ty {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                let mut text = String::new();
                self.write(&mut text);
                f.write_str(&text)
            }
        }
    )+};
}

displayed!(Date, Time, Timestamp, Interval);

/// Intervals compare by length, with months of 30 days and days of 24 hours.
impl PartialEq for Interval {
    fn eq(&self, other: &Self) -> bool {
        self.length() == other.length()
    }
}

impl Eq for Interval {}

impl PartialOrd for Interval {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Interval {
    fn cmp(&self, other: &Self) -> Ordering {
        self.length().cmp(&other.length())
    }
}

impl hash::Hash for Interval {
    fn hash<H: hash::Hasher>(&self, state: &mut H) {
        state.write_i128(self.length());
    }
}

#[cfg(test)]
mod tests;
