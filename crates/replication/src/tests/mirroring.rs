//! A primary keeps the memory of a mirror up to date, over each fabric.

use std::{
    collections::BTreeMap,
    fs, io,
    path::Path,
    sync::atomic::{AtomicU32, Ordering},
    thread,
    time::{Duration, Instant},
};

use freshet_base::{ClusterId, Fid, Lsn, NodeId, RecordKind, Rid, Safety, Term, sync::Arc};
use freshet_cluster::{commit_rule::RuleConfig, flow::FlowConfig, term::TermState};
use freshet_fabric::FabricKind;
use freshet_log::{Block, sealed};
use freshet_mirror::{ARENAS, Contents};
use tempfile::TempDir;

use super::{bootstrap::Toys, fixture::*};
use crate::{
    endpoint::Endpoint,
    feed::FeedConfig,
    follow::FollowerId,
    mirror::{Mirror, MirrorConfig, Rehearsal},
    primary::PrimaryConfig,
    status::LinkStatus,
    terms::{TermStore, TermStoreError, Terms, VolatileTerms},
    wire::{Hello, Purpose, Reply},
};

pub struct MirrorNode {
    pub mirror: Mirror,
    pub endpoint: Endpoint,
    terms: Terms,
}

/// A primary that feeds a mirror over this fabric.
pub fn feeding(kind: FabricKind, rule: RuleConfig) -> PrimaryConfig {
    PrimaryConfig { feed: small_feed_over(kind), ..PrimaryConfig::new(rule) }
}

impl MirrorNode {
    pub fn new(node: u64, upstream: String, config: MirrorConfig) -> Self {
        let terms = Terms::new(TermState::empty(), Arc::new(VolatileTerms));
        Self::with(node, upstream, config, terms)
    }

    /// With the terms of one that was there before.
    pub fn with(node: u64, upstream: String, config: MirrorConfig, terms: Terms) -> Self {
        Self::try_with(node, upstream, config, terms).unwrap()
    }

    pub fn try_with(node: u64, upstream: String, config: MirrorConfig, terms: Terms) -> io::Result<Self> {
        let (endpoint, node) = (open(node), NodeId(node));
        let address = endpoint.address().to_string();
        let who = FollowerId { node, credentials: credentials(node), address, upstream: Some(upstream) };
        let mirror = Mirror::start(who, config, terms.clone(), Arc::new(Toys))?;
        endpoint.set_service(Some(mirror.service()));
        Ok(Self { mirror, endpoint, terms })
    }

    pub fn terms(&self) -> &Terms {
        &self.terms
    }

    #[track_caller]
    pub fn joined(&self) {
        self.mirror.wait_joined(Instant::now() + PATIENCE).unwrap();
    }

    /// Its records, when nothing is written there and everything below `end` is there.
    pub fn records(&self, end: Lsn) -> Records {
        let memory = Contents::open(self.mirror.memory(), end).unwrap();
        let mut records = Records::new();
        for chunk in 0..memory.chunk_count() {
            let enter = |fid, rid, address, row: Option<&[u8]>| {
                records.insert((fid, rid), (address, row.map(<[u8]>::to_vec)));
            };
            memory.visit(chunk, enter).unwrap();
        }
        records
    }
}

/// What records are: where in the log, and the row unless they were deleted.
pub type Records = BTreeMap<(Fid, Rid), (Lsn, Option<Vec<u8>>)>;

/// What a log says that records are.
pub fn newest(log: &[u8]) -> Records {
    let (mut records, mut at) = (Records::new(), 0);
    while at < log.len() {
        let block = Block::parse(&log[at..], Lsn(at as u64)).unwrap();
        for record in block.records() {
            let row = (record.header.kind != RecordKind::Delete).then(|| record.row.to_vec());
            records.insert((record.header.fid, record.header.rid), (record.address, row));
        }
        at += block.bytes().len();
    }
    records
}

/// The rows that are there, whole or not: a mirror's are, and so are a log's.
#[track_caller]
fn holds(mirror: &MirrorNode, log: &TestLog) {
    let (found, wanted) = (mirror.records(log.end()), newest(&log.bytes()));
    assert!(found == wanted, "{} of {} records: {:?}", found.len(), wanted.len(), mirror.mirror.status());
}

