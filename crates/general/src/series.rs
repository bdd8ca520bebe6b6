//! Functions that return sets of rows.

use std::{fmt, sync::Arc};

use datafusion_expr::Expr;
use freshet_sql::{
    Kind, SqlError, SqlState, Type, Value,
    functions::{SetDeclared, SetFunction, regexp_matches, resolve},
    types::{
        Array, EvalContext, Numeric, TimeZone, Timestamp,
        json::{self, Walk},
        numeric::Special,
    },
    work,
};

/// A function that returns a set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Series {
    /// `generate_series` of numbers or times of this kind.
    Generate(Kind),
    Unnest,
    GenerateSubscripts,
    /// `json_array_elements` and its like: as text, of `jsonb`.
    Elements {
        text: bool,
        binary: bool,
    },
    /// `json_each` and its like.
    Each {
        text: bool,
        binary: bool,
    },
    Keys {
        binary: bool,
    },
    RegexpSplit,
    RegexpMatches,
    StringToTable,
    /// A function about the system.
    Set(SetFunction),
    /// Any other function: its value.
    Single,
}

/// A call with its columns, the arguments cast.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct SeriesCall {
    pub series: Series,
    pub arguments: Vec<(Expr, Type)>,
    /// Their names in the plan, and their types.
    pub columns: Vec<(String, Type)>,
}

impl SeriesCall {
    /// What a client calls a column.
    pub fn visible(&self, name: &str) -> String {
        name.rsplit_once('#').map_or(name, |(visible, _)| visible).to_owned()
    }
}

impl fmt::Display for SeriesCall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let arguments: Vec<String> = self.arguments.iter().map(|(expr, _)| expr.to_string()).collect();
        write!(f, "{}({})", self.series.name(), arguments.join(", "))
    }
}

/// Rows of a function.
pub(crate) type SeriesRows = Box<dyn Iterator<Item = Result<Vec<Value>, SqlError>> + Send>;

impl Series {
    /// The function of a name, whose kind is still to be chosen.
    pub fn named(schema: Option<&str>, name: &str) -> Option<Self> {
        if let Some(declared) = SetDeclared::named(schema, name).next() {
            return Some(Self::Set(declared.function));
        }
        if schema.is_some_and(|schema| schema != "pg_catalog") {
            return None;
        }
        Some(match name {
            "generate_series" => Self::Generate(Kind::Any),
            "unnest" => Self::Unnest,
            "generate_subscripts" => Self::GenerateSubscripts,
            "json_array_elements" => Self::Elements { text: false, binary: false },
            "json_array_elements_text" => Self::Elements { text: true, binary: false },
            "jsonb_array_elements" => Self::Elements { text: false, binary: true },
            "jsonb_array_elements_text" => Self::Elements { text: true, binary: true },
            "json_each" => Self::Each { text: false, binary: false },
            "json_each_text" => Self::Each { text: true, binary: false },
            "jsonb_each" => Self::Each { text: false, binary: true },
            "jsonb_each_text" => Self::Each { text: true, binary: true },
            "json_object_keys" => Self::Keys { binary: false },
            "jsonb_object_keys" => Self::Keys { binary: true },
            "regexp_split_to_table" => Self::RegexpSplit,
            "regexp_matches" => Self::RegexpMatches,
            "string_to_table" => Self::StringToTable,
            _ => return None,
        })
    }

