//! Random weather over a primary and two standbys with real sockets, under a seed: batches of all
//! sizes, lost connections, disks and replay that stand still. What is told to clients and shown to
//! readers is held against what is really persistent.

use freshet_base::{Lsn, Safety};
use freshet_fabric::FabricKind;

use super::fixture::*;

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
fn nothing_is_acknowledged_or_shown_that_is_not_persistent_enough() {
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

fn lengths(dice: &mut Dice) -> Vec<usize> {
    (0..1 + dice.below(6)).map(|_| 64 + 8 * dice.below(116) as usize).collect()
}

fn storm(mut dice: Dice, safety: Safety, fabric: FabricKind, compress: bool) {
    let mut config = config(rule(safety, 2));
    (config.feed.boundaries, config.feed.fabric.compress) = (8, compress);
    let primary = PrimaryNode::first(config);
    let standby = |node| {
        let log = TestLog::received(4096);
        NewStandby::new(node).following(primary.address()).config(over(fabric)).log(log).start()
    };
    let standbys = [standby(2), standby(3)];
    let needed = match safety {
        Safety::Quorum(k) => k as usize - 1,
        _ => standbys.len(),
    };
    let mut acknowledged = Lsn(0);
    // Where long transactions begin and end; the last one may be on its way.
    let mut long: Vec<(Lsn, Lsn)> = Vec::new();
    let mut under_way: Option<(Long, u64)> = None;
    for _ in 0..600 {
        let one = &standbys[dice.below(2) as usize];
        let here = one.log.end().0;
        match dice.below(12) {
            0..=5 => {
                if under_way.is_none() && dice.below(8) == 0 {
                    // Longer than a standby's ring, most of them.
                    let count = 1 + dice.below(12);
                    let parts = (0..count).map(|_| lengths(&mut dice)).collect();
                    let begun = primary.long(parts);
                    long.push((begun.start, begun.end));
                    under_way = Some((begun, count));
                }
                match under_way.take() {
                    Some((begun, count)) => {
                        begun.put();
                        under_way = (count > 1).then_some((begun, count - 1));
                    }
                    None => {
                        primary.write(&lengths(&mut dice));
                    }
                }
            }
            // The connection is lost; it comes back at once.
            6 => one.standby.follow(&primary.address()),
            7 => one.log.stall(true),
            8 => one.log.stall(false),
            9 => one.tape.gate(Some(here)),
            _ => one.tape.gate(None),
        }
        // The promise first, then the truth, which only grows.
        let committed = primary.primary.commit().committed();
        let held = |node: &StandbyNode| node.log.persisted();
        assert!(committed >= acknowledged, "committed went back");
        acknowledged = committed;
        let whole = |at: Lsn| long.iter().all(|(start, end)| at <= *start || *end <= at);
        assert!(whole(committed), "{committed} is within a transaction");
        assert!(standbys.iter().filter(|node| held(node) >= committed).count() >= needed, "{committed} under {safety}");
        for node in &standbys {
            let visible = node.standby.visible().get();
            assert!(visible <= held(node) && visible <= primary.primary.commit().committed(), "{visible} is shown");
            assert!(whole(visible), "{visible} is shown, within a transaction");
        }
    }
    for node in &standbys {
        node.log.stall(false);
        node.tape.gate(None);
    }
    if let Some((begun, count)) = under_way {
        for _ in 0..count {
            begun.put();
        }
    }
    let end = primary.log.end();
    if let Err(error) = primary.primary.commit().wait(end, (std::time::Instant::now() + PATIENCE).into()) {
        let theirs = standbys.each_ref().map(|node| node.standby.status());
        let status = primary.primary.status();
        panic!("{end} was never committed ({error}), {fabric}, compressed {compress}: {status:#?} {theirs:#?}");
    }
    for node in &standbys {
        node.shows(end);
        assert!(node.log.bytes() == primary.log.bytes());
    }
}
