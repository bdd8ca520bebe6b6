//! How dates, times and intervals are written, and how dates are read: DateStyle and IntervalStyle.

use std::fmt::Write;

use super::{
    Date, HOUR, Interval, MINUTE, SECOND, TimeZone, Timestamp,
    calendar::{self, Civil},
    write_seconds,
    zone::write_offset,
};

/// How dates and timestamps are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DateStyle {
    /// `2024-02-29 12:34:56+01`
    #[default]
    Iso,
    /// `02/29/2024 12:34:56 CET`
    Sql,
    /// `Thu Feb 29 12:34:56 2024 CET`
    Postgres,
    /// `29.02.2024 12:34:56 CET`
    German,
}

/// In which order a date's fields are read where their form does not tell, and written in some
/// styles.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DateOrder {
    /// Month, day, year.
    #[default]
    Mdy,
    /// Day, month, year.
    Dmy,
    /// Year, month, day.
    Ymd,
}

/// How intervals are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum IntervalStyle {
    /// `1 year 2 mons 3 days 04:05:06`
    #[default]
    Postgres,
    /// `@ 1 year 2 mons 3 days 4 hours 5 mins 6 secs`
    PostgresVerbose,
    /// `+1-2 +3 +4:05:06`
    SqlStandard,
    /// `P1Y2M3DT4H5M6S`
    Iso8601,
}

/// The settings on which the text of values depends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Formats {
    /// The style of DateStyle.
    pub date: DateStyle,
    /// The order of DateStyle.
    pub order: DateOrder,
    /// IntervalStyle.
    pub interval: IntervalStyle,
    /// bytea_output: whether bytes are written as characters and octal digits.
    pub bytea_escape: bool,
    /// extra_float_digits.
    pub float_digits: i8,
}

impl Default for Formats {
    fn default() -> Self {
        Self {
            date: DateStyle::Iso,
            order: DateOrder::Mdy,
            interval: IntervalStyle::Postgres,
            bytea_escape: false,
            float_digits: 1,
        }
    }
}

impl DateStyle {
    /// The style of this name, as DateStyle shows it.
    pub fn named(name: &str) -> Option<Self> {
        Some(match name {
            "ISO" => Self::Iso,
            "SQL" => Self::Sql,
            "Postgres" => Self::Postgres,
            "German" => Self::German,
            _ => return None,
        })
    }
}

impl DateOrder {
    /// The order of this name, as DateStyle shows it.
    pub fn named(name: &str) -> Option<Self> {
        Some(match name {
            "MDY" => Self::Mdy,
            "DMY" => Self::Dmy,
            "YMD" => Self::Ymd,
            _ => return None,
        })
    }
}

impl IntervalStyle {
    /// The style of this name.
    pub fn named(name: &str) -> Option<Self> {
        Some(match name.to_ascii_lowercase().as_str() {
            "postgres" => Self::Postgres,
            "postgres_verbose" => Self::PostgresVerbose,
            "sql_standard" => Self::SqlStandard,
            "iso_8601" => Self::Iso8601,
            _ => return None,
        })
    }
}

fn write_day(civil: Civil, formats: Formats, out: &mut String) {
    let Civil { month, day, .. } = civil;
    let year = civil.displayed_year();
    let day_first = formats.order == DateOrder::Dmy;
    let _ = match formats.date {
        DateStyle::Iso => write!(out, "{year:04}-{month:02}-{day:02}"),
        DateStyle::German => write!(out, "{day:02}.{month:02}.{year:04}"),
        DateStyle::Sql if day_first => write!(out, "{day:02}/{month:02}/{year:04}"),
        DateStyle::Sql => write!(out, "{month:02}/{day:02}/{year:04}"),
        DateStyle::Postgres if day_first => write!(out, "{day:02}-{month:02}-{year:04}"),
        DateStyle::Postgres => write!(out, "{month:02}-{day:02}-{year:04}"),
    };
}

impl Date {
    /// Writes it in a style.
    pub fn write_styled(self, formats: Formats, out: &mut String) {
        if formats.date == DateStyle::Iso || !self.is_finite() {
            return self.write(out);
        }
        let civil = self.civil();
        write_day(civil, formats, out);
        out.push_str(civil.era());
    }
}

impl Timestamp {
    /// Writes it in a style, of a zone if that is given.
    pub fn write_styled(self, zone: Option<TimeZone>, formats: Formats, out: &mut String) {
        match zone {
            None if formats.date == DateStyle::Iso || !self.is_finite() => return self.write(out),
            Some(zone) if formats.date == DateStyle::Iso || !self.is_finite() => return self.write_zoned(zone, out),
            _ => {}
        }
        let offset = zone.map_or(0, |zone| zone.offset_at(self));
        let local = Self(self.0.saturating_add(i64::from(offset) * SECOND));
        let civil = local.date().civil();
        let years = civil.displayed_year();
        match formats.date {
            DateStyle::Postgres => {
                let weekday = &calendar::WEEKDAYS[calendar::weekday(civil.days()) as usize][..3];
                let month = &calendar::MONTHS[(civil.month as usize + 11) % 12][..3];
                let day = civil.day;
                let _ = match formats.order {
                    DateOrder::Dmy => write!(out, "{weekday} {day:02} {month} "),
                    _ => write!(out, "{weekday} {month} {day:02} "),
                };
                local.time().write(out);
                let _ = write!(out, " {years:04}");
            }
            _ => {
                write_day(civil, formats, out);
                out.push(' ');
                local.time().write(out);
            }
        }
        if let Some(zone) = zone {
            out.push(' ');
            let name = zone.abbreviation_at(self);
            match name.is_empty() {
                true => write_offset(offset, out),
                false => out.extend(name.chars().take(10)),
            }
        }
        out.push_str(civil.era());
    }
}

