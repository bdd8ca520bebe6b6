//! What clients are told when something fails or is worth knowing.

use std::fmt;

/// A SQLSTATE: the code by which programs tell errors apart.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct SqlState([u8; 5]);

impl SqlState {
    /// A code, for use in constants.
    ///
    /// # Panics
    /// Unless it is five digits or capital letters.
    #[must_use]
    pub const fn new(code: &str) -> Self {
        let &[a, b, c, d, e] = code.as_bytes() else { panic!("a SQLSTATE has five characters") };
        let state = [a, b, c, d, e];
        let mut at = 0;
        while at < state.len() {
            assert!(state[at].is_ascii_digit() || state[at].is_ascii_uppercase(), "digits and capital letters only");
            at += 1;
        }
        Self(state)
    }

    /// The code, as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        std::str::from_utf8(&self.0).unwrap_or("XX000")
    }

    /// `successful_completion`
    pub const SUCCESS: Self = Self::new("00000");
    /// `warning`
    pub const WARNING: Self = Self::new("01000");
    /// `connection_failure`
    pub const CONNECTION_FAILURE: Self = Self::new("08006");
    /// `protocol_violation`
    pub const PROTOCOL_VIOLATION: Self = Self::new("08P01");
    /// `feature_not_supported`
    pub const FEATURE_NOT_SUPPORTED: Self = Self::new("0A000");
    /// `character_not_in_repertoire`: what should be UTF-8 is not
    pub const CHARACTER_NOT_IN_REPERTOIRE: Self = Self::new("22021");
    /// `invalid_parameter_value`
    pub const INVALID_PARAMETER_VALUE: Self = Self::new("22023");
    /// `untranslatable_character`
    pub const UNTRANSLATABLE_CHARACTER: Self = Self::new("22P05");
    /// `idle_in_transaction_session_timeout`
    pub const IDLE_IN_TRANSACTION: Self = Self::new("25P03");
    /// `invalid_authorization_specification`
    pub const INVALID_AUTHORIZATION: Self = Self::new("28000");
    /// `invalid_password`
    pub const INVALID_PASSWORD: Self = Self::new("28P01");
    /// `invalid_cursor_name`: no such portal
    pub const INVALID_CURSOR_NAME: Self = Self::new("34000");
    /// `serialization_failure`
    pub const SERIALIZATION_FAILURE: Self = Self::new("40001");
    /// `statement_completion_unknown`
    pub const STATEMENT_COMPLETION_UNKNOWN: Self = Self::new("40003");
    /// `syntax_error`
    pub const SYNTAX_ERROR: Self = Self::new("42601");
    /// `too_many_connections`
    pub const TOO_MANY_CONNECTIONS: Self = Self::new("53300");
    /// `program_limit_exceeded`
    pub const PROGRAM_LIMIT_EXCEEDED: Self = Self::new("54000");
    /// `too_many_columns`
    pub const TOO_MANY_COLUMNS: Self = Self::new("54011");
    /// `query_canceled`
    pub const QUERY_CANCELED: Self = Self::new("57014");
    /// `admin_shutdown`
    pub const ADMIN_SHUTDOWN: Self = Self::new("57P01");
    /// `cannot_connect_now`
    pub const CANNOT_CONNECT_NOW: Self = Self::new("57P03");
    /// `idle_session_timeout`
    pub const IDLE_SESSION: Self = Self::new("57P05");
    /// `internal_error`
    pub const INTERNAL_ERROR: Self = Self::new("XX000");
    /// `data_corrupted`
    pub const DATA_CORRUPTED: Self = Self::new("XX001");
}

impl fmt::Display for SqlState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Debug for SqlState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// How grave a report is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Severity {
    /// DEBUG: for who looks for a fault.
    Debug,
    /// INFO: what the statement was asked to tell.
    Info,
    /// NOTICE: the statement has done something that its user may want to know.
    Notice,
    /// WARNING: the statement has worked, and its user has probably meant something else.
    Warning,
    /// The statement has failed.
    Error,
    /// FATAL: the connection ends.
    Fatal,
}

impl Severity {
    /// As it stands in messages.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Debug => "DEBUG",
            Self::Info => "INFO",
            Self::Notice => "NOTICE",
            Self::Warning => "WARNING",
            Self::Error => "ERROR",
            Self::Fatal => "FATAL",
        }
    }
}

/// An error or a notice, with what PostgreSQL's clients expect to learn of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report(Box<Fields>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct Fields {
    severity: Severity,
    state: SqlState,
    message: String,
    detail: Option<String>,
    hint: Option<String>,
    /// In characters of the statement, from 1.
    position: Option<u32>,
    context: Option<String>,
    column: Option<String>,
    data_type: Option<String>,
    schema: Option<String>,
    table: Option<String>,
    constraint: Option<String>,
    routine: Option<String>,
}

impl Report {
    /// A report of any severity.
    #[must_use]
    pub fn new(severity: Severity, state: SqlState, message: impl Into<String>) -> Self {
        Self(Box::new(Fields {
            severity,
            state,
            message: message.into(),
            detail: None,
            hint: None,
            position: None,
            context: None,
            column: None,
            data_type: None,
            schema: None,
            table: None,
            constraint: None,
            routine: None,
        }))
    }

