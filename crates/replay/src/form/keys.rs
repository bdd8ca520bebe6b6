//! Keys of insertions: each byte is predicted, and what was predicted right is left out.
//!
//! A byte of a key is mostly that of the last key of the same index (the warehouse), the next one
//! (the number of a line), or a byte of another key of the same block (the order's number in the
//! keys of its lines). So each byte of each index has a [`Source`], from which it is predicted, and
//! takes another when it was wrong twice.
//!
//! | of each key | |
//! |---|---|
//! | 0 | it is as predicted. Unless it is the block's last: how many more are, which are left out |
//! | 1 | of another length than the last one: how many bytes it shares with that, how many follow, these |
//! | 2 | the bytes that the last mask of this index names follow, the others are as predicted |
//! | 3 | a mask follows, a bit for each byte, the lowest first; then the bytes that it names |

use freshet_base::varint;
use freshet_storage::IndexDefinition;

use super::{FormError, model::Symbol};

const PREDICTED: u8 = 0;
const OTHER_LENGTH: u8 = 1;
const LAST_MASK: u8 = 2;
const NEW_MASK: u8 = 3;

/// How many keys of a block are remembered to predict others.
const NEAR: usize = 8;
/// A mask that names this many bytes too many is as good as a new one.
const SPARE: u32 = 3;

/// Where the model of an index is: its symbol, and its place there.
pub(super) type Place = (u16, u16);

/// From what a byte is predicted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Source {
    /// The byte of the last key.
    #[default]
    Same,
    /// The byte of the last key, plus one.
    Next,
    /// The byte at this place of the newest key of that index.
    Of(Place, u16),
}

/// What is known of the keys of one index.
#[derive(Clone, Debug, Default)]
pub(super) struct KeyModel {
    last: Vec<u8>,
    sources: Vec<Source>,
    /// By byte, whether the last prediction was wrong.
    wrong: Vec<bool>,
    /// The mask that came last: which bytes of a key are named, a bit for each, the lowest first.
    mask: Vec<u8>,
}

impl KeyModel {
    /// What `source` says of byte `at`.
    fn predict(&self, source: Source, at: usize, symbols: &[Symbol]) -> u8 {
        match source {
            Source::Same => self.last[at],
            Source::Next => self.last[at].wrapping_add(1),
            Source::Of((symbol, place), at) => {
                let (_, other) = &symbols[usize::from(symbol)].keys[usize::from(place)];
                other.last.get(usize::from(at)).copied().unwrap_or(0)
            }
        }
    }

    /// What names byte `at` and is right, if anything near is.
    fn find(&self, at: usize, byte: u8, own: Place, near: &[Place], symbols: &[Symbol]) -> Option<Source> {
        let length = self.last.len();
        let simple = [Source::Same, Source::Next].into_iter();
        let others = near.iter().filter(|place| **place != own).flat_map(|place| {
            let other = symbols[usize::from(place.0)].keys[usize::from(place.1)].1.last.len();
            // From the beginning, and from the end: what is between may be longer in one of them.
            [Some(at), (at + other).checked_sub(length)]
                .into_iter()
                .flatten()
                .filter(move |at| *at < other)
                .map(|at| Source::Of(*place, at as u16))
        });
        simple.chain(others).find(|source| self.predict(*source, at, symbols) == byte)
    }
}

/// Predicts and learns, for both sides. The state of one block.
#[derive(Clone, Debug, Default)]
pub(super) struct Predictor {
    near: Vec<Place>,
    predicted: Vec<u8>,
    sources: Vec<(usize, Source)>,
}

impl Predictor {
    /// Begins with another block.
    pub fn begin(&mut self) {
        self.near.clear();
    }

    /// The next key of the index at `place`.
    fn predict(&mut self, place: Place, symbols: &[Symbol]) -> &[u8] {
        let model = model(place, symbols);
        self.predicted.clear();
        let bytes = model.sources.iter().enumerate().map(|(at, source)| model.predict(*source, at, symbols));
        self.predicted.extend(bytes);
        &self.predicted
    }

