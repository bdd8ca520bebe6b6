//! Regular expressions as POSIX has them, with what PostgreSQL adds: of all matches that begin at
//! the first place the longest counts, or the shortest where the expression prefers that; then each
//! of its parts, from left to right, takes as much or as little as it can. Back references and
//! looking around.
//!
//! Matching works with sets of places: where a part may end that begins at one of these, and where
//! one may begin that ends at one of these. Each takes about as long as the text is. Only parts
//! with back references are tried one way after another. All steps are counted.

use std::{cell::Cell, collections::HashSet, fmt::Write, sync::OnceLock};

use super::regex::invalid;
use crate::{SqlError, SqlState, work};

/// No match may take more steps.
const MAX_STEPS: u64 = 50_000_000;
/// Groups may be nested this deep.
pub(super) const DEEPEST: usize = 200;
/// A part with a back reference is repeated no more often.
const MAX_TRIED: usize = 1000;

/// A set of characters.
#[derive(Clone, Debug)]
pub(super) struct Class {
    /// As the `regex` crate writes it.
    written: String,
    any_case: bool,
    matcher: OnceLock<Matcher>,
}

#[derive(Clone, Debug)]
enum Matcher {
    Single(char),
    Set { ascii: Box<[bool; 128]>, all: regex::Regex },
}

impl Class {
    /// The characters that an expression of the `regex` crate matches.
    pub fn new(written: String, any_case: bool) -> Self {
        Self { written, any_case, matcher: OnceLock::new() }
    }

    /// One character.
    pub fn single(character: char, any_case: bool) -> Self {
        let class = Self::new(regex::escape(character.encode_utf8(&mut [0; 4])), any_case);
        if !any_case {
            let _ = class.matcher.set(Matcher::Single(character));
        }
        class
    }

    fn compile(&self) -> Result<regex::Regex, SqlError> {
        let whole = format!("^(?:{})$", self.written);
        let built = regex::RegexBuilder::new(&whole).case_insensitive(self.any_case).build();
        built.map_err(|_| invalid("invalid character range"))
    }

    #[inline]
    fn has(&self, character: char) -> bool {
        let matcher = self.matcher.get_or_init(|| {
            // What cannot be compiled was refused before.
            let all = self.compile().unwrap_or_else(|_| regex::Regex::new("").expect("nothing is an expression"));
            let mut ascii = [false; 128];
            for (code, slot) in (0u8..).zip(&mut ascii) {
                *slot = all.is_match(char::from(code).encode_utf8(&mut [0; 4]));
            }
            Matcher::Set { ascii: Box::new(ascii), all }
        });
        match matcher {
            Matcher::Single(single) => character == *single,
            Matcher::Set { ascii, all } => match ascii.get(character as usize) {
                Some(has) => *has,
                None => all.is_match(character.encode_utf8(&mut [0; 4])),
            },
        }
    }
}

/// A condition on a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    TextStart,
    TextEnd,
    LineStart,
    LineEnd,
    WordEdge,
    NoWordEdge,
    WordStart,
    WordEnd,
}

/// A part of an expression.
#[derive(Clone, Debug)]
pub(super) enum Node {
    Empty,
    Class(Box<Class>),
    At(Place),
    Look {
        ahead: bool,
        negated: bool,
        inner: Box<Node>,
    },
    Concat(Vec<Node>),
    Either(Vec<Node>),
    /// With what it prefers, much or little; nothing where its part decides.
    Repeat {
        inner: Box<Node>,
        least: u32,
        most: Option<u32>,
        prefers: Option<bool>,
    },
    Group(usize, Box<Node>),
    /// What the group of this number matched.
    Same(usize),
}

impl Node {
    /// Whether it prefers to take much or little, if it has a preference.
    fn greed(&self) -> Option<bool> {
        match self {
            Self::Empty | Self::Class(_) | Self::At(_) | Self::Look { .. } | Self::Same(_) => None,
            Self::Group(_, inner) => inner.greed(),
            Self::Concat(parts) => parts.iter().find_map(Self::greed),
            Self::Either(_) => Some(true),
            Self::Repeat { inner, prefers, .. } => prefers.or_else(|| inner.greed()),
        }
    }

    /// Whether it has groups that are asked for, or back references.
    fn has(&self, wanted: fn(&Self) -> bool) -> bool {
        wanted(self)
            || match self {
                Self::Group(_, inner) | Self::Repeat { inner, .. } => inner.has(wanted),
                Self::Concat(parts) | Self::Either(parts) => parts.iter().any(|part| part.has(wanted)),
                _ => false,
            }
    }

