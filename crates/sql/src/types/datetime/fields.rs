//! The fields of dates, times and intervals: what EXTRACT takes out and `date_trunc` cuts off at.

use super::{
    DAY, Date, HOUR, Interval, MINUTE, SECOND, Time, TimeTz, TimeZone, Timestamp, UNIX_EPOCH,
    calendar::{self, Civil},
};
use crate::{
    SqlError, SqlState,
    types::numeric::{Numeric, Special},
};

/// A field's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "their names say it")]
pub enum Field {
    Microsecond,
    Millisecond,
    Second,
    Minute,
    Hour,
    Day,
    Week,
    Month,
    Quarter,
    Year,
    Decade,
    Century,
    Millennium,
    DayOfWeek,
    IsoDayOfWeek,
    DayOfYear,
    IsoYear,
    Epoch,
    Julian,
    Timezone,
    TimezoneHour,
    TimezoneMinute,
}

impl Field {
    /// The field of a name.
    pub fn parse(name: &str) -> Option<Self> {
        Some(match name.to_ascii_lowercase().as_str() {
            "us" | "usec" | "usecs" | "microsecond" | "microseconds" => Self::Microsecond,
            "ms" | "msec" | "msecs" | "millisecond" | "milliseconds" => Self::Millisecond,
            "s" | "sec" | "secs" | "second" | "seconds" => Self::Second,
            "m" | "min" | "mins" | "minute" | "minutes" => Self::Minute,
            "h" | "hr" | "hrs" | "hour" | "hours" => Self::Hour,
            "d" | "day" | "days" => Self::Day,
            "w" | "week" | "weeks" => Self::Week,
            "mon" | "mons" | "month" | "months" => Self::Month,
            "qtr" | "quarter" => Self::Quarter,
            "y" | "yr" | "yrs" | "year" | "years" => Self::Year,
            "dec" | "decs" | "decade" | "decades" => Self::Decade,
            "c" | "cent" | "century" | "centuries" => Self::Century,
            "mil" | "mils" | "millennia" | "millennium" | "millenniums" => Self::Millennium,
            "dow" => Self::DayOfWeek,
            "isodow" => Self::IsoDayOfWeek,
            "doy" => Self::DayOfYear,
            "isoyear" => Self::IsoYear,
            "epoch" => Self::Epoch,
            "j" | "jd" | "julian" => Self::Julian,
            "timezone" => Self::Timezone,
            "timezone_h" | "timezone_hour" => Self::TimezoneHour,
            "timezone_m" | "timezone_minute" => Self::TimezoneMinute,
            _ => return None,
        })
    }
}

/// The value of a field.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum FieldValue {
    /// A number, divided by ten to a power.
    Number(i128, u32),
    /// What the years of infinity are.
    Infinity,
    /// What the years of minus infinity are.
    MinusInfinity,
    /// What other fields of an infinite value are.
    Null,
}

impl FieldValue {
    const fn whole(number: i64) -> Self {
        Self::Number(number as i128, 0)
    }

    /// As EXTRACT has it; nothing for null.
    pub fn to_numeric(self) -> Option<Numeric> {
        match self {
            Self::Number(number, scale) => Numeric::new(number, scale),
            Self::Null => None,
            Self::Infinity => Some(Numeric::special(Special::Infinity)),
            Self::MinusInfinity => Some(Numeric::special(Special::MinusInfinity)),
        }
    }

    /// As `date_part` has it; nothing for null.
    pub fn to_f64(self) -> Option<f64> {
        match self {
            Self::Number(number, scale) => Some(Numeric::new(number, scale)?.to_f64()),
            Self::Infinity => Some(f64::INFINITY),
            Self::MinusInfinity => Some(f64::NEG_INFINITY),
            Self::Null => None,
        }
    }
}

fn unknown(name: &str, ty: &str) -> SqlError {
    SqlError::new(SqlState::INVALID_PARAMETER_VALUE, format!("unit \"{name}\" not recognized for type {ty}"))
}

fn unsupported(name: &str, ty: &str) -> SqlError {
    SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, format!("unit \"{name}\" not supported for type {ty}"))
}

