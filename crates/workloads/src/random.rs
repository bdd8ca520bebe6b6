//! The generator of random numbers behind every workload: seeded, so that a
//! run can be repeated, and the same on every platform.
//!
//! It is xoshiro256++ (Blackman and Vigna, 2021) whose state is filled by
//! SplitMix64, as its authors advise. It is not fit for secrets.

/// One stream of pseudo-random numbers.
#[derive(Clone, Debug)]
pub struct Random {
    state: [u64; 4],
}

/// One step of SplitMix64: also a good way to mix the bits of one number.
#[inline]
pub(crate) const fn mix(number: u64) -> u64 {
    let z = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

impl Random {
    /// The stream that belongs to `seed`.
    pub const fn new(seed: u64) -> Self {
        let a = mix(seed);
        let b = mix(a);
        let c = mix(b);
        Self { state: [a, b, c, mix(c)] }
    }

    /// The stream number `stream` of those that belong to `seed`: what one
    /// worker, table or warehouse draws does not depend on what others do.
    pub const fn stream(seed: u64, stream: u64) -> Self {
        Self::new(mix(seed) ^ mix(stream.wrapping_mul(0xd6e8_feb8_6659_fd93)))
    }

    /// Any of the 2^64 values.
    #[inline]
    pub const fn bits(&mut self) -> u64 {
        let [a, b, c, d] = self.state;
        let result = a.wrapping_add(d).rotate_left(23).wrapping_add(a);
        let shifted = b << 17;
        let c = c ^ a;
        let d = d ^ b;
        self.state = [a ^ d, b ^ c, c ^ shifted, d.rotate_left(45)];
        result
    }

    /// A number below `bound`, each as likely as any other (Lemire 2019).
    ///
    /// # Panics
    /// When `bound` is zero.
    #[inline]
    pub const fn below(&mut self, bound: u64) -> u64 {
        assert!(bound > 0, "no number is below zero");
        let mut product = self.bits() as u128 * bound as u128;
        if (product as u64) < bound {
            // How many of the 2^64 values have to be drawn again, so that the others divide evenly.
            let surplus = bound.wrapping_neg() % bound;
            while (product as u64) < surplus {
                product = self.bits() as u128 * bound as u128;
            }
        }
        (product >> 64) as u64
    }

    /// A number within `low..=high`.
    ///
    /// # Panics
    /// When `low` is above `high`.
    #[inline]
    pub const fn within(&mut self, low: u64, high: u64) -> u64 {
        assert!(low <= high, "a range is not empty");
        match high - low {
            u64::MAX => self.bits(),
            width => low + self.below(width + 1),
        }
    }

    /// A number in `[0, 1)`, a multiple of 2^-53.
    #[inline]
    pub const fn fraction(&mut self) -> f64 {
        (self.bits() >> 11) as f64 * (1.0 / (1u64 << 53) as f64)
    }

    /// Puts `items` into a random order; all orders are equally likely (Fisher and Yates).
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            items.swap(last, self.below(last as u64 + 1) as usize);
        }
    }
}

/// Chooses exactly a given share of a run of rows, every such choice being as
/// likely as any other, without remembering rows (Knuth, volume 2, 3.4.2, algorithm S).
#[derive(Clone, Debug)]
pub struct Selection {
    wanted: u64,
    left: u64,
}

impl Selection {
    /// Will choose `wanted` of `of` rows.
    pub fn new(wanted: u64, of: u64) -> Self {
        assert!(wanted <= of, "no more rows are chosen than there are");
        Self { wanted, left: of }
    }

    /// Whether the next row is chosen. After the last row: no.
    pub fn next(&mut self, random: &mut Random) -> bool {
        if self.left == 0 {
            return false;
        }
        let chosen = random.below(self.left) < self.wanted;
        self.left -= 1;
        self.wanted -= u64::from(chosen);
        chosen
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_repeats_its_stream_and_streams_differ() {
        let take = |mut random: Random| (0..8).map(|_| random.bits()).collect::<Vec<_>>();
        assert_eq!(take(Random::new(7)), take(Random::new(7)));
        assert_ne!(take(Random::new(7)), take(Random::new(8)));
        assert_ne!(take(Random::stream(7, 0)), take(Random::stream(7, 1)));
        assert_ne!(take(Random::stream(7, 1)), take(Random::stream(8, 0)));
    }

    /// The reference implementation's first outputs for the state 1, 2, 3, 4.
    #[test]
    fn it_is_xoshiro256_plus_plus() {
        let mut random = Random { state: [1, 2, 3, 4] };
        assert_eq!([random.bits(), random.bits(), random.bits()], [41_943_041, 58_720_359, 3_588_806_011_781_223]);
    }

    #[test]
    fn numbers_stay_within_and_reach_both_ends_evenly() {
        let mut random = Random::new(1);
        let mut counts = [0u32; 10];
        for _ in 0..100_000 {
            counts[random.within(5, 14) as usize - 5] += 1;
        }
        // Binomial with mean 10,000 and deviation 95: five deviations.
        assert!(counts.iter().all(|count| (9_525..10_475).contains(count)), "{counts:?}");
        assert_eq!(random.within(3, 3), 3);
        random.within(0, u64::MAX);
        assert!((0..1_000).all(|_| (0.0..1.0).contains(&random.fraction())));
    }

    #[test]
    fn a_shuffle_keeps_every_item() {
        let mut items: Vec<u32> = (0..100).collect();
        Random::new(3).shuffle(&mut items);
        assert_ne!(items, (0..100).collect::<Vec<_>>());
        items.sort_unstable();
        assert_eq!(items, (0..100).collect::<Vec<_>>());
    }

    #[test]
    fn a_selection_is_exact() {
        let mut random = Random::new(4);
        for _ in 0..20 {
            let mut selection = Selection::new(10, 100);
            assert_eq!((0..100).filter(|_| selection.next(&mut random)).count(), 10);
            assert!(!selection.next(&mut random));
        }
    }
}
