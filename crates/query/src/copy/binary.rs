//! PostgreSQL's binary format: a header, rows of fields with their lengths, a trailer.

use freshet_sql::SqlError;

use super::{Decoder, Fields, LONGEST_ROW, bad_format};

/// How it begins.
const SIGNATURE: &[u8; 11] = b"PGCOPY\n\xff\r\n\0";

/// Reads it.
#[derive(Debug, Default)]
pub struct BinaryDecoder {
    buffer: Vec<u8>,
    started: bool,
    ended: bool,
    fields: Fields,
}

/// The header.
pub fn header(out: &mut Vec<u8>) {
    out.extend_from_slice(SIGNATURE);
    out.extend([0; 8]);
}

/// The trailer.
pub fn trailer(out: &mut Vec<u8>) {
    out.extend((-1_i16).to_be_bytes());
}

fn number(bytes: &[u8], at: usize) -> Option<i32> {
    bytes.get(at..at + 4)?.try_into().ok().map(i32::from_be_bytes)
}

impl BinaryDecoder {
    /// Takes a row off the buffer's front, from `at` on: where it ends, if it is there.
    fn row(&mut self, mut at: usize) -> Result<Option<usize>, SqlError> {
        let Some(count) = self.buffer.get(at..at + 2) else { return Ok(None) };
        let count = i16::from_be_bytes([count[0], count[1]]);
        at += 2;
        if count == -1 {
            self.ended = true;
            return Ok(Some(at));
        }
        self.fields.clear();
        for _ in 0..count.max(0) {
            let Some(length) = number(&self.buffer, at) else { return Ok(None) };
            at += 4;
            match usize::try_from(length) {
                Err(_) if length == -1 => self.fields.push(true, false),
                Err(_) => return Err(bad_format("invalid field size")),
                Ok(length) if length > LONGEST_ROW => return Err(bad_format("invalid field size")),
                Ok(length) => {
                    let Some(bytes) = self.buffer.get(at..at + length) else { return Ok(None) };
                    self.fields.bytes.extend_from_slice(bytes);
                    self.fields.push(false, false);
                    at += length;
                }
            }
        }
        Ok(Some(at))
    }
}

impl Decoder for BinaryDecoder {
    fn feed(&mut self, bytes: &[u8], row: &mut dyn FnMut(&Fields) -> Result<(), SqlError>) -> Result<(), SqlError> {
        if self.ended {
            return Err(bad_format("received copy data after EOF marker"));
        }
        self.buffer.extend_from_slice(bytes);
        let mut at = 0;
        if !self.started {
            let Some(extension) = number(&self.buffer, SIGNATURE.len() + 4) else {
                let known = self.buffer.len().min(SIGNATURE.len());
                if self.buffer[..known] != SIGNATURE[..known] {
                    return Err(bad_format("COPY file signature not recognized"));
                }
                return Ok(());
            };
            if !self.buffer.starts_with(SIGNATURE) {
                return Err(bad_format("COPY file signature not recognized"));
            }
            let extension = usize::try_from(extension).ok().filter(|length| *length <= LONGEST_ROW);
            let extension = extension.ok_or_else(|| bad_format("invalid COPY file header (missing length)"))?;
            let header = SIGNATURE.len() + 8 + extension;
            if self.buffer.len() < header {
                return Ok(());
            }
            self.started = true;
            at = header;
        }
        while let Some(end) = self.row(at)? {
            at = end;
            if self.ended {
                break;
            }
            row(&self.fields)?;
        }
        self.buffer.drain(..at);
        if self.buffer.len() > LONGEST_ROW {
            return Err(bad_format(format!("a row is longer than {LONGEST_ROW} bytes")));
        }
        Ok(())
    }

    fn finish(&mut self, _: &mut dyn FnMut(&Fields) -> Result<(), SqlError>) -> Result<(), SqlError> {
        match (self.ended, self.started) {
            (true, _) => Ok(()),
            (false, false) => Err(bad_format("COPY file signature not recognized")),
            (false, true) => Err(bad_format("unexpected EOF in COPY data")),
        }
    }
}
