//! The mirror loses power while it is fed, while it recovers, or while it prepares for the next
//! feed, and any lines are gone that were not flushed and fenced: nothing acknowledged is missing,
//! and what was said once is not taken back.

use std::sync::{
    Mutex,
    atomic::{AtomicU64, AtomicUsize},
};

use freshet_fabric::{
    Write,
    landing::Landing,
    memory::model::{Lossy, LossyMemory},
};

use super::*;

/// What is left out, to show that the test would notice.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Forget {
    Nothing,
    /// Between undo entries and what is written in place.
    FirstFence,
    /// Before a list has completed.
    LastFence,
    /// Of what a recovery speaks of.
    Recovery,
}

/// A region of the mirror while its power lasts; not durable when that is forgotten.
#[derive(Debug)]
struct Careless(Arc<LossyMemory>);

impl Registered for Careless {
    fn words(&self) -> &[AtomicU64] {
        self.0.words()
    }
}

/// What was found of the regions' bytes at some moment, and what was acknowledged then.
type Found = (Lsn, Vec<Vec<u8>>);

struct Power {
    feed: Feed,
    lossy: Arc<Lossy>,
    memory: Vec<Arc<LossyMemory>>,
    landing: Landing,
    forget: Forget,
    acknowledged: Arc<AtomicU64>,
    found: Arc<Mutex<Vec<Found>>>,
    /// A mark that was posted, and over how many lists.
    mark: Option<usize>,
}

impl Power {
    fn new(forget: Forget, random: &mut Random) -> Self {
        let (feed, lossy) = (Feed::new(), Arc::new(Lossy::default()));
        let acknowledged = Arc::new(AtomicU64::new(feed.mark.0));
        let (landing, found) = (Landing::default(), Arc::default());
        let mut power = Self { feed, lossy, memory: Vec::new(), landing, forget, acknowledged, found, mark: None };
        power.grow();
        let regions = power.regions();
        for (number, words) in power.feed.pair.memory.iter().enumerate() {
            let mut bytes = vec![0; words.words().len() * 8];
            words::load(words.words(), 0, &mut bytes);
            let to = Place { region: number, offset: 0 };
            power.landing.put(&regions, &Write { to, pieces: &[&bytes], immediate: None, fenced: false });
        }
        power.landing.fence(&regions);
        let (found, lossy) = (Arc::clone(&power.found), Arc::clone(&power.lossy));
        let acknowledged = Arc::clone(&power.acknowledged);
        let (mut random, seen) = (Random(random.below(u64::MAX)), AtomicUsize::new(0));
        power.lossy.watch(move || {
            if random.below(8) == 0 && seen.fetch_add(1, Ordering::SeqCst) < 200 {
                let upto = Lsn(acknowledged.load(Ordering::SeqCst));
                let images = lossy.images(random.below(u64::MAX) | 1, 2);
                found.lock().unwrap().extend(images.into_iter().map(|image| (upto, image)));
            }
        });
        power
    }

    /// The mirror has as many regions as the feeder knows.
    fn grow(&mut self) {
        for memory in &self.feed.pair.memory[self.memory.len()..] {
            self.memory.push(self.lossy.region(memory.words().len() * 8));
        }
    }

    fn regions(&self) -> Vec<Region> {
        self.memory.iter().map(|memory| Arc::clone(memory) as Region).collect()
    }

    /// Posts a batch, and perhaps the mark before it, as the feed does.
    fn post(&mut self, changes: &[Change], continues: bool, marks: bool) {
        assert!(self.feed.post(changes, continues), "there is room in the ring");
        self.grow();
        let regions = self.regions();
        let count = self.feed.lists.len() - 1;
        if let Some(mark) = self.completed().filter(|_| marks && count > 0) {
            self.mark = Some(count);
            let to = Place { region: 0, offset: MARK };
            let pieces: &[&[u8]] = &[&mark.0.to_le_bytes()];
            self.landing.put(&regions, &Write { to, pieces, immediate: None, fenced: false });
        }
        let mut is_undo = true;
        for (to, bytes) in &self.feed.lists[count].writes {
            let fenced = is_undo && to.region != UNDO && self.forget != Forget::FirstFence;
            is_undo &= to.region == UNDO;
            self.landing.put(&regions, &Write { to: *to, pieces: &[bytes], immediate: None, fenced });
        }
    }