#[test]
fn a_commit_waits_until_it_is_in_the_mirrors_memory() {
    for kind in fabrics() {
        let primary = PrimaryNode::first(feeding(kind, rule(Safety::VerySafe, 1)));
        let before = primary.write(&[64, 200, 904]);
        assert_eq!(primary.primary.commit().outcome(before), None, "no node but this one has it");
        let mirror = MirrorNode::new(2, primary.address(), small(kind));
        mirror.joined();
        primary.commits(before);
        holds(&mirror, &primary.log);
        for round in 0..50 {
            primary.commits(primary.write(&[64, 72, 400 + round * 8]));
        }
        holds(&mirror, &primary.log);
        let standbys = primary.primary.status().standbys;
        assert!(standbys[0].mirror && standbys[0].one_sided == kind.is_one_sided(), "{standbys:?}");
        let end = primary.log.end();
        until("its mark says what is committed", || mirror.mirror.status().mark == end);
        until("it has heard how far it is", || mirror.mirror.status().end == end);
    }
}

/// With the acknowledgements that it sends anyway. What is on its way to it, the primary sees.
#[test]
fn a_mirror_reports_how_busy_it_is() {
    for kind in fabrics() {
        let primary = PrimaryNode::first(feeding(kind, rule(Safety::VerySafe, 1)));
        let mirror = MirrorNode::new(2, primary.address(), small(kind));
        mirror.joined();
        let status = || primary.primary.status().standbys.remove(0);
        until("it has said how busy it is", || {
            primary.commits(primary.write(&[64, 200]));
            status().load.is_some()
        });
        let (reported, load) = (status(), status().load.unwrap());
        let processors = thread::available_parallelism().unwrap().get() as u32;
        assert!(load.processors == processors && load.idle <= 1000, "{load:?}");
        // Its thread does something, and does not do more than one thread can.
        assert!(load.following <= 1000 && load.link_busy <= 1000, "{load:?}");
        assert!(
            reported.round_trips.count > 0 && reported.round_trips.total >= reported.round_trips.least,
            "{reported:?}"
        );
    }
}

/// More than its undo ring holds, and from before the batches that the primary remembers.
#[test]
fn a_mirror_that_comes_late_is_brought_up_to_date() {
    for kind in fabrics() {
        let small_feed = FeedConfig { boundaries: 4, ..small_feed_over(kind) };
        let config = PrimaryConfig { feed: small_feed, ..feeding(kind, rule(Safety::TwoSafe, 1)) };
        let primary = PrimaryNode::first(config);
        for _ in 0..60 {
            primary.write(&[64; 40]);
        }
        let mirror = MirrorNode::new(2, primary.address(), small(kind));
        mirror.joined();
        let end = primary.write(&[600]);
        primary.commits(end);
        until("it has everything", || primary.primary.status().standbys[0].acked == end);
        holds(&mirror, &primary.log);
    }
}

/// They get what one thread has made, also when one of them has come late, and has other places.
#[test]
fn several_mirrors_have_the_same() {
    for kind in FABRICS {
        let primary = PrimaryNode::first(config(rule(Safety::TwoSafe, 2)));
        let first = MirrorNode::new(2, primary.address(), small(kind));
        first.joined();
        for round in 0..10 {
            primary.write(&[200 + round * 8, 128]);
        }
        let second = MirrorNode::new(3, primary.address(), small(kind));
        second.joined();
        for _ in 0..20 {
            let end = (0..5).map(|_| primary.write(&[64, 128, 360])).last().unwrap();
            primary.commits(end);
        }
        let end = primary.write(&[600]);
        until("both have it", || primary.primary.status().standbys.iter().all(|mirror| mirror.acked == end));
        holds(&first, &primary.log);
        holds(&second, &primary.log);
    }
}

