//! A primary: transactions become blocks of a log, stretches of it become batches, and batches go
//! to the mirrors, to each in its own places.

use std::{
    collections::{BTreeSet, VecDeque},
    fmt,
    sync::Arc,
};

use freshet_base::{ClusterId, Fid, Lsn, RecordKind, Rid, Term, words};
use freshet_cluster::{handshake::Sender, mirror::Rule, term::TermHistory};
use freshet_fabric::{Place, memory::Region};
use freshet_log::{Block, BlockBuilder, BlockError, BlockKind};
use freshet_mirror::{
    Batch, Build, Contents, DIRECTORY, Extent, Here, Layout, MARK, NoRoom, NotPut, Ring, UNDO, note_undo,
};

use super::{
    What, World, id_of,
    joining::Checkpoint,
    memory::{History, Id, Records, Row, moved, region},
    recovering::damaged,
    taking::begun,
};
use crate::{
    checks::{Property, Violation},
    dice::Dice,
    scenario::Broken,
};

/// How many chunks a directory has room for.
const CHUNKS: u32 = 300;
pub(super) const HEAD_BYTES: u64 = DIRECTORY + CHUNKS as u64 * 64;
/// Sixteen entries.
pub(super) const UNDO_BYTES: u64 = 16 * 4096;
pub(super) const ARENA_BYTES: u64 = 600 << 10;
/// The longest batch, unless a block is longer.
const BATCH: usize = 8 << 10;
/// The longest stretch of the log that clients wait for.
const BACKLOG: u64 = 100_000;
/// Where the first log begins.
const FIRST: Lsn = Lsn::ZERO;
/// All nodes are of this cluster.
pub(super) const CLUSTER: ClusterId = ClusterId(1);
/// How many records a chunk has.
const SLOTS: u64 = 4096;

/// A log, as far as a node has it.
pub(crate) struct Log {
    pub from: Lsn,
    pub end: Lsn,
    pub bytes: Vec<u8>,
    /// Where its blocks end.
    pub blocks: Vec<Lsn>,
}

impl Log {
    /// That begins with these blocks.
    pub fn of(from: Lsn, bytes: Vec<u8>) -> Result<Self, BlockError> {
        let (mut end, mut blocks) = (from, Vec::new());
        while end.since(from) < bytes.len() as u64 {
            let block = Block::parse(&bytes[end.since(from) as usize..], end)?;
            end = end.plus(block.bytes().len() as u64);
            blocks.push(end);
        }
        Ok(Self { from, end, bytes, blocks })
    }

    /// What lies from there on, where a block begins.
    pub fn from(&self, at: Lsn) -> Self {
        let behind = self.blocks.partition_point(|end| *end <= at);
        let bytes = self.bytes[at.since(self.from) as usize..].to_vec();
        Self { from: at, end: self.end, bytes, blocks: self.blocks[behind..].to_vec() }
    }
}

/// A primary, in one term.
pub(crate) struct Lead {
    pub term: Term,
    history: TermHistory,
    /// Where it began.
    begin: Lsn,
    pub log: Log,
    /// What is below is not kept.
    kept_from: Lsn,
    records: Records,
    batches: Vec<Arc<Batch>>,
    feeds: Vec<Feed>,
    /// Those for which commits wait.
    members: BTreeSet<usize>,
    /// All members have it, and the marks of it.
    committed: Lsn,
    marked: Lsn,
    acknowledged: Lsn,
}

/// What the completion of a list means.
#[derive(Clone, Copy, Debug)]
enum Done {
    Batch(Extent),
    Mark(Lsn),
}

struct Feed {
    mirror: usize,
    link: usize,
    ring: Ring,
    layout: Layout,
    /// The mirror's memory when all has landed that was posted.
    image: Vec<Region>,
    build: Build,
    /// The batch that `build` has and that is not posted.
    waits: Option<Extent>,
    /// Where the next batch begins.
    next: Lsn,
    under_way: VecDeque<(u64, Done)>,
    /// Its memory was a state of the database when it came.
    member: bool,
    /// Where it began: nothing before can be undone.
    base: Lsn,
    completed: Lsn,
    /// Up to where a mark was posted, and has arrived.
    posted_mark: Lsn,
    marked: Lsn,
}

