//! Whether what the log changes is there, as it was when it was changed.
//!
//! The log names the version that a change replaces. A state that the log continues has it, and has
//! nothing newer of the record. Parts of a range are replayed side by side, so a change may come
//! before the one that it follows. Then both are kept in mind, and are looked at when the range is
//! through: whichever record of a range came first has seen what was there before.

use std::collections::HashSet;

use freshet_base::{Fid, Lsn, RecordKind, Rid};
use freshet_log::RecordHeader;
use freshet_storage::{Catalog, Guard};

use crate::ReplayError;

/// What is kept in mind of a range that begins at `from`. One thread's, until all are through.
#[derive(Debug, Default)]
pub(crate) struct Doubts {
    from: Lsn,
    /// Changes of what was there before the range, and was not found.
    open: Vec<ReplayError>,
    /// What was found by records that follow others of the range.
    seen: HashSet<(Fid, Rid, Lsn)>,
}

impl Doubts {
    pub(crate) fn of(from: Lsn) -> Self {
        Self { from, ..Self::default() }
    }

    /// The record at `at` lies over the version at `there`, zero for none. `holds`: what was there
    /// before the range is known to be a state of the database.
    #[inline]
    pub(crate) fn note(&mut self, header: &RecordHeader, at: Lsn, there: Lsn, holds: bool) {
        let RecordHeader { kind, fid, rid, prev, .. } = *header;
        let prev = prev.unwrap_or_default();
        if prev == there || there == at || !holds {
            return;
        }
        if kind != RecordKind::Insert && prev < self.from {
            self.open.push(ReplayError::Missing { at, fid, rid, prev, there });
        } else {
            self.saw(header, there);
        }
    }

    /// The version at `there` was there before this record came, which another look has proven; one
    /// that the record follows may come later.
    #[inline]
    pub(crate) fn saw(&mut self, header: &RecordHeader, there: Lsn) {
        if there != Lsn::ZERO && there < self.from && header.prev != Some(there) {
            self.seen.insert((header.fid, header.rid, there));
        }
    }

    pub(crate) fn merge(&mut self, other: Self) {
        self.open.extend(other.open);
        self.seen.extend(other.seen);
    }

    /// The range is through.
    ///
    /// # Errors
    /// [`ReplayError::Missing`] for the first change of something that was not there.
    pub(crate) fn check(&self, guard: &Guard<'_>, catalog: &Catalog) -> Result<(), ReplayError> {
        let is_there = |fid, rid, prev| {
            let content = catalog.get(guard, fid).and_then(|table| table.content(guard));
            // Of a table that was dropped, nothing matters.
            self.seen.contains(&(fid, rid, prev)) || content.is_none_or(|it| it.restored(guard, rid) == Some(prev))
        };
        let missing = self.open.iter().filter_map(|doubt| match doubt {
            ReplayError::Missing { at, fid, rid, prev, .. } if !is_there(*fid, *rid, *prev) => Some((*at, doubt)),
            _ => None,
        });
        missing.min_by_key(|(at, _)| *at).map_or(Ok(()), |(_, doubt)| Err(doubt.clone()))
    }
}

#[cfg(test)]
mod tests {
    use std::{collections::HashMap, sync::Arc};

    use freshet_base::Term;
    use freshet_log::{BlockBuilder, BlockKind, Log, Persistence, PlacedRecord};
    use freshet_storage::{Catalog, Content, IndexDefinition, KeyPart, Participants, TableDefinition};

    use super::*;
    use crate::{Announce, Redo, Replay};

    const FID: Fid = Fid(7);
    /// The range begins here; what is there before lies below.
    const FROM: u64 = 1 << 16;
    const RECORDS: u64 = 12;

    /// A log from `FROM` on that changes records; most were there before: how often, and in
    /// which blocks, says the seed. Some are deleted, and their ids used again. Returns where its
    /// blocks end, too.
    fn log(seed: u64) -> (Vec<u8>, Vec<Lsn>) {
        let mut dice = seed;
        let mut roll = |limit: u64| {
            dice = dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (dice >> 33) % limit
        };
        let mut newest: HashMap<u64, (Lsn, bool)> = (0..RECORDS).map(|rid| (rid, (before(rid), true))).collect();
        let (mut builder, mut bytes, mut ends) = (BlockBuilder::new(), Vec::new(), Vec::new());
        for _ in 0..120 {
            let at = Lsn(FROM + bytes.len() as u64);
            builder.begin();
            let mut written = Vec::new();
            for _ in 0..=roll(3) {
                let rid = roll(RECORDS + 4);
                if written.contains(&rid) {
                    continue;
                }
                let (prev, lives) = newest.get(&rid).copied().unzip();
                let kind = match lives {
                    Some(true) if roll(4) == 0 => RecordKind::Delete,
                    Some(true) => RecordKind::Update,
                    _ => RecordKind::Insert,
                };
                builder.push(prev, FID, Rid(rid), kind, &rid.to_be_bytes()).unwrap();
                written.push(rid);
                newest.insert(rid, (Lsn::ZERO, kind != RecordKind::Delete));
            }
            builder.seal_records();
            let block = builder.finish(at, Term(1), BlockKind::Redo).to_vec();
            for record in freshet_log::Block::parse(&block, at).unwrap().records() {
                newest.get_mut(&record.header.rid.0).unwrap().0 = record.address;
            }
            bytes.extend(block);
            ends.push(Lsn(FROM + bytes.len() as u64));
        }
        (bytes, ends)
    }

