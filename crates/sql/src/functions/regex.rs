//! Regular expressions.
//!
//! They are translated to those of the `regex` crate: matching takes linear time, and there are no back references and
//! no looking around. Of alternatives that match at the same place the first is taken, where PostgreSQL takes the
//! longest.

use std::{cell::RefCell, rc::Rc};

use crate::{SqlError, SqlState};

/// A compiled regular expression.
#[derive(Clone, Debug)]
pub struct Regex(pub(super) regex::Regex);

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
        Self::build(&translated, options)
    }

    /// Compiles an expression that has to match all of a text, in three parts of which the middle one is captured and
    /// the first takes as little as it can; or in fewer.
    pub(super) fn marked(parts: &[String]) -> Result<Self, SqlError> {
        let mut whole = String::from("^(?:");
        for (at, part) in parts.iter().enumerate() {
            let part = translate(part)?;
            match at {
                // Its repetitions take few instead of many.
                0 if parts.len() > 1 => whole.push_str(&format!("(?U:{part})")),
                1 => whole.push_str(&format!(")({part})(?:")),
                _ => whole.push_str(&part),
            }
        }
        whole.push_str(")$");
        Self::build(&whole, Options::default())
    }

    fn build(translated: &str, options: Options) -> Result<Self, SqlError> {
        regex::RegexBuilder::new(translated)
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
                    let quantifier = detail.contains("repetition operator missing expression");
                    invalid(if parentheses {
                        "parentheses () not balanced"
                    } else if quantifier {
                        "quantifier operand invalid"
                    } else {
                        "syntax error"
                    })
                    .with_detail(detail)
                }
            })
    }

    /// Whether it matches somewhere in the text.
    pub fn is_match(&self, text: &str) -> bool {
        self.0.is_match(text)
    }
}

/// What stands before a place in an expression, as far as quantifiers are concerned.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Before {
    /// Something that can be repeated.
    Atom,
    /// A quantifier, which a question mark may follow.
    Quantifier,
    /// Nothing that can be repeated: a beginning, an anchor, a quantifier with its question mark.
    Nothing,
}

/// An expression of PostgreSQL's as one of the `regex` crate's.
fn translate(pattern: &str) -> Result<String, SqlError> {
    let operand = || invalid("quantifier operand invalid");
    let mut out = String::with_capacity(pattern.len() + 8);
    let mut rest = pattern.chars().peekable();
    let mut before = Before::Nothing;
    while let Some(character) = rest.next() {
        before = match (character, before) {
            ('?', Before::Quantifier) => {
                out.push('?');
                Before::Nothing
            }
            ('*' | '+' | '?', Before::Atom) => {
                out.push(character);
                Before::Quantifier
            }
            ('*' | '+' | '?', _) => return Err(operand()),
            ('{', _) if rest.peek().is_some_and(char::is_ascii_digit) => {
                translate_count(&mut rest, &mut out)?;
                if before != Before::Atom {
                    return Err(operand());
                }
                Before::Quantifier
            }
            // A brace that does not begin a number of repetitions is an ordinary character.
            ('{', _) => {
                out.push_str("\\{");
                Before::Atom
            }
            ('\\', _) => {
                let is_anchor = rest.peek().is_some_and(|escaped| "yYmMAZ".contains(*escaped));
                translate_escape(&mut rest, false, &mut out)?;
                if is_anchor { Before::Nothing } else { Before::Atom }
            }
            ('[', _) => match rest.clone().take(6).collect::<String>().as_str() {
                // Where words begin and end.
                edge @ ("[:<:]]" | "[:>:]]") => {
                    out.push_str(if edge == "[:<:]]" { "\\b{start}" } else { "\\b{end}" });
                    rest.nth(5);
                    Before::Nothing
                }
                _ => {
                    translate_class(&mut rest, &mut out)?;
                    Before::Atom
                }
            },
            // A comment.
            ('(', before) if rest.clone().take(2).eq("?#".chars()) => {
                if !rest.any(|character| character == ')') {
                    return Err(invalid("parentheses () not balanced"));
                }
                before
            }
            ('(', _) => {
                out.push('(');
                if rest.peek() == Some(&'?') {
                    rest.next();
                    match rest.peek() {
                        Some(':') => {
                            rest.next();
                            out.push_str("?:");
                        }
                        Some('=' | '!' | '<') => return Err(invalid("lookaround is not supported")),
                        _ => return Err(operand()),
                    }
                }
                Before::Nothing
            }
            ('|' | '^' | '$', _) => {
                out.push(character);
                Before::Nothing
            }
            _ => {
                out.push(character);
                Before::Atom
            }
        };
    }
    Ok(out)
}

/// The most repetitions that a number may ask for.
const MAX_COUNT: u32 = 255;

/// `2}`, `2,}` or `2,3}`, behind the opening brace.
fn translate_count(rest: &mut Characters<'_>, out: &mut String) -> Result<(), SqlError> {
    let bad = || invalid("invalid repetition count(s)");
    let mut text = String::new();
    loop {
        match rest.next() {
            None => return Err(invalid("braces {} not balanced")),
            Some('}') => break,
            Some(character) => text.push(character),
        }
    }
    let number = |text: &str| match text.parse::<u32>() {
        Ok(number) if number <= MAX_COUNT && text.bytes().all(|byte| byte.is_ascii_digit()) => Ok(number),
        _ => Err(bad()),
    };
    match text.split_once(',') {
        None => drop(number(&text)?),
        Some((low, "")) => drop(number(low)?),
        Some((low, high)) => {
            if number(low)? > number(high)? {
                return Err(bad());
            }
        }
    }
    out.push('{');
    out.push_str(&text);
    out.push('}');
    Ok(())
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
pub(super) fn compiled(pattern: &str, flags: &str) -> Result<Rc<Regex>, SqlError> {
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