    pub fn name(self) -> &'static str {
        match self {
            Self::Generate(_) => "generate_series",
            Self::Unnest => "unnest",
            Self::GenerateSubscripts => "generate_subscripts",
            Self::Elements { text: false, binary: false } => "json_array_elements",
            Self::Elements { text: true, binary: false } => "json_array_elements_text",
            Self::Elements { text: false, binary: true } => "jsonb_array_elements",
            Self::Elements { text: true, binary: true } => "jsonb_array_elements_text",
            Self::Each { text: false, binary: false } => "json_each",
            Self::Each { text: true, binary: false } => "json_each_text",
            Self::Each { text: false, binary: true } => "jsonb_each",
            Self::Each { text: true, binary: true } => "jsonb_each_text",
            Self::Keys { binary: false } => "json_object_keys",
            Self::Keys { binary: true } => "jsonb_object_keys",
            Self::RegexpSplit => "regexp_split_to_table",
            Self::RegexpMatches => "regexp_matches",
            Self::StringToTable => "string_to_table",
            Self::Set(function) => function.declared().name,
            Self::Single => "value",
        }
    }

    /// The names of its columns, if it returns several whatever its arguments are.
    pub fn fields(self) -> Vec<&'static str> {
        match self {
            Self::Each { .. } => vec!["key", "value"],
            Self::Set(function) if function.declared().columns.len() > 1 => {
                function.declared().columns.iter().map(|(name, _)| *name).collect()
            }
            _ => Vec::new(),
        }
    }

    /// The function for arguments of these kinds, what they are cast to, and the columns that it
    /// returns.
    #[expect(clippy::type_complexity, reason = "a function, what it takes, what it returns")]
    pub fn resolve(self, given: &[Kind]) -> Option<(Self, Vec<Kind>, Vec<(&'static str, Kind)>)> {
        let name = self.name();
        Some(match self {
            Self::Generate(_) => {
                let kind = generated(given)?;
                let step = if matches!(kind, Kind::Timestamp | Kind::Timestamptz) { Kind::Interval } else { kind };
                let mut arguments = vec![kind; given.len()];
                if let Some(last) = arguments.get_mut(2) {
                    *last = step;
                }
                (Self::Generate(kind), arguments, vec![(name, kind)])
            }
            Self::Unnest => match given {
                [array] => (self, vec![*array], vec![(name, array.element()?)]),
                _ => return None,
            },
            Self::GenerateSubscripts => match given {
                [array, _] | [array, _, _] if array.is_array() => {
                    let kinds = [*array, Kind::Int4, Kind::Bool];
                    (self, kinds[..given.len()].to_vec(), vec![(name, Kind::Int4)])
                }
                _ => return None,
            },
            Self::Elements { text, binary } => {
                (self, one(given, json_kind(binary))?, vec![("value", value_kind(text, binary))])
            }
            Self::Each { text, binary } => {
                (self, one(given, json_kind(binary))?, vec![("key", Kind::Text), ("value", value_kind(text, binary))])
            }
            Self::Keys { binary } => (self, one(given, json_kind(binary))?, vec![(name, Kind::Text)]),
            Self::RegexpSplit | Self::StringToTable if (2..=3).contains(&given.len()) => {
                (self, vec![Kind::Text; given.len()], vec![(name, Kind::Text)])
            }
            Self::RegexpMatches if (2..=3).contains(&given.len()) => {
                (self, vec![Kind::Text; given.len()], vec![(name, Kind::TextArray)])
            }
            Self::Set(function) => {
                let (arguments, columns) = function.declared().resolve(given)?;
                (self, arguments, columns)
            }
            _ => return None,
        })
    }

    /// Its rows.
    ///
    /// # Errors
    /// What it says against the arguments.
    pub fn rows(self, arguments: Vec<Value>, context: &EvalContext<'_>) -> Result<SeriesRows, SqlError> {
        let strict = !matches!(self, Self::Single | Self::StringToTable);
        if strict && arguments.iter().any(Value::is_null) {
            return Ok(Box::new(std::iter::empty()));
        }
        match (self, arguments.as_slice()) {
            (Self::Generate(_), [from, to, rest @ ..]) => generate(from, to, rest.first(), context.zone),
            (Self::Unnest, [Value::Array(array)]) => {
                let array = Arc::clone(array);
                Ok(Box::new((0..array.values().len()).map(move |at| Ok(vec![array.values()[at].clone()]))))
            }
            (Self::GenerateSubscripts, [Value::Array(array), dimension, rest @ ..]) => {
                Ok(subscripts(array, dimension, rest.first()))
            }
            (Self::Elements { text, binary }, [Value::Json(json) | Value::Jsonb(json)]) => {
                each(elements(json, binary)?, move |_, value| Ok(vec![element(value, text, binary)?]))
            }
            (Self::Each { text, binary }, [Value::Json(json) | Value::Jsonb(json)]) => {
                each(members(json, self.name())?, move |key, value| {
                    Ok(vec![Value::text(key), element(value, text, binary)?])
                })
            }
            (Self::Keys { .. }, [Value::Json(json) | Value::Jsonb(json)]) => {
                each(members(json, self.name())?, |key, _| Ok(vec![Value::text(key)]))
            }
            (Self::RegexpSplit, _) => split("regexp_split_to_array", &arguments, context),
            (Self::StringToTable, [Value::Text(text), separator, rest @ ..]) => {
                Ok(parts(Arc::clone(text), separator, rest.first()))
            }
            (Self::StringToTable, _) => Ok(Box::new(std::iter::empty())),
            (Self::RegexpMatches, [text, pattern, rest @ ..]) => {
                let flags = rest.first().and_then(Value::as_str).unwrap_or_default();
                let (text, pattern) = (text.as_str().unwrap_or_default(), pattern.as_str().unwrap_or_default());
                let (found, kept) = regexp_matches(text, pattern, flags)?;
                Ok(Box::new(found.into_iter().map(move |groups| {
                    // As long as there are more of them.
                    let _ = &kept;
                    Ok(vec![groups])
                })))
            }
            (Self::Set(function), _) => Ok(Box::new(function.rows(&arguments, context)?.into_iter().map(Ok))),
            (Self::Single, [value]) => Ok(Box::new(std::iter::once(Ok(vec![value.clone()])))),
            _ => Err(SqlError::internal(format!("{} was given arguments of other types", self.name()))),
        }
    }
}