    /// The statement has failed.
    #[must_use]
    pub fn error(state: SqlState, message: impl Into<String>) -> Self {
        Self::new(Severity::Error, state, message)
    }

    /// The connection is to end.
    #[must_use]
    pub fn fatal(state: SqlState, message: impl Into<String>) -> Self {
        Self::new(Severity::Fatal, state, message)
    }

    /// A notice with the code of success.
    #[must_use]
    pub fn notice(message: impl Into<String>) -> Self {
        Self::new(Severity::Notice, SqlState::SUCCESS, message)
    }

    /// Something that is probably a mistake.
    #[must_use]
    pub fn warning(state: SqlState, message: impl Into<String>) -> Self {
        Self::new(Severity::Warning, state, message)
    }

    /// Adds the field DETAIL.
    #[must_use]
    pub fn detail(mut self, detail: impl Into<String>) -> Self {
        self.0.detail = Some(detail.into());
        self
    }

    /// What to do about it.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.0.hint = Some(hint.into());
        self
    }

    /// Where in the statement, in characters from 1.
    #[must_use]
    pub fn position(mut self, position: u32) -> Self {
        self.0.position = Some(position);
        self
    }

    /// Adds the field CONTEXT: what was being done.
    #[must_use]
    pub fn context(mut self, context: impl Into<String>) -> Self {
        self.0.context = Some(context.into());
        self
    }

    /// The table that it is about: its schema and its name.
    #[must_use]
    pub fn table(mut self, schema: impl Into<String>, name: impl Into<String>) -> Self {
        (self.0.schema, self.0.table) = (Some(schema.into()), Some(name.into()));
        self
    }

    /// The column that it is about.
    #[must_use]
    pub fn column(mut self, column: impl Into<String>) -> Self {
        self.0.column = Some(column.into());
        self
    }

    /// The type that it is about.
    #[must_use]
    pub fn data_type(mut self, data_type: impl Into<String>) -> Self {
        self.0.data_type = Some(data_type.into());
        self
    }

    /// The constraint that it is about.
    #[must_use]
    pub fn constraint(mut self, constraint: impl Into<String>) -> Self {
        self.0.constraint = Some(constraint.into());
        self
    }

    /// The function of PostgreSQL that reports this: some clients know errors by it.
    #[must_use]
    pub fn routine(mut self, routine: impl Into<String>) -> Self {
        self.0.routine = Some(routine.into());
        self
    }

    /// The same, but the connection ends.
    #[must_use]
    pub fn into_fatal(mut self) -> Self {
        self.0.severity = Severity::Fatal;
        self
    }

    /// How grave it is.
    #[must_use]
    pub fn severity(&self) -> Severity {
        self.0.severity
    }

    /// The report's SQLSTATE.
    #[must_use]
    pub fn state(&self) -> SqlState {
        self.0.state
    }

    /// The report's first line.
    #[must_use]
    pub fn message(&self) -> &str {
        &self.0.message
    }

    /// Fields as they stand in messages: a letter and a text.
    pub(crate) fn fields(&self, mut field: impl FnMut(u8, &str)) {
        let fields = &*self.0;
        field(b'S', fields.severity.as_str());
        field(b'V', fields.severity.as_str());
        field(b'C', fields.state.as_str());
        field(b'M', &fields.message);
        if let Some(position) = fields.position {
            field(b'P', &position.to_string());
        }
        let texts = [
            (b'D', &fields.detail),
            (b'H', &fields.hint),
            (b'W', &fields.context),
            (b's', &fields.schema),
            (b't', &fields.table),
            (b'c', &fields.column),
            (b'd', &fields.data_type),
            (b'n', &fields.constraint),
            (b'R', &fields.routine),
        ];
        for (letter, text) in texts {
            if let Some(text) = text {
                field(letter, text);
            }
        }
    }

    /// What a client sent breaks the protocol.
    pub(crate) fn violation(message: impl Into<String>) -> Self {
        Self::fatal(SqlState::PROTOCOL_VIOLATION, message)
    }

    /// The client cannot be reached any more. Nobody will read this; it ends the statement.
    pub(crate) fn gone() -> Self {
        Self::fatal(SqlState::CONNECTION_FAILURE, "the client has gone")
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {} ({})", self.0.severity.as_str(), self.0.message, self.0.state)?;
        if let Some(detail) = &self.0.detail {
            write!(f, "; {detail}")?;
        }
        Ok(())
    }
}

impl std::error::Error for Report {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_stand_in_their_order_and_only_when_given() {
        let report = Report::error(SqlState::new("23505"), "duplicate key")
            .detail("Key (id)=(1) already exists.")
            .position(7)
            .constraint("t_pkey")
            .routine("_bt_check_unique");
        let mut fields = Vec::new();
        report.fields(|letter, text| fields.push((char::from(letter), text.to_owned())));
        let expected = [
            ('S', "ERROR"),
            ('V', "ERROR"),
            ('C', "23505"),
            ('M', "duplicate key"),
            ('P', "7"),
            ('D', "Key (id)=(1) already exists."),
            ('n', "t_pkey"),
            ('R', "_bt_check_unique"),
        ];
        assert_eq!(fields, expected.map(|(letter, text)| (letter, text.to_owned())));
        assert_eq!(report.to_string(), "ERROR: duplicate key (23505); Key (id)=(1) already exists.");
    }
}
