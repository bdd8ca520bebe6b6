//! LIKE and regular expressions.
//!
//! Regular expressions are translated to those of the `regex` crate: matching takes linear time, and there are no
//! back references and no looking around. Of alternatives that match at the same place the first is taken, where
//! PostgreSQL takes the longest.

use std::{borrow::Cow, cell::RefCell, rc::Rc};

use super::{Function, string::lower, take};
use crate::{
    SqlError, SqlState,
    types::{Array, EvalContext, Kind, Value},
};

const T: Kind = Kind::Text;
const B: Kind = Kind::Bool;

pub(super) const FUNCTIONS: &[Function] = &[
    Function::new("~~", &[T, T], B, |arguments, _| like_operator(arguments, false)),
    Function::new("!~~", &[T, T], B, |arguments, _| negate(like_operator(arguments, false))),
    Function::new("~~*", &[T, T], B, |arguments, _| like_operator(arguments, true)),
    Function::new("!~~*", &[T, T], B, |arguments, _| negate(like_operator(arguments, true))),
    Function::new("~~", &[Kind::Char, T], B, |arguments, _| like_operator(arguments, false)),
    Function::new("!~~", &[Kind::Char, T], B, |arguments, _| negate(like_operator(arguments, false))),
    Function::new("~~*", &[Kind::Char, T], B, |arguments, _| like_operator(arguments, true)),
    Function::new("!~~*", &[Kind::Char, T], B, |arguments, _| negate(like_operator(arguments, true))),
    Function::new("~~", &[Kind::Bytea, Kind::Bytea], B, |arguments, _| like_bytes(arguments)),
    Function::new("!~~", &[Kind::Bytea, Kind::Bytea], B, |arguments, _| negate(like_bytes(arguments))),
    Function::new("like_escape", &[T, T], T, like_escape),
    Function::new("starts_with", &[T, T], B, starts_with),
    Function::new("^@", &[T, T], B, starts_with),
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
    Function::new("regexp_like", &[T, T], B, |arguments, _| regex_operator(arguments, "")),
    Function::new("regexp_like", &[T, T, T], B, regexp_like),
    Function::new("regexp_count", &[T, T], Kind::Int4, regexp_count),
    Function::new("regexp_substr", &[T, T], T, substring_regex),
    Function::new("substring", &[T, T], T, substring_regex),
    Function::new("regexp_match", &[T, T], Kind::TextArray, regexp_match),
    Function::new("regexp_match", &[T, T, T], Kind::TextArray, regexp_match),
    Function::new("regexp_replace", &[T, T, T], T, regexp_replace),
    Function::new("regexp_replace", &[T, T, T, T], T, regexp_replace),
    Function::new("regexp_split_to_array", &[T, T], Kind::TextArray, regexp_split_to_array),
    Function::new("regexp_split_to_array", &[T, T, T], Kind::TextArray, regexp_split_to_array),
];

fn negate(result: Result<Value, SqlError>) -> Result<Value, SqlError> {
    match result? {
        Value::Bool(truth) => Ok(Value::Bool(!truth)),
        other => Ok(other),
    }
}

/// The characters of a string argument; those of `char(n)` with their blanks.
fn characters(value: &Value) -> Option<&str> {
    match value {
        Value::Text(text) | Value::Char(text) => Some(text),
        _ => None,
    }
}

fn two_strings(arguments: &[Value]) -> Result<(&str, &str), SqlError> {
    match arguments {
        [one, two] => characters(one).zip(characters(two)),
        _ => None,
    }
    .ok_or_else(|| super::mismatch(arguments))
}

fn like_operator(arguments: &[Value], any_case: bool) -> Result<Value, SqlError> {
    let (text, pattern) = two_strings(arguments)?;
    let matched = if any_case {
        like(lower(text).as_bytes(), lower(pattern).as_bytes(), true)?
    } else {
        like(text.as_bytes(), pattern.as_bytes(), true)?
    };
    Ok(Value::Bool(matched))
}

fn like_bytes(arguments: &[Value]) -> Result<Value, SqlError> {
    take!(arguments: Bytea(bytes), Bytea(pattern));
    like(bytes, pattern, false).map(Value::Bool)
}

