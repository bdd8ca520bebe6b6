//! Calls of functions that return sets.

use datafusion_common::Column;
use datafusion_expr::Expr;
use freshet_sql::{Kind, SqlError, SqlState, Type};

use super::{Binder, call::Arguments, typed::Typed};
use crate::{
    error::unsupported,
    series::{Series, SeriesCall},
};

impl Binder<'_> {
    /// A call outside of FROM: it is expanded beneath the list that it stands in, which sees a column.
    pub(super) fn series_call(&mut self, series: Series, arguments: &Arguments<'_>) -> Result<Typed, SqlError> {
        self.level().check_series()?;
        let mut typed = Vec::with_capacity(arguments.exprs.len());
        for expr in &arguments.exprs {
            typed.push(self.expression(expr)?);
        }
        let call = self.series(series, typed)?;
        let made = |column: &Column| {
            self.levels.last().is_some_and(|level| {
                let mut calls = level.collected.series.iter();
                calls.any(|call| call.columns.iter().any(|(name, _)| *name == column.name))
            })
        };
        if call.arguments.iter().any(|(expr, _)| expr.column_refs().into_iter().any(made)) {
            return Err(unsupported("a set-returning function as an argument of another one"));
        }
        let [(name, ty)] = call.columns.as_slice() else {
            return Err(unsupported(format_args!("{} outside of FROM", series.name())));
        };
        let column = Typed::new(Expr::Column(Column::new_unqualified(name.clone())), *ty);
        self.level().collected.series.push(call);
        Ok(column)
    }

    /// Chooses the function for its arguments.
    ///
    /// # Errors
    /// 42883 when there is none.
    pub(super) fn series(&mut self, series: Series, typed: Vec<Typed>) -> Result<SeriesCall, SqlError> {
        let kinds: Vec<Kind> = typed.iter().map(Typed::kind).collect();
        let Some((series, arguments, columns)) = series.resolve(&kinds) else {
            let kinds: Vec<_> = kinds.iter().map(|kind| kind.sql_name()).collect();
            let (name, kinds) = (series.name(), kinds.join(", "));
            return Err(SqlError::new(
                SqlState::UNDEFINED_FUNCTION,
                format!("function {name}({kinds}) does not exist"),
            )
            .with_hint(
                "No function matches the given name and argument types. You might need to add explicit type casts.",
            ));
        };
        let mut coerced = Vec::with_capacity(typed.len());
        for (typed, kind) in typed.into_iter().zip(arguments) {
            coerced.push(self.coerce(typed, Type::of(kind))?.pair());
        }
        let columns = columns.into_iter().map(|(name, kind)| (self.fresh(name), Type::of(kind))).collect();
        Ok(SeriesCall { series, arguments: coerced, columns })
    }

    /// A function that returns one value, as one that returns a set of one.
    pub(super) fn single(&mut self, name: &str, value: Typed) -> SeriesCall {
        let columns = vec![(self.fresh(name), value.ty)];
        SeriesCall { series: Series::Single, arguments: vec![value.pair()], columns }
    }
}
