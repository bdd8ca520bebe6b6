//! Lists of writes that are posted into another node's memory (Active-Memory, section 4.5.1).

use std::collections::VecDeque;

use freshet_base::words;
use freshet_fabric::{Place, memory::Region};

use crate::dice::Dice;

/// Bytes of a cache line.
const LINE: u64 = 64;

/// What one node has posted to another, and has not landed. Writes land in their order; of the next
/// one any cache lines may have, when the writer or the memory is taken away.
pub(crate) struct Posted {
    /// The memory as the writer has it. Its owner may have moved to another one.
    memory: Vec<Region>,
    under_way: VecDeque<Write>,
    posted: u64,
}

struct Write {
    to: Place,
    bytes: Vec<u8>,
    /// The list whose last one it is.
    ends: Option<u64>,
}

impl Posted {
    pub fn new(memory: Vec<Region>) -> Self {
        Self { memory, under_way: VecDeque::new(), posted: 0 }
    }

    /// The other side has registered more memory.
    pub fn attach(&mut self, region: Region) {
        self.memory.push(region);
    }

    /// Posts a list that is not empty; returns its token.
    pub fn post<'l>(&mut self, list: impl Iterator<Item = (Place, &'l [u8])>) -> u64 {
        self.under_way.extend(list.map(|(to, bytes)| Write { to, bytes: bytes.to_vec(), ends: None }));
        self.posted += 1;
        if let Some(last) = self.under_way.back_mut() {
            last.ends = Some(self.posted);
        }
        self.posted
    }

    /// The next write lands. None if nothing is under way; else the list that is complete with it,
    /// if one is.
    pub fn land(&mut self) -> Option<Option<u64>> {
        let write = self.under_way.pop_front()?;
        words::store_among(self.memory[write.to.region].words(), write.to.offset as usize, &write.bytes);
        Some(write.ends)
    }

    /// Nothing, into no memory.
    pub fn none() -> Self {
        Self::new(Vec::new())
    }

    pub fn is_empty(&self) -> bool {
        self.under_way.is_empty()
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

    /// The connection ends: some more of the writes land, and then nothing ever.
    pub fn end(&mut self, dice: &mut Dice) {
        for _ in 0..dice.below(self.under_way.len() as u64 + 1) {
            self.land();
        }
        self.tear(dice);
        self.under_way.clear();
    }
}
