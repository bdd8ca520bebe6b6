//! A mirror that begins from a checkpoint, because the log's beginning is gone.

use std::{io::Write, sync::mpsc, time::Instant};

use freshet_base::{Consent, Fid, Lsn, NodeId, Rid, Safety, Term, sync::Arc};
use freshet_cluster::{
    relay::RelayAck,
    term::{TermEntry, TermHistory, TermState},
};
use freshet_fabric::{FabricKind, tcp::Connection};
use freshet_mirror::Record;

use super::{fixture::*, joining::cannot_follow, keeping::set_back, mirroring::*, relaying::relay};
use crate::{
    checkpoints::{Keeper, KnownLog, OpenCheckpoint, PieceNote, serve},
    endpoint::Service,
    mirror::{Beginning, Checkpoints, MirrorConfig, Seed},
    promotion::PromoteOptions,
    status::LinkStatus,
    wire::{self, Hello, Kind, Purpose, Reply},
};

/// Reads checkpoints of a form of their own: where they begin and end, and how many bytes follow;
/// then records, each with a length in front.
pub struct Toys;

struct ToyKeeper<'s, 'a> {
    seed: &'s mut Seed<'a>,
    known: KnownLog,
    manifest: Vec<u8>,
    rest: Vec<u8>,
}

impl Checkpoints for Toys {
    fn keeper<'s, 'a: 's>(&self, seed: &'s mut Seed<'a>) -> Box<dyn Keeper + 's> {
        Box::new(ToyKeeper { seed, known: KnownLog::default(), manifest: Vec::new(), rest: Vec::new() })
    }
}

fn word(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap())
}

impl Keeper for ToyKeeper<'_, '_> {
    fn begin(&mut self, known: KnownLog) -> Result<(), String> {
        self.known = known;
        Ok(())
    }

    fn keep(&mut self, file: u32, bytes: &[u8], last: bool) -> Result<(), String> {
        if file == 0 {
            self.manifest.extend_from_slice(bytes);
            assert!(last);
            let [start, end, bytes] = [0, 8, 16].map(|at| word(&self.manifest, at));
            let (start, end, known) = (Lsn(start), Lsn(end), self.known.clone());
            return self.seed.begin(Beginning { cluster: CLUSTER, known, start, end, bytes });
        }
        self.rest.extend_from_slice(bytes);
        while self.rest.len() >= 8 && self.rest.len() >= word(&self.rest, 0) as usize {
            let length = word(&self.rest, 0) as usize;
            let record: Vec<u8> = self.rest.drain(..length).collect();
            let [fid, rid, address] = [8, 16, 24].map(|at| word(&record, at));
            let record =
                Record { fid: Fid(fid as u32), rid: Rid(rid), address: Lsn(address), row: Some(&record[32..]) };
            self.seed.record(&record)?;
        }
        self.seed.came(bytes.len() as u64)
    }
}

/// What a node has in a checkpoint, made of its log so far: everything below `start`, and with the
/// log up to the end it is all.
#[derive(Clone)]
pub struct Toy {
    start: Lsn,
    end: Lsn,
    rows: Vec<u8>,
}

impl Toy {
    pub fn of(log: &[u8], start: Lsn) -> Self {
        let mut rows = Vec::new();
        for ((fid, rid), (address, row)) in newest(log) {
            let row = row.expect("none was deleted");
            if address < start {
                for word in [32 + row.len() as u64, fid.0.into(), rid.0, address.0] {
                    rows.extend_from_slice(&word.to_le_bytes());
                }
                rows.extend_from_slice(&row);
            }
        }
        Self { start, end: Lsn(log.len() as u64), rows }
    }

    fn manifest(&self) -> Vec<u8> {
        [self.start.0, self.end.0, self.rows.len() as u64].map(u64::to_le_bytes).concat()
    }
}

/// Gives it to those who ask.
pub struct Door(pub Toy, pub TermHistory);

impl Service for Door {
    fn serve(&self, _: Hello, connection: Connection) {
        let Self(toy, history) = self;
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&toy.rows).unwrap();
        std::io::Seek::rewind(&mut file).unwrap();
        let (end, manifest, hold) = (toy.end, toy.manifest(), Box::new(()));
        let open = OpenCheckpoint { end, manifest, files: vec![Box::new(file)], hold };
        let state = TermState { committed: toy.end, ..TermState::of(CLUSTER, history.clone()) };
        serve(connection, || Ok(Some(open)), || state);
    }
}

