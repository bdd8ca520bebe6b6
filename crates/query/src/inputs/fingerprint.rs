//! What statements that differ in their literals alone have in common.

use std::{fmt::Write as _, sync::Arc};

use super::template::{Piece, Scanner, statements};
use crate::syntax::Rules;

/// As much of a statement's text is kept, in bytes.
const LONGEST: usize = 8 << 10;

/// A statement without its literals.
#[derive(Debug, PartialEq, Eq)]
pub struct Fingerprint {
    /// The same for statements that differ in literals, blanks, comments and the case of names
    /// alone, on all nodes.
    pub id: i64,
    /// Its text, with a parameter in the place of each literal.
    pub text: Arc<str>,
}

/// FNV-1a, of 64 bits.
struct Hash(u64);

impl Hash {
    fn put(&mut self, byte: u8) {
        self.0 = (self.0 ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    }

    /// A token; the next one does not run into it.
    fn token(&mut self, text: &str) {
        let exact = text.starts_with('"');
        text.bytes().for_each(|byte| self.put(if exact { byte } else { byte.to_ascii_lowercase() }));
        self.put(0);
    }
}

/// The largest number of a parameter in a text.
fn parameters(text: &str, rules: Rules) -> u32 {
    let mut scanner = Scanner::new(text, rules);
    let mut most = 0;
    while let Some((piece, range)) = scanner.next() {
        if let (Piece::Other, Some(digits)) = (piece, text[range].strip_prefix('$')) {
            most = most.max(digits.parse().unwrap_or(0));
        }
    }
    most
}

impl Fingerprint {
    /// That of the first statement of a text that is read by these rules.
    pub fn of(text: &str, rules: Rules) -> Self {
        let text = statements(text, rules).next().unwrap_or_default();
        let mut next = parameters(text, rules).saturating_add(1);
        let (mut hash, mut shown) = (Hash(0xcbf2_9ce4_8422_2325), String::with_capacity(text.len().min(LONGEST)));
        let mut scanner = Scanner::new(text, rules);
        while let Some((piece, range)) = scanner.next() {
            match piece {
                Piece::Literal | Piece::Number => {
                    hash.token("\x01");
                    if shown.len() < LONGEST {
                        // Only what is written to can fail, and that is a text.
                        let _ = write!(shown, "${next}");
                    }
                    next = next.saturating_add(1);
                }
                // A literal's quotes.
                Piece::Other if text[range.clone()].ends_with('\'') => {}
                Piece::Other => {
                    hash.token(&text[range.clone()]);
                    if shown.len() < LONGEST {
                        shown += &text[range];
                    }
                }
                Piece::Blank if shown.len() >= LONGEST => {}
                Piece::Blank => shown += &text[range],
                Piece::Comment => shown.push(' '),
                Piece::End => break,
            }
        }
        shown.truncate(shown.floor_char_boundary(LONGEST));
        Self { id: hash.0 as i64, text: shown.trim_end().into() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> Fingerprint {
        Fingerprint::of(text, Rules::default())
    }

    #[test]
    fn literals_are_parameters() {
        for (text, expected) in [
            ("SELECT 1", "SELECT $1"),
            (
                "SELECT a FROM b WHERE c = 'it''s' AND d = $2 AND e > 1.5e3",
                "SELECT a FROM b WHERE c = $3 AND d = $2 AND e > $4",
            ),
            ("SELECT '', E'\\'x', $$y$$ -- '", "SELECT $1, $2, $3"),
            ("INSERT INTO t1 VALUES (1, 'two'); SELECT 3", "INSERT INTO t1 VALUES ($1, $2)"),
            ("ALTER ROLE a PASSWORD 'secret'", "ALTER ROLE a PASSWORD $1"),
            ("", ""),
        ] {
            assert_eq!(&*of(text).text, expected);
        }
        let long = format!("SELECT {}", "ä, ".repeat(10_000));
        assert!(of(&long).text.len() <= LONGEST);
    }

    #[test]
    fn what_means_the_same_has_one_id() {
        let one = of("SELECT a FROM \"B\" WHERE c = 1");
        for same in ["select A  from \"B\" where C = 'x'", "SELECT a /* b */ FROM \"B\" WHERE c=2 ;"] {
            assert_eq!(of(same).id, one.id, "{same}");
        }
        for other in
            ["SELECT a FROM \"b\" WHERE c = 1", "SELECT ab FROM \"B\" WHERE c = 1", "SELECT a FROM \"B\" WHERE c"]
        {
            assert_ne!(of(other).id, one.id, "{other}");
        }
        // It is the same on all nodes, and in the next version.
        assert_eq!(of("SELECT 1").id, 6_293_836_666_741_800_838);
    }
}