/// How many bytes the character has that begins here.
fn width(text: &[u8], utf8: bool) -> usize {
    match text.first() {
        Some(0xc0..=0xdf) if utf8 => 2,
        Some(0xe0..=0xef) if utf8 => 3,
        Some(0xf0..) if utf8 => 4,
        _ => 1,
    }
    .min(text.len())
}

/// Whether text is like a pattern.
fn like(text: &[u8], pattern: &[u8], utf8: bool) -> Result<bool, SqlError> {
    let (mut text, mut pattern) = (text, pattern);
    // Where to go on when what follows the last % does not match: one character further in the text.
    let mut retry: Option<(&[u8], &[u8])> = None;
    loop {
        let matched = match (pattern, text) {
            ([b'%', rest @ ..], _) => {
                if rest.is_empty() {
                    return Ok(true);
                }
                pattern = rest;
                retry = Some((text, rest));
                true
            }
            ([b'_', rest @ ..], [_, ..]) => {
                text = &text[width(text, utf8)..];
                pattern = rest;
                true
            }
            ([b'\\'], [_, ..]) => {
                return Err(SqlError::new(
                    SqlState::INVALID_ESCAPE_SEQUENCE,
                    "LIKE pattern must not end with escape character",
                ));
            }
            ([b'\\', wanted, rest @ ..] | [wanted, rest @ ..], [found, after @ ..]) if wanted == found => {
                text = after;
                pattern = rest;
                true
            }
            ([], []) => return Ok(true),
            _ => false,
        };
        if matched {
            continue;
        }
        match retry {
            Some((from, rest)) if !from.is_empty() => {
                let from = &from[width(from, utf8)..];
                retry = Some((from, rest));
                text = from;
                pattern = rest;
            }
            _ => return Ok(false),
        }
    }
}

/// What everything that is like a pattern begins with, and whether nothing but that is.
pub fn like_prefix(pattern: &str) -> (String, bool) {
    let mut prefix = String::new();
    let mut characters = pattern.chars();
    while let Some(character) = characters.next() {
        match character {
            '%' | '_' => return (prefix, false),
            '\\' => match characters.next() {
                Some(escaped) => prefix.push(escaped),
                None => return (prefix, false),
            },
            _ => prefix.push(character),
        }
    }
    (prefix, true)
}

/// A pattern with another escape character than the backslash, written with the backslash.
fn like_escape(arguments: &[Value], _: &EvalContext<'_>) -> Result<Value, SqlError> {
    take!(arguments: Text(pattern), Text(escape));
    let mut characters = escape.chars();
    let escape = characters.next();
    if characters.next().is_some() {
        return Err(SqlError::new(SqlState::INVALID_ESCAPE_SEQUENCE, "invalid escape string")
            .with_hint("Escape string must be empty or one character."));
    }
    let mut out = String::with_capacity(pattern.len());
    let mut escaped = false;
    for character in pattern.chars() {
        if Some(character) == escape && !escaped {
            out.push('\\');
            escaped = true;
        } else {
            if character == '\\' && !escaped {
                out.push('\\');
            }
            out.push(character);
            escaped = false;
        }
    }
    Ok(Value::text(out))
}

fn starts_with(arguments: &[Value], _: &EvalContext<'_>) -> Result<Value, SqlError> {
    take!(arguments: Text(text), Text(prefix));
    Ok(Value::Bool(text.starts_with(&**prefix)))
}

/// A compiled regular expression.
#[derive(Clone, Debug)]
pub struct Regex(regex::Regex);

#[cold]
fn invalid(detail: &str) -> SqlError {
    SqlError::new(SqlState::INVALID_REGULAR_EXPRESSION, format!("invalid regular expression: {detail}"))
}

/// Options of a regular expression, as the letters of PostgreSQL's flags say them.
#[derive(Clone, Copy, Debug, Default)]
struct Options {
    any_case: bool,
    /// Lines count: `.` does not match a newline, `^` and `$` match at lines' ends.
    lines: bool,
    /// `^` and `$` match at lines' ends, but `.` matches a newline.
    line_anchors: bool,
    /// `.` does not match a newline, but `^` and `$` match at the text's ends only.
    partial: bool,
    expanded: bool,
    literal: bool,
}

