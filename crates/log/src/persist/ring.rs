//! A ring of the log in persistent memory: what a standby does with it, and what a restart finds in
//! it. The same code runs on mapped memory and on the model that loses lines.
//!
//! A cut erases in the ring what it takes back, lowers what the ring says of the segments, and cuts
//! these last. A restart takes no block whose term is not that of its place in the history: a
//! deposed primary may have left it there.

use freshet_base::{Lsn, Term};

use super::Lines;
use crate::block::{BLOCK_HEADER, Block, BlockHeader};

/// Where a ring is: `capacity` bytes (a power of two) from byte `base` on. Virtual byte `x` lies at
/// `base + x mod capacity`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ring {
    pub(crate) base: usize,
    pub(crate) capacity: u64,
}

const ZEROS: [u8; 4096] = [0; 4096];

impl Ring {
    /// The one or two pieces (offset and length) in which `[from, to)` lies, which is not longer
    /// than the ring.
    fn pieces(&self, from: Lsn, to: Lsn) -> [(usize, usize); 2] {
        let (place, length) = (from.0 % self.capacity, to.since(from));
        let first = length.min(self.capacity - place);
        [(self.base + place as usize, first as usize), (self.base, (length - first) as usize)]
    }

    /// Makes durable what somebody has stored in `[from, to)`, who is done: flushes each line and
    /// waits for that (Query Fresh, sections 2.3 and 3.1).
    pub(crate) fn persist_received(&self, lines: &impl Lines, from: Lsn, to: Lsn) {
        for (at, length) in self.pieces(from, to) {
            if length > 0 {
                lines.flush_received(at, length);
            }
        }
        lines.fence();
    }

    /// Makes `[from, to)` zero, durably, from the beginning on: a crash in between leaves at most a
    /// beginning of what was there.
    pub(crate) fn erase(&self, lines: &impl Lines, from: Lsn, to: Lsn) {
        let from = Lsn(from.0.max(to.0.saturating_sub(self.capacity)));
        let head = Lsn(to.0.min(from.0 + BLOCK_HEADER as u64));
        self.zero(lines, from, head);
        self.zero(lines, head, to);
    }

    fn zero(&self, lines: &impl Lines, from: Lsn, to: Lsn) {
        for (at, length) in self.pieces(from, to) {
            for piece in (0..length).step_by(ZEROS.len()) {
                lines.store(at + piece, &ZEROS[..ZEROS.len().min(length - piece)]);
            }
            if length > 0 {
                lines.flush(at, length);
            }
        }
        lines.fence();
    }
}

/// The blocks that a ring with these bytes holds from `from` on, one behind the other, below
/// `until`: as far as whole transactions go. `terms` are the terms and where they began, if that is
/// known: a block of a term that does not lead at its place was left over by a primary that was
/// deposed, and is no part of this log.
pub(crate) fn chain(ring: &[u8], from: Lsn, until: Lsn, terms: &[(Term, Lsn)]) -> Vec<u8> {
    let capacity = ring.len() as u64;
    let (mut rest, mut whole, mut at) = (Vec::new(), 0, from);
    while at < until {
        let place = (at.0 % capacity) as usize;
        let left = until.since(at) as usize;
        let bytes = |length: usize| -> Vec<u8> { ring[place..].iter().chain(ring).take(length).copied().collect() };
        let Ok(header) = BlockHeader::peek(&bytes(left.min(BLOCK_HEADER))) else { break };
        let leading = terms.iter().rev().find(|(_, start)| *start <= at);
        if header.length as usize > left || leading.is_some_and(|(term, _)| *term != header.term) {
            break;
        }
        let bytes = bytes(header.length as usize);
        let Ok(block) = Block::parse(&bytes, at) else { break };
        rest.extend_from_slice(block.bytes());
        at = block.end();
        if !header.continued {
            whole = rest.len();
        }
    }
    rest.truncate(whole);
    rest
}