/// Gives a half of it, and says so; then it does what it is told: to end there, or to continue.
struct HalfDoor {
    door: Door,
    half: mpsc::SyncSender<()>,
    more: std::sync::Mutex<mpsc::Receiver<bool>>,
}

impl Service for HalfDoor {
    fn serve(&self, _: Hello, mut connection: Connection) {
        let Self { door: Door(toy, history), half, more } = self;
        let known = KnownLog { history: history.clone(), committed: toy.end };
        let reply = Reply::Checkpoint { known, files: 1 };
        connection.sender().send(Kind::Reply as u8, Term(0), &wire::encode_in(wire::PROTOCOL, &reply)).unwrap();
        let (first, second) = toy.rows.split_at(toy.rows.len() / 2);
        let parts = [(0, true, 0, &toy.manifest()[..]), (1, false, 0, first), (1, true, first.len(), second)];
        for (number, (file, last, at, bytes)) in parts.into_iter().enumerate() {
            if number == 2 {
                half.send(()).unwrap();
                if !more.lock().unwrap().recv().unwrap_or(false) {
                    return;
                }
            }
            let note = wire::encode(&PieceNote { file, last });
            let sent = connection.sender().write_with_imm(Kind::Piece as u8, Term(0), at as u64, [bytes, &[]], &note);
            if sent.is_err() {
                return;
            }
        }
        // The mirror hangs up.
        let _ = connection.receiver().receive();
    }
}

pub fn history() -> TermHistory {
    TermHistory::first(Term(1), NodeId(1), 1)
}

/// Another node led from there on.
fn parted(at: Lsn) -> TermHistory {
    let mut history = history();
    history.begin(TermEntry { term: Term(2), start: at, node: NodeId(3), nonce: 1 }).unwrap();
    history
}

/// A primary that has no more of its log than a ring of 64 KiB holds, and that gives away a
/// checkpoint.
struct Forgetful {
    primary: PrimaryNode,
    toy: Toy,
    /// All that it has written, as far as it was noted.
    log: Vec<u8>,
}

impl Forgetful {
    fn new() -> Self {
        let primary = PrimaryNode::first_on(TestLog::in_ring(1 << 16), config(rule(Safety::OneSafe, 1)));
        let toy = Toy { start: Lsn(0), end: Lsn(0), rows: Vec::new() };
        Self { primary, toy, log: Vec::new() }
    }

    fn note(&mut self) {
        let (from, end) = (self.log.len(), self.primary.log.end());
        self.log.resize(end.0 as usize, 0);
        self.primary.log.log.read(Lsn(from as u64), &mut self.log[from..]).unwrap();
    }

    fn write(&mut self, bytes: usize) {
        let end = self.log.len() + bytes;
        while self.log.len() < end {
            self.primary.write(&[64, 104, 72]);
            self.note();
        }
    }

    /// Makes a checkpoint, and forgets the log's beginning, not what belongs to the checkpoint.
    fn forget(&mut self) {
        let start = self.primary.log.end();
        self.write(1 << 10);
        self.toy = Toy::of(&self.log, start);
        self.write(48 << 10);
        assert!(self.primary.log.log.read(Lsn(0), &mut [0; 64]).is_err(), "it is gone");
    }

    fn gives(&self, service: Option<impl Service + 'static>) {
        self.primary.endpoint.set_checkpoints(service.map(|service| Arc::new(service) as _));
    }

    /// The mirror is a member, and holds what the log says.
    #[track_caller]
    fn has(&self, mirror: &MirrorNode) {
        let end = self.primary.log.end();
        until("it is whole", || mirror.mirror.status().whole && mirror.mirror.status().end == end);
        until("it is a member", || self.primary.primary.status().standbys.iter().any(|standby| standby.acked == end));
        let status = mirror.mirror.status();
        assert_eq!((status.floor, status.bootstrap), (self.toy.end, None));
        assert!(mirror.records(end) == newest(&self.log));
    }
}

