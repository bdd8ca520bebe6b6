//! Values of settings: how they are read, checked and shown.

use std::time::Duration;

use freshet_sql::{
    SqlError, SqlState,
    functions::quote_identifier,
    types::{
        Formats,
        datetime::{DateOrder, DateStyle, IntervalStyle},
    },
};

use crate::syntax::clipped;

/// The unit in which a number counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// It counts nothing.
    One,
    /// Bytes.
    Bytes,
    /// 1024 bytes.
    Kilobytes,
    /// Blocks of 8 kB.
    Blocks,
    /// 1024 kB.
    Megabytes,
    /// Thousandths of a second.
    Milliseconds,
    /// Seconds.
    Seconds,
    /// 60 seconds.
    Minutes,
}

/// Units of memory, in bytes.
const MEMORY: &[(&str, f64)] =
    &[("TB", 1_099_511_627_776.0), ("GB", 1_073_741_824.0), ("MB", 1_048_576.0), ("kB", 1024.0), ("B", 1.0)];

/// Units of time, in microseconds.
const TIME: &[(&str, f64)] = &[("d", 8.64e10), ("h", 3.6e9), ("min", 6e7), ("s", 1e6), ("ms", 1e3), ("us", 1.0)];

impl Unit {
    /// By its name in `pg_settings`.
    pub fn named(name: &str) -> Option<Self> {
        Some(match name {
            "" => Self::One,
            "B" => Self::Bytes,
            "kB" => Self::Kilobytes,
            "8kB" => Self::Blocks,
            "MB" => Self::Megabytes,
            "ms" => Self::Milliseconds,
            "s" => Self::Seconds,
            "min" => Self::Minutes,
            _ => return None,
        })
    }

    /// Its name in `pg_settings`.
    pub fn name(self) -> Option<&'static str> {
        Some(match self {
            Self::One => return None,
            Self::Bytes => "B",
            Self::Kilobytes => "kB",
            Self::Blocks => "8kB",
            Self::Megabytes => "MB",
            Self::Milliseconds => "ms",
            Self::Seconds => "s",
            Self::Minutes => "min",
        })
    }

    /// The units that values may have, each with its size, and the size of this one.
    fn table(self) -> (&'static [(&'static str, f64)], f64) {
        match self {
            Self::One => (&[], 1.0),
            Self::Bytes => (MEMORY, 1.0),
            Self::Kilobytes => (MEMORY, 1024.0),
            Self::Blocks => (MEMORY, 8192.0),
            Self::Megabytes => (MEMORY, 1_048_576.0),
            Self::Milliseconds => (TIME, 1e3),
            Self::Seconds => (TIME, 1e6),
            Self::Minutes => (TIME, 6e7),
        }
    }

    /// A number with the greatest unit that divides it.
    pub fn show_integer(self, number: i64) -> String {
        let (table, own) = self.table();
        if number <= 0 {
            return number.to_string();
        }
        let all = number as f64 * own;
        // Every value is a multiple of the least unit.
        let unit = table.iter().find(|(_, size)| all % size == 0.0);
        unit.map_or_else(|| number.to_string(), |(name, size)| format!("{}{name}", (all / size) as i64))
    }

    /// The same for a number that need not be whole.
    pub fn show_real(self, number: f64) -> String {
        let (table, own) = self.table();
        if number <= 0.0 {
            return general(number);
        }
        let whole = |size: f64| {
            let count = number * own / size;
            count > 0.0 && (count.round() / count - 1.0).abs() <= 1e-8
        };
        let unit = table.iter().find(|(_, size)| whole(*size)).or(table.last());
        unit.map_or_else(|| general(number), |(name, size)| format!("{}{name}", general(number * own / size)))
    }

    /// A number as `pg_settings` has it: without its unit, in this one.
    pub fn plain(self, shown: &str) -> Option<String> {
        let number = self.read(shown).ok()?;
        Some(if number.fract() == 0.0 && number.abs() < 1e15 { format!("{number:.0}") } else { general(number) })
    }

    /// A number, in this unit.
    ///
    /// # Errors
    /// A hint, if there is one.
    pub fn read(self, text: &str) -> Result<f64, Option<String>> {
        let (number, rest) = number(text.trim_ascii_start()).ok_or(None)?;
        let unit = rest.trim_ascii();
        if unit.is_empty() {
            return Ok(number);
        }
        let (table, own) = self.table();
        if table.is_empty() {
            return Err(None);
        }
        let place = table.iter().position(|(name, _)| *name == unit).ok_or_else(|| Some(self.hint()))?;
        let size = table[place].1;
        let mut value = number * size / own;
        // What is said of a greater unit counts in whole smaller ones.
        if let Some((_, next)) = table.get(place + 1).filter(|(_, next)| *next >= own) {
            value = (value * own / next).round_ties_even() * next / own;
        }
        Ok(value)
    }

    fn hint(self) -> String {
        let units = match self.table().0.first() {
            Some(("TB", _)) => "\"B\", \"kB\", \"MB\", \"GB\", and \"TB\"",
            _ => "\"us\", \"ms\", \"s\", \"min\", \"h\", and \"d\"",
        };
        format!("Valid units for this parameter are {units}.")
    }
}

