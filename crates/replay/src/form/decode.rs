//! From the inputs form back to what blocks are. The bytes may be anything.

use freshet_base::{Fid, Lsn, Rid, Term, varint};
use freshet_log::{
    BlockHeader, BlockKind,
    block::{BLOCK_HEADER, MAX_BLOCK, MAX_RECORDS, MAX_STREAMS, skip_header},
};
use freshet_storage::TableDefinition;

use super::{
    BYTES, FIRST_SHAPE, FLAGGED, Form, FormError, INDEXES, Inputs, Keys, LENGTHS, MOST_KEYS, SKIP, SPELLED, TERM,
    Written, block_length,
    keys::{self, Place, Predictor, byte, bytes},
    model::{BySymbol, Deed, MOST_SYMBOLS, Model, enters},
};

/// Reads a batch, block by block.
#[derive(Debug)]
pub struct Decoder<'b> {
    from: &'b [u8],
    at: Lsn,
    model: Model,
    predictor: Predictor,
    by_symbol: BySymbol,
    /// Of the block at hand.
    written: Vec<Written>,
    symbols: Vec<u16>,
    places: Vec<Place>,
    records: Vec<(usize, u16)>,
    keys: Keys,
    inputs: Vec<u8>,
}

impl<'b> Decoder<'b> {
    /// Of the batch `from`, whose first block begins at `at`.
    pub fn new(from: &'b [u8], at: Lsn) -> Self {
        Self {
            from,
            at,
            model: Model::default(),
            predictor: Predictor::default(),
            by_symbol: BySymbol::default(),
            written: Vec::new(),
            symbols: Vec::new(),
            places: Vec::new(),
            records: Vec::new(),
            keys: Keys::default(),
            inputs: Vec::new(),
        }
    }

    /// Where the next block begins, or the batch ends.
    pub fn at(&self) -> Lsn {
        self.at
    }

