//! Functions of regular expressions.

use super::{
    Function, mismatch,
    pattern::{characters, negate, two_strings},
    regex::{Captures, Regex, compiled},
    similar::{similar_substring, similar_to_escape},
    string::checked_length,
    take,
};
use crate::{
    SqlError, SqlState,
    memory::size_of_value,
    types::{Array, EvalContext, Kind, Value, array::checked_count},
    work::{self, Kept},
};

const T: Kind = Kind::Text;
const I: Kind = Kind::Int4;
const B: Kind = Kind::Bool;
const TEXTS: Kind = Kind::TextArray;

pub(super) const FUNCTIONS: &[Function] = &[
    Function::new("~", &[T, T], B, |arguments, _| regex_operator(arguments, "")),
    Function::new("!~", &[T, T], B, |arguments, _| negate(regex_operator(arguments, ""))),
    Function::new("~*", &[T, T], B, |arguments, _| regex_operator(arguments, "i")),
    Function::new("!~*", &[T, T], B, |arguments, _| negate(regex_operator(arguments, "i"))),
    Function::new("~", &[Kind::Char, T], B, |arguments, _| regex_operator(arguments, "")),
    Function::new("!~", &[Kind::Char, T], B, |arguments, _| negate(regex_operator(arguments, ""))),
    Function::new("~*", &[Kind::Char, T], B, |arguments, _| regex_operator(arguments, "i")),
    Function::new("!~*", &[Kind::Char, T], B, |arguments, _| negate(regex_operator(arguments, "i"))),
    Function::new("~", &[Kind::Name, T], B, |arguments, _| regex_operator(arguments, "")),
    Function::new("!~", &[Kind::Name, T], B, |arguments, _| negate(regex_operator(arguments, ""))),
    Function::new("regexp_like", &[T, T], B, regexp_like),
    Function::new("regexp_like", &[T, T, T], B, regexp_like),
    Function::new("regexp_count", &[T, T], I, regexp_count),
    Function::new("regexp_count", &[T, T, I], I, regexp_count),
    Function::new("regexp_count", &[T, T, I, T], I, regexp_count),
    Function::new("regexp_instr", &[T, T], I, regexp_instr),
    Function::new("regexp_instr", &[T, T, I], I, regexp_instr),
    Function::new("regexp_instr", &[T, T, I, I], I, regexp_instr),
    Function::new("regexp_instr", &[T, T, I, I, I], I, regexp_instr),
    Function::new("regexp_instr", &[T, T, I, I, I, T], I, regexp_instr),
    Function::new("regexp_instr", &[T, T, I, I, I, T, I], I, regexp_instr),
    Function::new("regexp_substr", &[T, T], T, regexp_substr),
    Function::new("regexp_substr", &[T, T, I], T, regexp_substr),
    Function::new("regexp_substr", &[T, T, I, I], T, regexp_substr),
    Function::new("regexp_substr", &[T, T, I, I, T], T, regexp_substr),
    Function::new("regexp_substr", &[T, T, I, I, T, I], T, regexp_substr),
    Function::new("substring", &[T, T], T, substring_regex),
    Function::new("substring", &[T, T, T], T, similar_substring),
    Function::new("similar_to_escape", &[T], T, similar_to_escape),
    Function::new("similar_to_escape", &[T, T], T, similar_to_escape),
    Function::new("similar_escape", &[T, T], T, similar_to_escape),
    Function::new("regexp_match", &[T, T], TEXTS, regexp_match),
    Function::new("regexp_match", &[T, T, T], TEXTS, regexp_match),
    Function::new("regexp_replace", &[T, T, T], T, regexp_replace),
    Function::new("regexp_replace", &[T, T, T, T], T, regexp_replace),
    Function::new("regexp_replace", &[T, T, T, I], T, regexp_replace_from),
    Function::new("regexp_replace", &[T, T, T, I, I], T, regexp_replace_from),
    Function::new("regexp_replace", &[T, T, T, I, I, T], T, regexp_replace_from),
    Function::new("regexp_split_to_array", &[T, T], TEXTS, regexp_split_to_array),
    Function::new("regexp_split_to_array", &[T, T, T], TEXTS, regexp_split_to_array),
];

