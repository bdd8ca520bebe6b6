//! Ship: writes the log into each standby's log buffer (Query Fresh, section 3.1).
//!
//! There is one thread for each standby. Where writing takes no longer than copying, a batch that
//! is small is written by the group commit's own thread instead, before it flushes (the paper's
//! commit daemon does so always), on a relay by the receiving thread: two changes of threads less
//! on the way of a commit. Whoever does it holds the line meanwhile, and the order of the log stays
//! what the flow says.

use std::sync::OnceLock;

use freshet_base::{
    Lsn, NodeId,
    sync::{Arc, AtomicBool, AtomicU64, Mutex, MutexGuard, Ordering},
};
use freshet_cluster::{
    Moment,
    flow::{FlowError, Next},
    host::{FeedId, Note},
};
use freshet_fabric::{
    FabricKind, OpenError,
    channel::{MAX_FRAME, Payload, Sender},
    tcp::{Closer, Counters, SendError},
};
use freshet_log::{Batch, ReadError};

use super::{
    Feeder, Feeds, join,
    mirror::{Inbox, MirrorLine, NoMirror},
    round_trips::Timing,
};
use crate::{
    bell::Bell,
    forms::{Encode, Encoding},
    hop::{NotABlock, hop},
    status::Load,
    wire::{self, BatchNote, Join, Kind, Refusal},
};

/// Batches up to this size, in bytes, are written by the group commit's thread where that is
/// prompt. Larger ones are copied while it flushes.
const SMALL: u64 = 256 << 10;
/// The log is copied in pieces of this size, which stay in the cache between the two memories.
const PIECE: usize = 16 << 10;
/// Batches below this size are not worth compressing.
const WORTH_PACKING: usize = 256;
/// What a form begins with on the wire.
pub(crate) const PLAIN_FORM: u8 = 0;
pub(crate) const PACKED_FORM: u8 = 1;

/// One standby's connection, shared by its two threads and whoever feeds it.
pub(crate) struct Shipper {
    pub id: FeedId,
    pub node: NodeId,
    pub member: bool,
    /// What its memory is written by.
    pub fabric: FabricKind,
    /// If it is a mirror: what it says of its memory.
    pub mirror: Option<Inbox>,
    /// Rung when there may be something to send.
    pub bell: Bell,
    /// Why it ends, where that was known before it did.
    pub reason: OnceLock<String>,
    /// How long batches take.
    pub round_trips: Timing,
    /// How busy the standby is, as it has said last.
    load: Mutex<Option<Load>>,
    closer: Closer,
    /// The standby asks for another form.
    wants_form: AtomicBool,
    /// It says that something speaks against its state.
    in_doubt: AtomicBool,
    /// And at which mark its state was this primary's last; zero before the first.
    equal_at: AtomicU64,
    /// As soon as it is connected.
    sending: OnceLock<Sending>,
}

struct Sending {
    line: Mutex<Option<Line>>,
    /// Sending takes no longer than copying.
    is_prompt: bool,
    counters: Arc<Counters>,
}

/// The sending half of a connection, and what is used from batch to batch.
pub(super) struct Line {
    pub sender: Sender,
    /// If it leads to a mirror.
    pub mirror: Option<Box<MirrorLine>>,
    pub piece: Vec<u8>,
    packed: Vec<u8>,
    pub ends: Vec<u32>,
    /// As long as the standby asks for another form.
    encoder: Option<Box<dyn Encode>>,
    form: Vec<u8>,
    /// When bytes were begun to be sent that the other side was not told of yet.
    begun: Option<Moment>,
}

/// How a batch goes.
#[derive(Clone, Copy)]
enum Way {
    /// It lies in its place, but for its end: this many bytes of `piece`.
    Placed(usize),
    /// Compressed: this many bytes of `packed`.
    Packed(usize),
    /// In its form: `form`.
    Form,
}

/// What the ship thread does next.
pub(super) enum Turn {
    /// There may be more to send.
    Again,
    /// Nothing before something changes, or this time comes.
    Sleep(Moment),
    /// The feed is over.
    Over,
}

