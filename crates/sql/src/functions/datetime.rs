//! Functions of dates, times and intervals.

use super::{Function, mismatch, take};
use crate::{
    SqlError, SqlState,
    types::{
        Date, EvalContext, Interval, Kind, Time, TimeZone, Timestamp, Value, ValueRef,
        datetime::{
            self, DAY, FieldValue, HOUR, MINUTE, SECOND, extract_date, extract_interval, extract_time,
            extract_timestamp, extract_timetz,
        },
        text,
    },
};

use crate::types::{Packed, datetime::TimeTz};

const D: Kind = Kind::Date;
const S: Kind = Kind::Timestamp;
const Z: Kind = Kind::Timestamptz;
const L: Kind = Kind::Interval;
const C: Kind = Kind::Time;
const O: Kind = Kind::Timetz;
const I: Kind = Kind::Int4;
const F: Kind = Kind::Float8;
const T: Kind = Kind::Text;
const N: Kind = Kind::Numeric;

pub(super) const FUNCTIONS: &[Function] = &[
    Function::new("now", &[], Z, transaction_start).stable(),
    Function::new("transaction_timestamp", &[], Z, transaction_start).stable(),
    Function::new("current_timestamp", &[], Z, transaction_start).stable(),
    Function::new("current_timestamp", &[I], Z, transaction_start).stable(),
    Function::new("statement_timestamp", &[], Z, |_, context| Ok(Value::Timestamptz(context.statement_start.at())))
        .stable(),
    Function::new("clock_timestamp", &[], Z, |_, context| Ok(Value::Timestamptz((context.clock)()))).volatile(),
    Function::new("current_date", &[], D, |_, context| Ok(Value::Date(local_now(context)?.date()))).stable(),
    Function::new("localtimestamp", &[], S, local_timestamp).stable(),
    Function::new("localtimestamp", &[I], S, local_timestamp).stable(),
    Function::new("localtime", &[], C, local_time_of_day).stable(),
    Function::new("localtime", &[I], C, local_time_of_day).stable(),
    Function::new("current_time", &[], O, current_time).stable(),
    Function::new("current_time", &[I], O, current_time).stable(),
    Function::new("+", &[O, L], O, |arguments, _| add_to_timetz(arguments)),
    Function::new("+", &[L, O], O, |arguments, _| add_to_timetz(&swapped(arguments)?)),
    Function::new("-", &[O, L], O, |arguments, _| add_to_timetz(&negated(arguments)?)),
    Function::new("+", &[D, O], Z, |arguments, _| date_and_timetz(arguments)),
    Function::new("+", &[O, D], Z, |arguments, _| date_and_timetz(&swapped(arguments)?)),
    Function::new("timezone", &[T, O], O, timetz_in_zone),
    Function::new("timezone", &[L, O], O, timetz_in_zone),
    Function::new("extract", &[T, O], N, extract),
    Function::new("date_part", &[T, O], F, date_part),
    Function::new("+", &[D, I], D, |arguments, _| add_days(arguments)),
    Function::new("+", &[I, D], D, |arguments, _| add_days(&swapped(arguments)?)),
    Function::new("-", &[D, I], D, subtract_days),
    Function::new("-", &[D, D], I, date_difference),
    Function::new("+", &[D, L], S, |arguments, _| add_to_date(arguments)),
    Function::new("+", &[L, D], S, |arguments, _| add_to_date(&swapped(arguments)?)),
    Function::new("-", &[D, L], S, |arguments, _| add_to_date(&negated(arguments)?)),
    Function::new("+", &[D, C], S, |arguments, _| date_and_time(arguments)),
    Function::new("+", &[C, D], S, |arguments, _| date_and_time(&swapped(arguments)?)),
    Function::new("+", &[S, L], S, |arguments, _| add_to_timestamp(arguments)),
    Function::new("+", &[L, S], S, |arguments, _| add_to_timestamp(&swapped(arguments)?)),
    Function::new("-", &[S, L], S, |arguments, _| add_to_timestamp(&negated(arguments)?)),
    Function::new("+", &[Z, L], Z, add_to_timestamptz).stable(),
    Function::new("+", &[L, Z], Z, |arguments, context| add_to_timestamptz(&swapped(arguments)?, context)).stable(),
    Function::new("-", &[Z, L], Z, |arguments, context| add_to_timestamptz(&negated(arguments)?, context)).stable(),
    Function::new("-", &[S, S], L, timestamp_difference),
    Function::new("-", &[Z, Z], L, timestamp_difference),
    Function::new("+", &[C, L], C, |arguments, _| add_to_time(arguments)),
    Function::new("+", &[L, C], C, |arguments, _| add_to_time(&swapped(arguments)?)),
    Function::new("-", &[C, L], C, |arguments, _| add_to_time(&negated(arguments)?)),
    Function::new("-", &[C, C], L, time_difference),
    Function::new("+", &[L, L], L, add_intervals),
    Function::new("-", &[L, L], L, subtract_intervals),
    Function::new("-", &[L], L, negate_interval),
    Function::new("*", &[L, F], L, |arguments, _| multiply(arguments)),
    Function::new("*", &[F, L], L, |arguments, _| multiply(&swapped(arguments)?)),
    Function::new("/", &[L, F], L, divide),
    Function::new("date_trunc", &[T, S], S, trunc_timestamp),
    Function::new("date_trunc", &[T, Z], Z, trunc_timestamptz).stable(),
    Function::new("date_trunc", &[T, Z, T], Z, trunc_timestamptz).stable(),
    Function::new("date_trunc", &[T, L], L, trunc_interval),
    Function::new("date_bin", &[L, S, S], S, date_bin),
    Function::new("date_bin", &[L, Z, Z], Z, date_bin),
    Function::new("extract", &[T, D], N, extract),
    Function::new("extract", &[T, C], N, extract),
    Function::new("extract", &[T, S], N, extract),
    Function::new("extract", &[T, Z], N, extract).stable(),
    Function::new("extract", &[T, L], N, extract),
    Function::new("date_part", &[T, D], F, date_part),
    Function::new("date_part", &[T, C], F, date_part),
    Function::new("date_part", &[T, S], F, date_part),
    Function::new("date_part", &[T, Z], F, date_part).stable(),
    Function::new("date_part", &[T, L], F, date_part),
    Function::new("age", &[S, S], L, age),
    Function::new("age", &[Z, Z], L, age).stable(),
    Function::new("age", &[S], L, age_today).stable(),
    Function::new("age", &[Z], L, age_today).stable(),
    Function::new("make_date", &[I, I, I], D, make_date),
    Function::new("make_time", &[I, I, F], C, make_time),
    Function::new("make_timestamp", &[I, I, I, I, I, F], S, make_timestamp),
    Function::new("make_timestamptz", &[I, I, I, I, I, F], Z, make_timestamptz).stable(),
    Function::new("make_timestamptz", &[I, I, I, I, I, F, T], Z, make_timestamptz).stable(),
    Function::new("make_interval", &[], L, make_interval),
    Function::new("make_interval", &[I], L, make_interval),
    Function::new("make_interval", &[I, I], L, make_interval),
    Function::new("make_interval", &[I, I, I], L, make_interval),
    Function::new("make_interval", &[I, I, I, I], L, make_interval),
    Function::new("make_interval", &[I, I, I, I, I], L, make_interval),
    Function::new("make_interval", &[I, I, I, I, I, I], L, make_interval),
    Function::new("make_interval", &[I, I, I, I, I, I, F], L, make_interval),
    Function::new("justify_days", &[L], L, |arguments, _| justify(arguments, Interval::justify_days)),
    Function::new("justify_hours", &[L], L, |arguments, _| justify(arguments, Interval::justify_hours)),
    Function::new("justify_interval", &[L], L, |arguments, _| justify(arguments, Interval::justify)),
    Function::new("timezone", &[T, S], Z, at_zone),
    Function::new("timezone", &[T, Z], S, at_zone),
    Function::new("timezone", &[L, S], Z, at_zone),
    Function::new("timezone", &[L, Z], S, at_zone),
    Function::new("isfinite", &[D], Kind::Bool, is_finite),
    Function::new("isfinite", &[S], Kind::Bool, is_finite),
    Function::new("isfinite", &[Z], Kind::Bool, is_finite),
    Function::new("isfinite", &[L], Kind::Bool, is_finite),
    Function::new("to_timestamp", &[F], Z, from_unix_seconds),
];