    /// Where the mark may stand: all lists but the newest have completed.
    fn completed(&self) -> Option<Lsn> {
        let lists = &self.feed.lists[..self.feed.lists.len() - 1];
        lists.iter().rfind(|posted| !posted.batch.continues).map(|posted| posted.batch.to)
    }

    /// All that was posted completes.
    fn complete(&mut self) {
        if self.forget != Forget::LastFence {
            self.landing.fence(&self.regions());
        }
        if let Some(Posted { batch, .. }) = self.feed.lists.iter().rfind(|posted| !posted.batch.continues) {
            self.acknowledged.fetch_max(batch.to.0, Ordering::SeqCst);
        }
    }

    /// The power may be lost now; what was found until now is looked at.
    fn check(&self, random: &mut Random) -> Result<(), String> {
        let acknowledged = Lsn(self.acknowledged.load(Ordering::SeqCst));
        let images = self.lossy.images(random.below(u64::MAX) | 1, 4).into_iter().map(|image| (acknowledged, image));
        let found: Vec<_> = images.chain(self.found.lock().unwrap().drain(..)).collect();
        found.into_iter().try_for_each(|(acknowledged, image)| self.judge(acknowledged, &image))
    }

    /// Recovers what was found.
    fn judge(&self, acknowledged: Lsn, image: &[Vec<u8>]) -> Result<(), String> {
        let memory = image.iter().map(|bytes| {
            let memory = SharedMemory::new(bytes.len(), false).unwrap();
            words::store(memory.words(), 0, bytes);
            Arc::new(memory) as Region
        });
        let memory: Vec<_> = memory.collect();
        let end = recover(&memory, Keep::Whole).map_err(|damaged| damaged.to_string())?.end;
        if end < acknowledged {
            return Err(format!("{acknowledged} was acknowledged, {end} found"));
        }
        let records = read(memory, end).map_err(|damaged| damaged.to_string())?;
        if records == *self.feed.records_at(end) { Ok(()) } else { Err(format!("other records at {end}")) }
    }

    /// The feeder is gone, and the mirror recovers and prepares for another one.
    fn recover(&mut self, random: &mut Random) -> Result<(), String> {
        let regions: Vec<Region> = match self.forget {
            Forget::Recovery => self.memory.iter().map(|memory| Arc::new(Careless(Arc::clone(memory))) as _).collect(),
            _ => self.regions(),
        };
        let end = recover(&regions, Keep::Whole).unwrap().end;
        assert!(end.0 >= self.acknowledged.load(Ordering::SeqCst));
        self.acknowledged.store(end.0, Ordering::SeqCst);
        self.check(random)?;
        begin_feed(&regions, ClusterId(1), NodeId(8), Term(4), end);
        self.check(random)
    }
}

fn draw(random: &mut Random) -> Vec<Change> {
    let change = |random: &mut Random| {
        let row = match random.below(8) {
            0 => None,
            1 => Some(random.bytes(600 + random.0 % 500)),
            _ => Some(random.bytes(20 + random.0 % 100)),
        };
        (Fid(1), Rid(random.below(12)), row)
    };
    (0..1 + random.below(5)).map(|_| change(random)).collect()
}

/// What is wrong after a loss of power, if anything is.
fn power_is_lost(forget: Forget, rounds: u64) -> Result<(), String> {
    let mut random = Random::new();
    for _ in 0..rounds {
        let mut power = Power::new(forget, &mut random);
        let batches = 2 + random.below(5);
        for number in 0..batches {
            // Nothing is marked that has not completed.
            let under_way = power.feed.lists.last().is_some_and(|posted| {
                posted.batch.continues || posted.batch.to.0 > power.acknowledged.load(Ordering::SeqCst)
            });
            let continues = random.below(6) == 0 && number + 1 < batches;
            power.post(&draw(&mut random), continues, !under_way && random.below(2) == 0);
            if random.below(3) > 0 {
                power.complete();
                power.check(&mut random)?;
                // The mark has arrived with the list that it was posted with.
                if let Some(count) = power.mark.take() {
                    power.feed.marks(count);
                }
            }
            power.check(&mut random)?;
        }
        power.recover(&mut random)?;
    }
    Ok(())
}

#[test]
fn nothing_acknowledged_is_missing_after_a_loss_of_power() {
    power_is_lost(Forget::Nothing, 60).unwrap();
}

#[test]
fn a_missing_fence_or_flush_is_noticed() {
    for forget in [Forget::FirstFence, Forget::LastFence, Forget::Recovery] {
        println!("{forget:?}: {}", power_is_lost(forget, 500).expect_err("it is noticed"));
    }
}
