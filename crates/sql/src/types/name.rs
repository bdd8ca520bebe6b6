//! Types by the names that statements give them.

use sqlparser::ast::{
    self, ArrayElemTypeDef, CharacterLength, DataType, DateTimeField, ExactNumberInfo, IntervalFields, ObjectName,
    ObjectNamePart, TimezoneInfo,
};

use super::{
    Kind, Type,
    ty::{interval_fields, no_modifier},
};
use crate::{SqlError, SqlState};

impl Type {
    /// The type that a statement names.
    ///
    /// # Errors
    /// 42704 when there is no such type, 22023 when its modifier makes no sense, 0A000 for an array
    /// of arrays' elements that have no array type.
    pub fn from_sql(name: &DataType) -> Result<Self, SqlError> {
        Ok(match name {
            DataType::Bool | DataType::Boolean => Self::BOOL,
            DataType::SmallInt(None) | DataType::Int2(None) => Self::INT2,
            DataType::Int(None) | DataType::Integer(None) | DataType::Int4(None) => Self::INT4,
            DataType::BigInt(None) | DataType::Int8(None) => Self::INT8,
            DataType::Real | DataType::Float4 => Self::FLOAT4,
            DataType::DoublePrecision | DataType::Float8 => Self::FLOAT8,
            DataType::Float(digits) => float(digits)?,
            DataType::Numeric(digits) | DataType::Decimal(digits) | DataType::Dec(digits) => match *digits {
                ExactNumberInfo::None => Self::NUMERIC,
                ExactNumberInfo::Precision(digits) => Self::numeric(clamp(digits), 0)?,
                ExactNumberInfo::PrecisionAndScale(digits, scale) => Self::numeric(clamp(digits), scale)?,
            },
            DataType::Text => Self::TEXT,
            DataType::Varchar(length) | DataType::CharacterVarying(length) | DataType::CharVarying(length) => {
                match character_length(length) {
                    None => Self::VARCHAR,
                    Some(length) => Self::varchar(length)?,
                }
            }
            DataType::Char(length) | DataType::Character(length) => Self::char(character_length(length).unwrap_or(1))?,
            DataType::Bytea => Self::BYTEA,
            DataType::Uuid => Self::UUID,
            DataType::JSON => Self::JSON,
            DataType::JSONB => Self::JSONB,
            DataType::Regclass => Self::REGCLASS,
            DataType::Date => Self::DATE,
            DataType::Time(digits, TimezoneInfo::None | TimezoneInfo::WithoutTimeZone) => timed(Kind::Time, *digits)?,
            DataType::Time(digits, TimezoneInfo::WithTimeZone | TimezoneInfo::Tz) => timed(Kind::Timetz, *digits)?,
            DataType::Timestamp(digits, zone) => match zone {
                TimezoneInfo::None | TimezoneInfo::WithoutTimeZone => timed(Kind::Timestamp, *digits)?,
                TimezoneInfo::WithTimeZone | TimezoneInfo::Tz => timed(Kind::Timestamptz, *digits)?,
            },
            DataType::Interval { fields, precision } => {
                Self::interval(fields.as_ref().map_or(0, interval_bits), precision.map(clamp))?
            }
            DataType::Array(
                ArrayElemTypeDef::SquareBracket(element, _)
                | ArrayElemTypeDef::AngleBracket(element)
                | ArrayElemTypeDef::Parenthesis(element),
            ) => {
                let element = Self::from_sql(element)?;
                // text[][] is text[]: how many dimensions there are is the value's business.
                if element.kind().is_array() && element.kind().array().is_none() {
                    element
                } else {
                    element.to_array().ok_or_else(|| undefined(&format!("{element}[]")))?
                }
            }
            DataType::Custom(name, modifiers) => custom(name, modifiers)?,
            _ => return Err(undefined(&name.to_string().to_lowercase())),
        })
    }

    /// The type of a literal such as `date '…'`: `char '…'` has any length.
    ///
    /// # Errors
    /// As for [`Self::from_sql`].
    pub fn of_literal(name: &DataType) -> Result<Self, SqlError> {
        match name {
            DataType::Char(None) | DataType::Character(None) => Ok(Self::of(Kind::Char)),
            name => Self::from_sql(name),
        }
    }

    /// The type of `INTERVAL '…' YEAR TO MONTH` and its like: which fields it has, and how many
    /// digits its seconds have.
    ///
    /// # Errors
    /// 42601 when there are no such fields, 22023 when the number of digits makes no sense.
    pub fn of_interval(interval: &ast::Interval) -> Result<Self, SqlError> {
        let fields = match &interval.leading_field {
            Some(leading) => literal_fields(leading, interval.last_field.as_ref())?,
            None => 0,
        };
        let digits = interval.fractional_seconds_precision.or(interval.leading_precision);
        Self::interval(fields, digits.map(clamp))
    }

