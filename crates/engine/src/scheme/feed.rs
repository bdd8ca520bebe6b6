//! The feed of a standby that asks for inputs: batches of the log in the inputs form
//! ([`freshet_replay::form`]).

use std::sync::{Arc, Mutex, PoisonError};

use freshet_base::Stamp;
use freshet_log::{Block, block::BLOCK_HEADER};
use freshet_replay::form::{CatalogKeys, Encoded, Encoder};
use freshet_replication::forms::{Encode, Forms};
use freshet_storage::Participant;
use freshet_txn::Core;

/// A batch without any inputs goes as bytes if it is at least this long.
const BULK: usize = 64 << 10;

/// Encodes for standbys, and has inputs recorded as long as one asks for them.
pub(crate) struct InputsFeed {
    core: Arc<Core>,
    /// Inputs are recorded in any case.
    always: bool,
    /// How many encoders there are.
    asking: Arc<Mutex<usize>>,
}

impl InputsFeed {
    /// Of a node whose transactions are `core`'s.
    pub fn new(core: &Arc<Core>, always: bool) -> Self {
        Self { core: Arc::clone(core), always, asking: Arc::default() }
    }
}

impl Forms for InputsFeed {
    fn encoder(&self) -> Box<dyn Encode> {
        let mut asking = self.asking.lock().unwrap_or_else(PoisonError::into_inner);
        *asking += 1;
        self.core.set_records_inputs(true);
        drop(asking);
        Box::new(InputsEncoder {
            core: Arc::clone(&self.core),
            participant: None,
            encoder: Encoder::new(),
            always: self.always,
            asking: Arc::clone(&self.asking),
        })
    }
}

/// Encodes for one standby.
struct InputsEncoder {
    core: Arc<Core>,
    /// Made when it is needed.
    participant: Option<Participant>,
    encoder: Encoder,
    always: bool,
    asking: Arc<Mutex<usize>>,
}

impl Drop for InputsEncoder {
    fn drop(&mut self) {
        let mut asking = self.asking.lock().unwrap_or_else(PoisonError::into_inner);
        *asking -= 1;
        if *asking == 0 && !self.always {
            self.core.set_records_inputs(false);
        }
    }
}

impl Encode for InputsEncoder {
    fn encode(&mut self, from: Stamp, blocks: &[u8], into: &mut Vec<u8>) -> bool {
        if self.participant.is_none() {
            // All places may be taken: then bytes will do.
            self.participant = self.core.participants.join().ok();
        }
        let Some(participant) = &self.participant else { return false };
        let guard = participant.pin_without_snapshot();
        let mut keys = CatalogKeys::new(&self.core.catalog, &guard);
        let (mut at, mut any) = (from, false);
        self.encoder.batch();
        let mut rest = blocks;
        while rest.len() >= BLOCK_HEADER {
            // The node that receives damaged bytes says so.
            let Ok(block) = Block::parse(rest, at) else { return false };
            any |= self.encoder.block(&block, &mut keys, into) == Encoded::Inputs;
            rest = &rest[block.bytes().len()..];
            at = block.end();
        }
        rest.is_empty() && (any || blocks.len() < BULK)
    }
}