fn regex_operator(arguments: &[Value], flags: &str) -> Result<Value, SqlError> {
    let (text, pattern) = two_strings(arguments)?;
    compiled(pattern, flags)?.is_match(text).map(Value::Bool)
}

/// A function's flags without `g`, and whether `g` was among them.
fn split_flags(flags: &str) -> (String, bool) {
    (flags.replace('g', ""), flags.contains('g'))
}

/// The flags of a function that knows only one match.
fn no_global<'a>(function: &str, flags: &'a str) -> Result<&'a str, SqlError> {
    if !flags.contains('g') {
        return Ok(flags);
    }
    let error = SqlError::new(
        SqlState::INVALID_PARAMETER_VALUE,
        format!("{function}() does not support the \"global\" option"),
    );
    Err(if function == "regexp_match" { error.with_hint("Use the regexp_matches function instead.") } else { error })
}

/// A call's arguments: the text, the expression, and those behind them as far as they are given.
struct Call<'a> {
    arguments: &'a [Value],
}

impl<'a> Call<'a> {
    fn text(&self, at: usize) -> Result<&'a str, SqlError> {
        self.arguments.get(at).and_then(characters).ok_or_else(|| mismatch(self.arguments))
    }

    fn flags(&self, at: usize) -> Result<&'a str, SqlError> {
        if at < self.arguments.len() { self.text(at) } else { Ok("") }
    }

    /// A number that is no smaller than `least`.
    fn number(&self, at: usize, name: &str, default: i32, least: i32) -> Result<usize, SqlError> {
        let number = match self.arguments.get(at) {
            None => default,
            Some(Value::Int4(number)) => *number,
            Some(_) => return Err(mismatch(self.arguments)),
        };
        if number < least {
            return Err(SqlError::new(
                SqlState::INVALID_PARAMETER_VALUE,
                format!("invalid value for parameter \"{name}\": {number}"),
            ));
        }
        Ok(number as usize)
    }

    /// Where the character begins that a number from 1 names; nothing when that lies behind the
    /// text's end.
    fn start(&self, at: usize) -> Result<Option<usize>, SqlError> {
        let text = self.text(0)?;
        let number = self.number(at, "start", 1, 1)?;
        let ends = text.char_indices().map(|(at, _)| at).chain([text.len()]);
        Ok(ends.into_iter().nth(number - 1))
    }
}

/// The matches of an expression, one after the other. Behind an empty one, the search continues one
/// character further, as it does in PostgreSQL; other matches may be followed by an empty one.
/// Before each is looked for, which may take as long as the text is, it is asked whether the
/// statement is to end; that is an error, the last item.
fn matches<'t>(
    regex: &Regex,
    text: &'t str,
    from: Option<usize>,
) -> impl Iterator<Item = Result<Captures<'t>, SqlError>> {
    let mut next = from;
    std::iter::from_fn(move || {
        let from = next.take()?;
        if let Err(error) = work::check() {
            return Some(Err(error));
        }
        let captures = match regex.captures_at(text, from) {
            Ok(captures) => captures?,
            Err(error) => return Some(Err(error)),
        };
        let all = captures.get(0)?;
        next = if all.is_empty() {
            text[all.end()..].chars().next().map(|character| all.end() + character.len_utf8())
        } else {
            Some(all.end())
        };
        Some(Ok(captures))
    })
}

/// One of the matches, by its number from 1.
fn nth_match<'t>(
    regex: &Regex,
    text: &'t str,
    start: Option<usize>,
    number: usize,
) -> Result<Option<Captures<'t>>, SqlError> {
    for (at, captures) in matches(regex, text, start).enumerate() {
        let captures = captures?;
        if at + 1 == number {
            return Ok(Some(captures));
        }
    }
    Ok(None)
}

fn regexp_like(arguments: &[Value], _: &EvalContext<'_>) -> Result<Value, SqlError> {
    let call = Call { arguments };
    let flags = no_global("regexp_like", call.flags(2)?)?;
    compiled(call.text(1)?, flags)?.is_match(call.text(0)?).map(Value::Bool)
}

