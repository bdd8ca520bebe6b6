//! Slows down guessing: each further wrong password is refused later than the one before.
//!
//! Failures are counted by the network that the client comes from and by the role that it names; a
//! count falls with time. Only refusals are delayed: a right password is looked at and lets its
//! client in at once, whatever others do, from the same place or another one. A connection whose
//! refusal is delayed holds no thread and no place among the connections that start: one thread
//! answers all of them when they are due.
//!
//! | what | most |
//! |---|---|
//! | networks or roles whose failures are known | [`KNOWN`] of each; those that failed least are forgotten first |
//! | connections from one network for one role that wait for a refusal | [`WAITING_FOR_ROLE`]; beyond that, the one of them that has waited longest is answered |
//! | connections that wait | [`ALL_WAITING`]; beyond that, the one that has waited longest of the network and the role that have most |
//!
//! So who guesses much takes places from himself alone.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    hash::{BuildHasher, Hash, RandomState},
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    sync::{Condvar, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use crate::{backend::Origin, out::Out};

const KNOWN: usize = 4096;
const WAITING_FOR_ROLE: usize = 512;
const ALL_WAITING: usize = 2048;
/// The first failures are people's mistakes, and are not delayed.
const FREE: u32 = 3;
/// The first delay; each failure doubles it.
const FIRST: Duration = Duration::from_millis(100);
/// A failure is forgotten after this time.
const FORGOTTEN: Duration = Duration::from_secs(5);
/// No more failures are counted.
const MOST: u32 = 16;

/// Where a client comes from, as failures are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Place {
    /// A user of this machine, by the Unix socket.
    User(u32),
    /// A network, by its first address: a client can use any address of its own network. All of
    /// this machine's loopback addresses are one.
    Network(IpAddr),
}

impl Place {
    pub(crate) fn of(origin: &Origin) -> Self {
        match origin {
            Origin::Local { uid } => Self::User(*uid),
            Origin::Host(address) => match address.ip().to_canonical() {
                address if address.is_loopback() => Self::Network(Ipv6Addr::LOCALHOST.into()),
                IpAddr::V6(address) => Self::Network(Ipv6Addr::from_bits(address.to_bits() & (u128::MAX << 64)).into()),
                IpAddr::V4(address) => Self::Network(Ipv4Addr::from_bits(address.to_bits() & (u32::MAX << 8)).into()),
            },
        }
    }
}

/// Why a client may not even show its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TooMany;

/// A connection that waits for its refusal.
struct Waiting {
    out: Out,
    place: Place,
    role: u64,
}

#[derive(Clone, Copy)]
struct Count {
    failures: u32,
    /// The time up to which the count has been lowered.
    at: Instant,
}

impl Count {
    /// How many count at `now`.
    fn now(self, now: Instant) -> u32 {
        let since = now.saturating_duration_since(self.at).as_secs() / FORGOTTEN.as_secs();
        self.failures.saturating_sub(u32::try_from(since).unwrap_or(u32::MAX))
    }
}

/// When a refusal is to be answered, and a number.
type Due = (Instant, u64);

#[derive(Default)]
struct Inner {
    places: HashMap<Place, Count>,
    /// By a hash of the name: names can be long.
    roles: HashMap<u64, Count>,
    waiting: BTreeMap<Due, Waiting>,
    /// The connections that wait, by place and role.
    by_role: HashMap<(Place, u64), BTreeSet<Due>>,
    next: u64,
    stopping: bool,
}

/// All failures of a server.
pub(crate) struct Delays {
    inner: Mutex<Inner>,
    changed: Condvar,
    hash: RandomState,
    /// No refusal is delayed for longer.
    longest: Duration,
}

/// Counts one more failure, in a table that stays bounded.
fn count<K: Hash + Eq + Copy>(table: &mut HashMap<K, Count>, key: K, now: Instant) -> u32 {
    if table.len() >= KNOWN && !table.contains_key(&key) {
        table.retain(|_, count| count.now(now) > 0);
        if table.len() >= KNOWN {
            let least = table.iter().min_by_key(|(_, count)| (count.now(now), count.at)).map(|(key, _)| *key);
            least.map(|key| table.remove(&key));
        }
    }
    let known = table.entry(key).or_insert(Count { failures: 0, at: now });
    *known = Count { failures: (known.now(now) + 1).min(MOST), at: now };
    known.failures
}