fn swapped(arguments: &[Value]) -> Result<[Value; 2], SqlError> {
    match arguments {
        [one, two] => Ok([two.clone(), one.clone()]),
        _ => Err(mismatch(arguments)),
    }
}

/// The same with the interval backward.
fn negated(arguments: &[Value]) -> Result<[Value; 2], SqlError> {
    match arguments {
        [one, Value::Interval(interval)] => Ok([one.clone(), Value::Interval(interval.neg()?)]),
        _ => Err(mismatch(arguments)),
    }
}

/// Rounded to as many digits of seconds as an argument says.
fn digits(arguments: &[Value]) -> Result<Option<u32>, SqlError> {
    match arguments {
        [] => Ok(None),
        [Value::Int4(digits)] if *digits >= 0 => Ok(Some((*digits).min(6) as u32)),
        [Value::Int4(digits)] => Err(SqlError::new(
            SqlState::INVALID_PARAMETER_VALUE,
            format!("TIMESTAMP({digits}) precision must not be negative"),
        )),
        _ => Err(mismatch(arguments)),
    }
}

fn transaction_start(arguments: &[Value], context: &EvalContext<'_>) -> Result<Value, SqlError> {
    Ok(Value::Timestamptz(context.transaction_start.at().rounded(digits(arguments)?)?))
}