#[test]
fn a_mirror_and_a_standby_have_the_same() {
    for kind in fabrics() {
        let primary = PrimaryNode::first(feeding(kind, rule(Safety::VerySafe, 2)));
        let mirror = MirrorNode::new(2, primary.address(), small(kind));
        let standby = StandbyNode::empty(3, &primary.address());
        mirror.joined();
        standby.joined();
        for round in 0..30 {
            primary.commits(primary.write(&[64 + round * 8, 128]));
        }
        assert_eq!(standby.log.end(), primary.log.end());
        assert!(mirror.records(standby.log.end()) == newest(&standby.log.bytes()));
    }
}

/// Regions are registered, and written to, while the mirror is fed.
#[test]
fn a_mirror_grows_while_it_is_fed() {
    for kind in fabrics() {
        let primary = PrimaryNode::first(feeding(kind, rule(Safety::VerySafe, 1)));
        let mirror = MirrorNode::new(2, primary.address(), small(kind));
        mirror.joined();
        let regions = mirror.mirror.memory().len();
        for _ in 0..100 {
            primary.commits(primary.write(&[640; 8]));
        }
        holds(&mirror, &primary.log);
        let status = mirror.mirror.status();
        assert!(mirror.mirror.memory().len() >= regions + 4, "{status:?}");
        assert_eq!(status.one_sided, kind.is_one_sided());
    }
}

/// The parts of a long transaction are one: the mark does not stand between them, and none of them
/// is acknowledged alone.
#[test]
fn the_mark_stands_where_a_transaction_ends() {
    let primary = PrimaryNode::first(config(rule(Safety::OneSafe, 1)));
    let mirror = MirrorNode::new(2, primary.address(), small(FabricKind::Shm));
    mirror.joined();
    let first = primary.write(&[64]);
    until("it is marked", || mirror.mirror.status().mark == first);
    let long = primary.long(vec![vec![64], vec![72], vec![80]]);
    for _ in 0..2 {
        let to = long.put();
        until("it is sent", || primary.primary.status().standbys[0].shipped == to);
        // A recovery would undo it.
        assert_eq!(primary.primary.status().standbys[0].acked, first);
        assert_eq!(mirror.mirror.status().mark, first);
    }
    let end = long.put();
    until("all of it is marked", || mirror.mirror.status().mark == end);
    holds(&mirror, &primary.log);
}

#[test]
fn a_mirror_that_has_lost_its_primary_is_recovered_and_fed_on() {
    for kind in fabrics() {
        let primary = PrimaryNode::first(feeding(kind, rule(Safety::VerySafe, 1)));
        let mirror = MirrorNode::new(2, primary.address(), small(kind));
        mirror.joined();
        for round in 0..20 {
            for _ in 0..5 {
                primary.commits(primary.write(&[64, 800 - round * 8]));
            }
            primary.ship(&[200; 3]);
            mirror.mirror.follow(&primary.address());
        }
        primary.commits(primary.write(&[64]));
        holds(&mirror, &primary.log);
    }
}

/// A later term is promised: nothing that the primary of before writes is there.
#[test]
fn a_mirror_answers_a_candidate_when_its_memory_is_its_own() {
    for kind in fabrics() {
        let primary = PrimaryNode::first(feeding(kind, rule(Safety::VerySafe, 1)));
        let mirror = MirrorNode::new(2, primary.address(), small(kind));
        mirror.joined();
        let end = primary.write(&[64, 96]);
        primary.commits(end);
        until("it knows that it has everything", || mirror.mirror.status().whole);
        let purpose = Purpose::Consult { term: Term(2), binding: true, gives_way: None, handed: None, stands: None };
        let hello = Hello { cluster: Some(CLUSTER), node: NodeId(3), address: "nowhere:1".into(), purpose };
        let address = mirror.endpoint.address().to_string();
        let (reply, _) = call(&address, &hello, Term(2), PATIENCE).unwrap();
        let Reply::Log { log, .. } = reply else { panic!("{reply:?}") };
        assert_eq!((log.end, log.synchronous), (end, true));
        let late = primary.ship(&[64; 4]);
        assert!(!matches!(primary.primary.commit().outcome(late), Some(Ok(()))), "nothing of it is there");
        assert!(mirror.records(end) == newest(&primary.log.bytes()[..end.0 as usize]));
    }
}

