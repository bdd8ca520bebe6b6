//! A statement's text, divided into what comes again and again and what differs: its template, in
//! which a sign stands in the place of each literal, and the literals.
//!
//! Templates are remembered for long ([`super::dictionary`]), so no data must be in them. Literals
//! are found as the session's parser finds them: in quotes of every kind, between dollars, numbers.
//! Comments are left out, and so are the other statements of the text. Put together again the rest
//! is the statement's text.

use std::ops::Range;

use freshet_base::varint;

use crate::syntax::Rules;

/// Stands in a template for a literal. No text that a client sends has it.
pub(super) const HOLE: char = '\0';

/// A statement's text, divided.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Divided {
    pub(super) template: String,
    /// The literals, encoded.
    pub(super) literals: Vec<u8>,
}

fn is_part_of_name(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'$') || byte >= 0x80
}

fn is_blank(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\n' | b'\r' | 0x0b | 0x0c)
}

/// What a piece of a text is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Piece {
    /// What lies between a literal's quotes, or all of one without.
    Literal,
    Number,
    Comment,
    Blank,
    /// What separates statements.
    End,
    /// Names, operators, the quotes of literals, names in quotes.
    Other,
}

/// Where a scanner is in a literal.
#[derive(Clone, Copy, Debug)]
enum Inside {
    /// Behind its first quote. Whether a backslash escapes there.
    Content(bool),
    /// At its last one.
    Close,
}

/// Takes a text apart.
pub(super) struct Scanner<'t> {
    bytes: &'t [u8],
    at: usize,
    rules: Rules,
    inside: Option<Inside>,
}

impl<'t> Scanner<'t> {
    pub(super) fn new(text: &'t str, rules: Rules) -> Self {
        Self { bytes: text.as_bytes(), at: 0, rules, inside: None }
    }

