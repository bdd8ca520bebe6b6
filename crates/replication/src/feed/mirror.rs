//! Mirror: rows go into a mirror's memory, in place, and none of the log (Active-Memory, section
//! 4).
//!
//! The ship thread takes the log batch by batch, as for a standby, and makes of each one list of
//! writes (section 4.5.1). When the list has completed, all of it is in the mirror's memory: this
//! node acknowledges for it, as with the appliance method. Several mirrors get what one thread has
//! made ([`Batches`]), each in its own places. What is committed then is written as the
//! mark, a word, with the next list or by itself (section 4.5.2). Several batches are under way at
//! once, as many as the mirror's undo ring holds. The mirror adds to that what a transaction writes
//! over that is larger ([`Ring`]).
//!
//! What lies where is decided here ([`Layout`]). A mirror that comes says first what its memory is
//! like, and adds regions when it is asked to.
//!
//! One thing takes a word of the mirror: that it has noted an in-sync set. So while a set is on its
//! way, it is asked to answer, and what it answers counts ([`Ship::acknowledge`]).

use std::{collections::VecDeque, iter, time::Duration};

use freshet_base::{
    Lsn,
    sync::{Arc, Mutex, MutexGuard, Ordering},
};
use freshet_cluster::{Moment, flow::Next, host::Note, mirror::MirrorFeed, recording::Recorded};
use freshet_fabric::{Place, RegionKey, Token, channel::Sender, tcp::SendError};
use freshet_log::Noting;
use freshet_mirror::{Batch, Before, Build, Damaged, Extent, Layout, MARK, NoRoom, NotABatch, NotPut, Ring, UNDO};

use super::{
    Feeder,
    batches::{Batches, Taken},
    ship::{Ship, ShipError, Shipper, Turn},
};
use crate::{
    clock::Clock,
    link::LinkMeter,
    load::thousandths,
    wire::{self, Growing, Kind},
};

/// The longest description of what lies where in a mirror, in bytes.
const DESCRIPTION: usize = 1 << 30;

/// Why a node cannot be kept as a mirror.
#[derive(Debug, thiserror::Error)]
pub(super) enum NoMirror {
    #[error(transparent)]
    Batch(#[from] NotABatch),
    #[error("{0}")]
    Room(NoRoom),
    #[error(
        "a block of the log is longer than half of the {undo} bytes of its undo ring: set log.buffer-bytes there to at \
         least {needed}"
    )]
    Block { undo: u64, needed: u64 },
    #[error("{0}: restart it, or, if it runs another version, run the same one on both nodes")]
    Damaged(#[from] Damaged),
    #[error("it offers no undo ring: run the same version on both nodes")]
    Offer,
}

/// What a mirror has said that the ship thread has not heard.
#[derive(Default)]
pub(crate) struct Inbox(Mutex<Reported>);

#[derive(Default)]
struct Reported {
    /// What lies where, as far as it has come, and whether that is all.
    description: Vec<u8>,
    described: bool,
    grown: VecDeque<(Option<RegionKey>, Growing)>,
    /// It has no memory for what is to be written there next.
    lacks_memory: bool,
    /// For which part of the time something was on its way to it, in thousandths.
    link_busy: u32,
}

impl Inbox {
    fn reported(&self) -> MutexGuard<'_, Reported> {
        self.0.lock().expect("no code panics under this mutex")
    }

    /// What it lacks, and gets nothing more before it has that.
    pub fn lacks(&self) -> Option<&'static str> {
        self.reported().lacks_memory.then_some("memory: set mirror.bytes there to more, or free some")
    }

    /// For which part of the time something was on its way to it lately, in thousandths.
    pub fn link_busy(&self) -> u32 {
        self.reported().link_busy
    }

    /// It has added a region, or has no memory for one.
    pub fn grown(&self, region: Option<RegionKey>, growing: Growing) {
        self.reported().grown.push_back((region, growing));
    }

    /// A part of what says what lies where; false when that is too long, or was said before.
    pub fn described(&self, part: &[u8], is_last: bool) -> bool {
        let mut reported = self.reported();
        let fits = !reported.described && reported.description.len() + part.len() <= DESCRIPTION;
        if fits {
            reported.description.extend_from_slice(part);
            reported.described = is_last;
        }
        fits
    }
}

