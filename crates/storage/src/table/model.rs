//! Models of the indirection word and of chains: install against readers and roll-back, trimming
//! against readers, sub-chains installed by two readers while replay continues, and replay taken
//! back.
//!
//! Tables are made without indexes here, which have models of their own.

use freshet_base::{
    Fid, Lsn, RecordKind, Rid,
    sync::{Arc, AtomicU64, Ordering, thread},
};

use super::{
    Announcement, Change, Content, IndexList, Newest, ReadError, Reclaimed,
    free::FreeIds,
    scene::{FakeLog, context, see},
};
use crate::{
    array::IndirectionArray,
    owner::Owners,
    reclaim::{Participant, Participants},
};

const RID: Rid = Rid(0);

/// Everything that threads share.
struct Scene {
    table: Content,
    log: FakeLog,
    owners: Owners,
    participants: std::sync::Arc<Participants>,
    /// The end of the virtual log.
    end: AtomicU64,
}

impl Scene {
    fn new() -> Arc<Self> {
        let participants = Participants::new(3);
        Arc::new(Self {
            table: Content {
                fid: Fid(1),
                name: "bare".into(),
                data: IndirectionArray::new(),
                replay: IndirectionArray::of_announcements(),
                indexes: IndexList::of(Vec::new(), Lsn::ZERO).publish(),
                next_rid: AtomicU64::new(0),
                free: FreeIds::default(),
                leftovers: std::sync::atomic::AtomicBool::new(false),
                counted: AtomicU64::new(u64::MAX),
            },
            log: FakeLog::new(),
            owners: Owners::new(3),
            participants,
            end: AtomicU64::new(8),
        })
    }

    /// With one committed version, `first`.
    fn with_record() -> Arc<Self> {
        let scene = Self::new();
        let owner = scene.owners.begin(0);
        let place = Reclaimed { rid: RID, tombstone: None };
        let installed = scene.table.insert(place, owner, b"first").unwrap();
        scene.commit(owner, [installed]);
        scene
    }

    /// A standby whose replay has announced nothing yet; its log holds versions at 10, 20 and 30.
    fn standby() -> Arc<Self> {
        let scene = Self::new();
        scene.log.append(10, RID, RecordKind::Insert, None, b"ten");
        scene.log.append(20, RID, RecordKind::Update, Some(10), b"twenty");
        scene.log.append(30, RID, RecordKind::Update, Some(20), b"thirty");
        scene
    }

    fn commit(&self, owner: crate::Owner, installed: impl IntoIterator<Item = super::Installed>) -> Lsn {
        self.owners.committing(owner);
        let lsn = Lsn(self.end.fetch_add(8, Ordering::SeqCst));
        self.owners.lsn(owner, lsn);
        self.owners.decided(owner, true);
        for installed in installed {
            installed.commit(lsn);
        }
        lsn
    }

    fn pin<'p>(&self, participant: &'p Participant) -> (crate::Guard<'p>, Lsn) {
        participant.pin(|| Lsn(self.end.load(Ordering::SeqCst)))
    }
}

/// All interleavings with few enough preemptions to be done soon.
fn explore(preemptions: usize, model: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.check(model);
}

/// A reader sees a writer's version just when the writer's LSN is below its snapshot, whole, and
/// the one before otherwise.
#[test]
fn a_reader_sees_a_commit_or_what_was_before() {
    explore(3, || {
        let scene = Scene::with_record();
        let writer = {
            let scene = Arc::clone(&scene);
            thread::spawn(move || {
                let participant = scene.participants.join().unwrap();
                let (guard, snapshot) = scene.pin(&participant);
                let owner = scene.owners.begin(1);
                let context = context(&scene.owners, &scene.log, snapshot.0, 0);
                let installed = scene.table.install(&guard, RID, owner, Change::Row(b"second"), &context).unwrap();
                scene.commit(owner, [installed])
            })
        };
        let seen = {
            let participant = scene.participants.join().unwrap();
            let (guard, snapshot) = scene.pin(&participant);
            let context = context(&scene.owners, &scene.log, snapshot.0, 0);
            match see(&scene.table, &guard, RID, &context) {
                Ok(row) => Some((snapshot, row.map(<[u8]>::to_vec))),
                Err(error) => {
                    assert_eq!(error, ReadError::Stalled);
                    None
                }
            }
        };
        let lsn = writer.join().unwrap();
        if let Some((snapshot, row)) = seen {
            assert_eq!(row.as_deref(), Some(if lsn < snapshot { &b"second"[..] } else { b"first" }));
        }
    });
}