fn local_now(context: &EvalContext<'_>) -> Result<Timestamp, SqlError> {
    context.transaction_start.at().to_local(context.zone)
}

fn local_timestamp(arguments: &[Value], context: &EvalContext<'_>) -> Result<Value, SqlError> {
    Ok(Value::Timestamp(local_now(context)?.rounded(digits(arguments)?)?))
}

fn local_time_of_day(arguments: &[Value], context: &EvalContext<'_>) -> Result<Value, SqlError> {
    Ok(Value::Time(local_now(context)?.time().rounded(digits(arguments)?)))
}

fn add_days(arguments: &[Value]) -> Result<Value, SqlError> {
    take!(arguments: Date(date), Int4(days));
    date.plus_days((*days).into()).map(Value::Date)
}

fn subtract_days(arguments: &[Value], _: &EvalContext<'_>) -> Result<Value, SqlError> {
    take!(arguments: Date(date), Int4(days));
    date.plus_days(-i64::from(*days)).map(Value::Date)
}

fn date_difference(arguments: &[Value], _: &EvalContext<'_>) -> Result<Value, SqlError> {
    take!(arguments: Date(one), Date(two));
    one.minus(*two).map(Value::Int4)
}

fn add_to_date(arguments: &[Value]) -> Result<Value, SqlError> {
    take!(arguments: Date(date), Interval(interval));
    date.to_timestamp()?.plus(*interval).map(Value::Timestamp)
}

fn date_and_time(arguments: &[Value]) -> Result<Value, SqlError> {
    take!(arguments: Date(date), Time(time));
    let interval = Interval { months: 0, days: 0, micros: time.0 };
    date.to_timestamp()?.plus(interval).map(Value::Timestamp)
}

fn add_to_timestamp(arguments: &[Value]) -> Result<Value, SqlError> {
    take!(arguments: Timestamp(timestamp), Interval(interval));
    timestamp.plus(*interval).map(Value::Timestamp)
}

fn add_to_timestamptz(arguments: &[Value], context: &EvalContext<'_>) -> Result<Value, SqlError> {
    take!(arguments: Timestamptz(timestamp), Interval(interval));
    timestamp.plus_in(*interval, context.zone).map(Value::Timestamptz)
}

