//! Ack: tells the primary what this standby holds and how far it has room.

use std::time::Duration;

use freshet_base::{Stamp, Term, sync::Mutex};
use freshet_cluster::Moment;
use freshet_fabric::tcp::Sender;

use crate::wire::{self, Ack, Kind, Refusal};

/// The primary has this long to read why a connection ends.
const FAREWELL: Duration = Duration::from_millis(200);

/// The sending half of the connection to the primary, while there is one.
#[derive(Default)]
pub(super) struct AckStage {
    link: Mutex<Option<Link>>,
}

struct Link {
    sender: Sender,
    term: Term,
    /// Not acknowledged beyond this: the log is received from here on, and what was cut away does not count.
    persisted: Stamp,
    credit: Stamp,
    last: Moment,
}

impl AckStage {
    /// A connection was made, on which the primary knows of `persisted` and `credit`.
    pub fn connect(&self, sender: Sender, term: Term, persisted: Stamp, credit: Stamp) {
        let link = Link { sender, term, persisted, credit, last: Moment::default() };
        *self.link.lock().expect("no code panics under this mutex") = Some(link);
    }

    /// When something was said last on the present connection.
    pub fn last(&self) -> Option<Moment> {
        self.link.lock().expect("no code panics under this mutex").as_ref().map(|link| link.last)
    }

    /// The connection is over; if `why` is known, the primary is told.
    pub fn disconnect(&self, why: Option<&Refusal>) {
        let link = self.link.lock().expect("no code panics under this mutex").take();
        if let (Some(mut link), Some(why)) = (link, why) {
            // If it cannot be told, it will notice.
            if link.sender.send(Kind::Goodbye as u8, link.term, &wire::encode(why)).is_ok() {
                link.sender.farewell(FAREWELL);
            }
        }
    }

    /// Sends `ack` if more is persistent than the primary knows, if the room has grown by `worth_telling` bytes, or `anyway`; and
    /// only if `admits` says, now, that the connection's term counts. A lost connection is noticed by the receiving thread.
    pub fn offer(&self, ack: Ack, now: Moment, worth_telling: u64, anyway: bool, admits: impl Fn(Term) -> bool) {
        let mut guard = self.link.lock().expect("no code panics under this mutex");
        let Some(link) = guard.as_mut() else { return };
        let news = ack.persisted > link.persisted || ack.may_send_until.since(link.credit) >= worth_telling;
        if !(news || anyway) || !admits(link.term) {
            return;
        }
        link.persisted = link.persisted.max(ack.persisted);
        link.credit = link.credit.max(ack.may_send_until);
        link.last = now;
        let _ = link.sender.send(Kind::Ack as u8, link.term, &wire::encode(&ack));
    }
}
