//! A primary: transactions become blocks of a log, stretches of it become batches, and batches go
//! to the mirrors.

use std::{
    collections::{BTreeSet, VecDeque},
    convert::Infallible,
    fmt,
    sync::Arc,
};

use freshet_base::{
    ClusterId, Fid, RecordKind, Rid, Stamp, Term,
    sync::{AtomicU64, Ordering},
    words,
};
use freshet_cluster::mirror::Rule;
use freshet_fabric::{Place, memory::Region};
use freshet_log::{BlockBuilder, BlockKind};
use freshet_mirror::{
    ARENAS, Before, Build, Contents, DIRECTORY, Extent, Layout, MARK, NoRoom, NotPut, Ring, Superblock, UNDO,
    begin_feed,
};

use super::{
    What, World, id_of,
    memory::{History, Id, Records, Row, length, region},
};
use crate::{
    checks::{Property, Violation},
    dice::Dice,
    scenario::Broken,
};

/// How many chunks a directory has room for.
const CHUNKS: u32 = 300;
const HEAD_BYTES: u64 = DIRECTORY + CHUNKS as u64 * 64;
/// Sixteen entries.
const UNDO_BYTES: u64 = 16 * 4096;
const ARENA_BYTES: u64 = 600 << 10;
/// The longest batch, unless a block is longer.
const BATCH: usize = 8 << 10;
/// The longest stretch of the log that clients wait for.
const BACKLOG: u64 = 100_000;
/// Where the first log begins.
const FIRST: Stamp = Stamp(64);
/// All nodes are of this cluster.
pub(super) const CLUSTER: ClusterId = ClusterId(1);
/// How many records a chunk has.
const SLOTS: u64 = 4096;

/// A primary, in one term.
pub(crate) struct Reign {
    pub term: Term,
    /// Where its log begins, and ends.
    begin: Stamp,
    pub end: Stamp,
    bytes: Vec<u8>,
    /// Where its blocks end.
    blocks: Vec<Stamp>,
    records: Records,
    layout: Layout,
    /// A mirror's memory when all has landed that was built.
    image: Vec<Region>,
    batches: Vec<Batch>,
    feeds: Vec<Feed>,
    /// Those for which commits wait.
    members: BTreeSet<usize>,
    /// All members have it, and the marks of it.
    committed: Stamp,
    marked: Stamp,
    acknowledged: Stamp,
}

struct Batch {
    extent: Extent,
    build: Build,
}

/// What the completion of a list means.
#[derive(Clone, Copy, Debug)]
enum Done {
    Batch(Extent),
    Mark(Stamp),
    /// The mirror's memory is complete.
    Seeded,
}

#[derive(Debug)]
struct Feed {
    mirror: usize,
    link: usize,
    ring: Ring,
    /// The next batch to be posted.
    next: usize,
    under_way: VecDeque<(u64, Done)>,
    seeded: bool,
    /// Where it began: nothing before can be undone.
    base: Stamp,
    completed: Stamp,
    /// Up to where a mark was posted, and has arrived.
    told: Stamp,
    marked: Stamp,
}

struct Image<'i>(&'i [Region]);

impl Before for Image<'_> {
    type Error = Infallible;

    fn read(&mut self, from: Place, into: &mut [u8]) -> Result<(), Infallible> {
        words::load(self.0[from.region].words(), from.offset as usize, into);
        Ok(())
    }
}

fn store(memory: &[Region], to: Place, bytes: &[u8]) {
    words::store_among(memory[to.region].words(), to.offset as usize, bytes);
}

impl fmt::Debug for Reign {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { term, end, members, committed, marked, acknowledged, feeds, .. } = self;
        write!(
            f,
            "term {term}, log to {end}, {members:?} have committed {committed}, marked {marked}, \
             acknowledged {acknowledged}, in {} batches: {feeds:?}",
            self.batches.len()
        )
    }
}