#[test]
fn a_mirror_begins_from_a_checkpoint_when_the_logs_beginning_is_gone() {
    for kind in FABRICS {
        let mut it = Forgetful::new();
        it.write(24 << 10);
        it.forget();
        let mirror = MirrorNode::new(2, it.primary.address(), small(kind));
        until("it says why it does not join", || cannot_follow(mirror.mirror.status().link).is_some());
        assert!(it.primary.primary.status().standbys.is_empty(), "it is not counted each time it tries");
        it.gives(Some(Door(it.toy.clone(), history())));
        it.has(&mirror);
        it.write(1 << 10);
        it.has(&mirror);
    }
}

/// Commits would wait for it as soon as it has the relay's checkpoint.
#[test]
fn a_mirror_that_commits_may_wait_for_is_sent_to_the_primary_by_a_relay() {
    let primary = PrimaryNode::first(config(rule(Safety::OneSafe, 2)));
    let relay = relay(&primary.address(), FabricKind::Tcp, RelayAck::Own);
    let end = primary.write(&[64, 104, 72]);
    relay.shows(end);
    let toy = Toy::of(&primary.log.bytes(), Lsn(64));
    relay.endpoint.set_checkpoints(Some(Arc::new(Door(toy, history()))));
    let mirror = MirrorNode::new(3, relay.address(), small(FabricKind::Tcp));
    mirror.joined();
    let status = mirror.mirror.status();
    assert!(matches!(status.link, LinkStatus::Following { node: NodeId(1), .. }), "{:?}", status.link);
    until("it is whole", || mirror.mirror.status().whole && mirror.mirror.status().end == end);
}

/// What has come is no state of the database before the log has come up to the checkpoint's end.
#[test]
fn no_commit_counts_on_a_mirror_below_its_checkpoints_end() {
    let mut it = Forgetful::new();
    it.write(24 << 10);
    it.forget();
    it.toy.end = it.primary.log.end().plus(240);
    it.gives(Some(Door(it.toy.clone(), history())));
    let mirror = MirrorNode::new(2, it.primary.address(), small(FabricKind::Shm));
    let end = it.primary.log.end();
    until("it has the log", || mirror.mirror.status().end == end);
    let status = it.primary.primary.status();
    assert!(status.standbys.is_empty() && status.observers.len() == 1, "{status:?}");
    let force = PromoteOptions { consent: Consent::Loss, ..PromoteOptions::default() };
    let refused = mirror.mirror.promote(&force).unwrap_err().to_string();
    assert!(refused.contains("no state of it yet"), "{refused}");
    it.write(240);
    it.has(&mirror);
    assert!(it.primary.primary.status().observers.is_empty());
}

fn consult(mirror: &MirrorNode) -> Result<Reply, String> {
    let purpose = Purpose::Consult { term: Term(2), binding: false, gives_way: None, handed: None, stands: None };
    let hello = Hello { cluster: Some(CLUSTER), node: NodeId(3), address: "nowhere:1".into(), purpose };
    let address = mirror.endpoint.address().to_string();
    call(&address, &hello, Term(2), PATIENCE).map(|(reply, _)| reply).map_err(|cause| cause.to_string())
}

#[test]
fn half_a_checkpoint_is_nothing() {
    let mut it = Forgetful::new();
    it.write(24 << 10);
    it.forget();
    let door = || Door(it.toy.clone(), history());
    let ((half, is_half), (proceed, more)) = (mpsc::sync_channel(10), mpsc::channel());
    it.gives(Some(HalfDoor { door: door(), half, more: more.into() }));
    let mirror = MirrorNode::new(2, it.primary.address(), small(FabricKind::Shm));
    is_half.recv().unwrap();
    let is_all = it.toy.rows.len() as u64;
    until("what has come is in its memory", || match mirror.mirror.status().bootstrap {
        Some(bootstrap) => bootstrap.of_bytes == is_all && bootstrap.done_bytes == is_all / 2,
        None => false,
    });
    let Ok(Reply::Log { log, .. }) = consult(&mirror) else { panic!("it answers that it holds nothing") };
    assert_eq!((log.end, log.committed), (Lsn(0), Lsn(0)));
    // The other node dies.
    let service = it.primary.primary.service();
    it.primary.endpoint.set_service(None);
    it.gives(None::<Door>);
    proceed.send(false).unwrap();
    let empty = MirrorConfig { most: 0, ..small(FabricKind::Shm) };
    until("it is empty again", || {
        let status = mirror.mirror.status();
        status.bootstrap.is_none() && status.granted_bytes == empty.head + empty.undo
    });
    let status = mirror.mirror.status();
    assert_eq!((status.end, status.floor, status.whole), (Lsn(0), Lsn(0), false));
    let force = PromoteOptions { consent: Consent::Loss, ..PromoteOptions::default() };
    let refused = mirror.mirror.promote(&force).unwrap_err().to_string();
    assert!(refused.contains("no state of it yet"), "{refused}");
    it.primary.endpoint.set_service(Some(service));
    it.gives(Some(door()));
    it.has(&mirror);
}

