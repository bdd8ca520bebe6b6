//! LISTEN and NOTIFY: the channels of a node, and the way of a notification to those who listen.
//!
//! A notification is a message that its transaction carries through the log
//! ([`Messages`](freshet_engine::Messages)). So it is kept, shipped and replayed with what that
//! transaction has written; it is delivered on every node, in the order of commits, when the
//! transaction is committed there (on a standby: visible). A session that hears of it sees what it
//! is about.
//!
//! LISTEN begins at a place in the log, as well: what is committed by then is not delivered, since
//! the session can read it; everything after it is.

use std::{
    collections::{HashMap, VecDeque},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    thread::JoinHandle,
    time::{Duration, Instant},
};

use freshet_base::wait::{self, Patience};
use freshet_engine::{Database, Lsn};
use freshet_postgres::Bell;
use freshet_sql::{
    SqlError, SqlState,
    memory::{Pool, Reservation},
};

use crate::schema::Oid;

/// Names of channels are shorter, in bytes.
const NAME: usize = 64;
/// Payloads are shorter, in bytes.
const PAYLOAD: usize = 8000;
/// How many bytes of notifications may wait for a session.
const WAITING: usize = 32 << 20;
/// About how many bytes a notification takes besides its texts.
const NOTIFICATION: usize = 64;
/// How often the thread that delivers looks whether it is to end, while a commit is on its way.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// How often it looks for a commit that is refused for now: who lets it through wakes only those
/// who wait for commits, and such a wait ends at once.
const REFUSED: Duration = Duration::from_millis(5);
/// What a message that is a notification begins with.
const KIND: u8 = b'N';

/// What NOTIFY says.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Notification {
    /// The channel, as LISTEN names it.
    pub channel: Box<str>,
    /// The text that NOTIFY has sent, empty if it has sent none.
    pub payload: Box<str>,
}

impl Notification {
    /// One that can be told.
    ///
    /// # Errors
    /// 22023 when the channel's name is empty, or one of the two is too long.
    pub fn new(channel: &str, payload: &str) -> Result<Self, SqlError> {
        let refused = |why: &str| Err(SqlError::new(SqlState::INVALID_PARAMETER_VALUE, why.to_owned()));
        if channel.is_empty() {
            return refused("channel name cannot be empty");
        }
        if channel.len() >= NAME {
            return refused("channel name too long");
        }
        if payload.len() >= PAYLOAD {
            return refused("payload string too long");
        }
        Ok(Self { channel: channel.into(), payload: payload.into() })
    }

    /// About how many bytes it takes.
    pub fn size(&self) -> usize {
        NOTIFICATION + self.channel.len() + self.payload.len()
    }

    /// As a message of the log: `K database pid length channel payload`, numbers little endian.
    pub fn encode(&self, database: Oid, pid: i32) -> Vec<u8> {
        let mut message = Vec::with_capacity(10 + self.channel.len() + self.payload.len());
        message.push(KIND);
        message.extend_from_slice(&database.to_le_bytes());
        message.extend_from_slice(&pid.to_le_bytes());
        // Names have less than 64 bytes.
        message.push(self.channel.len() as u8);
        message.extend_from_slice(self.channel.as_bytes());
        message.extend_from_slice(self.payload.as_bytes());
        message
    }

    /// The database, the session's number, and the notification of a message; nothing if it is
    /// none.
    fn decode(message: &[u8]) -> Option<(Oid, i32, Self)> {
        let message = message.strip_prefix(&[KIND])?;
        let (database, message) = message.split_first_chunk()?;
        let (pid, message) = message.split_first_chunk()?;
        let (length, message) = message.split_first()?;
        let (channel, payload) = message.split_at_checked((*length).into())?;
        let text = |bytes| std::str::from_utf8(bytes).ok().map(Into::into);
        let notification = Self { channel: text(channel)?, payload: text(payload)? };
        Some((Oid::from_le_bytes(*database), i32::from_le_bytes(*pid), notification))
    }
}

