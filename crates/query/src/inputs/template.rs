//! A statement's text, divided into what comes again and again and what differs: its template, in
//! which a sign stands in the place of each number and of each text in quotes, and these.
//!
//! Put together they are the text, byte for byte, whatever the text is: where a literal begins and
//! ends is only guessed, and a wrong guess costs some bytes and nothing else.

use freshet_base::varint;

/// Stands in a template for a literal. No text that a client sends has it.
pub(super) const HOLE: char = '\0';

/// A text, divided.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Divided {
    pub(super) template: String,
    /// The literals, encoded.
    pub(super) literals: Vec<u8>,
}

fn is_part_of_name(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'$') || byte >= 0x80
}

/// Numbers whose magnitude is less are written as such.
const LIMIT: i64 = 1 << 61;

fn put_literal(literal: &str, out: &mut Vec<u8>) {
    let number = literal.parse::<i64>().ok().filter(|number| (-LIMIT..LIMIT).contains(number));
    match number.filter(|number| number.to_string() == literal) {
        Some(number) => varint::put(out, varint::zigzag(number) << 1),
        None => {
            varint::put(out, (literal.len() as u64) << 1 | 1);
            out.extend_from_slice(literal.as_bytes());
        }
    }
}

impl Divided {
    /// Divides a text. None when it has the sign that stands for literals.
    pub(crate) fn of(text: &str) -> Option<Self> {
        if text.contains(HOLE) {
            return None;
        }
        let bytes = text.as_bytes();
        let mut divided = Self { template: String::with_capacity(text.len()), literals: Vec::new() };
        // What lies before `copied` is in the template or among the literals.
        let (mut at, mut copied) = (0, 0);
        while let Some(byte) = bytes.get(at) {
            let from = at;
            match byte {
                b'\'' => {
                    let Some(length) = text[at + 1..].find('\'') else { break };
                    at += length + 2;
                    divided.take(text, copied, from + 1, at - 1);
                    copied = at - 1;
                }
                b'0'..=b'9' => {
                    while bytes.get(at).is_some_and(u8::is_ascii_digit)
                        || (bytes.get(at) == Some(&b'.') && bytes.get(at + 1).is_some_and(u8::is_ascii_digit))
                    {
                        at += 1;
                    }
                    let sign = from > copied
                        && bytes[from - 1] == b'-'
                        && from >= 2
                        && matches!(bytes[from - 2], b' ' | b'(' | b',' | b'=');
                    divided.take(text, copied, from - usize::from(sign), at);
                    copied = at;
                }
                b'"' => {
                    let Some(length) = text[at + 1..].find('"') else { break };
                    at += length + 2;
                }
                // A name, or a parameter.
                byte if is_part_of_name(*byte) => {
                    while bytes.get(at).is_some_and(|byte| is_part_of_name(*byte)) {
                        at += 1;
                    }
                }
                _ => at += 1,
            }
        }
        divided.template.push_str(&text[copied..]);
        Some(divided)
    }

    /// The literal in `from..to` comes after what lies there from `copied` on.
    fn take(&mut self, text: &str, copied: usize, from: usize, to: usize) {
        self.template.push_str(&text[copied..from]);
        self.template.push(HOLE);
        put_literal(&text[from..to], &mut self.literals);
    }
}

/// Takes a text whose template is known. None when its literals are not there; any bytes are safe.
pub(super) fn take(template: &str, from: &mut &[u8]) -> Option<String> {
    let mut text = String::with_capacity(template.len() + 16);
    let mut pieces = template.split(HOLE);
    text.push_str(pieces.next()?);
    for piece in pieces {
        let head = varint::take(from)?;
        if head & 1 == 0 {
            text.push_str(&varint::unzigzag(head >> 1).to_string());
        } else {
            let (literal, rest) = from.split_at_checked(usize::try_from(head >> 1).ok()?)?;
            text.push_str(std::str::from_utf8(literal).ok()?);
            *from = rest;
        }
        text.push_str(piece);
    }
    Some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn template(text: &str) -> String {
        let divided = Divided::of(text).unwrap();
        let mut from = &divided.literals[..];
        assert_eq!(take(&divided.template, &mut from).as_deref(), Some(text));
        assert!(from.is_empty(), "{text}");
        divided.template.replace(HOLE, "@")
    }

    #[test]
    fn literals_are_taken_out() {
        for (text, expected) in [
            ("UPDATE t SET a = a + -1234 WHERE id = 7;", "UPDATE t SET a = a + @ WHERE id = @;"),
            ("UPDATE t SET a = a + 99 WHERE id = 7;", "UPDATE t SET a = a + @ WHERE id = @;"),
            ("INSERT INTO t2 VALUES (1, -2,-3, 'four', '')", "INSERT INTO t2 VALUES (@, @,@, '@', '@')"),
            ("SELECT 1.50, .5, 007, a1 - 1, a-1", "SELECT @, .@, @, a1 - @, a-@"),
            ("SELECT $1, $12::int4, \"a 1\", x'1f', 'it''s'", "SELECT $1, $12::int4, \"a 1\", x'@', '@''@'"),
            ("SELECT 'größe', größe2", "SELECT '@', größe2"),
            ("-- 5\nSELECT 'open", "-- @\nSELECT 'open"),
            ("SELECT \"open 7", "SELECT \"open 7"),
            ("7", "@"),
            ("", ""),
            ("SELECT 99999999999999999999, -9223372036854775808", "SELECT @, @"),
        ] {
            assert_eq!(template(text), expected);
        }
    }

    #[test]
    fn texts_come_back_whatever_they_are() {
        let pieces =
            ["'", "''", "\"", "-", "--", "1", "0", "12.5", ".", "$", "$1", "a", "ö", " ", ",", "(", "E", "\\", "\n"];
        let seed = 28;
        println!("seed {seed}");
        let mut state: u64 = seed;
        for _ in 0..20_000 {
            let mut text = String::new();
            for _ in 0..state % 12 {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                text.push_str(pieces[(state >> 33) as usize % pieces.len()]);
            }
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            template(&text);
        }
    }

    #[test]
    fn small_numbers_take_a_byte() {
        let bytes = |text| Divided::of(text).unwrap().literals.len();
        assert_eq!((bytes("SELECT 31"), bytes("SELECT -32"), bytes("SELECT 32"), bytes("SELECT 'x'")), (1, 1, 2, 2));
    }

    #[test]
    fn literals_that_are_not_there_are_none() {
        let divided = Divided::of("VALUES (1000, 'abc')").unwrap();
        for end in 0..divided.literals.len() {
            assert_eq!(take(&divided.template, &mut &divided.literals[..end]), None);
        }
        assert_eq!(Divided::of("\0"), None);
        assert_eq!(take("\0", &mut &[3, 0xff][..]), None, "no text");
        assert_eq!(take("\0", &mut &[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1][..]), None);
        // More than the literals is left.
        let mut from = &[2, 9][..];
        assert_eq!((take("a\0b", &mut from).as_deref(), from), (Some("a-1b"), &[9][..]));
    }
}
