//! Comma-separated values, as PostgreSQL has them.

use freshet_sql::SqlError;

use super::{Decoder, Fields, Format, LONGEST_ROW, bad_format};

/// Reads them.
#[derive(Debug)]
pub struct CsvDecoder {
    delimiter: u8,
    quote: u8,
    escape: u8,
    null: Vec<u8>,
    header: bool,
    fields: Fields,
    /// Where the field that is being read begins.
    start: usize,
    /// Within quotes.
    within: bool,
    /// The field was quoted.
    quoted: bool,
    /// The last byte was an escape or a quote within quotes, and what it means depends on the next.
    pending: bool,
    /// The last byte was a carriage return outside of quotes.
    returned: bool,
    /// Something of a row was read.
    begun: bool,
    ended: bool,
}

impl CsvDecoder {
    /// In a format.
    pub fn new(format: &Format) -> Self {
        Self {
            delimiter: format.delimiter,
            quote: format.quote,
            escape: format.escape,
            null: format.null.as_bytes().to_vec(),
            header: format.header,
            fields: Fields::default(),
            start: 0,
            within: false,
            quoted: false,
            pending: false,
            returned: false,
            begun: false,
            ended: false,
        }
    }

    fn end_field(&mut self) {
        let null = !self.quoted && self.fields.bytes[self.start..] == *self.null;
        self.fields.push(null, self.quoted);
        self.start = self.fields.bytes.len();
        self.quoted = false;
    }

    fn end_row(&mut self, row: &mut dyn FnMut(&Fields) -> Result<(), SqlError>) -> Result<(), SqlError> {
        self.end_field();
        self.begun = false;
        let marker = self.fields.len() == 1 && self.fields.raw(0) == (b"\\.", false);
        let result = if self.ended {
            Ok(())
        } else if marker {
            self.ended = true;
            Ok(())
        } else if std::mem::take(&mut self.header) {
            Ok(())
        } else {
            row(&self.fields)
        };
        self.fields.clear();
        self.start = 0;
        result
    }

    fn byte(&mut self, byte: u8, row: &mut dyn FnMut(&Fields) -> Result<(), SqlError>) -> Result<(), SqlError> {
        if std::mem::take(&mut self.returned) {
            self.end_row(row)?;
            if byte == b'\n' {
                return Ok(());
            }
        }
        if self.within {
            if std::mem::take(&mut self.pending) {
                if byte == self.quote || byte == self.escape {
                    self.fields.bytes.push(byte);
                    return Ok(());
                }
                if self.escape == self.quote {
                    // It was the closing quote.
                    self.within = false;
                } else {
                    self.fields.bytes.push(self.escape);
                    return self.byte(byte, row);
                }
            } else if byte == self.escape {
                self.pending = true;
                return Ok(());
            } else if byte == self.quote {
                self.within = false;
                return Ok(());
            } else {
                self.fields.bytes.push(byte);
                return Ok(());
            }
        }
        match byte {
            b'\n' => self.end_row(row)?,
            b'\r' => self.returned = true,
            byte => {
                self.begun = true;
                if byte == self.delimiter {
                    self.end_field();
                } else if byte == self.quote {
                    (self.within, self.quoted) = (true, true);
                } else {
                    self.fields.bytes.push(byte);
                }
            }
        }
        Ok(())
    }
}

impl Decoder for CsvDecoder {
    fn feed(&mut self, bytes: &[u8], row: &mut dyn FnMut(&Fields) -> Result<(), SqlError>) -> Result<(), SqlError> {
        for byte in bytes {
            self.byte(*byte, row)?;
        }
        if self.fields.bytes.len() > LONGEST_ROW {
            return Err(bad_format(format!("a row is longer than {LONGEST_ROW} bytes")));
        }
        Ok(())
    }

    fn finish(&mut self, row: &mut dyn FnMut(&Fields) -> Result<(), SqlError>) -> Result<(), SqlError> {
        if self.within && std::mem::take(&mut self.pending) && self.escape == self.quote {
            self.within = false;
        }
        if self.within {
            return Err(bad_format("unterminated CSV quoted field"));
        }
        if self.begun || self.returned || !self.fields.is_empty() { self.end_row(row) } else { Ok(()) }
    }
}

/// Writes a field's text.
pub fn write(text: &str, format: &Format, forced: bool, out: &mut Vec<u8>) {
    let special = |byte: u8| byte == format.delimiter || byte == format.quote || byte == b'\n' || byte == b'\r';
    let quoted = forced || text == format.null || text == "\\." || text.bytes().any(special);
    if !quoted {
        return out.extend_from_slice(text.as_bytes());
    }
    out.push(format.quote);
    for byte in text.bytes() {
        if byte == format.quote || byte == format.escape {
            out.push(format.escape);
        }
        out.push(byte);
    }
    out.push(format.quote);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::copy::Kind;

    fn rows(format: &Format, input: &[u8], piece: usize) -> Result<Vec<Vec<Option<String>>>, SqlError> {
        let mut decoder = CsvDecoder::new(format);
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
        let texts = ["", "plain", "com,ma", "quo\"te", "\"", "line\nbreak\r\n", "\\.", "ä€", "back\\slash"];
        for escape in [b'"', b'\\'] {
            let format = Format { escape, ..Format::of(Kind::Csv) };
            let mut out = Vec::new();
            for text in texts {
                write(text, &format, false, &mut out);
                out.push(b',');
            }
            out.extend(b"\r\n");
            let expected: Vec<Option<String>> =
                texts.iter().map(|text| Some((*text).to_owned())).chain([None]).collect();
            for piece in 1..out.len() {
                assert_eq!(rows(&format, &out, piece).unwrap(), std::slice::from_ref(&expected), "escape {escape}");
            }
        }
    }

    #[test]
    fn headers_nulls_and_ends() {
        let some = |text: &str| Some(text.to_owned());
        let format = Format { header: true, null: "NULL".to_owned(), ..Format::of(Kind::Csv) };
        let read = rows(&format, b"a,b\n1,NULL\n\"NULL\",\nlast,x", 4).unwrap();
        assert_eq!(read, [vec![some("1"), None], vec![some("NULL"), some("")], vec![some("last"), some("x")]]);
        assert!(rows(&Format::of(Kind::Csv), b"\"open", 2).is_err());
        assert_eq!(rows(&Format::of(Kind::Csv), b"1\n\\.\n2\n", 1).unwrap(), [vec![some("1")]]);
    }
}
