//! What both sides of a batch know of what has come in it.
//!
//! The encoder and the decoder go through the same steps in the same order, and both only here:
//! so their models are equal after every block.

use std::collections::HashMap;

use freshet_base::{Fid, Lsn, RecordKind, Rid, Term};

use super::{Written, keys::KeyModel};

/// More symbols than this a batch does not have: blocks that need more go as their bytes.
pub(super) const MOST_SYMBOLS: usize = 4096;
/// How many shapes are remembered, and how many records one of them may have.
const MOST_SHAPES: usize = 124;
const LONGEST_SHAPE: usize = 64;

/// What is done to a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Deed {
    Insert,
    Update,
    Delete,
    /// An insertion that uses the id of a deleted record.
    InsertAgain,
}

impl Deed {
    /// What a record of the form does.
    pub const fn of(written: &Written) -> Self {
        match (written.kind, written.deletion) {
            (RecordKind::Insert, None) => Self::Insert,
            (RecordKind::Insert, Some(_)) => Self::InsertAgain,
            (RecordKind::Update, _) => Self::Update,
            (RecordKind::Delete, _) => Self::Delete,
        }
    }

    /// How the log calls it.
    pub const fn kind(self) -> RecordKind {
        match self {
            Self::Insert | Self::InsertAgain => RecordKind::Insert,
            Self::Update => RecordKind::Update,
            Self::Delete => RecordKind::Delete,
        }
    }

    /// How the form writes it.
    pub const fn code(self) -> u8 {
        match self {
            Self::Insert => 0,
            Self::Update => 1,
            Self::Delete => 2,
            Self::InsertAgain => 3,
        }
    }

    /// The one that is written so.
    pub const fn from_code(code: u8) -> Option<Self> {
        match code {
            0 => Some(Self::Insert),
            1 => Some(Self::Update),
            2 => Some(Self::Delete),
            3 => Some(Self::InsertAgain),
            _ => None,
        }
    }
}

/// A table, what is done to it, and what was done to it last.
#[derive(Clone, Debug)]
pub(super) struct Symbol {
    pub fid: Fid,
    pub deed: Deed,
    /// Length of the last record's row, in bytes.
    pub length: u32,
    /// Whether records of several lengths have come.
    pub varies: bool,
    /// The last record, plus one.
    pub next: u64,
    /// The deletion that the last record has replaced, if insertions use ids again.
    pub deletion: Lsn,
    /// The indexes that the last insertion had keys of.
    pub indexes: Vec<u16>,
    /// What is known of the keys of each index, by its number.
    pub keys: Vec<(u16, KeyModel)>,
}

/// What both sides know of the batch so far: the same bytes in, the same model.
#[derive(Clone, Debug, Default)]
pub(super) struct Model {
    pub symbols: Vec<Symbol>,
    by_name: HashMap<(Fid, Deed), u16>,
    shapes: Vec<Box<[u16]>>,
    by_shape: HashMap<Box<[u16]>, u16>,
    pub stream: u8,
    pub term: Term,
}

impl Model {
    /// Forgets everything, for another batch.
    pub fn clear(&mut self) {
        self.symbols.clear();
        self.by_name.clear();
        self.shapes.clear();
        self.by_shape.clear();
        (self.stream, self.term) = (0, Term(0));
    }

    /// The number of a symbol that has come.
    pub fn symbol(&self, fid: Fid, deed: Deed) -> Option<u16> {
        self.by_name.get(&(fid, deed)).copied()
    }

    /// A new symbol; returns its number. There must be fewer than [`MOST_SYMBOLS`].
    pub fn add(&mut self, fid: Fid, deed: Deed, length: u32) -> u16 {
        let number = self.symbols.len() as u16;
        self.by_name.insert((fid, deed), number);
        let (deletion, indexes, keys) = (Lsn::ZERO, Vec::new(), Vec::new());
        self.symbols.push(Symbol { fid, deed, length, varies: false, next: 0, deletion, indexes, keys });
        number
    }

    /// The number of a shape that is remembered.
    pub fn shape(&self, symbols: &[u16]) -> Option<u16> {
        self.by_shape.get(symbols).copied()
    }

    /// The shape with this number.
    pub fn shape_at(&self, number: u64) -> Option<&[u16]> {
        self.shapes.get(usize::try_from(number).ok()?).map(AsRef::as_ref)
    }

    /// A shape was spelled: the next one like it need not be.
    pub fn spelled(&mut self, symbols: &[u16]) {
        if self.shapes.len() < MOST_SHAPES && symbols.len() <= LONGEST_SHAPE {
            self.by_shape.insert(symbols.into(), self.shapes.len() as u16);
            self.shapes.push(symbols.into());
        }
    }

    /// A record of this symbol has this length.
    pub fn has_length(&mut self, symbol: u16, length: u32) {
        let symbol = &mut self.symbols[usize::from(symbol)];
        symbol.varies |= symbol.length != length;
        symbol.length = length;
    }

    /// Whether a record of this symbol says its length where not all do.
    pub fn varies(&self, symbol: u16) -> bool {
        self.symbols[usize::from(symbol)].varies
    }

    /// A record of this symbol is this one.
    pub fn has_rid(&mut self, symbol: u16, rid: Rid) {
        self.symbols[usize::from(symbol)].next = rid.0 + 1;
    }
}

/// The records of a block, those of a symbol together, symbols in the order in which they come.
#[derive(Clone, Debug, Default)]
pub(super) struct BySymbol {
    /// By symbol: when it came first in this block, plus one.
    ranks: Vec<u32>,
    records: Vec<(u32, u32)>,
}

impl BySymbol {
    /// Sorts the records of a block of these symbols; `count` symbols are known.
    pub fn sort(&mut self, symbols: &[u16], count: usize) {
        self.ranks.clear();
        self.ranks.resize(count, 0);
        self.records.clear();
        let mut rank = 0;
        for (record, symbol) in symbols.iter().enumerate() {
            let place = &mut self.ranks[usize::from(*symbol)];
            if *place == 0 {
                rank += 1;
                *place = rank;
            }
            self.records.push((*place, record as u32));
        }
        self.records.sort_unstable();
    }

    /// How many records there are.
    pub fn len(&self) -> usize {
        self.records.len()
    }

    /// The record at `place`.
    pub fn record(&self, place: usize) -> usize {
        self.records[place].1 as usize
    }

    /// Where the records end that are of the same symbol as the one at `place`.
    pub fn end(&self, place: usize) -> usize {
        let rank = self.records[place].0;
        place + self.records[place..].partition_point(|record| record.0 == rank)
    }
}

/// Whether records of this kind enter keys.
pub(super) fn enters(written: &Written) -> bool {
    written.kind == RecordKind::Insert
}
