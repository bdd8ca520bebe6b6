//! Taking replay back: after a failover the log may be cut below what was replayed, though never
//! below what was visible.

use freshet_base::Lsn;
use freshet_log::{Block, BlockHeader, RecordHeader, block::BLOCK_HEADER};
use freshet_storage::Guard;

use crate::{Redo, Replay, ReplayError};

/// About how many bytes of log are undone at once.
const STRETCH: u64 = 4 << 20;

impl Replay {
    /// Undoes the replay of `[at, end)`, whose bytes must still be readable, before they are cut
    /// off. Readers never saw any of it: versions are made only below the read view, or are taken
    /// back here too, and tables that are dropped go only when the read view has passed that. Index
    /// entries stay behind as hints that lead nowhere.
    ///
    /// # Errors
    /// See [`ReplayError`].
    pub fn cut(&self, at: Lsn, end: Lsn) -> Result<(), ReplayError> {
        // Where stretches begin that are not too long to be kept in mind.
        let mut stretches = vec![at];
        let mut here = at;
        while here < end {
            let mut head = [0; BLOCK_HEADER];
            self.read(here, &mut head)?;
            let header = BlockHeader::peek(&head).map_err(|cause| ReplayError::Block { at: here, cause })?;
            here = here.plus(u64::from(header.length));
            if here.since(stretches[stretches.len() - 1]) >= STRETCH {
                stretches.push(here);
            }
        }
        let mut lead = self.lead();
        let (participant, redo) = lead.parts();
        let guard = participant.pin_without_snapshot();
        // Newest first, so that each announcement leads to the one before it.
        let mut upto = end;
        for from in stretches.into_iter().rev() {
            self.cut_stretch(&guard, redo, from, upto)?;
            upto = from;
        }
        self.catalog.cut(&guard, at);
        self.drop_deleted(at);
        self.proof().cut(at);
        Ok(())
    }

    fn read(&self, at: Lsn, into: &mut [u8]) -> Result<(), ReplayError> {
        self.log.read(at, into).map_err(|cause| ReplayError::Read { at, cause: cause.to_string() })
    }

    fn cut_stretch(&self, guard: &Guard<'_>, redo: &mut dyn Redo, at: Lsn, end: Lsn) -> Result<(), ReplayError> {
        let mut records: Vec<(RecordHeader, Lsn)> = Vec::new();
        let mut bytes = vec![0; end.since(at) as usize];
        self.read(at, &mut bytes)?;
        let mut here = at;
        while here < end {
            let block = Block::parse(&bytes[here.since(at) as usize..], here);
            let block = block.map_err(|cause| ReplayError::Block { at: here, cause })?;
            records.extend(block.records().map(|record| (record.header, record.address)));
            here = block.end();
        }
        for (header, address) in records.into_iter().rev() {
            if let Some(content) = self.catalog.get(guard, header.fid).and_then(|table| table.content(guard)) {
                content.replay_cut(header.rid, header.kind, address, header.prev);
                redo.cut(guard, content, &header, address);
            }
        }
        Ok(())
    }
}
