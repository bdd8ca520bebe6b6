//! A statement as it is recorded.
//!
//! | field | there when the head says so |
//! |---|---|
//! | head: which fields there are, as bits | always |
//! | the surroundings: their number among the words, or they themselves behind their length | they differ from those of the statement before |
//! | the text's template, likewise | it differs from that of the statement before |
//! | the text's literals | always, as many as the template has |
//! | the types of parameters that the client has named | it has named some |
//! | the parameters | it has some |
//! | where it begins to give ids to rows: the session's number, and the counter | it has given some |
//! | when it began, in microseconds since its transaction began | it has asked for that |
//! | when its plan was made, in microseconds since the server started, if a literal has asked for that | one has |
//! | the rows that it has looked at again, each as its distance from the one before | there are some |
//! | captured values | there are some |

use std::sync::Arc;

use freshet_base::varint;
use freshet_sql::{Kind, Type, Value};

use super::{dictionary::Number, template, value};

/// The statement has taken a newer snapshot than the one before.
const REFRESHED: u64 = 1;
const SURROUNDINGS: u64 = 1 << 1;
const TEMPLATE: u64 = 1 << 2;
const PARAMETERS: u64 = 1 << 3;
const CAPTURED: u64 = 1 << 4;
const ROW_IDS: u64 = 1 << 5;
/// Template or surroundings are not in the dictionary.
const SPELT_TEMPLATE: u64 = 1 << 6;
const SPELT_SURROUNDINGS: u64 = 1 << 7;
const TYPES: u64 = 1 << 8;
const STARTED: u64 = 1 << 9;
const LOOKS: u64 = 1 << 10;
const BOUND: u64 = 1 << 11;
/// All of these flags.
const ALL: u64 = (BOUND << 1) - 1;

/// A word of the dictionary, or one that is not there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Word<'b> {
    Known(Number),
    Spelt(&'b [u8]),
}

/// A statement that a session has executed.
#[derive(Clone, Debug)]
pub(super) struct Recorded<'s> {
    /// Whether it has taken a newer snapshot than the statement before.
    pub(super) refreshed: bool,
    /// What it depends on of its session; nothing for those of the statement before.
    pub(super) surroundings: Option<Word<'s>>,
    /// The template of its text; nothing for that of the statement before.
    pub(super) template: Option<Word<'s>>,
    /// The literals of its text.
    pub(super) literals: &'s [u8],
    /// The types of parameters that the client has named.
    pub(super) types: &'s [Option<Type>],
    pub(super) parameters: &'s [Value],
    /// Where it begins to give ids to rows, if it has given some.
    pub(super) row_ids: Option<(u64, u64)>,
    /// When it began, in microseconds since its transaction began, if it has asked for that.
    pub(super) started: Option<i64>,
    /// What `now` in its text means, in microseconds since the server started, if it has asked for
    /// that.
    pub(super) bound: Option<i64>,
    /// The rows that it has looked at again, since others have changed them.
    pub(super) looks: &'s [u64],
    /// How many captured values there are, and they themselves.
    pub(super) captured: (u64, &'s [u8]),
}

/// The same, as it is read.
#[derive(Debug, Default)]
pub(super) struct Decoded<'b> {
    pub(super) surroundings: Option<Word<'b>>,
    pub(super) template: Arc<str>,
    pub(super) text: String,
    pub(super) types: Vec<Option<Type>>,
    pub(super) parameters: Vec<Value>,
    pub(super) row_ids: Option<(u64, u64)>,
    pub(super) started: Option<i64>,
    pub(super) bound: Option<i64>,
    pub(super) looks: Vec<u64>,
    pub(super) captured: Vec<Value>,
}

fn put_word(word: Option<Word<'_>>, out: &mut Vec<u8>) {
    match word {
        None => {}
        Some(Word::Known(number)) => out.extend(number),
        Some(Word::Spelt(word)) => value::put_bytes(word, out),
    }
}

fn take_word<'b>(is_spelt: bool, from: &mut &'b [u8]) -> Option<Word<'b>> {
    Some(match is_spelt {
        true => Word::Spelt(value::take_bytes(from)?),
        false => Word::Known(value::take_array(from)?),
    })
}

