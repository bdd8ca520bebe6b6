//! A standby's table: sub-chains from the log, long readers, ids that are used again, what is left
//! of the dead.

use std::sync::Arc;

use freshet_base::{Lsn, RecordKind, Rid, sync::Ordering};

use super::{A, B, RID, chain, entries, live, table};
use crate::{
    array::Word,
    owner::Owners,
    reclaim::{Guard, Participant, Participants},
    table::{
        Announcement, Content, Instantiated, LoadError, ReadContext, ReadError, Reclaimed,
        scene::{FakeLog, context, see},
    },
};

/// A standby: a table, its log, and replay that has come to some address.
struct Standby {
    table: Content,
    log: FakeLog,
    owners: Owners,
    participants: Arc<Participants>,
    /// Whose life it is.
    rid: Rid,
    /// Whether replay makes versions.
    full: bool,
    records: Vec<(u64, RecordKind, Option<u64>, &'static [u8])>,
}

impl Standby {
    /// The whole life of one record id: first `a`, then `b`, then `a` again; with the row that each
    /// snapshot sees.
    fn new() -> Self {
        Self::that_applies(false)
    }

    /// One whose replay makes versions, if `full`.
    fn that_applies(full: bool) -> Self {
        use RecordKind::{Delete, Insert, Update};
        let records: Vec<(u64, RecordKind, Option<u64>, &'static [u8])> = vec![
            (10, Insert, None, b"a10"),
            (20, Update, Some(10), b"a20"),
            (30, Delete, Some(20), b"a20"),
            (40, Insert, Some(30), b"b40"),
            (50, Update, Some(40), b"b50"),
            (60, Update, Some(50), b"b60"),
            (70, Delete, Some(60), b"b60"),
            (80, Insert, Some(70), b"a80"),
            (90, Update, Some(80), b"a90"),
        ];
        let table = table();
        let owners = Owners::new(4);
        let standby =
            Self { table, log: FakeLog::new(), owners, participants: Participants::new(16), rid: RID, full, records };
        standby.append();
        standby
    }

    fn append(&self) {
        for (address, kind, prev, row) in &self.records {
            self.log.append(*address, self.rid, *kind, *prev, row);
        }
    }

    /// The same life for another record id.
    fn start_over(&mut self) {
        self.rid = Rid(self.rid.0 + 1);
        self.append();
    }

    /// Replays the record at `address`.
    fn replay(&self, guard: &Guard<'_>, address: u64) {
        self.replay_seen(guard, address, 0);
    }

    /// As [`Standby::replay`], while the read view is at `visible`.
    fn replay_seen(&self, guard: &Guard<'_>, address: u64, visible: u64) {
        let (_, kind, prev, row) = *self.records.iter().find(|record| record.0 == address).unwrap();
        if self.full {
            let context = self.context(visible, self.horizon(visible));
            let made = self.table.instantiate(guard, kind, self.rid, Lsn(address), row, &context);
            assert_ne!(made, Ok(Instantiated::Foreign));
            assert!(made.is_ok(), "{made:?}");
            self.table.trim_replayed(guard, self.rid, context.horizon);
        } else {
            let is_first = kind == RecordKind::Insert && prev.is_none();
            assert!(self.table.replay_store(self.rid, Announcement { is_first, ..Announcement::at(Lsn(address)) }));
        }
        if kind == RecordKind::Insert {
            self.table.indexes(guard).primary().tree().insert(guard, &row[..1], self.rid).unwrap();
        }
    }

    fn expected(&self, snapshot: u64) -> Option<&'static [u8]> {
        let newest = self.records.iter().rev().find(|record| record.0 < snapshot)?;
        (newest.1 != RecordKind::Delete).then_some(newest.3)
    }

    fn context(&self, snapshot: u64, horizon: u64) -> ReadContext<'_> {
        context(&self.owners, &self.log, snapshot, horizon)
    }

    /// What the announced snapshots, and readers that come at `now`, still need.
    fn horizon(&self, now: u64) -> u64 {
        self.participants.horizon(|| Lsn(now)).0
    }

    fn check(&self, guard: &Guard<'_>, snapshot: u64, horizon: u64) {
        let seen = see(&self.table, guard, self.rid, &self.context(snapshot, horizon)).unwrap();
        assert_eq!(seen, self.expected(snapshot), "at {snapshot}, trimmed at {horizon}");
    }
}

