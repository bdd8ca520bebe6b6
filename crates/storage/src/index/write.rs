//! Inserting and removing pairs.

use std::convert::Infallible;

use freshet_base::{
    Lsn, Rid,
    sync::{Backoff, Ordering},
};

use super::{
    BTree, KeyTooLong, MAX_KEY,
    key::Place,
    latch::Latched,
    node::{Leaf, Node, Pointer},
    page::{Found, Room},
};
use crate::reclaim::Guard;

/// Why a pair was not inserted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InsertError<E> {
    /// The key cannot be indexed.
    #[error(transparent)]
    KeyTooLong(#[from] KeyTooLong),
    /// The caller refused it, for what it found beside it.
    #[error("conflicts with an existing entry: {0}")]
    Refused(E),
}

fn check(key: &[u8], rid: Rid) -> Result<(), KeyTooLong> {
    assert!(rid <= Rid::MAX, "record id {} has more than {} bits", rid.0, Rid::BITS);
    if key.len() > MAX_KEY { Err(KeyTooLong { length: key.len() }) } else { Ok(()) }
}

/// What became of one try.
enum Attempt<T> {
    Done(T),
    /// Another thread has changed the leaf: descend again.
    Again,
    /// The leaf is full.
    Full,
}

impl Leaf {
    /// Puts a pair where it was found to belong, and returns whether it was not there; none when
    /// there is no room.
    #[inline]
    fn enter(&self, latched: &mut Latched<'_>, found: &Found, place: Place<'_>) -> Option<bool> {
        if found.same_key && self.page.rid(&found.shape, found.index) == place.rid {
            latched.change();
            return Some(false);
        }
        let room = self.page.room(place.key);
        if room == Room::None {
            return None;
        }
        latched.change();
        self.page.insert(found.index, place.key, place.rid, room);
        Some(true)
    }

    /// Whether what was searched in the latched leaf, and is not below where it begins, certainly
    /// belongs there: the leaf has something above it, or is the last one.
    #[inline]
    fn covers(&self, found: &Found) -> bool {
        // Acquire: pairs with the release store of a split; the pointer is not followed.
        found.index < found.shape.count || self.next.load(Ordering::Acquire).is_null()
    }
}

impl BTree {
    /// Inserts a pair; `false` when it was there already (its leaf counts as changed all the same,
    /// because a thread that inserts a pair is about to make it mean something again).
    ///
    /// Waits for other writers of the same leaf, who never block.
    ///
    /// # Errors
    /// [`KeyTooLong`] for keys of more than [`MAX_KEY`] bytes.
    ///
    /// # Panics
    /// When `rid` is above [`Rid::MAX`].
    pub fn insert(&self, guard: &Guard<'_>, key: &[u8], rid: Rid) -> Result<bool, KeyTooLong> {
        Ok(self.insert_run(guard, std::iter::once((key, rid)))? == 1)
    }

    /// Inserts pairs, each as [`BTree::insert`] does, and returns how many were not there. Of pairs
    /// that ascend, those that belong to one leaf are entered on one way down to it, under one
    /// latch.
    ///
    /// # Errors
    /// [`KeyTooLong`] at the first key of more than [`MAX_KEY`] bytes; the pairs before it are in.
    ///
    /// # Panics
    /// When a record id is above [`Rid::MAX`].
    pub fn insert_run<'k>(
        &self,
        guard: &Guard<'_>,
        pairs: impl IntoIterator<Item = (&'k [u8], Rid)>,
    ) -> Result<u64, KeyTooLong> {
        let mut pairs = pairs.into_iter();
        let mut pending = pairs.next();
        let mut inserted = 0;
        let mut backoff = Backoff::new();
        while let Some((key, rid)) = pending {
            check(key, rid)?;
            let place = Place::of(key, rid);
            let spot = self.descend(guard, place);
            let found = spot.leaf.page.find(place);
            // What was found holds if the version does.
            let Some(mut latched) = spot.leaf.header.latch.upgrade(spot.version) else {
                backoff.pause();
                continue;
            };
            backoff = Backoff::new();
            let (mut place, mut found) = (place, found);
            loop {
                match spot.leaf.enter(&mut latched, &found, place) {
                    Some(new) => inserted += u64::from(new),
                    None => {
                        drop(latched);
                        self.make_room(guard, place);
                        break;
                    }
                }
                pending = pairs.next();
                let Some((key, rid)) = pending else { return Ok(inserted) };
                check(key, rid)?;
                let next = Place::of(key, rid);
                let follows = place.compare(&next).is_lt();
                (place, found) = (next, spot.leaf.page.find(next));
                if !(follows && spot.leaf.covers(&found)) {
                    break;
                }
            }
        }
        Ok(inserted)
    }

