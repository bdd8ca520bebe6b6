//! A search for as long as one wants.

use std::{
    env,
    path::Path,
    time::{Duration, Instant},
};

use freshet_fuzzing::{Case, generate::Random};

/// A search that has begun.
pub struct Search {
    /// What the next case is made from.
    pub random: Random,
    seed: u64,
    cases: u64,
    case: Case,
    end: Instant,
}

impl Search {
    /// Begins. `FRESHET_SEED` repeats one, `FRESHET_STRESS_SECONDS` makes it longer or shorter than
    /// 20 seconds.
    pub fn begin(name: &str) -> Self {
        let seed = env::var("FRESHET_SEED").ok().map_or_else(
            || {
                std::time::SystemTime::now()
                    .duration_since(std::time::UNIX_EPOCH)
                    .map_or(1, |now| now.as_nanos() as u64)
            },
            |seed| seed.parse().expect("FRESHET_SEED is a number"),
        );
        println!("FRESHET_SEED={seed}");
        let seconds = env::var("FRESHET_STRESS_SECONDS").map_or(20, |text| text.parse().expect("seconds"));
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}.last"));
        println!("the last case is in {}", path.display());
        Self {
            random: Random::new(seed),
            seed,
            cases: 0,
            case: Case::new().keep_in(&path),
            end: Instant::now() + Duration::from_secs(seconds),
        }
    }

    /// Whether there is time for another case.
    pub fn goes_on(&self) -> bool {
        Instant::now() < self.end
    }

    /// Tries one.
    pub fn case<T>(&mut self, data: &[u8], target: impl FnOnce(&mut Case, &[u8]) -> T) -> T {
        self.cases += 1;
        target(&mut self.case, data)
    }
}

impl Drop for Search {
    fn drop(&mut self) {
        println!("{} cases of FRESHET_SEED={}", self.cases, self.seed);
    }
}
