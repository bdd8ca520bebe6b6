//! What a client says, cut into messages while it goes by. Of each no more is kept than the
//! beginning.

use super::flight::Effect;
use crate::message::framed;

/// Bytes before a message's body.
const HEADER: usize = 5;
/// This much of a body is kept.
const HEAD: usize = 1024;

/// A message that has come, or is coming.
#[derive(Debug, Default)]
pub(super) struct Passing {
    pub kind: u8,
    /// The beginning of its body.
    pub head: Vec<u8>,
    /// How many bytes its body has.
    pub length: usize,
    /// How many zero bytes have come of it: they end texts.
    texts: usize,
    /// A semicolon has come in its statement.
    semicolon: bool,
    /// And something after it.
    several: bool,
}

impl Passing {
    /// In which of its texts a statement is.
    fn statement_at(&self) -> Option<usize> {
        match self.kind {
            b'Q' => Some(0),
            b'P' => Some(1),
            _ => None,
        }
    }

    fn take(&mut self, bytes: &[u8]) {
        let room = HEAD.saturating_sub(self.head.len()).min(bytes.len());
        self.head.extend_from_slice(&bytes[..room]);
        let Some(at) = self.statement_at() else { return };
        for byte in bytes {
            match byte {
                0 => self.texts += 1,
                _ if self.texts != at => {}
                b';' => self.semicolon = true,
                byte if self.semicolon && !byte.is_ascii_whitespace() => self.several = true,
                _ => {}
            }
        }
    }

    /// The whole body, if that was kept.
    pub fn whole(&self) -> Option<&[u8]> {
        (self.head.len() == self.length).then_some(&self.head)
    }

    /// As it came, if all of it was kept.
    pub fn to_message(&self) -> Vec<u8> {
        framed(self.kind, &self.head)
    }

    /// One of its texts, from 0; none when that was not kept whole.
    pub fn text(&self, number: usize) -> Option<&[u8]> {
        let mut texts = self.head.split(|byte| *byte == 0);
        let text = texts.nth(number)?;
        // The last piece has no end here.
        texts.next().map(|_| text)
    }

    /// What its statement does to the transaction.
    pub fn effect(&self) -> Effect {
        let Some(at) = self.statement_at() else { return Effect::MayCommit };
        match (self.text(at), self.head.split(|byte| *byte == 0).nth(at)) {
            (Some(text), _) => Effect::of(text, None),
            (None, Some(beginning)) => Effect::of(beginning, Some(self.several)),
            (None, None) => Effect::MayCommit,
        }
    }
}

/// What is next in what a client says.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// A message of this kind begins.
    Begins(u8),
    /// This many bytes of the message that has begun.
    Bytes(usize),
    /// It is whole.
    Ends,
    /// More has to come.
    More,
    /// This is no message.
    Malformed,
}

/// Cuts what a client says.
#[derive(Debug, Default)]
pub(super) struct Front {
    /// The message that has begun.
    pub passing: Option<Passing>,
    /// This many bytes of it are still to come.
    left: usize,
    header_is_due: bool,
}

impl Front {
    /// Whether a message has begun that is not whole.
    pub fn is_within(&self) -> bool {
        self.passing.is_some()
    }

    /// What is next in `bytes`, which are those that were not taken off yet. A header is taken off
    /// with the first bytes.
    pub fn step(&mut self, bytes: &[u8]) -> Step {
        let Some(passing) = &mut self.passing else {
            let Some(&[kind, a, b, c, d]) = bytes.first_chunk::<HEADER>() else { return Step::More };
            let length = usize::try_from(i32::from_be_bytes([a, b, c, d])).ok();
            let Some(length) = length.and_then(|length| length.checked_sub(4)) else { return Step::Malformed };
            self.passing = Some(Passing { kind, length, ..Passing::default() });
            (self.left, self.header_is_due) = (length, true);
            return Step::Begins(kind);
        };
        let header = if std::mem::take(&mut self.header_is_due) { HEADER } else { 0 };
        let body = bytes.len().saturating_sub(header).min(self.left);
        if header + body == 0 {
            return if self.left == 0 { Step::Ends } else { Step::More };
        }
        passing.take(&bytes[header..header + body]);
        self.left -= body;
        Step::Bytes(header + body)
    }

    /// The message that has ended.
    pub fn take(&mut self) -> Passing {
        self.passing.take().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::{framed as message, *};

    /// Kinds, lengths and effects of messages that come in pieces.
    fn cut(bytes: &[u8], piece: usize) -> Vec<(u8, usize, Effect)> {
        let (mut front, mut pending, mut found) = (Front::default(), Vec::new(), Vec::new());
        for piece in bytes.chunks(piece) {
            pending.extend_from_slice(piece);
            loop {
                match front.step(&pending) {
                    Step::Begins(_) => {}
                    Step::Bytes(count) => drop(pending.drain(..count)),
                    Step::Ends => {
                        let passing = front.take();
                        found.push((passing.kind, passing.length, passing.effect()));
                    }
                    Step::More => break,
                    Step::Malformed => panic!("it is well formed"),
                }
            }
        }
        assert!(pending.is_empty() && !front.is_within());
        found
    }

    #[test]
    fn messages_are_found_however_they_come() {
        let long = format!("INSERT INTO t VALUES ('{}')\0", "x".repeat(5000));
        let later = format!("SELECT '{}'; COMMIT\0", "x".repeat(5000));
        let bytes = [
            message(b'Q', b"COMMIT;  \0"),
            message(b'P', b"name;\0SELECT 1;\0\0\x01;;;;"),
            message(b'S', b""),
            message(b'Q', long.as_bytes()),
            message(b'Q', later.as_bytes()),
        ]
        .concat();
        for piece in [1, 3, 7, 1000, 100_000] {
            let found = cut(&bytes, piece);
            let effects: Vec<_> = found.iter().map(|(kind, _, effect)| (*kind, *effect)).collect();
            let expected = [
                (b'Q', Effect::Ends),
                (b'P', Effect::Stays),
                (b'S', Effect::MayCommit),
                (b'Q', Effect::Stays),
                (b'Q', Effect::MayCommit),
            ];
            assert_eq!(effects, expected, "pieces of {piece}");
            assert_eq!(found[3].1, long.len());
        }
    }

    #[test]
    fn lengths_that_cannot_be_are_found() {
        for bytes in [b"S\0\0\0\x03", b"S\xff\xff\xff\xff"] {
            assert_eq!(Front::default().step(bytes), Step::Malformed);
        }
        assert_eq!(Front::default().step(b"S\0\0"), Step::More);
    }

    #[test]
    fn texts_are_whole_or_none() {
        let mut passing = Passing { kind: b'B', length: 8, ..Passing::default() };
        passing.take(b"p\0sta");
        assert_eq!((passing.text(0), passing.text(1)), (Some(&b"p"[..]), None));
        passing.take(b"t\0\0");
        assert_eq!((passing.text(1), passing.whole()), (Some(&b"stat"[..]), Some(&b"p\0stat\0\0"[..])));
    }
}