fn timestamp_difference(arguments: &[Value], _: &EvalContext<'_>) -> Result<Value, SqlError> {
    match arguments {
        [Value::Timestamp(one), Value::Timestamp(two)] | [Value::Timestamptz(one), Value::Timestamptz(two)] => {
            one.minus(*two).map(Value::Interval)
        }
        _ => Err(mismatch(arguments)),
    }
}

fn add_to_time(arguments: &[Value]) -> Result<Value, SqlError> {
    take!(arguments: Time(time), Interval(interval));
    Ok(Value::Time(time.plus(*interval)))
}

fn time_difference(arguments: &[Value], _: &EvalContext<'_>) -> Result<Value, SqlError> {
    take!(arguments: Time(one), Time(two));
    Ok(Value::Interval(one.minus(*two)))
}

fn add_intervals(arguments: &[Value], _: &EvalContext<'_>) -> Result<Value, SqlError> {
    take!(arguments: Interval(one), Interval(two));
    one.add(*two).map(Value::Interval)
}

fn subtract_intervals(arguments: &[Value], _: &EvalContext<'_>) -> Result<Value, SqlError> {
    take!(arguments: Interval(one), Interval(two));
    one.sub(*two).map(Value::Interval)
}

fn negate_interval(arguments: &[Value], _: &EvalContext<'_>) -> Result<Value, SqlError> {
    take!(arguments: Interval(interval));
    interval.neg().map(Value::Interval)
}

fn multiply(arguments: &[Value]) -> Result<Value, SqlError> {
    take!(arguments: Interval(interval), Float8(factor));
    interval.mul(*factor).map(Value::Interval)
}

fn divide(arguments: &[Value], _: &EvalContext<'_>) -> Result<Value, SqlError> {
    take!(arguments: Interval(interval), Float8(divisor));
    interval.div(*divisor).map(Value::Interval)
}

fn trunc_timestamp(arguments: &[Value], _: &EvalContext<'_>) -> Result<Value, SqlError> {
    take!(arguments: Text(field), Timestamp(timestamp));
    timestamp.truncated(field).map(Value::Timestamp)
}

fn trunc_timestamptz(arguments: &[Value], context: &EvalContext<'_>) -> Result<Value, SqlError> {
    let (field, timestamp, zone) = match arguments {
        [Value::Text(field), Value::Timestamptz(timestamp)] => (field, timestamp, context.zone),
        [Value::Text(field), Value::Timestamptz(timestamp), Value::Text(zone)] => {
            (field, timestamp, TimeZone::parse(zone)?)
        }
        _ => return Err(mismatch(arguments)),
    };
    timestamp.truncated_in(field, zone).map(Value::Timestamptz)
}

fn trunc_interval(arguments: &[Value], _: &EvalContext<'_>) -> Result<Value, SqlError> {
    take!(arguments: Text(field), Interval(interval));
    interval.truncated(field).map(Value::Interval)
}

fn date_bin(arguments: &[Value], _: &EvalContext<'_>) -> Result<Value, SqlError> {
    let (stride, source, origin) = match arguments {
        [Value::Interval(stride), Value::Timestamp(source), Value::Timestamp(origin)]
        | [Value::Interval(stride), Value::Timestamptz(source), Value::Timestamptz(origin)] => (stride, source, origin),
        _ => return Err(mismatch(arguments)),
    };
    if !source.is_finite() {
        return Ok(arguments[1].clone());
    }
    if !origin.is_finite() {
        return Err(SqlError::new(SqlState::DATETIME_FIELD_OVERFLOW, "origin out of range"));
    }
    if stride.months != 0 {
        return Err(SqlError::new(
            SqlState::FEATURE_NOT_SUPPORTED,
            "timestamps cannot be binned into intervals containing months or years",
        ));
    }
    let stride = stride.length();
    if stride <= 0 {
        return Err(SqlError::new(SqlState::DATETIME_FIELD_OVERFLOW, "stride must be greater than zero"));
    }
    let out_of_range = || SqlError::new(SqlState::DATETIME_FIELD_OVERFLOW, "interval out of range");
    let since = source.0.checked_sub(origin.0).ok_or_else(out_of_range)?;
    let binned = Timestamp::new(i128::from(origin.0) + i128::from(since).div_euclid(stride) * stride)
        .ok_or_else(|| SqlError::new(SqlState::DATETIME_FIELD_OVERFLOW, "timestamp out of range"))?;
    Ok(match arguments[1] {
        Value::Timestamp(_) => Value::Timestamp(binned),
        _ => Value::Timestamptz(binned),
    })
}

