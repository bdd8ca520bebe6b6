//! Messages: bytes that transactions carry, for those who listen on any node.
//!
//! A transaction is told its messages ([`Transaction::carry`]), and they are records of its block,
//! so they are persistent, shipped and replayed with all that it has written, or lost with it.
//! Nothing keeps them but the log. On every node they are entered here before what is around them
//! counts: on the primary before the block is filled, on a standby before it is replayed. So when a
//! node has found that everything below an LSN is committed, it finds here all messages below it.

use std::{
    collections::BTreeMap,
    sync::{Mutex, MutexGuard, PoisonError},
};

use freshet_base::{
    Lsn, panics,
    wait::{Patience, WaitList},
};
use freshet_log::BlockBuilder;

use crate::{Transaction, WriteError, plan::Plan};

/// A message, and the address of its record: the messages of a transaction lie between its LSN
/// and the next one, in the order in which it was given them.
pub type Message = (Lsn, Box<[u8]>);

#[derive(Debug, Default)]
struct Entered {
    messages: BTreeMap<Lsn, Box<[u8]>>,
    from: Lsn,
    kept: bool,
    closed: bool,
}

/// What a node's transactions carry, or those that it replays, until it is taken. Their size is
/// bounded by that of the log which is not committed, as long as they are taken in time.
#[derive(Debug, Default)]
pub struct Messages {
    entered: Mutex<Entered>,
    changed: WaitList,
}

impl Messages {
    /// Those of a node that enters none below `from`, where its log ended when it was started.
    pub fn starting(from: Lsn) -> Self {
        Self { entered: Mutex::new(Entered { from, ..Entered::default() }), changed: WaitList::default() }
    }

    /// Below this, messages are not entered: who begins to listen is to see what is committed
    /// there.
    pub fn from(&self) -> Lsn {
        self.entered().from
    }

    fn entered(&self) -> MutexGuard<'_, Entered> {
        self.entered.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// From now on messages are kept until they are taken. Before, nobody wants them.
    pub fn keep(&self) {
        let mut entered = self.entered();
        entered.kept = true;
        entered.closed = false;
    }

    /// Enters messages, before they are committed.
    pub fn enter(&self, messages: impl IntoIterator<Item = Message>) {
        let mut entered = self.entered();
        if entered.kept {
            entered.messages.extend(messages);
            drop(entered);
            self.changed.wake_all();
        }
    }

    /// The log is cut at `at`: what lies there and above has never been.
    pub fn cut(&self, at: Lsn) {
        let mut entered = self.entered();
        let _ = entered.messages.split_off(&at);
        entered.from = entered.from.min(at);
    }

    /// Takes the messages below `committed`, in the order of the log.
    pub fn take(&self, committed: Lsn) -> BTreeMap<Lsn, Box<[u8]>> {
        let mut entered = self.entered();
        let later = entered.messages.split_off(&committed);
        std::mem::replace(&mut entered.messages, later)
    }

    /// Waits until there is a message; its address, or nothing when `patience` ends first, or
    /// nobody takes messages any more.
    pub fn first(&self, patience: Patience<'_>) -> Option<Lsn> {
        let look = || {
            let entered = self.entered();
            let first = entered.messages.first_key_value().map(|(at, _)| *at);
            (first.is_some() || entered.closed).then_some(first)
        };
        self.changed.until(patience, look).ok().flatten()
    }

    /// Those who take messages end: the wait for them is over.
    pub fn close(&self) {
        let mut entered = self.entered();
        *entered = Entered { closed: true, from: entered.from, ..Entered::default() };
        drop(entered);
        self.changed.wake_all();
    }
}

impl Transaction<'_> {
    /// Has the transaction carry a message, for listeners on any node ([`Messages`]). Not
    /// taken back by savepoints. A transaction that only reads may carry some, too.
    ///
    /// # Errors
    /// [`WriteError::TooLarge`] and, where the transaction was begun on a standby,
    /// [`WriteError::ReadOnly`].
    pub fn carry(&self, message: &[u8]) -> Result<(), WriteError> {
        let _vital = panics::vital("a transaction's messages");
        self.may_carry()?;
        let mut state = self.worker.state.borrow_mut();
        state.check_room(message.len())?;
        state.push_message(message.into());
        Ok(())
    }

    /// The transaction is decided, and its block is not filled yet: enters what it carries. Returns
    /// the messages whose log is yet to be built.
    pub(crate) fn enter_messages(&self, lsn: Lsn, plan: &Plan, builder: &BlockBuilder) -> Vec<Box<[u8]>> {
        let mut state = self.worker.state.borrow_mut();
        if state.messages.is_empty() {
            return Vec::new();
        }
        let copy = if plan.is_long() { state.messages.clone() } else { Vec::new() };
        let addresses = (state.writes.len()..).map(|number| lsn.plus(plan.offset(number, builder)));
        self.worker.core.messages.enter(addresses.zip(state.messages.drain(..)));
        copy
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    fn message(at: u64) -> Message {
        (Lsn(at), at.to_string().into_bytes().into())
    }

    fn lsns(messages: &BTreeMap<Lsn, Box<[u8]>>) -> Vec<u64> {
        messages.keys().map(|at| at.0).collect()
    }

    #[test]
    fn messages_are_taken_in_the_order_of_the_log_when_they_are_committed() {
        let messages = Messages::default();
        messages.enter([message(5)]);
        assert_eq!(messages.first(Instant::now().into()), None, "nobody wanted it");
        messages.keep();
        messages.enter([message(70), message(71)]);
        messages.enter([message(30)]);
        assert_eq!(messages.first(Instant::now().into()), Some(Lsn(30)));
        assert_eq!(lsns(&messages.take(Lsn(30))), [0; 0]);
        assert_eq!(lsns(&messages.take(Lsn(71))), [30, 70]);
        messages.enter([message(72), message(90)]);
        messages.cut(Lsn(72));
        assert_eq!(lsns(&messages.take(Lsn::MAX)), [71]);
        messages.enter([message(100)]);
        messages.close();
        messages.enter([message(110)]);
        assert_eq!(messages.first(Patience::endless()), None);
    }
}