/// What a primary says of itself comes now and then; what it writes is there before.
#[test]
fn a_mirror_has_a_vote_although_its_primary_fails_soon() {
    for kind in FABRICS {
        let flow = FlowConfig { keep_alive: Duration::from_secs(60), ..small_feed().flow };
        let feed = FeedConfig { flow, ..small_feed() };
        let primary = PrimaryNode::first(PrimaryConfig { feed, ..config(rule(Safety::VerySafe, 1)) });
        primary.write(&[64]);
        let mirror = MirrorNode::new(2, primary.address(), small(kind));
        mirror.joined();
        let end = primary.write(&[64, 96]);
        primary.commits(end);
        assert!(!mirror.mirror.status().whole);
        drop(primary);
        until("it is whole", || mirror.mirror.status().whole);
        assert_eq!(mirror.mirror.status().end, end);
    }
}

/// No other node could get that from the mirror.
#[test]
fn a_primary_whose_term_is_over_has_what_its_mirror_has() {
    for kind in FABRICS {
        let primary = PrimaryNode::first(config(rule(Safety::OneSafe, 1)));
        let mirror = MirrorNode::new(2, primary.address(), small(kind));
        mirror.joined();
        primary.write(&[64]);
        primary.log.stall(true);
        let sent = primary.ship(&[64, 96]);
        until("the mirror has it", || primary.primary.status().standbys[0].acked == sent);
        assert!(primary.log.persisted() < sent);
        let purpose = Purpose::Consult { term: Term(2), binding: true, gives_way: None, handed: None, stands: None };
        let hello = Hello { cluster: Some(CLUSTER), node: NodeId(3), address: "nowhere:1".into(), purpose };
        let address = primary.address();
        let asks = std::thread::spawn(move || call(&address, &hello, Term(2), PATIENCE).unwrap().0);
        until("its term is over", || primary.primary.is_fenced());
        primary.log.stall(false);
        let Reply::Log { log, .. } = asks.join().unwrap() else { panic!("no log") };
        assert!(log.end >= sent, "{} of {sent}", log.end);
    }
}

#[test]
fn a_mirror_without_memory_reports_it_and_holds_up_no_other() {
    let primary = PrimaryNode::first(config(rule(Safety::OneSafe, 1)));
    let config = MirrorConfig { most: 200 << 10, ..small(FabricKind::Tcp) };
    let mirror = MirrorNode::new(2, primary.address(), config);
    mirror.joined();
    let end = (0..100).map(|_| primary.write(&[904, 904])).last().unwrap();
    primary.commits(end);
    until("both say so", || {
        let (fed, status) = (primary.primary.status().standbys.remove(0), mirror.mirror.status());
        fed.lacks.is_some_and(|why| why.contains("mirror.bytes"))
            && status.lacks.is_some_and(|why| why.contains("mirror.bytes"))
    });
    until("it lives on", || mirror.mirror.status().silence.is_some());
    let status = mirror.mirror.status();
    assert!(
        status.granted_bytes <= status.most_bytes && matches!(status.link, LinkStatus::Following { .. }),
        "{status:?}"
    );
    assert!(primary.primary.status().standbys[0].acked < end);
    // It gets more, and is asked again.
    mirror.mirror.allow(4 << 20);
    until("it is fed", || primary.primary.status().standbys[0].acked == end);
    assert_eq!((primary.primary.status().standbys[0].lacks, mirror.mirror.status().lacks), (None, None));
    holds(&mirror, &primary.log);
}

/// What a mirror has to write over in one piece is more than its undo ring holds.
#[test]
fn a_mirror_that_cannot_be_kept_is_explained_on_both_sides() {
    let primary = PrimaryNode::first(config(rule(Safety::OneSafe, 1)));
    let config = MirrorConfig { undo: 1024, ..small(FabricKind::Shm) };
    let mirror = MirrorNode::new(2, primary.address(), config);
    let explains = |wanted: &str| match mirror.mirror.status().link {
        LinkStatus::Failed { why } => why.contains(wanted),
        _ => false,
    };
    until("it says what to set", || explains("log.buffer-bytes there to at least 2048"));
}