impl Reign {
    pub fn new(term: Term, begin: Stamp, records: Records, layout: Layout, image: Vec<Region>) -> Self {
        Self {
            term,
            begin,
            end: begin,
            bytes: Vec::new(),
            blocks: Vec::new(),
            records,
            layout,
            image,
            batches: Vec::new(),
            feeds: Vec::new(),
            members: BTreeSet::new(),
            committed: begin,
            marked: begin,
            acknowledged: begin,
        }
    }

    pub fn is_level(&self) -> bool {
        let level = |feed: &Feed| feed.completed == self.end && feed.marked == self.end && feed.under_way.is_empty();
        self.acknowledged == self.end && self.feeds.iter().all(level)
    }

    fn built_to(&self) -> Stamp {
        self.batches.last().map_or(self.begin, |batch| batch.extent.to)
    }

    /// Which batch begins there, if one does or may.
    fn batch_from(&self, at: Stamp) -> Option<usize> {
        let before = self.batches.iter().position(|batch| batch.extent.kept_to() == Some(at));
        if at == self.begin { Some(0) } else { before.map(|number| number + 1) }
    }

    /// A block of these changes at the end of the log.
    fn append(&mut self, changes: &[(Id, RecordKind, Row)], is_last: bool) -> Vec<(Stamp, Id, Row)> {
        let mut builder = BlockBuilder::new();
        builder.begin();
        let push = |((fid, rid), kind, row): &(Id, RecordKind, Row)| {
            // Of every second record the log says where its rows differ.
            let before = self.records.get(&(*fid, *rid)).filter(|_| *kind == RecordKind::Update && rid.0 % 2 == 0);
            let (prev, below) = before.map(|(at, row)| (*at, row.as_deref())).unzip();
            let row_bytes = row.as_deref().unwrap_or_default();
            let at = builder.push_over(prev, *fid, *rid, *kind, row_bytes, below.flatten());
            (self.end.plus(u64::from(at.expect("it is far below the limit"))), (*fid, *rid), row.clone())
        };
        let placed: Vec<_> = changes.iter().map(push).collect();
        builder.seal_records();
        let bytes = builder.finish_part(self.end, self.term, BlockKind::Redo, is_last);
        self.end = self.end.plus(bytes.len() as u64);
        self.bytes.extend_from_slice(bytes);
        self.blocks.push(self.end);
        for (at, id, row) in &placed {
            self.records.insert(*id, (*at, row.clone()));
        }
        placed
    }

    /// Changes of records by chance.
    fn draw(&self, dice: &mut Dice) -> (Id, RecordKind, Row) {
        let fid = Fid(1 + dice.below(3) as u32);
        let rid = match fid.0 {
            3 => Rid(dice.below(16)),
            _ if dice.one_in(4) => Rid(SLOTS + dice.below(6)),
            _ => Rid(dice.below(24)),
        };
        let id = (fid, rid);
        let first = (fid, Rid(rid.0 - rid.0 % SLOTS));
        let usual = if fid.0 == 3 { 480 } else { 40 };
        let bytes = |length: u64, dice: &mut Dice| (0..length).map(|_| dice.draw() as u8).collect::<Vec<u8>>();
        if self.records.range(first..(fid, Rid(first.1.0 + SLOTS))).next().is_none() {
            // It says how long slots are.
            return (id, RecordKind::Insert, Some(bytes(usual, dice).into()));
        }
        let before = self.records.get(&id).and_then(|(_, row)| row.as_deref());
        let kind = if before.is_some() { RecordKind::Update } else { RecordKind::Insert };
        let row = match (dice.below(10), before) {
            (0 | 1, Some(_)) => return (id, RecordKind::Delete, None),
            (2, _) => {
                let length = dice.between(500, 6000);
                bytes(length, dice)
            }
            (3..8, Some(row)) if !row.is_empty() => {
                let mut row = row.to_vec();
                for _ in 0..dice.below(4) {
                    let at = dice.below(row.len() as u64) as usize;
                    row[at] ^= 1 + dice.below(255) as u8;
                }
                row
            }
            _ => {
                let length = dice.below(usual + 1);
                bytes(length, dice)
            }
        };
        (id, kind, Some(row.into()))
    }
}