    fn has_groups(&self) -> bool {
        self.has(|node| matches!(node, Self::Group(..)))
    }

    fn has_references(&self) -> bool {
        self.has(|node| matches!(node, Self::Same(_)))
    }

    /// Fails unless all of its sets of characters are some.
    ///
    /// # Errors
    /// 2201B.
    pub fn check(&self) -> Result<(), SqlError> {
        match self {
            Self::Class(class) => class.compile().map(drop),
            Self::Group(_, inner) | Self::Repeat { inner, .. } | Self::Look { inner, .. } => inner.check(),
            Self::Concat(parts) | Self::Either(parts) => parts.iter().try_for_each(Self::check),
            Self::Empty | Self::At(_) | Self::Same(_) => Ok(()),
        }
    }

    /// Writes it for the `regex` crate; says no when that does not know what is in it.
    pub fn write(&self, out: &mut String) -> bool {
        match self {
            Self::Empty => out.push_str("(?:)"),
            Self::Class(class) => out.push_str(&class.written),
            Self::At(place) => out.push_str(match place {
                Place::TextStart => "\\A",
                Place::TextEnd => "\\z",
                Place::LineStart => "(?m:^)",
                Place::LineEnd => "(?m:$)",
                Place::WordEdge => "\\b",
                Place::NoWordEdge => "\\B",
                Place::WordStart => "\\b{start}",
                Place::WordEnd => "\\b{end}",
            }),
            Self::Look { .. } | Self::Same(_) => return false,
            Self::Concat(parts) => return parts.iter().all(|part| part.write(out)),
            Self::Either(parts) => {
                for (at, part) in parts.iter().enumerate() {
                    out.push_str(if at == 0 { "(?:" } else { "|" });
                    if !part.write(out) {
                        return false;
                    }
                }
                out.push(')');
            }
            Self::Repeat { inner, least, most, prefers } => {
                out.push_str("(?:");
                if !inner.write(out) {
                    return false;
                }
                let most = most.map_or_else(String::new, |most| most.to_string());
                let _ = write!(out, "){{{least},{most}}}{}", if *prefers == Some(false) { "?" } else { "" });
            }
            Self::Group(_, inner) => {
                out.push('(');
                if !inner.write(out) {
                    return false;
                }
                out.push(')');
            }
        }
        true
    }

    /// How many characters it takes, if that is always the same.
    fn width(&self) -> Option<usize> {
        match self {
            Self::Empty | Self::At(_) | Self::Look { .. } => Some(0),
            Self::Class(_) => Some(1),
            Self::Concat(parts) => parts.iter().map(Self::width).sum(),
            Self::Either(parts) => {
                let first = parts.first()?.width()?;
                parts.iter().all(|part| part.width() == Some(first)).then_some(first)
            }
            Self::Repeat { inner, least, most, .. } if *most == Some(*least) => Some(inner.width()? * *least as usize),
            Self::Repeat { .. } | Self::Same(_) => None,
            Self::Group(_, inner) => inner.width(),
        }
    }

    /// Whether the first alternative that matches is the longest, and repetitions that take what
    /// they can make the longest match: there are no alternatives of different lengths, and nothing
    /// but characters is repeated.
    pub fn is_plain(&self) -> bool {
        match self {
            Self::Empty | Self::Class(_) | Self::At(_) => true,
            Self::Look { .. } | Self::Same(_) => false,
            Self::Concat(parts) => parts.iter().all(Self::is_plain),
            Self::Either(parts) => self.width().is_some() && parts.iter().all(Self::is_plain),
            Self::Repeat { inner, prefers, .. } => {
                let part = match inner.as_ref() {
                    Self::Group(_, part) => part,
                    part => part,
                };
                *prefers != Some(false) && part.width() == Some(1) && part.is_plain() && !part.has_groups()
            }
            Self::Group(_, inner) => inner.is_plain(),
        }
    }
}

/// Where groups begin and end, in bytes; the first is the whole match.
pub(super) type Groups = Vec<Option<(usize, usize)>>;

/// A compiled regular expression.
#[derive(Clone, Debug)]
pub(super) struct Posix {
    pub root: Node,
    /// How many groups it has, with the whole match.
    pub groups: usize,
    pub any_case: bool,
}

