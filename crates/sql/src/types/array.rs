//! Arrays: of any number of dimensions, with any bounds, as PostgreSQL has them.

use std::{cmp::Ordering, fmt::Write, sync::Arc};

use super::{EvalContext, Kind, Type, Value, text, text::is_space};
use crate::{
    SqlError, SqlState,
    memory::size_of_value,
    work::{self, Kept},
};

/// One dimension of an array.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dimension {
    /// How many subscripts there are.
    pub length: u32,
    /// The first of them.
    pub lower: i32,
}

impl Dimension {
    /// The last subscript.
    pub fn upper(self) -> i64 {
        i64::from(self.lower) + i64::from(self.length) - 1
    }
}

/// An array's values. An empty array has no dimension.
#[derive(Clone, Debug)]
pub struct Array {
    element: Kind,
    dimensions: Vec<Dimension>,
    values: Vec<Value>,
}

/// An array in a [`Value`], or in a row, where it lies in its binary form.
#[derive(Clone, Copy, Debug)]
pub enum ArrayRef<'a> {
    /// An array that is a value of its own.
    Value(&'a Arc<Array>),
    /// The bytes of an array in a row.
    Stored(&'a [u8]),
}

/// More dimensions no array has.
pub const MAX_DIMENSIONS: usize = 6;
/// More elements no array has.
pub const MAX_ELEMENTS: usize = 1 << 22;

#[cold]
fn malformed(text: &str, detail: impl Into<crate::error::Text>) -> SqlError {
    SqlError::new(SqlState::INVALID_TEXT_REPRESENTATION, format!("malformed array literal: \"{text}\""))
        .with_detail(detail)
}

/// As many elements as this are possible.
///
/// # Errors
/// 54000 when they are not.
pub fn checked_count(count: usize) -> Result<usize, SqlError> {
    if count > MAX_ELEMENTS { Err(too_large()) } else { Ok(count) }
}

#[cold]
fn too_large() -> SqlError {
    SqlError::new(SqlState::PROGRAM_LIMIT_EXCEEDED, format!("array size exceeds the maximum allowed ({MAX_ELEMENTS})"))
}

#[cold]
fn too_many_dimensions(count: usize) -> SqlError {
    SqlError::new(
        SqlState::PROGRAM_LIMIT_EXCEEDED,
        format!("number of array dimensions ({count}) exceeds the maximum allowed ({MAX_DIMENSIONS})"),
    )
}

impl Array {
    /// An array of one dimension that begins at 1; of none when there are no values.
    pub fn new(element: Kind, values: Vec<Value>) -> Self {
        Self::with_lower(element, values, 1)
    }

    /// An array of one dimension that begins at `lower`.
    pub fn with_lower(element: Kind, values: Vec<Value>, lower: i32) -> Self {
        let length = values.len() as u32;
        let dimensions = if values.is_empty() { Vec::new() } else { vec![Dimension { length, lower }] };
        Self { element, dimensions, values }
    }

    /// An array of any dimensions, its last subscript running fastest.
    ///
    /// # Errors
    /// 54000 when there are too many dimensions or elements, 2202E when values and dimensions do
    /// not agree.
    pub fn with_dimensions(element: Kind, dimensions: Vec<Dimension>, values: Vec<Value>) -> Result<Self, SqlError> {
        if dimensions.len() > MAX_DIMENSIONS {
            return Err(too_many_dimensions(dimensions.len()));
        }
        let mut count = if dimensions.is_empty() { 0 } else { 1usize };
        for dimension in &dimensions {
            count = count
                .checked_mul(dimension.length as usize)
                .filter(|count| *count <= MAX_ELEMENTS)
                .ok_or_else(too_large)?;
            if dimension.upper() >= i64::from(i32::MAX) {
                return Err(SqlError::new(
                    SqlState::PROGRAM_LIMIT_EXCEEDED,
                    format!("array lower bound is too large: {}", dimension.lower),
                ));
            }
        }
        if count != values.len() {
            return Err(SqlError::new(SqlState::ARRAY_SUBSCRIPT_ERROR, "wrong number of array elements"));
        }
        let dimensions = if count == 0 { Vec::new() } else { dimensions };
        Ok(Self { element, dimensions, values })
    }

    /// The kind of its elements.
    pub const fn element(&self) -> Kind {
        self.element
    }

    /// Its dimensions, the first one first.
    pub fn dimensions(&self) -> &[Dimension] {
        &self.dimensions
    }

    /// All elements, the last subscript running fastest.
    pub fn values(&self) -> &[Value] {
        &self.values
    }

    /// The element at these subscripts.
    pub fn get(&self, subscripts: &[i64]) -> Option<&Value> {
        if subscripts.len() != self.dimensions.len() {
            return None;
        }
        let mut at = 0;
        for (dimension, subscript) in self.dimensions.iter().zip(subscripts) {
            let offset = subscript.checked_sub(dimension.lower.into())?;
            let offset = u32::try_from(offset).ok().filter(|offset| *offset < dimension.length)?;
            at = at * dimension.length as usize + offset as usize;
        }
        self.values.get(at)
    }

    /// The elements at ranges of subscripts, as `a[2:3][:1]` means them: an array whose subscripts
    /// begin at 1. An open end is that of the array, and dimensions behind the last range are
    /// whole.
    pub fn slice(&self, ranges: &[(Option<i64>, Option<i64>)]) -> Self {
        let empty = Self::new(self.element, Vec::new());
        if ranges.len() > self.dimensions.len() {
            return empty;
        }
        // First and length of each dimension's part.
        let mut parts = Vec::with_capacity(self.dimensions.len());
        for (at, dimension) in self.dimensions.iter().enumerate() {
            let (lower, upper) = ranges.get(at).copied().unwrap_or_default();
            let first = lower.unwrap_or(i64::MIN).max(dimension.lower.into());
            let last = upper.unwrap_or(i64::MAX).min(dimension.upper());
            if first > last {
                return empty;
            }
            parts.push(((first - i64::from(dimension.lower)) as usize, (last - first) as usize + 1));
        }
        let total = parts.iter().map(|(_, length)| length).product();
        let values = (0..total).map(|number| {
            // The number's digits, to the base of each part's length, are subscripts.
            let (mut rest, mut at, mut each) = (number, 0, 1);
            for ((first, length), dimension) in parts.iter().zip(&self.dimensions).rev() {
                at += (first + rest % length) * each;
                rest /= length;
                each *= dimension.length as usize;
            }
            self.values[at].clone()
        });
        let values = values.collect();
        let dimensions = parts.iter().map(|(_, length)| Dimension { length: *length as u32, lower: 1 }).collect();
        Self { element: self.element, dimensions, values }
    }

    /// The same array with each element changed, as elements of another kind.
    ///
    /// # Errors
    /// The first one that the change returns.
    pub fn map(&self, element: Kind, change: impl FnMut(&Value) -> Result<Value, SqlError>) -> Result<Self, SqlError> {
        let values = self.values.iter().map(change).collect::<Result<_, _>>()?;
        Ok(Self { element, dimensions: self.dimensions.clone(), values })
    }

    /// Compares element by element, then by size.
    pub fn compare(&self, other: &Self) -> Ordering {
        let shape = |array: &Self| array.dimensions.iter().map(|d| d.length).collect::<Vec<_>>();
        let bounds = |array: &Self| array.dimensions.iter().map(|d| d.lower).collect::<Vec<_>>();
        self.values
            .iter()
            .zip(&other.values)
            .map(|(one, two)| one.cmp(two))
            .find(|order| order.is_ne())
            .unwrap_or(Ordering::Equal)
            .then_with(|| self.values.len().cmp(&other.values.len()))
            .then_with(|| self.dimensions.len().cmp(&other.dimensions.len()))
            .then_with(|| shape(self).cmp(&shape(other)))
            .then_with(|| bounds(self).cmp(&bounds(other)))
    }

    /// Writes it as `{1,2}`, `{{a,"b c"},{NULL,d}}` or `[0:1]={1,2}`.
    pub fn write(&self, context: &EvalContext<'_>, out: &mut String) {
        if self.values.is_empty() {
            out.push_str("{}");
            return;
        }
        if self.dimensions.iter().any(|dimension| dimension.lower != 1) {
            for dimension in &self.dimensions {
                let _ = write!(out, "[{}:{}]", dimension.lower, dimension.upper());
            }
            out.push('=');
        }
        let mut values = self.values.iter();
        self.write_level(&self.dimensions, &mut values, context, out);
    }

    fn write_level<'a>(
        &self,
        dimensions: &[Dimension],
        values: &mut impl Iterator<Item = &'a Value>,
        context: &EvalContext<'_>,
        out: &mut String,
    ) {
        let Some((first, inner)) = dimensions.split_first() else { return };
        out.push('{');
        for at in 0..first.length {
            if at > 0 {
                out.push(',');
            }
            if !inner.is_empty() {
                self.write_level(inner, values, context, out);
                continue;
            }
            match values.next() {
                None | Some(Value::Null) => out.push_str("NULL"),
                Some(value) => {
                    let start = out.len();
                    text::output_as(self.element, value.as_ref(), context, out);
                    quote(out, start);
                }
            }
        }
        out.push('}');
    }

    /// Reads an array of elements of a type.
    ///
    /// # Errors
    /// 22P02 when it is none, or what reading an element returns.
    pub fn parse(literal: &str, element: Type, context: &EvalContext<'_>) -> Result<Self, SqlError> {
        let mut rest = literal.trim_start_matches(is_space);
        let mut declared = Vec::new();
        while let Some(bounds) = rest.strip_prefix('[') {
            if declared.len() >= MAX_DIMENSIONS {
                return Err(too_many_dimensions(declared.len() + 1));
            }
            let (bounds, after) =
                bounds.split_once(']').ok_or_else(|| malformed(literal, "Missing \"]\" after array dimensions."))?;
            declared.push(parse_bounds(literal, bounds)?);
            rest = after.trim_start_matches(is_space);
        }
        if !declared.is_empty() {
            rest = rest
                .strip_prefix('=')
                .ok_or_else(|| malformed(literal, "Missing \"=\" after array dimensions."))?
                .trim_start_matches(is_space);
        }
        if !rest.starts_with('{') {
            return Err(malformed(
                literal,
                if declared.is_empty() {
                    "Array value must start with \"{\" or dimension information."
                } else {
                    "Array contents must start with \"{\"."
                },
            ));
        }
        let mut parser = Parser {
            literal,
            bytes: rest.as_bytes(),
            at: 1,
            element,
            context,
            lengths: Vec::new(),
            leaf: None,
            values: Vec::new(),
            kept: work::kept(),
            taken: 0,
        };
        parser.level(0)?;
        if !rest[parser.at..].trim_start_matches(is_space).is_empty() {
            return Err(malformed(literal, "Junk after closing right brace."));
        }
        let Parser { lengths, values, .. } = parser;
        if values.is_empty() {
            return match declared[..] {
                [] => Ok(Self::new(element.kind(), values)),
                _ => Err(malformed(literal, "Specified array dimensions do not match array contents.")),
            };
        }
        let dimensions = if declared.is_empty() {
            lengths.iter().map(|&length| Dimension { length, lower: 1 }).collect()
        } else {
            if !declared.iter().map(|dimension| dimension.length).eq(lengths.iter().copied()) {
                return Err(malformed(literal, "Specified array dimensions do not match array contents."));
            }
            declared
        };
        Self::with_dimensions(element.kind(), dimensions, values)
    }
}