    fn rest(&self) -> &'t [u8] {
        &self.bytes[self.at..]
    }

    /// Skips bytes while they are of a kind.
    fn skip(&mut self, is: impl Fn(u8) -> bool) {
        self.at += self.rest().iter().take_while(|byte| is(**byte)).count();
    }

    /// Goes behind the next of these, or to the end.
    fn skip_behind(&mut self, end: &[u8]) {
        let found = self.rest().windows(end.len()).position(|window| window == end);
        self.at = found.map_or(self.bytes.len(), |found| self.at + found + end.len());
    }

    /// The next piece, and where it is.
    pub(super) fn next(&mut self) -> Option<(Piece, Range<usize>)> {
        let from = self.at;
        let piece = match self.inside.take() {
            Some(Inside::Content(escapes)) => self.content(escapes),
            Some(Inside::Close) if self.at < self.bytes.len() => {
                self.at += 1;
                Piece::Other
            }
            Some(Inside::Close) | None => self.piece()?,
        };
        Some((piece, from..self.at))
    }

    /// What lies between the quotes of a literal. The last one comes as another piece.
    fn content(&mut self, escapes: bool) -> Piece {
        self.inside = Some(Inside::Close);
        loop {
            match self.rest() {
                [] => return Piece::Literal,
                [b'\'', b'\'', ..] => self.at += 2,
                [b'\'', ..] => match self.continued() {
                    Some(at) => self.at = at,
                    None => return Piece::Literal,
                },
                [b'\\', _, ..] if escapes => self.at += 2,
                _ => self.at += 1,
            }
        }
    }

    /// Where the literal that ends here is continued: behind the quote that follows blanks, a
    /// newline among them, and comments.
    fn continued(&self) -> Option<usize> {
        let (mut at, mut newline) = (self.at + 1, false);
        loop {
            match *self.bytes.get(at)? {
                b'\'' if newline => return Some(at + 1),
                byte if is_blank(byte) => {
                    newline |= matches!(byte, b'\n' | b'\r');
                    at += 1;
                }
                b'-' if self.bytes.get(at + 1) == Some(&b'-') => {
                    at += self.bytes[at..].iter().position(|byte| *byte == b'\n')?;
                }
                _ => return None,
            }
        }
    }

    /// A literal's first quote, behind this many bytes.
    fn quote(&mut self, prefix: usize, escapes: bool) -> Piece {
        self.at += prefix + 1;
        self.inside = Some(Inside::Content(escapes));
        Piece::Other
    }

    fn piece(&mut self) -> Option<Piece> {
        let ordinary = !self.rules.standard;
        match *self.rest() {
            [] => return None,
            [b'-', b'-', ..] => {
                self.skip(|byte| byte != b'\n');
                return Some(Piece::Comment);
            }
            [b'/', b'*', ..] => {
                self.skip_comment();
                return Some(Piece::Comment);
            }
            [b';', ..] => {
                self.at += 1;
                return Some(Piece::End);
            }
            [byte, ..] if is_blank(byte) => {
                self.skip(is_blank);
                return Some(Piece::Blank);
            }
            [b'"', ..] => {
                self.at += 1;
                self.skip_behind(b"\"");
            }
            [b'$', next, ..] if next == b'$' || next.is_ascii_alphabetic() || next == b'_' || next >= 0x80 => {
                return Some(self.dollars());
            }
            // A parameter.
            [b'$', ..] => {
                self.at += 1;
                self.skip(|byte| byte.is_ascii_digit());
            }
            [b'\'', ..] => return Some(self.quote(0, ordinary)),
            [b'e' | b'E', b'\'', ..] => return Some(self.quote(1, true)),
            [b'n' | b'N', b'\'', ..] => return Some(self.quote(1, ordinary)),
            [b'b' | b'B' | b'x' | b'X', b'\'', ..] => return Some(self.quote(1, false)),
            [b'u' | b'U', b'&', b'\'', ..] => return Some(self.quote(2, false)),
            [b'0'..=b'9', ..] | [b'.', b'0'..=b'9', ..] => {
                self.number();
                return Some(Piece::Number);
            }
            [byte, ..] if is_part_of_name(byte) => self.skip(is_part_of_name),
            _ => self.at += 1,
        }
        Some(Piece::Other)
    }

    /// Digits of any base, with a fraction and an exponent, and whatever letters follow them.
    fn number(&mut self) {
        loop {
            match *self.rest() {
                [b'.', next, ..] if next.is_ascii_digit() => self.at += 1,
                [b'e' | b'E', b'+' | b'-', next, ..] if next.is_ascii_digit() => self.at += 2,
                [byte, ..] if is_part_of_name(byte) => self.at += 1,
                _ => return,
            }
        }
    }

    /// Comments can be within one another.
    fn skip_comment(&mut self) {
        let mut depth = 0usize;
        loop {
            let step = match self.rest() {
                [] => return,
                [b'/', b'*', ..] => {
                    depth += 1;
                    2
                }
                [b'*', b'/', ..] => {
                    depth -= 1;
                    2
                }
                _ => 1,
            };
            self.at += step;
            if depth == 0 {
                return;
            }
        }
    }

    /// `$tag$ … $tag$`, or only a sign.
    fn dollars(&mut self) -> Piece {
        let from = self.at;
        self.at += 1;
        self.skip(|byte| is_part_of_name(byte) && byte != b'$');
        if self.rest().first() != Some(&b'$') {
            self.at = from + 1;
            return Piece::Other;
        }
        self.at += 1;
        self.skip_behind(&self.bytes[from..self.at]);
        Piece::Literal
    }
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

/// The statements of a text that is read by these rules, each without what stands before it.
pub(crate) fn statements(text: &str, rules: Rules) -> impl Iterator<Item = &str> {
    let mut scanner = Scanner::new(text, rules);
    std::iter::from_fn(move || {
        let mut from = None;
        while let Some((piece, range)) = scanner.next() {
            match (piece, from) {
                (Piece::End, Some(from)) => return Some(&text[from..range.start]),
                (Piece::End | Piece::Blank | Piece::Comment, _) | (_, Some(_)) => {}
                (_, None) => from = Some(range.start),
            }
        }
        from.map(|from| &text[from..])
    })
}

