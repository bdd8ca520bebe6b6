//! What a client is told: messages encoded in place.
//!
//! Everything is appended to one buffer, which is written when the client waits for it or when
//! there is much. A row costs no allocation: its values are written straight into the buffer, and
//! lengths are put in afterwards.

use std::{any::Any, fmt, io::Write};

use crate::{
    backend::TransactionStatus,
    copy::CopyOut,
    encoding::Encoding,
    message::Format,
    report::{Report, SqlState},
    transport::Transport,
};

/// Answers are written when there are this many bytes.
const MUCH: usize = 32 << 10;
/// A buffer that has become larger is not kept.
const KEPT: usize = 256 << 10;
/// The longest message, as in PostgreSQL.
const LONGEST: usize = (1 << 30) - 1;
/// More cannot be counted in a message.
const MOST: usize = i16::MAX as usize;

/// A column of a result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Field<'a> {
    /// The column's name, as the client shows it.
    pub name: &'a str,
    /// The table that it comes from; 0 for none.
    pub table: u32,
    /// Its number in that table, from 1; 0 for none.
    pub column: i16,
    /// The object id of its type.
    pub type_oid: u32,
    /// The bytes of its type, negative when they vary.
    pub type_size: i16,
    /// What is said beside the type, -1 for nothing.
    pub type_modifier: i32,
    /// How its values are written.
    pub format: Format,
}

/// That a statement or portal was described.
#[derive(Debug)]
#[must_use = "it is what describing returns"]
pub struct Described(());

/// That a portal was executed, to its end or its limit.
#[derive(Debug)]
#[must_use = "it is what executing returns"]
pub struct Executed(());

/// Where answers are written to.
///
/// What cannot be delivered any more is not an error at once: the next row or piece of a copy
/// fails, with `FATAL 08006`, and the statement had better end.
pub struct Out {
    buffer: Vec<u8>,
    transport: Transport,
    /// The client waits for what is in the buffer.
    owed: bool,
    gone: bool,
    /// How often the buffer was written.
    written: u64,
    /// In what the client is told names and texts.
    encoding: Encoding,
    /// What is to be dropped when everything has been written.
    held: Vec<Box<dyn Any + Send>>,
}

/// Where answers have come to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Mark {
    written: u64,
    length: usize,
}

impl Out {
    pub(crate) fn new(transport: Transport) -> Self {
        Self {
            buffer: Vec::new(),
            transport,
            owed: false,
            gone: false,
            written: 0,
            encoding: Encoding::UTF8,
            held: Vec::new(),
        }
    }