/// A transaction writes over more than its undo ring holds, again and again; and the primary is
/// lost within one.
#[test]
fn a_transaction_that_is_larger_than_the_undo_ring_is_mirrored() {
    for kind in fabrics() {
        let primary = PrimaryNode::first(feeding(kind, rule(Safety::VerySafe, 2)));
        let config = || MirrorConfig { undo: 8 << 10, arena: 8 << 10, ..small(kind) };
        let mirrors = [2, 3].map(|node| MirrorNode::new(node, primary.address(), config()));
        mirrors.iter().for_each(MirrorNode::joined);
        for blocks in [8, 20, 60] {
            // Two entries, and this takes more: a chunk's entry in the directory for each of many
            // records.
            let long = primary.long((0..blocks).map(|_| vec![1000; 2]).collect());
            let end = (0..blocks).fold(Lsn::ZERO, |_, _| long.put());
            primary.commits(end);
            // So do those behind it.
            primary.commits(primary.write(&[64]));
        }
        for mirror in &mirrors {
            let status = mirror.mirror.status();
            assert!(status.undo_bytes > 8 << 10 && status.lacks.is_none(), "{status:?}");
            holds(mirror, &primary.log);
        }
        let before = primary.log.end();
        until("all of it is marked", || mirrors.iter().all(|mirror| mirror.mirror.status().mark == before));
        let long = primary.long((0..100).map(|_| vec![1000; 2]).collect());
        let part = (0..90).fold(Lsn::ZERO, |_, _| long.put());
        until("it is there", || primary.primary.status().standbys.iter().all(|standby| standby.shipped == part));
        let log = primary.log.bytes();
        drop((long, primary));
        for mirror in &mirrors {
            until("it is recovered", || {
                let status = mirror.mirror.status();
                status.end == before && status.undone_batches > 0
            });
            assert!(mirror.records(before) == newest(&log[..before.0 as usize]));
        }
    }
}

/// A bit of a row flips: that is found, the mirror has no vote from then on, and it is filled
/// again from its primary. What it had is kept until it has everything.
#[test]
fn a_mirror_whose_memory_rots_has_no_vote_and_begins_again() {
    for keeps in [false, true] {
        let primary = PrimaryNode::first(config(rule(Safety::OneSafe, 1)));
        let directory = tempfile::tempdir().unwrap();
        let [files, aside] = ["files", "aside"].map(|name| directory.path().join(name));
        let mut config = MirrorConfig { aside: Some(aside), ..small(FabricKind::Shm) };
        config.directory = keeps.then_some(files);
        let mirror = MirrorNode::new(2, primary.address(), config);
        mirror.joined();
        let end = (0..20).map(|_| primary.write(&[104, 200, 904])).last().unwrap();
        primary.commits(end);
        until("it is marked", || mirror.mirror.status().mark == end && mirror.mirror.status().whole);
        let rehearses = || mirror.mirror.fuzzy_snapshots().rehearse(|_, _, _| Ok(()), || true);
        assert_eq!(rehearses(), Rehearsal::Sound(60));
        assert_eq!(mirror.mirror.status().rehearsed_records, Some(60));
        let memory = mirror.mirror.memory();
        let row = memory[ARENAS].words().iter().rfind(|word| word.load(Ordering::Relaxed) != 0).unwrap();
        row.fetch_xor(1 << 13, Ordering::Relaxed);
        // Nobody gives it anything yet.
        let service = primary.primary.service();
        primary.endpoint.set_service(None);
        mirror.mirror.allow(mirror.mirror.status().undo_bytes + (64 << 10));
        let Rehearsal::Damaged(why) = rehearses() else { panic!("it is not noticed") };
        assert!(why.contains("is damaged"), "{why}");
        // Who receives hears of it a moment later.
        until("it is not whole any more", || !mirror.mirror.status().whole);
        let purpose = Purpose::Consult { term: Term(2), binding: false, gives_way: None, handed: None, stands: None };
        let hello = Hello { cluster: Some(CLUSTER), node: NodeId(3), address: "nowhere:1".into(), purpose };
        match call(&mirror.endpoint.address().to_string(), &hello, Term(2), PATIENCE) {
            // It has begun again: its primary has no checkpoint to wait for.
            Ok((Reply::Log { log, .. }, _)) => assert_eq!(log.end, Lsn(0)),
            Ok((reply, _)) => panic!("{reply:?}"),
            Err(why) => assert!(["damaged", "being filled"].iter().any(|it| why.to_string().contains(it)), "{why}"),
        }
        until("the primary has lost it", || !primary.primary.status().standbys[0].connected);
        primary.endpoint.set_service(Some(service));
        until("what it had is kept", || mirror.mirror.status().set_aside.is_some_and(|path| path.exists()));
        let kept = mirror.mirror.status().set_aside.unwrap();
        assert!(fs::read_dir(&kept).unwrap().count() > ARENAS && !mirror.mirror.status().whole);
        mirror.mirror.allow(16 << 20);
        until("it has everything", || mirror.mirror.status().whole && mirror.mirror.status().end == end);
        assert_eq!((mirror.mirror.status().condemned, mirror.mirror.status().set_aside), (None, None));
        assert!(!kept.exists());
        holds(&mirror, &primary.log);
        assert_eq!(rehearses(), Rehearsal::Sound(60));
    }
}