/// Whatever a transaction does and takes back, a reader sees nothing of it, and what it reads is
/// alive.
#[test]
fn a_reader_sees_nothing_of_a_roll_back() {
    explore(3, || {
        let scene = Scene::with_record();
        let writer = {
            let scene = Arc::clone(&scene);
            thread::spawn(move || {
                let participant = scene.participants.join().unwrap();
                {
                    let (guard, snapshot) = scene.pin(&participant);
                    let owner = scene.owners.begin(1);
                    let context = context(&scene.owners, &scene.log, snapshot.0, 0);
                    let installed = scene.table.install(&guard, RID, owner, Change::Gone, &context).unwrap();
                    scene.owners.decided(owner, false);
                    scene.table.roll_back(&guard, installed);
                }
                participant.collect();
            })
        };
        {
            let participant = scene.participants.join().unwrap();
            let (guard, snapshot) = scene.pin(&participant);
            let context = context(&scene.owners, &scene.log, snapshot.0, 0);
            assert_eq!(see(&scene.table, &guard, RID, &context).unwrap(), Some(&b"first"[..]));
        }
        writer.join().unwrap();
    });
}

/// An own version that is replaced stays its transaction's to others, and a thread that holds it
/// gets past it also when that transaction is long over. (Else: a rival takes the key for free, or
/// looks for ever.)
#[test]
fn a_replaced_version_stands_for_its_replacement() {
    explore(3, || {
        let scene = Scene::new();
        let owner = scene.owners.begin(0);
        let place = Reclaimed { rid: RID, tombstone: None };
        let mut installed = scene.table.insert(place, owner, b"first").unwrap();
        let writer = {
            let scene = Arc::clone(&scene);
            thread::spawn(move || {
                let participant = scene.participants.join().unwrap();
                let guard = participant.pin_without_snapshot();
                scene.table.replace(&guard, &mut installed, owner, Change::Row(b"second"));
                let lsn = scene.commit(owner, [installed]);
                // The worker continues.
                scene.owners.begin(0);
                lsn
            })
        };
        let seen = {
            let participant = scene.participants.join().unwrap();
            let (guard, snapshot) = scene.pin(&participant);
            let context = context(&scene.owners, &scene.log, snapshot.0, 0);
            let newest = scene.table.newest(&guard, RID, &context, |_| true);
            assert!(
                matches!(
                    newest,
                    Ok(Some(Newest::Contested | Newest::CommittedSince(_) | Newest::Committed(_)))
                        | Err(ReadError::Stalled)
                ),
                "{newest:?}"
            );
            match see(&scene.table, &guard, RID, &context) {
                Ok(row) => Some((snapshot, row.map(<[u8]>::to_vec))),
                Err(error) => {
                    assert_eq!(error, ReadError::Stalled);
                    None
                }
            }
        };
        let lsn = writer.join().unwrap();
        if let Some((snapshot, row)) = seen {
            assert_eq!(row.as_deref(), (lsn < snapshot).then_some(&b"second"[..]));
        }
    });
}

/// Of two writers the first wins, the other one hears of a conflict; nobody's version is lost.
#[test]
fn the_first_of_two_writers_wins() {
    explore(3, || {
        let scene = Scene::with_record();
        let write = |scene: &Scene, index: usize, row: &[u8]| {
            let participant = scene.participants.join().unwrap();
            let (guard, snapshot) = scene.pin(&participant);
            let owner = scene.owners.begin(index);
            let context = context(&scene.owners, &scene.log, snapshot.0, 0);
            let installed = scene.table.install(&guard, RID, owner, Change::Row(row), &context).ok()?;
            Some((snapshot, scene.commit(owner, [installed])))
        };
        let other = {
            let scene = Arc::clone(&scene);
            thread::spawn(move || write(&scene, 1, b"second"))
        };
        let mine = write(&scene, 2, b"third");
        let theirs = other.join().unwrap();
        match (mine, theirs) {
            (None, None) => panic!("one of them wins"),
            // Both, if one began after the other had ended.
            (Some(mine), Some(theirs)) => assert!(mine.0 > theirs.1 || theirs.0 > mine.1),
            _ => {}
        }
    });
}

/// What is trimmed at the horizon is nothing that an announced snapshot reads, and nothing is freed
/// under a reader.
#[test]
fn trimming_leaves_what_readers_see() {
    explore(3, || {
        let scene = Scene::with_record();
        let second = {
            let participant = scene.participants.join().unwrap();
            let (guard, snapshot) = scene.pin(&participant);
            let owner = scene.owners.begin(1);
            let context = context(&scene.owners, &scene.log, snapshot.0, 0);
            let installed = scene.table.install(&guard, RID, owner, Change::Gone, &context).unwrap();
            (owner, installed)
        };
        let trimmer = {
            let scene = Arc::clone(&scene);
            thread::spawn(move || {
                let lsn = scene.commit(second.0, [second.1]);
                let participant = scene.participants.join().unwrap();
                {
                    let guard = participant.pin_without_snapshot();
                    let horizon = scene.participants.horizon(|| Lsn(scene.end.load(Ordering::SeqCst)));
                    // The record goes if all see its end.
                    let reclaimed = scene.table.trim(&guard, RID, horizon);
                    assert_eq!(reclaimed.is_some(), lsn < horizon);
                }
                participant.collect();
                lsn
            })
        };
        let seen = {
            let participant = scene.participants.join().unwrap();
            let (guard, snapshot) = scene.pin(&participant);
            let context = context(&scene.owners, &scene.log, snapshot.0, 0);
            see(&scene.table, &guard, RID, &context).ok().map(|row| (snapshot, row.map(<[u8]>::to_vec)))
        };
        let lsn = trimmer.join().unwrap();
        if let Some((snapshot, row)) = seen {
            assert_eq!(row.as_deref(), (lsn >= snapshot).then_some(&b"first"[..]));
        }
    });
}