fn json_kind(binary: bool) -> Kind {
    if binary { Kind::Jsonb } else { Kind::Json }
}

fn value_kind(text: bool, binary: bool) -> Kind {
    if text { Kind::Text } else { json_kind(binary) }
}

fn one(given: &[Kind], kind: Kind) -> Option<Vec<Kind>> {
    match given {
        [only] if *only == kind || *only == Kind::Unknown => Some(vec![kind]),
        _ => None,
    }
}

/// The kind of what `generate_series` generates.
fn generated(given: &[Kind]) -> Option<Kind> {
    if !(2..=3).contains(&given.len()) {
        return None;
    }
    let any = |kinds: &[Kind]| given.iter().any(|kind| kinds.contains(kind));
    let only = |kinds: &[Kind]| given.iter().all(|kind| kinds.contains(kind) || *kind == Kind::Unknown);
    if only(&[Kind::Int2, Kind::Int4]) && any(&[Kind::Int2, Kind::Int4]) {
        return Some(Kind::Int4);
    }
    if only(&[Kind::Int2, Kind::Int4, Kind::Int8]) && any(&[Kind::Int8]) {
        return Some(Kind::Int8);
    }
    if only(&[Kind::Int2, Kind::Int4, Kind::Int8, Kind::Numeric]) && any(&[Kind::Numeric]) {
        return Some(Kind::Numeric);
    }
    let times = &given[..2];
    let of_times =
        times.iter().all(|kind| matches!(kind, Kind::Date | Kind::Timestamp | Kind::Timestamptz | Kind::Unknown));
    if given.len() == 3 && of_times && matches!(given[2], Kind::Interval | Kind::Unknown) {
        let plain = times.contains(&Kind::Timestamp) && !times.contains(&Kind::Timestamptz);
        return Some(if plain { Kind::Timestamp } else { Kind::Timestamptz });
    }
    None
}

