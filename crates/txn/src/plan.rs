//! How a transaction lies in the log: what its blocks are, and where its records will be.
//!
//! An ordinary transaction is a plan of one part, which is built, with its checksum, before the
//! LSN is taken. One that is too long to be built, and put into the log's ring, at once is
//! measured first, and then built and put there part by part while the group commit makes room. It
//! takes one reservation for all of it, so it has one LSN as any other, is certified for that,
//! and is decided at once: no thread that meets its versions waits for the log. All parts but the
//! last say that another follows: a log that ends before the last ends before the first. Where only
//! LSNs count, a plan has no part.

use freshet_base::{Fid, RecordKind, Rid};
use freshet_log::{
    BlockBuilder, BlockKind, Reservation, ReserveError,
    block::{BLOCK_ALIGN, BLOCK_HEADER, MAX_RECORDS, RECORD_HEADER},
};

use freshet_storage::Published;

use crate::{CommitError, Transaction, snapshots::Primary, state::Write};

/// A record that is decided, and not in the log yet: its table, and what it does.
pub(crate) type Record<'g> = (Fid, RecordKind, Published<'g>);

/// What is put into the log, and how long it is.
#[derive(Debug)]
pub(crate) struct Plan {
    kind: BlockKind,
    length: u64,
    parts: Parts,
}

#[derive(Debug)]
enum Parts {
    /// Nothing is logged: only the LSN counts.
    None,
    /// All of it is in the builder.
    One,
    Many(Long),
}

/// One part of several: its records, its stream, and where it begins.
#[derive(Debug)]
struct Part {
    records: std::ops::Range<usize>,
    stream: u8,
    offset: u64,
}

/// How a long transaction is cut into parts, each of them a block.
#[derive(Debug, Default)]
struct Long {
    parts: Vec<Part>,
    /// The distance of each record from the transaction's start.
    offsets: Vec<u64>,
    length: u64,
}

impl Long {
    /// Records of these streams and lengths, rows alone, in blocks of about `part` bytes.
    fn new(records: impl Iterator<Item = (u8, usize)>, part: u64) -> Self {
        let mut long = Self::default();
        // Where the next record would go.
        let mut at = 0;
        for (number, (stream, row)) in records.enumerate() {
            let length = (RECORD_HEADER + row) as u64;
            let goes_on = long.parts.last().is_some_and(|last| {
                last.stream == stream && last.records.len() < MAX_RECORDS && at + length - last.offset <= part
            });
            if !goes_on {
                let offset = u64::next_multiple_of(at, BLOCK_ALIGN as u64);
                long.parts.push(Part { records: number..number, stream, offset });
                at = offset + BLOCK_HEADER as u64;
            }
            long.parts.last_mut().expect("there is one").records.end = number + 1;
            long.offsets.push(at);
            at += length;
        }
        long.length = at.next_multiple_of(BLOCK_ALIGN as u64);
        let parts = || long.parts.iter().zip(long.parts.iter().skip(1));
        let follow = parts().all(|(one, next)| one.records.end == next.records.start && one.offset < next.offset);
        assert!(follow, "the parts of a transaction do not follow one another");
        long
    }

    /// The length of the longest block.
    fn longest(&self) -> u64 {
        let ends = self.parts.iter().skip(1).map(|part| part.offset).chain([self.length]);
        self.parts.iter().zip(ends).map(|(part, end)| end - part.offset).max().unwrap_or(0)
    }
}

impl Plan {
    /// For a transaction that takes `length` bytes of LSNs, or took them on another node, and
    /// nothing more.
    pub(crate) fn of_nothing(length: u64) -> Self {
        Self { kind: BlockKind::Redo, length, parts: Parts::None }
    }

    /// How many bytes of the log it takes.
    pub(crate) fn length(&self) -> u64 {
        self.length
    }

    /// Whether it is built part by part when it is decided.
    pub(crate) fn is_long(&self) -> bool {
        matches!(self.parts, Parts::Many(_))
    }