impl Options {
    fn set(&mut self, letter: char) -> Result<(), SqlError> {
        match letter {
            'i' => self.any_case = true,
            'c' => self.any_case = false,
            'n' | 'm' => self.lines = true,
            's' => (self.lines, self.line_anchors, self.partial) = (false, false, false),
            'w' => self.line_anchors = true,
            'p' => self.partial = true,
            'x' => self.expanded = true,
            't' => self.expanded = false,
            'q' => self.literal = true,
            'b' | 'e' => {}
            other => {
                return Err(SqlError::new(
                    SqlState::INVALID_PARAMETER_VALUE,
                    format!("invalid regular expression option: \"{other}\""),
                ));
            }
        }
        Ok(())
    }
}

impl Regex {
    /// Compiles an expression with flags: `i` for any case, `n` for newlines that count, and so on.
    ///
    /// # Errors
    /// 2201B when it is none, or needs what is not supported; 22023 when a flag is unknown.
    pub fn new(pattern: &str, flags: &str) -> Result<Self, SqlError> {
        let mut options = Options::default();
        flags.chars().try_for_each(|flag| options.set(flag))?;
        let mut body = pattern;
        if let Some(literal) = body.strip_prefix("***=") {
            options.literal = true;
            body = literal;
        } else if let Some(rest) = body.strip_prefix("***:") {
            body = rest;
        }
        // Options at the beginning: (?in)
        if !options.literal
            && let Some((letters, rest)) = body.strip_prefix("(?").and_then(|rest| rest.split_once(')'))
            && !letters.is_empty()
            && letters.bytes().all(|letter| letter.is_ascii_lowercase())
        {
            letters
                .chars()
                .try_for_each(|letter| options.set(letter))
                .map_err(|_| invalid("invalid embedded option"))?;
            body = rest;
        }
        let translated = if options.literal { regex::escape(body) } else { translate(body)? };
        regex::RegexBuilder::new(&translated)
            .case_insensitive(options.any_case)
            .multi_line(options.lines || options.line_anchors)
            .dot_matches_new_line(!options.lines && !options.partial)
            .ignore_whitespace(options.expanded)
            .build()
            .map(Self)
            .map_err(|error| match error {
                regex::Error::CompiledTooBig(_) => invalid("regular expression is too complex"),
                _ => {
                    let detail = error.to_string();
                    let parentheses = detail.contains("unclosed group") || detail.contains("unopened group");
                    invalid(if parentheses { "parentheses () not balanced" } else { "syntax error" })
                        .with_detail(detail)
                }
            })
    }

    /// Whether it matches somewhere in the text.
    pub fn is_match(&self, text: &str) -> bool {
        self.0.is_match(text)
    }
}

/// An expression of PostgreSQL's as one of the `regex` crate's.
fn translate(pattern: &str) -> Result<String, SqlError> {
    let mut out = String::with_capacity(pattern.len() + 8);
    let mut rest = pattern.chars().peekable();
    while let Some(character) = rest.next() {
        match character {
            '\\' => translate_escape(&mut rest, false, &mut out)?,
            '[' => translate_class(&mut rest, &mut out)?,
            // A brace that does not begin a number of repetitions is an ordinary character.
            '{' if !rest.peek().is_some_and(char::is_ascii_digit) => out.push_str("\\{"),
            '(' => {
                out.push('(');
                if rest.peek() == Some(&'?') {
                    rest.next();
                    match rest.peek() {
                        Some(':') => out.push('?'),
                        Some('=' | '!' | '<') => return Err(invalid("lookaround is not supported")),
                        _ => return Err(invalid("quantifier operand invalid")),
                    }
                }
            }
            _ => out.push(character),
        }
    }
    Ok(out)
}

type Characters<'a> = std::iter::Peekable<std::str::Chars<'a>>;

