//! SQL's own regular expressions, of SIMILAR TO and of SUBSTRING.
//!
//! `a SIMILAR TO b ESCAPE c` is `a ~ similar_to_escape(b, c)`.

use super::{mismatch, regex::compiled};
use crate::{
    SqlError, SqlState,
    types::{EvalContext, Value},
};

/// The three parts of an expression whose middle is marked by the escape character and a double
/// quote, or one that is not, in the syntax of PostgreSQL's regular expressions.
fn parts(pattern: &str, escape: Option<char>) -> Result<Vec<String>, SqlError> {
    let mut parts = vec![String::new()];
    let mut in_class = false;
    let mut characters = pattern.chars();
    while let Some(character) = characters.next() {
        if Some(character) == escape {
            match characters.next() {
                Some('"') if !in_class => {
                    if parts.len() == 3 {
                        return Err(SqlError::new(
                            SqlState::INVALID_USE_OF_ESCAPE_CHARACTER,
                            "SQL regular expression may not contain more than two escape-double-quote separators",
                        ));
                    }
                    parts.push(String::new());
                }
                Some(escaped) => parts.iter_mut().next_back().into_iter().for_each(|out| {
                    out.push('\\');
                    out.push(escaped);
                }),
                None => {}
            }
            continue;
        }
        let Some(out) = parts.last_mut() else { break };
        match character {
            '\\' => out.push_str("\\\\"),
            _ if in_class => {
                out.push(character);
                in_class = character != ']';
            }
            '[' => {
                out.push('[');
                in_class = true;
            }
            '%' => out.push_str(".*"),
            '_' => out.push('.'),
            '(' => out.push_str("(?:"),
            '.' | '^' | '$' => {
                out.push('\\');
                out.push(character);
            }
            _ => out.push(character),
        }
    }
    Ok(parts)
}

/// The escape character: a backslash unless one is given, none if that is nothing.
fn escape_character(escape: Option<&str>) -> Result<Option<char>, SqlError> {
    let Some(escape) = escape else { return Ok(Some('\\')) };
    let mut characters = escape.chars();
    match (characters.next(), characters.next()) {
        (escape, None) => Ok(escape),
        _ => Err(SqlError::new(SqlState::INVALID_ESCAPE_SEQUENCE, "invalid escape string")
            .with_hint("Escape string must be empty or one character.")),
    }
}

/// The regular expression that matches the same texts.
pub(super) fn similar_to_escape(arguments: &[Value], _: &EvalContext<'_>) -> Result<Value, SqlError> {
    let (pattern, escape) = match arguments {
        [Value::Text(pattern)] => (pattern, None),
        [Value::Text(pattern), Value::Text(escape)] => (pattern, Some(&**escape)),
        _ => return Err(mismatch(arguments)),
    };
    let parts = parts(pattern, escape_character(escape)?)?;
    Ok(Value::text(format!("^(?:{})$", parts.concat())))
}

/// `SUBSTRING(text FROM pattern FOR escape)`: what the marked middle of the pattern matches, the
/// part before it taking as little as it can.
pub(super) fn similar_substring(arguments: &[Value], _: &EvalContext<'_>) -> Result<Value, SqlError> {
    let [Value::Text(text), Value::Text(pattern), Value::Text(escape)] = arguments else {
        return Err(mismatch(arguments));
    };
    let parts = parts(pattern, escape_character(Some(escape))?)?;
    // The first part prefers to take little, the others much.
    let pattern = match &parts[..] {
        [before, marked, behind] => format!("^(?:{before}){{1,1}}?({marked}){{1,1}}(?:{behind})$"),
        [before, marked] => format!("^(?:{before}){{1,1}}?({marked})$"),
        all => format!("^(?:{})$", all.concat()),
    };
    let regex = compiled(&pattern, "")?;
    let Some(captures) = regex.captures_at(text, 0)? else { return Ok(Value::Null) };
    let found = captures.get(usize::from(captures.len() > 1));
    Ok(found.map(|found| found.as_str()).into())
}