/// It does not wait for what does not come.
#[test]
fn a_mirror_that_is_being_seeded_stops_and_is_led_elsewhere() {
    let mut it = Forgetful::new();
    it.write(24 << 10);
    it.forget();
    let ((half, is_half), (proceed, more)) = (mpsc::sync_channel(10), mpsc::channel());
    it.gives(Some(HalfDoor { door: Door(it.toy.clone(), history()), half, more: more.into() }));
    // Longer than the test takes.
    let config = patient(small(FabricKind::Tcp), PATIENCE * 10);
    let mirror = MirrorNode::new(2, "127.0.0.1:1".into(), config);
    let begun = Instant::now();
    for _ in 0..2 {
        mirror.mirror.follow(&it.primary.address());
        is_half.recv().unwrap();
        mirror.mirror.follow("127.0.0.1:1");
        until("it follows another", || mirror.mirror.status().bootstrap.is_none());
        proceed.send(false).unwrap();
    }
    mirror.mirror.follow(&it.primary.address());
    is_half.recv().unwrap();
    mirror.mirror.stop();
    assert!(begun.elapsed() < PATIENCE);
    drop(proceed);
}

#[test]
fn a_mirror_without_room_for_the_database_names_what_to_set() {
    let mut it = Forgetful::new();
    it.write(24 << 10);
    it.forget();
    it.gives(Some(Door(it.toy.clone(), history())));
    let config = MirrorConfig { most: 190 << 10, ..small(FabricKind::Shm) };
    let mirror = MirrorNode::new(2, it.primary.address(), config);
    until("it gives up", || match mirror.mirror.status().link {
        LinkStatus::Failed { why } => why.contains("mirror.bytes"),
        _ => false,
    });
    assert_eq!(mirror.mirror.status().end, Lsn(0));
}

/// It was fed, was away, and the log continues without it.
#[test]
fn a_mirror_that_was_away_for_too_long_begins_again() {
    for kind in FABRICS {
        let mut it = Forgetful::new();
        let mirror = MirrorNode::new(2, it.primary.address(), small(kind));
        it.write(4 << 10);
        let end = it.primary.log.end();
        until("it has everything", || mirror.mirror.status().end == end && mirror.mirror.status().whole);
        // Its primary does not let it in.
        let service = it.primary.primary.service();
        it.primary.endpoint.set_service(None);
        mirror.mirror.follow(&it.primary.address());
        until("it is away", || it.primary.primary.status().standbys.iter().all(|standby| !standby.connected));
        it.write(20 << 10);
        it.forget();
        assert_eq!(mirror.mirror.status().end, end, "it has what it had");
        it.primary.endpoint.set_service(Some(service));
        until("the log is gone", || cannot_follow(mirror.mirror.status().link).is_some());
        it.gives(Some(Door(it.toy.clone(), history())));
        it.has(&mirror);
    }
}

/// The next term begins below what the mirror can undo, and nothing of that was committed.
#[test]
fn a_mirror_that_cannot_be_cut_back_begins_again() {
    // Commits wait for another standby, which never comes.
    let old = PrimaryNode::first(config(rule(Safety::VerySafe, 2)));
    let mirror = MirrorNode::new(2, old.address(), small(FabricKind::Shm));
    mirror.joined();
    let common = old.write(&[64, 72, 80]);
    let end = old.write(&[64, 72, 80]);
    until("it is there", || old.primary.status().standbys[0].acked == end);
    // What it could undo before, it cannot any more.
    mirror.mirror.follow(&old.address());
    until("it is fed again", || mirror.mirror.status().whole && mirror.mirror.status().end == end);
    let old_log = old.log.bytes();
    drop(old);
    let next = set_back(&old_log[..common.0 as usize], NodeId(3));
    mirror.mirror.follow(&next.address());
    let end = next.write(&[64, 72]);
    until("it has the other log", || {
        let status = mirror.mirror.status();
        status.whole && status.end == end && status.term == Term(2)
    });
    assert_eq!(mirror.mirror.status().holds_more, None);
    assert!(mirror.records(end) == newest(&next.log.bytes()));
}

