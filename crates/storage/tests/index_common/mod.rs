//! What the tests of the index share.
#![allow(dead_code, reason = "each test uses a part")]

use std::{env, time::Duration};

/// A small generator of random numbers (splitmix64).
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }
}

/// The seed of this run: `FRESHET_SEED`, or a new one, which is printed.
pub fn seed() -> u64 {
    let seed = env::var("FRESHET_SEED").ok().map_or_else(
        || std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_nanos() as u64,
        |text| text.parse().expect("FRESHET_SEED is a number"),
    );
    println!("FRESHET_SEED={seed}");
    seed
}

/// How long to stress: one second, or `FRESHET_STRESS_SECONDS`.
pub fn stress_time() -> Duration {
    let seconds = env::var("FRESHET_STRESS_SECONDS").map_or(1, |text| text.parse().expect("seconds"));
    Duration::from_secs(seconds)
}
