//! Commit of a transaction that is too long to be built, and put into the log's ring, at once.
//!
//! It takes one reservation for all of it, so it has one stamp as any other, is certified for that, and is decided at once: nobody who meets
//! its versions waits for the log. Then its blocks are built and put into the ring one by one while the group commit makes
//! room. All but the last say that another follows: a log that ends before the last ends before the first.

use freshet_base::{Fid, RecordKind, Rid};
use freshet_log::{
    BlockKind,
    block::{BLOCK_ALIGN, BLOCK_HEADER, MAX_RECORDS, RECORD_HEADER},
};

use freshet_storage::Published;

use crate::{CommitError, Ticket, Transaction, garbage::Garbage, snapshots::Primary, state::Write, worker::Inner};

/// A record that is decided, and not in the log yet: its table, and what it does.
type Record<'g> = (Fid, RecordKind, Published<'g>);

/// One block: its records, its stream, and where it begins.
#[derive(Debug)]
struct Part {
    writes: std::ops::Range<usize>,
    stream: u8,
    offset: u64,
}

/// How a transaction is cut into blocks.
#[derive(Debug, Default)]
struct Plan {
    parts: Vec<Part>,
    /// The distance of each record from the transaction's start.
    offsets: Vec<u64>,
    length: u64,
}

impl Plan {
    /// Records of these streams and lengths, rows alone, in blocks of about `part` bytes.
    fn new(records: impl Iterator<Item = (u8, usize)>, part: u64) -> Self {
        let mut plan = Self::default();
        // Where the next record would go.
        let mut at = 0;
        for (number, (stream, row)) in records.enumerate() {
            let length = (RECORD_HEADER + row) as u64;
            let goes_on = plan.parts.last().is_some_and(|last| {
                last.stream == stream && last.writes.len() < MAX_RECORDS && at + length - last.offset <= part
            });
            if !goes_on {
                let offset = u64::next_multiple_of(at, BLOCK_ALIGN as u64);
                plan.parts.push(Part { writes: number..number, stream, offset });
                at = offset + BLOCK_HEADER as u64;
            }
            plan.parts.last_mut().expect("there is one").writes.end = number + 1;
            plan.offsets.push(at);
            at += length;
        }
        plan.length = at.next_multiple_of(BLOCK_ALIGN as u64);
        plan
    }

    /// The length of the longest block.
    fn longest(&self) -> u64 {
        let ends = self.parts.iter().skip(1).map(|part| part.offset).chain([self.length]);
        self.parts.iter().zip(ends).map(|(part, end)| end - part.offset).max().unwrap_or(0)
    }
}