    /// The next block; none at the end of the batch.
    ///
    /// # Errors
    /// [`FormError`]. Nothing that follows means anything then.
    pub fn next_form(&mut self) -> Result<Option<Form<'_>>, FormError> {
        if self.from.is_empty() {
            return Ok(None);
        }
        let mut flags = 0;
        let mut tag = self.number()?;
        if tag == FLAGGED {
            flags = byte(&mut self.from)?;
            tag = self.number()?;
            if flags & !(LENGTHS | INDEXES | TERM) != 0 || tag <= FLAGGED && tag != SPELLED {
                return Err(FormError::Invalid("flags"));
            }
        }
        match tag {
            BYTES => {
                let header = BlockHeader::peek(self.from).map_err(FormError::Block)?;
                let block = bytes(&mut self.from, header.length as usize)?;
                self.advance(header.length.into())?;
                Ok(Some(Form::Bytes(block)))
            }
            SKIP => self.skip().map(Some),
            _ => {
                let header = self.block(flags, tag)?;
                self.advance(header.length.into())?;
                let (written, keys, inputs) = (&self.written[..], &self.keys, &self.inputs[..]);
                Ok(Some(Form::Inputs(Inputs { header, written, keys, inputs })))
            }
        }
    }

    fn number(&mut self) -> Result<u64, FormError> {
        varint::take(&mut self.from).ok_or(FormError::Truncated)
    }

    /// A number of at most `most`; `what` it is.
    fn number_to(&mut self, most: u64, what: &'static str) -> Result<u64, FormError> {
        let number = self.number()?;
        if number <= most { Ok(number) } else { Err(FormError::Invalid(what)) }
    }

    fn advance(&mut self, length: u64) -> Result<(), FormError> {
        let end = self.at.0.checked_add(length).ok_or(FormError::Invalid("the end of the log"))?;
        self.at = Lsn(end);
        Ok(())
    }

    fn stream_and_term(&mut self) -> Result<(u8, Term), FormError> {
        let stream = byte(&mut self.from)?;
        if usize::from(stream) >= MAX_STREAMS {
            return Err(FormError::Invalid("a stream"));
        }
        let term = self.number_to(u32::MAX.into(), "a term")?;
        Ok((stream, Term(term as u32)))
    }

    fn skip(&mut self) -> Result<Form<'b>, FormError> {
        let length = self.number_to(MAX_BLOCK as u64 / 8, "the length of a block")? * 8;
        if length < BLOCK_HEADER as u64 {
            return Err(FormError::Invalid("the length of a block"));
        }
        let (stream, term) = self.stream_and_term()?;
        let bytes = skip_header(self.at, length, term, stream);
        let header = BlockHeader::peek(&bytes).map_err(FormError::Block)?;
        self.advance(length)?;
        Ok(Form::Skip(header, bytes))
    }

    fn block(&mut self, flags: u8, tag: u64) -> Result<BlockHeader, FormError> {
        self.shape(tag)?;
        if flags & TERM != 0 {
            (self.model.stream, self.model.term) = self.stream_and_term()?;
        }
        self.lengths(flags & LENGTHS != 0)?;
        self.rids()?;
        self.deletions()?;
        self.keys(flags & INDEXES != 0)?;
        self.inputs()?;
        let crc = bytes(&mut self.from, 4)?;
        let length = block_length(&self.written, self.inputs.len());
        if length > MAX_BLOCK as u64 {
            return Err(FormError::Invalid("the length of a block"));
        }
        Ok(BlockHeader {
            length: length as u32,
            crc: u32::from_le_bytes(crc.try_into().expect("four bytes")),
            lsn: self.at,
            serial_key: self.at.0,
            term: self.model.term,
            record_count: self.written.len() as u16 + 1,
            kind: BlockKind::Redo,
            stream: self.model.stream,
            continued: false,
        })
    }

    /// Which symbols the records are.
    fn shape(&mut self, tag: u64) -> Result<(), FormError> {
        self.symbols.clear();
        if tag != SPELLED {
            let shape = self.model.shape_at(tag - FIRST_SHAPE).ok_or(FormError::Invalid("a shape"))?;
            self.symbols.extend_from_slice(shape);
            return Ok(());
        }
        let too_many = "more records than a block has";
        for _ in 0..self.number_to(MAX_RECORDS as u64, too_many)? {
            let number = self.number()?;
            let symbol = match usize::try_from(number / 2) {
                Ok(symbol) if symbol < self.model.symbols.len() => symbol as u16,
                Ok(symbol) if symbol == self.model.symbols.len() && symbol < MOST_SYMBOLS => self.symbol()?,
                _ => return Err(FormError::Invalid("a symbol")),
            };
            let more = if number % 2 == 1 { self.number_to(MAX_RECORDS as u64, too_many)? + 2 } else { 1 };
            // One more is the record of inputs.
            if self.symbols.len() as u64 + more >= MAX_RECORDS as u64 {
                return Err(FormError::Invalid(too_many));
            }
            self.symbols.resize(self.symbols.len() + more as usize, symbol);
        }
        self.model.spelled(&self.symbols);
        Ok(())
    }

    fn symbol(&mut self) -> Result<u16, FormError> {
        let fid = Fid(self.number_to(u32::MAX.into(), "a table")? as u32);
        let deed = Deed::from_code(byte(&mut self.from)?).ok_or(FormError::Invalid("what is done to a record"))?;
        let length = self.number_to(MAX_BLOCK as u64, "the length of a row")?;
        if self.model.symbol(fid, deed).is_some() {
            return Err(FormError::Invalid("a symbol that there is"));
        }
        Ok(self.model.add(fid, deed, length as u32))
    }

    fn lengths(&mut self, all: bool) -> Result<(), FormError> {
        self.written.clear();
        for at in 0..self.symbols.len() {
            let symbol = self.symbols[at];
            if all || self.model.varies(symbol) {
                let last = self.model.symbols[usize::from(symbol)].length;
                let length = i64::from(last).checked_add(varint::unzigzag(self.number()?));
                let length = length.and_then(|length| u32::try_from(length).ok());
                let length = length.filter(|length| *length as usize <= MAX_BLOCK);
                self.model.has_length(symbol, length.ok_or(FormError::Invalid("the length of a row"))?);
            }
            let known = &self.model.symbols[usize::from(symbol)];
            let (fid, kind, length) = (known.fid, known.deed.kind(), known.length);
            self.written.push(Written { fid, rid: Rid(0), kind, length, deletion: None });
        }
        Ok(())
    }

    fn rids(&mut self) -> Result<(), FormError> {
        self.by_symbol.sort(&self.symbols, self.model.symbols.len());
        let invalid = FormError::Invalid("a record's id");
        let mut place = 0;
        while place < self.by_symbol.len() {
            let end = self.by_symbol.end(place);
            let symbol = self.symbols[self.by_symbol.record(place)];
            let mut left_out = 0;
            while place < end {
                let next = self.model.symbols[usize::from(symbol)].next;
                let rid = if left_out > 0 {
                    left_out -= 1;
                    next
                } else {
                    let distance = varint::unzigzag(self.number()?);
                    if distance == 0 && place + 1 < end {
                        left_out = self.number_to((end - place - 1) as u64, "more records than there are")?;
                    }
                    u64::try_from((next as i64).checked_add(distance).ok_or(invalid)?).map_err(|_| invalid)?
                };
                if rid > Rid::MAX.0 {
                    return Err(invalid);
                }
                self.written[self.by_symbol.record(place)].rid = Rid(rid);
                self.model.has_rid(symbol, Rid(rid));
                place += 1;
            }
        }
        Ok(())
    }

    fn deletions(&mut self) -> Result<(), FormError> {
        for (record, symbol) in self.symbols.iter().enumerate() {
            let symbol = &mut self.model.symbols[usize::from(*symbol)];
            if symbol.deed == Deed::InsertAgain {
                let distance = varint::unzigzag(varint::take(&mut self.from).ok_or(FormError::Truncated)?);
                symbol.deletion = Lsn(symbol.deletion.0.wrapping_add(distance as u64));
                if symbol.deletion >= self.at {
                    return Err(FormError::Invalid("where a deletion lies"));
                }
                self.written[record].deletion = Some(symbol.deletion);
            }
        }
        Ok(())
    }

    fn keys(&mut self, flagged: bool) -> Result<(), FormError> {
        self.keys.clear();
        self.places.clear();
        self.records.clear();
        let too_many = FormError::Invalid("more keys than a form may have");
        for record in 0..self.written.len() {
            if !enters(&self.written[record]) {
                continue;
            }
            let symbol = self.symbols[record];
            if flagged {
                let indexes = TableDefinition::MAX_INDEXES as u64;
                let count = self.number_to(indexes, "the number of a record's keys")?;
                let mut own = std::mem::take(&mut self.model.symbols[usize::from(symbol)].indexes);
                own.clear();
                for _ in 0..count {
                    own.push(self.number_to(indexes - 1, "the number of an index")? as u16);
                }
                self.model.symbols[usize::from(symbol)].indexes = own;
            }
            for number in 0..self.model.symbols[usize::from(symbol)].indexes.len() {
                let index = self.model.symbols[usize::from(symbol)].indexes[number];
                self.places.push(keys::place(symbol, index, &mut self.model.symbols));
                self.records.push((record, index));
            }
            if self.places.len() * size_of::<(u32, u16, u32)>() > MOST_KEYS {
                return Err(too_many);
            }
        }
        let (keys, records) = (&mut self.keys, &self.records);
        let take = |number: usize, key: &[u8]| {
            let (record, index) = records[number];
            keys.push(record, index, key);
            if keys.size() <= MOST_KEYS { Ok(()) } else { Err(too_many) }
        };
        keys::take(&mut self.from, &mut self.predictor, &mut self.model.symbols, &self.places, take)
    }

    fn inputs(&mut self) -> Result<(), FormError> {
        self.inputs.clear();
        let count = self.number()?;
        if count > 0 {
            let first = self.at.0.checked_sub(self.number()?).ok_or(FormError::Invalid("a snapshot"))?;
            varint::put(&mut self.inputs, count);
            varint::put(&mut self.inputs, first);
            for _ in 1..count {
                let distance = self.number()?;
                varint::put(&mut self.inputs, distance);
            }
        }
        let length = self.number_to(MAX_BLOCK as u64, "the length of inputs")? as usize;
        self.inputs.extend_from_slice(bytes(&mut self.from, length)?);
        Ok(())
    }
}
