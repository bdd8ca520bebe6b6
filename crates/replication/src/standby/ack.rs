//! Ack: tells the primary what this standby holds and how far it has room.
//!
//! It is written into status words that the primary has exported for this standby (Query Fresh,
//! section 3.1: `persisted`; section 3.2: ready to receive). To a node from which the log is only
//! fetched it is sent as a frame.

use std::time::{Duration, Instant};

use freshet_base::{
    Term,
    sync::{Arc, Mutex},
    wait::Patience,
};
use freshet_cluster::follower::{Ack, Decision, Event};
use freshet_fabric::{channel, tcp};

use super::{Shared, State};
use crate::{
    load::LoadMeter,
    terms::NOTE_COMMITTED_EVERY,
    wire::{self, Asks, Kind, Refusal},
};

/// The ack thread looks at how busy this node is, and notes what is committed, at least this often.
const PATIENCE: Duration = Duration::from_millis(100);

/// The primary has this long to read why a connection ends.
const FAREWELL: Duration = Duration::from_millis(200);

/// The sending half of the connection to the primary, while there is one, and its term.
#[derive(Default)]
pub(super) struct AckStage(Mutex<Option<(AckSender, Term)>>);

/// How the other side is told.
pub(super) enum AckSender {
    /// By writing into its memory.
    Channel(channel::Sender),
    /// By frames.
    Frames(tcp::Sender),
}

impl AckStage {
    /// A connection was made, on which nothing was said yet.
    pub fn connect(&self, sender: AckSender, term: Term) {
        *self.0.lock().expect("no code panics under this mutex") = Some((sender, term));
    }

    /// The connection is over; if `why` is known, the primary is told.
    pub fn disconnect(&self, why: Option<&Refusal>) {
        let link = self.0.lock().expect("no code panics under this mutex").take();
        let (Some((sender, term)), Some(why)) = (link, why) else { return };
        let message = wire::encode(why);
        // If it cannot be told, it will notice.
        match sender {
            AckSender::Channel(mut sender) => {
                let _ = sender.send(Kind::Goodbye as u8, term, 0, 0, &message);
                sender.farewell(FAREWELL);
            }
            AckSender::Frames(mut sender) => {
                if sender.send(Kind::Goodbye as u8, term, &message).is_ok() {
                    sender.farewell(FAREWELL);
                }
            }
        }
    }
}

impl Shared {
    /// Acknowledges if there is something new, and the connection still counts, with what this node
    /// asks for and how busy it is; one acknowledgement after the other. A lost connection is
    /// noticed by the receiving thread.
    pub(super) fn acknowledge(&self, force: bool) {
        freshet_base::step!(Ack);
        let forms = self.relay_config().and_then(|config| config.feed.forms.as_ref());
        let mut link = self.store.acks.0.lock().expect("no code panics under this mutex");
        // Whether the primary writes into the ring itself.
        let one_sided = matches!(*link, Some((AckSender::Channel(_), _)));
        let free = if one_sided { self.store.log.grant() } else { self.store.log.free_until() };
        let (decision, ack) = {
            let mut state = self.state();
            let decision = self.note_persisted(&mut state);
            let room = self.room(&mut state, free, force);
            let owes = state.follower.owes_ack(room, force, &self.terms.fence());
            let ack = if owes { state.follower.ack(room, self.clock.now()) } else { None };
            (decision, ack.map(|ack| Ack { observed: self.watching.answers(), ..ack }))
        };
        if let (Some((sender, term)), Some(ack)) = (link.as_mut(), ack) {
            let _ = match sender {
                AckSender::Channel(sender) => {
                    let proof = &self.store.config.proof;
                    let (own, in_doubt, equal_at) = (self.encoding(), proof.reason().is_some(), proof.equal_at());
                    let asks = Asks { own, below: forms.is_some_and(|forms| forms.is_asked()), in_doubt, equal_at };
                    sender.status(wire::ack_words(&ack, asks, self.load()))
                }
                AckSender::Frames(sender) => sender.send(Kind::Ack as u8, *term, &wire::encode(&ack)),
            };
        }
        drop(link);
        self.carry_out(decision);
        if decision.release.is_some() && !self.store.log.has_store() {
            // There is more room than was just said.
            self.acknowledge(false);
        }
    }

    /// Looks how far what has arrived is persistent. The log may be ahead of what was accepted
    /// here.
    pub(super) fn note_persisted(&self, state: &mut State) -> Decision {
        freshet_base::step!(Ack);
        let to = self.held().min(state.follower.received());
        if to > state.follower.persisted() { self.apply(state, Event::Persisted(to)) } else { Decision::default() }
    }
}

/// The ack thread: waits until more of the log is persistent, and has the primary told at once.
pub(super) fn run(shared: &Arc<Shared>) {
    let mut stint = shared.store.ack_cpu.begin();
    let mut seen = shared.store.log.durable();
    let mut load = LoadMeter::default();
    let mut noted = Instant::now();
    // Who stops it wakes it: a failover waits for its end.
    let stops = || shared.stopping();
    while !stops() {
        if load.look(|| shared.done()) {
            *shared.store.load.lock().expect("no code panics under this mutex") = load.load();
        }
        if noted.elapsed() >= NOTE_COMMITTED_EVERY {
            shared.note_committed();
            noted = Instant::now();
        }
        let patience = Patience::endless().until(Instant::now() + PATIENCE).unless(&stops);
        match shared.store.log.wait_persisted(seen.plus(1), patience) {
            // Also when the wait has ended without more: if the log was cut, what is persistent
            // since then may be no more than before.
            Ok(_) => {
                // Looked up first: what becomes persistent after it is another turn's.
                seen = shared.store.log.durable();
                freshet_base::step!(Ack, seen, seen);
                shared.acknowledge(false);
                stint.note();
            }
            Err(error) => return shared.follow.fail(error.to_string()),
        }
    }
    shared.note_committed();
}