impl Posix {
    /// The match that begins first, at `from` or behind it.
    ///
    /// # Errors
    /// 54001 when it takes too many steps; 57014, 57P01.
    pub fn find_at(&self, text: &str, from: usize) -> Result<Option<Groups>, SqlError> {
        let run = Run::new(self, text);
        let mut at = from;
        loop {
            if let Some(groups) = run.match_at(at)? {
                return Ok(Some(groups));
            }
            match text[at..].chars().next() {
                Some(character) => at += character.len_utf8(),
                None => return Ok(None),
            }
        }
    }

    /// The match that begins at this place, where one begins.
    ///
    /// # Errors
    /// As for [`Posix::find_at`].
    pub fn match_at(&self, text: &str, at: usize) -> Result<Option<Groups>, SqlError> {
        Run::new(self, text).match_at(at)
    }
}

/// Sorted places, each once.
type Places = Vec<usize>;

struct Run<'a> {
    posix: &'a Posix,
    text: &'a str,
    left: Cell<u64>,
}

/// What is to hold when a part has been taken apart.
type Then<'f> = &'f mut dyn FnMut(&mut Groups) -> Result<bool, SqlError>;

fn is_word(character: char) -> bool {
    character == '_' || character.is_alphanumeric()
}

impl<'a> Run<'a> {
    fn new(posix: &'a Posix, text: &'a str) -> Self {
        Self { posix, text, left: Cell::new(MAX_STEPS) }
    }

    fn take(&self, steps: usize) -> Result<(), SqlError> {
        let left = self.left.get().checked_sub(steps as u64);
        self.left.set(left.ok_or_else(|| {
            SqlError::new(SqlState::STATEMENT_TOO_COMPLEX, "the regular expression takes too many steps")
        })?);
        work::done(steps)
    }

    fn after(&self, at: usize) -> Option<char> {
        self.text[at..].chars().next()
    }

    fn before(&self, at: usize) -> Option<char> {
        self.text[..at].chars().next_back()
    }

    fn match_at(&self, at: usize) -> Result<Option<Groups>, SqlError> {
        let root = &self.posix.root;
        let ends = self.ends(root, &[at])?;
        let shortest = root.greed() == Some(false);
        let count = ends.len();
        for place in 0..count {
            let end = ends[if shortest { place } else { count - 1 - place }];
            let mut groups = vec![None; self.posix.groups];
            groups[0] = Some((at, end));
            let mut found = None;
            self.dissect(root, at, end, &mut groups, &mut |groups| {
                found = Some(groups.clone());
                Ok(true)
            })?;
            if found.is_some() {
                return Ok(found);
            }
        }
        Ok(None)
    }

    fn holds(&self, place: Place, at: usize) -> bool {
        let (before, after) = (self.before(at), self.after(at));
        let (left, right) = (before.is_some_and(is_word), after.is_some_and(is_word));
        match place {
            Place::TextStart => before.is_none(),
            Place::TextEnd => after.is_none(),
            Place::LineStart => matches!(before, None | Some('\n')),
            Place::LineEnd => matches!(after, None | Some('\n')),
            Place::WordEdge => left != right,
            Place::NoWordEdge => left == right,
            Place::WordStart => !left && right,
            Place::WordEnd => left && !right,
        }
    }

    fn looks(&self, ahead: bool, negated: bool, inner: &Node, at: usize) -> Result<bool, SqlError> {
        let found = if ahead { self.ends(inner, &[at])? } else { self.starts(inner, &[at])? };
        Ok(found.is_empty() == negated)
    }

    /// Where a part may end that begins at one of these places. Back references match anything
    /// here.
    fn ends(&self, node: &Node, from: &[usize]) -> Result<Places, SqlError> {
        self.reach(node, from, true)
    }

    /// Where a part may begin that ends at one of these places.
    fn starts(&self, node: &Node, to: &[usize]) -> Result<Places, SqlError> {
        self.reach(node, to, false)
    }