fn timetz(value: &Value) -> Option<TimeTz> {
    match value {
        Value::Packed(packed) => packed.as_timetz(),
        _ => None,
    }
}

fn current_time(arguments: &[Value], context: &EvalContext<'_>) -> Result<Value, SqlError> {
    let digits = arguments.first().and_then(Value::as_i64).and_then(|digits| u32::try_from(digits).ok());
    let time = TimeTz::of(context.transaction_start.at(), context.zone)?.rounded(digits);
    Ok(Value::Packed(Packed::timetz(time)))
}

fn add_to_timetz(arguments: &[Value]) -> Result<Value, SqlError> {
    match arguments {
        [time, Value::Interval(interval)] => {
            let time = timetz(time).ok_or_else(|| mismatch(arguments))?;
            Ok(Value::Packed(Packed::timetz(time.plus(*interval))))
        }
        _ => Err(mismatch(arguments)),
    }
}

fn date_and_timetz(arguments: &[Value]) -> Result<Value, SqlError> {
    match arguments {
        [Value::Date(date), time] => {
            let time = timetz(time).ok_or_else(|| mismatch(arguments))?;
            time.on(*date).map(Value::Timestamptz)
        }
        _ => Err(mismatch(arguments)),
    }
}

/// A time by the clocks of another zone, as they go now.
fn timetz_in_zone(arguments: &[Value], context: &EvalContext<'_>) -> Result<Value, SqlError> {
    let [zone, time] = arguments else { return Err(mismatch(arguments)) };
    let time = timetz(time).ok_or_else(|| mismatch(arguments))?;
    let west = match zone {
        Value::Text(name) => -TimeZone::parse(name)?.offset_at(context.transaction_start.at()),
        Value::Interval(interval) => {
            -TimeZone::fixed(interval.micros / SECOND)?.offset_at(context.transaction_start.at())
        }
        _ => return Err(mismatch(arguments)),
    };
    Ok(Value::Packed(Packed::timetz(time.at(west))))
}

fn field(arguments: &[Value], context: &EvalContext<'_>) -> Result<FieldValue, SqlError> {
    match arguments {
        [Value::Text(name), Value::Date(date)] => extract_date(name, *date),
        [Value::Text(name), Value::Time(time)] => extract_time(name, *time),
        [Value::Text(name), Value::Packed(time)] => {
            extract_timetz(name, time.as_timetz().ok_or_else(|| mismatch(arguments))?)
        }
        [Value::Text(name), Value::Timestamp(timestamp)] => extract_timestamp(name, *timestamp, None),
        [Value::Text(name), Value::Timestamptz(timestamp)] => extract_timestamp(name, *timestamp, Some(context.zone)),
        [Value::Text(name), Value::Interval(interval)] => extract_interval(name, *interval),
        _ => Err(mismatch(arguments)),
    }
}

fn extract(arguments: &[Value], context: &EvalContext<'_>) -> Result<Value, SqlError> {
    Ok(field(arguments, context)?.to_numeric().into())
}

fn date_part(arguments: &[Value], context: &EvalContext<'_>) -> Result<Value, SqlError> {
    // Dates count as their midnights here.
    if let [name, Value::Date(date)] = arguments {
        let midnight = Value::Timestamp(date.to_timestamp()?);
        return Ok(field(&[name.clone(), midnight], context)?.to_f64().into());
    }
    Ok(field(arguments, context)?.to_f64().into())
}