fn kept_in(directory: &Path, kind: FabricKind) -> MirrorConfig {
    MirrorConfig { directory: Some(directory.to_owned()), ..small(kind) }
}

/// The files in a directory, without those that are directories themselves.
fn files_in(directory: &Path) -> impl Iterator<Item = fs::DirEntry> {
    fs::read_dir(directory).unwrap().map(|file| file.unwrap()).filter(|file| file.path().is_file())
}

/// The files of a process that will be killed, in another directory. To be called when it is gone:
/// what it has done since is not in them then.
fn killed(from: &Path, to: &Path) -> impl FnOnce() {
    let mut files = Vec::new();
    for file in files_in(from) {
        let path = to.join(file.file_name());
        fs::hard_link(file.path(), &path).unwrap();
        files.push((fs::read(&path).unwrap(), path));
    }
    // They stay the same files.
    move || files.into_iter().for_each(|(bytes, path)| fs::write(path, bytes).unwrap())
}

#[test]
fn a_mirror_that_was_killed_continues_with_its_memory() {
    for kind in FABRICS {
        let primary = PrimaryNode::first(config(rule(Safety::VerySafe, 1)));
        let terms = || Terms::new(TermState::empty(), Arc::new(VolatileTerms));
        let (first, second) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let before = terms();
        let mirror = MirrorNode::with(2, primary.address(), kept_in(first.path(), kind), before.clone());
        mirror.joined();
        primary.commits(primary.write(&[64, 200, 904]));
        until("it has a vote", || mirror.mirror.status().whole);
        let end = (0..40).map(|_| primary.write(&[64, 72, 400])).last().unwrap();
        primary.commits(end);
        let kill = killed(first.path(), second.path());
        drop(mirror);
        kill();
        // No primary is there, and it knows what it holds.
        let mirror = MirrorNode::with(2, "127.0.0.1:1".into(), kept_in(second.path(), kind), before.clone());
        let status = mirror.mirror.status();
        assert_eq!((status.end, status.whole, status.undone_batches), (end, true, 0));
        holds(&mirror, &primary.log);
        mirror.mirror.follow(&primary.address());
        primary.commits(primary.write(&[64, 72]));
        holds(&mirror, &primary.log);
        let files = fs::read_dir(second.path()).unwrap().count();
        drop(mirror);
        // One that ends in order is there, too; one of another life is not believed.
        let mirror = MirrorNode::with(2, "127.0.0.1:1".into(), kept_in(second.path(), kind), before);
        assert_eq!(
            (mirror.mirror.status().end, fs::read_dir(second.path()).unwrap().count()),
            (primary.log.end(), files)
        );
        drop(mirror);
        let mirror = MirrorNode::with(2, primary.address(), kept_in(second.path(), kind), terms());
        mirror.joined();
        primary.commits(primary.write(&[64]));
        holds(&mirror, &primary.log);
    }
}

