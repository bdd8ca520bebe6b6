//! Random weather over a primary and two standbys with real sockets, under a seed: batches of all
//! sizes, lost connections, disks and replay that stand still. What is told to clients and shown to
//! readers is held against what is really persistent.

use freshet_base::{Safety, Stamp};
use freshet_fabric::FabricKind;

use super::fixture::*;
use crate::{log_access::StandbyStore, primary::PrimaryConfig};

struct Dice(u64);

impl Dice {
    fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 33) % n
    }
}

#[test]
fn nothing_is_told_or_shown_that_is_not_persistent_enough() {
    let seed = std::env::var("FRESHET_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(77_u64);
    println!("FRESHET_SEED={seed}");
    for fabric in FABRICS {
        for compress in [false, true] {
            for (round, safety) in [Safety::VerySafe, Safety::Quorum(2), Safety::Quorum(3)].into_iter().enumerate() {
                storm(Dice(seed + round as u64), safety, fabric, compress);
            }
        }
    }
}

fn storm(mut dice: Dice, safety: Safety, fabric: FabricKind, compress: bool) {
    let mut config = PrimaryConfig { boundaries: 8, ..config(rule(safety, 2)) };
    config.fabric.compress = compress;
    let primary = PrimaryNode::first(config);
    let standby = |node| {
        let log = MemoryLog::with_capacity(4096);
        StandbyNode::with(node, Some(primary.address()), over(fabric), log)
    };
    let standbys = [standby(2), standby(3)];
    let needed = match safety {
        Safety::Quorum(k) => k as usize - 1,
        _ => standbys.len(),
    };
    let mut told = Stamp(0);
    // Where long transactions begin and end; the last one may be on its way.
    let mut long: Vec<(Stamp, Stamp)> = Vec::new();
    let mut parts = 0;
    for _ in 0..600 {
        let one = &standbys[dice.below(2) as usize];
        let here = StandbyStore::received(&*one.log).0;
        match dice.below(12) {
            0..=5 => {
                let lengths: Vec<usize> = (0..1 + dice.below(6)).map(|_| 32 + 8 * dice.below(120) as usize).collect();
                if parts == 0 && dice.below(8) == 0 {
                    // Longer than a standby's ring, most of them.
                    parts = 1 + dice.below(12);
                    long.push((primary.end(), Stamp(u64::MAX)));
                }
                if parts > 0 {
                    parts -= 1;
                    let end = primary.write_part(&lengths, parts == 0);
                    if parts == 0 {
                        long.last_mut().unwrap().1 = end;
                    }
                } else {
                    primary.write(&lengths);
                }
            }
            // The connection is lost; it comes back at once.
            6 => one.standby.follow(&primary.address()),
            7 => one.log.gate(Some(here)),
            8 => one.log.gate(None),
            9 => one.tape.gate(Some(here)),
            _ => one.tape.gate(None),
        }
        // The promise first, then the truth, which only grows.
        let committed = primary.primary.commit().committed().get();
        let held = |node: &StandbyNode| StandbyStore::persisted(&*node.log);
        assert!(committed >= told, "committed went back");
        told = committed;
        let whole = |at: Stamp| long.iter().all(|(start, end)| at <= *start || *end <= at);
        assert!(whole(committed), "{committed} is within a transaction");
        assert!(standbys.iter().filter(|node| held(node) >= committed).count() >= needed, "{committed} under {safety}");
        for node in &standbys {
            let visible = node.standby.visible().get();
            assert!(
                visible <= held(node) && visible <= primary.primary.commit().committed().get(),
                "{visible} is shown"
            );
            assert!(whole(visible), "{visible} is shown, within a transaction");
        }
    }
    for node in &standbys {
        node.log.gate(None);
        node.tape.gate(None);
    }
    if parts > 0 {
        primary.write_part(&[64, 32], true);
    }
    let end = primary.end();
    if let Err(error) = primary.primary.commit().wait(end, Some(std::time::Instant::now() + PATIENCE)) {
        let theirs = standbys.each_ref().map(|node| node.standby.status());
        let status = primary.primary.status();
        panic!("{end} was never committed ({error}), {fabric}, compressed {compress}: {status:#?} {theirs:#?}");
    }
    for node in &standbys {
        node.shows(end);
        assert!(node.log.bytes() == primary.log.bytes());
    }
}
