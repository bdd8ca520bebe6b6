//! The primary's side: stretches of the log become batches, and batches go to the mirrors, to each
//! in its own places.

use std::sync::Arc;

use freshet_base::{Lsn, words};
use freshet_cluster::{flow::Next, host::Note, mirror::MirrorFeed, recording::Recorded};
use freshet_fabric::{Place, memory::Region};
use freshet_mirror::{Batch, Build, Extent, Here, Layout, MARK, NoRoom, NotPut, Ring, UNDO};

use super::{
    following::Offer,
    memory::{damaged, moved, region},
    posted::Posted,
};
use crate::{
    checks::{Property, Violation},
    log::Block,
    net::{Along, ConnectionId, Message},
    sabotage::Effect,
    scenario::Broken,
    world::{Own, What, World},
};

/// This number of batches are kept for mirrors that come to them later.
const KEPT: usize = 8;

/// How a mirror is fed.
pub(crate) struct Line {
    feed: Recorded<MirrorFeed>,
    ring: Ring,
    layout: Layout,
    /// The mirror's memory when all has landed that was posted.
    image: Vec<Region>,
    build: Build,
    /// The batch that `build` has and that is not posted, and its blocks.
    waits: Option<(Extent, Vec<Block>)>,
    /// No batch has more bytes of log, unless a block has.
    longest: u64,
}

fn store(memory: &[Region], to: Place, bytes: &[u8]) {
    words::store_among(memory[to.region].words(), to.offset as usize, bytes);
}

fn mark_word(mark: Lsn) -> ([u8; 8], Place) {
    (mark.0.to_le_bytes(), Place { region: 0, offset: MARK })
}

impl World {
    /// A mirror offers its memory.
    pub(crate) fn memory_offered(&mut self, node: usize, id: ConnectionId, offer: &Offer) -> Result<(), Violation> {
        let now = self.clock(node);
        let host = self.nodes[node].host.as_ref();
        let Some(from) = host.and_then(|host| host.feeds().find(|(feed, _)| *feed == id)).map(|(_, it)| it.shipped())
        else {
            return Ok(());
        };
        let (ring, lengths) = Ring::of(&offer.memory);
        let mut layout = Layout::of(&offer.description, &lengths).map_err(damaged)?;
        layout.committed(from);
        let image = moved(&offer.memory);
        let longest = lengths[UNDO] / 2;
        let feed = Recorded::new(MirrorFeed::new(from, now), &self.nodes[node].recorder);
        let (build, waits) = (Build::new(), None);
        self.nodes[node].lines.insert(id, Line { feed, ring, layout, image, build, waits, longest });
        let mut posted = Posted::new(offer.memory.clone());
        posted.slow = !self.calm && self.dice.one_in(5);
        self.net.connections[id].posted = Some(Box::new(posted));
        self.pump(node)
    }

    /// Nothing more is posted on a connection: some of what was may land yet.
    pub(crate) fn line_ends(&mut self, id: ConnectionId) {
        let connection = &mut self.net.connections[id];
        let Some(posted) = connection.posted.as_mut().filter(|posted| !posted.over) else { return };
        let landed = posted.end(&mut self.dice);
        self.have_landed(id, landed);
    }

    /// Blocks have landed wholly by a connection: in the memory of a mirror, if that is still its
    /// own.
    pub(super) fn have_landed(&mut self, id: ConnectionId, blocks: Vec<Block>) {
        let state = &mut self.nodes[self.net.connections[id].ends[0]];
        if state.mirror.as_ref().is_none_or(|mirror| mirror.offered != Some(id)) {
            return;
        }
        let disk = &mut state.disk;
        for block in blocks {
            disk.log.push(block);
        }
        disk.synced = disk.log.transaction_end(disk.log.end());
    }

    /// What is posted on a connection lands from now on.
    fn deliver_writes(&mut self, id: ConnectionId) {
        let Some(posted) = &mut self.net.connections[id].posted else { return };
        if !posted.is_empty() && !std::mem::replace(&mut posted.landing, true) {
            let pause = if posted.slow { self.dice.between(200, 2000) } else { self.dice.between(5, 60) };
            self.after(pause, What::Land(id));
        }
    }