/// The primary has mapped the files, and writes there while the next process takes them.
#[test]
fn a_mirror_takes_its_memory_from_those_that_have_mapped_it() {
    let primary = PrimaryNode::first(config(rule(Safety::OneSafe, 1)));
    let terms = Terms::new(TermState::empty(), Arc::new(VolatileTerms));
    let mut directory = tempfile::tempdir().unwrap();
    let kept = |directory: &TempDir| kept_in(directory.path(), FabricKind::Shm);
    let mut mirror = MirrorNode::with(2, primary.address(), kept(&directory), terms.clone());
    mirror.joined();
    let mut continued = 0;
    for _ in 0..10 {
        let next = tempfile::tempdir().unwrap();
        std::thread::scope(|scope| {
            let writing = scope.spawn(|| (0..200).map(|_| primary.write(&[64, 72, 400])).last().unwrap());
            until("it is fed", || mirror.mirror.status().mark > Lsn::ZERO);
            // The same files: what is written into them is there, too.
            for file in files_in(directory.path()) {
                match file.file_name().to_str().unwrap() {
                    "state" => drop(fs::copy(file.path(), next.path().join("state")).unwrap()),
                    name => fs::hard_link(file.path(), next.path().join(name)).unwrap(),
                }
            }
            let another = MirrorNode::with(2, primary.address(), kept(&next), terms.clone());
            continued += u32::from(another.mirror.status().end > Lsn::ZERO);
            mirror = another;
            writing.join().unwrap();
        });
        directory = next;
        let end = primary.log.end();
        until("it has everything", || mirror.mirror.status().end == end);
        holds(&mirror, &primary.log);
    }
    println!("{continued} of 10 continued with what was there");
}

/// Has `state` say something else.
fn rewrite(directory: &Path, other: impl Fn(&str) -> Option<String>) {
    let text = fs::read_to_string(directory.join("state")).unwrap();
    let lines = sealed::open(&text).unwrap().lines();
    let text: String = lines.map(|line| other(line).unwrap_or_else(|| line.to_owned()) + "\n").collect();
    fs::write(directory.join("state"), sealed::seal(text)).unwrap();
}

#[test]
fn memory_that_cannot_be_used_is_begun_again() {
    let primary = PrimaryNode::first(config(rule(Safety::OneSafe, 1)));
    let terms = Terms::new(TermState::empty(), Arc::new(VolatileTerms));
    let directory = tempfile::tempdir().unwrap();
    let config = kept_in(directory.path(), FabricKind::Tcp);
    let spoil: [&dyn Fn(); 6] = [
        // The machine was started again.
        &|| {
            rewrite(directory.path(), |line| line.starts_with("boot ").then(|| "boot before".to_owned()));
        },
        &|| fs::write(directory.path().join("state"), "nonsense").unwrap(),
        // Of another life.
        &|| rewrite(directory.path(), |line| line.starts_with("life ").then(|| format!("life {:016x}", 7))),
        // No text.
        &|| fs::write(directory.path().join("state"), [0xff; 80]).unwrap(),
        // The first superblocks, and all that is beside them.
        &|| {
            for file in files_in(directory.path()).map(|file| file.path()) {
                if file.to_str().unwrap().ends_with("-0") {
                    let mut bytes = fs::read(&file).unwrap();
                    bytes[4096..8192].fill(7);
                    fs::write(&file, bytes).unwrap();
                }
            }
        },
        &|| {
            for file in files_in(directory.path()).map(|file| file.path()) {
                if file.to_str().unwrap().ends_with("-2") {
                    fs::remove_file(&file).unwrap();
                }
            }
        },
    ];
    for spoil in spoil {
        let mirror = MirrorNode::with(2, primary.address(), config.clone(), terms.clone());
        let end = primary.write(&[64, 72, 400]);
        until("it has everything", || mirror.mirror.status().end == end);
        drop(mirror);
        spoil();
        let mirror = MirrorNode::with(2, "127.0.0.1:1".into(), config.clone(), terms.clone());
        assert_eq!((mirror.mirror.status().end, mirror.mirror.status().whole), (Lsn(0), false));
        mirror.mirror.follow(&primary.address());
        until("it has everything again", || mirror.mirror.status().end == end);
        holds(&mirror, &primary.log);
    }
}

