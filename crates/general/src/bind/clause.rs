//! Where an expression stands, and what is collected from the expressions of a SELECT before its
//! plan can be made.

use datafusion_common::Column;
use datafusion_expr::Expr;
use freshet_sql::{SqlError, SqlState, Type};

use super::{Binder, Level, typed::Typed};
use crate::series::SeriesCall;

/// Where an expression stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Clause {
    /// The list of SELECT.
    Select,
    Having,
    OrderBy,
    #[default]
    Where,
    JoinOn,
    GroupBy,
    Values,
    Limit,
    /// Arguments of functions in FROM.
    From,
    /// Arguments of aggregates.
    Aggregate,
    /// FILTER of aggregates.
    Filter,
    /// Arguments and definitions of windows.
    Window,
}

impl Clause {
    fn name(self) -> &'static str {
        match self {
            Self::Select => "SELECT",
            Self::Having => "HAVING",
            Self::OrderBy => "ORDER BY",
            Self::Where => "WHERE",
            Self::JoinOn => "JOIN conditions",
            Self::GroupBy => "GROUP BY",
            Self::Values => "VALUES",
            Self::Limit => "LIMIT",
            Self::From => "functions in FROM",
            Self::Aggregate => "aggregate functions",
            Self::Filter => "FILTER",
            Self::Window => "window definitions",
        }
    }
}

/// Something that is computed by a node of its own, and which the expressions around it see as a
/// column.
#[derive(Clone, Debug)]
pub(super) struct Collect {
    /// The expression that the node computes.
    pub expr: Expr,
    /// The column with its results, for the expressions around it.
    pub column: Typed,
    /// The name of that column, unique in the query.
    pub name: String,
}

/// What the expressions of a SELECT contain.
#[derive(Debug, Default)]
pub(super) struct Collected {
    pub aggregates: Vec<Collect>,
    pub windows: Vec<Collect>,
    /// What windows are divided and ordered by, where that is volatile: it is computed once for
    /// each row, before any window is looked at.
    pub keys: Vec<Collect>,
    pub series: Vec<SeriesCall>,
}

impl Binder<'_> {
    /// Gives what is computed by a node of its own a column.
    pub(super) fn collect(&mut self, expr: Expr, ty: Type, name: &str) -> Collect {
        let name = self.fresh(name);
        let column = Typed::new(Expr::Column(Column::new_unqualified(name.clone())), ty);
        Collect { expr, column, name }
    }

    /// The column of something that the SELECT computes so; what is the same is computed once.
    pub(super) fn collected(
        &mut self,
        of: impl Fn(&mut Collected) -> &mut Vec<Collect>,
        expr: Expr,
        ty: Type,
        name: &str,
    ) -> Typed {
        if let Some(same) = of(&mut self.level().collected).iter().find(|collect| collect.expr == expr) {
            return same.column.clone();
        }
        let collect = self.collect(expr, ty, name);
        let column = collect.column.clone();
        of(&mut self.level().collected).push(collect);
        column
    }
}

impl Level {
    /// # Errors
    /// 42803 where aggregates are not allowed.
    pub fn check_aggregate(&self) -> Result<(), SqlError> {
        match self.clause {
            Clause::Select | Clause::Having | Clause::OrderBy | Clause::Window => Ok(()),
            Clause::Aggregate => {
                Err(SqlError::new(SqlState::GROUPING_ERROR, "aggregate function calls cannot be nested"))
            }
            clause => Err(SqlError::new(
                SqlState::GROUPING_ERROR,
                format!("aggregate functions are not allowed in {}", clause.name()),
            )),
        }
    }

    /// # Errors
    /// 42P20 where window functions are not allowed.
    pub fn check_window(&self) -> Result<(), SqlError> {
        let error = |message: String| Err(SqlError::new(SqlState::WINDOWING_ERROR, message));
        match self.clause {
            Clause::Select | Clause::OrderBy => Ok(()),
            Clause::Window => error("window function calls cannot be nested".to_owned()),
            Clause::Aggregate => Err(SqlError::new(
                SqlState::GROUPING_ERROR,
                "aggregate function calls cannot contain window function calls",
            )),
            clause => error(format!("window functions are not allowed in {}", clause.name())),
        }
    }

    /// # Errors
    /// 0A000 where functions that return sets are not allowed.
    pub fn check_series(&self) -> Result<(), SqlError> {
        match self.clause {
            Clause::Select | Clause::OrderBy => Ok(()),
            clause => Err(SqlError::new(
                SqlState::FEATURE_NOT_SUPPORTED,
                format!("set-returning functions are not allowed in {}", clause.name()),
            )),
        }
    }
}