/// The number at the beginning of a text, as C reads it, and what follows it.
fn number(text: &str) -> Option<(f64, &str)> {
    let digits_at = usize::from(text.starts_with(['-', '+']));
    let (sign, unsigned) = text.split_at(digits_at);
    let sign = if sign == "-" { -1.0 } else { 1.0 };
    let radix = |digits: &'_ str, radix: u32| {
        let end = digits.find(|c: char| !c.is_digit(radix)).unwrap_or(digits.len());
        // A number that is too large for this is too large for every setting.
        Some((i64::from_str_radix(digits.get(..end)?, radix).map_or(1e300, |number| number as f64), end))
    };
    if let Some(digits) = unsigned.strip_prefix("0x").or_else(|| unsigned.strip_prefix("0X")) {
        let (number, end) = radix(digits, 16).filter(|(_, end)| *end > 0)?;
        return Some((sign * number, &digits[end..]));
    }
    let bytes = unsigned.as_bytes();
    let digits = |from: usize| bytes[from..].iter().take_while(|byte| byte.is_ascii_digit()).count();
    let mut end = digits(0);
    let mut counted = end;
    let mut plain = true;
    if bytes.get(end) == Some(&b'.') {
        let more = digits(end + 1);
        (counted, end, plain) = (counted + more, end + 1 + more, false);
    }
    if counted == 0 {
        return None;
    }
    if matches!(bytes.get(end), Some(b'e' | b'E')) {
        let signed = end + 1 + usize::from(matches!(bytes.get(end + 1), Some(b'+' | b'-')));
        if signed <= bytes.len() && digits(signed) > 0 {
            (end, plain) = (signed + digits(signed), false);
        }
    }
    let (number, rest) = unsigned.split_at(end);
    if plain && number.len() > 1 && number.starts_with('0') {
        let (value, octal) = radix(number, 8)?;
        return Some((sign * value, &unsigned[octal..]));
    }
    Some((sign * number.parse::<f64>().ok()?, rest))
}

