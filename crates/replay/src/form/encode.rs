//! From blocks to their inputs form.

use std::collections::HashSet;

use freshet_base::{Fid, Lsn, RecordKind, varint};
use freshet_log::{
    Block, BlockHeader, BlockKind,
    block::{BLOCK_HEADER, skip_header},
};

use super::{
    BYTES, FIRST_SHAPE, FLAGGED, FormError, INDEXES, Keys, KeysOf, LENGTHS, MOST_KEYS, REACH, SKIP, SPELLED, TERM,
    Written, block_length, keys,
    keys::Predictor,
    model::{BySymbol, Deed, MOST_SYMBOLS, Model, enters},
};

/// What became of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Encoded {
    /// It has no inputs, or has what the form cannot say: its bytes.
    Bytes,
    /// It is a skip block.
    Skip,
    /// It is executed again: the form has its inputs.
    Inputs,
}

/// Encodes batches of the log, on the node that sends them.
#[derive(Debug, Default)]
pub struct Encoder {
    model: Model,
    predictor: Predictor,
    by_symbol: BySymbol,
    /// Of the block at hand.
    written: Vec<Written>,
    symbols: Vec<u16>,
    keys: Keys,
    /// Whether the last block belongs to a transaction that continues behind it.
    midst: bool,
    /// What reads below this goes as its bytes.
    floor: Lsn,
}

impl Encoder {
    /// An encoder at the beginning of a batch.
    pub fn new() -> Self {
        Self::default()
    }

    /// Another batch, which the other side can read without what came before.
    pub fn batch(&mut self) {
        self.model.clear();
    }

    /// What reads below `floor` goes as its bytes from now on: it may see what a node that executes
    /// it again does not have.
    pub fn reads_from(&mut self, floor: Lsn) {
        self.floor = floor;
    }

    /// Appends the form of `block`, the next one of the log.
    pub fn block(&mut self, block: &Block<'_>, keys: &mut impl KeysOf, into: &mut Vec<u8>) -> Encoded {
        let midst = std::mem::replace(&mut self.midst, block.header().continued);
        if skip(block, into) {
            return Encoded::Skip;
        }
        let inputs = block.inputs().filter(|row| is_within_reach(block.lsn(), row, self.floor));
        match inputs.filter(|_| !midst && self.gather(block, keys)) {
            Some(inputs) => {
                self.put(block.header(), inputs, into);
                Encoded::Inputs
            }
            None => {
                varint::put(into, BYTES);
                into.extend_from_slice(block.bytes());
                Encoded::Bytes
            }
        }
    }

    /// Takes down what the block writes. False when its form cannot say that.
    fn gather(&mut self, block: &Block<'_>, keys: &mut impl KeysOf) -> bool {
        let header = block.header();
        self.written.clear();
        self.keys.clear();
        if header.kind != BlockKind::Redo || header.continued || header.serial_key != header.lsn.0 {
            return false;
        }
        let count = block.records().len() - 1;
        for (number, record) in block.records().take(count).enumerate() {
            let (fid, rid, kind, length) =
                (record.header.fid, record.header.rid, record.header.kind, record.header.length);
            let deletion = record.header.prev.filter(|_| kind == RecordKind::Insert);
            let written = Written { fid, rid, kind, length, deletion };
            // What is not a table's, executing again does not regenerate.
            if matches!(fid, Fid::CATALOG | Fid::MESSAGES | Fid::INPUTS)
                || deletion.is_some_and(|deletion| deletion >= header.lsn)
            {
                return false;
            }
            self.written.push(written);
            if enters(&written) {
                let enter = |index, key: &[u8]| self.keys.push(number, index, key);
                if !keys.keys_of(header.lsn, fid, record.row, &mut { enter }) {
                    return false;
                }
            }
            if self.keys.size() > MOST_KEYS {
                return false;
            }
        }
        if self.model.symbols.len() + self.new_symbols() > MOST_SYMBOLS {
            return false;
        }
        let inputs = block.records().last().map_or(0, |record| record.row.len());
        block_length(&self.written, inputs) == u64::from(header.length)
    }

    fn new_symbols(&self) -> usize {
        let symbols = self.written.iter().map(|written| (written.fid, Deed::of(written)));
        let new: HashSet<_> = symbols.filter(|(fid, deed)| self.model.symbol(*fid, *deed).is_none()).collect();
        new.len()
    }

