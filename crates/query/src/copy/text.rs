//! PostgreSQL's text format: a line for each row, fields between delimiters, backslashes before what would be misunderstood.

use freshet_sql::SqlError;

use super::{Decoder, Fields, Format, LONGEST_ROW, bad_format};

/// Reads it.
#[derive(Debug)]
pub struct TextDecoder {
    delimiter: u8,
    null: Vec<u8>,
    header: bool,
    /// A line that has not come to its end.
    line: Vec<u8>,
    fields: Fields,
    ended: bool,
}

impl TextDecoder {
    /// In a format.
    pub fn new(format: &Format) -> Self {
        Self {
            delimiter: format.delimiter,
            null: format.null.as_bytes().to_vec(),
            header: format.header,
            line: Vec::new(),
            fields: Fields::default(),
            ended: false,
        }
    }

    fn line(&mut self, row: &mut dyn FnMut(&Fields) -> Result<(), SqlError>) -> Result<(), SqlError> {
        let mut line = std::mem::take(&mut self.line);
        if line.last() == Some(&b'\r') {
            line.pop();
        }
        let result = if self.ended {
            // Whatever follows the marker is passed over, as PostgreSQL does it.
            Ok(())
        } else if line == b"\\." {
            self.ended = true;
            Ok(())
        } else if std::mem::take(&mut self.header) {
            Ok(())
        } else {
            self.split(&line)?;
            row(&self.fields)
        };
        line.clear();
        self.line = line;
        result
    }

    fn split(&mut self, line: &[u8]) -> Result<(), SqlError> {
        self.fields.clear();
        let mut raw_start = 0;
        let mut at = 0;
        loop {
            let Some(&byte) = line.get(at).filter(|byte| **byte != self.delimiter) else {
                let null = line[raw_start..at] == *self.null;
                self.fields.push(null, false);
                if at == line.len() {
                    return Ok(());
                }
                at += 1;
                raw_start = at;
                continue;
            };
            if byte != b'\\' {
                self.fields.bytes.push(byte);
                at += 1;
                continue;
            }
            let Some(&next) = line.get(at + 1) else {
                // A backslash at the end stands for itself.
                self.fields.bytes.push(b'\\');
                at += 1;
                continue;
            };
            at += 2;
            let octal = |byte: u8| (b'0'..=b'7').contains(&byte).then(|| byte - b'0');
            let hex = |byte: u8| char::from(byte).to_digit(16);
            let value = match next {
                b'b' => 8,
                b'f' => 12,
                b'n' => b'\n',
                b'r' => b'\r',
                b't' => b'\t',
                b'v' => 11,
                b'x' if line.get(at).copied().and_then(hex).is_some() => {
                    let mut value = 0;
                    for _ in 0..2 {
                        let Some(digit) = line.get(at).copied().and_then(hex) else { break };
                        value = value << 4 | digit;
                        at += 1;
                    }
                    value as u8
                }
                _ => match octal(next) {
                    Some(first) => {
                        let mut value = u32::from(first);
                        for _ in 0..2 {
                            let Some(digit) = line.get(at).copied().and_then(octal) else { break };
                            value = value << 3 | u32::from(digit);
                            at += 1;
                        }
                        value as u8
                    }
                    None => next,
                },
            };
            self.fields.bytes.push(value);
        }
    }
}

impl Decoder for TextDecoder {
    fn feed(&mut self, mut bytes: &[u8], row: &mut dyn FnMut(&Fields) -> Result<(), SqlError>) -> Result<(), SqlError> {
        while let Some(end) = bytes.iter().position(|byte| *byte == b'\n') {
            self.line.extend_from_slice(&bytes[..end]);
            bytes = &bytes[end + 1..];
            self.line(row)?;
        }
        self.line.extend_from_slice(bytes);
        if self.line.len() > LONGEST_ROW {
            return Err(bad_format(format!("a row is longer than {LONGEST_ROW} bytes")));
        }
        Ok(())
    }

    fn finish(&mut self, row: &mut dyn FnMut(&Fields) -> Result<(), SqlError>) -> Result<(), SqlError> {
        if self.line.is_empty() { Ok(()) } else { self.line(row) }
    }
}

/// Writes a field's text.
pub fn write(text: &str, delimiter: u8, out: &mut Vec<u8>) {
    for byte in text.bytes() {
        let letter = match byte {
            8 => b'b',
            12 => b'f',
            b'\n' => b'n',
            b'\r' => b'r',
            b'\t' => b't',
            11 => b'v',
            b'\\' => b'\\',
            byte if byte == delimiter => byte,
            byte => {
                out.push(byte);
                continue;
            }
        };
        out.extend([b'\\', letter]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::copy::Kind;

    fn rows(input: &[u8], piece: usize) -> Result<Vec<Vec<Option<String>>>, SqlError> {
        let mut decoder = TextDecoder::new(&Format::of(Kind::Text));
        let mut rows = Vec::new();
        let mut take = |fields: &Fields| {
            let row = (0..fields.len()).map(|n| fields.get(n).map(|field| String::from_utf8(field.to_vec()).unwrap()));
            rows.push(row.collect());
            Ok(())
        };
        for piece in input.chunks(piece) {
            decoder.feed(piece, &mut take)?;
        }
        decoder.finish(&mut take)?;
        Ok(rows)
    }

    #[test]
    fn what_is_written_is_read_again_however_it_is_cut() {
        let texts = ["", "plain", "tab\there", "line\nbreak\r", "back\\slash", "\\N", "ä€", "\u{8}\u{b}\u{c}"];
        let mut out = Vec::new();
        for text in texts {
            write(text, b'\t', &mut out);
            out.push(b'\t');
        }
        out.extend(b"\\N\n");
        let expected: Vec<Option<String>> = texts.iter().map(|text| Some((*text).to_owned())).chain([None]).collect();
        for piece in 1..out.len() {
            assert_eq!(rows(&out, piece).unwrap(), std::slice::from_ref(&expected));
        }
    }

    #[test]
    fn escapes_ends_and_markers_are_those_of_postgresql() {
        let some = |text: &str| Some(text.to_owned());
        let read = rows(b"\\x41\\101\\q\t\\\\N\r\nlast\t\n\\.\n", 3).unwrap();
        assert_eq!(read, [vec![some("AAq"), some("\\N")], vec![some("last"), some("")]]);
        assert_eq!(rows(b"1\n\\.\n2\n\n", 9).unwrap(), [vec![some("1")]]);
        assert_eq!(rows(b"no end", 2).unwrap(), [vec![some("no end")]]);
    }
}
