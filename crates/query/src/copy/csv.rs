//! Comma-separated values, as PostgreSQL has them.

use freshet_sql::SqlError;

use super::{Fields, Format, bad_format};

/// Takes a line apart.
///
/// # Errors
/// 22P04 when a quote is not closed.
pub fn split(line: &[u8], format: &Format, fields: &mut Fields) -> Result<(), SqlError> {
    let Format { delimiter, quote, escape, null, .. } = format;
    fields.clear();
    let mut bytes = line.iter().copied().enumerate().peekable();
    let mut start = 0;
    let mut quoted = false;
    while let Some((at, byte)) = bytes.next() {
        if byte == *delimiter {
            fields.push(!quoted && line[start..at] == *null.as_bytes(), quoted);
            (start, quoted) = (at + 1, false);
        } else if byte == *quote {
            quoted = true;
            loop {
                let Some((_, byte)) = bytes.next() else { return Err(bad_format("unterminated CSV quoted field")) };
                if byte == *escape
                    && let Some((_, escaped)) = bytes.next_if(|(_, next)| next == escape || next == quote)
                {
                    fields.bytes.push(escaped);
                } else if byte == *quote {
                    break;
                } else {
                    fields.bytes.push(byte);
                }
            }
        } else {
            fields.bytes.push(byte);
        }
    }
    fields.push(!quoted && line[start..] == *null.as_bytes(), quoted);
    Ok(())
}

/// Writes a field's text. `alone` says that its row has no other.
pub fn write(text: &str, format: &Format, forced: bool, alone: bool, out: &mut Vec<u8>) {
    let special = |byte: u8| byte == format.delimiter || byte == format.quote || byte == b'\n' || byte == b'\r';
    let quoted = forced || text == format.null || alone && text == "\\." || text.bytes().any(special);
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
    use crate::copy::{Header, Kind, decoder};

    fn rows(format: &Format, input: &[u8], piece: usize) -> Result<Vec<Vec<Option<String>>>, SqlError> {
        let mut decoder = decoder(format, &[""; 99]);
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
                write(text, &format, false, false, &mut out);
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
        let format = Format { header: Header::Line, null: "NULL".to_owned(), ..Format::of(Kind::Csv) };
        let read = rows(&format, b"a,b\n1,NULL\n\"NULL\",\nlast,x", 4).unwrap();
        assert_eq!(read, [vec![some("1"), None], vec![some("NULL"), some("")], vec![some("last"), some("x")]]);
        assert!(rows(&Format::of(Kind::Csv), b"\"open", 2).is_err());
        assert_eq!(rows(&Format::of(Kind::Csv), b"1\n\\.\n2\n", 1).unwrap(), [vec![some("1")]]);
    }
}
