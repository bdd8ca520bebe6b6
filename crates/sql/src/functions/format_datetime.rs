//! Dates and times written by templates: `to_char(now(), 'YYYY-MM-DD')`.

use std::fmt::{self, Write};

use super::{
    Function,
    format_number::{ordinal, quoted, roman_numeral},
    mismatch,
    string::checked_length,
};
use crate::{
    SqlError, SqlState,
    types::{
        Date, EvalContext, Interval, Kind, Timestamp, Value,
        datetime::{
            HOUR, MINUTE, SECOND,
            calendar::{self, Civil, MONTHS, WEEKDAYS},
        },
    },
    work::{self, Kept},
};

const T: Kind = Kind::Text;

pub(super) const FUNCTIONS: &[Function] = &[
    Function::new("timeofday", &[], T, time_of_day).volatile(),
    Function::new("to_char", &[Kind::Timestamp, T], T, to_char).stable(),
    Function::new("to_char", &[Kind::Timestamptz, T], T, to_char).stable(),
    Function::new("to_char", &[Kind::Interval, T], T, to_char).stable(),
];

/// How letters are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Case {
    Upper,
    Capital,
    Lower,
}

/// What a template asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Field {
    /// With points between the letters?
    Era(bool),
    HalfDay(bool),
    Century,
    /// `Y,YYY`
    CommaYear,
    /// This many of the last digits; four mean all.
    Year(usize),
    IsoYear(usize),
    Quarter,
    Month,
    MonthName,
    MonthShort,
    MonthRoman,
    WeekOfYear,
    WeekOfMonth,
    IsoWeek,
    DayOfYear,
    IsoDayOfYear,
    DayOfMonth,
    DayOfWeek,
    IsoDayOfWeek,
    DayName,
    DayShort,
    Julian,
    Hour24,
    Hour12,
    Minute,
    Second,
    Millisecond,
    Microsecond,
    /// `FF1` to `FF6`
    Fraction(u32),
    SecondOfDay,
    Zone,
    ZoneHour,
    ZoneMinute,
    ZoneOffset,
}

/// All templates, longer ones before what they begin with.
const FIELDS: &[(&str, Field)] = &[
    ("A.D.", Field::Era(true)),
    ("B.C.", Field::Era(true)),
    ("A.M.", Field::HalfDay(true)),
    ("P.M.", Field::HalfDay(true)),
    ("AD", Field::Era(false)),
    ("BC", Field::Era(false)),
    ("AM", Field::HalfDay(false)),
    ("PM", Field::HalfDay(false)),
    ("CC", Field::Century),
    ("Y,YYY", Field::CommaYear),
    ("YYYY", Field::Year(4)),
    ("YYY", Field::Year(3)),
    ("YY", Field::Year(2)),
    ("Y", Field::Year(1)),
    ("IYYY", Field::IsoYear(4)),
    ("IYY", Field::IsoYear(3)),
    ("IY", Field::IsoYear(2)),
    ("IDDD", Field::IsoDayOfYear),
    ("ID", Field::IsoDayOfWeek),
    ("IW", Field::IsoWeek),
    ("I", Field::IsoYear(1)),
    ("Q", Field::Quarter),
    ("MONTH", Field::MonthName),
    ("MON", Field::MonthShort),
    ("MM", Field::Month),
    ("MI", Field::Minute),
    ("MS", Field::Millisecond),
    ("RM", Field::MonthRoman),
    ("WW", Field::WeekOfYear),
    ("W", Field::WeekOfMonth),
    ("DDD", Field::DayOfYear),
    ("DD", Field::DayOfMonth),
    ("DAY", Field::DayName),
    ("DY", Field::DayShort),
    ("D", Field::DayOfWeek),
    ("J", Field::Julian),
    ("HH24", Field::Hour24),
    ("HH12", Field::Hour12),
    ("HH", Field::Hour12),
    ("SSSSS", Field::SecondOfDay),
    ("SSSS", Field::SecondOfDay),
    ("SS", Field::Second),
    ("US", Field::Microsecond),
    ("FF1", Field::Fraction(1)),
    ("FF2", Field::Fraction(2)),
    ("FF3", Field::Fraction(3)),
    ("FF4", Field::Fraction(4)),
    ("FF5", Field::Fraction(5)),
    ("FF6", Field::Fraction(6)),
    ("TZH", Field::ZoneHour),
    ("TZM", Field::ZoneMinute),
    ("TZ", Field::Zone),
    ("OF", Field::ZoneOffset),
];

/// A piece of a template.
#[derive(Clone, Debug)]
pub(super) enum Item<'t> {
    Field {
        field: Field,
        /// Its name, as it is written.
        name: &'t str,
        case: Case,
        /// `FM`: nothing is filled up.
        fill: bool,
        /// `TH` behind it, and whether with capitals.
        ordinal: Option<bool>,
    },
    /// A character that stands for itself.
    Literal(char),
    /// A blank or a sign, which input may leave out.
    Separator(char),
}

