//! Bytes in memory of atomic words: memory that others (threads, processes, devices) may write and
//! read at the same time.
//!
//! Every copy moves whole words through relaxed atomics, so that a copy which races with another is
//! never undefined behaviour: it yields words of either. A thread that may race checks afterwards,
//! by the protocol of its caller, whether it did.

use crate::sync::{AtomicU64, Ordering};

/// Bytes in a word.
const WORD: usize = 8;

/// Copies `from` to byte `at` of `words`. Several threads may store at once as long as their words
/// differ.
///
/// # Panics
/// When there are not as many bytes.
#[inline]
pub fn store(words: &[AtomicU64], at: usize, from: &[u8]) {
    store_with(words, at, from, store_part);
}

/// The same, where other threads or processes may write the bytes beside these at the same time,
/// though not these: the words at both ends are changed as a network card would change them.
///
/// # Panics
/// When there are not as many bytes.
#[inline]
pub fn store_among(words: &[AtomicU64], at: usize, from: &[u8]) {
    store_with(words, at, from, |word, skew, from| {
        // Relaxed, twice: as in `store_with`. Other bytes may change in between; these do not, so
        // that the difference is still what turns them into the new ones.
        let before = word.load(Ordering::Relaxed).to_ne_bytes();
        let mut difference = [0; WORD];
        for ((to, before), from) in difference[skew..].iter_mut().zip(&before[skew..]).zip(from) {
            *to = before ^ from;
        }
        word.fetch_xor(u64::from_ne_bytes(difference), Ordering::Relaxed);
    });
}

/// Copies whole words, and has `part` replace the bytes of a word from one on.
#[inline]
fn store_with(words: &[AtomicU64], at: usize, from: &[u8], part: impl Fn(&AtomicU64, usize, &[u8])) {
    let (mut word, skew) = (at / WORD, at % WORD);
    let mut from = from;
    if skew != 0 && !from.is_empty() {
        let (head, rest) = from.split_at(from.len().min(WORD - skew));
        part(&words[word], skew, head);
        (from, word) = (rest, word + 1);
    }
    let (whole, tail) = from.as_chunks::<WORD>();
    let target = &words[word..word + whole.len()];
    for (target, chunk) in target.iter().zip(whole) {
        // Relaxed: published by the thread that owns the range, and checked by optimistic readers.
        target.store(u64::from_ne_bytes(*chunk), Ordering::Relaxed);
    }
    if !tail.is_empty() {
        part(&words[word + whole.len()], 0, tail);
    }
}

/// Replaces some bytes of one word, whose other bytes nobody writes in the meantime.
fn store_part(word: &AtomicU64, skew: usize, from: &[u8]) {
    // Relaxed, twice: as in `store_with`.
    let mut bytes = word.load(Ordering::Relaxed).to_ne_bytes();
    bytes[skew..skew + from.len()].copy_from_slice(from);
    word.store(u64::from_ne_bytes(bytes), Ordering::Relaxed);
}

/// Copies the bytes from `at` on to `into`.
///
/// # Panics
/// When there are not as many bytes.
#[inline]
pub fn load(words: &[AtomicU64], at: usize, into: &mut [u8]) {
    let (mut word, skew) = (at / WORD, at % WORD);
    let mut into = into;
    if skew != 0 {
        let (head, rest) = into.split_at_mut(into.len().min(WORD - skew));
        // Relaxed, here and below: the caller synchronised, or checks afterwards.
        let bytes = words[word].load(Ordering::Relaxed).to_ne_bytes();
        head.copy_from_slice(&bytes[skew..skew + head.len()]);
        (into, word) = (rest, word + 1);
    }
    let (whole, tail) = into.as_chunks_mut::<WORD>();
    let source = &words[word..word + whole.len()];
    for (source, chunk) in source.iter().zip(whole.iter_mut()) {
        *chunk = source.load(Ordering::Relaxed).to_ne_bytes();
    }
    if !tail.is_empty() {
        let bytes = words[word + whole.len()].load(Ordering::Relaxed).to_ne_bytes();
        tail.copy_from_slice(&bytes[..tail.len()]);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn any_alignment_and_length_comes_back() {
        let words: Vec<AtomicU64> = (0..8).map(|_| AtomicU64::new(0)).collect();
        for at in 0..24 {
            for length in 0..40 {
                let bytes: Vec<u8> = (0..length).map(|i| (i + 1) as u8).collect();
                for store in [store, store_among] {
                    words.iter().for_each(|word| word.store(u64::MAX / 255 * 99, Ordering::Relaxed));
                    store(&words, at, &bytes);
                    let mut all = [0; 64];
                    load(&words, 0, &mut all);
                    assert_eq!(&all[at..at + length], &bytes[..], "at {at}");
                    assert!(all[..at].iter().chain(&all[at + length..]).all(|b| *b == 99), "neighbours stay, at {at}");
                    let mut back = vec![0; length];
                    load(&words, at, &mut back);
                    assert_eq!(back, bytes);
                }
            }
        }
    }
}

#[cfg(all(test, loom))]
mod model {
    use loom::{sync::Arc, thread};

    use super::*;

    #[test]
    fn bytes_beside_others_that_are_written_keep_theirs() {
        loom::model(|| {
            let words = Arc::new([AtomicU64::new(u64::MAX), AtomicU64::new(u64::MAX)]);
            let beside = Arc::clone(&words);
            let writer = thread::spawn(move || store_among(&*beside, 5, b"five.."));
            store_among(&*words, 0, b"zero!");
            store_among(&*words, 11, b"last");
            writer.join().unwrap();
            let mut all = [0; 16];
            load(&*words, 0, &mut all);
            assert_eq!(&all, b"zero!five..last\xFF");
        });
    }
}
