//! SQLSTATE codes, and the error that a client sees.

use std::{borrow::Cow, fmt};

/// A SQLSTATE: five characters that tell a program what happened.
///
/// The names are those of PostgreSQL's conditions.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SqlState([u8; 5]);

impl SqlState {
    /// A state that has no name here. Anything but five digits or capitals becomes
    /// [`SqlState::INTERNAL_ERROR`].
    pub const fn new(code: &str) -> Self {
        match Self::checked(code) {
            Some(state) => state,
            None => Self(*b"XX000"),
        }
    }

    const fn checked(code: &str) -> Option<Self> {
        let bytes = code.as_bytes();
        if bytes.len() != 5 {
            return None;
        }
        let mut state = [0; 5];
        let mut at = 0;
        while at < 5 {
            if !bytes[at].is_ascii_digit() && !bytes[at].is_ascii_uppercase() {
                return None;
            }
            state[at] = bytes[at];
            at += 1;
        }
        Some(Self(state))
    }

    /// The code's five characters.
    pub fn code(&self) -> &str {
        std::str::from_utf8(&self.0).unwrap_or("XX000")
    }

    /// The first two characters: the class of the condition.
    pub fn class(&self) -> &str {
        &self.code()[..2]
    }
}

impl fmt::Display for SqlState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.code())
    }
}

impl fmt::Debug for SqlState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.code())
    }
}

macro_rules! states {
    ($($name:ident = $code:literal,)+) => {
        impl SqlState {
            $(
                #[doc = concat!("`", $code, "`")]
                pub const $name: Self = Self::new($code);
            )+
        }

        #[cfg(test)]
        const NAMED: &[(&str, SqlState)] = &[$((stringify!($name), SqlState::$name)),+];
    };
}