impl World {
    /// The first reign.
    pub(super) fn begin(&mut self) {
        let image = vec![region(HEAD_BYTES), region(UNDO_BYTES)];
        // No term is zero.
        self.histories.push(History::new(FIRST, Records::new()));
        self.acknowledged = FIRST;
        self.reign(0, FIRST, Records::new(), Layout::new(CHUNKS), image);
    }

    /// `node` reigns from now on.
    pub(super) fn reign(&mut self, node: usize, begin: Stamp, records: Records, layout: Layout, image: Vec<Region>) {
        let term = Term(self.histories.len() as u32);
        self.note(|| format!("node {node} reigns in term {term} from {begin} on"));
        self.histories.push(History::new(begin, records.clone()));
        self.nodes[node].reign = Some(Box::new(Reign::new(term, begin, records, layout, image)));
        self.manager.primary = Some((node, term));
        self.manager.members.clear();
        self.report.reigns += 1;
    }

    /// A transaction at every node that takes itself for the primary.
    pub(super) fn client(&mut self) -> Result<(), Violation> {
        let pause = self.dice.between(50, 700);
        self.after(pause, What::Client);
        for node in 0..self.nodes.len() {
            let state = &self.nodes[node];
            let Some(reign) = state.reign.as_ref().filter(|_| self.writing && state.up && !state.stopped) else {
                continue;
            };
            if reign.end.since(reign.acknowledged) < BACKLOG {
                self.transaction(node);
                self.pump_soon(node);
            }
        }
        Ok(())
    }

    /// What is written in the meantime comes into the same batch.
    fn pump_soon(&mut self, node: usize) {
        let pause = self.dice.between(10, 600);
        self.later(pause, node, |node, life| What::Pump { node, life });
    }

    fn transaction(&mut self, node: usize) {
        let mut reign = self.nodes[node].reign.take().expect("it was asked");
        let history = &mut self.histories[reign.term.0 as usize];
        let parts = if self.dice.one_in(5) { self.dice.between(2, 4) } else { 1 };
        for part in 1..=parts {
            let mut changes: Vec<(Id, RecordKind, Row)> = Vec::new();
            for _ in 0..self.dice.between(1, 7) {
                let change = reign.draw(&mut self.dice);
                // The next one is drawn by what was there before.
                if changes.iter().all(|(id, ..)| *id != change.0) {
                    changes.push(change);
                }
            }
            for (at, id, row) in reign.append(&changes, part == parts) {
                history.change(at, id, row);
            }
        }
        history.end_transaction(reign.end);
        self.nodes[node].reign = Some(reign);
    }

    /// Builds what was written, and posts what there is room for.
    pub(super) fn pump(&mut self, node: usize) -> Result<(), Violation> {
        let Some(mut reign) = self.nodes[node].reign.take() else { return Ok(()) };
        while reign.built_to() < reign.end && self.dice.below(4) > 0 {
            self.build(&mut reign)?;
        }
        let waits = reign.built_to() < reign.end;
        for number in 0..reign.feeds.len() {
            self.post(&mut reign, number);
        }
        // A mirror that has joined level has nothing to complete.
        let outcome = self.settle(node, &mut reign);
        self.nodes[node].reign = Some(reign);
        if waits {
            self.pump_soon(node);
        }
        outcome
    }

