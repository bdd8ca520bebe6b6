//! Regular expressions.
//!
//! They are read as PostgreSQL reads them, and written for the `regex` crate where that can match
//! them: in linear time. It says whether there is a match, and where the first begins. Where that
//! leaves open what a part of an expression matches, and for back references and looking around,
//! [`posix`](super::posix) decides.

use std::{cell::RefCell, rc::Rc};

use super::{
    compiled::build,
    posix::{Class, DEEPEST, Groups, Node, Place, Posix},
};
use crate::{SqlError, SqlState, work};

/// A compiled regular expression.
#[derive(Clone, Debug)]
pub struct Regex {
    /// The same for the `regex` crate, if that knows all that is in it.
    fast: Option<regex::Regex>,
    /// What decides which match it is, if the other does not.
    posix: Option<Box<Posix>>,
    cost: usize,
}

/// What an expression and its groups match.
#[derive(Clone, Debug)]
pub(super) struct Captures<'t> {
    text: &'t str,
    groups: Groups,
}

/// What a group matches.
#[derive(Clone, Copy, Debug)]
pub(super) struct Found<'t> {
    text: &'t str,
    start: usize,
    end: usize,
}

impl<'t> Found<'t> {
    pub fn start(self) -> usize {
        self.start
    }

    pub fn end(self) -> usize {
        self.end
    }

    pub fn is_empty(self) -> bool {
        self.start == self.end
    }

    pub fn as_str(self) -> &'t str {
        &self.text[self.start..self.end]
    }
}

impl<'t> Captures<'t> {
    /// What a group matches, if it takes part in the match; the first is the whole.
    pub fn get(&self, group: usize) -> Option<Found<'t>> {
        let (start, end) = (*self.groups.get(group)?)?;
        Some(Found { text: self.text, start, end })
    }

    /// How many groups there are, with the whole.
    pub fn len(&self) -> usize {
        self.groups.len()
    }

    pub fn iter(&self) -> impl Iterator<Item = Option<Found<'t>>> + '_ {
        (0..self.len()).map(|group| self.get(group))
    }
}

#[cold]
pub(super) fn invalid(detail: &str) -> SqlError {
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

/// How much an expression may cost, and what of it costs how much: 128 bytes of memory each, about.
mod cost {
    /// For all of it.
    pub const MOST: usize = 1 << 20;
    pub const CHARACTER: usize = 4;
    /// One that is compiled for itself.
    pub const ANY_CASE: usize = 64;
    pub const CLASS: usize = 128;
    /// A class that has a name: hundreds of ranges.
    pub const NAMED: usize = 1024;
}

#[cold]
pub(super) fn too_complex() -> SqlError {
    invalid("regular expression is too complex")
}

impl Regex {
    /// Compiles an expression with flags: `i` for any case, `n` for newlines that count, and so on.
    ///
    /// # Errors
    /// 2201B when it is none, or would cost too much; 22023 when a flag is unknown; 57014, 57P01.
    pub fn new(pattern: &str, flags: &str) -> Result<Self, SqlError> {
        if pattern.len() > cost::MOST / cost::CHARACTER {
            return Err(too_complex());
        }
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
        let mut parser =
            Parser { rest: body.chars().peekable(), options, groups: 1, closed: vec![true], depth: 0, spent: 0 };
        let root = if options.literal {
            Node::Concat(body.chars().map(|character| parser.literal(character)).collect::<Result<_, _>>()?)
        } else {
            parser.whole()?
        };
        let mut written = String::new();
        let fast = match root.write(&mut written) {
            true => Some(build(&written, options.any_case)?),
            false => None,
        };
        let plain = fast.is_some() && root.is_plain();
        if fast.is_none() {
            root.check()?;
        }
        let cost = parser.spent;
        let posix = Posix { root, groups: parser.groups, any_case: options.any_case };
        Ok(Self { fast, posix: (!plain).then(|| Box::new(posix)), cost })
    }

    /// Whether it matches somewhere in the text.
    ///
    /// # Errors
    /// 54001 when that takes too many steps; 57014, 57P01.
    pub fn is_match(&self, text: &str) -> Result<bool, SqlError> {
        work::bulk(text.len())?;
        match (&self.fast, &self.posix) {
            (Some(fast), _) => Ok(fast.is_match(text)),
            (None, Some(posix)) => Ok(posix.find_at(text, 0)?.is_some()),
            (None, None) => Ok(false),
        }
    }

    /// The first match that begins at `from` or behind it.
    ///
    /// # Errors
    /// 54001 when that takes too many steps; 57014, 57P01.
    pub(super) fn captures_at<'t>(&self, text: &'t str, from: usize) -> Result<Option<Captures<'t>>, SqlError> {
        let groups = match (&self.fast, &self.posix) {
            (Some(fast), None) => fast
                .captures_at(text, from)
                .map(|captures| captures.iter().map(|group| group.map(|group| (group.start(), group.end()))).collect()),
            // Both agree where it begins.
            (Some(fast), Some(posix)) => match fast.find_at(text, from) {
                Some(found) => posix.match_at(text, found.start())?,
                None => None,
            },
            (None, Some(posix)) => posix.find_at(text, from)?,
            (None, None) => None,
        };
        Ok(groups.map(|groups| Captures { text, groups }))
    }
}