/// A notification, and the number of the session that has sent it: on its primary, if this is a
/// standby.
#[derive(Clone, Debug)]
pub struct Delivered {
    /// The session's number.
    pub pid: i32,
    /// Channel and text.
    pub notification: Arc<Notification>,
}

#[derive(Debug)]
struct Inbox {
    waiting: VecDeque<Delivered>,
    overflown: bool,
    kept: Reservation,
    /// What all sessions take their memory from.
    shared: Arc<Pool>,
}

impl Inbox {
    /// Whether this many bytes may wait. Three quarters of what there is for all sessions are the
    /// most: statements need some.
    fn has_room(&self, bytes: usize) -> bool {
        let is_full = self.shared.used() > self.shared.limit() / 4 * 3;
        bytes <= WAITING && !is_full && self.kept.set(bytes).is_ok()
    }
}

/// A session that listens: what waits for it until it can be told.
#[derive(Debug)]
pub struct Listener {
    bell: Bell,
    inbox: Mutex<Inbox>,
}

/// More has come for a session than can wait for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Overflown;

impl Listener {
    /// A session that is woken by `bell`. What waits for it is taken from `memory`.
    pub fn new(bell: Bell, memory: &Arc<Pool>) -> Arc<Self> {
        let shared = Arc::clone(memory.above().unwrap_or(memory));
        let inbox = Inbox { waiting: VecDeque::new(), overflown: false, kept: memory.reserve(), shared };
        Arc::new(Self { bell, inbox: Mutex::new(inbox) })
    }

    fn inbox(&self) -> MutexGuard<'_, Inbox> {
        self.inbox.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn put(&self, delivered: Delivered) {
        let mut inbox = self.inbox();
        if !inbox.overflown {
            let bytes = inbox.kept.bytes() + delivered.notification.size();
            if inbox.has_room(bytes) {
                inbox.waiting.push_back(delivered);
            } else {
                inbox.overflown = true;
                inbox.waiting = VecDeque::new();
                let _ = inbox.kept.set(0);
            }
        }
        drop(inbox);
        self.bell.ring();
    }

    /// Takes what waits.
    ///
    /// # Errors
    /// [`Overflown`] when some of it is lost.
    pub fn take(&self) -> Result<VecDeque<Delivered>, Overflown> {
        let mut inbox = self.inbox();
        if inbox.overflown {
            return Err(Overflown);
        }
        let _ = inbox.kept.set(0);
        Ok(std::mem::take(&mut inbox.waiting))
    }

    /// Has the session look again as soon as it is idle, if anything waits for it.
    pub fn ring_again(&self) {
        let inbox = self.inbox();
        if inbox.overflown || !inbox.waiting.is_empty() {
            self.bell.ring();
        }
    }

    /// How much of what can wait for it does, between 0 and 1.
    fn usage(&self) -> f64 {
        let inbox = self.inbox();
        if inbox.overflown { 1.0 } else { inbox.kept.bytes() as f64 / WAITING as f64 }
    }
}

/// A session on a channel, and from which LSN on.
#[derive(Debug)]
struct Listening {
    listener: Arc<Listener>,
    from: Lsn,
}

/// Those who listen, by database and channel.
type Listeners = HashMap<(Oid, Box<str>), Vec<Listening>>;

#[derive(Debug)]
struct Channels {
    database: Database,
    /// Held while anything is delivered: so there is one order, and LISTEN misses nothing.
    listeners: Mutex<Listeners>,
    ends: AtomicBool,
}

impl Channels {
    fn listeners(&self) -> MutexGuard<'_, Listeners> {
        self.listeners.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn deliver(&self) {
        let listeners = self.listeners();
        for (at, message) in self.database.messages().take(self.database.committed()) {
            let Some((database, pid, notification)) = Notification::decode(&message) else {
                tracing::warn!(lsn = at.0, "a message in the log is not a notification; it is ignored");
                continue;
            };
            let key = (database, notification.channel.clone());
            let Some(listening) = listeners.get(&key) else { continue };
            let notification = Arc::new(notification);
            for Listening { listener, from } in listening {
                if at >= *from {
                    listener.put(Delivered { pid, notification: Arc::clone(&notification) });
                }
            }
        }
    }