    /// The key has come. `self.predicted` is what was predicted if it is of the same length.
    fn learn(&mut self, place: Place, key: &[u8], symbols: &mut [Symbol]) {
        self.sources.clear();
        let known = model(place, symbols);
        if known.last.len() == key.len() {
            for (at, byte) in key.iter().enumerate() {
                if self.predicted[at] != *byte && known.wrong[at] {
                    let found = known.find(at, *byte, place, &self.near, symbols);
                    self.sources.extend(found.map(|source| (at, source)));
                }
            }
        }
        let known = &mut symbols[usize::from(place.0)].keys[usize::from(place.1)].1;
        if known.last.len() == key.len() {
            for ((wrong, byte), predicted) in known.wrong.iter_mut().zip(key).zip(&self.predicted) {
                *wrong = byte != predicted;
            }
            self.sources.iter().for_each(|(at, source)| known.sources[*at] = *source);
        } else {
            known.sources.resize(key.len(), Source::Same);
            known.wrong.resize(key.len(), true);
            known.mask.clear();
        }
        known.last.clear();
        known.last.extend_from_slice(key);
        if !self.near.contains(&place) {
            if self.near.len() == NEAR {
                self.near.remove(0);
            }
            self.near.push(place);
        }
    }
}

fn model(place: Place, symbols: &[Symbol]) -> &KeyModel {
    &symbols[usize::from(place.0)].keys[usize::from(place.1)].1
}

fn mask(place: Place, symbols: &mut [Symbol]) -> &mut Vec<u8> {
    &mut symbols[usize::from(place.0)].keys[usize::from(place.1)].1.mask
}

/// The place of the model of index `index` of `symbol`, which is made if it is missing.
pub(super) fn place(symbol: u16, index: u16, symbols: &mut [Symbol]) -> Place {
    let keys = &mut symbols[usize::from(symbol)].keys;
    let found = keys.iter().position(|(other, _)| *other == index);
    let place = found.unwrap_or_else(|| {
        keys.push((index, KeyModel::default()));
        keys.len() - 1
    });
    // Fits: an index has 16 bits.
    (symbol, place as u16)
}

/// Writes the keys of one block.
pub(super) fn put<'k>(
    into: &mut Vec<u8>,
    predictor: &mut Predictor,
    symbols: &mut [Symbol],
    mut keys: impl ExactSizeIterator<Item = (Place, &'k [u8])>,
) {
    predictor.begin();
    let mut pending = keys.next();
    while let Some((place, key)) = pending {
        if predictor.predict(place, symbols) != key {
            put_other(into, predictor, symbols, place, key);
            predictor.learn(place, key, symbols);
            pending = keys.next();
            continue;
        }
        predictor.learn(place, key, symbols);
        into.push(PREDICTED);
        pending = keys.next();
        if pending.is_none() {
            return;
        }
        let mut more = 0;
        while let Some((place, key)) = pending.filter(|(place, key)| predictor.predict(*place, symbols) == *key) {
            predictor.learn(place, key, symbols);
            pending = keys.next();
            more += 1;
        }
        varint::put(into, more);
    }
}

/// A key that was not predicted.
fn put_other(into: &mut Vec<u8>, predictor: &Predictor, symbols: &mut [Symbol], place: Place, key: &[u8]) {
    let last = &model(place, symbols).last;
    if last.len() != key.len() {
        let shared = last.iter().zip(key).take_while(|(one, other)| one == other).count();
        into.push(OTHER_LENGTH);
        varint::put(into, shared as u64);
        varint::put(into, (key.len() - shared) as u64);
        into.extend_from_slice(&key[shared..]);
        return;
    }
    let mut new = vec![0u8; key.len().div_ceil(8)];
    for (at, (byte, predicted)) in key.iter().zip(&predictor.predicted).enumerate() {
        new[at / 8] |= u8::from(byte != predicted) << (at % 8);
    }
    let count = |mask: &[u8]| mask.iter().map(|bits| bits.count_ones()).sum::<u32>();
    let known = mask(place, symbols);
    let enough = count(&new) + SPARE;
    if known.len() == new.len()
        && new.iter().zip(&*known).all(|(new, known)| new & !known == 0)
        && count(known) <= enough
    {
        into.push(LAST_MASK);
    } else {
        if known.len() == new.len() {
            let both: Vec<u8> = new.iter().zip(&*known).map(|(new, known)| new | known).collect();
            // What was wrong just now is likely to be so again.
            if count(&both) <= enough {
                new = both;
            }
        }
        into.push(NEW_MASK);
        into.extend_from_slice(&new);
        *known = new;
    }
    into.extend(key.iter().enumerate().filter(|(at, _)| known[at / 8] & (1 << (at % 8)) != 0).map(|(_, byte)| *byte));
}

