//! Values of lines of the control file.

use freshet_base::{Lsn, NodeId, Term};

/// A line of the term history. In format 2 there was no random number at first.
pub(super) fn term_entry(line: &str, format: u32) -> Option<(Term, Lsn, NodeId, u64)> {
    let mut words = line.split(' ');
    let (term, start, node) = (words.next()?, words.next()?, words.next()?);
    let nonce = words.next().or((format == 2).then_some("0"))?;
    let hex = |word| u64::from_str_radix(word, 16).ok();
    let term_entry = (Term(term.parse().ok()?), Lsn(start.parse().ok()?), NodeId(hex(node)?), hex(nonce)?);
    words.next().is_none().then_some(term_entry)
}

/// A number, an LSN, and perhaps another number.
pub(super) fn life_of(line: &str) -> Option<(u64, Lsn, Option<u64>)> {
    let (mut words, number) = (line.split(' '), |hex| u64::from_str_radix(hex, 16).ok());
    let (next, reached) = (number(words.next()?)?, words.next()?.parse().ok()?);
    let before = words.next().map(|before| number(before).ok_or(())).transpose().ok()?;
    words.next().is_none().then_some((next, Lsn(reached), before))
}

pub(super) fn from_hex(text: &str) -> Option<Vec<u8>> {
    let digits: Option<Vec<u32>> = text.chars().map(|digit| digit.to_digit(16)).collect();
    let digits = digits.filter(|digits| digits.len().is_multiple_of(2))?;
    Some(digits.chunks(2).map(|pair| (pair[0] << 4 | pair[1]) as u8).collect())
}
