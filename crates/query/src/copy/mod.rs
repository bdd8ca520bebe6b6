//! COPY: its syntax, and rows as files have them.
//!
//! | module | does |
//! |---|---|
//! | [`syntax`] | the statement |
//! | [`lines`] | lines of text and CSV |
//! | [`text`] | PostgreSQL's text format |
//! | [`csv`] | CSV |
//! | [`binary`] | PostgreSQL's binary format |
//!
//! The formats know nothing of tables: they make fields of bytes that come in pieces cut anywhere,
//! and bytes of fields.

pub mod binary;
pub mod csv;
mod lines;
pub mod syntax;
pub mod text;

use freshet_postgres::Encoding;
use freshet_sql::{SqlError, SqlState, types::text::decode};

use lines::Lines;

/// The longest row that is taken, in bytes.
const LONGEST_ROW: usize = 256 << 20;

/// How rows are written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Format {
    /// Text, CSV or binary.
    pub kind: Kind,
    /// What stands between fields.
    pub delimiter: u8,
    /// How null is written.
    pub null: String,
    /// What the first line is.
    pub header: Header,
    /// What stands around fields of CSV.
    pub quote: u8,
    /// What stands before a quote within one.
    pub escape: u8,
    /// Columns of CSV that are always quoted; `*` for all.
    pub force_quote: Vec<String>,
    /// Columns of CSV in which nothing is null that is written as null is.
    pub force_not_null: Vec<String>,
    /// Columns of CSV in which what is written as null is null even if it is quoted.
    pub force_null: Vec<String>,
    /// The encoding of the data, if it is not the client's.
    pub encoding: Option<Encoding>,
}

/// What the first line is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Header {
    /// The first line is a row like all others.
    #[default]
    None,
    /// Names, which are not looked at.
    Line,
    /// Names, which must be those of the columns.
    Match,
}

/// How COPY writes rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Lines of fields, with backslashes.
    Text,
    /// Comma-separated values.
    Csv,
    /// As in the protocol.
    Binary,
}

impl Format {
    /// PostgreSQL's defaults of a format.
    pub fn of(kind: Kind) -> Self {
        let (delimiter, null) = match kind {
            Kind::Csv => (b',', String::new()),
            _ => (b'\t', "\\N".to_owned()),
        };
        Self {
            kind,
            delimiter,
            null,
            header: Header::None,
            quote: b'"',
            escape: b'"',
            force_quote: Vec::new(),
            force_not_null: Vec::new(),
            force_null: Vec::new(),
            encoding: None,
        }
    }
}

/// The fields of one row: null, or bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Fields {
    bytes: Vec<u8>,
    /// Where each ends, and whether it is null, and whether it was quoted.
    ends: Vec<(usize, bool, bool)>,
}

impl Fields {
    fn clear(&mut self) {
        self.bytes.clear();
        self.ends.clear();
    }

    fn push(&mut self, null: bool, quoted: bool) {
        self.ends.push((self.bytes.len(), null, quoted));
    }

    /// How many fields there are.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// The field of this number; none if it is null.
    pub fn get(&self, number: usize) -> Option<&[u8]> {
        let (end, null, _) = *self.ends.get(number)?;
        let start = number.checked_sub(1).map_or(0, |before| self.ends[before].0);
        (!null).then(|| &self.bytes[start..end])
    }

    /// Its bytes, even if they mean null; and whether it was quoted.
    pub fn raw(&self, number: usize) -> (&[u8], bool) {
        let (end, _, quoted) = self.ends[number];
        let start = number.checked_sub(1).map_or(0, |before| self.ends[before].0);
        (&self.bytes[start..end], quoted)
    }
}

/// Makes rows of bytes.
pub trait Decoder {
    /// Takes the next bytes.
    ///
    /// # Errors
    /// 22P04 when they are no rows.
    fn feed(&mut self, bytes: &[u8], row: &mut dyn FnMut(&Fields) -> Result<(), SqlError>) -> Result<(), SqlError>;