impl fmt::Debug for Feed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { mirror, member, base, completed, posted_mark, marked, next, .. } = self;
        write!(f, "{mirror} ({member}) from {base} to {next}, {completed} completed, {marked} of {posted_mark} marked")
    }
}

fn store(memory: &[Region], to: Place, bytes: &[u8]) {
    words::store_among(memory[to.region].words(), to.offset as usize, bytes);
}

impl fmt::Debug for Lead {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { term, log: Log { end, .. }, members, committed, marked, acknowledged, feeds, .. } = self;
        write!(
            f,
            "term {term}, log to {end}, {members:?} have committed {committed}, marked {marked}, \
             acknowledged {acknowledged}, in {} batches: {feeds:?}",
            self.batches.len()
        )
    }
}

impl Lead {
    pub fn new(term: Term, history: TermHistory, log: Log, records: Records) -> Self {
        let (begin, kept_from) = (log.end, log.from);
        Self {
            term,
            history,
            begin,
            log,
            kept_from,
            records,
            batches: Vec::new(),
            feeds: Vec::new(),
            members: BTreeSet::new(),
            committed: begin,
            marked: begin,
            acknowledged: begin,
        }
    }

    pub fn is_level(&self) -> bool {
        let end = self.log.end;
        let level = |feed: &Feed| feed.completed == end && feed.marked == end && feed.under_way.is_empty();
        self.acknowledged == end && self.feeds.iter().all(level)
    }

    /// How it introduces itself, and from where on its log is kept.
    pub fn sender(&self, node: usize) -> (Sender, Lsn) {
        let sender = Sender {
            cluster: CLUSTER,
            node: id_of(node),
            above: Vec::new(),
            term: self.term,
            history: self.history.clone(),
            end: self.log.end,
            needed_capacity: 0,
            keep_alive_ms: 1,
        };
        (sender, self.kept_from)
    }

    fn built_to(&self) -> Lsn {
        self.batches.last().map_or(self.log.from, |batch| batch.extent().to)
    }

    /// These bytes of the log as a batch.
    fn batch(&self, from: Lsn, to: Lsn) -> Result<Batch, Violation> {
        let (mut batch, length) = (Batch::new(), to.since(from) as usize);
        let at = from.since(self.log.from) as usize;
        batch.room(length).copy_from_slice(&self.log.bytes[at..at + length]);
        match batch.begin(from, length) {
            Ok(_) => Ok(batch),
            Err(why) => Property::Mirrors.violated(why.to_string()),
        }
    }

    /// The batch that begins there for one mirror, if it is built. One that comes within one gets
    /// the rest alone. So does one that does not `share`, since it may not have exactly the log up
    /// to there.
    fn next_batch(&self, from: Lsn, share: bool) -> Result<Option<Arc<Batch>>, Violation> {
        let number = self.batches.partition_point(|batch| batch.extent().to <= from);
        match self.batches.get(number) {
            Some(batch) if share && batch.extent().from == from => Ok(Some(Arc::clone(batch))),
            Some(batch) => self.batch(from, batch.extent().to).map(|batch| Some(Arc::new(batch))),
            None => Ok(None),
        }
    }