    /// How far the record with this number lies from the transaction's LSN. Where there is no
    /// record of it, any places between the LSN and the next one will do.
    pub(crate) fn offset(&self, number: usize, builder: &BlockBuilder) -> u64 {
        match &self.parts {
            Parts::One if self.kind != BlockKind::Inputs => builder.offsets()[number].into(),
            Parts::Many(long) => long.offsets[number],
            _ => (number as u64 + 1).min(self.length - 1),
        }
    }

    /// Puts the blocks into the reserved range. Waits while the ring has no room.
    pub(crate) fn put(
        &self,
        primary: &Primary,
        builder: &mut BlockBuilder,
        records: &[Record<'_>],
        messages: &[Box<[u8]>],
        reservation: &mut Reservation<'_>,
    ) -> Result<(), ReserveError> {
        freshet_base::step!(Log, reservation.lsn(), reservation.end());
        match &self.parts {
            Parts::None => Ok(()),
            Parts::One => reservation.put(builder.finish(reservation.at(), primary.term, self.kind)),
            Parts::Many(long) => {
                builder.set_limit(primary.log.longest_block());
                let outcome = long.parts.iter().enumerate().try_for_each(|(number, part)| {
                    assert_eq!(reservation.at(), reservation.lsn().plus(part.offset), "a part comes out of its turn");
                    part.build(builder, records, messages, primary.log.notes_changes());
                    let is_last = number + 1 == long.parts.len();
                    reservation.put(builder.finish_part(reservation.at(), primary.term, self.kind, is_last))
                });
                builder.set_limit(primary.log.longest_at_once());
                outcome
            }
        }
    }
}

impl Part {
    /// Where rows differ from those that they replace is noted if `notes` says so.
    fn build(&self, builder: &mut BlockBuilder, records: &[Record<'_>], messages: &[Box<[u8]>], notes: bool) {
        builder.begin_in(self.stream);
        for number in self.records.clone() {
            let pushed = match records.get(number) {
                Some((fid, kind, record)) => {
                    let below = (notes && *kind == RecordKind::Update).then(|| record.row_below()).flatten();
                    builder.push_over(record.prev(), *fid, record.rid(), *kind, record.logged_row(), below)
                }
                None => {
                    let message = &messages[number - records.len()];
                    builder.push(None, Fid::MESSAGES, Rid(0), RecordKind::Insert, message)
                }
            };
            pushed.expect("it was measured before");
        }
        builder.seal_records();
    }
}

impl Transaction<'_> {
    /// Builds what the transaction logs, in its worker's stream `own`, or, where that is too long
    /// to be put into the log at once, says how it will be built.
    pub(crate) fn plan(&self, primary: &Primary, own: u8, builder: &mut BlockBuilder) -> Result<Plan, CommitError> {
        freshet_base::step!(Execute);
        if primary.log.is_volatile() {
            let state = self.worker.state.borrow();
            // As much as the block would at least have had.
            let records = state.writes.len() + state.messages.len();
            return Ok(Plan::of_nothing((BLOCK_HEADER + records * RECORD_HEADER) as u64));
        }
        if let Some(kind) = self.build_inputs(own, builder)? {
            return Ok(Plan { kind, length: builder.seal_records(), parts: Parts::One });
        }
        let built = self.build_block(primary, own, builder);
        self.record(built, builder);
        match built {
            Some(kind) => Ok(Plan { kind, length: builder.seal_records(), parts: Parts::One }),
            None => self.plan_parts(primary, own),
        }
    }