states! {
    SUCCESSFUL_COMPLETION = "00000",
    WARNING = "01000",
    NULL_VALUE_ELIMINATED_IN_SET_FUNCTION = "01003",
    STRING_DATA_RIGHT_TRUNCATION_WARNING = "01004",
    PRIVILEGE_NOT_REVOKED = "01006",
    PRIVILEGE_NOT_GRANTED = "01007",
    DEPRECATED_FEATURE = "01P01",
    NO_DATA = "02000",
    SQL_STATEMENT_NOT_YET_COMPLETE = "03000",
    CONNECTION_EXCEPTION = "08000",
    CONNECTION_FAILURE = "08006",
    PROTOCOL_VIOLATION = "08P01",
    FEATURE_NOT_SUPPORTED = "0A000",
    INVALID_GRANTOR = "0L000",
    INVALID_ROLE_SPECIFICATION = "0P000",
    CASE_NOT_FOUND = "20000",
    CARDINALITY_VIOLATION = "21000",
    DATA_EXCEPTION = "22000",
    STRING_DATA_RIGHT_TRUNCATION = "22001",
    NUMERIC_VALUE_OUT_OF_RANGE = "22003",
    NULL_VALUE_NOT_ALLOWED = "22004",
    INVALID_DATETIME_FORMAT = "22007",
    DATETIME_FIELD_OVERFLOW = "22008",
    INVALID_TIME_ZONE_DISPLACEMENT_VALUE = "22009",
    ESCAPE_CHARACTER_CONFLICT = "2200B",
    INVALID_PARAMETER_VALUE = "22023",
    INVALID_ESCAPE_CHARACTER = "22019",
    INVALID_ESCAPE_SEQUENCE = "22025",
    INVALID_USE_OF_ESCAPE_CHARACTER = "2200C",
    SUBSTRING_ERROR = "22011",
    DIVISION_BY_ZERO = "22012",
    INTERVAL_FIELD_OVERFLOW = "22015",
    INVALID_REGULAR_EXPRESSION = "2201B",
    INVALID_ARGUMENT_FOR_LOGARITHM = "2201E",
    INVALID_ARGUMENT_FOR_POWER_FUNCTION = "2201F",
    INVALID_ARGUMENT_FOR_WIDTH_BUCKET_FUNCTION = "2201G",
    INVALID_ROW_COUNT_IN_LIMIT_CLAUSE = "2201W",
    INVALID_ROW_COUNT_IN_RESULT_OFFSET_CLAUSE = "2201X",
    CHARACTER_NOT_IN_REPERTOIRE = "22021",
    INDICATOR_OVERFLOW = "22022",
    ARRAY_SUBSCRIPT_ERROR = "2202E",
    DUPLICATE_JSON_OBJECT_KEY_VALUE = "22030",
    FLOATING_POINT_EXCEPTION = "22P01",
    INVALID_TEXT_REPRESENTATION = "22P02",
    INVALID_BINARY_REPRESENTATION = "22P03",
    BAD_COPY_FILE_FORMAT = "22P04",
    UNTRANSLATABLE_CHARACTER = "22P05",
    NONSTANDARD_USE_OF_ESCAPE_CHARACTER = "22P06",
    SEQUENCE_GENERATOR_LIMIT_EXCEEDED = "2200H",
    INTEGRITY_CONSTRAINT_VIOLATION = "23000",
    RESTRICT_VIOLATION = "23001",
    NOT_NULL_VIOLATION = "23502",
    FOREIGN_KEY_VIOLATION = "23503",
    UNIQUE_VIOLATION = "23505",
    CHECK_VIOLATION = "23514",
    EXCLUSION_VIOLATION = "23P01",
    INVALID_CURSOR_STATE = "24000",
    INVALID_TRANSACTION_STATE = "25000",
    ACTIVE_SQL_TRANSACTION = "25001",
    NO_ACTIVE_SQL_TRANSACTION = "25P01",
    READ_ONLY_SQL_TRANSACTION = "25006",
    IN_FAILED_SQL_TRANSACTION = "25P02",
    IDLE_IN_TRANSACTION_SESSION_TIMEOUT = "25P03",
    INVALID_SQL_STATEMENT_NAME = "26000",
    INVALID_AUTHORIZATION_SPECIFICATION = "28000",
    INVALID_PASSWORD = "28P01",
    DEPENDENT_OBJECTS_STILL_EXIST = "2BP01",
    INVALID_TRANSACTION_TERMINATION = "2D000",
    INVALID_CURSOR_NAME = "34000",
    EXTERNAL_ROUTINE_INVOCATION_EXCEPTION = "39000",
    INVALID_SAVEPOINT_SPECIFICATION = "3B001",
    INVALID_CATALOG_NAME = "3D000",
    INVALID_SCHEMA_NAME = "3F000",
    TRANSACTION_ROLLBACK = "40000",
    SERIALIZATION_FAILURE = "40001",
    TRANSACTION_INTEGRITY_CONSTRAINT_VIOLATION = "40002",
    STATEMENT_COMPLETION_UNKNOWN = "40003",
    DEADLOCK_DETECTED = "40P01",
    SYNTAX_ERROR_OR_ACCESS_RULE_VIOLATION = "42000",
    INSUFFICIENT_PRIVILEGE = "42501",
    SYNTAX_ERROR = "42601",
    INVALID_NAME = "42602",
    INVALID_COLUMN_DEFINITION = "42611",
    NAME_TOO_LONG = "42622",
    RESERVED_NAME = "42939",
    DATATYPE_MISMATCH = "42804",
    INDETERMINATE_DATATYPE = "42P18",
    WRONG_OBJECT_TYPE = "42809",
    CANNOT_COERCE = "42846",
    GROUPING_ERROR = "42803",
    WINDOWING_ERROR = "42P20",
    INVALID_RECURSION = "42P19",
    INVALID_FOREIGN_KEY = "42830",
    GENERATED_ALWAYS = "428C9",
    UNDEFINED_COLUMN = "42703",
    UNDEFINED_FUNCTION = "42883",
    UNDEFINED_TABLE = "42P01",
    UNDEFINED_PARAMETER = "42P02",
    UNDEFINED_OBJECT = "42704",
    DUPLICATE_COLUMN = "42701",
    DUPLICATE_CURSOR = "42P03",
    DUPLICATE_DATABASE = "42P04",
    DUPLICATE_PREPARED_STATEMENT = "42P05",
    DUPLICATE_SCHEMA = "42P06",
    DUPLICATE_TABLE = "42P07",
    DUPLICATE_ALIAS = "42712",
    DUPLICATE_OBJECT = "42710",
    AMBIGUOUS_COLUMN = "42702",
    AMBIGUOUS_FUNCTION = "42725",
    AMBIGUOUS_PARAMETER = "42P08",
    AMBIGUOUS_ALIAS = "42P09",
    INVALID_COLUMN_REFERENCE = "42P10",
    INVALID_CURSOR_DEFINITION = "42P11",
    INVALID_TABLE_DEFINITION = "42P16",
    INVALID_OBJECT_DEFINITION = "42P17",
    WITH_CHECK_OPTION_VIOLATION = "44000",
    INSUFFICIENT_RESOURCES = "53000",
    DISK_FULL = "53100",
    OUT_OF_MEMORY = "53200",
    TOO_MANY_CONNECTIONS = "53300",
    CONFIGURATION_LIMIT_EXCEEDED = "53400",
    PROGRAM_LIMIT_EXCEEDED = "54000",
    STATEMENT_TOO_COMPLEX = "54001",
    TOO_MANY_COLUMNS = "54011",
    TOO_MANY_ARGUMENTS = "54023",
    OBJECT_NOT_IN_PREREQUISITE_STATE = "55000",
    OBJECT_IN_USE = "55006",
    CANT_CHANGE_RUNTIME_PARAM = "55P02",
    LOCK_NOT_AVAILABLE = "55P03",
    OPERATOR_INTERVENTION = "57000",
    QUERY_CANCELED = "57014",
    ADMIN_SHUTDOWN = "57P01",
    CRASH_SHUTDOWN = "57P02",
    CANNOT_CONNECT_NOW = "57P03",
    DATABASE_DROPPED = "57P04",
    IDLE_SESSION_TIMEOUT = "57P05",
    SYSTEM_ERROR = "58000",
    IO_ERROR = "58030",
    RAISE_EXCEPTION = "P0001",
    INTERNAL_ERROR = "XX000",
    DATA_CORRUPTED = "XX001",
    INDEX_CORRUPTED = "XX002",
}

