//! The frame: what travels on a connection.
//!
//! ```text
//! offset  bytes  little endian
//!      0      4  magic, "FRSH"
//!      4      1  format of this header, 1
//!      5      1  kind: the protocol's business
//!      6      2  zero
//!      8      4  term of the sender
//!     12      4  length of the immediate value
//!     16      4  length of the payload
//!     20      4  CRC-32C of the payload
//!     24      8  address: where in the receiver's region the payload belongs
//!     32      4  CRC-32C of the immediate value
//!     36      4  CRC-32C of bytes 0..36
//!     40         the immediate value, then the payload
//! ```

use freshet_base::{
    Term,
    versions::{OtherVersion, Versions},
};

/// The length of a frame's header, in bytes.
pub const HEADER: usize = 40;
/// No immediate value is longer, in bytes.
pub const MAX_IMMEDIATE: usize = 1 << 20;

const MAGIC: [u8; 4] = *b"FRSH";
const FORMAT: u8 = 1;
const READS: Versions = Versions::only(FORMAT as u32);

/// A frame's header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// What kind of frame this is; the protocol's business.
    pub kind: u8,
    /// The sender's term.
    pub term: Term,
    /// Where in the receiver's region the payload belongs.
    pub address: u64,
    /// Length of the immediate value, in bytes.
    pub immediate: u32,
    /// Length of the payload, in bytes.
    pub payload: u32,
    /// CRC-32C of the payload.
    pub payload_crc: u32,
    /// CRC-32C of the immediate value.
    pub immediate_crc: u32,
}

/// Why bytes are not a frame's header.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HeaderError {
    /// Somebody else's protocol.
    #[error("this is not a Freshet node: a frame begins with {found:02x?}")]
    Magic {
        /// The first four bytes.
        found: [u8; 4],
    },
    /// Another version of the frame.
    #[error("the other side uses frame {0}")]
    Format(OtherVersion),
    /// Damaged on the way.
    #[error("a frame's header was damaged in transit: its checksum is {found:08x} instead of {expected:08x}")]
    Damaged {
        /// What the header says.
        found: u32,
        /// What its bytes give.
        expected: u32,
    },
    /// Larger than is sensible.
    #[error("a frame announces an immediate value of {length} bytes; at most {MAX_IMMEDIATE} are allowed")]
    Immediate {
        /// As announced.
        length: u32,
    },
}

impl Header {
    /// The header as bytes.
    pub fn encode(&self) -> [u8; HEADER] {
        let mut bytes = [0; HEADER];
        bytes[0..4].copy_from_slice(&MAGIC);
        bytes[4] = FORMAT;
        bytes[5] = self.kind;
        bytes[8..12].copy_from_slice(&self.term.0.to_le_bytes());
        bytes[12..16].copy_from_slice(&self.immediate.to_le_bytes());
        bytes[16..20].copy_from_slice(&self.payload.to_le_bytes());
        bytes[20..24].copy_from_slice(&self.payload_crc.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.address.to_le_bytes());
        bytes[32..36].copy_from_slice(&self.immediate_crc.to_le_bytes());
        let crc = crc32c::crc32c(&bytes[..36]);
        bytes[36..40].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    /// Takes bytes for a header.
    ///
    /// # Errors
    /// [`HeaderError`] when they are none of ours; never panics.
    pub fn decode(bytes: &[u8; HEADER]) -> Result<Self, HeaderError> {
        let word = |at: usize| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        if bytes[0..4] != MAGIC {
            return Err(HeaderError::Magic { found: [bytes[0], bytes[1], bytes[2], bytes[3]] });
        }
        READS.check(bytes[4].into()).map_err(HeaderError::Format)?;
        let (found, expected) = (word(36), crc32c::crc32c(&bytes[..36]));
        if found != expected {
            return Err(HeaderError::Damaged { found, expected });
        }
        let length = word(12);
        if length as usize > MAX_IMMEDIATE {
            return Err(HeaderError::Immediate { length });
        }
        Ok(Self {
            kind: bytes[5],
            term: Term(word(8)),
            address: u64::from(word(24)) | u64::from(word(28)) << 32,
            immediate: length,
            payload: word(16),
            payload_crc: word(20),
            immediate_crc: word(32),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: Header = Header {
        kind: 7,
        term: Term(3),
        address: 0x0123_4567_89AB_CDEF,
        immediate: 12,
        payload: 99,
        payload_crc: 5,
        immediate_crc: 6,
    };

    #[test]
    fn a_header_comes_back_as_it_was() {
        assert_eq!(Header::decode(&HEAD.encode()), Ok(HEAD));
    }

    #[test]
    fn every_flipped_bit_is_noticed() {
        for bit in 0..HEADER * 8 {
            let mut bytes = HEAD.encode();
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert!(Header::decode(&bytes).is_err(), "bit {bit}");
        }
    }

    #[test]
    fn an_absurd_length_is_refused_before_anything_is_allocated() {
        let bytes = Header { immediate: u32::MAX, ..HEAD }.encode();
        assert_eq!(Header::decode(&bytes), Err(HeaderError::Immediate { length: u32::MAX }));
    }
}
