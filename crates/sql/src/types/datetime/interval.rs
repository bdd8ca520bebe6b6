//! Intervals: months, days and microseconds; none can be expressed in the others.

use std::fmt::Write;

use super::{
    DAY, HOUR, IntervalStyle, MINUTE, SECOND,
    parse::{Mistake, Token, fraction_micros, tokens, whole},
};
use crate::{
    SqlError, SqlState,
    types::{Type, interval_fields, text::is_space},
};

/// A length of time.
#[derive(Clone, Copy, Debug)]
pub struct Interval {
    /// Months.
    pub months: i32,
    /// Days, of whatever length.
    pub days: i32,
    /// Microseconds.
    pub micros: i64,
}

#[cold]
pub(super) fn out_of_range() -> SqlError {
    SqlError::new(SqlState::DATETIME_FIELD_OVERFLOW, "interval out of range")
}

impl Interval {
    /// No time at all.
    pub const ZERO: Self = Self { months: 0, days: 0, micros: 0 };

    /// Its length in microseconds, with months of 30 days and days of 24 hours.
    pub fn length(self) -> i128 {
        let days = i64::from(self.months) * 30 + i64::from(self.days);
        i128::from(days) * i128::from(DAY) + i128::from(self.micros)
    }

    /// Writes it as `1 year 2 mons 3 days 04:05:06.789`.
    pub fn write(self, out: &mut String) {
        let start = out.len();
        let mut negative_before = false;
        for (number, unit) in [(self.months / 12, "year"), (self.months % 12, "mon"), (self.days, "day")] {
            if number != 0 {
                let blank = if out.len() > start { " " } else { "" };
                let plus = if negative_before && number > 0 { "+" } else { "" };
                let plural = if number == 1 { "" } else { "s" };
                let _ = write!(out, "{blank}{plus}{number} {unit}{plural}");
                negative_before = number < 0;
            }
        }
        if self.micros != 0 || out.len() == start {
            if out.len() > start {
                out.push(' ');
            }
            match self.micros {
                ..0 => out.push('-'),
                _ if negative_before => out.push('+'),
                _ => {}
            }
            let (micros, minute) = (self.micros.unsigned_abs(), MINUTE.unsigned_abs());
            let _ = write!(out, "{:02}:{:02}:", micros / (60 * minute), micros / minute % 60);
            super::write_seconds(micros % minute, out);
        }
    }

    /// Without what its type has no room for.
    ///
    /// # Errors
    /// 22008 when rounding leads out of range.
    pub fn constrained(self, ty: Type) -> Result<Self, SqlError> {
        let mut kept = self;
        if let Some(fields) = ty.interval_fields() {
            // What is larger than the largest field named stays, what is smaller than the smallest
            // goes.
            use interval_fields::*;
            let smallest = [SECOND, MINUTE, HOUR, DAY, MONTH, YEAR].into_iter().find(|&field| fields & field != 0);
            match smallest {
                Some(YEAR) => kept = Self { months: self.months / 12 * 12, days: 0, micros: 0 },
                Some(MONTH) => kept = Self { days: 0, micros: 0, ..self },
                Some(DAY) => kept.micros = 0,
                Some(HOUR) => kept.micros -= kept.micros % super::HOUR,
                Some(MINUTE) => kept.micros -= kept.micros % super::MINUTE,
                _ => {}
            }
        }
        if let Some(digits @ 0..6) = ty.seconds_digits() {
            let unit = 10i64.pow(6 - digits);
            let half = if kept.micros < 0 { -unit / 2 } else { unit / 2 };
            let moved = kept.micros.checked_add(half).ok_or_else(out_of_range)?;
            kept.micros = moved - moved % unit;
        }
        Ok(kept)
    }

    /// Reads an interval, as a column of this type of interval holds it.
    ///
    /// # Errors
    /// 22007 when it is none, 22008 and 22015 when it has a field that is too large.
    pub fn parse(text: &str, ty: Type, style: IntervalStyle) -> Result<Self, SqlError> {
        let read = match parse_words(text, ty, style) {
            // What is no sequence of words may be of ISO 8601.
            Err(Mistake::Format) => parse_iso(text),
            read => read,
        };
        read.map_err(|mistake| mistake.error("interval", text))?.constrained(ty)
    }
}

