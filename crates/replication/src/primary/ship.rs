//! Ship: one thread per standby sends it the log.

use std::sync::MutexGuard;

use freshet_base::{
    NodeId, Stamp,
    sync::{Arc, AtomicBool, AtomicU64, Mutex, Ordering},
};
use freshet_cluster::flow::{Flow, Next};
use freshet_fabric::tcp::{Closer, Counters, SendError, Sender};

use super::Shared;
use crate::{
    bell::Bell,
    hop::{NotABlock, hop},
    log_access::LogReadError,
    wire::{self, BatchNote, Kind, Refusal},
};

/// One standby's connection, shared by its two threads and the primary.
pub(crate) struct Shipper {
    pub node: NodeId,
    /// Whether commits may count on it.
    pub member: bool,
    pub flow: Mutex<Flow>,
    /// Rung when there may be something to send.
    pub bell: Bell,
    /// The ship thread sleeps and wants to hear of `committed`.
    pub wants_watermark: AtomicBool,
    /// Whether the commit rule counts on it.
    pub in_sync: AtomicBool,
    pub replayed: AtomicU64,
    pub visible: AtomicU64,
    pub counters: Arc<Counters>,
    closer: Closer,
    ended: AtomicBool,
    /// Why it ended: what was noticed first.
    reason: Mutex<Reason>,
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
    Read(#[from] LogReadError),
    #[error(transparent)]
    NotABlock(#[from] NotABlock),
}

impl Shipper {
    pub fn new(node: NodeId, member: bool, flow: Flow, closer: Closer, counters: Arc<Counters>) -> Self {
        Self {
            node,
            member,
            flow: Mutex::new(flow),
            bell: Bell::default(),
            wants_watermark: AtomicBool::new(false),
            in_sync: AtomicBool::new(false),
            replayed: AtomicU64::new(0),
            visible: AtomicU64::new(0),
            counters,
            closer,
            ended: AtomicBool::new(false),
            reason: Mutex::default(),
        }
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

/// The ship thread.
pub(super) fn run(shared: &Arc<Shared>, shipper: &Arc<Shipper>, mut sender: Sender) {
    let mut loop_ = ShipLoop { shared, shipper, sender: &mut sender, piece: Vec::new(), ends: Vec::new(), peers: 0 };
    let outcome = loop_.run();
    if let Err(ShipError::Read(error)) = &outcome {
        // Where no store keeps the old log, whoever fell out of the buffer cannot be helped: tell it why,
        // and let it hang up, which the ack thread will hear.
        let refusal = Refusal::LogGone { from: shipper.flow().shipped(), why: error.to_string() };
        if sender.send(Kind::Goodbye as u8, shared.who.term, &wire::encode(&refusal)).is_ok() {
            shipper.ended.store(true, Ordering::SeqCst);
            *shipper.reason.lock().expect("no code panics under this mutex") = Reason::Known(refusal.to_string());
            return sender.finish();
        }
    }
    shared
        .lost(shipper, outcome.err().map_or_else(|| "the connection was ended here".into(), |error| error.to_string()));
}

struct ShipLoop<'a> {
    shared: &'a Arc<Shared>,
    shipper: &'a Shipper,
    sender: &'a mut Sender,
    /// The batch on its way: copied out of the ring first, since the ring does not wait for slow sockets.
    piece: Vec<u8>,
    ends: Vec<u32>,
    peers: u64,
}

impl ShipLoop<'_> {
    fn run(&mut self) -> Result<(), ShipError> {
        let shared = self.shared;
        let mut stint = shared.ship_cpu.begin();
        while !self.shipper.ended() {
            self.tell_peers()?;
            match self.next() {
                Next::SendLive { from, to } => {
                    let length = to.since(from) as usize;
                    self.read(from, length)?;
                    self.send(Kind::Batch, from, length)?;
                }
                Next::SendOld { from, upto } => self.send_old(from, upto)?,
                Next::SendWatermark | Next::SendKeepAlive => {
                    self.ends.clear();
                    self.send(Kind::Watermark, Stamp::ZERO, 0)?;
                }
                Next::Wait { .. } => {
                    stint.note();
                    self.sleep();
                }
            }
        }
        Ok(())
    }

    /// Asks the flow, and takes down the ends of blocks while the boundaries are at hand.
    fn next(&mut self) -> Next {
        let boundaries = self.shared.boundaries();
        let next = self.shipper.flow().next(&boundaries, self.global(), self.shared.clock.now());
        if let Next::SendLive { from, to } = next {
            self.ends.clear();
            self.ends.extend(boundaries.between(from, to).map(|end| end.since(from) as u32));
        }
        next
    }

    fn global(&self) -> Stamp {
        self.shared.commit.committed().get()
    }

    fn sleep(&mut self) {
        // First the wish, then the look: either this look sees the newest `committed`, or whoever
        // moves it sees the wish (both SeqCst).
        let wish = {
            let flow = self.shipper.flow();
            let silent = self.shared.clock.now().since(flow.last_frame());
            flow.told() < flow.shipped() && silent >= self.shared.config.flow.watermark_delay
        };
        self.shipper.wants_watermark.store(wish, Ordering::SeqCst);
        if let Next::Wait { until } = self.next() {
            self.shipper.bell.sleep(Some(self.shared.clock.instant(until)));
        }
        self.shipper.wants_watermark.store(false, Ordering::SeqCst);
    }

    fn read(&mut self, from: Stamp, length: usize) -> Result<(), LogReadError> {
        if self.piece.len() < length {
            self.piece.resize(length, 0);
        }
        self.shared.source.read(from, &mut self.piece[..length])
    }

    /// Old log: whole blocks, found by hopping.
    fn send_old(&mut self, from: Stamp, upto: Stamp) -> Result<(), ShipError> {
        let room = upto.since(from) as usize;
        let mut length = room.min(self.shared.config.flow.frame as usize);
        let hops = loop {
            self.read(from, length)?;
            let hops = hop(&self.piece[..length], from, self.shared.config.partition)?;
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
        self.ends = hops.ends;
        self.send(Kind::Batch, from, hops.whole)
    }

    fn send(&mut self, kind: Kind, from: Stamp, length: usize) -> Result<(), ShipError> {
        let note = BatchNote {
            global: self.global(),
            time: self.shared.clock.now(),
            end: self.shared.boundaries().available(),
            in_sync: self.shipper.in_sync.load(Ordering::SeqCst),
            ends: std::mem::take(&mut self.ends),
        };
        // Counted before it is on its way: the acknowledgement may be quicker than this thread.
        if kind == Kind::Batch {
            self.shipper.flow().sent(from.plus(length as u64), note.global, note.time);
        } else {
            self.shipper.flow().said(note.global, note.time);
        }
        let immediate = wire::encode(&note);
        let payload = [&self.piece[..length], &[]];
        if kind == Kind::Batch {
            // It was copied out of the buffer.
            self.shared.release_buffer(note.end);
        }
        self.sender.write_with_imm(kind as u8, self.shared.who.term, from.0, payload, &immediate)?;
        self.ends = note.ends;
        Ok(())
    }

    fn tell_peers(&mut self) -> Result<(), ShipError> {
        let version = self.shared.peers_version.load(Ordering::SeqCst);
        if version != self.peers {
            self.peers = version;
            let message = wire::encode(&self.shared.peers_message());
            self.sender.send(Kind::Peers as u8, self.shared.who.term, &message)?;
        }
        Ok(())
    }
}