#[cold]
fn zero_step() -> SqlError {
    SqlError::new(SqlState::INVALID_PARAMETER_VALUE, "step size cannot equal zero")
}

fn generate(from: &Value, to: &Value, step: Option<&Value>, zone: TimeZone) -> Result<SeriesRows, SqlError> {
    match (from, to) {
        (Value::Numeric(from), Value::Numeric(to)) => {
            let step = match step {
                Some(Value::Numeric(step)) => step.clone(),
                _ => Numeric::ONE,
            };
            for (number, what) in [(from, "start value"), (to, "stop value"), (&step, "step size")] {
                if let Some(special) = number.as_special() {
                    let special = if special == Special::NaN { "NaN" } else { "infinity" };
                    let message = format!("{what} cannot be {special}");
                    return Err(SqlError::new(SqlState::INVALID_PARAMETER_VALUE, message));
                }
            }
            let order = step.cmp(&Numeric::ZERO);
            if order.is_eq() {
                return Err(zero_step());
            }
            let (mut next, to) = (Some(from.clone()), to.clone());
            Ok(Box::new(std::iter::from_fn(move || {
                let number = next.take().filter(|number| if order.is_gt() { *number <= to } else { *number >= to })?;
                next = number.add(&step).ok();
                Some(Ok(vec![Value::Numeric(number)]))
            })))
        }
        (Value::Timestamp(from), Value::Timestamp(to)) => {
            times(*from, *to, step, move |time, step| time.plus(step), Value::Timestamp)
        }
        (Value::Timestamptz(from), Value::Timestamptz(to)) => {
            times(*from, *to, step, move |time, step| time.plus_in(step, zone), Value::Timestamptz)
        }
        _ => {
            let step = step.map_or(Some(1), Value::as_i64);
            let (Some(first), Some(last), Some(step)) = (from.as_i64(), to.as_i64(), step) else {
                return Err(SqlError::internal("generate_series was given arguments of other types"));
            };
            integers(first, last, step, matches!(from, Value::Int4(_)))
        }
    }
}

fn integers(from: i64, to: i64, step: i64, narrow: bool) -> Result<SeriesRows, SqlError> {
    if step == 0 {
        return Err(zero_step());
    }
    let mut next = Some(from);
    Ok(Box::new(std::iter::from_fn(move || {
        let number = next.filter(|number| if step > 0 { *number <= to } else { *number >= to })?;
        next = number.checked_add(step);
        // What lies between two numbers fits where they do.
        Some(Ok(vec![if narrow { Value::Int4(number as i32) } else { Value::Int8(number) }]))
    })))
}

fn times(
    from: Timestamp,
    to: Timestamp,
    step: Option<&Value>,
    plus: impl Fn(Timestamp, freshet_sql::types::Interval) -> Result<Timestamp, SqlError> + Send + 'static,
    value: fn(Timestamp) -> Value,
) -> Result<SeriesRows, SqlError> {
    let Some(Value::Interval(step)) = step else {
        return Err(SqlError::internal("generate_series was given no step"));
    };
    let step = *step;
    let length = step.length();
    if length == 0 {
        return Err(zero_step());
    }
    let mut next = Ok(Some(from));
    Ok(Box::new(std::iter::from_fn(move || match std::mem::replace(&mut next, Ok(None)) {
        Err(error) => Some(Err(error)),
        Ok(time) => {
            let time = time.filter(|time| if length > 0 { *time <= to } else { *time >= to })?;
            next = plus(time, step).map(Some);
            Some(Ok(vec![value(time)]))
        }
    })))
}

fn subscripts(array: &Array, dimension: &Value, reverse: Option<&Value>) -> SeriesRows {
    let dimension = dimension.as_i64().and_then(|number| usize::try_from(number - 1).ok());
    let Some(dimension) = dimension.and_then(|at| array.dimensions().get(at)) else {
        return Box::new(std::iter::empty());
    };
    let range = dimension.lower..dimension.lower.saturating_add_unsigned(dimension.length);
    let row = |number: i32| Ok(vec![Value::Int4(number)]);
    if reverse.and_then(Value::as_bool) == Some(true) {
        Box::new(range.rev().map(row))
    } else {
        Box::new(range.map(row))
    }
}