    fn before(rid: u64) -> Lsn {
        Lsn(512 + 64 * rid)
    }

    /// The versions of some blocks were made before replay comes to them.
    struct MadeBefore;

    impl Redo for MadeBefore {
        fn has(&self, at: Lsn) -> bool {
            (at.0 / 8).is_multiple_of(2)
        }

        fn record(&mut self, _: &Guard<'_>, _: &Content, _: &PlacedRecord<'_>) -> Result<bool, ReplayError> {
            Ok(true)
        }

        fn cut(&mut self, _: &Guard<'_>, _: &Content, _: &RecordHeader, _: Lsn) {}
    }

    /// Replays `log` by `threads` on a state that has these records, with their LSNs.
    fn replayed(
        (bytes, ends): &(Vec<u8>, Vec<Lsn>),
        threads: usize,
        floor: Lsn,
        there: impl Iterator<Item = (u64, Lsn)>,
        redo: &dyn Fn() -> Box<dyn Redo>,
    ) -> Result<(), ReplayError> {
        let participants = Participants::new(8);
        let (log, mut receiver) = Log::receive(1 << 20, Persistence::None, Lsn(FROM)).unwrap();
        receiver.append(bytes).unwrap();
        let catalog = Arc::new(Catalog::new());
        let index = IndexDefinition::new("things_id", true, &[KeyPart::unsigned(0, 8)]);
        let row = Catalog::row_of(&TableDefinition::new("things", vec![index])).unwrap();
        {
            let participant = participants.join().unwrap();
            let guard = participant.pin_without_snapshot();
            catalog.enter_row(&guard, FID.record().unwrap(), &row, Lsn(8)).unwrap();
            let content = catalog.get(&guard, FID).unwrap().content(&guard).unwrap();
            for (rid, lsn) in there {
                assert!(content.restore_version(&guard, Rid(rid), lsn, &rid.to_be_bytes()));
            }
        }
        let replay = Replay::new(threads, &catalog, &participants, &log.reader(), floor, redo);
        // In two pieces: the second changes what was announced by the first.
        let (half, end) = (ends[ends.len() / 2], ends[ends.len() - 1]);
        replay.replay(Lsn(FROM), half, ends)?;
        replay.replay(half, end, ends)
    }

    #[test]
    fn a_range_that_changes_what_is_there_is_replayed_in_any_order_and_no_other() {
        let announce = || Box::new(Announce) as Box<dyn Redo>;
        for seed in 0..30 {
            let log = log(seed);
            for threads in [1, 3] {
                let all = || (0..RECORDS).map(|rid| (rid, before(rid)));
                assert_eq!(replayed(&log, threads, Lsn::ZERO, all(), &announce), Ok(()), "seed {seed}");
                // One record is missing, or older, or newer than it was.
                let wrong = seed % RECORDS;
                for lsn in [None, Some(Lsn(256)), Some(Lsn(FROM - 8))] {
                    let there = || {
                        all().filter_map(|(rid, was)| if rid == wrong { Some((rid, lsn?)) } else { Some((rid, was)) })
                    };
                    let found = replayed(&log, threads, Lsn::ZERO, there(), &announce);
                    let is_named = matches!(
                        found,
                        Err(ReplayError::Missing { rid, prev, .. }) if (rid, prev) == (Rid(wrong), before(wrong))
                    );
                    assert!(is_named, "seed {seed}, {threads} threads, {lsn:?}: {found:?}");
                    // Below the checkpoint's end there is no state that it could belie.
                    assert_eq!(
                        replayed(&log, threads, log.1[log.1.len() - 1], there(), &announce),
                        Ok(()),
                        "seed {seed}"
                    );
                }
            }
        }
    }

    /// Those that replay passes over have seen what the others follow.
    #[test]
    fn what_was_made_before_hides_nothing_from_what_comes_beside_it() {
        for seed in 0..200 {
            let all = (0..RECORDS).map(|rid| (rid, before(rid)));
            let done = replayed(&log(seed), 3, Lsn::ZERO, all, &|| Box::new(MadeBefore));
            assert_eq!(done, Ok(()), "seed {seed}");
        }
    }
}