/// An interval that is being summed up.
#[derive(Default)]
struct Sum {
    months: i64,
    days: i64,
    micros: i64,
}

/// A unit of an interval.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Unit {
    /// This many microseconds.
    Micros(i64),
    /// This many days.
    Days(i64),
    /// This many months.
    Months(i64),
}

const SECONDS: Unit = Unit::Micros(SECOND);
const YEARS: Unit = Unit::Months(12);
/// Seconds and what they are made of.
const ALL_SECONDS: [Unit; 3] = [SECONDS, Unit::Micros(1000), Unit::Micros(1)];

fn unit(word: &str) -> Option<Unit> {
    let lower = word.to_ascii_lowercase();
    Some(match lower.get(..10).unwrap_or(&lower) {
        "us" | "usec" | "usecs" | "usecond" | "useconds" | "microsecon" => Unit::Micros(1),
        "ms" | "msec" | "msecs" | "mseconds" | "millisecon" => Unit::Micros(1000),
        "s" | "sec" | "secs" | "second" | "seconds" => SECONDS,
        "m" | "min" | "mins" | "minute" | "minutes" => Unit::Micros(MINUTE),
        "h" | "hr" | "hrs" | "hour" | "hours" => Unit::Micros(HOUR),
        "d" | "day" | "days" => Unit::Days(1),
        "w" | "week" | "weeks" => Unit::Days(7),
        "mon" | "mons" | "month" | "months" => Unit::Months(1),
        "y" | "yr" | "yrs" | "year" | "years" => YEARS,
        "dec" | "decs" | "decade" | "decades" => Unit::Months(120),
        "c" | "cent" | "century" | "centuries" => Unit::Months(1200),
        "mil" | "mils" | "millennia" | "millennium" => Unit::Months(12_000),
        _ => return None,
    })
}

impl Sum {
    /// Adds a number of units; the fraction is told in smaller ones.
    fn add(&mut self, number: i64, fraction: f64, unit: Unit) -> Result<(), Mistake> {
        match unit {
            Unit::Micros(micros) => {
                let whole = number.checked_mul(micros).ok_or(Mistake::Interval)?;
                let part = (fraction * micros as f64).round_ties_even() as i64;
                self.micros =
                    whole.checked_add(part).and_then(|sum| self.micros.checked_add(sum)).ok_or(Mistake::Interval)?;
            }
            Unit::Days(days) => {
                let whole = number.checked_mul(days).ok_or(Mistake::Interval)?;
                self.days = self.days.checked_add(whole).ok_or(Mistake::Interval)?;
                self.add_fraction_of_days(fraction * days as f64)?;
            }
            Unit::Months(months) => {
                // Years and months each have to fit.
                let unit = if months % 12 == 0 { months / 12 } else { months };
                let fits = number.checked_mul(unit).is_some_and(|number| i32::try_from(number).is_ok());
                let whole = number.checked_mul(months).filter(|_| fits).ok_or(Mistake::Interval)?;
                let part = fraction * months as f64;
                if months == 1 {
                    self.months = self.months.checked_add(whole).ok_or(Mistake::Interval)?;
                    self.add_fraction_of_days(fraction * 30.0)?;
                } else {
                    let part = part.round_ties_even() as i64;
                    self.months = whole
                        .checked_add(part)
                        .and_then(|sum| self.months.checked_add(sum))
                        .ok_or(Mistake::Interval)?;
                }
            }
        }
        Ok(())
    }

    fn add_fraction_of_days(&mut self, days: f64) -> Result<(), Mistake> {
        let whole = days.trunc();
        self.days = self.days.checked_add(whole as i64).ok_or(Mistake::Interval)?;
        let micros = ((days - whole) * DAY as f64).round_ties_even() as i64;
        self.micros = self.micros.checked_add(micros).ok_or(Mistake::Interval)?;
        Ok(())
    }

    fn finish(self) -> Result<Interval, Mistake> {
        Ok(Interval {
            months: i32::try_from(self.months).map_err(|_| Mistake::Sum)?,
            days: i32::try_from(self.days).map_err(|_| Mistake::Interval)?,
            micros: self.micros,
        })
    }