const SNAPSHOTS: [u64; 10] = [5, 15, 25, 35, 45, 55, 65, 75, 85, 95];

#[test]
fn an_id_that_was_used_again_reads_right_at_each_snapshot_in_each_order() {
    [false, true].into_iter().for_each(used_again);
}

fn used_again(full: bool) {
    let before = live();
    // Three snapshots in each order, each read twice.
    let mut standby = Standby::that_applies(full);
    let participant = standby.participants.join().unwrap();
    for first in SNAPSHOTS {
        for second in SNAPSHOTS {
            for third in SNAPSHOTS {
                standby.start_over();
                let guard = participant.pin_without_snapshot();
                for (address, ..) in &standby.records {
                    standby.replay(&guard, *address);
                }
                let horizon = first.min(second).min(third);
                for snapshot in [first, second, third, first, second, third] {
                    standby.check(&guard, snapshot, horizon);
                }
            }
        }
    }
    drop((participant, standby));
    assert_eq!(live(), before, "every version was freed with its table or its participant");
}

#[test]
fn long_readers_read_right_while_replay_goes_on_and_others_reclaim() {
    [false, true].into_iter().for_each(long_readers);
}

fn long_readers(full: bool) {
    // Readers begin at each snapshot and stay until `stays` more records were replayed.
    for stays in 0..SNAPSHOTS.len() {
        for oldest_first in [true, false] {
            let standby = Standby::that_applies(full);
            let replayer = standby.participants.join().unwrap();
            let readers: Vec<Participant> = SNAPSHOTS.iter().map(|_| standby.participants.join().unwrap()).collect();
            let mut pinned: Vec<(u64, Guard<'_>)> = Vec::new();
            let mut deleted = Vec::new();
            for (step, reader) in readers.iter().enumerate() {
                let now = SNAPSHOTS[step];
                if step > 0 {
                    let (address, kind, ..) = standby.records[step - 1];
                    standby.replay_seen(&replayer.pin_without_snapshot(), address, SNAPSHOTS[step - 1]);
                    if kind == RecordKind::Delete {
                        deleted.push(address);
                    }
                }
                pinned.retain(|(snapshot, _)| now - *snapshot <= stays as u64 * 10);
                pinned.push((now, reader.pin(|| Lsn(now)).0));
                let horizon = standby.horizon(now);
                {
                    let guard = replayer.pin_without_snapshot();
                    deleted.retain(|tombstone| {
                        let gone = *tombstone < horizon;
                        if gone {
                            let context = standby.context(now, horizon);
                            standby.table.reclaim_replayed(&guard, RID, Lsn(*tombstone), &context).unwrap();
                        }
                        !gone
                    });
                }
                let mut order: Vec<_> = pinned.iter().collect();
                if !oldest_first {
                    order.reverse();
                }
                for (snapshot, guard) in order {
                    standby.check(guard, *snapshot, horizon);
                    // By key too: the entry of what a reader sees is still there.
                    if let Some(row) = standby.expected(*snapshot) {
                        assert_eq!(entries(&standby.table, guard, &row[..1]), [RID], "at {snapshot}, now {now}");
                    }
                }
            }
            drop(pinned);
            let guard = replayer.pin_without_snapshot();
            for tombstone in deleted {
                let context = standby.context(95, 95);
                standby.table.reclaim_replayed(&guard, RID, Lsn(tombstone), &context).unwrap();
            }
            assert_eq!((entries(&standby.table, &guard, A), entries(&standby.table, &guard, B)), (vec![RID], vec![]));
        }
    }
}

#[test]
fn nothing_at_or_above_the_limit_is_ever_made_into_a_version() {
    for limit in (1..=101).step_by(5) {
        let standby = Standby::new();
        let participant = standby.participants.join().unwrap();
        let guard = participant.pin_without_snapshot();
        for (address, ..) in &standby.records {
            standby.replay(&guard, *address);
        }
        standby.log.limit.store(limit, Ordering::Release);
        for snapshot in SNAPSHOTS.into_iter().filter(|snapshot| *snapshot <= limit) {
            standby.check(&guard, snapshot, 0);
            assert!(chain(&standby.table, RID).0.iter().all(|lsn| *lsn < limit), "{limit}");
        }
        standby.log.limit.store(u64::MAX, Ordering::Release);
        for snapshot in SNAPSHOTS {
            standby.check(&guard, snapshot, 0);
        }
    }
}

#[test]
fn what_an_older_reader_needs_stays_in_memory() {
    let standby = Standby::new();
    let (old, new) = (standby.participants.join().unwrap(), standby.participants.join().unwrap());
    let (guard, _) = old.pin(|| Lsn(55));
    for (address, ..) in &standby.records[..5] {
        standby.replay(&guard, *address);
    }
    standby.check(&guard, 55, 0);
    assert_eq!(chain(&standby.table, RID), (vec![50], Some(Lsn(40))));
    for (address, ..) in &standby.records[5..] {
        standby.replay(&guard, *address);
    }
    // The new reader needs the newest only, but the log may not have what the old one needs any
    // more.
    let newer = new.pin(|| Lsn(95)).0;
    standby.check(&newer, 95, 0);
    assert_eq!(chain(&standby.table, RID).0, [90, 80, 70, 60, 50]);
    assert_eq!(new.waiting(), 0);
    standby.check(&guard, 55, 0);
}

#[test]
fn a_detached_chain_goes_when_its_readers_have() {
    let standby = Standby::new();
    let (old, new) = (standby.participants.join().unwrap(), standby.participants.join().unwrap());
    let before = live();
    // It holds memory, but no versions for their own sake.
    let guard = old.pin_without_snapshot();
    for (address, ..) in &standby.records[..5] {
        standby.replay(&guard, *address);
    }
    standby.check(&guard, 55, 0);
    assert_eq!(chain(&standby.table, RID), (vec![50], Some(Lsn(40))));
    for (address, ..) in &standby.records[5..] {
        standby.replay(&guard, *address);
    }
    // Nobody needs more than the newest, so what is between it and the old chain stays in the log.
    let newer = new.pin(|| Lsn(95)).0;
    standby.check(&newer, 95, 0);
    assert_eq!(chain(&standby.table, RID), (vec![90], Some(Lsn(80))));
    assert_eq!((new.waiting(), live() - before), (1, 2));
    // Who wants more gets it from the log.
    standby.check(&guard, 55, 0);
    assert_eq!(chain(&standby.table, RID).0, [90, 80, 70, 60, 50]);
    drop(newer);
    new.collect();
    assert_eq!(new.waiting(), 1, "somebody may hold it");
    drop(guard);
    new.collect();
    assert_eq!((new.waiting(), live() - before), (0, 5));
}

#[test]
fn a_hot_record_costs_a_reader_what_it_needs_and_memory_stays_bounded() {
    let standby = Standby::new();
    let (rid, count) = (Rid(1), 5000);
    for number in 1..=count {
        let (kind, prev) = match number {
            1 => (RecordKind::Insert, None),
            _ => (RecordKind::Update, Some((number - 1) * 10)),
        };
        standby.log.append(number * 10, rid, kind, prev, format!("h{number}").as_bytes());
    }
    let participant = standby.participants.join().unwrap();
    let check = |snapshot: u64, horizon| {
        let guard = participant.pin_without_snapshot();
        let row = see(&standby.table, &guard, rid, &standby.context(snapshot, horizon)).unwrap().map(<[u8]>::to_vec);
        assert_eq!(row, Some(format!("h{}", snapshot / 10).into_bytes()));
    };
    let before = live();
    assert!(standby.table.replay_store(rid, Announcement::at(Lsn(count * 10))));
    let loads = FakeLog::loads();
    check(count * 10 + 5, 0);
    assert_eq!(FakeLog::loads() - loads, 1, "the newest version alone");
    // A reader that began long ago needs all of them; later ones do not.
    check(15, 0);
    assert_eq!(chain(&standby.table, rid).0.len() as u64, count);
    for number in count + 1..2 * count {
        standby.log.append(
            number * 10,
            rid,
            RecordKind::Update,
            Some((number - 1) * 10),
            format!("h{number}").as_bytes(),
        );
        assert!(standby.table.replay_store(rid, Announcement::at(Lsn(number * 10))));
        check(number * 10 + 5, number * 10 + 5);
        participant.collect();
        assert!(live() - before <= 2, "{} versions", live() - before);
    }
    assert_eq!(participant.waiting(), 0);
}

/// A reader on a standby drops old versions, but what becomes of a deleted record's index entries
/// is not for it to say: replay may have given the id, and the key, to another record.
#[test]
fn a_reader_that_trims_leaves_indexes_alone() {
    let standby = Standby::new();
    let participant = standby.participants.join().unwrap();
    let guard = participant.pin_without_snapshot();
    standby.replay(&guard, 10);
    standby.replay(&guard, 20);
    standby.check(&guard, 25, 0);
    standby.replay(&guard, 30);
    standby.log.append(35, RID, RecordKind::Insert, Some(30), b"a35");
    standby.check(&guard, 31, 31);
    assert_eq!((chain(&standby.table, RID).0, entries(&standby.table, &guard, A)), (vec![30], vec![RID]));
    // The same when the id has its new record already.
    let standby = Standby::new();
    standby.replay(&guard, 10);
    standby.replay(&guard, 20);
    standby.check(&guard, 25, 0);
    standby.log.append(35, RID, RecordKind::Insert, Some(30), b"a35");
    assert!(standby.table.replay_store(RID, Announcement::at(Lsn(35))));
    standby.log.limit.store(33, Ordering::Release);
    standby.check(&guard, 31, 31);
    assert_eq!(chain(&standby.table, RID).0, [30]);
    standby.log.limit.store(u64::MAX, Ordering::Release);
    let seen = see(&standby.table, &guard, RID, &standby.context(45, 31)).unwrap();
    assert_eq!((seen, entries(&standby.table, &guard, A)), (Some(&b"a35"[..]), vec![RID]));
}

/// A node that was a standby and is the primary now: an inserter looks at the records under its key
/// while it holds the latch of the key's leaf. What it loads then must not make it go for that
/// latch again.
#[test]
fn an_inserter_under_a_latch_may_load_a_tombstone() {
    let standby = Standby::new();
    let participant = standby.participants.join().unwrap();
    let guard = participant.pin_without_snapshot();
    standby.replay(&guard, 10);
    standby.replay(&guard, 20);
    standby.check(&guard, 25, 0);
    standby.replay(&guard, 30);
    let context = standby.context(1000, 1000);
    let admitted = standby.table.indexes(&guard).primary().tree().insert_admitted(&guard, A, Rid(7), |other| {
        assert_eq!(standby.table.newest(&guard, other, &context, |row| row.starts_with(A)), Ok(None));
        Ok::<(), ()>(())
    });
    assert_eq!(admitted, Ok(true));
}

/// Replay gives the id and the key away while the remains of the old record are being taken away.
#[test]
fn reclaiming_stops_before_a_record_that_replay_announces_meanwhile() {
    for (full, (announced_before, at)) in
        [false, true].into_iter().flat_map(|full| [(30, 30), (70, 70), (70, 40)].map(|times| (full, times)))
    {
        let standby = Arc::new(Standby::that_applies(full));
        let participant = standby.participants.join().unwrap();
        let guard = participant.pin_without_snapshot();
        for (address, ..) in standby.records.iter().filter(|record| record.0 <= announced_before) {
            standby.replay(&guard, *address);
        }
        let other = Arc::downgrade(&standby);
        let mut once = false;
        FakeLog::before_load(move |address| {
            if address.0 == at
                && !std::mem::replace(&mut once, true)
                && let Some(standby) = other.upgrade()
            {
                let replayer = standby.participants.join().unwrap();
                standby.replay(&replayer.pin_without_snapshot(), 80);
            }
        });
        let context = standby.context(75, 75);
        standby.table.reclaim_replayed(&guard, RID, Lsn(30), &context).unwrap();
        FakeLog::before_load(|_| {});
        assert_eq!(standby.table.newest_known(&guard, RID), Some(Lsn(80)));
        assert_eq!(entries(&standby.table, &guard, A), [RID], "the new record's entry, {announced_before}, {at}");
    }
}

#[test]
fn a_cut_takes_announcements_back() {
    [false, true].into_iter().for_each(cut_takes_back);
}

fn cut_takes_back(full: bool) {
    let before = live();
    let standby = Standby::that_applies(full);
    let participant = standby.participants.join().unwrap();
    let guard = participant.pin_without_snapshot();
    for (address, ..) in &standby.records {
        standby.replay(&guard, *address);
    }
    standby.log.limit.store(45, Ordering::Release);
    standby.check(&guard, 45, 0);
    for (address, _, prev, _) in standby.records.iter().rev().filter(|record| record.0 >= 45) {
        standby.table.replay_cut(RID, RecordKind::Update, Lsn(*address), prev.map(Lsn));
        standby.table.instantiate_cut(&guard, RID, Lsn(*address));
    }
    standby.log.cut(45);
    assert_eq!(standby.table.newest_known(&guard, RID), Some(Lsn(40)));
    standby.log.append(50, RID, RecordKind::Delete, Some(40), b"b40");
    if full {
        let context = standby.context(45, 0);
        let made = standby.table.instantiate(&guard, RecordKind::Delete, RID, Lsn(50), b"b40", &context);
        assert_eq!(made, Ok(Instantiated::Beside(Lsn(50))));
    } else {
        assert!(standby.table.replay_store(RID, Announcement::at(Lsn(50))));
    }
    standby.log.limit.store(u64::MAX, Ordering::Release);
    assert_eq!(see(&standby.table, &guard, RID, &standby.context(95, 0)).unwrap(), None);
    assert_eq!(see(&standby.table, &guard, RID, &standby.context(45, 0)).unwrap(), Some(&b"b40"[..]));
    drop(guard);
    drop((participant, standby));
    assert_eq!(live(), before);
}

/// Before a record's first version there is nothing: a thread that reads a table while it is being
/// loaded does not ask the log about each of the new records.
#[test]
fn below_a_first_version_nobody_asks_the_log() {
    let standby = Standby::new();
    let participant = standby.participants.join().unwrap();
    let guard = participant.pin_without_snapshot();
    standby.replay(&guard, 10);
    let loads = FakeLog::loads();
    standby.check(&guard, 5, 0);
    standby.check(&guard, 10, 0);
    assert_eq!(FakeLog::loads(), loads);
    standby.check(&guard, 15, 0);
    assert_eq!(FakeLog::loads(), loads + 1);
    // Taken back, and said again: still the first. What comes later is not.
    standby.table.replay_cut(RID, RecordKind::Update, Lsn(10), None);
    assert_eq!(standby.table.replayed(RID), None);
    standby.replay(&guard, 10);
    standby.replay(&guard, 20);
    assert_eq!(standby.table.replayed(RID), Some(Lsn(20)));
    standby.check(&guard, 15, 0);
    standby.check(&guard, 25, 0);
}

/// An insertion replaces nothing but a deletion: who sees the deletion need not look for it in a
/// log that may not reach back so far.
#[test]
fn nobody_looks_for_the_tombstone_below_an_insertion() {
    for (inserted, tombstone) in [(40, 30), (80, 70)] {
        for limit in [inserted, u64::MAX] {
            let standby = Standby::new();
            let participant = standby.participants.join().unwrap();
            let guard = participant.pin_without_snapshot();
            standby.replay(&guard, inserted);
            standby.replay(&guard, inserted + 10);
            standby.log.limit.store(limit, Ordering::Release);
            standby.log.lose(tombstone, RID);
            standby.check(&guard, tombstone + 5, 0);
            standby.log.limit.store(u64::MAX, Ordering::Release);
            standby.check(&guard, inserted + 5, 0);
            standby.check(&guard, tombstone + 5, 0);
            // A thread that does not see it must look.
            let missing = Err(ReadError::Load(LoadError::Mismatch { address: Lsn(tombstone) }));
            let context = standby.context(tombstone - 5, 0);
            assert_eq!(see(&standby.table, &guard, RID, &context), missing);
        }
    }
}

#[test]
fn what_is_left_of_the_dead_is_a_marked_word() {
    [false, true].into_iter().for_each(left_of_the_dead);
}

fn left_of_the_dead(full: bool) {
    let before = live();
    let standby = Standby::that_applies(full);
    let participant = standby.participants.join().unwrap();
    let guard = participant.pin_without_snapshot();
    let gone = || Word(standby.table.data.get(RID).unwrap().load(Ordering::Acquire)).as_gone();
    for (address, ..) in &standby.records[..3] {
        standby.replay(&guard, *address);
    }
    standby.check(&guard, 25, 0);
    standby.table.reclaim_replayed(&guard, RID, Lsn(30), &standby.context(35, 35)).unwrap();
    assert_eq!((gone(), entries(&standby.table, &guard, A)), (Some(Lsn(30)), vec![]));
    let loads = FakeLog::loads();
    standby.check(&guard, 35, 35);
    assert_eq!(FakeLog::loads(), loads, "nobody looks for it again");
    // The next record is put on top, and when it is gone too, the word says that.
    for (address, ..) in &standby.records[3..7] {
        standby.replay(&guard, *address);
    }
    standby.check(&guard, 45, 35);
    standby.check(&guard, 35, 35);
    assert_eq!(gone(), None);
    standby.table.reclaim_replayed(&guard, RID, Lsn(70), &standby.context(75, 75)).unwrap();
    assert_eq!(gone(), Some(Lsn(70)));
    standby.table.reclaim_replayed(&guard, RID, Lsn(30), &standby.context(75, 75)).unwrap();
    assert_eq!(gone(), Some(Lsn(70)), "what comes late changes nothing");
    // On a node that is the primary now, its id is free, and with the worker that takes it.
    let mut taken = Vec::new();
    standby.table.take_reclaimed(10, &mut taken);
    assert_eq!(taken, [Reclaimed { rid: RID, tombstone: Some(Lsn(70)) }]);
    assert_eq!((gone(), standby.table.replayed(RID)), (None, None));
    standby.table.reclaim_replayed(&guard, RID, Lsn(70), &standby.context(75, 75)).unwrap();
    assert_eq!(gone(), None);
    standby.check(&guard, 75, 75);
    participant.collect();
    drop(guard);
    drop((participant, standby));
    assert_eq!(live(), before);
}

#[test]
fn an_id_that_replay_has_given_to_a_record_is_not_free() {
    [false, true].into_iter().for_each(given_to_a_record);
}

fn given_to_a_record(full: bool) {
    let standby = Standby::that_applies(full);
    let participant = standby.participants.join().unwrap();
    let guard = participant.pin_without_snapshot();
    for (address, ..) in &standby.records[..3] {
        standby.replay(&guard, *address);
    }
    standby.table.reclaim_replayed(&guard, RID, Lsn(30), &standby.context(35, 35)).unwrap();
    standby.replay(&guard, 40);
    let mut taken = Vec::new();
    standby.table.take_reclaimed(10, &mut taken);
    assert_eq!(taken, []);
    standby.check(&guard, 45, 35);
    standby.check(&guard, 35, 35);
}

#[test]
fn a_log_that_does_not_hold_the_record_is_an_error_and_leaks_nothing() {
    let standby = Standby::new();
    let participant = standby.participants.join().unwrap();
    let guard = participant.pin_without_snapshot();
    for (address, ..) in &standby.records {
        standby.replay(&guard, *address);
    }
    standby.log.lose(50, RID);
    let before = live();
    let missing = Err(ReadError::Load(LoadError::Mismatch { address: Lsn(50) }));
    assert_eq!(see(&standby.table, &guard, RID, &standby.context(45, 0)), missing);
    assert_eq!((live(), chain(&standby.table, RID).0), (before, vec![]));
    standby.check(&guard, 95, 0);
    assert_eq!(see(&standby.table, &guard, RID, &standby.context(45, 0)), missing);
}

/// Full replay: each order in which the records can come, twice each, gives the same chain.
#[test]
fn full_replay_makes_the_same_chain_in_each_order() {
    let before = live();
    let mut standby = Standby::that_applies(true);
    standby.records.truncate(6);
    let participant = standby.participants.join().unwrap();
    let addresses: Vec<u64> = standby.records.iter().map(|record| record.0).collect();
    let mut orders = vec![vec![]];
    for address in &addresses {
        let insert = |order: &Vec<u64>, place: usize| {
            let mut order = order.clone();
            order.insert(place, *address);
            order
        };
        orders = orders.iter().flat_map(|order| (0..=order.len()).map(move |place| insert(order, place))).collect();
    }
    assert_eq!(orders.len(), 720);
    for order in orders {
        standby.start_over();
        let guard = participant.pin_without_snapshot();
        for address in order.iter().chain(&order) {
            standby.replay(&guard, *address);
        }
        assert_eq!(chain(&standby.table, standby.rid), (vec![60, 50, 40, 30, 20, 10], None), "{order:?}");
        for snapshot in &SNAPSHOTS[..7] {
            standby.check(&guard, *snapshot, 0);
        }
        standby.table.trim_replayed(&guard, standby.rid, Lsn(41));
        assert_eq!(chain(&standby.table, standby.rid).0, [60, 50, 40]);
    }
    drop((participant, standby));
    assert_eq!(live(), before);
}

/// Full replay after a restart: what that has announced comes first, whether it is visible or not.
#[test]
fn full_replay_goes_on_from_what_a_restart_has_announced() {
    for announced in [20, 30, 40, 60] {
        for visible in [15, 25, 35, 45, 55].into_iter().filter(|visible| *visible < announced + 5) {
            let standby = Standby::that_applies(true);
            let participant = standby.participants.join().unwrap();
            let guard = participant.pin_without_snapshot();
            assert!(standby.table.replay_store(RID, Announcement::at(Lsn(announced))));
            standby.table.indexes(&guard).primary().tree().insert(&guard, A, RID).unwrap();
            standby.log.limit.store(visible, Ordering::Release);
            standby.check(&guard, visible, visible);
            // Replay reads the log beyond what readers may see.
            standby.log.limit.store(u64::MAX, Ordering::Release);
            for (address, ..) in standby.records.iter().filter(|record| record.0 > announced) {
                standby.replay_seen(&guard, *address, visible);
            }
            for snapshot in SNAPSHOTS.into_iter().filter(|snapshot| *snapshot >= visible) {
                standby.check(&guard, snapshot, visible);
            }
            for (address, _, prev, _) in standby.records.iter().rev().filter(|record| record.0 >= visible) {
                standby.table.replay_cut(RID, RecordKind::Update, Lsn(*address), prev.map(Lsn));
                standby.table.instantiate_cut(&guard, RID, Lsn(*address));
            }
            let left = standby.records.iter().rev().map(|record| Lsn(record.0)).find(|it| it.0 < visible);
            assert_eq!(standby.table.newest_known(&guard, RID), left, "announced {announced}, visible {visible}");
            standby.check(&guard, visible, visible);
        }
    }
}

/// Threads replay shares of a hot record's life in different orders, beside readers of what was
/// there before.
#[test]
fn full_replay_by_several_threads_keeps_chains_in_order() {
    const COUNT: u64 = 4000;
    let standby = Standby::that_applies(true);
    let (rid, threads) = (Rid(3), 4);
    let (table, owners, log) = (&standby.table, &standby.owners, &standby.log);
    let instantiate = |guard: &Guard<'_>, number: u64| {
        let kind = if number == 1 { RecordKind::Insert } else { RecordKind::Update };
        let row = format!("h{number}");
        let made = table.instantiate(guard, kind, rid, Lsn(number * 10), row.as_bytes(), &context(owners, log, 15, 15));
        assert!(made.is_ok());
    };
    {
        let participant = standby.participants.join().unwrap();
        instantiate(&participant.pin_without_snapshot(), 1);
    }
    std::thread::scope(|scope| {
        for thread in 0..threads {
            let (instantiate, participant) = (&instantiate, standby.participants.join().unwrap());
            scope.spawn(move || {
                let mut numbers: Vec<u64> = (2..=COUNT).filter(|number| number % threads == thread).collect();
                if thread % 2 == 0 {
                    // Backwards in stretches, so that many places are not at the top.
                    numbers.chunks_mut(50).for_each(<[u64]>::reverse);
                }
                for number in numbers {
                    let guard = participant.pin_without_snapshot();
                    instantiate(&guard, number);
                    assert_eq!(see(table, &guard, rid, &context(owners, log, 15, 15)).unwrap(), Some(&b"h1"[..]));
                }
            });
        }
    });
    let expected: Vec<u64> = (1..=COUNT).rev().map(|number| number * 10).collect();
    assert_eq!(chain(table, rid).0, expected);
}
