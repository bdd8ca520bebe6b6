//! PostgreSQL's binary format: a header, rows of fields with their lengths, a trailer.

use freshet_sql::{SqlError, work};

use super::{Decoder, Fields, LONGEST_ROW, bad_format};

/// The bytes with which a binary COPY begins.
const SIGNATURE: &[u8; 11] = b"PGCOPY\n\xff\r\n\0";

/// Decodes the data of a binary COPY, cut anywhere.
#[derive(Debug, Default)]
pub struct BinaryDecoder {
    buffer: Vec<u8>,
    started: bool,
    ended: bool,
    /// How many fields each row has.
    columns: usize,
    fields: Fields,
}

/// Writes the header of a binary COPY.
pub fn header(out: &mut Vec<u8>) {
    out.extend_from_slice(SIGNATURE);
    out.extend([0; 8]);
}

/// Writes the trailer of a binary COPY.
pub fn trailer(out: &mut Vec<u8>) {
    out.extend((-1_i16).to_be_bytes());
}

fn number(bytes: &[u8], at: usize) -> Option<i32> {
    bytes.get(at..at + 4)?.try_into().ok().map(i32::from_be_bytes)
}

/// Flags of the header that change what the rows are; the first says that they have object ids.
const CRITICAL: i32 = 0xffff_0000_u32 as i32;
const WITH_OIDS: i32 = 1 << 16;

impl BinaryDecoder {
    /// A decoder of rows with this many fields.
    pub fn new(columns: usize) -> Self {
        Self { columns, ..Self::default() }
    }

    /// Takes a row off the buffer's front, from `at` on: where it ends, if it is there.
    fn row(&mut self, mut at: usize) -> Result<Option<usize>, SqlError> {
        let Some(count) = self.buffer.get(at..at + 2) else { return Ok(None) };
        let count = i16::from_be_bytes([count[0], count[1]]);
        at += 2;
        if count == -1 {
            self.ended = true;
            return Ok(Some(at));
        }
        if usize::try_from(count) != Ok(self.columns) {
            return Err(bad_format(format!("row field count is {count}, expected {}", self.columns)));
        }
        self.fields.clear();
        for _ in 0..count {
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
            let flags = number(&self.buffer, SIGNATURE.len()).unwrap_or(0);
            if flags & WITH_OIDS != 0 {
                return Err(bad_format("invalid COPY file header (WITH OIDS)"));
            }
            if flags & CRITICAL != 0 {
                return Err(bad_format("unrecognized critical flags in COPY file header"));
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
        if self.ended && !self.buffer.is_empty() {
            return Err(bad_format("received copy data after EOF marker"));
        }
        if self.buffer.len() > LONGEST_ROW {
            return Err(bad_format(format!("a row is longer than {LONGEST_ROW} bytes")));
        }
        work::made()
    }

    fn finish(&mut self, _: &mut dyn FnMut(&Fields) -> Result<(), SqlError>) -> Result<(), SqlError> {
        // The trailer may be missing, but nothing of a row.
        match (self.buffer.is_empty(), self.started) {
            (true, true) => Ok(()),
            (_, false) => Err(bad_format("COPY file signature not recognized")),
            (false, true) => Err(bad_format("unexpected EOF in COPY data")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(input: &[u8], piece: usize, columns: usize) -> Result<usize, String> {
        let mut decoder = BinaryDecoder::new(columns);
        let mut count = 0;
        let mut take = |_: &Fields| {
            count += 1;
            Ok(())
        };
        for piece in input.chunks(piece) {
            decoder.feed(piece, &mut take).map_err(|error| error.message.to_string())?;
        }
        decoder.finish(&mut take).map_err(|error| error.message.to_string())?;
        Ok(count)
    }

    #[test]
    fn the_trailer_may_be_missing_and_nothing_else() {
        let mut file = Vec::new();
        header(&mut file);
        for _ in 0..3 {
            file.extend([0, 2, 255, 255, 255, 255, 0, 0, 0, 1, b'x']);
        }
        let bare = file.len();
        trailer(&mut file);
        for piece in 1..file.len() {
            assert_eq!(rows(&file, piece, 2), Ok(3));
            assert_eq!(rows(&file[..bare], piece, 2), Ok(3));
        }
        for end in (0..file.len()).filter(|end| *end != bare && (*end < 19 || (*end - 19) % 11 != 0)) {
            assert!(rows(&file[..end], 7, 2).is_err(), "{end}");
        }
        assert_eq!(rows(&file, 9, 1), Err("row field count is 2, expected 1".to_owned()));
        file.push(0);
        assert_eq!(rows(&file, file.len(), 2), Err("received copy data after EOF marker".to_owned()));
        assert_eq!(rows(&file, 1, 2), Err("received copy data after EOF marker".to_owned()));
        for (byte, message) in
            [(1, "invalid COPY file header (WITH OIDS)"), (2, "unrecognized critical flags in COPY file header")]
        {
            file[SIGNATURE.len() + 1] = byte;
            assert_eq!(rows(&file, 3, 2), Err(message.to_owned()));
        }
    }
}