    fn negated(self) -> Result<Self, Mistake> {
        Ok(Self { months: -self.months, days: -self.days, micros: self.micros.checked_neg().ok_or(Mistake::Interval)? })
    }
}

/// What a number without a unit counts.
fn default_unit(ty: Type) -> Unit {
    use interval_fields::*;
    match ty.interval_fields() {
        Some(YEAR) => YEARS,
        Some(fields) if fields & !(YEAR | MONTH) == 0 => Unit::Months(1),
        Some(DAY) => Unit::Days(1),
        Some(fields) if fields & (MINUTE | SECOND) == 0 => Unit::Micros(super::HOUR),
        Some(fields) if fields & SECOND == 0 => Unit::Micros(super::MINUTE),
        _ => SECONDS,
    }
}

/// A number with a sign and perhaps a fraction.
fn number(negative: bool, text: &str) -> Result<(i64, f64), Mistake> {
    let (digits, fraction) = text.split_once('.').unwrap_or((text, ""));
    let (digits, fraction) = match (digits, fraction) {
        ("", "") => return Err(Mistake::Format),
        (digits, fraction) => (if digits.is_empty() { "0" } else { digits }, fraction),
    };
    if !digits.bytes().chain(fraction.bytes()).all(|byte| byte.is_ascii_digit()) {
        return Err(Mistake::Format);
    }
    let number = whole(digits).ok_or(Mistake::Interval)?;
    let fraction: f64 = if fraction.is_empty() { 0.0 } else { format!("0.{fraction}").parse().unwrap_or(0.0) };
    Ok(if negative { (-number, -fraction) } else { (number, fraction) })
}

/// `hh:mm[:ss[.f]]`, hours being of any number.
fn clock(negative: bool, text: &str, ty: Type) -> Result<i64, Mistake> {
    use interval_fields as fields;
    let (clock, fraction) = text.split_once('.').map_or((text, None), |(clock, rest)| (clock, Some(rest)));
    let micros = fraction_micros(fraction.unwrap_or("")).ok_or(Mistake::Format)?;
    let part = |text: &str| whole(text).ok_or(if text.is_empty() { Mistake::Format } else { Mistake::Interval });
    // What is left out at the end is zero.
    let or_zero = |text: &str| if text.is_empty() { Ok(0) } else { part(text) };
    let minutes_and_seconds = ty.interval_fields() == Some(fields::MINUTE | fields::SECOND);
    let (hours, minutes, seconds) = match clock.split(':').collect::<Vec<_>>()[..] {
        [minutes, seconds] if fraction.is_some() || minutes_and_seconds => (0, part(minutes)?, part(seconds)?),
        [hours, minutes] => (part(hours)?, or_zero(minutes)?, 0),
        [hours, minutes, seconds] => (part(hours)?, part(minutes)?, or_zero(seconds)?),
        _ => return Err(Mistake::Format),
    };
    if minutes > 59 || seconds > 60 {
        return Err(Mistake::Interval);
    }
    let total = hours
        .checked_mul(HOUR)
        .and_then(|sum| sum.checked_add(minutes * MINUTE + seconds * SECOND + micros))
        .ok_or(Mistake::Interval)?;
    Ok(if negative { -total } else { total })
}

/// Units that were given may not be given again.
#[derive(Default)]
struct Seen(Vec<Unit>);

impl Seen {
    fn add(&mut self, unit: Unit) -> Result<(), Mistake> {
        if self.0.contains(&unit) {
            return Err(Mistake::Format);
        }
        self.0.push(unit);
        Ok(())
    }
}