impl Field {
    /// Whether it only makes sense for a date.
    const fn of_dates_only(self) -> bool {
        matches!(
            self,
            Self::DayOfWeek | Self::IsoDayOfWeek | Self::DayOfYear | Self::IsoYear | Self::Epoch | Self::Julian
        )
    }
}

/// The error for a field that cannot be had. Those of dates are not even known elsewhere.
fn not_here(field: Field, name: &str, ty: &str) -> SqlError {
    let name = name.to_ascii_lowercase();
    if field.of_dates_only() { unknown(&name, ty) } else { unsupported(&name, ty) }
}

/// Looks a field up by name.
///
/// # Errors
/// 22023 when none exists.
fn field(name: &str, ty: &str) -> Result<Field, SqlError> {
    Field::parse(name).ok_or_else(|| unknown(&name.to_ascii_lowercase(), ty))
}

fn of_infinite(field: Field, positive: bool) -> FieldValue {
    match field {
        Field::Year
        | Field::Decade
        | Field::Century
        | Field::Millennium
        | Field::IsoYear
        | Field::Epoch
        | Field::Julian => {
            if positive {
                FieldValue::Infinity
            } else {
                FieldValue::MinusInfinity
            }
        }
        _ => FieldValue::Null,
    }
}

/// Fields of a time of day, in microseconds since midnight.
fn of_clock(field: Field, micros: i64) -> Option<FieldValue> {
    Some(match field {
        Field::Microsecond => FieldValue::whole(micros % MINUTE),
        Field::Millisecond => FieldValue::Number((micros % MINUTE).into(), 3),
        Field::Second => FieldValue::Number((micros % MINUTE).into(), 6),
        Field::Minute => FieldValue::whole(micros / MINUTE % 60),
        Field::Hour => FieldValue::whole(micros / HOUR),
        _ => return None,
    })
}

/// The century, and likewise the millennium, that a year is in; none exists with the number 0.
fn span_of(year: i64, length: i64) -> i64 {
    if year > 0 { (year + length - 1) / length } else { -((length - year) / length) }
}

/// Fields of a date, counted in days from 2000-01-01.
fn of_day(field: Field, day: i64) -> Option<FieldValue> {
    let civil = Civil::of_days(day);
    let year = i64::from(civil.year);
    // Years before our era count backward, without a year 0.
    let displayed = |year: i64| if year > 0 { year } else { year - 1 };
    Some(FieldValue::whole(match field {
        Field::Day => civil.day.into(),
        Field::Month => civil.month.into(),
        Field::Quarter => i64::from((civil.month - 1) / 3 + 1),
        Field::Week => civil.iso_week().1.into(),
        Field::Year => displayed(year),
        Field::Decade => year.div_euclid(10),
        Field::Century => span_of(year, 100),
        Field::Millennium => span_of(year, 1000),
        Field::IsoYear => displayed(civil.iso_week().0.into()),
        Field::DayOfWeek => calendar::weekday(day).into(),
        Field::IsoDayOfWeek => i64::from((calendar::weekday(day) + 6) % 7 + 1),
        Field::DayOfYear => civil.day_of_year(),
        _ => return None,
    }))
}

/// A field of a date.
///
/// # Errors
/// 22023 when there is no such field, 0A000 when dates do not have it.
pub fn extract_date(name: &str, date: Date) -> Result<FieldValue, SqlError> {
    let field = field(name, "date")?;
    let julian = i64::from(date.0) - i64::from(Date::MIN.0);
    let of = |day: i64| match field {
        Field::Julian => Some(FieldValue::whole(julian)),
        Field::Epoch => Some(FieldValue::whole((day + UNIX_EPOCH / DAY) * (DAY / SECOND))),
        _ => of_day(field, day),
    };
    let value = of(date.0.into()).ok_or_else(|| unsupported(&name.to_ascii_lowercase(), "date"))?;
    if date.is_finite() { Ok(value) } else { Ok(of_infinite(field, date == Date::INFINITY)) }
}