    fn reach(&self, node: &Node, from: &[usize], forward: bool) -> Result<Places, SqlError> {
        self.take(1 + from.len())?;
        Ok(match node {
            Node::Empty => from.to_vec(),
            Node::Class(class) => from.iter().filter_map(|at| self.character(class, *at, forward)).collect(),
            Node::At(place) => from.iter().copied().filter(|at| self.holds(*place, *at)).collect(),
            Node::Look { ahead, negated, inner } => {
                let mut kept = Vec::new();
                for at in from {
                    if self.looks(*ahead, *negated, inner, *at)? {
                        kept.push(*at);
                    }
                }
                kept
            }
            Node::Concat(parts) => {
                let mut places = from.to_vec();
                for number in 0..parts.len() {
                    if places.is_empty() {
                        break;
                    }
                    let part = &parts[if forward { number } else { parts.len() - 1 - number }];
                    places = self.reach(part, &places, forward)?;
                }
                places
            }
            Node::Either(parts) => {
                let mut places = Vec::new();
                for part in parts {
                    places.extend(self.reach(part, from, forward)?);
                }
                sorted(places)
            }
            Node::Repeat { inner, least, most, .. } => self.repeated(inner, *least, *most, from, forward)?,
            Node::Group(_, inner) => self.reach(inner, from, forward)?,
            Node::Same(_) => {
                let bytes = match (forward, from.first(), from.last()) {
                    (true, Some(first), _) => *first..=self.text.len(),
                    (false, _, Some(last)) => 0..=*last,
                    _ => return Ok(Vec::new()),
                };
                self.take(bytes.end() - bytes.start())?;
                bytes.filter(|at| self.text.is_char_boundary(*at)).collect()
            }
        })
    }

    fn character(&self, class: &Class, at: usize, forward: bool) -> Option<usize> {
        let character = if forward { self.after(at) } else { self.before(at) }?;
        let length = character.len_utf8();
        class.has(character).then(|| if forward { at + length } else { at - length })
    }

    fn repeated(
        &self,
        inner: &Node,
        least: u32,
        most: Option<u32>,
        from: &[usize],
        forward: bool,
    ) -> Result<Places, SqlError> {
        let mut places = from.to_vec();
        for _ in 0..least {
            let next = self.reach(inner, &places, forward)?;
            // Further repetitions lead nowhere else.
            if next == places {
                break;
            }
            places = next;
        }
        let mut seen: HashSet<usize> = places.iter().copied().collect();
        let mut all = places.clone();
        let mut left = most.map(|most| most.saturating_sub(least));
        while !places.is_empty() && left != Some(0) {
            places = self.reach(inner, &places, forward)?;
            places.retain(|at| seen.insert(*at));
            all.extend(&places);
            left = left.map(|left| left - 1);
        }
        Ok(sorted(all))
    }

    /// Takes apart what a part matches from one place to another, which it may match, one way after
    /// another until `then` agrees, and notes what its groups match.
    fn dissect(
        &self,
        node: &Node,
        from: usize,
        to: usize,
        groups: &mut Groups,
        then: Then<'_>,
    ) -> Result<bool, SqlError> {
        self.take(1)?;
        if !node.has_groups() && !node.has_references() {
            return then(groups);
        }
        match node {
            Node::Group(number, inner) => {
                let before = groups[*number];
                let done = self.dissect(inner, from, to, groups, &mut |groups| {
                    let inside = groups[*number].replace((from, to));
                    if then(groups)? {
                        return Ok(true);
                    }
                    groups[*number] = inside;
                    Ok(false)
                })?;
                if !done {
                    groups[*number] = before;
                }
                Ok(done)
            }
            Node::Same(number) => match groups[*number] {
                Some((start, end)) if self.same(&self.text[start..end], &self.text[from..to])? => then(groups),
                _ => Ok(false),
            },
            Node::Concat(parts) => {
                // From which places the rest behind each part may lead to the end.
                let mut behind = vec![vec![to]];
                for part in parts.iter().skip(1).rev() {
                    let last = behind.last().map_or(&[][..], Vec::as_slice);
                    let places = self.starts(part, last)?;
                    behind.push(places);
                }
                behind.reverse();
                self.dissect_parts(parts, &behind, from, groups, then)
            }
            Node::Either(parts) => {
                for part in parts {
                    if self.ends(part, &[from])?.binary_search(&to).is_ok()
                        && self.dissect(part, from, to, groups, then)?
                    {
                        return Ok(true);
                    }
                }
                Ok(false)
            }
            Node::Repeat { inner, least, most, .. } => {
                let repeat = Repeat { inner, least: *least, most: *most, greedy: node.greed() != Some(false) };
                if inner.has_references() {
                    self.dissect_tried(&repeat, from, to, 0, groups, then)
                } else {
                    self.dissect_repeat(&repeat, from, to, groups, then)
                }
            }
            _ => then(groups),
        }
    }

