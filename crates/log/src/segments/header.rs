//! The first 4096 bytes of a segment, and of a saved tail.
//!
//! | bytes | |
//! |---|---|
//! | 0..8   | `FRESHLOG` |
//! | 8..12  | format version |
//! | 12..16 | kind of file: 1 segment, 2 saved tail |
//! | 16..32 | cluster id |
//! | 32..40 | how many bytes of the log the file has room for |
//! | 40..48 | LSN of the first of them |
//! | 48..52 | CRC-32C of bytes 0..48 |
//! | 52..60 | LSN where the log begins, if that is within this segment and not its first byte |
//! | 60..64 | CRC-32C of bytes 48..60, then |
//! | 64..72 | incarnation of the log that the segment is of; 0 if that has none |
//! | 72..76 | CRC-32C of bytes 64..72, if that is not 0 |
//! | 76..84 | zero; in the `next-release`, the format level, and CRC-32C of that |
//!
//! The rest is zero. Virtual byte `x` lies at offset `4096 + (x - start)`.

use freshet_base::{
    ClusterId, Lsn,
    versions::{Level, OtherVersion, Versions},
};

/// Those before 5 have blocks with in-sync sets in other words, which a restore passes over.
pub(crate) const READS: Versions = Versions::new(1, 5);
/// Length of the header in bytes.
pub(crate) const SEGMENT_HEADER: u64 = 4096;
const MAGIC: [u8; 8] = *b"FRESHLOG";
const COVERED: usize = 48;
const BEGIN: usize = COVERED + 4;
/// How many bytes of the header carry something.
pub(crate) const USED: usize = 84;
const LIFE: usize = 64;
const NEXT: usize = 76;

/// What a file holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FileKind {
    Segment,
    SavedTail,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FileHeader {
    pub(crate) kind: FileKind,
    pub(crate) cluster: ClusterId,
    pub(crate) size: u64,
    pub(crate) start: Lsn,
    /// Where the log begins in it: bytes below were never written.
    pub(crate) begin: Lsn,
    /// The log's incarnation; 0 if it has none.
    pub(crate) life: u64,
}

/// Why a header is refused.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum HeaderError {
    Format(OtherVersion),
    Other(&'static str),
}

impl FileHeader {
    pub(crate) fn encode(&self) -> [u8; USED] {
        let mut bytes = [0; USED];
        bytes[0..8].copy_from_slice(&MAGIC);
        let format = READS.writes();
        bytes[8..12].copy_from_slice(&format.to_le_bytes());
        let kind: u32 = match self.kind {
            FileKind::Segment => 1,
            FileKind::SavedTail => 2,
        };
        bytes[12..16].copy_from_slice(&kind.to_le_bytes());
        bytes[16..32].copy_from_slice(&self.cluster.0.to_le_bytes());
        bytes[32..40].copy_from_slice(&self.size.to_le_bytes());
        bytes[40..48].copy_from_slice(&self.start.0.to_le_bytes());
        let crc = crc32c::crc32c(&bytes[..COVERED]);
        bytes[COVERED..BEGIN].copy_from_slice(&crc.to_le_bytes());
        if self.begin > self.start {
            bytes[BEGIN..60].copy_from_slice(&self.begin.0.to_le_bytes());
            let crc = crc32c::crc32c(&bytes[COVERED..60]);
            bytes[60..LIFE].copy_from_slice(&crc.to_le_bytes());
        }
        if self.life != 0 {
            bytes[LIFE..72].copy_from_slice(&self.life.to_le_bytes());
            let crc = crc32c::crc32c(&bytes[LIFE..72]);
            bytes[72..NEXT].copy_from_slice(&crc.to_le_bytes());
        }
        if READS.is_next(format) {
            bytes[NEXT..80].copy_from_slice(&Level::NEWEST.0.to_le_bytes());
            let crc = crc32c::crc32c(&bytes[NEXT..80]);
            bytes[80..].copy_from_slice(&crc.to_le_bytes());
        }
        bytes
    }

    pub(crate) fn decode(bytes: &[u8; USED]) -> Result<Self, HeaderError> {
        let part = |from: usize| -> [u8; 8] { std::array::from_fn(|i| bytes[from + i]) };
        let word = |from: usize| u32::from_le_bytes(std::array::from_fn(|i| bytes[from + i]));
        if part(0) != MAGIC {
            return Err(HeaderError::Other("it does not begin as a Freshet log does"));
        }
        // Before the checksum: another version may compute another one.
        READS.check(word(8)).map_err(HeaderError::Format)?;
        if word(COVERED) != crc32c::crc32c(&bytes[..COVERED]) {
            return Err(HeaderError::Other("its header's checksum does not hold"));
        }
        let (start, size) = (Lsn(u64::from_le_bytes(part(40))), u64::from_le_bytes(part(32)));
        let begin = match bytes[BEGIN..LIFE].iter().all(|byte| *byte == 0) {
            true => start,
            false => Lsn(u64::from_le_bytes(part(BEGIN))),
        };
        let is_within = begin >= start && begin.since(start) < size;
        if begin != start && (!is_within || word(60) != crc32c::crc32c(&bytes[COVERED..60])) {
            return Err(HeaderError::Other("its header says something impossible of where the log begins"));
        }
        let life = u64::from_le_bytes(part(LIFE));
        if bytes[LIFE..NEXT].iter().any(|byte| *byte != 0) && word(72) != crc32c::crc32c(&bytes[LIFE..72]) {
            return Err(HeaderError::Other("its header says something impossible of whose life it is"));
        }
        let next = if READS.is_next(word(8)) { [Level::NEWEST.0, crc32c::crc32c(&bytes[NEXT..80])] } else { [0; 2] };
        if [word(NEXT), word(80)] != next {
            return Err(HeaderError::Other("its header has something that its format does not"));
        }
        let kind = match word(12) {
            1 => FileKind::Segment,
            2 => FileKind::SavedTail,
            _ => return Err(HeaderError::Other("its header names an unknown kind of file")),
        };
        Ok(Self {
            kind,
            cluster: ClusterId(u128::from_le_bytes(std::array::from_fn(|i| bytes[16 + i]))),
            size,
            start,
            begin,
            life,
        })
    }
}