fn translate_escape(rest: &mut Characters<'_>, in_class: bool, out: &mut String) -> Result<(), SqlError> {
    let Some(character) = rest.next() else { return Err(invalid("invalid escape \\ sequence")) };
    let mut code = |digits: usize, exactly: bool| -> Result<String, SqlError> {
        let mut hex = String::new();
        while hex.len() < digits
            && let Some(digit) = rest.peek().filter(|digit| digit.is_ascii_hexdigit())
        {
            hex.push(*digit);
            rest.next();
        }
        if hex.is_empty() || exactly && hex.len() < digits {
            return Err(invalid("invalid escape \\ sequence"));
        }
        Ok(format!("\\x{{{hex}}}"))
    };
    match character {
        'y' if !in_class => out.push_str("\\b"),
        'Y' if !in_class => out.push_str("\\B"),
        'm' if !in_class => out.push_str("\\b{start}"),
        'M' if !in_class => out.push_str("\\b{end}"),
        'A' if !in_class => out.push_str("\\A"),
        'Z' if !in_class => out.push_str("\\z"),
        'd' | 's' | 'w' | 'D' | 'S' | 'W' | 'n' | 'r' | 't' | 'f' | 'v' | 'a' => {
            out.push('\\');
            out.push(character);
        }
        'b' => out.push_str("\\x08"),
        'B' => out.push_str("\\\\"),
        'e' => out.push_str("\\x1B"),
        'u' => out.push_str(&code(4, true)?),
        'U' => out.push_str(&code(8, true)?),
        'x' => out.push_str(&code(8, false)?),
        '0' => out.push_str("\\x00"),
        'c' => match rest.next() {
            Some(control) => out.push_str(&format!("\\x{{{:x}}}", u32::from(control) & 31)),
            None => return Err(invalid("invalid escape \\ sequence")),
        },
        '1'..='9' => return Err(invalid("back references are not supported")),
        _ if character.is_alphanumeric() => return Err(invalid("invalid escape \\ sequence")),
        _ => out.push_str(&regex::escape(&character.to_string())),
    }
    Ok(())
}

/// The characters between brackets.
fn translate_class(rest: &mut Characters<'_>, out: &mut String) -> Result<(), SqlError> {
    let unbalanced = || invalid("brackets [] not balanced");
    out.push('[');
    if rest.peek() == Some(&'^') {
        rest.next();
        out.push('^');
    }
    let mut first = true;
    loop {
        let character = rest.next().ok_or_else(unbalanced)?;
        match character {
            ']' if !first => {
                out.push(']');
                return Ok(());
            }
            '[' if matches!(rest.peek(), Some(':' | '.' | '=')) => {
                let kind = rest.next().unwrap_or(':');
                let mut name = String::new();
                loop {
                    match rest.next().ok_or_else(unbalanced)? {
                        end if end == kind && rest.peek() == Some(&']') => break,
                        other => name.push(other),
                    }
                }
                rest.next();
                match (kind, name.as_str()) {
                    (':', "alpha") => out.push_str("\\p{L}"),
                    (':', "alnum") => out.push_str("\\p{L}\\p{N}"),
                    (':', "digit") => out.push_str("\\d"),
                    (':', "lower") => out.push_str("\\p{Ll}"),
                    (':', "upper") => out.push_str("\\p{Lu}"),
                    (':', "space") => out.push_str("\\s"),
                    (':', "word") => out.push_str("\\w"),
                    (':', "punct" | "blank" | "cntrl" | "graph" | "print" | "xdigit") => {
                        out.push_str(&format!("[:{name}:]"));
                    }
                    (':', _) => return Err(invalid("invalid character class")),
                    (_, name) if name.chars().count() == 1 => out.push_str(&regex::escape(name)),
                    _ => return Err(invalid("invalid collating element")),
                }
            }
            '\\' => translate_escape(rest, true, out)?,
            // Signs that the other syntax gives a meaning within brackets.
            '[' | ']' | '&' | '~' | '^' | '#' | ' ' => {
                out.push('\\');
                out.push(character);
            }
            '-' if first || rest.peek() == Some(&']') => out.push_str("\\-"),
            _ => out.push(character),
        }
        first = false;
    }
}

/// How many compiled expressions a thread keeps.
const KEPT: usize = 32;

type Compiled = (Box<str>, Box<str>, Rc<Regex>);

thread_local! {
    /// Expressions that were used last, the last one first.
    static COMPILED: RefCell<Vec<Compiled>> = const { RefCell::new(Vec::new()) };
}

/// An expression, compiled if that was not done lately.
fn compiled(pattern: &str, flags: &str) -> Result<Rc<Regex>, SqlError> {
    COMPILED.with_borrow_mut(|kept| {
        if let Some(at) = kept.iter().position(|(known, with, _)| &**known == pattern && &**with == flags) {
            kept[..=at].rotate_right(1);
            return Ok(Rc::clone(&kept[0].2));
        }
        let regex = Rc::new(Regex::new(pattern, flags)?);
        kept.truncate(KEPT - 1);
        kept.insert(0, (pattern.into(), flags.into(), Rc::clone(&regex)));
        Ok(regex)
    })
}