impl Inner {
    fn take(&mut self, due: Due) -> Option<Out> {
        let Waiting { out, place, role } = self.waiting.remove(&due)?;
        if let Some(all) = self.by_role.get_mut(&(place, role)) {
            all.remove(&due);
            if all.is_empty() {
                self.by_role.remove(&(place, role));
            }
        }
        Some(out)
    }

    /// How many wait from a place for a role.
    fn waiting_for(&self, key: (Place, u64)) -> usize {
        self.by_role.get(&key).map_or(0, BTreeSet::len)
    }

    /// Which one is answered early for another one of `key`, if there are too many.
    fn early(&self, key: (Place, u64)) -> Option<Due> {
        let of = match self.waiting_for(key) {
            WAITING_FOR_ROLE.. => self.by_role.get(&key),
            _ if self.waiting.len() >= ALL_WAITING => self.by_role.values().max_by_key(|all| all.len()),
            _ => None,
        };
        of?.first().copied()
    }
}

impl Delays {
    /// Refusals are delayed by `longest` at most; not at all if that is zero.
    pub(crate) fn new(longest: Duration) -> Self {
        Self { inner: Mutex::default(), changed: Condvar::new(), hash: RandomState::new(), longest }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether a client may show a key that could be guessed, if only often enough.
    pub(crate) fn admit(&self, place: Place, user: &str) -> Result<(), TooMany> {
        let key = (place, self.hash.hash_one(user));
        let waiting = self.lock().waiting_for(key);
        if waiting < WAITING_FOR_ROLE { Ok(()) } else { Err(TooMany) }
    }

    /// Counts a failure. Returns how long its refusal is to wait, and how many recent failures came
    /// before it.
    pub(crate) fn failed(&self, place: Place, user: &str) -> (Duration, u32) {
        let role = self.hash.hash_one(user);
        let (now, mut inner) = (Instant::now(), self.lock());
        let failures = count(&mut inner.places, place, now).max(count(&mut inner.roles, role, now));
        (delay(failures).min(self.longest), failures - 1)
    }

    /// How many recent failures there are, from there or for that role.
    pub(crate) fn failures(&self, place: Place, user: &str) -> u32 {
        let (now, inner) = (Instant::now(), self.lock());
        let of = |count: Option<&Count>| count.map_or(0, |count| count.now(now));
        of(inner.places.get(&place)).max(of(inner.roles.get(&self.hash.hash_one(user))))
    }

    /// Sends what the connection's buffer holds, and closes it, after the delay. Returns at once.
    pub(crate) fn wait(&self, mut out: Out, after: Duration, place: Place, user: &str) {
        out.transport().never_wait_to_write();
        let role = self.hash.hash_one(user);
        let mut inner = self.lock();
        if inner.stopping {
            return;
        }
        let early = inner.early((place, role)).and_then(|due| inner.take(due));
        let due = (Instant::now() + after, inner.next);
        inner.next += 1;
        inner.by_role.entry((place, role)).or_default().insert(due);
        inner.waiting.insert(due, Waiting { out, place, role });
        drop(inner);
        self.changed.notify_all();
        early.into_iter().for_each(send_and_close);
    }

    /// Answers the connections that are due, until the server stops.
    pub(crate) fn answer(&self) {
        let mut inner = self.lock();
        while !inner.stopping {
            let now = Instant::now();
            let first = inner.waiting.first_key_value().map(|(key, _)| *key);
            inner = match first {
                None => self.changed.wait(inner).unwrap_or_else(PoisonError::into_inner),
                Some((due, _)) if due > now => {
                    self.changed.wait_timeout(inner, due - now).unwrap_or_else(PoisonError::into_inner).0
                }
                Some(key) => {
                    let out = inner.take(key);
                    drop(inner);
                    out.into_iter().for_each(send_and_close);
                    self.lock()
                }
            };
        }
    }

    /// Answers all connections that wait, at once; [`Delays::answer`] returns.
    pub(crate) fn stop(&self) {
        let mut inner = self.lock();
        inner.stopping = true;
        let waiting = std::mem::take(&mut inner.waiting);
        drop(inner);
        self.changed.notify_all();
        waiting.into_values().for_each(|waiting| send_and_close(waiting.out));
    }
}

/// How long a refusal waits after this number of failures.
fn delay(failures: u32) -> Duration {
    match failures.checked_sub(FREE + 1) {
        None => Duration::ZERO,
        Some(doubled) => FIRST * 2_u32.pow(doubled.min(MOST)),
    }
}

fn send_and_close(mut out: Out) {
    out.flush();
    out.transport().close();
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use super::*;

    fn host(address: &str) -> Place {
        Place::of(&Origin::Host(SocketAddr::from((address.parse::<IpAddr>().unwrap(), 1))))
    }

    #[test]
    fn a_place_is_a_network_or_a_user() {
        assert_eq!(host("::ffff:192.0.2.1"), host("192.0.2.1"));
        assert_eq!(host("192.0.2.1"), host("192.0.2.222"));
        assert_ne!(host("192.0.2.1"), host("192.0.3.1"));
        assert!(["127.200.3.4", "::1", "::ffff:127.9.9.9"].iter().all(|it| host(it) == host("127.0.0.1")));
        assert_ne!(host("::1"), host("::2"));
        assert_eq!(host("2001:db8::1"), host("2001:db8::ffff:1:2:3"));
        assert_ne!(host("2001:db8::1"), host("2001:db8:0:1::1"));
        assert_ne!(Place::of(&Origin::Local { uid: 0 }), Place::of(&Origin::Local { uid: 1 }));
    }

    #[test]
    fn refusals_wait_longer_with_each_failure_of_a_place_or_a_role() {
        let delays = Delays::new(Duration::from_secs(4));
        let (place, other) = (host("192.0.2.1"), host("192.0.3.2"));
        let waits: Vec<u128> = (0..10).map(|_| delays.failed(place, "ann").0.as_millis()).collect();
        assert_eq!(waits, [0, 0, 0, 100, 200, 400, 800, 1600, 3200, 4000]);
        // From elsewhere for the same role, from there for another one; not from elsewhere for
        // another.
        assert_eq!(delays.failed(other, "ann").0.as_secs(), 4);
        assert_eq!(delays.failed(place, "bob").0.as_secs(), 4);
        assert_eq!(delays.failed(host("192.0.4.3"), "cid"), (Duration::ZERO, 0));
        assert_eq!((delays.failures(place, "dan"), delays.failures(host("192.0.5.4"), "dan")), (11, 0));
        assert_eq!(Delays::new(Duration::ZERO).failed(place, "ann").0, Duration::ZERO);
    }

    #[test]
    fn failures_are_forgotten_with_time() {
        let now = Instant::now();
        let count = Count { failures: MOST, at: now };
        assert_eq!(count.now(now), MOST);
        assert_eq!(count.now(now + FORGOTTEN), MOST - 1);
        assert_eq!(count.now(now + FORGOTTEN * 200), 0);
    }

    #[test]
    fn tables_stay_bounded_and_keep_those_who_fail_most() {
        let delays = Delays::new(Duration::from_secs(4));
        let steady = host("192.0.2.1");
        for number in 0..3 * KNOWN {
            delays.failed(Place::User(u32::try_from(number).unwrap()), &format!("user {number}"));
            if number % 64 == 0 {
                delays.failed(steady, "ann");
            }
        }
        let inner = delays.lock();
        assert!(inner.places.len() <= KNOWN && inner.roles.len() <= KNOWN);
        assert_eq!(inner.places.get(&steady).map(|count| count.failures), Some(MOST));
        drop(inner);
        assert_eq!(delays.failures(steady, "ann"), MOST);
    }
}