/// Numbers with units, and times of days. Read from the right, because a unit follows its number.
fn parse_words(text: &str, ty: Type, style: IntervalStyle) -> Result<Interval, Mistake> {
    let tokens = tokens(text)?;
    // The standard's sign stands before all fields, and counts for all of them.
    let signs = tokens.iter().filter(|token| matches!(token, Token::Signed(..))).count();
    let negates =
        style == IntervalStyle::SqlStandard && matches!(tokens.first(), Some(Token::Signed(true, _))) && signs == 1;
    let (mut sum, mut seen) = (Sum::default(), Seen::default());
    let mut pending: Option<Unit> = None;
    let mut ago = false;
    let mut any = false;
    // A unit without its number.
    let mut dangling = false;
    for token in tokens.into_iter().rev() {
        let (negative, text, is_signed) = match token {
            Token::Word(word) if word.eq_ignore_ascii_case("ago") => {
                if any || dangling {
                    return Err(Mistake::Format);
                }
                ago = true;
                continue;
            }
            Token::Word(word) | Token::Name(word) => {
                let unit = unit(word).ok_or(Mistake::Format)?;
                if dangling {
                    return Err(Mistake::Format);
                }
                pending = Some(unit);
                dangling = true;
                continue;
            }
            Token::SignedWord(_) => return Err(Mistake::Format),
            Token::Clock(text) => (false, text, false),
            Token::Number(text) | Token::Date(text) => (false, text, false),
            Token::Signed(negative, text) => (negative, text, true),
        };
        let negative = negative || negates;
        if text.contains(':') && !text.contains('-') {
            if dangling {
                return Err(Mistake::Format);
            }
            for unit in [Unit::Micros(HOUR), Unit::Micros(MINUTE)].into_iter().chain(ALL_SECONDS) {
                seen.add(unit)?;
            }
            sum.add(clock(negative, text, ty)?, 0.0, Unit::Micros(1))?;
            // A number before a time counts days.
            pending = Some(Unit::Days(1));
        } else if let Some((years, months)) = text.split_once('-') {
            // years-months, as in SQL
            let parts = (whole(years), whole(months));
            let (Some(years), Some(months)) = parts else { return Err(Mistake::Format) };
            if months >= 12 {
                return Err(Mistake::Interval);
            }
            let unit_given = dangling && pending != Some(YEARS) && pending != Some(Unit::Months(1));
            if unit_given {
                return Err(Mistake::Format);
            }
            seen.add(YEARS)?;
            seen.add(Unit::Months(1))?;
            let total = years.checked_mul(12).and_then(|sum| sum.checked_add(months)).ok_or(Mistake::Interval)?;
            sum.add(if negative { -total } else { total }, 0.0, Unit::Months(1))?;
            pending = None;
        } else {
            let (number, fraction) = number(negative, text)?;
            let unit = match pending {
                Some(unit) => unit,
                // Only the last number may go without a unit.
                None if !any || is_signed => default_unit(ty),
                None => return Err(Mistake::Format),
            };
            // Seconds with a fraction leave no room for smaller units.
            match unit {
                SECONDS if fraction != 0.0 => ALL_SECONDS.into_iter().try_for_each(|unit| seen.add(unit))?,
                unit => seen.add(unit)?,
            }
            sum.add(number, fraction, unit)?;
            // A number before hours counts days.
            pending = (unit == Unit::Micros(HOUR)).then_some(Unit::Days(1));
        }
        dangling = false;
        any = true;
    }
    if !any || dangling {
        return Err(Mistake::Format);
    }
    if ago { sum.negated()?.finish() } else { sum.finish() }
}

/// `P1Y2M3DT4H5M6S`, `P0001-02-03T04:05:06` and what lies between.
/// A number of ISO 8601: its integer and its fraction. PostgreSQL takes that from the whole number,
/// with what floating point adds to it.
fn iso_number(negative: bool, digits: &str) -> Result<(i64, f64), Mistake> {
    let (value, _) = number(negative, digits)?;
    let all: f64 = digits.parse().map_err(|_| Mistake::Format)?;
    Ok((value, if negative { -all.fract() } else { all.fract() }))
}