    /// The next batch: it ends where a block does.
    fn build(&mut self, reign: &mut Reign) -> Result<(), Violation> {
        let from = reign.built_to();
        let next = reign.blocks.partition_point(|end| *end <= from);
        let fit = reign.blocks.partition_point(|end| end.since(from) <= BATCH as u64).max(next + 1);
        // Mostly all that there is.
        let last = if self.dice.one_in(4) { next + self.dice.below((fit - next) as u64) as usize } else { fit - 1 };
        let to = reign.blocks[last];
        let (at, length) = (from.since(reign.begin) as usize, to.since(from) as usize);
        let (mut build, mut batch) = (Build::new(), freshet_mirror::Batch::new());
        batch.room(length).copy_from_slice(&reign.bytes[at..at + length]);
        let extent = match batch.begin(from, length) {
            Ok(extent) => extent,
            Err(why) => return Property::Mirrors.violated(why.to_string()),
        };
        build.begin(Arc::new(batch));
        while let Err(why) = build.put(&mut reign.layout, &mut Image(&reign.image)) {
            let NotPut::NoRoom(NoRoom::Arena { bytes }) = why else {
                return Property::Mirrors.violated(why.to_string());
            };
            self.grow(reign, bytes.max(ARENA_BYTES));
        }
        build.list().for_each(|(to, bytes)| store(&reign.image, to, bytes));
        reign.batches.push(Batch { extent, build });
        Ok(())
    }

    /// Another arena, on all mirrors.
    fn grow(&mut self, reign: &mut Reign, bytes: u64) {
        reign.layout.grow(reign.image.len(), bytes);
        reign.image.push(region(bytes));
        for feed in &reign.feeds {
            let link = &mut self.links[feed.link];
            let arena = region(bytes);
            link.posted.attach(Arc::clone(&arena));
            if link.open && !link.revoked {
                self.nodes[feed.mirror].memory.push(arena);
            }
        }
    }

    /// Posts to one mirror the batches for which its ring has room, and its mark.
    fn post(&mut self, reign: &mut Reign, number: usize) {
        let feed = &mut reign.feeds[number];
        let posted = &mut self.links[feed.link].posted;
        while let Some(batch) = reign.batches.get_mut(feed.next) {
            if batch.build.after() > feed.marked && self.scenario.broken != Broken::WrittenOverEarly {
                break;
            }
            if batch.build.enter(&mut feed.ring).is_err() {
                break;
            }
            let token = if self.scenario.broken == Broken::UndoBehindData {
                let is_undo = |(to, _): &(Place, &[u8])| to.region == UNDO;
                let data = batch.build.list().filter(|write| !is_undo(write));
                posted.post(data.chain(batch.build.list().filter(is_undo)))
            } else {
                posted.post(batch.build.list())
            };
            feed.under_way.push_back((token, Done::Batch(batch.extent)));
            feed.next += 1;
        }
        if let Some(mark) = feed.ring.mark(reign.committed).filter(|mark| *mark > feed.told) {
            let bytes = mark.0.to_le_bytes();
            let token = posted.post([(Place { region: 0, offset: MARK }, &bytes[..])].into_iter());
            feed.under_way.push_back((token, Done::Mark(mark)));
            feed.told = mark;
        }
        let link = feed.link;
        self.deliver(link);
    }

    /// A list is complete, with all before it.
    pub(super) fn completed(&mut self, link: usize, token: u64) -> Result<(), Violation> {
        if self.links[link].revoked && !self.cards {
            // The writer looks after writing whether that counts.
            return self.lost(link);
        }
        let node = self.links[link].from;
        let Some(mut reign) = self.nodes[node].reign.take() else { return Ok(()) };
        if let Some(feed) = reign.feeds.iter_mut().find(|feed| feed.link == link) {
            while let Some((_, done)) = feed.under_way.pop_front_if(|(under_way, _)| *under_way <= token) {
                match done {
                    Done::Batch(batch) => feed.completed = batch.kept_to().unwrap_or(feed.completed),
                    Done::Mark(to) => feed.marked = to,
                    Done::Seeded => (feed.seeded, feed.completed, feed.marked) = (true, feed.base, feed.base),
                }
            }
        }
        let outcome = self.settle(node, &mut reign);
        self.nodes[node].reign = Some(reign);
        self.later(10, node, |node, life| What::Pump { node, life });
        outcome
    }

