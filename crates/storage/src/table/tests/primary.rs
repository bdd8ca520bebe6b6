//! A primary's table: uncommitted versions, conflicts, trimming.

use std::sync::Arc;

use freshet_base::{Lsn, RecordKind, sync::Ordering};

use super::{A, RID, chain, entries, live, table};
use crate::{
    array::Word,
    owner::{Owner, Owners},
    reclaim::{Guard, Participants},
    table::{
        Change, Content, InstallError, Installed, Newest, ReadContext, Reclaimed,
        read::State,
        scene::{FakeLog, context, see},
    },
    version::Version,
};

/// A primary without a log.
struct Primary {
    table: Content,
    log: FakeLog,
    owners: Owners,
    participants: Arc<Participants>,
}

impl Primary {
    fn new() -> Self {
        Self { table: table(), log: FakeLog::new(), owners: Owners::new(4), participants: Participants::new(4) }
    }

    fn context(&self, snapshot: u64, me: Option<Owner>) -> ReadContext<'_> {
        ReadContext { me, ..context(&self.owners, &self.log, snapshot, 0) }
    }

    fn commit(&self, owner: Owner, lsn: u64, installed: Installed) {
        self.owners.committing(owner);
        self.owners.lsn(owner, Lsn(lsn));
        self.owners.decided(owner, true);
        installed.commit(Lsn(lsn));
    }

    fn insert(&self, guard: &Guard<'_>, lsn: u64, row: &[u8]) {
        let owner = self.owners.begin(0);
        let installed = self.table.insert(Reclaimed { rid: RID, tombstone: None }, owner, row).unwrap();
        self.table.indexes(guard).primary().tree().insert(guard, &row[..1], RID).unwrap();
        self.commit(owner, lsn, installed);
    }

    fn write(&self, guard: &Guard<'_>, lsn: u64, row: Option<&[u8]>) {
        let owner = self.owners.begin(0);
        let context = self.context(lsn, Some(owner));
        let installed = self.table.install(guard, RID, owner, row.map_or(Change::Gone, Change::Row), &context).unwrap();
        self.commit(owner, lsn, installed);
    }
}

#[test]
fn a_writer_meets_who_was_first() {
    let primary = Primary::new();
    let participant = primary.participants.join().unwrap();
    let guard = participant.pin_without_snapshot();
    let (one, other) = (primary.owners.begin(1), primary.owners.begin(2));
    let late = primary.context(15, Some(other));
    assert_eq!(primary.table.install(&guard, RID, other, Change::Row(A), &late).unwrap_err(), InstallError::Gone);
    primary.insert(&guard, 10, b"a10");
    primary.write(&guard, 20, Some(b"a20"));
    assert_eq!(primary.table.install(&guard, RID, other, Change::Row(A), &late).unwrap_err(), InstallError::Conflict);
    let installed = primary.table.install(&guard, RID, one, Change::Gone, &primary.context(25, Some(one))).unwrap();
    assert_eq!((installed.kind(), installed.prev(), installed.row()), (RecordKind::Delete, Some(Lsn(20)), &b""[..]));
    assert_eq!(installed.logged_row(&guard), b"a20");
    let now = primary.context(25, Some(other));
    assert_eq!(primary.table.install(&guard, RID, other, Change::Row(A), &now).unwrap_err(), InstallError::Conflict);
    let newest = |context| primary.table.newest(&guard, RID, &context, |row| row.starts_with(A)).unwrap();
    assert_eq!(newest(primary.context(25, Some(other))), Some(Newest::Contested));
    assert_eq!(newest(primary.context(25, Some(one))), None, "its own deletion frees the key");
    primary.table.roll_back(&guard, installed);
    assert_eq!(newest(primary.context(25, Some(other))), Some(Newest::Committed(Some(Lsn(20)))));
    assert_eq!(newest(primary.context(15, Some(other))), Some(Newest::CommittedSince(Lsn(20))));
    primary.write(&guard, 30, None);
    assert_eq!(newest(primary.context(25, Some(other))), Some(Newest::Contested), "deleted since the snapshot");
    assert_eq!(newest(primary.context(35, Some(other))), None);
    let gone = primary.context(35, Some(other));
    assert_eq!(primary.table.install(&guard, RID, other, Change::Row(A), &gone).unwrap_err(), InstallError::Gone);
    for (snapshot, row) in [(5, None), (15, Some(&b"a10"[..])), (25, Some(b"a20")), (35, None)] {
        assert_eq!(see(&primary.table, &guard, RID, &primary.context(snapshot, None)).unwrap(), row);
    }
    let changed = |from, to| {
        let context = primary.context(from, Some(other));
        primary.table.changed_before(&guard, RID, Lsn(to), &context, |_| true).unwrap()
    };
    assert_eq!(
        [changed(15, 20), changed(15, 21), changed(25, 30), changed(25, 31), changed(31, 99)],
        [false, true, false, true, false]
    );
    let shown = |counts: &dyn Fn(Lsn) -> bool| {
        let (context, mut shown) = (primary.context(15, Some(other)), Vec::new());
        let counts = |lsn| {
            shown.push(lsn);
            counts(lsn)
        };
        let changed = primary.table.changed_before(&guard, RID, Lsn(99), &context, counts).unwrap();
        (changed, shown)
    };
    assert_eq!(shown(&|_| false), (false, vec![Lsn(30), Lsn(20)]));
    assert_eq!(shown(&|lsn| lsn > Lsn(20)), (true, vec![Lsn(30)]));
}

