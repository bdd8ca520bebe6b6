//! COPY: data that flows while a statement runs.

use std::{
    fmt, ops,
    time::{Duration, Instant},
};

use crate::{
    input::Input,
    message::Format,
    out::{Building, Out},
    report::{Report, SqlState},
    transport::Received,
};

/// Poll interval for cancellation while a session waits for COPY data.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// Data of a copy that is longer is not gathered before it is used.
const PIECE: usize = 1 << 20;

/// A client during a statement: it is told things, as [`Out`], and may be asked for data.
pub struct Client<'a> {
    out: &'a mut Out,
    input: &'a mut Input,
    longest: usize,
}

impl<'a> Client<'a> {
    pub(crate) fn new(out: &'a mut Out, input: &'a mut Input, longest: usize) -> Self {
        Self { out, input, longest }
    }

    /// Asks the client for data in this format, each column in its own. What it sends after the
    /// statement has given up is dropped.
    ///
    /// # Errors
    /// When the client cannot be reached.
    pub fn copy_in(&mut self, format: Format, columns: &[Format]) -> Result<CopyIn<'_>, Report> {
        self.out.copy_response(b'G', format, columns);
        self.out.flush();
        self.out.check()?;
        Ok(CopyIn { out: self.out, input: self.input, longest: self.longest, ended: false })
    }
}

impl ops::Deref for Client<'_> {
    type Target = Out;

    fn deref(&self) -> &Out {
        self.out
    }
}

impl ops::DerefMut for Client<'_> {
    fn deref_mut(&mut self) -> &mut Out {
        self.out
    }
}

impl fmt::Debug for Client<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Client").field(&self.out).finish()
    }
}

/// Data that a client sends.
pub struct CopyIn<'a> {
    out: &'a mut Out,
    input: &'a mut Input,
    longest: usize,
    ended: bool,
}

impl CopyIn<'_> {
    /// Blocks for the next piece; `None` when that was all. Pieces are cut anywhere.
    ///
    /// # Errors
    /// When the client gives up (57014), says what does not belong here (08P01), or goes away.
    /// There is no next piece then.
    #[expect(clippy::should_implement_trait, reason = "the piece is borrowed from the buffer")]
    pub fn next(&mut self) -> Result<Option<&[u8]>, Report> {
        self.next_unless(&mut || Ok(()))
    }

    /// The same; while it waits, `interrupted` is asked again and again whether that is still of
    /// use.
    ///
    /// # Errors
    /// As [`CopyIn::next`], and what `interrupted` returns.
    pub fn next_unless(
        &mut self,
        interrupted: &mut dyn FnMut() -> Result<(), Report>,
    ) -> Result<Option<&[u8]>, Report> {
        let frame = loop {
            if self.ended {
                return Ok(None);
            }
            // Data of any length is taken as it comes.
            match self.input.next_piece(self.longest.min(PIECE)) {
                Err(fault) => return Err(self.end(fault.into_report())),
                Ok(Some(frame)) => break frame,
                Ok(None) => {}
            }
            let next = if self.input.is_within() { Ok(None) } else { self.input.next_frame(self.longest) };
            match next {
                Err(fault) => return Err(self.end(fault.into_report())),
                Ok(Some(frame)) => match frame.kind {
                    b'd' => break frame,
                    b'c' => self.ended = true,
                    // They were sent before the client knew that data is wanted.
                    b'H' | b'S' => {}
                    b'X' => return Err(self.end(Report::gone())),
                    b'f' => {
                        let body = self.input.body(&frame);
                        let reason = match body.strip_suffix(b"\0").map(|text| self.out.encoding().decode(text)) {
                            Some(Ok(reason)) => reason.into_owned(),
                            _ => "for a reason that cannot be read".to_owned(),
                        };
                        let message = format!("COPY from stdin failed: {reason}");
                        return Err(self.end(Report::error(SqlState::QUERY_CANCELED, message)));
                    }
                    kind => {
                        let message = format!("unexpected message type 0x{kind:02X} during COPY from stdin");
                        return Err(self.end(Report::violation(message)));
                    }
                },
                Ok(None) => {
                    // Notices, perhaps.
                    self.out.flush();
                    match self.input.fill(self.out.transport(), Some(Instant::now() + LOOK_EVERY), None) {
                        Received::Bytes(_) => {}
                        Received::Late => interrupted().map_err(|report| self.end(report))?,
                        _ => return Err(self.end(Report::gone())),
                    }
                }
            }
        };
        Ok(Some(self.input.body(&frame)))
    }

    fn end(&mut self, report: Report) -> Report {
        self.ended = true;
        report
    }

    /// Tells the client something in the meantime.
    pub fn out(&mut self) -> &mut Out {
        self.out
    }
}

impl fmt::Debug for CopyIn<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CopyIn").field("ended", &self.ended).finish_non_exhaustive()
    }
}

/// Data that a client gets. Dropping it before [`CopyOut::finish`] leaves the copy open, for an
/// error to end it.
#[must_use = "a copy has to be finished"]
pub struct CopyOut<'a> {
    out: &'a mut Out,
}

impl<'a> CopyOut<'a> {
    pub(crate) fn new(out: &'a mut Out) -> Self {
        Self { out }
    }

    /// Begins a piece, a row as a rule. One that is dropped before [`Piece::finish`] was never
    /// there.
    pub fn piece(&mut self) -> Piece<'_> {
        Piece(self.out.begin(b'd'))
    }

    /// Where it is written to.
    pub fn out(&mut self) -> &mut Out {
        self.out
    }

    /// Sends CopyDone: no more data follows.
    pub fn finish(self) {
        self.out.plain(b'c');
    }
}

impl fmt::Debug for CopyOut<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("CopyOut").field(&self.out).finish()
    }
}

/// A piece of a copy that is being written.
#[must_use = "a piece counts when it is finished"]
pub struct Piece<'a>(Building<'a>);

impl Piece<'_> {
    /// What is appended to this is sent.
    pub fn data(&mut self) -> &mut Vec<u8> {
        self.0.buffer()
    }

    /// The piece is whole.
    ///
    /// # Errors
    /// When it is too long, or cannot be delivered.
    pub fn finish(self) -> Result<(), Report> {
        self.0.finish()
    }
}

impl fmt::Debug for Piece<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Piece")
    }
}
