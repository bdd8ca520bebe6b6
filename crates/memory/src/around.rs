//! What goes around the caches, or is brought into them.

use freshet_base::{sync::AtomicU64, words};

use crate::{
    LINE,
    instructions::{self, fence},
};

/// Asks the processor for the bytes from `at` on, ahead of their use. Reads no value, and does
/// nothing where there are not as many bytes.
#[inline]
pub fn prefetch(words: &[AtomicU64], at: usize, length: usize) {
    let end = words.len().saturating_mul(8).min(at.saturating_add(length));
    for at in (at & !(LINE - 1)..end).step_by(LINE) {
        instructions::prefetch(words.as_ptr().cast::<u8>().wrapping_add(at));
    }
}

/// Copies `bytes` to byte `at` of `words`, around this processor's caches where it can: who writes
/// is not going to read it, and neither its caches nor those of the threads beside it lose
/// anything. What was copied is in place for the thread that sees what is stored afterwards.
/// Others may write the bytes beside these ([`words::store_among`]).
///
/// # Panics
/// When there are not as many bytes.
pub fn store_around(words: &[AtomicU64], at: usize, bytes: &[u8]) {
    let (head, bytes) = bytes.split_at(bytes.len().min(at.next_multiple_of(8) - at));
    words::store_among(words, at, head);
    let (at, (chunks, tail)) = (at + head.len(), bytes.as_chunks::<8>());
    words::store_among(words, at + chunks.len() * 8, tail);
    if !chunks.is_empty() {
        stream(&words[at / 8..at / 8 + chunks.len()], chunks);
        // Orders the stores above before all that follow.
        fence();
    }
}

/// Stores whole words around this processor's caches where it can. They are in order with other
/// stores, and durable in persistent memory, behind a [`fence`] only.
///
/// # Panics
/// When there are not as many words.
#[inline]
pub fn stream(words: &[AtomicU64], chunks: &[[u8; 8]]) {
    for (word, chunk) in words[..chunks.len()].iter().zip(chunks) {
        // SAFETY: the word is aligned, and inside what `words` keeps. Others touch it by atomic
        // instructions only, or from outside of this program, and a store of eight aligned bytes is
        // whole to them.
        unsafe { instructions::store_around(word.as_ptr().cast(), u64::from_ne_bytes(*chunk)) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Registered, SharedMemory};

    #[test]
    fn what_is_copied_around_the_caches_lies_where_it_should() {
        let memory = SharedMemory::new(256, false).unwrap();
        let bytes: Vec<u8> = (1..=200).collect();
        for at in 0..20 {
            for length in (0..20).chain(180..200) {
                words::store(memory.words(), 0, &[255; 256]);
                store_around(memory.words(), at, &bytes[..length]);
                let mut all = [0; 256];
                words::load(memory.words(), 0, &mut all);
                assert_eq!(all[at..at + length], bytes[..length], "{length} bytes at {at}");
                assert!(all[..at].iter().chain(&all[at + length..]).all(|byte| *byte == 255), "{length} bytes at {at}");
            }
        }
    }
}