    /// Describes the columns of a result.
    ///
    /// # Errors
    /// When there are too many.
    pub fn row_description<'a>(&mut self, fields: impl IntoIterator<Item = Field<'a>>) -> Result<Described, Report> {
        let mut message = self.begin(b'T');
        let count_at = message.out.buffer.len();
        message.i16(0);
        let mut count = 0_usize;
        for field in fields {
            message.string(field.name);
            message.u32(field.table);
            message.i16(field.column);
            message.u32(field.type_oid);
            message.i16(field.type_size);
            message.i32(field.type_modifier);
            message.format(field.format);
            count += 1;
        }
        let count = i16::try_from(count).map_err(|_| too_many_columns())?;
        message.out.buffer[count_at..count_at + 2].copy_from_slice(&count.to_be_bytes());
        message.end();
        Ok(Described(()))
    }

    /// There are no results to describe.
    pub fn no_data(&mut self) -> Described {
        self.begin(b'n').end();
        Described(())
    }

    /// The types of a statement's parameters;
    /// [`Session::describe_statement`](crate::Session::describe_statement) says this before it
    /// describes the result.
    pub fn parameter_description(&mut self, types: &[u32]) {
        let mut message = self.begin(b't');
        message.i16(types.len().try_into().unwrap_or(i16::MAX));
        for object_id in types.iter().take(MOST) {
            message.u32(*object_id);
        }
        message.end();
    }

    /// Begins a row. One that is dropped before [`Row::finish`] was never there.
    pub fn row(&mut self) -> Row<'_> {
        let mut message = self.begin(b'D');
        message.i16(0);
        Row { message, columns: 0, value: None }
    }

    /// A statement is complete; the tag says what it did: `SELECT 1`, `INSERT 0 1`.
    pub fn command_complete(&mut self, tag: impl fmt::Display) -> Executed {
        let mut message = self.begin(b'C');
        message.display(tag);
        message.end();
        Executed(())
    }

    /// There was no statement.
    pub fn empty_query(&mut self) -> Executed {
        self.begin(b'I').end();
        Executed(())
    }

    /// The limit of rows was reached; there may be more.
    pub fn portal_suspended(&mut self) -> Executed {
        self.begin(b's').end();
        Executed(())
    }

    /// Sends a NoticeResponse, in the middle of whatever is being answered.
    pub fn notice(&mut self, report: &Report) {
        self.report(b'N', report);
    }

    /// The encoding that the client speaks. Values are converted by who writes them.
    #[must_use]
    pub fn encoding(&self) -> Encoding {
        self.encoding
    }

    /// From here on this one is spoken.
    pub fn speak(&mut self, encoding: Encoding) {
        self.encoding = encoding;
    }

    /// A setting that clients follow has changed. From `client_encoding` on, that one is spoken.
    pub fn parameter_status(&mut self, name: &str, value: &str) {
        if name == "client_encoding" {
            self.encoding = Encoding::named(value).filter(|it| it.is_spoken()).unwrap_or(Encoding::UTF8);
        }
        let mut message = self.begin(b'S');
        message.string(name);
        message.string(value);
        message.end();
    }

    /// Another session (or this one) has notified a channel.
    pub fn notification(&mut self, pid: i32, channel: &str, payload: &str) {
        let mut message = self.begin(b'A');
        message.i32(pid);
        message.string(channel);
        message.string(payload);
        message.end();
    }

    /// Begins a copy to the client: in this format, each column in its own.
    pub fn copy_out(&mut self, format: Format, columns: &[Format]) -> CopyOut<'_> {
        self.copy_response(b'H', format, columns);
        CopyOut::new(self)
    }

    /// Where the answers have come to, to go [back to](Out::rewind).
    #[must_use]
    pub fn mark(&self) -> Mark {
        Mark { written: self.written, length: self.buffer.len() }
    }

    /// Takes back what was said since `mark`, if none of that was written yet; says whether that
    /// was so.
    pub fn rewind(&mut self, mark: Mark) -> bool {
        let there = self.written == mark.written;
        if there {
            self.buffer.truncate(mark.length);
        }
        there
    }

    /// Has everything written that the client waits for. A session that [says
    /// so](crate::Session::flushes) calls this before it waits for others or works for long.
    pub fn flush_owed(&mut self) {
        if self.owed {
            self.flush();
        }
    }

    /// Writes what was collected to the client.
    pub fn flush(&mut self) {
        self.owed = false;
        self.write(false);
    }

    /// How often something was written to the client.
    #[must_use]
    pub fn writes(&self) -> u64 {
        self.written
    }

    /// Keeps something until all that was said has been written: what is counted for it, as a rule.
    pub fn hold(&mut self, held: impl Any + Send) {
        self.held.push(Box::new(held));
    }

    /// Whether the client has not read what it was told: the statement is to end, and was not
    /// waited for any longer. The rest is written later.
    #[must_use]
    pub fn is_behind(&self) -> bool {
        self.buffer.len() >= MUCH
    }

    /// Has everything written. Within a statement no longer than that may run: what is left then is
    /// written later.
    fn write(&mut self, within_statement: bool) {
        if !self.buffer.is_empty() {
            let mut count = self.buffer.len();
            if !self.gone {
                match self.transport.write(&self.buffer, within_statement) {
                    Ok(written) => count = written,
                    Err(_) => self.gone = true,
                }
            }
            self.written += u64::from(count > 0);
            if count < self.buffer.len() {
                self.buffer.drain(..count);
                return;
            }
            self.buffer.clear();
            self.buffer.shrink_to(KEPT);
        }
        self.held.clear();
    }

    /// Fails when nothing can be delivered.
    pub(crate) fn check(&self) -> Result<(), Report> {
        if self.gone { Err(Report::gone()) } else { Ok(()) }
    }

    pub(crate) fn is_gone(&self) -> bool {
        self.gone
    }

    pub(crate) fn transport(&mut self) -> &mut Transport {
        &mut self.transport
    }

    pub(crate) fn into_transport(self) -> Transport {
        self.transport
    }

    /// The client now waits for all that was said.
    pub(crate) fn owe(&mut self) {
        self.owed = true;
    }

    /// A single byte, outside of messages: an answer to a question for encryption.
    pub(crate) fn byte(&mut self, byte: u8) {
        self.buffer.push(byte);
    }

    pub(crate) fn begin(&mut self, kind: u8) -> Building<'_> {
        let start = self.buffer.len();
        self.buffer.extend_from_slice(&[kind, 0, 0, 0, 0]);
        Building { out: self, start, ended: false }
    }

    pub(crate) fn error(&mut self, report: &Report) {
        self.report(b'E', report);
    }

    fn report(&mut self, kind: u8, report: &Report) {
        let mut message = self.begin(kind);
        report.fields(|letter, text| {
            message.byte(letter);
            message.string(text);
        });
        message.byte(0);
        message.end();
    }

    /// A message that is only its kind.
    pub(crate) fn plain(&mut self, kind: u8) {
        self.begin(kind).end();
    }

    pub(crate) fn ready(&mut self, status: TransactionStatus) {
        let mut message = self.begin(b'Z');
        message.byte(match status {
            TransactionStatus::Idle => b'I',
            TransactionStatus::Open => b'T',
            TransactionStatus::Failed => b'E',
        });
        message.end();
        self.owed = true;
    }

    pub(crate) fn copy_response(&mut self, kind: u8, format: Format, columns: &[Format]) {
        let mut message = self.begin(kind);
        message.byte(format as u8);
        message.i16(columns.len().try_into().unwrap_or(i16::MAX));
        for column in columns.iter().take(MOST) {
            message.format(*column);
        }
        message.end();
    }
}

