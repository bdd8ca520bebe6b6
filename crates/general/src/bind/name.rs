//! Names of things that statements mention.

pub(super) use freshet_sql::names::{fold, of_column};
use freshet_sql::{SqlError, SqlState, functions::SetDeclared};
use sqlparser::ast::{ObjectName, ObjectNamePart};

/// The parts of a name.
///
/// # Errors
/// When one of them is no plain name.
pub(super) fn parts(name: &ObjectName) -> Result<Vec<String>, SqlError> {
    name.0
        .iter()
        .map(|part| match part {
            ObjectNamePart::Identifier(ident) => Ok(fold(ident)),
            ObjectNamePart::Function(_) => Err(SqlError::new(SqlState::SYNTAX_ERROR, format!("\"{name}\" is no name"))),
        })
        .collect()
}

/// The schema and the name of a table; the database is left out if it is named.
///
/// # Errors
/// When there are too many parts.
pub(super) fn qualified(name: &ObjectName) -> Result<(Option<String>, String), SqlError> {
    let mut parts = parts(name)?;
    let last = parts.pop();
    match (last, parts.len()) {
        (Some(last), 0..=2) => Ok((parts.pop(), last)),
        _ => Err(SqlError::new(
            SqlState::SYNTAX_ERROR,
            format!("improper qualified name (too many dotted names): {name}"),
        )),
    }
}

/// The name of a function.
///
/// # Errors
/// 42883 when there are no functions in its schema.
pub(super) fn function(name: &ObjectName) -> Result<String, SqlError> {
    routine(name).map(|(_, name)| name)
}

/// The schema and the name of a function, which is in `pg_catalog` unless it says that it is in
/// `information_schema`.
///
/// # Errors
/// 42883 when there is no function in its schema, or none of this name.
pub(super) fn routine(name: &ObjectName) -> Result<(Option<String>, String), SqlError> {
    match qualified(name)? {
        (None, name) => Ok((None, name)),
        (Some(schema), name) if schema == "pg_catalog" || SetDeclared::named(Some(&schema), &name).next().is_some() => {
            Ok((Some(schema), name))
        }
        (Some(schema), name) => {
            Err(SqlError::new(SqlState::UNDEFINED_FUNCTION, format!("function {schema}.{name} does not exist")))
        }
    }
}