impl Divided {
    /// Divides a statement that is read by these rules. None when it is empty, or has the sign that
    /// stands for literals.
    pub(crate) fn of(text: &str, rules: Rules) -> Option<Self> {
        let text = statements(text, rules).next().filter(|text| !text.contains(HOLE))?;
        let mut divided = Self { template: String::with_capacity(text.len()), literals: Vec::new() };
        let mut scanner = Scanner::new(text, rules);
        while let Some((piece, range)) = scanner.next() {
            divided.take(piece, &text[range]);
        }
        let end = divided.template.trim_end_matches(|last: char| last.is_ascii() && is_blank(last as u8)).len();
        divided.template.truncate(end);
        Some(divided)
    }

    fn take(&mut self, piece: Piece, text: &str) {
        match piece {
            Piece::Other | Piece::Blank | Piece::End => self.template.push_str(text),
            Piece::Comment => self.template.push(' '),
            Piece::Literal => self.put(text),
            Piece::Number => {
                // With its sign, if that cannot be an operator.
                let before = self.template.strip_suffix('-').filter(|before| before.ends_with([' ', '(', ',', '=']));
                match before.map(str::len) {
                    Some(length) => {
                        self.template.truncate(length);
                        self.put(&format!("-{text}"));
                    }
                    None => self.put(text),
                }
            }
        }
    }

    fn put(&mut self, literal: &str) {
        self.template.push(HOLE);
        put_literal(literal, &mut self.literals);
    }
}