fn age(arguments: &[Value], context: &EvalContext<'_>) -> Result<Value, SqlError> {
    match arguments {
        [Value::Timestamp(one), Value::Timestamp(two)] => one.age(*two).map(Value::Interval),
        [Value::Timestamptz(one), Value::Timestamptz(two)] => {
            one.to_local(context.zone)?.age(two.to_local(context.zone)?).map(Value::Interval)
        }
        _ => Err(mismatch(arguments)),
    }
}

/// The age at the midnight that today began with.
fn age_today(arguments: &[Value], context: &EvalContext<'_>) -> Result<Value, SqlError> {
    let midnight = local_now(context)?.date().to_timestamp()?;
    let since = match arguments {
        [Value::Timestamp(since)] => *since,
        [Value::Timestamptz(since)] => since.to_local(context.zone)?,
        _ => return Err(mismatch(arguments)),
    };
    midnight.age(since).map(Value::Interval)
}

fn make_date(arguments: &[Value], _: &EvalContext<'_>) -> Result<Value, SqlError> {
    take!(arguments: Int4(year), Int4(month), Int4(day));
    Date::of_civil(*year, *month, *day).map(Value::Date)
}

/// A time of day; 24:00 and a 60th second are the next minute's.
fn clock(hour: i32, minute: i32, seconds: f64) -> Result<i64, SqlError> {
    if (0..=24).contains(&hour) && (0..=59).contains(&minute) && (0.0..=60.0).contains(&seconds) {
        let micros = (seconds * SECOND as f64).round_ties_even() as i64;
        let total = i64::from(hour) * HOUR + i64::from(minute) * MINUTE + micros;
        if total <= DAY {
            return Ok(total);
        }
    }
    Err(SqlError::new(
        SqlState::DATETIME_FIELD_OVERFLOW,
        format!("time field value out of range: {hour}:{minute:02}:{}", Seconds(seconds)),
    ))
}

/// Seconds as messages have them, `%02g` in C: `05`, `5.5`, `123457`, `1e+30`.
struct Seconds(f64);

impl std::fmt::Display for Seconds {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if !self.0.is_finite() {
            let mut text = String::new();
            text::output(ValueRef::Float8(self.0), &EvalContext::default(), &mut text);
            return f.write_str(&text);
        }
        // Six digits that count.
        let scientific = format!("{:.5e}", self.0);
        let (digits, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
        let exponent: i32 = exponent.parse().unwrap_or(0);
        let trimmed = |text: &str| match text.contains('.') {
            true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
            false => text.to_owned(),
        };
        if !(-4..6).contains(&exponent) {
            let sign = if exponent < 0 { '-' } else { '+' };
            return write!(f, "{}e{sign}{:02}", trimmed(digits), exponent.abs());
        }
        write!(f, "{:0>2}", trimmed(&format!("{:.*}", (5 - exponent) as usize, self.0)))
    }
}

fn make_time(arguments: &[Value], _: &EvalContext<'_>) -> Result<Value, SqlError> {
    take!(arguments: Int4(hour), Int4(minute), Float8(seconds));
    Ok(Value::Time(Time(clock(*hour, *minute, *seconds)?)))
}

fn local_time(arguments: &[Value]) -> Result<Timestamp, SqlError> {
    take!(arguments: Int4(year), Int4(month), Int4(day), Int4(hour), Int4(minute), Float8(seconds));
    let date = Date::of_civil(*year, *month, *day)?;
    let micros = clock(*hour, *minute, *seconds)?;
    date.to_timestamp()?.plus(Interval { months: 0, days: 0, micros })
}

fn make_timestamp(arguments: &[Value], _: &EvalContext<'_>) -> Result<Value, SqlError> {
    local_time(arguments).map(Value::Timestamp)
}