    /// Some of what was posted lands.
    pub(crate) fn land_writes(&mut self, id: ConnectionId) {
        if let Some(posted) = &mut self.net.connections[id].posted {
            posted.landing = false;
        }
        for _ in 0..self.dice.between(1, 6) {
            let connection = &mut self.net.connections[id];
            let [mirror, feeder] = connection.ends;
            let Some(posted) = &mut connection.posted else { return };
            let revoked = posted.revoked;
            let Some(complete) = posted.land() else { return };
            if let Some((token, blocks)) = complete {
                self.have_landed(id, blocks);
                if !self.calm && self.dice.one_in(500) {
                    self.lose(id);
                } else if self.net.connections[id].open || self.scenario.broken == Broken::DeadMirrorCounts {
                    let (pause, life) = (self.dice.between(5, 200), self.nodes[feeder].life);
                    let what = Own::Completed { connection: id, token };
                    self.after(pause, What::Of { node: feeder, life, what });
                }
            }
            if !revoked {
                self.landed(mirror);
            }
        }
        self.deliver_writes(id);
    }

    /// A list is complete, with all before it.
    pub(crate) fn completed(&mut self, node: usize, id: ConnectionId, token: u64) -> Result<(), Violation> {
        let (cards, broken) = (self.cards, self.scenario.broken);
        let is_revoked = self.net.connections[id].posted.as_ref().is_some_and(|posted| posted.revoked);
        if is_revoked && !cards && !matches!(broken, Broken::MirrorNotMoved | Broken::DeadMirrorCounts) {
            // The writer looks after writing whether that counts.
            self.lose(id);
            return Ok(());
        }
        let global = self.nodes[node].host.as_ref().map_or(Lsn::ZERO, |host| host.global());
        let marks = self.does(Effect::Marked);
        let Some(line) = self.nodes[node].lines.get_mut(&id) else { return Ok(()) };
        if let Some(mark) = line.feed.complete(token).filter(|_| marks) {
            line.ring.marked(mark);
            line.layout.committed(mark);
        }
        if broken == Broken::WrittenOverEarly {
            line.layout.committed(global);
        }
        // All that was posted has arrived, and so has the mark.
        if line.feed.oldest().is_none() && line.ring.mark(line.feed.stays()).is_some() {
            return Property::Mirrors.violated("what is undone no more takes room in an undo ring");
        }
        self.pump(node)
    }

    /// A mirror has more memory, or none to give.
    pub(crate) fn memory_grown(
        &mut self,
        node: usize,
        id: ConnectionId,
        more: Option<Region>,
        undo: bool,
    ) -> Result<(), Violation> {
        let now = self.clock(node);
        let Some(line) = self.nodes[node].lines.get_mut(&id) else { return Ok(()) };
        line.feed.region_answered(more.is_some(), now);
        if let Some(more) = more {
            let bytes = more.words().len() as u64 * 8;
            let number = line.image.len();
            if undo {
                line.ring.grow(number, bytes);
            } else {
                line.layout.grow(number, bytes);
            }
            line.image.push(region(bytes));
            if let Some(posted) = &mut self.net.connections[id].posted {
                posted.attach(more);
            }
        }
        self.pump(node)
    }

    /// Feeds a mirror; says when to look again.
    pub(crate) fn pump_mirror(&mut self, node: usize, id: ConnectionId) -> Result<u64, Violation> {
        let Some(mut line) = self.nodes[node].lines.remove(&id) else { return Ok(u64::MAX) };
        let outcome = self.feed(node, id, &mut line);
        let is_fed = self.nodes[node].host.as_ref().is_some_and(|host| host.feeds().any(|(feed, _)| feed == id));
        if is_fed && self.nodes[node].up {
            self.nodes[node].lines.insert(id, line);
        }
        outcome
    }

