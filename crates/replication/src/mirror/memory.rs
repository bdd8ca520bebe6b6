//! The memory of a mirror: bounded, and added to when the primary asks.

use std::{
    fs,
    io::{self, Write},
    path::{Path, PathBuf},
    thread,
    time::{Duration, Instant},
};

use freshet_base::{ClusterId, Lsn, NodeId, Term, private, sync::Arc, words};
use freshet_cluster::term::{Agreement, TermHistory, TermState};
use freshet_fabric::memory::{Medium, Region, Registered, SharedMemory, copy_region};
use freshet_mirror::{
    ARENAS, Damaged, Keep, MOST_UNDO, Recovered, begin_feed, cut, mark_of, note_undo, recover, undo_regions,
};

use super::{
    MirrorConfig,
    kept::{Kept, KeptState, Noted},
};
use crate::{terms::Terms, wire::Growing};

/// A process that has heard that its connection is over has unmapped the memory after this time.
const UNMAPS_WITHIN: Duration = Duration::from_millis(500);
/// How often it is looked whether it has.
const LOOK_EVERY: Duration = Duration::from_millis(1);

/// Regions are as long as this many bytes or a multiple.
const UNIT: u64 = 64 << 10;

/// Head, undo ring and arenas.
pub(super) struct Memory {
    regions: Vec<Arc<SharedMemory>>,
    /// Where they lie, if they are to outlive the process.
    kept: Option<Kept>,
    terms: Terms,
    /// Whose database it holds, if anything has begun here.
    cluster: ClusterId,
    floor: Lsn,
    /// It had everything up to here when it was cut last.
    owes: Lsn,
    damaged: bool,
    arena: u64,
    most: u64,
    huge: bool,
    /// A feed has begun here, or this node has put a checkpoint here.
    begun: bool,
    /// A primary may have written here since it was recovered.
    exposed: bool,
    /// Everything below was here when the last feed began.
    base: Lsn,
    /// Counts feeds, and what is done to the memory when they end.
    session: u64,
    /// What is kept of a memory that does not count.
    aside: Option<Aside>,
}

/// A memory that does not count, and is kept.
struct Aside {
    path: PathBuf,
    /// The terms of its log, and what it had of that at least.
    history: TermHistory,
    reached: Lsn,
}

fn length_of(region: &SharedMemory) -> u64 {
    region.words().len() as u64 * 8
}

/// Bytes that are written to a file at once.
const PIECE: usize = 1 << 20;

/// Writes a memory into files in this directory. Blocks.
pub(super) fn write_out(memory: &[Region], directory: &Path) -> io::Result<()> {
    private::create_directories(directory)?;
    for (number, region) in memory.iter().enumerate() {
        let path = directory.join(format!("region-{number}"));
        let (mut file, mut piece) = (private::create(&path)?, vec![0; PIECE]);
        let length = region.words().len() * 8;
        for at in (0..length).step_by(PIECE) {
            let piece = &mut piece[..PIECE.min(length - at)];
            words::load(region.words(), at, piece);
            file.write_all(piece)?;
        }
        file.sync_all()?;
    }
    Ok(())
}

impl Memory {
    /// New memory of this node, or what a process of before has left: that has to be recovered.
    pub fn new(config: &MirrorConfig, node: NodeId, terms: &Terms) -> io::Result<Self> {
        let (huge, arena, most) = (config.follow.fabric.config.huge_pages, config.arena, config.most);
        let open = |directory| Kept::open(directory, config.method, node, terms);
        let (kept, left) = match config.directory.as_deref().map(open).transpose()? {
            Some((kept, left)) => (Some(kept), left),
            None => {
                // What was kept before will be too old when it is found.
                terms.note_life(None).map_err(io::Error::other)?;
                (None, Ok(None))
            }
        };
        let (regions, base) = (Vec::new(), Lsn::ZERO);
        let (floor, damaged, begun, exposed, session) = (Lsn::ZERO, false, false, false, 0);
        let cluster = ClusterId(0);
        let mut memory = Self {
            regions,
            kept,
            terms: terms.clone(),
            cluster,
            floor,
            owes: Lsn::ZERO,
            damaged,
            arena,
            most,
            huge,
            begun,
            exposed,
            base,
            session,
            aside: None,
        };
        let firsts = [config.head, config.undo];
        let found = left.and_then(|left| left.map(|left| memory.find(&left, &firsts)).transpose());
        match found {
            Ok(Some(before)) => {
                memory.renew(before)?;
                return Ok(memory);
            }
            Ok(None) => {}
            Err(why) => {
                let directory = config.directory.as_deref().map(|directory| directory.display().to_string());
                tracing::warn!(
                    directory,
                    cause = why,
                    "the memory that this mirror kept does not count: it is kept aside, and the mirror begins again"
                );
                let TermState { history, life, .. } = terms.get();
                memory.set_aside(history, life.map_or(Lsn::ZERO, |life| life.reached))?;
            }
        }
        memory.begin(&firsts)?;
        Ok(memory)
    }

