//! Finding where blocks end by hopping from header to header.

use freshet_base::Lsn;
use freshet_log::{BlockError, BlockHeader, block::BLOCK_HEADER};

/// What lies at the beginning of some bytes of the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hops {
    /// Whole blocks end here, as a distance from the first byte.
    pub whole: usize,
    /// The length of the block that does not fit, if its header is there.
    pub next: Option<usize>,
    /// Ends of blocks that cross a multiple of the partition size, as distances; the last is
    /// `whole` unless that is zero.
    pub ends: Vec<u32>,
}

/// The bytes are no blocks of this log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no block begins at {at} of the log: {source}; the log on this node is damaged")]
pub struct NotABlock {
    at: Lsn,
    source: BlockError,
}

/// Hops through `bytes`, which begin with a block at `at`.
pub fn hop(bytes: &[u8], at: Lsn, partition: u64) -> Result<Hops, NotABlock> {
    let mut hops = Hops { whole: 0, next: None, ends: Vec::new() };
    while let Some(rest) = bytes.get(hops.whole..).filter(|rest| rest.len() >= BLOCK_HEADER) {
        let here = at.plus(hops.whole as u64);
        let header = BlockHeader::peek(rest).map_err(|source| NotABlock { at: here, source })?;
        if header.lsn != here {
            return Err(NotABlock { at: here, source: BlockError::Lsn { found: header.lsn, at: here } });
        }
        let length = header.length as usize;
        if length > bytes.len() - hops.whole {
            hops.next = Some(length);
            break;
        }
        hops.whole += length;
        let end = at.plus(hops.whole as u64);
        if here.0 / partition != end.0 / partition {
            hops.ends.push(hops.whole as u32);
        }
    }
    if hops.whole > 0 && hops.ends.last() != Some(&(hops.whole as u32)) {
        hops.ends.push(hops.whole as u32);
    }
    Ok(hops)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::blocks;

    #[test]
    fn whole_blocks_and_partition_ends_are_found() {
        let (bytes, ends) = blocks(Lsn(1000), &[64, 72, 400, 80]);
        assert_eq!(ends.last(), Some(&Lsn(1616)));
        let hops = hop(&bytes, Lsn(1000), 512).unwrap();
        assert_eq!(hops, Hops { whole: 616, next: None, ends: vec![64, 536, 616] });
        let hops = hop(&bytes[..500], Lsn(1000), 512).unwrap();
        assert_eq!(hops, Hops { whole: 136, next: Some(400), ends: vec![64, 136] });
        assert_eq!(hop(&bytes[..20], Lsn(1000), 512).unwrap().whole, 0);
        assert!(hop(&bytes, Lsn(1008), 512).is_err());
        assert!(hop(&[0; 64], Lsn(0), 512).is_err());
    }
}