impl fmt::Debug for Out {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Out").field("unwritten", &self.buffer.len()).field("gone", &self.gone).finish_non_exhaustive()
    }
}

fn too_many_columns() -> Report {
    Report::error(SqlState::TOO_MANY_COLUMNS, format!("a result can have at most {MOST} columns"))
}

fn too_long() -> Report {
    Report::error(SqlState::PROGRAM_LIMIT_EXCEEDED, format!("a row or value exceeds the limit of {LONGEST} bytes"))
}

/// A message that is being written. One that is dropped before its end was never there.
pub(crate) struct Building<'a> {
    out: &'a mut Out,
    start: usize,
    ended: bool,
}

impl Building<'_> {
    pub(crate) fn buffer(&mut self) -> &mut Vec<u8> {
        &mut self.out.buffer
    }

    pub(crate) fn bytes(&mut self, bytes: &[u8]) {
        self.out.buffer.extend_from_slice(bytes);
    }

    pub(crate) fn byte(&mut self, byte: u8) {
        self.out.buffer.push(byte);
    }

    fn i16(&mut self, number: i16) {
        self.bytes(&number.to_be_bytes());
    }

    pub(crate) fn i32(&mut self, number: i32) {
        self.bytes(&number.to_be_bytes());
    }

    fn u32(&mut self, number: u32) {
        self.bytes(&number.to_be_bytes());
    }

    fn format(&mut self, format: Format) {
        self.bytes(&(format as u16).to_be_bytes());
    }

    /// A string and its NUL. NULs within would end it: they are left out.
    pub(crate) fn string(&mut self, text: &str) {
        if !self.out.encoding.is_utf8() && !text.is_ascii() {
            let encoding = self.out.encoding;
            encoding.encode_what_can_be(&text.replace('\0', ""), &mut self.out.buffer);
            self.byte(0);
            return;
        }
        if text.as_bytes().contains(&0) {
            self.out.buffer.extend(text.bytes().filter(|byte| *byte != 0));
        } else {
            self.bytes(text.as_bytes());
        }
        self.byte(0);
    }

    fn display(&mut self, text: impl fmt::Display) {
        // Writing to memory does not fail.
        let _ = write!(self.out.buffer, "{text}");
        self.byte(0);
    }

    /// The message is whole. One that is too long is left out; only rows and copies can be.
    pub(crate) fn end(self) {
        let _ = self.finish();
    }

    fn try_end(&mut self) -> Result<(), Report> {
        // The kind does not count.
        let length = self.out.buffer.len().checked_sub(self.start + 1);
        let length = length.filter(|length| (4..=LONGEST).contains(length));
        let length = length.and_then(|length| i32::try_from(length).ok()).ok_or_else(too_long)?;
        self.out.buffer[self.start + 1..self.start + 5].copy_from_slice(&length.to_be_bytes());
        self.ended = true;
        Ok(())
    }

    /// The message is whole, and is written when there is much. Fails when nothing can be
    /// delivered.
    pub(crate) fn finish(mut self) -> Result<(), Report> {
        self.try_end()?;
        if self.out.buffer.len() >= MUCH {
            self.out.owed = false;
            self.out.write(true);
        }
        self.out.check()
    }
}