/// Reads the keys of one block, at `places`; `each` takes them, by their number in that, and says
/// whether that is not too much.
pub(super) fn take(
    from: &mut &[u8],
    predictor: &mut Predictor,
    symbols: &mut [Symbol],
    places: &[Place],
    mut each: impl FnMut(usize, &[u8]) -> Result<(), FormError>,
) -> Result<(), FormError> {
    predictor.begin();
    let mut key = Vec::new();
    let mut number = 0;
    while number < places.len() {
        let place = places[number];
        key.clear();
        key.extend_from_slice(predictor.predict(place, symbols));
        let tag = byte(from)?;
        if tag != PREDICTED {
            take_other(from, symbols, place, tag, &mut key)?;
        }
        each(number, &key)?;
        predictor.learn(place, &key, symbols);
        number += 1;
        if tag == PREDICTED && number < places.len() {
            let more = varint::take(from).ok_or(FormError::Truncated)?;
            if more > (places.len() - number) as u64 {
                return Err(FormError::Invalid("more keys than insertions have"));
            }
            for _ in 0..more {
                key.clear();
                key.extend_from_slice(predictor.predict(places[number], symbols));
                each(number, &key)?;
                predictor.learn(places[number], &key, symbols);
                number += 1;
            }
        }
    }
    Ok(())
}

fn take_other(
    from: &mut &[u8],
    symbols: &mut [Symbol],
    place: Place,
    tag: u8,
    key: &mut Vec<u8>,
) -> Result<(), FormError> {
    match tag {
        OTHER_LENGTH => {
            let last = &model(place, symbols).last;
            let number = |from: &mut &[u8]| {
                let number = varint::take(from).ok_or(FormError::Truncated)?;
                let number = usize::try_from(number).ok().filter(|number| *number <= IndexDefinition::MAX_KEY);
                number.ok_or(FormError::Invalid("the length of a key"))
            };
            let (shared, rest) = (number(from)?, number(from)?);
            if shared > last.len() || shared + rest > IndexDefinition::MAX_KEY {
                return Err(FormError::Invalid("the length of a key"));
            }
            key.clear();
            key.extend_from_slice(&last[..shared]);
            key.extend_from_slice(bytes(from, rest)?);
            return Ok(());
        }
        NEW_MASK => *mask(place, symbols) = bytes(from, key.len().div_ceil(8))?.to_vec(),
        LAST_MASK if mask(place, symbols).len() == key.len().div_ceil(8) => {}
        _ => return Err(FormError::Invalid("the tag of a key")),
    }
    let known = mask(place, symbols);
    for (at, place) in key.iter_mut().enumerate() {
        if known[at / 8] & (1 << (at % 8)) != 0 {
            *place = byte(from)?;
        }
    }
    Ok(())
}

/// Takes a byte.
pub(super) fn byte(from: &mut &[u8]) -> Result<u8, FormError> {
    let (byte, rest) = from.split_first().ok_or(FormError::Truncated)?;
    *from = rest;
    Ok(*byte)
}

/// Takes this many bytes.
pub(super) fn bytes<'b>(from: &mut &'b [u8], count: usize) -> Result<&'b [u8], FormError> {
    let (bytes, rest) = from.split_at_checked(count).ok_or(FormError::Truncated)?;
    *from = rest;
    Ok(bytes)
}