    /// As [`BTree::insert`], but first asks `admit` about every record id that is paired with an
    /// equal key (`rid` itself included, if it is), once each, ascending. While it is asked, nobody
    /// else can insert a pair of this key through this method: this is how unique indexes are made.
    ///
    /// `admit` runs under latches: it must not block and must not call this tree.
    ///
    /// # Errors
    /// What `admit` said ([`InsertError::Refused`]; then nothing has changed), or
    /// [`InsertError::KeyTooLong`].
    ///
    /// # Panics
    /// When `rid` is above [`Rid::MAX`].
    pub fn insert_admitted<E>(
        &self,
        guard: &Guard<'_>,
        key: &[u8],
        rid: Rid,
        mut admit: impl FnMut(Rid) -> Result<(), E>,
    ) -> Result<bool, InsertError<E>> {
        check(key, rid)?;
        let mut backoff = Backoff::new();
        loop {
            let attempt = match self.insert_in_one_leaf(guard, key, rid, &mut admit) {
                Some(attempt) => attempt,
                None => self.insert_among_leaves(guard, key, rid, &mut admit),
            };
            match attempt.map_err(InsertError::Refused)? {
                Attempt::Done(inserted) => return Ok(inserted),
                Attempt::Again => backoff.pause(),
                Attempt::Full => self.make_room(guard, Place::of(key, rid)),
            }
        }
    }

    /// `None` when pairs of this key may be in more than one leaf.
    #[inline]
    fn insert_in_one_leaf<E>(
        &self,
        guard: &Guard<'_>,
        key: &[u8],
        rid: Rid,
        admit: &mut impl FnMut(Rid) -> Result<(), E>,
    ) -> Option<Result<Attempt<bool>, E>> {
        let spot = self.descend(guard, Place::before_key(key));
        if spot.spills {
            return None;
        }
        let page = &spot.leaf.page;
        let found = page.find(Place::before_key(key));
        // As the leaf ends at a larger key, every pair of this key is or will be in it, and a
        // thread that inserts one asks for this latch.
        let Some(mut latched) = spot.leaf.header.latch.upgrade(spot.version) else {
            return Some(Ok(Attempt::Again));
        };
        // Before asking: once all are admitted, nothing may come between.
        let room = page.room(key);
        let mut index = found.index;
        let mut end = found.index;
        let mut present = false;
        while page.has_key(&found, end, key) {
            let other = page.rid(&found.shape, end);
            present |= other == rid.0;
            index += usize::from(other < rid.0);
            end += 1;
        }
        if room == Room::None && !present {
            return Some(Ok(Attempt::Full));
        }
        for i in found.index..end {
            if let Err(error) = admit(Rid(page.rid(&found.shape, i))) {
                return Some(Err(error));
            }
        }
        latched.change();
        if !present {
            page.insert(index, key, rid.0, room);
        }
        Some(Ok(Attempt::Done(!present)))
    }