    /// The type that a name means, without the modifier that it may have: `int4`, `integer`,
    /// `text[]`, `"pg_catalog"."text"`, `numeric(10, 2)`.
    pub fn from_name(name: &str) -> Option<Self> {
        let (name, is_array) = without_brackets(name);
        let name = without_modifier(name)?;
        let name = name.trim();
        let (first, rest) = identifier(name)?;
        let ty = match rest.trim_start().strip_prefix('.') {
            Some(rest) if first == "pg_catalog" => {
                let (name, rest) = identifier(rest.trim())?;
                rest.is_empty().then(|| Kind::from_catalog_name(&name).map(Self::of))??
            }
            Some(_) => return None,
            None if name.starts_with('"') => {
                rest.is_empty().then(|| Kind::from_catalog_name(&first).map(Self::of))??
            }
            None => Self::from_words(&name.to_ascii_lowercase())?,
        };
        match (is_array, ty.kind().is_array() && ty.kind().array().is_none()) {
            (true, false) => Type::of(ty.kind()).to_array(),
            _ => Some(ty),
        }
    }

    /// The name that stands for these words.
    fn from_words(name: &str) -> Option<Self> {
        let words: Vec<&str> = name.split_ascii_whitespace().collect();
        Some(match words[..] {
            ["boolean"] => Self::BOOL,
            ["smallint"] => Self::INT2,
            ["int" | "integer"] => Self::INT4,
            ["bigint"] => Self::INT8,
            ["real"] => Self::FLOAT4,
            ["float"] | ["double", "precision"] => Self::FLOAT8,
            ["decimal" | "dec"] => Self::NUMERIC,
            ["character" | "char", "varying"] => Self::VARCHAR,
            ["character" | "char"] => Self::char(1).ok()?,
            ["time", "without", "time", "zone"] => Self::TIME,
            ["time", "with", "time", "zone"] => Self::of(Kind::Timetz),
            ["timestamp", "without", "time", "zone"] => Self::TIMESTAMP,
            ["timestamp", "with", "time", "zone"] => Self::TIMESTAMPTZ,
            [name] => Self::of(Kind::from_catalog_name(name)?),
            _ => return None,
        })
    }
}

/// A type's name without an array's brackets, and whether it has any.
fn without_brackets(name: &str) -> (&str, bool) {
    let (mut name, mut found) = (name.trim(), false);
    while let Some(open) = name.strip_suffix(']') {
        let Some(rest) = open.trim_end_matches(|it: char| it.is_ascii_digit()).strip_suffix('[') else { break };
        (name, found) = (rest.trim_end(), true);
    }
    (name, found)
}

/// A type's name without numbers in parentheses; nothing when the parentheses have something else.
fn without_modifier(name: &str) -> Option<std::borrow::Cow<'_, str>> {
    let mut quoted = false;
    let open = name.find(|it: char| {
        quoted ^= it == '"';
        it == '(' && !quoted
    });
    let Some(open) = open else { return Some(name.into()) };
    let (modifier, behind) = name[open + 1..].split_once(')')?;
    let number = |it: &str| !it.trim().is_empty() && it.trim().bytes().all(|byte| byte.is_ascii_digit());
    modifier.split(',').all(number).then(|| format!("{} {behind}", &name[..open]).into())
}

/// The identifier at the beginning of a text, as it is meant, and what follows it.
fn identifier(text: &str) -> Option<(String, &str)> {
    if let Some(quoted) = text.strip_prefix('"') {
        let (name, rest) = quoted.split_once('"')?;
        return (!name.is_empty()).then(|| (name.to_owned(), rest));
    }
    let end = text.find(|it: char| !(it.is_alphanumeric() || it == '_')).unwrap_or(text.len());
    (end > 0).then(|| (text[..end].to_ascii_lowercase(), &text[end..]))
}

fn undefined(name: &str) -> SqlError {
    SqlError::new(SqlState::UNDEFINED_OBJECT, format!("type \"{name}\" does not exist"))
}