/// Puts quotes around what was written last, if it needs them.
fn quote(out: &mut String, start: usize) {
    let written = &out[start..];
    let special = |byte: u8| matches!(byte, b'"' | b'\\' | b'{' | b'}' | b',') || is_space(char::from(byte));
    if !written.is_empty() && !written.eq_ignore_ascii_case("null") && !written.bytes().any(special) {
        return;
    }
    let mut quoted = String::with_capacity(written.len() + 2);
    quoted.push('"');
    for character in written.chars() {
        if matches!(character, '"' | '\\') {
            quoted.push('\\');
        }
        quoted.push(character);
    }
    quoted.push('"');
    out.truncate(start);
    out.push_str(&quoted);
}

/// `3` or `-1:3`.
fn parse_bounds(literal: &str, text: &str) -> Result<Dimension, SqlError> {
    let number = |text: &str| {
        text.parse::<i32>()
            .map_err(|_| malformed(literal, "\"[\" must introduce explicitly-specified array dimensions."))
    };
    let (lower, upper) = match text.split_once(':') {
        Some((lower, upper)) => (number(lower)?, number(upper)?),
        None => (1, number(text)?),
    };
    let length = i64::from(upper) - i64::from(lower) + 1;
    match u32::try_from(length) {
        Ok(length @ 1..) => Ok(Dimension { length, lower }),
        _ => Err(SqlError::new(SqlState::ARRAY_SUBSCRIPT_ERROR, "upper bound cannot be less than lower bound")),
    }
}