/// The checkpoint is of a term that the cluster has given up.
#[test]
fn a_checkpoint_that_holds_what_the_log_does_not_is_no_beginning() {
    let mut it = Forgetful::new();
    it.write(1 << 10);
    let start = it.primary.log.end();
    it.write(1 << 10);
    let toy = Toy::of(&it.log, start);
    it.gives(Some(Door(toy, parted(start.plus(240)))));
    let mirror = MirrorNode::new(2, it.primary.address(), small(FabricKind::Tcp));
    until("it says so", || match mirror.mirror.status().link {
        LinkStatus::Connecting { last_failure: Some(why), .. } => why.contains("holds what the cluster's log does not"),
        _ => false,
    });
    it.gives(None::<Door>);
    it.has(&mirror);
}

/// A fuzzy snapshot of a mirror's memory ends where all that was left out of it is committed, and
/// is given up when the memory is taken back from the primary.
#[test]
fn a_fuzzy_snapshot_of_a_mirror_ends_where_it_is_committed() {
    let primary = PrimaryNode::first(config(rule(Safety::Quorum(2), 2)));
    let mirror = MirrorNode::new(2, primary.address(), small(FabricKind::Shm));
    assert!(mirror.mirror.fuzzy_snapshots().take().is_err(), "it is empty");
    mirror.joined();
    let before = primary.write(&[64, 104, 72]);
    primary.commits(before);
    until("it is marked", || mirror.mirror.status().mark == before);
    let fuzzy_snapshots = mirror.mirror.fuzzy_snapshots();
    let mut fuzzy_snapshot = fuzzy_snapshots.take().unwrap();
    assert_eq!((fuzzy_snapshot.start(), fuzzy_snapshot.end()), (before, Ok(before)));
    let end = primary.write(&[64]);
    primary.commits(end);
    until("it is there", || mirror.mirror.status().mark == end);
    let mut rows = 0;
    for (fid, chunk) in fuzzy_snapshot.chunks().collect::<Vec<_>>() {
        fuzzy_snapshot
            .visit(chunk, |_, address, row| {
                assert!(fid == Fid(1) && address < before && row.is_some());
                rows += 1;
            })
            .unwrap();
    }
    assert_eq!((rows, fuzzy_snapshot.end()), (3, Ok(end)));
    mirror.mirror.follow(&primary.address());
    until("it is fed again", || {
        primary.primary.status().standbys[0].connected && fuzzy_snapshot.visit(0, |_, _, _| {}).is_err()
    });
    assert!(fuzzy_snapshot.end().unwrap_err().contains("taken back"));
}

/// Perhaps for the node that asks for it.
#[test]
fn a_fuzzy_snapshot_of_a_mirror_ends_although_commits_wait() {
    let primary = PrimaryNode::first(config(rule(Safety::VerySafe, 2)));
    let mirror = MirrorNode::new(2, primary.address(), small(FabricKind::Shm));
    let standby = StandbyNode::empty(3, &primary.address());
    let before = primary.write(&[64, 104, 72]);
    primary.commits(before);
    until("it is marked", || mirror.mirror.status().mark == before);
    drop(standby);
    let end = primary.write(&[64]);
    until("it has arrived", || mirror.mirror.status().end == end);
    let mut fuzzy_snapshot = mirror.mirror.fuzzy_snapshots().take().unwrap();
    assert_eq!(fuzzy_snapshot.start(), before);
    for (_, chunk) in fuzzy_snapshot.chunks().collect::<Vec<_>>() {
        fuzzy_snapshot.visit(chunk, |_, _, _| {}).unwrap();
    }
    let newest = fuzzy_snapshot.newest().unwrap();
    assert!(newest >= before && newest < end);
    assert_eq!(fuzzy_snapshot.end(), Ok(newest.plus(1)), "what was left out is needed, and is not committed");
    assert_eq!(mirror.mirror.status().mark, before);
}