/// How busy its link is, is looked up this often.
const LOOK: Duration = Duration::from_secs(1);

/// What the ship thread knows of a mirror.
pub(super) struct MirrorLine {
    /// As soon as it has said what its memory is like.
    layout: Option<Layout>,
    ring: Ring,
    /// What belongs to the ring beside its first region.
    more_undo: Vec<usize>,
    /// No batch has more bytes of log, unless a block has: what it destroys is about as long.
    longest: u64,
    build: Build,
    /// What other mirrors get, too.
    batches: Arc<Batches>,
    /// The batch that `build` has and that is not posted.
    waits: Option<Extent>,
    /// It is made here for others as well.
    is_first: bool,
    /// For how long the ship thread waits for it; when that was looked up last, and how long it
    /// was.
    link: LinkMeter,
    looked: (Moment, Duration),
    /// What is under way to it, has completed, is marked.
    feed: Recorded<MirrorFeed>,
    /// The batch that waits does so for a region.
    lacks: bool,
    /// The log says where rows differ: less has to be read.
    _noting: Option<Noting>,
}

/// This number of bytes stays in the nearest cache, beside what is compared with them.
const NEAR: usize = 16 << 10;

/// A thread that waits for a mirror waits for what is on its way, there or back: what has to be
/// read comes behind everything that was written. While it has something to do, the link is no
/// trouble.
fn timed<T>(sender: &mut Sender, (link, clock): (&mut LinkMeter, &Clock), waits: impl FnOnce(&mut Sender) -> T) -> T {
    if sender.is_prompt() {
        return waits(sender);
    }
    let begun = clock.now();
    let outcome = waits(sender);
    link.observe(begun, clock.now());
    outcome
}

/// Before images lie in the mirror.
struct ReadBack<'s> {
    sender: &'s mut Sender,
    link: &'s mut LinkMeter,
    clock: &'s Clock,
}

impl Before for ReadBack<'_> {
    type Error = SendError;

    fn read(&mut self, from: Place, into: &mut [u8]) -> Result<(), SendError> {
        timed(self.sender, (self.link, self.clock), |sender| sender.read_from(from, into))
    }

    fn at_once(&self) -> usize {
        if self.sender.is_prompt() { NEAR } else { usize::MAX }
    }

    fn read_all(&mut self, list: &mut [(Place, &mut [u8])]) -> Result<(), SendError> {
        timed(self.sender, (self.link, self.clock), |sender| sender.read_all_from(list))
    }
}

impl MirrorLine {
    /// Of a mirror that has all of the log below `from`.
    pub fn new<F: Feeder>(sender: &Sender, from: Lsn, feeder: &F) -> Self {
        let undo = sender.lengths().get(UNDO).copied().unwrap_or(0);
        Self {
            layout: None,
            ring: Ring::new(undo),
            more_undo: Vec::new(),
            longest: undo / 2,
            build: Build::new(),
            batches: Arc::clone(&feeder.feeds().batches),
            waits: None,
            is_first: false,
            link: LinkMeter::default(),
            looked: (feeder.feeds().clock.now(), Duration::ZERO),
            feed: Recorded::new(MirrorFeed::new(from, feeder.feeds().clock.now()), &feeder.feeds().recorder),
            lacks: false,
            _noting: feeder.note_changes(),
        }
    }

    /// Whether other mirrors get the same batches. One that is no member may not have exactly the
    /// log up to where its next batch begins. One that has not said what its memory is like would
    /// let the others wait for what it makes.
    fn shares(&self, shipper: &Shipper) -> bool {
        // The feeder, this mirror, and another.
        shipper.member && self.layout.is_some() && Arc::strong_count(&self.batches) > 2
    }

    /// How far the mark may be moved when everything below `committed` is.
    fn next_mark(&self, committed: Lsn) -> Option<Lsn> {
        let mark = self.feed.next_mark(committed, |to| self.ring.mark(to));
        mark.filter(|_| self.layout.is_some())
    }

    /// Whether room comes by itself in the undo ring, which is full.
    fn room_comes(&self, committed: Lsn) -> bool {
        self.feed.room_comes(committed, |to| self.ring.mark(to))
    }