struct Parser<'a, 'c> {
    literal: &'a str,
    bytes: &'a [u8],
    at: usize,
    element: Type,
    context: &'a EvalContext<'c>,
    /// How many items each level has, by its first array.
    lengths: Vec<u32>,
    /// The level that elements are on.
    leaf: Option<usize>,
    values: Vec<Value>,
    /// The memory of the values, counted for as long as they live.
    kept: Kept,
    taken: usize,
}

impl Parser<'_, '_> {
    fn malformed(&self, detail: impl Into<crate::error::Text>) -> SqlError {
        malformed(self.literal, detail)
    }

    fn skip_spaces(&mut self) {
        while self.bytes.get(self.at).is_some_and(|&byte| is_space(char::from(byte))) {
            self.at += 1;
        }
    }

    fn unexpected(&self, byte: u8) -> SqlError {
        self.malformed(format!("Unexpected \"{}\" character.", char::from(byte)))
    }

    /// The items of an array whose opening brace has been read, and its closing brace.
    fn level(&mut self, depth: usize) -> Result<(), SqlError> {
        if depth >= MAX_DIMENSIONS {
            return Err(too_many_dimensions(depth + 1));
        }
        let mut count = 0u32;
        loop {
            self.skip_spaces();
            match self.bytes.get(self.at).copied() {
                None => return Err(self.malformed("Unexpected end of input.")),
                Some(b'{') => {
                    if self.leaf.is_some_and(|leaf| leaf <= depth) {
                        return Err(self.unexpected(b'{'));
                    }
                    self.at += 1;
                    self.level(depth + 1)?;
                }
                // Nothing at all: an empty array.
                Some(b'}') if depth == 0 && count == 0 => {
                    self.at += 1;
                    return self.finish(depth, 0);
                }
                Some(byte @ (b',' | b'}')) => return Err(self.unexpected(byte)),
                Some(_) => {
                    match self.leaf {
                        None => self.leaf = Some(depth),
                        Some(leaf) if leaf != depth => return Err(self.malformed("Unexpected array element.")),
                        Some(_) => {}
                    }
                    let from = self.at;
                    let value = self.item()?;
                    if self.values.len() >= MAX_ELEMENTS {
                        return Err(too_large());
                    }
                    work::done(1 + (self.at - from) / 16)?;
                    self.taken += size_of_value(&value) + size_of::<Value>();
                    self.kept.grown_to(self.taken)?;
                    self.values.push(value);
                }
            }
            count += 1;
            self.skip_spaces();
            match self.bytes.get(self.at).copied() {
                Some(b',') => self.at += 1,
                Some(b'}') => {
                    self.at += 1;
                    return self.finish(depth, count);
                }
                None => return Err(self.malformed("Unexpected end of input.")),
                Some(b'{' | b'"') => return Err(self.malformed("Unexpected array element.")),
                Some(byte) => return Err(self.unexpected(byte)),
            }
        }
    }

