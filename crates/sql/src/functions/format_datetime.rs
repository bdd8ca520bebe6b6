//! Dates and times by templates: `to_char(now(), 'YYYY-MM-DD')`, `to_date`, `to_timestamp`.

use std::fmt::Write;

use super::{
    Function,
    format_number::{ordinal, quoted, roman_numeral},
    mismatch, take,
};
use crate::{
    SqlError, SqlState,
    types::{
        Date, EvalContext, Interval, Kind, TimeZone, Timestamp, Value,
        datetime::{
            DAY, HOUR, MINUTE, SECOND,
            calendar::{self, Civil, MONTHS, WEEKDAYS},
        },
    },
};

const T: Kind = Kind::Text;

pub(super) const FUNCTIONS: &[Function] = &[
    Function::new("to_char", &[Kind::Timestamp, T], T, to_char).stable(),
    Function::new("to_char", &[Kind::Timestamptz, T], T, to_char).stable(),
    Function::new("to_char", &[Kind::Interval, T], T, to_char).stable(),
    Function::new("to_date", &[T, T], Kind::Date, to_date).stable(),
    Function::new("to_timestamp", &[T, T], Kind::Timestamptz, to_timestamp).stable(),
];

/// How letters are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Case {
    Upper,
    Capital,
    Lower,
}

