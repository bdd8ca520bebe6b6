//! Ack: tells the primary what this standby holds and how far it has room.
//!
//! It is written into status words that the primary has exported for this standby (Query Fresh, section 3.1: `persisted`; section 3.2:
//! ready to receive). To a node from which the log is only fetched it is sent as a frame.

use std::time::Duration;

use freshet_base::{
    Stamp, Term,
    sync::{AtomicBool, Mutex, Ordering},
};
use freshet_cluster::Moment;
use freshet_fabric::{channel, tcp};

use crate::wire::{self, Ack, Kind, Refusal};

/// The primary has this long to read why a connection ends.
const FAREWELL: Duration = Duration::from_millis(200);

/// The sending half of the connection to the primary, while there is one.
#[derive(Default)]
pub(super) struct AckStage {
    link: Mutex<Option<Link>>,
    /// The primary wants to hear at once what becomes visible.
    tell_visible: AtomicBool,
}

/// How the other side is told.
pub(super) enum AckSender {
    /// By writing into its memory.
    Channel(channel::Sender),
    /// By frames.
    Frames(tcp::Sender),
}

struct Link {
    sender: AckSender,
    term: Term,
    /// Not acknowledged beyond this: the log is received from here on, and what was cut away does not count.
    persisted: Stamp,
    credit: Stamp,
    visible: Stamp,
    last: Moment,
}

impl AckStage {
    /// A connection was made, on which the primary knows of `persisted` and no room.
    pub fn connect(&self, sender: AckSender, term: Term, persisted: Stamp) {
        let link = Link { sender, term, persisted, credit: Stamp::ZERO, visible: Stamp::ZERO, last: Moment::default() };
        self.tell_visible.store(false, Ordering::SeqCst);
        *self.link.lock().expect("no code panics under this mutex") = Some(link);
    }

    /// Whether the primary wants to hear at once what becomes visible, from the next
    /// [`AckStage::offer`] on.
    pub fn tell_visible(&self, tell: bool) {
        if self.tell_visible.load(Ordering::Relaxed) != tell {
            self.tell_visible.store(tell, Ordering::SeqCst);
        }
    }

    /// When something was said last on the present connection.
    pub fn last(&self) -> Option<Moment> {
        self.link.lock().expect("no code panics under this mutex").as_ref().map(|link| link.last)
    }

    /// Whether the primary writes into the ring itself.
    pub fn is_one_sided(&self) -> bool {
        let link = self.link.lock().expect("no code panics under this mutex");
        matches!(link.as_ref().map(|link| &link.sender), Some(AckSender::Channel(_)))
    }

    /// The connection is over; if `why` is known, the primary is told.
    pub fn disconnect(&self, why: Option<&Refusal>) {
        let link = self.link.lock().expect("no code panics under this mutex").take();
        let (Some(link), Some(why)) = (link, why) else { return };
        let message = wire::encode(why);
        // If it cannot be told, it will notice.
        match link.sender {
            AckSender::Channel(mut sender) => {
                let _ = sender.send(Kind::Goodbye as u8, link.term, 0, 0, &message);
                sender.farewell(FAREWELL);
            }
            AckSender::Frames(mut sender) => {
                if sender.send(Kind::Goodbye as u8, link.term, &message).is_ok() {
                    sender.farewell(FAREWELL);
                }
            }
        }
    }

    /// Sends `ack` if more is persistent than the primary knows, or visible and it wants to know that, if the room has grown by `worth_telling` bytes, or `anyway`; and
    /// only if `admits` says, now, that the connection's term counts. A lost connection is noticed by the receiving thread.
    pub fn offer(&self, ack: Ack, now: Moment, worth_telling: u64, anyway: bool, admits: impl Fn(Term) -> bool) {
        let mut guard = self.link.lock().expect("no code panics under this mutex");
        let Some(link) = guard.as_mut() else { return };
        let shows = ack.visible > link.visible && self.tell_visible.load(Ordering::SeqCst);
        let news = shows || ack.persisted > link.persisted || ack.may_send_until.since(link.credit) >= worth_telling;
        if !(news || anyway) || !admits(link.term) {
            return;
        }
        link.persisted = link.persisted.max(ack.persisted);
        link.credit = link.credit.max(ack.may_send_until);
        link.visible = ack.visible;
        link.last = now;
        let _ = match &mut link.sender {
            AckSender::Channel(sender) => sender.status(ack.words()),
            AckSender::Frames(sender) => sender.send(Kind::Ack as u8, link.term, &wire::encode(&ack)),
        };
    }
}