fn regexp_count(arguments: &[Value], _: &EvalContext<'_>) -> Result<Value, SqlError> {
    let call = Call { arguments };
    let start = call.start(2)?;
    let regex = compiled(call.text(1)?, no_global("regexp_count", call.flags(3)?)?)?;
    let mut count = 0;
    for captures in matches(&regex, call.text(0)?, start) {
        captures?;
        count += 1;
    }
    Ok(Value::Int4(count))
}

/// The place of a match, or of a group of it, from 1; or the place behind it.
fn regexp_instr(arguments: &[Value], _: &EvalContext<'_>) -> Result<Value, SqlError> {
    let call = Call { arguments };
    let text = call.text(0)?;
    let start = call.start(2)?;
    let number = call.number(3, "n", 1, 1)?;
    let end = call.number(4, "endoption", 0, 0)?;
    if end > 1 {
        return Err(SqlError::new(
            SqlState::INVALID_PARAMETER_VALUE,
            format!("invalid value for parameter \"endoption\": {end}"),
        ));
    }
    let group = call.number(6, "subexpr", 0, 0)?;
    let regex = compiled(call.text(1)?, no_global("regexp_instr", call.flags(5)?)?)?;
    let found = nth_match(&regex, text, start, number)?;
    let found = found.and_then(|captures| captures.get(group));
    Ok(Value::Int4(found.map_or(0, |found| {
        let at = if end == 1 { found.end() } else { found.start() };
        text[..at].chars().count() as i32 + 1
    })))
}

fn regexp_substr(arguments: &[Value], _: &EvalContext<'_>) -> Result<Value, SqlError> {
    let call = Call { arguments };
    let start = call.start(2)?;
    let number = call.number(3, "n", 1, 1)?;
    let group = call.number(5, "subexpr", 0, 0)?;
    let regex = compiled(call.text(1)?, no_global("regexp_substr", call.flags(4)?)?)?;
    let found = nth_match(&regex, call.text(0)?, start, number)?;
    let found = found.and_then(|captures| captures.get(group));
    Ok(found.map(|found| found.as_str()).into())
}

/// What the first group matches, or all if none exists.
fn substring_regex(arguments: &[Value], _: &EvalContext<'_>) -> Result<Value, SqlError> {
    take!(arguments: Text(text), Text(pattern));
    let regex = compiled(pattern, "")?;
    let Some(captures) = regex.captures_at(text, 0)? else { return Ok(Value::Null) };
    let found = captures.get(usize::from(captures.len() > 1));
    Ok(found.map(|found| found.as_str()).into())
}

/// The groups of a match, or all of it if there are none.
fn groups(captures: &Captures<'_>) -> Value {
    let skipped = usize::from(captures.len() > 1);
    let groups = captures.iter().skip(skipped).map(|group| group.map(|group| group.as_str()).into()).collect();
    Value::array(Array::new(Kind::Text, groups))
}

fn regexp_match(arguments: &[Value], _: &EvalContext<'_>) -> Result<Value, SqlError> {
    let call = Call { arguments };
    let regex = compiled(call.text(1)?, no_global("regexp_match", call.flags(2)?)?)?;
    Ok(regex.captures_at(call.text(0)?, 0)?.map(|captures| groups(&captures)).unwrap_or_default())
}

/// Replaces the match of this number from 1, or all of them.
fn replaced(
    text: &str,
    regex: &Regex,
    replacement: &str,
    start: Option<usize>,
    number: Option<usize>,
) -> Result<String, SqlError> {
    let mut out = String::with_capacity(text.len());
    let mut done = 0;
    let (skip, take) = number.map_or((0, usize::MAX), |number| (number - 1, 1));
    for (at, captures) in matches(regex, text, start).enumerate().take(skip.saturating_add(take)) {
        let captures = captures?;
        if at < skip {
            continue;
        }
        let Some(all) = captures.get(0) else { continue };
        out.push_str(&text[done..all.start()]);
        done = all.end();
        checked_length(out.len() + replacement.len())?;
        let mut characters = replacement.chars();
        while let Some(character) = characters.next() {
            if character != '\\' {
                out.push(character);
                continue;
            }
            match characters.next() {
                Some('&') => out.push_str(all.as_str()),
                Some(digit @ '1'..='9') => {
                    let group = digit.to_digit(10).and_then(|group| captures.get(group as usize));
                    out.push_str(group.map_or("", |group| group.as_str()));
                }
                Some('\\') | None => out.push('\\'),
                Some(other) => {
                    out.push('\\');
                    out.push(other);
                }
            }
        }
    }
    checked_length(out.len() + text.len() - done)?;
    out.push_str(&text[done..]);
    Ok(out)
}