    /// Delivers what nobody else does: on a standby all of it, on a primary what was committed by
    /// sessions that did not wait for it.
    fn run(&self) {
        while !self.ends.load(Ordering::Acquire) {
            let Some(first) = self.database.messages().first(Patience::endless()) else { continue };
            self.database.wait_committed(first.plus(1), Instant::now() + LOOK_EVERY);
            if self.database.committed() > first {
                self.deliver();
            } else {
                wait::sleep((Instant::now() + REFUSED).into());
            }
        }
    }
}

/// The channels of a node.
#[derive(Debug)]
pub struct Notifications {
    channels: Arc<Channels>,
    thread: Option<JoinHandle<()>>,
}

impl Notifications {
    /// Those of this database's node, with a thread that delivers.
    ///
    /// # Errors
    /// When there can be no thread.
    pub fn start(database: &Database) -> Result<Self, SqlError> {
        database.messages().keep();
        let channels =
            Channels { database: database.clone(), listeners: Mutex::default(), ends: AtomicBool::new(false) };
        let channels = Arc::new(channels);
        let theirs = Arc::clone(&channels);
        let thread = std::thread::Builder::new().name("notify".to_owned()).spawn(move || theirs.run());
        let thread = thread
            .map_err(|cause| SqlError::internal(format!("there is no thread to deliver notifications: {cause}")))?;
        Ok(Self { channels, thread: Some(thread) })
    }

    /// Delivers everything that is committed by now.
    pub fn deliver(&self) {
        self.channels.deliver();
    }

    /// From now on, `listener` hears of what is said on these channels of a database.
    pub fn listen<'c>(&self, database: Oid, channels: impl Iterator<Item = &'c str>, listener: &Arc<Listener>) {
        let mut listeners = self.channels.listeners();
        let from = self.channels.database.committed();
        for channel in channels {
            let listening = Listening { listener: Arc::clone(listener), from };
            listeners.entry((database, channel.into())).or_default().push(listening);
        }
    }

    /// And of these no more.
    pub fn unlisten<'c>(&self, database: Oid, channels: impl Iterator<Item = &'c str>, listener: &Arc<Listener>) {
        let mut listeners = self.channels.listeners();
        for channel in channels {
            let key = (database, channel.into());
            if let Some(all) = listeners.get_mut(&key) {
                all.retain(|it| !Arc::ptr_eq(&it.listener, listener));
                if all.is_empty() {
                    listeners.remove(&key);
                }
            }
        }
    }

    /// How much of what can wait for a session does, between 0 and 1, for the one that has most.
    pub fn usage(&self) -> f64 {
        let listeners = self.channels.listeners();
        listeners.values().flatten().map(|it| it.listener.usage()).fold(0.0, f64::max)
    }
}

impl Drop for Notifications {
    fn drop(&mut self) {
        self.channels.ends.store(true, Ordering::Release);
        self.channels.database.messages().close();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_notification_comes_out_of_the_log_as_it_went_in() {
        let notification = Notification::new("täglich", "es regnet").unwrap();
        let message = notification.encode(16384, -7);
        assert_eq!(Notification::decode(&message), Some((16384, -7, notification)));
        for damaged in [&message[1..], &message[..9], &message[..12], &[KIND], &[]] {
            assert_eq!(Notification::decode(damaged), None, "{damaged:?}");
        }
    }

    #[test]
    fn what_is_too_long_is_refused() {
        for (channel, payload) in [("", "x"), (&*"c".repeat(64), "x"), ("c", &*"x".repeat(8000))] {
            let refused = Notification::new(channel, payload).unwrap_err();
            assert_eq!(refused.state, SqlState::INVALID_PARAMETER_VALUE, "{channel}");
        }
        assert!(Notification::new(&"c".repeat(63), &"x".repeat(7999)).is_ok());
    }
}