/// Whether a field is written like this: in capitals or without, names also with one capital.
fn written_as(text: &str, name: &str, field: Field) -> bool {
    let named = matches!(field, Field::MonthName | Field::MonthShort | Field::DayName | Field::DayShort);
    text == name
        || text.eq_ignore_ascii_case(name)
            && (!text.bytes().any(|byte| byte.is_ascii_uppercase())
                || named && text[..1] == name[..1] && !text[1..].bytes().any(|byte| byte.is_ascii_uppercase()))
}

/// A template in pieces.
pub(super) struct Template<'t> {
    pub(super) items: Vec<Item<'t>>,
    /// Whether input must keep to it exactly.
    pub(super) exact: bool,
    /// The memory of the pieces, counted for as long as they live.
    _kept: Kept,
}

/// The pieces of a template.
///
/// # Errors
/// 53200, 57014, 57P01.
pub(super) fn parse_template(template: &str) -> Result<Template<'_>, SqlError> {
    /// Each is compared with all that there are.
    const STEPS: usize = 32;
    let kept = work::kept();
    let mut items = Vec::new();
    let mut exact = false;
    let mut rest = template;
    while let Some(first) = rest.chars().next() {
        work::done(STEPS)?;
        kept.grown_to(2 * items.len() * size_of::<Item<'_>>())?;
        let mut fill = false;
        // Prefixes, in any order.
        let mut ahead = rest;
        loop {
            match ahead.get(..2) {
                Some("FM" | "fm" | "TM" | "tm") if ahead.len() > 2 => fill = true,
                Some("FX" | "fx") => exact = true,
                _ => break,
            }
            ahead = &ahead[2..];
        }
        let found = FIELDS
            .iter()
            .find(|(name, field)| ahead.get(..name.len()).is_some_and(|start| written_as(start, name, *field)));
        if let Some(&(name, field)) = found {
            let written = &ahead[..name.len()];
            let letters = written.as_bytes();
            let case = if letters[0].is_ascii_lowercase() {
                Case::Lower
            } else if letters.get(1).is_some_and(u8::is_ascii_lowercase) {
                Case::Capital
            } else {
                Case::Upper
            };
            rest = &ahead[name.len()..];
            let mut suffix = None;
            if let Some(th) = rest.get(..2).filter(|th| matches!(*th, "TH" | "th")) {
                suffix = Some(th.starts_with('T'));
                rest = &rest[2..];
            }
            items.push(Item::Field { field, name: written, case, fill, ordinal: suffix });
            continue;
        }
        if ahead.len() < rest.len() {
            rest = ahead;
            continue;
        }
        if first == '"' {
            let (literal, length) = quoted(&rest[1..]);
            kept.grown_to(2 * (items.len() + literal.len()) * size_of::<Item<'_>>())?;
            items.extend(literal.chars().map(Item::Literal));
            rest = &rest[1 + length..];
            continue;
        }
        rest = &rest[first.len_utf8()..];
        if first == '\\'
            && let Some(after) = rest.strip_prefix('"')
        {
            items.push(Item::Literal('"'));
            rest = after;
            continue;
        }
        let separator = first.is_ascii_whitespace() || first.is_ascii_punctuation();
        items.push(if separator { Item::Separator(first) } else { Item::Literal(first) });
    }
    Ok(Template { items, exact, _kept: kept })
}

/// What is written: a point in time, or a length of it.
struct Parts {
    civil: Civil,
    day: i64,
    /// Since midnight; hours of intervals may be any number.
    micros: i64,
    /// The offset of the zone, and what the zone calls itself.
    zone: Option<(i32, String)>,
    interval: bool,
}

/// What the clock shows at this moment, as C's `ctime` writes it.
fn time_of_day(_: &[Value], context: &EvalContext<'_>) -> Result<Value, SqlError> {
    let template = Value::Text("Dy Mon DD HH24:MI:SS.US YYYY TZ".into());
    to_char(&[Value::Timestamptz((context.clock)()), template], context)
}

fn to_char(arguments: &[Value], context: &EvalContext<'_>) -> Result<Value, SqlError> {
    let [value, Value::Text(template)] = arguments else { return Err(mismatch(arguments)) };
    let of_timestamp = |local: Timestamp, zone: Option<(i32, String)>| Parts {
        civil: local.date().civil(),
        day: local.date().0.into(),
        micros: local.time().0,
        zone,
        interval: false,
    };
    let parts = match value {
        Value::Timestamp(timestamp) | Value::Timestamptz(timestamp) if !timestamp.is_finite() => {
            return Ok(Value::Null);
        }
        Value::Timestamp(timestamp) => of_timestamp(*timestamp, None),
        Value::Timestamptz(timestamp) => {
            let zone = (context.zone.offset_at(*timestamp), context.zone.abbreviation_at(*timestamp));
            of_timestamp(timestamp.to_local(context.zone)?, Some(zone))
        }
        Value::Interval(interval) => of_interval(*interval),
        _ => return Err(mismatch(arguments)),
    };
    if template.is_empty() {
        return Ok(Value::Null);
    }
    let mut out = String::new();
    for item in parse_template(template)?.items {
        work::done(8)?;
        checked_length(out.len())?;
        match item {
            Item::Literal(character) | Item::Separator(character) => out.push(character),
            Item::Field { field, case, fill, ordinal: suffix, .. } => {
                let start = out.len();
                parts.write(field, case, fill, &mut out)?;
                if let Some(capitals) = suffix
                    && out[start..].ends_with(|last: char| last.is_ascii_digit())
                {
                    let suffix = ordinal(&out[start..], capitals);
                    out.push_str(suffix);
                }
            }
        }
    }
    Ok(Value::text(out))
}

fn of_interval(interval: Interval) -> Parts {
    let (year, month) = (interval.months / 12, interval.months % 12);
    Parts {
        // Months and days of intervals may be zero or negative.
        civil: Civil { year, month: month as u32, day: interval.days as u32 },
        day: i64::from(interval.months) * 30 + i64::from(interval.days),
        micros: interval.micros,
        zone: None,
        interval: true,
    }
}

fn cased(text: &str, case: Case) -> String {
    match case {
        Case::Upper => text.to_ascii_uppercase(),
        Case::Lower => text.to_ascii_lowercase(),
        Case::Capital => text.to_owned(),
    }
}

fn put(out: &mut String, what: fmt::Arguments<'_>) {
    let _ = out.write_fmt(what);
}

/// Whether only a date has this field, and no interval.
fn is_of_calendar(field: Field) -> bool {
    matches!(
        field,
        Field::Era(_)
            | Field::MonthName
            | Field::MonthShort
            | Field::DayName
            | Field::DayShort
            | Field::DayOfWeek
            | Field::IsoDayOfWeek
            | Field::IsoYear(_)
            | Field::IsoWeek
            | Field::IsoDayOfYear
            | Field::Julian
            | Field::Zone
            | Field::ZoneHour
            | Field::ZoneMinute
            | Field::ZoneOffset
    )
}

fn half_day(hour: i64, points: bool) -> &'static str {
    match (hour % 24 >= 12, points) {
        (false, true) => "A.M.",
        (false, false) => "AM",
        (true, true) => "P.M.",
        (true, false) => "PM",
    }
}

