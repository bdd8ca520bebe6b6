//! Reading all pairs of one key.

use std::ops::ControlFlow;

use freshet_base::Rid;

use super::{BTree, LeafVersion, descend::Spot, key::Place, node::Node};
use crate::reclaim::Guard;

/// Record ids that are read at one version of a leaf before they are handed out.
const AT_ONCE: usize = 16;

impl BTree {
    /// Calls `visit` for every record id that is paired with exactly this key, ascending, until it
    /// breaks.
    ///
    /// Takes no latch; what is inserted or removed in the meantime may or may not be seen,
    /// everything else is seen exactly once.
    #[inline]
    pub fn get(&self, guard: &Guard<'_>, key: &[u8], visit: impl FnMut(Rid) -> ControlFlow<()>) -> ControlFlow<()> {
        self.get_certified(guard, key, |_| {}, visit)
    }

    /// Whether a pair is there.
    pub fn contains(&self, guard: &Guard<'_>, key: &[u8], rid: Rid) -> bool {
        let place = Place::of(key, rid);
        loop {
            let spot = self.descend(guard, place);
            let found = spot.leaf.page.find(place);
            let there = found.same_key && spot.leaf.page.rid(&found.shape, found.index) == rid.0;
            if spot.leaf.header.latch.is(spot.version) {
                return there;
            }
        }
    }

    /// As [`BTree::get`], and calls `on_leaf` for every leaf that was read, above all when nothing
    /// was found: while they are [unchanged](LeafVersion::unchanged), the key has no other pairs
    /// than those visited.
    #[inline]
    pub fn get_certified<'g>(
        &'g self,
        guard: &'g Guard<'_>,
        key: &[u8],
        mut on_leaf: impl FnMut(LeafVersion<'g>),
        mut visit: impl FnMut(Rid) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        let mut place = Place::before_key(key);
        loop {
            let spot = self.descend(guard, place);
            let found = spot.leaf.page.find(place);
            let shape = &found.shape;
            // The common cases, none and one, in registers.
            if !found.same_key || !spot.leaf.page.has_key(&found, found.index + 1, key) {
                let rid = spot.leaf.page.rid(shape, found.index);
                let removed = spot.leaf.removed();
                let goes_on = spot.spills && found.index + usize::from(found.same_key) == shape.count;
                if !spot.leaf.header.latch.is(spot.version) {
                    continue;
                }
                if !goes_on {
                    on_leaf(LeafVersion { latch: &spot.leaf.header.latch, version: spot.version, removed });
                    return if found.same_key { visit(Rid(rid)) } else { ControlFlow::Continue(()) };
                }
            }
            // Otherwise a few at a time: first those of this leaf, from the place on.
            match self.get_many(spot, place, &mut on_leaf, &mut visit)? {
                Progress::Done => return ControlFlow::Continue(()),
                Progress::From(rid) => place.rid = rid,
            }
        }
    }

    /// Visits pairs of the place's key from `spot` on, along the leaves, until there are no more or
    /// a leaf changes underneath.
    #[cold]
    fn get_many<'g>(
        &'g self,
        mut spot: Spot<'g>,
        mut place: Place<'_>,
        on_leaf: &mut impl FnMut(LeafVersion<'g>),
        visit: &mut impl FnMut(Rid) -> ControlFlow<()>,
    ) -> ControlFlow<(), Progress> {
        let mut reported = false;
        loop {
            let leaf = spot.leaf;
            let found = leaf.page.find(place);
            let mut rids = [0; AT_ONCE];
            let mut count = 0;
            while count < AT_ONCE && leaf.page.has_key(&found, found.index + count, place.key) {
                rids[count] = leaf.page.rid(&found.shape, found.index + count);
                count += 1;
            }
            let at_end = found.index + count == found.shape.count;
            // Acquire: pairs with the release store of the thread that linked the next leaf.
            let next = leaf.next.load(freshet_base::sync::Ordering::Acquire);
            let removed = leaf.removed();
            if !leaf.header.latch.is(spot.version) {
                return ControlFlow::Continue(Progress::From(place.rid));
            }
            if !std::mem::replace(&mut reported, true) {
                on_leaf(LeafVersion { latch: &leaf.header.latch, version: spot.version, removed });
            }
            for rid in &rids[..count] {
                visit(Rid(*rid))?;
                place.rid = rid + 1;
            }
            if count == AT_ONCE && !at_end {
                continue;
            }
            if !at_end || next.is_null() {
                return ControlFlow::Continue(Progress::Done);
            }
            // SAFETY: it was the next of a leaf that was validated since, so it was linked after
            // the pin.
            let Node::Leaf(next) = (unsafe { Node::at(next) }) else { unreachable!("leaves are followed by leaves") };
            let Some(version) = next.header.latch.read() else {
                return ControlFlow::Continue(Progress::From(place.rid));
            };
            // Whatever came between the two since is new, and this leaf's version tells of it.
            spot = Spot { leaf: next, version, spills: true };
            reported = false;
        }
    }
}

/// How far reading one key has come.
enum Progress {
    Done,
    /// To be continued from the pair with this record id or the first one above it.
    From(u64),
}