/// A number as C prints it with `%g`.
pub fn general(number: f64) -> String {
    if number == 0.0 {
        return "0".to_owned();
    }
    let scientific = format!("{number:.5e}");
    let (mantissa, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    let short = |text: &str| match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => text.to_owned(),
    };
    if (-4..6).contains(&exponent) {
        return short(&format!("{number:.*}", usize::try_from(5 - exponent).unwrap_or(0)));
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{}e{sign}{:02}", short(mantissa), exponent.abs())
}

/// The error 22023: the setting cannot have this value.
pub fn invalid(name: &str, value: &str) -> SqlError {
    let message = format!("invalid value for parameter \"{name}\": \"{value}\"");
    SqlError::new(SqlState::INVALID_PARAMETER_VALUE, message)
}

fn with_hint(error: SqlError, hint: Option<String>) -> SqlError {
    match hint {
        Some(hint) => error.with_hint(hint),
        None => error,
    }
}

fn outside(name: &str, unit: Unit, [value, least, most]: [String; 3]) -> SqlError {
    let (space, unit) = unit.name().map_or(("", ""), |unit| (" ", unit));
    let message =
        format!("{value}{space}{unit} is outside the valid range for parameter \"{name}\" ({least} .. {most})");
    SqlError::new(SqlState::INVALID_PARAMETER_VALUE, message)
}

/// A whole number as it is shown.
///
/// # Errors
/// 22023
pub fn integer(name: &str, unit: Unit, least: i64, most: i64, value: &str) -> Result<String, SqlError> {
    let number = unit.read(value).map_err(|hint| with_hint(invalid(name, value), hint))?.round_ties_even();
    if number > f64::from(i32::MAX) || number < f64::from(i32::MIN) {
        return Err(invalid(name, value).with_hint("Value exceeds integer range."));
    }
    let number = number as i64;
    if !(least..=most).contains(&number) {
        return Err(outside(name, unit, [number, least, most].map(|number| number.to_string())));
    }
    Ok(unit.show_integer(number))
}

/// Any number as it is shown.
///
/// # Errors
/// 22023
pub fn real(name: &str, unit: Unit, least: f64, most: f64, value: &str) -> Result<String, SqlError> {
    let number = unit.read(value).map_err(|hint| with_hint(invalid(name, value), hint))?;
    if number < least || number > most {
        return Err(outside(name, unit, [number, least, most].map(general)));
    }
    Ok(unit.show_real(number))
}

/// A truth value as it is shown.
///
/// # Errors
/// 22023
pub fn boolean(name: &str, value: &str) -> Result<&'static str, SqlError> {
    match truth(value) {
        Some(true) => Ok("on"),
        Some(false) => Ok("off"),
        None => {
            let message = format!("parameter \"{name}\" requires a Boolean value");
            Err(SqlError::new(SqlState::INVALID_PARAMETER_VALUE, message))
        }
    }
}

/// How values are written and read, as DateStyle and IntervalStyle show it, whether bytea_output is
/// `escape`, and extra_float_digits.
pub fn formats(dates: &str, intervals: &str, bytea_escape: bool, float_digits: i8) -> Formats {
    let (style, order) = dates.split_once(", ").unwrap_or_default();
    Formats {
        date: DateStyle::named(style).unwrap_or_default(),
        order: DateOrder::named(order).unwrap_or_default(),
        interval: IntervalStyle::named(intervals).unwrap_or_default(),
        bytea_escape,
        float_digits,
    }
}

/// A truth value as settings write them: any beginning that can be only one of them.
pub fn truth(value: &str) -> Option<bool> {
    let value = value.to_ascii_lowercase();
    let begins = |word: &str| !value.is_empty() && word.starts_with(&value);
    match value.as_str() {
        "on" | "1" => Some(true),
        "of" | "off" | "0" => Some(false),
        _ if begins("true") || begins("yes") => Some(true),
        _ if begins("false") || begins("no") => Some(false),
        _ => None,
    }
}