    /// Everything up to a token has completed.
    fn complete(&mut self, upto: Token) {
        // Most turns find nothing that is new.
        if self.feed.oldest().is_none_or(|oldest| oldest > upto.0) {
            return;
        }
        if let (Some(mark), Some(layout)) = (self.feed.complete(upto.0), &mut self.layout) {
            self.ring.marked(mark);
            layout.committed(mark);
        }
    }
}

impl<F: Feeder> Ship<'_, F> {
    pub fn turn_mirror(&mut self, behind: &mut bool) -> Result<Turn, ShipError> {
        let Some(mut mirror) = self.line.mirror.take() else { return Ok(Turn::Over) };
        let turn = self.step(&mut mirror, behind);
        self.line.mirror = Some(mirror);
        turn
    }

    /// Does what there is to do next. Waits for a completion if that is nothing.
    fn step(&mut self, mirror: &mut MirrorLine, behind: &mut bool) -> Result<Turn, ShipError> {
        let keep_alive = self.feeder.feeds().config.flow.keep_alive;
        self.receive_from_mirror(mirror)?;
        mirror.complete(self.line.sender.completed()?);
        self.acknowledge(mirror)?;
        if self.feeder.feeds().clock.now() >= mirror.feed.note_due(keep_alive) {
            self.announce(mirror)?;
        }
        let Some(next) = self.next() else { return Ok(Turn::Over) };
        let until = if mirror.waits.is_some() {
            if self.post(mirror)? {
                return Ok(Turn::Again);
            }
            // Until there is room: that may be when more is committed.
            self.mark(mirror)?;
            let soon = || self.feeder.feeds().clock.now().after(self.feeder.feeds().config.flow.watermark_delay);
            mirror.feed.out_of_memory_until().filter(|_| mirror.lacks).unwrap_or_else(soon)
        } else {
            self.report_behind(next, behind);
            match next {
                Next::Wait { until } => {
                    // What is committed was told with the batch, when it had not completed yet.
                    if mirror.feed.oldest().is_none() {
                        self.mark(mirror)?;
                    }
                    until
                }
                next => return self.carry_out_for(mirror, next).map(|()| Turn::Again),
            }
        };
        match mirror.feed.oldest() {
            Some(token) => {
                let waits = |sender: &mut Sender| sender.wait(Token(token));
                timed(&mut self.line.sender, (&mut mirror.link, &self.feeder.feeds().clock), waits)?;
                Ok(Turn::Again)
            }
            None => Ok(Turn::Sleep(until.min(mirror.feed.note_due(keep_alive)))),
        }
    }

    /// Blocks up to `to` are about to be on their way, or a word alone.
    fn shipped(&self, to: Option<Lsn>) -> Option<Note> {
        let feeds = self.feeder.feeds();
        feeds.state().host.shipped(self.shipper.id, to, feeds.clock.now())
    }

    fn carry_out_for(&mut self, mirror: &mut MirrorLine, next: Next) -> Result<(), ShipError> {
        match next {
            Next::SendLive { from, to } if to.since(from) <= mirror.longest => {
                // Relaxed: a count without data behind it.
                self.feeder.feeds().live.fetch_add(1, Ordering::Relaxed);
                let taken = if mirror.shares(self.shipper) {
                    mirror.batches.take(from, to, mirror.longest)
                } else {
                    Taken::Alone(to)
                };
                mirror.is_first = matches!(taken, Taken::First(_));
                let to = match taken {
                    Taken::Made(batch) => return self.begin(mirror, batch),
                    Taken::First(to) | Taken::Alone(to) => to,
                };
                let (mut batch, length) = (mirror.batches.blank(), to.since(from) as usize);
                self.feeder.read(from, batch.room(length))?;
                batch.begin(from, length).map_err(NoMirror::from)?;
                self.begin(mirror, Arc::new(batch))
            }
            Next::SendLive { from, to: upto } | Next::SendOld { from, upto } => {
                let length = match self.read_old(from, upto.min(from.plus(mirror.longest)))? {
                    // A block that is longer goes by itself.
                    0 => self.read_old(from, upto)?,
                    length => length,
                };
                match length {
                    0 => {
                        let needed = self.feeder.feeds().config.needed_capacity();
                        Err(NoMirror::Block { undo: mirror.longest * 2, needed }.into())
                    }
                    length => {
                        let mut batch = mirror.batches.blank();
                        batch.room(length).copy_from_slice(&self.line.piece[..length]);
                        batch.begin(from, length).map_err(NoMirror::from)?;
                        self.begin(mirror, Arc::new(batch))
                    }
                }
            }
            Next::SendPeers => self.send_peers(),
            // It is told of neither: its processor has nothing to do with that.
            Next::SendWatermark | Next::SendKeepAlive => {
                let _ = self.shipped(None);
                self.mark(mirror)
            }
            Next::Wait { .. } => Ok(()),
        }
    }

    fn begin(&mut self, mirror: &mut MirrorLine, batch: Arc<Batch>) -> Result<(), ShipError> {
        mirror.waits = Some(batch.extent());
        let before = mirror.build.begin(batch);
        mirror.batches.give_back(before);
        self.post(mirror).map(drop)
    }

    /// Posts the batch that waits, as soon as there is room for it; says whether there was.
    fn post(&mut self, mirror: &mut MirrorLine) -> Result<bool, ShipError> {
        let (Some(layout), Some(batch)) = (&mut mirror.layout, mirror.waits) else { return Ok(false) };
        let (link, clock, is_low) = (&mut mirror.link, &self.feeder.feeds().clock, layout.is_low());
        let mut before = ReadBack { sender: &mut self.line.sender, link, clock };
        let put = mirror.build.put(layout, &mut before);
        if std::mem::take(&mut mirror.is_first) {
            mirror.batches.made(batch.from, mirror.build.batch());
        }
        match put {
            Ok(()) => {
                if is_low {
                    self.grow(mirror, 0, Growing::Arenas)?;
                }
            }
            Err(NotPut::NoRoom(NoRoom::Arena { bytes })) => {
                self.note_out_of_space(mirror, true);
                return self.grow(mirror, bytes, Growing::Arenas).map(|()| false);
            }
            Err(NotPut::NoRoom(why)) => return Err(NoMirror::Room(why).into()),
            Err(NotPut::Before(error)) => return Err(error.into()),
        }
        match mirror.build.enter(&mut mirror.ring) {
            Ok(()) => self.note_out_of_space(mirror, false),
            // What a transaction writes over, or one block, is more than the ring holds; or what
            // commits wait for is.
            Err(full) if full.needed > full.all || !mirror.room_comes(self.feeder.feeds().state().host.global()) => {
                self.note_out_of_space(mirror, true);
                return self.grow(mirror, full.lacking_bytes(), Growing::Undo).map(|()| false);
            }
            Err(_) => return Ok(false),
        }
        // The acknowledgement may be quicker than what follows.
        let Some(note) = self.shipped(Some(batch.to)) else { return Ok(false) };
        mirror.waits = None;
        let mark = mirror.next_mark(note.global);
        let word = mark.unwrap_or(mirror.feed.marked()).0.to_le_bytes();
        let marks = mark.map(|_| (Place { region: 0, offset: MARK }, &word[..]));
        self.shipper.round_trips.sent(batch.to, || self.feeder.feeds().clock.now());
        let token = self.line.sender.post_into(marks.into_iter().chain(mirror.build.undo()), mirror.build.changes())?;
        mirror.feed.posted(token.0, batch.kept_to(), mark);
        for set in mirror.build.batch().members() {
            self.line.sender.send(Kind::Members as u8, self.feeder.feeds().term, batch.to.0, 0, set)?;
        }
        Ok(true)
    }

    /// Writes the mark by itself, if it is to be moved.
    fn mark(&mut self, mirror: &mut MirrorLine) -> Result<(), ShipError> {
        let global = self.feeder.feeds().state().host.global();
        let Some(mark) = mirror.next_mark(global) else { return Ok(()) };
        let word = mark.0.to_le_bytes();
        let marks = [(Place { region: 0, offset: MARK }, &word[..])].into_iter();
        let token = self.line.sender.post_into(marks, iter::empty())?;
        mirror.feed.posted(token.0, None, Some(mark));
        Ok(())
    }

    /// Acknowledges what has completed. If the mirror may have to note an in-sync set first, it is
    /// asked to answer instead.
    fn acknowledge(&mut self, mirror: &mut MirrorLine) -> Result<(), ShipError> {
        let (id, feeds) = (self.shipper.id, self.feeder.feeds());
        let Some(to) = mirror.feed.to_acknowledge() else { return Ok(()) };
        let acked = {
            let mut state = feeds.state();
            state.host.counts_read_back(id).then(|| state.host.read_back(id, to))
        };
        let asks = mirror.feed.acknowledged(acked.is_some());
        match acked.transpose()? {
            Some(acked) => {
                acked.event.into_iter().for_each(|event| self.feeder.apply(event));
                feeds.changes.wake_all();
            }
            None if asks => self.announce(mirror)?,
            None => return Ok(()),
        }
        self.shipper.round_trips.held(mirror.feed.completed(), || feeds.clock.now());
        Ok(())
    }

    /// Announces to the mirror that this node lives, and how far everything has completed, which it
    /// answers.
    fn announce(&mut self, mirror: &mut MirrorLine) -> Result<(), ShipError> {
        self.line.ends.clear();
        let Some(note) = self.note(None) else { return Ok(()) };
        let note = wire::encode(&note);
        let (kind, term) = (Kind::Watermark as u8, self.feeder.feeds().term);
        let now = self.feeder.feeds().clock.now();
        self.line.sender.send(kind, term, mirror.feed.note(now).0, 0, &note)?;
        self.look_at_link(mirror, now);
        Ok(())
    }

    /// Notes how busy the link was, if it is time for that.
    fn look_at_link(&self, mirror: &mut MirrorLine, now: Moment) {
        let (busy, (before, then)) = (mirror.link.busy(), mirror.looked);
        let Some(inbox) = self.shipper.mirror.as_ref().filter(|_| now >= before.after(LOOK)) else { return };
        inbox.reported().link_busy = thousandths(busy.saturating_sub(then), now.since(before)).min(1000);
        mirror.looked = (now, busy);
    }

    /// Asks for a region of at least this many bytes, one at a time.
    fn grow(&mut self, mirror: &mut MirrorLine, bytes: u64, growing: Growing) -> Result<(), ShipError> {
        if !mirror.feed.asks_for_region(self.feeder.feeds().clock.now()) {
            return Ok(());
        }
        let (term, message) = (self.feeder.feeds().term, wire::encode(&(bytes, growing)));
        Ok(self.line.sender.send(Kind::Grow as u8, term, 0, 0, &message)?)
    }

    /// Notes whether the next batch waits for memory, and says so if the mirror has none.
    fn note_out_of_space(&self, mirror: &mut MirrorLine, lacks: bool) {
        mirror.lacks = lacks;
        let Some(inbox) = &self.shipper.mirror else { return };
        let reported = &mut inbox.reported().lacks_memory;
        if !lacks {
            *reported = false;
        } else if mirror.feed.out_of_memory_until().is_some() && !std::mem::replace(reported, true) {
            tracing::warn!(mirror = %self.shipper.node, "a mirror has no memory left, and gets nothing more");
        }
    }

    /// Takes in what the mirror has said.
    fn receive_from_mirror(&mut self, mirror: &mut MirrorLine) -> Result<(), ShipError> {
        let Some(inbox) = &self.shipper.mirror else { return Ok(()) };
        let (grown, description) = {
            let mut reported = inbox.reported();
            let description = reported.described.then(|| std::mem::take(&mut reported.description));
            (std::mem::take(&mut reported.grown), description)
        };
        for (key, growing) in grown {
            mirror.feed.region_answered(key.is_some(), self.feeder.feeds().clock.now());
            // Without one, the commit rule does without the mirror in time.
            let Some(key) = key else { continue };
            let region = self.line.sender.attach(&key)?;
            if growing == Growing::Undo {
                mirror.ring.grow(region, key.length);
                mirror.more_undo.push(region);
            } else if let Some(layout) = &mut mirror.layout {
                layout.grow(region, key.length);
            }
        }
        if let (Some(description), None) = (description, &mirror.layout) {
            let mut lengths = self.line.sender.lengths();
            mirror.more_undo.iter().for_each(|region| lengths[*region] = 0);
            if lengths.len() <= UNDO {
                return Err(NoMirror::Offer.into());
            }
            let mut layout = Layout::of(&description, &lengths).map_err(NoMirror::from)?;
            layout.committed(mirror.feed.stays());
            mirror.layout = Some(layout);
        }
        Ok(())
    }
}
