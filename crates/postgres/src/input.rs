//! Bytes that came from a client, cut into messages.

use std::{ops::Range, time::Instant};

use crate::{
    bell::Bell,
    message::{Fault, Message},
    report::{Report, SqlState},
    transport::{Received, Transport},
};

/// A buffer's size at first, and again when it has become too large.
const FIRST: usize = 8 << 10;
/// Buffers that reads fill grow as far as this.
const BULK: usize = 128 << 10;
/// Bytes before a message's body: its kind and its length.
const HEADER: usize = 5;

/// What came and was not yet used.
#[derive(Default)]
pub(crate) struct Input {
    buffer: Vec<u8>,
    start: usize,
    end: usize,
    /// What is still to come of a message that is not taken off as a whole.
    rest: usize,
}

/// The longest message that clients can send, as in PostgreSQL.
const LONGEST: usize = (1 << 30) - 1;

/// Where a whole message lies in the buffer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Frame {
    pub(crate) kind: u8,
    body: Range<usize>,
}

impl Input {
    /// What was received and not consumed yet.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.buffer[self.start..self.end]
    }

    /// What came before the first [`Input::fill`].
    pub(crate) fn ahead(bytes: &[u8]) -> Self {
        Self { buffer: bytes.to_vec(), end: bytes.len(), ..Self::default() }
    }

    /// Has used the first bytes.
    pub(crate) fn consume(&mut self, count: usize) {
        self.start = self.end.min(self.start + count);
    }

    /// Takes the next message off, if the whole of it is there; `longest` as in
    /// [`Message::longest`]. One that carries data and is longer is refused; what is still to come
    /// of it is passed over.
    pub(crate) fn next_frame(&mut self, longest: usize) -> Result<Option<Frame>, Fault> {
        if self.rest > 0 {
            let there = self.rest.min(self.bytes().len());
            self.consume(there);
            self.rest -= there;
        }
        let Some((kind, length)) = self.head()? else { return Ok(None) };
        if length > Message::longest(kind, longest) {
            if !Message::carries_data(kind) || length > LONGEST {
                return Err(Fault::Malformed("it is too long, or no message at all"));
            }
            self.pass_over();
            let message = format!("a message of {length} bytes is longer than the {longest} that this server takes");
            let report = Report::error(SqlState::PROGRAM_LIMIT_EXCEEDED, message);
            return Err(Fault::TooLong { kind, report });
        }
        if self.bytes().len() < HEADER + length {
            return Ok(None);
        }
        let body = self.start + HEADER;
        self.start = body + length;
        Ok(Some(Frame { kind, body: body..body + length }))
    }

    /// Kind and length of the next message, if they are there.
    fn head(&self) -> Result<Option<(u8, usize)>, Fault> {
        let Some(&[kind, a, b, c, d]) = self.bytes().first_chunk::<HEADER>() else { return Ok(None) };
        let length = usize::try_from(i32::from_be_bytes([a, b, c, d])).ok().and_then(|length| length.checked_sub(4));
        length.map(|length| Some((kind, length))).ok_or(Fault::Malformed("its length cannot be"))
    }

    /// Takes off what is there of the data of a copy, as a piece, if that comes next and is longer
    /// than what is taken as a whole. Its memory is not needed at once.
    pub(crate) fn next_piece(&mut self, longest: usize) -> Result<Option<Frame>, Fault> {
        if self.rest == 0 {
            match self.head()? {
                Some((b'd', length)) if length > longest && length <= LONGEST => {
                    self.consume(HEADER);
                    self.rest = length;
                }
                _ => return Ok(None),
            }
        }
        let there = self.rest.min(self.bytes().len());
        if there == 0 {
            return Ok(None);
        }
        let body = self.start..self.start + there;
        self.consume(there);
        self.rest -= there;
        Ok(Some(Frame { kind: b'd', body }))
    }

    /// Whether pieces of a message that has begun are still to come.
    pub(crate) fn is_within(&self) -> bool {
        self.rest > 0
    }

    /// The body of a frame that was taken off since the last [`Input::fill`].
    pub(crate) fn body(&self, frame: &Frame) -> &[u8] {
        &self.buffer[frame.body.clone()]
    }

    /// How many bytes the buffer has after the next [`Input::fill`], if that makes it a large one.
    pub(crate) fn grows_to(&self) -> Option<usize> {
        let is_full = self.end == self.buffer.len() && self.start == 0;
        let large = if is_full { 2 * self.buffer.len() } else { self.buffer.len() };
        Some(large).filter(|large| *large > BULK && self.start < self.end)
    }

    /// Passes over the message that has come in part; returns its kind.
    pub(crate) fn pass_over(&mut self) -> Option<u8> {
        let (kind, length) = self.head().ok().flatten()?;
        self.consume(HEADER);
        self.rest = length;
        Some(kind)
    }

    /// Blocks until more bytes have come.
    pub(crate) fn fill(
        &mut self,
        transport: &mut Transport,
        deadline: Option<Instant>,
        bell: Option<&Bell>,
    ) -> Received {
        self.make_room();
        let received = transport.receive(&mut self.buffer[self.end..], deadline, bell);
        if let Received::Bytes(count) = received {
            self.end += count;
        }
        received
    }

    fn make_room(&mut self) {
        let was_full = self.end == self.buffer.len();
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
            if self.buffer.len() > BULK {
                self.buffer = Vec::new();
            }
        }
        if self.buffer.is_empty() {
            self.buffer.resize(FIRST, 0);
        } else if was_full {
            // What is left of a message moves to the front.
            self.buffer.copy_within(self.start..self.end, 0);
            self.end -= self.start;
            self.start = 0;
            // The memory of a long message is taken as it arrives, not as it is announced.
            if self.end == self.buffer.len() || self.buffer.len() < BULK {
                self.buffer.resize(2 * self.buffer.len(), 0);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::framed as message;
    use crate::transport::Memory;

    #[test]
    fn messages_come_out_as_they_went_in_however_they_arrive() {
        let bodies: Vec<_> = (0..40).map(|number| vec![number; usize::from(number) * 1_499 % 30_000]).collect();
        let bytes: Vec<_> = bodies.iter().flat_map(|body| message(b'd', body)).collect();
        for piece in [1, 7, 1_000, 8_192, 1 << 20] {
            let mut transport = Transport::Memory(Memory::new(&bytes, piece));
            let mut input = Input::default();
            for body in &bodies {
                let frame = loop {
                    match input.next_frame(1 << 20).unwrap() {
                        Some(frame) => break frame,
                        None => assert!(matches!(input.fill(&mut transport, None, None), Received::Bytes(_))),
                    }
                };
                assert_eq!((frame.kind, input.body(&frame)), (b'd', &body[..]));
            }
            assert_eq!(input.next_frame(1 << 20), Ok(None));
            assert_eq!(input.fill(&mut transport, None, None), Received::End);
            assert!(input.buffer.len() <= 2 * BULK);
        }
    }

    #[test]
    fn lengths_that_cannot_be_are_found_before_their_bytes_come() {
        let cases: [&[u8]; 5] =
            [b"S\0\0\0\x03", b"S\0\0\0\0", b"S\xff\xff\xff\xff", b"S\x7f\xff\xff\xff", b"E\0\x10\0\x05"];
        for bytes in cases {
            let mut transport = Transport::Memory(Memory::new(bytes, 100));
            let mut input = Input::default();
            input.fill(&mut transport, None, None);
            assert!(input.next_frame(1 << 20).is_err(), "{bytes:?}");
        }
    }

    #[test]
    fn data_that_is_too_long_comes_in_pieces_or_is_passed_over() {
        let long = message(b'd', &vec![7; 100_000]);
        let bytes = [&long[..], &message(b'c', b""), &long, &message(b'S', b"")].concat();
        for piece in [1_000, 8_192, 1 << 20] {
            let mut transport = Transport::Memory(Memory::new(&bytes, piece));
            let mut input = Input::default();
            let mut read = 0;
            while read < 100_000 {
                match input.next_piece(50_000).unwrap() {
                    Some(frame) => read += input.body(&frame).len(),
                    None => assert!(matches!(input.fill(&mut transport, None, None), Received::Bytes(_))),
                }
            }
            let mut kinds = String::new();
            while !kinds.ends_with('S') {
                match input.next_frame(50_000) {
                    Ok(Some(frame)) => kinds.push(char::from(frame.kind)),
                    Ok(None) => assert!(matches!(input.fill(&mut transport, None, None), Received::Bytes(_))),
                    Err(Fault::TooLong { kind, report }) => {
                        assert_eq!((kind, report.state()), (b'd', SqlState::PROGRAM_LIMIT_EXCEEDED));
                        kinds.push('!');
                    }
                    Err(other) => panic!("{other:?}"),
                }
            }
            assert_eq!((read, kinds.as_str()), (100_000, "c!S"));
            assert!(input.buffer.len() <= 2 * BULK);
        }
    }

    #[test]
    fn a_long_message_is_not_believed_before_it_comes() {
        let mut transport = Transport::Memory(Memory::new(b"Q\x3f\xff\xff\xffselect", 100));
        let mut input = Input::default();
        input.fill(&mut transport, None, None);
        assert_eq!(input.next_frame(usize::MAX), Ok(None));
        input.fill(&mut transport, None, None);
        assert_eq!(input.buffer.len(), FIRST);
    }
}