    /// Whether two texts are the same, as a back reference sees them.
    fn same(&self, one: &str, two: &str) -> Result<bool, SqlError> {
        self.take(one.len().min(two.len()))?;
        if !self.posix.any_case {
            return Ok(one == two);
        }
        Ok(one.chars().flat_map(char::to_lowercase).eq(two.chars().flat_map(char::to_lowercase)))
    }

    fn dissect_parts(
        &self,
        parts: &[Node],
        behind: &[Places],
        from: usize,
        groups: &mut Groups,
        then: Then<'_>,
    ) -> Result<bool, SqlError> {
        let (Some((part, parts)), Some((possible, behind))) = (parts.split_first(), behind.split_first()) else {
            return then(groups);
        };
        let mut ends = self.ends(part, &[from])?;
        ends.retain(|end| possible.binary_search(end).is_ok());
        if part.greed() != Some(false) {
            ends.reverse();
        }
        for end in ends {
            let done = self
                .dissect(part, from, end, groups, &mut |groups| self.dissect_parts(parts, behind, end, groups, then))?;
            if done {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// A repetition whose parts depend on nothing before them: only its last one's groups count.
    fn dissect_repeat(
        &self,
        repeat: &Repeat<'_>,
        from: usize,
        to: usize,
        groups: &mut Groups,
        then: Then<'_>,
    ) -> Result<bool, SqlError> {
        let Repeat { inner, least, most, greedy } = *repeat;
        let last_begins = self.starts(inner, &[to])?;
        if least > 0 {
            // All others together take as much or as little as they can.
            let mut begins = self.repeated(inner, least - 1, most.map(|most| most.saturating_sub(1)), &[from], true)?;
            begins.retain(|at| last_begins.binary_search(at).is_ok());
            let begin = if greedy { begins.last() } else { begins.first() };
            return match begin {
                Some(&begin) => self.dissect(inner, begin, to, groups, then),
                None => Ok(false),
            };
        }
        if from == to {
            // One part of nothing counts more than none.
            return match last_begins.binary_search(&to) {
                Ok(_) => self.dissect(inner, from, to, groups, then),
                Err(_) => then(groups),
            };
        }
        // From which places the end can be reached.
        let possible = self.repeated(inner, 0, most, &[to], false)?;
        // Each takes as much or as little as its part prefers.
        let longest = inner.greed() != Some(false);
        let (mut at, mut count) = (from, 0u32);
        loop {
            self.take(1)?;
            count += 1;
            let ends = self.ends(inner, &[at])?;
            let fits = |end: &&usize| {
                **end > at
                    && **end <= to
                    && possible.binary_search(end).is_ok()
                    && most.is_none_or(|most| count < most || **end == to)
            };
            let chosen = if longest { ends.iter().rev().find(fits) } else { ends.iter().find(fits) };
            // In rare cases the count does not come out.
            let Some(&end) = chosen else { return self.dissect_tried(repeat, from, to, 0, groups, then) };
            if end == to {
                return self.dissect(inner, at, end, groups, then);
            }
            at = end;
        }
    }

    /// A repetition with back references: one part after another.
    fn dissect_tried(
        &self,
        repeat: &Repeat<'_>,
        from: usize,
        to: usize,
        count: usize,
        groups: &mut Groups,
        then: Then<'_>,
    ) -> Result<bool, SqlError> {
        let Repeat { inner, least, most, .. } = *repeat;
        let enough = count >= least as usize;
        if from == to && enough {
            return then(groups);
        }
        if most.is_some_and(|most| count >= most as usize) {
            return Ok(false);
        }
        if count >= MAX_TRIED {
            return Err(SqlError::new(SqlState::STATEMENT_TOO_COMPLEX, "the regular expression takes too many steps"));
        }
        let mut ends = self.ends(inner, &[from])?;
        ends.retain(|end| *end <= to && (*end > from || !enough));
        if inner.greed() != Some(false) {
            ends.reverse();
        }
        for end in ends {
            let done = self.dissect(inner, from, end, groups, &mut |groups| {
                self.dissect_tried(repeat, end, to, count + 1, groups, then)
            })?;
            if done {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

/// A part that is repeated.
#[derive(Clone, Copy)]
struct Repeat<'n> {
    inner: &'n Node,
    least: u32,
    most: Option<u32>,
    greedy: bool,
}

fn sorted(mut places: Places) -> Places {
    if !places.is_sorted_by(|one, two| one < two) {
        places.sort_unstable();
        places.dedup();
    }
    places
}