impl Recorded<'_> {
    /// Appends it.
    pub(super) fn put(&self, out: &mut Vec<u8>) {
        let (captured, values) = self.captured;
        let is_spelt = |word: Option<Word<'_>>| matches!(word, Some(Word::Spelt(_)));
        let head = [
            (REFRESHED, self.refreshed),
            (SURROUNDINGS, self.surroundings.is_some()),
            (TEMPLATE, self.template.is_some()),
            (PARAMETERS, !self.parameters.is_empty()),
            (CAPTURED, captured > 0),
            (ROW_IDS, self.row_ids.is_some()),
            (SPELT_SURROUNDINGS, is_spelt(self.surroundings)),
            (SPELT_TEMPLATE, is_spelt(self.template)),
            (TYPES, !self.types.is_empty()),
            (STARTED, self.started.is_some()),
            (LOOKS, !self.looks.is_empty()),
            (BOUND, self.bound.is_some()),
        ];
        varint::put(out, head.iter().filter(|(_, there)| *there).map(|(bit, _)| bit).sum());
        put_word(self.surroundings, out);
        put_word(self.template, out);
        out.extend_from_slice(self.literals);
        if !self.types.is_empty() {
            put_types(self.types, out);
        }
        if !self.parameters.is_empty() {
            value::put_all(self.parameters, out);
        }
        if let Some((session, counter)) = self.row_ids {
            varint::put(out, session);
            varint::put(out, counter);
        }
        if let Some(started) = self.started {
            varint::put(out, varint::zigzag(started));
        }
        if let Some(bound) = self.bound {
            varint::put(out, varint::zigzag(bound));
        }
        if !self.looks.is_empty() {
            varint::put(out, self.looks.len() as u64);
            let before = std::iter::once(&0).chain(self.looks);
            before.zip(self.looks).for_each(|(before, look)| varint::put(out, look - before));
        }
        if captured > 0 {
            varint::put(out, captured);
            out.extend_from_slice(values);
        }
    }
}

/// Appends the types of parameters.
pub(super) fn put_types(types: &[Option<Type>], out: &mut Vec<u8>) {
    varint::put(out, types.len() as u64);
    for ty in types {
        varint::put(out, ty.map_or(0, Type::oid).into());
        if let Some(ty) = ty {
            varint::put(out, varint::zigzag(ty.modifier().into()));
        }
    }
}

fn take_types(from: &mut &[u8]) -> Option<Vec<Option<Type>>> {
    let mut types = Vec::new();
    for _ in 0..varint::take(from)? {
        types.push(match u32::try_from(varint::take(from)?).ok()? {
            0 => None,
            oid => {
                let modifier = i32::try_from(varint::unzigzag(varint::take(from)?)).ok()?;
                Some(Type::with_modifier(Kind::from_oid(oid)?, modifier))
            }
        });
    }
    Some(types)
}

impl<'b> Decoded<'b> {
    /// Whether the statement that comes next has taken a newer snapshot than the one before.
    pub(super) fn has_refreshed(from: &[u8]) -> bool {
        from.first().is_some_and(|head| u64::from(*head) & REFRESHED != 0)
    }

