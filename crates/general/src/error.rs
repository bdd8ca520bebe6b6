//! Errors on their way through DataFusion and out of it.

use arrow::error::ArrowError;
use datafusion_common::DataFusionError;
use freshet_sql::{SqlError, SqlState};

/// Wraps an error so that it comes out as it is.
#[cold]
pub(crate) fn external(error: SqlError) -> DataFusionError {
    DataFusionError::External(Box::new(error))
}

/// What a client is told about an error.
#[cold]
pub(crate) fn to_sql(error: DataFusionError) -> SqlError {
    find(&error).unwrap_or_else(|| SqlError::internal(error.strip_backtrace()))
}

fn find(error: &DataFusionError) -> Option<SqlError> {
    match error {
        DataFusionError::External(error) => of_any(error.as_ref()),
        DataFusionError::Context(_, error) | DataFusionError::Diagnostic(_, error) => find(error),
        DataFusionError::Shared(error) => find(error),
        DataFusionError::Collection(errors) => errors.iter().find_map(find),
        DataFusionError::ArrowError(error, _) => of_arrow(error),
        DataFusionError::ResourcesExhausted(detail) => Some(out_of_memory(detail)),
        DataFusionError::NotImplemented(what) => {
            Some(SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, format!("not supported: {what}")))
        }
        _ => None,
    }
}

fn of_any(error: &(dyn std::error::Error + Send + Sync + 'static)) -> Option<SqlError> {
    if let Some(error) = error.downcast_ref::<SqlError>() {
        return Some(error.clone());
    }
    if let Some(error) = error.downcast_ref::<DataFusionError>() {
        return find(error);
    }
    error.downcast_ref::<ArrowError>().and_then(of_arrow)
}

fn of_arrow(error: &ArrowError) -> Option<SqlError> {
    match error {
        ArrowError::ExternalError(error) => of_any(error.as_ref()),
        ArrowError::DivideByZero => Some(SqlError::new(SqlState::DIVISION_BY_ZERO, "division by zero")),
        ArrowError::ArithmeticOverflow(_) => {
            Some(SqlError::new(SqlState::NUMERIC_VALUE_OUT_OF_RANGE, "value out of range"))
        }
        ArrowError::MemoryError(detail) => Some(out_of_memory(detail)),
        ArrowError::OffsetOverflowError(_) => {
            Some(SqlError::new(SqlState::PROGRAM_LIMIT_EXCEEDED, "too much text in one batch of rows"))
        }
        _ => None,
    }
}

fn out_of_memory(detail: &str) -> SqlError {
    let first = detail.lines().next().unwrap_or_default().to_owned();
    SqlError::new(SqlState::OUT_OF_MEMORY, "out of memory").with_detail(first)
}

/// The error for what is not supported.
#[cold]
pub(crate) fn unsupported(what: impl std::fmt::Display) -> SqlError {
    SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, format!("{what} is not supported"))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn an_error_of_ours_comes_out_of_any_wrapping() {
        let mine = SqlError::new(SqlState::DATETIME_FIELD_OVERFLOW, "too late").with_hint("be early");
        let wrapped = DataFusionError::Context(
            "reading".to_owned(),
            Box::new(DataFusionError::Shared(Arc::new(DataFusionError::from(ArrowError::ExternalError(Box::new(
                external(mine.clone()),
            )))))),
        );
        assert_eq!(to_sql(wrapped), mine);
    }

    #[test]
    fn other_errors_have_states() {
        let state = |error: DataFusionError| to_sql(error).state;
        assert_eq!(state(DataFusionError::ResourcesExhausted("much".to_owned())), SqlState::OUT_OF_MEMORY);
        assert_eq!(state(DataFusionError::NotImplemented("it".to_owned())), SqlState::FEATURE_NOT_SUPPORTED);
        assert_eq!(state(ArrowError::DivideByZero.into()), SqlState::DIVISION_BY_ZERO);
        assert_eq!(state(DataFusionError::Plan("odd".to_owned())), SqlState::INTERNAL_ERROR);
    }
}