fn clamp(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

fn character_length(length: &Option<CharacterLength>) -> Option<i64> {
    match length {
        Some(CharacterLength::IntegerLength { length, .. }) => Some(clamp(*length)),
        Some(CharacterLength::Max) | None => None,
    }
}

fn timed(kind: Kind, digits: Option<u64>) -> Result<Type, SqlError> {
    match digits {
        None => Ok(Type::of(kind)),
        Some(digits) => Type::with_precision(kind, clamp(digits)),
    }
}

fn float(bits: &ExactNumberInfo) -> Result<Type, SqlError> {
    let error = |message| Err(SqlError::new(SqlState::INVALID_PARAMETER_VALUE, message));
    match *bits {
        ExactNumberInfo::None => Ok(Type::FLOAT8),
        ExactNumberInfo::Precision(0) => error("precision for type float must be at least 1 bit"),
        ExactNumberInfo::Precision(1..=24) => Ok(Type::FLOAT4),
        ExactNumberInfo::Precision(25..=53) => Ok(Type::FLOAT8),
        ExactNumberInfo::Precision(_) => error("precision for type float must be less than 54 bits"),
        ExactNumberInfo::PrecisionAndScale(..) => Err(no_modifier(Kind::Float8)),
    }
}

fn interval_bits(fields: &IntervalFields) -> i32 {
    use interval_fields::*;
    match fields {
        IntervalFields::Year => YEAR,
        IntervalFields::Month => MONTH,
        IntervalFields::Day => DAY,
        IntervalFields::Hour => HOUR,
        IntervalFields::Minute => MINUTE,
        IntervalFields::Second => SECOND,
        IntervalFields::YearToMonth => YEAR | MONTH,
        IntervalFields::DayToHour => DAY | HOUR,
        IntervalFields::DayToMinute => DAY | HOUR | MINUTE,
        IntervalFields::DayToSecond => DAY | HOUR | MINUTE | SECOND,
        IntervalFields::HourToMinute => HOUR | MINUTE,
        IntervalFields::HourToSecond => HOUR | MINUTE | SECOND,
        IntervalFields::MinuteToSecond => MINUTE | SECOND,
    }
}

/// The fields of `INTERVAL '…' leading [TO last]`.
fn literal_fields(leading: &DateTimeField, last: Option<&DateTimeField>) -> Result<i32, SqlError> {
    use interval_fields::*;
    const ORDER: [i32; 6] = [YEAR, MONTH, DAY, HOUR, MINUTE, SECOND];
    let place = |field: &DateTimeField| {
        Some(match field {
            DateTimeField::Year => 0,
            DateTimeField::Month => 1,
            DateTimeField::Day => 2,
            DateTimeField::Hour => 3,
            DateTimeField::Minute => 4,
            DateTimeField::Second => 5,
            _ => return None,
        })
    };
    let range = place(leading).and_then(|first| {
        let last = last.map_or(Some(first), place)?;
        let years = last <= 1 && first <= 1;
        let clock = first >= 2 && last >= 2;
        (first <= last && (years || clock)).then_some(first..=last)
    });
    match range {
        Some(range) => Ok(ORDER[range].iter().fold(0, |fields, field| fields | field)),
        None => {
            let last = last.map_or_else(String::new, |last| format!(" to {last}"));
            let message = format!("syntax error at or near \"{leading}{last}\"");
            Err(SqlError::new(SqlState::SYNTAX_ERROR, message))
        }
    }
}

/// A type that the syntax has no word for, perhaps with a schema, perhaps with modifiers.
fn custom(name: &ObjectName, modifiers: &[String]) -> Result<Type, SqlError> {
    let unknown = || undefined(&name.to_string());
    let parts: Option<Vec<_>> = name.0.iter().map(ObjectNamePart::as_ident).collect();
    let ident = match parts.as_deref() {
        Some([ident]) => ident,
        Some([schema, ident]) if schema.value.eq_ignore_ascii_case("pg_catalog") => ident,
        _ => return Err(unknown()),
    };
    let kind = if ident.quote_style.is_some() {
        Kind::from_catalog_name(&ident.value)
    } else {
        // Unquoted, char is the padded type; it does not come here unless with a schema, where it
        // is the other.
        Kind::from_catalog_name(&ident.value.to_ascii_lowercase())
    };
    let Some(kind) = kind else {
        return match Type::from_name(&ident.value) {
            Some(ty) if modifiers.is_empty() && ident.quote_style.is_none() && parts.is_some_and(|p| p.len() == 1) => {
                Ok(ty)
            }
            _ => Err(unknown()),
        };
    };
    let modifiers: Vec<i64> =
        modifiers.iter().map(|modifier| modifier.trim().parse()).collect::<Result<_, _>>().map_err(|_| {
            SqlError::new(SqlState::INVALID_PARAMETER_VALUE, "type modifiers must be simple constants or identifiers")
        })?;
    match (kind, &modifiers[..]) {
        (kind, []) => Ok(Type::of(kind)),
        (Kind::Varchar, &[length]) => Type::varchar(length),
        (Kind::Char, &[length]) => Type::char(length),
        (Kind::Numeric, &[digits]) => Type::numeric(digits, 0),
        (Kind::Numeric, &[digits, scale]) => Type::numeric(digits, scale),
        (Kind::Time | Kind::Timetz | Kind::Timestamp | Kind::Timestamptz | Kind::Interval, &[digits]) => {
            Type::with_precision(kind, digits)
        }
        (Kind::Varchar | Kind::Char | Kind::Numeric | Kind::Time | Kind::Timestamp | Kind::Timestamptz, _) => {
            Err(SqlError::new(SqlState::INVALID_PARAMETER_VALUE, "invalid type modifier"))
        }
        _ => Err(no_modifier(kind)),
    }
}

#[cfg(test)]
mod tests {
    use sqlparser::{dialect::PostgreSqlDialect, parser::Parser};

    use super::*;

    fn parse(name: &str) -> Result<Type, SqlError> {
        let mut parser = Parser::new(&PostgreSqlDialect {}).try_with_sql(name).unwrap();
        Type::from_sql(&parser.parse_data_type().unwrap())
    }

    #[test]
    fn names_as_statements_write_them() {
        let cases = [
            ("int", "integer"),
            ("INTEGER", "integer"),
            ("int8", "bigint"),
            ("smallint", "smallint"),
            ("bool", "boolean"),
            ("float(24)", "real"),
            ("float", "double precision"),
            ("double precision", "double precision"),
            ("real", "real"),
            ("decimal(12,2)", "numeric(12,2)"),
            ("numeric(5)", "numeric(5,0)"),
            ("numeric", "numeric"),
            ("varchar(10)", "character varying(10)"),
            ("character varying", "character varying"),
            ("char", "character(1)"),
            ("char(12)", "character(12)"),
            ("bpchar", "bpchar"),
            ("\"char\"", "\"char\""),
            ("pg_catalog.\"char\"", "\"char\""),
            ("pg_catalog.int4", "integer"),
            ("name", "name"),
            ("oid", "oid"),
            ("regclass", "regclass"),
            ("pg_catalog.regtype", "regtype"),
            ("text[]", "text[]"),
            ("text[][]", "text[]"),
            ("varchar(3)[]", "character varying(3)[]"),
            ("timestamp", "timestamp without time zone"),
            ("timestamp(3) with time zone", "timestamp(3) with time zone"),
            ("timestamptz", "timestamp with time zone"),
            ("timestamp without time zone", "timestamp without time zone"),
            ("time(0)", "time(0) without time zone"),
            ("date", "date"),
            ("interval", "interval"),
            ("interval year to month", "interval year to month"),
            ("interval second(3)", "interval second(3)"),
            ("uuid", "uuid"),
            ("json", "json"),
            ("jsonb", "jsonb"),
            ("bytea", "bytea"),
            ("int2vector", "int2vector"),
        ];
        for (name, expected) in cases {
            assert_eq!(parse(name).map(|ty| ty.to_string()).as_deref(), Ok(expected), "{name}");
        }
    }

    #[test]
    fn names_of_nothing() {
        for (name, state, message) in [
            ("foo", "42704", "type \"foo\" does not exist"),
            ("hstore(3)", "42704", "type \"hstore\" does not exist"),
            ("other.int4", "42704", "type \"other.int4\" does not exist"),
            ("uuid[3][]", "", ""),
            ("name(3)", "42601", "type modifier is not allowed for type \"name\""),
            ("varchar(0)", "22023", "length for type varchar must be at least 1"),
            ("float(54)", "22023", "precision for type float must be less than 54 bits"),
        ] {
            match parse(name) {
                Ok(_) => assert!(state.is_empty(), "{name}"),
                Err(error) => assert_eq!((error.state.code(), &*error.message), (state, message)),
            }
        }
    }

    #[test]
    fn names_as_text() {
        assert_eq!(Type::from_name("double precision"), Some(Type::FLOAT8));
        assert_eq!(Type::from_name("pg_catalog.int4[]"), Type::INT4.to_array());
        assert_eq!(Type::from_name("\"char\""), Some(Type::SINGLE_CHAR));
        assert_eq!(Type::from_name("Timestamp with time zone"), Some(Type::TIMESTAMPTZ));
        let long = "[]".repeat(1_000_000);
        for nothing in ["nothing", "", "int4 int4", "other.int4", "\"INT4\"", "int4,int4", "int4(", "int4[", &long] {
            assert_eq!(Type::from_name(nothing), None, "{nothing}");
        }
        for name in ["\"pg_catalog\".\"int4\"", "pg_catalog.\"int4\"", "\"int4\"", " INT4 "] {
            assert_eq!(Type::from_name(name), Some(Type::INT4), "{name}");
        }
        assert_eq!(Type::from_name("\"pg_catalog\".\"int4\"[]"), Type::INT4.to_array());
        assert_eq!(Type::from_name("numeric(10, 2)"), Some(Type::NUMERIC));
        assert_eq!(Type::from_name("character varying(7)[]"), Type::VARCHAR.to_array());
        assert_eq!(Type::from_name("timestamp(3) with time zone"), Some(Type::TIMESTAMPTZ));
        assert_eq!(Type::from_name("text[][3] []"), Type::TEXT.to_array());
    }
}