/// One of several words, as it is shown.
///
/// # Errors
/// 22023
pub fn choice(name: &str, choices: &[&'static str], value: &str) -> Result<&'static str, SqlError> {
    let lower = value.to_ascii_lowercase();
    let has = |wanted: &str| choices.iter().copied().find(|choice| *choice == wanted);
    // What else the choices are called.
    let other = || match lower.as_str() {
        "debug" => has("debug2"),
        "true" | "yes" | "1" => has("on"),
        "false" | "no" | "0" => has("off"),
        "panic" | "fatal" | "info" if name == "client_min_messages" => has(match lower.as_str() {
            "info" => "notice",
            _ => "error",
        }),
        _ => None,
    };
    has(&lower)
        .or_else(other)
        .ok_or_else(|| invalid(name, value).with_hint(format!("Available values: {}.", choices.join(", "))))
}

/// DateStyle as it is shown, from any of its parts.
///
/// # Errors
/// 22023
pub fn date_style(value: &str, now: &str, start: &str) -> Result<String, SqlError> {
    let (mut style, mut order) = now.split_once(", ").unwrap_or(("ISO", "MDY"));
    let (mut new_style, mut new_order) = (None, None);
    let mut conflict = false;
    for word in value.split(',').map(|word| word.trim_ascii().trim_matches('"')) {
        let lower = word.to_ascii_lowercase();
        let (to_style, to_order) = match lower.as_str() {
            "iso" => (Some("ISO"), None),
            "sql" => (Some("SQL"), None),
            lower if lower.starts_with("postgres") => (Some("Postgres"), None),
            "german" => (Some("German"), None),
            "ymd" => (None, Some("YMD")),
            lower if lower == "dmy" || lower.starts_with("euro") => (None, Some("DMY")),
            lower if lower == "mdy" || lower == "us" || lower.starts_with("noneuro") => (None, Some("MDY")),
            "default" => {
                // What is said elsewhere in the list counts more.
                let (default_style, default_order) = start.split_once(", ").unwrap_or(("ISO", "MDY"));
                if new_style.is_none() {
                    style = default_style;
                }
                if new_order.is_none() {
                    order = default_order;
                }
                continue;
            }
            _ => {
                let detail = format!("Unrecognized key word: \"{lower}\".");
                return Err(invalid("DateStyle", value).with_detail(detail));
            }
        };
        conflict |= to_style.is_some() && new_style.is_some_and(|there| Some(there) != to_style);
        conflict |= to_order.is_some() && new_order.is_some_and(|there| Some(there) != to_order);
        (new_style, new_order) = (to_style.or(new_style), to_order.or(new_order));
    }
    if conflict {
        return Err(invalid("DateStyle", value).with_detail("Conflicting \"datestyle\" specifications."));
    }
    // German dates begin with the day, unless something else is said.
    let german = if new_style == Some("German") { Some("DMY") } else { None };
    Ok(format!("{}, {}", new_style.unwrap_or(style), new_order.or(german).unwrap_or(order)))
}

/// A list of names, each quoted where it must be.
pub fn names(values: &[String]) -> String {
    values.iter().map(|name| quote_identifier(name).to_string()).collect::<Vec<_>>().join(", ")
}

/// The names of such a list, as PostgreSQL reads them; nothing when it is none.
pub fn split_names(list: &str) -> Option<Vec<String>> {
    let mut names = Vec::new();
    let mut rest = list.trim_ascii_start();
    if rest.is_empty() {
        return Some(names);
    }
    loop {
        if let Some(mut quoted) = rest.strip_prefix('"') {
            let mut name = String::new();
            loop {
                let end = quoted.find('"')?;
                name.push_str(&quoted[..end]);
                quoted = &quoted[end + 1..];
                // A quote within it is there twice.
                match quoted.strip_prefix('"') {
                    Some(more) => {
                        name.push('"');
                        quoted = more;
                    }
                    None => break,
                }
            }
            names.push(clipped(&name).to_owned());
            rest = quoted;
        } else {
            let end = rest.find(|letter: char| letter == ',' || letter.is_ascii_whitespace()).unwrap_or(rest.len());
            if end == 0 {
                return None;
            }
            names.push(clipped(&rest[..end].to_ascii_lowercase()).to_owned());
            rest = &rest[end..];
        }
        rest = rest.trim_ascii_start();
        if rest.is_empty() {
            return Some(names);
        }
        rest = rest.strip_prefix(',')?.trim_ascii_start();
    }
}

/// Whether a setting that is nobody's can have this name: identifiers with points between them.
pub fn is_custom_name(name: &str) -> bool {
    let simple = |part: &str| {
        let mut letters = part.chars();
        letters.next().is_some_and(|first| first.is_ascii_alphabetic() || first == '_' || !first.is_ascii())
            && letters.all(|letter| letter.is_ascii_alphanumeric() || matches!(letter, '_' | '$') || !letter.is_ascii())
    };
    name.contains('.') && name.split('.').all(simple)
}

/// A time that is not zero.
pub fn duration(shown: &str) -> Option<Duration> {
    let milliseconds = Unit::Milliseconds.read(shown).ok()?;
    (milliseconds > 0.0).then(|| Duration::from_micros((milliseconds * 1000.0) as u64))
}

/// A number of bytes.
pub fn memory(shown: &str) -> Option<usize> {
    let bytes = Unit::Bytes.read(shown).ok()?;
    (0.0..1e15).contains(&bytes).then_some(bytes as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_in_a_list_may_have_anything_in_them() {
        let read = |list: &str| split_names(list).map(|names| names.join("|"));
        assert_eq!(read(r#" A , "B,c" ,"d""e", "f g""#).unwrap(), r#"a|B,c|d"e|f g"#);
        assert_eq!(read("").unwrap(), "");
        for wrong in ["a,", ",a", "a b", "\"a", "\"a\"b"] {
            assert_eq!(read(wrong), None, "{wrong}");
        }
        let odd = ["a,b".to_owned(), "\"".to_owned(), " ".to_owned()];
        assert_eq!(split_names(&names(&odd)).unwrap(), odd);
    }

    #[test]
    fn numbers_are_shown_with_the_greatest_unit() {
        let kb = |value| integer("work_mem", Unit::Kilobytes, 64, i32::MAX.into(), value).unwrap();
        let ms = |value| integer("t", Unit::Milliseconds, 0, i32::MAX.into(), value).unwrap();
        for (value, shown) in [("1.5GB", "1536MB"), ("64", "64kB"), (" 0x80 kB ", "128kB"), ("0200", "128kB")] {
            assert_eq!(kb(value), shown, "{value}");
        }
        for (value, shown) in [("1.5s", "1500ms"), ("3600000", "1h"), ("0", "0"), ("1d", "1d"), ("999us", "1ms")] {
            assert_eq!(ms(value), shown, "{value}");
        }
        assert_eq!(integer("temp_buffers", Unit::Blocks, 100, 1 << 30, "100").unwrap(), "800kB");
        assert_eq!(real("vacuum_cost_delay", Unit::Milliseconds, 0.0, 100.0, "1.5ms").unwrap(), "1500us");
        for (number, shown) in
            [(0.0025, "0.0025"), (1e-5, "1e-05"), (f64::MAX, "1.79769e+308"), (4.0, "4"), (1e6, "1e+06")]
        {
            assert_eq!(general(number), shown);
        }
        assert_eq!(Unit::Milliseconds.plain("1500us"), Some("1.5".to_owned()));
    }

    #[test]
    fn wrong_numbers_are_refused_in_postgresqls_words() {
        let refused = |value| {
            let fields = integer("t", Unit::Milliseconds, 0, i32::MAX.into(), value).unwrap_err().into_report();
            (fields.message.into_owned(), fields.hint.map(|hint| hint.to_string()))
        };
        let range = "-1 ms is outside the valid range for parameter \"t\" (0 .. 2147483647)".to_owned();
        assert_eq!(refused("-1"), (range, None));
        assert_eq!(refused("99999999999999").1.unwrap(), "Value exceeds integer range.");
        assert!(refused("1 x").1.unwrap().starts_with("Valid units"));
        for value in ["", "x", "-", ".", "0x", "1e", "é1"] {
            assert!(refused(value).0.starts_with("invalid value"), "{value}");
        }
    }

    #[test]
    fn date_styles_are_completed() {
        let style = |value| date_style(value, "SQL, DMY", "ISO, MDY");
        for (value, whole) in [
            ("iso", "ISO, DMY"),
            ("german", "German, DMY"),
            ("german, ymd", "German, YMD"),
            ("us", "SQL, MDY"),
            ("Postgres, European", "Postgres, DMY"),
            ("default", "ISO, MDY"),
        ] {
            assert_eq!(style(value).unwrap(), whole, "{value}");
        }
        assert!(style("iso, sql").is_err() && style("x").is_err() && style("ymd, mdy").is_err());
    }
}
