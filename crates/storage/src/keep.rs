//! Rows that live as long as a pin: those that a transaction which is executed again writes, and
//! those that it reads elsewhere than in tables.
//!
//! # Access protocol
//!
//! A [`Keep`] belongs to one participant. Rows are put into it, and looked at, through that
//! participant's guard alone, so by one thread at a time. A row is copied behind those that are
//! there; from then on its bytes neither change nor move until the guard is gone, and with that all
//! who look at them.

use std::{
    alloc::{Layout, alloc, dealloc, handle_alloc_error},
    cell::RefCell,
    ptr::NonNull,
    slice,
};

/// Rows are put into chunks of this many bytes; a longer one has a chunk of its own.
const CHUNK: usize = 32 << 10;

/// A row that a guard keeps ([`Guard::keep`](crate::Guard::keep)).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kept {
    chunk: u32,
    start: u32,
    length: u32,
}

#[derive(Debug)]
struct Chunk {
    memory: NonNull<u8>,
    size: usize,
    used: usize,
}

// SAFETY: plain bytes that are the chunk's alone.
unsafe impl Send for Chunk {}

impl Chunk {
    fn layout(size: usize) -> Layout {
        Layout::array::<u8>(size).expect("rows are shorter than half the memory")
    }

    fn new(size: usize) -> Self {
        let layout = Self::layout(size);
        // SAFETY: chunks are not empty.
        let Some(memory) = NonNull::new(unsafe { alloc(layout) }) else { handle_alloc_error(layout) };
        Self { memory, size, used: 0 }
    }
}

impl Drop for Chunk {
    fn drop(&mut self) {
        // SAFETY: allocated with the same size, and freed once.
        unsafe { dealloc(self.memory.as_ptr(), Self::layout(self.size)) };
    }
}

/// What one participant's guard keeps. The first chunk's memory is used again.
#[derive(Debug, Default)]
pub(crate) struct Keep(RefCell<Vec<Chunk>>);

impl Keep {
    /// Copies a row.
    pub(crate) fn put(&self, row: &[u8]) -> Kept {
        let length = u32::try_from(row.len()).expect("rows are shorter than 4 GiB");
        let mut chunks = self.0.borrow_mut();
        if chunks.last().is_none_or(|chunk| chunk.size - chunk.used < row.len()) {
            chunks.push(Chunk::new(row.len().max(CHUNK)));
        }
        let number = chunks.len() - 1;
        let chunk = &mut chunks[number];
        let start = chunk.used;
        // SAFETY: there is room for the row behind what is used, and nobody looks there.
        unsafe { chunk.memory.add(start).copy_from_nonoverlapping(NonNull::from(row).cast(), row.len()) };
        chunk.used += row.len();
        // Both fit: a chunk is as long as one row, or CHUNK.
        Kept { chunk: number as u32, start: start as u32, length }
    }

    /// A row that was put here.
    ///
    /// # Safety
    /// Nobody calls [`Keep::clear`] during `'k`.
    ///
    /// # Panics
    /// When there are not as many bytes since the last time.
    pub(crate) unsafe fn get<'k>(&self, kept: Kept) -> &'k [u8] {
        let chunks = self.0.borrow();
        let chunk = &chunks[kept.chunk as usize];
        let (start, length) = (kept.start as usize, kept.length as usize);
        assert!(start + length <= chunk.used, "it was kept by this guard");
        // SAFETY: these bytes were written by `put`, and will not be again before `clear`, with
        // which the chunk may go.
        unsafe { slice::from_raw_parts(chunk.memory.add(start).as_ptr(), length) }
    }

    /// Takes all rows away.
    ///
    /// # Safety
    /// No row of them is looked at any more.
    #[inline]
    pub(crate) unsafe fn clear(&self) {
        if !self.0.borrow().is_empty() {
            let mut chunks = self.0.borrow_mut();
            let again = usize::from(chunks[0].size == CHUNK);
            chunks.truncate(again);
            if let Some(first) = chunks.first_mut() {
                first.used = 0;
            }
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::Participants;

    #[test]
    fn rows_stay_while_others_are_kept_and_go_with_the_guard() {
        let all = Participants::new(1);
        let participant = all.join().unwrap();
        for round in 0..3u8 {
            let guard = participant.pin_without_snapshot();
            let row = |number: usize| vec![number as u8 ^ round; if number == 700 { 3 * CHUNK } else { number % 211 }];
            let kept: Vec<Kept> = (0..1000).map(|number| guard.keep(&row(number))).collect();
            let rows: Vec<&[u8]> = kept.iter().map(|kept| guard.kept(*kept)).collect();
            // What is kept may be a row that is kept.
            let twice = guard.kept(guard.keep(rows[100]));
            assert!(rows.iter().enumerate().all(|(number, there)| **there == row(number)), "round {round}");
            assert_eq!((twice, rows[700].len()), (rows[100], 3 * CHUNK));
        }
        let guard = participant.pin_without_snapshot();
        assert_eq!(guard.kept(guard.keep(&[])), &[] as &[u8]);
    }

    #[test]
    #[should_panic(expected = "it was kept by this guard")]
    fn what_another_guard_has_kept_is_not_there() {
        let all = Participants::new(1);
        let participant = all.join().unwrap();
        let kept = participant.pin_without_snapshot().keep(&[1, 2, 3]);
        let guard = participant.pin_without_snapshot();
        let _ = guard.kept(kept);
    }
}