fn make_timestamptz(arguments: &[Value], context: &EvalContext<'_>) -> Result<Value, SqlError> {
    let (fields, zone) = match arguments {
        [fields @ .., Value::Text(zone)] => (fields, Some(zone)),
        fields => (fields, None),
    };
    let local = local_time(fields)?;
    let zone = match zone {
        // An offset counts to the east here, as in a timestamp.
        Some(zone) if zone.starts_with(['+', '-']) => offset_zone(zone)?,
        Some(zone) if zone.starts_with(|first: char| first.is_ascii_digit()) => {
            let message = format!("invalid input syntax for type numeric time zone: \"{zone}\"");
            return Err(SqlError::new(SqlState::INVALID_PARAMETER_VALUE, message)
                .with_hint("Numeric time zones must have \"-\" or \"+\" as first character."));
        }
        Some(zone) => TimeZone::parse(zone)?,
        None => context.zone,
    };
    local.to_utc(zone).map(Value::Timestamptz)
}

/// A zone of an offset to the east.
fn offset_zone(name: &str) -> Result<TimeZone, SqlError> {
    match TimeZone::parse(name)? {
        // To the west, as POSIX has it.
        TimeZone::Fixed(seconds) => Ok(TimeZone::Fixed(-seconds)),
        zone => Ok(zone),
    }
}

fn make_interval(arguments: &[Value], _: &EvalContext<'_>) -> Result<Value, SqlError> {
    let whole = |at: usize| match arguments.get(at) {
        Some(Value::Int4(number)) => i64::from(*number),
        _ => 0,
    };
    let seconds = match arguments.get(6) {
        Some(Value::Float8(seconds)) => *seconds,
        _ => 0.0,
    };
    let out_of_range = || SqlError::new(SqlState::DATETIME_FIELD_OVERFLOW, "interval out of range");
    let micros = (seconds * 1e6).round_ties_even();
    if micros.is_nan() || micros.abs() > 9e18 {
        return Err(out_of_range());
    }
    let micros = (whole(4) * HOUR).checked_add(whole(5) * MINUTE).and_then(|sum| sum.checked_add(micros as i64));
    Ok(Value::Interval(Interval {
        months: i32::try_from(whole(0) * 12 + whole(1)).map_err(|_| out_of_range())?,
        days: i32::try_from(whole(2) * 7 + whole(3)).map_err(|_| out_of_range())?,
        micros: micros.ok_or_else(out_of_range)?,
    }))
}

fn justify(arguments: &[Value], how: fn(Interval) -> Result<Interval, SqlError>) -> Result<Value, SqlError> {
    take!(arguments: Interval(interval));
    how(*interval).map(Value::Interval)
}

fn at_zone(arguments: &[Value], _: &EvalContext<'_>) -> Result<Value, SqlError> {
    let zone = match arguments.first() {
        Some(Value::Text(name)) => TimeZone::parse(name)?,
        Some(Value::Interval(interval)) => {
            if interval.months != 0 || interval.days != 0 {
                return Err(SqlError::new(
                    SqlState::INVALID_PARAMETER_VALUE,
                    format!("interval time zone \"{interval}\" must not include months or days"),
                ));
            }
            TimeZone::fixed(interval.micros / SECOND)?
        }
        _ => return Err(mismatch(arguments)),
    };
    match arguments {
        [_, Value::Timestamp(timestamp)] => timestamp.to_utc(zone).map(Value::Timestamptz),
        [_, Value::Timestamptz(timestamp)] => timestamp.to_local(zone).map(Value::Timestamp),
        _ => Err(mismatch(arguments)),
    }
}

fn is_finite(arguments: &[Value], _: &EvalContext<'_>) -> Result<Value, SqlError> {
    Ok(Value::Bool(match arguments {
        [Value::Date(date)] => date.is_finite(),
        [Value::Timestamp(timestamp) | Value::Timestamptz(timestamp)] => timestamp.is_finite(),
        [Value::Interval(_)] => true,
        _ => return Err(mismatch(arguments)),
    }))
}

fn from_unix_seconds(arguments: &[Value], _: &EvalContext<'_>) -> Result<Value, SqlError> {
    take!(arguments: Float8(seconds));
    datetime::Timestamp::from_unix_seconds(*seconds).map(Value::Timestamptz)
}