    /// Takes what [`Recorded::put`] has written, behind a statement whose text has this template.
    /// `spell` gives templates. None when it is not there; any bytes are safe.
    pub(super) fn take(
        from: &mut &'b [u8],
        before: &Arc<str>,
        spell: impl FnOnce(Word<'b>) -> Option<Arc<str>>,
    ) -> Option<Self> {
        let head = varint::take(from).filter(|head| *head <= ALL)?;
        let has = |bit| head & bit != 0;
        let mut decoded = Self::default();
        if has(SURROUNDINGS) {
            decoded.surroundings = Some(take_word(has(SPELT_SURROUNDINGS), from)?);
        }
        decoded.template = match has(TEMPLATE) {
            true => spell(take_word(has(SPELT_TEMPLATE), from)?)?,
            false => Arc::clone(before),
        };
        decoded.text = template::take(&decoded.template, from)?;
        if has(TYPES) {
            decoded.types = take_types(from)?;
        }
        if has(PARAMETERS) {
            decoded.parameters = value::take_all(from)?;
        }
        if has(ROW_IDS) {
            decoded.row_ids = Some((varint::take(from)?, varint::take(from)?));
        }
        if has(STARTED) {
            decoded.started = Some(varint::unzigzag(varint::take(from)?));
        }
        if has(BOUND) {
            decoded.bound = Some(varint::unzigzag(varint::take(from)?));
        }
        if has(LOOKS) {
            let mut row = 0_u64;
            for _ in 0..varint::take(from)? {
                row = row.checked_add(varint::take(from)?)?;
                decoded.looks.push(row);
            }
        }
        if has(CAPTURED) {
            decoded.captured = value::take_all(from)?;
        }
        Some(decoded)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{inputs::template::Divided, syntax::Rules};

    const KNOWN: Number = [1, 2, 3];

    fn decode<'b>(from: &mut &'b [u8]) -> Option<Decoded<'b>> {
        Decoded::take(from, &"before".into(), |word| match word {
            Word::Known(KNOWN) => Some("known".into()),
            Word::Known(_) => None,
            Word::Spelt(template) => Some(std::str::from_utf8(template).ok()?.into()),
        })
    }

    #[test]
    fn statements_come_back() {
        let mut values = Vec::new();
        value::put(&Value::Float8(0.5), &mut values);
        let divided = Divided::of("DELETE FROM t WHERE a = 1 AND b = 'x'", Rules::default()).unwrap();
        let types = [None, Some(Type::with_modifier(Kind::Varchar, 14)), Some(Type::TEXT)];
        let plain = Recorded {
            refreshed: false,
            surroundings: None,
            template: None,
            literals: &[],
            types: &[],
            parameters: &[],
            row_ids: None,
            started: None,
            bound: None,
            looks: &[],
            captured: (0, &[]),
        };
        let spelt = Some(Word::Spelt(divided.template.as_bytes()));
        let known = Recorded { template: Some(Word::Known(KNOWN)), ..plain.clone() };
        let all = [
            (plain.clone(), "before"),
            (known.clone(), "known"),
            (
                Recorded {
                    template: spelt,
                    literals: &divided.literals,
                    surroundings: Some(Word::Known(KNOWN)),
                    ..plain
                },
                "DELETE FROM t WHERE a = 1 AND b = 'x'",
            ),
            (Recorded { refreshed: true, surroundings: Some(Word::Spelt(&[1, 2])), ..known.clone() }, "known"),
            (Recorded { types: &types, started: Some(-1), row_ids: Some((3, 1 << 23)), ..known.clone() }, "known"),
            (Recorded { bound: Some(i64::MIN), started: Some(7), ..known.clone() }, "known"),
            (Recorded { looks: &[1, 2, 300], ..known.clone() }, "known"),
            (Recorded { captured: (1, &values), parameters: &[Value::Null, Value::Int4(7)], ..known }, "known"),
        ];
        for (recorded, text) in all {
            let mut bytes = Vec::new();
            recorded.put(&mut bytes);
            for end in 0..bytes.len() {
                assert!(decode(&mut &bytes[..end]).is_none(), "{recorded:?} up to {end}");
            }
            bytes.push(9);
            let mut from = &bytes[..];
            assert_eq!(Decoded::has_refreshed(from), recorded.refreshed);
            let back = decode(&mut from).unwrap();
            assert_eq!(from, [9]);
            assert_eq!(back.text, text);
            assert_eq!(back.surroundings, recorded.surroundings);
            assert_eq!((back.types.as_slice(), back.started), (recorded.types, recorded.started));
            assert_eq!(back.bound, recorded.bound);
            assert_eq!((back.row_ids, back.looks.as_slice()), (recorded.row_ids, recorded.looks));
            assert_eq!(
                (back.parameters.as_slice(), back.captured.len() as u64),
                (recorded.parameters, recorded.captured.0)
            );
        }
        assert!(decode(&mut &[0x80, 0x40][..]).is_none(), "a field that nobody knows");
        assert!(decode(&mut &[TEMPLATE as u8, 3, 2, 1][..]).is_none(), "a word that nobody knows");
    }
}
