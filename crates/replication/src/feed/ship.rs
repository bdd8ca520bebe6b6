//! Ship: writes the log into each standby's log buffer (Query Fresh, section 3.1).
//!
//! There is one thread for each standby. Where writing takes no longer than copying, a batch that
//! is small is written by the group commit's own thread instead, before it flushes (the paper's
//! commit daemon does so always), on a relay by the receiving thread: two changes of threads less
//! on the way of a commit. Whoever does it holds the line meanwhile, and the order of the log stays
//! what the flow says.

use std::sync::MutexGuard;

use freshet_base::{
    NodeId, Stamp,
    sync::{Arc, AtomicBool, AtomicU64, Mutex, Ordering},
};
use freshet_cluster::{
    commit_rule::Event,
    flow::{Flow, FlowError, Mode, Next},
};
use freshet_fabric::{
    channel::{MAX_FRAME, Sender},
    tcp::{Closer, Counters, SendError},
};
use freshet_log::ReadError;

use super::Feeder;
use crate::{
    bell::Bell,
    hop::{NotABlock, hop},
    wire::{self, BatchNote, Kind, Refusal},
};

/// Batches up to this size, in bytes, are written by the group commit's thread where that is
/// prompt. Larger ones are copied while it flushes.
const SMALL: u64 = 256 << 10;
/// The log is copied in pieces of this size, which stay in the cache between the two memories.
const PIECE: usize = 16 << 10;
/// Batches below this size are not worth compressing.
const WORTH_PACKING: usize = 256;

/// One standby's connection, shared by its two threads and whoever feeds it.
pub(crate) struct Shipper {
    pub node: NodeId,
    /// Whether commits may count on it.
    pub member: bool,
    /// What arrives there is persistent: reading it back is all the acknowledgement that it takes.
    pub appliance: bool,
    pub flow: Mutex<Flow>,
    /// Rung when there may be something to send.
    pub bell: Bell,
    /// The ship thread sleeps and wants to hear of `committed`.
    pub wants_watermark: AtomicBool,
    /// Whether the commit rule counts on it.
    pub in_sync: AtomicBool,
    pub replayed: AtomicU64,
    pub visible: AtomicU64,
    line: Mutex<Option<Line>>,
    /// Sending takes no longer than copying.
    is_prompt: AtomicBool,
    counters: Mutex<Option<Arc<Counters>>>,
    closer: Closer,
    ended: AtomicBool,
    /// Why it ended: what was noticed first.
    reason: Mutex<Reason>,
}

/// The sending half of a connection, and what is used from batch to batch.
struct Line {
    sender: Sender,
    piece: Vec<u8>,
    packed: Vec<u8>,
    ends: Vec<u32>,
    peers: u64,
}

#[derive(Default)]
enum Reason {
    #[default]
    Unknown,
    Known(String),
    Told,
}