/// A field of a time of day.
///
/// # Errors
/// 22023 when there is no such field, 0A000 when times do not have it.
pub fn extract_time(name: &str, time: Time) -> Result<FieldValue, SqlError> {
    const NAME: &str = "time without time zone";
    match field(name, NAME)? {
        Field::Epoch => Ok(FieldValue::Number(time.0.into(), 6)),
        field => of_clock(field, time.0).ok_or_else(|| not_here(field, name, NAME)),
    }
}

/// A field of a time with a zone.
///
/// # Errors
/// 22023 when there is no such field, 0A000 when times do not have it.
pub fn extract_timetz(name: &str, time: TimeTz) -> Result<FieldValue, SqlError> {
    const NAME: &str = "time with time zone";
    let offset = -i64::from(time.west);
    match field(name, NAME)? {
        Field::Epoch => Ok(FieldValue::Number(time.utc().into(), 6)),
        Field::Timezone => Ok(FieldValue::whole(offset)),
        Field::TimezoneHour => Ok(FieldValue::whole(offset / 3600)),
        Field::TimezoneMinute => Ok(FieldValue::whole(offset / 60 % 60)),
        field => of_clock(field, time.micros).ok_or_else(|| not_here(field, name, NAME)),
    }
}

/// A field of a timestamp, by the clocks of the zone if there is one.
///
/// # Errors
/// 22023 when there is no such field, 0A000 when timestamps do not have it.
pub fn extract_timestamp(name: &str, timestamp: Timestamp, zone: Option<TimeZone>) -> Result<FieldValue, SqlError> {
    let ty = if zone.is_some() { "timestamp with time zone" } else { "timestamp without time zone" };
    let field = field(name, ty)?;
    let local = match zone {
        Some(zone) => timestamp.to_local(zone)?,
        None => timestamp,
    };
    let (day, micros) = (local.0.div_euclid(DAY), local.0.rem_euclid(DAY));
    let value = of_clock(field, micros).or_else(|| of_day(field, day)).or_else(|| {
        let offset = i64::from(zone?.offset_at(timestamp));
        Some(FieldValue::whole(match field {
            Field::Timezone => offset,
            Field::TimezoneHour => offset / 3600,
            Field::TimezoneMinute => offset / 60 % 60,
            _ => return None,
        }))
    });
    let value = value.or_else(|| match field {
        Field::Epoch => Some(FieldValue::Number(i128::from(timestamp.0) + i128::from(UNIX_EPOCH), 6)),
        Field::Julian => {
            // Days and their part, exact to 20 digits behind the point.
            let days = Numeric::from(day - i64::from(Date::MIN.0));
            let part = Numeric::from(micros).div(&Numeric::from(DAY)).ok()?;
            let sum = days.add(&part).ok()?;
            Some(if micros == 0 {
                FieldValue::Number(days.small()?.coefficient(), 0)
            } else {
                FieldValue::Number(sum.small()?.coefficient(), sum.scale())
            })
        }
        _ => None,
    });
    let value = value.ok_or_else(|| unsupported(&name.to_ascii_lowercase(), ty))?;
    if timestamp.is_finite() { Ok(value) } else { Ok(of_infinite(field, timestamp == Timestamp::INFINITY)) }
}

/// A field of an interval.
///
/// # Errors
/// 22023 when there is no such field, 0A000 when intervals do not have it.
pub fn extract_interval(name: &str, interval: Interval) -> Result<FieldValue, SqlError> {
    let field = field(name, "interval")?;
    let (years, months) = (i64::from(interval.months / 12), i64::from(interval.months % 12));
    if let Some(value) = of_clock(field, interval.micros) {
        return Ok(value);
    }
    Ok(FieldValue::whole(match field {
        Field::Day => interval.days.into(),
        Field::Month => months,
        Field::Quarter => months / 3 + 1,
        Field::Year => years,
        Field::Decade => years / 10,
        Field::Century => years / 100,
        Field::Millennium => years / 1000,
        Field::Epoch => {
            // Years of 365.25 days, as PostgreSQL has it.
            let days = i128::from(years) * 1461 + (i128::from(months) * 30 + i128::from(interval.days)) * 4;
            return Ok(FieldValue::Number(days * i128::from(DAY) / 4 + i128::from(interval.micros), 6));
        }
        _ => return Err(not_here(field, name, "interval")),
    }))
}