impl Drop for Building<'_> {
    fn drop(&mut self) {
        if !self.ended {
            self.out.buffer.truncate(self.start);
        }
    }
}

/// A row that is being written, column by column.
///
/// ```
/// # use freshet_postgres::{Out, Report};
/// fn one_row(out: &mut Out) -> Result<(), Report> {
///     let mut row = out.row();
///     row.value().extend_from_slice(b"42");
///     row.null();
///     row.text(format_args!("{:.2}", 0.5));
///     row.finish()
/// }
/// ```
#[must_use = "a row counts when it is finished"]
pub struct Row<'a> {
    message: Building<'a>,
    columns: usize,
    /// Where the length of the value goes that is being written.
    value: Option<usize>,
}

impl Row<'_> {
    /// The next column is null.
    pub fn null(&mut self) {
        self.close_value();
        self.columns += 1;
        self.message.i32(-1);
    }

    /// The next column's value: what is appended to this, until the next column or the row's end.
    /// What stands in it before was said already.
    pub fn value(&mut self) -> &mut Vec<u8> {
        self.close_value();
        self.columns += 1;
        self.value = Some(self.message.out.buffer.len());
        self.message.i32(0);
        self.message.buffer()
    }

    /// The next column's value, which is there already.
    pub fn bytes(&mut self, value: &[u8]) {
        self.value().extend_from_slice(value);
    }

    /// The next column's value, as it is displayed.
    pub fn text(&mut self, value: impl fmt::Display) {
        // Writing to memory does not fail.
        let _ = write!(self.value(), "{value}");
    }

    fn close_value(&mut self) {
        let Some(at) = self.value.take() else { return };
        let buffer = self.message.buffer();
        // What does not fit is too long for the row too, which is then refused.
        let length = buffer.len().saturating_sub(at + 4);
        if let (Some(place), Ok(length)) = (buffer.get_mut(at..at + 4), i32::try_from(length)) {
            place.copy_from_slice(&length.to_be_bytes());
        }
    }

    /// The row is whole.
    ///
    /// # Errors
    /// When it is too long, or cannot be delivered.
    pub fn finish(mut self) -> Result<(), Report> {
        self.close_value();
        let columns = i16::try_from(self.columns).map_err(|_| too_many_columns())?;
        let at = self.message.start + 5;
        if let Some(place) = self.message.buffer().get_mut(at..at + 2) {
            place.copy_from_slice(&columns.to_be_bytes());
        }
        self.message.finish()
    }
}

