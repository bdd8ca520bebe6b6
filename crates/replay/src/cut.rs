//! Taking replay back: after a take-over the log may be cut below what was replayed, though never below what
//! was visible.

use freshet_base::{Fid, Rid, Stamp};
use freshet_log::{Block, BlockHeader, block::BLOCK_HEADER};

use crate::{Replay, ReplayError};

impl Replay {
    /// Undoes the replay of `[at, end)`, whose bytes must still be readable, before they are cut
    /// off. Readers never saw any of it: versions are made only below the read view. Index entries stay behind as
    /// hints that lead nowhere.
    ///
    /// # Errors
    /// See [`ReplayError`].
    pub fn cut(&self, at: Stamp, end: Stamp) -> Result<(), ReplayError> {
        let mut records: Vec<(Fid, Rid, Stamp, Option<Stamp>)> = Vec::new();
        let mut here = at;
        let mut bytes = Vec::new();
        while here < end {
            let read = |at, bytes: &mut [u8]| self.log.read(at, bytes).map_err(|cause| ReplayError::Read { at, cause });
            let wrong = |cause| ReplayError::Block { at: here, cause };
            let mut head = [0; BLOCK_HEADER];
            read(here, &mut head)?;
            let header = BlockHeader::peek(&head).map_err(wrong)?;
            bytes.resize(header.length as usize, 0);
            read(here, &mut bytes)?;
            let block = Block::parse(&bytes, here).map_err(wrong)?;
            records.extend(
                block
                    .records()
                    .map(|record| (record.header.fid, record.header.rid, record.address, record.header.prev)),
            );
            here = block.end();
        }
        // Newest first, so that each announcement leads to the one before it.
        for (fid, rid, address, prev) in records.into_iter().rev() {
            if let Some(table) = self.catalog.get(fid) {
                table.replay_cut(rid, address, prev);
            }
        }
        self.drop_deleted(at);
        Ok(())
    }
}