    /// There are no more bytes.
    ///
    /// # Errors
    /// 22P04 when something is missing.
    fn finish(&mut self, row: &mut dyn FnMut(&Fields) -> Result<(), SqlError>) -> Result<(), SqlError>;
}

/// The error 22P04: the data is not shaped as its format says.
pub fn bad_format(message: impl Into<String>) -> SqlError {
    SqlError::new(SqlState::BAD_COPY_FILE_FORMAT, message.into())
}

/// Makes rows of lines.
#[derive(Debug)]
struct LineDecoder {
    format: Format,
    lines: Lines,
    /// The names of the columns, for messages.
    names: Vec<String>,
    header: Header,
    fields: Fields,
}

impl LineDecoder {
    fn take(&mut self, last: bool, row: &mut dyn FnMut(&Fields) -> Result<(), SqlError>) -> Result<(), SqlError> {
        while let Some(at) = self.lines.next(last)? {
            let line = self.lines.line(at);
            let header = std::mem::take(&mut self.header);
            if header == Header::Line {
                continue;
            }
            if self.names.is_empty() {
                // Nothing is not a field of nothing.
                self.fields.clear();
                if !line.is_empty() {
                    return Err(bad_format("extra data after last expected column"));
                }
            } else if self.format.kind == Kind::Csv {
                csv::split(line, &self.format, &mut self.fields)?;
            } else {
                text::split(line, self.format.delimiter, self.format.null.as_bytes(), &mut self.fields);
            }
            match header {
                Header::Match => check_header(&self.fields, &self.names, &self.format.null)?,
                _ => row(&self.fields)?,
            }
        }
        Ok(())
    }
}

impl Decoder for LineDecoder {
    fn feed(&mut self, bytes: &[u8], row: &mut dyn FnMut(&Fields) -> Result<(), SqlError>) -> Result<(), SqlError> {
        self.lines.feed(bytes)?;
        self.take(false, row)
    }

    fn finish(&mut self, row: &mut dyn FnMut(&Fields) -> Result<(), SqlError>) -> Result<(), SqlError> {
        self.take(true, row)?;
        match self.header {
            // There is not even that line.
            Header::Match => {
                self.fields.clear();
                self.fields.push(self.format.null.is_empty(), false);
                check_header(&self.fields, &self.names, &self.format.null)
            }
            _ => Ok(()),
        }
    }
}

/// Fails unless a line has the columns' names.
fn check_header(fields: &Fields, names: &[String], null: &str) -> Result<(), SqlError> {
    (0..fields.len()).try_for_each(|number| decode(fields.raw(number).0).map(drop))?;
    if fields.len() != names.len() {
        let (count, expected) = (fields.len(), names.len());
        let message = format!("wrong number of fields in header line: got {count}, expected {expected}");
        return Err(bad_format(message));
    }
    for (number, name) in names.iter().enumerate() {
        let got = match fields.get(number) {
            Some(field) if field == name.as_bytes() => continue,
            Some(field) => format!("\"{}\"", String::from_utf8_lossy(field)),
            None => format!("null value (\"{null}\")"),
        };
        let place = number + 1;
        let message = format!("column name mismatch in header line field {place}: got {got}, expected \"{name}\"");
        return Err(bad_format(message));
    }
    Ok(())
}

/// The decoder of a format, for rows with columns of these names.
pub fn decoder(format: &Format, names: &[&str]) -> Box<dyn Decoder> {
    match format.kind {
        Kind::Text | Kind::Csv => Box::new(LineDecoder {
            lines: Lines::new(format),
            names: names.iter().map(|name| (*name).to_owned()).collect(),
            header: format.header,
            fields: Fields::default(),
            format: format.clone(),
        }),
        Kind::Binary => Box::new(binary::BinaryDecoder::new(names.len())),
    }
}