    fn feed(&mut self, node: usize, id: ConnectionId, line: &mut Line) -> Result<u64, Violation> {
        let keep_alive = self.flow().keep_alive;
        loop {
            let now = self.clock(node);
            self.acknowledge_for(node, id, line)?;
            if now >= line.feed.note_due(keep_alive) {
                self.note_to_mirror(node, id, line);
            }
            let Some(host) = &mut self.nodes[node].host else { return Ok(u64::MAX) };
            if line.waits.is_some() {
                if self.post(node, id, line)? {
                    // What is written in the meantime comes into the same batch.
                    if self.dice.one_in(3) {
                        return Ok(now.0 + self.dice.between(10, 600));
                    }
                    continue;
                }
                self.mark(node, id, line);
                return Ok(line.feed.out_of_memory_until().unwrap_or(line.feed.note_due(keep_alive)).0);
            }
            match host.next(id, now) {
                None => return Ok(u64::MAX),
                Some(Next::Wait { until }) => {
                    if line.feed.oldest().is_none() {
                        self.mark(node, id, line);
                    }
                    return Ok(until.min(line.feed.note_due(keep_alive)).0);
                }
                Some(Next::SendPeers) => {
                    host.peers_sent(id);
                    self.send(id, node, Message::Peers);
                }
                Some(Next::SendWatermark | Next::SendKeepAlive) => {
                    let _ = host.shipped(id, None, now);
                    self.mark(node, id, line);
                }
                Some(Next::SendLive { from, to } | Next::SendOld { from, upto: to }) => {
                    self.begin_batch(node, id, line, from, to)?;
                }
            }
        }
    }

    fn acknowledge_for(&mut self, node: usize, id: ConnectionId, line: &mut Line) -> Result<(), Violation> {
        let Some(host) = &mut self.nodes[node].host else { return Ok(()) };
        let Some(to) = line.feed.to_acknowledge() else { return Ok(()) };
        let acked = host.counts_read_back(id).then(|| host.read_back(id, to));
        if line.feed.acknowledged(acked.is_some()) && self.does(Effect::AskMirror) {
            self.note_to_mirror(node, id, line);
        }
        if self.does(Effect::Acknowledge) { self.observe(node, id, acked) } else { Ok(()) }
    }

    /// The mirror learns how far everything has completed, which it answers.
    fn note_to_mirror(&mut self, node: usize, id: ConnectionId, line: &mut Line) {
        let now = self.clock(node);
        let Some(host) = &mut self.nodes[node].host else { return };
        let Some(note) = host.shipped(id, None, now) else { return };
        let to = line.feed.note(now);
        self.send(id, node, Message::MirrorNote { to, along: Along::new(note, self.maintenance(node)) });
    }

    /// The next batch: it ends where a block does.
    fn begin_batch(
        &mut self,
        node: usize,
        id: ConnectionId,
        line: &mut Line,
        from: Lsn,
        upto: Lsn,
    ) -> Result<(), Violation> {
        let shares = self.scenario.broken == Broken::SharedEarly || self.is_shared(node, id);
        let state = &mut self.nodes[node];
        let made = |batch: &&Arc<Batch>| batch.extent().from == from && batch.extent().to.since(from) <= line.longest;
        let batch = state.batches.iter().find(made).filter(|_| shares).cloned();
        let batch = match batch {
            Some(batch) => batch,
            None => {
                // Or where the next one begins that others have: then all have the same again.
                let begins = state.batches.iter().map(|batch| batch.extent().from).filter(|begin| *begin > from);
                let upto = begins.min().map_or(upto, |begin| begin.min(upto));
                let log = &state.disk.log;
                let mut bytes = Vec::new();
                for block in log.between(from.0, upto.0) {
                    if !bytes.is_empty() && (bytes.len() + block.bytes().len()) as u64 > line.longest {
                        break;
                    }
                    bytes.extend_from_slice(block.bytes());
                }
                let mut batch = Batch::new();
                batch.room(bytes.len()).copy_from_slice(&bytes);
                let begun = batch.begin(from, bytes.len());
                begun.map_err(|why| Violation { property: Property::Mirrors, what: why.to_string() })?;
                let batch = Arc::new(batch);
                if shares {
                    state.batches.push_back(Arc::clone(&batch));
                    if state.batches.len() > KEPT {
                        state.batches.pop_front();
                    }
                }
                batch
            }
        };
        let extent = batch.extent();
        let blocks = state.disk.log.between(from.0, extent.to.0).to_vec();
        line.waits = Some((extent, blocks));
        drop(line.build.begin(batch));
        Ok(())
    }