impl Transaction<'_> {
    /// Takes the stamp, decides, and fills the reserved range of the log with blocks, or with skip blocks. The writes are in the
    /// order of their streams.
    pub(crate) fn log_long(&self, primary: &Primary, inner: &mut Inner) -> Result<Ticket, CommitError> {
        let worker = self.worker;
        let Inner { writer, builder, rids } = inner;
        let writer = Self::writer(primary, writer)?;
        let own = writer.stream();
        let stream = |write: &Write| primary.log.stream_of(write.fid, write.installed.rid()).unwrap_or(own);
        let (plan, kind) = {
            let state = worker.state.borrow();
            let length = |write: &Write| write.installed.logged_row(self.guard()).len();
            let writes = state.writes.iter().map(|write| (stream(write), length(write)));
            let last = state.writes.last().map_or(own, stream);
            let messages = state.messages.iter().map(|message| (last, message.len()));
            let plan = Plan::new(writes.chain(messages), primary.log.part());
            let schema = state.writes.iter().any(|write| write.fid == Fid::CATALOG);
            (plan, if schema { BlockKind::Schema } else { BlockKind::Redo })
        };
        let (longest, limit) = (plan.longest(), primary.log.longest_block());
        if longest > limit {
            return Err(CommitError::TooLarge(format!(
                "a row takes {longest} bytes of log, {limit} can be taken at once: configure a larger log buffer"
            )));
        }
        writer.throttle()?;
        // To find out later costs as much of the log as the transaction takes.
        self.validate(primary.log.reserved())?;
        let owner = worker.owner.get().expect("it has written");
        worker.core.owners.committing(owner);
        let mut reservation = writer.reserve_long(plan.length)?;
        let stamp = reservation.stamp();
        worker.core.owners.stamp(owner, stamp);
        if let Err(error) = self.validate(stamp) {
            // Its versions first: others wait for them to go.
            self.undo_all(rids);
            reservation.skip();
            return Err(error);
        }
        worker.core.owners.decided(owner, true);
        let until = reservation.end();
        let messages = worker.state.borrow().messages.clone();
        let written = worker.state.borrow().writes.len();
        self.enter_messages(stamp, plan.offsets.iter().skip(written).copied());
        // Whoever meets a version wants its final stamp, and should not have to wait for the log.
        let writes = std::mem::take(&mut worker.state.borrow_mut().writes);
        let mut garbage = worker.core.garbage.of(worker.place());
        let publish = |(write, offset): (Write, &u64)| {
            let address = stamp.plus(*offset);
            self.enter_catalog(&write, address);
            let Write { fid, installed, inserted, .. } = write;
            if !inserted {
                garbage.push(Garbage { fid, rid: installed.rid(), stamp: address });
            }
            let kind = if inserted { RecordKind::Insert } else { installed.kind() };
            (fid, kind, installed.publish(self.guard(), address))
        };
        let records: Vec<Record<'_>> = writes.into_iter().zip(&plan.offsets).map(publish).collect();
        drop(garbage);
        builder.set_limit(limit);
        for (number, part) in plan.parts.iter().enumerate() {
            builder.begin_in(part.stream);
            for number in part.writes.clone() {
                let pushed = match records.get(number) {
                    Some((fid, kind, record)) => {
                        builder.push(record.prev(), *fid, record.rid(), *kind, record.logged_row())
                    }
                    None => {
                        let message = &messages[number - records.len()];
                        builder.push(None, Fid::MESSAGES, Rid(0), RecordKind::Insert, message)
                    }
                };
                pushed.expect("it was measured before");
            }
            builder.seal_records();
            let is_last = number + 1 == plan.parts.len();
            let blocks = builder.finish_part(reservation.at(), primary.term, kind, is_last);
            // When the log has failed, it takes nothing more from anybody, and the ticket tells.
            if reservation.put(blocks).is_err() {
                break;
            }
        }
        builder.set_limit(primary.log.longest_at_once());
        Ok(Ticket { stamp: Some(stamp), until })
    }
}

#[cfg(test)]
mod tests {
    use freshet_base::Stamp;
    use freshet_log::BlockBuilder;

    use super::*;

    #[test]
    fn a_plan_is_what_the_builder_builds() {
        let records: Vec<(u8, usize)> = (0..200_000u64)
            .map(|number| ((number / 70_000) as u8, if number % 1000 == 7 { 5000 } else { (number % 3) as usize }))
            .collect();
        for part in [64, 1000, 4096, 1 << 20, 16 << 20] {
            let plan = Plan::new(records.iter().copied(), part);
            let mut builder = BlockBuilder::new();
            let mut at = 0;
            let mut covered = 0;
            for part in &plan.parts {
                assert_eq!((part.offset, part.writes.start), (at, covered));
                builder.begin_in(part.stream);
                for (stream, row) in &records[part.writes.clone()] {
                    assert_eq!(*stream, part.stream);
                    builder.push(None, Fid(1), freshet_base::Rid(1), RecordKind::Update, &vec![0; *row]).unwrap();
                }
                let length = builder.seal_records();
                let offsets = builder.offsets().iter().map(|offset| at + u64::from(*offset));
                assert!(offsets.eq(plan.offsets[part.writes.clone()].iter().copied()));
                let bytes = builder.finish_part(Stamp(at), freshet_base::Term(1), BlockKind::Redo, false);
                let block = freshet_log::Block::parse(bytes, Stamp(at)).unwrap();
                assert_eq!(
                    (block.bytes().len() as u64, block.records().len()),
                    (length, part.writes.len()),
                    "one block"
                );
                at += length;
                covered = part.writes.end;
            }
            assert_eq!((at, covered), (plan.length, records.len()));
            assert!(plan.longest() <= (part + 8).max(5072), "{} for {part}", plan.longest());
        }
    }
}