    fn put(&mut self, header: &BlockHeader, inputs: &[u8], into: &mut Vec<u8>) {
        let (known, flags) = (self.model.symbols.len(), self.flags(header));
        if flags != 0 {
            varint::put(into, FLAGGED);
            into.push(flags);
        }
        self.put_shape(known, into);
        if flags & TERM != 0 {
            into.push(header.stream);
            varint::put(into, header.term.0.into());
            (self.model.stream, self.model.term) = (header.stream, header.term);
        }
        for (written, symbol) in self.written.iter().zip(&self.symbols) {
            if flags & LENGTHS != 0 || self.model.varies(*symbol) {
                let last = self.model.symbols[usize::from(*symbol)].length;
                varint::put(into, varint::zigzag(i64::from(written.length) - i64::from(last)));
                self.model.has_length(*symbol, written.length);
            }
        }
        self.put_rids(into);
        self.put_deletions(into);
        self.put_keys(flags & INDEXES != 0, into);
        put_inputs(header.lsn, inputs, into);
        into.extend_from_slice(&header.crc.to_le_bytes());
    }

    /// What the block has that the model does not say. Makes new symbols, and says which symbols
    /// the records are.
    fn flags(&mut self, header: &BlockHeader) -> u8 {
        let mut flags = 0;
        if (header.stream, header.term) != (self.model.stream, self.model.term) {
            flags |= TERM;
        }
        self.symbols.clear();
        for written in &self.written {
            let (Written { fid, length, .. }, deed) = (*written, Deed::of(written));
            let symbol = self.model.symbol(fid, deed).unwrap_or_else(|| self.model.add(fid, deed, length));
            let known = &self.model.symbols[usize::from(symbol)];
            if !known.varies && known.length != length {
                flags |= LENGTHS;
            }
            self.symbols.push(symbol);
        }
        // The keys of all insertions are of the indexes of their symbols' last ones, or all say
        // their indexes.
        let mut at = 0;
        for (record, (written, symbol)) in self.written.iter().zip(&self.symbols).enumerate() {
            if enters(written) {
                let own = self.keys.indexes_of(record, &mut at);
                let same =
                    own.iter().map(|key| key.1).eq(self.model.symbols[usize::from(*symbol)].indexes.iter().copied());
                flags |= if same { 0 } else { INDEXES };
            }
        }
        flags
    }

    /// `known` symbols are no new ones.
    fn put_shape(&mut self, mut known: usize, into: &mut Vec<u8>) {
        if let Some(shape) = self.model.shape(&self.symbols) {
            return varint::put(into, FIRST_SHAPE + u64::from(shape));
        }
        varint::put(into, SPELLED);
        let runs = || self.symbols.chunk_by(|one, other| one == other);
        varint::put(into, runs().count() as u64);
        for run in runs() {
            let symbol = run[0];
            varint::put(into, u64::from(symbol) * 2 + u64::from(run.len() > 1));
            if usize::from(symbol) == known {
                let new = &self.model.symbols[known];
                varint::put(into, new.fid.0.into());
                into.push(new.deed.code());
                varint::put(into, new.length.into());
                known += 1;
            }
            if run.len() > 1 {
                varint::put(into, run.len() as u64 - 2);
            }
        }
        self.model.spelled(&self.symbols);
    }

    fn put_rids(&mut self, into: &mut Vec<u8>) {
        self.by_symbol.sort(&self.symbols, self.model.symbols.len());
        let mut place = 0;
        while place < self.by_symbol.len() {
            let end = self.by_symbol.end(place);
            let symbol = self.symbols[self.by_symbol.record(place)];
            while place < end {
                let rid = self.written[self.by_symbol.record(place)].rid;
                let distance = rid.0 as i64 - self.model.symbols[usize::from(symbol)].next as i64;
                varint::put(into, varint::zigzag(distance));
                self.model.has_rid(symbol, rid);
                place += 1;
                if distance == 0 && place < end {
                    let from = place;
                    while place < end
                        && self.written[self.by_symbol.record(place)].rid.0 == rid.0 + 1 + (place - from) as u64
                    {
                        self.model.has_rid(symbol, self.written[self.by_symbol.record(place)].rid);
                        place += 1;
                    }
                    varint::put(into, (place - from) as u64);
                }
            }
        }
    }