/// Names of the files in a directory, and what is in them.
fn contents(directory: &Path) -> BTreeMap<String, Vec<u8>> {
    files_in(directory).map(|file| (file.file_name().into_string().unwrap(), fs::read(file.path()).unwrap())).collect()
}

#[test]
fn the_memory_of_another_node_or_cluster_is_refused() {
    let primary = PrimaryNode::first(config(rule(Safety::VerySafe, 1)));
    let terms = Terms::new(TermState::empty(), Arc::new(VolatileTerms));
    let directory = tempfile::tempdir().unwrap();
    let config = kept_in(directory.path(), FabricKind::Tcp);
    let mirror = MirrorNode::with(2, primary.address(), config.clone(), terms.clone());
    let end = primary.write(&[64, 72, 400]);
    primary.commits(end);
    until("it has a vote", || mirror.mirror.status().whole);
    drop(mirror);
    let ours = fs::read(directory.path().join("state")).unwrap();
    let others = [("node ", format!("node {}", NodeId(3))), ("cluster ", format!("cluster {}", ClusterId(9)))];
    for (field, other) in others {
        rewrite(directory.path(), |line| line.starts_with(field).then(|| other.clone()));
        let before = contents(directory.path());
        let started = MirrorNode::try_with(2, primary.address(), config.clone(), terms.clone());
        let why = started.err().expect("it is another one's").to_string();
        for named in [&other, directory.path().to_str().unwrap(), "mirror.keep-dir", "nothing was changed"] {
            assert!(why.contains(named), "{named}: {why}");
        }
        assert!(contents(directory.path()) == before);
    }
    fs::write(directory.path().join("state"), ours).unwrap();
    let mirror = MirrorNode::with(2, "127.0.0.1:1".into(), config, terms);
    assert_eq!((mirror.mirror.status().end, mirror.mirror.status().whole), (end, true));
}

/// Keeps terms until it has kept them this many times.
struct Ending(AtomicU32);

impl TermStore for Ending {
    fn save(&self, _: &TermState) -> Result<(), TermStoreError> {
        let left = self.0.try_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1));
        left.map(drop).map_err(|_| TermStoreError { why: "the process has ended".to_owned() })
    }
}

/// The process ends before the first step, after the first, or after the second; and once more.
#[test]
fn a_crash_while_the_memory_gets_its_next_number_loses_no_vote() {
    let primary = PrimaryNode::first(config(rule(Safety::VerySafe, 1)));
    let store = Arc::new(Ending(AtomicU32::new(u32::MAX)));
    let terms = Terms::new(TermState::empty(), Arc::clone(&store) as _);
    let directory = tempfile::tempdir().unwrap();
    let (config, in_the_way) = (kept_in(directory.path(), FabricKind::Tcp), directory.path().join("state.next"));
    let start = |upstream| MirrorNode::try_with(2, upstream, config.clone(), terms.clone());
    let life = || terms.get().life.unwrap();
    let crash = |steps: u32| {
        let before = life();
        match steps {
            1 => fs::create_dir(&in_the_way).unwrap(),
            _ => store.0.store(steps / 2, Ordering::SeqCst),
        }
        assert!(start("127.0.0.1:1".into()).is_err());
        assert_eq!(life() == before, steps == 0, "{steps} steps were done");
        store.0.store(u32::MAX, Ordering::SeqCst);
        let _ = fs::remove_dir(&in_the_way);
    };
    for crashes in (0..3).flat_map(|first| (0..3).map(move |second| [first, second])) {
        let mirror = start(primary.address()).unwrap();
        assert_eq!(life().before, None, "something is acknowledged under one number alone");
        let end = primary.write(&[64, 72, 400]);
        primary.commits(end);
        until("it has a vote", || mirror.mirror.status().whole);
        drop(mirror);
        crashes.into_iter().for_each(crash);
        let mirror = start("127.0.0.1:1".into()).unwrap();
        assert_eq!((mirror.mirror.status().end, mirror.mirror.status().whole), (end, true), "{crashes:?}");
        holds(&mirror, &primary.log);
    }
}