/// The first year of what a year belongs to.
fn cut_year(field: Field, year: i64) -> Option<i64> {
    Some(match field {
        Field::Year => year,
        Field::Decade => year.div_euclid(10) * 10,
        Field::Century => (year - 1).div_euclid(100) * 100 + 1,
        Field::Millennium => (year - 1).div_euclid(1000) * 1000 + 1,
        _ => return None,
    })
}

impl Timestamp {
    /// Cut off below a field.
    ///
    /// # Errors
    /// 22023 when there is no such field, 0A000 when nothing is cut off at it, 22008 when that is
    /// out of range.
    pub fn truncated(self, name: &str) -> Result<Self, SqlError> {
        self.truncated_as(name, "timestamp without time zone")
    }

    /// Cut off below a field by the clocks of a zone.
    ///
    /// # Errors
    /// 22023 when there is no such field, 0A000 when nothing is cut off at it, 22008 when that is
    /// out of range.
    pub fn truncated_in(self, name: &str, zone: TimeZone) -> Result<Self, SqlError> {
        let local = self.to_local(zone)?.truncated_as(name, "timestamp with time zone")?;
        match Field::parse(name) {
            // Within an hour, clocks that are put back show the same twice: stay where it was.
            Some(Field::Microsecond | Field::Millisecond | Field::Second | Field::Minute | Field::Hour)
                if self.is_finite() =>
            {
                Self::checked(i128::from(local.0) - i128::from(zone.offset_at(self)) * i128::from(SECOND))
            }
            _ => local.to_utc(zone),
        }
    }

    fn truncated_as(self, name: &str, ty: &str) -> Result<Self, SqlError> {
        let field = field(name, ty)?;
        let cut = |unit: i64| i128::from(self.0) - i128::from(self.0.rem_euclid(unit));
        let day = self.0.div_euclid(DAY);
        let civil = Civil::of_days(day);
        let midnight = |day: i64| i128::from(day) * i128::from(DAY);
        let micros = match field {
            Field::Microsecond => self.0.into(),
            Field::Millisecond => cut(1000),
            Field::Second => cut(SECOND),
            Field::Minute => cut(MINUTE),
            Field::Hour => cut(HOUR),
            Field::Day => cut(DAY),
            Field::Week => midnight(day - i64::from((calendar::weekday(day) + 6) % 7)),
            Field::Month => midnight(calendar::days(civil.year.into(), civil.month.into(), 1)),
            Field::Quarter => midnight(calendar::days(civil.year.into(), i64::from((civil.month - 1) / 3 * 3 + 1), 1)),
            _ => match cut_year(field, civil.year.into()) {
                Some(year) => midnight(calendar::days(year, 1, 1)),
                None => return Err(not_here(field, name, ty)),
            },
        };
        if self.is_finite() { Self::checked(micros) } else { Ok(self) }
    }
}

impl Interval {
    /// Cut off below a field.
    ///
    /// # Errors
    /// 22023 when there is no such field, 0A000 when nothing is cut off at it.
    pub fn truncated(self, name: &str) -> Result<Self, SqlError> {
        let time = |unit: i64| Ok(Self { micros: self.micros - self.micros % unit, ..self });
        let months = |unit: i32| Ok(Self { months: self.months - self.months % unit, days: 0, micros: 0 });
        match field(name, "interval")? {
            Field::Microsecond => Ok(self),
            Field::Millisecond => time(1000),
            Field::Second => time(SECOND),
            Field::Minute => time(MINUTE),
            Field::Hour => time(HOUR),
            Field::Day => Ok(Self { micros: 0, ..self }),
            Field::Month => months(1),
            Field::Quarter => months(3),
            Field::Year => months(12),
            Field::Decade => months(120),
            Field::Century => months(1200),
            Field::Millennium => months(12_000),
            Field::Week => Err(unsupported("week", "interval").with_detail("Months usually have fractional weeks.")),
            field => Err(not_here(field, name, "interval")),
        }
    }
}