/// An element of JSON: null as text is null.
fn element(json: &str, text: bool, binary: bool) -> Result<Value, SqlError> {
    if text {
        return Ok(json::scalar_text(json)?.map_or(Value::Null, |text| Value::text(text.as_ref())));
    }
    Ok(if binary { Value::Jsonb(json.into()) } else { Value::Json(json.into()) })
}

/// A row for each element or member.
fn each(
    mut walk: Walk,
    row: impl Fn(&str, &str) -> Result<Vec<Value>, SqlError> + Send + 'static,
) -> Result<SeriesRows, SqlError> {
    Ok(Box::new(std::iter::from_fn(move || match walk.next() {
        Ok(found) => found.map(|(key, value)| row(&key, value)),
        Err(error) => Some(Err(error)),
    })))
}

fn elements(json: &Arc<str>, binary: bool) -> Result<Walk, SqlError> {
    let walk = Walk::through(Arc::clone(json))?;
    let what = match walk {
        Some(walk) if !walk.is_of_object() => return Ok(walk),
        Some(_) => "object",
        None => "scalar",
    };
    let message = match (what, binary) {
        ("object", true) => "cannot extract elements from an object",
        ("object", false) => "cannot deconstruct a non-array",
        (_, true) => "cannot extract elements from a scalar",
        (_, false) => "cannot call json_array_elements on a scalar",
    };
    Err(SqlError::new(SqlState::INVALID_PARAMETER_VALUE, message))
}

fn members(json: &Arc<str>, name: &str) -> Result<Walk, SqlError> {
    let walk = Walk::through(Arc::clone(json))?;
    let what = match walk {
        Some(walk) if walk.is_of_object() => return Ok(walk),
        Some(_) => "an array",
        None => "a scalar",
    };
    Err(SqlError::new(SqlState::INVALID_PARAMETER_VALUE, format!("cannot call {name} on {what}")))
}

/// What lies between the places of a separator: the characters where that is null. What equals
/// `null` becomes that.
fn parts(text: Arc<str>, separator: &Value, null: Option<&Value>) -> SeriesRows {
    let null = null.and_then(Value::as_str).map(str::to_owned);
    let separator = match separator {
        Value::Text(separator) => Some(Arc::clone(separator)),
        _ => None,
    };
    let mut next = (!text.is_empty()).then_some(0);
    Box::new(std::iter::from_fn(move || {
        let from = next?;
        let rest = &text[from..];
        let (length, behind) = match &separator {
            None => {
                let length = rest.chars().next().map_or(0, char::len_utf8);
                (length, (length < rest.len()).then_some(from + length))
            }
            Some(separator) if separator.is_empty() => (rest.len(), None),
            Some(separator) => match rest.find(&**separator) {
                Some(length) => (length, Some(from + length + separator.len())),
                None => (rest.len(), None),
            },
        };
        next = behind;
        let part = &rest[..length];
        Some(
            work::done(1 + length / 64)
                .map(|()| vec![if null.as_deref() == Some(part) { Value::Null } else { Value::text(part) }]),
        )
    }))
}

/// The elements of what a function returns that makes an array of the same.
fn split(function: &str, arguments: &[Value], context: &EvalContext<'_>) -> Result<SeriesRows, SqlError> {
    let kinds = vec![Kind::Text; arguments.len()];
    let array = resolve(function, &kinds)?.function.call(arguments, context)?;
    match array {
        Value::Array(array) => {
            Ok(Box::new((0..array.values().len()).map(move |at| Ok(vec![array.values()[at].clone()]))))
        }
        _ => Ok(Box::new(std::iter::empty())),
    }
}