    /// Takes what was left; says which number it has, or why it cannot be used.
    fn find(&mut self, left: &KeptState, firsts: &[u64]) -> Result<u64, String> {
        let Some(kept) = &self.kept else { return Err("it is not kept".to_owned()) };
        if left.damaged {
            return Err("it was found to be damaged".to_owned());
        }
        if !left.regions.iter().map(|region| region.bytes).take(firsts.len()).eq(firsts.iter().copied()) {
            return Err("mirror.directory-bytes or log.buffer-bytes was changed".to_owned());
        }
        let regions = left.regions.iter().enumerate().map(|(number, region)| kept.find(number, *region).map(Arc::new));
        self.regions = regions.collect::<io::Result<_>>().map_err(|cause| cause.to_string())?;
        if !left.durable {
            // It is from now on, if it is to be.
            self.flush();
        }
        (self.cluster, self.floor, self.owes) = (left.cluster, left.floor, left.owes);
        (self.begun, self.exposed) = (true, true);
        Ok(left.life)
    }

    /// What was found has another number from now on, instead of the one of `before`: no copy of it
    /// counts that was made until now.
    fn renew(&mut self, before: u64) -> io::Result<()> {
        let Some(kept) = &mut self.kept else { return Ok(()) };
        kept.begin_life(Some(before))?;
        self.note()?;
        self.kept.as_ref().map_or(Ok(()), Kept::live)
    }

    /// Begins with regions of these lengths, and nothing in them.
    fn begin(&mut self, lengths: &[u64]) -> io::Result<()> {
        let incarnation = getrandom::u64().map_err(io::Error::other)?;
        self.terms.note_incarnation(incarnation.max(1)).map_err(io::Error::other)?;
        if let Some(kept) = &mut self.kept {
            kept.forget()?;
        }
        let regions = (0..).zip(lengths).map(|(number, bytes)| self.make(number, *bytes));
        self.regions = regions.collect::<io::Result<_>>()?;
        (self.begun, self.exposed, self.base) = (false, false, Lsn::ZERO);
        (self.floor, self.owes, self.damaged) = (Lsn::ZERO, Lsn::ZERO, false);
        self.session += 1;
        Ok(())
    }

    fn make(&self, number: usize, bytes: u64) -> io::Result<Arc<SharedMemory>> {
        let made = match &self.kept {
            Some(kept) => kept.make(number, bytes),
            None => SharedMemory::new(bytes as usize, self.huge),
        };
        made.map(Arc::new)
    }

    /// Makes everything durable, if it is to be.
    fn flush(&self) {
        for region in &self.regions {
            region.flush(0, length_of(region) as usize);
            region.fence();
        }
    }

    /// What lies under it, if what has completed is to be durable.
    pub fn medium(&self) -> Option<&Medium> {
        let is_emulated = |medium: &&Medium| matches!(medium, Medium::Emulated { .. });
        let mut all = self.regions.iter().filter_map(|region| region.medium());
        all.clone().find(is_emulated).or_else(|| all.next())
    }

    /// What is here counts for the next process, too, if it is to.
    fn note(&self) -> io::Result<()> {
        match &self.kept {
            Some(kept) if self.begun => {
                let &Self { cluster, floor, owes, damaged, .. } = self;
                let (lengths, durable) = (&self.lengths()[..], self.medium() == Some(&Medium::Dax));
                kept.note(Noted { cluster, lengths, floor, owes, damaged, durable })
            }
            _ => Ok(()),
        }
    }

    fn lengths(&self) -> Vec<u64> {
        self.regions.iter().map(|region| length_of(region)).collect()
    }

    /// From where on it is a state of the database.
    pub fn floor(&self) -> Lsn {
        self.floor
    }

    /// What it had when it was cut last ([`freshet_cluster::mirror::MirrorState::owes`]).
    pub fn owes(&self) -> Lsn {
        self.owes
    }

    pub fn regions(&self) -> Vec<Region> {
        self.regions.iter().map(|region| Arc::clone(region) as Region).collect()
    }

    /// How many bytes it has.
    pub fn bytes(&self) -> u64 {
        self.regions.iter().map(|region| length_of(region)).sum()
    }