impl fmt::Debug for Row<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Row").field("columns", &self.columns).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::{io::Read, os::unix::net::UnixStream, sync::Arc, thread, time::Duration};

    use super::*;
    use crate::{
        registry::{LONG_KEY, Registry},
        transport::{Memory, Socket, Stream},
    };

    fn out() -> Out {
        Out::new(Transport::Memory(Memory::new(b"", 1)))
    }

    fn written(mut out: Out) -> Vec<u8> {
        out.flush();
        match out.into_transport() {
            Transport::Memory(memory) => memory.output,
            _ => unreachable!("it was made of memory"),
        }
    }

    #[test]
    fn rows_are_written_in_place() {
        let mut out = out();
        let mut row = out.row();
        row.value().extend_from_slice(b"ab");
        row.null();
        row.text(42);
        row.bytes(b"");
        row.finish().unwrap();
        let _ = out.command_complete(format_args!("SELECT {}", 1));
        let row = b"D\0\0\0\x1a\0\x04\0\0\0\x02ab\xff\xff\xff\xff\0\0\0\x0242\0\0\0\0";
        assert_eq!(written(out), [&row[..], b"C\0\0\0\x0dSELECT 1\0"].concat());
    }

    #[test]
    fn a_row_that_is_not_finished_was_never_there() {
        let mut out = out();
        out.row().finish().unwrap();
        let mut row = out.row();
        row.bytes(b"half");
        drop(row);
        let mut row = out.row();
        for _ in 0..40_000 {
            row.null();
        }
        assert_eq!(row.finish().unwrap_err().state(), SqlState::TOO_MANY_COLUMNS);
        out.plain(b'1');
        assert_eq!(written(out), b"D\0\0\0\x06\0\0\x31\0\0\0\x04");
    }

    #[test]
    fn much_is_written_at_once_and_the_buffer_does_not_stay_large() {
        let mut out = out();
        let mut row = out.row();
        row.value().resize(3 << 20, b'x');
        row.finish().unwrap();
        assert!(out.buffer.is_empty() && out.buffer.capacity() <= KEPT);
    }

    #[test]
    fn what_was_not_written_can_be_taken_back() {
        let mut out = out();
        out.plain(b'1');
        let mark = out.mark();
        out.plain(b'2');
        assert!(out.rewind(mark));
        out.plain(b'3');
        out.flush();
        assert!(!out.rewind(mark));
        assert_eq!(written(out), b"1\0\0\0\x043\0\0\0\x04");
    }

    #[test]
    fn texts_cannot_end_early() {
        let mut out = out();
        out.parameter_status("a\0b", "c");
        assert_eq!(written(out), b"S\0\0\0\x09ab\0c\0");
    }

    /// Its statement is to end.
    struct Ended;

    impl crate::Interrupt for Ended {
        fn interrupt(&self, _: crate::Why) {}

        fn ends(&self) -> bool {
            true
        }

        fn clear(&self) {}
    }

    #[test]
    fn what_a_client_does_not_read_is_written_later() {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let stream = Arc::new(Stream::Unix(ours));
        let seat = Registry::new().enter(2, [0; LONG_KEY], Some(Arc::clone(&stream))).unwrap();
        seat.entry.opened(Arc::new(Ended));
        let socket = Socket::new(stream, Arc::clone(&seat.entry), Duration::from_secs(600)).unwrap();
        let mut out = Out::new(Transport::Plain(socket));
        let held = Arc::new(());
        out.hold(Arc::clone(&held));
        let mark = out.mark();
        let mut row = out.row();
        row.bytes(&vec![b'x'; 4 << 20]);
        row.finish().unwrap();
        assert!(out.is_behind() && !out.is_gone() && Arc::strong_count(&held) == 2);
        assert!(!out.rewind(mark), "the client has some of it");
        let reader = thread::spawn(move || {
            let mut all = Vec::new();
            theirs.read_to_end(&mut all).unwrap();
            all
        });
        out.plain(b'1');
        out.flush();
        assert!(!out.is_behind() && !out.is_gone() && Arc::strong_count(&held) == 1);
        out.transport().close();
        let all = reader.join().unwrap();
        assert_eq!(all.len(), 1 + 4 + 2 + 4 + (4 << 20) + 5);
        let head = [&b"D"[..], &(10_u32 + (4 << 20)).to_be_bytes(), b"\0\x01", &(4_u32 << 20).to_be_bytes()].concat();
        assert!(all.starts_with(&head) && all.ends_with(b"x1\0\0\0\x04"));
    }
}
