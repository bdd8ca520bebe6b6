//! Dates, times and timestamps as people write them.
//!
//! The text is cut into tokens first; each of them then fills in what it can tell. What is accepted
//! is what PostgreSQL accepts, but for time zones with rules of their own.

use super::{
    DAY, Date, DateOrder, HOUR, MINUTE, SECOND, Time, TimeTz, TimeZone, Timestamp, calendar,
    zone::{abbreviation, parse_displacement},
};
use crate::{
    SqlError, SqlState,
    types::{context::Begun, text::is_space},
};

/// A piece of a date, time or interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Token<'a> {
    /// Digits, perhaps with a point: `2024`, `3.5`.
    Number(&'a str),
    /// Digits with colons: `12:34:56.7`.
    Clock(&'a str),
    /// Begins with a digit, has `-`, `/` or `.` between its parts: `2024-02-29`, `29-Feb-2024`.
    Date(&'a str),
    /// Letters: `Feb`, `pm`, `infinity`.
    Word(&'a str),
    /// Begins with a letter and has other characters too: `Feb-29-2024`, `Europe/Berlin`,
    /// `EST5EDT`.
    Name(&'a str),
    /// Whether the sign is a minus, and digits, colons, points: `-08:00`, `+1.5`, `+1-2`.
    Signed(bool, &'a str),
    /// A sign and letters: `-infinity`.
    SignedWord(&'a str),
}

/// More than any date or interval has.
const MAX_TOKENS: usize = 25;

/// Why text is no date or time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Mistake {
    /// It does not look like one.
    Format,
    /// A field has a value that it cannot have.
    Field,
    /// The day or month has a value that it cannot have; perhaps they are the other way round.
    DayOrMonth,
    /// A field of an interval is too large.
    Interval,
    /// The offset from UTC is too large.
    Displacement,
    /// There is no time zone of this name.
    Zone(String),
    /// The sum of an interval's fields is too large.
    Sum,
}

impl Mistake {
    pub(super) fn error(self, ty: &str, text: &str) -> SqlError {
        let (state, message) = match self {
            Self::Format => {
                (SqlState::INVALID_DATETIME_FORMAT, format!("invalid input syntax for type {ty}: \"{text}\""))
            }
            Self::Field | Self::DayOrMonth => {
                (SqlState::DATETIME_FIELD_OVERFLOW, format!("date/time field value out of range: \"{text}\""))
            }
            Self::Interval => {
                (SqlState::INTERVAL_FIELD_OVERFLOW, format!("interval field value out of range: \"{text}\""))
            }
            Self::Displacement => (
                SqlState::INVALID_TIME_ZONE_DISPLACEMENT_VALUE,
                format!("time zone displacement out of range: \"{text}\""),
            ),
            Self::Zone(ref name) => (SqlState::INVALID_PARAMETER_VALUE, format!("time zone \"{name}\" not recognized")),
            Self::Sum => (SqlState::DATETIME_FIELD_OVERFLOW, "interval out of range".to_owned()),
        };
        let error = SqlError::new(state, message);
        if self == Self::DayOrMonth {
            return error.with_hint("Perhaps you need a different \"datestyle\" setting.");
        }
        error
    }
}

/// Cuts text into tokens.
pub(super) fn tokens(text: &str) -> Result<Vec<Token<'_>>, Mistake> {
    let bytes = text.as_bytes();
    let mut tokens = Vec::new();
    let mut at = 0;
    // All ends are at ASCII characters, so slices are valid.
    let run = |from: usize, accept: &dyn Fn(u8) -> bool| {
        from + bytes[from..].iter().take_while(|&&byte| accept(byte)).count()
    };
    let slice = |from: usize, to: usize| text.get(from..to).ok_or(Mistake::Format);
    while let Some(&first) = bytes.get(at) {
        let token = match first {
            _ if is_space(char::from(first)) => {
                at += 1;
                continue;
            }
            b'0'..=b'9' => {
                let mut end = run(at, &|byte| byte.is_ascii_digit());
                match bytes.get(end) {
                    Some(b':') => {
                        end = run(end, &|byte| byte.is_ascii_digit() || byte == b':' || byte == b'.');
                        Token::Clock(slice(at, end)?)
                    }
                    Some(&delimiter @ (b'-' | b'/' | b'.')) => {
                        let second = end + 1;
                        if bytes.get(second).is_some_and(u8::is_ascii_digit) {
                            end = run(second, &|byte| byte.is_ascii_digit());
                            // Two parts with a point are a number; a third part makes a date of
                            // them.
                            let third = bytes.get(end) == Some(&delimiter);
                            if third {
                                end = run(end, &|byte| byte.is_ascii_digit() || byte == delimiter);
                            }
                            match delimiter {
                                b'.' if !third => Token::Number(slice(at, end)?),
                                _ => Token::Date(slice(at, end)?),
                            }
                        } else if delimiter == b'.' && !bytes.get(second).is_some_and(u8::is_ascii_alphabetic) {
                            end = second;
                            Token::Number(slice(at, end)?)
                        } else {
                            end = run(end, &|byte| byte.is_ascii_alphanumeric() || byte == delimiter);
                            Token::Date(slice(at, end)?)
                        }
                    }
                    _ => Token::Number(slice(at, end)?),
                }
                .advance(&mut at, end)
            }
            b'.' => {
                let end = run(at + 1, &|byte| byte.is_ascii_digit());
                Token::Number(slice(at, end)?).advance(&mut at, end)
            }
            b'a'..=b'z' | b'A'..=b'Z' => {
                let mut end = run(at, &|byte| byte.is_ascii_alphabetic());
                let joined = match bytes.get(end) {
                    Some(b'-' | b'/' | b'.') => true,
                    // T040506 is a word and a number, EST5EDT is a name.
                    Some(b'+' | b'0'..=b'9') => !is_keyword(slice(at, end)?),
                    _ => false,
                };
                if joined {
                    end = run(end, &|byte| byte.is_ascii_alphanumeric() || b"+-/_.:".contains(&byte));
                    Token::Name(slice(at, end)?)
                } else {
                    Token::Word(slice(at, end)?)
                }
                .advance(&mut at, end)
            }
            b'+' | b'-' => {
                let start = run(at + 1, &|byte| is_space(char::from(byte)));
                match bytes.get(start) {
                    Some(b'0'..=b'9' | b'.') => {
                        let end = run(start, &|byte| byte.is_ascii_digit() || b":.-".contains(&byte));
                        Token::Signed(first == b'-', slice(start, end)?).advance(&mut at, end)
                    }
                    Some(byte) if byte.is_ascii_alphabetic() && start == at + 1 => {
                        let end = run(start, &|byte| byte.is_ascii_alphabetic());
                        Token::SignedWord(slice(at, end)?).advance(&mut at, end)
                    }
                    _ => return Err(Mistake::Format),
                }
            }
            _ if first.is_ascii_punctuation() => {
                at += 1;
                continue;
            }
            _ => return Err(Mistake::Format),
        };
        tokens.push(token);
        if tokens.len() > MAX_TOKENS {
            return Err(Mistake::Format);
        }
    }
    Ok(tokens)
}

impl Token<'_> {
    fn advance(self, at: &mut usize, end: usize) -> Self {
        *at = end;
        self
    }
}

/// What a word means. Words are cut to ten letters before they are looked up.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Keyword {
    Month(u32),
    Weekday,
    Special(Special),
    Pm,
    Am,
    BeforeChrist,
    AnnoDomini,
    Julian,
    /// The T between date and time, as in ISO 8601.
    IsoTime,
    DaylightSaving,
    Ignored,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Special {
    Now,
    Today,
    Tomorrow,
    Yesterday,
    Epoch,
    Infinity,
    MinusInfinity,
    Midnight,
}

fn keyword(word: &str) -> Option<Keyword> {
    let mut lower = [0; 10];
    let length = word.len().min(lower.len());
    lower[..length].copy_from_slice(&word.as_bytes()[..length]);
    lower.make_ascii_lowercase();
    let lower = std::str::from_utf8(&lower[..length]).ok()?;
    for (at, month) in calendar::MONTHS.iter().enumerate() {
        if month.eq_ignore_ascii_case(lower) || month[..3].eq_ignore_ascii_case(lower) {
            return Some(Keyword::Month(at as u32 + 1));
        }
    }
    Some(match lower {
        "sept" => Keyword::Month(9),
        "sun" | "sunday" | "mon" | "monday" | "tue" | "tues" | "tuesday" | "wed" | "weds" | "wednesday" | "thu"
        | "thur" | "thurs" | "thursday" | "fri" | "friday" | "sat" | "saturday" => Keyword::Weekday,
        "now" => Keyword::Special(Special::Now),
        "today" => Keyword::Special(Special::Today),
        "tomorrow" => Keyword::Special(Special::Tomorrow),
        "yesterday" => Keyword::Special(Special::Yesterday),
        "epoch" => Keyword::Special(Special::Epoch),
        "infinity" => Keyword::Special(Special::Infinity),
        "-infinity" => Keyword::Special(Special::MinusInfinity),
        "allballs" => Keyword::Special(Special::Midnight),
        "am" => Keyword::Am,
        "pm" => Keyword::Pm,
        "bc" => Keyword::BeforeChrist,
        "ad" => Keyword::AnnoDomini,
        "j" | "jd" | "julian" => Keyword::Julian,
        "t" => Keyword::IsoTime,
        "dst" => Keyword::DaylightSaving,
        "at" | "on" => Keyword::Ignored,
        _ => return None,
    })
}

fn is_keyword(word: &str) -> bool {
    // Units of ISO 8601 stand before digits as well.
    keyword(word).is_some() || matches!(word, "d" | "D" | "h" | "H" | "m" | "M" | "s" | "S" | "y" | "Y")
}

/// What the tokens of a date or time say.
#[derive(Debug, Default)]
struct Reading {
    year: Option<i64>,
    /// A year of one or two digits, of this century or the last.
    short_year: bool,
    month: Option<i64>,
    /// Whether the month was a word: the day may then stand where the month would.
    named_month: bool,
    day: Option<i64>,
    day_of_year: Option<i64>,
    before_christ: bool,
    /// The day by the number of a Julian day, counted from 2000-01-01.
    julian: Option<i64>,
    /// Microseconds, not yet checked.
    clock: Option<Clock>,
    half: Option<Half>,
    /// Seconds to the east.
    offset: Option<i32>,
    zone: Option<TimeZone>,
    special: Option<Special>,
    /// The next number belongs to this.
    pending: Option<Keyword>,
    /// Which number is which, where nothing else tells.
    order: DateOrder,
}

#[derive(Clone, Copy, Debug)]
struct Clock {
    hour: i64,
    minute: i64,
    second: i64,
    micros: i64,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Half {
    Am,
    Pm,
}

/// A fraction `.5` as microseconds.
pub(super) fn fraction_micros(digits: &str) -> Option<i64> {
    if digits.is_empty() {
        return Some(0);
    }
    if !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    format!("0.{digits}").parse::<f64>().ok().map(|fraction| (fraction * SECOND as f64).round_ties_even() as i64)
}

/// A number of digits only.
pub(super) fn whole(digits: &str) -> Option<i64> {
    (!digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit())).then(|| digits.parse().ok())?
}

impl Clock {
    /// `hh:mm`, `hh:mm:ss` or `mm:ss.f`.
    fn parse(text: &str) -> Result<Self, Mistake> {
        let (clock, fraction) = text.split_once('.').map_or((text, None), |(clock, rest)| (clock, Some(rest)));
        let micros = fraction_micros(fraction.unwrap_or("")).ok_or(Mistake::Format)?;
        let number = |text: &str| whole(text).filter(|number| *number < 1 << 32).ok_or(Mistake::Format);
        // What is left out at the end is zero.
        let or_zero = |text: &str| if text.is_empty() { Ok(0) } else { number(text) };
        let clock = match clock.split(':').collect::<Vec<_>>()[..] {
            [minute, second] if fraction.is_some() => {
                Self { hour: 0, minute: number(minute)?, second: number(second)?, micros }
            }
            [hour, minute] => Self { hour: number(hour)?, minute: or_zero(minute)?, second: 0, micros },
            [hour, minute, second] => {
                Self { hour: number(hour)?, minute: number(minute)?, second: or_zero(second)?, micros }
            }
            _ => return Err(Mistake::Format),
        };
        if clock.minute > 59 || clock.second > 60 {
            return Err(Mistake::Field);
        }
        Ok(clock)
    }

    fn micros(self, half: Option<Half>) -> Result<i64, Mistake> {
        let hour = match half {
            Some(_) if self.hour > 12 => return Err(Mistake::Field),
            Some(Half::Am) if self.hour == 12 => 0,
            Some(Half::Pm) if self.hour != 12 => self.hour + 12,
            _ => self.hour,
        };
        if self.minute > 59 || self.second > 60 || hour > 24 {
            return Err(Mistake::Field);
        }
        let micros = hour * HOUR + self.minute * MINUTE + self.second * SECOND + self.micros;
        if micros > DAY { Err(Mistake::Field) } else { Ok(micros) }
    }
}

impl Reading {
    fn of(text: &str, order: DateOrder) -> Result<Self, Mistake> {
        let mut reading = Self { order, ..Self::default() };
        let tokens = tokens(text)?;
        if tokens.is_empty() {
            return Err(Mistake::Format);
        }
        for token in tokens {
            reading.take(token)?;
        }
        if reading.pending.is_some() {
            return Err(Mistake::Format);
        }
        Ok(reading)
    }

    fn has_date(&self) -> bool {
        self.julian.is_some()
            || self.day_of_year.is_some()
            || (self.month.is_some() && self.day.is_some() && self.year.is_some())
    }

    fn set_clock(&mut self, clock: Clock) -> Result<(), Mistake> {
        if self.clock.replace(clock).is_some() { Err(Mistake::Format) } else { Ok(()) }
    }

    fn set_special(&mut self, special: Special) -> Result<(), Mistake> {
        if self.special.replace(special).is_some() { Err(Mistake::Format) } else { Ok(()) }
    }

    fn set_offset(&mut self, seconds: i32) -> Result<(), Mistake> {
        if self.zone.is_some() || self.offset.replace(seconds).is_some() { Err(Mistake::Format) } else { Ok(()) }
    }

    fn take(&mut self, token: Token<'_>) -> Result<(), Mistake> {
        if let Some(Keyword::Julian) = self.pending {
            let Token::Number(text) = token else { return Err(Mistake::Format) };
            self.pending = None;
            let (day, fraction) = text.split_once('.').unwrap_or((text, ""));
            let day = whole(day).ok_or(Mistake::Format)?;
            if day > 1 << 32 || self.has_date() {
                return Err(Mistake::Field);
            }
            self.julian = Some(day + i64::from(Date::MIN.0));
            if !fraction.is_empty() {
                let part = format!("0.{fraction}").parse::<f64>().map_err(|_| Mistake::Format)?;
                let micros = (part * DAY as f64) as i64;
                self.set_clock(Clock { hour: 0, minute: 0, second: 0, micros })?;
            }
            return Ok(());
        }
        match token {
            Token::Clock(text) => {
                self.pending = None;
                self.set_clock(Clock::parse(text)?)
            }
            Token::Number(text) => self.number(text),
            Token::Date(text) => self.date(text),
            Token::Name(text) => {
                // A month, a day and a year, or a place.
                if text.len() > 3
                    && matches!(keyword(text.split(['-', '/', '.']).next().unwrap_or("")), Some(Keyword::Month(_)))
                    && !self.has_date()
                {
                    return self.date(text);
                }
                if !self.has_date() && self.clock.is_none() {
                    return Err(Mistake::Format);
                }
                let zone = TimeZone::find(text).ok_or_else(|| Mistake::Zone(text.to_ascii_lowercase()))?;
                self.set_zone(zone)
            }
            Token::Signed(negative, digits) => {
                if self.clock.is_none() && self.special.is_none() && !self.has_date() {
                    return Err(Mistake::Format);
                }
                let seconds = parse_displacement(digits).ok_or_else(|| not_a_displacement(digits))?;
                self.set_offset(if negative { -seconds } else { seconds })
            }
            Token::SignedWord(word) => match keyword(word) {
                Some(Keyword::Special(special)) => self.set_special(special),
                _ => Err(Mistake::Format),
            },
            Token::Word(word) => self.word(word),
        }
    }

    fn set_zone(&mut self, zone: TimeZone) -> Result<(), Mistake> {
        match zone {
            TimeZone::Utc => self.set_offset(0),
            TimeZone::Fixed(seconds) => self.set_offset(seconds),
            _ if self.offset.is_some() || self.zone.is_some() => Err(Mistake::Format),
            TimeZone::Place(_) | TimeZone::Moscow => {
                self.zone = Some(zone);
                Ok(())
            }
        }
    }

    fn word(&mut self, word: &str) -> Result<(), Mistake> {
        match keyword(word) {
            Some(Keyword::Month(month)) => {
                // A number before a month's name was its day.
                if let (Some(day), false, None) = (self.month, self.named_month, self.day) {
                    self.day = Some(day);
                    self.month = None;
                }
                if self.month.replace(month.into()).is_some() {
                    return Err(Mistake::Format);
                }
                self.named_month = true;
            }
            Some(Keyword::Weekday | Keyword::Ignored) => {}
            Some(Keyword::Special(special)) => self.set_special(special)?,
            Some(Keyword::Am) => self.half = Some(Half::Am),
            Some(Keyword::Pm) => self.half = Some(Half::Pm),
            Some(Keyword::BeforeChrist) => self.before_christ = true,
            Some(Keyword::AnnoDomini) => self.before_christ = false,
            Some(keyword @ (Keyword::Julian | Keyword::IsoTime)) => self.pending = Some(keyword),
            Some(Keyword::DaylightSaving) => match &mut self.offset {
                Some(offset) => *offset += 3600,
                None => return Err(Mistake::Format),
            },
            None if word.eq_ignore_ascii_case("z") || word.eq_ignore_ascii_case("utc") => self.set_offset(0)?,
            None => match abbreviation(word) {
                Some(zone) => self.set_zone(zone)?,
                None => {
                    let zone = TimeZone::place(word).ok_or(Mistake::Format)?;
                    self.set_zone(zone)?;
                }
            },
        }
        Ok(())
    }

    /// Digits that stand alone.
    fn number(&mut self, text: &str) -> Result<(), Mistake> {
        let iso_time = self.pending.take() == Some(Keyword::IsoTime);
        let (digits, fraction) = text.split_once('.').map_or((text, None), |(digits, rest)| (digits, Some(rest)));
        if iso_time {
            return self.compact_clock(digits, fraction);
        }
        if let Some(fraction) = fraction {
            if self.year.is_none()
                && self.month.is_none()
                && self.day.is_none()
                && self.julian.is_none()
                && digits.len() == 4
                && fraction.len() <= 3
            {
                return self.date(text);
            }
            if digits.len() > 2 {
                return self.compact_clock(digits, Some(fraction));
            }
            return Err(Mistake::Format);
        }
        let all = self.has_date();
        if digits.len() >= 6 && !all && self.month.is_none() && self.day.is_none() && self.year.is_none() {
            // YYMMDD, or with a longer year.
            let (rest, day) = digits.split_at(digits.len() - 2);
            let (year, month) = rest.split_at(rest.len() - 2);
            self.year = whole(year);
            self.short_year = year.len() <= 2;
            self.month = whole(month);
            self.day = whole(day);
            return if self.year.is_some() { Ok(()) } else { Err(Mistake::Field) };
        }
        if all {
            return self.compact_clock(digits, None);
        }
        self.part(digits)
    }

    /// `hhmmss` or `hhmm`.
    fn compact_clock(&mut self, digits: &str, fraction: Option<&str>) -> Result<(), Mistake> {
        let micros = fraction_micros(fraction.unwrap_or("")).ok_or(Mistake::Format)?;
        let number = |from: usize, to: usize| digits.get(from..to).and_then(whole).ok_or(Mistake::Format);
        let (hour, minute, second) = match digits.len() {
            6 => (number(0, 2)?, number(2, 4)?, number(4, 6)?),
            4 if fraction.is_none() => (number(0, 2)?, number(2, 4)?, 0),
            _ => return Err(Mistake::Format),
        };
        self.set_clock(Clock { hour, minute, second, micros })
    }

    /// `2024-02-29`, `2/29/2024`, `29-Feb-2024`, `2024.060`.
    fn date(&mut self, text: &str) -> Result<(), Mistake> {
        let iso_time = self.pending.take() == Some(Keyword::IsoTime);
        if self.has_date() || iso_time {
            // A time and its zone: 040506-08.
            let (clock, zone) = text.split_once('-').ok_or(Mistake::Format)?;
            let (digits, fraction) = clock.split_once('.').map_or((clock, None), |(digits, rest)| (digits, Some(rest)));
            self.compact_clock(digits, fraction)?;
            let seconds = parse_displacement(zone).ok_or_else(|| not_a_displacement(zone))?;
            return self.set_offset(-seconds);
        }
        let mut numbers = Vec::new();
        for part in text.split(['-', '/', '.']) {
            if part.bytes().all(|byte| byte.is_ascii_digit()) {
                if part.is_empty() {
                    return Err(Mistake::Format);
                }
                numbers.push(part);
            } else {
                match keyword(part) {
                    Some(Keyword::Month(month)) if self.month.is_none() => {
                        self.month = Some(month.into());
                        self.named_month = true;
                    }
                    Some(Keyword::Weekday) => {}
                    _ => return Err(Mistake::Format),
                }
            }
        }
        if numbers.len() > 3 {
            return Err(Mistake::Format);
        }
        for number in numbers {
            self.part(number)?;
        }
        if self.has_date() { Ok(()) } else { Err(Mistake::Format) }
    }

    /// One number of a date: which one it is depends on its length and on what is known already.
    fn part(&mut self, digits: &str) -> Result<(), Mistake> {
        let value = whole(digits).filter(|value| *value <= i64::from(i32::MAX)).ok_or(Mistake::Field)?;
        if self.day_of_year.is_some() {
            return Err(Mistake::Format);
        }
        if digits.len() == 3 && self.year.is_some() && self.month.is_none() && self.day.is_none() {
            self.day_of_year = Some(value);
            return Ok(());
        }
        let year = |reading: &mut Self| {
            reading.year = Some(value);
            reading.short_year = digits.len() <= 2;
        };
        match (self.year, self.month, self.day) {
            (None, None, None) if digits.len() >= 3 || self.order == DateOrder::Ymd => year(self),
            (None, None, None) if self.order == DateOrder::Dmy => self.day = Some(value),
            (None, None, _) => self.month = Some(value),
            (Some(_), None, _) => self.month = Some(value),
            (None, Some(_), None) if self.named_month && (digits.len() >= 3 || self.order == DateOrder::Ymd) => {
                year(self);
            }
            (None, Some(_), None) => self.day = Some(value),
            (Some(first), Some(_), None) => {
                if self.named_month && digits.len() >= 3 && self.short_year {
                    // What looked like a year was the day.
                    self.day = Some(first);
                    year(self);
                } else {
                    self.day = Some(value);
                }
            }
            (None, Some(_), Some(_)) => year(self),
            (Some(_), Some(_), Some(_)) => return Err(Mistake::Format),
        }
        Ok(())
    }

    /// The day that the fields tell, counted from 2000-01-01.
    fn day(&self) -> Result<i64, Mistake> {
        if let Some(day) = self.julian {
            return Ok(day);
        }
        let mut year = self.year.ok_or(Mistake::Format)?;
        if self.before_christ {
            if year <= 0 {
                return Err(Mistake::Field);
            }
            year = 1 - year;
        } else if self.short_year {
            year += if year < 70 { 2000 } else { 1900 };
        } else if year <= 0 {
            return Err(Mistake::Field);
        }
        if let Some(day) = self.day_of_year {
            if !(1..=366).contains(&day) {
                return Err(Mistake::Field);
            }
            return Ok(calendar::days(year, 1, 1) + day - 1);
        }
        let (month, day) = (self.month.ok_or(Mistake::Format)?, self.day.ok_or(Mistake::Format)?);
        if !(1..=12).contains(&month) || !(1..=31).contains(&day) {
            return Err(Mistake::DayOrMonth);
        }
        if day > calendar::days_in_month(year, month) {
            return Err(Mistake::Field);
        }
        Ok(calendar::days(year, month, day))
    }

    /// Microseconds since midnight.
    fn micros(&self) -> Result<i64, Mistake> {
        match (self.clock, self.half) {
            (Some(clock), half) => clock.micros(half),
            (None, Some(Half::Pm)) => Ok(DAY / 2),
            (None, _) => Ok(0),
        }
    }
}

/// The mistake in what should be an offset from UTC.
fn not_a_displacement(text: &str) -> Mistake {
    let only_digits = text.bytes().all(|byte| byte.is_ascii_digit() || byte == b':');
    if only_digits { Mistake::Displacement } else { Mistake::Format }
}

/// What words like `now` refer to.
#[derive(Clone, Copy, Debug)]
pub struct Moment<'a> {
    /// When the transaction began. Only what depends on it asks.
    pub now: &'a Begun,
    /// The session's time zone, in which times without a zone are read.
    pub zone: TimeZone,
    /// The session's order of a date's fields.
    pub order: DateOrder,
}

impl Moment<'_> {
    fn local(self) -> Timestamp {
        let now = self.now.at();
        now.to_local(self.zone).unwrap_or(now)
    }
}

impl Date {
    /// Reads a date.
    ///
    /// # Errors
    /// 22007 when it is none, 22008 when there is no such day or it is out of range.
    pub fn parse(text: &str, moment: Moment<'_>) -> Result<Self, SqlError> {
        let read = || -> Result<i64, Mistake> {
            let reading = Reading::of(text, moment.order)?;
            let today = || i64::from(moment.local().date().0);
            let day = match reading.special {
                None => reading.day()?,
                Some(Special::Infinity) => return Ok(i64::from(i32::MAX)),
                Some(Special::MinusInfinity) => return Ok(i64::from(i32::MIN)),
                Some(Special::Epoch) => -UNIX_DAYS,
                Some(Special::Now | Special::Today) => today(),
                Some(Special::Tomorrow) => today() + 1,
                Some(Special::Yesterday) => today() - 1,
                Some(Special::Midnight) => return Err(Mistake::Format),
            };
            reading.micros()?;
            Ok(day)
        };
        let day = read().map_err(|mistake| mistake.error("date", text))?;
        if day == i64::from(i32::MAX) {
            return Ok(Self::INFINITY);
        }
        if day == i64::from(i32::MIN) {
            return Ok(Self::MINUS_INFINITY);
        }
        Self::new(day)
            .ok_or_else(|| SqlError::new(SqlState::DATETIME_FIELD_OVERFLOW, format!("date out of range: \"{text}\"")))
    }
}

const UNIX_DAYS: i64 = super::UNIX_EPOCH / DAY;

/// Reads a time of day; with a zone, how many seconds it is to the west, or the session's zone.
fn read_time(text: &str, moment: Moment<'_>, zoned: bool) -> Result<TimeTz, Mistake> {
    // Digits alone are a time here, not a date.
    let clock = text.trim_matches(is_space);
    let (clock, half) = match clock.rsplit_once(is_space) {
        Some((clock, word)) if word.eq_ignore_ascii_case("am") => (clock.trim_end(), Some(Half::Am)),
        Some((clock, word)) if word.eq_ignore_ascii_case("pm") => (clock.trim_end(), Some(Half::Pm)),
        _ => (clock, None),
    };
    let sign = clock.find(['+', '-']);
    let (clock, zone) = sign.map_or((clock, None), |at| (&clock[..at], Some(&clock[at + 1..])));
    let minus = sign.is_some_and(|at| text.trim_matches(is_space).as_bytes().get(at) == Some(&b'-'));
    let (digits, fraction) = clock.split_once('.').map_or((clock, None), |(digits, rest)| (digits, Some(rest)));
    let compact = matches!(digits.len(), 4 | 6) && digits.bytes().all(|byte| byte.is_ascii_digit());
    let displacement = zone.map(parse_displacement);
    let mut reading = if compact && displacement != Some(None) {
        let mut reading = Reading::default();
        reading.compact_clock(digits, fraction)?;
        reading.half = half;
        reading.offset = displacement.flatten().map(|seconds| if minus { -seconds } else { seconds });
        reading
    } else {
        Reading::of(text, moment.order)?
    };
    if reading.clock.is_none() && reading.special.is_none() {
        // T040506, or a number that was taken for part of a date.
        return Err(Mistake::Format);
    }
    let here = |micros: i64| {
        let midnight = i64::from(moment.local().date().0) * DAY;
        -moment.zone.offset_of_local(Timestamp(midnight + micros))
    };
    match reading.special.take() {
        None => {}
        Some(Special::Now) => {
            return Ok(TimeTz { micros: moment.local().time().0, west: -moment.zone.offset_at(moment.now.at()) });
        }
        Some(Special::Midnight) if reading.clock.is_none() => {
            return Ok(TimeTz { micros: 0, west: if zoned { 0 } else { here(0) } });
        }
        Some(Special::Today | Special::Tomorrow | Special::Yesterday) if reading.clock.is_some() => {}
        Some(_) => return Err(Mistake::Format),
    }
    // A place has no offset without a date.
    if reading.zone.is_some() && !reading.has_date() {
        return Err(Mistake::Format);
    }
    let mut day = None;
    if reading.has_date() {
        day = Some(reading.day()?);
    } else if reading.year.is_some() || reading.month.is_some() || reading.day.is_some() {
        return Err(Mistake::Format);
    }
    let micros = reading.micros()?;
    let west = match (reading.offset, reading.zone, day) {
        (Some(east), ..) => -east,
        (None, zone, Some(day)) => {
            let local = Timestamp(day.saturating_mul(DAY).saturating_add(micros));
            -zone.unwrap_or(moment.zone).offset_of_local(local)
        }
        (None, _, None) => here(micros),
    };
    Ok(TimeTz { micros, west })
}

impl Time {
    /// Reads a time of day.
    ///
    /// # Errors
    /// 22007 when it is none, 22008 when no day has it.
    pub fn parse(text: &str, moment: Moment<'_>) -> Result<Self, SqlError> {
        match read_time(text, moment, false) {
            Ok(time) => Ok(time.time()),
            Err(mistake) => Err(mistake.error("time", text)),
        }
    }
}

impl TimeTz {
    /// Reads a time of day with a zone: the session's, if it says none.
    ///
    /// # Errors
    /// 22007 when it is none, 22008 when no day has it, 22009 when there is no such zone.
    pub fn parse(text: &str, moment: Moment<'_>) -> Result<Self, SqlError> {
        read_time(text, moment, true).map_err(|mistake| mistake.error("time with time zone", text))
    }
}

impl Timestamp {
    /// Reads a timestamp; a zone in the text is ignored.
    ///
    /// # Errors
    /// 22007 when it is none, 22008 when it has an impossible field or is out of range.
    pub fn parse(text: &str, moment: Moment<'_>) -> Result<Self, SqlError> {
        Self::read(text, moment, "timestamp", None)
    }

    /// Reads a timestamp of the text's zone, or of the session's if it has none.
    ///
    /// # Errors
    /// 22007 when it is none, 22008 when it has an impossible field or is out of range, 22009 or
    /// 22023 when its zone is none.
    pub fn parse_zoned(text: &str, moment: Moment<'_>) -> Result<Self, SqlError> {
        Self::read(text, moment, "timestamp with time zone", Some(moment.zone))
    }

    fn read(text: &str, moment: Moment<'_>, ty: &str, zone: Option<TimeZone>) -> Result<Self, SqlError> {
        let mistake = |mistake: Mistake| mistake.error(ty, text);
        let too_far =
            || SqlError::new(SqlState::DATETIME_FIELD_OVERFLOW, format!("timestamp out of range: \"{text}\""));
        let reading = Reading::of(text, moment.order).map_err(mistake)?;
        let clock = reading.micros().map_err(mistake)?;
        let midnight = |offset: i64| i128::from(moment.local().date().0) + i128::from(offset);
        let day = match reading.special {
            None => i128::from(reading.day().map_err(mistake)?),
            Some(Special::Infinity) => return Ok(Self::INFINITY),
            Some(Special::MinusInfinity) => return Ok(Self::MINUS_INFINITY),
            Some(Special::Now) => return if zone.is_some() { Ok(moment.now.at()) } else { Ok(moment.local()) },
            Some(Special::Epoch) => {
                return Ok(Self(-super::UNIX_EPOCH));
            }
            Some(Special::Today) => midnight(0),
            Some(Special::Tomorrow) => midnight(1),
            Some(Special::Yesterday) => midnight(-1),
            Some(Special::Midnight) => return Err(mistake(Mistake::Format)),
        };
        let local = day * i128::from(DAY) + i128::from(clock);
        let Some(session) = zone else {
            return Self::new(local).ok_or_else(too_far);
        };
        let offset = match (reading.offset, reading.zone) {
            (Some(offset), _) => offset,
            (None, zone) => {
                let near = Self(local.clamp(Self::MIN.0.into(), Self::MAX.0.into()) as i64);
                zone.unwrap_or(session).offset_of_local(near)
            }
        };
        Self::new(local - i128::from(offset) * i128::from(SECOND)).ok_or_else(too_far)
    }
}