    /// Builds the transaction's block in its worker's stream, or, where the log is divided by
    /// pages, one in each stream whose pages it has changed. None when that is too long to be put
    /// into the log at once; the writes are in the order of their streams then, too.
    fn build_block(&self, primary: &Primary, own: u8, builder: &mut BlockBuilder) -> Option<BlockKind> {
        freshet_base::step!(Execute);
        let mut state = self.worker.state.borrow_mut();
        let stream = |write: &Write| primary.log.stream_of(write.fid, write.installed.rid()).unwrap_or(own);
        state.writes.sort_by_key(stream);
        // A standby that executes it again makes the same bytes, and knows nothing of that.
        let notes = primary.log.notes_changes() && !self.records;
        let mut kind = BlockKind::Redo;
        let mut current = state.writes.first().map_or(own, stream);
        builder.begin_in(current);
        for write in &state.writes {
            let next = stream(write);
            if next != current {
                builder.next_block_in(next);
                current = next;
            }
            let Write { fid, installed, inserted, .. } = write;
            let record = if *inserted { RecordKind::Insert } else { installed.kind() };
            let row = installed.logged_row(self.guard());
            let below = (notes && record == RecordKind::Update).then(|| installed.row_below(self.guard())).flatten();
            builder.push_over(installed.prev(), *fid, installed.rid(), record, row, below).ok()?;
            if *fid == Fid::CATALOG {
                kind = BlockKind::Schema;
            }
        }
        for message in &state.messages {
            builder.push(None, Fid::MESSAGES, Rid(0), RecordKind::Insert, message).ok()?;
        }
        Some(kind)
    }

    /// Measures a transaction whose writes are in the order of their streams.
    fn plan_parts(&self, primary: &Primary, own: u8) -> Result<Plan, CommitError> {
        let state = self.worker.state.borrow();
        let stream = |write: &Write| primary.log.stream_of(write.fid, write.installed.rid()).unwrap_or(own);
        let length = |write: &Write| write.installed.logged_row(self.guard()).len();
        let writes = state.writes.iter().map(|write| (stream(write), length(write)));
        let last = state.writes.last().map_or(own, stream);
        let messages = state.messages.iter().map(|message| (last, message.len()));
        let long = Long::new(writes.chain(messages), primary.log.part());
        let (longest, limit) = (long.longest(), primary.log.longest_block());
        if longest > limit {
            return Err(CommitError::TooLarge(format!(
                "a row takes {longest} bytes of log, {limit} can be taken at once: configure a larger log buffer"
            )));
        }
        let schema = state.writes.iter().any(|write| write.fid == Fid::CATALOG);
        let kind = if schema { BlockKind::Schema } else { BlockKind::Redo };
        Ok(Plan { kind, length: long.length, parts: Parts::Many(long) })
    }
}

#[cfg(test)]
mod tests {
    use freshet_base::Lsn;
    use freshet_log::BlockBuilder;

    use super::*;

    #[test]
    fn a_plan_is_what_the_builder_builds() {
        let records: Vec<(u8, usize)> = (0..200_000u64)
            .map(|number| ((number / 70_000) as u8, if number % 1000 == 7 { 5000 } else { (number % 3) as usize }))
            .collect();
        for part in [64, 1000, 4096, 1 << 20, 16 << 20] {
            let plan = Long::new(records.iter().copied(), part);
            let mut builder = BlockBuilder::new();
            let mut at = 0;
            let mut covered = 0;
            for part in &plan.parts {
                assert_eq!((part.offset, part.records.start), (at, covered));
                builder.begin_in(part.stream);
                for (stream, row) in &records[part.records.clone()] {
                    assert_eq!(*stream, part.stream);
                    builder.push(None, Fid(1), freshet_base::Rid(1), RecordKind::Update, &vec![0; *row]).unwrap();
                }
                let length = builder.seal_records();
                let offsets = builder.offsets().iter().map(|offset| at + u64::from(*offset));
                assert!(offsets.eq(plan.offsets[part.records.clone()].iter().copied()));
                let bytes = builder.finish_part(Lsn(at), freshet_base::Term(1), BlockKind::Redo, false);
                let block = freshet_log::Block::parse(bytes, Lsn(at)).unwrap();
                assert_eq!(
                    (block.bytes().len() as u64, block.records().len()),
                    (length, part.records.len()),
                    "one block"
                );
                at += length;
                covered = part.records.end;
            }
            assert_eq!((at, covered), (plan.length, records.len()));
            assert!(plan.longest() <= (part + 8).max(5072), "{} for {part}", plan.longest());
        }
    }
}