    /// Latches all leaves that pairs of this key may be in, from left to right.
    #[cold]
    fn insert_among_leaves<E>(
        &self,
        guard: &Guard<'_>,
        key: &[u8],
        rid: Rid,
        admit: &mut impl FnMut(Rid) -> Result<(), E>,
    ) -> Result<Attempt<bool>, E> {
        let spot = self.descend(guard, Place::before_key(key));
        let Some(first) = spot.leaf.header.latch.upgrade(spot.version) else { return Ok(Attempt::Again) };
        let mut leaves: Vec<(&Leaf, Latched<'_>)> = vec![(spot.leaf, first)];
        loop {
            let leaf = leaves.last().expect("the first is there").0;
            if leaf.page.find(Place::after_key(key)).index < leaf.page.shape().count {
                break;
            }
            // Acquire: pairs with the release store of the thread that linked it.
            let next = leaf.next.load(Ordering::Acquire);
            if next.is_null() {
                break;
            }
            // SAFETY: the next of a latched leaf is linked.
            let Node::Leaf(next) = (unsafe { Node::at(next) }) else { unreachable!("leaves are followed by leaves") };
            // Waits to the right only.
            let Some(latched) = next.header.latch.lock() else { unreachable!("a linked leaf is not obsolete") };
            leaves.push((next, latched));
        }
        // Latched leaves keep their places, so the way down to the right one of them is stable.
        let Some(target) = self.locate_without_waiting(guard, Place::of(key, rid), 0) else {
            return Ok(Attempt::Again);
        };
        let same = |leaf: &Leaf| std::ptr::eq(std::ptr::from_ref(leaf).cast(), target.node as Pointer as *const u8);
        let Some(target) = leaves.iter().position(|(leaf, _)| same(leaf)) else { return Ok(Attempt::Again) };
        let page = &leaves[target].0.page;
        let found = page.find(Place::of(key, rid));
        let present = found.same_key && page.rid(&found.shape, found.index) == rid.0;
        let room = page.room(key);
        if room == Room::None && !present {
            return Ok(Attempt::Full);
        }
        for (leaf, _) in &leaves {
            let from = leaf.page.find(Place::before_key(key));
            let mut index = from.index;
            while leaf.page.has_key(&from, index, key) {
                admit(Rid(leaf.page.rid(&from.shape, index)))?;
                index += 1;
            }
        }
        leaves[target].1.change();
        if !present {
            leaves[target].0.page.insert(found.index, key, rid.0, room);
        }
        Ok(Attempt::Done(!present))
    }

    /// Removes a pair; `false` when it was not there.
    pub fn remove(&self, guard: &Guard<'_>, key: &[u8], rid: Rid) -> bool {
        self.remove_if(guard, key, rid, Lsn::ZERO, || true)
    }

    /// Removes a pair if it is there and `condition` holds, and says whether it did. The condition
    /// is evaluated at most once, under the latch of the pair's leaf, and so at a moment at which
    /// no thread inserts this pair: it must not block and must not call this tree. A reader that
    /// misses the pair from now on finds that a deletion at `deleted` may be why
    /// ([`LeafVersion::removed`](super::LeafVersion::removed)); zero when no reader needs to know.
    pub fn remove_if(
        &self,
        guard: &Guard<'_>,
        key: &[u8],
        rid: Rid,
        deleted: Lsn,
        condition: impl FnOnce() -> bool,
    ) -> bool {
        if key.len() > MAX_KEY || rid > Rid::MAX {
            return false;
        }
        let place = Place::of(key, rid);
        let mut backoff = Backoff::new();
        loop {
            let spot = self.descend(guard, place);
            let leaf = spot.leaf;
            let found = leaf.page.find(place);
            if !(found.same_key && leaf.page.rid(&found.shape, found.index) == rid.0) {
                if leaf.header.latch.is(spot.version) {
                    return false;
                }
                backoff.pause();
                continue;
            }
            let Some(mut latched) = leaf.header.latch.upgrade(spot.version) else {
                backoff.pause();
                continue;
            };
            if !condition() {
                return false;
            }
            latched.change();
            leaf.page.remove(found.index);
            leaf.note_removed(deleted);
            let sparse = leaf.is_sparse();
            drop(latched);
            if sparse {
                self.shrink(guard, place, 0);
            }
            return true;
        }
    }
}

/// Insertions without conditions cannot be refused.
impl From<InsertError<Infallible>> for KeyTooLong {
    fn from(error: InsertError<Infallible>) -> Self {
        match error {
            InsertError::KeyTooLong(error) => error,
            InsertError::Refused(never) => match never {},
        }
    }
}