fn regexp_replace(arguments: &[Value], _: &EvalContext<'_>) -> Result<Value, SqlError> {
    let call = Call { arguments };
    let flags = call.flags(3)?;
    if let Some(digit) = flags.chars().next().filter(char::is_ascii_digit) {
        return Err(SqlError::new(
            SqlState::INVALID_PARAMETER_VALUE,
            format!("invalid regular expression option: \"{digit}\""),
        )
        .with_hint(
            "If you meant to use regexp_replace() with a start parameter, cast the fourth argument to integer \
             explicitly.",
        ));
    }
    let (flags, global) = split_flags(flags);
    let regex = compiled(call.text(1)?, &flags)?;
    let number = if global { None } else { Some(1) };
    Ok(Value::text(replaced(call.text(0)?, &regex, call.text(2)?, Some(0), number)?))
}

/// `regexp_replace` with the place to start from, the number of the match, 0 for all, and flags.
fn regexp_replace_from(arguments: &[Value], _: &EvalContext<'_>) -> Result<Value, SqlError> {
    let call = Call { arguments };
    let start = call.start(3)?;
    let (flags, global) = split_flags(call.flags(5)?);
    let number = call.number(4, "n", if global { 0 } else { 1 }, 0)?;
    let regex = compiled(call.text(1)?, &flags)?;
    let number = (number > 0).then_some(number);
    Ok(Value::text(replaced(call.text(0)?, &regex, call.text(2)?, start, number)?))
}

/// What lies between the matches of an expression. Empty matches at either end, and right behind
/// another, do not split.
fn split<'t>(regex: &Regex, text: &'t str) -> Result<(Vec<&'t str>, Kept), SqlError> {
    // Each is allocated by itself in the end.
    const PART: usize = size_of::<Value>() + 64;
    let kept = work::kept();
    let mut parts = Vec::new();
    let (mut from, mut last_end) = (0, 0);
    for captures in matches(regex, text, Some(0)) {
        let Some(found) = captures?.get(0) else { continue };
        if found.start() < text.len() && found.end() > last_end {
            parts.push(&text[from..found.start()]);
            kept.grown_to(parts.len() * PART)?;
            checked_count(parts.len())?;
            from = found.end();
        }
        last_end = found.end();
    }
    parts.push(&text[from..]);
    Ok((parts, kept))
}

fn regexp_split_to_array(arguments: &[Value], _: &EvalContext<'_>) -> Result<Value, SqlError> {
    let call = Call { arguments };
    let regex = compiled(call.text(1)?, no_global("regexp_split_to_array", call.flags(2)?)?)?;
    let (parts, _kept) = split(&regex, call.text(0)?)?;
    checked_count(parts.len())?;
    let parts = parts.into_iter().map(Value::from).collect();
    Ok(Value::array(Array::new(Kind::Text, parts)))
}

/// The rows of `regexp_matches`: the groups of a match as a `text[]`, for the first match or, with
/// the flag `g`, for each; and what they take.
///
/// # Errors
/// 2201B when the expression is none, 22023 when a flag is unknown; 53200, 57014, 57P01.
pub fn regexp_matches(text: &str, pattern: &str, flags: &str) -> Result<(Vec<Value>, Kept), SqlError> {
    let (flags, global) = split_flags(flags);
    let regex = compiled(pattern, &flags)?;
    let count = if global { usize::MAX } else { 1 };
    let kept = work::kept();
    let (mut found, mut bytes) = (Vec::new(), 0);
    for captures in matches(&regex, text, Some(0)).take(count) {
        let groups = groups(&captures?);
        bytes += size_of_value(&groups) + size_of::<Value>();
        kept.grown_to(bytes)?;
        found.push(groups);
        checked_count(found.len())?;
    }
    Ok((found, kept))
}