    /// How many it may have.
    pub fn most(&self) -> u64 {
        self.most
    }

    /// From now on it may have this many.
    pub fn allow(&mut self, most: u64) {
        self.most = most;
    }

    /// Everything below is known to be committed.
    pub fn mark(&self) -> Lsn {
        mark_of(&*self.regions[0])
    }

    /// Adds a region of at least `bytes`, and some more while there is room; none when the bound
    /// forbids it.
    pub fn grow(&mut self, bytes: u64, growing: Growing) -> io::Result<Option<Region>> {
        let held = self.bytes();
        if growing == Growing::Undo && self.undo_regions().len() >= MOST_UNDO {
            return Ok(None);
        }
        // Ever longer ones: a fabric has to know of each.
        let wanted = bytes.max(self.arena).max(held / 4).checked_next_multiple_of(UNIT).unwrap_or(u64::MAX);
        let room = self.most.saturating_sub(held);
        let length = wanted.min(room - room % UNIT);
        if length < bytes.max(UNIT) {
            return Ok(None);
        }
        let region = self.make(self.regions.len(), length)?;
        self.regions.push(Arc::clone(&region));
        if let Err(cause) = self.note() {
            // The primary is told of none, and the next one gets its number.
            self.regions.pop();
            return Err(cause);
        }
        if growing == Growing::Undo {
            // There is room: regions become ever longer.
            let is_noted = note_undo(&self.regions(), self.regions.len() - 1);
            debug_assert!(is_noted, "an undo ring of more regions than there can be");
        }
        Ok(Some(region))
    }

    /// What is here is not what was written: it does not count, for the next process neither.
    pub fn note_damaged(&mut self) -> io::Result<()> {
        if std::mem::replace(&mut self.damaged, true) {
            return Ok(());
        }
        self.note()
    }

    /// Keeps what is here, before it is given up, if it lies in files: they go to a directory of
    /// their own. It has the log with this history up to there, as far as is known. Says where they
    /// are.
    pub fn set_aside(&mut self, history: TermHistory, reached: Lsn) -> io::Result<Option<PathBuf>> {
        let kept = self.kept.as_ref().map_or(Ok(None), Kept::set_aside)?;
        if let Some(path) = &kept {
            self.is_aside(path.clone(), history, reached);
        }
        Ok(kept)
    }

    /// What is here was written to files in this directory.
    pub fn is_aside(&mut self, path: PathBuf, history: TermHistory, reached: Lsn) {
        self.aside = Some(Aside { path, history, reached });
    }

    /// Where a memory is that was set aside.
    pub fn aside(&self) -> Option<PathBuf> {
        self.aside.as_ref().map(|aside| aside.path.clone())
    }

    /// This memory has the log with this history up to `end`: what was set aside is not needed any
    /// more, if it had no more.
    pub fn drop_aside(&mut self, history: &TermHistory, end: Lsn) {
        let has_all = |aside: &mut Aside| {
            let common = history.agreement(end, &aside.history, aside.reached);
            matches!(common, Agreement::Upto(at) if at >= aside.reached)
        };
        let Some(Aside { path, .. }) = self.aside.take_if(has_all) else { return };
        if let Err(cause) = fs::remove_dir_all(&path) {
            tracing::warn!(path = %path.display(), %cause, "a memory that is not needed any more stays");
        }
    }

    /// Begins again, with memory in which nothing is.
    pub fn forget(&mut self) -> io::Result<()> {
        let mut lengths = self.lengths();
        lengths.truncate(ARENAS);
        self.begin(&lengths)
    }

    /// This node itself has put everything here that is below `base`, but for what the log from
    /// there on says again. It is a state of the database when it has the log up to `floor`.
    pub fn filled(
        &mut self,
        cluster: ClusterId,
        (node, term): (NodeId, Term),
        (base, floor): (Lsn, Lsn),
    ) -> io::Result<()> {
        begin_feed(&self.regions(), cluster, node, term, base);
        (self.begun, self.cluster, self.base, self.floor, self.owes) = (true, cluster, base, floor, Lsn::ZERO);
        self.session += 1;
        self.note()
    }

    /// Changes with all that is done to the memory but by the primary that feeds it.
    pub fn session(&self) -> u64 {
        self.session
    }

    /// Whatever becomes of the feed, everything below stays, if anything is here.
    pub fn stays_to(&self) -> Option<Lsn> {
        self.begun.then(|| self.base.max(self.mark()))
    }

    /// Whether it is the state of a database, or was one.
    pub fn has_begun(&self) -> bool {
        self.begun
    }

