//! Lists of writes that are posted into another node's memory (Active-Memory, section 4.5.1).

use std::collections::VecDeque;

use freshet_base::words;
use freshet_fabric::{Place, memory::Region};

use crate::{dice::Dice, log::Block};

/// Bytes of a cache line.
const LINE: u64 = 64;

/// What one node has posted to another, and has not landed. Writes land in their order; of the next
/// one any cache lines may have, when the writer or the memory is taken away.
pub(crate) struct Posted {
    /// The memory as the writer has it. Its owner may have moved to another one.
    memory: Vec<Region>,
    under_way: VecDeque<Write>,
    posted: u64,
    /// The memory's owner has taken it back.
    pub revoked: bool,
    /// It lands more slowly than others.
    pub slow: bool,
    /// The next part lands soon.
    pub landing: bool,
    /// Nothing lands any more.
    pub over: bool,
}

struct Write {
    to: Place,
    bytes: Vec<u8>,
    /// The list whose last one it is, and what of the log has landed with it.
    ends: Option<(u64, Vec<Block>)>,
}

impl Posted {
    pub fn new(memory: Vec<Region>) -> Self {
        let under_way = VecDeque::new();
        Self { memory, under_way, posted: 0, revoked: false, slow: false, landing: false, over: false }
    }

    /// The other side has registered more memory.
    pub fn attach(&mut self, region: Region) {
        self.memory.push(region);
    }

    /// Posts a list that is not empty, by which the mirror gets these blocks; returns its token.
    pub fn post(&mut self, list: impl Iterator<Item = (Place, impl Into<Vec<u8>>)>, blocks: Vec<Block>) -> u64 {
        self.posted += 1;
        if !self.over {
            self.under_way.extend(list.map(|(to, bytes)| Write { to, bytes: bytes.into(), ends: None }));
            if let Some(last) = self.under_way.back_mut() {
                last.ends = Some((self.posted, blocks));
            }
        }
        self.posted
    }

    /// The next write lands. None if nothing is under way; else the list that is complete with it,
    /// if one is, and the blocks that it brings.
    pub fn land(&mut self) -> Option<Option<(u64, Vec<Block>)>> {
        if self.over {
            return None;
        }
        let write = self.under_way.pop_front()?;
        words::store_among(self.memory[write.to.region].words(), write.to.offset as usize, &write.bytes);
        Some(write.ends)
    }

    pub fn is_empty(&self) -> bool {
        self.over || self.under_way.is_empty()
    }

    /// What of the log has not landed wholly.
    pub fn left(&self) -> Vec<Block> {
        let ends = self.under_way.iter().filter_map(|write| write.ends.as_ref());
        ends.flat_map(|(_, blocks)| blocks.iter().cloned()).collect()
    }

    /// Of the next write some cache lines land, in any order; it may land wholly later.
    pub fn tear(&self, dice: &mut Dice) {
        let Some(write) = self.under_way.front() else { return };
        let (lines, mut at, mut bytes) = (dice.draw(), write.to.offset, &write.bytes[..]);
        while !bytes.is_empty() {
            let (line, rest) = bytes.split_at(bytes.len().min((LINE - at % LINE) as usize));
            if lines >> (at / LINE % 64) & 1 == 1 {
                words::store_among(self.memory[write.to.region].words(), at as usize, line);
            }
            (at, bytes) = (at + line.len() as u64, rest);
        }
    }

    /// The connection ends: some more of the writes land, and then nothing ever. Returns what of
    /// the log has landed wholly with that.
    pub fn end(&mut self, dice: &mut Dice) -> Vec<Block> {
        let mut landed = Vec::new();
        for _ in 0..dice.below(self.under_way.len() as u64 + 1) {
            landed.extend(self.land().flatten().into_iter().flat_map(|(_, blocks)| blocks));
        }
        self.tear(dice);
        self.over = true;
        landed
    }
}