    /// Whether a mirror gets the same batches as others: those that are members have exactly the
    /// log up to where the next one begins.
    fn is_shared(&self, node: usize, id: ConnectionId) -> bool {
        let state = &self.nodes[node];
        let feeds = state.host.iter().flat_map(|host| host.feeds());
        // The line of the one that is fed now is not among the others.
        !state.lines.is_empty() && feeds.into_iter().any(|(feed, it)| feed == id && it.member)
    }

    /// Posts the batch that waits, as soon as there is room for it; says whether there was.
    fn post(&mut self, node: usize, id: ConnectionId, line: &mut Line) -> Result<bool, Violation> {
        let now = self.clock(node);
        let Some((extent, _)) = line.waits.as_ref() else { return Ok(false) };
        let extent = *extent;
        let global = self.nodes[node].host.as_ref().map_or(Lsn::ZERO, |host| host.global());
        if let Err(why) = line.build.put(&mut line.layout, &mut Here(&line.image)) {
            let NotPut::NoRoom(NoRoom::Arena { bytes }) = why else {
                return Property::Mirrors.violated(why.to_string());
            };
            self.grow(node, id, line, bytes, false);
            return Ok(false);
        }
        match line.build.enter(&mut line.ring) {
            Ok(()) => {}
            // A transaction writes over more than the ring holds, or what commits wait for does.
            Err(full) if full.needed > full.all || !line.feed.room_comes(global, |to| line.ring.mark(to)) => {
                self.grow(node, id, line, full.lacking_bytes(), true);
                return Ok(false);
            }
            Err(_) => return Ok(false),
        }
        let shipped = self.nodes[node].host.as_mut().and_then(|host| host.shipped(id, Some(extent.to), now));
        let Some(Note { global, .. }) = shipped else { return Ok(false) };
        let Some((_, blocks)) = line.waits.take() else { return Ok(false) };
        let mark = line.feed.next_mark(global, |to| line.ring.mark(to));
        let (word, to) = mark_word(mark.unwrap_or_default());
        let marks = mark.map(|_| (to, &word[..])).into_iter();
        let sets: Vec<_> = blocks.iter().filter_map(|block| block.set.clone()).collect();
        if sets.len() != line.build.batch().members().count() {
            return Property::Mirrors.violated("a batch has other sets than its blocks");
        }
        let mut list: Vec<(Place, &[u8])> = line.build.list().collect();
        if self.scenario.broken == Broken::UndoBehindData {
            list.sort_by_key(|(to, _)| to.region == UNDO);
        }
        let list: Vec<_> = marks.chain(list).collect();
        let Some(posted) = &mut self.net.connections[id].posted else { return Ok(false) };
        let token = posted.post(list.iter().copied(), blocks);
        list.iter().for_each(|(to, bytes)| store(&line.image, *to, bytes));
        line.feed.posted(token, extent.kept_to(), mark);
        for set in sets {
            self.send(id, node, Message::Members { set: (*set).clone() });
        }
        self.deliver_writes(id);
        Ok(true)
    }

    fn grow(&mut self, node: usize, id: ConnectionId, line: &mut Line, bytes: u64, undo: bool) {
        if line.feed.asks_for_region(self.clock(node)) {
            self.send(id, node, Message::Grow { bytes, undo });
        }
    }

    /// Writes the mark by itself, if it is to be moved.
    fn mark(&mut self, node: usize, id: ConnectionId, line: &mut Line) {
        let Some(host) = &self.nodes[node].host else { return };
        let Some(mark) = line.feed.next_mark(host.global(), |to| line.ring.mark(to)) else { return };
        let Some(posted) = &mut self.net.connections[id].posted else { return };
        let (word, to) = mark_word(mark);
        let token = posted.post([(to, &word[..])].into_iter(), Vec::new());
        store(&line.image, to, &word);
        line.feed.posted(token, None, Some(mark));
        self.deliver_writes(id);
    }
}