    /// A feed begins that continues from `base`; what was written before is undone no more.
    pub fn begin_feed(&mut self, cluster: ClusterId, feeder: NodeId, term: Term, base: Lsn) -> io::Result<()> {
        begin_feed(&self.regions(), cluster, feeder, term, base);
        (self.begun, self.exposed, self.cluster, self.base) = (true, true, cluster, base);
        self.session += 1;
        self.note()
    }

    /// Whether a process has this memory mapped. One that lives and has heard that its connection
    /// is over unmaps it: blocks for as long as that may take.
    fn is_mapped_elsewhere(&self) -> io::Result<bool> {
        let deadline = Instant::now() + UNMAPS_WITHIN;
        let is_mapped = || self.regions.iter().try_fold(false, |any, region| Ok(any || region.is_mapped_elsewhere()?));
        loop {
            match is_mapped() {
                Ok(true) if Instant::now() < deadline => thread::sleep(LOOK_EVERY),
                known => return known,
            }
        }
    }

    /// Brings the memory to the state after a batch, if that was ever another; no primary can write
    /// here any more, unless it has mapped the memory: then this is copied to other memory first.
    pub fn recover(&mut self) -> Result<Option<Recovered>, RecoverError> {
        if !self.exposed {
            return Ok(None);
        }
        self.session += 1;
        if self.is_mapped_elsewhere()? {
            let begun = Instant::now();
            if let Some(kept) = &mut self.kept {
                kept.begin_copy();
            }
            // The undo ring last: what a primary that still writes changes after that, it does
            // not change here, and what it has changed before can be undone.
            let undo = undo_regions(&self.regions());
            let order = (0..self.regions.len()).filter(|number| !undo.contains(number)).chain(undo.iter().copied());
            for number in order {
                // One after the other: no more than the longest is there twice, unless they are
                // kept.
                let copy = self.make(number, length_of(&self.regions[number]))?;
                copy_region(&*self.regions[number], &*copy);
                copy.fence();
                self.regions[number] = copy;
            }
            self.note()?;
            let (bytes, ms) = (self.bytes(), begun.elapsed().as_millis() as u64);
            tracing::info!(bytes, ms, "a mirror's memory has moved, since a primary of before still has it mapped");
        }
        let found = recover(&self.regions(), Keep::Whole)?;
        self.exposed = false;
        Ok(Some(found))
    }

    /// Undoes what lies beyond `at`, as far as the undo ring reaches; says where the memory ends
    /// then.
    pub fn cut(&mut self, at: Lsn) -> Result<Lsn, RecoverError> {
        if !self.begun {
            return Ok(at);
        }
        self.session += 1;
        // What is undone may begin below, and what lies between may be acknowledged
        // (`MirrorState::cut`).
        self.owes = at;
        self.note()?;
        let end = cut(&self.regions(), at)?.end;
        self.base = end;
        // It reaches less far from now on, and is to be found again all the same.
        self.note_reached(end)?;
        Ok(end)
    }

    /// Where what was found ended before, at least, if it is what this node had last.
    pub fn reached(&self) -> Lsn {
        self.kept.as_ref().map_or(Lsn::ZERO, Kept::reached)
    }

    /// Notes for the process that finds the memory again that it has everything below `to`. Blocks
    /// until that is noted.
    pub fn note_reached(&mut self, to: Lsn) -> io::Result<()> {
        match &mut self.kept {
            Some(kept) if self.begun => kept.reaches(to),
            _ => Ok(()),
        }
    }

    /// All that is not head and undo ring. Files stay.
    pub fn take_arenas(&mut self) -> Vec<Region> {
        self.session += 1;
        self.regions.split_off(ARENAS).into_iter().map(|region| region as Region).collect()
    }

    /// How long the undo ring is.
    pub fn undo_bytes(&self) -> u64 {
        self.undo_regions().into_iter().map(|number| length_of(&self.regions[number])).sum()
    }

    /// The regions of the undo ring, by number.
    pub fn undo_regions(&self) -> Vec<usize> {
        undo_regions(&self.regions())
    }
}

/// Why a memory could not be recovered.
#[derive(Debug, thiserror::Error)]
pub(super) enum RecoverError {
    #[error(transparent)]
    Damaged(#[from] Damaged),
    #[error(
        "a mirror's memory cannot be kept, or moved away from a primary of before that may still write there: {0}; \
         see that there is room for another region, and restart this node"
    )]
    System(#[from] io::Error),
}