/// Reads PostgreSQL's regular expressions.
struct Parser<'p> {
    rest: Characters<'p>,
    options: Options,
    /// How many groups there are so far, with the whole.
    groups: usize,
    /// Which of them are closed.
    closed: Vec<bool>,
    depth: usize,
    /// What it has cost so far.
    spent: usize,
}

type Characters<'a> = std::iter::Peekable<std::str::Chars<'a>>;

fn unbalanced() -> SqlError {
    invalid("parentheses () not balanced")
}

fn no_operand() -> SqlError {
    invalid("quantifier operand invalid")
}

impl Parser<'_> {
    fn spend(&mut self, cost: usize) -> Result<(), SqlError> {
        work::done(1 + cost / cost::ANY_CASE)?;
        self.spent += cost;
        if self.spent > cost::MOST { Err(too_complex()) } else { Ok(()) }
    }

    fn whole(&mut self) -> Result<Node, SqlError> {
        let root = self.branches(true)?;
        if self.rest.next().is_some() { Err(unbalanced()) } else { Ok(root) }
    }

    /// Alternatives up to a closing parenthesis or the end.
    fn branches(&mut self, capturing: bool) -> Result<Node, SqlError> {
        self.depth += 1;
        if self.depth > DEEPEST {
            return Err(too_complex());
        }
        let mut branches = vec![self.branch(capturing)?];
        while self.rest.next_if_eq(&'|').is_some() {
            branches.push(self.branch(capturing)?);
        }
        self.depth -= 1;
        Ok(match branches.pop() {
            Some(only) if branches.is_empty() => only,
            last => Node::Either(branches.into_iter().chain(last).collect()),
        })
    }

    fn branch(&mut self, capturing: bool) -> Result<Node, SqlError> {
        let mut parts = Vec::new();
        loop {
            self.skip()?;
            match self.rest.peek() {
                None | Some('|' | ')') => break,
                Some(_) => {}
            }
            let atom = self.atom(capturing)?;
            let fixed = matches!(atom, Node::At(_) | Node::Look { .. });
            self.skip()?;
            if fixed {
                parts.push(atom);
                continue;
            }
            let repeated = self.quantified(atom)?;
            self.skip()?;
            if self.at_quantifier() {
                return Err(no_operand());
            }
            parts.push(repeated);
        }
        Ok(match parts.pop() {
            None => Node::Empty,
            Some(only) if parts.is_empty() => only,
            last => Node::Concat(parts.into_iter().chain(last).collect()),
        })
    }

    /// Skips comments, and blanks where they do not count.
    fn skip(&mut self) -> Result<(), SqlError> {
        loop {
            if self.options.expanded && self.rest.next_if(|character| character.is_whitespace()).is_some() {
                continue;
            }
            if self.options.expanded && self.rest.peek() == Some(&'#') {
                while self.rest.next_if(|character| *character != '\n').is_some() {}
                continue;
            }
            if self.rest.peek() == Some(&'(') && self.rest.clone().take(3).eq("(?#".chars()) {
                if !self.rest.any(|character| character == ')') {
                    return Err(unbalanced());
                }
                continue;
            }
            return Ok(());
        }
    }

    fn at_quantifier(&self) -> bool {
        let mut ahead = self.rest.clone();
        match ahead.next() {
            Some('*' | '+' | '?') => true,
            Some('{') => ahead.next().is_some_and(|next| next.is_ascii_digit()),
            _ => false,
        }
    }

    fn quantified(&mut self, atom: Node) -> Result<Node, SqlError> {
        if !self.at_quantifier() {
            return Ok(atom);
        }
        let (least, most, chooses) = match self.rest.next() {
            Some('*') => (0, None, true),
            Some('+') => (1, None, true),
            Some('?') => (0, Some(1), true),
            _ => self.count()?,
        };
        let greedy = self.rest.next_if_eq(&'?').is_none();
        Ok(Node::Repeat { inner: Box::new(atom), least, most, prefers: chooses.then_some(greedy) })
    }

    /// `2}`, `2,}` or `2,3}`, behind the opening brace. A single number leaves it to the operand
    /// what it prefers.
    fn count(&mut self) -> Result<(u32, Option<u32>, bool), SqlError> {
        let bad = || invalid("invalid repetition count(s)");
        let mut text = String::new();
        loop {
            match self.rest.next() {
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
            None => number(&text).map(|count| (count, Some(count), false)),
            Some((low, "")) => Ok((number(low)?, None, true)),
            Some((low, high)) => {
                let (low, high) = (number(low)?, number(high)?);
                if low > high { Err(bad()) } else { Ok((low, Some(high), true)) }
            }
        }
    }

    fn literal(&mut self, character: char) -> Result<Node, SqlError> {
        self.spend(if self.options.any_case { cost::ANY_CASE } else { cost::CHARACTER })?;
        Ok(Node::Class(Box::new(Class::single(character, self.options.any_case))))
    }

    fn class(&mut self, written: String) -> Result<Node, SqlError> {
        let is_named = |pair: &[u8]| pair[0] == b'\\' && b"pdswDSW".contains(&pair[1]) || pair == b"[:";
        let named = written.as_bytes().windows(2).filter(|pair| is_named(pair)).count();
        self.spend(cost::CLASS + cost::CHARACTER * written.len() + cost::NAMED * named)?;
        Ok(Node::Class(Box::new(Class::new(written, self.options.any_case))))
    }

    /// Whether newlines are no ordinary characters.
    fn newlines_count(&self) -> bool {
        self.options.lines || self.options.partial
    }

    fn atom(&mut self, capturing: bool) -> Result<Node, SqlError> {
        let anchored = self.options.lines || self.options.line_anchors;
        self.spend(cost::CHARACTER)?;
        Ok(match self.rest.next() {
            None => Node::Empty,
            Some('*' | '+' | '?') => return Err(no_operand()),
            Some('{') if self.rest.peek().is_some_and(char::is_ascii_digit) => return Err(no_operand()),
            Some('^') => Node::At(if anchored { Place::LineStart } else { Place::TextStart }),
            Some('$') => Node::At(if anchored { Place::LineEnd } else { Place::TextEnd }),
            Some('.') => self.class(if self.newlines_count() { "[^\\n]".to_owned() } else { "(?s:.)".to_owned() })?,
            Some('[') => match self.rest.clone().take(6).collect::<String>().as_str() {
                // Where words begin and end.
                edge @ ("[:<:]]" | "[:>:]]") => {
                    self.rest.nth(5);
                    Node::At(if edge == "[:<:]]" { Place::WordStart } else { Place::WordEnd })
                }
                _ => {
                    let mut written = String::new();
                    let newlines_count = self.newlines_count();
                    translate_class(&mut self.rest, newlines_count, &mut written)?;
                    self.class(written)?
                }
            },
            Some('\\') => self.escape()?,
            Some('(') => self.group(capturing)?,
            Some(character) => self.literal(character)?,
        })
    }

    fn group(&mut self, capturing: bool) -> Result<Node, SqlError> {
        self.spend(cost::CLASS)?;
        let mut number = None;
        let mut look = None;
        if self.rest.next_if_eq(&'?').is_some() {
            match (self.rest.next(), self.rest.peek()) {
                (Some(':'), _) => {}
                (Some('='), _) => look = Some((true, false)),
                (Some('!'), _) => look = Some((true, true)),
                (Some('<'), Some(&kind @ ('=' | '!'))) => {
                    self.rest.next();
                    look = Some((false, kind == '!'));
                }
                _ => return Err(no_operand()),
            }
        } else if capturing {
            number = Some(self.groups);
            self.groups += 1;
            self.closed.push(false);
        }
        // What is only looked at captures nothing.
        let inner = self.branches(capturing && look.is_none())?;
        if self.rest.next() != Some(')') {
            return Err(unbalanced());
        }
        if let Some(number) = number {
            self.closed[number] = true;
            return Ok(Node::Group(number, Box::new(inner)));
        }
        Ok(match look {
            Some((ahead, negated)) => Node::Look { ahead, negated, inner: Box::new(inner) },
            None => inner,
        })
    }

    fn escape(&mut self) -> Result<Node, SqlError> {
        let place = match self.rest.peek() {
            Some('y') => Place::WordEdge,
            Some('Y') => Place::NoWordEdge,
            Some('m') => Place::WordStart,
            Some('M') => Place::WordEnd,
            Some('A') => Place::TextStart,
            Some('Z') => Place::TextEnd,
            Some('1'..='9') => return self.reference(),
            _ => {
                let mut written = String::new();
                translate_escape(&mut self.rest, &mut written)?;
                return self.class(written);
            }
        };
        self.rest.next();
        Ok(Node::At(place))
    }

    /// A back reference; or, with several digits, a character by its octal number if there are not
    /// as many groups.
    fn reference(&mut self) -> Result<Node, SqlError> {
        let mut digits = String::new();
        let mut ahead = self.rest.clone();
        while let Some(digit) = ahead.next_if(char::is_ascii_digit) {
            digits.push(digit);
        }
        let number = digits.parse::<usize>().unwrap_or(usize::MAX);
        if digits.len() == 1 || number < self.groups {
            self.rest = ahead;
            if self.closed.get(number) != Some(&true) {
                return Err(invalid("invalid backreference number"));
            }
            return Ok(Node::Same(number));
        }
        let mut code = 0;
        for _ in 0..3 {
            match self.rest.next_if(|digit| digit.is_digit(8)).and_then(|digit| digit.to_digit(8)) {
                Some(digit) => code = code * 8 + digit,
                None => break,
            }
        }
        let character = char::from_u32(code).filter(|_| code > 0);
        let character = character.ok_or_else(|| invalid("invalid backreference number"))?;
        self.literal(character)
    }
}

/// The most repetitions that a number may ask for.
const MAX_COUNT: u32 = 255;

fn translate_escape(rest: &mut Characters<'_>, out: &mut String) -> Result<(), SqlError> {
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
        _ if character.is_alphanumeric() => return Err(invalid("invalid escape \\ sequence")),
        _ => out.push_str(&regex::escape(&character.to_string())),
    }
    Ok(())
}

/// The characters between brackets.
fn translate_class(rest: &mut Characters<'_>, newlines_count: bool, out: &mut String) -> Result<(), SqlError> {
    let unbalanced = || invalid("brackets [] not balanced");
    out.push('[');
    if rest.peek() == Some(&'^') {
        rest.next();
        out.push('^');
        if newlines_count {
            out.push_str("\\n");
        }
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
            '\\' => translate_escape(rest, out)?,
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

/// How many compiled expressions a thread keeps, if they do not cost more than one may.
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
        while kept.len() > 1 && kept.iter().map(|(_, _, regex)| regex.cost).sum::<usize>() > cost::MOST {
            kept.pop();
        }
        Ok(regex)
    })
}
