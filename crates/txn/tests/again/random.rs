//! Random programs, begun and continued in random order, and executed again by threads that begin
//! in another.

use std::{env, time::SystemTime};

use freshet_base::{Certifier, Isolation, Lsn};
use freshet_txn::Direction;

use crate::{
    primary::Scene,
    program::{Program, Step},
    standby::{Standby, Tally},
};

/// SplitMix64.
pub struct Draws(u64);

impl Draws {
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((mixed ^ (mixed >> 31)) % limit as u64) as usize
    }

    pub fn shuffle(&mut self, numbers: &mut [usize]) {
        for at in (1..numbers.len()).rev() {
            numbers.swap(at, self.below(at + 1));
        }
    }

    fn number(&mut self, limit: usize) -> u64 {
        self.below(limit) as u64
    }

    fn step(&mut self, ids: usize) -> Step {
        let (id, group) = (self.number(ids), self.number(4) as u32);
        match self.below(40) {
            ..4 => Step::Get(id),
            4 | 5 => Step::Named(self.number(ids)),
            6 => Step::Group(group, Direction::Forward),
            7 => Step::Group(group, Direction::Backward),
            8 => Step::Range(id, id + self.number(ids), usize::MAX),
            9 => Step::Range(id, id + self.number(ids), 2),
            10..15 => Step::Insert(id, self.number(ids), group),
            15..18 => Step::Upsert(id, self.number(ids), group),
            18..25 => Step::Change(id),
            25 => Step::Renumber(id, self.number(ids)),
            26 => Step::Rename(id, self.number(ids)),
            27 => Step::Regroup(id, group),
            28..31 => Step::Delete(id),
            31 => Step::Lock(id),
            32 => Step::LockKey(id),
            33 => Step::Follow(id, group),
            34 => Step::Savepoint,
            35 if self.below(3) == 0 => Step::Back,
            _ => Step::Refresh,
        }
    }

    fn program(&mut self, ids: usize) -> Program {
        // Without a refresh this is snapshot isolation, with it READ COMMITTED.
        let isolation = if self.below(3) == 0 { Isolation::Serializable } else { Isolation::Snapshot };
        let refreshes = isolation == Isolation::Snapshot && self.below(2) == 0;
        let most = if self.below(10) == 0 { 60 } else { 8 };
        let count = 1 + self.below(most);
        let mut steps: Vec<Step> = (0..count).map(|_| self.step(ids)).collect();
        steps.retain(|step| refreshes || !matches!(step, Step::Refresh));
        Program { isolation, steps, stubborn: self.below(6) == 0 }
    }
}

#[test]
fn random_transactions_are_executed_again_in_any_order() {
    let seed = env::var("FRESHET_SEED").ok().and_then(|seed| seed.parse().ok());
    let now = || SystemTime::UNIX_EPOCH.elapsed().unwrap().as_nanos() as u64;
    let (mut all, mut all_committed) = (Tally::default(), 0);
    for round in 0..6 {
        let seed = seed.unwrap_or_else(now) + round;
        println!("FRESHET_SEED={seed}");
        let mut draws = Draws::new(seed);
        let ids = 12 + draws.below(60);
        let records: Vec<_> = (0..ids as u64).step_by(2).map(|id| (id, id, id as u32 % 4)).collect();
        let certifier = if draws.below(2) == 0 { Certifier::Validation } else { Certifier::Ssn };
        let scene = Scene::new(1 + draws.below(8), &records, certifier);
        let programs: Vec<Program> = (0..400).map(|_| draws.program(ids)).collect();
        let committed = scene.run(0, &programs, |running| draws.below(running));
        const MOST: usize = 12;
        let mut standby = Standby::new(scene.log(), MOST);
        // What its snapshots see stays.
        let holder = standby.core().participants.join().unwrap();
        let (_guard, _) = holder.pin(|| Lsn::ZERO);
        while standby.left() > 0 {
            let count = 1 + draws.below(MOST - 2);
            standby.batch(&programs, count, |order| draws.shuffle(order));
        }
        let tally = standby.tally;
        println!("{committed} committed, {tally:?}");
        all.add(tally);
        all_committed += committed;
    }
    assert!(all.executed * 2 > all_committed && all.kept > 0, "{all:?} of {all_committed}");
    assert!(all.read * 4 > all.executed && all.waited > 0, "{all:?}");
}
