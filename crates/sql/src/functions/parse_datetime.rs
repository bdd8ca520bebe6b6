//! Dates and times read by templates: `to_date('2024-02-29', 'YYYY-MM-DD')`, `to_timestamp`.

use super::{
    Function,
    format_datetime::{Field, Item, parse_template},
    take,
};
use crate::{
    SqlError, SqlState,
    types::{
        Date, EvalContext, Kind, TimeZone, Timestamp, Value,
        datetime::{
            DAY, HOUR, MINUTE, SECOND,
            calendar::{self, MONTHS, WEEKDAYS},
        },
    },
    work,
};

const T: Kind = Kind::Text;

pub(super) const FUNCTIONS: &[Function] = &[
    Function::new("to_date", &[T, T], Kind::Date, to_date).stable(),
    Function::new("to_timestamp", &[T, T], Kind::Timestamptz, to_timestamp).stable(),
];

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
    /// Counted from Monday, which is 1.
    iso_weekday: Option<i64>,
    julian: Option<i64>,
    hour: Option<i64>,
    /// Whether hours are those of a clock with twelve.
    twelve: bool,
    afternoon: Option<bool>,
    minute: i64,
    second: i64,
    micros: i64,
    /// To how many digits of a second it is rounded.
    precision: Option<u32>,
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
}

impl<'a> Reader<'a> {
    fn skip_blanks(&mut self) -> i64 {
        let trimmed = self.rest.trim_start_matches(|character: char| character.is_ascii_whitespace());
        let skipped = self.rest.len() - trimmed.len();
        self.rest = trimmed;
        skipped as i64
    }

    /// A number of exactly this many characters; of any number of them if nothing follows that
    /// begins with a digit. Returns how many digits it has, too.
    fn number(&mut self, width: usize, name: &str, greedy: bool) -> Result<(i64, usize), SqlError> {
        let invalid = |message: String, detail: String| {
            SqlError::new(SqlState::INVALID_DATETIME_FORMAT, message)
                .with_detail(detail)
                .with_hint("If your source string is not fixed-width, try using the \"FM\" modifier.")
        };
        self.skip_blanks();
        let shown = &self.rest[..self.rest.floor_char_boundary(width)];
        if !greedy && self.rest.len() < width {
            return Err(invalid(
                format!("source string too short for \"{name}\" formatting field"),
                format!("Field requires {width} characters, but only {} remain.", self.rest.len()),
            ));
        }
        let signed = self.rest.starts_with(['-', '+']);
        // What is not taken is not looked at: it comes again.
        let most = if greedy { usize::MAX } else { width - usize::from(signed) };
        let digits = self.rest.bytes().skip(signed.into()).take(most).take_while(u8::is_ascii_digit).count();
        let length = digits + usize::from(signed);
        let (text, rest) = self.rest.split_at(length);
        if !greedy && digits > 0 && length < width {
            return Err(invalid(
                format!("invalid value \"{shown}\" for \"{name}\""),
                format!("Field requires {width} characters, but only {length} could be parsed."),
            ));
        }
        let number: Option<i64> = text.parse().ok();
        match number {
            Some(number) if i32::try_from(number).is_ok() => {
                self.rest = rest;
                Ok((number, digits))
            }
            None if digits == 0 => Err(bad_value(shown, name, "Value must be an integer.")),
            _ => Err(SqlError::new(
                SqlState::DATETIME_FIELD_OVERFLOW,
                format!("value for \"{name}\" in source string is out of range"),
            )
            .with_detail("Value must be in the range -2147483648 to 2147483647.")),
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
            // It may have a sign.
            | Field::ZoneHour
            | Field::ZoneOffset
    )
}

fn read(text: &str, template: &str) -> Result<Reading, SqlError> {
    let template = parse_template(template)?;
    let (items, exact) = (&template.items, template.exact);
    let mut reading = Reading::default();
    let mut reader = Reader { rest: text, skipped_minus: false };
    // Blanks that were skipped and that the template has not asked for yet.
    let mut extra = 0i64;
    for (at, item) in items.iter().enumerate() {
        work::done(4)?;
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
                let greedy = *fill || ordinal.is_some() || !digits_follow;
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
                self.micros = fraction(6, value, count);
                self.precision = Some(digits);
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
        // What is zero does not count.
        let given = |field: Option<i64>| field.filter(|number| *number != 0);
        if let Some(julian) = given(self.julian) {
            return Ok(julian + i64::from(Date::MIN.0));
        }
        let mut year = self.year.unwrap_or(0);
        if let Some(century) = given(self.century) {
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
        if let (Some(week), iso_year) = (given(self.iso_week), given(self.iso_year)) {
            let start = calendar::iso_week_start(iso_year.unwrap_or(year), week);
            return Ok(start + given(self.iso_weekday).unwrap_or(1) - 1);
        }
        if let Some(day) = given(self.iso_day_of_year) {
            return Ok(calendar::iso_week_start(given(self.iso_year).unwrap_or(year), 1) + day - 1);
        }
        if let Some(iso_year) = given(self.iso_year) {
            year = iso_year;
        }
        let mut day_of_year = given(self.day_of_year);
        if let Some(week) = given(self.week_of_year) {
            day_of_year = Some((week - 1) * 7 + 1);
        }
        if let Some(day) = day_of_year
            && given(self.month).is_none()
        {
            if !(1..=365 + i64::from(calendar::is_leap(year))).contains(&day) {
                return Err(error());
            }
            return Ok(calendar::days(year, 1, 1) + day - 1);
        }
        let month = given(self.month).unwrap_or(1);
        let mut day = given(self.day).unwrap_or(1);
        if let Some(week) = given(self.week_of_month) {
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
    let local = Timestamp::new(micros).ok_or_else(out_of_range)?.rounded(reading.precision)?;
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