    fn put_deletions(&mut self, into: &mut Vec<u8>) {
        for (written, symbol) in self.written.iter().zip(&self.symbols) {
            if let Some(deletion) = written.deletion {
                let last = &mut self.model.symbols[usize::from(*symbol)].deletion;
                varint::put(into, varint::zigzag(deletion.0.wrapping_sub(last.0) as i64));
                *last = deletion;
            }
        }
    }

    fn put_keys(&mut self, flagged: bool, into: &mut Vec<u8>) {
        let mut at = 0;
        if flagged {
            for (record, (written, symbol)) in self.written.iter().zip(&self.symbols).enumerate() {
                if enters(written) {
                    let own = self.keys.indexes_of(record, &mut at);
                    let indexes = &mut self.model.symbols[usize::from(*symbol)].indexes;
                    indexes.clear();
                    indexes.extend(own.iter().map(|key| key.1));
                    varint::put(into, own.len() as u64);
                    indexes.iter().for_each(|index| varint::put(into, u64::from(*index)));
                }
            }
        }
        let (model, symbols, known) = (&mut self.model, &self.symbols, &self.keys);
        let places: Vec<_> = known
            .iter()
            .map(|key| (keys::place(symbols[key.record], key.index as u16, &mut model.symbols), key.key))
            .collect();
        keys::put(into, &mut self.predictor, &mut model.symbols, places.into_iter());
    }
}

/// The oldest snapshot in the row of inputs of a block, if the row can be understood.
pub fn oldest_snapshot(mut row: &[u8]) -> Option<Lsn> {
    let count = varint::take(&mut row).unwrap_or(0);
    if count > 0 { varint::take(&mut row).map(Lsn) } else { None }
}

/// Whether the oldest snapshot in the row of inputs of a block at `lsn` is young enough, as far
/// as the row can be understood.
fn is_within_reach(lsn: Lsn, row: &[u8], floor: Lsn) -> bool {
    oldest_snapshot(row).is_none_or(|oldest| oldest >= floor && lsn.since(oldest) < REACH)
}

/// Whether `block` is a skip block, which then is written.
fn skip(block: &Block<'_>, into: &mut Vec<u8>) -> bool {
    let header = block.header();
    if header.kind != BlockKind::Skip {
        return false;
    }
    let same = skip_header(header.lsn, header.length.into(), header.term, header.stream);
    if block.bytes()[..BLOCK_HEADER] != same {
        return false;
    }
    varint::put(into, SKIP);
    varint::put(into, u64::from(header.length) / 8);
    into.push(header.stream);
    varint::put(into, header.term.0.into());
    true
}

/// The row of the record that holds the inputs of the block at `lsn`: as its parts, where its
/// parts make just this row.
fn put_inputs(lsn: Lsn, row: &[u8], into: &mut Vec<u8>) {
    let start = into.len();
    if put_parts(lsn, row, into).is_none() {
        into.truncate(start);
        into.push(0);
        varint::put(into, row.len() as u64);
        into.extend_from_slice(row);
    }
}

fn put_parts(lsn: Lsn, row: &[u8], into: &mut Vec<u8>) -> Option<()> {
    let mut rest = row;
    let mut again = Vec::new();
    let mut number = |rest: &mut &[u8]| {
        let number = varint::take(rest)?;
        varint::put(&mut again, number);
        Some(number)
    };
    let count = number(&mut rest).filter(|count| (1..=row.len() as u64).contains(count))?;
    let first = number(&mut rest)?;
    varint::put(into, count);
    varint::put(into, lsn.0.checked_sub(first)?);
    for _ in 1..count {
        varint::put(into, number(&mut rest)?);
    }
    varint::put(into, rest.len() as u64);
    into.extend_from_slice(rest);
    row.starts_with(&again).then_some(())
}

/// Appends the form of `blocks` that go as their bytes. Only their lengths are looked at.
///
/// # Errors
/// [`FormError::Block`], [`FormError::Truncated`] when they are no whole blocks.
pub fn plain(mut blocks: &[u8], into: &mut Vec<u8>) -> Result<(), FormError> {
    while !blocks.is_empty() {
        let length = BlockHeader::peek(blocks).map_err(FormError::Block)?.length as usize;
        let (block, rest) = blocks.split_at_checked(length).ok_or(FormError::Truncated)?;
        varint::put(into, BYTES);
        into.extend_from_slice(block);
        blocks = rest;
    }
    Ok(())
}
