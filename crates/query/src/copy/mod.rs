//! COPY: its syntax, and rows as files have them.
//!
//! | module | does |
//! |---|---|
//! | [`syntax`] | the statement |
//! | [`text`] | PostgreSQL's text format |
//! | [`csv`] | CSV |
//! | [`binary`] | PostgreSQL's binary format |
//!
//! The formats know nothing of tables: they make fields of bytes that come in pieces cut anywhere, and bytes of fields.

pub mod binary;
pub mod csv;
pub mod syntax;
pub mod text;

use freshet_sql::{SqlError, SqlState};

/// The longest row that is taken, in bytes.
const LONGEST_ROW: usize = 256 << 20;

/// How rows are written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Format {
    /// Which format.
    pub kind: Kind,
    /// What stands between fields.
    pub delimiter: u8,
    /// How null is written.
    pub null: String,
    /// The first line has names.
    pub header: bool,
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
}

/// Which format.
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
            header: false,
            quote: b'"',
            escape: b'"',
            force_quote: Vec::new(),
            force_not_null: Vec::new(),
            force_null: Vec::new(),
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

    /// How many there are.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// One of them.
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

/// 22P04
pub fn bad_format(message: impl Into<String>) -> SqlError {
    SqlError::new(SqlState::BAD_COPY_FILE_FORMAT, message.into())
}

/// The decoder of a format, for rows with this many columns.
pub fn decoder(format: &Format, columns: usize) -> Box<dyn Decoder> {
    match format.kind {
        Kind::Text => Box::new(text::TextDecoder::new(format)),
        Kind::Csv => Box::new(csv::CsvDecoder::new(format)),
        Kind::Binary => Box::new(binary::BinaryDecoder::new(columns)),
    }
}