/// Why shipping ended.
#[derive(Debug, thiserror::Error)]
enum ShipError {
    #[error(transparent)]
    Send(#[from] SendError),
    #[error(transparent)]
    Read(#[from] ReadError),
    #[error(transparent)]
    NotABlock(#[from] NotABlock),
    #[error(transparent)]
    Flow(#[from] FlowError),
}

impl Shipper {
    pub fn new(node: NodeId, member: bool, appliance: bool, flow: Flow, closer: Closer) -> Self {
        Self {
            node,
            member,
            appliance,
            flow: Mutex::new(flow),
            bell: Bell::default(),
            wants_watermark: AtomicBool::new(false),
            in_sync: AtomicBool::new(false),
            replayed: AtomicU64::new(0),
            visible: AtomicU64::new(0),
            line: Mutex::new(None),
            is_prompt: AtomicBool::new(false),
            counters: Mutex::new(None),
            closer,
            ended: AtomicBool::new(false),
            reason: Mutex::default(),
        }
    }

    /// It is connected.
    pub fn begin(&self, sender: Sender) {
        *self.counters.lock().expect("no code panics under this mutex") = Some(sender.counters());
        self.is_prompt.store(sender.is_prompt(), Ordering::SeqCst);
        let line = Line { sender, piece: vec![0; PIECE], packed: Vec::new(), ends: Vec::new(), peers: 0 };
        *self.line.lock().expect("no code panics under this mutex") = Some(line);
    }

    /// Bytes sent over the connection.
    pub fn sent_bytes(&self) -> u64 {
        let counters = self.counters.lock().expect("no code panics under this mutex");
        counters.as_ref().map_or(0, |counters| counters.read().sent_bytes)
    }

    pub fn flow(&self) -> MutexGuard<'_, Flow> {
        self.flow.lock().expect("no code panics under this mutex except on a bug of the flow")
    }

    /// Ends the connection and both threads.
    pub fn end(&self) {
        self.ended.store(true, Ordering::SeqCst);
        self.closer.close();
        self.bell.ring();
    }

    /// One of the two threads has ended because of `why`; the first reason known is returned, once.
    pub fn first_reason(&self, why: String) -> Option<String> {
        let mut reason = self.reason.lock().expect("no code panics under this mutex");
        match std::mem::replace(&mut *reason, Reason::Told) {
            Reason::Unknown => Some(why),
            Reason::Known(why) => Some(why),
            Reason::Told => None,
        }
    }

    pub fn ended(&self) -> bool {
        self.ended.load(Ordering::SeqCst)
    }
}

/// A batch was handed over: writes it at once if that takes no time, or rings for the ship thread.
/// Never blocks.
pub(super) fn batch_ready<F: Feeder>(feeder: &F, shipper: &Shipper, length: u64) {
    if length <= SMALL
        && shipper.is_prompt.load(Ordering::SeqCst)
        && !shipper.ended()
        && let Ok(mut line) = shipper.line.try_lock()
        && let Some(line) = line.as_mut()
    {
        let _stint = feeder.feeds().ship_cpu.begin();
        let mut ship = Ship { feeder, shipper, line };
        // Nothing but the newest batch, and only if nothing is in its way; whatever goes wrong, the
        // ship thread will meet too.
        if let next @ Next::SendLive { from, to } = ship.next()
            && to.since(from) <= SMALL
            && ship.line.sender.has_room(to.since(from))
            && ship.carry_out(next).is_ok()
        {
            // Relaxed: a count without data behind it.
            feeder.feeds().prompt.fetch_add(1, Ordering::Relaxed);
            return;
        }
    }
    shipper.bell.ring();
}

/// `committed` has moved: whoever reads on the standby may see more (Query Fresh, section 3.4.3:
/// "the persistent LSN is updated by the primary"). It rides on the next batch, or is written at
/// once where that takes no time. Never blocks.
pub(super) fn global_advanced<F: Feeder>(feeder: &F, shipper: &Shipper) {
    if shipper.wants_watermark.load(Ordering::SeqCst) {
        return shipper.bell.ring();
    }
    if !shipper.is_prompt.load(Ordering::SeqCst) || shipper.ended() {
        return;
    }
    match shipper.line.try_lock() {
        Ok(mut line) => {
            let Some(line) = line.as_mut() else { return };
            if !line.sender.has_room(0) {
                return shipper.bell.ring();
            }
            let _stint = feeder.feeds().ship_cpu.begin();
            let mut ship = Ship { feeder, shipper, line };
            // An error is met by the ship thread too.
            if shipper.flow().told() < ship.global() && ship.carry_out(Next::SendWatermark).is_err() {
                shipper.bell.ring();
            }
        }
        // Whoever has it may have looked at `committed` before it moved.
        Err(_) => shipper.bell.ring(),
    }
}

/// The ship thread.
pub(super) fn run<F: Feeder>(feeder: &Arc<F>, shipper: &Arc<Shipper>) {
    let outcome = ship(&**feeder, shipper);
    if let Err(ShipError::Read(error)) = &outcome {
        // Where no store keeps the old log, whoever fell out of the buffer cannot be helped: tell
        // it why, and let it hang up, which the ack thread will hear.
        let refusal = Refusal::LogGone { from: shipper.flow().shipped(), why: error.to_string() };
        tracing::warn!(standby = %shipper.node, cause = %refusal, "a standby cannot be sent the log that it needs");
        let mut line = shipper.line.lock().expect("no code panics under this mutex");
        let message = wire::encode(&refusal);
        let told = line.as_mut().map(|it| it.sender.send(Kind::Goodbye as u8, feeder.feeds().term, 0, 0, &message));
        if matches!(told, Some(Ok(()))) {
            shipper.ended.store(true, Ordering::SeqCst);
            *shipper.reason.lock().expect("no code panics under this mutex") = Reason::Known(refusal.to_string());
            // What was sent still arrives.
            *line = None;
            return;
        }
    }
    feeder
        .lost(shipper, outcome.err().map_or_else(|| "the connection was ended here".into(), |error| error.to_string()));
    *shipper.line.lock().expect("no code panics under this mutex") = None;
}

fn ship<F: Feeder>(feeder: &F, shipper: &Shipper) -> Result<(), ShipError> {
    let mut stint = feeder.feeds().ship_cpu.begin();
    let mut behind = false;
    while !shipper.ended() && !feeder.feeds().stopping() {
        let until = {
            let mut line = shipper.line.lock().expect("no code panics under this mutex");
            let Some(line) = line.as_mut() else { return Ok(()) };
            let mut ship = Ship { feeder, shipper, line };
            ship.tell_peers()?;
            let next = ship.next();
            if behind != matches!(next, Next::SendOld { .. }) && (!behind || ship.is_live()) {
                behind = !behind;
                ship.say(behind);
            }
            match next {
                Next::Wait { until } => until,
                next => {
                    ship.carry_out(next)?;
                    continue;
                }
            }
        };
        stint.note();
        sleep(feeder, shipper, until);
    }
    Ok(())
}

/// Until there is something to do, or that moment.
fn sleep<F: Feeder>(feeder: &F, shipper: &Shipper, until: freshet_cluster::Moment) {
    // First the wish, then the look: either this look sees the newest `committed`, or whoever
    // moves it sees the wish (both SeqCst).
    let wish = {
        let flow = shipper.flow();
        let silent = feeder.feeds().clock.now().since(flow.last_frame());
        flow.told() < flow.shipped() && silent >= feeder.feeds().config.flow.watermark_delay
    };
    shipper.wants_watermark.store(wish, Ordering::SeqCst);
    let next = {
        let boundaries = feeder.feeds().boundaries();
        shipper.flow().next(&boundaries, feeder.global(), feeder.feeds().clock.now())
    };
    if let Next::Wait { until: again } = next {
        shipper.bell.sleep(Some(feeder.feeds().clock.instant(until.min(again))));
    }
    shipper.wants_watermark.store(false, Ordering::SeqCst);
}

/// Whoever has the line.
struct Ship<'a, F> {
    feeder: &'a F,
    shipper: &'a Shipper,
    line: &'a mut Line,
}

impl<F: Feeder> Ship<'_, F> {
    /// Asks the flow, and takes down the ends of blocks while the boundaries are at hand.
    fn next(&mut self) -> Next {
        let boundaries = self.feeder.feeds().boundaries();
        let next = self.shipper.flow().next(&boundaries, self.global(), self.feeder.feeds().clock.now());
        if let Next::SendLive { from, to } = next {
            self.line.ends.clear();
            self.line.ends.extend(boundaries.between(from, to).map(|end| end.since(from) as u32));
        }
        next
    }

    fn is_live(&self) -> bool {
        let boundaries = self.feeder.feeds().boundaries();
        self.shipper.flow().mode(&boundaries) == Mode::Live
    }

    /// The standby needs log that is no longer in the buffer, or has caught up.
    fn say(&self, behind: bool) {
        let (standby, stamp) = (self.shipper.node, self.shipper.flow().shipped().0);
        let behind_bytes = self.feeder.feeds().boundaries().available().0.saturating_sub(stamp);
        if behind {
            tracing::info!(%standby, stamp, behind_bytes, "a standby is behind: it is sent older log");
        } else {
            tracing::info!(%standby, stamp, behind_bytes, "a standby has caught up with the log");
        }
    }

    fn carry_out(&mut self, next: Next) -> Result<(), ShipError> {
        match next {
            Next::SendLive { from, to } => {
                // Relaxed: a count without data behind it.
                self.feeder.feeds().live.fetch_add(1, Ordering::Relaxed);
                let length = to.since(from) as usize;
                if self.packs(length) {
                    self.read(from, length)?;
                    return self.send_read(from, length);
                }
                let mut done = 0;
                while done < length {
                    let piece = PIECE.min(length - done);
                    let at = from.plus(done as u64);
                    self.read(at, piece)?;
                    self.line.sender.place(at.0, &self.line.piece[..piece])?;
                    done += piece;
                }
                self.tell(from, length, None)
            }
            Next::SendOld { from, upto } => self.send_old(from, upto),
            Next::SendWatermark | Next::SendKeepAlive => {
                self.line.ends.clear();
                let note = self.note();
                self.shipper.flow().said(note.global, self.feeder.feeds().clock.now());
                let message = wire::encode(&note);
                Ok(self.line.sender.send(Kind::Watermark as u8, self.feeder.feeds().term, 0, 0, &message)?)
            }
            Next::Wait { .. } => Ok(()),
        }
    }

    fn global(&self) -> Stamp {
        self.feeder.global()
    }

    fn read(&mut self, from: Stamp, length: usize) -> Result<(), ReadError> {
        let piece = &mut self.line.piece;
        if piece.len() < length {
            piece.resize(length, 0);
        }
        self.feeder.read(from, &mut piece[..length])
    }

    /// Old log: whole blocks, found by hopping.
    fn send_old(&mut self, from: Stamp, upto: Stamp) -> Result<(), ShipError> {
        let room = upto.since(from) as usize;
        let mut length = room.min(self.feeder.feeds().config.flow.frame as usize);
        let hops = loop {
            self.read(from, length)?;
            let hops = hop(&self.line.piece[..length], from, self.feeder.feeds().config.partition)?;
            match hops.next {
                // One block longer than a frame makes a frame of its own.
                Some(block) if hops.whole == 0 && block <= room => length = block,
                _ => break hops,
            }
        };
        if hops.whole == 0 {
            self.shipper.flow().credit_too_small(upto);
            return Ok(());
        }
        self.line.ends = hops.ends;
        self.send_read(from, hops.whole)
    }

    fn packs(&self, length: usize) -> bool {
        self.feeder.feeds().config.fabric.compress && (WORTH_PACKING..=MAX_FRAME / 2).contains(&length)
    }

    /// Sends what was read, compressed if that is wanted and makes it shorter.
    fn send_read(&mut self, from: Stamp, length: usize) -> Result<(), ShipError> {
        let packs = self.packs(length);
        let line = &mut *self.line;
        if packs {
            let mut stint = self.feeder.feeds().pack_cpu.begin();
            line.packed.resize(lz4_flex::block::get_maximum_output_size(length), 0);
            let packed = lz4_flex::block::compress_into(&line.piece[..length], &mut line.packed);
            stint.note();
            if let Ok(packed) = packed
                && packed < length
            {
                self.feeder.feeds().packed.fetch_add((length - packed) as u64, Ordering::Relaxed);
                return self.tell(from, length, Some(packed));
            }
        }
        line.sender.place(from.0, &line.piece[..length])?;
        self.tell(from, length, None)
    }

    fn note(&mut self) -> BatchNote {
        let (end, time) = self.feeder.newest();
        BatchNote {
            global: self.global(),
            time,
            end,
            handed_over: None,
            in_sync: self.shipper.in_sync.load(Ordering::SeqCst),
            tell_visible: self.feeder.feeds().visible_wanted.load(Ordering::SeqCst) > 0,
            ends: std::mem::take(&mut self.line.ends),
        }
    }

    /// Says that a batch is in its place, or sends it as `packed` bytes along with that.
    fn tell(&mut self, from: Stamp, length: usize, packed: Option<usize>) -> Result<(), ShipError> {
        let note = BatchNote { handed_over: self.feeder.handed_over(from), ..self.note() };
        let to = from.plus(length as u64);
        // Counted before it is on its way: the acknowledgement may be quicker than this thread.
        self.shipper.flow().sent(to, note.global, self.feeder.feeds().clock.now());
        // It was copied out of the buffer.
        let message = wire::encode(&note);
        let (line, term) = (&mut *self.line, self.feeder.feeds().term);
        line.ends = note.ends;
        match packed {
            None => line.sender.send(Kind::Batch as u8, term, from.0, length as u32, &message)?,
            Some(packed) => {
                let packed = &line.packed[..packed];
                line.sender.send_inline(Kind::Batch as u8, term, from.0, length as u32, &message, packed)?;
            }
        }
        if self.shipper.appliance && packed.is_none() && self.counts_unasked() {
            let line = &mut *self.line;
            line.sender.read_back(to.0)?;
            self.shipper.flow().acked(to, Stamp::ZERO)?;
            if self.shipper.member && !self.shipper.ended() {
                self.feeder.tell(Event::Acked { standby: self.shipper.node, persisted: to });
            }
        }
        Ok(())
    }

    /// Whether what was read back counts without a word of the standby: not before it has said so
    /// of all that it has to take note of.
    fn counts_unasked(&self) -> bool {
        self.shipper.flow().persisted() >= self.feeder.noted_by_standbys()
    }

    fn tell_peers(&mut self) -> Result<(), ShipError> {
        let version = self.feeder.feeds().peers_version.load(Ordering::SeqCst);
        if version != self.line.peers {
            self.line.peers = version;
            let message = wire::encode(&self.feeder.peers_message());
            self.line.sender.send(Kind::Peers as u8, self.feeder.feeds().term, 0, 0, &message)?;
        }
        Ok(())
    }
}
