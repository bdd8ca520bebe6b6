//! Lines of text and CSV, as PostgreSQL finds them: the first end of a line says which ends all
//! others have, and `\.` alone on a line ends the data.

use std::ops::Range;

use freshet_sql::{SqlError, work};

use super::{Format, Kind, LONGEST_ROW, bad_format};

/// How lines end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum End {
    #[default]
    Unknown,
    Newline,
    Return,
    Both,
}

/// Bytes that come in pieces, and the lines that they make.
#[derive(Debug)]
pub struct Lines {
    /// The quote of CSV, and its escape if that is another byte.
    csv: Option<(u8, Option<u8>)>,
    buffer: Vec<u8>,
    /// Where the line begins that is being looked for, and how far that has come.
    start: usize,
    at: usize,
    end: End,
    /// Within quotes; behind an escape there.
    within: bool,
    escaped: bool,
    ended: bool,
}

impl Lines {
    /// Of a format that has lines.
    pub fn new(format: &Format) -> Self {
        let csv = (format.kind == Kind::Csv)
            .then(|| (format.quote, Some(format.escape).filter(|escape| *escape != format.quote)));
        Self {
            csv,
            buffer: Vec::new(),
            start: 0,
            at: 0,
            end: End::Unknown,
            within: false,
            escaped: false,
            ended: false,
        }
    }

    /// The next bytes.
    ///
    /// # Errors
    /// 22P04 when a line becomes too long; 53200.
    pub fn feed(&mut self, bytes: &[u8]) -> Result<(), SqlError> {
        if self.ended {
            // What follows the marker is passed over.
            return Ok(());
        }
        self.buffer.drain(..self.start);
        self.at -= self.start;
        self.start = 0;
        if self.buffer.len() + bytes.len() > LONGEST_ROW + (64 << 20) {
            return Err(bad_format(format!("a row is longer than {LONGEST_ROW} bytes")));
        }
        self.buffer.extend_from_slice(bytes);
        work::made()
    }

    /// The bytes of a line.
    pub fn line(&self, at: Range<usize>) -> &[u8] {
        &self.buffer[at]
    }

    /// Where the next line lies, without its end; nothing while that has not come. `last` says that
    /// no more bytes come.
    ///
    /// # Errors
    /// 22P04 when lines end in several ways, or the marker is not alone.
    pub fn next(&mut self, last: bool) -> Result<Option<Range<usize>>, SqlError> {
        if self.ended {
            return Ok(None);
        }
        loop {
            let special = self.buffer[self.at..].iter().position(|byte| self.is_special(*byte));
            let skipped = special.unwrap_or(self.buffer.len() - self.at);
            self.escaped &= skipped == 0;
            self.at += skipped;
            if self.at - self.start > LONGEST_ROW {
                return Err(bad_format(format!("a row is longer than {LONGEST_ROW} bytes")));
            }
            if special.is_none() {
                let rest = self.start..self.at;
                if !last || rest.is_empty() {
                    return Ok(None);
                }
                self.start = self.at;
                return Ok(Some(rest));
            }
            let byte = self.buffer[self.at];
            let next = self.buffer.get(self.at + 1).copied();
            if next.is_none() && !last && matches!(byte, b'\\' | b'\r') {
                return Ok(None);
            }
            if let Some((quote, escape)) = self.csv {
                if self.within && Some(byte) == escape {
                    self.escaped = !self.escaped;
                }
                if byte == quote && !self.escaped {
                    self.within = !self.within;
                }
                if Some(byte) != escape {
                    self.escaped = false;
                }
            }
            let line = match byte {
                b'\r' | b'\n' if self.within => None,
                b'\r' => Some(self.returned(next)?),
                b'\n' => Some(self.newline()?),
                b'\\' if self.csv.is_none() || self.at == self.start => match self.marker(next, last)? {
                    Marker::None => None,
                    Marker::Open => return Ok(None),
                    Marker::End => {
                        self.ended = true;
                        let rest = self.start..self.at;
                        return Ok((!rest.is_empty()).then_some(rest));
                    }
                },
                _ => None,
            };
            match line {
                Some(length) => {
                    let line = self.start..self.at;
                    self.start = self.at + length;
                    self.at = self.start;
                    return Ok(Some(line));
                }
                // In text, what follows a backslash means nothing by itself.
                None if byte == b'\\' && self.csv.is_none() => self.at = (self.at + 2).min(self.buffer.len()),
                None => self.at += 1,
            }
        }
    }

    fn is_special(&self, byte: u8) -> bool {
        match self.csv {
            None => matches!(byte, b'\n' | b'\r' | b'\\'),
            Some((quote, escape)) => matches!(byte, b'\n' | b'\r' | b'\\') || byte == quote || Some(byte) == escape,
        }
    }

    fn wrong_end(&self, what: &str) -> SqlError {
        let (how, hint) = match self.csv {
            None => {
                ("literal", format!("Use \"\\{}\" to represent {what}.", if what == "newline" { 'n' } else { 'r' }))
            }
            Some(_) => ("unquoted", format!("Use quoted CSV field to represent {what}.")),
        };
        bad_format(format!("{how} {what} found in data")).with_hint(hint)
    }

    /// How long the end of a line is that begins with a carriage return.
    fn returned(&mut self, next: Option<u8>) -> Result<usize, SqlError> {
        match (self.end, next) {
            (End::Unknown | End::Both, Some(b'\n')) => {
                self.end = End::Both;
                Ok(2)
            }
            (End::Unknown | End::Return, _) => {
                self.end = End::Return;
                Ok(1)
            }
            (End::Both | End::Newline, _) => Err(self.wrong_end("carriage return")),
        }
    }

    fn newline(&mut self) -> Result<usize, SqlError> {
        if matches!(self.end, End::Return | End::Both) {
            return Err(self.wrong_end("newline"));
        }
        self.end = End::Newline;
        Ok(1)
    }

    /// What a backslash begins, if that is not a byte of a field.
    fn marker(&self, next: Option<u8>, last: bool) -> Result<Marker, SqlError> {
        let is_text = self.csv.is_none();
        if next != Some(b'.') {
            return Ok(Marker::None);
        }
        let corrupt = || bad_format("end-of-copy marker corrupt");
        let differs = || bad_format("end-of-copy marker does not match previous newline style");
        let mut at = self.at + 2;
        if self.end == End::Both {
            match self.buffer.get(at) {
                None if !last => return Ok(Marker::Open),
                Some(b'\r') => at += 1,
                _ if !is_text => return Ok(Marker::None),
                Some(b'\n') => return Err(differs()),
                _ => return Err(corrupt()),
            }
        }
        let end = match self.buffer.get(at) {
            None if !last => return Ok(Marker::Open),
            Some(b'\r') => End::Return,
            Some(b'\n') => End::Newline,
            _ if is_text => return Err(corrupt()),
            _ => return Ok(Marker::None),
        };
        match self.end {
            End::Newline | End::Both if end != End::Newline => Err(differs()),
            End::Return if end != End::Return => Err(differs()),
            _ => Ok(Marker::End),
        }
    }
}

/// What a backslash begins.
enum Marker {
    None,
    /// That depends on bytes that have not come.
    Open,
    /// The end of the data.
    End,
}