fn parse_iso(text: &str) -> Result<Interval, Mistake> {
    let text = text.trim_matches(is_space);
    let mut rest = text.strip_prefix('P').ok_or(Mistake::Format)?;
    let (mut sum, mut time, mut any, mut any_time) = (Sum::default(), false, false, false);
    while let Some(first) = rest.chars().next() {
        if first == 'T' {
            if time {
                return Err(Mistake::Format);
            }
            time = true;
            rest = &rest[1..];
            continue;
        }
        let length = rest
            .bytes()
            .enumerate()
            .take_while(|(at, byte)| byte.is_ascii_digit() || *byte == b'.' || *at == 0 && b"+-".contains(byte))
            .count();
        let (digits, after) = rest.split_at(length);
        let (negative, digits) = match digits.strip_prefix('-') {
            Some(digits) => (true, digits),
            None => (false, digits.strip_prefix('+').unwrap_or(digits)),
        };
        let (value, fraction) = iso_number(negative, digits)?;
        let designator = after.bytes().next();
        let unit = match (time, designator) {
            (false, Some(b'Y')) => YEARS,
            (false, Some(b'M')) => Unit::Months(1),
            (false, Some(b'W')) => Unit::Days(7),
            (false, Some(b'D')) => Unit::Days(1),
            (true, Some(b'H')) => Unit::Micros(HOUR),
            (true, Some(b'M')) => Unit::Micros(MINUTE),
            (true, Some(b'S')) => SECONDS,
            // Without designators, dates and times are written with separators.
            (false, Some(b'-') | Some(b'T') | None) if !any => {
                return parse_iso_alternative(negative, digits, after);
            }
            (true, Some(b':') | None) if !any_time && (fraction == 0.0 || designator.is_none()) => {
                let micros = clock_iso(negative, &rest[length - digits.len()..])?;
                sum.micros = sum.micros.checked_add(micros).ok_or(Mistake::Interval)?;
                return sum.finish();
            }
            _ => return Err(Mistake::Format),
        };
        sum.add(value, fraction, unit)?;
        any = true;
        any_time |= time;
        rest = &after[1..];
    }
    if any || time { sum.finish() } else { Err(Mistake::Format) }
}

/// `Y-M-D` and a time, the part behind `P`.
fn parse_iso_alternative(negative: bool, first: &str, after: &str) -> Result<Interval, Mistake> {
    let (date, time) = after.split_once('T').map_or((after, None), |(date, time)| (date, Some(time)));
    let signed = |negative: bool, digits: &str| {
        let (value, fraction) = number(negative, digits)?;
        if fraction == 0.0 { Ok(value) } else { Err(Mistake::Format) }
    };
    let mut sum = Sum::default();
    if date.is_empty() && first.len() == 8 {
        // YYYYMMDD
        let part = |from: usize, to: usize| first.get(from..to).and_then(whole).ok_or(Mistake::Format);
        sum.add(part(0, 4)?, 0.0, YEARS)?;
        sum.add(part(4, 6)?, 0.0, Unit::Months(1))?;
        sum.add(part(6, 8)?, 0.0, Unit::Days(1))?;
    } else {
        sum.add(signed(negative, first)?, 0.0, YEARS)?;
        let mut units = [Unit::Months(1), Unit::Days(1)].into_iter();
        let mut rest = date;
        while let Some(part) = rest.strip_prefix('-') {
            let (minus, part) = part.strip_prefix('-').map_or((false, part), |part| (true, part));
            let (digits, after) = part.split_at(part.bytes().take_while(u8::is_ascii_digit).count());
            sum.add(signed(minus, digits)?, 0.0, units.next().ok_or(Mistake::Format)?)?;
            rest = after;
        }
        if !rest.is_empty() {
            return Err(Mistake::Format);
        }
    }
    if let Some(time) = time {
        let (negative, time) = time.strip_prefix('-').map_or((false, time), |time| (true, time));
        sum.micros = sum.micros.checked_add(clock_iso(negative, time)?).ok_or(Mistake::Interval)?;
    }
    sum.finish()
}

/// `hh`, `hh:mm` or `hh:mm:ss.f`; `hhmmss`.
fn clock_iso(negative: bool, text: &str) -> Result<i64, Mistake> {
    match text.len() {
        6 if text.bytes().all(|byte| byte.is_ascii_digit()) => {
            let colons = format!("{}:{}:{}", &text[..2], &text[2..4], &text[4..]);
            clock(negative, &colons, Type::INTERVAL)
        }
        _ if !text.contains(':') => {
            let (hours, fraction) = iso_number(negative, text)?;
            let mut sum = Sum::default();
            sum.add(hours, fraction, Unit::Micros(HOUR))?;
            Ok(sum.micros)
        }
        _ => clock(negative, text, Type::INTERVAL),
    }
}