/// Two readers install what replay announces, while it announces more: each sees its snapshot.
#[test]
fn two_readers_install_what_replay_announces() {
    explore(2, || {
        let scene = Scene::standby();
        assert!(scene.table.replay_store(RID, Announcement::at(Lsn(10))));
        assert!(scene.table.replay_store(RID, Announcement::at(Lsn(20))));
        let replay = {
            let scene = Arc::clone(&scene);
            thread::spawn(move || {
                assert!(scene.table.replay_store(RID, Announcement::at(Lsn(30))));
            })
        };
        let look = |scene: &Scene, snapshot: u64, expected: &[u8]| {
            let participant = scene.participants.join().unwrap();
            {
                let (guard, _) = participant.pin(|| Lsn(snapshot));
                let context = context(&scene.owners, &scene.log, snapshot, 0);
                assert_eq!(see(&scene.table, &guard, RID, &context).unwrap(), Some(expected));
            }
            participant.collect();
        };
        let other = {
            let scene = Arc::clone(&scene);
            thread::spawn(move || look(&scene, 15, b"ten"))
        };
        look(&scene, 25, b"twenty");
        other.join().unwrap();
        replay.join().unwrap();
        look(&scene, 35, b"thirty");
        look(&scene, 15, b"ten");
    });
}

/// What lies above the limit is never seen, while a failover cuts it off and replay begins again.
#[test]
fn a_cut_is_never_seen() {
    explore(3, || {
        let scene = Scene::standby();
        for address in [10, 20, 30] {
            assert!(scene.table.replay_store(RID, Announcement::at(Lsn(address))));
        }
        scene.log.limit.store(25, Ordering::Release);
        let taker = {
            let scene = Arc::clone(&scene);
            thread::spawn(move || {
                scene.table.replay_cut(RID, RecordKind::Update, Lsn(30), Some(Lsn(20)));
                scene.log.cut(25);
                // Lower than what was announced before: without the cut it would go unnoticed.
                scene.log.append(28, RID, RecordKind::Update, Some(20), b"new");
                assert!(scene.table.replay_store(RID, Announcement::at(Lsn(28))));
                scene.log.limit.store(35, Ordering::Release);
            })
        };
        {
            let participant = scene.participants.join().unwrap();
            let limit = scene.log.limit.load(Ordering::Acquire);
            let (guard, snapshot) = participant.pin(|| Lsn(limit));
            let context = context(&scene.owners, &scene.log, snapshot.0, 0);
            // A reader that was led to the place of the cut may give up; it never sees what was
            // there.
            match see(&scene.table, &guard, RID, &context) {
                Ok(row) => assert_eq!(row, Some(if limit == 35 { &b"new"[..] } else { b"twenty" })),
                Err(ReadError::Load(super::LoadError::Mismatch { address })) => assert_eq!(address, Lsn(30)),
                Err(error) => panic!("{error}"),
            }
        }
        taker.join().unwrap();
        let participant = scene.participants.join().unwrap();
        let (guard, _) = participant.pin(|| Lsn(35));
        let context = context(&scene.owners, &scene.log, 35, 0);
        assert_eq!(see(&scene.table, &guard, RID, &context).unwrap(), Some(&b"new"[..]));
    });
}

/// A record's remains go while a reader makes versions of what replay announces: when both are
/// done, its id is free.
#[test]
fn a_reader_takes_no_id_from_those_that_are_free() {
    explore(3, || {
        let scene = Scene::new();
        scene.log.append(10, RID, RecordKind::Insert, None, b"ten");
        scene.log.append(20, RID, RecordKind::Delete, Some(10), b"ten");
        for address in [10, 20] {
            assert!(scene.table.replay_store(RID, Announcement::at(Lsn(address))));
        }
        let garbage_collector = {
            let scene = Arc::clone(&scene);
            thread::spawn(move || {
                let participant = scene.participants.join().unwrap();
                {
                    let guard = participant.pin_without_snapshot();
                    let context = context(&scene.owners, &scene.log, 25, 25);
                    scene.table.reclaim_replayed(&guard, RID, Lsn(20), &context).unwrap();
                }
                participant.collect();
            })
        };
        {
            let participant = scene.participants.join().unwrap();
            let (guard, _) = participant.pin(|| Lsn(25));
            let context = context(&scene.owners, &scene.log, 25, 0);
            assert_eq!(see(&scene.table, &guard, RID, &context).unwrap(), None);
        }
        garbage_collector.join().unwrap();
        let mut free = Vec::new();
        scene.table.gone_before(Lsn::MAX, |rid, tombstone| free.push((rid, tombstone)));
        assert_eq!(free, [(RID, Lsn(20))]);
    });
}
