//! CRC-32C of words where they lie, in memory that others may write.
//!
//! The words are loaded one by one and never become a reference to bytes, so the checksum needs no
//! copy. The processor's instruction takes three cycles, and one can begin in each: three thirds of
//! the words are worked on side by side, and put together by a multiplication without carries
//! (Gopal and others, "Fast CRC Computation for iSCSI Polynomial Using CRC32 Instruction", Intel,
//! 2011). What another processor has stored lies in memory, and thirds are too short for this
//! processor to see what is going to be asked for; so it is told.

use freshet_base::{
    sync::{AtomicU64, Ordering},
    words,
};

/// The checksum of what has the checksum `crc` and, behind it, `words`. What is computed is of the
/// values that were loaded, each once; whether they stay is for the caller to know.
pub(super) fn append(crc: u32, words: &[AtomicU64]) -> u32 {
    #[cfg(all(target_arch = "x86_64", not(loom)))]
    if is_x86_feature_detected!("sse4.2") && is_x86_feature_detected!("pclmulqdq") {
        // SAFETY: the processor has both, as was just found.
        return unsafe { instructions::append(crc, words) };
    }
    by_copies(crc, words)
}

/// The same by way of copies that stay in the nearest cache.
fn by_copies(mut crc: u32, all: &[AtomicU64]) -> u32 {
    let mut copy = [0; 4096];
    for some in all.chunks(copy.len() / 8) {
        let copy = &mut copy[..some.len() * 8];
        words::load(some, 0, copy);
        crc = crc32c::crc32c_append(crc, copy);
    }
    crc
}

#[cfg(all(target_arch = "x86_64", not(loom)))]
mod instructions {
    use std::arch::x86_64::{
        _MM_HINT_T0, _mm_clmulepi64_si128, _mm_crc32_u64, _mm_cvtsi32_si128, _mm_cvtsi128_si64, _mm_prefetch,
    };

    use super::{AtomicU64, Ordering};

    /// At most this many words in a third.
    const THIRD: usize = 256;
    /// Fewer words are not worth dividing.
    const LEAST: usize = 24;
    /// Words this many bytes ahead are brought into the cache: the next blocks, about as many bytes
    /// as are worked on.
    const AHEAD: usize = 4096;
    /// Of `n` words: `x^(64n - 33)` modulo the polynomial, the lowest bit being `x^31`. A remainder
    /// times this, reduced by the instruction (which multiplies by `x^33`), is that remainder with
    /// `n` words of zeros behind it.
    const BEHIND: [u32; 2 * THIRD + 1] = {
        let mut table = [1; 2 * THIRD + 1];
        let mut n = 2;
        while n < table.len() {
            let (mut power, mut bit) = (table[n - 1], 0u32);
            while bit < 64 {
                power = (power >> 1) ^ (0x82F6_3B78 * (power & 1));
                bit += 1;
            }
            table[n] = power;
            n += 1;
        }
        table
    };

    #[target_feature(enable = "sse4.2,pclmulqdq")]
    fn behind(crc: u64, words: usize) -> u64 {
        // The remainder has 32 bits, and their sign means nothing.
        let [crc, power] = [crc as i32, BEHIND[words] as i32].map(|bits| _mm_cvtsi32_si128(bits));
        _mm_crc32_u64(0, _mm_cvtsi128_si64(_mm_clmulepi64_si128(crc, power, 0)) as u64)
    }

    #[target_feature(enable = "sse4.2,pclmulqdq")]
    pub(super) fn append(crc: u32, words: &[AtomicU64]) -> u32 {
        // Relaxed: the caller has synchronised with the writer, or does not believe what it finds.
        let load = |word: &AtomicU64| word.load(Ordering::Relaxed);
        let ahead = words.as_ptr().cast::<i8>().wrapping_add(AHEAD);
        for line in (0..words.len() * 8).step_by(64) {
            // A hint: it reads no value, whether there is memory at the address or not.
            _mm_prefetch::<_MM_HINT_T0>(ahead.wrapping_add(line));
        }
        let (mut crc, mut rest) = (u64::from(!crc), words);
        while rest.len() >= LEAST {
            let third = (rest.len() / 3).min(THIRD);
            let (first, others) = rest.split_at(third);
            let (second, others) = others.split_at(third);
            let (last, others) = others.split_at(third);
            let (mut a, mut b, mut c) = (crc, 0, 0);
            for ((x, y), z) in first.iter().zip(second).zip(last) {
                (a, b, c) = (_mm_crc32_u64(a, load(x)), _mm_crc32_u64(b, load(y)), _mm_crc32_u64(c, load(z)));
            }
            crc = behind(a, 2 * third) ^ behind(b, third) ^ c;
            rest = others;
        }
        !(rest.iter().fold(crc, |crc, word| _mm_crc32_u64(crc, load(word))) as u32)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn it_is_the_checksum_of_the_same_bytes_whatever_their_number() {
        let mut word = 0x9E37_79B9_7F4A_7C15u64;
        let mut next = || {
            word = word.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            word
        };
        let all: Vec<u64> = (0..5000).map(|_| next()).collect();
        let atomics: Vec<AtomicU64> = all.iter().copied().map(AtomicU64::new).collect();
        let bytes: Vec<u8> = all.iter().flat_map(|word| word.to_ne_bytes()).collect();
        for length in (0..1000).chain([1535, 1536, 1537, 2304, 5000]) {
            let expected = crc32c::crc32c_append(77, &bytes[..length * 8]);
            assert_eq!(append(77, &atomics[..length]), expected, "{length} words");
            assert_eq!(by_copies(77, &atomics[..length]), expected, "{length} words");
        }
    }
}