/// The last digits of a year; all of them are shown where four are asked for.
fn last_digits(year: i64, digits: usize) -> i64 {
    if digits == 4 { year } else { year % 10i64.pow(digits as u32) }
}

fn roman_month(month: i32, year: i64) -> Option<String> {
    match month {
        0 if year == 0 => None,
        0 => roman_numeral(if year > 0 { 12 } else { 1 }),
        1.. => roman_numeral(month.into()),
        _ => roman_numeral((13 + month).into()),
    }
}

impl Parts {
    fn write(&self, field: Field, case: Case, fill: bool, out: &mut String) -> Result<(), SqlError> {
        if self.interval && is_of_calendar(field) {
            let message = "invalid format specification for an interval value";
            return Err(SqlError::new(SqlState::INVALID_DATETIME_FORMAT, message)
                .with_hint("Intervals are not tied to specific calendar dates."));
        }
        let padded = |width: usize| if fill { 0 } else { width };
        let name = |name: &str, out: &mut String| {
            let name = cased(name, case);
            put(out, format_args!("{name:<width$}", width = padded(9)));
        };
        let capitals = |text: &str| cased(text, if case == Case::Lower { Case::Lower } else { Case::Upper });
        let number = |number: i64, width: usize, out: &mut String| {
            // A sign does not count.
            let width = padded(width) + usize::from(number < 0);
            put(out, format_args!("{number:0width$}"));
        };
        // Fractions of seconds are filled up in any case.
        let exactly = |number: i64, width: usize, out: &mut String| put(out, format_args!("{number:0width$}"));
        let plain = |number: i64, out: &mut String| put(out, format_args!("{number}"));
        let (month, day_of_month) = (self.civil.month as i32, self.civil.day as i32);
        let year = i64::from(if self.interval { self.civil.year } else { self.civil.displayed_year() });
        let (hour, second_fraction) = (self.micros / HOUR, self.micros % SECOND);
        let month_name = MONTHS[(month.max(1) as usize - 1) % 12];
        let weekday = calendar::weekday(self.day);
        match field {
            Field::Era(points) => out.push_str(&capitals(self.era(points))),
            Field::HalfDay(points) => out.push_str(&capitals(half_day(hour, points))),
            Field::Century => number(self.century(), 2, out),
            Field::CommaYear => put(out, format_args!("{},{:03}", year / 1000, year % 1000)),
            Field::Year(digits) => number(last_digits(year, digits), digits, out),
            Field::IsoYear(digits) => {
                let iso = i64::from(self.civil.iso_week().0);
                number(last_digits(if iso > 0 { iso } else { 1 - iso }, digits), digits, out);
            }
            Field::Quarter if month <= 0 => {}
            Field::Quarter => plain(i64::from(month - 1) / 3 + 1, out),
            Field::Month => number(month.into(), 2, out),
            Field::MonthName => name(month_name, out),
            Field::MonthShort => out.push_str(&cased(&month_name[..3], case)),
            Field::MonthRoman => {
                let numeral = roman_month(month, year).map(|numeral| capitals(&numeral));
                numeral.iter().for_each(|numeral| put(out, format_args!("{numeral:<width$}", width = padded(4))));
            }
            Field::WeekOfYear => number((self.day_of_year() - 1) / 7 + 1, 2, out),
            Field::WeekOfMonth => plain(i64::from(day_of_month - 1) / 7 + 1, out),
            Field::IsoWeek => number(self.civil.iso_week().1.into(), 2, out),
            // Of these two the sign counts.
            Field::DayOfYear => exactly(self.day_of_year(), padded(3), out),
            Field::DayOfMonth => exactly(day_of_month.into(), padded(2), out),
            Field::IsoDayOfYear => {
                let (year, _) = self.civil.iso_week();
                number(self.day - calendar::iso_week_start(year.into(), 1) + 1, 3, out);
            }
            Field::DayOfWeek => plain(i64::from(weekday) + 1, out),
            Field::IsoDayOfWeek => plain((i64::from(weekday) + 6) % 7 + 1, out),
            Field::DayName => name(WEEKDAYS[weekday as usize], out),
            Field::DayShort => out.push_str(&cased(&WEEKDAYS[weekday as usize][..3], case)),
            Field::Julian => plain(self.day - i64::from(Date::MIN.0), out),
            Field::Hour24 => number(hour, 2, out),
            Field::Hour12 => number(if hour % 12 == 0 { 12 } else { hour % 12 }, 2, out),
            Field::Minute => number(self.micros / MINUTE % 60, 2, out),
            Field::Second => number(self.micros / SECOND % 60, 2, out),
            Field::Millisecond => exactly(second_fraction / 1000, 3, out),
            Field::Microsecond => exactly(second_fraction, 6, out),
            Field::Fraction(digits) => exactly(second_fraction / 10i64.pow(6 - digits), digits as usize, out),
            Field::SecondOfDay => plain(self.micros / SECOND, out),
            Field::Zone | Field::ZoneHour | Field::ZoneMinute | Field::ZoneOffset => {
                self.write_zone(field, case, padded(2), out);
            }
        }
        Ok(())
    }

