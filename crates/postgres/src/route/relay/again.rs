//! What is said once more, to the next primary, when one gives up its role.
//!
//! A primary that hands its role to another node has transactions wait that would begin, and says
//! at the end that nothing of them was begun. What a client has said for such a transaction is kept
//! until it hears something of it, and said to the next primary: the client notices nothing but the
//! wait. The same holds for a transaction in which nothing was done yet: it is begun again there.

use std::mem;

use super::{Next, On, Relay};
use crate::{
    backend::TransactionStatus,
    route::flight::{Flight, lost},
};

/// No more than this is kept. What is longer is not said again.
const LONGEST: usize = 128 << 10;

/// What may be said again.
#[derive(Default)]
pub(super) struct Again {
    /// What the client has said since nothing was under way, and how things stood before.
    sent: Option<(Vec<u8>, Flight)>,
    /// It has heard something of that.
    answered: bool,
    /// What has begun its transaction, in which nothing was done since.
    begun: Option<Vec<u8>>,
    /// The primary was told to begin that again, and has not answered.
    pub begins: bool,
}

impl Again {
    /// The client begins to say something while this is under way.
    pub fn starts(&mut self, flight: &Flight) {
        if !flight.is_busy() {
            let mut kept = self.sent.take().map_or_else(Vec::new, |(kept, _)| kept);
            kept.clear();
            (self.sent, self.answered) = (Some((kept, flight.clone())), false);
        }
    }

    /// This was said to the primary.
    pub fn sends(&mut self, bytes: &[u8]) {
        match &mut self.sent {
            Some((kept, _)) if kept.len() + bytes.len() <= LONGEST => kept.extend_from_slice(bytes),
            sent => *sent = None,
        }
    }

    /// The client hears something.
    pub fn answers(&mut self) {
        self.answered = true;
    }

    /// An answer has ended, and this is how things stand.
    pub fn ready(&mut self, flight: &Flight) {
        let only_begins = flight.only_begins() && !flight.is_busy() && flight.status() == TransactionStatus::Open;
        let sent = self.sent.as_ref().filter(|(_, before)| before.status() == TransactionStatus::Idle);
        self.begun = sent.filter(|_| only_begins).map(|(kept, _)| kept.clone());
    }
}

impl Relay<'_> {
    /// The primary is lost. Says whether the client need not hear of that: nothing is under way,
    /// nothing was done in its transaction, and what it has said has its place in what is pending.
    /// `left` says that nothing was begun that has no answer.
    pub(super) fn sends_again(&mut self, left: bool) -> bool {
        let again = &mut self.again;
        again.begins = false;
        let sent = again.sent.take().filter(|_| left && !again.answered && self.flight.is_busy());
        let before = match &sent {
            Some((_, before)) => before,
            None if self.flight.is_busy() => return self.forgets(),
            None => &self.flight,
        };
        match before.status() {
            TransactionStatus::Idle if sent.is_some() => again.begun = None,
            TransactionStatus::Open if again.begun.is_some() => {}
            _ => return self.forgets(),
        }
        if let Some((kept, before)) = sent {
            self.pending.splice(..0, kept);
            self.flight = before;
            self.front = super::Front::default();
        }
        true
    }

    /// Nothing can be said again.
    fn forgets(&mut self) -> bool {
        self.again = Again::default();
        false
    }

    /// The next primary is there: a transaction begins again in which nothing was done.
    pub(super) fn begin_again(&mut self) {
        let Some(begun) = self.again.begun.clone() else { return };
        self.send(&begun);
        if let Some(primary) = &mut self.primary {
            primary.muted += 1;
            self.again.begins = true;
        }
    }

    /// It has begun, or has not: then it is lost as any other.
    pub(super) fn has_begun_again(&mut self, on: On, status: u8) -> Next {
        if on != On::Primary || !mem::take(&mut self.again.begins) || status == b'T' {
            return Ok(());
        }
        self.again = Again::default();
        self.primary = None;
        self.report_lost(false, lost)
    }
}