/// Whether there is no literal and no comment in a template.
pub(super) fn is_clean(template: &str) -> bool {
    let mut scanner = Scanner::new(template, Rules::default());
    while let Some((piece, range)) = scanner.next() {
        let clean = match piece {
            // With a comment between them that is none any more, two of them are one.
            Piece::Literal => template[range].bytes().all(|byte| matches!(byte, b'\0' | b'\'') || is_blank(byte)),
            Piece::Number | Piece::Comment => false,
            Piece::Blank | Piece::End | Piece::Other => true,
        };
        if !clean {
            return false;
        }
    }
    true
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

    fn divide(text: &str) -> Option<Divided> {
        Divided::of(text, Rules::default())
    }

    /// The template of a text, with `@` for literals, and the statement that comes back.
    fn both(text: &str, rules: Rules) -> Option<(String, String)> {
        let divided = Divided::of(text, rules)?;
        let mut from = &divided.literals[..];
        let back = take(&divided.template, &mut from).unwrap();
        assert!(from.is_empty(), "{text}");
        assert!(is_clean(&divided.template), "{text}: {:?}", divided.template);
        Some((divided.template.replace(HOLE, "@"), back))
    }

    #[test]
    fn literals_are_taken_out() {
        for (text, expected) in [
            ("UPDATE t SET a = a + -1234 WHERE id = 7", "UPDATE t SET a = a + @ WHERE id = @"),
            ("UPDATE t SET a = a + 99 WHERE id = 7", "UPDATE t SET a = a + @ WHERE id = @"),
            ("INSERT INTO t2 VALUES (1, -2,-3, 'four', '')", "INSERT INTO t2 VALUES (@, @,@, '@', '@')"),
            ("SELECT 1.50, .5, 007, a1 - 1, a-1", "SELECT @, @, @, a1 - @, a-@"),
            ("SELECT 1e5, 1.5E-7, 0x1F, 0b01, 1_000, 5.", "SELECT @, @, @, @, @, @."),
            ("SELECT $1, $12::int4, \"a 1\"\"2\", x'1f', 'it''s'", "SELECT $1, $12::int4, \"a 1\"\"2\", x'@', '@'"),
            ("SELECT 'größe', größe2", "SELECT '@', größe2"),
            (
                "SELECT E'it\\'s', e'\\\\', U&'\\0061' UESCAPE '!', N'n', B'01'",
                "SELECT E'@', e'@', U&'@' UESCAPE '@', N'@', B'@'",
            ),
            ("SELECT U&\"a\\0061 7\"", "SELECT U&\"a\\0061 7\""),
            ("SELECT $$it's$$, $a$ $$ $b$ $a$, $1", "SELECT @, @, $1"),
            ("SELECT 'one' -- two\n 'three'", "SELECT '@'"),
            ("SELECT E'one'\n'it\\'s', 'two' 'three'", "SELECT E'@', '@' '@'"),
            ("SELECT 'back\\', 'slash'", "SELECT '@', '@'"),
            ("SELECT date '2001-02-03', '7'::text, a$1", "SELECT date '@', '@'::text, a$1"),
            ("7", "@"),
            ("SELECT 99999999999999999999, -9223372036854775808", "SELECT @, @"),
        ] {
            assert_eq!(both(text, Rules::default()), Some((expected.to_owned(), text.to_owned())));
        }
        let off = Rules { standard: false, ..Rules::default() };
        let text = "SELECT 'it\\'s', N'\\'', B'01'";
        assert_eq!(both(text, off), Some(("SELECT '@', N'@', B'@'".to_owned(), text.to_owned())));
    }

    #[test]
    fn comments_and_other_statements_are_left_out() {
        let text = "/* one */ ; BEGIN; -- two ' ; \n UPDATE t /* 'three /* ; */ */ SET a = ';' -- four\n ; ALTER ROLE \
                    r PASSWORD 'five' ;";
        let templates: Vec<_> =
            statements(text, Rules::default()).map(|text| both(text, Rules::default()).unwrap().0).collect();
        assert_eq!(templates, ["BEGIN", "UPDATE t   SET a = '@'", "ALTER ROLE r PASSWORD '@'"]);
        assert_eq!(divide(""), None);
        assert_eq!(divide(" -- nothing"), None);
    }

    /// What cannot be read is in no template either.
    #[test]
    fn nothing_of_a_literal_is_left_whatever_the_text_is() {
        let pieces = [
            "'", "''", "\"", "-", "--", "1", "0", "12.5", ".", "$", "$$", "$1", "$a$", "a", "ö", " ", ",", "(", "E",
            "E'", "U&'", "\\", "\n", "/*", "*/", ";", "e+5",
        ];
        let seed = 28;
        println!("seed {seed}");
        let mut state: u64 = seed;
        let mut next = |below: usize| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) as usize % below
        };
        let blanks = |text: &str| text.split_whitespace().collect::<String>();
        for _ in 0..20_000 {
            let text: String = (0..next(12)).map(|_| pieces[next(pieces.len())]).collect();
            let rules = Rules { standard: next(2) == 0, ..Rules::default() };
            let Some((_, back)) = both(&text, rules) else { continue };
            if !text.contains(['-', '/', ';']) {
                assert_eq!(blanks(&back), blanks(&text), "{text:?}");
            }
        }
    }

    #[test]
    fn small_numbers_take_a_byte() {
        let bytes = |text| divide(text).unwrap().literals.len();
        assert_eq!((bytes("SELECT 31"), bytes("SELECT -32"), bytes("SELECT 32"), bytes("SELECT 'x'")), (1, 1, 2, 2));
    }

    #[test]
    fn literals_that_are_not_there_are_none() {
        let divided = divide("VALUES (1000, 'abc')").unwrap();
        for end in 0..divided.literals.len() {
            assert_eq!(take(&divided.template, &mut &divided.literals[..end]), None);
        }
        assert_eq!(divide("\0"), None);
        assert_eq!(take("\0", &mut &[3, 0xff][..]), None, "no text");
        assert_eq!(take("\0", &mut &[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1][..]), None);
        // More than the literals is left.
        let mut from = &[2, 9][..];
        assert_eq!((take("a\0b", &mut from).as_deref(), from), (Some("a-1b"), &[9][..]));
    }
}
