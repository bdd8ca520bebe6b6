//! Random texts and numbers as clauses 2.1.6 and 4.3.2 define them.

use serde::{Deserialize, Serialize};

use crate::{random::Random, row::Text};

/// The alphanumeric characters of clause 4.3.2.2: 26 lower-case and 26
/// upper-case letters and 10 digits.
const ALPHANUMERIC: &[u8; 62] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";

/// The syllables of clause 4.3.2.3.
const SYLLABLES: [&[u8]; 10] =
    [b"BAR", b"OUGHT", b"ABLE", b"PRI", b"PRES", b"ESE", b"ANTI", b"CALLY", b"ATION", b"EING"];

/// An a-string of `shortest..=N` characters (clause 4.3.2.2).
pub fn letters<const N: usize>(random: &mut Random, shortest: usize) -> Text<N> {
    let mut text = Text::EMPTY;
    let length = random.within(shortest as u64, N as u64) as usize;
    for place in &mut text.0[..length] {
        *place = ALPHANUMERIC[random.below(62) as usize];
    }
    text
}

/// An n-string of exactly `N` digits (clause 4.3.2.2).
pub fn digits<const N: usize>(random: &mut Random) -> Text<N> {
    Text(std::array::from_fn(|_| b'0' + random.below(10) as u8))
}

/// W_STATE and its like: two letters.
pub fn state(random: &mut Random) -> Text<2> {
    Text(std::array::from_fn(|_| ALPHANUMERIC[random.below(26) as usize]))
}

/// A zip code: four random digits and 11111 (clause 4.3.2.7).
pub fn zip(random: &mut Random) -> Text<9> {
    let mut zip = Text(*b"000011111");
    zip.0[..4].copy_from_slice(&digits::<4>(random).0);
    zip
}

/// Puts ORIGINAL into a text of 26 to 50 characters, at a random place (clause 4.3.3.1).
pub fn make_original(random: &mut Random, text: &mut Text<50>) {
    let length = text.trimmed().len();
    let start = random.within(0, (length - ORIGINAL.len()) as u64) as usize;
    text.0[start..start + ORIGINAL.len()].copy_from_slice(ORIGINAL);
}

const ORIGINAL: &[u8; 8] = b"ORIGINAL";

/// Whether I_DATA or S_DATA contains ORIGINAL (clause 2.4.2.2).
#[inline]
pub fn is_original(data: &[u8]) -> bool {
    // As integers: eight characters in one comparison.
    let wanted = u64::from_le_bytes(*ORIGINAL);
    data.windows(8).any(|window| u64::from_le_bytes(window.try_into().expect("eight bytes")) == wanted)
}

/// The last name that belongs to a number of 0..=999: a syllable for each of
/// its three digits (clause 4.3.2.3).
#[inline]
pub fn last_name(number: u16) -> Text<16> {
    let mut name = Text::EMPTY;
    let mut at = 0;
    for digit in [number / 100, number / 10, number] {
        let syllable = SYLLABLES[usize::from(digit % 10)];
        name.0[at..at + syllable.len()].copy_from_slice(syllable);
        at += syllable.len();
    }
    name
}

/// The non-uniform choice NURand(A, x, y) of clause 2.1.6.
#[inline]
pub fn non_uniform(random: &mut Random, a: u64, constant: u64, low: u64, high: u64) -> u64 {
    (((random.within(0, a) | random.within(low, high)) + constant) % (high - low + 1)) + low
}

/// NURand's A for last names, for customer numbers and for item numbers.
const A_LAST_NAME: u64 = 255;
const A_CUSTOMER: u64 = 1023;
const A_ITEM: u64 = 8191;

/// The largest number of a last name.
const LARGEST_NAME: u64 = 999;

/// NURand's C for a run: the same for all its terminals (clause 2.1.6).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Constants {
    last_name: u64,
    customer: u64,
    item: u64,
}

impl Constants {
    /// For the initial population, which belongs to `seed`. Only the last
    /// names are chosen non-uniformly then.
    pub fn of_load(seed: u64) -> Self {
        let mut random = Random::stream(seed, u64::MAX);
        Self { last_name: random.within(0, A_LAST_NAME), customer: 0, item: 0 }
    }

    /// For a run on that population. C-Run of the last names lies 65 to 119
    /// away from C-Load, but neither 96 nor 112 away (clause 2.1.6.1).
    pub fn of_run(load: Self, random: &mut Random) -> Self {
        let last_name = loop {
            let candidate = random.within(0, A_LAST_NAME);
            let distance = candidate.abs_diff(load.last_name);
            if (65..=119).contains(&distance) && distance != 96 && distance != 112 {
                break candidate;
            }
        };
        Self { last_name, customer: random.within(0, A_CUSTOMER), item: random.within(0, A_ITEM) }
    }