#[cfg(test)]
mod tests {
    use freshet_base::sync::Ordering;
    use freshet_fabric::memory::SharedKey;
    use freshet_mirror::UNDO;

    use super::*;
    use crate::terms::VolatileTerms;

    fn terms() -> Terms {
        Terms::new(TermState::empty(), Arc::new(VolatileTerms))
    }

    #[test]
    fn memory_grows_up_to_its_bound() {
        let config = MirrorConfig {
            head: 64 << 10,
            undo: 64 << 10,
            arena: 128 << 10,
            most: 600 << 10,
            ..MirrorConfig::default()
        };
        let mut memory = Memory::new(&config, NodeId(2), &terms()).unwrap();
        let mut grow =
            |kib: u64| memory.grow(kib << 10, Growing::Arenas).unwrap().map(|region| region.words().len() / 128);
        assert_eq!(grow(0), Some(128));
        assert_eq!(grow(500), None, "more than there is room for");
        assert_eq!(grow(130), Some(192), "whole units");
        assert_eq!(grow(1), Some(128));
        assert_eq!(grow(0), None);
        assert!(memory.bytes() <= 600 << 10);
    }

    #[test]
    fn memory_moves_only_while_a_process_has_it_mapped() {
        let directory = tempfile::tempdir().unwrap();
        for kept in [None, Some(directory.path().to_owned())] {
            let (head, undo, arena) = (64 << 10, 64 << 10, 64 << 10);
            let mut config = MirrorConfig { head, undo, arena, ..MirrorConfig::default() };
            config.directory = kept;
            let terms = terms();
            let mut memory = Memory::new(&config, NodeId(2), &terms).unwrap();
            let feed = |memory: &mut Memory| memory.begin_feed(ClusterId(7), NodeId(1), Term(1), Lsn(0)).unwrap();
            let mapped = |memory: &Memory| {
                let region = &*memory.regions[UNDO];
                SharedKey::of(region).unwrap().attach(region.file().unwrap().0.try_clone_to_owned().unwrap()).unwrap()
            };
            let places = |memory: &Memory| memory.regions.iter().map(|it| it.words().as_ptr()).collect::<Vec<_>>();
            feed(&mut memory);
            let before = places(&memory);
            drop(mapped(&memory));
            memory.recover().unwrap().unwrap();
            assert_eq!(places(&memory), before, "the primary is gone");
            feed(&mut memory);
            let zombie = mapped(&memory);
            memory.recover().unwrap().unwrap();
            assert!(places(&memory).iter().zip(&before).all(|(now, before)| now != before));
            let held = memory.regions[UNDO].words()[0].load(Ordering::SeqCst);
            zombie.words()[0].store(!held, Ordering::SeqCst);
            assert_eq!(memory.regions[UNDO].words()[0].load(Ordering::SeqCst), held, "it writes elsewhere");
            // Of a process of before, too.
            feed(&mut memory);
            let zombie = mapped(&memory);
            drop(memory);
            let mut memory = Memory::new(&config, NodeId(2), &terms).unwrap();
            if config.directory.is_some() {
                memory.recover().unwrap().unwrap();
                zombie.words()[0].store(!held, Ordering::SeqCst);
                assert_eq!(memory.regions[UNDO].words()[0].load(Ordering::SeqCst), held);
            }
        }
    }

    #[test]
    fn memory_that_could_not_be_noted_is_none() {
        let directory = tempfile::tempdir().unwrap();
        let mut config = MirrorConfig { head: 64 << 10, undo: 64 << 10, arena: 64 << 10, ..MirrorConfig::default() };
        config.directory = Some(directory.path().to_owned());
        let terms = terms();
        let mut memory = Memory::new(&config, NodeId(2), &terms).unwrap();
        memory.filled(ClusterId(7), (NodeId(1), Term(1)), (Lsn(0), Lsn(0))).unwrap();
        // In the way of the next note, as a full disk is.
        std::fs::create_dir(directory.path().join("state.next")).unwrap();
        let why = memory.grow(1, Growing::Arenas).unwrap_err().to_string();
        assert!(why.contains(directory.path().to_str().unwrap()), "{why}");
        assert_eq!(memory.regions().len(), ARENAS, "the primary is told of none");
        std::fs::remove_dir(directory.path().join("state.next")).unwrap();
        assert!(memory.grow(1, Growing::Arenas).unwrap().is_some());
        assert_eq!(memory.regions().len(), ARENAS + 1);
        drop(memory);
        let next = Memory::new(&config, NodeId(2), &terms).unwrap();
        assert_eq!(next.regions().len(), ARENAS + 1, "all of it is there for the next process");
    }
}