/// The fields of an interval, all of the sign that they have.
struct Fields {
    year: i32,
    month: i32,
    day: i32,
    hour: i64,
    minute: i64,
    /// Seconds and their fraction, in microseconds.
    micros: i64,
}

impl Interval {
    fn fields(self) -> Fields {
        Fields {
            year: self.months / 12,
            month: self.months % 12,
            day: self.days,
            hour: self.micros / HOUR,
            minute: self.micros / MINUTE % 60,
            micros: self.micros % MINUTE,
        }
    }

    /// Writes it in a style.
    pub fn write_styled(self, style: IntervalStyle, out: &mut String) {
        match style {
            IntervalStyle::Postgres => self.write(out),
            IntervalStyle::PostgresVerbose => self.write_verbose(out),
            IntervalStyle::SqlStandard => self.write_standard(out),
            IntervalStyle::Iso8601 => self.write_iso(out),
        }
    }

    fn write_verbose(self, out: &mut String) {
        let Fields { year, month, day, hour, minute, micros } = self.fields();
        out.push('@');
        // The first field's sign is that of all; the others tell where they have another one.
        let mut before: Option<bool> = None;
        let parts: [(i64, &str); 5] =
            [(year.into(), "year"), (month.into(), "mon"), (day.into(), "day"), (hour, "hour"), (minute, "min")];
        for (value, unit) in parts {
            if value == 0 {
                continue;
            }
            let value = if *before.get_or_insert(value < 0) { -value } else { value };
            let _ = write!(out, " {value} {unit}{}", if value == 1 { "" } else { "s" });
        }
        if micros != 0 {
            let minus = (micros < 0) != *before.get_or_insert(micros < 0);
            out.push_str(if minus { " -" } else { " " });
            write_plain_seconds(micros.unsigned_abs(), out);
            out.push_str(if micros.unsigned_abs() == SECOND.unsigned_abs() { " sec" } else { " secs" });
        }
        match before {
            None => out.push_str(" 0"),
            Some(true) => out.push_str(" ago"),
            Some(false) => {}
        }
    }

    fn write_standard(self, out: &mut String) {
        let Fields { year, month, day, hour, minute, micros } = self.fields();
        let negative = self.months < 0 || self.days < 0 || self.micros < 0;
        let positive = self.months > 0 || self.days > 0 || self.micros > 0;
        let by_months = self.months != 0;
        let by_time = self.days != 0 || self.micros != 0;
        let (hour, minute, micros) = (hour.unsigned_abs(), minute.unsigned_abs(), micros.unsigned_abs());
        let (year, month, days) = (year.unsigned_abs(), month.unsigned_abs(), day.unsigned_abs());
        if !negative && !positive {
            return out.push('0');
        }
        if negative && positive || by_months && by_time {
            let sign = |minus: bool| if minus { '-' } else { '+' };
            let (months, clock) = (sign(self.months < 0), sign(self.micros < 0));
            let _ = write!(out, "{months}{year}-{month} {}{days} {clock}{hour}:{minute:02}:", sign(day < 0));
            return write_seconds(micros, out);
        }
        if negative {
            out.push('-');
        }
        if by_months {
            let _ = write!(out, "{year}-{month}");
            return;
        }
        if day != 0 {
            let _ = write!(out, "{days} ");
        }
        let _ = write!(out, "{hour}:{minute:02}:");
        write_seconds(micros, out);
    }

    fn write_iso(self, out: &mut String) {
        let Fields { year, month, day, hour, minute, micros } = self.fields();
        if self.months == 0 && self.days == 0 && self.micros == 0 {
            return out.push_str("PT0S");
        }
        let part = |value: i64, unit: char, out: &mut String| {
            if value != 0 {
                let _ = write!(out, "{value}{unit}");
            }
        };
        out.push('P');
        part(year.into(), 'Y', out);
        part(month.into(), 'M', out);
        part(day.into(), 'D', out);
        if self.micros != 0 {
            out.push('T');
        }
        part(hour, 'H', out);
        part(minute, 'M', out);
        if micros != 0 {
            if micros < 0 {
                out.push('-');
            }
            write_plain_seconds(micros.unsigned_abs(), out);
            out.push('S');
        }
    }
}

/// Writes seconds without a zero before them.
fn write_plain_seconds(micros: u64, out: &mut String) {
    let start = out.len();
    write_seconds(micros, out);
    if out.as_bytes().get(start) == Some(&b'0') {
        out.remove(start);
    }
}
