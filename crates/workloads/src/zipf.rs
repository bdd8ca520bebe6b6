//! Skewed choices.
//!
//! [`Zipf`] draws ranks as Gray et al. do ("Quickly generating billion-record
//! synthetic databases", SIGMOD 1994, section 3.2): rank `k` with a
//! probability proportional to `1 / (k + 1)^theta`. [`Scramble`] scatters the
//! ranks over the keys, so that popular records are not neighbours.

use crate::random::{Random, mix};

/// Skew outside of `[0, 1)`, for which the method is not defined.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
#[error("a Zipfian skew of {0} is outside of 0 <= theta < 1: 0 is uniform, 0.99 is YCSB's usual one")]
pub struct WrongTheta(pub f64);

/// Ranks from 0 (the most popular) to `items - 1`.
#[derive(Clone, Debug)]
pub struct Zipf {
    items: u64,
    theta: f64,
    zeta: f64,
    alpha: f64,
    eta: f64,
    /// Below this (after multiplication by zeta) the draw is rank 1.
    second: f64,
}

impl Zipf {
    /// A distribution over `items` ranks with skew `theta`; 0 is uniform.
    /// Takes about 20 ns per item, once.
    ///
    /// # Errors
    /// [`WrongTheta`] when `theta` is not within `[0, 1)`.
    ///
    /// # Panics
    /// When there is no item.
    pub fn new(items: u64, theta: f64) -> Result<Self, WrongTheta> {
        assert!(items > 0, "there is something to choose from");
        if !(0.0..1.0).contains(&theta) {
            return Err(WrongTheta(theta));
        }
        let zeta_of_two = 1.0 + 0.5f64.powf(theta);
        let (zeta, eta) = if theta == 0.0 {
            (items as f64, 1.0)
        } else {
            let zeta: f64 = (1..=items).map(|rank| (rank as f64).powf(-theta)).sum();
            (zeta, (1.0 - (2.0 / items as f64).powf(1.0 - theta)) / (1.0 - zeta_of_two / zeta))
        };
        Ok(Self { items, theta, zeta, alpha: 1.0 / (1.0 - theta), eta, second: zeta_of_two })
    }

    /// How many ranks there are.
    pub fn items(&self) -> u64 {
        self.items
    }

    /// Draws a rank.
    #[inline]
    pub fn draw(&self, random: &mut Random) -> u64 {
        if self.theta == 0.0 {
            return random.below(self.items);
        }
        let fraction = random.fraction();
        let scaled = fraction * self.zeta;
        if scaled < 1.0 {
            return 0;
        }
        if scaled < self.second {
            return 1.min(self.items - 1);
        }
        let rank = self.items as f64 * (self.eta * fraction - self.eta + 1.0).powf(self.alpha);
        (rank as u64).min(self.items - 1)
    }
}

/// A fixed permutation of `0..items`: a Feistel network over the next even
/// number of bits, walked until it is inside again.
#[derive(Clone, Copy, Debug)]
pub struct Scramble {
    items: u64,
    half_bits: u32,
}

impl Scramble {
    /// The permutation of `0..items`.
    pub fn new(items: u64) -> Self {
        let bits = u64::BITS - items.saturating_sub(1).leading_zeros();
        Self { items, half_bits: bits.div_ceil(2).max(1) }
    }

    /// Where `number` goes. Numbers at or above `items` stay where they are.
    #[inline]
    pub fn place(&self, number: u64) -> u64 {
        if number >= self.items {
            return number;
        }
        let mask = (1u64 << self.half_bits) - 1;
        let mut place = number;
        // The network permutes less than four times as many numbers as there are items, and the
        // walk returns to the cycle's start at the latest: it ends, after two rounds on average.
        loop {
            let (mut left, mut right) = (place >> self.half_bits, place & mask);
            for round in 0..3 {
                (left, right) = (right, left ^ (mix(right | round << 62) & mask));
            }
            place = left << self.half_bits | right;
            if place < self.items {
                return place;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Draws follow the distribution's own formula, at the head, where the skew is, and in sum.
    #[test]
    fn ranks_are_as_frequent_as_the_law_demands() {
        const ITEMS: u64 = 1_000;
        const DRAWS: u32 = 200_000;
        for theta in [0.0, 0.5, 0.8, 0.99] {
            let zipf = Zipf::new(ITEMS, theta).unwrap();
            let mut random = Random::new(11);
            let mut counts = vec![0u32; ITEMS as usize];
            for _ in 0..DRAWS {
                counts[zipf.draw(&mut random) as usize] += 1;
            }
            let zeta: f64 = (1..=ITEMS).map(|rank| (rank as f64).powf(-theta)).sum();
            let expected = |ranks: std::ops::Range<u64>| -> f64 {
                ranks.map(|rank| ((rank + 1) as f64).powf(-theta) / zeta).sum::<f64>() * f64::from(DRAWS)
            };
            for ranks in [0..1, 1..2, 0..10, 10..100, 100..1_000] {
                let found: u32 = counts[ranks.start as usize..ranks.end as usize].iter().sum();
                let expected = expected(ranks.clone());
                // The method approximates ranks above 1; sampling adds some deviations.
                let allowed = expected * 0.06 + 5.0 * expected.sqrt();
                assert!((f64::from(found) - expected).abs() < allowed, "theta {theta}, {ranks:?}: {found}, {expected}");
            }
        }
    }

    #[test]
    fn every_rank_is_inside() {
        for items in [1, 2, 3, 10] {
            for theta in [0.0, 0.99] {
                let zipf = Zipf::new(items, theta).unwrap();
                let mut random = Random::new(5);
                assert!((0..1_000).all(|_| zipf.draw(&mut random) < items), "{items} {theta}");
            }
        }
        for theta in [-0.1, 1.0, f64::NAN, f64::INFINITY] {
            assert!(Zipf::new(10, theta).unwrap_err().to_string().contains("theta < 1"));
        }
    }

    #[test]
    fn a_scramble_is_a_permutation_that_parts_neighbours() {
        for items in [1u64, 2, 3, 4, 5, 100, 1_000, 1_025] {
            let scramble = Scramble::new(items);
            let mut places: Vec<u64> = (0..items).map(|number| scramble.place(number)).collect();
            if items >= 1_000 {
                let near = places.windows(2).filter(|pair| pair[0].abs_diff(pair[1]) <= 2).count();
                assert!(near < 20, "{near} neighbours stayed together");
            }
            places.sort_unstable();
            assert!(places.into_iter().eq(0..items), "{items}");
            assert_eq!(scramble.place(items), items);
        }
    }
}
