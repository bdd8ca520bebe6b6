//! Snapshots that are too old: of how long ago, and how much they keep in memory.
//!
//! A transaction keeps every version that its snapshot sees, and whatever was freed since it began.
//! Once a second it is looked how old the snapshots of sessions are, and what is kept for them.
//! Those beyond the limits are condemned: their sessions get 72000 for what they run, or for their
//! next statement, and give their transactions up at once while they are idle. The limits are the
//! server's; no role can raise them. Replay condemns none.
//!
//! What is condemned is said by an LSN and an epoch: every snapshot below that LSN, and every
//! transaction that holds what was freed below that epoch. So nothing is said of a session that
//! has ended its transaction in the meantime.

use std::{
    collections::VecDeque,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use freshet_engine::{Core, Held, Lsn};
use freshet_sql::{SqlError, SqlState};

use crate::session::settings::Bounds;

/// How often it is looked what is kept. What can be freed is, in between.
const LOOK_AFTER: Duration = Duration::from_millis(500);
/// How many moments are remembered to tell how old a snapshot is.
const MOMENTS: u32 = 16;

/// What of a node's snapshots is condemned.
#[derive(Debug)]
pub struct OldSnapshots {
    core: Arc<Core>,
    /// Snapshots below this.
    below: AtomicU64,
    /// Transactions that were begun in an epoch below this.
    epoch: AtomicU64,
    looks: Mutex<Looks>,
}

#[derive(Debug, Default)]
struct Looks {
    last: Option<Instant>,
    /// When which snapshot would have been the oldest that is possible; the oldest first.
    moments: VecDeque<(Instant, Lsn)>,
    /// What was kept at the last look, if that was too much, and by whom.
    before: Option<(u64, Held)>,
}

impl OldSnapshots {
    /// None are condemned.
    pub fn new(core: &Arc<Core>) -> Arc<Self> {
        let (below, epoch) = (AtomicU64::new(0), AtomicU64::new(0));
        Arc::new(Self { core: Arc::clone(core), below, epoch, looks: Mutex::default() })
    }

    /// Whether a worker holds what is condemned.
    #[inline]
    pub fn condemns(&self, place: usize) -> bool {
        self.core.participants.held(place).is_some_and(|held| self.is_condemned(held))
    }

    fn is_condemned(&self, held: Held) -> bool {
        // Relaxed: who looks too early looks again.
        let by_snapshot = held.snapshot.is_some_and(|snapshot| snapshot.0 < self.below.load(Ordering::Relaxed));
        by_snapshot || held.epoch < self.epoch.load(Ordering::Relaxed)
    }

    /// Looks whether sessions, at these places among the workers, hold what is too old, or too
    /// much.
    pub fn look(&self, places: impl Iterator<Item = usize> + Clone, bounds: &Bounds) {
        let now = Instant::now();
        let mut looks = self.looks.lock().unwrap_or_else(PoisonError::into_inner);
        if looks.last.is_some_and(|last| now - last < LOOK_AFTER) {
            return;
        }
        looks.last = Some(now);
        let age = bounds.snapshot_age;
        if !age.is_zero()
            && let Some(below) = looks.older_than(age, now, self.core.snapshots.oldest_readable())
        {
            self.below.fetch_max(below.0, Ordering::Relaxed);
        }
        let limit = self.core.memory.limit();
        let most = match bounds.snapshot_bytes {
            0 => limit.map_or(u64::MAX, |limit| limit / 4),
            bytes => bytes,
        };
        // Where nothing may be added, writers come before who does not end his transaction.
        let full = self.core.memory.measure();
        let most = if full { most.min(limit.map_or(u64::MAX, |limit| limit / 64)) } else { most };
        // What an old snapshot keeps on a standby, entries of deleted records above all, is not
        // known, nor what it has kept since then if the standby leads, nor what it keeps of tables
        // that were dropped or truncated.
        let begun = self.core.snapshots.primary().map(|primary| primary.log.start());
        let is_of_standby = |place| {
            let snapshot = self.core.participants.held(place).and_then(|held| held.snapshot);
            snapshot.zip(begun).is_some_and(|(snapshot, begun)| snapshot < begun)
        };
        let unknown = full && (begun.is_none() || self.core.catalog.has_dropped() || places.clone().any(is_of_standby));
        let kept = if unknown { self.core.memory.used().without_statements() } else { self.core.kept_for_snapshots() };
        let holder = if kept > most { self.holder(places) } else { None };
        let before = std::mem::replace(&mut looks.before, holder.map(|holder| (kept, holder)));
        // What no session holds is about to be freed. So a session must hold it at two looks, and
        // what is kept must not become less between them.
        if let (Some(holder), Some((less, same))) = (holder, before)
            && holder == same
            && kept >= less
        {
            self.condemn(holder, kept, most);
        }
    }

    /// The session that holds most: none where somebody else holds more, such as a checkpoint.
    fn holder(&self, places: impl Iterator<Item = usize>) -> Option<Held> {
        let participants = &self.core.participants;
        let oldest = |held: Held| (held.snapshot.unwrap_or(Lsn::MAX), held.epoch);
        let all = (0..participants.limit()).filter_map(|place| participants.held(place));
        let (least, epoch) = all.fold((Lsn::MAX, u64::MAX), |(least, epoch), held| {
            (least.min(held.snapshot.unwrap_or(Lsn::MAX)), epoch.min(held.epoch))
        });
        let sessions = places.filter_map(|place| participants.held(place));
        let holders = sessions.filter(|held| held.snapshot == Some(least) || held.epoch == epoch);
        // One that has just begun holds nothing.
        let now = (self.core.snapshots.oldest_readable(), participants.epoch());
        holders.filter(|held| oldest(*held).0 < now.0 || held.epoch < now.1).min_by_key(|held| oldest(*held))
    }

    fn condemn(&self, holder: Held, kept: u64, most: u64) {
        let participants = &self.core.participants;
        let by_epoch = participants.waiting_bytes() as u64 > kept / 2;
        match holder.snapshot.filter(|_| !by_epoch) {
            Some(snapshot) => self.below.fetch_max(snapshot.0 + 1, Ordering::Relaxed),
            None => self.epoch.fetch_max(holder.epoch + 1, Ordering::Relaxed),
        };
        tracing::warn!(
            kept,
            most,
            snapshot = holder.snapshot.map(|snapshot| snapshot.0),
            "old versions that are kept for an open transaction take more memory than they may: it ends with \
             72000; see sql.snapshot-max-bytes"
        );
    }
}

impl Looks {
    /// The oldest snapshot that is possible of those that are no older than `age`, as far as that
    /// is known; `oldest` is the oldest that can begin now.
    fn older_than(&mut self, age: Duration, now: Instant, oldest: Lsn) -> Option<Lsn> {
        if self.moments.back().is_none_or(|(at, _)| now - *at >= age / MOMENTS) {
            self.moments.push_back((now, oldest));
        }
        let mut below = None;
        while self.moments.get(1).is_some_and(|(at, _)| now - *at >= age) {
            self.moments.pop_front();
        }
        if let Some((at, lsn)) = self.moments.front()
            && now - *at >= age
        {
            below = Some(*lsn);
        }
        below
    }
}

/// The error of who holds what is condemned.
#[cold]
pub fn too_old() -> SqlError {
    let detail = "The transaction kept more old versions in memory than the server's setting sql.snapshot-max-bytes \
                  allows, or it was open for longer than the server allows.";
    SqlError::new(SqlState::new("72000"), "snapshot too old").with_detail(detail)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_are_bounded_by_moments() {
        let (mut looks, begun) = (Looks::default(), Instant::now());
        let age = Duration::from_secs(16);
        let mut at = |second: u64| looks.older_than(age, begun + Duration::from_secs(second), Lsn(100 + second));
        assert!((0..16).all(|second| at(second).is_none()));
        // Who began at the first moment has been there for the whole of it.
        assert_eq!((at(16), at(17), at(20)), (Some(Lsn(100)), Some(Lsn(101)), Some(Lsn(104))));
        // After a long pause nothing is known of what began within.
        assert_eq!((at(100), at(115), at(116)), (Some(Lsn(120)), Some(Lsn(120)), Some(Lsn(200))));
    }
}