/// Why shipping ended.
#[derive(Debug, thiserror::Error)]
pub(super) enum ShipError {
    #[error(transparent)]
    Send(#[from] SendError),
    #[error(transparent)]
    Read(#[from] ReadError),
    #[error(transparent)]
    NotABlock(#[from] NotABlock),
    #[error(transparent)]
    Flow(#[from] FlowError),
    #[error(transparent)]
    Open(#[from] OpenError),
    #[error(transparent)]
    Mirror(#[from] NoMirror),
}

impl Shipper {
    pub fn new(id: FeedId, node: NodeId, join: &Join, closer: Closer) -> Self {
        let (reason, sending) = (OnceLock::new(), OnceLock::new());
        let (bell, wants_form) = (Bell::default(), AtomicBool::new(false));
        let (round_trips, load) = (Timing::default(), Mutex::default());
        let (member, fabric, mirror) = (join.member, join.offer.kind(), join.mirror.then(Inbox::default));
        let (in_doubt, equal_at) = (AtomicBool::new(false), AtomicU64::new(0));
        Self {
            id,
            node,
            member,
            fabric,
            mirror,
            bell,
            reason,
            round_trips,
            load,
            closer,
            wants_form,
            in_doubt,
            equal_at,
            sending,
        }
    }

    /// It is connected, and has all of the log below `from`.
    pub fn begin<F: Feeder>(&self, sender: Sender, from: Lsn, feeder: &F) {
        // What goes to a mirror is computed first, which is work for a thread of its own.
        let is_prompt = sender.is_prompt() && self.mirror.is_none();
        let counters = sender.counters();
        let mirror = self.mirror.is_some().then(|| Box::new(MirrorLine::new(&sender, from, feeder)));
        let (packed, ends, form) = (Vec::new(), Vec::new(), Vec::new());
        let line = Line { sender, mirror, piece: vec![0; PIECE], packed, ends, encoder: None, form, begun: None };
        let sending = Sending { line: Mutex::new(Some(line)), is_prompt, counters };
        if self.sending.set(sending).is_ok() && is_prompt {
            feeder.feeds().state().host.is_prompt(self.id);
        }
    }

    /// The standby wants to have what is sent from now on in this form.
    pub fn ask_for(&self, encoding: Encoding) {
        let wants_form = encoding != Encoding::Bytes;
        if self.wants_form.swap(wants_form, Ordering::SeqCst) != wants_form {
            self.bell.ring();
        }
    }

    /// In which form the standby asks for the log.
    pub fn encoding(&self) -> Encoding {
        if self.wants_form() { Encoding::Inputs } else { Encoding::Bytes }
    }

    /// The standby says whether something speaks against its state, and at which mark that was this
    /// primary's last.
    pub fn note_proof(&self, in_doubt: bool, equal_at: Option<Lsn>) {
        self.equal_at.store(equal_at.unwrap_or_default().0, Ordering::SeqCst);
        if !self.in_doubt.swap(in_doubt, Ordering::SeqCst) && in_doubt {
            tracing::error!(standby = %self.node, "the state of a standby is in doubt: see its status");
        }
    }

    /// Whether the standby says that something speaks against its state.
    pub fn in_doubt(&self) -> bool {
        self.in_doubt.load(Ordering::SeqCst)
    }

    /// At which mark its state was this primary's last.
    pub fn equal_at(&self) -> Option<Lsn> {
        Some(Lsn(self.equal_at.load(Ordering::SeqCst))).filter(|at| *at > Lsn::ZERO)
    }

    /// The standby says how busy it is, if it knows.
    pub fn note_load(&self, load: Option<Load>) {
        *self.load.lock().expect("no code panics under this mutex") = load;
    }

    /// How busy the standby is, as it has said last. What is on its way to a mirror, it does not
    /// see.
    pub fn load(&self) -> Option<Load> {
        let load = *self.load.lock().expect("no code panics under this mutex");
        let link_busy = self.mirror.as_ref().map(Inbox::link_busy);
        load.map(|load| Load { link_busy: link_busy.unwrap_or(load.link_busy), ..load })
    }

    fn wants_form(&self) -> bool {
        self.wants_form.load(Ordering::SeqCst)
    }

    /// Bytes sent over the connection.
    pub fn sent_bytes(&self) -> u64 {
        self.sending.get().map_or(0, |sending| sending.counters.read().sent_bytes)
    }

    /// Ends the connection and both threads.
    pub fn end(&self) {
        self.closer.close();
        self.bell.ring();
    }

    fn line(&self) -> Option<MutexGuard<'_, Option<Line>>> {
        Some(self.sending.get()?.line.lock().expect("no code panics under this mutex"))
    }

    /// Does `what` with the line at once where sending is prompt and nothing else is being sent. It
    /// says whether it has done what there was to do; otherwise the ship thread looks. Never
    /// blocks.
    fn at_once<F: Feeder>(&self, feeder: &F, what: impl FnOnce(&mut Ship<'_, F>) -> bool) {
        // Encoding is work for a thread of its own.
        if let Some(sending) = self.sending.get().filter(|sending| sending.is_prompt && !self.wants_form())
            && let Ok(mut line) = sending.line.try_lock()
            && let Some(line) = line.as_mut()
            && what(&mut Ship { feeder, shipper: self, line })
        {
            return;
        }
        self.bell.ring();
    }
}

/// A batch can be read; ships it. Neither blocks nor copies the batch, unless that takes no time:
/// then a small one is written at once. Nothing but the newest batch, and only if nothing is in its
/// way; whatever goes wrong, the ship thread will meet too.
///
/// # Panics
/// When the batch does not follow the last one.
pub(crate) fn batch_ready<F: Feeder>(feeder: &F, batch: &Batch<'_>) {
    freshet_base::step!(Ship, batch.from, batch.to);
    let (feeds, Batch { from, to, .. }) = (feeder.feeds(), *batch);
    let shippers = {
        let mut state = feeds.state();
        state.host.filled(from, to, batch.partition_ends, feeds.clock.now());
        state.all()
    };
    for shipper in shippers {
        if to.since(from) > SMALL {
            shipper.bell.ring();
            continue;
        }
        shipper.at_once(feeder, |ship| {
            let _stint = feeds.prompt_cpu.begin();
            let Some(next @ Next::SendLive { from, to }) = ship.next() else { return false };
            let small = to.since(from) <= SMALL && ship.line.sender.has_room(to.since(from));
            let done = small && ship.carry_out(next).is_ok();
            // Relaxed: a count without data behind it.
            feeds.prompt.fetch_add(u64::from(done), Ordering::Relaxed);
            done
        });
    }
}

/// This is globally persistent: whoever reads on a standby may see more (Query Fresh, section
/// 3.4.3: "the persistent LSN is updated by the primary"). Counts as the calling thread's work.
pub(crate) fn committed<F: Feeder>(feeder: &F, to: Lsn) {
    freshet_base::step!(Commit, to, to);
    let feeds = feeder.feeds();
    let shippers: Vec<_> = {
        let mut state = feeds.state();
        let at_once = state.host.committed(to, feeds.clock.now());
        at_once.iter().filter_map(|id| state.shippers.get(id).cloned()).collect()
    };
    for shipper in shippers {
        shipper.at_once(feeder, |ship| ship.line.sender.has_room(0) && ship.carry_out(Next::SendWatermark).is_ok());
    }
}

/// The ship thread.
pub(super) fn run<F: Feeder>(feeder: &Arc<F>, shipper: &Arc<Shipper>) {
    let outcome = ship(&**feeder, shipper);
    let (mut line, mut sent) = (shipper.line(), false);
    if let (Err(error), Some(Some(line))) = (&outcome, line.as_deref_mut())
        && let Some(refusal) = (Ship { feeder: &**feeder, shipper, line }).gives_up(error)
    {
        // A standby that fell out of the buffer, where no store keeps the old log, cannot be
        // helped: send it the reason, and let it hang up, which the ack thread will notice.
        tracing::warn!(standby = %shipper.node, cause = %refusal, "a standby cannot be sent the log that it needs");
        let term = feeder.feeds().term;
        // Before it can have hung up.
        let _ = shipper.reason.set(refusal.to_string());
        sent = line.sender.send(Kind::Goodbye as u8, term, 0, 0, &wire::encode(&refusal)).is_ok();
    }
    // What was sent still arrives.
    if let Some(line) = line.as_deref_mut() {
        *line = None;
    }
    drop(line);
    if !sent {
        let why = outcome.err().map_or_else(|| "the connection was ended here".into(), |error| error.to_string());
        join::lost(&**feeder, shipper, why);
    }
}

fn ship<F: Feeder>(feeder: &F, shipper: &Shipper) -> Result<(), ShipError> {
    let mut stint = feeder.feeds().ship_cpu.begin();
    let mut behind = false;
    loop {
        let until = {
            let Some(mut line) = shipper.line() else { return Ok(()) };
            let Some(line) = line.as_mut() else { return Ok(()) };
            freshet_base::step!(Ship);
            let mut ship = Ship { feeder, shipper, line };
            let turn = match ship.line.mirror {
                Some(_) => ship.turn_mirror(&mut behind),
                None => ship.next().map_or(Ok(Turn::Over), |next| {
                    ship.report_behind(next, &mut behind);
                    match next {
                        Next::Wait { until } => Ok(Turn::Sleep(until)),
                        next => ship.carry_out(next).map(|()| Turn::Again),
                    }
                }),
            };
            // A feed that is never idle is told of, too.
            stint.note();
            match turn? {
                Turn::Over => return Ok(()),
                Turn::Again => continue,
                Turn::Sleep(until) => until,
            }
        };
        shipper.bell.sleep(Some(feeder.feeds().clock.instant(until)));
    }
}

/// Compresses `bytes`, and returns to how many, if these are fewer than `most`.
fn pack(feeds: &Feeds, bytes: &[u8], into: &mut Vec<u8>, most: usize) -> Option<usize> {
    let mut stint = feeds.pack_cpu.begin();
    into.resize(lz4_flex::block::get_maximum_output_size(bytes.len()), 0);
    let packed = lz4_flex::block::compress_into(bytes, into);
    stint.note();
    packed.ok().filter(|packed| *packed < most)
}

/// Whoever has the line.
pub(super) struct Ship<'a, F> {
    pub feeder: &'a F,
    pub shipper: &'a Shipper,
    pub line: &'a mut Line,
}

impl<F: Feeder> Ship<'_, F> {
    /// Asks the host, and takes down the ends of blocks while they are at hand.
    pub fn next(&mut self) -> Option<Next> {
        freshet_base::step!(Ship);
        let feeds = self.feeder.feeds();
        self.take_form();
        let state = feeds.state();
        let next = state.host.next(self.shipper.id, feeds.clock.now());
        if let Some(Next::SendLive { from, to }) = next {
            self.line.ends.clear();
            self.line.ends.extend(state.host.ends(from, to).map(|end| end.since(from) as u32));
        }
        next
    }

    /// The standby may have asked for another form since the last batch.
    fn take_form(&mut self) {
        let wants = self.shipper.wants_form();
        if wants != self.line.encoder.is_some() {
            let forms = self.feeder.feeds().config.forms.as_ref().filter(|_| wants);
            self.line.encoder = forms.map(|forms| forms.encoder());
        }
    }

    /// Says if the standby needs log that is no longer in the buffer, or has caught up.
    pub fn report_behind(&self, next: Next, behind: &mut bool) {
        let from = match next {
            Next::SendOld { from, .. } if !*behind => from,
            Next::SendLive { from, .. } if *behind => from,
            _ => return,
        };
        *behind = !*behind;
        let (standby, lsn) = (self.shipper.node, from.0);
        let behind_bytes = self.feeder.feeds().state().host.filled_to().since(from);
        if *behind {
            tracing::info!(%standby, lsn, behind_bytes, "a standby is behind: it is sent older log");
        } else {
            tracing::info!(%standby, lsn, behind_bytes, "a standby has caught up with the log");
        }
    }

    /// What the standby is told where it can be sent nothing more.
    fn gives_up(&self, error: &ShipError) -> Option<Refusal> {
        let give_up = || self.feeder.feeds().state().host.give_up(self.shipper.id);
        match error {
            ShipError::Read(error) => Some(Refusal::LogGone { from: give_up(), why: error.to_string() }),
            ShipError::Mirror(why) => {
                give_up();
                Some(Refusal::NoMirror(why.to_string()))
            }
            _ => None,
        }
    }

    fn carry_out(&mut self, next: Next) -> Result<(), ShipError> {
        freshet_base::step!(Ship);
        match next {
            Next::SendLive { from, to } => {
                // Relaxed: a count without data behind it.
                self.feeder.feeds().live.fetch_add(1, Ordering::Relaxed);
                let length = to.since(from) as usize;
                if self.packs(length) || self.encodes(length) {
                    self.read(from, length)?;
                    return self.send_read(from, length);
                }
                self.line.begun = Some(self.feeder.feeds().clock.now());
                let mut done = 0;
                loop {
                    let piece = PIECE.min(length - done);
                    let at = from.plus(done as u64);
                    self.feeder.read(at, &mut self.line.piece[..piece])?;
                    done += piece;
                    if done == length {
                        return self.announce_batch(from, length, Way::Placed(piece));
                    }
                    self.line.sender.place(at.0, &self.line.piece[..piece])?;
                }
            }
            Next::SendOld { from, upto } => self.send_old(from, upto),
            Next::SendWatermark | Next::SendKeepAlive => {
                self.line.ends.clear();
                let Some(note) = self.note(None) else { return Ok(()) };
                let (term, message) = (self.feeder.feeds().term, wire::encode(&note));
                Ok(self.line.sender.send(Kind::Watermark as u8, term, 0, 0, &message)?)
            }
            Next::SendPeers => self.send_peers(),
            Next::Wait { .. } => Ok(()),
        }
    }

    fn read(&mut self, from: Lsn, length: usize) -> Result<(), ReadError> {
        freshet_base::step!(Ship, from, from.plus(length as u64));
        let piece = &mut self.line.piece;
        if piece.len() < length {
            piece.resize(length, 0);
        }
        self.feeder.read(from, &mut piece[..length])
    }

    pub fn send_peers(&mut self) -> Result<(), ShipError> {
        self.feeder.feeds().state().host.peers_sent(self.shipper.id);
        let (term, message) = (self.feeder.feeds().term, wire::encode(&self.feeder.peers_message()));
        Ok(self.line.sender.send(Kind::Peers as u8, term, 0, 0, &message)?)
    }

    fn send_old(&mut self, from: Lsn, upto: Lsn) -> Result<(), ShipError> {
        match self.read_old(from, upto)? {
            0 => Ok(()),
            length => self.send_read(from, length),
        }
    }

    /// Reads old log: whole blocks, found by hopping; none if the first one has no room.
    pub fn read_old(&mut self, from: Lsn, upto: Lsn) -> Result<usize, ShipError> {
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
            self.feeder.feeds().state().host.credit_too_small(self.shipper.id, upto);
        }
        self.line.ends = hops.ends;
        Ok(hops.whole)
    }

    fn packs(&self, length: usize) -> bool {
        self.feeder.feeds().config.fabric.compress && (WORTH_PACKING..=MAX_FRAME / 2).contains(&length)
    }

    fn encodes(&self, length: usize) -> bool {
        self.line.encoder.is_some() && length <= MAX_FRAME / 2
    }

    /// Encodes what was read into a frame's form. Says whether that can be sent.
    fn encode(&mut self, from: Lsn, length: usize) -> bool {
        let line = &mut *self.line;
        let Some(encoder) = line.encoder.as_mut() else { return false };
        line.form.clear();
        line.form.push(PLAIN_FORM);
        if !encoder.encode(from, &line.piece[..length], &mut line.form) {
            return false;
        }
        let form = line.form.len() - 1;
        if self.feeder.feeds().config.fabric.compress
            && form >= WORTH_PACKING
            && let Some(packed) = pack(self.feeder.feeds(), &line.form[1..], &mut line.packed, form.saturating_sub(4))
        {
            line.form.clear();
            line.form.push(PACKED_FORM);
            line.form.extend_from_slice(&(form as u32).to_le_bytes());
            line.form.extend_from_slice(&line.packed[..packed]);
        }
        // The note needs some room.
        line.form.len() <= MAX_FRAME / 4 * 3
    }

    /// Sends what was read: in its form, if that is wanted; else compressed, if that is wanted and
    /// makes it shorter.
    fn send_read(&mut self, from: Lsn, length: usize) -> Result<(), ShipError> {
        if self.encodes(length) && self.encode(from, length) {
            return self.announce_batch(from, length, Way::Form);
        }
        let packs = self.packs(length);
        let line = &mut *self.line;
        if packs && let Some(packed) = pack(self.feeder.feeds(), &line.piece[..length], &mut line.packed, length) {
            self.feeder.feeds().packed.fetch_add((length - packed) as u64, Ordering::Relaxed);
            return self.announce_batch(from, length, Way::Packed(packed));
        }
        self.announce_batch(from, length, Way::Placed(length))
    }

    /// Blocks up to `to` are about to be on their way, or a word alone: what goes along.
    pub fn note(&mut self, to: Option<Lsn>) -> Option<BatchNote> {
        freshet_base::step!(Ship);
        let feeds = self.feeder.feeds();
        let note = feeds.state().host.shipped(self.shipper.id, to, feeds.clock.now())?;
        let Note { global, end, time, sure, filled_at, in_sync } = note;
        // Without a lease another node may lead since then, and have committed something.
        let sure = self.feeder.lease_over().map_or(sure, |over| sure.min(over));
        let report_visible = feeds.visible_wanted.load(Ordering::SeqCst) > 0;
        let ends = std::mem::take(&mut self.line.ends);
        let begun = self.line.begun.take().unwrap_or_else(|| feeds.clock.now());
        let maintenance = feeds.maintained.notice();
        Some(BatchNote { global, time, sure, begun, end, filled_at, in_sync, report_visible, maintenance, ends })
    }

    /// Puts what is left of a batch in its place and says so, in one list; or sends it along with
    /// that.
    fn announce_batch(&mut self, from: Lsn, length: usize, way: Way) -> Result<(), ShipError> {
        freshet_base::step!(Ship, from, from.plus(length as u64));
        let to = from.plus(length as u64);
        let Some(note) = self.note(Some(to)) else { return Ok(()) };
        // It was copied out of the buffer.
        let message = wire::encode(&note);
        let (feeds, line) = (self.feeder.feeds(), &mut *self.line);
        line.ends = note.ends;
        self.shipper.round_trips.sent(to, || feeds.clock.now());
        let (kind, payload) = match way {
            Way::Placed(last) => (Kind::Batch, Payload::Last(&line.piece[..last])),
            Way::Form => (Kind::Inputs, Payload::Inline(&line.form)),
            Way::Packed(packed) => (Kind::Batch, Payload::Inline(&line.packed[..packed])),
        };
        line.sender.send_with(kind as u8, feeds.term, from.0, length as u32, &message, payload)?;
        let id = self.shipper.id;
        if matches!(way, Way::Placed(_)) && feeds.state().host.counts_read_back(id) {
            line.sender.read_back(to.0)?;
            self.shipper.round_trips.held(to, || feeds.clock.now());
            let acked = feeds.state().host.read_back(id, to)?;
            acked.event.into_iter().for_each(|event| self.feeder.apply(event));
        }
        Ok(())
    }
}