fn regex_operator(arguments: &[Value], flags: &str) -> Result<Value, SqlError> {
    let (text, pattern) = two_strings(arguments)?;
    Ok(Value::Bool(compiled(pattern, flags)?.is_match(text)))
}

fn regexp_like(arguments: &[Value], _: &EvalContext<'_>) -> Result<Value, SqlError> {
    take!(arguments: Text(text), Text(pattern), Text(flags));
    Ok(Value::Bool(compiled(pattern, flags)?.is_match(text)))
}

fn regexp_count(arguments: &[Value], _: &EvalContext<'_>) -> Result<Value, SqlError> {
    take!(arguments: Text(text), Text(pattern));
    Ok(Value::Int4(compiled(pattern, "")?.0.find_iter(text).count() as i32))
}

/// What the first group matches, or all if there is none.
fn substring_regex(arguments: &[Value], _: &EvalContext<'_>) -> Result<Value, SqlError> {
    take!(arguments: Text(text), Text(pattern));
    let regex = compiled(pattern, "")?;
    let Some(captures) = regex.0.captures(text) else { return Ok(Value::Null) };
    let found = captures.get(if captures.len() > 1 { 1 } else { 0 });
    Ok(found.map(|found| found.as_str()).into())
}

/// The text, the expression and the flags of a call, these without `g`, and whether `g` was among them.
fn with_flags(arguments: &[Value], flags_at: usize) -> Result<(&str, Rc<Regex>, bool), SqlError> {
    let string = |at: usize| arguments.get(at).and_then(characters);
    let (Some(text), Some(pattern)) = (string(0), string(1)) else { return Err(super::mismatch(arguments)) };
    let flags: Cow<'_, str> = string(flags_at).unwrap_or("").into();
    let global = flags.contains('g');
    let flags = if global { flags.replace('g', "").into() } else { flags };
    Ok((text, compiled(pattern, &flags)?, global))
}

fn regexp_match(arguments: &[Value], _: &EvalContext<'_>) -> Result<Value, SqlError> {
    let (text, regex, global) = with_flags(arguments, 2)?;
    if global {
        return Err(SqlError::new(
            SqlState::INVALID_PARAMETER_VALUE,
            "regexp_match() does not support the \"global\" option",
        )
        .with_hint("Use the regexp_matches function instead."));
    }
    let Some(captures) = regex.0.captures(text) else { return Ok(Value::Null) };
    let skipped = usize::from(captures.len() > 1);
    let groups = captures.iter().skip(skipped).map(|group| group.map(|group| group.as_str()).into()).collect();
    Ok(Value::array(Array::new(Kind::Text, groups)))
}

fn regexp_replace(arguments: &[Value], _: &EvalContext<'_>) -> Result<Value, SqlError> {
    let (text, regex, global) = with_flags(arguments, 3)?;
    let replacement = arguments.get(2).and_then(characters).ok_or_else(|| super::mismatch(arguments))?;
    let mut out = String::with_capacity(text.len());
    let mut done = 0;
    for captures in regex.0.captures_iter(text).take(if global { usize::MAX } else { 1 }) {
        let Some(all) = captures.get(0) else { continue };
        out.push_str(&text[done..all.start()]);
        done = all.end();
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
    out.push_str(&text[done..]);
    Ok(Value::text(out))
}

fn regexp_split_to_array(arguments: &[Value], _: &EvalContext<'_>) -> Result<Value, SqlError> {
    let (text, regex, global) = with_flags(arguments, 2)?;
    if global {
        return Err(SqlError::new(
            SqlState::INVALID_PARAMETER_VALUE,
            "regexp_split_to_array() does not support the \"global\" option",
        ));
    }
    let mut parts = Vec::new();
    let mut from = 0;
    for found in regex.0.find_iter(text) {
        // Empty matches at either end, and right behind another, do not split.
        if found.is_empty() && (found.start() == from || found.end() == text.len()) {
            continue;
        }
        parts.push(Value::text(&text[from..found.start()]));
        from = found.end();
    }
    parts.push(Value::text(&text[from..]));
    Ok(Value::array(Array::new(Kind::Text, parts)))
}