    /// The name of the zone, or a part of its offset.
    fn write_zone(&self, field: Field, case: Case, width: usize, out: &mut String) {
        let offset = self.zone.as_ref().map_or(0, |(offset, _)| *offset);
        let sign = if offset < 0 { '-' } else { '+' };
        let (hours, minutes) = (offset.abs() / 3600, offset.abs() / 60 % 60);
        match (field, &self.zone) {
            (Field::Zone, Some((_, name))) if case == Case::Lower => out.push_str(&name.to_lowercase()),
            (Field::Zone, Some((_, name))) => out.push_str(name),
            (Field::Zone, None) => {}
            (Field::ZoneHour, _) => put(out, format_args!("{sign}{hours:02}")),
            (Field::ZoneMinute, _) => put(out, format_args!("{minutes:02}")),
            _ if minutes == 0 => put(out, format_args!("{sign}{hours:0width$}")),
            _ => put(out, format_args!("{sign}{hours:0width$}:{minutes:02}")),
        }
    }

    fn era(&self, points: bool) -> &'static str {
        match (self.civil.year > 0, points) {
            (true, true) => "A.D.",
            (true, false) => "AD",
            (false, true) => "B.C.",
            (false, false) => "BC",
        }
    }

    fn century(&self) -> i64 {
        match i64::from(self.civil.year) {
            year if self.interval => year / 100,
            year if year > 0 => (year + 99) / 100,
            year => year / 100 - 1,
        }
    }

    fn day_of_year(&self) -> i64 {
        if self.interval { self.day } else { self.civil.day_of_year() }
    }
}
