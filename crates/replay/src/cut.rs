//! Taking replay back: after a take-over the log may be cut below what was replayed, though never below what
//! was visible. And the remains of deleted records at restart.

use freshet_base::{Fid, RecordKind, Rid, Stamp};
use freshet_log::{
    Block, BlockHeader, RecordHeader,
    block::{BLOCK_HEADER, RECORD_HEADER},
};
use freshet_storage::Guard;

use crate::{Deleted, LogBytes, Replay, ReplayError};

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

    /// At restart, when everything up to some point is replayed: takes the index entries of records away
    /// that were deleted there, unless a later record of the same id needs them.
    pub(crate) fn forget_restored(&self, guard: &Guard<'_>, dead: &[(Deleted, Vec<u8>)]) -> Result<(), ReplayError> {
        let mut newer = Vec::new();
        for (Deleted { fid, rid, tombstone }, row) in dead {
            let table = self.catalog.get(*fid).expect("its records were replayed");
            let Some(newest) = table.restored(*rid) else { continue };
            let newest_kind =
                if newest == *tombstone { RecordKind::Delete } else { self.load(newest, *fid, *rid, &mut newer)? };
            let newest_row = (newest_kind != RecordKind::Delete).then_some(newer.as_slice());
            table.forget_restored(guard, *rid, row, newest_row);
        }
        Ok(())
    }

    /// Reads one record of a checked block.
    fn load(&self, address: Stamp, fid: Fid, rid: Rid, row: &mut Vec<u8>) -> Result<RecordKind, ReplayError> {
        let header = load_record(&*self.log, address, row).map_err(|cause| ReplayError::Read { at: address, cause })?;
        if header.fid != fid || header.rid != rid {
            return Err(ReplayError::Foreign { at: address, fid, rid });
        }
        Ok(header.kind)
    }
}

/// Reads the record whose header is at `address`, its row into `row`. Its block was checked before.
fn load_record(log: &dyn LogBytes, address: Stamp, row: &mut Vec<u8>) -> Result<RecordHeader, String> {
    let mut head = [0; RECORD_HEADER];
    log.read(address, &mut head)?;
    let header = RecordHeader::decode(&head).map_err(|cause| cause.to_string())?;
    row.clear();
    row.resize(header.length as usize, 0);
    log.read(address.plus(RECORD_HEADER as u64), row)?;
    Ok(header)
}