    fn mismatch(&self) -> SqlError {
        self.malformed("Multidimensional arrays must have sub-arrays with matching dimensions.")
    }

    fn finish(&mut self, depth: usize, count: u32) -> Result<(), SqlError> {
        if self.lengths.len() <= depth {
            self.lengths.resize(depth + 1, u32::MAX);
        }
        match self.lengths[depth] {
            u32::MAX => self.lengths[depth] = count,
            known if known != count => return Err(self.mismatch()),
            _ => {}
        }
        Ok(())
    }

    /// One element, quoted or not.
    fn item(&mut self) -> Result<Value, SqlError> {
        let mut item = Vec::new();
        let mut quoted = false;
        // How much of the item was quoted or escaped: blanks behind that do not count.
        let mut kept = 0;
        let mut escaped = false;
        loop {
            match self.bytes.get(self.at).copied() {
                None => return Err(self.malformed("Unexpected end of input.")),
                Some(b'"') => {
                    if quoted || !item.is_empty() {
                        return Err(self.malformed("Unexpected array element."));
                    }
                    quoted = true;
                    self.at += 1;
                    loop {
                        match self.bytes.get(self.at).copied() {
                            None => return Err(self.malformed("Unexpected end of input.")),
                            Some(b'"') => break,
                            Some(b'\\') => {
                                self.at += 1;
                                item.push(
                                    *self
                                        .bytes
                                        .get(self.at)
                                        .ok_or_else(|| self.malformed("Unexpected end of input."))?,
                                );
                            }
                            Some(byte) => item.push(byte),
                        }
                        self.at += 1;
                    }
                    kept = item.len();
                    self.at += 1;
                }
                Some(b',' | b'}') => break,
                Some(b'{') => return Err(self.unexpected(b'{')),
                Some(byte) if is_space(char::from(byte)) && quoted => self.at += 1,
                Some(_) if quoted => return Err(self.malformed("Unexpected array element.")),
                Some(b'\\') => {
                    self.at += 1;
                    item.push(*self.bytes.get(self.at).ok_or_else(|| self.malformed("Unexpected end of input."))?);
                    kept = item.len();
                    escaped = true;
                    self.at += 1;
                }
                Some(byte) => {
                    item.push(byte);
                    self.at += 1;
                }
            }
        }
        while item.len() > kept && is_space(char::from(item[item.len() - 1])) {
            item.pop();
        }
        // Only whole characters are taken apart, so this does not fail.
        let item = String::from_utf8(item).map_err(|_| self.malformed("Unexpected array element."))?;
        if !quoted && !escaped && item.eq_ignore_ascii_case("null") {
            return Ok(Value::Null);
        }
        text::input(self.element, &item, self.context)
    }
}

impl ArrayRef<'_> {
    /// A value of its own: decodes what lies in a row.
    pub fn to_array(self) -> Arc<Array> {
        match self {
            Self::Value(array) => Arc::clone(array),
            // What is in a row was written here.
            Self::Stored(bytes) => {
                Arc::new(super::binary::input_array(bytes, None).unwrap_or_else(|_| Array::new(Kind::Text, Vec::new())))
            }
        }
    }

    /// The kind of its elements.
    pub fn element(self) -> Kind {
        match self {
            Self::Value(array) => array.element(),
            Self::Stored(bytes) => super::binary::stored_element(bytes).unwrap_or(Kind::Text),
        }
    }
}