    /// A mirror cannot be written to any more: the manager takes it out, or says that this primary
    /// was given up.
    pub(super) fn lost(&mut self, link: usize) -> Result<(), Violation> {
        let node = self.links[link].from;
        self.close(link);
        let Some(reign) = &self.nodes[node].reign else { return Ok(()) };
        let Some(at) = reign.feeds.iter().position(|feed| feed.link == link) else { return Ok(()) };
        if self.manager.primary != Some((node, reign.term)) {
            return self.depose(node);
        }
        let mut reign = self.nodes[node].reign.take().expect("it was there");
        let mirror = reign.feeds.remove(at).mirror;
        reign.members.remove(&mirror);
        self.manager.members.remove(&mirror);
        let outcome = self.settle(node, &mut reign);
        self.nodes[node].reign = Some(reign);
        outcome
    }

    /// A primary hears that it was succeeded.
    pub(super) fn depose(&mut self, node: usize) -> Result<(), Violation> {
        self.note(|| format!("node {node} is deposed"));
        let reign = self.nodes[node].reign.take();
        reign.iter().flat_map(|reign| &reign.feeds).for_each(|feed| self.close(feed.link));
        let rest = self.check_rest(node);
        self.nodes[node].rests_on = None;
        rest
    }

    /// Takes mirrors in that have what is committed, and tells clients what is.
    fn settle(&mut self, node: usize, reign: &mut Reign) -> Result<(), Violation> {
        let of = |reign: &Reign, what: fn(&Feed) -> Stamp| {
            let members = reign.feeds.iter().filter(|feed| reign.members.contains(&feed.mirror));
            members.map(what).min()
        };
        for number in 0..reign.feeds.len() {
            let feed = &reign.feeds[number];
            // What it cannot undo is marked everywhere, and what others cannot undo is marked
            // there, so that all keep the same.
            let can_undo = feed.base <= reign.marked && feed.marked >= reign.marked;
            let is_ready = can_undo || self.rule == Rule::Whole || reign.members.is_empty();
            let is_near = feed.seeded && feed.completed >= reign.committed && is_ready;
            if is_near && self.manager.primary == Some((node, reign.term)) {
                if reign.members.is_empty() {
                    // What the only one has is committed, before another one is looked at.
                    reign.committed = reign.committed.max(feed.completed);
                    reign.marked = reign.marked.max(feed.marked);
                }
                reign.members.insert(feed.mirror);
                self.manager.members.insert(feed.mirror);
            }
        }
        reign.committed = reign.committed.max(of(reign, |feed| feed.completed).unwrap_or_default());
        reign.marked = reign.marked.max(of(reign, |feed| feed.marked).unwrap_or_default());
        let early = self.scenario.broken == Broken::UndoUsedEarly;
        for feed in &mut reign.feeds {
            let own = self.rule == Rule::Whole || early;
            feed.ring.marked(if own { feed.marked } else { feed.marked.min(reign.marked) });
        }
        reign.layout.committed(reign.marked);
        let told = match self.rule {
            Rule::Marked if self.scenario.broken != Broken::ToldBeforeMarked => reign.marked,
            _ => reign.committed,
        };
        self.acknowledge(reign, told)
    }

    /// Clients are told of what ends at `upto` or before.
    fn acknowledge(&mut self, reign: &mut Reign, upto: Stamp) -> Result<(), Violation> {
        let history = &self.histories[reign.term.0 as usize];
        let ((whole, count), (_, before)) = (history.ended(upto), history.ended(reign.acknowledged));
        if whole <= reign.acknowledged {
            return Ok(());
        }
        self.report.acknowledged += (count - before) as u64;
        reign.acknowledged = whole;
        self.acknowledged = self.acknowledged.max(whole);
        let mut later = self.histories.iter().skip(reign.term.0 as usize + 1);
        match later.find(|later| later.begin < whole) {
            Some(later) => Property::Acknowledged.violated(format!(
                "term {} acknowledges what ends at {whole}, and a later reign has begun at {}",
                reign.term, later.begin
            )),
            None => Ok(()),
        }
    }

