//! A batch that has arrived: its blocks as they are entered into the window.
//!
//! Its form is decoded once, by the thread that receives it, since what is wrong with it must be
//! known before it is acknowledged. All that blocks have in common memory lies there one behind the
//! other.

use std::{ops::Range, sync::Arc};

use freshet_base::Lsn;
use freshet_cluster::inputs::{Demand, Reach};
use freshet_log::{Block, BlockHeader, BlockKind};
use freshet_replay::form::{self, Decoder, Form};
use freshet_txn::Entry;

use super::{
    entrance::{Entrance, Keys},
    pending::Closed,
};

enum Arrived {
    /// The block's bytes, which begin at this LSN.
    Bytes(Lsn, Arc<[u8]>),
    /// To be executed again: where its parts lie in the batch's memory.
    Inputs { header: BlockHeader, entries: Range<usize>, keys: Range<usize>, inputs: Range<usize> },
}

impl Arrived {
    fn at(&self) -> Lsn {
        match self {
            Self::Bytes(at, _) => *at,
            Self::Inputs { header, .. } => header.lsn,
        }
    }
}

/// Blocks that wait to be entered, one behind the other.
pub(super) struct Batch {
    pub from: Lsn,
    /// Where it ends. Blocks behind that were cut off.
    pub to: Lsn,
    /// What executing it takes of a restart.
    pub demand: Demand,
    reach: Reach,
    blocks: Vec<Arrived>,
    entries: Vec<Entry>,
    keys: Keys,
    inputs: Vec<u8>,
}

impl Batch {
    /// The blocks of `form`, whose first begins at `from`, up to `to`, where one must end. Those
    /// below `known` are passed over. Before it, tables were changed below `defined`; this node
    /// reads back as far as `reach` says. `members` is called with what each block of members
    /// records that is not.
    ///
    /// # Errors
    /// What is wrong with the form.
    pub fn decode(
        (from, to): (Lsn, Lsn),
        form: &[u8],
        known: Lsn,
        (defined, reach): (Lsn, &Reach),
        members: &mut dyn FnMut(&[u8]),
    ) -> Result<Self, String> {
        let mut decoder = Decoder::new(form, from);
        let (blocks, entries, keys, inputs) = (Vec::new(), Vec::new(), Keys::default(), Vec::new());
        let (demand, reach) = (Demand::behind(defined), *reach);
        let mut batch = Self { from, to, demand, reach, blocks, entries, keys, inputs };
        while decoder.at() < to {
            let at = decoder.at();
            let form = decoder.next_form().map_err(|error| error.to_string())?;
            let Some(form) = form else { return Err(format!("the form of the log up to {to} ends at {at}")) };
            let arrived = batch.arrived(at, form);
            let block = match &arrived {
                Arrived::Bytes(_, bytes) => Some(Block::parse(bytes, at).map_err(|error| error.to_string())?),
                Arrived::Inputs { .. } => None,
            };
            if at >= known {
                if let Some(block) = block.filter(|block| block.header().kind == BlockKind::Schema) {
                    batch.demand.defines(block.header().end());
                }
                block.and_then(|block| block.members()).into_iter().for_each(&mut *members);
                batch.blocks.push(arrived);
            }
        }
        match decoder.at() {
            end if end == to => Ok(batch),
            _ => Err(format!("no block ends at {to} in the form of the log")),
        }
    }

    /// How many blocks it has.
    pub fn blocks(&self) -> u64 {
        self.blocks.partition_point(|block| block.at() < self.to) as u64
    }

    fn arrived(&mut self, at: Lsn, form: Form<'_>) -> Arrived {
        match form {
            Form::Bytes(bytes) => Arrived::Bytes(at, bytes.into()),
            Form::Skip(header, head) => {
                let mut bytes = head.to_vec();
                bytes.resize(header.length as usize, 0);
                Arrived::Bytes(at, bytes.into())
            }
            Form::Inputs(block) => {
                let (entries, keys, inputs) = (self.entries.len(), self.keys.len(), self.inputs.len());
                let written = block.written.iter();
                self.entries.extend(written.map(|record| Entry {
                    fid: record.fid,
                    rid: record.rid,
                    kind: record.kind,
                    length: record.length,
                    prev: record.deletion,
                }));
                for key in block.keys() {
                    let record = block.written[key.record];
                    self.keys.push(record.fid, record.rid, key.index, key.key);
                }
                self.inputs.extend_from_slice(block.inputs);
                self.demand.executes(at, form::oldest_snapshot(block.inputs), &self.reach);
                Arrived::Inputs {
                    header: block.header,
                    entries: entries..self.entries.len(),
                    keys: keys..self.keys.len(),
                    inputs: inputs..self.inputs.len(),
                }
            }
        }
    }

    /// Enters its blocks from `known` on.
    pub fn enter(&self, entrance: &mut Entrance, known: Lsn) -> Result<(), Closed> {
        let blocks = self.blocks.iter().skip_while(|block| block.at() < known);
        for block in blocks.take_while(|block| block.at() < self.to) {
            match block {
                Arrived::Bytes(at, bytes) => {
                    let block = Block::parse(bytes, *at).expect("it was checked, or made here");
                    entrance.bytes(&block, Arc::clone(bytes))?;
                }
                Arrived::Inputs { header, entries, keys, inputs } => {
                    let entries = self.entries[entries.clone()].to_vec();
                    entrance.inputs(*header, entries, self.keys.some(keys.clone()), &self.inputs[inputs.clone()])?;
                }
            }
        }
        Ok(())
    }
}