/// What a template asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Field {
    /// With points between the letters?
    Era(bool),
    HalfDay(bool),
    Century,
    /// `Y,YYY`
    CommaYear,
    /// The last so many digits; four mean all.
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
enum Item {
    Field {
        field: Field,
        name: &'static str,
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

/// The pieces of a template, and whether input must keep to it exactly.
fn parse_template(template: &str) -> (Vec<Item>, bool) {
    let mut items = Vec::new();
    let mut exact = false;
    let mut rest = template;
    while let Some(first) = rest.chars().next() {
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
            items.push(Item::Field { field, name, case, fill, ordinal: suffix });
            continue;
        }
        if ahead.len() < rest.len() {
            rest = ahead;
            continue;
        }
        if first == '"' {
            let (literal, length) = quoted(&rest[1..]);
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
    (items, exact)
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
    for item in parse_template(template).0 {
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

impl Parts {
    fn write(&self, field: Field, case: Case, fill: bool, out: &mut String) -> Result<(), SqlError> {
        let padded = |width: usize| if fill { 0 } else { width };
        let name = |name: &str, out: &mut String| {
            let name = cased(name, case);
            let _ = write!(out, "{name:<width$}", width = padded(9));
        };
        let number = |number: i64, width: usize, out: &mut String| {
            // A sign does not count.
            let width = padded(width) + usize::from(number < 0);
            let _ = write!(out, "{number:0width$}");
        };
        // Fractions of seconds are filled up in any case.
        let exactly = |number: i64, width: usize, out: &mut String| {
            let _ = write!(out, "{number:0width$}");
        };
        let (month, day_of_month) = (self.civil.month as i32, self.civil.day as i32);
        let year = i64::from(if self.interval { self.civil.year } else { self.civil.displayed_year() });
        let hour = self.micros / HOUR;
        let second_fraction = self.micros % SECOND;
        if self.interval
            && matches!(
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
        {
            return Err(SqlError::new(
                SqlState::INVALID_DATETIME_FORMAT,
                "invalid format specification for an interval value",
            )
            .with_hint("Intervals are not tied to specific calendar dates."));
        }
        match field {
            Field::Era(points) => {
                let text = match (self.civil.year > 0, points) {
                    (true, true) => "A.D.",
                    (true, false) => "AD",
                    (false, true) => "B.C.",
                    (false, false) => "BC",
                };
                out.push_str(&cased(text, if case == Case::Lower { Case::Lower } else { Case::Upper }));
            }
            Field::HalfDay(points) => {
                let text = match (hour % 24 >= 12, points) {
                    (false, true) => "A.M.",
                    (false, false) => "AM",
                    (true, true) => "P.M.",
                    (true, false) => "PM",
                };
                out.push_str(&cased(text, if case == Case::Lower { Case::Lower } else { Case::Upper }));
            }
            Field::Century => {
                let year = i64::from(self.civil.year);
                let century = if self.interval {
                    year / 100
                } else if year > 0 {
                    (year + 99) / 100
                } else {
                    year / 100 - 1
                };
                number(century, 2, out);
            }
            Field::CommaYear => {
                let _ = write!(out, "{},{:03}", year / 1000, year % 1000);
            }
            Field::Year(4) => number(year, 4, out),
            Field::Year(digits) => number(year % 10i64.pow(digits as u32), digits, out),
            Field::IsoYear(digits) => {
                let iso = i64::from(self.civil.iso_week().0);
                let iso = if iso > 0 { iso } else { 1 - iso };
                if digits == 4 {
                    number(iso, 4, out);
                } else {
                    number(iso % 10i64.pow(digits as u32), digits, out);
                }
            }
            Field::Quarter => {
                if month > 0 {
                    let _ = write!(out, "{}", (month - 1) / 3 + 1);
                }
            }
            Field::Month => number(month.into(), 2, out),
            Field::MonthName => name(MONTHS[(month.max(1) as usize - 1) % 12], out),
            Field::MonthShort => out.push_str(&cased(&MONTHS[(month.max(1) as usize - 1) % 12][..3], case)),
            Field::MonthRoman => {
                let numeral = match month {
                    0 if year == 0 => None,
                    0 => roman_numeral(if year > 0 { 12 } else { 1 }),
                    1.. => roman_numeral(month.into()),
                    _ => roman_numeral((13 + month).into()),
                };
                if let Some(numeral) = numeral {
                    let numeral = cased(&numeral, if case == Case::Lower { Case::Lower } else { Case::Upper });
                    let _ = write!(out, "{numeral:<width$}", width = padded(4));
                }
            }
            Field::WeekOfYear => number((self.day_of_year() - 1) / 7 + 1, 2, out),
            Field::WeekOfMonth => {
                let _ = write!(out, "{}", (day_of_month - 1) / 7 + 1);
            }
            Field::IsoWeek => number(self.civil.iso_week().1.into(), 2, out),
            Field::DayOfYear => {
                let _ = write!(out, "{:0width$}", self.day_of_year(), width = padded(3));
            }
            Field::IsoDayOfYear => {
                let (year, _) = self.civil.iso_week();
                number(self.day - calendar::iso_week_start(year.into(), 1) + 1, 3, out);
            }
            // Here the sign counts.
            Field::DayOfMonth => {
                let _ = write!(out, "{day_of_month:0width$}", width = padded(2));
            }
            Field::DayOfWeek => {
                let _ = write!(out, "{}", calendar::weekday(self.day) + 1);
            }
            Field::IsoDayOfWeek => {
                let _ = write!(out, "{}", (calendar::weekday(self.day) + 6) % 7 + 1);
            }
            Field::DayName => name(WEEKDAYS[calendar::weekday(self.day) as usize], out),
            Field::DayShort => out.push_str(&cased(&WEEKDAYS[calendar::weekday(self.day) as usize][..3], case)),
            Field::Julian => {
                let _ = write!(out, "{}", self.day - i64::from(Date::MIN.0));
            }
            Field::Hour24 => number(hour, 2, out),
            Field::Hour12 => number(if hour % 12 == 0 { 12 } else { hour % 12 }, 2, out),
            Field::Minute => number(self.micros / MINUTE % 60, 2, out),
            Field::Second => number(self.micros / SECOND % 60, 2, out),
            Field::Millisecond => exactly(second_fraction / 1000, 3, out),
            Field::Microsecond => exactly(second_fraction, 6, out),
            Field::Fraction(digits) => exactly(second_fraction / 10i64.pow(6 - digits), digits as usize, out),
            Field::SecondOfDay => {
                let _ = write!(out, "{}", self.micros / SECOND);
            }
            Field::Zone => {
                if let Some((_, name)) = &self.zone {
                    let name = if case == Case::Lower { name.to_lowercase() } else { name.clone() };
                    out.push_str(&name);
                }
            }
            Field::ZoneHour => {
                let offset = self.zone.as_ref().map_or(0, |(offset, _)| *offset);
                let _ = write!(out, "{}{:02}", if offset < 0 { '-' } else { '+' }, offset.abs() / 3600);
            }
            Field::ZoneMinute => {
                let offset = self.zone.as_ref().map_or(0, |(offset, _)| *offset);
                let _ = write!(out, "{:02}", offset.abs() / 60 % 60);
            }
            Field::ZoneOffset => {
                let offset = self.zone.as_ref().map_or(0, |(offset, _)| *offset);
                let width = padded(2);
                let _ = write!(out, "{}{:0width$}", if offset < 0 { '-' } else { '+' }, offset.abs() / 3600);
                if offset.abs() / 60 % 60 != 0 {
                    let _ = write!(out, ":{:02}", offset.abs() / 60 % 60);
                }
            }
        }
        Ok(())
    }

    fn day_of_year(&self) -> i64 {
        if self.interval { self.day } else { self.civil.day_of_year() }
    }
}

/// What was read, field by field.
#[derive(Debug, Default)]
struct Reading {
    year: Option<i64>,
    /// How many digits of the year were asked for.
    year_digits: usize,
    iso_year: Option<i64>,
    before_christ: bool,
    century: Option<i64>,
    month: Option<i64>,
    day: Option<i64>,
    day_of_year: Option<i64>,
    iso_day_of_year: Option<i64>,
    week_of_year: Option<i64>,
    week_of_month: Option<i64>,
    iso_week: Option<i64>,
    /// From Monday.
    iso_weekday: Option<i64>,
    julian: Option<i64>,
    hour: Option<i64>,
    /// Whether hours are those of a clock with twelve.
    twelve: bool,
    afternoon: Option<bool>,
    minute: i64,
    second: i64,
    micros: i64,
    second_of_day: Option<i64>,
    zone_hour: Option<i64>,
    zone_minute: i64,
    zone_negative: bool,
    /// A zone by its name.
    offset: Option<i32>,
}

fn bad_value(value: &str, name: &str, detail: &str) -> SqlError {
    SqlError::new(SqlState::INVALID_DATETIME_FORMAT, format!("invalid value \"{value}\" for \"{name}\""))
        .with_detail(detail.to_owned())
}

/// Reads fields off a text.
struct Reader<'a> {
    rest: &'a str,
    /// Whether more was skipped than the template asked for, and a minus last.
    skipped_minus: bool,
    exact: bool,
}

impl<'a> Reader<'a> {
    fn skip_blanks(&mut self) -> i64 {
        let trimmed = self.rest.trim_start_matches(|character: char| character.is_ascii_whitespace());
        let skipped = self.rest.len() - trimmed.len();
        self.rest = trimmed;
        skipped as i64
    }

    /// A number of at most so many digits; of any number of them if nothing else follows that begins with one.
    fn number(&mut self, width: usize, name: &str, greedy: bool) -> Result<(i64, usize), SqlError> {
        self.skip_blanks();
        let limit = if greedy { usize::MAX } else { width };
        let signed = self.rest.starts_with(['-', '+']);
        let digits = self.rest[usize::from(signed)..].bytes().take_while(u8::is_ascii_digit).count();
        let length = (digits + usize::from(signed)).min(limit);
        let (text, rest) = self.rest.split_at(length);
        if !greedy && self.exact && length < width {
            return Err(SqlError::new(
                SqlState::INVALID_DATETIME_FORMAT,
                format!("source string too short for \"{name}\" formatting field"),
            )
            .with_detail(format!("Field requires {width} characters, but only {length} remain.")));
        }
        let number: Option<i64> = text.parse().ok();
        match number {
            Some(number) if i32::try_from(number).is_ok() => {
                self.rest = rest;
                Ok((number, digits.min(limit)))
            }
            Some(_) => Err(SqlError::new(
                SqlState::DATETIME_FIELD_OVERFLOW,
                format!("value for \"{name}\" in source string is out of range"),
            )
            .with_detail("Value must be in the range -2147483648 to 2147483647.")),
            None => {
                let shown: String = self.rest.chars().take(width.min(20)).collect();
                Err(bad_value(&shown, name, "Value must be an integer."))
            }
        }
    }

    /// One of several words, by its beginning.
    fn word(&mut self, words: &[&str], length: Option<usize>, name: &str) -> Result<usize, SqlError> {
        for (at, word) in words.iter().enumerate() {
            let word = length.map_or(*word, |length| &word[..length.min(word.len())]);
            if self.rest.get(..word.len()).is_some_and(|start| start.eq_ignore_ascii_case(word)) {
                self.rest = &self.rest[word.len()..];
                return Ok(at);
            }
        }
        let shown: String = self.rest.chars().take_while(|character| !character.is_whitespace()).collect();
        Err(bad_value(&shown, name, "The given value did not match any of the allowed values for this field."))
    }
}

/// Whether a field is read as a number.
fn is_numeric(field: Field) -> bool {
    !matches!(
        field,
        Field::Era(_)
            | Field::HalfDay(_)
            | Field::MonthName
            | Field::MonthShort
            | Field::MonthRoman
            | Field::DayName
            | Field::DayShort
            | Field::Zone
            | Field::ZoneOffset
    )
}

fn read(text: &str, template: &str) -> Result<Reading, SqlError> {
    let (items, exact) = parse_template(template);
    let mut reading = Reading::default();
    let mut reader = Reader { rest: text, skipped_minus: false, exact };
    // Blanks that were skipped and that the template has not asked for yet.
    let mut extra = 0i64;
    for (at, item) in items.iter().enumerate() {
        if !exact && (at == 0 || matches!(item, Item::Field { .. })) {
            extra += reader.skip_blanks();
        }
        if reader.rest.is_empty() {
            break;
        }
        let first = reader.rest.chars().next().unwrap_or(' ');
        match item {
            Item::Separator(_) if exact => reader.rest = &reader.rest[first.len_utf8()..],
            Item::Separator(_) => {
                // One of the template's stands for one of the text's, or for nothing.
                extra -= 1;
                if first.is_ascii_whitespace() || first.is_ascii_punctuation() {
                    reader.rest = &reader.rest[1..];
                    extra += 1;
                }
            }
            // Whatever stands there is taken.
            Item::Literal(_) if !exact && extra > 0 => extra -= 1,
            Item::Literal(_) => reader.rest = &reader.rest[first.len_utf8()..],
            Item::Field { field, name, fill, ordinal, .. } => {
                let digits_follow = match items.get(at + 1) {
                    Some(Item::Field { field, .. }) => is_numeric(*field),
                    Some(Item::Literal(character)) => character.is_ascii_digit(),
                    _ => false,
                };
                let greedy = *fill || !digits_follow;
                reader.skipped_minus = extra > 0 && text[..text.len() - reader.rest.len()].ends_with('-');
                reading.read(&mut reader, *field, name, greedy)?;
                if ordinal.is_some() {
                    reader.rest = reader.rest.get(2..).unwrap_or("");
                }
                if !exact {
                    extra = reader.skip_blanks();
                }
            }
        }
    }
    Ok(reading)
}

impl Reading {
    fn read(&mut self, reader: &mut Reader<'_>, field: Field, name: &str, greedy: bool) -> Result<(), SqlError> {
        let width = match field {
            Field::SecondOfDay => 5,
            Field::Fraction(digits) => digits as usize,
            Field::Millisecond => 3,
            Field::Microsecond => 6,
            Field::Hour24 | Field::Hour12 => 2,
            Field::ZoneHour | Field::ZoneMinute => 2,
            _ => name.len(),
        };
        let fraction = |digits: usize, value: i64, count: usize| {
            // Digits that are not there are zeros.
            let count = count.min(digits);
            value.checked_mul(10i64.pow((6 - count.min(6)) as u32)).unwrap_or(0)
        };
        match field {
            Field::Era(points) => {
                let words = if points { ["A.D.", "B.C."] } else { ["AD", "BC"] };
                self.before_christ = reader.word(&words, None, name)? == 1;
            }
            Field::HalfDay(points) => {
                let words = if points { ["A.M.", "P.M."] } else { ["AM", "PM"] };
                self.afternoon = Some(reader.word(&words, None, name)? == 1);
                self.twelve = true;
            }
            Field::Century => self.century = Some(reader.number(2, name, greedy)?.0),
            Field::CommaYear => {
                reader.skip_blanks();
                let (thousands, _) = reader.number(usize::MAX, name, true)?;
                let Some(after) = reader.rest.strip_prefix(',') else {
                    return Err(SqlError::new(SqlState::INVALID_DATETIME_FORMAT, "invalid input string for \"Y,YYY\""));
                };
                reader.rest = after;
                let (rest, _) = reader.number(3, name, false)?;
                self.year = Some(thousands * 1000 + rest);
                self.year_digits = 4;
            }
            Field::Year(digits) | Field::IsoYear(digits) => {
                let (value, read) = reader.number(digits, name, greedy)?;
                // A year of fewer digits is near 2020.
                let value = if digits < 4 && read < 4 { near_2020(value) } else { value };
                if matches!(field, Field::Year(_)) {
                    self.year = Some(value);
                    self.year_digits = digits;
                } else {
                    self.iso_year = Some(value);
                }
            }
            // It says nothing that the month does not.
            Field::Quarter => {
                reader.number(1, name, greedy)?;
            }
            Field::Month => self.month = Some(reader.number(2, name, greedy)?.0),
            Field::MonthName => self.month = Some(reader.word(&MONTHS, None, name)? as i64 + 1),
            Field::MonthShort => self.month = Some(reader.word(&MONTHS, Some(3), name)? as i64 + 1),
            Field::MonthRoman => {
                const NUMERALS: [&str; 12] = ["VIII", "VII", "III", "XII", "II", "VI", "IV", "IX", "XI", "I", "V", "X"];
                const NUMBERS: [i64; 12] = [8, 7, 3, 12, 2, 6, 4, 9, 11, 1, 5, 10];
                self.month = Some(NUMBERS[reader.word(&NUMERALS, None, name)?]);
            }
            Field::WeekOfYear => self.week_of_year = Some(reader.number(2, name, greedy)?.0),
            Field::WeekOfMonth => self.week_of_month = Some(reader.number(1, name, greedy)?.0),
            Field::IsoWeek => self.iso_week = Some(reader.number(2, name, greedy)?.0),
            Field::DayOfYear => self.day_of_year = Some(reader.number(3, name, greedy)?.0),
            Field::IsoDayOfYear => self.iso_day_of_year = Some(reader.number(3, name, greedy)?.0),
            Field::DayOfMonth => self.day = Some(reader.number(2, name, greedy)?.0),
            Field::DayOfWeek => {
                reader.number(1, name, greedy)?;
            }
            Field::IsoDayOfWeek => self.iso_weekday = Some(reader.number(1, name, greedy)?.0),
            Field::DayName => {
                reader.word(&WEEKDAYS, None, name)?;
            }
            Field::DayShort => {
                reader.word(&WEEKDAYS, Some(3), name)?;
            }
            Field::Julian => self.julian = Some(reader.number(usize::MAX, name, true)?.0),
            Field::Hour24 => self.hour = Some(reader.number(width, name, greedy)?.0),
            Field::Hour12 => {
                self.hour = Some(reader.number(width, name, greedy)?.0);
                self.twelve = true;
            }
            Field::Minute => self.minute = reader.number(width, name, greedy)?.0,
            Field::Second => self.second = reader.number(width, name, greedy)?.0,
            Field::Millisecond => {
                let (value, count) = reader.number(width, name, greedy)?;
                self.micros = fraction(3, value, count);
            }
            Field::Microsecond => {
                let (value, count) = reader.number(width, name, greedy)?;
                self.micros = fraction(6, value, count);
            }
            Field::Fraction(digits) => {
                let (value, count) = reader.number(width, name, greedy)?;
                self.micros = fraction(digits as usize, value, count);
            }
            Field::SecondOfDay => self.second_of_day = Some(reader.number(width, name, greedy)?.0),
            Field::ZoneHour => {
                let signed = reader.rest.starts_with(['-', '+', ' ']);
                self.zone_negative = if signed { reader.rest.starts_with('-') } else { reader.skipped_minus };
                reader.rest = reader.rest.strip_prefix(['-', '+', ' ']).unwrap_or(reader.rest);
                self.zone_hour = Some(reader.number(width, name, greedy)?.0);
            }
            Field::ZoneMinute => {
                self.zone_hour.get_or_insert(0);
                self.zone_minute = reader.number(width, name, greedy)?.0;
            }
            Field::Zone | Field::ZoneOffset => {
                return Err(SqlError::new(
                    SqlState::FEATURE_NOT_SUPPORTED,
                    format!("formatting field \"{name}\" is only supported in to_char"),
                ));
            }
        }
        Ok(())
    }

    /// The day, counted from 2000-01-01.
    fn day(&self, text: &str) -> Result<i64, SqlError> {
        let error = || {
            SqlError::new(SqlState::DATETIME_FIELD_OVERFLOW, format!("date/time field value out of range: \"{text}\""))
        };
        if let Some(julian) = self.julian {
            return Ok(julian + i64::from(Date::MIN.0));
        }
        let mut year = self.year.unwrap_or(0);
        if let Some(century) = self.century {
            if self.year.is_some() && self.year_digits <= 2 {
                // The century says what the year's last digits leave open.
                year = year.rem_euclid(100);
                year += if year != 0 { (century - 1) * 100 } else { century * 100 };
            } else if self.year.is_none() {
                year = if century > 0 { (century - 1) * 100 + 1 } else { century * 100 + 1 };
            }
        }
        if self.before_christ && year > 0 {
            year = 1 - year;
        } else if year < 0 {
            year += 1;
        }
        if let (Some(week), iso_year) = (self.iso_week, self.iso_year) {
            let start = calendar::iso_week_start(iso_year.unwrap_or(year), week);
            return Ok(start + self.iso_weekday.unwrap_or(1) - 1);
        }
        if let Some(day) = self.iso_day_of_year {
            return Ok(calendar::iso_week_start(self.iso_year.unwrap_or(year), 1) + day - 1);
        }
        if let Some(iso_year) = self.iso_year {
            year = iso_year;
        }
        let mut day_of_year = self.day_of_year;
        if let Some(week) = self.week_of_year {
            day_of_year = Some((week - 1) * 7 + 1);
        }
        if let Some(day) = day_of_year
            && self.month.is_none()
        {
            if !(1..=365 + i64::from(calendar::is_leap(year))).contains(&day) {
                return Err(error());
            }
            return Ok(calendar::days(year, 1, 1) + day - 1);
        }
        let month = self.month.unwrap_or(1);
        let mut day = self.day.unwrap_or(1);
        if let Some(week) = self.week_of_month {
            day = (week - 1) * 7 + 1;
        }
        if !(1..=12).contains(&month) || !(1..=calendar::days_in_month(year, month)).contains(&day) {
            return Err(error());
        }
        Ok(calendar::days(year, month, day))
    }

    /// Microseconds since midnight.
    fn clock(&self, text: &str) -> Result<i64, SqlError> {
        let error = || {
            SqlError::new(SqlState::DATETIME_FIELD_OVERFLOW, format!("date/time field value out of range: \"{text}\""))
        };
        let (mut hour, mut minute, mut second) = (self.hour.unwrap_or(0), self.minute, self.second);
        if let Some(seconds) = self.second_of_day {
            (hour, minute, second) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
        }
        if self.twelve && self.hour.is_some() {
            if !(1..=12).contains(&hour) {
                return Err(SqlError::new(
                    SqlState::INVALID_DATETIME_FORMAT,
                    format!("hour \"{hour}\" is invalid for the 12-hour clock"),
                )
                .with_hint("Use the 24-hour clock, or give an hour between 1 and 12."));
            }
            match self.afternoon {
                Some(true) if hour < 12 => hour += 12,
                Some(false) | None if hour == 12 => hour = 0,
                _ => {}
            }
        }
        if !(0..24).contains(&hour) || !(0..60).contains(&minute) || !(0..60).contains(&second) {
            return Err(error());
        }
        Ok(hour * HOUR + minute * MINUTE + second * SECOND + self.micros)
    }
}

/// A year of at most three digits, in the century that makes it nearest to 2020.
fn near_2020(year: i64) -> i64 {
    match year {
        0..70 => year + 2000,
        70..100 => year + 1900,
        100..520 => year + 2000,
        520..1000 => year + 1000,
        _ => year,
    }
}

fn to_date(arguments: &[Value], _: &EvalContext<'_>) -> Result<Value, SqlError> {
    take!(arguments: Text(text), Text(template));
    let reading = read(text, template)?;
    reading.clock(text)?;
    Date::new(reading.day(text)?)
        .map(Value::Date)
        .ok_or_else(|| SqlError::new(SqlState::DATETIME_FIELD_OVERFLOW, format!("date out of range: \"{text}\"")))
}

fn to_timestamp(arguments: &[Value], context: &EvalContext<'_>) -> Result<Value, SqlError> {
    take!(arguments: Text(text), Text(template));
    let reading = read(text, template)?;
    let micros = i128::from(reading.day(text)?) * i128::from(DAY) + i128::from(reading.clock(text)?);
    let out_of_range = || SqlError::new(SqlState::DATETIME_FIELD_OVERFLOW, "timestamp out of range");
    let local = Timestamp::new(micros).ok_or_else(out_of_range)?;
    let zone = match (reading.zone_hour, reading.offset) {
        (Some(hour), _) => {
            let seconds = hour * 3600 + reading.zone_minute * 60;
            TimeZone::fixed(if reading.zone_negative { -seconds } else { seconds })?
        }
        (None, Some(offset)) => TimeZone::fixed(offset.into())?,
        (None, None) => context.zone,
    };
    local.to_utc(zone).map(Value::Timestamptz)
}