    /// A last name: NURand(255, 0, 999), or fewer names where the population
    /// is scaled down to less than 1,000 customers.
    #[inline]
    pub fn last_name(&self, random: &mut Random, customers: u32) -> Text<16> {
        let largest = LARGEST_NAME.min(u64::from(customers) - 1);
        last_name(non_uniform(random, A_LAST_NAME, self.last_name, 0, largest) as u16)
    }

    /// A customer number: NURand(1023, 1, 3000).
    #[inline]
    pub fn customer(&self, random: &mut Random, customers: u32) -> u32 {
        non_uniform(random, A_CUSTOMER, self.customer, 1, u64::from(customers)) as u32
    }

    /// An item number: NURand(8191, 1, 100000).
    #[inline]
    pub fn item(&self, random: &mut Random, items: u32) -> u32 {
        non_uniform(random, A_ITEM, self.item, 1, u64::from(items)) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn last_names_are_the_syllables_of_their_digits() {
        // The example of clause 4.3.2.3.
        assert_eq!(last_name(371).trimmed(), b"PRICALLYOUGHT");
        assert_eq!(last_name(40).trimmed(), b"BARPRESBAR");
        assert_eq!(last_name(0).trimmed(), b"BARBARBAR");
        assert_eq!(last_name(999).trimmed(), b"EINGEINGEING");
        // The longest there is.
        assert_eq!(last_name(777).trimmed(), b"CALLYCALLYCALLY");
        let names: std::collections::HashSet<_> = (0..1_000).map(last_name).collect();
        assert_eq!(names.len(), 1_000);
    }

    #[test]
    fn strings_have_the_lengths_and_characters_of_the_clause() {
        let mut random = Random::new(1);
        let mut lengths = std::collections::HashSet::new();
        for _ in 0..1_000 {
            let text = letters::<24>(&mut random, 14);
            assert!(text.trimmed().iter().all(u8::is_ascii_alphanumeric), "{text}");
            lengths.insert(text.trimmed().len());
        }
        assert_eq!(lengths, (14..=24).collect());
        assert!(digits::<16>(&mut random).0.iter().all(u8::is_ascii_digit));
        assert!(zip(&mut random).0.ends_with(b"11111"));
    }

    #[test]
    fn original_is_put_in_and_found() {
        let mut random = Random::new(2);
        let mut places = std::collections::HashSet::new();
        for _ in 0..20_000 {
            let mut text = letters::<50>(&mut random, 26);
            assert!(!is_original(&text.0));
            let length = text.trimmed().len();
            make_original(&mut random, &mut text);
            assert!(is_original(&text.0), "{text}");
            assert_eq!(text.trimmed().len(), length);
            places.insert(text.0.windows(8).position(|window| window == ORIGINAL).unwrap());
        }
        assert_eq!(places, (0..=42).collect());
    }

    /// Nothing outside of the range is drawn, and of what is inside only numbers with hardly a one
    /// among their bits are so rare that they may be missing.
    #[test]
    fn non_uniform_numbers_cover_their_range() {
        let mut random = Random::new(3);
        for (a, low, high) in [(A_LAST_NAME, 0, 999), (A_CUSTOMER, 1, 3_000), (A_CUSTOMER, 1, 30)] {
            let mut seen = vec![false; (high - low + 1) as usize];
            for _ in 0..400_000 {
                let number = non_uniform(&mut random, a, 123, low, high);
                assert!((low..=high).contains(&number));
                seen[(number - low) as usize] = true;
            }
            let missing = seen.iter().filter(|seen| !**seen).count();
            assert!(missing * 20 <= seen.len(), "NURand({a}, {low}, {high}) misses {missing} numbers");
        }
    }

    /// The bitwise or makes numbers with many ones likely: of the 1,024 residues of NURand(1023,
    /// 1, 3000) with C = 0, the one with ten ones must be drawn far more often than the one with
    /// none.
    #[test]
    fn non_uniform_numbers_are_skewed_as_the_or_skews_them() {
        let mut random = Random::new(4);
        let mut counts = vec![0u32; 3_001];
        for _ in 0..300_000 {
            counts[non_uniform(&mut random, A_CUSTOMER, 0, 1, 3_000) as usize] += 1;
        }
        // P(all ten bits are set) is (3/4)^10 / 3 = 1.9 % for 1023 and 2047; P(1024 or so) is
        // (1/4)^10 / 3. NURand adds x = 1 after the remainder.
        assert!((4_800..6_500).contains(&counts[1_024]), "{}", counts[1_024]);
        assert!(counts[1_025] < 5, "{}", counts[1_025]);
    }

    #[test]
    fn the_constants_of_load_and_run_differ_as_they_must() {
        let mut random = Random::new(5);
        for seed in 0..200 {
            let load = Constants::of_load(seed);
            let run = Constants::of_run(load, &mut random);
            let distance = run.last_name.abs_diff(load.last_name);
            assert!((65..=119).contains(&distance) && distance != 96 && distance != 112, "{distance}");
            assert_eq!(load, Constants::of_load(seed));
        }
    }
}