/// Text of an error: mostly fixed.
pub type Text = Cow<'static, str>;

/// What a client is told about an error: the fields of PostgreSQL's ErrorResponse.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// The SQLSTATE, by which programs tell errors apart.
    pub state: SqlState,
    /// The first line, for people.
    pub message: Text,
    /// The field DETAIL: what exactly is wrong.
    pub detail: Option<Text>,
    /// What to do about it.
    pub hint: Option<Text>,
    /// Where in the statement, in characters, from 1.
    pub position: Option<u32>,
    /// The schema and the name of the table concerned.
    pub table: Option<(Text, Text)>,
    /// The name of the column concerned.
    pub column: Option<Text>,
    /// The name of the type concerned.
    pub data_type: Option<Text>,
    /// The name of the constraint concerned.
    pub constraint: Option<Text>,
    /// PostgreSQL's function that says the same, where programs tell errors apart by it.
    pub routine: Option<&'static str>,
}

/// An error with its SQLSTATE. One pointer wide, so that results stay small.
#[derive(Clone, PartialEq, Eq)]
pub struct SqlError(Box<Report>);

impl SqlError {
    /// An error with nothing but state and message.
    #[cold]
    pub fn new(state: SqlState, message: impl Into<Text>) -> Self {
        Self(Box::new(Report {
            state,
            message: message.into(),
            detail: None,
            hint: None,
            position: None,
            table: None,
            column: None,
            data_type: None,
            constraint: None,
            routine: None,
        }))
    }

    /// An error that no client should see: a mistake in this program.
    #[cold]
    pub fn internal(message: impl Into<Text>) -> Self {
        Self::new(SqlState::INTERNAL_ERROR, message)
    }

    /// The same with a detail.
    #[must_use]
    pub fn with_detail(mut self, detail: impl Into<Text>) -> Self {
        self.0.detail = Some(detail.into());
        self
    }

    /// The same with a hint.
    #[must_use]
    pub fn with_hint(mut self, hint: impl Into<Text>) -> Self {
        self.0.hint = Some(hint.into());
        self
    }

    /// The same with a place in the statement, in characters, from 1.
    #[must_use]
    pub fn with_position(mut self, position: u32) -> Self {
        self.0.position = Some(position);
        self
    }

    /// The same with the table that it concerns: its schema and its name.
    #[must_use]
    pub fn with_table(mut self, schema: impl Into<Text>, name: impl Into<Text>) -> Self {
        self.0.table = Some((schema.into(), name.into()));
        self
    }

    /// The same with the column that it concerns.
    #[must_use]
    pub fn with_column(mut self, column: impl Into<Text>) -> Self {
        self.0.column = Some(column.into());
        self
    }

    /// The same with the type that it concerns.
    #[must_use]
    pub fn with_data_type(mut self, data_type: impl Into<Text>) -> Self {
        self.0.data_type = Some(data_type.into());
        self
    }

    /// The same with the constraint that it concerns.
    #[must_use]
    pub fn with_constraint(mut self, constraint: impl Into<Text>) -> Self {
        self.0.constraint = Some(constraint.into());
        self
    }

    /// The same with PostgreSQL's function that says it.
    #[must_use]
    pub fn with_routine(mut self, routine: &'static str) -> Self {
        self.0.routine = Some(routine);
        self
    }

    /// The error with all of its fields, to be sent.
    pub fn into_report(self) -> Report {
        *self.0
    }
}

impl std::ops::Deref for SqlError {
    type Target = Report;

    fn deref(&self) -> &Report {
        &self.0
    }
}

impl fmt::Display for SqlError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.message, self.state)
    }
}

impl fmt::Debug for SqlError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)?;
        for (name, text) in [("detail", &self.detail), ("hint", &self.hint)] {
            if let Some(text) = text {
                write!(f, "; {name}: {text}")?;
            }
        }
        Ok(())
    }
}

impl std::error::Error for SqlError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_are_distinct_and_well_formed() {
        for (at, (name, state)) in NAMED.iter().enumerate() {
            assert_eq!(SqlState::new(state.code()), *state, "{name}");
            assert!(NAMED[..at].iter().all(|(_, other)| other != state), "{name}");
        }
        assert_eq!(SqlState::new("42a01"), SqlState::INTERNAL_ERROR);
        assert_eq!(SqlState::UNIQUE_VIOLATION.class(), "23");
    }

    #[test]
    fn an_error_is_one_pointer_and_shows_what_it_knows() {
        assert_eq!(size_of::<SqlError>(), size_of::<usize>());
        let error =
            SqlError::new(SqlState::UNIQUE_VIOLATION, "duplicate key").with_detail("Key (a)=(1) already exists.");
        assert_eq!(format!("{error:?}"), "duplicate key (23505); detail: Key (a)=(1) already exists.");
    }
}