    /// A block of these changes at the end of the log.
    fn append(&mut self, changes: &[(Id, RecordKind, Row)], is_last: bool) -> Vec<(Lsn, Id, Row)> {
        let mut builder = BlockBuilder::new();
        builder.begin();
        let push = |((fid, rid), kind, row): &(Id, RecordKind, Row)| {
            // Of every second record the log says where its rows differ.
            let before = self.records.get(&(*fid, *rid)).filter(|_| *kind == RecordKind::Update && rid.0 % 2 == 0);
            let (prev, below) = before.map(|(at, row)| (*at, row.as_deref())).unzip();
            let row_bytes = row.as_deref().unwrap_or_default();
            let at = builder.push_over(prev, *fid, *rid, *kind, row_bytes, below.flatten());
            (self.log.end.plus(u64::from(at.expect("it is far below the limit"))), (*fid, *rid), row.clone())
        };
        let placed: Vec<_> = changes.iter().map(push).collect();
        builder.seal_records();
        let log = &mut self.log;
        let bytes = builder.finish_part(log.end, self.term, BlockKind::Redo, is_last);
        log.end = log.end.plus(bytes.len() as u64);
        log.bytes.extend_from_slice(bytes);
        log.blocks.push(log.end);
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
    /// The first term.
    pub(super) fn begin(&mut self) {
        // No term is zero.
        self.histories.0.push(History::new(FIRST, None, Records::new()));
        self.acknowledged = FIRST;
        let log = Log { from: FIRST, end: FIRST, bytes: Vec::new(), blocks: Vec::new() };
        self.lead(0, log, (Term(0), TermHistory::default()), Records::new());
    }

    /// `node` leads from now on; its log is that of an earlier term.
    pub(super) fn lead(&mut self, node: usize, log: Log, (before, history): (Term, TermHistory), records: Records) {
        let (term, begin) = (Term(self.histories.0.len() as u32), log.end);
        self.note(|| format!("node {node} leads in term {term} from {begin} on, with a log from {}", log.from));
        self.histories.0.push(History::new(begin, Some(before), records.clone()));
        let history = begun(&history, term, node, begin);
        self.nodes[node].lead = Some(Box::new(Lead::new(term, history, log, records)));
        self.manager.primary = Some((node, term));
        self.manager.members.clear();
        self.report.leads += 1;
    }

    /// A transaction at every node that takes itself for the primary.
    pub(super) fn client(&mut self) -> Result<(), Violation> {
        let pause = self.dice.between(50, 700);
        self.after(pause, What::Client);
        for node in 0..self.nodes.len() {
            let state = &self.nodes[node];
            let Some(lead) = state.lead.as_ref().filter(|_| self.writing && state.up && !state.stopped) else {
                continue;
            };
            if lead.log.end.since(lead.acknowledged) < BACKLOG {
                self.transaction(node);
                self.pump_soon(node);
            }
        }
        Ok(())
    }

    /// What is written in the meantime comes into the same batch.
    pub(super) fn pump_soon(&mut self, node: usize) {
        let pause = self.dice.between(10, 600);
        self.later(pause, node, |node, life| What::Pump { node, life });
    }

    fn transaction(&mut self, node: usize) {
        let mut lead = self.nodes[node].lead.take().expect("it was asked");
        let history = self.histories.of_mut(lead.term);
        let parts = match self.dice.below(100) {
            // It writes over more than an undo ring holds.
            0 => self.dice.between(80, 160),
            1..20 => self.dice.between(2, 4),
            _ => 1,
        };
        for part in 1..=parts {
            let mut changes: Vec<(Id, RecordKind, Row)> = Vec::new();
            for _ in 0..self.dice.between(1, 7) {
                let change = lead.draw(&mut self.dice);
                // The next one is drawn by what was there before.
                if changes.iter().all(|(id, ..)| *id != change.0) {
                    changes.push(change);
                }
            }
            for (at, id, row) in lead.append(&changes, part == parts) {
                history.change(at, id, row);
            }
        }
        history.end_transaction(lead.log.end);
        self.nodes[node].lead = Some(lead);
    }

    /// Builds what was written, and posts what there is room for.
    pub(super) fn pump(&mut self, node: usize) -> Result<(), Violation> {
        let Some(mut lead) = self.nodes[node].lead.take() else { return Ok(()) };
        while lead.built_to() < lead.log.end && self.dice.below(4) > 0 {
            self.build(&mut lead)?;
        }
        let waits = lead.built_to() < lead.log.end;
        for number in 0..lead.feeds.len() {
            if let Err(why) = self.post(&mut lead, number) {
                self.nodes[node].lead = Some(lead);
                return Err(why);
            }
        }
        // A mirror that has joined level has nothing to complete.
        let outcome = self.settle(node, &mut lead);
        self.nodes[node].lead = Some(lead);
        if waits {
            self.pump_soon(node);
        }
        outcome
    }

    /// The next batch: it ends where a block does.
    fn build(&mut self, lead: &mut Lead) -> Result<(), Violation> {
        let (from, blocks) = (lead.built_to(), &lead.log.blocks);
        let next = blocks.partition_point(|end| *end <= from);
        let fit = blocks.partition_point(|end| end.since(from) <= BATCH as u64).max(next + 1);
        // Mostly all that there is.
        let last = if self.dice.one_in(4) { next + self.dice.below((fit - next) as u64) as usize } else { fit - 1 };
        let batch = lead.batch(from, blocks[last])?;
        lead.batches.push(Arc::new(batch));
        Ok(())
    }

    /// Another arena.
    fn grow(&mut self, feed: &mut Feed, bytes: u64) {
        feed.layout.grow(feed.image.len(), bytes);
        feed.image.push(region(bytes));
        let link = &mut self.links[feed.link];
        let arena = region(bytes);
        link.posted.attach(Arc::clone(&arena));
        if link.open && !link.revoked {
            self.nodes[feed.mirror].memory.push(arena);
        }
    }

    /// More of the undo ring.
    fn grow_undo(&mut self, feed: &mut Feed, bytes: u64) {
        feed.ring.grow(feed.image.len(), bytes);
        feed.image.push(region(bytes));
        let link = &mut self.links[feed.link];
        let more = region(bytes);
        link.posted.attach(Arc::clone(&more));
        if link.open && !link.revoked {
            let memory = &mut self.nodes[feed.mirror].memory;
            memory.push(more);
            let is_noted = note_undo(memory, memory.len() - 1);
            assert!(is_noted, "there is room");
        }
        self.report.larger += 1;
    }

    /// Posts to one mirror the batches for which its ring has room, and its mark.
    fn post(&mut self, lead: &mut Lead, number: usize) -> Result<(), Violation> {
        let mut feed = lead.feeds.swap_remove(number);
        let posted = self.post_batches(lead, &mut feed);
        let link = feed.link;
        if let Some(mark) = feed.ring.mark(lead.committed.min(feed.completed)).filter(|mark| *mark > feed.posted_mark) {
            let bytes = mark.0.to_le_bytes();
            let to = Place { region: 0, offset: MARK };
            let token = self.links[link].posted.post([(to, &bytes[..])].into_iter());
            store(&feed.image, to, &bytes);
            feed.under_way.push_back((token, Done::Mark(mark)));
            feed.posted_mark = mark;
        }
        lead.feeds.push(feed);
        let last = lead.feeds.len() - 1;
        lead.feeds.swap(number, last);
        self.deliver(link);
        posted
    }

    fn post_batches(&mut self, lead: &Lead, feed: &mut Feed) -> Result<(), Violation> {
        let shares = feed.member || self.scenario.broken == Broken::SharedEarly;
        loop {
            let extent = match feed.waits {
                Some(extent) => extent,
                None => {
                    let Some(batch) = lead.next_batch(feed.next, shares)? else { return Ok(()) };
                    let extent = batch.extent();
                    drop(feed.build.begin(batch));
                    *feed.waits.insert(extent)
                }
            };
            while let Err(why) = feed.build.put(&mut feed.layout, &mut Here(&feed.image)) {
                let NotPut::NoRoom(NoRoom::Arena { bytes }) = why else {
                    return Property::Mirrors.violated(why.to_string());
                };
                self.grow(feed, bytes.max(ARENA_BYTES));
            }
            while let Err(full) = feed.build.enter(&mut feed.ring) {
                if full.needed <= full.all && feed.ring.mark(Lsn::MAX).is_some() {
                    return Ok(());
                }
                // A transaction writes over more than it holds.
                self.grow_undo(feed, full.lacking_bytes().max(UNDO_BYTES));
            }
            let posted = &mut self.links[feed.link].posted;
            let token = if self.scenario.broken == Broken::UndoBehindData {
                let is_undo = |(to, _): &(Place, &[u8])| to.region == UNDO;
                let data = feed.build.list().filter(|write| !is_undo(write));
                posted.post(data.chain(feed.build.list().filter(is_undo)))
            } else {
                posted.post(feed.build.list())
            };
            feed.build.list().for_each(|(to, bytes)| store(&feed.image, to, bytes));
            feed.under_way.push_back((token, Done::Batch(extent)));
            (feed.next, feed.waits) = (extent.to, None);
        }
    }

    /// A list is complete, with all before it.
    pub(super) fn completed(&mut self, link: usize, token: u64) -> Result<(), Violation> {
        if self.links[link].revoked && !self.cards {
            // The writer looks after writing whether that counts.
            return self.lost(link);
        }
        let node = self.links[link].from;
        let Some(mut lead) = self.nodes[node].lead.take() else { return Ok(()) };
        if let Some(feed) = lead.feeds.iter_mut().find(|feed| feed.link == link) {
            while let Some((_, done)) = feed.under_way.pop_front_if(|(under_way, _)| *under_way <= token) {
                match done {
                    Done::Batch(batch) => feed.completed = batch.kept_to().unwrap_or(feed.completed),
                    Done::Mark(to) => feed.marked = to,
                }
            }
            let (to, end, committed) = (feed.completed, lead.log.end, lead.committed);
            let (mirror, pause) = (feed.mirror, self.dice.between(5, 500));
            let life = self.nodes[mirror].life;
            self.after(pause, What::Watermark { node: mirror, life, link, to, end, committed });
        }
        let outcome = self.settle(node, &mut lead);
        self.nodes[node].lead = Some(lead);
        self.later(10, node, |node, life| What::Pump { node, life });
        outcome
    }

    /// A mirror cannot be written to any more: the manager takes it out, or says that this primary
    /// was given up.
    pub(super) fn lost(&mut self, link: usize) -> Result<(), Violation> {
        let (node, mirror) = (self.links[link].from, self.links[link].to);
        self.close(link);
        let Some(lead) = &self.nodes[node].lead else { return Ok(()) };
        if lead.feeds.iter().all(|feed| feed.link != link) {
            return Ok(());
        }
        if self.manager.primary != Some((node, lead.term)) {
            return self.depose(node);
        }
        self.leave(mirror, node)
    }

    /// `primary` does without a mirror, until that comes in again with all that is committed.
    pub(super) fn leave(&mut self, mirror: usize, primary: usize) -> Result<(), Violation> {
        let Some(mut lead) = self.nodes[primary].lead.take() else { return Ok(()) };
        lead.members.remove(&mirror);
        self.manager.members.remove(&mirror);
        let old = lead.feeds.iter().position(|feed| feed.mirror == mirror).map(|old| lead.feeds.remove(old));
        old.into_iter().for_each(|old| self.close(old.link));
        let outcome = self.settle(primary, &mut lead);
        self.nodes[primary].lead = Some(lead);
        outcome
    }

    /// A primary hears that it was succeeded.
    pub(super) fn depose(&mut self, node: usize) -> Result<(), Violation> {
        self.note(|| format!("node {node} is deposed"));
        let lead = self.nodes[node].lead.take();
        lead.iter().flat_map(|lead| &lead.feeds).for_each(|feed| self.close(feed.link));
        let rest = self.check_rest(node);
        self.nodes[node].rests_on = None;
        rest
    }

    /// Takes mirrors in that have what is committed, and tells clients what is.
    fn settle(&mut self, node: usize, lead: &mut Lead) -> Result<(), Violation> {
        let of = |lead: &Lead, what: fn(&Feed) -> Lsn| {
            let members = lead.feeds.iter().filter(|feed| lead.members.contains(&feed.mirror));
            members.map(what).min()
        };
        for number in 0..lead.feeds.len() {
            let feed = &lead.feeds[number];
            // What it cannot undo is marked everywhere, and what others cannot undo is marked
            // there, so that all keep the same.
            let can_undo = feed.base <= lead.marked || lead.members.is_empty();
            let is_ready = can_undo && feed.marked >= lead.marked || self.rule == Rule::Whole;
            let is_near = feed.member && feed.completed >= lead.committed && is_ready;
            if is_near && self.manager.primary == Some((node, lead.term)) {
                if lead.members.is_empty() {
                    // What the only one has is committed, before another one is looked at.
                    lead.committed = lead.committed.max(feed.completed);
                    lead.marked = lead.marked.max(feed.marked);
                }
                lead.members.insert(feed.mirror);
                self.manager.members.insert(feed.mirror);
            }
        }
        lead.committed = lead.committed.max(of(lead, |feed| feed.completed).unwrap_or_default());
        lead.marked = lead.marked.max(of(lead, |feed| feed.marked).unwrap_or_default());
        let early = self.scenario.broken == Broken::UndoUsedEarly;
        for feed in &mut lead.feeds {
            let own = self.rule == Rule::Whole || early;
            let marked = feed.marked.min(lead.marked);
            feed.ring.marked(if own { feed.marked } else { marked });
            // Where it is known to be needed no more, it is written over.
            let early = self.scenario.broken == Broken::WrittenOverEarly;
            let whole = if self.rule == Rule::Whole { feed.marked } else { marked };
            feed.layout.committed(if early { lead.marked } else { whole });
        }
        let upto = match self.rule {
            Rule::Marked if self.scenario.broken != Broken::AcknowledgedBeforeMarked => lead.marked,
            _ => lead.committed,
        };
        self.acknowledge(lead, upto)
    }

    /// What ends at `upto` or before is acknowledged to clients.
    fn acknowledge(&mut self, lead: &mut Lead, upto: Lsn) -> Result<(), Violation> {
        let history = self.histories.of(lead.term);
        let ((whole, count), (_, before)) = (history.ended(upto), history.ended(lead.acknowledged));
        if whole <= lead.acknowledged {
            return Ok(());
        }
        self.report.acknowledged += (count - before) as u64;
        lead.acknowledged = whole;
        self.acknowledged = self.acknowledged.max(whole);
        let mut later = self.histories.0.iter().skip(lead.term.0 as usize + 1);
        match later.find(|later| later.begin < whole) {
            Some(later) => Property::Acknowledged.violated(format!(
                "term {} acknowledges what ends at {whole}, and a later term has begun at {}",
                lead.term, later.begin
            )),
            None => Ok(()),
        }
    }

    /// `primary` feeds `node`, whose memory has everything up to `at`.
    pub(super) fn feed(&mut self, primary: usize, node: usize, at: Lsn) -> Result<(), Violation> {
        let memory = &self.nodes[node].memory;
        let mirror = Contents::open(memory.clone(), at).and_then(|mirror| mirror.description());
        let (ring, lengths) = Ring::of(memory);
        let mut layout = mirror.and_then(|description| Layout::of(&description, &lengths)).map_err(damaged)?;
        layout.committed(at);
        let image = moved(memory);
        let link = self.connect(primary, node);
        let member = self.mirror_state(node).is_state();
        self.note(|| format!("node {node} continues at {at}, by node {primary} on link {link}, as a member: {member}"));
        let lead = self.nodes[primary].lead.as_mut().expect("it leads");
        lead.feeds.push(Feed {
            mirror: node,
            link,
            ring,
            layout,
            image,
            build: Build::new(),
            waits: None,
            next: at,
            under_way: VecDeque::new(),
            member,
            base: at,
            completed: at,
            posted_mark: at,
            marked: at,
        });
        self.later(1, primary, |node, life| What::Pump { node, life });
        Ok(())
    }

    /// A checkpoint of what `node` has, if there is one. It is fuzzy: records are looked at
    /// between its start and its end, and left out if they have changed since the start. The log
    /// below is not kept any more.
    pub(super) fn checkpoint(&mut self, node: usize) -> Option<Checkpoint> {
        let lead = self.nodes[node].lead.as_ref()?;
        let (term, marked) = (lead.term, self.rule == Rule::Marked);
        let from = lead.begin.max(lead.kept_from);
        let mut ends = self.histories.ends(term, from, lead.committed);
        // By the paper's rule all mirrors have the same batches.
        let is_end = |at: &Lsn| {
            let of = |batch: &Arc<Batch>| batch.extent().kept_to() == Some(*at);
            !marked || *at == lead.begin || lead.batches.iter().any(of)
        };
        let starts: Vec<Lsn> = ends.iter().copied().filter(|at| *at > Lsn::ZERO && is_end(at)).collect();
        let start = *starts.get(self.dice.below(starts.len().max(1) as u64) as usize)?;
        ends.retain(|end| *end >= start);
        let mut draw = || ends[self.dice.below(ends.len() as u64) as usize];
        let (middle, end) = (draw(), draw());
        let (middle, end) = (middle.min(end), middle.max(end));
        let history = lead.history.cut(end);
        let states = [start, middle, end].map(|at| self.histories.at(term, at));
        let mut records = Vec::new();
        for id in states[2].keys() {
            if let Some((address, row)) = states[self.dice.below(3) as usize].get(id)
                && *address < start
                && (row.is_some() || self.dice.one_in(2))
            {
                records.push((*id, *address, row.clone()));
            }
        }
        let lead = self.nodes[node].lead.as_mut()?;
        lead.kept_from = start;
        Some(Checkpoint { history, start, end, records })
    }
}
