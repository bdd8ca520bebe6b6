//! PostgreSQL's text format: a line for each row, fields between delimiters, backslashes before
//! what would be misunderstood.

use super::Fields;

/// Takes a line apart. `null` is what null is written as.
pub fn split(line: &[u8], delimiter: u8, null: &[u8], fields: &mut Fields) {
    fields.clear();
    let mut raw_start = 0;
    let mut at = 0;
    loop {
        let Some(&byte) = line.get(at).filter(|byte| **byte != delimiter) else {
            let null = line[raw_start..at] == *null;
            fields.push(null, false);
            if at == line.len() {
                return;
            }
            at += 1;
            raw_start = at;
            continue;
        };
        if byte != b'\\' {
            fields.bytes.push(byte);
            at += 1;
            continue;
        }
        let Some(&next) = line.get(at + 1) else {
            // A backslash at the end stands for itself.
            fields.bytes.push(b'\\');
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
        fields.bytes.push(value);
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
    use freshet_sql::SqlError;

    use crate::copy::{Format, Kind, decoder};

    fn rows(input: &[u8], piece: usize) -> Result<Vec<Vec<Option<String>>>, SqlError> {
        let mut decoder = decoder(&Format::of(Kind::Text), &[""; 99]);
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
        let read = rows(b"\\x41\\101\\q\t\\\\N\r\nlast\t\r\n\\.\r\n", 3).unwrap();
        assert_eq!(read, [vec![some("AAq"), some("\\N")], vec![some("last"), some("")]]);
        assert_eq!(rows(b"1\n\\.\n2\n\n", 9).unwrap(), [vec![some("1")]]);
        // However the pieces are cut: ends of lines, the marker, what a backslash is before.
        let ends: [(&[u8], Result<usize, &str>); 9] = [
            (b"a\r\nb\r\n\\.\r\nc\n", Ok(2)),
            (b"a\rb\r\\.\rc", Ok(2)),
            (b"a\\\nb\nc", Ok(2)),
            (b"a\\.\nb\n", Ok(1)),
            (b"a\nb\r\n", Err("literal carriage return found in data")),
            (b"a\r\nb\n", Err("literal newline found in data")),
            (b"a\rb\n", Err("literal newline found in data")),
            (b"a\n\\.\r\n", Err("end-of-copy marker does not match previous newline style")),
            (b"a\n\\.b\n", Err("end-of-copy marker corrupt")),
        ];
        for (data, expected) in ends {
            for piece in 1..=data.len() {
                let read = rows(data, piece).map(|rows| rows.len()).map_err(|error| error.message.to_string());
                assert_eq!(read, expected.map_err(str::to_owned), "{}, {piece}", data.escape_ascii());
            }
        }
        assert_eq!(rows(b"no end", 2).unwrap(), [vec![some("no end")]]);
    }
}