    /// `primary` feeds `node`: from where its memory is, if it can; else it is filled.
    pub(super) fn feed(&mut self, primary: usize, node: usize, at: Option<Stamp>) {
        let Some(mut reign) = self.nodes[primary].reign.take() else { return };
        let from = at.and_then(|at| reign.batch_from(at).map(|batch| (at, batch)));
        if from.is_none() && reign.batches.last().is_some_and(|batch| batch.extent.continues) {
            // A memory is complete where a transaction ends.
            self.nodes[primary].reign = Some(reign);
            return;
        }
        // It comes in again when it has what is committed.
        reign.members.remove(&node);
        self.manager.members.remove(&node);
        let old = reign.feeds.iter().position(|feed| feed.mirror == node).map(|old| reign.feeds.remove(old));
        old.into_iter().for_each(|old| self.close(old.link));
        let fits =
            |memory: &[Region]| memory.iter().zip(&reign.image).all(|(theirs, ours)| length(theirs) == length(ours));
        let from = from.filter(|_| fits(&self.nodes[node].memory));
        let memory = &mut self.nodes[node].memory;
        if from.is_none() {
            memory.clear();
        }
        // Arenas that an earlier primary had added are not of this layout.
        memory.truncate(reign.image.len());
        for known in &reign.image[memory.len()..] {
            memory.push(region(length(known)));
        }
        let (base, next) = from.unwrap_or((reign.built_to(), reign.batches.len()));
        let link = self.connect(primary, node);
        let how = if from.is_some() { "continues" } else { "is filled" };
        self.note(|| format!("node {node} {how} at {base}, by node {primary} on link {link}"));
        let mut under_way = VecDeque::new();
        let memory = &self.nodes[node].memory;
        let block = Superblock { sequence: 1, cluster: CLUSTER, feeder: id_of(primary), term: reign.term, base };
        if from.is_none() {
            let (offset, bytes) = block.encode();
            let token = self.fill(link, &reign.image, (Place { region: 0, offset }, &bytes[..]));
            under_way.push_back((token, Done::Seeded));
        } else if self.scenario.broken != Broken::RingNotCleared {
            begin_feed(memory, CLUSTER, block.feeder, block.term, base);
        } else {
            let known = Contents::open(memory.clone(), base).map_or(0, |mirror| mirror.superblock().sequence);
            let (offset, bytes) = Superblock { sequence: known + 1, ..block }.encode();
            store(memory, Place { region: 0, offset }, &bytes);
        }
        let (seeded, ring) = (from.is_some(), Ring::new(UNDO_BYTES));
        let known = if seeded { base } else { Stamp::ZERO };
        reign.feeds.push(Feed {
            mirror: node,
            link,
            ring,
            next,
            under_way,
            seeded,
            base,
            completed: known,
            told: base,
            marked: known,
        });
        self.nodes[primary].reign = Some(reign);
        self.deliver(link);
        self.later(1, primary, |node, life| What::Pump { node, life });
    }

    /// Posts all that is in `image`, and at last the superblock: without it the memory is no
    /// mirror.
    fn fill(&mut self, link: usize, image: &[Region], superblock: (Place, &[u8])) -> u64 {
        const PIECE: usize = 4096;
        let mut list = Vec::new();
        for (number, from) in image.iter().enumerate().filter(|(number, _)| *number != UNDO) {
            let begin = if number < ARENAS { DIRECTORY as usize } else { 0 };
            for at in (begin..length(from) as usize).step_by(PIECE) {
                let end = (at + PIECE).min(length(from) as usize);
                // Relaxed: no other thread is here.
                let is_zero = |word: &AtomicU64| word.load(Ordering::Relaxed) == 0;
                if !from.words()[at / 8..end / 8].iter().all(is_zero) {
                    let mut bytes = vec![0; end - at];
                    words::load(from.words(), at, &mut bytes);
                    list.push((Place { region: number, offset: at as u64 }, bytes));
                }
            }
        }
        let writes = list.iter().map(|(to, bytes)| (*to, &bytes[..]));
        self.links[link].posted.post(writes.chain([superblock]))
    }
}