/// A thread that still holds a version that its transaction has replaced gets past it when that
/// transaction is over.
#[test]
fn a_replaced_version_is_given_up() {
    let primary = Primary::new();
    let participant = primary.participants.join().unwrap();
    let guard = participant.pin_without_snapshot();
    let owner = primary.owners.begin(0);
    let mut installed = primary.table.insert(Reclaimed { rid: RID, tombstone: None }, owner, b"a1").unwrap();
    let held = Word(primary.table.data.get(RID).unwrap().load(Ordering::Acquire)).as_pointer().unwrap();
    primary.table.replace(&guard, &mut installed, owner, Change::Row(b"a2"));
    primary.commit(owner, 10, installed);
    primary.owners.begin(0);
    // SAFETY: reached under the guard, which is still held.
    let state = unsafe { Content::state(held, None, &primary.owners) };
    assert!(matches!(state, State::Aborted));
    assert_eq!(see(&primary.table, &guard, RID, &primary.context(11, None)).unwrap(), Some(&b"a2"[..]));
    // SAFETY: as above.
    assert_eq!(unsafe { Version::row(held) }, Some(&b"a1"[..]), "its row stays for the rest of the pin");
}

#[test]
fn trimming_frees_what_no_snapshot_sees_and_then_the_record() {
    let before = live();
    let primary = Primary::new();
    let participant = primary.participants.join().unwrap();
    {
        let guard = participant.pin_without_snapshot();
        primary.insert(&guard, 10, b"a10");
        primary.write(&guard, 20, Some(b"a20"));
        primary.write(&guard, 30, Some(b"a30"));
        primary.write(&guard, 40, None);
        assert_eq!(primary.table.trim(&guard, RID, Lsn(20)), None);
        assert_eq!(chain(&primary.table, RID).0, [40, 30, 20, 10], "a snapshot at 20 sees 10");
        assert_eq!(primary.table.trim(&guard, RID, Lsn(31)), None);
        assert_eq!(chain(&primary.table, RID).0, [40, 30]);
        assert_eq!(primary.table.trim(&guard, RID, Lsn(40)), None);
        assert_eq!(entries(&primary.table, &guard, A), [RID]);
        let reclaimed = primary.table.trim(&guard, RID, Lsn(41));
        assert_eq!(reclaimed, Some(Reclaimed { rid: RID, tombstone: Some(Lsn(40)) }));
        assert_eq!((chain(&primary.table, RID).0, entries(&primary.table, &guard, A)), (vec![], vec![]));
        assert_eq!(primary.table.trim(&guard, RID, Lsn(99)), None, "once");
    }
    participant.collect();
    assert_eq!((participant.waiting(), live()), (0, before));
}

#[test]
fn memory_does_not_grow_with_updates_roll_backs_and_replacements() {
    let primary = Primary::new();
    let participant = primary.participants.join().unwrap();
    primary.insert(&participant.pin_without_snapshot(), 10, b"a");
    let before = live();
    for lsn in 11..3000 {
        let guard = participant.pin_without_snapshot();
        let owner = primary.owners.begin(1);
        let context = primary.context(lsn, Some(owner));
        let mut installed = primary.table.install(&guard, RID, owner, Change::Row(b"ab"), &context).unwrap();
        primary.table.replace(&guard, &mut installed, owner, Change::Row(b"abc"));
        if lsn % 2 == 0 {
            primary.owners.decided(owner, false);
            primary.table.roll_back(&guard, installed);
        } else {
            primary.commit(owner, lsn, installed);
            assert_eq!(primary.table.trim(&guard, RID, Lsn(lsn)), None);
        }
        drop(guard);
        // Two batches of garbage: one that fills, one that waits for this thread's own pin.
        assert!(participant.waiting() <= 140 && live() - before <= 142, "{} and {}", participant.waiting(), live());
    }
}
